"""Graphs as lines for terminals."""

from __future__ import annotations

from collections.abc import Iterator

from adjourn._text import visible_line
from adjourn.graph._node import Join, Node, Plan
from adjourn.graph.commands import END

from .chart import choices, ends, marks


def text(plan: Plan) -> str:
    """Return the graph as lines for a terminal: `→` is an edge, `⇢` a choice of a condition or command."""
    return "\n".join([visible_line(plan.name), *_rows(plan, "  ")])


def _rows(plan: Plan, indent: str) -> Iterator[str]:
    names = {node: _title(node) for node in plan.nodes.values()} | {plan.start: "start"}
    width = max(map(len, names.values()))
    for node in (plan.start, *plan.nodes.values()):
        yield f"{indent}{names[node]:{width}} {_leading(node)}"
        if (inner := node.inner) is not None:
            yield from _rows(inner, indent + "    ")


def _title(node: Node) -> str:
    special = [visible_line(mark) for mark in marks(node)]
    return _name(node.name) + (f" ({', '.join(special)})" if special else "")


def _leading(node: Node) -> str:
    certain = [_name(target.name) for target in node.targets]
    certain += [f"{_name(join.target.name)} (with {_others(join, node)})" for join in node.joins]
    certain += ["end"] * ends(node)
    possible = [_name(lead.target) + (f" ({visible_line(lead.label)})" if lead.label else "") for lead in choices(node)]
    parts = [f"→ {', '.join(certain)}"] * bool(certain) + [f"⇢ {', '.join(possible)}"] * bool(possible)
    return "  ".join(parts)


def _others(join: Join, node: Node) -> str:
    return ", ".join(_name(name) for name in sorted(join.sources) if name != node.name)


def _name(target: str | None) -> str:
    if target in (None, END):
        return "end" if target else "?"
    return f"'{target}'" if target in ("start", "end", "?") else visible_line(target)
