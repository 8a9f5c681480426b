"""Using a tool: one call, from the arguments that a model wrote to the result that it reads."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from itertools import groupby
from typing import Any, cast, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from adjourn._engine.address import parse_segment, segment_text
from adjourn._engine.child import inner, layer
from adjourn._engine.entry import Entry, Place, current_place, entry_of, here
from adjourn._engine.frame import UserFrame
from adjourn._engine.memos import Key, Kind
from adjourn._engine.retry import attempted
from adjourn._engine.scope import RunCancelled
from adjourn._engine.values import decoded
from adjourn._hiding import Held, known, logger
from adjourn._text import visible_line
from adjourn._values.frozen import freeze, is_same_json
from adjourn.errors import (
    Conflict,
    InvalidArguments,
    NotStorable,
    Pause,
    ProgramChanged,
    StoreUnavailable,
    ThreadsUsedUp,
    ToolError,
    ToolRefused,
    UsageError,
    text_of,
)
from adjourn.events import Delta, Retrying, ToolCalled
from adjourn.messages import Part, TextPart, ToolCall
from adjourn.middleware.hooks import ToolRequest
from adjourn.models import close_stream
from adjourn.tools import Edit, Reject, Respond, Tool, result_text

from .approval import REVIEW, get_approval, is_remembered, needs_approval, refused
from .at_most_once import ToolTimeout, begun, note_failure, settle
from .caller import Caller, Kit, program_options
from .hidden import hidden_content

log = logger("adjourn.tools")
encode = msgspec.json.Encoder(order="sorted").encode

_Edited = tuple[Mapping[str, Any] | None, str | None]

_Content = tuple[Any, str | None]
"""What the model reads of a result, and the whole text if that is truncated."""


class CallResult(Struct, frozen=True, kw_only=True):
    """The result of a tool call: `content` is what the model reads, `full` the whole text if that is truncated.

    If a person edited its arguments, `arguments` has the edited ones and `by` says who it was.
    """

    content: Any  # Any: text, or parts of a message
    error: str | None = None
    arguments: Mapping[str, Any] | None = None
    by: str | None = None
    full: str | None = None


async def use(task: UserFrame, caller: Caller, kit: Kit, call: ToolCall) -> CallResult:
    """Run a tool call in the frame `task`; only pauses, cancellations and what the kit wants raised are raised."""
    if task.questions and (decision := refused(task, call)) is not None:
        return _not_run(decision)
    tool = kit.tools.get(call.name)
    if tool is None:
        return await _unknown(task, caller, kit, call)
    try:
        if call.raw is not None:
            raise InvalidArguments(call.name, ["they are not a JSON object"])
        converted = tool.validate(call.arguments)
        if tool.review is not None or tool.at_most_once:
            converted = _repeated(task, tool, call, converted)
    except InvalidArguments as error:
        if _has_begun(task):
            raise ProgramChanged(task.address, f"the arguments no longer fit the tool ({text_of(error)})") from error
        return _failed(task, caller, kit, call, error)
    if tool.approval is False and not task.questions:
        return await _run(task, caller, kit, tool, call, converted)
    return await _decided(task, caller, kit, tool, call, converted)


def _has_begun(task: UserFrame) -> bool:
    """Return whether the call has run before and left something to continue from."""
    scope = task.scope
    return bool(
        task.questions
        or task.memos
        or task.children
        or scope.dormant.below(task.path)
        or any(each.path == task.path for each in scope.unsettled.values())
    )


_CONVERTED = Key(Kind.NOTE, "converted")


def _repeated(task: UserFrame, tool: Tool, call: ToolCall, converted: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments as they were when the call first came here, unless the tool has changed since.

    A factory of their types may make another default each time: a reviewer would be asked about each, and a call that
    may run only once would not be known again. They are read from what was kept at the first time, too: `100` as the
    default of a field that is a float comes back as `100.0`.
    """
    try:
        shown, memo = tool.show(converted), task.kept(_CONVERTED)
    except InvalidArguments:
        return converted  # It has values that JSON does not say; a reviewer is not asked about it.
    digest, before, _ = ("", shown, None) if memo is None else decoded(memo.result)
    if digest != tool.digest:
        varies = tool.at_most_once and not is_same_json(tool.show(tool.validate(call.arguments)), shown)
        task.keep(_CONVERTED, [tool.digest, shown, call.arguments if varies else None], optional=True)
        before = shown
    again = tool.validate(before)
    return again if is_same_json(tool.show(again), before) else converted


def _identity(task: UserFrame, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what makes calls equal: their arguments, or what the model wrote if a default is another each time."""
    memo = task.kept(_CONVERTED)
    _, shown, wrote = (None, None, None) if memo is None else decoded(memo.result)
    return arguments if wrote is None or not is_same_json(shown, dict(arguments)) else wrote


async def _unknown(task: UserFrame, caller: Caller, kit: Kit, call: ToolCall) -> CallResult:
    if callable(handler := kit.on_unknown):
        return await _concluded(task, caller, kit, call, partial(_handled, handler, call))
    if _has_begun(task):
        raise ProgramChanged(task.address, f"there is no tool '{call.name}' any more")
    error = ToolError(f"There is no tool '{call.name}'. There are: {', '.join(kit.tools) or 'none'}.")
    if kit.on_unknown == "raise":
        raise error
    _log(task, caller, call, error)
    return CallResult(content=str(error), error=str(error))


async def _handled(handler: Callable[[ToolCall], Any], call: ToolCall) -> _Content:
    made: Any = handler(call)
    return content_of(await made if inspect.isawaitable(made) else made), None


async def _decided(
    task: UserFrame, caller: Caller, kit: Kit, tool: Tool, call: ToolCall, converted: dict[str, Any]
) -> CallResult:
    """Get the call approved if needed, and act on the decision."""
    try:
        found = await get_approval(task, caller, tool, call, converted)
    except InvalidArguments as error:
        return _failed(task, caller, kit, call, error)
    if found is None:
        return await _run(task, caller, kit, tool, call, converted)
    edited = (tool.show(found.converted), found.by) if isinstance(found.decision, Edit) else (None, None)
    return await _run(task, caller, kit, tool, call, found.converted, edited)


def _not_run(decision: Reject | Respond) -> CallResult:
    if isinstance(decision, Respond):
        return CallResult(content=decision.text)
    why = f": {decision.reason}" if decision.reason else "."
    return CallResult(content=f"A person refused this call{why}", error="refused")


async def _run(
    task: UserFrame,
    caller: Caller,
    kit: Kit,
    tool: Tool,
    call: ToolCall,
    converted: dict[str, Any],
    edited: _Edited = (None, None),
) -> CallResult:
    _check_gates(task, kit, tool)
    if tool.review is None:
        _emit_call(task, caller, call, edited[0])
    arguments = tool.lower(converted)
    if kit.hooks.wrap_tool or kit.hooks.wrap_tool_stream:
        arguments = freeze(arguments, "arguments")
    request = ToolRequest(tool=tool.name, call_id=call.id, arguments=arguments, agent=caller.audience.name)

    async def run() -> _Content:
        return _truncated(tool, await run_tool(task, caller, kit, tool, request, converted))

    return await _concluded(task, caller, kit, call, run, edited)


def _check_gates(task: UserFrame, kit: Kit, tool: Tool) -> None:
    """Refuse to run a call where a review or a middleware that was under way is gone: it may have been refused there.

    Raises:
        ProgramChanged: naming it.
    """
    segments = (*(task.children or ()), *task.scope.dormant.below(task.path))
    if not segments:
        return
    gates = {segment_text("middleware", each.name) for each in (*kit.hooks.wrap_tool, *kit.hooks.wrap_tool_stream)}
    if tool.review is not None:
        gates.add(REVIEW)
    for segment in segments:
        if parse_segment(segment).type in ("middleware", "wrap") and segment not in gates:
            raise ProgramChanged(f"{task.address};{segment}", f"nothing at '{tool.name}' has this name any more")


async def _concluded(
    task: UserFrame,
    caller: Caller,
    kit: Kit,
    call: ToolCall,
    run: Callable[[], Awaitable[_Content]],
    edited: _Edited = (None, None),
) -> CallResult:
    """Return the outcome of a call's code; only what the model cannot react to is raised."""
    before = entry_of(task).mark()
    try:
        shown, full = await run()
    except ToolRefused as refused:
        # A person's answer, not a failure, so it is not raised even if tool errors are.
        outcome = CallResult(content=str(refused), error="refused", arguments=edited[0], by=edited[1])
    except (Conflict, StoreUnavailable):
        raise  # What is stored is in doubt: a model cannot react to that.
    except Exception as error:  # protects the agent: its model reads the error, unless errors are to be raised
        if isinstance(error, NotStorable) and error.while_asking:
            raise  # Nobody was asked, and what was approved before must not be spent on that.
        outcome = _failed(task, caller, kit, call, error, _edit_of(task, edited))
    except (Pause, RunCancelled, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001  # protects all other runs of the process: a tool ends only itself
        outcome = _failed(task, caller, kit, call, _as_tool_error(error), _edit_of(task, edited))
    else:
        ran, by = _edit_of(task, edited)
        return CallResult(content=shown, arguments=ran, by=by, full=full)
    # Drop the values that it wrote, and do not expect it to repeat what it did in an earlier entry.
    entry_of(task).drop_writes(before)
    entry_of(task).expect_nothing()
    return outcome


def _emit_call(task: UserFrame, caller: Caller, call: ToolCall, edited: Mapping[str, Any] | None) -> None:
    """Report a call that is about to run, with the arguments that it runs with, which may not be the model's."""
    if caller.scope.has_reader:
        run = call if edited is None else call.with_arguments(edited)
        caller.emit_live(ToolCalled(address=task.address, call=run))


_REVIEWED = Key(Kind.NOTE, "reviewed")


def _edit_of(task: UserFrame, edited: _Edited) -> _Edited:
    """Return the arguments that ran and who made them, if a person edited them; a review comes after an approval."""
    memo = task.kept(_REVIEWED)
    return edited if memo is None else cast("_Edited", tuple(decoded(memo.result)))


class EndedEarly(ToolError):
    """A tool tried to end more than itself, with something that is not an `Exception`."""


def _as_tool_error(error: BaseException) -> EndedEarly:
    """Return the error of a tool that tried to end more than itself; re-raise if it was really cancelled."""
    match error:
        case SystemExit(code=code):
            text = f"it tried to end the program (exit code {code})"
        case asyncio.CancelledError():
            current = asyncio.current_task()
            if current is None or current.cancelling():
                raise error
            text = "something that it waited for was cancelled"
        case _:
            text = f"{type(error).__name__}: {text_of(error)}"
    found = EndedEarly(text)
    found.__cause__ = error
    return found


def _failed(
    task: UserFrame, caller: Caller, kit: Kit, call: ToolCall, error: Exception, edited: _Edited = (None, None)
) -> CallResult:
    """Return the outcome of an error: the model reads what happened, without a traceback."""
    if kit.on_error == "raise":
        raise error
    _log(task, caller, call, error)
    text = _told(error, only_type=kit.on_error == "tell_type")
    return CallResult(content=f"Error: {text}", error=text, arguments=edited[0], by=edited[1])


def _told(error: Exception, *, only_type: bool) -> str:
    """Return what the model reads: a `ToolError` was written for it, any other text may hold what it must not see."""
    if only_type and not _is_expected(error):
        return f"The tool failed ({type(error.__cause__ if isinstance(error, EndedEarly) else error).__name__})."
    return text_of(error) if isinstance(error, ToolError) else f"{type(error).__name__}: {text_of(error)}"


def _is_expected(error: Exception) -> bool:
    return isinstance(error, ToolError | ThreadsUsedUp) and not isinstance(error, EndedEarly)


LONGEST_LOGGED = 500


def _log(task: UserFrame, caller: Caller, call: ToolCall, error: Exception) -> None:
    """Log a failed call: one line for what tools and models do every day, with a traceback for anything else."""
    names = (caller.audience.name, call.name, call.id, task.scope.session_id)
    agent, tool, call_id, session = (visible_line(name[:LONGEST_LOGGED]) for name in names)
    is_expected = _is_expected(error)
    log.warning(
        "%s: agent=%s tool=%s call=%s session=%s: %s",
        "a tool call was refused or failed" if is_expected else "a tool failed unexpectedly",
        agent,
        tool,
        call_id,
        session,
        visible_line(f"{type(error).__name__}: {text_of(error)}"[:LONGEST_LOGGED]),
        exc_info=None if is_expected else error,
    )


def _truncated(tool: Tool, content: Any) -> tuple[Any, str | None]:
    if not isinstance(content, str) or len(content) <= tool.max_result:
        return content, None
    notice = f"\n[The result has {len(content)} characters; these are the first {tool.max_result}.]"
    return content[: tool.max_result] + notice, content


GRACE = 1.0
"""Seconds that a cancelled tool has to end before it is left behind."""


class Late(Exception):
    """The time limit was reached."""


async def within(seconds: float, entry: Entry, call: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of the code of `entry`, run in a separate task so that it can be left behind.

    Raises:
        Late: there was no result in time.
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
    except BaseException as error:  # noqa: BLE001  # it belongs to the code that awaits the call, Pause included
        return None, error


async def _end(work: asyncio.Task[Any]) -> None:
    work.cancel()
    await asyncio.wait([work], timeout=GRACE)


_PARTS = get_args(Part)


def run_tool(
    task: UserFrame, caller: Caller, kit: Kit, tool: Tool, request: ToolRequest, converted: dict[str, Any]
) -> Awaitable[Any]:
    """Return a call's result as the model reads it: text, or parts of a message."""
    call = _Running(task, caller, kit, tool, request, converted)
    return call.at_most_once() if tool.at_most_once else call.content()


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
        # As bytes: True equals 1 in Python, and what wrappers have seen they may have changed.
        self.shown = encode(request.arguments) if kit.hooks.wrap_tool or kit.hooks.wrap_tool_stream else b""

    async def at_most_once(self) -> Any:
        """Return the result; what ends without one does not run again unless a person says so."""
        try:
            content = await self.content()
        except Pause:
            raise
        except BaseException as error:
            if not entry_of(self.task).pausing:
                note_failure(self.task, error)
            raise
        settle(self.task)
        return content

    async def content(self) -> Any:
        """Return the result as the model reads it."""
        content = content_of(await self.wrapped(0, self.request))
        return hidden_content(content) if known.forms else content

    async def wrapped(self, place: int, request: ToolRequest) -> Any:
        """Return the result, passed through the wrappers from `place` on."""
        if place == len(self.kit.hooks.wrap_tool):
            return await self._attempts(request)
        middleware = self.kit.hooks.wrap_tool[place]

        async def call(request: ToolRequest) -> Any:
            raises = (*self.tool.raises, *middleware.raises)
            return await inner(partial(self._storable, place + 1, request), raises)

        async def run() -> Any:
            found: Any = middleware.wrap_tool(call, request)
            return data_of(await found if inspect.isawaitable(found) else found)

        return await layer("middleware", middleware.name, run, part=f"wrap_tool:{middleware.name}")

    async def _storable(self, place: int, request: ToolRequest) -> Any:
        return data_of(await self.wrapped(place, request))

    def _attempts(self, request: ToolRequest) -> Awaitable[Any]:
        tool = self.tool
        if tool.at_most_once and tool.kind != "stream":
            return self._once(request)
        if tool.timeout is None and not tool.retry:
            return self._called(request)
        at = here("a tool")
        if not tool.retry:
            return self._attempt(at, self._called(request))
        before = at.entry.mark()

        async def again() -> Any:
            at.entry.go_back(before)
            return await self._attempt(at, self._called(request))

        return attempted(at.frame, tool.retry, again, self.caller.emit_live)

    async def _once(self, request: ToolRequest) -> Any:
        """Return the result of a run of the function, or the one that a person gave instead."""
        arguments = await self._prepared(request)
        async with self._begun(arguments) as decided:
            # Only what has a form for the model is a result.
            return (
                data_of(await self._attempt(here("a tool"), self._returned(arguments))) if decided is None else decided
            )

    async def _attempt(self, at: Place, call: Coroutine[Any, Any, Any]) -> Any:
        """Make one attempt at a place that ends with it, so that a thread it leaves behind cannot use it."""
        place = Place(at.entry, at.extra, at.once)
        token = current_place.set(place)
        try:
            return await self._timed(place, call)
        except Exception:
            if at.entry.pausing or at.entry.fault is not None:
                raise Pause(at.address) from None  # It has asked, whatever its code did with the pause: do not retry.
            raise
        finally:
            place.over = True
            current_place.reset(token)

    async def _timed(self, place: Place, call: Coroutine[Any, Any, Any]) -> Any:
        seconds = self.tool.timeout
        if seconds is None:
            return await call
        try:
            return await within(seconds, place.entry, call)
        except Late as late:
            raise ToolTimeout(f"'{self.tool.name}' gave no result within {seconds:g} s") from late

    async def _called(self, request: ToolRequest) -> Any:
        arguments = await self._prepared(request)
        if self.tool.kind == "stream":
            await self.task.scope.log.assure()
            return await self._streamed(request, arguments)
        return await self._returned(arguments)

    async def _prepared(self, request: ToolRequest) -> dict[str, Any]:
        """Return the arguments to run with, once a reviewer has let them run; those of a stream are reviewed later."""
        if request is not self.request:
            arguments = await self._changed(request)
        else:
            # An attempt may change what it is given: the next one must not run with that.
            arguments = self.tool.copy_of(self.converted) if self.tool.retry else self.converted
        if self.tool.review is not None and self.tool.kind != "stream":
            return await self._reviewed(arguments)
        return arguments

    def _begun(self, arguments: Mapping[str, Any]) -> AbstractAsyncContextManager[str | None]:
        lowered = self.tool.lower(arguments)
        request = replace(self.request, arguments=lowered)
        return begun(self.task.path, self.tool, request, _identity(self.task, lowered))

    async def _returned(self, arguments: Mapping[str, Any]) -> Any:
        """Return what the function returns."""
        await self.task.scope.log.assure()
        match self.tool.kind:
            case "async":
                return await self.tool.call(arguments)
            case "inline":
                return self.tool.call(arguments)
            case _:
                run = partial(_in_its_thread, here("a tool").entry, self.tool, arguments)
                return await self.task.scope.in_thread(run)

    async def _changed(self, request: ToolRequest) -> dict[str, Any]:
        """Return the arguments that a wrapper made; if a person decides about the call, what was approved must run.

        Raises:
            ToolError: a rule denies them.
            UsageError: they differ from those that were approved, or need an approval that the others did not.
        """
        made = self.tool.validate(request.arguments)
        lowered = self.tool.lower(made)
        if encode(lowered) != self.shown:
            self.tool.check_allowed(lowered)
            if await self._is_decided(made):
                raise UsageError(
                    f"A wrapper changed the arguments of '{self.tool.name}', which a person has to approve. Change "
                    "them earlier, or have the wrapper ask."
                )
        return made

    async def _is_decided(self, made: dict[str, Any]) -> bool:
        """Return whether a person has decided about this call, or would have to with these arguments."""
        if self.task.questions:
            return True
        if not await needs_approval(self.tool, made):
            return False
        return not await is_remembered(self.task, self.caller, self.tool, self.tool.show(made))

    async def _reviewed(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments that a reviewer lets run."""
        tool, request = self.tool, self.request
        assert tool.review is not None
        found = await tool.review(arguments)
        if found.edited is not None:
            tool.check_allowed(found.edited)
            # Kept, since a wrapper that runs again gets the result and does not come here.
            self.task.keep(_REVIEWED, [dict(found.edited), found.by], optional=True)
        ran = ToolCall(id=request.call_id, name=tool.name, arguments=tool.lower(found.arguments))
        _emit_call(self.task, self.caller, ran, None)
        return dict(found.arguments)

    async def _streamed(self, request: ToolRequest, arguments: Mapping[str, Any]) -> Any:
        """Return the joined pieces of a streaming tool, emitting each text as it arrives."""
        caller, pieces, held = self.caller, list[Any](), Held()
        chunks = self._pieces(0, request, arguments)
        try:
            async for piece in chunks:
                if isinstance(piece, _PARTS):
                    pieces.append(piece)
                    continue
                text = result_text(piece)
                pieces.append(text)
                self._show_piece(held.add(text) if known.forms else text)
            self._show_piece(held.rest())
        except BaseException:
            if pieces:
                # What comes next starts over: make readers drop the pieces so far.
                caller.emit_live(
                    Retrying(address=self.task.address, attempt=1, max_attempts=1, delay=0.0, error="it stopped")
                )
            raise
        finally:
            await close_stream(chunks)
        return _joined(pieces)

    def _show_piece(self, text: str) -> None:
        caller = self.caller
        if text and caller.scope.has_reader and program_options(caller.scope).streaming:
            caller.emit_live(Delta(address=self.task.address, text=text, call_id=self.request.call_id))

    def _pieces(self, place: int, request: ToolRequest, arguments: Mapping[str, Any]) -> AsyncIterator[Any]:
        if place == len(self.kit.hooks.wrap_tool_stream):
            is_plain = self.tool.review is None and not self.tool.at_most_once
            return self.tool.call(arguments) if is_plain else self._last_pieces(dict(arguments))

        def call(request: ToolRequest) -> AsyncIterator[Any]:
            if request is self.request:
                return self._pieces(place + 1, request, arguments)
            return self._pieces_of(place + 1, request)

        return self.kit.hooks.wrap_tool_stream[place].wrap_tool_stream(call, request)

    async def _last_pieces(self, arguments: dict[str, Any]) -> AsyncIterator[Any]:
        """Give the pieces of the function itself, or the result that a person gave instead."""
        if self.tool.review is not None:
            arguments = await self._reviewed(arguments)
        async with self._begun(arguments) if self.tool.at_most_once else nullcontext() as decided:
            if decided is not None:
                yield decided
                return
            chunks = self.tool.call(arguments)
            try:
                async for piece in chunks:
                    yield piece
            finally:
                await close_stream(chunks)

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


def _joined(pieces: list[Any]) -> Any:
    """Return the pieces of a streaming tool as one text; if there are parts among them, as parts in their order."""
    runs = [(is_text, list(run)) for is_text, run in groupby(pieces, lambda piece: isinstance(piece, str))]
    if all(is_text for is_text, _ in runs):
        return "".join(pieces)
    return [part for is_text, run in runs for part in ([TextPart(text="".join(run))] if is_text else run)]


def data_of(value: Any) -> Any:
    """Return a result as hooks get it: text and parts as they are, anything else as JSON data, which can be stored.

    Raises:
        ToolError: it cannot be written as JSON.
    """
    content = content_of(value)
    if not isinstance(content, str) or isinstance(value, str):
        return content
    data = msgspec.json.decode(content)
    return content if isinstance(data, str) else data  # What is text in JSON reaches the model in quotes.


def content_of(value: Any) -> Any:
    """Return a result as a model reads it: parts of a message, with texts among them, or anything else as text.

    Raises:
        ToolError: it cannot be written as JSON.
    """
    if isinstance(value, _PARTS):
        return [value]
    items = cast("list[Any]", value) if isinstance(value, list | tuple) else []
    if any(isinstance(each, _PARTS) for each in items) and all(isinstance(each, (str, *_PARTS)) for each in items):
        return [TextPart(text=str(each)) if isinstance(each, str) else each for each in items]
    return result_text(cast("object", value))
