"""Ending: what follows on an answer, on a batch of tool calls, and on an agent that was handed over to."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from adjourn.calls.kit import Kit
from adjourn.core.address import segment_text
from adjourn.core.events import BreakLoop, Exit, ToolResult, Transfer
from adjourn.core.layer import layer
from adjourn.graph.task import HANDLED, Send, Task
from adjourn.messages import Message
from adjourn.middleware.hooks import AgentEnd

from .frame import AgentFrame
from .progress import Ending
from .transcript import Entry
from .transfer import chain_of, giver

if TYPE_CHECKING:
    from .chat import ChatModelAgent, ChatPlan

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
        frame.tell(_result_event(frame, result))
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
            frame.tell(Exit(address=frame.address, result=action["result"]))
            return frame.end(Ending(output=action["result"], action="exit"))
        case "break_loop":
            frame.tell(BreakLoop(address=frame.address))
            return frame.end(Ending(output=said, action="break_loop"))
        case _:
            return _hand_over(frame, action["target"])


def _last_text(frame: AgentFrame) -> str:
    entries: list[Entry] = frame.owner.channels["entries"]
    return next((entry.message.text for entry in reversed(entries) if entry.message and entry.author), "")


def _hand_over(frame: AgentFrame, target: str) -> list[Send]:
    plan = cast("ChatPlan", frame.plan)
    frame.tell(Transfer(address=frame.address, target=target))
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
