"""Characters that a server has cut in two."""

from __future__ import annotations


class Characters:
    """Rejoins characters that a server has split into two surrogates, one per chunk."""

    def __init__(self) -> None:
        self._held = ""

    def join(self, text: str) -> str:
        """Return the text without the half of a character at its end, which is added to the next one."""
        if not text or (text.isascii() and not self._held):
            return text
        text = self._held + text
        self._held = text[-1] if "\ud800" <= text[-1] <= "\udbff" else ""
        text = text.removesuffix(self._held)
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
