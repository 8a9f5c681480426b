"""Custom agents that stream: pieces of a message before it, and streams that become one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from adjourn import Delta, MessageEvent, RunContext, Runner, Usage, UsageError, interrupt
from adjourn.agents import AgentInput
from adjourn.events import Event, Retrying
from adjourn.models import Chunk, ModelRequest, stream
from adjourn.stores import Store
from adjourn.testing import ScriptedModel

from .crew import chat, events_of, failing_events, said
from .test_custom import Code, Coded, say


def heard(events: list[Event]) -> list[str]:
    """What a reader sees: pieces, resets and whole messages."""
    shown: list[str] = []
    for event in events:
        match event:
            case Delta():
                shown.append(event.text)
            case Retrying():
                shown.append("<reset>")
            case MessageEvent():
                shown.append(f"[{event.message.text}]")
            case _:
                pass
    return shown


async def pieces(input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
    yield Delta(text="one ")
    yield Delta(text="two")
    yield say("one two")
    answer = interrupt("?")
    yield Delta(text="and ")
    yield Delta(text=answer)
    yield say(f"and {answer}")


async def test_pieces_come_before_their_message_and_once(store: Store) -> None:  # rules A15, R5
    first = await events_of(Runner(Coded(pieces), store=store).run("go", session_id="s"))
    assert heard(first) == ["one ", "two", "[one two]"]
    pieces_of = {(event.agent, event.address, event.message_id) for event in first if isinstance(event, Delta)}
    ids = [event.message.id for event in first if isinstance(event, MessageEvent)]
    assert pieces_of == {("Mine", "agent:Mine", ids[0])}
    second = await events_of(Runner(Coded(pieces), store=store).resume("s", {"agent:Mine": "three"}))
    assert heard(second) == ["and ", "three", "[and three]"]
    messages = await Runner(Coded(pieces), store=store).messages("s")
    assert said(messages) == ["user: go", "assistant: one two", "assistant: and three"]


async def test_pieces_are_not_shown_without_streaming() -> None:
    events = await events_of(Runner(Coded(pieces), streaming=False).run("go", session_id="s"))
    assert heard(events) == ["[one two]"]


@pytest.mark.parametrize("options", [{}, {"store": "memory://"}, {"store": "memory://", "durability": "async"}])
async def test_a_message_comes_before_the_pieces_of_the_next(options: dict[str, Any]) -> None:  # rule A11
    async def code(input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
        yield Delta(text="1")
        yield say("1")
        yield Delta(text="2")
        yield say("2")

    assert heard(await events_of(Runner(Coded(code), **options).run("go"))) == ["1", "[1]", "2", "[2]"]


async def test_pieces_before_a_pause_are_reset_and_come_again(store: Store) -> None:  # rule A15
    async def code(input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
        yield Delta(text="half")
        answer = interrupt("?")
        yield say(f"half {answer}")

    first = await events_of(Runner(Coded(code), store=store).run("go", session_id="s"))
    assert heard(first) == ["half", "<reset>"]
    second = await events_of(Runner(Coded(code), store=store).resume("s", {"agent:Mine": "way"}))
    assert heard(second) == ["half", "<reset>", "[half way]"]  # The message says more than the pieces.


async def test_pieces_of_code_that_fails_are_reset() -> None:
    async def code(input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
        yield Delta(text="half")
        raise ValueError("broken")

    events, error = await failing_events(Runner(Coded(code)).run("go"))
    assert heard(events) == ["half", "<reset>"]
    assert isinstance(error, ValueError)


async def test_pieces_without_a_message_are_refused() -> None:
    async def code(input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
        yield Delta(text="half")

    events, error = await failing_events(Runner(Coded(code)).run("go"))
    assert heard(events) == ["half", "<reset>"]
    assert isinstance(error, UsageError)
    assert "no message after them" in str(error)


def streaming(model: ScriptedModel) -> Code:
    async def code(input: AgentInput, ctx: RunContext) -> AsyncIterator[Any]:
        yield stream(model, ModelRequest(messages=input.messages))
        yield say(f"then {interrupt('?')}")

    return code


async def test_a_stream_of_a_model_becomes_a_message(store: Store) -> None:  # rules A13, A15
    model = ScriptedModel(["roses are red"])
    run = Runner(Coded(streaming(model)), store=store).run("go", session_id="s")
    first = await events_of(run)
    assert heard(first)[-1] == "[roses are red]"
    assert "".join(heard(first)[:-1]) == "roses are red"
    result = await Runner(Coded(streaming(model)), store=store).resume("s", {"agent:Mine": "blue"})
    assert said(result.messages) == ["user: go", "assistant: roses are red", "assistant: then blue"]
    assert len(model.requests) == 1  # Its message is on record: the model is not asked again.


async def test_the_usage_of_a_stream_counts() -> None:  # rule A13
    async def code(input: AgentInput, ctx: RunContext) -> AsyncIterator[Any]:
        yield chunks()

    async def chunks() -> AsyncIterator[Chunk]:
        yield Chunk(text="hi", usage=Usage(input_tokens=3, output_tokens=2))
        yield Chunk(finish_reason="stop")

    result = await Runner(Coded(code)).run("go")
    assert (result.output, result.usage) == ("hi", Usage(calls=1, input_tokens=3, output_tokens=2))


async def test_a_stream_may_be_one_of_texts() -> None:
    async def code(input: AgentInput, ctx: RunContext) -> AsyncIterator[Any]:
        yield words()

    async def words() -> AsyncIterator[str]:
        yield "a "
        yield "b"

    assert heard(await events_of(Runner(Coded(code)).run("go"))) == ["a ", "b", "[a b]"]


async def test_a_stream_of_anything_else_is_refused() -> None:
    async def code(input: AgentInput, ctx: RunContext) -> AsyncIterator[Any]:
        yield numbers()

    async def numbers() -> AsyncIterator[int]:
        yield 7

    with pytest.raises(UsageError, match="has 7 in it"):
        await Runner(Coded(code)).run("go")


async def test_a_stream_that_breaks_is_asked_for_again_when_recovered(store: Store) -> None:  # rules A15, R13
    broken = [True]

    async def code(input: AgentInput, ctx: RunContext) -> AsyncIterator[Any]:
        yield say("first")
        yield words()

    async def words() -> AsyncIterator[str]:
        yield "a "
        if broken:
            broken.clear()
            raise ConnectionError("gone")
        yield "b"

    events, error = await failing_events(Runner(Coded(code), store=store).run("go", session_id="s"))
    assert isinstance(error, ConnectionError)
    assert heard(events) == ["[first]", "a ", "<reset>"]
    assert heard(await events_of(Runner(Coded(code), store=store).recover("s"))) == ["a ", "b", "[a b]"]


async def test_what_an_agent_streams_in_a_tree_is_its_own() -> None:  # rule A15
    async def code(input: AgentInput, ctx: RunContext) -> AsyncIterator[Event]:
        await ctx.run(chat("Inner", "inner text"), "x")
        yield Delta(text="mine")
        yield say("mine")

    events = await events_of(Runner(Coded(code)).run("go"))
    by: dict[str, str] = {}
    for event in events:
        if isinstance(event, Delta):
            by[event.agent] = by.get(event.agent, "") + event.text
    assert by == {"Inner": "inner text", "Mine": "mine"}
