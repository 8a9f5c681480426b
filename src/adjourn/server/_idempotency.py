"""Requests that are sent again: under one Idempotency-Key a request counts once, and has the same answer again.

What a key stands for is kept in the store, as inputs that wait for ever in a session of an app of the library's own:
the store takes one input of each id, so of those who send a request at the same time, one succeeds.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Awaitable, Callable
from urllib.parse import unquote
from uuid import uuid4

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from adjourn._hiding import logger
from adjourn._owner import is_dead, process_id
from adjourn._text import visible_line
from adjourn.errors import AdjournError, CheckpointNotFound, Conflict, text_of
from adjourn.sessions import Sessions
from adjourn.stores import Store
from adjourn.stores.types import OWN_APPS, Input, SessionRef

from ._agents import Agents
from ._callers import Caller, Callers
from ._errors import ApiError
from ._sse import EventStream
from ._streams import Streams, session_header
from ._wire import read_body

log = logger("adjourn.server")

KEPT = 86_400.0
"""Seconds for which an answer is kept."""

LOST = 3600.0
"""Seconds after which a request without an answer was cut off, by a process of another machine that is gone."""

Handler = Callable[[Request], Awaitable[Response]]

_REQUEST, _ANSWER = "request", "answer"


def key_of(request: Request) -> str | None:
    """Return what stands for the key of a request, and for whose it is."""
    return getattr(request.state, "key", None)


class _Asked(msgspec.Struct, frozen=True):
    """A request that somebody handles."""

    digest: str
    owner: str
    nonce: str
    at: float


class _Given(msgspec.Struct, frozen=True, kw_only=True):
    """What was answered: a body, or the stream of a turn, which is read again."""

    status: int
    body: bytes = b""
    session_id: str | None = None
    after: int | None = None
    input_id: str | None = None


class Idempotency:
    """Lets a request count once under its key."""

    def __init__(self, agents: Agents, streams: Streams, callers: Callers, *, max_body: int) -> None:
        self._agents = agents
        self._store: Store = agents.store
        self._streams = streams
        self._callers = callers
        self._max_body = max_body
        self._app = f"{OWN_APPS}{agents.app_name}:keys"

    def once(self, handle: Handler) -> Handler:
        """Return a handler that handles a request with a key once."""

        async def handle_once(request: Request) -> Response:
            key = request.headers.get("idempotency-key")
            if key is None:
                return await handle(request)
            if not (key.isascii() and key.isprintable() and 0 < len(key) <= 255):
                message = "The Idempotency-Key is not 1 to 255 printable ASCII characters."
                raise ApiError(400, "invalid_request", message, "Send another one, such as a UUID.")
            return await self._handle(request, handle, self._callers.of(request), key)

        return handle_once

    async def clean_up(self) -> None:
        """Forget the answers that are old."""
        await Sessions(self._store, app_name=self._app).clean_up(KEPT, statuses=["queued"])

    async def _handle(self, request: Request, handle: Handler, caller: Caller, key: str) -> Response:
        body = await read_body(request, self._max_body)
        digest = hashlib.sha256(b"\0".join([request.method.encode(), request.url.path.encode(), body])).hexdigest()
        # A token that is only for some agents must not get what another token of the same name was answered.
        whose = [caller.name or "", *(caller.agents if caller.is_limited else ())]
        name = hashlib.sha256("\0".join([*whose, key]).encode()).hexdigest()
        request.state.key = name
        ref = SessionRef(name, self._app, None)
        given = await self._claim(ref, digest)
        if given is not None:
            return await self._again(given, caller)
        try:
            response = await handle(request)
        except BaseException:
            await self._store.withdraw(ref, _REQUEST)  # Nothing was done, so it may be sent again.
            raise
        try:
            await self._store.submit(ref, Input(id=_ANSWER, body=msgspec.json.encode(_given(response))))
        except AdjournError as error:
            # It was done, so its sender has to hear of it.
            log.warning("an answer could not be kept for its key: %s", visible_line(text_of(error)))
        return response

    async def _claim(self, ref: SessionRef, digest: str) -> _Given | None:
        """Return what was answered before; None if it is this request's to be answered.

        Raises:
            ApiError: the key was used for another request, or for one that is still being handled.
        """
        asked = _Asked(digest, process_id(), uuid4().hex, time.time())
        for _ in range(2):
            try:
                await self._store.submit(ref, Input(id=_REQUEST, body=msgspec.json.encode(asked)))
            except Conflict:
                given = await self._find(ref, digest)
                if given is not None:
                    return given
            else:
                return None
        raise _in_progress()

    async def _find(self, ref: SessionRef, digest: str) -> _Given | None:
        """Return what was answered before; None if whoever should have answered is gone."""
        try:
            kept = {each.id: each.body for each in await self._store.inputs(ref)}
        except CheckpointNotFound:
            return None  # It was withdrawn just now.
        if _REQUEST not in kept:
            return None
        asked = msgspec.json.decode(kept[_REQUEST], type=_Asked)
        if asked.digest != digest:
            raise ApiError(
                422,
                "idempotency_key_reused",
                "This Idempotency-Key was used for another request.",
                "Send each request under a key of its own, and only the same one again.",
            )
        if _ANSWER in kept:
            return msgspec.json.decode(kept[_ANSWER], type=_Given)
        if not is_dead(asked.owner) and time.time() - asked.at < LOST:
            raise _in_progress()
        await self._store.withdraw(ref, _REQUEST)
        return None

    async def _again(self, given: _Given, caller: Caller) -> Response:
        """Answer as before; the stream of a turn is read again from its beginning."""
        headers = {"idempotent-replayed": "true"}
        if given.session_id is None or given.after is None:
            if given.session_id is not None:
                headers |= session_header(given.session_id)
            return Response(given.body, given.status, headers, media_type="application/json")
        agent = await self._agents.of_session(given.session_id, caller)
        runner, user_id = agent.runner, caller.user_id
        run = runner.attach(given.session_id, after=given.after, input_id=given.input_id, user_id=user_id)
        if given.input_id is not None:
            response = self._streams.of_input(run, runner, given.input_id, given.after, user_id)
        else:
            await run.start()
            run.since = given.after
            response = self._streams.of(run.watch(), runner, given.session_id, user_id, is_turn=True)
        response.headers.update(headers)
        return response


def _given(response: Response) -> _Given:
    header = response.headers.get("x-session-id")
    session_id = None if header is None else unquote(header)
    if isinstance(response, EventStream):
        return _Given(
            status=response.status_code, session_id=session_id, after=response.after, input_id=response.input_id
        )
    return _Given(status=response.status_code, body=bytes(response.body), session_id=session_id)


def _in_progress() -> ApiError:
    return ApiError(
        409,
        "request_in_progress",
        "A request with this Idempotency-Key is being handled.",
        "Send it again when that has ended.",
    )
