"""Finding a question again when the code that asked it runs again."""

from __future__ import annotations

from collections.abc import Iterable

from .record import Question


class Asked:
    """The questions of a frame that its code can come to again, by key, oldest first."""

    def __init__(self, questions: Iterable[Question]) -> None:
        self._by_key: dict[str | None, list[Question]] = {}
        self._open: dict[str | None, Question] = {}
        for question in questions:
            self.add(question)

    def add(self, question: Question) -> None:
        """Note a question; one that was raised by hand, or refused, is not come to again."""
        if question.raised or question.void:
            return
        self._by_key.setdefault(question.key, []).append(question)
        if question.is_open:
            self._open[question.key] = question

    def forget(self, question: Question) -> None:
        """Note that a question is not come to again."""
        if question in (same := self._by_key.get(question.key, [])):
            same.remove(question)

    def find(self, key: str | None, number: int) -> Question | None:
        """Return the question that is the `number`th with this key."""
        same = self._by_key.get(key, ())
        return same[number - 1] if number <= len(same) else None

    def is_ambiguous(self, key: str | None) -> bool:
        """Whether a question with this key could be taken for another one that is open."""
        if not self._open or not (key is None or None in self._open or key in self._open):
            return False
        # Some may have been answered meanwhile.
        rivals = {key for key, question in self._open.items() if question.is_open}
        return bool(rivals) and (key is None or None in rivals or key in rivals)
