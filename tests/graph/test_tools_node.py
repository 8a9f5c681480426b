"""Tools nodes: which calls they answer, how the calls run, and what pauses and changes do to them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

import pytest

from adjourn import (
    ChatModelAgent,
    Edit,
    Message,
    Middleware,
    Reject,
    Respond,
    RunError,
    Runner,
    ToolError,
    UsageError,
    current,
    interrupt,
    tool,
)
from adjourn.agents import GraphAgent
from adjourn.errors import GraphError, ProgramChanged
from adjourn.events import Delta, ToolCalled, ToolResult
from adjourn.graph import START, MessagesState, StateGraph, StateSchema, add_messages, append
from adjourn.middleware import ApprovalPolicy, CallLimits, FileTools, Setup, TodoList, ToolSearch
from adjourn.stores import Store
from adjourn.testing import ScriptedModel

from .shapes import events_of
from .talking import call, lines, looping, shown


@tool
async def look(at: str) -> str:
    """Look at something."""
    return f"saw {at}"


@tool
async def ask(question: str) -> str:
    """Ask a person."""
    return str(interrupt(question))


@tool(approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool
async def fail(why: str) -> str:
    """Fail."""
    raise ValueError(why)


def answering(tools: Any, *, schema: Any = MessagesState, store: Any = None, **node: Any) -> Any:
    """A graph of one tools node."""
    graph = StateGraph(schema, name="g").add_tools_node("tools", tools, **node)
    return graph.add_edge(START, "tools").compile(store=store)


def wanting(*calls: Any, text: str = "") -> Message:
    return Message.assistant(text, tool_calls=list(calls))


def ids(result: Any) -> list[str]:
    return [asked.id for asked in result.interrupts]


# Which calls it answers


async def test_the_newest_message_with_calls_is_answered_in_call_order() -> None:  # rule L6
    gate = asyncio.Event()

    @tool
    async def slow() -> str:
        """Wait for the other."""
        await gate.wait()
        return "slow"

    @tool
    async def quick() -> str:
        """Let the other go on."""
        gate.set()
        return "quick"

    messages = [
        wanting(call("quick", "old")),
        Message.tool("done", tool_call_id="old", name="quick"),
        wanting(call("slow", "a"), call("quick", "b")),
    ]
    state = await answering([slow, quick]).invoke({"messages": messages})
    answers = state["messages"][3:]
    assert [(each.role, each.tool_call_id, each.name, each.text) for each in answers] == [
        ("tool", "a", "slow", "slow"),
        ("tool", "b", "quick", "quick"),
    ]
    assert state["last_tool_response"] == "quick"
    assert state["node_responses"] == {"tools": ["slow", "quick"]}


async def test_an_unknown_tool_fails_the_node_if_errors_do(store: Store) -> None:  # rules L6, T1
    graph = answering([look], store=store, on_tool_error="raise")
    with pytest.raises(ToolError, match=r"There is no tool 'nothing'\. There are: look\."):
        await graph.run({"messages": [wanting(call("nothing", "a", at="A"))]}, session_id="s")

    @tool
    async def nothing(at: str) -> str:
        """Do nothing."""
        return f"nothing at {at}"

    mended = answering([nothing], store=store, on_tool_error="raise")
    assert (await mended.recover("s")).state["last_tool_response"] == "nothing at A"


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [Message.user("hi")],
        [Message.assistant("no calls")],
        [wanting(call("look", at="x")), Message.user("never mind")],
        [wanting(call("look", at="x")), Message.tool("seen", tool_call_id="c1", name="look")],
        [
            wanting(call("look", "open", at="x")),
            wanting(call("look", at="x")),
            Message.tool("seen", tool_call_id="c1", name="look"),
        ],
    ],
)
async def test_nothing_to_answer_is_an_error(store: Store, messages: list[Message]) -> None:  # rule L6
    graph = answering([look], store=store)
    with pytest.raises(RunError, match="Tools node 'tools' has nothing to answer"):
        await graph.run({"messages": messages}, session_id="s")
    assert len((await graph.state("s"))["messages"]) == len(messages)


async def test_what_comes_after_the_calls_does_not_hide_them() -> None:  # rule L6
    messages = [Message.user("go"), wanting(call("look", at="x")), Message.assistant("a moment")]
    state = await answering([look]).invoke({"messages": messages})
    assert lines(state["messages"])[-1] == "tool: saw x"


async def test_only_calls_without_an_answer_run() -> None:  # rule L6
    messages = [
        wanting(call("look", "a", at="A"), call("look", "b", at="B")),
        Message.tool("known", tool_call_id="a", name="look"),
    ]
    state = await answering([look]).invoke({"messages": messages})
    assert lines(state["messages"])[1:] == ["tool: known", "tool: saw B"]


async def test_an_id_of_an_earlier_turn_may_come_again() -> None:  # rules L6, T2
    messages = [
        wanting(call("look", at="A")),
        Message.tool("old", tool_call_id="c1", name="look"),
        Message.user("again"),
        wanting(call("look", at="B")),
    ]
    state = await answering([look]).invoke({"messages": messages})
    assert (state["messages"][-1].tool_call_id, state["messages"][-1].text) == ("c1", "saw B")


async def test_calls_with_one_id_are_told_apart_in_the_message_too(store: Store) -> None:  # rule T2
    messages = [wanting(call("look", at="A"), call("look", at="B"), call("look", "", at="C"))]
    state = (await answering([look], store=store).run({"messages": messages}, session_id="s")).state
    wanted, *answers = state["messages"]
    assert [each.id for each in wanted.tool_calls] == ["c1", "c1~2", "call"]
    assert [each.tool_call_id for each in answers] == ["c1", "c1~2", "call"]
    assert [each.text for each in answers] == ["saw A", "saw B", "saw C"]


# With a model


async def test_a_model_and_its_tools_take_turns(store: Store) -> None:  # rule L6
    graph = looping([look], [call("look", "a", at="A"), call("look", "b", at="B")], "both seen", store=store)
    result = await graph.run("look around", session_id="s")
    assert lines(result.messages)[1:] == ["assistant: ", "tool: saw A", "tool: saw B", "assistant: both seen"]
    assert (result.output, result.state["node_responses"]) == (
        "both seen",
        {"llm": "both seen", "tools": ["saw A", "saw B"]},
    )


async def test_without_calls_the_fallback_is_taken() -> None:
    def rest(state: Any) -> dict[str, Any]:
        return {"metadata": {"rested": True}}

    graph = (
        StateGraph(MessagesState)
        .add_llm_node("llm", ScriptedModel(["nothing to do"]), tools=[look])
        .add_tools_node("tools", [look])
        .add_node("rest", rest)
        .set_entry_point("llm")
        .add_tools_conditional_edges("llm", "tools", "rest")
        .compile(strict=True)
    )
    assert (await graph.invoke({"user_input": "hi"}))["metadata"] == {"rested": True}


def test_edges_to_nodes_that_are_not_there_are_refused() -> None:
    graph = StateGraph(MessagesState).add_llm_node("llm", ScriptedModel([])).set_entry_point("llm")
    with pytest.raises(GraphError, match="tolls"):
        graph.add_tools_conditional_edges("llm", "tolls", "__end__").compile()


# Errors


async def test_errors_are_told_to_the_model() -> None:  # rules T1, L6
    calls = [
        call("look", "a", to="?"),
        call("nothing", "b"),
        call("fail", "c", why="broken"),
        call("look", "d", at="x"),
    ]
    state = await answering([look, fail]).invoke({"messages": [wanting(*calls)]})
    told = state["messages"][1:]
    assert [message.finish_reason for message in told] == ["error", "error", "error", None]
    assert "at" in told[0].text
    assert told[1].text == "There is no tool 'nothing'. There are: look, fail."
    assert told[2].text == "Error: ValueError: broken"
    assert told[3].text == "saw x"


async def test_errors_may_fail_the_node_instead(store: Store) -> None:  # rule T1
    ran: list[str] = []

    @tool
    async def effect() -> str:
        """Have an effect."""
        ran.append("effect")
        return "done"

    graph = answering([effect, fail], on_tool_error="raise", store=store)
    messages = [wanting(call("effect", "a"), call("fail", "b", why="broken"))]
    with pytest.raises(ValueError, match="broken"):
        await graph.run({"messages": messages}, session_id="s")
    assert len((await graph.state("s"))["messages"]) == 1

    @tool(name="fail")
    async def mended(why: str) -> str:
        """Fail no more."""
        return "mended"

    result = await answering([effect, mended], on_tool_error="raise", store=store).recover("s")
    assert lines(result.messages)[1:] == ["tool: done", "tool: mended"]
    assert ran == ["effect"]


async def test_a_tool_cannot_end_a_graph() -> None:  # rule T8
    @tool
    async def leave() -> str:
        """Leave."""
        current().exit("gone")
        return "left"

    state = await answering([leave]).invoke({"messages": [wanting(call("leave"))]})
    assert state["messages"][-1].finish_reason == "error"


# Pauses


async def test_results_are_remembered_over_a_pause(store: Store) -> None:  # rules L6, R7, R9
    ran: list[str] = []

    def graph() -> Any:
        @tool
        async def effect(name: str) -> str:
            """Have an effect."""
            ran.append(name)
            return f"did {name}"

        calls = [call("effect", "a", name="A"), call("ask", "b", question="?"), call("effect", "c", name="C")]
        return looping([effect, ask], calls, store=store)

    paused = await graph().run("go", session_id="s")
    assert ids(paused) == ["runnable:g;node:tools;tool:ask:b"]
    assert ran == ["A", "C"]
    assert lines(paused.messages) == ["user: go", "assistant: "]
    rest = looping([look, ask, tool(_effect, name="effect")], "end", store=store)
    result = await rest.resume("s", {ids(paused)[0]: "yes"})
    assert lines(result.messages)[2:] == ["tool: did A", "tool: yes", "tool: did C", "assistant: end"]
    assert ran == ["A", "C"]


async def _effect(name: str) -> str:
    """Not to be run."""
    raise AssertionError


async def test_all_who_must_be_asked_are_asked_at_once(store: Store) -> None:  # rules T3, R7
    calls = [call("ask", "a", question="1?"), call("ask", "b", question="2?")]
    paused = await looping([ask], calls, store=store).run("go", session_id="s")
    assert ids(paused) == [f"runnable:g;node:tools;tool:ask:{name}" for name in "ab"]
    still = await looping([ask], store=store).resume("s", {ids(paused)[1]: "two"})
    assert ids(still) == ids(paused)[:1]
    result = await looping([ask], "end", store=store).resume("s", {ids(paused)[0]: "one"})
    assert lines(result.messages)[2:] == ["tool: one", "tool: two", "assistant: end"]


async def test_in_sequence_the_first_pause_stops_the_rest(store: Store) -> None:  # rule T3
    calls = [call("look", "a", at="A"), call("ask", "b", question="1?"), call("ask", "c", question="2?")]
    paused = await looping([look, ask], calls, store=store, sequential=True).run("go", session_id="s")
    assert ids(paused) == ["runnable:g;node:tools;tool:ask:b"]
    again = await looping([look, ask], store=store, sequential=True).resume("s", {ids(paused)[0]: "one"})
    assert ids(again) == ["runnable:g;node:tools;tool:ask:c"]
    result = await looping([look, ask], "end", store=store, sequential=True).resume("s", {ids(again)[0]: "two"})
    assert lines(result.messages)[2:] == ["tool: saw A", "tool: one", "tool: two", "assistant: end"]


@pytest.mark.parametrize(
    ("answer", "told", "ran_with"),
    [
        (True, "paid 5", 5),
        (False, "A person refused this call.", 5),
        (Reject("too much"), "A person refused this call: too much", 5),
        (Respond("already paid"), "already paid", 5),
        (Edit({"amount": 3}), "paid 3", 3),
    ],
)
async def test_a_person_decides_about_a_call(  # rule T4
    store: Store, answer: Any, told: str, ran_with: int
) -> None:
    paused = await looping([pay], call("pay", amount=5), store=store).run("go", session_id="s")
    (asked,) = paused.interrupts
    assert (asked.id, asked.reason) == ("runnable:g;node:tools;tool:pay:c1", "need_approval")
    assert asked.prompt == 'May tools call pay with {"amount":5}?'
    result = await looping([pay], "end", store=store).resume("s", {asked.id: answer})
    assert result.messages[2].text == told
    assert result.messages[1].tool_calls[0].arguments == {"amount": ran_with}
    assert len(result.messages) == 4


async def test_a_tool_that_is_gone_since_the_pause_is_told(store: Store) -> None:  # rules R17, T1
    paused = await looping([ask], call("ask", question="?"), store=store).run("go", session_id="s")
    with pytest.raises(ProgramChanged, match="there is no tool 'ask' any more"):
        await looping([look], store=store).resume("s", {ids(paused)[0]: "yes"})
    result = await looping([ask], "end", store=store).resume("s", {ids(paused)[0]: "yes"})
    assert lines(result.messages)[2:] == ["tool: yes", "assistant: end"]


async def test_a_failure_beside_a_question_waits_for_the_answer(store: Store) -> None:  # rules R7, T1
    calls = [call("ask", "a", question="?"), call("fail", "b", why="broken")]
    graph = looping([ask, fail], calls, store=store, on_tool_error="raise")
    paused = await graph.run("go", session_id="s")
    with pytest.raises(ValueError, match="broken"):
        await graph.resume("s", {ids(paused)[0]: "yes"})

    @tool(name="fail")
    async def mended(why: str) -> str:
        """Fail no more."""
        return "mended"

    result = await looping([ask, mended], "end", store=store, on_tool_error="raise").recover("s")
    assert lines(result.messages)[2:] == ["tool: yes", "tool: mended", "assistant: end"]


async def test_a_decision_is_remembered_for_the_session(store: Store) -> None:  # rule T5
    graph = looping([pay], call("pay", "a", amount=5), call("pay", "b", amount=6), "end", store=store)
    paused = await graph.run("go", session_id="s")
    result = await graph.resume("s", {ids(paused)[0]: {"decision": "approve", "remember": "session"}})
    assert lines(result.messages)[2::2] == ["tool: paid 5", "tool: paid 6"]


# What is told, and what surrounds it


async def test_calls_and_results_are_told_at_their_places(store: Store) -> None:
    @tool
    async def spell(word: str) -> Any:
        """Spell a word."""
        for letter in word:
            yield letter

    events = await events_of(looping([spell], call("spell", word="abc"), "end", store=store).run("go", session_id="s"))
    place = "runnable:g;node:tools;tool:spell:c1"
    (called,) = [event for event in events if isinstance(event, ToolCalled)]
    (result,) = [event for event in events if isinstance(event, ToolResult)]
    assert (called.agent, called.address) == ("tools", place)
    assert (result.agent, result.address, result.result, result.call_id) == ("tools", place, "abc", "c1")
    assert [event.text for event in events if isinstance(event, Delta) and event.call_id == "c1"] == ["a", "b", "c"]


async def test_a_result_that_is_too_long_is_cut_and_kept_whole(store: Store) -> None:  # rule T6
    @tool(max_result=10)
    async def long() -> str:
        """Say much."""
        return "x" * 50

    graph = looping([long], call("long"), "end", store=store)
    result = await graph.run("go", session_id="s")
    assert result.messages[2].text.startswith("x" * 10 + "\n[The result has 50 characters")
    told = [event async for event in graph.attach("s") if isinstance(event, ToolResult)]
    assert told[0].full == "x" * 50


class Doubt(Middleware):
    """Asks before a tool runs, and again after it."""

    async def wrap_tool(self, call: Any, request: Any) -> Any:
        before = interrupt("before?", key="before")
        found = await call(request)
        return f"{before} {found} {interrupt('after?', key='after')}"


@pytest.mark.parametrize("where", ["node", "runner"])
async def test_middleware_around_a_tool_may_ask(store: Store, where: str) -> None:  # rule A9
    ran: list[str] = []

    @tool
    async def effect() -> str:
        """Have an effect."""
        ran.append("effect")
        return "done"

    def runner(*script: Any) -> Runner:
        node = {"middleware": [Doubt()]} if where == "node" else {}
        return Runner(looping([effect], *script, **node), store=store, middleware=[] if where == "node" else [Doubt()])

    await runner(call("effect")).run("go", session_id="s")
    paused = await runner().resume("s", {"before": "A"})
    assert [asked.key for asked in paused.interrupts] == ["after"]
    result = await runner("end").resume("s", {"after": "B"})
    assert lines(result.messages)[2:] == ["tool: A done B", "assistant: end"]
    assert ran == ["effect"]


# Schemas and arguments


class Appended(TypedDict):
    messages: Annotated[list[Message], append]


@pytest.mark.parametrize("schema", [TypedDict("Empty", {}), Appended, StateSchema(extra="allow")])
def test_a_state_without_messages_is_refused(schema: Any) -> None:
    with pytest.raises(GraphError, match="tools node 'tools' needs the field 'messages'"):
        answering([look], schema=schema)


async def test_a_schema_needs_only_the_messages() -> None:  # rule L6
    schema = StateSchema().add_field("messages", list[Message], reducer=add_messages)
    state = await answering([look], schema=schema).invoke({"messages": [wanting(call("look", at="x"))]})
    assert lines(state["messages"]) == ["assistant: ", "tool: saw x"]


async def test_plain_functions_are_tools_too() -> None:
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    model = ScriptedModel([call("add", a=1, b=2), "three"])
    graph = StateGraph(MessagesState).add_llm_node("llm", model, tools=[add]).add_tools_node("tools", [add])
    built = graph.set_entry_point("llm").add_edge("llm", "tools").compile()
    assert lines((await built.invoke({"user_input": "1 + 2"}))["messages"])[-1] == "tool: 3"
    assert [spec.name for spec in model.requests[0].tools] == ["add"]
    assert shown(model.requests[0]) == ["user: 1 + 2"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"tools": 5}, "Give a list of tools"),
        ({"tools": [5]}, "is not a tool"),
        ({"tools": [look, look]}, "two tools called 'look'"),
        ({"tools": [look], "on_tool_error": "ignore"}, "Use one of: tell, tell_type, raise"),
    ],
)
def test_wrong_arguments_are_refused_where_they_are_given(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        answering(**arguments)


async def test_a_tool_error_is_told_in_its_own_words() -> None:  # rule T1
    @tool
    async def refuse() -> str:
        """Refuse."""
        raise ToolError("not today")

    state = await answering([refuse]).invoke({"messages": [wanting(call("refuse"))]})
    assert state["last_tool_response"] == "Error: not today"


@dataclass
class AsDataclass:
    messages: Annotated[list[Message], add_messages] = field(default_factory=list[Message])
    user_input: str = ""


async def test_a_class_schema_serves_as_well(store: Store) -> None:  # rule L6
    result = await looping([look], call("look", at="x"), "end", schema=AsDataclass, store=store).run("go")
    assert lines(result.state.messages) == ["user: go", "assistant: ", "tool: saw x", "assistant: end"]


@pytest.mark.parametrize("limit", [1, 2])
async def test_agents_in_tools_share_the_places_that_there_are(store: Store, limit: int) -> None:  # rules T3, A6
    def runner(*script: Any) -> Runner:
        agents = [ChatModelAgent(f"A{n}", model=ScriptedModel(script), tools=[ask]) for n in range(3)]
        calls = [call(f"A{n}", f"c{n}", request="go") for n in range(3)]
        graph = looping([agent.as_tool() for agent in agents], *([calls] if len(script) == 1 else ["end"]))
        return Runner(graph, store=store, max_concurrency=limit)

    paused = await runner(call("ask", question="?")).run("go", session_id="s")
    assert ids(paused) == [f"runnable:g;node:tools;tool:A{n}:c{n};agent:A{n};tool:ask:c1" for n in range(3)]
    result = await runner("done", "").resume("s", dict.fromkeys(ids(paused), "y"))
    assert lines(result.messages)[2:] == ["tool: done"] * 3 + ["assistant: end"]
    assert result.usage.calls == 8


class Preparing(Middleware):
    """Does its work before an agent begins, and nothing else."""

    def before_agent(self, setup: Setup) -> Setup:
        return setup


@pytest.mark.parametrize("made", [TodoList(), FileTools(), ToolSearch([look]), Preparing()])
def test_middleware_that_prepares_agents_is_refused_where_it_would_do_nothing(made: Middleware) -> None:
    graph, told = StateGraph(MessagesState), rf"Node 'n': the middleware {made.name} prepares .* add_agent_node"
    with pytest.raises(UsageError, match=told):
        graph.add_llm_node("n", ScriptedModel(["hi"]), middleware=[made])
    with pytest.raises(UsageError, match=told):
        graph.add_tools_node("n", [look], middleware=[made])


@pytest.mark.parametrize("made", [CallLimits, "limits", None, object()])
def test_what_is_not_middleware_is_refused_where_it_is_given(made: Any) -> None:
    graph, model = StateGraph(MessagesState), ScriptedModel(["hi"])
    with pytest.raises(UsageError, match=r"Node 'n': middleware has .* Give"):
        graph.add_llm_node("n", model, middleware=[made])
    with pytest.raises(UsageError, match=r"Node 'n': middleware has .* Give"):
        graph.add_tools_node("n", [look], middleware=[made])
    with pytest.raises(UsageError, match=r"Agent 'A': middleware has .* Give"):
        ChatModelAgent("A", model=model, middleware=[made])
    compiled = graph.add_llm_node("n", model).set_entry_point("n").compile()
    with pytest.raises(UsageError, match=r"GraphAgent 'G': middleware has .* Give"):
        GraphAgent("G", compiled, middleware=[made])


def test_middleware_around_calls_that_prepares_agents_too_has_its_place() -> None:
    limits = CallLimits(tool_calls=1)
    StateGraph(MessagesState).add_tools_node("n", [look], middleware=[limits, ApprovalPolicy([])])
