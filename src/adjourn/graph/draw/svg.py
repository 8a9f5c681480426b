"""Charts as SVG: one file that needs nothing else, for light and dark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from adjourn._text import visible_line

from ._layers import Link, Size
from ._layout import Layout, Point, Route, arrange
from .chart import Chart, Edge, Node

MARGIN, PADDING = 20.0, 16.0
TITLE, MARK = 13, 11
"""Font sizes of names, and of what stands below them and at lines."""
LOOP = 30.0
"""How far a line that leads back to its own box goes aside."""
LONGEST = 42
"""Names are cut after so many letters; the whole name is shown when one points at it."""

_LIGHT = {
    "paper": "fill:#ffffff",
    "ink": "fill:#1f2328",
    "faint": "fill:#59636e",
    "line": "stroke:#6e7781;fill:none",
    "tip": "fill:#6e7781",
    "node": "fill:#f6f8fa;stroke:#8c959f",
    "end": "fill:#eaeef2;stroke:#8c959f",
    "llm": "fill:#ddf4ff;stroke:#0969da",
    "tools": "fill:#fff8c5;stroke:#bf8700",
    "agent": "fill:#fbefff;stroke:#8250df",
    "group": "fill:#afb8c1;fill-opacity:.14;stroke:#afb8c1",
}
_DARK = {
    "paper": "fill:#0d1117",
    "ink": "fill:#e6edf3",
    "faint": "fill:#9198a1",
    "line": "stroke:#848d97;fill:none",
    "tip": "fill:#848d97",
    "node": "fill:#1c2128;stroke:#6e7681",
    "end": "fill:#2d333b;stroke:#6e7681",
    "llm": "fill:#0c2d4d;stroke:#58a6ff",
    "tools": "fill:#3a2d05;stroke:#d29922",
    "agent": "fill:#2b1d47;stroke:#a371f7",
    "group": "fill:#6e7681;fill-opacity:.12;stroke:#484f58",
}
_FONT = "ui-monospace,SFMono-Regular,Menlo,Consolas,&quot;DejaVu Sans Mono&quot;,monospace"


def svg(chart: Chart, name: str) -> str:
    """The chart as an SVG document of its own, which can also stand inside an HTML page."""
    group = _Group(chart)
    width, height = (_number(each + 2 * MARGIN) for each in group.size[:2])
    title = _escaped(name)
    look = f'class="adjourn" role="img" aria-label="{title}" font-family="{_FONT}" font-size="{TITLE}"'
    room = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {look} {room}>',
        f"<title>{title}</title>",
        f"<style>{_rules(_LIGHT)}@media (prefers-color-scheme:dark){{{_rules(_DARK)}}}</style>",
        f'<rect class="paper" width="{width}" height="{height}" rx="10"/>',
        *group.lines(Point(MARGIN, MARGIN)),
        "</svg>",
    ]
    return "\n".join(lines)


def _rules(styles: dict[str, str]) -> str:
    return "".join(f".adjourn .{name}{{{style}}}" for name, style in styles.items())


def _number(value: float) -> str:
    return f"{round(value, 1):g}" if abs(value) < 1e5 else str(round(value))  # %g would write 1e+06


# Text

_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})


def _escaped(text: str) -> str:
    """Text as it stands in a document, with nothing hidden in it."""
    return visible_line(text).translate(_ESCAPES)


def _cut(text: str) -> str:
    shown = visible_line(text)
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…"


def _text_width(text: str, font: int) -> float:
    # Letters of the font are 0.6 of its size. Others may come from another font, and are given more: from U+2E80 on
    # most are as wide as high.
    cells = sum(1.0 if char.isascii() else 1.3 if char < "\u2e80" else 1.9 for char in text)
    return 0.61 * font * cells


def _text(at: Point, text: str, style: str, font: int = TITLE, anchor: str = "middle") -> str:
    size = "" if font == TITLE else f' font-size="{font}"'
    place = f'x="{_number(at.x)}" y="{_number(at.y + font * 0.35)}"'
    return f'<text class="{style}" {place} text-anchor="{anchor}"{size}>{_escaped(_cut(text))}</text>'


# Boxes


class _Box(NamedTuple):
    """A node, what stands in it, and how much room it takes; `beside` is kept free on both sides for its own lines."""

    node: Node
    inner: _Group | None
    size: Size
    beside: float

    @property
    def room(self) -> Size:
        return Size(self.size.width + 2 * self.beside, self.size.height, self.beside)


def _box(node: Node, loops: Iterable[Edge]) -> _Box:
    inner = None if node.inner is None else _Group(node.inner)
    labels = [_text_width(_cut(loop.label), MARK) for loop in loops]
    beside = LOOP + max(labels) if labels else 0.0
    return _Box(node, inner, _size(node, inner), beside)


def _size(node: Node, inner: _Group | None) -> Size:
    widths = [_text_width(_cut(node.title), TITLE), *(_text_width(_cut(mark), MARK) for mark in node.marks)]
    text = Size(max(widths), 19.0 + 15.0 * len(node.marks))
    if inner is not None:
        return Size(max(text.width, inner.size.width) + 2 * PADDING, text.height + inner.size.height + 2 * PADDING + 6)
    if node.shape in ("end", "join", "choice"):
        return Size(text.width + 24, 26.0)
    return Size(max(text.width + 30, 64.0), text.height + 17)


def _drawn(box: _Box, at: Point) -> Iterator[str]:
    """The box with its upper left corner there."""
    node, size = box.node, box.size
    middle = at.x + size.width / 2
    yield f"<g><title>{_escaped(': '.join([node.title, *node.marks]))}</title>"
    yield _outline(box, at)
    if node.shape == "agent" and box.inner is None:
        bars = "".join(
            f"M{_number(x)} {_number(at.y)}v{_number(size.height)}" for x in (at.x + 6, at.x + size.width - 6)
        )
        yield f'<path class="agent" d="{bars}"/>'
    first = at.y + (13.0 if node.shape in ("end", "join", "choice") else 18.0)
    yield _text(Point(middle, first), node.title, "ink")
    for number, mark in enumerate(node.marks):
        yield _text(Point(middle, first + 16 + 15 * number), mark, "faint", MARK)
    yield "</g>"
    if box.inner is not None:
        left = middle - box.inner.size.width / 2
        yield from box.inner.lines(Point(left, at.y + size.height - PADDING - box.inner.size.height))


def _outline(box: _Box, at: Point) -> str:
    node, size = box.node, box.size
    style = "group" if box.inner is not None else "end" if node.shape in ("join", "choice") else node.shape
    round_ = {"end": 13, "join": 13, "choice": 13, "llm": 14, "agent": 2, "tools": 2}.get(node.shape, 6)
    place = f'x="{_number(at.x)}" y="{_number(at.y)}" width="{_number(size.width)}" height="{_number(size.height)}"'
    look = ' stroke-width="2.5"' * node.pauses + ' stroke-dasharray="5 4"' * node.defers
    return f'<rect class="{style}" {place} rx="{8 if box.inner is not None else round_}"{look}/>'


# Charts


class _Group:
    """A chart that is laid out."""

    def __init__(self, chart: Chart) -> None:
        self._edges = chart.edges
        loops: dict[str, list[Edge]] = {}
        for edge in chart.edges:
            if edge.source == edge.target:
                loops.setdefault(edge.source, []).append(edge)
        # An end that nothing leads to is for forms in which ways lead on from there; here they leave the box around.
        reached = {edge.target for edge in chart.edges}
        nodes = [node for node in chart.nodes if node.id != "e" or "e" in reached]
        self._boxes = {node.id: _box(node, loops.get(node.id, ())) for node in nodes}
        self._layout = self._arranged()
        self.size = self._layout.size

    def _arranged(self) -> Layout:
        index = {name: number for number, name in enumerate(self._boxes)}
        links = [Link(index[edge.source], index[edge.target], _label_size(edge)) for edge in self._edges]
        return arrange([box.room for box in self._boxes.values()], links)

    def lines(self, at: Point) -> Iterator[str]:
        """What to write for it, with its upper left corner there."""
        corners: dict[str, Point] = {}
        for box, place in zip(self._boxes.values(), self._layout.places, strict=True):
            corners[box.node.id] = Point(at.x + place.x + box.beside, at.y + place.y)
            yield from _drawn(box, corners[box.node.id])
        looped: set[str] = set()
        for edge, route in zip(self._edges, self._layout.routes, strict=True):
            if route.runs:
                yield from _line(edge, route, at)
            else:
                # There are two at most: an edge, and a choice.
                yield from _loop(edge, corners[edge.source], self._boxes[edge.source].size, edge.source in looped)
                looped.add(edge.source)


def _label_size(edge: Edge) -> Size | None:
    if not edge.label or edge.source == edge.target:
        return None
    return Size(_text_width(_cut(edge.label), MARK) + 8, 16.0)


# Lines


def _line(edge: Edge, route: Route, by: Point) -> Iterator[str]:
    runs = [[Point(by.x + point.x, by.y + point.y) for point in run] for run in route.runs]
    before, end = runs[-1][-2:]
    up = end.y < before.y or (end.y == before.y and runs[-1][0].y > end.y)
    # The line ends where its tip begins, or it would show through.
    tip = 7.0 if up else -7.0
    runs[-1][-1] = Point(end.x, end.y + tip)
    yield f'<path class="line" d="{"".join(map(_path, runs))}"{_dotted(edge)}/>'
    yield f'<path class="tip" d="M{_number(end.x)} {_number(end.y)}l-4 {_number(tip - (tip > 0) + (tip < 0))}h8z"/>'
    if route.label is not None:
        yield _labelled(edge, Point(by.x + route.label.x, by.y + route.label.y), "middle")


def _path(run: list[Point]) -> str:
    parts = [f"M{_number(run[0].x)} {_number(run[0].y)}"]
    for before, point in pairwise(run):
        x, y, half = _number(point.x), _number(point.y), _number((before.y + point.y) / 2)
        if abs(before.x - point.x) > 0.05:  # less than can be seen
            parts.append(f"C{_number(before.x)} {half} {x} {half} {x} {y}")
        elif before.y != point.y:
            parts.append(f"V{y}")
    return "".join(parts)


def _loop(edge: Edge, corner: Point, size: Size, on_the_left: bool) -> Iterator[str]:
    """A line from the side of a box back to it."""
    side, out = (corner.x, -1) if on_the_left else (corner.x + size.width, 1)
    middle = corner.y + size.height / 2
    x, far, lower = _number(side), _number(side + out * (LOOP - 4)), _number(middle + 8)
    away = f"M{x} {_number(middle - 8)}C{far} {_number(middle - 14)}"
    home = f"{far} {_number(middle + 14)} {_number(side + out * 7)} {lower}"
    yield f'<path class="line" d="{away} {home}"{_dotted(edge)}/>'
    yield f'<path class="tip" d="M{x} {lower}l{out * 8} -4v8z"/>'
    if edge.label:
        yield _labelled(edge, Point(side + out * (LOOP - 6), middle), "end" if on_the_left else "start")


def _dotted(edge: Edge) -> str:
    return "" if edge.certain else ' stroke-dasharray="2 4" stroke-linecap="round"'


def _labelled(edge: Edge, at: Point, anchor: str) -> str:
    return f"<g><title>{_escaped(edge.label)}</title>{_text(at, edge.label, 'faint', MARK, anchor)}</g>"
