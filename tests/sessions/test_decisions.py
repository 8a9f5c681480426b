"""Decisions: what was answered, and what has expired, over many sessions."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from adjourn import (
    AnswerWith,
    ChatModelAgent,
    Runner,
    Secret,
    Sessions,
    ToolCall,
    UsageError,
    interrupt,
    tool,
    workflow,
)
from adjourn.errors import MissingKey
from adjourn.sessions import AuditEntry
from adjourn.stores import EncryptedStore, MemoryStore, Store, open_store
from adjourn.testing import FakeClock, ScriptedModel
from tests.server.serving import store_url


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis", "encrypted"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    if request.param == "encrypted":
        opened: Store = EncryptedStore(open_store(store_url("sqlite", tmp_path)), {"k": EncryptedStore.generate_key()})
    else:
        opened = open_store(store_url(request.param, tmp_path))
    yield opened
    await opened.close()


@tool(approval=True, tags=["money"])
def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


@workflow
async def trip(city: str) -> str:
    return interrupt(f"A hotel in {city}?", schema=str, expires_in=timedelta(hours=1), on_expire=AnswerWith("none"))


def teller(store: Store, name: str = "teller") -> Runner[Any]:
    script = [ToolCall(id="c1", name="pay", arguments={"cents": 5}), "Done."]
    return Runner(ChatModelAgent(name, model=ScriptedModel(script), tools=[pay]), store=store)


async def decided(store: Store) -> Sessions:
    """Four sessions: one was approved, one refused, one has expired, and one was answered; a fifth one still waits."""
    clock = FakeClock(time.time() - 86_400)
    sessions = Sessions(store)
    for name, agent, by, answer in (("yes", "teller", "ann", True), ("no", "boss", "bob", False)):
        (asked,) = (await teller(store, agent).run("Pay.", session_id=name, user_id="eve")).interrupts
        await sessions.answer(name, {asked: answer}, by=by, message=f"By {by}.")
    late = Runner(trip, store=store, clock=clock)
    await late.run("Rome", session_id="late", user_id="eve")
    clock.advance(7200)
    await late.recover("late")
    for name in ("oslo", "open"):
        await Runner(trip, store=store).run(name, session_id=name, user_id="max")
    await sessions.answer("oslo", {(await sessions.pending("oslo"))[0]: "Grand"})
    return sessions


async def sessions_of(sessions: Sessions, **wanted: Any) -> list[str | None]:
    return [entry.interrupt.session_id for entry in await sessions.decisions(**wanted)]


async def test_each_says_what_was_shown_and_what_was_answered(store: Store):
    sessions = await decided(store)
    oslo, late, no, yes = await sessions.decisions()
    assert (oslo.outcome, oslo.answer, oslo.by) == ("answered", "Grand", None)
    assert (late.outcome, late.answer, late.by) == ("expired", "none", None)
    assert (no.outcome, no.answer, no.by, no.message) == ("answered", False, "bob", "By bob.")
    assert (yes.answer, yes.by, yes.interrupt.tags) == (True, "ann", ("money",))
    assert (yes.interrupt.info.tool, yes.interrupt.info.arguments) == ("pay", {"cents": 5})
    assert yes.interrupt.prompt == (await sessions.audit("yes"))[0].interrupt.prompt
    for entry in (oslo, late, no, yes):
        assert [entry] == await sessions.audit(entry.interrupt.session_id or "")


async def test_filters_select_and_all_of_them_must_fit(store: Store):
    sessions = await decided(store)
    assert await sessions_of(sessions, by="ann") == ["yes"]
    assert await sessions_of(sessions, by="") == ["oslo", "late"]
    assert await sessions_of(sessions, agent="boss") == ["no"]
    assert await sessions_of(sessions, how="expired") == ["late"]
    assert await sessions_of(sessions, how="answered") == ["oslo", "no", "yes"]
    assert await sessions_of(sessions, user_id="eve") == ["late", "no", "yes"]
    assert await sessions_of(sessions.for_user("max")) == ["oslo"]
    assert await sessions_of(sessions, user_id="eve", how="answered", agent="teller", by="ann") == ["yes"]
    for nothing in ({"by": "an"}, {"by": "%"}, {"agent": "tell"}, {"user_id": "e"}, {"by": "ann", "user_id": "max"}):
        assert await sessions_of(sessions, **nothing) == []
    assert await sessions_of(Sessions(store, app_name="other")) == []
    assert len(await Sessions(store, app_name=None).decisions()) == 4


async def test_a_time_selects_what_is_shown_with_it(store: Store):
    """Neighbouring spans have each decision once, although stores have finer times than a `datetime`."""
    sessions = await decided(store)
    times = [at(entry) for entry in await sessions.decisions()]
    assert times == sorted(times, reverse=True)
    for moment in times:
        assert await sessions_of(sessions, since=moment, until=moment) == []
        later, earlier = await sessions_of(sessions, since=moment), await sessions_of(sessions, until=moment)
        assert [*later, *earlier] == await sessions_of(sessions)
        assert len(later) == sum(each >= moment for each in times)
    east = times[0].astimezone(tz=datetime.strptime("+0900", "%z").tzinfo)
    assert await sessions_of(sessions, since=east) == ["oslo"]


def at(entry: AuditEntry) -> datetime:
    assert entry.at is not None
    return entry.at


async def test_pages_go_on_where_the_last_one_ended(store: Store):
    sessions = await decided(store)
    whole = await sessions.decisions()
    first = await sessions.decisions(limit=3)
    assert (first, whole.next) == (whole[:3], None)
    assert first.next is not None
    await sessions.answer("open", {(await sessions.pending("open"))[0]: "Ritz"})  # It comes before the first page.
    last = await sessions.decisions(limit=3, after=first.next)
    assert (last, last.next) == (whole[3:], None)
    assert (await sessions.decisions(limit=0)).next is None
    assert (await sessions.decisions(limit=2, user_id="eve", after=first.next)) == whole[3:]
    assert sessions.decisions_sync(limit=1, by="bob")[0].interrupt.session_id == "no"


async def test_a_fork_and_a_branch_list_nothing_again(store: Store):
    sessions = await decided(store)
    before = await sessions_of(sessions)
    await sessions.fork("oslo", to="copy")
    await sessions.fork("oslo", to="oslo")
    assert await sessions_of(sessions) == before


async def test_a_runner_lists_them_too(store: Store):
    await decided(store)
    assert [entry.answer for entry in await Runner(trip, store=store).decisions(how="expired")] == ["none"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"after": "17"}, "after='17': give the cursor"),
        ({"after": 17}, "after=17: give the `next`"),
        ({"limit": -1}, "limit=-1: give 0 or more"),
        ({"by": 7}, "by"),
        ({"agent": "\ud800"}, "agent"),
        ({"how": "abandoned"}, "how='abandoned': use one of answered, expired"),
        ({"since": 17.0}, "since=17.0: give a datetime with a time zone"),
        ({"until": datetime(2026, 1, 1)}, "until=.*: give a datetime with a time zone"),  # noqa: DTZ001
    ],
)
async def test_a_wrong_filter_is_refused(wrong: dict[str, Any], said: str):
    with pytest.raises(UsageError, match=said):
        await Sessions(MemoryStore()).decisions(**wrong)


async def test_any_moment_will_do():
    for moment in (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)):
        assert await Sessions(MemoryStore()).decisions(since=moment, until=moment) == []


async def test_secrets_are_hidden(store: Store):
    @workflow
    async def ask(_: str) -> str:
        secret = Secret("correct-horse-battery")
        return interrupt(f"Is it {secret.reveal()}?", schema=str)

    sessions = Sessions(store)
    (asked,) = (await Runner(ask, store=store).run("", session_id="s")).interrupts
    await sessions.answer("s", {asked: "yes"})
    (entry,) = await sessions.decisions()
    assert "battery" not in repr(entry)
    assert [entry] == await sessions.audit("s")


async def test_what_cannot_be_decrypted_is_left_out_unless_that_is_all():
    inner = MemoryStore()
    await decided(EncryptedStore(inner, {"k": EncryptedStore.generate_key()}))
    for blind in (inner, EncryptedStore(inner, {"other": EncryptedStore.generate_key()})):
        with pytest.raises(MissingKey):
            await Sessions(blind).decisions()
    (asked,) = (await Runner(trip, store=inner).run("Bonn", session_id="plain")).interrupts
    await Sessions(inner).answer("plain", {asked: "Ritz"})
    assert await sessions_of(Sessions(inner)) == ["plain"]
