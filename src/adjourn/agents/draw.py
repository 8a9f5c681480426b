"""Drawing agents: a graph agent as its graph, others as a tree of agents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from adjourn._text import visible_line
from adjourn.graph.draw import Chart, Edge, Node, chart_of, check_format, dot, draw, mermaid, svg
from adjourn.graph.nodes._caller import tool_names

from ._config import AgentConfig, check_agent
from .chat import ChatModelAgent
from .deep import DeepAgent
from .graph_agent import GraphAgent
from .workflows import LoopAgent, SequentialAgent


def draw_agent(agent: AgentConfig, format: str) -> str:
    """Return the agent drawn in one of the formats for graphs.

    Raises:
        UsageError: the format is unknown.
    """
    check_format(format)
    if isinstance(agent, GraphAgent):
        return draw(agent.graph, format)
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


def _marks(agent: AgentConfig) -> list[str]:
    return [type(agent).__name__, *(tool_names(agent.tools) if isinstance(agent, ChatModelAgent) else ())]


def _below(agent: AgentConfig) -> Sequence[AgentConfig]:
    return (*agent.agents, *(agent.helpers if isinstance(agent, DeepAgent) else ()))


def _rows(agent: AgentConfig, indent: str) -> Iterator[str]:
    yield f"{indent}{visible_line(agent.name)} ({', '.join(map(visible_line, _marks(agent)))})"
    for child in _below(agent):
        yield from _rows(child, indent + "  ")


def _chart(root: AgentConfig) -> Chart:
    nodes: list[Node] = []
    edges: list[Edge] = []

    def add(agent: AgentConfig) -> str:
        number = f"a{len(nodes)}"
        nodes.append(_node(agent, number))
        for place, child in enumerate(_below(agent), start=1):
            label = str(place) if isinstance(agent, SequentialAgent | LoopAgent) else ""
            # A model chooses the agent it hands over to; workflow agents run all of theirs.
            certain = not isinstance(agent, ChatModelAgent)
            edges.append(Edge(source=number, target=add(child), label=label, certain=certain))
        return number

    add(root)
    return Chart(nodes=nodes, edges=edges)


def _node(agent: AgentConfig, number: str) -> Node:
    inner = chart_of(agent.graph, is_inner=True) if isinstance(agent, GraphAgent) else None
    return Node(id=number, title=agent.name, shape="agent", marks=tuple(_marks(agent)), inner=inner)
