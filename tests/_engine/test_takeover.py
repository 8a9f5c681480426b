"""An answer outlives whoever took it: nobody is asked again, and nobody's answer counts twice."""

import asyncio
import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from adjourn import AlreadyResumed, Runner, SessionBusy, current, interrupt, once, workflow
from adjourn.errors import Conflict
from adjourn.graph import CompiledGraph
from adjourn.stores import SQLiteStore
from adjourn.testing import FakeClock
from tests._engine.asking import ids, lone, together
from tests.conftest import MakeStore


async def test_a_dead_resumers_answer_is_not_asked_for_again(make_store: MakeStore):  # rule R4, failure B17
    clock = FakeClock()
    store = make_store(clock)
    got: list[Any] = []
    reached, go = asyncio.Event(), asyncio.Event()

    async def node(state: Any) -> Any:
        got.append(interrupt("q", key="q"))
        reached.set()
        await go.wait()
        return {"log": [got[-1]]}

    def build() -> CompiledGraph:
        return lone(node, store=store, clock=clock)

    await build().run({}, session_id="s")
    frozen = asyncio.create_task(_awaited(build().resume("s", {"q": "yes"}, by="ann")))
    await reached.wait()
    with pytest.raises(AlreadyResumed) as raised:
        await build().resume("s", {"q": "no"})
    assert (raised.value.live, raised.value.by) == (True, "ann")
    with pytest.raises(SessionBusy):
        await build().recover("s")
    clock.advance(60)
    with pytest.raises(AlreadyResumed) as raised:
        await build().resume("s", {"q": "no"})
    assert not raised.value.live
    go.set()
    result = await build().recover("s")
    assert (result.status, result.state["log"]) == ("done", ["yes"])
    assert got == ["yes", "yes"]
    with pytest.raises(Conflict):
        await frozen
    assert (await build().recover("s")).state["log"] == ["yes"]


async def test_a_run_that_was_taken_over_cannot_ask(make_store: MakeStore):  # rules R4, C6
    clock = FakeClock()
    store = make_store(clock)
    reached, go = asyncio.Event(), asyncio.Event()
    attempts: list[int] = []

    @workflow
    async def flow() -> Any:
        attempts.append(1)
        if len(attempts) == 1:
            reached.set()
            await go.wait()
            current().emit("from the dead")
        return interrupt("q", key="q")

    frozen = asyncio.create_task(_awaited(Runner(flow, store=store, clock=clock).run(session_id="s")))
    await reached.wait()
    clock.advance(60)
    other = Runner(flow, store=store, clock=clock)
    result = await other.recover("s")
    go.set()
    with pytest.raises(Conflict):
        await frozen
    assert ids(result) == ["runnable:flow"]
    assert [asked.id for asked in await other.pending("s")] == ids(result)
    assert (await other.resume("s", {"q": "yes"})).value == "yes"


async def _awaited(run: Any) -> Any:
    return await run


# Many processes, one question


def pay(state: Any) -> Any:
    answer = interrupt("Pay?", key="pay", schema=bool)
    if answer:
        with Path(os.environ["LEDGER"]).open("a") as ledger:
            ledger.write(f"{current().idempotency_key}\n")
    return {"log": [answer]}


RACER = """
import asyncio, sys
from adjourn import AlreadyResumed
from adjourn.stores import SQLiteStore
from tests._engine.asking import lone
from tests._engine.test_takeover import pay

async def main(path, rounds, answer):
    store = SQLiteStore(path)
    graph = lone(pay, store=store)
    print("ready", flush=True)
    sys.stdin.readline()
    for n in range(rounds):
        try:
            result = await graph.resume(f"s{n}", {"pay": answer})
            print(n, "won", result.state["log"][0], flush=True)
        except AlreadyResumed:
            print(n, "lost", flush=True)
    await store.close()

asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3] == "yes"))
"""


def race(path: Path, ledger: Path, rounds: int, answers: list[str]) -> list[str]:
    """Let a process for each answer answer the same questions, and give what they said."""
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(path), str(rounds), answer],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "LEDGER": str(ledger)},
        )
        for answer in answers
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    return [line for out in _finish(racers) for line in out.splitlines()]


def _finish(racers: list[subprocess.Popen[str]]) -> list[str]:
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    return [racer.communicate(timeout=600)[0] for racer in racers]


async def test_of_many_processes_exactly_one_proceeds(tmp_path: Path):  # rule R3, failures A1 and A4
    path, ledger, rounds = tmp_path / "s.db", tmp_path / "ledger", 10
    store = SQLiteStore(path)
    for n in range(rounds):
        await lone(pay, store=store).run({}, session_id=f"s{n}")
    said = await asyncio.to_thread(race, path, ledger, rounds, ["yes", "no", "yes", "no"])
    for n in range(rounds):
        outcomes = [line.split()[1:] for line in said if line.split()[0] == str(n)]
        won = [outcome for outcome in outcomes if outcome[0] == "won"]
        assert len(outcomes) == 4
        assert len(won) == 1
        result = await lone(pay, store=store).recover(f"s{n}")
        assert [str(each) for each in result.state["log"]] == won[0][1:]
    paid = ledger.read_text().split() if ledger.exists() else []
    approved = sum(line.split()[1:] == ["won", "True"] for line in said)
    assert len(paid) == approved
    assert all(count == 1 for count in Counter(paid).values())
    await store.close()


async def test_a_kept_call_in_a_thread_does_not_hold_up_a_run_that_was_taken_over(make_store: MakeStore):  # rule C6
    clock = FakeClock()
    store = make_store(clock)
    reached, go, release = asyncio.Event(), asyncio.Event(), threading.Event()
    loop, passes = asyncio.get_running_loop(), Counter[str]()

    @once
    def charge() -> str:
        loop.call_soon_threadsafe(reached.set)
        release.wait(20)
        return "charged"

    @once
    async def look() -> str:
        return "looked"

    def slow(state: Any) -> Any:
        passes["slow"] += 1
        return {"log": [charge() if passes["slow"] == 1 else "again"]}

    async def beside(state: Any) -> Any:
        passes["beside"] += 1
        if passes["beside"] == 1:
            await go.wait()
            await look()  # It notices that the session was taken over, and ends the run.
        return {"log": ["beside"]}

    def build() -> CompiledGraph:
        return together({"slow": slow, "beside": beside}, store=store, clock=clock)

    frozen = asyncio.create_task(_awaited(build().run({}, session_id="s")))
    await reached.wait()
    clock.advance(60)
    assert (await build().recover("s")).state["log"] == ["again", "beside"]
    go.set()
    while passes["looked"] < 200:
        passes["looked"] += 1
        await asyncio.sleep(0.001)
    release.set()
    with pytest.raises(Conflict):
        await asyncio.wait_for(frozen, 10)
