"""The options of a chat-model agent, and their checks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, Literal, TypedDict, cast, get_args

from adjourn._calls.caller import (
    ON_ERROR,
    Instruction,
    InstructionFunction,
    OnError,
    OnUnknown,
    by_name,
    check_on_unknown,
    guarded,
)
from adjourn._calls.model import MODEL_RETRY
from adjourn._checks import check_middleware, takes
from adjourn._engine.retry import Retry
from adjourn._generics import Deps, Deps_contra, Out, Out_co, TypeForm
from adjourn._habits import checks_options
from adjourn.agents._config import AgentConfig, check_agent
from adjourn.errors import UsageError
from adjourn.messages import Message
from adjourn.middleware.hooks import Hooks
from adjourn.models import ChatModel, OutputMode, resolve_model
from adjourn.runner import Limits
from adjourn.tools import Tool, tool

from ._output import output_schema

ModelInput = Callable[[str, Sequence[Message]], "list[Message] | Awaitable[list[Message]]"]


UNLIMITED = Limits()


class ChatOptions(TypedDict, Generic[Deps, Out], total=False):
    """The options that agents made of a chat-model agent pass on to it, with the types of its constructor."""

    description: str
    tool_calls: Literal["parallel", "sequential"]
    model_input: ModelInput | None
    exit_tool: Tool | None
    output_key: str | None
    output_type: TypeForm[Out]
    output_mode: OutputMode | None
    max_iterations: int
    return_directly: Sequence[str]
    retry: Retry | Sequence[Retry] | None
    failover: Sequence[str | ChatModel]
    disallow_transfer_to_parent: bool
    on_tool_error: OnError
    on_unknown_tool: OnUnknown
    limits: Limits | None


# With a default of a definite type, an option that is left out would decide the type parameters of the agent.
NOT_GIVEN: Any = None
NONE_GIVEN: tuple[Any, ...] = ()


class ChatConfig(AgentConfig[Deps_contra, Out_co]):
    """The options of a chat-model agent, each declared in the constructor."""

    @checks_options
    def __init__(
        self,
        name: str,
        *,
        model: str | ChatModel,
        description: str = "",
        instruction: str | InstructionFunction = "",
        tools: Sequence[Tool | Callable[..., Any] | AgentConfig[Deps_contra, Any]] = NONE_GIVEN,
        tool_calls: Literal["parallel", "sequential"] = "parallel",
        model_input: ModelInput | None = None,
        exit_tool: Tool | None = None,
        output_key: str | None = None,
        output_type: TypeForm[Out_co] = NOT_GIVEN,
        output_mode: OutputMode | None = None,
        max_iterations: int = 20,
        return_directly: Sequence[str] = (),
        middleware: Sequence[Any] = (),
        retry: Retry | Sequence[Retry] | None = MODEL_RETRY,
        failover: Sequence[str | ChatModel] = (),
        sub_agents: Sequence[AgentConfig[Deps_contra, Any]] = NONE_GIVEN,
        disallow_transfer_to_parent: bool = False,
        on_tool_error: OnError = "tell",
        on_unknown_tool: OnUnknown = "tell",
        limits: Limits | None = None,
    ) -> None:
        """Make an agent.

        name: used in addresses and records; it must be unique in the agent's tree.
        model: a `ChatModel`, or its name, such as "openai:gpt-5".
        description: describes this agent to other agents that can hand over to it or call it.
        instruction: the system prompt; `{user}` is a session value, `{user?}` one that may be missing. Or a function of
            the context, sync or async, that is called for each model call; its text is taken as it is.
        tools: tools made by `@tool`, plain functions, and agents, which become tools.
        tool_calls: whether the calls of one answer run in "parallel" (the default) or are "sequential".
        model_input: a function of the rendered instruction and the messages that returns the messages to send.
        exit_tool: an additional tool, such as `ExitTool()`, with which the model ends the run.
        output_key: the name of the session value to store the final text in.
        output_type: a type that the final answer must fit; the converted answer is the run's `value`.
        output_mode: how the model is asked for that type: "native" (a schema that its server enforces), "tool" (the
            arguments of a tool called `final_result`) or "prompt" (the schema in words). By default, as fits the
            model's abilities.
        max_iterations: the number of model calls in one turn after which the run fails; 20 by default.
        return_directly: names of tools whose result is the agent's answer, without asking the model again.
        middleware: middleware around this agent, its model calls and its tool calls; the first is outermost.
        retry: when to retry a failed model call. By default it is tried up to three times if the provider reports too
            many requests, a server error or a broken connection; None is never.
        failover: models to try in order when the first one fails.
        sub_agents: agents that it can hand the conversation over to.
        disallow_transfer_to_parent: whether to forbid handing back to the agent that handed over to it.
        on_tool_error: "tell" the model what went wrong (the default); "tell_type", which tells it only the type of an
            error that the tool did not expect (anything but a `ToolError`), since its text may hold what a model must
            not see; or "raise", which fails the run.
        on_unknown_tool: what a call of a tool that does not exist does: "tell" the model (the default), or "raise". Or
            a function of the `ToolCall`, sync or async, that returns its result.
        limits: limits on one turn, and on one answer. `Limits(model_calls=..., tool_calls=..., tokens=...,
            seconds=...)` are those on a turn; `Limits(calls_per_answer=...)`, 100 by default, is that on an answer.
        """
        for option, given in (("failover", failover), ("return_directly", return_directly)):
            if isinstance(given, str):
                raise UsageError(f"Agent '{name}': {option}={given!r} is a text. Give a list: [{given!r}].")
        self.name = name
        self.description = description
        self.instruction = instruction
        self.models: tuple[ChatModel, ...] = tuple(resolve_model(each) for each in (model, *failover))
        self.tools: tuple[Tool, ...] = tuple(map(_as_tool, tools)) + ((exit_tool,) if exit_tool else ())
        self.is_sequential: bool = tool_calls == "sequential"
        self.model_input = model_input
        self.output_key = output_key
        self.output_type = output_type
        self.output_schema: dict[str, Any] | None = output_schema(output_type)
        self.output_mode: OutputMode | None = output_mode
        self.max_iterations = max_iterations
        self.return_directly: tuple[str, ...] = tuple(return_directly)
        self.middleware: tuple[Any, ...] = check_middleware(middleware, f"Agent '{name}'")
        self.retry: tuple[Retry, ...] = (retry,) if isinstance(retry, Retry) else tuple(retry or ())
        self.sub_agents: Sequence[AgentConfig] = tuple(sub_agents)
        self.allows_return: bool = not disallow_transfer_to_parent
        self.on_tool_error: OnError = on_tool_error
        self.on_unknown_tool: OnUnknown = on_unknown_tool
        self.limits: Limits = limits or UNLIMITED
        self.made_instruction()  # raises if it could never be filled
        check_on_unknown(on_unknown_tool, f"Agent '{name}'")
        self._check(tool_calls, on_tool_error)
        hooks = Hooks(self.middleware)
        for each in hooks.check_own_tools:
            each.check_own_tools(self.tools)
        check_agent(self)
        guarded(self.tools, hooks)  # raises if rules would decide about arguments that they cannot see

    def _check(self, tool_calls: str, on_tool_error: str) -> None:
        for option, value, known in (
            ("tool_calls", tool_calls, ("parallel", "sequential")),
            ("on_tool_error", on_tool_error, ON_ERROR),
        ):
            if value not in known:
                raise UsageError(f"Agent '{self.name}': {option}={value!r}. Use one of: {', '.join(known)}.")
        if self.output_key is not None and self.output_key.startswith("~"):
            raise UsageError(
                f"Agent '{self.name}': output_key={self.output_key!r} begins with '~': such session values are the "
                "library's own. Choose another name."
            )
        if self.output_mode is not None and self.output_mode not in get_args(OutputMode):
            known = ", ".join(get_args(OutputMode))
            raise UsageError(f"Agent '{self.name}': output_mode={self.output_mode!r}. Use one of: {known}; or None.")
        if self.output_mode is not None and self.output_schema is None:
            raise UsageError(
                f"Agent '{self.name}' has output_mode={self.output_mode!r}, but no output_type. Give both."
            )
        if self.max_iterations < 1:
            raise UsageError(f"Agent '{self.name}': max_iterations={self.max_iterations}. Give 1 or more.")
        if self.model_input is not None and not takes(self.model_input, 2):
            raise UsageError(
                f"Agent '{self.name}': model_input cannot be called with the instruction and the messages: "
                "lambda instruction, messages: [...]."
            )
        names = by_name(self.tools, self.name)
        for wanted in self.return_directly:
            if wanted not in names:
                raise UsageError(
                    f"Agent '{self.name}': return_directly names '{wanted}', which is not one of its tools."
                )

    def option_names(self) -> dict[str, str]:
        """Return which of this agent, those below it, and their tools can have options of their own in a turn."""
        of_tools = [agent.option_names().items() for tool in self.tools for agent in tool.runs]
        return (
            {name: own for names in of_tools for name, own in names} | super().option_names() | {self.name: self.name}
        )

    def made_instruction(self) -> Instruction:
        """Return the instruction as it is made for each call."""
        return Instruction(self.instruction, f"The instruction of agent '{self.name}'")


def _as_tool(given: Any) -> Tool:
    """Return an item of an agent's `tools` as a tool; plain functions and agents are converted."""
    if isinstance(given, Tool):
        return cast("Tool", given)
    if isinstance(given, AgentConfig):
        return given.as_tool()
    if callable(given):
        return tool(cast("Callable[..., Any]", given))
    raise UsageError(f"{given!r} is not a tool. Give a function, something made by @tool, or an agent.")
