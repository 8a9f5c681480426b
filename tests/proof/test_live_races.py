"""Real processes after one session while its owner lives, dies or is frozen."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.effort import amount

from .checker import check, check_effects, check_fences
from .child import Ended
from .ledger import Ledger
from .places import can_write
from .processes import Nursery, Process, job
from .test_freeze import LEASE, has_heard, wait_until_stopped
from .test_races import answered, asked, decisions, outcomes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are stopped and found by their pids")

ROUNDS = range(amount(default=1, proof=3, long=20))
PEOPLE = ["ann", "ben", "cleo", "dan"]


async def owner_at_work(nursery: Nursery, folder: Path, lease_ttl: float = 30.0) -> Process:
    """A process that has asked four people and works on."""
    owner = nursery.start(job("run", "meeting", folder, lease_ttl=lease_ttl))
    owner.wait_at("slow")
    await asked(folder, 4)
    return owner


def answering(nursery: Nursery, folder: Path, lease_ttl: float = 30.0) -> list[Process]:
    return [
        nursery.start(job("resume", "meeting", folder, answers={name: f"{name} says so"}, by=name, lease_ttl=lease_ttl))
        for name in PEOPLE
    ]


async def all_ended(processes: list[Process]) -> list[Ended]:
    """How processes end that may wait for each other, each let on wherever it stands."""
    ended = await asyncio.gather(*[asyncio.to_thread(each.last_word) for each in processes])
    for each in processes:
        each.close()
    return ended


async def finished(nursery: Nursery, folder: Path) -> None:
    """Bring the session to its end, and check that every answer counted, once."""
    (ended,) = await all_ended([nursery.start(job("live", "meeting", folder))])
    assert ended.status == "done", ended
    portrait = await check(folder, "meeting")
    assert portrait.state["by_name"] == {name: f"{name} says so" for name in PEOPLE}
    decided = {each.id.rpartition(":")[2]: (each.how, each.by) for each in await decisions(folder)}
    assert decided == {name: ("answered", name) for name in PEOPLE}


@pytest.mark.parametrize("_", ROUNDS)
async def test_answers_to_an_owner_that_is_killed_all_count(
    nursery: Nursery, place: Path, ledger: Ledger, _: int
):  # rules R3, R4, C8
    owner = await owner_at_work(nursery, place)
    people = answering(nursery, place)
    await answered(place, 4)
    os.kill(owner.pid, signal.SIGKILL)
    assert owner.end() is None
    # Whoever followed it notices; nobody waits for the lease of thirty seconds.
    assert outcomes(await all_ended(people)) == {"UnfinishedRun": 4}
    await finished(nursery, place)
    for name in PEOPLE:
        assert len(ledger.effects(f"after {name}")) == 1


@pytest.mark.parametrize("_", ROUNDS)
async def test_answers_while_the_owner_is_being_killed_all_count(
    nursery: Nursery, place: Path, ledger: Ledger, _: int
):  # rules R3, R4, C8
    owner = await owner_at_work(nursery, place)
    people = answering(nursery, place)
    os.kill(owner.pid, signal.SIGKILL)  # some answers come before it, some after
    assert owner.end() is None
    ended = await all_ended(people)
    assert set(outcomes(ended)) <= {"UnfinishedRun", "interrupted", "done"}, ended
    await finished(nursery, place)
    for name in PEOPLE:
        assert len(ledger.effects(f"after {name}")) == 1


@pytest.mark.parametrize("_", ROUNDS)
async def test_answers_to_an_owner_that_is_frozen_all_count(
    nursery: Nursery, place: Path, ledger: Ledger, _: int
):  # rules R3, R4, C6
    owner = await owner_at_work(nursery, place, LEASE)
    await freeze(owner, place)
    ended = await all_ended(answering(nursery, place))  # they outlast its lease
    assert set(outcomes(ended)) <= {"UnfinishedRun", "interrupted", "done"}, ended
    owner.let_on()
    owner.send_signal(signal.SIGCONT)
    woken = owner.ended()
    # Nobody took over, or it was refused: it never writes over what others did.
    assert woken.error == "Conflict" or woken.status == "done", woken
    await finished(nursery, place)
    check_effects(ledger)
    check_fences(ledger)


async def freeze(process: Process, folder: Path) -> None:
    """Stop a process that is not writing at the moment, and has noted all that it wrote."""
    for _ in range(200):
        process.send_signal(signal.SIGSTOP)
        wait_until_stopped(process.pid)
        if can_write(folder) and await has_heard(folder):
            return
        process.send_signal(signal.SIGCONT)
        await asyncio.sleep(0.001)  # let it get on for a moment
    raise AssertionError("it writes all the time")


@pytest.mark.parametrize("_", ROUNDS)
async def test_a_delete_against_answers_to_a_dead_owner_is_all_or_nothing(
    nursery: Nursery, place: Path, ledger: Ledger, _: int
):  # rules C6, C7
    owner = await owner_at_work(nursery, place)
    os.kill(owner.pid, signal.SIGKILL)
    assert owner.end() is None
    deleting = nursery.start(job("delete", "meeting", place))
    ended = await all_ended([*answering(nursery, place), deleting])
    known = {"UnfinishedRun", "interrupted", "done", "CheckpointNotFound", "SessionBusy", "Conflict"}
    assert set(outcomes(ended)) <= known, ended
    check_effects(ledger)
    check_fences(ledger)
    if ended[-1].status == "done":
        again = nursery.start(job("recover", "meeting", place)).ended()
        assert again.error == "CheckpointNotFound", again
    else:
        await finished(nursery, place)
