"""Drawing graphs: Mermaid for pages, DOT and SVG by Graphviz for looking at, lines for terminals."""

from __future__ import annotations

from collections.abc import Callable

from adjourn.errors import UsageError
from adjourn.graph._node import Plan

from .chart import Chart, Edge, Node, chart_of
from .dot import dot, svg
from .mermaid import mermaid
from .text import text

__all__ = ["FORMATS", "Chart", "Edge", "Node", "chart_of", "check_format", "dot", "draw", "mermaid", "svg"]

_DRAWN: dict[str, Callable[[Plan], str]] = {
    "mermaid": lambda plan: mermaid(chart_of(plan)),
    "dot": lambda plan: dot(chart_of(plan), plan.name),
    "svg": lambda plan: svg(chart_of(plan), plan.name),
    "text": text,
}
FORMATS = tuple(_DRAWN)


def draw(plan: Plan, format: str) -> str:
    """The graph in one of `FORMATS`. Where commands lead is drawn for nodes that name their `destinations`.

    Raises:
        UsageError: there is no such format; or it is "svg", and Graphviz is not installed.
    """
    check_format(format)
    return _DRAWN[format](plan)


def check_format(format: str) -> None:
    """Refuse a format that there is not.

    Raises:
        UsageError: naming those that there are.
    """
    if format not in FORMATS:
        raise UsageError(f"draw(format={format!r}): use 'mermaid', 'dot', 'svg' or 'text'.")
