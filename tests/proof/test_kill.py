"""SIGKILL at every point where something is stored, and after every effect; another process takes the session up."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.effort import amount

from .checker import Portrait, check
from .child import When
from .ledger import Ledger
from .places import Kind, on_each_store
from .processes import Nursery, job

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a dead owner is noticed at once on Linux only")

MOST = 60
"""Points that a workload has at most."""

SWEPT = ["nested", "steps", "siblings", "refund", "fan", "turns"]
WHEN: list[When] = ["before", "during", "after", "effect"]


def points(kind: Kind, first: int = 0) -> range:
    """Every point in a proof (on servers every third), else every twelfth; each sweep starts at another one."""
    step = amount(default=12, proof=1 if kind == "sqlite" else 3, long=1)
    return range(1 + first % step, MOST, step)


async def uninterrupted(nursery: Nursery, folder: Path, workload: str) -> Portrait:
    ended = nursery.do(job("live", workload, folder))
    assert ended is not None
    assert ended.status == "done", ended
    return await check(folder, workload)


def killed(nursery: Nursery, folder: Path, workload: str, at: int, when: When, **options: Any) -> bool:
    """Let a client die at a point; False if it had come to the end before."""
    ended = nursery.do(job("live", workload, folder, kill_at=at, when=when, **options))
    assert ended is None or ended.status == "done", ended
    return ended is None


def finish(nursery: Nursery, folder: Path, workload: str, **options: Any) -> None:
    ended = nursery.do(job("live", workload, folder, **options))
    assert ended is not None
    assert ended.status == "done", ended


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize(("kind", "workload"), on_each_store(SWEPT, default=1))
async def test_a_process_killed_anywhere_is_finished_by_another(
    nursery: Nursery, places: Iterator[Path], kind: Kind, workload: str, when: When
):  # rules C8, R4
    whole = await uninterrupted(nursery, next(places), workload)
    for at in points(kind, WHEN.index(when)):
        folder = next(places)
        was_killed = killed(nursery, folder, workload, at, when)
        finish(nursery, folder, workload)
        assert await check(folder, workload) == whole, f"killed {when} {at}"
        if not was_killed:
            break
    else:
        raise AssertionError(f"{workload} has more than {MOST} points")
    assert at > 3


@pytest.mark.parametrize(("kind", "workload"), on_each_store(["nested", "siblings", "refund"], default=1))
async def test_a_recovery_that_is_killed_too_is_finished_by_the_next(
    nursery: Nursery, places: Iterator[Path], workload: str
):  # rules C8, R4
    whole = await uninterrupted(nursery, next(places), workload)
    for at in range(2, MOST, amount(default=27, proof=3, long=1)):
        folder = next(places)
        was_killed = killed(nursery, folder, workload, at, "after")
        again: list[tuple[int, When]] = [(1, "after"), (2, "before"), (1, "during"), (2, "after")]
        for second, when in again:
            killed(nursery, folder, workload, second, when)
        finish(nursery, folder, workload)
        assert await check(folder, workload) == whole, f"killed after {at}"
        if not was_killed:
            break


@pytest.mark.parametrize("durability", ["async", "pause"])
@pytest.mark.parametrize(("kind", "workload"), on_each_store(["nested", "refund", "questions"], default=0))
async def test_what_is_stored_more_rarely_is_finished_all_the_same(
    nursery: Nursery, places: Iterator[Path], kind: Kind, workload: str, durability: str
):  # rule C8
    whole = await uninterrupted(nursery, next(places), workload)
    for at in points(kind):
        folder = next(places)
        was_killed = killed(nursery, folder, workload, at, "before", durability=durability)
        finish(nursery, folder, workload, durability=durability)
        found = await check(folder, workload)
        assert (found.state, found.questions) == (whole.state, whole.questions), f"killed before {at}"
        if not was_killed:
            break


async def test_a_node_that_always_kills_its_process_is_a_crash_loop(nursery: Nursery, place: Path):  # rule C8
    assert killed(nursery, place, "steps", 2, "effect")
    for _ in range(10):
        ended = nursery.do(job("live", "steps", place, kill_at=1, when="effect"))
        if ended is not None:
            break
    else:
        raise AssertionError("it is tried for ever")
    assert ended.error == "CrashLoop"
    ledger = Ledger(place / "ledger")
    assert len(ledger.effects("pick")) == 1
    assert 3 <= len(ledger.effects("pack")) <= 10
    assert len({line.key for line in ledger.effects("pack")}) == 1
    # Whoever mends the cause goes on.
    finish(nursery, place, "steps")
    await check(place, "steps")


async def test_an_owner_that_is_dead_is_noticed_before_its_parent_asks_after_it(
    nursery: Nursery, place: Path
):  # rule C6
    owner = nursery.start(job("run", "halt_async", place, lease_ttl=600))
    owner.wait_at("inside")
    owner.send_signal(signal.SIGKILL)
    assert owner.hear() is None
    taker = nursery.start(job("take_over", "halt_async", place))
    assert taker.ended_without_stops().status == "done"
    owner.close()
    await check(place, "halt_async")
