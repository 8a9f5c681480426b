"""Custom agents that hand over and back, and agents under another name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from adjourn import (
    Agent,
    ChatModelAgent,
    ExitTool,
    Middleware,
    RunContext,
    Runner,
    SequentialAgent,
    Supervisor,
    Transfer,
    UsageError,
    interrupt,
)
from adjourn.agents import AgentInput
from adjourn.errors import LimitExceeded
from adjourn.events import Event
from adjourn.stores import Store

from .crew import ask, call, chat, events_of, ids, kinds, model_of, said, seen, transfer
from .test_custom import Coded, say


class Desk(Agent):
    """A custom agent that asks whom to hand over to."""

    name = "Desk"
    description = "asks"

    def __init__(self, *agents: Agent, target: str | None = None) -> None:
        self.sub_agents = agents
        self.target = target

    async def run(self, input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
        yield say(f"{input.text}?")
        ctx.transfer_to(self.target or interrupt("to whom?", schema=str))


async def test_code_hands_over_and_the_next_turn_begins_there(store: Store) -> None:  # rule A5
    paused = await Runner(Desk(chat("Sales"), chat("Help")), store=store).run("hi", session_id="s")
    assert ids(paused) == ["agent:Desk"]
    runner = Runner(Desk(chat("Sales"), chat("Help", "helped")), store=store)
    events = await events_of(runner.resume("s", {"agent:Desk": "Help"}))
    assert kinds(events) == ["transfer", "message", "done"]
    assert [event.target for event in events if isinstance(event, Transfer)] == ["Help"]
    assert next(event.path for event in events if event.agent == "Help") == ("Desk", "Help")
    assert (await runner.state("s"))["active"] == ["Help"]
    again = Runner(Desk(chat("Sales"), chat("Help", "again")), store=store)
    assert (await again.run("more", session_id="s")).output == "again"
    assert said(await again.messages("s")) == [
        *("user: hi", "assistant: hi?", "assistant: helped", "user: more", "assistant: again")
    ]


async def test_an_agent_below_hands_back_and_the_code_runs_again(store: Store) -> None:  # rule A5
    class Front(Agent):
        name = "Front"

        def __init__(self, *agents: Agent) -> None:
            self.sub_agents = agents

        async def run(self, input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
            if any("nothing for me" in message.text for message in input.messages):
                yield say("so I do it")
            else:
                yield say("over to you")
                ctx.transfer_to("Back")

    front = Front(chat("Back", call("ask", question="?"), [transfer("Front")], tools=[ask]))
    paused = await Runner(front, store=store).run("go", session_id="s")
    assert ids(paused) == ["agent:Front;agent:Back;tool:ask:c1"]
    front = Front(chat("Back", [transfer("Front")], tools=[ask]))
    result = await Runner(front, store=store).resume("s", {ids(paused)[0]: "nothing for me"})
    assert result.output == "so I do it"
    assert (await Runner(front, store=store).state("s"))["active"] == []


async def test_a_custom_agent_hands_back_to_a_chat_agent(store: Store) -> None:  # rule A5
    async def code(input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
        yield say("not my job")
        ctx.transfer_to("Top")

    top = chat("Top", [transfer("Mine")], "then I do it", sub_agents=[Coded(code)])
    events = await events_of(Runner(top, store=store).run("go", session_id="s"))
    assert [event.target for event in events if isinstance(event, Transfer)] == ["Mine", "Top"]
    result = await Runner(top, store=store).recover("s")
    assert result.output == "then I do it"
    assert "user: For context: Mine said: not my job" in seen(model_of(top).requests[-1])


async def test_a_supervisor_gets_the_turn_back_from_custom_members(store: Store) -> None:  # rule L9
    async def code(input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
        yield say(str(interrupt("?")))

    def boss(*script: Any) -> Supervisor:
        return Supervisor("Boss", model=model_of(chat("x", *script)), agents=[Coded(code)])

    paused = await Runner(boss([transfer("Mine")]), store=store).run("go", session_id="s")
    result = await Runner(boss("fine"), store=store).resume("s", dict.fromkeys(ids(paused), "done"))
    assert result.output == "fine"


async def test_handing_over_to_nobody_names_those_that_there_are() -> None:
    with pytest.raises(UsageError, match="There are: Sales"):
        await Runner(Desk(chat("Sales"), target="Nobody")).run("hi")


async def test_children_that_code_runs_cannot_hand_back_to_it() -> None:  # rule A5
    child = chat("Child", "x")

    async def code(input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
        yield say(await ctx.run(child, "y"))

    await Runner(Coded(code)).run("go")
    assert model_of(child).requests[0].tools == ()


# One agent inside of another's code


class Around(Agent):
    """A custom agent that lets another one speak in the same conversation."""

    name = "Around"
    description = "A shell"

    def __init__(self, inner: Agent) -> None:
        self.inner = inner

    async def run(self, input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
        await ctx.run(self.inner)
        for event in ():
            yield event


async def test_code_that_only_runs_another_agent_says_nothing_twice(store: Store) -> None:  # rule A15
    def around(*script: Any) -> Around:
        return Around(chat("Inner", *script, tools=[ask]))

    paused = await Runner(around(call("ask", question="?")), store=store).run("go", session_id="s")
    assert ids(paused) == ["agent:Around;agent:Inner;tool:ask:c1"]
    last = around("the end")
    result = await Runner(last, store=store).resume("s", dict.fromkeys(ids(paused), "yes"))
    assert result.output == "the end"
    assert said(result.messages) == ["user: go", "tool: yes", "assistant: the end"]
    turn = await Runner(around("again"), store=store).run("more", session_id="s")
    assert said(turn.messages)[3:] == ["user: more", "assistant: again"]


# Another name


def helper(*script: Any, **options: Any) -> Agent:
    return chat("Inner", *script, tools=[ask], **options).renamed("Helpdesk", description="Helps")


async def test_a_renamed_agent_is_the_same_agent(store: Store) -> None:  # rule A15
    paused = await Runner(helper(call("ask", question="?")), store=store).run("go", session_id="s")
    assert ids(paused) == ["agent:Helpdesk;agent:Inner;tool:ask:c1"]
    result = await Runner(helper("the end"), store=store).resume("s", dict.fromkeys(ids(paused), "yes"))
    assert result.output == "the end"
    assert said(result.messages) == ["user: go", "tool: yes", "assistant: the end"]
    again = Runner(helper("again"), store=store)
    events = await events_of(again.run("more", session_id="s"))
    assert {event.path for event in events if event.agent == "Inner"} == {("Helpdesk", "Inner")}


async def test_a_renamed_agent_returns_its_value_and_its_exit() -> None:
    typed = chat("Inner", '{"value": [1, 2]}', output_type=list[int]).renamed("Numbers")
    assert (await Runner(typed).run("go")).value == [1, 2]
    leaving = chat("Inner", call("exit", final_result="out"), exit_tool=ExitTool()).renamed("Leaver")
    row = SequentialAgent("Row", agents=[leaving, chat("Never")])
    assert (await Runner(row).run("go")).output == "out"


async def test_a_renamed_agent_is_handed_over_to_and_hands_back(store: Store) -> None:  # rule A5
    def top(*script: Any, inner: Sequence[Any] = ()) -> ChatModelAgent:
        return chat("Top", *script, sub_agents=[helper(*inner)])

    first = top([transfer("Helpdesk")], inner=["hello"])
    result = await Runner(first, store=store).run("go", session_id="s")
    assert result.output == "hello"
    (spec,) = model_of(first).requests[0].tools
    assert "Helpdesk" in spec.description
    assert result.state["active"] == ["Helpdesk"]
    second = top("back at the top", inner=[[transfer("Top", "t2")]])
    result = await Runner(second, store=store).run("more", session_id="s")
    assert (result.output, result.state["active"]) == ("back at the top", [])


async def test_an_agent_below_a_renamed_one_keeps_the_turn(store: Store) -> None:  # rule A5
    def tree(*script: Any, deep: Sequence[Any] = ()) -> Agent:
        return chat("Inner", *script, sub_agents=[chat("Deep", *deep)]).renamed("Shell")

    result = await Runner(tree([transfer("Deep")], deep=["one"]), store=store).run("go", session_id="s")
    assert (result.output, result.state["active"]) == ("one", ["Deep"])
    result = await Runner(tree(deep=["two"]), store=store).run("more", session_id="s")
    assert result.output == "two"
    back = await Runner(tree("three", deep=[[transfer("Inner")]]), store=store).run("back", session_id="s")
    assert (back.output, back.state["active"]) == ("three", [])


async def test_a_renamed_agent_needs_a_name_of_its_own() -> None:
    with pytest.raises(UsageError, match="called 'Inner'"):
        chat("Inner").renamed("Inner")
    with pytest.raises(UsageError, match="'Inner' cannot be renamed to ''"):
        chat("Inner").renamed("")


async def test_a_renamed_agent_is_a_tool_under_that_name() -> None:
    tool = helper("inner says").as_tool()
    assert (tool.name, tool.description) == ("Helpdesk", "Helps")
    top = chat("Top", call("Helpdesk", request="please"), "done", tools=[tool])
    result = await Runner(top).run("go")
    assert "tool: inner says" in said(result.messages)


async def test_code_that_hands_over_forever_is_stopped(store: Store) -> None:  # rule A1
    class Back(Agent):
        name = "Back"

        async def run(self, input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
            ctx.transfer_to("Front")
            return
            yield

    class Front(Agent):
        name = "Front"
        max_handovers = 3

        def __init__(self) -> None:
            self.sub_agents = (Back(),)

        async def run(self, input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
            if len(ctx.values.setdefault("runs", [])) < 5:
                ctx.values["runs"] = [*ctx.values["runs"], 1]
                ctx.transfer_to("Back")
            yield say("done")

    with pytest.raises(LimitExceeded, match=r"limit of 3 handovers in this turn.*`max_handovers = \.\.\.`") as caught:
        await Runner(Front(), store=store).run("go", session_id="s")
    assert (caught.value.agent, caught.value.what) == ("Front", "handovers")
    Front.max_handovers = 5
    assert (await Runner(Front(), store=store).recover("s")).output == "done"


async def test_middleware_of_a_custom_agent_is_refused() -> None:
    class Hooked(Desk):
        middleware = (Middleware(),)

    with pytest.raises(UsageError, match="Hooked has `middleware`"):
        await Runner(Hooked(chat("Help"))).run("go")
