"""Frames of user code: what is kept in them, and where code stands."""

from __future__ import annotations

import asyncio
import threading
import weakref
from asyncio import current_task
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from msgspec import UNSET, Raw, Struct

from adjourn._values import codec
from adjourn._values.frozen import check_text
from adjourn.errors import NotInRun, ReplayMismatch, UsageError

from .concurrency import Slot
from .record import NONE, Image, Question, UserImage
from .scope import GONE, Frame

BESIDE = "beside:"
"""Stands before the name of a call that one of several flows made: when it comes again, its order may be another."""

LOOSE = "loose:"
"""Stands before the name of a call that need not come again: it raised, or was made by code that was wrong."""


class Traces(NamedTuple):
    """What an entry has done up to a place in its code."""

    seen: dict[str, int]
    replayed: set[str]
    emitting: int
    written: dict[str, Any] | None
    wrote: dict[str, dict[str, Any]] | None


class UserFrame(Frame):
    """A frame of user code. It is run again from its top, and what was kept is given back instead of done again."""

    stops_between_calls: bool = False

    # Kept over entries
    status: str = "pending"
    attempt: int = 1
    emitted: int = 0
    error: dict[str, str] | None = None
    memos: dict[str, Raw] | None = None
    memos_new: dict[str, Raw] | None = None
    children: dict[str, Frame] | None = None
    busy: set[asyncio.Future[None]] | None = None
    spawned: weakref.WeakSet[asyncio.Future[Any]] | None = None
    running: set[str] | None = None
    slot: Slot | None = None

    # Of the present entry
    entered: bool = False
    asked_before: int = 0
    seen: dict[str, int] | None = None
    replayed: set[str] | None = None
    fresh: list[str] | None = None
    pausing: bool = False
    fault: Exception | None = None
    exception: BaseException | None = None
    main: asyncio.Task[Any] | None = None
    thread: int | None = None
    emitting: int = 0
    written: dict[str, Any] | None = None
    wrote: dict[str, dict[str, Any]] | None = None

    @property
    def values(self) -> dict[str, Any] | None:
        return self.written

    def enter_again(self) -> None:
        """Start the code of this frame from its top, forgetting what its last entry did."""
        self.seen, self.replayed, self.fresh, self.pausing, self.fault = None, None, None, False, None
        self.emitting, self.written, self.wrote = 0, None, None
        self.asked_before = len(self.questions or ())

    def traces(self) -> Traces:
        """What this entry has done so far."""
        return Traces(
            dict(self.seen or {}),
            set(self.replayed or ()),
            self.emitting,
            None if self.written is None else dict(self.written),
            None if self.wrote is None else {memo: dict(values) for memo, values in self.wrote.items()},
        )

    def go_back(self, to: Traces) -> None:
        """Have the code that follows on `to` run again in the same entry: it is given what is on record."""
        self.seen, self.replayed, self.emitting = dict(to.seen), set(to.replayed), to.emitting
        self.drop_writes(to)

    def drop_writes(self, since: Traces) -> None:
        """Forget the session values that were written after `since`."""
        self.written = None if since.written is None else dict(since.written)
        self.wrote = None if since.wrote is None else {memo: dict(values) for memo, values in since.wrote.items()}

    def forgo(self) -> None:
        """Let this entry end without the rest of what is on record: its code has failed, and that is its result."""
        for memo in self.memos or ():
            self.repeat(memo)
        for question in self.questions or ():
            self.repeat(question.id)
        for segment in (*(self.children or ()), *self.scope.dormant.get(self.path, ())):
            self.repeat(f"run:{segment}")

    def occurrence(self, what: str) -> int:
        """How often `what` has happened in this entry, this time included."""
        if self.seen is None:
            self.seen = {}
        self.seen[what] = count = self.seen.get(what, 0) + 1
        return count

    def take_back_occurrence(self, what: str) -> None:
        """Have the next time that `what` happens be the same time again."""
        assert self.seen is not None
        self.seen[what] -= 1

    def is_straight(self, caller: int | None = None) -> bool:
        """Whether a thread (this one) is this frame's own flow of code, and not one of several that it has started."""
        ident = caller or threading.get_ident()
        if ident != self.scope.thread:
            return ident == self.thread
        return self.main is None or current_task(self.scope.loop) is self.main

    def write_value(self, key: str, value: object, once: str | None = None) -> None:
        """Write a session value; it takes effect with this frame's result. `once` names the kept call that writes."""
        if self.written is None:
            self.written = {}
        self.written[key] = value
        if once is not None:
            self.wrote = self.wrote or {}
            self.wrote.setdefault(once, {})[key] = value

    def keep_values(self, memo: str, values: Mapping[str, object]) -> None:
        """Keep what a kept call wrote: it is part of what the call gives, so it is given back with the result."""
        if values:
            self.keep(f"values:{memo}", {key: [] if value is GONE else [value] for key, value in values.items()})

    def repeat_values(self, memo: str) -> None:
        """Write again what a kept call wrote."""
        raw = self.kept(f"values:{memo}")
        values: dict[str, list[Any]] = {} if raw is None else decoded(raw)
        for key, value in values.items():
            self.write_value(key, value[0] if value else GONE)

    def sends_next(self) -> bool:
        """Whether the next event of this frame's own flow is a new one, told by its number."""
        self.emitting += 1
        if self.emitting <= self.emitted:
            return False
        self.emitted = self.emitting
        self.scope.mark(self)
        return True

    def sends_beside(self, data: object) -> bool:
        """Whether an event is new that comes from one of several flows, whose order may change: told by what it is."""
        what = f"emit:{codec.fingerprint(data)}"
        memo = f"{what}:{self.occurrence(what)}"
        if self.is_loose(memo):
            return False
        self.loosen(memo)
        return True

    @contextmanager
    def under_way(self) -> Generator[None]:
        """Have the end of this entry wait for what is done inside: it is kept, and so it is not to be cut off."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.busy = self.busy or set()
        self.busy.add(done)
        try:
            yield
        finally:
            self.busy.discard(done)
            done.set_result(None)

    # Kept results

    def kept(self, memo: str) -> Raw | None:
        """What was kept under this name, marked as used by this entry."""
        if self.memos is None or (raw := self.memos.get(memo)) is None:
            return None
        self.repeat(memo)
        return raw

    def repeat(self, what: str) -> None:
        """Note that what is on record has happened in this entry, too."""
        if self.replayed is None:
            self.replayed = set()
        self.replayed.add(what)

    def keep(self, memo: str, value: object) -> None:
        """Keep a result for the next time this code runs."""
        raw = codec.stored(value, memo)
        self.memos = self.memos or {}
        self.memos_new = self.memos_new or {}
        self.memos[memo] = self.memos_new[memo] = raw
        self.fresh = [*(self.fresh or ()), memo]
        self.repeat(memo)
        self.scope.mark(self)

    def loosen(self, memo: str) -> None:
        """Note that this call was made, and may come again or not."""
        self._note(LOOSE + memo)

    def set_beside(self, memo: str) -> None:
        """Note that this call was made by one of several flows."""
        self._note(BESIDE + memo)

    def _note(self, what: str) -> None:
        self.memos = self.memos or {}
        self.memos_new = self.memos_new or {}
        self.memos[what] = self.memos_new[what] = Raw(b"null")
        self.scope.mark(self)

    def is_loose(self, memo: str) -> bool:
        """Whether this call was made before and need not come again."""
        return self.memos is not None and LOOSE + memo in self.memos

    def is_beside(self, memo: str) -> bool:
        """Whether this call was made by one of several flows."""
        return self.memos is not None and BESIDE + memo in self.memos

    def take_back(self) -> None:
        """Undo what an entry has asked that went wrong, and loosen what it kept: mended code may do neither."""
        questions = self.questions or []
        for question in questions[self.asked_before :]:
            self.scope.open.pop(question.id, None)
        if self.questions is not None:
            self.questions = questions[: self.asked_before]
        for memo in self.fresh or ():
            self.loosen(memo)
        self.scope.mark(self)

    def unused(self, prefix: str) -> list[str]:
        """Results kept by an earlier entry that this one has not asked for yet."""
        used = self.replayed or set[str]()
        found = [memo for memo in self.memos or () if memo.startswith(prefix) and memo not in used]
        return [memo for memo in found if not memo.startswith((LOOSE, BESIDE)) and not self.is_loose(memo)]

    def unasked(self) -> list[Question]:
        """Questions of an earlier entry that this one has not come to yet."""
        used, earlier = self.replayed or (), (self.questions or [])[: self.asked_before]
        return [q for q in earlier if q.id not in used and not q.raised and q.how != "refused"]

    def check_replayed(self) -> None:
        """Refuse to end when something that was recorded did not happen again."""
        for memo in self.unused("") if self.memos else ():
            raise ReplayMismatch(self.address, f"the kept call {memo}", "the code ended without it")
        for question in self.unasked() if self.asked_before else ():
            raise ReplayMismatch(self.address, f"the question '{question.id}'", "the code ended without asking it")
        if self.children or self.scope.dormant:
            for segment in (*(self.children or ()), *self.scope.dormant.get(self.path, ())):
                if f"run:{segment}" not in (self.replayed or ()):
                    raise ReplayMismatch(self.address, f"the child run '{segment}'", "the code ended without it")

    # Records

    def take(self) -> UserImage:
        image = UserImage(fresh=not self.recorded)
        self.recorded = True
        if self.status != "pending" or not image.fresh:
            image.status = self.status
        if self.questions is not None:
            image.questions = self.questions
        if self.composite is not None:
            image.parent = self.composite
        if self.memos_new:
            image.memos, self.memos_new = self.memos_new, None
        if self.attempt != 1 or self.emitted or self.error:
            self._take_attempts(image)
        if self.status == "done":
            self.take_result(image)
        return image

    def _take_attempts(self, image: UserImage) -> None:
        if self.attempt != 1 or self.emitted:
            image.attempt, image.emitted = self.attempt, self.emitted
        if self.attempt != 1 or self.error:
            image.error = self.error

    def take_result(self, image: UserImage) -> None:
        """What the finished code came to."""
        if self.written:
            image.values = lower_values(self.written)

    def take_all(self, into: dict[str, Image]) -> None:
        self.recorded = False
        self.memos_new = self.memos and dict(self.memos)
        into[self.path] = self.take()
        for child in (self.children or {}).values():
            child.take_all(into)
        if self.scope.dormant:
            into.update(self.scope.stored_below(self.path))

    def restore(self, image: UserImage) -> None:
        """Become what was stored."""
        self.recorded = True
        self.status = value_or(image.status, "pending")
        self.attempt = value_or(image.attempt, 1)
        self.emitted = value_or(image.emitted, 0)
        self.error = value_or(image.error, None)
        self.memos = dict(image.memos) or None
        self.composite = value_or(image.parent, None)
        self.questions = value_or(image.questions, None)
        self.written = lift_values(value_or(image.values, {})) or None
        if self.questions or self.composite:
            self.scope.askers[self.path] = self
            self.scope.has_composites |= self.composite is not None
        self.scope.bound(self)

    def live_children(self) -> Iterable[Frame]:
        return self.children.values() if self.children else ()

    def wake(self) -> None:
        if self.status == "waiting":
            self.status = "pending"
        self.scope.mark(self)


def value_or(value: object, default: Any) -> Any:  # Any: the field's own type, which pyright cannot see through UNSET
    """A stored field, or its default when the record left it out."""
    return default if value is UNSET else value


def adopt_value(key: str, value: object) -> Any:
    """A session value as the session's own.

    Raises:
        UsageError: its name is no text.
        NotStorable: it cannot be kept.
    """
    try:
        check_text(key, "The name of a session value")
        if key.startswith("~"):
            raise ValueError(
                f"The session value {key!r} begins with '~', which is kept for the engine. Name it otherwise."
            )
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from error
    return codec.adopt(value, f"values[{key!r}]")[0]


def lower_values(values: Mapping[str, object]) -> dict[str, list[Raw]]:
    """Session values as records keep them: a list of one, or an empty one for a deleted value."""
    return {key: [] if value is GONE else [encoded(value)] for key, value in values.items()}


def lift_values(stored: Mapping[str, list[Raw]]) -> dict[str, Any]:
    """Session values from a record."""
    return {key: codec.decode(raws[0]) if raws else GONE for key, raws in stored.items()}


def encoded(value: object) -> Raw:
    """An owned value as raw JSON."""
    return Raw(codec.encode(value, plain=False))


class Place(Struct, eq=False):
    """Where code stands: a frame, segments that the code added itself, and the `@once` call it is in.

    Each entry into a frame has a place of its own, which is `over` when the entry has ended: what it left behind
    (a thread past its timeout, a forgotten task) is refused from then on.
    """

    frame: UserFrame
    extra: str = ""
    once: str | None = None
    base: Place | None = None  # None, not itself: a cycle here would be work for the garbage collector at every step
    over: bool = False

    @property
    def address(self) -> str:
        return self.frame.address + self.extra

    def within(self, extra: str = "", once: str | None = None) -> Place:
        """A place inside this one, over when this one is."""
        return Place(self.frame, self.extra + extra, once or self.once, self.base or self)

    @property
    def is_over(self) -> bool:
        return (self.base or self).over

    def check(self) -> None:
        """Refuse calls from an entry that has ended, or from a run that has let go of its session."""
        scope = self.frame.scope
        if scope.closed is not None:
            scope.check_open()
        if (self.base or self).over:
            raise UsageError(f"'{self.address}' has ended, and something that it left behind still calls into the run.")


here: ContextVar[Place | None] = ContextVar("adjourn_here", default=None)


def standing(call: str) -> Place:
    """Where the calling code stands; `NotInRun` outside a run."""
    at = here.get()
    if at is None:
        raise NotInRun(call)
    return at


def decoded(raw: Raw) -> Any:  # Any: it is the user's own value
    """The value behind a stored raw, None for none."""
    return None if raw is NONE else codec.decode(raw)
