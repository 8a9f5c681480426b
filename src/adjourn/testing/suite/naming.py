"""Names: a session is its app and its id, and belongs to its user."""

from __future__ import annotations

from collections.abc import Awaitable

from adjourn.errors import CheckpointNotFound
from adjourn.stores.kit import (
    Audit,
    Cancel,
    Claim,
    Commit,
    Delete,
    DeleteIdle,
    GetHead,
    GiveAnswers,
    ListAsked,
    ListCheckpoints,
    ListDue,
    ListEvents,
    ListOpen,
    ListQuestions,
    ListSessions,
    Load,
    Prune,
)
from adjourn.stores.protocol import Store
from adjourn.stores.types import Lease, QuestionFilter, SessionRef
from adjourn.testing.clock import FakeClock

from .bench import Bench, Drive, question, record, refused, yes

MINE = SessionRef("s", "shop", "ann")
OTHERS = (SessionRef("s", "shop", "bob"), SessionRef("s", "desk", "ann"), SessionRef("s"), SessionRef("S", "shop"))
"""Names that are near to `MINE` and mean another session, or none."""


class NamingSuite(Bench):
    """Which session a call means."""

    async def test_one_id_in_two_apps_is_two_sessions(self) -> None:  # rule C12
        """Each with its own log, lease, questions and answers."""
        async with self.fresh() as store:
            shop, desk = Drive(store), Drive(store, owner="bob")
            await shop.start(app="shop")
            await desk.start(app="desk")
            await shop.commit(shop.next(b"of the shop", asks=(question("q"),)))
            assert (await desk.loaded()).rows == (b"b0",)
            await refused(Exception, store.write(GiveAnswers(ref=desk.ref, answers=[yes("q")])))
            await store.write(GiveAnswers(ref=shop.ref, answers=[yes("q")]))
            assert await store.read(Audit(desk.ref)) == []
            assert await store.write(Cancel(desk.ref, "now"))
            assert [state.cancel for state in await store.renew([shop.held, desk.held])] == [None, "now"]
            await desk.end()
            assert [(each.app, each.session) for each in await store.read(ListSessions(status="done"))] == [
                ("desk", "s")
            ]
            await store.write(Delete(desk.ref))
            assert await store.read(GetHead(desk.ref)) is None
            assert (await shop.loaded()).rows == (b"b0", b"of the shop")

    async def test_a_name_in_part_means_nothing(self) -> None:  # rule C12
        """Apps and ids are never joined to one text in which they could be mistaken."""
        async with self.fresh() as store:
            names = [("a", "b:c"), ("a:b", "c"), ("a", "b/c"), ("a/b", "c"), ("", "abc"), ("abc", "")]
            for number, (app, name) in enumerate(names):
                run = Drive(store, name)
                await run.start(run.next(b"%d" % number), app=app)
            for number, (app, name) in enumerate(names):
                loaded = await store.read(Load(SessionRef(name, app)))
                assert loaded is not None
                assert (loaded.head.app, loaded.head.session, loaded.rows) == (app, name, (b"%d" % number,))

    async def test_whoever_names_no_user_finds_every_session(self) -> None:  # rule C12
        """A user is a condition, not a part of the name."""
        async with self.fresh() as store:
            run = await _owned(store)
            found = await store.read(GetHead(SessionRef("s", "shop")))
            assert found is not None
            assert (found.user, found.ref) == ("ann", MINE)
            assert found == await store.read(GetHead(MINE))
            assert (run.held.ref.app, run.held.ref.id) == ("shop", "s")
            assert len(await store.read(ListOpen(SessionRef("s", "shop")))) == 1

    async def test_another_users_session_is_not_found(self) -> None:  # rule C12
        """By any call, in the words for one that does not exist; nothing is written."""
        async with self.fresh() as store:
            await _owned(store)
            before = await _everything(store)
            for ref in OTHERS:
                assert await store.read(Load(ref)) is None
                assert await store.read(GetHead(ref)) is None
                assert await store.read(ListOpen(ref)) == []
                await store.write(Delete(ref))
                for call in _calls(store, ref):
                    error = await refused(CheckpointNotFound, call)
                    assert (error.session_id, error.checkpoint_id) == (ref.id, None)
            assert await _everything(store) == before

    async def test_another_user_cannot_begin_a_session_that_exists(self) -> None:  # rule C12
        """Nor does it help to know its owner, its fence or its first record."""
        async with self.fresh() as store:
            run = await _owned(store)
            before, wrong = await _everything(store), SessionRef("s", "shop", "bob")
            for write in (record(0, None), record(0, None, b"mine now")):
                await refused(
                    CheckpointNotFound, store.write(Claim(ref=wrong, owner="ann", ttl=10, after=None, write=write))
                )
            lease = Lease(ref=wrong, owner=run.held.owner, fence=run.held.fence, ttl=10)
            await refused(
                CheckpointNotFound, store.write(Commit(lease=lease, writes=(run.next(),), after=run.checkpoint))
            )
            assert [state.lost for state in await store.renew([lease])] == [True]
            assert await _everything(store) == before

    async def test_apps_of_the_library_must_be_named(self) -> None:  # rule C12
        """What it keeps for itself is neither listed nor cleaned up with the sessions of people."""
        clock = FakeClock()
        async with self.fresh(clock) as store:
            for app in ("~shop", "shop"):
                run = Drive(store, ttl=self.tick)
                await run.start(app=app)
                await run.commit(run.next(asks=(question("q"),)))
            await self.pass_time(clock, 20 * self.tick)
            assert [each.app for each in await store.read(ListSessions())] == ["shop"]
            assert [each.app for each in await store.read(ListQuestions())] == ["shop"]
            assert [each.app for each in await store.read(ListDue())] == ["shop"]
            assert [each.app for each in await store.read(ListSessions(app="~shop"))] == ["~shop"]
            assert [each.app for each in await store.read(ListQuestions(filter=QuestionFilter(app="~shop")))] == [
                "~shop"
            ]
            assert len(await store.read(ListOpen(SessionRef("s", "~shop")))) == 1
            assert [each.app for each in await store.read(ListDue(app="~shop"))] == ["~shop"]
            assert [each.app for each in await store.write(DeleteIdle(ttl=10 * self.tick))] == ["shop"]
            assert await store.read(GetHead(SessionRef("s", "~shop"))) is not None
            assert [each.app for each in await store.write(DeleteIdle(ttl=10 * self.tick, app="~shop"))] == ["~shop"]

    async def test_what_is_due_or_idle_by_app_and_user(self) -> None:  # rule C12
        """One by one and together."""
        clock = FakeClock()
        async with self.fresh(clock) as store:
            for name, app, user in (
                ("s", "shop", "ann"),
                ("t", "shop", "bob"),
                ("s", "desk", "ann"),
                ("t", "desk", None),
            ):
                await Drive(store, name, ttl=self.tick).start(app=app, user=user)
            await self.pass_time(clock, 20 * self.tick)

            async def due(app: str | None = None, user: str | None = None) -> list[str]:
                return sorted(f"{each.app}/{each.session}" for each in await store.read(ListDue(app=app, user=user)))

            assert await due() == ["desk/s", "desk/t", "shop/s", "shop/t"]
            assert await due(app="shop") == ["shop/s", "shop/t"]
            assert await due(user="ann") == ["desk/s", "shop/s"]
            assert await due("desk", "bob") == []
            assert await store.write(DeleteIdle(ttl=10 * self.tick, app="desk", user="bob")) == []
            assert await store.write(DeleteIdle(ttl=10 * self.tick, app="shop", user="ann")) == [MINE]
            assert await due() == ["desk/s", "desk/t", "shop/t"]
            assert len(await store.write(DeleteIdle(ttl=10 * self.tick, app="desk"))) == 2
            assert await due() == ["shop/t"]


async def _owned(store: Store) -> Drive:
    """A session that `MINE` names, with a question that waits while it runs."""
    run = Drive(store, MINE.id)
    await run.start(app=MINE.app, user=MINE.user)
    await run.commit(run.next(asks=(question("q"),), events=b"[1]", event_count=1))
    return run


def _calls(store: Store, ref: SessionRef) -> list[Awaitable[object]]:
    """Every call that needs the session to be there."""
    return [
        store.write(Claim(ref=ref, owner="eve", ttl=10, after="b.1", replaces="ann")),
        store.write(Claim(ref=ref, owner="eve", ttl=10, after="b.1", write=record(2, "b.1"), replaces="ann")),
        store.write(Claim(ref=ref, owner="eve", ttl=10, after="b.1", answers=[yes("q")])),
        store.write(GiveAnswers(ref=ref, answers=[yes("q")])),
        store.read(ListCheckpoints(ref)),
        store.read(Audit(ref)),
        store.read(ListAsked(ref, "b", ["q"])),
        store.read(ListEvents(ref)),
        store.write(Cancel(ref, "now")),
        store.write(Prune(ref, keep=0)),
    ]


async def _everything(store: Store) -> object:
    return [
        await store.read(Load(MINE)),
        await store.read(ListCheckpoints(MINE)),
        await store.read(Audit(MINE)),
        await store.read(ListEvents(MINE)),
        await store.read(ListSessions()),
        await store.read(ListQuestions()),
    ]
