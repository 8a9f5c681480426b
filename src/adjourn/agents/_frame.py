"""The frame of an agent: a graph's frame whose state is a transcript and the agent's progress.

`TranscriptFrame` knows which agents share a transcript, which list each writes to, and what has not joined it yet.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from typing import Annotated, Any, TypedDict, cast

from msgspec import UNSET
from msgspec.structs import replace

from adjourn._calls.approval import IN_SESSION
from adjourn._engine.address import address_of
from adjourn._engine.frame import UserFrame
from adjourn._engine.program import Report
from adjourn._engine.record import GraphImage, UserImage
from adjourn._engine.scope import Audience, Frame, Request, Scope
from adjourn._engine.values import GONE, lift_values
from adjourn.errors import CheckpointCorrupt, ProgramChanged, UsageError
from adjourn.events import Event, ToolResult
from adjourn.graph._channels import Changes
from adjourn.graph._frame import Task
from adjourn.graph._node import Plan, Send
from adjourn.graph._supersteps import GraphFrame
from adjourn.graph.commands import Overwrite
from adjourn.graph.reducers import append, merge
from adjourn.graph.schema import Schema
from adjourn.messages import Message, ToolCall

from ._config import AgentConfig, input_messages, value_of
from ._nodes import CallNode, MemberNode, call_number
from ._transcript import Edited, Ending, Progress, Said, TranscriptEntry, View, said_by_dormant, unanswered

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

    def __init__(self, agent: AgentConfig, plan: Plan, scope: Scope, parent: Frame | None, segment: str) -> None:
        super().__init__(plan, scope, parent, segment)
        self.agent = agent
        self.above = above = _agent_above(parent)
        self.is_apart = above is not None and (above.runs_apart or not _is_member(parent))
        # None if it is its own owner: a reference cycle would leave every agent's session to the garbage collector.
        self._owner: TranscriptFrame | None = None if above is None or self.is_apart else above.owner
        self.view = View(agent.name, _prompters(self))

    @property
    def owner(self) -> TranscriptFrame:
        """The frame that owns the transcript this agent writes to."""
        return self._owner or self

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
        """Add messages to the transcript that this frame owns, or replace it."""
        messages = input_messages(given.value if isinstance(given, Overwrite) else given, self.agent.name)
        known: list[TranscriptEntry] = self.fields.values["entries"]
        authors = {entry.message.id: entry.author for entry in known if entry.message is not None}
        entries = [
            self.entry(self.identified(each), "" if each.role == "user" else authors.get(each.id)) for each in messages
        ]
        waiting = {frame: frame.calls for frame in _sharing(self) if any(map(_runs_calls, frame.tasks))}
        if not isinstance(given, Overwrite):
            self._check_order(waiting.values())
            self.extend(entries)
            return
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


def _values_below(frame: Frame) -> Iterator[Mapping[str, Any]]:
    """Give the session values that were written in a frame and in those below it, live or dormant."""
    yield frame.values or {}
    if isinstance(frame, UserFrame):
        yield from [lift_values(memo.writes) for memo in (frame.memos or {}).values() if memo.writes]
    for child in frame.live_children():
        yield from _values_below(child)
    for _, image in frame.scope.dormant.all_below(frame.path):
        yield lift_values({} if image.values is UNSET else image.values)
        if isinstance(image, UserImage):
            yield from [lift_values(memo.writes) for memo in image.memos.values() if memo.writes]


def _is_member(parent: Frame | None) -> bool:
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


# Overrides are documented on the base class.


HOOKS = "~setup"
"""The segment of an agent's `before_agent` hooks."""

# Names of session values that tasks leave for their agent only; user-defined names cannot start with "~".
ACTION = "~action"
"""The action that a tool or the agent's code requested for when it has returned."""

FULL = "~full:"
"""Prefix for the full result of a call that is emitted later, if the model only reads a part of it."""


class AgentState(TypedDict, total=False):
    """The recorded state of an agent; `states` are those that the graph agents in its tree continue from."""

    entries: Annotated[list[TranscriptEntry], append]
    progress: Progress
    endings: Annotated[dict[str, Ending], merge]
    active: list[str]
    states: dict[str, Any]


SCHEMA = Schema(AgentState)


def _consists_of(values: object, kind: type) -> bool:
    return type(values) is list and all(type(value) is kind for value in cast("list[object]", values))


class AgentFrame(TranscriptFrame):
    """A running agent. Each kind of agent defines how a turn begins (`first`) and, with its nodes, how it continues."""

    emits: bool = True
    hooks: UserFrame | None = None
    _is_heard: bool | None = None

    def __init__(self, agent: AgentConfig, plan: Plan, scope: Scope, parent: Frame | None, segment: str) -> None:
        super().__init__(agent, plan, scope, parent, segment)
        self.actions: list[Request] = []
        self.fulls: dict[str, str] = {}
        self.since = time.monotonic()

    def restore(self, image: GraphImage) -> None:
        """Restore the stored frame.

        Raises:
            CheckpointCorrupt: its state is not that of an agent.
        """
        super().restore(image)
        values = self.fields.values
        if (
            type(values.get("progress")) is not Progress
            or not _consists_of(values.get("entries"), TranscriptEntry)
            or not _consists_of(values.get("active"), str)
            or type(values.get("endings")) is not dict
            or not _consists_of(list(values["endings"].values()), Ending)
            or type(values.get("states", {})) is not dict
        ):
            raise CheckpointCorrupt(f"what is stored at '{self.address}' is not the state of an agent")

    # Defined by each kind of agent

    async def prepare(self) -> bool:
        """Prepare to run in this process; return False if that waits for an answer."""
        return True

    def first(self) -> list[Send]:
        """Return what a turn begins with."""
        raise NotImplementedError

    def last(self, ending: Ending) -> list[Send]:
        """Return what follows when the agent has ended."""
        return []

    def check_action(self, action: Request) -> None:
        """Raise if the agent cannot do this."""
        if action.name == "transfer":
            raise UsageError(
                f"Agent '{self.agent.name}' cannot hand over to '{action.arguments['target']}': it has no sub-agents."
            )

    def member_ended(self, task: Task, child: AgentFrame) -> None:
        """Record how an agent below this one has ended."""
        ending = replace(child.progress.ending or Ending(), trail=child.progress.trail)
        task.writes = [("endings", {child.agent.name: ending}, True)]

    def member_failed(self, task: Task, child: AgentFrame, error: Exception) -> bool:
        """Continue although an agent below this one has failed; return False if this one fails with it."""
        return False

    def ending_of(self, agent: str) -> Ending:
        """Return how an agent below this one has ended."""
        return self.fields.values["endings"][agent]

    # A turn

    async def advance(self) -> bool:
        return await self.prepare() and await super().advance()

    def begin(self, input: Any) -> None:
        messages, around = input_messages(input, self.agent.name), agent_around(self.parent)
        trail = (*(around.progress.trail if around else ()), self.agent.name)
        fields = self.fields
        if not fields.values:
            fields.set("entries", [])
            fields.set("active", [])
            fields.set("progress", Progress())
        # The model that answered last is asked first in the next turn, too.
        fields.set("progress", Progress(trail=trail, model=self.progress.model))
        fields.set("endings", {})
        self.actions, self._used, self.since = [], set(), time.monotonic()
        self.end_hooks()
        if messages:
            self.owner.join([self.entry(message, around.agent.name if around else "") for message in messages])
        self.tasks, self.routings, self.finished, self.ended = [], [], [], []
        self.begin_steps()
        self.phase = "route"
        self.targets = self.first()
        self.settle()
        self.scope.mark(self)

    def end(self, ending: Ending) -> list[Send]:
        """End the agent; return what follows, which is either nothing or the hooks that see how it ended."""
        if self.progress.ending is not ending:
            self.set_progress(ending=ending)
        following = self.last(ending)
        if not following:
            self.end_hooks()
        return following

    def end_hooks(self) -> None:
        """Drop the questions and memos of the agent's `before_agent` hooks: they will not run again in this turn."""
        if self.hooks is not None:
            self.hooks.drop()
            self.hooks = None

    # What its tasks leave for it

    def accept(self, request: Request) -> str | None:
        self.check_action(request)
        return ACTION

    def next_action(self) -> Request | None:
        """Return the first action requested in the superstep that has ended; any others are dropped."""
        actions, self.actions = self.actions, []
        return actions[0] if actions else None

    def merge_values(self, values: Mapping[str, Any]) -> None:
        kept = dict(values)
        if (action := kept.pop(ACTION, None)) is not None:
            self.actions.append(Request(**action))
        for key in [key for key in kept if key.startswith(FULL)]:
            self.fulls[key.removeprefix(FULL)] = kept.pop(key)
        for key in [key for key in kept if key.startswith(ENTRIES)]:
            self.owner.join(cast("list[TranscriptEntry]", kept.pop(key)))
        if kept:
            super().merge_values(kept)

    @property
    def values(self) -> dict[str, Any]:
        if self.is_apart and self.progress.ending is not None and self.fields.values["entries"]:
            # Changes of its view end here: it did not see the entries of parallel agents, which join before its own.
            said = [entry for entry in self.fields.values["entries"] if entry.seen_as is None]
            return {**self._values, f"{ENTRIES}{self.path}": said}
        return self._values

    # Emitting

    @property
    def audience(self) -> Audience:
        if self._is_heard is None:
            around = agent_around(self.parent)
            self._is_heard = self.emits and (around is None or around.audience.hears)
        return Audience(self.agent.name, self.progress.trail, self._is_heard)

    def emit(self, event: Event) -> None:
        """Emit a durable event of this agent."""
        if not self.scope.logs_events:
            return
        name, path, hears = self.audience
        if hears:
            self.scope.journal.emit(replace(event, agent=name, path=path))
        elif isinstance(event, ToolResult) and event.full is not None:
            self.scope.journal.emit(replace(event, agent=name, path=path, muted=True))

    def emit_live(self, event: Event) -> None:
        """Emit a live event of this agent."""
        if self.scope.has_reader and self.audience.hears:
            self.scope.journal.emit_live(replace(event, agent=self.agent.name, path=self.progress.trail))

    # Showing

    def report(self) -> Report:
        ending, messages = self.progress.ending or Ending(), Said(self.owner.whole())
        state = {
            "messages": messages,
            "active": list(self.fields.values["active"]),
            "values": {key: value for key, value in self._values.items() if not key.startswith("~")},
            "approvals": list(self._approved().values()),
        }
        value = None if ending.value is None else value_of(self.agent, ending)
        return Report(output=ending.output, value=value, messages=messages, state=state)

    def _approved(self) -> dict[str, Any]:
        """Return what was approved for the session, here and below, by the names of the session values."""
        found: dict[str, Any] = {}
        for values in _values_below(self):
            found.update({key: value for key, value in values.items() if key.startswith(IN_SESSION)})
        return {key: value for key, value in found.items() if value is not GONE}

    def product(self) -> Any:
        # The value is kept as JSON, since a store may not know its type. See `Agent.convert_product`.
        ending = self.progress.ending or Ending()
        return ending.output if ending.value is None else Ending(output=ending.output, value=ending.value, of=ending.of)

    def following(self) -> tuple[str, ...]:
        tasks = self.tasks
        calls = self.calls if tasks and isinstance(tasks[0].node, CallNode) else ()
        if calls:
            names = [calls[call_number(task) - 1].name for task in tasks]
        else:
            names = [task.node.name for task in tasks] or [node.name for node, _ in self.targets]
        return tuple(names if len(names) < 2 else dict.fromkeys(names))

    # Editing

    def abandon(self) -> None:
        whole = self.whole(closing=True)
        self.join(whole[len(self.fields.values["entries"]) :])
        super().abandon()

    def supply(self, state: Mapping[str, Any]) -> None:
        raise UsageError(f"'{self.agent.name}' is an agent: pass session values with `values`, not `state`.")

    def edit(self, values: Mapping[str, Any], as_node: str | None) -> None:
        if as_node is not None:
            raise UsageError(f"as_node={as_node!r}: '{self.agent.name}' is an agent, and its nodes cannot be named.")
        unknown = set(values) - {"messages", "values", "approvals"}
        if unknown:
            raise UsageError(
                f"An agent's state has no '{', '.join(sorted(unknown))}' to edit. It has: messages, values, approvals."
            )
        if not isinstance(values.get("values", {}), Mapping):
            raise UsageError(f"values={values['values']!r}: give a mapping of session values.")
        self.set_values(values.get("values", {}))
        if "approvals" in values:
            self._revoke(values["approvals"])
        self.scope.mark(self)
        if "messages" in values:
            self.owner.edit_messages(values["messages"])

    def _revoke(self, left: Any) -> None:
        """Forget what was approved for the session but for what is `left`."""
        approved = self._approved()
        kept = cast("list[Any]", left) if isinstance(left, list | tuple) else None
        if kept is None or any(each not in approved.values() for each in kept):
            raise UsageError(f"approvals={left!r}: give a list of those in the agent's state that are to stay.")
        gone = {key for key, value in approved.items() if value not in kept}
        if gone:
            self.drop_values(gone.__contains__)
            self.merge_values(dict.fromkeys(gone, GONE))

    # Records

    @property
    def has_tasks_alone(self) -> bool:
        return self.hooks is None

    def live_children(self) -> Iterable[Frame]:
        return super().live_children() if self.hooks is None else [self.hooks, *super().live_children()]

    def task_at(self, segment: str) -> Task | None:
        if segment == HOOKS:
            return None  # The frame of the hooks, which is not a task.
        node = next((node for node in self.plan.nodes.values() if node.segment == segment), None)
        if node is None:
            raise ProgramChanged(
                address_of(f"{self.path};{segment}"), f"agent '{self.agent.name}' has no '{segment}' any more"
            )
        return Task(self, node)

    def is_pausing(self) -> bool:
        return False
