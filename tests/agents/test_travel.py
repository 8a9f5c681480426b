"""Time travel over agents: history, states, edits, forks, differences and trees."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from adjourn import (
    AlreadyResumed,
    ChatModelAgent,
    Message,
    Middleware,
    RunContext,
    Runner,
    SequentialAgent,
    StaleCheckpoint,
    UsageError,
    tool,
)
from adjourn.graph import Overwrite
from adjourn.middleware import ModelState
from adjourn.stores import Store
from adjourn.testing import FunctionModel

from .crew import ask, call, chat, ids, model_of, note, said, seen, transfer


def echo(name: str = "A", **options: Any) -> ChatModelAgent:
    """An agent that tells how much it was shown; it asks when told to."""

    def answer(request: Any) -> Any:
        last = request.messages[-1]
        if last.role == "user" and last.text.startswith("ask"):
            return call("ask", question=last.text)
        return f"saw {len(request.messages)}: {last.text}"

    return ChatModelAgent(name, model=FunctionModel(answer), tools=[ask], **options)


async def test_history_has_every_step_with_its_state(store: Store) -> None:  # rule C2
    runner = Runner(chat("A", call("note", text="x"), "end", tools=[note]), store=store)
    await runner.run("go", session_id="s")
    points = await runner.history("s")
    assert [point.source for point in points] == ["end", "step", "step", "input"]
    assert [len(point.state["messages"]) for point in points] == [4, 3, 2, 1]
    assert points[2].next == ("note",)
    assert points[0].address == "agent:A"


async def test_running_from_an_older_checkpoint_asks_again_on_a_new_branch(store: Store) -> None:  # rule C4
    runner = Runner(echo(), store=store)
    paused = await runner.run("ask me", session_id="s")
    first = await runner.resume("s", {ids(paused)[0]: "one"})
    assert first.output == "saw 3: one"
    again = await runner.run(None, session_id="s", checkpoint_id=paused.checkpoint_id)
    assert ids(again) == ids(paused)
    second = await runner.resume("s", {ids(again)[0]: "two"})
    assert second.output == "saw 3: two"
    old = await runner.state("s", checkpoint_id=first.checkpoint_id)
    assert said(old["messages"])[-1] == "assistant: saw 3: one"


async def test_two_forks_are_independent(store: Store) -> None:  # rule C4
    runner = Runner(echo(), store=store)
    paused = await runner.run("ask me", session_id="s")
    one, two = await runner.fork("s"), await runner.fork("s")
    assert (await runner.resume(one, {ids(paused)[0]: "1"})).output == "saw 3: 1"
    assert (await runner.resume(two, {ids(paused)[0]: "2"})).output == "saw 3: 2"
    assert [asked.id for asked in await runner.pending("s")] == ids(paused)
    await runner.run("more", session_id=one)
    assert len(await runner.messages(two)) == 4


async def test_messages_may_be_added_by_an_edit(store: Store) -> None:  # rule C4
    runner = Runner(echo(), store=store)
    await runner.run("hi", session_id="s")
    await runner.edit("s", {"messages": [Message.user("by the way")]})
    result = await runner.run("go on", session_id="s")
    assert result.output == "saw 4: go on"
    assert "user: by the way" in said(result.messages)


async def test_messages_may_be_replaced_by_an_edit(store: Store) -> None:  # rule C4
    runner = Runner(echo(), store=store)
    done = await runner.run("hi", session_id="s")
    await runner.edit("s", {"messages": Overwrite([Message.user("summary")])})
    result = await runner.run("go on", session_id="s")
    assert said(result.messages) == ["user: summary", "user: go on", "assistant: saw 2: go on"]
    assert len((await runner.state("s", checkpoint_id=done.checkpoint_id))["messages"]) == 2


async def test_a_message_with_a_known_id_takes_the_place_of_that_one(store: Store) -> None:  # rules C4, S8
    runner = Runner(echo(), store=store)
    done = await runner.run("hi", session_id="s")
    await runner.edit("s", {"messages": [replace(done.messages[0], content="hello"), Message.user("by the way")]})
    assert said(await runner.messages("s")) == ["user: hello", "assistant: saw 1: hi", "user: by the way"]
    found = [message.id for message in await runner.messages("s")]
    assert len(set(found)) == 3
    assert (await runner.run("go on", session_id="s")).output == "saw 4: go on"


async def test_a_changed_message_is_what_an_agent_with_a_summary_sees(store: Store) -> None:  # rules A9, C4
    class Shortens(Middleware):
        def before_model(self, state: ModelState, ctx: RunContext) -> ModelState:
            return replace(state, messages=state.messages[-1:])

    runner = Runner(chat("A", "one", "two", middleware=[Shortens()]), store=store)
    await runner.run("hi", session_id="s")
    second = await runner.run("and?", session_id="s")
    await runner.edit("s", {"messages": [replace(second.messages[2], content="changed")]})
    plain = chat("A", "three")
    await Runner(plain, store=store).run("more", session_id="s")
    assert seen(model_of(plain).requests[0]) == ["user: changed", "assistant: two", "user: more"]


async def test_a_message_before_the_call_that_waits_may_be_changed(store: Store) -> None:  # rules C4, S8
    runner = Runner(echo(), store=store)
    paused = await runner.run("ask me", session_id="s")
    await runner.edit("s", {"messages": [replace(paused.messages[0], content="tell me")]})
    result = await runner.resume("s", {ids(await runner.recover("s"))[0]: "y"})
    assert said(result.messages) == ["user: tell me", "tool: y", "assistant: saw 3: y"]


async def test_a_call_that_was_edited_by_a_person_may_be_changed_afterwards(store: Store) -> None:  # rules C4, T4
    @tool(approval=True)
    def pay(cents: int) -> str:
        """Pay."""
        return f"paid {cents}"

    runner = Runner(chat("A", call("pay", cents=9), "done", "again", tools=[pay]), store=store)
    (asked,) = (await runner.run("go", session_id="s")).interrupts
    done = await runner.resume("s", {asked: asked.info.edit(cents=5)})
    calling = done.messages[1]
    changed = replace(calling, tool_calls=(calling.tool_calls[0].with_arguments({"cents": 4}),))
    await runner.edit("s", {"messages": [changed]})
    assert (await runner.messages("s"))[1].tool_calls[0].arguments == {"cents": 4}


async def test_messages_that_the_session_has_are_not_taken_twice(store: Store) -> None:
    runner = Runner(echo(), store=store)
    done = await runner.run("hi", session_id="s")
    with pytest.raises(UsageError, match="A session remembers what was said: give only the new messages"):
        await runner.run([*done.messages, Message.user("more")], session_id="s")
    assert said(await runner.messages("s")) == ["user: hi", "assistant: saw 1: hi"]
    copied = await runner.run([*done.messages, Message.user("more")], session_id="other")
    assert copied.output == "saw 3: more"


async def test_a_message_that_is_sent_again_gets_an_id_of_its_own(store: Store) -> None:
    runner = Runner(echo(), store=store)
    done = await runner.run("hi", session_id="s")
    result = await runner.run(done.messages[0], session_id="s")
    assert said(result.messages)[2:] == ["user: hi", "assistant: saw 3: hi"]
    found = [message.id for message in result.messages]
    assert len(set(found)) == 4


async def test_values_may_be_edited(store: Store) -> None:  # rule C4
    agent = chat("A", "one", "two", instruction="Hi {user}")
    runner = Runner(agent, store=store)
    await runner.run("hi", session_id="s", values={"user": "Ann"})
    await runner.edit("s", {"values": {"user": "Bob"}})
    await runner.run("again", session_id="s")
    assert seen(model_of(agent).requests[-1])[0] == "system: Hi Bob"


async def test_adding_to_a_paused_session_keeps_what_is_pending(store: Store) -> None:  # rule C4
    runner = Runner(echo(), store=store)
    paused = await runner.run("ask me", session_id="s")
    await runner.edit("s", {"values": {"x": 1}})
    again = await runner.recover("s")
    assert ids(again) == [f"{ids(paused)[0]}#2"]
    result = await runner.resume("s", {ids(again)[0]: "y"})
    assert said(result.messages) == ["user: ask me", "tool: y", "assistant: saw 3: y"]


async def test_replacing_the_call_that_waits_is_refused(store: Store) -> None:  # rule C4
    runner = Runner(echo(), store=store)
    paused = await runner.run("ask me", session_id="s")
    with pytest.raises(UsageError, match="c1"):
        await runner.edit("s", {"messages": Overwrite([Message.user("summary")])})
    assert (await runner.resume("s", {ids(paused)[0]: "y"})).output == "saw 3: y"


async def test_what_stands_before_the_call_that_waits_may_be_replaced(store: Store) -> None:  # rule C4
    runner = Runner(echo(), store=store)
    await runner.run("hello", session_id="s")
    paused = await runner.run("ask me", session_id="s")
    calling = paused.messages[-1]
    assert calling.tool_calls
    await runner.edit("s", {"messages": Overwrite([Message.user("summary"), calling])})
    result = await runner.resume("s", {ids(await runner.recover("s"))[0]: "y"})
    assert said(result.messages) == ["user: summary", "tool: y", "assistant: saw 3: y"]


@pytest.mark.parametrize("values", [{"active": ["B"]}, {"nothing": 1}, {"messages": 7}])
async def test_edits_that_make_no_sense_are_refused(store: Store, values: Any) -> None:  # rule C4
    runner = Runner(echo(), store=store)
    await runner.run("hi", session_id="s")
    with pytest.raises(UsageError):
        await runner.edit("s", values)
    with pytest.raises(UsageError, match="as_node"):
        await runner.edit("s", {}, as_node="model")


async def test_differences_and_trees(store: Store) -> None:  # rule C4
    runner = Runner(echo(), store=store)
    first = await runner.run("one", session_id="s")
    second = await runner.run("two", session_id="s")
    assert first.checkpoint_id
    assert second.checkpoint_id
    diff = await runner.diff("s", first.checkpoint_id, second.checkpoint_id)
    assert list(diff.changed) == ["messages"]
    before, after = diff.changed["messages"]
    assert (len(before), len(after)) == (2, 4)
    await runner.run(None, session_id="s", checkpoint_id=(await runner.history("s"))[1].id)
    assert "← head" in str(await runner.tree("s"))


async def test_the_state_of_an_agent_in_a_row(store: Store) -> None:  # rule C4
    row = SequentialAgent("Row", agents=[echo("A"), echo("B")])
    runner = Runner(row, store=store)
    paused = await runner.run("ask me", session_id="s")
    assert ids(paused) == ["agent:Row;agent:A;tool:ask:c1"]
    state = await runner.state("s", at="agent:Row;agent:A")
    assert [message.role for message in state["messages"]] == ["user", "assistant"]


async def test_a_stale_checkpoint_is_refused(store: Store) -> None:  # rule R1
    runner = Runner(echo(), store=store)
    paused = await runner.run("ask me", session_id="s")
    await runner.edit("s", {"values": {"x": 1}})
    with pytest.raises((StaleCheckpoint, AlreadyResumed)):
        await runner.resume("s", {ids(paused)[0]: "y"}, checkpoint_id=paused.checkpoint_id)


async def test_travel_to_a_point_before_the_transfer(store: Store) -> None:  # rule C4
    root = chat("A", "plain", transfer("B"), "plain again", sub_agents=[chat("B", "from B")])
    runner = Runner(root, store=store)
    first = await runner.run("one", session_id="s")
    second = await runner.run("two", session_id="s")
    assert second.state["active"] == ["B"]
    copy = await runner.fork("s", checkpoint_id=first.checkpoint_id)
    result = await runner.run("three", session_id=copy)
    assert (result.output, result.state["active"]) == ("plain again", [])


async def test_every_checkpoint_can_be_gone_on_from(store: Store) -> None:  # rule C3
    root = chat("A", transfer("B"), sub_agents=[chat("B", call("note", text="x"), "end", tools=[note])])
    done = await Runner(root, store=store).run("go", session_id="s")

    def answer(request: Any) -> Any:
        heard = [message.text for message in request.messages]
        if any("noted" in text for text in heard):
            return "end"
        return call("note", text="x") if any("Handed over" in text for text in heard) else transfer("B")

    model = FunctionModel(answer)
    again = ChatModelAgent("A", model=model, sub_agents=[ChatModelAgent("B", model=model, tools=[note])])
    runner = Runner(again, store=store)
    for point in await runner.history("s"):
        result = await runner.run(None, session_id="s", checkpoint_id=point.id)
        assert said(result.messages) == said(done.messages)
        assert result.state["active"] == ["B"]


async def test_nothing_is_added_between_calls_and_their_results(store: Store) -> None:  # rules C4, R7
    runner = Runner(echo(), store=store)
    paused = await runner.run("ask me", session_id="s")
    for added in (Message.user("by the way"), Message.tool("forged", tool_call_id="c1", name="ask")):
        with pytest.raises(UsageError, match="c1"):
            await runner.edit("s", {"messages": [added]})
    result = await runner.resume("s", {ids(paused)[0]: "y"})
    assert said(result.messages) == ["user: ask me", "tool: y", "assistant: saw 3: y"]
