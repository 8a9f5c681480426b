"""A shape as a graph of LangGraph. Only the differential test imports it, and only where LangGraph is installed."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send

from .shapes import Node, Options, Shape, add, items, picked, unite, update, weave


class State(TypedDict, total=False):
    log: Annotated[list[str], operator.add]
    total: Annotated[int, add]
    mix: Annotated[int, weave]
    runs: Annotated[dict[str, int], unite]
    item: str


GIVEN: dict[str, Any] = {"log": [], "total": 0, "mix": 0, "runs": {}}


def invoke(shape: Shape) -> dict[str, Any]:
    """Run the graph of a shape to its end, and return its state."""
    graph = StateGraph(State)
    for node in shape.nodes:
        graph.add_node(node.name, _function(node), destinations=_destinations(shape, node))
    for name in shape.entries:
        graph.add_edge(START, name)
    if shape.start:
        graph.add_conditional_edges(START, lambda state: picked(shape.start, 0))
    for source, target in shape.edges:
        graph.add_edge(source, END if target == "__end__" else target)
    for sources, target in shape.joins:
        graph.add_edge(list(sources), target)
    for node in shape.nodes:
        for number, options in enumerate(node.conditions):
            graph.add_conditional_edges(node.name, _condition(node, number, options))
    return graph.compile().invoke(GIVEN, {"recursion_limit": 200})


def _destinations(shape: Shape, node: Node) -> Any:
    if node.way == "plain":
        return None
    return tuple({END if name == "__end__" else name for option in node.options for name in option})


def _function(node: Node) -> Any:
    def run(state: Any) -> Any:
        made = update(node, state)
        if node.way == "goto":
            return Command(update=made, goto=picked(node.options, made["runs"][node.name]))
        if node.way == "fan":
            return Command(update=made, goto=[Send(target, {"item": item}) for target, item in items(node, state)])
        return made

    return run


def _condition(node: Node, number: int, options: Options) -> Any:
    def decide(state: Any) -> list[str]:
        return picked(options, state["runs"].get(node.name, 0) + number)

    decide.__name__ = f"{node.name}{number}"
    return decide
