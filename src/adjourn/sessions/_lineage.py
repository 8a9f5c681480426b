"""The lineage of a branch: the branches that lead to it, in its session and in those that it was forked from.

Within a session, the rows of its branches say where each was left. Where a fork comes from is in the row of its first
branch, since the session that it was forked from may be deleted.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from adjourn._engine.record import place_of
from adjourn._values.damage import Reading
from adjourn.stores.kit import Branch, ListBranches
from adjourn.stores.protocol import Store
from adjourn.stores.types import Begun, SessionRef

from .history import split_id


class Left(msgspec.Struct, frozen=True, array_like=True):
    """A branch, as `place_of` names it, and the number of the record after which it was left."""

    place: str
    number: int


class Lineage(msgspec.Struct, frozen=True):
    """The branches that lead to one branch, the nearest first."""

    place: str
    left: Sequence[Left]

    def leads_here(self, begun: Begun) -> bool:
        """Return whether something began in a record of this branch's own history."""
        return begun.place == self.place or any(
            each.place == begun.place and begun.number <= each.number for each in self.left
        )

    def origin(self, number: int) -> str:
        """Return what a fork keeps of where it comes from: the record of this branch with a number."""
        return msgspec.json.encode([Left(self.place, number), *self.left]).decode()


_origins = msgspec.json.Decoder(list[Left])


async def read_lineage(store: Store, ref: SessionRef, branch: str) -> Lineage:
    """Return the lineage of a branch of a session.

    Raises:
        CheckpointCorrupt: the rows of its branches are damaged.
    """
    branches = await store.read(ListBranches(ref))
    with Reading(ref.id):
        return Lineage(place_of(ref.app, ref.id, branch), _left(ref, branches, branch))


def _left(ref: SessionRef, branches: Sequence[Branch], name: str) -> list[Left]:
    found: list[Left] = []
    for each in reversed(branches):  # A branch is written after the one that it was made from.
        if each.name != name:
            continue
        if each.parent is not None:
            name, number = split_id(each.parent)
            found.append(Left(place_of(ref.app, ref.id, name), number))
        elif each.origin is not None:
            found += _origins.decode(each.origin)
    return found
