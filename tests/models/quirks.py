"""Answers as real servers send them: the corpus in `servers/`, and its table in the docs.

Each file of `servers/` has the answers of one server. An entry has a `quirk`, the `whole` answer or its `stream` or
both, and what is `expected`. A stream is a list of events: data, or text that is sent as it is (a comment, `[DONE]`,
broken JSON). `{"json": ...}` is a server that answers a streamed request with a whole answer, `{"lines": ...}` one that
writes its lines in another way, `{"raw": ...}` a body as it is. Without `status` it is 200.

`python -m tests.models.quirks` writes the table into `docs/models.md`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

Quirk = dict[str, Any]

_FOLDER = Path(__file__).parent / "servers"
PAGE = Path(__file__).parents[2] / "docs" / "models.md"
_BEGIN, _END = "<!-- quirks -->\n", "<!-- end of quirks -->\n"


@cache
def corpus() -> dict[str, list[Quirk]]:
    """All entries, by the name of the server's file."""
    files = sorted(_FOLDER.glob("*.json"))
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files}


def table() -> str:
    """The table of the docs."""
    rows = [
        f"| {entry['server']} | {_escaped(entry['quirk'])} | {_mark(entry, 'whole')} | {_mark(entry, 'stream')} |"
        for entry in _all()
    ]
    return "\n".join(["| Server | What it sends | Whole | Streamed |", "|---|---|---|---|", *rows, ""])


def shown() -> str:
    """The table as the docs have it."""
    return PAGE.read_text(encoding="utf-8").partition(_BEGIN)[2].partition(_END)[0]


def _all() -> Iterator[Quirk]:
    for entries in corpus().values():
        yield from entries


def _mark(entry: Quirk, kind: str) -> str:
    if "error" in entry["expected"]:
        return "error" if kind in entry else ""
    return "yes" if kind in entry else ""


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;").replace("|", "\\|")


if __name__ == "__main__":
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    PAGE.write_text(f"{before}{_BEGIN}{table()}{_END}{rest.partition(_END)[2]}", encoding="utf-8")
