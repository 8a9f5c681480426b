"""The values of a running graph's state, and which of them are not recorded yet.

Invariants: a name is never in both `replaced` and `grown`; a field in neither is stored as it is. A list only ever
grows in place, so its length is enough to know what was added.
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

    `tagged` are the fields whose values need a walk to be stored; all others are JSON as they are. A subgraph collects
    the updates of fields it shares with its parent (`exports`) in `updates`, and hands them up when it ends.
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
        """Set a field to a value that the state already owns."""
        self.values[name] = value
        self.replaced[name] = None
        if self.grown:
            self.grown.pop(name, None)
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
            if self.grown:
                self.grown.pop(name, None)
        if changes.tails:
            for name, tail in changes.tails.items():
                self.grow(name).extend(tail)
        if self.tagged or changes.tagged:
            self.tagged = self.tagged.difference(changes.values) | changes.tagged

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
            image.set = {name: self._stored(name) for name in self.replaced}
            self.replaced = {}
        if self.grown:
            image.add = {name: self._stored(name, since) for name, since in self.grown.items()}
            self.grown = {}

    def mark_all(self) -> None:
        """Mark everything as new, so that the next image is complete."""
        self.replaced = dict.fromkeys(self.values)
        for name in self.updates:
            self.replaced["^" + name] = None
        self.grown = {}

    def _stored(self, name: str, since: int | None = None) -> Any:  # Any: encoded with the record, as if it were Raw
        """Return a field as it is recorded, or only the items of a list from `since` on."""
        is_update = name[0] == "^"
        value = self.updates[name[1:]] if is_update else self.values[name]
        if since is not None:
            value = value[since:]
        # Plain values are encoded with the record, in one native call; only tagged ones need a walk.
        return codec.lower(value) if is_update or name in self.tagged else value

    def restore(self, pieces: Mapping[str, list[Raw]], schema: Schema, address: str) -> None:
        """Restore the stored values.

        Raises:
            ProgramChanged: the schema no longer has one of the stored fields.
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
                pass  # Not only messages, or damaged: the general decoder finds out which.
        if codec.may_have_tags(body):
            self.tagged |= {name}
        return codec.decode(body)
