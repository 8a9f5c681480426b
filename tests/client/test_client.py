"""What a client can do on a server, and what it says when it cannot."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import inspect
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any, TypedDict

import pytest

from adjourn import interrupt
from adjourn.client import (
    Client,
    QuestionAsked,
    QuestionClosed,
    Reconnecting,
    RemoteInput,
    RemoteNotice,
    RemoteResult,
    RemoteRun,
    RequestRefused,
    ServerUnavailable,
    SessionEnded,
    SyncClient,
    UnexpectedAnswer,
)
from adjourn.client._sse import Frame, Frames, FrameTooLarge
from adjourn.errors import (
    AdjournError,
    AlreadyResumed,
    CheckpointNotFound,
    InputWithdrawn,
    InvalidAnswer,
    PendingInterrupts,
    RunError,
    SessionBusy,
    UnfinishedRun,
    UnknownInterrupt,
    UsageError,
)
from adjourn.events import Delta, Done, Failed, Interrupted
from adjourn.graph import START, StateGraph
from adjourn.server import App, Tokens
from adjourn.tools import Edit, ToolCallInfo
from tests.no_threads import no_more_threads
from tests.server.agents import GATES, WORDS, booker, counter, refunds
from tests.server.serving import Serving
from tests.test_docs import ROOT, Block, blocks, execute

from .cutting import Cut, Proxy
from .fixed import answering


@pytest.fixture(scope="module")
def server() -> Iterator[Serving]:
    with Serving(App([booker(), counter(), refunds()], keep_alive=0.05)) as serving:
        yield serving


def url(server: Serving) -> str:
    return f"http://127.0.0.1:{server.server.port}"


async def test_a_conversation_with_its_question(server: Serving):  # rules V1, V2
    async with Client(url(server)) as client:
        run = client.chat("book Rome", agent="booker", values={"user": "Ada"}, metadata={"desk": 1})
        async for event in run:
            match event:
                case Interrupted(interrupts=[asked]):
                    assert isinstance(asked.info, ToolCallInfo)
                    assert (asked.info.tool, asked.info.arguments) == ("book_ticket", {"place": "Rome"})
                    assert [each.id for each in await client.pending(run.session_id)] == [asked.id]
                    resumed = client.resume(run.session_id, {asked: asked.info.edit(place="Oslo")}, by="ann")
                    assert (await resumed).output == "Result: booked: Oslo"
                case _:
                    pass
        session_id = run.session_id
        roles = [message.role for message in await client.messages(session_id)]
        assert roles == ["user", "assistant", "tool", "assistant"]
        (entry,) = await client.audit(session_id)
        assert (entry.by, entry.outcome, entry.answer["arguments"]) == ("ann", "answered", {"place": "Oslo"})
        assert await client.question(session_id, entry.interrupt.token) == entry
        info = await client.status(session_id)
        assert (info.agent, info.status, info.interrupts) == ("booker", "done", ())
        assert info in await client.sessions()
        history = await client.history(session_id)
        assert [each.id for each in await client.history(session_id, limit=2)] == [each.id for each in history[:2]]
        assert (await client.checkpoint(session_id)).id == history[0].id == info.checkpoint_id
        assert str(await client.tree(session_id)).endswith("← head")
        assert (await client.state(session_id))["messages"][0]["content"] == "book Rome"
        assert "messages" in (await client.diff(session_id, history[-1].id, history[0].id)).changed
        forked = await client.fork(session_id, checkpoint_id=history[1].id)
        await client.delete(forked)
        with pytest.raises(CheckpointNotFound):
            await client.delete(forked)


async def test_what_people_have_decided_is_listed_over_sessions():
    with Serving(App([refunds()])) as server:
        async with Client(url(server)) as client:
            began = datetime.now()  # noqa: DTZ005  # as people write it, in the zone of their machine
            for by in ("ann", "bob", "ann"):
                asked = await client.chat({"cents": 5})
                await client.resume(asked.session_id, {asked.interrupts[0]: True}, by=by)
            found = await client.decisions(since=began)
            assert [each.by for each in found] == ["ann", "bob", "ann"]
            assert found[0] == (await client.audit(found[0].interrupt.session_id))[0]
            assert await client.decisions(by="ann", how="expired") == await client.decisions(agent="booker") == []
            first = await client.decisions(by="ann", limit=1)
            (last,) = await client.decisions(by="ann", limit=1, after=first.next)
            assert [first[0], last] == [found[0], found[2]]
            assert await client.decisions(until=began) == []


class Waiting(TypedDict):
    seconds: float | None


def _wait(state: Waiting) -> None:
    interrupt("Go on?", expires_in=state["seconds"])


async def test_what_expires_first_can_come_first():
    graph = StateGraph(Waiting, name="waits").add_node("ask", _wait).add_edge(START, "ask")
    with Serving(App([graph.compile()])) as server:
        async with Client(url(server)) as client:
            for seconds in (None, 900.0, 60.0):
                await client.chat({"seconds": seconds})
            by_age, by_expiry = await client.pending(), await client.pending(order="expiry", limit=2)
            assert [*by_expiry, *await client.pending(order="expiry", after=by_expiry.next)] == by_age[::-1]
            wrong: Any = "size"
            with pytest.raises(UsageError, match="order"):
                await client.pending(order=wrong)


async def test_a_graph_takes_a_state_and_can_be_edited(server: Serving):
    async with Client(url(server)) as client:
        result = await client.chat({"cents": 5}, agent="refunds")
        (asked,) = result.interrupts
        assert asked.info == {"cents": 5}
        point = await client.edit(result.session_id, {"cents": 7}, checkpoint_id=result.checkpoint_id)
        assert point.state["cents"] == 7
        result = await client.chat({"cents": 5}, agent="refunds")
        info = await client.answer(result.session_id, {result.interrupts[0]: True}, by="ann")
        assert info.session_id == result.session_id
        async for _ in client.attach(result.session_id):
            pass
        assert (await client.attach(result.session_id)).state == {"cents": 5, "paid": True}


async def test_inputs_wait_and_can_be_withdrawn(server: Serving):  # rule V11
    async with Client(url(server)) as client:
        run = client.chat("count submits", agent="counter", session_id="queue/1")
        async for _ in run:
            break
        first = await client.submit("one", session_id="queue/1", agent="counter")
        second = await client.submit("two", session_id="queue/1", agent="counter")
        assert [each.input for each in await client.inputs("queue/1")] == ["one", "two"]
        assert await client.withdraw("queue/1", second.id)
        assert not await client.withdraw("queue/1", second.id)
        with pytest.raises(SessionBusy):
            await client.chat("three", agent="counter", session_id="queue/1")
        GATES.open("submits")
        assert (await run).status == "done"
        assert first.waiting == 1


async def _result(run: RemoteRun) -> RemoteResult:
    return await run


async def test_a_turn_that_waited_and_cannot_begin_raises_why(server: Serving):  # rules V2, V11
    async with Client(url(server)) as client:
        run = client.chat("count withdrawn", agent="counter", session_id="queue/2")
        async for _ in run:
            break
        waiting = client.chat("count", agent="counter", session_id="queue/2", on_busy="queue")
        reading = asyncio.ensure_future(_result(waiting))
        queued: list[RemoteInput] = []
        for _ in range(1000):
            queued = queued or await client.inputs("queue/2")
        assert await client.withdraw("queue/2", queued[0].id)
        with pytest.raises(InputWithdrawn) as withdrawn:
            await reading
        assert withdrawn.value.session_id == "queue/2"
        GATES.open("withdrawn")
        assert (await run).status == "done"


async def test_refusals_are_the_errors_of_the_library(server: Serving):  # rules V2, R3
    async with Client(url(server)) as client:
        result = await client.chat("book Rome", agent="booker")
        session_id, (asked,) = result.session_id, result.interrupts
        with pytest.raises(PendingInterrupts) as pending:
            await client.chat("hello", agent="booker", session_id=session_id)
        assert (pending.value.session_id, pending.value.interrupts) == (session_id, (asked.id,))
        with pytest.raises(InvalidAnswer) as invalid:
            await client.resume(session_id, {asked: 7})
        assert invalid.value.problems
        with pytest.raises(UnknownInterrupt) as unknown:
            await client.resume(session_id, {"nothing": True})
        assert unknown.value.open == (asked.id,)
        with pytest.raises(CheckpointNotFound):
            await client.resume(session_id, {asked: True}, checkpoint_id="other.1")
        await client.resume(session_id, {asked: True}, by="ann")
        with pytest.raises(AlreadyResumed) as resumed:
            await client.resume(session_id, {asked: True}, by="bob")
        assert (resumed.value.by, resumed.value.interrupt_id) == ("ann", asked.id)
        assert resumed.value.at is not None
        with pytest.raises(CheckpointNotFound):
            await client.status("nobody")
        with pytest.raises(RequestRefused, match="There is no agent 'nobody'") as refused:
            await client.chat("hello", agent="nobody")
        assert (refused.value.status, refused.value.code) == (404, "agent_not_found")
        with pytest.raises(UsageError, match=r"The request names no agent\. Choose one of: .*booker"):
            await client.chat("hello")
        for error in (pending.value, resumed.value, refused.value, unknown.value):
            assert (str(copy.copy(error)), vars(copy.copy(error))) == (str(error), vars(error))


async def test_a_run_that_fails_says_so_and_can_be_recovered(server: Serving):
    async with Client(url(server)) as client:
        run = client.chat("fail now", agent="booker")
        events: list[Any] = []

        async def read() -> None:
            async for event in run:
                events.append(event)  # noqa: PERF401  # those before the error, too

        with pytest.raises(RunError, match="The server's log says why"):
            await read()
        assert isinstance(events[-1], Failed)
        with pytest.raises(RunError):
            await run
        with pytest.raises(UnfinishedRun) as unfinished:
            await client.chat("hello", agent="booker", session_id=run.session_id)
        assert unfinished.value.status == "failed"
        with pytest.raises(RunError):
            await client.recover(run.session_id)


async def test_the_inbox_reports_each_question_once_over_lost_connections():  # rule V14
    with contextlib.ExitStack() as opened:
        server = opened.enter_context(Serving(App([booker()], keep_alive=0.05)))
        proxy = opened.enter_context(Proxy(server.server.port))
        async with Client(url(server)) as direct, Client(proxy.url) as client:
            before = await direct.chat("name")
            async with contextlib.aclosing(client.subscribe(reason="need_name", report_open=True)) as notices:
                first = await anext(notices)
                assert isinstance(first, QuestionAsked)
                assert first.session_id == before.session_id
                proxy.cut()
                await direct.resume(before.session_id, {before.interrupts[0]: "Ada"})
                after = await direct.chat("name")
                found: dict[type, str] = {}
                async for notice in notices:
                    if not isinstance(notice, SessionEnded):
                        assert type(notice) not in found
                        found[type(notice)] = notice.session_id
                    if len(found) == 2:
                        break
                assert found == {QuestionClosed: before.session_id, QuestionAsked: after.session_id}


async def test_documents_are_asked_for_again_when_the_connection_breaks(server: Serving):  # rule V13
    with Proxy(server.server.port, [Cut(bytes=0), Cut(bytes=30)]) as proxy:
        async with Client(proxy.url) as client:
            assert len(await client.agents()) == 3
    async with Client(url(server)) as client:
        session_id = (await client.chat("hello", agent="booker")).session_id
    with Proxy(server.server.port, [Cut(bytes=0)]) as proxy:
        async with Client(proxy.url) as client:
            forked = await client.fork(session_id, to=f"{session_id}-2")
    with Proxy(server.server.port, [Cut(bytes=0)]) as proxy:
        async with Client(proxy.url) as client:
            await client.delete(forked)


def test_sync_code_does_the_same(server: Serving):
    with SyncClient(url(server)) as client:
        run = client.chat("book Rome", agent="booker")
        events = list(run)
        (asked,) = run.result().interrupts
        assert isinstance(events[-1], Interrupted)
        assert client.resume(run.session_id, {asked: Edit({"place": "Oslo"})}).result().output == "Result: booked: Oslo"
        assert "".join(client.chat("count", agent="counter").text()) == "".join(WORDS)
        waiting = client.chat("name", agent="booker").result().session_id
        for notice in client.subscribe(reason="need_name", report_open=True):
            if isinstance(notice, QuestionAsked) and notice.session_id == waiting:
                break
        assert client.pending(run.session_id) == []
        with pytest.raises(AlreadyResumed):
            client.resume(run.session_id, {asked: True}).result()
    with pytest.raises(UsageError, match="closed"):
        client.agents()


LEFT = """
import sys
from adjourn.client import SyncClient

client = SyncClient(sys.argv[1])
events = iter(client.chat("count", agent="counter"))
next(events)
"""


def test_a_script_that_leaves_a_loop_half_read_ends(server: Serving):
    line = [sys.executable, "-c", LEFT, url(server)]
    ended = subprocess.run(line, capture_output=True, text=True, check=False, timeout=40)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_sync_code_that_got_no_thread_can_try_again(server: Serving):
    with SyncClient(url(server)) as client:
        with no_more_threads(), pytest.raises(RuntimeError, match="new thread"):
            client.agents()
        assert client.agents()


async def test_sync_code_works_where_a_loop_runs_and_in_threads(server: Serving):
    with SyncClient(url(server)) as client:
        assert client.chat("hello", agent="booker").result().output == "You said: hello"  # as in a notebook
        talks = [asyncio.to_thread(lambda: client.chat("hello", agent="booker").result().output) for _ in range(3)]
        assert await asyncio.gather(*talks) == ["You said: hello"] * 3


def test_a_client_works_from_any_loop(server: Serving):
    client = Client(url(server))

    async def talk() -> str:
        return (await client.chat("hello", agent="booker")).output

    assert [asyncio.run(talk()) for _ in range(2)] == ["You said: hello"] * 2
    outputs: list[str] = []
    threads = [threading.Thread(target=lambda: outputs.append(asyncio.run(talk()))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outputs == ["You said: hello"] * 2


def test_runs_of_sync_code_are_named_and_cancelled(server: Serving):
    with SyncClient(url(server)) as client:
        assert (client.url, repr(client)) == (url(server), f"<SyncClient of {url(server)}>")
        with client.chat("count sync-cancel", agent="counter") as run:
            assert repr(run) == f"<SyncRemoteRun of session {run.session_id}, not begun>"
            for event in run:
                if isinstance(event, Delta):
                    break
            run.cancel()
            assert run.result().status == "cancelled"
            assert run.seen > 0
        GATES.open("sync-cancel")
        client.close()
    SyncClient(url(server)).close()  # without a thread to end


def test_a_sync_client_that_would_wait_for_itself_says_so(server: Serving):
    def look(_: Reconnecting) -> None:
        client.agents()

    with contextlib.ExitStack() as opened:
        proxy = opened.enter_context(Proxy(server.server.port, [Cut(bytes=0)]))
        client = opened.enter_context(SyncClient(proxy.url, on_reconnect=look))
        with pytest.raises(UsageError, match="called by the SyncClient itself"):
            client.agents()


def test_sync_code_leaves_a_stream_and_the_run_goes_on(server: Serving):  # rule V10
    with SyncClient(url(server)) as client:
        run = client.chat("count sync-left", agent="counter")
        for piece in run.text():
            assert piece == WORDS[0]
            break
        GATES.open("sync-left")
        assert client.attach(run.session_id).result().output == "".join(WORDS)


async def test_one_of_two_questions_is_answered(server: Serving):
    async with Client(url(server)) as client:
        result = await client.chat("two", agent="booker")
        first, second = result.interrupts
        await client.answer(result.session_id, {first: True}, by="ann")
        (left,) = await client.pending(result.session_id)
        assert (left.id, left.info) == (second.id, second.info)
        assert await client.count_pending(result.session_id) == 1
        with pytest.raises(UsageError, match="limit=0"):
            await client.pending(result.session_id, limit=0)


# Whoever answers may not be a server of ours


@pytest.mark.parametrize(
    ("status", "body", "media", "kind", "said"),
    [
        (502, b"<h1>Bad Gateway</h1>", "text/html", ServerUnavailable, "answers with 502"),
        (404, b"<h1>Not found</h1>", "text/html", UnexpectedAnswer, "404 and text/html"),
        (200, b"<h1>Welcome</h1>", "text/html", UnexpectedAnswer, "text/html in place of"),
        (200, b"[1, 2]", "application/json", UnexpectedAnswer, "check the address|cannot be read"),
        (403, b'{"detail": "no"}', "application/json", UnexpectedAnswer, "403 and application/json"),
        (301, b"", "text/html", UnexpectedAnswer, "redirects to https://elsewhere.example"),
        (500, b'{"error": {"code": "internal_error", "message": "Oh."}}', "application/json", RequestRefused, "Oh."),
    ],
)
async def test_what_is_not_a_server_is_said_to_be_none(
    status: int, body: bytes, media: str, kind: type[AdjournError], said: str
):
    with answering(status, body, content_type=media, location="https://elsewhere.example/x") as address:
        async with Client(address) as client:
            with pytest.raises(kind, match=said):
                await client.agents()
            with pytest.raises(kind):
                await client.chat("hello")


@pytest.mark.parametrize(
    "data", [b"not JSON", b"[1, 2]", b'{"type": 7}', b'{"type":"done","output":7}', b'{"type":"delta","path":"x"}']
)
async def test_frames_that_cannot_be_read_are_said_to_be_so(data: bytes):
    with answering(200, b"id: 1\ndata: %b\n\n" % data, content_type="text/event-stream") as address:
        async with Client(address) as client:
            with pytest.raises(UnexpectedAnswer, match="cannot be read"):
                await client.chat("hello")
            if b"done" not in data and b"delta" not in data:  # which the inbox does not know
                with pytest.raises(UnexpectedAnswer, match="cannot be read"):
                    await anext(client.subscribe())


@pytest.mark.parametrize(
    "info", [{"tool": "pay"}, {"tool": "pay", "arguments": {}, "later": 1}, {"tool": 7}, "pay", None]
)
async def test_approvals_that_show_something_else_are_shown_as_they_are(info: Any):
    asked = {**QUESTION, "reason": "need_approval", "info": info}
    with answering(200, json.dumps({"questions": [asked]}).encode(), content_type="application/json") as address:
        async with Client(address) as client:
            assert [each.info for each in await client.pending()] == [info]


QUESTION = {
    "session_id": "s",
    "id": "q1",
    "key": "q1",
    "address": "agent:A",
    "reason": "need_name",
    "created": "2026-01-01T00:00:00+00:00",
}


async def test_the_inbox_from_now_on_has_only_what_is_new():  # rule V14
    def of(kind: str, **facts: Any) -> bytes:
        return b"data: %b\n\n" % json.dumps({"type": kind, **facts}).encode()

    first, second = (of("question", **{**QUESTION, "id": name}) for name in ("q1", "q2"))
    ended = of("ended", session_id="s", status="done")
    stream = first + of("caught_up") + first + second + of("closed", session_id="s", id="q2") + ended + of("closing")
    lost: list[Reconnecting] = []

    class Enough(Exception):
        pass

    def enough(again: Reconnecting) -> None:
        lost.append(again)
        raise Enough

    found: list[RemoteNotice] = []

    async def read(client: Client) -> None:
        async for notice in client.subscribe():
            found.append(notice)  # noqa: PERF401  # those before the error, too

    with answering(200, stream, content_type="text/event-stream") as address:
        async with Client(address, on_reconnect=enough) as client:
            with pytest.raises(Enough):
                await read(client)
    assert [type(each) for each in found] == [QuestionAsked, QuestionClosed, SessionEnded]
    assert isinstance(found[0], QuestionAsked)
    assert found[0].interrupt.id == "q2"
    assert "the server closes" in lost[0].error


async def test_a_refusal_that_lasts_is_raised_in_the_end():
    body = b'{"error": {"code": "too_many_requests", "message": "Slower.", "hint": "Wait."}}'
    lost: list[Reconnecting] = []
    with answering(429, body, content_type="application/json", retry_after="3") as address:
        async with Client(address, reconnect=1, on_reconnect=lost.append) as client:
            with pytest.raises(RequestRefused, match="Slower") as refused:
                await client.agents()
    assert (refused.value.status, refused.value.retry_after, lost) == (429, 3.0, [])


async def test_options_that_httpx_does_not_have_are_refused():
    async with Client("http://localhost:8000", httpx_options={"no_such": 1}) as client:
        with pytest.raises(UsageError, match=r"Client\(httpx_options=...\).*no_such"):
            await client.agents()
    for options in ({"timeout": -1}, {"silence": True}, {"reconnect": "long"}):
        with pytest.raises(UsageError, match="give a number of seconds"):
            Client("http://localhost:8000", **options)  # pyright: ignore[reportArgumentType]


async def test_nobody_there_is_said_at_once():
    async with Client("http://127.0.0.1:1") as client:
        with pytest.raises(ServerUnavailable, match=r"cannot be reached.*Check the address"):
            await client.chat("hello")


@pytest.mark.parametrize(
    "address", ["", "localhost:8000", "ftp://host", "http://", "http://a:b@host", "http://host?x=1", "http://host:x", 7]
)
def test_what_is_not_an_address_is_refused(address: Any):
    with pytest.raises(UsageError):
        Client(address)


@pytest.mark.parametrize("token", ["with space", "line\nend", "ünter"])
def test_what_cannot_be_a_token_is_refused_without_showing_it(token: str):
    with pytest.raises(UsageError) as raised:
        Client("http://localhost:8000", token=token)
    assert token not in str(raised.value)


async def test_misuse_is_refused_before_anything_is_sent(server: Serving):
    async with Client(url(server)) as client:
        for call in (
            lambda: client.chat(7),  # pyright: ignore[reportArgumentType]
            lambda: client.chat("x", session_id=""),
            lambda: client.chat("x", values={"a": object()}),
            lambda: client.resume("s", {}),
            lambda: client.resume("s", {7: True}),
            lambda: client.attach("s", after=-1),
        ):
            with pytest.raises(UsageError):
                call()
        run = client.chat("never sent", agent="booker")
        with pytest.warns(RuntimeWarning, match="nothing was sent"):
            del run


async def test_tokens_let_in_and_are_never_shown(tmp_path: Path, caplog: pytest.LogCaptureFixture):  # rule V7
    tokens = Tokens(tmp_path / "tokens.json")
    _, secret = tokens.create("ann")
    caplog.set_level(logging.DEBUG)
    with Serving(App([booker()], tokens=tokens)) as server:
        async with Client(url(server), token=secret) as client:
            result = await client.chat("book Rome")
            assert (await client.status(result.session_id)).user_id == "ann"
            with pytest.raises(RequestRefused) as forbidden:
                await client.edit(result.session_id, {"x": 1})
            assert (forbidden.value.status, forbidden.value.code) == (403, "forbidden")
            shown = [repr(client), str(forbidden.value), repr(vars(client)), repr(vars(client._server))]  # pyright: ignore[reportPrivateUsage]
        for wrong in (None, f"{secret}x"):
            async with Client(url(server), token=wrong) as client:
                with pytest.raises(RequestRefused, match="Give a token that the server knows") as unknown:
                    await client.chat("hello")
                assert unknown.value.status == 401
                shown.append(repr(unknown.value))
    with Proxy(1) as proxy:
        async with Client(proxy.url, token=secret, reconnect=0.2) as client:
            with pytest.raises(ServerUnavailable) as lost:
                await client.agents()
            shown.append(repr(lost.value))
    assert secret.split("_", 2)[2] not in " ".join([*shown, caplog.text])


# Frames


def frames(stream: bytes, *, pieces: int) -> list[Frame]:
    reader = Frames(10_000)
    cut = [stream[place : place + pieces] for place in range(0, len(stream), pieces)]
    return [frame for piece in cut for frame in reader.feed(piece)]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("pieces", [1, 2, 3, 7, 1000])
def test_frames_are_the_same_however_they_are_cut_and_end_their_lines(end: bytes, pieces: int):
    text = '\ufeffretry: 2000\nid: 0\n\n: keep-alive\n\nid: 7\nevent: live\ndata: {"ü":\ndata:1}\n\ndata: cut off'
    found = frames(text.encode().replace(b"\n", end), pieces=pieces)
    assert found == [Frame("0"), Frame(), Frame("7", "live", '{"ü":\n1}'.encode())]


def test_a_frame_that_does_not_end_is_refused():
    for stream in (b"data: " + b"x" * 20_000, b"data: x\n" * 3000):
        with pytest.raises(FrameTooLarge):
            frames(stream, pieces=100)
    assert len(frames(b"data: x\n\n" * 3000, pieces=100)) == 3000


async def test_what_later_versions_send_is_passed_over():
    stream = b'id: 1\ndata: {"type":"hologram"}\n\nid: 2\ndata: {"type":"done","output":"hi","later":1}\n\n'
    with answering(200, stream, content_type="text/event-stream") as address:
        async with Client(address) as client:
            assert [event async for event in client.chat("hello")] == [Done(output="hi")]


# The page of the client


PAGE = [block for block in blocks(ROOT / "docs" / "client.md") if "def main(" in block.code]


@pytest.mark.parametrize("block", PAGE, ids=lambda block: block.name)
def test_the_examples_of_the_page_do_what_they_say(server: Serving, block: Block):
    module = ModuleType("example")
    execute(block, module)
    if inspect.iscoroutinefunction(module.main):
        asyncio.run(_asked(server))
        found = asyncio.run(module.main(url(server)))
    else:
        found = module.main(url(server))
    assert found


async def _asked(server: Serving) -> None:
    async with Client(url(server)) as client:
        await client.chat("book Rome", agent="booker")
