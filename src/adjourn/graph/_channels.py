"""Channels: each one is a field of the state, with the reducer that updates it.

A channel holds no value. It defines how a superstep's updates become a field's next value, and collects them in
`Changes`: all changes of a step are computed before any is applied, so a failure leaves the state as it was.
Lists that only grow are extended in place, and so are dicts that nobody else holds (see `Fields`); everything else is
replaced. So a (list, length) pair is a snapshot.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast, get_origin

from msgspec import Struct

from adjourn._checks import takes
from adjourn._engine.scope import Frame
from adjourn._schemas.fits import exact_types, is_checked, misfit, partial_type, quick_check
from adjourn._text import a_type
from adjourn._values import codec
from adjourn._values.same import all_same, same
from adjourn.errors import NotInRun, RunError, StateInvalid, WriteConflict, text_of
from adjourn.messages import AppendMessages, Message, apply_messages

from .commands import Overwrite
from .reducers import Reducer, add_messages, append, last, merge, replace

ABSENT = object()
"""Marks a field that has no value."""

INPUT, EDIT, DEFAULT = "the input", "the edit", "the schema's default"
"""Writers that are not nodes."""


def _who(writer: str) -> str:
    return writer if any(writer is each for each in (INPUT, EDIT, DEFAULT)) else f"node '{writer}'"


class MessageIds(Struct, eq=False):
    """Numbers the messages of a state: by the session's counter at the root, with a unique prefix below it."""

    parent: Frame | None
    segment: str
    count: int = 0

    def _prefix(self) -> str:
        parent = self.parent
        if parent is None:
            return "m"
        place = f"{parent.path};{self.segment} {parent.instance}"
        return f"m{hashlib.blake2b(place.encode(), digest_size=5).hexdigest()}."

    def new(self) -> str:
        """Return the next id."""
        self.count += 1
        return f"{self._prefix()}{self.count}"

    def coming(self) -> str:
        """Return the id that the next message will have, without using it up."""
        return f"{self._prefix()}{self.count + 1}"

    def pass_by(self, existing: Iterable[str]) -> None:
        """Continue counting after ids that messages already have: ids of another session look the same."""
        prefix = self._prefix()
        for each in existing:
            number = each[len(prefix) :]
            if each.startswith(prefix) and number.isascii() and number.isdecimal() and len(number) < 16:
                self.count = max(self.count, int(number))


class Changes(Struct, eq=False):
    """The changes that one superstep makes to the state."""

    state: Mapping[str, Any]
    ids: MessageIds
    values: dict[str, Any] = {}
    tails: dict[str, list[Any]] = {}
    members: dict[str, dict[Any, Any]] = {}
    tagged: frozenset[str] = frozenset()
    writers: dict[str, str] = {}

    def value(self, name: str) -> Any:
        """Return a field's value after the changes so far."""
        value = self.values.get(name, ABSENT)
        if value is ABSENT:
            value = self.state.get(name, ABSENT)
        if name in self.tails:
            return [*value, *self.tails[name]]
        return {**value, **self.members[name]} if name in self.members else value

    def added(self) -> dict[str, Any]:
        """Return the values that are new, by field: of a field that grows, only what was added."""
        return {**self.values, **self.tails, **self.members}

    def grow(self, name: str, tail: list[Any]) -> None:
        """Append to a list field."""
        if name in self.values:
            self.values[name] = [*self.values[name], *tail]
        elif self.state.get(name) is not None:
            self.tails.setdefault(name, []).extend(tail)
        else:
            self.values[name] = list(tail)

    def put(self, name: str, members: dict[Any, Any]) -> None:
        """Merge members into a dict field."""
        if name in self.values:
            self.values[name] = {**(self.values[name] or {}), **members}
        elif type(self.state.get(name)) is dict:
            self.members.setdefault(name, {}).update(members)
        else:
            self.values[name] = dict(members)

    def replace(self, name: str, value: Any) -> None:
        """Replace the value of a field."""
        self.tails.pop(name, None)
        self.members.pop(name, None)
        self.values[name] = value


class Channel:
    """A field without a reducer: it accepts one writer per superstep.

    What nodes write is checked if it `checks`: an instance of one of the `exact` classes fits, whatever is in it.
    """

    checks_updates: bool = True
    """Whether an update has the type of the field."""
    copies_items: bool = True
    """Whether the items of a list may be changed, so that a node gets copies of them."""

    def __init__(
        self, name: str, type_: Any, *, shared: bool = False, default: Any = ABSENT, required: bool = False
    ) -> None:
        self.name = name
        self.type = type_
        self.shared = shared
        self.default = default
        self.required = required
        self._added_type = added = self.type_of_additions(type_)
        self._fits = quick_check(added)
        self.exact: frozenset[type] = exact_types(added)
        self.checks: bool = self.checks_updates and is_checked(added)

    def type_of_additions(self, type_: Any) -> Any:
        """Return the type of what is added to a field of this type; of one that is replaced, that is the whole."""
        return type_

    @property
    def starts(self) -> bool:
        """Whether the field may have a value before anything is written."""
        return self.default is not ABSENT or (not self.required and type(self) is not Channel)

    def first(self) -> Any:
        """Return the initial value, or `ABSENT`."""
        return self.default() if callable(self.default) else self.default

    def misfit(self, value: Any) -> str | None:
        """Return why a value of the field, or what is added to it, does not fit its type, or `None` if it fits."""
        return None if self._fits(value) else misfit(value, self._added_type)

    def misfit_of_update(self, update: Any) -> str | None:
        """Return why what a node wrote does not fit the type, or `None` if it fits or `update` will refuse it."""
        return self.misfit(update.value if type(update) is Overwrite else update)

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

    def misfit_of_update(self, update: Any) -> str | None:
        return super().misfit_of_update(update) if type(update) in (list, Overwrite) else None

    def first(self) -> Any:
        value = super().first()
        if value is not ABSENT and value is not None:
            self.check_whole(value, DEFAULT)
        return [] if value is ABSENT else value

    def check_whole(self, value: Any, writer: str) -> None:
        if type(value) is not list and (value is not None or self.default is not None):
            raise StateInvalid(self.name, f"{_who(writer)} gave {a_type(value)}, but it holds a list.")

    def overwrite(self, changes: Changes, value: Any, writer: str) -> None:
        # Copy the list: it grows in place, and the writer may still hold a reference to this one.
        super().overwrite(changes, list(cast("list[Any]", value)) if type(value) is list else value, writer)

    def update(self, changes: Changes, value: Any, writer: str) -> None:
        if type(value) is not list:
            raise StateInvalid(
                self.name,
                f"{_who(writer)} gave {a_type(value)} to a field that appends. Give a list: [value].",
            )
        changes.grow(self.name, cast("list[Any]", value))

    def difference(self, old: Any, new: Any) -> Any:
        if old is ABSENT or old is None:
            return new
        if type(new) is not list or not same(old, new[: len(old)]):
            raise StateInvalid(
                self.name, "a field that appends was changed elsewhere than at its end. Return Overwrite(value) for it."
            )
        return cast("list[Any]", new)[len(old) :]


class MessagesChannel(ListChannel):
    """A list of messages, changed by messages and operations on them."""

    checks_updates = False
    copies_items = False

    def copy(self, value: Any) -> Any:
        # Messages are frozen, so a new list of them is a copy. The overlay of a fan-out may be of any other type.
        return list(cast("list[Any]", value)) if type(value) is list else codec.copy(value)

    def check_whole(self, value: Any, writer: str) -> None:
        super().check_whole(value, writer)
        if not all(type(item) is Message for item in value or ()):
            raise StateInvalid(self.name, f"{_who(writer)} gave a list that contains something other than messages.")

    def overwrite(self, changes: Changes, value: Any, writer: str) -> None:
        super().overwrite(changes, value, writer)
        changes.ids.pass_by(_existing_ids(value))

    def identified(self, ids: MessageIds, update: Any) -> Any:
        """Return the update with an id for every message, so that a subgraph and its parent use the same ids."""
        ids.pass_by(_existing_ids(update))
        return _identified(update, ids.new)

    def update(self, changes: Changes, value: Any, writer: str) -> None:
        before = changes.value(self.name)
        if existing := _existing_ids(value):
            changes.ids.pass_by(existing)
        try:
            messages: list[Message] = [] if before is ABSENT or before is None else before
            change = apply_messages(messages, value, changes.ids.new)
        except TypeError as error:
            raise StateInvalid(self.name, f"{_who(writer)}: {error}") from error
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

    def type_of_additions(self, type_: Any) -> Any:
        return partial_type(type_)

    def misfit_of_update(self, update: Any) -> str | None:
        return super().misfit_of_update(update) if type(update) in (dict, Overwrite) else None

    def first(self) -> Any:
        value = super().first()
        if value is not ABSENT and value is not None:
            self.check_whole(value, DEFAULT)
        return {} if value is ABSENT else value

    def check_whole(self, value: Any, writer: str) -> None:
        if type(value) is not dict and (value is not None or self.default is not None):
            raise StateInvalid(self.name, f"{_who(writer)} gave {a_type(value)}, but it holds a dict.")

    def update(self, changes: Changes, value: Any, writer: str) -> None:
        if type(value) is not dict:
            raise StateInvalid(self.name, f"{_who(writer)} gave {a_type(value)} to a field that merges. Give a dict.")
        changes.put(self.name, cast("dict[Any, Any]", value))

    def difference(self, old: Any, new: Any) -> Any:
        if (type(old), type(new)) != (dict, dict):
            return new
        if any(key not in new for key in old):
            return Overwrite(new)
        return _members(old, new)


class FoldChannel(Channel):
    """A field with a custom reducer, whose updates may be of any type."""

    def __init__(self, name: str, type_: Any, reducer: Reducer, **options: Any) -> None:
        super().__init__(name, type_, **options)
        self.reducer = reducer
        self.exact = frozenset[type]()

    def misfit_of_update(self, update: Any) -> str | None:
        return super().misfit_of_update(update) if type(update) is Overwrite else None

    def first(self) -> Any:
        value = super().first()
        return _empty(self.type) if value is ABSENT else value

    def overwrite(self, changes: Changes, value: Any, writer: str) -> None:
        super().overwrite(changes, _own(value), writer)

    def update(self, changes: Changes, value: Any, writer: str) -> None:
        before = changes.value(self.name)
        if before is ABSENT:
            changes.values[self.name] = _own(value)
            return
        try:
            result = self.reducer(codec.copy(before), codec.copy(value))
        except Exception as error:  # protects the step: the reducer is the user's
            raise ReducerFailed(self.name, writer, error) from error
        owned, plain = codec.adopt(result, self.name)
        if not plain:
            changes.tagged |= {self.name}
        self._change(changes, before, owned)

    def _change(self, changes: Changes, before: Any, after: Any) -> None:
        """Add the result of the reducer: only what is new, if it is a list or dict that has grown."""
        if type(before) is list is type(after) and same(before, after[: len(before)]):
            if tail := after[len(before) :]:
                changes.grow(self.name, tail)
        elif type(before) is dict is type(after) and _extends(after, before):
            if members := _members(before, after):
                changes.put(self.name, members)
        else:
            changes.replace(self.name, after)

    def difference(self, old: Any, new: Any) -> Any:
        return Overwrite(new)


def _own(value: Any) -> Any:
    """Return a list that the state can extend in place: whoever wrote it may still hold a reference to it."""
    return list(cast("list[Any]", value)) if type(value) is list else value


def _extends(new: dict[Any, Any], old: dict[Any, Any]) -> bool:
    """Return whether a dict has all keys of another one, in the same order, and perhaps more after them."""
    return len(new) >= len(old) and all_same(old, new)


def _members(old: dict[Any, Any], new: dict[Any, Any]) -> dict[Any, Any]:
    """Return the members of a dict that another one does not have, or has with another value."""
    return {key: value for key, value in new.items() if key not in old or not same(old[key], value)}


class ReducerFailed(RunError):
    """A reducer raised; its update is not applied."""

    def __init__(self, field: str, node: str, error: Exception) -> None:
        self.field = field
        self.node = node
        reason = f"{type(error).__name__}: {text_of(error)}"
        if isinstance(error, NotInRun):
            reason = "A reducer cannot ask or use the run: it only combines two values. Do that in the node."
        super().__init__(f"The reducer of '{field}' failed on the update of node '{node}': {reason}")


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
    return takes(reducer, 2)
