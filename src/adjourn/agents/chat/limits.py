"""Limits: how much an agent may do in one turn."""

from __future__ import annotations

from msgspec import Struct

from adjourn.errors import UsageError


class Limits(Struct, frozen=True, kw_only=True):
    """Bounds on one turn of an agent, over its resumes; None is no bound. `seconds` counts running, not waiting."""

    model_calls: int | None = None
    tool_calls: int | None = None
    tokens: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or value <= 0):
                raise UsageError(f"Limits({name}={value!r}): give a number above zero, or None for no bound.")


UNLIMITED = Limits()
