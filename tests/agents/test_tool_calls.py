"""Calls of one message: their ids, side by side or one after the other, and what a pause leaves of them."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from msgspec.structs import replace

from adjourn import ChatModelAgent, Message, Runner, current, interrupt, tool
from adjourn.errors import MaxIterationsExceeded
from adjourn.events import ToolCalled
from adjourn.models import Chunk
from adjourn.stores import Store
from adjourn.testing import FunctionModel, ScriptedModel
from tests.agents.calling import agent, all_of, call, lone, results, runner, told, written

ran: list[Any] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ran.clear()


@tool
async def note(text: str = "") -> str:
    """Note something."""
    ran.append(text)
    return f"noted {text}"


@tool
async def ask(text: str) -> str:
    """Ask somebody."""
    ran.append(text)
    return f"{text}: {interrupt(text)}"


def ids(result: Any) -> list[str]:
    return [each.id for message in result.messages for each in message.tool_calls]


def answered(result: Any) -> list[str | None]:
    return [message.tool_call_id for message in result.messages if message.role == "tool"]


async def test_the_models_own_ids_are_kept(store: Store) -> None:  # rule T2
    result = await runner([note], [call("note", "x"), call("note", "y")], store=store).run("go", session_id="s")
    assert ids(result) == answered(result) == ["x", "y"]


async def test_an_id_that_is_there_twice_gets_a_number_in_the_stored_message_too(store: Store) -> None:  # rule T2
    calls = [call("note", "x", text="1"), call("note", "x", text="2"), call("note", "x", text="3")]
    made = runner([note], calls, store=store)
    result = await made.run("go", session_id="s")
    assert ids(result) == answered(result) == ["x", "x~2", "x~3"]
    assert results(result) == ["noted 1", "noted 2", "noted 3"]
    assert await made.messages("s") == result.messages


async def test_ids_that_look_like_numbered_ones_do_not_collide() -> None:  # rule T2
    calls = [call("note", given) for given in ("x", "x", "x~2", "x~2", "x")]
    result = await runner([note], calls).run("go")
    assert len(set(ids(result))) == 5
    assert ids(result) == answered(result)
    assert ids(result)[:2] == ["x", "x~2"]


async def test_empty_ids_get_one(store: Store) -> None:  # rule T2
    result = await runner([note], [call("note", "")] * 3, call("note", ""), store=store).run("go", session_id="s")
    assert ids(result) == answered(result) == ["call", "call~2", "call~3", "call~4"]


async def test_an_id_of_an_earlier_step_of_the_turn_gets_a_number(store: Store) -> None:  # rule T2
    @tool(approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    asked = await runner([note, pay], call("note", "x"), call("pay", "x"), store=store).run("go", session_id="s")
    assert lone(asked) == "agent:A;tool:pay:x~2"
    made = runner([note, pay], call("note", "x"), store=store)  # as a new process would
    result = await made.resume("s", {lone(asked): True})
    assert ids(result) == answered(result) == ["x", "x~2", "x~3"]


async def test_the_next_turn_may_use_an_id_again(store: Store) -> None:  # rule T2
    made = runner([note], call("note", "x"), "one", call("note", "x"), store=store)
    await made.run("go", session_id="s")
    assert ids(await made.run("go", session_id="s")) == ["x", "x"]


async def test_agents_of_one_transcript_share_the_ids_of_a_turn() -> None:  # rule T2
    to_b, to_a = (call("transfer_to_agent", f"t{name}", agent_name=name) for name in "BA")
    below = ChatModelAgent("B", model=ScriptedModel([call("note", "x"), to_a]), tools=[note])
    above = ChatModelAgent(
        "A", model=ScriptedModel([call("note", "x"), to_b, call("note", "x"), "done"]), tools=[note], sub_agents=[below]
    )
    result = await Runner(above).run("go")
    assert ids(result) == ["x", "tB", "x~2", "tA", "x~3"]


async def test_the_model_sees_the_ids_that_count() -> None:  # rule T2
    model = ScriptedModel([[call("note", "x"), call("note", "x")], "done"])
    await Runner(ChatModelAgent("A", model=model, tools=[note])).run("go")
    _, said, first, second = model.requests[1].messages
    assert [each.id for each in said.tool_calls] == ["x", "x~2"] == [first.tool_call_id, second.tool_call_id]


async def test_calls_of_one_message_run_side_by_side_and_join_in_order() -> None:  # rule T3
    gates = [asyncio.Event() for _ in range(4)]

    @tool
    async def relay(number: int) -> str:
        """Wait for the next one, so that the last one ends first."""
        if number < 3:
            await gates[number + 1].wait()
        gates[number].set()
        ran.append(number)
        return str(number)

    calls = [call("relay", f"c{number}", number=number) for number in range(4)]
    events = await all_of(runner([relay], calls).run("go", session_id="s"))
    assert ran == [3, 2, 1, 0]
    assert [event.result for event in told(events)] == ["3", "2", "1", "0"]  # as they end


async def test_results_stand_in_call_order(store: Store) -> None:  # rules T3, R7
    gate = asyncio.Event()

    @tool
    async def first() -> str:
        """Wait for the second."""
        await gate.wait()
        return "first"

    @tool
    async def second() -> str:
        """Let the first one go."""
        gate.set()
        return "second"

    made = runner([first, second], [call("first", "c1"), call("second", "c2")], store=store)
    assert results(await made.run("go", session_id="s")) == ["first", "second"]


async def test_sync_tools_run_side_by_side_too() -> None:  # rule T3
    together = threading.Barrier(3, timeout=120)

    @tool
    def meet() -> str:
        """Meet the others."""
        together.wait()
        return "met"

    result = await runner([meet], [call("meet", f"c{number}") for number in range(3)]).run("go")
    assert results(result) == ["met"] * 3


async def test_each_call_has_a_frame_of_its_own(store: Store) -> None:  # rules T3, I4, I6
    calls = [call("ask", "c1", text="a"), call("note", "c2", text="n"), call("ask", "c3", text="b")]
    made = runner([ask, note], calls, store=store)
    asked = await made.run("go", session_id="s")
    assert [each.id for each in asked.interrupts] == ["agent:A;tool:ask:c1", "agent:A;tool:ask:c3"]
    assert sorted(ran) == ["a", "b", "n"]
    ran.clear()
    result = await runner([ask, note], store=store).resume("s", {each.id: "ok" for each in asked.interrupts})
    assert sorted(ran) == ["a", "b"]  # what had finished does not run again
    assert results(result) == ["a: ok", "noted n", "b: ok"]


async def test_a_finished_sibling_is_told_once(store: Store) -> None:  # rule R7
    made = runner([ask, note], [call("ask", "c1", text="a"), call("note", "c2")], store=store)
    events = await all_of(made.run("go", session_id="s"))
    assert [event.call_id for event in told(events)] == ["c2"]
    events = await all_of(made.resume("s", {"agent:A;tool:ask:c1": 1}))
    assert [event.call_id for event in told(events)] == ["c1"]
    assert [event.call.id for event in events if isinstance(event, ToolCalled)] == ["c1"]


async def test_one_after_the_other_stops_at_the_first_pause(store: Store) -> None:  # rule T3
    calls = [call("note", "c1", text="1"), call("ask", "c2", text="2"), call("note", "c3", text="3")]
    made = runner([ask, note], calls, store=store, tool_calls="sequential")
    asked = await made.run("go", session_id="s")
    assert (lone(asked), ran) == ("agent:A;tool:ask:c2", ["1", "2"])
    made = runner([ask, note], store=store, tool_calls="sequential")
    result = await made.resume("s", {lone(asked): "ok"})
    assert ran == ["1", "2", "2", "3"]
    assert results(result) == ["noted 1", "2: ok", "noted 3"]


async def test_one_after_the_other_goes_on_after_errors() -> None:  # rules T1, T3
    @tool
    async def fail() -> str:
        """Fail."""
        raise ValueError("broken")

    calls = [call("fail", "c1"), call("nothing", "c2"), call("note", "c3", wrong=1), call("note", "c4", text="4")]
    result = await runner([fail, note], calls, tool_calls="sequential").run("go")
    assert len(results(result)) == 4
    assert (results(result)[3], ran) == ("noted 4", ["4"])


async def test_one_after_the_other_each_sees_what_those_before_wrote(store: Store) -> None:  # rules T3, R15
    @tool
    async def add() -> str:
        """Count."""
        values = current().values
        values["count"] = values.get("count", 0) + 1
        return str(values["count"])

    calls = [call("add", f"c{number}") for number in range(3)]
    assert results(await runner([add], calls, tool_calls="sequential").run("go")) == ["1", "2", "3"]
    assert results(await runner([add], calls, store=store).run("go", session_id="s")) == ["1", "1", "1"]


async def test_a_failure_is_raised_after_its_siblings_finished_and_only_it_runs_again(store: Store) -> None:
    # rules G11, R7, T3
    broken = [True]

    @tool
    async def fail() -> str:
        """Fail at first."""
        ran.append("fail")
        if broken[0]:
            raise ValueError("broken")
        return "mended"

    calls = [call("fail", "c1"), call("note", "c2", text="n"), call("ask", "c3", text="a")]
    made = runner([fail, note, ask], calls, store=store, on_tool_error="raise")
    with pytest.raises(ValueError, match="broken"):
        await made.run("go", session_id="s")
    assert sorted(ran) == ["a", "fail", "n"]
    ran.clear()
    broken[0] = False
    made = runner([fail, note, ask], store=store, on_tool_error="raise")
    result = await made.resume("s", {"agent:A;tool:ask:c3": "ok"})  # rule I10
    assert sorted(ran) == ["a", "fail"]
    assert results(result) == ["mended", "noted n", "a: ok"]


async def test_a_hundred_calls_of_one_message(store: Store) -> None:  # rule T3
    calls = [call("note", f"c{number}", text=str(number)) for number in range(100)]
    result = await runner([note], calls, store=store).run("go", session_id="s")
    assert results(result) == [f"noted {number}" for number in range(100)]


async def test_the_first_of_several_direct_results_counts_and_all_are_told(store: Store) -> None:  # rule A2
    direct = tool(note.fn, name="direct", return_directly=True)
    calls = [call("note", "c1", text="1"), call("direct", "c2", text="2"), call("direct", "c3", text="3")]
    made = runner([direct, note], calls, store=store)
    events = await all_of(made.run("go", session_id="s"))
    assert [event.call_id for event in told(events)] == ["c1", "c3", "c2"]
    assert {event.address for event in told(events)} == {
        "agent:A;tool:note:c1",
        "agent:A;tool:direct:c2",
        "agent:A;tool:direct:c3",
    }
    assert (await made.recover("s")).output == "noted 2"


async def test_a_message_with_text_and_calls_keeps_both() -> None:
    said = Message.assistant("let me see", tool_calls=[call("note")])
    result = await runner([note], said).run("go")
    assert [message.text for message in result.messages] == ["go", "let me see", "noted ", "done"]


async def test_a_model_that_calls_for_ever_is_stopped_and_goes_on_with_a_larger_limit(store: Store) -> None:  # rule A1
    model = FunctionModel(lambda request: call("note"))
    with pytest.raises(MaxIterationsExceeded):
        await Runner(ChatModelAgent("A", model=model, tools=[note], max_iterations=3), store=store).run(
            "go", session_id="s"
        )
    assert len(ran) == 3
    result = await Runner(agent([note]), store=store).recover("s")
    assert (result.status, len(ran), len(set(ids(result)))) == ("done", 3, 3)


async def test_streamed_calls_by_index_keep_their_order() -> None:
    one, two = written("note", '{"text": "1"}', "c1"), written("note", '{"text": "2"}', "c2")
    pieces = [Chunk(tool_calls=tuple(_moved(each, 1) for each in chunk.tool_calls)) for chunk in two[:2]]
    mixed = [one[0], pieces[0], one[1], pieces[1], one[2]]
    events = await all_of(runner([note], mixed).run("go", session_id="s"))
    assert [event.result for event in told(events)] == ["noted 1", "noted 2"]


def _moved(piece: Any, index: int) -> Any:
    return replace(piece, index=index)
