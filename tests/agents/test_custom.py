"""Agents of one's own: code that yields messages, runs others, and asks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest

from adjourn import (
    Agent,
    Custom,
    Delta,
    LoopAgent,
    Message,
    MessageEvent,
    RunContext,
    RunError,
    Runner,
    SequentialAgent,
    UsageError,
    current,
    interrupt,
    once,
    raise_interrupt,
    tool,
    workflow,
)
from adjourn.agents import AgentInput, ResumeInfo
from adjourn.events import Event
from adjourn.stores import Store

from .crew import ask, call, chat, events_of, ids, kinds, model_of, said, seen

Code = Callable[[AgentInput, RunContext], AsyncIterator[Event]]


def say(text: str) -> MessageEvent:
    return MessageEvent(message=Message.assistant(text))


class Coded(Agent):
    """An agent whose code a test gives."""

    def __init__(self, code: Code, name: str = "Mine") -> None:
        self.name = name
        self.code = code

    def run(self, input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
        return self.code(input, ctx)


async def test_what_it_yields_joins_the_conversation(store: Store) -> None:  # rule A15
    async def code(input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
        yield say(f"you said {input.text}")
        yield say("bye")

    runner = Runner(Coded(code), store=store)
    events = await events_of(runner.run("hi", session_id="s"))
    assert kinds(events) == ["message", "message", "done"]
    assert {event.agent for event in events if isinstance(event, MessageEvent)} == {"Mine"}
    assert said(await runner.messages("s")) == ["user: hi", "assistant: you said hi", "assistant: bye"]
    assert (await runner.recover("s")).output == "bye"


async def test_what_it_repeats_is_another_message(store: Store) -> None:  # rule A15
    async def code(input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
        yield say("one")
        last = input.messages[-1]
        yield MessageEvent(message=Message.assistant(last.text).with_id(str(last.id)))

    result = await Runner(Coded(code), store=store).run("hi", session_id="s")
    assert said(result.messages) == ["user: hi", "assistant: one", "assistant: hi"]
    assert len({message.id for message in result.messages}) == 3


async def test_its_question_and_its_messages_come_once(store: Store) -> None:  # rule R5
    entries: list[str] = []

    async def code(input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
        entries.append("in")
        yield say("before")
        ctx.emit({"n": 1})
        answer = interrupt("?")
        yield say(f"after {answer}")

    first = await events_of(Runner(Coded(code), store=store).run("hi", session_id="s"))
    assert kinds(first) == ["message", "custom", "interrupt"]
    second = await events_of(Runner(Coded(code), store=store).resume("s", {"agent:Mine": "y"}))
    assert kinds(second) == ["message", "done"]
    assert said(await Runner(Coded(code), store=store).messages("s")) == [
        "user: hi",
        "assistant: before",
        "assistant: after y",
    ]
    assert entries == ["in", "in"]
    assert [event.data for event in first if isinstance(event, Custom)] == [{"n": 1}]


async def test_it_sees_the_same_conversation_each_time(store: Store) -> None:  # rule R5
    inputs: list[list[str]] = []

    async def code(input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
        inputs.append(said(input.messages))
        yield say("one")
        interrupt("?")
        yield say("two")

    runner = Runner(Coded(code), store=store)
    await runner.run("hi", session_id="s")
    await Runner(Coded(code), store=store).resume("s", {"agent:Mine": 1})
    assert inputs == [["user: hi"], ["user: hi"]]


def parent(*children: Agent) -> Coded:
    async def code(input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
        for child in children:
            text = await ctx.run(child, input.text)
            yield say(f"{child.name}: {text}")

    return Coded(code, "Parent")


async def test_a_childs_pause_is_its_parents_pause(store: Store) -> None:  # rule A15
    first = parent(chat("A", "a"), chat("B", call("ask", question="?"), tools=[ask]))
    paused = await Runner(first, store=store).run("go", session_id="s")
    assert ids(paused) == ["agent:Parent;agent:B;tool:ask:c1"]
    assert "assistant: a" in said(paused.messages)
    last = parent(chat("A"), chat("B", "b", tools=[ask]))
    result = await Runner(last, store=store).resume("s", dict.fromkeys(ids(paused), "y"))
    assert result.output == "B: b"
    assert sorted(said(result.messages)) == sorted(
        [
            "user: go",
            "user: go",
            "user: go",
            "assistant: a",
            "assistant: A: a",
            "tool: y",
            "assistant: b",
            "assistant: B: b",
        ]
    )


async def test_a_child_that_failed_goes_on_when_recovered(store: Store) -> None:  # rule A15
    with pytest.raises(Exception, match="away"):
        await Runner(parent(chat("A", "a"), chat("B", RuntimeError("away"))), store=store).run("go", session_id="s")
    result = await Runner(parent(chat("A"), chat("B", "b")), store=store).recover("s")
    assert result.output == "B: b"


async def test_a_child_that_could_not_begin_begins_later(store: Store) -> None:  # rule A15
    with pytest.raises(RunError, match="'word'"):
        await Runner(parent(chat("A", "a", instruction="{word}")), store=store).run("go", session_id="s")
    result = await Runner(parent(chat("A", "a", instruction="{word?}")), store=store).recover("s")
    assert result.output == "A: a"


async def test_children_at_once_all_get_as_far_as_they_can(store: Store) -> None:  # rule A15
    def both(a: list[Any], b: list[Any], c: list[Any]) -> Coded:
        agents = [chat("A", *a, tools=[ask]), chat("B", *b), chat("C", *c, tools=[ask])]

        async def code(input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
            results = await ctx.run_all([(agent, agent.name) for agent in agents])
            yield say(" ".join(results))

        return Coded(code, "Parent")

    asks = [call("ask", question="?")]
    paused = await Runner(both(asks, ["b"], asks), store=store).run("go", session_id="s")
    assert ids(paused) == ["agent:Parent;agent:A;tool:ask:c1", "agent:Parent;agent:C;tool:ask:c1"]
    half = await Runner(both(["a"], [], []), store=store).resume("s", {ids(paused)[0]: "1"})
    assert ids(half) == ids(paused)[1:]
    result = await Runner(both([], [], ["c"]), store=store).resume("s", {ids(paused)[1]: "2"})
    assert result.output == "a b c"


async def test_one_agent_run_twice_has_two_places(store: Store) -> None:  # rule I6
    def twice(*script: Any) -> Coded:
        agent = chat("A", *script, tools=[ask])

        async def code(input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
            yield say(await ctx.run(agent, "1") + await ctx.run(agent, "2"))

        return Coded(code, "Parent")

    paused = await Runner(twice("x", call("ask", question="?")), store=store).run("go", session_id="s")
    assert ids(paused) == ["agent:Parent;agent:A:2;tool:ask:c1"]
    assert (await Runner(twice("y"), store=store).resume("s", dict.fromkeys(ids(paused), 1))).output == "xy"


async def test_a_hand_written_parent_adds_to_its_childrens_questions(store: Store) -> None:  # rule I9
    def steering(a: list[Any], b: list[Any]) -> Coded:
        agents = [chat("A", *a, tools=[ask]), chat("B", *b, tools=[ask])]

        async def code(input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
            outcomes = [await ctx.try_run(agent, "x") for agent in agents]
            waiting = [outcome.signal for outcome in outcomes if outcome.signal is not None]
            if waiting:
                raise_interrupt({"waiting": len(waiting)}, state={"round": 1}, children=waiting)
            yield say("+".join(outcome.result for outcome in outcomes))

        return Coded(code, "Parent")

    asks = [call("ask", question="which?")]
    paused = await Runner(steering(asks, asks), store=store).run("go", session_id="s")
    assert ids(paused) == ["agent:Parent;agent:A;tool:ask:c1", "agent:Parent;agent:B;tool:ask:c1"]
    assert [asked.info for asked in paused.interrupts] == ["which?", "which?"]
    parents = [asked.parent for asked in paused.interrupts]
    chain = [p for p in parents if p is not None]
    assert len(chain) == 2
    infos: list[Any] = []
    for each in chain:
        top = each
        while top is not None and top.info is None:
            top = top.parent
        infos.append(top.info if top is not None else None)
    assert infos == [{"waiting": 2}, {"waiting": 2}]
    half = await Runner(steering(["a"], []), store=store).resume("s", {ids(paused)[0]: 1})
    assert ids(half) == ids(paused)[1:]
    assert (await Runner(steering([], ["b"]), store=store).resume("s", {ids(half)[0]: 2})).output == "a+b"


async def test_zero_children_is_a_plain_question(store: Store) -> None:  # rule I9
    async def code(input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
        if not ctx.is_resume_target:
            raise_interrupt("plain?", children=[])
        yield say(f"got {ctx.resume_data}")

    paused = await Runner(Coded(code), store=store).run("go", session_id="s")
    assert [(asked.id, asked.info, asked.is_root_cause) for asked in paused.interrupts] == [
        ("agent:Mine", "plain?", True)
    ]
    assert (await Runner(Coded(code), store=store).resume("s", {"agent:Mine": 5})).output == "got 5"


class Steered(Agent):
    name = "Steered"

    def __init__(self, log: list[Any]) -> None:
        self.log = log

    async def run(self, input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
        self.log.append("run")
        yield say("started")
        raise_interrupt("go on?", state={"count": 3})

    async def resume(self, info: ResumeInfo, ctx: RunContext) -> AsyncIterator[Event]:
        self.log.append((info.is_target, info.has_data, info.data, info.state, info.input.text))
        yield say(f"resumed with {info.data}")


async def test_resume_may_be_steered_by_hand(store: Store) -> None:  # rule A15
    log: list[Any] = []
    await Runner(Steered(log), store=store).run("go", session_id="s")
    result = await Runner(Steered(log), store=store).resume("s", {"agent:Steered": "yes"})
    assert result.output == "resumed with yes"
    assert log == ["run", (True, True, "yes", {"count": 3}, "go")]
    assert said(result.messages) == ["user: go", "assistant: started", "assistant: resumed with yes"]


class Going(Agent):
    """An agent that goes on from where it paused: each resume takes up the state that the last one left."""

    name = "Going"
    description = "goes on"

    def __init__(self, effects: list[Any], *, rounds: int = 1, crash: bool = False) -> None:
        self.effects = effects
        self.rounds = rounds
        self.crash = crash
        self.child = chat("Child", "from the child")

    async def run(self, input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
        yield say("working")
        ctx.emit("run")
        number = await effect(self.effects, "run")
        text = await ctx.run(self.child, "x")
        raise_interrupt("go on?", state=[1, number, text])

    async def resume(self, info: ResumeInfo, ctx: RunContext) -> AsyncIterator[Event]:
        number, kept, text = info.state
        yield say(f"resumed {number} with {info.data}")
        ctx.emit(f"resume {number}")
        await effect(self.effects, f"resume {number}")
        if self.crash:
            raise RuntimeError("down")
        if number < self.rounds:
            raise_interrupt("go on?", state=[number + 1, kept, text])
        yield say(f"{kept} {text}")


@once(ignore=["effects"])
async def effect(effects: list[Any], what: str) -> int:
    effects.append(what)
    return len(effects)


def emitted(events: list[Event]) -> list[Any]:
    """What the user sees of them."""
    return [
        event.message.text if isinstance(event, MessageEvent) else event.data
        for event in events
        if (isinstance(event, MessageEvent) and event.agent == "Going") or isinstance(event, Custom)
    ]


async def test_what_resume_yields_and_emits_reaches_the_user(store: Store) -> None:  # rule A15
    effects: list[Any] = []
    first = await events_of(Runner(Going(effects), store=store).run("go", session_id="s"))
    assert emitted(first) == ["working", "run"]
    second = await events_of(Runner(Going(effects), store=store).resume("s", {"agent:Going": "a"}))
    assert emitted(second) == ["resumed 1 with a", "resume 1", "1 from the child"]
    assert [text for text in said(await Runner(Going(effects), store=store).messages("s")) if "Child" not in text] == [
        "user: go",
        "assistant: working",
        "user: x",
        "assistant: from the child",
        "assistant: resumed 1 with a",
        "assistant: 1 from the child",
    ]


async def test_resume_does_not_repeat_what_run_has_kept(store: Store) -> None:  # rules A15, R5
    effects: list[Any] = []
    await Runner(Going(effects), store=store).run("go", session_id="s")
    again = Going(effects)
    assert (await Runner(again, store=store).resume("s", {"agent:Going": "a"})).output == "1 from the child"
    assert effects == ["run", "resume 1"]
    assert model_of(again.child).requests == []


async def test_each_resume_goes_on_from_the_last_pause(store: Store) -> None:  # rule A15
    effects: list[Any] = []
    agent = Going(effects, rounds=3)
    await Runner(agent, store=store).run("go", session_id="s")
    shown: list[Any] = []
    for number, name in enumerate(("agent:Going", "agent:Going#2", "agent:Going#3")):
        shown += emitted(await events_of(Runner(agent, store=store).resume("s", {name: number})))
    assert shown == [
        *("resumed 1 with 0", "resume 1", "resumed 2 with 1", "resume 2", "resumed 3 with 2", "resume 3"),
        "1 from the child",
    ]
    assert effects == ["run", "resume 1", "resume 2", "resume 3"]


async def test_a_resume_that_failed_goes_on_without_repeating_itself(store: Store) -> None:  # rules A15, R5
    effects: list[Any] = []
    await Runner(Going(effects), store=store).run("go", session_id="s")
    with pytest.raises(RuntimeError, match="down"):
        await Runner(Going(effects, crash=True), store=store).resume("s", {"agent:Going": "a"})
    last = await events_of(Runner(Going(effects), store=store).recover("s"))
    assert emitted(last) == ["1 from the child"]
    assert effects == ["run", "resume 1"]


async def test_resume_may_leave_a_child_that_waits(store: Store) -> None:  # rule A15
    class Leaving(Agent):
        name = "Leaving"
        description = "leaves its child alone"

        async def run(self, input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
            await ctx.run(chat("Child", call("ask", question="?"), tools=[ask]), "x")
            yield say("never")

        async def resume(self, info: ResumeInfo, ctx: RunContext) -> AsyncIterator[Event]:
            yield say("without the child")

    paused = await Runner(Leaving(), store=store).run("go", session_id="s")
    result = await Runner(Leaving(), store=store).resume("s", dict.fromkeys(ids(paused), "y"))
    assert (result.status, result.output) == ("done", "without the child")


async def test_a_resume_without_data_tells_so(store: Store) -> None:  # rule A15
    log: list[Any] = []
    runner = Runner(Steered(log), store=store)
    await runner.run("go", session_id="s")
    await runner.resume("s")
    assert log[1] == (True, False, None, {"count": 3}, "go")


async def test_exit_and_break_loop_from_code() -> None:  # rule T8
    async def leaves(input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
        yield say("leaving")
        ctx.break_loop()

    loop = LoopAgent("Loop", agents=[Coded(leaves), chat("B")])
    assert (await Runner(loop).run("go")).output == "leaving"

    async def exits(input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
        ctx.exit("out")
        yield say("never mind")

    row = SequentialAgent("Row", agents=[Coded(exits), chat("B")])
    assert (await Runner(row).run("go")).output == "out"


async def test_code_cannot_hand_over(store: Store) -> None:
    async def code(input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
        ctx.transfer_to("B")
        yield say("never")

    with pytest.raises(UsageError, match="cannot hand over"):
        await Runner(Coded(code), store=store).run("go", session_id="s")


async def test_only_messages_may_be_yielded() -> None:
    async def code(input: AgentInput, ctx: RunContext) -> AsyncIterator[Any]:
        yield "text"

    with pytest.raises(UsageError, match="yielded 'text'"):
        await Runner(Coded(code)).run("go")


async def test_code_that_yields_nothing_is_fine() -> None:
    async def code(input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
        for event in ():
            yield event

    result = await Runner(Coded(code)).run("go")
    assert (result.status, result.output) == ("done", "")


async def test_code_without_a_yield_is_told_what_to_write() -> None:
    async def code(input: AgentInput, ctx: RunContext) -> None:
        await asyncio.sleep(0)

    with pytest.raises(UsageError, match="async generator"):
        await Runner(Coded(cast("Any", code))).run("go")


async def test_an_agent_without_a_name_is_refused() -> None:
    class Nameless(Agent):
        async def run(self, input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
            yield say("x")

    with pytest.raises(UsageError, match="name"):
        await Runner(Nameless()).run("go")


async def test_once_in_its_code_is_done_once(store: Store) -> None:  # rule R5
    done: list[int] = []

    @once
    async def effect() -> int:
        done.append(1)
        return len(done)

    async def code(input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
        number = await effect()
        yield say(f"{number} {interrupt('?')}")

    await Runner(Coded(code), store=store).run("go", session_id="s")
    assert (await Runner(Coded(code), store=store).resume("s", {"agent:Mine": "y"})).output == "1 y"


async def test_values_of_children_take_effect_in_the_parent(store: Store) -> None:  # rule R15
    async def code(input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
        await ctx.run(chat("A", "hello", output_key="greeting"), "x")
        yield say(ctx.values["greeting"])

    runner = Runner(Coded(code), store=store)
    assert (await runner.run("go", session_id="s")).output == "hello"
    assert (await runner.state("s"))["values"] == {"greeting": "hello"}


async def test_a_workflow_function_runs_agents(store: Store) -> None:  # rule A15
    def flow(*script: Any) -> Any:
        agent = chat("A", *script, tools=[ask])

        @workflow(name="flow")
        async def run(text: str) -> str:
            return f"<{await current().run(agent, text)}>"

        return run

    paused = await Runner(flow(call("ask", question="?")), store=store).run("go", session_id="s")
    assert ids(paused) == ["runnable:flow;agent:A;tool:ask:c1"]
    assert (await Runner(flow("end"), store=store).resume("s", dict.fromkeys(ids(paused), "y"))).value == "<end>"


async def test_a_later_agent_sees_what_the_children_said(store: Store) -> None:  # rule A4
    last = chat("Last", "end")
    row = SequentialAgent("Row", agents=[parent(chat("A", "from a")), last])
    await Runner(row, store=store).run("go", session_id="s")
    assert "user: For context: A said: from a" in seen(model_of(last).requests[0])


class Talk(Agent):
    """An agent that speaks before, between and after the agents that it runs."""

    name = "Talk"

    def __init__(self, *, asks: bool = False, fails: bool = False) -> None:
        self.asks = asks
        self.fails = fails
        self.b = chat("B", "from b")

    async def run(self, input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
        yield say("intro")
        await ctx.run(chat("A", "from a"))
        if self.fails:
            raise RuntimeError("down")
        answer = interrupt("?") if self.asks else "y"
        await ctx.run(self.b)
        yield say(f"outro {answer}")


TALK = ["user: go", "assistant: intro", "assistant: from a", "assistant: from b", "assistant: outro y"]
"""What is said in a `Talk`."""


async def test_the_agents_that_code_runs_speak_in_its_conversation(store: Store) -> None:  # rules A4, A15
    talk = Talk()
    run = Runner(talk, store=store).run("go", session_id="s")
    events = await events_of(run)
    assert [event.message.text for event in events if isinstance(event, MessageEvent)] == [
        line.partition(": ")[2] for line in TALK[1:]
    ]
    heard = [event for event in events if isinstance(event, MessageEvent | Delta)]
    assert isinstance(heard[0], MessageEvent)  # What was said before comes before the pieces of a child.
    assert said((await run).messages) == said(await Runner(talk, store=store).messages("s")) == TALK
    assert seen(model_of(talk.b).requests[0]) == [
        "user: go",
        "user: For context: Talk said: intro",
        "user: For context: A said: from a",
    ]


async def test_a_conversation_of_code_is_the_same_after_a_pause_and_in_a_fork(store: Store) -> None:  # rules A4, C3
    paused = await Runner(Talk(asks=True), store=store).run("go", session_id="s")
    assert said(paused.messages) == TALK[:3]
    fork = await Runner(Talk(asks=True), store=store).fork("s")
    for session in ("s", fork):
        talk = Talk(asks=True)
        result = await Runner(talk, store=store).resume(session, {"agent:Talk": "y"})
        assert said(result.messages) == TALK
        assert "user: For context: A said: from a" in seen(model_of(talk.b).requests[0])


async def test_a_conversation_of_code_is_the_same_after_a_failure(store: Store) -> None:  # rules A4, R13
    with pytest.raises(RuntimeError):
        await Runner(Talk(fails=True), store=store).run("go", session_id="s")
    assert said(await Runner(Talk(), store=store).messages("s")) == TALK[:3]
    assert said((await Runner(Talk(), store=store).recover("s")).messages) == TALK


async def test_agents_beside_each_other_do_not_hear_each_other(store: Store) -> None:  # rule A4
    one, two = chat("A", call("ask", question="?"), "from a", tools=[ask]), chat("B", "from b")

    async def code(input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
        await asyncio.gather(ctx.run(one), ctx.run(two))
        yield say("outro")

    paused = await Runner(Coded(code), store=store).run("go", session_id="s")
    result = await Runner(Coded(code), store=store).resume("s", dict.fromkeys(ids(paused), "y"))
    assert not [line for line in seen(model_of(one).requests[1]) if "from b" in line]
    assert said(result.messages)[-1] == "assistant: outro"
    assert {"assistant: from a", "assistant: from b"} < set(said(result.messages))


async def test_code_that_says_nothing_returns_what_the_last_agent_returned(store: Store) -> None:  # rule A15
    @tool
    def leave() -> str:
        current().exit("bye")
        return "left"

    @tool(return_directly=True)
    def direct() -> str:
        return "as it is"

    for name, output in (("leave", "bye"), ("direct", "as it is")):

        async def code(input: AgentInput, ctx: RunContext, name: str = name) -> AsyncIterator[Event]:
            await ctx.run(chat("A", call(name), tools=[leave, direct]))
            for event in list[Event]():
                yield event

        assert (await Runner(Coded(code), store=store).run("go", session_id=name)).output == output
