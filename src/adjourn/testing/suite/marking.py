"""Marks: who has taken an open question, whom it is for, what is due for it, and notes on it."""

from __future__ import annotations

import asyncio

from adjourn.errors import AlreadyResumed, CheckpointNotFound, UnknownInterrupt
from adjourn.stores.kit import CountQuestions, GiveAnswers, ListDue, ListOpen, ListQuestions, Mark, notes_in
from adjourn.stores.protocol import Store
from adjourn.stores.types import Note, Question, QuestionFilter, SessionRef
from adjourn.testing.clock import FakeClock

from .bench import Bench, Drive, S, paused, refused, yes


class MarkSuite(Bench):
    """What changes about a question while it is open."""

    async def test_a_question_moves_in_the_inbox(self) -> None:
        """Under its new taker and groups it is found, under the old ones no more, whoever runs the session."""
        async with self.fresh() as store:
            run = Drive(store)
            await run.start(user="u")
            first = Question(id="q", body=b"{}", agent="A", tags=("t",), groups=("desk", "night"), expires=4e9)
            await run.pause(first, Question(id="p", body=b"{}", agent="A"))
            await _expect(store, ["q"], group="night", tag="t")
            await store.write(Mark(ref=S, id="q", taker="ann", groups=("desk", "chiefs")))
            await _expect(store, ["q"], taker="ann", group="chiefs", agent="A", user="u", tag="t")
            await _expect(store, [], group="night")
            await run.claim(run.next())
            await store.write(Mark(ref=S, id="q", taker="bob"))
            await store.write(Mark(ref=S, id="p", taker="bob"))
            await run.commit(run.next())  # its owner has not seen any of this, and does not have to
            await _expect(store, ["q", "p"], taker="bob", agent="A")
            await _expect(store, [], taker="ann")
            await store.write(Mark(ref=S, id="p", taker=None))
            await _expect(store, ["q"], taker="bob")
            await _expect(store, ["q", "p"], agent="A")
            await store.write(GiveAnswers(S, [yes("q")]))
            await _expect(store, ["p"])

    async def test_a_question_keeps_notes(self) -> None:
        """One of each kind and name; writers at the same moment do not lose those of others."""
        clock = FakeClock()
        async with self.fresh(clock) as store:
            await paused(store, "q", "p")
            notes = [Note(kind="delivered", name=f"desk {n}", text=f"message {n}") for n in range(8)]
            await asyncio.gather(*[store.write(Mark(ref=S, id="q", note=each)) for each in notes])
            taken = Note(kind="taken", by="ann", until=clock() + 60.0)
            await store.write(Mark(ref=S, id="q", note=taken))
            await store.write(Mark(ref=S, id="q", note=Note(kind="taken", by="bob")))
            for query in (ListOpen(S), ListQuestions()):
                asked, other = await store.read(query)
                found = {(each.kind, each.name): each for each in notes_in(asked.notes)}
                assert len(found) == len(notes_in(asked.notes)) == 9
                assert {each.text for each in found.values()} == {"", *[f"message {n}" for n in range(8)]}
                assert (found["taken", ""].by, found["taken", ""].until) == ("bob", None)
                assert all(each.at > 0.0 for each in found.values())
                assert other.notes == b""

    async def test_what_is_due_for_a_question(self) -> None:
        """By default it expires; something else may be due before, and then again."""
        clock = FakeClock()
        async with self.fresh(clock) as store:
            run = Drive(store)
            await run.start()
            soon, late = clock() + self.tick, clock() + 1e6
            await run.pause(Question(id="q", body=b"{}", expires=late, due=soon, due_kind="reminder"))
            assert await store.read(ListDue()) == []
            await self.pass_time(clock, 2 * self.tick)
            (due,) = await store.read(ListDue())
            assert (due.session, due.why, due.since) == ("s", "question", soon)
            await store.write(Mark(ref=S, id="q", due=(late, "expiry"), note=Note(kind="reminded")))
            assert await store.read(ListDue()) == []
            await store.write(Mark(ref=S, id="q", due=(soon, "escalation")))
            assert [each.since for each in await store.read(ListDue())] == [soon]
            await store.write(Mark(ref=S, id="q", due=None))
            assert await store.read(ListDue()) == []
            assert [each.id for each in await store.read(ListQuestions(order="expiry"))] == ["q"]

    async def test_only_an_open_question_is_marked(self) -> None:
        """Anything else is refused, and nothing is written."""
        async with self.fresh() as store:
            run = await paused(store, "q", "p")
            await store.write(GiveAnswers(S, [yes("q")]))
            await refused(AlreadyResumed, store.write(Mark(ref=S, id="q", taker="ann")))
            await run.claim(run.next(takes=("q",)))
            await refused(AlreadyResumed, store.write(Mark(ref=S, id="q", taker="ann")))
            unknown = await refused(UnknownInterrupt, store.write(Mark(ref=S, id="z", taker="ann")))
            assert unknown.open == ("p",)
            await refused(CheckpointNotFound, store.write(Mark(ref=SessionRef("gone"), id="q", taker="ann")))
            await _expect(store, [], taker="ann")


async def _expect(store: Store, ids: list[str], **wanted: str) -> None:
    chosen = QuestionFilter(**wanted)  # pyright: ignore[reportArgumentType]
    for query in (ListQuestions(filter=chosen), ListOpen(S, chosen)):
        assert [each.id for each in await store.read(query)] == ids
    assert await store.read(CountQuestions(chosen)) == len(ids)
