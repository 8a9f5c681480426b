"""SIGSTOP past the lease: another process takes over, and the one that wakes up can do no more harm."""

import asyncio
import itertools
import signal
import sys
import time
from pathlib import Path

import pytest

from adjourn.stores import SessionRef
from adjourn.stores.kit import GetHead
from adjourn.stores.types import Head
from tests.effort import some

from .checker import check, pids
from .child import SESSION
from .ledger import Ledger
from .places import can_write, on_each_store, store_of
from .processes import PATIENCE, Nursery, Process, job, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are stopped and found by their pids")

LEASE = 0.4

DURABILITIES = ["step", "pause", "async"]
HALTING = [
    *("halt_async", "halt_tool", "halt_model", "halt_loop", "halt_thread"),
    *("halt_once", "halt_asking", "halt_choice", "halt_workflow"),
]
FROZEN = [
    (workload, durability)
    # The first ones differ in both.
    for shift in range(3)
    for workload, durability in zip(HALTING, itertools.cycle(DURABILITIES[shift:] + DURABILITIES[:shift]), strict=False)
    # A loop that is blocked cannot note that its last save is through, so the ledger's order would say nothing.
    if (workload, durability) != ("halt_loop", "async")
]


async def frozen(nursery: Nursery, folder: Path, workload: str, durability: str = "step") -> Process:
    """A process that is stopped in the middle of a node, with nothing under way to or from the store."""
    child = nursery.start(job("run", workload, folder, lease_ttl=LEASE, durability=durability))
    child.wait_at("inside")
    for _ in range(200):
        child.send_signal(signal.SIGSTOP)
        wait_until_stopped(child.pid)
        if can_write(folder) and await has_heard(folder):
            return child
        child.send_signal(signal.SIGCONT)
        await asyncio.sleep(0.001)  # let it get on for a moment
    raise AssertionError("it writes all the time")


def wait_until_stopped(pid: int) -> None:
    patient_until = time.monotonic() + PATIENCE
    while time.monotonic() < patient_until:
        states = [path.read_text().rpartition(")")[2].split()[0] for path in Path(f"/proc/{pid}/task").glob("*/stat")]
        if set(states) == {"T"}:
            return
    raise AssertionError(f"process {pid} does not stop")


async def has_heard(folder: Path) -> bool:
    """Whether the process has noted the newest record that is stored, and waits for no other."""
    head = await _head(folder)
    lines = Ledger(folder / "ledger").lines()
    heard = {line.what for line in lines if line.kind in ("claimed", "committed")}
    return heard >= {head.checkpoint, *(line.what for line in lines if line.kind == "asked")}


async def _head(folder: Path) -> Head:
    store = store_of(folder)
    try:
        head = await store.read(GetHead(SessionRef(SESSION)))
    finally:
        await store.close()
    assert head is not None
    return head


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


@pytest.mark.parametrize(("kind", "how"), on_each_store(some(FROZEN, default=9), default=2))
async def test_a_zombie_is_refused_and_runs_no_more_code(
    nursery: Nursery, place: Path, ledger: Ledger, how: tuple[str, str]
):  # rules C6, I2
    workload, durability = how
    zombie = await frozen(nursery, place, workload, durability)
    taker = taken_over(nursery, place, workload, durability)
    before = ledger.lines()
    stored = await check(place, workload)

    zombie.let_on()
    zombie.send_signal(signal.SIGCONT)
    woken = zombie.ended()

    assert woken.error == "Conflict", woken
    assert [line for line in ledger.lines()[len(before) :] if line.kind not in ("effect", "asked")] == []
    assert pids(ledger.effects("after")) == {taker.pid}
    assert pids(ledger.effects("heard")) <= {taker.pid}
    assert {line.pid for line in ledger.effects("halting")} == {zombie.pid, taker.pid}
    assert len({line.key for line in ledger.effects("halting")}) == 1
    assert await check(place, workload) == stored


@pytest.mark.parametrize(("kind", "workload"), on_each_store(HALTING[:4], default=1))
async def test_a_zombie_is_refused_before_its_successor_has_done_anything(
    nursery: Nursery, place: Path, ledger: Ledger, workload: str
):  # rules C1, C6
    zombie = await frozen(nursery, place, workload)
    taker = nursery.start(job("take_over", workload, place))
    taker.wait_at("inside")
    # It has counted its attempt, and no more.
    stood = (await _head(place)).checkpoint
    zombie.let_on()
    zombie.send_signal(signal.SIGCONT)
    assert zombie.ended().error == "Conflict"
    assert (await _head(place)).checkpoint == stood
    taker.let_on()
    assert taker.ended().status == "done"
    assert pids(ledger.effects("after")) == {taker.pid}
    await check(place, workload)


async def test_a_zombie_does_not_try_again_what_failed(nursery: Nursery, place: Path, ledger: Ledger):  # rule C6
    zombie = await frozen(nursery, place, "halt_retry")
    taker = taken_over(nursery, place, "halt_retry")
    zombie.let_on()
    zombie.send_signal(signal.SIGCONT)
    assert zombie.ended().error == "Conflict"
    assert pids(ledger.effects("after")) == {taker.pid}
    await check(place, "halt_retry")


@pytest.mark.parametrize(("kind", "workload"), on_each_store(HALTING[:2], default=1))
async def test_a_process_that_wakes_before_anyone_took_over_goes_on(
    nursery: Nursery, place: Path, ledger: Ledger, workload: str
):  # rule C6
    sleeper = await frozen(nursery, place, workload)
    await lease_is_over(place)
    sleeper.let_on()
    sleeper.send_signal(signal.SIGCONT)
    assert sleeper.ended().status == "done"
    await check(place, workload)
    assert len(ledger.effects("halting")) == 1
