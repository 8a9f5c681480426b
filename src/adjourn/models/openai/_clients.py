"""Clients of the OpenAI SDK that users have made, and the connections of any client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from adjourn._clients import LoopClients
from adjourn._text import a_type
from adjourn.errors import UsageError

if TYPE_CHECKING:
    import openai

ERROR = 1024 * 1024
"""Bytes that are read of a response that is not an answer."""
COMPRESSED = 16 * 1024
"""The same if they are compressed, as they may become a thousand times as many."""
_ENCODINGS = frozenset({"deflate", "gzip", "identity"})
"""The encodings of answers that are read: each byte becomes a thousand at most."""
_HUNG_UP = frozenset({"RemoteProtocolError", "ReadError", "WriteError", "CloseError"})
"""The errors of HTTP libraries for a connection that the server closed, by name: the library has changed over time."""
_SDKS_OWN = "AsyncHttpxClientWrapper"
"""The HTTP client that the SDK makes if it is not given one."""


def client_class() -> type[openai.AsyncOpenAI]:
    """Return the class of clients.

    Raises:
        UsageError: the SDK is not installed.
    """
    try:
        from openai import AsyncOpenAI  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UsageError(
            "OpenAI's models need the OpenAI SDK, which is not installed. Run: pip install 'adjourn[openai]'."
        ) from error
    return AsyncOpenAI


def given_clients(
    client: openai.AsyncOpenAI | Callable[[], openai.AsyncOpenAI],
) -> LoopClients[openai.AsyncOpenAI]:
    """Return clients for every event loop from a client that a user has made, or from a function that makes them.

    Raises:
        UsageError: it is neither.
    """
    if isinstance(client, client_class()):
        return _copies(client)
    if not callable(client) or isinstance(client, type):
        raise UsageError(f"OpenAIChatModel was given client={a_type(client)}. Give an AsyncOpenAI, not a sync client.")

    def make() -> openai.AsyncOpenAI:
        return client().with_options(max_retries=0)

    return LoopClients(make, _close)


def _copies(client: openai.AsyncOpenAI) -> LoopClients[openai.AsyncOpenAI]:
    if type(getattr(client, "_client", None)).__name__ == _SDKS_OWN:
        # Connections belong to the event loop that they were opened in, so every loop gets its own pool of them.
        def copy() -> openai.AsyncOpenAI:
            own = connections(base_url=client.base_url, timeout=client.timeout)
            return client.with_options(max_retries=0, http_client=own)

        return LoopClients(copy, _close)
    # Nobody can copy an HTTP client with its proxies and certificates. Without connections that outlive a request,
    # it can be used from any loop; the user closes it.
    return LoopClients(lambda: client.with_options(max_retries=0), _leave_open, {"Connection": "close"})


def connections(**options: Any) -> Any:  # Any: of the SDK's HTTP library, which has changed over time
    """Return an HTTP client as the SDK makes it, which reads only the beginning of errors and redirects."""
    from openai import DefaultAsyncHttpxClient  # noqa: PLC0415 - an extra

    headers = {"accept-encoding": ", ".join(sorted(_ENCODINGS))}
    return DefaultAsyncHttpxClient(**options, headers=headers, event_hooks={"response": [_undo_encodings, _shorten]})


async def _undo_encodings(response: Any) -> None:
    """Leave an encoding that was not asked for as it is: gzip within gzip makes a gigabyte of one piece."""
    if response.headers.get("content-encoding", "identity").strip().lower() not in _ENCODINGS:
        del response.headers["content-encoding"]


async def _shorten(response: Any) -> None:
    """Cut what is not an answer: the SDK and its HTTP library read all of it before anybody can look."""
    if response.status_code >= 300:
        response.stream = _beginning(response.stream, COMPRESSED if "content-encoding" in response.headers else ERROR)


def _beginning(stream: Any, limit: int) -> Any:
    # A stream has to be of the library's class.
    library: type[Any] = next(kind for kind in type(stream).__mro__ if kind.__name__ == "AsyncByteStream")

    class Beginning(library):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            left = limit
            async for piece in stream:
                yield piece[:left]
                left -= len(piece)
                if left <= 0:
                    return

        async def aclose(self) -> None:
            await stream.aclose()

    return Beginning()


async def _close(client: openai.AsyncOpenAI) -> None:
    await client.close()


async def _leave_open(client: openai.AsyncOpenAI) -> None:
    pass


def client_secrets(client: openai.AsyncOpenAI) -> list[Mapping[str, object]]:
    """Return what a client sends that must not be shown."""
    shown = ("accept", "content-type", "user-agent", "x-stainless-")
    headers = {name: value for name, value in client.default_headers.items() if not name.lower().startswith(shown)}
    return [headers, client.auth_headers, {"": client.api_key}]


def was_hung_up(error: Exception) -> bool:
    """Return whether the server closed the connection before it answered."""
    import openai  # noqa: PLC0415 - an extra, already loaded at this point

    cause = cast("Any", error.__cause__)
    return isinstance(error, openai.APIConnectionError) and type(cause).__name__ in _HUNG_UP
