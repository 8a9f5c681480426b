"""Models of OpenAI, and of any server with a compatible chat completions API, through the official SDK."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any

from adjourn._clients import LoopClients
from adjourn._text import a_type
from adjourn._values.frozen import shorten
from adjourn._values.secret import Secret
from adjourn.errors import ModelError, UsageError, text_of
from adjourn.messages import Message
from adjourn.models._secrets import Secrets
from adjourn.models.abilities import Abilities
from adjourn.models.bounds import AnswerBounds
from adjourn.models.chunks import Chunk, Gathering
from adjourn.models.protocol import ModelRequest

from ._answer import AnswerReader
from ._clients import client_class, client_secrets, connections, given_clients, was_hung_up
from ._errors import model_error
from ._events import pieces_of
from ._options import Around, check_options, split_options
from ._request import request_body
from ._servers import abilities_of, provider_of

if TYPE_CHECKING:
    import openai

_PATH = "/chat/completions"


class OpenAIChatModel:
    """A chat model of OpenAI, or of any server with a compatible chat completions API (`base_url`).

    `api_key`, a text or a `Secret`, and `base_url` default to OPENAI_API_KEY and OPENAI_BASE_URL. `timeout` is how long
    the server may be silent, in seconds. `options` are added to every request under the provider's names
    (`temperature`, `reasoning_effort`, `tool_choice`), and overridden by those of the request itself; None leaves an
    option out, even one that is sent by default (`stream_options`, for servers that do not support it). A `tool_choice`
    that forces a call counts until a tool has run. Not part of the body are `extra_headers`, `extra_query` and
    `timeout`; `extra_body` is added to it. `abilities` says what the server supports, if the guess from `base_url` and
    `model` is wrong.

    `send_reasoning` sends earlier reasoning back to the model, which some servers require and others reject; by
    default, the reasoning of the current turn goes back to the server that it came from. What a server signed goes back
    to the same `provider` only: "openai", or the host of `base_url`.

    `client` is a custom `AsyncOpenAI` (or `AsyncAzureOpenAI`), or a function that makes one. A client is used with
    connections of this model, one pool per event loop; if it was made with an `http_client`, that one is used, with a
    new connection for every request. A function is called once per event loop (`base_url` then only says which server
    its clients talk to). You close what you have made; this model closes the rest.

    `headers`, and the `extra_headers` among options, are sent as HTTP headers. They and the key are replaced by
    `[secret]` where the server repeats them in an error.

    `bounds` says how much an answer may have before it is given up, for servers that send without end; see
    `AnswerBounds`. Errors and redirects are read to a megabyte, unless `client` has an `http_client` of its own.

    The SDK's own retries are off, since an agent has a `Retry`; only a connection that the server closed without an
    answer is tried once more. A model may be used from any event loop, and from sync code; its connections close when
    that loop ends, or with `close()`.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | Secret | None = None,
        base_url: str | None = None,
        timeout: float = 600.0,
        headers: Mapping[str, str] | None = None,
        options: Mapping[str, Any] | None = None,
        send_reasoning: bool | None = None,
        provider: str | None = None,
        abilities: Abilities | None = None,
        bounds: AnswerBounds = AnswerBounds(),  # noqa: B008  # it is frozen
        client: openai.AsyncOpenAI | Callable[[], openai.AsyncOpenAI] | None = None,
    ) -> None:
        _check(model, headers, abilities, bounds)
        key = api_key.reveal() if isinstance(api_key, Secret) else api_key
        self.model = model
        self.options: dict[str, Any] = dict(
            check_options({} if options is None else options, f"OpenAIChatModel({model!r})")
        )
        self.send_reasoning = send_reasoning
        self.bounds = bounds
        self._key, self._headers = key or os.environ.get("OPENAI_API_KEY"), dict(headers or {})
        self._is_given = client is not None
        if client is None:
            client_class()  # report a missing SDK here, not in the first run
            arguments = _client_arguments(model, key, base_url, timeout)
            self._clients = LoopClients(lambda: _client(arguments, timeout, headers), lambda made: made.close())
            base_url = arguments.get("base_url")
        else:
            self._clients = given_clients(client)
            base_url = base_url if callable(client) else str(client.base_url)
        self.provider: str = provider or provider_of(base_url)
        self.abilities: Abilities = abilities_of(model, base_url) if abilities is None else abilities

    def __repr__(self) -> str:
        return f"OpenAIChatModel({self.model!r})"

    async def generate(self, request: ModelRequest) -> Message:
        """Return the whole answer.

        Raises:
            ModelError: the server refused, was too slow, could not be reached, or sent a malformed answer.
            UsageError: the request contains something that chat completions do not support.
        """
        gathering = Gathering(self.bounds)
        async with aclosing(self._answer(request, is_streamed=False)) as chunks:
            async for chunk in chunks:
                gathering.add(chunk)
        return gathering.message()

    def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Stream the answer; leaving it early, or cancelling it, closes the connection.

        Raises:
            ModelError: as in `generate`; also when the stream ends before the answer does.
            UsageError: the request contains something that chat completions do not support.
        """
        return self._answer(request, is_streamed=True)

    async def _answer(self, request: ModelRequest, *, is_streamed: bool) -> AsyncGenerator[Chunk]:
        body, around = self._body(request, is_streamed=is_streamed)
        reader = AnswerReader(self.provider)
        client = await self._clients.here()
        try:
            async with await self._sent(client, body, around) as answer:
                async for data in pieces_of(answer.response, self.bounds):
                    if (chunk := reader.read(data)) is not None:
                        yield chunk
            reader.close()
        except Exception as error:  # noqa: BLE001  # protects the run: see _translated
            # What comes after the finish reason (the usage, the end of the stream) is not part of the answer.
            if not reader.is_finished:
                translated, cause = self._translated(error, client, around)
                raise translated from cause

    async def close(self) -> None:
        """Close the connections of this event loop; the model can still be used."""
        await self._clients.close()

    def _body(self, request: ModelRequest, *, is_streamed: bool) -> tuple[dict[str, Any], Around]:
        """Return the body of a request, and what is sent around it."""
        given = check_options(request.options, f"A request to {self.model}")
        options, around = split_options({**self.options, **given})
        body = request_body(
            self.model,
            request,
            options,
            self.abilities,
            provider=self.provider,
            is_streamed=is_streamed,
            send_reasoning=self.send_reasoning,
        )
        return body, around

    async def _sent(self, client: openai.AsyncOpenAI, body: dict[str, Any], around: Around) -> Any:
        """Send a request and return the stream of its answer, whole ones too: the SDK would read them without end."""
        import openai  # noqa: PLC0415 - an extra

        # Not `chat.completions.create`: it builds objects without validating them, at ten times the cost, and decides
        # by the headers what a body is. The reader validates plain data, with fields that only other servers send.
        headers = {**self._clients.headers, **around.headers}
        options: dict[str, Any] = {"headers": _with_omissions(headers), "params": around.query}
        if around.timeout is not None:
            options["timeout"] = around.timeout
        kind = openai.AsyncStream[object]
        send: Any = partial(client.post, _PATH, cast_to=bytes, body=body, stream=True, stream_cls=kind)
        try:
            return await send(options=options)
        except Exception as error:
            # A server may close a connection just when it is used again. Nothing has been answered yet, and asking a
            # model has no effects, so this is safe.
            if not was_hung_up(error):
                raise
            return await send(options=options)

    def _translated(
        self, error: Exception, client: openai.AsyncOpenAI, around: Around
    ) -> tuple[Exception, BaseException | None]:
        """Return the error to raise, and its cause."""
        # Errors of the SDK and of its HTTP library have no common base class; any other error passes unchanged.
        translated = model_error(error, self.model, self.provider)
        secrets = Secrets(self._key, self._headers, around.headers, *(client_secrets(client) if self._is_given else ()))
        if not secrets.are_in(error):
            return (error, error.__cause__) if translated is None else (translated, error)
        # Without its cause, which a traceback would show.
        found = translated or ModelError(f"The model '{self.model}' failed: {type(error).__name__}: {text_of(error)}")
        return _hidden(found, secrets), None


def _with_omissions(headers: Mapping[str, str | None]) -> dict[str, Any]:
    """Return headers as the SDK takes them: None is a header that is not sent, even if the client has it."""
    from openai import Omit  # noqa: PLC0415 - an extra

    return {name: Omit() if value is None else value for name, value in headers.items()}


def _check(model: object, headers: object, abilities: object, bounds: object) -> None:
    if not isinstance(model, str) or not model:
        raise UsageError(f"OpenAIChatModel({shorten(model)}): give the name of a model, such as 'gpt-5'.")
    if not isinstance(headers, Mapping | None):
        raise UsageError(f"OpenAIChatModel({model!r}): headers is {a_type(headers)}. Give a mapping of names to texts.")
    if not isinstance(abilities, Abilities | None):
        raise UsageError(f"OpenAIChatModel({model!r}): abilities={shorten(abilities)}. Give Abilities(...).")
    if not isinstance(bounds, AnswerBounds):
        raise UsageError(f"OpenAIChatModel({model!r}): bounds={shorten(bounds)}. Give AnswerBounds(...).")


def _hidden(error: ModelError, secrets: Secrets) -> ModelError:
    hidden = copy(error)
    hidden.args = (secrets.hide(str(error)),)
    hidden.code = None if error.code is None else secrets.hide(error.code)
    return hidden


def _client_arguments(model: str, api_key: str | None, base_url: str | None, timeout: float) -> dict[str, Any]:
    url = base_url or os.environ.get("OPENAI_BASE_URL")
    key = api_key or os.environ.get("OPENAI_API_KEY")
    if url and not url.startswith(("http://", "https://")):
        raise UsageError(f"OpenAIChatModel has base_url={url!r}. Give a URL, such as 'http://127.0.0.1:8000/v1'.")
    if url and url.rstrip("/").endswith(_PATH):
        short = url.rstrip("/").removesuffix(_PATH)
        raise UsageError(f"OpenAIChatModel has base_url={url!r}. Give it without its end, which is added: {short!r}.")
    if timeout <= 0:
        raise UsageError(f"OpenAIChatModel has timeout={timeout}. Give a number of seconds above 0.")
    if not key and not url:
        raise UsageError(
            f"The model 'openai:{model}' needs a key, and OPENAI_API_KEY is not set. Set it in the environment, or "
            "pass OpenAIChatModel(..., api_key=...)."
        )
    # Local servers do not need a key, but the SDK requires one.
    return {"api_key": key or "none", **({"base_url": url} if url else {})}


def _client(arguments: dict[str, Any], timeout: float, headers: Mapping[str, str] | None) -> openai.AsyncOpenAI:
    from openai import Timeout  # noqa: PLC0415 - an extra

    limits = Timeout(timeout, connect=min(timeout, 10.0))
    return client_class()(
        **arguments, timeout=limits, max_retries=0, default_headers=headers, http_client=connections(timeout=limits)
    )
