"""Plans: what the engine runs, a graph linked and ready."""

from __future__ import annotations

from ._cache import ResultCache
from ._spec import NodeSpec
from .commands import START
from .schema import Schema

UNLIMITED = 2**62
"""As a limit of supersteps: none."""


class Plan:
    """A schema and the nodes that work on it, linked to one another; it holds no run's data."""

    def __init__(
        self,
        name: str,
        schema: Schema,
        *,
        max_steps: int = UNLIMITED,
        step_timeout: float | None = None,
        node_timeout: float | None = None,
    ) -> None:
        self.name = name
        self.schema = schema
        self.specs: dict[str, NodeSpec] = {}
        self.start = NodeSpec(START, -1, "inline")
        self.halts = False
        self.defers = False
        self.max_steps = max_steps
        self.step_timeout = step_timeout
        self.node_timeout = node_timeout
        self.results = ResultCache()
