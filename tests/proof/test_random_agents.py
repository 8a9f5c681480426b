"""Random trees of agents: paused and taken up again in every way, they end as if everybody had answered in place."""

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

from adjourn import Address, Done, Event, MessageEvent, RunError, Runner, RunResult, ToolResult, Transfer
from adjourn.stores import MemoryStore, SessionRef, SQLiteStore, Store
from adjourn.stores.kit import Audit
from adjourn.testing import FakeClock

from .agent_building import TooLong, World, build
from .agent_plans import Plan, answer_to
from .agent_strategies import HOOKED, STUMBLING, agents
from .strategies import Dice, dice
from .twin import Durability, Twin

SAID = ("book it", "and again")
numbers = count()


class Stores:
    """One store of each kind for all examples, each of which has a session of its own."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self.stores: dict[str, Store] = {
            "memory": MemoryStore(clock=self.clock),
            "sqlite": SQLiteStore(folder / "agents.db", clock=self.clock, synchronous="NORMAL"),
        }


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    stores = Stores(tmp_path_factory.mktemp("agents"))
    yield stores
    for store in stores.stores.values():
        asyncio.run(store.close())


class Ended:
    """What a session came to after each turn, and what it did to the world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.turns: list[tuple[Any, ...]] = []
        self.events: Counter[str] = Counter()

    def add(self, result: RunResult) -> None:
        assert result.status == "done"
        ids = [message.id for message in result.messages]
        assert len(set(ids)) == len(ids), "a message id stands twice"
        self.turns.append((result.output, result.messages, result.state["active"]))

    def look(self, events: list[Event]) -> None:
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert sum(isinstance(event, Done) for event in events) == len(SAID)
        self.events = Counter(filter(None, map(_shown, events)))


def _shown(event: Event) -> str | None:
    match event:
        case MessageEvent():
            return f"{event.agent} {event.path} {event.address} says {event.message.text} {event.message.id}"
        case ToolResult():
            return f"{event.agent} {event.path} {event.address} {event.tool} {event.call_id} gives {event.result}"
        case Transfer():
            return f"{event.agent} {event.path} {event.address} to {event.target}"
        case _:
            return None


async def _reference(plan: Plan) -> Ended:
    ended = Ended(World(knows=True))
    runner = Runner(build(plan, knows=True))
    for said in SAID:
        try:
            ended.add(await runner.run(said, session_id="s", deps=ended.world))
        except (TooLong, RunError):  # The latter when it was inside a tool, or beside others.
            assert ended.world.is_too_long
            assume(False)
    ended.look([event async for event in runner.attach("s")])
    return ended


def reference(plan: Plan) -> Ended:
    """What the plan comes to when the answers are in place; the few that go on and on are left out."""
    ended = asyncio.run(_reference(plan))
    assume(ended.world.asked <= 30)
    return ended


def check(ended: Ended, meant: Ended) -> None:
    assert ended.turns == meant.turns
    assert ended.events == meant.events
    assert Counter(ended.world.left.values()) == Counter(meant.world.left.values())
    assert Counter(ended.world.kept.values()) == Counter(meant.world.kept.values())
    assert not ended.world.broken, "a kept call that had returned was made again"


class Session:
    """One session, with agents that are built anew for every run."""

    def __init__(self, plan: Plan, store: Store, dice: Dice) -> None:
        self.plan = plan
        self.store = store
        self.dice = dice
        self.id = f"session {next(numbers)}"
        self.ended = Ended(World())

    def runner(self) -> Runner:
        return Runner(build(self.plan), store=self.store, streaming=bool(self.dice.roll(2)))

    async def through(self) -> Ended:
        for said in SAID:
            result = await self.end(self.runner().run(said, session_id=self.id, deps=self.ended.world))
            for _ in range(100):
                if result.status == "done":
                    break
                open_now = {asked.id: asked for asked in await self.runner().pending(self.id)}
                assert {asked.id: asked for asked in result.interrupts} == open_now
                answers = {asked.id: answer_to(asked) for asked in self.dice.some(list(result.interrupts))}
                result = await self.end(self.runner().resume(self.id, answers, deps=self.ended.world))
            self.ended.add(result)
        self.ended.look([event async for event in self.runner().attach(self.id)])
        asked = [decision.id for decision in await self.store.read(Audit(SessionRef(self.id)))]
        # In the reference nobody is asked whether an agent may be used as a tool.
        self.ended.world.asked = sum(
            not Address.parse(each.partition("#")[0])[-1].id.startswith("use") for each in asked
        )
        return self.ended

    async def end(self, run: Any) -> RunResult:
        if self.dice.roll(2):
            async for _ in run:
                pass
        return await run


@given(st.one_of(agents(), agents(HOOKED)), dice, st.sampled_from(("memory", "sqlite")))
def test_a_paused_tree_of_agents_ends_as_if_it_had_been_answered_in_place(
    stores: Stores, plan: Plan, dice: Dice, where: str
):  # rules A1-A7, R5-R9, T3, T4, A13
    meant = reference(plan)
    ended = asyncio.run(Session(plan, stores.stores[where], dice).through())
    check(ended, meant)
    assert ended.world.thoughts == meant.world.thoughts, "a model was asked again"
    assert ended.world.asked == meant.world.asked, "somebody was asked again"
    assert set(ended.world.made.values()) <= {1}
    assert set(ended.world.leavings.values()) <= {1}


def _built(plan: Plan, **options: Any) -> Runner:
    return Runner(build(plan), **options)


@given(agents(STUMBLING), dice, st.sampled_from(("memory", "sqlite")), st.sampled_from(("step", "async", "pause")))
def test_an_interrupted_tree_of_agents_ends_as_the_uninterrupted_one(
    stores: Stores, plan: Plan, dice: Dice, where: str, durability: Durability
):  # rules R3, R4, R13, C8, A12
    meant = reference(plan)

    async def run() -> Ended:
        ended = Ended(World())
        session = f"session {next(numbers)}"
        build_on = partial(_built, plan)
        twin = Twin(build_on, answer_to, ended.world, session, stores.stores[where], stores.clock, durability)
        for said in SAID:
            await twin.with_trouble(said, dice)
            assert twin.result is not None
            ended.add(twin.result)
        ended.look([event async for event in twin.graph.attach(session)])
        again = {key for key, times in ended.world.leavings.items() if times > 1}
        assert not again - twin.exempt, "what had finished was run again"
        return ended

    check(asyncio.run(run()), meant)
