"""Driving: running a claimed session to its pause or end, and saying so after it is stored."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Literal

from adjourn.checkpoint.lease import Heartbeat
from adjourn.checkpoint.store import Committed, Header, Lease, Renewed, Status
from adjourn.core.blame import tell_place
from adjourn.core.entry import TaskWatch
from adjourn.core.errors import AdjournError, Conflict, RunError, add_note, describe
from adjourn.core.events import Cancelled, Done, Event, Failed, Interrupt, Interrupted
from adjourn.core.frame import here
from adjourn.core.interrupt import open_interrupts
from adjourn.core.program import Report
from adjourn.core.scope import Cut

from .answering import apply_answers
from .live import Live
from .result import RunResult


async def drive(live: Live) -> RunResult:
    """Run a session until it ends or waits, and give back its lease.

    Raises:
        Exception: what failed the run; the session is stored as failed and can be recovered.
    """
    here.set(None)
    loop, lease, beat = live.scope.loop, live.journal.lease, Heartbeat.of(live.journal.store)
    watch = TaskWatch.begin(loop)
    if lease is not None:
        beat.add(lease, partial(_hear, live, lease))
    try:
        return await _to_its_end(live)
    except Cut:
        return await stop(live)
    except asyncio.CancelledError:
        # The run's own task is ended from outside, as by a loop that closes: its session must not look alive.
        with contextlib.suppress(AdjournError):
            await stop(live)
        raise
    except Exception as error:
        # When the log broke, that is what failed the run; what user code made of it is only a consequence.
        cause = live.scope.closed or error
        if live.scope.closed is None:
            tell_place(live.root, error)
        await _fail(live, cause)
        if cause is error:
            raise
        raise cause from error
    except GeneratorExit:
        raise
    except BaseException as error:
        # As by Ctrl-C where the program lives on, in a notebook: the session must not look alive.
        await _fail(live, error)
        raise
    finally:
        if lease is not None:
            beat.remove(lease)
        live.journal.close(_ENDED)
        watch.end(loop)


_ENDED = RunError("the run has ended")
"""Why a journal is closed when all is well; it is only ever the cause of what is raised."""


def _hear(live: Live, lease: Lease, state: Renewed) -> None:
    """Take in, on the heartbeat's thread, that a run has lost its lease or is to be cancelled."""
    loop = live.scope.loop
    if loop.is_closed():
        # The run's event loop is gone without a word: its session is to be taken over.
        Heartbeat.of(live.journal.store).remove(lease)
    elif state.lost:
        loop.call_soon_threadsafe(_lose, live, lease)
    elif state.cancel:
        loop.call_soon_threadsafe(cut, live, state.cancel)


def _lose(live: Live, lease: Lease) -> None:
    if live.journal.lease == lease:
        live.journal.close(Conflict(live.scope.session_id, "its lease was taken over"))
        cut(live, "now")


def cut(live: Live, mode: str) -> None:
    """Ask a run to stop: at its next safe point, or with mode "now" in the middle of user code."""
    live.scope.cut(mode)


async def _to_its_end(live: Live) -> RunResult:
    if live.refusal is not None:
        raise live.refusal
    while True:
        if await live.root.advance():
            return await _done(live)
        committed, interrupts = await _pause(live)
        if committed.released:
            return _result(live, "interrupted", interrupts=interrupts)
        apply_answers(live, committed.answers, live.scope.clock())
        live.journal.take_up(committed.answers)


async def _done(live: Live) -> RunResult:
    report = live.root.report()
    await _finish(live, "end", "done", lambda _: [_ending(live, report)])
    return _result(live, "done", report)


def _ending(live: Live, report: Report) -> Done:
    usage = live.scope.usage
    used = usage if usage.calls else None
    return Done(address=live.root.address, output=report.output, usage=used, state=report.fields)


async def _pause(live: Live) -> tuple[Committed, tuple[Interrupt, ...]]:
    interrupts: tuple[Interrupt, ...] = ()

    def told(checkpoint: str) -> list[Event]:
        nonlocal interrupts
        interrupts = open_interrupts(live.scope, checkpoint)
        return [Interrupted(address=live.root.address, interrupts=interrupts, checkpoint_id=checkpoint)]

    return await _finish(live, "interrupt", "waiting", told), interrupts


async def stop(live: Live) -> RunResult:
    """Store that a run was stopped, and let go of its session."""
    mode = live.scope.cancel_mode or "now"
    if live.scope.closed is not None:
        raise live.scope.closed
    await _finish(live, "cancel", "cancelled", lambda _: [Cancelled(address=live.root.address, mode=mode)])
    return _result(live, "cancelled")


async def _fail(live: Live, error: BaseException) -> None:
    def told() -> Failed:
        failure = describe(error)
        return Failed(address=live.root.address, error=failure["type"], message=failure["message"])

    if live.scope.closed is None:
        try:
            await _finish(live, None, "failed", lambda _: [told()])
            return
        except AdjournError as second:
            add_note(error, f"And it could not be stored that it failed: {second}")
    # The log cannot be written any more. The reader of this run is told all the same, by an event without a number.
    live.journal.sink([told()])


async def _finish(live: Live, source: str | None, status: Status, events: Callable[[str], list[Event]]) -> Committed:
    root = live.root
    header = Header(
        source=source,
        step=getattr(root, "step", 0),
        address=root.address,
        next=root.following(),
    )
    if live.journal.volatile and status == "done":
        # Nobody else can know this session, and it is forgotten now.
        live.journal.let_out(events(""))
        return Committed(released=True)
    committed = await live.journal.finish(header, status, events)
    live.status = status
    if live.is_fleeting and status == "done":
        await live.journal.store.delete(live.scope.session_id)
    return committed


def _result(
    live: Live,
    status: Literal["done", "interrupted", "cancelled"],
    report: Report | None = None,
    interrupts: tuple[Interrupt, ...] | None = None,
) -> RunResult:
    return RunResult(
        status=status,
        session_id=live.scope.session_id,
        checkpoint_id=live.journal.head,
        usage=live.scope.usage,
        report=report or live.root.report(),
        interrupts=open_interrupts(live.scope, live.journal.head) if interrupts is None else interrupts,
    )


def stored_end(live: Live, result: RunResult) -> Event:
    """The last event of a run that had nothing to do: it says how the session stands, and has no number."""
    address = live.root.address
    if result.status == "interrupted":
        return Interrupted(address=address, interrupts=result.interrupts, checkpoint_id=result.checkpoint_id or "")
    return Done(address=address, output=result.output)


def stored_result(live: Live, last: Event | None = None) -> RunResult:
    """The result of a session that nobody runs, or of a run by its last event."""
    if isinstance(last, Done) or (last is None and live.status == "done"):
        return _result(live, "done")
    cancelled = isinstance(last, Cancelled) or (last is None and live.status == "cancelled")
    return _result(live, "cancelled" if cancelled else "interrupted")
