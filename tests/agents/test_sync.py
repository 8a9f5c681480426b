"""Agents from sync code, from threads, and where a loop is running already."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from adjourn import ChatModelAgent, Done, MessageEvent, Runner, current, interrupt, tool
from adjourn.stores import MemoryStore, SQLiteStore, Store
from adjourn.testing import FunctionModel

from .crew import ask, call, chat, ids, note, said


@pytest.fixture(params=["memory", "sqlite"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A store that sync code uses."""
    return MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "sessions.db")


def close(store: Store) -> None:
    asyncio.run(store.close())


def test_sync_code_runs_resumes_and_recovers(kept: Store) -> None:  # rule A14
    runner = Runner(chat("A", call("ask", question="?"), RuntimeError("away"), "end", tools=[ask]), store=kept)
    paused = runner.run_sync("go", session_id="s")
    assert ids(paused) == ["agent:A;tool:ask:c1"]
    with pytest.raises(Exception, match="away"):
        runner.resume_sync("s", {ids(paused)[0]: "y"})
    assert runner.recover_sync("s").output == "end"
    close(kept)


def test_a_plain_for_reads_events(kept: Store) -> None:  # rule A14
    runner = Runner(chat("A", call("note", text="x"), "end", tools=[note]), store=kept)
    events = list(runner.run("go", session_id="s"))
    assert isinstance(events[-1], Done)
    assert [event.message.text for event in events if isinstance(event, MessageEvent)] == ["", "end"]
    close(kept)


def test_a_plain_for_that_fails_raises_at_its_end() -> None:  # rule A14
    heard: list[str] = []

    def read() -> None:
        for event in Runner(chat("A", RuntimeError("away"))).run("go"):
            heard.append(type(event).__name__)  # noqa: PERF401  # it raises at its end

    with pytest.raises(Exception, match="away"):
        read()
    assert heard[-1] == "Failed"


async def test_sync_calls_where_a_loop_runs() -> None:  # rule A14
    runner = Runner(chat("A", "one", "two"))
    assert runner.run_sync("go").output == "one"
    assert [type(event).__name__ for event in runner.run("go")][-1] == "Done"


def test_many_threads_share_one_runner(kept: Store) -> None:  # rule A14
    def answer(request: object) -> str:
        return f"said {current().session_id}"

    runner = Runner(ChatModelAgent("A", model=FunctionModel(answer)), store=kept)

    def one(number: int) -> str:
        return runner.run_sync("go", session_id=f"s{number}").output

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(one, range(24))) == [f"said s{n}" for n in range(24)]
    close(kept)


async def test_many_runs_of_one_agent_at_once(store: Store) -> None:  # rule G14
    def answer(request: object) -> str:
        return f"said {current().session_id}"

    runner = Runner(ChatModelAgent("A", model=FunctionModel(answer)), store=store)

    async def one(number: int) -> str:
        return (await runner.run("go", session_id=f"s{number}")).output

    assert await asyncio.gather(*map(one, range(20))) == [f"said s{n}" for n in range(20)]


async def test_sync_tools_run_in_threads_and_may_ask(store: Store) -> None:  # rule I1
    here = threading.get_ident()
    threads: list[bool] = []

    @tool
    def slow(question: str) -> str:
        """Ask from a thread."""
        threads.append(threading.get_ident() == here)
        current().values["asked"] = question
        return str(interrupt(question))

    runner = Runner(chat("A", call("slow", question="q"), "end", tools=[slow]), store=store)
    paused = await runner.run("go", session_id="s")
    result = await runner.resume("s", {ids(paused)[0]: "y"})
    assert said(result.messages) == ["user: go", "tool: y", "assistant: end"]
    assert threads == [False, False]
    assert (await runner.state("s"))["values"] == {"asked": "q"}


async def test_a_run_is_lazy_and_knows_its_session() -> None:
    runner = Runner(chat("A", "hi"))
    run = runner.run("go")
    assert run.session_id
    result = await run
    assert result.session_id == run.session_id
    assert (await run).output == "hi"


async def test_async_with_closes_a_run(store: Store) -> None:
    opened = asyncio.Event()

    async def answer(_: object) -> str:
        opened.set()
        return "one"

    runner = Runner(ChatModelAgent("A", model=FunctionModel(answer)), store=store)
    async with runner.run("go", session_id="s") as run:
        async for _ in run:
            await opened.wait()
    assert (await runner.status("s")).status == "done"
