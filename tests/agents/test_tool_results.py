"""Results of tools: what the model reads, what is kept of a long one, and tools that stream theirs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from adjourn import AgentTool, Middleware, Retry, Runner, interrupt, tool
from adjourn.events import Delta, Retrying, ToolResult
from adjourn.messages import ImagePart, TextPart
from adjourn.stores import SQLiteStore, Store
from tests.agents.calling import agent, all_of, call, lone, results, runner, told

ran: list[Any] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ran.clear()


@dataclass
class Point:
    x: int
    y: int


FORMS: list[tuple[Any, str]] = [
    ("text", "text"),
    ("", ""),
    (None, "null"),
    (5, "5"),
    (True, "true"),
    ([1, "a", None], '[1,"a",null]'),
    ({"a": {"b": 1}}, '{"a":{"b":1}}'),
    (Point(1, 2), '{"x":1,"y":2}'),
    (datetime(2026, 1, 2, tzinfo=UTC), '"2026-01-02T00:00:00Z"'),
    ("a\x00b \u202e 🙂", "a\x00b \u202e 🙂"),
]


@pytest.mark.parametrize(("value", "text"), FORMS, ids=repr)
async def test_text_stays_text_and_the_rest_becomes_json(store: Store, value: Any, text: str) -> None:
    async def give() -> Any:
        """Give something."""
        return value

    made = runner([tool(give)], call("give"), store=store)
    assert results(await made.run("go", session_id="s")) == [text]
    assert await made.tool_output("s", "c1") == text


async def test_parts_of_a_message_stay_parts(store: Store) -> None:
    async def show() -> Any:
        """Show a picture."""
        return [TextPart(text="look"), ImagePart(url="https://example.org/a.png")]

    made = runner([tool(show)], call("show"), store=store)
    result = await made.run("go", session_id="s")
    (message,) = [message for message in result.messages if message.role == "tool"]
    assert [type(part) for part in message.parts] == [TextPart, ImagePart]
    assert await made.messages("s") == result.messages


def giving(size: int, **options: Any) -> Any:
    async def give() -> str:
        """Give a lot."""
        return "é" * size

    return tool(give, **options)


async def test_a_result_of_just_the_limit_is_whole(store: Store) -> None:  # rule T6
    made = runner([giving(100, max_result=100)], call("give"), store=store)
    assert results(await made.run("go", session_id="s")) == ["é" * 100]


@pytest.mark.parametrize("direct", [False, True])
async def test_a_result_above_the_limit_is_cut_with_a_notice_and_kept_whole(store: Store, direct: bool) -> None:
    # rule T6
    made = runner([giving(101, max_result=100, return_directly=direct)], call("give"), store=store)
    (text,) = results(await made.run("go", session_id="s"))
    assert text.startswith("é" * 100 + "\n[")
    assert "101 characters" in text
    assert await made.tool_output("s", "c1") == "é" * 101


async def test_a_direct_result_is_whole_after_a_sibling_paused(store: Store) -> None:  # rules T6, R7
    @tool
    async def ask() -> str:
        """Ask."""
        return f"got {interrupt('What?')}"

    tools = [giving(101, max_result=100, return_directly=True), ask]
    asked = await runner(tools, [call("give", "c1"), call("ask", "c2")], store=store).run("go", session_id="s")
    made = runner(tools, store=store)
    await made.resume("s", {lone(asked): "it"})
    assert await made.tool_output("s", "c1") == "é" * 101


async def test_the_newest_result_of_an_id_is_given(store: Store) -> None:  # rules T2, T6
    texts = iter(["first", "second"])

    async def give() -> str:
        """Give the next."""
        return next(texts)

    made = runner([tool(give)], call("give"), "one", call("give"), store=store)
    await made.run("go", session_id="s")
    await made.run("go", session_id="s")
    assert await made.tool_output("s", "c1") == "second"


async def test_a_result_of_a_hundred_megabytes_leaves_the_checkpoint_small(tmp_path: Any) -> None:  # rule T6
    size = 100_000_000
    store = SQLiteStore(tmp_path / "s.db")

    async def give() -> str:
        """Give very much."""
        return "x" * size

    made = runner([tool(give)], call("give"), store=store)
    result = await made.run("go", session_id="s")
    (text,) = results(result)
    assert len(text) < 60_000
    assert len(await made.tool_output("s", "c1")) == size
    assert await made.messages("s") == result.messages
    await store.close()


async def test_a_long_structure_is_cut_like_a_text() -> None:  # rule T6
    async def give() -> Any:
        """Give a long list."""
        return list(range(100_000))

    (text,) = results(await runner([tool(give)], call("give")).run("go"))
    assert len(text) < 60_000


@tool
async def count(to: int, ask: bool = False) -> AsyncIterator[str]:
    """Count."""
    for number in range(to):
        ran.append(number)
        yield f"{number} "
    if ask:
        yield str(interrupt("And then?"))


async def test_pieces_are_told_as_they_come_and_the_result_is_all_of_them(store: Store) -> None:  # rule T7
    made = runner([count], call("count", to=3), store=store)
    events = await all_of(made.run("go", session_id="s"))
    deltas = [event for event in events if isinstance(event, Delta) and event.call_id is not None]
    assert "".join(event.text for event in deltas) == "0 1 2 "
    assert {(event.call_id, event.address) for event in deltas} == {("c1", "agent:A;tool:count:c1")}
    (ended,) = told(events)
    assert ended.result == "0 1 2 "
    assert events.index(deltas[-1]) < events.index(ended)


async def test_each_piece_is_seen_before_the_next_is_made() -> None:  # rule T7
    seen = asyncio.Event()

    @tool
    async def slow() -> AsyncIterator[str]:
        """Wait until the first piece was seen."""
        yield "one"
        await asyncio.wait_for(seen.wait(), 120)
        yield "two"

    async for event in runner([slow], call("slow")).run("go"):
        if isinstance(event, Delta) and event.text == "one":
            seen.set()
    assert seen.is_set()


async def test_without_streaming_there_is_only_the_result() -> None:  # rule T7
    made = Runner(agent([count], call("count", to=3)), streaming=False)
    events = await all_of(made.run("go", session_id="s"))
    assert not [event for event in events if isinstance(event, Delta)]
    assert [event.result for event in told(events)] == ["0 1 2 "]


async def test_a_pause_in_the_middle_takes_the_pieces_back(store: Store) -> None:  # rule T7
    events = await all_of(runner([count], call("count", to=2, ask=True), store=store).run("go", session_id="s"))
    resets = [event for event in events if isinstance(event, Retrying)]
    assert [event.address for event in resets] == ["agent:A;tool:count:c1"]
    assert not told(events)
    events = await all_of(runner([count], store=store).resume("s", {"agent:A;tool:count:c1": "2"}))
    deltas = [event for event in events if isinstance(event, Delta) and event.call_id is not None]
    assert "".join(event.text for event in deltas) == "0 1 2"
    assert [event.result for event in told(events)] == ["0 1 2"]


async def test_a_streaming_tool_that_gives_nothing_gives_an_empty_result() -> None:  # rule T7
    assert results(await runner([count], call("count", to=0)).run("go")) == [""]


async def test_pieces_that_are_no_text_become_json_one_by_one() -> None:  # rule T7
    @tool
    async def mixed() -> AsyncIterator[Any]:
        """Give all kinds."""
        for piece in (1, "a", [None], {"b": 2}):
            yield piece

    assert results(await runner([mixed], call("mixed")).run("go")) == ['1a[null]{"b":2}']


async def test_a_piece_that_cannot_be_told_ends_the_tool_and_closes_it() -> None:  # rule T7
    @tool
    async def bad() -> AsyncIterator[Any]:
        """Give something without a form."""
        try:
            yield "one"
            yield object()
            ran.append("went on")
        finally:
            ran.append("closed")

    events = await all_of(runner([bad], call("bad")).run("go", session_id="s"))
    (ended,) = told(events)
    assert ended.error is not None
    assert ran == ["closed"]
    assert [event for event in events if isinstance(event, Retrying)]


async def test_a_streaming_tool_that_is_tried_again_begins_anew() -> None:  # rules T6, T7
    @tool(retry=Retry(backoff=0))
    async def flaky() -> AsyncIterator[str]:
        """Break off once."""
        ran.append("in")
        yield "one "
        if len(ran) == 1:
            raise ConnectionError("cut")
        yield "two"

    events = await all_of(runner([flaky], call("flaky")).run("go", session_id="s"))
    assert [event.result for event in told(events)] == ["one two"]
    last = max(index for index, event in enumerate(events) if isinstance(event, Retrying))
    after = [event.text for event in events[last:] if isinstance(event, Delta) and event.call_id]
    assert "".join(after) == "one two"


async def test_a_long_stream_is_cut_and_kept_whole(store: Store) -> None:  # rules T6, T7
    long = tool(count.fn, name="long", max_result=100)
    made = runner([long], call("long", to=1000), store=store)
    (text,) = results(await made.run("go", session_id="s"))
    assert text.startswith("0 1 2 ")
    assert len(text) < 250
    assert (await made.tool_output("s", "c1")).endswith("999 ")


async def test_a_streaming_tool_may_need_approval(store: Store) -> None:  # rules T4, T7
    careful = tool(count.fn, name="careful", approval=True)
    asked = await runner([careful], call("careful", to=2), store=store).run("go", session_id="s")
    assert ran == []
    assert results(await runner([careful], store=store).resume("s", {lone(asked): True})) == ["0 1 "]


class Loud(Middleware):
    async def wrap_tool_stream(self, call: Any, request: Any) -> AsyncIterator[str]:
        async for piece in call(request):
            yield f"{piece}!"


async def test_a_wrapper_changes_the_pieces() -> None:  # rule T7
    made = Runner(agent([count], call("count", to=2), middleware=[Loud()]))
    events = await all_of(made.run("go", session_id="s"))
    assert [event.result for event in told(events)] == ["0 !1 !"]


async def test_events_of_results_name_the_call(store: Store) -> None:
    made = runner([count], call("count", to=1), store=store)
    (ended,) = told(await all_of(made.run("go", session_id="s")))
    assert (ended.tool, ended.call_id, ended.agent, ended.path) == ("count", "c1", "A", ("A",))
    assert ended.seq is not None
    again = [event async for event in made.attach("s") if isinstance(event, ToolResult)]
    assert again == [ended]


async def test_a_long_result_inside_an_agent_tool_is_kept_whole(store: Store) -> None:  # rules T6, A6
    inner = agent([giving(101, max_result=100)], call("give", "c2"), name="Inner")
    made = runner([AgentTool(inner)], call("Inner", request="x"), store=store)
    events = await all_of(made.run("go", session_id="s"))
    assert [event.tool for event in told(events)] == ["Inner"]
    assert told([event async for event in made.attach("s")]) == told(events)
    assert await made.tool_output("s", "c2") == "é" * 101


async def test_ids_used_by_an_agent_inside_a_tool_too_are_those_outside(store: Store) -> None:  # rule T6
    inner = agent([giving(101, max_result=100)], call("give", "c1"), name="Inner")
    made = runner([AgentTool(inner), count], call("count", to=2), call("Inner", "c2", request="x"), store=store)
    await made.run("go", session_id="s")
    assert await made.tool_output("s", "c1") == "0 1 "
