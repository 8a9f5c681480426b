"""A turn belongs to the user who began it, whoever goes on with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import pytest

from adjourn import (
    Approve,
    ChatModelAgent,
    CheckpointNotFound,
    Runner,
    Sessions,
    ToolCall,
    UnfinishedRun,
    current,
    interrupt,
    tool,
    workflow,
)
from adjourn._calls.approval import Approvals, RememberedApproval
from adjourn._engine.record import decode, encode
from adjourn.errors import CheckpointCorrupt
from adjourn.stores import Loaded, MemoryStore, SessionRef, Store
from adjourn.stores.kit import Load, StoreQuery
from adjourn.testing import ScriptedModel
from tests.runner.programs import line

T = TypeVar("T")

ran_as: list[tuple[str | None, Any]] = []


@pytest.fixture(autouse=True)
def forget() -> None:
    ran_as.clear()


async def asks(state: dict[str, Any]) -> dict[str, Any]:
    answer = interrupt("go on?", key="go")
    ran_as.append((current().user_id, current().deps))
    return {"answer": answer}


async def breaks(state: dict[str, Any]) -> None:
    ran_as.append((current().user_id, current().deps))
    if current().deps != "mended":
        raise ValueError("not yet")


def asker(store: Store) -> Any:
    return line(("asks", asks), name="asker", store=store)


def breaker(store: Store) -> Any:
    return line(("breaks", breaks), name="breaker", store=store)


async def broken(store: Store, user_id: str | None) -> Any:
    graph = breaker(store)
    with pytest.raises(ValueError, match="not yet"):
        await graph.run({}, session_id="s", user_id=user_id)
    return graph


@pytest.mark.parametrize("fresh", [True, False], ids=["another process", "this process"])
async def test_a_resume_goes_on_as_the_user_who_began(store: Store, fresh: bool):  # rule C12
    graph = asker(store)
    await graph.run({}, session_id="s", user_id="ann")
    await (asker(store) if fresh else graph).resume("s", {"go": 1})
    assert ran_as == [("ann", None)]


@pytest.mark.parametrize("fresh", [True, False], ids=["another process", "this process"])
async def test_a_recover_goes_on_as_the_user_who_began(store: Store, fresh: bool):  # rule C12
    graph = await broken(store, "ann")
    await (breaker(store) if fresh else graph).recover("s", deps="mended")
    assert ran_as == [("ann", None), ("ann", "mended")]


async def test_recorded_answers_are_taken_up_as_the_user_who_began(store: Store):  # rule C12
    await asker(store).run({}, session_id="s", user_id="ann")
    await Sessions(store).answer("s", {"go": 1}, by="bob")
    await asker(store).recover("s")
    assert ran_as == [("ann", None)]


@pytest.mark.parametrize("fresh", [True, False], ids=["another process", "this process"])
async def test_a_turn_without_a_user_is_nobodys_over_its_resume(store: Store, fresh: bool):  # rule C12
    graph = asker(store)
    await graph.run({}, session_id="s", user_id="ann")
    await graph.resume("s", {"go": 1})
    await graph.run({}, session_id="s")
    await (asker(store) if fresh else graph).resume("s", {"go": 2}, user_id="ann")
    await graph.run({}, session_id="s", user_id="ann")
    await (asker(store) if fresh else graph).resume("s", {"go": 3})
    assert [user for user, _ in ran_as] == ["ann", None, "ann"]
    assert (await graph.status("s")).user_id == "ann", "whoever takes a turn, the session is hers"


@pytest.mark.parametrize("fresh", [True, False], ids=["another process", "this process"])
async def test_another_user_cannot_finish_a_turn(store: Store, fresh: bool):  # rule C12
    graph = await broken(store, "ann")
    caller = breaker(store) if fresh else graph
    with pytest.raises(CheckpointNotFound):
        await caller.run({}, session_id="s", user_id="bob", deps="mended", on_pending="finish")
    assert ran_as == [("ann", None)], "nothing ran"
    assert (await graph.status("s")).status == "failed"
    await caller.run({}, session_id="s", user_id="ann", deps="mended", on_pending="finish")
    assert ran_as[1:] == [("ann", "mended")] * 2


async def test_finishing_a_turn_of_somebody_goes_on_as_them_and_then_begins_one_of_nobody(store: Store):  # rule C12
    graph = await broken(store, "ann")
    await graph.run({}, session_id="s", deps="mended", on_pending="finish")
    assert ran_as[1:] == [("ann", "mended"), (None, "mended")]


@pytest.mark.parametrize("owner", [Sessions, asker], ids=["store alone", "runner"])
async def test_a_fork_and_its_turn_belong_to_the_same_users(store: Store, owner: Callable[[Any], Any]):  # rule C12
    graph = asker(store)
    await graph.run({}, session_id="s", user_id="ann")
    fork = await owner(store).fork("s")
    assert (await graph.status(fork)).user_id == "ann"
    with pytest.raises(CheckpointNotFound):
        await graph.resume(fork, {"go": 1}, user_id="bob")
    await graph.resume(fork, {"go": 1})
    await graph.resume("s", {"go": 1})
    await graph.run({}, session_id="s")
    theirs = await owner(store).fork("s")
    assert (await graph.status(theirs)).user_id == "ann"
    await graph.resume(theirs, {"go": 2}, user_id="ann")
    assert [user for user, _ in ran_as] == ["ann", "ann", None]


async def test_going_back_and_editing_keep_the_user_of_the_turn(store: Store):  # rules C4, C12
    graph = asker(store)
    await graph.run({}, session_id="s", user_id="ann")
    point = (await graph.status("s")).checkpoint_id
    await graph.resume("s", {"go": 1})
    await graph.run({}, session_id="s")
    await graph.resume("s", {"go": 2})
    await graph.run(None, session_id="s", checkpoint_id=point)
    await asker(store).resume("s", {"go": 3})
    assert [user for user, _ in ran_as] == ["ann", None, "ann"], "that was a turn of ann"
    await graph.run({}, session_id="s")
    edited = await graph.edit("s", {"done": ["by hand"]})
    await asker(store).run(None, session_id="s", checkpoint_id=edited.id, user_id="ann")
    await asker(store).resume("s", {"go": 4}, user_id="ann")
    assert ran_as[-1] == (None, None), "and this one was nobody's"


async def test_the_unfinished_turn_of_nobody_is_not_taken_over_by_a_new_one(store: Store):  # rule C12
    graph = await broken(store, "ann")
    with pytest.raises(UnfinishedRun):
        await graph.run({}, session_id="s", user_id="ann")
    await breaker(store).recover("s", deps="mended")
    assert ran_as[1:] == [("ann", "mended")]


# What was approved


@tool(approval=True)
def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


def teller(store: Store) -> Runner:
    script: list[Any] = [ToolCall(id="c", name="pay", arguments={"cents": 1}), "paid"] * 5
    return Runner(ChatModelAgent("teller", model=ScriptedModel(script), tools=[pay]), store=store)


@pytest.mark.parametrize("reach", ["session", "always"])
async def test_what_was_approved_does_not_count_in_a_turn_of_nobody(store: Store, reach: Any):  # rules C12, T5
    runner = teller(store)
    paused = await runner.run("pay", session_id="s", user_id="ann")
    await runner.resume("s", {paused.interrupts[0].id: Approve(remember=reach)})
    assert (await runner.run("pay", session_id="s", user_id="ann")).status == "done", "she is not asked again"
    asked = await runner.run("pay", session_id="s")
    assert asked.status == "interrupted"
    assert (await runner.resume("s", {asked.interrupts[0].id: True}, user_id="ann")).output == "paid"


async def test_what_was_approved_for_always_counts_in_a_resumed_turn(store: Store):  # rules C12, T5
    await Approvals(store).add("ann", RememberedApproval.of("teller", pay))

    @workflow
    async def first_asks(_: str) -> Any:
        interrupt("go on?", key="go")
        agent = ChatModelAgent(
            "teller",
            model=ScriptedModel([ToolCall(id="c", name="pay", arguments={"cents": 1}), "paid"]),
            tools=[pay],
        )
        return await current().run(agent, "pay")

    runner = Runner(first_asks, store=store)
    await runner.run("x", session_id="s", user_id="ann")
    assert (await Runner(first_asks, store=store).resume("s", {"go": 1})).status == "done"


# What is stored


class Altered(MemoryStore):
    """A store whose records say something else than their rows."""

    change: Callable[[tuple[bytes, ...]], tuple[bytes, ...]] | None = None

    async def read(self, query: StoreQuery[T]) -> T:
        loaded = await super().read(query)
        if self.change is None or not isinstance(loaded, Loaded):
            return loaded
        return msgspec.structs.replace(loaded, rows=self.change(loaded.rows))


def with_field(rows: tuple[bytes, ...], field: str, value: str) -> tuple[bytes, ...]:
    record = decode(rows[0])
    setattr(record, field, value)
    return encode(record), *rows[1:]


CHANGES = {"session": "other", "app": "other", "user": "bob"}


@pytest.mark.parametrize("field", CHANGES)
async def test_a_record_that_is_not_of_its_row_is_damage(field: str):  # rules C10, C12
    store = Altered()
    await asker(store).run({}, session_id="s", user_id="ann")
    store.change = lambda rows: with_field(rows, field, CHANGES[field])
    for call in (asker(store).resume("s", {"go": 1}), Sessions(store).state("s"), Sessions(store).fork("s")):
        with pytest.raises(CheckpointCorrupt, match="'s'"):
            await call
    assert ran_as == []
    store.change = None
    await asker(store).resume("s", {"go": 1})
    assert ran_as == [("ann", None)]


async def test_the_records_of_another_session_are_damage():  # rules C10, C12
    store = Altered()
    for name, answer in (("mine", 1), ("theirs", 2)):
        await asker(store).run({"answer": answer}, session_id=name, user_id="ann")
    theirs = await store.read(Load(SessionRef("theirs")))
    assert theirs is not None
    store.change = lambda _: theirs.rows
    with pytest.raises(CheckpointCorrupt, match="'mine'"):
        await Sessions(store).state("mine")
