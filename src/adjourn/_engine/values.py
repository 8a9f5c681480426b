"""Session values as users give them."""

from __future__ import annotations

from typing import Any

from adjourn._values import codec
from adjourn._values.frozen import check_text
from adjourn.errors import UsageError


def adopt_value(key: str, value: object) -> Any:
    """Return a session value as the session's own.

    Raises:
        UsageError: its name is not a text, or one of the engine's.
        NotStorable: it cannot be kept.
    """
    try:
        check_text(key, "The name of a session value")
        if key.startswith("~"):
            raise ValueError(
                f"The session value {key!r} begins with '~', which is kept for the engine. Name it otherwise."
            )
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from error
    return codec.adopt(value, f"values[{key!r}]")[0]
