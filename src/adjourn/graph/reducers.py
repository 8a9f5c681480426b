"""Reducers: how updates change a field of the state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from adjourn._text import a_type
from adjourn._values.registry import native
from adjourn.messages import AppendMessages, Message, RemoveAllMessages, ReplaceLastUser, apply_messages

Reducer = Callable[[Any, Any], Any]

for _cls in (Message, AppendMessages, ReplaceLastUser, RemoveAllMessages):
    native(_cls)


class Shared:
    """`Annotated[T, Shared]` hands a field out to nodes without a copy; they must not change it."""


def replace(old: Any, new: Any) -> Any:
    """The update takes the old value's place; two in one superstep are a `WriteConflict`."""
    return new


def last(old: Any, new: Any) -> Any:
    """The last update in task order wins."""
    return new


def append(old: list[Any] | None, new: list[Any]) -> list[Any]:
    """The lists follow on one another."""
    if not isinstance(new, list):  # pyright: ignore[reportUnnecessaryIsInstance]  # nodes return anything
        raise TypeError(f"an appending field takes a list, not {a_type(new)}. Wrap it: [value]")
    return [*(old or ()), *new]


def merge(old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> dict[str, Any]:
    """A shallow union in which the update wins."""
    if not isinstance(new, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  # nodes return anything
        raise TypeError(f"a merging field takes a mapping, not {a_type(new)}.")
    return {**(old or {}), **new}


def add_messages(old: list[Message] | None, new: Any) -> list[Message]:
    """Messages are appended, and operations on the list applied, from left to right."""
    before = list(old or ())
    return apply_messages(before, new).on(before)
