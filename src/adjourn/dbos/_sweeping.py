"""Sweeping: what nobody has delivered, what dead executors left behind, and what is old."""

from __future__ import annotations

import random
from collections.abc import Collection

import msgspec

from adjourn.runner._due import Source
from adjourn.stores import Due, Head, SessionRef, Store
from adjourn.stores.kit import GetHead

from ._deliveries import BATCH, Deliveries, Delivery, workflow_id

LONGEST = 300.0
"""Seconds between deliveries of a session that cannot go on, at most; they begin with one poll, and double."""

MOST_FAILURES = 10
"""After how many sessions that cannot be delivered a look is given up."""


class Swept(msgspec.Struct, frozen=True, kw_only=True):
    """How many sessions were delivered, rows of dead executors cancelled, and rows of old deliveries deleted."""

    delivered: int = 0
    cancelled: int = 0
    deleted: int = 0


class Sweeper:
    """Looks after a queue. Any number of processes may do it at the same time."""

    def __init__(self, deliveries: Deliveries, store: Store, sources: Collection[Source], poll: float) -> None:
        self._deliveries = deliveries
        self._store = store
        self._sources = sources
        self._poll = poll
        self._last: dict[
            Due, tuple[Head, int]
        ] = {}  # How what is due stood when it was delivered, and how often it was.

    async def sweep(self, orphaned_after: float, keep: float) -> Swept:
        """Do everything once."""
        return Swept(
            cancelled=await self._cancel_orphans(orphaned_after),
            deleted=await self._deliveries.delete_ended(keep),
            delivered=await self._deliver_due(),
        )

    async def _deliver_due(self) -> int:
        limit = BATCH + len(self._last)
        listed = [due for source in self._sources for due in await source.due(limit, ())]
        last = {due: self._last[due] for due in listed if due in self._last}
        ended = await self._deliveries.ended([workflow_id(*each) for each in last.values()])
        fresh = [due for due in listed if due not in last or workflow_id(*last[due]) in ended]
        random.shuffle(fresh)  # What cannot be delivered must not always come first.
        count, failures = 0, list[Exception]()
        for due in fresh:
            try:
                head = await self._store.read(GetHead(due.ref))
                if head is not None:
                    last[due] = (head, await self._deliver(head, last.get(due)))
                    count += 1
            except Exception as error:  # noqa: BLE001  # protects the other sessions; it is raised when they are delivered
                failures.append(error)
                if len(failures) == MOST_FAILURES:
                    break  # It is not about single sessions: a database is away.
        self._last = last
        if failures:
            raise failures[0]
        return count

    async def _deliver(self, head: Head, last: tuple[Head, int] | None) -> int:
        """Deliver a session, and return for the how manieth time it stands as it does."""
        if last is None or workflow_id(head, 1) != workflow_id(last[0], 1):
            await self._deliveries.add(head)
            return 1
        # The last delivery has ended, and the session is as it was: nobody could go on with it.
        number = last[1] + 1
        delay = min(self._poll * 2.0 ** min(number - 2, 20), LONGEST)
        await self._deliveries.add(head, number, Delivery(delay_seconds=delay))
        return number

    async def _cancel_orphans(self, seconds: float) -> int:
        """Cancel rows whose executor does not run their session: the session's lease is its executor's heartbeat."""
        orphans: list[str] = []
        for row in await self._deliveries.begun(seconds):
            assert row.input is not None
            app, session = row.input["args"]
            head = await self._store.read(GetHead(SessionRef(session, app)))
            if head is None or head.owner is None or not head.owner.startswith(f"{row.executor_id}/"):
                orphans.append(row.workflow_id)
        await self._deliveries.cancel(orphans)
        return len(orphans)
