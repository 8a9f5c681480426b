"""The loop of a chat-model agent: a model that answers, calls tools, and ends."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from adjourn import (
    ChatModelAgent,
    Done,
    ExitTool,
    Limits,
    Message,
    MessageEvent,
    Runner,
    SessionError,
    ToolResult,
    UnfinishedRun,
    Usage,
    UsageError,
    tool,
)
from adjourn.errors import LimitExceeded, MaxIterationsExceeded
from adjourn.stores import SessionRef, Store
from adjourn.stores.kit import GetHead
from adjourn.testing import FunctionModel, ScriptedModel

from .crew import ask, call, chat, events_of, failing_events, ids, kinds, model_of, note, said, seen


async def test_without_tools_there_is_one_model_call() -> None:  # rule A1
    agent = chat("A", "hello")
    result = await Runner(agent).run("hi")
    assert (result.output, result.status, len(model_of(agent).requests)) == ("hello", "done", 1)
    assert said(result.messages) == ["user: hi", "assistant: hello"]
    assert result.message is not None
    assert result.message.text == "hello"


async def test_the_loop_goes_on_until_there_is_no_tool_call(store: Store) -> None:  # rule A1
    agent = chat("A", call("note", text="a"), call("note", "c2", text="b"), "done", tools=[note])
    result = await Runner(agent, store=store).run("go", session_id="s")
    assert result.output == "done"
    assert said(result.messages) == ["user: go", "tool: noted a", "tool: noted b", "assistant: done"]
    assert seen(model_of(agent).requests[1]) == ["user: go", "assistant: ", "tool: noted a"]
    assert len(model_of(agent).requests) == 3


async def test_a_request_that_a_model_keeps_does_not_change_later() -> None:  # rule A4
    agent = chat("A", call("note", text="a"), "done", tools=[note])
    await Runner(agent).run("go")
    assert seen(model_of(agent).requests[0]) == ["user: go"]


async def test_a_model_that_changes_its_request_changes_nothing_else() -> None:  # rule A4
    def wipe(request: Any) -> Any:
        with contextlib.suppress(AttributeError):
            request.messages.clear()
        return "ok"

    result = await Runner(ChatModelAgent("A", model=FunctionModel(wipe))).run("go")
    assert said(result.messages) == ["user: go", "assistant: ok"]


async def test_input_may_be_text_a_message_or_several() -> None:
    agent = chat("A", "1", "2", "3")
    runner = Runner(agent)
    await runner.run("a")
    await runner.run(Message.user("b"))
    result = await runner.run([Message.user("c"), Message.assistant("d"), Message.user("e")])
    assert said(result.messages) == ["user: c", "assistant: d", "user: e", "assistant: 3"]


@pytest.mark.parametrize("input", [7, {"messages": []}, [1], b"x"])
async def test_other_input_is_refused_and_nothing_is_stored(input: Any, store: Store) -> None:
    runner = Runner(chat("A", "never"), store=store)
    with pytest.raises(UsageError, match="Agent 'A' takes text"):
        await runner.run(input, session_id="s")
    with pytest.raises(UsageError, match="Agent 'A' needs an input"):
        await runner.run(session_id="s")
    assert await store.read(GetHead(SessionRef("s"))) is None


async def test_turns_follow_one_another_on_one_transcript(store: Store) -> None:  # rule A4
    await Runner(chat("A", "one"), store=store).run("1", session_id="s")
    again = chat("A", "two")
    result = await Runner(again, store=store).run("2", session_id="s")
    assert said(result.messages) == ["user: 1", "assistant: one", "user: 2", "assistant: two"]
    assert seen(model_of(again).requests[0]) == ["user: 1", "assistant: one", "user: 2"]
    assert said(await Runner(again, store=store).messages("s")) == said(result.messages)


async def test_an_empty_answer_is_an_answer() -> None:  # rule A1
    result = await Runner(chat("A", "")).run("hi")
    assert (result.status, result.output) == ("done", "")


async def test_max_iterations_counts_model_calls_over_resumes(store: Store) -> None:  # rule A1
    def agent(limit: int) -> ChatModelAgent:
        return chat(
            "A", call("ask", question="?"), call("ask", "c2", question="?"), "end", tools=[ask], max_iterations=limit
        )

    runner = Runner(agent(2), store=store)
    paused = await runner.run("go", session_id="s")
    paused = await runner.resume("s", dict.fromkeys(ids(paused), "x"))
    with pytest.raises(MaxIterationsExceeded):
        await runner.resume("s", dict.fromkeys(ids(paused), "y"))
    larger = chat("A", "end", tools=[ask], max_iterations=3)
    assert (await Runner(larger, store=store).recover("s")).output == "end"


async def test_a_new_turn_has_its_own_iterations(store: Store) -> None:  # rule A1
    runner = Runner(chat("A", "1", "2", max_iterations=1), store=store)
    await runner.run("a", session_id="s")
    assert (await runner.run("b", session_id="s")).output == "2"


async def test_an_endless_loop_ends_at_max_iterations() -> None:  # rule A1
    model = FunctionModel(lambda _: call("note", text="again"))
    agent = ChatModelAgent("A", model=model, tools=[note], max_iterations=7)
    with pytest.raises(MaxIterationsExceeded, match="7"):
        await Runner(agent).run("go")
    assert len(model.requests) == 7


async def test_model_calls_are_limited(store: Store) -> None:  # rule A1
    script = (call("note", text="a"), call("note", "c2", text="b"), "end")
    with pytest.raises(LimitExceeded) as caught:
        await Runner(chat("A", *script, tools=[note], limits=Limits(model_calls=2)), store=store).run(
            "go", session_id="s"
        )
    assert "model_calls" in str(caught.value)
    wider = chat("A", "end", tools=[note], limits=Limits(model_calls=3))
    assert (await Runner(wider, store=store).recover("s")).output == "end"


async def test_as_many_tool_calls_as_the_limit_allows_may_run(store: Store) -> None:  # rule A1
    agent = chat("A", call("note", text="a"), "end", tools=[note], limits=Limits(tool_calls=1))
    assert (await Runner(agent, store=store).run("go", session_id="s")).output == "end"


async def test_a_tool_call_too_many_does_not_run(store: Store) -> None:  # rule A1
    ran: list[str] = []

    @tool
    async def mark(text: str) -> str:
        """Leave a mark."""
        ran.append(text)
        return text

    calls = [call("mark", f"c{number}", text=str(number)) for number in range(3)]
    agent = chat("A", calls, tools=[mark], limits=Limits(tool_calls=2))
    with pytest.raises(LimitExceeded, match="tool_calls"):
        await Runner(agent, store=store).run("go", session_id="s")
    assert sorted(ran) == ["0", "1"]
    wider = chat("A", "end", tools=[mark], limits=Limits(tool_calls=3))
    result = await Runner(wider, store=store).recover("s")
    assert (result.output, sorted(ran)) == ("end", ["0", "1", "2"])
    assert said(result.messages)[1:4] == ["tool: 0", "tool: 1", "tool: 2"]


async def test_tokens_are_limited() -> None:  # rule A1
    answer = Message.assistant(tool_calls=[call("note", text="a")], usage=Usage(input_tokens=60, output_tokens=50))
    agent = chat("A", answer, "end", tools=[note], limits=Limits(tokens=100))
    with pytest.raises(LimitExceeded, match="tokens"):
        await Runner(agent).run("go")


@pytest.mark.parametrize("limits", [{"model_calls": 0}, {"tokens": -1}, {"seconds": True}])
def test_limits_that_make_no_sense_are_refused(limits: Any) -> None:
    with pytest.raises(UsageError, match="Limits"):
        Limits(**limits)


async def test_return_directly_gives_the_tools_result(store: Store) -> None:  # rule A2
    agent = chat("A", call("note", text="x"), tools=[note], return_directly=["note"])
    events = await events_of(Runner(agent, store=store).run("go", session_id="s"))
    assert kinds(events) == ["message", "tool_call", "tool_result", "done"]
    assert len(model_of(agent).requests) == 1
    done = events[-1]
    assert isinstance(done, Done)
    assert done.output == "noted x"


async def test_the_direct_result_comes_last_after_all_of_the_batch(store: Store) -> None:  # rule A2
    @tool(return_directly=True)
    async def first(n: int) -> str:
        """Give a number back."""
        return f"direct {n}"

    gate = asyncio.Event()

    @tool
    async def slow() -> str:
        """Take long."""
        await gate.wait()
        return "slow"

    @tool(return_directly=True)
    async def opener() -> str:
        """Let the slow one go on."""
        gate.set()
        return "opener"

    calls = [call("slow", "c0"), call("first", "c1", n=1), call("opener", "c2"), call("first", "c3", n=3)]
    agent = chat("A", calls, tools=[first, slow, opener])
    events = await events_of(Runner(agent, store=store).run("go", session_id="s"))
    results = [event for event in events if isinstance(event, ToolResult)]
    assert [result.call_id for result in results][-1] == "c1"
    assert sorted(result.call_id for result in results) == ["c0", "c1", "c2", "c3"]
    assert {result.address for result in results} == {
        "agent:A;tool:slow:c0",
        "agent:A;tool:first:c1",
        "agent:A;tool:opener:c2",
        "agent:A;tool:first:c3",
    }
    done = events[-1]
    assert isinstance(done, Done)
    assert done.output == "direct 1"


async def test_a_direct_result_waits_for_a_paused_sibling(store: Store) -> None:  # rule A2
    calls = [call("note", "c1", text="x"), call("ask", "c2", question="?")]
    agent = chat("A", calls, tools=[note, ask], return_directly=["note"])
    runner = Runner(agent, store=store)
    events = await events_of(runner.run("go", session_id="s"))
    assert kinds(events) == ["message", "tool_call", "tool_call", "interrupt"]
    again = Runner(chat("A", tools=[note, ask], return_directly=["note"]), store=store)
    events = await events_of(again.resume("s", {"agent:A;tool:ask:c2": "y"}))
    assert [event.call_id for event in events if isinstance(event, ToolResult)] == ["c2", "c1"]
    assert isinstance(events[-1], Done)
    assert events[-1].output == "noted x"


async def test_a_direct_tool_that_fails_is_told_to_the_model() -> None:  # rule A2
    @tool(return_directly=True)
    async def broken() -> str:
        """Break."""
        raise ValueError("no luck")

    agent = chat("A", call("broken"), "sorry", tools=[broken])
    result = await Runner(agent).run("go")
    assert result.output == "sorry"


async def test_the_exit_tool_ends_the_run_with_its_text() -> None:  # rule A1
    agent = chat("A", call("exit", final_result="bye"), exit_tool=ExitTool())
    events = await events_of(Runner(agent).run("go"))
    assert "exit" in kinds(events)
    done = events[-1]
    assert isinstance(done, Done)
    assert done.output == "bye"


async def test_exit_lets_the_batch_finish() -> None:  # rule A1
    calls = [call("exit", "c1", final_result="bye"), call("note", "c2", text="x")]
    result = await Runner(chat("A", calls, tools=[note], exit_tool=ExitTool())).run("go")
    assert result.output == "bye"
    assert "tool: noted x" in said(result.messages)


async def test_a_sequential_batch_that_exits_answers_the_calls_it_leaves_out(store: Store) -> None:  # rule A1
    calls = [call("exit", "c1", final_result="bye"), call("note", "c2", text="x")]
    agent = chat("A", calls, "next", tools=[note], exit_tool=ExitTool(), tool_calls="sequential")
    runner = Runner(agent, store=store)
    result = await runner.run("go", session_id="s")
    assert result.output == "bye"
    answered = {message.tool_call_id for message in result.messages if message.role == "tool"}
    assert answered == {"c1", "c2"}
    assert (await runner.run("more", session_id="s")).output == "next"


async def test_message_ids_are_never_given_twice(store: Store) -> None:  # rule R7
    calls = [call("note", "c1", text="a"), call("ask", "c2", question="?"), call("note", "c3", text="b")]
    await Runner(chat("A", calls, tools=[note, ask]), store=store).run("go", session_id="s")
    again = Runner(chat("A", "end", tools=[note, ask]), store=store)
    result = await again.resume("s", {"agent:A;tool:ask:c2": "y"})
    given = [message.id for message in result.messages]
    assert len(set(given)) == len(given)
    assert None not in given
    assert [m.tool_call_id for m in result.messages if m.role == "tool"] == ["c1", "c2", "c3"]


async def test_finished_tools_are_not_run_nor_told_again(store: Store) -> None:  # rule R7
    ran: list[str] = []

    @tool
    async def effect(name: str) -> str:
        """Have an effect."""
        ran.append(name)
        return name

    def agent(*script: Any) -> ChatModelAgent:
        return chat("A", *script, tools=[effect, ask])

    calls = [call("effect", "c1", name="x"), call("ask", "c2", question="1?"), call("ask", "c3", question="2?")]
    first = await events_of(Runner(agent(calls), store=store).run("go", session_id="s"))
    assert kinds(first, without=("checkpoint", "tool_call", "delta")) == ["message", "tool_result", "interrupt"]
    second = await events_of(Runner(agent(), store=store).resume("s", {"agent:A;tool:ask:c3": "b"}))
    assert kinds(second, without=("checkpoint", "tool_call", "delta")) == ["tool_result", "interrupt"]
    last = agent("end")
    third = await events_of(Runner(last, store=store).resume("s", {"agent:A;tool:ask:c2": "a"}))
    assert kinds(third, without=("checkpoint", "tool_call", "delta")) == ["tool_result", "message", "done"]
    assert ran == ["x"]
    assert seen(model_of(last).requests[0]) == ["user: go", "assistant: ", "tool: x", "tool: a", "tool: b"]


@pytest.mark.parametrize(
    "options",
    [
        {"tool_calls": "together"},
        {"max_iterations": 0},
        {"on_tool_error": "ignore"},
        {"on_unknown_tool": 1},
        {"return_directly": ["nothing"]},
        {"tools": [note, note]},
        {"tools": [7]},
    ],
)
def test_mistakes_are_told_where_the_agent_is_made(options: Any) -> None:
    with pytest.raises(UsageError, match=r"A|tool"):
        ChatModelAgent("A", model=ScriptedModel([]), **options)


async def test_a_failed_turn_is_recovered_where_it_failed(store: Store) -> None:  # rule R12
    broken = chat("A", call("note", text="a"), RuntimeError("away"), tools=[note])
    events, error = await failing_events(Runner(broken, store=store).run("go", session_id="s"))
    assert kinds(events)[-1] == "error"
    assert error is not None
    mended = chat("A", "end", tools=[note])
    runner = Runner(mended, store=store)
    with pytest.raises(UnfinishedRun):
        await runner.run("next", session_id="s")
    result = await runner.recover("s")
    assert said(result.messages) == ["user: go", "tool: noted a", "assistant: end"]
    assert (await runner.recover("s")).output == "end"
    assert len(model_of(mended).requests) == 1


async def test_message_events_carry_who_said_it() -> None:  # rule A11
    events = await events_of(Runner(chat("A", "hello")).run("hi"))
    message = next(event for event in events if isinstance(event, MessageEvent))
    assert (message.agent, message.path, message.address) == ("A", ("A",), "agent:A")


async def test_model_options_are_kept_over_a_resume(store: Store) -> None:  # rule R9
    agent = chat("A", call("ask", question="?"), tools=[ask])
    await Runner(agent, store=store).run("go", session_id="s", model_options={"temperature": 0.5})
    again = chat("A", "end", "next", tools=[ask])
    runner = Runner(again, store=store)
    await runner.resume("s", {"agent:A;tool:ask:c1": "y"})
    await runner.run("more", session_id="s")
    assert [dict(request.options) for request in model_of(again).requests] == [{"temperature": 0.5}, {}]


async def test_a_session_id_that_is_no_text_is_refused() -> None:
    with pytest.raises((UsageError, SessionError)):
        await Runner(chat("A", "x")).run("hi", session_id="")
