"""Workers: what is due is taken up once, wherever it began; what cannot go on here is left as it is."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest

from adjourn import AnswerWith, Runner, UsageError, Worker, current, interrupt, workflow
from adjourn.errors import Conflict, StoreUnavailable, UnfinishedRun
from adjourn.graph import CompiledGraph
from adjourn.runner import WorkerCounts
from adjourn.runner._due import SPREAD
from adjourn.sessions import Sessions, SessionStatus
from adjourn.stores import MemoryStore, SessionRef, Store
from adjourn.stores.kit import Claim, GetHead, ListDue, Load, StoreQuery
from adjourn.testing import FakeClock, FaultStore

from .programs import Gate, asking, begin, held, line, step, steps, turns

T = TypeVar("T")

POLL = 0.01


@asynccontextmanager
async def working(*runners: Runner[Any, Any, Any], poll: float = POLL, **options: Any) -> AsyncGenerator[Worker]:
    """A worker that takes up what is due, until the test leaves."""
    async with Worker(runners, poll=poll, **options) as worker:
        yield worker


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something holds; a test that waits in vain is ended by its time limit."""
    while not await holds():  # noqa: ASYNC110  # what others have stored has no event here
        await asyncio.sleep(0.005)


async def ended(runner: Sessions, *ids: str, status: str = "done") -> None:
    for name in ids:

        async def is_there(name: str = name) -> bool:
            return (await runner.status(name)).status == status

        await until(is_there)


def as_graph(store: Store, **options: Any) -> CompiledGraph:
    """The same graph as others run, for a worker."""
    return asking(store=store, **options)


async def test_a_session_goes_on_when_it_is_answered(store: Store):  # rule R4
    await asking(store=store).run({}, session_id="s")
    async with working(as_graph(store)) as worker:
        await Sessions(store).answer("s", {"go": "yes"}, by="ann")
        await ended(as_graph(store), "s")
    assert (await as_graph(store).state("s"))["answer"] == "yes"
    assert worker.counts == WorkerCounts(done=1)


async def test_what_was_submitted_begins_in_order(store: Store):  # rule V11
    graph = steps("a", store=store)
    for name in ("s", "t"):
        for _ in range(2):
            await graph.submit({}, session_id=name)
    async with working(steps("a", store=store)) as worker:
        await ended(graph, "s", "t")
        await graph.submit({}, session_id="s")
        await until(lambda: _has_done(graph, 3))
    assert worker.counts == WorkerCounts(done=5)
    assert await store.read(ListDue()) == []


async def _has_done(graph: CompiledGraph, times: int) -> bool:
    head = await graph.store.read(GetHead(SessionRef("s")))
    return head is not None and not head.inputs and len((await graph.state("s"))["done"]) == times


async def test_what_has_failed_or_was_cancelled_is_left_to_people(store: Store):  # rule R12
    def broken(state: Mapping[str, Any]) -> dict[str, Any]:
        raise ValueError("no")

    failing = line(("a", broken), store=store)
    with pytest.raises(ValueError, match="no"):
        await failing.run({}, session_id="failed")
    await asking(store=store).run({}, session_id="cancelled")
    await asking(store=store).cancel("cancelled")
    with pytest.raises(UnfinishedRun):
        await steps("a", store=store).advance("failed")
    with pytest.raises(UnfinishedRun):
        await asking(store=store).advance("cancelled")
    assert (await asking(store=store).status("cancelled")).status == "cancelled"
    assert (await steps("a", store=store).recover("failed")).status == "done"
    async with working(as_graph(store)):
        await Sessions(store).answer("cancelled", {"go": 1})  # a person moves it
        await ended(Sessions(store), "cancelled")


async def test_nothing_is_made_for_a_session_that_is_not_to_go_on(store: Store):  # rule R12
    made: list[str] = []

    def deps(status: SessionStatus) -> str:
        made.append(status.status)
        return "deps"

    graph = line(("a", _fails))
    with pytest.raises(ValueError, match="no"):
        await Runner(graph, store=store).run({}, session_id="s")
    runner = Runner(graph, store=store, deps=deps)
    with pytest.raises(UnfinishedRun):
        await runner.advance("s")
    await runner.edit("s", {"done": ["edited"]})
    assert made == []
    with pytest.raises(ValueError, match="no"):
        await runner.recover("s")
    assert made == ["cancelled"]


def _fails(state: Mapping[str, Any]) -> dict[str, Any]:
    raise ValueError("no")


async def test_a_question_that_expires_gets_its_default_once(timed: Store, clock: FakeClock):  # rule R11
    runs: list[Any] = []

    async def ask(state: Mapping[str, Any]) -> dict[str, Any]:
        answer = interrupt("Go on?", key="go", expires_in=60, on_expire=AnswerWith("no"))
        runs.append(answer)
        return {"answer": answer, "done": ["ask"]}

    graph, *others = [line(("ask", ask), store=timed, clock=clock) for _ in range(3)]
    for number in range(3):
        await graph.run({}, session_id=f"s{number}")
    async with working(others[0]), working(others[1]):
        clock.advance(61)
        await ended(graph, "s0", "s1", "s2")
    assert runs == ["no", "no", "no"]
    assert [each.outcome for each in await graph.audit("s0")] == ["expired"]


async def test_a_run_whose_owner_is_gone_is_finished(timed: Store, clock: FakeClock):  # rule C8, failures 17
    gate = Gate()
    lost = begin(line(("a", step("a")), ("b", held("b", gate)), store=timed, clock=clock).run({}, session_id="s"))
    await gate.reached.wait()
    clock.advance(31)
    graph = steps("a", "b", store=timed, clock=clock)
    async with working(graph):
        await ended(graph, "s")
    gate.opened.set()
    await asyncio.wait([lost])
    assert (await graph.state("s"))["done"] == ["a", "b"]


async def test_a_crash_loop_is_failed_and_others_go_on(timed: Store, clock: FakeClock):  # rule C8, failures 23
    graph = as_graph(timed, clock=clock)
    for name in ("bad", "good"):
        await graph.run({}, session_id=name)
        await graph.answer(name, {"go": 1})
    head = await timed.read(GetHead(SessionRef("bad")))
    assert head is not None
    for number in range(5):  # as processes do that die before they have written anything
        await timed.write(Claim(ref=SessionRef("bad"), owner=f"dead {number}", ttl=10, after=head.checkpoint))
        clock.advance(11)
    async with working(as_graph(timed, clock=clock), concurrency=1) as worker:
        await ended(graph, "bad", status="failed")
        await ended(graph, "good")
    assert worker.counts == WorkerCounts(done=1, failed=1)
    assert await timed.read(ListDue()) == []


async def test_a_failed_run_is_its_sessions_business(store: Store, caplog: pytest.LogCaptureFixture):
    def ask(how: str) -> Any:
        async def node(state: Mapping[str, Any]) -> dict[str, Any]:
            interrupt("Go on?", key="go")
            match how:
                case "raise":
                    raise ValueError("broken\nline")
                case "exit":
                    sys.exit(3)
                case _:
                    return {"done": [how]}

        return node

    programs = {how: line(("ask", ask(how)), name=how, store=store) for how in ("raise", "exit", "well")}
    for how, graph in programs.items():
        await graph.run({}, session_id=how)
    async with working(*programs.values(), concurrency=1) as worker:
        for how in ("raise", "exit", "well"):
            await Sessions(store).answer(how, {"go": 1})
        await ended(programs["raise"], "raise", "exit", status="failed")
        await ended(programs["well"], "well")
    assert worker.counts == WorkerCounts(done=1, failed=2)
    assert "raise: failed after" in caplog.text
    assert "ValueError: broken" in caplog.text
    assert "broken\nline" not in caplog.text


async def test_what_cannot_go_on_here_is_left_as_it_is(store: Store, caplog: pytest.LogCaptureFixture):  # rule R17
    @workflow
    async def using(input: str) -> Any:
        return [current().deps, interrupt("ok?", key="q")]

    await Runner(using, store=store).run("x", session_id="s", deps="desk")
    await Runner(using, store=store).run("x", session_id="t")
    await Sessions(store).answer("s", {"q": 1})
    before = await store.read(GetHead(SessionRef("s")))
    async with working(Runner(using, store=store), concurrency=1) as worker:
        await Sessions(store).answer("t", {"q": 1})
        await ended(Sessions(store), "t")  # the other one is not in its way
        for _ in range(3):  # and is tried again, and again
            await asyncio.sleep(0.05)
        assert await store.read(GetHead(SessionRef("s"))) == before
    assert worker.counts == WorkerCounts(done=1, left_alone=1)
    assert caplog.text.count("s: cannot go on here") == 1
    async with working(Runner(using, store=store, deps="other")):
        await ended(Sessions(store), "s")


async def test_those_left_alone_do_not_hide_the_others(store: Store):
    @workflow
    async def using(input: str) -> Any:
        return [current().deps, interrupt("ok?", key="q")]

    for number in range(30):
        await Runner(using, store=store).run("x", session_id=f"s{number}", deps="desk")
        await Sessions(store).answer(f"s{number}", {"q": 1})
    await Runner(using, store=store).run("x", session_id="last")
    await Sessions(store).answer("last", {"q": 1})
    async with working(Runner(using, store=store), concurrency=2, poll=60) as worker:
        await ended(Sessions(store), "last")
    assert worker.counts.done == 1


async def test_a_program_that_is_not_ours_is_not_touched(store: Store):
    await asking(store=store).run({}, session_id="s")
    await Sessions(store).answer("s", {"go": "yes"})
    other = steps("a", name="other", store=store)
    await other.run({}, session_id="t")
    before = await store.read(GetHead(SessionRef("s")))
    async with working(other):
        await asyncio.sleep(5 * POLL)
    assert await store.read(GetHead(SessionRef("s"))) == before
    async with working(other, as_graph(store)):
        await ended(as_graph(store), "s")


async def test_several_stores_and_apps_at_once(store: Store):
    shop, desk = as_graph(store, app_name="shop"), as_graph(store, app_name="desk")
    elsewhere = as_graph(MemoryStore())
    graphs = [shop, desk, elsewhere]
    for graph in graphs:
        await graph.run({}, session_id="s")
    async with working(*graphs) as worker:
        for graph in graphs:
            await graph.answer("s", {"go": graph.app_name})
        for graph in graphs:
            await ended(graph, "s")
    assert [(await graph.state("s"))["answer"] for graph in graphs] == ["shop", "desk", "adjourn"]
    assert worker.counts.done == 3


async def test_runners_are_replaced_and_runs_go_on_as_they_began():
    store, begun, goes_on = MemoryStore(), asyncio.Event(), asyncio.Event()

    def version(name: str) -> Runner[Any, Any, Any]:
        @workflow(name="flow")
        async def flow(input: str) -> str:
            if input == "slow":
                begun.set()
                await goes_on.wait()
            return name

        return Runner(flow, store=store)

    old, new = version("old"), version("new")
    async with working(old, poll=1000.0) as worker:
        await old.submit("slow", session_id="a")
        await begun.wait()
        worker.replace(new)
        await old.submit("quick", session_id="b")
        await ended(new, "b")
        goes_on.set()
        await ended(new, "a")
        with pytest.raises(UsageError, match="on the same stores"):
            worker.replace(Runner(new.program, store=MemoryStore()))
        assert worker.runners == (new,)
    assert [(await new.recover(name)).value for name in ("a", "b")] == ["old", "new"]


async def test_hints_wake_it_long_before_it_would_look(store: Store):
    graph = as_graph(store)
    await graph.run({}, session_id="s")
    async with working(as_graph(store), poll=3600):
        await graph.answer("s", {"go": 1})
        await ended(graph, "s")


async def test_without_hints_it_looks_now_and_then(store: Store):
    graph = as_graph(store)
    await graph.run({}, session_id="s")
    async with working(as_graph(Leaving(store))):
        await graph.answer("s", {"go": 1})
        await ended(graph, "s")


async def test_no_more_than_its_concurrency_at_once(store: Store):
    at_once, most = 0, 0

    async def ask(state: Mapping[str, Any]) -> dict[str, Any]:
        nonlocal at_once, most
        interrupt("Go on?", key="go")
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0)
        at_once -= 1
        return {"done": ["ask"]}

    graph = line(("ask", ask), store=store)
    ids = [f"s{number}" for number in range(9)]
    for name in ids:
        await graph.run({}, session_id=name)
        await graph.answer(name, {"go": 1})
    async with working(line(("ask", ask), store=store), concurrency=2):
        await ended(graph, *ids)
    assert most <= 2


async def test_no_more_of_one_user_than_one_may_have(store: Store):
    gates = {user: Gate() for user in ("ann", "bob")}

    async def ask(state: Mapping[str, Any]) -> dict[str, Any]:
        interrupt("Go on?", key="go")
        await gates[current().user_id or ""].wait()
        return {"done": ["ask"]}

    graph = line(("ask", ask), store=store)
    for name, user in (("a1", "ann"), ("a2", "ann"), ("a3", "ann"), ("b1", "bob")):
        await graph.run({}, session_id=name, user_id=user)
        await graph.answer(name, {"go": 1})
    async with working(line(("ask", ask), store=store), concurrency=3, per_user=1):
        await asyncio.gather(*[gate.reached.wait() for gate in gates.values()])
        running = [each.user_id for each in await graph.sessions(status="running")]
        assert sorted(running, key=str) == ["ann", "bob"]  # and the third place is free
        for gate in gates.values():
            gate.opened.set()
        await ended(graph, "a1", "a2", "a3", "b1")


async def test_a_session_with_a_long_queue_does_not_keep_others_waiting(store: Store):  # rule V11
    """Its inputs have waited longest, and there is one place: others still come in between."""
    order: list[str] = []

    @workflow
    async def work(_: int) -> None:
        order.append(current().session_id)

    runner = Runner(work, store=store)
    for number in range(40):
        await runner.submit(number, session_id="many")
    for name in ("one", "two"):
        await runner.submit(0, session_id=name)
    async with working(Runner(work, store=store), concurrency=1) as worker:
        await ended(runner, "one", "two")
        await worker.stop()
    both = max(order.index("one"), order.index("two"))
    assert order[:both].count("many") < 40


async def test_of_many_workers_one_takes_a_session(store: Store):  # rule R3
    runs: list[str] = []

    async def ask(state: Mapping[str, Any]) -> dict[str, Any]:
        interrupt("Go on?", key="go")
        runs.append(current().session_id)
        return {"done": ["ask"]}

    graph = line(("ask", ask), store=store)
    ids = [f"s{number}" for number in range(30)]
    for name in ids:
        await graph.run({}, session_id=name)
    async with (
        working(line(("ask", ask), store=store)) as one,
        working(line(("ask", ask), store=store)) as two,
        working(line(("ask", ask), store=store)) as three,
    ):
        for name in ids:
            await graph.answer(name, {"go": 1})
        await ended(graph, *ids)
    assert sorted(runs) == sorted(ids)
    assert sum(worker.counts.done for worker in (one, two, three)) == 30


class Listing(MemoryStore):
    """A store that notes how many sessions a worker wants to choose from, and what it loads."""

    def __init__(self) -> None:
        super().__init__()
        self.limits: list[int] = []
        self.loads = 0

    async def read(self, query: StoreQuery[T]) -> T:
        asked: object = query
        if isinstance(asked, ListDue):
            self.limits.append(asked.limit)
        self.loads += isinstance(asked, Load)
        return await super().read(query)


async def test_a_worker_that_has_little_room_chooses_among_as_many():
    gate, store = Gate(), Listing()
    graph = line(("hold", held("hold", gate)), store=store)
    async with working(graph, concurrency=2):
        await graph.submit({}, session_id="s")
        await gate.reached.wait()
        store.limits.clear()
        await graph.submit({}, session_id="t")
        while not store.limits:  # noqa: ASYNC110  # nothing tells
            await asyncio.sleep(0)
        gate.opened.set()
        await ended(graph, "s", "t")
    assert set(store.limits) == {2 * SPREAD}


async def test_a_session_that_has_no_record_yet_is_begun_without_loading_it():
    store = Listing()
    graph = steps("one", store=store)
    await graph.submit({}, session_id="s")
    store.loads = 0
    async with working(graph) as worker:
        while not worker.counts.done:  # noqa: ASYNC110  # nothing tells
            await asyncio.sleep(0)
    assert store.loads == 0


class Leaving(FaultStore):
    """A store that cannot list anything while it is away."""

    is_away = False

    def __init__(self, inner: Store) -> None:
        super().__init__(inner, fail_at=0, times=0)

    async def read(self, query: StoreQuery[T]) -> T:
        if self.is_away and isinstance(query, ListDue):
            raise StoreUnavailable("it", "it is away")
        return await super().read(query)


@pytest.mark.parametrize("when", ["at the start", "later"])
async def test_a_store_that_is_away_is_waited_for(  # rule C11, failures 16
    store: Store, caplog: pytest.LogCaptureFixture, when: str
):
    leaving, graph = Leaving(store), as_graph(store)
    await graph.run({}, session_id="s")
    leaving.is_away = when == "at the start"
    async with working(as_graph(leaving)):
        leaving.is_away = True
        await until(lambda: _is_true("is away" in caplog.text))
        await graph.answer("s", {"go": 1})
        leaving.is_away = False
        await ended(graph, "s")
    assert caplog.text.count("the store of app adjourn is away") == 1
    assert caplog.text.count("adjourn is back") == 1


async def _is_true(value: bool) -> bool:
    return value


async def test_a_session_that_cannot_be_read_now_is_tried_again(store: Store):
    away = FaultStore(store, fail_at=1, times=3, mode="before")
    graph = as_graph(store)
    await graph.run({}, session_id="s")
    await graph.answer("s", {"go": 1})
    async with working(as_graph(away, store_timeout=0.05)):
        await ended(graph, "s")


# Stopping


async def test_what_is_stopped_is_finished_by_others_at_once(store: Store):  # failures 25
    gate = Gate()
    graph = line(("ask", _ask), ("b", held("b", gate)), ("c", step("c")), store=store)
    await graph.run({}, session_id="s")
    await graph.answer("s", {"go": 1})
    async with working(graph) as worker:
        await gate.reached.wait()
        stopping = asyncio.create_task(worker.stop())
        await turns()
        assert worker.is_stopping
        gate.opened.set()
        await stopping
    assert worker.counts == WorkerCounts(handed_over=1)
    assert (await graph.status("s")).status == "queued"
    other = line(("ask", _ask), ("b", held("b", gate)), ("c", step("c")), store=store)
    async with working(other):
        await ended(other, "s")
    assert (await other.state("s"))["done"] == ["b", "c"]
    assert gate.passed == 1


async def _ask(state: Mapping[str, Any]) -> dict[str, Any]:
    return {"answer": interrupt("Go on?", key="go")}


async def test_after_its_grace_a_step_is_cut_off(store: Store):  # failures 25
    gate = Gate()
    graph = line(("ask", _ask), ("b", held("b", gate)), store=store)
    await graph.run({}, session_id="s")
    await graph.answer("s", {"go": 1})
    async with working(graph, grace=0.01) as worker:
        await gate.reached.wait()
    assert worker.counts == WorkerCounts(handed_over=1)
    gate.opened.set()
    async with working(graph):
        await ended(graph, "s")


async def test_a_cancelled_worker_hands_its_runs_over(store: Store):
    gate = Gate()
    graph = line(("ask", _ask), ("b", held("b", gate)), store=store)
    await graph.run({}, session_id="s")
    await graph.answer("s", {"go": 1})
    working = asyncio.create_task(Worker(graph, poll=POLL).run(install_signal_handlers=False))
    await gate.reached.wait()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert (await graph.status("s")).status == "queued"


async def test_it_can_be_stopped_from_another_thread_and_run_again(store: Store):
    graph = as_graph(store)
    worker = Worker(graph, poll=POLL)
    for name in ("s", "t"):
        await graph.run({}, session_id=name)
        await graph.answer(name, {"go": 1})
        running = asyncio.create_task(asyncio.to_thread(worker.run_sync))
        await ended(graph, name)
        await asyncio.to_thread(worker.stop_sync)
        await running
    assert worker.counts.done == 2
    await worker.stop()  # it does not run, so there is nothing to do


async def test_it_runs_once_at_a_time(store: Store):
    async with working(as_graph(store)) as worker:
        with pytest.raises(UsageError, match="running already"):
            await worker.run()
        with pytest.raises(UsageError, match="running already"):
            async with worker:
                pass
        await as_graph(store).run({}, session_id="s")
        await Sessions(store).answer("s", {"go": "yes"})
        await ended(as_graph(store), "s")  # It is still at work, and can be left.
    assert worker.counts.done == 1


class Silent(MemoryStore):
    """A store that never says what is due."""

    def __init__(self) -> None:
        super().__init__()
        self.was_asked = asyncio.Event()

    async def read(self, query: StoreQuery[T]) -> T:
        if isinstance(query, ListDue):
            self.was_asked.set()
            await asyncio.Event().wait()
            raise AssertionError(query)
        return await super().read(query)


async def test_one_that_was_not_entered_in_time_does_not_go_on():
    store = Silent()
    worker = Worker(as_graph(store), poll=POLL)

    async def enter() -> None:
        async with worker:
            raise AssertionError("it has looked")

    before = asyncio.all_tasks()
    entering = asyncio.create_task(enter())
    await store.was_asked.wait()
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering
    await asyncio.sleep(0)  # what was cancelled takes a turn of the loop
    assert asyncio.all_tasks() == before
    await worker.stop()  # it does not run


# Wrong use


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"concurrency": 0}, "concurrency=0"),
        ({"concurrency": "2"}, "concurrency='2'"),
        ({"per_user": 0}, "per_user=0"),
        ({"poll": 0}, "poll=0"),
        ({"grace": -1}, "grace=-1"),
    ],
)
def test_options_that_cannot_be_used(options: dict[str, Any], told: str):
    with pytest.raises(UsageError, match=told):
        Worker(as_graph(MemoryStore()), **options)


def test_runners_that_cannot_be_used():
    with pytest.raises(UsageError, match="at least one runner"):
        Worker([])
    with pytest.raises(UsageError, match="give runners"):
        Worker(3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match="not a Runner"):
        Worker([_ask])  # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match="in memory"):
        Worker(asking())
    store = MemoryStore()
    with pytest.raises(UsageError, match="Two runners"):
        Worker([as_graph(store), as_graph(store)])


async def test_a_store_that_cannot_be_used_is_an_error_at_the_start(store: Store):
    class Wrong(FaultStore):
        async def read(self, query: StoreQuery[T]) -> T:
            if isinstance(query, ListDue):
                raise UsageError("a wrong schema")
            return await super().read(query)

    with pytest.raises(UsageError, match="wrong schema"):
        await Worker(as_graph(Wrong(store, fail_at=0, times=0))).run(install_signal_handlers=False)


async def test_a_store_that_cannot_be_used_does_not_let_anybody_work_beside_it(store: Store):
    class Wrong(FaultStore):
        async def read(self, query: StoreQuery[T]) -> T:
            if isinstance(query, ListDue):
                raise UsageError("a wrong schema")
            return await super().read(query)

    with pytest.raises(UsageError, match="wrong schema"):
        async with working(as_graph(Wrong(store, fail_at=0, times=0))):
            pytest.fail("it has begun")


async def test_a_store_that_hangs_does_not_keep_it_from_stopping(store: Store):
    hanging = asyncio.Event()

    class Hanging(FaultStore):
        async def read(self, query: StoreQuery[T]) -> T:
            if isinstance(query, ListDue):
                hanging.set()
                return await asyncio.get_running_loop().create_future()
            return await super().read(query)

    worker = Worker(as_graph(Hanging(store, fail_at=0, times=0)))
    running = asyncio.create_task(worker.run(install_signal_handlers=False))
    await hanging.wait()
    await worker.stop()
    assert await running == WorkerCounts()


async def test_a_store_that_refuses_while_it_stops_is_still_an_error(store: Store):
    asked = asyncio.Event()

    class Wrong(FaultStore):
        async def read(self, query: StoreQuery[T]) -> T:
            if not isinstance(query, ListDue):
                return await super().read(query)
            asked.set()
            try:
                return await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                raise UsageError("a wrong schema") from None

    worker = Worker(as_graph(Wrong(store, fail_at=0, times=0)))
    running = asyncio.create_task(worker.run(install_signal_handlers=False))
    await asked.wait()
    await worker.stop()
    with pytest.raises(UsageError, match="wrong schema"):
        await running


async def test_code_that_ignores_its_cancellation_can_be_given_up(store: Store):  # rule C6
    begun, gate = asyncio.Event(), asyncio.Event()

    @workflow
    async def deaf(input: str) -> str:
        begun.set()
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue
        return "late"

    run = Runner(deaf, store=store).run("x", session_id="s")
    run.detach()
    await run.start()
    await begun.wait()
    await run.give_up()
    assert [due.session for due in await store.read(ListDue())] == ["s"]
    gate.set()
    with pytest.raises(Conflict, match="given it up"):
        await run
    async with working(Runner(deaf, store=store)):
        await ended(Sessions(store), "s")


@pytest.fixture(autouse=True)
def worker_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "adjourn.worker")
