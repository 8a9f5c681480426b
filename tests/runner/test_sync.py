"""Runs from sync code, from inside a running event loop, and from several threads at once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from adjourn import AlreadyResumed, CheckpointNotFound, NodeEnd, Runner, SessionBusy, interrupt, workflow
from adjourn.events import Done, Failed, Interrupted
from adjourn.graph import START, StateGraph
from adjourn.stores import MemoryStore, SQLiteStore, Store

from . import programs
from .programs import asking, line, side_by_side, step, steps


@pytest.fixture(params=["memory", "sqlite"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A store, made and closed outside of any event loop."""
    store: Store = MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "shared.db")
    yield store
    asyncio.run(store.close())


async def fails(state: Mapping[str, Any]) -> None:
    raise ValueError("no luck")


def lively() -> set[str]:
    """The names of threads that belong to runs."""
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("adjourn-run")}


# At the end of the process

SCRIPT = """
import asyncio, os, sys, time
from adjourn import Runner, current, workflow
from adjourn.graph import START, MessagesState, StateGraph

@workflow
async def talks(path):
    for number in range(3):  # one is read, the next is handed over, and with the third it waits for its reader
        current().emit(number)
    open(path, "w").close()
    await asyncio.sleep(60)

def blocks(state):
    open("begun", "w").close()
    time.sleep(60)

runs = {
    "talks": Runner(talks, store="sqlite:///runs.db").run("begun", session_id="s"),
    "blocks": StateGraph(MessagesState).add_node(blocks).add_edge(START, "blocks").compile().run({}),
}
def begun():
    while not os.path.exists("begun"):
        time.sleep(0.005)

def leave(run):
    for _ in run:
        begun()
        break

def leave_for_good(run):
    for _ in run:
        begun()
        sys.exit(3)

if sys.argv[2] == "break":
    leave(runs[sys.argv[1]])
elif sys.argv[2] == "exit":
    leave_for_good(runs[sys.argv[1]])
else:
    events = iter(runs[sys.argv[1]])
    next(events)
    begun()
    if sys.argv[2] == "raise":
        raise ValueError("no luck")
"""


ENDINGS = [("end", 0, ""), ("raise", 1, "ValueError: no luck\n"), ("break", 0, ""), ("exit", 3, "")]


@pytest.mark.parametrize("program", ["talks", "blocks"])
@pytest.mark.parametrize(("ending", "code", "said"), ENDINGS)
def test_a_script_that_leaves_a_loop_half_read_ends_and_its_session_recovers(
    program: str, ending: str, code: int, said: str, tmp_path: Path
):  # rule A14
    line = [sys.executable, "-c", SCRIPT, program, ending]
    ended = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=40)
    assert (ended.returncode, ended.stderr[-len(said) :] if said else ended.stderr) == (code, said)
    if program == "talks":
        runner = Runner(finishes, store=SQLiteStore(tmp_path / "runs.db"))
        assert runner.status_sync("s").status == "failed"
        assert runner.recover_sync("s").output == "done"


@workflow(name="talks")
async def finishes(path: str) -> str:
    return "done"


# Without a loop


def test_run_resume_and_recover_work_in_sync_code(shared: Store):  # rule A14
    graph = asking(store=shared)
    paused = graph.run_sync({}, session_id="s")
    assert paused.status == "interrupted"
    done = graph.resume_sync("s", {"go": "yes"}, by="ann", checkpoint_id=paused.checkpoint_id)
    assert done.state["answer"] == "yes"
    assert graph.recover_sync("s").state["done"] == ["before", "ask", "after"]


def test_sync_calls_raise_what_async_ones_do(shared: Store):
    graph = asking(store=shared)
    for call in (graph.resume_sync, graph.recover_sync):
        with pytest.raises(CheckpointNotFound):
            call("nobody")
    with pytest.raises(ValueError, match="no luck"):
        line(("a", fails), store=shared).run_sync({}, session_id="s")
    assert steps("a", store=shared).recover_sync("s").state["done"] == ["a"]


def test_a_workflow_runs_in_sync_code(shared: Store):
    @workflow
    async def adds(numbers: list[int]) -> int:
        return sum(numbers) + interrupt("How much more?", schema=int)

    runner = Runner(adds, store=shared)
    paused = runner.run_sync([1, 2])
    assert runner.resume_sync(paused.session_id, {paused.interrupts[0].id: 4}).value == 7


def test_many_turns_in_sync_code_each_have_a_loop_of_their_own(shared: Store):
    graph = steps("a", store=shared)
    for turn in range(1, 6):
        assert graph.run_sync({}, session_id="s").state["done"] == ["a"] * turn


def test_a_plain_for_reads_a_run(shared: Store):  # rule A14
    graph = asking(store=shared)
    paused = list(graph.run({}, session_id="s"))
    assert isinstance(paused[-1], Interrupted)
    done = list(graph.resume("s", {"go": 1}))
    assert [event.node for event in done if isinstance(event, NodeEnd)] == ["ask", "after"]
    assert isinstance(done[-1], Done)
    numbers = [event.seq for event in [*paused, *done] if event.seq is not None]
    assert numbers == list(range(1, len(numbers) + 1))
    assert not lively()


def test_a_plain_for_raises_after_the_error_event(shared: Store):
    seen: list[Any] = []
    with pytest.raises(ValueError, match="no luck"):
        seen.extend(line(("a", fails), store=shared).run({}, session_id="s"))
    assert isinstance(seen[-1], Failed)
    with pytest.raises(CheckpointNotFound):
        list(asking(store=shared).resume("nobody"))
    assert not lively()


def test_leaving_a_plain_for_early_stops_the_run_at_its_next_safe_point(shared: Store):
    opened = threading.Event()

    def second(state: Mapping[str, Any]) -> dict[str, Any]:
        opened.wait(120)
        return {"done": ["b"]}

    compiled = line(("a", step("a")), ("b", second), ("c", step("c")), thread=True, store=shared)
    for event in compiled.run({}, session_id="s"):
        if isinstance(event, NodeEnd):
            opened.set()
            break
    assert not lively()  # and when the loop is left, nothing of the run goes on
    status = asyncio.run(compiled.status("s"))
    assert (status.status, status.owner) == ("cancelled", None)
    assert compiled.recover_sync("s").state["done"] == ["a", "b", "c"]


def test_a_plain_for_that_is_left_by_an_exception_stops_the_run(shared: Store):
    graph = steps("a", "b", "c", store=shared)
    with pytest.raises(ZeroDivisionError):
        [1 // 0 for _ in graph.run({}, session_id="s")]
    assert asyncio.run(graph.status("s")).owner is None
    assert not lively()


def test_a_detached_run_goes_on_when_its_plain_for_is_left(shared: Store):
    opened = threading.Event()

    def second(state: Mapping[str, Any]) -> dict[str, Any]:
        opened.wait(120)
        return {"done": ["b"]}

    graph = line(("a", step("a")), ("b", second), ("c", step("c")), thread=True, store=shared)
    run = graph.run({}, session_id="s")
    run.detach()
    for _ in run:
        break
    assert asyncio.run(graph.status("s")).status == "running"
    following = graph.attach("s")
    opened.set()
    assert isinstance(list(following)[-1], Done)


def test_sync_nodes_and_their_questions_work_in_sync_code(shared: Store):
    def asks(state: Mapping[str, Any]) -> dict[str, Any]:
        return {"answer": interrupt("Well?", schema=str)}

    graph = StateGraph(programs.Path, name="sync").add_node("asks", asks).add_edge(START, "asks").compile(store=shared)
    paused = graph.run_sync({}, session_id="s")
    assert graph.resume_sync("s", {paused.interrupts[0].id: "yes"}).state["answer"] == "yes"


# Inside a running loop, as in Jupyter


async def test_sync_calls_work_while_a_loop_is_running(store: Store):  # rule A14
    graph = asking(store=store)
    assert graph.run_sync({}, session_id="s").status == "interrupted"
    assert graph.resume_sync("s", {"go": 1}).status == "done"
    assert graph.recover_sync("s").status == "done"
    assert not lively()


async def test_a_plain_for_works_while_a_loop_is_running(store: Store):  # rule A14
    assert isinstance(list(asking(store=store).run({}, session_id="s"))[-1], Interrupted)
    assert not lively()


async def test_sync_and_async_calls_can_be_mixed_on_one_session(store: Store):  # rule A14
    graph = asking(store=store)
    await graph.run({}, session_id="s")
    assert graph.resume_sync("s", {"go": 1}).status == "done"
    assert (await graph.run({}, session_id="s")).status == "interrupted"
    assert list(graph.resume("s", {"go": 2}))
    assert (await graph.state("s"))["answer"] == 2


async def test_a_sync_node_can_run_another_graph_by_itself(store: Store):
    inner = steps("x", name="inner", store=store)

    def nested(state: Mapping[str, Any]) -> dict[str, Any]:
        return {"done": inner.run_sync({}, session_id="inner").state["done"]}

    outer = StateGraph(programs.Path, name="outer").add_node("nested", nested).add_edge(START, "nested")
    assert (await outer.compile(store=store).run({}, session_id="outer")).state["done"] == ["x"]
    assert (await inner.status("inner")).status == "done"


# Several threads and loops


def in_threads(count: int, work: Callable[[int], Any]) -> list[Any]:
    barrier = threading.Barrier(count)

    def run(number: int) -> Any:
        barrier.wait(120)
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def test_many_threads_run_many_sessions_on_one_graph_and_store(shared: Store):  # rule A14
    wide = side_by_side(*[(name, step(name)) for name in "abcd"], store=shared)

    def work(number: int) -> list[list[str]]:
        return [wide.run_sync({}, session_id=f"s{number}").state["done"] for _ in range(5)]

    for results in in_threads(8, work):
        assert results == [["a", "b", "c", "d", "end"] * turn for turn in range(1, 6)]


def test_many_threads_pause_and_resume_on_one_graph_and_store(shared: Store):  # rule A14
    graph = asking(store=shared)

    def work(number: int) -> Any:
        session = f"s{number}"
        for _ in range(5):
            assert graph.run_sync({}, session_id=session).status == "interrupted"
            assert graph.resume_sync(session, {"go": number}).state["answer"] == number
        return len(asyncio.run(graph.state(session))["done"])

    assert in_threads(8, work) == [15] * 8


def test_of_many_threads_one_resumes(shared: Store):  # rule R3
    ran: list[int] = []

    def after(state: Mapping[str, Any]) -> dict[str, Any]:
        ran.append(state["answer"])
        return {"done": ["after"]}

    compiled = line(("ask", programs.ask), ("after", after), thread=True, store=shared)
    for round_ in range(5):
        session = f"s{round_}"
        compiled.run_sync({}, session_id=session)

        def work(number: int, session: str = session) -> str:
            try:
                return compiled.resume_sync(session, {"go": number}).status
            except AlreadyResumed:
                return "late"

        outcomes = in_threads(6, work)
        assert sorted(outcomes) == ["done", "late", "late", "late", "late", "late"]
    assert len(ran) == 5


def test_of_many_threads_one_runs_a_turn_at_a_time(shared: Store):
    graph = steps("a", "b", store=shared)
    graph.run_sync({}, session_id="s")

    def work(_: int) -> int:
        done = 0
        for _ in range(5):
            try:
                graph.run_sync({}, session_id="s")
                done += 1
            except SessionBusy:
                pass
        return done

    turns = sum(in_threads(4, work)) + 1
    assert asyncio.run(graph.state("s"))["done"] == ["a", "b"] * turns


def test_many_runs_at_once_in_many_loops(shared: Store):  # rule G14
    graph = steps("a", "b", "c", store=shared)

    async def some(number: int) -> set[str]:
        results = await asyncio.gather(
            *[programs.awaited(graph.run({}, session_id=f"{number}.{each}")) for each in range(20)]
        )
        return {"".join(result.state["done"]) for result in results}

    assert in_threads(4, lambda number: asyncio.run(some(number))) == [{"abc"}] * 4
    assert len(asyncio.run(graph.sessions(limit=1000))) == 80
