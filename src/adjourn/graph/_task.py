"""Tasks: the frames of node runs and of routings that take more than a moment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import Raw

from adjourn._engine.address import address_of
from adjourn._engine.frame import UserFrame, encoded, value_or
from adjourn._engine.program import ProgramFrame
from adjourn._engine.record import UserImage
from adjourn._values import codec
from adjourn.errors import ProgramChanged, describe

from ._plan import Plan
from ._spec import Condition, NodeSpec
from .commands import END

if TYPE_CHECKING:
    from ._frame import GraphFrame

Overlay = dict[str, Any]
Send = tuple[NodeSpec, Overlay | None]


HANDLED: Final = object()
"""Given back by a node that has set the result of its task by itself."""


class Task(UserFrame):
    """One run of a node in one superstep; `writes` and what follows are its result once it is done."""

    __slots__ = ("goto", "graph", "index", "overlay", "sends", "spec", "writes")

    cached: bool = False
    cache_key: str | None = None

    def __init__(
        self, graph: GraphFrame, spec: NodeSpec, index: int | None = None, overlay: Overlay | None = None
    ) -> None:
        # As Frame does; a call more for every task would be felt.
        self.scope = graph.scope
        self.parent = self.graph = graph
        self.segment = spec.segment if index is None else _numbered(graph, spec, index, overlay)
        self.spec = spec
        self.index = index
        self.overlay = overlay
        self.writes: list[tuple[str, Any, bool]] = []
        self.goto: list[NodeSpec] | None = None
        self.sends: list[Send] | None = None
        # What every run of a task asks for; what an object has itself is read far faster than a default of its class.
        self.status = "pending"
        self.alive = True
        self.attempt, self.emitted, self.error = 1, 0, None
        self.questions = self.composites = self.memos = self.memos_new = self.children = self.written = None
        self.running = None
        self.recorded = False

    @property
    def instance(self) -> str:
        return f"{self.graph.instance}.{self.graph.step}"

    @property
    def label(self) -> str:
        """The node's name, with the task's number in a fan-out."""
        return self.spec.name if self.index is None else f"{self.spec.name}:{self.index}"

    def begin_again(self) -> None:
        """Get ready to run after a failure."""
        self.exception = None
        self.status = "pending"
        self.attempt += 1
        self.scope.mark(self)

    def open_graph(self) -> tuple[ProgramFrame, bool]:
        """The frame of the graph or agent that this node is, and whether it is new or from its stored image."""
        graph = self.spec.graph
        assert graph is not None
        image = self.scope.dormant.bind(self.path, self.spec.inside)
        child = graph.open(self.scope, self, self.spec.inside, image)
        if isinstance(graph, Plan) and self.spec.output is None:
            shared = frozenset(self.graph.graph.schema.channels) & frozenset(graph.schema.channels)
            cast("GraphFrame", child).exports = shared
        return child, image is None

    def bind_dormant(self) -> None:
        inside = self.spec.inside
        if self.spec.graph is not None and inside in self.scope.dormant.below(self.path):
            self.children = {inside: self.open_graph()[0]}

    def fail(self, error: BaseException) -> None:
        """Note the failure; the task runs again when the session is recovered."""
        self.status = "failed"
        self.exception = error
        self.error = dict(describe(error))
        self.scope.mark(self)

    def snapshot(self) -> UserImage:
        image = UserFrame.snapshot(self)  # not by super(), which costs half as much as all that is taken
        if self.overlay is not None and image.fresh:
            image.overlay = lower_overlay(self.overlay)
        return image

    def add_result(self, image: UserImage) -> None:
        UserFrame.add_result(self, image)
        image.writes = [(name, encode_write(value, plain)) for name, value, plain in self.writes]
        if self.goto is not None:
            image.goto = [spec.name for spec in self.goto]
        if self.sends is not None:
            image.sends = [(spec.name, lower_overlay(over or {})) for spec, over in self.sends]

    def restore(self, image: UserImage) -> None:
        super().restore(image)
        self.overlay = lift_overlay(value_or(image.overlay, None))
        self.writes = [(name, codec.decode(raw), False) for name, raw in value_or(image.writes, [])]
        goto = value_or(image.goto, None)
        self.goto = None if goto is None else [self.graph.spec_named(name, self.path) for name in goto]
        sends = value_or(image.sends, None)
        self.sends = (
            None
            if sends is None
            else [(self.graph.spec_named(name, self.path), lift_overlay(over)) for name, over in sends]
        )


def _numbered(graph: GraphFrame, spec: NodeSpec, index: int, overlay: Overlay | None) -> str:
    return f"{spec.segment}:{index}" if spec.segment_of is None else spec.segment_of(graph, overlay)


class Routing(UserFrame):
    """One evaluation of a condition that paused or failed; `targets` is its result once it is done."""

    def __init__(self, graph: GraphFrame, spec: NodeSpec, condition: Condition) -> None:
        # As Frame does, without the call: see Task.
        self.scope = graph.scope
        self.parent = graph
        self.segment = condition.below
        self.spec = spec
        self.condition = condition
        self.targets: list[NodeSpec] = []
        self.status = "pending"
        self.questions = self.memos = self.children = self.written = self.running = self.exception = None
        self.recorded = False

    @property
    def instance(self) -> str:
        return f"{self.parent.instance}.{self.parent.step}"

    def add_result(self, image: UserImage) -> None:
        super().add_result(image)
        image.goto = [spec.name for spec in self.targets]

    def restore(self, image: UserImage) -> None:
        super().restore(image)
        graph = self.parent
        self.targets = [graph.spec_named(name, self.path) for name in value_or(image.goto, [])]


def encode_write(value: Any, plain: bool) -> Raw:
    """A write as a record keeps it."""
    return Raw(codec.encode(value, plain))


def lower_overlay(overlay: Mapping[str, Any]) -> dict[str, Raw]:
    """A fan-out's own update as a record keeps it."""
    return {key: encoded(value) for key, value in overlay.items()}


def lift_overlay(stored: Mapping[str, Raw] | None) -> Overlay | None:
    """A fan-out's own update from a record."""
    return None if stored is None else {key: codec.decode(raw) for key, raw in stored.items()}


def lower_sends(sends: list[Send]) -> list[tuple[str, dict[str, Raw] | None]]:
    """Targets with their overlays as a record keeps them."""
    return [(spec.name, None if overlay is None else lower_overlay(overlay)) for spec, overlay in sends]


def target(specs: Mapping[str, NodeSpec], name: str, path: str) -> NodeSpec:
    """The node that a stored frame names."""
    spec = specs.get(name)
    if spec is None:
        raise ProgramChanged(
            address_of(path), f"the graph has no node '{name}' any more" if name != END else "it names the end"
        )
    return spec
