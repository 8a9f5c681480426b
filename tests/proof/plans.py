"""Plans: graphs as plain data, from which both the reference and the real graph are made.

What a node does is a list of acts; what it writes is a digest of all that it saw and heard. So any difference in what a
task was given, in the order of updates or in an answer that went to the wrong place shows in the final state.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, cast

from msgspec import Struct

from adjourn import Message
from adjourn.graph import END, Overwrite, RemoveAllMessages, ReplaceLastUser
from adjourn.graph import AppendMessages as Append

GIVEN: dict[str, Any] = {"log": ["go"]}
AGAIN: dict[str, Any] = {"log": ["again"], "spent": -6}
"""The inputs of a first turn and of a second one, which may spend some more."""

LIMIT = 8
"""Tasks after which gotos and conditions lead to the end, so that every loop is bounded."""

FIELDS = ("log", "spent", "latest", "mix", "notes", "slot", "messages")
ALWAYS = FIELDS[:3]


class Ask(Struct, frozen=True, tag=True):
    """Ask one question; without a key it is known by its order."""

    key: str | None = None


class AskAll(Struct, frozen=True, tag=True):
    """Ask several questions at once."""

    keys: tuple[str, ...]


class Keep(Struct, frozen=True, tag=True):
    """Make a call that is kept."""

    name: str


class SetValue(Struct, frozen=True, tag=True):
    """Write a session value."""

    key: str


class DropValue(Struct, frozen=True, tag=True):
    """Delete a session value if it is there."""

    key: str


class Call(Struct, frozen=True, tag=True):
    """Run another graph as a child."""

    graph: Graph


class Stumble(Struct, frozen=True, tag=True):
    """Fail as many times as said before going on."""

    times: int


class Rest(Struct, frozen=True, tag=True):
    """Let others run for so many turns of the loop."""

    turns: int


Act: TypeAlias = Ask | AskAll | Keep | SetValue | DropValue | Call | Stumble | Rest
How = Literal["update", "overwrite", "say", "redo", "clear"]


class Write(Struct, frozen=True):
    """An update of one field."""

    field: str
    how: How = "update"


class Plain(Struct, frozen=True, tag=True):
    """Return an update and take the edges; "none" returns nothing, "state" the changed state itself."""

    style: Literal["mapping", "command", "state", "none"] = "mapping"


class Goto(Struct, frozen=True, tag=True):
    """Return a command that names where to go."""

    targets: tuple[str, ...]


class Send(Struct, frozen=True):
    """One task of a fan-out with the fields that are laid over its state."""

    target: str
    overlay: tuple[str, ...] = ()


class Fan(Struct, frozen=True, tag=True):
    """Return a list of commands, or with an update a command that has them."""

    sends: tuple[Send, ...]


Way: TypeAlias = Plain | Goto | Fan


class Node(Struct, frozen=True, kw_only=True):
    """A node, or with `graph` a subgraph as one."""

    name: str
    kind: Literal["async", "sync", "inline"] = "async"
    acts: tuple[Act, ...] = ()
    writes: tuple[Write, ...] = ()
    way: Way = Plain()
    graph: Graph | None = None
    mapped: bool = False
    defer: bool = False
    before: bool = False
    after: bool = False
    attempts: int = 1


class Choice(Struct, frozen=True, kw_only=True):
    """A conditional edge: one of `options`, each a list of targets, is taken depending on the state."""

    source: str
    options: tuple[tuple[str, ...], ...]
    style: Literal["name", "list", "mapping"] = "name"
    asks: bool = False
    is_async: bool = False


class Graph(Struct, frozen=True, kw_only=True):
    """A whole graph."""

    name: str
    fields: tuple[str, ...] = ALWAYS
    nodes: tuple[Node, ...]
    entries: tuple[str, ...] = ()
    edges: tuple[tuple[str, str], ...] = ()
    joins: tuple[tuple[tuple[str, ...], str], ...] = ()
    choices: tuple[Choice, ...] = ()

    def node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)

    def choices_of(self, source: str) -> list[Choice]:
        return [choice for choice in self.choices if choice.source == source]


# What both sides compute alike, since it is the user's code


def shown(value: Any) -> Any:
    """A value as JSON that keeps kinds apart."""
    if isinstance(value, Message):
        return ["message", value.role, value.text]
    if isinstance(value, tuple):
        return ["tuple", *(shown(item) for item in cast("tuple[Any, ...]", value))]
    if isinstance(value, list):
        return [shown(item) for item in cast("list[Any]", value)]
    if isinstance(value, Mapping):
        mapping = cast("Mapping[str, Any]", value)
        return {key: shown(mapping[key]) for key in mapping}
    return value


def digest(*parts: Any) -> str:
    """A short text that differs when anything differs."""
    text = json.dumps([shown(part) for part in parts], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


def add(old: int, new: int) -> int:
    """A reducer that counts."""
    return old + new


def weave(old: int, new: int) -> int:
    """A reducer whose result depends on the order."""
    return (old * 31 + new) % 9973


def value_for(name: str, write: Write, essence: str) -> Any:
    """What a node writes into a field."""
    if write.field == "messages":
        return _message_update(write.how, essence)
    value = {
        "log": [f"{name} {essence}"],
        "spent": 1,
        "latest": essence,
        "mix": int(essence, 16) % 997,
        "notes": {name: (essence, len(name))},
        "slot": essence,
    }[write.field]
    return Overwrite(value) if write.how == "overwrite" else value


def _message_update(how: How, essence: str) -> Any:
    match how:
        case "redo":
            return ReplaceLastUser(essence)
        case "clear":
            return [RemoveAllMessages(), Message.user(essence)]
        case "say":
            return Append((Message.user(essence), Message.assistant(essence)))
        case _:
            return Message.user(essence)


def update_for(node: Node, essence: str) -> dict[str, Any]:
    """All that a node writes."""
    return {write.field: value_for(node.name, write, essence) for write in node.writes}


def overlay_for(send: Send, number: int, essence: str) -> dict[str, Any]:
    """What a fan-out lays over the state of one task."""
    return {field: value_for(f"over{number}", Write(field), digest(essence, number)) for field in send.overlay}


def picked(choice: Choice, state: Mapping[str, Any], heard: list[Any]) -> tuple[str, ...]:
    """The targets that a condition takes."""
    if state["spent"] >= LIMIT:
        return (END,)
    return choice.options[int(digest(dict(state), heard), 16) % len(choice.options)]


def goto_for(way: Goto, state: Mapping[str, Any]) -> tuple[str, ...]:
    """The targets that a command takes."""
    return (END,) if state["spent"] >= LIMIT else way.targets


def answer_for(question: str, reason: str) -> Any:
    """The answer that a question gets, whoever gives it and whenever."""
    if reason == "static":
        return {"latest": f"edited {question}"} if int(digest(question), 16) % 2 else None
    return f"answer to {question}"


def child_input(name: str, state: Mapping[str, Any], essence: str) -> dict[str, Any]:
    """What a mapped subgraph or a called one is given."""
    return {"log": [f"{name} gives {essence}"], "spent": state["spent"]}


def child_output(name: str, final: Mapping[str, Any]) -> dict[str, Any]:
    """What a mapped subgraph hands up."""
    return {"log": [f"{name} got {digest(dict(final))}"], "spent": 1}
