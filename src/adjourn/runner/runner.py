"""Runner: runs a program in sessions, and answers every question about them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Unpack

from adjourn._engine.program import Program
from adjourn.errors import PendingInterrupts, ProgramChanged, UnfinishedRun, UsageError
from adjourn.events import Interrupt, ToolResult
from adjourn.messages import Message
from adjourn.sessions import Answers, Checkpoint, Sessions
from adjourn.sessions._settings import check_name
from adjourn.sessions._sync import sync_twin
from adjourn.stores.protocol import SessionRef

from ._driving import stored_result
from ._editing import Editor
from ._following import CancelMode, RunFollower, check_mode
from ._journal import Persistence
from ._live import LiveSession, LiveSessions
from ._opening import Call, OnPending, Reader, SessionOpener
from ._settings import Options, RunnerSettings, stored_options
from .result import RunResult
from .run import Begin, Run, wait_for_run


class Runner(Sessions):
    """Runs a compiled graph, a workflow or an agent in sessions of a store.

    A runner is a `Sessions` that can also run: everything that needs no program is defined there.
    """

    def __init__(self, agent: Any, **options: Unpack[Options]) -> None:
        """Make a runner of `agent`; every option can be left out.

        store: where sessions are kept: a store or its URL, such as "sqlite:///file.db"; None keeps them in this runner.
        deps: what code of a run finds as `current().deps` when a call gives none: a value, or a function of the status.
        require_token: whether an approval must be answered by its token, so that it counts only for what was shown.
        streaming: whether models are asked for their answers piece by piece; True by default.
        durability: when a step is stored: "step" before it is reported, "async" while the next runs, "pause" at pauses.
        app_name: whose sessions these are, as the same id in another app is another session; "adjourn" by default.
        require_by: True refuses an approval that does not say who gave it, as `by`.
        may_answer: a function of a question, `by` and the turn's user, which returns True or why the answer is refused.
        middleware: what wraps the calls of models and tools in every agent that this runner runs.
        interrupts: False makes every question an error, for programs that nobody answers.
        after_transfer: who takes the next turn after a transfer: "stay" (whoever has it; the default) or "root".
        max_concurrency: how many nodes of one run may work at once; None for no limit.
        max_threads: how many sync functions of one session may run at once; 32 by default, out of 64 for the process.
        max_session_bytes: what a session may hold; a run that would store more fails. 256 MiB by default, and at most.
        lease_ttl: seconds after which a session whose process does not respond may be taken over; 30 by default.
        store_timeout: seconds that a run waits for a store that does not answer, before it fails; 30 by default.
        buffer_size: how many events wait in memory for a slow reader; the rest are read from the store; 256 by default.
        clock: a function that returns the time in seconds since 1970, such as a fake for tests; `time.time` by default.
        new_id: a function that returns ids for sessions and branches; random ones by default.

        Raises:
            UsageError: `agent` cannot be run, or an option cannot be used.
        """
        if not isinstance(agent, Program):
            raise UsageError(
                f"A Runner cannot run {agent!r}. "
                "Give it an agent, a compiled graph (did you call .compile()?) or a @workflow function."
            )
        settings = RunnerSettings(options)
        super().__init__(
            settings.store,
            app_name=settings.app,
            require_token=settings.require_token,
            require_by=settings.permission.require_by,
            may_answer=settings.permission.may_answer,
            clock=settings.clock,
            new_id=settings.new_id,
        )
        self._options = options
        self._live = LiveSessions(settings, agent)
        self._opener = SessionOpener(self._live)
        self._editor = Editor(self._live)
        self._follower = RunFollower(self._live, self._editor)

    @property
    def program(self) -> Program:
        """What this runner runs."""
        return self._live.program

    @property
    def app_name(self) -> str:
        """The app whose sessions these are."""
        return self._live.settings.app

    @property
    def options(self) -> Options:
        """The options that this runner was made with: `Runner(runner.program, **runner.options)` is equivalent."""
        return self._options.copy()

    @property
    def has_store(self) -> bool:
        """Whether a store was given, so that sessions outlive this runner."""
        return not self._live.settings.has_own_store

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
        """Run a turn with this input; or, with None and a `checkpoint_id`, go on from there.

        input: text, a `Message` or a list of them for agents; the state, or a part of it, for graphs.
        session_id: which session; None begins a new one.
        user_id: whose session and turn it is; that of another user is not found. Without it, the turn is nobody's.
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
            user_id=self._settings.user(user_id),
            values=values,
            deps=deps,
            max_steps=max_steps,
            model_options=stored_options(model_options),
            persistence=self._persistence(session_id),
            is_new=session_id is None,
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
        return self._run(call, begin)

    def _run(self, call: Call, begin: Begin) -> Run:
        return Run(self._settings.ref(call.session_id, call.user_id), begin, self._follower)

    def _persistence(self, session_id: str | None) -> Persistence:
        """Return how a turn's session is kept: without a store and a name, nobody else can know about it."""
        is_nameless = session_id is None and self._live.settings.has_own_store
        return Persistence.UNSTORED if is_nameless else Persistence.STORED

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
        user_id: str | None = None,
    ) -> Run:
        """Answer questions and go on.

        session_id: which session.
        answers: a mapping from questions' ids (or keys, where one question has it) to answers; a list of ids, which
            are answered without data; None for all open questions, without data.
        by: who answers; it is kept with the answer.
        checkpoint_id: the answer counts only if the session is still at this checkpoint.
        values: session values to set.
        state: fields that a graph's state does not have yet.
        deps: what code of the run finds as `current().deps`.
        max_steps: how many supersteps this run may take.
        user_id: whose session it is; that of another user is not found.
        """
        user_id = self._settings.user(user_id)
        call = Call(session_id=session_id, user_id=user_id, values=values, deps=deps, max_steps=max_steps)
        if by is not None:
            check_name("by", by)
        return self._run(call, partial(self._opener.resume, call, answers, by, checkpoint_id, state))

    def recover(
        self, session_id: str, *, deps: Any = None, max_steps: int | None = None, user_id: str | None = None
    ) -> Run:
        """Go on after a crash, failure or cancel, without answering. A finished session gives its stored result."""
        call = Call(session_id=session_id, user_id=self._settings.user(user_id), deps=deps, max_steps=max_steps)
        return self._run(call, partial(self._opener.recover, call))

    def attach(self, session_id: str, *, after: int = 0, user_id: str | None = None) -> Run:
        """Follow a run, whoever drives it, from the event after number `after`."""
        check_name("session_id", session_id)
        ref = self._settings.ref(session_id, user_id)
        run = Run(ref, partial(self._follower.find, ref), self._follower)
        run.seen, run.is_attached = after, True
        return run

    async def _finish_first(self, call: Call, begin: Begin, reader: Reader) -> LiveSession | None:
        """Finish what is unfinished, and only then begin."""
        head = await self.store.head(self._settings.ref(call.session_id, call.user_id))
        if head is None or head.status == "done":
            return await begin(reader)
        result = await self.recover(call.session_id, deps=call.deps, user_id=call.user_id)
        if result.interrupts:
            keys = {asked.id: asked.key for asked in result.interrupts if asked.key is not None}
            raise PendingInterrupts(call.session_id, [asked.id for asked in result.interrupts], keys)
        if result.status != "done":
            raise UnfinishedRun(call.session_id, result.status)
        return await begin(reader)

    # Looking

    async def messages(self, session_id: str, *, user_id: str | None = None) -> tuple[Message, ...]:
        """Return the conversation of a session."""
        try:
            live = await self._live.load(self._settings.ref(session_id, user_id))
        except ProgramChanged:
            return await super().messages(session_id, user_id=user_id)
        return stored_result(live).messages

    async def tool_output(self, session_id: str, call_id: str, *, user_id: str | None = None) -> str:
        """Return the whole result of a tool call, even if its model read only a part.

        If several turns use the same id, it is the most recent.

        Raises:
            UsageError: the session has no result of such a call.
        """
        ref = (await self._head(session_id, user_id)).ref
        found: ToolResult | None = None
        async for event, _ in self._follower.events(ref, 0):
            if isinstance(event, ToolResult) and event.call_id == call_id:
                # An agent inside a tool may use the same ids as the outer one, which takes precedence.
                found = event if found is None or found.muted or not event.muted else found
        if found is None:
            raise UsageError(f"Session '{session_id}' has no result of a tool call '{call_id}'.")
        return found.result if found.full is None else found.full

    # Stopping and removing

    async def cancel(self, session_id: str, mode: CancelMode = "now", *, user_id: str | None = None) -> bool:
        """Stop a session's run, in any process; a waiting session is cancelled, and its questions stay open.

        Returns whether there was anything to stop.
        """
        check_mode(mode)
        return await self._follower.stop(self._settings.ref(session_id, user_id), mode)

    async def delete(self, session_id: str, *, user_id: str | None = None) -> None:
        """Remove a whole session."""
        self._live.pop(self._settings.ref(session_id, user_id))
        await super().delete(session_id, user_id=user_id)

    # Time travel

    async def state(
        self,
        session_id: str,
        *,
        checkpoint_id: str | None = None,
        at: str | None = None,
        user_id: str | None = None,
    ) -> Any:
        """Return the state at a checkpoint, by default the head; `at` is the address of a nested graph."""
        try:
            return await self._editor.state(self._settings.ref(session_id, user_id), checkpoint_id, at)
        except ProgramChanged:
            if at is not None:
                raise
            return await super().state(session_id, checkpoint_id=checkpoint_id, user_id=user_id)

    async def _held_at(self, ref: SessionRef, checkpoint_id: str) -> tuple[Any, tuple[Interrupt, ...]]:
        try:
            return await self._editor.held_at(ref, checkpoint_id)
        except ProgramChanged:
            # A run cannot go on from there, but it can still be looked at.
            return await super()._held_at(ref, checkpoint_id)

    async def edit(
        self,
        session_id: str,
        values: Mapping[str, Any],
        *,
        checkpoint_id: str | None = None,
        as_node: str | None = None,
        at: str | None = None,
        user_id: str | None = None,
    ) -> Checkpoint:
        """Change the state by hand, through reducers, on a new branch; go on there with `run(None, checkpoint_id=...)`.

        With `as_node` it is as if that node had returned the values: what follows it runs next.
        """
        ref = self._settings.ref(session_id, user_id)
        point = await self._editor.edit(ref, values, checkpoint_id, as_node, at)
        return await self.checkpoint(session_id, point, user_id=user_id)

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

        Raises:
            ProgramChanged, CheckpointCorrupt: the program could not go on from there.
        """
        ref = self._settings.ref(session_id, user_id)
        await self._live.load(ref, checkpoint_id)
        if to == session_id:
            self._live.pop(ref)
        return await super().fork(session_id, checkpoint_id=checkpoint_id, to=to, user_id=user_id)

    # From sync code

    def run_sync(self, input: Any = None, **options: Any) -> RunResult:
        """Do what `run` does, from sync code."""
        return wait_for_run(self.run(input, **options))

    def resume_sync(self, session_id: str, answers: Answers = None, **options: Any) -> RunResult:
        """Do what `resume` does, from sync code."""
        return wait_for_run(self.resume(session_id, answers, **options))

    def recover_sync(self, session_id: str, **options: Any) -> RunResult:
        """Do what `recover` does, from sync code."""
        return wait_for_run(self.recover(session_id, **options))

    cancel_sync = sync_twin(cancel)
    state_sync = sync_twin(state)
    edit_sync = sync_twin(edit)
    tool_output_sync = sync_twin(tool_output)
