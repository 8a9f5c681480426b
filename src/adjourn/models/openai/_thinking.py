"""Find reasoning in the text of an answer, where servers without a reasoning parser leave it."""

from __future__ import annotations

_TAGS = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",
    "[THINK]": "[/THINK]",
    "◁think▷": "◁/think▷",
}


class Thinking:
    """Splits the text of one answer into reasoning and text, piece by piece.

    Only a tag at the very beginning counts: later ones may be what the answer is about.
    """

    def __init__(self) -> None:
        self._held = ""  # what may still become a tag
        self._end: str | None = ""  # the closing tag that is awaited; "" at the beginning, None in the answer itself
        self._is_after = False  # right after a tag, where empty lines say nothing
        self.has_found = False

    def split(self, text: str) -> tuple[str, str]:
        """Return the reasoning and the text of the next piece."""
        if self._end is None and not self._is_after:
            return "", text
        text, self._held = self._held + text, ""
        reasoning = ""
        if self._end == "":
            text = self._begin(text)
        if self._end:
            reasoning, text = self._inside(self._after_tag(text), self._end)
        return reasoning, self._after_tag(text)

    def _after_tag(self, text: str) -> str:
        if self._is_after and text:
            text = text.lstrip("\n")
            self._is_after = not text
        return text

    def rest(self) -> tuple[str, str]:
        """Return what was held back, once there are no more pieces."""
        held, self._held = self._held, ""
        return (held, "") if self._end else ("", held)

    def _begin(self, text: str) -> str:
        start = text.lstrip()
        for opening, closing in _TAGS.items():
            if start.startswith(opening):
                self._end, self.has_found, self._is_after = closing, True, True
                return start[len(opening) :]
        if any(opening.startswith(start) for opening in _TAGS):
            self._held = text
            return ""
        self._end = None
        return text

    def _inside(self, text: str, end: str) -> tuple[str, str]:
        reasoning, found, rest = text.partition(end)
        if found:
            self._end, self._is_after = None, True
            return reasoning.rstrip("\n"), rest
        sizes = range(min(len(end) - 1, len(text)), 0, -1)
        tag = next((size for size in sizes if end.startswith(text[-size:])), 0)
        reasoning = text[: len(text) - tag].rstrip("\n")
        self._held = text[len(reasoning) :]
        return reasoning, ""
