"""Thinking: one call of an agent's model, with the hooks around it, and what follows from its answer."""

from __future__ import annotations

import inspect
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from adjourn.calls.asking import Asking, hooked, same_start
from adjourn.calls.ids import with_own_ids
from adjourn.core.errors import LimitExceeded, MaxIterationsExceeded, UsageError
from adjourn.core.events import MessageEvent
from adjourn.core.frozen import shorten
from adjourn.graph.task import HANDLED, Send, Task
from adjourn.messages import Message
from adjourn.models import ModelRequest

from .frame import AgentFrame
from .limits import UNLIMITED
from .outputs import read_output
from .progress import Ending
from .setup import told_instruction
from .transcript import Entry

if TYPE_CHECKING:
    from .chat import ChatModelAgent, ChatPlan


async def think(task: Task) -> object:
    """Ask the model once, and note what it said."""
    frame = cast("AgentFrame", task.graph)
    agent, kit = cast("ChatModelAgent", frame.agent), frame.kit
    assert kit is not None
    check_limits(frame, agent)
    seen = frame.view.update(frame.sources)
    messages = await hooked(kit.before_model, "before_model", seen) if kit.before_model else seen
    asking = Asking(frame, kit, agent.models, agent.retry, frame.progress.model)
    answer = await asking.answer(partial(_request, frame, agent, messages))
    if kit.after_model:
        # They know the calls by the ids under which these will run.
        own = with_own_ids(answer, set(frame.used_ids()))
        *messages, answer = await hooked(kit.after_model, "after_model", [*messages, own])
        asking.check_told(answer)
    rewritten = [] if messages is seen else _rewritten(frame, seen, messages)
    return _conclude(task, frame, agent, rewritten, answer, asking.model)


def check_limits(frame: AgentFrame, agent: ChatModelAgent) -> None:
    """Refuse a model call too many.

    Raises:
        MaxIterationsExceeded, LimitExceeded: the agent can be recovered with a larger limit.
    """
    progress, limits = frame.progress, agent.limits
    if progress.model_calls >= agent.max_iterations:
        raise MaxIterationsExceeded(agent.name, agent.max_iterations)
    if limits is UNLIMITED:
        return
    seconds = progress.seconds
    if limits.seconds is not None:
        now = time.monotonic()
        seconds, frame.since = seconds + now - frame.since, now
        frame.set_progress(seconds=seconds)
    counts = {"model_calls": progress.model_calls, "tokens": progress.tokens, "seconds": seconds}
    for name, count in counts.items():
        limit = getattr(limits, name)
        if limit is not None and count >= limit:
            raise LimitExceeded(agent.name, name, limit)


async def _request(frame: AgentFrame, agent: ChatModelAgent, messages: Sequence[Message]) -> ModelRequest:
    instruction = told_instruction(frame)
    if agent.model_input is not None:
        made: Any = agent.model_input(instruction, tuple(messages))
        sent: Any = await made if inspect.isawaitable(made) else made
        if not _are_messages(sent):
            raise UsageError(f"model_input of agent '{agent.name}' gave {shorten(sent)}. Give a list of messages.")
    else:
        sent = (Message.system(instruction), *messages) if instruction else messages
    assert frame.kit is not None
    return ModelRequest(
        messages=sent, tools=frame.kit.specs, options=frame.scope.model_options, output=agent.output_schema
    )


def _are_messages(given: object) -> bool:
    return isinstance(given, list | tuple) and all(isinstance(each, Message) for each in cast("list[object]", given))


def _conclude(
    task: Task,
    frame: AgentFrame,
    agent: ChatModelAgent,
    rewritten: list[Entry],
    answer: Message,
    model: int,
) -> object:
    """Write the answer into the transcript, with what follows from it."""
    owner, before = frame.owner, frame.progress
    message = owner.identified(with_own_ids(answer, owner.used_ids()))
    entries = [*rewritten, frame.entry(message)]
    progress = replace(
        before,
        model_calls=before.model_calls + 1,
        tool_calls=before.tool_calls + len(message.tool_calls),
        tokens=before.tokens + (message.usage.total_tokens if message.usage else 0),
        batch=len(owner.channels["entries"]) + len(entries) - 1,
        model=model,
    )
    frame.tell(MessageEvent(address=frame.address, message=message))
    task.sends, progress, more = _follow(frame, agent, message, progress)
    entries += more
    task.writes = [("entries", entries, True), ("progress", progress, True)]
    return HANDLED


def _rewritten(frame: AgentFrame, seen: list[Message], made: list[Message]) -> list[Entry]:
    """An entry for what hooks have made of the agent's view, if they have."""
    if made == seen:
        return []
    # With one list all read it in one order, so that places in the view are the same for ever. What is handed up to
    # another list stands between others' entries there.
    same = same_start(seen, made) if len(frame.sources) == 1 else 0
    return [Entry(author=frame.agent.name, turn=frame.scope.turn, seen_as=tuple(made[same:]), seen_from=same)]


def _follow(
    frame: AgentFrame, agent: ChatModelAgent, message: Message, progress: Any
) -> tuple[list[Send] | None, Any, list[Entry]]:
    """What runs next: the tools that were called, the model again, or (None) whatever follows on the agent's end."""
    plan = cast("ChatPlan", frame.plan)
    calls = len(message.tool_calls)
    if calls:
        count = 1 if agent.is_sequential else calls
        return [(plan.tools, {"number": number}) for number in range(1, count + 1)], progress, []
    value, problem = read_output(agent, message, progress.misfits)
    if problem is not None:
        told = frame.entry(Message.user(problem))
        return [(plan.model, None)], replace(progress, misfits=progress.misfits + 1), [told]
    ending = Ending(output=message.text, value=value, of="" if value is None else agent.name)
    return None, replace(progress, ending=ending), []
