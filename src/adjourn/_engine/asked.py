"""The questions of a live session: which there are, which are open, and who asked them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from .record import UNCHANGED, Change, GraphImage, Image, Question, Tree, UserImage


class Asker(Protocol):
    """A frame, or the image of a frame of user code."""

    @property
    def composites(self) -> Mapping[str, Question] | None:
        """What it adds to the questions of its children, by address."""
        ...


class Questions(Struct, eq=False):
    """The questions of a live session: which are open, how many each place has asked, and who asked.

    `all` has those of every frame, live or dormant, by id, `open` the open ones, and `paths` those of their frames.
    `asked` is how many questions each place has asked, by address, and `asked_new` that of the places that have asked
    since the last record. `askers` are the frames that have asked or composed anything. `changed` are questions on
    record that the next record must update.
    `opened` and `closed` are those that were opened and closed since the last record, and `timed` the open ones that
    expire: what a commit or an answer costs does not depend on how many others are open.
    `in_order` says that `open` is in task order, since nothing has been asked or restored after it was put in order.
    """

    all: dict[str, Question] = {}
    open: dict[str, Question] = {}
    paths: dict[str, str] = {}
    opened: dict[str, Question] = {}
    closed: list[str] = []
    timed: dict[str, Question] = {}
    asked: dict[str, int] = {}
    asked_new: dict[str, int] = {}
    askers: dict[str, Asker | GraphImage] = {}
    changed: dict[str, Question] = {}
    has_composites: bool = False
    in_order: bool = True

    def restore(self, tree: Tree) -> None:
        """Find the questions of a folded session."""
        self.asked, self.all = tree.asked, tree.questions
        for path, image in tree.frames.items():
            if image.questions or (isinstance(image, UserImage) and image.composites):
                self.note_asker(path, image)
                for question in self.named(image.questions):
                    if question.how is None:
                        self.add_open(path, question)
        self.opened = {}

    def add_open(self, path: str, question: Question) -> None:
        """Note that the frame at `path` waits for a question."""
        name = question.id
        self.open[name] = self.opened[name] = question
        self.paths[name] = path
        self.in_order = False
        if question.expires is not None:
            self.timed[name] = question

    def close(self, question_id: str) -> tuple[str, Question] | None:
        """Note that nobody waits for a question any more; return it with the path of its frame if it was open."""
        question = self.open.pop(question_id, None)
        if question is None:
            return None
        self.opened.pop(question_id, None)
        self.closed.append(question_id)
        if question.expires is not None:
            self.timed.pop(question_id, None)
        return self.paths.pop(question_id), question

    def named(self, ids: Iterable[str]) -> list[Question]:
        """Return questions by their ids."""
        return [self.all[each] for each in ids]

    def changes(self, frames: Mapping[str, Image]) -> dict[str, Change]:
        """Return what a full record must say about the questions that its frames name."""
        asked = [question for image in frames.values() for question in self.named(image.questions)]
        return {each.id: change for each in asked if (change := Change.of(each)) != UNCHANGED}

    def note_asker(self, path: str, asker: Asker | GraphImage) -> None:
        """Note that a frame, live or dormant, has asked or composed something."""
        self.askers[path] = asker
        self.in_order = False
        if not isinstance(asker, GraphImage) and asker.composites:
            self.has_composites = True

    def number(self, question: Question, address: str) -> None:
        """Give a new question the next id at the place where it is asked."""
        self.asked[address] = self.asked_new[address] = count = self.asked.get(address, 0) + 1
        question.id = address if count == 1 else f"{address}#{count}"

    def drop(self, question_id: str) -> None:
        """Forget a question: nobody waits for it any more."""
        self.all.pop(question_id, None)
        self.close(question_id)

    def forget(self, path: str, question_ids: Iterable[str]) -> None:
        """Drop the questions of a frame that has ended."""
        for each in question_ids:
            self.drop(each)
        if self.askers:
            self.askers.pop(path, None)

    def has_ended(self, question_id: str) -> bool:
        """Return whether this question was asked on this branch and is not open any more."""
        return was_asked(question_id, self.asked) and question_id not in self.open


def was_asked(question_id: str, asked: Mapping[str, int]) -> bool:
    """Return whether a place has asked this question, if it has asked as many as `asked` says."""
    address, mark, number = question_id.partition("#")
    return 0 < (_number_of(number) if mark else 1) <= asked.get(address, 0)


def _number_of(text: str) -> int:
    """Return the number in an id, as `number` writes it; 0 if it is not written so."""
    is_number = text.isascii() and text.isdigit() and len(text) < 10
    return int(text) if is_number and not text.startswith("0") and text != "1" else 0


class Asked:
    """The questions of a frame that its code can reach again, by place and key, oldest first."""

    def __init__(self, questions: Iterable[Question]) -> None:
        self._at: dict[tuple[str, str | None], list[Question]] = {}
        self._open: dict[str | None, Question] = {}
        for question in questions:
            self.add(question)

    def add(self, question: Question) -> None:
        """Note a question that has its id; one that was raised by hand, or refused, is not reached again."""
        if question.raised or question.void:
            return
        self._at.setdefault((question.address, question.key), []).append(question)
        if question.how is None:
            self._open[question.key] = question

    def forget(self, question: Question) -> None:
        """Note that a question is not reached again."""
        if question in (same := self._at.get((question.address, question.key), [])):
            same.remove(question)
        if self._open.get(question.key) is question:
            del self._open[question.key]

    def at(self, address: str, key: str | None) -> Sequence[Question]:
        """Return the questions with this key that were asked at a place, oldest first."""
        return self._at.get((address, key), ())

    def is_ambiguous(self, key: str | None) -> bool:
        """Return whether a question with this key could be mistaken for another open one."""
        if not self._open or not (key is None or None in self._open or key in self._open):
            return False
        # Some may have been answered meanwhile.
        rivals = {key for key, question in self._open.items() if question.is_open}
        return bool(rivals) and (key is None or None in rivals or key in rivals)
