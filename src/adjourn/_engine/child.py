"""Children: programs that user code runs as frames of their own, kept like `@once`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from adjourn.errors import Pause, UsageError

from .address import CALL, address_of, parse_segment, segment_text, within
from .frame import Place, UserFrame, decoded, here
from .program import ConvertsProduct, Program, ProgramFrame, start
from .scope import GONE


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a child run went, for parents that steer by themselves: `raise_interrupt(children=...)` takes the signals."""

    paused: bool
    result: Any = None
    signal: Pause | None = None


async def run_child(at: Place, program: Program, input: Any, key: str | None) -> Any:
    """Run `program` below this frame; raises `Pause` when it waits."""
    outcome = await try_child(at, program, input, key)
    if outcome.signal is not None:
        at.frame.pausing = True
        raise outcome.signal
    return outcome.result


async def run_children(at: Place, children: Sequence[tuple[Program, Any]]) -> list[Any]:
    """Run several children at once and give their results in order; all get as far as they can before a pause."""
    segments = [_segment(at, program, None) for program, _ in children]
    runs = [
        _try(at.frame, program, given, segment) for (program, given), segment in zip(children, segments, strict=True)
    ]
    ends = await asyncio.gather(*runs, return_exceptions=True)
    for end in ends:
        if isinstance(end, BaseException):
            raise end
        _take_values(at.frame, end)
        if end.outcome.signal is not None:
            at.frame.pausing = True
    if at.frame.pausing:
        raise Pause(at.address)
    return [end.outcome.result for end in ends if isinstance(end, _End)]


async def try_child(at: Place, program: Program, input: Any, key: str | None) -> Outcome:
    """Run `program` below this frame and tell how it went, without raising `Pause`."""
    end = await _try(at.frame, program, input, _segment(at, program, key))
    _take_values(at.frame, end)
    return end.outcome


def _segment(at: Place, program: Program, key: str | None) -> str:
    frame = at.frame
    at.check()
    if at.once is not None:
        raise UsageError(
            f"@once function '{at.once}' runs a child. Run it before or after: a child run is kept by itself, "
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
        number = frame.occurrence(f"run:{program.kind}:{program.name}{at.extra}")
        key = None if number == 1 else str(number)
    return within(at.extra, segment_text(program.kind, program.name, key))


class _End(msgspec.Struct, frozen=True):
    """How a child run went, and the session values that it wrote: each in a list of one, or deleted."""

    outcome: Outcome
    values: dict[str, list[Any]] = {}


async def run_layer(at: Place, program: Program, segment: str, memo: str) -> Any:
    """Run a part of this frame's own code as a child at `segment`, its result kept as `memo`; `Pause` when it waits."""
    at.check()
    end = await _try(at.frame, program, None, segment, memo)
    _take_values(at.frame, end)
    if end.outcome.signal is not None:
        at.frame.pausing = True
        raise end.outcome.signal
    return end.outcome.result


async def _try(frame: UserFrame, program: Program, input: Any, segment: str, memo: str = "") -> _End:
    end = await _kept(frame, program, input, segment, memo)
    if end.outcome.paused or not isinstance(program, ConvertsProduct):
        return end
    return _End(Outcome(paused=False, result=program.convert_product(end.outcome.result)), end.values)


async def _kept(frame: UserFrame, program: Program, input: Any, segment: str, memo: str) -> _End:
    memo = memo or f"run:{segment}"
    written = f"values:{memo.removeprefix('run:')}"
    _check_unused(frame, segment, memo)
    if (raw := frame.kept(memo)) is not None:
        values = frame.kept(written)
        return _End(Outcome(paused=False, result=decoded(raw)), {} if values is None else decoded(values))
    child = _bind(frame, program, input, segment)
    frame.repeat(f"run:{segment}")
    with frame.under_way():
        return await _run(frame, child, memo, written)


async def _run(frame: UserFrame, child: ProgramFrame, memo: str, written: str) -> _End:
    if not await _advance(frame, child):
        return _End(Outcome(paused=True, signal=Pause(child.path)))
    end = _End(
        Outcome(paused=False, result=child.product()),
        {key: [] if value is GONE else [value] for key, value in (child.values or {}).items()},
    )
    frame.keep(memo, end.outcome.result)
    if end.values:
        # What the child wrote is part of what running it gives, so it is given back with the result.
        frame.keep(written, end.values)
    child.drop()
    del (frame.children or {})[child.segment]
    frame.scope.journal.soon()
    return end


def _check_unused(frame: UserFrame, segment: str, memo: str) -> None:
    """Refuse a second child of the same name: it would be given the first one's result."""
    runs_now = segment in (frame.running or ())
    has_ended = memo in (frame.replayed or ()) and memo in (frame.memos or ())
    if runs_now or has_ended:
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
    token, slot, went_well = here.set(None), frame.slot, False
    frame.running = frame.running or set()
    frame.running.add(child.segment)
    if slot is not None and child.has_tasks:
        slot.lend()
    elif isinstance(child, UserFrame):
        child.slot = slot
    try:
        done = await child.advance()
        went_well = True
    finally:
        here.reset(token)
        frame.running.discard(child.segment)
        if slot is not None and child.has_tasks:
            await slot.take_back(now=went_well)
    return done


def _bind(frame: UserFrame, program: Program, input: Any, segment: str) -> ProgramFrame:
    frame.children = frame.children if frame.children is not None else {}
    child = frame.children.get(segment)
    if child is None:
        image = frame.scope.pop_dormant(frame.path, segment)
        child = program.open(frame.scope, frame, segment, image)
        if image is None:
            start(child, input)
        frame.children[segment] = child
        # The parent, too: what is on record below it goes when it ends, if it is on record itself.
        frame.scope.mark(frame)
        frame.scope.mark(child)
    assert isinstance(child, ProgramFrame)
    return child


def _take_values(frame: UserFrame, end: _End) -> None:
    for key, value in end.values.items():
        frame.write_value(key, value[0] if value else GONE)
