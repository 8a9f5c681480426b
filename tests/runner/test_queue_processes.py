"""The queue of a session with several processes: whoever dies or races, each input begins one turn, in order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from adjourn import Runner, SessionBusy, once, workflow
from adjourn.errors import CheckpointNotFound, Conflict
from adjourn.stores import SessionRef, SQLiteStore, Store
from adjourn.stores.kit import ListCheckpoints, StoreRequest
from adjourn.testing import FaultStore

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

T = TypeVar("T")


class DeadlyStore(FaultStore):
    """Kills its process at one of its writes, before or after it."""

    async def write(self, request: StoreRequest[T]) -> T:
        self.calls += 1
        if self.calls != self.fail_at:
            return await self.inner.write(request)
        if self.mode == "after":
            await self.inner.write(request)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("dead")


def runner_on(store: Store, ledger: Path) -> Runner:
    """A runner whose turns note their input in a file."""

    @once
    async def note(wish: str) -> str:
        with ledger.open("a") as file:
            file.write(f"{wish}\n")
        return wish

    @workflow(name="desk")
    async def desk(wish: str) -> str:
        return await note(wish)

    return Runner(desk, store=store, lease_ttl=1000.0)


def forked(work: Callable[[], Awaitable[None]]) -> int:
    """Do something in a child process; its process id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        asyncio.run(_awaited(work))
    except BaseException:  # noqa: BLE001  # a child must never return into the tests of its parent
        os._exit(1)
    os._exit(0)


async def _awaited(work: Callable[[], Awaitable[None]]) -> None:
    await work()


def exit_code(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


async def drain(runner: Runner, session: str = "s") -> None:
    """Go on until nothing is left to do, whoever else does the same."""
    while True:
        try:
            status = await runner.status(session)
            if (status.status, status.inputs) == ("done", 0):
                return
            await runner.advance(session)
        except (SessionBusy, Conflict, CheckpointNotFound):
            await asyncio.sleep(0.001)


async def turns(store: Store, session: str = "s") -> list[str]:
    """The inputs that turns have begun with, in order."""
    rows = await store.read(ListCheckpoints(SessionRef(session), source="input"))
    return [row.header.input or "" for row in reversed(rows)]


async def finished(path: Path, ledger: Path) -> list[str]:
    """Finish what a process has left, and return the inputs that turns have begun with."""
    store = SQLiteStore(path)
    await drain(runner_on(store, ledger))
    begun = await turns(store)
    await store.close()
    return begun


@pytest.mark.parametrize("mode", ["before", "after"])
def test_an_input_begins_once_whenever_its_process_is_killed(tmp_path: Path, mode: str):  # rules V11, C8
    killed = 0
    for fail_at in range(1, 12):
        folder = tmp_path / f"{fail_at}"
        folder.mkdir()
        path, ledger = folder / "s.db", folder / "ledger"

        async def work(path: Path = path, ledger: Path = ledger, fail_at: int = fail_at) -> None:
            plain = runner_on(SQLiteStore(path), ledger)
            for wish in "ab":
                await plain.submit(wish, session_id="s", id=wish)
            deadly = DeadlyStore(SQLiteStore(path), fail_at, "after" if mode == "after" else "before")
            await drain(runner_on(deadly, ledger))

        code = exit_code(forked(work))
        killed += code == -signal.SIGKILL
        assert code in (0, -signal.SIGKILL)

        assert asyncio.run(finished(path, ledger)) == ["a", "b"], f"killed {mode} write {fail_at}"
        # What was done but not recorded when the process died is done again: once more, and no more.
        done = ledger.read_text().split()
        assert list(dict.fromkeys(done)) == ["a", "b"]
        assert len(done) <= 3
        if code == 0:
            break
    assert killed >= 5


def test_processes_that_submit_and_go_on_at_once_share_the_work(tmp_path: Path):  # rules V11, C6
    path, ledger = tmp_path / "s.db", tmp_path / "ledger"

    def child(name: str) -> int:
        async def work() -> None:
            store = SQLiteStore(path, synchronous="NORMAL")
            runner = runner_on(store, ledger)
            for number in range(5):
                wish = f"{name}{number}"
                for _ in range(2):
                    await runner.submit(wish, session_id="s", id=wish)
                with contextlib.suppress(SessionBusy, Conflict):
                    await runner.advance("s")
            await drain(runner)
            await store.close()

        return forked(work)

    assert [exit_code(pid) for pid in [child(name) for name in "abcd"]] == [0] * 4

    async def look() -> None:
        store = SQLiteStore(path)
        begun = await turns(store)
        assert sorted(begun) == sorted(f"{name}{number}" for name in "abcd" for number in range(5))
        assert ledger.read_text().split() == begun, "each ran once, in the order in which they began"
        for name in "abcd":
            own = [each for each in begun if each[0] == name]
            assert own == sorted(own), "what one process submitted begins in that order"
        await store.close()

    asyncio.run(look())


def test_a_caller_who_waits_takes_over_from_a_process_that_was_killed(tmp_path: Path):  # rules V11, R4
    path, ledger = tmp_path / "s.db", tmp_path / "ledger"

    async def work() -> None:
        @workflow(name="desk")
        async def desk(wish: str) -> str:
            ledger.write_text("began\n")
            await asyncio.sleep(300)  # until it is killed
            return wish

        await Runner(desk, store=SQLiteStore(path), lease_ttl=1000.0).run("a", session_id="s")

    pid = forked(work)

    async def wait() -> None:
        store = SQLiteStore(path)
        runner = runner_on(store, ledger)
        while not ledger.exists():  # noqa: ASYNC110  # another process writes it
            await asyncio.sleep(0.005)
        waiting = asyncio.create_task(_value(runner))
        while not (await runner.status("s")).inputs:  # noqa: ASYNC110  # what is stored has no event here
            await asyncio.sleep(0.005)
        os.kill(pid, signal.SIGKILL)
        await asyncio.to_thread(os.waitpid, pid, 0)
        assert await waiting == "b"
        assert (await runner.status("s")).status == "done"
        await store.close()

    asyncio.run(wait())
    assert ledger.read_text().split() == ["began", "a", "b"]


async def _value(runner: Runner) -> object:
    return (await runner.run("b", session_id="s", on_busy="queue")).value
