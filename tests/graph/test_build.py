"""Building graphs: every mistake is told at compile, all of them at once."""

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, TypedDict, cast

import pytest

from adjourn import ChatModelAgent, Retry, RunContext, UsageError, interrupt
from adjourn.errors import GraphError
from adjourn.graph import END, START, Cache, Command, CompiledGraph, StateGraph, StateSchema, append
from adjourn.stores import Store
from adjourn.testing import ScriptedModel
from tests.graph.shapes import giving


class Log(TypedDict):
    log: Annotated[list[str], append]
    where: str


def note(state: Any) -> dict[str, Any]:
    return {"log": ["note"]}


def other(state: Any) -> dict[str, Any]:
    return {"log": ["other"]}


def sound() -> StateGraph:
    return StateGraph(Log, name="g").add_node(note).add_node(other).add_edge(START, "note").add_edge("note", "other")


Mistake = Callable[[StateGraph], Any]
MISTAKES: dict[str, tuple[Mistake, str]] = {
    "an empty name": (lambda g: g.add_node("", note), "no name"),
    "a function without a name": (lambda g: g.add_node(functools.partial(note)), "no name"),
    "a name twice": (lambda g: g.add_node("note", other), "'note' is added 2 times"),
    "the start as a name": (lambda g: g.add_node(START, note), f"'{START}' is reserved"),
    "the end as a name": (lambda g: g.add_node(END, note), f"'{END}' is reserved"),
    "an edge from nowhere": (lambda g: g.add_edge("nowhere", "note"), "unknown node 'nowhere'"),
    "an edge to nowhere": (lambda g: g.add_edge("note", "nowhere"), "unknown node 'nowhere'"),
    "an edge from the end": (lambda g: g.add_edge(END, "note"), f"unknown node '{END}'"),
    "an edge to the start": (lambda g: g.add_edge("note", START), f"unknown node '{START}'"),
    "a join with nowhere": (lambda g: g.add_edge(["note", "nowhere"], "other"), "unknown node 'nowhere'"),
    "a join of nothing": (lambda g: g.add_edge([], "other"), "no sources"),
    "a join with the start": (lambda g: g.add_edge([START, "note"], "other"), "has START among its sources"),
    "a finish at nowhere": (lambda g: g.set_finish_point("nowhere"), "unknown node 'nowhere'"),
    "a condition from nowhere": (lambda g: g.add_conditional_edges("nowhere", note), "unknown node 'nowhere'"),
    "a condition to nowhere": (
        lambda g: g.add_conditional_edges("note", note, {True: "nowhere", False: END}),
        "unknown node 'nowhere'",
    ),
    "a condition to a listed nowhere": (
        lambda g: g.add_conditional_edges("note", note, ["other", "nowhere"]),
        "unknown node 'nowhere'",
    ),
    "a condition to several at once": (
        lambda g: g.add_conditional_edges("note", note, {"x": ["other", "note"]}),  # pyright: ignore[reportArgumentType]
        "unknown node",
    ),
    "a condition that is no function": (lambda g: g.add_conditional_edges("note", "other"), "not a function"),  # pyright: ignore[reportArgumentType]
    "a condition that takes too much": (
        lambda g: g.add_conditional_edges("note", operator.concat),  # pyright: ignore[reportArgumentType]
        "condition of 'note'",
    ),
    "a destination nowhere": (lambda g: g.add_node("far", note, destinations=["nowhere"]), "destination 'nowhere'"),
    "a node that is no function": (lambda g: g.add_node("five", 5), "'five' is not a function: 5"),  # pyright: ignore[reportArgumentType]
    "a node without function": (lambda g: g.add_node("none"), "'none' is not a function"),
    "a graph that was not compiled": (
        lambda g: g.add_node("sub", sound()),  # pyright: ignore[reportArgumentType]
        "'sub' is not a function: <uncompiled graph g: note, other>. Call its .compile() first",
    ),
    "an agent that is no function": (
        lambda g: g.add_node("help", ChatModelAgent("Helper", model=ScriptedModel([]))),  # pyright: ignore[reportArgumentType]
        "'help' is not a function: <ChatModelAgent Helper>. Add an agent with add_agent_node",
    ),
    "a node that takes too much": (lambda g: g.add_node("wide", operator.concat), "'wide' cannot be called"),  # pyright: ignore[reportArgumentType]
    "a timeout of nothing": (lambda g: g.add_node("slow", note, timeout=0), "timeout of node 'slow' is 0"),
    "a timeout that is a text": (lambda g: g.add_node("slow", note, timeout="x"), "timeout of node 'slow' is 'x'"),  # pyright: ignore[reportArgumentType]
    "a timeout that is no number": (lambda g: g.add_node("slow", note, timeout=float("nan")), "timeout"),
    "a pause before that is no choice": (lambda g: g.add_node("x", note, interrupt_before="x"), "interrupt_before"),  # pyright: ignore[reportArgumentType]
    "a pause after that is no choice": (lambda g: g.add_node("x", note, interrupt_after=1), "interrupt_after"),  # pyright: ignore[reportArgumentType]
    "a deferral that is no choice": (lambda g: g.add_node("x", note, defer="x"), "defer of node 'x' is 'x'"),  # pyright: ignore[reportArgumentType]
    "a thread that is no choice": (lambda g: g.add_node("x", note, thread=None), "thread of node 'x' is None"),  # pyright: ignore[reportArgumentType]
    "a description that is no text": (lambda g: g.add_node("x", note, description=5), "description of node 'x' is 5"),  # pyright: ignore[reportArgumentType]
    "destinations that are a text": (lambda g: g.add_node("x", note, destinations="other"), "destinations of node 'x'"),
    "destinations that are no list": (lambda g: g.add_node("x", note, destinations=5), "destinations of node 'x'"),  # pyright: ignore[reportArgumentType]
    "a destination that is no name": (lambda g: g.add_node("x", note, destinations=[["other"]]), "destination"),  # pyright: ignore[reportArgumentType]
    "a mapping that is a text": (lambda g: g.add_conditional_edges("note", note, "other"), "mapping of the condition"),
    "a mapping that is a number": (lambda g: g.add_conditional_edges("note", note, 5), "mapping of the condition"),  # pyright: ignore[reportArgumentType]
    "an edge from a function": (lambda g: g.add_edge(note, "other"), "unknown node '<function note"),  # pyright: ignore[reportArgumentType]
    "an edge to several nodes": (
        lambda g: g.add_edge("note", ["other", "note"]),  # pyright: ignore[reportArgumentType]
        "'note' to several nodes, ['other', 'note']: add one edge for each target",
    ),
    "an edge to a number": (lambda g: g.add_edge("note", 5), "unknown node '5'"),  # pyright: ignore[reportArgumentType]
    "a join of a list in a list": (
        lambda g: g.add_edge([["note"], "other"], "note"),  # pyright: ignore[reportArgumentType]
        "has a list among its sources, ['note']: give one list of names",
    ),
    "a join of functions into nowhere": (lambda g: g.add_edge([note, other], "nowhere"), "unknown node 'nowhere'"),  # pyright: ignore[reportArgumentType]
    "a condition from several nodes": (
        lambda g: g.add_conditional_edges(["note", "other"], note),  # pyright: ignore[reportArgumentType]
        "from several nodes, ['note', 'other']: add it to each of them",
    ),
    "a condition whose name is a list": (lambda g: g.add_conditional_edges("note", note, name=["x"]), "the name ['x']"),  # pyright: ignore[reportArgumentType]
    "a retry that is none": (lambda g: g.add_node("again", note, retry=3), "retry"),  # pyright: ignore[reportArgumentType]
    "a cache that is none": (lambda g: g.add_node("kept", note, cache=60), "cache"),  # pyright: ignore[reportArgumentType]
    "a mapping that is no function": (
        lambda g: g.add_subgraph("sub", sound().compile(), input=5),  # pyright: ignore[reportArgumentType]
        "'sub'",
    ),
    "an output that is no function": (
        lambda g: g.add_subgraph("sub", sound().compile(), output="log"),  # pyright: ignore[reportArgumentType]
        "'sub'",
    ),
    "a mapping that takes too much": (
        lambda g: g.add_subgraph("sub", sound().compile(), input=operator.concat),  # pyright: ignore[reportArgumentType]
        "the input of subgraph 'sub' cannot be called: it takes one value, the state",
    ),
    "a mapping that takes nothing": (
        lambda g: g.add_subgraph("sub", sound().compile(), output=sound),  # pyright: ignore[reportArgumentType]
        "the output of subgraph 'sub' cannot be called: it takes one value, the result",
    ),
    "a mapping that is async": (lambda g: g.add_subgraph("sub", sound().compile(), output=coroutine), "is async"),
    "a subgraph that is a function": (lambda g: g.add_subgraph("sub", note), "'sub'"),  # pyright: ignore[reportArgumentType]
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_at_compile(mistake: str) -> None:  # rule G1
    make, words = MISTAKES[mistake]
    graph = sound()
    make(graph)
    with pytest.raises(GraphError) as caught:
        graph.compile(strict=True)
    assert words in str(caught.value)
    assert caught.value.graph == "g"


def test_a_sound_graph_has_none_of_them() -> None:
    assert isinstance(sound().compile(strict=True), CompiledGraph)


def test_all_mistakes_come_at_once() -> None:  # rule G1
    graph = StateGraph(
        StateSchema().add_field("a", list[str], reducer=len).add_field("b", int, reducer=5),  # pyright: ignore[reportArgumentType]
        name="wreck",
    )
    graph.add_node("", note).add_node("x", 5).add_node("x", note).add_node(END, note)  # pyright: ignore[reportArgumentType]
    graph.add_edge("x", "lost").add_edge("found", "x").add_conditional_edges("x", note, {"k": "gone"})
    graph.add_node("d", note, destinations=["away"])
    with pytest.raises(GraphError) as caught:
        graph.compile(interrupt_before=["unseen"], interrupt_after=["unheard"], strict=True)
    text = str(caught.value)
    for words in (
        "'a'",
        "'b'",
        "no name",
        "is not a function: 5",
        "'x' is added 2 times",
        f"'{END}' is reserved",
        "'lost'",
        "'found'",
        "'gone'",
        "'away'",
        "no entry point",
        "'unseen'",
        "'unheard'",
        "'d'",
    ):
        assert words in text
    assert len(caught.value.problems) >= 13


def test_a_graph_without_nodes_is_none() -> None:  # rule G1
    with pytest.raises(GraphError, match="no nodes"):
        StateGraph(Log).compile()


def test_a_graph_needs_an_entry_point() -> None:  # rule G1
    with pytest.raises(GraphError, match="no entry point"):
        StateGraph(Log).add_node(note).compile()
    assert StateGraph(Log).add_node(note).add_conditional_edges(START, giving("note")).compile()


@pytest.mark.parametrize("option", ["interrupt_before", "interrupt_after"])
def test_interrupts_are_at_nodes_that_exist(option: str) -> None:  # rule G1
    for name in ("nowhere", START, END):
        with pytest.raises(GraphError, match=name):
            sound().compile(**{option: [name]})  # pyright: ignore[reportArgumentType]


def takes_none() -> int: ...
def takes_one(a: int) -> int: ...
def takes_three(a: int, b: int, c: int) -> int: ...
def takes_keywords(*, a: int, b: int) -> int: ...
def takes_more(a: int, b: int, c: int = 1) -> int: ...
def takes_all(*values: int) -> int: ...


@pytest.mark.parametrize("reducer", [takes_none, takes_one, takes_three, takes_keywords])
def test_a_reducer_takes_two_arguments(reducer: Any) -> None:  # rule G1
    @dataclass
    class Wrong:
        field: Annotated[int, reducer]

    for schema in (Wrong, StateSchema().add_field("field", int, reducer=reducer)):
        with pytest.raises(GraphError, match=r"field.*two arguments"):
            StateGraph(schema).add_node(note).set_entry_point("note").compile()


@pytest.mark.parametrize("reducer", [operator.add, max, takes_more, takes_all, str.__add__])
def test_whatever_can_take_two_arguments_is_a_reducer(reducer: Any) -> None:
    schema = StateSchema().add_field("field", Any, reducer=reducer).add_field("log", list[str], reducer=append)
    assert StateGraph(schema).add_node(note).set_entry_point("note").compile()


@pytest.mark.parametrize("name", ["", "^x"])
def test_a_field_needs_a_name(name: str) -> None:
    with pytest.raises(GraphError, match="field name"):
        StateGraph(StateSchema().add_field(name, int)).add_node(note).set_entry_point("note").compile()


@pytest.mark.parametrize(
    "options",
    [
        *({"max_steps": steps} for steps in (0, "x", 1.5, True, None)),
        *({"node_timeout": seconds} for seconds in (0, "x", True, float("nan"))),
        *({"step_timeout": seconds} for seconds in (-1, "x", [1])),
        *({"interrupt_before": names} for names in ("note", 5, None, [5], [["note"]])),
        *({"interrupt_after": names} for names in ("note", b"note")),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(options))):
        sound().compile(**options)


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(UsageError, match="max_step"):
        sound().compile(max_step=5)  # pyright: ignore[reportCallIssue]


# Reaching nodes


async def test_a_node_that_no_static_path_reaches_is_allowed() -> None:  # rule G2
    def jump(state: Any) -> Command:
        return Command(goto="other")

    graph = StateGraph(Log).add_node(jump).add_node(other).set_entry_point("jump")
    assert (await graph.compile().invoke({}))["log"] == ["other"]
    with pytest.raises(GraphError, match=r"'other'.*strict"):
        graph.compile(strict=True)


def test_what_destinations_and_conditions_name_is_reached() -> None:  # rule G2
    def base() -> StateGraph:
        return StateGraph(Log).add_node(other).add_node("third", note)

    base().add_node(note, destinations=["other", "third"]).set_entry_point("note").compile(strict=True)
    base().add_node(note, destinations={"other": "label", "third": "b"}).set_entry_point("note").compile(strict=True)
    base().add_conditional_edges(START, giving("other")).compile(strict=True)  # Without mapping it may name any.
    mapped = base().add_conditional_edges(START, giving("other"), {"x": "other"})
    with pytest.raises(GraphError, match="'third'"):
        mapped.compile(strict=True)


def test_nodes_that_only_reach_one_another_are_not_reached() -> None:  # rule G2
    graph = sound().add_node("x", note).add_node("y", note).add_edge("x", "y").add_edge("y", "x")
    with pytest.raises(GraphError) as caught:
        graph.compile(strict=True)
    assert len(caught.value.problems) == 2


# What can be a node


class Callable1:
    def __call__(self, state: Any) -> dict[str, Any]:
        return {"log": ["called"]}


class AsyncCallable:
    async def __call__(self, state: Any) -> dict[str, Any]:
        return {"log": ["called"]}


async def coroutine(state: Any, suffix: str = "") -> dict[str, Any]:
    return {"log": ["called" + suffix]}


def with_context(state: Any, ctx: RunContext[Any]) -> dict[str, Any]:
    return {"log": ["called", str(ctx.address)]}


def context_first(ctx: RunContext[Any], state: Any) -> dict[str, Any]:
    return {"log": ["called", str(ctx.address)]}


async def context_alone(ctx: RunContext[Any]) -> dict[str, Any]:
    return {"log": ["called", str(ctx.address)]}


def without_anything() -> dict[str, Any]:
    return {"log": ["called"]}


def with_keywords(state: Any, *args: Any, option: int = 1, **others: Any) -> dict[str, Any]:
    return {"log": ["called"]}


@pytest.mark.parametrize(
    "node",
    [
        Callable1(),
        Callable1().__call__,
        AsyncCallable(),
        coroutine,
        functools.partial(coroutine, suffix=""),
        with_context,
        context_first,
        context_alone,
        without_anything,
        with_keywords,
        giving({"log": ["called"]}),
    ],
)
@pytest.mark.parametrize("thread", [True, False])
async def test_anything_that_can_be_called_is_a_node(node: Any, thread: bool) -> None:
    graph = StateGraph(Log, name="g").add_node("n", node, thread=thread).set_entry_point("n").compile()
    log = (await graph.invoke({}))["log"]
    assert log[0] == "called"
    assert log[1:] in ([], ["runnable:g;node:n"])


async def test_a_sequence_leads_from_each_to_the_next() -> None:
    graph = StateGraph(Log).add_node("last", note).add_sequence(START, note, other, "last", END).compile()
    assert (await graph.invoke({}))["log"] == ["note", "other", "note"]


async def test_a_builder_can_be_compiled_again_and_changed_in_between() -> None:
    graph = sound()
    first = graph.compile()
    graph.add_node("third", note).add_edge("other", "third")
    assert (await graph.compile().invoke({}))["log"] == ["note", "other", "note"]
    assert (await first.invoke({}))["log"] == ["note", "other"]


def test_a_graph_is_named_after_its_schema_unless_told() -> None:
    assert StateGraph(Log).add_node(note).set_entry_point("note").compile().name == "Log"
    assert sound().compile().name == "g"


@pytest.mark.parametrize("name", ["a;b:c#d%e", "~", "node:x", "日本 語", "x" * 300, "a\nb", "1", "a:1"])
async def test_any_text_is_a_name(name: str, store: Store) -> None:
    def ask(state: Any) -> dict[str, Any]:
        return {"log": [interrupt("?")]}

    def build() -> CompiledGraph:
        graph = StateGraph(Log, name=name).add_node(name, ask).add_node("spread", giving([Command(goto=name)] * 2))
        return graph.set_entry_point(name).add_edge(name, "spread").compile(store=store)

    first = await build().run({}, session_id="s")
    second = await build().resume("s", {first.interrupts[0].id: "one"})
    assert len(second.interrupts) == 2
    assert all("#" not in interrupt.id and interrupt.id.count(";") == 1 for interrupt in second.interrupts)
    third = await build().resume("s", {interrupt.id: "more" for interrupt in second.interrupts})
    assert third.state["log"] == ["one", "more", "more"]


def test_retry_and_cache_check_themselves() -> None:
    wrong: list[Any]
    for option, wrong in (
        ("attempts", [0, "x", 1.5, True, None]),
        ("on", [5, "ValueError", [ValueError], int, (ValueError, 5)]),
        ("backoff", ["x", None, True]),
    ):
        for value in wrong:
            with pytest.raises(UsageError, match=option):
                Retry(**{option: value})
    for ttl in cast("list[Any]", [0, "x", None, True, timedelta(0), float("nan")]):
        with pytest.raises(UsageError, match="ttl"):
            Cache(ttl)
    with pytest.raises(UsageError, match="key"):
        Cache(1, key=cast("Any", "user_input"))
    with pytest.raises(UsageError, match="cannot be called with the state alone"):
        Cache(1, key=cast("Any", operator.concat))


def test_names_of_conditions_are_checked() -> None:  # rules G1, G7
    def built(*names: Any) -> StateGraph:
        graph = StateGraph(Log).add_node("a", note).add_edge(START, "a")
        for name in names:
            graph.add_conditional_edges("a", giving(None), name=name)
        return graph

    with pytest.raises(GraphError, match="'a' has several conditions named 'x'"):
        built("x", "x").compile()
    for name in ("", 5):
        with pytest.raises(GraphError, match=f"has the name {name!r}"):
            built(name).compile()
    built(None, None, "x").compile()
