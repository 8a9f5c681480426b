"""What the kit decides for every store: which request is refused, with which error, and what a repeated one returns.

A store only renders the effects of these decisions, so they are proved here and not in the suite for stores. The tests
run over both drivers of the kit. A `KitStore` decides under its lock. A `RemoteStore` decides from the row that it
remembers, and then from facts that it reads.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from adjourn.errors import (
    AdjournError,
    AlreadyResumed,
    CheckpointNotFound,
    Conflict,
    NotStorable,
    SessionBusy,
    UnknownInterrupt,
    UsageError,
)
from adjourn.stores import Answer, Begun, Header, Input, MemoryStore, SessionRef, Store
from adjourn.stores.kit import (
    Audit,
    Cancel,
    Claim,
    Commit,
    Delete,
    GetHead,
    GiveAnswers,
    ListBegun,
    ListCheckpoints,
    ListEvents,
    ListInputs,
    ListOpen,
    ListQuestions,
    ListSessions,
    Load,
    Prune,
    SettleNotice,
    Submit,
    Withdraw,
)
from adjourn.testing import FakeClock
from adjourn.testing.suite.bench import Drive, S, paused, question, record, refused, yes
from adjourn.testing.suite.log import HOSTILE
from adjourn.testing.suite.outbox import notice, taken
from adjourn.testing.suite.queue import begin, hello, waiting

from .test_docs_store import EXAMPLE, DictStore


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=["under a lock", "in two trips"])
def store(request: pytest.FixtureRequest, clock: FakeClock) -> Store:
    return MemoryStore(clock) if request.param == "under a lock" else DictStore(EXAMPLE.Database(), clock)


def run_of(run: Drive, owner: str) -> Drive:
    """A second run on the session of another, which has seen the same head."""
    other = Drive(run.store, run.session, owner, ttl=run.ttl)
    other.branch, other.number, other.at = run.branch, run.number, run.at
    return other


async def ids(store: Store) -> list[str]:
    return [each.id for each in await store.read(ListCheckpoints(S))]


# The log


async def test_unknown_sessions(store: Store):
    """Reading one gives nothing, writing one is refused."""
    assert await store.read(Load(SessionRef("no"))) is None
    assert await store.read(GetHead(SessionRef("no"))) is None
    await refused(CheckpointNotFound, store.write(Claim(ref=SessionRef("no"), owner="ann", ttl=10, after="b.0")))
    await refused(
        CheckpointNotFound,
        store.write(Claim(ref=SessionRef("no"), owner="ann", ttl=10, after="b.0", write=record(1, "b.0"))),
    )
    await refused(CheckpointNotFound, store.write(Claim(ref=SessionRef("no"), owner="ann", ttl=10, after=None)))
    for call in (
        store.read(ListCheckpoints(SessionRef("no"))),
        store.read(Audit(SessionRef("no"))),
        store.read(ListEvents(SessionRef("no"))),
        store.write(Prune(SessionRef("no"))),
    ):
        await refused(CheckpointNotFound, call)
    assert await store.read(ListSessions()) == []


async def test_a_loser_changes_nothing(store: Store):  # rule C1
    """A run that saw another head is refused, and the log is as it was."""
    run = Drive(store)
    await run.start()
    await run.commit()
    before = await run.loaded()
    stale = record(1, "b.0", b"other", asks=(question("q"),))
    await refused(Conflict, store.write(Commit(lease=run.held, writes=(stale,), after="b.0")))
    await refused(Conflict, store.write(Commit(lease=run.held, writes=(record(2, "b.1", b"other"),), after="b.0")))
    assert await run.loaded() == before
    assert await store.read(Audit(S)) == []


async def test_records_follow_each_other_without_gaps(store: Store):  # rule C2
    """A record that does not come next is refused."""
    run = Drive(store)
    await run.start()
    for wrong in (record(2, "b.0"), record(0, "b.0", b"x"), record(1, None), record(1, "c.0")):
        await refused(Conflict, store.write(Commit(lease=run.held, writes=(wrong,), after="b.0")))
    await refused(Conflict, Drive(store, "t").start(record(0, None, full=False)))
    assert (await run.loaded()).rows == (b"b0",)
    assert await store.read(GetHead(SessionRef("t"))) is None


async def test_the_same_id_with_other_content_is_a_conflict(store: Store):  # rule C1
    """Whatever it is that differs."""
    run = Drive(store)
    await run.start()
    await run.commit(run.next(b"one", asks=(question("q"),), events=b"[1]", event_count=1))
    for other in (
        record(1, "b.0", b"two", asks=(question("q"),), events=b"[1]", event_count=1),
        record(1, "b.0", b"one", asks=(question("q"),), events=b"[2]", event_count=1),
        record(1, "b.0", b"one", asks=(question("r"),), events=b"[1]", event_count=1),
        record(1, "b.0", b"one", full=True, asks=(question("q"),), events=b"[1]", event_count=1),
    ):
        await refused(Conflict, store.write(Commit(lease=run.held, writes=(other,), after="b.0")))
    assert (await run.loaded()).rows == (b"b0", b"one")


async def test_the_last_commit_again_is_a_success(store: Store):  # rule C1
    """Although it has released the lease, and even when another owner has written since."""
    run = Drive(store)
    await run.start()
    lease, last = run.held, run.next(status="done")
    await run.commit(last, release=True)
    assert (await store.write(Commit(lease=lease, writes=(last,), after="b.0", release=True))).released
    await run.claim(run.next(), owner="bob")
    assert (await store.write(Commit(lease=lease, writes=(last,), after="b.0", release=True))).released
    head = await run.head()
    assert (head.owner, head.checkpoint) == ("bob", "b.2")


async def test_the_same_claim_again_is_a_success(store: Store):  # rule C1
    """It gives the same lease, for a new session and for one that is there."""
    run = Drive(store)
    first = run.next()
    claimed = await run.start(first)
    again = await store.write(Claim(ref=S, owner="ann", ttl=10, after=None, write=first))
    assert again.lease == claimed.lease
    await run.end()
    second = run.next()
    claimed = await run.claim(second)
    assert (await store.write(Claim(ref=S, owner="ann", ttl=10, after="b.1", write=second))).lease == claimed.lease
    assert (await run.head()).claims == 1


async def test_another_claim_by_the_same_owner_is_no_repetition(store: Store):  # rule C1
    """With other content, or after the run went on."""
    run = Drive(store)
    first = run.next(b"one")
    await run.start(first)
    await refused(
        AdjournError, store.write(Claim(ref=S, owner="ann", ttl=10, after=None, write=record(0, None, b"two")))
    )
    await run.commit()
    await refused(AdjournError, store.write(Claim(ref=S, owner="ann", ttl=10, after=None, write=first)))
    assert (await run.loaded()).rows == (b"one", b"b1")


async def test_metadata_that_is_not_json_is_refused(store: Store):
    """Before anything is written."""
    run = Drive(store)
    await run.start()
    bad = Header(source="step", metadata={"x": object()})
    await refused(NotStorable, store.write(Commit(lease=run.held, writes=(run.next(header=bad),), after="b.0")))
    await run.commit()


# Leases


async def test_the_same_owner_cannot_claim_twice(store: Store):  # rule C6
    """A live lease keeps its own owner out, too."""
    run = Drive(store)
    await run.start()
    await refused(SessionBusy, store.write(Claim(ref=S, owner="ann", ttl=10, after="b.0")))
    again = await store.write(Claim(ref=S, owner="ann", ttl=10, after="b.0", replaces="ann"))
    assert again.lease is not None
    await refused(Conflict, run.commit())


async def test_a_taken_over_owner_is_not_told_that_its_record_is_there(store: Store, clock: FakeClock):  # rule C6
    """It must stop, although its commit went through before."""
    zombie = Drive(store, ttl=10)
    await zombie.start()
    write = zombie.next()
    await zombie.commit(write)
    clock.advance(11)
    await run_of(zombie, "bob").claim()
    await refused(Conflict, store.write(Commit(lease=zombie.held, writes=(write,), after="b.0")))


async def test_a_released_lease_is_over(store: Store):  # rule C6
    """What a run left behind cannot write, and the next may come."""
    run = Drive(store)
    await run.start()
    committed = await run.end()
    assert committed.released
    head = await run.head()
    assert (head.owner, head.status, head.expires) == (None, "done", 0.0)
    await refused(Conflict, run.commit())
    (renewed,) = await store.renew([run.held])
    assert renewed.lost
    assert (await run_of(run, "bob").claim()).lease is not None


async def test_a_claim_must_have_seen_the_head(store: Store):  # rule C1
    """Else it would go on from what is past."""
    run = Drive(store)
    await run.start()
    await run.end()
    for wrong in (None, "b.0", "b.2", "c.1"):
        await refused(Conflict, store.write(Claim(ref=S, owner="bob", ttl=10, after=wrong)))
        await refused(Conflict, store.write(Claim(ref=S, owner="bob", ttl=10, after=wrong, write=run.next())))
    assert (await run.head()).owner is None


async def test_claims_without_progress_are_counted(store: Store, clock: FakeClock):  # rule C8
    """And a commit is progress."""
    run = Drive(store, ttl=10)
    await run.start()
    for claims in range(2, 5):
        clock.advance(11)
        claimed = await run.claim()
        assert claimed.claims == claims
    await run.commit()
    assert (await run.head()).claims == 0


async def test_a_dead_owner_cannot_be_cancelled(store: Store, clock: FakeClock):
    """There is no owner to hear it."""
    run = Drive(store, ttl=10)
    await run.start()
    clock.advance(11)
    assert not await store.write(Cancel(S, "now"))


# Branches, and what is kept


async def test_what_a_refused_write_begins_has_not_begun(store: Store):  # rules C1, T6
    """It comes and goes with its record, and repeating one that is there already changes nothing."""
    run = Drive(store)
    await run.start()
    await refused(
        Conflict,
        store.write(Commit(lease=run.held, writes=(record(2, "b.1", begins=(Begun("d", "p", 2),)),), after="b.1")),
    )
    assert await store.read(ListBegun("d")) == []
    write = record(1, "b.0", begins=(Begun("d", "p", 1),))
    for _ in range(2):
        await store.write(Commit(lease=run.held, writes=(write,), after="b.0"))
    assert await store.read(ListBegun("d")) == [Begun("d", "p", 1)]


async def test_a_branch_that_was_left_is_not_written_again(store: Store):  # rule C4
    """Nor does one begin with a partial record, or after something unknown."""
    run = Drive(store)
    await run.start()
    await run.steps(1)
    await run.commit(record(0, "b.0", branch="c"))
    for write in (record(2, "b.1"), record(0, "c.0", b"x"), record(0, "c.0", branch="d", full=False)):
        await refused(Conflict, store.write(Commit(lease=run.held, writes=(write,), after="c.0")))
    for parent in ("b.2", "x.0", "", None):
        await refused(
            CheckpointNotFound,
            store.write(Commit(lease=run.held, writes=(record(0, parent, branch="d"),), after="c.0")),
        )
    assert await ids(store) == ["c.0", "b.1", "b.0"]


async def test_a_fork_can_be_repeated(store: Store):  # rule C1
    """By commit and by claim."""
    run = Drive(store)
    await run.start()
    fork = record(0, "b.0", branch="c", asks=(question("q"),))
    await run.commit(fork)
    await store.write(Commit(lease=run.held, writes=(fork,), after="b.0"))
    await refused(Conflict, store.write(Commit(lease=run.held, writes=(record(0, None, branch="c"),), after="b.0")))
    await run.end()
    again = record(0, "c.0", branch="d")
    claimed = await run.claim(again)
    assert (await store.write(Claim(ref=S, owner="ann", ttl=10, after="c.1", write=again))).lease == claimed.lease


async def test_a_new_branch_closes_nothing_of_the_old_one(store: Store):  # rule C4
    """It has no questions yet."""
    run = await paused(store, "q")
    fork = record(0, "b.0", branch="c", closes=(yes("q"),))
    await refused(UnknownInterrupt, run.claim(fork))
    assert [each.id for each in await store.read(ListQuestions())] == ["q"]


async def test_a_live_session_is_not_deleted(store: Store, clock: FakeClock):
    """A dead one is."""
    run = Drive(store, ttl=10)
    await run.start()
    busy = await refused(SessionBusy, store.write(Delete(S)))
    assert busy.owner == "ann"
    clock.advance(11)
    await store.write(Delete(S))
    await refused(Conflict, run.commit())
    assert (await store.renew([run.held]))[0].lost


async def test_pruning_keeps_what_the_kept_are_folded_from(store: Store):  # rule C7
    """Back to the last full record."""
    run = Drive(store)
    await run.start()
    for number in range(1, 8):
        await run.commit(run.next(full=number == 4))
    assert await store.write(Prune(S, keep=2)) == 4
    assert (await run.loaded("b.6")).rows == (b"b4", b"b5", b"b6")


async def test_pruning_counts_listed_checkpoints(store: Store):  # rule C7
    """Records between them go with them."""
    run = Drive(store)
    await run.start()
    for number in range(1, 9):
        await run.commit(run.next(full=True, header=Header(source=None if number % 2 else "step")))
    assert await store.write(Prune(S, keep=2)) == 3
    assert await ids(store) == ["b.8", "b.6"]
    await refused(CheckpointNotFound, store.read(Load(S, "b.7")))


async def test_pruning_by_time(store: Store, clock: FakeClock):  # rule C7
    """Keeps what was written since; with `keep`, both."""
    run = Drive(store)
    await run.start()
    times = [(await run.head()).updated]
    for _ in range(5):
        clock.advance(1)
        await run.commit(run.next(full=True))
        times.append((await run.head()).updated)
    assert await store.write(Prune(S, before=times[0])) == 0
    assert await store.write(Prune(S, before=times[2])) == 2
    assert await ids(store) == ["b.5", "b.4", "b.3", "b.2"]
    assert await store.write(Prune(S, before=times[4], keep=3)) == 1
    assert await store.write(Prune(S, before=times[5] + 1)) == 2
    assert await ids(store) == ["b.5"]


async def test_pruning_everything_leaves_the_head(store: Store):  # rule C7
    """Also while an owner runs it, and with the answers that wait."""
    run = Drive(store)
    await run.start()
    await run.steps(2)
    await run.commit(run.next(full=True, asks=(question("q"),)))
    await store.write(GiveAnswers(ref=S, answers=[yes("q")]))
    before = await run.loaded()
    assert await store.write(Prune(S, keep=0)) == 3
    assert await run.loaded() == before
    await run.commit(run.next(takes=("q",)))
    await refused(UsageError, store.write(Prune(S, keep=-1)))


async def test_pruning_keeps_the_base_of_a_fork(store: Store):  # rule C7
    """As long as something of the fork is left."""
    run = Drive(store)
    await run.start()
    for _ in range(4):
        await run.commit(run.next(full=True))
    await run.commit(record(0, "b.2", branch="c"))
    await run.commit(run.next(full=True))
    await run.commit(record(0, "c.0", branch="d"))
    await run.commit(run.next(full=True))
    assert await store.write(Prune(S, keep=1)) == 6
    assert await ids(store) == ["d.1", "c.0", "b.2"]
    assert (await run.loaded("b.2")).rows == (b"b2",)


async def test_a_fork_from_what_was_pruned_is_refused(store: Store):  # rule C7
    """It has no base any more."""
    run = Drive(store)
    await run.start()
    for _ in range(3):
        await run.commit(run.next(full=True))
    await store.write(Prune(S, keep=2))
    fork = record(0, "b.0", branch="c")
    await refused(CheckpointNotFound, store.write(Commit(lease=run.held, writes=(fork,), after="b.3")))
    await run.commit(record(0, "b.2", branch="c"))


async def test_checkpoints_under_an_address(store: Store):  # rule C5
    """At the borders of segments."""
    run = Drive(store)
    addresses = (
        "",
        "node:a",
        "node:ab",
        "node:a;node:b",
        "node:a:1",
        "node:a;node:b;node:c",
        "node:_",
        "node:%",
    )
    await run.start(run.next(header=Header(source="step", address=addresses[0])))
    for address in addresses[1:]:
        await run.commit(run.next(header=Header(source="step", address=address)))

    async def under(address: str | None) -> list[str]:
        return [each.header.address for each in reversed(await store.read(ListCheckpoints(S, under=address)))]

    assert await under(None) == list(addresses)
    assert await under("") == list(addresses)
    assert await under("node:a") == ["node:a", "node:a;node:b", "node:a;node:b;node:c"]
    assert await under("node:a;node:b") == ["node:a;node:b", "node:a;node:b;node:c"]
    assert await under("node:_") == ["node:_"]
    assert await under("node:%") == ["node:%"]
    for nothing in ("node", "node:", "node:a;", "%", *HOSTILE):
        assert await under(nothing) == []


# Questions and answers


async def test_a_second_answer_is_refused(store: Store):  # rule R3
    """And told about the first, but not what it was."""
    run = await paused(store, "q")
    await store.write(GiveAnswers(ref=S, answers=[yes("q", b"1", by="eve")]))
    error = await refused(AlreadyResumed, store.write(GiveAnswers(ref=S, answers=[yes("q", b"2", by="mallory")])))
    (decision,) = await store.read(Audit(S))
    assert (error.interrupt_id, error.by, error.at, error.live) == ("q", "eve", decision.at, False)
    assert decision.value == b"1"
    await run.claim()
    error = await refused(AlreadyResumed, store.write(GiveAnswers(ref=S, answers=[yes("q")])))
    assert error.live


async def test_unknown_questions_are_refused(store: Store):  # rule R1
    """With a list of the open ones; nothing is changed."""
    await paused(store, "q1", "q2", "q3")
    await store.write(GiveAnswers(ref=S, answers=[yes("q2")]))
    for wrong in ("q4", "q1#2", "Q1", "q1 ", "", "%", "q'"):
        error = await refused(UnknownInterrupt, store.write(GiveAnswers(ref=S, answers=[yes("q1"), yes(wrong)])))
        assert (error.interrupt_id, error.open) == (wrong, ("q1", "q3"))
    await refused(CheckpointNotFound, store.write(GiveAnswers(ref=SessionRef("no"), answers=[yes("q1")])))
    assert [asked.id for asked in await store.read(ListOpen(S))] == ["q1", "q3"]


async def test_answers_are_taken_all_or_none(store: Store):  # rule R2
    """One that is too late leaves the others open; and one question has one answer."""
    await paused(store, "q1", "q2", "q3")
    await store.write(GiveAnswers(ref=S, answers=[yes("q2")]))
    await refused(AlreadyResumed, store.write(GiveAnswers(ref=S, answers=[yes("q1"), yes("q2"), yes("q3")])))
    await refused(AlreadyResumed, store.write(GiveAnswers(ref=S, answers=[yes("q1"), yes("q1", b"false")])))
    assert [asked.id for asked in await store.read(ListOpen(S))] == ["q1", "q3"]
    await store.write(GiveAnswers(ref=S, answers=[yes("q3"), yes("q1")]))
    assert await store.read(ListOpen(S)) == []


async def test_an_answer_can_depend_on_the_head(store: Store):  # rule R1
    """With `after`, anything that moved makes it void."""
    await paused(store, "q")
    await refused(Conflict, store.write(GiveAnswers(ref=S, answers=[yes("q")], after="b.0")))
    assert len(await store.read(ListOpen(S))) == 1
    await store.write(GiveAnswers(ref=S, answers=[yes("q")], after="b.1"))


async def test_the_same_claim_with_answers_again_is_a_success(store: Store):  # rule C1
    """With the same answers only."""
    run = await paused(store, "q")
    write = run.next()
    claimed = await run.claim(write, yes("q", b"1"))
    again = await store.write(Claim(ref=S, owner="ann", ttl=10, after="b.1", write=write, answers=[yes("q", b"1")]))
    assert again.lease == claimed.lease
    other = store.write(Claim(ref=S, owner="ann", ttl=10, after="b.1", write=write, answers=[yes("q", b"2")]))
    await refused(AlreadyResumed, other)


async def test_a_claim_that_must_be_alone_leaves_no_answers(store: Store):  # rule R3
    """A live owner refuses it, and nothing was answered; an answer that came before is reported first."""
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


async def test_a_pause_that_met_answers_can_be_repeated(store: Store, clock: FakeClock):  # rule C1
    """It says the same, and renews the lease. The run did not pause, so the events of the pause are not stored."""
    run = Drive(store, ttl=10)
    await run.start()
    await run.commit(run.next(asks=(question("q"),)))
    await store.write(GiveAnswers(ref=S, answers=[yes("q")]))
    last = run.next(status="waiting", events=b"[1]", event_count=1)
    first = await run.commit(last, release=True)
    assert not first.released
    before = (await run.head()).expires
    clock.advance(7)
    assert await store.write(Commit(lease=run.held, writes=(last,), after="b.1", release=True)) == first
    assert (await run.head()).expires > before
    assert await store.read(ListEvents(S)) == []
    assert (await run.head()).seq == 0
    await refused(
        Conflict,
        store.write(
            Commit(lease=run.held, writes=(record(2, "b.1", b"x", status="waiting"),), after="b.1", release=True)
        ),
    )


async def test_a_pause_without_events_that_met_answers_can_be_repeated(store: Store, clock: FakeClock):  # rule C1
    """Although its record looks the same as that of a pause."""
    run = Drive(store, ttl=10)
    await run.start(run.next(asks=(question("q"),)))
    await store.write(GiveAnswers(ref=S, answers=[yes("q")]))
    write = run.next(status="waiting")
    met = await store.write(Commit(lease=run.held, writes=(write,), after="b.0", release=True))
    assert ([answer.id for answer in met.answers], met.released) == (["q"], False)
    before = (await run.head()).expires
    clock.advance(7)
    assert await store.write(Commit(lease=run.held, writes=(write,), after="b.0", release=True)) == met
    assert (await run.head()).expires > before


async def test_a_pause_can_be_repeated_although_answers_came_since(store: Store):  # rule C1
    """It was made, and is over."""
    run = Drive(store)
    await run.start()
    last = run.next(status="waiting", asks=(question("q"),), events=b"[1]", event_count=1)
    await run.commit(last, release=True)
    await store.write(GiveAnswers(ref=S, answers=[yes("q")]))
    again = await store.write(Commit(lease=run.held, writes=(last,), after="b.0", release=True))
    assert (again.released, again.answers) == (True, ())
    assert [answer.id for answer in (await run.loaded()).answers] == ["q"]


async def test_an_end_does_not_wait_for_answers(store: Store):
    """Only a pause has to."""
    run = Drive(store)
    await run.start()
    await run.commit(run.next(asks=(question("q"),)))
    await store.write(GiveAnswers(ref=S, answers=[yes("q")]))
    assert (await run.end()).released


async def test_a_question_is_checked_before_the_lease(store: Store):  # rule R3
    """A caller that is too late hears so, and not that the session is busy."""
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


async def test_a_claim_with_answers_must_have_seen_the_head(store: Store):  # rule R1
    """Else nothing is answered."""
    run = await paused(store, "q")
    await refused(
        Conflict,
        store.write(Claim(ref=S, owner="bob", ttl=10, after="b.0", write=run.next(), answers=[yes("q")])),
    )
    assert len(await store.read(ListOpen(S))) == 1


async def test_answers_for_a_live_owner_need_not_know_its_head(store: Store):  # rule R3
    """It moves all the time; what counts is that the question is open."""
    run = Drive(store)
    await run.start()
    await run.commit(run.next(asks=(question("q"),)))
    await run.steps(3)
    claimed = await store.write(Claim(ref=S, owner="bob", ttl=10, after="b.1", write=run.next(), answers=[yes("q")]))
    assert (claimed.lease, claimed.checkpoint) == (None, "b.4")


async def test_records_of_one_commit_know_of_each_other(store: Store):
    """A question that one of them asks, a later one can close; if one is refused, none was written."""
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
    await store.write(Commit(lease=run.held, writes=(fork, record(1, "c.0", branch="c", closes=gone[:1])), after="b.3"))


async def test_taking_what_is_not_there_changes_nothing(store: Store):
    """An open question stays open."""
    run = Drive(store)
    await run.start()
    await run.commit(run.next(asks=(question("q"),)))
    await run.commit(run.next(takes=("q", "nothing")))
    await store.write(GiveAnswers(ref=S, answers=[yes("q")]))
    assert [answer.id for answer in (await run.loaded()).answers] == ["q"]
    assert not (await run.pause()).released


# The queue


async def test_another_input_cannot_have_the_same_id(store: Store):  # rule V11
    """An id stands for one content, for as long as the session."""
    await store.write(Submit(ref=S, input=hello()))
    others = [hello(body=b"bye"), hello(user="ann"), hello(abandons=True), Input(id="i", body=b"hello")]
    for other in others:
        await refused(Conflict, store.write(Submit(ref=S, input=other)))
    await begin(Drive(store), "i")
    for other in others:
        await refused(Conflict, store.write(Submit(ref=S, input=other)))
    await store.write(Submit(ref=SessionRef("t"), input=others[0]))


async def test_a_claim_whose_reply_was_lost_begins_its_input_once(store: Store):  # rule V11
    """The same claim again takes nothing more from the queue."""
    await store.write(Submit(ref=S, input=hello("i")))
    await store.write(Submit(ref=S, input=hello("j")))
    first = record(0, None, input="i")
    claimed = await store.write(Claim(ref=S, owner="ann", ttl=10, after=None, write=first))
    assert await store.write(Claim(ref=S, owner="ann", ttl=10, after=None, write=first)) == claimed
    assert await waiting(store) == ["j"]


async def test_a_session_without_a_record_cannot_go_on(store: Store):  # rule V11
    """There is nothing to claim, continue or answer."""
    await store.write(Submit(ref=S, input=hello()))
    await refused(CheckpointNotFound, store.write(Claim(ref=S, owner="ann", ttl=10, after=None)))
    await refused(Conflict, store.write(Claim(ref=S, owner="ann", ttl=10, after="b.0", write=record(1, "b.0"))))
    await refused(AdjournError, store.write(GiveAnswers(ref=S, answers=[yes("q")])))


async def test_a_queue_that_is_not_there_begins_nothing(store: Store):  # rule V11
    """A new session has no queue."""
    await refused(
        Conflict, store.write(Claim(ref=S, owner="ann", ttl=10, after=None, write=record(0, None, input="i")))
    )
    assert await store.read(GetHead(S)) is None


async def test_a_queue_is_its_users(store: Store):  # rule C12
    """For others it does not exist; whose turn it is, the input says."""
    ann, bob = SessionRef("s", user="ann"), SessionRef("s", user="bob")
    await store.write(Submit(ref=ann, input=hello(user="ann")))
    await refused(CheckpointNotFound, store.write(Submit(ref=bob, input=hello("j", user="bob"))))
    await refused(CheckpointNotFound, store.read(ListInputs(bob)))
    await refused(CheckpointNotFound, store.write(Withdraw(bob, "i")))
    await store.write(Submit(ref=S, input=hello("j")))
    assert [(each.id, each.user) for each in await store.read(ListInputs(ann))] == [("i", "ann"), ("j", None)]
    await begin(Drive(store), "i")
    head = await store.read(GetHead(S))
    assert head is not None
    assert head.user == "ann", "the session belongs to whom it was made for"


# Notices


async def test_a_record_that_is_refused_leaves_no_notice(store: Store):  # rule V12
    """The run that lost its session has nothing to report."""
    drive = Drive(store)
    await drive.start()
    write = drive.next(status="done", notices=(notice("a"),))
    stale = replace(drive.held, fence=drive.held.fence + 1)
    await refused(Conflict, store.write(Commit(lease=stale, writes=(write,), after="b.0", release=True)))
    assert await taken(store) == {}


async def test_a_repeated_commit_writes_its_notices_once(store: Store):  # rule V12
    """Its caller did not get the reply, and a sender may have taken them meanwhile."""
    drive = Drive(store)
    await drive.start()
    write = drive.next(status="done", notices=(notice("a"),))
    await store.write(Commit(lease=drive.held, writes=(write,), after="b.0", release=True))
    await store.write(Commit(lease=drive.held, writes=(write,), after="b.0", release=True))
    first = await taken(store)
    await store.write(SettleNotice(first["a"]))
    await store.write(Commit(lease=drive.held, writes=(write,), after="b.0", release=True))
    assert await taken(store) == {}


async def test_a_pause_that_meets_answers_is_not_reported(store: Store, clock: FakeClock):  # rule V12
    """But what it asks still expires."""
    drive = Drive(store)
    await drive.start()
    await drive.commit(drive.next(asks=(question("p"),)))
    await store.write(GiveAnswers(ref=drive.ref, answers=[yes("p")]))
    now = (await drive.head()).updated
    notices = (notice("pause"), notice("expiring", due=now + 5))
    write = drive.next(status="waiting", asks=(question("q"),), notices=notices)
    for _ in range(2):  # and when it is repeated
        assert not (await store.write(Commit(lease=drive.held, writes=(write,), after="b.1", release=True))).released
    assert await taken(store) == {}
    clock.advance(6)
    assert list(await taken(store)) == ["expiring"]
