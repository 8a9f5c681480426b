"""Retrying nodes: how often, after what, how long after, and what is not done again."""

import asyncio
from typing import Annotated, Any, TypedDict

import pytest

from adjourn import Retry, Retrying, current, interrupt, once
from adjourn.errors import NodeNotFound, NodeTimeout, RetryExhausted
from adjourn.events import Custom, NodeStart
from adjourn.graph import START, Command, CompiledGraph, StateGraph, append
from adjourn.stores import Store
from adjourn.workflows import backoff
from tests.graph.shapes import Node, events_of, giving, names

AT_ONCE = 0.0


class Log(TypedDict):
    log: Annotated[list[Any], append]
    item: int


class Flaky:
    """A node that raises the errors given, one a time, and then works."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    async def __call__(self, state: Any) -> dict[str, Any]:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return {"log": [self.calls]}


def lone(node: Node, retry: Any, **options: Any) -> CompiledGraph:
    return StateGraph(Log, name="g").add_node("n", node, retry=retry).set_entry_point("n").compile(**options)


async def test_attempts_include_the_first() -> None:  # rule G12
    node = Flaky(ValueError(), ValueError())
    assert (await lone(node, Retry(attempts=3, backoff=AT_ONCE)).invoke({}))["log"] == [3]


async def test_when_all_attempts_have_failed_the_last_error_is_the_cause(store: Store) -> None:  # rule G12
    last = ValueError("second")
    node = Flaky(ValueError("first"), last, ValueError("never raised"))
    with pytest.raises(RetryExhausted, match="second") as caught:
        await lone(node, Retry(attempts=2, backoff=AT_ONCE), store=store).run({}, session_id="s")
    assert (node.calls, caught.value.attempts, caught.value.address) == (2, 2, "runnable:g;node:n")
    assert caught.value.__cause__ is last
    assert (await lone(Flaky(), None, store=store).recover("s")).state["log"] == [1]


async def test_one_attempt_is_no_retry() -> None:  # rule G12
    node = Flaky(ValueError("x"))
    with pytest.raises(RetryExhausted):
        await lone(node, Retry(attempts=1)).invoke({})
    assert node.calls == 1


def says_x(error: Exception) -> bool:
    return "x" in str(error)


@pytest.mark.parametrize(
    ("on", "calls"),
    [(ValueError, 2), ((KeyError, ValueError), 2), (says_x, 2), (KeyError, 1)],
)
async def test_a_policy_is_for_the_errors_it_names(on: Any, calls: int) -> None:  # rule G12
    node = Flaky(ValueError("x"))
    graph = lone(node, Retry(on=on, backoff=AT_ONCE))
    if calls == 1:
        with pytest.raises(ValueError, match="x"):
            await graph.invoke({})
    else:
        await graph.invoke({})
    assert node.calls == calls


async def test_the_first_policy_that_matches_decides() -> None:  # rule G12
    policies = [Retry(on=ValueError, attempts=2, backoff=AT_ONCE), Retry(attempts=5, backoff=AT_ONCE)]
    node = Flaky(*[ValueError()] * 5)
    with pytest.raises(RetryExhausted):
        await lone(node, policies).invoke({})
    assert node.calls == 2
    other = Flaky(*[KeyError()] * 4)
    assert (await lone(other, policies).invoke({}))["log"] == [5]


async def test_the_backoff_is_asked_after_each_failed_attempt() -> None:  # rule G12
    asked: list[int] = []

    def wait(attempt: int) -> float:
        asked.append(attempt)
        return 0

    await lone(Flaky(*[ValueError()] * 3), Retry(attempts=5, backoff=wait)).invoke({})
    assert asked == [1, 2, 3]


def test_backoff_grows_up_to_its_cap() -> None:  # rule G12
    wait = backoff(first=1, factor=2, cap=5, jitter=0)
    assert [wait(attempt) for attempt in (1, 2, 3, 4, 5)] == [1, 2, 4, 5, 5]
    assert backoff(cap=5, jitter=0)(100_000) == 5


def test_jitter_varies_the_backoff_and_respects_the_cap() -> None:  # rule G12
    wait = backoff(first=1, factor=1, cap=10, jitter=0.5)
    waits = {wait(1) for _ in range(200)}
    assert len(waits) > 100
    assert 0.5 <= min(waits) < 0.9
    assert 1.1 < max(waits) <= 1.5
    capped = backoff(first=10, cap=10, jitter=0.5)
    assert max(capped(3) for _ in range(200)) <= 10


async def test_each_retry_is_told() -> None:  # rule G12
    events = await events_of(lone(Flaky(ValueError("one"), KeyError("two")), Retry(backoff=AT_ONCE)).run({}))
    retries = [event for event in events if isinstance(event, Retrying)]
    assert [(event.attempt, event.max_attempts) for event in retries] == [(1, 3), (2, 3)]
    assert "ValueError" in retries[0].error
    assert "one" in retries[0].error
    assert {event.address for event in retries} == {"runnable:g;node:n"}
    assert names(events, NodeStart) == ["n"]


async def test_a_question_is_not_retried(store: Store) -> None:  # rule G12
    calls: list[int] = []

    async def ask(state: Any) -> dict[str, Any]:
        calls.append(1)
        return {"log": [interrupt("?")]}

    graph = lone(ask, Retry(on=lambda _: True, backoff=AT_ONCE), store=store)
    paused = await graph.run({}, session_id="s")
    assert len(calls) == 1
    assert (await graph.resume("s", {paused.interrupts[0].id: "ok"})).state["log"] == ["ok"]


async def test_errors_of_the_graph_itself_are_not_retried() -> None:  # rule G12
    calls: list[int] = []

    def lost(state: Any) -> Command:
        calls.append(1)
        return Command(goto="nowhere")

    with pytest.raises(NodeNotFound):
        await lone(lost, Retry(backoff=AT_ONCE)).invoke({})
    assert calls == [1]


async def test_a_timeout_is_retried() -> None:  # rules G12, G13
    calls: list[int] = []

    async def slow_at_first(state: Any) -> dict[str, Any]:
        calls.append(1)
        if len(calls) == 1:
            await asyncio.Event().wait()
        return {"log": ["done"]}

    graph = StateGraph(Log).add_node("n", slow_at_first, timeout=0.1, retry=Retry(on=NodeTimeout, backoff=AT_ONCE))
    assert (await graph.set_entry_point("n").compile().invoke({}))["log"] == ["done"]
    assert len(calls) == 2


async def test_cancelling_is_not_retried_and_ends_the_waiting(store: Store) -> None:  # rule G12
    node = Flaky(ValueError())
    waiting = asyncio.Event()

    def wait(attempt: int) -> float:
        waiting.set()
        return 3600

    graph = lone(node, Retry(backoff=wait), store=store)
    run = graph.run({}, session_id="s")
    ending = asyncio.ensure_future(run)
    await waiting.wait()
    await run.cancel()
    assert (await ending).status == "cancelled"
    assert node.calls == 1
    assert (await lone(node, None, store=store).recover("s")).state["log"] == [2]


async def test_a_retried_task_uses_its_answers_and_what_it_did_once(store: Store) -> None:  # rule G12
    did: list[str] = []

    @once
    async def charge() -> str:
        did.append("charge")
        return "receipt"

    async def pay(state: Any) -> dict[str, Any]:
        receipt = await charge()
        answer = interrupt("ok?")
        did.append("after")
        if did.count("after") < 3:
            raise ValueError("flaky")
        return {"log": [receipt, answer, current().attempt]}

    graph = lone(pay, Retry(attempts=3, backoff=AT_ONCE), store=store)
    paused = await graph.run({}, session_id="s")
    result = await graph.resume("s", {paused.interrupts[0].id: "yes"})
    assert result.state["log"] == ["receipt", "yes", 3]
    assert did == ["charge", "after", "after", "after"]
    assert not result.interrupts


async def test_what_a_failed_attempt_wrote_is_dropped(store: Store) -> None:  # rules G12, R15
    seen: list[int] = []

    def node(state: Any) -> dict[str, Any]:
        values = current().values
        values["count"] = values.get("count", 0) + 1
        state["log"].append("mine")
        current().emit(f"try {current().attempt}")
        seen.append(len(state["log"]))
        if current().attempt < 3:
            raise ValueError
        return {"log": [values["count"]]}

    events = await events_of(lone(node, Retry(backoff=AT_ONCE), store=store).run({}, session_id="s"))
    assert seen == [1, 1, 1]
    assert (await lone(node, None, store=store).state("s"))["log"] == [1]
    assert [event.data for event in events if isinstance(event, Custom)] == ["try 1"]


async def test_only_the_task_that_failed_is_retried() -> None:  # rules G11, G12
    calls: list[int] = []

    def worker(state: Any) -> dict[str, Any]:
        calls.append(state["item"])
        if state["item"] == 1 and calls.count(1) < 3:
            raise ValueError
        return {"log": [state["item"]]}

    sends = [Command({"item": item}, "w") for item in range(3)]
    graph = StateGraph(Log).add_node("s", giving(sends)).add_node("w", worker, retry=Retry(backoff=AT_ONCE))
    assert (await graph.set_entry_point("s").compile().invoke({}))["log"] == [0, 1, 2]
    assert sorted(calls) == [0, 1, 1, 1, 2]


async def test_a_subgraph_that_is_retried_goes_on_where_it_failed() -> None:  # rules G12, G15
    ran: list[str] = []

    def first(state: Any) -> dict[str, Any]:
        ran.append("first")
        return {"log": ["first"]}

    def second(state: Any) -> dict[str, Any]:
        ran.append("second")
        if ran.count("second") < 3:
            raise ValueError
        return {"log": ["second"]}

    inner = StateGraph(Log, name="inner").add_sequence(first, second).set_entry_point("first").compile()
    outer = StateGraph(Log).add_node("sub", inner, retry=Retry(backoff=AT_ONCE)).add_edge(START, "sub").compile()
    assert (await outer.invoke({}))["log"] == ["first", "second"]
    assert ran == ["first", "second", "second", "second"]
