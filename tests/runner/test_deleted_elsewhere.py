"""A session that somebody else deletes: what this runner keeps ready of it is not used, and it starts anew."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from adjourn import ChatModelAgent, CheckpointNotFound, Runner, SessionBusy, Sessions, current, workflow
from adjourn.errors import Conflict
from adjourn.stores import SQLiteStore, Store
from adjourn.testing import ScriptedModel

from .programs import Gate, asking, begin, held, line, steps


@pytest.fixture
def elsewhere(store: Store) -> Sessions:
    """The same sessions, as another process opens them."""
    return Sessions(SQLiteStore(store.path) if isinstance(store, SQLiteStore) else store)


async def close(elsewhere: Sessions, store: Store) -> None:
    if elsewhere.store is not store:
        await elsewhere.close()


async def test_a_turn_begins_a_new_session(store: Store, elsewhere: Sessions):  # rule C7
    graph = steps("a", store=store)
    for _ in range(3):
        first = await graph.run({}, session_id="s")
        assert first.state["done"] == ["a"]
        await elsewhere.delete("s")
    again = await graph.run({}, session_id="s")
    assert again.state["done"] == ["a"]
    assert [point.source for point in await graph.history("s")] == ["end", "input"]
    events = [event.seq async for event in graph.attach("s")]
    assert events == list(range(1, len(events) + 1))
    await close(elsewhere, store)


async def test_values_and_the_user_of_the_deleted_one_are_gone(store: Store, elsewhere: Sessions):  # rules C7, C12
    @workflow
    async def counts(_: str) -> Any:
        current().values["count"] = current().values.get("count", 0) + 1
        return dict(current().values)

    runner = Runner(counts, store=store)
    await runner.run("x", session_id="s", user_id="ann", values={"secret": 1})
    await elsewhere.delete("s")
    assert (await runner.run("x", session_id="s", user_id="bob")).value == {"count": 1}
    assert (await runner.status("s")).user_id == "bob"
    await close(elsewhere, store)


async def test_a_waiting_session_is_gone_and_starts_anew(store: Store, elsewhere: Sessions):  # rules C7, R12
    graph = asking(store=store)
    (asked,) = (await graph.run({}, session_id="s")).interrupts
    await elsewhere.delete("s")
    for name in (asked.id, asked.token):
        with pytest.raises(CheckpointNotFound):
            await graph.resume("s", {name: "late"})
    with pytest.raises(CheckpointNotFound):
        await graph.recover("s")
    result = await graph.run({}, session_id="s")
    assert (result.status, result.state["done"]) == ("interrupted", ["before"])
    assert (await graph.resume("s", {"go": "yes"})).state["answer"] == "yes"
    await close(elsewhere, store)


async def test_one_that_was_begun_again_elsewhere_is_the_one_that_counts(store: Store, elsewhere: Sessions):  # rule C1
    graph = steps("a", store=store)
    await graph.run({}, session_id="s")
    await elsewhere.delete("s")
    await steps("b", store=elsewhere.store).run({"done": ["theirs"]}, session_id="s")
    assert (await graph.run({}, session_id="s")).state["done"] == ["theirs", "b", "a"]
    await close(elsewhere, store)


async def test_a_run_whose_session_is_deleted_and_begun_again_does_not_write_into_the_new_one(
    store: Store, elsewhere: Sessions
):  # rules C1, C6
    gate = Gate()
    graph = line(("a", held("a", gate)), store=store, lease_ttl=0.001)
    running = begin(graph.run({}, session_id="s"))
    await gate.reached.wait()
    deleted = False
    while not deleted:  # its lease of a millisecond is over sooner or later
        with contextlib.suppress(SessionBusy):
            await elsewhere.delete("s")
            deleted = True
    other = await steps("a", store=elsewhere.store).run({"done": ["new"]}, session_id="s")
    gate.opened.set()
    with pytest.raises(Conflict):
        await running
    assert (await graph.state("s"))["done"] == other.state["done"] == ["new", "a"]
    await close(elsewhere, store)


@pytest.mark.parametrize("durability", ["step", "async", "pause"])
async def test_an_agent_does_not_remember_a_conversation_that_was_deleted(
    store: Store, elsewhere: Sessions, durability: Any
):  # rule C7
    model = ScriptedModel(["one", "two", "three"])
    runner = Runner(ChatModelAgent("Clerk", model=model), store=store, durability=durability)
    await runner.run("secret", session_id="s")
    await runner.run("more", session_id="s")
    await elsewhere.delete("s")
    result = await runner.run("hello", session_id="s")
    assert [message.text for message in result.messages] == ["hello", "three"]
    assert [message.text for message in await runner.messages("s")] == ["hello", "three"]
    assert "secret" not in str(model.requests[-1].messages)
    await close(elsewhere, store)
