"""Questions: what code asks of people, how a question is found again when the code is rerun, and which are open."""

from __future__ import annotations

import threading
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import takewhile
from typing import Any, NoReturn, cast

import msgspec
from msgspec import Raw

from adjourn._hiding import known
from adjourn._schemas import answers
from adjourn._text import undotted
from adjourn._values import codec
from adjourn._values.frozen import check_text, is_text, shorten
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

from .entry import QUESTIONS, Entry, Flow, Place, current_place
from .failures import handled_now
from .memos import NONE, Kind
from .record import APPROVALS, Question, Words, token_of
from .scope import Frame, Scope
from .values import decoded

Handled = tuple[BaseException, ...]
"""The exceptions that code is handling when it asks."""

MAX_UNUSED = 3
"""Answers in a row, at one place, to questions that the code did not ask again."""

_MOST_TAGS = 100
"""How many tags a question can have: an inbox lists it under each of them."""

MAX_WAIT = 1_000 * 365 * 86_400.0
"""The most seconds that a question can wait: beyond that, its date cannot be written."""


class Superseded(Exception):
    """The question that an answer is about would not be asked any more, but another one in its place (rule I14)."""


class AnswerWith(msgspec.Struct, frozen=True):
    """What a question is answered with when it expires."""

    value: Any


def ask(place: Place, asked: Question, schema: Any) -> tuple[Any, Question]:
    """Return the answer to a question, and the question as it was answered; until then raise `Pause`."""
    entry, caller, prompt = place.entry, threading.get_ident(), asked.prompt
    scope, handled = entry.frame.scope, handled_now() if entry.failures else ()
    while True:
        here = caller == scope.thread
        question = (_ask if here else scope.on_loop(_ask))(place, asked, caller, handled)
        if question.how is None:
            raise Pause(question.id)
        try:
            return _delivered(scope, question, schema), question
        except ValueError as error:
            # It fits the JSON Schema, but the type itself rejects it: ask again rather than fail for good.
            scope.on_loop(entry.refuse)(question)
            asked = msgspec.structs.replace(asked, prompt=_told_why(prompt or _prompt(decoded(asked.info)), error))


def ask_for(editor: str | None, info: Any, *, schema: Any, **options: Any) -> tuple[Any, Question]:
    """Ask as `interrupt` does, also for the editor of what is shown (rule V19); return the question with its answer."""
    at = asking_place("interrupt")
    question = new_question(at.frame.scope, info, schema=schema, **options)
    question.requesters = None if editor is None else (editor,)
    return ask(at, question, schema)


def ask_by_hand(place: Place, asked: Question, *, is_composite: bool) -> NoReturn:
    """Pause for a question whose answer the code handles itself; a composite asks nothing itself."""
    place.frame.scope.on_loop(_compose if is_composite else _raise)(place, asked)
    place.entry.pause()
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


def _ask(place: Place, asked: Question, caller: int, handled: Handled) -> Question:
    """Return the matching question of an earlier entry, or a new one. `caller` is the thread that asks."""
    entry, address = place.entry, place.address
    place.check()
    number = entry.next(Kind.ASK, asked.key or "", address).number
    question = _recorded(place, address, asked, number) if entry.frame.questions else None
    if question is None:
        question, flow = asked, entry.flow(caller)
        question.concurrent = flow is not None
        _open(place, question, address, flow, handled)
    entry.meet(question)
    if question.how is None:
        entry.pause()
    return question


def _check_new(place: Place, asked: Question) -> None:
    """Refuse a question that could be mistaken for another, now or when the code is rerun."""
    entry = place.entry
    missed = None if asked.concurrent or asked.optional else entry.first_missing(QUESTIONS)
    if missed is not None:
        question = next(each for each in place.frame.questions or () if each.id == missed.name)
        raise _mismatched(place, question, _shown(asked))
    if entry.questions().is_ambiguous(asked.key):
        raise entry.failed(AmbiguousInterrupt(place.address))


def _mismatched(place: Place, question: Question, now: str) -> Exception:
    before, where = f"question '{question.id}' {_shown(question)}", f"at '{place.address}' "
    now = f"a question {'' if question.address == place.address else where}{now}"
    return place.entry.failed(ReplayMismatch(place.frame.address, before, now))


def _recorded(place: Place, address: str, asked: Question, number: int) -> Question | None:
    """Return the matching question on record.

    It was asked at the same place, shows the same, and this entry has not reached it yet.
    """
    entry = place.entry
    all_ = entry.questions().at(address, asked.key)
    if number <= len(all_) and not entry.has_met(all_[number - 1]) and _is_same(all_[number - 1], asked):
        return all_[number - 1]
    left = [question for question in all_ if not entry.has_met(question)]
    expected = next((question for question in left if not question.optional), None)
    if asked.key is None and expected is not None:
        if _is_same(expected, asked):
            return expected
        raise _mismatched(place, expected, _shown(asked))
    found = next((question for question in left if _is_same(question, asked)), None)
    if found is None and left:
        _check_unused(place, left, asked)
        asked.optional = True
        _set_aside(entry, left)
    elif found is not None:
        _set_aside(entry, [question for question in left if question.optional and question is not found])
    return found


def _check_unused(place: Place, left: Sequence[Question], asked: Question) -> None:
    """Refuse to ask forever: code that shows something different every time cannot use any answer."""
    unused = list(takewhile(lambda question: not question.is_open, reversed(left)))
    if asked.key is not None and len(unused) >= MAX_UNUSED:
        raise _mismatched(place, unused[0], f"{_shown(asked)}, which is different every time")


def _set_aside(entry: Entry, others: Sequence[Question]) -> None:
    """Go on without questions that the code has replaced with another.

    An answer stays, and counts if the code reaches its question after all.
    """
    for question in others:
        entry.replace(question)


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


def _open(place: Place, question: Question, address: str, flow: Flow = None, handled: Handled = ()) -> None:
    entry, frame = place.entry, place.entry.frame
    if not frame.scope.interrupts:
        raise entry.failed(InterruptsDisabled(address))
    if entry.failures:
        entry.keep_failures(flow, handled)
    if frame.questions is None:
        frame.questions = []
    elif not question.raised:
        _check_new(place, question)
    question.node = frame.title
    if question.reason in APPROVALS:
        question.turn = frame.scope.turn
    frame.questions.append(question)
    frame.scope.ask(frame, question, address)
    if entry.asked is not None:
        entry.asked.add(question)


def _raise(place: Place, asked: Question) -> None:
    """Open a raised question, or keep waiting for the one that an earlier entry raised at this address."""
    entry, frame = place.entry, place.frame
    place.check()
    waiting = [q for q in frame.questions or () if q.raised and q.is_open and q.key == asked.key]
    found = next((q for q in waiting if q.address == place.address), None)
    if found is None:
        found = asked
        _open(place, found, place.address)
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
    tags: Iterable[str] = (),
    raised: bool = False,
    **words: Any,
) -> Question:
    """Return a question without an id yet, checking here, where it is asked, that everything in it can be stored."""
    if reason != "need_input":
        _check_text("reason", reason)
    if key is not None:
        _check_text("key", key)
    if prompt is not None:
        _check_text("prompt", prompt)
    if known.forms:
        reason, prompt, key = known.hide(reason), prompt and known.hide(prompt), key and known.hide(key)
    shown = _stored(info, "info")
    question = Question(id="", info=shown, created=scope.clock(), reason=reason, key=key, prompt=prompt, raised=raised)
    if tags or words:
        question.tags = tuple(map(known.hide, checked_tags(tags, "The question")))
        question.words = checked_words(words, "The question")
    if schema is not None:
        question.schema = answers.question_schema(schema)
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


def checked_words(given: Mapping[str, Any], where: str) -> Words | None:
    """Return what an author says about a question; None if nothing is said.

    Raises:
        UsageError: it is not what it must be.
    """
    for name, value in given.items():
        if name not in Words.__struct_fields__:
            raise UsageError(f"{where} was given {name}=..., which it does not take. It takes {', '.join(_WORDS)}.")
        if name == "priority":
            if isinstance(value, bool) or not isinstance(value, int) or not -(2**31) <= value < 2**31:
                raise UsageError(f"{where} has priority={value!r}. Give a whole number; more is more urgent.")
        elif value is not None and (not isinstance(value, str) or not is_text(value)):
            raise UsageError(f"{where} has {name}={shorten(value)}. Give a text, or leave it out.")
    if (link := given.get("link")) is not None and not link.startswith(("https://", "http://")):
        raise UsageError(f"{where} has link={shorten(link)}. Give an address that begins with https:// or http://.")
    hidden: dict[str, Any] = {name: known.hide(text) for name, text in given.items() if isinstance(text, str)}
    found = Words(**{**given, **hidden})
    return None if found == _NO_WORDS else found


_WORDS = Words.__struct_fields__
_NO_WORDS = Words()


def checked_tags(tags: object, where: str) -> tuple[str, ...]:
    """Return tags, each once.

    Raises:
        UsageError: they are not a collection of texts, or too many: an inbox lists a question under each.
    """
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise UsageError(f"{where} has tags={tags!r}. Give a collection of texts, such as ['money'].")
    found = tuple(dict.fromkeys(cast("Iterable[Any]", tags)))
    for each in found:
        if not isinstance(each, str) or not each or not is_text(each):
            raise UsageError(f"{where} has the tag {each!r}. A tag is a text that is not empty.")
    if len(found) > _MOST_TAGS:
        raise UsageError(f"{where} has {len(found)} tags. Give at most {_MOST_TAGS}, and put the rest into its info.")
    return found


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
        problems = answers.misfits(value, schema)
        if not problems and value is not None:
            answers.convert(answers.to_json_data(value), type_)
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
        raise InterruptExpired(scope.session_id, question.id, in_code=True)
    value = decoded(question.value)
    return value if schema is None or value is None else answers.convert(answers.to_json_data(value), schema)


# Showing what is open


class OpenNow:
    """The questions that are open at one moment, in task order.

    Most callers look at few of many, or at none, so they are made into what people see only when somebody looks.
    """

    __slots__ = ("_app", "_branch", "_checkpoint_id", "_parents", "_questions", "_session_id", "_shown")

    def __init__(self, scope: Scope, checkpoint_id: str | None) -> None:
        if not scope.questions.in_order:
            _put_in_order(scope)
        self._questions = tuple(scope.questions.open.values())
        self._app, self._session_id, self._branch = scope.app, scope.session_id, scope.branch
        self._checkpoint_id = checkpoint_id
        self._parents = Parents(scope)
        self._shown: tuple[Interrupt, ...] | None = None

    def shown(self) -> tuple[Interrupt, ...]:
        """Return them as people see them; siblings share their parents."""
        if self._shown is None:
            self._shown = tuple(map(self._show, self._questions))
        return self._shown

    def shown_of(self, ids: Container[str]) -> list[Interrupt]:
        """Return some of them, by their ids, as people see them."""
        return [self._show(question) for question in self._questions if question.id in ids]

    def _show(self, question: Question) -> Interrupt:
        info, address = decoded(question.info), question.address
        shown = Interrupt(
            id=question.id,
            token=token_of(question, self._app, self._session_id, self._branch),
            address=address,
            info=info,
            reason=question.reason,
            tags=question.tags,
            prompt=_prompt(info) if question.prompt is None else question.prompt,
            node=question.node,
            key=question.key,
            schema=question.schema,
            created=datetime.fromtimestamp(question.created, UTC),
            expires=None if question.expires is None else datetime.fromtimestamp(question.expires, UTC),
            parent=self._parents.above(address),
            checkpoint_id=self._checkpoint_id,
            session_id=self._session_id,
        )
        # Apart: with more than 15 keywords, Python makes a dict for the call.
        choices = answers.choices_of(question.schema) if question.schema else ()
        if not choices and question.words is question.requesters is question.requested_by is None:
            return shown
        return msgspec.structs.replace(shown, choices=choices, **said_of(question))


def said_of(question: Question) -> dict[str, Any]:
    """Return the fields of an interrupt that say what the author says, and for whom the question is asked."""
    words = {} if question.words is None else msgspec.structs.asdict(question.words)
    return {**words, "requested_by": question.requested_by, "requesters": question.requesters}


def open_interrupts(scope: Scope, checkpoint_id: str | None) -> tuple[Interrupt, ...]:
    """Return every open question of the session, in task order, as people see it."""
    return OpenNow(scope, checkpoint_id).shown() if scope.questions.open else ()


def first_open(scope: Scope) -> str:
    """Return the address of the first open question, in task order; empty if there is none."""
    if not scope.questions.in_order:
        _put_in_order(scope)
    for question in scope.questions.open.values():
        return question.address
    return ""


def _put_in_order(scope: Scope) -> None:
    """Put the open questions in task order."""
    questions = scope.questions
    if len(questions.open) > 1:
        paths = (path for path, _ in scope.dormant.all_below("")) if scope.is_dormant else _paths(scope.root)
        rank = {path: number for number, path in enumerate(paths)}
        places = questions.paths
        ordered = sorted(questions.open.items(), key=lambda each: rank.get(places[each[0]], len(rank)))
        questions.open = dict(ordered)
    questions.in_order = True


def _paths(frame: Frame) -> Iterator[str]:
    """Yield the paths of a frame and all below it, those of live frames before those of dormant ones."""
    yield frame.path
    for child in frame.live_children():
        yield from _paths(child)
    if frame.scope.dormant:
        for path, _ in frame.scope.dormant.all_below(frame.path):
            yield path


def open_keys(scope: Scope) -> dict[str, str]:
    """Return the keys of the open questions that have one, by id."""
    return {name: question.key for name, question in scope.questions.open.items() if question.key is not None}


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
