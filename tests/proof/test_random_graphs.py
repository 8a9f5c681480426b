"""Random graphs on the real engine against the reference, uninterrupted and interrupted in every way."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from adjourn import Done, Interrupt, Middleware, NodeEnd
from adjourn.errors import WriteConflict
from adjourn.middleware import NodeCall, NodeRequest
from adjourn.stores import MemoryStore, SQLiteStore, Store
from adjourn.testing import FakeClock
from tests.proof import plans
from tests.proof.building import World, build
from tests.proof.plans import AGAIN, GIVEN, Graph
from tests.proof.reference import Reference
from tests.proof.strategies import Dice, Mood, dice, graphs
from tests.proof.twin import Durability, Twin

numbers = count()


class Stores:
    """One store of each kind for all examples, each of which has a session of its own."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self.stores: dict[str, Store] = {
            "memory": MemoryStore(clock=self.clock),
            "sqlite": SQLiteStore(folder / "proof.db", clock=self.clock, synchronous="NORMAL"),
        }

    def twin(self, plan: Graph, where: str, durability: Durability, *, wrapped: bool = False) -> Twin:
        session, store = f"session {next(numbers)}", self.stores[where]
        built = partial(build, plan, middleware=[PassThrough()]) if wrapped else partial(build, plan)
        return Twin(built, _answer, World(), session, store, self.clock, durability)


class PassThrough(Middleware):
    """Wraps every node and changes nothing."""

    async def wrap_node(self, call: NodeCall, request: NodeRequest) -> Any:
        return await call(request)


def _answer(asked: Interrupt) -> Any:
    return plans.answer_for(asked.id, asked.reason)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    stores = Stores(tmp_path_factory.mktemp("proof"))
    yield stores
    for store in stores.stores.values():
        asyncio.run(store.close())


def reference(plan: Graph, *turns: dict[str, Any]) -> Reference:
    """What a plan means; the few that go on and on are left out."""
    meant = Reference(plan).run(*turns)
    assume(len(meant.questions) <= 30 and len(meant.executions) <= 60)
    return meant


def check_effects(world: World, meant: Reference) -> None:
    """Every node and condition saw what it should, and every kept call was made as often as it should be."""
    assert Counter(world.left.values()) == Counter(meant.executions)
    assert Counter(world.kept.values()) == Counter(meant.kept)
    assert not world.broken, "a kept call that had returned was made again"


@given(graphs(Mood(asks=False, stumbles=False)))
def test_a_graph_does_what_the_reference_does(plan: Graph):  # rules G3-G9, S1, S3, G15, R15
    meant, world = reference(plan, GIVEN), World()

    async def run() -> object:
        return (await build(plan).run(GIVEN, deps=world)).state

    if meant.conflict is not None:
        with pytest.raises(WriteConflict) as raised:
            asyncio.run(run())
        assert raised.value.field == meant.conflict
    else:
        assert plans.shown(asyncio.run(run())) == plans.shown(meant.final)
        check_effects(world, meant)
        assert set(world.made.values()) <= {1}


kinds = st.sampled_from(("memory", "sqlite"))
durabilities = st.sampled_from(("step", "async", "pause"))


@given(graphs(), dice, kinds, durabilities, st.booleans())
def test_an_interrupted_session_ends_as_the_uninterrupted_one(
    stores: Stores, plan: Graph, dice: Dice, where: str, durability: Durability, wrapped: bool
):  # rules R5-R9, R13, C3, C8, G19
    meant = reference(plan, GIVEN, AGAIN)

    async def run() -> None:
        twin = await stores.twin(plan, where, durability, wrapped=wrapped).with_trouble(GIVEN, dice)
        if twin.result is not None:
            await twin.with_trouble(AGAIN, dice)
        assert twin.conflict == meant.conflict
        if twin.result is not None:
            assert plans.shown(twin.result.state) == plans.shown(meant.final)
            check_effects(twin.world, meant)
            again = {key for key, times in twin.world.leavings.items() if times > 1}
            assert not again - twin.exempt, "what had finished was run again"
            await check_events(twin, meant)
        await check_history(twin, meant)

    asyncio.run(run())


async def check_history(twin: Twin, meant: Reference) -> None:
    """Every checkpoint restores a state that the run had at that step, of the root and of the frame it is about."""
    for point in await twin.graph.history(twin.session):
        at_root = point.address == meant.address
        known = meant.states[meant.address, point.step] if at_root else every_state(meant, meant.address)
        assert plans.shown(point.state) in known, point
        if not at_root:
            nested = await twin.graph.state(twin.session, checkpoint_id=point.id, at=point.address)
            assert plans.shown(nested) in meant.states[point.address, point.step], point


def every_state(meant: Reference, address: str) -> list[object]:
    return [state for (at, _), states in meant.states.items() if at == address for state in states]


async def check_events(twin: Twin, meant: Reference) -> None:
    """Stored events are numbered without gaps, tell of every finished node once, and end each turn with `done`."""
    events = [event async for event in twin.graph.attach(twin.session)]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert sum(isinstance(event, Done) for event in events) == 2
    assert isinstance(events[-1], Done)
    ends = Counter(event.address for event in events if isinstance(event, NodeEnd) and event.error is None)
    assert ends == Counter(meant.finished)
