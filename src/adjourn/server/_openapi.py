"""The OpenAPI document of the server: its routes by name, and the structs that they read and send as JSON Schemas.

It is of version 3.2, which can describe the frames of a stream. A route without a description here fails a test.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, cast

import msgspec
from starlette.routing import BaseRoute, Route

from adjourn.runner import Submission

from . import _answers as sent
from ._agui_data import RunInput
from ._errors import library_codes
from ._inbox import Heard, Wanted
from ._place import PLACE
from ._sessions import At, Between, Cancel, Edit, Fork, History, Listing, Submit
from ._wire import Answering, Chat, Following, Recover, Resume

Json: TypeAlias = dict[str, Any]  # Any: JSON data

CODES: dict[str, int] = {
    **library_codes(),
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

_ANYWHERE = (
    "internal_error",
    "invalid_request",
    "store_unavailable",
    "checkpoint_corrupt",
    "checkpoint_too_new",
    "missing_key",
    "store_error",
    "unauthenticated",
    "unavailable",
    "forbidden",
    "foreign_origin",
    "headers_too_large",
    "too_slow",
    "unknown_host",
    "too_many_requests",
)
_WITH_BODY = ("invalid_json", "too_deep", "too_large", "unsupported_media_type")
_ONCE = ("request_in_progress", "idempotency_key_reused", "conflict")
_SESSION = ("checkpoint_not_found",)
_AGENT = (*_SESSION, "program_changed")
_TAKEN = ("draining", "queue_full", "session_busy", "conflict", "program_changed", "not_storable", "state_invalid")
_RUN = (*_TAKEN, "handed_over")
_ANSWER = (
    "already_resumed",
    "answer_refused",
    "interrupt_expired",
    "invalid_answer",
    "media_not_allowed",
    "stale_checkpoint",
    "unknown_interrupt",
)


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """What one route does: the structs that it reads and sends, and the codes of its refusals."""

    name: str
    summary: str
    status: int = 200
    body: Any = None  # Any: types, which structs and unions of them are
    is_body_needed: bool = True
    query: Any = None
    answer: Any = None
    frames: Any = None
    text: str | None = None
    takes_key: bool = True
    """Whether it counts once with an `Idempotency-Key`, as what is posted does."""
    refusals: tuple[str, ...] = ()


_ONE = "/api/v1/sessions/{id}"
_TURN = (sent.TurnResult, sent.FailedTurn)

OPERATIONS: dict[str, Operation] = {
    "GET /healthz": Operation(name="health", summary="Say that the process works.", answer=sent.State),
    "GET /readyz": Operation(
        name="readiness",
        summary="Say whether requests should be sent here: not while the server stops, or its store is away.",
        answer=sent.State,
        refusals=("draining",),
    ),
    "GET /metrics": Operation(
        name="metrics", summary="Count what the server does, and what waits, for Prometheus.", text="text/plain"
    ),
    "GET /openapi.json": Operation(name="describe", summary="Describe the API.", answer=dict[str, Any]),
    "GET /api/v1/agents": Operation(name="list_agents", summary="List the agents.", answer=sent.AgentList),
    "POST /api/v1/chat": Operation(
        name="chat",
        summary="Send a message to an agent, and read the turn that it begins.",
        body=Chat,
        answer=_TURN,
        frames=sent.SessionFrame,
        refusals=(
            *_RUN,
            *_SESSION,
            "agent_not_found",
            "media_not_allowed",
            "pending_interrupts",
            "unfinished_run",
            "already_resumed",
            "invalid_answer",
            "answer_refused",
            "interrupt_expired",
            "input_refused",
            "input_withdrawn",
            "values_refused",
        ),
    ),
    "POST /api/v1/chat/resume": Operation(
        name="resume",
        summary="Answer the questions of a session, and read how it goes on.",
        body=Resume,
        answer=_TURN,
        frames=sent.SessionFrame,
        refusals=(*_AGENT, *_RUN, *_ANSWER),
    ),
    "POST /api/v1/ag-ui/{agent}": Operation(
        name="run_agui",
        summary="Run an agent for a front end that speaks AG-UI; what is refused is an event of the stream, too.",
        body=RunInput,
        takes_key=False,
        frames=sent.AgUiEvent,
        refusals=("draining", "agent_not_found"),
    ),
    "GET /api/v1/ag-ui/{agent}/threads/{id}": Operation(
        name="show_agui_thread",
        summary="Show a thread to a front end that speaks AG-UI: its messages, and the questions that are open.",
        answer=sent.AgUiThread,
        refusals=(*_AGENT, "agent_not_found"),
    ),
    f"POST {_ONE}/recover": Operation(
        name="recover",
        summary="Go on with a turn that failed, was cancelled, or lost its process.",
        body=Recover,
        is_body_needed=False,
        answer=_TURN,
        frames=sent.SessionFrame,
        refusals=(*_AGENT, *_RUN, "pending_interrupts"),
    ),
    f"GET {_ONE}/events": Operation(
        name="read_events",
        summary="Read a session from any event on: what was missed, a `caught_up` frame, then what happens.",
        query=Following,
        frames=sent.SessionFrame,
        refusals=(*_AGENT, "invalid_event_id", "events_gone"),
    ),
    "GET /api/v1/inbox": Operation(
        name="list_questions",
        summary="List the open questions of all sessions, oldest first.",
        query=Wanted,
        answer=sent.QuestionPage,
        refusals=_SESSION,
    ),
    "GET /api/v1/inbox/events": Operation(
        name="read_inbox",
        summary="Read the open questions of all sessions, then what happens to them.",
        query=Heard,
        frames=sent.InboxFrame,
    ),
    "GET /api/v1/sessions": Operation(
        name="list_sessions",
        summary="List sessions, most recently written first.",
        query=Listing,
        answer=sent.SessionPage,
    ),
    f"GET {_ONE}": Operation(
        name="show_session",
        summary="Show a session with its open questions.",
        answer=sent.SessionView,
        refusals=_SESSION,
    ),
    f"DELETE {_ONE}": Operation(
        name="delete_session",
        summary="Remove a session.",
        status=204,
        refusals=(*_AGENT, "session_busy", "conflict"),
    ),
    f"GET {_ONE}/messages": Operation(
        name="list_messages", summary="List the conversation.", answer=sent.Conversation, refusals=_AGENT
    ),
    f"GET {_ONE}/audit": Operation(
        name="list_audit", summary="List every question with who answered it.", answer=sent.Audit, refusals=_SESSION
    ),
    f"GET {_ONE}/questions/{{question}}": Operation(
        name="show_question",
        summary="Show a question, by its id or token: open, or how it ended.",
        answer=sent.AuditedQuestion,
        refusals=(*_SESSION, "unknown_interrupt"),
    ),
    f"POST {_ONE}/answers": Operation(
        name="answer",
        summary="Record answers without waiting for what follows.",
        status=202,
        body=Answering,
        answer=sent.SessionEntry,
        refusals=(*_AGENT, *_ANSWER, "conflict", "not_storable"),
    ),
    f"POST {_ONE}/cancel": Operation(
        name="cancel",
        summary="Stop the run of a session, wherever it runs.",
        status=202,
        body=Cancel,
        is_body_needed=False,
        answer=sent.CancelAsked,
        refusals=(*_AGENT, "conflict"),
    ),
    f"GET {_ONE}/inputs": Operation(
        name="list_inputs",
        summary="List the inputs that wait for their turn.",
        answer=sent.InputList,
        refusals=_SESSION,
    ),
    f"POST {_ONE}/inputs": Operation(
        name="submit",
        summary="Store the input of a turn, which begins when those before it have ended.",
        status=202,
        body=Submit,
        answer=Submission,
        refusals=(
            *_TAKEN,
            *_SESSION,
            "agent_not_found",
            "media_not_allowed",
            "pending_interrupts",
            "unfinished_run",
            "values_refused",
        ),
    ),
    f"DELETE {_ONE}/inputs/{{input}}": Operation(
        name="withdraw",
        summary="Remove an input that waits for its turn.",
        status=204,
        refusals=(*_SESSION, "input_not_found", "conflict"),
    ),
    f"GET {_ONE}/checkpoints": Operation(
        name="list_checkpoints",
        summary="List checkpoints, most recent first, without their states.",
        query=History,
        answer=sent.CheckpointPage,
        refusals=_SESSION,
    ),
    f"GET {_ONE}/checkpoints/{{checkpoint}}": Operation(
        name="show_checkpoint",
        summary="Show a checkpoint with its state.",
        answer=sent.CheckpointView,
        refusals=_AGENT,
    ),
    f"GET {_ONE}/tree": Operation(
        name="show_tree", summary="List all checkpoints as a tree.", answer=sent.CheckpointTree, refusals=_SESSION
    ),
    f"GET {_ONE}/state": Operation(
        name="show_state",
        summary="Show the state at a checkpoint, by default the most recent.",
        query=At,
        answer=sent.StateView,
        refusals=_AGENT,
    ),
    f"GET {_ONE}/diff": Operation(
        name="show_diff",
        summary="Show what differs between two checkpoints.",
        query=Between,
        answer=sent.Difference,
        refusals=_AGENT,
    ),
    f"POST {_ONE}/fork": Operation(
        name="fork",
        summary="Begin a new session as this one was at a checkpoint.",
        status=201,
        body=Fork,
        is_body_needed=False,
        answer=sent.Forked,
        refusals=(*_AGENT, "approval_spent", "conflict"),
    ),
    f"POST {_ONE}/edit": Operation(
        name="edit",
        summary="Change the state by hand, on a new branch.",
        body=Edit,
        answer=sent.CheckpointView,
        refusals=(
            *(*_AGENT, "approval_spent", "session_busy", "conflict"),
            *("node_not_found", "state_invalid", "not_storable"),
        ),
    ),
}
"""Every route, by its method and path."""


def name_of(route: Route) -> str:
    """Return the method and the path of a route, as they are in the document."""
    method = next(iter(sorted((route.methods or set[str]()) - {"HEAD"})))
    return f"{method} {re.sub(r':path}', '}', route.path)}"


def document(routes: Iterable[BaseRoute], is_open: Callable[[str], bool] | None = None) -> Json:
    """Return the description of these routes; callers need tokens except where they are open, which None are all."""
    names = [name_of(route) for route in routes if isinstance(route, Route)]
    schemas = _Schemas(OPERATIONS[name] for name in names)
    paths: dict[str, Json] = {}
    for name in names:
        method, _, path = name.partition(" ")
        operation = OPERATIONS[name]
        described = _operation(operation, path, is_once=method == "POST" and operation.takes_key, schemas=schemas)
        if is_open is not None and is_open(name):
            described["security"] = []
        paths.setdefault(path, {})[method.lower()] = described
    found: Json = {
        "openapi": "3.2.0",
        "info": {"title": "Adjourn", "version": "1"},
        "paths": paths,
        "components": {"schemas": schemas.components, "securitySchemes": {} if is_open is None else _SECURITY},
    }
    if is_open is not None:
        found["security"] = [{name: []} for name in _SECURITY]
    return found


_SECURITY: Json = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A token, as `adjourn token create` makes it."},
    "key": {"type": "apiKey", "in": "header", "name": "X-Api-Key", "description": "The same token."},
}


class _Schemas:
    """The JSON Schemas of all structs that operations read and send."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        types: list[Any] = [sent.Refused, str]
        for each in operations:
            types += [kind for kind in (each.body, *_each(each.answer), each.frames) if kind is not None]
        found, self.components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
        self._by_type = list(zip(types, found, strict=True))

    def of(self, kind: Any) -> Json:  # Any: a type
        """Return the schema of a type, or of any of several."""
        if isinstance(kind, tuple):
            return {"anyOf": [self.of(each) for each in _each(kind)]}
        return next(schema for each, schema in self._by_type if each is kind)


def _each(kinds: Any) -> tuple[Any, ...]:  # Any: a type, or several
    return cast("tuple[Any, ...]", kinds) if isinstance(kinds, tuple) else (kinds,)


def _operation(operation: Operation, path: str, *, is_once: bool, schemas: _Schemas) -> Json:
    described: Json = {"operationId": operation.name, "summary": operation.summary}
    parameters = [*_path_parameters(path), *_query_parameters(operation.query)]
    if operation.frames is sent.SessionFrame:
        parameters.append(_LAST_EVENT_ID)
    if is_once:
        parameters.append(_IDEMPOTENCY_KEY)
    if parameters:
        described["parameters"] = parameters
    refusals = [*_ANYWHERE, *operation.refusals]
    if operation.body is not None:
        content = {"application/json": {"schema": schemas.of(operation.body)}}
        described["requestBody"] = {"required": operation.is_body_needed, "content": content}
        refusals += _WITH_BODY
    if is_once:
        refusals += _ONCE
    described["responses"] = {str(operation.status): _success(operation, is_once, schemas), **_refusals(refusals)}
    return described


def _success(operation: Operation, is_once: bool, schemas: _Schemas) -> Json:
    content: Json = {}
    if operation.answer is not None:
        content["application/json"] = {"schema": schemas.of(operation.answer)}
    if operation.frames is not None:
        content["text/event-stream"] = {"itemSchema": _frame(schemas.of(operation.frames))}
    if operation.text is not None:
        content[operation.text] = {"schema": schemas.of(str)}
    headers: Json = {}
    if operation.frames is sent.SessionFrame:
        headers = {"X-Session-Id": _SESSION_ID, "Content-Location": _CONTENT_LOCATION}
    if is_once:
        headers["Idempotent-Replayed"] = _REPLAYED
    described: Json = {"description": operation.summary}
    if headers:
        described["headers"] = headers
    if content:
        described["content"] = content
    return described


def _frame(data: Json) -> Json:
    """Return the schema of a frame whose data is JSON."""
    return {
        "type": "object",
        "properties": {
            "id": {
                "type": "string",
                "pattern": f"^{PLACE}$",
                "description": "What to come back with: the number of the last durable event; after a `~`, the texts.",
            },
            "event": {"enum": ["message", "live", "closing"]},
            "retry": {"type": "integer", "description": "Milliseconds after which to come back."},
            "data": {"type": "string", "contentMediaType": "application/json", "contentSchema": data},
        },
        "required": ["data"],
    }


def _refusals(codes: Iterable[str]) -> Json:
    by_status: dict[int, set[str]] = {}
    for code in codes:
        by_status.setdefault(CODES[code], set()).add(code)
    return {str(status): _refusal(status, sorted(by_status[status])) for status in sorted(by_status)}


def _refusal(status: int, codes: list[str]) -> Json:
    narrowed = {"properties": {"error": {"properties": {"code": {"enum": codes}}}}}
    schema = {"allOf": [{"$ref": "#/components/schemas/Refused"}, narrowed]}
    described: Json = {"description": ", ".join(codes), "content": {"application/json": {"schema": schema}}}
    if status in (429, 503):
        described["headers"] = {"Retry-After": _RETRY_AFTER}
    return described


def _path_parameters(path: str) -> list[Json]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "minLength": 1},
            "description": "Percent-encoded as a whole, also its slashes.",
        }
        for name in re.findall(r"{(\w+)}", path)
    ]


def _query_parameters(kind: Any) -> list[Json]:  # Any: a type, or None
    if kind is None:
        return []
    (_,), found = msgspec.json.schema_components([kind])
    schema = cast("Json", found[kind.__name__])
    return [
        {"name": name, "in": "query", "required": name in schema["required"], "schema": _of_text(each)}
        for name, each in schema["properties"].items()
    ]


def _of_text(schema: Json) -> Json:
    """Return the schema of what a query can hold: it is left out instead of being null."""
    kinds = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    if len(kinds) == 1:
        return kinds[0]
    if "enum" in schema:
        return {"enum": [each for each in schema["enum"] if each is not None]}
    return schema


_LAST_EVENT_ID: Json = {
    "name": "Last-Event-ID",
    "in": "header",
    "schema": {"type": "string", "pattern": f"^{PLACE}$"},
    "description": "The id of the last frame that was read; `after` is the same for those who cannot send headers.",
}
_IDEMPOTENCY_KEY: Json = {
    "name": "Idempotency-Key",
    "in": "header",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"},
    "description": "Under one key a request counts once, and has the same answer again.",
}
_SESSION_ID: Json = {"schema": {"type": "string"}, "description": "The id of the session, percent-encoded."}
_CONTENT_LOCATION: Json = {"schema": {"type": "string"}, "description": "Where to come back to the stream."}
_REPLAYED: Json = {"schema": {"enum": ["true"]}, "description": "Whether this is the answer of an earlier request."}
_RETRY_AFTER: Json = {"schema": {"type": "string"}, "description": "Seconds after which to try again."}
