"""A store in this process's memory, for tests, notebooks and runs that nobody needs to survive."""

# An override is documented where it is declared.
# ruff: noqa: D102

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from operator import itemgetter
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from adjourn.errors import CheckpointNotFound

from .kit.effects import Effects, advanced, ended
from .kit.pruning import Point
from .kit.requests import Delete, Renew, Request
from .kit.rows import (
    Branch,
    QuestionRow,
    RecordRow,
    SessionRow,
    answered,
    audit_entry,
    decode_header,
    fits,
    head_of,
    is_live,
    is_named,
    lies_under,
    locate,
)
from .kit.store import KitStore
from .protocol import (
    Answered,
    AuditEntry,
    CheckpointRow,
    Due,
    EventBatch,
    Head,
    Lease,
    Loaded,
    OpenQuestion,
    Renewed,
    SessionRef,
    Status,
)

T = TypeVar("T")


class Kept(NamedTuple):
    """A record and when it was written."""

    record: RecordRow
    at: float


class Session:
    """A session whole: positions are indexes of `log`, where pruned records leave None; questions are by branch."""

    __slots__ = ("branches", "log", "questions", "row")

    def __init__(self, row: SessionRow) -> None:
        self.row = row
        self.log: list[Kept | None] = []
        self.branches: tuple[Branch, ...] = ()
        self.questions: dict[str, dict[str, QuestionRow]] = {}

    @property
    def asked(self) -> dict[str, QuestionRow]:
        """The questions of the head's branch."""
        return self.questions.get(self.row.branch, {})


class MemoryFacts:
    """The facts of a session, looked up as they are wanted."""

    __slots__ = ("_found", "now", "row")
    assumed = False

    def __init__(self, found: Session | None, now: float) -> None:
        self._found = found
        self.now = now
        self.row = None if found is None else found.row

    @property
    def found(self) -> Session:
        """The session, which is there."""
        assert self._found is not None
        return self._found

    def question(self, id: str) -> QuestionRow | None:
        return self.found.asked.get(id)

    def waiting(self) -> Sequence[QuestionRow]:
        return [each for each in self.found.asked.values() if each.is_open or not each.taken]

    def branches(self) -> Sequence[Branch]:
        return self.found.branches

    def record(self, id: str) -> RecordRow | None:
        pos = locate(self.found.branches, self.found.row.pos, id)
        kept = None if pos is None else self.found.log[pos]
        return None if kept is None else kept.record

    def points(self) -> Sequence[Point]:
        kept = [each for each in self.found.log if each is not None]
        return [Point(each.pos, each.full, each.source is not None, at) for each, at in kept]

    def asking(self) -> Sequence[int]:
        by_branch = [self.found.questions.get(branch.name, {}) for branch in self.found.branches]
        return [no for no, asked in enumerate(by_branch) if any(each.is_open for each in asked.values())]


class MemoryStore(KitStore):
    """Keeps sessions as bytes in this process, for as long as the object lives.

    It encodes like the other stores, so what works here works there. Safe to use from any loop or thread; `clock`
    gives the store's time.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._sessions: dict[tuple[str, str], Session] = {}
        self._asked = 0
        self._lock = threading.Lock()

    async def carry_out(self, request: Request[T]) -> T:
        with self._lock:
            return self._carry_out(request)

    def _carry_out(self, request: Request[T]) -> T:
        now, ref = self._clock(), request.ref
        found = self._sessions.get((ref.app, ref.id))
        effects, result = request.decide(MemoryFacts(found, now))
        if effects is not None:
            self._apply(ref, found, effects, now)
        return result

    def _apply(self, ref: SessionRef, found: Session | None, effects: Effects, now: float) -> None:
        """Write effects. Their guards hold: the facts were looked up under the same lock."""
        if effects.removes:
            del self._sessions[ref.app, ref.id]
            return
        if found is None:
            row = SessionRow(0, ref.id, ref.app, ref.user, now)
            found = self._sessions[ref.app, ref.id] = Session(row)
        before, found.row = found.row, advanced(found.row, effects, now)
        if effects.branches:
            found.branches = (*found.branches, *effects.branches)
        for record in effects.records:
            found.log.append(Kept(record, now))
        for pos in effects.drops:
            found.log[pos] = None
        if effects.asks:
            asked = found.questions.setdefault(found.row.branch, {})
            for question in effects.asks:
                self._asked += 1
                asked[question.id] = QuestionRow(question.id, question.body, question.expires, no=self._asked)
        for end in effects.ends:
            asked = found.questions[end.branch]
            asked[end.answer.id] = ended(asked[end.answer.id], end, now)
        for taken in effects.takes:
            asked = found.questions[before.branch]
            asked[taken] = replace(asked[taken], taken=True)

    async def renew(self, leases: Sequence[Lease]) -> list[Renewed]:
        with self._lock:
            return [self._carry_out(Renew(lease=lease)) for lease in leases]

    async def delete_idle(self, ttl: float, *, app: str | None = None, user: str | None = None) -> list[SessionRef]:
        with self._lock:
            chosen = [found.row.ref for found in self._sessions.values() if fits(found.row, app, user)]
            return [ref for ref in chosen if self._carry_out(Delete(ref=ref, idle=ttl))]

    async def load(self, ref: SessionRef, checkpoint: str | None = None) -> Loaded | None:
        with self._lock:
            found = self._find(ref)
            if found is None:
                return None
            pos = found.row.pos if checkpoint is None else _position(found, checkpoint)
            return Loaded(
                head=head_of(found.row, self._clock()),
                point=found.row.checkpoint if checkpoint is None else checkpoint,
                rows=_fold(found, pos),
                answers=_untaken(found) if pos == found.row.pos and found.row.waiting else (),
            )

    async def head(self, ref: SessionRef) -> Head | None:
        with self._lock:
            found = self._find(ref)
            return None if found is None else head_of(found.row, self._clock())

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
        self, *, app: str | None = None, user: str | None = None, status: Status | None = None, limit: int | None = None
    ) -> list[Head]:
        with self._lock:
            now = self._clock()
            rows = sorted((found.row for found in self._sessions.values()), key=lambda row: row.updated)
            rows.reverse()  # sorting is stable: of those written at one time, too, the younger comes first
            chosen = (row for row in rows if fits(row, app, user) and status in (None, row.status))
            return [head_of(row, now) for row in _first(limit, chosen)]

    async def questions(
        self,
        ref: SessionRef | None = None,
        *,
        app: str | None = None,
        user: str | None = None,
        limit: int | None = None,
    ) -> list[OpenQuestion]:
        with self._lock:
            chosen = self._sessions.values() if ref is None else [self._find(ref)]
            now = self._clock()
            waiting = [
                (asked.no, _open(found.row, asked))
                for found in chosen
                if found is not None and fits(found.row, app, user)
                for asked in found.asked.values()
                if asked.is_open and not _expired(asked, now)
            ]
            return [each for _, each in _first(limit, sorted(waiting, key=itemgetter(0)))]

    async def audit(self, ref: SessionRef) -> list[AuditEntry]:
        with self._lock:
            asked = self._found(ref).asked.values()
            return [audit_entry(each) for each in asked]

    async def events(self, ref: SessionRef, after: int = 0, *, limit: int | None = None) -> list[EventBatch]:
        with self._lock:
            return _first(limit, _events(self._found(ref), after))

    async def due(self, *, app: str | None = None, user: str | None = None, limit: int = 100) -> list[Due]:
        with self._lock:
            chosen = [found for found in self._sessions.values() if fits(found.row, app, user)]
            return _first(limit, _due(chosen, self._clock()))

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
    pos = locate(found.branches, found.row.pos, id)
    if pos is None or found.log[pos] is None:
        raise CheckpointNotFound(found.row.session, id)
    return pos


def _fold(found: Session, pos: int) -> tuple[bytes, ...]:
    """The bodies from the last full record up to a position; pruning leaves no holes in between."""
    rows: list[bytes] = []
    for kept in reversed(found.log[: pos + 1]):
        assert kept is not None
        rows.append(kept.record.body)
        if kept.record.full:
            break
    return tuple(reversed(rows))


def _listed(found: Session, end: int, source: str | None, under: str) -> Iterator[CheckpointRow]:
    for pos in range(end - 1, -1, -1):
        kept = found.log[pos]
        if kept is None or kept.record.source is None:
            continue
        header = decode_header(kept.record.header)
        if source in (None, header.source) and lies_under(header.address, under):
            yield CheckpointRow(id=kept.record.id, parent=kept.record.parent, created=kept.at, header=header)


def _events(found: Session, after: int) -> Iterator[EventBatch]:
    start = len(found.log)
    while start and ((kept := found.log[start - 1]) is None or kept.record.seq > after):
        start -= 1
    for kept in found.log[start:]:
        if kept is not None and kept.record.count:
            record = kept.record
            yield EventBatch(
                id=record.id,
                header=decode_header(record.header),
                first=record.seq - record.count + 1,
                count=record.count,
                body=record.events,
            )


def _due(sessions: Iterable[Session], now: float) -> Iterator[Due]:
    for found in sessions:
        row = found.row
        if is_live(row, now):
            continue
        if row.owner is not None:
            yield Due(session=row.session, app=row.app, why="lease")
        elif row.waiting:
            yield Due(session=row.session, app=row.app, why="answer")
        elif any(asked.is_open and _expired(asked, now) for asked in found.asked.values()):
            yield Due(session=row.session, app=row.app, why="question")


def _untaken(found: Session) -> tuple[Answered, ...]:
    return tuple([answered(asked) for asked in found.asked.values() if not asked.is_open and not asked.taken])


def _open(row: SessionRow, asked: QuestionRow) -> OpenQuestion:
    return OpenQuestion(
        session=row.session, app=row.app, checkpoint=row.checkpoint, id=asked.id, body=asked.body, expires=asked.expires
    )


def _expired(asked: QuestionRow, now: float) -> bool:
    return asked.expires is not None and asked.expires <= now
