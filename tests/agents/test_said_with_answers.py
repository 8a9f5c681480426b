"""What people say together with a decision: the model reads it after the results of its calls, in the same turn."""

from __future__ import annotations

from typing import Any

import pytest

from adjourn import Edit, Runner, Sessions, UsageError, interrupt, tool, workflow
from adjourn.agents import ChatModelAgent, ParallelAgent
from adjourn.stores import Store

from .crew import ask, call, chat, ids, model_of, note, said, seen


@tool(approval=True)
def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


def agent(*script: Any, **options: Any) -> ChatModelAgent:
    return chat("A", *script, tools=[pay, note, ask], **options)


PAY = call("pay", cents=100)


async def test_a_message_follows_the_results_in_the_same_turn(store: Store) -> None:  # rule T4
    paused = await Runner(agent([PAY, call("note", "c2", text="x")]), store=store).run("go", session_id="s")
    (asked,) = paused.interrupts
    last = agent("fine")
    runner = Runner(last, store=store)
    answer = {asked.id: asked.info.edit(cents=90)}
    result = await runner.resume("s", answer, by="ann", message="No more than 90 from now on.")
    assert said(result.messages) == [
        *("user: go", "tool: paid 90", "tool: noted x", "user: No more than 90 from now on.", "assistant: fine")
    ]
    assert seen(model_of(last).requests[0])[-1] == "user: No more than 90 from now on."
    (entry,) = await runner.audit("s")
    assert (entry.answer, entry.message, entry.by) == (Edit({"cents": 90}), "No more than 90 from now on.", "ann")


@pytest.mark.parametrize("decision", [True, False, {"decision": "respond", "text": "later"}])
async def test_whatever_was_decided(store: Store, decision: Any) -> None:  # rule T4
    paused = await Runner(agent(PAY), store=store).run("go", session_id="s")
    result = await Runner(agent("ok"), store=store).resume("s", dict.fromkeys(ids(paused), decision), message="Hello.")
    assert said(result.messages)[-2:] == ["user: Hello.", "assistant: ok"]


async def test_it_is_recorded_with_the_answer_for_whoever_goes_on(store: Store) -> None:  # rules R3, C8
    paused = await Runner(agent(PAY), store=store).run("go", session_id="s")
    await Sessions(store).answer("s", dict.fromkeys(ids(paused), True), message="Thanks.")
    result = await Runner(agent("ok"), store=store).recover("s")
    assert said(result.messages) == ["user: go", "tool: paid 100", "user: Thanks.", "assistant: ok"]


async def test_it_is_said_once_when_the_turn_fails_and_is_recovered(store: Store) -> None:  # rules R4, R13
    paused = await Runner(agent(PAY), store=store).run("go", session_id="s")
    broken = Runner(agent(RuntimeError("away")), store=store)
    with pytest.raises(Exception, match="away"):
        await broken.resume("s", dict.fromkeys(ids(paused), True), message="Thanks.")
    result = await Runner(agent("ok"), store=store).recover("s")
    assert said(result.messages) == ["user: go", "tool: paid 100", "user: Thanks.", "assistant: ok"]


async def test_it_waits_for_calls_in_sequence_and_for_other_questions(store: Store) -> None:  # rule T3
    def runner(*script: Any, **options: Any) -> Runner:
        return Runner(agent(*script, **options), store=store)

    for session, options in (("one", {"tool_calls": "sequential"}), ("both", {})):
        await runner([PAY, call("ask", "c2", question="?")], **options).run("go", session_id=session)
        half = await runner(**options).resume(session, {"agent:A;tool:pay:c1": True}, message="Thanks.")
        assert ids(half) == ["agent:A;tool:ask:c2"]
        result = await runner("ok", **options).resume(session, {"agent:A;tool:ask:c2": "so"})
        assert said(result.messages) == ["user: go", "tool: paid 100", "tool: so", "user: Thanks.", "assistant: ok"]


async def test_the_agent_that_asked_reads_it(store: Store) -> None:  # rule A6
    def outer(*script: Any, inner: list[Any]) -> tuple[ChatModelAgent, ChatModelAgent]:
        helper = chat("Helper", *inner, tools=[pay])
        return chat("Outer", *script, tools=[helper]), helper

    top, _ = outer(call("Helper", request="x"), inner=[PAY])
    paused = await Runner(top, store=store).run("go", session_id="s")
    top, helper = outer("end", inner=["done"])
    result = await Runner(top, store=store).resume("s", dict.fromkeys(ids(paused), True), message="Be quick.")
    assert seen(model_of(helper).requests[0])[-1] == "user: Be quick."
    assert "user: Be quick." not in said(result.messages)


async def test_a_fork_from_after_the_answer_says_it_and_an_older_one_does_not(store: Store) -> None:  # rule C4
    paused = await Runner(agent(PAY), store=store).run("go", session_id="s")
    await Sessions(store).answer("s", dict.fromkeys(ids(paused), True), message="Thanks.")
    await Runner(agent(), store=store).fork("s", checkpoint_id=paused.checkpoint_id, to="t")
    result = await Runner(agent("ok"), store=store).resume("t", dict.fromkeys(ids(paused), True))
    assert "user: Thanks." not in said(result.messages)


async def test_a_message_that_nobody_would_read_is_refused_and_nothing_is_answered(store: Store) -> None:  # rule R2
    @workflow
    async def flow() -> Any:
        return interrupt("?", key="q")

    runner = Runner(flow, store=store)
    await runner.run(session_id="s")
    with pytest.raises(UsageError, match="nobody would read it"):
        await runner.resume("s", {"q": 1}, message="Hello.")
    with pytest.raises(UsageError, match="nobody would read it"):
        await runner.answer("s", {"q": 1}, message="Hello.")
    assert (await runner.resume("s", {"q": 1})).value == 1
    paused = await Runner(agent(PAY), store=store).run("go", session_id="t")
    wrong: Any
    for wrong in ("", "  ", 7):
        with pytest.raises(UsageError, match="give a text to say"):
            await Runner(agent(), store=store).resume("t", dict.fromkeys(ids(paused), True), message=wrong)


async def test_an_answer_that_looks_like_one_with_a_message_is_just_that(store: Store) -> None:  # rule C10
    look = {"$t": "answer_and_message", "message": "m", "value": 1}
    paused = await Runner(agent(call("ask", question="?")), store=store).run("go", session_id="s")
    result = await Runner(agent("ok"), store=store).resume("s", dict.fromkeys(ids(paused), look))
    assert said(result.messages) == ["user: go", f"tool: {look}", "assistant: ok"]


@pytest.mark.parametrize("calls", ["parallel", "sequential"])
async def test_it_stays_said_when_the_turn_is_abandoned(store: Store, calls: str) -> None:  # rule R12
    def runner(*script: Any) -> Runner:
        return Runner(agent(*script, tool_calls=calls), store=store)

    await runner([PAY, call("ask", "c2", question="?")]).run("go", session_id="s")
    await runner().resume("s", {"agent:A;tool:pay:c1": True}, message="Thanks.")
    result = await runner("fresh").run("more", session_id="s", on_pending="abandon")
    assert said(result.messages) == [
        *("user: go", "tool: paid 100", "tool: This call was given up before it had a result.", "user: Thanks."),
        *("user: more", "assistant: fresh"),
    ]


async def test_it_stays_said_when_agents_side_by_side_are_abandoned(store: Store) -> None:  # rule R12
    def runner(*scripts: Any) -> Runner:
        agents = [chat(name, *script, tools=[pay, ask]) for name, script in zip("AB", scripts, strict=True)]
        return Runner(ParallelAgent("P", agents=agents), store=store)

    await runner([[PAY, call("ask", "c2", question="?")]], [PAY]).run("go", session_id="s")
    await runner([], []).resume("s", {"agent:P;agent:A;tool:pay:c1": True}, message="Thanks.")
    result = await runner(["a"], ["b"]).run("more", session_id="s", on_pending="abandon")
    assert said(result.messages).count("user: Thanks.") == 1
