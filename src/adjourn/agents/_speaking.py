"""What the code of a custom agent yields: messages, and the pieces that readers see before a message is whole."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

from msgspec.structs import replace

from adjourn._calls.caller import program_options
from adjourn._calls.model import ONE_CALL
from adjourn._engine.entry import Entry
from adjourn.errors import UsageError
from adjourn.events import Delta, MessageEvent, Retrying
from adjourn.messages import Message, ReasoningPart
from adjourn.models import Chunk, Gathering, close_stream

from ._frame import AgentFrame


class Speaking:
    """One run of a custom agent's code, as its readers hear it.

    Pieces are live: they are not stored, and come again when the code runs again, unless their message is on record.
    """

    def __init__(self, frame: AgentFrame, entry: Entry) -> None:
        self._frame = frame
        self._entry = entry
        self._pieces: list[Delta] = []
        self._is_shown = False
        self._message_id: str = ""

    async def say(self, said: object) -> None:
        """Record a message, show a piece of one, or do both with a stream.

        Raises:
            UsageError: it is something else.
        """
        match said:
            case MessageEvent():
                self._record(said.message)
            case Delta():
                await self._show(said)
            case AsyncIterator():
                await self._stream(cast("AsyncIterator[Any]", said))
            case _:
                raise UsageError(
                    f"Agent '{self._frame.agent.name}' yielded {said!r}. Yield MessageEvent(message=...), the pieces "
                    "of one before it as Delta(text=...), or a stream of them; for anything else, use ctx.emit, "
                    "ctx.exit, ctx.break_loop and ctx.transfer_to."
                )

    def check_whole(self) -> None:
        """Raise if the code has ended with pieces of a message that it never yielded."""
        if self._pieces:
            raise UsageError(
                f"Agent '{self._frame.agent.name}' yielded pieces, and no message after them. Yield the whole message "
                "as MessageEvent(message=...), too, or yield a stream of the pieces, which makes one."
            )

    def discard(self, why: str) -> None:
        """Make readers drop the pieces of a message that does not come, or comes differently."""
        if self._is_shown:
            self._is_shown = False
            frame = self._frame
            frame.emit_live(Retrying(address=frame.address, attempt=1, max_attempts=1, delay=0.0, error=why))

    def _record(self, message: Message) -> None:
        frame, pieces, self._pieces = self._frame, self._pieces, []
        if not self._entry.emits_next():
            return
        if _shown(message) != ("".join([piece.text for piece in pieces]), "".join([p.reasoning for p in pieces])):
            self.discard("the message differs from its pieces")
        self._is_shown = False
        said = frame.transcript.identified(frame.transcript.as_new(message))
        frame.transcript.extend([frame.entry(said)])
        frame.emit(MessageEvent(address=frame.address, message=said))
        frame.scope.log.soon()

    async def _show(self, piece: Delta) -> None:
        frame = self._frame
        self._pieces.append(piece)
        if not self._entry.is_repeating and frame.scope.has_reader and program_options(frame.scope).streaming:
            if not self._is_shown:
                await frame.scope.log.reported()  # The message before it comes first.
                self._message_id = frame.answer_id()
            self._is_shown = True
            frame.emit_live(replace(piece, address=frame.address, message_id=self._message_id))

    async def _stream(self, chunks: AsyncIterator[Any]) -> None:
        gathering = Gathering()
        try:
            if self._entry.is_repeating:
                self._entry.emits_next()
                return  # Its message is on record, and a model is not asked again for it.
            async for each in chunks:
                chunk = self._chunk(each)
                gathering.add(chunk)
                if chunk.text or chunk.reasoning:
                    await self._show(Delta(text=chunk.text, reasoning=chunk.reasoning))
        finally:
            await close_stream(chunks)
        message = gathering.message()
        if (usage := message.usage) is not None:
            self._frame.scope.usage += usage if usage.calls else usage + ONE_CALL
        self._record(message)

    def _chunk(self, given: object) -> Chunk:
        if isinstance(given, Chunk):
            return given
        if isinstance(given, str):
            return Chunk(text=given)
        raise UsageError(
            f"A stream that agent '{self._frame.agent.name}' yielded has {given!r} in it. It takes the chunks of a "
            "model, or texts."
        )


def _shown(message: Message) -> tuple[str, str]:
    """Return the text and the reasoning of a message, as its pieces add up to them."""
    return message.text, "".join([part.text for part in message.parts if isinstance(part, ReasoningPart)])
