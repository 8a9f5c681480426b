"""The names of keys: one slot for everything of a session, and what finds sessions beside them."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import quote

from adjourn.stores.types import SessionRef

DEFAULT_APP = "adjourn"

LAYOUT_KEY = "adj:layout"
LAYOUT = 1
"""The layout of the keys: it grows when older versions of Adjourn could no longer read what is there."""

_PARTS = (
    *("row", "log", "numbers", "branches", "asked", "ended", "open", "untaken", "expiring", "listed"),
    *("queue", "inputs"),
)


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


def row_key(ref: SessionRef) -> str:
    """Return the key of a session's row."""
    return session_keys(ref.app, ref.id)[0]


def index_prefix(app: str) -> str:
    """Return what the indexes of an app begin with."""
    return f"adj:{_quoted(app)}:"


def _quoted(name: str) -> str:
    return quote(name, safe="~", errors="surrogatepass")
