"""Who may do what: every route is closed except to those whom a table lets in, and to pages of other origins."""

from __future__ import annotations

import inspect
import ipaddress
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeAlias
from urllib.parse import urlsplit

import msgspec
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from adjourn._hiding import logger
from adjourn._text import visible_line
from adjourn.errors import UsageError

from ._agents import Agents
from ._api import Access, Row
from ._callers import Caller, Callers, everybody
from ._errors import ApiError, error_response
from ._limits import Usage, hurried
from ._sse import EventStream
from ._tokens import Tokens
from ._wire import named

log = logger("adjourn.server")

Identify: TypeAlias = Callable[[Request], Caller | Awaitable[Caller | None] | None]
"""Finds out who makes a request; None if nobody whom the server knows."""


Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]


class Guard:
    """Lets callers in, or tells them why not."""

    def __init__(
        self,
        agents: Agents,
        callers: Callers,
        usage: Usage,
        tokens: Tokens | None,
        identify: Identify | None,
        opened: frozenset[str] = frozenset(),
    ) -> None:
        """Let in those who have tokens, or whom a function knows; without either, everybody.

        The routes with the names in `opened` let in anybody, whatever the table says.

        Raises:
            UsageError: both are given.
        """
        if tokens is not None and identify is not None:
            raise UsageError("App: give tokens, or identify, but not both.")
        self._agents = agents
        self._callers = callers
        self._usage = usage
        self._tokens = tokens
        self._identify = identify
        self._opened = opened

    @property
    def is_closed(self) -> bool:
        """Whether callers have to say who they are."""
        return self._tokens is not None or self._identify is not None

    def is_open(self, row: Row) -> bool:
        """Return whether anybody may use a route."""
        return row.access is Access.OPEN or row.name in self._opened

    def closed(self, row: Row, endpoint: Endpoint) -> Endpoint:
        """Return what lets in whom a route is for, and nobody else."""
        if self.is_open(row):
            return endpoint

        async def closed(request: Request) -> Response:
            known = await self._caller(request)
            caller = admitted(known, row.access)
            self._usage.open(caller)
            try:
                response = await self._answered(request, endpoint, row, caller)
            except BaseException:
                self._usage.close(caller)
                raise
            if isinstance(response, EventStream):
                response.may_go_on = lambda: self._still_knows(request, known)
            return self._usage.held(caller, response)

        return closed

    async def _answered(self, request: Request, endpoint: Endpoint, row: Row, caller: Caller) -> Response:
        if caller.is_limited and "id" in request.path_params and row.access is not Access.OWN:
            await self._agents.reader_of(named(request, "id"), caller)
        self._callers.admit(request, caller)
        if not row.begins:
            return await endpoint(request)
        with self._usage.turn(caller) as headers:
            response = await endpoint(request)
        response.headers.update(headers)
        return response

    async def _caller(self, request: Request) -> Caller:
        try:
            if self._tokens is not None:
                found = self._of_token(request, self._tokens)
            elif self._identify is not None:
                said = self._identify(request)
                found = await said if inspect.isawaitable(said) else said
            else:
                return everybody()
        except UsageError as error:  # The operator's mistake, which is nothing for a client to read.
            log.error("nobody is let in: %s", visible_line(str(error)))
            message = "Callers cannot be told apart at the moment."
            raise ApiError("unavailable", message, "Try again soon.") from None
        if found is None:
            refusal = ApiError(
                "unauthenticated",
                "The request has no token that is known here.",
                "Send `Authorization: Bearer adj_...`; `adjourn token create` makes a token.",
            )
            refusal.headers = {"www-authenticate": "Bearer"}
            raise refusal
        return found

    def _still_knows(self, request: Request, caller: Caller) -> bool:
        """Return whether a token that was good is so still: a stream may be open for longer than that."""
        if self._tokens is None:
            return True
        try:
            return self._of_token(request, self._tokens) == caller
        except UsageError:
            return False

    def _of_token(self, request: Request, tokens: Tokens) -> Caller | None:
        texts = request.headers.getlist("authorization") or request.headers.getlist("x-api-key")
        if len(texts) != 1:
            return None
        kind, _, rest = texts[0].partition(" ")
        if "authorization" in request.headers:
            text = rest.strip() if kind.lower() == "bearer" else ""
        else:
            text = texts[0].strip()
        return tokens.caller(text)


def admitted(caller: Caller, access: Access) -> Caller:
    """Return a caller as a route sees them.

    Raises:
        ApiError: they may not use it.
    """
    if access is Access.LOOK and caller.has("use", "review", "admin"):
        return msgspec.structs.replace(caller, is_wide=caller.has("review", "admin"))
    if access is Access.OWN and caller.has("use", "admin"):
        return msgspec.structs.replace(caller, is_wide=False)
    if access is Access.CHANGE and caller.has("use", "admin"):
        return msgspec.structs.replace(caller, is_wide=caller.has("admin"))
    if access is Access.METRICS and caller.has("metrics", "admin") and not caller.is_limited:
        return msgspec.structs.replace(caller, is_wide=True)
    if access is Access.ADMIN and caller.has("admin"):
        return msgspec.structs.replace(caller, is_wide=True)
    raise ApiError(
        "forbidden",
        "Your roles do not let you do this.",
        f"It is for {access.value}. `adjourn token create --role ROLE` makes a token with another role.",
    )


# Browsers

LOOPBACK = ("localhost", "127.0.0.1", "::1")

SECURITY_HEADERS = {
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""What every answer has, unless it says otherwise: it is data, and nothing for a browser to show or keep."""

_ADDED = [(name.encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]
_SAFE = ("GET", "HEAD", "OPTIONS")


class Fence:
    """Keeps out what web pages make browsers send: to names that are not this server's, and from other origins.

    A page whose name is made to lead to this machine (DNS rebinding) still sends its own name as Host. Numbers are let
    through, as no page can have a number lead elsewhere.
    """

    def __init__(self, app: ASGIApp, *, hosts: Iterable[str], origins: Iterable[str], upload: float) -> None:
        """Let through requests to these hosts ("*" for all), and from pages of these origins.

        Their bodies have to arrive within `upload` seconds.

        Raises:
            UsageError: an origin is not one.
        """
        self._hosts = {host.lower() for host in (*hosts, *LOOPBACK)}
        self._origins = frozenset(origins)
        self._upload = upload
        for origin in self._origins:
            if (wanted := _origin(origin)) != origin:
                raise UsageError(f"App(origins=...): {origin!r} is not an origin. Write it as {wanted!r}.")
        self._app = app
        if self._origins:
            self._app = CORSMiddleware(
                app,
                allow_origins=sorted(self._origins),
                allow_methods=["GET", "POST", "DELETE"],
                allow_headers=["authorization", "content-type", "idempotency-key", "last-event-id", "x-api-key"],
                expose_headers=["x-session-id", "content-location", "idempotent-replayed", "retry-after"],
            )

    def let_in(self, host: str) -> None:
        """Let through requests to one more host."""
        self._hosts.add(host.lower())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            self._check(Request(scope))
        except ApiError as refusal:
            await error_response(refusal)(scope, receive, _with_headers(send))
        else:
            # Of others nobody reads a body, and a stream waits for the client to leave.
            received = receive if scope["method"] in _SAFE else hurried(receive, self._upload)
            await self._app(scope, received, _with_headers(send))

    def _check(self, request: Request) -> None:
        hosts, origins = request.headers.getlist("host"), request.headers.getlist("origin")
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            raise ApiError(
                "unknown_host",
                "This server is not known under the name in the Host header.",
                "Use its address, or name it with `adjourn serve --allow-host NAME`, or App(hosts=[...]).",
            )
        if len(origins) > 1 or not all(self._is_from_ours(each, hosts[0]) for each in origins):
            raise _foreign()
        site = request.headers.get("sec-fetch-site", "none")
        if not origins and request.method not in _SAFE and site in ("cross-site", "same-site"):
            raise _foreign()

    def _is_ours(self, host: str) -> bool:
        name = _name(host)
        return "*" in self._hosts or name in self._hosts or _is_address(name)

    def _is_from_ours(self, origin: str, host: str) -> bool:
        # Not the scheme: behind a proxy, only the browser knows that it is https.
        return origin in self._origins or _origin(origin).partition("://")[2].lower() == host.lower()


def _foreign() -> ApiError:
    return ApiError(
        "foreign_origin",
        "Pages of this origin may not use the server.",
        "Allow it with `adjourn serve --allow-origin ORIGIN`, or App(origins=[...]).",
    )


def _origin(text: str) -> str:
    try:
        found = urlsplit(text)
    except ValueError:
        return "://"
    return f"{found.scheme}://{found.netloc}"


_HOST = re.compile(r"(?:\[(?P<six>[^\]]+)\]|(?P<name>[^:\[\]]+))(?::\d*)?")


def _name(host: str) -> str:
    """Return the name or number in a Host header, without its port."""
    found = _HOST.fullmatch(host)
    return "" if found is None else (found["six"] or found["name"]).lower()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Return whether only this machine can connect to a host."""
    return host in LOOPBACK or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = list(message.get("headers", ()))
            names = {name.lower() for name, _ in given}
            message = {**message, "headers": [*given, *(pair for pair in _ADDED if pair[0] not in names)]}
        await send(message)

    return send_with_headers
