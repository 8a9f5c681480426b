"""The verbs of the store, over whatever runs a statement: connections of its own, or a transaction of its user."""

# An override is documented where it is declared.

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from operator import itemgetter
from typing import Any, TypeVar

import msgspec

from adjourn._values.damage import Reading
from adjourn.errors import CheckpointCorrupt, CheckpointNotFound
from adjourn.stores.kit.effects import Applied, Effects
from adjourn.stores.kit.facts import FactSheet, Point, Query
from adjourn.stores.kit.inbox import in_app_of, listed
from adjourn.stores.kit.paging import Written, written_at
from adjourn.stores.kit.reading import (
    Columns,
    Count,
    branch_rows,
    converted,
    input_row,
    points,
    question_row,
    readable,
    record_row,
    session_row,
    taken_notice,
)
from adjourn.stores.kit.requests import Delete
from adjourn.stores.kit.rows import (
    EARLIEST,
    LATEST,
    Branch,
    QuestionRow,
    RecordRow,
    SessionRow,
    answered,
    audit_entry,
    damaged_record,
    decode_header,
    due_for,
    head_of,
    id_at,
    lies_under,
    listed_row,
    locate,
    queued_input,
    stored_record,
)
from adjourn.stores.kit.store import RemoteStore
from adjourn.stores.types import (
    ALL_QUESTIONS,
    AuditEntry,
    Begun,
    CheckpointRow,
    Due,
    EventBatch,
    Head,
    Lease,
    Loaded,
    OpenQuestion,
    QuestionFilter,
    QueuedInput,
    Renewed,
    SessionRef,
    Status,
    StoredRecord,
    TakenNotice,
)

from . import _inbox as inbox
from . import _outbox as outbox
from . import _queries as sql
from ._driver import ExceedsIndex
from ._plain import Plain, plain_of, step_of
from ._schema import quoted
from ._text import unescaped
from ._writes import call_of, too_long

T = TypeVar("T")
Row = tuple[Any, ...]

_MOST = 2**62  # Postgres cannot count further
_S = sql.SESSION_COLUMNS


class PostgresVerbs(RemoteStore):
    """Every verb as one statement; who runs it is up to the subclass."""

    keeps_plans: bool = False
    """Whether the server keeps the plan of a statement that it is sent often, and nobody minds one that fails."""

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

    async def _one(self, query: str, ref: SessionRef, **values: Any) -> Row | None:
        rows = await self._rows(query, _named(ref) | values, session=ref.id)
        return rows[0] if rows else None

    async def _found(self, query: str, ref: SessionRef, **values: Any) -> Row:
        row = await self._one(query, ref, **values)
        if row is None:
            raise CheckpointNotFound(ref.id)
        return row

    # Reading facts, and applying effects

    async def facts(self, query: Query) -> FactSheet:
        ref, ids = query.ref, [_number(each) for each in query.records]
        wanted = [each for each in ids if each is not None]
        text = sql.facts(
            questions=bool(query.questions),
            waiting=query.waiting,
            inputs=bool(query.inputs) or query.first_input,
            branches=query.branches,
            records=bool(query.records),
            log=query.log,
        )
        row = await self._one(
            text,
            ref,
            questions=list(query.questions),
            inputs=list(query.inputs),
            branches=[name for name, _ in wanted],
            numbers=[number for _, number in wanted],
        )
        assert row is not None
        return _fact_sheet(query, row)

    async def apply(self, ref: SessionRef, effects: Effects) -> Applied | None:
        try:
            rows = await self._write(ref, effects)
        except ExceedsIndex as error:
            raise too_long(ref, effects, error) from error.__cause__
        return Applied(*rows[0]) if rows else None

    async def _write(self, ref: SessionRef, effects: Effects) -> list[Row]:
        plain = step_of(self._schema, ref, effects)
        if plain is None and self.keeps_plans:
            plain = plain_of(self._schema, ref, effects)
        if plain is not None:
            rows = await self._try_plainly(plain, ref)
            if rows or plain.is_final:
                return rows
        return await self.try_to(*call_of(self._schema, ref, effects), ref.id)

    async def _try_plainly(self, plain: Plain, ref: SessionRef) -> list[Row]:
        try:
            return await self.try_to(plain.statement, plain.values, ref.id)
        except CheckpointCorrupt:
            if plain.is_final:
                raise
            return []  # a row was in its way

    async def idle(
        self,
        ttl: float,
        *,
        app: str | None,
        user: str | None,
        statuses: Sequence[Status] | None,
        limit: int | None,
    ) -> list[SessionRef]:
        chosen: dict[str, Any] = {}
        if statuses is not None:
            chosen = {"statuses": list(statuses), "stored": sql.stored_statuses(statuses)}
        return await self._list(
            sql.IDLE, lambda row: session_row(row).ref, limit, app=app, user=user, ttl=float(ttl), **chosen
        )

    async def delete(self, ref: SessionRef) -> None:
        try:
            await self.carry_out(Delete(ref=ref))
        except CheckpointCorrupt:
            # A damaged row does not say who runs the session. Whoever deletes it wants it gone.
            await self._one(sql.REMOVE, ref)

    async def renew(self, leases: Sequence[Lease]) -> list[Renewed]:
        kept = [lease for lease in leases if lease.ttl]
        more = {"owners": [lease.owner for lease in kept], "ttls": [float(lease.ttl) for lease in kept]}
        rows = await self._rows(sql.RENEW, _of_leases(kept) | more, reserved=True)
        held: dict[int, tuple[str | None, bool]] = {place: (cancel, not renewed) for place, cancel, renewed in rows}
        states = {lease: _renewed(lease, held.get(place)) for place, lease in enumerate(kept, 1)}
        # One that is given back is not left out while somebody writes to its session.
        return [states[lease] if lease.ttl else await self._renew(lease) for lease in leases]

    async def cancels(self, leases: Sequence[Lease]) -> list[str | None]:
        rows = await self._rows(sql.CANCELS, _of_leases(leases), reserved=True)
        found: dict[int, str] = dict(rows)
        return [found.get(place) for place in range(1, len(leases) + 1)]

    # Reading one session

    async def load(self, ref: SessionRef, checkpoint: str | None = None) -> Loaded | None:
        query = sql.LOAD_HEAD if checkpoint is None else sql.LOAD_POINT
        found = await self._one(query, ref, **_place(checkpoint))
        if found is None:
            return None
        row = session_row(found[1 : 1 + _S])
        self.note_loaded(row)
        return None if checkpoint is None and row.pos < 0 else _loaded(found, row, checkpoint)

    async def head(self, ref: SessionRef) -> Head | None:
        row = await self._one(sql.HEAD, ref)
        return None if row is None else head_of(session_row(row[1:]), row[0])

    async def checkpoints(
        self,
        ref: SessionRef,
        *,
        limit: int | None = None,
        before: str | None = None,
        source: str | None = None,
        under: str | None = None,
    ) -> list[CheckpointRow]:
        query = sql.ALL_CHECKPOINTS if before is None else sql.CHECKPOINTS_BEFORE
        most = None if under else _limit(limit)
        found = await self._found(query, ref, **_place(before), source=source, limit=most)
        row, known, rest = session_row(found[:_S]), found[_S : _S + 4], found[_S + 4 :]
        if rest[0] is None:
            raise CheckpointNotFound(row.session, before)
        branches = _branches(_zipped(known), row)
        listed = (listed_row(*id_at(branches, pos), at, header) for pos, at, header in _zipped(rest[1:]))
        return list(islice((each for each in listed if lies_under(each.header.address, under or "")), limit))

    async def events(self, ref: SessionRef, after: int = 0, *, limit: int | None = None) -> list[EventBatch]:
        found = await self._found(sql.EVENTS, ref, after=min(after, _MOST), limit=_limit(limit))
        row = session_row(found[:_S])
        known = _branches(_zipped(found[_S : _S + 4]), row)
        return [_batch(values, known, row) for values in _zipped(found[_S + 4 :])]

    async def records(
        self, ref: SessionRef, *, after: str | None = None, limit: int | None = None
    ) -> list[StoredRecord]:
        query = sql.ALL_RECORDS if after is None else sql.RECORDS_AFTER
        found = await self._found(query, ref, **_place(after), limit=_limit(limit))
        row, known, rest = session_row(found[:_S]), found[_S : _S + 4], found[_S + 4 :]
        if rest[0] is None:
            raise CheckpointNotFound(row.session, after)
        branches = _branches(_zipped(known), row)
        return [_stored(id_at(branches, pos), pos, values, row) for pos, *values in _zipped(rest[1:])]

    async def audit(
        self, ref: SessionRef, branch: str | None = None, *, all_branches: bool = False
    ) -> list[AuditEntry]:
        asked = await self._asked(sql.AUDIT_ALL if all_branches else sql.AUDIT, ref, branch)
        return list(readable(asked, _audit_entry))

    async def asked(self, ref: SessionRef, branch: str, ids: Sequence[str]) -> list[AuditEntry]:
        return [_audit_entry(row) for row in await self._asked(sql.ASKED, ref, branch, ids=list(ids))]

    async def _asked(self, query: str, ref: SessionRef, branch: str | None, **values: Any) -> list[Row]:
        """Return for each question its session, its branch and its columns."""
        rows = await self._rows(query, _named(ref) | values | {"branch": branch}, session=ref.id)
        if not rows or (rows[0][1] is None and branch is not None):
            raise CheckpointNotFound(ref.id, branch if rows else None)
        return [(session, name, each) for session, name, *columns in rows for each in _zipped(columns)]

    async def inputs(self, ref: SessionRef, *, limit: int | None = None) -> list[QueuedInput]:
        session, *columns = await self._found(sql.INPUTS, ref, limit=_limit(limit))
        return [queued_input(input_row(values, session)) for values in _zipped(columns)]

    async def begun(self, digest: str) -> list[Begun]:
        return [Begun(*row) for row in await self._rows(sql.BEGUN, {"digest": digest})]

    # The outbox

    async def take_notices(self, app: str, to: Sequence[str], ttl: float, *, limit: int = 100) -> list[TakenNotice]:
        given = {"app": app, "to": list(to), "ttl": float(ttl), "limit": _limit(limit)}
        rows = await self._rows(outbox.TAKE, given)
        return list(readable([values for _, *values in sorted(rows, key=itemgetter(0))], taken_notice))

    async def settle_notice(self, taken: TakenNotice, *, again: float | None = None) -> bool:
        given: dict[str, Any] = {"id": taken.id, "attempt": taken.attempt}
        if again is None:
            return bool(await self._rows(outbox.SENT, given))
        return bool(await self._rows(outbox.PUT_OFF, given | {"again": float(again)}))

    async def drop_notices(self, app: str, age: float) -> int:
        ((count,),) = await self._rows(outbox.DROP, {"app": app, "age": float(age)})
        return count

    # Listings over many sessions

    async def sessions(
        self,
        *,
        app: str | None = None,
        user: str | None = None,
        status: Status | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[Head]:
        place = Written(math.inf, "", "") if after is None else written_at(after)
        behind = {"updated": place.updated, "last_app": place.app, "last_id": place.session}
        return await self._list(
            sql.SESSIONS,
            lambda row: head_of(session_row(row[1:]), row[0]),
            limit,
            app=app,
            user=user,
            status=status,
            **behind,
        )

    async def find(self, session: str, *, user: str | None = None) -> list[SessionRef]:
        return await self._list(sql.FIND, lambda row: session_row(row).ref, None, id=session, app=None, user=user)

    async def questions(
        self,
        ref: SessionRef | None = None,
        *,
        filter: QuestionFilter = ALL_QUESTIONS,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[OpenQuestion]:
        if ref is not None:
            return await self._questions_of(ref, in_app_of(ref, filter), after, limit)
        terms, is_expiring_shorter = await self._ways(filter)
        query = inbox.LIST_EXPIRING if is_expiring_shorter else inbox.LIST
        return await self._list(query, inbox.open_question, limit, **inbox.values(filter, after, terms))

    async def _ways(self, filter: QuestionFilter) -> tuple[list[str], bool]:
        """Return the terms of a filter, the rarest first, and whether fewer questions than have it expire in time."""
        terms, expires = inbox.terms(filter), filter.expires_before is not None
        if len(terms) == 1 and not expires:
            return terms, False
        *lengths, expiring = [length for (length,) in await self._rows(inbox.WAYS, inbox.ways(filter, terms))]
        ordered = sorted(zip(lengths, terms, strict=True), key=itemgetter(0))
        return [term for _, term in ordered], expires and expiring < ordered[0][0]

    async def _questions_of(
        self, ref: SessionRef, filter: QuestionFilter, after: str | None, limit: int | None
    ) -> list[OpenQuestion]:
        found = await self._one(sql.OPEN, ref)
        if found is None:
            return []
        now, row, rest = found[0], session_row(found[1 : 1 + _S]), found[1 + _S :]
        asked = [(row, question_row(values, row.session)) for values in _questions(rest)]
        return listed(asked, filter, now, after=after, limit=limit)

    async def count_questions(self, filter: QuestionFilter = ALL_QUESTIONS) -> int:
        terms, _ = await self._ways(filter)
        ((count,),) = await self._rows(inbox.COUNT, inbox.values(filter, None, terms))
        return count

    async def due(
        self,
        *,
        app: str | None = None,
        user: str | None = None,
        programs: Sequence[str] | None = None,
        skip_users: Sequence[str] = (),
        limit: int = 100,
    ) -> list[Due]:
        wanted, skipped = None if programs is None else list(programs), list(skip_users) or None
        return await self._list(sql.DUE, _due, limit, app=app, user=user, programs=wanted, skip_users=skipped)

    async def _list(self, query: str, read: Callable[[Row], T], limit: int | None, **filters: Any) -> list[T]:
        """Read as many rows as are wanted; damaged ones are left out, and do not count."""
        rows = await self._listing(query, limit=_limit(limit), **filters)
        found = list(readable(rows, read))
        if limit is None or len(found) == len(rows):
            return found
        return list(islice(readable(await self._listing(query, limit=None, **filters), read), limit))

    async def _listing(self, query: str, **given: Any) -> list[Row]:
        text = query.replace("<filters>", sql.filters(given))
        return await self._rows(text, given, session=given.get("id"))


def _named(ref: SessionRef) -> dict[str, Any]:
    return {"app": ref.app, "id": ref.id, "user": ref.user}


def _number(checkpoint: str) -> tuple[str, int] | None:
    """Return the branch and the number in the id of a record; None if no record can have it."""
    name, _, digits = checkpoint.rpartition(".")
    alone = [Branch(name, 0, 0, None)]
    number = locate(alone, _MOST, checkpoint)
    return None if number is None or not digits else (name, number)


def _place(checkpoint: str | None) -> dict[str, Any]:
    """Return where a record is; one that cannot be there is nowhere."""
    branch, number = (checkpoint and _number(checkpoint)) or ("", -1)
    return {"branch": branch, "number": number}


def _limit(limit: int | None) -> int | None:
    return None if limit is None else max(0, min(limit, _MOST))


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


def _zipped(columns: Sequence[Sequence[Any] | None]) -> list[Row]:
    """Return rows from lists, one for each column; None if there are no rows."""
    return list(zip(*(column or () for column in columns), strict=True))


def _fact_sheet(query: Query, found: Row) -> FactSheet:
    now, row, rest = found[0], None if found[1] is None else session_row(found[1 : 1 + _S]), list(found[1 + _S :])
    if row is None:
        return FactSheet(query, now, None)

    def take(count: int) -> list[Row]:
        columns, rest[:] = rest[:count], rest[count:]
        return _zipped(columns)

    questions = take(9) if query.questions or query.waiting else []
    inputs = take(9) if query.inputs or query.first_input else []
    branches = _branches(take(4), row) if query.branches or query.records else []
    records = take(9) if query.records else []
    return FactSheet(
        query,
        now,
        row,
        questions=[question_row(values, row.session) for values in questions],
        inputs=[input_row(values, row.session) for values in inputs],
        branches=branches,
        records=_records(query.records, row, branches, records),
        points=_points(take(4), row) if query.log else (),
        asking=[converted([no], _Asking, row.session, "a question").branch for no in rest[0] or ()]
        if query.log
        else (),
    )


def _points(values: list[Row], row: SessionRow) -> list[Point]:
    return [] if row.pos < 0 else points(values, row.session)


def _branches(values: list[Row], row: SessionRow) -> list[Branch]:
    """Return the branches; a session without any record has none."""
    return [] if row.pos < 0 else branch_rows(values, row.session)


class _Asking(Columns, frozen=True, gc=False):
    branch: Count


def _records(ids: frozenset[str], row: SessionRow, branches: Sequence[Branch], found: Sequence[Row]) -> list[RecordRow]:
    rows = {values[0]: values[1:] for values in found}
    places = [pos for pos in (locate(branches, row.pos, each) for each in ids) if pos is not None and pos in rows]
    return [record_row(*id_at(branches, pos), (pos, *rows[pos]), row.session) for pos in places]


def _loaded(found: Row, row: SessionRow, checkpoint: str | None) -> Loaded:
    now, (pos, start, bodies, times, *answers) = found[0], found[1 + _S :]
    if pos is None:
        raise CheckpointNotFound(row.session, checkpoint)
    rows: tuple[bytes, ...] = tuple(bodies or ())
    if len(rows) != pos - start + 1:
        raise CheckpointCorrupt(f"it lacks {pos - start + 1 - len(rows)} of its records", row.session)
    untaken: list[QuestionRow] = [question_row(values, row.session) for values in _zipped(answers)]
    return Loaded(
        head=head_of(row, now),
        point=row.checkpoint if checkpoint is None else checkpoint,
        rows=rows,
        answers=tuple([answered(each) for each in untaken]),
        at=times[-1] if EARLIEST <= times[-1] < LATEST else 0.0,
    )


def _stored(place: tuple[str, str | None], pos: int, values: Sequence[Any], row: SessionRow) -> StoredRecord:
    try:
        return stored_record(record_row(*place, (pos, *values), row.session))
    except CheckpointCorrupt:
        return damaged_record(*place, pos)


def _audit_entry(asked: Row) -> AuditEntry:
    session, branch, values = asked
    return audit_entry(question_row(values, session), branch)


class _Batch(Columns, frozen=True, gc=False):
    pos: Count
    header: bytes
    seq: Count
    count: Count
    body: bytes


def _batch(values: Row, known: Sequence[Branch], session: SessionRow) -> EventBatch:
    row = converted(values, _Batch, session.session, "the row of a record")
    first = row.seq - row.count + 1
    if first < 1 or row.seq > session.seq:
        raise CheckpointCorrupt(f"its record at {row.pos} has events {first} to {row.seq}", session.session)
    with Reading(session.session):
        header = decode_header(row.header)
    return EventBatch(id=id_at(known, row.pos)[0], header=header, first=first, count=row.count, body=row.body)


def _questions(columns: Sequence[Any]) -> list[Row]:
    """Return rows of questions with their labels; their tags come as JSON, since lists of lists must be even."""
    return [(*rest, unescaped(msgspec.json.decode(tags)), asked) for *rest, tags, asked in _zipped(columns)]


def _due(values: Row) -> Due:
    why, since, *columns = values
    return due_for(session_row(columns), why, since)
