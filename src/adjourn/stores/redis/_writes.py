"""What is written, as operations for `write.lua`: computed here, carried out there, all of them or none.

What holds between any two writes:

- Rows decide, indexes only find them. Each row stands in the indexes that it belongs in; an index may also name a
  session that is gone, or is not what it says any more, so readers look at the row.
- The row that a write is computed from may be remembered. An owner, also one that takes the lease, names head and
  fence in the guard: then only `waiting`, `inputs`, `expires`, `touched` and `cancel` can have changed since. What
  depends on the two counters the script decides by how they are then; the rest depends on the write alone.
- A write without the lease guards the columns that it sets, and the status where that says in which index a session
  stands: if the owner was faster, the write is decided again. The owner's never has to be because of such a write.
- `adj:<app>:due` has up to three entries of a session: `h:` while it has an owner, by the end of the lease, `a:`
  while answers wait, and `q:` while inputs wait whose turn could begin, by the first of them. A question that can
  expire has one more, the one that it has in the inbox.
- What a session has in the inbox is in its `listed`, so that those who know nothing else of it can take it out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias, get_args

import msgspec
from msgspec.structs import astuple, replace

from adjourn.stores.kit import (
    BEGUN,
    BRANCHES,
    INPUTS,
    OUTBOX,
    QUESTIONS,
    RECORDS,
    SESSIONS,
    Add,
    Applied,
    Effects,
    Expect,
    FactsWanted,
    InputRow,
    Insert,
    Later,
    NoticeRow,
    QuestionRow,
    RecordRow,
    SessionRow,
    Update,
    can_begin,
    changed_columns,
    decision_terms,
    ending_terms,
    has_status,
    renewal_of,
    terms_of,
)
from adjourn.stores.types import Begun, Lease, SessionRef, Status

from . import _keys as keys
from ._document import document
from ._keys import field_of, index_prefix
from ._members import question_member
from ._rows import ROWS, ROWS_OF_BEGUN, ROWS_OF_BRANCHES, ROWS_OF_NOTICES, ROWS_OF_RECORDS, Rows, column, marked
from ._server import not_text

Fields: TypeAlias = dict[str, Any]
"""A table of Lua. A member that is None does not exist there."""
Operation: TypeAlias = list[Any]
"""A command, the key (one of the session's by its place, or any other by its name), and what the command takes: text,
or a number for the time so many seconds after that of writing."""

_pack = msgspec.msgpack.Encoder().encode


def _listed_as() -> dict[tuple[str, bool], str]:
    """Return under which status sessions are listed, by that in their row, and whether inputs wait."""
    row, statuses = SessionRow(0, "", "", None, 0.0), get_args(Status)
    return {
        (status, waits): next(
            each for each in statuses if has_status(replace(row, status=status, inputs=int(waits)), each)
        )
        for status in statuses
        for waits in (False, True)
    }


_LISTED_AS: Mapping[tuple[str, bool], str] = _listed_as()
_CAN_BEGIN = frozenset(
    status
    for status in get_args(Status)
    for abandons in (False, True)
    if can_begin(
        SessionRow(0, "", "", None, 0.0, status=status), InputRow("", "", b"", "", None, abandons=abandons, at=0.0)
    )
)
"""With which status in its row a session may begin the turn of an input that waits."""


class Places:
    """Where a session stands in the indexes of its app."""

    def __init__(self, app: str, session: str, user: str | None) -> None:
        index = index_prefix(app)
        self._session = session
        self.sessions: list[str] = [f"{index}sessions"] + ([] if user is None else [f"{index}sessions/{user}"])
        self.with_status: dict[str, str] = {each: f"{index}sessions={each}" for each in get_args(Status)}
        self.due: str = f"{index}due"
        self.held, self.answered, self.queued = (f"{each}:{session}" for each in "haq")

    def enter(self, indexes: Iterable[str], score: str | float) -> list[Operation]:
        """Return what lists the session."""
        return [["ZADD", each, score, self._session] for each in indexes]

    def move(self, status: str, score: str | float, others: Iterable[str]) -> list[Operation]:
        """Return what lists the session under a status, and no more under others."""
        enters = self.enter([self.with_status[status]], score)
        return [*enters, *[["ZREM", self.with_status[each], self._session] for each in others if each != status]]

    def follow_queue(self, status: Status) -> Operation:
        """Return what lists the session as due by the first of its inputs, if the turn of that may begin."""
        if status in _CAN_BEGIN:
            return ["FOLLOW", self.due, self.queued, keys.SINCE]
        return ["ZREM", self.due, self.queued]

    def everywhere(self) -> list[tuple[str, str]]:
        """Return every index and the member of it that the session may have, its questions left out."""
        of_session = [(each, self._session) for each in (*self.sessions, *self.with_status.values())]
        return [*of_session, *[(self.due, each) for each in (self.held, self.answered, self.queued)]]

    @property
    def listed(self) -> list[str]:
        """What `listed` has of it: the member, and the indexes."""
        return [self._session, *self.sessions, *self.with_status.values()]


places = lru_cache(maxsize=4096)(Places)


class Writing:
    """One write to one session, as it is put together."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self._expects: list[list[str | int]] = []
        self._operations: list[Operation] = []
        self._counted: dict[str, tuple[int, list[Operation], list[Operation]]] = {}
        self._columns = {} if effects.after is None else _columns(effects)
        self._same: dict[str, str] = _same(effects)
        row = effects.after or effects.before
        assert row is not None
        self._row = row
        self._ttl: float | None = row.ttl
        self._places = places(row.app, row.session, row.user)

    def fields(self) -> Fields:
        """Return what the script is given."""
        effects = self._effects
        if effects.leaves:
            self._operations.append(["LEAVE", keys.LISTED, False, effects.after is None])
        if effects.after is None:
            self._remove()
        else:
            self._add_rows()
            self._add_columns()
        guard = effects.guard
        return {
            "exists": guard.exists,
            "same": self._same,
            "live": guard.live,
            "replaces": guard.replaces,
            "idle": guard.idle,
            "room": guard.room,
            "expects": self._expects,
            "ops": self._operations,
            "counted": [[name, *each] for name, each in self._counted.items()],
            "ttl": self._ttl,
            "touches": "touched" in self._columns,
        }

    def applied(self, reply: Sequence[Any]) -> Applied:
        """Return the result of the write, from what the script replies: the time, the cancel and inputs before it."""
        at, cancel, inputs = reply
        before, more = self._effects.before, self._counted["inputs"][0] if "inputs" in self._counted else 0
        waits = self._row.inputs if before is None else int(inputs) + more
        return Applied(None if cancel is None else cancel.decode(errors="replace"), float(at), waits)

    def _remove(self) -> None:
        gone = self._places.everywhere()
        self._operations += [["ZREM", *each] for each in gone]
        self._operations.append(["ZREM", keys.ENDS, keys.session_keys(self._row.app, self._row.session)[0]])
        self._operations += [["UNLINK", place] for place in range(keys.ROW, keys.SINCE + 1)]

    # The session's row, and the indexes of sessions

    def _add_columns(self) -> None:
        effects, columns, row = self._effects, self._columns, self._row
        before, is_owned = effects.before, effects.guard.fence is not None
        if "updated" in columns:
            at = column(columns["updated"])
            self._operations += self._places.enter(self._places.sessions, at)
            self._list_status(at)
        elif "inputs" in columns and _depends(row.status):
            self._list_status(column(row.updated))
        if "owner" in columns or "expires" in columns:
            self._hold()
        if before is not None and "waiting" in columns:
            self._count_answers()
        if "inputs" in columns or before is None or row.status != before.status:
            self._queue()
        if not is_owned and before is not None:
            self._guard_columns(before)
        self._set_columns()

    def _guard_columns(self, before: SessionRow) -> None:
        """Guard what this write depends on, and the owner may change meanwhile."""
        columns = self._columns
        for name in _plain(columns, self._effects.forced):
            if (was := getattr(before, name)) is not None:
                self._same[name] = str(was)
        if "inputs" in columns:
            self._same["status"] = before.status
            if _depends(before.status) or "updated" in columns:
                self._same |= _at(before)

    def _set_columns(self) -> None:
        sets: Operation = ["HSET", keys.ROW]
        gone: Operation = ["HDEL", keys.ROW]
        for name, value in self._columns.items():
            if value is None:
                gone.append(name)
            elif type(value) is Add:
                self._count(name, value)
            elif name in SESSIONS.lasting and self._effects.before is not None:
                self._operations.append(["FILL", keys.ROW, name, value])
            else:
                sets += (name, column(value))
        if len(sets) > 2:
            self._operations.append(sets)
        if len(gone) > 2:
            self._operations.append(gone)
        if self._effects.before is None:
            self._operations.append(["SADD", keys.APPS, self._row.app])
        if self._ttl is not None and "touched" in self._columns:
            where = packed(self._places.listed)
            self._operations.append(["HSET", keys.LISTED, "", marked(where)])
        self._show()

    def _show(self) -> None:
        shown = document(self._effects)
        if shown is not None:
            before, after = shown
            self._operations.append(["SHOW", keys.DOCUMENT, marked(before), marked(after)])

    def _count(self, name: str, more: int, above: Iterable[Operation] = (), zero: Iterable[Operation] = ()) -> None:
        added, if_above, if_zero = self._counted.get(name, (0, [], []))
        self._counted[name] = (added + more, [*if_above, *above], [*if_zero, *zero])

    def _list_status(self, at: str | float) -> None:
        row, before, where = self._row, self._effects.before, self._places
        if before is None:
            self._operations += where.move(_LISTED_AS[row.status, row.inputs > 0], at, ())
            return
        others = {_LISTED_AS[before.status, waits] for waits in (False, True)}
        if not _depends(row.status):
            self._operations += where.move(row.status, at, others)
            return
        none, some = _LISTED_AS[row.status, False], _LISTED_AS[row.status, True]
        others |= {none, some}
        self._count("inputs", 0, where.move(some, at, others), where.move(none, at, others))

    def _hold(self) -> None:
        where, owner, expires = self._places, self._row.owner, self._columns.get("expires", 0.0)
        if owner is not None:
            self._operations.append(["ZADD", where.due, column(expires), where.held])
        elif self._effects.before is not None:
            self._operations.append(["ZREM", where.due, where.held])

    def _count_answers(self) -> None:
        where = self._places
        enters, leaves = ["ZADD", where.due, 0.0, where.answered], ["ZREM", where.due, where.answered]
        if type(self._columns.get("waiting")) is Add:
            self._count("waiting", 0, [enters], [leaves])
        else:
            self._operations.append(leaves)  # a branch begins without answers

    def _queue(self) -> None:
        where = self._places
        if self._effects.before is not None or self._row.status in _CAN_BEGIN:
            self._operations.append(where.follow_queue(self._row.status))

    # Other rows

    def _add_rows(self) -> None:
        effects = self._effects
        for insert in effects.inserts:
            self._insert(insert)
        for update in effects.ended:
            by = update.values.get("decided_by")
            terms = [] if by is None else ending_terms(self._row.app, by, update.values["how"])
            decided = [f"adj:decided:{each}" for each in terms]
            self._operations.append(["LEAVE", keys.LISTED, field_of(update.key), decided])
        for update in effects.updates:
            self._update(update)
            if update.row is not None:
                listed = replace(update.row, terms=tuple(terms_of(self._row, update.row)))
                self._operations.append(["LEAVE", keys.LISTED, field_of(update.key), []])
                self._operations += entering(self._row, listed, f"{listed.no:d}")
        for gone in effects.deletes:
            self._expect(gone.expect, gone.table, gone.key)
            (key,) = gone.key
            rows = ROWS[gone.table]
            self._operations.append(["HDEL", _HASHES[gone.table], *rows.fields(key)])
            self._operations += [["ZREM", each, str(key)] for each in _FINDS[gone.table]]

    def _insert(self, insert: Insert) -> None:
        if insert.table is BRANCHES:
            branches = [ROWS_OF_BRANCHES.pack(each) for each in insert.rows]
            self._operations.append(["RPUSH", keys.BRANCHES, *branches])
            # Answers that were not taken on the branch before are of no more use.
            self._operations.append(["ZREMRANGEBYSCORE", keys.WAITING, "-inf", "-inf"])
        else:
            add = {
                RECORDS: self._insert_record,
                QUESTIONS: self._insert_question,
                INPUTS: self._insert_input,
                BEGUN: self._insert_begun,
                OUTBOX: self._insert_notice,
            }[insert.table]
            for row in insert.rows:
                add(row)

    def _insert_record(self, row: RecordRow) -> None:
        # The guard on the head says that it is new.
        self._operations.append(["HSET", keys.LOG, *ROWS_OF_RECORDS.insert(row.pos, row)])
        if row.count:
            self._operations.append(["ZADD", keys.NUMBERS, str(row.seq), str(row.pos)])

    def _insert_question(self, row: QuestionRow) -> None:
        field = field_of((row.branch, row.id))
        self._insert_row(ROWS[QUESTIONS], field, row)
        if row.is_open:
            self._operations.append(["ZADD", keys.WAITING, _expiry(row), field])
        elif not row.taken:
            self._operations.append(["ZADD", keys.WAITING, "-inf", field])
        self._operations += entering(self._row, row, "")

    def _insert_input(self, row: InputRow) -> None:
        self._insert_row(ROWS[INPUTS], row.id, row)
        if not row.taken:
            self._operations.append(["ZADD", keys.QUEUE, True, row.id])
            self._operations.append(["ZADD", keys.SINCE, column(row.at), row.id])

    def _insert_begun(self, row: Begun) -> None:
        self._operations.append(["SADD", f"adj:begun:{row.digest}", ROWS_OF_BEGUN.pack(row)])

    def _insert_notice(self, row: NoticeRow) -> None:
        index = index_prefix(row.app)
        self._operations.append(["HSET", f"{index}notices", *ROWS_OF_NOTICES.insert(row.id, row)])
        self._operations.append(["SADD", f"{index}outbox", row.to])
        self._operations.append(["ZADD", f"{index}outbox/{row.to}", column(row.due), row.id])

    def _insert_row(self, rows: Rows[Any], key: str, row: QuestionRow | InputRow) -> None:
        place = _HASHES[rows.table]
        self._expects.append(["new", place, f":{key}"])
        self._operations.append(["INCR", keys.SERIAL])
        self._operations.append(["HSET", place, *rows.insert(key, row)])

    def _update(self, update: Update) -> None:
        rows, place = ROWS[update.table], _HASHES[update.table]
        key = field_of(update.key)
        self._expect(update.expect, update.table, update.key)
        self._operations.append(["PREPEND", place, f":{key}", rows.change(update.values)])
        emptied = [f"{name}:{key}" for name in rows.apart if name in update.values]
        if emptied:
            assert not any(update.values[name] for name in rows.apart if name in update.values)
            self._operations.append(["HDEL", place, *emptied])
        if update.values.get("taken"):
            self._operations += [["ZREM", each, key] for each in _FINDS[update.table]]
        elif "how" in update.values:
            self._operations.append(["ZADD", keys.WAITING, "-inf", key])

    def _expect(self, expect: Expect, table: Any, key: tuple[Any, ...]) -> None:
        if expect is Expect.THERE:
            if table is not RECORDS:
                self._expects.append(["there", _HASHES[table], f":{field_of(key)}"])
        else:
            place = keys.WAITING if table is QUESTIONS else keys.QUEUE
            self._expects.append([expect.value, place, field_of(key)])


_HASHES: Mapping[Any, int] = {RECORDS: keys.LOG, QUESTIONS: keys.QUESTIONS, INPUTS: keys.INPUTS}
_FINDS: Mapping[Any, tuple[int, ...]] = {
    RECORDS: (keys.NUMBERS,),
    QUESTIONS: (keys.WAITING,),
    INPUTS: (keys.QUEUE, keys.SINCE),
}
"""The sets below a session that have members of a table: what has events, what is open or not taken, what waits."""


def renewal(lease: Lease) -> Fields:
    """Return what renews a lease, or ends it."""
    guard, columns = renewal_of(lease)
    where = places(lease.ref.app, lease.ref.id, lease.ref.user)
    sets = [part for name, value in columns.items() for part in (name, column(value))]
    same = {"fence": str(guard.fence), "owner": guard.owner}
    return {
        "exists": True,
        "same": same if lease.ref.user is None else same | {"user": lease.ref.user},
        "expects": [],
        "ops": [["HSET", keys.ROW, *sets], ["ZADD", where.due, column(columns["expires"]), where.held]],
        "counted": [],
        "touches": True,
    }


def relisting(row: SessionRow, asked: Iterable[QuestionRow]) -> Fields:
    """Return what lists a session that is there wherever it belongs, and nowhere else, with all of its questions."""
    where = places(row.app, row.session, row.user)
    updated, shown = column(row.updated), _LISTED_AS[row.status, row.inputs > 0]
    due = {where.held: column(row.expires)} if row.owner is not None else {}
    if row.waiting:
        due[where.answered] = column(row.touched)
    operations: list[Operation] = [["LEAVE", keys.LISTED, False, True], ["SADD", keys.APPS, row.app]]
    operations += where.enter(where.sessions, updated) + where.move(shown, updated, where.with_status)
    operations += [
        ["ZADD", where.due, due[each], each] if each in due else ["ZREM", where.due, each]
        for each in (where.held, where.answered)
    ]
    operations.append(where.follow_queue(row.status))
    for each in asked:
        if not each.is_open or each.branch == row.branch_no:
            operations += entering(row, replace(each, terms=tuple(terms_of(row, each))), f"{each.no:d}")
    counters = {"status": row.status, "fence": str(row.fence), "waiting": str(row.waiting), "inputs": str(row.inputs)}
    return {"exists": True, "same": _at(row) | counters, "expects": [], "ops": operations, "counted": []}


def removal(ref: SessionRef, is_damaged: bool) -> Fields:
    """Return what removes the remains of a session, or all of one that is damaged, as `remove.lua` reads it."""
    where = places(ref.app, ref.id, ref.user)
    return {
        "session": ref.id,
        "user": ref.user,
        "is_damaged": is_damaged,
        "places": where.everywhere(),
        "of_users": f"{index_prefix(ref.app)}sessions/",
    }


def entering(session: SessionRow, row: QuestionRow, no: str) -> list[Operation]:
    """Return what lists a question, under its terms or as decided, and its number; empty for the one given out last."""
    field, indexes = field_of((row.branch, row.id)), list[list[str | float]]()
    if row.is_open:
        indexes.append([repr(float(row.asked)), *[f"adj:inbox:{term}" for term in row.terms]])
        if row.expires is not None:
            indexes.append([_expiry(row), *[f"adj:expiring:{term}" for term in row.terms]])
        if row.due is not None:
            indexes.append([repr(float(row.due)), f"{index_prefix(session.app)}due"])
    elif row.decided_by is not None:
        field = f"d:{field}"
        indexes.append([column(row.at), *[f"adj:decided:{term}" for term in decision_terms(session, row)]])
    member = question_member(session.app, session.session, row)
    return [["ENTER", keys.LISTED, field, no, member, *indexes]] if indexes else []


def facts_table(wanted: FactsWanted) -> Fields:
    """Return what is wanted as `read.lua` reads it; records come with the branches that say where they are."""
    queue = wanted.queue or int(wanted.first_input)
    return {
        "questions": list(wanted.questions),
        "asked": wanted.asked,
        "waiting": wanted.waiting,
        "every": wanted.every,
        "all_branches": wanted.all_branches,
        "log": wanted.asking,
        "branches": wanted.branches or wanted.asking or wanted.span is not None,
        "records": [record_name(each) for each in named_records(wanted)],
        "inputs": list(wanted.inputs),
        "queue": max(queue - 1, -1) if queue else None,
        "fold": () if wanted.head else None if wanted.fold is None else record_name(wanted.fold),
    }


def named_records(wanted: FactsWanted) -> list[str]:
    """Return the ids of the records that are wanted by them, and of the end of the span, which must be there."""
    end = None if wanted.span is None else wanted.span.before
    return [*wanted.records] if end is None else [*wanted.records, end]


def record_name(id: str) -> tuple[str, int]:
    """Return the branch and the number in a record's id; the number is -1 if there is no such id."""
    name, _, digits = id.rpartition(".")
    is_number = digits.isascii() and digits.isdigit() and len(digits) < 16 and str(int(digits)) == digits
    return (name, int(digits) if is_number else -1)


def packed(fields: Fields | Sequence[Any]) -> bytes:
    """Return what a script is given.

    Raises:
        NotStorable: an id or a name is not text.
    """
    try:
        return _pack(fields)
    except UnicodeEncodeError as error:
        raise not_text(error) from error


def _columns(effects: Effects) -> dict[str, Any]:
    """Return the columns of the session's row that are set; of a new one, all that have a value."""
    if effects.before is not None:
        return changed_columns(effects)
    assert effects.after is not None
    values = zip(SESSIONS.fields, astuple(effects.after), strict=True)
    return {name: value for name, value in values if value is not None and name != SESSIONS.serial}


def _same(effects: Effects) -> dict[str, str]:
    """Return what the columns of the row must be, as far as the guard names them."""
    guard, user = effects.guard, effects.ref.user
    same: dict[str, str] = {}
    if guard.checkpoint is not None:
        branch, _, number = guard.checkpoint.rpartition(".")
        same = {"branch": branch, "number": number} if guard.checkpoint else {"pos": "-1"}
    named = (("branch", guard.branch), ("fence", guard.fence), ("owner", guard.owner))
    counters = (("waiting", guard.waiting), ("inputs", guard.inputs), ("marks", guard.marks))
    counters += (("user", user if guard.exists else None),)
    return same | {name: str(value) for name, value in (*named, *counters) if value is not None}


def _at(row: SessionRow) -> dict[str, str]:
    return {"pos": "-1"} if row.pos < 0 else {"branch": row.branch, "number": str(row.number)}


def _plain(columns: Mapping[str, Any], forced: Iterable[str]) -> list[str]:
    """Return the columns that are set to what depends on how they were."""
    free = {*forced, *SESSIONS.lasting}
    return [name for name, value in columns.items() if type(value) not in (Later, Add) and name not in free]


def _depends(status: Status) -> bool:
    """Return whether it depends on the inputs that wait under which status a session is listed."""
    return _LISTED_AS[status, False] != _LISTED_AS[status, True]


def _expiry(row: QuestionRow) -> str:
    return "inf" if row.expires is None else repr(float(row.expires))
