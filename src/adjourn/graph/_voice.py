"""In whose name a graph's nodes are heard: that of the agent which the graph is in, if there is one."""

from __future__ import annotations

from typing import NamedTuple

from adjourn._engine.scope import Frame


class Voice(NamedTuple):
    """The agent that a graph belongs to, the agents that the turn has gone through, and whether anybody is told."""

    agent: str = ""
    path: tuple[str, ...] = ()
    tells: bool = True


def voice_of(frame: Frame | None) -> Voice:
    """The voice of what runs below a frame."""
    while frame is not None:
        # Agents live above graphs; they are known by having come some way.
        if (trail := getattr(frame, "trail", None)) is not None:
            return Voice(getattr(frame, "caller", ""), trail, getattr(frame, "tells", True))
        frame = frame.parent
    return Voice()
