"""What a record proves about itself and about the rows beside the log, so that changes to either are noticed.

Every record carries a digest of its content and of the digest before it: the *chain*. Questions and answers stand in
rows beside the log; the record that asks a question, or takes an answer up, has a digest of that row. The store's time
of a record is known only when it is written, so a later record has it.
"""

from __future__ import annotations

import hmac
from binascii import b2a_base64
from hashlib import sha256

import msgspec

_encode = msgspec.json.Encoder().encode

DIGEST_SIZE = 43
"""The letters of a digest: 256 bits in base64, without padding."""


class Stored(msgspec.Struct, frozen=True, array_like=True):
    """When records `first` to `last` of a branch, by default that of the record before, were stored."""

    first: int
    last: int
    at: float
    branch: str | None = None


class Ended(msgspec.Struct, frozen=True, array_like=True):
    """The digest of how a question ended, and when; None for the time of the record itself, which ended it."""

    digest: str
    at: float | None = None


class LeftBranch(msgspec.Struct, frozen=True, array_like=True):
    """The last record of a branch that the head leaves, its digest, and the answers there that no record has taken up.

    Nothing is ever written after it on that branch, so the record that leaves has to prove it.
    """

    record: str
    digest: str
    ended: dict[str, Ended] = {}


class Proof(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a record proves, besides its own content.

    `asked` has the digest of every question that it asks, `ended` of every answer that it takes up, by id. `stored` is
    when earlier records were written. The first record of a branch proves the one that was `left` for it. A full record
    repeats the digest `before` it, as the records before it may be pruned. `events` is the digest of the events of a
    pause, which the store drops if answers have come in; then `unpaused` says so in the record after it. `status` is
    that of the session from this record on.
    """

    asked: dict[str, str] = {}
    ended: dict[str, Ended] = {}
    stored: list[Stored] = []
    left: LeftBranch | None = None
    before: str = ""
    events: str = ""
    unpaused: bool = False
    status: str = "running"


def digest(first: bytes, rest: bytes = b"", key: bytes | None = None) -> str:
    """Return the digest of some bytes, in one or two parts; with a key, nobody without it can make the same."""
    if key is None:
        summed = sha256(first)
        summed.update(rest)
        made = summed.digest()
    else:
        made = hmac.digest(key, first + rest, "sha256")
    return b2a_base64(made, newline=False)[:DIGEST_SIZE].decode()


def question_digest(id: str, body: bytes, expires: float | None) -> str:
    """Return the digest of a question as it was asked."""
    return digest(_encode((id, expires)), body)


def answer_digest(id: str, how: str, by: str | None, value: bytes) -> str:
    """Return the digest of how a question ended."""
    return digest(_encode((id, how, by)), value)
