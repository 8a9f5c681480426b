"""A store in this process's memory, for tests, notebooks and runs that nobody needs to survive."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from operator import itemgetter
from typing import TypeVar

import msgspec

from adjourn.errors import CheckpointNotFound

from . import _transitions as transitions
from ._ledger import QuestionRow
from ._rows import Branch, Point, SessionRow, decode_header, fits, head_of, id_at, is_live, is_named, lies_under, locate
from .protocol import (
    Answer,
    Answered,
    AuditEntry,
    CheckpointRow,
    Claimed,
    Committed,
    Due,
    EventBatch,
    Head,
    Lease,
    Loaded,
    OpenQuestion,
    Question,
    Renewed,
    SessionRef,
    Status,
    Write,
)

# An override is documented where it is declared.
# ruff: noqa: D102


class Record(msgspec.Struct, frozen=True, gc=False):
    """A record as it is kept; `seq` is the session's last event number after it."""

    full: bool
    listed: bool
    at: float
    seq: int
    count: int
    header: bytes
    events: bytes
    body: bytes


class Session(SessionRow, gc=False, kw_only=True):
    """A session whole: positions are indexes of `log`, where pruned records leave None."""

    log: list[Record | None]
    branches: tuple[Branch, ...] = ()
    questions: dict[str, QuestionRow]
    past: tuple[dict[str, QuestionRow], ...] = ()


class MemoryLedger:
    """The ledger's operations on sessions in a dict."""

    def __init__(self) -> None:
        self.sessions: dict[tuple[str, str], Session] = {}
        self._asked = 0

    def find(self, app: str, session: str) -> Session | None:
        return self.sessions.get((app, session))

    def create(self, ref: SessionRef, now: float) -> Session:
        row = self.sessions[ref.app, ref.id] = Session(0, ref.id, ref.app, ref.user, now, log=[], questions={})
        return row

    def save(self, row: Session) -> None:
        pass  # the row is the session itself

    def remove(self, row: Session) -> None:
        del self.sessions[row.app, row.session]

    def idle(self, now: float, since: float) -> list[Session]:
        return [found for found in self.sessions.values() if found.updated < since and not is_live(found, now)]

    def branches(self, row: Session) -> Sequence[Branch]:
        return row.branches

    def add_branch(self, row: Session, branch: Branch) -> None:
        if row.branches:
            row.past = (*row.past, row.questions)
            row.questions = {}
        row.branches = (*row.branches, branch)

    def add_record(self, row: Session, write: Write, header: bytes, now: float) -> None:
        listed = write.header.source is not None
        row.log.append(Record(write.full, listed, now, row.seq, write.event_count, header, write.events, write.body))

    def has_record(self, row: Session, pos: int, write: Write, header: bytes) -> bool:
        kept = row.log[pos]
        return kept is not None and (
            (kept.full, kept.count, kept.header, kept.events, kept.body)
            == (write.full, write.event_count, header, write.events, write.body)
        )

    def has_position(self, row: Session, pos: int) -> bool:
        return row.log[pos] is not None

    def points(self, row: Session) -> Sequence[Point]:
        return [Point(pos, kept.full, kept.listed, kept.at) for pos, kept in enumerate(row.log) if kept]

    def drop_records(self, row: Session, points: Sequence[Point]) -> None:
        for point in points:
            row.log[point.pos] = None

    def question(self, row: Session, id: str) -> QuestionRow | None:
        return row.questions.get(id)

    def open_questions(self, row: Session) -> list[str]:
        return [asked.id for asked in row.questions.values() if asked.how is None]

    def asking(self, row: Session) -> list[int]:
        every = (*row.past, row.questions)
        return [no for no, questions in enumerate(every) if any(asked.how is None for asked in questions.values())]

    def untaken(self, row: Session) -> tuple[Answered, ...]:
        return tuple(
            Answered(id=asked.id, value=asked.value or b"", how=asked.how, by=asked.by, at=asked.at or 0.0)
            for asked in row.questions.values()
            if asked.how is not None and not asked.taken
        )

    def ask(self, row: Session, question: Question) -> None:
        self._asked += 1
        row.questions[question.id] = QuestionRow(question.id, question.body, question.expires, no=self._asked)

    def end(self, row: Session, answer: Answer, now: float, *, taken: bool) -> None:
        asked = row.questions[answer.id]
        asked.value = answer.value
        asked.how = answer.how
        asked.by = answer.by
        asked.at = now
        asked.taken = taken

    def take(self, row: Session, id: str) -> bool:
        asked = row.questions.get(id)
        if asked is None or asked.how is None or asked.taken:
            return False
        asked.taken = True
        return True


# An override is documented where it is declared.
# ruff: noqa: D102


class MemoryStore:
    """Keeps sessions as bytes in this process, for as long as the object lives.

    It encodes like the other stores, so what works here works there. Safe to use from any loop or thread; `clock`
    gives the store's time.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._ledger = MemoryLedger()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"MemoryStore({len(self._ledger.sessions)} sessions)"

    async def claim(
        self,
        ref: SessionRef,
        owner: str,
        ttl: float,
        *,
        after: str | None,
        write: Write | None = None,
        answers: Sequence[Answer] = (),
        replaces: str | None = None,
    ) -> Claimed:
        with self._lock:
            return transitions.claim(
                self._ledger,
                self._clock(),
                ref,
                owner,
                ttl,
                after=after,
                write=write,
                answers=answers,
                replaces=replaces,
            )

    async def renew(self, leases: Sequence[Lease]) -> list[Renewed]:
        with self._lock:
            return transitions.renew(self._ledger, self._clock(), leases)

    async def commit(self, lease: Lease, *writes: Write, after: str, release: bool = False) -> Committed:
        with self._lock:
            return transitions.commit_all(self._ledger, self._clock(), lease, writes, after=after, release=release)

    async def answer(self, ref: SessionRef, answers: Sequence[Answer], *, after: str | None = None) -> Head:
        with self._lock:
            return transitions.answer(self._ledger, self._clock(), ref, answers, after=after)

    async def cancel(self, ref: SessionRef, mode: str) -> bool:
        with self._lock:
            return transitions.cancel(self._ledger, self._clock(), ref, mode)

    async def delete(self, ref: SessionRef) -> None:
        with self._lock:
            transitions.delete(self._ledger, self._clock(), ref)

    async def prune(self, ref: SessionRef, *, keep: int | None = None, before: float | None = None) -> int:
        with self._lock:
            return transitions.prune(self._ledger, ref, keep=keep, before=before)

    async def delete_idle(self, ttl: float, *, app: str | None = None, user: str | None = None) -> list[SessionRef]:
        with self._lock:
            return transitions.delete_idle(self._ledger, self._clock(), ttl, app, user)

    async def load(self, ref: SessionRef, checkpoint: str | None = None) -> Loaded | None:
        with self._lock:
            found = self._find(ref)
            if found is None:
                return None
            pos = found.pos if checkpoint is None else _position(found, checkpoint)
            return Loaded(
                head=head_of(found, self._clock()),
                point=found.checkpoint if checkpoint is None else checkpoint,
                rows=_fold(found, pos),
                answers=self._ledger.untaken(found) if pos == found.pos and found.waiting else (),
            )

    async def head(self, ref: SessionRef) -> Head | None:
        with self._lock:
            found = self._find(ref)
            return None if found is None else head_of(found, self._clock())

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
            end = found.pos + 1 if before is None else _position(found, before)
            return _first(limit, _listed(found, end, source, under or ""))

    async def sessions(
        self, *, app: str | None = None, user: str | None = None, status: Status | None = None, limit: int | None = None
    ) -> list[Head]:
        with self._lock:
            now = self._clock()
            lately = sorted(self._ledger.sessions.values(), key=lambda found: found.updated)
            lately.reverse()  # sorting is stable: of those written at one time, too, the younger comes first
            chosen = (found for found in lately if fits(found, app, user) and status in (None, found.status))
            return [head_of(found, now) for found in _first(limit, chosen)]

    async def questions(
        self,
        ref: SessionRef | None = None,
        *,
        app: str | None = None,
        user: str | None = None,
        limit: int | None = None,
    ) -> list[OpenQuestion]:
        with self._lock:
            chosen = self._ledger.sessions.values() if ref is None else [self._find(ref)]
            now = self._clock()
            waiting = [
                (asked.no, _pending(found, asked))
                for found in chosen
                if found is not None and fits(found, app, user)
                for asked in found.questions.values()
                if asked.how is None and not _expired(asked, now)
            ]
            return [pending for _, pending in _first(limit, sorted(waiting, key=itemgetter(0)))]

    async def audit(self, ref: SessionRef) -> list[AuditEntry]:
        with self._lock:
            asked = self._found(ref).questions.values()
            return [AuditEntry(id=q.id, body=q.body, value=q.value, how=q.how, by=q.by, at=q.at) for q in asked]

    async def events(self, ref: SessionRef, after: int = 0, *, limit: int | None = None) -> list[EventBatch]:
        with self._lock:
            return _first(limit, _events(self._found(ref), after))

    async def due(self, *, app: str | None = None, user: str | None = None, limit: int = 100) -> list[Due]:
        with self._lock:
            chosen = [found for found in self._ledger.sessions.values() if fits(found, app, user)]
            return _first(limit, _due(chosen, self._clock()))

    async def close(self) -> None:
        pass  # what is kept lives as long as the store object

    def _find(self, ref: SessionRef) -> Session | None:
        found = self._ledger.find(ref.app, ref.id)
        return found if found is not None and is_named(found, ref) else None

    def _found(self, ref: SessionRef) -> Session:
        found = self._find(ref)
        if found is None:
            raise CheckpointNotFound(ref.id)
        return found


T = TypeVar("T")


def _first(limit: int | None, found: Iterable[T]) -> list[T]:
    return list(islice(found, limit))


def _position(found: Session, id: str) -> int:
    pos = locate(found.branches, found.pos, id)
    if pos is None or found.log[pos] is None:
        raise CheckpointNotFound(found.session, id)
    return pos


def _fold(found: Session, pos: int) -> tuple[bytes, ...]:
    """The bodies from the last full record up to a position; pruning leaves no holes in between."""
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
        if kept is None or not kept.listed:
            continue
        header = decode_header(kept.header)
        if source in (None, header.source) and lies_under(header.address, under):
            own, parent = id_at(found.branches, pos)
            yield CheckpointRow(id=own, parent=parent, created=kept.at, header=header)


def _events(found: Session, after: int) -> Iterator[EventBatch]:
    start = len(found.log)
    while start and ((kept := found.log[start - 1]) is None or kept.seq > after):
        start -= 1
    for pos in range(start, len(found.log)):
        kept = found.log[pos]
        if kept is not None and kept.count:
            yield EventBatch(
                id=id_at(found.branches, pos)[0],
                header=decode_header(kept.header),
                first=kept.seq - kept.count + 1,
                count=kept.count,
                body=kept.events,
            )


def _due(sessions: Iterable[Session], now: float) -> Iterator[Due]:
    for found in sessions:
        if is_live(found, now):
            continue
        if found.owner is not None:
            yield Due(session=found.session, app=found.app, why="lease")
        elif found.waiting:
            yield Due(session=found.session, app=found.app, why="answer")
        elif any(asked.how is None and _expired(asked, now) for asked in found.questions.values()):
            yield Due(session=found.session, app=found.app, why="question")


def _pending(found: SessionRow, asked: QuestionRow) -> OpenQuestion:
    return OpenQuestion(
        session=found.session,
        app=found.app,
        checkpoint=found.checkpoint,
        id=asked.id,
        body=asked.body,
        expires=asked.expires,
    )


def _expired(asked: QuestionRow, now: float) -> bool:
    return asked.expires is not None and asked.expires <= now
