"""Calling a model once, with the hooks before, around and after the call."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, cast

from adjourn._engine.child import inner, layer
from adjourn._engine.frame import here
from adjourn._engine.retry import Retry, attempted
from adjourn.context import current
from adjourn.errors import AdjournError, ModelError, StoreError, TooManyCalls, UsageError, text_of
from adjourn.events import Delta, Event, Retrying
from adjourn.messages import Message, ReasoningPart, Usage
from adjourn.middleware.hooks import Middleware, ModelState
from adjourn.models import ChatModel, Gathering, ModelRequest, close_stream, generate, stream

from .caller import Caller, Kit, program_options

ONE_CALL = Usage(calls=1)

TURN = 64
"""Yield to the event loop after this many chunks of an answer, in case the model itself never waits."""


async def hooked(hooks: Sequence[Middleware], hook: str, messages: Sequence[Message]) -> list[Message]:
    """Return the messages after these hooks, each of which runs in its own layer."""
    # Hooks after the model run innermost first.
    ordered = hooks if hook == "before_model" else tuple(reversed(hooks))
    current_messages = list(messages)
    for middleware in ordered:

        async def run(middleware: Middleware = middleware, given: list[Message] = current_messages) -> Any:
            found: Any = getattr(middleware, hook)(ModelState(messages=tuple(given)), current())
            state: Any = await found if inspect.isawaitable(found) else found
            if not isinstance(state, ModelState):
                raise UsageError(f"{middleware.name}.{hook} returned {state!r}. Return the state, changed or not.")
            if hook == "after_model" and (not state.messages or state.messages[-1].role != "assistant"):
                raise UsageError(f"{middleware.name}.{hook} returned a state that does not end in the model's answer.")
            if state.messages == tuple(given):
                return None
            same = same_start(given, state.messages)
            return [same, list(state.messages[same:])]

        changed: Any = await layer("middleware", middleware.name, run, part=f"{hook}:{middleware.name}")
        if changed is not None:
            # Only the changed part is kept: changing the newest message costs no more in a long history.
            same, rest = changed
            current_messages = [*current_messages[:same], *rest]
    return current_messages


def same_start(old: Sequence[Message], new: Sequence[Message]) -> int:
    """Return how many messages at the beginning are the same."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((place for place, (one, other) in pairs if one != other), min(len(old), len(new)))


class Asking:
    """One call of a model, with its wrappers, retries and failover models; `model` is the index of the first to ask."""

    def __init__(
        self, caller: Caller, kit: Kit, models: Sequence[ChatModel], retry: Sequence[Retry] = (), model: int = 0
    ) -> None:
        self.caller = caller
        self.kit = kit
        self.models = models
        self.retry = retry
        self.model = model
        self.streamed: Message | None = None
        self._is_shown = False

    def answer(self, request: Callable[[], Awaitable[ModelRequest]]) -> Awaitable[Message]:
        """Return the model's message.

        If hooks run after the model, the message is kept, so that a hook that asks does not repeat the call.
        """
        return self._kept(request) if self.kit.keeps_answers else self._answer(request)

    async def _kept(self, request: Callable[[], Awaitable[ModelRequest]]) -> Message:
        async def answer() -> Any:
            return [await self._answer(request), self.model]

        message, self.model = cast("tuple[Message, int]", await inner(answer))
        return message

    async def _answer(self, made: Callable[[], Awaitable[ModelRequest]]) -> Message:
        request = await made()
        message = await self._wrapped(0, request) if self.kit.wrap_model else await self._asked(request)
        if self.kit.holds_back and self._streams:
            self._show(message)
        self.check_shown(message)
        return message

    @property
    def _streams(self) -> bool:
        """Whether readers get answers piece by piece."""
        scope = self.caller.scope
        return scope.has_reader and program_options(scope).streaming and self.caller.audience.hears

    def _show(self, message: Message) -> None:
        """Give readers an answer that was held back, as one piece."""
        reasoning = "".join(part.text for part in message.parts if isinstance(part, ReasoningPart))
        if message.text or reasoning:
            self.streamed, self._is_shown = message, True
            self.caller.emit_live(Delta(address=self.caller.address, text=message.text, reasoning=reasoning))

    def check_shown(self, message: Message) -> None:
        """Make readers drop the streamed text if it differs from the final message."""
        if self._is_shown and message != self.streamed:
            self._reset("a hook changed the answer")

    async def _wrapped(self, place: int, request: ModelRequest) -> Message:
        if place == len(self.kit.wrap_model):
            return await self._asked(request)
        middleware = self.kit.wrap_model[place]

        async def call(request: ModelRequest) -> Message:
            return await inner(partial(self._wrapped, place + 1, request))

        async def run() -> Message:
            found: Any = middleware.wrap_model(call, request)
            message: Any = await found if inspect.isawaitable(found) else found
            if not isinstance(message, Message) or message.role != "assistant":
                raise UsageError(f"{middleware.name}.wrap_model returned {message!r}. Return the assistant's message.")
            return message

        return await layer("middleware", middleware.name, run, part=f"wrap_model:{middleware.name}")

    async def _asked(self, request: ModelRequest) -> Message:
        """Ask the models in order, starting with the one that answered last."""
        models = self.models
        first, count = self.model, len(models)
        for number in range(count):
            self.model = (first + number) % count
            try:
                return await self._tried(partial(self._once, models[self.model], request))
            except Exception as error:
                if number == count - 1 or isinstance(error, UsageError | StoreError):
                    raise
                self._reset(f"{type(error).__name__}: {text_of(error)}")
        raise AssertionError("there is a model")

    def _tried(self, once: Callable[[], Awaitable[Message]]) -> Awaitable[Message]:
        if not self.retry:
            return once()
        frame = here("the model").frame
        return attempted(frame, self.retry, once, self._emit_again)

    def _emit_again(self, event: Event) -> None:
        self.streamed, self._is_shown = None, False
        self.caller.emit_live(event)

    def _reset(self, why: str) -> None:
        """Make readers drop what they have received of an answer."""
        tries = len(self.models)
        self._emit_again(Retrying(address=self.caller.address, attempt=1, max_attempts=tries, delay=0.0, error=why))

    async def _once(self, model: ChatModel, request: ModelRequest) -> Message:
        scope = self.caller.scope
        try:
            if self._streams and not self.kit.holds_back:
                message = self.streamed = await self._stream(model, request)
            else:
                message = await generate(model, request)
        except AdjournError:
            raise
        except Exception as error:
            raise ModelError(
                f"The model of '{self.caller.audience.name}' failed: {type(error).__name__}: {text_of(error)}"
            ) from error
        usage = message.usage or ONE_CALL
        scope.usage += usage if usage.calls else usage + ONE_CALL
        # Before the answer is kept, so that a recovered session asks again.
        if self.kit.max_calls is not None and len(message.tool_calls) > self.kit.max_calls:
            raise TooManyCalls(self.caller.audience.name, len(message.tool_calls), self.kit.max_calls)
        return message

    async def _stream(self, model: ChatModel, request: ModelRequest) -> Message:
        caller, gathering = self.caller, Gathering()
        emit_live, (name, path, _), address = caller.scope.journal.emit_live, caller.audience, caller.address
        if self._is_shown:
            self._reset("the model is asked again")
        chunks, shown = stream(model, request), 0
        try:
            async for chunk in chunks:
                gathering.add(chunk)
                if chunk.text or chunk.reasoning:
                    self._is_shown = True
                    emit_live(Delta(agent=name, path=path, address=address, text=chunk.text, reasoning=chunk.reasoning))
                    shown += 1
                    if not shown % TURN:
                        await asyncio.sleep(0)
        finally:
            await close_stream(chunks)
        return gathering.message()
