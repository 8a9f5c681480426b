"""SIGSTOP past the lease: another process takes over, and the one that wakes up can do no more harm."""

import asyncio
import contextlib
import signal
import sqlite3
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from adjourn.stores import SessionRef, SQLiteStore
from adjourn.stores.protocol import Head
from tests.effort import EFFORT

from .checker import check, pids
from .child import SESSION
from .ledger import Ledger
from .processes import PATIENCE, Nursery, Process, job, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are stopped and found by their pids")

LEASE = 0.4

FROZEN = [
    (workload, durability)
    for workload in (
        "halt_async",
        "halt_thread",
        "halt_loop",
        "halt_once",
        "halt_asking",
        "halt_choice",
        "halt_workflow",
    )
    for durability in ("step", "async", "pause")
    # A loop that is blocked cannot note that its last save is through, so the ledger's order would say nothing.
    if (workload, durability) != ("halt_loop", "async")
]


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger")


async def frozen(nursery: Nursery, folder: Path, workload: str, durability: str = "step") -> Process:
    """A process that is stopped in the middle of a node, with nothing under way to or from the store."""
    child = nursery.start(job("run", workload, folder, lease_ttl=LEASE, durability=durability))
    child.wait_at("inside")
    for _ in range(200):
        child.send_signal(signal.SIGSTOP)
        _wait_until_stopped(child.pid)
        if _can_write(folder / "sessions.db") and await _has_heard(folder):
            return child
        child.send_signal(signal.SIGCONT)
        await asyncio.sleep(0.001)  # let it get on for a moment
    raise AssertionError("it writes all the time")


def _wait_until_stopped(pid: int) -> None:
    patient_until = time.monotonic() + PATIENCE
    while time.monotonic() < patient_until:
        states = [path.read_text().rpartition(")")[2].split()[0] for path in Path(f"/proc/{pid}/task").glob("*/stat")]
        if set(states) == {"T"}:
            return
    raise AssertionError(f"process {pid} does not stop")


async def _has_heard(folder: Path) -> bool:
    """Whether the process has noted the newest record that is stored."""
    head = await _head(folder)
    lines = Ledger(folder / "ledger").lines()
    return head.checkpoint in {line.what for line in lines if line.kind in ("claimed", "committed")}


async def _head(folder: Path) -> Head:
    store = SQLiteStore(folder / "sessions.db")
    try:
        head = await store.head(SessionRef(SESSION))
    finally:
        await store.close()
    assert head is not None
    return head


def _can_write(database: Path) -> bool:
    with contextlib.closing(sqlite3.connect(database, timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        connection.execute("ROLLBACK")
        return True


def taken_over(nursery: Nursery, folder: Path, workload: str, durability: str = "step") -> Process:
    """Another process that has finished the session as soon as the lease was over."""
    taker = nursery.start(job("take_over", workload, folder, durability=durability))
    ended = taker.ended_without_stops()
    assert ended.status == "done", ended
    return taker


async def lease_is_over(folder: Path) -> None:
    async def is_over() -> bool:
        return (await _head(folder)).owner is None

    await until(is_over)


@pytest.mark.parametrize(("workload", "durability"), FROZEN if EFFORT == "proof" else FROZEN[::3])
async def test_a_zombie_is_refused_and_runs_no_more_code(
    nursery: Nursery, tmp_path: Path, ledger: Ledger, workload: str, durability: str
):  # rules C6, I2
    zombie = await frozen(nursery, tmp_path, workload, durability)
    taker = taken_over(nursery, tmp_path, workload, durability)
    before = ledger.lines()
    stored = await check(tmp_path, workload)

    zombie.let_on()
    zombie.send_signal(signal.SIGCONT)
    woken = zombie.ended()

    assert woken.error == "Conflict", woken
    assert [line for line in ledger.lines()[len(before) :] if line.kind != "effect"] == []
    assert pids(ledger.effects("after")) == {taker.pid}
    assert pids(ledger.effects("heard")) <= {taker.pid}
    assert {line.pid for line in ledger.effects("halting")} == {zombie.pid, taker.pid}
    assert len({line.key for line in ledger.effects("halting")}) == 1
    assert await check(tmp_path, workload) == stored


@pytest.mark.parametrize("workload", ["halt_async", "halt_thread", "halt_loop", "halt_once"])
async def test_a_zombie_is_refused_before_its_successor_has_written_anything(
    nursery: Nursery, tmp_path: Path, ledger: Ledger, workload: str
):  # rules C1, C6
    zombie = await frozen(nursery, tmp_path, workload)
    stood = (await _head(tmp_path)).checkpoint
    taker = nursery.start(job("take_over", workload, tmp_path))
    taker.wait_at("inside")
    # The head is where the zombie left it: only the fencing number tells the two apart.
    assert (await _head(tmp_path)).checkpoint == stood
    zombie.let_on()
    zombie.send_signal(signal.SIGCONT)
    assert zombie.ended().error == "Conflict"
    assert (await _head(tmp_path)).checkpoint == stood
    taker.let_on()
    assert taker.ended().status == "done"
    assert pids(ledger.effects("after")) == {taker.pid}
    await check(tmp_path, workload)


async def test_a_zombie_does_not_try_again_what_failed(nursery: Nursery, tmp_path: Path, ledger: Ledger):  # rule C6
    zombie = await frozen(nursery, tmp_path, "halt_retry")
    taker = taken_over(nursery, tmp_path, "halt_retry")
    zombie.let_on()
    zombie.send_signal(signal.SIGCONT)
    assert zombie.ended().error == "Conflict"
    assert pids(ledger.effects("after")) == {taker.pid}
    await check(tmp_path, "halt_retry")


@pytest.mark.parametrize("workload", ["halt_async", "halt_loop"])
async def test_a_process_that_wakes_before_anyone_took_over_goes_on(
    nursery: Nursery, tmp_path: Path, ledger: Ledger, workload: str
):  # rule C6
    sleeper = await frozen(nursery, tmp_path, workload)
    await lease_is_over(tmp_path)
    sleeper.let_on()
    sleeper.send_signal(signal.SIGCONT)
    assert sleeper.ended().status == "done"
    await check(tmp_path, workload)
    assert len(ledger.effects("halting")) == 1
