"""Driving: running a claimed session to its pause or end, and reporting that once it is stored."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Literal

from msgspec.structs import replace

from adjourn._engine.entry import tell_place
from adjourn._engine.frame import current_place
from adjourn._engine.program import Report
from adjourn._engine.questions import open_interrupts
from adjourn._engine.scope import RunCancelled
from adjourn._values.damage import Reading
from adjourn.errors import AdjournError, CheckpointCorrupt, add_note, describe
from adjourn.events import Cancelled, Done, Event, Failed, Final, Interrupt, Interrupted
from adjourn.sessions._log import PAUSED
from adjourn.stores.protocol import Committed, Status

from ._journal import Persistence
from ._live import LiveSession, apply_answers
from .result import RunResult


async def drive(live: LiveSession) -> RunResult:
    """Run a session until it ends or waits, and release its lease.

    Raises:
        Exception: what made the run fail; the session is stored as failed and can be recovered.
    """
    current_place.set(None)
    try:
        live.check_claims()
        while not await live.root.advance():
            committed = await _finish(live, "interrupt", "waiting", PAUSED)
            if committed.released:
                return _paused(live, live.journal.head or "")
            apply_answers(live, committed.answers, live.scope.clock())
            live.journal.take_up(committed.answers)
        return await _done(live)
    except RunCancelled:
        return await stop(live)
    except asyncio.CancelledError:
        # The run's own task was cancelled from outside, as by a closing loop: its session must not look alive.
        with contextlib.suppress(AdjournError):
            await stop(live)
        raise
    except Exception as error:
        # If the log broke, that is why the run failed; what user code raised is only a consequence.
        cause = live.scope.closed or _naming_session(live, error)
        if live.scope.closed is None:
            tell_place(live.root, error)
        await _fail(live, cause)
        if cause is error:
            raise
        raise cause from error
    except GeneratorExit:
        raise
    except BaseException as error:
        # For example Ctrl-C in a notebook, where the process lives on: the session must not look alive.
        await _fail(live, error)
        raise


def _naming_session(live: LiveSession, error: Exception) -> Exception:
    """Return an error as it is, but let damage that was found during the run name its session."""
    if isinstance(error, CheckpointCorrupt) and error.session_id is None:
        return CheckpointCorrupt(error.detail, live.scope.session_id)
    return error


async def _done(live: LiveSession) -> RunResult:
    report, usage = live.root.report(), live.scope.usage
    done = Done(address=live.root.address, output=report.output, usage=usage if usage.calls else None)
    await _finish(live, "end", "done", done)
    _tell_last(live, done, state=report.fields)
    if live.journal.persistence is Persistence.UNTIL_DONE:
        await live.journal.store.delete(live.ref)
    return _result(live, "done", report)


def _paused(live: LiveSession, checkpoint: str) -> RunResult:
    interrupts = open_interrupts(live.scope, checkpoint)
    _tell_last(live, PAUSED, address=live.root.address, checkpoint_id=checkpoint, interrupts=interrupts)
    return _result(live, "interrupted", interrupts=interrupts)


async def stop(live: LiveSession) -> RunResult:
    """Store that a run was stopped, and release its session."""
    mode = live.scope.cancellation.mode or "now"
    if live.scope.closed is not None:
        raise live.scope.closed
    cancelled = Cancelled(address=live.root.address, mode=mode)
    await _finish(live, "cancel", "cancelled", cancelled)
    _tell_last(live, cancelled)
    return _result(live, "cancelled")


async def _fail(live: LiveSession, error: BaseException) -> None:
    failure = describe(error)
    failed = Failed(address=live.root.address, error=failure["type"], message=failure["message"])
    if live.scope.closed is None:
        try:
            await _finish(live, None, "failed", failed)
            _tell_last(live, failed)
            return
        except AdjournError as second:
            add_note(error, f"The failure itself could not be stored: {second}")
    # The log cannot be written any more. The reader of this run still gets the event, without a number.
    live.journal.sink([failed])


async def _finish(live: LiveSession, source: str | None, status: Status, last: Final) -> Committed:
    """Store how the run ended, with its last event as the log keeps it."""
    committed = await live.journal.finish(live.header(source), status, last)
    live.status = status
    return committed


def _tell_last(live: LiveSession, last: Final, **more: Any) -> None:  # Any: fields of the event that are not logged
    """Send the last event, which is stored by now, to the reader of a run."""
    if live.scope.has_reader:
        live.journal.sink([replace(last, seq=live.journal.seq, **more)])


def _result(
    live: LiveSession,
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


def stored_end(live: LiveSession, result: RunResult) -> Event:
    """Return the last event of a run that had nothing to do: the state of the session, without a number."""
    address = live.root.address
    if result.status == "interrupted":
        return Interrupted(address=address, interrupts=result.interrupts, checkpoint_id=result.checkpoint_id or "")
    return Done(address=address, output=result.output)


def stored_result(live: LiveSession, last: Event | None = None) -> RunResult:
    """Return the result of a session that nobody runs, or of a run from its last event."""
    with Reading(live.scope.session_id):
        if isinstance(last, Done) or (last is None and live.status == "done"):
            return _result(live, "done")
        cancelled = isinstance(last, Cancelled) or (last is None and live.status == "cancelled")
        return _result(live, "cancelled" if cancelled else "interrupted")
