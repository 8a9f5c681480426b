"""Reading a session at many of its checkpoints: every record is read and decoded once, not once per checkpoint."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from adjourn._engine.record import GraphImage, Tree, fold_onto, join
from adjourn._values import codec
from adjourn._values.damage import Reading
from adjourn.errors import CheckpointCorrupt, CheckpointNotFound
from adjourn.events import Interrupt
from adjourn.stores.kit import ListAsked, ListBranches, ListCheckpoints
from adjourn.stores.protocol import Store
from adjourn.stores.types import CheckpointRow, Loaded, SessionRef

from ._contents import load
from ._log import read_interrupt
from .history import split_id


class Span:
    """The records that fold to one checkpoint, which also hold every checkpoint between the first and the last of them.

    All are of one branch, whose records are numbered without gaps.
    """

    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded
        self._branch, last = split_id(loaded.point)
        self._first = last - len(loaded.rows) + 1
        self._last = last
        self._tree: Tree | None = None
        self._folded = 0

    def covers(self, checkpoint_id: str) -> bool:
        """Return whether a checkpoint is in this span."""
        branch, number = split_id(checkpoint_id)
        return branch == self._branch and self._first <= number <= self._last

    def loaded_at(self, checkpoint_id: str) -> Loaded:
        """Return what the store would load at a checkpoint of this span."""
        end = self._place(checkpoint_id)
        at_end = end == len(self._loaded.rows)
        answers = self._loaded.answers if at_end else ()
        return replace(self._loaded, point=checkpoint_id, rows=self._loaded.rows[:end], answers=answers)

    def fold_to(self, checkpoint_id: str) -> Tree:
        """Return the session at a checkpoint of this span. The next call changes the tree; copy it to keep it.

        Raises:
            CheckpointCorrupt: a record up to there is damaged.
        """
        end = self._place(checkpoint_id)
        if end < self._folded:
            self._tree, self._folded = None, 0
        with Reading(self._loaded.head.session):
            for body in self._loaded.rows[self._folded : end]:
                self._tree = fold_onto(self._tree, body)
                self._folded += 1
        assert self._tree is not None
        return self._tree

    def _place(self, checkpoint_id: str) -> int:
        """Return how many of the records fold to a checkpoint."""
        return split_id(checkpoint_id)[1] - self._first + 1


Failure = CheckpointCorrupt | CheckpointNotFound


async def spans(store: Store, ref: SessionRef, ids: Sequence[str]) -> AsyncIterator[tuple[list[str], Span | Failure]]:
    """Yield checkpoints, given most recent first, in groups with the span that covers them, in the opposite order.

    A checkpoint that cannot be read stands alone, with the reason.
    """
    left = list(reversed(ids))
    while left:
        try:
            span = Span(await load(store, ref, left[-1]))
        except (CheckpointCorrupt, CheckpointNotFound) as failure:
            yield [left.pop()], failure
            continue
        covered: list[str] = []
        while left and span.covers(left[-1]):
            covered.append(left.pop())
        covered.reverse()
        yield covered, span


class StoredFields(Mapping[str, Any]):
    """The fields of a stored graph, as they were at one moment; one is decoded whenever it is read.

    Pieces are only ever added to a list of them, so keeping their number is enough.
    """

    __slots__ = ("_pieces", "_session_id")

    def __init__(self, session_id: str, pieces: Mapping[str, list[Raw]]) -> None:
        self._session_id = session_id
        self._pieces = {name: (parts, len(parts)) for name, parts in pieces.items() if not name.startswith("^")}

    def __getitem__(self, key: str) -> Any:
        parts, count = self._pieces[key]
        with Reading(self._session_id):
            return codec.decode(join(parts[:count]), lenient=True)

    def __iter__(self) -> Iterator[str]:
        return iter(self._pieces)

    def __len__(self) -> int:
        return len(self._pieces)

    def __repr__(self) -> str:
        return repr(dict(self))


def final_state(tree: Tree) -> StoredFields | None:
    """Return the state of the session's graph, or of the graph of a graph agent; None if there is no graph."""
    return state_of(tree, next(iter(tree.frames), ""))


def state_of(tree: Tree, path: str) -> StoredFields | None:
    """Return the state of the graph, or of the graph of a graph agent, at a path; None if there is no graph."""
    inside = f"{path};~"
    if isinstance(tree.frames.get(inside), GraphImage):
        return StoredFields(tree.session, tree.pieces.get(inside, {}))
    if isinstance(tree.frames.get(path), GraphImage) and not path.rpartition(";")[2].startswith("agent:"):
        return StoredFields(tree.session, tree.pieces.get(path, {}))
    return None


async def open_at(store: Store, loaded: Loaded, tree: Tree) -> tuple[Interrupt, ...]:
    """Return the questions that are open at a checkpoint.

    Raises:
        CheckpointCorrupt: the row of one is missing or damaged.
        CheckpointNotFound: the session has been deleted.
    """
    ids, ref, branch = tree.open(), loaded.head.ref, split_id(loaded.point)[0]
    rows = {row.id: row for row in await store.read(ListAsked(ref, branch, ids))} if ids else {}
    for each in ids:
        if each not in rows:
            raise CheckpointCorrupt(f"session '{ref.id}' lacks its question '{each}'")
    return tuple(read_interrupt(rows[each].body, ref, branch, loaded.point) for each in ids)


async def rows_up_to(store: Store, ref: SessionRef, id: str) -> list[CheckpointRow]:
    """Return the row of the last listed checkpoint before the record after `id`, if that can be told; or else all rows.

    Raises:
        CheckpointNotFound: the session has been deleted.
    """
    branch, _, digits = id.rpartition(".")
    if not (digits.isdecimal() and digits.isascii() and len(digits) < 19):
        return []
    number = int(digits)
    with contextlib.suppress(CheckpointNotFound):  # The branch ends with it, or there is no such branch.
        return await store.read(ListCheckpoints(ref, limit=1, before=f"{branch}.{number + 1}"))
    following = None
    for each in reversed(await store.read(ListBranches(ref))):
        if each.name == branch:
            break
        following = f"{each.name}.{each.first}"
    with contextlib.suppress(CheckpointNotFound):  # It has been pruned.
        rows = await store.read(ListCheckpoints(ref, limit=1, before=following))
        # What comes next on the same branch may have been pruned, too.
        if rows and (split_id(rows[0].id)[0] != branch or split_id(rows[0].id)[1] <= number):
            return rows
    return await store.read(ListCheckpoints(ref))
