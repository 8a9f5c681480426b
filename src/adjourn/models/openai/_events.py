"""Read the body of an answer: server-sent events, lines of JSON, or a whole answer.

What comes first in the body decides, not what was asked for nor what the headers say: proxies get both wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec

from adjourn.models.bounds import PIECE, AnswerBounds, exceeded

from ._words import words_of

DONE = object()
"""Stands for the end of an answer that is complete: `[DONE]`, or the end of a whole answer."""

_DRAIN_SECONDS = 0.1
_BOM = b"\xef\xbb\xbf"
_SIGNS_OF_LIFE = frozenset({b"ping", b"heartbeat", b"keepalive", b"keep-alive"})  # events whose data is any text
_FIELD = b":deir"  # how the lines of events begin: a comment, `data`, `event`, `error`, `id`, `retry`


async def pieces_of(response: Any, bounds: AnswerBounds) -> AsyncIterator[object]:  # Any: of the SDK's HTTP library
    """Yield the JSON data of each event, and `DONE`; the data of a whole answer is one piece.

    Raises:
        ModelError: there is more than the bounds allow.
        ValueError: a piece is not JSON.
    """
    chunks: AsyncIterator[bytes] = response.aiter_bytes()
    body, size = _Body(bounds.at_once), 0
    async for chunk in chunks:
        size += len(chunk)
        if size > bounds.size:
            raise exceeded(f"{bounds.size:,} bytes", "size")
        for piece in body.read(chunk):
            size += PIECE
            yield piece
            if piece is DONE:
                await _drain(chunks)
                return
    for piece in body.rest():
        yield piece


class _Body:
    """Reads a body piece by piece, and holds at most `limit` bytes of it."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0  # of a body that is not events
        self._start = b""
        self._whole: list[bytes] | None = None  # a body that is not events
        self._lines: _Lines | None = None

    def read(self, chunk: bytes) -> Iterator[object]:
        if self._lines is not None:
            yield from self._lines.read(chunk)
        elif self._whole is not None:
            self._size += len(chunk) + PIECE
            _check(self._size, self._limit)
            self._whole.append(chunk)
        else:
            self._start += chunk
            yield from self._begin()

    def rest(self) -> Iterator[object]:
        if self._whole is not None:
            yield from _from_whole(b"".join(self._whole))
        elif self._lines is not None:
            yield from self._lines.rest()

    def _begin(self) -> Iterator[object]:
        start = self._start.removeprefix(_BOM).lstrip()
        if not start or _BOM.startswith(start):
            self._start = start
            return
        if start[0] in _FIELD:
            self._lines = _Lines(self._limit)
            yield from self._lines.read(start)
        else:
            self._whole, self._size = [start], len(start)


def _check(size: int, limit: int) -> None:
    if size > limit:
        raise exceeded(f"{limit:,} bytes in one event, or in one piece", "size")


def _from_whole(data: bytes) -> Iterator[object]:
    if not data.startswith((b"{", b"[")):
        words = words_of(data.decode("utf-8", "replace"))
        raise ValueError(f"it is not JSON: {words[:300]}")
    try:
        whole = _parsed(data)
    except ValueError as error:
        lines = _Lines(2 * len(data) + PIECE)
        pieces = [*lines.read(data), *lines.rest()] if b"\n" in data else []
        if not pieces:
            raise error from None
        yield from pieces
        return
    yield whole
    yield DONE


class _Lines:
    """Reads lines, as bytes: text has more kinds of line ends than the protocol, and JSON may contain them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: list[bytes] = []  # of a line that has not ended
        self._data: list[bytes] = []  # of an event that is not JSON yet
        self._size = self._data_size = 0  # of both; of the latter
        self._kind = b""  # the name of the event, if it has one

    def read(self, chunk: bytes) -> Iterator[object]:
        self._size += len(chunk) + PIECE
        _check(self._size, self._limit)
        if b"\n" not in chunk and b"\r" not in chunk:
            self._held.append(chunk)
            return
        lines = b"".join((*self._held, chunk)).splitlines(keepends=True)
        # A line that ends in CR may go on with LF.
        self._held = [] if lines[-1].endswith(b"\n") else [lines.pop()]
        for line in lines:
            yield from self._line(line.rstrip(b"\r\n"))
        self._size = sum(len(held) for held in self._held) + self._data_size

    def rest(self) -> Iterator[object]:
        yield from self._line(b"".join(self._held).rstrip(b"\r\n"))
        yield from self._event()

    def _line(self, line: bytes) -> Iterator[object]:
        if line.startswith(b"data:"):
            yield from self._add(line[5:].strip())
        elif not line:
            yield from self._event()
        elif line.startswith((b"{", b"error:")):  # an error that is not wrapped in an event
            yield from _unwrapped(line.removeprefix(b"error:").strip(), is_error=line.startswith(b"error:"))
        elif line.startswith(b"event:"):
            self._kind = line[6:].strip().lower()

    def _add(self, data: bytes) -> Iterator[object]:
        """Take one line of data, which is nearly always a whole event, even if no empty line follows."""
        if not data:
            return
        if not self._data:
            if data.startswith(b"[DONE]"):
                yield DONE
                return
            try:
                piece = _parsed(data)
            except ValueError:
                self._add_text(data)
                return
            if piece is not None:  # null is a sign of life
                yield piece
        else:
            self._add_text(data)

    def _add_text(self, data: bytes) -> None:
        self._data.append(data)
        self._data_size += len(data) + PIECE

    def _event(self) -> Iterator[object]:
        """End an event whose lines were not JSON one by one."""
        data, self._data, self._data_size = self._data, [], 0
        kind, self._kind = self._kind, b""
        if not data or kind in _SIGNS_OF_LIFE:
            return
        try:
            yield _parsed(b"\n".join(data))
        except ValueError:
            if kind != b"error":
                raise
            yield {"error": b"\n".join(data).decode("utf-8", "replace")}


def _unwrapped(data: bytes, *, is_error: bool) -> Iterator[object]:
    try:
        piece = _parsed(data)
    except ValueError:
        piece = data.decode("utf-8", "replace")
        if not is_error:
            raise
    yield {"error": piece} if is_error else piece


async def _drain(body: AsyncIterator[bytes]) -> None:
    """Read the end of the body, so that the connection can be used again, unless the server is slow to send it."""
    with contextlib.suppress(Exception):  # the answer is complete, whatever happens to the connection
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for _ in body:
                pass


def _parsed(data: bytes) -> object:
    try:
        return msgspec.json.decode(data)
    except (ValueError, RecursionError):
        # Slower, but it accepts what some servers send: halves of surrogate pairs, NaN, line ends in texts.
        try:
            return json.loads(data.decode("utf-8", "replace"), strict=False)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
