"""An inbox: the open questions of many sessions, selected, counted and read page by page."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any, TypedDict

import pytest

from adjourn import (
    Address,
    ChatModelAgent,
    Runner,
    Sessions,
    ToolCall,
    UsageError,
    current,
    interrupt,
    raise_interrupt,
    tool,
    workflow,
)
from adjourn.events import Interrupted, from_json, to_json
from adjourn.graph import START, StateGraph
from adjourn.stores import Store
from adjourn.testing import FakeClock, ScriptedModel


@tool(approval=True, tags=["money", "urgent"])
def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


@workflow
async def trip(city: str) -> str:
    return interrupt(f"A hotel in {city}?", schema=str, tags=["travel"], expires_in=timedelta(hours=2))


def teller(store: Store, name: str = "teller", **options: Any) -> Runner:
    script = [ToolCall(id="c1", name="pay", arguments={"cents": 5}), "Done."]
    return Runner(ChatModelAgent(name, model=ScriptedModel(script), tools=[pay]), store=store, **options)


async def office(store: Store, clock: FakeClock) -> Sessions:
    """Three sessions that wait, an hour after one another."""
    await Runner(trip, store=store, clock=clock).run("Rome", session_id="rome", user_id="ann")
    clock.advance(3600)
    await teller(store, clock=clock).run("Pay.", session_id="paying", user_id="bob")
    clock.advance(3600)
    await teller(store, "boss", clock=clock).run("Pay.", session_id="bossy", user_id="bob")
    clock.advance(60)
    return Sessions(store, clock=clock)


async def sessions_of(sessions: Sessions, **wanted: Any) -> list[str]:
    found = await sessions.pending(**wanted)
    assert await sessions.count_pending(**wanted) == len(found)
    return [asked.session_id for asked in found]


@pytest.fixture
def clock() -> FakeClock:
    """That of the runners; it begins at the store's time."""
    return FakeClock(time.time())


async def test_questions_are_selected_by_what_they_are_about(store: Store, clock: FakeClock):  # rule I15
    sessions = await office(store, clock)
    assert await sessions_of(sessions, reason="need_approval") == ["paying", "bossy"]
    assert await sessions_of(sessions, agent="boss") == ["bossy"]
    assert await sessions_of(sessions, tag="money") == ["paying", "bossy"]
    assert await sessions_of(sessions, tag="travel") == ["rome"]
    assert await sessions_of(sessions, under="agent:teller") == ["paying"]
    assert await sessions_of(sessions, user_id="ann") == ["rome"]
    assert await sessions_of(sessions, user_id="bob", agent="teller", tag="urgent") == ["paying"]
    for nothing in ({"agent": "tell"}, {"under": "agent:tell"}, {"tag": "mon"}, {"reason": "%"}, {"tag": ""}):
        assert await sessions_of(sessions, **nothing) == []


async def test_questions_are_selected_by_age_and_expiry(store: Store, clock: FakeClock):  # rule I15
    sessions = await office(store, clock)  # by the clock of its runner the first has expired since, by the store's not
    assert await sessions_of(sessions, older_than=timedelta(hours=1)) == ["rome", "paying"]
    assert await sessions_of(sessions, older_than=2 * 3600) == ["rome"]
    assert await sessions_of(sessions, older_than=timedelta(days=1)) == []
    assert await sessions_of(sessions, expires_within=timedelta(minutes=5)) == ["rome"]
    assert await sessions_of(sessions, expires_within=0) == ["rome"]


async def test_the_list_may_begin_with_what_expires_first(store: Store, clock: FakeClock):  # rule I15
    sessions = await office(store, clock)
    await Runner(trip, store=store, clock=clock).run("Oslo", session_id="oslo")
    by_expiry = ["rome", "oslo", "paying", "bossy"]
    assert [asked.session_id for asked in await sessions.pending(order="expiry")] == by_expiry
    assert [asked.session_id for asked in await sessions.pending("oslo", order="expiry")] == ["oslo"]
    paged: list[str | None] = []
    after, programs = None, ["agent:boss", "agent:teller", "runnable:trip"]
    while len(paged) < 4:
        page = await sessions.pending(order="expiry", limit=1, after=after, programs=programs)
        paged += [asked.session_id for asked in page]
        after = page.next
    assert (paged, after) == (by_expiry, None)


async def test_one_session_is_selected_from_in_the_same_way(store: Store, clock: FakeClock):  # rule I15
    sessions = await office(store, clock)
    assert await sessions_of(sessions, session_id="paying", tag="money") == ["paying"]
    assert await sessions_of(sessions, session_id="paying", tag="travel") == []
    assert await sessions_of(Sessions(store, app_name=None), session_id="paying", agent="teller") == ["paying"]


async def test_pages_go_on_where_the_last_one_ended(store: Store, clock: FakeClock):  # rule I15
    sessions = await office(store, clock)
    first = await sessions.pending(limit=2)
    assert [asked.session_id for asked in first] == ["rome", "paying"]
    assert first.next is not None
    await sessions.answer("paying", {first[1]: True})  # a page goes on after a question that is answered by now
    last = await sessions.pending(limit=2, after=first.next)
    assert ([asked.session_id for asked in last], last.next) == (["bossy"], None)
    assert (await sessions.pending(limit=0)).next is None
    assert (await sessions.pending()).next is None
    assert sessions.pending_sync(limit=1, reason="need_approval")[0].session_id == "bossy"
    assert sessions.count_pending_sync(reason="need_approval") == 1


async def test_sessions_come_in_pages_too(store: Store, clock: FakeClock):  # rule I15
    sessions = await office(store, clock)
    names = [status.session_id for status in await sessions.sessions()]
    first = await sessions.sessions(limit=2)
    assert first.next is not None
    last = await sessions.sessions(limit=2, after=first.next)
    assert ([status.session_id for status in (*first, *last)], last.next) == (names, None)
    assert [len(status.interrupts) for status in first] == [1, 1]
    assert (await sessions.sessions(status="failed", limit=1)).next is None
    with pytest.raises(UsageError, match="after='nowhere'"):
        await sessions.sessions(after="nowhere")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"after": "17"}, "after='17': give the cursor"),
        ({"after": 17}, "after=17: give the `next`"),
        ({"limit": -1}, "limit=-1: give 0 or more"),
        ({"limit": "ten"}, "limit=ten: give 0 or more"),
        ({"order": "priority"}, "order='priority': give one of 'age', 'expiry'"),
        ({"older_than": -1}, "older_than=-1: give a timedelta"),
        ({"older_than": "1h"}, "older_than='1h': give a timedelta"),
        ({"expires_within": float("nan")}, "expires_within=nan: give a timedelta"),
        ({"tag": 7}, "tag"),
        ({"agent": "\ud800"}, "agent"),
    ],
)
async def test_a_wrong_filter_is_refused(store: Store, wrong: dict[str, Any], said: str):  # rule I15
    with pytest.raises(UsageError, match=said):
        await Sessions(store).pending(**wrong)


async def test_tags_are_shown_and_stay_over_forks_and_events(store: Store, clock: FakeClock):  # rules I13, I15
    runner = teller(store, clock=clock)
    result = await runner.run("Pay.", session_id="s")
    (asked,) = result.interrupts
    assert asked.tags == ("money", "urgent")
    event = Interrupted(interrupts=(asked,), checkpoint_id="c")
    assert from_json(to_json(event)) == event
    await runner.fork("s", to="t")
    assert [each.tags for each in await Sessions(store).pending(tag="urgent")] == [asked.tags, asked.tags]
    await runner.fork("s", to="s")  # a new branch: its question takes the place of the old one
    assert sorted(await sessions_of(Sessions(store), tag="urgent")) == ["s", "t"]


async def test_tags_do_not_tell_questions_apart(store: Store):  # rules I13, I14
    tags = ["a"]

    @workflow
    async def ask(_: str) -> str:
        return interrupt("Go on?", key="go", schema=str, tags=tags)

    runner = Runner(ask, store=store)
    (asked,) = (await runner.run("", session_id="s")).interrupts
    tags[:] = ["b"]
    assert (await runner.resume("s", {asked: "yes"})).value == "yes"


async def test_graphs_and_raised_questions_have_tags_too(store: Store):  # rule I15
    class State(TypedDict, total=False):
        answer: str

    def node(_: State) -> State:
        if current().resume_data is None:
            raise_interrupt("Go on?", tags=("by hand",))
        return {"answer": "yes"}

    graph = StateGraph(State, name="desk").add_node("node", node).add_edge(START, "node").compile(store=store)
    await graph.run({}, session_id="s")
    assert [asked.tags for asked in await graph.pending(tag="by hand", under="runnable:desk")] == [("by hand",)]
    assert await graph.count_pending(under=str(Address.parse("runnable:desk").child("node", "node"))) == 1


@pytest.mark.parametrize("tags", ["money", 7, [""], ["a", None], ["\ud800"], {"a": 1}.items(), [*map(str, range(101))]])
async def test_wrong_tags_are_refused_where_they_are_given(store: Store, tags: Any):  # rule I15
    with pytest.raises(UsageError, match="tag"):
        tool(lambda: None, name="it", description="", tags=tags)

    @workflow
    async def ask(_: str) -> str:
        with pytest.raises(UsageError, match="tag"):
            interrupt("Go on?", tags=tags)
        return "refused"

    assert (await Runner(ask, store=store).run("")).value == "refused"


async def test_questions_are_found_by_the_user_whose_turn_asks(store: Store, clock: FakeClock):  # rule I15
    sessions = await office(store, clock)
    assert [each.session_id for each in await sessions.pending(requested_by="bob")] == ["paying", "bossy"]
    assert await sessions.count_pending(requested_by="ann") == 1
    assert await sessions.count_pending(requested_by="ann", tag="money") == 0
    assert {each.requested_by for each in await sessions.pending()} >= {"ann", "bob"}


async def test_a_filter_that_there_is_not_is_named(store: Store):
    with pytest.raises(UsageError, match="agent, under, reason, tag, requested_by, older_than, expires_within"):
        await Sessions(store).pending(agnt="x")  # pyright: ignore[reportCallIssue]
