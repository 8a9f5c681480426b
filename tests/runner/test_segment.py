"""Segments: from a start or a resume to the next pause or end. Between them nothing is held, and anybody can go on."""

from __future__ import annotations

import asyncio
import signal
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest

from adjourn import AnswerWith, Runner, interrupt, workflow
from adjourn.stores import SessionRef, SQLiteStore, Store
from adjourn.stores.kit import Claim, GetHead, ListDue, StoreRequest
from adjourn.testing import FakeClock, FaultStore, count_ids

from .programs import Gate, asking, begin, held, line, side_by_side, step, steps, turns, until
from .test_lease import child_of

T = TypeVar("T")


async def asks(state: dict[str, Any]) -> dict[str, Any]:
    return {"done": [interrupt("Well?", key="well")]}


async def nothing_pending(runner: Runner) -> bool:
    return not await runner.pending("s")


# Between segments


async def test_at_a_pause_nothing_is_held(store: Store):
    graph = asking(store=store)
    await asyncio.gather(*[begin(graph.run({}, session_id=f"s{number}")) for number in range(20)])
    await turns()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert {status.owner for status in await graph.sessions()} == {None}
    assert await store.read(ListDue()) == []


async def test_threads_do_not_grow_with_what_waits(store: Store):
    graph = line(("ask", asks_in_thread), thread=True, store=store)
    await asyncio.gather(*[begin(graph.run({}, session_id=f"a{number}")) for number in range(20)])
    before = threading.active_count()
    for number in range(40):
        await graph.run({}, session_id=f"b{number}")
    assert threading.active_count() <= before


def asks_in_thread(state: dict[str, Any]) -> dict[str, Any]:
    return {"done": [interrupt("Well?", key="well")]}


async def test_every_segment_may_have_another_runner_and_another_version_of_the_code(store: Store):  # rule R9
    await asking(store=store).run({}, session_id="s")
    newer = line(
        ("before", step("before")), ("ask", _ask_differently), ("after", step("newer")), name="asking", store=store
    )
    assert (await newer.resume("s", {"go": "yes"})).state["done"] == ["before", "asked yes", "newer"]


async def _ask_differently(state: dict[str, Any]) -> dict[str, Any]:
    return {"done": [f"asked {interrupt('Go on?', key='go', prompt='Shall we go on?')}"]}


# Whatever is due, recover takes it up


async def test_a_session_whose_owner_died_is_due_and_can_be_advanced(timed: Store, clock: FakeClock):
    gate = Gate()
    graph = line(("a", held("a", gate)), store=timed, clock=clock)
    zombie = begin(graph.run({}, session_id="s"))
    await gate.reached.wait()
    clock.advance(31)
    assert [(due.session, due.why) for due in await timed.read(ListDue())] == [("s", "lease")]
    assert (await steps("a", store=timed, clock=clock).recover("s")).status == "done"
    assert await timed.read(ListDue()) == []
    gate.opened.set()
    await asyncio.gather(zombie, return_exceptions=True)


async def test_a_session_whose_question_expired_is_due_and_can_be_advanced(timed: Store, clock: FakeClock):  # rule R11
    @workflow
    async def waits(_: Any) -> Any:
        return interrupt("Well?", expires_in=timedelta(minutes=1), on_expire=AnswerWith("nobody"))

    runner = Runner(waits, store=timed, clock=clock)
    await runner.run(None, session_id="s")
    assert await timed.read(ListDue()) == []
    clock.advance(61)
    assert [(due.session, due.why) for due in await timed.read(ListDue())] == [("s", "question")]
    assert (await Runner(waits, store=timed, clock=clock).recover("s")).value == "nobody"
    assert await timed.read(ListDue()) == []


async def test_a_session_whose_answer_nobody_took_up_is_due_and_can_be_advanced(timed: Store, clock: FakeClock):
    gate = Gate()
    graph = side_by_side(("asks", asks), ("slow", held("slow", gate)), store=timed, clock=clock)
    zombie = begin(graph.run({}, session_id="s"))
    await gate.reached.wait()
    other = side_by_side(("asks", asks), ("slow", step("slow")), store=timed, clock=clock)
    await until(lambda: other.pending("s"))
    answering = begin(other.resume("s", {"well": "yes"}))
    await until(lambda: nothing_pending(other))
    clock.advance(31)
    assert [due.session for due in await timed.read(ListDue())] == ["s"]
    assert (await other.recover("s")).state["done"] == ["yes", "slow", "end"]
    gate.opened.set()
    await asyncio.gather(zombie, answering, return_exceptions=True)


async def test_an_answer_that_nobody_took_up_outlives_an_edit(timed: Store, clock: FakeClock):  # rule R4
    gate = Gate()
    graph = side_by_side(("asks", asks), ("slow", held("slow", gate)), store=timed, clock=clock)
    zombie = begin(graph.run({}, session_id="s"))
    await gate.reached.wait()
    other = side_by_side(("asks", asks), ("slow", step("slow")), store=timed, clock=clock)
    await until(lambda: other.pending("s"))
    answering = begin(other.resume("s", {"well": "yes"}))
    await until(lambda: nothing_pending(other))
    clock.advance(31)
    await other.edit("s", {"answer": "edited"})
    assert await other.pending("s") == []
    result = await other.recover("s")
    assert (result.state["done"], result.state["answer"]) == (["yes", "slow", "end"], "edited")
    gate.opened.set()
    await asyncio.gather(zombie, answering, return_exceptions=True)


# Starts that are cut short


class LateStore(FaultStore):
    """A store whose claims are made at once and heard of late."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner, fail_at=0, times=0)
        self.claimed = asyncio.Event()
        self.heard = asyncio.Event()

    async def write(self, request: StoreRequest[T]) -> T:
        done = await super().write(request)
        if isinstance(request.plain, Claim):
            self.claimed.set()
            await self.heard.wait()
        return done


async def test_a_caller_who_leaves_while_the_session_is_claimed_leaves_it_free(store: Store):
    late = LateStore(store)
    ran: list[str] = []

    async def notes(state: dict[str, Any]) -> dict[str, Any]:
        ran.append("a")
        return {"done": ["a"]}

    waiting = begin(line(("a", notes), store=late).run({}, session_id="s"))
    await late.claimed.wait()
    waiting.cancel()
    await turns()
    late.heard.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ran == []
    status = await steps("a", store=store).status("s")
    assert (status.status, status.owner) == ("cancelled", None)
    assert (await steps("a", store=store).recover("s")).state["done"] == ["a"]


def test_a_program_that_is_interrupted_from_the_keyboard_leaves_a_free_session(tmp_path: Path):
    graph = steps("a", "b", "c", store=SQLiteStore(tmp_path / "s.db"))
    with child_of(tmp_path / "s.db", "wait") as child:
        child.send_signal(signal.SIGINT)
        child.wait()
    head = asyncio.run(graph.store.read(GetHead(SessionRef("s"))))
    assert head is not None
    assert (head.status, head.owner) == ("cancelled", None)
    assert graph.recover_sync("s").state["done"] == ["a", "b", "c"]
    asyncio.run(graph.store.close())


# Ids


async def test_ids_come_from_the_source_that_was_given(store: Store):
    runner = Runner(steps("a"), store=store, new_id=count_ids("x"))
    first, second = await runner.run({}), await runner.run({})
    assert first.session_id.startswith("x")
    assert first.session_id != second.session_id
    assert (await runner.fork(first.session_id)).startswith("x")
