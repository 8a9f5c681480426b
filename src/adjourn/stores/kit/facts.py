"""What a decision may know: facts of one session, as they were at one moment."""

# What a `FactSheet` returns is documented at `Facts`.
# ruff: noqa: D102

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Protocol, TypeGuard

import msgspec
from msgspec.structs import replace

from adjourn.errors import CheckpointCorrupt, CheckpointNotFound
from adjourn.stores.types import SessionRef

from .effects import Later
from .rows import Branch, InputRow, QuestionRow, RecordRow, SessionRow, id_at, locate


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


def spanned(
    span: Span, session: SessionRow, branches: Sequence[Branch], log: Sequence[RecordRow | None]
) -> Iterator[Logged]:
    """Return the records of a span from a whole log, in which pruned records are None.

    Raises:
        CheckpointNotFound: there is no record where the span begins or ends.
    """
    start, end = 0, len(log)
    if span.after is not None:
        start = _place(session, branches, span.after) + 1
    if span.before is not None:
        end = _place(session, branches, span.before)
        if log[end] is None:
            raise CheckpointNotFound(session.session, span.before)
    if span.events_after is not None:
        start = end
        while start and ((kept := log[start - 1]) is None or kept.seq > span.events_after):
            start -= 1
    places = range(end - 1, start - 1, -1) if span.newest_first else range(start, end)
    return islice((_logged(kept, branches) for pos in places if _has(kept := log[pos], span)), span.limit)


def _place(session: SessionRow, branches: Sequence[Branch], id: str) -> int:
    """Return the position that a record has or, if it was pruned, had."""
    pos = locate(branches, session.pos, id)
    if pos is None:
        raise CheckpointNotFound(session.session, id)
    return pos


def _has(record: RecordRow | None, span: Span) -> TypeGuard[RecordRow]:
    if record is None or (span.events_after is not None and not record.count):
        return False
    return not span.listed or (record.source is not None and span.source in (None, record.source))


def _logged(record: RecordRow, branches: Sequence[Branch]) -> Logged:
    own, parent = id_at(branches, record.pos)
    return Logged(own, parent, record.pos, replace(record, id=own, parent=parent))


def folded(
    checkpoint: str | None, session: SessionRow, branches: Sequence[Branch], log: Sequence[RecordRow | None]
) -> Folded | None:
    """Return what folds to a record, by default the head, from a whole log; None if there is none of this id."""
    pos = session.pos if checkpoint is None else locate(branches, session.pos, checkpoint)
    point = None if pos is None or pos < 0 else log[pos]
    if pos is None or point is None:
        return None
    rows: list[bytes] = []
    for place in range(pos, -1, -1):
        kept = log[place]
        assert kept is not None  # pruning leaves no holes
        rows.append(kept.body)
        if kept.full:
            break
    return Folded(point.at, tuple(reversed(rows)))


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
    def ttl(self) -> float | None:
        """For how many seconds the store keeps a session after it was last touched; None: until it is removed."""
        ...

    @property
    def assumed(self) -> bool:
        """Whether this is only what the store remembers: what was not read is left to the guards of the write."""
        ...

    @property
    def has_inbox(self) -> bool:
        """Whether the store has an index of open questions, and so a use for their terms."""
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


class FactsWanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which facts are wanted besides the session's row: some by their ids, others by their flag."""

    ref: SessionRef
    questions: frozenset[str] = frozenset()
    records: frozenset[str] = frozenset()
    inputs: frozenset[str] = frozenset()
    first_input: bool = False
    waiting: bool = False
    labels: bool = False
    """Whether what listings show of those is wanted, too: their columns from `address` on."""
    branches: bool = False
    asking: bool = False
    """Whether the branches that have open questions are wanted."""
    queue: int | None = None
    """How many inputs that wait are wanted; -1 for all."""
    head: bool = False
    """Whether what folds to the head is wanted."""
    fold: str | None = None
    """The id of another record, if what folds to that is wanted."""
    span: Span | None = None
    asked: str | None = None
    """The branch whose questions are wanted, if it is not that of the head."""
    every: bool = False
    """Whether every question of that branch is wanted, and not only those in `questions`."""
    all_branches: bool = False
    """Whether they are wanted of every branch."""

    def widened(self, more: FactsWanted) -> FactsWanted:
        """Return what either of the two wants."""
        return replace(
            self,
            questions=self.questions | more.questions,
            records=self.records | more.records,
            inputs=self.inputs | more.inputs,
            first_input=self.first_input or more.first_input,
            waiting=self.waiting or more.waiting,
            branches=self.branches or more.branches,
            asking=self.asking or more.asking,
        )


class NotRead(Exception):
    """A decision wants facts that were not read; the driver reads again, including those."""

    def __init__(self, wanted: FactsWanted) -> None:
        super().__init__(wanted)
        self.wanted = wanted


class FactSheet:
    """Facts that were read in one go, as a `FactsWanted` requested them; asking for anything else raises `NotRead`."""

    assumed = False
    has_inbox = True

    def __init__(
        self,
        wanted: FactsWanted,
        now: float,
        row: SessionRow | None,
        *,
        questions: Iterable[QuestionRow] = (),
        branches: Sequence[Branch] = (),
        records: Iterable[RecordRow] = (),
        inputs: Iterable[InputRow] = (),
        asking: Sequence[int] = (),
        queue: Sequence[InputRow] = (),
        asked: Mapping[str, Sequence[QuestionRow]] = MappingProxyType({}),
        log: Sequence[Logged] | None = None,
        folded: Folded | None = None,
    ) -> None:
        self.now: float = Later(now)
        self.row = row
        self.ttl: float | None = None
        self._wanted = wanted
        self._questions: Mapping[str, QuestionRow] = {each.id: each for each in questions}
        self._records: Mapping[str, RecordRow] = {each.id: each for each in records}
        self._inputs: Mapping[str, InputRow] = {each.id: each for each in inputs}
        self._branches = branches
        self._asking = asking
        self._queue = queue
        self._asked = asked  # by the names of branches
        self._log = log  # None: there is no record where the span begins or ends
        self._folded = folded

    def question(self, id: str) -> QuestionRow | None:
        if id not in self._wanted.questions:
            raise NotRead(FactsWanted(ref=self._wanted.ref, questions=frozenset((id,))))
        return self._questions.get(id)

    def waiting(self) -> Sequence[QuestionRow]:
        if not self._wanted.waiting:
            raise NotRead(FactsWanted(ref=self._wanted.ref, waiting=True))
        waiting = [each for each in self._questions.values() if each.is_open or not each.taken]
        return sorted(waiting, key=lambda each: each.no)

    def input(self, id: str) -> InputRow | None:
        if id not in self._wanted.inputs:
            raise NotRead(FactsWanted(ref=self._wanted.ref, inputs=frozenset((id,))))
        return self._inputs.get(id)

    def first_input(self) -> InputRow | None:
        if not self._wanted.first_input:
            raise NotRead(FactsWanted(ref=self._wanted.ref, first_input=True))
        waiting = [each for each in self._inputs.values() if not each.taken]
        return min(waiting, key=lambda each: each.no, default=None)

    def branches(self) -> Sequence[Branch]:
        if not self._wanted.branches:
            raise NotRead(FactsWanted(ref=self._wanted.ref, branches=True))
        return self._branches

    def record(self, id: str) -> RecordRow | None:
        if id not in self._wanted.records:
            raise NotRead(FactsWanted(ref=self._wanted.ref, records=frozenset((id,))))
        return self._records.get(id)

    def asking(self) -> Sequence[int]:
        if not self._wanted.asking:
            raise NotRead(FactsWanted(ref=self._wanted.ref, asking=True))
        return self._asking

    def queue(self, limit: int | None) -> Sequence[InputRow]:
        return self._queue[:limit]

    def asked(self, branch: str, ids: Collection[str] | None = None) -> Sequence[QuestionRow]:
        if branch not in self._asked:
            raise CheckpointNotFound(self._wanted.ref.id, branch)
        return self._asked[branch]

    def log(self, span: Span) -> Sequence[Logged]:
        if self._log is None:
            raise CheckpointNotFound(self._wanted.ref.id, span.before if span.after is None else span.after)
        return self._log

    def fold(self, checkpoint: str | None) -> Folded | None:
        return self._folded


def sheet_of(
    wanted: FactsWanted,
    now: float,
    row: SessionRow | None,
    *,
    branches: Sequence[Branch] = (),
    records: Iterable[RecordRow] = (),
    questions: Sequence[QuestionRow] = (),
    inputs: Sequence[InputRow] = (),
) -> FactSheet:
    """Return facts from all rows of a session, for a store that reads these at once; each kind in its order."""
    if row is None:
        return FactSheet(wanted, now, None)
    log: list[RecordRow | None] = [None] * (row.pos + 1)
    for record in records:
        own, parent = id_at(branches, record.pos)
        log[record.pos] = replace(record, id=own, parent=parent)
    names = {branch.no: branch.name for branch in branches} or {row.branch_no: row.branch}
    asked: dict[str, list[QuestionRow]] = {name: [] for name in names.values()}
    for each in questions:
        if wanted.every or each.id in wanted.questions:
            asked[names[each.branch]].append(each)
    try:
        found = None if wanted.span is None else list(spanned(wanted.span, row, branches, log))
    except CheckpointNotFound:
        found = None
    return FactSheet(
        wanted,
        now,
        row,
        questions=[each for each in questions if each.branch == row.branch_no],
        branches=branches,
        records=[each for each in log if each is not None],
        inputs=inputs,
        asking=sorted({each.branch for each in questions if each.is_open}),
        queue=[each for each in inputs if not each.taken],
        asked=asked,
        log=found,
        folded=folded(wanted.fold, row, branches, log) if wanted.head or wanted.fold is not None else None,
    )


class Remembered(FactSheet):
    """What is known without reading: the row as it was last written or read here, None if there should be none.

    Others may have written since. The guards of a write catch whatever of that matters.
    """

    assumed = True

    def __init__(self, ref: SessionRef, row: SessionRow | None) -> None:
        super().__init__(FactsWanted(ref=ref), row.updated if row else 0.0, row)
