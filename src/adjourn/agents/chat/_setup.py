"""Setting up: what a chat-model agent works with in this process, after its `before_agent` hooks."""

from __future__ import annotations

import inspect
from typing import Any

from adjourn._calls.kit import Kit, Template
from adjourn._engine.entry import PAUSED, execute
from adjourn._engine.frame import UserFrame, decoded
from adjourn._engine.memos import Key, Kind
from adjourn._engine.record import UserImage
from adjourn._engine.scope import GONE, RunCancelled
from adjourn.agents._config import AgentConfig
from adjourn.agents._frame import HOOKS, AgentFrame
from adjourn.context import address_segment
from adjourn.errors import UsageError
from adjourn.middleware.hooks import Middleware, Setup, having

from ._config import ChatConfig
from ._transfer import transfer_instruction, transfer_tool

FILLED = Key(Kind.NOTE, "filled")
"""Under which it is kept what session values the hooks were given in an instruction."""


class ChatKit(Kit):
    """The kit of a chat-model agent.

    `instruction` is what hooks have made of the agent's own, None if they have left it alone; `transfer` is what the
    model is told of the agents that it can hand over to.
    """

    __slots__ = ("instruction", "transfer")

    def __init__(self, agent: ChatConfig, setup: Setup, middleware: tuple[Any, ...], agents: list[AgentConfig]) -> None:
        super().__init__(
            agent.name,
            (*setup.tools, *([transfer_tool(agents)] if agents else [])),
            middleware,
            return_directly=setup.return_directly,
            raises_errors=agent.raises_tool_errors,
            raises_unknown=agent.raises_unknown_tools,
        )
        self.instruction: str | None = None
        self.transfer = transfer_instruction(agents) if agents else ""


class HooksFrame(UserFrame):
    """The frame of an agent's `before_agent` hooks.

    What they make is not stored, so they run again in each process that goes on with the agent; what they have asked
    and kept is, for as long as the agent's turn lasts.
    """


def plain_kit(agent: ChatConfig) -> ChatKit:
    """What an agent works with when no hook and no other agent has a say in it."""
    return ChatKit(agent, _first_setup(agent, agent.instruction), (), [])


def _first_setup(agent: ChatConfig, instruction: str) -> Setup:
    """What an agent works with before any hook has changed it."""
    return Setup(agent=agent.name, instruction=instruction, tools=agent.tools, return_directly=agent.return_directly)


async def make_kit(
    frame: AgentFrame, agent: ChatConfig, template: Template, middleware: tuple[Any, ...], agents: list[AgentConfig]
) -> ChatKit | None:
    """Make the agent's kit for this process; None when a hook waits for an answer."""
    hooks = having(middleware, "before_agent")
    setup = _first_setup(agent, _instruction_for_hooks(frame, template) if hooks else "")
    made = await _hooked(frame, hooks, setup) if hooks else setup
    if made is None:
        return None
    kit = ChatKit(agent, made, middleware, agents)
    kit.instruction = None if made.instruction == setup.instruction else made.instruction
    return kit


def _instruction_for_hooks(frame: AgentFrame, template: Template) -> str:
    """The instruction with the values that were in it when the agent began.

    What hooks make of it stays as it is until the agent has ended. Another process has to make the same of it, though
    the agent's own tools may have changed those values since.
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
    # No layer of its own: what it gives has tools in it, which cannot be kept.
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
        hooks.restore(image)
    return hooks
