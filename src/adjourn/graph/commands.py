"""What a node can return besides a plain update, and the names of a graph's start and end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Generic, Literal, cast, get_args, get_origin

import msgspec

from adjourn._checks import is_positive, takes
from adjourn._generics import Defaulted, Goto_co
from adjourn._habits import OF_COMMANDS, ExplainedStruct
from adjourn._values.registry import stored
from adjourn.errors import UsageError

START: Final = "__start__"
END: Final = "__end__"


class Command(msgspec.Struct, Defaulted, Generic[Goto_co], frozen=True, metaclass=ExplainedStruct):
    """An update together with where to go next; without `goto`, the node's edges decide.

    In a list of commands, each one starts its own task: only that task sees the command's `update`. A node returns
    such a list, or gives it as `goto` to write an update as well. `Command[Literal["pay", "refuse"]]`, as what a node
    returns, names the nodes that it may go to.
    """

    _instead = OF_COMMANDS

    update: Mapping[str, Any] | None = None
    goto: Goto_co | Sequence[Goto_co] | Sequence[Command[Goto_co]] | None = None

    def targets(self) -> list[str | Command]:
        """Return where to go as a list: names, or the commands of a fan-out."""
        if self.goto is None:
            return []
        goto: Any = self.goto  # Any: users pass anything
        return [goto] if isinstance(goto, str) or not isinstance(goto, Iterable) else list(cast("Iterable[Any]", goto))


def named_in(returned: Any) -> tuple[str, ...]:  # Any: what a function is annotated to return
    """Return the nodes that the commands in a type name: `"a"` and `"b"` for `Command[Literal["a", "b"]] | None`."""
    parts = get_args(returned)
    if get_origin(returned) is not Command:
        return tuple(dict.fromkeys(name for part in parts for name in named_in(part)))
    return tuple(get_args(parts[0])) if get_origin(parts[0]) is Literal else ()


@stored("adjourn.overwrite")
class Overwrite(msgspec.Struct, frozen=True):
    """A value that replaces a field, bypassing its reducer."""

    value: Any


class Cache(msgspec.Struct, frozen=True):
    """Cache a node's result for `ttl` seconds, by `key(state)` if it is given, otherwise by the whole input.

    The input is the state, the session values, the user and the options for models; of the state, a tools node only
    reads the calls that it answers, and these count besides a key, too. What a node gets from `deps` or from middleware
    does not count: where a result depends on that, give a `key`, or do not cache it.
    """

    ttl: float | timedelta
    key: Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        seconds = self.ttl.total_seconds() if isinstance(self.ttl, timedelta) else self.ttl
        if not is_positive(seconds):
            raise UsageError(f"Cache(ttl={self.ttl!r}): give a time to live above zero, in seconds or as a timedelta.")
        if self.key is not None and not callable(self.key):
            raise UsageError(f"Cache(key={self.key!r}): give a function of the state, or None.")
        if self.key is not None and not takes(self.key, 1):
            raise UsageError(f"Cache(key={self.key!r}) cannot be called with the state alone. Give a function of it.")

    @property
    def seconds(self) -> float:
        """The time to live in seconds."""
        return self.ttl.total_seconds() if isinstance(self.ttl, timedelta) else float(self.ttl)
