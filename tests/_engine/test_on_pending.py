"""New input for a session whose last turn is not over: refused, unless the caller says what is to become of it."""

import asyncio
from typing import Any, Literal

import pytest

from adjourn import (
    PendingInterrupts,
    Runner,
    SessionBusy,
    StaleCheckpoint,
    UnfinishedRun,
    UnknownInterrupt,
    UsageError,
    current,
    interrupt,
    once,
    workflow,
)
from adjourn.graph import END, START, Command, CompiledGraph, StateGraph
from adjourn.stores import SessionRef, Store
from adjourn.stores.kit import Audit
from tests._engine.asking import Log, chain, ids, lone, until

Choice = Literal["error", "abandon", "finish"]
CHOICES: list[Choice] = ["error", "abandon", "finish"]

mended = asyncio.Event()


@pytest.fixture(autouse=True)
def _broken() -> None:
    mended.clear()


def say(state: Any) -> Any:
    return {"log": ["said"]}


def ask(state: Any) -> Any:
    return {"log": [interrupt("q", key="q")]}


def fail(state: Any) -> Any:
    if not mended.is_set():
        raise ValueError("broken")
    return {"log": ["mended"]}


def asks(store: Store) -> CompiledGraph:
    return chain(say, ask, store=store)


def fails(store: Store) -> CompiledGraph:
    return chain(say, fail, store=store)


@pytest.mark.parametrize("choice", ["error", "finish"])
async def test_what_is_waited_for_is_told_with_its_key(choice: Choice, store: Store):  # rule R12
    await asks(store).run({}, session_id="s")
    with pytest.raises(PendingInterrupts, match=r"answers to: runnable:g;node:ask \(key 'q'\)\. ") as raised:
        await asks(store).run({}, session_id="s", on_pending=choice)
    assert raised.value.interrupts == ("runnable:g;node:ask",)


async def test_open_questions_refuse_new_input(store: Store):  # rule R12, failure A10
    result = await asks(store).run({}, session_id="s")
    for graph in (asks(store), asks(store)):
        for choice in ("error", "finish"):
            with pytest.raises(PendingInterrupts) as raised:
                await graph.run({}, session_id="s", on_pending=choice)
            assert raised.value.interrupts == tuple(ids(result))
    assert (await asks(store).recover("s")).interrupts == result.interrupts
    assert (await asks(store).resume("s", {"q": 1})).state["log"] == ["said", 1]


async def test_open_questions_refuse_new_input_on_the_same_runner(store: Store):  # rule R12
    graph = asks(store)
    await graph.run({}, session_id="s")
    with pytest.raises(PendingInterrupts):
        await graph.run({}, session_id="s")
    assert (await graph.resume("s", {"q": 1})).state["log"] == ["said", 1]
    assert (await graph.run({}, session_id="s")).status == "interrupted"


async def test_abandoned_questions_are_closed(store: Store):  # rule R12
    first = await asks(store).run({}, session_id="s")
    second = await asks(store).run({}, session_id="s", on_pending="abandon")
    assert ids(second) == ["runnable:g;node:ask#2"]
    assert second.state["log"] == ["said", "said"]
    assert [asked.id for asked in await asks(store).pending("s")] == ids(second)
    with pytest.raises(StaleCheckpoint):
        await asks(store).resume("s", {ids(first)[0]: 1})
    assert [each.how for each in await store.read(Audit(SessionRef("s")))] == ["abandoned", None]
    assert (await asks(store).resume("s", {"q": 1})).state["log"] == ["said", "said", 1]


async def test_a_failed_turn_refuses_new_input(store: Store):  # rule R12
    with pytest.raises(ValueError, match="broken"):
        await fails(store).run({}, session_id="s")
    with pytest.raises(UnfinishedRun, match="failed") as raised:
        await fails(store).run({}, session_id="s")
    assert raised.value.status == "failed"
    mended.set()
    assert (await fails(store).recover("s")).state["log"] == ["said", "mended"]
    assert (await fails(store).run({}, session_id="s")).status == "done"


async def test_a_failed_turn_can_be_abandoned(store: Store):  # rule R12
    with pytest.raises(ValueError, match="broken"):
        await fails(store).run({}, session_id="s")
    mended.set()
    result = await fails(store).run({}, session_id="s", on_pending="abandon")
    assert result.state["log"] == ["said", "said", "mended"]


async def test_a_failed_turn_can_be_finished_first(store: Store):  # rule R12
    with pytest.raises(ValueError, match="broken"):
        await fails(store).run({}, session_id="s")
    with pytest.raises(ValueError, match="broken"):
        await fails(store).run({}, session_id="s", on_pending="finish")
    mended.set()
    result = await fails(store).run({}, session_id="s", on_pending="finish")
    assert result.state["log"] == ["said", "mended", "said", "mended"]


async def cancelled_session(store: Store) -> CompiledGraph:
    started, go = asyncio.Event(), asyncio.Event()

    async def wait(state: Any) -> Any:
        started.set()
        await go.wait()
        return {"log": ["waited"]}

    graph = chain(say, wait, store=store)
    run = graph.run({}, session_id="s")
    task = asyncio.ensure_future(run.__aiter__().__anext__())
    await started.wait()
    await task
    await run.cancel()
    go.set()
    return chain(say, wait, store=store)


async def test_a_cancelled_turn_refuses_new_input(store: Store):  # rule R12
    graph = await cancelled_session(store)
    with pytest.raises(UnfinishedRun, match="cancelled"):
        await graph.run({}, session_id="s")
    result = await graph.run({}, session_id="s", on_pending="finish")
    assert result.state["log"] == ["said", "waited", "said", "waited"]


async def test_a_cancelled_turn_can_be_abandoned(store: Store):  # rule R12
    graph = await cancelled_session(store)
    result = await graph.run({}, session_id="s", on_pending="abandon")
    assert result.state["log"] == ["said", "said", "waited"]


@pytest.mark.parametrize("choice", CHOICES)
async def test_a_session_that_runs_is_busy(choice: Choice, store: Store):  # rule R12, failure A11
    started, go = asyncio.Event(), asyncio.Event()

    async def wait(state: Any) -> Any:
        started.set()
        await go.wait()
        return {"log": ["waited"]}

    async def first() -> Any:
        return await lone(wait, store=store).run({}, session_id="s")

    task = asyncio.create_task(first())
    await started.wait()
    with pytest.raises(SessionBusy):
        await lone(wait, store=store).run({}, session_id="s", on_pending=choice)
    with pytest.raises(SessionBusy):
        await lone(wait, store=store).recover("s")
    go.set()
    assert (await task).state["log"] == ["waited"]


async def test_of_two_turns_at_once_one_is_refused(store: Store):  # failure A11
    async def turn(n: int) -> Any:
        return await lone(say, store=store).run({}, session_id="s")

    outcomes = await asyncio.gather(*(turn(n) for n in range(6)), return_exceptions=True)
    done = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
    assert all(isinstance(each, SessionBusy) for each in outcomes if each not in done)
    assert len(done) >= 1
    assert (await lone(say, store=store).recover("s")).state["log"] == ["said"] * len(done)


@pytest.mark.parametrize("choice", CHOICES)
async def test_a_finished_or_new_session_takes_input_whatever_was_chosen(choice: Choice, store: Store):  # rule R12
    for turn in (1, 2):
        result = await lone(say, store=store).run({}, session_id="s", on_pending=choice)
        assert result.state["log"] == ["said"] * turn


async def test_an_unknown_choice_is_refused(store: Store):  # rule R12
    with pytest.raises(UsageError, match="on_pending"):
        lone(say, store=store).run({}, on_pending="whatever")  # pyright: ignore[reportArgumentType]


async def test_abandoning_drops_what_was_kept_and_written(store: Store):  # rules R12, R8, R15
    charged: list[int] = []

    @once
    async def charge(cents: int) -> int:
        charged.append(cents)
        return len(charged)

    @workflow
    async def flow(turn: int) -> Any:
        current().values["left"] = "over"
        receipt = await charge(100)
        return [turn, receipt, interrupt("q", key="q"), "kept" in current().values]

    await Runner(flow, store=store).run(1, session_id="s", values={"kept": 1})
    result = await Runner(flow, store=store).run(2, session_id="s", on_pending="abandon")
    assert ids(result) == ["runnable:flow#2"]
    assert (await Runner(flow, store=store).resume("s", {"q": "yes"})).value == [2, 2, "yes", True]
    assert charged == [100, 100]


async def test_abandoning_reaches_nested_frames(store: Store):  # rule R12
    def build() -> CompiledGraph:
        inner = lone(ask, name="inner")
        outer = StateGraph(Log, name="outer").add_subgraph("sub", inner).add_node("ask", ask)
        return outer.add_edge(START, "sub").add_edge(START, "ask").compile(store=store)

    first = await build().run({}, session_id="s")
    assert len(first.interrupts) == 2
    second = await build().run({}, session_id="s", on_pending="abandon")
    assert ids(second) == ["runnable:outer;node:sub;node:ask#2", "runnable:outer;node:ask#2"]
    result = await build().resume("s", dict.fromkeys(ids(second), 1))
    assert result.state["log"] == [1, 1]


async def test_abandoning_a_paused_condition(store: Store):  # rule R12
    def condition(state: Any) -> str:
        return interrupt("where?", key="where")

    def build() -> CompiledGraph:
        graph = StateGraph(Log, name="g").add_node("say", say).add_node("end", say).add_edge(START, "say")
        return graph.add_conditional_edges("say", condition).compile(store=store)

    await build().run({}, session_id="s")
    result = await build().run({}, session_id="s", on_pending="abandon")
    assert ids(result) == ["runnable:g;node:say;branch:condition#2"]
    assert (await build().resume("s", {"where": "end"})).state["log"] == ["said", "said", "said"]


async def test_an_answer_to_an_abandoned_key_goes_to_the_new_question(store: Store):  # rules R1, R12
    await asks(store).run({}, session_id="s")
    await asks(store).run({}, session_id="s", on_pending="abandon")
    assert (await asks(store).resume("s", {"q": "new"})).state["log"] == ["said", "said", "new"]


async def test_a_turn_that_does_not_ask_leaves_nothing_to_answer(store: Store):  # rule R12
    def sometimes(state: Any) -> Any:
        return Command(goto=END) if state["log"] else Command(update={"log": [interrupt("q", key="q")]}, goto=END)

    await lone(sometimes, store=store).run({}, session_id="s")
    result = await lone(sometimes, store=store).run({"log": ["x"]}, session_id="s", on_pending="abandon")
    assert (result.status, result.interrupts) == ("done", ())
    assert await lone(sometimes, store=store).pending("s") == []
    with pytest.raises(StaleCheckpoint):
        await lone(sometimes, store=store).resume("s", {"q": 1})
    with pytest.raises(UnknownInterrupt):
        await lone(sometimes, store=store).resume("s", {"other": 1})


async def test_a_live_session_is_seen_from_another_runner(store: Store):  # rule R12
    started, go = asyncio.Event(), asyncio.Event()

    async def wait(state: Any) -> Any:
        started.set()
        await go.wait()

    async def first() -> Any:
        return await lone(wait, store=store).run({}, session_id="s")

    task = asyncio.create_task(first())
    other = lone(wait, store=store)
    await until(lambda: _is_running(other))
    go.set()
    await task
    assert (await other.status("s")).status == "done"


async def _is_running(graph: CompiledGraph) -> bool:
    return any(each.status == "running" for each in await graph.sessions())
