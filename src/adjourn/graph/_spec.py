"""Compiled nodes: objects that point to one another, so that a step looks nothing up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from adjourn._engine.address import segment_text
from adjourn._engine.program import Program, ProgramFrame
from adjourn._engine.retry import Retry

from .commands import Cache

if TYPE_CHECKING:
    from ._frame import GraphFrame
    from ._task import Send, Task

Kind = Literal["async", "sync", "inline", "graph"]
Role = Literal["", "llm", "tools", "agent"]


class Join:
    """An edge from several nodes to one, taken when all of them have finished since it was last taken."""

    __slots__ = ("id", "sources", "target")

    def __init__(self, id: str, sources: frozenset[str], target: NodeSpec) -> None:
        self.id = id
        self.sources = sources
        self.target = target


class Condition:
    """A conditional edge: a function of the state whose result, through `mapping`, names where to go."""

    __slots__ = ("below", "call", "is_async", "known", "mapping", "number", "segment")

    def __init__(
        self, spec: NodeSpec, number: int, call: Callable[[Any], Any], is_async: bool, mapping: dict[Any, str] | None
    ) -> None:
        self.number = number
        self.call = call
        self.is_async = is_async
        self.mapping = mapping
        self.segment = segment_text("branch", str(number))
        self.below = f"{spec.segment};{self.segment}"
        self.known: dict[str, NodeSpec | None] = {}


class NodeSpec:
    """A node ready to run: `call(state)` is its function, whatever parameters that has.

    A plain one needs no care for attempts and time. One that is `inner` to an agent is called with its task, and is not
    told of: its agent tells what it does. There `segment_of` names its tasks, and `decide` says what follows when they
    have finished. A program that runs as a node stands at `inside` below its task; `begin` makes its input, `hand_up`
    the task's result, and when it fails `forgive` may make one, too.
    """

    __slots__ = (
        "begin",
        "cache",
        "call",
        "conditions",
        "decide",
        "defer",
        "description",
        "destinations",
        "forgive",
        "graph",
        "hand_up",
        "input",
        "inside",
        "interrupt_after",
        "interrupt_before",
        "is_inner",
        "is_plain",
        "joins",
        "kind",
        "name",
        "order",
        "output",
        "retry",
        "role",
        "segment",
        "segment_of",
        "targets",
        "timeout",
    )

    def __init__(self, name: str, order: int, kind: Kind, call: Callable[[Any], Any] | None = None) -> None:
        self.name = name
        self.order = order
        self.kind = kind
        self.call = call
        self.segment = segment_text("node", name)
        self.targets: tuple[NodeSpec, ...] = ()
        self.conditions: tuple[Condition, ...] = ()
        self.joins: tuple[Join, ...] = ()
        self.retry: Sequence[Retry] = ()
        self.timeout: float | None = None
        self.cache: Cache | None = None
        self.interrupt_before = False
        self.interrupt_after = False
        self.destinations: dict[str, str] = {}
        self.defer = False
        self.is_plain = False
        self.description = ""
        self.role: Role = ""
        self.graph: Program | None = None
        self.input: Callable[[Any], Any] | None = None
        self.output: Callable[[Any], Any] | None = None
        # Of nodes that are parts of a prebuilt agent:
        self.is_inner = False
        self.segment_of: Callable[[GraphFrame, Any], str] | None = None
        self.decide: Callable[[GraphFrame], list[Send]] | None = None
        self.inside = "~"
        self.begin: Callable[[Task], Any] | None = None
        self.hand_up: Callable[[Task, ProgramFrame], None] | None = None
        self.forgive: Callable[[Task, ProgramFrame, Exception], None] | None = None

    def __repr__(self) -> str:
        return f"<node {self.name}>"
