"""Entries: runs of a frame's code, and the places where code runs.

An *entry* is one run of the code, from its top to its outcome, and is thrown away with it; what outlives it is in the
frame. While the code runs, these hold:

- What is on record when an entry begins is `missing` from it until the code reaches it again. An entry whose code
  returns while something is missing has taken a different path than the first one, and fails.
- Nothing that an entry has done counts unless its code returns, except what was asked and kept.
- The place of an entry that has ended is over: whatever the code left behind is refused there.
"""

from __future__ import annotations

import asyncio
import threading
from asyncio import current_task
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, NoReturn, TypeVar

from msgspec import Struct

from adjourn._values import codec
from adjourn.errors import NotInRun, Pause, ProgramChanged, ReplayMismatch, UsageError

from .address import AROUND, RunSegments, address_of, run_name
from .asked import Asked
from .concurrency import EAGERLY
from .failures import Source, restored, stored
from .frame import UserFrame
from .memos import Key, Kind, Memo
from .record import Question
from .scope import Frame
from .values import decoded, lift_values

T = TypeVar("T")

Group = tuple[Kind, str]
"""What keeps its order in straight code: the calls of one `@once` function, or all questions."""

QUESTIONS: Group = (Kind.ASK, "")

SAID = "~said:"
"""Prefix of the session values in which code hands up what was said together with answers, for the agent above it."""

Flow = asyncio.Task[Any] | int | None
"""One of several flows of user code: a task or a thread that the code has started itself. None is its main flow."""


class Failed(NamedTuple):
    """A kept call, or a child run, that failed in this entry.

    `caller` is the flow of the code that made the call, and `runner` the one that ran it, as a task may do.
    """

    error: BaseException
    source: Source
    child: Frame | None
    caller: Flow
    runner: Flow

    def led_to(self, flow: Flow, handled: tuple[BaseException, ...]) -> bool:
        """Return whether a flow that asks now has seen it, as far as can be known; `handled` is what it is handling."""
        return flow is None or self.runner is None or flow in (self.caller, self.runner) or self._is_in(handled)

    def _is_in(self, handled: tuple[BaseException, ...]) -> bool:
        return any(each is self.error for each in handled)  # The class may define its own equality.


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
    failures: dict[Key, Failed]


class Entry(Struct, eq=False):
    """One run of a frame's code.

    `task` and `thread` are those of the code's main flow. `busy` has what its end must wait for, with the task that
    does it; `awaited` has what the callers of those tasks wait for. Once it is `closing`, nothing to be kept may
    begin. `opened` are the segments of children that it was the first to run. `raised` are the questions that it has
    raised by hand; `ended` the child runs that have ended in this entry, or were given back to it; `wrote` the session
    values written by `@once` calls that are under way. `failures` are those since the last question, which are stored
    with the next one. `runs` are the names of its child runs. `replaced` are questions on record in whose place it has
    asked something else, by id, and whether each was optional before. `sent_before` is how many events the frame had
    emitted before the first new one of this entry. `seen` counts the calls that are alike (`next`), and has the
    questions that the code has reached (`meet`). `fresh` are the calls that were kept in it.

    While it lasts, `frame.running` is this entry, and only its code changes what the frame keeps. `missing` is what is
    on record and has not happened again yet; it only shrinks, unless code in the entry is tried again (`go_back`), and
    sequential code may do something new of a group only when none of that group is left (`ahead` counts them). A
    `fault` is final, even if the code swallows the error. An entry that ends with one is undone, so that the frame is
    as it was before, and other code can try again.
    """

    frame: UserFrame
    task: asyncio.Task[Any] | None = None
    thread: int | None = None
    pausing: bool = False
    closing: bool = False
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
    busy: dict[asyncio.Future[Any], asyncio.Task[Any] | None] | None = None
    awaited: dict[asyncio.Task[Any], asyncio.Future[Any]] | None = None
    failures: dict[Key, Failed] | None = None
    opened: set[str] | None = None
    runs: RunSegments | None = None
    replaced: dict[str, tuple[Question, bool]] | None = None
    sent_before: int | None = None

    # Replay

    def begin_replay(self) -> None:
        """Expect everything that is on record to happen again."""
        frame, missing = self.frame, dict[Key, Group | None]()
        for key, memo in (frame.memos or {}).items():
            if not memo.optional:
                missing[key] = None if memo.concurrent else _group(key)
        for question in frame.questions or ():
            if question.said is not None:
                self.write_value(f"{SAID}{question.id}", question.message)
            if not question.raised and not question.void and not question.optional:
                missing[question_key(question)] = None if question.concurrent else QUESTIONS
        for segment in (*(frame.children or ()), *frame.scope.dormant.below(frame.path)):
            if segment != AROUND and not frame.is_optional(run := Key(Kind.RUN, segment)):
                missing.setdefault(run, _group(run))
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
                case _:
                    raise self._mismatch(_described(key), "the code ended without it")

    def check_order(self, key: Key) -> None:
        """Refuse a new call in sequential code while an earlier one of the same function has not happened again."""
        if not self.ahead or self.frame.is_optional(key):
            return
        group = _group(key)
        missed = None if group is None else self.first_missing(group)
        if missed is not None:
            other = ", with other input" if key.kind is Kind.RUN else ""
            raise self.failed(self._mismatch(_described(missed), _described(key) + other))

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
        if self.failures:
            self.failures.pop(key, None)
        if self.fresh is None:
            self.fresh = []
        self.fresh.append(key)

    def note_failure(self, key: Key, failed: Failed) -> None:
        """Note that a call failed: it may be made again, unless somebody is asked after it (rule R13)."""
        self.frame.make_optional(key)
        self.failures = {**(self.failures or {}), key: failed}

    def keep_failures(self, flow: Flow, handled: tuple[BaseException, ...]) -> None:
        """Keep what has led to a question of this flow, so that a rerun comes to it in the same way.

        That is what the main flow has seen, and this one, and what it is handling now. What failed in one flow has not
        led to what another one asks at the same time.

        Raises:
            NotStorable: one of them could not be raised again; nothing is kept.
        """
        failures = {key: each for key, each in (self.failures or {}).items() if each.led_to(flow, handled)}
        kept = {key: stored(failed.error, failed.source) for key, failed in failures.items()}
        for key, failed in failures.items():
            self.frame.keep_failure(key, kept[key], failed.child, concurrent=failed.runner is not None)
        self.fresh = [*(self.fresh or ()), *kept]
        self.failures = {key: each for key, each in (self.failures or {}).items() if key not in kept}

    def give_back(self, memo: Memo, source: Source) -> Any:
        """Return what a kept call returned, or raise what it raised.

        Raises:
            ProgramChanged: what it raised is not known any more; whatever the code does with this, the entry fails.
        """
        if memo.failure is None:
            return decoded(memo.result)
        try:
            error = restored(memo.failure, source)
        except ProgramChanged as changed:
            raise self.failed(changed) from None
        raise error

    def run_segments(self) -> RunSegments:
        """Return the names of the child runs of this frame, those on record included."""
        if self.runs is None:
            frame = self.frame
            kept = [key.name for key in frame.memos or () if key.kind is Kind.RUN]
            self.runs = RunSegments((*kept, *(frame.children or ()), *frame.scope.dormant.below(frame.path)))
        return self.runs

    def is_straight(self, caller: int | None = None) -> bool:
        """Return whether a thread (by default this one) is the code's main flow, and not one that it has started."""
        return self.flow(caller) is None

    def flow(self, caller: int | None = None) -> Flow:
        """Return the flow of the code that a thread (by default this one) runs now."""
        scope, ident = self.frame.scope, caller or threading.get_ident()
        if ident != scope.thread:
            return None if ident == self.thread else ident
        if self.task is None or (task := current_task(scope.loop)) is self.task:
            return None
        return task

    def check_begin(self) -> None:
        """Refuse to begin something that is to be kept when the code has asked, or failed: its result could not be.

        Raises:
            CancelledError: it is too late; whoever calls is about to be cancelled anyway.
        """
        if self.closing:
            raise asyncio.CancelledError(f"'{self.frame.address}' has asked, or failed, before this could begin.")

    def begin_work(self, task: asyncio.Task[Any] | None = None) -> asyncio.Future[None]:
        """Make the end of this entry wait for kept work, which must not be cut off; `task` does it, if any does."""
        done: asyncio.Future[None] = self.frame.scope.loop.create_future()
        self._busy()[done] = task
        return done

    def end_work(self, done: asyncio.Future[None]) -> None:
        """Note that kept work has ended."""
        del self._busy()[done]
        done.set_result(None)

    def _busy(self) -> dict[asyncio.Future[Any], asyncio.Task[Any] | None]:
        if self.busy is None:
            self.busy = {}
        return self.busy

    @contextmanager
    def under_way(self) -> Generator[None]:
        """Make the end of this entry wait for what is done inside."""
        done = self.begin_work(current_task())
        try:
            yield
        finally:
            self.end_work(done)

    async def complete(self, work: Callable[[], Awaitable[T]], keep: Callable[[T], Awaitable[None]]) -> T:
        """Return the result of kept work, which a pause of this entry does not cut off.

        Code that asks may cancel what it does beside, as a `TaskGroup` does: then its caller is cancelled, but the work
        goes on, and the end of this entry waits for it. A timeout, a cancel of the run, or one that the code has made
        itself before it asked, ends the work; but once there is a result, it is kept.
        """
        loop = self.frame.scope.loop
        done: asyncio.Future[T] = loop.create_future()
        made = asyncio.Task(self._complete(work, keep, done), loop=loop, **EAGERLY)
        if not made.done():
            self._busy().setdefault(made, made)
            self.awaited = self.awaited or {}
            self.awaited[made] = done
        try:
            return await done
        except asyncio.CancelledError:
            if self.pausing and made in (self.awaited or ()) and self.frame.scope.cancellation.mode is None:
                raise
            if self._busy().get(made) is not None:
                made.cancel()
            await asyncio.wait([made])
            self._busy().pop(made, None)  # It may not even have begun.
            raise
        finally:
            if self.awaited:
                self.awaited.pop(made, None)
            del done  # Its error holds this frame.

    async def _complete(
        self, work: Callable[[], Awaitable[T]], keep: Callable[[T], Awaitable[None]], done: asyncio.Future[T]
    ) -> None:
        made = current_task()
        assert made is not None
        try:
            result = await work()
            # From here on nothing may cancel it: neither who waits for it, nor a search for what the code left behind.
            self._busy()[made] = None
            current_place.set(None)
            await keep(result)
            if not done.done():
                done.set_result(result)
        except BaseException as error:  # noqa: BLE001  # it belongs to whoever waits for the result
            if not done.done():
                done.set_exception(error)
        finally:
            self._busy().pop(made, None)
            del done

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

    @property
    def is_repeating(self) -> bool:
        """Whether the next event of the code's main flow was emitted by an earlier entry."""
        return self.emitted < self.frame.emitted

    def emits_next(self) -> bool:
        """Return whether the next event of the code's main flow is new, judging by its number."""
        frame = self.frame
        self.emitted += 1
        if self.emitted <= frame.emitted:
            return False
        if self.sent_before is None:
            self.sent_before = frame.emitted
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
            dict(self.failures or {}),
        )

    def go_back(self, to: Mark) -> None:
        """Rerun the code after `to` in the same entry: it is given what is on record."""
        frame, missing = self.frame, dict(to.missing)
        for key in (self.fresh or [])[to.kept :]:
            memo = (frame.memos or {})[key]
            if not memo.optional:
                missing[key] = None if memo.concurrent else _group(key)
        for segment in frame.children or ():
            if segment not in to.children:
                missing[Key(Kind.RUN, segment)] = None
        self.failures = dict(to.failures)
        self._expect(missing)
        self.seen, self.ended, self.emitted = dict(to.seen), set(to.ended), to.emitted
        self.drop_writes(to)

    def drop_writes(self, since: Mark) -> None:
        """Forget the session values that were written after `since`."""
        self.written = None if since.written is None else dict(since.written)
        self.wrote = None if since.wrote is None else {key: dict(values) for key, values in since.wrote.items()}

    def undo(self) -> None:
        """Undo what this entry has asked and emitted, and make what it kept optional: fixed code may differ.

        What children that it was the first to run have kept stays, too; but nobody is to answer what they ask.
        """
        frame, opened = self.frame, self.opened or ()
        frame.withdraw_questions(self.asked_before)
        frame.forget_failures(self.fresh or ())
        frame.make_optional(*(self.fresh or ()), *(Key(Kind.RUN, segment) for segment in opened))
        for segment in opened:
            if (child := (frame.children or {}).get(segment)) is not None:
                child.start_over()
        for question, was_optional in (self.replaced or {}).values():
            question.optional = was_optional
            frame.scope.questions.changed[question.id] = question
        if self.sent_before is not None:
            frame.emitted = self.sent_before
        frame.scope.mark(frame)

    # Questions

    def questions(self) -> Asked:
        """Return the questions that the code can reach, by place and key."""
        if self.asked is None:
            self.asked = Asked(self.frame.questions or ())
        return self.asked

    def meet(self, question: Question) -> None:
        """Note that the code has reached a question in this entry."""
        if self.missing:
            self.came(question_key(question))
        if self.seen is None:
            self.seen = {}
        self.seen[Kind.ASK, question.id, _MET] = 1

    def has_met(self, question: Question) -> bool:
        """Return whether the code has reached a question in this entry."""
        return self.seen is not None and (Kind.ASK, question.id, _MET) in self.seen

    def count_as_asked(self, question: Question) -> None:
        """Count a question that is on record as asked in this entry."""
        self.meet(question)
        if not question.void:
            self.next(Kind.ASK, question.key or "", question.address)

    def replace(self, question: Question) -> None:
        """Go on without a question on record, in whose place the code has asked another.

        If it is open, it is superseded when this entry ends (rule I14), unless the entry is undone.
        """
        self.came(question_key(question))
        self.replaced = self.replaced or {}
        self.replaced.setdefault(question.id, (question, question.optional))
        question.optional = True
        if question.is_open:
            self.questions().forget(question)
        self.frame.scope.questions.changed[question.id] = question
        self.frame.scope.mark(self.frame)

    def supersede_replaced(self) -> None:
        """End the open questions in whose place the code has asked others."""
        for question, _ in (self.replaced or {}).values():
            if question.is_open:
                self.frame.scope.supersede(self.frame, question)

    def pause(self) -> None:
        """Note that the code pauses: from now on, a cancel of what it does beside is the pause's own."""
        if not self.pausing:
            self.pausing = True
            if self.awaited:
                self.awaited = {made: done for made, done in self.awaited.items() if not done.cancelled()}

    def wait_for(self, question: Question) -> NoReturn:
        """Pause for an open question."""
        self.pause()
        raise Pause(question.id)

    def refuse(self, question: Question) -> None:
        """Note that an answer could not be used, so that the same question is asked again."""
        question.void = True
        self.questions().forget(question)
        if self.seen is not None:
            self.seen[Kind.ASK, question.key or "", question.address] -= 1
        self.frame.scope.questions.changed[question.id] = question
        self.frame.scope.mark(self.frame)


def enter(frame: UserFrame, task: asyncio.Task[Any] | None = None) -> Entry:
    """Begin to run the code of a frame from its top."""
    frame.running = entry = Entry(frame, task)
    if frame.memos is not None or frame.questions or frame.children or frame.scope.dormant:
        entry.begin_replay()
    return entry


def entry_of(frame: UserFrame) -> Entry:
    """Return the present run of a frame's code."""
    assert isinstance(frame.running, Entry)
    return frame.running


_MET = "met"


def _group(key: Key) -> Group | None:
    if key.kind is Kind.ONCE:
        return key.kind, key.name
    name = run_name(key.name) if key.kind is Kind.RUN else None
    return None if name is None else (key.kind, name)


def _described(key: Key) -> str:
    if key.kind is Kind.RUN:
        return f"the child run '{address_of(key.name)}'"
    return f"the kept call {key}"


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


def check_not_own(session_id: str, owner: str | None) -> None:
    """Refuse what needs the end of the session that the calling code runs in, or that waits for it.

    `owner` is the session's present owner: whichever way the code came to it, it is the same run.

    Raises:
        UsageError: it is.
    """
    place = current_place.get()
    scope = None if place is None else place.frame.scope
    while scope is not None and place is not None:
        if owner is not None and scope.log.owner == owner:
            raise UsageError(
                f"'{place.address}' is run by session '{session_id}', and wants to run, resume, recover, follow, "
                "answer, edit or delete it: it would have to wait for itself. "
                "Ask with `interrupt`, or let somebody outside of the session do that."
            )
        scope = scope.begun_by
