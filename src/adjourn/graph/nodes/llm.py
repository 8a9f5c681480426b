"""LLM nodes: a model that reads the conversation in a graph's state and writes its answer there."""

# Overrides are documented on the base class.
# ruff: noqa: D102

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, cast

from adjourn._calls.caller import Instruction, InstructionFunction, Kit, as_tools, middleware_around, with_own_ids
from adjourn._calls.model import MODEL_RETRY, Asking, hooked
from adjourn._engine.execution import execute
from adjourn.errors import UsageError
from adjourn.events import MessageEvent
from adjourn.graph._channels import Channel, LastChannel
from adjourn.graph._frame import Task
from adjourn.graph._node import Node, Shape
from adjourn.graph._options import NodeSettings
from adjourn.graph.schema import Schema
from adjourn.messages import Message, RemoveAllMessages
from adjourn.middleware.hooks import Hooks, Last, Middleware
from adjourn.models import ChatModel, ModelRequest, resolve_model
from adjourn.tools import Tool

from ._caller import NodeCaller, node_hooks, tool_names
from ._conversation import (
    Input,
    call_ids,
    field,
    has_own_history,
    history,
    known_to,
    lacks,
    lacks_messages,
    one_shot,
    with_input,
    with_new_ids,
)
from .function import check_no_graph

BY_NODE = "one_shot_messages_by_node"
ONE_SHOT = "one_shot_messages"

CALLED, ANSWERED = "calls tools", "answers"
"""What a model does next; drawings use these as labels, too."""


class _Given(Input, frozen=True, kw_only=True):
    """The input of an LLM node, with the stored history and the key to clear once the model has answered."""

    stored: list[Message]
    key: str | None = None


class LLMNode(Node):
    """A node that asks a model once.

    Its input is the first of these that is set: its entry in `one_shot_messages_by_node`, `one_shot_messages`, the
    history followed by the user's input, or the history alone.
    """

    shape: Shape = "llm"

    def __init__(
        self,
        name: str,
        model: str | ChatModel,
        instruction: str | InstructionFunction,
        tools: Sequence[Tool | Callable[..., Any]],
        user_input_key: str,
        middleware: Sequence[Any],
        model_options: Mapping[str, Any] | None,
        options: NodeSettings,
    ) -> None:
        super().__init__(name, options)
        self.model: ChatModel = resolve_model(model)
        self.instruction = instruction
        self.tools: tuple[Tool, ...] = as_tools(tools, name)
        self.key = user_input_key
        own = node_hooks(middleware, name)
        self.middleware: tuple[Any, ...] = own.all
        self.hooks: tuple[Middleware, ...] = own.wrap_node
        self.model_options: dict[str, Any] = _options(name, model_options)
        self._instruction = Instruction(instruction, f"The instruction of node '{name}'")
        self._plain = Kit(name, self.tools, own)
        self._kits: Last[Kit] = Last()

    def problems(self, schema: Schema) -> Iterable[str]:
        yield from lacks_messages("LLM node", self.name, schema)
        key = self.key
        if not isinstance(key, str) or (key != "user_input" and not schema.problems and lacks(schema, key)):  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
            yield f"LLM node '{self.name}' has user_input_key={key!r}, which is not a field of the state"

    def marks(self) -> list[str]:
        return ["LLM", *tool_names(self.tools)]

    def run(self, task: Task) -> Awaitable[Any]:
        return execute(task, self._ask, task)

    def recall(self, task: Task, added: Collection[str]) -> bool:
        with_new_ids(task, self.key)
        for number, (name, value, plain) in enumerate(task.writes):
            if name == "messages" and value and isinstance(value[-1], Message):
                answer = value[-1].with_id(NodeCaller(task).answer_id())
                task.writes[number] = (name, [*value[:-1], answer], plain)
        return True

    def check_restored(self, task: Task, below: Iterable[str]) -> None:
        check_no_graph(task, below)

    async def _ask(self, task: Task) -> dict[str, Any]:
        """Ask the model and return the update; the state is read field by field."""
        caller = NodeCaller(task)
        outer = middleware_around(task)
        kit = self._kits.of(outer, partial(self._kit, outer)) if outer else self._plain
        read = self._read(task)
        messages = read.messages
        hooks = kit.hooks
        if hooks.before_model:
            messages = await hooked(hooks.before_model, "before_model", messages, kit)
        # A node that has its own policy is tried again as a whole.
        asking = Asking(caller, kit, (self.model,), (MODEL_RETRY,) if self.options.retry is None else ())

        async def request() -> ModelRequest:
            return await self._request(task, kit, messages)

        after = [*messages, await asking.answer(request)]
        if hooks.after_model:
            # The hooks see the calls with the ids under which they will run.
            after[-1] = own = with_own_ids(after[-1], call_ids([*read.stored, *messages]))
            after = await hooked(hooks.after_model, "after_model", after, kit)
            if after[-1] != own:  # Other ids of calls alone void nothing that readers have.
                asking.check_shown(after[-1])
        return self._written(task, caller, read, after)

    def _kit(self, outer: tuple[Any, ...]) -> Kit:
        return Kit(self.name, self.tools, Hooks((*outer, *self.middleware)), outer=len(outer))

    # Reading

    def _read(self, task: Task) -> _Given:
        before = history(task)
        for key in (BY_NODE, ONE_SHOT):
            kept = field(task, key, None)
            found: object = kept.get(self.name) if key == BY_NODE and kept else kept
            if found:
                return _Given(messages=one_shot(task, key, found), new=[], stored=before, key=key)
        read = with_input(task, before, self.key)
        key = self.key if field(task, self.key, "") else None
        return _Given(messages=read.messages, new=read.new, stored=before, key=key)

    async def _request(self, task: Task, kit: Kit, messages: Sequence[Message]) -> ModelRequest:
        own = self._instruction
        instruction = own.filled(task.read_value) if own.function is None else await own.called()
        has_own = any(message.role == "system" for message in messages)
        sent = [Message.system(instruction), *messages] if instruction and not has_own else messages
        options = {**task.scope.turn_options, **self.model_options}
        return ModelRequest(messages=sent, tools=kit.specs, options=options)

    # Writing

    def _written(self, task: Task, caller: NodeCaller, read: _Given, after: list[Message]) -> dict[str, Any]:
        reply = with_own_ids(after[-1], call_ids([*read.stored, *after[:-1]]))
        reply = reply if reply.id is not None else reply.with_id(caller.answer_id())
        caller.emit(MessageEvent(address=task.address, message=reply))
        update: dict[str, Any] = {
            "messages": [*_kept(task, read, after[:-1]), reply],
            "last_response": reply.text,
            "node_responses": {self.name: reply.text},
            **self._emptied(task, read.key),
        }
        return known_to(task, update)

    def _emptied(self, task: Task, key: str | None) -> dict[str, Any]:
        match key:
            case None:
                return {}
            case "one_shot_messages":
                return {key: []}
            case "one_shot_messages_by_node":
                merges = type(task.graph.plan.schema.channels.get(key)) not in (Channel, LastChannel)
                return {key: {**({} if merges else field(task, key, {})), self.name: []}}
            case _:
                return {key: ""}


def _kept(task: Task, read: _Given, seen: list[Message]) -> list[Any]:
    """Return what joins the history besides the answer: the new part of the node's input, as the hooks left it."""
    if read.key in (BY_NODE, ONE_SHOT):
        return [message for message in seen if message.role == "user"][-1:]
    if seen == read.messages:
        return read.new
    if has_own_history(task):
        return []
    stored = {message.id: message for message in read.stored}
    if [message.id for message in seen[: len(read.messages)]] != [message.id for message in read.messages]:
        return [RemoveAllMessages(), *seen]
    return [message for message in seen if message.id is None or stored.get(message.id) != message]


def _options(name: str, options: object) -> dict[str, Any]:
    if not isinstance(options, Mapping | None):
        raise UsageError(f"LLM node '{name}': options={options!r}. Give a mapping of the provider's options.")
    return dict(cast("Mapping[str, Any]", options or {}))


def went_on(state: Any) -> str:
    """Return what a model did, judging by the newest message of a state: it called tools, or it answered."""
    messages = cast("list[Message]", state["messages"] if isinstance(state, Mapping) else state.messages)
    return CALLED if messages and messages[-1].tool_calls else ANSWERED
