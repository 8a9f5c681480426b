"""Who makes a request: their roles, whose sessions they see, and under which name they answer."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Literal

import msgspec
from starlette.requests import Request

from adjourn.errors import UsageError
from adjourn.sessions._settings import check_name

Role = Literal["use", "review", "metrics", "admin"]


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who makes requests.

    name: who they are. The sessions that they begin are theirs, and their answers are kept under this name. Only those
        with the role `admin`, or with no role but `review` and `metrics`, may have none.
    roles: `use` begins sessions, and sees and answers one's own; `review` sees and answers everybody's; `metrics`
        reads what is counted; `admin` may do everything.
    agents: patterns of the names of the agents that they may use or review, such as `refund-*`.
    is_wide: whether, in the request at hand, they see the sessions of others; the server sets it.
    """

    name: str | None = None
    roles: frozenset[Role] = frozenset(("use",))
    agents: tuple[str, ...] = ("*",)
    is_wide: bool = False

    def __post_init__(self) -> None:
        if self.name is not None:
            check_name("The name of a Caller", self.name)
            is_known = bool(self.name.strip())
        else:
            # With the role `use` they would see, answer and remove the sessions of everybody.
            is_known = self.has("admin") or (self.has("review") and not self.has("use"))
        if not is_known:
            raise UsageError(
                f"Caller(name={self.name!r}, roles={sorted(self.roles)}): sessions belong to callers by their names. "
                "Give a name. Only the role 'admin', or 'review' without 'use', needs none."
            )

    @property
    def user_id(self) -> str | None:
        """The user whose sessions they see; None for those of everybody."""
        return None if self.is_wide else self.name

    @property
    def is_limited(self) -> bool:
        """Whether they may use only some of the agents."""
        return "*" not in self.agents

    def may_use(self, agent: str) -> bool:
        """Return whether an agent is one of theirs."""
        return any(fnmatchcase(agent, pattern) for pattern in self.agents)

    def has(self, *roles: Role) -> bool:
        """Return whether they have one of these roles."""
        return not self.roles.isdisjoint(roles)


def everybody() -> Caller:
    """Return the caller of every request to a server that has no authentication."""
    return Caller(roles=frozenset(("admin",)))


class Callers:
    """Remembers who makes a request, once the server has let them in."""

    def admit(self, request: Request, caller: Caller) -> None:
        """Note who makes a request."""
        request.state.caller = caller

    def of(self, request: Request) -> Caller:
        """Return who makes a request."""
        caller = request.state.caller
        assert isinstance(caller, Caller)  # A route lets nobody in without knowing who it is.
        return caller
