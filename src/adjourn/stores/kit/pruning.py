"""Which old records may go."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from .rows import Branch, locate


class Point(msgspec.Struct, frozen=True, gc=False):
    """What pruning needs to know of a record."""

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
    """The records that no checkpoint to be kept is folded from.

    Kept are the head, the last `keep`, those written since `before`, the last of each branch in `asking` (which has
    open questions), and for every branch of which something stays the checkpoint that it came from.
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
    # From the newest branch down: a base lies on an older branch, which then stays and has a base of its own.
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
