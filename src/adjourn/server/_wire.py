"""What comes in and goes out: bodies and queries of requests as structs; structs and events as JSON."""

from __future__ import annotations

import re
from typing import Any, TypeVar
from urllib.parse import unquote

import msgspec
from msgspec import UNSET
from msgspec.structs import replace
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from adjourn import errors
from adjourn._documents import plain, questions
from adjourn.events import Custom, Done, Event, Failed, Interrupted, MessageEvent, NodeEnd, Retrying

from ._api import MayBeLeftOut, MessageSaid, Paused, Said
from ._errors import ApiError

T = TypeVar("T", bound=msgspec.Struct)


async def read(request: Request, kind: type[T], limit: int) -> T:
    """Return the body of a request.

    Raises:
        ApiError: it is too large, not JSON, or does not fit.
    """
    if (
        issubclass(kind, MayBeLeftOut)
        and request.headers.get("content-length") in (None, "0")
        and not _is_chunked(request)
    ):
        return kind()
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/json":
        # Pages of other origins can send forms and plain text without asking, but not this.
        raise ApiError(
            "unsupported_media_type", f"The body is {media or 'of no stated type'}.", "Send application/json."
        )
    body = await read_body(request, limit)
    _check_depth(body)
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise _misfit("body", kind, error) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ApiError("invalid_json", f"The body cannot be read as JSON: {error}.", "Send JSON.") from None


def query(request: Request, kind: type[T]) -> T:
    """Return the query of a request.

    Raises:
        ApiError: it does not fit.
    """
    pairs = request.query_params.multi_items()
    given = dict(pairs)
    if len(given) < len(pairs):
        raise _misfit("query", kind, "a parameter comes twice")
    try:
        found = msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _misfit("query", kind, error) from None
    for each in msgspec.structs.fields(kind):
        if each.encode_name in given and getattr(found, each.name) is None:
            # msgspec reads "null" where a number may be left out: what selects would select nothing.
            raise _misfit("query", kind, f"Expected a value, got null - at `$.{each.encode_name}`")
    return found


def named(request: Request, name: str) -> str:
    """Return a part of the path of a request: routes are found by the path as it was sent, so ids may have slashes."""
    return unquote(request.path_params[name])


def only(request: Request, name: str) -> str | None:
    """Return a header of a request, None if it has none.

    Raises:
        ApiError: it has several, and nobody can say which one counts.
    """
    found = request.headers.getlist(name)
    if len(found) > 1:
        raise ApiError("invalid_request", f"The header {name} comes {len(found)} times.", "Send it once.")
    return found[0] if found else None


def _misfit(what: str, kind: type[Any], error: msgspec.ValidationError | str) -> ApiError:
    fields = ", ".join(each.encode_name for each in msgspec.structs.fields(kind))
    return ApiError("invalid_request", f"The {what} does not fit: {error}.", f"Its fields are: {fields}.")


def _is_chunked(request: Request) -> bool:
    return "transfer-encoding" in request.headers


DEPTH = 64
"""How deeply what is sent may be nested."""

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def _check_depth(body: bytes) -> None:
    if body.count(b"[") + body.count(b"{") <= DEPTH:
        return
    depth = 0
    for byte in _STRING.sub(b"", body).translate(None, _NOT_BRACKETS):
        depth += 1 if byte in b"[{" else -1
        if depth > DEPTH:
            message = f"The body is nested more deeply than {DEPTH} levels."
            raise ApiError("too_deep", message, "Send data that is flatter.")


WASTE = 8
"""How many times as much as is allowed is read and thrown away, so that its sender gets to read the refusal."""


async def read_body(request: Request, limit: int) -> bytes:
    """Return the bytes of a request's body, however often it is asked for.

    Raises:
        ApiError: there are too many of them.
    """
    if not hasattr(request.state, "body"):
        request.state.body = await _body(request, limit)
    return request.state.body


async def _body(request: Request, limit: int) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:20]) > WASTE * limit:
        refusal = _too_large(limit)
        refusal.headers = {"connection": "close"}  # Nobody reads what is on its way.
        raise refusal
    body, size = bytearray(), 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size <= limit:
                body += chunk
            elif size > WASTE * limit:
                break
    except ClientDisconnect:  # The server would log it as a failure of its own.
        raise ApiError("invalid_json", "The client left within the body.", "Send all of it.") from None
    if size <= limit:
        return bytes(body)
    raise _too_large(limit)


def _too_large(limit: int) -> ApiError:
    return ApiError("too_large", f"The body is larger than {limit} bytes.", "Send less at once.")


_encoder = msgspec.json.Encoder(enc_hook=repr)


def encode(data: Any) -> bytes:  # Any: structs and JSON data
    """Return data as JSON."""
    return _encoder.encode(data)


def respond(data: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:  # Any: as above
    """Return a response with JSON."""
    return Response(encode(data), status, headers, media_type="application/json")


# Events

_QUOTING = (errors.ModelError, errors.RetryExhausted, errors.StoreUnavailable)
"""Errors of the library that repeat what others have said: code of the agent, the provider of a model, or a store."""

_OWN = frozenset(
    name for name, kind in vars(errors).items() if isinstance(kind, type) and not issubclass(kind, _QUOTING)
)

_UNSAID = "The agent failed. The server's log says why."


def event_json(event: Event, session_id: str) -> bytes:
    """Return an event as clients get it: user data as plain JSON, and a pause with its first question on top."""
    match event:
        case Interrupted(interrupts=asked):
            reason, prompt = (asked[0].reason, asked[0].prompt) if asked else (UNSET, UNSET)
            return encode(
                Paused.of(
                    event,
                    path=event.path,
                    reason=reason,
                    prompt=prompt,
                    session_id=session_id,
                    interrupts=questions(asked),
                )
            )
        case MessageEvent(message=said):
            return encode(MessageSaid.of(event, path=event.path, message=Said.of_message(said)))
        case Custom(data=data):
            return encode(replace(event, data=plain(data)))
        case Done(state=state) if state is not None:
            return encode(replace(event, state=plain(dict(state))))
        case Failed() | NodeEnd() | Retrying():
            return encode(_discreet(event))
        case _:
            return encode(event)


def _discreet(event: Failed | NodeEnd | Retrying) -> Event:
    """Return an event without what code of the agent raised, but for its type."""
    if isinstance(event, Failed):
        return replace(event, message=failure_text(event.error, event.message))
    kind = (event.error or "").partition(":")[0]
    return replace(event, error=kind) if kind and kind not in _OWN else event


def failure_text(kind: str, message: str) -> str:
    """Return why a run failed, for clients: what code of the agent raised may hold anything, and stays here."""
    return message if kind in _OWN else _UNSAID
