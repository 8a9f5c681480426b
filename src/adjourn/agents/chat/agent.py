"""ChatModelAgent: a model that thinks and calls tools, as a graph on the engine."""

# An override is documented where it is declared.
# ruff: noqa: D102

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Literal, cast

from adjourn._calls.instruction import Template
from adjourn._calls.kit import Kit, by_name
from adjourn._engine.address import parse_segment, segment_text
from adjourn._engine.retry import Retry
from adjourn.agents._frame import TOOLS, AgentFrame
from adjourn.agents._plan import AgentPlan, agent_node
from adjourn.agents._progress import Ending
from adjourn.agents._transfer import chain_of, check_target
from adjourn.agents.agent import Agent, check_agent
from adjourn.errors import UsageError
from adjourn.graph._task import Send, Task
from adjourn.messages import Message
from adjourn.models import ChatModel, resolve_model
from adjourn.tools import Tool, tool

from ._loop import after_answer, after_batch, after_handoff, asks_first, see_end, think, use_tool
from ._outputs import output_schema
from ._setup import first_setup, kit_of, prepare
from .limits import UNLIMITED, Limits

ModelInput = Callable[[str, Sequence[Message]], "list[Message] | Awaitable[list[Message]]"]
Act = Literal["tell", "raise"]


class ChatModelAgent(Agent):
    """A model with an instruction and tools, which runs until it answers without calling one.

    name: stands in addresses and records; no other agent of the same tree may have it.
    model: a `ChatModel`, or its name, such as "openai:gpt-5".
    description: what other agents are told of this one, when they can hand over to it or call it.
    instruction: what the model is told first; `{user}` is a session value, `{user?}` one that may be missing.
    tools: made by `@tool`, plain functions, and agents, which become tools.
    tool_calls: whether the calls of one answer run side by side ("parallel", the default) or in order ("sequential").
    model_input: a function of the rendered instruction and the messages that gives the messages to send.
    exit_tool: one more tool, such as `ExitTool()`, with which the model ends the run.
    output_key: the session value that the final text is put into.
    output_type: a type that the final answer must fit; it is the run's `value` then.
    max_iterations: how often the model may be asked in one turn, before the run fails; 20 by default.
    return_directly: names of tools whose result is the agent's answer, without asking the model again.
    emit_internal_events: whether those who follow the run hear of what agents among `tools` do.
    middleware: what stands around this agent, its model calls and its tool calls; the first is outermost.
    retry: when a failed model call is tried again; by default never.
    failover: models that are asked in turn when the first one fails.
    sub_agents: those that it can hand the conversation over to.
    disallow_transfer_to_parent: True if it cannot hand back to the agent that handed over to it.
    on_tool_error: "tell" the model what went wrong (the default), or "raise" it, which fails the run.
    on_unknown_tool: the same for calls of tools that there are not.
    limits: how much it may do in one turn: `Limits(model_calls=..., tool_calls=..., tokens=..., seconds=...)`.
    """

    def __init__(
        self,
        name: str,
        *,
        model: str | ChatModel,
        description: str = "",
        instruction: str = "",
        tools: Sequence[Tool | Callable[..., Any] | Agent] = (),
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
        sub_agents: Sequence[Agent] = (),
        disallow_transfer_to_parent: bool = False,
        on_tool_error: Act = "tell",
        on_unknown_tool: Act = "tell",
        limits: Limits | None = None,
    ) -> None:
        self.name = name
        self.description = description
        self.instruction = instruction
        self.models = tuple(resolve_model(each) for each in (model, *failover))
        self.emit_internal_events = emit_internal_events
        self.tools = tuple(as_tool(each, emit_internal_events) for each in tools) + ((exit_tool,) if exit_tool else ())
        self.is_sequential = tool_calls == "sequential"
        self.model_input = model_input
        self.output_key = output_key
        self.output_type = output_type
        self.output_schema = output_schema(output_type)
        self.max_iterations = max_iterations
        self.return_directly = tuple(return_directly)
        self.middleware = tuple(middleware)
        self.retry = (retry,) if isinstance(retry, Retry) else tuple(retry or ())
        self.sub_agents = tuple(sub_agents)
        self.allows_return = not disallow_transfer_to_parent
        self.raises_tool_errors = on_tool_error == "raise"
        self.raises_unknown_tools = on_unknown_tool == "raise"
        self.limits = limits or UNLIMITED
        self.template()  # refuses what could never be filled
        self._check(tool_calls, on_tool_error, on_unknown_tool)
        check_agent(self)

    def _check(self, tool_calls: str, on_tool_error: str, on_unknown_tool: str) -> None:
        for option, value, known in (
            ("tool_calls", tool_calls, ("parallel", "sequential")),
            ("on_tool_error", on_tool_error, ("tell", "raise")),
            ("on_unknown_tool", on_unknown_tool, ("tell", "raise")),
        ):
            if value not in known:
                raise UsageError(f"Agent '{self.name}': {option}={value!r}. Use one of: {', '.join(known)}.")
        if self.max_iterations < 1:
            raise UsageError(f"Agent '{self.name}': max_iterations={self.max_iterations}. Give 1 or more.")
        names = by_name(self.tools, self.name)
        for wanted in self.return_directly:
            if wanted not in names:
                raise UsageError(f"Agent '{self.name}': return_directly names '{wanted}', which is none of its tools.")

    def template(self) -> Template:
        """The instruction, to be filled with the session's values."""
        return Template(self.instruction, f"The instruction of agent '{self.name}'")

    @property
    def agents(self) -> Sequence[Agent]:
        return self.sub_agents

    def make_plan(self) -> AgentPlan:
        return ChatPlan(self)


class ChatPlan(AgentPlan):
    """The graph of a chat-model agent: its model, its tools, and the agents that it hands over to."""

    agent: ChatModelAgent

    def __init__(self, agent: ChatModelAgent) -> None:
        super().__init__(agent)
        self.instruction = agent.template()
        self.model = self.add("model", think)
        self.model.decide = after_answer  # pyright: ignore[reportAttributeAccessIssue]  # the frame is an agent's
        self.tools = self.add(TOOLS, use_tool)
        self.tools.segment_of = _segment_of
        self.tools.decide = after_batch  # pyright: ignore[reportAttributeAccessIssue]  # the frame is an agent's
        for child in agent.sub_agents:
            self.add_agent(child, partial(after_handoff, child.name))
        self.after = self.add("after", see_end)

    @cached_property
    def plain_kit(self) -> Kit:
        """What the agent works with when no hook and no other agent has a say in it."""
        return kit_of(self.agent, first_setup(self.agent, self.agent.instruction), (), [])

    async def prepare(self, frame: AgentFrame) -> bool:
        return frame.kit is not None or await prepare(frame)

    def check_action(self, frame: AgentFrame, action: Mapping[str, str]) -> None:
        if action["action"] == "transfer":
            check_target(frame, action["target"])

    def first(self, frame: AgentFrame) -> list[Send]:
        self.instruction.filled(frame.read_value)  # What is missing for it is told before the turn begins.
        chain = chain_of(frame)
        active: list[str] = frame.owner.channels["active"]
        if frame.scope.after_transfer == "root" and frame.owner is frame:
            frame.set_active([])
        elif chain is not None and len(active) > len(chain):
            return [(self.handoff(active[len(chain)], frame), None)]
        return [(self.model, None)]

    def handoff(self, name: str, frame: AgentFrame) -> Any:
        """The node of a sub-agent."""
        return frame.spec_named(agent_node(name), f"{frame.path};{segment_text('agent', name)}")

    def last(self, frame: AgentFrame, ending: Ending) -> list[Send]:
        if self.agent.output_key is not None and ending.action != "transfer":
            frame.merge_values({self.agent.output_key: ending.output})
        return [(self.after, None)] if frame.kit is not None and frame.kit.after_agent else []

    def task_at(self, frame: AgentFrame, segment: str) -> Task | None:
        wanted = parse_segment(segment).sub_id if segment.startswith("tool:") else None
        for number, call in enumerate(frame.calls, 1):
            if call.id == wanted:
                return Task(frame, self.tools, number, {"number": number})
        return super().task_at(frame, segment)

    def is_pausing(self, frame: AgentFrame) -> bool:
        return frame.tasks[0].spec is self.tools and all(asks_first(frame, task) for task in frame.tasks)

    def stops_before(self, frame: AgentFrame, tasks: list[Task]) -> bool:
        # Between two steps of an agent either its model has just answered, or its tools.
        mode, spec = frame.scope.cancellation.mode, tasks[0].spec if tasks else self.model
        if mode == "after_model":
            return spec is self.tools
        return spec is not self.tools if mode == "after_tools" else True


def _segment_of(frame: Any, overlay: dict[str, Any]) -> str:
    call = frame.calls[overlay["number"] - 1]
    return segment_text("tool", call.name, call.id)


def as_tool(given: Any, emits: bool) -> Tool:
    """What was given among an agent's tools, as a tool: a plain function and an agent are made one."""
    if isinstance(given, Tool):
        return cast("Tool", given)
    if isinstance(given, Agent):
        return given.as_tool(emit_internal_events=emits)
    if callable(given):
        return tool(cast("Callable[..., Any]", given))
    raise UsageError(f"{given!r} is no tool. Give a function, something made by @tool, or an agent.")
