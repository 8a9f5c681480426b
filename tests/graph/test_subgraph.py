"""Subgraphs as nodes: what they share with their parent, and what they hand up."""

import operator
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

import pydantic
import pytest

from adjourn import current, interrupt
from adjourn.errors import StateInvalid, WriteConflict
from adjourn.events import NodeEnd
from adjourn.graph import (
    START,
    Command,
    CompiledGraph,
    Message,
    MessagesState,
    Overwrite,
    RemoveAllMessages,
    ReplaceLastUser,
    StateGraph,
    StateSchema,
    append,
    last,
    merge,
)
from adjourn.stores import Store
from tests.graph.shapes import Node, chain, events_of, failing, giving, names, together


class Shared(TypedDict):
    log: Annotated[list[Any], append]
    table: Annotated[dict[str, Any], merge]
    total: Annotated[int, operator.add]
    newest: Annotated[str, last]
    plain: Any
    other: Any


class Own(TypedDict, total=False):
    log: Annotated[list[Any], append]
    secret: str


def wrap(inner: CompiledGraph, schema: Any = Shared, name: str = "outer", **options: Any) -> CompiledGraph:
    """A graph of one node that is a graph."""
    return StateGraph(schema, name=name).add_node("sub", inner).set_entry_point("sub").compile(**options)


def chained(*nodes: Node, schema: Any = Shared, name: str = "inner") -> CompiledGraph:
    """Nodes a, b, c … one after the other."""
    graph = StateGraph(schema, name=name)
    for letter, node in zip("abcdef", nodes, strict=False):
        graph.add_node(letter, node, thread=False)
    return graph.add_sequence(START, *"abcdef"[: len(nodes)]).compile()


# What is shared


async def test_a_subgraph_shares_the_keys_that_both_schemas_have() -> None:  # rule G15
    seen: list[Any] = []

    def look(state: Any) -> dict[str, Any]:
        seen.append(dict(state))
        return {"log": ["inner"], "secret": "kept inside"}

    state = await wrap(chained(look, schema=Own)).invoke({"log": ["outer"], "plain": 1})
    assert seen == [{"log": ["outer"]}]
    assert state == {"log": ["outer", "inner"], "plain": 1, "table": {}, "total": 0, "newest": ""}


async def test_every_kind_of_reducer_counts_once(store: Store) -> None:  # rule G15
    update = {"log": ["x"], "table": {"x": 1}, "total": 1, "newest": "x", "plain": "x"}
    inner = chained(giving(update), giving({"log": ["y"], "table": {"y": 2}, "total": 2, "plain": "y"}))
    start = {"log": ["s"], "table": {"s": 0}, "total": 10, "newest": "s", "plain": "s"}
    result = await wrap(inner, store=store).run(start, session_id="s")
    assert result.state == {
        "log": ["s", "x", "y"],
        "table": {"s": 0, "x": 1, "y": 2},
        "total": 13,
        "newest": "x",
        "plain": "y",
    }


async def test_a_subgraph_that_writes_nothing_changes_nothing() -> None:  # rule G15
    start = {"log": ["s"], "table": {"s": 0}, "total": 10, "newest": "s", "plain": [1]}
    assert await wrap(chained(giving(None), giving(None))).invoke(start) == start


async def test_a_default_of_a_shared_field_does_not_count_twice() -> None:  # rules G15, S3
    @dataclass
    class Seeded:
        log: Annotated[list[str], append] = field(default_factory=lambda: ["seed"])
        total: Annotated[int, operator.add] = 10
        table: Annotated[dict[str, int], merge] = field(default_factory=lambda: {"seed": 1})

    seen: list[Any] = []

    def look(state: Seeded) -> dict[str, Any]:
        seen.append((state.log, state.total, state.table))
        return {"log": ["x"], "total": 1}

    final = await wrap(chained(look, schema=Seeded), Seeded).invoke({"table": {"own": 2}})
    assert seen == [(["seed"], 10, {"seed": 1, "own": 2})]
    assert (final.log, final.total) == (["seed", "x"], 11)


async def test_a_shared_value_comes_in_as_it_is_whatever_the_reducer() -> None:  # rule G15
    class Least(TypedDict):
        least: Annotated[int, max]

    seen: list[int] = []

    def look(state: Any) -> None:
        seen.append(state["least"])

    graph = wrap(chained(look, schema=Least), Least)
    await graph.invoke({"least": Overwrite(-5)})
    assert seen == [-5]


async def test_a_childs_own_defaults_count_for_what_is_not_shared() -> None:  # rules G15, S3
    inner = StateSchema().add_field("log", list[Any], reducer=append).add_field("step", int, default=3)

    def look(state: Any) -> dict[str, Any]:
        return {"log": [state["step"]]}

    assert (await wrap(chained(look, schema=inner)).invoke({}))["log"] == [3]


async def test_a_child_starts_anew_each_time_it_is_entered() -> None:  # rule G15
    def count(state: Any) -> dict[str, Any]:
        return {"secret": state.get("secret", "") + "x", "log": [state.get("secret", "none")]}

    inner = chained(count, schema=Own)

    def again(state: Any) -> str | None:
        return "sub" if len(state["log"]) < 3 else None

    graph = StateGraph(Shared).add_node("sub", inner).set_entry_point("sub").add_conditional_edges("sub", again)
    assert (await graph.compile().invoke({}))["log"] == ["none"] * 3


async def test_a_plain_field_above_gets_what_a_reduced_field_below_amounts_to() -> None:  # rule G15
    class Above(TypedDict, total=False):
        log: list[str]
        total: Annotated[int, last]

    inner = chained(giving({"log": ["x"], "total": 1}), giving({"log": ["y"], "total": 2}))
    assert await wrap(inner, Above).invoke({"log": ["s"], "total": 5}) == {"log": ["s", "x", "y"], "total": 8}


async def test_overwriting_below_overwrites_above(store: Store) -> None:  # rules G15, S9
    inner = chained(
        giving({"log": ["gone"]}),
        giving({"log": Overwrite(["one"]), "total": Overwrite(1)}),
        giving({"log": Overwrite(["two"]), "total": 5}),
        giving({"log": ["three"]}),
    )
    result = await wrap(inner, store=store).run({"log": ["s"], "total": 100}, session_id="s")
    assert (result.state["log"], result.state["total"]) == (["two", "three"], 6)


async def test_types_are_checked_at_the_border() -> None:  # rules G15, S5
    class Narrow(TypedDict):
        plain: int

    with pytest.raises(StateInvalid, match="plain"):
        await wrap(chained(giving(None), schema=Narrow)).invoke({"plain": "text"})


async def test_what_a_child_changes_in_place_stays_below() -> None:  # rules G15, S6
    def vandal(state: Any) -> None:
        state["plain"]["list"].append(1)
        state["log"].append("graffiti")

    state = await wrap(chained(vandal)).invoke({"plain": {"list": []}, "log": []})
    assert (state["plain"], state["log"]) == ({"list": []}, [])


# Messages


async def test_messages_of_a_subgraph_join_the_conversation_once(store: Store) -> None:  # rules G15, S8
    inner = chained(
        giving({"messages": Message.assistant("one")}),
        giving({"messages": [ReplaceLastUser("Hello"), Message.assistant("two")]}),
        schema=MessagesState,
    )
    result = await wrap(inner, MessagesState, store=store).run({"messages": Message.user("hello")}, session_id="s")
    assert [message.text for message in result.messages] == ["Hello", "one", "two"]
    assert len({message.id for message in result.messages}) == 3


async def test_a_message_that_a_subgraph_wrote_and_mended_is_one_message(store: Store) -> None:  # rules G15, S8
    def mend(state: Any) -> dict[str, Any]:
        return {"messages": state["messages"][-1].with_text("mended")}

    inner = chained(giving({"messages": [Message.assistant("draft")]}), mend, mend, schema=MessagesState)
    result = await wrap(inner, MessagesState, store=store).run({"messages": Message.user("hello")}, session_id="s")
    assert [message.text for message in result.messages] == ["hello", "mended"]


async def test_a_subgraph_may_mend_its_parents_messages() -> None:  # rules G15, S8
    def mend(state: Any) -> dict[str, Any]:
        return {"messages": state["messages"][0].with_text("HELLO")}

    state = await wrap(chained(mend, schema=MessagesState), MessagesState).invoke({"messages": Message.user("hello")})
    assert [(message.text, message.id) for message in state["messages"]] == [("HELLO", "m1")]


async def test_a_subgraph_may_empty_the_conversation() -> None:  # rules G15, S8
    inner = chained(giving({"messages": [RemoveAllMessages(), Message.user("new")]}), schema=MessagesState)
    state = await wrap(inner, MessagesState).invoke({"messages": Message.user("hello")})
    assert [message.text for message in state["messages"]] == ["new"]


async def test_parallel_subgraphs_give_no_id_twice() -> None:  # rules G15, S8
    inner = chained(giving({"messages": [Message.assistant("x")]}), schema=MessagesState)
    state = await together(MessagesState, {"a": inner, "b": inner}).invoke({"messages": Message.user("hello")})
    assert len({message.id for message in state["messages"]}) == 3


# Side by side


async def test_parallel_subgraphs_conflict_only_on_what_both_wrote() -> None:  # rule G15
    one, two = chained(giving({"plain": 1, "log": ["a"]})), chained(giving({"other": 2, "log": ["b"], "total": 1}))
    state = await together(Shared, {"one": one, "two": two}).invoke({"plain": 0, "other": 0, "log": ["s"], "total": 1})
    assert (state["plain"], state["other"], state["log"], state["total"]) == (1, 2, ["s", "a", "b"], 2)
    with pytest.raises(WriteConflict, match="plain") as caught:
        await together(Shared, {"one": one, "two": one}).invoke({})
    assert caught.value.nodes == ("one", "two")


async def test_parallel_subgraphs_conflict_when_both_overwrite() -> None:  # rules G15, S9
    inner = chained(giving({"log": Overwrite([1])}))
    with pytest.raises(WriteConflict, match="log"):
        await together(Shared, {"one": inner, "two": inner}).invoke({})


async def test_a_fan_out_into_a_subgraph_has_its_own_input_each(store: Store) -> None:  # rules G5, G15
    def ask(state: Any) -> dict[str, Any]:
        return {"log": [(state["plain"], interrupt("?"))]}

    def build() -> CompiledGraph:
        inner = chained(ask)
        sends = [Command({"plain": item}, "sub") for item in "xyz"]
        graph = StateGraph(Shared, name="outer").add_node("s", giving(sends)).add_node("sub", inner)
        return graph.set_entry_point("s").compile(store=store)

    paused = await build().run({"plain": "base"}, session_id="s")
    assert [each.id for each in paused.interrupts] == [f"runnable:outer;node:sub:{n};node:a" for n in (1, 2, 3)]
    middle = await build().resume("s", {paused.interrupts[1].id: "Y"})
    assert len(middle.interrupts) == 2
    result = await build().resume("s", {paused.interrupts[0].id: "X", paused.interrupts[2].id: "Z"})
    assert result.state["log"] == [("x", "X"), ("y", "Y"), ("z", "Z")]
    assert result.state["plain"] == "base"


# Mapping


class Question(TypedDict):
    text: str
    found: Annotated[list[str], append]


def mapped(inner: CompiledGraph, store: Store | None = None) -> CompiledGraph:
    def put_in(state: Any) -> dict[str, Any]:
        return {"text": state["plain"]}

    def take_out(state: Any) -> dict[str, Any]:
        return {"log": [*state["found"], state["text"]]}

    graph = StateGraph(Shared, name="outer").add_subgraph("sub", inner, input=put_in, output=take_out)
    return graph.set_entry_point("sub").compile(store=store)


async def test_input_and_output_map_between_schemas(store: Store) -> None:  # rule G15
    def ask(state: Any) -> dict[str, Any]:
        return {"found": [f"{state['text']}: {interrupt('?')}"]}

    paused = await mapped(chained(ask, schema=Question), store).run({"plain": "bees"}, session_id="s")
    result = await mapped(chained(ask, schema=Question), store).resume("s", {paused.interrupts[0].id: "buzz"})
    assert result.state["log"] == ["bees: buzz", "bees"]


async def test_with_an_output_nothing_else_is_handed_up() -> None:  # rule G15
    graph = StateGraph(Shared).add_subgraph("sub", chained(giving({"log": ["x"], "plain": 1})), output=giving({}))
    assert (await graph.set_entry_point("sub").compile().invoke({"log": ["s"]})) == {
        "log": ["s"],
        "table": {},
        "total": 0,
        "newest": "",
    }


async def test_with_an_input_alone_updates_are_handed_up_as_usual() -> None:  # rule G15
    graph = StateGraph(Shared).add_subgraph("sub", chained(giving({"log": ["x"]})), input=giving({"log": ["private"]}))
    assert (await graph.set_entry_point("sub").compile().invoke({"log": ["s"]}))["log"] == ["s", "x"]


@pytest.mark.parametrize("place", ["input", "output"])
async def test_a_mapping_that_fails_fails_its_node(place: Any, store: Store) -> None:  # rules G15, G11
    ran: list[str] = []

    def once_only(state: Any) -> dict[str, Any]:
        ran.append("inner")
        return {"log": ["x"]}

    def build(mapping: Node) -> CompiledGraph:
        mapped: Any = {place: mapping}
        graph = StateGraph(Shared, name="outer").add_subgraph("sub", chained(once_only), **mapped)
        return graph.set_entry_point("sub").compile(store=store)

    with pytest.raises(ZeroDivisionError):
        await build(failing(ZeroDivisionError())).run({}, session_id="s")
    result = await build(giving({"log": ["mended"]})).recover("s")
    assert result.state["log"] == (["x"] if place == "input" else ["mended"])
    assert ran == ["inner"]


@pytest.mark.parametrize(
    ("output", "log"),
    [(giving(None), ["s"]), (giving(Command({"log": ["o"]}, "after")), ["s", "o", "after"]), (dict, ["s", "s", "x"])],
    ids=["nothing", "command", "everything"],
)
async def test_an_output_may_give_what_a_node_may(output: Node, log: list[str]) -> None:  # rule G15
    graph = StateGraph(Shared).add_subgraph("sub", chained(giving({"log": ["x"]})), output=output)
    graph.add_node("after", giving({"log": ["after"]}))
    assert (await graph.set_entry_point("sub").compile().invoke({"log": ["s"]}))["log"] == log


async def test_the_state_itself_may_be_the_output() -> None:  # rule G15
    def whole(state: Any) -> Any:
        return state

    class Above(TypedDict, total=False):
        log: list[str]
        secret: str

    graph = StateGraph(Above).add_subgraph("sub", chained(giving({"log": ["x"]}), schema=Own), output=whole)
    assert await graph.set_entry_point("sub").compile().invoke({"log": ["s"]}) == {"log": ["s", "x"]}


async def test_an_output_with_an_unknown_key_is_an_error() -> None:  # rules G15, S4
    graph = StateGraph(Shared).add_subgraph("sub", chained(giving(None)), output=giving({"nope": 1}))
    with pytest.raises(StateInvalid, match="nope"):
        await graph.set_entry_point("sub").compile().invoke({})


# Class schemas


@dataclass
class Parent:
    topic: str
    log: Annotated[list[str], append] = field(default_factory=list[str])


class Model(pydantic.BaseModel):
    topic: str
    log: Annotated[list[str], append] = []
    private: int = 0


async def test_schemas_of_different_kinds_share_their_keys(store: Store) -> None:  # rule G15
    def grow(state: Any) -> Any:
        return state.model_copy(update={"log": [*state.log, f"{type(state).__name__} {state.topic}"], "private": 5})

    def ask(state: Any) -> dict[str, Any]:
        return {"log": [f"{state.private} {interrupt('?')}"]}

    def build() -> CompiledGraph:
        return wrap(chained(grow, ask, schema=Model), Parent, store=store)

    paused = await build().run(Parent("bees", ["s"]), session_id="s")
    result = await build().resume("s", {paused.interrupts[0].id: "ok"})
    assert result.state == Parent("bees", ["s", "Model bees", "5 ok"])


async def test_a_mapping_gets_instances_of_class_schemas() -> None:  # rule G15
    def put_in(state: Parent) -> Model:
        return Model(topic=state.topic.upper())

    def take_out(state: Model) -> dict[str, Any]:
        return {"log": state.log}

    def look(state: Model) -> dict[str, Any]:
        return {"log": [state.topic]}

    graph = StateGraph(Parent).add_subgraph("sub", chained(look, schema=Model), input=put_in, output=take_out)
    assert (await graph.set_entry_point("sub").compile().invoke(Parent("bees"))).log == ["BEES"]


# Values, events, failures


async def test_session_values_written_below_arrive_above() -> None:  # rules G15, R15
    def write(state: Any) -> None:
        current().values["who"] = current().values.get("who", "") + "inner"

    def read(state: Any) -> dict[str, Any]:
        return {"log": [current().values["who"]]}

    graph = StateGraph(Shared).add_node("sub", chained(write, read)).add_node("after", read)
    state = await graph.add_sequence(START, "sub", "after").compile().run({}, values={"who": "caller "})
    assert state.state["log"] == ["caller inner"] * 2


async def test_events_tell_the_whole_address() -> None:  # rule G15
    events = await events_of(wrap(chained(giving(None), giving(None))).run({}))
    assert names(events, NodeEnd) == ["a", "b", "sub"]
    ends = [event.address for event in events if isinstance(event, NodeEnd)]
    assert ends == ["runnable:outer;node:sub;node:a", "runnable:outer;node:sub;node:b", "runnable:outer;node:sub"]


async def test_a_failure_below_repeats_only_what_failed(store: Store) -> None:  # rules G11, G15
    ran: list[str] = []

    def note(name: str) -> Node:
        def node(state: Any) -> dict[str, Any]:
            ran.append(name)
            return {"log": [name]}

        return node

    def build(second: Node) -> CompiledGraph:
        inner = chained(note("first"), second)
        return together(Shared, {"x": inner, "y": note("y")}, name="outer", store=store)

    with pytest.raises(RuntimeError):
        await build(failing(RuntimeError("broken"))).run({}, session_id="s")
    result = await build(note("second")).recover("s")
    assert result.state["log"] == ["first", "second", "y"]
    assert ran == ["first", "y", "second"]


async def test_recursion_through_a_subgraph_node_ends() -> None:  # rule G15
    deep = chain(Shared, giving({"log": ["bottom"]}), name="g0")
    for level in range(1, 40):
        deep = wrap(deep, name=f"g{level}")
    assert (await deep.invoke({}))["log"] == ["bottom"]
