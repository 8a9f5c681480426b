"""Requests and queries as statements, over connections of the store's own or a transaction of its user."""

# An override is documented where it is declared.

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import Any, TypeVar

from adjourn.errors import CheckpointCorrupt
from adjourn.stores.kit.effects import Applied, Effects, renewal_of
from adjourn.stores.kit.facts import FactSheet, FactsWanted
from adjourn.stores.kit.inbox import Stretch, stretches, terms_in
from adjourn.stores.kit.paging import Written, written_at
from adjourn.stores.kit.queries import (
    CountQuestions,
    FindSessions,
    ListBegun,
    ListDecisions,
    ListDue,
    ListIdle,
    ListQuestions,
    ListSessions,
    StoreQuery,
)
from adjourn.stores.kit.reading import notice_row, readable, session_row
from adjourn.stores.kit.requests import Delete, DropNotices, SettleNotice, StoreRequest, TakeNotices
from adjourn.stores.kit.rows import NoticeRow, due_for, head_of, notice_of, stored_statuses
from adjourn.stores.kit.store import RemoteStore, unknown_request
from adjourn.stores.types import Begun, Due, Head, Lease, OpenQuestion, QuestionFilter, Renewed, SessionRef

from . import _decided as decisions
from . import _facts as facts
from . import _inbox as inbox
from . import _queries as sql
from ._driver import ExceedsIndex
from ._facts import Row, limit_of
from ._schema import quoted
from ._writes import Statement, renewal_statement, statement_of, too_long

T = TypeVar("T")


class PostgresRequests(RemoteStore):
    """Carries out every request and query as one statement; who runs it is up to the subclass."""

    def __init__(self, schema: str) -> None:
        super().__init__()
        self._schema = quoted(schema).replace("%", "%%")  # what follows a single one is a parameter
        self._texts: dict[str, bytes] = {}

    @abstractmethod
    async def fetch(
        self, statement: bytes, values: Mapping[str, Any], *, session: str | None = None, reserved: bool = False
    ) -> list[Row]:
        """Run a statement and return its rows; `session` is the one that it concerns, if it is only one.

        One with `reserved` must not wait for others to give a connection back.
        """

    @abstractmethod
    async def try_to(self, statement: bytes, values: Mapping[str, Any], session: str) -> list[Row]:
        """Run a statement that writes; no row if another transaction was in the way."""

    async def _rows(
        self, query: str, values: Mapping[str, Any], *, session: str | None = None, reserved: bool = False
    ) -> list[Row]:
        text = self._texts.get(query)
        if text is None:
            text = self._texts[query] = query.replace("{schema}", self._schema).encode()
        return await self.fetch(text, values, session=session, reserved=reserved)

    # One session

    async def facts(self, wanted: FactsWanted) -> FactSheet:
        text, values = facts.statement_of(wanted)
        (row,) = await self._rows(text, values, session=wanted.ref.id)
        return facts.fact_sheet(wanted, row)

    async def apply(self, effects: Effects) -> Applied | None:
        try:
            return await self._write(statement_of(self._schema, effects), effects.ref)
        except ExceedsIndex as error:
            raise too_long(effects, error) from error.__cause__

    async def _write(self, statement: Statement, ref: SessionRef) -> Applied | None:
        rows = await self.try_to(*statement, ref.id)
        return Applied(*rows[0]) if rows else None

    async def remove_damaged(self, request: Delete, damage: CheckpointCorrupt) -> bool:
        ref = request.ref
        return bool(await self._rows(sql.REMOVE, {"app": ref.app, "id": ref.id, "user": ref.user}, session=ref.id))

    # Leases

    async def renew(self, leases: Sequence[Lease]) -> list[Renewed]:
        kept = [lease for lease in leases if lease.ttl]
        more = {"owners": [lease.owner for lease in kept], "ttls": [float(lease.ttl) for lease in kept]}
        rows = await self._rows(sql.RENEW, _of_leases(kept) | more, reserved=True)
        held: dict[int, tuple[str | None, bool]] = {place: (cancel, not renewed) for place, cancel, renewed in rows}
        states = {lease: _renewed(lease, held.get(place)) for place, lease in enumerate(kept, 1)}
        # One that is given back is not left out while somebody writes to its session.
        return [states[lease] if lease.ttl else await self._give_back(lease) for lease in leases]

    async def _give_back(self, lease: Lease) -> Renewed:
        self.forget(lease.ref)
        applied = await self._write(renewal_statement(self._schema, lease.ref, *renewal_of(lease)), lease.ref)
        if applied is None:
            return Renewed(ref=lease.ref, lost=True)
        self.hint(lease.ref)
        return Renewed(ref=lease.ref, lost=False, cancel=applied.cancel)

    async def cancels(self, leases: Sequence[Lease]) -> list[str | None]:
        rows = await self._rows(sql.CANCELS, _of_leases(leases), reserved=True)
        found: dict[int, str] = dict(rows)
        return [found.get(place) for place in range(1, len(leases) + 1)]

    # The outbox

    async def outbox(self, request: StoreRequest[Any]) -> Any:
        match request:
            case TakeNotices(app, to, ttl, limit):
                given = {"app": app, "to": list(to), "ttl": float(ttl), "limit": limit_of(limit)}
                rows = await self._rows(sql.TAKE_NOTICES, given)
                return [notice_of(each) for each in readable(sorted(rows, key=itemgetter(0)), _notice)]
            case SettleNotice(taken, again):
                query = sql.NOTICE_SENT if again is None else sql.PUT_NOTICE_OFF
                after = {} if again is None else {"again": float(again)}
                return bool(await self._rows(query, {"id": taken.id, "attempt": taken.attempt, **after}))
            case DropNotices(app, age):
                ((count,),) = await self._rows(sql.DROP_NOTICES, {"app": app, "age": float(age)})
                return count
            case _:
                raise unknown_request(self, request)

    # Listings over many sessions

    async def listing(self, query: StoreQuery[Any]) -> Any:
        match query:
            case ListSessions(app=app, user=user, status=status, after=after, limit=limit):
                place = Written(math.inf, "", "") if after is None else written_at(after)
                behind = {"updated": place.updated, "last_app": place.app, "last_id": place.session}
                return await self._list(sql.SESSIONS, _head, limit, app=app, user=user, status=status, **behind)
            case FindSessions(id, user):
                return await self._list(sql.FIND, _ref, None, id=id, app=None, user=user)
            case ListQuestions():
                return await self._questions(query)
            case CountQuestions(filter):
                terms, _ = await self._ways(filter)
                ((count,),) = await self._rows(inbox.COUNT, inbox.values(filter, Stretch.ASKED.begin, terms))
                return count
            case ListDecisions(filter=filter, after=after, limit=limit):
                text, values = decisions.statement_of(filter, after)
                return await self._list(text, decisions.read, limit, **values)
            case ListDue(app=app, user=user, programs=programs, skip_users=skipped, limit=limit):
                wanted = None if programs is None else list(programs)
                chosen = {"app": app, "user": user, "programs": wanted, "skip_users": list(skipped) or None}
                return await self._list(sql.DUE, _due, limit, **chosen)
            case ListIdle(ttl, app, user, statuses, limit):
                stored = stored_statuses(statuses)
                chosen = {} if stored is None else {"statuses": list(statuses or ()), "stored": list(stored)}
                return await self._list(sql.IDLE, _ref, limit, app=app, user=user, ttl=float(ttl), **chosen)
            case ListBegun(digest):
                return [Begun(*row) for row in await self._rows(sql.BEGUN, {"digest": digest})]
            case _:
                raise unknown_request(self, query)

    async def _questions(self, query: ListQuestions) -> list[OpenQuestion]:
        places, limit = stretches(query.order, query.after), query.limit
        terms, is_expiring_shorter = await self._ways(query.filter)
        found: list[OpenQuestion] = []
        for behind in places:
            left = None if limit is None else limit - len(found)
            if left == 0:
                break
            text = inbox.list_of(behind.stretch, is_expiring_shorter=is_expiring_shorter)
            read = partial(inbox.open_question, behind.stretch)
            found += await self._list(text, read, left, **inbox.values(query.filter, behind, terms))
        return found

    async def _ways(self, filter: QuestionFilter) -> tuple[list[str], bool]:
        """Return the terms of a filter, the rarest first, and whether fewer questions than have it expire in time."""
        terms, expires = terms_in(filter), filter.expires_before is not None
        if len(terms) == 1 and not expires:
            return terms, False
        *lengths, expiring = [length for (length,) in await self._rows(inbox.WAYS, inbox.ways(filter, terms))]
        ordered = sorted(zip(lengths, terms, strict=True), key=itemgetter(0))
        return [term for _, term in ordered], expires and expiring < ordered[0][0]

    async def _list(self, query: str, read: Callable[[Row], T], limit: int | None, **filters: Any) -> list[T]:
        """Read as many rows as are wanted; damaged ones are left out, and do not count."""
        rows = await self._listing(query, limit=limit_of(limit), **filters)
        found = list(readable(rows, read))
        if limit is None or len(found) == len(rows):
            return found
        return list(islice(readable(await self._listing(query, limit=None, **filters), read), limit))

    async def _listing(self, query: str, **given: Any) -> list[Row]:
        text = query.replace("<filters>", sql.filters(given))
        return await self._rows(text, given, session=given.get("id"))


def _head(values: Row) -> Head:
    return head_of(session_row(values[1:]), values[0])


def _ref(values: Row) -> SessionRef:
    return session_row(values).ref


def _notice(values: Row) -> NoticeRow:
    return notice_row(values[1:])  # the first is when it was due before


def _due(values: Row) -> Due:
    why, since, *columns = values
    return due_for(session_row(columns), why, since)


def _renewed(lease: Lease, held: tuple[str | None, bool] | None) -> Renewed:
    if held is None:
        return Renewed(ref=lease.ref, lost=True)
    return Renewed(ref=lease.ref, lost=False, cancel=held[0], skipped=held[1])


def _of_leases(leases: Sequence[Lease]) -> dict[str, list[Any]]:
    return {
        "apps": [lease.ref.app for lease in leases],
        "ids": [lease.ref.id for lease in leases],
        "users": [lease.ref.user for lease in leases],
        "fences": [lease.fence for lease in leases],
    }
