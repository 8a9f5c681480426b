"""Looking at sessions: pending, status, messages, sessions, delete and prune."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from adjourn import CheckpointNotFound, Message, Runner, SessionBusy, UsageError, interrupt, workflow
from adjourn.graph import START, MessagesState, StateGraph
from adjourn.stores import Store
from adjourn.testing import FakeClock

from .programs import Gate, asking, begin, events_until_failure, held, ids, line, side_by_side, step, steps, until

ASKED = "runnable:asking;node:ask"

ODD_IDS = [
    "with space",
    "ünïcödé ☃",
    "a;b:c#d%e",
    "'; DROP TABLE sessions; --",
    'quo"te',
    "{brace}",
    "new\nline",
    "nul\x00inside",
    "../../etc/passwd",
    "x" * 5000,
    "*",
    "%",
    "_",
    "0",
]


async def fails(state: Mapping[str, Any]) -> None:
    raise ValueError("no luck")


# Status


async def test_status_tells_where_a_session_stands(timed: Store, clock: FakeClock):
    gate = Gate()
    graph = line(("a", held("a", gate)), ("ask", interrupting), store=timed, clock=clock)
    waiting = begin(graph.run({}, session_id="s", user_id="ann"))
    await gate.reached.wait()
    running = await graph.status("s")
    assert (running.status, running.session_id, running.user_id) == ("running", "s", "ann")
    assert running.owner
    assert running.interrupts == ()
    clock.advance(5)
    gate.opened.set()
    paused = await waiting
    status = await graph.status("s")
    assert (status.status, status.owner, status.interrupts) == ("waiting", None, paused.interrupts)
    assert status.since == datetime.fromtimestamp(clock(), UTC)
    assert status.checkpoint_id == paused.checkpoint_id


async def interrupting(state: Mapping[str, Any]) -> dict[str, Any]:
    return {"answer": interrupt("Go on?", key="go")}


async def test_status_of_ends(store: Store):
    await steps("a", store=store).run({}, session_id="done")
    await events_until_failure(line(("a", fails), store=store).run({}, session_id="failed"))
    await asking(store=store).run({}, session_id="waiting")
    graph = asking(store=store)
    for status in ("done", "failed", "waiting"):
        assert (await graph.status(status)).status == status
    await graph.cancel("waiting")
    assert (await graph.status("waiting")).status == "cancelled"
    with pytest.raises(CheckpointNotFound):
        await graph.status("nobody")


async def test_a_run_whose_owner_is_gone_counts_as_failed(timed: Store, clock: FakeClock):
    gate = Gate()
    driver = line(("a", held("a", gate)), store=timed)
    run = driver.run({}, session_id="s")
    waiting = begin(run)
    await gate.reached.wait()
    clock.advance(31)
    graph = steps("a", store=timed)
    assert (await graph.status("s")).status == "failed"
    assert [found.session_id for found in await graph.sessions(status="failed")] == ["s"]
    assert await graph.sessions(status="running") == []
    assert (await graph.recover("s")).status == "done"
    gate.opened.set()
    await asyncio.gather(waiting, return_exceptions=True)


# Pending


async def test_pending_lists_open_questions_of_one_session_or_of_all(store: Store):  # rule I12
    graph = asking(store=store)
    assert await graph.pending() == []
    for name, user in (("one", "ann"), ("two", "bob"), ("three", "ann")):
        await graph.run({}, session_id=name, user_id=user)
    assert [asked.session_id for asked in await graph.pending()] == ["one", "two", "three"]
    assert [asked.session_id for asked in await graph.pending(user_id="ann")] == ["one", "three"]
    assert [asked.session_id for asked in await graph.pending(limit=2)] == ["one", "two"]
    assert ids(await graph.pending("two")) == [ASKED]
    assert await graph.pending("nobody") == []
    await graph.resume("one", {"go": 1})
    assert [asked.session_id for asked in await graph.pending()] == ["two", "three"]


async def test_what_is_pending_is_what_the_run_said(store: Store):
    graph = asking(store=store)
    paused = await graph.run({}, session_id="s")
    assert await asking(store=store).pending("s") == list(paused.interrupts)
    (asked,) = paused.interrupts
    assert (asked.id, asked.address, asked.key, asked.info, asked.prompt) == (ASKED, ASKED, "go", "Go on?", "Go on?")
    assert (asked.checkpoint_id, asked.session_id) == (paused.checkpoint_id, "s")


async def test_apps_do_not_see_each_other(store: Store):  # rule C12
    one, two = asking(store=store, app_name="one"), asking(store=store, app_name="two")
    await one.run({}, session_id="a")
    await two.run({}, session_id="b")
    assert [asked.session_id for asked in await one.pending()] == ["a"]
    assert [found.session_id for found in await two.sessions()] == ["b"]


async def test_an_expired_question_is_not_pending(timed: Store, clock: FakeClock):
    @workflow
    async def asks(_: Any) -> Any:
        return interrupt("Well?", expires_in=timedelta(minutes=1))

    runner = Runner(asks, store=timed, clock=clock)
    await runner.run(None, session_id="s")
    assert len(await runner.pending("s")) == 1
    clock.advance(61)
    assert await runner.pending("s") == []


# Sessions


async def test_sessions_are_listed_the_latest_written_first(timed: Store, clock: FakeClock):
    graph = asking(store=timed, clock=clock)
    for name, user in (("one", "ann"), ("two", "bob"), ("three", "ann")):
        await graph.run({}, session_id=name, user_id=user)
        clock.advance(1)
    await graph.resume("one", {"go": 1})
    assert [found.session_id for found in await graph.sessions()] == ["one", "three", "two"]
    assert [found.session_id for found in await graph.sessions(limit=1)] == ["one"]
    assert [found.session_id for found in await graph.sessions(user_id="ann")] == ["one", "three"]
    assert [found.session_id for found in await graph.sessions(status="waiting")] == ["three", "two"]
    assert [found.session_id for found in await graph.sessions(status="done")] == ["one"]
    assert await graph.sessions(status="failed") == []


async def test_a_limit_counts_what_is_listed(timed: Store, clock: FakeClock):
    gate = Gate()
    driver = line(("a", held("a", gate)), store=timed)
    runs = [driver.run({}, session_id=f"dead {number}") for number in range(3)]
    tasks = [begin(run) for run in runs]
    await until(lambda: _all_live(driver, 3))
    clock.advance(31)
    await events_until_failure(line(("a", fails), store=timed).run({}, session_id="failed"))
    graph = steps("a", store=timed)
    assert len(await graph.sessions(status="failed")) == 4
    assert [found.session_id for found in await graph.sessions(status="failed", limit=1)] == ["failed"]
    assert len(await graph.sessions(status="failed", limit=2)) == 2
    gate.opened.set()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _all_live(runner: Runner, count: int) -> bool:
    return len([found for found in await runner.sessions() if found.owner]) == count


async def test_a_limit_below_zero_is_refused(store: Store):
    graph = asking(store=store)
    await graph.run({}, session_id="s")
    with pytest.raises(UsageError, match="limit"):
        await graph.pending(limit=-1)
    with pytest.raises(UsageError, match="limit"):
        await graph.sessions(limit=-1)
    with pytest.raises(UsageError, match="limit"):
        await graph.history("s", limit=-1)


async def test_a_limit_of_zero_lists_nothing(store: Store):
    graph = asking(store=store)
    await graph.run({}, session_id="s")
    assert await graph.pending(limit=0) == await graph.sessions(limit=0) == await graph.history("s", limit=0) == []


@pytest.mark.parametrize("odd", ODD_IDS, ids=lambda odd: ascii(odd)[:20])
async def test_ids_may_hold_any_characters(store: Store, odd: str):  # rule C12
    graph = asking(store=store)
    await graph.run({}, session_id="plain", user_id="plain")
    await graph.run({}, session_id=odd, user_id=odd)
    assert [asked.session_id for asked in await graph.pending(user_id=odd)] == [odd]
    assert [found.session_id for found in await graph.sessions(user_id=odd)] == [odd]
    assert (await graph.resume(odd, {"go": odd})).state["answer"] == odd
    assert (await asking(store=store).state(odd))["answer"] == odd
    assert (await graph.status("plain")).status == "waiting"
    await graph.delete(odd)
    assert (await graph.status("plain")).status == "waiting"


async def test_sessions_never_mix(store: Store):  # rule C12
    graph = side_by_side(*[(name, step(name)) for name in "ab"], store=store)
    inputs = {f"s{number}": {"done": [f"{number}"]} for number in range(30)}
    await asyncio.gather(*[begin(graph.run(given, session_id=name)) for name, given in inputs.items()])
    for number in range(30):
        assert (await graph.state(f"s{number}"))["done"] == [f"{number}", "a", "b", "end"]


# Messages


async def test_messages_are_the_conversation(store: Store):
    async def reply(state: Mapping[str, Any]) -> dict[str, Any]:
        return {"messages": [Message.user(state["user_input"]), Message.assistant("yes")]}

    graph = (
        StateGraph(MessagesState, name="talk").add_node("reply", reply).add_edge(START, "reply").compile(store=store)
    )
    await graph.run("one", session_id="s")
    await graph.run("two", session_id="s")
    assert [message.text for message in await graph.messages("s")] == ["one", "yes", "two", "yes"]
    with pytest.raises(CheckpointNotFound):
        await graph.messages("nobody")


async def test_messages_of_what_has_none_are_none(store: Store):
    await steps("a", store=store).run({}, session_id="s")
    assert await steps("a", store=store).messages("s") == ()


async def test_messages_of_a_failed_session_can_be_read(store: Store):
    async def reply(state: Mapping[str, Any]) -> dict[str, Any]:
        return {"messages": [Message.user("hello")]}

    graph = StateGraph(MessagesState, name="talk").add_node("reply", reply).add_node("fails", fails)
    compiled = graph.add_edge(START, "reply").add_edge("reply", "fails").compile(store=store)
    await events_until_failure(compiled.run("one", session_id="s"))
    assert [message.text for message in await compiled.messages("s")] == ["hello"]


# Delete and prune


async def test_a_deleted_session_is_gone(store: Store):
    graph = asking(store=store)
    await graph.run({}, session_id="s")
    await graph.delete("s")
    assert await graph.pending() == []
    for call in (graph.status("s"), graph.history("s"), graph.state("s")):
        with pytest.raises(CheckpointNotFound):
            await call
    with pytest.raises(CheckpointNotFound):
        await graph.resume("s", {"go": 1})
    await graph.delete("s")  # an unknown one is no error
    assert (await graph.run({}, session_id="s")).state["done"] == ["before"]


async def test_a_running_session_cannot_be_deleted(store: Store):
    gate = Gate()
    graph = line(("a", held("a", gate)), store=store)
    waiting = begin(graph.run({}, session_id="s"))
    await gate.reached.wait()
    with pytest.raises(SessionBusy):
        await graph.delete("s")
    gate.opened.set()
    assert (await waiting).status == "done"


async def test_what_another_runner_deleted_is_not_served_from_memory(store: Store):
    graph = asking(store=store)
    await graph.run({}, session_id="s")
    await asking(store=store).delete("s")
    with pytest.raises(CheckpointNotFound):
        await graph.resume("s", {"go": 1})
    assert (await graph.run({}, session_id="s")).state["done"] == ["before"]


async def test_a_session_deleted_and_begun_anew_elsewhere_is_not_mixed_with_the_old_one(store: Store):
    graph, other = steps("a", store=store), steps("a", store=store)
    await graph.run({"done": ["old"]}, session_id="s")
    await other.delete("s")
    await other.run({"done": ["new"]}, session_id="s")
    assert (await graph.run({}, session_id="s")).state["done"] == ["new", "a", "a"]


async def test_prune_keeps_the_last_and_what_is_pending(store: Store):  # rule C7
    graph = steps("a", "b", "c", store=store)
    for _ in range(5):
        await graph.run({}, session_id="s")
    before = await graph.history("s")
    assert await graph.prune("s", keep=3) > 0
    after = await graph.history("s")
    assert after[:3] == before[:3]
    assert len(after) < len(before)
    assert (await graph.run({}, session_id="s")).state["done"] == ["a", "b", "c"] * 6


async def test_prune_by_age(timed: Store, clock: FakeClock):  # rule C7
    graph = steps("a", store=timed, clock=clock)
    for _ in range(4):
        await graph.run({}, session_id="s")
        clock.advance(3600)
    young = [point.id for point in await graph.history("s", limit=4)]
    await graph.prune("s", older_than=timedelta(hours=2, minutes=30))
    assert [point.id for point in await graph.history("s", limit=4)] == young
    assert [point.id for point in await graph.history("s")][:4] == young


async def test_prune_leaves_a_waiting_session_answerable(store: Store):  # rule C7
    graph = asking(store=store)
    await graph.run({}, session_id="s")
    await graph.prune("s", keep=0)
    assert (await asking(store=store).resume("s", {"go": 1})).state["done"] == ["before", "ask", "after"]


async def test_prune_needs_to_know_what_to_keep(store: Store):
    graph = steps("a", store=store)
    await graph.run({}, session_id="s")
    with pytest.raises(UsageError, match="keep"):
        await graph.prune("s")
    with pytest.raises(UsageError):
        await graph.prune("s", keep=-1)
    with pytest.raises(CheckpointNotFound):
        await graph.prune("nobody", keep=1)
