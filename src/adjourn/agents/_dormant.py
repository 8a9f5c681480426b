"""What agents have said whose frames sleep: code runs them, and nobody knows as what before it runs again."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from adjourn._engine.record import Image, UserImage, join
from adjourn._engine.scope import Scope
from adjourn._values import codec

from ._transcript import Entry


def said_asleep(scope: Scope, path: str) -> list[Entry]:
    """What was said by agents that sleep directly below a task, and by those that belong to them."""
    found: list[Entry] = []
    for segment in scope.dormant.below(path):
        agent = f"{path};{segment}"
        pieces = scope.dormant.pieces.get(agent, {})
        if "entries" not in pieces or "progress" not in pieces:
            continue
        found += _entries(codec.decode(join(pieces["entries"])))
        for below, image in scope.dormant.below(agent).items():
            found += _written(image)
            if not below.startswith("tool:"):  # What a tool starts has a transcript of its own.
                found += said_asleep(scope, f"{agent};{below}")
    return found


def _written(task: Image) -> list[Entry]:
    """What a task has written that waits for others of its superstep."""
    if not isinstance(task, UserImage) or task.writes is UNSET:
        return []
    return [entry for name, raw in task.writes if name == "entries" for entry in _entries(codec.decode(raw))]


def _entries(value: Any) -> list[Entry]:
    return [each for each in value if isinstance(each, Entry)]
