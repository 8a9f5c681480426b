"""The decisions of the kit, without any store: facts in, effects or a refusal out."""

import random
from contextlib import suppress
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from adjourn.errors import AlreadyResumed, Conflict, InterruptExpired, SessionBusy
from adjourn.stores import Lease, SessionRef, Write
from adjourn.stores.kit import (
    BRANCHES,
    QUESTIONS,
    RECORDS,
    Add,
    Branch,
    Cancel,
    Claim,
    Commit,
    Effects,
    FactSheet,
    FactsWanted,
    GiveAnswers,
    Guard,
    Logged,
    Prune,
    QuestionRow,
    RecordRow,
    Remembered,
    Renew,
    SessionRequest,
    SessionRow,
    changed_columns,
    holds,
    meets,
    renewal_of,
)
from adjourn.testing.suite.bench import question, record, yes

T = TypeVar("T")
REF = SessionRef("s")
ANN = Lease(ref=REF, owner="ann", fence=1, ttl=10.0)


class Table:
    """One session as rows: facts are read from it and effects applied to it, with anything in between."""

    def __init__(self, *ids: str) -> None:
        self.now = 100.0
        self.row: SessionRow | None = None
        self.rows: dict[Any, dict[tuple[Any, ...], Any]] = {RECORDS: {}, QUESTIONS: {}, BRANCHES: {}}  # by their keys
        asks = tuple(question(each) for each in ids)
        self.do(Claim(ref=REF, owner="ann", ttl=10.0, after=None, write=record(0, None, asks=asks), **NOTHING))

    @property
    def records(self) -> list[RecordRow]:
        return list(self.rows[RECORDS].values())

    @property
    def questions(self) -> dict[str, QuestionRow]:
        return {row.id: row for row in self.rows[QUESTIONS].values()}

    @property
    def branches(self) -> tuple[Branch, ...]:
        return tuple(self.rows[BRANCHES].values())

    def read(self, wanted: FactsWanted) -> FactSheet:
        asked, branch_no = self.rows[QUESTIONS].items(), self.row.branch_no if self.row else 0
        return FactSheet(
            wanted,
            self.now,
            self.row,
            questions=[row for (no, _), row in asked if no == branch_no],
            branches=self.branches,
            records=self.records,
            log=[Logged(row.id, row.parent, row.pos, row) for row in self.records],
            asking=[no for (no, _), row in asked if row.is_open],
        )

    def apply(self, effects: Effects) -> bool:
        if not holds(effects.guard, self.row, self.now):
            return False
        rows = {table: dict(kept) for table, kept in self.rows.items()}
        for insert in effects.inserts:
            for row in insert.rows:
                key = tuple(getattr(row, name) for name in insert.table.key)
                if key in rows[insert.table]:
                    return False
                rows[insert.table][key] = row
        for update in effects.updates:
            if not meets(self.rows[update.table].get(update.key), update.expect, self.now):
                return False
            rows[update.table][update.key] = replace(rows[update.table][update.key], **update.values)
        for gone in effects.deletes:
            del rows[gone.table][gone.key]
        # Others may have written since the decision: what it does not change is as they left it.
        changes = changed_columns(effects)
        now: Any = self.row or effects.after
        added = {name: getattr(now, name) + each if isinstance(each, Add) else each for name, each in changes.items()}
        self.row, self.rows = replace(now, **(added if self.row else {})), rows
        return True

    def do(self, request: SessionRequest[T]) -> T:
        """Read, decide and apply at once."""
        effects, result = request.decide(self.read(wide(request)))
        assert effects is None or self.apply(effects)
        return result

    @property
    def head(self) -> str:
        assert self.row is not None
        return self.row.checkpoint


NOTHING: dict[str, Any] = {"answers": (), "replaces": None}  # Any: arguments of Claim


def wide(request: SessionRequest[object]) -> FactsWanted:
    return request.wanted().widened(FactsWanted(ref=REF, waiting=True, branches=True))


def commit(table: Table, write: Write, *, release: bool = False, lease: Lease = ANN) -> Commit:
    return Commit(lease=lease, writes=(write,), after=write.parent or "", release=release)


def answer(*ids: str, value: bytes = b"1") -> GiveAnswers:
    return GiveAnswers(ref=REF, answers=[yes(each, value) for each in ids], after=None)


def others() -> st.SearchStrategy[SessionRequest[object]]:
    """What anybody may do while somebody else runs the session."""
    return st.one_of(
        st.sampled_from("qrp").map(answer),
        st.sampled_from(["now", "after_step"]).map(lambda mode: Cancel(ref=REF, mode=mode)),
        st.just(Renew(lease=ANN)),
    )


def meddle(table: Table, requests: list[SessionRequest[object]]) -> None:
    for request in requests:
        with suppress(AlreadyResumed):  # two of them gave the same answer
            table.do(request)


@given(st.lists(others(), max_size=6), st.booleans(), st.booleans())
def test_answers_cancels_and_renewals_never_make_a_live_owners_commit_fail(
    requests: list[SessionRequest[object]], remembers: bool, asks: bool
):  # rule C1
    table = Table("q", "r", "p")
    assert table.row is not None
    write = record(1, "b.0", asks=(question("new"),) if asks else ())
    request = commit(table, write)
    facts = Remembered(REF, table.row) if remembers else table.read(wide(request))
    meddle(table, requests)
    effects, result = request.decide(facts)
    assert effects is not None
    assert table.apply(effects)
    assert (table.head, result.answers) == ("b.1", ())
    assert table.row.waiting == sum(not each.is_open and not each.taken for each in table.questions.values())


@given(st.lists(others(), max_size=6), st.booleans())
def test_a_pause_fails_only_for_an_answer_that_its_owner_has_not_seen(
    requests: list[SessionRequest[object]], remembers: bool
):  # rule R3
    table = Table("q", "r", "p")
    assert table.row is not None
    request = commit(table, record(1, "b.0", status="waiting"), release=True)
    facts = Remembered(REF, table.row) if remembers else table.read(wide(request))
    meddle(table, requests)
    effects, _ = request.decide(facts)
    assert effects is not None
    came_in = {each.id for each in table.questions.values() if not each.is_open}
    assert table.apply(effects) == (not came_in)
    if came_in:
        effects, result = request.decide(table.read(wide(request)))
        assert effects is not None
        assert table.apply(effects)
        assert {each.id for each in result.answers} == came_in
        assert not result.released


@pytest.mark.parametrize("is_taken_over", [False, True])
def test_answers_are_left_only_to_an_owner_who_is_still_there(is_taken_over: bool):  # rule R3
    table = Table("q", "r")
    resume = Claim(
        ref=REF, owner="bob", ttl=10.0, after="b.1", write=record(2, "b.1"), answers=[yes("q")], replaces=None
    )
    effects, result = resume.decide(table.read(wide(resume)))
    assert effects is not None
    assert result.lease is None  # ann runs it
    table.do(commit(table, record(1, "b.0", status="waiting"), release=True))
    if is_taken_over:
        table.do(Claim(ref=REF, owner="carl", ttl=10.0, after="b.1", write=None, **NOTHING))
    assert not table.apply(effects)
    effects, result = resume.decide(table.read(wide(resume)))
    assert effects is not None
    assert table.apply(effects)
    assert (result.lease is None) == is_taken_over


@given(st.permutations(["q", "r", "p"]))
def test_answers_to_different_questions_all_succeed(order: list[str]):  # rule R3
    table = Table("q", "r", "p")
    decided = [answer(each).decide(table.read(answer(each).wanted())) for each in order]
    assert all(effects is not None and table.apply(effects) for effects, _ in reversed(decided))
    assert all(not each.is_open for each in table.questions.values())
    assert table.row is not None
    assert table.row.waiting == 3


@given(st.integers(2, 6), st.randoms(use_true_random=False))
def test_of_answers_to_one_question_one_wins(count: int, choose: random.Random):  # rule R3
    table = Table("q", "r")
    requests = [answer("q", value=b"%d" % n) for n in range(count)]
    decided = [(request, request.decide(table.read(request.wanted()))[0]) for request in requests]
    choose.shuffle(decided)
    won = [request for request, effects in decided if effects is not None and table.apply(effects)]
    assert len(won) == 1
    assert table.questions["q"].value == won[0].answers[0].value
    for request, _ in decided:
        if request is not won[0]:
            with pytest.raises(AlreadyResumed):
                request.decide(table.read(request.wanted()))


@given(st.sampled_from([None, 99.0, 100.0, 101.0]), st.booleans(), st.booleans())
def test_a_claim_from_memory_counts_if_its_questions_are_open_and_in_time(
    expires: float | None, is_answered: bool, is_moved: bool
):  # rules R3, R8
    table = Table()
    asked = question("q", expires=expires)
    table.do(commit(table, record(1, "b.0", asks=(asked, question("r")), status="waiting"), release=True))
    assert table.row is not None
    remembered = Remembered(REF, table.row)
    resume = Claim(
        ref=REF, owner="bob", ttl=10.0, after="b.1", write=record(2, "b.1"), answers=[yes("q")], replaces=None
    )
    if is_moved:
        table.do(Claim(ref=REF, owner="carl", ttl=10.0, after="b.1", write=None, **NOTHING))
    if is_answered:
        with suppress(InterruptExpired):
            table.do(answer("q"))
    effects, _ = resume.decide(remembered)
    assert effects is not None
    is_late = expires is not None and expires <= table.now
    assert table.apply(effects) == (not is_late and not is_answered and not is_moved)


@given(st.floats(0, 30), st.booleans())
def test_a_takeover_needs_the_lease_to_have_ended_when_it_writes(passed: float, renewed: bool):  # rule C6
    table = Table()
    claim = Claim(ref=REF, owner="bob", ttl=10.0, after="b.0", write=record(1, "b.0"), **NOTHING)
    table.now += passed
    if passed < 10:
        with pytest.raises(SessionBusy):
            claim.decide(table.read(wide(claim)))
        return
    effects, _ = claim.decide(table.read(wide(claim)))
    if renewed:
        table.do(Renew(lease=ANN))
    assert effects is not None
    assert table.apply(effects) == (not renewed)


@given(st.booleans(), st.booleans(), st.booleans())
def test_a_stale_fence_never_writes(writes: bool, remembers: bool, release: bool):  # rule C6
    """Whenever the old owner has read its facts."""
    table = Table("q")
    assert table.row is not None
    zombie = commit(table, record(1, "b.0", b"zombie"), release=release)
    before = Remembered(REF, table.row) if remembers else table.read(wide(zombie))
    write = record(1, "b.0", b"bob's") if writes else None
    table.do(Claim(ref=REF, owner="bob", ttl=10.0, after="b.0", write=write, answers=(), replaces="ann"))
    after = (table.row, table.rows)
    effects, _ = zombie.decide(before)
    assert effects is not None
    assert not table.apply(effects)
    with pytest.raises(Conflict):
        zombie.decide(table.read(wide(zombie)))
    assert table.do(Renew(lease=ANN)).lost
    guard, _ = renewal_of(ANN)
    assert not holds(guard, table.row, table.now)
    assert (table.row, table.rows) == after


@given(st.booleans(), st.booleans(), st.lists(others(), max_size=3))
def test_a_commit_whose_reply_was_lost_can_be_made_again(
    release: bool, remembers: bool, requests: list[SessionRequest[object]]
):  # rule C1
    table = Table("q", "r", "p")
    assert table.row is not None
    request = commit(table, record(1, "b.0", asks=(question("new"),)), release=release)
    first = table.do(request)
    meddle(table, requests)
    again = table.do(request)
    assert (again.released, again.answers) == (first.released, ())
    assert len(table.records) == 2


@given(st.lists(others(), max_size=4))
def test_a_prune_does_not_fail_because_of_others(requests: list[SessionRequest[object]]):  # rule C7
    table = Table("q", "r", "p")
    for number in range(1, 4):
        table.do(commit(table, record(number, f"b.{number - 1}", full=True)))
    prune = Prune(ref=REF, keep=1, before=None)
    facts = table.read(prune.wanted())
    meddle(table, requests)
    table.do(commit(table, record(4, "b.3")))
    effects, gone = prune.decide(facts)
    assert effects is not None
    assert holds(effects.guard, table.row, table.now)
    assert (sorted(each.key for each in effects.deletes), gone) == ([(0,), (1,), (2,)], 3)


def test_a_new_branch_counts_its_answers_anew_and_adds_to_what_waits():
    """Others may have answered and submitted since the row was read, which must neither count there nor be lost."""
    row = SessionRow(1, "s", "adjourn", None, 0.0, branch="b", branch_no=0, number=1, pos=1, full_pos=0, inputs=1)
    after = replace(row, branch="c", branch_no=1, number=0, pos=2, full_pos=2, inputs=0)
    found = changed_columns(Effects(ref=REF, guard=Guard(), before=row, after=after))
    assert found["waiting"] == 0
    assert type(found["waiting"]) is int
    assert found["inputs"] == -1
    assert type(found["inputs"]) is Add
