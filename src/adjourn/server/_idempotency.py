"""Requests that are sent again: under one Idempotency-Key a request counts once, and has the same answer again.

What a key stands for is kept in the store, as inputs that wait for ever in a session of an app of the library's own:
the store takes one input of each id, so of those who send a request at the same time, one succeeds.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Awaitable, Callable
from typing import Literal
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
from adjourn.stores.kit import ListInputs, Submit, Withdraw
from adjourn.stores.types import OWN_APPS, Input, SessionRef

from ._agents import Agents
from ._api import Row
from ._callers import Caller, Callers
from ._errors import ApiError
from ._sse import EventStream
from ._streams import Streams, session_header
from ._wire import only, read_body

log = logger("adjourn.server")

KEPT = 86_400.0
"""Seconds for which an answer is kept."""

LOST = 60.0
"""Seconds after which a request without an answer was cut off, by a process of another machine that is gone."""

Handler = Callable[[Request], Awaitable[Response]]

_REQUEST, _MEANT, _ANSWER = "request", "meant", "answer"


class Key:
    """The key of a request: a name that stands for it, and for whose it is; and what is kept about the request."""

    def __init__(self, store: Store, ref: SessionRef, digest: str) -> None:
        self._store = store
        self.ref = ref
        # Sessions remember what a request has brought for longer than the key is kept, which may then be used for
        # another request: so it is the digest of the request, too, that tells them apart.
        self._id = hashlib.sha256(f"{ref.id}\0{digest}".encode()).hexdigest()[:32]

    @property
    def name(self) -> str:
        """What inputs and answers that the request brings are called in the session that it is about."""
        return f"key-{self._id}"

    @property
    def session_id(self) -> str:
        """The id of the session that the request begins, if it names none."""
        return self._id

    async def meant(self) -> str | None:
        """Return the question that the request meant when it first came, if it has been noted."""
        kept = {each.id: each.body for each in await self._store.read(ListInputs(self.ref))}
        return kept[_MEANT].decode() if _MEANT in kept else None

    async def mean(self, question: str) -> str:
        """Note which question the request means, and return it: if it came twice, both mean the same."""
        try:
            await self._store.write(Submit(ref=self.ref, input=Input(id=_MEANT, body=question.encode())))
        except Conflict:
            return await self.meant() or question
        return question


def key_of(request: Request) -> Key | None:
    """Return the key of a request, if it has one."""
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
        self._handled: set[str] = set()
        """The requests that this process handles at the moment."""

    def once(self, row: Row, handle: Handler) -> Handler:
        """Return a handler of a route that handles a request with a key once, if the route is one that counts once.

        If others join, it does the same however often it is called under one key, also by several at once: then nobody
        has to wait for anybody, nor to know who is still alive.
        """
        if row.once is None:
            return handle

        async def handle_once(request: Request) -> Response:
            key = only(request, "idempotency-key")
            if key is None:
                return await handle(request)
            if not (key.isascii() and key.isprintable() and 0 < len(key) <= 255):
                message = "The Idempotency-Key is not 1 to 255 printable ASCII characters."
                raise ApiError("invalid_request", message, "Send another one, such as a UUID.")
            return await self._handle(request, handle, key, joins=row.once == "joins")

        return handle_once

    async def clean_up(self) -> None:
        """Forget the answers that are old."""
        await Sessions(self._store, app_name=self._app).clean_up(KEPT, statuses=["queued"])

    async def _handle(self, request: Request, handle: Handler, key: str, *, joins: bool) -> Response:
        caller = self._callers.of(request)
        body = await read_body(request, self._max_body)
        asks = f"{request.method}\0{request.url.path}\0{request.url.query}\0"
        digest = hashlib.sha256(asks.encode() + body).hexdigest()
        # A token that is only for some agents must not get what another token of the same name was answered.
        whose = [caller.name or "", *(caller.agents if caller.is_limited else ())]
        name = hashlib.sha256("\0".join([*whose, key]).encode()).hexdigest()
        ref = SessionRef(name, self._app, None)
        asked = _Asked(digest, process_id(), uuid4().hex, time.time())
        found = await self._claim(ref, asked, joins=joins)
        if isinstance(found, _Given):
            return await self._again(found, caller)
        request.state.key = Key(self._store, ref, digest)
        self._handled.add(asked.nonce)
        try:
            response = await handle(request)
        except BaseException:
            if found:
                await self._withdraw(ref)  # Nothing was done, so it may be sent again.
            raise
        finally:
            self._handled.discard(asked.nonce)
        try:
            await self._store.write(
                Submit(ref=ref, input=Input(id=_ANSWER, body=msgspec.json.encode(_given(response))))
            )
        except Conflict:
            return response  # Somebody else who was sent the same has answered, too.
        except AdjournError as error:
            # It was done, so its sender has to hear of it.
            log.warning("an answer could not be kept for its key: %s", visible_line(text_of(error)))
        return response

    async def _withdraw(self, ref: SessionRef) -> None:
        try:
            await self._store.write(Withdraw(ref, _MEANT))
            await self._store.write(Withdraw(ref, _REQUEST))
        except AdjournError as error:
            log.warning("a key stays in use for now: %s", visible_line(text_of(error)))

    async def _claim(self, ref: SessionRef, asked: _Asked, *, joins: bool) -> _Given | bool:
        """Return what was answered before; else whether it is this request's to be answered, and nobody else's.

        Raises:
            ApiError: the key was used for another request, or for one that is still being handled.
        """
        for _ in range(2):
            try:
                await self._store.write(Submit(ref=ref, input=Input(id=_REQUEST, body=msgspec.json.encode(asked))))
            except Conflict:
                found = await self._find(ref, asked.digest, joins=joins)
                if found is not None:
                    return found
            else:
                return True
        raise _in_progress()

    async def _find(self, ref: SessionRef, digest: str, *, joins: bool) -> _Given | Literal[False] | None:
        """Return what was answered before; None if whoever should have answered is gone, False to join them."""
        try:
            kept = {each.id: each.body for each in await self._store.read(ListInputs(ref))}
        except CheckpointNotFound:
            return None  # It was withdrawn just now.
        if _REQUEST not in kept:
            return None
        asked = msgspec.json.decode(kept[_REQUEST], type=_Asked)
        if asked.digest != digest:
            raise ApiError(
                "idempotency_key_reused",
                "This Idempotency-Key was used for another request.",
                "Send each request under a key of its own, and only the same one again.",
            )
        if _ANSWER in kept:
            return msgspec.json.decode(kept[_ANSWER], type=_Given)
        if joins:
            return False
        if self._may_go_on(asked):
            raise _in_progress()
        await self._store.write(Withdraw(ref, _REQUEST))
        return None

    def _may_go_on(self, asked: _Asked) -> bool:
        """Return whether somebody may still be handling a request."""
        if asked.owner == process_id():
            return asked.nonce in self._handled
        return not is_dead(asked.owner) and time.time() - asked.at < LOST

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
        "request_in_progress",
        "A request with this Idempotency-Key is being handled.",
        "Send it again when that has ended.",
    )
