"""Rows: in which order the vertices of a layer stand, and where, so that few lines cross and most are straight."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise

from ._layers import Layered, Step

SWEEPS = 6


class Neighbours:
    """For each vertex, those that it is linked to in the layer above and in the layer below."""

    def __init__(self, count: int, steps: Iterable[Step]) -> None:
        self.above: list[list[int]] = [[] for _ in range(count)]
        self.below: list[list[int]] = [[] for _ in range(count)]
        for upper, lower, _ in steps:
            self.below[upper].append(lower)
            self.above[lower].append(upper)


def _pulls(layered: Layered) -> Neighbours:
    """Who wants to be near whom: lines that lead back do not pull boxes out of the way that leads on."""
    pulls = Neighbours(len(layered.sizes), [step for step in layered.steps() if not step.is_back])
    for upper, lower, is_back in layered.steps():
        if is_back and lower >= layered.given:
            pulls.above[lower].append(upper)
        if is_back and upper >= layered.given:
            pulls.below[upper].append(lower)
    return pulls


def ordered(layered: Layered, near: Neighbours) -> list[list[int]]:
    """The layers, each in an order in which few lines cross: the best that some sweeps down and up come to."""
    rows = layered.rows
    best, fewest = rows, _crossings(rows, near)
    for sweep in range(SWEEPS):
        if not fewest:
            break
        rows = _swept(rows, near.above if sweep % 2 == 0 else near.below, downwards=sweep % 2 == 0)
        crossings = _crossings(rows, near)
        if crossings < fewest:
            best, fewest = rows, crossings
    return best


def _swept(rows: list[list[int]], near: Sequence[Sequence[int]], *, downwards: bool) -> list[list[int]]:
    """Put each vertex at the mean place of those it is linked to, layer after layer."""
    place = {vertex: float(index) for row in rows for index, vertex in enumerate(row)}
    swept = list(rows)
    for number in range(len(rows)) if downwards else reversed(range(len(rows))):
        row = sorted(rows[number], key=lambda v: _mean([place[n] for n in near[v]], place[v]))
        place.update((vertex, float(index)) for index, vertex in enumerate(row))
        swept[number] = row
    return swept


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _crossings(rows: Sequence[Sequence[int]], near: Neighbours) -> int:
    total = 0
    for upper, lower in pairwise(rows):
        place = {vertex: index for index, vertex in enumerate(lower)}
        arrived: list[int] = []
        for vertex in upper:
            targets = sorted(place[below] for below in near.below[vertex])
            total += sum(len(arrived) - bisect_right(arrived, target) for target in targets)
            for target in targets:
                insort(arrived, target)
    return total


def spread(rows: Sequence[Sequence[int]], layered: Layered, gap: float) -> list[float]:
    """The middle of each vertex on the horizontal axis; those of a row keep their order and at least `gap` apart."""
    near = _pulls(layered)
    widths = [size.width for size in layered.sizes]
    weights = _weights(layered)
    middle = [0.0] * len(widths)
    for row in rows:
        _settle(row, [0.0] * len(row), widths, weights, gap, middle)
    both = [[*above, *below] for above, below in zip(near.above, near.below, strict=True)]
    # Downwards last: then what has one way into it stands straight below.
    passes = [(near.above, 1), (near.below, -1)] * (SWEEPS // 2) + [(both, 1), (both, -1), (near.above, 1)]
    for linked, direction in passes:
        for row in rows[::direction]:
            wanted = [_mean([middle[n] for n in linked[v]], middle[v]) for v in row]
            _settle(row, wanted, widths, weights, gap, middle)
    return middle


def _weights(layered: Layered) -> list[float]:
    """Bends weigh more: a long line that is straight is worth more than a box in the very middle. One back, less."""
    weights = [1.0] * layered.given + [4.0] * (len(layered.sizes) - layered.given)
    for chain, is_back in zip(layered.chains, layered.is_back, strict=True):
        for vertex in chain[1:-1] if is_back else ():
            weights[vertex] = 0.1
    return weights


def _settle(
    row: Sequence[int],
    wanted: Sequence[float],
    widths: Sequence[float],
    weights: Sequence[float],
    gap: float,
    middle: list[float],
) -> None:
    """Put a row as near as can be to where its vertices want to be, without one upon another.

    With the room between them taken away, this is fitting a line that never falls: neighbours that would change places
    are put together at the mean of what they want, until none would.
    """
    needed = [(widths[a] + widths[b]) / 2 + gap for a, b in pairwise(row)]
    offsets = list(accumulate(needed, initial=0.0))
    blocks: list[tuple[float, float, int]] = []  # what they want together, what they weigh, how many they are
    for vertex, want, offset in zip(row, wanted, offsets, strict=False):
        total, weight, count = weights[vertex] * (want - offset), weights[vertex], 1
        while blocks and blocks[-1][0] * weight >= total * blocks[-1][1]:
            before = blocks.pop()
            total, weight, count = total + before[0], weight + before[1], count + before[2]
        blocks.append((total, weight, count))
    settled = [total / weight for total, weight, count in blocks for _ in range(count)]
    for vertex, place, offset in zip(row, settled, offsets, strict=False):
        middle[vertex] = place + offset
