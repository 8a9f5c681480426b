"""The log: atomic commits by compare-and-swap, idempotent when repeated, and loading what they wrote."""

from __future__ import annotations

import asyncio

from adjourn.errors import AdjournError, AlreadyResumed, CheckpointNotFound, Conflict, NotStorable, UnknownInterrupt
from adjourn.stores.kit import (
    Audit,
    Claim,
    Commit,
    GetHead,
    GiveAnswers,
    ListBranches,
    ListCheckpoints,
    ListEvents,
    ListOpen,
    ListQuestions,
    ListRecords,
    ListSessions,
    Load,
    Prune,
)
from adjourn.stores.types import EventBatch, Header, SessionRef
from adjourn.testing.clock import FakeClock

from .bench import Bench, Drive, S, paused, question, record, refused, went_on, yes

HOSTILE = (
    *("%", "%s", "_", "*", "' OR 1=1 --", '"', "\\", ";", "a;b", "{x}", "$1", "?", "..", "/etc/passwd", " ", "\n"),
    *("a\x00b", "\x00", "é", "日本語", "😀", "\u202e", "x" * 10_000),
)
"""Strings that meant something to one database or another."""


class LogSuite(Bench):
    """Rules C1 to C3, C9 and C12."""

    async def test_a_new_session_has_its_first_record_as_head(self) -> None:  # rule C12
        """Everything that was given is there."""
        clock = FakeClock()
        async with self.fresh(clock) as store:
            run = Drive(store)
            claimed = await run.start(run.next(b"one", header=Header(source="input")), app="shop", user="u1")
            head = await run.head()
            assert (claimed.checkpoint, claimed.seq, claimed.claims) == (head.checkpoint, head.seq, head.claims)
            assert (head.session, head.app, head.user, head.status) == ("s", "shop", "u1", "running")
            assert (head.checkpoint, head.branch, head.owner, head.seq) == ("b.0", "b", "ann", 0)
            assert head.created == head.updated
            assert (await run.loaded()).rows == (b"one",)

    async def test_a_commit_moves_the_head(self) -> None:
        """And a load gives what folds to it."""
        clock = FakeClock()
        async with self.fresh(clock) as store:
            run = Drive(store)
            await run.start()
            await self.pass_time(clock, self.tick)
            assert went_on(await run.commit())
            head = await run.head()
            assert head.checkpoint == "b.1"
            assert head.updated > head.created
            loaded = await run.loaded()
            assert (loaded.head, loaded.point, loaded.rows, loaded.answers) == (head, "b.1", (b"b0", b"b1"), ())

    async def test_loading_begins_at_the_last_full_record(self) -> None:  # rule C3
        """At the head, and at any point before it."""
        async with self.fresh() as store:
            run = Drive(store)
            await run.start()
            for number in range(1, 8):
                await run.commit(run.next(full=number in (3, 6)))
            assert (await run.loaded()).rows == (b"b6", b"b7")
            expected = {0: "0", 1: "01", 2: "012", 3: "3", 4: "34", 5: "345", 6: "6", 7: "67"}
            for number, rows in expected.items():
                loaded = await run.loaded(f"b.{number}")
                assert loaded.point == f"b.{number}"
                assert loaded.rows == tuple(f"b{digit}".encode() for digit in rows)
                assert loaded.head.checkpoint == "b.7"

    async def test_unknown_checkpoints(self) -> None:
        """Whatever their ids look like."""
        async with self.fresh() as store:
            run = Drive(store)
            await run.start()
            await run.steps(1)
            for wrong in ("b.2", "b.-1", "b.", "b", "", ".", "c.0", "b.0.0", "b.01", "b.+1", "b.1 ", "b.1_0", "b.٣"):
                error = await refused(CheckpointNotFound, store.read(Load(S, wrong)))
                assert error.checkpoint_id == wrong

    async def test_of_records_that_come_together_all_are_kept_or_none(self) -> None:  # rule C1
        """Whichever of them is refused, and for whatever reason."""
        async with self.fresh() as store:
            run = await paused(store, "q", "r")
            await run.claim(run.next())
            head, before = await run.head(), await store.read(Audit(S))
            start = int(head.checkpoint.removeprefix("b."))
            fine = record(start + 1, head.checkpoint, asks=(question("new"),), closes=(yes("q"),))
            bad = {
                Conflict: record(start + 3, fine.id),
                UnknownInterrupt: record(start + 2, fine.id, closes=(yes("never asked"),)),
                AlreadyResumed: record(start + 2, fine.id, closes=(yes("q"),)),
                NotStorable: record(start + 2, fine.id, header=Header(metadata={"x": object()})),
            }
            for error, write in bad.items():
                await refused(error, store.write(Commit(lease=run.held, writes=(fine, write), after=head.checkpoint)))
                assert (await run.head()).checkpoint == head.checkpoint
                assert await store.read(Audit(S)) == before
            good = record(start + 2, fine.id, closes=(yes("new"),))
            await store.write(Commit(lease=run.held, writes=(fine, good), after=head.checkpoint))
            assert (await run.loaded()).rows[-2:] == (fine.body, good.body)
            assert [each.how for each in await store.read(Audit(S))] == ["answered", None, "answered"]

    async def test_the_same_commit_again_is_a_success(self) -> None:  # rule C1
        """So that a caller who did not hear the answer can try again."""
        async with self.fresh() as store:
            run = Drive(store)
            await run.start()
            write = run.next(asks=(question("q"),), events=b"[1]", event_count=1)
            await run.commit(write)
            assert went_on(await store.write(Commit(lease=run.held, writes=(write,), after="b.0")))
            await run.commit()
            assert went_on(await store.write(Commit(lease=run.held, writes=(write,), after="b.0")))
            assert (await run.loaded()).rows == (b"b0", b"b1", b"b2")
            assert len(await store.read(Audit(S))) == 1
            assert len(await store.read(ListEvents(S))) == 1

    async def test_of_many_who_make_a_session_one_succeeds(self) -> None:  # rule C1
        """All at once."""
        async with self.fresh() as store:
            tries = [
                store.write(Claim(ref=S, owner=f"owner{n}", ttl=10, after=None, write=record(0, None, b"%d" % n)))
                for n in range(20)
            ]
            results = await asyncio.gather(*tries, return_exceptions=True)
            won = [n for n, result in enumerate(results) if not isinstance(result, BaseException)]
            assert len(won) == 1
            assert all(isinstance(result, AdjournError) for n, result in enumerate(results) if n not in won)
            head = await store.read(GetHead(S))
            loaded = await store.read(Load(S))
            assert head is not None
            assert loaded is not None
            assert head.owner == f"owner{won[0]}"
            assert loaded.rows == (b"%d" % won[0],)

    async def test_of_many_who_commit_after_one_head_one_succeeds(self) -> None:  # rule C1
        """All at once, even with the same lease."""
        async with self.fresh() as store:
            run = Drive(store)
            await run.start()
            tries = [
                store.write(Commit(lease=run.held, writes=(record(1, "b.0", b"%d" % n),), after="b.0"))
                for n in range(20)
            ]
            results = await asyncio.gather(*tries, return_exceptions=True)
            won = [n for n, result in enumerate(results) if went_on(result)]
            assert len(won) == 1
            assert sum(isinstance(result, Conflict) for result in results) == 19
            assert (await run.loaded()).rows == (b"b0", b"%d" % won[0])

    async def test_calls_take_effect_in_the_order_in_which_they_are_made(self) -> None:
        """A run need not wait for one commit before it makes the next."""
        async with self.fresh() as store:
            run = Drive(store)
            await run.start()
            commits = [
                store.write(Commit(lease=run.held, writes=(record(n, f"b.{n - 1}"),), after=f"b.{n - 1}"))
                for n in range(1, 100)
            ]
            assert all(went_on(each) for each in await asyncio.gather(*commits))
            assert (await run.head()).checkpoint == "b.99"

    async def test_a_call_sees_what_was_written_just_before_it(self) -> None:  # rule C1
        """Also if a store writes several of them together."""
        async with self.fresh() as store:
            run = Drive(store)
            await run.start()
            commits = [
                Commit(lease=run.held, writes=(record(number, f"b.{number - 1}", full=True),), after=f"b.{number - 1}")
                for number in (1, 1, 2, 1, 2)
            ]
            results = await asyncio.gather(*map(store.write, commits), store.write(Prune(S, keep=1)))
            assert all(went_on(each) for each in results[:-1])
            assert results[-1] == 2
            assert (await run.loaded()).rows == (b"b2",)

    async def test_any_bytes_come_back(self) -> None:  # rule C3
        """Small and big."""
        async with self.fresh() as store:
            run = Drive(store)
            bodies = (bytes(range(256)), b"", b"\x00", b"x" * 3_000_000)
            await run.start(run.next(bodies[0]))
            for body in bodies[1:]:
                await run.commit(run.next(body))
            assert (await run.loaded()).rows == bodies

    async def test_headers_come_back(self) -> None:  # rule C2
        """With all that they hold."""
        async with self.fresh() as store:
            run = Drive(store)
            await run.start()
            header = Header(
                source="interrupt",
                step=7,
                address="runnable:g;node:%3B",
                next=("a", "é"),
                metadata={"n": 1, "deep": [{"x": None, "é": "\x00"}]},
            )
            await run.commit(run.next(header=header))
            (newest, _) = await store.read(ListCheckpoints(S))
            assert (newest.id, newest.parent, newest.header) == ("b.1", "b.0", header)

    async def test_two_sessions_never_mix(self) -> None:  # rule C12
        """Whatever their ids are."""
        async with self.fresh() as store:
            runs = [Drive(store, name) for name in HOSTILE]
            for n, run in enumerate(runs):
                await run.start(run.next(b"%d" % n, asks=(question("q", b"%d" % n),)))
            for n, run in enumerate(runs):
                assert (await run.loaded()).rows == (b"%d" % n,)
                assert [asked.body for asked in await store.read(ListOpen(SessionRef(run.session)))] == [b"%d" % n]
                assert (await run.head()).session == run.session
            assert {head.session for head in await store.read(ListSessions())} == set(HOSTILE)

    async def test_names_may_hold_any_characters(self) -> None:  # rule C12
        """Those of branches, questions, owners, apps and users, too."""
        async with self.fresh() as store:
            for n, name in enumerate(HOSTILE):
                run = Drive(store, f"s{n}", owner=name)
                run.branch = name
                await run.start(app=name, user=name)
                await run.pause(question(name))
                head = await run.head()
                assert (head.checkpoint, head.branch, head.app, head.user) == (f"{name}.1", name, name, name)
                assert (await run.loaded(f"{name}.0")).rows == (f"{name}0".encode(),)
                (asked,) = await store.read(ListOpen(run.ref))
                assert (asked.id, asked.checkpoint) == (name, f"{name}.1")

    async def test_text_that_is_none_is_kept_or_refused(self) -> None:
        """A lone surrogate cannot be UTF-8; it spoils nothing else."""
        async with self.fresh() as store:
            broken = Drive(store, "\ud800")
            try:
                await broken.start()
            except NotStorable:
                pass
            else:
                assert (await broken.head()).session == "\ud800"
            run = Drive(store)
            await run.start()
            try:
                await run.commit(run.next(asks=(question("good"), question("\udfff"))))
            except NotStorable:
                assert (await run.head()).checkpoint == "b.0"
                assert await store.read(Audit(S)) == []
            await run.commit()
            named = Drive(store, "t", owner="\udfff")
            try:
                await named.start()
            except NotStorable:
                assert await store.read(GetHead(SessionRef("t"))) is None
            await run.commit()

    async def test_events_come_back_in_order(self) -> None:
        """From the batch that holds the first number asked for, each with its record's id and header."""
        async with self.fresh() as store:
            run = Drive(store)
            await run.start(run.next(events=b"[1,2]", event_count=2))
            await run.commit()
            await run.commit(run.next(header=Header(), events=b"[3]", event_count=1))
            fork = Header(source="fork", next=("n",))
            await run.commit(record(0, "b.1", branch="c", header=fork, events=b"[4,5,6]", event_count=3))
            await run.commit()
            one, two, three = (
                EventBatch(id="b.0", header=Header(source="step"), first=1, count=2, body=b"[1,2]"),
                EventBatch(id="b.2", header=Header(), first=3, count=1, body=b"[3]"),
                EventBatch(id="c.0", header=Header(source="fork", next=("n",)), first=4, count=3, body=b"[4,5,6]"),
            )
            assert (await run.head()).seq == 6
            assert await store.read(ListEvents(S)) == [one, two, three]
            for after, expected in enumerate([[one, two, three]] * 2 + [[two, three]] + [[three]] * 3 + [[], []]):
                assert await store.read(ListEvents(S, after)) == expected
            assert await store.read(ListEvents(S, limit=2)) == [one, two]
            assert await store.read(ListEvents(S, 2, limit=1)) == [two]
            assert await store.read(ListEvents(S, limit=0)) == []

    async def test_events_of_a_long_session_can_be_paged(self) -> None:  # rule C9
        """Every one once, with any page size."""
        async with self.fresh() as store:
            run = Drive(store)
            await run.start()
            for n in range(1, 60):
                await run.commit(run.next(events=b"[%d]" % n, event_count=1) if n % 3 else run.next())
            for size in (1, 7, 100):
                seen: list[EventBatch] = []
                while batch := await store.read(ListEvents(S, seen[-1].first if seen else 0, limit=size)):
                    seen += batch
                assert [events.body for events in seen] == [b"[%d]" % n for n in range(1, 60) if n % 3]
                assert [events.first for events in seen] == list(range(1, 41))  # numbered through, without gaps

    async def test_a_reply_has_the_time_of_its_records(self) -> None:  # rule K6
        """Exactly as it is read later, also when the reply was lost; an answer given with a claim has the same."""
        clock = FakeClock()
        async with self.fresh(clock) as store:
            run = Drive(store)
            times = [(await run.start()).at]
            for _ in range(2):
                await self.pass_time(clock, self.tick / 3)
                write, head = run.next(), run.checkpoint
                times.append((await run.commit(write)).at)
                await self.pass_time(clock, self.tick / 3)
                assert (await store.write(Commit(lease=run.held, writes=(write,), after=head))).at == times[-1]
            times.append((await run.pause(question("q"), question("r"))).at)
            await store.write(GiveAnswers(ref=S, answers=[yes("r")]))
            await self.pass_time(clock, self.tick / 3)
            claim = run.next(takes=("r",))
            times.append((await run.claim(claim, yes("q"))).at)
            await self.pass_time(clock, self.tick / 3)
            again = await store.write(Claim(ref=S, owner="ann", ttl=10.0, after="b.3", write=claim, answers=[yes("q")]))
            assert again.at == times[-1]
            assert [each.at for each in await store.read(ListRecords(S))] == times
            assert [(await run.loaded(f"b.{number}")).at for number in range(5)] == times
            assert (await store.read(Audit(S)))[0].at == times[-1]
            assert times == sorted(times)

    async def test_branches_say_where_they_come_from(self) -> None:  # rules C4, T6
        """The first one says what its writer noted of its origin; pruning and later records leave it there."""
        async with self.fresh() as store:
            run = Drive(store)
            await run.start(record(0, None, origin='[["p",7]]'))
            await run.commit(run.next(full=True))
            await run.commit(record(0, "b.1", branch="c"))
            await run.commit(record(0, "c.0", branch="d"))
            await run.end()
            assert await store.write(Prune(S, keep=1))
            found = [(each.name, each.parent, each.origin) for each in await store.read(ListBranches(S))]
            assert found == [("b", None, '[["p",7]]'), ("c", "b.1", None), ("d", "c.0", None)]
            assert await store.read(ListBranches(SessionRef("none"))) == []
            assert await store.read(ListBranches(SessionRef("s", user="eve"))) == []
            await Drive(store, "new").start()
            assert [each.origin for each in await store.read(ListBranches(SessionRef("new")))] == [None]

    async def test_all_records_in_the_order_of_writing(self) -> None:  # rule K6
        """Of every branch, by pages; pruned ones are left out, but a page may begin after one."""
        async with self.fresh() as store:
            run = Drive(store)
            await run.start()
            await run.commit(run.next(b"one", full=True, events=b"[1,2]", event_count=2))
            await run.commit(run.next(header=Header(metadata={"a": [1, "é"]})))
            await run.commit(record(0, "b.1", branch="c"))
            found = await store.read(ListRecords(S))
            assert [(each.id, each.parent) for each in found] == [
                ("b.0", None),
                ("b.1", "b.0"),
                ("b.2", "b.1"),
                ("c.0", "b.1"),
            ]
            one, two = found[1], found[2]
            assert (one.full, one.seq, one.count, one.events, one.body) == (True, 2, 2, b"[1,2]", b"one")
            assert (two.full, two.seq, two.count, two.header) == (False, 2, 0, Header(metadata={"a": [1, "é"]}))
            assert await store.read(ListRecords(S, limit=1)) == found[:1]
            assert await store.read(ListRecords(S, after="b.1", limit=2)) == found[2:]
            assert await store.read(ListRecords(S, after="c.0")) == []
            await store.write(Prune(S, keep=1))
            assert await store.read(ListRecords(S, after="b.0")) == [found[1], found[3]]
            assert await store.read(ListRecords(S, after="b.2")) == found[3:]
            await refused(CheckpointNotFound, store.read(ListRecords(S, after="c.1")))
            await refused(CheckpointNotFound, store.read(ListRecords(SessionRef("none"))))
            await refused(CheckpointNotFound, store.read(ListRecords(SessionRef("s", user="eve"))))

    async def test_the_audit_of_all_branches(self) -> None:  # rule K6
        """Each question with its branch and when it expires."""
        async with self.fresh() as store:
            run = await paused(store, "q")
            await run.claim(record(0, "b.0", branch="c", asks=(question("q", expires=1e10),)))
            found = await store.read(Audit(S, all_branches=True))
            assert [(each.branch, each.id, each.expires) for each in found] == [("b", "q", None), ("c", "q", 1e10)]
            assert await store.read(Audit(S)) == found[1:]
            assert await store.read(Audit(S, "b")) == found[:1]

    async def test_what_was_acknowledged_is_there_for_another_store(self) -> None:  # rule C8
        """And the other way round."""
        clock = FakeClock()
        async with self.fresh(clock) as store, self.second(clock) as other:
            run = await paused(store, "q")
            assert await other.read(Load(S)) == await run.loaded()
            assert await other.read(ListQuestions()) == await store.read(ListQuestions())
            elsewhere = Drive(other, owner="bob")
            elsewhere.moved(record(1, "b.0"))
            await elsewhere.claim(elsewhere.next())
            assert (await run.head()).owner == "bob"
