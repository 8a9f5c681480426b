"""Real processes behind a barrier, all after one session."""

import os
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from adjourn.stores import SessionRef
from adjourn.stores.kit import Audit
from adjourn.stores.types import AuditEntry
from tests.effort import amount

from .checker import check, check_effects, check_fences, pids
from .child import SESSION, Ended
from .ledger import Ledger
from .places import store_of
from .processes import Nursery, job, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="children are forks, found by their pids")

ROUNDS = range(amount(default=1, proof=3, long=20))
HOUR = 3600.0


@pytest.fixture
def paused(nursery: Nursery, place: Path) -> Path:
    """A folder with a session that waits for a decision."""
    ended = nursery.start(job("run", "decision", place)).ended()
    assert ended.status == "interrupted"
    return place


async def decisions(folder: Path) -> list[AuditEntry]:
    store = store_of(folder)
    try:
        return await store.read(Audit(SessionRef(SESSION)))
    finally:
        await store.close()


def outcomes(ended: list[Ended]) -> Counter[str]:
    return Counter(each.error or each.status for each in ended)


# Answers


@pytest.mark.parametrize("_", ROUNDS)
async def test_of_many_processes_that_answer_one_question_one_proceeds(
    nursery: Nursery, paused: Path, ledger: Ledger, _: int
):  # rules R3, I3
    ended = nursery.race(
        *(job("resume", "decision", paused, answers={"decision": f"p{n}"}, by=f"p{n}") for n in range(8))
    )
    assert outcomes(ended) == {"done": 1, "AlreadyResumed": 7}
    (winner,) = (f"p{n}" for n, each in enumerate(ended) if each.status == "done")
    (decided,) = ledger.effects("decided")
    assert decided.arguments == ["A-17", winner]
    assert len(pids(ledger.effects())) == 1
    (decision,) = await decisions(paused)
    assert (decision.by, decision.value) == (winner, f'"{winner}"'.encode())
    assert (await check(paused, "decision")).state["notes"] == [winner, "file"]


@pytest.mark.parametrize("_", ROUNDS)
async def test_approve_and_deny_at_once_is_one_of_them(
    nursery: Nursery, paused: Path, ledger: Ledger, _: int
):  # rules R3, I5
    said = ["approve", "deny"] * 3
    ended = nursery.race(*(job("resume", "decision", paused, answers={"decision": word}, by=word) for word in said))
    assert outcomes(ended) == {"done": 1, "AlreadyResumed": 5}
    (winner,) = (word for word, each in zip(said, ended, strict=True) if each.status == "done")
    assert [line.arguments for line in ledger.effects("decided")] == [["A-17", winner]]
    assert [decision.by for decision in await decisions(paused)] == [winner]


@pytest.mark.parametrize("_", ROUNDS)
async def test_several_people_answer_a_live_session_and_all_are_taken_up(
    nursery: Nursery, place: Path, ledger: Ledger, _: int
):  # rules R3, R4
    people = ["ann", "ben", "cleo", "dan"]
    owner = nursery.start(job("run", "meeting", place))
    owner.wait_at("slow")
    await asked(place, 4)
    answering = [
        nursery.start(job("resume", "meeting", place, answers={name: f"{name} says so"}, by=name)) for name in people
    ]
    await answered(place, 4)
    owner.let_on()

    assert owner.ended().status == "done"
    assert outcomes([person.ended() for person in answering]) == {"done": 4}
    assert pids(ledger.effects()) == {owner.pid}
    for name in people:
        assert len(ledger.effects(f"after {name}")) == 1
    portrait = await check(place, "meeting")
    assert portrait.state["by_name"] == {name: f"{name} says so" for name in people}


async def asked(folder: Path, count: int) -> None:
    async def are_asked() -> bool:
        return len(await decisions(folder)) == count

    await until(are_asked)


async def answered(folder: Path, count: int) -> None:
    async def are_answered() -> bool:
        return sum(decision.how is not None for decision in await decisions(folder)) == count

    await until(are_answered)


@pytest.mark.parametrize("_", ROUNDS)
async def test_people_who_answer_a_waiting_session_all_at_once_are_all_heard(
    nursery: Nursery, place: Path, ledger: Ledger, _: int
):  # rules R3, R4
    people = ["ann", "ben", "cleo", "dan"]
    first = nursery.start(job("run", "meeting", place))
    first.wait_at("slow")
    first.let_on()
    assert first.ended().status == "interrupted"

    ended = nursery.race(
        *(job("resume", "meeting", place, answers={name: f"{name} says so"}, by=name) for name in people)
    )

    # Who is followed by nobody ends with the others' questions open; the last one to be heard ends the run.
    assert set(outcomes(ended)) <= {"done", "interrupted"}
    assert outcomes(ended)["done"] >= 1
    assert [decision.how for decision in await decisions(place)] == ["answered"] * 4
    for name in people:
        assert len(ledger.effects(f"after {name}")) == 1
    portrait = await check(place, "meeting")
    assert portrait.state["by_name"] == {name: f"{name} says so" for name in people}


async def test_an_answer_to_a_live_session_whose_owner_is_killed_is_not_lost(
    nursery: Nursery, place: Path, ledger: Ledger
):  # rule R4
    owner = nursery.start(job("run", "meeting", place))
    owner.wait_at("slow")
    await asked(place, 4)
    ann = nursery.start(job("resume", "meeting", place, answers={"ann": "ann says so"}, by="ann"))
    await answered(place, 1)
    os.kill(owner.pid, signal.SIGKILL)
    assert owner.end() is None
    assert ann.ended().error == "UnfinishedRun"

    other = nursery.start(job("live", "meeting", place))
    assert other.ended_without_stops().status == "done"
    await check(place, "meeting")
    assert [d.by for d in await decisions(place) if d.id.endswith("node:ann")] == ["ann"]
    assert len(ledger.effects("after ann")) == 1


# Turns


async def test_of_many_runs_on_one_new_session_one_runs(nursery: Nursery, place: Path, ledger: Ledger):  # rule R12
    racers = [nursery.start(job("run", "halt_async", place, gated=True)) for _ in range(5)]
    for racer in racers:
        racer.wait_at("gate")
    for racer in racers:
        racer.let_on()
    # Exactly one comes to its node; it is not let on before the others have ended.
    heard = [racer.hear() for racer in racers]
    (winner,) = (racer for racer, said in zip(racers, heard, strict=True) if said is not None and said.at == "inside")
    lost = [said.ended for said in heard if said is not None and said.ended is not None]
    assert outcomes(lost) == {"SessionBusy": 4}
    winner.let_on()
    assert winner.ended().status == "done"
    assert pids(ledger.effects()) == {winner.pid}
    assert (await check(place, "halt_async")).state["notes"] == ["first", "halting", "after"]


@pytest.mark.parametrize("_", ROUNDS)
async def test_of_many_recoveries_of_a_crashed_run_one_runs(
    nursery: Nursery, place: Path, ledger: Ledger, _: int
):  # rules C6, C8
    crashed = nursery.start(job("run", "halt_async", place))
    crashed.wait_at("inside")
    crashed.close()
    racers = [nursery.start(job("recover", "halt_async", place, gated=True)) for _ in range(4)]
    for racer in racers:
        racer.wait_at("gate")
    for racer in racers:
        racer.let_on()
    heard = [racer.hear() for racer in racers]
    (winner,) = (racer for racer, said in zip(racers, heard, strict=True) if said is not None and said.at == "inside")
    assert outcomes([said.ended for said in heard if said is not None and said.ended]) == {"SessionBusy": 3}
    winner.let_on()
    assert winner.ended().status == "done"
    assert pids(ledger.effects("halting")) == {crashed.pid, winner.pid}
    await check(place, "halt_async")


# Against an answer


@pytest.mark.parametrize("_", ROUNDS)
async def test_a_resume_against_a_cancel_loses_no_answer(
    nursery: Nursery, paused: Path, ledger: Ledger, _: int
):  # rules A12, I8
    resumed, cancelled = nursery.race(
        job("resume", "decision", paused, answers={"decision": "yes"}, by="ann"), job("cancel", "decision", paused)
    )
    assert resumed.status in ("done", "cancelled"), resumed
    assert cancelled.status == "done", cancelled
    assert [(decision.how, decision.by) for decision in await decisions(paused)] == [("answered", "ann")]
    assert nursery.start(job("live", "decision", paused)).ended().status == "done"
    assert {tuple(line.arguments) for line in ledger.effects("decided")} == {("A-17", "yes")}
    assert len({line.key for line in ledger.effects("decided")}) == 1
    assert (await check(paused, "decision")).state["notes"] == ["yes", "file"]


@pytest.mark.parametrize("_", ROUNDS)
async def test_a_resume_against_expiry_is_one_of_them(
    nursery: Nursery, paused: Path, ledger: Ledger, _: int
):  # rules R11, I5
    ends = (await decisions(paused))[0]
    assert ends.how is None
    answer, expiry = nursery.race(
        job("resume", "decision", paused, answers={"decision": "yes"}, by="ann"),
        job("recover", "decision", paused, ahead=HOUR + 1),
    )
    (decision,) = await decisions(paused)
    if decision.how == "answered":
        assert answer.status == "done", answer
        # It looked before (and found nothing to expire), during, or after the other's run.
        assert (expiry.error or expiry.status) in ("SessionBusy", "done", "interrupted"), expiry
        said = "yes"
    else:
        assert decision.how == "expired"
        assert answer.error == "InterruptExpired", answer
        assert expiry.status == "done", expiry
        said = "nobody"
    assert [line.arguments for line in ledger.effects("decided")] == [["A-17", said]]
    assert (await check(paused, "decision")).state["notes"] == [said, "file"]


@pytest.mark.parametrize("_", ROUNDS)
async def test_a_delete_against_a_resume_is_one_of_them(nursery: Nursery, paused: Path, ledger: Ledger, _: int):
    resumed, deleted = nursery.race(
        job("resume", "decision", paused, answers={"decision": "yes"}), job("delete", "decision", paused)
    )
    check_effects(ledger)
    check_fences(ledger)
    if resumed.error:
        assert resumed.error == "CheckpointNotFound", resumed
        assert deleted.status == "done", deleted
        assert ledger.effects() == []
    else:
        assert resumed.status == "done", resumed
        assert (deleted.error or deleted.status) in ("SessionBusy", "done"), deleted
        assert len(ledger.effects("decided")) == 1
    again = nursery.start(job("recover", "decision", paused)).ended()
    assert (again.error or again.status) == ("CheckpointNotFound" if deleted.status else "done")
