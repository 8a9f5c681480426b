"""Setting up: what a chat-model agent works with in this process, after its `before_agent` hooks."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, cast

from adjourn._calls.kit import Kit
from adjourn._engine.entry import PAUSED, execute
from adjourn._engine.frame import UserFrame, decoded
from adjourn._engine.memos import Key, Kind
from adjourn._engine.record import UserImage
from adjourn._engine.scope import GONE, RunCancelled
from adjourn.agents._frame import HOOKS, AgentFrame
from adjourn.agents._transfer import reachable, told, transfer_tool
from adjourn.context import address_segment
from adjourn.errors import UsageError
from adjourn.middleware.hooks import Middleware, Setup, having

if TYPE_CHECKING:
    from adjourn.agents.agent import Agent

    from .agent import ChatModelAgent, ChatPlan

FILLED = Key(Kind.NOTE, "filled")
"""Under which it is kept what session values the hooks were given in an instruction."""


class HooksFrame(UserFrame):
    """The frame of an agent's `before_agent` hooks.

    What they make is not stored, so they run again in each process that goes on with the agent; what they have asked
    and kept is, for as long as the agent's turn lasts.
    """


def first_setup(agent: ChatModelAgent, instruction: str) -> Setup:
    """What an agent works with before any hook has changed it."""
    return Setup(agent=agent.name, instruction=instruction, tools=agent.tools, return_directly=agent.return_directly)


def kit_of(agent: ChatModelAgent, setup: Setup, middleware: tuple[Any, ...], agents: list[Agent]) -> Kit:
    """The kit for a set-up, with the tool that hands over to these agents."""
    return Kit(
        agent.name,
        (*setup.tools, *([transfer_tool(agents)] if agents else [])),
        middleware,
        return_directly=setup.return_directly,
        raises_errors=agent.raises_tool_errors,
        raises_unknown=agent.raises_unknown_tools,
    )


async def prepare(frame: AgentFrame) -> bool:
    """Make the agent's kit; False when a hook waits for an answer."""
    agent = cast("ChatModelAgent", frame.agent)
    middleware, agents = (*frame.scope.middleware, *agent.middleware), reachable(frame)
    if not middleware and not agents:
        frame.kit = cast("ChatPlan", frame.plan).plain_kit
        return True
    hooks = having(middleware, "before_agent")
    setup = first_setup(agent, _instruction_for_hooks(frame) if hooks else "")
    made = await _hooked(frame, hooks, setup) if hooks else setup
    if made is None:
        return False
    frame.kit = kit_of(agent, made, middleware, agents)
    frame.kit.instruction = None if made.instruction == setup.instruction else made.instruction
    frame.kit.agents = told(agents) if agents else ""
    return True


def told_instruction(frame: AgentFrame) -> str:
    """What the model is told before the conversation.

    It is rendered for each call: what was written into the session's values meanwhile counts, pause or no pause.
    """
    kit, plan = frame.kit, cast("ChatPlan", frame.plan)
    assert kit is not None
    instruction = plan.instruction.filled(frame.read_value) if kit.instruction is None else kit.instruction
    return f"{instruction}\n\n{kit.agents}" if instruction and kit.agents else instruction or kit.agents


def _instruction_for_hooks(frame: AgentFrame) -> str:
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

    text = cast("ChatPlan", frame.plan).instruction.filled(lookup)
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
