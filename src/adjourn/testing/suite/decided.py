"""Decisions: who has decided what, over many sessions, and who may not."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import get_args

from msgspec.structs import replace

from adjourn.errors import AlreadyResumed, AnswerRefused, UsageError
from adjourn.stores.kit import Commit, Delete, GiveAnswers, ListDecisions
from adjourn.stores.protocol import Store
from adjourn.stores.types import Answer, Answered, Decided, DecisionFilter, Outcome, Question
from adjourn.testing.clock import FakeClock

from .bench import Bench, Drive, paused, question, refused, yes

_HOW: tuple[Outcome, ...] = get_args(Outcome)
_PEOPLE = (None, "ann", "bob", "%", "")


class DecisionSuite(Bench):
    """Which decisions a filter selects, in which order, and in which pages; and whose approvals do not count."""

    async def test_filters_select_the_decisions_that_a_plain_search_selects(self) -> None:
        """Any combination of them, with limits and cursors, most recent first."""
        chance, clock = random.Random(5), FakeClock()
        async with self.fresh(clock) as store:
            made = await self._decide(store, chance, clock)
            for _ in range(80):
                wanted = _some_filter(chance, [each.at or 0.0 for each in made])
                expected = [_name(each) for each in reversed(made) if _is_wanted(wanted, each)]
                found = await store.read(ListDecisions(filter=wanted))
                assert [_name(each) for each in found] == expected, wanted
                place = chance.randrange(len(found) + 1)
                after = found[place - 1].cursor if place else None
                assert await store.read(ListDecisions(filter=wanted, after=after, limit=2)) == found[place : place + 2]
            shown = {_name(each): each for each in await store.read(ListDecisions())}
            for each in made:
                if not each.app.startswith("~"):
                    found_one = shown[_name(each)]
                    assert (found_one.value, found_one.by, found_one.at) == (each.value, each.by, each.at)
                    assert (found_one.body, found_one.reason, found_one.tags) == (b"{}", "why", ("t",))
            for session, app in {(each.session, each.app) for each in made[::2]}:
                await store.write(Delete(ref=(await self._session(store, session, app)).ref))
            gone = {each.session for each in made[::2]}
            left = [_name(each) for each in reversed(made) if each.session not in gone and each.app[0] != "~"]
            assert [_name(each) for each in await store.read(ListDecisions())] == left

    async def _session(self, store: Store, session: str, app: str) -> Drive:
        run = Drive(store, session)
        run.ref = type(run.ref)(session, app)
        return run

    async def _decide(self, store: Store, chance: random.Random, clock: FakeClock) -> list[Decided]:
        """Let some people decide, and return what is to be listed, in the order in which it was decided."""
        waiting: list[tuple[Drive, str | None, Question]] = []
        for number in range(10):
            run, user = Drive(store, f"s{number}"), chance.choice((None, "u1", "u2"))
            await run.start(app=chance.choice(("shop", "desk", "~own")), user=user)
            asks = [
                Question(id=f"q{each}", body=b"{}", agent=chance.choice(("A", "B", "")), reason="why", tags=("t",))
                for each in range(chance.randrange(4))
            ]
            await run.pause(*asks)
            waiting += [(run, user, each) for each in asks]
        chance.shuffle(waiting)
        made: list[Decided] = []
        for run, user, asked in waiting[3:]:  # the others stay open
            await self.pass_time(clock, self.tick * chance.choice((0, 1)))
            by, how = chance.choice(_PEOPLE), chance.choice(_HOW)
            await store.write(GiveAnswers(run.ref, [Answer(id=asked.id, value=b"1", how=how, by=by)]))
            if how != "abandoned":
                made.append(_decided(run, user, asked, how, by))
        times = {_name(each): each.at for each in await store.read(ListDecisions(filter=DecisionFilter(app="~own")))}
        times |= {_name(each): each.at for each in await store.read(ListDecisions())}
        return [replace(each, at=times[_name(each)]) for each in made]

    async def test_what_was_taken_over_is_not_decided_again(self) -> None:
        """A branch has the answers of the one before it, and they are listed once; so are those of branches left."""
        async with self.fresh() as store:
            run = await paused(store, "q", "p")
            await store.write(GiveAnswers(run.ref, [yes("q", by="ann")]))
            base, run.branch, run.number = run.checkpoint, "c", -1
            ended = Answered(id="q", value=b"true", how="answered", by="ann", at=1.0)
            taken_over = Question(id="q", body=b"{}", ended=ended)
            run.at = base
            await run.claim(run.next(asks=(taken_over, question("p"))))
            await run.commit(run.next(status="waiting"), release=True)
            await store.write(GiveAnswers(run.ref, [yes("p", by="bob")]))
            found = await store.read(ListDecisions())
            assert [(each.id, each.by, each.branch) for each in found] == [("p", "bob", "c"), ("q", "ann", "b")]

    async def test_a_decision_of_the_run_itself_is_listed(self) -> None:
        """A claim may answer, and a record may end what has expired, also what the same write asks."""
        async with self.fresh() as store:
            run = await paused(store, "q", "p")
            await run.claim(run.next(takes=("q",)), yes("q", by="ann"))
            await run.commit(run.next(closes=(Answer(id="p", value=b"null", how="expired"),)))
            found = await store.read(ListDecisions())
            assert [(each.id, each.how, each.by) for each in found] == [
                ("p", "expired", None),
                ("q", "answered", "ann"),
            ]
            assert await store.read(ListDecisions(filter=DecisionFilter(by=""))) == found[:1]
            late = Question(id="late", body=b"{}", agent="A")
            first = run.next(asks=(late,))
            run.moved(first)
            second = run.next(closes=(Answer(id="late", value=b"null", how="expired"),))
            await store.write(Commit(lease=run.held, writes=(first, second), after=first.parent or ""))
            run.moved(second)
            for wanted in (
                DecisionFilter(agent="A"),
                DecisionFilter(agent="A", how="expired"),
                DecisionFilter(by="", agent="A", app=run.ref.app),
            ):
                assert [each.id for each in await store.read(ListDecisions(filter=wanted))] == ["late"]
            await run.end()
            await store.write(Delete(run.ref))
            assert await store.read(ListDecisions()) == []

    async def test_a_cursor_that_is_none_is_refused(self) -> None:
        """Whatever it says."""
        async with self.fresh() as store:
            for wrong in ("", "x", "1_", "nan_1", "1.0_99999999999999999999999999999"):
                await refused(UsageError, store.read(ListDecisions(after=wrong)))

    async def test_nobody_approves_what_they_ask_for(self) -> None:  # rule V19
        """Not by any request, whether or not this store has read the question; they may refuse it."""
        async with self.fresh() as store:
            for number, by in enumerate(("ann", None, "ann")):
                run = Drive(store, f"s{number}")
                await run.start()
                await run.pause(Question(id="q", body=b"{}", requesters=("", "ann")), question("p"))
                given = Answer(id="q", value=b"true", by=by)
                if number == 2:  # as another process, which has read what it goes on with
                    await run.loaded()
                await refused(AnswerRefused, store.write(GiveAnswers(run.ref, [yes("p"), given])))
                await refused(AnswerRefused, run.claim(run.next(takes=("q", "p")), yes("p"), given))
                await store.write(GiveAnswers(run.ref, [Answer(id="q", value=b"no", by="ann", approves=False)]))
                await refused(AlreadyResumed, store.write(GiveAnswers(run.ref, [yes("q", by="bob")])))
            assert [(each.id, each.value) for each in await store.read(ListDecisions())] == [("q", b"no")] * 3


def _name(each: Decided) -> tuple[str, str]:
    return each.session, each.id


def _decided(run: Drive, user: str | None, asked: Question, how: Outcome, by: str | None) -> Decided:
    return Decided(
        session=run.session,
        app=run.ref.app,
        user=user,
        branch="b",
        id=asked.id,
        body=b"{}",
        expires=None,
        value=b"1",
        how=how,
        by=by,
        at=None,
        agent=asked.agent,
    )


def _some_filter(chance: random.Random, times: Sequence[float]) -> DecisionFilter:
    return DecisionFilter(
        app=chance.choice((None, None, "shop", "~own")),
        user=chance.choice((None, None, "u1", "u2")),
        by=chance.choice((None, None, "ann", "bob", "%", "", "nobody")),
        agent=chance.choice((None, None, "A", "B", "")),
        how=chance.choice((None, None, "answered", "expired")),
        since=chance.choice((None, *times)),
        until=chance.choice((None, *times)),
    )


def _is_wanted(wanted: DecisionFilter, each: Decided) -> bool:
    at = each.at or 0.0
    return (
        (wanted.app == each.app or (wanted.app is None and not each.app.startswith("~")))
        and wanted.user in (None, each.user)
        and wanted.by in (None, each.by or "")
        and wanted.agent in (None, each.agent)
        and wanted.how in (None, each.how)
        and (wanted.since is None or at >= wanted.since)
        and (wanted.until is None or at < wanted.until)
    )
