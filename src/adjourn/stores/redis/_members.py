"""The members of indexes: which session, or which question of a session, they name."""

from __future__ import annotations

from typing import NamedTuple

from adjourn.errors import CheckpointCorrupt
from adjourn.stores.kit.rows import QuestionRow

from ._keys import field_of

REPAIR = "Run `adjourn repair`, or call `repair()` on the store"
"""What mends an index."""


class Entry(NamedTuple):
    """A question in an index: the time that it stands there by, its number, and where its row is."""

    time: float
    no: int
    member: bytes
    app: str
    session: str
    field: str


def question_member(app: str, session: str, row: QuestionRow) -> str:
    """Return the member that a question has in the inbox, but for its number, which comes first."""
    lengths = [len(each.encode(errors="surrogatepass")) for each in (app, session)]
    return f":{lengths[0]}:{lengths[1]}:{app}{session}{field_of((row.branch, row.id))}"


def entry_of(member: bytes, time: float) -> Entry:
    """Return the question that a member names.

    Raises:
        ValueError: it names none.
    """
    no, app, session, rest = member[:100].split(b":", 3)
    start = len(no) + len(app) + len(session) + 3
    ends = start, start + int(app), start + int(app) + int(session)
    if not (ends[0] <= ends[1] <= ends[2] < len(member)) or not no.isdigit() or len(no) > 20:
        raise ValueError(f"no question: {rest[:20]!r}")
    names = [member[start:end].decode() for start, end in zip(ends, (*ends[1:], None), strict=True)]
    return Entry(time, int(no), member, *names)


def due_session(member: bytes) -> bytes:
    """Return the session that a member of what is due names.

    Raises:
        ValueError: it names none.
    """
    if member[:2] in (b"h:", b"a:", b"q:"):
        return member[2:]
    return entry_of(member, 0.0).session.encode()


def foreign(key: str, member: bytes) -> CheckpointCorrupt:
    """Return the error for a member of an index that Adjourn has not written."""
    what = f"'{key}' has the member {member[:100]!r}, which is not one of Adjourn's"
    return CheckpointCorrupt(what, remedy=REPAIR)
