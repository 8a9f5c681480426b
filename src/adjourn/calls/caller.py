"""Who calls models and tools: an agent, or a node of a graph."""

from __future__ import annotations

from typing import Any, Protocol

from adjourn.core.events import Event
from adjourn.core.scope import Scope


class Caller(Protocol):
    """What a call needs to know of whoever makes it."""

    scope: Scope

    @property
    def caller(self) -> str:
        """The name that people see."""
        ...

    @property
    def trail(self) -> tuple[str, ...]:
        """The agents that the turn has gone through."""
        ...

    @property
    def address(self) -> str:
        """Where it stands."""
        ...

    @property
    def tells(self) -> bool:
        """Whether what it does is told to those who follow the run."""
        ...

    def tell_live(self, event: Event) -> None:
        """Tell a live event, as its own."""
        ...

    def all_values(self) -> dict[str, Any]:
        """The session's values as it sees them."""
        ...
