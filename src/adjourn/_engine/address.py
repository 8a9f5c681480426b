"""Addresses: the path of segments from the root of a run to one place in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from urllib.parse import unquote

import msgspec

_ESCAPES = str.maketrans({"%": "%25", ";": "%3B", ":": "%3A", "#": "%23"})


def escape(text: str) -> str:
    """Return a text with `% ; : #` escaped, so that these can separate it from others."""
    # Most texts are names and digests, and checking for that is much faster than translating.
    return text if text.isidentifier() or text.isalnum() else text.translate(_ESCAPES)


class Segment(msgspec.Struct, frozen=True):
    """One step of an address, written `type:id` or `type:id:sub_id`."""

    type: str
    id: str
    sub_id: str | None = None

    def __str__(self) -> str:
        return segment_text(self.type, self.id, self.sub_id)


@lru_cache(maxsize=1024)
def segment_text(type_: str, id_: str, sub_id: str | None = None) -> str:
    """Return a segment in string form, with `% ; : #` escaped in its parts."""
    text = f"{escape(type_)}:{escape(id_)}"
    return text if sub_id is None else f"{text}:{escape(sub_id)}"


def parse_segment(text: str) -> Segment:
    """Return the segment that `text` stands for."""
    parts = [unquote(part) for part in text.split(":")]
    if not 2 <= len(parts) <= 3:
        raise ValueError(f"{text!r} is not an address segment: write 'type:id' or 'type:id:sub_id'")
    return Segment(*parts)


@lru_cache(maxsize=1024)
def agents_in(address: str) -> tuple[str, ...]:
    """Return the names of the agents on the way to a place, outermost first."""
    if "agent:" not in address:
        return ()
    segments = map(parse_segment, address.partition("#")[0].split(";"))
    return tuple(segment.id for segment in segments if segment.type == "agent")


@lru_cache(maxsize=1024)
def innermost_agent(address: str) -> str:
    """Return the name of the last agent on the way to a place; empty if there is none."""
    for segment in reversed(address.split(";")):
        if segment.startswith("agent:"):
            return unquote(segment.split(":")[1])
    return ""


class Address(tuple[Segment, ...]):
    """A place in a run: the same in every process. `str()` gives its string form, `Address.parse` reads it."""

    __slots__ = ()

    def __new__(cls, segments: Iterable[Segment] = ()) -> Address:
        return super().__new__(cls, segments)

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read the string form; a question's `#n` is not part of an address."""
        return cls(parse_segment(part) for part in text.split(";")) if text else cls()

    def __str__(self) -> str:
        return ";".join(map(str, self))

    def __repr__(self) -> str:
        return f"Address({str(self)!r})"

    def child(self, type_: str, id_: str, sub_id: str | None = None) -> Address:
        """Return the place one segment below this one."""
        return Address((*self, Segment(type_, id_, sub_id)))

    def is_under(self, other: Address) -> bool:
        """Return whether this place is `other`, or below it."""
        return self[: len(other)] == tuple(other)

    def agents(self) -> Address:
        """Return the address as shown to people: only agents and tools."""
        return Address(self._of_type("agent", "tool"))

    def _of_type(self, *types: str) -> Iterator[Segment]:
        return (segment for segment in self if segment.type in types)


def address_of(path: str) -> str:
    """Return the address that people see for a frame's path.

    Segments that begin with `~` are internal. `~call` is the call that a wrapper or middleware wraps: it stands
    where it would stand without them, so adding one does not move any question. `~run:` is a child run: what people
    see of it comes after what it is known by.
    """
    return path if "~" not in path else _visible(path, _shown)


def address_below(above: str, segment: str) -> str:
    """Return the address of a frame, by that of its parent: as `address_of`, without reading the whole path."""
    if "~" not in segment:
        return f"{above};{segment}"
    is_seen = segment == CALL or not segment.startswith("~") or segment.startswith(_RUN)
    return _visible(f"{above};{segment}", _shown) if is_seen else above


def identity_of(path: str) -> str:
    """Return what is the same about a place in every attempt: a child run is known by its input, not by its number."""
    return path if "~" not in path else _visible(path, _known_by)


def _visible(path: str, run: Callable[[str], str]) -> str:
    segments: list[str] = []
    for segment in path.split(";"):
        if segment == CALL:
            while segments and segments[-1].startswith(WRAPPERS):
                segments.pop()
        elif segment.startswith(_RUN):
            segments += run(segment).split(";")
        elif not segment.startswith("~"):
            segments.append(segment)
    return ";".join(segments)


def _known_by(segment: str) -> str:
    return segment.removeprefix(_RUN).partition(":")[0]


def _shown(segment: str) -> str:
    return unquote(segment.removeprefix(_RUN).partition(":")[2])


def run_name(segment: str) -> str | None:
    """Return the program that a child run's path segment names, as `type:id`; None if it is not a child run."""
    if not segment.startswith(_RUN):
        return None
    return ":".join(_shown(segment).rpartition(";")[2].split(":")[:2])


class RunSegments:
    """The path segments of a frame's child runs.

    A child run is known by a digest of what is run with which input, so that code which comes to its children in
    another order finds each of them again. People see it by its key, or by a number in the order of first runs.
    """

    def __init__(self, segments: Iterable[str]) -> None:
        self._by_digest: dict[str, str] = {}
        self._by_shown: dict[str, str] = {}
        self._numbers: dict[str, int] = {}
        self.called: set[str] = set()
        """Those that were new in the present run of the frame's code, unless they have failed."""
        for segment in segments:
            if segment.startswith(_RUN):
                self._add(_known_by(segment), _shown(segment), segment)

    def _add(self, digest: str, shown: str, segment: str) -> None:
        self._by_digest[digest] = self._by_shown[shown] = segment

    def find(self, digest: str) -> str | None:
        """Return the segment of a child run that was there before."""
        return self._by_digest.get(digest)

    def shown_as(self, shown: str) -> str | None:
        """Return the segment of the child run that people see by this name."""
        return self._by_shown.get(shown)

    def numbered(self, shown: str) -> str:
        """Return the name by which people see one more run of a program."""
        number = self._numbers.get(shown, 0) + 1
        while (name := shown if number == 1 else f"{shown}:{number}") in self._by_shown:
            number += 1
        self._numbers[shown] = number
        return name

    def add(self, digest: str, shown: str) -> str:
        """Return the segment of a new child run."""
        segment = f"{_RUN}{digest}:{escape(shown)}"
        self._add(digest, shown, segment)
        self.called.add(segment)
        return segment


_RUN = "~run:"
CALL = "~call"
AROUND = "~around"
"""The segment of hooks around the code of a frame, which the code itself does not run."""
WRAPPERS = ("wrap:", "middleware:")


def is_under(place: str, above: str) -> bool:
    """Return whether `place` is `above` or below it, both in string form, at segment boundaries."""
    return place == above or place.startswith(above + ";")
