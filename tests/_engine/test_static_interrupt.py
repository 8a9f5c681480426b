"""Static interrupts: a graph pauses before or after nodes, to be looked at and edited."""

import dataclasses
from typing import Annotated, Any, TypedDict

import pytest

from adjourn import InvalidAnswer, Runner, current, interrupt, stored, workflow
from adjourn.errors import GraphError, InterruptsDisabled
from adjourn.events import Interrupted
from adjourn.graph import END, START, Command, CompiledGraph, StateGraph, append
from adjourn.stores import Store
from tests._engine.asking import events_of, ids


class Draft(TypedDict):
    text: str
    log: Annotated[list[str], append]


def write(state: Any) -> Any:
    return {"text": "first", "log": ["write"]}


def publish(state: Any) -> Any:
    return {"log": [f"publish {state['text']}"]}


def build(store: Store | None = None, **options: Any) -> CompiledGraph:
    graph = StateGraph(Draft, name="g").add_node("write", write).add_node("publish", publish)
    return graph.add_edge(START, "write").add_edge("write", "publish").compile(store=store, **options)


BEFORE: dict[str, Any] = {"interrupt_before": ["publish"]}
AFTER: dict[str, Any] = {"interrupt_after": ["write"]}


@pytest.mark.parametrize("options", [BEFORE, AFTER], ids=["before", "after"])
async def test_the_graph_pauses_once_and_goes_on_without_an_answer(options: Any, store: Store):  # rule I8
    result = await build(store, **options).run({}, session_id="s")
    (asked,) = result.interrupts
    assert (asked.id, asked.address) == ("runnable:g", "runnable:g")
    assert asked.info["state"] == {"text": "first", "log": ["write"]}
    assert asked.info["nodes"] == [*options.get("interrupt_before", []), *options.get("interrupt_after", [])]
    assert result.state["log"] == ["write"]
    result = await build(store, **options).resume("s")
    assert result.status == "done"
    assert result.state["log"] == ["write", "publish first"]


async def test_before_and_after_at_one_border_is_one_pause(store: Store):  # rule I8
    graph = build(store, **BEFORE, **AFTER)
    (asked,) = (await graph.run({}, session_id="s")).interrupts
    assert (asked.info["before"], asked.info["after"]) == (["publish"], ["write"])
    assert (await graph.resume("s")).status == "done"


async def test_the_first_and_the_last_border_count(store: Store):  # rule I8
    options: dict[str, Any] = {"interrupt_before": ["write"], "interrupt_after": ["publish"]}
    result = await build(store, **options).run({"text": "given"}, session_id="s")
    assert (result.interrupts[0].info["nodes"], result.state["log"]) == (["write"], [])
    result = await build(store, **options).resume("s")
    assert ids(result) == ["runnable:g#2"]
    assert (result.interrupts[0].info["nodes"], result.state["log"]) == (["publish"], ["write", "publish first"])
    result = await build(store, **options).resume("s")
    assert (result.status, result.state["log"]) == ("done", ["write", "publish first"])


async def test_nodes_can_be_marked_where_they_are_added(store: Store):  # api: add_node
    graph = StateGraph(Draft, name="g").add_node("write", write, interrupt_after=True)
    graph.add_node("publish", publish, interrupt_before=True).add_edge(START, "write").add_edge("write", "publish")
    (asked,) = (await graph.compile(store=store).run({}, session_id="s")).interrupts
    assert (asked.info["before"], asked.info["after"]) == (["publish"], ["write"])


@pytest.mark.parametrize("options", [BEFORE, AFTER], ids=["before", "after"])
async def test_a_mapping_overwrites_the_state(options: Any, store: Store):  # rule I8
    result = await build(store, **options).run({}, session_id="s")
    result = await build(store, **options).resume("s", {ids(result)[0]: {"text": "second", "log": ["edited"]}})
    assert result.state == {"text": "second", "log": ["edited", "publish second"]}


@pytest.mark.parametrize("answer", [None, {}], ids=["None", "empty"])
async def test_an_empty_answer_changes_nothing(answer: Any, store: Store):  # rule I8
    result = await build(store, **BEFORE).run({}, session_id="s")
    result = await build(store, **BEFORE).resume("s", {ids(result)[0]: answer})
    assert result.state == {"text": "first", "log": ["write", "publish first"]}


async def test_a_list_of_ids_goes_on_without_an_answer(store: Store):  # rules I8, R1
    result = await build(store, **BEFORE).run({}, session_id="s")
    assert (await build(store, **BEFORE).resume("s", ids(result))).status == "done"


@pytest.mark.parametrize("answer", ["text", 3, [1], {"unknown": 1}, {"text": 5}, {"log": "no list"}], ids=repr)
async def test_an_edit_that_does_not_fit_is_refused(answer: Any, store: Store):  # rules I8, R2
    graph = build(store, **BEFORE)
    result = await graph.run({}, session_id="s")
    with pytest.raises(InvalidAnswer):
        await graph.resume("s", {ids(result)[0]: answer})
    assert [asked.id for asked in await graph.pending("s")] == ids(result)
    assert (await graph.resume("s")).state["log"] == ["write", "publish first"]


async def test_a_person_sees_what_may_be_edited():  # rules I8, I12
    (asked,) = (await build(**BEFORE).run({})).interrupts
    assert asked.schema is not None
    assert asked.prompt is not None
    assert "publish" in asked.prompt


async def test_every_hit_pauses_anew(store: Store):  # rules I8, I3
    def count(state: Any) -> Any:
        return Command(update={"log": ["x"]}, goto="count" if len(state["log"]) < 2 else END)

    def loop() -> CompiledGraph:
        graph = StateGraph(Draft, name="g").add_node("count", count).add_edge(START, "count")
        return graph.compile(store=store, interrupt_before=["count"])

    seen: list[str] = []
    result = await loop().run({}, session_id="s")
    while result.status == "interrupted":
        seen += ids(result)
        result = await loop().resume("s")
    assert seen == ["runnable:g", "runnable:g#2", "runnable:g#3"]
    assert result.state["log"] == ["x", "x", "x"]


async def test_a_superstep_is_hit_once_however_many_nodes_it_has(store: Store):  # rule I8
    graph = StateGraph(Draft, name="g")
    for name in "abc":
        graph.add_node(name, lambda state: {"log": ["x"]}).add_edge(START, name)
    compiled = graph.compile(store=store, interrupt_before=["a", "c"], interrupt_after=["b"])
    result = await compiled.run({}, session_id="s")
    assert result.interrupts[0].info["nodes"] == ["a", "c"]
    result = await compiled.resume("s")
    assert result.interrupts[0].info["nodes"] == ["b"]
    assert (await compiled.resume("s")).state["log"] == ["x", "x", "x"]


async def test_a_fan_out_is_hit_once(store: Store):  # rule I8
    def spread(state: Any) -> Any:
        return [Command(update={"text": str(n)}, goto="work") for n in range(3)]

    graph = StateGraph(Draft, name="g").add_node("spread", spread)
    graph.add_node("work", lambda state: {"log": [state["text"]]}).add_edge(START, "spread")
    compiled = graph.compile(store=store, interrupt_before=["work"])
    result = await compiled.run({}, session_id="s")
    assert result.interrupts[0].info["nodes"] == ["work"]
    assert (await compiled.resume("s")).state["log"] == ["0", "1", "2"]


async def test_a_nested_graph_pauses_at_its_own_place(store: Store):  # rules I8, I6
    inner = build(**BEFORE)

    def outer() -> CompiledGraph:
        graph = StateGraph(Draft, name="outer").add_subgraph("sub", inner).add_edge(START, "sub")
        return graph.compile(store=store)

    result = await outer().run({}, session_id="s")
    assert ids(result) == ["runnable:outer;node:sub"]
    result = await outer().resume("s", {ids(result)[0]: {"text": "edited"}})
    assert result.state == {"text": "edited", "log": ["write", "publish edited"]}


async def test_a_child_graph_pauses_at_its_own_place(store: Store):  # rules I8, I6
    inner = build(**BEFORE)

    @workflow
    async def flow() -> Any:
        return (await current().run(inner, {}))["log"]

    result = await Runner(flow, store=store).run(session_id="s")
    assert ids(result) == ["runnable:flow;runnable:g"]
    assert (await Runner(flow, store=store).resume("s")).value == ["write", "publish first"]


async def test_a_node_may_ask_right_after_the_graph_did(store: Store):  # rules I8, R7
    def ask(state: Any) -> Any:
        return {"log": [interrupt("q", key="q")]}

    graph = StateGraph(Draft, name="g").add_node("ask", ask).add_edge(START, "ask")
    compiled = graph.compile(store=store, interrupt_before=["ask"])
    assert ids(await compiled.run({}, session_id="s")) == ["runnable:g"]
    assert ids(await compiled.resume("s")) == ["runnable:g;node:ask"]
    assert (await compiled.resume("s", {"q": "a"})).state["log"] == ["a"]


@pytest.mark.parametrize("options", [{"interrupt_before": ["fail"]}, {"interrupt_after": ["write"]}], ids=repr)
async def test_recovering_a_failure_does_not_pause_again(options: Any, store: Store):  # rule I8
    broken = True

    def fail(state: Any) -> Any:
        if broken:
            raise ValueError("broken")
        return {"log": [state["text"]]}

    def make() -> CompiledGraph:
        graph = StateGraph(Draft, name="g").add_node("write", write).add_node("fail", fail)
        return graph.add_edge(START, "write").add_edge("write", "fail").compile(store=store, **options)

    result = await make().run({}, session_id="s")
    with pytest.raises(ValueError, match="broken"):
        await make().resume("s", {ids(result)[0]: {"text": "edited"}})
    broken = False
    result = await make().recover("s")
    assert (result.status, result.state["log"]) == ("done", ["write", "edited"])


async def test_each_turn_pauses(store: Store):  # rule I8
    graph = build(store, **BEFORE)
    for _ in range(2):
        assert (await graph.run({}, session_id="s")).status == "interrupted"
        assert (await graph.resume("s")).status == "done"


async def test_static_interrupts_can_be_forbidden(store: Store):  # api: interrupts=False
    with pytest.raises(InterruptsDisabled):
        await build(store, interrupts=False, **BEFORE).run({}, session_id="s")


def test_unknown_nodes_are_an_error():  # rule G1
    with pytest.raises(GraphError, match="nowhere"):
        build(interrupt_before=["nowhere"])


@dataclasses.dataclass
class Record:
    text: str = ""
    count: int = 0


async def test_a_class_schema_can_be_edited(store: Store):  # rules I8, S10
    def work(state: Record) -> Any:
        return {"count": state.count + 1}

    graph = StateGraph(Record, name="g").add_node("work", work).add_edge(START, "work")
    compiled = graph.compile(store=store, interrupt_before=["work"])
    result = await compiled.run({"text": "a"}, session_id="s")
    assert result.interrupts[0].info["state"] == {"text": "a", "count": 0}
    result = await compiled.resume("s", {ids(result)[0]: {"count": 41}})
    assert result.state == Record(text="a", count=42)


@stored("test.static.registered")
@dataclasses.dataclass
class Registered:
    text: str = ""
    count: int = 0
    log: Annotated[list[str], append] = dataclasses.field(default_factory=list[str])


@dataclasses.dataclass
class Unregistered:
    text: str = ""
    count: int = 0
    log: Annotated[list[str], append] = dataclasses.field(default_factory=list[str])


@pytest.mark.parametrize("schema", [Registered, Unregistered])
async def test_an_instance_of_the_schema_is_an_answer(schema: Any, store: Store):  # rules I8, S10
    def work(state: Any) -> Any:
        return {"count": state.count + 1, "log": ["work"]}

    def build() -> CompiledGraph:
        graph = StateGraph(schema, name="g").add_node("work", work).add_edge(START, "work")
        return graph.compile(store=store, interrupt_before=["work"])

    result = await build().run({"text": "a", "log": ["begun"]}, session_id="s")
    given = schema(**result.interrupts[0].info["state"])
    given.count = 41
    result = await build().resume("s", {ids(result)[0]: given})
    assert result.state == schema(text="a", count=42, log=["begun", "work"])


async def test_the_pause_is_told_after_what_came_before_it(store: Store):  # rules I4, I8
    events = await events_of(build(store, **BEFORE).run({}, session_id="s"))
    assert isinstance(events[-1], Interrupted)
    assert [point.source for point in await build(store, **BEFORE).history("s")] == ["interrupt", "input"]
