"""Middleware around the chunks of a model's answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from adjourn import ChatModelAgent, Delta, Message, Middleware, Retry, Retrying, Runner, UsageError, interrupt
from adjourn.errors import ModelError
from adjourn.events import Event, MessageEvent
from adjourn.graph import START, MessagesState, StateGraph
from adjourn.middleware.hooks import ModelCall, ModelStream
from adjourn.models import Chunk, ModelRequest
from adjourn.stores import Store
from adjourn.testing import ScriptedModel

from .scripts import call, scripted


class Upper(Middleware):
    async def wrap_model_stream(self, call: ModelStream, request: ModelRequest) -> AsyncIterator[Chunk]:
        async for chunk in call(request):
            yield replace(chunk, text=chunk.text.upper())


class Bracket(Middleware):
    async def wrap_model_stream(self, call: ModelStream, request: ModelRequest) -> AsyncIterator[Chunk]:
        yield Chunk(text="<")
        async for chunk in call(request):
            yield chunk
        yield Chunk(text="x>")


class Whole:
    """A model that does not stream."""

    async def generate(self, request: ModelRequest) -> Message:
        return Message.assistant("a b", finish_reason="stop")


async def events_of(agent: ChatModelAgent, **options: Any) -> list[Event]:
    return [event async for event in Runner(agent, **options).run("go", session_id="s")]


def deltas(events: list[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, Delta)]


async def test_readers_and_the_message_get_what_the_wrapper_yields(store: Store) -> None:  # rule A9
    agent, _ = scripted("a b", middleware=[Upper(), Bracket()])
    events = await events_of(agent, store=store)
    assert deltas(events) == ["<", "A", " B", "X>"]
    assert not [event for event in events if isinstance(event, Retrying)]
    assert [event.message.text for event in events if isinstance(event, MessageEvent)] == ["<A BX>"]


async def test_nothing_depends_on_whether_somebody_reads_or_the_model_streams() -> None:
    for model in (ScriptedModel(["a b"] * 2), Whole()):
        agent = ChatModelAgent("A", model=model, middleware=[Bracket(), Upper()])
        assert (await Runner(agent).run("go")).output == "<A Bx>"
        result = await Runner(agent, streaming=False).run("go")
        assert (result.output, result.messages[-1].finish_reason) == ("<A Bx>", "stop")
    assert deltas(await events_of(agent)) == ["<", "A B", "x>"]


async def test_each_attempt_and_each_model_is_wrapped_anew() -> None:
    broken = ScriptedModel([[Chunk(text="one"), ModelError("cut off")]] * 2)
    retry = Retry(attempts=2, on=ModelError, backoff=0.0)
    agent = ChatModelAgent(
        "A", model=broken, failover=[ScriptedModel(["three"])], retry=retry, middleware=[Bracket(), Upper()]
    )
    events = await events_of(agent)
    kinds = [
        "RESET" if isinstance(each, Retrying) else each.text for each in events if isinstance(each, Delta | Retrying)
    ]
    assert kinds == ["<", "ONE", "RESET", "<", "ONE", "RESET", "<", "THREE", "x>"]


async def test_a_wrapper_may_answer_without_the_model_or_change_the_request() -> None:
    class Cached(Middleware):
        async def wrap_model_stream(self, call: ModelStream, request: ModelRequest) -> AsyncIterator[Chunk]:
            if request.messages[-1].text == "known":
                yield Chunk(text="kept")
                return
            async for chunk in call(replace(request, messages=[Message.user("changed")])):
                yield chunk

    agent, model = scripted("new", middleware=[Cached()])
    assert (await Runner(agent).run("known")).output == "kept"
    assert (await Runner(agent).run("other")).output == "new"
    assert [request.messages[0].text for request in model.requests] == ["changed"]


async def test_tool_calls_pass_as_chunks() -> None:
    names: list[str] = []

    class Watches(Middleware):
        async def wrap_model_stream(self, call: ModelStream, request: ModelRequest) -> AsyncIterator[Chunk]:
            async for chunk in call(request):
                names.extend(piece.name for piece in chunk.tool_calls)
                yield chunk

    def note(text: str) -> str:
        """Note."""
        return text

    agent, _ = scripted(call("note", text="x"), "done", tools=[note], middleware=[Watches()])
    assert (await Runner(agent).run("go")).output == "done"
    assert names == ["note"]


async def test_a_pause_around_the_call_does_not_stream_again(store: Store) -> None:  # rule A9
    class Asks(Middleware):
        async def wrap_model(self, call: ModelCall, request: ModelRequest) -> Message:
            answer = await call(request)
            return answer if interrupt("fine?", key="fine") else answer.with_text("no")

    def runner() -> tuple[Runner, ScriptedModel]:
        agent, model = scripted("a b", middleware=[Asks(), Upper()])
        return Runner(agent, store=store), model

    paused, model = runner()
    assert (await paused.run("go", session_id="s")).status == "interrupted"
    resumed, again = runner()
    events = [event async for event in resumed.resume("s", {"fine": True})]
    assert (len(model.requests), len(again.requests), deltas(events)) == (1, 0, [])
    assert [event.message.text for event in events if isinstance(event, MessageEvent)] == ["A B"]


async def test_a_wrapper_that_asks_has_the_model_asked_again(store: Store) -> None:
    class Asks(Middleware):
        async def wrap_model_stream(self, call: ModelStream, request: ModelRequest) -> AsyncIterator[Chunk]:
            async for chunk in call(request):
                yield chunk
            yield Chunk(text=f"!{interrupt('what?', key='what')}")

    agent, model = scripted("a b", "c d", middleware=[Asks()])
    runner = Runner(agent, store=store)
    events = [event async for event in runner.run("go", session_id="s")]
    assert deltas(events) == ["a", " b"]
    assert (await runner.resume("s", {"what": "so"})).output == "c d!so"
    assert len(model.requests) == 2


async def test_a_stream_that_nobody_reads_to_its_end_is_closed() -> None:
    closed: list[str] = []

    class Model:
        async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
            try:
                yield Chunk(text="a")
                yield Chunk(text="b")
            finally:
                closed.append("model")

    class First(Middleware):
        async def wrap_model_stream(self, call: ModelStream, request: ModelRequest) -> AsyncIterator[Chunk]:
            async for chunk in call(request):
                yield chunk
                return

    async for event in Runner(ChatModelAgent("A", model=Model(), middleware=[First()])).run("go"):
        if isinstance(event, MessageEvent) and event.message.role == "assistant":
            assert (event.message.text, closed) == ("a", ["model"])


async def test_mistakes_are_told() -> None:
    class NotAGenerator(Middleware):
        async def wrap_model_stream(self, call: ModelStream, request: ModelRequest) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
            return call(request)

    class Texts(Middleware):
        async def wrap_model_stream(self, call: ModelStream, request: ModelRequest) -> AsyncIterator[Any]:
            yield "text"

    class Breaks(Middleware):
        async def wrap_model_stream(self, call: ModelStream, request: ModelRequest) -> AsyncIterator[Chunk]:
            async for chunk in call(request):
                yield chunk
                raise KeyError("mine")

    with pytest.raises(UsageError, match=r"NotAGenerator.wrap_model_stream returned a coroutine, which is not"):
        await Runner(scripted("a", middleware=[NotAGenerator()])[0]).run("go")
    with pytest.raises(UsageError, match=r"wrap_model_stream yielded a str"):
        await Runner(scripted("a", middleware=[Texts()])[0]).run("go")
    with pytest.raises(KeyError, match="mine"):  # not a failure of the model
        await Runner(scripted("a", middleware=[Breaks()])[0]).run("go")
    with pytest.raises(ModelError, match="The model of 'A' failed: ValueError: theirs"):
        await Runner(scripted(ValueError("theirs"), middleware=[Upper()])[0]).run("go")


async def test_an_llm_node_has_its_stream_wrapped() -> None:
    graph = (
        StateGraph(MessagesState, name="g")
        .add_llm_node("ask", ScriptedModel(["a b"]), middleware=[Upper()])
        .add_edge(START, "ask")
        .compile()
    )
    events = [event async for event in graph.run({"user_input": "go"})]
    assert deltas(events) == ["A", " B"]
