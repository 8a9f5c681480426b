"""Errors over HTTP: which status each has, and a body that says what to do."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from adjourn import errors
from adjourn._hiding import logger
from adjourn._text import visible_line
from adjourn.errors import AdjournError, StoreError, text_of

from ._api import Refusal, Refused

log = logger("adjourn.server")

EVENTS = "GET /api/v1/sessions/{id}/events"


_STATUS: dict[type[Exception], tuple[int, str]] = {
    errors.CheckpointNotFound: (404, "Check the session id, or begin a session with POST /api/v1/chat."),
    errors.SessionBusy: (409, f"Follow it with {EVENTS}, stop it with POST .../cancel, or choose on_busy."),
    errors.PendingInterrupts: (409, "Answer with POST /api/v1/chat/resume, or give up on them: on_pending 'abandon'."),
    errors.UnfinishedRun: (409, "Finish it with POST /api/v1/sessions/{id}/recover, or choose on_pending."),
    errors.AlreadyResumed: (409, f"Somebody was faster. Follow the session with {EVENTS}."),
    errors.StaleCheckpoint: (409, "Look at what is open now: GET /api/v1/sessions/{id}. Then answer that."),
    errors.ApprovalSpent: (
        409,
        "POST /api/v1/sessions/{id}/recover goes on at the head. An admin can fork where it is asked again.",
    ),
    errors.ProgramChanged: (
        409,
        "Name the agent that began the session: GET /api/v1/sessions/{id} says which. If you did, versions differ.",
    ),
    errors.InputRefused: (409, "Remove it with DELETE /api/v1/sessions/{id}/inputs/{input}."),
    errors.InputWithdrawn: (409, "Send it again if it is still wanted."),
    errors.QueueFull: (429, "Wait until some have begun, or remove them: DELETE /api/v1/sessions/{id}/inputs/{input}."),
    errors.Conflict: (409, "Others keep writing this session: try again. If the id is in use, choose another."),
    errors.InterruptExpired: (410, "The question is closed. GET /api/v1/sessions/{id} shows what is open now."),
    errors.AnswerRefused: (403, "Somebody who may answer it has to."),
    errors.InvalidAnswer: (422, "The question's `schema` says what fits. It is still open."),
    errors.UnknownInterrupt: (422, "Use the `id` or the `token` of an open question."),
    errors.StateInvalid: (422, "Send values that fit the agent's state."),
    errors.NotStorable: (422, "Send plain JSON."),
    errors.UsageError: (400, "Change the request."),
    errors.GraphError: (500, "The server's log says more."),
    errors.StoreUnavailable: (503, "Try again soon."),
    errors.StoreError: (500, "The server's log says more."),
    errors.AdjournError: (500, "The server's log says more."),
}
"""By class, the nearest of its bases counts: the status, and what to do in terms of requests."""


def _status(kind: type[AdjournError]) -> tuple[int, str]:
    return next(_STATUS[base] for base in kind.__mro__ if base in _STATUS)


_FACTS = [
    name
    for name in Refusal.__struct_fields__
    if name not in ("code", "message", "hint", "agents", "allowed", "interrupts", "limit", "seq")
]
"""Attributes of errors of the library that a client may want."""


def code_of(name: str) -> str:
    """Return the code of an error for programs."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|\s+", "_", name).lower()


_KINDS = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, AdjournError)]

CODES: dict[str, int] = {
    **{code_of(each.__name__): _status(each)[0] for each in _KINDS if not issubclass(each, errors.UsageError)},
    "agent_not_found": 404,
    "draining": 503,
    "events_gone": 410,
    "forbidden": 403,
    "foreign_origin": 403,
    "handed_over": 503,
    "headers_too_large": 431,
    "idempotency_key_reused": 422,
    "input_not_found": 404,
    "internal_error": 500,
    "invalid_event_id": 400,
    "invalid_json": 400,
    "invalid_request": 400,
    "media_not_allowed": 422,
    "method_not_allowed": 405,
    "not_found": 404,
    "nothing_to_do": 400,
    "request_in_progress": 409,
    "too_deep": 400,
    "too_large": 413,
    "too_many_requests": 429,
    "too_slow": 408,
    "unauthenticated": 401,
    "unavailable": 503,
    "unknown_host": 421,
    "unsupported_media_type": 415,
    "values_refused": 422,
}
"""The status of every code that a refusal may have."""


class ApiError(Exception):
    """A request that is refused, with what its sender is told: a code for programs, the rest for people, and facts."""

    def __init__(self, code: str, message: str, hint: str, **facts: Any) -> None:  # Any: JSON data
        super().__init__(message)
        self.status: int = CODES[code]
        self.told: Refusal = Refusal(code=code, message=message, hint=hint, **facts)
        self.headers: dict[str, str] = {"retry-after": "2"} if self.status in (429, 503) else {}


def api_error(error: Exception) -> ApiError:
    """Return how an error is told to a client; what is not about the request is only logged."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, HTTPException):
        return ApiError(code_of(error.detail), f"{error.detail}.", "GET /openapi.json lists what there is.")
    if isinstance(error, AdjournError):
        return _of_library(error)
    # The server that runs the application logs it.
    return ApiError("internal_error", "The server could not do this.", "The server's log says more.")


def _of_library(error: AdjournError) -> ApiError:
    status, hint = _status(type(error))
    if isinstance(error, errors.UsageError):
        return ApiError("invalid_request", text_of(error), hint)
    if isinstance(error, StoreError) and status >= 500:
        log.warning("the store: %s", visible_line(text_of(error)))
        message = "The store cannot be reached at the moment." if status == 503 else "What is stored cannot be used."
        return ApiError(code_of(type(error).__name__), message, hint)
    if isinstance(error, errors.CheckpointNotFound) and error.checkpoint_id is not None:
        hint = "GET /api/v1/sessions/{id}/checkpoints lists those that there are."
    facts = {name: getattr(error, name) for name in _FACTS if getattr(error, name, None) is not None}
    return ApiError(code_of(type(error).__name__), text_of(error), hint, **facts)


def error_code(error: Exception) -> str:
    """Return the code that an error has for a client."""
    if isinstance(error, ApiError):
        return error.told.code
    if isinstance(error, errors.UsageError):
        return "invalid_request"
    return code_of(type(error).__name__) if isinstance(error, AdjournError) else "internal_error"


def error_body(error: ApiError) -> bytes:
    """Return the body of a refusal."""
    return msgspec.json.encode(Refused(error=error.told))


def error_response(error: ApiError) -> Response:
    """Return the response of a refusal."""
    return Response(error_body(error), error.status, error.headers, media_type="application/json")


async def on_error(request: Request, error: Exception) -> Response:
    """Answer a request that has failed."""
    response = error_response(api_error(error))
    if isinstance(error, HTTPException) and error.headers:
        response.headers.update(error.headers)
    return response


HANDLERS = dict.fromkeys((ApiError, AdjournError, HTTPException, Exception), on_error)
"""Every error has a body that says what to do."""
