"""DeepAgent: an agent for long tasks, with a to-do list, sub-agents and files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Unpack

from msgspec.structs import replace

from adjourn._calls.caller import Instruction, InstructionFunction
from adjourn._checks import check_middleware
from adjourn._engine.child import run_child
from adjourn._engine.entry import here
from adjourn._generics import Deps_contra, Out_co
from adjourn._habits import checks_options
from adjourn.context import RunContext
from adjourn.errors import UsageError
from adjourn.messages import Message
from adjourn.middleware import FileTools, TodoList
from adjourn.middleware.files.backends import Backend
from adjourn.models import ChatModel
from adjourn.tools import Tool, tool

from ._config import Sketch
from .agent import Agent
from .agent_tool import Inner
from .chat import ChatModelAgent
from .chat._config import NONE_GIVEN, ChatOptions

TASK = "task"
GENERAL = "general_purpose"

INSTRUCTION = (
    "You do long work in steps. Plan first, do one step after another, and hand parts that stand on their own to "
    f"sub-agents with `{TASK}`: they know nothing of this conversation, so tell them all that they need. End with an "
    "answer for the user that stands on its own, too."
)


class DeepAgent(ChatModelAgent[Deps_contra, Out_co]):
    """An agent that plans with to-dos and hands parts of its work to sub-agents through the tool `task`.

    The to-dos are in the session value `todos:<name>`.
    """

    @checks_options
    def __init__(
        self,
        name: str,
        *,
        model: str | ChatModel,
        tools: Sequence[Tool | Callable[..., Any] | Agent[Deps_contra, Any]] = NONE_GIVEN,
        agents: Sequence[Agent[Deps_contra, Any]] = NONE_GIVEN,
        backend: Backend | None = None,
        instruction: str | InstructionFunction = "",
        general_purpose: bool = True,
        middleware: Sequence[Any] = (),
        emit_internal_events: bool = False,
        sub_agents: Sequence[Agent[Deps_contra, Any]] = NONE_GIVEN,
        **options: Unpack[ChatOptions[Deps_contra, Out_co]],
    ) -> None:
        """Make an agent; its options are those of `ChatModelAgent`, and these.

        agents: the sub-agents that it can give tasks to.
        backend: where its files are. With one, it and the general-purpose sub-agent have file tools.
        general_purpose: whether there is also a sub-agent for any task, with the same model, tools and middleware.
        emit_internal_events: whether to report what the sub-agents do.
        """
        middleware = check_middleware(middleware, f"DeepAgent '{name}'")
        files = () if backend is None else (FileTools(backend),)
        helpers: list[Agent] = list(agents)
        if general_purpose:
            helpers.append(
                ChatModelAgent(
                    GENERAL,
                    model=model,
                    description="Does any task on its own, with the tools of the one who asks.",
                    tools=tools,
                    middleware=(*files, *middleware),
                )
            )
        if not helpers:
            raise UsageError(f"DeepAgent '{name}' has no sub-agents. Give it agents=[...], or general_purpose=True.")
        super().__init__(
            name,
            model=model,
            instruction=_with_ours(instruction, f"The instruction of agent '{name}'"),
            tools=(*tools, task_tool(helpers, emits=emit_internal_events)),
            # Under a unique key: sub-agents may be deep agents, too, and the values they write are passed up.
            middleware=(TodoList(key=f"todos:{name}"), *files, *middleware),
            sub_agents=sub_agents,
            **options,
        )
        self.helpers: tuple[Agent, ...] = tuple(helpers)

    def sketch(self) -> Sketch:
        """Return how this agent is drawn: with its helpers, too."""
        plain = super().sketch()
        return replace(plain, below=(*plain.below, *self.helpers))


def _with_ours(instruction: str | InstructionFunction, where: str) -> str | InstructionFunction:
    if isinstance(instruction, str):
        return f"{instruction}\n\n{INSTRUCTION}" if instruction else INSTRUCTION
    own = Instruction(instruction, where)

    async def both(_: RunContext) -> str:
        return f"{await own.called()}\n\n{INSTRUCTION}"

    return both


def task_tool(agents: Sequence[Agent], *, emits: bool) -> Tool:
    """Return the tool with which a model gives a task to one of these agents and gets its final text."""
    for agent in agents:
        if not isinstance(agent, Agent):  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
            raise UsageError(f"{agent!r} is among the sub-agents, but is not an agent.")
    inner = {agent.name: Inner(agent, emits=emits) for agent in agents}
    if len(inner) < len(agents):
        raise UsageError(f"Two of the sub-agents {', '.join(agent.name for agent in agents)} have the same name.")

    async def run_task(agent_name: str, description: str) -> Any:
        return await run_child(here(TASK), inner[agent_name], [Message.user(description)], None)

    lines = [f"- {agent.name}: {agent.description or 'no description'}" for agent in agents]
    made = tool(
        run_task,
        name=TASK,
        description="\n".join(["Have a sub-agent do a task, and get its result. Sub-agents:", *lines]),
        schema={
            "type": "object",
            "properties": {
                "agent_name": {"type": "string", "enum": list(inner), "description": "Which sub-agent."},
                "description": {"type": "string", "description": "The whole task, with all that must be known for it."},
            },
            "required": ["agent_name", "description"],
            "additionalProperties": False,
        },
    )
    return replace(made, runs=tuple(agents))
