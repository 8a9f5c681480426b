"""Places in a stream: what a client has read, down to the piece, so that it can come back with no logic of its own.

A place is the id of a frame. `7` is the number of the last durable event; clients that send that much get a `Draft` of
every text that is being written. `7~` also says which texts the client has begun to read: none in `7~`, and in
`7~~1f2e,9a8b,t:12:c0ff` one of which it has 12 characters. Such a client gets the pieces that it lacks. Any server that
it comes back to can tell which: the place says all that one has to know of a client.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Self
from zlib import crc32

from msgspec.structs import replace

from adjourn.events import FINAL, Delta, Event, MessageEvent, Retrying, ToolCallPiece, ToolResult

from ._agui_data import reasoning_of
from ._drafts import Draft, text_name

MOST = 64
"""How many texts a place names. A client that loses more of them at once reads them from their beginning."""

_BEGUN = r"[0-9a-f]{1,8},[0-9a-f]{1,8}(,[tr0-9]{1,9}:[0-9]{1,12}:[0-9a-f]{1,8})*"
PLACE = rf"[0-9]{{1,18}}(~\*?(~{_BEGUN})*)?"
"""What a place looks like."""

_AGAIN = "the connection was lost, and what was being written begins anew"


class _Begun:
    """What a client has of a text: of its text (t), its reasoning (r) and its calls, by index, each a length and a sum.

    The sum tells whether a text continues that: a model that is asked again writes another one under the same id. A
    text is doubtful until it is known to be written still: while its client was away, it may have been thrown away.
    """

    def __init__(self, name: int, address: int) -> None:
        self.name: int = name
        self.address: int = address
        self.is_doubtful: bool = False
        self.parts: dict[str, tuple[int, int]] = {}

    def __str__(self) -> str:
        parts = [f",{part}:{size}:{known:x}" for part, (size, known) in self.parts.items()]
        return f"{self.name:x},{self.address:x}{''.join(parts)}"

    def add(self, piece: Delta) -> None:
        if piece.text:
            self._extend("t", piece.text)
        if piece.reasoning:
            self._extend("r", piece.reasoning)
        if piece.tool_call is not None:
            self._extend(str(piece.tool_call.index), piece.tool_call.arguments)

    def _extend(self, part: str, by: str) -> None:
        size, known = self.parts.get(part, (0, 0))
        self.parts[part] = size + len(by), _sum(by, known)

    def rest(self, part: str, whole: str) -> str | None:
        """Return what the client lacks of a part; None if the whole does not continue what it has."""
        size, known = self.parts.get(part, (0, 0))
        return whole[size:] if _sum(whole[:size]) == known and size <= len(whole) else None


def _sum(text: str, before: int = 0) -> int:
    return crc32(text.encode("utf-8", "replace"), before)


class Place:
    """What a client has read. It follows what the client is sent, and says what that must be."""

    def __init__(self, seq: int, texts: dict[int, _Begun], *, is_vague: bool) -> None:
        self.seq: int = seq
        self._texts = texts
        self._is_vague = is_vague
        """Whether the client may have begun texts that its place did not name."""

    @classmethod
    def read(cls, text: str) -> Self | None:
        """Return a place; None if it says nothing of texts."""
        seq, *said = text.split("~")
        if not said:
            return None
        mark, *named = said
        if len(named) > MOST:
            mark, named = "*", []
        texts: dict[int, _Begun] = {}
        for each in named:
            name, address, *parts = each.split(",")
            begun = texts[int(name, 16)] = _Begun(int(name, 16), int(address, 16))
            begun.is_doubtful = True
            for part, size, known in (part.split(":") for part in parts):
                begun.parts[part] = int(size), int(known, 16)
        return cls(int(seq), texts, is_vague=mark == "*")

    def __str__(self) -> str:
        if len(self._texts) > MOST:
            return f"{self.seq}~*"
        return "~".join([str(self.seq), "*" if self._is_vague else "", *map(str, self._texts.values())])

    def passed(self, event: Event) -> Iterator[Event]:
        """Yield an event, after what it makes void and what the client lacks of the text that it ends."""
        match event:
            case Delta():
                if (name := text_name(event)) is not None:
                    yield from self._void(name, event)
                    self._begun(name, event.address).add(event)
            case MessageEvent(message=said):
                name = said.id or ""
                begun = self._texts.get(_sum(name))
                if begun is None:
                    yield from self._void(name, event)
                if said.role == "assistant" and (begun is not None or self._is_vague):
                    # The pieces of reasoning need not add up to that of the message, which only fills a gap.
                    gap = reasoning_of(said) if begun is None or begun.is_doubtful else ""
                    whole = _piece(event, message_id=said.id, text=said.text, reasoning=gap)
                    yield from self._up_to(name, whole, must="t")
                self._texts.pop(_sum(name), None)
            case ToolResult(address=address):
                if (begun := self._texts.get(_sum(address))) is not None:
                    # Middleware may have made another result of the pieces, so a difference alone says nothing.
                    whole = _piece(event, call_id=event.call_id, text=event.full or event.result)
                    yield from self._up_to(address, whole, must="t" if begun.is_doubtful else "")
                    self._texts.pop(_sum(address), None)
            case Retrying():
                self._drop(event)
            case _ if isinstance(event, FINAL):
                self._texts.clear()
                self._is_vague = False
            case _:
                pass
        self.seq = event.seq or self.seq
        yield event

    def caught_up(self, drafts: list[Draft]) -> Iterator[Event]:
        """Yield what the client lacks of the texts that are being written."""
        written = {_sum(text_name(draft) or "") for draft in drafts}
        for name, begun in self._texts.items():
            begun.is_doubtful = name not in written
        for draft in drafts:
            name = text_name(draft) or ""
            yield from self._void(name, draft)
            known = self._texts.get(_sum(name))
            whole = _piece(draft, message_id=draft.message_id, call_id=draft.call_id, text=draft.text)
            whole = replace(whole, reasoning=draft.reasoning)
            yield from self._up_to(name, whole, draft.tool_calls, must=() if known is None else tuple(known.parts))

    def _begun(self, name: str, address: str) -> _Begun:
        key = _sum(name)
        if key not in self._texts:
            self._texts[key] = _Begun(key, _sum(address))
        return self._texts[key]

    def _void(self, name: str, by: Delta | Draft | MessageEvent) -> Iterator[Event]:
        """Yield that a doubtful text ends there, if another one is written in its place, perhaps under its name."""
        known, place = self._texts.get(_sum(name)), _sum(by.address)
        if (known is None or known.is_doubtful) and any(
            begun.is_doubtful and begun.address == place for begun in self._texts.values()
        ):
            yield self._drop(by)

    def _drop(self, by: Event | Draft) -> Retrying:
        """Forget what the client has from an address, as it does when it gets the event that is returned."""
        place = _sum(by.address)
        self._texts = {name: begun for name, begun in self._texts.items() if begun.address != place}
        return Retrying(
            agent=by.agent, path=by.path, address=by.address, attempt=1, max_attempts=1, delay=0.0, error=_AGAIN
        )

    def _up_to(
        self, name: str, whole: Delta, calls: Sequence[ToolCallPiece] = (), *, must: Collection[str]
    ) -> Iterator[Event]:
        """Yield what the client lacks of a text, which begins anew if it does not continue some parts of it."""
        written = {"t": whole.text, "r": whole.reasoning, **{str(call.index): call.arguments for call in calls}}
        begun = self._texts.get(_sum(name))
        if self._is_vague if begun is None else any(begun.rest(part, written.get(part, "")) is None for part in must):
            yield self._drop(whole)
        begun = self._begun(name, whole.address)
        text, reasoning = begun.rest("t", whole.text) or "", begun.rest("r", whole.reasoning) or ""
        pieces = [replace(whole, text=text, reasoning=reasoning)] if text or reasoning else []
        for call in calls:
            rest = begun.rest(str(call.index), call.arguments) or ""
            if rest or str(call.index) not in begun.parts:
                pieces.append(replace(whole, text="", reasoning="", tool_call=replace(call, arguments=rest)))
        for piece in pieces:
            begun.add(piece)
            yield piece


def _piece(of: Event | Draft, **fields: Any) -> Delta:
    return Delta(agent=of.agent, path=of.path, address=of.address, **fields)
