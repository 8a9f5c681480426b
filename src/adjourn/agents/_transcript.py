"""What is recorded of agents: the transcript, each agent's view of it, and its progress.

The transcript only grows. Changing a tool call's arguments, or an agent's view of the conversation, adds an entry that
says so; the original stays on record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, cast

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from adjourn._engine.record import Image, UserImage, join
from adjourn._engine.scope import Scope
from adjourn._values import codec
from adjourn._values.registry import native
from adjourn.messages import Message, ToolCall
from adjourn.sessions._contents import Edited, TranscriptEntry, amend, conversation, has_call, with_edit


class Ending(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="$t", tag="ending", gc=False):
    """How an agent ended: its text (and JSON `value`, of the type of agent `of`), and what the agents above must do.

    An `action` is `exit`, `break_loop` or `transfer` (back to `target`); `trail` has the agents that the turn went
    through.
    """

    output: str = ""
    value: Any = None  # Any: JSON of the agent's output type
    of: str = ""
    action: str | None = None
    target: str = ""
    trail: tuple[str, ...] = ()


class Progress(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="$t", tag="progress", gc=False):
    """How far an agent has come in this turn.

    `start` is the index in the transcript at which a custom agent began, `batch` that of the message whose tool
    calls are being answered, `rounds` counts the rounds of a loop, `model` is the index of the model that answered
    last, `said` is what people said together with answers, for the model to read after the results of its calls,
    `misfits` counts answers that did not fit the output type, `trail` has the agents that the turn went through,
    `requested` is what the nodes of a graph agent want done when the graph has ended.
    """

    model_calls: int = 0
    tool_calls: int = 0
    tokens: int = 0
    seconds: float = 0.0
    start: int = 0
    batch: int = -1
    rounds: int = 0
    model: int = 0
    said: tuple[Message, ...] = ()
    misfits: int = 0
    trail: tuple[str, ...] = ()
    ending: Ending | None = None
    requested: Ending | None = None


native(Ending)
native(Progress)


class View:
    """One agent's view of a transcript, updated as entries are added: its own messages, and others' as context.

    `prompters` are the authors whose messages in the role of a user are meant for it.
    """

    def __init__(self, agent: str, prompters: tuple[str, ...] = ("",)) -> None:
        self.agent = agent
        self.prompters = prompters
        self.messages: list[Message] = []
        self._read: list[int] = []
        self._others: dict[int, TranscriptEntry] = {}
        """Other agents' tool calls by index: their messages change when their arguments are edited."""

    def update(self, sources: Sequence[list[TranscriptEntry]]) -> list[Message]:
        """Read new entries of the lists that make up the transcript, outermost first, and return all messages."""
        self._read += [0] * (len(sources) - len(self._read))
        if len(sources) > 1 and self._has_grown_before_the_end(sources):
            self.messages, self._others, self._read = [], {}, [0] * len(sources)
        for number, entries in enumerate(sources):
            for entry in entries[self._read[number] :]:
                self._read_entry(entry)
            self._read[number] = len(entries)
        return self.messages

    def last_prompt(self, sources: Sequence[list[TranscriptEntry]]) -> Message | None:
        """Return the most recent prompt: from the user, the agent's caller, or an agent above that prompts it."""
        for entries in reversed(sources):
            for entry in reversed(entries):
                if entry.message is not None and entry.message.role == "user" and entry.author in self.prompters:
                    return entry.message
        return None

    def _has_grown_before_the_end(self, sources: Sequence[list[TranscriptEntry]]) -> bool:
        """Return whether a list has new entries that come before some that were read."""
        new = [len(entries) > read for entries, read in zip(sources, self._read, strict=True)]
        return True in new and any(self._read[new.index(True) + 1 :])

    def _read_entry(self, entry: TranscriptEntry) -> None:
        if entry.seen_as is not None:
            if entry.author == self.agent:
                self.messages = [*self.messages[: entry.seen_from], *entry.seen_as]
                self._others = {place: other for place, other in self._others.items() if place < entry.seen_from}
        elif entry.edited is not None:
            self._amend(entry.edited, entry.author)
        elif entry.message is not None and self._is_direct(entry, entry.message):
            self.messages.append(entry.message)
        elif entry.message is not None:
            if entry.message.tool_calls:
                self._others[len(self.messages)] = entry
            self.messages.append(as_context(entry.message, entry.author))

    def _is_direct(self, entry: TranscriptEntry, message: Message) -> bool:
        return entry.author in ("", self.agent) or (message.role == "user" and entry.author in self.prompters)

    def _amend(self, edited: Edited, author: str) -> None:
        if author == self.agent:
            amend(self.messages, edited)
            return
        for place, entry in reversed(self._others.items()):
            if entry.author == author and entry.message is not None and has_call(entry.message, edited):
                said = with_edit(entry.message, edited)
                self._others[place] = replace(entry, message=said)
                self.messages[place] = as_context(said, author)
                return


def as_context(message: Message, author: str) -> Message:
    """Return another agent's message, call or result as a message that gives this agent context."""
    if message.role == "tool":
        return Message.user(f"For context: tool '{message.name}' gave {author}: {message.text}")
    if message.role == "user":
        return Message.user(f"For context: {author} wrote: {message.text}")
    said = [f"For context: {author} said: {message.text}"] if message.text else []
    said += [f"For context: {author} called tool '{call.name}' with {_written(call)}" for call in message.tool_calls]
    return Message.user("\n".join(said) or f"For context: {author} said nothing.")


def _written(call: ToolCall) -> str:
    return msgspec.json.encode(call.arguments).decode() if call.raw is None else call.raw


def unanswered(entries: Sequence[TranscriptEntry]) -> list[tuple[str, ToolCall]]:
    """Return the tool calls without a result, each with its author."""
    # By author, too: agents that ran in parallel may use the same ids.
    calls: dict[tuple[str, str], ToolCall] = {}
    for entry in entries:
        if entry.message is None:
            continue
        for call in entry.message.tool_calls:
            calls[entry.author, call.id] = call
        if entry.message.tool_call_id is not None:
            calls.pop((entry.author, entry.message.tool_call_id), None)
    return [(author, call) for (author, _), call in calls.items()]


class Said(Sequence[Any]):  # Any: of messages; a slice of them is a list
    """The messages of a transcript as it is now, computed when they are first needed."""

    def __init__(self, entries: list[TranscriptEntry]) -> None:
        self._entries = entries
        self._count = len(entries)

    @cached_property
    def _messages(self) -> list[Message]:
        return conversation(self._entries[: self._count])

    def __len__(self) -> int:
        return len(self._messages)

    def __getitem__(self, place: Any) -> Any:
        return cast("Any", self._messages[place])

    def __eq__(self, other: object) -> bool:
        return self._messages == (other._messages if isinstance(other, Said) else other)

    __hash__ = None  # pyright: ignore[reportAssignmentType]  # as for any list

    def __repr__(self) -> str:
        return repr(self._messages)


# Agents started by code: their kind is unknown until the code runs again, so their records are read directly.


def with_messages(entry: TranscriptEntry, changed: Mapping[str | None, Message]) -> TranscriptEntry:
    """Return an entry with other messages in place of those with the same ids."""
    if entry.message is not None and entry.message.id in changed:
        message = changed[entry.message.id]
        return replace(entry, message=message, author="" if message.role == "user" else entry.author)
    if entry.seen_as is not None:
        return replace(entry, seen_as=tuple(changed.get(each.id, each) for each in entry.seen_as))
    return entry


def said_by_dormant(scope: Scope, path: str) -> list[TranscriptEntry]:
    """Return the entries of dormant agents directly below a task, and of the agents below those."""
    found: list[TranscriptEntry] = []
    for segment in scope.dormant.below(path):
        agent = f"{path};{segment}"
        pieces = scope.dormant.pieces.get(agent, {})
        if "entries" not in pieces or "progress" not in pieces:
            continue
        found += _entries(codec.decode(join(pieces["entries"])))
        for below, image in scope.dormant.below(agent).items():
            found += _written_entries(image)
            if not below.startswith("tool:"):  # Agents that a tool starts have their own transcript.
                found += said_by_dormant(scope, f"{agent};{below}")
    return found


def _written_entries(task: Image) -> list[TranscriptEntry]:
    """Return entries that a task has written and that wait for the rest of its superstep."""
    if not isinstance(task, UserImage) or task.writes is UNSET:
        return []
    return [entry for name, raw in task.writes if name == "entries" for entry in _entries(codec.decode(raw))]


def _entries(value: Any) -> list[TranscriptEntry]:
    return [each for each in value if isinstance(each, TranscriptEntry)]
