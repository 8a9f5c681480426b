"""Listings of sessions, from sorted indexes.

Rows decide, an index only finds them. An entry may outlive its row, as on a server that removes keys when its memory is
full: it is removed when it is met.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from adjourn.errors import CheckpointCorrupt
from adjourn.stores._logging import note_damage
from adjourn.stores.kit.facts import FactSheet, FactsWanted
from adjourn.stores.kit.paging import Written, written, written_at
from adjourn.stores.kit.queries import ListDue, ListIdle, ListSessions
from adjourn.stores.kit.reading import readable
from adjourn.stores.kit.rows import (
    SessionRow,
    due,
    fits,
    has_status,
    is_live,
    is_wanted,
    may_be_removed,
    stored_statuses,
)
from adjourn.stores.types import OWN_APPS, Due, SessionRef

from ._keys import APPS, index_prefix, session_keys
from ._log import PAGE, page_size
from ._members import due_session, foreign
from ._reply import Found, whole
from ._rows import read_session
from ._server import FORGET, READ, Command, Reply, Server
from ._writes import facts_table, packed

T = TypeVar("T")

MOST = 2000
"""How many entries of an index are read in one trip at most, where others are wanted."""

_UNWANTED = object()
"""In place of the reply for a session that was not read."""


class Entry(NamedTuple):
    """What an index says: which session, and where it stands; `member` is that as it stands there."""

    session: str
    score: float
    member: bytes


class Listings:
    """Reads indexes in pages of rows."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def sessions(self, query: ListSessions, now: float) -> list[SessionRow]:
        """Return sessions, most recently written first."""
        user, status, limit = query.user, query.status, query.limit
        behind = None if query.after is None else written_at(query.after)

        async def chosen(page: int, since: float | None = None) -> AsyncIterator[SessionRow]:
            async for row in self._sessions(query, page, behind, since):
                if fits(row, query.app, user) and has_status(row, status) and (behind is None or written(row) < behind):
                    yield row

        found = await first(limit, chosen(page_size(limit)))
        if limit is None and behind is None:
            # Others may have written to some meanwhile, which moves them to the front.
            known = {(row.app, row.session) for row in found}
            found = [*[row async for row in chosen(10, now) if (row.app, row.session) not in known], *found]
        return found

    async def _sessions(
        self, query: ListSessions, page: int, behind: Written | None, since: float | None
    ) -> AsyncIterator[SessionRow]:
        until = None if behind is None else behind.updated
        names = [] if query.user is None else [f"sessions/{query.user}"]
        names += [] if query.status is None else [f"sessions={query.status}"]
        # Of equals, the last comes first: the apps in reverse, as the sessions of each are.
        found: list[AsyncIterator[tuple[float, SessionRow]]] = []
        for each in reversed(await self._apps(query.app)):
            name, *others = await self._shortest_first(each, names) if len(names) > 1 else names or ["sessions"]
            found.append(self._rows(_Index(each, name, True, until, since), page, others))
        async for _, row in _merged(found, lambda pair: -pair[1].updated):
            yield row

    async def idle(self, query: ListIdle, now: float) -> list[SessionRef]:
        """Return sessions without a live owner or any write for a while."""
        until, statuses = now - query.ttl, stored_statuses(query.statuses)
        names = ["sessions"] if statuses is None else [f"sessions={status}" for status in dict.fromkeys(statuses)]

        async def chosen() -> AsyncIterator[SessionRef]:
            for index in [_Index(app, name, until=until) for app in await self._apps(query.app) for name in names]:
                async for _, row in self._rows(index, PAGE):
                    is_idle = row.touched < until and not is_live(row, now)
                    if is_idle and fits(row, query.app, query.user) and may_be_removed(row, query.statuses, now):
                        yield row.ref

        return await first(query.limit, chosen())

    async def due(self, query: ListDue, now: float) -> list[Due]:
        """Return sessions that are due, longest first."""
        found = [self._due(each, query, now) for each in await self._apps(query.app)]

        async def chosen() -> AsyncIterator[Due]:
            async for _, facts in _merged(found, lambda pair: pair[0]):
                row = facts.row
                assert row is not None
                if fits(row, query.app, query.user) and is_wanted(row, query.programs, query.skip_users):
                    each = due(row, facts.waiting(), facts.first_input(), now)
                    if each is not None:
                        yield each

        return await first(query.limit, chosen())

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
        return [each for each in await names_in(self._server, APPS) if not each.startswith(OWN_APPS)]

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

    async def _due(self, app: str, query: ListDue, now: float) -> AsyncIterator[tuple[float, FactSheet]]:
        """Yield sessions that may be due, and since when; only those that are wanted are read as a whole."""
        wanted = FactsWanted(ref=SessionRef("", app), waiting=True, first_input=True)
        given = packed(facts_table(wanted) | {"now": now})
        selects = query.programs is not None or query.user is not None or query.skip_users

        async def fetch(entries: Sequence[Entry]) -> list[Reply]:
            chosen = await self._wanted(app, entries, query) if selects else entries
            calls = [(session_keys(app, each.session), given) for each in chosen]
            replies = await self._server.scripts(READ, calls, [each.session for each in chosen]) if calls else []
            return _in_place_of(entries, chosen, replies)

        def read(entry: Entry, reply: Reply) -> tuple[float, FactSheet] | None:
            facts = Found(reply, replace(wanted, ref=SessionRef(entry.session, app))).sheet()
            return None if facts.row is None else (entry.score, facts)

        async for found in self._read(_Index(app, "due", until=now), page_size(query.limit), fetch, read):
            yield found

    async def _wanted(self, app: str, entries: Sequence[Entry], query: ListDue) -> list[Entry]:
        """Return the entries of sessions whose program and user are wanted, and of those that are gone or damaged."""
        commands: list[Command] = [("HMGET", session_keys(app, each.session)[0], "program", "user") for each in entries]
        replies = await self._server.gather_rows(commands, [each.session for each in entries])

        def wants(program: bytes, user: bytes | None) -> bool:
            name = None if user is None else user.decode(errors="replace")
            is_known = query.programs is None or program.decode(errors="replace") in query.programs
            return is_known and query.user in (None, name) and name not in query.skip_users

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

        A page begins behind the last entry of the one before, even if others have added or removed some meanwhile.
        """
        place, seen = _Place(index.until if index.newest else None), set[str]()
        while True:
            every = await self._page(index, place, page)
            entries = list(readable(every, index.entry))
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
            if len(every) < page:
                return
            if all(reply is _UNWANTED for reply in replies):
                page = min(4 * page, MOST)  # What is wanted may be behind thousands of others.
            removed = {each.member for each in gone}
            place = place.behind([score for member, score in every if member not in removed], every[-1][1])

    async def _page(self, index: _Index, place: _Place, page: int) -> list[tuple[bytes, float]]:
        start = None if place.score is None else repr(place.score)
        if index.newest:
            since = "-inf" if index.since is None else repr(index.since)
            command: Command = ("ZREVRANGEBYSCORE", index.key, start or "+inf", since)
        else:
            until = "+inf" if index.until is None else repr(index.until)
            command = ("ZRANGEBYSCORE", index.key, start or "-inf", until)
        reply: list[bytes] = await self._server.run(*command, "WITHSCORES", "LIMIT", place.skips, page)
        return [(each, float(score)) for each, score in zip(reply[::2], reply[1::2], strict=True)]

    async def _forget(self, index: _Index, gone: Sequence[Entry]) -> int:
        rows = [session_keys(index.app, entry.session)[0] for entry in gone]
        return await self._server.script(FORGET, [index.key, *rows], *[entry.member for entry in gone])


def _in_place_of(entries: Sequence[Entry], chosen: Sequence[Entry], replies: Sequence[Reply]) -> list[Reply]:
    """Return for each entry the reply about it, if it was chosen."""
    found = dict(zip(chosen, replies, strict=True))
    return [found.get(each, _UNWANTED) for each in entries]


async def names_in(server: Server, key: str) -> list[str]:
    """Return the members of a set, in order; those that Adjourn has not written are left out and logged."""

    def read(member: bytes) -> str:
        try:
            return member.decode()
        except UnicodeDecodeError as error:
            raise foreign(key, member) from error

    return sorted(readable(await server.run("SMEMBERS", key), read))


def _ref(session: str, app: str, reply: Reply) -> SessionRef | None:
    """Return the session of an id in an app, if there is one, damaged or not."""
    if isinstance(reply, CheckpointCorrupt):
        return SessionRef(session, app)
    name, user = reply
    return None if name is None else SessionRef(session, app, None if user is None else user.decode(errors="replace"))


class _Place(NamedTuple):
    """Where a page of an index begins: at a score (None for its end), behind so many entries of the same."""

    score: float | None
    skips: int = 0

    def behind(self, scores: Sequence[float], last: float) -> _Place:
        """Return where the page after entries with these scores begins, the last of which is `last`."""
        return _Place(last, scores.count(last) + (self.skips if last == self.score else 0))


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

    def entry(self, found: tuple[bytes, float]) -> Entry:
        """Return a member with its score as an entry.

        Raises:
            CheckpointCorrupt: Adjourn has not written it.
        """
        member, score = found
        try:
            return Entry((due_session(member) if self.name == "due" else member).decode(), score, member)
        except ValueError as error:
            raise foreign(self.key, member) from error


async def _merged(found: Sequence[AsyncIterator[T]], key: Callable[[T], Any]) -> AsyncIterator[T]:
    """Merge listings that are each in order."""
    heads = [(each, one) for each in found for one in await first(1, each)]
    while heads:
        place = min(range(len(heads)), key=lambda number: key(heads[number][1]))
        source, head = heads[place]
        yield head
        heads[place : place + 1] = [(source, one) for one in await first(1, source)]


async def first(limit: int | None, found: AsyncIterator[T]) -> list[T]:
    """Return the first of what is found, without reading more pages than that takes."""
    chosen: list[T] = []
    if limit is None or limit > 0:
        async for each in found:
            chosen.append(each)
            if len(chosen) == limit:
                break
    return chosen
