"""Sessions: everything that can be done with stored sessions without the program that runs them."""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, Self, Unpack, get_args

from adjourn._engine import record
from adjourn._engine.entry import check_not_own
from adjourn._owner import is_dead, process_id
from adjourn.errors import CheckpointCorrupt, CheckpointNotFound, UsageError
from adjourn.events import Interrupt
from adjourn.messages import Message
from adjourn.stores._logging import note_damage
from adjourn.stores.kit import (
    Claim,
    CountQuestions,
    Delete,
    FindSessions,
    GetHead,
    ListCheckpoints,
    ListInputs,
    ListOpen,
    ListSessions,
    Prune,
    Withdraw,
)
from adjourn.stores.protocol import Store
from adjourn.stores.types import CheckpointRow, DecisionFilter, Head, Loaded, Order, SessionRef, Source, Status

from . import _fork
from ._audit import AuditEntry, moment, read_audit, read_decisions
from ._contents import Contents
from ._inbox import InboxFilter, Page, check_page, one_page, read_open, wanted
from ._inputs import WaitingInput, shown_input
from ._permission import MayAnswer
from ._questions import Answers, questions_of, record_answers, shown, shown_in_list, shown_page
from ._retention import ENDED, check_statuses, clean_up, old_sessions, prune_all, seconds_of
from ._settings import AuditKey, Clock, NewId, Settings, check_name
from ._span import Failure, Span, rows_up_to, spans
from ._status import SessionStatus, SessionSummary, describe, status_of, summarize
from ._sync import sync_twin
from ._verify import Verification, verify, verify_all
from ._watch import Notice, watch
from .history import Checkpoint, Diff, Listed, Tree, as_mapping


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
        self_approval: bool = True,
        audit_key: AuditKey | None = None,
        clock: Clock | None = None,
        new_id: NewId | None = None,
    ) -> None:
        """Open the sessions of `app_name` in a store, given as an object or as a URL; None means those of all apps.

        With `require_token`, approvals must be answered by their tokens, so that they count only for what was shown.
        With `require_by`, an approval counts only with `by`. `may_answer` decides whether an answer counts: it gets the
        question, `by`, and the user whose turn asks, and returns True, or False or the reason why not. What a question
        says of its requesters always counts; with `self_approval=False`, a question that a runner without this option
        has asked is not approved by the user whose turn asks it. `audit_key` is the secret that `verify` needs for
        sessions of a `Runner` that signs with it, or several such secrets.
        """
        self._settings: Settings = Settings(
            store,
            app_name,
            clock,
            new_id,
            require_token=require_token,
            require_by=require_by,
            may_answer=may_answer,
            self_approval=self_approval,
            audit_key=audit_key,
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
        self,
        *,
        user_id: str | None = None,
        status: Status | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> Page[SessionStatus]:
        """List the sessions, most recently written first; with a `limit` it is a page, as for `pending`.

        A session that is written while somebody reads page after page moves to the front.
        A damaged session is left out, and reported on the log `adjourn.stores`; so are questions that are damaged, or
        whose key is missing.
        """
        check_page(after, limit)
        _check_choice("status", status, get_args(Status))
        heads = await self._heads(self._settings.user(user_id), status, after, None if limit is None else limit + 1)
        listed, following = one_page(heads, limit)
        return Page([await self._listed(head) for head in listed], next=following)

    async def _heads(self, user: str | None, status: Status | None, after: str | None, limit: int | None) -> list[Head]:
        """Return the sessions with a status."""
        app, store = self.app_name, self.store
        if status not in ("failed", "running"):
            return await store.read(ListSessions(app=app, user=user, status=status, after=after, limit=limit))
        # A run whose process died is stored as running, but has failed.
        heads = await store.read(ListSessions(app=app, user=user, status="running", after=after))
        if status == "failed":
            heads += await store.read(ListSessions(app=app, user=user, status="failed", after=after, limit=limit))
            heads.sort(key=lambda head: (head.updated, head.app, head.session), reverse=True)
        return [head for head in heads if status_of(head) == status][:limit]

    async def pending(
        self,
        session_id: str | None = None,
        *,
        order: Order = "age",
        after: str | None = None,
        limit: int | None = None,
        user_id: str | None = None,
        programs: Collection[str] | None = None,
        **filters: Unpack[InboxFilter],
    ) -> Page[Interrupt]:
        """List open questions, of one session or of all, oldest first; `InboxFilter` says which.

        With `order="expiry"`, those come first that expire first, and at last those that never do.
        `programs` are addresses such as `agent:teller`: questions of sessions that others run are left out.
        With a `limit` it is a page: the next one begins `after` its `next`. A reader who asks for page after page sees
        each question once, whatever is asked and answered meanwhile.

        A damaged question raises `CheckpointCorrupt` if its session was named, one whose key is missing `MissingKey`;
        from a list of all, both are left out, and reported on the log `adjourn.stores`. If nothing can be decrypted,
        that list raises `MissingKey`, too. A session that does not exist, or not yet, has none.
        """
        check_page(after, limit, order)
        chosen = wanted(self._settings, user_id, filters)
        ref = None if session_id is None else await self._ref(session_id, user_id)
        more = None if limit is None else limit + 1
        rows = await read_open(self.store, ref, chosen, programs, order, after, more)
        if ref is None:
            return shown_page(rows, limit, shown, is_first=after is None)
        listed, following = one_page(rows, limit)
        return Page([shown(row) for row in listed], next=following)

    async def count_pending(
        self,
        session_id: str | None = None,
        *,
        user_id: str | None = None,
        **filters: Unpack[InboxFilter],
    ) -> int:
        """Return how many questions `pending` lists."""
        chosen = wanted(self._settings, user_id, filters)
        if session_id is None:
            return await self.store.read(CountQuestions(chosen))
        return len(await self.store.read(ListOpen(await self._ref(session_id, user_id), filter=chosen)))

    async def messages(self, session_id: str, *, user_id: str | None = None) -> tuple[Message, ...]:
        """Return the conversation of a session; it is empty while its first input waits.

        Raises:
            CheckpointNotFound: there is no such session.
        """
        try:
            return (await Contents.at(self.store, await self._ref(session_id, user_id))).messages
        except CheckpointNotFound:
            await self._head(session_id, user_id)
            return ()

    async def audit(
        self, session_id: str, *, all_branches: bool = False, user_id: str | None = None
    ) -> list[AuditEntry]:
        """List every question on the way to the session's head, oldest first: who answered what, and when.

        What had ended before the branch, or a forked session, began is `inherited`. With `all_branches`, the questions
        of branches that the head has left are listed, too, the oldest branch first.
        A damaged question is left out, and reported on the log `adjourn.stores`.

        Raises:
            CheckpointNotFound: there is no such session.
        """
        return await read_audit(self.store, await self._head(session_id, user_id), all_branches=all_branches)

    async def decisions(
        self,
        *,
        by: str | None = None,
        agent: str | None = None,
        how: Literal["answered", "expired"] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        after: str | None = None,
        limit: int | None = None,
        user_id: str | None = None,
    ) -> Page[AuditEntry]:
        """List the questions of all sessions that were answered or have expired, most recent first.

        `by` selects those that this person has answered, and "" those that have ended without a name; `agent` those
        that this agent has asked. They ended at `since` or later, and before `until`. With a `limit` it is a page, as
        for `pending`. Questions of branches that a head has left are listed, too. What a fork or a branch has taken
        over is listed once, where it was answered.

        A damaged question, or one whose key is missing, is left out, and reported on the log `adjourn.stores`. If
        nothing can be decrypted, the list raises `MissingKey`.
        """
        check_page(after, limit)
        for name, text in (("by", by), ("agent", agent)):
            if text is not None:
                check_name(name, text)
        _check_choice("how", how, ("answered", "expired"))
        chosen = DecisionFilter(
            app=self.app_name,
            user=self._settings.user(user_id),
            by=by,
            agent=agent,
            how=how,
            since=moment("since", since),
            until=moment("until", until),
        )
        return await read_decisions(self.store, chosen, after, limit)

    async def verify(self, session_id: str, *, head: str | None = None, user_id: str | None = None) -> Verification:
        """Check that the log of a session, its questions and its answers are as they were written.

        `head` is that of an earlier `Verification`, kept where whoever can write the store cannot change it: then a log
        that was cut off, or made again as a whole, is noticed, too. So it is with an `audit_key`, except for a log that
        was cut off.

        Raises:
            CheckpointNotFound: there is no such session.
        """
        ref = await self._ref(session_id, user_id)
        return await verify(self.store, ref, self._settings.audit_keys, head)

    async def verify_all(self, *, user_id: str | None = None) -> list[Verification]:
        """Verify every session, most recently written first.

        One that cannot be read, or whose key is missing, has that as its problem. One that was removed as a whole
        cannot be noticed here: keep the `head` of what must not disappear.
        """
        user = self._settings.user(user_id)
        return await verify_all(self.store, self.app_name, user, self._settings.audit_keys)

    def subscribe(self, *, user_id: str | None = None, report_open: bool = False) -> AsyncGenerator[Notice]:
        """Report new questions and ended sessions, over all sessions, for as long as the caller reads.

        A run whose process died, or does not renew its lease any more, has ended as failed.
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
        message: str | None = None,
        checkpoint_id: str | None = None,
        id: str | None = None,
        user_id: str | None = None,
    ) -> SessionSummary:
        """Record answers and return; a live run takes them up, or else whoever resumes or recovers the session.

        `answers`, `message`, `id` and the errors are those of `Runner.resume`. However many other questions are open,
        an answer that names its question by id or token costs the same; `pending` lists those that are left.
        """
        if by is not None:
            check_name("by", by)
        if id is not None:
            check_name("id", id)
        head = await record_answers(
            self.store,
            await self._ref(session_id, user_id),
            answers,
            by=by,
            message=message,
            seen=checkpoint_id,
            id=id,
            permission=self._settings.permission,
            require_token=self._settings.require_token,
        )
        return summarize(head)

    # The queue

    async def inputs(
        self, session_id: str, *, limit: int | None = None, user_id: str | None = None
    ) -> list[WaitingInput]:
        """List the inputs that wait for their turn, in order.

        Raises:
            CheckpointNotFound: there is no such session.
        """
        check_page(None, limit)
        rows = await self.store.read(ListInputs(await self._ref(session_id, user_id), limit=limit))
        return [shown_input(row, session_id) for row in rows]

    async def withdraw(self, session_id: str, id: str, *, user_id: str | None = None) -> bool:
        """Remove an input that waits for its turn; return False if none of this id does.

        A session that had nothing else is removed with it.

        Raises:
            CheckpointNotFound: there is no such session.
        """
        check_name("id", id)
        return await self.store.write(Withdraw(await self._ref(session_id, user_id), id))

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
        """List the checkpoints of a session, most recent first.

        `under` selects those at or below an address, `metadata` those that have all of these values.
        A damaged checkpoint is left out, and reported on the log `adjourn.stores`.

        Raises:
            CheckpointNotFound: there is no such session, or `before` is unknown.
        """
        check_page(None, limit)
        _check_choice("source", source, get_args(Source))
        if not isinstance(metadata, Mapping | None):  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
            raise UsageError(f"metadata={metadata!r}: give a mapping of the values to select by.")
        page, ref = None if metadata else limit, await self._ref(session_id, user_id)
        rows = await self.store.read(ListCheckpoints(ref, limit=page, before=before, source=source, under=under))
        if metadata:
            rows = [row for row in rows if metadata.items() <= row.header.metadata.items()][:limit]
        found: dict[str, Checkpoint] = {}
        # Between the rows of a selection there may be others.
        listed = Listed(() if source or under or metadata else [row.id for row in rows])
        async for row, checkpoint in self._read(ref, rows, listed):
            if isinstance(checkpoint, Checkpoint):
                found[row.id] = checkpoint
            elif isinstance(checkpoint, CheckpointCorrupt):
                note_damage(checkpoint)
            else:
                raise checkpoint
        return [found[row.id] for row in rows if row.id in found]

    async def checkpoint(self, session_id: str, id: str | None = None, *, user_id: str | None = None) -> Checkpoint:
        """Return one checkpoint, by default the most recent."""
        ref = await self._ref(session_id, user_id)
        row = await self._row(ref, id)
        async for _, checkpoint in self._read(ref, [row], Listed()):
            if isinstance(checkpoint, Checkpoint):
                return checkpoint
            raise checkpoint
        raise AssertionError("what is to be read is read, or fails")

    async def _row(self, ref: SessionRef, id: str | None) -> CheckpointRow:
        """Return the row of one checkpoint, by default the most recent."""
        for row in await self.store.read(ListCheckpoints(ref, limit=1)):
            if id in (None, row.id):
                return row
        for row in await rows_up_to(self.store, ref, id or ""):
            if id == row.id:
                return row
        raise CheckpointNotFound(ref.id, id)

    async def state(self, session_id: str, *, checkpoint_id: str | None = None, user_id: str | None = None) -> Any:
        """Return the state at a checkpoint, by default the head, as a mapping of its fields."""
        return (await Contents.at(self.store, await self._ref(session_id, user_id), checkpoint_id)).state

    async def tree(self, session_id: str, *, user_id: str | None = None) -> Tree:
        """Return the checkpoints as a tree of branches; printing it shows it."""
        head = await self._head(session_id, user_id)
        return Tree(session_id, await self.store.read(ListCheckpoints(head.ref)), head.checkpoint)

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
        again: bool = False,
        user_id: str | None = None,
    ) -> str:
        """Begin a new session as this one was at a checkpoint, and return its id.

        With its own id as `to`, it is a new branch of this session instead. With `again`, approvals that a node asked
        in the unfinished turn, and that have acted since, count once more; the audit says so.

        Raises:
            ApprovalSpent: there are such approvals, and `again` is not given.
        """
        return await _fork.fork(self._settings, await self._ref(session_id, user_id), checkpoint_id, to, again=again)

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
        before = self._prunes_before(keep, older_than)
        return await self.store.write(Prune(await self._ref(session_id, user_id), keep=keep, before=before))

    async def prune_all(
        self,
        *,
        keep: int | None = None,
        older_than: timedelta | float | None = None,
        user_id: str | None = None,
    ) -> int:
        """Remove old checkpoints of every session, as `prune` does of one; return how many.

        A damaged session is left as it is, and reported on the log `adjourn.stores`.
        """
        before = self._prunes_before(keep, older_than)
        return await prune_all(self.store, self.app_name, self._settings.user(user_id), keep, before)

    def _prunes_before(self, keep: int | None, older_than: timedelta | float | None) -> float | None:
        if keep is None and older_than is None:
            raise UsageError("prune needs keep=... or older_than=...; otherwise it would remove nothing.")
        return None if older_than is None else self._settings.clock() - seconds_of(older_than)

    async def old_sessions(
        self, older_than: timedelta | float, *, statuses: Sequence[Status] = ENDED, user_id: str | None = None
    ) -> list[SessionSummary]:
        """List the sessions that `clean_up` would remove now, by this machine's clock; nothing is removed.

        Raises:
            UsageError: the age is negative or not one, or nothing could have these statuses.
        """
        check_statuses(statuses)
        before, user = self._settings.clock() - seconds_of(older_than), self._settings.user(user_id)
        found = await old_sessions(self.store, before, self.app_name, user, statuses)
        return [summarize(head) for head in found]

    async def clean_up(
        self, older_than: timedelta | float, *, statuses: Sequence[Status] = ENDED, user_id: str | None = None
    ) -> list[str]:
        """Remove whole sessions that nobody has written, answered or run for this long, and return their ids.

        Sessions that wait for an answer, or for their turn, are removed only if `statuses` names "waiting" or "queued";
        inputs that wait behind a turn that failed or was cancelled keep their session unless it names "queued", too.
        What somebody runs stays, and so does a session that is resumed meanwhile. Others can work in between: it is
        done a few sessions at a time.

        Raises:
            UsageError: the age is negative or not one, or nothing could have these statuses.
        """
        check_statuses(statuses)
        user = self._settings.user(user_id)
        return await clean_up(self.store, seconds_of(older_than), self.app_name, user, statuses)

    async def delete(self, session_id: str, *, user_id: str | None = None) -> None:
        """Remove a whole session; if there is none, there is nothing to do.

        Raises:
            SessionBusy: somebody runs it.
            UsageError: it runs the code that makes this call.
        """
        ref = await self._ref(session_id, user_id)
        try:
            head = await self.store.read(GetHead(ref))
        except CheckpointCorrupt:
            head = None  # It is damaged, so nobody knows who runs it; delete it anyway.
        if head is not None:
            check_not_own(session_id, head.owner)
        if head is not None and head.owner is not None and is_dead(head.owner):
            # Nobody runs it any more: take its lease over, and give it up at once.
            await self.store.write(
                Claim(ref=ref, owner=process_id(), ttl=0.0, after=head.checkpoint, replaces=head.owner)
            )
        await self.store.write(Delete(ref))

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
        found = await self.store.read(FindSessions(session_id, user=user))
        if len(found) > 1:
            apps = ", ".join(ref.app for ref in found)
            raise UsageError(
                f"Several apps have a session '{session_id}': {apps}. Name one with app_name=..., on the "
                "command line with --app NAME."
            )
        return SessionRef(session_id, found[0].app if found else "adjourn", user)

    async def _head(self, session_id: str, user_id: str | None = None) -> Head:
        head = await self.store.read(GetHead(await self._ref(session_id, user_id)))
        if head is None:
            raise CheckpointNotFound(session_id)
        return head

    async def _described(self, head: Head) -> SessionStatus:
        return describe(head, [shown(row) for row in await self.store.read(ListOpen(head.ref))])

    async def _listed(self, head: Head) -> SessionStatus:
        """Describe a session in a listing, where a damaged question must not break the whole list."""
        return describe(head, shown_in_list(await questions_of(self.store, head), shown))

    async def _read(
        self, ref: SessionRef, rows: list[CheckpointRow], listed: Listed
    ) -> AsyncIterator[tuple[CheckpointRow, Checkpoint | Failure]]:
        """Yield checkpoints, listed most recent first, with what they hold, or why that cannot be read.

        `listed` has the ids of the checkpoints that are known, without gaps.
        """
        whole = {row.id: row for row in rows if not row.damaged}
        for row in rows:
            if row.damaged:
                detail = f"the row of checkpoint '{row.id}' is damaged"
                yield row, CheckpointCorrupt(detail, ref.id)
        async for ids, span in spans(self.store, ref, list(whole)):
            for each in ids:
                parent = await self._listed_before(ref, whole[each].parent, listed)
                yield whole[each], await self._checkpoint(whole[each], parent, span)

    async def _listed_before(self, ref: SessionRef, id: str | None, listed: Listed) -> str | None:
        """Return the listed checkpoint at or before a record, on its branch; None if there is none (any more)."""
        if id is None:
            return None
        found = listed.nearest(id)
        if found is None:
            found = Listed(row.id for row in await rows_up_to(self.store, ref, id)).nearest(id)
        return found

    async def _checkpoint(self, row: CheckpointRow, parent: str | None, span: Span | Failure) -> Checkpoint | Failure:
        if not isinstance(span, Span):
            return span
        try:
            state, interrupts = await self._held_at(span.loaded_at(row.id), span.fold_to(row.id))
        except (CheckpointCorrupt, CheckpointNotFound) as failure:
            return failure
        return Checkpoint.of(row, parent, state, interrupts)

    async def _held_at(self, loaded: Loaded, tree: record.Tree) -> tuple[Any, tuple[Interrupt, ...]]:
        """Return the state at a checkpoint, and the questions that are open there; `tree` stays as it is."""
        contents = await Contents.of(self.store, loaded, tree.copy())
        return contents.state, contents.interrupts

    # From sync code

    @sync_twin(status)
    def status_sync(self) -> None:
        """Do what `status` does, from sync code."""

    @sync_twin(sessions)
    def sessions_sync(self) -> None:
        """Do what `sessions` does, from sync code."""

    @sync_twin(pending)
    def pending_sync(self) -> None:
        """Do what `pending` does, from sync code."""

    @sync_twin(count_pending)
    def count_pending_sync(self) -> None:
        """Do what `count_pending` does, from sync code."""

    @sync_twin(messages)
    def messages_sync(self) -> None:
        """Do what `messages` does, from sync code."""

    @sync_twin(audit)
    def audit_sync(self) -> None:
        """Do what `audit` does, from sync code."""

    @sync_twin(decisions)
    def decisions_sync(self) -> None:
        """Do what `decisions` does, from sync code."""

    @sync_twin(verify)
    def verify_sync(self) -> None:
        """Do what `verify` does, from sync code."""

    @sync_twin(verify_all)
    def verify_all_sync(self) -> None:
        """Do what `verify_all` does, from sync code."""

    @sync_twin(answer)
    def answer_sync(self) -> None:
        """Do what `answer` does, from sync code."""

    @sync_twin(inputs)
    def inputs_sync(self) -> None:
        """Do what `inputs` does, from sync code."""

    @sync_twin(withdraw)
    def withdraw_sync(self) -> None:
        """Do what `withdraw` does, from sync code."""

    @sync_twin(history)
    def history_sync(self) -> None:
        """Do what `history` does, from sync code."""

    @sync_twin(checkpoint)
    def checkpoint_sync(self) -> None:
        """Do what `checkpoint` does, from sync code."""

    @sync_twin(state)
    def state_sync(self) -> None:
        """Do what `state` does, from sync code."""

    @sync_twin(tree)
    def tree_sync(self) -> None:
        """Do what `tree` does, from sync code."""

    @sync_twin(diff)
    def diff_sync(self) -> None:
        """Do what `diff` does, from sync code."""

    @sync_twin(fork)
    def fork_sync(self) -> None:
        """Do what `fork` does, from sync code."""

    @sync_twin(prune)
    def prune_sync(self) -> None:
        """Do what `prune` does, from sync code."""

    @sync_twin(prune_all)
    def prune_all_sync(self) -> None:
        """Do what `prune_all` does, from sync code."""

    @sync_twin(old_sessions)
    def old_sessions_sync(self) -> None:
        """Do what `old_sessions` does, from sync code."""

    @sync_twin(clean_up)
    def clean_up_sync(self) -> None:
        """Do what `clean_up` does, from sync code."""

    @sync_twin(delete)
    def delete_sync(self) -> None:
        """Do what `delete` does, from sync code."""

    @sync_twin(close)
    def close_sync(self) -> None:
        """Do what `close` does, from sync code."""


def _check_choice(name: str, value: str | None, known: tuple[str, ...]) -> None:
    """Refuse a filter that could match nothing."""
    if value is not None and value not in known:
        raise UsageError(f"{name}={value!r}: use one of {', '.join(known)}, or None for all.")
