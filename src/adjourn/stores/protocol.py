"""The store protocol: what every backend promises, in bytes and ids.

A session is named by its app and its id: the same id in another app is another session. A store keeps, per session, a
log of records on branches, one head, one lease, and *beside* the log the questions with their answers, and the inputs
of turns that have not begun; and for all sessions an outbox of notices. It knows nothing of frames or programs.
`adjourn.testing` has the suite that proves an implementation, `adjourn.stores.kit` what all implementations share.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

from .types import (
    ALL_QUESTIONS,
    Answer,
    AuditEntry,
    Begun,
    CheckpointRow,
    Claimed,
    Committed,
    Due,
    EventBatch,
    Head,
    Input,
    Lease,
    Loaded,
    OpenQuestion,
    QuestionFilter,
    QueuedInput,
    Renewed,
    SessionRef,
    Status,
    StoredRecord,
    TakenNotice,
    Write,
)

if TYPE_CHECKING:
    from .kit.queries import StoreQuery
    from .kit.requests import StoreRequest

T = TypeVar("T")


class Store(Protocol):
    """Keeps sessions. Safe to use from any number of tasks, threads, event loops and (if it is shared) processes.

    Every method is atomic: it happens as a whole or not at all. A failure of the medium raises `StoreUnavailable`,
    damage `CheckpointCorrupt`. Listings over many sessions, and `audit`, leave damaged rows out and report them on
    the log `adjourn.stores` (`kit.readable` does that). Times are the store's own. Repeating a claim or commit with
    the same record id and content is a success, so that a caller who did not get the reply can try again. Calls that
    one task or loop makes one after the other take effect in that order, even if it does not wait for each.

    A method that raises `CheckpointNotFound` for an unknown session also does so for another user's. A listing
    without an app covers all apps, except those whose names begin with `OWN_APPS`, which must be named.
    """

    async def write(self, request: StoreRequest[T]) -> T:
        """Do what a request asks, all of it or nothing."""
        ...

    async def read(self, query: StoreQuery[T]) -> T:
        """Answer a query."""
        ...

    async def claim(
        self,
        ref: SessionRef,
        owner: str,
        ttl: float,
        *,
        after: str | None,
        write: Write | None = None,
        answers: Sequence[Answer] = (),
        replaces: str | None = None,
        alone: bool = False,
    ) -> Claimed:
        """Take the session's lease, with the first record and the answers if given.

        `after` is the head the caller has seen, None for a session that must not have any record yet; if it does not
        exist at all, it then belongs to the user of `ref`. `replaces` names an owner known to be dead, whose lease may
        be taken before it expires. Answers are checked before the lease: if a live owner holds it, they are recorded
        for that owner to take up, wherever the head is by then, and no lease is given. With the lease, the answers
        count as taken by `write`.
        With `alone`, nothing is left to a live owner.

        Raises:
            SessionBusy: a live owner holds the lease, and there are no answers or the claim is to be `alone`.
            Conflict: the head is not `after`, or the input of `write` is not the first that waits; nothing was written.
            AlreadyResumed, InterruptExpired, UnknownInterrupt, CheckpointNotFound: as for `answer`.
        """
        ...

    async def renew(self, leases: Sequence[Lease]) -> list[Renewed]:
        """Renew leases that are still held; return for each, in order, what became of it.

        One with a `ttl` of 0 is given back: it ends now, and its claim does not count as one without progress.
        """
        ...

    async def commit(self, lease: Lease, *writes: Write, after: str, release: bool = False) -> Committed:
        """Add records, each after the one before it on its branch and the first after the head `after`; all or none.

        The lease is renewed, and given up with `release`.

        With `release` and status "waiting", answers that no record has taken keep the lease and are returned instead;
        the record is still stored, but as running, without its events and without notices that are due at once, since
        the run goes on.
        With `release` and status "queued", the run is handed over: its session is due at once.
        The count of claims without progress is reset.

        Raises:
            Conflict: the head is not `after`, the lease was released or taken over, or the input of a record is not the
                first that waits; nothing was written.
            AlreadyResumed, UnknownInterrupt: a question in `closes` is not open; nothing was written.
        """
        ...

    async def answer(self, ref: SessionRef, answers: Sequence[Answer], *, after: str | None = None) -> Head:
        """End open questions of the head's branch, each by compare-and-swap, all or none.

        Raises:
            CheckpointNotFound: no such session.
            UnknownInterrupt: no such question on the branch.
            AlreadyResumed: one of them has already ended.
            InterruptExpired: one of them has expired (an answer with `how="expired"` is still accepted).
            Conflict: the head is not `after` (when given).
        """
        ...

    async def submit(self, ref: SessionRef, input: Input) -> Head:
        """Append an input to a session's queue; a session that does not exist yet then belongs to the user of `ref`.

        Repeating it is a success that adds nothing, even after a turn has begun with it.

        Raises:
            CheckpointNotFound: the session is another user's.
            Conflict: another input has this id.
        """
        ...

    async def inputs(self, ref: SessionRef, *, limit: int | None = None) -> list[QueuedInput]:
        """List the inputs that wait in a session's queue, in order.

        Raises:
            CheckpointNotFound: no such session.
        """
        ...

    async def has_input(self, ref: SessionRef, id: str) -> bool:
        """Return whether an input of this id was submitted: it waits, or a turn has begun with it.

        Raises:
            CheckpointNotFound: no such session.
        """
        ...

    async def withdraw(self, ref: SessionRef, id: str) -> bool:
        """Remove an input that waits; return False if none of this id does.

        A session that had nothing else is removed with it.

        Raises:
            CheckpointNotFound: no such session.
        """
        ...

    async def load(self, ref: SessionRef, checkpoint: str | None = None) -> Loaded | None:
        """Return the records that fold to the head, or to `checkpoint`; None for a session without any.

        Raises:
            CheckpointNotFound: the session has no such checkpoint.
        """
        ...

    async def head(self, ref: SessionRef) -> Head | None:
        """Return the current state of a session, None if there is no such session."""
        ...

    async def checkpoints(
        self,
        ref: SessionRef,
        *,
        limit: int | None = None,
        before: str | None = None,
        source: str | None = None,
        under: str | None = None,
    ) -> list[CheckpointRow]:
        """List the checkpoints of all branches, most recent first; `under` filters by address at segment boundaries.

        Raises:
            CheckpointNotFound: no such session, or `before` is unknown.
        """
        ...

    async def sessions(
        self,
        *,
        app: str | None = None,
        user: str | None = None,
        status: Status | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[Head]:
        """List sessions, most recently written first; of those written at once, the greatest app and id first.

        A session whose last turn is done and that has inputs in its queue counts as "queued", and not as "done".
        `after` is the `cursor` of a session that was listed: the list goes on behind where it was then. A session that
        is written meanwhile moves to the front, where whoever pages has already been.

        Raises:
            UsageError: `after` is not a cursor.
        """
        ...

    async def find(self, session: str, *, user: str | None = None) -> list[SessionRef]:
        """Return the sessions of this id, one for each app that has one, in the order of the apps' names.

        The library's own apps are left out. It does not make the store read all of its sessions.
        """
        ...

    async def questions(
        self,
        ref: SessionRef | None = None,
        *,
        filter: QuestionFilter = ALL_QUESTIONS,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[OpenQuestion]:
        """List open questions on the branch of each session's head that have not expired, oldest first.

        The order is that of `asked`, and between equals that of writing. `ref` selects those of one session, in
        whichever app it is. `after` is the `cursor` of a question that was listed, whether or not it is still open:
        the list goes on behind it. Whoever pages so sees every question once that is open all the while. No filter
        makes the store read all of its sessions or questions.

        Raises:
            UsageError: `after` is not a cursor.
        """
        ...

    async def count_questions(self, filter: QuestionFilter = ALL_QUESTIONS) -> int:
        """Return how many questions `questions` lists in all."""
        ...

    async def audit(
        self, ref: SessionRef, branch: str | None = None, *, all_branches: bool = False
    ) -> list[AuditEntry]:
        """List every question of a branch, by default the head's, or of all of them, oldest first, with how it ended.

        Raises:
            CheckpointNotFound: no such session, or it has no such branch.
        """
        ...

    async def records(
        self, ref: SessionRef, *, after: str | None = None, limit: int | None = None
    ) -> list[StoredRecord]:
        """List the records of all branches in the order of writing, from the one after `after` on.

        Raises:
            CheckpointNotFound: no such session, or it never had the record `after`.
        """
        ...

    async def asked(self, ref: SessionRef, branch: str, ids: Sequence[str]) -> list[AuditEntry]:
        """Return these questions of a branch, oldest first, with how they ended; unknown ones are left out.

        A record refers to questions by their ids alone. They stay for as long as the session.

        Raises:
            CheckpointNotFound: no such session, or it has no such branch.
        """
        ...

    async def begun(self, digest: str) -> list[Begun]:
        """Return everything under this digest that records have begun with, in any session, deleted ones included.

        Nothing ever removes it: neither `delete` nor `prune` nor `delete_idle`.
        """
        ...

    async def events(self, ref: SessionRef, after: int = 0, *, limit: int | None = None) -> list[EventBatch]:
        """Return the stored events with a number above `after`, in order; the first batch may begin below.

        Raises:
            CheckpointNotFound: no such session.
        """
        ...

    async def due(
        self,
        *,
        app: str | None = None,
        user: str | None = None,
        programs: Sequence[str] | None = None,
        skip_users: Sequence[str] = (),
        limit: int = 100,
    ) -> list[Due]:
        """List sessions that somebody should take up, oldest first.

        Their owner died, their question expired, nobody has taken up their answers, or the next turn of their queue can
        begin: there was none before, the last one is done, or the input `abandons` one that failed or was cancelled.
        `programs` selects by the program that runs them, and `skip_users` leaves out those of some users.
        """
        ...

    async def cancel(self, ref: SessionRef, mode: str) -> bool:
        """Ask the live owner to stop; return False if nobody runs the session.

        Raises:
            CheckpointNotFound: no such session.
        """
        ...

    async def delete(self, ref: SessionRef) -> None:
        """Remove a whole session; an unknown one is not an error.

        Raises:
            SessionBusy: somebody runs it.
        """
        ...

    async def prune(self, ref: SessionRef, *, keep: int | None = None, before: float | None = None) -> int:
        """Remove old checkpoints, except the last `keep` and those written since `before`; return how many.

        The head, everything pending and the base of every fork stay restorable.

        Raises:
            CheckpointNotFound: no such session.
        """
        ...

    async def delete_idle(
        self,
        ttl: float,
        *,
        app: str | None = None,
        user: str | None = None,
        statuses: Sequence[Status] | None = None,
        limit: int | None = None,
    ) -> list[SessionRef]:
        """Remove sessions that nobody runs and nobody has written or answered for `ttl` seconds; return which.

        With `statuses`, only those of one of them; a run whose owner died has failed. One with inputs that wait stays,
        whatever its status, unless "queued" is among them. At most `limit` at a time: if there are none left, it
        returns none.
        """
        ...

    async def take_notices(self, app: str, to: Sequence[str], ttl: float, *, limit: int = 100) -> list[TakenNotice]:
        """Take notices of an app that are due and for one of `to`, oldest first.

        Nobody is given them again for `ttl` seconds, in which whoever has taken them settles each.
        """
        ...

    async def settle_notice(self, taken: TakenNotice, *, again: float | None = None) -> bool:
        """Remove a notice that was sent; with `again`, keep it instead, to be taken after so many seconds.

        Return False, and change nothing, if it has been taken again since, or is gone.
        """
        ...

    async def drop_notices(self, app: str, age: float) -> int:
        """Remove notices of an app that were due more than `age` seconds ago; return how many."""
        ...

    async def close(self) -> None:
        """Finish what was accepted and release all resources."""
        ...


@runtime_checkable
class SeesCancels(Protocol):
    """A store that can say cheaply, without writing, which runs are to be cancelled: it is asked five times a second.

    Live owners on any other store learn of it with the next commit, or when their lease is renewed: after a third of
    its time to live, at the latest.
    """

    async def cancels(self, leases: Sequence[Lease]) -> list[str | None]:
        """Return for each lease the mode in which its run is to be cancelled, or None."""
        ...


@runtime_checkable
class Hints(Protocol):
    """A store that lets others know when a session may have something new, so that they need not look all the time.

    A hint may be late, lost, doubled or about nothing: it is no more than a reason to look now instead of later.
    """

    def hints(self) -> AsyncGenerator[SessionRef | None]:
        """Yield the name of a session, without its user, whenever others may have something to do or to read there.

        That is after an answer, an input, a cancel, the release of a lease, and a commit with events. None means that
        anything may have changed; it comes first, as soon as the store listens, and after a lost connection.
        Usable from any event loop; closing the generator frees everything.
        """
        ...


@runtime_checkable
class KeepsSummaries(Protocol):
    """A store in which people look at sessions by hand: it wants a `summary` with the records of pauses and ends."""

    wants_summaries: bool


@runtime_checkable
class Repairs(Protocol):
    """A store that keeps indexes apart from its sessions, and can make them again: `adjourn repair` does."""

    async def repair(self) -> int:
        """Make all indexes again from the sessions, and return how many there are. Others may write meanwhile."""
        ...


@runtime_checkable
class InTransaction(Protocol):
    """A store inside a transaction of its user: nobody else sees what it writes before that has ended.

    So it runs nothing: a lease that nobody can see protects nothing, and a session is locked for as long as it lasts.
    """

    is_in_transaction: bool
