"""DeepAgent: an agent for long tasks, with a to-do list, sub-agents and files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from adjourn._checks import check_middleware
from adjourn._engine.child import run_child
from adjourn._engine.frame import here
from adjourn.errors import UsageError
from adjourn.messages import Message
from adjourn.middleware import FileTools, TodoList
from adjourn.middleware.files.backends import Backend
from adjourn.models import ChatModel
from adjourn.tools import Tool, tool

from .agent import Agent
from .agent_tool import Inner
from .chat import ChatModelAgent

TASK = "task"
GENERAL = "general_purpose"

INSTRUCTION = (
    "You do long work in steps. Plan first, do one step after another, and hand parts that stand on their own to "
    f"sub-agents with `{TASK}`: they know nothing of this conversation, so tell them all that they need. End with an "
    "answer for the user that stands on its own, too."
)


class DeepAgent(ChatModelAgent):
    """An agent that plans with to-dos and hands parts of its work to sub-agents through the tool `task`.

    The to-dos are in the session value `todos:<name>`. `agents` are the sub-agents; a general-purpose one, with the
    same model, tools and middleware, is added unless `general_purpose=False`. With a `backend`, it and the
    general-purpose sub-agent have file tools. Further options are those of `ChatModelAgent`.
    """

    def __init__(
        self,
        name: str,
        *,
        model: str | ChatModel,
        tools: Sequence[Tool | Callable[..., Any] | Agent] = (),
        agents: Sequence[Agent] = (),
        backend: Backend | None = None,
        instruction: str = "",
        general_purpose: bool = True,
        middleware: Sequence[Any] = (),
        emit_internal_events: bool = False,
        **options: Any,
    ) -> None:
        middleware = check_middleware(middleware, f"DeepAgent '{name}'")
        files = () if backend is None else (FileTools(backend),)
        helpers = list(agents)
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
            instruction="\n\n".join(text for text in (instruction, INSTRUCTION) if text),
            tools=(*tools, task_tool(helpers, emits=emit_internal_events)),
            # Under a unique key: sub-agents may be deep agents, too, and the values they write are passed up.
            middleware=(TodoList(key=f"todos:{name}"), *files, *middleware),
            emit_internal_events=emit_internal_events,
            **options,
        )
        self.helpers = tuple(helpers)


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
    return tool(
        run_task,
        name=TASK,
        description="\n".join(["Have a sub-agent do a task, and get its result. Sub-agents:", *lines]),
        schema={
            "type": "object",
            "properties": {
                "agent_name": {"enum": list(inner), "description": "Which sub-agent."},
                "description": {"type": "string", "description": "The whole task, with all that must be known for it."},
            },
            "required": ["agent_name", "description"],
            "additionalProperties": False,
        },
    )
