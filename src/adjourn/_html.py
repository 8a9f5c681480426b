"""HTML for notebooks: small tables, in which every text is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ._text import visible

# As `html.escape` has them, whose module brings along a large table of entities.
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})
_CELL = "text-align:left;vertical-align:top"


def table(title: str, rows: Iterable[tuple[str, Any]]) -> str:
    """Return a table of labels and values; a value of another type than text is shown as Python shows it."""
    lines = [
        f'<tr><th style="{_CELL}">{_text(label)}</th><td style="{_CELL}">{_value(value)}</td></tr>'
        for label, value in rows
    ]
    return f'<table><caption style="text-align:left"><b>{_text(title)}</b></caption>{"".join(lines)}</table>'


def preformatted(text: str) -> str:
    """Return a text that keeps its lines and columns."""
    return f"<pre>{_text(text)}</pre>"


def _value(value: object) -> str:
    text = _text(value if isinstance(value, str) else repr(value))
    return f'<span style="white-space:pre-wrap">{text}</span>'


def _text(text: str) -> str:
    return visible(text).translate(_ESCAPES)
