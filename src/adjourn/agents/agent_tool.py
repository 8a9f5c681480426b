"""Agents as tools: an agent that another one calls, with a separate conversation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from adjourn._engine.child import run_child
from adjourn._engine.entry import here
from adjourn._engine.program import Program
from adjourn._engine.record import Image
from adjourn._engine.scope import Frame, Scope
from adjourn._habits import checks_options
from adjourn._schemas.answers import schema_of
from adjourn.graph._frame import Task
from adjourn.messages import Message
from adjourn.tools import Tool, tool

from ._config import AgentConfig
from ._frame import AgentFrame
from ._transcript import Ending


class Inner(Program[Any, Any, Any, str]):
    """An agent as the program of its tool: it starts afresh, and its events are emitted only if `emits`."""

    kind = "agent"

    def __init__(self, agent: AgentConfig, *, emits: bool) -> None:
        self.name: str = agent.name
        self._agent = agent
        self._emits = emits

    def convert_product(self, product: Any) -> str:
        """Return the text of the agent's result."""
        return product.output if isinstance(product, Ending) else product

    def open(self, scope: Scope, parent: Frame | None, segment: str, image: Image | None) -> AgentFrame:
        """Return a frame for the agent."""
        frame = self._agent.open(scope, parent, segment, image)
        assert isinstance(frame, AgentFrame)
        frame.emits = self._emits
        return frame


@checks_options
def AgentTool(  # noqa: N802  # to users it is a kind of tool
    agent: AgentConfig,
    *,
    name: str | None = None,
    description: str | None = None,
    input_schema: Any = None,
    full_history: bool = False,
    approval: bool | Callable[..., Any] = False,
    emit_internal_events: bool = False,
) -> Tool:
    """Return an agent as a tool for another one; the tool's result is the agent's final text.

    Its argument is `request`, or the arguments in `input_schema` (a type or a JSON Schema), which the agent gets as
    JSON. It starts without the caller's conversation, unless `full_history`.
    """
    inner = Inner(agent, emits=emit_internal_events)

    async def call(request: str) -> Any:
        return await run_child(here("AgentTool"), inner, _input(request, full_history), None)

    async def call_with(**arguments: Any) -> Any:
        text = msgspec.json.encode(arguments).decode()
        return await run_child(here("AgentTool"), inner, _input(text, full_history), None)

    made = tool(
        cast("Callable[..., Any]", call if input_schema is None else call_with),
        name=name or agent.name,
        description=agent.description if description is None else description,
        approval=approval,
        schema=None if input_schema is None else _schema(input_schema),
    )
    return replace(made, runs=(agent,))


def _schema(given: Any) -> dict[str, Any]:
    schema = schema_of(given) or {}
    if "$ref" in schema:
        definitions = cast("dict[str, Any]", schema["$defs"])
        schema = {**definitions[schema["$ref"].rpartition("/")[2]], "$defs": definitions}
    return schema


def _input(request: str, full_history: bool) -> list[Message]:
    before: list[Message] = []
    frame: Frame | None = here("AgentTool").frame
    while frame is not None and not isinstance(frame, Task):
        frame = frame.parent
    if full_history and frame is not None and isinstance(frame.graph, AgentFrame):
        seen = frame.graph.seen()
        before = [message for message in seen if message.role in ("user", "assistant") and message.text]
    return [*(Message(role=m.role, content=m.content) for m in before), Message.user(request)]
