"""RemoteRun: the handle of a turn that a server runs."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from types import TracebackType
from typing import Any, Literal, Self

import msgspec

from adjourn.errors import UsageError
from adjourn.events import Cancelled, Delta, Done, Event, Failed, Interrupt, Interrupted, MessageEvent
from adjourn.messages import Usage

from ._errors import failure
from ._turn import Turn

CancelMode = Literal["now", "after_model", "after_tools", "after_step"]


class RemoteResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a turn: `output` is text, `state` a graph's state as JSON data."""

    status: Literal["done", "interrupted", "cancelled"]
    session_id: str
    checkpoint_id: str | None
    output: str = ""
    interrupts: tuple[Interrupt, ...] = ()
    usage: Usage = Usage()
    state: Mapping[str, Any] | None = None  # Any: JSON data


class RemoteRun:
    """One turn of a session on a server. It begins when it is first awaited or iterated, where errors are raised.

    Lost connections are made again, and every durable event comes once. Whoever stops reading stops nothing: `cancel`
    does. It is read once; whoever comes back to it reads on.
    """

    def __init__(
        self,
        turn: Turn,
        *,
        cancel: Callable[[CancelMode], Awaitable[object]],
        checkpoint: Callable[[], Awaitable[str | None]],
        is_attached: bool = False,
    ) -> None:
        self.session_id: str = turn.session_id
        self.is_attached = is_attached
        self._turn = turn
        self._cancel = cancel
        self._checkpoint = checkpoint
        self._reading: AsyncGenerator[Event] | None = None
        self._was_asked_for = False
        self._result: RemoteResult | None = None

    def __repr__(self) -> str:
        state = "ended" if self._turn.is_over else "begun" if self._turn.was_sent else "not begun"
        return f"<RemoteRun of session {self.session_id}, {state}>"

    def __del__(self) -> None:
        if not getattr(self, "_was_asked_for", True):
            warnings.warn(
                f"The run of session '{self.session_id}' was never awaited or iterated, so nothing was sent.",
                RuntimeWarning,
                stacklevel=1,
                source=self,
            )

    @property
    def seen(self) -> int:
        """The number of the last durable event that was read: what `attach(after=...)` goes on from."""
        return self._turn.seen or 0

    async def __aiter__(self) -> AsyncGenerator[Event]:
        async with contextlib.aclosing(self._events()) as events:
            async for event in events:
                yield event
        if isinstance(failed := self._turn.final, Failed):
            raise failure(self.session_id, failed)

    async def _events(self) -> AsyncGenerator[Event]:
        self._was_asked_for = True
        if self._reading is not None:
            # Somebody has left a loop, which ends only when Python gets to it.
            try:
                await self._reading.aclose()
            except RuntimeError as error:
                what = f"The run of session '{self.session_id}' is being read already"
                raise UsageError(f"{what}; attach() reads it a second time.") from error
        self._reading = reading = self._turn.items()
        async with contextlib.aclosing(reading) as events:
            async for event in events:
                yield event
        self._reading = None

    async def text(self) -> AsyncGenerator[str]:
        """Yield only the text, as it arrives: pieces of messages, or whole ones of models that do not stream."""
        begun: set[str | None] = set()
        async with contextlib.aclosing(self.__aiter__()) as events:
            async for event in events:
                match event:
                    case Delta(text=text) if text:
                        begun.add(event.message_id)
                        yield text
                    case MessageEvent(message=message) if message.role == "assistant" and message.text:
                        if message.id not in begun:
                            yield message.text
                    case _:
                        pass

    def __await__(self) -> Generator[Any, None, RemoteResult]:
        return self._finish().__await__()

    async def _finish(self) -> RemoteResult:
        async with contextlib.aclosing(self.__aiter__()) as events:
            async for _ in events:
                pass
        if self._result is None:
            self._result = await self._made()
        return self._result

    async def _made(self) -> RemoteResult:
        turn = self._turn
        point = turn.checkpoint_id or await self._checkpoint()
        match turn.final:
            case Done(output=output, usage=usage, state=state):
                return RemoteResult(
                    status="done",
                    session_id=self.session_id,
                    checkpoint_id=point,
                    output=output,
                    usage=usage or Usage(),
                    state=state,
                )
            case Interrupted(interrupts=asked):
                return self._ended("interrupted", point, asked)
            case Cancelled():
                return self._ended("cancelled", point)
            case _:
                status = {"done": "done", "waiting": "interrupted"}.get(turn.status or "", "cancelled")
                return self._ended(status, point, turn.interrupts)  # pyright: ignore[reportArgumentType]

    def _ended(
        self, status: Literal["done", "interrupted", "cancelled"], point: str | None, asked: tuple[Interrupt, ...] = ()
    ) -> RemoteResult:
        return RemoteResult(status=status, session_id=self.session_id, checkpoint_id=point, interrupts=asked)

    async def __aenter__(self) -> Self:
        self._was_asked_for = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass  # Every connection is closed with the loop that reads it.

    async def cancel(self, mode: CancelMode = "now") -> None:
        """Stop the turn on the server, and return when it has ended, unless somebody else is reading it."""
        self._was_asked_for = True
        if self._turn.is_over or not (self._turn.was_sent or self.is_attached):
            return
        await self._cancel(mode)
        with contextlib.suppress(UsageError):  # Somebody else reads it to its end.
            async with contextlib.aclosing(self._events()) as events:
                async for _ in events:
                    pass
