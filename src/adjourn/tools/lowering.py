"""From values to JSON: what people see of arguments, and models of results."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from adjourn.core.wording import a_type

from .foreign import adapter_of, is_foreign

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
