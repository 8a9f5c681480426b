"""The options that all kinds of nodes share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict, cast

from msgspec import Struct
from msgspec.structs import replace

from adjourn._checks import is_positive
from adjourn._engine.retry import Retry
from adjourn._habits import instead_of
from adjourn.errors import UsageError

from .commands import Cache


class NodeOptions(TypedDict, total=False):
    """What every kind of node takes, as keyword arguments.

    retry: how often to try the node again after which errors; `()` for no retries where `compile(retry=...)` has some.
    timeout: seconds that one attempt may take. A thread cannot be killed: its late result is dropped.
    cache: for how long a result counts for equal input, instead of running the node again.
    interrupt_before, interrupt_after: whether every run pauses before or after the node.
    destinations: the nodes that commands of this node may go to, for drawings and checks, perhaps with labels.
    ends: names for where commands of this node may go to: `{"approved": "pay", "refused": END}`.
    defer: whether the node waits until nothing else is left to run.
    title: the name that people see, instead of the node's own.
    description: what the node does, for people; drawings show it.
    """

    retry: Retry | Sequence[Retry] | None
    timeout: float | None
    cache: Cache | None
    interrupt_before: bool
    interrupt_after: bool
    destinations: Sequence[str] | Mapping[str, str] | None
    ends: Mapping[str, str] | None
    defer: bool
    title: str
    description: str


class NodeSettings(Struct, frozen=True, kw_only=True):
    """The options of one node, as its author wrote them; problems are reported when the graph is compiled."""

    retry: Retry | Sequence[Retry] | None = None
    timeout: float | None = None
    cache: Cache | None = None
    interrupt_before: bool = False
    interrupt_after: bool = False
    destinations: Sequence[str] | Mapping[str, str] | None = None
    ends: Mapping[str, str] | None = None
    defer: bool = False
    title: str = ""
    description: str = ""

    @property
    def leads(self) -> dict[str, str]:
        """Where commands may go: the names of nodes, with labels."""
        named = self.destinations or ()
        found = dict(named) if isinstance(named, Mapping) else dict.fromkeys(named, "")
        for end, target in (self.ends or {}).items():
            found[target] = f"{found[target]}, {end}" if found.get(target) else end
        return found

    @property
    def policies(self) -> tuple[Retry, ...]:
        """The retry policies, however they were given."""
        return tuple(_listed(self.retry))

    def placed(self, defaults: NodeSettings, *, before: bool, after: bool) -> NodeSettings:
        """Return the options of a node in a compiled graph, which has defaults and names nodes to pause at."""
        return replace(
            self,
            retry=defaults.retry if self.retry is None else self.retry,
            timeout=defaults.timeout if self.timeout is None else self.timeout,
            interrupt_before=self.interrupt_before or before,
            interrupt_after=self.interrupt_after or after,
        )

    def problems(self, node: str) -> Iterable[str]:
        """Yield what is wrong with each option by itself; users pass anything."""
        if self.timeout is not None and not is_positive(self.timeout):
            yield f"the timeout of node '{node}' is {self.timeout!r}: give seconds above zero, or None for no limit"
        if not is_retry(self.retry):
            yield f"the retry of node '{node}' is {self.retry!r}: give a Retry, or several"
        if not isinstance(self.cache, Cache | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            yield f"the cache of node '{node}' is {self.cache!r}: give a Cache"
        for option in ("interrupt_before", "interrupt_after", "defer"):
            if not isinstance(getattr(self, option), bool):
                yield f"the option {option} of node '{node}' is {getattr(self, option)!r}: give True or False"
        for option in ("title", "description"):
            if not isinstance(getattr(self, option), str):
                yield f"the {option} of node '{node}' is {getattr(self, option)!r}: give a string"

    def lead_problems(self, node: str, targets: set[str]) -> Iterable[str]:
        """Yield what is wrong with where the node's commands may go; `targets` are the nodes that exist."""
        destinations: Any = self.destinations  # Any: users pass anything
        if destinations is not None and not _is_listing(destinations):
            yield f"the destinations of node '{node}' are {destinations!r}: give a list of names"
            destinations = None
        for name in destinations or ():
            if not isinstance(name, str) or name not in targets:
                yield f"node '{node}' has the unknown destination '{name}'"
        if not isinstance(self.ends, Mapping | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            yield f"the ends of node '{node}' are {self.ends!r}: give a mapping of names to nodes"
            return
        for end, target in (self.ends or {}).items():
            if not isinstance(end, str) or not end:  # pyright: ignore[reportUnnecessaryIsInstance]
                yield f"node '{node}' has the end {end!r}: give each a name"
            elif end in targets and end != target:
                # A goto means the same whether it is looked up once or, by middleware around the node, again.
                yield f"the end '{end}' of node '{node}' is named like a node or like END: give it another name"
            if not isinstance(target, str) or target not in targets:  # pyright: ignore[reportUnnecessaryIsInstance]
                yield f"the end '{end}' of node '{node}' leads to the unknown node '{target}'"


NO_OPTIONS = NodeSettings()


def read_options(adding: str, options: Mapping[str, Any]) -> NodeSettings:
    """Return the options that a method named `adding` got.

    Raises:
        UsageError: it does not know one of them.
    """
    if unknown := [name for name in options if name not in NodeSettings.__struct_fields__]:
        known = ", ".join(NodeSettings.__struct_fields__)
        hint = instead_of(unknown, {"name": "title='...'"})
        raise UsageError(f"{adding}: unknown option {', '.join(unknown)}.{hint} All nodes take: {known}.")
    return NodeSettings(**options)


def is_retry(given: object) -> bool:
    """Return whether this is a retry policy, several, or none."""
    return all(isinstance(policy, Retry) for policy in _listed(given))


def _listed(retry: Any) -> list[Any]:  # Any: users pass anything
    if retry is None:
        return []
    return list(cast("Sequence[Any]", retry)) if isinstance(retry, list | tuple) else [retry]


def _is_listing(given: object) -> bool:
    return isinstance(given, Iterable) and not isinstance(given, str)
