"""Opening: from a call of the runner to a session that is claimed and ready to be driven."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, Protocol, TypedDict, cast

import msgspec

from adjourn._checks import is_count
from adjourn._engine.entry import check_not_own
from adjourn.errors import (
    AdjournError,
    Conflict,
    SessionBusy,
    SessionError,
    UsageError,
)
from adjourn.events import Event
from adjourn.sessions import SessionStatus
from adjourn.sessions._settings import check_name
from adjourn.stores.types import Answer, Claimed, SessionRef, Source

from ._driving import end_cut_off
from ._live import TRIES, LiveSession, LiveSessions, status_of_live
from ._log import Persistence
from ._settings import RunnerSettings
from .agent_options import AgentOptions

OnPending = Literal["error", "abandon", "finish"]
OnBusy = Literal["error", "queue", "cancel"]


class TurnOptions(TypedDict, total=False):
    """The options of a turn, as keyword arguments; `Runner.run` explains each of them."""

    user_id: str | None
    values: Mapping[str, Any] | None
    deps: Any
    on_pending: OnPending
    on_busy: OnBusy
    checkpoint_id: str | None
    again: bool
    max_steps: int | None
    model_options: Mapping[str, Any] | None
    for_agents: Mapping[str, AgentOptions] | None
    metadata: Mapping[str, Any] | None


class Call(msgspec.Struct, kw_only=True):
    """What a caller asked for, as far as all ways to begin a run share it; `ref` names the session, and the user."""

    ref: SessionRef
    values: Mapping[str, Any] | None = None
    state: Mapping[str, Any] | None = None
    deps: Any = None
    max_steps: int | None = None
    model_options: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    for_agents: dict[str, Any] = {}
    persistence: Persistence = Persistence.STORED
    is_new: bool = False
    """Whether the session's id was just generated, so that there is nothing to look for."""
    abandons: bool = False
    """Whether its turn may begin after one that failed or was cancelled."""
    is_unattended: bool = False
    takes_next: bool = True

    def __post_init__(self) -> None:
        check_name("session_id", self.ref.id)
        if self.state is not None and not isinstance(cast("object", self.state), Mapping):
            raise UsageError(f"state={self.state!r}: give a mapping of fields.")
        if self.max_steps is not None and not is_count(self.max_steps):
            raise UsageError(f"max_steps={self.max_steps!r}: a graph needs at least one superstep.")

    def for_its_run(self) -> tuple[str, ...]:
        """Return which arguments only the run that this call begins can use: one that is under way has its own.

        `deps` are not among them. They stand for the same things in every process, and a caller who resumes cannot know
        whether the session is being run.
        """
        given = {
            "values": self.values,
            "state": self.state,
            "max_steps": self.max_steps,
            "for_agents": self.for_agents,
        }
        return tuple([name for name, value in given.items() if value])


class RunHandle(Protocol):
    """The handle of a run: what it receives, and from which event on it follows one that another process drives."""

    seen: int
    since: int | None
    is_attached: bool
    is_detached: bool

    @property
    def is_cancelled(self) -> bool:
        """Whether the run was cancelled before it began."""
        ...

    @property
    def wants_events(self) -> bool:
        """Whether anybody reads the run."""
        ...

    def deliver(self, events: list[Event], /) -> None:
        """Receive what has happened."""
        ...


class Claiming(msgspec.Struct, frozen=True):
    """How to claim a session after a move: with a record of this source (None: one that is not listed), and answers.

    A session that is claimed `alone` leaves nothing to a live owner.
    """

    source: Source | None
    answers: tuple[Answer, ...] = ()
    alone: bool = False


class Move(ABC):
    """One way to begin a run: what a call does to a session between finding it and claiming it.

    If others were faster, it is made again, on the session as it is by then: `find` and `make` start over each time.
    """

    uses_kept: bool = False
    """Whether it may be made in a session that the runner has kept ready, which may be older than what is stored."""
    needs_it_free: bool = True
    """Whether a live owner is in its way."""

    def __init__(self, opener: SessionOpener, call: Call) -> None:
        self.call = call
        self.opener = opener
        self.sessions: LiveSessions = opener.sessions
        self.settings: RunnerSettings = opener.settings

    @abstractmethod
    async def find(self) -> LiveSession | None:
        """Return the session as it is stored; None if there is nothing to do in it."""

    @abstractmethod
    async def make(self, live: LiveSession, *, is_kept: bool) -> Claiming | None:
        """Change the session, and return how to claim it; None if it is not to be claimed.

        Raises:
            Conflict: the session is not what it was found to be.
        """

    async def missed(self, error: Conflict | SessionBusy) -> None:
        """Return if the move is to be made again after the claim was refused; otherwise raise why not."""
        if isinstance(error, SessionBusy):
            raise error

    async def made(self, live: LiveSession, claimed: Claimed) -> None:  # noqa: B027  # most have nothing to note
        """Note that the session was claimed, or that its live owner takes the answers up.

        Raises:
            Conflict: the session was lost, so the move is to be made again.
        """


class SessionOpener:
    """Opens the sessions of one runner.

    There is one loop: find the session, make the move, claim it. A claim names the head on which the move was made, so
    of any number of callers in any processes one gets the session, and the others make their move again on what they
    find then. A session that was kept ready saves reading it: only the claim shows whether it is still as it is
    stored, and if anything is refused there, the session is read and the move made again before the caller hears of it.

    A move without a handle has no run: its claim writes nothing, and its `made` writes and releases the session.
    """

    def __init__(self, sessions: LiveSessions) -> None:
        self.sessions: LiveSessions = sessions
        self.settings: RunnerSettings = sessions.settings

    async def open(self, move: Move, handle: RunHandle | None) -> LiveSession | None:
        """Return the session with the move made; None if the move finds none, or its live owner takes the answers up.

        It is claimed, unless the move says that there is nothing to claim: no other process can know the session, or
        there is nothing to run in it.
        """
        ref = move.call.ref
        for _ in range(TRIES):
            kept = self.sessions.pop(ref) if move.uses_kept else None
            try:
                return await self._attempt(move, kept, handle)
            except Conflict:
                pass  # It has moved on.
            except (SessionError, UsageError):
                if kept is None:
                    raise
        raise Conflict(ref.id, "others keep writing it")

    async def _attempt(self, move: Move, kept: LiveSession | None, handle: RunHandle | None) -> LiveSession | None:
        ref, live = move.call.ref, kept or await move.find()
        if live is None:
            return None
        if not move.uses_kept:
            self.sessions.pop(live.ref)
        if kept is None and move.needs_it_free:
            check_not_running(live)
        else:
            check_not_own(ref.id, live.owner)
        if handle is None:
            live.prepare(self.sessions)
        else:
            await self.prepare(live, move.call, handle)
        claiming = await move.make(live, is_kept=kept is not None)
        if claiming is None:
            return live
        try:
            claimed = await self._claim(live, claiming, has_run=handle is not None)
        except (Conflict, SessionBusy) as error:
            if kept is None:
                await move.missed(error)
            raise Conflict(ref.id, "others were faster") from error
        await move.made(live, claimed)
        if claimed.lease is not None or handle is None:
            return live
        handle.seen = handle.since = claimed.seq
        return None

    async def prepare(self, live: LiveSession, call: Call, handle: RunHandle) -> None:
        """Get a session ready for the run that a call begins."""
        scope, settings, is_watched = live.scope, self.settings, handle.wants_events
        live.prepare(self.sessions)
        live.is_unattended, live.takes_next = call.is_unattended, call.takes_next
        live.log.sink, live.seq_before = handle.deliver, live.log.tail.seq
        scope.deps = call.deps
        if call.deps is None and settings.deps is not None:
            scope.deps = await _made(settings.deps, live)
        scope.max_steps = call.max_steps
        scope.has_reader = is_watched
        scope.logs_events = is_watched or call.persistence is not Persistence.UNSTORED
        if settings.has_own_store:
            if not live.log.is_unstored and call.ref.id in self.sessions.until_done:
                live.log.persistence = Persistence.UNTIL_DONE
            scope.has_boundaries = scope.logs_events or settings.durability != "pause"
        if call.values:
            live.root.set_values(call.values)

    async def _claim(self, live: LiveSession, claiming: Claiming, *, has_run: bool) -> Claimed:
        # A session that had failed, or was handed over, counts as such until a record says that it goes on.
        writes = has_run and (claiming.source is not None or live.log.tail.has_news or live.status != "running")
        try:
            if live.owner is not None:
                await live.free()
            claimed = await live.log.claim(
                live.header(claiming.source),
                answers=claiming.answers,
                over=live.owner and live.dead_owner,
                write=writes,
                alone=claiming.alone,
            )
        except asyncio.CancelledError:
            # The caller has left: the session must not look alive.
            if not has_run:
                live.end()
            elif live.log.lease is not None:
                with contextlib.suppress(AdjournError):
                    await end_cut_off(live)
            raise
        if claimed.lease is not None:
            if live.head is not None:
                live.note_takeover()
            live.claims = claimed.claims
        return claimed


async def _made(deps: Any, live: LiveSession) -> Any:  # Any: whatever the user passes
    """Return the deps that a runner has for a session."""
    if not inspect.isroutine(deps) and not isinstance(deps, partial):
        return deps
    made: Any = cast("Callable[[SessionStatus], Any]", deps)(status_of_live(live))
    return await made if inspect.isawaitable(made) else made


def check_not_running(live: LiveSession) -> None:
    """Refuse a session that a live owner has."""
    check_not_own(live.scope.session_id, live.owner)
    if live.runs_elsewhere and live.head is not None:
        raise SessionBusy(live.scope.session_id, live.owner or "", live.head.expires)
