"""Finding and keeping the results of nodes that are cached."""

from __future__ import annotations

from typing import Any

from msgspec import Raw

from adjourn._engine.frame import lift_values, lower_values
from adjourn._values import codec

from ._cache import Kept
from ._routing import node_named
from ._task import Send, Task, encode_write, lift_overlay, lower_overlay
from .commands import Cache
from .state import read


def find(task: Task, cache: Cache) -> bool:
    """Give the task its result from the cache, if it is there; else note under which key its result is to be kept."""
    task.cache_key = None
    if task.questions or task.children or task.scope.dormant.below(task.path):
        return False  # Somebody was asked: what they answered in this session decides no other, nor another this one.
    key = _key(task, cache)
    kept = task.graph.graph.results.get(key, task.scope.clock())
    if kept is None:
        task.cache_key = key
        return False
    task.writes = [(name, codec.decode(raw), False) for name, raw in kept.writes]
    task.goto = None if kept.goto is None else [node_named(task.graph, task.spec.name, name) for name in kept.goto]
    task.sends = None if kept.sends is None else [_send(task, name, overlay) for name, overlay in kept.sends]
    task.written = lift_values(kept.values) or None
    task.cached = True
    return True


def _send(task: Task, name: str, overlay: dict[str, Raw]) -> Send:
    return node_named(task.graph, task.spec.name, name), lift_overlay(overlay)


def keep(task: Task) -> None:
    """Put the result of a task, now that it is applied, into the cache."""
    assert task.spec.cache is not None
    assert task.cache_key is not None
    kept = Kept(
        expires=task.scope.clock() + task.spec.cache.seconds,
        writes=[(name, encode_write(value, plain)) for name, value, plain in task.writes],
        goto=None if task.goto is None else [spec.name for spec in task.goto],
        sends=None if task.sends is None else [(spec.name, lower_overlay(over or {})) for spec, over in task.sends],
        values=lower_values(task.written or {}),
    )
    task.graph.graph.results.put(task.cache_key, kept)


def _key(task: Task, cache: Cache) -> str:
    given: Any = {**task.graph.channels, **(task.overlay or {})}
    if cache.key is not None:
        given = cache.key(read(task.graph.graph.schema, task.graph.channels, task.overlay))
    return f"{task.spec.name}:{codec.fingerprint(given, 'the cache key')}"
