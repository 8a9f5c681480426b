"""Middleware: hooks around an agent, its model calls and its tool calls."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from operator import is_
from typing import Any, Generic, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from adjourn._engine.retry import Retry
from adjourn.context import RunContext
from adjourn.messages import Message
from adjourn.models import Chunk, ModelRequest
from adjourn.tools import Tool

Made = TypeVar("Made")


class Setup(Struct, frozen=True, kw_only=True):
    """What an agent starts with; the instruction is already rendered and no longer a template.

    What a hook puts around the instruction stays there; the agent's own text between is made anew for each model call.
    `{name}` in it stands for a session value that is not set yet, and `{instruction}` for the text of a function.
    `agent` and `retry`, the policy by which its model calls are tried again, can be read and not changed.
    """

    agent: str
    instruction: str
    tools: tuple[Tool, ...]
    return_directly: tuple[str, ...] = ()
    retry: tuple[Retry, ...] = ()


def noted(setup: Setup, note: str, tools: Sequence[Tool] = ()) -> Setup:
    """Return a setup with a note at the end of its instruction, and with more tools."""
    instruction = "\n\n".join(text for text in (setup.instruction, note) if text)
    return replace(setup, instruction=instruction, tools=(*setup.tools, *tools))


class ModelState(Struct, frozen=True, kw_only=True):
    """The conversation as an agent sees it; a hook's return value is what it sees from then on.

    `tools` are those that the model can call, and `retry` is the policy by which its calls are tried again. A hook can
    read these two, and not change them.
    """

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    retry: tuple[Retry, ...] = ()


class AgentEnd(Struct, frozen=True, kw_only=True):
    """How an agent ended: its text, and the action that ended it (`None`, `exit`, `break_loop` or `transfer`).

    `messages` is the conversation as the agent sees it.
    """

    agent: str
    output: str
    action: str | None = None
    messages: tuple[Message, ...] = ()


class ToolRequest(Struct, frozen=True, kw_only=True):
    """A tool call that is about to run, with validated and approved arguments."""

    tool: str
    call_id: str
    arguments: Mapping[str, Any]
    agent: str


class NodeRequest(Struct, frozen=True, kw_only=True):
    """An attempt to run a node of a graph; `state` is what the node reads, for itself alone."""

    graph: str
    node: str
    state: Any  # Any: a mapping, or an instance of the class that describes the state
    attempt: int = 1


NodeCall = Callable[[NodeRequest], Awaitable[Any]]
ModelCall = Callable[[ModelRequest], Awaitable[Message]]
ModelStream = Callable[[ModelRequest], AsyncIterator[Chunk]]
ToolCallable = Callable[[ToolRequest], Awaitable[Any]]
ToolStream = Callable[[ToolRequest], AsyncIterator[Any]]  # Any: text, parts of a message, or data


class Middleware:
    """Hooks around an agent. Override any of them, sync or async; the first middleware in the list is the outermost.

    Each hook may ask a person: its questions have the address `middleware:<name>`. When a hook runs again, `call`
    returns its stored result, so the code after it may ask as well.
    """

    raises: Sequence[type[Exception]] = ()
    """The exceptions of a wrapped call after which a hook may ask a person, besides built-in ones and Adjourn's own."""

    brings_tools: bool = False
    """Whether it adds tools to the agent that the rest of the middleware depends on."""

    @property
    def counts_tokens(self) -> bool:
        """Whether it needs the usage of every answer; where a server reports none, it is estimated."""
        return False

    @property
    def name(self) -> str:
        """The name in addresses, by default the name of the class."""
        return type(self).__name__

    def before_agent(self, setup: Setup) -> Setup | Awaitable[Setup]:
        """Change what the agent starts with. It runs again in each process that continues the agent.

        Session values that it sets are written once, when the turn begins.
        """
        return setup

    def check_tools(self, tools: Sequence[Tool]) -> None:
        """Refuse, with a `UsageError`, to work with the tools of the agent or node that it was given to."""

    def check_own_tools(self, tools: Sequence[Tool]) -> None:
        """Refuse, with a `UsageError`, the tools that the agent or node is built with; hooks may bring more later."""

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

    def wrap_model_stream(self, call: ModelStream, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Wrap the chunks of a model's answer: readers, and the message, get what this async generator yields.

        It surrounds each attempt at each model, inside `wrap_model`; the answer of a model that does not stream comes
        as a few chunks. To ask a person, use `wrap_model`: here the model would be asked again afterwards.
        """
        raise NotImplementedError

    def wrap_tool(self, call: ToolCallable, request: ToolRequest) -> Any:
        """Wrap a tool call: `await call(request)` returns its result: text, parts of a message, or data as in JSON."""
        raise NotImplementedError

    def wrap_node(self, call: NodeCall, request: NodeRequest) -> Any:
        """Wrap one attempt of a node in a graph: `await call(request)` returns its result as a `Command`.

        Return that, or whatever else a node may return. A request with another `state` is what the node reads then.
        """
        raise NotImplementedError

    def wrap_tool_stream(self, call: ToolStream, request: ToolRequest) -> AsyncIterator[Any]:
        """Wrap the pieces of a streaming tool."""
        raise NotImplementedError


class Hooks:
    """Which of a list of middleware has which hook, outermost first; `all` is the list.

    It is found once for a list, and not again for each call.
    """

    __slots__ = (
        "after_agent",
        "after_model",
        "all",
        "before_agent",
        "before_model",
        "check_own_tools",
        "guard_tool",
        "wrap_model",
        "wrap_model_stream",
        "wrap_node",
        "wrap_tool",
        "wrap_tool_stream",
    )

    def __init__(self, middleware: tuple[Any, ...]) -> None:
        self.all: tuple[Any, ...] = middleware
        self.before_agent: tuple[Middleware, ...] = having(middleware, "before_agent")
        self.check_own_tools: tuple[Middleware, ...] = having(middleware, "check_own_tools")
        self.guard_tool: tuple[Middleware, ...] = having(middleware, "guard_tool")
        self.before_model: tuple[Middleware, ...] = having(middleware, "before_model")
        self.after_model: tuple[Middleware, ...] = having(middleware, "after_model")
        self.after_agent: tuple[Middleware, ...] = having(middleware, "after_agent")
        self.wrap_model: tuple[Middleware, ...] = having(middleware, "wrap_model")
        self.wrap_model_stream: tuple[Middleware, ...] = having(middleware, "wrap_model_stream")
        self.wrap_tool: tuple[Middleware, ...] = having(middleware, "wrap_tool")
        self.wrap_tool_stream: tuple[Middleware, ...] = having(middleware, "wrap_tool_stream")
        self.wrap_node: tuple[Middleware, ...] = having(middleware, "wrap_node")

    def for_agents_only(self) -> tuple[Middleware, ...]:
        """Return the middleware that has no effect, or not the intended one, without an agent to prepare."""
        around = {
            *self.guard_tool,
            *self.before_model,
            *self.after_model,
            *self.wrap_model,
            *self.wrap_model_stream,
            *self.wrap_tool,
            *self.wrap_tool_stream,
            *self.wrap_node,
        }
        return tuple(each for each in self.before_agent if each.brings_tools or each not in around)


def having(middleware: tuple[Any, ...], hook: str) -> tuple[Middleware, ...]:
    """Return the middleware that overrides a hook."""
    default = getattr(Middleware, hook)
    return tuple(each for each in middleware if getattr(cast("Any", type(each)), hook, default) is not default)


class Last(Generic[Made]):
    """The last thing that was made of a list of objects: it is made again only of others.

    Runs on several event loops and threads may share it: both fields are written at once.
    """

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: tuple[tuple[Any, ...], Made] | None = None

    def of(self, parts: tuple[Any, ...], make: Callable[[], Made]) -> Made:
        """Return what was made of these objects, or make it."""
        last = self._last
        # By identity: middleware of users may compare as it likes.
        if last is None or len(last[0]) != len(parts) or not all(map(is_, last[0], parts)):
            self._last = last = (parts, make())
        return last[1]
