"""What a model gets to read of a tool's result."""

from __future__ import annotations

from enum import Enum

import msgspec

from adjourn.core.errors import ToolError
from adjourn.core.frozen import check_json, check_text
from adjourn.core.wording import a_type

from .lowering import lowered

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
