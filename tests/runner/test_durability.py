"""Durability: what is stored when, what is told after it, and how much it costs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from adjourn import Message, Runner, current, interrupt, once, workflow
from adjourn.errors import NotStorable
from adjourn.events import Custom, Done, Event, Interrupted, NodeEnd
from adjourn.graph import START, MessagesState, StateGraph
from adjourn.stores import MemoryStore, SessionRef, SQLiteStore, Store
from adjourn.stores.kit import GetHead, Load

from .programs import (
    Gate,
    ask,
    asking,
    begin,
    events_of,
    events_until_failure,
    held,
    line,
    side_by_side,
    step,
    steps,
    turns,
    until,
)
from .stores import WatchedStore

DURABILITIES: list[Any] = ["step", "pause", "async"]


# How many writes


async def test_a_pause_and_its_resume_are_four_writes(store: Store):
    watched = WatchedStore(store)
    graph = line(("ask", ask), store=watched)
    await graph.run({}, session_id="s")
    await graph.resume("s", {"go": 1})
    assert watched.calls_made == ["claim", "commit and release", "claim", "commit and release"]


async def test_each_step_is_one_write(store: Store):
    watched = WatchedStore(store)
    await steps("a", "b", "c", store=watched).run({}, session_id="s")
    assert watched.calls_made == ["claim", "commit", "commit", "commit and release"]


async def test_with_durability_pause_only_pauses_and_ends_are_written(store: Store):
    watched = WatchedStore(store)
    graph = line(("a", step("a")), ("b", step("b")), ("ask", ask), ("c", step("c")), store=watched, durability="pause")
    await graph.run({}, session_id="s")
    assert watched.calls_made == ["claim", "commit and release"]
    await graph.resume("s", {"go": 1})
    assert watched.calls_made == ["claim", "commit and release"] * 2
    assert [point.source for point in await graph.history("s")] == ["end", "resume", "interrupt", "input"]


async def test_tasks_that_finish_together_are_few_writes(store: Store):
    watched = WatchedStore(store)
    names = [f"n{number}" for number in range(200)]
    await side_by_side(*[(name, step(name)) for name in names], store=watched).run({}, session_id="s")
    assert len(watched.calls_made) <= 20


# What is stored when the next thing happens


async def test_with_durability_step_what_a_node_made_is_stored_before_the_next_one_starts(store: Store):
    seen: list[list[str]] = []
    other = steps("a", "b", "c", store=store)

    async def look(state: Mapping[str, Any]) -> dict[str, Any]:
        seen.append((await other.state("s")).get("done", []))
        return {"done": ["x"]}

    await line(("a", look), ("b", look), ("c", look), store=store, durability="step").run({}, session_id="s")
    assert seen == [[], ["x"], ["x", "x"]]


async def test_with_durability_step_no_node_starts_before_the_last_one_is_stored(store: Store):
    watched, gate = WatchedStore(store), Gate()
    watched.held.clear()
    graph = line(("a", step("a")), ("b", held("b", gate)), store=watched)
    waiting = begin(graph.run({}, session_id="s"))
    await watched.reached.wait()
    await turns(20)
    assert not gate.reached.is_set()
    watched.held.set()
    await gate.reached.wait()
    gate.opened.set()
    await waiting


@pytest.mark.parametrize("durability", ["step", "pause"])
async def test_a_held_commit_holds_the_run_unless_it_is_async(store: Store, durability: Any):
    watched = WatchedStore(store)
    watched.held.clear()
    ran: list[str] = []

    async def note(state: Mapping[str, Any]) -> dict[str, Any]:
        ran.append("x")
        return {"done": ["x"]}

    graph = line(("a", note), ("b", note), ("c", note), store=watched, durability=durability)
    waiting = begin(graph.run({}, session_id="s"))
    await watched.reached.wait()
    await turns(20)
    assert len(ran) == (1 if durability == "step" else 3)
    watched.held.set()
    assert (await waiting).status == "done"


async def test_with_durability_async_the_run_goes_on_while_it_is_saved(store: Store):
    watched, gate = WatchedStore(store), Gate()
    graph = line(("a", step("a")), ("b", step("b")), ("c", held("c", gate)), store=watched, durability="async")
    watched.held.clear()
    run = graph.run({}, session_id="s")
    reading = asyncio.create_task(events_of(run))
    await gate.reached.wait()  # two steps further, and nothing but the input is stored
    assert (await graph.state("s")).get("done", []) == []
    gate.opened.set()
    await turns(20)
    assert not reading.done()  # the end is not told before everything is stored
    watched.held.set()
    events = await reading
    assert isinstance(events[-1], Done)
    assert [point.source for point in await graph.history("s")] == ["end", "step", "step", "input"]


async def test_with_durability_async_a_pause_is_not_told_before_everything_is_stored(store: Store):
    watched = WatchedStore(store)
    graph = line(("a", step("a")), ("b", step("b")), ("ask", ask), store=watched, durability="async")
    watched.held.clear()
    told: list[Event] = []

    async def read() -> None:
        async for event in graph.run({}, session_id="s"):
            told.append(event)  # noqa: PERF401  # what has come so far counts

    reading = asyncio.create_task(read())
    await watched.reached.wait()
    await turns(30)
    assert not any(isinstance(event, Interrupted | NodeEnd) for event in told)
    assert await graph.pending("s") == []
    watched.held.set()
    await reading
    assert isinstance(told[-1], Interrupted)
    assert len(await graph.pending("s")) == 1


@pytest.mark.parametrize("durability", ["step", "async"])
async def test_no_durable_event_is_told_before_its_record_is_stored(store: Store, durability: Any):  # rule A11
    watched = WatchedStore(store)
    graph = side_by_side(*[(name, talks) for name in "abc"], store=watched, durability=durability)
    async for event in graph.run({}, session_id="s"):
        if event.seq is not None:
            stored = sum(write.event_count for write in watched.writes)
            assert event.seq <= stored


async def talks(state: Mapping[str, Any]) -> dict[str, Any]:
    current().emit("here")
    await turns(2)
    current().emit("there")
    return {"done": ["x"]}


async def test_what_a_node_emits_is_told_while_it_runs(store: Store):
    gate = Gate()

    async def talks_and_waits(state: Mapping[str, Any]) -> None:
        current().emit("here")
        await gate.wait()

    async for event in line(("a", talks_and_waits), store=store).run({}, session_id="s"):
        if isinstance(event, Custom):
            assert not gate.opened.is_set()
            gate.opened.set()
    assert gate.passed == 1


async def test_a_finished_sibling_is_stored_while_the_others_run(store: Store):
    gate = Gate()
    graph = side_by_side(("quick", step("quick")), ("slow", held("slow", gate)), store=store)
    waiting = begin(graph.run({}, session_id="s"))
    await gate.reached.wait()
    await until(lambda: _moved(store))
    fork = await graph.fork("s")  # as it is stored now: a process that died here would leave this
    gate.opened.set()
    await waiting
    only_slow = side_by_side(("quick", must_not_run), ("slow", step("slow")), store=store)
    assert (await only_slow.recover(fork)).state["done"] == ["quick", "slow", "end"]


async def must_not_run(state: Mapping[str, Any]) -> None:
    raise AssertionError("it has finished before")


async def _moved(store: Store) -> bool:
    head = await store.read(GetHead(SessionRef("s")))
    return head is not None and not head.checkpoint.endswith(".0")


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_a_once_call_is_stored_before_it_returns(store: Store, durability: Any):  # rule R13
    gate = Gate()

    @once
    async def charge() -> str:
        return "paid"

    @workflow
    async def pays(_: Any) -> Any:
        paid = await charge()
        await gate.wait()
        return paid

    runner = Runner(pays, store=store, durability=durability)
    waiting = begin(runner.run(None, session_id="s"))
    await gate.reached.wait()
    loaded = await store.read(Load(SessionRef("s")))
    assert loaded is not None
    assert b"paid" in b"".join(loaded.rows)
    gate.opened.set()
    await waiting


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_every_durability_gives_the_same_result_and_the_same_restored_state(store: Store, durability: Any):
    graph = asking(store=store, durability=durability)
    await graph.run({}, session_id="s")
    result = await graph.resume("s", {"go": "yes"})
    other = asking(store=store)
    assert dict(result.state) == dict(await other.state("s"))
    assert (await other.status("s")).status == "done"


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_a_failure_keeps_what_was_finished_before_it(store: Store, durability: Any):
    async def fails(state: Mapping[str, Any]) -> None:
        raise ValueError("no luck")

    graph = line(("a", step("a")), ("b", step("b")), ("c", fails), store=store, durability=durability)
    events, _ = await events_until_failure(graph.run({}, session_id="s"))
    numbers = [event.seq for event in events if event.seq is not None]
    assert numbers == list(range(1, len(numbers) + 1))
    mended = line(("a", must_not_run), ("b", must_not_run), ("c", step("c")), store=store)
    assert (await mended.recover("s")).state["done"] == ["a", "b", "c"]


# How much is stored


def talk(store: Store) -> Any:
    async def reply(state: Mapping[str, Any]) -> dict[str, Any]:
        return {"messages": [Message.user(state["user_input"]), Message.assistant("y" * 1000)]}

    return StateGraph(MessagesState, name="talk").add_node("reply", reply).add_edge(START, "reply").compile(store=store)


async def test_storage_grows_with_what_was_said(store: Store):  # rule C9
    watched = WatchedStore(store)
    graph, sizes = talk(watched), list[int]()
    for _ in range(200):
        await graph.run("x" * 1000, session_id="s")
        sizes.append(sum(len(write.body) + len(write.events) for write in watched.writes))
    assert sizes[199] < 4 * 200 * 2000
    assert sizes[199] - sizes[99] < 1.5 * (sizes[99] + 2000)


async def test_the_cost_of_a_commit_does_not_grow_with_history(store: Store):  # rule C9
    watched = WatchedStore(store)
    graph = talk(watched)
    for _ in range(200):
        await graph.run("x" * 1000, session_id="s")
    partial = [len(write.body) for write in watched.writes if not write.full]
    assert max(partial[-20:]) < 1.1 * max(partial[:20])
    full = [write for write in watched.writes if write.full]
    assert 2 <= len(full) <= 20


async def test_restoring_reads_no_more_than_a_few_times_the_state(store: Store):  # rule C9
    watched = WatchedStore(store)
    graph = line(("a", step("a")), store=watched)
    for _ in range(300):
        await graph.run({"answer": "z" * 500}, session_id="s")
    loaded = await store.read(Load(SessionRef("s")))
    assert loaded is not None
    assert len(loaded.rows) < 60
    assert sum(map(len, loaded.rows)) < 100_000


async def test_a_session_that_is_loaded_anew_each_turn_grows_no_faster(store: Store):  # rule C9
    watched, sizes = WatchedStore(store), list[int]()
    for _ in range(60):
        await talk(watched).run("x" * 1000, session_id="s")
        sizes.append(sum(len(write.body) for write in watched.writes))
    assert sizes[59] < 4 * 60 * 2000


async def test_full_and_partial_records_fold_to_what_the_run_had(store: Store):  # rule C3
    watched = WatchedStore(store)
    graph = talk(watched)
    for number in range(60):
        await graph.run(f"{number}" + "x" * 500, session_id="s")
    assert {write.full for write in watched.writes} == {True, False}
    for number, point in enumerate(await talk(store).history("s", source="end", limit=50)):
        texts = [message.text for message in point.state["messages"]]
        assert len(texts) == 2 * (60 - number)
        assert texts[-2].startswith(f"{59 - number}x")


# The same for every store


ODD: list[Any] = [
    (1, 2),
    {1, 2},
    b"\x00\xff",
    Decimal("1.10"),
    datetime(2026, 1, 1, tzinfo=UTC),
    {1: "one"},
    {"$t": "tuple", "v": [1]},
    "\ud800" if False else "☃",
    2**70,
    -0.0,
    [[], {}, None],
]


@pytest.mark.parametrize("value", ODD, ids=repr)
async def test_values_come_back_as_they_were(store: Store, value: Any):  # rule C14
    graph = steps("a", store=store)
    await graph.run({"answer": value}, session_id="s")
    found = (await steps("a", store=store).state("s"))["answer"]
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    "value",
    [object(), lambda: None, float("nan"), float("inf"), open, "\ud800"],
    ids=["object", "lambda", "nan", "inf", "open", "surrogate"],
)
async def test_what_cannot_be_stored_is_refused_by_every_store(store: Store, value: Any):  # rule C14
    with pytest.raises(NotStorable, match="answer"):
        await steps("a", store=store).run({"answer": value}, session_id="s")
    assert await store.read(GetHead(SessionRef("s"))) is None


async def test_the_memory_store_keeps_bytes_not_objects():  # rule C14
    store = MemoryStore()
    graph, given = steps("a", store=store), {"deep": [1]}
    await graph.run({"answer": given}, session_id="s")
    given["deep"].append(2)
    assert (await graph.state("s"))["answer"] == {"deep": [1]}
    loaded = await store.read(Load(SessionRef("s")))
    assert loaded is not None
    assert all(type(row) is bytes for row in loaded.rows)


async def test_a_session_outlives_its_store_object(tmp_path: Any):
    for answer in (None, "yes"):
        store = SQLiteStore(tmp_path / "s.db")
        graph = line(("ask", ask), store=store)
        if answer is None:
            await graph.run({}, session_id="s")
        else:
            assert (await graph.resume("s", {"go": answer})).state["answer"] == "yes"
        await store.close()


async def test_interrupts_in_sync_code_on_the_loop_are_stored_before_they_are_told(store: Store):
    def asks(state: Mapping[str, Any]) -> dict[str, Any]:
        return {"answer": interrupt("Well?", key="well")}

    async for event in line(("ask", asks), store=store).run({}, session_id="s"):
        if isinstance(event, Interrupted):
            assert [asked.key for asked in await asking(store=store).pending("s")] == ["well"]
