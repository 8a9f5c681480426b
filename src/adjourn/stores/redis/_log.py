"""The log of one session, read in pages."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from adjourn.errors import CheckpointCorrupt
from adjourn.stores.kit.facts import Logged, Span
from adjourn.stores.kit.reading import logged
from adjourn.stores.kit.rows import SessionRow, is_named, locate

from ._keys import LOG, NUMBERS, session_keys
from ._reply import Found, read_number, read_record
from ._rows import ROWS_OF_RECORDS
from ._server import Server

PAGE = 200
"""How many entries of a log or an index are read in one trip, unless fewer are wanted."""


class Log:
    """Reads records by their positions; those that were pruned are left out."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def read(self, found: Found) -> list[Logged] | None:
        """Return the records of the span that is wanted; None if there is none where it begins or ends."""
        row, span = found.row, found.wanted.span
        if span is None or row is None or not is_named(row, found.wanted.ref):
            return None
        after = -1 if span.after is None else locate(found.branches, row.pos, span.after)
        end = row.pos + 1 if span.before is None else found.place(span.before)
        if after is None or end is None:
            return None
        start = 0 if span.events_after is None else await self._first_with_events(row, span.events_after)
        places = range(max(start, after + 1), end)[:: -1 if span.newest_first else 1]
        size, wanted = page_size(span.limit), list[Logged]()
        for first in range(0, len(places), size):
            page = await self._read(found, row, span, places[first : first + size])
            wanted += [each for each in page if _is_wanted(each, span)]
            if span.limit is not None and len(wanted) >= span.limit:
                break
        return wanted[: span.limit]

    async def _first_with_events(self, row: SessionRow, after: int) -> int:
        """Return the position of the first record that has events above a number; behind the head if none has."""
        if after >= row.seq:
            return row.pos + 1
        # Each record with events stands there under the number of its last one.
        command = ("ZRANGEBYSCORE", _key(row, NUMBERS), f"({after}", row.seq, "LIMIT", 0, 1)
        found: list[bytes] = await self._server.run(*command, session=row.session)
        return read_number(found[0], row.session, "the position of a record") if found else row.pos + 1

    async def _read(self, found: Found, row: SessionRow, span: Span, places: Sequence[int]) -> list[Logged]:
        # A record is never changed, and what is pruned meanwhile is left out.
        width = 4 if span.body else 3 if span.events else 2  # what has fields of its own comes last
        fields = [field for pos in places for field in ROWS_OF_RECORDS.fields(pos)[:width]]
        parts: list[bytes | None] = await self._server.run("HMGET", _key(row, LOG), *fields, session=row.session)
        groups = [parts[first : first + width] for first in range(0, len(parts), width)]
        return [
            logged(pos, found.branches, partial(read_record, pos, group, row.session))
            for pos, group in zip(places, groups, strict=True)
            if any(each is not None for each in group)
        ]


def page_size(limit: int | None) -> int:
    """Return how many entries to read at once: some may not fit."""
    return PAGE if limit is None else min(max(limit, 10), PAGE)


def _is_wanted(logged: Logged, span: Span) -> bool:
    row = logged.row
    if isinstance(row, CheckpointCorrupt):
        return True  # It may be one.
    if span.events_after is not None and not row.count:
        return False
    return not span.listed or (row.source is not None and span.source in (None, row.source))


def _key(row: SessionRow, place: int) -> str:
    return session_keys(row.app, row.session)[place - 1]
