"""Open questions: reading them, finding those that answers refer to, and recording the answers beside the log."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, TypeVar

from msgspec.structs import replace

from adjourn._engine.entry import check_not_own
from adjourn._engine.record import (
    APPROVALS,
    Called,
    Question,
    called_so,
    id_of_token,
    token_of,
    with_answer_id,
    with_message,
    without_message,
)
from adjourn._hiding import known
from adjourn._schemas import answers as schemas
from adjourn._values import codec
from adjourn._values.frozen import check_text, is_text
from adjourn.errors import (
    AlreadyResumed,
    CheckpointCorrupt,
    CheckpointNotFound,
    Conflict,
    InterruptExpired,
    InvalidAnswer,
    MissingKey,
    NotStorable,
    SessionError,
    StaleCheckpoint,
    UnknownInterrupt,
    UsageError,
)
from adjourn.events import Interrupt
from adjourn.stores._logging import note_damage, note_missing_key
from adjourn.stores.kit import Audit, GetHead, GiveAnswers, HasInput, ListAsked, ListOpen, Load
from adjourn.stores.protocol import Store
from adjourn.stores.types import Answer, AuditEntry, Decided, Head, OpenQuestion, SessionRef

from ._contents import Contents
from ._inbox import Page, one_page
from ._log import read_interrupt, read_question
from ._permission import Permission, TurnUser, approves
from ._status import owner_of

R = TypeVar("R", bound=OpenQuestion | Decided)
T = TypeVar("T")

Answers = Mapping[Any, Any] | Sequence[Any] | None  # Any: keys are tokens, ids, keys of questions, or interrupts
_COLLECTIONS = (dict, Mapping, list, tuple)

MAX_ANSWER = 16 * 1024 * 1024
"""Bytes that an answer may take: it comes from outside, and everyone who looks at the session reads it."""

_HOLDS_SECRET = (
    "it holds the value of a Secret, which is not stored; leave it out, and let the code that needs it read it with "
    "`Secret.from_env`"
)

TRIES = 20
"""How often a call retries when the session changes under it."""


def shown(row: OpenQuestion) -> Interrupt:
    """Return an open question as people see it.

    Its checkpoint is the session's current one, not the one at which it asked: whoever answers with the checkpoint
    means the session as listed.
    """
    found = read_interrupt(row.body, SessionRef(row.session, row.app), _branch_of(row.checkpoint), row.checkpoint)
    if row.removed_after is None:
        return found
    return replace(found, removed_after=datetime.fromtimestamp(row.removed_after, UTC))


def shown_page(rows: Sequence[R], limit: int | None, show: Callable[[R], T], *, is_first: bool) -> Page[T]:
    """Return a page of questions of many sessions, without those that are damaged or encrypted.

    Raises:
        MissingKey: it is the only one, and all that is on it is encrypted.
    """
    listed, following = one_page(rows, limit)
    found = list(shown_in_list(listed, show))
    if not found and following is None and is_first:
        for row in listed:
            with contextlib.suppress(CheckpointCorrupt):
                show(row)
    return Page(found, next=following)


def shown_in_list(rows: Iterable[R], show: Callable[[R], T]) -> Iterator[T]:
    """Yield questions of a listing: one that is damaged, or encrypted, must not break the whole list."""
    for row in rows:
        try:
            yield show(row)
        except CheckpointCorrupt as damage:
            note_damage(damage)
        except MissingKey as missing:
            note_missing_key(row.session, missing)


async def questions_of(store: Store, head: Head) -> list[OpenQuestion]:
    """Return the open questions of a session in a listing, where a damaged one must not break the whole list."""
    try:
        return await store.read(ListOpen(head.ref))
    except CheckpointCorrupt as damage:
        note_damage(damage)
    except MissingKey as missing:
        note_missing_key(head.session, missing)
    return []


_IN_TOOL_CALL = re.compile(r"(?:^|;)agent:[^;]*;tool:")
"""In an address: a tool call that the model of an agent made, here or further up."""


class OpenQuestions:
    """The open questions of one session, on its branch, and which of them a caller's answers refer to.

    With `require_token`, approvals must be answered by their tokens.
    """

    def __init__(
        self, ref: SessionRef, branch: str, questions: Mapping[str, Question], *, require_token: bool = False
    ) -> None:
        self._ref = ref
        self._session_id = ref.id
        self._branch = branch
        self._questions = questions
        self._require_token = require_token

    def __len__(self) -> int:
        return len(self._questions)

    @property
    def keys(self) -> dict[str, str]:
        """The keys of those that have one, by id."""
        return {question.id: question.key for question in self._questions.values() if question.key is not None}

    def resolve(
        self, given: Answers, by: str | None, message: str | None = None, called: Called | None = None
    ) -> tuple[Answer, ...]:
        """Return the answers as the store expects them, all checked before any is written (rules R1, R2).

        A `message` is stored with the first of them that is about a tool call of an agent. `called` is what the caller
        calls this.

        Raises:
            UnknownInterrupt, InvalidAnswer: naming the first that is wrong.
            UsageError: the answers are not a mapping or a list, or name one question twice.
        """
        by = by and known.hide(by)
        answers = self._without_data(by) if given is None else self._resolved(given, by)
        if message is not None:
            answers = self._with_message(answers, message)
        if called is not None:
            answers = tuple(replace(each, value=with_answer_id(each.value, called), call=called.id) for each in answers)
        return answers

    def _resolved(self, given: Mapping[Any, Any] | Sequence[Any], by: str | None) -> tuple[Answer, ...]:
        found: dict[str, Answer] = {}
        for name, value in _wanted(given).items():
            question = self._named(name)
            if question.id in found:
                raise UsageError(f"The answers name question '{question.id}' twice. Name it once.")
            encoded = self._checked(question, value)
            found[question.id] = self._answer(question, value, encoded, by)
        return tuple(found.values())

    def _with_message(self, answers: tuple[Answer, ...], message: str) -> tuple[Answer, ...]:
        if not isinstance(message, str) or not message.strip():  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
            raise UsageError(f"message={message!r}: give a text to say together with the answer.")
        check_text(message, "message")
        for number, answer in enumerate(answers):
            if _IN_TOOL_CALL.search(self._questions[answer.id].address):
                said = replace(answer, value=with_message(answer.value, known.hide(message)))
                return (*answers[:number], said, *answers[number + 1 :])
        raise UsageError(
            "A message goes together with an answer about an agent's tool call, whose model then reads it. Here nobody "
            "would read it: answer without it, and say it in the next turn."
        )

    def _named(self, name: str) -> Question:
        """Return the question with this id, token or key."""
        question = self._questions.get(name)
        if question is None and (question := self._by_token(name)) is not None:
            return question
        question = question or self._with_key(name)
        if self._require_token and question.reason in APPROVALS:
            # Whoever gives an approval by id may have been shown something else.
            raise InvalidAnswer(
                self._session_id, question.id, ["approvals are answered by token here; `pending` shows it"]
            )
        return question

    def _by_token(self, name: str) -> Question | None:
        question = self._questions.get(id_of_token(name) or "")
        is_it = question and token_of(question, self._ref.app, self._ref.id, self._branch) == name
        return question if is_it else None

    def _with_key(self, name: str) -> Question:
        keyed = self._by_key.get(name)
        if keyed is None:
            raise UnknownInterrupt(self._session_id, name, tuple(self._questions), self.keys)
        if len(keyed) > 1:
            ids = ", ".join(question.id for question in keyed)
            raise UsageError(
                f"Several open questions of session '{self._session_id}' have the key '{name}'. Answer by id: {ids}."
            )
        return keyed[0]

    @cached_property
    def _by_key(self) -> dict[str, list[Question]]:
        found: dict[str, list[Question]] = {}
        for question in self._questions.values():
            if question.key is not None:
                found.setdefault(question.key, []).append(question)
        return found

    def _without_data(self, by: str | None) -> tuple[Answer, ...]:
        taking = [question for question in self._questions.values() if not _problems(None, question)]
        if self._questions and not taking:
            first = next(iter(self._questions))
            raise InvalidAnswer(
                self._session_id, first, ["it needs an answer with data, so it cannot be resumed without one"]
            )
        return tuple(self._answer(question, None, b"null", by) for question in taking)

    def _answer(self, question: Question, value: Any, encoded: bytes, by: str | None) -> Answer:
        does = approves(self._session_id, question, value)
        return Answer(id=question.id, value=encoded, by=by, branch=self._branch, approves=does)

    def _checked(self, question: Question, value: Any) -> bytes:
        problems = self._misfits(question, value) if question.schema is not None else []
        if problems:
            raise InvalidAnswer(self._session_id, question.id, problems)
        try:
            return self._encoded(question, value)
        except NotStorable:
            if question.schema is None:
                raise
            # The schema says what it is, so its JSON form is enough to build it from.
            return self._encoded(question, schemas.to_json_data(value))

    def _encoded(self, question: Question, value: Any) -> bytes:
        if known.forms and codec.holds_secret(value, "the answer"):
            # Code must not go on with something else than what was answered.
            raise InvalidAnswer(self._session_id, question.id, [_HOLDS_SECRET])
        adopted, plain = codec.adopt(value, "the answer")
        return codec.encode(adopted, plain, "the answer", MAX_ANSWER)

    def _misfits(self, question: Question, value: Any) -> list[str]:
        try:
            schemas.to_json_data(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidAnswer(self._session_id, question.id, [str(error)]) from error
        return _problems(value, question)


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


def _problems(value: Any, question: Question) -> list[str]:
    try:
        return schemas.misfits(value, question.schema)
    except Exception as error:  # protects whoever answers: a tampered schema may make its reader raise anything
        raise CheckpointCorrupt(f"the schema of question '{question.id}' cannot be read ({error})") from error


async def why_not_open(store: Store, ref: SessionRef, unknown: UnknownInterrupt, *, live: bool) -> Exception:
    """Return the error that best explains why a named question is not open: it may have ended, or been superseded."""
    name, head = unknown.interrupt_id, await store.read(GetHead(ref))
    if head is None:
        return CheckpointNotFound(ref.id)
    named = id_of_token(name)
    has_moved = named is not None
    ended = [entry for entry in await store.read(Audit(ref)) if entry.how is not None]
    for entry in reversed(ended):
        question = read_question(entry.body)
        is_shown = entry.id == named and token_of(question, ref.app, ref.id, head.branch) == name
        if not is_shown and name not in (entry.id, question.key):
            continue
        if entry.how == "abandoned":
            has_moved = True  # Nobody has answered it: its code asks something else now, or nothing.
            break
        if entry.how == "expired":
            return InterruptExpired(ref.id, entry.id)
        return AlreadyResumed(ref.id, entry.id, live=live, by=entry.by, at=entry.at)
    return StaleCheckpoint(ref.id, "", head.checkpoint, token=name, open=unknown.open) if has_moved else unknown


async def record_answers(
    store: Store,
    ref: SessionRef,
    given: Answers,
    *,
    by: str | None,
    message: str | None = None,
    seen: str | None = None,
    id: str | None = None,
    require_token: bool = False,
    permission: Permission | None = None,
) -> Head:
    """Record answers beside the log, without going on; with the checkpoint that was `seen`, only if nothing changed.

    With an `id`, answers that were recorded under it before are recorded once.

    Raises:
        Conflict: something else was recorded under this id.
        CheckpointNotFound: there is no such session, or it has never been at the checkpoint.
        UnknownInterrupt, AlreadyResumed, InterruptExpired, InvalidAnswer: naming the first that is wrong.
        StaleCheckpoint: the session has moved on from the checkpoint that was seen, or from a token's question.
        AnswerRefused: this person may not answer.
        UsageError: the session runs the code that makes this call.
    """
    if id is not None and await seq_before(store, ref, id, given, by, message) is not None:
        return await _found(store, ref)
    try:
        return await _recorded(store, ref, given, by, message, seen, id, permission, require_token=require_token)
    except SessionError:
        # Somebody who sends the same may have been faster.
        if id is None or await seq_before(store, ref, id, given, by, message) is None:
            raise
        return await _found(store, ref)


async def seq_before(
    store: Store, ref: SessionRef, id: str, given: Answers, by: str | None, message: str | None, rest: str = ""
) -> int | None:
    """Return the number of the event before answers that were recorded under an id; None if there are none.

    `rest` is that of `Called`.

    Raises:
        Conflict: they are not these, or came with something else; the session has left the branch that they are on; or
            an input has the id (rule R20).
    """
    try:
        rows = await store.read(Audit(ref, all_branches=True))
    except CheckpointNotFound:
        return None
    # A fork inherits what was answered where it comes from, and not what that was called there.
    named = [row for row in rows if called_so(row.value, id) is not None]
    own = [row for row in named if not read_question(row.body).inherited]
    if not own:
        if await store.read(HasInput(ref, id)):
            raise _used(ref, id, "an input was submitted")
        return None
    ids, branch = {row.id for row in own}, (await _found(store, ref)).branch
    here = [row for row in rows if row.branch == branch and row.id in ids]
    count = {row.id for row in here if row in own or read_question(row.body).inherited}
    called = called_so(own[-1].value, id)
    assert called is not None
    if count != ids or called.rest != rest or not _are_these(ref, own, given, by, message):
        raise _used(ref, id, "something else was answered")
    return called.after


def _used(ref: SessionRef, id: str, how: str) -> Conflict:
    return Conflict(ref.id, f"{how} under the id '{id}'", remedy="Choose another id for this answer")


def _are_these(
    ref: SessionRef, rows: Sequence[AuditEntry], given: Answers, by: str | None, message: str | None
) -> bool:
    """Return whether rows have exactly these answers."""
    questions = OpenQuestions(ref, rows[0].branch, {row.id: read_question(row.body) for row in rows})
    try:
        meant = questions.resolve(given, by, message)
    except (SessionError, UsageError):
        return False  # There is no such question among them, or it could not have been answered so.
    return _told(meant) == _told(rows)


def _told(answers: Iterable[Answer | AuditEntry]) -> tuple[dict[str, tuple[str, str | None]], list[str]]:
    """Return what tells answers from others: their values and authors by question, and what was said with them."""
    found: dict[str, tuple[str, str | None]] = {}
    messages: list[str] = []
    for each in answers:
        value, message = without_message(each.value or b"")
        found[each.id] = codec.fingerprint(codec.decode(value, lenient=True)), each.by
        messages += [] if message is None else [message]
    return found, messages


async def _found(store: Store, ref: SessionRef) -> Head:
    head = await store.read(GetHead(ref))
    if head is None:
        raise CheckpointNotFound(ref.id)
    return head


async def _recorded(
    store: Store,
    ref: SessionRef,
    given: Answers,
    by: str | None,
    message: str | None,
    seen: str | None,
    id: str | None,
    permission: Permission | None,
    *,
    require_token: bool,
) -> Head:
    for _ in range(TRIES):
        head = await _found(store, ref)
        check_not_own(ref.id, head.owner)
        called = None if id is None else Called(id, head.seq)
        resolved = await _resolved(store, head, given, by, message, called, require_token=require_token)
        if resolved is None:
            continue  # It changed in between.
        answers, rows = resolved
        if seen is not None and seen != head.checkpoint:
            await store.read(Load(ref, seen))  # Raises if there is no such checkpoint.
            raise StaleCheckpoint(ref.id, seen, head.checkpoint)
        if permission:
            asked = [read_interrupt(rows[each.id], ref, head.branch, head.checkpoint) for each in answers]
            await permission.check(asked, by, _turn_user(store, ref))
        try:
            return await store.write(GiveAnswers(ref=ref, answers=answers, after=seen))
        except Conflict:
            if id is not None and await seq_before(store, ref, id, given, by, message) is not None:
                return await _found(store, ref)
    raise Conflict(ref.id, "others keep writing it")


Rows = dict[str, bytes]
"""Open questions by their ids, as they are stored."""


async def _resolved(
    store: Store,
    head: Head,
    given: Answers,
    by: str | None,
    message: str | None,
    called: Called | None,
    *,
    require_token: bool,
) -> tuple[tuple[Answer, ...], Rows] | None:
    """Return answers as the store takes them, with the questions; None if the session has left the branch of `head`.

    Raises:
        UnknownInterrupt, AlreadyResumed, InterruptExpired, InvalidAnswer, StaleCheckpoint: as for `record_answers`.
    """

    def resolve(rows: Rows) -> tuple[tuple[Answer, ...], Rows]:
        asked = {each: read_question(body) for each, body in rows.items()}
        questions = OpenQuestions(head.ref, head.branch, asked, require_token=require_token)
        return questions.resolve(given, by, message, called), rows

    if given is not None:
        # However many others are open, they need not be read, unless a name turns out to be something else.
        with contextlib.suppress(UnknownInterrupt):
            return resolve(await _named_rows(store, head, given))
    rows, is_live = await _open_rows(store, head), owner_of(head) is not None
    if rows is None:
        return None
    if given is None and not rows:
        raise AlreadyResumed(head.session, live=is_live)
    try:
        return resolve(rows)
    except UnknownInterrupt as unknown:
        raise await why_not_open(store, head.ref, unknown, live=is_live) from None


async def _named_rows(store: Store, head: Head, given: Mapping[Any, Any] | Sequence[Any]) -> Rows:
    """Return the open questions that answers name by their ids or tokens."""
    names = _wanted(given)
    ids = {each for name in names for each in (name, id_of_token(name)) if each is not None and is_text(each)}
    return {
        row.id: row.body for row in await store.read(ListAsked(head.ref, head.branch, list(ids))) if row.how is None
    }


async def _open_rows(store: Store, head: Head) -> Rows | None:
    """Return all open questions; None if the session has left the branch of `head`."""
    rows = await store.read(ListOpen(head.ref))
    if any(_branch_of(row.checkpoint) != head.branch for row in rows):
        return None
    return {row.id: row.body for row in rows}


def _turn_user(store: Store, ref: SessionRef) -> TurnUser:
    """Return what reads whose turn asks."""

    async def turn_user() -> str | None:
        return (await Contents.at(store, ref)).scope.user_id

    return turn_user


def _branch_of(checkpoint: str) -> str:
    return checkpoint.rpartition(".")[0]
