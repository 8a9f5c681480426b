"""A Postgres server that goes away and comes back: nothing is lost, nothing happens twice, and runs go on."""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from typing import TypedDict

import pytest

from adjourn.errors import StoreUnavailable
from adjourn.graph import START, CompiledGraph, StateGraph
from adjourn.runner import Runner
from adjourn.stores import PostgresStore
from adjourn.stores.kit import GetHead, ListCheckpoints
from adjourn.testing.suite.bench import Drive, S, paused, yes
from tests.servers import Postgres, postgres

from .postgres_clock import fresh_schema


class Line:
    """The way to a server, which can be cut when a statement was sent and its reply is on the way.

    A connection on which something with `loses` is sent is silent from then on; `lost` is how many there were.
    """

    def __init__(self) -> None:
        self.swallows = False
        self.loses: bytes | None = None
        self.lost = 0
        self.port = 0

    @property
    def url(self) -> str:
        return f"postgresql://adjourn@127.0.0.1:{self.port}/postgres"

    @asynccontextmanager
    async def open(self, port: int) -> AsyncGenerator["Line", None]:
        passing: set[asyncio.Task[None]] = set()

        async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            to_reader, to_writer = await asyncio.open_connection("127.0.0.1", port)
            writing = asyncio.Event()
            both = {asyncio.create_task(self._send(reader, to_writer, writing))}
            both.add(asyncio.create_task(self._reply(to_reader, writer, writing)))
            passing.update(both)
            try:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in (writer, to_writer):
                    each.close()
                for task in both:
                    task.cancel()

        server = await asyncio.start_server(connect, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        yield self
        server.close()
        await asyncio.gather(*passing, return_exceptions=True)
        await asyncio.sleep(0)

    async def _send(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, writing: asyncio.Event) -> None:
        is_silent = False
        while data := await reader.read(65536):
            if self.loses is not None and self.loses in data:
                is_silent = True
                self.lost += 1
            if is_silent:
                continue
            if any(sign in data for sign in (b"WITH moved", b"WITH found")):
                writing.set()
            writer.write(data)
            await writer.drain()

    async def _reply(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, writing: asyncio.Event) -> None:
        while data := await reader.read(65536):
            if writing.is_set() and self.swallows:
                self.swallows = False
                return
            writing.clear()
            writer.write(data)
            await writer.drain()


async def test_connections_that_were_cut_are_replaced_before_anybody_notices():  # rule C8
    store = PostgresStore(postgres().url, schema=fresh_schema())
    run = Drive(store)
    await run.start()
    for _ in range(3):
        assert postgres().cut_connections()
        await run.commit()
    await store.renew([run.held])
    assert postgres().cut_connections()
    assert [state.lost for state in await store.renew([run.held])] == [False]
    await store.close()


async def test_a_commit_whose_reply_was_lost_succeeds_when_it_is_made_again():  # rules C1, C8
    async with Line().open(postgres().port) as line:
        store = PostgresStore(line.url, schema=fresh_schema())
        run = await paused(store, "q")
        line.swallows = True
        claim = run.next(b"claim")
        with pytest.raises(StoreUnavailable):
            await run.claim(claim, yes("q"))
        claimed = await run.claim(claim, yes("q"))
        assert (claimed.claims, (await run.head()).checkpoint) == (1, claim.id)
        line.swallows = True
        write = run.next(b"commit")
        with pytest.raises(StoreUnavailable):
            await run.commit(write)
        await run.commit(write)
        await run.commit()
        assert [each.id for each in await store.read(ListCheckpoints(S))] == ["b.4", "b.3", "b.2", "b.1", "b.0"]
        await store.close()


async def test_a_call_that_is_cancelled_does_not_wait_for_a_silent_server():  # rule C6
    async with Line().open(postgres().port) as line:
        store = PostgresStore(line.url, schema=fresh_schema())
        run = Drive(store)
        await run.start()
        line.loses = b"SKIP LOCKED"  # the connection that renews leases; the server itself is well
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await store.renew([run.held])
        assert (line.lost, time.monotonic() - began < 5) == (1, True)  # psycopg itself would wait for 5 s more
        line.loses = None
        assert [state.lost for state in await store.renew([run.held])] == [False]
        await store.close()


@pytest.mark.parametrize("loses", [b"pg_notify", b"LISTEN"])
async def test_a_store_whose_hints_get_no_reply_can_be_closed(loses: bytes):
    async with Line().open(postgres().port) as line:
        store = PostgresStore(line.url, schema=fresh_schema(), timeout=1.0)
        await store.read(GetHead(S))
        line.loses = loses
        heard = store.hints()
        waiting = asyncio.ensure_future(anext(heard))
        await Drive(store).start()
        async with asyncio.timeout(30):
            while not line.lost:  # noqa: ASYNC110 - it is no event of this loop
                await asyncio.sleep(0.01)
            await store.close()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await heard.aclose()
        for thread in threading.enumerate():
            if thread.name in ("adjourn-notify", "adjourn-listen"):
                await asyncio.to_thread(thread.join, 20)
                assert not thread.is_alive()


@pytest.fixture
def own() -> Generator[Postgres]:
    with postgres_of_its_own() as server:
        yield server


def postgres_of_its_own() -> Postgres:
    postgres()  # skips where there is none
    return Postgres()


class Count(TypedDict):
    n: int


def counting() -> CompiledGraph:
    """A graph of many steps."""

    async def count(state: Count) -> Count:
        return {"n": state["n"] + 1}

    def onward(state: Count) -> str:
        return "count" if state["n"] < 60 else "__end__"

    graph = StateGraph(Count)
    graph.add_node("count", count)
    graph.add_edge(START, "count")
    graph.add_conditional_edges("count", onward)
    return graph.compile()


async def test_a_run_goes_on_when_its_server_is_restarted_under_it(own: Postgres):  # rule C8
    store = PostgresStore(own.url)
    runner = Runner(counting(), store=store)
    seen = 0
    run = runner.run({"n": 0}, session_id="s")
    async for _ in run:
        seen += 1
        if seen in (10, 40):
            own.stop_immediately()
            await asyncio.to_thread(own.start)
    assert (await run).state == {"n": 60}
    await store.close()


async def test_a_server_that_is_frozen_is_given_up_after_the_timeout(own: Postgres):
    store = PostgresStore(own.url, timeout=3.0)
    run = Drive(store)
    await run.start()
    own.freeze()
    try:
        with pytest.raises(StoreUnavailable, match="no reply within 3 s"):
            async with asyncio.timeout(30):
                await run.commit()
    finally:
        own.thaw()
    again = PostgresStore(own.url)
    assert (await again.read(GetHead(S))) is not None
    await store.close()
    await again.close()


async def test_a_listener_connects_again_and_then_says_that_anything_may_have_changed(own: Postgres):  # rule V11
    store = PostgresStore(own.url)
    heard = store.hints()
    async with asyncio.timeout(30):
        assert await anext(heard) is None
        own.stop_immediately()
        await asyncio.to_thread(own.start)
        assert await anext(heard) is None
    await heard.aclose()
    await store.close()


async def test_connections_to_a_server_that_only_reads_are_given_up(own: Postgres):  # rule C8
    store = PostgresStore(own.url)
    run = Drive(store)
    await run.start()
    own.execute("ALTER SYSTEM SET default_transaction_read_only = on")
    own.execute("SELECT pg_reload_conf()")
    while own.execute("SHOW default_transaction_read_only") == [("off",)]:
        pass  # it takes a moment
    with pytest.raises(StoreUnavailable, match="as a standby cannot") as caught:
        await run.steps(100)
    assert not caught.value.is_lasting
    with pytest.raises(StoreUnavailable, match="read-only"):  # new connections look for one that writes
        await run.commit()
    await store.close()
