"""Random graphs on Adjourn and on LangGraph: what is meant to agree does.

Compared are the final state and which nodes ran together in which superstep; and, where nothing fans out, the order in
which updates were applied. The shapes leave out where the two differ on purpose:

- A command's `goto` takes the place of a node's edges here; there the edges are taken, too. So a node with commands has
  no edges, conditions or joins.
- A condition sees the state after all updates of the superstep here; there it sees those of its own task. So it decides
  by what its node alone writes.
- After a fan-out a condition is asked once here, and once for each task there. So a fan-out leads to nodes without any.
- A task of a fan-out sees its overlay on the state here; there it sees only what it was sent. So it reads its item.
- Updates are applied in the order in which nodes were added here; there by the names of nodes, fan-outs last. So names
  are in order, and with a fan-out the order of the log does not count.
- What a deferred node waits for, retries, timeouts and interrupts are left out: they are not the same idea.
"""

import warnings
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest

from adjourn.graph import END, START, Command, StateGraph, append, merge
from tests.effort import amount
from tests.graph.shapes import giving
from tests.proof.shapes import Node, Options, Shape, add, items, picked, shape, update, weave

PART = 50
PARTS = amount(default=2, proof=12, long=60)


class State(TypedDict, total=False):
    log: Annotated[list[str], append]
    total: Annotated[int, add]
    mix: Annotated[int, weave]
    runs: Annotated[dict[str, int], merge]
    item: str


async def invoke(shape: Shape) -> dict[str, Any]:
    """Run the graph of a shape to its end, and return its state."""
    graph = StateGraph(State, name="g")
    for node in shape.nodes:
        graph.add_node(node.name, _function(node), thread=False)
    for name in shape.entries:
        graph.add_edge(START, name)
    if shape.start:
        graph.add_conditional_edges(START, giving(picked(shape.start, 0)))
    for source, target in shape.edges:
        graph.add_edge(source, target)
    for sources, target in shape.joins:
        graph.add_edge(list(sources), target)
    for node in shape.nodes:
        for number, options in enumerate(node.conditions):
            graph.add_conditional_edges(node.name, _condition(node, number, options), name=str(number))
    return dict(await graph.compile(max_steps=200).invoke({}))


def _function(node: Node) -> Callable[[Any], Any]:
    def run(state: Any) -> Any:
        made = update(node, state)
        if node.way == "goto":
            return Command(made, goto=picked(node.options, made["runs"][node.name]))
        if node.way == "fan":
            return Command(made, goto=[Command({"item": item}, target) for target, item in items(node, state)])
        return made

    return run


def _condition(node: Node, number: int, options: Options) -> Callable[[Any], list[str]]:
    return lambda state: picked(options, state["runs"].get(node.name, 0) + number)


@pytest.mark.parametrize("part", range(PARTS))
async def test_graphs_do_what_they_do_in_langgraph(part: int):  # rules G3-G5, G7-G9
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # It is a guest here: what it is warned about is not our affair.
        pytest.importorskip("langgraph", reason="LangGraph is missing: pip install 'adjourn[dev]'")
        from tests.proof import langgraph_side  # noqa: PLC0415  # a development tool that may be missing

        for seed in range(part * PART, (part + 1) * PART):
            drawn = shape(seed)
            ours, theirs = await invoke(drawn), langgraph_side.invoke(drawn)
            assert compared(drawn, ours) == compared(drawn, theirs), f"seed {seed}: {drawn}"


def compared(shape: Shape, state: dict[str, Any]) -> dict[str, Any]:
    """Return what must be the same of a final state."""
    if not shape.fans_out:
        return state
    return {"log": sorted(state["log"]), "total": state["total"], "runs": state["runs"]}


def test_the_shapes_have_what_they_are_to_compare():
    shapes = [shape(seed) for seed in range(PART * 2)]
    assert any(shape.joins for shape in shapes)
    assert any(shape.fans_out for shape in shapes)
    assert any(shape.start for shape in shapes)
    assert any(END in option for shape in shapes for node in shape.nodes for option in node.options)
