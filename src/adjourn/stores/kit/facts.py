"""What a decision may know: facts of one session, as they were at one moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from adjourn.stores.types import SessionRef

from .rows import Branch, InputRow, QuestionRow, RecordRow, SessionRow, locate


class Point(msgspec.Struct, frozen=True, gc=False):
    """What pruning needs to know about a record."""

    pos: int
    full: bool
    listed: bool
    at: float


def removable(
    points: Sequence[Point],
    branches: Sequence[Branch],
    *,
    keep: int | None,
    before: float | None,
    asking: Sequence[int],
) -> list[Point]:
    """Return the records that no checkpoint to be kept is folded from.

    Kept are the head, the last `keep`, those written since `before`, the last of each branch in `asking` (which has
    open questions), and the checkpoint that each branch with anything kept came from.
    `points` and `branches` are in the order of writing; `asking` are indexes of `branches`.
    """
    head = points[-1].pos
    anchors = {head} | {_end(branches, number, head) for number in asking}
    listed = [point for point in points if point.listed]
    if keep:
        anchors.update(point.pos for point in listed[-keep:])
    if before is not None:
        anchors.update(point.pos for point in listed if point.at >= before)
    _add_bases(anchors, branches, head)
    return _unneeded(points, anchors)


def _end(branches: Sequence[Branch], number: int, head: int) -> int:
    return branches[number + 1].start - 1 if number + 1 < len(branches) else head


def _add_bases(anchors: set[int], branches: Sequence[Branch], head: int) -> None:
    # From the newest branch down: a base lies on an older branch, which then stays and has its own base.
    for number in range(len(branches) - 1, -1, -1):
        branch = branches[number]
        stays = any(branch.start <= pos <= _end(branches, number, head) for pos in anchors)
        base = locate(branches[:number], branch.start - 1, branch.parent) if stays and branch.parent else None
        if base is not None:
            anchors.add(base)


def _unneeded(points: Sequence[Point], anchors: set[int]) -> list[Point]:
    gone: list[Point] = []
    needed = False
    for point in reversed(points):
        needed = needed or point.pos in anchors
        if not needed:
            gone.append(point)
        elif point.full:
            needed = False  # what comes before a full record is not read to restore what comes after it
    return gone


class Facts(Protocol):
    """Facts of one session. Questions are those of the head's branch.

    A store that decides inside a lock or transaction looks them up as needed; one that reads them in a
    separate trip has a `FactSheet`.
    """

    @property
    def now(self) -> float:
        """The store's time when the facts were read."""
        ...

    @property
    def row(self) -> SessionRow | None:
        """The session's row; None if there is none of that app and id, whoever the user is."""
        ...

    @property
    def assumed(self) -> bool:
        """Whether this is only what the store remembers: what was not read is left to the guards of the write."""
        ...

    def question(self, id: str) -> QuestionRow | None:
        """Return the question of this id, None if it was never asked."""
        ...

    def waiting(self) -> Sequence[QuestionRow]:
        """Return the questions that are open or whose answer no record has taken, in the order of asking."""
        ...

    def input(self, id: str) -> InputRow | None:
        """Return the input of this id, whether or not it waits; None if there was never one."""
        ...

    def first_input(self) -> InputRow | None:
        """Return the first input that waits, None if there is none."""
        ...

    def branches(self) -> Sequence[Branch]:
        """Return all branches, in the order of writing."""
        ...

    def record(self, id: str) -> RecordRow | None:
        """Return the record of this id, None if there is none (any more)."""
        ...

    def points(self) -> Sequence[Point]:
        """Return every record that is left, in the order of writing."""
        ...

    def asking(self) -> Sequence[int]:
        """Return the numbers of the branches that have open questions."""
        ...


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """Which facts are wanted besides the session's row: some by their ids, others by their flag."""

    ref: SessionRef
    questions: frozenset[str] = frozenset()
    records: frozenset[str] = frozenset()
    inputs: frozenset[str] = frozenset()
    first_input: bool = False
    waiting: bool = False
    branches: bool = False
    log: bool = False
    """Whether `points` and `asking` are wanted."""

    def widened(self, more: Query) -> Query:
        """Return a query for what either of the two wants."""
        return Query(
            ref=self.ref,
            questions=self.questions | more.questions,
            records=self.records | more.records,
            inputs=self.inputs | more.inputs,
            first_input=self.first_input or more.first_input,
            waiting=self.waiting or more.waiting,
            branches=self.branches or more.branches,
            log=self.log or more.log,
        )


class NotRead(Exception):
    """A decision wants facts that were not read; the driver reads again, including those."""

    def __init__(self, query: Query) -> None:
        super().__init__(query)
        self.query = query


class FactSheet:
    """Facts that were read in one go, as a `Query` requested them; asking for anything else raises `NotRead`."""

    assumed = False

    def __init__(
        self,
        query: Query,
        now: float,
        row: SessionRow | None,
        *,
        questions: Iterable[QuestionRow] = (),
        branches: Sequence[Branch] = (),
        records: Iterable[RecordRow] = (),
        inputs: Iterable[InputRow] = (),
        points: Sequence[Point] = (),
        asking: Sequence[int] = (),
    ) -> None:
        self.now = now
        self.row = row
        self._query = query
        self._questions: Mapping[str, QuestionRow] = {each.id: each for each in questions}
        self._records: Mapping[str, RecordRow] = {each.id: each for each in records}
        self._inputs: Mapping[str, InputRow] = {each.id: each for each in inputs}
        self._branches = branches
        self._points = points
        self._asking = asking

    def question(self, id: str) -> QuestionRow | None:
        """Return the question of this id, None if it was never asked."""
        if id not in self._query.questions:
            raise NotRead(Query(ref=self._query.ref, questions=frozenset((id,))))
        return self._questions.get(id)

    def waiting(self) -> Sequence[QuestionRow]:
        """Return the questions that are open or whose answer no record has taken, in the order of asking."""
        if not self._query.waiting:
            raise NotRead(Query(ref=self._query.ref, waiting=True))
        waiting = [each for each in self._questions.values() if each.is_open or not each.taken]
        return sorted(waiting, key=lambda each: each.no)

    def input(self, id: str) -> InputRow | None:
        """Return the input of this id, whether or not it waits; None if there was never one."""
        if id not in self._query.inputs:
            raise NotRead(Query(ref=self._query.ref, inputs=frozenset((id,))))
        return self._inputs.get(id)

    def first_input(self) -> InputRow | None:
        """Return the first input that waits, None if there is none."""
        if not self._query.first_input:
            raise NotRead(Query(ref=self._query.ref, first_input=True))
        waiting = [each for each in self._inputs.values() if not each.taken]
        return min(waiting, key=lambda each: each.no, default=None)

    def branches(self) -> Sequence[Branch]:
        """Return all branches, in the order of writing."""
        if not self._query.branches:
            raise NotRead(Query(ref=self._query.ref, branches=True))
        return self._branches

    def record(self, id: str) -> RecordRow | None:
        """Return the record of this id, None if there is none (any more)."""
        if id not in self._query.records:
            raise NotRead(Query(ref=self._query.ref, records=frozenset((id,))))
        return self._records.get(id)

    def points(self) -> Sequence[Point]:
        """Return every record that is left, in the order of writing."""
        if not self._query.log:
            raise NotRead(Query(ref=self._query.ref, log=True))
        return self._points

    def asking(self) -> Sequence[int]:
        """Return the numbers of the branches that have open questions."""
        if not self._query.log:
            raise NotRead(Query(ref=self._query.ref, log=True))
        return self._asking


class Remembered(FactSheet):
    """What is known without reading: the row as it was last written or read here, None if there should be none.

    Others may have written since. The guards of a write catch whatever of that matters.
    """

    assumed = True

    def __init__(self, ref: SessionRef, row: SessionRow | None) -> None:
        super().__init__(Query(ref=ref), row.updated if row else 0.0, row)
