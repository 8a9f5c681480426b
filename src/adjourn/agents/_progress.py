"""Progress: how far an agent has come in its turn, and how it ended."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from adjourn._values.registry import native


class Ending(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="$t", tag="ending", gc=False):
    """How an agent ended: with its text (and JSON `value`, of agent `of`'s type), and what it wants of those above it.

    An `action` is `exit`, `break_loop` or `transfer` (back, to `target`); `trail` are the agents it went through.
    """

    output: str = ""
    value: Any = None  # Any: JSON of the agent's output type
    of: str = ""
    action: str | None = None
    target: str = ""
    trail: tuple[str, ...] = ()


class Progress(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="$t", tag="progress", gc=False):
    """What an agent has done in this turn.

    `start` is the place in the transcript at which an agent of one's own began, `batch` that of the message whose tool
    calls are answered, `rounds` counts passes of a loop, `model` is the place among an agent's models of the one that
    answered last, `misfits` counts answers of the wrong form, `trail` has the agents that the turn has gone through.
    """

    model_calls: int = 0
    tool_calls: int = 0
    tokens: int = 0
    seconds: float = 0.0
    start: int = 0
    batch: int = -1
    rounds: int = 0
    model: int = 0
    misfits: int = 0
    trail: tuple[str, ...] = ()
    ending: Ending | None = None


native(Ending)
native(Progress)
