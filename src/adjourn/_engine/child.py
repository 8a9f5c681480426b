"""Children: programs that user code runs in separate frames; and layers, which are parts of the code itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from adjourn._values import codec
from adjourn.errors import Pause, UsageError

from .address import CALL, address_of, parse_segment, segment_text, within
from .frame import Entry, Place, UserFrame, current_place, here
from .function import FunctionFrame
from .memos import NONE, Key, Kind
from .program import ConvertsProduct, Program, ProgramFrame, start
from .record import Image
from .scope import Frame, Scope
from .values import decoded, lift_values


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a child run went, for parents that handle pauses: `raise_interrupt(children=...)` takes the signals."""

    paused: bool
    result: Any = None
    signal: Pause | None = None


async def run_child(place: Place, program: Program, input: Any, key: str | None) -> Any:
    """Run `program` below this frame; raise `Pause` when it waits."""
    outcome = await try_child(place, program, input, key)
    if outcome.signal is not None:
        place.entry.pausing = True
        raise outcome.signal
    return outcome.result


async def run_children(place: Place, children: Sequence[tuple[Program, Any]]) -> list[Any]:
    """Run several children at once and return their results in order; all get as far as they can before a pause."""
    entry, segments = place.entry, [_segment(place, program, None) for program, _ in children]
    runs = [_try(entry, program, given, segment) for (program, given), segment in zip(children, segments, strict=True)]
    ends = await asyncio.gather(*runs, return_exceptions=True)
    for end in ends:
        if isinstance(end, BaseException):
            raise end
        _write_values(entry, end)
        if end.outcome.signal is not None:
            entry.pausing = True
    if entry.pausing:
        raise Pause(place.address)
    return [end.outcome.result for end in ends if isinstance(end, _End)]


async def try_child(place: Place, program: Program, input: Any, key: str | None) -> Outcome:
    """Run `program` below this frame and return how it went, without raising `Pause`."""
    end = await _try(place.entry, program, input, _segment(place, program, key))
    _write_values(place.entry, end)
    return end.outcome


def _segment(place: Place, program: Program, key: str | None) -> str:
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
    if key is None:
        number = place.entry.next(Kind.RUN, f"{program.kind}:{program.name}", place.extra).number
        key = None if number == 1 else str(number)
    return within(place.extra, segment_text(program.kind, program.name, key))


class _End(msgspec.Struct, frozen=True):
    """How a child run went, and the session values that it wrote."""

    outcome: Outcome
    values: Mapping[str, Any] = {}


async def run_layer(place: Place, program: Program, segment: str, key: Key) -> Any:
    """Run a part of this frame's own code as a child at `segment`, its result kept as `key`; `Pause` when it waits."""
    place.check()
    end = await _try(place.entry, program, None, segment, key)
    _write_values(place.entry, end)
    if end.outcome.signal is not None:
        place.entry.pausing = True
        raise end.outcome.signal
    return end.outcome.result


async def _try(entry: Entry, program: Program, input: Any, segment: str, key: Key | None = None) -> _End:
    end = await _kept(entry, program, input, segment, key or Key(Kind.RUN, segment))
    if end.outcome.paused or not isinstance(program, ConvertsProduct):
        return end
    return _End(Outcome(paused=False, result=program.convert_product(end.outcome.result)), end.values)


async def _kept(entry: Entry, program: Program, input: Any, segment: str, key: Key) -> _End:
    frame = entry.frame
    _check_unused(entry, segment, key)
    if (memo := frame.kept(key)) is not None:
        entry.came(key)
        _note_end(entry, key)
        return _End(Outcome(paused=False, result=decoded(memo.result)), lift_values(memo.writes))
    child = _bind(frame, program, input, segment)
    entry.came(Key(Kind.RUN, segment))
    with entry.under_way():
        return await _run(entry, child, key)


async def _run(entry: Entry, child: ProgramFrame, key: Key) -> _End:
    frame = entry.frame
    if not await _advance(frame, child):
        return _End(Outcome(paused=True, signal=Pause(child.path)))
    # What the child wrote is part of its result, so both are given back together.
    end = _End(Outcome(paused=False, result=child.product()), dict(child.values or {}))
    entry.keep(key, end.outcome.result, end.values)
    _note_end(entry, key)
    child.drop()
    del (frame.children or {})[child.segment]
    frame.scope.journal.soon()
    return end


def _note_end(entry: Entry, key: Key) -> None:
    entry.ended = entry.ended or set()
    entry.ended.add(key)


def _check_unused(entry: Entry, segment: str, key: Key) -> None:
    """Refuse a second child of the same name: it would get the first one's result."""
    frame = entry.frame
    if segment in (frame.advancing or ()) or key in (entry.ended or ()):
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
    frame.advancing = frame.advancing or set()
    frame.advancing.add(child.segment)
    if slot is not None and child.has_tasks:
        slot.lend()
    elif isinstance(child, UserFrame):
        child.slot = slot
    try:
        done = await child.advance()
        went_well = True
    finally:
        current_place.reset(token)
        frame.advancing.discard(child.segment)
        if slot is not None and child.has_tasks:
            await slot.take_back(now=went_well)
    return done


def _bind(frame: UserFrame, program: Program, input: Any, segment: str) -> ProgramFrame:
    frame.children = frame.children if frame.children is not None else {}
    child = frame.children.get(segment)
    if child is None:
        image = frame.scope.dormant.bind(frame.path, segment)
        child = program.open(frame.scope, frame, segment, image)
        if image is None:
            start(child, input)
        frame.children[segment] = child
        # Mark the parent, too: records below it are dropped when it ends only if it is on record itself.
        frame.scope.mark(frame)
        frame.scope.mark(child)
    if isinstance(child, FunctionFrame) and child.input is NONE:
        child.input = codec.stored(input, "input")  # It starts over, with what its caller gives it now.
    assert isinstance(child, ProgramFrame)
    return child


def _write_values(entry: Entry, end: _End) -> None:
    for key, value in end.values.items():
        entry.write_value(key, value)


T = TypeVar("T")


class _LayerFrame(FunctionFrame):
    """The frame of a layer. It is a part of a task, so it stops when the task does, and runs in the task's place."""

    stops_between_calls = False
    has_tasks = False

    async def advance(self) -> bool:
        if isinstance(self.parent, UserFrame):  # whose attempts are this one's, too
            self.attempt = max(self.attempt, self.parent.attempt)
        return await super().advance()


class _Layer:
    """A layer as a program: each caller supplies the code to run."""

    kind = "layer"

    def __init__(self, name: str, call: Callable[[], Awaitable[Any]]) -> None:
        self.name = name
        self._call = call

    def call(self, argument: object) -> Awaitable[Any]:
        """Return the coroutine that does the work; a layer has no input."""
        return self._call()

    def open(self, scope: Scope, parent: Frame | None, segment: str, image: Image | None) -> _LayerFrame:
        return _LayerFrame.of(self, scope, parent, segment, image)


async def layer(kind: str, name: str, call: Callable[[], Awaitable[T]], *, part: str = "") -> T:
    """Run `call` at the segment `kind:name` below the calling code; its result, which must be storable, is kept.

    `part` distinguishes successive calls at one place, such as the hooks of one middleware.
    """
    return await _run_layer(name, segment_text(kind, name), part or f"{kind}:{name}", call)


async def inner(call: Callable[[], Awaitable[T]]) -> T:
    """Run what a wrapper wraps: in a separate frame, at the address that it would have without the wrapper."""
    return await _run_layer("call", CALL, "call", call)


async def beside(segment: str, call: Callable[[], Awaitable[T]]) -> T:
    """Run `call` at `segment` below the calling code, perhaps beside others: `segment` must be unique."""
    return await run_layer(here("layer"), _Layer(segment, call), segment, Key(Kind.LAYER, segment, number=0))


async def _run_layer(name: str, segment: str, part: str, call: Callable[[], Awaitable[Any]]) -> Any:
    place = here("layer")
    program: Program = _Layer(name, call)
    return await run_layer(place, program, segment, place.entry.next(Kind.LAYER, part))
