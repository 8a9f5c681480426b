"""Charts as Mermaid flowcharts."""

from __future__ import annotations

import re

from adjourn._text import visible_line

from .chart import Chart, Node

_SHAPES = {
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


def _escaped(text: str) -> str:
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
            label = f'|"{_escaped(edge.label)}"|' if edge.label else ""
            self.lines.append(f"{indent}{source} {arrow}{label} {target}")

    def _add_node(self, node: Node, id: str, indent: str) -> None:
        label = "<br/>".join(map(_escaped, (node.title, *node.marks)))
        if node.inner is None:
            self.lines.append(f"{indent}{id}{_SHAPES[node.shape].format(label)}")
        else:
            self.lines.append(f'{indent}subgraph {id}["{label}"]')
            self.add(node.inner, f"{id}_", indent + "    ")
            self.lines.append(f"{indent}end")
        styles = {node.shape: True, "pauses": node.pauses, "deferred": node.defers}
        for name in self._styled:
            if styles.get(name):
                self._styled[name].append(id)
