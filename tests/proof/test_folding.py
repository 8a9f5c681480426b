"""Records fold to what was live when they were taken, and a session goes on from any of them."""

import asyncio
from functools import partial
from typing import Any

from hypothesis import assume, given, reject
from hypothesis import strategies as st

from adjourn import Interrupt
from adjourn.errors import RetryExhausted
from tests.effort import amount
from tests.proof import agent_building, agent_plans, plans
from tests.proof.agent_strategies import HOOKED, agents
from tests.proof.building import Trouble, World, build
from tests.proof.folding import Folding
from tests.proof.plans import GIVEN, Graph
from tests.proof.reference import Reference
from tests.proof.strategies import Dice, Mood, dice, graphs


def reference(plan: Graph) -> Reference:
    """What the plan means; too long ones and those that fail are for other tests."""
    meant = Reference(plan).run(GIVEN)
    assume(meant.conflict is None and len(meant.questions) <= 12 and len(meant.executions) <= 30)
    return meant


def answer(asked: Interrupt) -> Any:
    return plans.answer_for(asked.id, asked.reason)


def state_of(engine: Folding) -> Any:
    return plans.shown(dict(engine.root.report().state))


async def driven(engine: Folding) -> Folding:
    """Take an engine to its end, as it is or restored after any of its stops."""
    for _ in range(200):
        try:
            if await engine.advance():
                return engine
        except (Trouble, RetryExhausted):
            engine = engine.restored(len(engine.bodies))
            continue
        if engine.dice.roll(2):
            engine = engine.restored(len(engine.bodies))
        engine.answer()
    raise AssertionError("it does not come to an end")


@given(graphs(), dice)
def test_folded_records_are_what_is_live(plan: Graph, dice: Dice):  # rule C3
    meant = reference(plan)

    async def run() -> None:
        engine = Folding(partial(build, plan), answer, World(), dice)
        engine.begin(GIVEN)
        ended = await driven(engine)
        assert state_of(ended) == plans.shown(meant.final)

    asyncio.run(run())


@given(graphs(Mood(stumbles=False)), dice)
def test_a_session_goes_on_from_every_record(plan: Graph, dice: Dice):  # rule C8
    meant = reference(plan)

    async def run() -> None:
        engine = Folding(partial(build, plan), answer, World(), dice)
        engine.begin(GIVEN)
        ended = await driven(engine)
        for records in range(1, len(ended.bodies) + 1)[: 40 : amount(default=4, proof=1, long=1)]:
            cut_off = ended.restored(records)
            if cut_off.scope.questions.open:
                cut_off.answer()
            again = await driven(cut_off)
            assert state_of(again) == plans.shown(meant.final)

    asyncio.run(run())


@given(st.one_of(agents(), agents(HOOKED)), dice)
def test_the_records_of_agents_fold_to_what_is_live(plan: agent_plans.Plan, dice: Dice):  # rules C3, C8
    async def run(*, knows: bool) -> tuple[str, list[Any]]:
        made = partial(agent_building.build, plan, knows=knows)
        engine = Folding(made, agent_plans.answer_to, agent_building.World(knows=knows), dice)
        engine.begin("go")
        report = (await driven(engine)).root.report()
        return report.output, list(report.messages or ())

    try:
        meant = asyncio.run(run(knows=True))
    except agent_building.TooLong:
        reject()
    assert asyncio.run(run(knows=False)) == meant
