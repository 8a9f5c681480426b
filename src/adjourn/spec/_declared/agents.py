"""What files say about agents, except for graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from adjourn.agents import (
    ChatModelAgent,
    DeepAgent,
    Limits,
    LoopAgent,
    ParallelAgent,
    PlanExecute,
    SequentialAgent,
    Supervisor,
)

from .middleware import Middlewares
from .options import options_from
from .parts import (
    AgentRef,
    Count,
    EnvText,
    FallbackSpec,
    ModelName,
    ModelSpec,
    Part,
    PythonRef,
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


@options_from(Limits)
class LimitsSpec(Part, frozen=True, kw_only=True):
    """Limits on one turn, and on one answer."""


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

    made_by: ClassVar[Callable[..., Any]]
    """The constructor of its agent, where the fields are its options."""


class FolderSpec(Part, frozen=True, kw_only=True):
    """A folder for files.

    folder: where it is, relative to the folder of agents.
    """

    folder: str


class ChatSpec(AgentSpec, frozen=True, kw_only=True):
    """What agents with a model have; their further options are those of their constructors.

    model: the model, such as openai:gpt-5 or python://module:attribute, or its settings.
    tools: what the model may call.
    exit_tool: whether the model gets a tool that ends the run.
    output_type: python:// with a type, or a JSON Schema, that the final answer must fit.
    """

    model: ModelName | ModelSpec
    tools: Tools = []
    middleware: Middlewares = []
    exit_tool: bool = False
    output_key: ValueName | None = None
    output_type: PythonRef | dict[str, Any] | None = None
    limits: LimitsSpec | None = None


@options_from(ChatModelAgent)
class ChatModelAgentSpec(ChatSpec, tag="chat_model_agent", frozen=True, kw_only=True):
    """A model with an instruction and tools."""

    sub_agents: list[AgentRef] = []


@options_from(Supervisor)
class SupervisorSpec(ChatSpec, tag="supervisor", frozen=True, kw_only=True):
    """A model that hands work to other agents, and gets the conversation back."""

    agents: Annotated[list[AgentRef], Meta(min_length=1)]


@options_from(DeepAgent)
class DeepAgentSpec(ChatSpec, tag="deep_agent", frozen=True, kw_only=True):
    """A model with a to-do list, files, and other agents for separate tasks.

    files: memory for files that are stored with the session, or a folder, relative to the folder of agents.
    """

    agents: list[AgentRef] = []
    sub_agents: list[AgentRef] = []
    files: Literal["memory"] | FolderSpec | None = None


@options_from(SequentialAgent)
class SequentialSpec(AgentSpec, tag="sequential", frozen=True, kw_only=True):
    """Agents one after the other."""

    agents: Annotated[list[AgentRef], Meta(min_length=1)]


@options_from(ParallelAgent)
class ParallelSpec(AgentSpec, tag="parallel", frozen=True, kw_only=True):
    """Agents at the same time."""

    agents: Annotated[list[AgentRef], Meta(min_length=1)]


@options_from(LoopAgent)
class LoopSpec(AgentSpec, tag="loop", frozen=True, kw_only=True):
    """Agents one after the other, again and again."""

    agents: Annotated[list[AgentRef], Meta(min_length=1)]


class RoleSpec(Part, frozen=True, kw_only=True):
    """Who has a role: a model, or another agent.

    model: the model.
    agent: the name of an agent, instead of `model`.
    """

    model: ModelName | FallbackSpec | None = None
    agent: AgentRef | None = None


@options_from(PlanExecute)
class PlanExecuteSpec(AgentSpec, tag="plan_execute", frozen=True, kw_only=True):
    """Makes a plan, carries out its steps, and revises it after each."""

    planner: RoleSpec
    executor: RoleSpec
    replanner: RoleSpec


class PythonSpec(AgentSpec, tag="python", frozen=True, kw_only=True):
    """An agent, a compiled graph or a workflow made in Python.

    ref: where it is, as python://module:attribute.
    input: of a graph, the field of its state that gets the message.
    output: of a graph, the field of its state that has the answer.
    """

    ref: PythonRef
    input: str | None = None
    output: str | None = None
