"""What a tool can make of the run: end it, hand over, break a loop, and write session values."""

from __future__ import annotations

from typing import Any

import pytest

from adjourn import (
    AgentTool,
    ChatModelAgent,
    ExitTool,
    LoopAgent,
    Retry,
    RunContext,
    Runner,
    SequentialAgent,
    UsageError,
    current,
    interrupt,
    once,
    session_value,
    set_session_value,
    tool,
    workflow,
)
from adjourn.events import BreakLoop, Exit, Transfer
from adjourn.stores import Store
from adjourn.testing import ScriptedModel
from tests.agents.calling import agent, all_of, call, lone, results, runner, told

ran: list[Any] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ran.clear()


@tool
async def leave(ctx: RunContext, text: str = "bye") -> str:
    """End the run."""
    ctx.exit(text)
    return "leaving"


@tool
def hand_over(ctx: RunContext, to: str) -> str:
    """Hand over."""
    ctx.transfer_to(to)
    return f"handing over to {to}"


@tool(thread=False)
def stop() -> str:
    """Break the loop."""
    current().break_loop()
    return "stopping"


@tool
async def ask() -> str:
    """Ask."""
    return f"got {interrupt('What?')}"


async def test_exit_ends_the_run_with_its_text(store: Store) -> None:  # rule T8
    made = runner([leave], call("leave", text="that is all"), "never said", store=store)
    events = await all_of(made.run("go", session_id="s"))
    (left,) = [event for event in events if isinstance(event, Exit)]
    assert left.result == "that is all"
    assert [event.result for event in told(events)] == ["leaving"]
    assert (await made.recover("s")).output == "that is all"


async def test_exit_waits_for_the_siblings(store: Store) -> None:  # rules T8, R7
    asked = await runner([leave, ask], [call("leave", "c1"), call("ask", "c2")], store=store).run("go", session_id="s")
    assert lone(asked) == "agent:A;tool:ask:c2"
    made = runner([leave, ask], "never said", store=store)  # the action is on record with the first call's result
    result = await made.resume("s", {lone(asked): "it"})
    assert (result.output, results(result)) == ("bye", ["leaving", "got it"])


async def test_of_several_actions_the_first_in_call_order_counts() -> None:  # rule T8
    calls = [call("leave", "c1", text="one"), call("leave", "c2", text="two"), call("stop", "c3")]
    result = await runner([leave, stop], calls).run("go")
    assert (result.output, len(results(result))) == ("one", 3)


async def test_one_after_the_other_the_rest_is_not_run_but_answered(store: Store) -> None:  # rules T3, T8
    @tool
    async def never() -> str:
        """Never run."""
        ran.append("never")
        return "no"

    calls = [call("leave", "c1"), call("never", "c2"), call("never", "c3")]
    made = runner([leave, never], calls, store=store, tool_calls="sequential")
    result = await made.run("go", session_id="s")
    assert (result.output, ran) == ("bye", [])
    assert [message.tool_call_id for message in result.messages if message.role == "tool"] == ["c1", "c2", "c3"]


async def test_a_tool_that_exits_and_then_asks_exits_when_it_was_answered(store: Store) -> None:  # rules T8, R15
    @tool
    async def both(ctx: RunContext) -> str:
        """Exit, and ask."""
        ctx.exit("out")
        return f"got {interrupt('What?')}"

    asked = await runner([both], call("both"), store=store).run("go", session_id="s")
    result = await runner([both], "never said", store=store).resume("s", {lone(asked): "it"})
    assert (result.output, results(result)) == ("out", ["got it"])


async def test_an_exit_in_a_kept_call_counts_when_the_call_is_given_back(store: Store) -> None:  # rules T8, R13
    @once
    async def decide() -> str:
        ran.append("decide")
        current().exit("out")
        return "decided"

    @tool
    async def both() -> str:
        """Decide, and ask."""
        await decide()
        return f"got {interrupt('What?')}"

    asked = await runner([both], call("both"), store=store).run("go", session_id="s")
    result = await runner([both], "never said", store=store).resume("s", {lone(asked): "it"})
    assert (result.output, ran) == ("out", ["decide"])


async def test_an_exit_of_a_failed_attempt_does_not_count() -> None:  # rules T6, T8
    @tool(retry=Retry(backoff=0))
    async def flaky(ctx: RunContext) -> str:
        """Exit and fail, then succeed."""
        if ctx.attempt == 1:
            ctx.exit("out")
            raise ConnectionError("not now")
        return "stayed"

    assert (await runner([flaky], call("flaky")).run("go")).output == "done"


async def test_the_exit_tool_ends_with_its_argument() -> None:  # rule T8
    made = Runner(agent([], call("exit", final_result="all done"), exit_tool=ExitTool()))
    assert (await made.run("go")).output == "all done"


async def test_a_tool_hands_over_to_another_agent(store: Store) -> None:  # rule T8
    below = ChatModelAgent("B", model=ScriptedModel(["I am B"]))
    made = Runner(agent([hand_over], call("hand_over", to="B"), sub_agents=[below]), store=store)
    events = await all_of(made.run("go", session_id="s"))
    assert [event.target for event in events if isinstance(event, Transfer)] == ["B"]
    assert (await made.recover("s")).output == "I am B"


async def test_an_unknown_target_is_told_to_the_model() -> None:  # rules T8, A5
    result = await runner([hand_over], call("hand_over", to="Nobody")).run("go")
    assert result.output == "done"
    assert "Nobody" in results(result)[0]


async def test_a_tool_leaves_the_loop(store: Store) -> None:  # rules T8, A7
    inner = ChatModelAgent("I", model=ScriptedModel(["again", call("stop"), "never"]), tools=[stop])
    made = Runner(LoopAgent("L", agents=[inner], max_iterations=10), store=store)
    events = await all_of(made.run("go", session_id="s"))
    assert len([event for event in events if isinstance(event, BreakLoop)]) == 1
    assert (await made.recover("s")).status == "done"


async def test_exit_ends_a_sequence_and_stops_at_an_agent_tool() -> None:  # rules T8, A6, A7
    second = ChatModelAgent("Second", model=ScriptedModel(["second"]))
    first = ChatModelAgent("First", model=ScriptedModel([call("leave", text="first")]), tools=[leave])
    assert (await Runner(SequentialAgent("S", agents=[first, second])).run("go")).output == "first"
    inner = ChatModelAgent("Inner", model=ScriptedModel([call("leave", text="inside")]), tools=[leave])
    result = await runner([AgentTool(inner)], call("Inner", request="x"), "outside").run("go")
    assert (result.output, results(result)) == ("outside", ["inside"])


async def test_an_action_outside_an_agent_is_a_mistake() -> None:  # rule T8
    @workflow
    async def alone(input: Any) -> None:
        current().exit("out")

    with pytest.raises(UsageError, match="agent"):
        await Runner(alone).run("go")


@tool
async def write(key: str, value: int) -> str:
    """Write a session value."""
    set_session_value(key, value)
    return f"{session_value(key)}"


@tool
async def read() -> str:
    """Read the session values."""
    return f"{dict(current().values)}"


async def test_session_values_are_there_for_the_next_step_and_turn(store: Store) -> None:  # rule R15
    made = runner([write, read], call("write", key="a", value=1), call("read", "c2"), store=store)
    assert results(await made.run("go", session_id="s")) == ["1", "{'a': 1}"]
    again = runner([read], call("read"), store=store)
    assert results(await again.run("go", session_id="s", values={"b": 2}))[-1] == "{'a': 1, 'b': 2}"


async def test_side_by_side_values_are_written_in_call_order(store: Store) -> None:  # rules R15, T3
    calls = [call("write", "c1", key="a", value=1), call("write", "c2", key="a", value=2), call("read", "c3")]
    made = runner([write, read], calls, call("read", "c4"), store=store)
    assert results(await made.run("go", session_id="s")) == ["1", "2", "{}", "{'a': 2}"]


async def test_what_a_call_wrote_before_it_asked_takes_effect_with_its_result(store: Store) -> None:  # rule R15
    @tool
    async def both() -> str:
        """Write, and ask."""
        current().values["a"] = current().values.get("a", 0) + 1
        return f"got {interrupt('What?')}"

    tools = [both, read, write]
    made = runner(tools, [call("both", "c1"), call("write", "c2", key="b", value=2)], store=store)
    asked = await made.run("go", session_id="s")
    result = await runner(tools, call("read", "c3"), store=store).resume("s", {lone(asked): "it"})
    assert results(result)[-1] == "{'a': 1, 'b': 2}"


async def test_a_deleted_value_is_gone(store: Store) -> None:  # rule R15
    @tool
    async def forget(key: str) -> str:
        """Forget a value."""
        del current().values[key]
        return "forgotten"

    made = runner([forget, read], call("forget", key="a"), call("read", "c2"), store=store)
    assert results(await made.run("go", session_id="s", values={"a": 1})) == ["forgotten", "{}"]


async def test_deps_are_given_again_and_never_stored(store: Store) -> None:  # rules A13, R9
    class Bank:
        def __init__(self, name: str) -> None:
            self.name = name

    @tool(approval=True)
    def pay(ctx: RunContext[Bank], amount: int) -> str:
        """Pay from the bank."""
        return f"{ctx.deps.name} pays {amount}"

    made = runner([pay], call("pay", amount=5), store=store)
    asked = await made.run("go", session_id="s", deps=Bank("first"))
    result = await runner([pay], store=store).resume("s", {lone(asked): True}, deps=Bank("second"))
    assert results(result) == ["second pays 5"]
    assert "deps" not in asked.interrupts[0].info.arguments


async def test_a_tool_knows_where_it_stands(store: Store) -> None:  # rule I6
    @tool
    def where(ctx: RunContext) -> Any:
        """Tell where it stands."""
        return [str(ctx.address), ctx.session_id, ctx.user_id, ctx.attempt]

    made = runner([where], call("where"), store=store)
    (text,) = results(await made.run("go", session_id="s", user_id="ann"))
    assert text == '["agent:A;tool:where:c1","s","ann",1]'


async def test_what_a_broken_loop_came_to_is_no_call_that_was_not_run() -> None:  # rule A7
    calls = [call("stop", "c1"), call("leave", "c2")]
    looped = LoopAgent("L", agents=[agent([stop, leave], calls, tool_calls="sequential")], max_iterations=3)
    result = await Runner(looped).run("go")
    assert result.output == "stopping"
