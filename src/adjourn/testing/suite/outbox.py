"""The outbox: notices are written with records or not at all, and stay until somebody has sent them."""

from __future__ import annotations

import asyncio
import contextlib

from adjourn.stores.kit import Commit, Delete, DropNotices, SettleNotice, TakeNotices
from adjourn.stores.protocol import Store
from adjourn.stores.types import Answer, Notice, SessionRef, TakenNotice
from adjourn.testing.clock import FakeClock

from .bench import Bench, Drive, question

APP = "adjourn"


def notice(id: str, to: str = "desk", due: float | None = None) -> Notice:
    """A notice to write."""
    return Notice(id=id, to=to, body=f"about {id}".encode(), due=due)


async def written(store: Store, *notices: Notice, session: str = "s", app: str = APP) -> Drive:
    """A session that has ended, with these notices."""
    drive = Drive(store, session)
    await drive.start(app=app)
    await drive.commit(drive.next(status="done", notices=notices), release=True)
    return drive


async def taken(store: Store, *to: str, ttl: float = 10.0, limit: int = 100, app: str = APP) -> dict[str, TakenNotice]:
    """What can be taken now, by id."""
    found = await store.write(TakeNotices(app, to or ("desk",), ttl, limit=limit))
    return {each.id: each for each in found}


class OutboxSuite(Bench):
    """Notices that are to be sent outside."""

    async def test_a_notice_is_written_with_its_record(self) -> None:  # rule V12
        """Whether a claim or a commit writes it, and one commit or several records."""
        async with self.fresh() as store:
            drive = Drive(store)
            await drive.start(drive.next(notices=(notice("a"),)))
            one = drive.next(notices=(notice("b"),))
            drive.moved(one)
            two = drive.next(status="done", notices=(notice("c"), notice("d")))
            drive.moved(two)
            committed = await store.write(Commit(lease=drive.held, writes=(one, two), after="b.0", release=True))
            found = await taken(store)
            assert sorted(found) == ["a", "b", "c", "d"]
            d = found["d"]
            assert (d.to, d.body, d.app, d.session, d.attempt) == ("desk", b"about d", APP, "s", 1)
            assert d.at == committed.at

    async def test_nobody_else_gets_what_is_taken_until_its_time_is_over(self) -> None:  # rule V12
        """Then whoever had it is gone, and another one sends it."""
        clock = FakeClock()
        async with self.fresh(clock) as store:
            await written(store, notice("a"))
            first = await taken(store, ttl=10 * self.tick)
            await self.pass_time(clock, 5 * self.tick)
            assert await taken(store) == {}
            await self.pass_time(clock, 6 * self.tick)
            second = await taken(store)
            assert (first["a"].attempt, second["a"].attempt) == (1, 2)
            assert first["a"].at == second["a"].at

    async def test_what_was_sent_is_gone(self) -> None:  # rule V12
        """For good."""
        clock = FakeClock()
        async with self.fresh(clock) as store:
            await written(store, notice("a"), notice("b"))
            found = await taken(store, ttl=self.tick)
            assert await store.write(SettleNotice(found["a"]))
            assert not await store.write(SettleNotice(found["a"]))
            await self.pass_time(clock, 2 * self.tick)
            assert list(await taken(store)) == ["b"]

    async def test_what_is_put_off_comes_back_later(self) -> None:  # rule V12
        """Not when it would have otherwise."""
        clock = FakeClock()
        async with self.fresh(clock) as store:
            await written(store, notice("a"))
            found = await taken(store, ttl=self.tick)
            assert await store.write(SettleNotice(found["a"], again=10 * self.tick))
            await self.pass_time(clock, 5 * self.tick)
            assert await taken(store) == {}
            await self.pass_time(clock, 6 * self.tick)
            assert (await taken(store))["a"].attempt == 2

    async def test_who_was_too_slow_settles_nothing(self) -> None:  # rule V12
        """Somebody else has taken it since."""
        clock = FakeClock()
        async with self.fresh(clock) as store:
            await written(store, notice("a"))
            slow = await taken(store, ttl=self.tick)
            await self.pass_time(clock, 2 * self.tick)
            quick = await taken(store, ttl=100 * self.tick)
            assert not await store.write(SettleNotice(slow["a"]))
            assert not await store.write(SettleNotice(slow["a"], again=0.0))
            assert await taken(store) == {}
            assert await store.write(SettleNotice(quick["a"]))

    async def test_everybody_gets_only_their_own(self) -> None:  # rule V12
        """By app, and by whom it is for."""
        async with self.fresh() as store:
            await written(store, notice("a"), notice("b", to="audit"), notice("c", to="*:{odd}\\ \x00"))
            await written(store, notice("d"), app="other")
            assert await taken(store, "nobody") == {}
            assert await store.write(TakeNotices(APP, [], 10.0)) == []
            assert list(await taken(store, "*:{odd}\\ \x00")) == ["c"]
            assert sorted(await taken(store, "desk", "audit")) == ["a", "b"]
            found = await taken(store, app="other")
            assert [(each.app, each.session) for each in found.values()] == [("other", "s")]

    async def test_the_oldest_come_first(self) -> None:  # rule V12
        """And no more than are wanted."""
        clock = FakeClock()
        async with self.fresh(clock) as store:
            for number, name in enumerate("abcde"):
                await written(store, notice(name, to="desk" if number % 2 else "audit"), session=name)
                await self.pass_time(clock, self.tick)
            assert await taken(store, "desk", "audit", limit=0) == {}
            assert list(await taken(store, "desk", "audit", limit=3)) == ["a", "b", "c"]
            assert list(await taken(store, "desk", "audit", limit=3)) == ["d", "e"]

    async def test_a_notice_for_later_is_taken_later(self) -> None:  # rule V12
        """From the time on that it names."""
        clock = FakeClock()
        async with self.fresh(clock) as store:
            drive = Drive(store)
            await drive.start()
            now = (await drive.head()).updated
            later = (notice("a", due=now + 10 * self.tick), notice("b", due=now - 10 * self.tick))
            await drive.commit(drive.next(notices=later))
            assert list(await taken(store)) == ["b"]
            await self.pass_time(clock, 11 * self.tick)
            assert "a" in await taken(store)

    async def test_several_who_take_share_the_work(self) -> None:  # rule V12
        """Each notice is taken by one of them."""
        clock = FakeClock()
        async with contextlib.AsyncExitStack() as opened:
            store = await opened.enter_async_context(self.fresh(clock))
            other = await opened.enter_async_context(self.second(clock)) if self.shared else store
            ids = [f"n{number}" for number in range(30)]
            await written(store, *map(notice, ids))
            takes = [each.write(TakeNotices(APP, ["desk"], 60.0, limit=10)) for each in (store, other) * 3]
            got = [each.id for batch in await asyncio.gather(*takes) for each in batch]
            got += [each.id for each in await store.write(TakeNotices(APP, ["desk"], 60.0))]
            assert sorted(got) == sorted(ids)

    async def test_notices_outlive_their_session(self) -> None:  # rule V12
        """What has happened is still sent."""
        async with self.fresh() as store:
            await written(store, notice("a"))
            await store.write(Delete(SessionRef("s")))
            found = await taken(store)
            assert [(each.session, each.body) for each in found.values()] == [("s", b"about a")]

    async def test_what_nobody_wants_can_be_dropped(self) -> None:  # rule V12
        """By its app, and by since when it is due."""
        clock = FakeClock()
        async with self.fresh(clock) as store:
            drive = Drive(store)
            await drive.start()
            now = (await drive.head()).updated
            late = notice("later", due=now + 100 * self.tick)
            await drive.commit(drive.next(notices=(notice("old", to="gone"), late)))
            await written(store, notice("other"), app="other")
            await self.pass_time(clock, 10 * self.tick)
            await written(store, notice("new"), session="t")
            assert await store.write(DropNotices(APP, 5 * self.tick)) == 1
            assert await store.write(DropNotices(APP, 5 * self.tick)) == 0
            assert list(await taken(store, "desk", "gone")) == ["new"]
            assert list(await taken(store, app="other")) == ["other"]

    async def test_answers_and_notices_do_not_disturb_each_other(self) -> None:  # rule V12
        """A claim with answers writes its notices, too."""
        async with self.fresh() as store:
            drive = Drive(store)
            await drive.start()
            await drive.pause(question("q"))
            answer = Answer(id="q", value=b"true")
            await drive.claim(drive.next(takes=("q",), notices=(notice("a"),)), answer)
            assert list(await taken(store)) == ["a"]
