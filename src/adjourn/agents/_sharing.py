"""The frames of agents that share a transcript: which list each writes to, and what has not joined it yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from typing import Any

from msgspec.structs import replace

from adjourn._engine.entry import SAID
from adjourn._engine.frame import UserFrame
from adjourn._engine.scope import Frame, Scope
from adjourn._engine.values import lift_values
from adjourn.errors import UsageError
from adjourn.graph._channels import Changes
from adjourn.graph._frame import GraphFrame, Task
from adjourn.graph._node import Plan
from adjourn.graph.commands import Overwrite
from adjourn.messages import Message, ToolCall
from adjourn.sessions._contents import has_call

from ._config import AgentConfig, input_messages
from ._nodes import CallNode, MemberNode
from ._transcript import Edited, Progress, TranscriptEntry, View, said_by_dormant, unanswered, with_messages

ABANDONED = "This call was given up before it had a result."
"""The placeholder for a missing result when a turn is abandoned."""

ENTRIES = "~entries:"
"""Prefix of the session values in which an agent that writes apart hands up its entries."""


class TranscriptFrame(GraphFrame):
    """The frame of an agent that takes part in a transcript.

    A transcript belongs to one frame: that of the run's root, or of an agent that was started afresh, such as a tool.
    Agents in the tree of another agent write to the same transcript. An agent that runs in parallel with others writes
    apart: it sees what was said before, and its entries join the transcript when it has ended.

    `runs_apart`: the agents below it run in parallel. `prompts`: what it says in the role of a user is meant for them.
    """

    runs_apart: bool = False
    prompts: bool = False
    _used: set[str] | None = None
    above: TranscriptFrame | None

    def __init__(self, agent: AgentConfig, plan: Plan, scope: Scope, parent: Frame | None, segment: str) -> None:
        super().__init__(plan, scope, parent, segment)
        self.agent = agent
        self.above = above = _agent_above(parent)
        self.is_apart: bool = above is not None and (above.runs_apart or not is_member(parent))
        # None if it is its own owner: a reference cycle would leave every agent's session to the garbage collector.
        self._owner: TranscriptFrame | None = None if above is None or self.is_apart else above.owner
        self.view: View = View(agent.name, _prompters(self))

    @property
    def owner(self) -> TranscriptFrame:
        """The frame that owns the transcript this agent writes to."""
        return self._owner or self

    @property
    def is_run_by_code(self) -> bool:
        """Whether the code of the agent above runs it."""
        return self.above is not None and not is_member(self.parent)

    @property
    def sources(self) -> list[list[TranscriptEntry]]:
        """The lists that make up the transcript as this agent sees it, outermost first."""
        owner = self.owner
        own: list[TranscriptEntry] = owner.fields.values["entries"]
        return [*owner.above.sources, own] if owner.is_apart and owner.above is not None else [own]

    def last_prompt(self) -> Message | None:
        """Return the most recent prompt: from the user, the agent's caller, or an agent above that prompts it."""
        for entries in reversed(self.sources):
            for entry in reversed(entries):
                if entry.message is not None and entry.message.role == "user" and entry.author in self.view.prompters:
                    return entry.message
        return None

    @property
    def progress(self) -> Progress:
        """The agent's progress in this turn."""
        return self.fields.values["progress"]

    def entry(self, message: Message, author: str | None = None) -> TranscriptEntry:
        """Return a message of this agent (or of `author`) as an entry; it gets an id when it joins the transcript."""
        return TranscriptEntry(
            author=self.agent.name if author is None else author, turn=self.scope.turn, message=message
        )

    def edit_entry(self, edited: Edited) -> TranscriptEntry:
        """Return an entry that changes the arguments of one of this agent's calls."""
        return TranscriptEntry(author=self.agent.name, turn=self.scope.turn, edited=edited)

    def commit_changes(self, changes: Changes) -> None:
        entries = changes.tails.pop("entries", None)
        super().commit_changes(changes)
        if entries:
            self.owner.extend(entries)

    def extend(self, entries: Iterable[TranscriptEntry]) -> None:
        """Add to the transcript that this frame owns; messages with ids have been through `identified` already."""
        mine: list[TranscriptEntry] = self.fields.grow("entries")
        for entry in entries:
            message = entry.message
            if message is not None and message.id is None:
                mine.append(replace(entry, message=self.identified(message)))
            else:
                mine.append(entry)
            if message is not None and message.tool_calls and self._used is not None:
                self._used.update([call.id for call in message.tool_calls])
        self.scope.mark(self)

    def join(self, entries: list[TranscriptEntry]) -> None:
        """Add entries from elsewhere, keeping the ids they have."""
        self.pass_ids(entries)
        self.extend(entries)

    def hear(self, messages: list[Message], author: str) -> None:
        """Add the messages that a turn begins with.

        Raises:
            UsageError: what an agent said is among them, and is in the transcript already.
        """
        for message in messages:
            known = self._with_id(message.id)
            if (
                known is not None
                and message.role != "user"
                and (known.role, known.text) == (message.role, message.text)
            ):
                raise UsageError(
                    f"The session has the message '{message.id}' of the {message.role} already. A session remembers "
                    "what was said: give only the new messages, or begin another session with all of them."
                )
        self.join([self.entry(self.as_new(message), author) for message in messages])

    def as_new(self, message: Message) -> Message:
        """Return a message without its id if the transcript has another one with that."""
        return message if self._with_id(message.id) is None else replace(message, id=None)

    def _with_id(self, message_id: str | None) -> Message | None:
        if message_id is None:
            return None
        entries: list[TranscriptEntry] = self.fields.values["entries"]
        found = (each.message for each in reversed(entries) if each.message is not None)
        return next((each for each in found if each.id == message_id), None)

    def pass_ids(self, entries: Iterable[TranscriptEntry]) -> None:
        """Continue counting after the ids of entries from elsewhere that are about to join."""
        self.pass_message_ids([entry.message.id for entry in entries if entry.message and entry.message.id])

    def identified(self, message: Message) -> Message:
        """Return a message with an id in the transcript that this frame owns."""
        if message.id is not None:
            self.pass_message_ids([message.id])
            return message
        # Record the counter with the message, even though that may stay in a task until its siblings have ended.
        self.scope.mark(self)
        return message.with_id(self.new_message_id())

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls that the agent is answering."""
        entries: list[TranscriptEntry] = self.owner.fields.values["entries"]
        batch = self.progress.batch
        message = entries[batch].message if 0 <= batch < len(entries) else None
        return () if message is None else message.tool_calls

    def used_ids(self) -> set[str]:
        """Return the ids of the tool calls made in this turn, in the transcript that this frame owns."""
        if self._used is None:
            turn, entries = self.scope.turn, reversed(self.fields.values["entries"])
            recent = takewhile(lambda entry: entry.turn == turn, entries)
            self._used = {call.id for entry in recent if entry.message for call in entry.message.tool_calls}
        return self._used

    def set_progress(self, **changes: Any) -> None:
        """Update the agent's progress."""
        self.fields.set("progress", replace(self.progress, **changes))
        self.scope.mark(self)

    def set_active(self, names: list[str]) -> None:
        """Record which agents below this one have the turn."""
        if self.fields.values["active"] != names:
            self.fields.set("active", names)
            self.scope.mark(self)

    # Entries that have not joined yet

    def whole(self, *, closing: bool = False) -> list[TranscriptEntry]:
        """Return the transcript of this owner, with the entries below it that have not joined yet.

        With `closing`, calls without a result get a placeholder, right after the results of their batch.
        """
        entries: list[TranscriptEntry] = self.fields.values["entries"]
        own, apart = list[TranscriptEntry](), list[TranscriptEntry]()
        _collect(self, own, apart, closing)
        if closing:
            own += self.placeholders([*entries, *own])
        return [*entries, *own, *apart] if own or apart else entries

    def placeholders(self, entries: list[TranscriptEntry]) -> list[TranscriptEntry]:
        """Return placeholder results for the calls among these entries that have none."""
        return [
            self.entry(Message.tool(ABANDONED, tool_call_id=call.id, name=call.name), author)
            for author, call in unanswered(entries)
        ]

    # Editing

    def edit_messages(self, given: Any) -> None:
        """Change the transcript that this frame owns: replace it, or add messages, or those that have the same ids."""
        messages = input_messages(given.value if isinstance(given, Overwrite) else given, self.agent.name)
        known: list[TranscriptEntry] = self.fields.values["entries"]
        authors = {entry.message.id: entry.author for entry in known if entry.message is not None}
        waiting = {frame: frame.calls for frame in _sharing(self) if any(map(_runs_calls, frame.tasks))}
        if isinstance(given, Overwrite):
            self._set_entries([self._edited(each, authors) for each in messages], waiting)
            return
        changed = {each.id: each for each in messages if each.id in authors}
        added = [self._edited(each, authors) for each in messages if each.id not in authors]
        if added:
            self._check_order(waiting.values())
        if changed:
            self._set_entries([with_messages(entry, changed) for entry in _without_edits(known, changed)], waiting)
        self.extend(added)

    def _edited(self, message: Message, authors: Mapping[str | None, str]) -> TranscriptEntry:
        return self.entry(self.identified(message), "" if message.role == "user" else authors.get(message.id))

    def _set_entries(
        self, entries: list[TranscriptEntry], waiting: Mapping[TranscriptFrame, tuple[ToolCall, ...]]
    ) -> None:
        places = {frame: _place(entries, calls) for frame, calls in waiting.items()}
        self.fields.set("entries", entries)
        self.scope.mark(self)
        for frame, place in places.items():
            frame.set_progress(batch=place)

    @staticmethod
    def _check_order(waiting: Iterable[tuple[ToolCall, ...]]) -> None:
        # Models reject a conversation with anything between calls and their results.
        ids = [call.id for calls in waiting for call in calls]
        if ids:
            raise UsageError(
                f"The tool calls {', '.join(ids)} are being answered: messages cannot be added before they have "
                "results. Answer them first, or abandon the turn: run(..., on_pending='abandon')."
            )


def _without_edits(
    entries: Iterable[TranscriptEntry], changed: Mapping[str | None, Message]
) -> Iterator[TranscriptEntry]:
    """Yield entries without those that edit a call of a changed message, which has the arguments that it shall have."""
    return (
        entry
        for entry in entries
        if entry.edited is None or not any(has_call(message, entry.edited) for message in changed.values())
    )


def is_member(parent: Frame | None) -> bool:
    """Return whether the frame below `parent` is an agent in the tree of the one above, not started by code."""
    return isinstance(parent, Task) and isinstance(parent.node, MemberNode)


def _runs_calls(task: Task) -> bool:
    return isinstance(task.node, CallNode)


def _agent_above(parent: Frame | None) -> TranscriptFrame | None:
    """Return the agent that the frame below `parent` shares a transcript with."""
    if isinstance(parent, Task) and isinstance(parent.graph, TranscriptFrame) and not _runs_calls(parent):
        return parent.graph
    return None


def _prompters(frame: TranscriptFrame) -> tuple[str, ...]:
    """Return the authors whose user messages are for an agent: the user, its caller, and agents that prompt it."""
    found, above = [""], frame.above
    while above is not None:
        found += [above.agent.name] if above.prompts else []
        above = above.above
    owner: TranscriptFrame | None = frame.owner
    while owner is not None:
        around = agent_around(owner.parent)
        found += [around.agent.name] if around is not None else []
        owner = owner.above.owner if owner.is_apart and owner.above is not None else None
    return tuple(found)


def agent_around(parent: Frame | None) -> TranscriptFrame | None:
    """Return the closest agent around `parent`, or `parent` itself if it is one."""
    while parent is not None and not isinstance(parent, TranscriptFrame):
        parent = parent.parent
    return parent


def _sharing(frame: TranscriptFrame) -> list[TranscriptFrame]:
    """Return an agent and those below it that write to the same transcript."""
    found = [frame]
    for task in frame.live_children():
        task.bind_dormant()
        for child in task.live_children():
            if isinstance(child, TranscriptFrame) and child.above is frame and not child.is_apart:
                found += _sharing(child)
    return found


def _place(entries: list[TranscriptEntry], calls: tuple[ToolCall, ...]) -> int:
    """Return the index of the message whose calls are being answered.

    Raises:
        UsageError: the entries do not have it.
    """
    wanted = [call.id for call in calls]
    for place in range(len(entries) - 1, -1, -1):
        message = entries[place].message
        if message is not None and [call.id for call in message.tool_calls] == wanted:
            return place
    raise UsageError(
        f"The tool calls {', '.join(wanted)} are being answered, but the messages lack the one that made them. "
        "Keep it, or abandon the turn first: run(..., on_pending='abandon')."
    )


def _collect(frame: TranscriptFrame, own: list[TranscriptEntry], apart: list[TranscriptEntry], closing: bool) -> None:
    """Collect entries from below an agent that are not in the transcript: results of a batch, and agents apart."""
    for task in frame.live_children():
        if not isinstance(task, Task):
            continue
        if task.status == "done":
            own += [entry for name, value, _ in task.writes if name == "entries" for entry in value]
        apart += _handed_up(task)
        task.bind_dormant()
        for child in task.live_children():
            if isinstance(child, TranscriptFrame) and child.above is frame:
                if child.is_apart:
                    apart += child.whole(closing=closing)
                else:
                    _collect(child, own, apart, closing)
        dormant = [] if _runs_calls(task) else said_by_dormant(frame.scope, task.path)
        apart += [*dormant, *frame.placeholders(dormant)] if closing else dormant


def _handed_up(task: Task) -> list[TranscriptEntry]:
    """Return the entries that ended agents apart left with a task, to join the transcript when it ends."""
    if task.status == "done":
        return [entry for key, value in (task.written or {}).items() if key.startswith(ENTRIES) for entry in value]
    kept = [lift_values(memo.writes) for memo in (task.memos or {}).values() if memo.writes]
    return [entry for values in kept for key, value in values.items() if key.startswith(ENTRIES) for entry in value]


def said_below(frame: TranscriptFrame) -> list[Message]:
    """Return what was said together with answers and is not in the transcript, because other answers are missing."""
    found = list(frame.progress.said)
    for child in frame.live_children():
        if not isinstance(child, UserFrame):
            continue
        said = {f"{SAID}{question.id}": question.message for question in child.questions or ()}
        said.update({key: value for key, value in (child.written or {}).items() if key.startswith(SAID)})
        found += filter(None, said.values())
        child.bind_dormant()
        for below in child.live_children():
            if isinstance(below, TranscriptFrame) and below.above is frame:
                found += said_below(below)
    return found
