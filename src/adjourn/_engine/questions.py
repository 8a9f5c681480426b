"""Questions: what code asks of people, how a question is found again when the code is rerun, and which are open."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import takewhile
from typing import Any, NoReturn

import msgspec
from msgspec import Raw

from adjourn._schemas import answers
from adjourn._text import undotted
from adjourn._values import codec
from adjourn._values.frozen import check_text, shorten
from adjourn.errors import (
    AmbiguousInterrupt,
    InterruptExpired,
    InterruptsDisabled,
    NotInRun,
    NotStorable,
    Pause,
    ReplayMismatch,
    UsageError,
)
from adjourn.events import Interrupt

from .frame import QUESTIONS, Entry, Place, current_place, question_key
from .memos import NONE, Kind
from .record import Question, token_of
from .scope import Frame, Scope
from .values import decoded

MAX_UNUSED = 3
"""Answers in a row, at one place, to questions that the code did not ask again."""

MAX_WAIT = 1_000 * 365 * 86_400.0
"""The most seconds that a question can wait: beyond that, its date cannot be written."""


class AnswerWith(msgspec.Struct, frozen=True):
    """What a question is answered with when it expires."""

    value: Any


def ask(place: Place, asked: Question, schema: Any) -> Any:
    """Return the answer to a question, once there is one; until then raise `Pause`."""
    scope, caller, prompt = place.frame.scope, threading.get_ident(), asked.prompt
    while True:
        question = scope.on_loop(_ask)(place, asked, caller)
        if question.how is None:
            raise Pause(question.id)
        try:
            return _delivered(scope, question, schema)
        except ValueError as error:
            # It fits the JSON Schema, but the type itself rejects it: ask again rather than fail for good.
            scope.on_loop(place.entry.refuse)(question)
            asked = msgspec.structs.replace(asked, prompt=_told_why(prompt or _prompt(decoded(asked.info)), error))


def ask_by_hand(place: Place, asked: Question, *, is_composite: bool) -> NoReturn:
    """Pause for a question whose answer the code handles itself; a composite asks nothing itself."""
    place.frame.scope.on_loop(_compose if is_composite else _raise)(place, asked)
    place.entry.pausing = True
    raise Pause(place.address)


def asking_place(call: str) -> Place:
    """Return where the calling code is running, which must be somewhere that can pause."""
    place = current_place.get()
    if place is None:
        raise NotInRun(call)
    if place.once is not None:
        raise UsageError(
            f"`{call}` was called inside @once function '{place.once.name}'. Ask before or after it: a kept call "
            "cannot pause."
        )
    return place


def _told_why(prompt: str | None, error: Exception) -> str:
    told = f"{prompt or ''} (The last answer did not fit: {' '.join(str(error).split())})".strip()
    _check_text("prompt", told)
    return told


def _ask(place: Place, asked: Question, caller: int) -> Question:
    """Return the matching question of an earlier entry, or a new one. `caller` is the thread that asks."""
    entry = place.entry
    place.check()
    number = entry.next(Kind.ASK, asked.key or "").number
    question = _recorded(entry, asked, number) if place.frame.questions else None
    if question is None:
        question = asked
        question.concurrent = not entry.is_straight(caller)
        _open(place, question)
    entry.meet(question)
    if question.how is None:
        entry.pausing = True
    return question


def _check_new(place: Place, asked: Question) -> None:
    """Refuse a question that could be mistaken for another, now or when the code is rerun."""
    entry = place.entry
    missed = None if asked.concurrent or asked.optional else entry.first_missing(QUESTIONS)
    if missed is not None:
        question = next(each for each in place.frame.questions or () if each.id == missed.name)
        raise _mismatched(entry, question, f"a question {_shown(asked)}")
    if entry.questions().is_ambiguous(asked.key):
        raise entry.failed(AmbiguousInterrupt(place.address))


def _mismatched(entry: Entry, question: Question, now: str) -> Exception:
    before = f"question '{question.id}' {_shown(question)}"
    return entry.failed(ReplayMismatch(entry.frame.address, before, now))


def _recorded(entry: Entry, asked: Question, number: int) -> Question | None:
    """Return the matching question on record: one that shows the same, and that this entry has not reached yet."""
    all_ = entry.questions().under(asked.key)
    if number <= len(all_) and not entry.has_met(all_[number - 1]) and _is_same(all_[number - 1], asked):
        return all_[number - 1]
    left = [question for question in all_ if not entry.has_met(question)]
    expected = next((question for question in left if not question.optional), None)
    if asked.key is None and expected is not None:
        if _is_same(expected, asked):
            return expected
        raise _mismatched(entry, expected, f"a question {_shown(asked)}")
    found = next((question for question in left if _is_same(question, asked)), None)
    if found is None and left:
        _check_unused(entry, left, asked)
        asked.optional = True
        _set_aside(entry, left)
    elif found is not None:
        _set_aside(entry, [question for question in left if question.optional and question is not found])
    return found


def _check_unused(entry: Entry, left: Sequence[Question], asked: Question) -> None:
    """Refuse to ask forever: code that shows something different every time cannot use any answer."""
    unused = list(takewhile(lambda question: not question.is_open, reversed(left)))
    if asked.key is not None and len(unused) >= MAX_UNUSED:
        raise _mismatched(entry, unused[0], f"a question {_shown(asked)}, which is different every time")


def _set_aside(entry: Entry, others: Sequence[Question]) -> None:
    """Go on without questions that the code has replaced with another; an open one is superseded (rule I14).

    An answer stays, and counts if the code reaches its question after all.
    """
    scope = entry.frame.scope
    for question in others:
        entry.came(question_key(question))
        question.optional = True
        if question.is_open:
            scope.supersede(entry.frame, question)
            entry.questions().forget(question)
        scope.questions.changed[question.id] = question
        scope.mark(entry.frame)


def _is_same(question: Question, asked: Question) -> bool:
    if asked.key is not None and (
        question.reason != asked.reason or _essence(question.schema) != _essence(asked.schema)
    ):
        return False
    return _shows_the_same(question, asked)


def _shows_the_same(question: Question, asked: Question) -> bool:
    if question.info == asked.info:
        return True
    # The keys of a dict and the elements of a set may be in a different order.
    return codec.fingerprint(decoded(asked.info)) == codec.fingerprint(decoded(question.info))


def _essence(schema: dict[str, Any] | None) -> object:
    return None if schema is None else answers.essence(schema)


def _shown(question: Question) -> str:
    key = f"(key '{question.key}') " if question.key else ""
    return f"{key}that shows {bytes(question.info).decode(errors='replace')[:200]}"


def _open(place: Place, question: Question) -> None:
    entry, frame = place.entry, place.frame
    if not frame.scope.interrupts:
        raise entry.failed(InterruptsDisabled(place.address))
    if frame.questions is None:
        frame.questions = []
    elif not question.raised:
        _check_new(place, question)
    frame.questions.append(question)
    if entry.asked is not None:
        entry.asked.add(question)
    frame.scope.ask(frame, question, place.address)


def _raise(place: Place, asked: Question) -> None:
    """Open a raised question, or keep waiting for the one that an earlier entry raised at this address."""
    entry, frame = place.entry, place.frame
    place.check()
    waiting = [q for q in frame.questions or () if q.raised and q.is_open and q.key == asked.key]
    found = next((q for q in waiting if q.address == place.address), None)
    if found is None:
        found = asked
        _open(place, found)
    elif found.id in (entry.raised or ()):
        raise entry.failed(AmbiguousInterrupt(place.address))
    elif asked.state is not NONE:
        found.state = asked.state
        frame.scope.questions.changed[found.id] = found
        frame.scope.mark(frame)
    entry.raised = (entry.raised or set()) | {found.id}


def new_question(
    scope: Scope,
    info: Any,
    *,
    key: str | None = None,
    reason: str = "need_input",
    prompt: str | None = None,
    schema: Any = None,
    state: Any = None,
    expires_in: timedelta | float | None = None,
    on_expire: Any = "fail",
    raised: bool = False,
) -> Question:
    """Return a question without an id yet, checking here, where it is asked, that everything in it can be stored."""
    if reason != "need_input":
        _check_text("reason", reason)
    if key is not None:
        _check_text("key", key)
    if prompt is not None:
        _check_text("prompt", prompt)
    shown = _stored(info, "info")
    question = Question(id="", info=shown, created=scope.clock(), reason=reason, key=key, prompt=prompt, raised=raised)
    if schema is not None:
        question.schema = answers.schema_of(schema)
    if state is not None:
        question.state = _stored(state, "state")
    if expires_in is not None:
        question.expires = question.created + _seconds(expires_in)
    if on_expire != "fail":
        question.default = _default(on_expire, schema, question.schema)
    return question


def _stored(value: object, part: str) -> Raw:
    try:
        return codec.stored(value, part)
    except NotStorable as error:
        error.while_asking = True
        raise


def _check_text(name: str, text: str) -> None:
    """Refuse text that cannot be stored: here the asker sees it; at the next commit nobody would know why."""
    try:
        check_text(text, f"interrupt({name}=...)")
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from error


def _prompt(info: object) -> str | None:
    return info if isinstance(info, str) else None


def _seconds(span: timedelta | float) -> float:
    seconds = span.total_seconds() if isinstance(span, timedelta) else float(span)
    if not 0 < seconds <= MAX_WAIT:
        raise UsageError(f"expires_in is {seconds:g} s. Give a positive timedelta, or leave it out.")
    return seconds


def _default(on_expire: object, type_: Any, schema: dict[str, Any] | None) -> Raw:
    if not isinstance(on_expire, AnswerWith):
        raise UsageError(f"on_expire is {on_expire!r}. Use 'fail' or AnswerWith(value).")
    stored = _stored(on_expire.value, "on_expire")
    if schema is not None:
        _check_default(on_expire.value, type_, schema)
    return stored


def _check_default(value: Any, type_: Any, schema: dict[str, Any]) -> None:
    """Refuse an answer for expiry that does not fit the question, before anybody waits for it in vain."""
    try:
        data = answers.to_json_data(value)
        problems = answers.problems(data, schema)
        if not problems and data is not None:
            answers.convert(data, type_)
    except (TypeError, ValueError) as error:
        problems = [str(error)]
    if problems:
        raise UsageError(
            f"on_expire=AnswerWith({shorten(value)}) does not fit the question's schema: "
            f"{undotted('; '.join(problems))}. Give a value that would be accepted as an answer."
        )


def _compose(place: Place, asked: Question) -> None:
    place.check()
    asked.id = place.address
    place.frame.compose(asked)


def _delivered(scope: Scope, question: Question, schema: Any) -> Any:
    if question.how == "expired" and question.value is NONE:
        raise InterruptExpired(scope.session_id, question.id)
    value = decoded(question.value)
    return value if schema is None or value is None else answers.convert(answers.to_json_data(value), schema)


# Showing what is open


def open_interrupts(scope: Scope, checkpoint_id: str | None) -> tuple[Interrupt, ...]:
    """Return every open question of the session, in task order; siblings share their parents."""
    if not scope.questions.open:
        return ()
    parents = Parents(scope)
    found = _in_order(scope) if len(scope.questions.open) > 1 else scope.questions.open.values()
    return tuple([_shown_to_people(scope, question, checkpoint_id, parents) for _, question in found])


def _in_order(scope: Scope) -> list[tuple[str, Question]]:
    paths = [path for path, _ in scope.dormant.all_below("")] if scope.is_dormant else _paths(scope.root)
    rank = {path: number for number, path in enumerate(paths)}
    return sorted(scope.questions.open.values(), key=lambda found: rank.get(found[0], len(rank)))


def _paths(frame: Frame) -> list[str]:
    paths = [frame.path]
    for child in frame.live_children():
        paths += _paths(child)
    paths += [path for path, _ in frame.scope.dormant.all_below(frame.path)]
    return paths


def open_keys(scope: Scope) -> dict[str, str]:
    """Return the keys of the open questions that have one, by id."""
    return {name: question.key for name, (_, question) in scope.questions.open.items() if question.key is not None}


def _shown_to_people(scope: Scope, question: Question, checkpoint_id: str | None, parents: Parents) -> Interrupt:
    info, address = decoded(question.info), question.address
    return Interrupt(
        id=question.id,
        token=token_of(question, scope.app, scope.session_id, scope.branch),
        address=address,
        info=info,
        reason=question.reason,
        prompt=_prompt(info) if question.prompt is None else question.prompt,
        key=question.key,
        schema=question.schema,
        choices=answers.choices_of(question.schema) if question.schema else (),
        created=datetime.fromtimestamp(question.created, UTC),
        expires=None if question.expires is None else datetime.fromtimestamp(question.expires, UTC),
        parent=parents.above(address),
        checkpoint_id=checkpoint_id,
        session_id=scope.session_id,
    )


@lru_cache(maxsize=1024)
def parent_at(place: str) -> Interrupt | None:
    """Return a place above questions that adds nothing to them, with all above it; None above the root."""
    if not place:
        return None
    return Interrupt(id=place, address=place, is_root_cause=False, parent=parent_at(place.rpartition(";")[0]))


class Parents:
    """The places above questions, as people see them: each once, with what its composite interrupt adds."""

    def __init__(self, scope: Scope) -> None:
        self._made: dict[str, Interrupt] = {}
        self.composites: dict[str, Question] = {}
        for asker in scope.questions.askers.values() if scope.questions.has_composites else ():
            self.composites.update(getattr(asker, "composites", None) or {})  # Images of graphs have none.

    def above(self, address: str) -> Interrupt | None:
        """Return the place above `address`, with all above it; None at the root."""
        place = address.rpartition(";")[0]
        if not self.composites:
            return parent_at(place)
        if place and place not in self._made:
            self._made[place] = self._at(place)
        return self._made.get(place)

    def _at(self, place: str) -> Interrupt:
        parent, added = self.above(place), self.composites.get(place)
        if added is None:
            return Interrupt(id=place, address=place, is_root_cause=False, parent=parent)
        info, prompt = decoded(added.info), added.prompt
        return Interrupt(
            id=place,
            address=place,
            info=info,
            reason=added.reason,
            prompt=_prompt(info) if prompt is None else prompt,
            is_root_cause=False,
            parent=parent,
        )
