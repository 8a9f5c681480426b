"""Drafts: texts that are being written. A server sends what there is of them to clients that come in the middle."""

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

    A client that has a part of it replaces that part.
    """

    agent: str = ""
    path: tuple[str, ...] = ()
    address: str = ""
    message_id: str | None = None
    call_id: str | None = None
    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCallPiece, ...] = ()


def text_name(of: Delta | Draft) -> str | None:
    """Return what distinguishes a text within its run: the id of a message, or the address of a tool's call.

    The ids of calls come from models: agents side by side may use the same one.
    """
    return of.message_id if of.call_id is None else of.address


class Text:
    """One message, or one tool's output, as far as its pieces have come."""

    def __init__(self, first: Delta | Draft) -> None:
        self.address: str = first.address
        self.is_message: bool = first.call_id is None
        self._first = first
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, tuple[ToolCallPiece, list[str]]] = {}

    def add(self, piece: Delta) -> None:
        """Add a piece."""
        if piece.text:
            self._text.append(piece.text)
        if piece.reasoning:
            self._reasoning.append(piece.reasoning)
        if (call := piece.tool_call) is not None:
            _, arguments = self._calls.get(call.index, (call, []))
            arguments.append(call.arguments)
            self._calls[call.index] = call, arguments  # The latest piece has the id and the name as far as they go.

    def draft(self) -> Draft:
        """Return what there is of it."""
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
    """What is being written in one run: it listens to the run's events."""

    def __init__(self) -> None:
        self._written: dict[str, Text] = {}

    def note(self, event: Event) -> None:
        """Add a piece; forget what is whole by now, or void."""
        match event:
            case Delta():
                name = text_name(event)
                if name is not None:
                    if name not in self._written:
                        self._written[name] = Text(event)
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


def drafts_of(listener: object) -> list[Draft]:
    """Return what is being written in the run that is heard by a listener, if it keeps drafts."""
    return listener.now() if isinstance(listener, Drafts) else []
