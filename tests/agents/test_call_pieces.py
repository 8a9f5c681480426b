"""Tool calls as a model writes them: pieces that readers see at once, and the ids of messages in the making."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence

import pytest

from adjourn import ChatModelAgent, Delta, ParallelAgent, Retry, Retrying, Runner, print_event
from adjourn.errors import ModelError
from adjourn.events import Event, MessageEvent, ToolCallPiece, ToolResult, from_json, to_json
from adjourn.graph import START, MessagesState, StateGraph
from adjourn.models import Chunk, ToolCallChunk
from adjourn.stores import Store
from adjourn.testing import ScriptedModel
from tests.conftest import Buffer

from .crew import chat


def write(path: str, text: str) -> str:
    """Write a file."""
    return f"{len(text)} characters in {path}"


def piece(arguments: str, index: int = 0, id: str = "", name: str = "") -> Chunk:
    return Chunk(tool_calls=(ToolCallChunk(index=index, id=id, name=name, arguments=arguments),))


LETTERS = "x" * 300
CALL = [
    Chunk(text="I will write it."),
    piece("", id="c1", name="write"),
    piece('{"path": "a.md", "text": "'),
    *(piece(letter) for letter in LETTERS),
    piece('"}'),
    piece('{"path": "b.md", ', 1, id="c2", name="write"),
    piece('"text": ""}', 1),
    Chunk(finish_reason="tool_calls"),
]


def writer(*script: Sequence[Chunk | BaseException] | str, **options: object) -> ChatModelAgent:
    return ChatModelAgent("Writer", model=ScriptedModel(script), tools=[write], **options)  # pyright: ignore[reportArgumentType]


def written(events: list[Event]) -> dict[tuple[int, str, str], str]:
    """What readers have of the calls of the latest answer: the arguments by place, id and name."""
    found: dict[tuple[int, str, str], str] = {}
    for event in events:
        if isinstance(event, Retrying):
            found = {}
        elif isinstance(event, Delta) and (call := event.tool_call) is not None:
            place = (call.index, call.id, call.name)
            found[place] = found.get(place, "") + call.arguments
    return found


WHOLE = {
    (0, "c1", "write"): '{"path": "a.md", "text": "' + LETTERS + '"}',
    (1, "c2", "write"): '{"path": "b.md", "text": ""}',
}


async def test_a_call_is_seen_while_its_arguments_are_written(store: Store):  # rule A11
    run = Runner(writer(CALL, "done"), store=store).run("go", session_id="s")
    events = [event async for event in run]
    assert written(events) == WHOLE
    deltas = [event for event in events if isinstance(event, Delta) and event.tool_call]
    assert len(deltas) == len(CALL) - 2
    assert events.index(deltas[-1]) < next(
        n for n, each in enumerate(events) if isinstance(each, MessageEvent) and each.message.tool_calls
    )
    assert all(event.agent == "Writer" and event.path == ("Writer",) and event.seq is None for event in deltas)
    assert [from_json(to_json(event)) for event in deltas] == deltas
    stored = [event async for event in Runner(writer(), store=store).attach("s")]
    assert not [event for event in stored if isinstance(event, Delta)]
    # They run side by side, in threads, so either may be the first.
    results = [event.result for event in stored if isinstance(event, ToolResult)]
    assert sorted(results) == ["0 characters in b.md", "300 characters in a.md"]


@pytest.mark.parametrize("size", [1, 2, 5])
async def test_a_slow_reader_gets_whole_calls_in_fewer_pieces(store: Store, size: int, buffer: Buffer):  # rule A11
    events = list[Event]()
    buffer(size)
    async for event in Runner(writer(CALL, "done"), store=store).run("go", session_id="s"):
        events.append(event)
        await asyncio.sleep(0)
    assert written(events) == WHOLE
    assert sum(isinstance(event, Delta) for event in events) < len(CALL) // 2


async def test_a_call_that_was_cut_off_is_void(store: Store):  # rule A8
    script = [[*CALL[1:20], ModelError("cut off")], CALL, "done"]
    agent = writer(*script, retry=Retry(attempts=2, on=ModelError, backoff=0.0))
    events = [event async for event in Runner(agent, store=store).run("go", session_id="s")]
    assert [event.error for event in events if isinstance(event, Retrying)] == ["ModelError: cut off"]
    assert written(events) == WHOLE


async def test_a_call_that_a_failover_model_replaces_is_void() -> None:  # rule A8
    agent = writer([*CALL[1:20], ModelError("cut off")], failover=[ScriptedModel(["words instead"])])
    events = [event async for event in Runner(agent).run("go")]
    assert written(events) == {}


async def test_a_run_that_does_not_stream_has_no_pieces() -> None:
    events = [event async for event in Runner(writer(CALL, "done"), streaming=False).run("go")]
    assert not [event for event in events if isinstance(event, Delta)]


async def test_a_piece_has_the_id_that_its_message_will_have(store: Store):
    runner = Runner(writer(CALL, "one two", "three four"), store=store)
    for said in ("go", "on"):
        events = [event async for event in runner.run(said, session_id="s")]
        answers = [
            event.message for event in events if isinstance(event, MessageEvent) and event.message.role == "assistant"
        ]
        made = [event.message_id for event in events if isinstance(event, Delta)]
        assert list(dict.fromkeys(made)) == [message.id for message in answers]
    ids = [message.id for message in await runner.messages("s")]
    assert len(ids) == len(set(ids)) == 7


async def test_ids_are_right_for_agents_side_by_side_and_for_nodes() -> None:
    team = ParallelAgent("P", agents=[chat("A", "one two"), chat("B", "three four")])
    graph = (
        StateGraph(MessagesState, name="g")
        .add_llm_node("one", ScriptedModel(["one two"]))
        .add_llm_node("two", ScriptedModel(["three four"]))
        .add_edge(START, "one")
        .add_edge(START, "two")
        .compile()
    )
    for runner in (Runner(team), graph):
        events = [event async for event in runner.run("go", session_id="s")]
        streamed: dict[str | None, str] = {}
        for event in events:
            if isinstance(event, Delta):
                streamed[event.message_id] = streamed.get(event.message_id, "") + event.text
        answers = {
            event.message.id: event.message.text
            for event in events
            if isinstance(event, MessageEvent) and event.message.role == "assistant"
        }
        assert streamed == answers
        assert set(answers) <= {message.id for message in await runner.messages("s")}


def test_a_person_sees_that_something_is_being_written() -> None:
    out = io.StringIO()
    for chunk in CALL:
        for part in chunk.tool_calls:
            call = ToolCallPiece(index=part.index, name="write", arguments=part.arguments)
            print_event(Delta(agent="Writer", tool_call=call), out)
        if chunk.text:
            print_event(Delta(agent="Writer", text=chunk.text), out)
    assert out.getvalue() == "● Writer  I will write it. [write] . [write] "
