"""The state: what it starts from, what may be in it, and whose it is."""

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, NotRequired, Required, TypedDict

import pytest

from adjourn import AdjournError, interrupt
from adjourn.errors import NotStorable, StateInvalid, WriteConflict
from adjourn.graph import (
    START,
    Command,
    CompiledGraph,
    Message,
    MessagesState,
    Shared,
    StateGraph,
    StateSchema,
    append,
    last,
    merge,
)
from adjourn.stores import Store
from tests.graph.shapes import chain, giving, together


class Notes(TypedDict):
    title: str
    items: Annotated[list[Any], append]
    table: Annotated[dict[str, Any], merge]
    deep: dict[str, Any]
    count: int


Read = Callable[[Any], Any]


def looking(read: Read, into: list[Any]) -> Callable[[Any], None]:
    def look(state: Any) -> None:
        into.append(read(state))

    return look


# What it starts from


async def test_a_reducer_field_starts_empty_before_the_first_node_reads() -> None:  # rule S3
    class Empty(TypedDict):
        items: Annotated[list[int], append]
        table: Annotated[dict[str, int], merge]
        newest: Annotated[str, last]
        total: Annotated[int, lambda old, new: old + new]  # pyright: ignore[reportUnknownLambdaType]
        plain: str

    seen: list[Any] = []
    await chain(Empty, looking(dict, seen)).invoke()
    assert seen == [{"items": [], "table": {}, "newest": "", "total": 0}]


async def test_a_field_that_nobody_wrote_is_absent() -> None:
    def probe(state: Any) -> dict[str, Any]:
        with pytest.raises(KeyError):
            state["title"]
        assert "title" not in state
        assert state.get("title", "none") == "none"
        return {"count": len(state)}

    assert (await chain(Notes, probe).invoke({}))["count"] == 2


async def test_a_default_is_the_base_of_the_first_update() -> None:  # rule S3
    schema = (
        StateSchema()
        .add_field("items", list[str], reducer=append, default=["first"])
        .add_field("count", int, default=5)
        .add_field("fresh", list[int], default=list)
    )

    def add(state: Any) -> dict[str, Any]:
        return {"items": ["second"], "count": state["count"] + 1}

    assert await chain(schema, add).invoke({}) == {"items": ["first", "second"], "count": 6, "fresh": []}


async def test_a_default_is_not_shared_by_sessions() -> None:  # rules S3, S6
    default = ["first"]
    schema = StateSchema().add_field("items", list[str], reducer=append, default=default)
    graph = chain(schema, giving({"items": ["x"]}))
    await graph.run({}, session_id="one")
    assert (await graph.run({}, session_id="two")).state["items"] == ["first", "x"]
    assert default == ["first"]


async def test_input_goes_through_reducers(store: Store) -> None:  # rule S3
    graph = chain(Notes, nothing, store=store)
    await graph.run({"items": [1], "table": {"a": 1}}, session_id="s")
    result = await graph.run({"items": [2], "table": {"b": 2}}, session_id="s")
    assert result.state == {"items": [1, 2], "table": {"a": 1, "b": 2}}


def nothing(state: Any) -> None:
    return None


async def test_input_lies_on_top_of_the_sessions_state(store: Store) -> None:  # rule S3
    schema = StateSchema().add_field("count", int, default=1).add_field("title", str, default="untitled")

    def double(state: Any) -> dict[str, Any]:
        return {"count": state["count"] * 2}

    graph = chain(schema, double, store=store)
    await graph.run({"title": "mine"}, session_id="s")
    assert (await graph.run({}, session_id="s")).state == {"count": 4, "title": "mine"}
    assert (await chain(schema, double, store=store).run({"count": 10}, session_id="s")).state["count"] == 20


async def test_defaults_count_only_when_there_is_no_state(store: Store) -> None:  # rule S3
    def default(value: int) -> CompiledGraph:
        return chain(StateSchema().add_field("count", int, default=value), nothing, store=store)

    await default(1).run({}, session_id="s")
    assert (await default(2).run({}, session_id="s")).state["count"] == 1
    assert (await default(2).run({}, session_id="t")).state["count"] == 2


# What may be in it


def somewhere(place: str, update: dict[str, Any]) -> CompiledGraph:
    result: Any = {
        "node": update,
        "command": Command(update=update),
        "fan-out": [Command(update=update, goto="after")],
    }.get(place)
    return StateGraph(Notes).add_node("a", giving(result)).add_node("after", nothing).set_entry_point("a").compile()


@pytest.mark.parametrize("place", ["node", "command", "fan-out"])
async def test_an_unknown_key_is_an_error_that_names_it(place: str) -> None:  # rule S4
    with pytest.raises(StateInvalid, match="titel") as caught:
        await somewhere(place, {"titel": "x"}).invoke({})
    assert caught.value.field == "titel"
    assert "title" in str(caught.value)


async def test_unknown_keys_in_input_and_edits_are_errors() -> None:  # rule S4
    graph = chain(Notes, nothing)
    with pytest.raises(StateInvalid, match="titel"):
        await graph.run({"titel": "x"}, session_id="s")
    await graph.run({}, session_id="s")
    with pytest.raises(StateInvalid, match="titel"):
        await graph.edit("s", {"titel": "x"})


async def test_a_schema_may_allow_unknown_keys(store: Store) -> None:  # rule S4
    schema = StateSchema(extra="allow").add_field("items", list[str], reducer=append)

    def ask(state: Any) -> dict[str, Any]:
        return {"found": (interrupt("?"), state["given"])}

    await chain(schema, ask, store=store).run({"given": {1, 2}}, session_id="s")
    result = await chain(schema, ask, store=store).resume("s", {"runnable:g;node:ask": "yes"})
    assert result.state == {"items": [], "given": {1, 2}, "found": ("yes", {1, 2})}


async def test_unknown_keys_have_one_writer_too() -> None:  # rules S1, S4
    graph = together(StateSchema(extra="allow"), {"a": giving({"new": 1}), "b": giving({"new": 1})})
    with pytest.raises(WriteConflict, match="new"):
        await graph.invoke({})


class Strict(TypedDict, total=False):
    name: Required[str]
    ages: Required[Annotated[list[int], append]]
    maybe: NotRequired[Annotated[list[int], append]]
    nested: Annotated[Required[int], last]


STRICT: dict[str, Any] = {"name": "Ann", "ages": [], "nested": 1}


async def test_required_fields_are_checked_when_a_run_starts() -> None:  # rule S5
    with pytest.raises(StateInvalid, match=r"name.*required") as caught:
        await chain(Strict, nothing).invoke({"nested": 1, "ages": []})
    assert caught.value.field == "name"
    for field in ("name", "ages", "nested"):
        with pytest.raises(StateInvalid, match=field):
            await chain(Strict, nothing).invoke({key: value for key, value in STRICT.items() if key != field})


async def test_a_mark_around_a_reducer_does_not_hide_it() -> None:  # rule S5
    state = await chain(Strict, giving_ages).invoke({"name": "Ann", "nested": 1, "ages": [1], "maybe": [1]})
    assert state["ages"] == [1, 2]
    assert state["maybe"] == [1, 2]


def giving_ages(state: Any) -> dict[str, Any]:
    return {"ages": [2], "maybe": [2]}


@pytest.mark.parametrize(
    ("field", "value"), [("name", 1), ("name", None), ("ages", ["old"]), ("ages", [True]), ("nested", "1")]
)
async def test_types_are_checked_when_a_run_starts_and_when_state_is_edited(field: str, value: Any) -> None:  # rule S5
    graph = chain(Strict, nothing)
    with pytest.raises(StateInvalid, match=field) as caught:
        await graph.run({**STRICT, field: value}, session_id="s")
    assert caught.value.field == field
    with pytest.raises(AdjournError):  # Nothing was started.
        await graph.status("s")
    await graph.run(STRICT, session_id="s")
    with pytest.raises(StateInvalid, match=field):
        await graph.edit("s", {field: value})
    assert (await graph.state("s"))["name"] == "Ann"


async def test_a_required_field_that_the_session_has_need_not_be_given_again(store: Store) -> None:  # rule S5
    graph = chain(Strict, nothing, store=store)
    await graph.run(STRICT, session_id="s")
    assert (await graph.run({}, session_id="s")).state["name"] == "Ann"


async def test_wrong_input_leaves_the_session_as_it_was(store: Store) -> None:  # rule S5
    graph = chain(Notes, nothing, store=store)
    await graph.run({"items": [1]}, session_id="s")
    with pytest.raises(StateInvalid):
        await graph.run({"items": [2], "count": "many"}, session_id="s")
    assert (await graph.run({"items": [3]}, session_id="s")).state["items"] == [1, 3]


async def test_what_cannot_be_stored_fails_the_node_that_wrote_it(store: Store) -> None:
    with pytest.raises(NotStorable, match="title"):
        await together(Notes, {"a": giving({"title": object()})}, store=store).run({}, session_id="s")
    result = await together(Notes, {"a": giving({"title": "fine"})}, store=store).recover("s")
    assert result.state["title"] == "fine"


# Whose it is


async def test_changing_what_was_read_changes_nothing(store: Store) -> None:  # rule S6
    seen: list[Any] = []

    def vandal(state: Any) -> dict[str, Any]:
        state["items"].append("graffiti")
        state["deep"]["list"].append("graffiti")
        state["deep"]["new"] = 1
        state["table"].clear()
        state["title"] = "mine"
        del state["count"]
        return {}

    start = {"items": [[1]], "deep": {"list": [1]}, "table": {"k": 1}, "title": "theirs", "count": 1}
    graph = together(Notes, {"vandal": vandal, "sibling": looking(dict, seen)}, then=looking(dict, seen), store=store)
    result = await graph.run(start, session_id="s")
    assert seen == [start, start]
    assert result.state == start
    assert await graph.state("s") == start


async def test_siblings_do_not_share_what_they_read() -> None:  # rule S6
    first_changed = asyncio.Event()

    async def changes(state: Any) -> None:
        state["deep"]["list"].append(2)
        first_changed.set()

    async def reads(state: Any) -> dict[str, Any]:
        await first_changed.wait()
        return {"title": str(state["deep"]["list"])}

    state = await together(Notes, {"a": changes, "b": reads}).invoke({"deep": {"list": [1]}})
    assert state["title"] == "[1]"


async def test_what_a_node_returned_is_not_its_own_any_more() -> None:  # rule S6
    kept: list[Any] = []

    def gives(state: Any) -> dict[str, Any]:
        kept.append([1])
        return {"items": kept[0], "deep": {"list": kept[0]}}

    def changes(state: Any) -> None:
        kept[0].append("late")

    state = await chain(Notes, gives, changes).invoke({})
    assert state["items"] == [1]
    assert state["deep"] == {"list": [1]}


async def test_input_and_result_are_the_callers_own() -> None:  # rule S6
    mine: dict[str, Any] = {"deep": {"list": [1]}}
    graph = chain(Notes, looking(lambda state: state["deep"]["list"].append(9), []))
    result = await graph.run(mine, session_id="s")
    mine["deep"]["list"].append(2)
    result.state["deep"]["list"].append(3)
    assert (await graph.state("s"))["deep"] == {"list": [1]}
    assert (await graph.run({}, session_id="s")).state["deep"] == {"list": [1]}


async def test_a_result_stays_what_it_was_when_the_session_goes_on() -> None:  # rule S6
    graph = chain(Notes, giving_one)
    first = await graph.run({}, session_id="s")
    await graph.run({}, session_id="s")
    assert first.state["items"] == [1]


def giving_one(state: Any) -> dict[str, Any]:
    return {"items": [1]}


async def test_conditions_and_fan_outs_have_their_own_state_too() -> None:  # rule S6
    def route(state: Any) -> str:
        state["items"].append("by the condition")
        return "spread"

    def spread(state: Any) -> list[Command]:
        shared = {"list": [0]}
        return [Command(update={"deep": shared}, goto="w"), Command(update={"deep": shared}, goto="w")]

    def worker(state: Any) -> dict[str, Any]:
        state["deep"]["list"].append(1)
        return {"items": [state["deep"]["list"]]}

    graph = StateGraph(Notes).add_node("a", nothing).add_node("spread", spread).add_node("w", worker, thread=False)
    graph.set_entry_point("a").add_conditional_edges("a", route)
    assert (await graph.compile().invoke({}))["items"] == [[0, 1], [0, 1]]


async def test_frozen_records_are_shared_not_copied() -> None:  # rule S6
    seen: list[Any] = []

    def reads(state: Any) -> None:
        seen.append(state["messages"])

    def again(state: Any) -> None:
        seen.append(state["messages"])

    await chain(MessagesState, reads, again).invoke({"messages": Message.user("hi")})
    assert seen[0] is not seen[1]
    assert seen[0][0] is seen[1][0]


async def test_a_field_declared_shared_is_handed_out_as_it_is() -> None:  # rule S6
    class Big(TypedDict):
        corpus: Annotated[dict[str, list[int]], Shared]
        mine: dict[str, list[int]]

    seen: list[Any] = []

    def one(state: Any) -> None:
        seen.append((state["corpus"], state["mine"]))

    def two(state: Any) -> None:
        seen.append((state["corpus"], state["mine"]))

    await chain(Big, one, two).invoke({"corpus": {"a": [1]}, "mine": {"a": [1]}})
    assert seen[0][0] is seen[1][0]
    assert seen[0][1] is not seen[1][1]


async def test_a_paused_node_sees_the_state_of_the_first_time(store: Store) -> None:  # rules S6, R5
    def asks(state: Any) -> dict[str, Any]:
        state["items"].append("local")
        return {"title": f"{interrupt('?')} {state['items']}"}

    graph = chain(Notes, asks, store=store)
    await graph.run({"items": [1]}, session_id="s")
    assert (await graph.resume("s", {"runnable:g;node:asks": "ok"})).state["title"] == "ok [1, 'local']"


async def test_the_state_reads_like_a_dict() -> None:
    def node(state: Any) -> dict[str, Any]:
        assert {**state} == dict(state.items()) == (state | {})
        assert list(state) == list(state.keys())
        assert state == {"title": "t", "items": [], "table": {}}
        assert state.pop("title") == "t"
        assert "title" not in state
        assert len(state) == 2
        return {"count": 1}

    graph = StateGraph(Notes).add_node("node", node).add_edge(START, "node").compile()
    assert (await graph.invoke({"title": "t"}))["title"] == "t"
