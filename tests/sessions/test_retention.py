"""Retention: old sessions go by age and status, and never what somebody runs, resumes, or waits for."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from adjourn import Runner, Sessions, UsageError, workflow
from adjourn.errors import CheckpointNotFound
from adjourn.stores import Input, MemoryStore, SessionRef, SQLiteStore, Store
from adjourn.stores.kit import DeleteIdle, ListInputs, ListRecords, ListSessions, Submit
from adjourn.testing import FakeClock
from tests.conftest import MakeStore
from tests.runner.programs import asking

OLD = timedelta(days=30)


async def settled(store: Store, clock: FakeClock) -> Sessions:
    """Sessions of every kind that nobody runs."""

    @workflow
    async def works(_: Any) -> None:
        return None

    @workflow
    async def fails(_: Any) -> None:
        raise ValueError

    runner = Runner(works, store=store, clock=clock)
    await runner.run(None, session_id="done", user_id="ann")
    await Runner(asking(), store=store, clock=clock).run({}, session_id="waiting")
    with pytest.raises(ValueError):  # noqa: PT011 - it is the program's own
        await Runner(fails, store=store, clock=clock).run(None, session_id="failed")
    await store.write(Submit(ref=SessionRef("queued"), input=Input(id="i", body=b"{}")))
    return Sessions(store, clock=clock)


async def test_what_waits_is_removed_only_when_it_is_named(make_store: MakeStore):  # rule C7
    clock = FakeClock()
    sessions = await settled(make_store(clock), clock)
    assert await sessions.clean_up(0) == []
    clock.advance(OLD.total_seconds() + 1)
    assert await sessions.clean_up(timedelta(days=31)) == []
    assert await sessions.for_user("ann").clean_up(OLD) == ["done"]
    assert await sessions.clean_up(OLD) == ["failed"]
    assert await sessions.clean_up(OLD, statuses=["waiting"]) == ["waiting"]
    assert await sessions.clean_up(OLD, statuses=("queued", "done")) == ["queued"]
    assert await sessions.sessions() == []


async def test_inputs_behind_a_failure_keep_its_session(make_store: MakeStore):  # rule C7
    clock = FakeClock()
    sessions = await settled(make_store(clock), clock)
    await sessions.store.write(Submit(ref=SessionRef("failed"), input=Input(id="i", body=b"{}", abandons=True)))
    clock.advance(OLD.total_seconds() + 1)
    assert await sessions.clean_up(OLD) == ["done"]
    assert [each.id for each in await sessions.store.read(ListInputs(SessionRef("failed")))] == ["i"]
    assert await sessions.clean_up(OLD, statuses=["failed", "queued"]) == ["failed", "queued"]


@pytest.mark.parametrize(
    "statuses", [("done", "failed", "cancelled"), ("waiting",), ("queued",), ("failed", "queued"), ("done", "waiting")]
)
async def test_what_would_be_removed_is_what_is_removed(make_store: MakeStore, statuses: Any):  # rule C7
    clock = FakeClock()
    sessions = await settled(make_store(clock), clock)
    await sessions.store.write(Submit(ref=SessionRef("failed"), input=Input(id="i", body=b"{}")))
    clock.advance(OLD.total_seconds() + 1)
    await Runner(asking(), store=sessions.store, clock=clock).run({}, session_id="new")
    await sessions.store.write(
        Submit(ref=SessionRef("done", user="ann"), input=Input(id="i", body=b"{}"))
    )  # somebody has touched it
    assert await sessions.old_sessions(timedelta(days=31), statuses=statuses) == []
    would = {each.session_id for each in await sessions.old_sessions(OLD, statuses=statuses)}
    assert set(await sessions.clean_up(OLD, statuses=statuses)) == would
    assert await sessions.old_sessions(OLD, statuses=statuses) == []


async def test_an_answer_keeps_a_session(make_store: MakeStore):  # rule C7
    clock = FakeClock()
    sessions = await settled(make_store(clock), clock)
    clock.advance(OLD.total_seconds())
    await sessions.answer("waiting", {"go": 1})
    clock.advance(10)
    assert sorted(await sessions.clean_up(OLD, statuses=("waiting", "done"))) == ["done"]


async def test_forks_do_not_need_what_they_came_from(store: Store):  # rule C7
    runner = Runner(asking(), store=store)
    await runner.run({}, session_id="s")
    await runner.fork("s", to="copy")
    assert await runner.clean_up(0, statuses=["waiting"]) in ([], ["s", "copy"])
    await runner.run({}, session_id="s", on_pending="abandon")
    await runner.fork("s", to="other")
    await runner.delete("s")
    assert (await runner.resume("other", {"go": 1})).status == "done"


async def test_many_are_removed_a_few_at_a_time():  # rule C7
    clock = FakeClock()
    store = MemoryStore(clock)

    @workflow
    async def works(_: Any) -> None:
        return None

    runner = Runner(works, store=store, clock=clock)
    for number in range(450):
        await runner.run(None, session_id=f"s{number}")
    clock.advance(10)
    assert len(await runner.clean_up(5)) == 450
    assert await store.read(ListSessions()) == []


async def test_checkpoints_of_all_sessions_are_pruned(store: Store):  # rule C7
    runner = Runner(asking(), store=store)
    for name in ("a", "b"):
        await runner.run({}, session_id=name)
        await runner.resume(name, {"go": 1})
    before = [len(await runner.history(name)) for name in ("a", "b")]
    gone = await runner.prune_all(keep=1)
    assert gone == sum(before) - sum([len(await runner.history(name)) for name in ("a", "b")])
    assert await runner.prune_all(older_than=0) == 0
    assert (await runner.state("a"))["answer"] == 1


@pytest.mark.parametrize("wrong", [None, "30d", -1, timedelta(days=-1), float("nan"), True])
async def test_an_age_that_is_none_is_refused(store: Store, wrong: Any):
    sessions = Sessions(store)
    with pytest.raises(UsageError, match="older_than"):
        await sessions.clean_up(wrong)
    if wrong is not None:
        with pytest.raises(UsageError, match="older_than"):
            await sessions.prune_all(older_than=wrong)


@pytest.mark.parametrize("wrong", ["done", (), ("running",), ("old",), [["x"]], iter(["done"]), None])
async def test_statuses_that_select_nothing_are_refused(store: Store, wrong: Any):
    with pytest.raises(UsageError, match="statuses"):
        await Sessions(store).clean_up(0, statuses=wrong)


RESUME = """
import asyncio, json, sys
from adjourn import Runner
from adjourn.errors import AdjournError
from adjourn.stores import SQLiteStore
from tests.runner.programs import asking

async def main():
    store = SQLiteStore(sys.argv[1])
    print("ready", flush=True)
    sys.stdin.readline()
    runner, found = Runner(asking(), store=store), {}
    for number in reversed(range(20)):
        try:
            found[f"s{number}"] = (await runner.resume(f"s{number}", {"go": number})).status
        except AdjournError as error:
            found[f"s{number}"] = type(error).__name__
    await store.close()
    print(json.dumps(found))

asyncio.run(main())
"""


async def test_a_resume_and_a_clean_up_do_not_meet_half_way(tmp_path: Path):  # rule C7
    """Real processes: one begins with the oldest, the other with the newest; a session is whole or gone."""
    path = tmp_path / "s.db"
    store = SQLiteStore(path)
    runner = Runner(asking(), store=store)
    for number in range(20):
        await runner.run({}, session_id=f"s{number}")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", RESUME, str(path), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    resuming = asyncio.create_task(process.communicate(b"go\n"))
    removed: set[str] = set()
    while not resuming.done():
        removed |= {ref.id for ref in await store.write(DeleteIdle(ttl=0, statuses=["waiting"], limit=1))}
    out, _ = await resuming
    resumed = json.loads(out)
    sessions = Sessions(store)
    assert len(resumed) == 20
    for name, status in resumed.items():
        if name in removed:
            assert status in ("CheckpointNotFound", "Conflict")
            with pytest.raises(CheckpointNotFound):
                await store.read(ListRecords(SessionRef(name)))
        else:
            assert status == "done"
            assert (await sessions.state(name))["answer"] == int(name[1:])
            assert (await sessions.verify(name)).is_sound
    await store.close()
