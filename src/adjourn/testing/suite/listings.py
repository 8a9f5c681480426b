"""Listings: checkpoints, sessions, open questions, and what is due."""

from __future__ import annotations

from adjourn.errors import CheckpointNotFound, UsageError
from adjourn.stores.kit import GiveAnswers, ListCheckpoints, ListDue, ListOpen, ListQuestions, ListSessions
from adjourn.stores.protocol import Store
from adjourn.stores.types import Head, Header, QuestionFilter, SessionRef
from adjourn.testing.clock import FakeClock

from .bench import Bench, Drive, S, paused, question, record, refused, yes
from .log import HOSTILE


def _written(head: Head) -> tuple[float, str, str]:
    return head.updated, head.app, head.session


class ListingSuite(Bench):
    """Rules C2, C5 and C12."""

    async def test_checkpoints_are_listed_newest_first(self) -> None:  # rule C5
        """With their parents, in pages."""
        async with self.fresh() as store:
            run = Drive(store)
            await run.start()
            await run.steps(4)
            listed = await store.read(ListCheckpoints(S))
            assert [each.id for each in listed] == ["b.4", "b.3", "b.2", "b.1", "b.0"]
            assert [each.parent for each in listed] == ["b.3", "b.2", "b.1", "b.0", None]
            assert await store.read(ListCheckpoints(S, limit=2)) == listed[:2]
            assert await store.read(ListCheckpoints(S, before="b.3")) == listed[2:]
            assert await store.read(ListCheckpoints(S, before="b.3", limit=1)) == listed[2:3]
            assert await store.read(ListCheckpoints(S, before="b.0")) == []
            assert await store.read(ListCheckpoints(S, limit=0)) == []

    async def test_records_between_checkpoints_are_not_listed(self) -> None:  # rule C2
        """But they can be restored, and a listing can begin at them."""
        async with self.fresh() as store:
            run = Drive(store)
            await run.start()
            await run.commit(run.next(header=Header()))
            await run.steps(1)
            assert [each.id for each in await store.read(ListCheckpoints(S))] == ["b.2", "b.0"]
            assert (await run.loaded("b.1")).rows == (b"b0", b"b1")
            assert [each.id for each in await store.read(ListCheckpoints(S, before="b.1"))] == ["b.0"]

    async def test_an_unknown_place_in_the_list_is_an_error(self) -> None:  # rule C5
        """Not an empty page."""
        async with self.fresh() as store:
            await Drive(store).start()
            for wrong in ("b.1", "c.0", "", *HOSTILE):
                error = await refused(CheckpointNotFound, store.read(ListCheckpoints(S, before=wrong)))
                assert error.checkpoint_id == wrong

    async def test_checkpoints_by_source(self) -> None:  # rule C5
        """A filter is a value, never a piece of a query."""
        async with self.fresh() as store:
            run = Drive(store)
            await run.start(run.next(header=Header(source="input")))
            for source in ("step", "interrupt", "step", *HOSTILE):
                await run.commit(run.next(header=Header(source=source)))
            assert [each.id for each in await store.read(ListCheckpoints(S, source="step"))] == ["b.3", "b.1"]
            assert [each.id for each in await store.read(ListCheckpoints(S, source="step", before="b.3"))] == ["b.1"]
            assert await store.read(ListCheckpoints(S, source="nothing")) == []
            for n, source in enumerate(HOSTILE):
                assert [each.id for each in await store.read(ListCheckpoints(S, source=source))] == [f"b.{n + 4}"]

    async def test_sessions_are_listed_by_their_last_commit(self) -> None:
        """The most lately written first."""
        clock = FakeClock()
        async with self.fresh(clock) as store:
            runs = [Drive(store, f"s{n}") for n in range(4)]
            for run in runs:
                await run.start()
                await self.pass_time(clock, self.tick)
            await runs[1].commit()
            listed = await store.read(ListSessions())
            assert [head.session for head in listed] == ["s1", "s3", "s2", "s0"]
            assert listed[0] == await runs[1].head()
            assert await store.read(ListSessions(limit=2)) == listed[:2]
            assert await store.read(ListSessions(limit=0)) == []

    async def test_sessions_by_app_user_and_status(self) -> None:  # rule C12
        """One by one and together."""
        async with self.fresh() as store:
            await self._people(store)

            async def named(app: str | None = None, user: str | None = None) -> set[str]:
                return {head.session for head in await store.read(ListSessions(app=app, user=user))}

            assert await named() == {"s1", "s2", "s3", "s4"}
            assert await named(app="shop") == {"s1", "s2"}
            assert await named(user="u1") == {"s1", "s3"}
            assert await named(app="shop", user="u1") == {"s1"}
            assert {head.session for head in await store.read(ListSessions(status="done"))} == {"s4"}
            assert {head.session for head in await store.read(ListSessions(status="waiting", user="u2"))} == {"s2"}
            for nothing in HOSTILE:
                assert await named(app=nothing) == set()
                assert await named(user=nothing) == set()

    async def test_sessions_in_pages(self) -> None:
        """Each page goes on where the last one ended, also between sessions that were written at the same time."""
        clock = FakeClock()
        async with self.fresh(clock) as store:
            await self._people(store)
            for n in range(5):
                await self.pass_time(clock, self.tick if n % 2 else 0.0)
                await Drive(store, f"r{n}").start(app="shop" if n % 2 else "desk", user="u1")
            for app in (None, "shop"):
                for user in (None, "u1"):
                    for status in (None, "running", "waiting", "done"):
                        whole = await store.read(ListSessions(app=app, user=user, status=status))
                        pages, after = list[Head](), None
                        while page := await store.read(
                            ListSessions(app=app, user=user, status=status, after=after, limit=2)
                        ):
                            pages, after = pages + page, page[-1].cursor
                        assert pages == whole == sorted(whole, key=_written, reverse=True)
            whole = await store.read(ListSessions())
            assert len(whole) == 9
            assert await store.read(ListSessions(after=whole[3].cursor)) == whole[4:]
            await Drive(store, "new").start()
            assert await store.read(ListSessions(after=whole[3].cursor)) == whole[4:]
            for wrong in HOSTILE:
                await refused(UsageError, store.read(ListSessions(after=wrong)))

    async def test_open_questions_over_all_sessions(self) -> None:
        """Oldest first, by session, app and user."""
        async with self.fresh() as store:
            await self._people(store)

            async def asked(
                ref: SessionRef | None = None, app: str | None = None, user: str | None = None, limit: int | None = None
            ) -> list[str]:
                chosen = QuestionFilter(app=app, user=user)
                everywhere = ListQuestions(filter=chosen, limit=limit)
                found = await store.read(everywhere if ref is None else ListOpen(ref, chosen, limit=limit))
                return [f"{each.session}/{each.id}" for each in found]

            assert await asked() == ["s1/q", "s1/r", "s2/q", "s2/r", "s3/q", "s3/r"]
            assert await asked(limit=3) == ["s1/q", "s1/r", "s2/q"]
            assert await asked(SessionRef("s2", "shop")) == ["s2/q", "s2/r"]
            assert await asked(SessionRef("s2", "shop", "u2"), limit=1) == ["s2/q"]
            assert await asked(app="shop") == ["s1/q", "s1/r", "s2/q", "s2/r"]
            assert await asked(user="u1") == ["s1/q", "s1/r", "s3/q", "s3/r"]
            assert await asked(app="shop", user="u1") == ["s1/q", "s1/r"]
            assert await asked(SessionRef("s1", "desk")) == []
            assert await asked(SessionRef("s1", "shop", "u2")) == []
            await store.write(GiveAnswers(ref=SessionRef("s1", "shop"), answers=[yes("q")]))
            assert await asked(limit=2) == ["s1/r", "s2/q"]
            for nothing in HOSTILE:
                assert await asked(SessionRef(nothing)) == await asked(app=nothing) == await asked(user=nothing) == []

    async def _people(self, store: Store) -> None:
        for session, app, user in (("s1", "shop", "u1"), ("s2", "shop", "u2"), ("s3", "desk", "u1")):
            run = Drive(store, session)
            await run.start(app=app, user=user)
            await run.pause(question("q"), question("r"))
        last = Drive(store, "s4")
        await last.start(app="desk")
        await last.end()

    async def test_questions_can_be_read_as_soon_as_they_are_committed(self) -> None:  # rule I4
        """While the run goes on."""
        async with self.fresh() as store:
            run = Drive(store)
            await run.start()
            await run.commit(run.next(asks=(question("q", b'{"x":1}', expires=None),)))
            (asked,) = await store.read(ListQuestions())
            assert (asked.session, asked.id, asked.body, asked.expires) == ("s", "q", b'{"x":1}', None)
            assert asked.checkpoint == "b.1"
            await run.steps(1)
            assert [asked.checkpoint for asked in await store.read(ListOpen(S))] == ["b.2"]

    async def test_what_is_due(self) -> None:
        """Dead owners, expired questions of the head's branch, and answers that no record takes; not what is run."""
        clock = FakeClock()
        async with self.fresh(clock) as store:
            assert await store.read(ListDue()) == []
            ttl = 10 * self.tick
            for name in ("dead", "live", "released"):
                run = Drive(store, name, ttl=ttl)
                await run.start()
                created = (await run.head()).created
                soon = question("q", expires=created + self.tick)
                await run.commit(run.next(asks=(soon,), status="waiting"), release=name == "released")
            left = Drive(store, "left")
            await left.start()
            soon = question("q", expires=(await left.head()).created + self.tick)
            await left.commit(left.next(asks=(soon,)))
            await left.commit(record(0, "b.1", branch="c", status="waiting", asks=(question("q"),)), release=True)
            await paused(store, "q", session="waiting")
            await paused(store, "q", session="answered")
            await store.write(GiveAnswers(ref=SessionRef("answered"), answers=[yes("q")]))
            assert await self._due(store) == {("answered", "answer")}
            await self.pass_time(clock, 2 * self.tick)
            assert await self._due(store) == {("answered", "answer"), ("released", "question")}
            await self.pass_time(clock, 9 * self.tick)
            live = Drive(store, "live", ttl=ttl)
            live.moved(record(1, "b.0"))
            await live.claim()
            every = {("answered", "answer"), ("released", "question"), ("dead", "lease")}
            assert await self._due(store) == every
            assert len(await store.read(ListDue(limit=2))) == 2
            assert await store.read(ListDue(limit=0)) == []

    async def _due(self, store: Store) -> set[tuple[str, str]]:
        found = await store.read(ListDue())
        assert len({each.session for each in found}) == len(found), "a session is due once"
        return {(each.session, each.why) for each in found}
