"""What is being written while connections break: the pieces add up to the text, whoever is cut off when."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable

from adjourn import ChatModelAgent, Retry, ToolCall, tool
from adjourn.agents import ParallelAgent
from adjourn.client import Client, RemoteRun
from adjourn.events import Delta, Done, Event, Retrying
from adjourn.models import Chunk, ModelRequest, ToolCallChunk
from adjourn.server import App
from adjourn.testing import ScriptedModel
from tests.server.agents import GATES
from tests.server.serving import Serving

from .cutting import Proxy
from .test_streams import text


class Gate(str):
    """Where a model waits until the test lets it go on."""

    __slots__ = ()


class Writer:
    """A model that writes chunks, waits at gates and fails, as its script says, one list for each call."""

    def __init__(self, *answers: list[Chunk | Gate | Exception]) -> None:
        self._answers = list(answers)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        for step in self._answers.pop(0):
            match step:
                case Gate():
                    await GATES.wait(step)
                case Exception():
                    raise step
                case Chunk():
                    yield step


def written(*texts: str | Gate | Exception) -> list[Chunk | Gate | Exception]:
    return [each if isinstance(each, Gate | Exception) else Chunk(text=each) for each in texts]


@tool
async def count(to: str) -> AsyncIterator[str]:
    """Count."""
    for number in range(int(to)):
        yield f"{number} "


def pieces(events: list[Event]) -> list[Delta]:
    return [event for event in events if isinstance(event, Delta)]


async def read(run: RemoteRun, *, do: Callable[[list[Event]], object] = lambda _: None) -> list[Event]:
    """Read all events, doing something after each."""
    events: list[Event] = []
    async for event in run:
        events.append(event)
        do(events)
    return events


def at(count: int, *acts: Callable[[], object]) -> Callable[[list[Event]], None]:
    """Do something once there are so many pieces."""
    left = list(acts)

    def act(events: list[Event]) -> None:
        if len(pieces(events)) == count:
            while left:
                left.pop(0)()

    return act


def both(*acts: Callable[[list[Event]], object]) -> Callable[[list[Event]], None]:
    def act(events: list[Event]) -> None:
        for each in acts:
            each(events)

    return act


def cut(proxy: Proxy, past: str, until: str) -> list[Callable[[], object]]:
    """Break the connection, and let the model go on from one gate to the next before anybody is back."""
    return [proxy.cut, lambda: GATES.open(past), lambda: GATES.reached(until)]


async def test_what_was_missed_of_a_text_comes_as_one_more_piece():  # rules V10, V14
    model = Writer(written("one ", Gate("missed 1"), "two ", "three ", Gate("missed 2"), "four"))
    with Serving(App([ChatModelAgent("A", model=model)])) as server, Proxy(server.server.port) as proxy:
        async with Client(proxy.url) as client:
            events = await read(
                client.chat("go"),
                do=both(
                    at(1, *cut(proxy, "missed 1", "missed 2")),
                    at(2, lambda: GATES.open("missed 2")),
                ),
            )
    assert [each.text for each in pieces(events)] == ["one ", "two three ", "four"]
    assert len({each.message_id for each in pieces(events)}) == 1
    assert not [event for event in events if isinstance(event, Retrying)]


async def test_reasoning_and_calls_go_on_where_they_were_cut():  # rules V10, V14
    def call(arguments: str, id: str = "", name: str = "") -> Chunk:
        return Chunk(tool_calls=(ToolCallChunk(index=0, arguments=arguments, id=id, name=name),))

    model = Writer(
        [
            Chunk(reasoning="Well, "),
            Gate("calls 1"),
            Chunk(reasoning="I count.", text="Let me "),
            Chunk(text="count."),
            call('{"t', id="c1", name="count"),
            Gate("calls 2"),
            call('o": '),
            call('"3'),
            Gate("calls 3"),
            call('"}'),
        ],
        written("Done."),
    )
    agent = ChatModelAgent("A", model=model, tools=[count])
    with Serving(App([agent])) as server, Proxy(server.server.port) as proxy:
        async with Client(proxy.url) as client:
            run = client.chat("go")
            events = await read(
                run,
                do=both(
                    at(1, *cut(proxy, "calls 1", "calls 2")),
                    at(3, *cut(proxy, "calls 2", "calls 3")),
                    at(4, lambda: GATES.open("calls 3")),
                ),
            )
            assert (await run).output == "Done."
    first, missed, *rest = pieces(events)
    assert (first.reasoning, missed.reasoning, missed.text) == ("Well, ", "I count.", "Let me count.")
    calls = [each.tool_call for each in rest if each.tool_call is not None]
    assert [(each.id, each.name, each.arguments) for each in calls[:2]] == [
        ("c1", "count", '{"t'),
        ("c1", "count", 'o": "3'),
    ]
    # What is stored overtakes pieces that nobody has read, and has them all: these may end early, but never differ.
    assert '{"to": "3"}'.startswith("".join(each.arguments for each in calls))
    assert "0 1 2 ".startswith("".join(each.text for each in rest if each.call_id == "c1"))
    assert not [event for event in events if isinstance(event, Retrying)]


async def test_what_began_anew_while_nobody_was_there_voids_what_was_read():  # rules V10, V14
    model = Writer(
        written("wrong ", Gate("anew 1"), "way ", ConnectionError("gone")),
        written("right ", Gate("anew 2"), "way"),
    )
    agent = ChatModelAgent("A", model=model, retry=Retry(attempts=2, backoff=0))
    with Serving(App([agent])) as server, Proxy(server.server.port) as proxy:
        async with Client(proxy.url) as client:
            events = await read(
                client.chat("go"),
                do=both(at(1, *cut(proxy, "anew 1", "anew 2")), at(2, lambda: GATES.open("anew 2"))),
            )
    assert [each.text for each in pieces(events)] == ["wrong ", "right ", "way"]
    assert text(events) == "right way"
    (again,) = [event for event in events if isinstance(event, Retrying)]
    assert "the connection was lost" in again.error


async def test_what_was_whole_by_then_is_completed_or_said_anew():  # rules V10, V14
    endings = {
        "same": (written("one ", Gate("same 1"), "two"), "one two", 0),
        "other": ([*written("one ", Gate("other 1")), ConnectionError("gone")], "three", 1),
    }
    for name, (answer, said, retries) in endings.items():
        model = Writer(answer, written("three"))
        agent = ChatModelAgent("A", model=model, retry=Retry(attempts=2, backoff=0))
        with Serving(App([agent])) as server, Proxy(server.server.port) as proxy:
            async with Client(proxy.url) as client, Client(f"http://127.0.0.1:{server.server.port}") as direct:
                run = client.chat("go", session_id="s")
                events: list[Event] = []
                async for event in run:
                    events.append(event)
                    if isinstance(event, Delta) and len(pieces(events)) == 1:
                        proxy.cut()
                        GATES.open(f"{name} 1")
                        await direct.attach("s")
        assert text(events) == said
        assert sum(isinstance(event, Retrying) for event in events) == retries
        assert isinstance(events[-1], Done)


async def test_a_retry_that_is_seen_is_passed_on_and_voids_nothing_twice():
    model = Writer(
        written("wrong ", Gate("seen 0"), ConnectionError("gone")),
        written("right ", Gate("seen 1"), "way ", Gate("seen 2"), "on"),
    )
    agent = ChatModelAgent("A", model=model, retry=Retry(attempts=2, backoff=0))
    with Serving(App([agent])) as server, Proxy(server.server.port) as proxy:
        async with Client(proxy.url) as client:
            events = await read(
                client.chat("go"),
                do=both(
                    at(1, lambda: GATES.open("seen 0")),
                    at(2, *cut(proxy, "seen 1", "seen 2")),
                    at(3, lambda: GATES.open("seen 2")),
                ),
            )
    assert [each.text for each in pieces(events)] == ["wrong ", "right ", "way ", "on"]
    assert len([event for event in events if isinstance(event, Retrying)]) == 1
    assert text(events) == "right way on"


async def test_tools_whose_calls_have_the_same_id_write_texts_of_their_own():  # rules V10, V14
    """Ids of calls are those of models: two agents side by side may both have a call `c1`."""

    @tool
    async def say(who: str) -> AsyncIterator[str]:
        """Say something in three pieces."""
        yield f"{who}1 "
        await GATES.wait(f"say {who} 1")
        yield f"{who}2 "
        await GATES.wait(f"say {who} 2")
        yield f"{who}3"

    def agent(name: str) -> ChatModelAgent:
        call = ToolCall(id="c1", name="say", arguments={"who": name})
        return ChatModelAgent(name, model=ScriptedModel([[call], "ok"]), tools=[say])

    together = ParallelAgent("P", agents=[agent("A"), agent("B")])
    with Serving(App([together])) as server, Proxy(server.server.port) as proxy:
        async with Client(proxy.url) as client:
            said: dict[str, str] = defaultdict(str)
            cuts = 0
            async for event in client.chat("go"):
                if isinstance(event, Delta) and event.call_id == "c1":
                    said[event.address] += event.text
                    if sorted(said.values()) == ["A1 ", "B1 "] and not cuts:
                        cuts += 1
                        proxy.cut()
                        for who in "AB":
                            GATES.open(f"say {who} 1")
                            await asyncio.to_thread(GATES.reached, f"say {who} 2")
                    if len("".join(said.values())) == len("A1 B1 A2 B2 "):
                        GATES.open("say A 2")
                        GATES.open("say B 2")
                assert not isinstance(event, Retrying)
    assert cuts
    # The result of a call may overtake its last piece.
    assert [each[: len("A1 A2 ")] for each in sorted(said.values())] == ["A1 A2 ", "B1 B2 "]
    assert all("A1 A2 A3 B1 B2 B3".count(each) == 1 for each in said.values())
