"""Models of OpenAI, and of any server with a compatible chat completions API, through the official SDK."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from adjourn.errors import ModelError, UsageError, text_of
from adjourn.messages import Message
from adjourn.models._clients import LoopClients
from adjourn.models._secrets import Secrets
from adjourn.models.chunks import Chunk, Gathering
from adjourn.models.protocol import ModelRequest

from ._answer import AnswerReader
from ._errors import model_error, unfinished
from ._request import request_body

if TYPE_CHECKING:
    import openai

_PATH = "/chat/completions"


class OpenAIChatModel:
    """A chat model of OpenAI, or of any server with a compatible chat completions API (`base_url`).

    `api_key` and `base_url` default to OPENAI_API_KEY and OPENAI_BASE_URL. `timeout` is how long the server may be
    silent, in seconds. `options` are added to every request under the provider's names (`temperature`,
    `reasoning_effort`, `tool_choice`), and overridden by those of the request itself; None leaves an option out, even
    one that is sent by default (`stream_options`, for servers that do not support it). `send_reasoning` sends earlier
    reasoning back to the model, which some servers require and others reject. `client` is a custom `AsyncOpenAI` (or
    `AsyncAzureOpenAI`), which you close yourself. `headers`, and the `extra_headers` among options, are sent as HTTP
    headers. They and the key are replaced by `[secret]` where the server repeats them in an error.

    The SDK's own retries are off: give the agent a `Retry`. A model may be used from any event loop; its connections
    close when that loop ends, or with `close()`.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout: float = 600.0,
        headers: Mapping[str, str] | None = None,
        options: Mapping[str, Any] | None = None,
        send_reasoning: bool = False,
        client: openai.AsyncOpenAI | None = None,
    ) -> None:
        self.model = model
        self.options = dict(options or {})
        self.send_reasoning = send_reasoning
        self._key, self._headers = api_key or os.environ.get("OPENAI_API_KEY"), dict(headers or {})
        self._custom_client = None if client is None else client.with_options(max_retries=0)
        if client is None:
            _client_class()  # report a missing SDK here, not in the first run
            arguments = _client_arguments(model, api_key, base_url, timeout)
            self._clients = LoopClients(lambda: _client(arguments, timeout, headers), lambda made: made.close())

    def __repr__(self) -> str:
        return f"OpenAIChatModel({self.model!r})"

    async def generate(self, request: ModelRequest) -> Message:
        """Return the whole answer.

        Raises:
            ModelError: the server refused, was too slow, could not be reached, or sent a malformed answer.
            UsageError: the request contains something that chat completions do not support.
        """
        body, headers = self._body(request, is_streamed=False)
        reader, gathering = AnswerReader(), Gathering()
        try:
            client = await self._client()
            answer = reader.read(await client.post(_PATH, cast_to=object, body=body, options={"headers": headers}))
        except Exception as error:  # noqa: BLE001  # protects the run: see _translated
            translated, cause = self._translated(error, headers)
            raise translated from cause
        if answer is None:
            raise unfinished(self.model)
        gathering.add(answer)
        return gathering.message()

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Stream the answer; leaving it early, or cancelling it, closes the connection.

        Raises:
            ModelError: as in `generate`; also when the stream ends before the answer does.
            UsageError: the request contains something that chat completions do not support.
        """
        body, headers = self._body(request, is_streamed=True)
        reader = AnswerReader()
        try:
            async with await self._open(body, headers) as pieces:
                async for data in pieces:
                    if (chunk := reader.read(data)) is not None:
                        yield chunk
        except Exception as error:  # noqa: BLE001  # protects the run: see _translated
            # What comes after the finish reason (the usage, the end of the stream) is not part of the answer.
            if not reader.is_finished:
                translated, cause = self._translated(error, headers)
                raise translated from cause
        if not reader.is_finished:
            raise unfinished(self.model)

    async def close(self) -> None:
        """Close the connections of this event loop; the model can still be used."""
        if self._custom_client is None:
            await self._clients.close()

    def _body(self, request: ModelRequest, *, is_streamed: bool) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the body and the headers of a request."""
        body = request_body(
            self.model, request, self.options, is_streamed=is_streamed, send_reasoning=self.send_reasoning
        )
        headers = body.pop("extra_headers", {})
        if not isinstance(headers, dict):
            raise UsageError(f"The extra_headers for {self.model} are not a mapping. Give names and texts.")
        return body, {str(name): str(value) for name, value in cast("dict[object, object]", headers).items()}

    async def _open(self, body: dict[str, Any], headers: dict[str, str]) -> openai.AsyncStream[object]:
        import openai  # noqa: PLC0415 - an extra

        # Not `chat.completions.create`: it builds objects without validating them, at ten times the cost. With
        # `object`, each piece is plain data that the reader validates, including fields that only other servers send.
        client = await self._client()
        kind = openai.AsyncStream[object]
        return await client.post(
            _PATH, cast_to=object, body=body, options={"headers": headers}, stream=True, stream_cls=kind
        )

    async def _client(self) -> openai.AsyncOpenAI:
        return self._custom_client or await self._clients.here()

    def _translated(self, error: Exception, headers: Mapping[str, str]) -> tuple[Exception, BaseException | None]:
        """Return the error to raise, and its cause."""
        # Errors of the SDK and of its HTTP library have no common base class; any other error passes unchanged.
        translated, secrets = model_error(error, self.model), self._secrets(headers)
        if not secrets.are_in(error):
            return (error, error.__cause__) if translated is None else (translated, error)
        # Without its cause, which a traceback would show.
        found = translated or ModelError(f"The model '{self.model}' failed: {type(error).__name__}: {text_of(error)}")
        return _hidden(found, secrets), None

    def _secrets(self, headers: Mapping[str, str]) -> Secrets:
        client = self._custom_client
        if client is None:
            return Secrets(self._key, self._headers, headers)
        return Secrets(client.api_key, client.auth_headers, client.default_headers, headers)


def _hidden(error: ModelError, secrets: Secrets) -> ModelError:
    code = None if error.code is None else secrets.hide(error.code)
    return ModelError(
        secrets.hide(str(error)),
        provider=error.provider,
        status=error.status,
        code=code,
        retry_after=error.retry_after,
        retryable=error.retryable,
    )


def _client_arguments(model: str, api_key: str | None, base_url: str | None, timeout: float) -> dict[str, Any]:
    url = base_url or os.environ.get("OPENAI_BASE_URL")
    key = api_key or os.environ.get("OPENAI_API_KEY")
    if url and not url.startswith(("http://", "https://")):
        raise UsageError(f"OpenAIChatModel has base_url={url!r}. Give a URL, such as 'http://127.0.0.1:8000/v1'.")
    if timeout <= 0:
        raise UsageError(f"OpenAIChatModel has timeout={timeout}. Give a number of seconds above 0.")
    if not key and not url:
        raise UsageError(
            f"The model 'openai:{model}' needs a key, and OPENAI_API_KEY is not set. Set it in the environment, or "
            "pass OpenAIChatModel(..., api_key=...)."
        )
    # Local servers do not need a key, but the SDK requires one.
    return {"api_key": key or "none", **({"base_url": url} if url else {})}


def _client_class() -> type[openai.AsyncOpenAI]:
    try:
        from openai import AsyncOpenAI  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UsageError(
            "OpenAI's models need the OpenAI SDK, which is not installed. Run: pip install 'adjourn[openai]'."
        ) from error
    return AsyncOpenAI


def _client(arguments: dict[str, Any], timeout: float, headers: Mapping[str, str] | None) -> openai.AsyncOpenAI:
    from openai import Timeout  # noqa: PLC0415 - an extra

    limits = Timeout(timeout, connect=min(timeout, 10.0))
    return _client_class()(**arguments, timeout=limits, max_retries=0, default_headers=headers)
