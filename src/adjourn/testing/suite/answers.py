"""Questions and answers: each ends once, beside the log, whoever runs the session."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from adjourn.errors import AlreadyResumed, Conflict, InterruptExpired, UnknownInterrupt
from adjourn.stores.kit import (
    Audit,
    Claim,
    GiveAnswers,
    HasInput,
    ListInputs,
    ListOpen,
    ListQuestions,
    Submit,
    Withdraw,
)
from adjourn.stores.types import Answer, Answered, Head, Input
from adjourn.testing.clock import FakeClock

from .bench import Bench, Drive, S, paused, question, refused, yes


class AnswerSuite(Bench):
    """Rules R3, R4 and R11."""

    async def test_an_id_of_a_call_stands_for_one_thing(self) -> None:  # rule R20
        """Whether answers or an input come under it, also at once."""
        async with self.fresh() as store:
            run = await paused(store, "p", "q", "r", "s")
            calls = [GiveAnswers(ref=S, answers=[replace(yes(each), call="k")]) for each in "pq"]
            results = await asyncio.gather(*map(store.write, calls), return_exceptions=True)
            assert sorted(type(each).__name__ for each in results) == ["Conflict", "Head"]
            await refused(Conflict, store.write(Submit(ref=S, input=Input(id="k", body=b"{}"))))
            await refused(Conflict, store.write(GiveAnswers(ref=S, answers=[replace(yes("r"), call="k")])))
            assert not await store.read(HasInput(S, "k"))
            assert await store.read(ListInputs(S)) == []
            await store.write(Submit(ref=S, input=Input(id="i", body=b"{}")))
            await refused(Conflict, store.write(GiveAnswers(ref=S, answers=[replace(yes("r"), call="i")])))
            assert [each.id for each in await store.read(ListInputs(S))] == ["i"]
            await store.write(Withdraw(S, "i"))
            claimed = await run.claim(run.next(), replace(yes("r"), call="l"), replace(yes("s"), call="l"))
            assert claimed.lease is not None
            await refused(Conflict, store.write(Submit(ref=S, input=Input(id="l", body=b"{}"))))

    async def test_an_answer_is_kept_for_the_run(self) -> None:  # rule R4
        """With who gave it and when."""
        clock = FakeClock()
        async with self.fresh(clock) as store:
            run = await paused(store, "q")
            head = await store.write(GiveAnswers(ref=S, answers=[yes("q", b"42", by="eve")]))
            assert head == await run.head()
            (answer,) = (await run.loaded()).answers
            assert answer == Answered(id="q", value=b"42", how="answered", by="eve", at=answer.at)
            (decision,) = await store.read(Audit(S))
            assert (decision.value, decision.how, decision.by, decision.at) == (b"42", "answered", "eve", answer.at)
            assert await store.read(ListQuestions()) == []
            assert (await run.loaded("b.0")).answers == ()
            assert (await run.loaded("b.1")).answers == (answer,)

    async def test_of_many_answers_one_wins(self) -> None:  # rule R3
        """All at once, by `answer` and by `claim`."""
        async with self.fresh() as store:
            run = await paused(store, "q")
            tries = [
                store.write(GiveAnswers(ref=S, answers=[yes("q", b"%d" % n)]))
                if n % 2
                else store.write(
                    Claim(
                        ref=S,
                        owner=f"o{n}",
                        ttl=10,
                        after="b.1",
                        write=run.next(b"%d" % n),
                        answers=[yes("q", b"%d" % n)],
                    )
                )
                for n in range(40)
            ]
            results = await asyncio.gather(*tries, return_exceptions=True)
            won = [n for n, result in enumerate(results) if not isinstance(result, BaseException)]
            assert len(won) == 1
            assert sum(isinstance(result, AlreadyResumed) for result in results) == 39
            (decision,) = await store.read(Audit(S))
            assert decision.value == b"%d" % won[0]

    async def test_different_questions_are_answered_by_different_people(self) -> None:  # rule R3
        """At the same time."""
        async with self.fresh() as store:
            ids = [f"q{n}" for n in range(20)]
            run = await paused(store, *ids)
            heads = await asyncio.gather(
                *(store.write(GiveAnswers(ref=S, answers=[yes(each, by=each)])) for each in ids)
            )
            assert all(isinstance(head, Head) for head in heads)
            assert [answer.by for answer in (await run.loaded()).answers] == ids

    async def test_a_late_answer_is_refused(self) -> None:  # rule R11
        """By the store's clock, except for the answer that says so."""
        clock = FakeClock()
        async with self.fresh(clock) as store:
            run = Drive(store)
            await run.start()
            created = (await run.head()).created
            await run.pause(question("q", expires=created + 10 * self.tick), question("r"))
            await self.pass_time(clock, 5 * self.tick)
            assert [asked.id for asked in await store.read(ListQuestions())] == ["q", "r"]
            await self.pass_time(clock, 6 * self.tick)
            assert [asked.id for asked in await store.read(ListQuestions())] == ["r"]
            error = await refused(InterruptExpired, store.write(GiveAnswers(ref=S, answers=[yes("r"), yes("q")])))
            assert error.interrupt_id == "q"
            await refused(InterruptExpired, run.claim(run.next(), yes("q")))
            await store.write(GiveAnswers(ref=S, answers=[Answer(id="q", value=b"null", how="expired")]))
            await refused(
                AlreadyResumed, store.write(GiveAnswers(ref=S, answers=[Answer(id="q", value=b"null", how="expired")]))
            )
            await refused(InterruptExpired, store.write(GiveAnswers(ref=S, answers=[yes("q")])))
            (decision, _) = await store.read(Audit(S))
            assert decision.how == "expired"
            (answer,) = (await run.loaded()).answers
            assert answer.how == "expired"

    async def test_a_claim_takes_its_answers_with_its_record(self) -> None:  # rule R4
        """So that a run which dies then has them, and no record has to take them again."""
        async with self.fresh() as store:
            run = await paused(store, "q1", "q2")
            claimed = await run.claim(run.next(), yes("q1", by="eve"))
            assert claimed.lease is not None
            assert claimed.checkpoint == "b.2"
            loaded = await run.loaded()
            assert (loaded.answers, loaded.rows) == ((), (b"b0", b"b1", b"b2"))
            assert [(each.how, each.by) for each in await store.read(Audit(S))] == [
                ("answered", "eve"),
                (None, None),
            ]
            assert (await run.pause()).released

    async def test_a_claim_without_a_record_leaves_its_answers_to_be_taken(self) -> None:  # rule R4
        """They come with the load."""
        async with self.fresh() as store:
            run = await paused(store, "q")
            await run.claim(None, yes("q"))
            assert [answer.id for answer in (await run.loaded()).answers] == ["q"]
            await run.commit(run.next(takes=("q",)))
            assert (await run.loaded()).answers == ()

    async def test_a_live_owner_gets_the_answers(self) -> None:  # rule R3
        """The caller gets no lease, and the owner cannot pause before it has taken them up."""
        async with self.fresh() as store:
            run = Drive(store)
            await run.start()
            await run.commit(run.next(asks=(question("q1"), question("q2"))))
            claimed = await store.write(
                Claim(ref=S, owner="bob", ttl=10, after="b.1", write=run.next(b"bob's"), answers=[yes("q1")])
            )
            assert claimed.lease is None
            assert ((await run.head()).owner, claimed.checkpoint) == ("ann", "b.1")
            await store.write(GiveAnswers(ref=S, answers=[yes("q2")]))
            committed = await run.pause()
            assert not committed.released
            assert [answer.id for answer in committed.answers] == ["q1", "q2"]
            head = await run.head()
            assert (head.owner, head.status, head.checkpoint) == ("ann", "running", "b.2")
            await run.commit(run.next(takes=("q1",)))
            committed = await run.pause()
            assert [answer.id for answer in committed.answers] == ["q2"]
            committed = await run.commit(run.next(status="waiting", takes=("q2",)), release=True)
            assert (committed.released, committed.answers) == (True, ())

    async def test_a_record_can_close_questions(self) -> None:
        """As abandoned or expired; they are then ended for everybody."""
        clock = FakeClock()
        async with self.fresh(clock) as store:
            run = Drive(store)
            await run.start()
            created = (await run.head()).created
            await run.pause(question("q1"), question("q2"), question("q3", expires=created + self.tick))
            await self.pass_time(clock, 2 * self.tick)
            closes = (
                Answer(id="q1", value=b"null", how="abandoned", by="ann"),
                Answer(id="q3", value=b"null", how="expired"),
            )
            await run.claim(run.next(closes=closes))
            assert [(each.id, each.how) for each in await store.read(Audit(S))] == [
                ("q1", "abandoned"),
                ("q2", None),
                ("q3", "expired"),
            ]
            assert (await run.loaded()).answers == ()
            await refused(AlreadyResumed, store.write(GiveAnswers(ref=S, answers=[yes("q1")])))
            await run.commit(run.next(closes=(Answer(id="q2", value=b"null", how="abandoned"),)))
            assert await store.read(ListOpen(S)) == []
            assert (await run.pause()).released

    async def test_a_record_cannot_close_what_was_answered(self) -> None:  # rule R3
        """The answer stands, and nothing of the record is written."""
        async with self.fresh() as store:
            run = Drive(store)
            await run.start()
            await run.commit(run.next(asks=(question("q"), question("r"))))
            await store.write(GiveAnswers(ref=S, answers=[yes("q")]))
            closes = tuple(Answer(id=each, value=b"null", how="abandoned") for each in ("r", "q"))
            await refused(AlreadyResumed, run.commit(run.next(closes=closes)))
            await refused(UnknownInterrupt, run.commit(run.next(closes=(yes("x"),))))
            assert (await run.head()).checkpoint == "b.1"
            assert [(each.id, each.how) for each in await store.read(Audit(S))] == [
                ("q", "answered"),
                ("r", None),
            ]

    async def test_a_question_is_asked_once_on_a_branch(self) -> None:  # rule C8
        """Whether it is open or has ended."""
        async with self.fresh() as store:
            run = Drive(store)
            await run.start()
            await run.commit(run.next(asks=(question("q"),)))
            await refused(Conflict, run.commit(run.next(asks=(question("r"), question("q", b"other")))))
            await store.write(GiveAnswers(ref=S, answers=[yes("q")]))
            await refused(Conflict, run.commit(run.next(asks=(question("q"),))))
            await refused(Conflict, run.commit(run.next(asks=(question("r"), question("r")))))
            assert [each.id for each in await store.read(Audit(S))] == ["q"]
            assert (await run.head()).checkpoint == "b.1"
