"""Runner: runs a program in sessions, and answers every question about them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Unpack

import msgspec

from adjourn._engine.program import Program
from adjourn._owner import is_dead, owner_name, process_id
from adjourn.errors import CheckpointNotFound, PendingInterrupts, UnfinishedRun, UsageError
from adjourn.events import Interrupt, ToolResult
from adjourn.messages import Message
from adjourn.sessions._log import read_interrupt
from adjourn.stores.protocol import Head, Status, Store

from ._answering import Answers
from ._driving import stored_result
from ._following import CancelMode, RunFollower, check_mode, is_running
from ._live import LiveSession, Sessions
from ._opening import Call, OnPending, Reader, SessionOpener
from ._settings import Options, Settings, check_name, stored_options
from .history import Checkpoint, Diff, History, Tree
from .result import RunResult, SessionStatus
from .run import Begin, Run, wait_for

POLL = (0.01, 0.25)
"""Seconds between looks at a session that somebody else runs: the first and the longest."""

PAGE = 100
"""Records whose events are read at once."""


class Runner:
    """Runs a compiled graph, a workflow or an agent in sessions of a store."""

    def __init__(self, agent: Any, **options: Unpack[Options]) -> None:
        """Make a runner of `agent`; every option can be left out.

        store: where sessions are kept: a store or its URL, such as "sqlite:///file.db"; None keeps them in this runner.
        streaming: whether models are asked for their answers piece by piece; True by default.
        durability: when a step is stored: "step" before it is told, "async" while the next runs, "pause" at pauses.
        app_name: the name under which `sessions` and `pending` find what this runner began; "adjourn" by default.
        middleware: what stands around the calls of models and tools in every agent that this runner runs.
        interrupts: False makes every question an error, for programs that nobody answers.
        after_transfer: who takes the next turn after a transfer: "stay" (whoever has it; the default) or "root".
        max_concurrency: how many nodes of one run may work at once; None for no limit.
        lease_ttl: seconds after which a session whose process cannot be heard of may be taken over; 30 by default.
        store_timeout: seconds that a run waits for a store that does not answer, before it fails; 30 by default.
        buffer_size: how many events wait in memory for a slow reader; it reads others from the store; 256 by default.
        clock: a function that gives the time in seconds since 1970, such as a test's own; `time.time` by default.
        new_id: a function that gives ids of sessions and branches; random ones by default.

        Raises:
            UsageError: `agent` cannot be run, or an option cannot be used.
        """
        if not isinstance(agent, Program):
            raise UsageError(
                f"A Runner cannot run {agent!r}. "
                "Give it an agent, a compiled graph (did you call .compile()?) or a @workflow function."
            )
        self._settings = Settings(options)
        self._options = options
        self._sessions = Sessions(self._settings, agent)
        self._opener = SessionOpener(self._sessions)
        self._travel = History(self._sessions)
        self._elsewhere = RunFollower(self._sessions, self._travel)

    @property
    def store(self) -> Store:
        """The store that the sessions are in."""
        return self._settings.store

    @property
    def app_name(self) -> str:
        """The app whose sessions this runner runs."""
        return self._settings.app_name

    @property
    def program(self) -> Program:
        """What this runner runs."""
        return self._sessions.program

    @property
    def options(self) -> Options:
        """The options that this runner was made with: `Runner(runner.program, **runner.options)` is its equal."""
        return self._options.copy()

    @property
    def is_kept(self) -> bool:
        """Whether a store was given, so that sessions outlive this runner."""
        return not self._settings.is_private

    # Running

    def run(
        self,
        input: Any = None,
        *,
        session_id: str | None = None,
        user_id: str | None = None,
        values: Mapping[str, Any] | None = None,
        deps: Any = None,
        on_pending: OnPending = "error",
        checkpoint_id: str | None = None,
        max_steps: int | None = None,
        model_options: Mapping[str, Any] | None = None,
    ) -> Run:
        """A turn with this input; or, with None and a `checkpoint_id`, the run that goes on from there.

        input: text, a `Message` or a list of them for agents; the state, or a part of it, for graphs.
        session_id: which session; None begins a new one.
        user_id: whose session it is; that of another user is not found.
        values: session values to set before the turn begins.
        deps: what code of the run finds as `current().deps`; it is not stored, so give it again on a resume.
        on_pending: what becomes of an unfinished turn: "error" (the default), "abandon" it, or "finish" it first.
        checkpoint_id: the checkpoint to go on from, on a new branch.
        max_steps: how many supersteps this run may take; by default what the graph was compiled with.
        model_options: options for every model call of the turn, under the provider's names.
        """
        if on_pending not in ("error", "abandon", "finish"):
            raise UsageError(f"on_pending={on_pending!r}: use 'error', 'abandon' or 'finish'.")
        call = Call(
            session_id=self._settings.new_id() if session_id is None else session_id,
            user_id=user_id,
            values=values,
            deps=deps,
            max_steps=max_steps,
            model_options=stored_options(model_options),
            is_anonymous=session_id is None,
        )
        begin = partial(self._opener.turn, call, input, on_pending)
        if on_pending == "finish":
            begin = partial(self._finish_first, call, begin)
        if checkpoint_id is not None:
            if input is not None or session_id is None:
                raise UsageError(
                    "run(checkpoint_id=...) goes on from a checkpoint: give it a session_id and None as input."
                )
            begin = partial(self._opener.travel, call, checkpoint_id)
        return Run(call.session_id, begin, self._elsewhere)

    def resume(
        self,
        session_id: str,
        answers: Answers = None,
        *,
        by: str | None = None,
        checkpoint_id: str | None = None,
        values: Mapping[str, Any] | None = None,
        state: Mapping[str, Any] | None = None,
        deps: Any = None,
        max_steps: int | None = None,
    ) -> Run:
        """Answer questions and go on.

        session_id: which session.
        answers: a mapping from questions' ids (or keys, where one question has it) to answers; a list of ids, which
            are answered without data; None for all open questions, without data.
        by: who answers; it is kept with the answer.
        checkpoint_id: the answer counts only if this is where the session stands, and nothing has moved since.
        values: session values to set.
        state: fields for a graph's state that it does not have yet.
        deps: what code of the run finds as `current().deps`.
        max_steps: how many supersteps this run may take.
        """
        call = Call(session_id=session_id, values=values, deps=deps, max_steps=max_steps)
        if by is not None:
            check_name("by", by)

        begin = partial(self._opener.resume, call, answers, by, checkpoint_id, state)
        return Run(session_id, begin, self._elsewhere)

    def recover(self, session_id: str, *, deps: Any = None, max_steps: int | None = None) -> Run:
        """Go on after a crash, failure or cancel; answers nothing. A finished session gives its stored result."""
        call = Call(session_id=session_id, deps=deps, max_steps=max_steps)
        return Run(session_id, partial(self._opener.recover, call), self._elsewhere)

    def attach(self, session_id: str, *, after: int = 0) -> Run:
        """Follow a run that anyone drives, from the event after number `after`."""
        check_name("session_id", session_id)
        run = Run(session_id, partial(self._elsewhere.find, session_id), self._elsewhere)
        run.seen, run.is_attached = after, True
        return run

    async def _finish_first(self, call: Call, begin: Begin, reader: Reader) -> LiveSession | None:
        """Finish what is unfinished, and only then begin."""
        head = await self.store.head(self._settings.ref(call.session_id))
        if head is None or head.status == "done":
            return await begin(reader)
        result = await self.recover(call.session_id, deps=call.deps)
        if result.interrupts:
            keys = {asked.id: asked.key for asked in result.interrupts if asked.key is not None}
            raise PendingInterrupts(call.session_id, [asked.id for asked in result.interrupts], keys)
        if result.status != "done":
            raise UnfinishedRun(call.session_id, result.status)
        return await begin(reader)

    def run_sync(self, input: Any = None, **options: Any) -> RunResult:
        """`run` from sync code."""
        return wait_for(self.run(input, **options))

    def resume_sync(self, session_id: str, answers: Answers = None, **options: Any) -> RunResult:
        """`resume` from sync code."""
        return wait_for(self.resume(session_id, answers, **options))

    def recover_sync(self, session_id: str, **options: Any) -> RunResult:
        """`recover` from sync code."""
        return wait_for(self.recover(session_id, **options))

    # Looking

    async def pending(
        self, session_id: str | None = None, *, user_id: str | None = None, limit: int | None = None
    ) -> list[Interrupt]:
        """Open questions, of one session or of all of this app's."""
        _check_limit(limit)
        ref = None if session_id is None else self._settings.ref(session_id)
        rows = await self.store.questions(ref, app=self._settings.app_name, user=user_id, limit=limit)
        # Whoever answers with the checkpoint id means the session as it is listed now, not as it was when it asked.
        return [
            msgspec.structs.replace(read_interrupt(row.body, row.session), checkpoint_id=row.checkpoint) for row in rows
        ]

    async def status(self, session_id: str) -> SessionStatus:
        """Where a session stands."""
        return await self._described(await self._head(session_id))

    async def _described(self, head: Head) -> SessionStatus:
        # The lease of a process that died stands for a while; nobody owns the session all the same.
        owner = head.owner if is_running(head) else None
        return SessionStatus(
            session_id=head.session,
            status=_status(head),
            owner=None if owner is None else owner_name(owner),
            owner_id=owner,
            since=datetime.fromtimestamp(head.updated, UTC),
            interrupts=tuple(await self.pending(head.session)),
            checkpoint_id=head.checkpoint,
            user_id=head.user,
        )

    async def _head(self, session_id: str) -> Head:
        head = await self.store.head(self._settings.ref(session_id))
        if head is None:
            raise CheckpointNotFound(session_id)
        return head

    async def messages(self, session_id: str) -> tuple[Message, ...]:
        """The conversation of a session."""
        return stored_result(await self._sessions.load(session_id)).messages

    async def tool_output(self, session_id: str, call_id: str) -> str:
        """The whole result of a tool call (the latest, if turns use one id), of which its model may have read a part.

        Raises:
            UsageError: the session has no result of such a call.
        """
        await self._head(session_id)
        found: ToolResult | None = None
        async for event, _ in self._elsewhere.events(session_id, 0):
            if isinstance(event, ToolResult) and event.call_id == call_id:
                # An agent inside a tool may use the ids of the one outside, who is meant first.
                found = event if found is None or found.muted or not event.muted else found
        if found is None:
            raise UsageError(f"Session '{session_id}' has no result of a tool call '{call_id}'.")
        return found.result if found.full is None else found.full

    async def sessions(
        self, *, user_id: str | None = None, status: Any = None, limit: int | None = None
    ) -> list[SessionStatus]:
        """The sessions of this app, the most lately written first."""
        _check_limit(limit)
        if status not in ("failed", "running"):
            heads = await self.store.sessions(app=self._settings.app_name, user=user_id, status=status, limit=limit)
            return [await self._described(head) for head in heads]
        # A run whose process died is stored as running, and has failed all the same.
        heads = await self.store.sessions(app=self._settings.app_name, user=user_id, status="running")
        if status == "failed":
            heads += await self.store.sessions(app=self._settings.app_name, user=user_id, status="failed", limit=limit)
            heads.sort(key=lambda head: head.updated, reverse=True)
        return [await self._described(head) for head in heads if _status(head) == status][:limit]

    # Stopping and removing

    async def cancel(self, session_id: str, mode: CancelMode = "now") -> bool:
        """Stop a session's run, in whatever process; a session that waits is cancelled, its questions stay open.

        Returns whether there was anything to stop.
        """
        check_mode(mode)
        return await self._elsewhere.stop(session_id, mode)

    async def delete(self, session_id: str) -> None:
        """Remove a session whole."""
        self._sessions.take(session_id)
        head = await self.store.head(self._settings.ref(session_id))
        if head is not None and head.owner is not None and is_dead(head.owner):
            # Nobody runs it any more: its lease is taken over, and is over at once.
            await self.store.claim(head.ref, process_id(), 0.0, after=head.checkpoint, replaces=head.owner)
        await self.store.delete(self._settings.ref(session_id))

    async def prune(
        self, session_id: str, *, keep: int | None = None, older_than: timedelta | float | None = None
    ) -> int:
        """Remove old checkpoints, except the last `keep` and those younger than `older_than`; returns how many went."""
        if keep is None and older_than is None:
            raise UsageError("prune needs keep=... or older_than=..., else it would remove nothing.")
        seconds = older_than.total_seconds() if isinstance(older_than, timedelta) else older_than
        before = None if seconds is None else self._settings.clock() - seconds
        return await self.store.prune(self._settings.ref(session_id), keep=keep, before=before)

    # Time travel

    async def history(
        self,
        session_id: str,
        *,
        limit: int | None = None,
        before: str | None = None,
        source: str | None = None,
        under: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> list[Checkpoint]:
        """The checkpoints of a session, newest first; `under` takes those of an address and below it."""
        _check_limit(limit)
        return await self._travel.history(session_id, limit, before, source, under, metadata)

    async def checkpoint(self, session_id: str, id: str | None = None) -> Checkpoint:
        """One checkpoint, by default the newest."""
        return await self._travel.checkpoint(session_id, id)

    async def state(self, session_id: str, *, checkpoint_id: str | None = None, at: str | None = None) -> Any:
        """The state at a checkpoint, by default the head; `at` is the address of a nested graph."""
        return await self._travel.state(session_id, checkpoint_id, at)

    async def tree(self, session_id: str) -> Tree:
        """The checkpoints as a tree of branches; printing it shows it."""
        return await self._travel.tree(session_id)

    async def diff(self, session_id: str, a: str, b: str) -> Diff:
        """What differs between the states at two checkpoints."""
        return await self._travel.diff(session_id, a, b)

    async def edit(
        self,
        session_id: str,
        values: Mapping[str, Any],
        *,
        checkpoint_id: str | None = None,
        as_node: str | None = None,
        at: str | None = None,
    ) -> Checkpoint:
        """Change the state by hand, through reducers, on a new branch; go on there with `run(None, checkpoint_id=...)`.

        With `as_node` it is as if that node had returned the values: what follows on it runs next.
        """
        return await self._travel.edit(session_id, values, checkpoint_id, as_node, at)

    async def fork(self, session_id: str, *, checkpoint_id: str | None = None, to: str | None = None) -> str:
        """Begin a new session as this one was at a checkpoint; returns its id.

        With its own id as `to`, it is a new branch of this session instead.
        """
        return await self._travel.fork(session_id, checkpoint_id, to)


def _status(head: Head) -> Status:
    return "failed" if head.status == "running" and not is_running(head) else head.status


def _check_limit(limit: int | None) -> None:
    if limit is not None and limit < 0:
        raise UsageError(f"limit={limit}: give 0 or more, or None for all.")
