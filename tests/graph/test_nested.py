"""Graphs below graphs: pausing at any depth, and graphs that nodes run themselves."""

import asyncio
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

import pytest

from adjourn import UsageError, current, interrupt, once
from adjourn.errors import GraphInterrupted, InvalidAnswer
from adjourn.graph import END, START, Command, CompiledGraph, StateGraph, append
from adjourn.stores import Store
from tests.graph.shapes import Node, chain, events_of, failing, giving, together


class Log(TypedDict, total=False):
    log: Annotated[list[Any], append]
    item: Any


def ask(state: Any) -> dict[str, Any]:
    return {"log": [interrupt(f"{len(state['log'])} so far")]}


def note(name: str, ran: list[str]) -> Node:
    def node(state: Any) -> dict[str, Any]:
        ran.append(name)
        return {"log": [name]}

    return node


def ids(found: Any) -> list[str]:
    return [each.id for each in found.interrupts]


# Pausing below


def three_deep(ran: list[str], store: Store) -> CompiledGraph:
    """At every level something before and after what is below; at the bottom a question."""
    graph = StateGraph(Log, name="three").add_node("before", note("before 3", ran)).add_node("ask", ask)
    graph.add_node("after", note("after 3", ran)).add_sequence(START, "before", "ask", "after")
    for level, name in ((2, "two"), (1, "one")):
        outer = StateGraph(Log, name=name).add_node("before", note(f"before {level}", ran))
        outer.add_node("sub", graph.compile()).add_node("after", note(f"after {level}", ran))
        graph = outer.add_sequence(START, "before", "sub", "after")
    return graph.compile(store=store)


async def test_a_question_three_levels_deep(store: Store) -> None:  # rule G15
    ran: list[str] = []
    paused = await three_deep(ran, store).run({"log": ["start"]}, session_id="s")
    (asked,) = paused.interrupts
    assert asked.id == "runnable:one;node:sub;node:sub;node:ask"
    assert asked.info == "4 so far"
    result = await three_deep(ran, store).resume("s", {asked.id: "answer"})
    befores, afters = [f"before {n}" for n in (1, 2, 3)], [f"after {n}" for n in (3, 2, 1)]
    assert result.state["log"] == ["start", *befores, "answer", *afters]
    assert ran == [*befores, *afters]


async def test_a_condition_that_asks_three_levels_deep(store: Store) -> None:  # rules G15, G7
    def where(state: Any) -> str:
        return interrupt("where")

    def build() -> CompiledGraph:
        graph = StateGraph(Log, name="three").add_node("a", note("a", [])).add_node("b", note("b", []))
        graph.set_entry_point("a").add_conditional_edges("a", where)
        for name in ("two", "one"):
            graph = StateGraph(Log, name=name).add_node("sub", graph.compile()).set_entry_point("sub")
        return graph.compile(store=store)

    paused = await build().run({}, session_id="s")
    assert ids(paused) == ["runnable:one;node:sub;node:sub;node:a;branch:where"]
    result = await build().resume("s", {ids(paused)[0]: "b"})
    assert result.status == "done"
    assert result.state["log"] == ["a", "b"]


async def test_what_is_below_is_part_of_the_parents_session(store: Store) -> None:  # rule G15
    graph = three_deep([], store)
    await graph.run({}, session_id="s")
    assert [status.session_id for status in await graph.sessions()] == ["s"]
    assert (await graph.state("s"))["log"] == ["before 1"]
    assert (await graph.state("s", at="runnable:one;node:sub"))["log"] == ["before 1", "before 2"]
    below = await graph.state("s", at="runnable:one;node:sub;node:sub")
    assert below["log"] == ["before 1", "before 2", "before 3"]
    under = await graph.history("s", under="runnable:one;node:sub;node:sub")
    assert under
    assert all(point.address == "runnable:one;node:sub;node:sub" for point in under)


async def test_a_loop_below_asks_anew_each_time(store: Store) -> None:  # rules G15, I3
    def again(state: Any) -> str | None:
        return None if state["log"][-1] == "stop" else "ask"

    def build() -> CompiledGraph:
        inner = StateGraph(Log, name="inner").add_node("ask", ask).set_entry_point("ask")
        outer = StateGraph(Log, name="outer").add_node("sub", inner.add_conditional_edges("ask", again).compile())
        return outer.set_entry_point("sub").compile(store=store)

    paused = await build().run({}, session_id="s")
    seen = [*ids(paused)]
    for answer in ("one", "two", "stop"):
        paused = await build().resume("s", {ids(paused)[0]: answer})
        seen += ids(paused)
    place = "runnable:outer;node:sub;node:ask"
    assert seen == [place, f"{place}#2", f"{place}#3"]
    assert paused.state["log"] == ["one", "two", "stop"]


async def test_parallel_subgraphs_ask_together_and_are_answered_apart(store: Store) -> None:  # rules G15, I4
    ran: list[str] = []

    def build() -> CompiledGraph:
        inner = StateGraph(Log, name="inner").add_node("ask", ask).add_node("after", note("after", ran))
        sub = inner.add_sequence(START, "ask", "after").compile()
        return together(Log, {"a": sub, "b": sub, "c": note("c", ran)}, name="outer", store=store)

    paused = await build().run({}, session_id="s")
    assert ids(paused) == [f"runnable:outer;node:{name};node:ask" for name in "ab"]
    assert paused.state["log"] == []
    middle = await build().resume("s", {ids(paused)[1]: "B"})
    assert ids(middle) == ids(paused)[:1]
    result = await build().resume("s", {ids(paused)[0]: "A"})
    assert result.state["log"] == ["A", "after", "B", "after", "c"]
    assert ran == ["c", "after", "after"]


async def test_a_static_pause_below_is_at_the_address_of_the_node(store: Store) -> None:  # rules G15, I8
    def build() -> CompiledGraph:
        inner = StateGraph(Log, name="inner").add_node("a", giving({"log": ["a"]})).add_node("b", giving(None))
        sub = inner.add_sequence(START, "a", "b").compile(interrupt_before=["b"])
        return StateGraph(Log, name="outer").add_node("sub", sub).set_entry_point("sub").compile(store=store)

    paused = await build().run({}, session_id="s")
    (asked,) = paused.interrupts
    assert asked.id == "runnable:outer;node:sub"
    assert asked.info["state"]["log"] == ["a"]
    result = await build().resume("s", {asked.id: {"log": ["edited"]}})
    assert result.state["log"] == ["edited"]


@pytest.mark.parametrize("answer", [None, True, "yes", {"log": ["edited"]}])
async def test_yes_and_nothing_let_a_static_pause_go_on(store: Store, answer: Any) -> None:  # rule I8
    graph = StateGraph(Log, name="g").add_node("a", giving(None)).add_node("b", giving({"log": ["b"]}))
    built = graph.add_sequence(START, "a", "b").compile(store=store, interrupt_before=["b"])
    (asked,) = (await built.run({}, session_id="s")).interrupts
    assert "Go on?" in str(asked.prompt)
    for no in (False, "no", "go on"):
        with pytest.raises(InvalidAnswer):
            await built.resume("s", {asked: no})
    result = await built.resume("s", {asked: answer})
    assert result.state.get("log") == (["edited", "b"] if answer == {"log": ["edited"]} else ["b"])


def waiting_in_a_node() -> StateGraph:
    return StateGraph(Log, name="keep").add_node("a", giving({"log": ["kept"]})).add_node("ask", ask)


def waiting_in_a_condition() -> StateGraph:
    def route(state: Any) -> str:
        return interrupt(f"{len(state['log'])} so far")

    graph = waiting_in_a_node().add_node("done", giving({"log": ["done"]}))
    graph.add_conditional_edges("a", giving("done"))  # One that is decided, and must stay so.
    return graph.add_conditional_edges("a", route)


def waiting_in_a_child() -> StateGraph:
    async def call(state: Any) -> dict[str, Any]:
        return {"log": (await chain(Log, ask, name="child").invoke({"log": ["x", "y"]}))["log"][2:]}

    return waiting_in_a_node().add_node("call", call)


@pytest.mark.parametrize(
    ("keep", "last", "answer"),
    [(waiting_in_a_node, "ask", "done"), (waiting_in_a_condition, None, "done"), (waiting_in_a_child, "call", "done")],
)
async def test_what_sleeps_below_survives_many_answers_elsewhere(
    keep: Any, last: str | None, answer: str, store: Store
) -> None:  # rules G15, C3
    text = "x" * 2_000

    def chatty(state: Any) -> Command:
        answer = interrupt(text)
        return Command({"item": answer}, goto=END if answer == "stop" else "chatty")

    def build() -> CompiledGraph:
        chat = StateGraph(Log, name="chat").add_node("chatty", chatty).set_entry_point("chatty").compile()
        kept = keep().add_sequence(START, "a", *([last] if last else [])).compile()
        return together(Log, {"chat": chat, "keep": kept}, name="outer", store=store)

    place = "runnable:outer;node:chat;node:chatty"
    await build().run({"log": ["start"], "item": {"deep": [1]}}, session_id="s")
    for number in range(1, 25):
        await build().resume("s", {place if number == 1 else f"{place}#{number}": number})
    await build().resume("s", {f"{place}#25": "stop"})
    (asked,) = await build().pending("s")
    assert asked.info == "2 so far"
    result = await build().resume("s", {asked.id: answer})
    assert result.state["log"] == ["start", "kept", "done"]
    assert result.state["item"] == "stop"


# Graphs that nodes run


def calling(child: CompiledGraph, times: int = 1) -> Node:
    async def call(state: Any) -> dict[str, Any]:
        found = [await child.invoke({"item": number}) for number in range(times)]
        return {"log": [each["log"] for each in found]}

    return call


def lone(node: Node, store: Store | None = None, **options: Any) -> CompiledGraph:
    return StateGraph(Log, name="g").add_node("n", node, **options).set_entry_point("n").compile(store=store)


async def test_a_graph_run_in_a_node_joins_the_run(store: Store) -> None:  # rule G15
    ran: list[str] = []

    def build() -> CompiledGraph:
        child = StateGraph(Log, name="child").add_node("before", note("before", ran)).add_node("ask", ask)
        return lone(calling(child.add_sequence(START, "before", "ask").compile(), times=3), store)

    paused = await build().run({}, session_id="s")
    seen = ids(paused)
    for answer in ("one", "two", "three"):
        paused = await build().resume("s", {ids(paused)[0]: answer})
        seen += ids(paused)
    places = ["runnable:child", "runnable:child:2", "runnable:child:3"]
    assert seen == [f"runnable:g;node:n;{place};node:ask" for place in places]
    assert paused.state["log"] == [["before", "one"], ["before", "two"], ["before", "three"]]
    assert ran == ["before"] * 3
    assert [status.session_id for status in await build().sessions()] == ["s"]


async def test_graphs_run_at_once_in_a_node_ask_together(store: Store) -> None:  # rules G15, I4
    def build() -> CompiledGraph:
        child = chain(Log, ask, name="child")

        async def call(state: Any) -> dict[str, Any]:
            found = await asyncio.gather(child.invoke({"log": ["x"]}), child.invoke({"log": ["y"]}))
            return {"log": [each["log"] for each in found]}

        return lone(call, store)

    paused = await build().run({}, session_id="s")
    assert ids(paused) == [f"runnable:g;node:n;runnable:child{n};node:ask" for n in ("", ":2")]
    await build().resume("s", {ids(paused)[1]: "Y"})
    result = await build().resume("s", {ids(paused)[0]: "X"})
    assert result.state["log"] == [["x", "X"], ["y", "Y"]]


async def test_what_a_child_gave_is_kept_like_once(store: Store) -> None:  # rule G15
    ran: list[str] = []

    def build() -> CompiledGraph:
        child = chain(Log, note("child", ran), name="child")

        async def call(state: Any) -> dict[str, Any]:
            found = await child.invoke({})
            return {"log": [found["log"], interrupt("?")]}

        return lone(call, store)

    paused = await build().run({}, session_id="s")
    result = await build().resume("s", {ids(paused)[0]: "ok"})
    assert result.state["log"] == [["child"], "ok"]
    assert ran == ["child"]


async def test_a_graph_run_by_a_once_function_is_refused_or_kept_whole() -> None:  # rule G15
    child = chain(Log, giving({"log": ["x"]}), name="child")

    @once
    async def inside() -> Any:
        return (await child.invoke({}))["log"]

    async def call(state: Any) -> dict[str, Any]:
        return {"log": await inside()}

    with pytest.raises(UsageError, match="@once"):
        await lone(call).invoke({})


async def test_with_a_session_id_a_graph_is_independent(store: Store) -> None:  # rule G15
    child = chain(Log, giving({"log": ["x"]}), name="child", store=store)
    asks = chain(Log, ask, name="asks", store=store)

    async def call(state: Any) -> dict[str, Any]:
        found = await child.invoke({}, session_id="other")
        with pytest.raises(GraphInterrupted) as caught:
            await asks.invoke({}, session_id="third")
        return {"log": [found["log"], [each.id for each in caught.value.interrupts]]}

    result = await lone(call, store).run({}, session_id="s")
    assert result.status == "done"
    assert result.state["log"] == [["x"], ["runnable:asks;node:ask"]]
    assert {status.session_id for status in await child.sessions()} == {"s", "other", "third"}
    assert (await asks.resume("third", {"runnable:asks;node:ask": "later"})).state["log"] == ["later"]


async def test_outside_a_run_a_pause_is_raised(store: Store) -> None:  # rule G15
    graph = chain(Log, ask, store=store)
    with pytest.raises(GraphInterrupted, match=r"asks: runnable:g;node:ask\. ") as caught:
        await graph.invoke({}, session_id="s")
    assert [each.id for each in caught.value.interrupts] == ["runnable:g;node:ask"]
    assert (await graph.resume("s", {"runnable:g;node:ask": "ok"})).state["log"] == ["ok"]


async def test_a_childs_failure_is_the_callers_to_handle(store: Store) -> None:  # rule G15
    child = chain(Log, failing(RuntimeError("below")), name="child")

    async def catches(state: Any) -> dict[str, Any]:
        with pytest.raises(RuntimeError, match="below"):
            await child.invoke({})
        return {"log": ["caught"]}

    assert (await lone(catches, store).run({}, session_id="s")).state["log"] == ["caught"]

    async def passes(state: Any) -> Any:
        return await child.invoke({})

    with pytest.raises(RuntimeError, match="below"):
        await lone(passes, store).run({}, session_id="t")


async def test_a_child_that_failed_goes_on_where_it_failed(store: Store) -> None:  # rules G11, G15
    ran: list[str] = []

    def build(second: Node) -> CompiledGraph:
        child = StateGraph(Log, name="child").add_node("a", note("a", ran)).add_node("b", second)
        return lone(calling(child.add_sequence(START, "a", "b").compile()), store)

    with pytest.raises(RuntimeError):
        await build(failing(RuntimeError("broken"))).run({}, session_id="s")
    result = await build(note("b", ran)).recover("s")
    assert result.state["log"] == [["a", "b"]]
    assert ran == ["a", "b"]


async def test_three_graphs_that_call_one_another(store: Store) -> None:  # rule G15
    def build() -> CompiledGraph:
        three = chain(Log, ask, name="three")
        two = StateGraph(Log, name="two").add_node("n", calling(three)).set_entry_point("n").compile()
        sub = StateGraph(Log, name="one").add_node("sub", two).set_entry_point("sub").compile()
        return lone(calling(sub), store)

    paused = await build().run({}, session_id="s")
    assert ids(paused) == ["runnable:g;node:n;runnable:one;node:sub;node:n;runnable:three;node:ask"]
    assert (await build().resume("s", {ids(paused)[0]: "deep"})).state["log"] == [[["deep"]]]


async def test_a_graph_that_calls_itself_ends() -> None:  # rule G15
    async def countdown(state: Any) -> dict[str, Any]:
        if state["item"] == 0:
            return {"log": ["bottom"]}
        return {"log": (await graph.invoke({"item": state["item"] - 1}))["log"]}

    graph = chain(Log, countdown)
    assert (await graph.invoke({"item": 12}))["log"] == ["bottom"]


async def test_a_called_graph_with_a_class_schema_gives_an_instance(store: Store) -> None:  # rule G15
    @dataclass
    class Answer:
        topic: str
        log: Annotated[list[str], append] = field(default_factory=list[str])

    def build() -> CompiledGraph:
        def look(state: Answer) -> dict[str, Any]:
            return {"log": [state.topic]}

        child = chain(Answer, look, name="child")

        async def call(state: Any) -> dict[str, Any]:
            found = await child.invoke(Answer("bees"))
            return {"log": [type(found).__name__, found.log, interrupt("?")]}

        return lone(call, store)

    paused = await build().run({}, session_id="s")
    result = await build().resume("s", {ids(paused)[0]: "ok"})
    assert result.state["log"] == ["Answer", ["bees"], "ok"]


async def test_a_called_graph_has_its_own_state_and_the_sessions_values() -> None:  # rules G15, R15
    def look(state: Any) -> dict[str, Any]:
        current().values["from"] = "the child"
        return {"log": [current().values["who"]]}

    child = chain(Log, look, name="child")

    async def call(state: Any) -> dict[str, Any]:
        found = await child.invoke({})
        return {"log": [found["log"], current().values["from"]]}

    result = await lone(call).run({"log": ["mine"]}, values={"who": "caller"})
    assert result.state["log"] == ["mine", ["caller"], "the child"]


async def test_a_sync_node_is_told_that_it_cannot_run_a_graph() -> None:  # rule G15
    child = chain(Log, giving({"log": ["x"]}), name="child")

    def call(state: Any) -> dict[str, Any]:
        return {"log": asyncio.run(child.invoke({}))["log"]}

    with pytest.raises(UsageError, match="async"):
        await lone(call).invoke({})


async def test_a_condition_may_run_a_graph(store: Store) -> None:  # rules G15, G7
    def build() -> CompiledGraph:
        child = chain(Log, ask, name="child")

        async def route(state: Any) -> str:
            return (await child.invoke({}))["log"][-1]

        graph = StateGraph(Log, name="g").add_node("a", giving({"log": ["a"]})).add_node("b", giving({"log": ["b"]}))
        return graph.set_entry_point("a").add_conditional_edges("a", route).compile(store=store)

    paused = await build().run({}, session_id="s")
    assert ids(paused) == ["runnable:g;node:a;branch:route;runnable:child;node:ask"]
    assert (await build().resume("s", {ids(paused)[0]: "b"})).state["log"] == ["a", "b"]


async def test_events_of_a_called_graph_are_part_of_the_run() -> None:  # rule G15
    child = chain(Log, giving(None), name="child")
    events = await events_of(lone(calling(child)).run({}))
    places = {event.address for event in events}
    assert "runnable:g;node:n;runnable:child;node:give" in places


async def test_options_of_a_run_are_refused_for_a_part_of_another_run() -> None:  # rule G15
    child = chain(Log, giving({}), name="child")

    async def call(state: Any) -> dict[str, Any]:
        await child.invoke({}, max_steps=5)
        return {}

    with pytest.raises(UsageError, match=r"'child'.*max_steps.*session_id"):
        await lone(call, None).run({})
