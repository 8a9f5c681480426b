"""Routing: what follows on a superstep.

A condition that pauses or fails must not make the finished node run again. So routing is a phase of its own: conditions
that are decided keep their targets, and only the others are asked again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from adjourn._engine.address import address_of
from adjourn._engine.entry import PAUSED, execute, execute_inline
from adjourn._engine.record import UserImage
from adjourn.errors import CheckpointCorrupt, NodeNotFound, ProgramChanged

from ._spec import NodeSpec
from ._task import Routing, Send, Task
from .commands import END
from .state import read

if TYPE_CHECKING:
    from ._frame import GraphFrame


def depart(frame: GraphFrame, spec: NodeSpec) -> None:
    """Leave `spec` by its edges, as if it had just finished."""
    frame.phase = "route"
    frame.finished, frame.ended, frame.targets = [], [], []
    take_edges(frame, spec)
    frame.scope.changes.dirty[frame] = None
    if not spec.conditions:
        settle(frame)


def take_edges(frame: GraphFrame, spec: NodeSpec) -> None:
    """Note where the edges of a finished node lead; its conditions are decided later."""
    for target in spec.targets:
        frame.targets.append((target, None))
    for join in spec.joins:
        arrived = frame.joins.setdefault(join.id, {})
        arrived[spec.name] = None
        if len(arrived) == len(join.sources):
            del frame.joins[join.id]
            frame.targets.append((join.target, None))
    if spec.conditions:
        frame.finished.append(spec)


async def decide(frame: GraphFrame) -> bool:
    """Ask every condition of the finished nodes; False when one of them waits for an answer."""
    if time.monotonic() > frame.scope.yield_deadline:
        await frame.scope.yield_to_loop()
    routings, decided = frame.routings or _routings(frame), True
    for routing in routings:
        if routing.status in ("pending", "failed"):
            routing.exception = None
            if routing.condition.is_async:
                # Others may have a record made while it runs: what was asked and kept so far must be in it.
                _remember(frame, routings)
                await _evaluate(frame, routing)
            else:
                _evaluate_inline(frame, routing)
        decided = decided and routing.status == "done"
    if decided:
        _conclude(frame, routings)
        return True
    _remember(frame, routings)
    for routing in routings:
        if routing.exception is not None:
            raise routing.exception
    return False


def _conclude(frame: GraphFrame, routings: list[Routing]) -> None:
    for routing in routings:
        for spec in routing.targets:
            frame.targets.append((spec, None))
        if routing.written:
            frame.merge_values(routing.written)
        frame.scope.changes.dirty.pop(routing, None)
        if routing.recorded or routing.questions:
            routing.drop()
    frame.routings = []


def bind(frame: GraphFrame) -> None:
    """Bring back the routings that were under way, in a graph that was stored while it routed.

    Raises:
        ProgramChanged: a condition that had been asked is gone.
    """
    dormant = frame.scope.dormant
    places = [place for spec in frame.finished if dormant.below(place := f"{frame.path};{spec.segment}")]
    if places:
        frame.routings = _routings(frame)
    for place in places:
        for segment in dormant.below(place):
            raise ProgramChanged(address_of(f"{place};{segment}"), "the node has no such condition any more")


def _routings(frame: GraphFrame) -> list[Routing]:
    routings = [Routing(frame, spec, condition) for spec in frame.finished for condition in spec.conditions]
    if frame.scope.dormant:
        for routing in routings:
            _restore(frame, routing)
    return routings


def _restore(frame: GraphFrame, routing: Routing) -> None:
    image = frame.scope.dormant.bind(f"{frame.path};{routing.spec.segment}", routing.condition.segment)
    if image is not None:
        if not isinstance(image, UserImage):
            raise CheckpointCorrupt(f"'{routing.path}' is no routing's frame")
        routing.restore(image)


async def _evaluate(frame: GraphFrame, routing: Routing) -> None:
    state = read(frame.graph.schema, frame.channels)
    try:
        result = await execute(routing, routing.condition.call, state)
        _take_result(frame, routing, result)
    except Exception as error:  # noqa: BLE001  # protects the other conditions: they keep what they decided
        routing.status, routing.exception = "failed", error


def _evaluate_inline(frame: GraphFrame, routing: Routing) -> None:
    state = read(frame.graph.schema, frame.channels)
    try:
        result = execute_inline(routing, routing.condition.call, state)
        _take_result(frame, routing, result)
    except Exception as error:  # noqa: BLE001  # protects the other conditions: they keep what they decided
        routing.status, routing.exception = "failed", error


def _take_result(frame: GraphFrame, routing: Routing, result: Any) -> None:
    if result is PAUSED:
        routing.status = "waiting"
        return
    routing.status = "done"
    known = routing.condition.known
    if type(result) is str and result in known:
        spec = known[result]
        routing.targets = [] if spec is None else [spec]
    else:
        routing.targets = _targets(frame, routing, result)


def _targets(frame: GraphFrame, routing: Routing, result: Any) -> list[NodeSpec]:
    mapping = routing.condition.mapping or {}
    if _mapped(mapping, result) is not result:
        names = [result]  # A key of the mapping, be it None or a tuple.
    elif isinstance(result, list | tuple | set | frozenset):
        names = list(dict.fromkeys(cast("Iterable[Any]", result)))
    else:
        names = [] if result is None else [result]
    found = [_lookup(frame, routing, _mapped(mapping, name)) for name in names]
    return [spec for spec in found if spec is not None]


def _mapped(mapping: dict[Any, str], name: Any) -> Any:
    try:
        return mapping.get(name, name)
    except TypeError:
        return name  # Unhashable, so no key; it is no node's name either.


def _lookup(frame: GraphFrame, routing: Routing, name: Any) -> NodeSpec | None:
    keys = tuple(routing.condition.mapping or ())
    return None if name == END else node_named(frame, routing.spec.name, name, keys)


def node_named(frame: GraphFrame, by: str, name: Any, keys: tuple[Any, ...] = ()) -> NodeSpec:
    """The node that a command or condition names; `keys` are those of the condition's mapping.

    Raises:
        NodeNotFound: there is none.
    """
    spec = frame.graph.specs.get(name) if isinstance(name, str) else None
    if spec is None:
        raise NodeNotFound(name, by=by, known=(*frame.graph.specs, END), keys=keys)
    return spec


def _remember(frame: GraphFrame, routings: list[Routing]) -> None:
    frame.routings = routings
    frame.scope.mark(frame)
    for routing in routings:
        frame.scope.mark(routing)


def settle(frame: GraphFrame) -> None:
    """Make the next tasks of what was decided; deferred ones when nothing else is left."""
    targets, scope = frame.targets, frame.scope
    frame.targets, frame.finished, frame.phase = [], [], "run"
    if frame.graph.defers:
        frame.deferred += [send for send in targets if send[0].defer]
        targets = [send for send in targets if not send[0].defer]
        if not targets:
            targets, frame.deferred = frame.deferred, []
    if frame.routes_stored:
        # A record says that this is still to be decided: the next one must say otherwise.
        scope.changes.dirty[frame] = None
    if targets:
        frame.tasks = _tasks(frame, targets)
        for task in frame.tasks:
            scope.changes.dirty[task] = None


def _tasks(frame: GraphFrame, targets: list[Send]) -> list[Task]:
    if len(targets) == 1:
        spec, overlay = targets[0]
        return [Task(frame, spec, None if overlay is None else 1, overlay)]
    by_node: dict[NodeSpec, list[Any]] = {}
    for spec, overlay in targets:
        overlays = by_node.setdefault(spec, [])
        if overlay is not None:
            overlays.append(overlay)
        elif None not in overlays:
            overlays.append(None)
    ordered = sorted(by_node.items(), key=lambda item: item[0].order)
    return [task for spec, overlays in ordered for task in _numbered(frame, spec, overlays)]


def _numbered(frame: GraphFrame, spec: NodeSpec, overlays: list[Any]) -> list[Task]:
    if overlays == [None]:
        return [Task(frame, spec)]
    return [Task(frame, spec, number, overlay) for number, overlay in enumerate(overlays, 1)]
