"""The values of a running graph's state, and what of them is not yet on record.

Invariants: a name is never in `replaced` and in `grown` at once; what neither names is stored as it is. A list only
grows in place, so that its length is enough to know what was added.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from adjourn._engine.record import GraphImage, join
from adjourn._values import codec
from adjourn.errors import ProgramChanged, StateInvalid
from adjourn.messages import Message

from ._channels import Changes, MessagesChannel
from .commands import Overwrite
from .schema import Schema

NONE_OF_THEM: frozenset[str] = frozenset()

_messages_decoder = msgspec.json.Decoder(list[Message])


class Fields:
    """The state of one graph's frame.

    `tagged` are the fields with values that need a walk to be stored; all others are JSON as they are. A graph inside
    another notes the updates of the fields that both have (`exports`) in `updates`, to be handed up when it has ended.
    """

    __slots__ = ("exports", "grown", "replaced", "tagged", "updates", "values")

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.tagged: frozenset[str] = NONE_OF_THEM
        self.replaced: dict[str, None] = {}
        self.grown: dict[str, int] = {}
        self.exports: frozenset[str] = NONE_OF_THEM
        self.updates: dict[str, list[Any]] = {}

    def adopt(self, name: str, value: Any) -> None:
        """Set a field to a copy of a value from outside.

        Raises:
            NotStorable: it cannot be stored.
        """
        adopted, plain = codec.adopt(value, name)
        self.set(name, adopted, tagged=not plain)

    def set(self, name: str, value: Any, *, tagged: bool = False) -> None:
        """Give a field another value, which is the state's own already."""
        self.values[name] = value
        self.replaced[name] = None
        if self.grown:
            self.grown.pop(name, None)
        if tagged:
            self.tagged |= {name}

    def grow(self, name: str) -> list[Any]:
        """Give a list to be appended to."""
        values: list[Any] = self.values[name]
        if name not in self.replaced:
            self.grown.setdefault(name, len(values))
        return values

    def commit(self, changes: Changes) -> None:
        """Make the changes that a superstep, an input or an edit amounts to."""
        self.values.update(changes.values)
        for name in changes.values:
            self.replaced[name] = None
            if self.grown:
                self.grown.pop(name, None)
        if changes.tails:
            for name, tail in changes.tails.items():
                self.grow(name).extend(tail)
        if self.tagged or changes.tagged:
            self.tagged = self.tagged.difference(changes.values) | changes.tagged

    def export(self, name: str, value: Any, reduces: bool) -> None:
        """Note an update for the graph above, which shares this field."""
        stored = "^" + name
        if not reduces or name not in self.updates or type(value) is Overwrite:
            self.updates[name] = [value]
            self.replaced[stored] = None
            self.grown.pop(stored, None)
            return
        if stored not in self.replaced:
            self.grown.setdefault(stored, len(self.updates[name]))
        self.updates[name].append(value)

    # Records: updates for the graph above are stored beside the fields, with a "^" before their names.

    def snapshot(self, image: GraphImage) -> None:
        """Write what is new into an image."""
        if self.replaced:
            image.set = {name: self._stored(name) for name in self.replaced}
            self.replaced = {}
        if self.grown:
            image.add = {name: self._stored(name, since) for name, since in self.grown.items()}
            self.grown = {}

    def mark_all(self) -> None:
        """Have the next image hold everything."""
        self.replaced = dict.fromkeys(self.values)
        for name in self.updates:
            self.replaced["^" + name] = None
        self.grown = {}

    def _stored(self, name: str, since: int | None = None) -> Any:  # Any: encoded with the record, as if it were Raw
        """A field as a record keeps it, or what a list has got `since`."""
        is_update = name[0] == "^"
        value = self.updates[name[1:]] if is_update else self.values[name]
        if since is not None:
            value = value[since:]
        # Plain values are encoded with the record, in one native call; only tagged ones need a walk.
        return codec.lower(value) if is_update or name in self.tagged else value

    def restore(self, pieces: Mapping[str, list[Raw]], schema: Schema, address: str) -> None:
        """Become what was stored.

        Raises:
            ProgramChanged: the schema has no such field any more.
        """
        for name, parts in pieces.items():
            if name.startswith("^"):
                self.updates[name[1:]] = codec.decode(join(parts))
                continue
            try:
                channel = schema.channel(name, "the stored session")
            except StateInvalid as error:
                raise ProgramChanged(address, f"the state has no field '{name}' any more") from error
            value = self._decoded(name, join(parts), isinstance(channel, MessagesChannel))
            channel.check_whole(value, "the stored session")
            self.values[name] = value

    def _decoded(self, name: str, body: bytes, messages: bool) -> Any:
        if messages:
            try:
                return _messages_decoder.decode(body)
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                pass  # Not only messages, or damaged: the general decoder tells which.
        if codec.may_have_tags(body):
            self.tagged |= {name}
        return codec.decode(body)
