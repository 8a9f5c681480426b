"""Watching a store: new questions and ended sessions, as they happen."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Literal, TypeAlias

import msgspec

from adjourn.events import Interrupt
from adjourn.stores.kit import ListQuestions, ListSessions
from adjourn.stores.protocol import Store
from adjourn.stores.types import Head, OpenQuestion, QuestionFilter

from ._news import news_of
from ._questions import questions_of, shown, shown_in_list
from ._status import status_of

POLL = (0.05, 1.0)
"""Seconds between polls of the store: the first after something was found, and the longest."""

MARGIN = 10.0
"""Seconds by which a write may become visible after others that carry a later time: clocks differ, commits queue."""

PAGE = 50
"""How many sessions are read at first; more, as long as all of them are new."""

QUESTIONS = 1000
"""How many open questions are read at once."""


class QuestionAsked(msgspec.Struct, frozen=True, kw_only=True):
    """A question was asked and waits for an answer."""

    interrupt: Interrupt

    @property
    def session_id(self) -> str:
        """The session that asks."""
        return self.interrupt.session_id


class SessionEnded(msgspec.Struct, frozen=True, kw_only=True):
    """A turn of a session has ended; a failed or cancelled one can be recovered.

    `program` is the address of what runs it.
    """

    session_id: str
    status: Literal["done", "failed", "cancelled"]
    checkpoint_id: str
    user_id: str | None = None
    program: str = ""


Notice: TypeAlias = QuestionAsked | SessionEnded
"""What a subscription reports."""


class QuestionClosed(msgspec.Struct, frozen=True, kw_only=True):
    """A question that was open before is not any more: it was answered, has expired, or was given up."""

    session_id: str
    id: str


class Watch:
    """Polls the sessions that were written since the last poll.

    Between two polls it remembers the state of every session that was written within `MARGIN` of the last write it has
    seen or that is being run, and which questions are open. Nothing else need be remembered: the store lists the most
    recently written first. A run whose process dies writes nothing, so those that run are looked at every time.
    """

    def __init__(self, store: Store, app: str | None, user: str | None) -> None:
        self._store = store
        self._app = app
        self._user = user
        self._since = 0.0
        self._stood: dict[tuple[str, str], tuple[str, str]] = {}
        self._asked: dict[tuple[str, str], set[tuple[str, str]]] = {}

    async def begin(self, *, report_open: bool) -> list[Notice]:
        """Note the current state; only what comes later is reported, unless `report_open` adds what is open."""
        heads = await self._store.read(ListSessions(app=self._app, user=self._user, limit=1))
        self._since = heads[0].updated if heads else 0.0
        for head in await self._recent_or_running():
            self._stood[head.app, head.session] = (head.checkpoint, status_of(head))
        notices: list[Notice] = []
        async for row in self._all_open():
            self._asked.setdefault((row.app, row.session), set()).add(_question_key(row))
            if report_open:
                notices += _asked([row])
        return notices

    async def _all_open(self) -> AsyncGenerator[OpenQuestion]:
        """Yield all open questions, page by page: there may be very many."""
        wanted, after = QuestionFilter(app=self._app, user=self._user), None
        while page := await self._store.read(ListQuestions(filter=wanted, after=after, limit=QUESTIONS)):
            for row in page:
                yield row
            after = page[-1].cursor

    async def look(self) -> list[Notice | QuestionClosed]:
        """Return what has happened since the last poll, oldest first."""
        notices: list[Notice | QuestionClosed] = []
        fresh: dict[tuple[str, str], tuple[str, str]] = {}
        for head in reversed(await self._recent_or_running()):
            key, stands = (head.app, head.session), (head.checkpoint, status_of(head))
            fresh[key] = stands
            if self._stood.get(key) != stands:
                notices += await self._news(head, key)
            self._since = max(self._since, head.updated)
        self._stood = fresh
        return notices

    async def _recent_or_running(self) -> list[Head]:
        """Return the sessions that may have changed, most recently written first."""
        recent = await self._recent()
        known = {(head.app, head.session) for head in recent}
        running = await self._store.read(ListSessions(app=self._app, user=self._user, status="running"))
        return recent + [head for head in running if (head.app, head.session) not in known]

    async def _recent(self) -> list[Head]:
        """Return the recently written sessions, most recent first."""
        found: dict[tuple[str, str], Head] = {}
        since, after = self._since - MARGIN, None
        while True:
            heads = await self._store.read(ListSessions(app=self._app, user=self._user, after=after, limit=PAGE))
            for head in heads:
                if head.updated >= since:
                    found.setdefault((head.app, head.session), head)
            if len(heads) < PAGE or heads[-1].updated < since:
                return list(found.values())
            after = heads[-1].cursor

    async def _news(self, head: Head, key: tuple[str, str]) -> list[Notice | QuestionClosed]:
        known = self._asked.pop(key, set[tuple[str, str]]())
        # Where nothing was open, only these can have begun to ask; questions of a cancelled session stay open.
        rows = await questions_of(self._store, head) if known or head.status in ("waiting", "running") else []
        if rows:
            self._asked[key] = {_question_key(row) for row in rows}
        over = sorted(known - {_question_key(row) for row in rows})
        found: list[Notice | QuestionClosed] = [QuestionClosed(session_id=head.session, id=name) for _, name in over]
        found += _asked([row for row in rows if _question_key(row) not in known])
        status = status_of(head)
        if status in ("done", "failed", "cancelled"):
            found.append(
                SessionEnded(
                    session_id=head.session,
                    status=status,
                    checkpoint_id=head.checkpoint,
                    user_id=head.user,
                    program=head.program,
                )
            )
        return found


def _asked(rows: list[OpenQuestion]) -> list[Notice]:
    return [QuestionAsked(interrupt=asked) for asked in shown_in_list(rows, shown)]


def _question_key(row: OpenQuestion) -> tuple[str, str]:
    """Return what distinguishes a question within its session: on another branch the same id is a new question."""
    return row.checkpoint.rpartition(".")[0], row.id


async def batches(
    store: Store, app: str | None, user: str | None, *, report_open: bool
) -> AsyncGenerator[list[Notice | QuestionClosed]]:
    """Report what happens in a store, for as long as the caller reads: at first what is open, if that is wanted."""
    watched = Watch(store, app, user)
    async with news_of(store, None if app is None else (app, None)) as news:
        pause = POLL[0]
        yield [*await watched.begin(report_open=report_open)]
        while True:
            # There may be a hint for every commit; looking at all sessions that often would be too much.
            await asyncio.sleep(POLL[0])
            await news.wait(POLL[1] if news.has_hints else pause - POLL[0])
            notices = await watched.look()
            pause = POLL[0] if notices else min(2 * pause, POLL[1])
            if notices:
                yield notices


async def watch(store: Store, app: str | None, user: str | None, *, report_open: bool) -> AsyncGenerator[Notice]:
    """Report new questions and ended sessions, for as long as the caller reads."""
    async with contextlib.aclosing(batches(store, app, user, report_open=report_open)) as reported:
        async for batch in reported:
            for notice in batch:
                if not isinstance(notice, QuestionClosed):
                    yield notice
