"""Reducers: how updates change a field of the state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from adjourn._text import a_type
from adjourn.messages import Message, apply_messages

Reducer = Callable[[Any, Any], Any]


class Shared:
    """`Annotated[T, Shared]` passes a field to nodes without copying it; they must not change it."""


def replace(old: Any, new: Any) -> Any:
    """Replace the old value; two updates in one superstep are a `WriteConflict`."""
    return new


def last(old: Any, new: Any) -> Any:
    """Replace the old value; the last update in task order wins."""
    return new


def append(old: list[Any] | None, new: list[Any]) -> list[Any]:
    """Append the new list to the old one."""
    if not isinstance(new, list):  # pyright: ignore[reportUnnecessaryIsInstance]  # nodes return anything
        raise TypeError(f"a field that appends takes a list, not {a_type(new)}. Wrap it: [value]")
    return [*(old or ()), *new]


def merge(old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the update into the old mapping; this is shallow, and the update wins."""
    if not isinstance(new, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  # nodes return anything
        raise TypeError(f"a field that merges takes a mapping, not {a_type(new)}.")
    return {**(old or {}), **new}


def add_messages(old: list[Message] | None, new: Any) -> list[Message]:
    """Append messages and apply operations on the list, from left to right."""
    before = list(old or ())
    return apply_messages(before, new).on(before)
