"""Runner: runs a program in sessions, and answers every question about them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Generic, Literal, Unpack, get_args

from adjourn._engine.program import Program
from adjourn._engine.record import Tree
from adjourn._generics import Defaulted, Deps_contra, Out_co, State_co
from adjourn._habits import OF_RUNNERS, RUN_AGENT, Explains, explains_options
from adjourn._options import tells_options
from adjourn._values.codec import ClassChanged
from adjourn._values.frozen import shorten
from adjourn.errors import (
    CheckpointNotFound,
    PendingInterrupts,
    ProgramChanged,
    StateInvalid,
    UnfinishedRun,
    UsageError,
)
from adjourn.events import Interrupt, ToolResult
from adjourn.messages import Message
from adjourn.sessions import Answers, Checkpoint, Sessions
from adjourn.sessions._settings import check_name
from adjourn.sessions._sync import sync_twin
from adjourn.stores.kit import GetHead
from adjourn.stores.types import Loaded, SessionRef

from ._driving import stored_result
from ._editing import Edit, Edited, held_at, state_at
from ._following import CancelMode, RunFollower, check_mode
from ._live import LiveSession, LiveSessions
from ._log import Persistence
from ._moves import BeginTurn, Resume, Travel, advance, begin_input, recover, resume
from ._opening import Call, OnBusy, OnPending, RunHandle, SessionOpener
from ._queue import Submission, TurnQueue
from ._reader import pages
from ._settings import Options, RunnerSettings, stored_metadata
from .agent_options import AgentOptions, stored_agents, stored_options
from .run import Begin, Run, sync_run


class Runner(Sessions, Explains, Defaulted, Generic[Deps_contra, Out_co, State_co]):
    """Runs a compiled graph, a workflow or an agent in sessions of a store.

    A runner is a `Sessions` that can also run: everything that needs no program is defined there.
    """

    _instead = OF_RUNNERS

    @tells_options(Options)
    def __init__(self, agent: Program[Deps_contra, Out_co, State_co], **options: Unpack[Options[Deps_contra]]) -> None:
        """Make a runner of `agent`; every option can be left out, and `Options` explains each.

        Raises:
            UsageError: `agent` cannot be run, or an option cannot be used.
        """
        if not isinstance(agent, Program):  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
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
            self_approval=settings.permission.self_approval,
            audit_key=settings.audit_keys or None,
            clock=settings.clock,
            new_id=settings.new_id,
        )
        self._options: Options = options
        self._live = LiveSessions(settings, agent)
        self._opener = SessionOpener(self._live)
        self._follower = RunFollower(self._opener)
        self._queue = TurnQueue(self._live, self._opener, self._follower)
        self._live.take_next = self._queue.take_next

    def __repr__(self) -> str:
        return f"<Runner of {self.program!r}>"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Show in a notebook what this runner runs, if that draws itself."""
        drawn = getattr(self.program, "_repr_mimebundle_", None)
        return {"text/plain": repr(self)} if drawn is None else drawn()

    @property
    def program(self) -> Program[Deps_contra, Out_co, State_co]:
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

    @explains_options
    def run(
        self,
        input: Any = None,
        *,
        session_id: str | None = None,
        user_id: str | None = None,
        values: Mapping[str, Any] | None = None,
        state: Mapping[str, Any] | None = None,
        deps: Deps_contra | None = None,
        on_pending: OnPending = "error",
        on_busy: OnBusy = "error",
        checkpoint_id: str | None = None,
        again: bool = False,
        max_steps: int | None = None,
        model_options: Mapping[str, Any] | None = None,
        for_agents: Mapping[str, AgentOptions] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Run[Out_co, State_co]:
        """Run a turn with this input; or, with None and a `checkpoint_id`, go on from there.

        input: text, a `Message` or a list of them for agents; the state, or a part of it, for graphs.
        session_id: which session; None begins a new one.
        user_id: whose session and turn it is; that of another user is not found. Without it, the turn is nobody's.
        values: session values to set before the turn begins.
        state: fields of the state to set beside the input, where that is a message: for a `GraphAgent`.
        deps: what code of the run finds as `current().deps`; it is not stored, so give it again on a resume.
        on_pending: what becomes of an unfinished turn: "error" (the default), "abandon" it, or "finish" it first.
        on_busy: while a turn runs, or others wait for theirs: "error" (the default), "queue" to wait behind them,
            or "cancel" to remove those that wait and stop the one that runs, once its tools have ended.
        checkpoint_id: the checkpoint to go on from, on a new branch.
        again: whether approvals that a node asked before that checkpoint, and that have acted since, count once more;
            otherwise it is `ApprovalSpent`.
        max_steps: how many supersteps this run may take; by default what the graph was compiled with.
        model_options: options for every model call of the turn, under the provider's names.
        for_agents: model options and limits for single agents of the program, by name; kept with the turn.
        metadata: JSON values to list with every checkpoint of the turn; `history(metadata=...)` selects by them.
        """
        if not isinstance(self, Runner):  # pyright: ignore[reportUnnecessaryIsInstance]  # called on the class
            raise UsageError(f"Runner.run was called on the class, with {shorten(self)}. {RUN_AGENT}")
        if on_pending not in ("error", "abandon", "finish"):
            raise UsageError(f"on_pending={on_pending!r}: use 'error', 'abandon' or 'finish'.")
        _check_on_busy(on_busy, on_pending)
        call = Call(
            ref=self._ref_of(session_id, user_id),
            values=values,
            state=state,
            deps=deps,
            max_steps=max_steps,
            model_options=stored_options(model_options),
            for_agents=stored_agents(for_agents, self._live.program),
            metadata=stored_metadata(metadata),
            persistence=self._persistence(session_id),
            is_new=session_id is None,
            abandons=on_pending == "abandon",
        )
        begin = partial(self._opener.open, BeginTurn(self._opener, call, input, on_pending))
        if on_pending == "finish":
            begin = partial(self._finish_first, call, begin)
        if on_busy == "queue":
            begin = partial(self._queue.turn, call, input, begin)
        elif on_busy == "cancel":
            begin_anyway = partial(self._opener.open, BeginTurn(self._opener, call, input, "abandon"))
            begin = partial(self._queue.overtake, call, input, begin, begin_anyway)
        if checkpoint_id is not None:
            others = (input, state, metadata, None if on_busy == "error" else on_busy)
            if session_id is None or any(each is not None for each in others):
                raise UsageError(
                    "run(checkpoint_id=...) goes on from a checkpoint, in the turn that it belongs to: give it a "
                    "session_id, None as input, and neither state, metadata nor on_busy."
                )
            begin = partial(self._opener.open, Travel(self._opener, call, checkpoint_id, again=again))
        elif again:
            raise UsageError("run(again=True) is for going back: give it a checkpoint_id, too.")
        return self._run(call, begin)

    @explains_options
    async def submit(
        self,
        input: Any = None,
        *,
        session_id: str | None = None,
        id: str | None = None,
        user_id: str | None = None,
        values: Mapping[str, Any] | None = None,
        state: Mapping[str, Any] | None = None,
        on_pending: Literal["error", "abandon"] = "error",
        on_busy: OnBusy = "queue",
        max_steps: int | None = None,
        model_options: Mapping[str, Any] | None = None,
        for_agents: Mapping[str, AgentOptions] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Submission:
        """Store the input of a turn, and return at once: whoever runs the session begins it, or else a worker.

        The options are those of `run`; `deps` are those of whoever begins the turn.

        id: what this input is called; submitting it again under the same id adds nothing. By default a new one.
        on_pending: what becomes of a turn before it that failed or was cancelled: "error" (the default) waits until
            somebody finishes it, "abandon" gives it up.
        on_busy: while a turn runs, or others wait for theirs: "queue" (the default) to wait behind them, "error", or
            "cancel" to remove those that wait and stop the one that runs, for whose end this waits. A turn that failed
            or was cancelled is then given up, too.
        """
        if on_pending not in ("error", "abandon"):
            raise UsageError(
                f"submit(on_pending={on_pending!r}): use 'error' or 'abandon'. A turn in the queue begins when those "
                "before it have finished."
            )
        _check_on_busy(on_busy, on_pending)
        if on_busy == "cancel":
            self._check_alone("submit(on_busy='cancel')")
        call = Call(
            ref=self._ref_of(session_id, user_id),
            values=values,
            state=state,
            max_steps=max_steps,
            model_options=stored_options(model_options),
            for_agents=stored_agents(for_agents, self.program),
            metadata=stored_metadata(metadata),
            is_new=session_id is None,
            abandons=on_pending == "abandon",
        )
        return await self._queue.submit(call, input, id, on_busy)

    def _check_alone(self, what: str) -> None:
        """Refuse what takes its time if the store is in a transaction, which would lock the session all the while."""
        if self._live.settings.is_in_transaction:
            raise UsageError(
                f"{what}: this store is in a transaction of yours. Answer, submit or cancel there, and let a worker, "
                "or a runner on the store itself, go on once you have committed."
            )

    def _run(self, call: Call, begin: Begin) -> Run[Out_co, State_co]:
        if self._live.settings.is_in_transaction:
            self._check_alone("a session cannot be run here")
        return Run(call.ref, begin, self._follower)

    def _ref_of(self, session_id: str | None, user_id: str | None) -> SessionRef:
        """Return the name of a session; without an id, that of a new one."""
        return self._settings.ref(self._live.settings.new_session() if session_id is None else session_id, user_id)

    def _persistence(self, session_id: str | None) -> Persistence:
        """Return how a turn's session is kept: without a store and a name, nobody else can know about it."""
        is_nameless = session_id is None and self._live.settings.has_own_store
        return Persistence.UNSTORED if is_nameless else Persistence.STORED

    @explains_options
    def resume(
        self,
        session_id: str,
        answers: Answers = None,
        *,
        by: str | None = None,
        message: str | None = None,
        checkpoint_id: str | None = None,
        values: Mapping[str, Any] | None = None,
        state: Mapping[str, Any] | None = None,
        deps: Deps_contra | None = None,
        max_steps: int | None = None,
        for_agents: Mapping[str, AgentOptions] | None = None,
        id: str | None = None,
        user_id: str | None = None,
    ) -> Run[Out_co, State_co]:
        """Answer questions and go on.

        session_id: which session.
        answers: a mapping from questions' ids (or keys, where one question has it) to answers; a list of ids, which
            are answered without data; None for all open questions, without data.
        by: who answers; it is kept with the answer.
        message: what to say together with an answer about an agent's tool call; its model reads it after the results.
        checkpoint_id: the answer counts only if the session is still at this checkpoint.
        values: session values to set.
        state: fields that a graph's state does not have yet.
        deps: what code of the run finds as `current().deps`; a run that is under way keeps those it has.
        max_steps: how many supersteps this run may take.
        for_agents: model options and limits for single agents, in place of those that they have in this turn.
        id: what you call this answer. Under the same id it counts once, whichever process it is sent to again: that
            one is not refused, and follows what the first one led to. Another answer under it is a `Conflict`.
        user_id: whose session it is; that of another user is not found.

        A run that is under way takes the answers up. `values`, `state`, `max_steps` and `for_agents` cannot reach it:
        with any of them the call is refused with `SessionBusy` then, and nothing is answered.

        If an approved tool would get more by now than was shown, such as a new parameter with a default, it is
        `StaleCheckpoint`: nothing has run, and what is asked now shows everything.
        """
        call = Call(
            ref=self._settings.ref(session_id, user_id),
            values=values,
            state=state,
            deps=deps,
            max_steps=max_steps,
            for_agents=stored_agents(for_agents, self._live.program),
        )
        if by is not None:
            check_name("by", by)
        move = Resume(self._opener, call, answers, by=by, message=message, id=id, checkpoint_id=checkpoint_id)
        return self._run(call, partial(resume, self._opener, move))

    def recover(
        self,
        session_id: str,
        *,
        deps: Deps_contra | None = None,
        max_steps: int | None = None,
        for_agents: Mapping[str, AgentOptions] | None = None,
        user_id: str | None = None,
    ) -> Run[Out_co, State_co]:
        """Go on after a crash, failure or cancel, without answering.

        If the last turn is done, this begins the next one in the session's queue; if nothing waits there, it gives the
        stored result. `for_agents` takes the place of what single agents have in the turn that goes on: a turn that has
        reached a limit of its own goes on with a larger one.
        """
        call = Call(
            ref=self._settings.ref(session_id, user_id),
            deps=deps,
            max_steps=max_steps,
            for_agents=stored_agents(for_agents, self.program),
        )
        return self._run(call, partial(recover, self._opener, call))

    def advance(
        self,
        session_id: str,
        *,
        deps: Deps_contra | None = None,
        max_steps: int | None = None,
        input_id: str | None = None,
        user_id: str | None = None,
    ) -> Run[Out_co, State_co]:
        """Do what is due in a session, up to the end of one turn, and leave what comes next to another call.

        It begins the next turn of the queue, or goes on as `recover` does. This is what a worker, or a queue of your
        own, calls for each session that it is given; calling it once too often does no harm.

        With `input_id`, it only begins the turn of this input; if that is not next, or somebody else was faster, it is
        `Conflict` or `SessionBusy`.

        A turn that failed or was cancelled, and that nobody has answered since, is not due: that is `UnfinishedRun`.
        """
        ref = self._settings.ref(session_id, user_id)
        call = Call(ref=ref, deps=deps, max_steps=max_steps, takes_next=False)
        if input_id is not None:
            check_name("input_id", input_id)
            return self._run(call, partial(begin_input, self._opener, call, input_id))
        return self._run(call, partial(advance, self._opener, call))

    def attach(
        self, session_id: str, *, after: int = 0, input_id: str | None = None, user_id: str | None = None
    ) -> Run[Out_co, State_co]:
        """Follow a run, whoever drives it, from the event after number `after`.

        With the `input_id` of a submission, that is the run of its turn, however long it has to wait for that; `after`
        is then any event before it.
        """
        check_name("session_id", session_id)
        ref = self._settings.ref(session_id, user_id)
        begin: Begin = partial(self._follower.find, ref)
        if input_id is not None:
            check_name("input_id", input_id)
            begin = partial(self._queue.begun, ref, input_id)
        run: Run[Out_co, State_co] = Run(ref, begin, self._follower)
        run.seen, run.is_attached = after, True
        return run

    async def _finish_first(self, call: Call, begin: Begin, handle: RunHandle) -> LiveSession | None:
        """Finish what is unfinished, and only then begin."""
        head = await self.store.read(GetHead(call.ref))
        if head is None or head.status == "done" or not head.checkpoint:
            return await begin(handle)
        result = await self.recover(call.ref.id, deps=call.deps, user_id=call.ref.user)
        if result.interrupts:
            keys = {asked.id: asked.key for asked in result.interrupts if asked.key is not None}
            raise PendingInterrupts(call.ref.id, [asked.id for asked in result.interrupts], keys)
        if result.status != "done":
            raise UnfinishedRun(call.ref.id, result.status)
        return await begin(handle)

    # Looking

    async def messages(self, session_id: str, *, user_id: str | None = None) -> tuple[Message, ...]:
        """Return the conversation of a session; it is empty while its first input waits.

        Raises:
            CheckpointNotFound: there is no such session.
        """
        try:
            live = await self._live.load(self._settings.ref(session_id, user_id))
        except (CheckpointNotFound, ProgramChanged, StateInvalid, ClassChanged):
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
        async for page in pages(self.store, ref, 0):
            for event, _ in page:
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
            return await state_at(self._live, self._settings.ref(session_id, user_id), checkpoint_id, at)
        except (ProgramChanged, StateInvalid, ClassChanged):
            if at is not None:
                raise
            return await super().state(session_id, checkpoint_id=checkpoint_id, user_id=user_id)

    async def _held_at(self, loaded: Loaded, tree: Tree) -> tuple[Any, tuple[Interrupt, ...]]:
        try:
            return await held_at(self._live, loaded, tree.copy())
        except (ProgramChanged, StateInvalid, ClassChanged):
            # A run cannot go on from there, but it can still be looked at, as a plain mapping.
            return await super()._held_at(loaded, tree)

    async def edit(
        self,
        session_id: str,
        values: Mapping[str, Any],
        *,
        checkpoint_id: str | None = None,
        as_node: str | None = None,
        at: str | None = None,
        again: bool = False,
        by: str | None = None,
        user_id: str | None = None,
    ) -> Checkpoint:
        """Change the state by hand, through reducers, on a new branch; `recover` goes on there.

        With `as_node` it is as if that node had returned the values: what follows it runs next, or, if other nodes run
        at the same time as that node, when these have finished.

        An edit of the head of an unfinished turn leaves approvals as they are, unless it changes a field that one of
        them may have shown: then it is made where that one was asked, so that it is asked again. With `again` they
        count once more, wherever the edit is made; the audit says so.

        `by` is who edits: with `self_approval=False`, they cannot approve what is asked after it in this turn.

        Raises:
            ApprovalSpent: an approval that a node asked before the checkpoint has acted since.
        """
        if by is not None:
            check_name("by", by)
        ref = self._settings.ref(session_id, user_id)
        edited = Edited(values=values, checkpoint_id=checkpoint_id, as_node=as_node, at=at, again=again, by=by)
        live = await self._opener.open(Edit(self._opener, ref, edited), None)
        return await self.checkpoint(session_id, live and live.log.tail.head, user_id=user_id)

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
            ProgramChanged, StateInvalid, CheckpointCorrupt: the program could not go on from there.
        """
        ref = self._settings.ref(session_id, user_id)
        await self._live.load(ref, checkpoint_id)
        if to == session_id:
            self._live.pop(ref)
        return await super().fork(session_id, checkpoint_id=checkpoint_id, to=to, again=again, user_id=user_id)

    # From sync code

    @sync_run(run)
    def run_sync(self) -> None:
        """Do what `run` does, from sync code."""

    @sync_run(resume)
    def resume_sync(self) -> None:
        """Do what `resume` does, from sync code."""

    @sync_run(recover)
    def recover_sync(self) -> None:
        """Do what `recover` does, from sync code."""

    @sync_run(advance)
    def advance_sync(self) -> None:
        """Do what `advance` does, from sync code."""

    @sync_twin(submit)
    def submit_sync(self) -> None:
        """Do what `submit` does, from sync code."""

    @sync_twin(cancel)
    def cancel_sync(self) -> None:
        """Do what `cancel` does, from sync code."""

    @sync_twin(state)
    def state_sync(self) -> None:
        """Do what `state` does, from sync code."""

    @sync_twin(edit)
    def edit_sync(self) -> None:
        """Do what `edit` does, from sync code."""

    @sync_twin(tool_output)
    def tool_output_sync(self) -> None:
        """Do what `tool_output` does, from sync code."""


_ON_BUSY = get_args(OnBusy)


def _check_on_busy(on_busy: OnBusy, on_pending: str) -> None:
    if on_busy not in _ON_BUSY:
        raise UsageError(f"on_busy={on_busy!r}: use one of {', '.join(map(repr, _ON_BUSY))}.")
    if on_busy == "queue" and on_pending == "finish":
        raise UsageError(
            "on_busy='queue' with on_pending='finish': what waits in a queue begins when the turns before it have "
            "finished. Leave on_pending out, or use 'abandon'."
        )
