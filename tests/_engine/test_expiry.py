"""Questions that expire: applied once, by whoever touches the session next, as the asker chose."""

import asyncio
import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pytest

from adjourn import (
    AnswerWith,
    InterruptExpired,
    PendingInterrupts,
    Runner,
    RunResult,
    UnfinishedRun,
    current,
    has_resume_value,
    interrupt,
    resume_value,
    workflow,
)
from adjourn.errors import UsageError
from adjourn.events import Interrupted
from adjourn.graph import START, CompiledGraph, StateGraph
from adjourn.stores import SessionRef, Store
from adjourn.stores.kit import Audit
from adjourn.testing import FakeClock
from tests._engine.asking import Log, Node, chain, events_of, ids, lone, together, until
from tests.conftest import MakeStore

DAY = 86_400.0
runs: list[str] = []


@pytest.fixture(autouse=True)
def _no_runs() -> None:
    runs.clear()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def timed(make_store: MakeStore, clock: FakeClock) -> Store:
    return make_store(clock)


def fails(state: Any) -> Any:
    runs.append("fails")
    return {"log": [interrupt("q", key="q", expires_in=DAY)]}


def defaults(state: Any) -> Any:
    runs.append("defaults")
    return {"log": [interrupt("q", key="q", schema=int, expires_in=timedelta(days=1), on_expire=AnswerWith(7))]}


def build(node: Node, store: Store, clock: FakeClock) -> CompiledGraph:
    return lone(node, store=store, clock=clock)


async def test_a_question_tells_when_it_expires(timed: Store, clock: FakeClock):  # rule R11
    for node in (fails, defaults):
        (asked,) = (await build(node, timed, clock).run({}, session_id=node.__name__)).interrupts
        assert asked.expires == datetime.fromtimestamp(clock() + DAY, UTC)


@pytest.mark.parametrize("before", [0.0, 1.0, DAY - 0.001])
async def test_before_its_time_it_can_be_answered(before: float, timed: Store, clock: FakeClock):  # rule R11
    await build(fails, timed, clock).run({}, session_id="s")
    clock.advance(before)
    assert (await build(fails, timed, clock).recover("s")).status == "interrupted"
    assert (await build(fails, timed, clock).resume("s", {"q": 1})).state["log"] == [1]


@pytest.mark.parametrize("late", [DAY, DAY + 1, 100 * DAY])
async def test_after_its_time_it_cannot_be_answered(late: float, timed: Store, clock: FakeClock):  # rule R11
    before = await build(fails, timed, clock).run({}, session_id="s")
    clock.advance(late)
    runs.clear()
    for answers in ({"q": 1}, {ids(before)[0]: 1}, {"q": 1}):
        with pytest.raises(InterruptExpired) as raised:
            await build(fails, timed, clock).resume("s", answers)
        assert raised.value.interrupt_id == ids(before)[0]
    assert runs == []


async def test_by_default_the_run_fails(timed: Store, clock: FakeClock):  # rule R11
    await build(fails, timed, clock).run({}, session_id="s")
    clock.advance(DAY)
    runs.clear()
    for _ in range(2):
        with pytest.raises(InterruptExpired, match="expired"):
            await build(fails, timed, clock).recover("s")
    assert (await build(fails, timed, clock).status("s")).status == "failed"
    assert runs == ["fails", "fails"]
    with pytest.raises(InterruptExpired):
        await build(fails, timed, clock).resume("s", {"q": 1})


async def test_the_asker_may_catch_it(timed: Store, clock: FakeClock):  # rule R11
    def node(state: Any) -> Any:
        try:
            return {"log": [interrupt("manager?", key="manager", expires_in=DAY)]}
        except InterruptExpired:
            return {"log": [interrupt("director?", key="director")]}

    await build(node, timed, clock).run({}, session_id="s")
    clock.advance(DAY)
    result = await build(node, timed, clock).recover("s")
    assert [asked.key for asked in result.interrupts] == ["director"]
    assert (await build(node, timed, clock).resume("s", {"director": "ok"})).state["log"] == ["ok"]


async def test_a_default_takes_the_answers_place(timed: Store, clock: FakeClock):  # rule R11
    await build(defaults, timed, clock).run({}, session_id="s")
    clock.advance(DAY)
    result = await build(defaults, timed, clock).recover("s")
    assert (result.status, result.state["log"]) == ("done", [7])
    (decision,) = await timed.read(Audit(SessionRef("s")))
    assert (decision.how, decision.by) == ("expired", None)
    with pytest.raises(InterruptExpired):
        await build(defaults, timed, clock).resume("s", {"q": 1})


async def test_a_late_answer_does_not_keep_the_default_from_counting(timed: Store, clock: FakeClock):  # failure A5
    await build(defaults, timed, clock).run({}, session_id="s")
    clock.advance(DAY)
    with pytest.raises(InterruptExpired):
        await build(defaults, timed, clock).resume("s", {"q": 1})
    assert (await build(defaults, timed, clock).recover("s")).state["log"] == [7]


@dataclasses.dataclass
class Choice:
    name: str


@pytest.mark.parametrize("value", [None, {"name": "a"}])
async def test_a_default_has_the_askers_type(value: Any, timed: Store, clock: FakeClock):  # rule R11
    def node(state: Any) -> Any:
        got = interrupt("q", schema=Choice | None, expires_in=1, on_expire=AnswerWith(value))
        return {"log": [repr(got)]}

    await build(node, timed, clock).run({}, session_id="s")
    clock.advance(1)
    result = await build(node, timed, clock).recover("s")
    assert result.state["log"] == [repr(None if value is None else Choice("a"))]


@pytest.mark.parametrize(
    ("schema", "value"), [(int, "seven"), (bool, None), (Choice, {"nome": "a"}), (Literal["a"], "b")]
)
async def test_a_default_that_does_not_fit_is_refused_where_it_is_asked(schema: Any, value: Any):  # rule R11
    def node(state: Any) -> Any:
        return {"log": [interrupt("q", schema=schema, expires_in=1, on_expire=AnswerWith(value))]}

    with pytest.raises(UsageError, match=r"AnswerWith\(.*\) does not fit the question's schema"):
        await lone(node).run({})


async def test_what_has_expired_is_not_listed(timed: Store, clock: FakeClock):  # rules R11, I12
    graph = build(defaults, timed, clock)
    await graph.run({}, session_id="s")
    assert len(await graph.pending()) == 1
    clock.advance(DAY)
    assert await graph.pending("s") == []
    assert await graph.pending() == []
    assert (await graph.status("s")).interrupts == ()


async def test_it_is_applied_once(timed: Store, clock: FakeClock):  # rule R11
    await build(defaults, timed, clock).run({}, session_id="s")
    clock.advance(DAY)
    runs.clear()
    calls = [_awaited(build(defaults, timed, clock).recover("s")) for _ in range(6)]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert any(isinstance(outcome, RunResult) for outcome in outcomes)
    assert runs == ["defaults"]
    assert (await build(defaults, timed, clock).recover("s")).state["log"] == [7]


async def _awaited(run: Any) -> Any:
    return await run


async def test_answering_another_question_applies_it(timed: Store, clock: FakeClock):  # rule R11
    def other(state: Any) -> Any:
        return {"log": [interrupt("other", key="other")]}

    nodes: dict[str, Node] = {"defaults": defaults, "other": other}
    await together(nodes, store=timed, clock=clock).run({}, session_id="s")
    clock.advance(DAY)
    result = await together(nodes, store=timed, clock=clock).resume("s", {"other": 1})
    assert (result.status, result.state["log"]) == ("done", [7, 1])


async def test_resuming_all_applies_it(timed: Store, clock: FakeClock):  # rules R11, R1
    await build(defaults, timed, clock).run({}, session_id="s")
    clock.advance(DAY)
    assert (await build(defaults, timed, clock).resume("s")).state["log"] == [7]


async def test_new_input_meets_an_unfinished_turn(timed: Store, clock: FakeClock):  # rules R11, R12
    graph = build(defaults, timed, clock)
    await graph.run({}, session_id="s")
    with pytest.raises(PendingInterrupts):
        await graph.run({}, session_id="s")
    clock.advance(DAY)
    for each in (graph, build(defaults, timed, clock)):
        with pytest.raises(UnfinishedRun):
            await each.run({}, session_id="s")
    result = await graph.run({}, session_id="s", on_pending="finish")
    assert (ids(result), result.state["log"]) == (["runnable:g;node:ask#2"], [7])


async def test_new_input_may_abandon_what_has_expired(timed: Store, clock: FakeClock):  # rules R11, R12
    await build(defaults, timed, clock).run({}, session_id="s")
    clock.advance(DAY)
    result = await build(defaults, timed, clock).run({}, session_id="s", on_pending="abandon")
    assert ids(result) == ["runnable:g;node:ask#2"]
    assert (await build(defaults, timed, clock).resume("s", {"q": 1})).state["log"] == [1]


async def test_new_input_may_abandon_what_has_been_found_expired(timed: Store, clock: FakeClock):  # rules R11, R12
    await build(defaults, timed, clock).run({}, session_id="s")
    clock.advance(DAY)
    with pytest.raises(InterruptExpired):
        await build(defaults, timed, clock).resume("s", {"q": 1})
    with pytest.raises(UnfinishedRun):
        await build(defaults, timed, clock).run({}, session_id="s")
    result = await build(defaults, timed, clock).run({}, session_id="s", on_pending="abandon")
    assert (ids(result), result.state["log"]) == (["runnable:g;node:ask#2"], [])
    assert [each.how for each in await timed.read(Audit(SessionRef("s")))] == ["expired", None]


async def test_an_answer_in_time_counts_whenever_it_is_taken_up(timed: Store, clock: FakeClock):  # rules R11, R3, R4
    go = asyncio.Event()

    async def slow(state: Any) -> Any:
        await go.wait()
        return {"log": ["slow"]}

    nodes: dict[str, Node] = {"defaults": defaults, "slow": slow}

    def make() -> CompiledGraph:
        return together(nodes, store=timed, clock=clock, lease_ttl=100 * DAY)

    owner = asyncio.create_task(_awaited(make().run({}, session_id="s")))
    other = make()
    await until(lambda: other.pending("s"))
    follower = asyncio.create_task(_awaited(other.resume("s", {"q": 1})))
    await until(lambda: _none_pending(other))
    clock.advance(2 * DAY)
    go.set()
    assert (await owner).state["log"] == (await follower).state["log"] == [1, "slow"]


async def _none_pending(graph: CompiledGraph) -> bool:
    return not await graph.pending("s")


async def test_running_again_does_not_prolong_it(timed: Store, clock: FakeClock):  # rule R11
    async def ask(key: str, seconds: float | None) -> Any:
        return interrupt(key, key=key, expires_in=seconds, on_expire=AnswerWith("late"))

    async def node(state: Any) -> Any:
        return {"log": list(await asyncio.gather(ask("a", None), ask("b", DAY)))}

    before = await build(node, timed, clock).run({}, session_id="s")
    clock.advance(DAY / 2)
    after = await build(node, timed, clock).resume("s", {"a": 1})
    assert after.interrupts[0].expires == before.interrupts[1].expires
    clock.advance(DAY / 2)
    assert (await build(node, timed, clock).recover("s")).state["log"] == [1, "late"]


async def test_a_default_stays_when_the_code_runs_again(timed: Store, clock: FakeClock):  # rules R11, R5
    def node(state: Any) -> Any:
        first = interrupt("a", expires_in=DAY, on_expire=AnswerWith("late"))
        return {"log": [first, interrupt("b")]}

    await build(node, timed, clock).run({}, session_id="s")
    clock.advance(DAY)
    result = await build(node, timed, clock).recover("s")
    assert ids(result) == ["runnable:g;node:ask#2"]
    assert (await build(node, timed, clock).resume("s", {ids(result)[0]: 2})).state["log"] == ["late", 2]


async def test_it_reaches_nested_frames(timed: Store, clock: FakeClock):  # rules R11, I1
    inner = lone(defaults, name="inner")

    @workflow
    async def child() -> Any:
        return interrupt("child", expires_in=DAY, on_expire=AnswerWith("late"))

    async def runs_child(state: Any) -> Any:
        return {"log": [await current().run(child)]}

    def make() -> CompiledGraph:
        graph = StateGraph(Log, name="g").add_subgraph("sub", inner).add_node("runs", runs_child)
        return graph.add_edge(START, "sub").add_edge(START, "runs").compile(store=timed, clock=clock)

    assert len((await make().run({}, session_id="s")).interrupts) == 2
    clock.advance(DAY)
    assert (await make().recover("s")).state["log"] == [7, "late"]


async def test_a_workflow_reads_a_default_like_an_answer(timed: Store, clock: FakeClock):  # api: resume_value
    @workflow
    async def flow() -> Any:
        if has_resume_value("q"):
            return resume_value("q")
        return interrupt("q", key="q", expires_in=DAY, on_expire=AnswerWith("late"))

    await Runner(flow, store=timed, clock=clock).run(session_id="s")
    clock.advance(DAY)
    assert (await Runner(flow, store=timed, clock=clock).recover("s")).value == "late"


async def test_forks_expire_on_their_own(timed: Store, clock: FakeClock):  # rules R11, C4
    graph = build(defaults, timed, clock)
    await graph.run({}, session_id="s")
    fork = await graph.fork("s")
    await graph.resume("s", {"q": 1})
    clock.advance(DAY)
    assert (await build(defaults, timed, clock).recover(fork)).state["log"] == [7]
    assert (await build(defaults, timed, clock).recover("s")).state["log"] == [1]


async def test_the_next_question_has_its_own_time(timed: Store, clock: FakeClock):  # rule R11
    def first(state: Any) -> Any:
        return {"log": [interrupt("a", key="a", expires_in=DAY, on_expire=AnswerWith("late a"))]}

    def second(state: Any) -> Any:
        return {"log": [interrupt("b", key="b", expires_in=DAY, on_expire=AnswerWith("late b"))]}

    def make() -> CompiledGraph:
        return chain(first, second, store=timed, clock=clock)

    await make().run({}, session_id="s")
    clock.advance(DAY)
    events = await events_of(make().recover("s"))
    assert isinstance(events[-1], Interrupted)
    assert events[-1].interrupts[0].expires == datetime.fromtimestamp(clock() + DAY, UTC)
    clock.advance(DAY)
    assert (await make().recover("s")).state["log"] == ["late a", "late b"]
