"""Drawings of graphs: as text, for Mermaid, and for Graphviz.

A chart is what a drawing shows, independent of its format: plain edges, joins, the possible targets of conditions and
commands, the kind of each node, which nodes pause or are deferred, and nested graphs. A node without any outgoing edge
leads to the end.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

from msgspec import Struct

from adjourn._text import visible_line
from adjourn.errors import UsageError

from . import _node as compiled
from ._node import Join, Plan
from .commands import END

__all__ = ["FORMATS", "Chart", "Edge", "Node", "chart_of", "check_format", "dot", "draw", "mermaid", "svg"]

_LINE = 80
"""Columns of a description in a terminal."""
_WIDTH = 40
"""Columns of a description in a drawn node."""

Shape = Literal["end", "node", "llm", "tools", "agent", "choice", "join"]


class Node(Struct, frozen=True, kw_only=True):
    """A node of a chart, possibly with a chart inside; its id is unique within its chart."""

    id: str
    title: str
    description: str = ""
    shape: Shape = "node"
    marks: tuple[str, ...] = ()
    pauses: bool = False
    defers: bool = False
    inner: Chart | None = None


class Edge(Struct, frozen=True, kw_only=True):
    """An edge from one node to another; if it is not `certain`, a condition or a command decides whether to take it."""

    source: str
    target: str
    label: str = ""
    certain: bool = True


class Chart(Struct, frozen=True, kw_only=True):
    """Nodes, in the order in which they were added, and the edges between them."""

    nodes: Sequence[Node]
    edges: Sequence[Edge]


class Lead(NamedTuple):
    """A possible target of a node's conditions or commands; `target` is None for "anywhere"."""

    target: str | None
    label: str = ""


# Describing one node


def choices(node: compiled.Node) -> list[Lead]:
    """Return the possible targets of a node's conditions and commands, each once.

    A condition without a mapping may lead to any node. Drawing edges to all of them would be noise, so it leads to
    the node's `destinations` or `ends`, or to a single "anywhere" if there are none.
    """
    labels: dict[str | None, list[str]] = {}
    for condition in node.conditions:
        for key, name in (condition.mapping or {}).items():
            labels.setdefault(name, []).extend([str(key)] if str(key) != name else [])
    plain = {target.name for target in node.targets}
    for name, label in node.options.leads.items():
        if name not in plain or label:
            texts = labels.setdefault(name, [])
            texts += [label] if label and label not in texts else []
    if not node.options.leads and not all(condition.mapping for condition in node.conditions):
        labels[None] = []
    return [Lead(target, ", ".join(texts)) for target, texts in labels.items()]


def ends(node: compiled.Node) -> bool:
    """Return whether a node has no outgoing edges."""
    return not (node.targets or node.joins or node.conditions or node.options.leads)


def marks(node: compiled.Node) -> list[str]:
    """Return labels for the kind of a node and for anything special about when it runs."""
    found = {
        "pauses before": node.options.interrupt_before,
        "pauses after": node.options.interrupt_after,
        "deferred": node.options.defer,
    }
    return [*node.marks(), *(mark for mark, holds in found.items() if holds)]


# Charts of graphs


def chart_of(plan: Plan, *, is_inner: bool = False) -> Chart:
    """Return the chart of a graph. An inner chart always has an end, because edges of the outer graph start there."""
    starts = [plan.start, *plan.nodes.values()]
    joins = list(plan.joins.values())
    nodes = [Node(id="s", title="start", shape="end"), *map(_node, plan.nodes.values())]
    nodes += [Node(id=f"q{s.order + 1}", title="?", shape="choice") for s in starts if Lead(None) in choices(s)]
    nodes += [Node(id=f"j{number}", title="all", shape="join") for number in range(len(joins))]
    edges = [edge for node in starts for edge in _edges(plan, node)]
    edges += [edge for number, join in enumerate(joins) for edge in _joining(plan, join, f"j{number}")]
    if is_inner or any(edge.target == "e" for edge in edges):
        nodes.append(Node(id="e", title="end", shape="end"))
    return Chart(nodes=nodes, edges=edges)


def _node(node: compiled.Node) -> Node:
    inner, options = node.inner, node.options
    return Node(
        id=f"n{node.order}",
        title=node.title,
        description=node.options.description,
        shape=node.shape,
        marks=tuple(marks(node)),
        pauses=options.interrupt_before or options.interrupt_after,
        defers=options.defer,
        inner=None if inner is None else chart_of(inner, is_inner=True),
    )


def _edges(plan: Plan, node: compiled.Node) -> Iterator[Edge]:
    source = "s" if node is plan.start else f"n{node.order}"
    for target in node.targets:
        yield Edge(source=source, target=f"n{target.order}")
    if ends(node):
        yield Edge(source=source, target="e")
    for lead in choices(node):
        target = f"q{node.order + 1}" if lead.target is None else _id(plan, lead.target)
        yield Edge(source=source, target=target, label=lead.label, certain=False)


def _joining(plan: Plan, join: Join, id: str) -> Iterator[Edge]:
    for name in plan.nodes:
        if name in join.sources:
            yield Edge(source=_id(plan, name), target=id)
    yield Edge(source=id, target=f"n{join.target.order}")


def _id(plan: Plan, name: str) -> str:
    return "e" if name == END else f"n{plan.nodes[name].order}"


def text(plan: Plan) -> str:
    """Return the graph as lines for a terminal: `→` is an edge, `⇢` a choice of a condition or command."""
    return "\n".join([visible_line(plan.name), *_rows(plan, "  ")])


def _rows(plan: Plan, indent: str) -> Iterator[str]:
    names = {node: _title(node) for node in plan.nodes.values()} | {plan.start: "start"}
    width = max(map(len, names.values()))
    for node in (plan.start, *plan.nodes.values()):
        yield f"{indent}{names[node]:{width}} {_leading(node)}"
        yield from _described(node, indent + "    ")
        if (inner := node.inner) is not None:
            yield from _rows(inner, indent + "    ")


def _described(node: compiled.Node, indent: str) -> Iterator[str]:
    """Yield the lines of a node's description, broken at words."""
    return (indent + line for line in _wrapped(node.options.description, _LINE))


def _title(node: compiled.Node) -> str:
    special = [visible_line(mark) for mark in ([node.options.title] if node.options.title else []) + marks(node)]
    return _name(node.name) + (f" ({', '.join(special)})" if special else "")


def _leading(node: compiled.Node) -> str:
    certain = [_name(target.name) for target in node.targets]
    certain += [f"{_name(join.target.name)} (with {_others(join, node)})" for join in node.joins]
    certain += ["end"] * ends(node)
    possible = [_name(lead.target) + (f" ({visible_line(lead.label)})" if lead.label else "") for lead in choices(node)]
    parts = [f"→ {', '.join(certain)}"] * bool(certain) + [f"⇢ {', '.join(possible)}"] * bool(possible)
    return "  ".join(parts)


def _others(join: Join, node: compiled.Node) -> str:
    return ", ".join(_name(name) for name in sorted(join.sources) if name != node.name)


def _name(target: str | None) -> str:
    if target in (None, END):
        return "end" if target else "?"
    return f"'{target}'" if target in ("start", "end", "?") else visible_line(target)


def _labels(node: Node) -> list[str]:
    """Return the lines that a drawn node shows."""
    return [node.title, *_wrapped(node.description, _WIDTH), *node.marks]


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(visible_line(" ".join(text.split())), width, break_long_words=False)


_MERMAID_SHAPES = {
    "end": '(["{}"])',
    "node": '["{}"]',
    "llm": '("{}")',
    "tools": '[/"{}"/]',
    "agent": '[["{}"]]',
    "choice": '(("{}"))',
    "join": '{{{{"{}"}}}}',
}
# Only strokes: the fill color of a shape is left to the theme, light or dark.
_STYLES = {
    "llm": "stroke:#3b82f6",
    "tools": "stroke:#d97706",
    "agent": "stroke:#8b5cf6",
    "pauses": "stroke-width:3px",
    "deferred": "stroke-dasharray:5 4",
}
# Mermaid parses labels as Markdown with HTML, so everything but words is written as a character code.
_UNSAFE = re.compile(r"[^\w /-]|(?<![^\W_])[_-]|[_-](?![^\W_])|^ +| +$")


def mermaid(chart: Chart) -> str:
    """Return the chart as a Mermaid flowchart."""
    flowchart = _Flowchart()
    flowchart.add(chart, "", "    ")
    return "\n".join(["flowchart TD", *flowchart.lines, *flowchart.styles()])


def _mermaid_escaped(text: str) -> str:
    return _UNSAFE.sub(lambda match: "".join(f"#{ord(char)};" for char in match[0]), visible_line(text))


class _Flowchart:
    """Collects the lines of a flowchart. Ids are made of numbers, so that no name can break out of its label."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._styled: dict[str, list[str]] = {name: [] for name in _STYLES}

    def styles(self) -> list[str]:
        used = {name: ids for name, ids in self._styled.items() if ids}
        return [
            line
            for name, ids in used.items()
            for line in (f"    classDef {name} {_STYLES[name]}", f"    class {','.join(ids)} {name}")
        ]

    def add(self, chart: Chart, prefix: str, indent: str) -> None:
        """Add a chart, putting `prefix` before all its ids."""
        for node in chart.nodes:
            self._add_node(node, prefix + node.id, indent)
        # Edges into an inner chart go to its start, and edges out of it leave from its end.
        holding = {node.id for node in chart.nodes if node.inner is not None}
        for edge in chart.edges:
            source = prefix + edge.source + "_e" * (edge.source in holding)
            target = prefix + edge.target + "_s" * (edge.target in holding)
            arrow = "-->" if edge.certain else "-.->"
            label = f'|"{_mermaid_escaped(edge.label)}"|' if edge.label else ""
            self.lines.append(f"{indent}{source} {arrow}{label} {target}")

    def _add_node(self, node: Node, id: str, indent: str) -> None:
        label = "<br/>".join(map(_mermaid_escaped, _labels(node)))
        if node.inner is None:
            self.lines.append(f"{indent}{id}{_MERMAID_SHAPES[node.shape].format(label)}")
        else:
            self.lines.append(f'{indent}subgraph {id}["{label}"]')
            self.add(node.inner, f"{id}_", indent + "    ")
            self.lines.append(f"{indent}end")
        styles = {node.shape: True, "pauses": node.pauses, "deferred": node.defers}
        for name in self._styled:
            if styles.get(name):
                self._styled[name].append(id)


_DOT_SHAPES = {
    "end": 'shape=box style="rounded,filled" fillcolor="#f1f5f9"',
    "node": "shape=box",
    "llm": 'shape=box style=rounded color="#3b82f6"',
    "tools": 'shape=parallelogram color="#d97706"',
    "agent": 'shape=box peripheries=2 color="#8b5cf6"',
    "choice": "shape=circle",
    "join": "shape=hexagon",
}
_SECONDS = 30
"""Time limit for `dot`."""


def dot(chart: Chart, name: str) -> str:
    """Return the chart as DOT source."""
    lines = [f'    graph [fontname="Helvetica" label="{_dot_escaped(name)}" labelloc=t compound=true]']
    lines += ['    node [fontname="Helvetica"]', '    edge [fontname="Helvetica" fontsize=11]']
    return "\n".join(["digraph {", *lines, *_lines(chart, "", "    "), "}"])


def svg(chart: Chart, name: str) -> str:
    """Return the chart as SVG, rendered by Graphviz.

    Raises:
        UsageError: Graphviz is not installed or failed.
    """
    try:
        done = subprocess.run(
            ["dot", "-Tsvg"], input=dot(chart, name), capture_output=True, text=True, timeout=_SECONDS, check=True
        )
    except FileNotFoundError:
        raise UsageError(
            "Drawing SVG needs Graphviz, but `dot` was not found on the PATH. Install it (apt install graphviz, "
            "brew install graphviz), or use format='mermaid', which many sites and editors render themselves."
        ) from None
    except (subprocess.SubprocessError, OSError) as error:
        raise UsageError(f"Graphviz failed to draw the graph ({error}). Use format='dot' to see its input.") from error
    return done.stdout.strip()


def _lines(chart: Chart, prefix: str, indent: str) -> Iterator[str]:
    for node in chart.nodes:
        yield from _dot_node(node, prefix + node.id, indent)
    # Edges into an inner chart go to its start, and edges out of it leave from its end.
    holding = {node.id for node in chart.nodes if node.inner is not None}
    for edge in chart.edges:
        source = prefix + edge.source + "_e" * (edge.source in holding)
        target = prefix + edge.target + "_s" * (edge.target in holding)
        attributes = ["style=dashed"] * (not edge.certain) + [f'label="{_dot_escaped(edge.label)}"'] * bool(edge.label)
        yield f"{indent}{source} -> {target}" + (f" [{' '.join(attributes)}]" if attributes else "")


def _dot_node(node: Node, id: str, indent: str) -> Iterator[str]:
    label = "\\n".join(map(_dot_escaped, _labels(node)))
    if node.inner is None:
        attributes = [_DOT_SHAPES[node.shape]] + ["penwidth=3"] * node.pauses + ["style=dashed"] * node.defers
        yield f'{indent}{id} [label="{label}" {" ".join(attributes)}]'
        return
    yield f"{indent}subgraph cluster_{id} {{"
    yield f'{indent}    label="{label}"'
    yield from _lines(node.inner, f"{id}_", indent + "    ")
    yield f"{indent}}}"


def _dot_escaped(text: str) -> str:
    # Graphviz reads the entities of HTML in labels.
    return visible_line(text).replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;")


_DRAWN: dict[str, Callable[[Plan], str]] = {
    "mermaid": lambda plan: mermaid(chart_of(plan)),
    "dot": lambda plan: dot(chart_of(plan), plan.name),
    "svg": lambda plan: svg(chart_of(plan), plan.name),
    "text": text,
}
FORMATS = tuple(_DRAWN)


def draw(plan: Plan, format: str) -> str:
    """Return the graph drawn in one of `FORMATS`.

    The targets of commands are only drawn for nodes that name their `destinations` or `ends`.

    Raises:
        UsageError: the format is unknown, or it is "svg" and Graphviz is not installed.
    """
    check_format(format)
    return _DRAWN[format](plan)


def notebook(draw: Callable[[str], str]) -> dict[str, str]:
    """Return what a notebook shows of what `draw` draws: SVG if Graphviz is installed, else Mermaid, else lines."""
    bundle = {"text/plain": draw("text"), "text/vnd.mermaid": draw("mermaid")}
    with contextlib.suppress(UsageError):
        image = draw("svg")
        bundle["image/svg+xml"] = image[image.index("<svg") :]  # Before it, a document type names a page on the net.
    return bundle


def check_format(format: str) -> None:
    """Raise if a format is unknown.

    Raises:
        UsageError: naming the known formats.
    """
    if format not in FORMATS:
        raise UsageError(f"draw(format={format!r}): use 'mermaid', 'dot', 'svg' or 'text'.")
