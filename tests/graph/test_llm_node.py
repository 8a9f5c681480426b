"""LLM nodes: what they read, what they tell their model, and what they write."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

import msgspec
import pydantic
import pytest

from adjourn import Message, Middleware, RunError, Runner, UsageError, interrupt, tool
from adjourn.errors import GraphError, ModelError, StateInvalid
from adjourn.events import Delta, MessageEvent, Retrying
from adjourn.graph import START, Command, MessagesState, StateGraph, StateSchema, add_messages, append, last
from adjourn.middleware import ModelState
from adjourn.models import Chunk
from adjourn.stores import Store
from adjourn.testing import FunctionModel, ScriptedModel

from .shapes import events_of, giving
from .talking import asking, call, lines, shown

HISTORY = [Message.user("hello"), Message.assistant("hi")]


@tool
async def look(at: str) -> str:
    """Look at something."""
    return f"saw {at}"


# What it reads


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        (set[str](), ["user: for you"]),
        ({"one_shot_messages_by_node"}, ["user: once"]),
        ({"one_shot_messages_by_node", "one_shot_messages"}, ["user: hello", "assistant: hi", "user: now"]),
        ({"one_shot_messages_by_node", "one_shot_messages", "user_input"}, ["user: hello", "assistant: hi"]),
    ],
)
async def test_exactly_one_input_is_used_and_the_nearest_comes_first(  # rule L1
    missing: set[str], expected: list[str]
) -> None:
    given: dict[str, Any] = {
        "one_shot_messages_by_node": {"llm": [Message.user("for you")], "other": [Message.user("not for you")]},
        "one_shot_messages": [Message.user("once")],
        "user_input": "now",
        "messages": HISTORY,
    }
    model = ScriptedModel(["ok"])
    await asking(model).invoke({name: value for name, value in given.items() if name not in missing})
    assert shown(model.requests[0]) == expected


async def test_messages_for_another_node_are_left_to_it() -> None:  # rule L1
    model = ScriptedModel(["ok"])
    given = {"one_shot_messages_by_node": {"other": [Message.user("x")]}, "user_input": "hi"}
    state = await asking(model).invoke(given)
    assert shown(model.requests[0]) == ["user: hi"]
    assert lines(state["one_shot_messages_by_node"]["other"]) == ["user: x"]


async def test_what_was_not_used_stays_for_the_next_call() -> None:  # rules L1, L2
    model = ScriptedModel(["one", "two", "three"])
    graph = StateGraph(MessagesState).add_llm_node("a", model).add_llm_node("b", model).add_llm_node("c", model)
    built = graph.add_sequence(START, "a", "b", "c").compile()
    state = await built.invoke({"one_shot_messages": [Message.user("once")], "user_input": "now"})
    assert [shown(request) for request in model.requests] == [
        ["user: once"],
        ["user: once", "assistant: one", "user: now"],
        ["user: once", "assistant: one", "user: now", "assistant: two"],
    ]
    assert (state["one_shot_messages"], state["user_input"]) == ([], "")


# One-shot messages


@pytest.mark.parametrize("key", ["one_shot_messages", "one_shot_messages_by_node"])
async def test_of_one_shot_messages_the_last_user_message_and_the_reply_are_kept(key: str) -> None:  # rule L2
    once = [Message.user("first"), Message.assistant("so?"), Message.user("second"), Message.assistant("well,")]
    model = ScriptedModel(["ok"])
    value = once if key == "one_shot_messages" else {"llm": once}
    state = await asking(model, instruction="Be brief.").invoke({key: value, "messages": HISTORY})
    assert shown(model.requests[0]) == ["system: Be brief.", *lines(once)]
    assert lines(state["messages"]) == ["user: hello", "assistant: hi", "user: second", "assistant: ok"]
    assert not (state[key] if key == "one_shot_messages" else state[key]["llm"])


async def test_one_shot_messages_with_a_system_message_get_no_instruction() -> None:  # rule L2
    model = ScriptedModel(["ok"])
    once = [Message.system("Be loud."), Message.user("hi")]
    await asking(model, instruction="Be brief.").invoke({"one_shot_messages": once})
    assert shown(model.requests[0]) == ["system: Be loud.", "user: hi"]


async def test_one_shot_messages_without_a_user_leave_the_reply_alone() -> None:  # rule L2
    state = await asking(ScriptedModel(["ok"])).invoke({"one_shot_messages": [Message.system("Say ok.")]})
    assert lines(state["messages"]) == ["assistant: ok"]


async def test_each_of_two_nodes_side_by_side_empties_its_own_messages() -> None:  # rules L1, L2
    graph = StateGraph(MessagesState).add_llm_node("a", ScriptedModel(["A"])).add_llm_node("b", ScriptedModel(["B"]))
    built = graph.add_edge(START, "a").add_edge(START, "b").compile()
    given = {name: [Message.user(f"to {name}")] for name in ("a", "b", "c")}
    state = await built.invoke({"one_shot_messages_by_node": given})
    assert lines(state["messages"]) == ["user: to a", "assistant: A", "user: to b", "assistant: B"]
    assert {name for name, left in state["one_shot_messages_by_node"].items() if left} == {"c"}


async def test_messages_by_node_in_a_field_that_is_replaced_keep_those_of_others() -> None:  # rule L2
    class Plain(TypedDict):
        messages: Annotated[list[Message], add_messages]
        one_shot_messages_by_node: dict[str, list[Message]]

    given = {name: [Message.user(name)] for name in ("llm", "other")}
    state = await asking(ScriptedModel(["ok"]), schema=Plain).invoke({"one_shot_messages_by_node": given})
    assert {name: len(left) for name, left in state["one_shot_messages_by_node"].items()} == {"llm": 0, "other": 1}


# The user's input


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ([], ["user: now"]),
        (HISTORY, ["user: hello", "assistant: hi", "user: now"]),
        ([*HISTORY, Message.user("before")], ["user: hello", "assistant: hi", "user: now"]),
        ([*HISTORY, Message.user("now")], ["user: hello", "assistant: hi", "user: now"]),
    ],
)
async def test_user_input_comes_after_the_history_or_in_its_tails_place(  # rule L3
    history: list[Message], expected: list[str]
) -> None:
    model = ScriptedModel(["ok"])
    state = await asking(model).invoke({"messages": history, "user_input": "now"})
    assert shown(model.requests[0]) == expected
    assert lines(state["messages"]) == [*expected, "assistant: ok"]
    assert state["user_input"] == ""


async def test_another_key_is_read_and_emptied_instead() -> None:  # rule L3
    class Asked(MessagesState):
        question: Annotated[str, last]

    model = ScriptedModel(["ok"])
    graph = asking(model, schema=Asked, user_input_key="question")
    state = await graph.invoke({"question": "why?", "user_input": "not this"})
    assert lines(state["messages"]) == ["user: why?", "assistant: ok"]
    assert (state["question"], state["user_input"]) == ("", "not this")


def beside(*models: Any, store: Any = None) -> Any:
    graph = StateGraph(MessagesState, name="g")
    for number, model in enumerate(models):
        graph.add_llm_node(f"n{number}", model).add_edge(START, f"n{number}")
    return graph.compile(store=store)


@pytest.mark.parametrize("history", [[], HISTORY, [Message.user("before")], [Message.user("now")]])
async def test_nodes_side_by_side_leave_one_user_message(store: Store, history: list[Message]) -> None:  # rule L3
    models = [ScriptedModel([f"{name}1", f"{name}2"]) for name in "abc"]
    graph = beside(*models, store=store)
    state = (await graph.run({"messages": history, "user_input": "now"}, session_id="s")).state
    asked = [shown(model.requests[0])[-1] for model in models]
    assert asked == ["user: now"] * 3
    assert lines(state["messages"])[-4:] == ["user: now", "assistant: a1", "assistant: b1", "assistant: c1"]
    state = (await graph.run("again", session_id="s")).state
    assert lines(state["messages"])[-4:] == ["user: again", "assistant: a2", "assistant: b2", "assistant: c2"]
    assert lines(state["messages"]).count("user: now") == 1


async def test_a_fan_out_gives_each_task_an_input_of_its_own() -> None:  # rules L3, G5
    model = FunctionModel(lambda request: f"re {request.messages[-1].text}")
    sends = [Command(update={"user_input": each}, goto="llm") for each in ("one", "two", "two")]
    graph = StateGraph(MessagesState).add_node("spread", giving(sends)).add_llm_node("llm", model)
    state = await graph.set_entry_point("spread").compile().invoke({})
    assert lines(state["messages"]) == [
        *("user: one", "assistant: re one", "user: two", "assistant: re two", "user: two", "assistant: re two"),
    ]


async def test_a_fan_out_may_lay_a_message_over_the_history() -> None:  # rules L4, G5
    model = ScriptedModel(["ok"])
    sends = [Command(update={"messages": Message.user("just this")}, goto="llm")]
    graph = StateGraph(MessagesState).add_node("spread", giving(sends)).add_llm_node("llm", model)
    state = await graph.set_entry_point("spread").compile().invoke({"messages": HISTORY})
    assert shown(model.requests[0]) == ["user: just this"]
    assert lines(state["messages"]) == ["user: hello", "assistant: hi", "assistant: ok"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("one_shot_messages", "text"), ("one_shot_messages", ["text"]), ("user_input", 5), ("messages", "text")],
)
async def test_what_cannot_be_read_is_an_error_that_names_the_field(name: str, value: Any) -> None:  # rule L1
    sends = [Command(update={name: value}, goto="llm")]
    graph = StateGraph(MessagesState).add_node("spread", giving(sends)).add_llm_node("llm", ScriptedModel(["no"]))
    with pytest.raises(StateInvalid) as caught:
        await graph.set_entry_point("spread").compile().invoke({})
    assert caught.value.field == name


# What it writes


async def test_of_history_alone_only_the_reply_is_added() -> None:  # rule L4
    state = await asking(ScriptedModel(["ok"])).invoke({"messages": HISTORY})
    assert lines(state["messages"]) == ["user: hello", "assistant: hi", "assistant: ok"]


@pytest.mark.parametrize("key", ["one_shot_messages", "one_shot_messages_by_node", "user_input"])
async def test_a_model_error_clears_nothing_and_writes_nothing(store: Store, key: str) -> None:  # rule L4
    values: dict[str, Any] = {
        "one_shot_messages": [Message.user("x")],
        "one_shot_messages_by_node": {"llm": [Message.user("x")]},
        "user_input": "x",
    }
    with pytest.raises(ModelError, match="no answer"):
        await asking(ScriptedModel([RuntimeError("no answer")]), store=store).run(
            {"messages": HISTORY, key: values[key]}, session_id="s"
        )
    state = await asking(ScriptedModel([]), store=store).state("s")
    assert lines(state["messages"]) == lines(HISTORY)
    assert state[key] == values[key]
    result = await asking(ScriptedModel(["ok"]), store=store).recover("s")
    assert lines(result.state["messages"]) == [*lines(HISTORY), "user: x", "assistant: ok"]


async def test_a_stream_that_breaks_off_writes_nothing(store: Store) -> None:  # rule L4
    cut = [Chunk(text="half of "), RuntimeError("cut")]
    graph = asking(ScriptedModel([cut, "whole"]), store=store)
    with pytest.raises(ModelError):
        await events_of(graph.run("go", session_id="s"))
    assert (await graph.state("s"))["messages"] == []
    assert (await graph.recover("s")).output == "whole"


async def test_the_text_of_every_answer_is_found_by_its_node() -> None:  # rule L5
    graph = StateGraph(MessagesState).add_llm_node("a", ScriptedModel(["A"])).add_llm_node("b", ScriptedModel(["B"]))
    state = await graph.add_sequence(START, "a", "b").compile().invoke({"user_input": "go"})
    assert (state["last_response"], state["node_responses"]) == ("B", {"a": "A", "b": "B"})


async def test_nodes_side_by_side_each_have_their_response() -> None:  # rule L5
    state = await beside(ScriptedModel(["A"]), ScriptedModel(["B"])).invoke({"user_input": "go"})
    assert (state["last_response"], state["node_responses"]) == ("B", {"n0": "A", "n1": "B"})


async def test_calls_with_no_id_or_one_used_before_get_their_own() -> None:  # rules T2, L4
    history = [Message.assistant(tool_calls=[call("look", at="a")]), Message.tool("x", tool_call_id="c1", name="look")]
    script = [[call("look", at="b"), call("look", "", at="c"), call("look", "", at="d")]]
    state = await asking(ScriptedModel(script), tools=[look]).invoke({"messages": history})
    assert [each.id for each in state["messages"][-1].tool_calls] == ["c1~2", "call", "call~2"]
    once = {"messages": history, "one_shot_messages": [Message.user("go")]}
    state = await asking(ScriptedModel([call("look", at="b")]), tools=[look]).invoke(once)
    assert [each.id for each in state["messages"][-1].tool_calls] == ["c1~2"]


# What the model is told


async def test_an_instruction_has_the_sessions_values_in_it_and_is_not_stored(store: Store) -> None:  # rule A10
    model = ScriptedModel(["one", "two"])
    graph = asking(model, instruction="Serve {user}{rank?}. {{x}}", store=store)
    await graph.run("hi", session_id="s", values={"user": "{Bob}"})
    result = await graph.run("more", session_id="s", values={"rank": " the Great"})
    assert [shown(request)[0] for request in model.requests] == [
        "system: Serve {Bob}. {x}",
        "system: Serve {Bob} the Great. {x}",
    ]
    assert lines(result.messages) == ["user: hi", "assistant: one", "user: more", "assistant: two"]


async def test_a_value_that_the_instruction_lacks_is_named() -> None:  # rule A10
    with pytest.raises(RunError, match="node 'llm' needs the session value 'user'"):
        await asking(ScriptedModel(["no"]), instruction="Serve {user}.").invoke({"user_input": "hi"})


async def test_a_history_with_a_system_message_gets_no_instruction() -> None:  # rule L2
    model = ScriptedModel(["ok"])
    history = [Message.system("Be loud."), Message.user("hi")]
    await asking(model, instruction="Be brief.").invoke({"messages": history})
    assert shown(model.requests[0]) == ["system: Be loud.", "user: hi"]


async def test_options_of_the_node_come_over_those_of_the_run() -> None:
    model = ScriptedModel(["ok"])
    graph = asking(model, options={"temperature": 0.1}, tools=[look])
    await graph.run("hi", model_options={"temperature": 0.9, "top_p": 0.5})
    assert model.requests[0].options == {"temperature": 0.1, "top_p": 0.5}
    assert [spec.name for spec in model.requests[0].tools] == ["look"]


async def test_an_answer_is_streamed_and_told_whole(store: Store) -> None:
    events = await events_of(asking(ScriptedModel(["one two"]), store=store).run("hi", session_id="s"))
    deltas = [event for event in events if isinstance(event, Delta)]
    (message,) = [event for event in events if isinstance(event, MessageEvent)]
    assert [delta.text for delta in deltas] == ["one", " two"]
    assert {(delta.agent, delta.address) for delta in deltas} == {("llm", "runnable:g;node:llm")}
    assert (message.agent, message.address, message.message.text) == ("llm", "runnable:g;node:llm", "one two")


# Middleware


class Redact(Middleware):
    """Hides a word from the model and from the history."""

    def before_model(self, state: ModelState, ctx: Any) -> ModelState:
        hidden = [message.with_text(message.text.replace("secret", "***")) for message in state.messages]
        return ModelState(messages=tuple(hidden))


class Loud(Middleware):
    """Makes answers loud, when a person says so."""

    def after_model(self, state: ModelState, ctx: Any) -> ModelState:
        *before, answer = state.messages
        return ModelState(messages=(*before, answer.with_text(answer.text.upper() + interrupt("end?"))))


@pytest.mark.parametrize("given", [{"user_input": "my secret"}, {"one_shot_messages": [Message.user("my secret")]}])
async def test_what_a_hook_hides_from_the_model_is_hidden_in_the_history(given: dict[str, Any]) -> None:  # rule A9
    model = ScriptedModel(["ok"])
    state = await asking(model, middleware=[Redact()]).invoke({"messages": HISTORY, **given})
    assert shown(model.requests[0])[-1] == "user: my ***"
    assert lines(state["messages"]) == [*lines(HISTORY), "user: my ***", "assistant: ok"]


async def test_hooks_side_by_side_do_not_undo_one_another() -> None:  # rule A9
    graph = StateGraph(MessagesState)
    for name in "ab":
        graph.add_llm_node(name, ScriptedModel([name]), middleware=[Redact()]).add_edge(START, name)
    state = await graph.compile().invoke({"messages": [Message.user("secret")], "user_input": "secret"})
    assert lines(state["messages"]) == ["user: ***", "assistant: a", "assistant: b"]


async def test_a_hook_that_asks_does_not_repeat_the_model_call(store: Store) -> None:  # rules A9, R9
    def graph(*script: str) -> Any:
        return asking(ScriptedModel(script), middleware=[Loud()], store=store)

    paused = await graph("hello").run("hi", session_id="s")
    (asked,) = paused.interrupts
    assert asked.id == "runnable:g;node:llm;middleware:Loud"
    assert paused.state["messages"] == []
    result = await graph().resume("s", {asked.id: "!"})
    assert lines(result.messages) == ["user: hi", "assistant: HELLO!"]


async def test_middleware_of_the_runner_is_outermost() -> None:
    order: list[str] = []

    class Noted(Middleware):
        def __init__(self, name: str) -> None:
            self.label = name

        @property
        def name(self) -> str:
            return self.label

        async def wrap_model(self, call: Any, request: Any) -> Message:
            order.append(self.label)
            return await call(request)

    graph = asking(ScriptedModel(["ok"]), middleware=[Noted("node")])
    await Runner(graph, middleware=[Noted("runner")]).run("hi")
    assert order == ["runner", "node"]


# Schemas


@dataclass
class AsDataclass:
    messages: Annotated[list[Message], add_messages] = field(default_factory=list[Message])
    user_input: Annotated[str, last] = ""
    last_response: str = ""


class AsStruct(msgspec.Struct):
    messages: Annotated[list[Message], add_messages] = []
    user_input: Annotated[str, last] = ""
    last_response: str = ""


class AsModel(pydantic.BaseModel):
    messages: Annotated[list[Any], add_messages] = []
    user_input: Annotated[str, last] = ""
    last_response: str = ""


@pytest.mark.parametrize("schema", [AsDataclass, AsStruct, AsModel])
async def test_class_schemas_serve_as_well(store: Store, schema: Any) -> None:  # rules L3, L5
    graph = asking(ScriptedModel(["ok"]), schema=schema, store=store)
    state = (await graph.run({"user_input": "hi"}, session_id="s")).state
    assert isinstance(state, schema)
    assert lines(state.messages) == ["user: hi", "assistant: ok"]
    assert (state.user_input, state.last_response) == ("", "ok")


async def test_a_schema_needs_only_the_messages() -> None:  # rules L4, L5
    schema = StateSchema().add_field("messages", list[Message], reducer=add_messages)
    state = await asking(ScriptedModel(["ok"]), schema=schema).invoke({"messages": HISTORY})
    assert list(state) == ["messages"]
    assert lines(state["messages"])[-1] == "assistant: ok"


class NoMessages(TypedDict):
    user_input: str


class Appended(TypedDict):
    messages: Annotated[list[Message], append]


@pytest.mark.parametrize("schema", [NoMessages, Appended, StateSchema(extra="allow")])
def test_a_state_without_messages_is_refused(schema: Any) -> None:
    with pytest.raises(GraphError, match="LLM node 'llm' needs the field 'messages' with the reducer add_messages"):
        asking(ScriptedModel([]), schema=schema)


def test_a_key_that_is_no_field_is_refused() -> None:  # rule L3
    with pytest.raises(GraphError, match="user_input_key='question', which is not a field"):
        asking(ScriptedModel([]), user_input_key="question")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"model": None}, "is not a model"),
        ({"model": "nobody:x"}, "nobody"),
        ({"instruction": 5}, "Give a text, or a function"),
        ({"instruction": "{a.b()}"}, "not the name of a session value"),
        ({"tools": 5}, "Give a list of tools"),
        ({"tools": "look"}, "Give a list of tools"),
        ({"tools": ["look"]}, "is not a tool"),
        ({"tools": [look, look]}, "two tools called 'look'"),
        ({"options": ["x"]}, "Give a mapping"),
    ],
)
def test_wrong_arguments_are_refused_where_they_are_given(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        asking(options.get("model", ScriptedModel([])), **{name: options[name] for name in options if name != "model"})


async def test_readers_drop_what_a_hook_has_changed_afterwards() -> None:  # rule A9
    class Hushing(Middleware):
        def after_model(self, state: ModelState, ctx: Any) -> ModelState:
            return ModelState(messages=(*state.messages[:-1], Message.assistant("hush")))

    events = await events_of(asking(ScriptedModel(["loud"]), middleware=[Hushing()]).run({"user_input": "hi"}))
    told = [event for event in events if isinstance(event, Delta | Retrying | MessageEvent)]
    assert [type(event) for event in told] == [Delta, Retrying, MessageEvent]
