"""Where a graph goes when a superstep has ended: targets, joins that wait for more, and deferred nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from msgspec import Raw, Struct

from adjourn._engine.address import parse_segment
from adjourn._engine.record import GraphImage
from adjourn._engine.values import encoded, value_or
from adjourn._values import codec
from adjourn.errors import CheckpointCorrupt, ProgramChanged

from ._fields import decode_field
from ._node import Condition, Node, Overlay, Plan, Send
from .commands import END, START


class Routes(Struct, eq=False):
    """What the finished nodes of a graph lead to.

    `targets` run in the next superstep, and `finished` are the nodes whose conditions have yet to add theirs; `ended`
    are the names of nodes after which the graph pauses. `joins` are the sources that have arrived at each half-filled
    join, and `deferred` what runs when nothing else is left: both outlive a superstep.
    """

    plan: Plan
    joins: dict[str, dict[str, None]] = {}
    deferred: list[Send] = []
    finished: list[Node] = []
    ended: list[str] = []
    targets: list[Send] = []

    def begin(self) -> None:
        """Forget what waits over supersteps."""
        self.joins, self.deferred = {}, []

    def begin_superstep(self) -> None:
        """Forget where the last superstep led."""
        self.finished, self.ended, self.targets = [], [], []

    def fire_joins(self) -> None:
        """Add the targets of the joins whose sources have all arrived, and let these joins wait again.

        All arrivals of a superstep are counted before, so that the order of nodes decides nothing.
        """
        for name, arrived in list(self.joins.items()):
            join = self.plan.joins[name]
            if len(arrived) == len(join.sources):
                del self.joins[name]
                self.targets.append((join.target, None))

    def take_targets(self) -> list[Send]:
        """Return what runs in the next superstep; deferred nodes do when nothing else is left."""
        targets, self.targets, self.finished = self.targets, [], []
        if self.plan.defers:
            self.deferred += [send for send in targets if send[0].options.defer]
            targets = [send for send in targets if not send[0].options.defer]
            if not targets:
                targets, self.deferred = self.deferred, []
        return targets

    def decided(self, node: Node, condition: Condition, result: Any) -> list[Node]:
        """Return the nodes that a condition of a finished node leads to, by what it returned."""
        mapping = condition.mapping or {}
        if _mapped(mapping, result) is not result:
            names = [result]  # A key of the mapping, which may be None or a tuple.
        elif isinstance(result, list | tuple | set | frozenset):
            names = list(dict.fromkeys(cast("Iterable[Any]", result)))
        else:
            names = [] if result is None or result == "" else [result]
        targets = [_mapped(mapping, name) for name in names]
        return [self.plan.target(each, node.name, keys=tuple(mapping)) for each in targets if each != END]

    def snapshot(self, image: GraphImage) -> None:
        """Write where the graph goes into its image."""
        image.finished = [node.name for node in self.finished]
        image.ended = self.ended
        image.targets = _lowered(self.targets)
        image.joins = {name: list(arrived) for name, arrived in self.joins.items()}
        image.deferred = _lowered(self.deferred)

    def restore(self, image: GraphImage, named: Callable[[str], Node]) -> None:
        """Read where the graph goes from its image; `named` returns the node of a name."""
        self.joins = {name: dict.fromkeys(arrived) for name, arrived in value_or(image.joins, {}).items()}
        self.deferred = _restored(value_or(image.deferred, []), named)
        self.targets = _restored(value_or(image.targets, []), named)
        self.ended = value_or(image.ended, [])
        start = self.plan.start
        self.finished = [start if name == START else named(name) for name in value_or(image.finished, [])]

    def check_joins(self, address: str, *, under_way: bool) -> None:
        """Forget joins that are gone if the graph has ended: the next turn begins with empty ones.

        Raises:
            ProgramChanged: a half-filled join is gone, and what runs now may be what it waits for.
        """
        gone = [name for name in self.joins if name not in self.plan.joins]
        if gone and under_way:
            arrived = _quoted(self.joins[gone[0]])
            raise ProgramChanged(
                address, f"{_join_in_words(gone[0])}, where {arrived} arrived, is not in the graph any more"
            )
        for name in gone:
            del self.joins[name]

    def leave_undecided(self) -> None:
        """Leave finished nodes whose conditions are all gone by the edges that they have now."""
        undecided = [node for node in self.finished if not node.conditions]
        reached = {node for node, _ in self.targets}
        for node in undecided:
            self.finished.remove(node)
            # Edges that it already had are taken; a join among them may have fired, and must not count it again.
            self.targets += [(target, None) for target in node.targets if target not in reached]
            for join in node.joins:
                if join.target not in reached:
                    self.joins.setdefault(join.id, {})[node.name] = None
        if undecided:
            self.fire_joins()


def _restored(stored: list[tuple[str, dict[str, Raw] | None]], named: Callable[[str], Node]) -> list[Send]:
    return [(named(name), lift_overlay(overlay)) for name, overlay in stored]


def parsed_segment(segment: str) -> tuple[str, str, int | None]:
    """Return type, name and number of a segment below a graph.

    Raises:
        CheckpointCorrupt: it is not a segment.
    """
    try:
        parsed = parse_segment(segment)
        return parsed.type, parsed.id, None if parsed.sub_id is None else int(parsed.sub_id)
    except (ValueError, TypeError) as error:
        raise CheckpointCorrupt(f"'{segment}' is not a segment of a graph") from error


def _join_in_words(name: str) -> str:
    """Return the sources and the target of a join that is gone; its name has them as segments."""
    sources, _, target = name.partition(">node:")  # A colon in the name of a node is escaped.
    names = [parsed_segment(segment)[1] for segment in (*sources.split(";"), f"node:{target}")]
    return f"the join of {_quoted(names[:-1])} into '{names[-1]}'"


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def encode_write(value: Any, plain: bool) -> Raw:
    """Encode a write for a record."""
    return Raw(codec.encode(value, plain))


def lower_overlay(overlay: Mapping[str, Any]) -> dict[str, Raw]:
    """Encode the overlay of a fan-out's task for a record."""
    return {key: encoded(value) for key, value in overlay.items()}


def lift_overlay(stored: Mapping[str, Raw] | None) -> Overlay | None:
    """Decode the overlay of a fan-out's task from a record."""
    return None if stored is None else {key: decode_field(key, raw) for key, raw in stored.items()}


def _lowered(sends: list[Send]) -> list[tuple[str, dict[str, Raw] | None]]:
    """Encode targets and their overlays for a record."""
    return [(node.name, None if overlay is None else lower_overlay(overlay)) for node, overlay in sends]


def _mapped(mapping: dict[Any, str], name: Any) -> Any:
    try:
        return mapping.get(name, name)
    except TypeError:
        return name  # Unhashable, so neither a key nor the name of a node.
