"""The state of a conversation: messages, operations on them, and their ids."""

from typing import Annotated, Any, TypedDict

import pytest

from adjourn import UsageError, interrupt
from adjourn.errors import StateInvalid
from adjourn.graph import (
    START,
    AppendMessages,
    Command,
    Message,
    MessagesState,
    Overwrite,
    RemoveAllMessages,
    ReplaceLastUser,
    StateGraph,
    ToolCall,
    add_messages,
)
from adjourn.stores import SessionRef, Store
from adjourn.stores.kit import ListOpen
from tests.graph.shapes import chain, giving, together

HELLO = [Message.user("hello"), Message.assistant("hi")]


async def after(*updates: Any, start: Any = HELLO) -> list[Message]:
    """The messages after updates in successive supersteps."""
    graph = StateGraph(MessagesState)
    for number, update in enumerate(updates):
        graph.add_node(f"n{number}", giving({"messages": update}), thread=False)
    graph.add_sequence("__start__", *(f"n{number}" for number in range(len(updates))))
    state = await graph.compile().invoke({"messages": start})
    return state["messages"]


def texts(messages: list[Message]) -> list[str]:
    return [message.text for message in messages]


def ids(messages: list[Message]) -> list[str | None]:
    return [message.id for message in messages]


# Updates


async def test_one_message_or_a_list_is_appended() -> None:  # rule S8
    assert texts(await after(Message.user("one"))) == ["hello", "hi", "one"]
    assert texts(await after([Message.user("one"), Message.assistant("two")])) == ["hello", "hi", "one", "two"]
    assert texts(await after([])) == ["hello", "hi"]


async def test_operations_apply_from_left_to_right() -> None:  # rule S8
    update = [
        AppendMessages((Message.user("one"),)),
        ReplaceLastUser("uno"),
        Message.assistant("two"),
        ReplaceLastUser("ONE"),
    ]
    assert texts(await after(update)) == ["hello", "hi", "ONE", "two"]


async def test_one_operation_needs_no_list() -> None:  # rule S8
    assert texts(await after(ReplaceLastUser("bye"))) == ["bye", "hi"]
    assert texts(await after(RemoveAllMessages())) == []
    assert texts(await after(AppendMessages((Message.user("a"), Message.user("b"))))) == ["hello", "hi", "a", "b"]


async def test_replace_last_user_changes_the_one_nearest_the_end() -> None:  # rule S8
    start = [Message.user("first"), Message.user("second"), Message.assistant("reply")]
    messages = await after(ReplaceLastUser("changed"), start=start)
    assert texts(messages) == ["first", "changed", "reply"]
    assert ids(messages) == ["m1", "m2", "m3"]


async def test_replace_last_user_appends_when_there_is_none() -> None:  # rule S8
    messages = await after(ReplaceLastUser("asked"), start=[Message.assistant("welcome")])
    assert [(message.role, message.text, message.id) for message in messages] == [
        ("assistant", "welcome", "m1"),
        ("user", "asked", "m2"),
    ]


async def test_what_follows_on_removing_everything_still_applies() -> None:  # rule S8
    messages = await after([Message.user("gone"), RemoveAllMessages(), Message.user("new"), ReplaceLastUser("newer")])
    assert texts(messages) == ["newer"]
    assert texts(await after(RemoveAllMessages(), Message.user("later"))) == ["later"]


@pytest.mark.parametrize(
    "update", ["text", 5, None, {"role": "user", "content": "x"}, [Message.user("a"), "text"], [[Message.user("a")]]]
)
async def test_anything_else_is_a_typed_error(update: Any, store: Store) -> None:  # rule S8
    graph = together(MessagesState, {"a": giving({"messages": update})}, store=store)
    with pytest.raises(StateInvalid, match="messages") as caught:
        await graph.run({"messages": HELLO}, session_id="s")
    assert caught.value.field == "messages"
    assert texts((await graph.state("s"))["messages"]) == ["hello", "hi"]
    with pytest.raises(TypeError):
        add_messages([], update)


async def test_operations_are_pure() -> None:  # rule S8
    old = [Message.user("hello"), Message.assistant("hi")]
    update = [ReplaceLastUser("bye"), Message.user("more")]
    new = add_messages(old, update)
    assert texts(new) == ["bye", "hi", "more"]
    assert texts(old) == ["hello", "hi"]
    assert update[1].id is None  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    assert add_messages(old, update) == new
    assert add_messages(None, Message.user("a")) == [Message.user("a")]


async def test_parallel_updates_apply_in_task_order() -> None:  # rules S8, G9
    nodes = {
        "a": giving({"messages": Message.user("a")}),
        "b": giving({"messages": [ReplaceLastUser("A"), Message.assistant("b")]}),
        "c": giving({"messages": Message.user("c")}),
    }
    state = await together(MessagesState, nodes).invoke({"messages": HELLO})
    assert texts(state["messages"]) == ["hello", "hi", "A", "b", "c"]
    assert ids(state["messages"]) == ["m1", "m2", "m3", "m4", "m5"]


async def test_removing_everything_in_parallel_removes_what_came_before_it() -> None:  # rules S8, G9
    nodes = {
        "a": giving({"messages": Message.user("a")}),
        "b": giving({"messages": RemoveAllMessages()}),
        "c": giving({"messages": Message.user("c")}),
    }
    assert texts((await together(MessagesState, nodes).invoke({"messages": HELLO}))["messages"]) == ["c"]


async def test_an_overwrite_takes_the_lists_place() -> None:  # rules S8, S9
    assert texts(await after(Overwrite([Message.user("only")]), Message.user("next"))) == ["only", "next"]


@pytest.mark.parametrize("value", [None, "text", ["text"], Message.user("alone")])
async def test_an_overwrite_that_is_no_list_of_messages_is_refused(value: Any) -> None:  # rules S8, S9
    with pytest.raises(StateInvalid, match="messages"):
        await after(Overwrite(value))


# Ids


async def test_ids_are_absent_until_the_reducer_gives_them() -> None:  # rule S8
    message = Message.user("hello")
    assert message.id is None
    assert ids(await after(Message.assistant("one"), start=[message])) == ["m1", "m2"]
    assert message.id is None


async def test_ids_count_on_over_turns_pauses_and_processes(store: Store) -> None:  # rule S8
    def ask(state: Any) -> dict[str, Any]:
        return {"messages": Message.assistant(interrupt("?"))}

    for turn in ("one", "two"):
        await chain(MessagesState, ask, store=store).run({"messages": Message.user(turn)}, session_id="s")
        await chain(MessagesState, ask, store=store).resume("s", {(await pending(store))[0]: f"re {turn}"})
    messages = (await chain(MessagesState, ask, store=store).state("s"))["messages"]
    assert texts(messages) == ["one", "re one", "two", "re two"]
    assert ids(messages) == ["m1", "m2", "m3", "m4"]


async def pending(store: Store) -> list[str]:
    return [row.id for row in await store.read(ListOpen(SessionRef("s")))]


async def test_an_id_is_not_given_twice_even_when_its_message_is_gone() -> None:  # rule S8
    messages = await after(RemoveAllMessages(), Message.user("new"))
    assert ids(messages) == ["m3"]


async def test_a_message_with_the_id_of_another_replaces_it() -> None:  # rule S8
    def mend(state: Any) -> dict[str, Any]:
        return {"messages": [state["messages"][0].with_text("HELLO"), Message.user("new")]}

    messages = (await chain(MessagesState, mend).invoke({"messages": HELLO}))["messages"]
    assert texts(messages) == ["HELLO", "hi", "new"]
    assert ids(messages) == ["m1", "m2", "m3"]


async def test_a_message_may_bring_its_own_id() -> None:  # rule S8
    mine = Message.user("draft").with_id("mine")
    messages = await after(mine, [Message.assistant("ok"), mine.with_text("final")])
    assert [(message.id, message.text) for message in messages[2:]] == [("mine", "final"), ("m3", "ok")]


async def test_ids_from_another_session_do_not_collide_with_new_ones() -> None:  # rule S8
    handed_over = await after([Message.user("third")])
    assert ids(handed_over) == ["m1", "m2", "m3"]
    messages = await after(Message.user("new"), start=[Message.system("first"), *handed_over])
    assert len(set(ids(messages))) == len(messages) == 5
    assert texts(messages) == ["first", "hello", "hi", "third", "new"]


@pytest.mark.parametrize("id", ["m", "m-1", "m1.5", "m²", "x1", "m" + "9" * 5_000, "M1", ""])
async def test_any_text_may_be_an_id(id: str) -> None:  # rule S8
    messages = await after(Message.user("new"), start=[Message.user("odd").with_id(id)])
    assert ids(messages) == [id, "m1"]


async def test_a_message_laid_over_the_state_by_a_fan_out_is_what_the_task_sees() -> None:  # rules G5, S8
    def worker(state: Any) -> dict[str, Any]:
        return {"user_input": state["messages"].text}

    sends = [Command(update={"messages": Message.user("for you")}, goto="w")]
    graph = StateGraph(MessagesState).add_node("spread", giving(sends)).add_node("w", worker).set_entry_point("spread")
    assert (await graph.compile().invoke({}))["user_input"] == "for you"


async def test_a_message_that_was_read_and_returned_is_not_doubled() -> None:  # rules S7, S8
    def echo(state: Any) -> dict[str, Any]:
        return {"messages": [*state["messages"], Message.assistant("more")]}

    def back(state: Any) -> Any:
        state["messages"].append(Message.assistant("at last"))
        return state

    messages = (await chain(MessagesState, echo, back).invoke({"messages": HELLO}))["messages"]
    assert texts(messages) == ["hello", "hi", "more", "at last"]


async def test_a_message_with_everything_comes_back_whole(store: Store) -> None:  # rules S8, S10
    call = ToolCall(id="c1", name="book", arguments={"to": ["Rome", 1, None], "deep": {"x": 1.5}})
    start = [
        Message.system("be brief"),
        Message.assistant("", tool_calls=[call], name="agent", finish_reason="tool_calls"),
        Message.tool("booked", tool_call_id="c1", name="book"),
        Message.user('"$t": "message" \u2028 \U0001f600'),
    ]
    await chain(MessagesState, giving({"messages": HELLO}), store=store).run({"messages": start}, session_id="s")
    state = await chain(MessagesState, giving(None), name="g", store=store).state("s")
    assert state["messages"] == [m.with_id(f"m{i}") for i, m in enumerate([*start, *HELLO], 1)]


# The rest of the state


async def test_text_is_the_user_input() -> None:
    def answer(state: Any) -> dict[str, Any]:
        return {"last_response": state["user_input"].upper(), "messages": Message.user(state["user_input"])}

    graph = chain(MessagesState, answer)
    for said in ("hi", Message.user("hi")):
        result = await graph.run(said)
        assert result.output == "HI"
        assert result.message is not None
        assert texts(list(result.messages)) == ["hi"]


async def test_a_graph_without_user_input_takes_no_text() -> None:
    class Other(TypedDict):
        messages: Annotated[list[Message], add_messages]

    with pytest.raises(UsageError, match="mapping"):
        await chain(Other, giving(None)).run("hi")


async def test_the_fields_of_a_conversation_merge_as_documented() -> None:
    nodes = {
        name: giving(
            {
                "last_response": name,
                "last_tool_response": name,
                "node_responses": {name: 1},
                "metadata": {name: 2},
                "one_shot_messages_by_node": {name: [Message.user(name)]},
            }
        )
        for name in ("a", "b")
    }
    state = await together(MessagesState, nodes).invoke({})
    assert (state["last_response"], state["last_tool_response"]) == ("b", "b")
    assert (state["node_responses"], state["metadata"]) == ({"a": 1, "b": 1}, {"a": 2, "b": 2})
    assert texts(state["one_shot_messages_by_node"]["b"]) == ["b"]


@pytest.mark.parametrize(("field", "value"), [("user_input", ""), ("one_shot_messages", [])])
async def test_nodes_side_by_side_may_both_empty_what_they_have_read(field: str, value: Any) -> None:  # rule L3
    state = await together(MessagesState, {"a": giving({field: value}), "b": giving({field: value})}).invoke({})
    assert state[field] == value


async def test_messages_of_an_edited_subgraph_have_the_same_ids_above_and_below(store: Store) -> None:  # rules S8, C4
    def say(state: Any) -> dict[str, Any]:
        return {"messages": [Message.assistant(interrupt("what?", key="q"))]}

    inner = StateGraph(MessagesState, name="inner").add_node("say", say).add_node("more", say)
    outer = StateGraph(MessagesState, name="g").add_subgraph("sub", inner.add_sequence(START, "say", "more").compile())
    graph = outer.add_edge(START, "sub").compile(store=store)
    place = "runnable:g;node:sub"
    await graph.run({"messages": [Message.user("hello")]}, session_id="s")
    await graph.edit("s", {"messages": [Message.user("by hand"), Message.user("twice")]}, at=place)
    await graph.recover("s")
    await graph.resume("s", {"q": "first"})
    below = (await graph.state("s", at=place))["messages"]
    result = await graph.resume("s", {"q": "second"})
    above = result.state["messages"]
    assert [message.text for message in above] == ["hello", "by hand", "twice", "first", "second"]
    assert [message.id for message in above[:4]] == [message.id for message in below]
    assert len({message.id for message in above}) == 5
