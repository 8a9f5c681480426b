"""Requests to one server: what came back, what was refused, and when a lost connection is worth another try."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, cast
from urllib.parse import quote, urlsplit

import httpx2
import msgspec

from adjourn._clients import LoopClients
from adjourn._hiding import logger
from adjourn._text import visible_line
from adjourn._values.secret import Secret
from adjourn.errors import AdjournError, CheckpointNotFound, UsageError

from ._errors import RequestRefused, ServerUnavailable, UnexpectedAnswer, known_error
from ._sse import Frame, Frames, FrameTooLarge

log = logger("adjourn.client")

API = "/api/v1"

FIRST, LONGEST = 0.1, 5.0
"""Seconds before a lost connection is tried again: at first, and at most."""

MAX_BODY = 64 * 1024 * 1024
"""Bytes that an answer, or a frame of a stream, may have."""

_MAX_REFUSAL = 64 * 1024

_AWAY = frozenset({"draining", "store_unavailable", "unavailable", "request_in_progress", "too_many_requests"})
"""Codes of refusals that another try, a little later, can get past."""


class Reconnecting(msgspec.Struct, frozen=True, kw_only=True):
    """A connection was lost and is tried again: for the `attempt`th time since anything was heard, in `delay` seconds.

    `session_id` is that of the run that is read, if it is one.
    """

    attempt: int
    delay: float
    error: str
    session_id: str | None = None


class Lost(Exception):
    """A request that may be sent again: the connection broke, or the server cannot answer at the moment."""

    def __init__(
        self,
        detail: str,
        *,
        reached: bool = True,
        retry_after: float | None = None,
        refusal: AdjournError | None = None,
    ) -> None:
        """Say what happened; `reached` is whether a server was there at all, and `refusal` what it said."""
        super().__init__(detail)
        self.detail = detail
        self.reached = reached
        self.retry_after = retry_after
        self.refusal = refusal


class Patience:
    """How long a lost connection is tried again: for so many seconds since anything was heard."""

    def __init__(self, server: Server, session_id: str | None = None) -> None:
        self._server = server
        self._session_id = session_id
        self._attempts = 0
        self._deadline: float | None = None
        self._was_reached = False

    def heard(self) -> None:
        """Note that the server is there, and that this has come further."""
        self._attempts, self._deadline, self._was_reached = 0, None, True

    async def wait(self, lost: Lost, after: int | None = None) -> None:
        """Return when it is time to try again.

        Raises:
            ServerUnavailable: it was never there, or not for too long.
            RequestRefused: it was, but says for too long that it cannot answer.
        """
        self._was_reached = self._was_reached or lost.reached
        now = asyncio.get_running_loop().time()
        if self._deadline is None:
            self._deadline = now + self._server.patience
        delay = min(FIRST * 2**self._attempts, LONGEST)
        delay = max(lost.retry_after or 0.0, delay * random.uniform(0.5, 1.0))
        self._attempts += 1
        if not self._was_reached or now + delay > self._deadline:
            if lost.refusal is not None:
                raise lost.refusal from None
            session_id = self._session_id if self._was_reached else None
            raise ServerUnavailable(self._server.url, lost.detail, session_id=session_id, after=after) from None
        log.info("%s: %s; trying again in %.1f s", self._server.url, visible_line(lost.detail), delay)
        self._server.report(
            Reconnecting(attempt=self._attempts, delay=delay, error=lost.detail, session_id=self._session_id)
        )
        await asyncio.sleep(delay)


class Server:
    """One server, from any event loop."""

    def __init__(
        self,
        url: str,
        token: str | Secret | None,
        *,
        timeout: float,
        silence: float,
        patience: float,
        on_reconnect: Callable[[Reconnecting], None] | None,
        options: Mapping[str, Any],
    ) -> None:
        """Take a server by its address.

        Raises:
            UsageError: that is not one, or the token cannot be one.
        """
        self.url: str = _checked_url(url)
        self.patience = patience
        self._on_reconnect = on_reconnect
        self._token = _checked_token(token)
        self._timeout = httpx2.Timeout(timeout, pool=None)
        self._stream_timeout = httpx2.Timeout(timeout, read=silence, pool=None)
        self._options: dict[str, Any] = {"limits": httpx2.Limits(max_connections=None), **options}
        self._clients: LoopClients[httpx2.AsyncClient] = LoopClients(self._make, _close)

    def _make(self) -> httpx2.AsyncClient:
        try:
            return httpx2.AsyncClient(**self._options)
        except TypeError as error:
            raise UsageError(f"Client(httpx_options=...): {error}.") from error

    def report(self, again: Reconnecting) -> None:
        """Tell whoever wants to know that a connection was lost."""
        if self._on_reconnect is not None:
            self._on_reconnect(again)

    async def close(self) -> None:
        """Close the connections of the running loop."""
        await self._clients.close()

    # Documents

    async def get(self, path: str, query: Mapping[str, Any] | None = None, *, session_id: str | None = None) -> bytes:
        """Return the document at a path."""
        return (await self._document("GET", path, session_id=session_id, query=query))[0]

    async def post(
        self, path: str, body: Mapping[str, Any], *, key: str | None = None, session_id: str | None = None
    ) -> bytes:
        """Post data under a key, so that it counts once however often it has to be sent, and return the answer."""
        return (await self._document("POST", path, session_id=session_id, body=encoded(body), key=key))[0]

    async def delete(self, path: str, *, session_id: str | None = None) -> int:
        """Delete something, and return how often that had to be sent."""
        return (await self._document("DELETE", path, session_id=session_id))[1]

    async def _document(
        self,
        method: str,
        path: str,
        *,
        session_id: str | None,
        query: Mapping[str, Any] | None = None,
        body: bytes | None = None,
        key: str | None = None,
    ) -> tuple[bytes, int]:
        patience, sent = Patience(self), 0
        while True:
            sent += 1
            try:
                async with self._send(
                    method, path, query=query, body=body, key=key, session_id=session_id, timeout=self._timeout
                ) as response:
                    found = await _read(response, MAX_BODY)
                    if found is None:
                        raise self._unexpected("answers with more than fits into memory", path)
                    if found and not _is_json(response):
                        raise self._unexpected(f"answers with {_media(response)} in place of JSON", path)
                    return found, sent
            except Lost as lost:
                await patience.wait(lost)
            except (CheckpointNotFound, RequestRefused) as error:
                is_gone = isinstance(error, CheckpointNotFound) or error.code == "input_not_found"
                if method == "DELETE" and sent > 1 and is_gone:
                    return b"", sent  # The first of them did arrive.
                raise

    # Streams

    @contextlib.asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: bytes | None = None,
        key: str | None = None,
        place: str | None = None,
        session_id: str | None = None,
    ) -> AsyncGenerator[AsyncGenerator[Frame]]:
        """Open a stream of frames, after the one whose id is the `place`.

        Raises:
            Lost: the connection breaks, or the server cannot answer now.
            AdjournError: it refuses.
        """
        headers = {"accept": "text/event-stream"}
        if place is not None:
            headers["last-event-id"] = place
        async with self._send(
            method,
            path,
            query=query,
            body=body,
            key=key,
            headers=headers,
            session_id=session_id,
            timeout=self._stream_timeout,
        ) as response:
            if _media(response) != "text/event-stream":
                raise self._unexpected(f"answers with {_media(response)} in place of a stream", path)
            async with contextlib.aclosing(self._frames(response, path)) as frames:
                yield frames

    async def _frames(self, response: httpx2.Response, path: str) -> AsyncGenerator[Frame]:
        reader = Frames(MAX_BODY)
        try:
            async for piece in response.aiter_raw():
                for frame in reader.feed(piece):
                    yield frame
        except FrameTooLarge:
            raise self._unexpected(f"sends a frame of more than {MAX_BODY} bytes", path) from None
        except httpx2.TransportError as error:
            raise Lost(_text(error)) from error

    # Requests

    @contextlib.asynccontextmanager
    async def _send(
        self,
        method: str,
        path: str,
        *,
        timeout: httpx2.Timeout,  # noqa: ASYNC109  # of each read
        query: Mapping[str, Any] | None = None,
        body: bytes | None = None,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        session_id: str | None = None,
    ) -> AsyncGenerator[httpx2.Response]:
        client = await self._clients.here()
        given = {"accept": "application/json", **(headers or {})}
        if self._token is not None:
            given["authorization"] = f"Bearer {self._token.reveal()}"
        if body is not None:
            given["content-type"] = "application/json"
        if key is not None:
            given["idempotency-key"] = key
        wanted = {name: _query_text(value) for name, value in (query or {}).items() if value is not None}
        request = client.build_request(
            method, f"{self.url}{path}", params=wanted or None, content=body, headers=given, timeout=timeout
        )
        try:
            response = await client.send(request, stream=True, follow_redirects=False)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError) as error:
            raise Lost(_text(error), reached=False) from error
        except httpx2.TransportError as error:
            raise Lost(_text(error)) from error
        try:
            if not response.is_success:
                raise await self._refusal(response, path, session_id)
            yield response
        except httpx2.TransportError as error:
            raise Lost(_text(error)) from error
        finally:
            await response.aclose()

    async def _refusal(self, response: httpx2.Response, path: str, session_id: str | None) -> Exception:
        """Return what to raise for an answer that is not a success."""
        status = response.status_code
        found = _refused(await _read(response, _MAX_REFUSAL) if _is_json(response) else None)
        if found is None:
            if status in (502, 503, 504):
                return Lost(f"something before the server answers with {status}", reached=False)
            return self._no_refusal(response, path)
        code, message, hint = (str(found.pop(name, "")) for name in ("code", "message", "hint"))
        retry_after = _seconds(response.headers.get("retry-after"))
        if status == 401:
            hint = "Give a token that the server knows: Client(..., token=...). `adjourn token create` makes one."
        if code == "invalid_request":  # The library's error says what to do; this one only has the server's hint.
            message = f"{message} {hint}".strip()
        known = known_error(code, message, found, session_id)
        refusal = known or RequestRefused(status, code, message, hint, facts=found, retry_after=retry_after)
        if code in _AWAY:
            return Lost(message, retry_after=retry_after, refusal=refusal)
        return refusal

    def _no_refusal(self, response: httpx2.Response, path: str) -> UnexpectedAnswer:
        status = response.status_code
        if 300 <= status < 400:
            to = visible_line(response.headers.get("location", "somewhere else"))[:200]
            return UnexpectedAnswer(self.url, f"redirects to {to}", "Use the address that it redirects to.")
        return self._unexpected(f"answers with {status} and {_media(response)}", path)

    def _unexpected(self, detail: str, path: str) -> UnexpectedAnswer:
        remedy = "That is not a server of Adjourn, or a proxy before it: check the address."
        return UnexpectedAnswer(self.url, f"{detail} at {path.partition('?')[0]}", remedy)


async def _close(client: httpx2.AsyncClient) -> None:
    await client.aclose()


def _checked_url(url: str) -> str:
    remedy = "Give the address of a server, such as http://localhost:8000."
    if not isinstance(url, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
        raise UsageError(f"The URL is a {type(url).__name__}. {remedy}")
    try:
        parts = urlsplit(url.strip())
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise UsageError(f"The URL cannot be read: {error}. {remedy}") from None
    if parts.username or parts.password:
        raise UsageError(
            "The URL has a name or a password in it, which would be shown with it. Give token=..., or for a proxy "
            "httpx_options={'auth': (name, password)}."
        )
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
        raise UsageError(f"{url[:200]!r} is not the URL of a server. {remedy}")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix(API)}"


def _checked_token(token: str | Secret | None) -> Secret | None:
    """Return a token as a secret, which no text of ours shows."""
    found = Secret(token) if isinstance(token, str) else token
    text = "x" if found is None else found.reveal()
    if not (text.isascii() and text.isprintable() and " " not in text):
        raise UsageError("The token has characters that no token has. `adjourn token create` prints one to copy.")
    return found


def in_path(name: str) -> str:
    """Return a name as one part of a path."""
    return quote(name, safe="") if name not in (".", "..") else name.replace(".", "%2E")


def session_path(session_id: str, rest: str = "") -> str:
    """Return the path of a session.

    Raises:
        UsageError: that is not an id.
    """
    if not isinstance(session_id, str) or not session_id:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"session_id={session_id!r}: give the id of a session.")
    return f"{API}/sessions/{in_path(session_id)}{rest}"


def encoded(body: Mapping[str, Any]) -> bytes:
    """Return data as JSON.

    Raises:
        UsageError: it has something that JSON cannot hold.
    """
    try:
        return msgspec.json.encode(body)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"This cannot be sent, since it is not JSON data: {error}.") from error


def _query_text(value: Any) -> str:
    return value if isinstance(value, str) else format(value)


def _text(error: Exception) -> str:
    if isinstance(error, httpx2.ReadTimeout):
        return "nothing was heard for too long"
    return str(error) or type(error).__name__


def _media(response: httpx2.Response) -> str:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower() or "no stated type"


def _is_json(response: httpx2.Response) -> bool:
    return _media(response) == "application/json"


async def _read(response: httpx2.Response, limit: int) -> bytes | None:
    """Return a body; None if it is larger than anything that is sent."""
    body = bytearray()
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > limit:
            return None
    return bytes(body)


def _refused(body: bytes | None) -> dict[str, Any] | None:
    """Return why a request was refused; None if it is not a server of ours that says so."""
    try:
        data: object = msgspec.json.decode(body or b"")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    found: object = cast("dict[str, object]", data).get("error") if isinstance(data, dict) else None
    facts = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    return facts if isinstance(facts.get("code"), str) and isinstance(facts.get("message"), str) else None


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 7 else None
