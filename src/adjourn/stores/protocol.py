"""The store protocol: what every backend promises.

A session is named by its app and its id: the same id in another app is another session. A store keeps, per session, a
log of records on branches, one head, one lease, and *beside* the log the questions with their answers, and the inputs
of turns that have not begun; and for all sessions an outbox of notices. It knows nothing of frames or programs.
What callers ask of it are requests and queries: `adjourn.stores.kit` has them, with what all implementations share, and
`adjourn.testing` the suite that proves one.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

from .types import Lease, Renewed, SessionRef

if TYPE_CHECKING:
    from .kit.queries import StoreQuery
    from .kit.requests import StoreRequest

T = TypeVar("T")


class Store(Protocol):
    """Keeps sessions. Safe to use from any number of tasks, threads, event loops and (if it is shared) processes.

    A failure of the medium raises `StoreUnavailable`, damage `CheckpointCorrupt`. Listings over many sessions, and
    `Audit`, leave damaged rows out and report them on the log `adjourn.stores` (`kit.readable` does that). Times are
    the store's own. Repeating a claim or commit with the same record id and content is a success, so that a caller who
    did not get the reply can try again. Calls that one task or loop makes one after the other take effect in that
    order, even if it does not wait for each.

    A request or query that raises `CheckpointNotFound` for an unknown session also does so for another user's. A
    listing without an app covers all apps, except those whose names begin with `OWN_APPS`, which must be named.
    """

    async def write(self, request: StoreRequest[T]) -> T:
        """Do what a request asks, all of it or nothing; each says what it returns and raises."""
        ...

    async def read(self, query: StoreQuery[T]) -> T:
        """Answer a query, from what is stored at one moment; each says what it returns and raises."""
        ...

    async def renew(self, leases: Sequence[Lease]) -> list[Renewed]:
        """Renew leases that are still held; return for each, in order, what became of it.

        One with a `ttl` of 0 is given back: it ends now, and its claim does not count as one without progress.
        """
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
