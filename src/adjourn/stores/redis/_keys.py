"""The names of keys: one slot for everything of a session, and what finds sessions beside them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from urllib.parse import quote

DEFAULT_APP = "adjourn"

LAYOUT_KEY = "adj:layout"
LAYOUT = 2
"""The layout of the keys. The first was written before the first release, and is not read."""

SERIAL, APPS, ENDS = "adj:serial", "adj:apps", "adj:ends"
"""The number that was given last, the apps that have sessions, and by when sessions with a time to live are over."""

_PARTS = ("row", "listed", "log", "numbers", "branches", "questions", "waiting", "inputs", "queue", "since")

ROW, DOCUMENT, LISTED, LOG, NUMBERS, BRANCHES, QUESTIONS, WAITING, INPUTS, QUEUE, SINCE = range(1, 12)
"""The places of a session's keys, as scripts count them."""


@lru_cache(maxsize=4096)
def session_keys(app: str, id: str) -> tuple[str, ...]:
    """Return the keys of a session, in the order in which scripts expect them: its row, its document, the rest.

    They share a slot: the tag of all others is the name of the document.
    """
    document = document_key(app, id)
    row, *others = [f"adj:{{{document}}}:{part}" for part in _PARTS]
    return (row, document, *others)


def document_key(app: str, id: str) -> str:
    """Return the key of the readable document: `checkpoint:<id>`, and `checkpoint@<app>:<id>` for another app.

    Braces would choose another slot, and a colon in an app would make it ambiguous, so these are percent-encoded.
    """
    # The name of an empty tag would be hashed as a whole, but this one is never empty.
    name = id.replace("%", "%25").replace("{", "%7B").replace("}", "%7D")
    return f"checkpoint:{name}" if app == DEFAULT_APP else f"checkpoint@{_quoted(app)}:{name}"


@lru_cache(maxsize=256)
def index_prefix(app: str) -> str:
    """Return what the indexes of an app begin with."""
    return f"adj:{_quoted(app)}:"


def field_of(key: Sequence[object]) -> str:
    """Return the name of a row in the hash of its table, and in what finds it, from its key."""
    return ".".join([str(each) for each in key])


def _quoted(name: str) -> str:
    return quote(name, safe="~", errors="surrogatepass")
