"""Tools nodes: run the tool calls that a model asked for in a graph's state, each in its own frame."""

# Overrides are documented on the base class.
# ruff: noqa: D102

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from msgspec.structs import replace

from adjourn._calls.approval import check_call
from adjourn._calls.caller import Kit, as_tools, middleware_around, with_own_ids
from adjourn._calls.tool import Outcome, use
from adjourn._engine.address import segment_text
from adjourn._engine.child import beside
from adjourn._engine.entry import execute
from adjourn._engine.frame import here
from adjourn._engine.record import Question
from adjourn.errors import Pause, RunError
from adjourn.events import ToolResult
from adjourn.graph._frame import Task
from adjourn.graph._node import Node
from adjourn.graph.schema import Schema
from adjourn.messages import Message, ToolCall
from adjourn.tools import Tool

from ._caller import NodeCaller, node_middleware, tool_names
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

    shape = "tools"

    def __init__(
        self,
        name: str,
        tools: Sequence[Tool | Callable[..., Any]],
        *,
        sequential: bool,
        raises_errors: bool,
        middleware: Sequence[Any],
    ) -> None:
        super().__init__(name)
        self.tools = as_tools(tools, name)
        self.sequential = sequential
        self.raises_errors = raises_errors
        self.middleware = node_middleware(middleware, name)
        self._plain = Kit(name, self.tools, self.middleware, raises_errors=raises_errors)

    def problems(self, schema: Schema) -> Iterable[str]:
        return lacks_messages("tools node", self.name, schema)

    def marks(self) -> list[str]:
        return tool_names(self.tools) or ["tools"]

    def run(self, task: Task) -> Awaitable[Any]:
        return execute(task, self._answer, task)

    def check_answer(self, task: Task, question: Question) -> None:
        below = question.address.removeprefix(task.address).lstrip(";")
        if below and not middleware_around(task):
            check_call(f"{task.address};{below.partition(';')[0]}", question, self._plain.tools)

    def check_restored(self, task: Task, below: Iterable[str]) -> None:
        check_no_graph(task, below)

    async def _answer(self, task: Task) -> dict[str, Any]:
        """Run the calls and return their results; the state is read field by field."""
        caller = NodeCaller(task)
        outer = middleware_around(task)
        middleware = (*outer, *self.middleware)
        kit = Kit(self.name, self.tools, middleware, raises_errors=self.raises_errors) if outer else self._plain
        asking = self._asking(history(task))
        ends = await self._ends(caller, kit, asking.calls)
        results = [end[0] for end in ends]
        shown = _with_arguments(asking.message, {each[0].tool_call_id: each[1] for each in ends})
        # Show the calls with the ids they were given and with the arguments that a person edited.
        changed = [shown] if shown != asking.stored and shown.id is not None else []
        return known_to(task, {"messages": [*changed, *results], "last_tool_response": results[-1].text})

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
            outcome = await use(at.frame, caller, kit, call)
            message = _message(call, outcome)
            caller.emit(
                ToolResult(
                    address=at.address,
                    tool=call.name,
                    call_id=call.id,
                    result=message.text,
                    error=outcome.error,
                    full=outcome.full,
                )
            )
            return [message, None if outcome.arguments is None else dict(outcome.arguments)]

        return cast("_End", await beside(segment_text("tool", call.name, call.id), run))


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
        call if edited.get(call.id) is None else ToolCall(id=call.id, name=call.name, arguments=edited[call.id] or {})
        for call in message.tool_calls
    )
    return replace(message, tool_calls=calls)


def _message(call: ToolCall, outcome: Outcome) -> Message:
    message = Message.tool(outcome.content, tool_call_id=call.id, name=call.name)
    return message if outcome.error is None else message.with_finish("error")
