"""Charts as Graphviz DOT source, and as the SVG that Graphviz renders from it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

from adjourn._text import visible_line
from adjourn.errors import UsageError

from .chart import Chart, Node

_SHAPES = {
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
    lines = [f'    graph [fontname="Helvetica" label="{_escaped(name)}" labelloc=t compound=true]']
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
        yield from _node(node, prefix + node.id, indent)
    # Edges into an inner chart go to its start, and edges out of it leave from its end.
    holding = {node.id for node in chart.nodes if node.inner is not None}
    for edge in chart.edges:
        source = prefix + edge.source + "_e" * (edge.source in holding)
        target = prefix + edge.target + "_s" * (edge.target in holding)
        attributes = ["style=dashed"] * (not edge.certain) + [f'label="{_escaped(edge.label)}"'] * bool(edge.label)
        yield f"{indent}{source} -> {target}" + (f" [{' '.join(attributes)}]" if attributes else "")


def _node(node: Node, id: str, indent: str) -> Iterator[str]:
    label = "\\n".join(map(_escaped, (node.title, *node.marks)))
    if node.inner is None:
        attributes = [_SHAPES[node.shape]] + ["penwidth=3"] * node.pauses + ["style=dashed"] * node.defers
        yield f'{indent}{id} [label="{label}" {" ".join(attributes)}]'
        return
    yield f"{indent}subgraph cluster_{id} {{"
    yield f'{indent}    label="{label}"'
    yield from _lines(node.inner, f"{id}_", indent + "    ")
    yield f"{indent}}}"


def _escaped(text: str) -> str:
    return visible_line(text).replace("\\", "\\\\").replace('"', '\\"')
