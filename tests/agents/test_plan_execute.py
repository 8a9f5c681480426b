"""PlanExecute: a plan is made, its steps are done one by one, and looked at again after each."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec import Struct
from pydantic import BaseModel

from adjourn import (
    Agent,
    ChatModelAgent,
    GraphAgent,
    LoopAgent,
    Message,
    MessageEvent,
    PlanExecute,
    RunContext,
    Runner,
    SequentialAgent,
    Supervisor,
    UsageError,
)
from adjourn.agents import AgentInput, Plan, Prompts, Replan
from adjourn.errors import ModelError
from adjourn.events import Event
from adjourn.graph import START, MessagesState, StateGraph
from adjourn.stores import Store
from adjourn.testing import FunctionModel, ScriptedModel
from adjourn.tools import ExitTool

from .crew import ask, call, chat, events_of, ids, model_of, said, seen, transfer


def plan(*steps: Any) -> str:
    """What a planner says."""
    return json.dumps({"steps": steps})


def respond(text: str) -> str:
    """What a replanner says in the end."""
    return json.dumps({"response": text})


def scripted(*script: Any) -> ScriptedModel:
    return ScriptedModel(script)


def team(
    planner: tuple[Any, ...] = (), executor: tuple[Any, ...] = (), replanner: tuple[Any, ...] = (), **options: Any
) -> PlanExecute:
    """A plan-execute agent all of whose parts may ask a person."""
    return PlanExecute(
        "P",
        planner=chat("Planner", *planner, tools=[ask], output_type=Plan),
        executor=chat("Executor", *executor, tools=[ask]),
        replanner=chat("Replanner", *replanner, tools=[ask], output_type=Replan),
        **options,
    )


def last_told(agent: Agent) -> list[str]:
    """What the model of an agent was told last, each time that it was asked."""
    assert isinstance(agent, ChatModelAgent)
    return [request.messages[-1].text for request in model_of(agent).requests]


async def test_each_part_may_be_a_model(store: Store) -> None:  # rule L9
    agent = PlanExecute(
        "P",
        planner=scripted(plan("one", "two")),
        executor=scripted("did one", "did two"),
        replanner=scripted(plan("two"), respond("all is done")),
    )
    result = await Runner(agent, store=store).run("the goal", session_id="s")
    assert result.output == "all is done"
    assert last_told(agent.planner) == [
        "Make a short plan for this goal, as steps that each can be done and checked:\nthe goal"
    ]
    first, second = last_told(agent.executor)
    assert first.startswith("The goal is: the goal\nThe plan is:\n1. one\n2. two\nDone so far:\nnothing\n")
    assert first.endswith("Now do this step: one")
    assert "Done so far:\n- one: did one\n" in second
    assert second.endswith("Now do this step: two")
    assert "Done so far:\n- one: did one\n- two: did two\n" in last_told(agent.replanner)[1]


async def test_the_answer_is_the_last_message(store: Store) -> None:
    agent = team((plan("one"),), ("did one",), (respond("done"),))
    events = await events_of(Runner(agent, store=store).run("go", session_id="s"))
    messages = [event for event in events if isinstance(event, MessageEvent)]
    assert [event.agent for event in messages] == ["Planner", "Executor", "Replanner", "P"]
    assert (messages[-1].message.text, messages[-1].address, messages[-1].path) == ("done", "agent:P", ("P",))
    assert messages[1].address == "agent:P;agent:Executor"


async def test_it_ends_at_its_limit_with_what_there_is(store: Store) -> None:  # rule L9
    executor, replanner = FunctionModel(lambda _: "did it"), FunctionModel(lambda _: plan("again", "and again"))
    agent = PlanExecute("P", planner=scripted(plan("x")), executor=executor, replanner=replanner, max_iterations=3)
    result = await Runner(agent, store=store).run("go", session_id="s")
    assert result.output == "Stopped after 3 steps, with 2 still to do. The last one gave: did it"
    assert said(result.messages)[-1] == f"assistant: {result.output}"
    assert (len(executor.requests), len(replanner.requests)) == (3, 3)


async def test_the_limit_counts_in_each_turn_anew(store: Store) -> None:  # rule L9
    agent = team((plan("a"), plan("b")), ("A", "B"), (respond("one"), respond("two")), max_iterations=1)
    runner = Runner(agent, store=store)
    assert (await runner.run("first", session_id="s")).output == "one"
    assert (await runner.run("second", session_id="s")).output == "two"
    assert last_told(agent.planner)[1].endswith("second")
    assert "Done so far:\nnothing" in last_told(agent.executor)[1]


async def test_a_replanner_that_leaves_nothing_ends_it_with_the_last_result() -> None:  # rule L9
    result = await Runner(team((plan("one"),), ("did one",), (plan(),))).run("go")
    assert result.output == "did one"


async def test_an_empty_response_is_none() -> None:
    filled = json.dumps({"steps": ["two"], "response": ""})
    result = await Runner(team((plan("one"),), ("did one", "did two"), (filled, respond("")))).run("go")
    assert result.output == "did two"


async def test_a_planner_that_gives_no_plan_leaves_it_to_the_replanner(store: Store) -> None:  # rule L9
    agent = team((plan(),), ("did one",), (plan("one"), respond("done")))
    result = await Runner(agent, store=store).run("go", session_id="s")
    assert result.output == "done"
    assert len(last_told(agent.executor)) == 1
    result = await Runner(team((plan(),), (), (respond("hello to you"),)), store=store).run("hi", session_id="t")
    assert result.output == "hello to you"


async def test_nothing_to_do_and_nothing_to_say_ends_all_the_same() -> None:
    result = await Runner(team((plan(),), (), (plan(),))).run("go")
    assert (result.status, result.output) == ("done", "")


async def test_a_plan_of_the_wrong_form_is_told_to_the_planner(store: Store) -> None:
    agent = team(("I would say", plan("one")), ("did one",), (respond("done"),))
    assert (await Runner(agent, store=store).run("go", session_id="s")).output == "done"
    assert "does not fit" in last_told(agent.planner)[1]


async def test_a_planner_without_a_plan_fails_and_is_recovered(store: Store) -> None:  # rule A7
    with pytest.raises(ModelError, match="Planner"):
        await Runner(team(("no", "plan", "here")), store=store).run("go", session_id="s")
    again = team((plan("one"),), ("did one",), (respond("done"),))
    assert (await Runner(again, store=store).recover("s")).output == "done"


async def test_the_parts_may_be_any_agents(store: Store) -> None:  # rule A7
    class Talks(Agent):
        def __init__(self, name: str) -> None:
            self.name = name

        async def run(self, input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
            yield MessageEvent(message=Message.assistant(f"{self.name} of {input.text}"))

    async def work(state: Any) -> dict[str, str]:
        return {"last_response": f"worked on {state['user_input']}"}

    graph = StateGraph(MessagesState, name="g").add_node("work", work).add_edge(START, "work").compile()
    agent = PlanExecute(
        "P",
        planner=Talks("Step"),
        executor=GraphAgent("Graph", graph),
        replanner=Talks("Answer"),
        prompts=Prompts(plan="{goal}", execute="[{step}]", replan="{done}"),
    )
    result = await Runner(agent, store=store).run("g", session_id="s")
    assert result.output == "Answer of - Step of g: worked on [Step of g]"


async def test_parts_that_are_workflows_give_their_last_ones_plan(store: Store) -> None:  # rule A7
    agent = PlanExecute(
        "P",
        planner=SequentialAgent("Row", agents=[chat("Think", "hm"), chat("Write", plan("one"), output_type=Plan)]),
        executor=LoopAgent("Loop", agents=[chat("Try", "x", "y")], max_iterations=2),
        replanner=scripted(respond("done")),
    )
    assert (await Runner(agent, store=store).run("go", session_id="s")).output == "done"
    assert "- one: y" in last_told(agent.replanner)[0]


class Step(Struct):
    what: str
    minutes: int


class Steps(Struct):
    steps: list[Step]


class Either(BaseModel):
    steps: list[str] = []
    response: dict[str, int] | None = None


async def test_plans_may_be_of_other_types(store: Store) -> None:  # rule L9
    agent = PlanExecute(
        "P",
        planner=chat("Planner", plan({"what": "dig", "minutes": 3}), output_type=Steps),
        executor=scripted("dug"),
        replanner=chat("Replanner", json.dumps({"response": {"holes": 1}}), output_type=Either),
    )
    result = await Runner(agent, store=store).run("go", session_id="s")
    assert result.output == '{"holes":1}'
    assert last_told(agent.executor)[0].endswith('Now do this step: {"what":"dig","minutes":3}')


async def test_a_plan_may_be_a_list_and_a_replan_one_of_two() -> None:
    agent = PlanExecute(
        "P",
        planner=chat("Planner", '{"value": ["one"]}', output_type=list[str]),
        executor=scripted("did one", "did two"),
        replanner=chat("Replanner", '{"value": ["two"]}', '{"value": "the answer"}', output_type=list[str] | str),
    )
    result = await Runner(agent).run("go")
    assert result.output == "the answer"
    assert last_told(agent.executor)[1].endswith("Now do this step: two")


async def test_what_a_model_wrote_is_never_a_template() -> None:
    agent = PlanExecute(
        "P",
        planner=scripted(plan("{goal} {done}")),
        executor=scripted("{step}"),
        replanner=scripted(respond("{plan}")),
        prompts=Prompts(execute="{step} {other}", replan="{done}"),
    )
    assert (await Runner(agent).run("{step}")).output == "{plan}"
    assert last_told(agent.executor) == ["{goal} {done} {other}"]
    assert last_told(agent.replanner) == ["- {goal} {done}: {step}"]


async def test_a_pause_in_each_part(store: Store) -> None:  # rules R7, I6
    def again(**parts: Any) -> Runner:
        return Runner(team(**parts), store=store)

    paused = await again(planner=(call("ask", question="what?"),)).run("go", session_id="s")
    assert ids(paused) == ["agent:P;agent:Planner;tool:ask:c1"]
    second = again(planner=(plan("one", "two"),), executor=(call("ask", "c2", question="how?"),))
    paused = await second.resume("s", dict.fromkeys(ids(paused), "this"))
    assert ids(paused) == ["agent:P;agent:Executor;tool:ask:c2"]
    third = again(executor=("did one",), replanner=(call("ask", "c3", question="go on?"),))
    paused = await third.resume("s", dict.fromkeys(ids(paused), "so"))
    assert ids(paused) == ["agent:P;agent:Replanner;tool:ask:c3"]
    last = team(replanner=(plan("two"), respond("done")), executor=("did two",))
    result = await Runner(last, store=store).resume("s", dict.fromkeys(ids(paused), "yes"))
    assert result.output == "done"
    assert "The goal is: go\nThe plan is:\n1. two\nDone so far:\n- one: did one\n" in last_told(last.executor)[0]


async def test_several_questions_at_once_in_one_step(store: Store) -> None:  # rule R7
    calls = [call("ask", "c1", question="a?"), call("ask", "c2", question="b?")]
    paused = await Runner(team((plan("one"),), (calls,)), store=store).run("go", session_id="s")
    assert len(ids(paused)) == 2
    runner = Runner(team((), ("did one",), (respond("done"),)), store=store)
    paused = await runner.resume("s", {ids(paused)[1]: "B"})
    assert ids(paused) == ["agent:P;agent:Executor;tool:ask:c1"]
    result = await runner.resume("s", dict.fromkeys(ids(paused), "A"))
    assert [line for line in said(result.messages) if line.startswith("tool")] == ["tool: A", "tool: B"]


async def test_a_pause_in_each_of_many_steps(store: Store) -> None:  # rule R7
    steps = [f"s{n}" for n in range(5)]
    paused = await Runner(team((plan(*steps),), (call("ask", question="0"),)), store=store).run("go", session_id="s")
    for number in range(4):
        following = team((), (f"did {number}", call("ask", f"c{number}", question="?")), (plan(*steps[number + 1 :]),))
        paused = await Runner(following, store=store).resume("s", dict.fromkeys(ids(paused), "y"))
    last = team((), ("did 4",), (respond("done"),))
    assert (await Runner(last, store=store).resume("s", dict.fromkeys(ids(paused), "y"))).output == "done"
    done = "\n".join(f"- s{n}: did {n}" for n in range(5))
    assert f"Done so far:\n{done}\n" in last_told(last.replanner)[0]


@pytest.mark.parametrize("part", ["planner", "executor", "replanner"])
async def test_a_failure_in_a_part_is_recovered_there(store: Store, part: str) -> None:  # rules R7, A7
    parts: dict[str, tuple[Any, ...]] = {
        "planner": (plan("one"),),
        "executor": ("did one",),
        "replanner": (respond("done"),),
    }
    order = list(parts)
    broken = {**parts, part: (ModelError("down", retryable=False),)}
    with pytest.raises(ModelError, match="down"):
        await Runner(team(**broken), store=store).run("go", session_id="s")
    left = {name: parts[name] for name in order[order.index(part) :]}
    assert (await Runner(team(**left), store=store).recover("s")).output == "done"


async def test_an_exit_in_the_executor_ends_all(store: Store) -> None:  # rule A7
    executor = chat("Executor", call("exit", final_result="over"), tools=[ExitTool()])
    agent = PlanExecute("P", planner=scripted(plan("one", "two")), executor=executor, replanner=scripted())
    row = SequentialAgent("Row", agents=[agent, chat("Last", "never")])
    assert (await Runner(row, store=store).run("go", session_id="s")).output == "over"


async def test_as_a_member_of_a_supervisor(store: Store) -> None:  # rules L9, I6
    def company(*script: Any, **parts: Any) -> tuple[Supervisor, PlanExecute]:
        agent = team(**parts)
        return Supervisor("Boss", model=ScriptedModel(script), agents=[agent]), agent

    boss, agent = company(transfer("P"), planner=(plan("one"),), executor=(call("ask", question="?"),))
    paused = await Runner(boss, store=store).run("the goal", session_id="s")
    assert ids(paused) == ["agent:Boss;agent:P;agent:Executor;tool:ask:c1"]
    assert last_told(agent.planner)[0].endswith(":\nthe goal")
    boss, _ = company("summed up", executor=("did one",), replanner=(respond("done"),))
    result = await Runner(boss, store=store).resume("s", dict.fromkeys(ids(paused), "y"))
    assert result.output == "summed up"
    told = seen(model_of(boss).requests[0])
    assert told[-1] == "user: For context: P said: done"
    assert [line for line in told if line.startswith("user") and "For context" not in line] == ["user: the goal"]


async def test_as_a_tool(store: Store) -> None:  # rule A6
    def outer(*script: Any, **parts: Any) -> Runner:
        return Runner(chat("A", *script, tools=[team(**parts)]), store=store)

    first = outer(call("P", "p1", request="the goal"), planner=(plan("one"),), executor=(call("ask", question="?"),))
    paused = await first.run("go", session_id="s")
    assert ids(paused) == ["agent:A;tool:P:p1;agent:P;agent:Executor;tool:ask:c1"]
    second = outer("end", executor=("did one",), replanner=(respond("done"),))
    result = await second.resume("s", dict.fromkeys(ids(paused), "y"))
    assert said(result.messages) == ["user: go", "tool: done", "assistant: end"]
    assert result.state["values"] == {}


async def test_twice_at_once_as_a_tool_each_has_its_plan(store: Store) -> None:  # rule A6
    def parts(name: str) -> FunctionModel:
        def answer(request: Any) -> str:
            goal = next(line for line in request.messages[0].text.splitlines() if line in ("G1", "G2"))
            return {"plan": plan(f"step of {goal}"), "replan": respond(f"reached {goal}")}.get(name, f"did {goal}")

        return FunctionModel(answer)

    agent = PlanExecute("P", planner=parts("plan"), executor=parts("do"), replanner=parts("replan"))
    calls = [call("P", "p1", request="G1"), call("P", "p2", request="G2")]
    result = await Runner(chat("A", calls, "end", tools=[agent]), store=store).run("go", session_id="s")
    assert said(result.messages) == ["user: go", "tool: reached G1", "tool: reached G2", "assistant: end"]


async def test_one_inside_another(store: Store) -> None:  # rule I6
    def nest(inner: dict[str, Any], *, planner: tuple[Any, ...] = (), replanner: tuple[Any, ...] = ()) -> Runner:
        made = PlanExecute("Outer", planner=scripted(*planner), executor=team(**inner), replanner=scripted(*replanner))
        return Runner(made, store=store)

    first = nest({"planner": (plan("small"),), "executor": (call("ask", question="?"),)}, planner=(plan("big"),))
    paused = await first.run("go", session_id="s")
    assert ids(paused) == ["agent:Outer;agent:P;agent:Executor;tool:ask:c1"]
    again = nest({"executor": ("did it",), "replanner": (respond("inner"),)}, replanner=(respond("outer"),))
    result = await again.resume("s", dict.fromkeys(ids(paused), "y"))
    assert result.output == "outer"


async def test_an_abandoned_plan_is_not_gone_on_with(store: Store) -> None:  # rule S8
    agent = team((plan("one"), plan("two")), (call("ask", question="?"), "did two"), (respond("done"),))
    runner = Runner(agent, store=store)
    await runner.run("first", session_id="s")
    result = await runner.run("second", session_id="s", on_pending="abandon")
    assert result.output == "done"
    assert last_told(agent.executor)[-1].startswith("The goal is: second\nThe plan is:\n1. two\nDone so far:\nnothing")


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match="Give 1 or more"):
        team(max_iterations=0)
    with pytest.raises(UsageError, match="no output_type with steps"):
        PlanExecute("P", planner=chat("Planner"), executor=scripted(), replanner=scripted())
    with pytest.raises(UsageError, match="no output_type with steps"):
        PlanExecute("P", planner=chat("Planner", output_type=Step), executor=scripted(), replanner=scripted())
    with pytest.raises(UsageError, match="called 'X'"):
        PlanExecute("P", planner=scripted(), executor=chat("X"), replanner=chat("X", output_type=Replan)).plan  # noqa: B018
