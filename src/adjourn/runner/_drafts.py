"""Drafts: what the models and tools of a run are writing, for whoever begins to read in the middle."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from adjourn.events import FINAL, Delta, Event, MessageEvent, Retrying, ToolCallPiece, ToolResult


class Draft(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    repr_omit_defaults=True,
    tag_field="type",
    tag="draft",
):
    """What has been written so far of a message, or with `call_id` of a tool's output; later pieces add to it.

    Whoever has read a part of it before replaces that part.
    """

    agent: str = ""
    path: tuple[str, ...] = ()
    address: str = ""
    message_id: str | None = None
    call_id: str | None = None
    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCallPiece, ...] = ()


def _name(written: Delta | Draft) -> str | None:
    """Return what tells a text from the others of its run: the id of a message, or the address of a tool's call.

    The ids of calls come from models: agents side by side may use the same one.
    """
    return written.message_id if written.call_id is None else written.address


class _Writing:
    """One message, or one tool's output, as far as it is written."""

    def __init__(self, piece: Delta) -> None:
        self.address = piece.address
        self._first = piece
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, tuple[ToolCallPiece, list[str]]] = {}

    def add(self, piece: Delta) -> None:
        if piece.text:
            self._text.append(piece.text)
        if piece.reasoning:
            self._reasoning.append(piece.reasoning)
        if (call := piece.tool_call) is not None:
            _, arguments = self._calls.get(call.index, (call, []))
            arguments.append(call.arguments)
            self._calls[call.index] = call, arguments  # The latest piece has the id and the name as far as they go.

    def draft(self) -> Draft:
        first = self._first
        return Draft(
            agent=first.agent,
            path=first.path,
            address=first.address,
            message_id=first.message_id,
            call_id=first.call_id,
            text="".join(self._text),
            reasoning="".join(self._reasoning),
            tool_calls=tuple(
                replace(call, arguments="".join(arguments)) for _, (call, arguments) in sorted(self._calls.items())
            ),
        )


class Drafts:
    """What is being written in one run."""

    def __init__(self) -> None:
        self._written: dict[str, _Writing] = {}

    def note(self, event: Event) -> None:
        """Add a piece; forget what is whole by now, or void."""
        match event:
            case Delta():
                name = _name(event)
                if name is not None:
                    if name not in self._written:
                        self._written[name] = _Writing(event)
                    self._written[name].add(event)
            case MessageEvent(message=message):
                self._written.pop(message.id or "", None)
            case ToolResult(address=address):
                self._written.pop(address, None)
            case Retrying(address=address):
                self._written = {name: each for name, each in self._written.items() if each.address != address}
            case _ if isinstance(event, FINAL):
                self._written.clear()
            case _:
                pass

    def now(self) -> list[Draft]:
        """Return everything that is being written, as far as it is."""
        return [each.draft() for each in self._written.values()]
