"""Nodes and plans: what the engine runs, compiled to objects that point to one another, so a step needs no lookups.

The kinds of nodes are in `nodes/`; those that agents consist of are in `adjourn.agents`.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Self, cast

from msgspec import Raw, Struct
from msgspec.structs import replace

from adjourn._engine.address import segment_text
from adjourn._engine.record import Question
from adjourn._engine.retry import Retry

from .commands import START, Cache
from .schema import Schema

LIMIT = 1_000
"""The number of results cached for one graph."""


class Kept(Struct, frozen=True, kw_only=True):
    """A node's result, encoded, until it expires."""

    expires: float
    writes: list[tuple[str, Raw]]
    goto: list[str] | None
    sends: list[tuple[str, dict[str, Raw]]] | None
    values: dict[str, list[Raw]]


class ResultCache:
    """Results by node and input."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Kept] = OrderedDict()

    def get(self, key: str, now: float) -> Kept | None:
        """Return the result cached under `key`, unless it has expired."""
        kept = self._kept.get(key)
        if kept is None or kept.expires <= now:
            self._kept.pop(key, None)
            return None
        self._kept.move_to_end(key)
        return kept

    def put(self, key: str, kept: Kept) -> None:
        """Cache a result, dropping the least recently used one if there are too many."""
        self._kept[key] = kept
        if len(self._kept) > LIMIT:
            self._kept.popitem(last=False)


UNLIMITED = 2**62
"""A limit on supersteps that is never reached."""

Overlay = dict[str, Any]
Shape = Literal["node", "llm", "tools", "agent"]


class NodeOptions(Struct, frozen=True, kw_only=True):
    """When and how a node runs, as its author wrote it; problems are reported when the graph is compiled."""

    retry: Retry | Sequence[Retry] | None = None
    timeout: float | None = None
    cache: Cache | None = None
    interrupt_before: bool = False
    interrupt_after: bool = False
    destinations: Sequence[str] | Mapping[str, str] | None = None
    defer: bool = False
    description: str = ""


NO_OPTIONS = NodeOptions()


class Node:
    """A node: its place in a graph, and how it runs, which each kind of node defines.

    The engine calls `run` for each attempt of a task, and `leave` when all tasks of the node have finished in a
    superstep. Tasks and frames are Any here: they point to their nodes, so their types are defined after this one.
    """

    __slots__ = ("conditions", "is_plain", "joins", "name", "options", "order", "retry", "segment", "targets")

    shape: Shape = "node"
    """How it is drawn."""
    is_reported: bool = True
    """Whether events are emitted when it starts and ends."""
    runs_program: bool = False
    """Whether it runs a program as it is, instead of code."""
    takes_slot: bool = True
    """Whether it counts towards the concurrency limit; for a node that runs a graph, the inner nodes count instead."""

    def __init__(self, name: str, options: NodeOptions = NO_OPTIONS, *, order: int = -1, segment: str = "") -> None:
        self.name = name
        self.order = order
        self.segment = segment
        self.options = options
        self.retry: tuple[Retry, ...] = ()
        self.is_plain = True
        self.targets: tuple[Node, ...] = ()
        self.conditions: tuple[Condition, ...] = ()
        self.joins: tuple[Join, ...] = ()

    def __repr__(self) -> str:
        return f"<node {self.name}>"

    # Running

    def run(self, task: Any) -> Awaitable[Any]:
        """Make one attempt at a task; return its function's result, `PAUSED`, or `HANDLED` if the result is set."""
        raise NotImplementedError

    def leave(self, frame: Any) -> None:
        """Note in the frame where to go from here."""
        frame.take_edges(self)

    def segment_of(self, frame: Any, index: int, overlay: Overlay | None) -> str:
        """Return the segment of one of several tasks of this node."""
        return f"{self.segment}:{index}"

    def bind_dormant(self, task: Any) -> None:
        """Bind the stored frames below a task whose programs are known before any code runs."""

    def check_answer(self, task: Any, question: Question) -> None:
        """Refuse an answer to a question of this task, or of what is below it, that it could not use.

        Raises:
            ProgramChanged: what asked is gone, or has changed.
        """

    def check_restored(self, task: Any, below: Iterable[str]) -> None:
        """Raise if a stored task belongs to another kind of node; `below` are the segments below it.

        Raises:
            ProgramChanged: it does.
        """

    # Compiling and drawing

    def problems(self, schema: Schema) -> Iterable[str]:
        """Return the problems of this node with this state schema."""
        return ()

    def placed(self, order: int, *, before: bool, after: bool, node_timeout: float | None) -> Self:
        """Return a copy of this node for a place in a compiled graph, not yet linked to others."""
        node, options = copy.copy(self), self.options
        node.order = order
        node.segment = segment_text("node", self.name)
        node.options = replace(
            options,
            interrupt_before=options.interrupt_before or before,
            interrupt_after=options.interrupt_after or after,
        )
        node.retry = tuple(policies(options.retry))
        node.is_plain = not node.retry and options.timeout is None and node_timeout is None
        return node

    @property
    def destinations(self) -> dict[str, str]:
        """Where its commands may lead, with labels."""
        named = self.options.destinations or ()
        return dict(named) if isinstance(named, Mapping) else dict.fromkeys(named, "")

    def marks(self) -> list[str]:
        """Return labels that describe the node in a drawing."""
        return []

    @property
    def inner(self) -> Plan | None:
        """The graph inside it, for drawings."""
        return None


def policies(retry: Any) -> list[Any]:  # Any: users pass anything
    """Return the value of `retry` as a list."""
    if retry is None:
        return []
    return list(cast("Sequence[Any]", retry)) if isinstance(retry, list | tuple) else [retry]


Send = tuple[Node, Overlay | None]
"""A node to go to, with an update that only this task sees."""


class Join:
    """An edge from several nodes to one, taken when all of them have finished since it was last taken."""

    __slots__ = ("id", "sources", "target")

    def __init__(self, id: str, sources: frozenset[str], target: Node) -> None:
        self.id = id
        self.sources = sources
        self.target = target


class Condition:
    """A conditional edge: a function of the state whose result, through `mapping`, names where to go."""

    __slots__ = ("below", "call", "is_async", "known", "mapping", "number", "segment")

    def __init__(
        self, node: Node, number: int, call: Callable[[Any], Any], is_async: bool, mapping: dict[Any, str] | None
    ) -> None:
        self.number = number
        self.call = call
        self.is_async = is_async
        self.mapping = mapping
        self.segment = segment_text("branch", str(number))
        self.below = f"{node.segment};{self.segment}"
        self.known: dict[str, Node | None] = {}


class Plan:
    """A schema and the nodes that work on it, linked to one another; it holds no data of any run."""

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
        self.nodes: dict[str, Node] = {}
        self.start = Node(START, segment=segment_text("node", START))
        self.has_breakpoints = False
        self.defers = False
        self.max_steps = max_steps
        self.step_timeout = step_timeout
        self.node_timeout = node_timeout
        self.results = ResultCache()
