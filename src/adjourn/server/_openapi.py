"""The OpenAPI document of the server, from the table of its routes: of version 3.2, which can describe streams."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, cast

import msgspec

from ._api import MayBeLeftOut, Refused, Row, SessionFrame
from ._errors import CODES
from ._place import PLACE

Json: TypeAlias = dict[str, Any]  # Any: JSON data

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


def document(rows: Iterable[Row], is_open: Callable[[Row], bool] | None = None) -> Json:
    """Return the description of these routes; callers need tokens except where they are open, which None are all."""
    schemas = _Schemas(rows := list(rows))
    paths: dict[str, Json] = {}
    for row in rows:
        described = _operation(row, schemas)
        if is_open is not None and is_open(row):
            described["security"] = []
        paths.setdefault(row.template, {})[row.method.lower()] = described
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

    def __init__(self, rows: Iterable[Row]) -> None:
        types: list[Any] = [Refused, str]
        for each in rows:
            types += [kind for kind in (each.body, *each.answers, each.frames) if kind is not None]
        found, self.components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
        self._by_type = list(zip(types, found, strict=True))

    def of(self, kind: Any) -> Json:  # Any: a type
        """Return the schema of a type."""
        return next(schema for each, schema in self._by_type if each is kind)


def _operation(row: Row, schemas: _Schemas) -> Json:
    described: Json = {"operationId": row.name, "summary": row.summary}
    parameters = [*_path_parameters(row.template), *_query_parameters(row.query)]
    if row.frames is SessionFrame:
        parameters.append(_LAST_EVENT_ID)
    if row.once:
        parameters.append(_IDEMPOTENCY_KEY)
    if parameters:
        described["parameters"] = parameters
    refusals = [*_ANYWHERE, *row.refusals]
    if row.body is not None:
        content = {"application/json": {"schema": schemas.of(row.body)}}
        described["requestBody"] = {"required": not issubclass(row.body, MayBeLeftOut), "content": content}
        refusals += _WITH_BODY
    if row.once:
        refusals += _ONCE
    described["responses"] = {str(row.status): _success(row, schemas), **_refusals(refusals)}
    return described


def _success(row: Row, schemas: _Schemas) -> Json:
    content: Json = {}
    if found := [schemas.of(each) for each in row.answers]:
        content["application/json"] = {"schema": found[0] if len(found) == 1 else {"anyOf": found}}
    if row.frames is not None:
        content["text/event-stream"] = {"itemSchema": _frame(schemas.of(row.frames))}
    if row.text is not None:
        content[row.text] = {"schema": schemas.of(str)}
    headers: Json = {}
    if row.frames is SessionFrame:
        headers = {"X-Session-Id": _SESSION_ID, "Content-Location": _CONTENT_LOCATION}
    if row.once:
        headers["Idempotent-Replayed"] = _REPLAYED
    described: Json = {"description": row.summary}
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
    "schema": {"type": "string", "pattern": f"^({PLACE})?$"},
    "description": "The id of the last frame that was read, or nothing; `after` is the same without a header.",
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
