"""What a server sends, as objects: events, questions, sessions and checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal, TypeAlias, TypeVar, cast

import msgspec
from msgspec.structs import replace

from adjourn._engine.record import APPROVALS
from adjourn.events import Event, Interrupt, Interrupted
from adjourn.messages import Message
from adjourn.sessions import AuditEntry, Checkpoint, QuestionAsked, SessionEnded, Tree
from adjourn.stores.types import CheckpointRow, Header, Outcome, Status
from adjourn.tools import ToolCallInfo

from ._errors import UnexpectedAnswer

T = TypeVar("T")


class AgentInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An agent of a server, and how it treats messages that come while it is busy or waits."""

    name: str
    kind: str = ""
    description: str = ""
    interrupts: bool = True
    require_token: bool = False
    on_busy: str = "error"
    on_pending: str = "error"
    answer_pending: bool = False


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A session of a server; `inputs` wait for their turn, and `since` it has had its status."""

    session_id: str
    agent: str
    status: Status
    checkpoint_id: str
    user_id: str | None = None
    inputs: int = 0
    since: datetime
    removed_after: datetime | None = None
    interrupts: tuple[Interrupt, ...] = msgspec.field(default=(), name="pending")


class RemoteInput(msgspec.Struct, frozen=True, kw_only=True):
    """An input that waits for its turn."""

    id: str
    input: Any
    on_pending: str
    submitted: datetime


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    """An input that is stored; `waiting` is how many were in the queue of its session."""

    session_id: str
    id: str
    status: Status
    waiting: int


class QuestionClosed(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="closed"):
    """A question that was reported is not open any more: it was answered, has expired, or was given up."""

    session_id: str
    id: str


RemoteNotice: TypeAlias = QuestionAsked | QuestionClosed | SessionEnded


class Agents(msgspec.Struct):
    """The agents of a server."""

    agents: list[AgentInfo]


class Questions(msgspec.Struct):
    """A page of open questions."""

    questions: list[Interrupt]
    next: str | None = None


class Decisions(msgspec.Struct):
    """A page of questions that have ended."""

    decisions: list[Audited]
    next: str | None = None


class SessionPage(msgspec.Struct):
    """A page of sessions."""

    sessions: list[SessionInfo]
    next: str | None = None


class Conversation(msgspec.Struct):
    """The messages of a session."""

    messages: tuple[Message, ...]


class Cancelled(msgspec.Struct):
    """Whether there was anything to cancel."""

    cancelled: bool


class Inputs(msgspec.Struct):
    """The queue of a session."""

    inputs: list[RemoteInput]


class Point(msgspec.Struct):
    """A checkpoint, with its state if it was asked for alone."""

    id: str
    parent_id: str | None
    source: str
    step: int
    next: tuple[str, ...]
    address: str
    created: datetime
    metadata: dict[str, Any]
    pending: tuple[Interrupt, ...] = ()
    state: Any = None

    def checkpoint(self) -> Checkpoint:
        """Return it as the library has it."""
        return Checkpoint(
            id=self.id,
            parent_id=self.parent_id,
            source=self.source,
            step=self.step,
            created=self.created,
            next=self.next,
            interrupts=with_infos(self.pending),
            state=self.state,
            metadata=self.metadata,
            address=self.address,
        )


class Points(msgspec.Struct):
    """A page of checkpoints, or all of them."""

    checkpoints: list[Point]
    next: str | None = None


class Branches(Points):
    """All checkpoints of a session, and which is the most recent."""

    session_id: str = ""
    head: str = ""

    def tree(self) -> Tree:
        """Return them as the library has them."""
        return Tree(self.session_id, [_row(each) for each in reversed(self.checkpoints)], self.head)


def _row(point: Point) -> CheckpointRow:
    header = Header(
        source=point.source, step=point.step, address=point.address, next=point.next, metadata=dict(point.metadata)
    )
    return CheckpointRow(id=point.id, parent=point.parent_id, created=point.created.timestamp(), header=header)


class State(msgspec.Struct):
    """The state of a session."""

    state: Any


class Forked(msgspec.Struct):
    """A new session."""

    session_id: str


class Audited(Interrupt, frozen=True, kw_only=True):
    """A question and how it ended."""

    outcome: Outcome | Literal["open"] = "open"
    answer: Any = None
    message: str | None = None
    by: str | None = None
    at: datetime | None = None
    inherited: bool = False
    again: bool = False

    def entry(self) -> AuditEntry:
        """Return it as the library has it."""
        fields = {name: getattr(self, name) for name in Interrupt.__struct_fields__}
        return AuditEntry(
            interrupt=_with_info(Interrupt(**fields)),
            outcome=None if self.outcome == "open" else self.outcome,
            answer=self.answer,
            message=self.message,
            by=self.by,
            at=self.at,
            inherited=self.inherited,
            again=self.again,
        )


class Audit(msgspec.Struct):
    """Every question of a session."""

    entries: list[Audited]


# Frames of streams


class CaughtUp(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="caught_up"):
    """What was stored has been sent; the stream of the inbox says nothing else."""

    seq: int = 0
    status: Status = "running"
    pending: tuple[Interrupt, ...] = ()


class Closing(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="closing"):
    """The stream ends before its run does."""


class Asked(Interrupt, frozen=True, kw_only=True, tag_field="type", tag="question"):
    """A question is open."""

    def interrupt(self) -> Interrupt:
        """Return it as the library has it."""
        return _with_info(Interrupt(**{name: getattr(self, name) for name in Interrupt.__struct_fields__}))


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="ended"):
    """A turn of a session has ended."""

    session_id: str
    status: Literal["done", "failed", "cancelled"]
    checkpoint_id: str = ""
    user_id: str | None = None
    program: str = ""


InRun: TypeAlias = Event | CaughtUp | Closing
InInbox: TypeAlias = Asked | QuestionClosed | Ended | CaughtUp | Closing


class _Typed(msgspec.Struct):
    type: str


_type = msgspec.json.Decoder(_Typed)
_in_run = msgspec.json.Decoder(InRun)
_in_inbox = msgspec.json.Decoder(InInbox)
_RUN_TYPES = frozenset(str(kind.__struct_config__.tag) for kind in (*Event.__args__, CaughtUp, Closing))
_INBOX_TYPES = frozenset({"question", "closed", "ended", "caught_up", "closing"})


def run_item(data: bytes, url: str) -> InRun | None:
    """Return what a frame of a run says; None if it is of a kind that a later version has.

    Raises:
        UnexpectedAnswer: it cannot be read.
    """
    found = _item(data, url, _in_run, _RUN_TYPES)
    return replace(found, interrupts=with_infos(found.interrupts)) if isinstance(found, Interrupted) else found


def inbox_item(data: bytes, url: str) -> InInbox | None:
    """Return what a frame of the inbox says, as `run_item` does."""
    return _item(data, url, _in_inbox, _INBOX_TYPES)


def _item(data: bytes, url: str, decoder: msgspec.json.Decoder[T], known: frozenset[str]) -> T | None:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError, TypeError) as error:
        if _kind(data) not in (None, *known):
            return None
        raise _unreadable(url, error) from error


def _kind(data: bytes) -> str | None:
    try:
        return _type.decode(data).type
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def read(body: bytes, kind: type[T], url: str) -> T:
    """Return a document.

    Raises:
        UnexpectedAnswer: it cannot be read.
    """
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError, TypeError) as error:
        raise _unreadable(url, error) from error


def _unreadable(url: str, error: Exception) -> UnexpectedAnswer:
    remedy = "Is the server of the same version as this client, and are there only Adjourn's servers at this address?"
    return UnexpectedAnswer(url, f"sends something that cannot be read ({error})", remedy)


_INFO = frozenset(ToolCallInfo.__struct_fields__)


def with_infos(asked: Sequence[Interrupt]) -> tuple[Interrupt, ...]:
    """Return questions with what they show as the library has it: approvals show calls of tools."""
    return tuple(map(_with_info, asked))


def _with_info(asked: Interrupt) -> Interrupt:
    info: object = asked.info
    if asked.reason not in APPROVALS or not isinstance(info, dict):
        return asked
    fields = cast("dict[str, object]", info)
    if not {"tool", "arguments"} <= fields.keys() <= _INFO:
        return asked
    try:
        return replace(asked, info=msgspec.convert(fields, ToolCallInfo))
    except (msgspec.ValidationError, ValueError, TypeError):
        return asked
