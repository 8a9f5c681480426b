"""Find the words in the bodies of errors, and recognise what they say."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, cast

# The fields that hold the words, in the order in which they are read; what they hold may be nested.
# Names are compared as `plain` writes them.
_FIELDS = (
    *("message", "msg", "detail", "errordescription", "errormsg", "errormessage", "statusmsg", "faultstring"),
    *("error", "errors", "baseresp", "fault", "title", "reason", "description", "exception"),
    *("innererror", "details", "messages", "info", "text", "output", "status"),
)
_MOST = 1000
_MOST_QUOTED = 300
_CODES = ("code", "type", "status", "error_type")
_TAG = re.compile(r"<(?:style|script)[^>]*>.*?</(?:style|script)>|<[^>]*>", re.DOTALL | re.IGNORECASE)

_TOO_LONG_CODES = frozenset(
    {
        "context_length_exceeded",
        "exceed_context_size_error",
        "context_window_exceeded",
        "model_context_window_exceeded",
        "model_max_prompt_tokens_exceeded",
        "prompt_too_long",
        "input_too_long",
        "tokens_limit_reached",
        "max_context_length_exceeded",
        "string_above_max_length",
        "request_too_large",
        "1261",  # Zhipu
    }
)
_TOO_LONG = re.compile(
    r"""
    (maximum|max|model'?s)\ (context|prompt)\ length
    | context\ (length|size|window|limit)[^.]{0,40}(exceed|only|too)
    | (exceed|greater\ than|longer\ than|larger\ than|beyond|over)[^.]{0,60}context\ (length|size|window|limit)
    | longer\ than\ the\ (maximum\ )?model\ length
    | (prompt|input|request|conversation|messages?)(\ is|\ are)?\ too\ long
    | prompt\ exceeds\ max\ length
    | exceed\w*(\ the)?(\ model|\ maximum)?\ token\ limit
    | (input|prompt)\ token\ count[^.]{0,40}\ exceeds
    | input\ tokens\ exceed
    | prompt\ length[^.]{0,60}\ exceed
    | token\ count\ is\ \d+\ but
    | number\ of\ tokens[^.]{0,60}\ exceeds
    | context\ window\ is\ \d+\ tokens
    | too\ many\ (input\ )?tokens
    | `?inputs`?\ (tokens|must\ have\ less\ than)
    | range\ of\ input\ length\ should\ be
    | reduce\ the\ length\ of\ (the|your)\ (messages|prompt|input)
    | body\ too\ large\ for\ \S+\ model
    """,
    re.IGNORECASE | re.VERBOSE,
)
# Limits on tokens within a time: waiting helps, a shorter conversation need not.
_PER_TIME = re.compile(r"per (second|minute|hour|day)|\b(tpm|tpd|rpm)\b|rate limit|quota", re.IGNORECASE)


def words_of(body: object) -> str:
    """Return what an error says, from the body of a response or a part of it; "" if it says nothing."""
    return _storable(_words(body).strip()[:_MOST])


def quoted(body: object) -> str:
    """Return the beginning of a body as it is, for one in which there are no words."""
    return _storable(json.dumps(body, ensure_ascii=False, default=str)[:_MOST_QUOTED]) if body else ""


def plain(name: str) -> str:
    """Return the name of a field without the differences in how servers write names."""
    return name.lower().replace("_", "").replace("-", "")


def is_too_long(body: object, words: str, status: int | None) -> bool:
    """Return whether an error says that the conversation does not fit into the model's context."""
    error = error_of(body)
    if any(str(error.get(name)) in _TOO_LONG_CODES for name in _CODES):
        return True
    if status == 429:  # too many tokens for now, rather than for the model
        return False
    return _TOO_LONG.search(words) is not None and _PER_TIME.search(words) is None


def code_of(body: object) -> str | None:
    """Return the provider's code of an error: the first word among code, type and status, else a number."""
    error = error_of(body)
    found = [error.get(name) for name in _CODES]
    words = [each for each in found if isinstance(each, str) and each and not each.isdigit()]
    numbers = [str(each) for each in found if isinstance(each, int | str) and str(each).isdigit()]
    return next(iter(words + numbers), None)


def status_of(body: object) -> int | None:
    """Return the HTTP status that an error names, though the response had another one."""
    places = [error_of(body)]
    if isinstance(body, Mapping):
        places.append(cast("Mapping[str, Any]", body))
    found = [fields.get(name) for fields in places for name in ("code", "status", "status_code")]
    numbers = [int(str(each)) for each in found if str(each).isdecimal()]
    return next((number for number in numbers if 400 <= number <= 599), None)


def error_of(body: object) -> Mapping[str, Any]:
    """Return the object of a body that describes the error."""
    if isinstance(body, list) and body:
        return error_of(cast("list[object]", body)[0])
    if not isinstance(body, Mapping):
        return {}
    fields = cast("Mapping[str, Any]", body)
    inner = fields.get("error") or fields.get("errors") or fields.get("base_resp")
    return error_of(inner) or fields


def _storable(text: str) -> str:
    """Return a text without halves of surrogate pairs, which no store can hold."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _words(value: object) -> str:
    if isinstance(value, str):
        return _from_text(value)
    if isinstance(value, list):
        return "; ".join(filter(None, map(_words, cast("list[object]", value))))
    if not isinstance(value, Mapping):
        return ""
    fields = cast("Mapping[str, object]", value)
    by_name = {plain(name): field for name, field in fields.items()}
    found = next(filter(None, (_words(by_name.get(name)) for name in _FIELDS)), "")
    if isinstance(fields.get("loc"), list):  # where a field of the request is wrong
        found = f"{'.'.join(map(str, cast('list[object]', fields['loc'])))}: {found}"
    written = fields.get("failed_generation")  # what the model wrote, where the server could not read it
    more = (_inside(fields.get("metadata")), written if isinstance(written, str) else "")
    return ": ".join(filter(None, (found, *(each for each in more if each not in found))))


def _inside(metadata: object) -> str:
    """Return the words of the server behind a gateway."""
    return _words(cast("Mapping[str, object]", metadata).get("raw")) if isinstance(metadata, Mapping) else ""


def _from_text(text: str) -> str:
    stripped = text.strip()
    if stripped.startswith(("{", "[")):
        try:
            return _words(json.loads(stripped)) or stripped
        except (ValueError, RecursionError):
            return stripped
    if stripped.startswith("<"):
        return " ".join(_TAG.sub(" ", stripped).split()) or stripped
    return stripped
