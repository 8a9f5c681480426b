"""Watching a run: from its first event on, or from the middle with what is being written."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest

from adjourn import ChatModelAgent, Delta, Retry, Run, Runner, ToolCall, interrupt, tool
from adjourn.errors import InputWithdrawn, ModelError, UsageError
from adjourn.events import Done, Event, Interrupted, MessageEvent
from adjourn.models import Chunk, ToolCallChunk
from adjourn.runner import CaughtUp, Reader, Watched
from adjourn.server._drafts import Draft, Drafts, drafts_of
from adjourn.stores import Store
from adjourn.testing import ScriptedModel
from tests.conftest import Buffer


class Teller:
    """A model that writes one text in pieces, and stops in its middle until it is let go."""

    def __init__(self, pieces: list[Chunk], at: int) -> None:
        self.is_there, self.may_go = asyncio.Event(), asyncio.Event()
        self._pieces, self._at = pieces, at

    async def stream(self, request: Any) -> AsyncIterator[Chunk]:
        for number, piece in enumerate(self._pieces):
            if number == self._at:
                self.is_there.set()
                await self.may_go.wait()
            yield piece


class Drafting(Runner):
    """A runner as a server has it: it keeps what its runs are writing."""

    def __init__(self, agent: Any, **options: Any) -> None:
        super().__init__(agent, **options)
        self._live.listen = Drafts


async def items_of(reader: Reader) -> AsyncGenerator[Watched | Draft]:
    """What a server makes of it: a reader that has caught up gets what is being written."""
    async with contextlib.aclosing(reader.items()) as items:
        async for item in items:
            drafts = drafts_of(reader.listener) if isinstance(item, CaughtUp) else []
            yield item
            for draft in drafts:
                yield draft


WORDS = [Chunk(text=f"word{number} ") for number in range(10)]


def shown(items: list[Watched | Draft]) -> str:
    """What is on the screen of somebody who replaces a text by its draft, and adds the pieces that follow."""
    text = ""
    for item in items:
        match item:
            case Draft():
                text = item.text
            case Delta():
                text += item.text
            case _:
                pass
    return text


def kinds(items: list[Watched | Draft]) -> list[str]:
    return [type(item).__name__ for item in items]


async def read(watch: Reader) -> list[Watched | Draft]:
    return [item async for item in items_of(watch)]


async def started(run: Run) -> Run:
    run.detach()
    await run.start()
    return run


async def test_who_watches_from_the_beginning_reads_every_piece(store: Store):  # rule V1
    runner = Drafting(ChatModelAgent("Teller", model=ScriptedModel([WORDS, WORDS])), store=store)
    for _ in range(2):  # In the second turn, there is a log of the first one.
        run = await started(runner.run("Tell me", session_id="s"))
        watch = run.watch()
        await run  # Nobody reads meanwhile.
        items = await read(watch)
        assert shown(items) == "".join(piece.text for piece in WORDS)
        assert kinds(items).count("Delta") == len(WORDS)
        assert "Draft" not in kinds(items)
        assert isinstance(items[-1], Done)


async def test_who_comes_in_the_middle_gets_the_text_so_far(store: Store):  # rule V3
    model = Teller(WORDS, 5)
    runner = Drafting(ChatModelAgent("Teller", model=model), store=store)
    run = await started(runner.run("Tell me", session_id="s"))
    await model.is_there.wait()
    attached = runner.attach("s")
    await attached.start()
    items: list[Watched | Draft] = []
    async for item in items_of(attached.watch()):
        items.append(item)
        if isinstance(item, Draft):
            assert item.text == "word0 word1 word2 word3 word4 "
            assert CaughtUp(seq=max(each.seq or 0 for each in items if not isinstance(each, Draft))) in items
            model.may_go.set()
    message = next(item.message for item in items if isinstance(item, MessageEvent) and item.message.text)
    assert shown(items) == message.text
    assert {item.message_id for item in items if isinstance(item, Draft | Delta)} == {message.id}
    assert isinstance(items[-1], Done)
    assert (await run).output == message.text


async def test_a_draft_is_void_when_the_model_is_asked_again(store: Store):  # rule A9
    script = [[*WORDS, ModelError("cut off")], WORDS[:3]]
    agent = ChatModelAgent("Teller", model=ScriptedModel(script), retry=Retry(attempts=2, on=ModelError, backoff=60.0))
    runner = Drafting(agent, store=store)
    run = await started(runner.run("Tell me", session_id="s"))
    async for item in items_of(run.watch()):
        if type(item).__name__ == "Retrying":
            break
    attached = runner.attach("s")
    await attached.start()
    async for item in items_of(attached.watch(stay=True)):
        assert not isinstance(item, Draft)
        if isinstance(item, CaughtUp):
            break
    await run.cancel()


async def test_a_call_that_a_model_is_writing_is_in_the_draft(store: Store):  # rule A11
    pieces = [
        Chunk(text="Well. "),
        Chunk(tool_calls=(ToolCallChunk(index=0, id="c1", name="pay", arguments='{"cents": '),)),
        Chunk(tool_calls=(ToolCallChunk(index=0, arguments="90}"),)),
    ]

    @tool
    async def pay(cents: int) -> str:
        """Pay."""
        return f"paid {cents}"

    model = Teller(pieces, 2)
    runner = Drafting(ChatModelAgent("Payer", model=model, tools=[pay], max_iterations=1), store=store)
    run = await started(runner.run("Pay", session_id="s"))
    await model.is_there.wait()
    attached = runner.attach("s")
    await attached.start()
    async for item in items_of(attached.watch()):
        if isinstance(item, Draft):
            assert item.text == "Well. "
            assert [(call.id, call.name, call.arguments) for call in item.tool_calls] == [("c1", "pay", '{"cents": ')]
            break
    await run.cancel()


async def test_a_watcher_of_another_process_reads_what_is_stored_and_follows(store: Store):  # rules V3, V10
    model = Teller(WORDS, 5)
    await started(Runner(ChatModelAgent("Teller", model=model), store=store).run("Tell me", session_id="s"))
    other = Drafting(ChatModelAgent("Teller", model=ScriptedModel([])), store=store)
    await model.is_there.wait()
    attached = other.attach("s")
    await attached.start()
    items: list[Watched | Draft] = []
    async for item in items_of(attached.watch()):
        items.append(item)
        if isinstance(item, CaughtUp):
            model.may_go.set()
    assert kinds(items).count("CaughtUp") == 1
    assert "Delta" not in kinds(items)
    assert isinstance(items[-1], Done)


@pytest.mark.parametrize("size", [1, 2, 5])
async def test_a_slow_watcher_has_the_whole_text_in_the_end(store: Store, size: int, buffer: Buffer):  # rule A11
    @tool
    async def ask() -> str:
        """Ask."""
        return "asked"

    calls = [ToolCall(id=f"c{number}", name="ask", arguments={}) for number in range(8)]
    agent = ChatModelAgent("Teller", model=ScriptedModel([calls, WORDS]), tools=[ask])
    buffer(size)
    runner = Drafting(agent, store=store)
    run = await started(runner.run("Tell me", session_id="s"))
    items: list[Watched | Draft] = []
    async for item in items_of(run.watch()):
        items.append(item)
        await asyncio.sleep(0)
    numbers = [item.seq for item in items if not isinstance(item, Draft | CaughtUp) and item.seq is not None]
    assert numbers == list(range(1, len(numbers) + 1))
    assert "".join(piece.text for piece in WORDS).endswith(shown(items))
    assert isinstance(items[-1], Done)


async def test_who_stays_reads_one_turn_after_another(store: Store):  # rules V3, V10
    @tool
    async def book() -> str:
        """Book."""
        return interrupt("Book it?", schema=str)

    call = ToolCall(id="c1", name="book", arguments={})
    runner = Runner(ChatModelAgent("Booker", model=ScriptedModel([call, "Booked."]), tools=[book]), store=store)
    result = await runner.run("Book", session_id="s")
    attached = runner.attach("s")
    await attached.start()
    items: list[Watched | Draft] = []
    going_on: asyncio.Task[Any] | None = None
    async for item in items_of(attached.watch(stay=True)):
        items.append(item)
        if isinstance(item, CaughtUp) and going_on is None:
            going_on = asyncio.ensure_future(runner.resume("s", {result.interrupts[0].id: "yes"}))
        if isinstance(item, Done):
            break
    assert going_on is not None
    await going_on
    assert [type(item) for item in items if isinstance(item, Interrupted | Done)] == [Interrupted, Done]
    # It comes once more if the next run is met in its middle, which is for the scheduler to decide.
    assert 1 <= kinds(items).count("CaughtUp") <= 2


async def test_nothing_to_wait_for_ends_after_what_is_stored(store: Store):  # rule V10
    runner = Drafting(ChatModelAgent("Teller", model=ScriptedModel(["Hello"])), store=store)
    result = await runner.run("Tell me", session_id="s")
    attached = runner.attach("s", after=10_000)
    await attached.start()
    assert kinds(await read(attached.watch())) == ["CaughtUp"]
    attached = runner.attach("s")
    await attached.start()
    items = await read(attached.watch())
    assert kinds(items)[-2:] == ["Done", "CaughtUp"]
    assert result.status == "done"


async def test_a_run_is_started_before_it_is_watched(store: Store):
    runner = Runner(ChatModelAgent("Teller", model=ScriptedModel(["Hello"])), store=store)
    run = runner.run("Tell me", session_id="s")
    with pytest.raises(UsageError, match="start"):
        run.watch()
    await run


async def test_leaving_stops_nothing(store: Store):  # rules V3, V10
    model = Teller(WORDS, 5)
    runner = Drafting(ChatModelAgent("Teller", model=model), store=store)
    run = await started(runner.run("Tell me", session_id="s"))
    seen: list[Event] = []
    watch = run.watch()
    items = items_of(watch)
    async for item in items:
        if isinstance(item, Delta):
            seen.append(item)
            break
    await items.aclose()
    model.may_go.set()
    assert (await run).status == "done"


async def test_the_turn_of_an_input_is_followed_from_its_beginning(store: Store):  # rule V11
    first, second = Teller(WORDS, 5), Teller(WORDS, 5)
    models = iter([first, second])

    class Both:
        def stream(self, request: Any) -> AsyncIterator[Chunk]:
            return next(models).stream(request)

    runner = Drafting(ChatModelAgent("Teller", model=Both()), store=store)
    run = await started(runner.run("Tell me", session_id="s"))
    await first.is_there.wait()
    submitted = await runner.submit("Tell me more", session_id="s")
    attached = runner.attach("s", input_id=submitted.id)
    waiting = asyncio.ensure_future(attached.start())
    first.may_go.set()
    await run
    await second.is_there.wait()
    await waiting
    items: list[Watched | Draft] = []
    async for item in items_of(attached.watch()):
        items.append(item)
        if isinstance(item, Draft | Delta):
            second.may_go.set()
    assert shown(items) == "".join(piece.text for piece in WORDS)
    assert [type(item) for item in items if isinstance(item, Done)] == [Done]


async def test_an_input_that_is_withdrawn_has_no_turn_to_follow(store: Store):  # rule V11
    model = Teller(WORDS, 5)
    runner = Runner(ChatModelAgent("Teller", model=model), store=store)
    run = await started(runner.run("Tell me", session_id="s"))
    await model.is_there.wait()
    submitted = await runner.submit("Tell me more", session_id="s")
    waiting = asyncio.ensure_future(runner.attach("s", input_id=submitted.id).start())
    await asyncio.sleep(0)
    assert await runner.withdraw("s", submitted.id)
    with pytest.raises(InputWithdrawn):
        await waiting
    model.may_go.set()
    await run


async def test_who_comes_back_to_a_run_that_ends_meanwhile_is_told_to_have_caught_up(store: Store):  # rule V10
    teller = Teller(WORDS, at=5)
    runner = Drafting(ChatModelAgent("Teller", model=teller), store=store)
    run = await started(runner.run("Tell me", session_id="s"))
    await teller.is_there.wait()
    attached = runner.attach("s")
    await attached.start()
    watch = attached.watch()  # It has joined the run, and has read nothing when that ends.
    teller.may_go.set()
    await run
    items = await read(watch)
    assert kinds(items)[-2:] == ["Done", "CaughtUp"]
    assert kinds(items).count("CaughtUp") == 1
