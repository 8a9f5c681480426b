"""Setup: what a chat-model agent works with in this process, the transfer to other agents included."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from adjourn._calls.caller import Kit, Template
from adjourn._engine.entry import PAUSED, execute
from adjourn._engine.frame import UserFrame
from adjourn._engine.memos import Key, Kind
from adjourn._engine.record import UserImage
from adjourn._engine.scope import RunCancelled
from adjourn._engine.values import GONE, decoded
from adjourn._values.damage import Reading
from adjourn.agents._config import AgentConfig
from adjourn.agents._frame import HOOKS, AgentFrame, TranscriptFrame
from adjourn.context import address_segment, current
from adjourn.errors import ToolError, UsageError
from adjourn.graph._frame import Task
from adjourn.middleware.hooks import Middleware, Setup, having
from adjourn.tools import Tool, tool

from ._config import ChatConfig

TRANSFER = "transfer_to_agent"


def reachable(frame: TranscriptFrame, agent: ChatConfig) -> list[AgentConfig]:
    """Return the agents that an agent can hand over to: those below it, and the one that handed over to it."""
    back = giver(frame) if agent.allows_return else None
    return [*agent.sub_agents, *([back.agent] if back is not None else [])]


def giver(frame: TranscriptFrame) -> TranscriptFrame | None:
    """Return the agent that handed over to this one, if any."""
    above = frame.above
    if above is None or not isinstance(frame.parent, Task) or not isinstance(above.agent, ChatConfig):
        return None
    return above


def chain_of(frame: TranscriptFrame) -> list[str] | None:
    """Return the chain of handovers from the transcript's owner to this agent, or None if there is none."""
    if frame.owner is frame:
        return []
    above = giver(frame)
    chain = None if above is None else chain_of(above)
    return None if chain is None else [*chain, frame.agent.name]


def check_target(agents: Sequence[AgentConfig], name: str) -> None:
    """Raise if a target is not one of the agents to hand over to.

    Raises:
        ToolError: for the model to read.
    """
    names = [agent.name for agent in agents]
    if name not in names:
        raise ToolError(f"There is no agent '{name}' to hand over to. There are: {', '.join(names) or 'none'}.")


def transfer_tool(agents: Sequence[AgentConfig]) -> Tool:
    """Return the tool with which a model hands over to one of these agents."""

    def hand_over(agent_name: str) -> str:
        current().transfer_to(agent_name)
        return f"Handed over to {agent_name}."

    schema = {
        "type": "object",
        "properties": {"agent_name": {"type": "string", "description": "The name of the agent."}},
        "required": ["agent_name"],
        "additionalProperties": False,
    }
    names = ", ".join(agent.name for agent in agents)
    return tool(
        hand_over,
        name=TRANSFER,
        description=f"Hand the conversation over to another agent. Agents: {names}.",
        schema=schema,
        thread=False,
    )


def transfer_instruction(agents: Sequence[AgentConfig]) -> str:
    """Return the part of the instruction that lists the agents to hand over to."""
    lines = [f"- {agent.name}: {agent.description or 'no description'}" for agent in agents]
    return "\n".join(
        [f"You can hand the conversation over to another agent by calling `{TRANSFER}` with its name:", *lines]
    )


FILLED = Key(Kind.NOTE, "filled")
"""The note that keeps the session values in the instruction that the hooks were given."""


class ChatKit(Kit):
    """The kit of a chat-model agent.

    `instruction` is the instruction as hooks changed it, or None if they did not; `transfer` describes to the model
    the agents that it can hand over to.
    """

    __slots__ = ("instruction", "transfer")

    def __init__(self, agent: ChatConfig, setup: Setup, middleware: tuple[Any, ...], agents: list[AgentConfig]) -> None:
        super().__init__(
            agent.name,
            (*setup.tools, *([transfer_tool(agents)] if agents else [])),
            middleware,
            outer=max(0, len(middleware) - len(agent.middleware)),
            return_directly=setup.return_directly,
            on_error=agent.on_tool_error,
            raises_unknown=agent.raises_unknown_tools,
            max_calls=agent.limits.calls_per_answer,
        )
        self.instruction: str | None = None
        self.transfer = transfer_instruction(agents) if agents else ""


class HooksFrame(UserFrame):
    """The frame of an agent's `before_agent` hooks.

    Their result is not stored, so they run again in each process that continues the agent; their questions and memos
    are stored for as long as the agent's turn lasts.
    """


def plain_kit(agent: ChatConfig) -> ChatKit:
    """Return the kit of an agent without hooks and without agents to hand over to."""
    return ChatKit(agent, _first_setup(agent, agent.instruction), (), [])


def _first_setup(agent: ChatConfig, instruction: str) -> Setup:
    """Return the setup of an agent before any hook has changed it."""
    return Setup(agent=agent.name, instruction=instruction, tools=agent.tools, return_directly=agent.return_directly)


async def make_kit(
    frame: AgentFrame, agent: ChatConfig, template: Template, middleware: tuple[Any, ...], agents: list[AgentConfig]
) -> ChatKit | None:
    """Return the agent's kit for this process, or None if a hook waits for an answer."""
    hooks = having(middleware, "before_agent")
    setup = _first_setup(agent, _instruction_for_hooks(frame, template) if hooks else "")
    made = await _hooked(frame, hooks, setup) if hooks else setup
    if made is None:
        return None
    kit = ChatKit(agent, made, middleware, agents)
    kit.instruction = None if made.instruction == setup.instruction else made.instruction
    return kit


def _instruction_for_hooks(frame: AgentFrame, template: Template) -> str:
    """Return the instruction with the session values that it had when the agent began.

    The hooks' result stays the same until the agent has ended. Another process must arrive at the same result, even
    though the agent's own tools may have changed those values since.
    """
    hooking = frame.hooks = frame.hooks or _hooks_frame(frame)
    memo = hooking.kept(FILLED)
    kept: dict[str, list[object]] = {} if memo is None else decoded(memo.result)
    read: dict[str, list[object]] = {}

    def lookup(name: str) -> object:
        value = kept[name][0] if kept.get(name) else GONE if name in kept else frame.read_value(name)
        read[name] = [] if value is GONE else [value]
        return value

    text = template.filled(lookup)
    if read and memo is None:
        hooking.keep(FILLED, read, optional=True)
    return text


async def _hooked(frame: AgentFrame, hooks: tuple[Middleware, ...], setup: Setup) -> Setup | None:
    hooking = frame.hooks
    assert hooking is not None
    if hooking.status == "waiting":
        return None
    if frame.scope.cancellation.mode is not None:
        raise RunCancelled

    async def run(changed: Setup) -> Setup:
        for middleware in hooks:
            changed = await _changed(middleware, changed)
        return changed

    result = await execute(hooking, run, setup)
    hooking.status = "waiting" if result is PAUSED else "pending"
    return None if result is PAUSED else result


async def _changed(middleware: Middleware, setup: Setup) -> Setup:
    # Not in a layer: the result contains tools, which cannot be stored.
    with address_segment("middleware", middleware.name):
        found: Any = middleware.before_agent(setup)
        changed: Any = await found if inspect.isawaitable(found) else found
    if not isinstance(changed, Setup):
        raise UsageError(f"{middleware.name}.before_agent returned {changed!r}. Return the setup, changed or not.")
    return changed


def _hooks_frame(frame: AgentFrame) -> HooksFrame:
    hooks = HooksFrame(frame.scope, frame, HOOKS)
    image = frame.scope.dormant.bind(frame.path, HOOKS)
    if isinstance(image, UserImage):
        with Reading(frame.scope.session_id):
            hooks.restore(image)
    return hooks
