"""History: checkpoints, newest first, with what each of them held."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjourn import CheckpointNotFound, Runner, UsageError, interrupt, once, workflow
from adjourn.events import CheckpointSaved
from adjourn.graph import END, START, Command, CompiledGraph, StateGraph
from adjourn.stores import MemoryStore, SessionRef, Store
from adjourn.stores.kit import GetHead, ListCheckpoints
from adjourn.testing import FakeClock

from .programs import (
    Gate,
    Path,
    asking,
    events_of,
    events_until_failure,
    held,
    ids,
    line,
    side_by_side,
    step,
    steps,
    until,
)


async def fails(state: Mapping[str, Any]) -> None:
    raise ValueError("no luck")


def nested(store: Store) -> CompiledGraph:
    inner = line(("x", step("x")), ("y", step("y")), name="inner")
    graph = StateGraph(Path, name="outer").add_node("a", step("a")).add_subgraph("in", inner)
    return graph.add_edge(START, "a").add_edge("a", "in").compile(store=store)


async def test_nothing_is_open_when_a_workflow_has_ended_however_it_was_stored(store: Store):  # rules C2, C3
    @once
    async def note(number: int) -> str:
        return f"{number} " * 50

    @workflow
    async def long(input: str) -> list[str]:
        return [interrupt("Well?"), *[await note(number) for number in range(count)]]

    # So that some of them end with a record of everything.
    for count in range(12):
        runner = Runner(long, store=store)
        await runner.run("go", session_id=f"s{count}")
        await runner.resume(f"s{count}", {"runnable:long": "yes"})
        assert (await runner.history(f"s{count}"))[0].interrupts == ()


@pytest.mark.parametrize("count", [1, 2, 3, 7])
async def test_a_straight_run_of_n_nodes_leaves_n_and_one_checkpoints(store: Store, count: int):  # rule C2
    names = [f"n{number}" for number in range(count)]
    graph = steps(*names, store=store)
    await graph.run({}, session_id="s")
    history = await graph.history("s")
    assert [point.source for point in history] == ["end", *["step"] * (count - 1), "input"]
    assert [point.step for point in history] == list(range(count, -1, -1))


async def test_a_checkpoint_says_what_it_was(timed: Store, clock: FakeClock):  # rule C2
    graph = asking(store=timed, clock=clock)
    start = clock()
    await graph.run({}, session_id="s")
    clock.advance(10)
    await graph.resume("s", {"go": "yes"})
    newest = await graph.history("s")
    oldest = newest[::-1]
    assert [point.source for point in oldest] == ["input", "step", "interrupt", "resume", "step", "end"]
    assert [point.next for point in oldest] == [("before",), ("ask",), ("ask",), ("ask",), ("after",), ()]
    assert [point.parent_id for point in oldest] == [None, *(point.id for point in oldest[:-1])]
    assert [ids(point.interrupts) for point in oldest] == [[], [], ["runnable:asking;node:ask"], [], [], []]
    assert [point.state.get("done", []) for point in oldest] == [
        [],
        ["before"],
        ["before"],
        ["before"],
        ["before", "ask"],
        ["before", "ask", "after"],
    ]
    assert [point.created for point in oldest] == [
        datetime.fromtimestamp(start + (10 if number > 2 else 0), UTC) for number in range(6)
    ]
    assert {point.address for point in oldest} == {"runnable:asking"}
    assert oldest[2].interrupts[0].checkpoint_id == oldest[2].id


async def test_history_is_append_only(store: Store):  # rule C2
    graph = asking(store=store)
    await graph.run({}, session_id="s")
    first = await graph.history("s")
    await graph.resume("s", {"go": 1})
    await graph.run({}, session_id="s")
    assert (await graph.history("s"))[-len(first) :] == first


async def test_commits_between_checkpoints_are_restorable_but_not_listed(store: Store):  # rule C2
    gate = Gate()

    @once
    async def charge() -> int:
        return 1

    async def pays(state: Mapping[str, Any]) -> dict[str, Any]:
        await charge()
        return {"done": ["paid"]}

    graph = side_by_side(("pays", pays), ("slow", held("slow", gate)), store=store)
    reading = asyncio.create_task(events_of(graph.run({}, session_id="s")))
    await gate.reached.wait()
    await until(lambda: _moved(store))
    unlisted = (await graph.status("s")).checkpoint_id
    assert [point.source for point in await graph.history("s")] == ["input"]
    assert (await graph.state("s", checkpoint_id=unlisted)).get("done", []) == []
    gate.opened.set()
    await reading
    assert [point.source for point in await graph.history("s")] == ["end", "step", "input"]
    with pytest.raises(CheckpointNotFound):
        await graph.checkpoint("s", unlisted)


async def _moved(store: Store) -> bool:
    head = await store.read(GetHead(SessionRef("s")))
    return head is not None and not head.checkpoint.endswith(".0")


async def test_a_failed_run_leaves_no_checkpoint_of_its_own(store: Store):
    graph = line(("a", step("a")), ("b", fails), store=store)
    await events_until_failure(graph.run({}, session_id="s"))
    assert [point.source for point in await graph.history("s")] == ["step", "input"]
    await steps("a", "b", store=store).recover("s")
    assert [point.source for point in await graph.history("s")] == ["end", "step", "input"]


async def test_what_a_changed_program_has_no_place_for_can_still_be_looked_at(store: Store):
    await steps("a", "b", "c", store=store).run({}, session_id="s")
    newer = steps("a", "c", store=store)
    assert [point.state["done"] for point in await newer.history("s")] == [["a", "b", "c"], ["a", "b"], ["a"], []]
    await asking(store=store).run({"answer": (1, 2)}, session_id="t")
    newer = steps("before", name="asking", store=store)
    point = await newer.checkpoint("t")
    assert (point.state["answer"], ids(point.interrupts)) == ((1, 2), ["runnable:asking;node:ask"])
    assert await newer.state("t") == point.state


# Filters


async def test_history_is_paged(store: Store):  # rule C5
    graph = steps("a", "b", "c", store=store)
    await graph.run({}, session_id="s")
    whole = await graph.history("s")
    pages: list[Any] = []
    before: str | None = None
    while page := await graph.history("s", limit=2, before=before):
        assert len(page) <= 2
        pages += page
        before = page[-1].id
    assert pages == whole


async def test_history_by_source(store: Store):  # rule C5
    graph = asking(store=store)
    await graph.run({}, session_id="s")
    await graph.resume("s", {"go": 1})
    assert [point.source for point in await graph.history("s", source="step")] == ["step", "step"]
    assert [point.source for point in await graph.history("s", source="step", limit=1)] == ["step"]
    assert [point.source for point in await graph.history("s", source="interrupt")] == ["interrupt"]
    with pytest.raises(UsageError, match="source='weather': use one of input, step, interrupt, resume"):
        await graph.history("s", source="weather")


async def test_an_unknown_before_is_an_error(store: Store):  # rule C5
    graph = steps("a", store=store)
    await graph.run({}, session_id="s")
    for unknown in ("", "x", "x.0", "x.y", "' OR 1=1 --", (await graph.history("s"))[0].id + "0"):
        with pytest.raises(CheckpointNotFound):
            await graph.history("s", before=unknown)
    with pytest.raises(CheckpointNotFound):
        await graph.history("nobody")


async def test_under_filters_by_address_at_segment_borders(store: Store):  # rule C5
    graph = nested(store)
    await graph.run({}, session_id="s")
    whole = await graph.history("s")
    assert {point.address for point in whole} == {"runnable:outer", "runnable:outer;node:in"}
    inner = await graph.history("s", under="runnable:outer;node:in")
    assert [point.address for point in inner] == ["runnable:outer;node:in"] * len(inner)
    assert inner == [point for point in whole if point.address != "runnable:outer"]
    assert await graph.history("s", under="runnable:outer") == whole
    assert await graph.history("s", under="runnable:out") == []
    assert await graph.history("s", under="runnable:outer;node:i") == []
    assert await graph.history("s", under="runnable:outer;node:in", limit=1) == inner[:1]


async def test_metadata_filters(store: Store):  # rule C5
    graph = steps("a", "b", store=store)
    await graph.run({}, session_id="s")
    await graph.edit("s", {"done": ["x"]})
    await graph.edit("s", {"done": ["y"]}, as_node="a")
    assert len(await graph.history("s", metadata={"edited": ["done"]})) == 2
    assert len(await graph.history("s", metadata={"edited": ["done"]}, limit=1)) == 1
    assert [point.metadata["as_node"] for point in await graph.history("s", metadata={"as_node": "a"})] == ["a"]
    assert await graph.history("s", metadata={"as_node": "b"}) == []
    assert len(await graph.history("s", metadata={})) == len(await graph.history("s"))


HOSTILE = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["' OR '1'='1", "x'); DROP TABLE records; --", "$.a", "%", "_", "*", "\x00", "end' --", "🙂"]),
)


@given(source=HOSTILE, under=HOSTILE, key=HOSTILE, value=HOSTILE)
def test_filters_never_reach_a_query_as_text(  # rule C5
    source: str, under: str, key: str, value: str, tmp_path_factory: pytest.TempPathFactory
):
    async def check() -> None:
        url = f"sqlite:///{tmp_path_factory.getbasetemp()}/hostile.db"
        for store in (MemoryStore(), url):
            graph = steps("a", store=store)
            if await graph.store.read(GetHead(SessionRef("s"))) is None:
                await graph.run({}, session_id="s")
            if source not in ("input", "step", "end"):
                assert await graph.store.read(ListCheckpoints(SessionRef("s"), source=source)) == []
            if under not in ("", "runnable:line"):
                assert await graph.history("s", under=under) == []
            assert await graph.history("s", metadata={key: value}) == []
            assert len(await graph.history("s")) == 2
            await graph.store.close()

    asyncio.run(check())


# One checkpoint


async def test_checkpoint_gives_the_newest_or_one_by_id(store: Store):
    graph = asking(store=store)
    await graph.run({}, session_id="s")
    history = await graph.history("s")
    assert await graph.checkpoint("s") == history[0]
    for point in history:
        assert await graph.checkpoint("s", point.id) == point
        assert await graph.state("s", checkpoint_id=point.id) == point.state
    for unknown in ("x.0", "", history[0].id + "1"):
        with pytest.raises(CheckpointNotFound):
            await graph.checkpoint("s", unknown)
        with pytest.raises(CheckpointNotFound):
            await graph.state("s", checkpoint_id=unknown)
    with pytest.raises(CheckpointNotFound):
        await graph.checkpoint("nobody")


async def test_state_without_checkpoint_is_the_newest(store: Store):
    graph = steps("a", "b", store=store)
    result = await graph.run({}, session_id="s")
    assert await graph.state("s") == result.state
    with pytest.raises(CheckpointNotFound):
        await graph.state("nobody")


async def test_a_workflow_has_a_history_too(store: Store):
    @workflow
    async def asks(_: Any) -> Any:
        return interrupt("Well?")

    runner = Runner(asks, store=store)
    paused = await runner.run(None, session_id="s")
    await runner.resume("s", {paused.interrupts[0].id: 1})
    assert [point.source for point in await runner.history("s")] == ["end", "resume", "interrupt", "input"]
    assert [point.next for point in await runner.history("s")] == [(), ("asks",), ("asks",), ("asks",)]


# Trees and differences


async def test_a_tree_shows_branches_and_pauses(store: Store):
    graph = asking(store=store)
    await graph.run({}, session_id="s")
    paused = (await graph.history("s"))[0]
    await graph.resume("s", {"go": 1})
    await graph.run(None, session_id="s", checkpoint_id=paused.id)
    tree = await graph.tree("s")
    text = str(tree)
    assert text.splitlines()[0] == "session s"
    lines = {point.id: next(line for line in text.splitlines() if f" {point.id} " in line) for _, point in tree}
    assert set(lines) == {point.id for point in await graph.history("s")}
    assert "⏸" in lines[paused.id]
    head = (await graph.status("s")).checkpoint_id
    assert [point for point, line in lines.items() if "head" in line] == [head]
    depths = {point.id: depth for depth, point in tree}
    branch = head.rpartition(".")[0]
    assert {depth for point, depth in depths.items() if point.startswith(branch)} == {1}
    assert {depth for point, depth in depths.items() if not point.startswith(branch)} == {0}
    with pytest.raises(CheckpointNotFound):
        await graph.tree("nobody")


async def test_a_tree_has_every_checkpoint_once_and_parents_first(store: Store):
    graph = asking(store=store)
    await graph.run({}, session_id="s")
    await graph.resume("s", {"go": 1})
    for point in await graph.history("s"):
        await graph.run(None, session_id="s", checkpoint_id=point.id)
    history = {point.id: point for point in await graph.history("s")}
    seen: list[str] = []
    for _, point in await graph.tree("s"):
        parent = history[point.id].parent_id
        assert parent is None or parent not in history or parent in seen
        seen.append(point.id)
    assert sorted(seen) == sorted(history)


async def test_a_tree_of_a_pruned_session_still_has_what_is_left(store: Store):
    graph = steps("a", "b", "c", store=store)
    for _ in range(3):
        await graph.run({}, session_id="s")
    await graph.prune("s", keep=2)
    left = {point.id for point in await graph.history("s")}
    assert {point.id for _, point in await graph.tree("s")} == left


async def test_diff_tells_what_changed_between_two_checkpoints(store: Store):
    async def answer(state: Mapping[str, Any]) -> dict[str, Any]:
        return {"answer": 42}

    graph = line(("a", step("a")), ("b", answer), store=store)
    await graph.run({}, session_id="s")
    end, middle, start = await graph.history("s")
    diff = await graph.diff("s", start.id, end.id)
    assert (diff.added, diff.removed, diff.changed) == ({"answer": 42}, {}, {"done": ([], ["a"])})
    back = await graph.diff("s", end.id, middle.id)
    assert (back.added, back.removed, back.changed) == ({}, {"answer": 42}, {})
    same = await graph.diff("s", end.id, end.id)
    assert (same.added, same.removed, same.changed) == ({}, {}, {})
    with pytest.raises(CheckpointNotFound):
        await graph.diff("s", end.id, "x.0")


# Every checkpoint restores what was there


@given(data=st.data())
def test_every_checkpoint_restores_the_state_that_the_run_had_there(  # rule C3
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
):
    """Values replaced and lists grown in any mix, over turns, so that full and partial records alternate."""
    sizes = data.draw(st.lists(st.integers(0, 4000), min_size=1, max_size=12))
    turns = data.draw(st.integers(1, 4))
    seen: list[dict[str, Any]] = []

    async def work(state: Mapping[str, Any]) -> Command:
        number = len(seen)
        seen.append(dict(state))
        size = sizes[number % len(sizes)]
        update: dict[str, Any] = {"done": ["x" * size]} if size % 2 else {"answer": {"n": number, "t": "y" * size}}
        return Command(update=update, goto=END if number % len(sizes) == len(sizes) - 1 else "work")

    async def check(store: Store | str) -> None:
        seen.clear()
        graph = StateGraph(Path, name="g").add_node("work", work).add_edge(START, "work").compile(store=store)
        for _ in range(turns):
            await graph.run({}, session_id="s")
        points = [point for point in (await graph.history("s"))[::-1] if point.source != "end"]
        assert [dict(point.state) for point in points] == seen
        await graph.delete("s")
        await graph.store.close()

    asyncio.run(check(MemoryStore()))
    asyncio.run(check(f"sqlite:///{tmp_path_factory.getbasetemp()}/mix.db?synchronous=NORMAL"))


async def test_checkpoint_events_name_the_checkpoints_of_the_history(store: Store):
    graph = nested(store)
    told = [event for event in await events_of(graph.run({}, session_id="s")) if isinstance(event, CheckpointSaved)]
    stored = (await graph.history("s"))[::-1]
    assert [(event.checkpoint_id, event.source, event.step, event.address) for event in told] == [
        (point.id, point.source, point.step, point.address) for point in stored
    ]
