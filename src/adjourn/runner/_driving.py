"""Driving: running a claimed session to its pause or end, and reporting that once it is stored."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any, Literal

from msgspec.structs import replace

from adjourn._engine.address import agents_in
from adjourn._engine.entry import current_place
from adjourn._engine.execution import tell_place
from adjourn._engine.program import Report
from adjourn._engine.questions import OpenNow, first_open
from adjourn._engine.scope import Frame, RunCancelled
from adjourn._values.damage import Reading
from adjourn.errors import AdjournError, CheckpointCorrupt, Conflict, CrashLoop, SessionBusy, add_note, describe
from adjourn.events import Cancelled, Done, Event, Failed, Final, Interrupted
from adjourn.sessions._log import PAUSED
from adjourn.stores.kit import Cancel, Delete
from adjourn.stores.types import Committed, Status

from ._live import MAX_CLAIMS, LiveSession, apply_answers
from ._log import Persistence
from ._summary import summary_of
from .result import RunResult


async def drive(live: LiveSession) -> RunResult:
    """Run a session until it ends or waits, and release its lease.

    Raises:
        Exception: what made the run fail; the session is stored as failed and can be recovered.
    """
    current_place.set(None)
    try:
        if live.claims > MAX_CLAIMS:
            raise CrashLoop(live.scope.session_id, live.claims - 1)
        while not await live.root.advance():
            pause = _pause(live)
            committed = await _finish(live, "interrupt", "waiting", pause)
            if committed.released:
                return _paused(live, pause, live.log.tail.head or "")
            apply_answers(live, committed.answers, live.scope.clock())
            live.log.tail.take_up(committed.answers)
        return await _done(live)
    except RunCancelled:
        return await end_early(live)
    except asyncio.CancelledError:
        # The run's own task was cancelled from outside, as by a closing loop: its session must not look alive.
        with contextlib.suppress(AdjournError):
            await end_cut_off(live)
        raise
    except Exception as error:
        # If the log broke, that is why the run failed; what user code raised is only a consequence.
        cause = live.scope.closed or _naming_session(live, error)
        place = live.root if live.scope.closed is not None else tell_place(live.root, error)
        await _fail(live, cause, place)
        if cause is error:
            raise
        raise cause from error
    except GeneratorExit:
        raise
    except BaseException as error:
        # For example Ctrl-C in a notebook, where the process lives on: the session must not look alive.
        await _fail(live, error, live.root)
        raise


def _naming_session(live: LiveSession, error: Exception) -> Exception:
    """Return an error as it is, but let damage that was found during the run name its session."""
    if isinstance(error, CheckpointCorrupt) and error.session_id is None:
        return CheckpointCorrupt(error.detail, live.scope.session_id, remedy=error.remedy)
    return error


async def _done(live: LiveSession) -> RunResult:
    report, usage = live.root.report(), live.scope.usage
    root, seconds = live.root, time.perf_counter() - live.since
    name, path, _ = root.audience
    done = Done(
        agent=name,
        path=path,
        address=root.address,
        output=report.output,
        usage=usage if usage.calls else None,
        steps=root.count,
        seconds=int(seconds * 1e6) / 1e6,
    )
    await _finish(live, "end", "done", done)
    if live.scope.has_reader:
        _tell_last(live, done, state=report.fields)
    if live.log.persistence is Persistence.UNTIL_DONE:
        await live.log.store.write(Delete(live.ref))
    return _result(live, "done", report)


def _pause(live: LiveSession) -> Interrupted:
    """Return a pause as the log keeps it: in the name of the agent whose question is the first."""
    agents = agents_in(first_open(live.scope)) if live.scope.logs_events else ()
    return replace(PAUSED, agent=agents[-1], path=agents) if agents else PAUSED


def _paused(live: LiveSession, pause: Interrupted, checkpoint: str) -> RunResult:
    result = _result(live, "interrupted")
    if live.scope.has_reader:
        _tell_last(live, pause, address=live.root.address, checkpoint_id=checkpoint, interrupts=result.interrupts)
    return result


async def end_early(live: LiveSession) -> RunResult:
    """Release the session of a run that was stopped: as cancelled, or handed over to whoever takes it up next."""
    if live.scope.closed is not None:
        raise live.scope.closed
    return await (_hand_over(live) if live.is_to_hand_over else _stop(live))


async def end_cut_off(live: LiveSession) -> RunResult:
    """Release the session of a run whose task was cancelled: as cancelled, if it had a caller who has left."""
    live.is_to_hand_over = live.is_to_hand_over or live.is_unattended
    return await end_early(live)


async def _hand_over(live: LiveSession) -> RunResult:
    committed = await live.log.finish(live.header(None), "queued")
    live.status = "queued"
    if committed.cancel is not None:
        # Somebody wants it cancelled, not handed over, and asked this run: whoever took it up since does not know.
        try:
            return await _stop(live)
        except (SessionBusy, Conflict):
            await live.log.store.write(Cancel(live.ref, committed.cancel))
    return _result(live, "cancelled")


async def _stop(live: LiveSession) -> RunResult:
    mode = live.scope.cancellation.mode or "now"
    name, path, _ = live.root.audience
    cancelled = Cancelled(agent=name, path=path, address=live.root.address, mode=mode)
    await _finish(live, "cancel", "cancelled", cancelled)
    _tell_last(live, cancelled)
    return _result(live, "cancelled")


async def _fail(live: LiveSession, error: BaseException, place: Frame) -> None:
    failure, (name, path, _) = describe(error), place.audience
    failed = Failed(agent=name, path=path, address=place.address, error=failure["type"], message=failure["message"])
    if live.scope.closed is None:
        try:
            await _finish(live, None, "failed", failed)
            _tell_last(live, failed)
            return
        except AdjournError as second:
            add_note(error, f"The failure itself could not be stored: {second}")
    # The log cannot be written any more. The reader of this run still gets the event, without a number.
    live.log.sink([failed])


async def _finish(live: LiveSession, source: str | None, status: Status, last: Final) -> Committed:
    """Store how the run ended, with its last event as the log keeps it."""
    summary = summary_of(live) if live.log.wants_summaries else b""
    committed = await live.log.finish(live.header(source), status, last, summary=summary)
    live.status = status
    live.queued = committed.inputs
    return committed


def _tell_last(live: LiveSession, last: Final, **more: Any) -> None:  # Any: fields of the event that are not logged
    """Send the last event, which is stored by now, to the reader of a run."""
    if live.scope.has_reader:
        live.log.sink([replace(last, seq=live.log.tail.seq, **more)])


def _result(
    live: LiveSession,
    status: Literal["done", "interrupted", "cancelled"],
    report: Report | None = None,
) -> RunResult:
    scope, checkpoint = live.scope, live.log.tail.head
    return RunResult(
        status=status,
        session_id=scope.session_id,
        checkpoint_id=checkpoint,
        usage=scope.usage,
        report=report or live.root.report(),
        open=OpenNow(scope, checkpoint) if scope.questions.open else None,
    )


def stored_end(live: LiveSession, result: RunResult) -> Event:
    """Return the last event of a run that had nothing to do: the state of the session, without a number."""
    root, (name, path, _) = live.root, live.root.audience
    if result.status == "interrupted":
        checkpoint, asked = result.checkpoint_id or "", result.interrupts
        return replace(_pause(live), address=root.address, interrupts=asked, checkpoint_id=checkpoint)
    return Done(agent=name, path=path, address=root.address, output=result.output, steps=root.count)


def stored_result(live: LiveSession, last: Event | None = None) -> RunResult:
    """Return the result of a session that nobody runs, or of a run from its last event."""
    with Reading(live.scope.session_id):
        if isinstance(last, Done) or (last is None and live.status == "done"):
            return _result(live, "done")
        cancelled = isinstance(last, Cancelled) or (last is None and live.status == "cancelled")
        return _result(live, "cancelled" if cancelled else "interrupted")
