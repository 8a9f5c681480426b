"""Sessions in a dict: what the memory store keeps."""

# An override is documented where it is declared.
# ruff: noqa: D102

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from adjourn.checkpoint.ledger import Asked
from adjourn.checkpoint.pruning import Point
from adjourn.checkpoint.standing import Branch, Standing, is_live
from adjourn.checkpoint.store import Answer, Answered, Question, Write


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
