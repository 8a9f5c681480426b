"""The options of a chat-model agent, their checks, and its typed output."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct

from adjourn._calls.caller import CALLS_PER_ANSWER, ON_ERROR, OnError, Template, by_name
from adjourn._checks import check_middleware
from adjourn._engine.retry import Retry
from adjourn._schemas import answers
from adjourn.agents._config import AgentConfig, check_agent
from adjourn.errors import ModelError, UsageError
from adjourn.messages import Message
from adjourn.models import ChatModel, resolve_model
from adjourn.tools import Tool, tool

MISFITS = 3
"""The number of answers that do not fit the output type after which an agent fails."""


def read_output(
    agent: AgentConfig, schema: dict[str, Any] | None, message: Message, misfits: int
) -> tuple[Any, str | None]:
    """Return the JSON of a final answer, or a message to the model if it does not fit.

    Raises:
        ModelError: too many answers did not fit.
    """
    if schema is None:
        return None, None
    data, problems = _read(message.text, schema, agent.output_type)
    if not problems:
        return data, None
    if misfits + 1 >= MISFITS:
        raise ModelError(
            f"The model of agent '{agent.name}' gave {MISFITS} answers that do not fit its output type: {problems[0]}",
            retryable=False,
        )
    return (
        None,
        f"Your answer does not fit the required form: {'; '.join(problems)}. Answer again, with JSON only.",
    )


def _read(text: str, schema: dict[str, Any], type_: Any) -> tuple[Any, list[str]]:
    try:
        data = msgspec.json.decode(_bare(text))
    except msgspec.DecodeError as error:
        return None, [f"it is not JSON ({error})"]
    problems = answers.problems(data, schema)
    if problems:
        return None, problems
    data = unwrapped(data, type_)
    try:
        answers.convert(data, type_)
    except ValueError as error:
        return None, [" ".join(str(error).split())]
    return data, []


def output_schema(type_: Any) -> dict[str, Any] | None:
    """Return the schema of an agent's answer: an object, as providers require; other types become its `value`."""
    schema = answers.schema_of(type_)
    if schema is None or _is_object(schema):
        return schema
    definitions = {"$defs": schema.pop("$defs")} if "$defs" in schema else {}
    value = {"type": "object", "properties": {"value": schema}, "required": ["value"], "additionalProperties": False}
    return {**value, **definitions}


def unwrapped(data: Any, type_: Any) -> Any:
    """Return the JSON of the type itself, from an answer that fits `output_schema`."""
    schema = answers.schema_of(type_)
    return data if schema is None or _is_object(schema) else data["value"]


def _is_object(schema: dict[str, Any]) -> bool:
    if "$ref" in schema:
        schema = schema["$defs"][schema["$ref"].rpartition("/")[2]]
    return schema.get("type") == "object"


def _bare(text: str) -> str:
    """Return JSON without the code fence that many models put around it."""
    text = text.strip()
    if text.startswith("```") and text.endswith("```") and "\n" in text:
        return text[text.index("\n") + 1 : -3].strip()
    return text


ModelInput = Callable[[str, Sequence[Message]], "list[Message] | Awaitable[list[Message]]"]
Act = Literal["tell", "raise"]


class Limits(Struct, frozen=True, kw_only=True):
    """Limits on one turn of an agent, across its pauses; None is no limit. `seconds` counts running, not waiting.

    `calls_per_answer` limits the tools that a model may call in one answer: with more, it is `TooManyCalls`, and none
    of them runs.
    """

    model_calls: int | None = None
    tool_calls: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    calls_per_answer: int | None = CALLS_PER_ANSWER

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or value <= 0):
                raise UsageError(f"Limits({name}={value!r}): give a number above zero, or None for no limit.")


UNLIMITED = Limits()


class ChatConfig(AgentConfig):
    """The options of a chat-model agent; `ChatModelAgent` documents each of them."""

    def __init__(
        self,
        name: str,
        *,
        model: str | ChatModel,
        description: str = "",
        instruction: str = "",
        tools: Sequence[Tool | Callable[..., Any] | AgentConfig] = (),
        tool_calls: Literal["parallel", "sequential"] = "parallel",
        model_input: ModelInput | None = None,
        exit_tool: Tool | None = None,
        output_key: str | None = None,
        output_type: Any = None,
        max_iterations: int = 20,
        return_directly: Sequence[str] = (),
        emit_internal_events: bool = False,
        middleware: Sequence[Any] = (),
        retry: Retry | Sequence[Retry] | None = None,
        failover: Sequence[str | ChatModel] = (),
        sub_agents: Sequence[AgentConfig] = (),
        disallow_transfer_to_parent: bool = False,
        on_tool_error: OnError = "tell",
        on_unknown_tool: Act = "tell",
        limits: Limits | None = None,
    ) -> None:
        self.name = name
        self.description = description
        self.instruction = instruction
        self.models = tuple(resolve_model(each) for each in (model, *failover))
        self.emit_internal_events = emit_internal_events
        self.tools = tuple(_as_tool(each, emit_internal_events) for each in tools) + ((exit_tool,) if exit_tool else ())
        self.is_sequential = tool_calls == "sequential"
        self.model_input = model_input
        self.output_key = output_key
        self.output_type = output_type
        self.output_schema = output_schema(output_type)
        self.max_iterations = max_iterations
        self.return_directly = tuple(return_directly)
        self.middleware = check_middleware(middleware, f"Agent '{name}'")
        self.retry = (retry,) if isinstance(retry, Retry) else tuple(retry or ())
        self.sub_agents = tuple(sub_agents)
        self.allows_return = not disallow_transfer_to_parent
        self.on_tool_error: OnError = on_tool_error
        self.raises_unknown_tools = on_unknown_tool == "raise"
        self.limits = limits or UNLIMITED
        self.template()  # raises if it could never be filled
        self._check(tool_calls, on_tool_error, on_unknown_tool)
        check_agent(self)

    def _check(self, tool_calls: str, on_tool_error: str, on_unknown_tool: str) -> None:
        for option, value, known in (
            ("tool_calls", tool_calls, ("parallel", "sequential")),
            ("on_tool_error", on_tool_error, ON_ERROR),
            ("on_unknown_tool", on_unknown_tool, ("tell", "raise")),
        ):
            if value not in known:
                raise UsageError(f"Agent '{self.name}': {option}={value!r}. Use one of: {', '.join(known)}.")
        if self.max_iterations < 1:
            raise UsageError(f"Agent '{self.name}': max_iterations={self.max_iterations}. Give 1 or more.")
        names = by_name(self.tools, self.name)
        for wanted in self.return_directly:
            if wanted not in names:
                raise UsageError(
                    f"Agent '{self.name}': return_directly names '{wanted}', which is not one of its tools."
                )

    def template(self) -> Template:
        """Return the instruction as a template to fill with session values."""
        return Template(self.instruction, f"The instruction of agent '{self.name}'")

    @property
    def agents(self) -> Sequence[AgentConfig]:
        """The agents that it can hand over to."""
        return self.sub_agents


def _as_tool(given: Any, emits: bool) -> Tool:
    """Return an item of an agent's `tools` as a tool; plain functions and agents are converted."""
    if isinstance(given, Tool):
        return cast("Tool", given)
    if isinstance(given, AgentConfig):
        return given.as_tool(emit_internal_events=emits)
    if callable(given):
        return tool(cast("Callable[..., Any]", given))
    raise UsageError(f"{given!r} is not a tool. Give a function, something made by @tool, or an agent.")
