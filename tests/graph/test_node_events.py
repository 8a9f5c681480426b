"""What the events of nodes say: the step, what was written, and why a node failed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest

from adjourn import NodeEnd, NodeStart, Retry, Runner
from adjourn.errors import NodeTimeout, WriteConflict
from adjourn.events import Failed, from_json, to_json
from adjourn.graph import START, Command, StateGraph, append
from adjourn.stores import Store
from tests.agents.crew import events_of, failing_events


class Log(TypedDict):
    done: Annotated[list[str], append]
    total: int


async def first(state: Log) -> dict[str, Any]:
    return {"total": 1, "done": ["first"]}


def second(state: Log) -> Any:
    return Command(update={"done": ["second"]})


async def nothing(state: Log) -> None: ...


def row(*nodes: Callable[..., Any], store: Store | None = None, **options: Any) -> Any:
    return StateGraph(Log, name="g").add_sequence(START, *nodes).compile(store=store, **options)


def ends(events: list[Any]) -> list[NodeEnd]:
    return [event for event in events if isinstance(event, NodeEnd)]


async def test_nodes_say_their_step_and_what_they_write(store: Store) -> None:
    graph = row(first, second, nothing, store=store)
    events = await events_of(graph.run({}, session_id="s"))
    assert [(event.node, event.step) for event in events if isinstance(event, NodeStart)] == [
        ("first", 0),
        ("second", 1),
        ("nothing", 2),
    ]
    found = ends(events)
    assert [(event.node, event.step, event.writes, event.error) for event in found] == [
        ("first", 0, ("total", "done"), None),
        ("second", 1, ("done",), None),
        ("nothing", 2, (), None),
    ]
    assert [from_json(to_json(event)) for event in found] == found
    assert ends(await events_of(graph.attach("s"))) == found


async def test_a_failed_node_ends_with_its_error(store: Store) -> None:  # rule G11
    is_broken = True

    async def breaks(state: Log) -> dict[str, Any]:
        if is_broken:
            raise ValueError("no paper")
        return {"total": 2}

    graph = row(first, breaks, store=store)
    events, error = await failing_events(graph.run({}, session_id="s"))
    assert isinstance(error, ValueError)
    end = ends(events)[-1]
    assert (end.node, end.address, end.step, end.error) == (
        "breaks",
        "runnable:g;node:breaks",
        1,
        "ValueError: no paper",
    )
    assert isinstance(events[-1], Failed)
    assert ends(events)[-1].seq is not None
    is_broken = False
    mended = await events_of(Runner(graph, store=store).recover("s"))
    assert [(event.node, event.error, event.writes) for event in ends(mended)] == [("breaks", None, ("total",))]


async def test_the_events_name_every_failed_node_of_a_superstep(store: Store) -> None:  # rule G11
    def failing(name: str) -> Callable[[Any], Any]:
        async def node(state: Any) -> None:
            raise ValueError(name)

        return node

    graph = StateGraph(Log, name="g").add_node("a", failing("a")).add_node("b", failing("b")).add_node("c", nothing)
    for name in "abc":
        graph.add_edge(START, name)
    events, _ = await failing_events(graph.compile(store=store).run({}, session_id="s"))
    assert {(event.node, event.error) for event in ends(events)} == {
        ("a", "ValueError: a"),
        ("b", "ValueError: b"),
        ("c", None),
    }


async def test_a_retried_node_ends_once() -> None:  # rule G12
    async def breaks(state: Log) -> None:
        raise ValueError("again")

    graph = StateGraph(Log, name="g").add_node(breaks, retry=Retry(attempts=3, backoff=0)).add_edge(START, "breaks")
    events, _ = await failing_events(graph.compile().run({}))
    assert [event.error for event in ends(events)] == [
        "RetryExhausted: 'runnable:g;node:breaks' failed 3 times; the last error was ValueError: again"
    ]


async def test_a_node_that_the_engine_fails_is_named() -> None:  # rules S1, G13
    async def writes(state: Log) -> dict[str, Any]:
        return {"total": 1}

    async def waits(state: Log) -> None:
        await asyncio.Event().wait()

    def both(*nodes: Callable[..., Any], **options: Any) -> Any:
        graph = StateGraph(Log, name="g")
        for number, node in enumerate(nodes):
            graph.add_node(f"n{number}", node).add_edge(START, f"n{number}")
        return graph.compile(**options)

    events, error = await failing_events(both(writes, writes).run({}))
    assert isinstance(error, WriteConflict)
    assert [event.node for event in ends(events) if event.error] == ["n1"]
    events, error = await failing_events(both(nothing, waits, step_timeout=0.01).run({}))
    assert isinstance(error, NodeTimeout)
    assert [(event.node, event.error) for event in ends(events)] == [("n0", None), ("n1", f"NodeTimeout: {error}")]


@pytest.mark.parametrize("durability", ["step", "async", "pause"])
async def test_a_failure_is_in_the_log_of_its_session(store: Store, durability: Any) -> None:  # rule A11
    def breaks(state: Log) -> None:
        raise ValueError("no paper")

    graph = row(first, breaks, store=store, durability=durability)
    with pytest.raises(ValueError, match="no paper"):
        await graph.run({}, session_id="s")
    events, _ = await failing_events(graph.attach("s"))
    assert [(event.node, event.error) for event in ends(events)] == [
        ("first", None),
        ("breaks", "ValueError: no paper"),
    ]
