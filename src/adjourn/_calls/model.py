"""Calling a model once, with the hooks before, around and after the call."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, cast

from msgspec.structs import replace

from adjourn._engine.child import inner, layer
from adjourn._engine.entry import here
from adjourn._engine.retry import Retry, backoff, wait_for_next
from adjourn._hiding import known, logger
from adjourn._text import a_type, visible_line
from adjourn.context import current
from adjourn.errors import AdjournError, ModelError, RetryExhausted, StoreError, TooManyCalls, UsageError, text_of
from adjourn.events import Delta, Event, Retrying, ToolCallPiece
from adjourn.messages import Message, Usage
from adjourn.middleware import about_tokens
from adjourn.middleware.hooks import Middleware, ModelState
from adjourn.models import (
    ChatModel,
    Chunk,
    Gathering,
    ModelRequest,
    ToolCallChunk,
    chunks_of,
    close_stream,
    generate,
    stream,
)
from adjourn.models.bounds import AnswerBounds, bounds_of, in_time
from adjourn.models.calling import answered

from .caller import Caller, Kit, program_options
from .hidden import check_names, hidden_chunks, hidden_message

ONE_CALL = Usage(calls=1)
_log = logger(__name__)


def _is_temporary(error: Exception) -> bool:
    """Return whether a provider reported it, and it may pass: too many requests, a server error, a connection."""
    return isinstance(error, ModelError) and not (error.provider is error.status is None)


MODEL_RETRY = Retry(attempts=3, on=_is_temporary, backoff=backoff(cap=8.0), max_wait=30.0)
"""The policy for model calls, unless an agent has its own."""

TURN = 64
"""Yield to the event loop after this many chunks of an answer, in case the model itself never waits."""


async def hooked(
    hooks: Sequence[Middleware], hook: str, messages: Sequence[Message], kit: Kit, retry: Sequence[Retry] = ()
) -> list[Message]:
    """Return the messages after these hooks, each of which runs in its own layer."""
    # Hooks after the model run innermost first.
    ordered = hooks if hook == "before_model" else tuple(reversed(hooks))
    current_messages = list(messages)
    tools, policies = tuple(kit.tools.values()), tuple(retry)
    for middleware in ordered:

        async def run(middleware: Middleware = middleware, given: list[Message] = current_messages) -> Any:
            first = ModelState(messages=tuple(given), tools=tools, retry=policies)
            found: Any = getattr(middleware, hook)(first, current())
            state: Any = await found if inspect.isawaitable(found) else found
            if not isinstance(state, ModelState):
                raise UsageError(f"{middleware.name}.{hook} returned {state!r}. Return the state, changed or not.")
            # A new state may have neither: ModelState(messages=...).
            if state.tools not in ((), first.tools) or state.retry not in ((), first.retry):
                raise UsageError(
                    f"{middleware.name}.{hook} changed the tools or the retry policy, which it can only read. "
                    "Change tools in before_agent."
                )
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


@lru_cache(maxsize=1024)  # once per process
def report_estimate(name: str, model: str) -> None:
    """Log that the limits of an agent rest on an estimate."""
    _log.warning(
        "The model of %s (%s) reports no usage: its tokens are estimated, about one per four characters.",
        visible_line(name),
        model,
    )


class Asking:
    """One call of a model, with its wrappers, retries and failover models; `model` is the index of the first to ask.

    Afterwards, `model` is the index of the one that answered. `streamed` is the last whole answer that readers got as
    pieces, and `_is_shown` whether they have pieces that they were not told to drop: a new attempt, another model, or
    an answer that hooks have changed tells them first.
    """

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
        message = await self._wrapped(0, request) if self.kit.hooks.wrap_model else await self._asked(request)
        self.check_shown(message)
        return message

    @property
    def _streams(self) -> bool:
        """Whether readers get answers piece by piece."""
        scope = self.caller.scope
        return scope.has_reader and program_options(scope).streaming and self.caller.audience.hears

    def check_shown(self, message: Message) -> None:
        """Make readers drop the streamed text if it differs from the final message."""
        if self._is_shown and message != self.streamed:
            self._reset("a hook changed the answer")

    async def _wrapped(self, place: int, request: ModelRequest) -> Message:
        if place == len(self.kit.hooks.wrap_model):
            return await self._asked(request)
        middleware = self.kit.hooks.wrap_model[place]

        async def call(request: ModelRequest) -> Message:
            return await inner(partial(self._wrapped, place + 1, request), middleware.raises)

        async def run() -> Message:
            found: Any = middleware.wrap_model(call, request)
            message: Any = await found if inspect.isawaitable(found) else found
            if not isinstance(message, Message) or message.role != "assistant":
                raise UsageError(f"{middleware.name}.wrap_model returned {message!r}. Return the assistant's message.")
            return message

        return await layer("middleware", middleware.name, run, part=f"wrap_model:{middleware.name}")

    async def _asked(self, request: ModelRequest) -> Message:
        """Ask the models in order, beginning with the one that answered last, each as often as its policies allow."""
        first, number, tries = self.model, 0, 1
        failure: Exception | None = None
        while True:
            self.model = (first + number) % len(self.models)
            try:
                try:
                    return await self._once(self.models[self.model], request)
                except Exception as error:
                    if not self.retry or not await self._is_tried_again(error, tries):
                        raise
                    tries += 1
                    continue
            except StoreError:
                raise
            except UsageError as refusal:
                if failure is None:
                    raise
                # One that cannot take the place of another must not hide why it would have to.
                failure.add_note(f"The next model could not be asked instead: {text_of(refusal)}")
            except Exception as error:  # noqa: BLE001  # raised again if no model answers
                failure = error
            number, tries = number + 1, 1
            if number == len(self.models):
                raise failure
            self._reset(f"{type(failure).__name__}: {text_of(failure)}")

    async def _is_tried_again(self, error: Exception, tries: int) -> bool:
        """Wait for the next attempt at a model; return False if it has failed for good."""
        try:
            return await wait_for_next(here("the model").frame, self.retry, tries, error, self._emit_again)
        except RetryExhausted:
            if MODEL_RETRY not in self.retry:
                raise
            # Users who never asked for several attempts get the error itself.
            error.add_note(f"Tried {tries} times.")
            return False

    def _emit_again(self, event: Event) -> None:
        self.streamed, self._is_shown = None, False
        self.caller.emit_live(event)

    def _reset(self, why: str) -> None:
        """Make readers drop what they have received of an answer."""
        tries = len(self.models)
        self._emit_again(Retrying(address=self.caller.address, attempt=1, max_attempts=tries, delay=0.0, error=why))

    async def _once(self, model: ChatModel, request: ModelRequest) -> Message:
        if known.forms:
            check_names(request.tools, self.caller.audience.name)
        await self.caller.scope.log.assure()
        message = await self._answered(model, request)
        if known.forms:
            message = hidden_message(message)
        if self.kit.counts_tokens and not (message.usage and message.usage.total_tokens):
            message = self._estimated(model, request, message)
        scope, usage = self.caller.scope, message.usage or ONE_CALL
        scope.usage += usage if usage.calls else usage + ONE_CALL
        # Before the answer is kept, so that a recovered session asks again.
        if self.kit.max_calls is not None and len(message.tool_calls) > self.kit.max_calls:
            raise TooManyCalls(self.caller.audience.name, len(message.tool_calls), self.kit.max_calls)
        return message

    def _estimated(self, model: ChatModel, request: ModelRequest, message: Message) -> Message:
        """Return an answer with a usage, for those who limit it: not all servers report one."""
        report_estimate(self.caller.audience.name, type(model).__name__)
        read, written = about_tokens(request.messages), about_tokens([message])
        usage = Usage(calls=1, input_tokens=read, output_tokens=written, estimated_tokens=read + written)
        estimated = replace(message, usage=usage)
        if self.streamed is message:
            self.streamed = estimated
        return estimated

    async def _answered(self, model: ChatModel, request: ModelRequest) -> Message:
        if self.kit.hooks.wrap_model_stream:
            return await self._wrapped_stream(model, request)
        try:
            if not self._streams:
                return await generate(model, request)
            chunks, bounds = _stream(model, request), bounds_of(model)
            try:
                async with in_time(bounds):
                    return await self._show(chunks, bounds)
            finally:
                await close_stream(chunks)
        except AdjournError:
            raise
        except Exception as error:
            raise self._blamed(error) from error

    def _blamed(self, error: Exception) -> ModelError:
        """Return an exception of a model as an error of ours."""
        name = self.caller.audience.name
        return ModelError(f"The model of '{name}' failed: {type(error).__name__}: {text_of(error)}")

    # Streaming

    async def _show(self, chunks: AsyncIterator[Chunk], bounds: AnswerBounds) -> Message:
        """Return the message that the chunks add up to, and give readers each piece as it arrives."""
        caller, gathering, message_id = self.caller, Gathering(bounds), self.caller.answer_id()
        emit_live, (name, path, _), address = caller.scope.log.emit_live, caller.audience, caller.address
        if self._is_shown:
            self._reset("the model is asked again")
        shown, calls = 0, dict[int, ToolCallPiece]()
        async for chunk in chunks:
            gathering.add(chunk)
            text, reasoning = chunk.text, chunk.reasoning
            if text or reasoning:
                emit_live(
                    Delta(agent=name, path=path, address=address, text=text, reasoning=reasoning, message_id=message_id)
                )
            elif not chunk.tool_calls:
                continue
            if chunk.tool_calls:
                for piece in _pieces(chunk.tool_calls, calls):
                    emit_live(Delta(agent=name, path=path, address=address, tool_call=piece, message_id=message_id))
            self._is_shown = True
            shown += 1
            if not shown % TURN:
                await asyncio.sleep(0)
        message = self.streamed = answered(gathering)
        return message

    async def _wrapped_stream(self, model: ChatModel, request: ModelRequest) -> Message:
        """Return the message that the chunks add up to after the middleware, whether or not somebody reads them."""
        opened, bounds = list[AsyncIterator[Chunk]](), bounds_of(model)
        try:
            async with in_time(bounds):
                chunks = _checked(self._open(0, model, request, opened))
                if self._streams:
                    return await self._show(chunks, bounds)
                gathering = Gathering(bounds)
                async for chunk in chunks:
                    gathering.add(chunk)
                return answered(gathering)
        finally:
            # All of them: a generator that is closed early leaves the one that it reads open.
            for chunks in reversed(opened):
                await close_stream(chunks)

    def _open(
        self, place: int, model: ChatModel, request: ModelRequest, opened: list[AsyncIterator[Chunk]]
    ) -> AsyncIterator[Chunk]:
        """Return the chunks of an answer, passed through the middleware from `place` on."""
        if place == len(self.kit.hooks.wrap_model_stream):
            chunks = self._chunks(model, request)
        else:
            middleware = self.kit.hooks.wrap_model_stream[place]
            chunks = middleware.wrap_model_stream(partial(self._open, place + 1, model, opened=opened), request)
            _check_stream(chunks, middleware)
        opened.append(chunks)
        return chunks

    async def _chunks(self, model: ChatModel, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Yield the chunks of a model's answer; what goes wrong here is the model's, not the middleware's."""
        try:
            if not self._streams:
                for chunk in chunks_of(await generate(model, request)):
                    yield chunk
                return
            chunks, gathering = _stream(model, request), Gathering(bounds_of(model))
            try:
                async for chunk in chunks:
                    gathering.add(chunk)  # Middleware may hold back what it gets, so that is bounded, too.
                    yield chunk
            finally:
                await close_stream(chunks)
        except AdjournError:
            raise
        except Exception as error:
            raise self._blamed(error) from error


def _stream(model: ChatModel, request: ModelRequest) -> AsyncIterator[Chunk]:
    chunks = stream(model, request)
    return hidden_chunks(chunks) if known.forms else chunks


def _check_stream(chunks: object, middleware: Middleware) -> None:
    if isinstance(chunks, AsyncIterator):
        return
    if inspect.iscoroutine(chunks):
        chunks.close()
    raise UsageError(
        f"{middleware.name}.wrap_model_stream returned {a_type(chunks)}, which is not an async iterator. Write it as "
        "an async generator: `async for chunk in call(request): yield chunk`."
    )


async def _checked(chunks: AsyncIterator[Chunk]) -> AsyncIterator[Chunk]:
    async for chunk in chunks:
        if not isinstance(chunk, Chunk):  # pyright: ignore[reportUnnecessaryIsInstance]  # users yield anything
            raise UsageError(f"wrap_model_stream yielded {a_type(chunk)}. Yield each chunk, changed or not.")
        yield chunk


def _pieces(written: Sequence[ToolCallChunk], calls: dict[int, ToolCallPiece]) -> Iterator[ToolCallPiece]:
    """Yield pieces of calls as readers get them, with all of the id and name so far; `calls` has the last of each."""
    for each in written:
        before = calls.get(each.index, _NO_PIECE)
        piece = ToolCallPiece(
            index=each.index, id=before.id + each.id, name=before.name + each.name, arguments=each.arguments
        )
        calls[each.index] = piece
        yield piece


_NO_PIECE = ToolCallPiece()
