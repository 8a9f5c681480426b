"""Using a tool: one call of it, from the arguments that a model wrote to the result that it reads."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Coroutine, Mapping
from functools import partial
from typing import Any, cast, get_args

from msgspec import Struct

from adjourn._engine.concurrency import in_thread
from adjourn._engine.frame import Entry, Place, UserFrame, current_place, here
from adjourn._engine.layer import inner, layer
from adjourn._engine.retry import attempted
from adjourn._engine.scope import RunCancelled
from adjourn.errors import (
    Conflict,
    InvalidArguments,
    Pause,
    ProgramChanged,
    StoreUnavailable,
    ToolError,
    ToolRefused,
    UsageError,
    text_of,
)
from adjourn.events import Delta, Retrying, ToolCalled
from adjourn.messages import Part, ToolCall
from adjourn.middleware.hooks import ToolRequest
from adjourn.models import close_stream
from adjourn.tools import Approve, Edit, Reject, Respond, Tool, result_text

from .approval import approved, is_remembered
from .at_most_once import begun
from .kit import Caller, Kit, program_options

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
    request = ToolRequest(tool=tool.name, call_id=call.id, arguments=tool.lower(converted), agent=caller.audience.name)
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


GRACE = 1.0
"""Seconds that a cancelled tool gets to end; then it is left to itself."""


class Late(Exception):
    """The time was over."""


async def within(seconds: float, entry: Entry, call: Coroutine[Any, Any, Any]) -> Any:
    """The result of the code of `entry`, made in a task of its own, so that it can be left behind.

    Raises:
        Late: there was none in time.
    """
    work = asyncio.create_task(_caught(call))
    task, entry.task = entry.task, work
    try:
        await asyncio.wait([work], timeout=seconds)
        if not work.done():
            await _end(work)
            raise Late
    except asyncio.CancelledError:
        await _end(work)
        raise
    finally:
        entry.task = task
    result, error = work.result()
    if error is not None:
        raise error
    return result


async def _caught(call: Coroutine[Any, Any, Any]) -> tuple[Any, BaseException | None]:
    try:
        return await call, None
    except BaseException as error:  # noqa: BLE001  # it belongs to whoever awaits the call, Pause included
        return None, error


async def _end(work: asyncio.Task[Any]) -> None:
    work.cancel()
    await asyncio.wait([work], timeout=GRACE)


_PARTS = get_args(Part)


class ToolTimeout(ToolError):
    """A tool took longer than its time."""


def run_tool(
    task: UserFrame, caller: Caller, kit: Kit, tool: Tool, request: ToolRequest, converted: dict[str, Any]
) -> Awaitable[Any]:
    """What the model reads of a call's result: text, or parts."""
    call = _Running(task, caller, kit, tool, request, converted)
    return call.at_most_once() if tool.at_most_once else call.wrapped(0, request)


class _Running:
    """One call of a tool's function."""

    def __init__(
        self, task: UserFrame, caller: Caller, kit: Kit, tool: Tool, request: ToolRequest, converted: dict[str, Any]
    ) -> None:
        self.task = task
        self.caller = caller
        self.kit = kit
        self.tool = tool
        self.request = request
        self.converted = converted

    async def at_most_once(self) -> Any:
        """The result, unless the call was cut off before: then a person decides what that is."""
        async with begun(self.task, self.tool, self.request) as decided:
            return await self.wrapped(0, self.request) if decided is None else decided

    async def wrapped(self, place: int, request: ToolRequest) -> Any:
        """The result, through the wrappers from `place` on."""
        if place == len(self.kit.wrap_tool):
            return content_of(await self._attempts(request))
        middleware = self.kit.wrap_tool[place]

        async def call(request: ToolRequest) -> Any:
            return await inner(partial(self.wrapped, place + 1, request))

        async def run() -> Any:
            found: Any = middleware.wrap_tool(call, request)
            return content_of(await found if inspect.isawaitable(found) else found)

        return await layer("middleware", middleware.name, run, part=f"wrap_tool:{middleware.name}")

    def _attempts(self, request: ToolRequest) -> Awaitable[Any]:
        tool = self.tool
        if tool.timeout is None and not tool.retry:
            return self._called(request)
        at = here("a tool")
        if not tool.retry:
            return self._attempt(at, request)
        before = at.entry.mark()

        async def again() -> Any:
            at.entry.go_back(before)
            return await self._attempt(at, request)

        return attempted(at.frame, tool.retry, again, self.caller.emit_live)

    async def _attempt(self, at: Place, request: ToolRequest) -> Any:
        """One attempt, at a place that is over with it: a thread that it leaves behind is refused."""
        place = Place(at.entry, at.extra, at.once)
        token = current_place.set(place)
        try:
            return await self._timed(place, request)
        except Exception:
            if at.entry.pausing or at.entry.fault is not None:
                raise Pause(at.address) from None  # It has asked, whatever its code made of that: nothing to try again.
            raise
        finally:
            place.over = True
            current_place.reset(token)

    async def _timed(self, place: Place, request: ToolRequest) -> Any:
        seconds = self.tool.timeout
        if seconds is None:
            return await self._called(request)
        try:
            return await within(seconds, place.entry, self._called(request))
        except Late as late:
            raise ToolTimeout(f"'{self.tool.name}' gave no result within {seconds:g} s") from late

    async def _called(self, request: ToolRequest) -> Any:
        arguments = self.converted if request is self.request else await self._changed(request)
        match self.tool.kind:
            case "async":
                return await self.tool.call(arguments)
            case "inline":
                return self.tool.call(arguments)
            case "sync":
                return await in_thread(partial(_in_its_thread, here("a tool").entry, self.tool, arguments))
            case "stream":
                return await self._streamed(request, arguments)

    async def _changed(self, request: ToolRequest) -> dict[str, Any]:
        """The arguments that a wrapper has made, unless a person has decided or must: what was approved is what runs.

        Raises:
            UsageError: they are others than were approved, or need an approval that those before did not.
        """
        made = self.tool.validate(request.arguments)
        if dict(request.arguments) != dict(self.request.arguments) and await self._is_decided(made):
            raise UsageError(
                f"A wrapper changed the arguments of '{self.tool.name}', about which a person decides. Change them "
                "before, or have the wrapper ask by itself."
            )
        return made

    async def _is_decided(self, made: dict[str, Any]) -> bool:
        """Whether a person has decided about this call, or would have to with other arguments."""
        if self.task.questions:
            return True
        needs = self.tool.needs_approval(made)
        if not (await needs if inspect.isawaitable(needs) else needs):
            return False
        return not await is_remembered(self.caller, self.tool.name, self.tool.lower(made))

    async def _streamed(self, request: ToolRequest, arguments: Mapping[str, Any]) -> str:
        """The pieces of a streaming tool put together, each told as it comes."""
        caller, pieces = self.caller, list[str]()
        chunks = self._pieces(0, request, arguments)
        try:
            async for piece in chunks:
                text = result_text(piece)
                pieces.append(text)
                if caller.scope.watched and program_options(caller.scope).streaming:
                    caller.emit_live(Delta(address=self.task.address, text=text, call_id=request.call_id))
        except BaseException:
            if pieces:
                # Whatever comes next begins anew: those who have read the pieces so far drop them.
                caller.emit_live(
                    Retrying(address=self.task.address, attempt=1, max_attempts=1, delay=0.0, error="it stopped")
                )
            raise
        finally:
            await close_stream(chunks)
        return "".join(pieces)

    def _pieces(self, place: int, request: ToolRequest, arguments: Mapping[str, Any]) -> AsyncIterator[Any]:
        if place == len(self.kit.wrap_tool_stream):
            return self.tool.call(arguments)

        def call(request: ToolRequest) -> AsyncIterator[Any]:
            if request is self.request:
                return self._pieces(place + 1, request, arguments)
            return self._pieces_of(place + 1, request)

        return self.kit.wrap_tool_stream[place].wrap_tool_stream(call, request)

    async def _pieces_of(self, place: int, request: ToolRequest) -> AsyncIterator[Any]:
        chunks = self._pieces(place, request, await self._changed(request))
        try:
            async for piece in chunks:
                yield piece
        finally:
            await close_stream(chunks)


def _in_its_thread(entry: Entry, tool: Tool, arguments: Mapping[str, Any]) -> Any:
    entry.thread = threading.get_ident()
    return tool.call(arguments)


def content_of(value: Any) -> Any:
    """A result as a model reads it: parts of a message as they are, else text.

    Raises:
        ToolError: it has no form in JSON.
    """
    if isinstance(value, _PARTS):
        return [value]
    items = cast("list[Any]", value) if isinstance(value, list | tuple) else []
    if items and all(isinstance(each, _PARTS) for each in items):
        return list(items)
    return result_text(cast("object", value))
