"""What files say about agents, except for graphs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from .middleware import Middlewares
from .parts import (
    AgentRef,
    Count,
    EnvText,
    FallbackSpec,
    ModelName,
    ModelSpec,
    Part,
    PythonRef,
    Seconds,
    Tools,
    ValueName,
)


class CheckpointSpec(Part, frozen=True, kw_only=True):
    """Where sessions are stored. All agents of a server share one store, so it is enough to say it once.

    backend: the kind of store.
    url: its address, which may contain ${NAME}; `adjourn serve --store` and $ADJOURN_STORE come first.
    ttl_seconds: how long a session is kept after it was last used; for Redis.
    """

    backend: Literal["memory", "sqlite", "postgres", "redis"]
    url: EnvText | None = None
    ttl_seconds: Count | None = None


class InterruptSpec(Part, frozen=True, kw_only=True):
    """Whether and how the agent may ask people.

    enabled: whether it may ask at all; false by default.
    require_token: whether an approval must name exactly what was shown.
    self_approval: false if an approval counts only by somebody who is none of its requesters.
    checkpoint: where sessions are stored, if that is not said under `spec`.
    """

    enabled: bool = False
    require_token: bool = False
    self_approval: bool = True
    checkpoint: CheckpointSpec | None = None


class LimitsSpec(Part, frozen=True, kw_only=True):
    """Limits on one turn.

    model_calls: how often the model may be called.
    tool_calls: how often tools may be called.
    tokens: how many tokens may be used.
    seconds: how long the turn may run, without waiting for people.
    calls_per_answer: how many tools may be called in one answer.
    """

    model_calls: Count | None = None
    tool_calls: Count | None = None
    tokens: Count | None = None
    seconds: Seconds | None = None
    calls_per_answer: Count = 100


class AgentSpec(Part, tag_field="type", frozen=True, kw_only=True):
    """What every agent has.

    description: describes the agent to people, and to agents that hand over to it or call it.
    served: whether clients can talk to it; false for an agent that only others use.
    values: the session values that a new session begins with.
    caller_values: the names of the session values that callers may set with a message; none by default.
    interrupt: whether and how it may ask people.
    checkpoint: where sessions are stored.
    on_busy: what a message does while a turn runs.
    on_pending: what a message does while questions are open, or after a turn that did not end.
    answer_pending: whether a message answers the open question, if there is just one.
    """

    description: str = ""
    served: bool = True
    values: dict[ValueName, Any] = {}
    caller_values: list[ValueName] = []
    interrupt: InterruptSpec = InterruptSpec()
    checkpoint: CheckpointSpec | None = None
    on_busy: Literal["error", "queue", "cancel"] = "error"
    on_pending: Literal["error", "abandon", "finish"] = "error"
    answer_pending: bool = False


class ChatSpec(AgentSpec, frozen=True, kw_only=True):
    """What agents with a model have.

    model: the model, such as openai:gpt-5 or python://module:attribute, or its settings.
    instruction: the system prompt; {user} is a session value, {user?} one that may be missing.
    tools: what the model may call.
    middleware: what steps in around the agent and its calls; the first is outermost.
    tool_calls: whether the calls of one answer run in parallel or one after the other.
    exit_tool: whether the model gets a tool that ends the run.
    output_key: the session value to store the final text in.
    output_type: python:// with a type, or a JSON Schema, that the final answer must fit.
    max_iterations: how often the model may be called in one turn.
    on_tool_error: what happens when a tool fails.
    on_unknown_tool: what happens when the model calls a tool that does not exist.
    disallow_transfer_to_parent: whether to forbid handing back to the agent that handed over.
    limits: limits on one turn.
    """

    model: ModelName | ModelSpec
    instruction: str = ""
    tools: Tools = []
    middleware: Middlewares = []
    tool_calls: Literal["parallel", "sequential"] = "parallel"
    exit_tool: bool = False
    output_key: ValueName | None = None
    output_type: PythonRef | dict[str, Any] | None = None
    max_iterations: Count = 20
    on_tool_error: Literal["tell", "tell_type", "raise"] = "tell"
    on_unknown_tool: Literal["tell", "raise"] = "tell"
    disallow_transfer_to_parent: bool = False
    limits: LimitsSpec | None = None


class ChatModelAgentSpec(ChatSpec, tag="chat_model_agent", frozen=True, kw_only=True):
    """A model with an instruction and tools.

    sub_agents: agents that it can hand the conversation over to.
    """

    sub_agents: list[AgentRef] = []


class SupervisorSpec(ChatSpec, tag="supervisor", frozen=True, kw_only=True):
    """A model that hands work to other agents, and gets the conversation back.

    agents: the agents that it supervises.
    """

    agents: Annotated[list[AgentRef], Meta(min_length=1)]


class DeepAgentSpec(ChatSpec, tag="deep_agent", frozen=True, kw_only=True):
    """A model with a to-do list, files, and other agents for separate tasks.

    agents: agents that it can give tasks to.
    sub_agents: agents that it can hand the conversation over to.
    general_purpose: whether there is also one for any task, with the same tools.
    emit_internal_events: whether to report what these agents do.
    files: memory for files that are stored with the session, or a folder, relative to the folder of agents.
    """

    agents: list[AgentRef] = []
    sub_agents: list[AgentRef] = []
    general_purpose: bool = True
    emit_internal_events: bool = False
    files: Literal["memory"] | FolderSpec | None = None


class FolderSpec(Part, frozen=True, kw_only=True):
    """A folder for files.

    folder: where it is, relative to the folder of agents.
    """

    folder: str


class SequentialSpec(AgentSpec, tag="sequential", frozen=True, kw_only=True):
    """Agents one after the other.

    agents: the agents, in order.
    """

    agents: Annotated[list[AgentRef], Meta(min_length=1)]


class ParallelSpec(AgentSpec, tag="parallel", frozen=True, kw_only=True):
    """Agents at the same time.

    agents: the agents.
    """

    agents: Annotated[list[AgentRef], Meta(min_length=1)]


class LoopSpec(AgentSpec, tag="loop", frozen=True, kw_only=True):
    """Agents one after the other, again and again.

    agents: the agents, in order.
    max_iterations: how many rounds there are at most.
    """

    agents: Annotated[list[AgentRef], Meta(min_length=1)]
    max_iterations: Count | None = None


class RoleSpec(Part, frozen=True, kw_only=True):
    """Who has a role: a model, or another agent.

    model: the model.
    agent: the name of an agent, instead of `model`.
    """

    model: ModelName | FallbackSpec | None = None
    agent: AgentRef | None = None


class PlanExecuteSpec(AgentSpec, tag="plan_execute", frozen=True, kw_only=True):
    """Makes a plan, carries out its steps, and revises it after each.

    planner: who makes the plan.
    executor: who carries out a step.
    replanner: who revises the plan, or ends with the answer.
    max_iterations: how many steps are carried out at most.
    """

    planner: RoleSpec
    executor: RoleSpec
    replanner: RoleSpec
    max_iterations: Count = 10


class PythonSpec(AgentSpec, tag="python", frozen=True, kw_only=True):
    """An agent, a compiled graph or a workflow made in Python.

    ref: where it is, as python://module:attribute.
    input: of a graph, the field of its state that gets the message.
    output: of a graph, the field of its state that has the answer.
    """

    ref: PythonRef
    input: str | None = None
    output: str | None = None
