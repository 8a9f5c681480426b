"""Middleware: hooks around an agent, its model calls and its tool calls."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

from msgspec import Struct

from adjourn.context import RunContext
from adjourn.messages import Message
from adjourn.models import ModelRequest
from adjourn.tools import Tool


class Setup(Struct, frozen=True, kw_only=True):
    """What an agent starts with; the instruction is already rendered and no longer a template."""

    agent: str
    instruction: str
    tools: tuple[Tool, ...]
    return_directly: tuple[str, ...] = ()


class ModelState(Struct, frozen=True, kw_only=True):
    """The conversation as an agent sees it; a hook's return value is what it sees from then on."""

    messages: tuple[Message, ...]


class AgentEnd(Struct, frozen=True, kw_only=True):
    """How an agent ended: its text, and the action that ended it (`None`, `exit`, `break_loop` or `transfer`)."""

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
    """Hooks around an agent. Override any of them, sync or async; the first middleware in the list is the outermost.

    Each hook may ask a person: its questions have the address `middleware:<name>`. When a hook runs again, `call`
    returns its stored result, so the code after it may ask as well.
    """

    brings_tools: bool = False
    """Whether it adds tools to the agent that the rest of the middleware depends on."""

    @property
    def holds_back(self) -> bool:
        """Whether readers see an answer only after `wrap_model` has returned it, and none of its pieces before."""
        return False

    @property
    def name(self) -> str:
        """The name in addresses, by default the name of the class."""
        return type(self).__name__

    def before_agent(self, setup: Setup) -> Setup | Awaitable[Setup]:
        """Change what the agent starts with. It runs again in each process that continues the agent."""
        return setup

    def check_tools(self, tools: Sequence[Tool]) -> None:
        """Refuse, with a `UsageError`, to work with the tools of the agent or node that it was given to."""

    def guard_tool(self, tool: Tool) -> Tool:
        """Return a tool as it may be called, such as with an `approval`; every tool that a call can reach comes here.

        It must not depend on anything but the tool: it is called again in each process.
        """
        return tool

    def after_agent(self, end: AgentEnd) -> None | Awaitable[None]:
        """Observe how the agent ended."""

    def before_model(self, state: ModelState, ctx: RunContext) -> ModelState | Awaitable[ModelState]:
        """Change what the agent sees before its model is called; the change is kept."""
        return state

    def after_model(self, state: ModelState, ctx: RunContext) -> ModelState | Awaitable[ModelState]:
        """Change what the agent sees after its model has answered; the answer is last, and the change is kept."""
        return state

    def wrap_model(self, call: ModelCall, request: ModelRequest) -> Message | Awaitable[Message]:
        """Wrap a model call: `await call(request)` returns the whole message."""
        raise NotImplementedError

    def wrap_tool(self, call: ToolCallable, request: ToolRequest) -> Any:
        """Wrap a tool call: `await call(request)` returns its result."""
        raise NotImplementedError

    def wrap_tool_stream(self, call: ToolStream, request: ToolRequest) -> AsyncIterator[str]:
        """Wrap the pieces of a streaming tool."""
        raise NotImplementedError


AROUND_CALLS = ("guard_tool", "before_model", "after_model", "wrap_model", "wrap_tool", "wrap_tool_stream")
"""The hooks that graph nodes support as well as agents."""


def for_agents_only(middleware: tuple[Any, ...]) -> tuple[Middleware, ...]:
    """Return the middleware that has no effect, or not the intended one, without an agent to prepare."""
    around = {each for hook in AROUND_CALLS for each in having(middleware, hook)}
    return tuple(each for each in having(middleware, "before_agent") if each.brings_tools or each not in around)


def having(middleware: tuple[Any, ...], hook: str) -> tuple[Middleware, ...]:
    """Return the middleware that overrides a hook."""
    default = getattr(Middleware, hook)
    return tuple(each for each in middleware if getattr(cast("Any", type(each)), hook, default) is not default)
