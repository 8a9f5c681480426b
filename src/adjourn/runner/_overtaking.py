"""Overtaking: making room for a turn that does not wait for what is before it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Literal

import msgspec

from adjourn.errors import CheckpointNotFound, Conflict, SessionBusy, UsageError
from adjourn.sessions._chain import read_left
from adjourn.sessions._contents import folded
from adjourn.sessions._log import read_past
from adjourn.sessions._spent import find_spent
from adjourn.sessions._status import owner_of
from adjourn.sessions.history import split_id
from adjourn.stores.kit import GetHead, ListCheckpoints, ListInputs, Load, Withdraw
from adjourn.stores.types import CheckpointRow, Head, SessionRef

from ._editing import Editor
from ._following import CancelMode, RunFollower
from ._live import TRIES, LiveSessions
from ._log import Persistence

Overtaking = Literal["cancel", "rollback"]

MODES: dict[Overtaking, CancelMode] = {"cancel": "after_tools", "rollback": "now"}
"""How the run that is in the way is cancelled: if what it did is kept, its tools may end first."""


class _Running(msgspec.Struct, frozen=True):
    """A session in which a turn runs, and what that began with if it is to be rolled back."""

    head: Head
    began: CheckpointRow | None = None


class Overtaker:
    """Cancels what runs in a session, and removes what waits there, for a turn that begins at once."""

    def __init__(self, sessions: LiveSessions, editor: Editor, follower: RunFollower) -> None:
        self._sessions = sessions
        self._store = sessions.settings.store
        self._editor = editor
        self._follower = follower

    async def make_room(self, ref: SessionRef, how: Overtaking) -> None:
        """Remove what waits in the queue, cancel the turn that runs, and wait for its end; maybe roll it back.

        Raises:
            UsageError: the turn that runs cannot be rolled back; nothing was removed or cancelled.
        """
        running = await self._running(ref, how)
        await self._clear_queue(ref)
        while running is not None:
            await self._stop(running.head, MODES[how])
            if running.began is not None:
                await self._roll_back(ref, running.began)
            running = await self._running(ref, how)

    async def _running(self, ref: SessionRef, how: Overtaking) -> _Running | None:
        """Return the turn that runs; None if nobody runs one."""
        head = await self._store.read(GetHead(ref))
        if head is None or not is_under_way(head):
            return None
        if how == "cancel":
            return _Running(head)
        began = await self._turn_of(head)
        if began is None:
            raise UsageError(
                f"Where the turn of session '{ref.id}' began is not known here: it was pruned, or it is in the "
                "session that this one was forked from. So it cannot be rolled back; use on_busy='cancel'."
            )
        await self._check_unspent(head.ref, began)
        return _Running(head, began)

    async def _check_unspent(self, ref: SessionRef, began: CheckpointRow) -> None:
        """Refuse to roll back to a turn that was given up after an approval had acted there (rule R19)."""
        if began.parent is None:
            return
        live = await self._sessions.load(ref, began.parent)
        past = await read_past(self._store, ref, began.parent, live.scope)
        spent = await find_spent(self._store, ref, began.parent, past)
        if spent is not None and spent.is_unfinished:
            raise UsageError(
                f"Before the turn that runs, session '{ref.id}' gave up one in which an approval has acted: "
                f"{', '.join(each.id for each in spent.approvals)}. So it cannot be rolled back; use on_busy='cancel'."
            )

    async def _turn_of(self, head: Head) -> CheckpointRow | None:
        return _turn_began(await self._store.read(ListCheckpoints(head.ref)), head.checkpoint)

    async def _clear_queue(self, ref: SessionRef) -> None:
        with contextlib.suppress(CheckpointNotFound):  # With its last input goes a session that has nothing else.
            for queued in await self._store.read(ListInputs(ref)):
                await self._store.write(Withdraw(ref, queued.id))

    async def _stop(self, head: Head, mode: CancelMode) -> None:
        """Cancel a turn that runs, and wait for its end."""
        now: Head | None = head
        while now is not None and (is_under_way(now) or now.status == "waiting"):
            # One that has paused before the cancel reached it is cancelled, too.
            await self._follower.stop(now.ref, mode)
            async for _ in self._follower.follow(now.ref, now.seq, None, whole=False):
                pass
            now = await self._store.read(GetHead(head.ref))

    async def _roll_back(self, ref: SessionRef, began: CheckpointRow) -> None:
        """Let a session stand, on a new branch, where it stood before the turn that began with this checkpoint.

        If that is not its last turn any more, somebody else has rolled it back, or has begun another. A turn that was
        done before the cancel reached it stays.
        """
        for _ in range(TRIES):
            head = await self._store.read(GetHead(ref))
            if head is None or head.status == "done" or is_under_way(head):
                return
            last = await self._turn_of(head)
            if last is None or last.id != began.id:
                return
            try:
                await self._begin_branch(head, began)
            except (Conflict, SessionBusy):
                continue
            self._sessions.pop(ref)
            return
        raise Conflict(ref.id, "others keep writing it")

    async def _begin_branch(self, head: Head, began: CheckpointRow) -> None:
        """Begin a branch that stands where a turn began: after the one before it, or with nothing."""
        if began.parent is not None:
            live = await self._sessions.load(head.ref, began.parent)
            if live.journal.tail.head != head.checkpoint:
                raise Conflict(head.session, "it has moved on")
            base, past = began.parent, await read_past(self._store, head.ref, began.parent, live.scope)
        else:
            live = self._sessions.new(head.session, head.user, Persistence.STORED)
            live.root.set_up()
            live.journal.tail.stand(head.checkpoint, head.seq)
            loaded = await self._store.read(Load(head.ref, began.id))
            if loaded is None:
                raise CheckpointNotFound(head.session, began.id)
            live.scope.branch, live.scope.first_place = split_id(began.id)[0], folded(loaded).lineage
            live.journal.tail.chain.stand(loaded, pauses=False)
            base, past = began.id, ()
        live.prepare(self._sessions)
        left = await read_left(self._store, head)
        live.journal.tail.branch_off(self._sessions.settings.new_branch(), base, past, left)
        live.scope.reopen_approvals()
        await self._editor.write(live, "fork", {"rolled_back": head.checkpoint})


def is_under_way(head: Head) -> bool:
    """Return whether somebody runs a turn, or has handed it over to whoever comes."""
    return bool(head.checkpoint) and (owner_of(head) is not None or head.status == "queued")


def _turn_began(rows: Iterable[CheckpointRow], point: str) -> CheckpointRow | None:
    """Return the checkpoint that the turn of a record began with; None if it is not there."""
    by_branch: dict[str, list[tuple[int, CheckpointRow]]] = {}
    for row in rows:
        branch, number = split_id(row.id)
        by_branch.setdefault(branch, []).append((number, row))
    while True:
        branch, last = split_id(point)
        there = [(number, row) for number, row in by_branch.get(branch, ()) if number <= last]
        inputs = [(number, row) for number, row in there if row.header.source == "input"]
        if inputs:
            return max(inputs, key=lambda each: each[0])[1]
        first = min(there, key=lambda each: each[0], default=None)
        if first is None or first[1].parent is None:
            return None
        point = first[1].parent
