"""Readers of an agent's stream: every piece for one who keeps up, the whole text for one who does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

import pytest

from adjourn import ChatModelAgent, Delta, Retry, Run, Runner
from adjourn.errors import ModelError
from adjourn.events import Event, Retrying
from adjourn.models import Chunk
from adjourn.stores import Store
from adjourn.stores.kit import StoreQuery
from adjourn.testing import FaultStore, ScriptedModel
from tests.conftest import Buffer
from tests.runner.stores import READS

T = TypeVar("T")

PIECES = [Chunk(text=f"word{number} ") for number in range(1000)]
TEXT = "".join(piece.text for piece in PIECES)


def told(events: list[Event]) -> str:
    """What is on the screen of somebody who shows pieces as they come, and drops them when they are void."""
    screen = ""
    for event in events:
        match event:
            case Delta(text=text):
                screen += text
            case Retrying():
                screen = ""
            case _:
                pass
    return screen


async def test_a_model_that_never_waits_is_read_piece_by_piece(store: Store):  # rule A11
    runner = Runner(ChatModelAgent("Teller", model=ScriptedModel([PIECES])), store=store)
    events = [event async for event in runner.run("Tell me", session_id="s")]
    assert [event.text for event in events if isinstance(event, Delta)] == [piece.text for piece in PIECES]


@pytest.mark.parametrize("size", [1, 2, 5])
async def test_a_slow_reader_gets_the_whole_text_in_fewer_pieces(store: Store, size: int, buffer: Buffer):  # rule A11
    agent = ChatModelAgent("Teller", model=ScriptedModel([PIECES]))
    buffer(size)
    run = Runner(agent, store=store).run("Tell me", session_id="s")
    events = list[Event]()
    async for event in run:
        events.append(event)
        await asyncio.sleep(0)
    assert told(events) == TEXT
    assert sum(isinstance(event, Delta) for event in events) < len(PIECES)


async def test_a_slow_reader_is_told_that_a_text_is_void(store: Store, buffer: Buffer):  # rule A9
    script = [[*PIECES, ModelError("cut off")], PIECES]
    agent = ChatModelAgent("Teller", model=ScriptedModel(script), retry=Retry(attempts=2, on=ModelError, backoff=0.0))
    events = list[Event]()
    buffer(2)
    async for event in Runner(agent, store=store).run("Tell me", session_id="s"):
        events.append(event)
        await asyncio.sleep(0)
    assert told(events) == TEXT


class Held(FaultStore):
    """A store that takes its time to read events."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner, fail_at=0, times=0)
        self.reached, self.may_go = asyncio.Event(), asyncio.Event()

    async def read(self, query: StoreQuery[T]) -> T:
        if READS.get(type(query)) == "events":
            self.reached.set()
            await self.may_go.wait()
        return await super().read(query)


class Teller:
    """A model that writes its pieces once it may."""

    def __init__(self) -> None:
        self.is_there, self.may_go = asyncio.Event(), asyncio.Event()

    async def stream(self, request: object) -> AsyncIterator[Chunk]:
        self.is_there.set()
        await self.may_go.wait()
        for piece in PIECES[:100]:
            yield piece


async def test_pieces_that_come_while_the_log_is_read_are_not_lost(store: Store):  # rule A11
    held, model = Held(store), Teller()
    run = Runner(ChatModelAgent("Teller", model=model), store=held).run("Tell me", session_id="s")
    first = asyncio.create_task(read(run))
    await model.is_there.wait()
    second = asyncio.create_task(read(run))
    await held.reached.wait()
    model.may_go.set()
    events = await first
    held.may_go.set()
    assert told(await second) == told(events) == "".join(piece.text for piece in PIECES[:100])


async def read(run: Run) -> list[Event]:
    return [event async for event in run]
