"""What a node returns is checked against the types of the fields, and never converted (rule S5)."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pydantic
import pytest

from adjourn import Message
from adjourn.errors import GraphError, StateInvalid, UsageError
from adjourn.graph import (
    START,
    Command,
    CompiledGraph,
    MessagesState,
    Overwrite,
    StateGraph,
    StateSchema,
    add_messages,
    append,
    last,
    merge,
)
from adjourn.stores import Store
from adjourn.testing import ScriptedModel
from tests.graph.shapes import chain, failing, giving, together


class Prefs(TypedDict):
    size: int
    colour: str


def joined(old: str, new: Any) -> str:
    return f"{old}{new}"


class Form(TypedDict):
    count: int
    share: float
    name: str | None
    size: Literal["s", "m"]
    tags: list[str]
    table: dict[str, list[int]]
    anything: Any
    latest: Annotated[int, last]
    log: Annotated[list[str], append]
    notes: Annotated[dict[str, int], merge]
    prefs: Annotated[Prefs, merge]
    text: Annotated[str, joined]
    messages: Annotated[list[Message], add_messages]


def run(update: Any, **options: Any) -> Any:
    return chain(Form, giving(update), **options).invoke({})


FITTING: list[dict[str, Any]] = [
    {"count": 1, "share": 1, "name": None, "size": "m"},
    {"name": "a", "tags": [], "table": {"a": [1]}, "anything": object.__name__},
    {"log": ["a"], "notes": {"a": 1}, "latest": 2},
    {"prefs": {"size": 1}},
    {"text": 5},
    {"messages": Message.user("a")},
    {"tags": Overwrite(["a"]), "log": Overwrite([])},
]

MISFITS: list[tuple[str, Any, str]] = [
    ("count", "1", "expected int, got '1' (str)"),
    ("count", True, "expected int, got True (bool)"),
    ("count", 1.0, "expected int, got 1.0 (float)"),
    ("count", None, "expected int, got None (NoneType)"),
    ("name", 1, "expected str | None, got 1 (int)"),
    ("size", "l", "expected Literal['s', 'm'], got 'l' (str)"),
    ("tags", ["a", 1], "[1]: expected str, got 1 (int)"),
    ("table", {"a": ["b"]}, "['a'][0]: expected int, got 'b' (str)"),
    ("latest", "a", "expected int, got 'a' (str)"),
    ("log", ["a", None], "[1]: expected str, got None (NoneType)"),
    ("notes", {"a": "b"}, "['a']: expected int, got 'b' (str)"),
    ("prefs", {"colour": 1}, "['colour']: expected str, got 1 (int)"),
    ("count", Overwrite("1"), "expected int, got '1' (str)"),
    ("log", Overwrite([1]), "[0]: expected str, got 1 (int)"),
    ("text", Overwrite(1), "expected str, got 1 (int)"),
]


@pytest.mark.parametrize("update", FITTING, ids=lambda update: "-".join(update))
async def test_what_fits_enters_as_it_is(update: dict[str, Any]) -> None:  # rule S5
    state = await run(update)
    for name, value in update.items():
        if name not in ("text", "messages") and not isinstance(value, Overwrite):
            assert (type(state[name]), state[name]) == (type(value), value)


@pytest.mark.parametrize(("field", "value", "problem"), MISFITS)
async def test_a_misfit_names_the_node_and_the_field(field: str, value: Any, problem: str) -> None:  # rule S5
    with pytest.raises(StateInvalid) as caught:
        await run({field: value})
    assert (caught.value.field, caught.value.node) == (field, "give")
    assert f"State field '{field}': what node 'give' returned does not fit: {problem}." in str(caught.value)


@pytest.mark.parametrize(("field", "value", "problem"), MISFITS)
async def test_the_check_can_be_switched_off(field: str, value: Any, problem: str) -> None:  # rule S5
    await run({field: value}, check_updates=False)


@pytest.mark.parametrize("way", ["command", "goto", "state"])
async def test_whatever_way_it_is_returned(way: str) -> None:  # rule S5
    def node(state: Any) -> Any:
        state["count"] = "1"
        return {"command": Command({"count": "1"}), "goto": Command({"count": "1"}, goto=[]), "state": state}[way]

    with pytest.raises(StateInvalid, match="node 'node'"):
        await chain(Form, node).invoke({})


@dataclasses.dataclass
class Record:
    count: int = 0
    tags: list[str] = dataclasses.field(default_factory=list[str])


class Shape(msgspec.Struct):
    count: int = 0
    tags: list[str] = []


class Model(pydantic.BaseModel):
    count: int = 0
    tags: list[str] = []


FIELDS = StateSchema().add_field("count", int, default=0).add_field("tags", list[str], default=list)


@pytest.mark.parametrize("schema", [Record, Shape, Model, FIELDS], ids=["dataclass", "struct", "pydantic", "fields"])
async def test_every_kind_of_schema(schema: Any) -> None:  # rule S5
    await chain(schema, giving({"count": 1, "tags": ["a"]})).invoke({})
    for update in ({"count": "1"}, {"tags": [1]}):
        with pytest.raises(StateInvalid, match="node 'give' returned"):
            await chain(schema, giving(update)).invoke({})


@pytest.mark.parametrize("schema", [Record, Shape], ids=["dataclass", "struct"])
async def test_an_instance_of_the_state(schema: Any) -> None:  # rules S5, S7
    def node(state: Any) -> Any:
        state.tags = [*state.tags, 1]
        return state

    with pytest.raises(StateInvalid, match=r"\[0\]: expected str, got 1"):
        await chain(schema, node).invoke({})


async def test_what_was_there_is_not_checked_again() -> None:  # rule S5
    graph = StateGraph(Form, name="g").add_node("n", giving({"log": ["b"], "notes": {"b": 2}})).set_entry_point("n")
    unchecked = StateGraph(Form, name="g").add_node("n", giving({"log": [1], "notes": {"a": "x"}})).set_entry_point("n")
    store = "memory://what-was-there"
    await unchecked.compile(store=store, check_updates=False).run({}, session_id="s")
    state = (await graph.compile(store=store).run({}, session_id="s")).state
    assert (state["log"], state["notes"]) == ([1, "b"], {"a": "x", "b": 2})


async def test_the_task_has_failed_and_mended_code_goes_on(store: Store) -> None:  # rules S5, G11
    ran: list[str] = []

    def beside(state: Any) -> dict[str, Any]:
        ran.append("beside")
        return {"log": ["beside"]}

    def build(count: Any) -> CompiledGraph:
        return together(Form, {"wrong": giving({"count": count}), "beside": beside}, store=store)

    with pytest.raises(StateInvalid, match="node 'wrong'"):
        await build("1").run({}, session_id="s")
    assert (await build("1").status("s")).status == "failed"
    state = (await build(1).recover("s")).state
    assert (state["count"], state["log"], ran) == (1, ["beside"], ["beside"])


async def test_an_overlay_does_not_enter_the_state() -> None:  # rules S5, G5
    async def fan(state: Any) -> list[Command]:
        return [Command({"log": "an item"}, goto="n")]

    def node(state: Any) -> dict[str, Any]:
        return {"log": [state["log"]]}

    graph = StateGraph(Form, name="g").add_node("fan", fan).add_node("n", node).set_entry_point("fan").compile()
    assert (await graph.invoke({}))["log"] == ["an item"]


class Other(TypedDict, total=False):
    count: str
    log: Annotated[list[Any], append]


@pytest.mark.parametrize("update", [{"count": "1"}, {"log": [1]}])
@pytest.mark.parametrize("check", [True, False])
async def test_what_a_subgraph_hands_up_fits_the_parent(update: Any, check: bool) -> None:  # rules S5, G15
    inner = chain(Other, giving(update), name="inner", check_updates=check)
    graph = StateGraph(Form, name="g").add_subgraph("sub", inner).set_entry_point("sub").compile()
    with pytest.raises(StateInvalid, match="node 'sub' returned"):
        await graph.invoke({})


async def test_a_subgraph_of_the_same_schema_hands_up_what_it_checked() -> None:  # rules S5, G15
    inner = chain(Form, giving({"count": 1, "log": ["a"]}), name="inner")
    graph = StateGraph(Form, name="g").add_subgraph("sub", inner).set_entry_point("sub").compile()
    assert (await graph.invoke({}))["count"] == 1


async def test_what_models_and_tools_write_fits() -> None:  # rules S5, L5
    class Narrow(MessagesState):
        node_responses: Annotated[dict[str, int], merge]

    graph = StateGraph(Narrow, name="g").add_llm_node("n", ScriptedModel(["hi"])).add_edge(START, "n").compile()
    with pytest.raises(StateInvalid, match="'node_responses': what node 'n' returned"):
        await graph.run({"user_input": "go"})


# Defaults


def defaulted(type_: Any, default: Any, reducer: Any = None) -> StateGraph:
    schema = StateSchema().add_field("x", type_, reducer=reducer, default=default)
    return StateGraph(schema, name="g").add_node("n", giving({})).set_entry_point("n")


@pytest.mark.parametrize(
    ("type_", "default", "reducer", "problem"),
    [
        (int, "1", None, "the default of field 'x' does not fit: expected int, got '1' (str)"),
        (int, None, None, "expected int, got None (NoneType)"),
        (list[str], lambda: [1], None, "[0]: expected str, got 1 (int)"),
        (list[str], lambda: [1], append, "[0]: expected str, got 1 (int)"),
        (list[str], (), append, "the schema's default gave a tuple"),
        (str, 1, joined, "expected str, got 1 (int)"),
        (int, failing(ValueError("no")).__class__, None, "the default of field 'x' cannot be made: TypeError"),
    ],
)
def test_a_default_that_does_not_fit(type_: Any, default: Any, reducer: Any, problem: str) -> None:  # rules S5, G1
    with pytest.raises(GraphError) as caught:
        defaulted(type_, default, reducer).compile()
    assert problem in str(caught.value)


def test_no_value_yet_is_a_default_of_what_grows() -> None:  # rule S3
    defaulted(list[str], None, append).compile()
    defaulted(dict[str, int], None, merge).compile()


def test_the_option_is_true_or_false() -> None:
    with pytest.raises(UsageError, match="check_updates=1: give True or False"):
        defaulted(int, 1).compile(check_updates=1)  # pyright: ignore[reportArgumentType]


async def test_a_subclass_fits() -> None:  # rule S5
    class Animal(pydantic.BaseModel):
        name: str

    class Dog(Animal):
        tricks: int = 0

    schema = StateSchema().add_field("pet", Animal).add_field("pets", list[Animal]).add_field("dog", Dog)
    state = await chain(schema, giving({"pet": Dog(name="Rex"), "pets": [Dog(name="Rex")]})).invoke({})
    assert state["pet"] == Dog(name="Rex")
