"""Facts and effects as SQL, and the transactions that hold them."""

# An override is documented where it is declared.

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Sequence
from typing import Any, TypeVar

from msgspec.structs import astuple, replace

from adjourn.errors import CheckpointCorrupt
from adjourn.stores._logging import note_damage
from adjourn.stores.kit.effects import Effects, Insert
from adjourn.stores.kit.hints import Fanout
from adjourn.stores.kit.inbox import relisted
from adjourn.stores.kit.reading import (
    Columns,
    converted,
    readable,
)
from adjourn.stores.kit.requests import Delete, DeleteIdle, SessionRequest
from adjourn.stores.kit.rows import (
    SessionRow,
    stored_statuses,
)
from adjourn.stores.kit.tables import INBOX, QUESTIONS, RECORDS, SESSIONS
from adjourn.stores.types import SessionRef

from ._facts import SESSIONS_LIMIT, SQLiteFacts, find
from ._files import Connection
from ._tables import BITS, ROWS, read_texts

_KNOWN = 1000  # how many rows of sessions are cached at most

_SAVE = ROWS[SESSIONS].update
_IDLE = """SELECT id, app, user, no FROM sessions WHERE touched < ? AND (owner IS NULL OR expires <= ?)
    AND (app = ? OR ? IS NULL AND app NOT LIKE '~%') AND (? IS NULL OR user = ?) AND no > ?"""
_NUMBER = "SELECT no FROM sessions WHERE app = ? AND id = ? AND (? IS NULL OR user = ?)"
# A damaged number beyond all others must not block every new session; values of other types compare as larger.
_NEWEST = """SELECT CAST(max(
    (SELECT coalesce(max(no), 0) FROM sessions WHERE no < :last),
    (SELECT coalesce(max(key), 0) >> :bits FROM records WHERE key < :last << :bits),
    (SELECT coalesce(max(key), 0) >> :bits FROM branches WHERE key < :last << :bits),
    (SELECT coalesce(max(session), 0) FROM inputs WHERE session < :last),
    (SELECT coalesce(max(session), 0) FROM questions WHERE session < :last)) AS INTEGER)"""
_OPEN = "SELECT asked, no, terms FROM questions WHERE session = ? AND branch = ? AND how IS NULL"
_OPEN_NAMED = f"{_OPEN} AND id = ?"

T = TypeVar("T")


class SQLiteLedger:
    """Carries out requests on the one connection that writes, in one transaction at a time.

    The rows of sessions that were read or written last are cached, and stay valid until another connection writes to
    the file.
    """

    def __init__(self, connection: Connection, hints: Fanout) -> None:
        self.connection = connection
        self.execute = connection.execute
        self.has_begun: bool = False
        """Whether a transaction is under way."""
        self.is_shared: bool = False
        """Whether others have written to the file between the last two transactions."""
        self._hints = hints
        self._forget()

    def _forget(self) -> None:
        self._version: tuple[int] | None = None  # changes with every commit of another connection
        self._rows: dict[tuple[str, str], SessionRow] = {}  # as they are in the file
        self._newest: int | None = None  # the highest number of a session
        self._records: list[tuple[Any, ...]] = []  # to be written together
        self._news: list[SessionRef] = []  # sessions to hint at when they are written

    def begin(self) -> None:
        """Begin a transaction, which `commit` or `roll_back` must end."""
        self.execute("BEGIN IMMEDIATE")
        self.has_begun = True
        version = self.execute("PRAGMA data_version").fetchone()
        self.is_shared = self._version is not None and version != self._version
        if version != self._version or len(self._rows) > _KNOWN:
            self._forget()
            self._version = version

    def commit(self) -> None:
        """Make everything durable."""
        self.add_records()
        self.execute("COMMIT")
        self.has_begun = False
        if self._news:
            news, self._news = self._news, []
            for ref in news:
                self._hints.publish(ref)

    def roll_back(self) -> None:
        """Undo the transaction."""
        self.has_begun = False
        self._forget()
        # When the disk is full, SQLite has already rolled back; after some errors it no longer can.
        if self.connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                self.execute("ROLLBACK")

    @property
    def changes(self) -> int:
        """How much has been changed so far; it only grows."""
        return self.connection.total_changes + len(self._records)

    def carry_out(self, request: SessionRequest[T], now: float) -> T:
        """Decide a request and apply its effects. Their guards hold, since facts and effects share a transaction."""
        row = self._find(request.ref)
        effects, result = request.decide(SQLiteFacts(self.connection, row, now, flush=self.add_records))
        if effects is not None:
            try:
                self._write(effects)
            except sqlite3.IntegrityError as error:
                # The decision made sure that nothing is in the way, so the file is not as it was written.
                raise CheckpointCorrupt(
                    f"rows that do not belong to it are in its way ({error})", request.ref.id
                ) from error
            if self._hints.listeners and effects.is_news:
                self._news.append(request.ref)
        return result

    def delete(self, request: Delete, now: float) -> bool:
        """Remove a session, even a damaged one; return whether there was one."""
        ref = request.ref
        try:
            return self.carry_out(request, now)
        except CheckpointCorrupt:
            # A damaged row does not say who runs the session. Whoever deletes it wants it gone.
            numbers = self.execute(_NUMBER, (ref.app, ref.id, ref.user, ref.user)).fetchall()
            for (no,) in numbers:
                # Whatever its rows say; this reads the whole inbox.
                self.execute("DELETE FROM inbox WHERE no IN (SELECT no FROM questions WHERE session = ?)", (no,))
                self._remove(no)
            self._rows.pop((ref.app, ref.id), None)
            return bool(numbers)

    def delete_idle(self, request: DeleteIdle, now: float) -> list[SessionRef]:
        """Remove sessions that nobody runs now, and nobody has touched for `ttl` seconds; damaged ones stay."""
        gone: list[SessionRef] = []
        ttl, app, user, statuses, limit = request.ttl, request.app, request.user, request.statuses, request.limit
        stored = stored_statuses(statuses)
        query = _IDLE if stored is None else f"{_IDLE} AND status IN ({', '.join('?' * len(stored))})"
        last = -1
        while limit is None or len(gone) < limit:
            most = -1 if limit is None else limit - len(gone)
            values = (now - ttl, now, app, app, user, user, last, *(stored or ()), most)
            rows = self.execute(f"{query} ORDER BY no LIMIT ?", values).fetchall()
            if not rows:
                break
            last = rows[-1][-1]
            idle = readable(rows, _idle_ref)
            gone += [ref for ref in idle if self._delete_if_idle(Delete(ref=ref, idle=ttl, statuses=statuses), now)]
        return gone

    def _delete_if_idle(self, request: Delete, now: float) -> bool:
        try:
            return self.carry_out(request, now)
        except CheckpointCorrupt as damage:
            note_damage(damage)
            return False

    def add_records(self) -> None:
        """Write the gathered records."""
        if not self._records:
            return
        try:
            self.connection.executemany(ROWS[RECORDS].insert, self._records)
        except sqlite3.IntegrityError as error:
            raise CheckpointCorrupt(
                f"records that do not belong to it are in its way ({error})", self._whose()
            ) from error
        self._records = []

    def _whose(self) -> str | None:
        """Return the session of the gathered records, if there is only one."""
        numbers = {key >> BITS for key, *_ in self._records}
        names = [row.session for row in self._rows.values() if row.no in numbers]
        return names[0] if len(names) == 1 else None

    def _find(self, ref: SessionRef) -> SessionRow | None:
        known = self._rows.get((ref.app, ref.id))
        if known is None and (known := find(self.connection, ref.app, ref.id)) is not None:
            self._rows[ref.app, ref.id] = known
        return known

    def _write(self, effects: Effects) -> None:
        """Write effects. Their guard and what they expect hold, since the facts were read in this transaction."""
        before, after = effects.before, effects.after
        if before is not None and effects.leaves:
            self._unlist(_OPEN, (before.no, before.branch_no), before)
        if after is None:
            assert before is not None
            self._rows.pop((before.app, before.session), None)
            self._remove(before.no)
            return
        if before is None:
            after = replace(after, no=self._next_number())
            self.execute(ROWS[SESSIONS].insert, ROWS[SESSIONS].values(after))
        else:
            self._save(before, after)
        self._rows[after.app, after.session] = after
        for insert in effects.inserts:
            self._insert(insert, after)
        for update in effects.updates:
            rows, new = ROWS[update.table], update.values
            if update.ends:
                self._unlist(_OPEN_NAMED, (after.no, *update.key), after)
            elif update.row is not None:
                entering, leaving = relisted(after, update)
                self.connection.executemany(ROWS[INBOX].delete, leaving)
                self.connection.executemany(ROWS[INBOX].insert, map(ROWS[INBOX].values, entering))
            self.execute(rows.update(tuple(new)), (*rows.given(new), *rows.place(after.no, update.key)))
        for gone in effects.deletes:
            rows = ROWS[gone.table]
            self.execute(rows.delete, rows.place(after.no, gone.key))

    def _insert(self, insert: Insert, session: SessionRow) -> None:
        rows = ROWS[insert.table]
        values = [rows.values(row, session.no) for row in insert.rows]
        if insert.table is RECORDS:
            self._records += values  # with those of other writes
        elif insert.table is QUESTIONS:
            for asked, row in zip(insert.rows, values, strict=True):
                no = self.execute(rows.insert, row).lastrowid
                listed = [(term, asked.asked, no, asked.expires) for term in asked.terms]
                self.connection.executemany(ROWS[INBOX].insert, listed)
        else:
            self.connection.executemany(rows.insert, values)

    def _unlist(self, query: str, values: tuple[Any, ...], session: SessionRow) -> None:
        """Take open questions out of the inbox."""
        for *place, terms in self.execute(query, values).fetchall():
            gone = [(term, *place) for term in read_texts(terms, session.session)]
            self.connection.executemany(ROWS[INBOX].delete, gone)

    def _next_number(self) -> int:
        if self._newest is None:
            # Rows left behind by a damaged session must not become those of a new one.
            self._newest = max(0, int(self.execute(_NEWEST, {"last": SESSIONS_LIMIT - 1, "bits": BITS}).fetchone()[0]))
        self._newest += 1
        if self._newest >= SESSIONS_LIMIT:
            raise CheckpointCorrupt("a row has the highest possible number")
        return self._newest

    def _save(self, before: SessionRow, after: SessionRow) -> None:
        # Columns that stay are left out, above all those in indexes, so that a step touches one page of the file.
        pairs = zip(SESSIONS.fields, astuple(before), astuple(after), strict=True)
        changed = {field: new for field, old, new in pairs if new != old}
        if changed:
            self.execute(_SAVE(tuple(changed)), (*changed.values(), before.no))

    def _remove(self, no: int) -> None:
        self.add_records()
        for table, rows in ROWS.items():
            if table.of_session and (not rows.is_packed or 0 < no < SESSIONS_LIMIT):
                self.execute(*rows.delete_all(no))
        self.execute("DELETE FROM sessions WHERE no = ?", (no,))


class _Idle(Columns, frozen=True, gc=False):
    id: str
    app: str
    user: str | None
    no: int


def _idle_ref(values: Sequence[Any]) -> SessionRef:
    idle = converted(values, _Idle, values[0], "its row")
    return SessionRef(idle.id, idle.app, idle.user)
