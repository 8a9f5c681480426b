"""Nodes and plans: what the engine runs, compiled to objects that point to one another, so a step needs no lookups.

The kinds of nodes are in `nodes/`; those that agents consist of are in `adjourn.agents`.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any, Literal, Self

from adjourn._engine.address import address_of, segment_text
from adjourn._engine.record import Question
from adjourn._engine.retry import Retry
from adjourn.errors import NodeNotFound, ProgramChanged
from adjourn.middleware.hooks import Last, Middleware

from ._cache import ResultCache
from ._options import NO_OPTIONS, NodeSettings
from .commands import END, START
from .schema import Schema

UNLIMITED = 2**62
"""A limit on supersteps that is never reached."""

Overlay = dict[str, Any]
Shape = Literal["node", "llm", "tools", "agent"]


class Node:
    """A node: its place in a graph, and how it runs, which each kind of node defines.

    The engine calls `run` for each attempt of a task, and `leave` when all tasks of the node have finished in a
    superstep. Tasks and frames are Any here: they point to their nodes, so their types are defined after this one.
    """

    __slots__ = ("conditions", "hooks", "is_plain", "joins", "name", "options", "order", "retry", "segment", "targets")

    shape: Shape = "node"
    """How it is drawn."""
    is_reported: bool = True
    """Whether events are emitted when it starts and ends."""
    runs_program: bool = False
    """Whether it runs a program as it is, instead of code."""
    takes_slot: bool = True
    """Whether it counts towards the concurrency limit; for a node that runs a graph, the inner nodes count instead."""

    def __init__(self, name: str, options: NodeSettings = NO_OPTIONS, *, order: int = -1, segment: str = "") -> None:
        self.name: str = name
        self.order: int = order
        self.segment: str = segment
        self.options: NodeSettings = options
        self.retry: tuple[Retry, ...] = ()
        self.hooks: tuple[Middleware, ...] = ()
        self.is_plain: bool = True
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
        """Note in the frame where to go from here; conditions are decided later."""
        routes = frame.routes
        for target in self.targets:
            routes.targets.append((target, None))
        for join in self.joins:
            routes.joins.setdefault(join.id, {})[self.name] = None
        if self.conditions:
            routes.finished.append(self)

    def segment_of(self, frame: Any, index: int, overlay: Overlay | None) -> str:
        """Return the segment of one of several tasks of this node."""
        return f"{self.segment}:{index}"

    # Caching

    def may_cache(self, task: Any) -> bool:
        """Return whether a task may get its result from the cache, and leave it there."""
        return True

    def cache_input(self, task: Any) -> Any:
        """Return what the node reads of the state, for results that only fit it; None means the whole state."""
        return None

    def recall(self, task: Any, added: Collection[str]) -> bool:
        """Change a result from the cache into one of this task, where it is not the same for every task.

        `added` are the ids of messages that the result added. Return False if the result does not fit.
        """
        return True

    # Restoring

    def bind_dormant(self, task: Any) -> None:
        """Bind the stored frames below a task whose programs are known before any code runs."""

    def check_answer(self, task: Any, question: Question) -> None:
        """Refuse the answer of a question of this task, or of what is below it, if it could not use it.

        Raises:
            ProgramChanged: what asked is gone, or has changed.
            Superseded: something else would be asked in its place.
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

    def placed(self, order: int, options: NodeSettings) -> Self:
        """Return a copy of this node for a place in a compiled graph, not yet linked to others."""
        node = copy.copy(self)
        node.order = order
        node.segment = segment_text("node", self.name)
        node.options = options
        node.retry = options.policies
        node.is_plain = not node.hooks and not node.retry and options.timeout is None and options.cache is None
        return node

    @property
    def title(self) -> str:
        """The name that people see."""
        return self.options.title or self.name

    def marks(self) -> list[str]:
        """Return labels that describe the node in a drawing."""
        return []

    @property
    def inner(self) -> Plan | None:
        """The graph inside it, for drawings."""
        return None


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
    """A conditional edge: a function of the state whose result, through `mapping`, names where to go.

    Records know it by its segment, so the order in which conditions were added can change.
    """

    __slots__ = ("below", "call", "is_async", "known", "mapping", "segment")

    def __init__(
        self, node: Node, segment: str, call: Callable[[Any], Any], is_async: bool, mapping: dict[Any, str] | None
    ) -> None:
        self.call: Callable[[Any], Any] = call
        self.is_async: bool = is_async
        self.mapping: dict[Any, str] | None = mapping
        self.segment: str = segment
        self.below: str = f"{node.segment};{self.segment}"
        self.known: dict[str, Node | None] = {}


class Plan:
    """A schema and the nodes that work on it, linked to one another; it holds no data of any run."""

    has_hooks: bool = False
    """Whether middleware wraps its nodes; the steps of an agent are not wrapped."""
    middleware: tuple[Any, ...] = ()  # Any: middleware need not subclass ours
    """What surrounds everything that runs in it, wherever it runs."""
    acts_once: bool = True
    """Whether what tasks of one superstep request of the agent that runs them must be the same."""

    def __init__(
        self,
        name: str,
        schema: Schema,
        *,
        max_steps: int = UNLIMITED,
        step_timeout: float | None = None,
        run_timeout: float | None = None,
    ) -> None:
        self.name = name
        self.schema = schema
        self.nodes: dict[str, Node] = {}
        self.start: Node = Node(START, segment=segment_text("node", START))
        self.joins: dict[str, Join] = {}
        self.has_breakpoints = False
        self.defers = False
        self.max_steps = max_steps
        self.step_timeout = step_timeout
        self.run_timeout = run_timeout
        self.results: ResultCache = ResultCache()
        self.wrapping: Last[tuple[Middleware, ...]] = Last()

    def target(self, name: Any, by: str, *, keys: tuple[Any, ...] = (), ends: tuple[str, ...] = ()) -> Node:
        """Return the node that a command or condition names; `keys` and `ends` are what it could have named instead.

        Raises:
            NodeNotFound: the graph has no such node.
        """
        node = self.nodes.get(name) if isinstance(name, str) else None
        if node is None:
            raise NodeNotFound(name, by=by, known=(*self.nodes, END), keys=keys, ends=ends)
        return node

    def node_named(self, name: str, path: str) -> Node:
        """Return the node that the stored frame at `path` names.

        Raises:
            ProgramChanged: the graph no longer has it.
        """
        node = self.nodes.get(name)
        if node is None:
            raise ProgramChanged(
                address_of(path), f"the graph has no node '{name}' any more" if name != END else "it names the end"
            )
        return node

    # What depends on the kind of program; frames and tasks are above this module

    def is_pausing(self, frame: Any) -> bool:
        """Return whether the frame asks next: then the record of the pause also serves as that of the boundary."""
        return False

    def stops_before(self, frame: Any, tasks: list[Any]) -> bool:
        """Return whether cancelling the run stops a frame before these tasks."""
        return True

    def children_ended(self, frame: Any, task: Any) -> None:
        """Take what ended children have left with a task before it ends itself."""

    def run_wrapped(self, task: Any, hooks: tuple[Middleware, ...]) -> Awaitable[Any]:
        """Make one attempt at a task inside these hooks."""
        raise NotImplementedError
