"""The inbox: for each term by which a question can be selected, a sorted set of the open ones by when they were asked.

Another one has those that expire, by when they do.

What a filter selects has all of its terms. The shortest of their sets is gone through in pages; the others only say
whether they have an entry, too, so that no question is read in vain.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TypeAlias

from adjourn.errors import CheckpointCorrupt
from adjourn.stores._logging import note_damage
from adjourn.stores.kit import QuestionRow, SessionRow, is_listed, open_question, readable, terms_in
from adjourn.stores.kit.inbox import Place, Stretch, kind_of
from adjourn.stores.types import OpenQuestion, QuestionFilter

from ._keys import QUESTIONS, ROW, WAITING, session_keys
from ._members import Entry, entry_of, foreign
from ._reply import read_question, whole
from ._rows import read_session
from ._server import Command, Server

PAGES = (25, 200)
"""How many entries are read in one trip: at first, and at most. Most callers want a page of a few."""

MOST_SORTED = 10_000
"""How many questions that expire in time are put in the order of asking here; more are found in that order."""


class Inbox:
    """Reads the inbox."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def questions(
        self, filter: QuestionFilter, places: Sequence[Place], now: float
    ) -> AsyncIterator[OpenQuestion]:
        """Yield the open questions that a filter selects, behind the place where each stretch of the list begins."""
        for behind in places:
            async for page in self._matches(filter, behind, now):
                for row, asked, place in await self._read(page, behind.stretch):
                    if is_listed(row, asked, filter, now):
                        yield open_question(row, asked, place)

    async def count(self, filter: QuestionFilter, now: float) -> int:
        """Return how many open questions a filter selects."""
        terms = _keys(filter)
        if len(terms) == 1 and filter.expires_before is None:
            low, high = _bounds(filter)
            found: int = await self._server.run("ZCOUNT", terms[0], low, high)
            return found - await self._expired(terms[0], filter, now)
        return sum([len(page) async for page in self._matches(filter, Stretch.ASKED.begin, now)])

    async def _expired(self, term: str, filter: QuestionFilter, now: float) -> int:
        """Return how many questions of a term have expired, and are still open."""
        count, start, key = 0, 0, _expiring(kind_of(filter.app or ""))
        while True:
            members = await self._server.run("ZRANGEBYSCORE", key, "-inf", repr(now), "LIMIT", start, PAGES[1])
            if not members:
                return count
            asked: list[bytes | None] = await self._server.run("ZMSCORE", term, *members)
            count += sum(each is not None and _is_asked_then(filter, float(each)) for each in asked)
            start += len(members)

    async def _matches(self, filter: QuestionFilter, behind: Place, now: float) -> AsyncIterator[list[Entry]]:
        """Yield pages of entries that have all terms of a filter, and have not expired."""
        stretch, after = behind.stretch, (behind.time, behind.no)
        if stretch is Stretch.EXPIRING:
            keys, bounds = [_expiring(each) for each in terms_in(filter)], (f"({now!r}", _expires_before(filter))
            async for page in walk(self._server, keys, bounds, after):
                yield [entry for entry, _ in page]
            return
        if stretch is Stretch.LASTING and filter.expires_before is not None:
            return
        if await self._expire_soon(filter, now):
            entries = await self._by_age(filter, after, now)
            yield entries[: PAGES[0]]
            for start in range(PAGES[0], len(entries), PAGES[1]):
                yield entries[start : start + PAGES[1]]
            return
        beside = _expiring(kind_of(filter.app or ""))
        async for page in walk(self._server, _keys(filter), _bounds(filter), after, beside=beside):
            wanted = [(entry, expiry) for entry, expiry in page if _is_in_time(filter, expiry, now)]
            yield [entry for entry, expiry in wanted if expiry is None or stretch is Stretch.ASKED]

    async def _expire_soon(self, filter: QuestionFilter, now: float) -> bool:
        """Return whether few of the questions that a filter selects expire in time, so that they are found by that."""
        if filter.expires_before is None:
            return False
        terms, bounds = terms_in(filter), (f"({now!r}", _expires_before(filter))
        soon = await self._server.gather([("ZCOUNT", _expiring(each), *bounds) for each in terms])
        sizes = await self._server.gather([("ZCARD", each) for each in _keys(filter)])
        return 10 * min(soon) < min(sizes) and min(soon) <= MOST_SORTED

    async def _by_age(self, filter: QuestionFilter, after: tuple[float, int], now: float) -> list[Entry]:
        """Return the entries that expire in time and have all terms of a filter, in the order of asking."""
        keys, bounds = [_expiring(each) for each in terms_in(filter)], (f"({now!r}", _expires_before(filter))
        found: list[Entry] = []
        async for page in walk(self._server, keys, bounds, None, beside=_keys(filter)[0]):
            found += [entry._replace(time=float(asked)) for entry, asked in page if asked is not None]
        wanted = [each for each in found if _is_asked_then(filter, each.time) and (each.time, each.no) > after]
        return sorted(wanted, key=lambda each: (each.time, each.no))

    async def _read(self, entries: Sequence[Entry], stretch: Stretch) -> list[tuple[SessionRow, QuestionRow, Place]]:
        commands: list[Command] = []
        for entry in entries:
            at = session_keys(entry.app, entry.session)
            row, asked, waiting = at[ROW - 1], at[QUESTIONS - 1], at[WAITING - 1]
            commands += [("HGETALL", row), ("HGET", asked, f":{entry.field}"), ("ZSCORE", waiting, entry.field)]
        sessions = [entry.session for entry in entries for _ in range(3)]
        replies = await self._server.gather_rows(commands, sessions) if commands else []
        found: list[tuple[SessionRow, QuestionRow, Place]] = []
        for entry, row, asked, score in zip(entries, replies[::3], replies[1::3], replies[2::3], strict=True):
            try:
                if whole(row):
                    question = read_question((entry.field.encode(), whole(asked), whole(score)), entry.session)
                    place = stretch.place(question)
                    if place is None or place.time != entry.time:
                        raise CheckpointCorrupt(
                            f"its question '{question.id}' is elsewhere in the index", entry.session
                        )
                    found.append((read_session(row, entry.session), question, place))
            except CheckpointCorrupt as damage:
                note_damage(damage)
        return found


def _keys(filter: QuestionFilter) -> list[str]:
    return [f"adj:inbox:{term}" for term in terms_in(filter)]


def _expiring(term: str) -> str:
    return f"adj:expiring:{term}"


def _expires_before(filter: QuestionFilter) -> str:
    return "+inf" if filter.expires_before is None else f"({float(filter.expires_before)!r}"


def _bounds(filter: QuestionFilter) -> tuple[str, str]:
    low = "-inf" if filter.asked_after is None else repr(float(filter.asked_after))
    high = "+inf" if filter.asked_before is None else f"({float(filter.asked_before)!r}"
    return low, high


def _is_asked_then(filter: QuestionFilter, asked: float) -> bool:
    is_after = filter.asked_after is None or asked >= filter.asked_after
    return is_after and (filter.asked_before is None or asked < filter.asked_before)


def _is_in_time(filter: QuestionFilter, expiry: bytes | None, now: float) -> bool:
    if expiry is None:
        return filter.expires_before is None
    return float(expiry) > now and (filter.expires_before is None or float(expiry) < filter.expires_before)


Found: TypeAlias = "tuple[Entry, bytes | None]"
"""An entry, with its score in another set."""


async def walk(
    server: Server,
    keys: Sequence[str],
    bounds: tuple[str, str],
    behind: tuple[float, int] | None,
    *,
    beside: str | None = None,
    backwards: bool = False,
) -> AsyncIterator[list[Found]]:
    """Yield pages of the entries behind a place that all of these sorted sets have, with their scores in another one.

    The shortest set is gone through; the others only say whether they have an entry, too.
    """
    sizes = await server.gather([("ZCARD", each) for each in keys])
    first, *others = [key for _, key in sorted(zip(sizes, keys, strict=True))]
    ends, start, size = list(bounds), 0, PAGES[0]  # the lowest and the highest score
    near = int(backwards)  # which of the two is where the walk begins
    if behind is not None and _is_further(behind[0], ends[near], backwards=backwards):
        ends[near] = repr(behind[0])
    while True:
        span = ("ZREVRANGEBYSCORE", first, ends[1], ends[0]) if backwards else ("ZRANGEBYSCORE", first, *ends)
        found: list[bytes] = await server.run(*span, "WITHSCORES", "LIMIT", start, size)
        every = list(zip(found[::2], found[1::2], strict=True))
        entries = list(readable(every, lambda each: _entry(first, *each)))
        new = [each for each in entries if behind is None or _is_behind(each, behind, backwards=backwards)]
        yield await _with_all(server, new, others, beside)
        if len(every) < size:
            return
        size = min(2 * size, PAGES[1])
        # Not simply `start + size`: questions before it may be answered meanwhile.
        last = float(every[-1][1])
        start = sum(float(score) == last for _, score in every) + (start if ends[near] == repr(last) else 0)
        ends[near] = repr(last)
        if new:
            behind = new[-1].time, new[-1].no


def _is_further(score: float, end: str, *, backwards: bool) -> bool:
    given = float(end.removeprefix("("))
    return score < given if backwards else score >= given


def _is_behind(entry: Entry, place: tuple[float, int], *, backwards: bool) -> bool:
    own = entry.time, entry.no
    return own < place if backwards else own > place


async def _with_all(server: Server, entries: Sequence[Entry], keys: Sequence[str], beside: str | None) -> list[Found]:
    """Return the entries that all of these sets have, with their scores in the one beside them."""
    if not entries:
        return []
    members = [each.member for each in entries]
    wanted = [*keys, *([] if beside is None else [beside])]
    columns = await server.gather([("ZMSCORE", key, *members) for key in wanted]) if wanted else []
    found: list[Found] = []
    for place, entry in enumerate(entries):
        scores: list[bytes | None] = [column[place] for column in columns]
        if None not in scores[: len(keys)]:
            found.append((entry, None if beside is None else scores[-1]))
    return found


def _entry(key: str, member: bytes, score: bytes) -> Entry:
    try:
        return entry_of(member, float(score))
    except ValueError as error:
        raise foreign(key, member) from error
