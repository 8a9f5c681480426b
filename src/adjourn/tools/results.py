"""What people and models get to read of arguments and of results."""

from __future__ import annotations

from enum import Enum
from typing import Any, cast

import msgspec

from adjourn._text import a_type
from adjourn._values.frozen import check_json, check_text
from adjourn.errors import ToolError

from ._foreign import adapter_of, is_foreign

_PLAIN = frozenset({str, int, float, bool, type(None)})


def lowered(value: Any) -> Any:
    """What stands in JSON for a value that msgspec does not know (an `enc_hook`)."""
    if isinstance(value, str):  # of a subclass
        return str(value)
    kind = cast("type[Any]", type(value))
    if is_foreign(kind):
        return adapter_of(kind).dump_python(value, mode="json", by_alias=True)
    raise TypeError(f"{a_type(value)} has no form in JSON")


_decode = msgspec.json.Decoder().decode
# A set's own order is another one in every process; what people see must not be.
_encode = msgspec.json.Encoder(enc_hook=lowered, order="deterministic").encode


def json_data(value: Any) -> Any:
    """The plain JSON data of a value.

    Raises:
        TypeError: it has no form in JSON.
        ValueError: it holds text or a number that cannot be written.
    """
    return value if type(value) in _PLAIN else _decode(_encode(value))


def can_tell(value: object) -> bool:
    """Whether a value has a form in JSON."""
    try:
        json_data(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


_encoder = msgspec.json.Encoder(enc_hook=lowered)


def result_text(value: object) -> str:
    """The text of a result: text as it is, anything else as JSON.

    Raises:
        ToolError: it has no form in JSON, or JSON would bend it.
    """
    if isinstance(value, str) and not isinstance(value, Enum):
        return _checked(str(value))
    try:
        body = _encoder.encode(value)
        if b"null" in body:  # perhaps what msgspec writes for NaN and the infinities
            check_json(msgspec.to_builtins(value, str_keys=True, enc_hook=lowered), "The result")
    except (TypeError, ValueError, RecursionError) as error:
        raise _unreadable(value, str(error)) from error
    return body.decode()


def _checked(text: str) -> str:
    try:
        check_text(text, "The result")
    except ValueError as error:
        raise _unreadable(text, str(error)) from error
    return text


def _unreadable(value: object, why: str) -> ToolError:
    return ToolError(
        f"The tool returned {a_type(value)} that cannot be told to a model: {why.rstrip('.')}. "
        "Return text, or data that has a form in JSON."
    )
