"""The log `adjourn.stores`: one line per save, load, resume, takeover and expiry."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from adjourn import AlreadyResumed, AnswerWith, Runner, interrupt, workflow
from adjourn.errors import StoreUnavailable
from adjourn.graph import CompiledGraph
from adjourn.stores import SessionRef, Store
from adjourn.stores.kit import ListCheckpoints, Load
from adjourn.testing import FakeClock, FaultStore

from .programs import (
    Gate,
    ask,
    asking,
    begin,
    events_of,
    events_until_failure,
    held,
    line,
    side_by_side,
    step,
    steps,
    until,
)
from .stores import WatchedStore

LINE = re.compile(r"(?P<what>[a-z ]+) session=(?P<session>.*?) checkpoint=(?P<checkpoint>[0-9a-f]+\.\d+)( .*)?")


@pytest.fixture(autouse=True)
def at_debug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "adjourn.stores")


def lines(caplog: pytest.LogCaptureFixture, *whats: str) -> list[tuple[str, str, str]]:
    """What the log says since the last look, in words: what, session and checkpoint, which every line has.

    What other threads say is left out: a heartbeat may still renew the leases of an earlier test.
    """
    found: list[tuple[str, str, str]] = []
    for record in caplog.records:
        if record.name == "adjourn.stores" and record.thread == threading.get_ident():
            match = LINE.fullmatch(record.getMessage())
            assert match is not None, record.getMessage()
            found.append((match["what"], match["session"], match["checkpoint"]))
    caplog.clear()
    return [each for each in found if not whats or each[0] in whats]


def whats(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [what for what, _, _ in lines(caplog)]


async def test_every_save_has_one_line(store: Store, caplog: pytest.LogCaptureFixture):  # rule C13
    watched = WatchedStore(store)
    await steps("a", "b", store=watched).run({}, session_id="s")
    assert lines(caplog) == [("saved", "s", write.id) for write in watched.writes]
    assert len(watched.writes) == 3


@pytest.mark.parametrize("durability", ["pause", "async"])
async def test_saves_have_their_lines_in_every_durability(
    store: Store, durability: Any, caplog: pytest.LogCaptureFixture
):  # rule C13
    watched = WatchedStore(store)
    graph = asking(store=watched, durability=durability)
    await graph.run({}, session_id="s")
    await graph.resume("s", {"go": 1})
    assert lines(caplog, "saved") == [("saved", "s", write.id) for write in watched.writes]


async def test_every_load_has_one_line(store: Store, caplog: pytest.LogCaptureFixture):  # rule C13
    result = await asking(store=store).run({}, session_id="s")
    head = result.checkpoint_id or ""
    lines(caplog)
    graph = asking(store=store)
    await graph.state("s")
    assert lines(caplog) == [("loaded", "s", head)]
    assert len(await graph.history("s")) == 3
    assert lines(caplog) == [("loaded", "s", head)], "what folds to the last one also holds those before it"
    await events_of(graph.attach("s"))
    assert ("loaded", "s", head) in lines(caplog)


async def test_a_resume_has_one_line_beside_its_load_and_its_saves(
    store: Store, caplog: pytest.LogCaptureFixture
):  # rule C13
    await asking(store=store).run({}, session_id="s")
    lines(caplog)
    graph = asking(store=store)
    await graph.resume("s", {"go": 1}, by="ann")
    [resumed] = [point for point in await graph.history("s") if point.source == "resume"]
    found = lines(caplog)
    assert [what for what, _, _ in found][:5] == ["loaded", "saved", "resumed", "saved", "saved"]
    assert [each for each in found if each[0] == "resumed"] == [("resumed", "s", resumed.id)]


async def test_a_resume_that_a_live_owner_takes_up_names_a_checkpoint_that_exists(
    store: Store, caplog: pytest.LogCaptureFixture
):  # rule C13
    gate = Gate()
    graph = beside(gate, store)
    waiting = begin(graph.run({}, session_id="s"))
    await gate.reached.wait()
    await until(lambda: graph.pending("s"))
    lines(caplog)
    answered = begin(beside(Gate(), store).resume("s", {"go": 1}))

    async def resumed() -> bool:
        return "resumed " in caplog.text

    await until(resumed)
    found = lines(caplog, "resumed")
    assert [(what, session) for what, session, _ in found] == [("resumed", "s")]
    assert (await store.read(Load(SessionRef("s"), found[0][2]))) is not None
    gate.opened.set()
    await waiting
    await answered


def beside(gate: Gate, store: Store) -> CompiledGraph:
    return side_by_side(("ask", ask), ("slow", held("slow", gate)), store=store)


async def test_a_refused_resume_has_no_line(store: Store, caplog: pytest.LogCaptureFixture):  # rule C13
    graph = asking(store=store)
    await graph.run({}, session_id="s")
    await graph.resume("s", {"go": 1})
    lines(caplog)
    with pytest.raises(AlreadyResumed):
        await asking(store=store).resume("s", {"go": 1})
    assert whats(caplog) == ["loaded"]


async def test_a_recovery_says_after_what(store: Store, caplog: pytest.LogCaptureFixture):
    async def fails(state: dict[str, Any]) -> dict[str, Any]:
        raise ValueError("no luck")

    await events_until_failure(line(("a", fails), store=store).run({}, session_id="s"))
    lines(caplog)
    await steps("a", store=store).recover("s")
    found = [record.getMessage() for record in caplog.records]
    assert [text.rpartition(" ")[2] for text in found if text.startswith("recovered ")] == ["after=failed"]
    assert "took over" not in whats(caplog)


@pytest.fixture
async def abandoned(timed: Store, clock: FakeClock) -> AsyncIterator[Store]:
    """A store with a session whose owner has not been heard of for longer than its lease."""
    gate = Gate()
    graph = line(("a", step("a")), ("b", held("b", gate)), store=timed, clock=clock)
    running = begin(graph.run({}, session_id="s"))
    await gate.reached.wait()
    clock.advance(31)
    yield timed
    running.cancel()
    await asyncio.wait([running])


@pytest.mark.parametrize("how", ["recover", "run", "edit", "cancel", "travel"])
async def test_a_takeover_has_one_line_whoever_does_it(
    abandoned: Store, clock: FakeClock, how: str, caplog: pytest.LogCaptureFixture
):  # rule C13
    lines(caplog)
    graph = steps("a", "b", store=abandoned, clock=clock)
    match how:
        case "recover":
            await graph.recover("s")
        case "run":
            await graph.run({}, session_id="s", on_pending="abandon")
        case "edit":
            await graph.edit("s", {"done": ["x"]})
        case "cancel":
            await graph.cancel("s")
        case _:
            first = (await abandoned.read(ListCheckpoints(SessionRef("s"))))[-1]
            await graph.run(None, session_id="s", checkpoint_id=first.id)
    found = lines(caplog, "took over")
    assert [(what, session) for what, session, _ in found] == [("took over", "s")]


async def test_a_fork_of_a_crashed_session_takes_nothing_over(
    abandoned: Store, clock: FakeClock, caplog: pytest.LogCaptureFixture
):
    lines(caplog)
    await steps("a", "b", store=abandoned, clock=clock).fork("s", to="t")
    assert lines(caplog, "took over") == []


async def test_an_expiry_has_one_line_and_is_told_once(
    timed: Store, clock: FakeClock, caplog: pytest.LogCaptureFixture
):  # rule C13
    @workflow
    async def waits() -> Any:
        return interrupt("quick!", key="q", expires_in=timedelta(hours=1), on_expire=AnswerWith(7))

    paused = await Runner(waits, store=timed, clock=clock).run(None, session_id="s")
    lines(caplog)
    clock.advance(3601)
    runner = Runner(waits, store=timed, clock=clock)
    assert (await runner.recover("s")).value == 7
    assert lines(caplog, "expired") == [("expired", "s", paused.checkpoint_id)]
    await runner.recover("s")
    assert lines(caplog, "expired") == []


async def test_waiting_for_a_store_is_a_warning(store: Store, caplog: pytest.LogCaptureFixture):
    with pytest.raises(StoreUnavailable):
        await steps("a", store=FaultStore(store, 2, times=1000), store_timeout=1).run({}, session_id="s")
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    about = [text for text in warned if "session=" in text]  # The leases of other tests have none.
    assert about
    assert all(text.startswith("waiting for the store session=s checkpoint=") for text in about)


@pytest.mark.parametrize(
    "session", ["a\nsaved session=b checkpoint=0.0", "tab\there", "\x1b[31mred", "a\u202eb", "ü €"]
)
async def test_no_session_id_can_write_a_line_of_its_own(
    store: Store, session: str, caplog: pytest.LogCaptureFixture
):  # rule C12
    await asking(store=store).run({}, session_id=session)
    await asking(store=store).resume(session, {"go": 1})
    texts = [record.getMessage() for record in caplog.records if record.name == "adjourn.stores"]
    assert len(texts) > 4
    assert all(text.isprintable() for text in texts)


async def test_the_log_costs_nothing_to_those_who_do_not_listen(store: Store, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.ERROR, "adjourn.stores")
    graph = asking(store=store)
    await graph.run({}, session_id="s")
    await graph.resume("s", {"go": 1})
    assert lines(caplog) == []


async def test_what_people_said_is_not_in_the_log(store: Store, caplog: pytest.LogCaptureFixture):
    graph = asking(store=store)
    await graph.run({"answer": "secret one"}, session_id="s", values={"token": "secret two"})
    await graph.resume("s", {"go": "secret three"})
    assert "secret" not in caplog.text
