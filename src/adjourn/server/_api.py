"""The API as a table: a row for each route, and the structs that it reads and sends.

The routes of the application, who may use them, and the OpenAPI document are made from the rows. A handler is found by
the name of its row, reads the structs that the row names, and sends them: a new route is a row and a handler.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, Self, TypeAlias, cast

import msgspec
from msgspec import UNSET, UnsetType

from adjourn._documents import Document, Question, TreeEntry, plain, questions
from adjourn.events import (
    BreakLoop,
    Cancelled,
    CheckpointSaved,
    Custom,
    Delta,
    Done,
    Exit,
    Failed,
    Interrupt,
    NodeEnd,
    NodeStart,
    Progress,
    Retrying,
    ToolCalled,
    ToolResult,
    Transfer,
)
from adjourn.messages import Message, Part, Role, ToolCall, Usage
from adjourn.runner import RunResult, Submission
from adjourn.sessions import AuditEntry, Checkpoint, SessionStatus, SessionSummary
from adjourn.stores.types import Order, Status

from ._drafts import Draft

OnBusy = Literal["error", "queue", "cancel"]
OnPending = Literal["error", "abandon", "finish"]

LONGEST = 512
"""How many characters a name may have that a client chooses: names are in headers, paths and indexes."""

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST)]

PAGE = 50
"""How many items a list has, unless the request says."""

PageSize = Annotated[int, msgspec.Meta(ge=1, le=1000)]
"""How many it may have."""


# Bodies


class MayBeLeftOut(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A body that may be left out."""


class Chat(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A message to an agent: what `POST /api/v1/chat` takes. `values` are those of the agent's `caller_values`."""

    message: str | dict[str, Any]
    agent: str | None = None
    session_id: Name | None = None
    on_busy: OnBusy | None = None
    on_pending: OnPending | None = None
    values: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    stream: bool = True


class Answering(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """An answer to the only open question, or answers by id, token or key."""

    answer: Any | UnsetType = UNSET
    answers: dict[str, Any] | UnsetType = UNSET
    checkpoint_id: str | None = None
    message: str | None = None
    by: str | None = None


class Resume(Answering, kw_only=True, forbid_unknown_fields=True):
    """What `POST /api/v1/chat/resume` takes."""

    session_id: str
    stream: bool = True


class Recover(MayBeLeftOut, kw_only=True):
    """What `POST /api/v1/sessions/{id}/recover` takes."""

    stream: bool = True


class Following(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """From which event on to read a session, and until when."""

    after: str | None = None
    follow: Literal["turn", "session"] = "turn"


class Listing(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What selects sessions."""

    status: Status | None = None
    after: str | None = None
    limit: PageSize = PAGE


class History(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What selects checkpoints."""

    before: str | None = None
    source: str | None = None
    under: str | None = None
    limit: PageSize = PAGE


class At(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A checkpoint, and the address of a nested graph."""

    checkpoint_id: str | None = None
    at: str | None = None


class Between(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Two checkpoints."""

    a: str
    b: str


class Cancel(MayBeLeftOut, kw_only=True):
    """How to stop a run."""

    mode: Literal["now", "after_model", "after_tools", "after_step"] = "now"


class Fork(MayBeLeftOut, kw_only=True):
    """From where, and to which session, a new one by default; a checkpoint and `again` are for admins to give."""

    checkpoint_id: str | None = None
    to: Name | None = None
    again: bool = False


class Edit(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Values to write into the state, through its reducers."""

    values: dict[str, Any]
    checkpoint_id: str | None = None
    as_node: str | None = None
    at: str | None = None
    again: bool = False


class Submit(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """An input to store; whoever has room begins its turn. `values` are those of the agent's `caller_values`."""

    message: str | dict[str, Any]
    agent: str | None = None
    id: Name | None = None
    on_busy: OnBusy = "queue"
    on_pending: Literal["error", "abandon"] = "error"
    values: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None


class Wanted(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What selects questions, and which come first: the oldest, or those that expire first."""

    order: Order = "age"
    session_id: str | None = None
    agent: str | None = None
    under: str | None = None
    reason: str | None = None
    tag: str | None = None
    requested_by: str | None = None
    older_than: float | None = None
    expires_within: float | None = None
    after: str | None = None
    limit: PageSize = PAGE


class Deciding(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What selects decisions."""

    by: str | None = None
    agent: str | None = None
    how: Literal["answered", "expired"] | None = None
    since: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    until: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    after: str | None = None
    limit: PageSize = PAGE
    format: Literal["json", "csv"] | None = None


class Heard(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What selects the questions of a stream, and whether it begins with those that are open, or with what happens."""

    reason: str | None = None
    tag: str | None = None
    begin: Literal["open", "now"] = msgspec.field(default="open", name="from")

    def selects(self, asked: Interrupt) -> bool:
        """Return whether a question is wanted."""
        return self.reason in (None, asked.reason) and (self.tag is None or self.tag in asked.tags)


class AgUiSaid(msgspec.Struct, kw_only=True, rename="camel"):
    """A message as a front end has it; only what the user has said last is read."""

    role: str
    id: str = ""
    content: str | list[dict[str, Any]] | dict[str, Any] | None = None


class Resolved(msgspec.Struct, kw_only=True, rename="camel"):
    """What became of one question."""

    interrupt_id: str
    status: Literal["resolved", "cancelled"]
    payload: Any = None


class RunInput(msgspec.Struct, kw_only=True, rename="camel"):
    """What a front end sends to begin a run; the rest of it (tools, context, state) is not read."""

    thread_id: Name
    run_id: str
    messages: list[AgUiSaid] = []
    resume: list[Resolved] | None = None
    forwarded_props: Any = None

    @property
    def other_input(self) -> dict[str, Any] | None:
        """An input that is not a message, for graphs: `forwardedProps.input`."""
        props = self.forwarded_props
        found: Any = cast("dict[str, Any]", props).get("input") if isinstance(props, dict) else None
        return cast("dict[str, Any]", found) if isinstance(found, dict) else None


# Answers


class State(Document, kw_only=True):
    """Whether the server works."""

    status: Literal["ok", "ready"]


class AgentEntry(Document, kw_only=True):
    """An agent, and how it treats messages that come while it is busy or waits."""

    name: str
    kind: str
    description: str
    interrupts: bool
    require_token: bool
    on_busy: OnBusy
    on_pending: OnPending
    answer_pending: bool


class AgentList(Document, kw_only=True):
    """The agents of the server."""

    agents: list[AgentEntry]


class QuestionPage(Document, kw_only=True):
    """Open questions, oldest first; `next` is the `after` of the next page, if there is one."""

    questions: list[Question]
    next: str | None


class AuditedQuestion(Question, kw_only=True):
    """A question and how it ended, or that it is open."""

    outcome: str
    answer: Any
    message: str | None
    by: str | None
    at: datetime | None
    inherited: bool
    again: bool

    @classmethod
    def of_entry(cls, entry: AuditEntry) -> Self:
        return cls.of(
            entry.interrupt,
            outcome=entry.outcome or "open",
            answer=plain(entry.answer),
            message=entry.message,
            by=entry.by,
            at=entry.at,
            inherited=entry.inherited,
            again=entry.again,
        )


class Audit(Document, kw_only=True):
    """Every question of a session, with who answered it."""

    session_id: str
    entries: list[AuditedQuestion]


class DecisionPage(Document, kw_only=True):
    """Questions that have ended, most recent first; `next` is the `after` of the next page, if there is one."""

    decisions: list[AuditedQuestion]
    next: str | None


class SessionEntry(Document, kw_only=True):
    """A session; `inputs` wait for their turn, and `since` it has had its status.

    A store with a time to live removes it after `removed_after`, unless something happens in it before.
    """

    session_id: str
    agent: str
    status: Status
    checkpoint_id: str
    user_id: str | None
    inputs: int
    since: datetime
    removed_after: datetime | None

    @classmethod
    def of_summary(cls, found: SessionSummary, **given: Any) -> Self:
        return cls.of(found, agent=found.program.partition(":")[2], **given)


class SessionView(SessionEntry, kw_only=True):
    """A session with its open questions."""

    pending: list[Question]

    @classmethod
    def of_status(cls, found: SessionStatus) -> Self:
        return cls.of_summary(found, pending=questions(found.interrupts))


class SessionPage(Document, kw_only=True):
    """Sessions, most recently written first; `next` is the `after` of the next page, if there is one."""

    sessions: list[SessionView]
    next: str | None


class Said(Document, omit_defaults=True, kw_only=True):
    """A message of a conversation: text, or parts if there is more than text."""

    role: Role
    content: str | list[Part]
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    usage: Usage | None = None
    finish_reason: str | None = None
    id: str | None = None
    provider: str | None = None
    model: str | None = None
    response_id: str | None = None
    raw_finish_reason: str | None = None
    extra: dict[str, Any] | None = None

    @classmethod
    def of_message(cls, said: Message) -> Self:
        return cls(**dict(said))


class Conversation(Document, kw_only=True):
    """The messages of a session."""

    session_id: str
    messages: list[Said]


class TurnResult(Document, kw_only=True):
    """How a turn ended, or that it waits for answers."""

    session_id: str
    status: Literal["done", "interrupted", "cancelled"]
    output: str
    checkpoint_id: str | None
    usage: Usage
    interrupts: list[Question]

    @classmethod
    def of_result(cls, found: RunResult) -> Self:
        return cls.of(found, usage=found.usage, interrupts=questions(found.interrupts))


class Failure(Document, kw_only=True):
    """Why a turn failed."""

    code: str
    message: str


class FailedTurn(Document, kw_only=True):
    """A turn that failed; it can be recovered."""

    session_id: str
    status: Literal["failed"]
    error: Failure


class CancelAsked(Document, kw_only=True):
    """Whether there was anything to cancel."""

    session_id: str
    cancelled: bool


class WaitingInput(Document, kw_only=True):
    """An input that waits for its turn."""

    id: str
    input: Any
    on_pending: str
    submitted: datetime


class InputList(Document, kw_only=True):
    """The inputs that wait for their turn."""

    session_id: str
    inputs: list[WaitingInput]


class CheckpointEntry(Document, kw_only=True):
    """A checkpoint without its state."""

    id: str
    parent_id: str | None
    source: str
    step: int
    next: list[str]
    address: str
    created: datetime
    metadata: dict[str, Any]
    pending: list[Question]

    @classmethod
    def of_point(cls, found: Checkpoint, **given: Any) -> Self:
        return cls.of(found, pending=questions(found.interrupts), **given)


class CheckpointView(CheckpointEntry, kw_only=True):
    """A checkpoint with its state."""

    state: Any


class CheckpointPage(Document, kw_only=True):
    """Checkpoints, most recent first; `next` is the `before` of the next page, if there may be one."""

    session_id: str
    checkpoints: list[CheckpointEntry]
    next: str | None


class CheckpointTree(Document, kw_only=True):
    """All checkpoints of a session."""

    session_id: str
    head: str
    checkpoints: list[TreeEntry]


class StateView(Document, kw_only=True):
    """The state of a session."""

    session_id: str
    state: Any


class Difference(Document, kw_only=True):
    """What differs between two checkpoints."""

    session_id: str
    added: dict[str, Any]
    removed: dict[str, Any]
    changed: dict[str, Any]


class Forked(Document, kw_only=True):
    """The new session."""

    session_id: str


class Refusal(Document, kw_only=True):
    """Why a request is refused, and what to do; some have facts besides, such as the ids of `open` questions."""

    code: str
    message: str
    hint: str
    session_id: str | UnsetType = UNSET
    interrupt_id: str | UnsetType = UNSET
    checkpoint_id: str | UnsetType = UNSET
    input_id: str | UnsetType = UNSET
    head: str | UnsetType = UNSET
    token: str | UnsetType = UNSET
    open: Sequence[str] | UnsetType = UNSET
    live: bool | UnsetType = UNSET
    by: str | UnsetType = UNSET
    at: float | UnsetType = UNSET
    seq: int | UnsetType = UNSET
    problems: Sequence[str] | UnsetType = UNSET
    status: str | UnsetType = UNSET
    owner: str | UnsetType = UNSET
    refused: Sequence[str] | UnsetType = UNSET
    allowed: Sequence[str] | UnsetType = UNSET
    inputs: int | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    approvals: Sequence[str] | UnsetType = UNSET
    asked_at: str | UnsetType = UNSET
    pending: Sequence[str | Question] | UnsetType = UNSET
    agents: Sequence[str] | UnsetType = UNSET
    limit: str | UnsetType = UNSET
    interrupts: Sequence[Question] | UnsetType = UNSET


class Refused(Document, kw_only=True):
    """The body of every refusal."""

    error: Refusal


# The frames of streams


class _Frame(Document, omit_defaults=True, tag_field="type", kw_only=True):
    agent: str = ""
    path: tuple[str, ...] = ()
    address: str = ""
    seq: int | None = None


class MessageSaid(_Frame, kw_only=True, tag="message"):
    """A whole message joined the conversation."""

    message: Said


class Paused(_Frame, kw_only=True, tag="interrupt"):
    """The run paused with questions; the last event of its run. `reason` and `prompt` are those of the first."""

    checkpoint_id: str
    reason: str | UnsetType = UNSET
    prompt: str | None | UnsetType = UNSET
    session_id: str
    interrupts: list[Question]


class CaughtUp(Document, tag_field="type", tag="caught_up", kw_only=True):
    """What was stored has been sent; what follows happens now."""

    seq: int
    status: Status
    pending: list[Question]


class Closing(Document, tag_field="type", tag="closing", kw_only=True):
    """The stream ends before its run does: come back to read on."""


class Asked(Question, tag_field="type", tag="question", kw_only=True):
    """A question is open."""


class Closed(Document, tag_field="type", tag="closed", kw_only=True):
    """A question is not open any more."""

    session_id: str
    id: str


class Ended(Document, tag_field="type", tag="ended", kw_only=True):
    """A turn of a session has ended."""

    session_id: str
    status: Literal["done", "failed", "cancelled"]
    checkpoint_id: str
    user_id: str | None
    program: str


class AllShown(Document, tag_field="type", tag="caught_up", kw_only=True):
    """All questions that are open have been sent; `count` says how many. What follows happens now."""

    count: int


class AgUiThread(Document, omit_defaults=True, kw_only=True, rename="camel"):
    """A thread of AG-UI: its messages and interrupts are as that protocol has them."""

    thread_id: str
    status: Status
    messages: list[dict[str, Any]]
    interrupts: list[dict[str, Any]]
    state: Any = None


class AgUiEvent(msgspec.Struct, kw_only=True):
    """An event of AG-UI 1.0, which says what else it has."""

    type: str


SessionFrame: TypeAlias = (
    MessageSaid
    | ToolResult
    | Transfer
    | Exit
    | BreakLoop
    | NodeEnd
    | CheckpointSaved
    | Custom
    | Paused
    | Done
    | Failed
    | Cancelled
    | Delta
    | ToolCalled
    | NodeStart
    | Retrying
    | Progress
    | Draft
    | CaughtUp
    | Closing
)
"""What the stream of a session may send."""

InboxFrame: TypeAlias = Asked | Closed | Ended | AllShown | Closing
"""What the stream of the inbox may send."""


# The table


class Access(enum.Enum):
    """Who may use a route, and on whose sessions."""

    OPEN = "anybody, without a token"
    OWN = "users and admins, on sessions of their own"
    LOOK = "users on sessions of their own; reviewers and admins on everybody's"
    CHANGE = "users on sessions of their own; admins on everybody's"
    METRICS = "those who read metrics, and admins, if they may use all agents"
    ADMIN = "admins"


class Row(msgspec.Struct, frozen=True):
    """A route: where it is, who may use it, the structs that it reads and sends, and the codes of its refusals."""

    name: str
    method: Literal["GET", "POST", "DELETE"]
    path: str
    access: Access
    summary: str
    begins: bool = False
    """Whether it counts as a turn of its caller. Answers do not: they are taken always."""
    once: Literal["alone", "joins"] | None = None
    """Whether it counts once under an `Idempotency-Key`: one request `alone` is handled, or others join it."""
    status: int = 200
    body: type[msgspec.Struct] | None = None
    query: type[msgspec.Struct] | None = None
    answer: type | tuple[type, ...] | None = None
    frames: Any = None  # Any: a type
    text: str | None = None
    refusals: tuple[str, ...] = ()

    @property
    def answers(self) -> tuple[type, ...]:
        """Everything that it may answer with, apart from frames."""
        if self.answer is None:
            return ()
        return self.answer if isinstance(self.answer, tuple) else (self.answer,)

    @property
    def template(self) -> str:
        """The path as people read it, without how far its parameters reach."""
        return self.path.replace(":path}", "}")

    @property
    def route(self) -> str:
        """The method and the path, as people read them."""
        return f"{self.method} {self.template}"


_SESSION = ("checkpoint_not_found",)
_AGENT = (*_SESSION, "program_changed")
_TAKEN = ("draining", "queue_full", "session_busy", "conflict", "program_changed", "not_storable", "state_invalid")
_RUN = (*_TAKEN, "handed_over")
_ANSWER = (
    "already_resumed",
    "answer_refused",
    "interrupt_expired",
    "invalid_answer",
    "media_not_allowed",
    "stale_checkpoint",
    "unknown_interrupt",
)

_ONE = "/api/v1/sessions/{id}"
_TURN = (TurnResult, FailedTurn)

ROWS: tuple[Row, ...] = (
    Row("health", "GET", "/healthz", Access.OPEN, "Say that the process works.", answer=State),
    Row(
        "readiness",
        "GET",
        "/readyz",
        Access.OPEN,
        "Say whether requests should be sent here: not while the server stops, or its store is away.",
        answer=State,
        refusals=("draining",),
    ),
    Row(
        "metrics",
        "GET",
        "/metrics",
        Access.METRICS,
        "Count what the server does, and what waits, for Prometheus.",
        text="text/plain",
    ),
    Row("describe", "GET", "/openapi.json", Access.LOOK, "Describe the API.", answer=dict[str, Any]),
    Row("list_agents", "GET", "/api/v1/agents", Access.LOOK, "List the agents.", answer=AgentList),
    Row(
        "chat",
        "POST",
        "/api/v1/chat",
        Access.OWN,
        "Send a message to an agent, and read the turn that it begins.",
        once="joins",
        begins=True,
        body=Chat,
        answer=_TURN,
        frames=SessionFrame,
        refusals=(
            *_RUN,
            *_SESSION,
            "agent_not_found",
            "media_not_allowed",
            "pending_interrupts",
            "unfinished_run",
            "already_resumed",
            "invalid_answer",
            "answer_refused",
            "interrupt_expired",
            "input_refused",
            "input_withdrawn",
            "values_refused",
        ),
    ),
    Row(
        "resume",
        "POST",
        "/api/v1/chat/resume",
        Access.LOOK,
        "Answer the questions of a session, and read how it goes on.",
        once="joins",
        body=Resume,
        answer=_TURN,
        frames=SessionFrame,
        refusals=(*_AGENT, *_RUN, *_ANSWER),
    ),
    Row(
        "run_agui",
        "POST",
        "/api/v1/ag-ui/{agent}",
        Access.OWN,
        "Run an agent for a front end that speaks AG-UI; what is refused is an event of the stream, too.",
        body=RunInput,
        frames=AgUiEvent,
        refusals=("draining", "agent_not_found"),
    ),
    Row(
        "show_agui_thread",
        "GET",
        "/api/v1/ag-ui/{agent}/threads/{id}",
        Access.LOOK,
        "Show a thread to a front end that speaks AG-UI: its messages, and the questions that are open.",
        answer=AgUiThread,
        refusals=(*_AGENT, "agent_not_found"),
    ),
    Row(
        "recover",
        "POST",
        _ONE + "/recover",
        Access.CHANGE,
        "Go on with a turn that failed, was cancelled, or lost its process.",
        once="alone",
        begins=True,
        body=Recover,
        answer=_TURN,
        frames=SessionFrame,
        refusals=(*_AGENT, *_RUN, "pending_interrupts"),
    ),
    Row(
        "read_events",
        "GET",
        _ONE + "/events",
        Access.LOOK,
        "Read a session from any event on: what was missed, a `caught_up` frame, then what happens.",
        query=Following,
        frames=SessionFrame,
        refusals=(*_AGENT, "invalid_event_id", "events_gone"),
    ),
    Row(
        "list_questions",
        "GET",
        "/api/v1/inbox",
        Access.LOOK,
        "List the open questions of all sessions, oldest or first to expire first.",
        query=Wanted,
        answer=QuestionPage,
        refusals=_SESSION,
    ),
    Row(
        "read_inbox",
        "GET",
        "/api/v1/inbox/events",
        Access.LOOK,
        "Read the open questions of all sessions, then what happens to them.",
        query=Heard,
        frames=InboxFrame,
    ),
    Row(
        "list_decisions",
        "GET",
        "/api/v1/decisions",
        Access.LOOK,
        "List the questions of all sessions that were answered or have expired, most recent first.",
        query=Deciding,
        answer=DecisionPage,
        text="text/csv",
    ),
    Row(
        "list_sessions",
        "GET",
        "/api/v1/sessions",
        Access.LOOK,
        "List sessions, most recently written first.",
        query=Listing,
        answer=SessionPage,
    ),
    Row(
        "show_session",
        "GET",
        _ONE,
        Access.LOOK,
        "Show a session with its open questions.",
        answer=SessionView,
        refusals=_SESSION,
    ),
    Row(
        "delete_session",
        "DELETE",
        _ONE,
        Access.CHANGE,
        "Remove a session.",
        status=204,
        refusals=(*_AGENT, "session_busy", "conflict"),
    ),
    Row(
        "list_messages",
        "GET",
        _ONE + "/messages",
        Access.LOOK,
        "List the conversation.",
        answer=Conversation,
        refusals=_AGENT,
    ),
    Row(
        "list_audit",
        "GET",
        _ONE + "/audit",
        Access.LOOK,
        "List every question with who answered it.",
        answer=Audit,
        refusals=_SESSION,
    ),
    Row(
        "show_question",
        "GET",
        _ONE + "/questions/{question:path}",
        Access.LOOK,
        "Show a question, by its id or token: open, or how it ended.",
        answer=AuditedQuestion,
        refusals=(*_SESSION, "unknown_interrupt"),
    ),
    Row(
        "answer",
        "POST",
        _ONE + "/answers",
        Access.LOOK,
        "Record answers without waiting for what follows.",
        once="joins",
        status=202,
        body=Answering,
        answer=SessionEntry,
        refusals=(*_AGENT, *_ANSWER, "conflict", "not_storable"),
    ),
    Row(
        "cancel",
        "POST",
        _ONE + "/cancel",
        Access.CHANGE,
        "Stop the run of a session, wherever it runs.",
        once="alone",
        status=202,
        body=Cancel,
        answer=CancelAsked,
        refusals=(*_AGENT, "conflict"),
    ),
    Row(
        "list_inputs",
        "GET",
        _ONE + "/inputs",
        Access.LOOK,
        "List the inputs that wait for their turn.",
        answer=InputList,
        refusals=_SESSION,
    ),
    Row(
        "submit",
        "POST",
        _ONE + "/inputs",
        Access.OWN,
        "Store the input of a turn, which begins when those before it have ended.",
        once="joins",
        begins=True,
        status=202,
        body=Submit,
        answer=Submission,
        refusals=(
            *_TAKEN,
            *_SESSION,
            "agent_not_found",
            "media_not_allowed",
            "pending_interrupts",
            "unfinished_run",
            "values_refused",
        ),
    ),
    Row(
        "withdraw",
        "DELETE",
        _ONE + "/inputs/{input}",
        Access.CHANGE,
        "Remove an input that waits for its turn.",
        status=204,
        refusals=(*_SESSION, "input_not_found", "conflict"),
    ),
    Row(
        "list_checkpoints",
        "GET",
        _ONE + "/checkpoints",
        Access.LOOK,
        "List checkpoints, most recent first, without their states.",
        query=History,
        answer=CheckpointPage,
        refusals=_SESSION,
    ),
    Row(
        "show_checkpoint",
        "GET",
        _ONE + "/checkpoints/{checkpoint}",
        Access.LOOK,
        "Show a checkpoint with its state.",
        answer=CheckpointView,
        refusals=_AGENT,
    ),
    Row(
        "show_tree",
        "GET",
        _ONE + "/tree",
        Access.LOOK,
        "List all checkpoints as a tree.",
        answer=CheckpointTree,
        refusals=_SESSION,
    ),
    Row(
        "show_state",
        "GET",
        _ONE + "/state",
        Access.LOOK,
        "Show the state at a checkpoint, by default the most recent.",
        query=At,
        answer=StateView,
        refusals=_AGENT,
    ),
    Row(
        "show_diff",
        "GET",
        _ONE + "/diff",
        Access.LOOK,
        "Show what differs between two checkpoints.",
        query=Between,
        answer=Difference,
        refusals=_AGENT,
    ),
    Row(
        "fork",
        "POST",
        _ONE + "/fork",
        Access.CHANGE,
        "Begin a new session as this one was at a checkpoint.",
        once="alone",
        begins=True,
        status=201,
        body=Fork,
        answer=Forked,
        refusals=(*_AGENT, "approval_spent", "conflict"),
    ),
    Row(
        "edit",
        "POST",
        _ONE + "/edit",
        Access.ADMIN,
        "Change the state by hand, on a new branch.",
        once="alone",
        body=Edit,
        answer=CheckpointView,
        refusals=(
            *(*_AGENT, "approval_spent", "session_busy", "conflict"),
            *("node_not_found", "state_invalid", "not_storable"),
        ),
    ),
)
"""Every route. What is not here does not exist."""
