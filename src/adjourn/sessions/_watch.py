"""Watching a store: new questions and ended sessions, as they happen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Literal, TypeAlias

import msgspec

from adjourn.errors import CheckpointCorrupt
from adjourn.events import Interrupt
from adjourn.stores._logging import note_damage
from adjourn.stores.kit import readable
from adjourn.stores.protocol import Head, OpenQuestion, Store

from ._questions import shown
from ._status import status_of

POLL = (0.05, 1.0)
"""Seconds between polls of the store: the first after something was found, and the longest."""

MARGIN = 10.0
"""Seconds by which a write may become visible after others that carry a later time: clocks differ, commits queue."""

PAGE = 50
"""How many sessions are read at first; more, as long as all of them are new."""


class QuestionAsked(msgspec.Struct, frozen=True, kw_only=True):
    """A question was asked and waits for an answer."""

    interrupt: Interrupt

    @property
    def session_id(self) -> str:
        """The session that asks."""
        return self.interrupt.session_id


class SessionEnded(msgspec.Struct, frozen=True, kw_only=True):
    """A turn of a session has ended; a failed or cancelled one can be recovered."""

    session_id: str
    status: Literal["done", "failed", "cancelled"]
    checkpoint_id: str
    user_id: str | None = None


Notice: TypeAlias = QuestionAsked | SessionEnded
"""What a subscription reports."""


class Watch:
    """Polls the sessions that were written since the last poll.

    Between two polls it remembers the state of every session that was written within `MARGIN` of the last write it has
    seen, and which questions are open. Nothing else need be remembered: the store lists the most recently written
    first.
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
        heads = await self._store.sessions(app=self._app, user=self._user, limit=1)
        self._since = heads[0].updated if heads else 0.0
        for head in await self._recent():
            self._stood[head.app, head.session] = (head.checkpoint, status_of(head))
        notices: list[Notice] = []
        for row in await self._store.questions(app=self._app, user=self._user):
            self._asked.setdefault((row.app, row.session), set()).add(_question_key(row))
            notices += _asked([row])
        return notices if report_open else []

    async def look(self) -> list[Notice]:
        """Return what has happened since the last poll, oldest first."""
        notices: list[Notice] = []
        fresh: dict[tuple[str, str], tuple[str, str]] = {}
        for head in reversed(await self._recent()):
            key, stands = (head.app, head.session), (head.checkpoint, status_of(head))
            fresh[key] = stands
            if self._stood.get(key) != stands:
                notices += await self._news(head, key)
            self._since = max(self._since, head.updated)
        self._stood = fresh
        return notices

    async def _recent(self) -> list[Head]:
        """Return the recently written sessions, most recent first."""
        limit, since = PAGE, self._since - MARGIN
        while True:
            heads = await self._store.sessions(app=self._app, user=self._user, limit=limit)
            if len(heads) < limit or heads[-1].updated < since:
                return [head for head in heads if head.updated >= since]
            limit *= 4

    async def _open_questions(self, head: Head) -> list[OpenQuestion]:
        try:
            return await self._store.questions(head.ref)
        except CheckpointCorrupt as damage:
            note_damage(damage)
            return []

    async def _news(self, head: Head, key: tuple[str, str]) -> list[Notice]:
        rows = await self._open_questions(head) if head.status in ("waiting", "running") else []
        known = self._asked.pop(key, set[tuple[str, str]]())
        if rows:
            self._asked[key] = {_question_key(row) for row in rows}
        found = _asked([row for row in rows if _question_key(row) not in known])
        status = status_of(head)
        if status in ("done", "failed", "cancelled"):
            found.append(
                SessionEnded(session_id=head.session, status=status, checkpoint_id=head.checkpoint, user_id=head.user)
            )
        return found


def _asked(rows: list[OpenQuestion]) -> list[Notice]:
    return [QuestionAsked(interrupt=asked) for asked in readable(rows, shown)]


def _question_key(row: OpenQuestion) -> tuple[str, str]:
    """Return what distinguishes a question within its session: on another branch the same id is a new question."""
    return row.checkpoint.rpartition(".")[0], row.id


async def watch(store: Store, app: str | None, user: str | None, *, report_open: bool) -> AsyncGenerator[Notice]:
    """Report what happens in a store, for as long as the caller reads."""
    watched = Watch(store, app, user)
    notices, pause = await watched.begin(report_open=report_open), POLL[0]
    while True:
        for notice in notices:
            yield notice
        pause = POLL[0] if notices else min(2 * pause, POLL[1])
        await asyncio.sleep(pause)
        notices = await watched.look()
