"""The questions of a live session: which there are, which are open, and who asked them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from .record import (
    UNCHANGED,
    Change,
    GraphImage,
    Image,
    Question,
    Tree,
    UserImage,
)


class Asker(Protocol):
    """A frame, or the image of a frame of user code."""

    @property
    def composites(self) -> Mapping[str, Question] | None:
        """What it adds to the questions of its children, by address."""
        ...


class Questions:
    """The questions of a live session: which are open, how many each place has asked, and who asked.

    `all` has those of every frame, live or dormant, by id, and `open` the open ones with the path of their frame.
    `asked` numbers the questions of a place, `asked_new` those that no record numbers yet. `askers` are the frames
    that have asked or composed anything. `changed` are questions on record that the next record must update.
    """

    __slots__ = ("all", "asked", "asked_new", "askers", "changed", "has_composites", "open")

    def __init__(self) -> None:
        self.all: dict[str, Question] = {}
        self.open: dict[str, tuple[str, Question]] = {}
        self.asked: dict[str, int] = {}
        self.asked_new: dict[str, int] = {}
        self.askers: dict[str, Asker | GraphImage] = {}
        self.changed: dict[str, Question] = {}
        self.has_composites = False

    def restore(self, tree: Tree) -> None:
        """Find the questions of a folded session."""
        self.asked, self.all = tree.asked, tree.questions
        for path, image in tree.frames.items():
            if image.questions or (isinstance(image, UserImage) and image.composites):
                self.note_asker(path, image)
                asked = self.named(image.questions)
                self.open.update({each.id: (path, each) for each in asked if each.is_open})

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
        if not isinstance(asker, GraphImage) and asker.composites:
            self.has_composites = True

    def number(self, question: Question, address: str) -> None:
        """Give a new question the next id at the place where it is asked."""
        self.asked[address] = self.asked_new[address] = count = self.asked.get(address, 0) + 1
        question.id = address if count == 1 else f"{address}#{count}"

    def drop(self, question_id: str) -> None:
        """Forget a question: nobody waits for it any more."""
        self.all.pop(question_id, None)
        self.open.pop(question_id, None)

    def forget(self, path: str, question_ids: Iterable[str]) -> None:
        """Drop the questions of a frame that has ended."""
        for each in question_ids:
            self.drop(each)
        if self.askers:
            self.askers.pop(path, None)

    def has_ended(self, question_id: str) -> bool:
        """Return whether this question was asked on this branch and is not open any more."""
        address, _, number = question_id.partition("#")
        count = int(number) if number.isascii() and number.isdigit() and len(number) < 10 else 1
        return count <= self.asked.get(address, 0) and question_id not in self.open
