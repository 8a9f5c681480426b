"""Tools nodes: run the tool calls that a model asked for in a graph's state, each in its own frame."""

# Overrides are documented on the base class.
# ruff: noqa: D102

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeGuard, cast

from msgspec.structs import replace

from adjourn._calls.approval import check_call
from adjourn._calls.caller import CALLS_PER_ANSWER, Kit, OnError, OnUnknown, as_tools, middleware_around, with_own_ids
from adjourn._calls.tool import CallResult, use
from adjourn._engine.address import segment_text
from adjourn._engine.child import beside
from adjourn._engine.entry import here
from adjourn._engine.execution import execute
from adjourn._engine.record import Question
from adjourn.errors import Pause, RunError
from adjourn.events import ToolResult
from adjourn.graph._frame import Task
from adjourn.graph._node import Node, Shape
from adjourn.graph._options import NodeSettings
from adjourn.graph.schema import Schema
from adjourn.messages import Message, ToolCall
from adjourn.middleware.hooks import Hooks, Last, Middleware, having
from adjourn.tools import Tool

from ._caller import NodeCaller, node_hooks, tool_names
from ._conversation import call_ids, history, known_to, lacks_messages
from .function import check_no_graph

_End = tuple[Message, Mapping[str, Any] | None]
"""The message that answers a call, and the arguments it ran with if a person edited them."""


class _Asking(NamedTuple):
    """A message that asks for tools: as stored, with an id for each call, and its unanswered calls."""

    stored: Message
    message: Message
    calls: list[ToolCall]


class ToolsNode(Node):
    """A node that answers the newest assistant message with tool calls: one tool message per call, in call order."""

    shape: Shape = "tools"

    def __init__(
        self,
        name: str,
        tools: Sequence[Tool | Callable[..., Any]],
        options: NodeSettings,
        *,
        sequential: bool,
        on_error: OnError,
        on_unknown: OnUnknown,
        middleware: Sequence[Any],
        max_calls: int | None = CALLS_PER_ANSWER,
    ) -> None:
        super().__init__(name, options)
        self.tools: tuple[Tool, ...] = as_tools(tools, name)
        self.sequential = sequential
        self.max_calls = max_calls
        self.on_error: OnError = on_error
        self.on_unknown: OnUnknown = on_unknown
        own = node_hooks(middleware, name)
        self.middleware: tuple[Any, ...] = own.all
        self.hooks: tuple[Middleware, ...] = own.wrap_node
        for each in own.check_own_tools:
            each.check_own_tools(self.tools)
        self._plain = self._kit(())
        self._kits: Last[Kit] = Last()

    def _kit(self, outer: tuple[Any, ...]) -> Kit:
        return Kit(
            self.name,
            self.tools,
            Hooks((*outer, *self.middleware)),
            outer=len(outer),
            on_error=self.on_error,
            on_unknown=self.on_unknown,
        )

    def problems(self, schema: Schema) -> Iterable[str]:
        yield from lacks_messages("tools node", self.name, schema)
        if self.options.cache is not None:
            for each in self._plain.tools.values():
                if each.approval is not False or each.review is not None:
                    yield f"the tool '{each.name}' of node '{self.name}' needs an approval, so its result is not cached"

    def marks(self) -> list[str]:
        return tool_names(self.tools) or ["tools"]

    def run(self, task: Task) -> Awaitable[Any]:
        return execute(task, self._answer, task)

    def may_cache(self, task: Task) -> bool:
        return not having((*middleware_around(task), *self.middleware), "guard_tool")

    def cache_input(self, task: Task) -> Any:
        return [(call.name, dict(call.arguments), call.raw) for call in self._asking(history(task)).calls]

    def recall(self, task: Task, added: Collection[str]) -> bool:
        """Make the results those of the calls that are open here: of the same tools, with the same arguments."""
        asking = self._asking(history(task))
        for number, (name, value, plain) in enumerate(task.writes):
            if name == "messages":
                kept = [each for each in value if each.role == "tool"] if _is_list_of_messages(value) else []
                if len(kept) != len(asking.calls):
                    return False  # Hooks around the node have changed them.
                pairs = zip(kept, asking.calls, strict=True)
                results = [replace(each, id=None, tool_call_id=call.id) for each, call in pairs]
                task.writes[number] = (name, [*_changed(asking, asking.message), *results], plain)
        return True

    def check_answer(self, task: Task, question: Question) -> None:
        below = question.address.removeprefix(task.address).lstrip(";")
        if below and not middleware_around(task):
            segment, handles = below.partition(";")[0], callable(self.on_unknown)
            calls = self._asking(history(task)).calls
            given = {_segment(call): call.arguments for call in calls}
            address = f"{task.address};{segment}"
            check_call(address, question, self._plain.tools, given.get(segment, {}), handles_unknown=handles)

    def check_restored(self, task: Task, below: Iterable[str]) -> None:
        check_no_graph(task, below)

    async def _answer(self, task: Task) -> dict[str, Any]:
        """Run the calls and return their results; the state is read field by field."""
        caller = NodeCaller(task)
        outer = middleware_around(task)
        kit = self._kits.of(outer, partial(self._kit, outer)) if outer else self._plain
        asking = self._asking(history(task))
        ends = await self._ends(caller, kit, asking.calls[: self.max_calls])
        ends += [(self._surplus(call), None) for call in asking.calls[len(ends) :]]
        results = [end[0] for end in ends]
        shown = _with_arguments(asking.message, {each[0].tool_call_id: each[1] for each in ends})
        update = {
            "messages": [*_changed(asking, shown), *results],
            "last_tool_response": results[-1].text,
            "node_responses": {self.name: [result.text for result in results]},
        }
        return known_to(task, update)

    def _asking(self, messages: Sequence[Message]) -> _Asking:
        place = _newest(messages)
        if place is not None:
            stored, earlier = messages[place], _since_user(messages[:place])
            message = with_own_ids(stored, call_ids(earlier))
            answered = {after.tool_call_id for after in messages[place + 1 :]}
            if calls := [call for call in message.tool_calls if call.id not in answered]:
                return _Asking(stored, message, calls)
        raise RunError(
            f"Tools node '{self.name}' has nothing to answer: no message with open tool calls comes after the user's. "
            "Lead to it only from a model that called tools (add_tools_conditional_edges)."
        )

    def _surplus(self, call: ToolCall) -> Message:
        """Return the result of a call that is not made."""
        text = f"This call was not made: {self.max_calls} in one answer is the most. Call again if it is still needed."
        return _message(call, CallResult(content=text, error=text))

    async def _ends(self, caller: NodeCaller, kit: Kit, calls: Sequence[ToolCall]) -> list[_End]:
        if self.sequential:
            return [await self._end(caller, kit, call) for call in calls]
        # Let every call get as far as it can, so that all questions are asked at once.
        ends = await asyncio.gather(*(self._end(caller, kit, call) for call in calls), return_exceptions=True)
        failures = [end for end in ends if isinstance(end, BaseException)]
        for failure in sorted(failures, key=lambda end: isinstance(end, Pause)):
            raise failure
        return [end for end in ends if not isinstance(end, BaseException)]

    async def _end(self, caller: NodeCaller, kit: Kit, call: ToolCall) -> _End:
        async def run() -> list[Any]:
            at = here("a tools node")
            result = await use(at.frame, caller, kit, call)
            message = _message(call, result)
            caller.emit(
                ToolResult(
                    address=at.address,
                    tool=call.name,
                    call_id=call.id,
                    result=message.text,
                    error=result.error,
                    full=result.full,
                )
            )
            return [message, None if result.arguments is None else dict(result.arguments)]

        return cast("_End", await beside(_segment(call), run))


def _segment(call: ToolCall) -> str:
    return segment_text("tool", call.name, call.id)


def _is_list_of_messages(value: object) -> TypeGuard[list[Message]]:
    return isinstance(value, list) and all(isinstance(each, Message) for each in cast("list[object]", value))


def _changed(asking: _Asking, shown: Message) -> list[Message]:
    """Return the message that asked, if its calls got other ids than it has, or arguments that a person edited."""
    return [shown] if shown != asking.stored and shown.id is not None else []


def _newest(messages: Sequence[Message]) -> int | None:
    """Return the index of the newest message with tool calls, if the user has said nothing since."""
    for place in range(len(messages) - 1, -1, -1):
        if messages[place].role == "user":
            return None
        if messages[place].tool_calls:
            return place
    return None


def _since_user(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages of the turn so far."""
    places = [place for place, message in enumerate(messages) if message.role == "user"]
    return messages[places[-1] + 1 :] if places else messages


def _with_arguments(message: Message, edited: Mapping[str | None, Mapping[str, Any] | None]) -> Message:
    calls = tuple(
        call if edited.get(call.id) is None else call.with_arguments(edited[call.id] or {})
        for call in message.tool_calls
    )
    return replace(message, tool_calls=calls)


def _message(call: ToolCall, result: CallResult) -> Message:
    message = Message.tool(result.content, tool_call_id=call.id, name=call.name)
    return message if result.error is None else message.with_finish("error")
