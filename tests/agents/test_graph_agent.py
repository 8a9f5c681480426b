"""GraphAgent: a graph as the root agent, as one that is handed over to, as a tool, and as a node."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

import msgspec
import pytest

from adjourn import (
    ChatModelAgent,
    GraphAgent,
    LoopAgent,
    Message,
    Middleware,
    ParallelAgent,
    Runner,
    SequentialAgent,
    UsageError,
    interrupt,
    tool,
)
from adjourn.errors import ModelError
from adjourn.events import Delta, Done, NodeEnd, NodeStart, from_json, to_json
from adjourn.graph import END, START, MessagesState, StateGraph, append
from adjourn.stores import SessionRef, Store
from adjourn.stores.kit import ListEvents
from adjourn.testing import FunctionModel, ScriptedModel

from .crew import ask, call, chat, events_of, ids, model_of, said, seen, transfer


class Notes(MessagesState):
    notes: Annotated[list[str], append]


def talking(model: Any, *, name: str = "inner", **compiled: Any) -> Any:
    """A graph of one model."""
    return StateGraph(Notes, name=name).add_llm_node("llm", model).add_edge(START, "llm").compile(**compiled)


def working(*script: Any, tools: Any = (ask,), middleware: Any = ()) -> Any:
    """A graph of a model and its tools."""
    return (
        StateGraph(Notes, name="inner")
        .add_llm_node("llm", ScriptedModel(script), tools=tools)
        .add_tools_node("tools", tools, middleware=middleware)
        .add_edge(START, "llm")
        .add_tools_conditional_edges("llm", "tools", END)
        .add_edge("tools", "llm")
        .compile()
    )


def noting(state: Notes) -> dict[str, Any]:
    """Note what came, and how much was known."""
    return {"notes": [state["user_input"]], "last_response": f"{len(state['notes']) + 1} notes"}


def noter(name: str = "Noter", **options: Any) -> GraphAgent:
    graph = StateGraph(Notes, name="inner").add_node("note", noting).add_edge(START, "note").compile()
    return GraphAgent(name, graph, description="Takes notes.", **options)


def asker(name: str = "Asker", **options: Any) -> GraphAgent:
    def confirm(state: Notes) -> dict[str, Any]:
        answer = interrupt(f"{state['user_input']}?", key="sure")
        return {"notes": [answer], "last_response": f"answered {answer}"}

    graph = StateGraph(Notes, name="inner").add_node("note", noting).add_node("confirm", confirm)
    return GraphAgent(name, graph.add_sequence(START, "note", "confirm").compile(), **options)


# At the root


async def test_the_message_becomes_the_user_input_and_nothing_else(store: Store) -> None:  # rule L8
    found: list[dict[str, Any]] = []

    def look(state: Notes) -> None:
        found.append({name: value for name, value in dict(state).items() if value})

    graph = StateGraph(Notes, name="inner").add_node("look", look).add_edge(START, "look").compile()
    for given in ("hi", Message.user("hi"), ["hi"], [Message.user("old"), Message.assistant("so?"), "hi"]):
        await Runner(GraphAgent("G", graph), store=store).run(given)
    await Runner(GraphAgent("G", graph), store=store).run(["one", "two"])
    assert found == [{"user_input": "hi"}] * 4 + [{"user_input": "one\ntwo"}]


async def test_initial_state_counts_once_per_session(store: Store) -> None:  # rule L8
    def runner() -> Runner:
        return Runner(noter(initial_state={"notes": ["first"], "metadata": {"a": 1}}), store=store)

    assert (await runner().run("one", session_id="s")).output == "2 notes"
    result = await runner().run("two", session_id="s")
    assert result.state["notes"] == ["first", "one", "two"]
    assert result.state["metadata"] == {"a": 1}
    assert (await runner().run("one", session_id="other")).state["notes"] == ["first", "one"]


async def test_a_session_has_one_history_over_turns_and_processes(store: Store) -> None:  # rules L3, L8
    models = [ScriptedModel(["hello"]), ScriptedModel(["better"])]
    for model, given in zip(models, ("hi", "how are you?"), strict=True):
        await Runner(GraphAgent("G", talking(model)), store=store).run(given, session_id="s")
    assert seen(models[1].requests[0]) == ["user: hi", "assistant: hello", "user: how are you?"]
    messages = await Runner(GraphAgent("G", talking(ScriptedModel([]))), store=store).messages("s")
    assert said(messages) == ["user: hi", "assistant: hello", "user: how are you?", "assistant: better"]


async def test_a_graph_that_keeps_no_messages_has_a_conversation_all_the_same(store: Store) -> None:  # rule L8
    result = await Runner(noter(), store=store).run("hi", session_id="s")
    assert said(result.messages) == ["user: hi", "assistant: 1 notes"]


# The final event


class Box(msgspec.Struct):
    n: int


class AsStruct(msgspec.Struct):
    user_input: str = ""
    last_response: str = ""
    box: Box | None = None


def boxing() -> GraphAgent:
    def fill(state: AsStruct) -> dict[str, Any]:
        return {"box": Box(3), "last_response": "filled"}

    return GraphAgent("G", StateGraph(AsStruct, name="inner").add_node("fill", fill).add_edge(START, "fill").compile())


@pytest.mark.parametrize("bare", [True, False])
async def test_the_final_event_has_the_final_state(store: Store, bare: bool) -> None:  # rule L8
    agent = boxing()
    runner = Runner(agent.graph if bare else agent, store=store)
    done = (await events_of(runner.run("hi", session_id="s")))[-1]
    expected = {"user_input": "hi", "last_response": "filled", "box": Box(3)}
    assert isinstance(done, Done)
    assert (done.output, done.state) == ("filled", expected)
    assert from_json(to_json(done)) == done
    followed = [event async for event in Runner(runner.program, store=store).attach("s")][-1]
    assert followed == done


async def test_each_turn_ends_with_its_own_state(store: Store) -> None:  # rule L8
    runner = Runner(noter(), store=store)
    for given in ("one", "two"):
        await runner.run(given, session_id="s")
    ends = [event async for event in runner.attach("s") if isinstance(event, Done)]
    assert [(end.state or {})["notes"] for end in ends] == [["one"], ["one", "two"]]


async def test_the_state_is_not_copied_into_the_log(store: Store) -> None:  # rule L8
    runner = Runner(noter(initial_state={"notes": ["marked-in-the-state"]}), store=store)
    await events_of(runner.run("hi", session_id="s"))
    batches = await store.read(ListEvents(SessionRef("s"), 0))
    assert b"marked-in-the-state" not in b"".join(batch.body for batch in batches)


async def test_a_chat_model_agent_ends_without_a_state(store: Store) -> None:  # rule L8
    runner = Runner(chat("A", "hi"), store=store)
    done = (await events_of(runner.run("hi", session_id="s")))[-1]
    assert isinstance(done, Done)
    assert done.state is None
    assert [event async for event in runner.attach("s")][-1] == done


# Events


async def test_nodes_begin_and_end_in_the_agents_name(store: Store) -> None:
    root = chat("Root", transfer("G"), sub_agents=[GraphAgent("G", talking(ScriptedModel(["one two"])))])
    events = await events_of(Runner(root, store=store).run("hi", session_id="s"))
    told = [event for event in events if isinstance(event, NodeStart | NodeEnd)]
    assert [(type(event), event.node) for event in told] == [(NodeStart, "llm"), (NodeEnd, "llm")]
    assert {(event.agent, event.path) for event in told} == {("G", ("Root", "G"))}
    assert {event.address for event in told} == {"agent:Root;agent:G;node:llm"}
    assert all(event.seconds > 0 for event in told if isinstance(event, NodeEnd))
    deltas = [event for event in events if isinstance(event, Delta) and event.text]
    assert [delta.text for delta in deltas] == ["one", " two"]
    assert {(delta.agent, delta.path) for delta in deltas} == {("llm", ("Root", "G"))}


@pytest.mark.parametrize("emits", [True, False])
async def test_a_graph_in_a_tool_is_heard_only_if_it_should_be(store: Store, emits: bool) -> None:  # rule A6
    inner = GraphAgent("G", talking(ScriptedModel(["found it"])))
    root = chat("Root", call("G", request="look"), "end", tools=[inner.as_tool(emit_internal_events=emits)])
    events = await events_of(Runner(root, store=store).run("hi", session_id="s"))
    assert [event.node for event in events if isinstance(event, NodeEnd)] == ["llm"] * emits
    assert [event.text for event in events if isinstance(event, Delta) and event.agent == "llm"] == (
        ["found", " it"] if emits else []
    )


# In another agent's tree


def desk(*script: Any, graph: GraphAgent | None = None) -> ChatModelAgent:
    return chat("Root", *script, sub_agents=[graph or noter("G")])


async def test_a_graph_is_handed_over_to_with_what_the_user_said(store: Store) -> None:  # rules L8, A5
    root = desk(transfer("G"))
    result = await Runner(root, store=store).run("note this", session_id="s")
    assert "G: Takes notes." in seen(model_of(root).requests[0])[0]
    assert result.output == "1 notes"
    assert said(result.messages) == ["user: note this", "tool: Handed over to G.", "assistant: 1 notes"]


async def test_a_graph_that_is_handed_over_to_again_goes_on_where_it_ended(store: Store) -> None:  # rule L8
    def runner(*script: Any) -> Runner:
        graph = noter("G", initial_state={"notes": ["first"]})
        return Runner(desk(*script, graph=graph), store=store, after_transfer="root")

    assert (await runner(transfer("G")).run("one", session_id="s")).output == "2 notes"
    assert (await runner(transfer("G", "t2")).run("two", session_id="s")).output == "3 notes"
    assert (await runner(transfer("G")).run("one", session_id="other")).output == "2 notes"


async def test_the_agent_that_has_the_turn_remembers_its_conversation(store: Store) -> None:  # rules L8, A5
    models = [ScriptedModel(["hello"]), ScriptedModel(["better"])]
    scripts = [[transfer("G")], []]
    for model, script, given in zip(models, scripts, ("hi", "and you?"), strict=True):
        root = desk(*script, graph=GraphAgent("G", talking(model)))
        await Runner(root, store=store).run(given, session_id="s")
    assert seen(models[1].requests[0]) == ["user: hi", "assistant: hello", "user: and you?"]
    assert said(await Runner(desk(), store=store).messages("s"))[-2:] == ["user: and you?", "assistant: better"]


async def test_members_of_rows_loops_and_sides_keep_their_states(store: Store) -> None:  # rules L8, A7
    row = SequentialAgent("Row", agents=[noter("A"), noter("B")])
    tree = ParallelAgent("Sides", agents=[row, LoopAgent("Loop", agents=[noter("C")], max_iterations=2)])
    assert (await Runner(tree, store=store).run("go", session_id="s")).output == "1 notes\n\n2 notes"
    assert (await Runner(tree, store=store).run("on", session_id="s")).output == "2 notes\n\n4 notes"


async def test_in_a_row_it_reads_what_the_user_said(store: Store) -> None:  # rules L8, A4
    model = ScriptedModel(["ok"])
    row = SequentialAgent("Row", agents=[chat("A", "from A"), GraphAgent("B", talking(model))])
    await Runner(row, store=store).run("go", session_id="s")
    assert seen(model.requests[0]) == ["user: go"]


async def test_as_a_tool_it_begins_anew_each_time(store: Store) -> None:  # rules L8, A6
    calls = [call("G", "a", request="one"), call("G", "b", request="two")]
    root = chat("Root", *calls, "end", tools=[noter("G")])
    result = await Runner(root, store=store).run("go", session_id="s")
    assert said(result.messages) == ["user: go", "tool: 1 notes", "tool: 1 notes", "assistant: end"]


async def test_a_failing_graph_fails_its_run_and_recovers(store: Store) -> None:  # rule L7
    graph = GraphAgent("G", talking(ScriptedModel([RuntimeError("broken")])))
    with pytest.raises(ModelError):
        await Runner(desk(transfer("G"), graph=graph), store=store).run("hi", session_id="s")
    mended = Runner(desk(graph=GraphAgent("G", talking(ScriptedModel(["well"])))), store=store)
    assert (await mended.recover("s")).output == "well"


async def test_as_a_tool_its_failure_is_told_to_the_model(store: Store) -> None:  # rules L7, T1
    inner = GraphAgent("G", talking(ScriptedModel([RuntimeError("broken")])))
    root = chat("Root", call("G", request="x"), "sorry", tools=[inner])
    result = await Runner(root, store=store).run("hi", session_id="s")
    assert result.output == "sorry"
    assert "broken" in said(result.messages)[1]


# Pauses


PLACES: dict[str, tuple[Any, list[str], str]] = {
    "root": (lambda: asker("G"), [], "agent:G"),
    "transfer": (lambda: desk(transfer("G"), graph=asker("G")), [], "agent:Root;agent:G"),
    "tool": (
        lambda: chat("Root", call("G", request="go"), tools=[asker("G")]),
        ["end"],
        "agent:Root;tool:G:c1;agent:G",
    ),
}


@pytest.mark.parametrize("place", PLACES)
async def test_a_graph_pauses_and_goes_on_wherever_it_stands(store: Store, place: str) -> None:  # rules I6, R9
    build, rest, address = PLACES[place]
    paused = await Runner(build(), store=store).run("go", session_id="s")
    assert ids(paused) == [f"{address};node:confirm"]
    again: Any = build()
    if rest:
        again = chat("Root", *rest, tools=[asker("G")])
    result = await Runner(again, store=store).resume("s", {"sure": "yes"})
    assert result.output == (rest[0] if rest else "answered yes")
    assert "answered yes" in " ".join(said(result.messages))


def nested(depth: int) -> GraphAgent:
    """Graph agents in the nodes of graph agents; the innermost asks."""
    agent = asker("G0")
    for number in range(1, depth):
        graph = StateGraph(Notes, name=f"inner{number}").add_agent_node("sub", agent).add_edge(START, "sub").compile()
        agent = GraphAgent(f"G{number}", graph)
    return agent


async def test_questions_cross_nested_graph_agents(store: Store) -> None:  # rules I6, R9
    paused = await Runner(nested(4), store=store).run("go", session_id="s")
    place = "agent:G3;node:sub;agent:G2;node:sub;agent:G1;node:sub;agent:G0;node:confirm"
    assert ids(paused) == [place]
    runner = Runner(nested(4), store=store)
    assert [asked.id for asked in await runner.pending("s")] == [place]
    result = await runner.resume("s", {place: "yes"}, checkpoint_id=paused.checkpoint_id)
    assert result.output == "answered yes"
    assert said(result.messages) == ["user: go", "assistant: answered yes"]


async def test_a_tool_in_a_graph_agent_pauses(store: Store) -> None:  # rules L6, R9
    paused = await Runner(GraphAgent("G", working(call("ask", question="?"))), store=store).run("go", session_id="s")
    assert ids(paused) == ["agent:G;node:tools;tool:ask:c1"]
    result = await Runner(GraphAgent("G", working("end")), store=store).resume("s", dict.fromkeys(ids(paused), "yes"))
    assert said(result.messages) == ["user: go", "tool: yes", "assistant: end"]


async def test_an_abandoned_turn_leaves_a_graph_that_goes_on(store: Store) -> None:  # rule A12
    runner = Runner(asker("G"), store=store)
    await runner.run("one", session_id="s")
    paused = await runner.run("two", session_id="s", on_pending="abandon")
    assert [asked.info for asked in paused.interrupts] == ["two?"]
    assert (await runner.resume("s", {"sure": "yes"})).state["notes"] == ["one", "two", "yes"]


# Time travel


async def test_history_states_and_edits_reach_the_graph(store: Store) -> None:  # rules C4, R6
    runner = Runner(asker("G"), store=store)
    paused = await runner.run("go", session_id="s")
    assert (await runner.state("s"))["notes"] == ["go"]
    assert (await runner.checkpoint("s")).next == ("confirm",)
    await runner.edit("s", {"notes": ["edited"]})
    await runner.recover("s")
    result = await runner.resume("s", {"sure": "yes"})
    assert result.state["notes"] == ["go", "edited", "yes"]
    assert paused.checkpoint_id is not None
    back = await runner.run(None, session_id="s", checkpoint_id=paused.checkpoint_id)
    assert ids(back) == ["agent:G;node:confirm"]
    assert (await runner.resume("s", {"sure": "no"})).state["notes"] == ["go", "no"]


async def test_a_node_of_the_graph_may_be_run_as_if_it_had_ended(store: Store) -> None:  # rule R6
    runner = Runner(asker("G"), store=store)
    await runner.run("go", session_id="s")
    await runner.resume("s", {"sure": "yes"})
    point = await runner.edit("s", {"notes": ["again"]}, as_node="note")
    paused = await runner.run(None, session_id="s", checkpoint_id=point.id)
    assert ids(paused) == ["agent:G;node:confirm#2"]
    result = await runner.resume("s", {"sure": "no"})
    assert (result.output, result.state["notes"]) == ("answered no", ["go", "yes", "again", "no"])


async def test_a_nested_graph_can_be_looked_at_and_edited(store: Store) -> None:  # rules C4, R6
    runner = Runner(nested(2), store=store)
    await runner.run("go", session_id="s")
    place = "agent:G1;node:sub;agent:G0"
    assert (await runner.state("s", at=place))["notes"] == ["go"]
    await runner.edit("s", {"notes": ["edited"]}, at=place)
    assert (await Runner(nested(2), store=store).state("s", at=place))["notes"] == ["go", "edited"]
    await runner.recover("s")
    assert (await runner.resume("s", {"sure": "yes"})).output == "answered yes"


async def test_a_fork_is_a_session_of_its_own(store: Store) -> None:  # rule C4
    runner = Runner(asker("G"), store=store)
    await runner.run("go", session_id="s")
    fork = await runner.fork("s")
    assert (await runner.resume(fork, {"sure": "yes"})).state["notes"] == ["go", "yes"]
    assert (await runner.resume("s", {"sure": "no"})).state["notes"] == ["go", "no"]


# Middleware


class Noted(Middleware):
    """Notes what it surrounds."""

    def __init__(self, label: str, log: list[str]) -> None:
        self.label = label
        self.log = log

    @property
    def name(self) -> str:
        return self.label

    async def wrap_model(self, call: Any, request: Any) -> Message:
        self.log.append(f"{self.label} model")
        return await call(request)

    async def wrap_tool(self, call: Any, request: Any) -> Any:
        self.log.append(f"{self.label} {request.tool}")
        return await call(request)


async def test_middleware_reaches_the_nodes_of_graphs_inside(store: Store) -> None:  # rule A9
    log: list[str] = []

    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    inner = working(call("look"), "end", tools=[look], middleware=[Noted("node", log)])
    middle = StateGraph(Notes, name="middle").add_subgraph("sub", inner).add_edge(START, "sub").compile()
    agent = GraphAgent("G", middle, middleware=[Noted("agent", log)])
    outer = StateGraph(Notes, name="outer").add_agent_node("help", agent).add_edge(START, "help").compile()
    top = GraphAgent("Top", outer, middleware=[Noted("top", log)])
    result = await Runner(top, store=store, middleware=[Noted("runner", log)]).run("go", session_id="s")
    assert result.output == "end"
    around = ["runner", "top", "agent"]
    models = [f"{each} model" for each in around]
    assert log == [*models, *(f"{each} look" for each in around), "node look", *models]


# Mistakes


class NoInput(TypedDict):
    text: str


def test_what_cannot_be_a_graph_agent_is_refused() -> None:
    graph = talking(FunctionModel(lambda _: "x"))
    with pytest.raises(UsageError, match=r"is not a compiled graph. Did you call .compile\(\)"):
        GraphAgent("G", StateGraph(Notes))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no field 'user_input'"):
        GraphAgent("G", StateGraph(NoInput).add_node("a", dict[str, Any]).add_edge(START, "a").compile())
    with pytest.raises(UsageError, match="initial_state has 'nots', which is not a field"):
        GraphAgent("G", graph, initial_state={"nots": []})
    with pytest.raises(UsageError, match="Give a mapping"):
        GraphAgent("G", graph, initial_state=["notes"])  # type: ignore[arg-type]
