"""Questions and answers: each ends once, beside the log, whoever runs the session."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from adjourn.errors import AlreadyResumed, CheckpointNotFound, Conflict, InterruptExpired, SessionBusy, UnknownInterrupt
from adjourn.stores.kit import (
    Audit,
    Claim,
    Commit,
    GiveAnswers,
    HasInput,
    ListEvents,
    ListInputs,
    ListOpen,
    ListQuestions,
    Submit,
    Withdraw,
)
from adjourn.stores.types import Answer, Answered, Head, Input, SessionRef
from adjourn.testing.clock import FakeClock

from .bench import Bench, Drive, S, paused, question, record, refused, yes


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

    async def test_a_second_answer_is_refused(self) -> None:  # rule R3
        """And told about the first, but not what it was."""
        async with self.fresh() as store:
            run = await paused(store, "q")
            await store.write(GiveAnswers(ref=S, answers=[yes("q", b"1", by="eve")]))
            error = await refused(
                AlreadyResumed, store.write(GiveAnswers(ref=S, answers=[yes("q", b"2", by="mallory")]))
            )
            (decision,) = await store.read(Audit(S))
            assert (error.interrupt_id, error.by, error.at, error.live) == ("q", "eve", decision.at, False)
            assert decision.value == b"1"
            await run.claim()
            error = await refused(AlreadyResumed, store.write(GiveAnswers(ref=S, answers=[yes("q")])))
            assert error.live

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

    async def test_unknown_questions_are_refused(self) -> None:  # rule R1
        """With a list of the open ones; nothing is changed."""
        async with self.fresh() as store:
            await paused(store, "q1", "q2", "q3")
            await store.write(GiveAnswers(ref=S, answers=[yes("q2")]))
            for wrong in ("q4", "q1#2", "Q1", "q1 ", "", "%", "q'"):
                error = await refused(
                    UnknownInterrupt, store.write(GiveAnswers(ref=S, answers=[yes("q1"), yes(wrong)]))
                )
                assert (error.interrupt_id, error.open) == (wrong, ("q1", "q3"))
            await refused(CheckpointNotFound, store.write(GiveAnswers(ref=SessionRef("no"), answers=[yes("q1")])))
            assert [asked.id for asked in await store.read(ListOpen(S))] == ["q1", "q3"]

    async def test_answers_are_taken_all_or_none(self) -> None:  # rule R2
        """One that is too late leaves the others open; and one question has one answer."""
        async with self.fresh() as store:
            await paused(store, "q1", "q2", "q3")
            await store.write(GiveAnswers(ref=S, answers=[yes("q2")]))
            await refused(AlreadyResumed, store.write(GiveAnswers(ref=S, answers=[yes("q1"), yes("q2"), yes("q3")])))
            await refused(AlreadyResumed, store.write(GiveAnswers(ref=S, answers=[yes("q1"), yes("q1", b"false")])))
            assert [asked.id for asked in await store.read(ListOpen(S))] == ["q1", "q3"]
            await store.write(GiveAnswers(ref=S, answers=[yes("q3"), yes("q1")]))
            assert await store.read(ListOpen(S)) == []

    async def test_an_answer_can_depend_on_the_head(self) -> None:  # rule R1
        """With `after`, anything that moved makes it void."""
        async with self.fresh() as store:
            await paused(store, "q")
            await refused(Conflict, store.write(GiveAnswers(ref=S, answers=[yes("q")], after="b.0")))
            assert len(await store.read(ListOpen(S))) == 1
            await store.write(GiveAnswers(ref=S, answers=[yes("q")], after="b.1"))

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

    async def test_the_same_claim_with_answers_again_is_a_success(self) -> None:  # rule C1
        """With the same answers only."""
        async with self.fresh() as store:
            run = await paused(store, "q")
            write = run.next()
            claimed = await run.claim(write, yes("q", b"1"))
            again = await store.write(
                Claim(ref=S, owner="ann", ttl=10, after="b.1", write=write, answers=[yes("q", b"1")])
            )
            assert again.lease == claimed.lease
            other = store.write(Claim(ref=S, owner="ann", ttl=10, after="b.1", write=write, answers=[yes("q", b"2")]))
            await refused(AlreadyResumed, other)

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

    async def test_a_claim_that_must_be_alone_leaves_no_answers(self) -> None:  # rule R3
        """A live owner refuses it, and nothing was answered; an answer that came before is reported first."""
        async with self.fresh() as store:
            run = Drive(store)
            await run.start()
            await run.commit(run.next(asks=(question("q1"), question("q2"))))
            await store.write(GiveAnswers(ref=S, answers=[yes("q2")]))
            other = Drive(store, owner="bob")
            other.at = "b.1"
            busy = await refused(SessionBusy, other.claim(run.next(), yes("q1"), alone=True))
            assert busy.owner_id == "ann"
            await refused(AlreadyResumed, other.claim(run.next(), yes("q2"), alone=True))
            assert [asked.id for asked in await store.read(ListOpen(S))] == ["q1"]
            await store.write(GiveAnswers(ref=S, answers=[yes("q1")]))
            await run.commit(run.next(takes=("q1", "q2")))
            await run.commit(run.next(status="waiting", asks=(question("q3"),)), release=True)
            other.branch, other.number, other.at = run.branch, run.number, run.at
            claimed = await other.claim(other.next(), yes("q3"), alone=True)
            assert claimed.lease is not None

    async def test_a_pause_that_met_answers_can_be_repeated(self) -> None:  # rule C1
        """It says the same, and renews the lease. Since the run goes on, the events of the pause are not kept."""
        clock = FakeClock()
        async with self.fresh(clock) as store:
            run = Drive(store, ttl=10 * self.tick)
            await run.start()
            await run.commit(run.next(asks=(question("q"),)))
            await store.write(GiveAnswers(ref=S, answers=[yes("q")]))
            last = run.next(status="waiting", events=b"[1]", event_count=1)
            first = await run.commit(last, release=True)
            assert not first.released
            before = (await run.head()).expires
            await self.pass_time(clock, 7 * self.tick)
            assert await store.write(Commit(lease=run.held, writes=(last,), after="b.1", release=True)) == first
            assert (await run.head()).expires > before
            assert await store.read(ListEvents(S)) == []
            assert (await run.head()).seq == 0
            await refused(
                Conflict,
                store.write(
                    Commit(
                        lease=run.held, writes=(record(2, "b.1", b"x", status="waiting"),), after="b.1", release=True
                    )
                ),
            )

    async def test_a_pause_without_events_that_met_answers_can_be_repeated(self) -> None:  # rule C1
        """Although its record looks the same as that of a pause."""
        clock = FakeClock()
        async with self.fresh(clock) as store:
            run = Drive(store, ttl=10 * self.tick)
            await run.start(run.next(asks=(question("q"),)))
            await store.write(GiveAnswers(ref=S, answers=[yes("q")]))
            write = run.next(status="waiting")
            met = await store.write(Commit(lease=run.held, writes=(write,), after="b.0", release=True))
            assert ([answer.id for answer in met.answers], met.released) == (["q"], False)
            before = (await run.head()).expires
            await self.pass_time(clock, 7 * self.tick)
            assert await store.write(Commit(lease=run.held, writes=(write,), after="b.0", release=True)) == met
            assert (await run.head()).expires > before

    async def test_a_pause_can_be_repeated_although_answers_came_since(self) -> None:  # rule C1
        """It was made, and is over."""
        async with self.fresh() as store:
            run = Drive(store)
            await run.start()
            last = run.next(status="waiting", asks=(question("q"),), events=b"[1]", event_count=1)
            await run.commit(last, release=True)
            await store.write(GiveAnswers(ref=S, answers=[yes("q")]))
            again = await store.write(Commit(lease=run.held, writes=(last,), after="b.0", release=True))
            assert (again.released, again.answers) == (True, ())
            assert [answer.id for answer in (await run.loaded()).answers] == ["q"]

    async def test_an_end_does_not_wait_for_answers(self) -> None:
        """Only a pause has to."""
        async with self.fresh() as store:
            run = Drive(store)
            await run.start()
            await run.commit(run.next(asks=(question("q"),)))
            await store.write(GiveAnswers(ref=S, answers=[yes("q")]))
            assert (await run.end()).released

    async def test_a_question_is_checked_before_the_lease(self) -> None:  # rule R3
        """Who is too late hears so, and not that somebody is busy."""
        async with self.fresh() as store:
            run = await paused(store, "q", "r")
            loser = run.next(b"loser")
            await run.claim(run.next(), yes("q"))
            error = await refused(
                AlreadyResumed,
                store.write(Claim(ref=S, owner="bob", ttl=10, after="b.1", write=loser, answers=[yes("q")])),
            )
            assert error.live
            await refused(
                UnknownInterrupt,
                store.write(Claim(ref=S, owner="bob", ttl=10, after="b.1", write=loser, answers=[yes("x")])),
            )
            await refused(SessionBusy, store.write(Claim(ref=S, owner="bob", ttl=10, after="b.1", write=loser)))

    async def test_a_claim_with_answers_must_have_seen_the_head(self) -> None:  # rule R1
        """Else nothing is answered."""
        async with self.fresh() as store:
            run = await paused(store, "q")
            await refused(
                Conflict,
                store.write(Claim(ref=S, owner="bob", ttl=10, after="b.0", write=run.next(), answers=[yes("q")])),
            )
            assert len(await store.read(ListOpen(S))) == 1

    async def test_answers_for_a_live_owner_need_not_know_its_head(self) -> None:  # rule R3
        """It moves all the time; what counts is that the question is open."""
        async with self.fresh() as store:
            run = Drive(store)
            await run.start()
            await run.commit(run.next(asks=(question("q"),)))
            await run.steps(3)
            claimed = await store.write(
                Claim(ref=S, owner="bob", ttl=10, after="b.1", write=run.next(), answers=[yes("q")])
            )
            assert (claimed.lease, claimed.checkpoint) == (None, "b.4")

    async def test_records_of_one_commit_know_of_each_other(self) -> None:
        """A question that one of them asks, a later one can close; if one is refused, none was written."""
        async with self.fresh() as store:
            run = Drive(store)
            await run.start()
            await run.commit(run.next(asks=(question("q"),)))
            gone = (Answer(id="q", value=b"", how="abandoned"), Answer(id="r", value=b"", how="abandoned"))
            ask = record(2, "b.1", asks=(question("r"),))
            before = await run.loaded()
            for last in (
                record(4, "b.2"),
                record(3, "b.1"),
                record(3, "b.2", asks=(question("r"),)),
                record(3, "b.2", asks=(question("q"),)),
            ):
                await refused(Conflict, store.write(Commit(lease=run.held, writes=(ask, last), after="b.1")))
            close = record(3, "b.2", closes=gone)
            await refused(
                AlreadyResumed,
                store.write(Commit(lease=run.held, writes=(ask, close, record(4, "b.3", closes=gone)), after="b.1")),
            )
            unknown = record(3, "b.2", closes=(Answer(id="s", value=b"", how="abandoned"),))
            await refused(UnknownInterrupt, store.write(Commit(lease=run.held, writes=(ask, unknown), after="b.1")))
            assert await run.loaded() == before
            await store.write(Commit(lease=run.held, writes=(ask, close), after="b.1"))
            assert [each.how for each in await store.read(Audit(S))] == ["abandoned", "abandoned"]
            fork, then = record(0, "b.1", branch="c", asks=(question("q"),)), record(1, "c.0", branch="c", closes=gone)
            await refused(UnknownInterrupt, store.write(Commit(lease=run.held, writes=(fork, then), after="b.3")))
            await store.write(
                Commit(lease=run.held, writes=(fork, record(1, "c.0", branch="c", closes=gone[:1])), after="b.3")
            )

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

    async def test_taking_what_is_not_there_changes_nothing(self) -> None:
        """An open question stays open."""
        async with self.fresh() as store:
            run = Drive(store)
            await run.start()
            await run.commit(run.next(asks=(question("q"),)))
            await run.commit(run.next(takes=("q", "nothing")))
            await store.write(GiveAnswers(ref=S, answers=[yes("q")]))
            assert [answer.id for answer in (await run.loaded()).answers] == ["q"]
            assert not (await run.pause()).released
