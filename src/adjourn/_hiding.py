"""The values of secrets that are known in this process, and texts without them."""

from __future__ import annotations

import json
import logging
import re
import threading
import traceback
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from types import TracebackType
from typing import NamedTuple, TypeAlias, TypeVar
from urllib.parse import quote, quote_plus

import msgspec

HIDDEN = "[secret]"
SHORTEST = 8
"""Shorter values are words; hiding them would garble every text."""

# A text in JSON, with the colon after it if it is the name of a member.
_JSON_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"(:)?', re.DOTALL)

S = TypeVar("S", bound=msgspec.Struct)
_Raised: TypeAlias = tuple[type[BaseException], BaseException, TracebackType | None]


class Form(NamedTuple):
    """One way in which a secret can be written, and what is shown instead."""

    text: str
    json: bytes
    instead: str


class Known:
    """The secrets of this process. Without any, nothing is ever looked at."""

    def __init__(self) -> None:
        self.forms: tuple[Form, ...] = ()
        self._values: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, value: str) -> None:
        """Hide a value from now on."""
        if len(value) >= SHORTEST:
            with self._lock:
                self._values[value] += 1
                self._update()

    def remove(self, value: str) -> None:
        """Hide a value no longer, once it has been removed as often as it was added."""
        # A finalizer may run in a thread that holds the lock; then the value just stays.
        if len(value) >= SHORTEST and self._lock.acquire(blocking=False):
            try:
                self._values[value] -= 1
                if self._values[value] <= 0:
                    del self._values[value]
                    self._update()
            finally:
                self._lock.release()

    def _update(self) -> None:
        # The longest first, so that nothing is left of one that contains another.
        forms = {form for value in self._values for form in forms_of(value)}
        self.forms = tuple(sorted(forms, key=lambda form: len(form.text), reverse=True))

    def hide(self, text: str) -> str:
        """Return a text without the secrets."""
        for form in self.forms:
            if form.text in text:
                text = text.replace(form.text, form.instead)
        return text

    def hide_in_json(self, data: bytes) -> bytes:
        """Return JSON whose texts are without the secrets; the same object if there are none in it."""
        if not self.forms:
            return data  # most programs have none, and this is called for every record
        found = [form for form in self.forms if form.json in data]
        if not found:
            return data

        def hidden(match: re.Match[bytes]) -> bytes:
            text = match[0]
            if match[1]:
                return text  # Values are found by their names, which stay.
            for form in found:
                text = text.replace(form.json, form.instead.encode())
            return text

        return _JSON_TEXT.sub(hidden, data)

    def hide_in_struct(self, value: S) -> S:
        """Return a record of ours whose texts are without the secrets; the same object if there are none in it."""
        body = msgspec.json.encode(value)
        hidden = self.hide_in_json(body)
        return value if hidden is body else msgspec.json.decode(hidden, type=type(value))


known = Known()


class Held:
    """A text that arrives in pieces: what may be the beginning of a secret is held back until it is known not to be."""

    def __init__(self) -> None:
        self._text = ""

    def add(self, piece: str) -> str:
        """Return what can be shown now that this piece has arrived."""
        text = self._text + piece
        cut = self._safe(text)
        self._text = text[cut:]
        return known.hide(text[:cut])

    def rest(self) -> str:
        """Return what is left at the end."""
        text, self._text = self._text, ""
        return known.hide(text)

    @staticmethod
    def _safe(text: str) -> int:
        """Return up to where the text can be shown: a secret may begin there, or one is not to be cut in two."""
        forms = [form.text for form in known.forms]
        start = max(len(text) - max(map(len, forms), default=1) + 1, 0)
        cut = next((at for at in range(start, len(text)) if _may_begin(forms, text[at:])), len(text))
        # A secret that ends after the cut is held back as a whole, and so is one that overlaps with it.
        while (earlier := min((_across(text, form, cut) for form in forms), default=cut)) < cut:
            cut = earlier
        return cut


def _across(text: str, form: str, cut: int) -> int:
    """Return where a secret begins that the cut would divide, else the cut."""
    at = text.find(form, max(cut - len(form) + 1, 0), cut + len(form) - 1)
    return cut if at < 0 else min(at, cut)


def _may_begin(forms: list[str], end: str) -> bool:
    return any(len(form) > len(end) and form.startswith(end) for form in forms)


def forms_of(value: str) -> Iterator[Form]:
    """Yield common ways to write a value: in JSON, Python, URLs, HTML, hex, and base64 at any offset."""
    from html import escape  # noqa: PLC0415 - loads a large table, and only programs with secrets need it

    data = value.encode()
    in_json = {msgspec.json.encode(value).decode()[1:-1], json.dumps(value)[1:-1]}
    in_json |= {text.replace("/", "\\/") for text in in_json}
    in_python = {repr(value)[1:-1], ascii(value)[1:-1], repr(data)[2:-1]}
    in_urls = {quote(value, safe=""), quote(value), quote_plus(value)}
    in_html = {escape(value), escape(value, quote=False)}
    for text in {value} | in_json | in_python | in_urls | in_html:
        yield _form(text, HIDDEN)
    for text in {data.hex(), data.hex().upper()}:
        yield _form(text, "0" * len(text))
    for offset in range(3):
        encoded = b64encode(bytes(offset) + data).decode()
        # Only the characters that do not depend on what comes before and after. What is shown instead is also base64
        # of the same length, since it may be in the middle of one.
        inside = encoded[(offset * 8 + 5) // 6 : (offset + len(data)) * 8 // 6]
        for text in {inside, inside.replace("+", "-").replace("/", "_")}:
            yield _form(text, ("secret" * len(text))[: len(text)])


def _form(text: str, instead: str) -> Form:
    return Form(text, msgspec.json.encode(text)[1:-1], instead)


class _LogFilter(logging.Filter):
    """Hides secrets in log lines and their tracebacks."""

    def filter(self, record: logging.LogRecord) -> bool:
        if known.forms:
            text = record.getMessage()
            hidden = known.hide(text)
            if hidden != text:
                record.msg, record.args = hidden, ()
            if isinstance(record.exc_info, tuple) and record.exc_info[0] is not None:
                self._hide_traceback(record, record.exc_info)
        return True

    def _hide_traceback(self, record: logging.LogRecord, raised: _Raised) -> None:
        text = "".join(traceback.format_exception(*raised)).rstrip("\n")
        hidden = known.hide(text)
        if hidden != text:
            # Formatters use the text, and other handlers must not read the error itself.
            record.exc_info, record.exc_text = None, hidden


_log_filter = _LogFilter()


def logger(name: str) -> logging.Logger:
    """Return the logger of this name, in whose lines secrets are hidden."""
    log = logging.getLogger(name)
    log.addFilter(_log_filter)
    return log
