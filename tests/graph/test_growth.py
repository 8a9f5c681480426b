"""What a field costs that grows: a step stores what is new, and costs as much as the steps before it."""

import operator
from collections.abc import Callable
from datetime import date
from typing import Annotated, Any, TypedDict, cast

import pytest

from adjourn import Sessions
from adjourn.graph import START, Command, CompiledGraph, Overwrite, StateGraph, append, merge
from adjourn.graph._fields import Fields
from adjourn.stores import MemoryStore, Store
from tests._engine.test_growth import calls_of
from tests.runner.stores import WatchedStore


def union(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    return {**old, **new}


class Notes(TypedDict, total=False):
    notes: Annotated[dict[Any, Any], merge]
    united: Annotated[dict[str, Any], union]
    added: Annotated[list[str], operator.add]
    count: int
    limit: int


Step = Callable[[int], dict[str, Any]]


def looping(step: Step, store: Store | None = None) -> CompiledGraph:
    """A node that goes on until it has run as often as the input says."""

    def node(state: Any) -> Command:
        number = state.get("count", 0)
        return Command({**step(number), "count": number + 1}, goto="node" if number + 1 < state["limit"] else [])

    built = StateGraph(Notes, name="g").add_node("node", node, thread=False).add_edge(START, "node")
    return built.compile(store=store, max_steps=10_000)


STEPS: dict[str, Step] = {
    "merge": lambda number: {"notes": {f"key {number}": "x" * 50}},
    "merge with types": lambda number: {"notes": {f"key {number}": (date(2026, 1, 1), "x" * 50)}},
    "merge by number": lambda number: {"notes": {number: "x" * 50}},
    "merge by number with types": lambda number: {"notes": {number: (date(2026, 1, 1), "x" * 50)}},
    "a reducer that unites": lambda number: {"united": {f"key {number}": "x" * 50}},
    "a reducer that concatenates": lambda number: {"added": [f"{number}" + "x" * 50]},
}


@pytest.mark.parametrize("name", STEPS)
async def test_a_step_stores_only_what_is_new(name: str) -> None:  # rule C9
    async def bytes_of(count: int) -> float:
        store = WatchedStore(MemoryStore())
        await looping(STEPS[name], store).run({"limit": count}, session_id="s")
        return sum(len(write.body) for write in store.writes) / count

    assert await bytes_of(800) < 1.4 * await bytes_of(200)


@pytest.mark.parametrize("name", ["merge", "merge with types", "merge by number"])
async def test_a_merge_costs_the_same_however_many_came_before(name: str) -> None:  # rule C9
    async def calls(count: int) -> float:
        graph = looping(STEPS[name], MemoryStore())
        return await calls_of(lambda: graph.run({"limit": count}, session_id="s")) / count

    await calls(10)  # What is made and imported once.
    assert await calls(1600) < 1.2 * await calls(200)


async def test_every_checkpoint_restores_what_was_merged(store: Store) -> None:  # rules C3, C9, S2
    def step(number: int) -> dict[str, Any]:
        if number == 12:
            return {"notes": Overwrite({"new": 0})}
        odd: list[Any] = [{number % 5: "number"}, {"$t": "tuple", "v": [1]}, {}, {f"k{number % 4}": (number,)}]
        return {"notes": odd[number % 4] if number > 6 else {f"k{number % 3}": number}}

    graph = looping(step, store)
    result = await graph.run({"limit": 20}, session_id="s")
    expected: list[dict[Any, Any]] = [{}]
    for number in range(20):
        update: Any = step(number)["notes"]
        expected.append(update.value if isinstance(update, Overwrite) else {**expected[-1], **update})
    history = await looping(step, store).history("s")
    assert [list(point.state["notes"].items()) for point in reversed(history)] == [
        list(each.items()) for each in expected
    ]
    assert result.state["notes"] == expected[-1]
    fork = await graph.fork("s", checkpoint_id=history[3].id)
    assert (await looping(step, store).recover(fork)).state["notes"] == expected[-1]


async def test_every_checkpoint_restores_what_was_merged_by_number(store: Store) -> None:  # rules C3, C9, S2
    def step(number: int) -> dict[str, Any]:
        if number in (5, 13):
            return {"notes": {}}
        if number == 9:
            return {"notes": Overwrite({(1, 2): "tuple"})}
        odd: list[Any] = [{number % 5: "number"}, {"name": number, "$t": "tag"}, {True: number, 0: (number,)}]
        return {"notes": odd[number % 3]}

    graph = looping(step, store)
    expected: list[dict[Any, Any]] = [{}]
    for number in range(18):
        update: Any = step(number)["notes"]
        expected.append(update.value if isinstance(update, Overwrite) else {**expected[-1], **update})
    await graph.run({"limit": 18}, session_id="s")
    history = await looping(step, store).history("s")
    assert [repr(point.state["notes"]) for point in reversed(history)] == [repr(each) for each in expected]
    assert repr((await Sessions(store).state("s"))["notes"]) == repr(expected[-1])
    for point in (history[3], history[10], history[15]):
        fork = await graph.fork("s", checkpoint_id=point.id)
        assert repr((await looping(step, store).recover(fork)).state["notes"]) == repr(expected[-1])


async def test_a_state_that_was_handed_out_does_not_change(store: Store) -> None:  # rule S6
    def step(number: int) -> dict[str, Any]:
        return {"notes": {f"key {number}": number}, "added": [str(number)], "united": {str(number): number}}

    graph = looping(step, store)
    seen = [(await graph.run({"limit": limit}, session_id="s")).state for limit in (2, 4, 6)]
    assert [len(each["notes"]) for each in seen] == [2, 4, 6]
    assert [len(each["united"]) for each in seen] == [2, 4, 6]
    assert [len(each["added"]) for each in seen] == [2, 4, 6]


async def test_what_a_subgraph_hands_up_does_not_change_with_its_state(store: Store) -> None:  # rules G15, S6
    def first(state: Any) -> dict[str, Any]:
        return {"notes": {"a": 1}, "added": ["a"], "united": {"a": 1}}

    def second(state: Any) -> dict[str, Any]:
        return {"notes": {"b": 2}, "added": ["b"], "united": {"b": 2}}

    inner = StateGraph(Notes, name="inner").add_sequence(START, first, second).compile()
    outer = StateGraph(Notes, name="outer").add_subgraph("sub", inner).add_node("then", first)
    result = await outer.add_sequence(START, "sub", "then").compile(store=store).run({}, session_id="s")
    assert result.state == {"notes": {"a": 1, "b": 2}, "added": ["a", "b", "a"], "united": {"a": 1, "b": 2}}


async def test_a_reducer_that_drops_or_reorders_is_stored_as_it_is(store: Store) -> None:  # rules C3, S1
    def newest(old: list[Any], new: list[Any]) -> list[Any]:
        return [*old, *new][-3:]

    def front(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
        return {**new, **{key: value for key, value in old.items() if key not in new}}

    def other(old: list[Any], new: list[Any]) -> list[Any]:
        return new

    class Few(TypedDict, total=False):
        kept: Annotated[list[Any], newest]
        order: Annotated[dict[str, Any], front]
        flags: Annotated[list[Any], other]
        count: int

    def node(state: Any) -> Command:
        number = state.get("count", 0)
        update = {"kept": [number], "order": {f"k{number % 3}": number}, "flags": [1 if number % 2 else True] * 2}
        return Command({**update, "count": number + 1}, goto="node" if number < 6 else [])

    def build() -> CompiledGraph:
        return StateGraph(Few, name="g").add_node("node", node).add_edge(START, "node").compile(store=store)

    result = await build().run({}, session_id="s")
    stored = await build().state("s")
    assert stored == result.state == {"kept": [4, 5, 6], "order": stored["order"], "flags": [True, True], "count": 7}
    assert list(stored["order"].items()) == [("k0", 6), ("k2", 5), ("k1", 4)]
    assert [type(each) for each in stored["flags"]] == [bool, bool]


def test_a_long_list_is_copied_without_a_look_at_items_that_were_seen_before() -> None:  # rules C9, S6
    fields, texts = Fields(), ["text"] * 100
    assert fields.copied("texts", texts) == texts
    texts[50] = cast("Any", {})  # As nothing does: so it shows that nobody looks there again.
    texts.append("more")
    copied = fields.copied("texts", texts)
    assert copied == texts
    assert copied is not texts
    assert fields.copied("texts", list(texts)) is None


async def test_nodes_do_not_share_what_a_long_list_holds_whenever_it_came(store: Store) -> None:  # rule S6
    def node(state: Any) -> Command:
        number = state.get("count", 0)
        for each in state["added"]:
            if isinstance(each, dict):
                each["changed"] = True
        added: list[Any] = [f"text {number}"] * 40 if number < 2 else [{"number": number}]
        return Command({"added": added, "count": number + 1}, goto="node" if number < 5 else [])

    class Added(TypedDict, total=False):
        added: Annotated[list[Any], append]
        count: int

    graph = StateGraph(Added, name="g").add_node("node", node, thread=False).add_edge(START, "node")
    state: Any = (await graph.compile(store=store).run({}, session_id="s")).state
    assert state["added"][80:] == [{"number": number} for number in range(2, 6)]
