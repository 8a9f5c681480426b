"""After an outage: the process that lived through it goes on at once, and an outage is not a crash."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from adjourn.errors import SessionBusy, StoreUnavailable
from adjourn.runner import Run
from adjourn.runner._heartbeat import Heartbeat
from adjourn.stores import SessionRef, SQLiteStore, Store
from adjourn.stores.kit import GetHead, StoreQuery
from adjourn.stores.types import Lease, Loaded, Renewed
from adjourn.testing import FakeClock, FaultStore
from tests.passing import AwayStore

from .programs import Gate, asking, begin, held, line, step, steps, until

T = TypeVar("T")

PATIENCE = 1.0
"""Seconds that these runs wait for a store that hangs; one that says that it is away is not waited for."""


async def cut_off(store: FaultStore, run: Run, *, after: int) -> None:
    """Run until the store goes away, after this many more writes, and the run has failed; then it is back."""
    store.fail_at, store.times = store.calls + after + 1, None
    with pytest.raises(StoreUnavailable):
        await run
    store.times = 0


@pytest.mark.parametrize("mode", ["before", "after", "hang"])
@pytest.mark.parametrize("after", [1, 2])
async def test_the_same_process_recovers_at_once(store: Store, mode: Any, after: int):  # rule C11
    away = AwayStore(store, fail_at=0, mode=mode, times=0, seconds=PATIENCE)
    graph = steps("a", "b", "c", store=away, store_timeout=PATIENCE)
    await cut_off(away, graph.run({}, session_id="s"), after=after)
    status = await graph.status("s")
    assert (status.status, status.owner) == ("failed", None)
    assert (await graph.recover("s")).state["done"] == ["a", "b", "c"]


async def test_a_lease_that_is_given_back_while_its_session_is_opened(store: Store):  # rule C11
    away = StaleHeads(store, fail_at=0, mode="before", times=0, seconds=PATIENCE)
    graph = steps("a", "b", store=away, store_timeout=PATIENCE)
    await cut_off(away, graph.run({}, session_id="s"), after=1)
    away.gives_back = True
    assert (await graph.recover("s")).state["done"] == ["a", "b"]
    assert not away.gives_back


class StaleHeads(AwayStore):
    """An `AwayStore` in which the heartbeat gives a lease back just after a head was read that still has it."""

    gives_back = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._was_read = threading.Event()

    async def renew(self, leases: Sequence[Lease]) -> list[Renewed]:
        if any(lease.ttl == 0 for lease in leases):
            assert self._was_read.wait(10)  # on the heartbeat's thread
        return await super().renew(leases)

    async def read(self, query: StoreQuery[T]) -> T:
        found = await super().read(query)
        if self.gives_back and isinstance(found, Loaded):
            self.gives_back = False
            self._was_read.set()
            assert found.head.owner is not None
            beat = Heartbeat.of(self)
            while beat._unreleased:  # pyright: ignore[reportPrivateUsage]  # noqa: ASYNC110  # another thread empties it
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.01)
        return found


@pytest.mark.parametrize("mode", ["before", "after", "hang"])
async def test_an_answer_given_into_an_outage_is_given_again_or_recovered(store: Store, mode: Any):  # rules C11, R4
    away = AwayStore(store, fail_at=0, mode=mode, times=0, seconds=PATIENCE)
    graph = asking(store=away, store_timeout=PATIENCE)
    await graph.run({}, session_id="s")
    await cut_off(away, graph.resume("s", {"go": "yes"}), after=0)
    # Only if it was stored before the caller lost sight of it does it count.
    again = graph.recover("s") if mode == "after" else graph.resume("s", {"go": "yes"})
    assert (await again).state["answer"] == "yes"


@pytest.mark.parametrize("mode", ["before", "after", "hang"])
async def test_a_claim_that_nobody_heard_of_does_not_block_its_own_process(store: Store, mode: Any):  # rule C11
    away = AwayStore(store, fail_at=0, mode=mode, times=0, seconds=PATIENCE)
    graph = steps("a", store=away, store_timeout=PATIENCE)
    await cut_off(away, graph.run({}, session_id="s"), after=0)
    again = graph.recover("s") if mode == "after" else graph.run({}, session_id="s")
    assert (await again).state["done"] == ["a"]


async def test_outages_in_a_row_are_not_a_crash_loop(store: Store):  # rules C8, C11
    away = FaultStore(store, fail_at=0, times=0)
    graph = steps("a", "b", store=away, store_timeout=PATIENCE)
    await cut_off(away, graph.run({}, session_id="s"), after=1)
    for _ in range(7):
        await cut_off(away, graph.recover("s"), after=1)
    assert (await graph.recover("s")).state["done"] == ["a", "b"]


async def test_other_processes_get_the_session_as_soon_as_the_store_is_back(timed: Store, clock: FakeClock):  # rule C11
    away = FaultStore(timed, fail_at=0, times=0)
    graph = steps("a", "b", store=away, store_timeout=PATIENCE, lease_ttl=0.3)
    await cut_off(away, graph.run({}, session_id="s"), after=1)

    async def was_given_back() -> bool:
        head = await timed.read(GetHead(SessionRef("s")))  # as everybody sees it; the clock stands still
        return head is not None and (head.owner, head.claims) == (None, 0)

    await until(was_given_back)
    assert (await steps("a", "b", store=timed).recover("s")).state["done"] == ["a", "b"]


async def test_a_run_that_lives_is_not_taken_from_its_own_process(store: Store):  # rule C6
    gate = Gate()
    graph = line(("a", step("a")), ("b", held("b", gate)), store=store)
    waiting = begin(graph.run({}, session_id="s"))
    await gate.reached.wait()
    with pytest.raises(SessionBusy):
        await graph.recover("s")
    gate.opened.set()
    assert (await waiting).status == "done"


async def test_every_session_of_a_process_goes_on_after_an_outage(store: Store):  # rule C11
    away = AwayStore(store, fail_at=0, mode="hang", times=0, seconds=PATIENCE)
    graph = steps("a", "b", store=away, store_timeout=PATIENCE)
    away.fail_at, away.times = 8, None
    runs = [begin(graph.run({}, session_id=f"s{number}")) for number in range(6)]
    ended = await asyncio.gather(*runs, return_exceptions=True)
    assert StoreUnavailable in {type(each) for each in ended}  # Eager tasks may end some of them before it begins.
    away.times = 0
    for number in range(6):
        known = await store.read(GetHead(SessionRef(f"s{number}")))
        again = graph.recover(f"s{number}") if known else graph.run({}, session_id=f"s{number}")
        assert (await again).state["done"] == ["a", "b"]


async def test_a_file_that_others_keep_locked_is_an_outage_like_any_other(tmp_path: Path):  # rules C8, C11
    store = SQLiteStore(tmp_path / "s.db", timeout=0.1)
    gates: list[Gate] = []

    async def waits(state: dict[str, Any]) -> dict[str, Any]:
        await gates[-1].wait()
        return {"done": ["b"]}

    graph = line(("a", step("a")), ("b", waits), store=store, store_timeout=0.2)
    with contextlib.closing(sqlite3.connect(tmp_path / "s.db", isolation_level=None)) as other:
        for number in range(7):
            gates.append(Gate())
            running = begin(graph.recover("s") if number else graph.run({}, session_id="s"))
            await gates[-1].reached.wait()
            other.execute("BEGIN IMMEDIATE")
            gates[-1].opened.set()
            with pytest.raises(StoreUnavailable):
                await running
            other.execute("ROLLBACK")
    gates[-1].opened.set()
    assert (await graph.recover("s")).state["done"] == ["a", "b"]
    await store.close()
