"""Layers: which vertices of a drawing stand in one row, and where its longer lines bend."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

LONGEST = 24
"""A line over more layers than this goes aside of everything, so that the work stays in proportion to the graph."""


class Size(NamedTuple):
    """How much room something takes; of its width, `spare` is left free on each side, where no line begins."""

    width: float
    height: float
    spare: float = 0.0


class Link(NamedTuple):
    """A line to draw between two vertices, and how large its label is."""

    source: int
    target: int
    label: Size | None = None


class Step(NamedTuple):
    """A piece of a line, from one layer to the next below; `is_back` if the line is drawn the other way."""

    above: int
    below: int
    is_back: bool


BEND = Size(6, 0)


class Layered:
    """Vertices in layers, and links as chains of vertices that each stand one layer below the one before.

    After the vertices that were given come labels, which stand in the way as vertices of their own, and bends, where a
    link passes a layer. A link that leads back is in `is_back`, and its chain is turned around. Of a chain that is too
    long, the step that is no step to the next layer is left for a line aside.
    """

    def __init__(self, sizes: Sequence[Size], links: Sequence[Link]) -> None:
        self.sizes = list(sizes)
        self.given = len(self.sizes)
        self.is_back = _leading_back(len(self.sizes), links)
        self.chains = [self._chain(link, back) for link, back in zip(links, self.is_back, strict=True)]
        self.labels = [chain[1] if len(chain) > 2 else None for chain in self.chains]  # both ends and the label
        self.layer = _longest_paths(len(self.sizes), self.chains)
        self._lower_labels()
        self.chains = [self._bent(chain) for chain in self.chains]

    def _chain(self, link: Link, back: bool) -> list[int]:
        if link.source == link.target:
            return []
        ends = [link.target, link.source] if back else [link.source, link.target]
        if link.label is None:
            return ends
        self.sizes.append(link.label)
        return [ends[0], len(self.sizes) - 1, ends[1]]

    def _lower_labels(self) -> None:
        """A label belongs near where its link begins; that of a link that leads back begins below."""
        for chain, label, back in zip(self.chains, self.labels, self.is_back, strict=True):
            if label is not None and back:
                self.layer[label] = self.layer[chain[-1]] - 1

    def _bent(self, chain: list[int]) -> list[int]:
        bent = chain[:1]
        for above, below in pairwise(chain):
            between = range(self.layer[above] + 1, self.layer[below])
            bends = range(len(self.sizes), len(self.sizes) + len(between)) if len(between) <= LONGEST else range(0)
            self.sizes += [BEND] * len(bends)
            self.layer += list(between)[: len(bends)]
            bent += [*bends, below]
        return bent

    @property
    def rows(self) -> list[list[int]]:
        """The vertices of each layer, in the order in which they were made."""
        rows: list[list[int]] = [[] for _ in range(max(self.layer, default=-1) + 1)]
        for vertex, layer in enumerate(self.layer):
            rows[layer].append(vertex)
        return rows

    def steps(self) -> list[Step]:
        """All steps from one layer to the next, link by link."""
        return [
            Step(above, below, back)
            for chain, back in zip(self.chains, self.is_back, strict=True)
            for above, below in pairwise(chain)
            if self.layer[below] == self.layer[above] + 1
        ]


def _leading_back(count: int, links: Sequence[Link]) -> list[bool]:
    """Which links close a circle, when one follows them from the first vertex on, and then from those left."""
    leaving: list[list[int]] = [[] for _ in range(count)]
    for number, link in enumerate(links):
        leaving[link.source].append(number)
    back = [False] * len(links)
    is_open, seen = [False] * count, [False] * count
    for root in range(count):
        # A stack of its own: a chain of nodes may be longer than Python recurses.
        stack = [] if seen[root] else [(root, iter(leaving[root]))]
        while stack:
            vertex, numbers = stack[-1]
            seen[vertex] = is_open[vertex] = True
            number = next(numbers, None)
            if number is None:
                is_open[vertex] = False
                stack.pop()
            elif is_open[target := links[number].target]:
                back[number] = True
            elif not seen[target]:
                stack.append((target, iter(leaving[target])))
    return back


def _longest_paths(count: int, chains: Sequence[Sequence[int]]) -> list[int]:
    """The layer of each vertex: one below the lowest of those that lead to it."""
    below: list[list[int]] = [[] for _ in range(count)]
    awaited = [0] * count
    for chain in chains:
        for upper, lower in pairwise(chain):
            below[upper].append(lower)
            awaited[lower] += 1
    layer = [0] * count
    ready = [vertex for vertex in range(count) if not awaited[vertex]]
    for vertex in ready:  # It grows while it is read: each comes when all above it have come.
        for lower in below[vertex]:
            layer[lower] = max(layer[lower], layer[vertex] + 1)
            awaited[lower] -= 1
            if not awaited[lower]:
                ready.append(lower)
    return layer
