"""Summaries of long histories: when, of what, and what happens when there is none."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from adjourn import ChatModelAgent, Custom, Message, Retry, Runner, ToolCall, Usage, UsageError, interrupt, tool
from adjourn.errors import ContextTooLong, ModelError
from adjourn.middleware import PatchToolCalls, Summarize
from adjourn.middleware.summarize import LEFT_OUT, SUMMARY
from adjourn.stores import MemoryStore
from adjourn.testing import FunctionModel, ScriptedModel

from .conftest import Reopen
from .scripts import call, scripted


@tool
async def look(at: str) -> str:
    """Look at something."""
    return f"seen {at}"


def shown(request: Any) -> list[str]:
    return [message.text for message in request.messages]


def checked(request: Any) -> None:
    """Every call has its result after it, and every result its call before it."""
    open_calls: set[str] = set()
    for message in request.messages:
        if message.role == "tool":
            assert message.tool_call_id in open_calls
            open_calls.remove(message.tool_call_id)
        else:
            assert not open_calls
            open_calls = {each.id for each in message.tool_calls}
    assert not open_calls


async def talk(agent: Any, *said: str, **options: Any) -> Any:
    runner, result = Runner(agent, **options), None
    for text in said:
        result = await runner.run(text, session_id="s1")
    return result


async def test_a_history_with_too_many_messages_is_summarized_and_the_record_stays() -> None:
    writer = ScriptedModel(["they said one and two"])
    agent, model = scripted("1", "2", "3", middleware=[Summarize(writer, messages=4, keep=2)], instruction="Be kind.")
    result = await talk(agent, "one", "two", "three")
    assert shown(model.requests[2]) == ["Be kind.", f"{SUMMARY}they said one and two", "2", "three"]
    assert shown(writer.requests[0])[1] == "user: one\n\nassistant: 1\n\nuser: two"
    assert [message.text for message in result.messages] == ["one", "1", "two", "2", "three", "3"]


async def test_tokens_trigger_it_too_and_what_is_kept_is_half_of_them() -> None:
    writer = FunctionModel(lambda _: "short")
    agent, model = scripted(*["x" * 400] * 9, middleware=[Summarize(writer, tokens=600, keep=50)])
    await talk(agent, *["y" * 400] * 9)
    sizes = [sum(len(text) for text in shown(request)) for request in model.requests]
    assert max(sizes) <= 4 * 600
    assert 1 <= len(writer.requests) <= 3


async def test_a_call_is_never_split_from_its_result() -> None:
    calls = [[call("look", f"c{n}a", at="x"), call("look", f"c{n}b", at="y")] for n in range(12)]
    for keep in range(1, 8):
        writer = FunctionModel(lambda _: "looked")
        agent, model = scripted(*calls, "done", tools=[look], middleware=[Summarize(writer, messages=8, keep=keep)])
        await talk(agent, "look around")
        assert writer.requests
        for request in model.requests:
            checked(request)
            # What the user wants is never paraphrased away.
            assert "look around" in shown(request)
            assert len(request.messages) <= 8 + 3


async def test_call_ids_that_come_again_in_a_later_turn_do_not_confuse_it() -> None:
    script: list[Any] = []
    for _ in range(6):
        script += [call("look", "c1", at="x"), "ok"]
    agent, model = scripted(
        *script, tools=[look], middleware=[Summarize(FunctionModel(lambda _: "s"), messages=6, keep=3)]
    )
    await talk(agent, *"abcdef")
    for request in model.requests:
        checked(request)


async def test_system_messages_stay() -> None:
    class Rules(PatchToolCalls):
        def before_model(self, state: Any, ctx: Any) -> Any:
            rules = Message.system("no jokes")
            return state if rules in state.messages else type(state)(messages=(rules, *state.messages))

    agent, model = scripted("1", "2", "3", middleware=[Rules(), Summarize(ScriptedModel(["s"]), messages=4, keep=1)])
    await talk(agent, "one", "two", "three")
    assert shown(model.requests[2]) == ["no jokes", f"{SUMMARY}s", "three"]


async def test_a_summary_is_summarized_with_what_came_after_it_and_never_alone() -> None:
    writer = ScriptedModel(["first", "second"])
    agent, model = scripted("1", "2", "3", "4", middleware=[Summarize(writer, messages=3, keep=1)])
    await talk(agent, "one", "two", "three", "four")
    assert shown(writer.requests[1])[1].startswith(f"user: {SUMMARY}first")
    assert shown(model.requests[3]) == [f"{SUMMARY}second", "four"]
    # One huge message cannot be made smaller: nothing is asked for it, again and again.
    silent = ScriptedModel([])
    agent, _ = scripted("1", middleware=[Summarize(silent, tokens=10)])
    await talk(agent, "x" * 1000)
    assert silent.requests == []


FAILURES: list[Any] = [ModelError("away"), ValueError("odd"), "", "  \n"]


@pytest.mark.parametrize("failure", FAILURES)
async def test_without_a_summary_the_history_stays_and_it_is_told(
    failure: Any, caplog: pytest.LogCaptureFixture
) -> None:
    agent, model = scripted(
        "1", "2", "3", middleware=[Summarize(ScriptedModel([failure, "later"]), messages=2, keep=1)]
    )
    runner = Runner(agent)
    await runner.run("one", session_id="s1")
    events = [event async for event in runner.run("two", session_id="s1")]
    told = [event.data for event in events if isinstance(event, Custom)]
    assert [(each["summarize"], each["then"], each["messages"]) for each in told] == [("failed", "keep", 2)]
    assert shown(model.requests[1]) == ["one", "1", "two"]
    assert "2 messages could not be summarized (keep)" in caplog.text
    assert caplog.records[0].levelno == logging.WARNING
    await runner.run("three", session_id="s1")
    assert shown(model.requests[2]) == [f"{SUMMARY}later", "three"]


async def test_without_a_summary_the_history_can_be_trimmed_with_a_line_that_says_so() -> None:
    middleware = [Summarize(ScriptedModel([ModelError("away")]), messages=2, keep=1, on_failure="trim")]
    agent, model = scripted("1", "2", middleware=middleware)
    await talk(agent, "one", "two")
    assert shown(model.requests[1]) == [f"{LEFT_OUT}2.]", "two"]


async def test_without_a_summary_the_run_can_fail_and_be_recovered() -> None:
    middleware = [Summarize(ScriptedModel([ModelError("away"), "s"]), messages=2, keep=1, on_failure="raise")]
    agent, model = scripted("1", "2", middleware=middleware)
    runner = Runner(agent)
    await runner.run("one", session_id="s1")
    with pytest.raises(ModelError, match="away"):
        await runner.run("two", session_id="s1")
    assert (await runner.recover("s1")).output == "2"
    assert shown(model.requests[1]) == [f"{SUMMARY}s", "two"]


async def test_a_summary_that_never_comes_has_its_time() -> None:
    async def never(_: Any) -> str:
        await asyncio.get_running_loop().create_future()
        return ""

    agent, model = scripted("1", "2", middleware=[Summarize(FunctionModel(never), messages=2, keep=1, timeout=0.01)])
    result = await talk(agent, "one", "two")
    assert result.status == "done"
    assert shown(model.requests[1]) == ["one", "1", "two"]


async def test_a_summary_is_made_once_over_a_pause_and_the_process(reopen: Reopen) -> None:
    @tool
    async def ask() -> str:
        """Ask."""
        return str(interrupt("go on?", key="ask"))

    def agent(writer: Any, *script: Any) -> Any:
        return scripted(*script, tools=[ask], middleware=[Summarize(writer, messages=4, keep=1)])

    first, _ = agent(ScriptedModel(["s"]), "1", "2", call("ask"))
    paused = await talk(first, "one", "two", "three", store=reopen())
    assert [each.id for each in paused.interrupts] == ["agent:A;tool:ask:c1"]
    second, model = agent(ScriptedModel([]), "done")  # No more summaries: the one that there is was kept.
    assert (await Runner(second, store=reopen()).resume("s1", {"ask": "yes"})).output == "done"
    assert shown(model.requests[0]) == [f"{SUMMARY}s", "three", "", "yes"]


def test_options_that_make_no_sense_are_refused() -> None:
    model = ScriptedModel([])
    with pytest.raises(UsageError, match="would never do anything"):
        Summarize(model, tokens=None)
    with pytest.raises(UsageError, match="below messages"):
        Summarize(model, messages=5, keep=5)
    with pytest.raises(UsageError, match="on_failure"):
        Summarize(model, on_failure="ignore")  # pyright: ignore[reportArgumentType]


async def test_broken_calls_and_long_texts_are_quoted_briefly() -> None:
    writer = ScriptedModel(["s"])
    broken = Message.assistant(tool_calls=[ToolCall(id="c1", name="look", raw='{"at": ')])
    agent, _ = scripted(broken, "1", "2", tools=[look], middleware=[Summarize(writer, messages=4, keep=1)])
    await talk(agent, "x" * 50_000, "two")
    assert len(shown(writer.requests[0])[1]) < 10_000


LONG = ContextTooLong("The conversation is too long.")


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_conversation_that_is_too_long_for_the_model_is_summarized_and_tried_again(
    reopen: Reopen, streaming: bool
) -> None:
    writer = ScriptedModel(["they said one", "they said one and two"])
    agent, model = scripted("1", LONG, "2", "3", middleware=[Summarize(writer, tokens=None, messages=100)])
    result = await talk(agent, "one " * 50, "two", store=reopen(), streaming=streaming)
    assert result.output == "2"
    assert shown(model.requests[2]) == [f"{SUMMARY}they said one", "1", "two"]
    result = await talk(agent, "three " * 50, store=reopen(), streaming=streaming)
    assert result.output == "3"
    assert shown(model.requests[3])[0] == f"{SUMMARY}they said one and two", "the history is now kept short"
    assert [message.text for message in result.messages][1::2] == ["1", "2", "3"], "the record stays"


def small_model(most: int) -> tuple[FunctionModel, list[tuple[str, int]]]:
    """A model that answers and summarizes, with a context of `most` characters; and what it was asked for."""
    asked: list[tuple[str, int]] = []

    def answer(request: Any) -> str:
        size, is_summary = sum(map(len, shown(request))), shown(request)[0].startswith("Summarize")
        asked.append(("summary" if is_summary else "answer", size))
        if size > most:
            raise LONG
        return "they talked" if is_summary else "ok"

    return FunctionModel(answer), asked


async def test_a_session_goes_on_with_an_agent_whose_own_model_summarizes(reopen: Reopen) -> None:
    model, asked = small_model(6_000)
    agent = ChatModelAgent("A", model=model, middleware=[Summarize(model)])
    for turn in range(12):
        asked.clear()
        assert (await talk(agent, f"{turn} " + "x" * 1000, store=reopen())).output == "ok"
        assert max(size for _, size in asked) < 9_000, "what was summarized is not quoted again"


async def test_what_is_too_long_for_the_summary_is_summarized_in_pieces() -> None:
    writer, asked = small_model(3_000)
    agent, model = scripted(*"12345", LONG, "6", middleware=[Summarize(writer, keep=2)])
    result = await talk(agent, *["x" * 1000] * 6)
    assert result.output == "6"
    assert shown(model.requests[6]) == [f"{SUMMARY}they talked", "5", "x" * 1000]
    assert len([size for _, size in asked if size <= 3_000]) > 1


@pytest.mark.parametrize("next_turn", [True, False])
async def test_a_summary_after_a_refusal_replaces_the_history_for_good(reopen: Reopen, next_turn: bool) -> None:
    writer = ScriptedModel(["they said one"])  # asked once only
    after = ["2", "3"] if next_turn else [call("look", at="x"), "3"]
    agent, model = scripted("1", LONG, *after, tools=[look], middleware=[Summarize(writer, tokens=None, messages=100)])
    await talk(agent, "one " * 500, "two", store=reopen())
    if next_turn:
        await talk(agent, "three", store=reopen())
    assert shown(model.requests[3])[:3] == [f"{SUMMARY}they said one", "1", "two"]


async def test_a_history_is_shortened_until_a_smaller_model_takes_it() -> None:
    large, _ = small_model(10**6)
    small, asked = small_model(3_000)
    store = MemoryStore()
    await talk(ChatModelAgent("A", model=large), *["x" * 1000] * 20, store=store)
    agent = ChatModelAgent("A", model=small, middleware=[Summarize(small)])
    assert (await talk(agent, "and now?", store=store)).output == "ok"
    asked.clear()
    assert (await talk(agent, "and then?", store=store)).output == "ok"
    assert [kind for kind, _ in asked] == ["answer"], "all that was summarized stays so"


async def test_what_cannot_be_summarized_at_all_is_trimmed_after_a_refusal() -> None:
    writer, _ = small_model(100)
    agent, model = scripted("1", LONG, "2", middleware=[Summarize(writer, keep=1)])
    assert (await talk(agent, "x" * 1000, "two")).output == "2"
    assert shown(model.requests[2]) == [f"{LEFT_OUT}2.]", "two"]


async def test_a_conversation_that_stays_too_long_fails() -> None:
    agent, model = scripted("1", LONG, LONG, middleware=[Summarize(ScriptedModel(["short"]), keep=1)])
    with pytest.raises(ContextTooLong):
        await talk(agent, "one", "two")
    assert len(model.requests) == 3


async def test_a_single_message_that_is_too_long_cannot_be_summarized() -> None:
    agent, _ = scripted(LONG, middleware=[Summarize(ScriptedModel([]))])
    with pytest.raises(ContextTooLong):
        await talk(agent, "one")


async def test_a_summary_has_its_own_options_and_retries_and_its_usage_counts() -> None:
    used = Message.assistant("they talked", usage=Usage(input_tokens=10, output_tokens=5))
    writer = ScriptedModel([ModelError("busy"), used])
    summarize = Summarize(
        writer,
        messages=2,
        keep=1,
        model_options={"temperature": 0},
        retry=Retry(attempts=2, on=ModelError, backoff=0.0),
        quote=lambda messages: f"{len(messages)} messages",
    )
    agent, model = scripted("1", "2", middleware=[summarize])
    runner = Runner(agent)
    await runner.run("hello", session_id="s")
    result = await runner.run("and?", session_id="s")
    assert [dict(request.options) for request in writer.requests] == [{"temperature": 0}] * 2
    assert writer.requests[1].messages[1].text == "2 messages"
    assert model.requests[1].messages[0].text.endswith("they talked")
    assert (result.usage.input_tokens, result.usage.output_tokens, result.usage.calls) == (10, 5, 2)
