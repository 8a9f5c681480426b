"""The checks that a decision makes before it writes; each refuses with the error that callers see."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from adjourn._owner import owner_name
from adjourn.errors import (
    AlreadyResumed,
    AnswerRefused,
    CheckpointNotFound,
    Conflict,
    InterruptExpired,
    UnknownInterrupt,
)
from adjourn.stores.types import Answer, Lease, Question, SessionRef, Write

from .facts import Facts, FactsWanted, NotRead
from .rows import QuestionRow, SessionRow, answered, encode_header, is_live, is_named


def user(row: SessionRow, ref: SessionRef) -> None:
    """Refuse another user's session, with the error for one that does not exist."""
    if ref.user is not None and not is_named(row, ref):
        raise CheckpointNotFound(ref.id)


def lease(row: SessionRow, held: Lease) -> None:
    """Refuse a lease that was released or taken over."""
    if row.fence == held.fence and row.owner == held.owner:
        return
    now = f"{owner_name(row.owner)} took it over" if row.owner else "it was released"
    raise Conflict(row.session, f"{owner_name(held.owner)} does not own it any more, since {now}")


def not_head(row: SessionRow, seen: str | None) -> Conflict:
    """Return the error for a request that was prepared when another checkpoint was the head."""
    now, named = [f"'{each}'" if each else "none" for each in (row.checkpoint, seen)]
    return Conflict(row.session, f"its last checkpoint is {now}, and was {named} when this was prepared")


def answers(facts: Facts, row: SessionRow, given: Sequence[Answer]) -> None:
    """Refuse answers to questions that are not open."""
    for each in given:
        if each.branch not in (None, row.branch):
            raise Conflict(row.session, f"its head has left the branch '{each.branch}', on which it asked")
    if row.guarded and facts.assumed and given:
        raise NotRead(FactsWanted(ref=row.ref, questions=frozenset([each.id for each in given])))
    if facts.assumed and len({each.id for each in given}) == len(given):
        return  # The guards check that these questions can end.
    seen: set[str] = set()
    for each in given:
        asked = facts.question(each.id)
        if asked is not None and asked.how == "expired" and each.how == "answered":
            raise InterruptExpired(row.session, each.id)
        if asked is None or asked.how is not None or each.id in seen:
            raise not_open(facts, row, each.id)
        if asked.expires is not None and asked.expires <= facts.now and each.how == "answered":
            raise InterruptExpired(row.session, each.id)
        if asked.requesters:
            _requesters(row.session, asked, each)
        if each.call is not None:
            _unused(facts, row, each.call)
        seen.add(each.id)


def not_open(facts: Facts, row: SessionRow, id: str) -> UnknownInterrupt | AlreadyResumed:
    """Return the error for a question that was never asked, or has ended."""
    asked = facts.question(id)
    if asked is None:
        return UnknownInterrupt(row.session, id, [each.id for each in facts.waiting() if each.is_open])
    return AlreadyResumed(row.session, id, live=is_live(row, facts.now), by=asked.by, at=asked.at)


def _unused(facts: Facts, row: SessionRow, call: str) -> None:
    if facts.input(call) is not None:
        used = f"something else was done under the id '{call}'"
        raise Conflict(row.session, used, remedy="Choose another id for this answer")


def _requesters(session: str, asked: QuestionRow, given: Answer) -> None:
    """Refuse an answer by which somebody would approve a request of their own (rule V19)."""
    by = (given.by or "").strip()
    if given.how != "answered" or by not in [each.strip() for each in asked.requesters]:
        return
    if not by:
        raise AnswerRefused(
            session, asked.id, given.by, "it must say who gives it: by=..., on the command line --by NAME"
        )
    if given.approves:
        what = "somebody else than those who ask for it must approve it, though they may refuse it"
        raise AnswerRefused(session, asked.id, given.by, what)


def write(facts: Facts, row: SessionRow, head: str, new: Write, given: Sequence[Answer] = ()) -> None:
    """Refuse a record that does not follow the head, or whose questions or input do not fit."""
    if new.input is not None:
        _input(facts, row, new.input)
    elif not new.overtakes and row.inputs:
        raise Conflict(row.session, f"{row.inputs} inputs wait for their turn")
    if row.pos < 0:
        first(row.session, new)
        return
    if new.branch != row.branch:
        _branch(facts, row, new)
        return
    if new.number != row.number + 1 or new.parent != head:
        raise Conflict(row.session, f"record '{new.id}' does not follow its head '{head}'")
    if new.asks:
        if len(new.asks) > 1:
            _asks(row.session, new)
        if facts.assumed:
            _ends_others(row.session, new, given)
        else:
            for question in new.asks:
                _new_question(facts, row, question)
    if new.closes:
        answers(facts, row, (*given, *new.closes))


def rest(facts: Facts, row: SessionRow, writes: Sequence[Write]) -> None:
    """Refuse records that do not follow the first one of a commit, the only one that the facts fully cover."""
    session, is_new = row.session, writes[0].branch != row.branch
    asked, ended = {question.id for question in writes[0].asks}, {given.id for given in writes[0].closes}
    ended |= {question.id for write in writes for question in write.asks if question.ended is not None}
    for before, new in pairwise(writes):
        _follows(session, before, new)
        if new.asks and facts.assumed:
            _ends_others(session, new)
        for given in new.closes:
            if given.id in ended:
                raise AlreadyResumed(session, given.id, live=True)
            if given.id not in asked and is_new:
                raise UnknownInterrupt(session, given.id, [])
            if given.id not in asked:
                answers(facts, row, [given])
            ended.add(given.id)
        for question in new.asks:
            if question.id in asked or question.id in ended:  # what ended here was asked before
                raise Conflict(session, f"question '{question.id}' was asked before on this branch")
            if not is_new and not facts.assumed:
                _new_question(facts, row, question)
            asked.add(question.id)


def _ends_others(session: str, new: Write, given: Sequence[Answer] = ()) -> None:
    """Refuse a record that ends what it asks: the guards would see the question as asked before."""
    asked = {question.id for question in new.asks}
    for each in (*given, *new.closes):
        if each.id in asked:
            raise UnknownInterrupt(session, each.id, [])


def _follows(session: str, before: Write, new: Write) -> None:
    if new.branch != before.branch or new.number != before.number + 1 or new.parent != before.id:
        raise Conflict(session, f"record '{new.id}' does not follow '{before.id}'")
    if new.input is not None:
        raise Conflict(session, f"record '{new.id}' begins an input and is not the first of its commit")


def _input(facts: Facts, row: SessionRow, id: str) -> None:
    found = facts.first_input()
    if found is None or found.id != id:
        now = "none waits" if found is None else f"the first that waits is '{found.id}'"
        raise Conflict(row.session, f"a turn cannot begin with the input '{id}': {now}")


def _new_question(facts: Facts, row: SessionRow, question: Question) -> None:
    if facts.question(question.id) is not None:
        raise Conflict(row.session, f"question '{question.id}' was asked before on this branch")


def _branch(facts: Facts, row: SessionRow, new: Write) -> None:
    if any(branch.name == new.branch for branch in facts.branches()):
        raise Conflict(row.session, f"its head has left the branch '{new.branch}'")
    if new.parent is None or facts.record(new.parent) is None:
        raise CheckpointNotFound(row.session, new.parent)
    first(row.session, new)


def first(session: str, new: Write) -> None:
    """Refuse a record that cannot begin a branch."""
    if not new.full:
        raise Conflict(session, f"record '{new.id}' begins a branch and is not full")
    if new.closes:
        raise UnknownInterrupt(session, new.closes[0].id, [])  # questions belong to a branch, and this one is new
    if len(new.asks) > 1:
        _asks(session, new)


def _asks(session: str, new: Write) -> None:
    if len({question.id for question in new.asks}) < len(new.asks):
        raise Conflict(session, f"record '{new.id}' asks one question twice")


def repeats(facts: Facts, row: SessionRow, new: Write) -> bool:
    """Return whether the write was already made, with the same content."""
    kept = facts.record(new.id)
    if kept is None or kept.parent != new.parent:
        return False
    content = (kept.full, kept.count, kept.header, kept.events, kept.body)
    if content != (new.full, new.event_count, encode_header(new.header), new.events, new.body):
        return False
    # The questions of a branch that the head has left are out of reach; comparing the record must suffice.
    return new.branch != row.branch or all(_asked_so(facts.question(question.id), question) for question in new.asks)


def ended_so(asked: QuestionRow | None, given: Answer) -> bool:
    """Return whether a question has ended with just this answer."""
    return asked is not None and (asked.value, asked.how, asked.by) == (given.value, given.how, given.by)


def _asked_so(asked: QuestionRow | None, question: Question) -> bool:
    if asked is None or (asked.body, asked.expires) != (question.body, question.expires):
        return False
    return question.ended is None or answered(asked) == question.ended
