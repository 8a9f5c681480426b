"""Schemas of every kind: the same state as a TypedDict, dataclass, msgspec Struct, Pydantic model or StateSchema."""

import dataclasses
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, TypedDict

import msgspec
import pydantic
import pytest

from adjourn import UsageError, interrupt
from adjourn.errors import GraphError, StateInvalid
from adjourn.graph import Command, Message, Overwrite, StateGraph, StateSchema, add_messages, append, last
from adjourn.stores import Store
from tests.graph.shapes import chain, giving, together


class AsTypedDict(TypedDict, total=False):
    topic: str
    items: Annotated[list[str], append]
    count: int
    newest: Annotated[str, last]


@dataclass
class AsDataclass:
    topic: str
    items: Annotated[list[str], append] = field(default_factory=list[str])
    count: int = 7
    newest: Annotated[str, last] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AsFrozen:
    items: Annotated[list[str], append]
    newest: Annotated[str, last]
    count: int = 7
    topic: str


class AsStruct(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    items: Annotated[list[str], append] = []
    count: int = 7
    newest: Annotated[str, last] = ""


class AsModel(pydantic.BaseModel):
    topic: str
    items: Annotated[list[str], append] = pydantic.Field(default_factory=list)
    count: int = 7
    newest: Annotated[str, last] = ""


def as_fields() -> StateSchema:
    return (
        StateSchema()
        .add_field("topic", str, required=True)
        .add_field("items", list[str], reducer=append)
        .add_field("count", int, default=7)
        .add_field("newest", str, reducer=last)
    )


CLASSES = [AsDataclass, AsFrozen, AsStruct, AsModel]
ALL = [*CLASSES, AsTypedDict, as_fields()]


def get(state: Any, name: str) -> Any:
    return getattr(state, name) if not hasattr(state, "keys") else state[name]


def changed(state: Any, **changes: Any) -> Any:
    if isinstance(state, AsModel):
        return state.model_copy(update=changes)
    replace = msgspec.structs.replace if isinstance(state, AsStruct) else dataclasses.replace
    return replace(state, **changes)


@pytest.mark.parametrize("schema", ALL)
async def test_every_kind_runs_pauses_and_comes_back(schema: Any, store: Store) -> None:
    def grow(state: Any) -> dict[str, Any]:
        return {"items": [get(state, "topic")], "newest": "grow", "count": 8}

    def ask(state: Any) -> dict[str, Any]:
        return {"items": [interrupt("?")], "newest": f"{get(state, 'newest')}, ask"}

    paused = await chain(schema, grow, ask, store=store).run({"topic": "bees"}, session_id="s")
    assert get(paused.state, "items") == ["bees"]
    result = await chain(schema, grow, ask, store=store).resume("s", {paused.interrupts[0].id: "wasps"})
    for state in (result.state, await chain(schema, grow, ask, store=store).state("s")):
        assert get(state, "items") == ["bees", "wasps"]
        assert get(state, "newest") == "grow, ask"
        assert get(state, "count") == 8


@pytest.mark.parametrize("schema", CLASSES)
async def test_a_class_is_read_as_its_instances(schema: Any) -> None:
    seen: list[Any] = []

    def look(state: Any) -> None:
        seen.append(state)

    def route(state: Any) -> None:
        seen.append(state)

    graph = StateGraph(schema).add_node("look", look).set_entry_point("look").add_conditional_edges("look", route)
    final = await graph.compile().invoke({"topic": "bees"})
    assert [type(state) for state in (*seen, final)] == [schema] * 3
    assert final.topic == "bees"


@pytest.mark.parametrize("schema", [AsDataclass, AsStruct, AsModel, as_fields()])
async def test_defaults_are_there_before_the_first_node_reads(schema: Any) -> None:  # rule S3
    seen: list[Any] = []

    def look(state: Any) -> dict[str, Any]:
        seen.append((get(state, "items"), get(state, "count"), get(state, "newest")))
        return {"items": ["new"]}

    final = await chain(schema, look).invoke({"topic": "bees"})
    assert seen == [([], 7, "")]
    assert get(final, "items") == ["new"]


async def test_a_reducer_field_of_a_class_needs_no_default() -> None:  # rule S3
    final = await chain(AsFrozen, giving({"items": ["new"]})).invoke({"topic": "bees"})
    assert final == AsFrozen(topic="bees", items=["new"], newest="", count=7)


async def test_a_reducer_field_whose_type_has_no_empty_value_is_required() -> None:  # rules S3, S5
    def later(old: datetime, new: datetime) -> datetime:
        return max(old, new)

    @dataclass
    class Timed:
        at: Annotated[datetime, later]
        who: Annotated[Decimal, last]

    graph = chain(Timed, giving({"at": datetime(2026, 1, 1, tzinfo=UTC)}))
    with pytest.raises(StateInvalid, match=r"at.*required"):
        await graph.invoke({"who": Decimal(1)})
    final = await graph.invoke({"at": datetime(2025, 1, 1, tzinfo=UTC), "who": Decimal(1)})
    assert final.at.year == 2026


async def test_a_default_of_none_is_as_good_as_absent_to_a_reducer() -> None:  # rules S2, S3
    @dataclass
    class Lazy:
        items: Annotated[list[str] | None, append] = None
        table: Annotated[dict[str, int] | None, merge_twice] = None
        messages: Annotated[list[Message] | None, add_messages] = None

    final = await chain(Lazy, giving({"items": ["a"], "messages": Message.user("hi")})).invoke({})
    assert final.items == ["a"]
    assert [message.text for message in final.messages] == ["hi"]
    assert final.table is None


def merge_twice(old: dict[str, int] | None, new: dict[str, int]) -> dict[str, int]:
    return {**(old or {}), **new}


def test_a_default_that_its_reducer_cannot_take_is_named_when_the_graph_is_compiled() -> None:  # rules S3, S5
    @dataclass
    class Odd:
        items: Annotated[Any, append] = ()

    with pytest.raises(GraphError, match="'items': the schema's default gave a tuple"):
        chain(Odd, giving({"items": ["a"]}))


@pytest.mark.parametrize("schema", [*CLASSES, as_fields()])
async def test_a_field_without_default_is_required(schema: Any) -> None:  # rule S5
    with pytest.raises(StateInvalid, match="topic") as caught:
        await chain(schema, giving(None)).invoke({"count": 1})
    assert caught.value.field == "topic"


@pytest.mark.parametrize("schema", ALL)
@pytest.mark.parametrize(
    ("name", "value"), [("topic", 5), ("topic", None), ("items", [1]), ("count", "7"), ("count", True)]
)
async def test_types_are_checked_at_the_start_and_in_edits(schema: Any, name: str, value: Any) -> None:  # rule S5
    graph = chain(schema, giving(None))
    with pytest.raises(StateInvalid, match=name) as caught:
        await graph.invoke({"topic": "bees", name: value})
    assert caught.value.field == name
    await graph.run({"topic": "bees"}, session_id="s")
    with pytest.raises(StateInvalid, match=name):
        await graph.edit("s", {name: value})


@pytest.mark.parametrize("schema", CLASSES)
async def test_an_instance_may_be_the_input(schema: Any) -> None:  # rules S3, S5
    graph = chain(schema, giving({"items": ["b"]}))
    start = schema(topic="bees", items=["a"], newest="n")
    final = await graph.invoke(start)
    assert (final.items, final.count, start.items) == (["a", "b"], 7, ["a"])
    if schema is not AsModel:
        with pytest.raises(StateInvalid, match="topic"):
            await graph.invoke(schema(topic=5, items=[], newest=""))


@pytest.mark.parametrize("schema", CLASSES)
async def test_what_a_node_changes_in_an_instance_is_its_own(schema: Any) -> None:  # rule S6
    def vandal(state: Any) -> None:
        state.items.append("graffiti")

    assert (await chain(schema, vandal).invoke({"topic": "bees", "items": ["a"]})).items == ["a"]


@pytest.mark.parametrize("schema", CLASSES)
async def test_returning_an_instance_counts_only_what_changed(schema: Any) -> None:  # rule S7
    def one(state: Any) -> Any:
        return changed(state, items=[*state.items, "one"])

    def two(state: Any) -> Any:
        return changed(state, topic="wasps")

    def three(state: Any) -> Any:
        return state

    final = await together(schema, {"one": one, "two": two, "three": three}).invoke({"topic": "bees", "items": ["a"]})
    assert (final.items, final.topic, final.count) == (["a", "one"], "wasps", 7)


@pytest.mark.parametrize("schema", CLASSES)
async def test_a_new_instance_is_compared_with_the_state(schema: Any) -> None:  # rule S7
    def anew(state: Any) -> Any:
        return schema(topic="bees", items=["a", "b"], newest="", count=1)

    final = await chain(schema, anew).invoke({"topic": "bees", "items": ["a"]})
    assert (final.items, final.count) == (["a", "b"], 1)

    def shrunk(state: Any) -> Any:
        return schema(topic="bees", items=["b"], newest="")

    with pytest.raises(StateInvalid, match="items"):
        await chain(schema, shrunk).invoke({"topic": "bees", "items": ["a"]})


@pytest.mark.parametrize("schema", CLASSES)
async def test_an_instance_in_a_command_counts_only_what_changed(schema: Any) -> None:  # rules S7, G4
    def one(state: Any) -> Command:
        return Command(update=changed(state, items=[*state.items, "one"]), goto="two")

    graph = StateGraph(schema).add_node("one", one).add_node("two", giving({"count": 1})).set_entry_point("one")
    final = await graph.compile().invoke({"topic": "bees", "items": ["a"]})
    assert (final.items, final.count) == (["a", "one"], 1)


async def test_a_changed_dataclass_may_be_returned_itself() -> None:  # rule S7
    def node(state: AsDataclass) -> AsDataclass:
        state.items.append("b")
        state.count += 1
        return state

    assert await chain(AsDataclass, node).invoke({"topic": "t", "items": ["a"]}) == AsDataclass("t", ["a", "b"], 8)


async def test_models_are_not_validated_again_per_step() -> None:  # rule S7
    validated: list[str] = []

    class Checked(pydantic.BaseModel):
        topic: str

        @pydantic.field_validator("topic")
        @classmethod
        def note(cls, value: str) -> str:
            validated.append(value)
            return value

    def node(state: Checked) -> dict[str, Any]:
        return {"topic": state.topic + "!"}

    final = await chain(Checked, node, giving({"topic": "x"})).invoke({"topic": "bees"})
    assert final.topic == "x"
    assert validated == []


def test_a_default_that_is_made_from_other_fields_is_refused() -> None:  # rule G1
    class Made(pydantic.BaseModel):
        price: int = 1
        doubled: int = pydantic.Field(default_factory=lambda data: data["price"] * 2)

    with pytest.raises(
        UsageError, match=r"default_factory of field 'doubled' takes the other fields.*without arguments"
    ):
        chain(Made, giving({}))


async def test_what_a_dataclass_works_out_by_itself_is_no_part_of_the_state() -> None:
    @dataclass
    class Derived:
        price: int
        doubled: int = field(init=False)

        def __post_init__(self) -> None:
            self.doubled = self.price * 2

    def node(state: Derived) -> dict[str, Any]:
        return {"price": state.doubled}

    assert (await chain(Derived, node).invoke({"price": 2})).doubled == 8


async def test_input_of_the_wrong_class_is_refused() -> None:
    with pytest.raises(UsageError, match="mapping"):
        await chain(AsTypedDict, giving(None)).invoke(AsDataclass("bees"))


@pytest.mark.parametrize("schema", [5, "State", None, dict, object, int])
def test_what_is_no_schema_is_refused(schema: Any) -> None:
    with pytest.raises(UsageError, match="schema"):
        StateGraph(schema).add_node("a", giving(None)).set_entry_point("a").compile()


class Vague(TypedDict):
    field: "NowhereToBeFound"  # noqa: F821  # pyright: ignore[reportUndefinedVariable]


def test_a_schema_with_names_that_cannot_be_resolved_is_refused() -> None:
    with pytest.raises(UsageError, match="NowhereToBeFound"):
        StateGraph(Vague).add_node("a", giving(None)).set_entry_point("a").compile()


def test_a_state_schema_checks_its_options() -> None:
    with pytest.raises(UsageError, match="extra"):
        StateSchema(extra="maybe")


async def test_inherited_fields_and_their_reducers_count() -> None:
    class Parent(TypedDict):
        items: Annotated[list[str], append]

    class Child(Parent):
        count: int

    @dataclass
    class Grown(AsDataclass):
        more: Annotated[list[str], append] = field(default_factory=list[str])

    assert (await chain(Child, giving({"items": ["b"]})).invoke({"items": ["a"], "count": 1}))["items"] == ["a", "b"]
    final = await chain(Grown, giving({"items": ["b"], "more": ["c"]})).invoke({"topic": "t", "items": ["a"]})
    assert (final.items, final.more) == (["a", "b"], ["c"])


@pytest.mark.parametrize("schema", CLASSES)
async def test_a_class_comes_back_as_its_instance(schema: Any, store: Store) -> None:  # rule S10
    graph = chain(schema, giving({"items": Overwrite(["x"])}), store=store)
    await graph.run({"topic": "bees"}, session_id="s")
    state = await chain(schema, giving({"items": Overwrite(["x"])}), store=store).state("s")
    assert type(state) is schema
    assert state == schema(topic="bees", items=["x"], newest="", count=7)
