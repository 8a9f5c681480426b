"""Models that fail: retries that readers see, failover, half-cut streams."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from adjourn import ChatModelAgent, Delta, Message, MessageEvent, Retry, Retrying, Runner, UsageError, interrupt
from adjourn.errors import ModelError, RetryExhausted
from adjourn.events import Event
from adjourn.models import Chunk, ModelRequest, ToolCallChunk
from adjourn.stores import Store
from adjourn.testing import FunctionModel, ScriptedModel

from .crew import ask, call, chat, events_of, failing_events, ids, kinds, model_of, note, said

QUICK = Retry(attempts=3, backoff=0)


def is_cut(error: Exception) -> bool:
    return "cut" in str(error)


def read(events: list[Event]) -> str:
    """What somebody reads who drops partial text when told to."""
    text = ""
    for event in events:
        if isinstance(event, Delta):
            text += event.text
        elif isinstance(event, Retrying):
            text = ""
    return text


async def test_a_retry_is_seen_between_the_two_streams(store: Store) -> None:  # rule A8
    cut = [Chunk(text="half "), Chunk(text="a sen"), ConnectionError("cut")]
    agent = chat("A", cut, "a whole sentence", retry=QUICK)
    events = await events_of(Runner(agent, store=store).run("go", session_id="s"))
    assert kinds(events, without=("checkpoint",)) == [
        "delta",
        "delta",
        "retry",
        "delta",
        "delta",
        "delta",
        "message",
        "done",
    ]
    retried = next(event for event in events if isinstance(event, Retrying))
    assert (retried.attempt, retried.max_attempts, retried.agent, retried.address) == (1, 3, "A", "agent:A")
    assert "cut" in retried.error
    assert read(events) == "a whole sentence"


async def test_failures_before_the_stream_are_retried_too() -> None:  # rule A8
    agent = chat("A", ConnectionError("1"), ModelError("2"), "ok", retry=QUICK)
    assert (await Runner(agent).run("go")).output == "ok"


@pytest.mark.parametrize("streaming", [True, False])
async def test_exhaustion_tells_the_cause_and_can_be_recovered(store: Store, streaming: bool) -> None:  # rule A8
    agent = chat("A", *[ConnectionError(f"away {n}") for n in range(3)], retry=QUICK)
    events, error = await failing_events(Runner(agent, store=store, streaming=streaming).run("go", session_id="s"))
    assert isinstance(error, RetryExhausted)
    cause = error.__cause__
    assert cause is not None
    assert "away 2" in str(cause)
    assert kinds(events, without=("checkpoint",)) == ["retry", "retry", "error"]
    assert (await Runner(chat("A", "ok"), store=store).recover("s")).output == "ok"


@pytest.mark.parametrize("on", [ConnectionError, ModelError, (KeyError, ConnectionError), is_cut])
async def test_a_policy_may_name_the_models_own_error_or_ours(on: Any) -> None:  # rule A8
    agent = chat("A", ConnectionError("cut"), "ok", retry=Retry(attempts=2, on=on, backoff=0))
    assert (await Runner(agent).run("go")).output == "ok"


async def test_an_error_that_no_policy_names_is_not_retried() -> None:  # rule A8
    agent = chat("A", ValueError("odd"), "never", retry=Retry(attempts=3, on=ConnectionError, backoff=0))
    with pytest.raises(ModelError, match="odd"):
        await Runner(agent).run("go")
    assert len(model_of(agent).requests) == 1


async def test_what_cannot_be_helped_is_not_retried() -> None:  # rule A8
    agent = chat("A", ModelError("bad key", status=401, retryable=False), "never", retry=QUICK)
    with pytest.raises(ModelError, match="bad key"):
        await Runner(agent).run("go")
    assert len(model_of(agent).requests) == 1


async def test_a_provider_that_says_when_is_waited_for() -> None:  # rule A8
    agent = chat("A", ModelError("slow down", retry_after=0.01), "ok", retry=QUICK)
    events = await events_of(Runner(agent).run("go"))
    assert next(event.delay for event in events if isinstance(event, Retrying)) == 0.01


async def test_failover_tries_the_next_model_after_retries(store: Store) -> None:  # rule A8
    second = ScriptedModel(["from the second", "again the second"])
    first = ScriptedModel([ConnectionError("1"), ConnectionError("2")])
    agent = ChatModelAgent("A", model=first, failover=[second], retry=Retry(attempts=2, backoff=0))
    events = await events_of(Runner(agent, store=store).run("go", session_id="s"))
    assert read(events) == "from the second"
    assert (len(first.requests), len(second.requests)) == (2, 1)


async def test_the_last_good_model_stays_first_in_the_turn(store: Store) -> None:  # rule A8
    first = ScriptedModel([ConnectionError("away")])
    second = ScriptedModel([call("note", text="x"), call("ask", "c2", question="?")])
    agent = ChatModelAgent("A", model=first, failover=[second], tools=[note, ask])
    paused = await Runner(agent, store=store).run("go", session_id="s")
    third = ScriptedModel(["second again"])
    again = ChatModelAgent("A", model=ScriptedModel([]), failover=[third], tools=[note, ask])
    result = await Runner(again, store=store).resume("s", dict.fromkeys(ids(paused), "y"))
    assert (result.output, len(first.requests), len(second.requests)) == ("second again", 1, 2)


async def test_when_all_models_fail_the_last_error_is_told() -> None:  # rule A8
    agent = ChatModelAgent(
        "A", model=ScriptedModel([ConnectionError("one")]), failover=[ScriptedModel([OSError("two")])]
    )
    with pytest.raises(ModelError, match="two"):
        await Runner(agent).run("go")


async def test_a_mistake_in_the_code_does_not_fail_over() -> None:  # rule A8
    second = ScriptedModel(["never"])
    with pytest.raises(UsageError):
        await Runner(ChatModelAgent("A", model=ScriptedModel([]), failover=[second])).run("go")
    assert second.requests == []


async def test_a_model_that_cannot_take_the_request_hides_no_outage() -> None:  # rule A8
    first, cannot = ScriptedModel([ConnectionError("away")] * 2), ScriptedModel([UsageError("It takes no images.")] * 2)
    agent = ChatModelAgent("A", model=first, failover=[cannot, ScriptedModel(["from the third"])])
    assert (await Runner(agent).run("go")).output == "from the third"
    with pytest.raises(ModelError, match="away") as failure:
        await Runner(ChatModelAgent("A", model=first, failover=[cannot])).run("go")
    assert any("could not be asked instead: It takes no images." in note for note in failure.value.__notes__)


async def test_a_pause_is_no_failure(store: Store) -> None:  # rule I1
    second = ScriptedModel(["never"])
    asking = FunctionModel(lambda _: f"told {interrupt('model?')}")
    agent = ChatModelAgent("A", model=asking, failover=[second], retry=QUICK)
    runner = Runner(agent, store=store)
    paused = await runner.run("go", session_id="s")
    assert ids(paused) == ["agent:A"]
    assert (await runner.resume("s", {"agent:A": "x"})).output == "told x"
    assert second.requests == []


async def test_a_call_cut_off_in_the_stream_is_never_run() -> None:  # rule A8
    cut = [
        Chunk(tool_calls=(ToolCallChunk(index=0, id="c1", name="note", arguments='{"text": "x"}'),)),
        ConnectionError("cut"),
    ]
    agent = chat("A", cut, "ok", tools=[note], retry=QUICK)
    events = await events_of(Runner(agent).run("go"))
    assert "tool_result" not in kinds(events)


async def test_arguments_that_end_early_are_told_and_not_run() -> None:  # rule A8
    half = [Chunk(tool_calls=(ToolCallChunk(index=0, id="c1", name="note", arguments='{"text": "x'),))]
    agent = chat("A", half, "sorry", tools=[note])
    result = await Runner(agent).run("go")
    assert result.output == "sorry"
    assert "noted" not in "".join(said(result.messages))


@pytest.mark.parametrize("streaming", [True, False])
async def test_streaming_may_be_off(store: Store, streaming: bool) -> None:
    agent = chat("A", "one two three")
    run = Runner(agent, store=store, streaming=streaming).run("go", session_id="s")
    events = await events_of(run)
    deltas = [event.text for event in events if isinstance(event, Delta)]
    assert deltas == (["one", " two", " three"] if streaming else [])
    assert [event.message.text for event in events if isinstance(event, MessageEvent)] == ["one two three"]


async def test_only_the_text_may_be_read() -> None:
    run = Runner(chat("A", call("note", text="x"), "one two", tools=[note])).run("go")
    assert "".join([piece async for piece in run.text()]) == "one two"


class Whole:
    """A model that only answers whole."""

    async def generate(self, request: ModelRequest) -> Message:
        return Message.assistant("whole")


class Pieces:
    """A model that only streams, and tells when it is left."""

    closed = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        try:
            yield Chunk(text="in ")
            yield Chunk(reasoning="hm", text="pieces")
        finally:
            self.closed += 1


@pytest.mark.parametrize("streaming", [True, False])
async def test_one_shape_of_model_gives_the_other(streaming: bool) -> None:
    for model, text in ((Whole(), "whole"), (Pieces(), "in pieces")):
        events = await events_of(Runner(ChatModelAgent("A", model=model), streaming=streaming).run("go"))
        assert [event.message.text for event in events if isinstance(event, MessageEvent)] == [text]


async def test_a_stream_that_is_left_is_closed() -> None:
    model = Pieces()
    async for event in Runner(ChatModelAgent("A", model=model)).run("go"):
        if isinstance(event, Delta):
            break
    assert model.closed == 1


@pytest.mark.parametrize("answer", [None, 7, Message.user("no")])
async def test_what_is_no_answer_is_refused(answer: Any) -> None:
    class Odd:
        async def generate(self, request: ModelRequest) -> Message:
            return answer

    with pytest.raises((UsageError, ModelError), match="not an assistant message"):
        await Runner(ChatModelAgent("A", model=Odd())).run("go")


async def test_a_stream_with_no_answer_is_an_error() -> None:  # rule A8
    class Empty:
        async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
            for chunk in ():
                yield chunk

    for streaming in (True, False):
        with pytest.raises(ModelError, match="ended without an answer"):
            await events_of(Runner(ChatModelAgent("A", model=Empty()), streaming=streaming).run("go"))
