"""The loop of a chat-model agent: ask the model, run the tools that it calls, and see what follows."""

from __future__ import annotations

import inspect
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from adjourn._calls.approval import must_ask
from adjourn._calls.caller import with_own_ids
from adjourn._calls.kit import Kit
from adjourn._calls.model import Asking, hooked, same_start
from adjourn._calls.tool import Outcome, use
from adjourn._engine.address import segment_text
from adjourn._engine.layer import layer
from adjourn._values.frozen import shorten
from adjourn.agents._frame import FULL, AgentFrame, number_of
from adjourn.agents._progress import Ending
from adjourn.agents._transcript import Edited, Entry
from adjourn.agents._transfer import chain_of, giver
from adjourn.errors import LimitExceeded, MaxIterationsExceeded, UsageError
from adjourn.events import BreakLoop, Exit, MessageEvent, ToolResult, Transfer
from adjourn.graph._task import HANDLED, Send, Task
from adjourn.messages import Message, ToolCall
from adjourn.middleware.hooks import AgentEnd
from adjourn.models import ModelRequest

from ._outputs import read_output
from ._setup import told_instruction
from .limits import UNLIMITED

if TYPE_CHECKING:
    from .agent import ChatModelAgent, ChatPlan


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
    frame.emit(MessageEvent(address=frame.address, message=message))
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


async def use_tool(task: Task) -> object:
    """Run one call, and note its result."""
    frame, number = cast("AgentFrame", task.graph), number_of(task)
    call = frame.calls[number - 1]
    _check_limit(frame, number)
    assert frame.kit is not None
    _conclude_call(task, frame, call, await use(task, frame, frame.kit, call))
    return HANDLED


def asks_first(frame: AgentFrame, task: Task) -> bool:
    """Whether a person will be asked about a call, before any code of the user's has run."""
    assert frame.kit is not None
    tool = frame.kit.tools.get(frame.calls[number_of(task) - 1].name)
    return tool is not None and must_ask(frame, tool)


def _check_limit(frame: AgentFrame, number: int) -> None:
    """Refuse a tool call too many; those before it in its batch run."""
    limit = cast("ChatModelAgent", frame.agent).limits.tool_calls
    if limit is not None and frame.progress.tool_calls - len(frame.calls) + number > limit:
        raise LimitExceeded(frame.agent.name, "tool_calls", limit)


def _conclude_call(task: Task, frame: AgentFrame, call: ToolCall, outcome: Outcome) -> None:
    message = Message.tool(outcome.content, tool_call_id=call.id, name=call.name)
    if outcome.error is not None:
        message = message.with_finish("error")
    entries = [frame.entry(message)]
    if outcome.arguments is not None:
        edited = Edited(call_id=call.id, arguments=outcome.arguments, by=outcome.by)
        entries.insert(0, frame.edit_entry(edited))
    task.writes = [("entries", entries, True)]
    assert frame.kit is not None
    if call.name in frame.kit.return_directly and outcome.error is None:
        # It is told when all calls have results.
        if outcome.full is not None:
            task.write_value(FULL + call.id, outcome.full)
        return
    frame.emit(
        ToolResult(
            address=task.address,
            tool=call.name,
            call_id=call.id,
            result=message.text,
            error=outcome.error,
            full=outcome.full,
        )
    )


NOT_RUN = "This call was not run: another one ended the turn before it."


def after_answer(frame: AgentFrame) -> list[Send]:
    """The model has answered without calling a tool: the agent ends."""
    return frame.end(frame.progress.ending or Ending())


def after_batch(frame: AgentFrame) -> list[Send]:
    """What follows when the tool calls that ran have results."""
    plan, agent, kit = cast("ChatPlan", frame.plan), cast("ChatModelAgent", frame.agent), frame.kit
    assert kit is not None
    actions, frame.actions = frame.actions, []
    if not actions and not agent.is_sequential and not kit.return_directly:
        return [(plan.model, None)]
    answered = _answered(frame)
    left = [number for number, call in enumerate(frame.calls, 1) if call.id not in answered]
    if not actions and agent.is_sequential and left:
        return [(plan.tools, {"number": left[0]})]
    direct = _direct(kit, answered)
    # The first comes last: it is the agent's result.
    for result in reversed(direct):
        frame.emit(_result_event(frame, result))
    if actions:
        said = _last_text(frame)
        frame.owner.extend([_not_run(frame, number) for number in left])
        return _act(frame, actions[0], said)
    return frame.end(Ending(output=direct[0].text)) if direct else [(plan.model, None)]


def _answered(frame: AgentFrame) -> dict[str, Message]:
    """The results of the batch so far by the ids of their calls, in call order."""
    entries: list[Entry] = frame.owner.channels["entries"][frame.progress.batch + 1 :]
    said = [entry.message for entry in entries if entry.message is not None and entry.message.role == "tool"]
    found = {message.tool_call_id: message for message in said}
    return {call.id: found[call.id] for call in frame.calls if call.id in found}


def _not_run(frame: AgentFrame, number: int) -> Entry:
    call = frame.calls[number - 1]
    return frame.entry(Message.tool(NOT_RUN, tool_call_id=call.id, name=call.name))


def _direct(kit: Kit, answered: dict[str, Message]) -> list[Message]:
    """The results that may be the agent's own, of which the first is; that of a failed call is for the model."""
    names = kit.return_directly
    return [each for each in answered.values() if each.name in names and each.finish_reason != "error"]


def _result_event(frame: AgentFrame, result: Message) -> ToolResult:
    call_id = result.tool_call_id or ""
    address = f"{frame.address};{segment_text('tool', result.name or '', call_id)}"
    full = frame.fulls.pop(call_id, None)
    return ToolResult(address=address, tool=result.name or "", call_id=call_id, result=result.text, full=full)


def _act(frame: AgentFrame, action: dict[str, str], said: str) -> list[Send]:
    match action["action"]:
        case "exit":
            frame.emit(Exit(address=frame.address, result=action["result"]))
            return frame.end(Ending(output=action["result"], action="exit"))
        case "break_loop":
            frame.emit(BreakLoop(address=frame.address))
            return frame.end(Ending(output=said, action="break_loop"))
        case _:
            return _hand_over(frame, action["target"])


def _last_text(frame: AgentFrame) -> str:
    entries: list[Entry] = frame.owner.channels["entries"]
    return next((entry.message.text for entry in reversed(entries) if entry.message and entry.author), "")


def _hand_over(frame: AgentFrame, target: str) -> list[Send]:
    plan = cast("ChatPlan", frame.plan)
    frame.emit(Transfer(address=frame.address, target=target))
    back = giver(frame)
    if back is not None and target == back.agent.name:
        return frame.end(Ending(action="transfer", target=target))
    chain = chain_of(frame)
    if chain is not None:
        frame.owner.set_active([*chain, target])
    return [(plan.handoff(target, frame), None)]


def after_handoff(name: str, frame: AgentFrame) -> list[Send]:
    """A sub-agent has ended: with the turn's result, or by handing back."""
    ending: Ending = frame.channels["endings"][name]
    if ending.action != "transfer":
        return frame.end(replace(ending, trail=()))
    chain = chain_of(frame)
    if chain is not None:
        frame.owner.set_active(chain)
    frame.set_progress(trail=(*ending.trail, frame.agent.name))
    return [(cast("ChatPlan", frame.plan).model, None)]


async def see_end(task: Task) -> object:
    """Let the hooks see how the agent ended."""
    frame = cast("AgentFrame", task.graph)
    assert frame.kit is not None
    ending = frame.progress.ending or Ending()
    end = AgentEnd(agent=frame.agent.name, output=ending.output, action=ending.action)
    for middleware in reversed(frame.kit.after_agent):

        async def run(middleware: Any = middleware) -> None:
            found = middleware.after_agent(end)
            if inspect.isawaitable(found):
                await found

        await layer("middleware", middleware.name, run, part=f"after_agent:{middleware.name}")
    task.sends = []
    frame.end_hooks()
    return HANDLED
