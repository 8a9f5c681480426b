"""Texts that are being written: pieces that add up to the same, whichever connections they came by.

A server that a client comes back to sends each such text as a whole, as far as it is written. What of it was missed is
passed on as one more piece; if what was read before is void by then, a `Retrying` says so first.
"""

from __future__ import annotations

from collections.abc import Iterator

from adjourn.events import Delta, Event, MessageEvent, Retrying, ToolCallPiece, ToolResult

from ._wire import Draft

_AGAIN = "the connection was lost, and what was being written begins anew"


class _Text:
    """One message, or one tool's output, as far as its pieces were passed on."""

    def __init__(self, address: str, call_id: str | None) -> None:
        self.address = address
        self.is_message = call_id is None
        self.is_doubtful: bool = False
        self._texts: list[str] = []
        self._reasoning: list[str] = []
        self._arguments: dict[int, list[str]] = {}

    def add(self, piece: Delta) -> None:
        if piece.text:
            self._texts.append(piece.text)
        if piece.reasoning:
            self._reasoning.append(piece.reasoning)
        if (call := piece.tool_call) is not None:
            self._arguments.setdefault(call.index, []).append(call.arguments)

    @property
    def text(self) -> str:
        return "".join(self._texts)

    @property
    def reasoning(self) -> str:
        return "".join(self._reasoning)

    @property
    def arguments(self) -> dict[int, str]:
        return {index: "".join(pieces) for index, pieces in self._arguments.items()}

    def is_begun_by(self, draft: Draft) -> bool:
        """Return whether a text goes on from here."""
        calls = {call.index: call.arguments for call in draft.tool_calls}
        return (
            draft.text.startswith(self.text)
            and draft.reasoning.startswith(self.reasoning)
            and all(calls.get(index, "").startswith(begun) for index, begun in self.arguments.items())
        )

    def missing(self, draft: Draft) -> Iterator[Delta]:
        """Yield the pieces between what was passed on and a draft."""
        text, reasoning = draft.text[len(self.text) :], draft.reasoning[len(self.reasoning) :]
        if text or reasoning:
            yield _piece(draft, text=text, reasoning=reasoning)
        arguments = self.arguments
        for call in draft.tool_calls:
            begun = arguments.get(call.index)
            rest = call.arguments[len(begun or "") :]
            if begun is None or rest:
                piece = ToolCallPiece(index=call.index, id=call.id, name=call.name, arguments=rest)
                yield _piece(draft, tool_call=piece)


def _piece(draft: Draft, *, text: str = "", reasoning: str = "", tool_call: ToolCallPiece | None = None) -> Delta:
    return Delta(
        agent=draft.agent,
        path=draft.path,
        address=draft.address,
        text=text,
        reasoning=reasoning,
        tool_call=tool_call,
        message_id=draft.message_id,
        call_id=draft.call_id,
    )


def _name(of: Delta | Draft) -> str | None:
    """Return what tells a text from the others of its run; agents side by side may use the same ids of calls."""
    return of.message_id if of.call_id is None else of.address


class Texts:
    """The texts that are being written in a run."""

    def __init__(self) -> None:
        self._begun: dict[str, _Text] = {}

    def connection_lost(self) -> None:
        """Note that whatever is being written may have been thrown away by the time somebody is back."""
        for text in self._begun.values():
            text.is_doubtful = True

    def passed(self, event: Event) -> Iterator[Event]:
        """Yield an event, after what it makes void."""
        match event:
            case Delta():
                name = _name(event)
                if name is not None:
                    yield from self._void(event, except_=name)
                    self._text(name, event).add(event)
            case MessageEvent(message=message):
                yield from self._void(event, except_=message.id)
                if (begun := self._begun.pop(message.id or "", None)) is not None:
                    yield from _completed(begun, event)
            case ToolResult(address=address):
                self._begun.pop(address, None)
            case Retrying(address=address):
                self._drop(address)
            case _:
                pass
        yield event

    def drafted(self, draft: Draft) -> Iterator[Event]:
        """Yield what is missing up to a draft."""
        name = _name(draft)
        if name is None:
            return
        yield from self._void(draft, except_=name)
        text = self._text(name, draft)
        if not text.is_begun_by(draft):
            yield _begins_anew(draft)
            del self._begun[name]
            text = self._text(name, draft)
        text.is_doubtful = False
        for piece in list(text.missing(draft)):
            text.add(piece)
            yield piece

    def _text(self, name: str, of: Delta | Draft) -> _Text:
        return self._begun.setdefault(name, _Text(of.address, of.call_id))

    def _void(self, by: Delta | Draft | MessageEvent, *, except_: str | None) -> Iterator[Event]:
        """Yield that a message that was being written will not go on, if another one takes its place."""
        for name, text in list(self._begun.items()):
            if text.is_doubtful and text.is_message and text.address == by.address and name != except_:
                del self._begun[name]
                yield _begins_anew(by)

    def _drop(self, address: str) -> None:
        self._begun = {name: text for name, text in self._begun.items() if text.address != address}


def _completed(begun: _Text, event: MessageEvent) -> Iterator[Event]:
    """Yield what is missing of a message whose last pieces did not come in."""
    said, text = event.message, begun.text
    if said.role != "assistant" or text == said.text:
        return
    if not said.text.startswith(text):
        yield _begins_anew(event)
        text = ""
    yield Delta(
        agent=event.agent,
        path=event.path,
        address=event.address,
        text=said.text[len(text) :],
        message_id=said.id,
    )


def _begins_anew(by: Delta | Draft | MessageEvent) -> Retrying:
    return Retrying(
        agent=by.agent, path=by.path, address=by.address, attempt=1, max_attempts=1, delay=0.0, error=_AGAIN
    )
