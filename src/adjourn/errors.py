"""Every error that Adjourn raises.

AdjournError
├── UsageError            the program is wrong: fix the code
│   ├── GraphError            every mistake in a graph, found by compile()
│   ├── NotInRun              a call that needs a run was made outside one
│   ├── SpecInvalid           every mistake in a folder of YAML files
│   ├── AmbiguousInterrupt    several questions at once in one place, without keys
│   └── InterruptsDisabled    a question where interrupts are turned off
├── SessionError          the session is not in a state for this call
│   ├── CheckpointNotFound, SessionBusy, PendingInterrupts, UnfinishedRun
│   ├── AlreadyResumed, UnknownInterrupt, InvalidAnswer, InterruptExpired
│   └── StaleCheckpoint, ApprovalSpent, AnswerRefused, InputRefused, InputWithdrawn, QueueFull
├── RunError              the run failed; the session can be recovered
│   ├── NodeNotFound, WriteConflict, StateInvalid, MaxStepsExceeded, MaxIterationsExceeded
│   ├── LimitExceeded, TooManyCalls, ThreadsUsedUp, NodeTimeout, RunTimeout, RetryExhausted
│   ├── ReplayMismatch, ProgramChanged, CrashLoop
│   └── GraphInterrupted, ModelError (ContextTooLong), ToolError (InvalidArguments, ToolRefused)
└── StoreError            what is stored, or where
    └── Conflict, StoreUnavailable, CheckpointCorrupt, CheckpointTooNew, MissingKey, NotStorable

Messages have three parts: what happened, with which value, and what to do. Facts are attributes.
`Pause` is not an error: it is the signal that unwinds user code to its frame, and should not be caught.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from ._hiding import known
from ._owner import owner_name
from ._temporary import is_temporary
from ._text import undotted, with_article

__all__ = [
    "AdjournError",
    "AlreadyResumed",
    "AmbiguousInterrupt",
    "AnswerRefused",
    "ApprovalSpent",
    "CheckpointCorrupt",
    "CheckpointNotFound",
    "CheckpointTooNew",
    "Conflict",
    "ContextTooLong",
    "CrashLoop",
    "GraphError",
    "GraphInterrupted",
    "InputRefused",
    "InputWithdrawn",
    "InterruptExpired",
    "InterruptsDisabled",
    "InvalidAnswer",
    "InvalidArguments",
    "LimitExceeded",
    "MaxIterationsExceeded",
    "MaxStepsExceeded",
    "MissingKey",
    "ModelError",
    "NodeNotFound",
    "NodeTimeout",
    "NotInRun",
    "NotStorable",
    "Pause",
    "PendingInterrupts",
    "ProgramChanged",
    "QueueFull",
    "ReplayMismatch",
    "RetryExhausted",
    "RunError",
    "RunTimeout",
    "SessionBusy",
    "SessionError",
    "SpecInvalid",
    "StaleCheckpoint",
    "StateInvalid",
    "StoreError",
    "StoreUnavailable",
    "ThreadsUsedUp",
    "TooManyCalls",
    "ToolError",
    "ToolRefused",
    "UnfinishedRun",
    "UnknownInterrupt",
    "UsageError",
    "WriteConflict",
]

_NO_KEYS: Mapping[str, str] = {}


def _listed(ids: Sequence[str], keys: Mapping[str, str]) -> str:
    """List questions by id, with the key where there is one: either can be used to answer."""
    return ", ".join(f"{name} (key '{keys[name]}')" if name in keys else name for name in ids)


class Pause(BaseException):
    """Unwinds user code after a question; the frame pauses even if the code catches it."""


class AdjournError(Exception):
    """The root of every error of Adjourn; `retryable` says whether a retry policy may try again."""

    retryable = False

    def __reduce__(self) -> tuple[Any, ...]:
        # Python would call the constructor again with the message as its only argument. An error is its message and its
        # attributes, so a copy is made from those, and constructors can take any arguments.
        return _remake, (type(self), self.args), self.__dict__


def _remake(kind: type[AdjournError], args: tuple[Any, ...]) -> AdjournError:
    return kind.__new__(kind, *args)


class UsageError(AdjournError):
    """The program uses Adjourn in a way that cannot work."""


class GraphError(UsageError):
    """A graph cannot be compiled; `problems` lists every mistake found."""

    def __init__(self, name: str, problems: Sequence[str]) -> None:
        self.graph = name
        self.problems: tuple[str, ...] = tuple(problems)
        listing = "".join(f"\n  - {problem}" for problem in self.problems)
        super().__init__(f"Graph '{name}' cannot be compiled:{listing}")


class SpecInvalid(UsageError):
    """YAML files of agents have mistakes; `mistakes` lists every one, with its file, line and column."""

    def __init__(self, mistakes: Sequence[Any]) -> None:
        self.mistakes: tuple[Any, ...] = tuple(mistakes)
        super().__init__("The files of agents have mistakes:" + "".join(f"\n  {each}" for each in self.mistakes))


class NotInRun(UsageError):
    """A function that belongs to a run was called outside one."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"`{what}` was called outside a run. Call it from a node, tool, agent or workflow run by a Runner."
        )


class AmbiguousInterrupt(UsageError):
    """One place asked several questions at once without keys, or with the same one."""

    def __init__(self, address: str) -> None:
        self.address = address
        super().__init__(
            f"'{address}' asked a second question while its first is open, and they cannot be told apart. "
            "Give each of them its own key: interrupt(..., key='manager')."
        )


class InterruptsDisabled(UsageError):
    """Something asked a question, but this runner was created with `interrupts=False`."""

    def __init__(self, address: str) -> None:
        self.address = address
        super().__init__(
            f"'{address}' asked a question, but interrupts are turned off here. Use Runner(..., interrupts=True)."
        )


class SessionError(AdjournError):
    """The session is not in a state in which this call makes sense; nothing was changed."""

    def __init__(self, session_id: str, message: str) -> None:
        self.session_id = session_id
        super().__init__(message)


class CheckpointNotFound(SessionError):
    """There is no such session, or no such checkpoint in it."""

    def __init__(self, session_id: str, checkpoint_id: str | None = None) -> None:
        self.checkpoint_id = checkpoint_id
        what = f"no checkpoint '{checkpoint_id}'" if checkpoint_id else "no checkpoint"
        remedy = "start it with `run`, or check the session id and the store"
        if is_temporary(session_id):
            remedy = (
                "it was begun without a store and without a session_id, so it was forgotten when it was done. To keep "
                "a conversation, choose its id, run(..., session_id=...), or give the runner a store, Runner(store=...)"
            )
        elif checkpoint_id:
            remedy = "`history` lists them"
        super().__init__(session_id, f"Session '{session_id}' has {what}: {remedy}.")


class SessionBusy(SessionError):
    """Another process is running this session: `owner` for people, `owner_id` in the store.

    `refused` names arguments of a resume that cannot reach that run; nothing was answered then. If nobody runs it,
    `inputs` is how many wait in its queue.
    """

    def __init__(
        self,
        session_id: str,
        owner_id: str = "",
        expires: float = 0.0,
        refused: Sequence[str] = (),
        *,
        inputs: int = 0,
    ) -> None:
        self.owner: str = owner_name(owner_id) if owner_id or not inputs else ""
        self.owner_id = owner_id
        self.expires = expires
        self.refused: tuple[str, ...] = tuple(refused)
        self.inputs = inputs
        if not self.owner:
            waits = "1 input that waits for its turn" if inputs == 1 else f"{inputs} inputs that wait for their turn"
            super().__init__(
                session_id,
                f"Session '{session_id}' has {waits}. Wait behind with on_busy='queue', or remove what waits with "
                "on_busy='cancel' or `withdraw`.",
            )
            return
        remedy = "Follow it with `attach`, or stop it with `cancel`"
        if refused:
            remedy = (
                f"{' and '.join(f'{name}=' for name in refused)} cannot reach that run, so the answers were not given. "
                "Give them without, or wait until it pauses"
            )
        super().__init__(session_id, f"Session '{session_id}' is being run by {self.owner}. {remedy}.")


class PendingInterrupts(SessionError):
    """The session is waiting for answers and does not accept new input."""

    def __init__(self, session_id: str, interrupts: Sequence[str], keys: Mapping[str, str] = _NO_KEYS) -> None:
        self.interrupts: tuple[str, ...] = tuple(interrupts)
        super().__init__(
            session_id,
            f"Session '{session_id}' waits for answers to: {_listed(self.interrupts, keys)}. "
            "Answer with `resume`, or give up on them with on_pending='abandon'.",
        )


class UnfinishedRun(SessionError):
    """The last turn failed, crashed or was cancelled, and can still be finished; `inputs` wait behind it."""

    def __init__(self, session_id: str, status: str, *, inputs: int = 0) -> None:
        self.status = status
        self.inputs = inputs
        what, remedy = "", "choose on_pending='abandon' or 'finish'"
        if inputs:
            waits = "1 input waits" if inputs == 1 else f"{inputs} inputs wait"
            what, remedy = f", and {waits} behind it", "give up both with on_busy='cancel'"
        super().__init__(
            session_id,
            f"The last turn of session '{session_id}' has not ended ({status}){what}. Finish it with `recover`, or "
            f"{remedy}.",
        )


class InputRefused(SessionError):
    """The first input in a session's queue cannot begin its turn here; it stays where it is."""

    def __init__(self, session_id: str, input_id: str, detail: str) -> None:
        self.input_id = input_id
        self.detail = detail
        super().__init__(
            session_id,
            f"Session '{session_id}' cannot begin a turn with the input '{input_id}' that is next in its queue: "
            f"{undotted(detail)}. Run the program that it was submitted to, or remove it with "
            f"`withdraw('{session_id}', '{input_id}')`.",
        )


class InputWithdrawn(SessionError):
    """The input was removed from the session's queue before its turn began."""

    def __init__(self, session_id: str, input_id: str) -> None:
        self.input_id = input_id
        super().__init__(
            session_id,
            f"The input '{input_id}' of session '{session_id}' was withdrawn before its turn began. Submit it again if "
            "it is still wanted.",
        )


class QueueFull(SessionError):
    """The queue of a session has no room for one more input: `inputs` wait in it, with `size` bytes in all."""

    def __init__(self, session_id: str, inputs: int, size: int, more: int) -> None:
        self.inputs = inputs
        self.size = size
        self.more = more
        super().__init__(
            session_id,
            f"Session '{session_id}' has {inputs:,} inputs with {size:,} bytes in its queue, and no room for one more "
            f"of {more:,} bytes. Wait until turns have begun with some of them, or remove some with `withdraw`.",
        )


class AlreadyResumed(SessionError):
    """The question was answered before; `live` says whether the session is running now."""

    def __init__(
        self,
        session_id: str,
        interrupt_id: str | None = None,
        *,
        live: bool = False,
        by: str | None = None,
        at: float | None = None,
    ) -> None:
        self.interrupt_id = interrupt_id
        self.live = live
        self.by = by
        self.at = at
        what = f"Question '{interrupt_id}' of session" if interrupt_id else "Session"
        state = "it is being run now: follow it with `attach`" if live else "`recover` gives its result, or finishes it"
        super().__init__(session_id, f"{what} '{session_id}' was resumed already; {state}.")


class UnknownInterrupt(SessionError):
    """This question was never asked on this branch; `open` lists the open ones."""

    def __init__(
        self, session_id: str, interrupt_id: str, open: Sequence[str], keys: Mapping[str, str] = _NO_KEYS
    ) -> None:
        self.interrupt_id = interrupt_id
        self.open: tuple[str, ...] = tuple(open)
        listed = _listed(self.open, keys) or "none"
        below = [each for each in self.open if each.startswith(f"{interrupt_id};")]
        what = "That is a place above open questions, which has none itself: answer those below it. " if below else ""
        super().__init__(
            session_id,
            f"Session '{session_id}' has no open question '{interrupt_id}'. {what}Open: {listed}. "
            f"Use `pending('{session_id}')` to list them.",
        )


class InvalidAnswer(SessionError):
    """An answer does not fit the question's schema; every question stays open."""

    def __init__(self, session_id: str, interrupt_id: str, problems: Sequence[str]) -> None:
        self.interrupt_id = interrupt_id
        self.problems: tuple[str, ...] = tuple(problems)
        listed = undotted("; ".join(self.problems))
        super().__init__(
            session_id,
            f"The answer to '{interrupt_id}' of session '{session_id}' does not fit: {listed}. "
            "The question's `schema` says what does.",
        )


class AnswerRefused(SessionError):
    """Whoever answers may not, by the rule of this program; every question stays open."""

    def __init__(self, session_id: str, interrupt_id: str, by: str | None, reason: str | None = None) -> None:
        self.interrupt_id = interrupt_id
        self.by = by
        self.reason = reason
        who = "An answer by nobody" if by is None else f"An answer by '{by}'"
        why = "may_answer says no" if reason is None else undotted(reason)
        super().__init__(
            session_id,
            f"{who} to '{interrupt_id}' of session '{session_id}' was refused: {why}. "
            "The question stays open; somebody who may must answer it.",
        )


class InterruptExpired(SessionError):
    """The question expired before it was answered; `in_code` says that it is raised where the code has asked."""

    def __init__(self, session_id: str, interrupt_id: str, *, in_code: bool = False) -> None:
        self.interrupt_id = interrupt_id
        self.in_code = in_code
        remedy = "`recover` continues the run as the question's on_expire says"
        if in_code:
            remedy = (
                "Catch InterruptExpired where the code asks, or ask with on_expire=AnswerWith(...); "
                "then `recover` continues the run"
            )
        super().__init__(
            session_id,
            f"Question '{interrupt_id}' of session '{session_id}' expired before it was answered. {remedy}.",
        )


class StaleCheckpoint(SessionError):
    """The session has moved past the checkpoint, or the question, that the caller saw; `open` are its questions now."""

    def __init__(
        self, session_id: str, checkpoint_id: str, head: str, *, token: str | None = None, open: Sequence[str] = ()
    ) -> None:
        self.checkpoint_id = checkpoint_id
        self.head = head
        self.token = token
        """How the caller named the question: by its token, id or key."""
        self.open: tuple[str, ...] = tuple(open)
        if token is None:
            super().__init__(
                session_id,
                f"Session '{session_id}' has moved from checkpoint '{checkpoint_id}' to '{head}'. Look again, then "
                "answer; to go back on purpose, use run(None, checkpoint_id=...) or fork.",
            )
        else:
            now = f"It asks now: {', '.join(self.open)}." if self.open else "It asks nothing now."
            super().__init__(
                session_id,
                f"Session '{session_id}' does not (or no longer) ask the question '{token}'. {now} "
                "Look again, then answer.",
            )


class ApprovalSpent(SessionError):
    """What begins at this checkpoint would act a second time on approvals that were given for what came before it.

    `approvals` are their questions. `asked_at` is the last checkpoint before they were answered: what begins there asks
    them again, and `pending` is what runs next there. It is None if the session has no such checkpoint.
    """

    def __init__(
        self,
        session_id: str,
        checkpoint_id: str,
        approvals: Sequence[str],
        asked_at: str | None = None,
        pending: Sequence[str] = (),
        *,
        edited: Sequence[str] = (),
    ) -> None:
        self.checkpoint_id = checkpoint_id
        self.approvals: tuple[str, ...] = tuple(approvals)
        self.asked_at = asked_at
        self.pending: tuple[str, ...] = tuple(pending)
        what = f"changes {', '.join(edited)}, which were shown with" if edited else "would act again on"
        where = "It is asked again at no checkpoint of this session"
        if asked_at is not None:
            where = f"Begin at checkpoint '{asked_at}', where it is asked again"
            where += f" (next: {', '.join(self.pending)})" if pending else ""
        super().__init__(
            session_id,
            f"What begins at checkpoint '{checkpoint_id}' of session '{session_id}' {what} an approval that counts "
            f"once: {', '.join(self.approvals)}. {where}; again=True lets it count once more.",
        )


class RunError(AdjournError):
    """A run failed; its session stays as it was stored and can be recovered."""


class NodeNotFound(RunError):
    """A command or condition named a node that the graph does not have."""

    def __init__(
        self, name: object, *, by: str, known: Sequence[str], keys: Sequence[object] = (), ends: Sequence[str] = ()
    ) -> None:
        self.name = name
        self.by = by
        mapping = f" The mapping of its condition has the keys: {', '.join(map(repr, keys))}." if keys else ""
        named = f" Its ends are: {', '.join(map(repr, ends))}." if ends else ""
        super().__init__(
            f"'{by}' leads to the unknown node {name!r}.{mapping}{named} The graph has: {', '.join(known)}."
        )


class WriteConflict(RunError):
    """Two tasks of one superstep wrote a field that holds one value."""

    def __init__(self, field: str, first: str, second: str, remedy: str = "") -> None:
        self.field = field
        self.nodes: tuple[str, str] = (first, second)
        super().__init__(
            f"Nodes '{first}' and '{second}' both wrote '{field}' in one superstep. "
            + (
                remedy
                or f"Give '{field}' a reducer, such as Annotated[..., last] or append, or let one of them write it."
            )
        )


class StateInvalid(RunError):
    """A value does not belong in the state; `field` is empty if it is not about a single one.

    `node` is the node that returned it, if one did.
    """

    def __init__(self, field: str, problem: str, *, node: str | None = None) -> None:
        self.field = field
        self.node = node
        super().__init__(f"State field '{field}': {problem}" if field else f"State: {problem}")


class MaxStepsExceeded(RunError):
    """A graph took more supersteps in one turn than allowed; the last one is saved."""

    def __init__(self, graph: str, limit: int) -> None:
        self.graph = graph
        self.limit = limit
        super().__init__(
            f"Graph '{graph}' made {limit} supersteps without ending. Look for a loop without an exit, "
            "or continue with a higher limit: recover or resume with max_steps=..."
        )


class MaxIterationsExceeded(RunError):
    """An agent called its model more often than allowed."""

    def __init__(self, agent: str, limit: int) -> None:
        self.agent = agent
        self.limit = limit
        super().__init__(
            f"Agent '{agent}' has called its model {limit} times in this turn and is not done. "
            "Recover it with a larger max_iterations, if it is making progress."
        )


class LimitExceeded(RunError):
    """A limit on calls, tokens, seconds or handovers was reached."""

    def __init__(self, agent: str, what: str, limit: float, *, within: Literal["turn", "session"] = "turn") -> None:
        self.agent = agent
        self.what = what
        self.limit = limit
        self.within = within
        super().__init__(
            f"Agent '{agent}' has reached its limit of {limit:g} {what.replace('_', ' ')} in this {within}. "
            f"Recover it with a larger one: {self._option()}."
        )

    def _option(self) -> str:
        if self.what == "handovers":
            return "`max_handovers = ...` in its class, if it is making progress"
        if self.within == "turn":
            return f"limits=Limits({self.what}=...), of the agent or in recover(..., for_agents=...)"
        return f"CallLimits({self.what if self.what.isidentifier() else 'tools'}=...)"


class TooManyCalls(RunError):
    """A model called more tools in one answer than its agent allows; none of them ran."""

    retryable = True

    def __init__(self, name: str, calls: int, limit: int) -> None:
        self.name = name
        self.calls = calls
        self.limit = limit
        super().__init__(
            f"The model of '{name}' called {calls} tools in one answer, and {limit} is the most. None of them ran. "
            "Recover the session to ask it again, or allow more: Limits(calls_per_answer=...)."
        )


class ThreadsUsedUp(RunError):
    """All threads that a session may use are held by calls that were cancelled or took too long, and do not end."""

    def __init__(self, session_id: str, limit: int) -> None:
        self.session_id = session_id
        self.limit = limit
        super().__init__(
            f"Session '{session_id}' has {limit} threads that do not end: their calls were cancelled or took too long, "
            "and a thread cannot be killed. Give such calls a timeout of their own, which ends them."
        )


class NodeTimeout(RunError):
    """A node or superstep took longer than its timeout."""

    retryable = True

    def __init__(self, address: str, seconds: float) -> None:
        self.address = address
        self.seconds = seconds
        super().__init__(
            f"'{address}' did not end within {seconds:g} s. Raise its timeout, or `recover` to try it again."
        )


class RunTimeout(RunError):
    """A graph worked for longer than its `run_timeout`; what it had finished is saved."""

    def __init__(self, graph: str, seconds: float) -> None:
        self.graph = graph
        self.seconds = seconds
        super().__init__(
            f"Graph '{graph}' did not end or pause within {seconds:g} s. Raise its run_timeout, or `recover` to let it "
            "continue for as long again."
        )


class RetryExhausted(RunError):
    """Every attempt that a retry policy allows has failed; the last error is the cause."""

    def __init__(self, address: str, attempts: int, error: BaseException) -> None:
        self.address = address
        self.attempts = attempts
        super().__init__(
            f"'{address}' failed {attempts} times; the last error was {type(error).__name__}: {text_of(error)}"
        )


class ReplayMismatch(RunError):
    """Code did something else when it ran again than it did the first time."""

    def __init__(self, address: str, recorded: str, now: str) -> None:
        self.address = address
        self.recorded = recorded
        self.now = now
        super().__init__(
            f"'{address}' ran again after a pause and did something else.\n  recorded: {recorded}\n  now:      {now}\n"
            "Code before a pause must repeat itself: wrap what varies (time, randomness, calls) in a function marked "
            "@once, and give questions a key: interrupt(..., key='...', prompt='what may vary'). "
            "If you changed the code since the pause, put it back or mend it. The answer is kept: `recover` goes on."
        )


class ProgramChanged(RunError):
    """The program no longer has a place for what is stored."""

    def __init__(self, address: str, missing: str) -> None:
        self.address = address
        self.missing = missing
        super().__init__(
            f"The stored session is at '{address}', but {missing}. Bring it back and resume, or fork from an "
            "older checkpoint."
        )


class CrashLoop(RunError):
    """A run was started several times, and each time its process died before making progress."""

    def __init__(self, session_id: str, claims: int) -> None:
        self.session_id = session_id
        self.claims = claims
        super().__init__(
            f"Session '{session_id}' was started {claims} times; its process died each time before making progress. "
            "Fix what kills it, then `recover`."
        )


class GraphInterrupted(RunError):
    """A graph was invoked for its final state, but paused."""

    def __init__(self, session_id: str, interrupts: Sequence[Any]) -> None:
        self.session_id = session_id
        self.interrupts: tuple[Any, ...] = tuple(interrupts)
        keys = {interrupt.id: interrupt.key for interrupt in self.interrupts if interrupt.key is not None}
        asked = _listed([interrupt.id for interrupt in self.interrupts], keys)
        super().__init__(f"The graph paused and asks: {asked}. Use `run` and `resume` with a session id to answer.")


class ModelError(RunError):
    """A model did not answer; what its provider reported is in the attributes.

    `status` is the HTTP status, `code` the provider's error code, and `retry_after` the seconds to wait before the next
    call. Pass `retryable=False` when trying again cannot help.
    """

    def __init__(
        self,
        message: str,
        *,
        provider: str | None = None,
        status: int | None = None,
        code: str | None = None,
        retry_after: float | None = None,
        retryable: bool = True,
    ) -> None:
        self.provider = provider
        self.status = status
        self.code = code
        self.retry_after = retry_after
        self.retryable = retryable
        super().__init__(message)


class ContextTooLong(ModelError):
    """The conversation does not fit into the model's context; the same request will fail again."""

    def __init__(
        self, message: str, *, provider: str | None = None, status: int | None = None, code: str | None = None
    ) -> None:
        super().__init__(message, provider=provider, status=status, code=code, retryable=False)


class ToolError(RunError):
    """A tool failed to return a result."""

    retryable = True


class InvalidArguments(ToolError):
    """A tool was called with invalid arguments; `problems` lists what is wrong with them."""

    retryable = False

    def __init__(self, tool: str, problems: Sequence[str]) -> None:
        self.tool = tool
        self.problems: tuple[str, ...] = tuple(problems)
        super().__init__(f"Tool '{tool}' cannot take these arguments: {'; '.join(self.problems).rstrip('.')}.")


class ToolRefused(ToolError):
    """A person refused a tool call; the model sees the refusal and can do something else."""

    retryable = False

    def __init__(self, tool: str, reason: str = "") -> None:
        self.tool = tool
        self.reason = reason
        super().__init__(f"A person refused this call: {reason}" if reason else "A person refused this call.")


class StoreError(AdjournError):
    """Something is wrong with stored data, or with the store."""


class Conflict(StoreError):
    """The session moved on, its lease was taken over, or an `id` stands for something else; nothing was written."""

    def __init__(
        self,
        session_id: str,
        detail: str,
        *,
        remedy: str = "Whoever runs it now continues; if nobody does, use `recover`",
    ) -> None:
        self.session_id = session_id
        super().__init__(f"Session '{session_id}' was not written: {detail}. {remedy}.")


class StoreUnavailable(StoreError):
    """The store cannot be reached or cannot write; `is_lasting` if waiting will not help."""

    def __init__(self, store: str, detail: str, *, is_lasting: bool = False) -> None:
        self.store = store
        self.detail = detail
        self.is_lasting = is_lasting
        if is_lasting:
            super().__init__(f"Store {store} cannot be used: {detail}.")
        else:
            super().__init__(
                f"Store {store} does not respond: {detail}. Nothing unsaved was reported; `recover` once it is back."
            )


class CheckpointCorrupt(StoreError):
    """Stored bytes are not what was written; `session_id` is the session that is damaged, if it is only one."""

    def __init__(self, detail: str, session_id: str | None = None, *, remedy: str = "Restore a backup") -> None:
        self.detail = detail
        self.session_id = session_id
        self.remedy = remedy
        whose = "" if session_id is None else f" of session '{session_id}'"
        super().__init__(f"Stored data{whose} cannot be read: {detail}. {remedy}.")


class CheckpointTooNew(StoreError):
    """Stored data was written by a newer version of Adjourn."""

    def __init__(self, version: int, known: int) -> None:
        self.version = version
        self.known = known
        super().__init__(
            f"Stored data has format {version}; this version of Adjourn supports up to {known}. Upgrade it to continue."
        )


class MissingKey(StoreError):
    """Stored data is encrypted, and the key is not here; `key_id` is None where no keys were given at all."""

    def __init__(self, key_id: str | None, detail: str, known: Sequence[str] = ()) -> None:
        self.key_id = key_id
        self.known: tuple[str, ...] = tuple(known)
        if key_id is None:
            super().__init__(
                f"Stored data is encrypted: {detail}. "
                "Open it with its keys: `EncryptedStore(store, keys)`, or a URL with 'encrypted+' in front and them in "
                "$ADJOURN_KEYS."
            )
        elif key_id in self.known:
            super().__init__(
                f"The key '{key_id}' is not the one that this was encrypted with: {detail}. "
                "Give that one under this id, and the other one under an id of its own."
            )
        else:
            super().__init__(
                f"The key '{key_id}' is missing: {detail}. Known: {', '.join(self.known)}. "
                "Add it to the keys of the store; an old key is needed for as long as something is encrypted with it."
            )


class NotStorable(StoreError):
    """A value cannot be stored in a checkpoint; `while_asking` tells whether it is part of a question."""

    while_asking: bool = False

    def __init__(self, path: str, value: object, remedy: str, *, type_name: str | None = None) -> None:
        self.path = path
        self.type_name: str = full_name(type(value)) if type_name is None else type_name
        self.remedy = remedy
        super().__init__(f"'{path}' holds {with_article(self.type_name)}, which cannot be stored. {remedy}")


def full_name(cls: type) -> str:
    """Return the module and name of a class, as errors show it."""
    return f"{cls.__module__}.{cls.__qualname__}"


MAX_MESSAGE = 20_000
"""Characters of an error's text that are stored and sent."""


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an error, once; an error that does not accept notes is left alone."""
    with contextlib.suppress(Exception):  # protects the error itself: its class may refuse to be changed
        if note not in getattr(error, "__notes__", ()):
            error.add_note(note)


def describe(error: BaseException) -> Mapping[str, str]:
    """Return the type and text of an error, as they are stored and sent; this works for any exception."""
    return {"type": type(error).__name__, "message": text_of(error)}


def text_of(error: BaseException) -> str:
    """Return the text of an error, truncated to a size that can be stored, without characters that JSON cannot hold."""
    try:
        text = str(error)
    except Exception as second:  # noqa: BLE001  # protects the run: a user's __str__ may be broken
        text = f"(its text is unavailable: {type(second).__name__})"
    text = known.hide(text.encode("utf-8", "backslashreplace").decode())
    return text if len(text) <= MAX_MESSAGE else f"{text[:MAX_MESSAGE]}… ({len(text)} characters in all)"
