"""Remembered decisions: calls that need no approval any more, in this session, or for this user always.

What counts for a session is among its values. What counts always is in the store, in a session of its own per user, so
that no two users share it; who runs without a user id is remembered for the session only.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from adjourn._engine.address import segment_text
from adjourn._engine.frame import here
from adjourn._values import codec
from adjourn.context import current
from adjourn.errors import CheckpointNotFound, Conflict, SessionBusy
from adjourn.runner import Run, Runner
from adjourn.stores import Store
from adjourn.tools import Approve, fits_pattern
from adjourn.workflows import workflow

from .caller import Caller

IN_SESSION = "~approved:"
"""Begins the names of the session values that hold what was approved for the session."""

ALWAYS = "remembered"
"""Notes in a call's frame that its approval was written down for always."""

TRIES, LONGEST = 100, 0.2
"""How often a user's approvals are looked at again while somebody else writes them, and the seconds in between."""

LEASE = 5.0
"""Seconds after which a process that died while it wrote them is in nobody's way any more; the tries last longer."""


class Approval(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A remembered decision: calls of `tool` whose arguments fit `pattern` run without being asked about."""

    tool: str
    pattern: Mapping[str, Any] | None = None
    by: str | None = None

    def covers(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Whether it is about this call."""
        return self.tool == tool and fits_pattern(arguments, self.pattern)

    @property
    def id(self) -> str:
        """Equal decisions have equal ids."""
        return codec.fingerprint([self.tool, None if self.pattern is None else dict(self.pattern)])


class Approvals:
    """What users have approved for always, in a store: `list` it and `revoke` it."""

    def __init__(self, store: Store | str, *, app_name: str = "adjourn") -> None:
        self._app = app_name
        self._book = Runner(_book, store=store, app_name=f"~{app_name}", lease_ttl=LEASE)

    async def list(self, user_id: str) -> list[Approval]:
        """What this user has approved for always."""
        return [_read(kept) for kept in (await self._kept(user_id)).values()]

    async def add(self, user_id: str, approval: Approval) -> None:
        """Remember a decision of this user."""
        kept = {"tool": approval.tool, "pattern": approval.pattern and dict(approval.pattern), "by": approval.by}
        await self._write(user_id, add={approval.id: kept})

    async def revoke(self, user_id: str, tool: str | None = None) -> int:
        """Forget what this user has approved, of one tool or of all; returns how many decisions went."""
        kept = await self._kept(user_id)
        gone = [key for key, each in kept.items() if tool is None or each["tool"] == tool]
        if gone:
            await self._write(user_id, drop=gone)
        return len(gone)

    def _session(self, user_id: str) -> str:
        # Its parts are encoded: no other app with another user makes the same name.
        return f"~{segment_text('approvals', self._app, user_id)}"

    async def _kept(self, user_id: str) -> dict[str, Any]:
        session = self._session(user_id)
        try:
            return await self._patiently(session, lambda: self._book.recover(session))
        except CheckpointNotFound:
            return {}

    async def _write(self, user_id: str, **change: Any) -> None:
        session = self._session(user_id)
        await self._patiently(
            session, lambda: self._book.run(change, session_id=session, user_id=user_id, on_pending="abandon")
        )

    async def _patiently(self, session: str, start: Callable[[], Run]) -> dict[str, Any]:
        for number in range(TRIES):
            try:
                return (await start()).value
            except (SessionBusy, Conflict):  # Somebody else writes it now.
                await asyncio.sleep(random.uniform(0, min(LONGEST, 0.005 * 2**number)))
        raise Conflict(session, "others keep writing it")


@workflow(name="approvals")
async def _book(change: dict[str, Any]) -> dict[str, Any]:
    """The approvals of one user, after this change; they are kept among the session's values."""
    values = current().values
    kept = {**values.get("approvals", {}), **change.get("add", {})}
    values["approvals"] = {key: each for key, each in kept.items() if key not in change.get("drop", ())}
    return values["approvals"]


def _read(kept: Mapping[str, Any]) -> Approval:
    return Approval(tool=kept["tool"], pattern=kept["pattern"], by=kept["by"])


def in_session(caller: Caller) -> list[Approval]:
    """What was approved for this session."""
    return [_read(value) for key, value in caller.all_values().items() if key.startswith(IN_SESSION)]


async def is_remembered(caller: Caller, tool: str, arguments: Mapping[str, Any]) -> bool:
    """Whether somebody has approved such calls for longer than one."""
    known, scope = in_session(caller), caller.scope
    if scope.user_id is not None and not any(each.covers(tool, arguments) for each in known):
        known = await Approvals(scope.journal.store, app_name=scope.app).list(scope.user_id)
    return any(each.covers(tool, arguments) for each in known)


async def remember(caller: Caller, tool: str, given: Approve, by: str | None) -> None:
    """Keep a decision for as long as it says."""
    approval, scope = Approval(tool=tool, pattern=given.pattern, by=by), caller.scope
    frame = here("remember").frame
    if given.remember == "session" or scope.user_id is None:
        pattern = None if given.pattern is None else dict(given.pattern)
        frame.write_value(IN_SESSION + approval.id, {"tool": tool, "pattern": pattern, "by": by})
    elif not frame.is_noted(ALWAYS):
        # Once: when the call goes on after another pause, the user may have revoked it.
        await Approvals(scope.journal.store, app_name=scope.app).add(scope.user_id, approval)
        frame.note(ALWAYS)
