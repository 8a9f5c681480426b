"""Children: programs that user code runs in separate frames; and layers, which are parts of the code itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextvars import copy_context
from functools import partial
from typing import Any, NoReturn, TypeVar

import msgspec

from adjourn._values import codec
from adjourn.errors import NotStorable, Pause, ProgramChanged, ReplayMismatch, UsageError

from .address import CALL, address_of, parse_segment, segment_text
from .entry import Entry, Failed, Flow, Place, current_place, here
from .execution import in_context
from .failures import Classes, LooseGate, Source, check_classes, handled_now, until_cut_off
from .frame import UserFrame
from .function import FunctionFrame
from .memos import Key, Kind
from .program import Program, ProgramFrame, start
from .record import Image
from .scope import Frame, Scope
from .values import lift_values

T = TypeVar("T")


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a child run went, for parents that handle pauses: `raise_interrupt(children=...)` takes the signals."""

    paused: bool
    result: Any = None
    signal: Pause | None = None


def run_child(
    place: Place, program: Program[Any, Any, Any, T], input: Any, key: str | None = None, raises: Classes = ()
) -> Coroutine[Any, Any, T]:
    """Run `program` below this frame; raise `Pause` when it waits.

    Which child it is, and which flow of the code runs it, is decided here and now, whichever task awaits the run.
    """
    return _prepared(lambda: _result(place.entry, _child_call(place, program, input, key, raises)))


def run_children(
    place: Place, children: Sequence[tuple[Program, Any]], raises: Classes = ()
) -> Coroutine[Any, Any, list[Any]]:
    """Run several children at once and return their results in order; all get as far as they can before a pause."""
    return _prepared(
        lambda: _results(place, [_child_call(place, program, given, None, raises) for program, given in children])
    )


def try_child(
    place: Place, program: Program, input: Any, key: str | None = None, raises: Classes = ()
) -> Coroutine[Any, Any, Outcome]:
    """Run `program` below this frame and return how it went, without raising `Pause`."""
    return _prepared(lambda: _outcome(place.entry, _child_call(place, program, input, key, raises)))


def _prepared(prepare: Callable[[], Coroutine[Any, Any, T]]) -> Coroutine[Any, Any, T]:
    """Return a prepared run; a mistake is raised where the run is awaited, like whatever else goes wrong with it."""
    try:
        return prepare()
    except Exception as error:  # noqa: BLE001  # the caller may be about to start other runs, which would be lost
        return _raise(error)


async def _raise(error: Exception) -> NoReturn:
    raise error


async def _results(place: Place, calls: Sequence[_Call]) -> list[Any]:
    entry = place.entry
    ends = await asyncio.gather(*(_try(entry, call) for call in calls), return_exceptions=True)
    for end in ends:
        if isinstance(end, BaseException):
            raise end
        _write_values(entry, end)
        if end.outcome.signal is not None:
            entry.pause()
    if entry.pausing:
        raise Pause(place.address)
    _hand_up(entry)
    return [end.outcome.result for end in ends if isinstance(end, _End)]


async def _outcome(entry: Entry, call: _Call) -> Outcome:
    end = await _try(entry, call)
    _write_values(entry, end)
    if not end.outcome.paused:
        _hand_up(entry)
    return end.outcome


async def _result(entry: Entry, call: _Call) -> Any:
    outcome = await _outcome(entry, call)
    if outcome.signal is not None:
        entry.pause()
        raise outcome.signal
    return outcome.result


class _Call(msgspec.Struct, frozen=True):
    """One run of a child: what is run with which input, the path segment where, and the key of its result."""

    program: Program
    input: Any
    segment: str
    key: Key
    source: Source
    flow: Flow
    handled: tuple[BaseException, ...] = ()

    @classmethod
    def of(cls, place: Place, program: Program, segment: str, key: Key, source: Source, input: Any = None) -> _Call:
        """Return a call as the code makes it that is at `place` now."""
        handled = handled_now() if place.entry.failures else ()
        return cls(program, input, segment, key, source, place.entry.flow(), handled)


def _child_call(place: Place, program: Program, input: Any, key: str | None, raises: Classes) -> _Call:
    _check_can_run(place, program)
    segment = _segment(place, program, input, key)
    source = Source(f"'{program.name}'", check_classes(raises, f"run of '{program.name}'"), "run(..., raises=[{}])")
    return _Call.of(place, program, segment, Key(Kind.RUN, segment), source, input)


def _segment(place: Place, program: Program, input: Any, key: str | None) -> str:
    """Return the segment of the child that has run with this input, or of a new one."""
    entry, kind, name = place.entry, program.kind, program.name
    given = program.comparable_input(input)
    digest = codec.fingerprint([kind, name, place.extra, key, given], f"input of '{name}'")
    if key is None and (number := entry.next(Kind.RUN, digest).number) > 1:
        digest = f"{digest}.{number}"
    runs, shown = entry.run_segments(), f"{place.extra};{segment_text(kind, name, key)}".removeprefix(";")
    if (found := runs.find(digest)) is not None:
        return found
    if key is None:
        shown = runs.numbered(shown)
    elif (other := runs.shown_as(shown)) is not None:
        _check_unused(entry, other, Key(Kind.RUN, other), is_called=other in runs.called)
    return runs.add(digest, shown)


def _check_can_run(place: Place, program: Program) -> None:
    frame = place.frame
    place.check()
    if place.once is not None:
        raise UsageError(
            f"@once function '{place.once.name}' runs a child. Run it before or after: a child run is kept anyway, "
            "and may pause."
        )
    if not isinstance(program, Program):  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
        raise UsageError(
            f"{program!r} cannot be run as a child. Give a compiled graph, a @workflow function or an agent."
        )
    if asyncio.get_running_loop() is not frame.scope.loop:
        raise UsageError(
            f"'{frame.address}' runs a child on another event loop. Await it in an async function of the run itself."
        )


class _End(msgspec.Struct, frozen=True):
    """How a child run went, and the session values that it wrote."""

    outcome: Outcome
    values: Mapping[str, Any] = {}


async def run_layer(place: Place, program: Program, segment: str, key: Key, raises: Classes = ()) -> Any:
    """Run a part of this frame's own code as a child at `segment`, its result kept as `key`; `Pause` when it waits."""
    place.check()
    source = Source("the call that it wraps", raises, "@tool(raises=[{0}]), or raises = [{0}] of the middleware")
    return await _result(place.entry, _Call.of(place, program, segment, key, source))


async def _try(entry: Entry, call: _Call) -> _End:
    end = await _kept(entry, call)
    if end.outcome.paused:
        return end
    kept = end.outcome.result
    result = call.program.convert_product(kept)
    return end if result is kept else _End(Outcome(paused=False, result=result), end.values)


async def _kept(entry: Entry, call: _Call) -> _End:
    frame, key = entry.frame, call.key
    _check_unused(entry, call.segment, key)
    if (memo := frame.kept(key)) is not None:
        entry.came(key)
        if memo.is_to_be_cut_off:
            await until_cut_off(call.source)
        result = entry.give_back(memo, call.source)
        _note_end(entry, key)
        return _End(Outcome(paused=False, result=result), lift_values(memo.writes))
    entry.check_begin()
    child, flow = _bind(entry, call), entry.flow()
    entry.came(Key(Kind.RUN, call.segment))
    frame.advancing = frame.advancing or set()
    frame.advancing.add(call.segment)
    try:
        if key.kind is Kind.RUN and flow is not None:
            return await entry.complete(lambda: _run(entry, child, call, flow), _nothing)
        with entry.under_way():
            # In a copy of the context: what code of the child sets in its own is not for its caller.
            return await in_context(copy_context(), lambda: _run(entry, child, call, flow))
    except (Exception, asyncio.CancelledError) as error:
        _note_failure(entry, call, child, error, flow)
        raise
    finally:
        frame.advancing.discard(call.segment)


async def _nothing(_: _End) -> None:
    """Keep nothing more: a child run keeps its result itself."""


def _note_failure(entry: Entry, call: _Call, child: Frame, error: BaseException, flow: Flow) -> None:
    if entry.frame.running is not entry or entry.frame.scope.closed is not None:
        return
    if isinstance(error, ReplayMismatch | ProgramChanged | LooseGate):
        entry.failed(error)  # Nothing that its caller does with it can help: the code has to be mended first.
        return
    if entry.pausing and isinstance(error, asyncio.CancelledError):
        return  # The pause has cancelled its caller, and not the child itself.
    entry.frame.make_optional(Key(Kind.RUN, call.segment))
    entry.run_segments().called.discard(call.segment)
    entry.note_failure(call.key, Failed(error, call.source, child, call.flow, flow))


async def _run(entry: Entry, child: ProgramFrame, call: _Call, flow: Flow) -> _End:
    frame, key = entry.frame, call.key
    if not await _advance(frame, child):
        _keep_failures(entry, flow, call.handled)
        return _End(Outcome(paused=True, signal=Pause(child.path)))
    # What the child wrote is part of its result, so both are given back together.
    end = _End(Outcome(paused=False, result=child.product()), dict(child.values or {}))
    entry.keep(key, end.outcome.result, end.values, concurrent=flow is not None)
    _note_end(entry, key)
    child.drop()
    del (frame.children or {})[child.segment]
    frame.scope.log.soon()
    return end


def _keep_failures(entry: Entry, flow: Flow, handled: tuple[BaseException, ...]) -> None:
    """Keep what failed before a child asked: it has led to the child's question as it would to one of its own."""
    if entry.failures:
        try:
            entry.keep_failures(flow, handled)
        except NotStorable as error:
            raise entry.failed(error) from None


def _note_end(entry: Entry, key: Key) -> None:
    entry.ended = entry.ended or set()
    entry.ended.add(key)


def _check_unused(entry: Entry, segment: str, key: Key, *, is_called: bool = False) -> None:
    """Refuse a second child of the same name: it would get the first one's result."""
    frame = entry.frame
    if is_called or segment in (frame.advancing or ()) or key in (entry.ended or ()):
        if segment == CALL:
            raise UsageError(
                f"'{frame.address}' makes the call that it wraps twice at once. Await one, then the other."
            )
        child = parse_segment(address_of(segment).rpartition(";")[2])
        raise UsageError(
            f"'{frame.address}' runs the child '{child.id}' twice with key '{child.sub_id}'. "
            "Give each its own key, or none."
        )


async def _advance(frame: UserFrame, child: ProgramFrame) -> bool:
    token, slot, went_well = current_place.set(None), frame.slot, False
    if slot is not None and child.has_tasks:
        slot.lend()
    elif isinstance(child, UserFrame):
        child.slot = slot
    try:
        done = await child.advance()
        went_well = True
    finally:
        current_place.reset(token)
        if slot is not None and child.has_tasks:
            await slot.take_back(now=went_well)
    return done


def _bind(entry: Entry, call: _Call) -> ProgramFrame:
    frame, segment = entry.frame, call.segment
    frame.children = frame.children if frame.children is not None else {}
    child = frame.children.get(segment)
    if child is None:
        dormant = frame.scope.dormant
        is_new = segment not in dormant.below(frame.path)
        if is_new:
            _note_new(entry, call.key, segment)
        child = dormant.reopen(frame.path, segment, partial(call.program.open, frame.scope, frame, segment))
        if is_new:
            start(child, call.input)
            if isinstance(child, UserFrame) and not entry.fresh:
                # It is the first thing that is new in this entry, so what cut off its parent may have been in it.
                child.attempt = frame.attempt
        frame.children[segment] = child
        # Mark the parent, too: records below it are dropped when it ends only if it is on record itself.
        frame.scope.mark(frame)
        frame.scope.mark(child)
    elif isinstance(child, _LayerFrame) and isinstance(call.program, _Layer):
        child.workflow = call.program  # After a failure, the code may call with other arguments.
    assert isinstance(child, ProgramFrame)
    return child


def _note_new(entry: Entry, key: Key, segment: str) -> None:
    """Check that a new child may run now, and note if not the code's main flow runs it."""
    entry.opened = entry.opened or set()
    entry.opened.add(segment)
    if entry.is_straight():
        entry.check_order(key)
    elif key.kind is Kind.RUN:
        entry.frame.note_concurrent(key)


def _write_values(entry: Entry, end: _End) -> None:
    for key, value in end.values.items():
        entry.write_value(key, value)


def _hand_up(entry: Entry) -> None:
    """Let the frame take what ended children have left for it, unless others run or wait beside them."""
    if not (entry.pausing or entry.missing or entry.frame.advancing):
        entry.frame.children_ended()


class _LayerFrame(FunctionFrame):
    """The frame of a layer. It is a part of a task, so it stops when the task does, and runs in the task's place."""

    stops_between_calls = False
    has_tasks = False

    async def advance(self) -> bool:
        if isinstance(self.parent, UserFrame):  # whose attempts are this one's, too
            self.attempt = max(self.attempt, self.parent.attempt)
        return await super().advance()

    def begin_again(self) -> None:
        # Not another attempt: `advance` has those of its parent.
        self.status, self.exception = "pending", None
        self.scope.mark(self)


class _Layer(Program):
    """A layer as a program: each caller supplies the code to run."""

    kind = "layer"

    def __init__(self, name: str, call: Callable[[], Awaitable[Any]]) -> None:
        self.name = name
        self._call = call

    def call(self, argument: object) -> Awaitable[Any]:
        """Return the coroutine that does the work; a layer has no input."""
        return self._call()

    def check_input(self, argument: object) -> None:
        """Accept it: a layer has no input."""

    def open(self, scope: Scope, parent: Frame | None, segment: str, image: Image | None) -> _LayerFrame:
        return _LayerFrame.of(self, scope, parent, segment, image)


async def layer(kind: str, name: str, call: Callable[[], Awaitable[T]], *, part: str = "") -> T:
    """Run `call` at the segment `kind:name` below the calling code; its result, which must be storable, is kept.

    `part` distinguishes successive calls at one place, such as the hooks of one middleware.
    """
    return await _run_layer(name, segment_text(kind, name), part or f"{kind}:{name}", call)


async def inner(call: Callable[[], Awaitable[T]], raises: Classes = ()) -> T:
    """Run what a wrapper wraps: in a separate frame, at the address that it would have without the wrapper.

    `raises` names the exceptions after which the wrapper may ask.
    """
    return await _run_layer("call", CALL, "call", call, raises)


async def beside(segment: str, call: Callable[[], Awaitable[T]]) -> T:
    """Run `call` at `segment` below the calling code, perhaps beside others: `segment` must be unique."""
    return await run_layer(here("layer"), _Layer(segment, call), segment, Key(Kind.LAYER, segment, number=0))


async def _run_layer(
    name: str, segment: str, part: str, call: Callable[[], Awaitable[Any]], raises: Classes = ()
) -> Any:
    place = here("layer")
    program: Program = _Layer(name, call)
    return await run_layer(place, program, segment, place.entry.next(Kind.LAYER, part), raises)


def open_layer(frame: UserFrame, segment: str, call: Callable[[], Awaitable[Any]]) -> FunctionFrame:
    """Return the frame of a layer at `segment` below a frame whose own code does not run it: new, live or stored."""
    frame.children, program = frame.children or {}, _Layer(segment, call)
    child = frame.children.get(segment)
    if child is None:
        image = frame.scope.dormant.bind(frame.path, segment)
        child = frame.children[segment] = program.open(frame.scope, frame, segment, image)
        if image is None:
            start(child, None)
        frame.scope.mark(frame)
        frame.scope.mark(child)
    assert isinstance(child, _LayerFrame)
    child.workflow, child.slot = program, frame.slot
    return child
