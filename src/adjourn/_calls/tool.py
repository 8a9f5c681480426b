"""Using a tool: one call of it, from the arguments that a model wrote to the result that it reads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from adjourn._engine.frame import UserFrame
from adjourn._engine.scope import RunCancelled
from adjourn.errors import (
    Conflict,
    InvalidArguments,
    Pause,
    ProgramChanged,
    StoreUnavailable,
    ToolError,
    ToolRefused,
    text_of,
)
from adjourn.events import ToolCalled
from adjourn.messages import ToolCall
from adjourn.middleware.hooks import ToolRequest
from adjourn.tools import Approve, Edit, Reject, Respond, Tool

from .approval import approved
from .caller import Caller
from .kit import Kit
from .running import run_tool

log = logging.getLogger("adjourn.tools")

_Edited = tuple[Mapping[str, Any] | None, str | None]


class Outcome(Struct, frozen=True, kw_only=True):
    """What a tool call came to: `content` is what the model reads, `full` the whole when that was cut.

    When a person has edited its arguments, these are `arguments`, and `by` is who.
    """

    content: Any  # Any: text, or parts of a message
    error: str | None = None
    arguments: Mapping[str, Any] | None = None
    by: str | None = None
    full: str | None = None


async def use(task: UserFrame, caller: Caller, kit: Kit, call: ToolCall) -> Outcome:
    """Run a tool call in the frame `task`; only a pause, a cancel, and what the kit wants raised come out of it."""
    tool = kit.tools.get(call.name)
    if tool is None:
        return _unknown(task, call, kit)
    try:
        if call.raw is not None:
            raise InvalidArguments(call.name, ["they are no JSON object"])
        converted = tool.validate(call.arguments)
    except InvalidArguments as error:
        if _has_begun(task):
            raise ProgramChanged(
                task.address, f"the arguments do not fit the tool any more ({text_of(error)})"
            ) from error
        return _failed(kit, error)
    if tool.approval is False and not task.questions:
        return await _run(task, caller, kit, tool, call, converted)
    return await _decided(task, caller, kit, tool, call, converted)


def _has_begun(task: UserFrame) -> bool:
    """Whether the call has run before, and left something to go on from."""
    return bool(task.questions or task.memos or task.children or task.scope.dormant.below(task.path))


def _unknown(task: UserFrame, call: ToolCall, kit: Kit) -> Outcome:
    if _has_begun(task):
        raise ProgramChanged(task.address, f"there is no tool '{call.name}' any more")
    error = ToolError(f"There is no tool '{call.name}'. There are: {', '.join(kit.tools) or 'none'}.")
    if kit.raises_unknown:
        raise error
    return Outcome(content=str(error), error=str(error))


async def _decided(
    task: UserFrame, caller: Caller, kit: Kit, tool: Tool, call: ToolCall, converted: dict[str, Any]
) -> Outcome:
    """Have the call approved if it needs to be, and do what was decided."""
    found = await approved(task, caller, tool, call, converted)
    if found is None:
        return await _run(task, caller, kit, tool, call, converted)
    match found.decision:
        case Approve():
            return await _run(task, caller, kit, tool, call, found.converted)
        case Edit():
            edited = tool.lower(found.converted), found.by
            return await _run(task, caller, kit, tool, call, found.converted, edited)
        case Reject(reason=reason):
            why = f": {reason}" if reason else "."
            return Outcome(content=f"A person refused this call{why}", error="refused")
        case Respond(text=text):
            return Outcome(content=text)


async def _run(
    task: UserFrame,
    caller: Caller,
    kit: Kit,
    tool: Tool,
    call: ToolCall,
    converted: dict[str, Any],
    edited: _Edited = (None, None),
) -> Outcome:
    arguments, by = edited
    if caller.scope.watched:
        # With the arguments that run, whatever the model wrote.
        run = call if arguments is None else ToolCall(id=call.id, name=call.name, arguments=arguments)
        caller.emit_live(ToolCalled(address=task.address, call=run))
    request = ToolRequest(tool=tool.name, call_id=call.id, arguments=tool.lower(converted), agent=caller.caller)
    before = task.entry.mark()
    try:
        content = await run_tool(task, caller, kit, tool, request, converted)
    except ToolRefused as refused:
        # A person's answer and no failure, so not for those who want tool errors raised.
        outcome = Outcome(content=str(refused), error="refused", arguments=arguments, by=by)
    except (Conflict, StoreUnavailable):
        raise  # What is stored is in doubt: that is nothing for a model to react to.
    except Exception as error:  # noqa: BLE001  # protects the agent: its model is told, unless it wants it raised
        outcome = _failed(kit, error, edited)
    except (Pause, RunCancelled, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001  # protects all other runs of the process: a tool ends only itself
        outcome = _failed(kit, _unwanted(error), edited)
    else:
        cut, full = _cut(tool, content)
        return Outcome(content=cut, arguments=arguments, by=by, full=full)
    # What it wrote goes with it, and what it did in an earlier entry it need not have done again.
    task.entry.drop_writes(before)
    task.entry.expect_nothing()
    return outcome


def _unwanted(error: BaseException) -> ToolError:
    """What is told of a tool that wanted to end more than itself, unless it is cancelled indeed."""
    match error:
        case SystemExit(code=code):
            return ToolError(f"it wanted to end the program (exit code {code})")
        case asyncio.CancelledError():
            current = asyncio.current_task()
            if current is None or current.cancelling():
                raise error
            return ToolError("something that it waited for was cancelled")
        case _:
            return ToolError(f"{type(error).__name__}: {text_of(error)}")


def _failed(kit: Kit, error: Exception, edited: _Edited = (None, None)) -> Outcome:
    """What a model reads of an error: what happened, without a stack."""
    if kit.raises_errors:
        raise error
    log.warning("a tool failed, and its model is told: %s: %s", type(error).__name__, text_of(error), exc_info=error)
    told = text_of(error) if isinstance(error, ToolError) else f"{type(error).__name__}: {text_of(error)}"
    return Outcome(content=f"Error: {told}", error=told, arguments=edited[0], by=edited[1])


def _cut(tool: Tool, content: Any) -> tuple[Any, str | None]:
    if not isinstance(content, str) or len(content) <= tool.max_result:
        return content, None
    notice = f"\n[The result has {len(content)} characters; these are the first {tool.max_result}.]"
    return content[: tool.max_result] + notice, content
