"""A subscription reports runs that end without a word: their process died, or their lease was not renewed."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from adjourn.sessions import Sessions
from adjourn.stores import SQLiteStore
from adjourn.testing import FakeClock
from adjourn.testing.suite.bench import Drive
from tests.conftest import MakeStore
from tests.runner.programs import asking, steps
from tests.runner.test_lease import child_of

from .test_sessions import take, told


async def watching(notices: AsyncIterator[Any]) -> None:
    """Return when the subscription has begun; there is one open question, which it reports first."""
    assert [told(each) for each in await take(notices, 1)] == [("asked", "go")]


async def test_a_lease_that_runs_out_is_reported_however_much_else_happens(make_store: MakeStore):  # rule C6
    clock = FakeClock()
    store = make_store(clock)
    await asking(store=store).run({}, session_id="asked")
    frozen = Drive(store, "frozen", ttl=30)  # nobody renews its lease
    await frozen.start()
    async with contextlib.aclosing(Sessions(store).subscribe(report_open=True)) as notices:
        await watching(notices)
        clock.advance(20)
        await steps("a", store=store).run({}, session_id="other")
        assert [told(each) for each in await take(notices, 1)] == [("other", "done")]
        clock.advance(11)
        assert [told(each) for each in await take(notices, 1)] == [("frozen", "failed")]
        await frozen.end()  # it was only slow: nobody has taken over
        assert [told(each) for each in await take(notices, 1)] == [("frozen", "done")]


async def test_a_process_that_dies_is_reported_at_once(tmp_path: Path):  # rule C6
    store = SQLiteStore(tmp_path / "s.db")
    await asking(store=store).run({}, session_id="asked")
    with child_of(tmp_path / "s.db", "hold") as child:  # its lease lasts for a thousand seconds
        async with contextlib.aclosing(Sessions(store).subscribe(report_open=True)) as notices:
            await watching(notices)
            child.kill()
            assert [told(each) for each in await take(notices, 1)] == [("s", "failed")]
            await steps("a", "b", "c", store=store).recover("s")
            assert [told(each) for each in await take(notices, 1)] == [("s", "done")]
    await store.close()
