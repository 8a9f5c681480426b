"""Results: what a node's return value means for the state and for what comes next."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, cast

from adjourn._text import a_type
from adjourn._values import codec
from adjourn.errors import RunError, UsageError

from ._routing import node_named
from ._task import Send, Task
from .commands import END, Command, Overwrite
from .schema import Schema
from .state import State, attributes, differences


def interpret(task: Task, result: Any) -> None:
    """Turn a return value into the task's writes and targets, refusing what cannot be stored."""
    if type(result) is dict:
        task.writes = owned_writes(task, result)  # pyright: ignore[reportUnknownArgumentType]  # of the user's making
    elif result is None:
        task.writes = []
    elif isinstance(result, Command):
        if result.update is not None:
            task.writes = owned_writes(task, _returned_state(task, result.update))
        if result.goto is not None:
            names = [name for name in result.targets() if name != END]
            task.goto = [node_named(task.graph, task.spec.name, name) for name in names]
    elif isinstance(result, list):
        task.sends = [send for command in cast("list[Any]", result) for send in _sends(task, command)]
    else:
        task.writes = owned_writes(task, _returned_state(task, result))


def _returned_state(task: Task, result: Any) -> Mapping[str, Any]:
    schema: Schema = task.graph.graph.schema
    if isinstance(result, State):
        return differences(schema, task.graph.channels, task.overlay, result.touched())
    if schema.cls is not None and isinstance(result, schema.cls):
        return differences(schema, task.graph.channels, task.overlay, attributes(schema, result))
    if isinstance(result, Mapping):
        return cast("Mapping[str, Any]", result)
    if inspect.iscoroutine(result):
        result.close()
        raise RunError(f"Node '{task.spec.name}' returned a coroutine. Make the node itself an `async def`.")
    raise RunError(
        f"Node '{task.spec.name}' returned {a_type(result)}. Return a mapping of updates, a Command, "
        "a list of commands, the state, or None."
    )


def owned_writes(task: Task, update: Mapping[str, Any]) -> list[tuple[str, Any, bool]]:
    """The updates as the state's own, each with whether it is plain JSON."""
    channels = task.graph.graph.schema.channels
    writes: list[tuple[str, Any, bool]] = []
    for name, value in update.items():
        if name not in channels:
            task.graph.graph.schema.channel(name, f"node '{task.spec.name}'")
        owned, plain = codec.adopt(value, name)
        writes.append((name, owned, plain))
    return writes


def _sends(task: Task, command: Any) -> list[Send]:
    if not isinstance(command, Command):
        raise RunError(
            f"Node '{task.spec.name}' returned a list with {a_type(command)} in it. "
            "A list is a fan-out: every element is a Command."
        )
    if command.goto is None:
        raise UsageError(
            f"Node '{task.spec.name}' returned a fan-out with a command without goto. Every element needs a target."
        )
    writes = owned_writes(task, command.update or {})
    overlay = {name: value.value if type(value) is Overwrite else value for name, value, _ in writes}
    names = [name for name in command.targets() if name != END]
    return [(node_named(task.graph, task.spec.name, name), overlay) for name in names]
