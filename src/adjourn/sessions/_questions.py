"""Open questions: reading them, finding those that answers refer to, and recording the answers beside the log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from adjourn._engine.record import APPROVALS, Question, id_of_token, token_of
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

from ._contents import Contents
from ._log import read_interrupt, read_question
from ._permission import Permission
from ._status import owner_of

Answers = Mapping[Any, Any] | Sequence[Any] | None  # Any: keys are tokens, ids, keys of questions, or interrupts
_COLLECTIONS = (dict, Mapping, list, tuple)

MAX_ANSWER = 16 * 1024 * 1024
"""Bytes that an answer may take: it comes from outside, and everyone who looks at the session reads it."""

TRIES = 20
"""How often a call retries when the session changes under it."""


def shown(row: OpenQuestion) -> Interrupt:
    """Return an open question as people see it.

    Its checkpoint is the session's current one, not the one at which it asked: whoever answers with the checkpoint
    means the session as listed.
    """
    return read_interrupt(row.body, SessionRef(row.session, row.app), _branch_of(row.checkpoint), row.checkpoint)


class OpenQuestions:
    """The open questions of one session, on its branch, and which of them a caller's answers refer to.

    With `require_token`, approvals must be answered by their tokens.
    """

    def __init__(
        self, ref: SessionRef, branch: str, questions: Iterable[Question], *, require_token: bool = False
    ) -> None:
        self._ref = ref
        self._session_id = ref.id
        self._branch = branch
        self._questions = {question.id: question for question in questions}
        self._require_token = require_token

    def __len__(self) -> int:
        return len(self._questions)

    @property
    def keys(self) -> dict[str, str]:
        """The keys of those that have one, by id."""
        return {question.id: question.key for question in self._questions.values() if question.key is not None}

    def resolve(self, given: Answers, by: str | None) -> tuple[Answer, ...]:
        """Return the answers as the store expects them, all checked before any is written (rules R1, R2).

        Raises:
            UnknownInterrupt, InvalidAnswer: naming the first that is wrong.
            UsageError: the answers are not a mapping or a list, or name one question twice.
        """
        if given is None:
            return self._without_data(by)
        found: dict[str, Answer] = {}
        for name, value in _wanted(given).items():
            question = self._by_token(name)
            if question is None:
                question = self._named(name)
                self._check_token(question)
            if question.id in found:
                raise UsageError(f"The answers name question '{question.id}' twice. Name it once.")
            found[question.id] = Answer(
                id=question.id, value=self._checked(question, value), by=by, branch=self._branch
            )
        return tuple(found.values())

    def _by_token(self, name: str) -> Question | None:
        question = self._questions.get(id_of_token(name) or "")
        if question is not None and token_of(question, self._ref.app, self._ref.id, self._branch) == name:
            return question
        return None

    def _check_token(self, question: Question) -> None:
        """Refuse an approval by id: whoever gave it may have been shown something else."""
        if self._require_token and question.reason in APPROVALS:
            raise InvalidAnswer(
                self._session_id, question.id, ["approvals are answered by token here; `pending` shows it"]
            )

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
        return tuple(Answer(id=question.id, value=b"null", by=by, branch=self._branch) for question in taking)

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
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidAnswer(self._session_id, question.id, [str(error)]) from error


def _encoded(value: Any) -> bytes:
    adopted, plain = codec.adopt(value, "the answer")
    return codec.encode(adopted, plain, "the answer", MAX_ANSWER)


def _wanted(given: Mapping[Any, Any] | Sequence[Any]) -> dict[str, Any]:
    """Return the answers by the names of their questions; an interrupt stands for its token."""
    listed: list[Any] = list(given) if isinstance(given, _COLLECTIONS) else []  # Any: users pass anything
    names = [(each.token or each.id) if isinstance(each, Interrupt) else each for each in listed]
    if not names or [name for name in names if not isinstance(name, str)]:
        raise UsageError(
            f"answers={given!r}: give a mapping of questions (their tokens, ids or keys, or the interrupts themselves) "
            "to answers, a list of them, or None for all."
        )
    values = given.values() if isinstance(given, dict | Mapping) else [None] * len(names)
    found = dict(zip(names, values, strict=True))
    if len(found) < len(names) and isinstance(given, dict | Mapping):
        raise UsageError("The answers name one question twice, as an interrupt and by its token. Name it once.")
    return found


def _problems(data: Any, question: Question) -> list[str]:
    try:
        return schemas.problems(data, question.schema)
    except Exception as error:  # protects whoever answers: a tampered schema may make its reader raise anything
        raise CheckpointCorrupt(f"the schema of question '{question.id}' cannot be read ({error})") from error


async def why_not_open(store: Store, ref: SessionRef, unknown: UnknownInterrupt, *, live: bool) -> Exception:
    """Return the error that best explains why a named question is not open: it may have ended, or been superseded."""
    name, head = unknown.interrupt_id, await store.head(ref)
    if head is None:
        return CheckpointNotFound(ref.id)
    named = id_of_token(name)
    ended = [entry for entry in await store.audit(ref) if entry.how is not None]
    for entry in reversed(ended):
        question = read_question(entry.body)
        is_shown = entry.id == named and token_of(question, ref.app, ref.id, head.branch) == name
        if is_shown and entry.how == "abandoned":
            break  # Its code asks something else now, or nothing.
        if is_shown or name in (entry.id, question.key):
            if entry.how == "expired":
                return InterruptExpired(ref.id, entry.id)
            return AlreadyResumed(ref.id, entry.id, live=live, by=entry.by, at=entry.at)
    if named is not None:
        return StaleCheckpoint(ref.id, "", head.checkpoint, token=name, open=unknown.open)
    return unknown


async def record_answers(
    store: Store,
    ref: SessionRef,
    given: Answers,
    *,
    by: str | None,
    seen: str | None = None,
    require_token: bool = False,
    permission: Permission | None = None,
) -> Head:
    """Record answers beside the log, without going on; with the checkpoint that was `seen`, only if nothing changed.

    Raises:
        CheckpointNotFound: there is no such session.
        UnknownInterrupt, AlreadyResumed, InterruptExpired, InvalidAnswer: naming the first that is wrong.
        StaleCheckpoint: the session has moved on from the checkpoint that was seen, or from a token's question.
        AnswerRefused: this person may not answer.
    """
    for _ in range(TRIES):
        head = await store.head(ref)
        if head is None:
            raise CheckpointNotFound(ref.id)
        rows = await store.questions(ref)
        if any(_branch_of(row.checkpoint) != head.branch for row in rows):
            continue  # It changed in between.
        asked = [read_question(row.body) for row in rows]
        questions = OpenQuestions(ref, head.branch, asked, require_token=require_token)
        is_live = owner_of(head) is not None
        if given is None and not questions:
            raise AlreadyResumed(ref.id, live=is_live)
        try:
            answers = questions.resolve(given, by)
        except UnknownInterrupt as unknown:
            raise await why_not_open(store, ref, unknown, live=is_live) from None
        if seen not in (None, head.checkpoint):
            raise StaleCheckpoint(ref.id, seen, head.checkpoint)
        if permission:
            await _check_permission(permission, store, ref, rows, answers, by)
        try:
            return await store.answer(ref, answers, after=seen)
        except Conflict:
            continue
    raise Conflict(ref.id, "others keep writing it")


async def _check_permission(
    permission: Permission,
    store: Store,
    ref: SessionRef,
    rows: Iterable[OpenQuestion],
    answers: Iterable[Answer],
    by: str | None,
) -> None:
    named = {answer.id for answer in answers}

    async def turn_user() -> str | None:
        return (await Contents.at(store, ref)).scope.user_id

    await permission.check([shown(row) for row in rows if row.id in named], by, turn_user)


def _branch_of(checkpoint: str) -> str:
    return checkpoint.rpartition(".")[0]
