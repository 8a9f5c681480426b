"""The history of a session: its checkpoints, their tree, and what differs between two states."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from adjourn._html import preformatted
from adjourn._plain import Documented
from adjourn._text import visible_line
from adjourn.errors import CheckpointCorrupt
from adjourn.events import Interrupt
from adjourn.stores.types import CheckpointRow


class Checkpoint(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """One point of a session's history.

    `parent_id` is the checkpoint before it, on its branch or on the one that it branched off; None for the first one,
    and where that was pruned. `next` has the nodes (or tools, or agents) that run next: at a pause those that wait,
    and not those beside them that have finished, whose updates join the state when all have.
    """

    id: str
    parent_id: str | None
    source: str
    step: int
    created: datetime
    next: tuple[str, ...]
    interrupts: tuple[Interrupt, ...]
    state: Any
    metadata: Mapping[str, Any]
    address: str

    @classmethod
    def of(cls, row: CheckpointRow, parent_id: str | None, state: Any, interrupts: tuple[Interrupt, ...]) -> Checkpoint:
        """Return a listed checkpoint with the state and questions that it had."""
        header = row.header
        return cls(
            id=row.id,
            parent_id=parent_id,
            source=header.source or "",
            step=header.step,
            created=datetime.fromtimestamp(row.created, UTC),
            next=header.next,
            interrupts=interrupts,
            state=state,
            metadata=header.metadata,
            address=header.address,
        )


class Listed:
    """The ids of the listed checkpoints: records between them are not listed."""

    def __init__(self, ids: Iterable[str] = ()) -> None:
        self._numbers: dict[str, list[int]] = {}
        for branch, number in map(split_id, ids):
            insort(self._numbers.setdefault(branch, []), number)

    def nearest(self, id: str | None) -> str | None:
        """Return the listed checkpoint at or before a record, on its branch."""
        if id is None:
            return None
        branch, number = split_id(id)
        numbers = self._numbers.get(branch, [])
        place = bisect_right(numbers, number)
        return f"{branch}.{numbers[place - 1]}" if place else None


def split_id(checkpoint: str) -> tuple[str, int]:
    """Return the branch of a checkpoint and its number there, by its id.

    Raises:
        CheckpointCorrupt: it is not a valid id.
    """
    branch, _, number = checkpoint.rpartition(".")
    if not (number.isascii() and number.isdigit() and len(number) < 20):
        raise CheckpointCorrupt(f"'{checkpoint:.200}' is not the id of a checkpoint")
    return branch, int(number)


class Tree:
    """The checkpoints of a session as a tree: `print` shows it, iteration yields pairs of depth and checkpoint."""

    def __init__(self, session_id: str, rows: list[CheckpointRow], head: str) -> None:
        self.session_id = session_id
        self.head = head
        self._below: dict[str | None, list[CheckpointRow]] = {}
        listed = Listed(row.id for row in rows)
        for row in reversed(rows):
            parent = listed.nearest(row.parent)
            self._below.setdefault(parent, []).append(replace(row, parent=parent))

    def __iter__(self) -> Iterator[tuple[int, CheckpointRow]]:
        todo = [(0, row) for row in reversed(self._below.get(None, []))]
        while todo:
            depth, row = todo.pop()
            yield depth, row
            below = self._below.get(row.id, [])
            # The first child continues the line; further ones are branches, shown first and one level deeper.
            todo += [(depth, child) for child in below[:1]]
            todo += [(depth + 1, child) for child in reversed(below[1:])]

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return preformatted(str(self))

    def __str__(self) -> str:
        return "\n".join([f"session {self.session_id}", *(self._line(depth, row) for depth, row in self)])

    def _line(self, depth: int, row: CheckpointRow) -> str:
        header = row.header
        following = visible_line(f" → {', '.join(header.next)}") if header.next else ""
        paused = "  ⏸" if header.source == "interrupt" else ""
        head = "  ← head" if row.id == self.head else ""
        if row.damaged:
            return f"{'│  ' * depth}● {row.id}  damaged{head}"
        return f"{'│  ' * depth}● {row.id}  {header.source} {header.step}{following}{paused}{head}"


class Diff(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """What differs between two states: values before and after, by field, without absent ones."""

    added: dict[str, Any] = {}
    removed: dict[str, Any] = {}
    changed: dict[str, tuple[Any, Any]] = {}

    @classmethod
    def between(cls, one: Mapping[str, Any], two: Mapping[str, Any]) -> Diff:
        """Compare two states."""
        return cls(
            added={key: value for key, value in two.items() if key not in one},
            removed={key: value for key, value in one.items() if key not in two},
            changed={key: (one[key], two[key]) for key in one if key in two and one[key] != two[key]},
        )


def as_mapping(state: Any) -> Mapping[str, Any]:
    """Return a state as a mapping, whatever its schema class."""
    if isinstance(state, Mapping):
        return state  # pyright: ignore[reportUnknownVariableType]  # of whatever the schema has
    fields = getattr(state, "__struct_fields__", None) or getattr(state, "__dict__", {})
    return {name: getattr(state, name) for name in fields}
