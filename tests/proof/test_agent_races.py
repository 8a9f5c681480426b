"""Real processes behind a barrier, all after the questions of one agent."""

import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.effort import amount

from .checker import check, pids
from .child import Ended
from .ledger import Ledger
from .processes import Nursery, job

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="children are forks, found by their pids")

APPROVAL = "agent:Payer;tool:pay:p1"
ROUNDS = range(amount(default=1, proof=3, long=20))
PEOPLE = {f"agent:Survey;tool:ask:q{n}": who for n, who in enumerate(("ann", "ben", "cleo"))}


def outcomes(ended: list[Ended]) -> Counter[str]:
    return Counter(each.error or each.status for each in ended)


@pytest.mark.parametrize("_", ROUNDS)
async def test_of_many_processes_that_answer_an_approval_one_runs_the_tool(
    nursery: Nursery, place: Path, ledger: Ledger, _: int
):  # rules R3, T4
    assert nursery.start(job("run", "approval", place)).ended().status == "interrupted"
    ended = nursery.race(*(job("resume", "approval", place, answers={APPROVAL: True}, by=f"p{n}") for n in range(6)))
    assert outcomes(ended) == {"done": 1, "AlreadyResumed": 5}
    assert [len(ledger.effects(what)) for what in ("charge", "pay", "think")] == [1, 1, 2]
    assert len(pids(ledger.effects("pay") + ledger.effects("charge"))) == 1
    await check(place, "approval")


async def test_approve_and_refuse_at_once_is_one_of_them(nursery: Nursery, place: Path, ledger: Ledger):  # rules R3, T4
    assert nursery.start(job("run", "approval", place)).ended().status == "interrupted"
    said = [True, False] * 3
    ended = nursery.race(*(job("resume", "approval", place, answers={APPROVAL: word}) for word in said))
    assert outcomes(ended) == {"done": 1, "AlreadyResumed": 5}
    (winner,) = (word for word, each in zip(said, ended, strict=True) if each.status == "done")
    assert len(ledger.effects("pay")) == int(winner)
    await check(place, "approval")


@pytest.mark.parametrize("_", ROUNDS)
async def test_three_questions_of_one_message_are_answered_by_three_processes(
    nursery: Nursery, place: Path, ledger: Ledger, _: int
):  # rules R3, R7, T3
    assert nursery.start(job("run", "survey", place)).ended().status == "interrupted"
    jobs = [job("resume", "survey", place, answers={asked: f"{who}!"}, by=who) for asked, who in PEOPLE.items()]
    found = outcomes(nursery.race(*jobs))
    assert set(found) <= {"done", "interrupted"}, found
    assert found["done"] >= 1
    assert sorted(line.arguments for line in ledger.effects("heard")) == [[who, f"{who}!"] for who in PEOPLE.values()]
    assert len(ledger.effects("charge")) == 3
    assert len(ledger.effects("think")) == 2
    portrait = await check(place, "survey")
    results = [text for _, role, text, _, _ in portrait.state[1] if role == "tool"]
    assert [text.split("; ")[1] for text in results] == [f"{who}: {who}!" for who in PEOPLE.values()]
