"""The log of one session, read in pages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from adjourn.errors import CheckpointCorrupt
from adjourn.stores.kit import (
    Branch,
    Point,
    SessionRow,
    damaged_record,
    event_batch,
    id_at,
    listed_row,
    stored_record,
)
from adjourn.stores.types import CheckpointRow, EventBatch, StoredRecord

from ._keys import session_keys
from ._reply import read_branch_number, read_head, read_points, read_positions, read_record, whole
from ._server import Command, Reply, Server

PAGE = 200
"""How many records are read in one trip."""


class Log:
    """Reads records by their positions; those that were pruned are left out."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def listed(
        self, row: SessionRow, branches: Sequence[Branch], end: int, source: str | None
    ) -> AsyncIterator[CheckpointRow]:
        """Yield the checkpoints below a position, most recent first."""
        async for pos, facts in self._facts(row, range(end - 1, -1, -1)):
            at, found, header = read_head(facts, row.session)
            if found is not None and source in (None, found):
                yield listed_row(*id_at(branches, pos), at, header)

    async def events(self, row: SessionRow, branches: Sequence[Branch], after: int) -> AsyncIterator[EventBatch]:
        """Yield the events above a number."""
        _, _, log, numbers, *_ = session_keys(row.app, row.session)
        while True:
            last = after
            # Each record with events stands there under the number of its last one.
            found = await self._server.run(
                *("ZRANGEBYSCORE", numbers, f"({after}", row.seq, "LIMIT", 0, PAGE), session=row.session
            )
            places = read_positions(found, row.session)
            for pos, values in zip(places, await self._whole(row, log, places), strict=True):
                if values[0] is not None:
                    record = read_record(*id_at(branches, pos), pos, values, row.session)
                    after = record.seq
                    yield event_batch(record)
            if len(places) < PAGE or after == last:  # the latter if their records are gone
                return

    async def records(self, row: SessionRow, branches: Sequence[Branch], start: int) -> AsyncIterator[StoredRecord]:
        """Yield whole records from a position on."""
        log, places = session_keys(row.app, row.session)[2], range(start, row.pos + 1)
        for first in range(0, len(places), PAGE):
            page = places[first : first + PAGE]
            for pos, values in zip(page, await self._whole(row, log, page), strict=True):
                if values[0] is None and values[1] is None:
                    continue
                place = id_at(branches, pos)
                try:
                    yield stored_record(read_record(*place, pos, values, row.session))
                except CheckpointCorrupt:
                    yield damaged_record(*place, pos)

    async def points(self, row: SessionRow) -> list[Point]:
        """Return what pruning needs to know about every record."""
        # Others may add and prune meanwhile: what is added comes after the head, and nothing can be dropped twice.
        if row.pos < 0:
            return []
        return read_points([each async for each in self._facts(row, range(row.pos + 1))], row.session)

    async def asking(self, row: SessionRow) -> list[int]:
        """Return the numbers of the branches that have open questions."""
        fields: list[bytes] = await self._server.run(
            "ZRANGE", session_keys(row.app, row.session)[7], 0, -1, session=row.session
        )
        return sorted({read_branch_number(field, row.session) for field in fields})

    async def _facts(self, row: SessionRow, places: Sequence[int]) -> AsyncIterator[tuple[int, bytes]]:
        log = session_keys(row.app, row.session)[2]
        for first in range(0, len(places), PAGE):
            page = places[first : first + PAGE]
            found = await self._server.run("HMGET", log, *page, session=row.session)
            for pos, facts in zip(page, found, strict=True):
                if facts is not None:
                    yield (pos, facts)

    async def _whole(self, row: SessionRow, log: str, places: Sequence[int]) -> list[Reply]:
        commands: list[Command] = [("HMGET", log, pos, f"{pos}b", f"{pos}e") for pos in places]
        return [whole(each) for each in await self._server.gather_rows(commands, [row.session] * len(places))]
