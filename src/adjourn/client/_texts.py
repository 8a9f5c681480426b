"""Texts that are being written: pieces that add up to the same, whichever connections they came by.

A server that a client comes back to sends each such text as a whole, as far as it is written. What of it was missed is
passed on as one more piece; if what was read before is void by then, a `Retrying` says so first. A server cannot do
that for its clients: one that takes up after another does not know what that one had sent.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from adjourn._drafts import Draft, Text, text_name
from adjourn.events import Delta, Event, MessageEvent, Retrying, ToolCallPiece, ToolResult

_AGAIN = "the connection was lost, and what was being written begins anew"


class _Begun(Text):
    """A text as far as it was passed on; it is doubtful once its connection was lost."""

    is_doubtful: bool = False

    def missing(self, draft: Draft) -> list[Delta] | None:
        """Return the pieces between what was passed on and a draft; None if the draft does not continue it."""
        begun = self.draft()
        known = {call.index: call.arguments for call in begun.tool_calls}
        calls = {call.index: call for call in draft.tool_calls}
        if not (
            draft.text.startswith(begun.text)
            and draft.reasoning.startswith(begun.reasoning)
            and all(index in calls and calls[index].arguments.startswith(had) for index, had in known.items() if had)
        ):
            return None
        text, reasoning = draft.text[len(begun.text) :], draft.reasoning[len(begun.reasoning) :]
        pieces = [_piece(draft, text=text, reasoning=reasoning)] if text or reasoning else []
        for index, call in calls.items():
            rest = call.arguments[len(known.get(index, "")) :]
            if index not in known or rest:
                pieces.append(_piece(draft, tool_call=replace(call, arguments=rest)))
        return pieces


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


class Texts:
    """The texts that are being written in a run."""

    def __init__(self) -> None:
        self._begun: dict[str, _Begun] = {}

    def connection_lost(self) -> None:
        """Note that whatever is being written may have been thrown away by the time the client is back."""
        for text in self._begun.values():
            text.is_doubtful = True

    def passed(self, event: Event) -> Iterator[Event]:
        """Yield an event, after what it makes void."""
        match event:
            case Delta():
                name = text_name(event)
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
                self._begun = {name: text for name, text in self._begun.items() if text.address != address}
            case _:
                pass
        yield event

    def drafted(self, draft: Draft) -> Iterator[Event]:
        """Yield what is missing up to a draft."""
        name = text_name(draft)
        if name is None:
            return
        yield from self._void(draft, except_=name)
        text = self._text(name, draft)
        missing = text.missing(draft)
        if missing is None:
            yield _begins_anew(draft)
            text = self._begun[name] = _Begun(draft)
            missing = text.missing(draft) or []
        text.is_doubtful = False
        for piece in missing:
            text.add(piece)
            yield piece

    def _text(self, name: str, of: Delta | Draft) -> _Begun:
        return self._begun.get(name) or self._begun.setdefault(name, _Begun(of))

    def _void(self, by: Delta | Draft | MessageEvent, *, except_: str | None) -> Iterator[Event]:
        """Yield that a message that was being written ends there, if another one takes its place."""
        for name, text in list(self._begun.items()):
            if text.is_doubtful and text.is_message and text.address == by.address and name != except_:
                del self._begun[name]
                yield _begins_anew(by)


def _completed(begun: Text, event: MessageEvent) -> Iterator[Event]:
    """Yield what is missing of a message whose last pieces did not come in."""
    said, text = event.message, begun.draft().text
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
