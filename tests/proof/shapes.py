"""Shapes: random graphs that mean the same to Adjourn and to LangGraph, as plain data.

A node that runs because of an edge knows how many entries the log had before its superstep; a task of a fan-out knows
its item. So the final log shows which nodes ran together in which superstep, whatever order they ran in.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, Literal

from msgspec import Struct

NAMES = "abcdefg"
END = "__end__"
AGAIN = 3
"""Runs of a node after which its commands and conditions lead to the end, so that every loop is bounded."""

Options = tuple[tuple[str, ...], ...]


class Node(Struct, frozen=True, kw_only=True):
    """A node that takes its edges and conditions, goes where a command says, or fans out."""

    name: str
    way: Literal["plain", "goto", "fan"] = "plain"
    options: Options = ()
    conditions: tuple[Options, ...] = ()


class Shape(Struct, frozen=True, kw_only=True):
    """A whole graph; its nodes are in alphabetical order, which decides the order of updates on both sides."""

    nodes: tuple[Node, ...]
    entries: tuple[str, ...]
    start: Options = ()
    edges: tuple[tuple[str, str], ...] = ()
    joins: tuple[tuple[tuple[str, ...], str], ...] = ()

    @property
    def fans_out(self) -> bool:
        return any(node.way == "fan" for node in self.nodes)


def shape(seed: int) -> Shape:
    """Return the graph of a seed; edges, joins and fan-outs lead forward; commands and conditions lead anywhere."""
    dice = Random(seed)
    names = NAMES[: dice.randint(2, len(NAMES))]
    nodes = tuple(_node(dice, names, number) for number in range(len(names)))
    plain = [node.name for node in nodes if node.way == "plain"]
    forward = [(source, target) for source in plain for target in (*names[names.index(source) + 1 :], END)]
    return Shape(
        nodes=_unasked(nodes),
        entries=tuple(sorted(dice.sample(names, dice.randint(1, min(3, len(names)))))),
        start=_options(dice, names) if dice.random() < 0.2 else (),
        edges=tuple(dice.sample(forward, min(len(forward), dice.randint(0, len(names) + 1)))),
        joins=tuple(_joins(dice, names, plain)),
    )


def _node(dice: Random, names: str, number: int) -> Node:
    name, later = names[number], names[number + 1 :]
    match dice.randint(0, 9):
        case 0 | 1:
            return Node(name=name, way="goto", options=_options(dice, names))
        case 2 if later:
            targets = tuple(dice.choice(later) for _ in range(dice.randint(0, 3)))
            return Node(name=name, way="fan", options=(targets,))
        case 3 | 4 | 5:
            conditions = tuple(_options(dice, names) for _ in range(dice.randint(1, 2)))
            return Node(name=name, conditions=conditions)
        case _:
            return Node(name=name)


def _options(dice: Random, names: str) -> Options:
    able = [*names, END]
    return tuple(tuple(dice.sample(able, dice.randint(1, min(3, len(able))))) for _ in range(dice.randint(1, 3)))


def _joins(dice: Random, names: str, plain: list[str]) -> list[tuple[tuple[str, ...], str]]:
    joins: list[tuple[tuple[str, ...], str]] = []
    for _ in range(dice.randint(0, 2)):
        sources = dice.sample(plain, min(len(plain), dice.randint(2, 3)))
        later = names[max((names.index(source) for source in sources), default=0) + 1 :]
        if len(sources) > 1 and later and (join := (tuple(sorted(sources)), dice.choice(later))) not in joins:
            joins.append(join)
    return joins


def _unasked(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Take conditions and commands from nodes that a fan-out leads to: there the two sides differ on purpose."""
    sent = {target for node in nodes if node.way == "fan" for target in node.options[0]}
    return tuple(Node(name=node.name) if node.name in sent and node.way != "fan" else node for node in nodes)


# What the nodes do, on both sides alike


def add(old: int, new: int) -> int:
    return old + new


def weave(old: int, new: int) -> int:
    """A reducer whose result depends on the order."""
    return (old * 31 + new) % 9973


def unite(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    return {**old, **new}


def update(node: Node, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a node writes, which says what it was given."""
    item = state.get("item")
    if item is not None:
        return {"log": [f"{node.name} {item}"], "total": 1}
    entry = f"{node.name} {len(state['log'])}"
    number = NAMES.index(node.name) + len(state["log"])
    return {"log": [entry], "total": 1, "mix": number, "runs": {node.name: state["runs"].get(node.name, 0) + 1}}


def picked(options: Options, runs: int) -> list[str]:
    """Return where a command or condition leads in this run of its node."""
    return [END] if runs > AGAIN else list(options[runs % len(options)])


def items(node: Node, state: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the targets of a fan-out with their items."""
    before = state.get("item") or len(state["log"])
    return [(target, f"{node.name}({before}){number}") for number, target in enumerate(node.options[0])]
