"""Records fold to what was live when they were taken, and a session goes on from any of them."""

import asyncio

from hypothesis import assume, given

from adjourn import RetryExhausted
from tests.proof import plans
from tests.proof.building import Trouble, World, build
from tests.proof.folding import Folding
from tests.proof.plans import GIVEN, Graph
from tests.proof.reference import Reference
from tests.proof.strategies import Dice, Mood, dice, graphs, many


def reference(plan: Graph) -> Reference:
    """What the plan means; too long ones and those that fail are for other tests."""
    meant = Reference(plan).run(GIVEN)
    assume(meant.conflict is None and len(meant.questions) <= 12 and len(meant.executions) <= 30)
    return meant


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


@many
@given(graphs(), dice)
def test_folded_records_are_what_is_live(plan: Graph, dice: Dice):  # rule C3
    meant = reference(plan)

    async def run() -> None:
        engine = Folding(build(plan), World(), dice)
        engine.begin(GIVEN)
        ended = await driven(engine)
        assert ended.state() == plans.shown(meant.final)

    asyncio.run(run())


@many
@given(graphs(Mood(stumbles=False)), dice)
def test_a_session_goes_on_from_every_record(plan: Graph, dice: Dice):  # rule C8
    meant = reference(plan)

    async def run() -> None:
        engine = Folding(build(plan), World(), dice)
        engine.begin(GIVEN)
        ended = await driven(engine)
        for records in range(1, len(ended.bodies) + 1)[:40]:
            cut_off = ended.restored(records)
            if cut_off.scope.open:
                cut_off.answer()
            again = await driven(cut_off)
            assert again.state() == plans.shown(meant.final)

    asyncio.run(run())
