"""Graphs as lines for terminals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from adjourn._text import visible_line
from adjourn.graph._plan import Plan
from adjourn.graph.commands import END

from .chart import choices, ends, inside, marks

if TYPE_CHECKING:
    from adjourn.graph._spec import Join, NodeSpec


def text(plan: Plan) -> str:
    """The graph as lines for a terminal: `→` is an edge, `⇢` a choice of a condition or command."""
    return "\n".join([visible_line(plan.name), *_rows(plan, "  ")])


def _rows(plan: Plan, indent: str) -> Iterator[str]:
    names = {spec: _title(spec) for spec in plan.specs.values()} | {plan.start: "start"}
    width = max(map(len, names.values()))
    for spec in (plan.start, *plan.specs.values()):
        yield f"{indent}{names[spec]:{width}} {_leading(spec)}"
        if (inner := inside(spec)) is not None:
            yield from _rows(inner, indent + "    ")


def _title(spec: NodeSpec) -> str:
    special = [visible_line(mark) for mark in marks(spec)]
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
