"""Drawing graphs: Mermaid for pages, lines for terminals.

Both show plain edges, joins, where conditions and commands may lead, which nodes pause or come last, and the graphs
inside. A node that nothing leads on from leads to the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from adjourn.core.visible import visible_line
from adjourn.graph.commands import END

if TYPE_CHECKING:
    from adjourn.graph.compiled import CompiledGraph
    from adjourn.graph.spec import Join, NodeSpec


class Lead(NamedTuple):
    """Where a node may lead by a condition or a command; `target` is None for "anywhere"."""

    target: str | None
    label: str = ""


def choices(spec: NodeSpec) -> list[Lead]:
    """Where conditions and commands of a node may lead, each place once.

    A condition without a mapping may lead to any node. Edges to all of them would say nothing, so it leads to where
    the node's `destinations` are, and without those to one "anywhere".
    """
    labels: dict[str | None, list[str]] = {}
    for condition in spec.conditions:
        for key, name in (condition.mapping or {}).items():
            labels.setdefault(name, []).extend([str(key)] if str(key) != name else [])
    plain = {target.name for target in spec.targets}
    for name, label in spec.destinations.items():
        if name not in plain or label:
            labels.setdefault(name, []).extend([label] if label else [])
    if not spec.destinations and not all(condition.mapping for condition in spec.conditions):
        labels[None] = []
    return [Lead(target, ", ".join(texts)) for target, texts in labels.items()]


def ends(spec: NodeSpec) -> bool:
    """Whether nothing leads on from a node."""
    return not (spec.targets or spec.joins or spec.conditions or spec.destinations)


def marks(spec: NodeSpec) -> list[str]:
    """What is special about when a node runs."""
    found = {
        "pauses before": spec.interrupt_before,
        "pauses after": spec.interrupt_after,
        "deferred": spec.defer,
    }
    return [mark for mark, holds in found.items() if holds]


# Mermaid


def draw(graph: CompiledGraph) -> str:
    """The graph as a Mermaid flowchart. Where commands lead is drawn for nodes that name their `destinations`."""
    chart = _Flowchart()
    chart.add(graph, "", "    ")
    return "\n".join(chart.lines + chart.styles())


# Mermaid reads labels as Markdown with HTML: everything but words goes in as a character code.
_UNSAFE = re.compile(r"[^\w /-]|(?<![^\W_])[_-]|[_-](?![^\W_])|^ +| +$")


def _escaped(text: str) -> str:
    return _UNSAFE.sub(lambda match: "".join(f"#{ord(char)};" for char in match[0]), visible_line(text))


class _Flowchart:
    """Collects the lines of a flowchart. Ids are made of numbers, so that no name can break out of its label."""

    def __init__(self) -> None:
        self.lines = ["flowchart TD"]
        self._pausing: list[str] = []
        self._deferred: list[str] = []

    def styles(self) -> list[str]:
        lines: list[str] = []
        if self._pausing:
            lines += ["    classDef pauses stroke-width:3px", f"    class {','.join(self._pausing)} pauses"]
        if self._deferred:
            lines += ["    classDef deferred stroke-dasharray:5 4", f"    class {','.join(self._deferred)} deferred"]
        return lines

    def add(self, graph: CompiledGraph, prefix: str, indent: str) -> None:
        """Add a graph, with `prefix` before all of its ids."""
        self.lines.append(f'{indent}{prefix}s(["start"])')
        for spec in graph.specs.values():
            self._add_node(spec, f"{prefix}n{spec.order}", indent)
        if prefix or _reaches_end(graph):
            self.lines.append(f'{indent}{prefix}e(["end"])')
        self.lines += [indent + line for line in _edges(graph, prefix)]

    def _add_node(self, spec: NodeSpec, id: str, indent: str) -> None:
        label = "<br/>".join([_escaped(spec.name), *marks(spec)])
        if spec.graph is None:
            self.lines.append(f'{indent}{id}["{label}"]')
        else:
            self.lines.append(f'{indent}subgraph {id}["{label}"]')
            self.add(spec.graph, f"{id}_", indent + "    ")
            self.lines.append(f"{indent}end")
        if spec.interrupt_before or spec.interrupt_after:
            self._pausing.append(id)
        if spec.defer:
            self._deferred.append(id)


def _reaches_end(graph: CompiledGraph) -> bool:
    specs = [graph.start, *graph.specs.values()]
    return any(ends(spec) or any(lead.target == END for lead in choices(spec)) for spec in specs)


def _edges(graph: CompiledGraph, prefix: str) -> Iterator[str]:
    for spec in (graph.start, *graph.specs.values()):
        source = f"{prefix}s" if spec is graph.start else _way(graph, prefix, spec.name, "e")
        for target in spec.targets:
            yield f"{source} --> {_way(graph, prefix, target.name, 's')}"
        if ends(spec):
            yield f"{source} --> {prefix}e"
        for lead in choices(spec):
            arrow = f'-.->|"{_escaped(lead.label)}"|' if lead.label else "-.->"
            target = f'{source}_q(("?"))' if lead.target is None else _way(graph, prefix, lead.target, "s")
            yield f"{source} {arrow} {target}"
    for number, join in enumerate(_joins(graph)):
        yield f'{prefix}j{number}{{{{"all"}}}} --> {_way(graph, prefix, join.target.name, "s")}'
        for name in graph.specs:
            if name in join.sources:
                yield f"{_way(graph, prefix, name, 'e')} --> {prefix}j{number}"


def _way(graph: CompiledGraph, prefix: str, name: str, side: str) -> str:
    """The id at which edges enter ("s") or leave ("e") a node: of a subgraph, its own start and end."""
    if name == END:
        return f"{prefix}e"
    spec = graph.specs[name]
    return f"{prefix}n{spec.order}" if spec.graph is None else f"{prefix}n{spec.order}_{side}"


def _joins(graph: CompiledGraph) -> list[Join]:
    return list({join.id: join for spec in graph.specs.values() for join in spec.joins}.values())


# Text


def draw_text(graph: CompiledGraph) -> str:
    """The graph as lines for a terminal: `→` is an edge, `⇢` a choice of a condition or command."""
    return "\n".join([visible_line(graph.name), *_rows(graph, "  ")])


def _rows(graph: CompiledGraph, indent: str) -> Iterator[str]:
    names = {spec: _title(spec) for spec in graph.specs.values()} | {graph.start: "start"}
    width = max(map(len, names.values()))
    for spec in (graph.start, *graph.specs.values()):
        yield f"{indent}{names[spec]:{width}} {_leading(spec)}"
        if spec.graph is not None:
            yield from _rows(spec.graph, indent + "    ")


def _title(spec: NodeSpec) -> str:
    special = marks(spec)
    return _name(spec.name) + (f" ({', '.join(special)})" if special else "")


def _leading(spec: NodeSpec) -> str:
    certain = [_name(target.name) for target in spec.targets]
    certain += [f"{_name(join.target.name)} (with {_others(join, spec)})" for join in spec.joins]
    certain += ["end"] * ends(spec)
    possible = [_name(lead.target) + (f" ({visible_line(lead.label)})" if lead.label else "") for lead in choices(spec)]
    parts = [f"→ {', '.join(certain)}"] * bool(certain) + [f"⇢ {', '.join(possible)}"] * bool(possible)
    return "  ".join(parts)


def _others(join: Join, spec: NodeSpec) -> str:
    return ", ".join(_name(name) for name in sorted(join.sources) if name != spec.name)


def _name(target: str | None) -> str:
    if target in (None, END):
        return "end" if target else "?"
    return f"'{target}'" if target in ("start", "end", "?") else visible_line(target)
