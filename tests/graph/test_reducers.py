"""Reducers: how the updates of a superstep become the next state, or none of it."""

import asyncio
import operator
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, TypedDict

import pytest

from adjourn import AdjournError, interrupt
from adjourn.errors import NotStorable, StateInvalid, WriteConflict
from adjourn.graph import END, START, Command, Overwrite, StateGraph, append, last, merge, replace
from adjourn.stores import Store
from tests.graph.shapes import chain, giving, together


def strict_sum(old: int, new: int) -> int:
    if new < 0:
        raise ValueError(f"{new} is below zero")
    return old + new


class Sheet(TypedDict):
    plain: Any
    explicit: Annotated[str, replace]
    newest: Annotated[str, last]
    items: Annotated[list[Any], append]
    table: Annotated[dict[str, Any], merge]
    total: Annotated[int, operator.add]
    checked: Annotated[int, strict_sum]
    tags: Annotated[set[str], set[str].union]


async def final(nodes: dict[str, Any], input: Any = None) -> dict[str, Any]:
    return await together(Sheet, nodes).invoke(input or {})


# Replacing


async def test_a_field_without_reducer_is_replaced() -> None:  # rule S1
    assert (await final({"a": giving({"plain": [2]})}, {"plain": [1]}))["plain"] == [2]
    assert (await final({"a": giving({"explicit": "new"})}, {"explicit": "old"}))["explicit"] == "new"


@pytest.mark.parametrize("field", ["plain", "explicit"])
async def test_two_writers_of_one_superstep_conflict(field: str, store: Store) -> None:  # rule S1
    graph = together(
        Sheet, {"a": giving({field: "x", "items": [1]}), "b": giving({field: "x", "items": [2]})}, store=store
    )
    with pytest.raises(WriteConflict, match=field) as caught:
        await graph.run({field: "old"}, session_id="s")
    assert caught.value.field == field
    assert caught.value.nodes == ("a", "b")
    assert (await graph.state("s"))["items"] == []
    assert (await graph.state("s"))[field] == "old"
    assert (await graph.status("s")).status == "failed"


async def test_writing_the_value_that_is_there_is_writing() -> None:  # rule S1
    with pytest.raises(WriteConflict):
        await final({"a": giving({"plain": 1}), "b": giving({"plain": 1})}, {"plain": 1})


async def test_after_a_conflict_mended_code_recovers_with_the_later_task_alone(store: Store) -> None:  # rule S1
    ran: list[str] = []

    def a(state: Any) -> dict[str, Any]:
        ran.append("a")
        return {"plain": "a", "items": ["a"]}

    def b(state: Any) -> dict[str, Any]:
        ran.append("b")
        return {"plain": "b", "items": ["b"]}

    def mended(state: Any) -> dict[str, Any]:
        ran.append("mended")
        return {"items": ["b"]}

    with pytest.raises(WriteConflict):
        await together(Sheet, {"a": a, "b": b}, store=store).run({}, session_id="s")
    result = await together(Sheet, {"a": a, "b": mended}, store=store).recover("s")
    assert ran == ["a", "b", "mended"]
    assert result.state["plain"] == "a"
    assert result.state["items"] == ["a", "b"]


async def test_an_unmended_conflict_is_met_again(store: Store) -> None:  # rule S1
    graph = together(Sheet, {"a": giving({"plain": 1}), "b": giving({"plain": 2})}, store=store)
    with pytest.raises(WriteConflict):
        await graph.run({}, session_id="s")
    with pytest.raises(WriteConflict):
        await graph.recover("s")


async def test_tasks_of_one_fan_out_conflict_too() -> None:  # rule S1
    graph = (
        StateGraph(Sheet)
        .add_node("spread", giving([Command(goto="w"), Command(goto="w")]))
        .add_node("w", giving({"plain": 1}))
        .set_entry_point("spread")
        .compile()
    )
    with pytest.raises(WriteConflict) as caught:
        await graph.invoke({})
    assert caught.value.nodes == ("w:1", "w:2")


async def test_one_writer_per_superstep_is_no_conflict() -> None:  # rule S1
    def one(state: Any) -> dict[str, Any]:
        return {"plain": 1}

    def two(state: Any) -> dict[str, Any]:
        return {"plain": state["plain"] + 1}

    assert (await chain(Sheet, one, two).invoke({}))["plain"] == 2


async def test_last_takes_the_last_in_task_order() -> None:  # rule S1
    state = await final({"a": giving({"newest": "a"}), "b": giving({"newest": "b"}), "c": giving({})})
    assert state["newest"] == "b"


# The built-in reducers


async def test_append_starts_with_the_update_when_there_is_nothing() -> None:  # rule S2
    assert (await final({"a": giving({"items": [1]})}))["items"] == [1]
    assert append(None, [1]) == [1]


async def test_append_concatenates_in_task_order() -> None:  # rule S2
    assert (await final({"a": giving({"items": [2]}), "b": giving({"items": [3, 4]})}, {"items": [1]}))["items"] == [
        1,
        2,
        3,
        4,
    ]


async def test_append_keeps_a_list_in_a_list() -> None:  # rule S2
    assert (await final({"a": giving({"items": [[1]]})}))["items"] == [[1]]


@pytest.mark.parametrize("update", ["text", 1, None, ("a", "b"), {"a": 1}, {"a"}])
async def test_append_refuses_what_is_no_list(update: Any) -> None:  # rule S2
    with pytest.raises(StateInvalid, match="items") as caught:
        await final({"a": giving({"items": update})})
    assert caught.value.field == "items"
    with pytest.raises(TypeError):
        append([], update)


async def test_merge_is_a_shallow_union_in_which_the_update_wins() -> None:  # rule S2
    state = await final({"a": giving({"table": {"x": {"new": 1}, "y": 2}})}, {"table": {"x": {"old": 1}, "z": 3}})
    assert state["table"] == {"x": {"new": 1}, "y": 2, "z": 3}


async def test_merge_takes_parallel_updates_in_task_order() -> None:  # rule S2
    state = await final({"a": giving({"table": {"k": "a", "a": 1}}), "b": giving({"table": {"k": "b"}})})
    assert state["table"] == {"k": "b", "a": 1}


@pytest.mark.parametrize("update", ["text", 1, None, [("a", 1)]])
async def test_merge_refuses_what_is_no_mapping(update: Any) -> None:  # rule S2
    with pytest.raises(StateInvalid, match="table"):
        await final({"a": giving({"table": update})})
    with pytest.raises(TypeError):
        merge({}, update)


@pytest.mark.parametrize(
    ("field", "bad", "good", "whole"),
    [("items", "no list", ["ok"], ["ok"]), ("table", [], {"k": 1}, {"k": 1}), ("checked", -1, 1, 1)],
)
async def test_a_refused_update_is_that_tasks_failure(
    field: str, bad: Any, good: Any, whole: Any, store: Store
) -> None:  # rules S1, S2
    ran: list[str] = []

    def sibling(state: Any) -> dict[str, Any]:
        ran.append("sibling")
        return {"newest": "here"}

    with pytest.raises(AdjournError, match=field):
        await together(Sheet, {"a": sibling, "b": giving({field: bad})}, store=store).run({}, session_id="s")
    result = await together(Sheet, {"a": sibling, "b": giving({field: good})}, store=store).recover("s")
    assert ran == ["sibling"]
    assert result.state[field] == whole
    assert result.state["newest"] == "here"


# Reducers of the user's own


async def test_any_function_of_old_and_new_is_a_reducer() -> None:
    state = await final(
        {"a": giving({"total": 2, "tags": {"a"}}), "b": giving({"total": 3, "tags": {"b"}})}, {"total": 1}
    )
    assert state["total"] == 6
    assert state["tags"] == {"a", "b"}


async def test_a_reducer_that_raises_applies_nothing(store: Store) -> None:  # rule S1
    graph = together(Sheet, {"a": giving({"items": ["a"]}), "b": giving({"checked": -1})}, store=store)
    with pytest.raises(AdjournError, match=r"checked.*-1 is below zero"):
        await graph.run({}, session_id="s")
    assert (await graph.state("s"))["items"] == []


async def test_a_reducer_that_gives_what_cannot_be_stored_is_that_tasks_failure(store: Store) -> None:  # rule S1
    def odd(old: Any, new: Any) -> Any:
        return object() if new == "bad" else new

    class Odd(TypedDict):
        field: Annotated[Any, odd]

    with pytest.raises(NotStorable, match="field"):
        await together(Odd, {"a": giving({"field": "bad"})}, store=store).run({"field": "first"}, session_id="s")
    assert (await together(Odd, {"a": giving({})}, store=store).status("s")).status == "failed"
    result = await together(Odd, {"a": giving({"field": "good"})}, store=store).recover("s")
    assert result.state["field"] == "good"


async def test_a_reducer_cannot_change_the_old_value_in_place() -> None:  # rule S6
    def greedy(old: list[int], new: list[int]) -> list[int]:
        old.extend(new)
        if 13 in new:
            raise ValueError("unlucky")
        return old

    class Numbers(TypedDict):
        numbers: Annotated[list[int], greedy]

    graph = together(Numbers, {"a": giving({"numbers": [2]}), "b": giving({"numbers": [13]})})
    with pytest.raises(AdjournError, match="unlucky"):
        await graph.run({"numbers": [1]}, session_id="s")
    assert (await graph.state("s"))["numbers"] == [1]


async def test_a_builtin_without_a_signature_is_a_reducer() -> None:
    class Most(TypedDict):
        most: Annotated[int, max]

    assert (await together(Most, {"a": giving({"most": 3}), "b": giving({"most": 2})}).invoke({}))["most"] == 3


# Overwrite


async def test_overwrite_bypasses_the_reducer() -> None:  # rule S9
    nodes = {"a": giving({"items": Overwrite(["z"]), "total": Overwrite(7), "table": Overwrite({})})}
    state = await final(nodes, {"items": ["a"], "total": 1, "table": {"k": 1}})
    assert (state["items"], state["total"], state["table"]) == (["z"], 7, {})


async def test_two_overwrites_of_one_field_are_an_error(store: Store) -> None:  # rule S9
    graph = together(
        Sheet, {"a": giving({"items": Overwrite([1])}), "b": giving({"items": Overwrite([2])})}, store=store
    )
    with pytest.raises(WriteConflict, match="items") as caught:
        await graph.run({"items": [0]}, session_id="s")
    assert caught.value.nodes == ("a", "b")
    assert (await graph.state("s"))["items"] == [0]


async def test_updates_after_an_overwrite_go_on_from_it() -> None:  # rule S9
    state = await final({"a": giving({"items": Overwrite([1])}), "b": giving({"items": [2]})}, {"items": [0]})
    assert state["items"] == [1, 2]


@pytest.mark.parametrize(("a", "b"), [(Overwrite(1), 2), (1, Overwrite(2)), (Overwrite(1), Overwrite(2))])
async def test_an_overwrite_of_a_field_without_reducer_is_a_write_like_any(a: Any, b: Any) -> None:  # rules S1, S9
    with pytest.raises(WriteConflict, match="plain"):
        await final({"a": giving({"plain": a}), "b": giving({"plain": b})})


async def test_input_may_overwrite() -> None:  # rules S3, S9
    graph = together(Sheet, {"a": giving({"items": ["n"]})})
    await graph.run({"items": [1]}, session_id="s")
    result = await graph.run({"items": Overwrite([])}, session_id="s")
    assert result.state["items"] == ["n"]


@pytest.mark.parametrize(("field", "value"), [("items", None), ("items", "text"), ("table", None), ("table", [1])])
async def test_an_overwrite_cannot_break_a_field(field: str, value: Any, store: Store) -> None:  # rule S9
    graph = together(Sheet, {"a": giving({field: Overwrite(value)})}, store=store)
    with pytest.raises(StateInvalid, match=field):
        await graph.run({}, session_id="s")
    result = await together(Sheet, {"a": giving(None)}, store=store).recover("s")
    assert not result.state[field]


async def test_a_fan_out_lays_an_overwrites_value_over_the_state() -> None:  # rules G5, S9
    seen: list[Any] = []

    def worker(state: Any) -> None:
        seen.append(state["items"])

    graph = (
        StateGraph(Sheet)
        .add_node("spread", giving([Command(update={"items": Overwrite([1])}, goto="worker")]))
        .add_node("worker", worker)
        .set_entry_point("spread")
        .compile()
    )
    await graph.invoke({"items": [0]})
    assert seen == [[1]]


# Results that equal the old value


@dataclass(eq=False)
class Document:  # noqa: PLW1641 - it is never a key
    """Known by its id, whatever its text."""

    id: int
    text: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Document) and self.id == other.id


@dataclass(eq=False)
class Vector:  # noqa: PLW1641 - it is never a key
    """Cannot be compared, like an array."""

    numbers: list[float]

    def __eq__(self, other: object) -> bool:
        raise ValueError("the truth value of an array is ambiguous")


def newer(old: Any, new: Any) -> Any:
    return new


class Newest(TypedDict, total=False):
    items: Annotated[list[Any], newer]
    table: Annotated[dict[Any, Any], newer]
    plain: Any
    kinds: list[Document | Vector]
    appended: Annotated[list[Any], append]


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
EQUAL: dict[str, tuple[Any, Any]] = {
    "a class that compares ids": (Document(1, "draft"), Document(1, "final")),
    "a decimal with more digits": (Decimal("1.0"), Decimal("1.00")),
    "a time in another zone": (NOON, NOON.astimezone(timezone(timedelta(hours=2)))),
    "zero with a sign": (0.0, -0.0),
    "a set of a truth": ({1}, {True}),
    "a key that is a truth": ({1: "x"}, {True: "x"}),
    "another order": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
}


@pytest.mark.parametrize("name", EQUAL)
async def test_a_result_that_only_equals_the_old_value_counts(name: str, store: Store) -> None:  # rules S1, S7, C3
    old, new = EQUAL[name]

    def first(state: Any) -> dict[str, Any]:
        return {"items": [old], "table": {"k": old}, "plain": [old]}

    def second(state: Any) -> dict[str, Any]:
        return {"items": [new], "table": {"k": new}}

    def third(state: Any) -> Any:
        state["plain"] = [new]
        return state

    graph = chain(Newest, first, second, third, store=store)
    result = await graph.run({}, session_id="s")
    for state in (result.state, await chain(Newest, first, second, third, store=store).state("s")):
        assert {repr(state["items"]), repr(list(state["table"].values())), repr(state["plain"])} == {repr([new])}


@pytest.mark.parametrize("keys", [({1: "x"}, {True: "x"}), ({0.0: "x"}, {-0.0: "x"})])
async def test_a_key_that_only_equals_the_old_one_counts(keys: Any, store: Store) -> None:  # rules S1, C3
    graph = together(Newest, {"a": giving({"table": keys[1]})}, store=store)
    result = await graph.run({"table": keys[0]}, session_id="s")
    assert repr(result.state["table"]) == repr((await graph.state("s"))["table"]) == repr(keys[1])


async def test_values_that_cannot_be_compared_are_kept(store: Store) -> None:  # rules S1, S7
    class Vectors(TypedDict, total=False):
        added: Annotated[list[Vector], operator.add]
        appended: Annotated[list[Vector], append]
        one: Vector

    def first(state: Any) -> dict[str, Any]:
        return {"added": [Vector([1.0])], "appended": [Vector([1.0])], "one": Vector([1.0])}

    def second(state: Any) -> Any:
        state["appended"].append(Vector([2.0]))
        state["one"].numbers.append(2.0)
        return state

    def third(state: Any) -> Any:
        return {"added": [Vector([2.0])]}

    result = await chain(Vectors, first, second, third, store=store).run({}, session_id="s")
    assert [each.numbers for each in result.state["added"]] == [[1.0], [2.0]]
    assert [each.numbers for each in result.state["appended"]] == [[1.0], [2.0]]
    assert result.state["one"].numbers == [1.0, 2.0]


async def test_an_appended_item_that_was_changed_is_found_out() -> None:  # rule S7
    def change(state: Any) -> Any:
        state["appended"][0].text = "final"
        return state

    with pytest.raises(StateInvalid, match="elsewhere than at its end"):
        await chain(Newest, change).invoke({"appended": [Document(1, "draft")]})


# Order


async def test_updates_are_applied_in_the_order_of_the_builder() -> None:  # rule G9
    turn = {name: asyncio.Event() for name in "cba"}

    def waiting(name: str, after: str | None) -> Callable[[Any], Any]:
        async def node(state: Any) -> dict[str, Any]:
            if after:
                await turn[after].wait()
            turn[name].set()
            return {"items": [name], "newest": name}

        return node

    nodes = {"a": waiting("a", "b"), "b": waiting("b", "c"), "c": waiting("c", None)}
    state = await final(nodes)
    assert state["items"] == ["a", "b", "c"]
    assert state["newest"] == "c"


async def test_edges_do_not_change_the_order() -> None:  # rule G9
    graph = StateGraph(Sheet)
    for name in "abc":
        graph.add_node(name, giving({"items": [name]}))
    for name in "cab":
        graph.add_edge(START, name).add_edge(name, END)
    assert (await graph.compile().invoke({}))["items"] == ["a", "b", "c"]


def asking_sum(old: int, new: int) -> int:
    return interrupt(f"{old} or {new}?")


class Asking(TypedDict, total=False):
    total: Annotated[int, asking_sum]


async def test_a_reducer_that_asks_is_told_where_to_ask() -> None:
    graph = StateGraph(Asking, name="g").add_node("count", giving({"total": 2})).add_edge(START, "count")
    with pytest.raises(AdjournError, match=r"reducer of 'total' .* cannot ask .* in the node"):
        await graph.compile().invoke({"total": 1})
