"""A store in this process's memory, for tests, notebooks and runs that nobody needs to survive."""

# An override is documented where it is declared.
# ruff: noqa: D102

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from itertools import count, islice
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from adjourn.errors import CheckpointNotFound

from .kit.changes import Changes, Removal, Update, changes_of
from .kit.facts import Point
from .kit.hints import Fanout, worth_a_hint
from .kit.inbox import in_app_of, is_listed, listed
from .kit.paging import written, written_at
from .kit.requests import Delete, Renew, Request
from .kit.rows import (
    Branch,
    InputRow,
    NoticeRow,
    QuestionRow,
    RecordRow,
    SessionRow,
    answered,
    audit_entry,
    cancel_of,
    checkpoint_row,
    due,
    event_batch,
    fits,
    has_status,
    head_of,
    id_at,
    is_named,
    is_wanted,
    lies_under,
    locate,
    notice_of,
    queued_input,
    stored_record,
)
from .kit.store import KitStore
from .kit.tables import BEGUN, BRANCHES, OUTBOX, QUESTIONS, RECORDS
from .types import (
    ALL_QUESTIONS,
    Answered,
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

T = TypeVar("T")


_stores: weakref.WeakSet[MemoryStore] = weakref.WeakSet()


def _after_fork() -> None:
    # A thread that the child of a fork does not have may have held the lock of a store.
    for store in list(_stores):
        store._lock = threading.Lock()  # pyright: ignore[reportPrivateUsage]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


# Of all sessions that have none; never changed.
_NO_INPUTS: dict[str, InputRow] = {}
_NONE_ASKED: dict[str, QuestionRow] = {}


class Session(msgspec.Struct, gc=False):
    """A whole session: positions are indexes of `log`, where pruned records leave None.

    `asked` are the questions of each branch by their ids, in order. `inputs` are all that were ever submitted and not
    withdrawn, in order.
    """

    row: SessionRow
    log: list[RecordRow | None]
    branches: tuple[Branch, ...] = ()
    asked: tuple[dict[str, QuestionRow], ...] = ()
    inputs: dict[str, InputRow] = _NO_INPUTS

    @property
    def first_input(self) -> InputRow | None:
        """The first input that waits."""
        return next(iter(self.queue()), None) if self.row.inputs else None

    def queue(self) -> Iterator[InputRow]:
        """The inputs that wait, in order."""
        return (each for each in self.inputs.values() if not each.taken)

    def record(self, pos: int) -> RecordRow | None:
        """Return the record at a position, by its id; None if it was pruned."""
        found = self.log[pos]
        if found is None:
            return None
        own, parent = id_at(self.branches, pos)
        return replace(found, id=own, parent=parent)

    @property
    def asked_on_head(self) -> dict[str, QuestionRow]:
        """The questions of the head's branch."""
        return self.asked[-1] if self.asked else _NONE_ASKED

    def asked_on(self, branch: str) -> dict[str, QuestionRow]:
        """Return the questions of a branch by its name.

        Raises:
            CheckpointNotFound: there is no such branch.
        """
        for each in reversed(self.branches):
            if each.name == branch:
                return self.asked[each.no]
        if branch == self.row.branch:  # a session without any record
            return _NONE_ASKED
        raise CheckpointNotFound(self.row.session, branch)

    def insert(self, table: object, rows: Sequence[Any], numbers: Iterator[int]) -> None:
        """Add rows to a table of the session."""
        if table is RECORDS:
            self.log.extend(rows)
        elif table is BRANCHES:
            self.branches += tuple(rows)
            self.asked += tuple([dict[str, QuestionRow]() for _ in rows])
        elif table is QUESTIONS:
            for row in rows:
                self.asked[row.branch][row.id] = replace(row, no=next(numbers))
        else:
            if self.inputs is _NO_INPUTS:
                self.inputs = {}
            self.inputs |= {row.id: row for row in rows}

    def update(self, change: Update) -> None:
        """Change a row."""
        if change.table is QUESTIONS:
            branch: int
            branch, name = change.key
            asked = self.asked[branch]
            asked[name] = replace(asked[name], **change.values)
        else:
            (name,) = change.key
            self.inputs[name] = replace(self.inputs[name], **change.values)

    def delete(self, change: Removal) -> None:
        """Remove a row."""
        (key,) = change.key
        if change.table is RECORDS:
            self.log[key] = None
        else:
            del self.inputs[key]


class MemoryFacts:
    """The facts of a session, looked up as needed."""

    __slots__ = ("_found", "now", "row")
    assumed = False

    def __init__(self, found: Session | None, now: float) -> None:
        self._found = found
        self.now: float = now
        self.row: SessionRow | None = None if found is None else found.row

    @property
    def found(self) -> Session:
        """The session, which must exist."""
        assert self._found is not None
        return self._found

    def question(self, id: str) -> QuestionRow | None:
        return self.found.asked_on_head.get(id)

    def waiting(self) -> Sequence[QuestionRow]:
        return [each for each in self.found.asked_on_head.values() if each.is_open or not each.taken]

    def input(self, id: str) -> InputRow | None:
        return self.found.inputs.get(id)

    def first_input(self) -> InputRow | None:
        return self.found.first_input

    def branches(self) -> Sequence[Branch]:
        return self.found.branches

    def record(self, id: str) -> RecordRow | None:
        pos = locate(self.found.branches, self.found.row.pos, id)
        return None if pos is None else self.found.record(pos)

    def points(self) -> Sequence[Point]:
        log = enumerate(self.found.log)
        return [Point(pos, kept.full, kept.source is not None, kept.at) for pos, kept in log if kept is not None]

    def asking(self) -> Sequence[int]:
        by_branch = enumerate(self.found.asked)
        return [no for no, asked in by_branch if any(each.is_open for each in asked.values())]


class MemoryStore(KitStore):
    """Keeps sessions as bytes in this process, for as long as the object lives.

    It encodes like the other stores, so what works here works there. Safe to use from any loop or thread; `clock`
    gives the store's time.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._sessions: dict[tuple[str, str], Session] = {}
        self._begun: dict[str, dict[Begun, None]] = {}
        self._outbox: dict[str, NoticeRow] = {}
        self._numbers = count(1)
        self._lock = threading.Lock()
        self._hints = Fanout()
        _stores.add(self)

    async def carry_out(self, request: Request[T]) -> T:
        with self._lock:
            return self._carry_out(request)

    def _carry_out(self, request: Request[T]) -> T:
        now, ref = self._clock(), request.ref
        found = self._sessions.get((ref.app, ref.id))
        effects, result = request.decide(MemoryFacts(found, now))
        if effects is not None:
            self._write(changes_of(ref, None if found is None else found.row, effects, now, has_inbox=False), found)
            if self._hints.is_heard and worth_a_hint(effects):
                self._hints.publish(ref)
        return result

    def _write(self, changes: Changes, found: Session | None) -> None:
        """Write changes. Their guards hold: the facts were looked up under the same lock."""
        after = changes.after
        if after is None:
            del self._sessions[changes.ref.app, changes.ref.id]
            return
        if found is None:
            found = self._sessions[after.app, after.session] = Session(after, [])
        found.row = after
        for each in changes.inserts:
            if each.table is BEGUN:
                for row in each.rows:
                    self._begun.setdefault(row.digest, {})[row] = None
            elif each.table is OUTBOX:
                self._outbox |= {row.id: row for row in each.rows}
            else:
                found.insert(each.table, each.rows, self._numbers)
        for change in changes.updates:
            found.update(change)
        for gone in changes.deletes:
            found.delete(gone)

    async def renew(self, leases: Sequence[Lease]) -> list[Renewed]:
        with self._lock:
            return [self._carry_out(Renew(lease=lease)) for lease in leases]

    async def cancels(self, leases: Sequence[Lease]) -> list[str | None]:
        with self._lock:
            found = [self._find(lease.ref) for lease in leases]
        rows = [None if each is None else each.row for each in found]
        return [cancel_of(row, lease) for row, lease in zip(rows, leases, strict=True)]

    async def delete_idle(
        self,
        ttl: float,
        *,
        app: str | None = None,
        user: str | None = None,
        statuses: Sequence[Status] | None = None,
        limit: int | None = None,
    ) -> list[SessionRef]:
        with self._lock:
            chosen = [found.row.ref for found in self._sessions.values() if fits(found.row, app, user)]
            requests = (Delete(ref=ref, idle=ttl, statuses=statuses) for ref in chosen)
            return _first(limit, (request.ref for request in requests if self._carry_out(request)))

    async def load(self, ref: SessionRef, checkpoint: str | None = None) -> Loaded | None:
        with self._lock:
            found = self._find(ref)
            if found is None or (checkpoint is None and found.row.pos < 0):
                return None
            pos = found.row.pos if checkpoint is None else _position(found, checkpoint)
            kept = found.log[pos]
            assert kept is not None
            return Loaded(
                head=head_of(found.row, self._clock()),
                point=found.row.checkpoint if checkpoint is None else checkpoint,
                rows=_fold(found, pos),
                answers=_untaken(found) if pos == found.row.pos and found.row.waiting else (),
                at=kept.at,
            )

    async def head(self, ref: SessionRef) -> Head | None:
        with self._lock:
            found = self._find(ref)
            return None if found is None else head_of(found.row, self._clock())

    async def inputs(self, ref: SessionRef, *, limit: int | None = None) -> list[QueuedInput]:
        with self._lock:
            return [queued_input(each) for each in _first(limit, self._found(ref).queue())]

    async def checkpoints(
        self,
        ref: SessionRef,
        *,
        limit: int | None = None,
        before: str | None = None,
        source: str | None = None,
        under: str | None = None,
    ) -> list[CheckpointRow]:
        with self._lock:
            found = self._found(ref)
            end = found.row.pos + 1 if before is None else _position(found, before)
            return _first(limit, _listed(found, end, source, under or ""))

    async def sessions(
        self,
        *,
        app: str | None = None,
        user: str | None = None,
        status: Status | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[Head]:
        with self._lock:
            now, behind = self._clock(), None if after is None else written_at(after)
            rows = [found.row for found in self._sessions.values() if behind is None or written(found.row) < behind]
            chosen = [row for row in rows if fits(row, app, user) and has_status(row, status)]
            chosen.sort(key=written, reverse=True)
            return [head_of(row, now) for row in chosen[:limit]]

    async def find(self, session: str, *, user: str | None = None) -> list[SessionRef]:
        with self._lock:
            rows = [found.row for found in self._sessions.values() if found.row.session == session]
            return sorted([row.ref for row in rows if fits(row, None, user)], key=lambda ref: ref.app)

    async def questions(
        self,
        ref: SessionRef | None = None,
        *,
        filter: QuestionFilter = ALL_QUESTIONS,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[OpenQuestion]:
        with self._lock:
            if ref is None:
                return listed(self._asked_on_heads(), filter, self._clock(), after=after, limit=limit)
            found = self._find(ref)
            asked = [] if found is None else [(found.row, each) for each in found.asked_on_head.values()]
            return listed(asked, in_app_of(ref, filter), self._clock(), after=after, limit=limit)

    async def count_questions(self, filter: QuestionFilter = ALL_QUESTIONS) -> int:
        with self._lock:
            now = self._clock()
            return sum(is_listed(row, asked, filter, now) for row, asked in self._asked_on_heads())

    def _asked_on_heads(self) -> Iterator[tuple[SessionRow, QuestionRow]]:
        return ((found.row, asked) for found in self._sessions.values() for asked in found.asked_on_head.values())

    async def audit(
        self, ref: SessionRef, branch: str | None = None, *, all_branches: bool = False
    ) -> list[AuditEntry]:
        with self._lock:
            found = self._found(ref)
            chosen = [branch or found.row.branch]
            if all_branches:
                chosen = [each.name for each in found.branches]
            return [audit_entry(row, name) for name in chosen for row in found.asked_on(name).values()]

    async def records(
        self, ref: SessionRef, *, after: str | None = None, limit: int | None = None
    ) -> list[StoredRecord]:
        with self._lock:
            found = self._found(ref)
            start = 0 if after is None else _ever(found, after) + 1
            kept = (found.record(pos) for pos in range(start, len(found.log)))
            return _first(limit, (stored_record(each) for each in kept if each is not None))

    async def asked(self, ref: SessionRef, branch: str, ids: Sequence[str]) -> list[AuditEntry]:
        with self._lock:
            kept = self._found(ref).asked_on(branch)
            rows = [kept[each] for each in set(ids) if each in kept]
            return [audit_entry(row, branch) for row in sorted(rows, key=lambda row: row.no)]

    async def begun(self, digest: str) -> list[Begun]:
        with self._lock:
            return list(self._begun.get(digest, ()))

    async def events(self, ref: SessionRef, after: int = 0, *, limit: int | None = None) -> list[EventBatch]:
        with self._lock:
            return _first(limit, _events(self._found(ref), after))

    async def due(
        self,
        *,
        app: str | None = None,
        user: str | None = None,
        programs: Sequence[str] | None = None,
        skip_users: Sequence[str] = (),
        limit: int = 100,
    ) -> list[Due]:
        with self._lock:
            now = self._clock()
            found = [
                due(each.row, each.asked_on_head.values(), each.first_input, now)
                for each in self._sessions.values()
                if fits(each.row, app, user) and is_wanted(each.row, programs, skip_users)
            ]
        return _first(limit, sorted(filter(None, found), key=lambda each: each.since))

    async def take_notices(self, app: str, to: Sequence[str], ttl: float, *, limit: int = 100) -> list[TakenNotice]:
        with self._lock:
            now = self._clock()
            found = [each for each in self._outbox.values() if each.app == app and each.to in to and each.due <= now]
            chosen = sorted(found, key=lambda each: each.due)[:limit]
            taken = [replace(each, due=now + ttl, attempt=each.attempt + 1) for each in chosen]
            self._outbox |= {each.id: each for each in taken}
            return [notice_of(each) for each in taken]

    async def settle_notice(self, taken: TakenNotice, *, again: float | None = None) -> bool:
        with self._lock:
            found = self._outbox.get(taken.id)
            if found is None or found.attempt != taken.attempt:
                return False
            if again is None:
                del self._outbox[taken.id]
            else:
                self._outbox[taken.id] = replace(found, due=self._clock() + again)
            return True

    async def drop_notices(self, app: str, age: float) -> int:
        with self._lock:
            before = self._clock() - age
            gone = [name for name, each in self._outbox.items() if each.app == app and each.due < before]
            for name in gone:
                del self._outbox[name]
            return len(gone)

    def hints(self) -> AsyncGenerator[SessionRef | None]:
        return self._hints.subscribe()

    async def close(self) -> None:
        pass  # what is kept lives as long as the store object

    def _find(self, ref: SessionRef) -> Session | None:
        found = self._sessions.get((ref.app, ref.id))
        return found if found is not None and is_named(found.row, ref) else None

    def _found(self, ref: SessionRef) -> Session:
        found = self._find(ref)
        if found is None:
            raise CheckpointNotFound(ref.id)
        return found


def _first(limit: int | None, found: Iterable[T]) -> list[T]:
    return list(islice(found, limit))


def _position(found: Session, id: str) -> int:
    pos = _ever(found, id)
    if found.log[pos] is None:
        raise CheckpointNotFound(found.row.session, id)
    return pos


def _ever(found: Session, id: str) -> int:
    """Return the position that a record has or, if it was pruned, had."""
    pos = locate(found.branches, found.row.pos, id)
    if pos is None:
        raise CheckpointNotFound(found.row.session, id)
    return pos


def _fold(found: Session, pos: int) -> tuple[bytes, ...]:
    """Return the bodies from the last full record up to a position; pruning leaves no holes in between."""
    rows: list[bytes] = []
    for kept in reversed(found.log[: pos + 1]):
        assert kept is not None
        rows.append(kept.body)
        if kept.full:
            break
    return tuple(reversed(rows))


def _listed(found: Session, end: int, source: str | None, under: str) -> Iterator[CheckpointRow]:
    for pos in range(end - 1, -1, -1):
        kept = found.log[pos]
        if kept is None or kept.source is None or source not in (None, kept.source):
            continue
        record = found.record(pos)
        assert record is not None
        listed = checkpoint_row(record, kept.at)
        if lies_under(listed.header.address, under):
            yield listed


def _events(found: Session, after: int) -> Iterator[EventBatch]:
    start = len(found.log)
    while start and ((kept := found.log[start - 1]) is None or kept.seq > after):
        start -= 1
    for pos in range(start, len(found.log)):
        record = found.record(pos)
        if record is not None and record.count:
            yield event_batch(record)


def _untaken(found: Session) -> tuple[Answered, ...]:
    return tuple([answered(asked) for asked in found.asked_on_head.values() if not asked.is_open and not asked.taken])
