"""Results: what a node's return value means for the state and for the next step."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any, cast

from adjourn._text import a_type
from adjourn._values import codec
from adjourn.errors import RunError, StateInvalid, UsageError
from adjourn.messages import AppendMessages, Message

from ._channels import Channel, MessagesChannel
from ._node import Node, Overlay, Plan, Send
from .commands import END, Command, Overwrite
from .schema import Schema
from .state import State, attributes, differences

Writes = list[tuple[str, Any, bool]]
"""Updates of fields that the state owns, in order, each with whether it is plain JSON."""


def nodes_named(plan: Plan, node: Node, names: list[Any]) -> list[Node]:
    """Return the nodes that a node's command names, without the end."""
    ends = node.options.ends
    if ends:
        names = [ends.get(name, name) if isinstance(name, str) else name for name in names]
    nodes = [plan.target(name, node.name, ends=tuple(ends or ())) for name in names if name != END]
    if node.joins:
        _check_joins(node, nodes)
    return nodes


def returned_update(
    schema: Schema, node: Node, values: Mapping[str, Any], seen: Overlay | None, result: Any
) -> Mapping[str, Any]:
    """Return the update that a node means by what it returned: of a state that it was given, only what changed."""
    if isinstance(result, State):
        return differences(schema, values, seen, result.touched())
    if schema.cls is not None and isinstance(result, schema.cls):
        return differences(schema, values, seen, attributes(schema, result))
    if isinstance(result, Mapping):
        return cast("Mapping[str, Any]", result)
    if inspect.iscoroutine(result):
        result.close()
        raise RunError(f"Node '{node.name}' returned a coroutine. Make the node itself an `async def`.")
    raise RunError(
        f"Node '{node.name}' returned {a_type(result)}. Return a mapping of updates, a Command, "
        "a list of commands, the state, or None."
    )


def adopted(schema: Schema, node: Node, update: Mapping[str, Any]) -> Writes:
    """Return a node's updates as values that the state owns."""
    channels = schema.channels
    writes: Writes = []
    for name, value in update.items():
        channel = channels.get(name) or schema.channel(name, f"node '{node.name}'")
        owned, plain = codec.adopt(value, name)
        if channel.checks and type(owned) not in channel.exact:
            check_update(node, channel, owned)
        writes.append((name, owned, plain))
    return writes


def check_update(node: Node, channel: Channel, update: Any) -> None:
    """Check that what a node wrote fits the type of its field.

    Raises:
        StateInvalid: it does not; what is added to a field is checked, not what was there.
    """
    if problem := channel.misfit_of_update(update):
        raise StateInvalid(channel.name, f"what node '{node.name}' returned does not fit: {problem}.", node=node.name)


def _check_joins(source: Node, targets: list[Node]) -> None:
    """Refuse that a source of a join goes elsewhere, unless that is declared: the join would wait for it in vain.

    Raises:
        UsageError: naming the join.
    """
    for target in targets:
        if target.name not in source.options.leads:
            joined = ", ".join(f"'{join.target.name}'" for join in source.joins)
            raise UsageError(
                f"Node '{source.name}' returned goto='{target.name}'. It takes the place of the node's edges, so the "
                f"join into {joined} would go on waiting for it. Return no goto to take part in the join. To skip it "
                f"on purpose, declare that: add_node('{source.name}', …, destinations=['{target.name}'])."
            )


def fan_out(plan: Plan, node: Node, commands: list[Any]) -> list[Send]:
    """Return the tasks that a node's list of commands asks for."""
    return [send for command in commands for send in _sends(plan, node, command)]


def _sends(plan: Plan, node: Node, command: Any) -> list[Send]:
    if not isinstance(command, Command):
        raise RunError(
            f"Node '{node.name}' returned a list with {a_type(command)} in it. "
            "A list is a fan-out: every element is a Command."
        )
    command = cast("Command", command)
    if command.goto is None or any(isinstance(each, Command) for each in command.targets()):
        raise UsageError(
            f"Node '{node.name}' returned a fan-out with {command!r} in it. "
            "The goto of every element is the name of a node, or several names."
        )
    overlay = _overlay(plan.schema, node, command.update or {})
    return [(target, overlay) for target in nodes_named(plan, node, command.targets())]


def _overlay(schema: Schema, node: Node, update: Mapping[str, Any]) -> dict[str, Any]:
    """Return what one task of a fan-out sees laid over the state. It never enters the state, so it is not checked."""
    laid = dict[str, Any]()
    for name, value in update.items():
        if name not in schema.channels:
            schema.channel(name, f"node '{node.name}'")
        laid[name] = codec.adopt(value.value if type(value) is Overwrite else value, name)[0]
    return laid


def messages_in(schema: Schema, writes: Writes) -> Iterable[tuple[str, Message]]:
    """Yield the messages that writes add to conversations, with the field of each."""
    for name, value, _ in writes:
        if isinstance(schema.channels.get(name), MessagesChannel):
            for each in listed(value.value if isinstance(value, Overwrite) else value):
                if isinstance(each, Message):
                    yield name, each


def listed(value: object) -> Iterable[object]:
    """Return the items of an update of a conversation."""
    if isinstance(value, AppendMessages):
        return value.messages
    return cast("Iterable[object]", value) if isinstance(value, list | tuple) else [value]
