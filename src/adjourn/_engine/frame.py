"""Frames of user code: what outlives a run of the code. Its status, its questions, its children and its memos."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from msgspec.structs import replace

from adjourn._values import codec

from .address import address_of, is_under
from .concurrency import Slot
from .memos import Failure, Key, Kind, Memo, read_memos, without_writes
from .record import Image, Question, UserImage
from .scope import Frame
from .values import check_tags, lift_values, lower_values, value_or


class Running(Protocol):
    """The present run of a frame's code: an entry, which is above this module."""

    written: dict[str, Any] | None

    def write_value(self, key: str, value: object) -> None:
        """Write a session value."""
        ...


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
    running: Running | None = None
    questions_stored: int
    recorded: bool
    has_withdrawn: bool

    @property
    def runs_code(self) -> bool:
        """Whether what is below it was run by its code, and not by itself."""
        return True

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

    def take_values(self, prefix: str) -> dict[str, Any]:
        """Return the session values that the code has written under names with this prefix; they are not kept."""
        written = self.values or {}
        taken = {key: written.pop(key) for key in list(written) if key.startswith(prefix)}
        if taken:
            self._drop_kept_values(taken.__contains__)
        return taken

    def children_ended(self) -> None:
        """Take note that no child of the code is under way any more."""

    def begin_turn(self) -> None:
        """Forget what earlier runs of the code have asked and kept, for a new turn."""
        self.memos = self.memos_new = None
        self.questions = self.composites = self.composites_new = self.paused = None
        self.questions_stored = 0
        self.attempt, self.emitted, self.status, self.error = 1, 0, "pending", None

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
        result, lowered = codec.stored(value, f"{key.name}()"), lower_values(writes) if writes else {}
        self._set_memo(key, Memo(result=result, writes=lowered, optional=optional, concurrent=concurrent))

    def _set_memo(self, key: Key, memo: Memo) -> None:
        self.memos = self.memos or {}
        self.memos_new = self.memos_new or {}
        self.memos[key] = self.memos_new[key] = memo
        self.scope.mark(self)

    def keep_failure(self, key: Key, failure: Failure, child: Frame | None, *, concurrent: bool) -> None:
        """Keep how a call failed, or a child run, for the next time this code runs."""
        self._set_memo(key, Memo(failure=failure, concurrent=concurrent))
        # A wrapper that calls again does so in the same frame, which may be asking now.
        if child is not None and self.children and child.segment not in (self.advancing or ()):
            child.drop()
            del self.children[child.segment]

    def kept(self, key: Key) -> Memo | None:
        """Return what was kept under this key, if it is known how it ended."""
        memo = self.memos.get(key) if self.memos else None
        return memo if memo is not None and memo.is_settled else None

    def make_optional(self, *keys: Key) -> None:
        """Note that these need not happen again when the code is rerun."""
        for key in keys:
            memo = (self.memos or {}).get(key, _UNKNOWN)
            if not memo.optional:
                self._set_memo(key, replace(memo, optional=True))

    def make_all_optional(self) -> None:
        """Note that nothing kept so far needs to happen again, and that what failed may be tried again."""
        self.forget_failures(self.memos or ())
        self.make_optional(*(self.memos or ()))

    def forget_failures(self, keys: Iterable[Key]) -> None:
        """Let what failed under these keys be tried again: no question comes after it any more."""
        for key in list(keys):
            memo = (self.memos or {}).get(key, _UNKNOWN)
            if memo.failure is not None:
                self._set_memo(key, memo.forget_failure())

    def note_concurrent(self, key: Key) -> None:
        """Note that a child run was begun by one of several flows of the code."""
        self._set_memo(key, Memo(concurrent=True))

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

    def check_types(self) -> None:
        if self.status != "done":
            check_tags(self.path, *(self.memos or {}).values())
            super().check_types()

    def start_over(self) -> None:
        """Start over on what was changed by hand (rule C4).

        Open questions are closed. What was kept is given back to equal calls, and need not happen again.
        """
        if self.status == "done":
            return
        asked = self.questions
        self.questions = None if asked is None else []
        for question in asked or ():
            self._reconsider(question)
        self.has_withdrawn = self.has_withdrawn or self.questions_stored > 0
        self.questions_stored, self.composites, self.composites_new = 0, None, None
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
        if self.composites is not None and self.composites_new is not None:
            image.composites, self.composites_new = self.composites_new, None
        if self.memos_new:
            image.memos = {str(key): memo for key, memo in self.memos_new.items()}
            self.memos_new = None
        if self.attempt != 1 or self.emitted or self.error or self.paused is not None or self.status == "failed":
            self._add_attempts(image)
        if self.status == "done":
            self.add_result(image)
        return image

    def _add_attempts(self, image: UserImage) -> None:
        if self.attempt != 1 or self.emitted or self.status == "failed":  # What a failed entry emitted may be undone.
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
        self._drop_kept_values(is_dropped)
        self.scope.mark(self)

    def _drop_kept_values(self, is_dropped: Callable[[str], bool]) -> None:
        for key, memo in (self.memos or {}).items():
            left = without_writes(memo, is_dropped)
            if left is not memo:
                self._set_memo(key, left)

    def wake(self) -> None:
        if self.status == "waiting":
            self.status = "pending"
        self.scope.mark(self)

    def wait(self) -> None:
        if self.status == "pending":
            self.status = "waiting"
            self.scope.mark(self)


_UNKNOWN = Memo()
