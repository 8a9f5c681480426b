"""The values of a running graph's state, and which of them are not recorded yet.

Invariants: a name is in one of `replaced`, `grown` and `put` at most; a field in none of them is stored as it is. A
list only ever grows in place, so its length is enough to know what was added. A dict is changed in place only if it is
in `owned`: then nobody else has a reference to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from adjourn._engine.record import GraphImage, join
from adjourn._values import codec
from adjourn.errors import ProgramChanged, StateInvalid
from adjourn.messages import Message

from ._channels import Changes, MessagesChannel
from .commands import Overwrite
from .schema import Schema, check_stored

_messages_decoder = msgspec.json.Decoder(list[Message])


class Fields(Struct, eq=False):
    """The state of one graph's frame.

    `tagged` are the fields whose values need a walk to be stored; all others are JSON as they are. A subgraph collects
    the updates of fields it shares with its parent (`exports`) in `updates`, and hands them up when it ends.
    `owned` are dicts that may be changed in place, `put` their new and changed members, and `named` whether all keys of
    one are names: otherwise it is stored as pairs. `shared` are lists whose items are immutable up to a length, so that
    a node gets a copy of a long one without a look at each item.
    """

    values: dict[str, Any] = {}
    tagged: frozenset[str] = frozenset()
    replaced: dict[str, None] = {}
    grown: dict[str, int] = {}
    put: dict[str, dict[Any, Any]] = {}
    named: dict[str, bool] = {}
    owned: set[str] = set()
    shared: dict[str, tuple[list[Any], int]] = {}
    exports: frozenset[str] = frozenset()
    updates: dict[str, list[Any]] = {}

    def adopt(self, name: str, value: Any) -> None:
        """Set a field to a copy of a value from outside.

        Raises:
            NotStorable: it cannot be stored.
        """
        adopted, plain = codec.adopt(value, name)
        self.set(name, adopted, tagged=not plain)

    def set(self, name: str, value: Any, *, tagged: bool = False) -> None:
        """Set a field to a value that the state already owns."""
        self.values[name] = value
        self.replaced[name] = None
        if self.grown or self.named:
            self._forget_growth((name,))
        if tagged:
            self.tagged |= {name}

    def grow(self, name: str) -> list[Any]:
        """Return a list field to append to, and note where its new items start."""
        values: list[Any] = self.values[name]
        if name not in self.replaced:
            self.grown.setdefault(name, len(values))
        return values

    def commit(self, changes: Changes) -> None:
        """Apply the changes of a superstep, an input or an edit."""
        self.values.update(changes.values)
        for name in changes.values:
            self.replaced[name] = None
        if self.grown or self.named:
            self._forget_growth(changes.values)
        if changes.tails:
            for name, tail in changes.tails.items():
                self.grow(name).extend(tail)
        if changes.members:
            for name, members in changes.members.items():
                self._merge(name, members)
        if self.tagged or changes.tagged:
            self.tagged = self.tagged.difference(changes.values) | changes.tagged

    def _forget_growth(self, replaced: Iterable[str]) -> None:
        """Forget what was added to fields whose values have been replaced."""
        for name in replaced:
            self.grown.pop(name, None)
            self.named.pop(name, None)
            self.owned.discard(name)
            self.put.pop(name, None)

    def _merge(self, name: str, members: dict[Any, Any]) -> None:
        """Add members to a dict field, in place, and note them as new."""
        if name not in self.owned:
            self.values[name] = dict(self.values[name])
            self.owned.add(name)
        if name not in self.named:
            self.named[name] = _has_names(self.values[name])
        self.values[name].update(members)
        if self.named[name] and not _has_names(members):
            # What was stored as an object cannot go on as pairs: it is stored once more, as a whole.
            self.named[name] = False
            self.replaced[name] = None
            self.put.pop(name, None)
        elif name not in self.replaced:
            self.put.setdefault(name, {}).update(members)

    def copied(self, name: str, value: list[Any]) -> list[Any] | None:
        """Return a copy of a list field; None if items of it would have to be copied, too."""
        known, length = self.shared.get(name, (None, 0))
        if not codec.are_shared(value[length:] if known is value else value):
            return None
        self.shared[name] = value, len(value)
        return value.copy()

    def share(self) -> dict[str, Any]:
        """Return the values for somebody to keep; dicts are not changed in place any more."""
        self.owned = set()
        return dict(self.values)

    def export(self, name: str, value: Any, reduces: bool) -> None:
        """Collect an update for the parent graph, which shares this field."""
        stored = "^" + name
        if not reduces or name not in self.updates or type(value) is Overwrite:
            self.updates[name] = [value]
            self.replaced[stored] = None
            self.grown.pop(stored, None)
            return
        if stored not in self.replaced:
            self.grown.setdefault(stored, len(self.updates[name]))
        self.updates[name].append(value)

    # Records: updates for the parent graph are stored next to the fields, under names that start with "^".

    def snapshot(self, image: GraphImage) -> None:
        """Write everything new into an image."""
        if self.replaced:
            image.set = set_now = dict[str, Any]()
            values, tagged = self.values, self.tagged
            for name in self.replaced:
                # Plain values are encoded with the record, in one native call; only tagged ones need a walk.
                is_plain = name[0] != "^" and name not in tagged
                set_now[name] = values[name] if is_plain else self._stored(name)
            self.replaced = {}
        if self.grown:
            image.add = grown_now = dict[str, Any]()
            for name, since in self.grown.items():
                grown_now[name] = self._stored(name, since)
            self.grown = {}
        if self.put:
            image.put = {name: self._stored_members(name, members) for name, members in self.put.items()}
            self.put = {}

    def mark_all(self) -> None:
        """Mark everything as new, so that the next image is complete."""
        self.replaced = dict.fromkeys(self.values)
        for name in self.updates:
            self.replaced["^" + name] = None
        self.grown, self.put = {}, {}

    def _stored(self, name: str, since: int | None = None) -> Any:  # Any: encoded with the record, as if it were Raw
        """Return a field as it is recorded, or only the items of a list from `since` on."""
        is_update = name[0] == "^"
        value = self.updates[name[1:]] if is_update else self.values[name]
        if since is not None:
            value = value[since:]
        return self._lowered(name, value)

    def _stored_members(self, name: str, members: dict[Any, Any]) -> Any:  # Any: as above
        return self._lowered(name, members) if self.named[name] else codec.lower_pairs(members)

    def _lowered(self, name: str, value: Any) -> Any:
        return codec.lower(value) if name[0] == "^" or name in self.tagged else value

    def restore(self, pieces: Mapping[str, list[Raw]], types: Mapping[str, str], schema: Schema, address: str) -> None:
        """Restore the stored values, and begin with fields that the schema did not have when these were stored.

        Raises:
            ProgramChanged: the schema no longer has one of the stored fields.
            StateInvalid: a stored value does not fit a field whose type has changed since, or a class in it has.
        """
        for name, parts in pieces.items():
            if name.startswith("^"):
                self.updates[name[1:]] = decode_field(name[1:], join(parts))
                continue
            try:
                channel = schema.channel(name, "the stored session")
            except StateInvalid as error:
                raise ProgramChanged(address, f"the state has no field '{name}' any more") from error
            value = self._decoded(name, join(parts), isinstance(channel, MessagesChannel))
            channel.check_whole(value, "the stored session")
            if name in types and types[name] != schema.types.get(name):
                check_stored(channel, value, types[name])
            self.values[name] = value
        for name, value in schema.first(besides=pieces).items():
            self.adopt(name, value)

    def _decoded(self, name: str, body: bytes, messages: bool) -> Any:
        if messages:
            try:
                return _messages_decoder.decode(body)
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                pass  # Not only messages, or damaged: the general decoder finds out which.
        if codec.may_have_tags(body):
            self.tagged |= {name}
        return decode_field(name, body)


def decode_field(name: str, body: bytes | Raw) -> Any:
    """Return a stored value of a field.

    Raises:
        StateInvalid: a class or time zone in it is not here, or refuses what was stored.
        CheckpointCorrupt: it is damaged.
    """
    try:
        return codec.decode(body)
    except codec.ClassChanged as error:
        raise StateInvalid(name, f"the stored session does not fit: {error.detail}. {error.remedy}.") from error


def _has_names(value: dict[Any, Any]) -> bool:
    """Return whether a dict is stored as a JSON object: all keys are texts, and none looks like a tag."""
    return codec.TAG not in value and all(type(key) is str for key in value)
