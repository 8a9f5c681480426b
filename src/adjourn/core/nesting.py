"""How deep stored JSON may be nested: looked at before a parser goes into it."""

from __future__ import annotations

import re
import sys

from .errors import CheckpointCorrupt

# The recursion limit also bounds how deep msgspec goes; raised far above this, deep input could overflow the C stack.
_SAFE_RECURSION = 5_000
_MAX_NESTING = 1_000

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def check_nesting(data: bytes) -> None:
    """Refuse stored bytes that no parser could go into safely; under an ordinary recursion limit parsers see to it.

    Raises:
        CheckpointCorrupt: they are nested deeper than anything that is written.
    """
    if sys.getrecursionlimit() <= _SAFE_RECURSION:
        return
    depth = 0
    for byte in _STRING.sub(b"", data).translate(None, _NOT_BRACKETS):
        depth += 1 if byte in b"[{" else -1
        if depth > _MAX_NESTING:
            raise CheckpointCorrupt("it is nested too deeply")
