"""A run that a server does, read by a client whose connections break: each durable event comes once."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from adjourn.client import Client, Reconnecting, RemoteRun, ServerUnavailable
from adjourn.errors import CheckpointNotFound, RunError, UsageError
from adjourn.events import Cancelled, Delta, Done, Event, Interrupted, Retrying
from adjourn.server import App
from tests.server.agents import GATES, WORDS, booker, counter, refunds
from tests.server.serving import Serving

from .cutting import Cut, Proxy
from .fixed import answering


@pytest.fixture(scope="module")
def server() -> Iterator[Serving]:
    with Serving(App([booker(), counter()], keep_alive=0.05)) as serving:
        yield serving


def url(server: Serving) -> str:
    return f"http://127.0.0.1:{server.server.port}"


async def read(run: RemoteRun) -> list[Event]:
    return [event async for event in run]


def durable(events: list[Event]) -> list[Event]:
    return [event for event in events if event.seq is not None]


def text(events: list[Event]) -> str:
    """What is on the screen of somebody who adds up the pieces, and drops what is void."""
    shown = ""
    for event in events:
        if isinstance(event, Retrying):
            shown = ""
        elif isinstance(event, Delta):
            shown += event.text
    return shown


async def stored(server: Serving, session_id: str) -> list[Event]:
    """The events of a session, over a connection that nobody cuts."""
    async with Client(url(server)) as client:
        return durable(await read(client.attach(session_id)))


async def turns(server: Serving, session_id: str) -> int:
    async with Client(url(server)) as client:
        return sum(message.role == "user" for message in await client.messages(session_id))


async def check(server: Serving, cuts: Iterator[Cut] | list[Cut]) -> int:
    """Chat, answer and read on over connections with cuts; return how many it took."""
    with Proxy(server.server.port, cuts) as proxy:
        async with Client(proxy.url) as client:
            run = client.chat("book Rome", agent="booker")
            events = durable(await read(run))
            assert events == await stored(server, run.session_id)
            result = await run
            (asked,) = result.interrupts
            assert isinstance(events[-1], Interrupted)
            assert (result.status, asked.info.arguments) == ("interrupted", {"place": "Rome"})
            resumed = client.resume(run.session_id, {asked: True}, by="ann")
            rest = durable(await read(resumed))
            assert [event.seq for event in events + rest] == list(range(1, len(events + rest) + 1))
            assert rest == (await stored(server, run.session_id))[len(events) :]
            assert (await resumed).output == "Result: booked: Rome"
        assert await turns(server, run.session_id) == 1
        return proxy.connections


async def test_uncut_it_takes_one_connection_at_a_time(server: Serving):
    assert await check(server, []) <= 2


async def test_cut_after_every_event_it_is_the_same(server: Serving):  # rules V10, V13, V14, failures 79
    assert await check(server, itertools.repeat(Cut(frames=1))) > 8


async def test_cut_after_every_second_event_it_is_the_same(server: Serving):  # rules V10, V13, V14
    assert await check(server, itertools.repeat(Cut(frames=2, reset=True))) > 5


@pytest.mark.parametrize("first", range(0, 3000, 250))
async def test_cut_at_any_byte_it_is_the_same(server: Serving, first: int):  # rules V10, V13, V14
    places = [first, first // 2, first + 117]
    assert await check(server, [Cut(bytes=place, reset=bool(place % 2)) for place in places]) >= 2


@pytest.mark.proof
@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 3600, 400))
async def test_cut_all_over_it_is_the_same(server: Serving, first: int):  # rules V10, V13, V14
    for place in range(first, first + 400, 23):
        await check(server, [Cut(bytes=place)])


async def pieces_add_up(server: Serving, places: Iterable[int]) -> None:
    """Read a text over two connections that are cut, and one that is not."""
    for place in places:
        with Proxy(server.server.port, [Cut(bytes=place), Cut(bytes=place // 2 + 450)]) as proxy:
            async with Client(proxy.url) as client:
                pieces = [piece async for piece in client.chat("count", agent="counter").text()]
                assert "".join(pieces) == "".join(WORDS)


@pytest.mark.parametrize("first", range(500, 2300, 300))
async def test_cut_at_any_byte_the_pieces_add_up(server: Serving, first: int):  # rules V3, V10, V14
    await pieces_add_up(server, range(first, first + 300, 71))


@pytest.mark.proof
@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 2400, 300))
async def test_cut_all_over_the_pieces_add_up(server: Serving, first: int):  # rules V3, V10, V14
    await pieces_add_up(server, range(first, first + 300, 7))


async def test_a_chat_that_is_cut_before_its_answer_begins_one_turn(server: Serving):  # rule V13
    lost: list[Reconnecting] = []
    with Proxy(server.server.port, [Cut(bytes=0), Cut(bytes=0), Cut(bytes=0)]) as proxy:
        async with Client(proxy.url, on_reconnect=lost.append) as client:
            result = await client.chat("hello", agent="booker")
    assert result.output == "You said: hello"
    assert [each.attempt for each in lost] == [1, 2, 3]
    assert {each.session_id for each in lost} == {result.session_id}
    assert await turns(server, result.session_id) == 1


async def test_another_process_goes_on_with_what_the_first_one_began(tmp_path: Path):  # rules V8, V13
    store = f"sqlite:///{tmp_path}/s.db"
    with contextlib.ExitStack() as opened:
        one, two = (opened.enter_context(Serving(App([booker()], store=store))) for _ in range(2))
        proxy = opened.enter_context(Proxy(one.server.port, [Cut(bytes=0)]))

        def lead_on(_: Reconnecting) -> None:
            proxy.target = two.server.port

        async with Client(proxy.url, on_reconnect=lead_on) as client:
            result = await client.chat("hello", agent="booker")
            said = [message.text for message in await client.messages(result.session_id)]
            assert said == ["hello", result.output] == ["hello", "You said: hello"]


async def test_what_a_model_was_writing_is_shown_once(server: Serving):  # rules V10, V14
    with Proxy(server.server.port) as proxy:
        async with Client(proxy.url) as client:
            run = client.chat("count cut-once", agent="counter")
            events: list[Event] = []
            async for event in run:
                events.append(event)
                if text(events) == "".join(WORDS[:3]) and isinstance(event, Delta):
                    proxy.cut()
                    GATES.open("cut-once")
    assert text(events) == "".join(WORDS)
    assert isinstance(events[-1], Done)
    assert durable(events) == await stored(server, run.session_id)


async def test_who_only_wants_the_text_gets_it_whole(server: Serving):
    with Proxy(server.server.port, itertools.repeat(Cut(frames=1))) as proxy:
        async with Client(proxy.url) as client:
            assert "".join([piece async for piece in client.chat("count", agent="counter").text()]) == "".join(WORDS)
            said = [piece async for piece in client.chat("hello", agent="booker").text()]
            assert said == ["You said: hello"]


async def test_a_connection_that_is_silent_counts_as_lost(server: Serving):  # rule V10
    lost: list[Reconnecting] = []
    with Proxy(server.server.port, [Cut(frames=1, hold=True)]) as proxy:
        async with Client(proxy.url, silence=0.5, on_reconnect=lost.append) as client:
            run = client.chat("book Rome", agent="booker")
            events = durable(await read(run))
    assert events == await stored(server, run.session_id)
    assert "nothing was heard" in lost[0].error


async def test_comments_keep_a_silent_run_alive(server: Serving):  # rule V10
    lost: list[Reconnecting] = []
    async with Client(url(server), silence=20.0, on_reconnect=lost.append) as client:
        run = client.chat("count quiet", agent="counter")
        async for event in run:
            if isinstance(event, Delta):
                await asyncio.to_thread(GATES.reached, "quiet")
                GATES.open("quiet")
        assert (await run).output == "".join(WORDS)
    assert lost == []


async def test_it_gives_up_in_the_end_and_says_how_to_go_on(server: Serving):  # rule V14
    with Proxy(server.server.port, [Cut(frames=2), *itertools.repeat(Cut(bytes=0), 1000)]) as proxy:
        async with Client(proxy.url, reconnect=0.5) as client:
            run = client.chat("book Rome", agent="booker")
            with pytest.raises(ServerUnavailable) as raised:
                await read(run)
    assert (raised.value.session_id, raised.value.after) == (run.session_id, run.seen)
    assert f"attach('{run.session_id}', after={run.seen})" in str(raised.value)
    async with Client(url(server)) as client:
        rest = await read(client.attach(run.session_id, after=run.seen))
    assert isinstance(rest[-1], Interrupted)


async def test_without_patience_a_lost_connection_is_an_error(server: Serving):
    with Proxy(server.server.port, [Cut(frames=1)]) as proxy:
        async with Client(proxy.url, reconnect=0) as client:
            with pytest.raises(ServerUnavailable, match="was lost and does not come back"):
                await client.chat("book Rome", agent="booker")


async def test_a_server_that_closes_is_left_for_the_next(tmp_path: Path):  # rule V8
    store, lost = f"sqlite:///{tmp_path}/s.db", list[Reconnecting]()
    with contextlib.ExitStack() as servers:
        one = servers.enter_context(Serving(App([counter()], store=store, grace=0.1)))
        proxy = servers.enter_context(Proxy(one.server.port))
        async with Client(proxy.url, on_reconnect=lost.append) as client:
            run = client.chat("count closes", agent="counter")
            events: list[Event] = []
            async for event in run:
                events.append(event)
                if text(events) == "".join(WORDS[:3]) and proxy.target == one.server.port:
                    two = servers.enter_context(Serving(App([counter()], store=store)))
                    proxy.target = two.server.port
                    await asyncio.to_thread(one.stop)
                    GATES.open("closes")
            assert (await run).output == "".join(WORDS)
    assert [event.seq for event in durable(events)] == list(range(1, len(durable(events)) + 1))
    assert text(events) == "".join(WORDS)
    assert lost


async def test_whoever_stops_reading_stops_nothing_and_can_go_on(server: Serving):  # rule V10
    async with Client(url(server)) as client:
        run = client.chat("book Rome", agent="booker")
        first: list[Event] = []
        async for event in run:
            first.append(event)
            break
        assert durable([*first, *await read(run)]) == await stored(server, run.session_id)
        assert (await run).status == "interrupted"


async def test_a_run_is_cancelled_by_asking(server: Serving):
    async with Client(url(server)) as client:
        run = client.chat("count to-cancel", agent="counter")
        async for event in run:
            if isinstance(event, Delta):
                break
        await run.cancel()
        assert (await run).status == "cancelled"
        assert (await client.status(run.session_id)).status == "cancelled"
        GATES.open("to-cancel")
        assert (await client.recover(run.session_id)).output == "".join(WORDS)


# Sessions in which nothing happens any more


async def test_whoever_attaches_after_the_last_event_still_gets_the_result(server: Serving):  # rule V14
    async with Client(url(server)) as client:
        done = client.chat("hello", agent="booker")
        whole = await done
        again = client.attach(done.session_id, after=done.seen)
        assert [event async for event in again] == []
        assert await again == whole
        assert (await client.attach(done.session_id, after=None)).output == whole.output

        asking = client.chat("book Rome", agent="booker")
        whole = await asking
        again = await client.attach(asking.session_id, after=asking.seen)
        assert (again.status, again.interrupts) == ("interrupted", whole.interrupts)
        assert again.checkpoint_id == whole.checkpoint_id

        failed = client.chat("fail now", agent="booker")
        with pytest.raises(RunError):
            await failed
        with pytest.raises(RunError, match="failed with"):
            await client.attach(failed.session_id, after=failed.seen)
        # Its last record is that of the failure, which is no checkpoint.
        latest = await client.checkpoint(failed.session_id)
        assert latest.id == (await client.history(failed.session_id))[0].id
        assert latest.id != (await client.status(failed.session_id)).checkpoint_id


async def test_sessions_that_were_given_up_or_edited_have_ended_for_whoever_follows_them():  # rule V14
    lost: list[Reconnecting] = []
    with Serving(App([refunds()])) as server:
        async with Client(url(server), on_reconnect=lost.append) as client:
            given_up = await client.chat({"cents": 5})
            await client.cancel(given_up.session_id)
            edited = await client.chat({"cents": 5})
            await client.edit(edited.session_id, {"cents": 7})
            paid = await client.chat({"cents": 5})
            await client.resume(paid.session_id, {paid.interrupts[0]: True})
            await client.edit(paid.session_id, {"cents": 7})
            ends = [await client.attach(each.session_id) for each in (given_up, edited, paid)]
            points = [(await client.status(each.session_id)).checkpoint_id for each in (given_up, edited, paid)]
    assert [each.status for each in ends] == ["cancelled", "cancelled", "done"]
    assert [each.checkpoint_id for each in ends] == points
    assert lost == []


async def test_a_session_that_goes_on_in_this_moment_is_read_on():  # rules V10, V14
    caught_up = b'data: {"type":"caught_up","seq":%d,"status":"done"}\n\n'
    step, done = b'id: 2\ndata: {"type":"custom","data":1,"seq":2}\n\n', b'id: 3\ndata: {"type":"done","seq":3}\n\n'
    closing = b'data: {"type":"closing"}\n\n'
    answers = [caught_up % 1, step + done + caught_up % 3, caught_up % 1, closing, step + done + caught_up % 3]
    with answering(200, *answers, content_type="text/event-stream") as address:
        async with Client(address) as client:
            assert [event.seq async for event in client.attach("s", after=1)] == [2, 3]


async def test_from_now_on_what_was_before_is_left_out(server: Serving):  # rule V10
    async with Client(url(server)) as client:
        run = client.chat("count from-now", agent="counter")
        async for event in run:
            if isinstance(event, Delta):
                break
        await asyncio.to_thread(GATES.reached, "from-now")
        first = (await stored_so_far(client, run.session_id))[-1].seq
        later = client.attach(run.session_id, after=None)
        found: list[Event] = []
        async for event in later:
            found.append(event)
            GATES.open("from-now")
        assert text(found) == "".join(WORDS)  # of what is being written, all of it
        assert first is not None
        assert all(event.seq > first for event in found if event.seq is not None)
        assert isinstance(found[-1], Done)
        assert (await later).output == "".join(WORDS)


async def stored_so_far(client: Client, session_id: str) -> list[Event]:
    found: list[Event] = []
    async for event in client.attach(session_id):
        if event.seq is None:
            break
        found.append(event)
    return found


async def test_events_that_come_twice_are_passed_on_once():  # rule V14
    stream = (
        b'id: 1\ndata: {"type":"custom","data":1,"seq":1}\n\n'
        b'id: 1\ndata: {"type":"custom","data":1,"seq":1}\n\n'
        b'id: 2\ndata: {"type":"done","output":"hi","seq":2}\n\n'
    )
    with answering(200, stream, content_type="text/event-stream") as address:
        async with Client(address) as client:
            assert [event.seq async for event in client.chat("hello")] == [1, 2]


@pytest.mark.parametrize(
    ("stream", "attempts"),
    [(b"", [1, 2, 3]), (b": keep-alive\n\n", [1, 1, 1]), (b"id: 0\nretry: 2000\n\n", [1, 2, 3])],
)
async def test_comments_are_a_sign_of_life(stream: bytes, attempts: list[int]):  # rule V10
    lost: list[Reconnecting] = []

    class Enough(Exception):
        pass

    def enough(again: Reconnecting) -> None:
        lost.append(again)
        if len(lost) == len(attempts):
            raise Enough

    with answering(200, stream, content_type="text/event-stream") as address:
        async with Client(address, on_reconnect=enough) as client:
            with pytest.raises(Enough):
                await client.chat("hello")
    assert [each.attempt for each in lost] == attempts
    assert "the stream ended before the turn did" in lost[0].error


# The handle of a run


async def test_a_run_that_is_being_read_is_not_read_by_a_second_one(server: Serving):
    async with Client(url(server)) as client:
        run = client.chat("count two-readers", agent="counter")
        assert repr(run) == f"<RemoteRun of session {run.session_id}, not begun>"
        first = asyncio.ensure_future(read(run))
        await asyncio.to_thread(GATES.reached, "two-readers")
        assert repr(run).endswith(", begun>")
        with pytest.raises(UsageError, match=r"is being read already; attach\(\) reads it a second time"):
            await run
        await run.cancel()  # Which the first reader reads to its end.
        assert isinstance((await first)[-1], Cancelled)
        assert (await run).status == "cancelled"
        assert repr(run).endswith(", ended>")
        await run.cancel()
        GATES.open("two-readers")


async def test_what_was_not_begun_is_not_cancelled_and_a_block_warns_of_nothing(server: Serving):
    async with Client(url(server)) as client:
        async with client.chat("hello", agent="booker", session_id="in-a-block") as run:
            await run.cancel()
        with pytest.raises(CheckpointNotFound):
            await client.status("in-a-block")
        assert (await run).output == "You said: hello"


async def test_a_run_of_somebody_else_is_cancelled_where_it_is_followed(server: Serving):
    async with Client(url(server)) as client:
        run = client.chat("count of-another", agent="counter")
        async for event in run:
            if isinstance(event, Delta):
                break
        await asyncio.to_thread(GATES.reached, "of-another")
        following = client.attach(run.session_id)
        await following.cancel()
        assert (await following).status == "cancelled"
        GATES.open("of-another")
