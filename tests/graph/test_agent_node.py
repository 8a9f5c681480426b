"""Agent nodes: agents that work on the conversation in a graph's state; and graphs as nodes beside them."""

from __future__ import annotations

from typing import Any, TypedDict

import pytest

from adjourn import ChatModelAgent, GraphAgent, Message, Retry, SequentialAgent, interrupt, tool
from adjourn.errors import GraphError, ModelError
from adjourn.events import MessageEvent
from adjourn.graph import START, Command, MessagesState, StateGraph
from adjourn.stores import Store
from adjourn.testing import FunctionModel, ScriptedModel

from .shapes import events_of, giving
from .talking import asking, call, lines, shown

HISTORY = [Message.user("hello"), Message.assistant("hi")]


@tool
async def ask(question: str) -> str:
    """Ask a person."""
    return str(interrupt(question))


def helper(*script: Any, name: str = "Helper", **options: Any) -> ChatModelAgent:
    return ChatModelAgent(name, model=ScriptedModel(script), **options)


def requests(agent: ChatModelAgent) -> list[list[str]]:
    return [shown(request) for request in agent.models[0].requests]  # type: ignore[attr-defined]


def around(agent: Any, *, schema: Any = MessagesState, store: Any = None, **node: Any) -> Any:
    """A graph of one agent node, `help`."""
    graph = StateGraph(schema, name="g").add_agent_node("help", agent, **node)
    return graph.add_edge(START, "help").compile(store=store)


# What it sees, and what joins


async def test_an_agent_sees_the_conversation_and_joins_it() -> None:  # rule L7
    agent = helper(call("ask", question="?"), "done", tools=[tool(_said, name="ask")])
    state = await around(agent).invoke({"messages": HISTORY, "user_input": "go"})
    assert requests(agent)[0] == [*lines(HISTORY), "user: go"]
    assert lines(state["messages"]) == [
        *(*lines(HISTORY), "user: go", "assistant: ", "tool: said ?", "assistant: done"),
    ]
    assert (state["last_response"], state["node_responses"], state["user_input"]) == ("done", {"help": "done"}, "")
    known = [message.id for message in state["messages"]]
    assert len(set(known)) == len(known)
    assert None not in known


async def _said(question: str) -> str:
    """Say something."""
    return f"said {question}"


async def test_an_isolated_agent_sees_the_input_alone_and_only_its_text_joins() -> None:  # rule L7
    agent = helper(call("ask", question="?"), "done", tools=[tool(_said, name="ask")])
    state = await around(agent, isolated=True).invoke({"messages": HISTORY, "user_input": "go"})
    assert requests(agent)[0] == ["user: go"]
    assert lines(state["messages"]) == [*lines(HISTORY), "user: go", "assistant: done"]
    assert (state["last_response"], state["user_input"]) == ("done", "")


@pytest.mark.parametrize("tail", ["before", "go"])
async def test_a_user_message_at_the_end_is_not_doubled(tail: str) -> None:  # rules L3, L7
    agent = helper("done")
    state = await around(agent).invoke({"messages": [*HISTORY, Message.user(tail)], "user_input": "go"})
    assert requests(agent) == [[*lines(HISTORY), "user: go"]]
    assert lines(state["messages"]) == [*lines(HISTORY), "user: go", "assistant: done"]


async def test_without_user_input_an_agent_answers_the_history() -> None:  # rule L7
    agent = helper("done")
    state = await around(agent).invoke({"messages": [Message.user("asked")]})
    assert lines(state["messages"]) == ["user: asked", "assistant: done"]


async def test_a_mapped_input_is_what_the_agent_gets_and_nothing_is_emptied() -> None:  # rule L7
    agent = helper("done")

    def count(state: Any) -> str:
        return f"count {len(state['messages'])}"

    graph = around(agent, input=count)
    state = await graph.invoke({"messages": HISTORY, "user_input": "for others"})
    assert requests(agent) == [["user: count 2"]]
    assert lines(state["messages"]) == lines(HISTORY)
    assert (state["last_response"], state["user_input"]) == ("done", "for others")


async def test_a_mapped_output_is_the_nodes_update() -> None:  # rule L7
    class Scored(TypedDict):
        score: int
        said: list[str]

    def score(report: Any) -> dict[str, Any]:
        return {"score": int(report.output), "said": [message.text for message in report.messages]}

    graph = around(helper("7"), schema=Scored, input=giving("rate it"), output=score)
    assert await graph.invoke({"score": 0, "said": []}) == {"score": 7, "said": ["rate it", "7"]}


async def test_a_mapped_output_may_say_what_comes_next() -> None:  # rule L7
    graph = StateGraph(MessagesState).add_agent_node(
        "help", helper("yes"), output=lambda report: Command(update={"last_response": "!"}, goto=report.output)
    )
    graph.add_node("yes", giving({"metadata": {"went": "yes"}})).set_entry_point("help")
    state = await graph.compile().invoke({"user_input": "go?"})
    assert (state["last_response"], state["metadata"]) == ("!", {"went": "yes"})


async def test_a_typed_value_is_in_the_report() -> None:  # rule A3
    def counted(report: Any) -> dict[str, Any]:
        return {"metadata": {"n": report.value["n"]}}

    graph = around(helper('{"n": 3}', output_type=Count), output=counted)
    assert (await graph.invoke({"user_input": "count"}))["metadata"] == {"n": 3}


class Count(TypedDict):
    n: int


async def test_agents_side_by_side_leave_one_user_message() -> None:  # rules L3, L7
    graph = StateGraph(MessagesState)
    for name in "ab":
        graph.add_agent_node(name, helper(f"I am {name}", name=name)).add_edge(START, name)
    state = await graph.compile().invoke({"user_input": "who?"})
    assert lines(state["messages"]) == ["user: who?", "assistant: I am a", "assistant: I am b"]


async def test_agents_and_models_in_a_row_share_the_conversation() -> None:  # rules L4, L7
    model, agent = ScriptedModel(["checked"]), helper("written")
    graph = StateGraph(MessagesState).add_agent_node("write", agent).add_llm_node("check", model)
    state = await graph.add_sequence(START, "write", "check").compile().invoke({"user_input": "go"})
    assert shown(model.requests[0]) == ["user: go", "assistant: written"]
    assert lines(state["messages"]) == ["user: go", "assistant: written", "assistant: checked"]


async def test_an_agent_in_a_loop_begins_each_pass_with_the_conversation() -> None:  # rule L7
    def again(state: Any) -> str:
        return "help" if state["last_response"] == "one" else "__end__"

    agent = helper("one", "two")
    graph = StateGraph(MessagesState).add_agent_node("help", agent).set_entry_point("help")
    graph.add_conditional_edges("help", again)
    state = await graph.compile().invoke({"user_input": "go"})
    assert requests(agent) == [["user: go"], ["user: go", "assistant: one"]]
    assert lines(state["messages"]) == ["user: go", "assistant: one", "assistant: two"]


async def test_other_kinds_of_agents_are_nodes_too() -> None:  # rule L7
    agents = [helper("first", name="A"), helper("second", name="B")]
    state = await around(SequentialAgent("Row", agents=agents)).invoke({"user_input": "go"})
    assert lines(state["messages"]) == ["user: go", "assistant: first", "assistant: second"]
    assert state["last_response"] == "second"


async def test_a_graph_agent_as_a_node_says_its_answer_once() -> None:  # rules L7, L8
    model = ScriptedModel(["inner"])
    agent = GraphAgent("G", asking(model, name="inner"))
    state = await around(agent).invoke({"messages": HISTORY, "user_input": "go"})
    assert shown(model.requests[0]) == ["user: go"]
    assert lines(state["messages"]) == [*lines(HISTORY), "user: go", "assistant: inner"]


# Pauses and failures


async def test_a_paused_agent_goes_on_with_newly_built_graphs(store: Store) -> None:  # rules L7, R9
    def graph(*script: Any, isolated: bool = False) -> Any:
        return around(helper(*script, tools=[ask]), store=store, isolated=isolated)

    for session, isolated in (("shared", False), ("isolated", True)):
        given = {"messages": HISTORY, "user_input": "go"}
        paused = await graph(call("ask", question="?"), isolated=isolated).run(given, session_id=session)
        (asked,) = paused.interrupts
        assert asked.id == "runnable:g;node:help;agent:Helper;tool:ask:c1"
        assert paused.state["user_input"] == "go"
        result = await graph("done", isolated=isolated).resume(session, {asked.id: "yes"})
        inner = [] if isolated else ["assistant: ", "tool: yes"]
        assert lines(result.state["messages"]) == [*lines(HISTORY), "user: go", *inner, "assistant: done"]


async def test_messages_edited_during_the_pause_stay_edited(store: Store) -> None:  # rules L7, R6
    graph = around(helper(call("ask", question="?"), "done", tools=[ask]), store=store)
    paused = await graph.run({"messages": HISTORY, "user_input": "go"}, session_id="s")
    first = paused.state["messages"][0]
    await graph.edit("s", {"messages": [first.with_text("HELLO"), Message.system("noted")]})
    (asked,) = (await graph.recover("s")).interrupts
    result = await graph.resume("s", {asked: "yes"})
    assert lines(result.messages) == [
        *("user: HELLO", "assistant: hi", "system: noted", "user: go"),
        *("assistant: ", "tool: yes", "assistant: done"),
    ]


async def test_an_agents_error_fails_the_node_and_changes_nothing(store: Store) -> None:  # rule L7
    with pytest.raises(ModelError, match="broken"):
        await around(helper(RuntimeError("broken")), store=store).run("go", session_id="s")
    graph = around(helper("done"), store=store)
    state = await graph.state("s")
    assert (state["messages"], state["user_input"]) == ([], "go")
    assert lines((await graph.recover("s")).messages) == ["user: go", "assistant: done"]


async def test_an_agents_error_may_be_handled_by_its_own_retries() -> None:  # rule L7
    agent = helper(ModelError("busy", retryable=True), "done", retry=Retry(attempts=2, on=ModelError, backoff=0.0))
    assert (await around(agent).invoke({"user_input": "go"}))["last_response"] == "done"


async def test_the_events_of_an_agent_in_a_node_are_its_own(store: Store) -> None:  # rule A11
    events = await events_of(around(helper("done"), store=store).run("go", session_id="s"))
    (message,) = [event for event in events if isinstance(event, MessageEvent)]
    assert (message.agent, message.path) == ("Helper", ("Helper",))
    assert message.address == "runnable:g;node:help;agent:Helper"


# Graphs as nodes


async def test_a_subgraph_shares_messages_and_is_emptied_for(store: Store) -> None:  # rules L3, G14
    inner = asking(ScriptedModel(["inner"]), name="inner")
    graph = StateGraph(MessagesState, name="g").add_subgraph("sub", inner).set_entry_point("sub").compile(store=store)
    state = (await graph.run({"messages": HISTORY, "user_input": "go"}, session_id="s")).state
    assert lines(state["messages"]) == [*lines(HISTORY), "user: go", "assistant: inner"]
    assert (state["user_input"], state["node_responses"]) == ("", {"llm": "inner"})


async def test_a_mapped_subgraph_has_messages_of_its_own() -> None:  # rule G14
    model = ScriptedModel(["inner"])
    graph = StateGraph(MessagesState, name="g").add_subgraph(
        "sub",
        asking(model, name="inner"),
        input=lambda state: {"user_input": state["user_input"].upper()},
        output=lambda state: {"last_response": state["last_response"]},
    )
    state = await graph.set_entry_point("sub").compile().invoke({"messages": HISTORY, "user_input": "go"})
    assert shown(model.requests[0]) == ["user: GO"]
    assert lines(state["messages"]) == lines(HISTORY)
    assert (state["last_response"], state["user_input"]) == ("inner", "go")


# Schemas and arguments


class NoMessages(TypedDict):
    user_input: str
    last_response: str


async def test_an_isolated_agent_needs_no_messages() -> None:  # rule L7
    state = await around(helper("done"), schema=NoMessages, isolated=True).invoke({"user_input": "go"})
    assert state == {"user_input": "", "last_response": "done"}


def test_an_agent_that_joins_the_conversation_needs_messages() -> None:
    with pytest.raises(GraphError, match="agent node 'help' needs the field 'messages'"):
        around(helper(), schema=NoMessages)


def test_an_agent_without_any_input_is_refused() -> None:
    class Nothing(TypedDict):
        last_response: str

    with pytest.raises(GraphError, match="agent node 'help' needs the field 'user_input'"):
        around(helper(), schema=Nothing, isolated=True)


async def _mapping(state: Any) -> Any:
    return state


@pytest.mark.parametrize(
    ("agent", "options", "problem"),
    [
        ("Helper", {}, "the agent of node 'help' is not an agent: 'Helper'"),
        (None, {}, "the agent of node 'help' is not an agent"),
        (asking(FunctionModel(lambda _: "x")), {}, "add_subgraph"),
        (helper(), {"input": "x"}, "the input of agent node 'help' is not a function"),
        (helper(), {"output": _mapping}, "the output of agent node 'help' is async"),
    ],
)
def test_wrong_arguments_are_refused(agent: Any, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(GraphError, match=problem):
        around(agent, **options)
