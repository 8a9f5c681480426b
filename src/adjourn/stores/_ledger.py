"""The few operations in which stores differ; `transitions` decides with them what every store must decide alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import msgspec

from ._rows import Branch, Point, Standing
from .protocol import Answer, Answered, Ending, Question, Write


class Asked(msgspec.Struct, gc=False):
    """A question as a store keeps it; `how` is None while it is open, and `no` grows with the order of asking."""

    id: str
    body: bytes
    expires: float | None
    value: bytes | None = None
    how: Ending | None = None
    by: str | None = None
    at: float | None = None
    taken: bool = False
    no: int = 0


S = TypeVar("S", bound=Standing)


class Ledger(Protocol[S]):
    """What a store can do within one transaction. Questions are those of the head's branch."""

    def find(self, session: str) -> S | None:
        """The session's row, None if there is none."""
        ...

    def create(self, session: str, app: str, user: str | None, now: float) -> S:
        """A row for a new session, without any record."""
        ...

    def save(self, standing: S) -> None:
        """Keep what was changed in the row."""
        ...

    def remove(self, standing: S) -> None:
        """Forget the session whole."""
        ...

    def idle(self, now: float, since: float) -> list[S]:
        """Sessions that nobody runs now and that were last written before `since`."""
        ...

    def branches(self, standing: S) -> Sequence[Branch]:
        """All branches, in the order of writing."""
        ...

    def add_branch(self, standing: S, branch: Branch) -> None:
        """Begin a branch, which the head is now on."""
        ...

    def add_record(self, standing: S, write: Write, header: bytes, now: float) -> None:
        """Keep a record at the position `standing.pos`."""
        ...

    def has_record(self, standing: S, pos: int, write: Write, header: bytes) -> bool:
        """Whether the record at a position has the content of `write`."""
        ...

    def has_position(self, standing: S, pos: int) -> bool:
        """Whether the record at a position has not been pruned."""
        ...

    def points(self, standing: S) -> Sequence[Point]:
        """The records that are left, in the order of writing."""
        ...

    def drop_records(self, standing: S, points: Sequence[Point]) -> None:
        """Remove these records."""
        ...

    def question(self, standing: S, id: str) -> Asked | None:
        """The question as it is now, None if it was never asked."""
        ...

    def open_questions(self, standing: S) -> list[str]:
        """The ids of questions that have not ended."""
        ...

    def asking(self, standing: S) -> list[int]:
        """The numbers of all branches that have open questions."""
        ...

    def untaken(self, standing: S) -> tuple[Answered, ...]:
        """Answers that no record has taken, oldest question first."""
        ...

    def ask(self, standing: S, question: Question) -> None:
        """Open a question."""
        ...

    def end(self, standing: S, answer: Answer, now: float, *, taken: bool) -> None:
        """End a question that is open."""
        ...

    def take(self, standing: S, id: str) -> bool:
        """Mark an answer as taken by a record; False if there was none to take."""
        ...
