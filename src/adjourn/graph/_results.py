"""Results: what a node's return value means for the state and for the next step, and the cache of results."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any, cast

from msgspec import Raw

from adjourn._engine.values import lift_values, lower_values
from adjourn._text import a_type
from adjourn._values import codec
from adjourn.errors import RunError, StateInvalid, UsageError
from adjourn.messages import AppendMessages, Message

from ._cache import CachedResult, CacheKey
from ._channels import Channel, MessagesChannel
from ._frame import Task
from ._node import Node, Send
from ._routes import encode_write, lift_overlay, lower_overlay
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
            _go(task, result)
    elif isinstance(result, list):
        task.sends = _fan_out(task, cast("list[Any]", result))
    else:
        task.writes = _adopted(task, _returned_state(task, result))


def _go(task: Task, command: Command) -> None:
    """Set where a task leads from the `goto` of the command that its node returned."""
    targets = command.targets()
    if any(isinstance(each, Command) for each in targets):
        task.sends = _fan_out(task, targets)
    else:
        task.goto = _nodes(task, targets)


def _nodes(task: Task, names: list[Any]) -> list[Node]:
    ends = task.node.options.ends
    if ends:
        names = [ends.get(name, name) if isinstance(name, str) else name for name in names]
    nodes = [node_named(task.graph, task.node.name, name, ends=tuple(ends or ())) for name in names if name != END]
    if task.node.joins:
        _check_joins(task.node, nodes)
    return nodes


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


def _returned_state(task: Task, result: Any) -> Mapping[str, Any]:
    schema, fields = task.graph.plan.schema, task.graph.fields.values
    if isinstance(result, State):
        return differences(schema, fields, task.seen, result.touched())
    if schema.cls is not None and isinstance(result, schema.cls):
        return differences(schema, fields, task.seen, attributes(schema, result))
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
        channel = channels.get(name) or schema.channel(name, f"node '{task.node.name}'")
        adopted, plain = codec.adopt(value, name)
        if channel.checks and type(adopted) not in channel.exact:
            check_update(task, channel, adopted)
        writes.append((name, adopted, plain))
    return writes


def check_update(task: Task, channel: Channel, update: Any) -> None:
    """Check that what a node wrote fits the type of its field.

    Raises:
        StateInvalid: it does not; what is added to a field is checked, not what was there.
    """
    if problem := channel.misfit_of_update(update):
        raise StateInvalid(
            channel.name, f"what node '{task.node.name}' returned does not fit: {problem}.", node=task.node.name
        )


def _fan_out(task: Task, commands: list[Any]) -> list[Send]:
    return [send for command in commands for send in _sends(task, command)]


def _sends(task: Task, command: Any) -> list[Send]:
    if not isinstance(command, Command):
        raise RunError(
            f"Node '{task.node.name}' returned a list with {a_type(command)} in it. "
            "A list is a fan-out: every element is a Command."
        )
    if command.goto is None or any(isinstance(each, Command) for each in command.targets()):
        raise UsageError(
            f"Node '{task.node.name}' returned a fan-out with {command!r} in it. "
            "The goto of every element is the name of a node, or several names."
        )
    overlay = _overlay(task, command.update or {})
    return [(node, overlay) for node in _nodes(task, command.targets())]


def _overlay(task: Task, update: Mapping[str, Any]) -> dict[str, Any]:
    """Return what one task of a fan-out sees laid over the state. It never enters the state, so it is not checked."""
    schema, laid = task.graph.plan.schema, dict[str, Any]()
    for name, value in update.items():
        if name not in schema.channels:
            schema.channel(name, f"node '{task.node.name}'")
        laid[name] = codec.adopt(value.value if type(value) is Overwrite else value, name)[0]
    return laid


# The cache


def find_cached(task: Task, cache: Cache) -> bool:
    """Set the task's result from the cache if it is there; otherwise note the key under which to cache it."""
    task.cache_key = None
    if task.questions or task.children or task.path in task.scope.dormant:
        return False  # A question was asked: its answer must not decide another session, nor another answer this one.
    if not task.node.may_cache(task):
        return False
    key = _key(task, cache)
    kept = task.graph.plan.results.get(key, task.scope.clock())
    if kept is not None and _recall(task, kept):
        return True
    task.cache_key = key
    return False


def _recall(task: Task, kept: CachedResult) -> bool:
    task.writes = [(name, codec.decode(raw), False) for name, raw in kept.writes]
    task.goto = None if kept.goto is None else [node_named(task.graph, task.node.name, name) for name in kept.goto]
    task.sends = None if kept.sends is None else [_send(task, name, overlay) for name, overlay in kept.sends]
    task.written = lift_values(kept.values) or None
    task.cached = task.node.recall(task, kept.added)
    if not task.cached:
        task.forget_result()
        task.written = None
    return task.cached


def _send(task: Task, name: str, overlay: dict[str, Raw]) -> Send:
    return node_named(task.graph, task.node.name, name), lift_overlay(overlay)


def encode_result(task: Task) -> CachedResult:
    """Return the result of a task as it is cached; it has not been applied yet."""
    cache = task.node.options.cache
    assert cache is not None
    return CachedResult(
        expires=task.scope.clock() + cache.seconds,
        writes=[(name, encode_write(value, plain)) for name, value, plain in task.writes],
        goto=None if task.goto is None else [node.name for node in task.goto],
        sends=None if task.sends is None else [(node.name, lower_overlay(over or {})) for node, over in task.sends],
        values=lower_values(task.written or {}),
        added=_added(task),
    )


def is_cacheable(task: Task) -> bool:
    """Return whether a result may be used again: one with a tool's error in it may not."""
    return not any(each.role == "tool" and each.finish_reason == "error" for _, each in _messages(task))


def _added(task: Task) -> frozenset[str]:
    fields, laid = task.graph.fields.values, task.overlay or {}
    found = {(name, each.id) for name, each in _messages(task)}
    known = {
        (name, each.id)
        for name in {name for name, _ in found}
        for each in (*_listed(fields.get(name)), *_listed(laid.get(name)))
        if isinstance(each, Message)
    }
    return frozenset(each for _, each in found - known if each is not None)


def _messages(task: Task) -> Iterable[tuple[str, Message]]:
    """Yield the messages that a task adds to conversations, with the field of each."""
    channels = task.graph.plan.schema.channels
    for name, value, _ in task.writes:
        if isinstance(channels.get(name), MessagesChannel):
            for each in _listed(value.value if isinstance(value, Overwrite) else value):
                if isinstance(each, Message):
                    yield name, each


def _listed(value: object) -> Iterable[object]:
    if isinstance(value, AppendMessages):
        return value.messages
    return cast("Iterable[object]", value) if isinstance(value, list | tuple) else [value]


def _key(task: Task, cache: Cache) -> CacheKey:
    plan, fields, scope, own = task.graph.plan, task.graph.fields.values, task.scope, task.node.cache_input(task)
    if cache.key is not None:
        given: Any = [cache.key(read(plan.schema, fields, task.overlay)), own]
    else:
        state = {**fields, **(task.overlay or {})} if own is None else own
        around = [scope.user_id, task.all_values(), dict(scope.turn_options), dict(scope.for_agents)]
        given = [state, *around]
    return CacheKey(task.node.name, codec.fingerprint(given, "the cache key"))
