"""Frames of user code, entries into them, and the places where code runs.

A frame is what outlives a run of its code: status, questions, children, memos. An *entry* is one run of the code, from
its top to its outcome, and is thrown away with it. While the code runs, these hold:

- What is on record when an entry begins is `missing` from it until the code reaches it again. An entry whose code
  returns while something is missing has taken a different path than the first one, and fails.
- Nothing that an entry has done counts unless its code returns, except what was asked and kept.
- The place of an entry that has ended is over: whatever the code left behind is refused there.
"""

from __future__ import annotations

import asyncio
import threading
from asyncio import current_task
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, NoReturn

from msgspec import Struct

from adjourn._values import codec
from adjourn.errors import NotInRun, Pause, ReplayMismatch, UsageError

from .address import address_of, is_under
from .concurrency import Slot
from .memos import NONE, Key, Kind, Memo, read_memos, without_writes
from .record import Asked, Image, Question, UserImage
from .scope import Frame
from .values import check_tags, lift_values, lower_values, value_or

Group = tuple[Kind, str]
"""What keeps its order in straight code: the calls of one `@once` function, or all questions."""

QUESTIONS: Group = (Kind.ASK, "")


class UserFrame(Frame):
    """A frame of user code. It is rerun from its top, and what was kept is given back instead of being done again.

    `paused` is how many events the code had emitted when it last paused; None if it never did. `written` are the
    session values that belong to its result.
    """

    stops_between_calls: bool = False

    status: str = "pending"
    attempt: int = 1
    emitted: int = 0
    paused: int | None = None
    error: dict[str, str] | None = None
    exception: BaseException | None = None
    memos: dict[Key, Memo] | None = None
    memos_new: dict[Key, Memo] | None = None
    composites_new: dict[str, Question] | None = None
    children: dict[str, Frame] | None = None
    advancing: set[str] | None = None
    slot: Slot | None = None
    written: dict[str, Any] | None = None
    running: Entry | None = None

    @property
    def runs_code(self) -> bool:
        """Whether what is below it was run by its code, and not by itself."""
        return True

    @property
    def entry(self) -> Entry:
        """The current run of this frame's code."""
        assert self.running is not None
        return self.running

    def enter(self, task: asyncio.Task[Any] | None = None) -> Entry:
        """Begin to run the code of this frame from its top."""
        self.running = entry = Entry(self, task)
        if self.memos is not None or self.questions or self.children or self.scope.dormant:
            entry.begin_replay()
        return entry

    @property
    def values(self) -> dict[str, Any] | None:
        return self.written if self.running is None else self.running.written

    def write_value(self, key: str, value: object) -> None:
        """Write a session value that belongs to this frame's result."""
        if self.running is not None:
            self.running.write_value(key, value)
        elif self.written is None:
            self.written = {key: value}
        else:
            self.written[key] = value

    # Memos

    def keep(
        self,
        key: Key,
        value: object,
        writes: Mapping[str, object] | None = None,
        *,
        optional: bool = False,
        concurrent: bool = False,
    ) -> None:
        """Keep a result, with the session values that belong to it, for the next time this code runs."""
        result, lowered = codec.stored(value, str(key)), lower_values(writes) if writes else {}
        self._set_memo(key, Memo(result=result, writes=lowered, optional=optional, concurrent=concurrent))

    def _set_memo(self, key: Key, memo: Memo) -> None:
        self.memos = self.memos or {}
        self.memos_new = self.memos_new or {}
        self.memos[key] = self.memos_new[key] = memo
        self.scope.mark(self)

    def kept(self, key: Key) -> Memo | None:
        """Return what was kept under this key, if there is a result."""
        memo = self.memos.get(key) if self.memos else None
        return None if memo is None or memo.result is NONE else memo

    def make_optional(self, *keys: Key) -> None:
        """Note that these need not happen again when the code is rerun."""
        for key in keys:
            memo = (self.memos or {}).get(key, _UNKNOWN)
            if not memo.optional:
                self._set_memo(
                    key, Memo(result=memo.result, writes=memo.writes, optional=True, concurrent=memo.concurrent)
                )

    def make_all_optional(self) -> None:
        """Note that nothing kept so far needs to happen again."""
        self.make_optional(*(self.memos or ()))

    def is_optional(self, key: Key) -> bool:
        """Return whether this has happened before and need not happen again."""
        memo = self.memos.get(key) if self.memos else None
        return memo is not None and memo.optional

    def note(self, name: str, number: int = 1) -> None:
        """Leave a note for the next time this code runs."""
        self.make_optional(Key(Kind.NOTE, name, number=number))

    def is_noted(self, name: str, number: int = 1) -> bool:
        """Return whether this note was left."""
        return self.is_optional(Key(Kind.NOTE, name, number=number))

    def count_notes(self, name: str) -> int:
        """Return how many notes of this name were left."""
        return sum(key.kind is Kind.NOTE and key.name == name for key in self.memos or ())

    # Questions raised by hand

    def compose(self, question: Question) -> None:
        """Add to the questions of children, at the question's address."""
        self.composites = {**(self.composites or {}), question.id: question}
        self.composites_new = {**(self.composites_new or {}), question.id: question}
        self.scope.questions.note_asker(self.path, self)
        self.scope.mark(self)

    def asked_at(self, address: str) -> list[Question]:
        """Return what was asked and composed at an address of this frame, oldest first."""
        asked = [question for question in self.questions or () if question.address == address]
        return [*asked, self.composites[address]] if self.composites and address in self.composites else asked

    def has_asked_below(self, address: str) -> bool:
        """Return whether code at an address of this frame, or below it, has asked or waits for a child."""
        places = [*(question.address for question in self.questions or ()), *(self.composites or ())]
        below = f"{self.path};"
        askers = [address_of(path) for path in self.scope.questions.askers if path.startswith(below)]
        return any(is_under(place, address) for place in (*places, *askers))

    def check_answer(self, question: Question) -> None:
        check_tags(self.path, *(self.memos or {}).values())

    def start_over(self) -> None:
        """Start over on what was changed by hand (rule C4).

        Open questions are closed. What was kept is given back to equal calls, and need not happen again.
        """
        if self.status == "done":
            return
        asked, self.questions = self.questions, None
        for question in asked or ():
            self._reconsider(question)
        self.questions_stored, self.composites = 0, None
        self.make_all_optional()
        self.bind_dormant()
        for child in self.live_children():
            child.start_over()
        self.scope.start_over_dormant(self.path)
        if self.runs_code:
            below = (*(self.children or ()), *self.scope.dormant.below(self.path))
            self.make_optional(*[Key(Kind.RUN, segment) for segment in below])
        self.status = "pending"
        self.scope.mark(self)

    def _reconsider(self, question: Question) -> None:
        if question.is_open:
            self.scope.questions.drop(question.id)
            return
        question.optional = True
        self.scope.questions.changed[question.id] = question
        self.questions = [*(self.questions or ()), question]

    # Records

    def snapshot(self) -> UserImage:
        image = UserImage(fresh=not self.recorded)
        self.recorded = True
        if self.status != "pending" or not image.fresh:
            image.status = self.status
        if self.questions is not None:
            self.put_questions(image)
        if self.composites_new is not None:
            image.composites, self.composites_new = self.composites_new, None
        if self.memos_new:
            image.memos = {str(key): memo for key, memo in self.memos_new.items()}
            self.memos_new = None
        if self.attempt != 1 or self.emitted or self.error or self.paused is not None:
            self._add_attempts(image)
        if self.status == "done":
            self.add_result(image)
        return image

    def _add_attempts(self, image: UserImage) -> None:
        if self.attempt != 1 or self.emitted:
            image.attempt, image.emitted = self.attempt, self.emitted
        if self.attempt != 1 or self.error:
            image.error = self.error
        if self.paused is not None:
            image.paused = self.paused

    def add_result(self, image: UserImage) -> None:
        """Add the result of the finished code."""
        if self.written:
            image.values = lower_values(self.written)

    def snapshot_all(self, into: dict[str, Image]) -> None:
        self.recorded = False
        self.memos_new = self.memos and dict(self.memos)
        self.composites_new = self.composites and dict(self.composites)
        into[self.path] = self.snapshot()
        for child in (self.children or {}).values():
            child.snapshot_all(into)
        if self.scope.dormant:
            into.update(self.scope.dormant.snapshot(self.path))

    def restore(self, image: UserImage) -> None:
        """Restore this frame from its stored image."""
        self.recorded = True
        self.status = value_or(image.status, "pending")
        self.attempt = value_or(image.attempt, 1)
        self.emitted = value_or(image.emitted, 0)
        self.paused = value_or(image.paused, None)
        self.error = value_or(image.error, None)
        self.memos = read_memos(image.memos) or None
        self.composites = image.composites or None
        self.questions, self.questions_stored = None, len(image.questions)
        if image.questions:
            self.questions = self.scope.questions.named(image.questions)
        self.written = lift_values(value_or(image.values, {})) or None
        if self.questions or self.composites:
            self.scope.questions.note_asker(self.path, self)
        self.scope.note_bound(self)

    def live_children(self) -> Iterable[Frame]:
        return self.children.values() if self.children else ()

    @property
    def is_done(self) -> bool:
        return self.status == "done"

    def drop_values(self, is_dropped: Callable[[str], bool]) -> None:
        super().drop_values(is_dropped)
        if self.written:
            self.written = {key: value for key, value in self.written.items() if not is_dropped(key)}
        for key, memo in (self.memos or {}).items():
            left = without_writes(memo, is_dropped)
            if left is not memo:
                self._set_memo(key, left)
        self.scope.mark(self)

    def wake(self) -> None:
        if self.status == "waiting":
            self.status = "pending"
        self.scope.mark(self)

    def wait(self) -> None:
        if self.status == "pending":
            self.status = "waiting"
            self.scope.mark(self)


_UNKNOWN = Memo()


class Mark(NamedTuple):
    """How far an entry has got, for code in it that is tried again."""

    seen: dict[tuple[Kind, str, str], int]
    missing: dict[Key, Group | None]
    kept: int
    ended: frozenset[Key]
    children: frozenset[str]
    emitted: int
    written: dict[str, Any] | None
    wrote: dict[Key, dict[str, Any]] | None


class Entry(Struct, eq=False):
    """One run of a frame's code.

    `task` and `thread` are those of the code's main flow. `busy` has what its end must wait for, with the task that
    does it. `raised` are the questions that it has raised by hand; `ended` the child runs that have ended in this
    entry, or were given back to it; `wrote` the session values written by `@once` calls that are under way.
    """

    frame: UserFrame
    task: asyncio.Task[Any] | None = None
    thread: int | None = None
    pausing: bool = False
    fault: Exception | None = None
    asked_before: int = 0
    emitted: int = 0
    seen: dict[tuple[Kind, str, str], int] | None = None
    missing: dict[Key, Group | None] | None = None
    ahead: dict[Group, int] | None = None
    asked: Asked | None = None
    raised: set[str] | None = None
    fresh: list[Key] | None = None
    ended: set[Key] | None = None
    written: dict[str, Any] | None = None
    wrote: dict[Key, dict[str, Any]] | None = None
    busy: dict[asyncio.Future[None], asyncio.Task[Any] | None] | None = None

    # Replay

    def begin_replay(self) -> None:
        """Expect everything that is on record to happen again."""
        frame, missing = self.frame, dict[Key, Group | None]()
        for key, memo in (frame.memos or {}).items():
            if not memo.optional:
                missing[key] = _group(key, memo)
        for question in frame.questions or ():
            if not question.raised and not question.void and not question.optional:
                missing[question_key(question)] = None if question.concurrent else QUESTIONS
        for segment in (*(frame.children or ()), *frame.scope.dormant.below(frame.path)):
            if not frame.is_optional(run := Key(Kind.RUN, segment)):
                missing[run] = None
        self.asked_before = len(frame.questions or ())
        self._expect(missing)

    def _expect(self, missing: dict[Key, Group | None]) -> None:
        self.missing, self.ahead = missing, {}
        for group in missing.values():
            if group is not None:
                self.ahead[group] = self.ahead.get(group, 0) + 1

    def expect_nothing(self) -> None:
        """Let this entry end without the rest of what is on record: its code has failed, or steers itself."""
        self.missing = self.ahead = None

    def steer_by_hand(self) -> None:
        """Continue this entry from the last pause, with code that knows where that was.

        What was done before need not happen again, so what it wrote is written now. What is emitted now comes after
        what was emitted then.
        """
        for key in self.missing or ():
            memo = self.frame.kept(key)
            if memo is not None:
                self._write_again(memo)
        self.expect_nothing()
        self.emitted = self.frame.paused or 0

    def came(self, key: Key) -> None:
        """Note that something that may be on record has also happened in this entry."""
        if self.missing and key in self.missing:
            group = self.missing.pop(key)
            if group is not None and self.ahead is not None:
                self.ahead[group] -= 1

    def first_missing(self, group: Group) -> Key | None:
        """Return what sequential code has skipped, if it now does something new of this group."""
        if not self.ahead or not self.ahead.get(group):
            return None
        return next(key for key, each in (self.missing or {}).items() if each == group)

    def check_replayed(self) -> None:
        """Raise if something that was recorded did not happen again."""
        for key in self.missing or ():
            match key.kind:
                case Kind.ASK:
                    raise self._mismatch(f"the question '{key.name}'", "the code ended without asking it")
                case Kind.RUN if key not in (self.frame.memos or {}):
                    raise self._mismatch(f"the child run '{key.name}'", "the code ended without it")
                case _:
                    raise self._mismatch(f"the kept call {key}", "the code ended without it")

    def check_order(self, key: Key) -> None:
        """Refuse a new call in sequential code while an earlier one of the same function has not happened again."""
        if not self.ahead or self.frame.is_optional(key):
            return
        missed = self.first_missing((key.kind, key.name))
        if missed is not None:
            raise self.failed(self._mismatch(f"the kept call {missed}", f"the call {key}"))

    def _mismatch(self, before: str, now: str) -> ReplayMismatch:
        return ReplayMismatch(self.frame.address, before, now)

    def failed(self, error: Exception) -> Exception:
        """Make this entry fail with an error, even if its code swallows it."""
        self.fault = error
        return error

    def next(self, kind: Kind, name: str, which: str = "") -> Key:
        """Return the key of something that happens now, numbered among its equals in this entry."""
        if self.seen is None:
            self.seen = {}
        what = (kind, name, which)
        self.seen[what] = number = self.seen.get(what, 0) + 1
        return Key(kind, name, which, number)

    # Kept calls

    def replay(self, key: Key) -> Memo | None:
        """Return what was kept of a call, with the values that it wrote written again; None if it must be made."""
        memo = self.frame.kept(key)
        if memo is None:
            return None
        self.came(key)
        self._write_again(memo)
        return memo

    def _write_again(self, memo: Memo) -> None:
        if memo.writes:
            for name, value in lift_values(memo.writes).items():
                self.write_value(name, value)

    def keep(self, key: Key, value: object, writes: Mapping[str, object], *, concurrent: bool = False) -> None:
        """Keep the result of a call that was made in this entry."""
        self.frame.keep(key, value, writes, concurrent=concurrent)
        if self.fresh is None:
            self.fresh = []
        self.fresh.append(key)

    def is_straight(self, caller: int | None = None) -> bool:
        """Return whether a thread (by default this one) is the code's main flow, and not one that it has started."""
        scope, ident = self.frame.scope, caller or threading.get_ident()
        if ident != scope.thread:
            return ident == self.thread
        return self.task is None or current_task(scope.loop) is self.task

    @contextmanager
    def under_way(self) -> Generator[None]:
        """Make the end of this entry wait for what is done inside: it is kept, so it must not be cut off."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.busy is None:
            self.busy = {}
        self.busy[done] = asyncio.current_task()
        try:
            yield
        finally:
            del self.busy[done]
            done.set_result(None)

    # Session values and events

    def write_value(self, key: str, value: object, once: Key | None = None) -> None:
        """Write a session value; it takes effect with the frame's result. `once` names the kept call that writes."""
        if self.written is None:
            self.written = {}
        self.written[key] = value
        if once is not None:
            if self.wrote is None:
                self.wrote = {}
            self.wrote.setdefault(once, {})[key] = value

    def emits_next(self) -> bool:
        """Return whether the next event of the code's main flow is new, judging by its number."""
        frame = self.frame
        self.emitted += 1
        if self.emitted <= frame.emitted:
            return False
        frame.emitted = self.emitted
        frame.scope.mark(frame)
        return True

    def emits_beside(self, data: object) -> bool:
        """Return whether an event from one of several flows is new, judging by its content: their order may change."""
        key = self.next(Kind.EMIT, codec.fingerprint(data))
        if self.frame.is_optional(key):
            return False
        self.frame.make_optional(key)
        return True

    # Trying again, and failing

    def mark(self) -> Mark:
        """Return how far this entry has got."""
        return Mark(
            dict(self.seen or {}),
            dict(self.missing or {}),
            len(self.fresh or ()),
            frozenset(self.ended or ()),
            frozenset(self.frame.children or ()),
            self.emitted,
            None if self.written is None else dict(self.written),
            None if self.wrote is None else {key: dict(values) for key, values in self.wrote.items()},
        )

    def go_back(self, to: Mark) -> None:
        """Rerun the code after `to` in the same entry: it is given what is on record."""
        frame, missing = self.frame, dict(to.missing)
        for key in (self.fresh or [])[to.kept :]:
            memo = (frame.memos or {})[key]
            if not memo.optional:
                missing[key] = _group(key, memo)
        for segment in frame.children or ():
            if segment not in to.children:
                missing[Key(Kind.RUN, segment)] = None
        self._expect(missing)
        self.seen, self.ended, self.emitted = dict(to.seen), set(to.ended), to.emitted
        self.drop_writes(to)

    def drop_writes(self, since: Mark) -> None:
        """Forget the session values that were written after `since`."""
        self.written = None if since.written is None else dict(since.written)
        self.wrote = None if since.wrote is None else {key: dict(values) for key, values in since.wrote.items()}

    def undo(self) -> None:
        """Undo what this entry has asked, and make what it kept optional: it failed, and fixed code may differ."""
        frame = self.frame
        frame.withdraw_questions(self.asked_before)
        frame.make_optional(*(self.fresh or ()))
        frame.scope.mark(frame)

    # Questions

    def questions(self) -> Asked:
        """Return the questions that the code can reach, by key."""
        if self.asked is None:
            self.asked = Asked(self.frame.questions or ())
        return self.asked

    def meet(self, question: Question) -> None:
        """Note that the code has reached a question in this entry."""
        self.came(question_key(question))
        if self.seen is None:
            self.seen = {}
        self.seen[Kind.ASK, question.id, _MET] = 1

    def has_met(self, question: Question) -> bool:
        """Return whether the code has reached a question in this entry."""
        return self.seen is not None and (Kind.ASK, question.id, _MET) in self.seen

    def passed(self, question: Question) -> None:
        """Count a question that is on record as asked in this entry."""
        self.meet(question)
        if not question.void:
            self.next(Kind.ASK, question.key or "")

    def wait_for(self, question: Question) -> NoReturn:
        """Pause for an open question."""
        self.pausing = True
        raise Pause(question.id)

    def refuse(self, question: Question) -> None:
        """Note that an answer could not be used, so that the same question is asked again."""
        question.void = True
        self.questions().forget(question)
        if self.seen is not None:
            self.seen[Kind.ASK, question.key or "", ""] -= 1
        self.frame.scope.questions.changed[question.id] = question
        self.frame.scope.mark(self.frame)


_MET = "met"


def _group(key: Key, memo: Memo) -> Group | None:
    return None if memo.concurrent or key.kind is not Kind.ONCE else (key.kind, key.name)


def question_key(question: Question) -> Key:
    """Return the key by which a question is found again."""
    return Key(Kind.ASK, question.id)


class Place(Struct, eq=False, weakref=True):
    """Where code is running: an entry, segments that the code added itself, and the `@once` call it is in.

    A place is `over` when its entry has ended, or the attempt that it was made for: what that left behind (a thread
    past its timeout, a forgotten task) is refused from then on.
    """

    entry: Entry
    extra: str = ""
    once: Key | None = None
    base: Place | None = None  # None, not itself: a cycle here would burden the garbage collector at every step
    over: bool = False

    @property
    def frame(self) -> UserFrame:
        return self.entry.frame

    @property
    def address(self) -> str:
        return self.entry.frame.address + self.extra

    def within(self, extra: str = "", once: Key | None = None) -> Place:
        """Return a place inside this one, which is over when this one is."""
        return Place(self.entry, self.extra + extra, once or self.once, self.base or self)

    @property
    def is_over(self) -> bool:
        return (self.base or self).over

    def check(self) -> None:
        """Refuse calls from an entry that has ended, or from a run that has released its session."""
        scope = self.entry.frame.scope
        if scope.closed is not None:
            scope.check_open()
        if (self.base or self).over:
            raise UsageError(f"'{self.address}' has ended, but something that it left behind still calls into the run.")


current_place: ContextVar[Place | None] = ContextVar("adjourn_place", default=None)


def here(call: str) -> Place:
    """Return where the calling code is running; `call` is what it called.

    Raises:
        NotInRun: there is no run around this call.
    """
    place = current_place.get()
    if place is None:
        raise NotInRun(call)
    return place
