"""Keys and headers of a model: they are sent to its provider, and must not come back in errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from adjourn._hiding import forms_of

SHORTEST = 6
"""Shorter values are words, such as the "none" that local servers get as a key; hiding them would garble every text."""


class Secrets:
    """Values to hide wherever a provider, or the library that talks to it, repeats them."""

    def __init__(self, key: str | None, *headers: Mapping[str, object] | None) -> None:
        given = [key or "", *(str(value) for each in headers for value in (each or {}).values())]
        # "Bearer abc" is repeated as a whole, or without its first word.
        words = {word for value in given for word in (value, value.rpartition(" ")[2]) if len(word) >= SHORTEST}
        # The longest first, so that nothing is left of one that contains another.
        forms = {form for word in words for form in forms_of(word)}
        self._forms = sorted(forms, key=lambda form: len(form.text), reverse=True)

    def hide(self, text: str) -> str:
        """Return the text without the secrets."""
        for form in self._forms:
            text = text.replace(form.text, form.instead)
        return text

    def are_in(self, error: BaseException) -> bool:
        """Return whether a traceback of the error, with its causes, would show one."""
        return any(form.text in text for text in _texts(error) for form in self._forms)


def _texts(error: BaseException | None) -> Iterable[str]:
    seen = set[int]()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield f"{error} {error!r}"
        error = error.__cause__ or error.__context__
