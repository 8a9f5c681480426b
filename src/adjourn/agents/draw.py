"""Drawing agents: a graph agent as its graph, others as a tree of agents."""

from __future__ import annotations

from collections.abc import Iterator

from adjourn._text import visible_line
from adjourn.graph.draw import Chart, Edge, Node, chart_of, check_format, dot, draw, mermaid, svg
from adjourn.graph.nodes.agent import ShowsGraph

from ._config import AgentConfig, Sketch, check_agent


def draw_agent(agent: AgentConfig, format: str) -> str:
    """Return the agent drawn in one of the formats for graphs.

    Raises:
        UsageError: the format is unknown.
    """
    check_format(format)
    if isinstance(agent, ShowsGraph):
        return draw(agent.drawn_as, format)
    check_agent(agent)
    if format == "text":
        return "\n".join(_rows(agent, ""))
    chart = _chart(agent)
    match format:
        case "dot":
            return dot(chart, agent.name)
        case "svg":
            return svg(chart, agent.name)
        case _:
            return mermaid(chart)


def _rows(agent: AgentConfig, indent: str) -> Iterator[str]:
    sketch = agent.sketch()
    yield f"{indent}{visible_line(agent.name)} ({', '.join(map(visible_line, sketch.marks))})"
    for child in sketch.below:
        yield from _rows(child, indent + "  ")


def _chart(root: AgentConfig) -> Chart:
    nodes: list[Node] = []
    edges: list[Edge] = []

    def add(agent: AgentConfig) -> str:
        number, sketch = f"a{len(nodes)}", agent.sketch()
        nodes.append(_node(agent, number, sketch))
        for place, child in enumerate(sketch.below, start=1):
            label = str(place) if sketch.is_row else ""
            edges.append(Edge(source=number, target=add(child), label=label, certain=not sketch.chooses))
        return number

    add(root)
    return Chart(nodes=nodes, edges=edges)


def _node(agent: AgentConfig, number: str, sketch: Sketch) -> Node:
    inner = chart_of(agent.drawn_as, is_inner=True) if isinstance(agent, ShowsGraph) else None
    return Node(id=number, title=agent.name, shape="agent", marks=tuple(sketch.marks), inner=inner)
