"""Middleware: hooks around an agent, its model calls and its tool calls."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, cast

from msgspec import Struct

from adjourn.context import RunContext
from adjourn.messages import Message
from adjourn.models import ModelRequest
from adjourn.tools import Tool


class Setup(Struct, frozen=True, kw_only=True):
    """What an agent starts with; the instruction is rendered, and is not a template any more."""

    agent: str
    instruction: str
    tools: tuple[Tool, ...]
    return_directly: tuple[str, ...] = ()


class ModelState(Struct, frozen=True, kw_only=True):
    """What an agent sees of the conversation; what a hook returns is what it sees from then on."""

    messages: tuple[Message, ...]


class AgentEnd(Struct, frozen=True, kw_only=True):
    """How an agent ended: its text, and why (`None` is the usual way, else `exit`, `break_loop` or `transfer`)."""

    agent: str
    output: str
    action: str | None = None


class ToolRequest(Struct, frozen=True, kw_only=True):
    """A tool call that is about to run, with validated and approved arguments."""

    tool: str
    call_id: str
    arguments: Mapping[str, Any]
    agent: str


ModelCall = Callable[[ModelRequest], Awaitable[Message]]
ToolCallable = Callable[[ToolRequest], Awaitable[Any]]
ToolStream = Callable[[ToolRequest], AsyncIterator[str]]


class Middleware:
    """Override any of these, sync or async; of several, the first in the list is outermost.

    Each may ask a person: the questions stand at `middleware:<name>`. When it runs again, what it called is given
    back, so it may do after `call` what it likes.
    """

    brings_tools: bool = False
    """Whether it gives tools to the agent that it prepares, without which the rest of it makes no sense."""

    @property
    def name(self) -> str:
        """The name in addresses, by default the class's."""
        return type(self).__name__

    def before_agent(self, setup: Setup) -> Setup | Awaitable[Setup]:
        """Change what the agent starts with. It runs again in each process that goes on with the agent."""
        return setup

    def after_agent(self, end: AgentEnd) -> None | Awaitable[None]:
        """See how the agent ended."""

    def before_model(self, state: ModelState, ctx: RunContext) -> ModelState | Awaitable[ModelState]:
        """Change what the agent sees, before it is asked; the change is kept."""
        return state

    def after_model(self, state: ModelState, ctx: RunContext) -> ModelState | Awaitable[ModelState]:
        """Change what the agent sees, with its newest answer at the end; the change is kept."""
        return state

    def wrap_model(self, call: ModelCall, request: ModelRequest) -> Message | Awaitable[Message]:
        """Surround a model call: `await call(request)` gives the whole message."""
        raise NotImplementedError

    def wrap_tool(self, call: ToolCallable, request: ToolRequest) -> Any:
        """Surround a tool call: `await call(request)` gives its result."""
        raise NotImplementedError

    def wrap_tool_stream(self, call: ToolStream, request: ToolRequest) -> AsyncIterator[str]:
        """Surround the pieces of a streaming tool."""
        raise NotImplementedError


AROUND_CALLS = ("before_model", "after_model", "wrap_model", "wrap_tool", "wrap_tool_stream")
"""The hooks that a node of a graph has a place for, as an agent has."""


def for_agents_only(middleware: tuple[Any, ...]) -> tuple[Middleware, ...]:
    """Those that can do nothing, or not what they are for, without an agent to prepare."""
    around = {each for hook in AROUND_CALLS for each in having(middleware, hook)}
    return tuple(each for each in having(middleware, "before_agent") if each.brings_tools or each not in around)


def having(middleware: tuple[Any, ...], hook: str) -> tuple[Middleware, ...]:
    """Those that override a hook."""
    own = getattr(Middleware, hook)
    return tuple(each for each in middleware if getattr(cast("Any", type(each)), hook, own) is not own)
