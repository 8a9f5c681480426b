"""The transcript: everything that was said in a session, and what each agent sees of it.

It only grows. Who changes a tool call's arguments, or an agent's view of what was said, adds an entry that says so;
what stood there stays on record.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from adjourn.messages import Message, ToolCall
from adjourn.sessions._transcript import Edited, amend, conversation, has_call, with_edit
from adjourn.sessions._transcript import TranscriptEntry as Entry


class View:
    """What one agent sees of a transcript, kept up as entries are added: its own messages, and others' as context.

    `tellers` are those whose messages in the role of a user are meant for it.
    """

    def __init__(self, agent: str, tellers: tuple[str, ...] = ("",)) -> None:
        self.agent = agent
        self.tellers = tellers
        self.messages: list[Message] = []
        self._read: list[int] = []
        self._others: dict[int, Entry] = {}
        """What stands for others' tool calls, by its place: it changes when their arguments are edited."""

    def update(self, sources: Sequence[list[Entry]]) -> list[Message]:
        """Read what is new in the lists that the transcript consists of, the outermost first."""
        self._read += [0] * (len(sources) - len(self._read))
        for number, entries in enumerate(sources):
            for entry in entries[self._read[number] :]:
                self._take(entry)
            self._read[number] = len(entries)
        return self.messages

    def _take(self, entry: Entry) -> None:
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

    def _is_direct(self, entry: Entry, message: Message) -> bool:
        return entry.author in ("", self.agent) or (message.role == "user" and entry.author in self.tellers)

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
    """What another agent said, called or was given, as something that this one is told."""
    if message.role == "tool":
        return Message.user(f"For context: tool '{message.name}' gave {author}: {message.text}")
    if message.role == "user":
        return Message.user(f"For context: {author} wrote: {message.text}")
    said = [f"For context: {author} said: {message.text}"] if message.text else []
    said += [f"For context: {author} called tool '{call.name}' with {_written(call)}" for call in message.tool_calls]
    return Message.user("\n".join(said) or f"For context: {author} said nothing.")


def _written(call: ToolCall) -> str:
    return msgspec.json.encode(call.arguments).decode() if call.raw is None else call.raw


def unanswered(entries: Sequence[Entry]) -> list[tuple[str, ToolCall]]:
    """Tool calls without a result, with who made them."""
    # By who made them, too: agents that ran side by side may use the same ids.
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
    """The messages of a transcript as it is now, read when they are needed."""

    def __init__(self, entries: list[Entry]) -> None:
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
