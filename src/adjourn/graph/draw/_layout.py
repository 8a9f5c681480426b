"""Layout: where boxes stand, and how the lines between them go around all others."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from ._layers import Layered, Link, Size
from ._rows import Neighbours, ordered, spread

BESIDE, BETWEEN, ASIDE = 26.0, 38.0, 14.0
"""The room between boxes of a row, between rows, and between lines that go aside."""
PORTS = 24.0
"""How far apart lines leave a box, where it is wide enough."""


class Point(NamedTuple):
    """A place: to the right, and down."""

    x: float
    y: float


class Route(NamedTuple):
    """How a line goes: in runs, with the label in the middle of the gap between two; none for one to its own box.

    Within a run it goes straight down (or up) between points above one another, and swings over between others.
    """

    runs: list[list[Point]]
    label: Point | None = None


class Layout(NamedTuple):
    """The upper left corners of the boxes, the ways of the lines, and the room for it all."""

    places: list[Point]
    routes: list[Route]
    size: Size


def arrange(sizes: Sequence[Size], links: Sequence[Link]) -> Layout:
    """Lay boxes of these sizes out from top to bottom along the links between them."""
    layered = Layered(sizes, links)
    near = Neighbours(len(layered.sizes), layered.steps())
    rows = ordered(layered, near)
    return _Page(layered, near, rows).layout()


class _Page:
    """Everything in its place, from which lines can be led."""

    def __init__(self, layered: Layered, near: Neighbours, rows: Sequence[Sequence[int]]) -> None:
        self.layered = layered
        self.sizes = layered.sizes
        middle = spread(rows, layered, BESIDE)
        left = min((middle[v] - self.sizes[v].width / 2 for row in rows for v in row), default=0.0)
        self.middle = [each - left for each in middle]
        self.right = max((self.middle[v] + self.sizes[v].width / 2 for row in rows for v in row), default=0.0)
        self.heights = [max(self.sizes[vertex].height for vertex in row) for row in rows]
        self.tops = list(accumulate((height + BETWEEN for height in self.heights), initial=0.0))
        self.leaving = self._ports(near.below)
        self.arriving = self._ports(near.above)

    def layout(self) -> Layout:
        routes = [
            self._route(chain, label, back)
            for chain, label, back in zip(self.layered.chains, self.layered.labels, self.layered.is_back, strict=True)
        ]
        places = [self._corner(vertex) for vertex in range(self.layered.given)]
        return Layout(places, routes, Size(self.right, max(0.0, self.tops[-1] - BETWEEN)))

    def _corner(self, vertex: int) -> Point:
        size = self.sizes[vertex]
        return Point(self.middle[vertex] - size.width / 2, self._upper(vertex))

    def _upper(self, vertex: int) -> float:
        return self.tops[self.layered.layer[vertex]]

    def _ports(self, linked: Sequence[Sequence[int]]) -> list[list[float]]:
        """Where on the side of each box its lines begin, those to the left first."""
        ports: list[list[float]] = []
        for vertex, others in enumerate(linked):
            side = self.sizes[vertex].width - 2 * self.sizes[vertex].spare - 16
            apart = min(PORTS, max(0.0, side) / max(len(others), 1))
            first = self.middle[vertex] - apart * (len(others) - 1) / 2
            order = sorted(range(len(others)), key=lambda index: self.middle[others[index]])
            row = [0.0] * len(others)
            for place, index in enumerate(order):
                row[index] = first + apart * place
            ports.append(row[::-1])  # To be taken from the end, in the order in which the links come.
        return ports

    def _route(self, chain: list[int], label: int | None, back: bool) -> Route:
        if not chain:
            return Route([])
        runs: list[list[Point]] = [[]]
        for above, below in pairwise(chain):
            runs[-1] += self._step(above, below)
            if below == label:
                runs.append([])
        if back:
            runs = [run[::-1] for run in runs[::-1]]
        place = None if label is None else Point(self.middle[label], self._upper(label) + self.sizes[label].height / 2)
        return Route(runs, place)

    def _step(self, above: int, below: int) -> list[Point]:
        layer, next_layer = self.layered.layer[above], self.layered.layer[below]
        under, over = self.tops[layer] + self.heights[layer], self.tops[next_layer]
        if next_layer == layer + 1:
            start, end = self.leaving[above].pop(), self.arriving[below].pop()
            aside = []
        else:
            start, end = self.middle[above], self.middle[below]
            self.right += ASIDE
            aside = [Point(self.right, under + BETWEEN), Point(self.right, over - BETWEEN)]
        begin = Point(start, self._upper(above) + self.sizes[above].height)
        return [begin, Point(start, under), *aside, Point(end, over), Point(end, self._upper(below))]
