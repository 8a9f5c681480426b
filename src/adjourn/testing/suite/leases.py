"""Leases: one owner at a time, by the store's clock, and none that has lost it writes again."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from adjourn.errors import CheckpointNotFound, Conflict, SessionBusy
from adjourn.stores.kit import Cancel, Claim, Commit, ListDue
from adjourn.stores.types import Lease, SessionRef
from adjourn.testing.clock import FakeClock

from .bench import Bench, Drive, S, question, refused


class LeaseSuite(Bench):
    """Rules C6 and C8."""

    def run_of(self, store_owner: Drive, owner: str) -> Drive:
        """A second run on the session of another, which has seen the same head."""
        other = Drive(store_owner.store, store_owner.session, owner, ttl=store_owner.ttl)
        other.branch, other.number, other.at = store_owner.branch, store_owner.number, store_owner.at
        return other

    async def test_a_live_owner_keeps_others_out(self) -> None:  # rule C6
        """Until its lease expires."""
        clock = FakeClock()
        async with self.fresh(clock) as store:
            run = Drive(store, ttl=10 * self.tick)
            await run.start()
            other = self.run_of(run, "bob")
            busy = await refused(SessionBusy, other.claim(other.next()))
            assert busy.owner == "ann"
            assert busy.expires == (await run.head()).expires
            await refused(SessionBusy, other.claim())
            await self.pass_time(clock, 9 * self.tick)
            await refused(SessionBusy, other.claim())
            await self.pass_time(clock, 2 * self.tick)
            assert (await run.head()).owner is None
            claimed = await other.claim()
            assert (await run.head()).owner == "bob"
            assert claimed.lease is not None
            assert claimed.lease.fence > run.held.fence

    async def test_an_owner_that_was_taken_over_cannot_write(self) -> None:  # rule C6
        """Neither a commit nor a renewal, and nothing is changed."""
        clock = FakeClock()
        async with self.fresh(clock) as store:
            zombie = Drive(store, ttl=10 * self.tick)
            await zombie.start()
            await self.pass_time(clock, 11 * self.tick)
            run = self.run_of(zombie, "bob")
            await run.claim()
            before = await run.loaded()
            await refused(Conflict, zombie.commit(zombie.next(b"late", asks=(question("q"),))))
            await refused(Conflict, zombie.end())
            (renewed,) = await store.renew([zombie.held])
            assert renewed.lost
            assert await run.loaded() == before
            await run.commit()
            await refused(Conflict, zombie.commit(zombie.next(b"late")))
            assert (await run.loaded()).rows == (b"b0", b"b1")

    async def test_a_lease_that_expired_is_still_held_if_nobody_took_it(self) -> None:  # rule C6
        """A commit or a renewal makes it live again."""
        clock = FakeClock()
        async with self.fresh(clock) as store:
            run = Drive(store, ttl=10 * self.tick)
            await run.start()
            await self.pass_time(clock, 11 * self.tick)
            await run.commit()
            assert (await run.head()).owner == "ann"
            await self.pass_time(clock, 11 * self.tick)
            (renewed,) = await store.renew([run.held])
            assert not renewed.lost
            assert (await run.head()).owner == "ann"

    async def test_commits_and_renewals_prolong(self) -> None:  # rule C6
        """By the whole time to live, from now."""
        clock = FakeClock()
        async with self.fresh(clock) as store:
            run = Drive(store, ttl=10 * self.tick)
            await run.start()
            for prolong in (run.commit, lambda: store.renew([run.held]), run.commit):
                await self.pass_time(clock, 7 * self.tick)
                before = (await run.head()).expires
                await prolong()
                assert (await run.head()).expires > before
                assert (await run.head()).owner == "ann"

    async def test_a_dead_owner_can_be_taken_over_at_once(self) -> None:  # rule C6
        """By whoever knows its name."""
        clock = FakeClock()
        async with self.fresh(clock) as store:
            run = Drive(store)
            await run.start()
            other = self.run_of(run, "bob")
            await refused(SessionBusy, other.claim(replaces="carl"))
            await other.claim(replaces="ann")
            assert (await run.head()).owner == "bob"
            await refused(Conflict, run.commit())

    async def test_a_lease_that_is_given_back_ends_at_once(self) -> None:  # rules C8, C11
        """Without a record, and its claim does not count as one without progress."""
        clock = FakeClock()
        async with self.fresh(clock) as store:
            run = Drive(store)
            await run.start()
            other = self.run_of(run, "bob")
            await other.claim(replaces="ann")
            for lease, lost in ((run.held, True), (other.held, False)):
                (renewed,) = await store.renew([replace(lease, ttl=0.0)])
                assert renewed.lost == lost
            head = await run.head()
            assert (head.owner, head.claims, head.status) == (None, 0, "running")
            third = self.run_of(run, "carl")
            assert (await third.claim()).claims == 1

    async def test_a_run_that_is_handed_over_is_due_at_once(self) -> None:  # rules C6, C8
        """Its former owner can neither write nor renew, and repeating the last commit succeeds."""
        clock = FakeClock()
        async with self.fresh(clock) as store:
            run = Drive(store)
            await run.start()
            before, last = run.checkpoint, run.next(status="queued")
            for _ in range(2):
                assert (await store.write(Commit(lease=run.held, writes=(last,), after=before, release=True))).released
            run.moved(last)
            head = await run.head()
            assert (head.owner, head.status, head.claims) == (None, "queued", 0)
            assert [(each.session, each.why) for each in await store.read(ListDue())] == [("s", "lease")]
            (renewed,) = await store.renew([run.held])
            assert renewed.lost
            await refused(Conflict, run.commit())
            other = self.run_of(run, "bob")
            assert (await other.claim()).claims == 1
            assert await store.read(ListDue()) == []
            await other.end()
            assert await store.read(ListDue()) == []

    async def test_of_many_who_claim_one_succeeds(self) -> None:  # rule C6
        """All at once, with and without a record."""
        async with self.fresh() as store:
            run = Drive(store)
            await run.start()
            await run.end()
            after = run.at
            tries = [
                store.write(
                    Claim(ref=S, owner=f"o{n}", ttl=10, after=after, write=run.next(b"%d" % n) if n % 2 else None)
                )
                for n in range(20)
            ]
            results = await asyncio.gather(*tries, return_exceptions=True)
            won = [result for result in results if not isinstance(result, BaseException)]
            assert len(won) == 1
            assert sum(isinstance(result, SessionBusy) for result in results) == 19

    async def test_many_leases_are_renewed_at_once(self) -> None:  # rule C6
        """And each is told its own state."""
        async with self.fresh() as store:
            runs = [Drive(store, f"s{n}") for n in range(5)]
            for run in runs:
                await run.start()
            await runs[1].end()
            await store.write(Cancel(SessionRef("s2"), "now"))
            gone = Lease(ref=SessionRef("gone"), owner="ann", fence=1, ttl=10)
            renewed = await store.renew([*(run.held for run in runs), gone])
            assert [state.ref.id for state in renewed] == ["s0", "s1", "s2", "s3", "s4", "gone"]
            assert [state.lost for state in renewed] == [False, True, False, False, False, True]
            assert [state.cancel for state in renewed] == [None, None, "now", None, None, None]
            assert await store.renew([]) == []

    async def test_a_cancel_reaches_the_owner(self) -> None:
        """With its next commit, once or several times, and not the owner after it."""
        async with self.fresh() as store:
            run = Drive(store)
            await refused(CheckpointNotFound, store.write(Cancel(S, "now")))
            await run.start()
            assert (await run.commit()).cancel is None
            assert await store.write(Cancel(S, "after_step"))
            assert (await run.commit()).cancel == "after_step"
            assert await store.write(Cancel(S, "now"))
            last = await run.commit(run.next(status="cancelled"), release=True)
            assert (last.released, last.cancel) == (True, "now")
            assert not await store.write(Cancel(S, "now"))
            await run.claim()
            assert (await run.commit()).cancel is None
