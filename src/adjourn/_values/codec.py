"""Encode values to bytes and decode them, with limits on size and nesting."""

from __future__ import annotations

import re
import sys
from hashlib import blake2b
from typing import Any

import msgspec

from adjourn.errors import CheckpointCorrupt, NotStorable

from .adopt import MAX_DEPTH as MAX_DEPTH
from .adopt import adopt as adopt
from .adopt import copy as copy
from .tags import Unknown as Unknown
from .tags import lift as lift
from .tags import lift_leniently as lift_leniently
from .tags import lower as lower

# The recursion limit also limits how deep msgspec goes; far above this, deep input could overflow the C stack.
_SAFE_RECURSION = 5_000
_MAX_NESTING = 1_000

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def check_nesting(data: bytes) -> None:
    """Reject stored bytes that cannot be parsed safely; with an ordinary recursion limit, the parser itself does.

    Raises:
        CheckpointCorrupt: they are nested deeper than anything that `encode` writes.
    """
    if sys.getrecursionlimit() <= _SAFE_RECURSION:
        return
    depth = 0
    for byte in _STRING.sub(b"", data).translate(None, _NOT_BRACKETS):
        depth += 1 if byte in b"[{" else -1
        if depth > _MAX_NESTING:
            raise CheckpointCorrupt("it is nested too deeply")


MAX_BYTES = 256 * 1024 * 1024

_TAG_BYTES = b'"$t"'

_encoder = msgspec.json.Encoder()
_canonical = msgspec.json.Encoder(order="deterministic")
_decoder = msgspec.json.Decoder()


def encode(value: Any, plain: bool, path: str = "value") -> bytes:
    """Return the JSON of an adopted value; `plain` is what `adopt` returned with it.

    Raises:
        NotStorable: it is too large.
    """
    try:
        body = _encoder.encode(value if plain else lower(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise NotStorable(path, value, f"It cannot be written as JSON ({error}).") from error
    if len(body) > MAX_BYTES:
        raise NotStorable(
            path, value, f"It takes {len(body)} bytes, and {MAX_BYTES} is the limit: store a reference to it."
        )
    return body


def stored(value: Any, path: str) -> msgspec.Raw:
    """Return a value as records store it: the JSON of the adopted value.

    Raises:
        NotStorable: it cannot be stored.
    """
    adopted, plain = adopt(value, path)
    return msgspec.Raw(encode(adopted, plain, path))


def decode(body: bytes | bytearray | memoryview | msgspec.Raw, *, lenient: bool = False) -> Any:
    """Return the encoded value; with `lenient`, instances of unregistered classes are decoded as `Unknown`.

    Raises:
        CheckpointCorrupt: `encode` did not write these bytes, or a class in them is not registered.
    """
    data = body if isinstance(body, bytes) else bytes(body)
    if len(data) > MAX_BYTES:
        raise CheckpointCorrupt(f"a value of {len(data)} bytes is larger than any that is written")
    check_nesting(data)
    try:
        value = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CheckpointCorrupt(f"a value is not valid JSON ({error})") from error
    except RecursionError:
        raise CheckpointCorrupt("a value is nested too deeply") from None
    if not may_have_tags(data):
        return value
    return lift_leniently(value) if lenient else lift(value)


def may_have_tags(body: bytes) -> bool:
    """Return whether encoded bytes may contain tags; a text that looks like one also counts."""
    return body.find(_TAG_BYTES) >= 0  # `in` first tries to read it as a number, which is ten times as expensive


def fingerprint(value: Any, path: str = "value") -> str:
    """Return 32 hex digits that are equal for equal values of equal types, in every process.

    Raises:
        NotStorable: the value cannot be stored.
    """
    adopted, plain = adopt(value, path)
    body = _canonical.encode(adopted if plain else lower(adopted, canonical=True))
    return blake2b(body, digest_size=16).hexdigest()
