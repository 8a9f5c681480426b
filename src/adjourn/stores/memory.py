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
from ._ledger import Asked
from ._rows import Branch, Point, Standing, decode_header, head_of, id_at, is_live, lies_under, locate
from .protocol import (
    Answer,
    Answered,
    Claimed,
    Committed,
    Decision,
    Due,
    Events,
    Head,
    Lease,
    Listed,
    Loaded,
    Pending,
    Question,
    Renewed,
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


class Session(Standing, gc=False, kw_only=True):
    """A session whole: positions are indexes of `log`, where pruned records leave None."""

    log: list[Record | None]
    branches: tuple[Branch, ...] = ()
    questions: dict[str, Asked]
    past: tuple[dict[str, Asked], ...] = ()


class MemoryLedger:
    """The ledger's operations on sessions in a dict."""

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}
        self._asked = 0

    def find(self, session: str) -> Session | None:
        return self.sessions.get(session)

    def create(self, session: str, app: str, user: str | None, now: float) -> Session:
        standing = self.sessions[session] = Session(0, session, app, user, now, log=[], questions={})
        return standing

    def save(self, standing: Session) -> None:
        pass  # the standing is the session itself

    def remove(self, standing: Session) -> None:
        del self.sessions[standing.session]

    def idle(self, now: float, since: float) -> list[Session]:
        return [found for found in self.sessions.values() if found.updated < since and not is_live(found, now)]

    def branches(self, standing: Session) -> Sequence[Branch]:
        return standing.branches

    def add_branch(self, standing: Session, branch: Branch) -> None:
        if standing.branches:
            standing.past = (*standing.past, standing.questions)
            standing.questions = {}
        standing.branches = (*standing.branches, branch)

    def add_record(self, standing: Session, write: Write, header: bytes, now: float) -> None:
        listed = write.header.source is not None
        standing.log.append(
            Record(write.full, listed, now, standing.seq, write.event_count, header, write.events, write.body)
        )

    def has_record(self, standing: Session, pos: int, write: Write, header: bytes) -> bool:
        kept = standing.log[pos]
        return kept is not None and (
            (kept.full, kept.count, kept.header, kept.events, kept.body)
            == (write.full, write.event_count, header, write.events, write.body)
        )

    def has_position(self, standing: Session, pos: int) -> bool:
        return standing.log[pos] is not None

    def points(self, standing: Session) -> Sequence[Point]:
        return [Point(pos, kept.full, kept.listed, kept.at) for pos, kept in enumerate(standing.log) if kept]

    def drop_records(self, standing: Session, points: Sequence[Point]) -> None:
        for point in points:
            standing.log[point.pos] = None

    def question(self, standing: Session, id: str) -> Asked | None:
        return standing.questions.get(id)

    def open_questions(self, standing: Session) -> list[str]:
        return [asked.id for asked in standing.questions.values() if asked.how is None]

    def asking(self, standing: Session) -> list[int]:
        every = (*standing.past, standing.questions)
        return [no for no, questions in enumerate(every) if any(asked.how is None for asked in questions.values())]

    def untaken(self, standing: Session) -> tuple[Answered, ...]:
        return tuple(
            Answered(id=asked.id, value=asked.value or b"", how=asked.how, by=asked.by, at=asked.at or 0.0)
            for asked in standing.questions.values()
            if asked.how is not None and not asked.taken
        )

    def ask(self, standing: Session, question: Question) -> None:
        self._asked += 1
        standing.questions[question.id] = Asked(question.id, question.body, question.expires, no=self._asked)

    def end(self, standing: Session, answer: Answer, now: float, *, taken: bool) -> None:
        asked = standing.questions[answer.id]
        asked.value = answer.value
        asked.how = answer.how
        asked.by = answer.by
        asked.at = now
        asked.taken = taken

    def take(self, standing: Session, id: str) -> bool:
        asked = standing.questions.get(id)
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
        session: str,
        owner: str,
        ttl: float,
        *,
        after: str | None,
        write: Write | None = None,
        answers: Sequence[Answer] = (),
        over: str | None = None,
        app: str = "adjourn",
        user: str | None = None,
    ) -> Claimed:
        with self._lock:
            return transitions.claim(
                self._ledger,
                self._clock(),
                session,
                owner,
                ttl,
                after=after,
                write=write,
                answers=answers,
                over=over,
                app=app,
                user=user,
            )

    async def renew(self, leases: Sequence[Lease]) -> list[Renewed]:
        with self._lock:
            return transitions.renew(self._ledger, self._clock(), leases)

    async def commit(self, lease: Lease, *writes: Write, after: str, release: bool = False) -> Committed:
        with self._lock:
            return transitions.commit_all(self._ledger, self._clock(), lease, writes, after=after, release=release)

    async def answer(self, session: str, answers: Sequence[Answer], *, after: str | None = None) -> Head:
        with self._lock:
            return transitions.answer(self._ledger, self._clock(), session, answers, after=after)

    async def cancel(self, session: str, mode: str) -> bool:
        with self._lock:
            return transitions.cancel(self._ledger, self._clock(), session, mode)

    async def delete(self, session: str) -> None:
        with self._lock:
            transitions.delete(self._ledger, self._clock(), session)

    async def prune(self, session: str, *, keep: int | None = None, before: float | None = None) -> int:
        with self._lock:
            return transitions.prune(self._ledger, session, keep=keep, before=before)

    async def expire(self, ttl: float) -> list[str]:
        with self._lock:
            return transitions.expire(self._ledger, self._clock(), ttl)

    async def load(self, session: str, checkpoint: str | None = None) -> Loaded | None:
        with self._lock:
            found = self._ledger.find(session)
            if found is None:
                return None
            pos = found.pos if checkpoint is None else _position(found, checkpoint)
            return Loaded(
                head=head_of(found, self._clock()),
                point=found.checkpoint if checkpoint is None else checkpoint,
                rows=_fold(found, pos),
                answers=self._ledger.untaken(found) if pos == found.pos and found.waiting else (),
            )

    async def head(self, session: str) -> Head | None:
        with self._lock:
            found = self._ledger.find(session)
            return None if found is None else head_of(found, self._clock())

    async def list(
        self,
        session: str,
        *,
        limit: int | None = None,
        before: str | None = None,
        source: str | None = None,
        under: str | None = None,
    ) -> list[Listed]:
        with self._lock:
            found = self._found(session)
            end = found.pos + 1 if before is None else _position(found, before)
            return _first(limit, _listed(found, end, source, under or ""))

    async def sessions(
        self, *, app: str | None = None, user: str | None = None, status: Status | None = None, limit: int | None = None
    ) -> list[Head]:
        with self._lock:
            now = self._clock()
            lately = sorted(self._ledger.sessions.values(), key=lambda found: found.updated)
            lately.reverse()  # sorting is stable: of those written at one time, too, the younger comes first
            chosen = (found for found in lately if _fits(found, app, user) and status in (None, found.status))
            return [head_of(found, now) for found in _first(limit, chosen)]

    async def interrupts(
        self, session: str | None = None, *, app: str | None = None, user: str | None = None, limit: int | None = None
    ) -> list[Pending]:
        with self._lock:
            chosen = self._ledger.sessions.values() if session is None else [self._ledger.find(session)]
            now = self._clock()
            waiting = [
                (asked.no, _pending(found, asked))
                for found in chosen
                if found is not None and _fits(found, app, user)
                for asked in found.questions.values()
                if asked.how is None and not _expired(asked, now)
            ]
            return [pending for _, pending in _first(limit, sorted(waiting, key=itemgetter(0)))]

    async def decisions(self, session: str) -> list[Decision]:
        with self._lock:
            asked = self._found(session).questions.values()
            return [Decision(id=q.id, body=q.body, value=q.value, how=q.how, by=q.by, at=q.at) for q in asked]

    async def events(self, session: str, after: int = 0, *, limit: int | None = None) -> list[Events]:
        with self._lock:
            return _first(limit, _events(self._found(session), after))

    async def due(self, *, limit: int = 100) -> list[Due]:
        with self._lock:
            return _first(limit, _due(self._ledger.sessions.values(), self._clock()))

    async def close(self) -> None:
        pass  # what is kept lives as long as the store object

    def _found(self, session: str) -> Session:
        found = self._ledger.find(session)
        if found is None:
            raise CheckpointNotFound(session)
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


def _listed(found: Session, end: int, source: str | None, under: str) -> Iterator[Listed]:
    for pos in range(end - 1, -1, -1):
        kept = found.log[pos]
        if kept is None or not kept.listed:
            continue
        header = decode_header(kept.header)
        if source in (None, header.source) and lies_under(header.address, under):
            own, parent = id_at(found.branches, pos)
            yield Listed(id=own, parent=parent, created=kept.at, header=header)


def _events(found: Session, after: int) -> Iterator[Events]:
    start = len(found.log)
    while start and ((kept := found.log[start - 1]) is None or kept.seq > after):
        start -= 1
    for pos in range(start, len(found.log)):
        kept = found.log[pos]
        if kept is not None and kept.count:
            yield Events(
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
            yield Due(session=found.session, why="lease")
        elif found.waiting:
            yield Due(session=found.session, why="answer")
        elif any(asked.how is None and _expired(asked, now) for asked in found.questions.values()):
            yield Due(session=found.session, why="question")


def _fits(found: Standing, app: str | None, user: str | None) -> bool:
    return app in (None, found.app) and user in (None, found.user)


def _pending(found: Standing, asked: Asked) -> Pending:
    return Pending(
        session=found.session, checkpoint=found.checkpoint, id=asked.id, body=asked.body, expires=asked.expires
    )


def _expired(asked: Asked, now: float) -> bool:
    return asked.expires is not None and asked.expires <= now
