"""Setup: what a chat-model agent works with in this process, the transfer to other agents included."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from adjourn._calls.caller import Instruction, Kit
from adjourn._engine.execution import PAUSED, execute
from adjourn._engine.frame import UserFrame
from adjourn._engine.memos import Key, Kind
from adjourn._engine.record import UserImage
from adjourn._engine.scope import RunCancelled
from adjourn._engine.values import GONE, decoded
from adjourn._values.damage import Reading
from adjourn.agents._config import AgentConfig
from adjourn.agents._frame import HOOKS, AgentFrame
from adjourn.context import address_segment, current
from adjourn.errors import UsageError
from adjourn.middleware.hooks import Hooks, Middleware, Setup
from adjourn.tools import Tool, tool

from ._config import ChatConfig

TRANSFER = "transfer_to_agent"


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


APPLIED = "applied"
"""The note that the session values which the hooks set have been written in this turn."""

FILLED = Key(Kind.NOTE, "filled")
"""The note that keeps the session values in the instruction that the hooks were given."""


class ChatKit(Kit):
    """The kit of a chat-model agent.

    `before` and `after` are what hooks have put around the agent's instruction, and `instead` what they have put in its
    place, if they did; `transfer` describes to the model the agents that it can hand over to.
    """

    __slots__ = ("after", "before", "instead", "transfer")

    def __init__(self, agent: ChatConfig, setup: Setup, hooks: Hooks, agents: list[AgentConfig]) -> None:
        super().__init__(
            agent.name,
            (*setup.tools, *([transfer_tool(agents)] if agents else [])),
            hooks,
            outer=len(hooks.all) - len(agent.middleware),
            return_directly=setup.return_directly,
            on_error=agent.on_tool_error,
            on_unknown=agent.on_unknown_tool,
            max_calls=agent.limits.calls_per_answer,
            counts_tokens=agent.limits.tokens is not None,
        )
        self.before: str = ""
        self.after: str = ""
        self.instead: str | None = None
        self.transfer: str = transfer_instruction(agents) if agents else ""

    def note_changed(self, shown: str, made: str) -> None:
        """Note what hooks have made of the instruction that they were shown."""
        if not shown:
            self.after = made
        elif shown in made:
            self.before, _, self.after = made.partition(shown)
        else:
            self.instead = made

    def around(self, text: str) -> str:
        """Return the agent's instruction, whose own text is this now, with what hooks have put around it."""
        return f"{self.before}{text}{self.after}" if text else f"{self.before}{self.after}".strip()


class HooksFrame(UserFrame):
    """The frame of an agent's `before_agent` hooks.

    Their result is not stored, so they run again in each process that continues the agent; their questions and memos
    are stored for as long as the agent's turn lasts.
    """


def plain_kit(agent: ChatConfig, hooks: Hooks, agents: list[AgentConfig]) -> ChatKit:
    """Return the kit of an agent that no hook prepares."""
    return ChatKit(agent, _first_setup(agent, ""), hooks, agents)


def _first_setup(agent: ChatConfig, instruction: str) -> Setup:
    """Return the setup of an agent before any hook has changed it."""
    return Setup(
        agent=agent.name,
        instruction=instruction,
        tools=agent.tools,
        return_directly=agent.return_directly,
        retry=agent.retry,
    )


async def prepared_kit(
    frame: AgentFrame, agent: ChatConfig, own: Instruction, hooks: Hooks, agents: list[AgentConfig]
) -> ChatKit | None:
    """Return the kit of an agent that hooks prepare, for this process; None if one of them waits for an answer."""
    first = _first_setup(agent, _instruction_for_hooks(frame, own))
    made = await _hooked(frame, hooks.before_agent, first)
    if made is None:
        return None
    kit = ChatKit(agent, made, hooks, agents)
    kit.note_changed(first.instruction, made.instruction)
    return kit


def _instruction_for_hooks(frame: AgentFrame, own: Instruction) -> str:
    """Return the instruction with the session values that it had when the agent began.

    The hooks' result stays the same until the agent has ended. Another process must arrive at the same result, even
    though the agent's own tools may have changed those values since.
    """
    hooking = _hooks_frame(frame)
    memo = hooking.kept(FILLED)
    kept: dict[str, list[object]] = {} if memo is None else decoded(memo.result)
    read: dict[str, list[object]] = {}

    def lookup(name: str) -> object:
        value = kept[name][0] if kept.get(name) else GONE if name in kept else frame.read_value(name)
        read[name] = [] if value is GONE else [value]
        return value

    text = own.shown(lookup)
    if read and memo is None:
        hooking.keep(FILLED, read, optional=True)
    return text


async def _hooked(frame: AgentFrame, hooks: tuple[Middleware, ...], setup: Setup) -> Setup | None:
    """Return what the hooks made of the setup; None if one of them waits."""
    hooking = _hooks_frame(frame)
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
    if result is PAUSED:
        return None
    _apply_values(frame, hooking)
    return result


def _apply_values(frame: AgentFrame, hooking: UserFrame) -> None:
    """Write the session values that the hooks have set, once in a turn.

    The hooks run again in each process that continues the agent: its tools may have changed these values since.
    """
    written, hooking.written = hooking.written, None
    if written and not hooking.is_noted(APPLIED):
        hooking.note(APPLIED)
        frame.merge_values(written)
        frame.scope.mark(frame)


async def _changed(middleware: Middleware, setup: Setup) -> Setup:
    # Not in a layer: the result contains tools, which cannot be stored.
    with address_segment("middleware", middleware.name):
        found: Any = middleware.before_agent(setup)
        changed: Any = await found if inspect.isawaitable(found) else found
    if not isinstance(changed, Setup):
        raise UsageError(f"{middleware.name}.before_agent returned {changed!r}. Return the setup, changed or not.")
    if changed.agent != setup.agent or changed.retry not in ((), setup.retry):
        raise UsageError(
            f"{middleware.name}.before_agent changed the name or the retry policy of agent '{setup.agent}', which it "
            "can only read. Give them to the agent itself."
        )
    return changed if changed.retry else replace(changed, retry=setup.retry)


def _hooks_frame(frame: AgentFrame) -> HooksFrame:
    """Return the frame of the hooks, restored from its stored image or new."""
    if isinstance(frame.beside, HooksFrame):
        return frame.beside
    hooks = frame.beside = HooksFrame(frame.scope, frame, HOOKS)
    image = frame.scope.dormant.bind(frame.path, HOOKS)
    if isinstance(image, UserImage):
        with Reading(frame.scope.session_id):
            hooks.restore(image)
    return hooks
