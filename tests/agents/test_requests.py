"""What is to be done: agents that read a request find the user's, not what they are told of others."""

from __future__ import annotations

import json
from typing import Any

from adjourn import Agent, GraphAgent, PlanExecute, Runner, Supervisor, interrupt
from adjourn.graph import MessagesState, StateGraph
from adjourn.stores import Store
from adjourn.testing import ScriptedModel

from .crew import chat, model_of, seen, transfer

STEP = json.dumps({"steps": ["dig"]})
RESPONSE = json.dumps({"response": "dug"})


async def echo(state: MessagesState) -> dict[str, Any]:
    return {"last_response": f"asked for: {state['user_input']}"}


async def ask(state: MessagesState) -> dict[str, Any]:
    return {"last_response": f"{state['user_input']}: {interrupt('ok?')}"}


def graph_agent(node: Any = echo) -> GraphAgent:
    return GraphAgent("G", StateGraph(MessagesState, name="g").add_node("n", node).set_entry_point("n").compile())


def over(*members: Agent) -> Supervisor:
    """A supervisor that hands over to each member in turn."""
    script = [*(transfer(member.name, f"t{number}") for number, member in enumerate(members)), "end"]
    return Supervisor("S", model=ScriptedModel(script), agents=members)


async def test_a_graph_agent_is_given_what_the_user_said(store: Store):  # rule L8
    agent = over(chat("A", "I am A"), graph_agent())
    result = await Runner(agent, store=store).run("build a wall", session_id="s")
    assert "asked for: build a wall" in [message.text for message in result.messages]


async def test_the_goal_of_a_plan_is_what_the_user_said(store: Store):
    planner, executor, replanner = ScriptedModel([STEP]), ScriptedModel(["done"]), ScriptedModel([RESPONSE])
    planning = PlanExecute("P", planner=planner, executor=executor, replanner=replanner)
    await Runner(over(chat("A", "I am A"), planning), store=store).run("dig a hole", session_id="s")
    assert seen(planner.requests[0])[-1].endswith("\ndig a hole")


async def test_a_failed_member_is_no_request(store: Store):  # rule L9
    agent = over(chat("A", ValueError("no")), graph_agent())
    result = await Runner(agent, store=store).run("build a wall", session_id="s")
    assert "asked for: build a wall" in [message.text for message in result.messages]
    assert any("A failed: ModelError" in line for line in seen(model_of(agent).requests[1]))


async def test_a_graph_agent_that_executes_a_plan_is_given_the_step(store: Store):
    planner, replanner = ScriptedModel([STEP]), ScriptedModel([RESPONSE])
    planning = PlanExecute("P", planner=planner, executor=graph_agent(), replanner=replanner)
    result = await Runner(planning, store=store).run("a hole", session_id="s")
    given = next(message.text for message in result.messages if message.text.startswith("asked for: "))
    assert given.endswith("Now do this step: dig")


async def test_a_graph_agent_in_a_tree_goes_on_in_another_runner(store: Store):  # rule R4
    paused = await Runner(over(graph_agent(ask)), store=store).run("wall", session_id="s")
    assert [asked.id for asked in paused.interrupts] == ["agent:S;agent:G;node:n"]
    other = Supervisor("S", model=ScriptedModel(["end"]), agents=[graph_agent(ask)])
    result = await Runner(other, store=store).resume("s", {paused.interrupts[0].id: "yes"})
    assert (result.output, "wall: yes" in [message.text for message in result.messages]) == ("end", True)
