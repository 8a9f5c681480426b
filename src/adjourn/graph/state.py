"""The state as nodes see it, and the changes that they make to it.

A view copies a value when it is first read, so that nodes never share values; a value that is not read costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, cast

from adjourn._values import codec
from adjourn._values.same import same
from adjourn.errors import StateInvalid

from ._channels import ABSENT
from ._fields import Fields
from .commands import Overwrite
from .schema import Schema

_ATOMS = frozenset({int, float, bool, str, type(None)})

_LONG = 32
"""Items of a list, beyond which it pays to remember what they are."""


class State(MutableMapping[str, Any]):
    """The state as one node sees it: a private mapping. Changes only count if they are returned."""

    __slots__ = ("_base", "_fields", "_overlay", "_own", "_schema")

    def __init__(self, schema: Schema, fields: Fields, overlay: Mapping[str, Any] | None = None) -> None:
        self._schema = schema
        self._fields = fields
        self._base = fields.values
        self._overlay = overlay
        self._own: dict[str, Any] = {}

    def __getitem__(self, key: str) -> Any:
        own = self._own
        if key in own:
            value = own[key]
            if value is ABSENT:
                raise KeyError(key)
            return value
        overlay = self._overlay
        value = self._base[key] if overlay is None or key not in overlay else overlay[key]
        if type(value) in _ATOMS:
            return value
        is_long = type(value) is list and len(cast("list[Any]", value)) > _LONG
        own[key] = value = (
            self._copied(key, cast("list[Any]", value)) if is_long else handed_out(self._schema, key, value)
        )
        return value

    def _copied(self, key: str, value: list[Any]) -> Any:
        channel, copied = self._schema.channels.get(key), None
        if value is self._base.get(key) and (channel is None or (channel.copies_items and not channel.shared)):
            copied = self._fields.copied(key, value)
        return handed_out(self._schema, key, value) if copied is None else copied

    def __setitem__(self, key: str, value: Any) -> None:
        self._own[key] = value

    def __delitem__(self, key: str) -> None:
        self[key]
        self._own[key] = ABSENT

    def __iter__(self) -> Iterator[str]:
        keys = {**self._base, **(self._overlay or {}), **self._own}
        return (key for key in keys if self._own.get(key) is not ABSENT)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __or__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return {**self, **other}

    def __ror__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return {**other, **self}

    def copy(self) -> dict[str, Any]:
        """Return a dict of the same values; returned from a node, it is an update of all its keys."""
        return dict(self)

    def __repr__(self) -> str:
        return repr(dict(self))

    def touched(self) -> dict[str, Any]:
        """Return the containers that this node read and the values it wrote: everything that may have changed."""
        return self._own


def given(base: Mapping[str, Any], overlay: Mapping[str, Any] | None, key: str) -> Any:
    """Return a field's value as a task sees it, or `ABSENT`."""
    if overlay is not None and key in overlay:
        return overlay[key]
    return base.get(key, ABSENT)


def handed_out(schema: Schema, key: str, value: Any) -> Any:
    """Return a value that can be handed to a node: a copy, unless the field is shared."""
    channel = schema.channels.get(key)
    return codec.copy(value) if channel is None else channel.copy(value)


def read(schema: Schema, fields: Fields, overlay: Mapping[str, Any] | None = None) -> Any:
    """Return the state in the form that the schema defines: a mapping, or an instance of its class."""
    view = State(schema, fields, overlay)
    return view if schema.cls is None else schema.build(dict(view))


def differences(
    schema: Schema, base: Mapping[str, Any], overlay: Mapping[str, Any] | None, new: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the update that turns the old state into a returned one: only the fields that changed."""
    update: dict[str, Any] = {}
    for key, value in new.items():
        old = given(base, overlay, key)
        if same(old, value):
            continue
        if value is ABSENT:
            raise StateInvalid(key, "it was deleted from the returned state. Give it another value instead.")
        channel = schema.channels.get(key)
        update[key] = value if channel is None or type(value) is Overwrite else channel.difference(old, value)
    return update


def attributes(schema: Schema, instance: Any) -> dict[str, Any]:
    """Return the fields of an instance of the schema class."""
    return {name: getattr(instance, name) for name in schema.channels if hasattr(instance, name)}


class Snapshot(Mapping[str, Any]):
    """The state at one moment, from shared values: of those only lists change, and keeping their length is enough."""

    __slots__ = ("_lengths", "_schema", "_values")

    def __init__(self, schema: Schema, values: Mapping[str, Any]) -> None:
        self._schema = schema
        self._values = values
        self._lengths: dict[str, int] = {}
        for key, value in values.items():
            if type(value) is list:
                self._lengths[key] = len(cast("list[Any]", value))

    def __getitem__(self, key: str) -> Any:
        value = self._values[key]
        if key in self._lengths:
            value = value[: self._lengths[key]]
        return handed_out(self._schema, key, value)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(dict(self))
