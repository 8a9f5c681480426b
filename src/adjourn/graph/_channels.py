"""Channels: each one is a field of the state, with the reducer that updates it.

A channel holds no value. It defines how a superstep's updates become a field's next value, and collects them in
`Changes`: all changes of a step are computed before any is applied, so a failure leaves the state as it was.
Lists that only grow are extended in place; everything else is replaced. So a (list, length) pair is a snapshot.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from operator import is_
from typing import Any, Protocol, cast, get_origin

from msgspec import Struct

from adjourn._text import a_type
from adjourn._values import codec
from adjourn.errors import RunError, StateInvalid, WriteConflict, text_of
from adjourn.messages import AppendMessages, Message, apply_messages

from .commands import Overwrite
from .reducers import Reducer, add_messages, append, last, merge, replace

ABSENT = object()
"""Marks a field that has no value."""


class MessageIds(Protocol):
    """Numbers the messages of a state."""

    def new_message_id(self) -> str:
        """Return the next id."""
        ...

    def pass_message_ids(self, existing: list[str]) -> None:
        """Continue counting after ids that messages already have."""
        ...


class Changes(Struct, eq=False):
    """The changes that one superstep makes to the state."""

    state: Mapping[str, Any]
    ids: MessageIds
    values: dict[str, Any] = {}
    tails: dict[str, list[Any]] = {}
    tagged: frozenset[str] = frozenset()
    writers: dict[str, str] = {}

    def value(self, name: str) -> Any:
        """Return a field's value after the changes so far."""
        value = self.values.get(name, ABSENT)
        if value is ABSENT:
            value = self.state.get(name, ABSENT)
        tail = self.tails.get(name)
        return value if tail is None else [*value, *tail]

    def grow(self, name: str, tail: list[Any]) -> None:
        """Append to a list field."""
        if name in self.values:
            self.values[name] = [*self.values[name], *tail]
        elif self.state.get(name) is not None:
            self.tails.setdefault(name, []).extend(tail)
        else:
            self.values[name] = list(tail)

    def replace(self, name: str, value: Any) -> None:
        """Replace the value of a field."""
        self.tails.pop(name, None)
        self.values[name] = value


def same(old: Any, new: Any) -> bool:
    """Return whether two values are the same; unlike in Python, 1 and True are not."""
    if old is new:
        return True
    if type(old) is not type(new):
        return False
    if isinstance(old, dict):
        items = cast("dict[Any, Any]", old)
        return items.keys() == new.keys() and all(same(value, new[key]) for key, value in items.items())
    if isinstance(old, list | tuple):
        values = cast("list[Any] | tuple[Any, ...]", old)
        return len(values) == len(new) and (all(map(is_, values, new)) or all(map(same, values, new)))
    return old == new


class Channel:
    """A field without a reducer: it accepts one writer per superstep."""

    def __init__(
        self, name: str, type_: Any, *, shared: bool = False, default: Any = ABSENT, required: bool = False
    ) -> None:
        self.name = name
        self.type = type_
        self.shared = shared
        self.default = default
        self.required = required

    @property
    def starts(self) -> bool:
        """Whether the field may have a value before anything is written."""
        return self.default is not ABSENT or (not self.required and type(self) is not Channel)

    def first(self) -> Any:
        """Return the initial value, or `ABSENT`."""
        return self.default() if callable(self.default) else self.default

    def copy(self, value: Any) -> Any:
        """Return a value of this field that can be handed to a node."""
        return value if self.shared else codec.copy(value)

    def write(self, changes: Changes, value: Any, writer: str) -> None:
        """Add one update, already adopted, to `changes`."""
        if type(value) is Overwrite:
            self.overwrite(changes, value.value, writer)
        else:
            self.update(changes, value, writer)

    def overwrite(self, changes: Changes, value: Any, writer: str) -> None:
        """Set the field's next value, bypassing the reducer."""
        first = changes.writers.get(self.name, writer)
        if first != writer:
            raise WriteConflict(self.name, first, writer, f"Let one of them overwrite '{self.name}' in a superstep.")
        self.check_whole(value, writer)
        changes.writers[self.name] = writer
        changes.replace(self.name, value)

    def update(self, changes: Changes, value: Any, writer: str) -> None:
        """Add one update that is not an `Overwrite`."""
        name, writers = self.name, changes.writers
        if writers.setdefault(name, writer) != writer:
            raise WriteConflict(name, writers[name], writer)
        changes.values[name] = value

    def check_whole(self, value: Any, writer: str) -> None:
        """Raise if later updates could not be combined with this value."""

    def difference(self, old: Any, new: Any) -> Any:
        """Return the update that turns `old` into `new`."""
        return new


class LastChannel(Channel):
    """The last update in task order wins."""

    def first(self) -> Any:
        value = super().first()
        return _empty(self.type) if value is ABSENT else value

    def update(self, changes: Changes, value: Any, writer: str) -> None:
        changes.values[self.name] = value


class ListChannel(Channel):
    """A list to which updates are appended."""

    def first(self) -> Any:
        value = super().first()
        if value is not ABSENT and value is not None:
            self.check_whole(value, "the schema's default")
        return [] if value is ABSENT else value

    def check_whole(self, value: Any, writer: str) -> None:
        if type(value) is not list and (value is not None or self.default is not None):
            raise StateInvalid(self.name, f"{writer} gave {a_type(value)}, but it holds a list.")

    def overwrite(self, changes: Changes, value: Any, writer: str) -> None:
        # Copy the list: it grows in place, and the writer may still hold a reference to this one.
        super().overwrite(changes, list(cast("list[Any]", value)) if type(value) is list else value, writer)

    def update(self, changes: Changes, value: Any, writer: str) -> None:
        if type(value) is not list:
            raise StateInvalid(
                self.name,
                f"node '{writer}' gave {a_type(value)} to a field that appends. Give a list: [value].",
            )
        changes.grow(self.name, cast("list[Any]", value))

    def difference(self, old: Any, new: Any) -> Any:
        if old is ABSENT or old is None:
            return new
        if type(new) is not list or new[: len(old)] != old:
            raise StateInvalid(
                self.name, "a field that appends was changed elsewhere than at its end. Return Overwrite(value) for it."
            )
        return cast("list[Any]", new)[len(old) :]


class MessagesChannel(ListChannel):
    """A list of messages, changed by messages and operations on them."""

    def copy(self, value: Any) -> Any:
        # Messages are frozen, so a new list of them is a copy. The overlay of a fan-out may be of any other type.
        return list(cast("list[Any]", value)) if type(value) is list else codec.copy(value)

    def check_whole(self, value: Any, writer: str) -> None:
        super().check_whole(value, writer)
        if not all(type(item) is Message for item in value or ()):
            raise StateInvalid(self.name, f"{writer} gave a list that contains something other than messages.")

    def overwrite(self, changes: Changes, value: Any, writer: str) -> None:
        super().overwrite(changes, value, writer)
        changes.ids.pass_message_ids(_existing_ids(value))

    def identified(self, changes: Changes, update: Any) -> Any:
        """Return the update with an id for every message, so that a subgraph and its parent use the same ids."""
        changes.ids.pass_message_ids(_existing_ids(update))
        return _identified(update, changes.ids.new_message_id)

    def update(self, changes: Changes, value: Any, writer: str) -> None:
        before = changes.value(self.name)
        if existing := _existing_ids(value):
            changes.ids.pass_message_ids(existing)
        try:
            messages: list[Message] = [] if before is ABSENT or before is None else before
            change = apply_messages(messages, value, changes.ids.new_message_id)
        except TypeError as error:
            raise StateInvalid(self.name, f"node '{writer}': {error}") from error
        if change.whole is not None:
            changes.replace(self.name, change.whole)
        elif change.tail:
            changes.grow(self.name, change.tail)


def _identified(update: Any, new_id: Callable[[], str]) -> Any:
    match update:
        case Message(id=None):
            return update.with_id(new_id())
        case AppendMessages():
            return AppendMessages(tuple(_identified(message, new_id) for message in update.messages))
        case list() | tuple():
            return [_identified(item, new_id) for item in cast("list[Any]", update)]
        case _:
            return update


def _existing_ids(update: Any) -> list[str]:
    """Return the ids that the messages of an update already have."""
    steps = cast("list[Any]", update) if isinstance(update, list | tuple) else [update]
    messages = [each for step in steps for each in (step.messages if isinstance(step, AppendMessages) else (step,))]
    return [message.id for message in messages if isinstance(message, Message) and message.id is not None]


class DictChannel(Channel):
    """A mapping into which updates are merged."""

    def first(self) -> Any:
        value = super().first()
        if value is not ABSENT and value is not None:
            self.check_whole(value, "the schema's default")
        return {} if value is ABSENT else value

    def check_whole(self, value: Any, writer: str) -> None:
        if type(value) is not dict and (value is not None or self.default is not None):
            raise StateInvalid(self.name, f"{writer} gave {a_type(value)}, but it holds a dict.")

    def update(self, changes: Changes, value: Any, writer: str) -> None:
        if type(value) is not dict:
            raise StateInvalid(self.name, f"node '{writer}' gave {a_type(value)} to a field that merges. Give a dict.")
        before = changes.value(self.name)
        base: dict[Any, Any] = {} if before is ABSENT or before is None else before
        changes.values[self.name] = {**base, **cast("dict[Any, Any]", value)}

    def difference(self, old: Any, new: Any) -> Any:
        if (type(old), type(new)) != (dict, dict):
            return new
        if any(key not in new for key in old):
            return Overwrite(new)
        return {key: value for key, value in new.items() if key not in old or not same(old[key], value)}


class FoldChannel(Channel):
    """A field with a custom reducer."""

    def __init__(self, name: str, type_: Any, reducer: Reducer, **options: Any) -> None:
        super().__init__(name, type_, **options)
        self.reducer = reducer

    def first(self) -> Any:
        value = super().first()
        return _empty(self.type) if value is ABSENT else value

    def update(self, changes: Changes, value: Any, writer: str) -> None:
        before = changes.value(self.name)
        if before is ABSENT:
            changes.values[self.name] = value
            return
        try:
            result = self.reducer(codec.copy(before), codec.copy(value))
        except Exception as error:  # protects the step: the reducer is the user's
            raise ReducerFailed(self.name, writer, error) from error
        owned, plain = codec.adopt(result, self.name)
        if not plain:
            changes.tagged |= {self.name}
        changes.values[self.name] = owned

    def difference(self, old: Any, new: Any) -> Any:
        return Overwrite(new)


class ReducerFailed(RunError):
    """A reducer raised; its update is not applied."""

    def __init__(self, field: str, node: str, error: Exception) -> None:
        self.field = field
        self.node = node
        super().__init__(
            f"The reducer of '{field}' failed on the update of node '{node}': {type(error).__name__}: {text_of(error)}"
        )


_EMPTY: tuple[Any, ...] = (list, dict, set, frozenset, tuple, str, int, float, bool)


def _empty(type_: Any) -> Any:
    origin: Any = get_origin(type_) or type_
    return origin() if origin in _EMPTY else ABSENT


def channel_for(name: str, type_: Any, reducer: Reducer | None, **options: Any) -> Channel:
    """Return a channel for a field with this reducer."""
    if reducer is None or reducer is replace:
        return Channel(name, type_, **options)
    for known, kind in _KINDS.items():
        if reducer is known:
            return kind(name, type_, **options)
    return FoldChannel(name, type_, reducer, **options)


_KINDS: dict[Reducer, type[Channel]] = {
    last: LastChannel,
    append: ListChannel,
    merge: DictChannel,
    add_messages: MessagesChannel,
}


def takes_two(reducer: Reducer) -> bool:
    """Return whether a reducer can be called as `(old, new)`."""
    try:
        inspect.signature(reducer).bind(None, None)
    except TypeError:
        return False
    except ValueError:
        return True  # A builtin without a signature.
    return True
