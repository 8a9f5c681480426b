"""What a decision may know: facts of one session, as they were at one moment."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

import msgspec
from msgspec.structs import replace

from adjourn.errors import CheckpointCorrupt, CheckpointNotFound
from adjourn.stores.types import SessionRef

from .rows import Branch, InputRow, QuestionRow, RecordRow, SessionRow, locate


class Point(msgspec.Struct, frozen=True, gc=False):
    """What pruning needs to know about a record."""

    pos: int
    full: bool
    listed: bool
    at: float


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """Which records of a log are wanted, and which of their long parts; by default all, without any of those.

    They come in the order of writing, or `newest_first`. `after` and `before` are ids of records; the one of `after`
    may have been pruned. With `events_after`, only records that have events with a number above that.
    """

    after: str | None = None
    before: str | None = None
    events_after: int | None = None
    listed: bool = False
    """Whether only checkpoints are wanted: records with a source."""
    source: str | None = None
    newest_first: bool = False
    limit: int | None = None
    header: bool = False
    events: bool = False
    body: bool = False


class Logged(msgspec.Struct, frozen=True, gc=False):
    """A record of a span; parts that are not wanted are empty. If its row is damaged, only its place is known."""

    id: str
    parent: str | None
    pos: int
    row: RecordRow | CheckpointCorrupt

    def sound(self) -> RecordRow:
        """Return the row.

        Raises:
            CheckpointCorrupt: it is damaged.
        """
        if isinstance(self.row, CheckpointCorrupt):
            raise self.row
        return self.row


class Folded(msgspec.Struct, frozen=True, gc=False):
    """The bodies that fold to a record, the first of them full, and when that record was written (0.0: damaged)."""

    at: float
    rows: tuple[bytes, ...]


def removable(
    points: Sequence[RecordRow],
    branches: Sequence[Branch],
    *,
    keep: int | None,
    before: float | None,
    asking: Sequence[int],
) -> list[RecordRow]:
    """Return the records that no checkpoint to be kept is folded from.

    Kept are the head, the last `keep`, those written since `before`, the last of each branch in `asking` (which has
    open questions), and the checkpoint that each branch with anything kept came from.
    `points` and `branches` are in the order of writing; `asking` are indexes of `branches`.
    """
    head = points[-1].pos
    anchors = {head} | {_end(branches, number, head) for number in asking}
    listed = [point for point in points if point.source is not None]
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


def _unneeded(points: Sequence[RecordRow], anchors: set[int]) -> list[RecordRow]:
    gone: list[RecordRow] = []
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

    def asking(self) -> Sequence[int]:
        """Return the numbers of the branches that have open questions."""
        ...

    # What only queries look at

    def queue(self, limit: int | None) -> Sequence[InputRow]:
        """Return the inputs that wait, in order."""
        ...

    def asked(self, branch: str, ids: Collection[str] | None = None) -> Sequence[QuestionRow]:
        """Return the questions of a branch in the order of asking: those of these ids, or all that can be read.

        Raises:
            CheckpointNotFound: there is no such branch.
        """
        ...

    def log(self, span: Span) -> Iterable[Logged]:
        """Return records.

        Raises:
            CheckpointNotFound: there is no record where the span begins or ends.
        """
        ...

    def fold(self, checkpoint: str | None) -> Folded | None:
        """Return what folds to a record, by default the head; None if there is none of this id (any more)."""
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
    queue: int | None = None
    """How many inputs that wait are wanted; -1 for all."""
    fold: str | None = None
    """What is to be folded: the id of a record, or empty for the head."""
    span: Span | None = None
    asked: str | None = None
    """The branch whose `questions` are wanted, instead of those of the head's; empty for that one."""
    every: bool = False
    """Whether every question of the branch `asked` is wanted, or of all branches if that is None."""

    def widened(self, more: Query) -> Query:
        """Return a query for what either of the two decisions wants."""
        return replace(
            self,
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
        queue: Sequence[InputRow] = (),
        asked: Mapping[str, Sequence[QuestionRow]] = MappingProxyType({}),
        log: Sequence[Logged] | None = None,
        folded: Folded | None = None,
    ) -> None:
        self.now = now
        self.row = row
        self._query = query
        self._questions: Mapping[str, QuestionRow] = {each.id: each for each in questions}
        self._records: Mapping[str, RecordRow] = {each.id: each for each in records}
        self._inputs: Mapping[str, InputRow] = {each.id: each for each in inputs}
        self._branches = branches
        self._asking = asking
        self._queue = queue
        self._asked = asked  # by the names of branches
        self._log = log  # None: there is no record where the span begins or ends
        if points:  # until every store reads spans
            self._log = [
                Logged(
                    "",
                    None,
                    each.pos,
                    RecordRow("", None, each.pos, each.full, "" if each.listed else None, 0, 0, b"", b"", b"", each.at),
                )
                for each in points
            ]
        self._folded = folded

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

    def asking(self) -> Sequence[int]:
        """Return the numbers of the branches that have open questions."""
        if not self._query.log:
            raise NotRead(Query(ref=self._query.ref, log=True))
        return self._asking

    def queue(self, limit: int | None) -> Sequence[InputRow]:
        """Return the inputs that wait, in order."""
        return self._queue

    def asked(self, branch: str, ids: Collection[str] | None = None) -> Sequence[QuestionRow]:
        """Return the questions of a branch in the order of asking: those of these ids, or all that can be read."""
        if branch not in self._asked:
            raise CheckpointNotFound(self._query.ref.id, branch)
        return self._asked[branch]

    def log(self, span: Span) -> Sequence[Logged]:
        """Return records."""
        if self._log is None:
            raise CheckpointNotFound(self._query.ref.id, span.before if span.after is None else span.after)
        return self._log

    def fold(self, checkpoint: str | None) -> Folded | None:
        """Return what folds to a record, by default the head; None if there is none of this id (any more)."""
        return self._folded


class Remembered(FactSheet):
    """What is known without reading: the row as it was last written or read here, None if there should be none.

    Others may have written since. The guards of a write catch whatever of that matters.
    """

    assumed = True

    def __init__(self, ref: SessionRef, row: SessionRow | None) -> None:
        super().__init__(Query(ref=ref), row.updated if row else 0.0, row)
