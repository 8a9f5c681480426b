"""Tell the tool calls of one answer apart."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from adjourn._values.frozen import freeze
from adjourn.models.chunks import ToolCallChunk, parse_arguments

from ._characters import Characters

Json = Mapping[str, Any]  # Any: JSON as servers define it

# Characters of one call that are parsed while they come: pieces that all look like an end would take quadratic time.
_LOOKED = 4 * 1024 * 1024
# What servers call the arguments of a call, in the order in which they count.
_ARGUMENTS = ("arguments", "parameters", "input")


class CallPiece:
    """One entry of `tool_calls`, as the server sent it."""

    __slots__ = ("arguments", "extra", "id", "index", "name")

    def __init__(self, index: int | None, call_id: str, name: str, arguments: str, extra: Json) -> None:
        self.index = index
        self.id = call_id
        self.name = name
        self.arguments = arguments
        self.extra = extra

    def __bool__(self) -> bool:
        """Whether it says anything: some servers send an empty call beside every text."""
        return bool(self.id or self.name or self.arguments or self.extra)

    @property
    def has_arguments(self) -> bool:
        return bool(self.arguments) and not self.arguments.isspace()


def pieces_of_calls(entries: object) -> Iterator[CallPiece]:
    """Yield the pieces in the `tool_calls` of an answer.

    Raises:
        ValueError: an entry is not an object.
    """
    if isinstance(entries, str):
        try:
            entries = json.loads(entries or "[]")
        except ValueError:
            return
    found = cast("list[object]", entries) if isinstance(entries, list) else [entries]
    for entry in found:
        if entry and (piece := _piece(entry)):
            yield piece


class _Call:
    def __init__(self, place: int) -> None:
        self.place = place
        self.id = ""
        self.name = ""
        self.extra: dict[str, Any] = {}
        self._written: list[str] = []
        self._last = ""  # the end of what is not blank in them
        self._characters = Characters()
        self._held = ""
        self._looked = 0  # characters that were parsed to see whether they are a whole object

    @property
    def arguments(self) -> str:
        return self._held or "".join(self._written)

    def add(self, piece: CallPiece, provider: str) -> ToolCallChunk:
        new_id = "" if self.id else piece.id
        new_name = self._more_of_name(piece.name)
        arguments = self._more_arguments(self._characters.join(piece.arguments))
        self.id += new_id
        self.name += new_name
        extra: Json | None = None
        if piece.extra:
            self.extra |= piece.extra
            extra = dict(self.extra)
        return ToolCallChunk(
            index=self.place,
            id=new_id,
            name=new_name,
            arguments=arguments,
            provider=None if extra is None else provider,
            extra=extra,
        )

    def rest(self) -> ToolCallChunk | None:
        """Return the empty arguments that were held back, if there were no others."""
        held, self._held = self._held, ""
        if held:
            self._written.append(held)
            self._last = held.rstrip()
        return ToolCallChunk(index=self.place, arguments=held) if held else None

    def _more_of_name(self, name: str) -> str:
        """Return what is new in a name that may come whole, in pieces, or again with more characters each time."""
        if name == self.name:
            return ""
        return name if self.has_begun else name.removeprefix(self.name)

    def _more_arguments(self, arguments: str) -> str:
        # Proxies send `{}` first, where another interface has an empty object, and then the real arguments.
        if not self._written and arguments.strip() == "{}":
            self._held = arguments
            return ""
        if self._held and arguments and not arguments.isspace():
            self._held = ""
        if self._held or not arguments:
            return ""
        self._written.append(arguments)
        self._last = arguments.rstrip() or self._last
        return arguments

    @property
    def has_begun(self) -> bool:
        """Whether there are arguments already."""
        return bool(self._held or self._written)

    @property
    def is_placeholder(self) -> bool:
        """Whether the arguments so far are an empty object."""
        return bool(self._held)

    @property
    def is_complete(self) -> bool:
        """Whether the arguments so far are a whole JSON object."""
        if self._held:
            return True
        if not self._last.endswith(("}", '}"')):  # parsing all of them with every piece would take quadratic time
            return False
        if self._looked > _LOOKED:
            return False
        self._looked += len(self.arguments)
        try:
            parse_arguments(self.arguments)
        except ValueError:
            return False
        return True

    def is_repeated_by(self, piece: CallPiece) -> bool:
        """Return whether a piece says nothing that these complete arguments do not say."""
        if piece.name != self.name or (piece.id and self.id and piece.id != self.id):
            return False
        return not piece.has_arguments or (bool(piece.id) and piece.arguments == self.arguments)


class Calls:
    """Numbers the tool calls of one answer.

    Servers differ: some send index 0 for every call, some send no index, some repeat id and name with every piece, and
    some make up a new id for every piece. So a name says where a call begins, together with what came before it.
    """

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    @property
    def are_complete(self) -> bool:
        """Whether each call has arguments that can be parsed, or none."""
        return all(not call.has_begun or call.is_complete for call in self._calls)

    def streamed(self, pieces: Sequence[CallPiece]) -> tuple[ToolCallChunk, ...]:
        """Return pieces that came together, with the numbers of their calls, and ids and names only once."""
        named: set[_Call] = set()  # calls that a piece of these has named
        chunks: list[ToolCallChunk] = []
        for piece in pieces:
            call = self._call_of(piece)
            if call is None or self._begins(piece, call, is_beside=call in named):
                call = self._new(piece.index)
            elif call.has_begun and call.is_complete and call.is_repeated_by(piece) and not piece.extra:
                continue
            chunks.append(call.add(piece, self._provider))
            if call.id:
                self._by_id[call.id] = call
            if piece.name:
                named.add(call)
        return tuple(chunks)

    def whole(self, pieces: Sequence[CallPiece]) -> tuple[ToolCallChunk, ...]:
        """Return the entries of a whole answer: each is its own call, whatever its id."""
        chunks = [self._new(piece.index).add(piece, self._provider) for piece in pieces]
        return (*chunks, *filter(None, (call.rest() for call in self._calls)))

    def rest(self) -> tuple[ToolCallChunk, ...]:
        """Return what was held back, once there are no more pieces.

        The last call is left out: without arguments it has none, unless the model was stopped before it wrote them.
        """
        return tuple(filter(None, (call.rest() for call in self._calls[:-1])))

    def _new(self, index: int | None) -> _Call:
        call = _Call(len(self._calls))
        self._calls.append(call)
        if index is not None:
            self._by_index[index] = call
        return call

    def _call_of(self, piece: CallPiece) -> _Call | None:
        """Return the call that a piece would continue."""
        last = self._calls[-1] if self._calls else None
        by_id = self._by_id.get(piece.id) if piece.id else None
        if piece.index is None:
            return by_id or last
        by_index = self._by_index.get(piece.index)
        if by_index is None:
            return by_id or (None if piece.id else last) if not piece.name else None
        is_other = by_id is not None and by_index.id not in ("", piece.id)
        return by_id if is_other else by_index

    def _begins(self, piece: CallPiece, call: _Call, *, is_beside: bool) -> bool:
        """Return whether a piece begins a new call rather than continue `call`; `is_beside` if they came together."""
        if not piece.name or not call.name:
            return False
        is_same_id = bool(piece.id) and piece.id == call.id
        if is_beside and piece.index is None and not (is_same_id and piece.name == call.name):
            return True
        if not call.has_begun:
            # The rest of a name may come on its own; with an id of its own it is another call.
            return bool(piece.id and call.id) and not is_same_id
        if not call.is_complete:
            return piece.name != call.name
        if call.is_placeholder and is_same_id and piece.name == call.name:
            return False
        return not call.is_repeated_by(piece)


def _piece(entry: object) -> CallPiece:
    if not isinstance(entry, Mapping):
        raise ValueError(f"a tool call is not an object: {str(entry)[:100]}")
    call = cast("Json", entry)
    function = call.get("function")
    fields = cast("Json", function) if isinstance(function, Mapping) else call
    arguments: object = next((fields[name] for name in _ARGUMENTS if fields.get(name) not in (None, "")), "")
    # Where an empty mapping is an empty list, a call without arguments has one.
    written = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    call_id, name = _string(call.get("id")), _string(fields.get("name"))
    return CallPiece(_index(call.get("index")), call_id, name, written, _extra(call))


def _extra(call: Json) -> Json:
    if not call.get("extra_content"):
        return {}
    try:
        return freeze({"extra_content": call["extra_content"]}, "extra")
    except ValueError:  # what cannot be stored cannot be sent back, but the call itself can be made
        return {}


def _index(value: object) -> int | None:
    try:
        return None if value is None else int(cast("Any", value))
    except (TypeError, ValueError, OverflowError):
        return None


def _string(value: object) -> str:
    text = value if isinstance(value, str) else "" if value is None else str(value)
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
