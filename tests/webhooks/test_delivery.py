"""Messages about runs: what they say, that each arrives, and what happens when a receiver does not take it."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from typing import Any, TypeVar, cast

import pytest
from msgspec.structs import replace

from adjourn import ChatModelAgent, Message, Runner, ToolCall, UsageError, interrupt, tool, workflow
from adjourn.errors import StoreUnavailable
from adjourn.stores import MemoryStore, RedisStore, SessionRef
from adjourn.stores._wrapper import StoreWrapper
from adjourn.stores.kit import Delete, GetHead, StoreQuery, StoreRequest, TakeNotices
from adjourn.testing import FakeClock, FaultStore, ScriptedModel
from adjourn.webhooks import Webhook, Webhooks
from tests.servers import redis

from .receiving import OTHER, SECRET, Answering, Receiver

T = TypeVar("T")

CANARY = "c4nary"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@workflow
async def ask(what: str) -> str:
    return str(interrupt({"amount": what}, prompt=f"Pay {what}?"))


@workflow
async def ask_soon(what: str) -> str:
    return str(interrupt(what, expires_in=3600))


@workflow
async def fail(what: str) -> str:
    raise ValueError(f"no {what}")


@tool(approval=True)
async def pay(amount: str) -> str:
    """Pay."""
    return f"paid {amount}"


def payer() -> ChatModelAgent:
    call = Message.assistant("", tool_calls=[ToolCall(id="c1", name="pay", arguments={"amount": CANARY})])
    return ChatModelAgent("payer", model=ScriptedModel([call, "Paid."]), tools=[pay])


def held_until(event: threading.Event) -> Answering:
    """A receiver that answers nothing."""

    def answer(_: BaseHTTPRequestHandler) -> None:
        event.wait(60)

    return answer


def hang_up(request: BaseHTTPRequestHandler) -> None:
    request.close_connection = True


async def waiting(store: MemoryStore, hooks: Webhooks, session: str = "s") -> Runner[Any, Any, Any]:
    runner = Runner(ask, store=store, notify=hooks)
    await runner.run(CANARY, session_id=session)
    return runner


# What they say


async def test_a_pause_and_an_end_are_reported(receiver: Receiver):  # rule V12
    store, hooks = MemoryStore(), Webhooks([receiver.webhook()], public_url="https://desk.example.com")
    runner = Runner(payer(), store=store, notify=hooks)
    paused = await runner.run("Pay", session_id="s/1", user_id="ann")
    assert await hooks.deliver(store) == 1
    first = receiver.next()
    assert first.path == "/hook"
    assert first.headers["content-type"] == "application/json"
    assert (first.type, first.data["agent"], first.data["session_id"]) == ("interrupt", "payer", "s/1")
    assert (first.data["user_id"], first.data["app"], first.data["checkpoint_id"]) == (
        "ann",
        "adjourn",
        paused.checkpoint_id,
    )
    (asked,) = first.data["questions"]
    assert (asked["id"], asked["reason"], asked["open"]) == (paused.interrupts[0].id, "need_approval", True)
    assert asked["url"] == "https://desk.example.com/api/v1/sessions/s%2F1/questions/agent%3Apayer%3Btool%3Apay%3Ac1"
    await runner.resume("s/1", {paused.interrupts[0].id: True}, user_id="ann")
    await hooks.deliver(store)
    second = receiver.next()
    assert (second.type, second.data["url"]) == ("done", "https://desk.example.com/api/v1/sessions/s%2F1")
    assert second.id != first.id


async def test_a_pause_says_until_when_its_session_is_kept(receiver: Receiver):  # rules V12, C7
    store, hooks = RedisStore(redis().fresh(), ttl=3600.0), Webhooks([receiver.webhook()])
    await Runner(payer(), store=store, notify=hooks).run("Pay", session_id="s")
    await hooks.deliver(store)
    kept = datetime.fromisoformat(receiver.next().data["removed_after"]) - datetime.now(UTC)
    assert timedelta(minutes=55) < kept < timedelta(minutes=65)
    await store.close()


async def test_a_failure_is_reported(receiver: Receiver):  # rule V12
    store = MemoryStore()
    hooks = Webhooks([receiver.webhook(), receiver.webhook("/details", details=True)])
    with pytest.raises(ValueError, match=CANARY):
        await Runner(fail, store=store, notify=hooks).run(CANARY, session_id="s")
    await hooks.deliver(store)
    got = {each.path: each.data["error"] for each in (receiver.next(), receiver.next())}
    assert got == {"/hook": {"type": "ValueError"}, "/details": {"type": "ValueError", "message": f"no {CANARY}"}}


async def test_arguments_are_sent_only_to_who_asks_for_them(receiver: Receiver):  # rule V12
    store = MemoryStore()
    hooks = Webhooks([receiver.webhook(), receiver.webhook("/details", details=True)])
    runner = Runner(payer(), store=store, notify=hooks)
    paused = await runner.run("Pay", session_id="s")
    await hooks.deliver(store)
    got = {each.path: each for each in (receiver.next(), receiver.next())}
    assert CANARY not in got["/hook"].body.decode()
    assert "token" not in got["/hook"].data["questions"][0]
    (shown,) = got["/details"].data["questions"]
    assert shown["info"]["arguments"] == {"amount": CANARY}
    assert CANARY in shown["prompt"]
    assert shown["token"] == paused.interrupts[0].token


async def test_the_outbox_has_nothing_that_was_said():  # rule V12
    store = MemoryStore()
    with Receiver() as receiver:
        hooks = Webhooks([receiver.webhook(name="desk", details=True)])
        await waiting(store, hooks)
        (taken,) = await store.write(TakeNotices("adjourn", ["desk"], 1.0))
        assert CANARY not in taken.body.decode()


async def test_what_is_too_long_is_left_out(receiver: Receiver):  # rule V12
    store, hooks = MemoryStore(), Webhooks([receiver.webhook(details=True)])
    await Runner(ask, store=store, notify=hooks).run("x" * 300_000, session_id="s")
    await hooks.deliver(store)
    (asked,) = receiver.next().data["questions"]
    assert asked["open"]
    assert "info" not in asked
    assert "prompt" not in asked


async def test_a_link_may_lead_to_a_page_of_ones_own(receiver: Receiver):  # rule V12
    link = "https://desk.example.com/review?s={session}&q={question}"
    store, hooks = MemoryStore(), Webhooks([receiver.webhook(link=link)])
    await waiting(store, hooks, "a&b")
    await hooks.deliver(store)
    (asked,) = receiver.next().data["questions"]
    assert asked["url"] == "https://desk.example.com/review?s=a%26b&q=runnable%3Aask"


async def test_an_expiry_is_announced_while_the_question_is_open(receiver: Receiver):  # rule V12
    clock = FakeClock()
    store = MemoryStore(clock)
    hooks = Webhooks([receiver.webhook(events=["expiring"], expiring_before=600)])
    runner = Runner(ask_soon, store=store, notify=hooks, clock=clock)
    for session in ("open", "answered", "deleted"):
        await runner.run("date", session_id=session)
    await runner.answer("answered", {"runnable:ask_soon": "today"})
    await store.write(Delete(SessionRef("deleted")))
    assert await hooks.deliver(store) == 0
    clock.advance(3001)
    assert await hooks.deliver(store) == 3
    got = receiver.next()
    assert (got.type, got.data["session_id"], got.data["questions"][0]["id"]) == (
        "expiring",
        "open",
        "runnable:ask_soon",
    )
    assert got.message["timestamp"] == "2023-11-14T23:03:20+00:00"
    assert receiver.has_none()
    assert await hooks.deliver(store) == 0


async def test_an_expiry_on_a_branch_that_was_left_is_not_announced(receiver: Receiver):  # rule V12
    clock = FakeClock()
    store = MemoryStore(clock)
    hooks = Webhooks([receiver.webhook(events=["expiring"], expiring_before=600)])
    runner = Runner(ask_soon, store=store, notify=hooks, clock=clock)
    paused = await runner.run("date", session_id="s")
    await runner.run("another", session_id="s", on_pending="abandon")
    assert paused.interrupts
    clock.advance(3001)
    await hooks.deliver(store)
    assert receiver.next().type == "expiring"
    assert receiver.has_none()


async def test_who_has_no_webhooks_writes_no_notices():  # rule V12
    store = MemoryStore()
    await Runner(ask, store=store).run("x", session_id="s")
    assert await store.write(TakeNotices("adjourn", ["desk"], 1.0)) == []


@pytest.mark.parametrize("mode", ["before", "after"])
async def test_what_was_not_stored_is_not_reported(receiver: Receiver, mode: Any):  # rule V12
    inner, hooks = MemoryStore(), Webhooks([receiver.webhook()])
    broken = FaultStore(inner, 2, mode, times=None)  # The first write begins the turn, the second pauses.
    with pytest.raises(StoreUnavailable):
        await Runner(ask, store=broken, notify=hooks).run("x", session_id="s")
    assert broken.fired
    assert await hooks.deliver(inner) == (mode == "after")


async def test_several_secrets_sign_a_message(receiver: Receiver):  # rule V12
    store, hooks = MemoryStore(), Webhooks([receiver.webhook(secret=[OTHER, SECRET])])
    await waiting(store, hooks)
    await hooks.deliver(store)
    received = receiver.next()
    received.verify(SECRET)
    received.verify(OTHER)


# That they arrive


async def test_what_happens_while_it_delivers_is_sent_at_once(receiver: Receiver):  # rule V12
    store, hooks = MemoryStore(), Webhooks([receiver.webhook()])
    async with hooks.delivering(store):
        runner = await waiting(store, hooks)
        assert (await asyncio.to_thread(receiver.next)).type == "interrupt"
        await runner.resume("s", {"runnable:ask": 1})
        assert (await asyncio.to_thread(receiver.next)).type == "done"
    async with hooks.delivering(store):
        pass
    assert receiver.has_none()


async def test_what_could_not_be_sent_is_sent_again(receiver: Receiver):  # rule V12
    clock = FakeClock()
    store, hooks = MemoryStore(clock), Webhooks([receiver.webhook(name="desk")])
    receiver.answers = [500, 429, 302]
    await waiting(store, hooks)
    ids = set[str]()
    for delay in (7, 400, 2200):
        assert await hooks.deliver(store) == 1
        ids.add(receiver.next().id)
        assert await hooks.deliver(store) == 0
        clock.advance(delay)
    assert await hooks.deliver(store) == 1
    ids.add(receiver.next().id)
    assert len(ids) == 1
    assert dict(hooks.counts) == {("desk", "failed"): 3, ("desk", "sent"): 1}
    clock.advance(1e6)
    assert await hooks.deliver(store) == 0


async def test_after_days_a_message_is_given_up(receiver: Receiver, caplog: pytest.LogCaptureFixture):  # rule V12
    clock = FakeClock()
    store, hooks = MemoryStore(clock), Webhooks([receiver.webhook(name="desk")])
    receiver.answers = [500] * 100
    await waiting(store, hooks)
    attempts = 0
    while made := await hooks.deliver(store):
        attempts += made
        clock.advance(2 * 86400)
    assert attempts == 10
    assert "given up after 10 attempts" in caplog.text
    assert hooks.counts["desk", "given_up"] == 1


async def test_a_receiver_that_is_busy_is_left_alone(receiver: Receiver):  # rule V12
    clock = FakeClock()
    store, hooks = MemoryStore(clock), Webhooks([receiver.webhook()])

    def busy(request: BaseHTTPRequestHandler) -> None:
        request.send_response(503)
        request.send_header("retry-after", "3600")
        request.end_headers()

    receiver.answers = [busy]
    await waiting(store, hooks)
    await hooks.deliver(store)
    clock.advance(3500)
    assert await hooks.deliver(store) == 0
    clock.advance(200)
    assert await hooks.deliver(store) == 1


async def test_a_receiver_that_is_gone_gets_nothing_more(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
):  # rule V12
    store = MemoryStore()
    hooks = Webhooks([receiver.webhook(name="gone"), receiver.webhook("/there", name="there")])
    receiver.answers = [410, 410]
    await waiting(store, Webhooks([receiver.webhook(name="gone")]))
    await hooks.deliver(store)
    assert "gone (410)" in caplog.text
    await waiting(store, hooks, "t")
    async with hooks.delivering(store):
        received = await asyncio.to_thread(lambda: [receiver.next(), receiver.next()])
    assert [each.path for each in received] == ["/hook", "/there"]
    assert receiver.has_none()


async def test_nobody_who_is_down_holds_up_others(receiver: Receiver):  # rule V12
    with Receiver() as down:
        dead = down.webhook(name="down")
    store, hooks = MemoryStore(), Webhooks([dead, receiver.webhook(name="up")])
    await waiting(store, hooks)
    await hooks.deliver(store)
    assert receiver.next().type == "interrupt"
    assert dict(hooks.counts) == {("down", "failed"): 1, ("up", "sent"): 1}


async def test_nobody_who_is_slow_holds_up_others(receiver: Receiver):  # rule V12
    ends = threading.Event()
    with Receiver() as slow:
        slow.answers = [held_until(ends)] * 10
        store = MemoryStore()
        hooks = Webhooks([slow.webhook(name="slow", timeout=60), receiver.webhook(name="quick")])
        async with hooks.delivering(store):
            for number in range(8):
                await waiting(store, hooks, f"s{number}")
            got = [await asyncio.to_thread(receiver.next) for _ in range(8)]
            assert {each.data["session_id"] for each in got} == {f"s{number}" for number in range(8)}
            assert slow.requests.qsize() <= 4
            ends.set()


async def test_an_attempt_ends_in_time(receiver: Receiver, caplog: pytest.LogCaptureFixture):  # rule V12
    ends = threading.Event()
    store, hooks = MemoryStore(), Webhooks([receiver.webhook(timeout=0.2)])
    receiver.answers = [held_until(ends)]
    await waiting(store, hooks)
    await hooks.deliver(store)
    ends.set()
    assert "longer than 0.2 seconds" in caplog.text


async def test_redirects_are_not_followed(receiver: Receiver, caplog: pytest.LogCaptureFixture):  # rule V12
    with Receiver() as canary:

        def redirect(request: BaseHTTPRequestHandler) -> None:
            request.send_response(307)
            request.send_header("location", canary.url())
            request.send_header("content-length", "0")
            request.end_headers()

        receiver.answers = [redirect]
        store, hooks = MemoryStore(), Webhooks([receiver.webhook()])
        await waiting(store, hooks)
        await hooks.deliver(store)
        assert "redirects are not followed" in caplog.text
        assert canary.has_none()


async def test_an_endless_answer_is_not_read(receiver: Receiver):  # rule V12
    cut = threading.Event()

    def endless(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        try:
            for _ in range(100_000):
                request.wfile.write(bytes(65536))
        except OSError:
            cut.set()

    receiver.answers = [endless]
    store, hooks = MemoryStore(), Webhooks([receiver.webhook(name="desk", timeout=60)])
    await waiting(store, hooks)
    await hooks.deliver(store)
    assert hooks.counts["desk", "sent"] == 1
    assert await asyncio.to_thread(cut.wait, 60)


async def test_nothing_is_sent_to_this_machine_by_mistake(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
):  # rule V12
    store = MemoryStore()
    url = f"http://localhost:{receiver.port}/hook"
    hooks = Webhooks([Webhook(url, secret=SECRET, allow_http=True)])
    await waiting(store, hooks)
    await hooks.deliver(store)
    assert "is not public" in caplog.text
    assert receiver.has_none()


async def test_nothing_secret_is_in_any_log(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
):  # rule V12, attack 10
    caplog.set_level(logging.DEBUG)
    url = receiver.url("/T0/t0ps3cret?key=k3yk3y").replace("//", "//ann:swordfish@")
    hooks = Webhooks([Webhook(url, secret=SECRET, allow_http=True, allow_private=True)])
    receiver.answers = [204, 500, 302, hang_up]
    store = MemoryStore()
    for number in range(4):
        await waiting(store, hooks, f"s{number}")
    await hooks.deliver(store)
    received = receiver.next()
    assert received.path == "/T0/t0ps3cret?key=k3yk3y"
    assert received.headers["authorization"] == "Basic YW5uOnN3b3JkZmlzaA=="
    assert "attempt 1" in caplog.text
    for each in ("swordfish", "t0ps3cret", "k3yk3y", "YW5uOnN3b3JkZmlzaA", SECRET, SECRET[6:30]):
        assert each not in caplog.text


async def test_a_store_that_is_away_is_asked_again(
    receiver: Receiver, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):  # rule V12
    monkeypatch.setattr("adjourn.webhooks._delivery.POLL", 0.05)
    inner, hooks = MemoryStore(), Webhooks([receiver.webhook()])
    await waiting(inner, hooks)
    # Old notices are dropped, and then some are taken: both fail, and later it is there again.
    async with hooks.delivering(FaultStore(inner, 1, "before", times=2)):
        assert (await asyncio.to_thread(receiver.next)).type == "interrupt"
    assert "its messages wait" in caplog.text


async def test_a_store_that_forgets_what_arrived_has_it_sent_again(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
):  # rule V12
    inner, hooks = MemoryStore(), Webhooks([receiver.webhook()])
    await waiting(inner, hooks)
    assert await hooks.deliver(FaultStore(inner, 2, "before")) == 1  # taken, and then not settled
    first = receiver.next()
    assert f"{first.id} waits" in caplog.text
    assert await hooks.deliver(inner) == 0, "it is taken for a while"


@pytest.mark.parametrize("damaged", [True, False])
async def test_a_message_that_cannot_be_made_is_kept(
    receiver: Receiver, caplog: pytest.LogCaptureFixture, damaged: bool
):  # rule V12
    class Broken(StoreWrapper):
        async def write(self, request: StoreRequest[T]) -> T:
            asked = request.plain
            if damaged and isinstance(asked, TakeNotices):
                return cast("T", [replace(each, body=b"{") for each in await self.inner.write(asked)])
            return await super().write(request)

        async def read(self, query: StoreQuery[T]) -> T:
            if isinstance(query, GetHead):
                raise StoreUnavailable("a store", "it is away")
            return await super().read(query)

    store, hooks = MemoryStore(), Webhooks([receiver.webhook()])
    await waiting(store, hooks)
    assert await hooks.deliver(Broken(store)) == 1
    assert ("it cannot be sent: " if damaged else "it is away") in caplog.text
    assert "a notice cannot be read" in caplog.text if damaged else "waits" in caplog.text
    assert not hooks.counts[receiver.webhook().name, "sent"]


async def test_what_nobody_has_sent_for_a_week_is_dropped(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
):  # rule V12
    clock = FakeClock()
    store, hooks = MemoryStore(clock=clock), Webhooks([receiver.webhook()])
    await waiting(store, hooks, "old")
    clock.advance(8 * 86400)
    await waiting(store, hooks, "new")
    async with hooks.delivering(store):
        assert (await asyncio.to_thread(receiver.next)).data["session_id"] == "new"
    assert "1 messages were dropped: for a week, nobody has sent them" in caplog.text


async def test_leaving_waits_for_what_is_on_its_way_but_not_for_ever(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
):  # rule V12
    monkeypatch.setattr("adjourn.webhooks._delivery.ENDING", 0.05)
    answered = threading.Event()
    receiver.answers = [held_until(answered)]
    store, hooks = MemoryStore(), Webhooks([receiver.webhook()])
    await waiting(store, hooks)
    async with asyncio.timeout(20), hooks.delivering(store):
        await asyncio.to_thread(receiver.next)
    answered.set()
    assert hooks.counts == {}, "whoever comes next sends it again"


@pytest.mark.parametrize(
    "address", ["desk.example.com", "ftp://desk.example.com", "https://[desk", "https://d/?a=1", 7]
)
def test_a_public_url_is_where_people_get_to(receiver: Receiver, address: Any):
    with pytest.raises(UsageError, match="public_url"):
        Webhooks([receiver.webhook()], public_url=address)
