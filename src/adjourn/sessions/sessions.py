"""Sessions: everything that can be done with stored sessions without the program that runs them."""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Self, get_args

import msgspec

from adjourn._owner import is_dead, process_id
from adjourn._values import codec
from adjourn._values.damage import Reading
from adjourn.errors import CheckpointCorrupt, CheckpointNotFound, UsageError
from adjourn.events import Interrupt
from adjourn.messages import Message
from adjourn.stores import protocol
from adjourn.stores._logging import note_damage
from adjourn.stores.kit import readable
from adjourn.stores.protocol import CheckpointRow, Head, OpenQuestion, Outcome, SessionRef, Source, Status, Store

from . import _fork
from ._contents import Contents
from ._log import read_interrupt, read_question
from ._permission import MayAnswer
from ._questions import Answers, record_answers, shown
from ._settings import Clock, NewId, Settings, check_name
from ._status import SessionStatus, describe, status_of
from ._sync import sync_twin
from ._watch import Notice, watch
from .history import Checkpoint, Diff, Tree, as_mapping


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A question with how it ended: `outcome` is None while it is open.

    An `inherited` one had ended before the branch (or a forked session) began.
    """

    interrupt: Interrupt
    outcome: Outcome | None
    answer: Any = None
    by: str | None = None
    at: datetime | None = None
    inherited: bool = False


class Sessions:
    """The sessions of one app in a store: looking at them, answering their questions, forking and removing them.

    Nothing here needs a session's program. A `Runner` is a `Sessions` that can also run. Every method
    takes `user_id`: with it, only a session of that user is found (rule C12); `for_user` passes it to all of them. Each
    has a twin for sync code, with `_sync` at the end of its name.
    """

    def __init__(
        self,
        store: Store | str,
        *,
        app_name: str | None = "adjourn",
        require_token: bool = False,
        require_by: bool = False,
        may_answer: MayAnswer | None = None,
        clock: Clock | None = None,
        new_id: NewId | None = None,
    ) -> None:
        """Open the sessions of `app_name` in a store, given as an object or as a URL; None means those of all apps.

        With `require_token`, approvals must be answered by their tokens, so that they count only for what was shown.
        With `require_by`, an approval counts only with `by`. `may_answer` decides whether an answer counts: it gets the
        question, `by`, and the user whose turn asks, and returns True, or False or the reason why not.
        """
        self._settings: Settings = Settings(
            store, app_name, clock, new_id, require_token=require_token, require_by=require_by, may_answer=may_answer
        )

    @property
    def store(self) -> Store:
        """The store that the sessions are in."""
        return self._settings.store

    @property
    def app_name(self) -> str | None:
        """The app whose sessions these are; None for all apps."""
        return self._settings.app_name

    @property
    def user_id(self) -> str | None:
        """The user that every call is for; None if a call can be for anybody."""
        return self._settings.user_id

    def for_user(self, user_id: str) -> Self:
        """Return the same object bound to one user, as if every call were made with this `user_id`.

        Sessions of others are not found, and a call with another `user_id` is refused.
        """
        bound = copy.copy(self)
        bound._settings = self._settings.for_user(user_id)
        return bound

    # Looking

    async def status(self, session_id: str, *, user_id: str | None = None) -> SessionStatus:
        """Return the status of a session, who runs it, and what it asks.

        Raises:
            CheckpointNotFound: there is no such session.
        """
        return await self._described(await self._head(session_id, user_id))

    async def sessions(
        self, *, user_id: str | None = None, status: Status | None = None, limit: int | None = None
    ) -> list[SessionStatus]:
        """List the sessions, most recently written first.

        A damaged session is left out, and reported on the log `adjourn.stores`.
        """
        check_limit(limit)
        _check_choice("status", status, get_args(Status))
        app, store, user_id = self.app_name, self.store, self._settings.user(user_id)
        if status not in ("failed", "running"):
            heads = await store.sessions(app=app, user=user_id, status=status, limit=limit)
            return [await self._listed(head) for head in heads]
        # A run whose process died is stored as running, but has failed.
        heads = await store.sessions(app=app, user=user_id, status="running")
        if status == "failed":
            heads += await store.sessions(app=app, user=user_id, status="failed", limit=limit)
            heads.sort(key=lambda head: head.updated, reverse=True)
        return [await self._listed(head) for head in heads if status_of(head) == status][:limit]

    async def pending(
        self, session_id: str | None = None, *, user_id: str | None = None, limit: int | None = None
    ) -> list[Interrupt]:
        """List open questions, of one session or of all, oldest first.

        A damaged question raises `CheckpointCorrupt` if its session was named; from a list of all it is left out, and
        reported on the log `adjourn.stores`.
        """
        check_limit(limit)
        if session_id is None:
            rows = await self.store.questions(app=self.app_name, user=self._settings.user(user_id), limit=limit)
            return list(readable(rows, shown))
        rows = await self.store.questions(await self._ref(session_id, user_id), limit=limit)
        return [shown(row) for row in rows]

    async def messages(self, session_id: str, *, user_id: str | None = None) -> tuple[Message, ...]:
        """Return the conversation of a session."""
        return (await Contents.at(self.store, await self._ref(session_id, user_id))).messages

    async def audit(self, session_id: str, *, user_id: str | None = None) -> list[AuditEntry]:
        """List every question of the session's branch, oldest first: who answered what, and when.

        A damaged question is left out, and reported on the log `adjourn.stores`.

        Raises:
            CheckpointNotFound: there is no such session.
        """
        head = await self._head(session_id, user_id)
        return list(readable(await self.store.audit(head.ref), lambda row: _audit_entry(row, head)))

    def subscribe(self, *, user_id: str | None = None, report_open: bool = False) -> AsyncGenerator[Notice]:
        """Report new questions and ended sessions, over all sessions, for as long as the caller reads.

        With `report_open`, the questions that are open already come first, so that nothing falls between a `pending`
        and this call.
        """
        return watch(self.store, self.app_name, self._settings.user(user_id), report_open=report_open)

    # Answering

    async def answer(
        self,
        session_id: str,
        answers: Answers = None,
        *,
        by: str | None = None,
        checkpoint_id: str | None = None,
        user_id: str | None = None,
    ) -> SessionStatus:
        """Record answers and return; a live run takes them up, or else whoever resumes or recovers the session.

        `answers` and the errors are those of `Runner.resume`.
        """
        if by is not None:
            check_name("by", by)
        head = await record_answers(
            self.store,
            await self._ref(session_id, user_id),
            answers,
            by=by,
            seen=checkpoint_id,
            permission=self._settings.permission,
            require_token=self._settings.require_token,
        )
        return await self._described(head)

    # History

    async def history(
        self,
        session_id: str,
        *,
        limit: int | None = None,
        before: str | None = None,
        source: str | None = None,
        under: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        user_id: str | None = None,
    ) -> list[Checkpoint]:
        """List the checkpoints of a session, most recent first; `under` selects those at or below an address.

        A damaged checkpoint is left out, and reported on the log `adjourn.stores`.

        Raises:
            CheckpointNotFound: there is no such session, or `before` is unknown.
        """
        check_limit(limit)
        _check_choice("source", source, get_args(Source))
        page, ref = None if metadata else limit, await self._ref(session_id, user_id)
        rows = await self.store.checkpoints(ref, limit=page, before=before, source=source, under=under)
        if metadata:
            rows = [row for row in rows if metadata.items() <= row.header.metadata.items()][:limit]
        found: list[Checkpoint] = []
        for row in rows:
            try:
                found.append(await self._checkpoint(ref, row))
            except CheckpointCorrupt as damage:
                note_damage(damage)
        return found

    async def checkpoint(self, session_id: str, id: str | None = None, *, user_id: str | None = None) -> Checkpoint:
        """Return one checkpoint, by default the most recent."""
        ref = await self._ref(session_id, user_id)
        for row in await self.store.checkpoints(ref, limit=1 if id is None else None):
            if id in (None, row.id):
                return await self._checkpoint(ref, row)
        raise CheckpointNotFound(session_id, id)

    async def state(self, session_id: str, *, checkpoint_id: str | None = None, user_id: str | None = None) -> Any:
        """Return the state at a checkpoint, by default the head, as a mapping of its fields."""
        return (await Contents.at(self.store, await self._ref(session_id, user_id), checkpoint_id)).state

    async def tree(self, session_id: str, *, user_id: str | None = None) -> Tree:
        """Return the checkpoints as a tree of branches; printing it shows it."""
        head = await self._head(session_id, user_id)
        return Tree(session_id, await self.store.checkpoints(head.ref), head.checkpoint)

    async def diff(self, session_id: str, a: str, b: str, *, user_id: str | None = None) -> Diff:
        """Return what differs between the states at two checkpoints."""
        one = await self.state(session_id, checkpoint_id=a, user_id=user_id)
        two = await self.state(session_id, checkpoint_id=b, user_id=user_id)
        return Diff.between(as_mapping(one), as_mapping(two))

    async def fork(
        self,
        session_id: str,
        *,
        checkpoint_id: str | None = None,
        to: str | None = None,
        user_id: str | None = None,
    ) -> str:
        """Begin a new session as this one was at a checkpoint, and return its id.

        With its own id as `to`, it is a new branch of this session instead.
        """
        return await _fork.fork(self._settings, await self._ref(session_id, user_id), checkpoint_id, to)

    # Removing

    async def prune(
        self,
        session_id: str,
        *,
        keep: int | None = None,
        older_than: timedelta | float | None = None,
        user_id: str | None = None,
    ) -> int:
        """Remove old checkpoints, except the last `keep` and those younger than `older_than`; return how many."""
        if keep is None and older_than is None:
            raise UsageError("prune needs keep=... or older_than=...; otherwise it would remove nothing.")
        seconds = older_than.total_seconds() if isinstance(older_than, timedelta) else older_than
        before = None if seconds is None else self._settings.clock() - seconds
        return await self.store.prune(await self._ref(session_id, user_id), keep=keep, before=before)

    async def delete(self, session_id: str, *, user_id: str | None = None) -> None:
        """Remove a whole session.

        Raises:
            SessionBusy: somebody runs it.
        """
        ref = await self._ref(session_id, user_id)
        try:
            head = await self.store.head(ref)
        except CheckpointCorrupt:
            head = None  # It is damaged, so nobody knows who runs it; delete it anyway.
        if head is not None and head.owner is not None and is_dead(head.owner):
            # Nobody runs it any more: take its lease over, and give it up at once.
            await self.store.claim(ref, process_id(), 0.0, after=head.checkpoint, replaces=head.owner)
        await self.store.delete(ref)

    async def close(self) -> None:
        """Close the store."""
        await self.store.close()

    # What subclasses build on

    async def _ref(self, session_id: str, user_id: str | None = None) -> SessionRef:
        """Return the key of a session, of the one app or of whichever app has it.

        Raises:
            UsageError: several apps have a session of this id.
        """
        if self.app_name is not None:
            return self._settings.ref(session_id, user_id)
        user = self._settings.user(user_id)
        apps = sorted({head.app for head in await self.store.sessions(user=user) if head.session == session_id})
        if len(apps) > 1:
            raise UsageError(
                f"Several apps have a session '{session_id}': {', '.join(apps)}. Name one with app_name=..., on the "
                "command line with --app NAME."
            )
        return SessionRef(session_id, apps[0] if apps else "adjourn", user)

    async def _head(self, session_id: str, user_id: str | None = None) -> Head:
        head = await self.store.head(await self._ref(session_id, user_id))
        if head is None:
            raise CheckpointNotFound(session_id)
        return head

    async def _described(self, head: Head) -> SessionStatus:
        return describe(head, [shown(row) for row in await self.store.questions(head.ref)])

    async def _listed(self, head: Head) -> SessionStatus:
        """Describe a session in a listing, where a damaged question must not break the whole list."""
        return describe(head, readable(await _questions_of(self.store, head), shown))

    async def _checkpoint(self, ref: SessionRef, row: CheckpointRow) -> Checkpoint:
        if row.damaged:
            raise CheckpointCorrupt(f"the row of checkpoint '{row.id}' is damaged; restore a backup", ref.id)
        state, interrupts = await self._held_at(ref, row.id)
        return Checkpoint.of(row, state, interrupts)

    async def _held_at(self, ref: SessionRef, checkpoint_id: str) -> tuple[Any, tuple[Interrupt, ...]]:
        contents = await Contents.at(self.store, ref, checkpoint_id)
        return contents.state, contents.interrupts

    # From sync code

    status_sync = sync_twin(status)
    sessions_sync = sync_twin(sessions)
    pending_sync = sync_twin(pending)
    messages_sync = sync_twin(messages)
    audit_sync = sync_twin(audit)
    answer_sync = sync_twin(answer)
    history_sync = sync_twin(history)
    checkpoint_sync = sync_twin(checkpoint)
    state_sync = sync_twin(state)
    tree_sync = sync_twin(tree)
    diff_sync = sync_twin(diff)
    fork_sync = sync_twin(fork)
    prune_sync = sync_twin(prune)
    delete_sync = sync_twin(delete)
    close_sync = sync_twin(close)


def _audit_entry(row: protocol.AuditEntry, head: Head) -> AuditEntry:
    with Reading(head.session):
        return AuditEntry(
            interrupt=read_interrupt(row.body, head.ref, head.branch),
            outcome=row.how,
            answer=codec.decode(row.value, lenient=True) if row.value else None,
            by=row.by,
            at=None if row.at is None else datetime.fromtimestamp(row.at, UTC),
            inherited=row.how is not None and read_question(row.body).inherited,
        )


async def _questions_of(store: Store, head: Head) -> list[OpenQuestion]:
    try:
        return await store.questions(head.ref)
    except CheckpointCorrupt as damage:
        note_damage(damage)
        return []


def _check_choice(name: str, value: str | None, known: tuple[str, ...]) -> None:
    """Refuse a filter that could match nothing."""
    if value is not None and value not in known:
        raise UsageError(f"{name}={value!r}: use one of {', '.join(known)}, or None for all.")


def check_limit(limit: int | None) -> None:
    """Refuse a limit below zero."""
    if limit is not None and limit < 0:
        raise UsageError(f"limit={limit}: give 0 or more, or None for all.")
