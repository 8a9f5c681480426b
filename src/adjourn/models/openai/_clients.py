"""Clients of the OpenAI SDK that users have made, and the connections of any client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from adjourn._clients import LoopClients
from adjourn._text import a_type
from adjourn.errors import UsageError

if TYPE_CHECKING:
    import openai

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
    from openai import DefaultAsyncHttpxClient  # noqa: PLC0415 - an extra

    if type(getattr(client, "_client", None)).__name__ == _SDKS_OWN:
        # Connections belong to the event loop that they were opened in, so every loop gets its own pool of them.
        def copy() -> openai.AsyncOpenAI:
            connections = DefaultAsyncHttpxClient(base_url=client.base_url, timeout=client.timeout)
            return client.with_options(max_retries=0, http_client=connections)

        return LoopClients(copy, _close)
    # Nobody can copy an HTTP client with its proxies and certificates. Without connections that outlive a request,
    # it can be used from any loop; the user closes it.
    return LoopClients(lambda: client.with_options(max_retries=0), _leave_open, {"Connection": "close"})


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
