"""Open questions: reading them, finding those that answers mean, and recording the answers beside the log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from adjourn._engine.record import Question
from adjourn._schemas import answers as schemas
from adjourn._values import codec
from adjourn.errors import (
    AlreadyResumed,
    CheckpointCorrupt,
    CheckpointNotFound,
    Conflict,
    InterruptExpired,
    InvalidAnswer,
    NotStorable,
    StaleCheckpoint,
    UnknownInterrupt,
    UsageError,
)
from adjourn.events import Interrupt
from adjourn.stores.protocol import Answer, Head, OpenQuestion, SessionRef, Store

from ._log import read_interrupt, read_question
from ._status import owner_of

Answers = Mapping[str, Any] | Sequence[str] | None
_COLLECTIONS = (dict, Mapping, list, tuple)

MAX_ANSWER = 16 * 1024 * 1024
"""Bytes that an answer may take: it comes from outside, and everyone who looks at the session reads it."""

TRIES = 20
"""How often a call looks again when the session moves under it."""


def shown(row: OpenQuestion) -> Interrupt:
    """Return an open question as people see it.

    Its checkpoint is where the session stands now, not where it stood when it asked: whoever answers with the
    checkpoint means the session as it is listed.
    """
    return read_interrupt(row.body, row.session, row.checkpoint)


class OpenQuestions:
    """The open questions of one session, and which of them a caller's answers mean."""

    def __init__(self, session_id: str, questions: Iterable[Question]) -> None:
        self._session_id = session_id
        self._questions = {question.id: question for question in questions}

    def __len__(self) -> int:
        return len(self._questions)

    @property
    def keys(self) -> dict[str, str]:
        """The keys of those that have one, by id."""
        return {question.id: question.key for question in self._questions.values() if question.key is not None}

    def resolve(self, given: Answers, by: str | None) -> tuple[Answer, ...]:
        """Return the answers as the store takes them, every one checked before any is written (rules R1, R2).

        Raises:
            UnknownInterrupt, InvalidAnswer: naming the first that is wrong.
            UsageError: the answers are not a mapping or a list, or name one question twice.
        """
        if given is None:
            return self._without_data(by)
        found: dict[str, Answer] = {}
        for name, value in _wanted(given).items():
            question = self._named(name)
            if question.id in found:
                raise UsageError(f"The answers name question '{question.id}' twice, once by its key. Name it once.")
            found[question.id] = Answer(id=question.id, value=self._checked(question, value), by=by)
        return tuple(found.values())

    def _named(self, name: str) -> Question:
        if name in self._questions:
            return self._questions[name]
        keyed = [question for question in self._questions.values() if question.key == name]
        if not keyed:
            raise UnknownInterrupt(self._session_id, name, tuple(self._questions), self.keys)
        if len(keyed) > 1:
            ids = ", ".join(question.id for question in keyed)
            raise UsageError(
                f"Several open questions of session '{self._session_id}' have the key '{name}'. Answer by id: {ids}."
            )
        return keyed[0]

    def _without_data(self, by: str | None) -> tuple[Answer, ...]:
        taking = [question for question in self._questions.values() if not _problems(None, question)]
        if self._questions and not taking:
            first = next(iter(self._questions))
            raise InvalidAnswer(
                self._session_id, first, ["it needs an answer with data, so it cannot be resumed without one"]
            )
        return tuple(Answer(id=question.id, value=b"null", by=by) for question in taking)

    def _checked(self, question: Question, value: Any) -> bytes:
        problems = _problems(self._as_data(question, value), question) if question.schema is not None else []
        if problems:
            raise InvalidAnswer(self._session_id, question.id, problems)
        try:
            return _encoded(value)
        except NotStorable:
            if question.schema is None:
                raise
            # The schema says what it is, so its JSON form is enough to build it from.
            return _encoded(schemas.to_json_data(value))

    def _as_data(self, question: Question, value: Any) -> Any:
        try:
            return schemas.to_json_data(value)
        except (TypeError, ValueError) as error:
            raise InvalidAnswer(self._session_id, question.id, [str(error)]) from error


def _encoded(value: Any) -> bytes:
    adopted, plain = codec.adopt(value, "the answer")
    return codec.encode(adopted, plain, "the answer", MAX_ANSWER)


def _wanted(given: Mapping[str, Any] | Sequence[str]) -> Mapping[str, Any]:
    names: list[Any] = list(given) if isinstance(given, _COLLECTIONS) else []  # Any: users pass anything
    if not names or [name for name in names if not isinstance(name, str)]:
        raise UsageError(
            f"answers={given!r}: give a mapping of question ids (or keys) to answers, a list of ids, or None for all."
        )
    return given if isinstance(given, dict | Mapping) else dict.fromkeys(names)


def _problems(data: Any, question: Question) -> list[str]:
    try:
        return schemas.problems(data, question.schema)
    except Exception as error:  # protects whoever answers: an altered schema may make its reader raise anything
        raise CheckpointCorrupt(f"the schema of question '{question.id}' cannot be read ({error})") from error


async def why_not_open(store: Store, ref: SessionRef, unknown: UnknownInterrupt, *, live: bool) -> Exception:
    """Return the best explanation why a named question is not open: it may have ended."""
    name = unknown.interrupt_id
    ended = [entry for entry in await store.audit(ref) if entry.how is not None]
    for entry in reversed(ended):
        if name in (entry.id, read_question(entry.body).key):
            if entry.how == "expired":
                return InterruptExpired(ref.id, entry.id)
            return AlreadyResumed(ref.id, entry.id, live=live, by=entry.by, at=entry.at)
    return unknown


async def record_answers(
    store: Store, ref: SessionRef, given: Answers, *, by: str | None, seen: str | None = None
) -> Head:
    """Record answers beside the log, without going on; with the checkpoint that was `seen`, only if nothing has moved.

    Raises:
        CheckpointNotFound: there is no such session.
        UnknownInterrupt, AlreadyResumed, InterruptExpired, InvalidAnswer: naming the first that is wrong.
        StaleCheckpoint: the session has moved on from the checkpoint that was seen.
    """
    for _ in range(TRIES):
        head = await store.head(ref)
        if head is None:
            raise CheckpointNotFound(ref.id)
        questions = OpenQuestions(ref.id, [read_question(row.body) for row in await store.questions(ref)])
        is_live = owner_of(head) is not None
        if given is None and not questions:
            raise AlreadyResumed(ref.id, live=is_live)
        try:
            answers = questions.resolve(given, by)
        except UnknownInterrupt as unknown:
            raise await why_not_open(store, ref, unknown, live=is_live) from None
        if seen not in (None, head.checkpoint):
            raise StaleCheckpoint(ref.id, seen, head.checkpoint)
        try:
            return await store.answer(ref, answers, after=seen)
        except Conflict:
            continue
    raise Conflict(ref.id, "others keep writing it")


async def record_shown(
    store: Store, ref: SessionRef, asked: Interrupt, value: Any, *, by: str | None, seen: str | None = None
) -> Head:
    """Record the answer to one question, provided that it still is what the person was shown.

    Raises:
        StaleCheckpoint: what is asked there now is something else; or, with `seen`, anything has moved.
    """
    for _ in range(TRIES):
        rows = {row.id: shown(row) for row in await store.questions(ref)}
        now = rows.get(asked.id)
        if now is None:
            return await record_answers(store, ref, {asked.id: value}, by=by)  # which says why it is not open
        at = now.checkpoint_id or ""
        if _without_place(now) != _without_place(asked) or seen not in (None, at):
            raise StaleCheckpoint(ref.id, seen or asked.checkpoint_id or "", at)
        try:
            return await record_answers(store, ref, {asked.id: value}, by=by, seen=at)
        except StaleCheckpoint:
            continue  # Something else of the session went on; the question may still be the same.
    raise Conflict(ref.id, "others keep writing it")


def _without_place(asked: Interrupt) -> Interrupt:
    return msgspec.structs.replace(asked, checkpoint_id=None)
