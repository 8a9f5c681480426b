"""Transfer: one agent hands over to another, down and back up, and over turns."""

from __future__ import annotations

from typing import Any

import pytest

from adjourn import ChatModelAgent, MessageEvent, RunContext, Runner, SequentialAgent, Transfer, UsageError, tool
from adjourn.errors import MaxIterationsExceeded, ProgramChanged
from adjourn.stores import Store
from adjourn.testing import FunctionModel

from .crew import ask, call, chat, events_of, ids, kinds, model_of, note, said, seen, transfer


async def test_events_come_in_order_and_have_a_path(store: Store) -> None:  # rule A5
    b = chat("B", "I am B")
    events = await events_of(Runner(chat("A", transfer("B"), sub_agents=[b]), store=store).run("go", session_id="s"))
    assert kinds(events, without=("checkpoint", "delta", "tool_call")) == [
        "message",
        "tool_result",
        "transfer",
        "message",
        "done",
    ]
    handed = next(event for event in events if isinstance(event, Transfer))
    assert (handed.agent, handed.target, handed.address) == ("A", "B", "agent:A")
    last = [event for event in events if isinstance(event, MessageEvent)][-1]
    assert (last.agent, last.path, last.address) == ("B", ("A", "B"), "agent:A;agent:B")


async def test_the_target_sees_what_others_said_as_context(store: Store) -> None:  # rule A4
    b = chat("B", "mine", call("note", text="x"), "end", tools=[note])
    root = chat("A", transfer("B"), sub_agents=[b])
    runner = Runner(root, store=store)
    await runner.run("go", session_id="s")
    shown = seen(model_of(b).requests[0])
    assert shown[-1].startswith("user: For context: tool 'transfer_to_agent'")
    assert all(not line.startswith(("assistant", "tool")) for line in shown)
    await runner.run("more", session_id="s")
    assert seen(model_of(b).requests[-1])[-4:] == ["assistant: mine", "user: more", "assistant: ", "tool: noted x"]


async def test_the_list_of_agents_is_told_and_never_stored() -> None:  # rule A5
    b = chat("B", "ok", description="Knows trains")
    root = chat("A", "hi", sub_agents=[b, chat("C")], instruction="Be kind.")
    result = await Runner(root).run("go")
    first = seen(model_of(root).requests[0])[0]
    assert first.startswith("system: Be kind.")
    assert "B: Knows trains" in first
    assert "- C" in first
    assert "trains" not in "".join(said(result.messages))
    assert [spec.name for spec in model_of(root).requests[0].tools] == ["transfer_to_agent"]


async def test_an_unknown_target_is_told_to_the_model() -> None:  # rule A5
    root = chat("A", transfer("Nobody"), "sorry", sub_agents=[chat("B")])
    result = await Runner(root).run("go")
    assert result.output == "sorry"
    assert "There is no agent 'Nobody'" in said(result.messages)[1]


async def test_the_next_turn_starts_at_the_active_agent(store: Store) -> None:  # rule A5
    def team(*script: Any) -> ChatModelAgent:
        return chat("A", transfer("B"), "root again", sub_agents=[chat("B", *script)])

    await Runner(team("one"), store=store).run("go", session_id="s")
    runner = Runner(team("two"), store=store)
    assert (await runner.state("s"))["active"] == ["B"]
    result = await runner.run("more", session_id="s")
    assert (result.output, result.state["active"]) == ("two", ["B"])


async def test_the_next_turn_may_start_at_the_root(store: Store) -> None:  # rule A5
    team = chat("A", transfer("B"), "root again", sub_agents=[chat("B", "one")])
    runner = Runner(team, store=store, after_transfer="root")
    await runner.run("go", session_id="s")
    result = await runner.run("more", session_id="s")
    assert (result.output, result.state["active"]) == ("root again", [])


async def test_back_at_the_root_the_address_is_the_roots(store: Store) -> None:  # rule I6
    b = chat("B", transfer("A", "t2"))
    root = chat("A", transfer("B"), call("ask", "c3", question="?"), "end", sub_agents=[b], tools=[ask])
    runner = Runner(root, store=store)
    paused = await runner.run("go", session_id="s")
    assert ids(paused) == ["agent:A;tool:ask:c3"]
    assert paused.state["active"] == []
    events = await events_of(runner.resume("s", {"agent:A;tool:ask:c3": "y"}))
    message = [event for event in events if isinstance(event, MessageEvent)][-1]
    assert (message.path, message.address) == (("A", "B", "A"), "agent:A")


async def test_a_target_that_asks_stands_where_it_is_in_the_tree(store: Store) -> None:  # rule I6
    def team(*script: Any) -> ChatModelAgent:
        c = chat("C", *script, tools=[ask])
        return chat("A", transfer("B"), sub_agents=[chat("B", transfer("C"), sub_agents=[c])])

    paused = await Runner(team(call("ask", question="?")), store=store).run("go", session_id="s")
    assert ids(paused) == ["agent:A;agent:B;agent:C;tool:ask:c1"]
    again = team("end", "next turn")
    result = await Runner(again, store=store).resume("s", dict.fromkeys(ids(paused), "y"))
    assert (result.output, result.state["active"]) == ("end", ["B", "C"])
    result = await Runner(again, store=store).run("more", session_id="s")
    assert (result.output, result.state["active"]) == ("next turn", ["B", "C"])


async def test_ping_pong_does_not_nest_and_ends(store: Store) -> None:  # rule A5
    rounds = 5
    b = chat("B", *[transfer("A", f"b{n}") for n in range(rounds)])
    root = chat(
        "A", *[transfer("B", f"a{n}") for n in range(rounds)], "enough", sub_agents=[b], max_iterations=rounds + 1
    )
    events = await events_of(Runner(root, store=store).run("go", session_id="s"))
    assert {event.address for event in events if isinstance(event, MessageEvent)} == {"agent:A", "agent:A;agent:B"}
    assert sum(isinstance(event, Transfer) for event in events) == 2 * rounds


async def test_endless_ping_pong_ends_at_the_limit() -> None:  # rule A1
    b = ChatModelAgent("B", model=FunctionModel(lambda _: transfer("A")))
    root = ChatModelAgent("A", model=FunctionModel(lambda _: transfer("B")), sub_agents=[b], max_iterations=4)
    with pytest.raises(MaxIterationsExceeded, match="'A'"):
        await Runner(root).run("go")


async def test_ids_used_by_another_agent_in_the_turn_are_not_used_again(store: Store) -> None:  # rule T2
    b = chat("B", call("note", "x", text="b"), transfer("A", "t2"), tools=[note])
    root = chat(
        "A",
        call("note", "y", text="a"),
        transfer("B"),
        call("note", "x", text="c"),
        "end",
        sub_agents=[b],
        tools=[note],
    )
    result = await Runner(root, store=store).run("go", session_id="s")
    used = [each.id for message in result.messages for each in message.tool_calls]
    assert len(set(used)) == len(used), used


async def test_handing_back_can_be_forbidden() -> None:  # rule A5
    b = chat("B", transfer("A"), "I stay", disallow_transfer_to_parent=True, sub_agents=[chat("C")])
    result = await Runner(chat("A", transfer("B"), sub_agents=[b])).run("go")
    assert result.output == "I stay"
    assert "transfer_to_agent" in [spec.name for spec in model_of(b).requests[0].tools]


async def test_an_agent_without_anybody_to_hand_to_has_no_such_tool() -> None:  # rule A5
    b = chat("B", "ok", disallow_transfer_to_parent=True)
    await Runner(chat("A", transfer("B"), sub_agents=[b])).run("go")
    assert model_of(b).requests[0].tools == ()


async def test_a_tool_may_hand_over_and_its_result_stays(store: Store) -> None:  # rule T8
    @tool
    async def pass_on(ctx: RunContext) -> str:
        """Pass it on."""
        ctx.transfer_to("B")
        return "passed"

    root = chat("A", call("pass_on"), tools=[pass_on], sub_agents=[chat("B", "got it")])
    result = await Runner(root, store=store).run("go", session_id="s")
    assert result.output == "got it"
    assert "tool: passed" in said(result.messages)


async def test_a_batch_finishes_before_the_transfer(store: Store) -> None:  # rule A5
    root = chat("A", [transfer("B"), call("ask", "c2", question="?")], tools=[ask], sub_agents=[chat("B", "got it")])
    runner = Runner(root, store=store)
    paused = await runner.run("go", session_id="s")
    assert ids(paused) == ["agent:A;tool:ask:c2"]
    again = Runner(chat("A", tools=[ask], sub_agents=[chat("B", "got it")]), store=store)
    assert (await again.resume("s", {"agent:A;tool:ask:c2": "y"})).output == "got it"


async def test_of_two_transfers_the_first_counts() -> None:  # rule A5
    root = chat("A", [transfer("C", "t1"), transfer("B", "t2")], sub_agents=[chat("B", "b"), chat("C", "c")])
    assert (await Runner(root).run("go")).output == "c"


async def test_the_active_agent_that_is_gone_is_named(store: Store) -> None:  # rule R10
    await Runner(chat("A", transfer("B"), sub_agents=[chat("B", "one")]), store=store).run("go", session_id="s")
    without = Runner(chat("A", "root", sub_agents=[chat("C")]), store=store)
    with pytest.raises(ProgramChanged, match="B"):
        await without.run("more", session_id="s")
    rooted = Runner(chat("A", "root", sub_agents=[chat("C")]), store=store, after_transfer="root")
    assert (await rooted.run("more", session_id="s")).output == "root"


@pytest.mark.parametrize("name", ["tools", "model", "after", "run", "~", "a;b:c%#", "Zoë 🚆"])
async def test_a_sub_agent_may_have_any_name(store: Store, name: str) -> None:  # rule I6
    b = chat(name, call("ask", question="?"), "end", tools=[ask])
    runner = Runner(chat("A", transfer(name), sub_agents=[b]), store=store)
    paused = await runner.run("go", session_id="s")
    again = Runner(chat("A", sub_agents=[chat(name, "end", tools=[ask])]), store=store)
    result = await again.resume("s", dict.fromkeys(ids(paused), "y"))
    assert result.output == "end"
    assert [message.role for message in result.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]


async def test_handing_over_to_a_row_of_agents(store: Store) -> None:  # rule A5
    row = SequentialAgent("Row", agents=[chat("X", "x"), chat("Y", call("ask", question="?"), "y", "y2", tools=[ask])])
    runner = Runner(chat("A", transfer("Row"), sub_agents=[row]), store=store)
    paused = await runner.run("go", session_id="s")
    assert ids(paused) == ["agent:A;agent:Row;agent:Y;tool:ask:c1"]
    assert (await runner.resume("s", dict.fromkeys(ids(paused), "ok"))).output == "y"


def test_two_agents_of_one_name_are_refused() -> None:
    with pytest.raises(UsageError, match="'B'"):
        chat("A", sub_agents=[chat("B"), chat("C", sub_agents=[chat("B")])])


async def test_one_object_may_stand_at_several_places(store: Store) -> None:
    shared = chat("S", "one", "two")
    row = SequentialAgent("Row", agents=[shared, SequentialAgent("Inner", agents=[shared])])
    result = await Runner(row, store=store).run("go", session_id="s")
    assert said(result.messages) == ["user: go", "assistant: one", "assistant: two"]


async def test_time_travel_restores_the_active_agent(store: Store) -> None:  # rule C4
    b = chat("B", "one", transfer("A", "t2"), "from B again")
    root = chat("A", transfer("B"), "A again", sub_agents=[b])
    runner = Runner(root, store=store)
    first = await runner.run("go", session_id="s")
    second = await runner.run("back", session_id="s")
    assert (first.state["active"], second.state["active"], second.output) == (["B"], [], "A again")
    copy = await runner.fork("s", checkpoint_id=first.checkpoint_id)
    assert (await runner.state(copy))["active"] == ["B"]
    assert (await runner.run("hello", session_id=copy)).output == "from B again"
    assert (await runner.state("s"))["active"] == []
