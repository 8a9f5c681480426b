"""The few operations in which stores differ; `transitions` decides with them what every store must decide alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import msgspec

from ._rows import Branch, Point, SessionRow
from .protocol import Answer, Answered, Outcome, Question, SessionRef, Write


class QuestionRow(msgspec.Struct, gc=False):
    """A question as a store keeps it; `how` is None while it is open, and `no` grows with the order of asking."""

    id: str
    body: bytes
    expires: float | None
    value: bytes | None = None
    how: Outcome | None = None
    by: str | None = None
    at: float | None = None
    taken: bool = False
    no: int = 0


S = TypeVar("S", bound=SessionRow)


class Ledger(Protocol[S]):
    """What a store can do within one transaction. Questions are those of the head's branch."""

    def find(self, app: str, session: str) -> S | None:
        """The session's row, None if there is none."""
        ...

    def create(self, ref: SessionRef, now: float) -> S:
        """A row for a new session, without any record."""
        ...

    def save(self, row: S) -> None:
        """Keep what was changed in the row."""
        ...

    def remove(self, row: S) -> None:
        """Forget the session whole."""
        ...

    def idle(self, now: float, since: float) -> list[S]:
        """Sessions that nobody runs now and that were last written before `since`."""
        ...

    def branches(self, row: S) -> Sequence[Branch]:
        """All branches, in the order of writing."""
        ...

    def add_branch(self, row: S, branch: Branch) -> None:
        """Begin a branch, which the head is now on."""
        ...

    def add_record(self, row: S, write: Write, header: bytes, now: float) -> None:
        """Keep a record at the position `row.pos`."""
        ...

    def has_record(self, row: S, pos: int, write: Write, header: bytes) -> bool:
        """Whether the record at a position has the content of `write`."""
        ...

    def has_position(self, row: S, pos: int) -> bool:
        """Whether the record at a position has not been pruned."""
        ...

    def points(self, row: S) -> Sequence[Point]:
        """The records that are left, in the order of writing."""
        ...

    def drop_records(self, row: S, points: Sequence[Point]) -> None:
        """Remove these records."""
        ...

    def question(self, row: S, id: str) -> QuestionRow | None:
        """The question as it is now, None if it was never asked."""
        ...

    def open_questions(self, row: S) -> list[str]:
        """The ids of questions that have not ended."""
        ...

    def asking(self, row: S) -> list[int]:
        """The numbers of all branches that have open questions."""
        ...

    def untaken(self, row: S) -> tuple[Answered, ...]:
        """Answers that no record has taken, oldest question first."""
        ...

    def ask(self, row: S, question: Question) -> None:
        """Open a question."""
        ...

    def end(self, row: S, answer: Answer, now: float, *, taken: bool) -> None:
        """End a question that is open."""
        ...

    def take(self, row: S, id: str) -> bool:
        """Mark an answer as taken by a record; False if there was none to take."""
        ...
