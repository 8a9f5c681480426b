"""What the server sends, by shape: the routes build it as plain data, and tests hold them to it."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, TypeAlias

import msgspec

from adjourn.events import (
    BreakLoop,
    Cancelled,
    CheckpointSaved,
    Custom,
    Delta,
    Done,
    Exit,
    Failed,
    NodeEnd,
    NodeStart,
    Progress,
    Retrying,
    ToolCalled,
    ToolResult,
    Transfer,
)
from adjourn.messages import Part, Role, ToolCall, Usage
from adjourn.stores.types import Status

from ._drafts import Draft
from ._wire import OnBusy, OnPending


class _Answer(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    pass


class State(_Answer):
    """Whether the server works."""

    status: Literal["ok", "ready"]


class AgentEntry(_Answer):
    """An agent, and how it treats messages that come while it is busy or waits."""

    name: str
    kind: str
    description: str
    interrupts: bool
    require_token: bool
    on_busy: OnBusy
    on_pending: OnPending
    answer_pending: bool


class AgentList(_Answer):
    """The agents of the server."""

    agents: list[AgentEntry]


class Question(_Answer):
    """A question for a person. `schema` is the JSON Schema of an answer; `token` names exactly what is shown here.

    `requesters` asked for it, so another person must approve it; null if they may, too.
    """

    session_id: str
    id: str
    token: str
    key: str | None
    address: str
    reason: str
    tags: list[str]
    prompt: str | None
    title: str | None
    summary: str | None
    description: str | None
    priority: int
    link: str | None
    requested_by: str | None
    node: str
    info: Any
    schema: dict[str, Any] | None
    choices: list[Any]
    created: datetime | None
    expires: datetime | None
    removed_after: datetime | None
    requesters: list[str] | None
    checkpoint_id: str | None


class QuestionPage(_Answer):
    """Open questions, oldest first; `next` is the `after` of the next page, if there is one."""

    questions: list[Question]
    next: str | None


class AuditedQuestion(Question):
    """A question and how it ended, or that it is open."""

    outcome: str
    answer: Any
    message: str | None
    by: str | None
    at: datetime | None
    inherited: bool
    again: bool


class Audit(_Answer):
    """Every question of a session, with who answered it."""

    session_id: str
    entries: list[AuditedQuestion]


class SessionEntry(_Answer):
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


class SessionView(SessionEntry):
    """A session with its open questions."""

    pending: list[Question]


class SessionPage(_Answer):
    """Sessions, most recently written first; `next` is the `after` of the next page, if there is one."""

    sessions: list[SessionView]
    next: str | None


class Said(_Answer):
    """A message of a conversation: text, or parts if there is more than text."""

    role: Role
    content: str | list[Part]
    tool_calls: list[ToolCall] = []
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


class Conversation(_Answer):
    """The messages of a session."""

    session_id: str
    messages: list[Said]


class TurnResult(_Answer):
    """How a turn ended, or that it waits for answers."""

    session_id: str
    status: Literal["done", "interrupted", "cancelled"]
    output: str
    checkpoint_id: str | None
    usage: Usage
    interrupts: list[Question]


class Failure(_Answer):
    """Why a turn failed."""

    code: str
    message: str


class FailedTurn(_Answer):
    """A turn that failed; it can be recovered."""

    session_id: str
    status: Literal["failed"]
    error: Failure


class CancelAsked(_Answer):
    """Whether there was anything to cancel."""

    session_id: str
    cancelled: bool


class WaitingInput(_Answer):
    """An input that waits for its turn."""

    id: str
    input: Any
    on_pending: str
    submitted: datetime


class InputList(_Answer):
    """The inputs that wait for their turn."""

    session_id: str
    inputs: list[WaitingInput]


class CheckpointEntry(_Answer):
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


class CheckpointView(CheckpointEntry):
    """A checkpoint with its state."""

    state: Any


class CheckpointPage(_Answer):
    """Checkpoints, most recent first; `next` is the `before` of the next page, if there may be one."""

    session_id: str
    checkpoints: list[CheckpointEntry]
    next: str | None


class TreeEntry(_Answer):
    """A checkpoint, with how many branchings lie before it."""

    id: str
    parent_id: str | None
    source: str
    step: int
    next: list[str]
    address: str
    created: datetime
    metadata: dict[str, Any]
    depth: int
    is_head: bool


class CheckpointTree(_Answer):
    """All checkpoints of a session."""

    session_id: str
    head: str
    checkpoints: list[TreeEntry]


class StateView(_Answer):
    """The state of a session."""

    session_id: str
    state: Any


class Difference(_Answer):
    """What differs between two checkpoints."""

    session_id: str
    added: dict[str, Any]
    removed: dict[str, Any]
    changed: dict[str, Any]


class Forked(_Answer):
    """The new session."""

    session_id: str


class Refusal(msgspec.Struct, kw_only=True):
    """Why a request is refused, and what to do; some have facts besides, such as the ids of open questions."""

    code: str
    message: str
    hint: str


class Refused(_Answer):
    """The body of every refusal."""

    error: Refusal


# Frames of streams


class MessageSaid(msgspec.Struct, kw_only=True, tag_field="type", tag="message", forbid_unknown_fields=True):
    """A whole message joined the conversation."""

    agent: str = ""
    path: tuple[str, ...] = ()
    address: str = ""
    seq: int | None = None
    message: Said


class Paused(msgspec.Struct, kw_only=True, tag_field="type", tag="interrupt", forbid_unknown_fields=True):
    """The run paused with questions; the last event of its run. `reason` and `prompt` are those of the first."""

    agent: str = ""
    path: tuple[str, ...] = ()
    address: str = ""
    seq: int | None = None
    checkpoint_id: str
    session_id: str
    reason: str | None = None
    prompt: str | None = None
    interrupts: list[Question]


class CaughtUp(msgspec.Struct, kw_only=True, tag_field="type", tag="caught_up", forbid_unknown_fields=True):
    """What was stored has been sent; what follows happens now."""

    seq: int
    status: Status
    pending: list[Question]


class Closing(msgspec.Struct, kw_only=True, tag_field="type", tag="closing", forbid_unknown_fields=True):
    """The stream ends before its run does: come back to read on."""


class Asked(Question, tag_field="type", tag="question"):
    """A question is open."""


class Closed(msgspec.Struct, kw_only=True, tag_field="type", tag="closed", forbid_unknown_fields=True):
    """A question is not open any more."""

    session_id: str
    id: str


class Ended(msgspec.Struct, kw_only=True, tag_field="type", tag="ended", forbid_unknown_fields=True):
    """A turn of a session has ended."""

    session_id: str
    status: Literal["done", "failed", "cancelled"]
    checkpoint_id: str
    user_id: str | None
    program: str


class AllShown(msgspec.Struct, kw_only=True, tag_field="type", tag="caught_up", forbid_unknown_fields=True):
    """All questions that are open have been sent; `count` says how many. What follows happens now."""

    count: int


class AgUiThread(msgspec.Struct, kw_only=True, rename="camel", forbid_unknown_fields=True):
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
