"""Addresses: the path of segments from the root of a run to one place in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
    where it would stand without them, so adding one does not move any question. `~in:` holds several segments.
    """
    if "~" not in path:
        return path
    segments: list[str] = []
    for segment in path.split(";"):
        if segment == CALL:
            while segments and segments[-1].startswith(WRAPPERS):
                segments.pop()
        elif segment.startswith(_WITHIN):
            segments += unquote(segment.removeprefix(_WITHIN)).split(";")
        elif not segment.startswith("~"):
            segments.append(segment)
    return ";".join(segments)


def within(extra: str, segment: str) -> str:
    """Return one path segment for a frame below segments that code has added to its own address."""
    return f"{_WITHIN}{escape(f'{extra};{segment}'.removeprefix(';'))}" if extra else segment


_WITHIN = "~in:"
CALL = "~call"
WRAPPERS = ("wrap:", "middleware:")


def is_under(place: str, above: str) -> bool:
    """Return whether `place` is `above` or below it, both in string form, at segment boundaries."""
    return place == above or place.startswith(above + ";")
