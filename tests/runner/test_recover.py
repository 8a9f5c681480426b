"""Recover: going on after a failure, a cancel or a crash; nothing that finished runs again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from adjourn import (
    AlreadyResumed,
    CheckpointNotFound,
    PendingInterrupts,
    Runner,
    SessionBusy,
    UnfinishedRun,
    current,
    interrupt,
    once,
    workflow,
)
from adjourn._engine.record import FORMAT, Record, encode
from adjourn.errors import CrashLoop, MaxStepsExceeded, ProgramChanged, WriteConflict
from adjourn.events import Done, Failed
from adjourn.graph import END, START, Command, CompiledGraph, StateGraph
from adjourn.stores import Header, SessionRef, Store, Write
from adjourn.stores.kit import Claim, Commit, GetHead
from adjourn.testing import FakeClock, FaultStore

from .programs import (
    Gate,
    Path,
    asking,
    begin,
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

ASKED = "runnable:asking;node:ask"


async def fails(state: dict[str, Any]) -> None:
    raise ValueError("no luck")


async def must_not_run(state: dict[str, Any]) -> None:
    raise AssertionError("it has finished before")


class Crash:
    """A run that stands in the middle of its code while its lease runs out, as that of a dead process does."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.gate = Gate()
        self._task: asyncio.Task[Any] | None = None

    async def happen(self, graph: CompiledGraph | Runner, input: Any = None, *, records: int = 1) -> None:
        """Crash in the gate, after so many records have been written."""

        async def written() -> bool:
            head = await graph.store.read(GetHead(SessionRef("s")))
            return head is not None and int(head.checkpoint.rpartition(".")[2]) >= records - 1

        self._task = begin(graph.run(input, session_id="s"))
        await self.gate.reached.wait()
        await until(written)
        self._clock.advance(31)

    async def clean_up(self) -> None:
        """Let the old run end: it is a zombie by now, and can do no harm."""
        self.gate.opened.set()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)


@pytest.fixture
async def crash(clock: FakeClock) -> Any:
    crashing = Crash(clock)
    yield crashing
    await crashing.clean_up()


# After a failure


async def test_only_what_failed_runs_again(store: Store):  # rule G11
    graph = side_by_side(("a", step("a")), ("b", fails), ("c", step("c")), store=store)
    await events_until_failure(graph.run({}, session_id="s"))
    mended = side_by_side(("a", must_not_run), ("b", step("b")), ("c", must_not_run), store=store)
    assert (await mended.recover("s")).state["done"] == ["a", "b", "c", "end"]


async def test_a_run_that_fails_again_can_be_recovered_again(store: Store):
    graph = line(("a", fails), store=store)
    await events_until_failure(graph.run({}, session_id="s"))
    for _ in range(8):  # each of these was stored as a failure, so they are no crash loop
        _, error = await events_until_failure(graph.recover("s"))
        assert isinstance(error, ValueError)
    assert (await steps("a", store=store).recover("s")).status == "done"


async def test_recover_takes_deps_and_a_higher_limit(store: Store):  # rule G10
    seen: list[Any] = []

    async def loops(state: dict[str, Any]) -> Command:
        seen.append(current().deps)
        return Command(update={"done": ["x"]}, goto=END if len(seen) == 5 else "loop")

    graph = line(("loop", loops), store=store)
    with pytest.raises(MaxStepsExceeded):
        await graph.run({}, session_id="s", max_steps=3, deps="first")
    assert (await graph.status("s")).status == "failed"
    assert (await graph.recover("s", max_steps=10, deps="second")).state["done"] == ["x"] * 5
    assert seen == ["first"] * 3 + ["second"] * 2


async def test_a_recovered_run_tells_only_what_is_new(store: Store):  # rule R7
    graph = line(("a", step("a")), ("b", fails), store=store)
    first, _ = await events_until_failure(graph.run({}, session_id="s"))
    second = await events_of(steps("a", "b", store=store).recover("s"))
    assert next(event.seq for event in second if event.seq is not None) == (first[-1].seq or 0) + 1
    assert isinstance(first[-1], Failed)
    assert isinstance(second[-1], Done)
    assert "a" not in [getattr(event, "node", None) for event in second]


async def test_a_mapping_also_continues_tasks_that_failed(store: Store):
    async def asks(state: dict[str, Any]) -> dict[str, Any]:
        return {"done": [interrupt("Well?", key="well")]}

    graph = side_by_side(("asks", asks), ("b", fails), store=store)
    await events_until_failure(graph.run({}, session_id="s"))
    assert [asked.key for asked in await graph.pending("s")] == ["well"]  # rule I10
    mended = side_by_side(("asks", asks), ("b", step("b")), store=store)
    assert (await mended.resume("s", {"well": "yes"})).state["done"] == ["yes", "b", "end"]


async def test_a_node_that_is_gone_is_named_and_the_session_waits_for_its_return(store: Store):  # rule R10
    await asking(store=store).run({}, session_id="s")
    other = line(("before", step("before")), name="asking", store=store)
    with pytest.raises(ProgramChanged, match="ask"):
        await other.resume("s", {"go": 1})
    with pytest.raises(ProgramChanged):
        await other.recover("s")
    assert (await asking(store=store).resume("s", {"go": 1})).status == "done"


# What recover never does


async def test_recover_answers_nothing(store: Store):
    graph = asking(store=store)
    paused = await graph.run({}, session_id="s")
    result = await asking(store=store).recover("s")
    assert (result.status, result.interrupts, result.checkpoint_id) == (
        "interrupted",
        paused.interrupts,
        paused.checkpoint_id,
    )
    assert len(await graph.history("s")) == 3


async def test_recovering_a_finished_session_gives_its_stored_result(store: Store):
    await steps("a", store=store).run({}, session_id="s")
    graph = line(("a", must_not_run), store=store)
    for _ in range(2):
        result = await graph.recover("s")
        assert (result.status, result.state["done"]) == ("done", ["a"])
    assert len(await graph.history("s")) == 2


async def test_recovering_a_finished_workflow_gives_its_value(store: Store):
    @workflow
    async def counts(number: int) -> int:
        ran.append(number)
        return number + 1

    ran: list[int] = []
    await Runner(counts, store=store).run(1, session_id="s")
    assert (await Runner(counts, store=store).recover("s")).value == 2
    assert ran == [1]


async def test_nobody_can_be_recovered(store: Store):
    with pytest.raises(CheckpointNotFound):
        await asking(store=store).recover("nobody")


async def test_a_live_run_cannot_be_recovered(store: Store):
    gate = Gate()
    waiting = begin(line(("a", held("a", gate)), store=store).run({}, session_id="s"))
    await gate.reached.wait()
    with pytest.raises(SessionBusy):
        await steps("a", store=store).recover("s")
    with pytest.raises(SessionBusy):
        await steps("a", store=store).run({}, session_id="s")
    gate.opened.set()
    assert (await waiting).status == "done"


# After a crash


async def test_a_crashed_run_goes_on_at_the_step_it_was_in(timed: Store, clock: FakeClock, crash: Crash):  # rule C8
    graph = line(("a", step("a")), ("b", held("b", crash.gate)), ("c", step("c")), store=timed, clock=clock)
    await crash.happen(graph, {})
    other = line(("a", must_not_run), ("b", step("b")), ("c", step("c")), store=timed, clock=clock)
    assert (await other.recover("s")).state["done"] == ["a", "b", "c"]


async def test_what_siblings_finished_before_a_crash_is_kept(timed: Store, clock: FakeClock, crash: Crash):  # rule C8
    graph = side_by_side(("a", step("a")), ("b", held("b", crash.gate)), store=timed, clock=clock)
    await crash.happen(graph, {}, records=2)
    other = side_by_side(("a", must_not_run), ("b", step("b")), store=timed, clock=clock)
    assert (await other.recover("s")).state["done"] == ["a", "b", "end"]


async def test_what_ran_once_before_a_crash_is_not_run_again(timed: Store, clock: FakeClock, crash: Crash):  # rule C8
    charged: list[str] = []

    @once
    async def charge() -> str:
        charged.append(current().idempotency_key)
        return "paid"

    async def pays(state: dict[str, Any]) -> dict[str, Any]:
        paid = await charge()
        if not crash.gate.reached.is_set():
            await crash.gate.wait()
        return {"done": [paid]}

    await crash.happen(line(("pays", pays), store=timed, clock=clock), {})
    assert (await line(("pays", pays), store=timed, clock=clock).recover("s")).state["done"] == ["paid"]
    assert len(charged) == 1


async def test_a_step_that_was_cut_off_runs_again_with_the_same_key(  # failures 19, rule R14
    timed: Store, clock: FakeClock, crash: Crash
):
    keys: list[str] = []

    async def works(state: dict[str, Any]) -> dict[str, Any]:
        keys.append(current().idempotency_key)
        if len(keys) == 1:
            await crash.gate.wait()
        return {"done": ["x"]}

    graph = line(("works", works), store=timed, clock=clock)
    await crash.happen(graph, {})
    await line(("works", works), store=timed, clock=clock).recover("s")
    assert len(keys) == 2
    assert keys[0] == keys[1]


async def test_questions_asked_before_a_crash_are_not_doubled(timed: Store, clock: FakeClock, crash: Crash):  # rule C8
    async def asks(state: dict[str, Any]) -> dict[str, Any]:
        return {"done": [interrupt("Well?", key="well", schema=str)]}

    graph = side_by_side(("asks", asks), ("slow", held("slow", crash.gate)), store=timed, clock=clock)
    await crash.happen(graph, {}, records=2)
    other = side_by_side(("asks", asks), ("slow", step("slow")), store=timed, clock=clock)
    assert [asked.key for asked in await other.pending("s")] == ["well"]
    result = await other.recover("s")
    assert ids(result.interrupts) == ids(await other.pending("s")) == ["runnable:wide;node:asks"]
    assert (await other.resume("s", {"well": "fine"})).state["done"] == ["fine", "slow", "end"]


async def test_an_answer_given_before_a_crash_is_not_lost(timed: Store, clock: FakeClock, crash: Crash):  # rule R4
    async def after(state: dict[str, Any]) -> dict[str, Any]:
        await crash.gate.wait()
        return {"done": ["after"]}

    graph = line(("before", step("before")), ("ask", _ask), ("after", after), name="asking", store=timed, clock=clock)
    await graph.run({}, session_id="s")
    resuming = begin(graph.resume("s", {"go": "yes"}, by="ann"))
    await crash.gate.reached.wait()
    clock.advance(31)
    other = asking(store=timed, clock=clock)
    with pytest.raises(AlreadyResumed) as late:
        await other.resume("s", {"go": "no"})
    assert (late.value.by, late.value.live) == ("ann", False)
    result = await other.recover("s")
    assert (result.state["answer"], result.state["done"]) == ("yes", ["before", "ask", "after"])
    crash.gate.opened.set()
    await asyncio.gather(resuming, return_exceptions=True)


async def _ask(state: dict[str, Any]) -> dict[str, Any]:
    return {"answer": interrupt("Go on?", key="go"), "done": ["ask"]}


async def test_an_answer_to_a_run_that_then_crashed_is_taken_up(
    timed: Store, clock: FakeClock, crash: Crash
):  # rule R4
    """The answer stood beside the log, for an owner who died before taking it up."""

    async def asks(state: dict[str, Any]) -> dict[str, Any]:
        return {"done": [interrupt("Well?", key="well", schema=str)]}

    graph = side_by_side(("asks", asks), ("slow", held("slow", crash.gate)), store=timed, clock=clock)
    running = begin(graph.run({}, session_id="s"))
    await crash.gate.reached.wait()
    other = side_by_side(("asks", asks), ("slow", step("slow")), store=timed, clock=clock)
    await until(lambda: other.pending("s"))
    answering = begin(other.resume("s", {"well": "yes"}))
    await until(lambda: _none_pending(other))
    clock.advance(31)
    assert (await other.recover("s")).state["done"] == ["yes", "slow", "end"]
    crash.gate.opened.set()
    await asyncio.gather(running, answering, return_exceptions=True)


async def _none_pending(graph: CompiledGraph) -> bool:
    return not await graph.pending("s")


async def test_a_new_turn_on_a_crashed_session_is_refused_or_finishes_it(  # rule R12
    timed: Store, clock: FakeClock, crash: Crash
):
    graph = line(("a", held("a", crash.gate)), store=timed, clock=clock)
    await crash.happen(graph, {})
    other = steps("a", store=timed, clock=clock)
    with pytest.raises(UnfinishedRun) as refused:
        await other.run({}, session_id="s")
    assert refused.value.status == "crashed"
    assert (await other.run({}, session_id="s", on_pending="finish")).state["done"] == ["a", "a"]


async def test_a_crashed_session_can_be_abandoned(timed: Store, clock: FakeClock, crash: Crash):
    graph = line(("a", held("a", crash.gate)), store=timed, clock=clock)
    await crash.happen(graph, {"done": ["1"]})
    other = steps("a", store=timed, clock=clock)
    result = await other.run({"done": ["2"]}, session_id="s", on_pending="abandon")
    assert result.state["done"] == ["1", "2", "a"]


async def test_a_crashed_run_with_durability_pause_begins_at_its_input(timed: Store, clock: FakeClock, crash: Crash):
    graph = line(("a", step("a")), ("b", held("b", crash.gate)), store=timed, clock=clock, durability="pause")
    await crash.happen(graph, {"done": ["input"]})
    assert (await steps("a", "b", store=timed, clock=clock).recover("s")).state["done"] == ["input", "a", "b"]


async def test_a_crash_inside_a_nested_graph(timed: Store, clock: FakeClock, crash: Crash):
    def outer(second: Any) -> CompiledGraph:
        inner = line(("x", step("x") if second is not step else must_not_run), ("y", second), name="inner")
        graph = StateGraph(Path, name="outer").add_subgraph("in", inner).add_edge(START, "in")
        return graph.compile(store=timed, clock=clock)

    await crash.happen(outer(held("y", crash.gate)), {})
    assert (await outer(step("y")).recover("s")).state["done"] == ["x", "y"]


async def test_finish_does_not_answer_questions(timed: Store, clock: FakeClock):
    graph = asking(store=timed, clock=clock)
    await graph.run({}, session_id="s")
    with pytest.raises(PendingInterrupts):
        await graph.run({}, session_id="s", on_pending="finish")
    assert ids(await graph.pending("s")) == [ASKED]


# Crash loops


async def test_a_run_that_dies_again_and_again_without_progress_is_failed(  # rule C8, failures 23
    timed: Store, clock: FakeClock
):
    gates: list[Gate] = []
    tasks: list[asyncio.Task[Any]] = []

    def deadly() -> CompiledGraph:
        gates.append(Gate())
        return line(("a", step("a")), ("b", held("b", gates[-1])), store=timed, clock=clock)

    tasks.append(begin(deadly().run({}, session_id="s")))
    for _ in range(5):
        await gates[-1].reached.wait()
        clock.advance(31)
        tasks.append(begin(deadly().recover("s")))
    await gates[-1].reached.wait()
    clock.advance(31)
    never = Gate()
    with pytest.raises(CrashLoop) as looping:
        await line(("a", step("a")), ("b", held("b", never)), store=timed, clock=clock).recover("s")
    assert looping.value.claims == 5
    assert not never.reached.is_set()  # the code that kills is not run
    assert (await deadly().status("s")).status == "failed"
    assert (await steps("a", "b", store=timed, clock=clock).recover("s")).state["done"] == ["a", "b"]
    for gate in gates:
        gate.opened.set()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_progress_between_crashes_is_no_crash_loop(timed: Store, clock: FakeClock):
    names = [f"n{number}" for number in range(10)]
    tasks: list[asyncio.Task[Any]] = []
    gates: list[Gate] = []
    for stop in names:
        gates.append(Gate())
        nodes = [(name, held(name, gates[-1]) if name == stop else step(name)) for name in names]
        graph = line(*nodes, store=timed, clock=clock)
        tasks.append(begin(graph.recover("s") if tasks else graph.run({}, session_id="s")))
        await gates[-1].reached.wait()
        clock.advance(31)
    assert (await steps(*names, store=timed, clock=clock).recover("s")).state["done"] == names
    for gate in gates:
        gate.opened.set()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_failure_that_cannot_be_stored_says_so_and_can_be_recovered(timed: Store, clock: FakeClock):
    faulty = FaultStore(timed, fail_at=2, times=1000)
    graph = line(("a", fails), store=faulty, clock=clock, store_timeout=1)
    events, error = await events_until_failure(graph.run({}, session_id="s"))
    assert isinstance(error, ValueError)
    assert "could not be stored" in "".join(error.__notes__)
    assert isinstance(events[-1], Failed)
    assert events[-1].seq is None
    clock.advance(31)
    assert (await steps("a", store=timed, clock=clock).recover("s")).state["done"] == ["a"]


async def test_what_a_task_had_come_to_is_void_once_it_has_failed(store: Store):  # rules S6, R13
    """Its writes could not be applied, so its session values, too, are as if it had never run."""
    seen: list[Any] = []

    async def writes(state: Path) -> dict[str, Any]:
        seen.append(dict(current().values))
        current().values["mark"] = len(seen)
        return {"answer": "mine"}

    def clashing() -> CompiledGraph:
        graph = StateGraph(Path, name="clashing").add_node("a", writes).add_node("b", writes)
        return graph.add_edge(START, "a").add_edge(START, "b").compile(store=store)

    with pytest.raises(WriteConflict):
        await clashing().run({}, session_id="s")
    with pytest.raises(WriteConflict):
        await clashing().recover("s")
    assert seen == [{}, {}, {}]


async def test_a_pause_that_nobody_could_end_is_gone_on_from(store: Store):  # rules R1, R12
    """Nothing here leaves such a session behind; a store that another version wrote may have one."""
    await events_until_failure(line(("a", step("a")), ("b", fails), store=store).run({}, session_id="s"))
    head = await store.read(GetHead(SessionRef("s")))
    assert head is not None
    claimed = await store.write(Claim(ref=SessionRef("s"), owner="somebody", ttl=30, after=head.checkpoint))
    assert claimed.lease is not None
    number = int(head.checkpoint.rpartition(".")[2]) + 1
    write = Write(
        branch=head.branch,
        number=number,
        parent=head.checkpoint,
        full=False,
        body=encode(Record(v=FORMAT)),
        header=Header(),
        status="waiting",
    )
    await store.write(Commit(lease=claimed.lease, writes=(write,), after=head.checkpoint, release=True))
    graph = steps("a", "b", store=store)
    status = await graph.status("s")
    assert (status.status, status.interrupts) == ("waiting", ())
    assert (await graph.recover("s")).state["done"] == ["a", "b"]
