"""A store in this process's memory, for tests, notebooks and runs that nobody needs to survive."""

# An override is documented where it is declared.
# ruff: noqa: D102

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Sequence
from itertools import count, islice
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from adjourn.errors import CheckpointNotFound

from ._ordered import Ordered
from .kit.decided import listed_decisions
from .kit.effects import Effects, Removal, Update
from .kit.facts import Folded, Logged, Span, folded, spanned
from .kit.forks import forget_after_fork
from .kit.hints import Fanout
from .kit.inbox import Place, is_listed, listed, open_question, stretches
from .kit.paging import written, written_at
from .kit.queries import (
    CountQuestions,
    FindSessions,
    ListBegun,
    ListDecisions,
    ListDue,
    ListQuestions,
    ListSessions,
    SessionQuery,
    StoreQuery,
)
from .kit.requests import (
    OF_MANY,
    Delete,
    DeleteIdle,
    DropNotices,
    Renew,
    SessionRequest,
    SettleNotice,
    StoreRequest,
    TakeNotices,
)
from .kit.rows import (
    Branch,
    InputRow,
    NoticeRow,
    QuestionRow,
    RecordRow,
    SessionRow,
    cancel_of,
    due,
    fits,
    has_status,
    head_of,
    id_at,
    is_wanted,
    locate,
    notice_of,
)
from .kit.store import unknown_request
from .kit.tables import BEGUN, BRANCHES, OUTBOX, QUESTIONS, RECORDS
from .types import Begun, Lease, Renewed, SessionRef

T = TypeVar("T")


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

    def insert(self, table: object, rows: Sequence[Any], numbers: Iterator[int], inbox: Inbox) -> None:
        """Add rows to a table of the session."""
        if table is BRANCHES:
            inbox.remove(self)  # The head is on the newest branch.
            self.branches += tuple(rows)
            self.asked += tuple([dict[str, QuestionRow]() for _ in rows])
        elif table is QUESTIONS:
            for row in rows:
                asked = self.asked[row.branch][row.id] = replace(row, no=next(numbers))
                inbox.change(self, None, asked)
        else:
            if self.inputs is _NO_INPUTS:
                self.inputs = {}
            self.inputs |= {row.id: row for row in rows}

    def update(self, change: Update, inbox: Inbox) -> None:
        """Change a row."""
        if change.table is QUESTIONS:
            branch: int
            branch, name = change.key
            asked = self.asked[branch]
            before, asked[name] = asked[name], replace(asked[name], **change.values)
            inbox.change(self, before, asked[name])
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


class Inbox:
    """The open questions on the branches of the sessions' heads, oldest first: a page does not look at all sessions."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: Ordered[tuple[float, int, Session, QuestionRow]] = Ordered()

    def change(self, session: Session, before: QuestionRow | None, after: QuestionRow) -> None:
        """Take note that a question was asked, or that its row has changed."""
        if after.branch != len(session.branches) - 1:
            return
        if before is not None and before.is_open:
            self._open.remove((before.asked, before.no))
        if after.is_open:
            self._open.add((after.asked, after.no, session, after))

    def remove(self, session: Session) -> None:
        """Remove the questions of a session that is deleted, or whose head moves to another branch."""
        for asked in session.asked_on_head.values():
            if asked.is_open:
                self._open.remove((asked.asked, asked.no))

    def behind(self, time: float, number: int) -> Iterator[tuple[SessionRow, QuestionRow]]:
        """Yield the questions behind a place, in the order in which they were asked."""
        return ((session.row, asked) for _, _, session, asked in self._open.behind(time, number))

    def __iter__(self) -> Iterator[tuple[SessionRow, QuestionRow]]:
        return self.behind(-math.inf, 0)


class MemoryFacts:
    """The facts of a session, looked up as needed."""

    __slots__ = ("_found", "now", "row")
    assumed = False
    has_inbox = False
    ttl = None

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
        asked = self._found.asked if self._found is not None else ()
        return asked[-1].get(id) if asked else None

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

    def asking(self) -> Sequence[int]:
        by_branch = enumerate(self.found.asked)
        return [no for no, asked in by_branch if any(each.is_open for each in asked.values())]

    def queue(self, limit: int | None) -> Sequence[InputRow]:
        return list(islice(self.found.queue(), limit))

    def asked(self, branch: str, ids: Collection[str] | None = None) -> Sequence[QuestionRow]:
        kept = self.found.asked_on(branch)
        if ids is None:
            return list(kept.values())
        return sorted([kept[each] for each in ids if each in kept], key=lambda row: row.no)

    def log(self, span: Span) -> Iterable[Logged]:
        return spanned(span, self.found.row, self.found.branches, self.found.log)

    def fold(self, checkpoint: str | None) -> Folded | None:
        return folded(checkpoint, self.found.row, self.found.branches, self.found.log)


class MemoryStore:
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
        self._inbox = Inbox()
        self._apps: Counter[str] = Counter()
        """How many sessions each app has: one is found by its id alone with a look into each app."""
        self._hints = Fanout()
        self._forget()
        forget_after_fork(self, MemoryStore._forget)

    def _forget(self) -> None:
        self._lock = threading.Lock()

    async def write(self, request: StoreRequest[T]) -> T:
        with self._lock:
            if type(request) in OF_MANY:
                return self._maintain(request, self._clock())
            of_session: Any = request  # as all others are
            return self._carry_out(of_session)

    def _carry_out(self, request: SessionRequest[T]) -> T:
        ref = request.ref
        found = self._sessions.get((ref.app, ref.id))
        effects, result = request.decide(MemoryFacts(found, self._clock()))
        if effects is None:
            return result
        if (after := effects.after) is None:
            self._forget_session(ref)
        else:
            # Its guards hold: the facts were looked up under the same lock.
            if found is None:
                found = self._sessions[ref.app, ref.id] = Session(after, [])
                self._apps[ref.app] += 1
            found.row = after
            self._write(effects, found)
        if self._hints.listeners and effects.is_news:
            self._hints.publish(ref)
        return result

    def _write(self, effects: Effects, found: Session) -> None:
        """Write what is below the row of a session."""
        for each in effects.inserts:
            if each.table is RECORDS:
                found.log.extend(each.rows)
            elif each.table is BEGUN:
                for row in each.rows:
                    self._begun.setdefault(row.digest, {})[row] = None
            elif each.table is OUTBOX:
                self._outbox |= {row.id: row for row in each.rows}
            else:
                found.insert(each.table, each.rows, self._numbers, self._inbox)
        for change in effects.updates:
            found.update(change, self._inbox)
        for gone in effects.deletes:
            found.delete(gone)

    def _forget_session(self, ref: SessionRef) -> None:
        self._inbox.remove(self._sessions.pop((ref.app, ref.id)))
        self._apps[ref.app] -= 1
        if not self._apps[ref.app]:
            del self._apps[ref.app]

    async def renew(self, leases: Sequence[Lease]) -> list[Renewed]:
        with self._lock:
            return [self._carry_out(Renew(lease=lease)) for lease in leases]

    async def cancels(self, leases: Sequence[Lease]) -> list[str | None]:
        with self._lock:
            found = [self._sessions.get((lease.ref.app, lease.ref.id)) for lease in leases]
        rows = [None if each is None else each.row for each in found]
        return [cancel_of(row, lease) for row, lease in zip(rows, leases, strict=True)]

    def _maintain(self, request: StoreRequest[Any], now: float) -> Any:  # Any: each request says what it returns
        match request:
            case DeleteIdle(app=app, user=user):
                chosen = [row.ref for row in self._rows() if fits(row, app, user)]
                requests = (Delete(ref, request.ttl, request.statuses) for ref in chosen)
                return list(islice((each.ref for each in requests if self._carry_out(each)), request.limit))
            case TakeNotices(app, to, ttl, limit):
                found = [each for each in self._outbox.values() if each.app == app and each.to in to]
                chosen = sorted([each for each in found if each.due <= now], key=lambda each: each.due)[:limit]
                taken = [replace(each, due=now + ttl, attempt=each.attempt + 1) for each in chosen]
                self._outbox |= {each.id: each for each in taken}
                return [notice_of(each) for each in taken]
            case SettleNotice(taken, again):
                found = self._outbox.get(taken.id)
                if found is None or found.attempt != taken.attempt:
                    return False
                if again is None:
                    del self._outbox[taken.id]
                else:
                    self._outbox[taken.id] = replace(found, due=now + again)
                return True
            case DropNotices(app, age):
                gone = [name for name, each in self._outbox.items() if each.app == app and each.due < now - age]
                for name in gone:
                    del self._outbox[name]
                return len(gone)
            case _:
                raise unknown_request(self, request)

    async def read(self, query: StoreQuery[T]) -> T:
        with self._lock:
            now = self._clock()
            if isinstance(query, SessionQuery):
                return query.answer(MemoryFacts(self._sessions.get((query.ref.app, query.ref.id)), now))
            return self._listing(query, now)

    def _listing(self, query: StoreQuery[Any], now: float) -> Any:  # Any: each query says what it returns
        match query:
            case ListSessions(app=app, user=user, status=status, after=after, limit=limit):
                behind = None if after is None else written_at(after)
                rows = [row for row in self._rows() if fits(row, app, user) and has_status(row, status)]
                rows = [row for row in rows if behind is None or written(row) < behind]
                return [head_of(row, now) for row in sorted(rows, key=written, reverse=True)[:limit]]
            case FindSessions(id, user):
                found = [each for app in sorted(self._apps) if (each := self._sessions.get((app, id))) is not None]
                return [each.row.ref for each in found if fits(each.row, None, user)]
            case ListQuestions(filter=filter, after=after, limit=limit, order="age"):
                (behind,) = stretches("age", after)
                asked = self._inbox.behind(behind.time, behind.no)
                found = islice((each for each in asked if is_listed(*each, filter, now)), limit)
                return [open_question(*each, Place(behind.stretch, each[1].asked, each[1].no)) for each in found]
            case ListQuestions(filter=filter, after=after, limit=limit, order=order):
                return listed(self._inbox, filter, now, order=order, after=after, limit=limit)
            case CountQuestions(filter):
                return sum(is_listed(row, asked, filter, now) for row, asked in self._inbox)
            case ListDecisions(filter=filter, after=after, limit=limit):
                return listed_decisions(self._asked(), filter, after=after, limit=limit)
            case ListDue(app=app, user=user):
                wanted = [each for each in self._sessions.values() if fits(each.row, app, user)]
                wanted = [each for each in wanted if is_wanted(each.row, query.programs, query.skip_users)]
                found = [due(each.row, each.asked_on_head.values(), each.first_input, now) for each in wanted]
                return sorted([each for each in found if each is not None], key=lambda each: each.since)[: query.limit]
            case ListBegun(digest):
                return list(self._begun.get(digest, ()))
            case _:
                raise unknown_request(self, query)

    def _rows(self) -> Iterator[SessionRow]:
        return (found.row for found in self._sessions.values())

    def _asked(self) -> Iterator[tuple[SessionRow, str, QuestionRow]]:
        for found in self._sessions.values():
            for branch, asked in zip(found.branches, found.asked, strict=True):
                yield from ((found.row, branch.name, each) for each in asked.values())

    def hints(self) -> AsyncGenerator[SessionRef | None]:
        return self._hints.subscribe()

    async def close(self) -> None:
        pass  # what is kept lives as long as the store object
