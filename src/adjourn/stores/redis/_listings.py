"""Listings of sessions, from sorted indexes.

Rows decide, an index only finds them. With a time to live, an entry may outlive its session: it is removed when met.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from adjourn.errors import CheckpointCorrupt
from adjourn.stores._logging import note_damage
from adjourn.stores.kit import SessionRow, Written, written
from adjourn.stores.types import OWN_APPS, SessionRef, Status

from ._keys import index_prefix, session_keys
from ._packing import packed
from ._reply import Found, read_session, whole
from ._server import FORGET, READ, Command, Reply, Server

T = TypeVar("T")

PAGE, MOST = 200, 2000
"""How many entries of an index are read in one trip, unless fewer are wanted; and at most, where others are wanted."""


_UNWANTED = object()
"""In place of the reply for a session that was not read."""


class Entry(NamedTuple):
    """What an index says: which session, and where it stands."""

    session: str
    score: float


class Listings:
    """Reads indexes in pages of rows."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def sessions(
        self,
        app: str | None,
        user: str | None,
        status: Status | None,
        page: int,
        behind: Written | None,
        since: float | None = None,
    ) -> AsyncIterator[SessionRow]:
        """Yield sessions, most recently written first, from behind a place on, and not those written before `since`."""
        until = None if behind is None else behind.updated
        names = [] if user is None else [f"sessions/{user}"]
        names += [] if status is None else [f"sessions={status}"]
        # Of equals, the last comes first: the apps in reverse, as the sessions of each are.
        found: list[AsyncIterator[tuple[float, SessionRow]]] = []
        for each in reversed(await self._apps(app)):
            name, *others = await self._shortest_first(each, names) if len(names) > 1 else names or ["sessions"]
            found.append(self._rows(_Index(each, name, True, until, since), page, others))
        async for _, row in _merged(found, lambda pair: -pair[1].updated):
            if behind is None or written(row) < behind:
                yield row

    async def written_before(
        self, time: float, app: str | None, statuses: Sequence[Status] | None
    ) -> AsyncIterator[SessionRow]:
        """Yield sessions without a commit since `time`, and with one of these statuses in their rows."""
        names = ["sessions"] if statuses is None else [f"sessions={status}" for status in dict.fromkeys(statuses)]
        for each in await self._apps(app):
            for name in names:
                async for _, row in self._rows(_Index(each, name, until=time), PAGE):
                    yield row

    async def due(
        self, now: float, app: str | None, page: int, wants: Callable[[bytes, bytes | None], bool] | None
    ) -> AsyncIterator[tuple[float, Found]]:
        """Yield sessions that may be due, and since when, longest first, with what waits for somebody there.

        Only those whose program and user are wanted are read as a whole.
        """
        found = [self._due(each, now, page, wants) for each in await self._apps(app)]
        async for pair in _merged(found, lambda pair: pair[0]):
            yield pair

    async def find(self, session: str, user: str | None) -> list[SessionRef]:
        """Return the sessions of an id, in the order of their apps."""
        apps = await self.apps()
        rows = [session_keys(app, session)[0] for app in apps]
        commands: list[Command] = [("HMGET", row, "session", "user") for row in rows]
        found = await self._server.gather_rows(commands, [session] * len(rows)) if rows else []
        refs = [_ref(session, app, reply) for app, reply in zip(apps, found, strict=True)]
        return [ref for ref in refs if ref is not None and user in (None, ref.user)]

    async def apps(self) -> list[str]:
        """Return all apps except the library's own, in order."""
        found = sorted([each.decode() for each in await self._server.run("SMEMBERS", "adj:apps")])
        return [each for each in found if not each.startswith(OWN_APPS)]

    async def _apps(self, app: str | None) -> list[str]:
        return await self.apps() if app is None else [app]

    async def _shortest_first(self, app: str, names: Sequence[str]) -> list[str]:
        """Return the names of indexes by their lengths."""
        lengths = await self._server.gather([("ZCARD", index_prefix(app) + name) for name in names])
        return [name for _, name in sorted(zip(lengths, names, strict=True))]

    async def _rows(
        self, index: _Index, page: int, others: Sequence[str] = ()
    ) -> AsyncIterator[tuple[float, SessionRow]]:
        """Yield the sessions of an index that are in the others as well."""

        async def fetch(entries: Sequence[Entry]) -> list[Reply]:
            chosen = await self._also_in(index.app, others, entries) if others else entries
            commands: list[Command] = [("HGETALL", session_keys(index.app, each.session)[0]) for each in chosen]
            replies = await self._server.gather_rows(commands, [each.session for each in chosen]) if chosen else []
            return _in_place_of(entries, chosen, replies)

        def read(entry: Entry, reply: Reply) -> tuple[float, SessionRow] | None:
            return (entry.score, read_session(reply, entry.session)) if reply else None

        async for found in self._read(index, page, fetch, read):
            yield found

    async def _also_in(self, app: str, names: Sequence[str], entries: Sequence[Entry]) -> list[Entry]:
        """Return the entries of sessions that these indexes have, too."""
        members = [each.session for each in entries]
        commands: list[Command] = [("ZMSCORE", index_prefix(app) + name, *members) for name in names]
        scores = await self._server.gather(commands)
        return [entry for entry, *found in zip(entries, *scores, strict=True) if None not in found]

    async def _due(
        self, app: str, now: float, page: int, wants: Callable[[bytes, bytes | None], bool] | None
    ) -> AsyncIterator[tuple[float, Found]]:
        query = packed({"now": now, "waiting": True, "queue": 1})

        async def fetch(entries: Sequence[Entry]) -> list[Reply]:
            chosen = entries if wants is None else await self._wanted(app, entries, wants)
            calls = [(session_keys(app, each.session), query) for each in chosen]
            replies = await self._server.scripts(READ, calls, [each.session for each in chosen]) if calls else []
            return _in_place_of(entries, chosen, replies)

        def read(entry: Entry, reply: Reply) -> tuple[float, Found] | None:
            found = Found(reply, SessionRef(entry.session, app))
            return None if found.row is None else (entry.score, found)

        async for found in self._read(_Index(app, "due", until=now), page, fetch, read):
            yield found

    async def _wanted(
        self, app: str, entries: Sequence[Entry], wants: Callable[[bytes, bytes | None], bool]
    ) -> list[Entry]:
        """Return the entries of sessions whose program and user are wanted, and of those that are gone or damaged."""
        commands: list[Command] = [("HMGET", session_keys(app, each.session)[0], "program", "user") for each in entries]
        replies = await self._server.gather_rows(commands, [each.session for each in entries])
        return [
            entry
            for entry, reply in zip(entries, replies, strict=True)
            if isinstance(reply, CheckpointCorrupt) or reply[0] is None or wants(*reply)
        ]

    async def _read(
        self,
        index: _Index,
        page: int,
        fetch: Callable[[Sequence[Entry]], Awaitable[list[Reply]]],
        read: Callable[[Entry, Reply], T | None],
    ) -> AsyncIterator[T]:
        """Yield what the entries of an index lead to, page by page; damaged rows are left out and logged.

        A page begins behind the last entry of the one before, whatever others have added or removed meanwhile.
        """
        place, seen = _Place(index.until if index.newest else None), set[str]()
        while True:
            entries = await self._page(index, place, page)
            replies = await fetch(entries) if entries else []
            gone: list[Entry] = []
            for entry, reply in zip(entries, replies, strict=True):
                if reply is _UNWANTED:
                    continue
                try:
                    found = read(entry, whole(reply))
                except CheckpointCorrupt as damage:
                    note_damage(damage)
                    continue
                if found is None:
                    gone.append(entry)
                elif entry.session not in seen:  # others may have moved it to a later page meanwhile
                    seen.add(entry.session)
                    yield found
            if gone:
                await self._forget(index, gone)
            if len(entries) < page:
                return
            if all(reply is _UNWANTED for reply in replies):
                page = min(4 * page, MOST)  # What is wanted may be behind thousands of others.
            place = place.behind([each for each in entries if each not in gone], entries[-1].score)

    async def _page(self, index: _Index, place: _Place, page: int) -> list[Entry]:
        start = None if place.score is None else repr(place.score)
        if index.newest:
            since = "-inf" if index.since is None else repr(index.since)
            command: Command = ("ZREVRANGEBYSCORE", index.key, start or "+inf", since)
        else:
            until = "+inf" if index.until is None else repr(index.until)
            command = ("ZRANGEBYSCORE", index.key, start or "-inf", until)
        reply: list[bytes] = await self._server.run(*command, "WITHSCORES", "LIMIT", place.skips, page)
        return [Entry(each.decode(), float(score)) for each, score in zip(reply[::2], reply[1::2], strict=True)]

    async def _forget(self, index: _Index, gone: Sequence[Entry]) -> int:
        rows = [session_keys(index.app, entry.session)[0] for entry in gone]
        return await self._server.script(FORGET, [index.key, *rows], *[entry.session.encode() for entry in gone])


def _in_place_of(entries: Sequence[Entry], chosen: Sequence[Entry], replies: Sequence[Reply]) -> list[Reply]:
    """Return for each entry the reply about it, if it was chosen."""
    found = dict(zip(chosen, replies, strict=True))
    return [found.get(each, _UNWANTED) for each in entries]


def _ref(session: str, app: str, reply: Reply) -> SessionRef | None:
    """Return the session of an id in an app, if there is one; also if it is damaged, which whoever reads it learns."""
    if isinstance(reply, CheckpointCorrupt):
        return SessionRef(session, app)
    name, user = reply
    return None if name is None else SessionRef(session, app, None if user is None else user.decode(errors="replace"))


class _Place(NamedTuple):
    """Where a page of an index begins: at a score (None for its end), behind so many entries of the same."""

    score: float | None
    skips: int = 0

    def behind(self, entries: Sequence[Entry], last: float) -> _Place:
        """Return where the page after these entries begins, whose last score is `last`."""
        return _Place(last, sum(each.score == last for each in entries) + (self.skips if last == self.score else 0))


class _Index(msgspec.Struct, frozen=True):
    """One index of an app, and which part of it is read in which order; `since` counts if that is newest first."""

    app: str
    name: str
    newest: bool = False
    until: float | None = None
    since: float | None = None

    @property
    def key(self) -> str:
        return index_prefix(self.app) + self.name


async def _merged(found: Sequence[AsyncIterator[T]], key: Callable[[T], Any]) -> AsyncIterator[T]:
    """Merge listings that are each in order."""
    heads = [(each, first) for each in found async for first in _first(each)]
    while heads:
        place = min(range(len(heads)), key=lambda number: key(heads[number][1]))
        source, head = heads[place]
        yield head
        following = [(source, each) async for each in _first(source)]
        heads[place : place + 1] = following


async def _first(found: AsyncIterator[T]) -> AsyncIterator[T]:
    try:
        yield await anext(found)
    except StopAsyncIteration:
        return
