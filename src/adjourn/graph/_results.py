"""Results: what a node's return value means for the state and for the next step, and the cache of results."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, cast

from msgspec import Raw

from adjourn._engine.values import lift_values, lower_values
from adjourn._text import a_type
from adjourn._values import codec
from adjourn.errors import RunError, UsageError

from ._frame import Task, encode_write, lift_overlay, lower_overlay
from ._node import Kept, Send
from ._routing import node_named
from .commands import END, Cache, Command, Overwrite
from .state import State, attributes, differences, read


def interpret(task: Task, result: Any) -> None:
    """Turn a return value into the task's writes and targets; raise if it cannot be stored."""
    if type(result) is dict:
        task.writes = _adopted(task, result)  # pyright: ignore[reportUnknownArgumentType]  # made by the user
    elif result is None:
        task.writes = []
    elif isinstance(result, Command):
        if result.update is not None:
            task.writes = _adopted(task, _returned_state(task, result.update))
        if result.goto is not None:
            names = [name for name in result.targets() if name != END]
            task.goto = [node_named(task.graph, task.node.name, name) for name in names]
    elif isinstance(result, list):
        task.sends = [send for command in cast("list[Any]", result) for send in _sends(task, command)]
    else:
        task.writes = _adopted(task, _returned_state(task, result))


def _returned_state(task: Task, result: Any) -> Mapping[str, Any]:
    schema, fields = task.graph.plan.schema, task.graph.fields.values
    if isinstance(result, State):
        return differences(schema, fields, task.overlay, result.touched())
    if schema.cls is not None and isinstance(result, schema.cls):
        return differences(schema, fields, task.overlay, attributes(schema, result))
    if isinstance(result, Mapping):
        return cast("Mapping[str, Any]", result)
    if inspect.iscoroutine(result):
        result.close()
        raise RunError(f"Node '{task.node.name}' returned a coroutine. Make the node itself an `async def`.")
    raise RunError(
        f"Node '{task.node.name}' returned {a_type(result)}. Return a mapping of updates, a Command, "
        "a list of commands, the state, or None."
    )


def _adopted(task: Task, update: Mapping[str, Any]) -> list[tuple[str, Any, bool]]:
    """Return the updates as values that the state owns, each with whether it is plain JSON."""
    schema = task.graph.plan.schema
    channels = schema.channels
    writes: list[tuple[str, Any, bool]] = []
    for name, value in update.items():
        if name not in channels:
            schema.channel(name, f"node '{task.node.name}'")
        adopted, plain = codec.adopt(value, name)
        writes.append((name, adopted, plain))
    return writes


def _sends(task: Task, command: Any) -> list[Send]:
    if not isinstance(command, Command):
        raise RunError(
            f"Node '{task.node.name}' returned a list with {a_type(command)} in it. "
            "A list is a fan-out: every element is a Command."
        )
    if command.goto is None:
        raise UsageError(
            f"Node '{task.node.name}' returned a fan-out with a command without goto. Every element needs a target."
        )
    writes = _adopted(task, command.update or {})
    overlay = {name: value.value if type(value) is Overwrite else value for name, value, _ in writes}
    names = [name for name in command.targets() if name != END]
    return [(node_named(task.graph, task.node.name, name), overlay) for name in names]


# The cache


def find_cached(task: Task, cache: Cache) -> bool:
    """Set the task's result from the cache if it is there; otherwise note the key under which to cache it."""
    task.cache_key = None
    if task.questions or task.children or task.path in task.scope.dormant:
        return False  # A question was asked: its answer must not decide another session, nor another answer this one.
    key = _key(task, cache)
    kept = task.graph.plan.results.get(key, task.scope.clock())
    if kept is None:
        task.cache_key = key
        return False
    task.writes = [(name, codec.decode(raw), False) for name, raw in kept.writes]
    task.goto = None if kept.goto is None else [node_named(task.graph, task.node.name, name) for name in kept.goto]
    task.sends = None if kept.sends is None else [_send(task, name, overlay) for name, overlay in kept.sends]
    task.written = lift_values(kept.values) or None
    task.cached = True
    return True


def _send(task: Task, name: str, overlay: dict[str, Raw]) -> Send:
    return node_named(task.graph, task.node.name, name), lift_overlay(overlay)


def keep_in_cache(task: Task) -> None:
    """Cache the result of a task that has been applied."""
    cache = task.node.options.cache
    assert cache is not None
    assert task.cache_key is not None
    kept = Kept(
        expires=task.scope.clock() + cache.seconds,
        writes=[(name, encode_write(value, plain)) for name, value, plain in task.writes],
        goto=None if task.goto is None else [node.name for node in task.goto],
        sends=None if task.sends is None else [(node.name, lower_overlay(over or {})) for node, over in task.sends],
        values=lower_values(task.written or {}),
    )
    task.graph.plan.results.put(task.cache_key, kept)


def _key(task: Task, cache: Cache) -> str:
    plan, fields = task.graph.plan, task.graph.fields.values
    given: Any = {**fields, **(task.overlay or {})}
    if cache.key is not None:
        given = cache.key(read(plan.schema, fields, task.overlay))
    return f"{task.node.name}:{codec.fingerprint(given, 'the cache key')}"
