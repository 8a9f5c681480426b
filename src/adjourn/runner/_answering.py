"""Answering: which questions a resume means, whether its answers fit, and what has expired."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Raw

from adjourn._engine.questions import open_keys
from adjourn._engine.record import NONE, Question
from adjourn._engine.scope import Scope
from adjourn._schemas import answers as schemas
from adjourn._values import codec
from adjourn.errors import (
    AlreadyResumed,
    CheckpointCorrupt,
    InterruptExpired,
    InvalidAnswer,
    NotStorable,
    UnknownInterrupt,
    UsageError,
)
from adjourn.sessions._log import read_interrupt
from adjourn.stores._logging import note
from adjourn.stores.protocol import Answer, Answered, Store

from ._live import LiveSession

Answers = Mapping[str, Any] | Sequence[str] | None
_COLLECTIONS = (dict, Mapping, list, tuple)


async def resolve(store: Store, live: LiveSession, given: Answers, by: str | None) -> tuple[Answer, ...]:
    """The answers as the store takes them, every one checked before any is written.

    Raises:
        UnknownInterrupt, AlreadyResumed, InterruptExpired, InvalidAnswer: naming the first that is wrong.
    """
    if given is None:
        return _without_data(live.scope, by)
    found: dict[str, Answer] = {}
    for name, value in _wanted(given).items():
        question = _open_named(live.scope, name)
        if question is None:
            raise await _not_open(store, live, name)
        if question.id in found:
            raise UsageError(f"The answers name question '{question.id}' twice, once by its key. Name it once.")
        found[question.id] = Answer(id=question.id, value=_checked(live.scope, question, value), by=by)
    return tuple(found.values())


def _wanted(given: Mapping[str, Any] | Sequence[str]) -> Mapping[str, Any]:
    names: list[Any] = list(given) if isinstance(given, _COLLECTIONS) else []  # Any: users pass anything
    if not names or [name for name in names if not isinstance(name, str)]:
        raise UsageError(
            f"answers={given!r}: give a mapping of question ids (or keys) to answers, a list of ids, or None for all."
        )
    return given if isinstance(given, dict | Mapping) else dict.fromkeys(names)


def _without_data(scope: Scope, by: str | None) -> tuple[Answer, ...]:
    taking = [question for _, question in scope.questions.open.values() if not _problems(None, question)]
    if scope.questions.open and not taking:
        first = next(iter(scope.questions.open))
        raise InvalidAnswer(
            scope.session_id, first, ["it needs an answer with data, so that it cannot be resumed without one"]
        )
    return tuple(Answer(id=question.id, value=b"null", by=by) for question in taking)


def _open_named(scope: Scope, name: str) -> Question | None:
    if name in scope.questions.open:
        return scope.questions.open[name][1]
    keyed = [question for _, question in scope.questions.open.values() if question.key == name]
    if len(keyed) > 1:
        ids = ", ".join(question.id for question in keyed)
        raise UsageError(
            f"Several open questions of session '{scope.session_id}' have the key '{name}'. Answer by id: {ids}."
        )
    return keyed[0] if keyed else None


async def _not_open(store: Store, live: LiveSession, name: str) -> Exception:
    session = live.scope.session_id
    for decision in await store.decisions(session):
        if decision.how is not None and name in (decision.id, read_interrupt(decision.body, session).key):
            if decision.how == "expired":
                return InterruptExpired(session, decision.id)
            return AlreadyResumed(session, decision.id, live=live.is_running, by=decision.by, at=decision.at)
    if live.scope.questions.has_ended(name):
        return AlreadyResumed(session, name, live=live.is_running)  # On the branch that this one came from.
    return UnknownInterrupt(session, name, tuple(live.scope.questions.open), open_keys(live.scope))


def _checked(scope: Scope, question: Question, value: Any) -> bytes:
    problems = _problems(_as_data(scope, question, value), question) if question.schema is not None else []
    if problems:
        raise InvalidAnswer(scope.session_id, question.id, problems)
    try:
        return codec.encode(*codec.adopt(value, "the answer"))
    except NotStorable:
        if question.schema is None:
            raise
        # The schema says what it is, so its JSON form is enough to build it from.
        return codec.encode(*codec.adopt(schemas.to_json_data(value), "the answer"))


def _problems(data: Any, question: Question) -> list[str]:
    try:
        return schemas.problems(data, question.schema)
    except Exception as error:  # protects whoever answers: an altered schema may make its reader raise anything
        raise CheckpointCorrupt(f"the schema of question '{question.id}' is none ({error})") from error


def _as_data(scope: Scope, question: Question, value: Any) -> Any:
    try:
        return schemas.to_json_data(value)
    except (TypeError, ValueError) as error:
        raise InvalidAnswer(scope.session_id, question.id, [str(error)]) from error


def apply_answers(live: LiveSession, taken: Sequence[Answer | Answered], now: float) -> None:
    """Write answers into the frames that asked, and let these run again."""
    for answer in taken:
        at = answer.at if isinstance(answer, Answered) else now
        value = Raw(answer.value) if answer.value else NONE
        live.scope.answer(answer.id, how=answer.how, value=value, by=answer.by, at=at)


async def expire(store: Store, live: LiveSession, now: float) -> tuple[Answered, ...]:
    """End, beside the log and once, the open questions whose time is over, as their askers chose."""
    due = [q for _, q in live.scope.questions.open.values() if q.expires is not None and q.expires <= now]
    expired: list[Answered] = []
    for question in due:
        value = bytes(question.default)
        answer = Answer(id=question.id, value=value, how="expired")
        try:
            await store.answer(live.scope.session_id, [answer])
        except (AlreadyResumed, InterruptExpired):
            continue  # Somebody was first; the loaded answers, or the next load, tell how it ended.
        note(logging.INFO, "expired", live.scope.session_id, live.journal.head, question=question.id)
        expired.append(Answered(id=question.id, value=value, how="expired", by=None, at=now))
    return tuple(expired)
