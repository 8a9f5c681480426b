"""Drawing graphs: Mermaid for web pages, DOT and SVG through Graphviz, and plain lines for terminals."""

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
    """Return the graph drawn in one of `FORMATS`.

    The targets of commands are only drawn for nodes that name their `destinations`.

    Raises:
        UsageError: the format is unknown, or it is "svg" and Graphviz is not installed.
    """
    check_format(format)
    return _DRAWN[format](plan)


def check_format(format: str) -> None:
    """Raise if a format is unknown.

    Raises:
        UsageError: naming the known formats.
    """
    if format not in FORMATS:
        raise UsageError(f"draw(format={format!r}): use 'mermaid', 'dot', 'svg' or 'text'.")
