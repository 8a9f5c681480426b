"""Events: one tagged union of small immutable records, the same in Python, on the wire and on a page.

*Durable* events are numbered (`seq`) and stored with the commit that holds their data. *Live* ones have no number,
are not stored, and may be merged or dropped for a reader who falls behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeAlias

import msgspec

from ._hiding import known
from ._html import table
from ._plain import Documented
from ._values import codec
from .messages import Message, ToolCall, Usage


class Interrupt(msgspec.Struct, Documented, frozen=True, kw_only=True, omit_defaults=True, repr_omit_defaults=True):
    """A question for a person. `schema` is the JSON Schema of an answer; `parent` describes the frame above it.

    `title`, `summary` and `description` say in the author's words what is to be decided, `priority` how urgent it is
    (0 by default; more is more urgent), and `link` where to read more. `requested_by` is the user whose turn asks.
    `node` is the title of the graph's node that asks, if it has one. `tags` are labels that people select questions by.
    `expires` is fixed; a store with a time to live removes the session after `removed_after`, which moves whenever the
    session is written to: lists of questions say it, events and results do not. `token` names exactly this question as
    it is shown here: given in place of the id, the answer counts for nothing else. `requesters` asked for it, so
    another person must approve it; None if they may, too.
    `is_root_cause` is True for a question that can be answered, and False for its parents, which only give context.
    """

    id: str
    token: str = ""
    address: str = ""
    info: Any = None  # Any: what the asker shows
    reason: str = "need_input"
    tags: tuple[str, ...] = ()
    prompt: str | None = None
    title: str | None = None
    summary: str | None = None
    description: str | None = None
    priority: int = 0
    link: str | None = None
    requested_by: str | None = None
    node: str = ""
    key: str | None = None
    schema: dict[str, Any] | None = None
    choices: tuple[Any, ...] = ()
    created: datetime | None = None
    expires: datetime | None = None
    removed_after: datetime | None = None
    is_root_cause: bool = True
    parent: Interrupt | None = None
    checkpoint_id: str | None = None
    session_id: str = ""
    requesters: tuple[str, ...] | None = None

    def _repr_html_(self) -> str:
        rows = {
            "title": self.title,
            "summary": self.summary,
            "asks": self.prompt,
            "node": self.node or None,
            "shows": None if self.info == self.prompt else self.info,
            "choices": self.choices or None,
            "id": self.id,
            "key": self.key,
            "reason": self.reason,
            "tags": ", ".join(self.tags) or None,
            "until": None if self.expires is None else self.expires.isoformat(" ", "seconds"),
        }
        return table(f"session {self.session_id} asks", [each for each in rows.items() if each[1] is not None])

    @classmethod
    def documented(cls) -> Mapping[str, bool]:
        """Return the names in its document: all but what stands above it, and each is always there."""
        names = [name for name in cls.__struct_fields__ if name not in ("session_id", "is_root_cause", "parent")]
        return dict.fromkeys(("session_id", *names), True)

    def __hash__(self) -> int:
        return hash(self.token or self.id)  # so that it can be the key of its answer, whatever it shows


class _Event(
    msgspec.Struct, Documented, frozen=True, kw_only=True, omit_defaults=True, repr_omit_defaults=True, tag_field="type"
):
    agent: str = ""
    path: tuple[str, ...] = ()
    address: str = ""
    seq: int | None = None


class MessageEvent(_Event, frozen=True, kw_only=True, tag="message"):
    """A whole message joined the conversation."""

    message: Message


class ToolResult(_Event, frozen=True, kw_only=True, tag="tool_result"):
    """A tool call ended; `full` is the whole result if the model was shown only a part of it.

    A `muted` one is in the log only to keep that result: events of agents inside a tool are not sent.
    """

    tool: str
    call_id: str
    result: str = ""
    error: str | None = None
    full: str | None = None
    muted: bool = False


class Transfer(_Event, frozen=True, kw_only=True, tag="transfer"):
    """One agent hands over to another."""

    target: str


class Exit(_Event, frozen=True, kw_only=True, tag="exit"):
    """Something ended the run early."""

    result: str = ""


class BreakLoop(_Event, frozen=True, kw_only=True, tag="break_loop"):
    """Something left its loop."""


class NodeEnd(_Event, frozen=True, kw_only=True, tag="node_end"):
    """A node finished or failed; `cached` when its function was not called, `error` with why it failed.

    `step` counts the supersteps of its graph before this one, and `writes` names the fields of the state that it
    updates. `title` is its name for people, if it has one.
    """

    node: str
    seconds: float = 0.0
    cached: bool = False
    title: str = ""
    step: int = 0
    writes: tuple[str, ...] = ()
    error: str | None = None


class CheckpointSaved(_Event, frozen=True, kw_only=True, tag="checkpoint"):
    """A checkpoint was stored."""

    checkpoint_id: str
    source: str = ""
    step: int = 0


class Custom(_Event, frozen=True, kw_only=True, tag="custom"):
    """Data that user code emitted with `current().emit(data)`."""

    data: Any = None


class Interrupted(_Event, frozen=True, kw_only=True, tag="interrupt"):
    """The run paused with questions; the last event of its run. `agent` and `path` are those of the first question."""

    interrupts: tuple[Interrupt, ...] = ()
    checkpoint_id: str


class Done(_Event, frozen=True, kw_only=True, tag="done"):
    """The run ended; the last event of its run. `state` holds the fields of a graph's final state, by name.

    `steps` counts the supersteps of the turn, and `seconds` the time since this run, or its last resume, began.
    """

    output: str = ""
    usage: Usage | None = None
    state: Mapping[str, Any] | None = None  # Any: what the graph's schema has
    steps: int = 0
    seconds: float = 0.0


class Failed(_Event, frozen=True, kw_only=True, tag="error"):
    """The run failed and can be recovered; the last event of its run. `address` is where: a node or a tool, say."""

    error: str
    message: str


class Cancelled(_Event, frozen=True, kw_only=True, tag="cancelled"):
    """The run was stopped and can be recovered; the last event of its run."""

    mode: str = "now"


class ToolCallPiece(
    msgspec.Struct, Documented, frozen=True, kw_only=True, omit_defaults=True, repr_omit_defaults=True, gc=False
):
    """A piece of a tool call that a model is writing: `arguments` is the next piece of its JSON text.

    `index` is the call's place among the calls of its message. `id` and `name` are as far as the model has written
    them; the message may have another id if the model's was not unique.
    """

    index: int = 0
    id: str = ""
    name: str = ""
    arguments: str = ""


class Delta(_Event, frozen=True, kw_only=True, tag="delta", gc=False):
    """A piece of a model's answer as it arrives: text, reasoning or a tool call; or, with `call_id`, of tool output.

    `message_id` is the id that the answer will have.
    """

    # There are thousands of these, and none can be in a reference cycle: gc=False.

    text: str = ""
    reasoning: str = ""
    tool_call: ToolCallPiece | None = None
    message_id: str | None = None
    call_id: str | None = None


class ToolCalled(_Event, frozen=True, kw_only=True, tag="tool_call"):
    """A tool is about to run."""

    call: ToolCall


class NodeStart(_Event, frozen=True, kw_only=True, tag="node_start"):
    """A node begins. `step` counts the supersteps of its graph before; `title` is its name for people, if any."""

    node: str
    attempt: int = 1
    title: str = ""
    step: int = 0


class Retrying(_Event, frozen=True, kw_only=True, tag="retry"):
    """Something failed and will be tried again after `delay` seconds; discard the partial text it produced."""

    attempt: int
    max_attempts: int
    delay: float
    error: str


class Progress(_Event, frozen=True, kw_only=True, tag="progress"):
    """How far a long task has come, as `current().progress()` reports it.

    `fraction` is the part that is done, from 0 to 1, where the total is known.
    """

    message: str = ""
    fraction: float | None = None
    done: float | None = None
    total: float | None = None


Event: TypeAlias = (
    MessageEvent
    | ToolResult
    | Transfer
    | Exit
    | BreakLoop
    | NodeEnd
    | CheckpointSaved
    | Custom
    | Interrupted
    | Done
    | Failed
    | Cancelled
    | Delta
    | ToolCalled
    | NodeStart
    | Retrying
    | Progress
)
Final: TypeAlias = Interrupted | Done | Failed | Cancelled
FINAL = (Interrupted, Done, Failed, Cancelled)
"""The events that end a run."""

_CARRY_DATA = (Custom, Interrupted, Done)
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Event)


def is_muted(event: Event) -> bool:
    """Return whether an event is only in the log and never sent to readers."""
    return type(event) is ToolResult and event.muted


def to_json(event: Event) -> bytes:
    """Return the event as JSON; user data in it keeps its types through the codec's tags."""
    return _encoder.encode(lowered(event) if isinstance(event, _CARRY_DATA) else event)


def lowered(event: Event) -> Event:
    """Return the event with its user data as JSON data."""
    return _map_data(event, codec.lower)


def without_secrets(event: Event) -> Event:
    """Return the event without the values of secrets; user data in it has none, since it was adopted."""
    return event if isinstance(event, _CARRY_DATA) else known.hide_in_struct(event)


def from_json(body: bytes | str) -> Event:
    """Return the event that `to_json` encoded."""
    return _map_data(_decoder.decode(body), codec.lift)


def _map_data(event: Event, change: Any) -> Event:  # Any: codec.lower or codec.lift
    match event:
        case Custom():
            return msgspec.structs.replace(event, data=change(event.data))
        case Interrupted():
            interrupts = tuple(map_interrupt(interrupt, change) for interrupt in event.interrupts)
            return msgspec.structs.replace(event, interrupts=interrupts)
        case Done(state=Mapping() as state):
            return msgspec.structs.replace(event, state=change(dict(state)))
        case _:
            return event


def map_interrupt(interrupt: Interrupt, change: Any) -> Interrupt:  # Any: codec.lower or codec.lift
    """Return the interrupt with its user data lowered or lifted, parents included."""
    parent = map_interrupt(interrupt.parent, change) if interrupt.parent else None
    return msgspec.structs.replace(interrupt, info=change(interrupt.info), parent=parent)


__all__ = [
    "BreakLoop",
    "Cancelled",
    "CheckpointSaved",
    "Custom",
    "Delta",
    "Done",
    "Event",
    "Exit",
    "Failed",
    "Interrupt",
    "Interrupted",
    "MessageEvent",
    "NodeEnd",
    "NodeStart",
    "Progress",
    "Retrying",
    "ToolCallPiece",
    "ToolCalled",
    "ToolResult",
    "Transfer",
    "from_json",
    "to_json",
]
