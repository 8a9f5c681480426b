"""GraphAgent over any schema: messages into the state, the state into an answer, and nodes that hand back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import pytest

from adjourn import (
    GraphAgent,
    LoopAgent,
    Message,
    Runner,
    SequentialAgent,
    UsageError,
    current,
    interrupt,
    session_value,
    tool,
    workflow,
)
from adjourn.agents import AgentInput
from adjourn.errors import StateInvalid, ToolError, WriteConflict
from adjourn.events import BreakLoop, Exit, Transfer
from adjourn.graph import END, START, Command, MessagesState, StateGraph, StateSchema, add_messages, append
from adjourn.messages import ImagePart
from adjourn.stores import Store
from adjourn.testing import ScriptedModel

from .crew import call, chat, events_of, ids, model_of, said, seen, transfer

PHOTO = ImagePart(url="https://example.org/photo.png")


@dataclass
class Ticket:
    question: str = ""
    priority: int = 0
    answer: str = ""


def solve(state: Ticket) -> dict[str, Any]:
    return {"answer": f"{state.question} ({state.priority})"}


def graph_of(schema: Any, node: Callable[[Any], Any], **compiled: Any) -> Any:
    return StateGraph(schema, name="inner").add_node("node", node).add_edge(START, "node").compile(**compiled)


def ticket(*, input: Any = "question", output: Any = "answer") -> GraphAgent:
    return GraphAgent("Desk", graph_of(Ticket, solve), input=input, output=output)


def returning(value: Any) -> Callable[[Any], Any]:
    return lambda _: value


# Any schema


async def test_a_field_gets_the_message_and_a_field_has_the_answer(store: Store) -> None:  # rule L8
    result = await Runner(ticket(), store=store).run("Where?", session_id="s")
    assert result.output == "Where? (0)"
    assert said(result.messages) == ["user: Where?", "assistant: Where? (0)"]


async def test_functions_map_the_conversation_and_the_state(store: Store) -> None:  # rule L8
    def into(given: AgentInput) -> Mapping[str, Any]:
        return {"question": given.text.upper(), "priority": len(given.messages)}

    def out(state: Ticket) -> Message:
        return Message.assistant([f"{state.answer}!", PHOTO])

    agent = ticket(input=into, output=out)
    runner = Runner(SequentialAgent("Row", agents=[chat("First", "well"), agent]), store=store)
    result = await runner.run("where?", session_id="s")
    assert result.output == "WHERE? (2)!"
    assert result.messages[-1].parts[1] == PHOTO


async def test_the_input_function_sees_as_much_of_the_conversation_as_it_likes(store: Store) -> None:
    def last_three(given: AgentInput) -> Mapping[str, Any]:
        return {"question": " | ".join(message.text for message in given.messages[-3:])}

    runner = Runner(ticket(input=last_three), store=store)
    for text in ("one", "two", "three"):
        result = await runner.run(text, session_id="s")
    assert result.output == "two | one | one (0) | two (0) | three (0)"


@pytest.mark.parametrize("kind", [str, Any, Message, list[Message], Annotated[list[Message], add_messages]])
async def test_a_field_gets_the_message_in_its_type(kind: Any) -> None:
    found: list[Any] = []

    def look(state: Any) -> None:
        found.append(state["said"])

    base, *reducer = (kind.__origin__, add_messages) if hasattr(kind, "__metadata__") else (kind,)
    schema = StateSchema().add_field("said", base, reducer=reducer[0] if reducer else None)
    await Runner(GraphAgent("G", graph_of(schema, look), input="said")).run("hi")
    is_list = isinstance(found[0], list)
    value: Any = found[0][0] if is_list else found[0]
    assert is_list == (base == list[Message])
    assert isinstance(value, Message) == (kind not in (str, Any))
    assert getattr(value, "text", value) == "hi"


async def test_a_field_that_takes_no_message_is_named() -> None:
    with pytest.raises(StateInvalid, match="priority"):
        await Runner(ticket(input="priority")).run("hi")


@pytest.mark.parametrize(
    ("value", "output"),
    [
        ({"a": 1}, '{"a":1}'),
        ("", ""),
        (None, ""),
        (Message.assistant("hey"), "hey"),
        (7, "7"),
    ],
)
async def test_an_answer_that_is_not_text_becomes_json(value: Any, output: str) -> None:
    schema = StateSchema().add_field("user_input", str).add_field("answer", Any)
    agent = GraphAgent("G", graph_of(schema, returning({"answer": value})), output="answer")
    assert (await Runner(agent).run("hi")).output == output


async def test_the_answer_may_be_the_last_message() -> None:
    agent = GraphAgent(
        "G", graph_of(MessagesState, returning({"messages": [Message.assistant("hey")]})), output="messages"
    )
    assert (await Runner(agent).run("hi")).output == "hey"


# Images


async def test_images_reach_the_model(store: Store) -> None:  # rules L3, L8
    model = ScriptedModel(["a cat", "a dog"])
    graph = StateGraph(MessagesState, name="inner").add_llm_node("llm", model).add_edge(START, "llm").compile()
    runner = Runner(GraphAgent("G", graph), store=store)
    result = await runner.run(Message.user(["What is it?", PHOTO]), session_id="s")
    assert [message.parts for message in model.requests[0].messages] == [Message.user(["What is it?", PHOTO]).parts]
    assert said(result.messages) == ["user: What is it?", "assistant: a cat"]
    assert PHOTO in result.messages[0].parts
    await runner.run([Message.user(["And", PHOTO]), "this?"], session_id="s")
    assert model.requests[1].messages[-1].parts == Message.user(["And\nthis?", PHOTO]).parts


async def test_images_reach_a_graph_that_is_handed_over_to(store: Store) -> None:  # rules L8, A5
    model = ScriptedModel(["a cat"])
    graph = StateGraph(MessagesState, name="inner").add_llm_node("llm", model).add_edge(START, "llm").compile()
    root = chat("Root", transfer("G"), sub_agents=[GraphAgent("G", graph)])
    await Runner(root, store=store).run(Message.user(["What is it?", PHOTO]), session_id="s")
    assert PHOTO in model.requests[0].messages[-1].parts


async def test_an_image_without_a_place_is_refused(store: Store) -> None:  # rule L8
    runner = Runner(ticket(), store=store)
    with pytest.raises(UsageError, match=r"a message with ImagePart, .* input=lambda given"):
        await runner.run(Message.user(["What is it?", PHOTO]), session_id="s")
    assert await runner.sessions() == []


# State given with a run


class Notes(TypedDict):
    user_input: str
    notes: Annotated[list[str], append]
    last_response: str


def noting(state: Notes) -> dict[str, Any]:
    return {"notes": [state["user_input"]], "last_response": ",".join(state["notes"])}


async def test_state_is_given_beside_the_message(store: Store) -> None:  # rules L8, S3
    runner = Runner(GraphAgent("G", graph_of(Notes, noting), initial_state={"notes": ["first"]}), store=store)
    assert (await runner.run("hi", state={"notes": ["given"]}, session_id="s")).output == "first,given"
    result = await runner.run("ho", state={"notes": ["more"]}, session_id="s")
    assert result.output == "first,given,hi,more"
    with pytest.raises(StateInvalid, match="nots"):
        await runner.run("hi", state={"nots": []}, session_id="s")
    with pytest.raises(UsageError, match="give a mapping of fields"):
        await runner.run("hi", state=["notes"])  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="checkpoint"):
        await runner.run(None, state={"notes": []}, session_id="s", checkpoint_id=result.checkpoint_id)


async def test_a_graph_takes_state_beside_its_input() -> None:  # rule S3
    assert (await graph_of(Notes, noting).run("hi", state={"notes": ["given"]})).output == "given"


async def test_what_has_no_state_refuses_it() -> None:
    @workflow
    async def job(text: str) -> str:
        return text

    with pytest.raises(UsageError, match="without a state: pass session values"):
        await Runner(chat("A", "x")).run("hi", state={"a": 1})
    with pytest.raises(UsageError, match="is a workflow: it has no state"):
        await Runner(job).run("hi", state={"a": 1})


# Session values


def remembering(state: Notes) -> dict[str, Any]:
    values = current().values
    values["count"] = values.get("count", 0) + 1
    return {"last_response": f"{values['count']}"}


async def test_session_values_of_nodes_are_the_sessions(store: Store) -> None:  # rule R15
    def again(state: Notes) -> dict[str, Any]:
        return {"last_response": f"{session_value('count', 'nothing')} of {interrupt('?', key='k')}"}

    first, second = GraphAgent("A", graph_of(Notes, remembering)), GraphAgent("B", graph_of(Notes, again))
    row = SequentialAgent("Row", agents=[first, second])
    await Runner(row, store=store).run("go", session_id="s")
    result = await Runner(row, store=store).resume("s", {"k": "x"})
    assert result.output == "1 of x"
    assert result.state["values"] == {"count": 1}


async def test_values_given_with_a_run_are_newer_than_what_nodes_wrote(store: Store) -> None:  # rules R9, R15
    runner = Runner(GraphAgent("A", graph_of(Notes, remembering)), store=store)
    await runner.run("go", session_id="s")
    assert (await runner.run("go", session_id="s")).output == "2"
    assert (await runner.run("go", values={"count": 9}, session_id="s")).output == "10"


# What nodes can request


def back(state: Notes) -> Any:
    current().transfer_to("Root")
    return {"last_response": "not mine", "notes": ["tried"]}


@pytest.mark.parametrize("how", ["node", "sync", "command", "tool"])
async def test_a_node_hands_back(store: Store, how: str) -> None:  # rules A5, T8
    async def node(state: Notes) -> Any:
        return back(state)

    def commanded(state: Notes) -> Any:
        return Command(update=back(state), goto=END)

    @tool
    def give_back() -> str:
        """Give the conversation back."""
        current().transfer_to("Root")
        return "given back"

    graph = graph_of(Notes, {"node": node, "sync": back, "command": commanded, "tool": back}[how])
    if how == "tool":
        build = StateGraph(MessagesState, name="inner").add_llm_node("llm", ScriptedModel([call("give_back")]))
        graph = build.add_tools_node("tools", [give_back]).add_sequence(START, "llm", "tools").compile()
    root = chat("Root", transfer("G"), "I did it", sub_agents=[GraphAgent("G", graph)])
    runner = Runner(root, store=store)
    events = await events_of(runner.run("hi", session_id="s"))
    handed = [(event.agent, event.target, event.path) for event in events if isinstance(event, Transfer)]
    assert handed == [("Root", "G", ("Root",)), ("G", "Root", ("Root", "G"))]
    assert said(await runner.messages("s"))[-1] == "assistant: I did it"
    assert (await runner.state("s"))["active"] == []


async def test_two_nodes_cannot_end_the_agent_in_different_ways(store: Store) -> None:  # rules T8, S4
    ways = ["transfer", "exit"]

    def give(state: Notes) -> None:
        current().transfer_to("Root")

    def leave(state: Notes) -> None:
        if ways[-1] == "exit":
            current().exit("bye")
        else:
            current().transfer_to("Root")

    build = StateGraph(Notes, name="inner").add_node("give", give).add_node("leave", leave)
    graph = build.add_edge(START, "give").add_edge(START, "leave").compile()
    root = chat("Root", transfer("G"), "I did it", sub_agents=[GraphAgent("G", graph)])
    runner = Runner(root, store=store)
    with pytest.raises(WriteConflict, match="One requests transfer and the other exit"):
        await runner.run("hi", session_id="s")
    ways.pop()
    assert (await runner.recover("s")).output == "I did it"


async def test_the_coordinator_chooses_for_each_message_when_the_graph_hands_back(store: Store) -> None:  # rule A5
    def route(state: Notes) -> dict[str, Any]:
        if "calc" in state["user_input"]:
            current().transfer_to("Root")
        return {"last_response": f"document {state['user_input']}"}

    root = chat(
        "Root", transfer("Docs"), "42", transfer("Docs", "t2"), sub_agents=[GraphAgent("Docs", graph_of(Notes, route))]
    )
    runner = Runner(root, store=store)
    outputs = [(await runner.run(text, session_id="s")).output for text in ("a.txt", "calc 6*7", "b.txt")]
    assert outputs == ["document a.txt", "42", "document b.txt"]


async def test_a_graph_that_waits_hands_back_in_another_process(store: Store) -> None:  # rules R9, T8
    def give(state: Notes) -> None:
        current().transfer_to("Root")

    def ask(state: Notes) -> dict[str, Any]:
        return {"notes": [interrupt("sure?", key="sure")]}

    def root(*script: Any) -> Any:
        graph = StateGraph(Notes, name="inner").add_sequence(START, give, ask).compile()
        return chat("Root", *script, sub_agents=[GraphAgent("G", graph)])

    paused = await Runner(root(transfer("G")), store=store).run("hi", session_id="s")
    assert ids(paused) == ["agent:Root;agent:G;node:ask"]
    fork = await Runner(root(), store=store).fork("s")
    for session in ("s", fork):
        agent = root("mine")
        assert (await Runner(agent, store=store).resume(session, {"sure": "yes"})).output == "mine"
        assert "user: hi" in seen(model_of(agent).requests[0])


async def test_a_request_of_the_last_turn_is_not_done_again(store: Store) -> None:  # rule T8
    def leave(state: Notes) -> dict[str, Any]:
        if state["user_input"] == "leave":
            current().exit("bye")
        return {"last_response": "here"}

    runner = Runner(GraphAgent("G", graph_of(Notes, leave)), store=store)
    events = await events_of(runner.run("leave", session_id="s"))
    assert [event.result for event in events if isinstance(event, Exit)] == ["bye"]
    again = Runner(GraphAgent("G", graph_of(Notes, leave)), store=store)
    assert not [event for event in await events_of(again.run("stay", session_id="s")) if isinstance(event, Exit)]


async def test_a_node_leaves_a_loop_and_ends_a_run(store: Store) -> None:  # rules A7, T8
    def leave(state: Notes) -> dict[str, Any]:
        if len(state["notes"]) == 2:
            current().break_loop()
        return {"notes": ["x"], "last_response": "round"}

    loop = LoopAgent("Loop", agents=[GraphAgent("G", graph_of(Notes, leave))], max_iterations=9)
    events = await events_of(Runner(loop, store=store).run("go", session_id="s"))
    assert len([event for event in events if isinstance(event, BreakLoop)]) == 1
    assert len(await Runner(loop, store=store).messages("s")) == 4

    def stop(state: Notes) -> dict[str, Any]:
        current().exit("enough")
        return {"last_response": "round"}

    row = SequentialAgent("Row", agents=[GraphAgent("G", graph_of(Notes, stop)), chat("Never")])
    assert (await Runner(row, store=store).run("go")).output == "enough"


async def test_there_is_nobody_to_hand_back_to(store: Store) -> None:  # rule A5
    with pytest.raises(ToolError, match=r"no agent 'Root' to hand over to. There are: none"):
        await Runner(GraphAgent("G", graph_of(Notes, back)), store=store).run("hi")


# Mistakes


def test_a_mapping_that_cannot_work_is_refused_where_it_is_made() -> None:
    async def later(given: AgentInput) -> Mapping[str, Any]:
        return {}

    with pytest.raises(
        UsageError, match=r"no field 'user_input' for the user's message. Name another field, input='question'"
    ):
        GraphAgent("G", graph_of(Ticket, solve))
    with pytest.raises(
        UsageError, match=r"input='qustion' is not a field of its graph. It has: question, priority, answer"
    ):
        ticket(input="qustion")
    with pytest.raises(UsageError, match="output='anser' is not a field"):
        ticket(output="anser")
    with pytest.raises(UsageError, match=r"input=7. Give the name of a field, or a function"):
        ticket(input=7)
    with pytest.raises(UsageError, match="input is async"):
        ticket(input=later)


async def test_a_mapping_that_returns_something_else_is_named() -> None:
    with pytest.raises(UsageError, match=r"its input function returned a str. Return a mapping"):
        await Runner(ticket(input=returning("x"))).run("hi")
    with pytest.raises(UsageError, match="its output function returned an int"):
        await Runner(ticket(output=returning(7))).run("hi")
    with pytest.raises(UsageError, match="its output function returned a user message"):
        await Runner(ticket(output=returning(Message.user("x")))).run("hi")
