"""The frame of an agent: a graph's frame with a transcript, a view of it, a turn, and the plan of the agent's kind."""

# Overrides are documented on the base class.

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import takewhile
from typing import Annotated, Any, TypedDict, cast

from msgspec import UNSET
from msgspec.structs import replace

from adjourn._calls.approval import IN_SESSION
from adjourn._engine.address import address_of
from adjourn._engine.entry import SAID
from adjourn._engine.frame import UserFrame
from adjourn._engine.program import Program, Report
from adjourn._engine.record import GraphImage, Question, UserImage
from adjourn._engine.scope import ACTION, OWN, Action, Audience, Frame, Scope
from adjourn._engine.values import GONE, lift_values
from adjourn.errors import CheckpointCorrupt, ProgramChanged, UsageError
from adjourn.events import Event, ToolResult
from adjourn.graph._channels import Changes
from adjourn.graph._frame import GraphFrame, MessageIds, Task
from adjourn.graph._node import Plan, Send
from adjourn.graph.commands import Overwrite
from adjourn.graph.reducers import append, merge
from adjourn.graph.schema import Schema
from adjourn.messages import Message, ToolCall
from adjourn.middleware.hooks import Hooks
from adjourn.sessions._contents import has_call

from ._config import AgentConfig, input_messages, value_of
from ._nodes import After, Call, CallNode, InnerNode, MemberNode, call_of, member_key
from ._transcript import (
    Ending,
    Progress,
    Said,
    TranscriptEntry,
    View,
    said_by_dormant,
    unanswered,
    with_messages,
)

HOOKS = "~setup"
"""The segment of an agent's `before_agent` hooks."""

ABANDONED = "This call was given up before it had a result."
"""The placeholder for a missing result when a turn is abandoned."""

# Names of session values that tasks leave for their agent only; user-defined names cannot start with "~".
OUTPUT = "~output"
"""The text with which the last agent that the code ran has ended."""

FULL = "~full:"
"""Prefix for the full result of a call that is emitted later, if the model only reads a part of it."""

ENTRIES = "~entries:"
"""Prefix of the session values in which an agent that writes apart hands up its entries."""


class AgentState(TypedDict, total=False):
    """The recorded state of an agent; `states` are those that the graph agents in its tree continue from."""

    entries: Annotated[list[TranscriptEntry], append]
    progress: Progress
    endings: Annotated[dict[str, Ending], merge]
    active: list[str]
    states: dict[str, Any]


SCHEMA = Schema(AgentState)
SCHEMA.types = {}  # These are the engine's own, and are not stored.


def _consists_of(values: object, kind: type) -> bool:
    return type(values) is list and all(type(value) is kind for value in cast("list[object]", values))


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


class AgentPlan(Plan):
    """What an agent of one kind does in a turn: its steps, its members, and what follows when one of them has ended.

    It is made once for each agent and holds no data of any run: its methods are given the frame.

    `runs_apart`: the agents below it run in parallel. `prompts`: what it says in the role of a user is meant for them.
    `hands_over`: it can hand over to its sub-agents, which can hand back. `is_transparent`: it only gives another agent
    a different name, and is not seen by it. `has_state`: it has a state that turns begin with, beside the conversation.
    `beside`: the segment of the frame below it that is not a task.
    """

    runs_apart: bool = False
    prompts: bool = False
    hands_over: bool = False
    is_transparent: bool = False
    has_state: bool = False
    acts_once = False  # Of an agent's parallel calls, the first one counts.
    beside: str = HOOKS

    def __init__(self, agent: AgentConfig) -> None:
        super().__init__(agent.name, SCHEMA)
        self.agent = agent

    def add(self, name: str, call: Call, after: After, kind: type[InnerNode] = InnerNode) -> InnerNode:
        """Add a step."""
        node = self.nodes[name] = kind(name, len(self.nodes), call, after)
        return node

    def add_member(self, agent: Program, after: After) -> MemberNode:
        """Add an agent."""
        node = self.nodes[member_key(agent.name)] = MemberNode(agent, len(self.nodes), after)
        return node

    # A turn

    def check_input(self, frame: AgentFrame, input: Any) -> None:
        """Raise if a turn cannot begin with this input."""

    def first(self, frame: AgentFrame) -> list[Send]:
        """Return what a turn begins with."""
        raise NotImplementedError

    def own_turn(self, frame: AgentFrame) -> list[Send]:
        """Return what the agent's own turn begins with, when no agent that it hands over to has it."""
        raise NotImplementedError

    def begin_state(self, frame: AgentFrame, input: Any, state: Mapping[str, Any]) -> None:
        """Begin a turn of what has the state."""
        raise NotImplementedError

    async def prepare(self, frame: AgentFrame) -> bool:
        """Prepare to run in this process; return False if that waits for an answer."""
        return True

    def last(self, frame: AgentFrame, ending: Ending) -> list[Send]:
        """Return what follows when the agent has ended."""
        return []

    # Agents and tasks below

    def check_action(self, frame: AgentFrame, action: Action) -> None:
        """Raise if the agent cannot do this."""
        if action.name == "transfer":
            raise UsageError(
                f"Agent '{self.name}' cannot hand over to '{action.arguments['target']}': it has no sub-agents."
            )

    def check_call(self, frame: AgentFrame, task: Task, question: Question) -> None:
        """Refuse an answer about a tool call that could not use it."""

    def member_ended(self, task: Task, child: AgentFrame) -> None:
        """Record how an agent below this one has ended."""
        ending = replace(child.progress.ending or Ending(), trail=child.progress.trail)
        task.writes = [("endings", {child.agent.name: ending}, True)]

    def member_failed(self, frame: AgentFrame, task: Task, child: AgentFrame, error: Exception) -> bool:
        """Continue although an agent below this one has failed; return False if this one fails with it."""
        return False

    def take_values(self, frame: AgentFrame, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Take what ended tasks have left for the agent among their session values, and return the rest."""
        return values

    def task_at(self, frame: AgentFrame, segment: str) -> Task | None:
        """Return a task of which the agent has several, at its segment; None if the segment is not that of one."""
        return None

    # What people see and change

    def report(self, frame: AgentFrame) -> Report:
        """Return what the agent shows now."""
        ending, messages = frame.progress.ending or Ending(), Said(frame.transcript.whole())
        state = {
            "messages": messages,
            "active": list(frame.fields.values["active"]),
            "values": {
                key: value for key, value in frame.values.items() if not key.startswith("~") or key.startswith(OWN)
            },
            "approvals": list(_approved(frame).values()),
        }
        value = None if ending.value is None else value_of(frame.agent, ending)
        return Report(output=ending.output, value=value, messages=messages, state=state)

    def following(self, frame: AgentFrame) -> tuple[str, ...]:
        """Return what runs next when there are no tasks."""
        targets = frame.routes.targets
        return tuple(dict.fromkeys(node.name for node, _ in targets)) if targets else ()

    def abandon(self, frame: AgentFrame) -> None:
        """Give up what is unfinished of the last turn; what was said stays."""
        transcript = frame.transcript
        whole = transcript.whole(closing=True)
        said = [frame.entry(message, "") for message in _said_below(frame)]
        transcript.join([*whole[len(transcript.entries) :], *said])
        frame.drop_superstep()
        frame.routes.begin()

    def supply(self, frame: AgentFrame, state: Mapping[str, Any]) -> None:
        """Add fields that the state lacks."""
        raise self.no_state()

    def no_state(self) -> UsageError:
        """Return why a state cannot be given."""
        return UsageError(
            f"'{self.name}' is an agent without a state: pass session values with `values`, which nodes and "
            "tools below it can read, too."
        )

    def edit(self, frame: AgentFrame, values: Mapping[str, Any], as_node: str | None) -> None:
        """Change by hand what the agent shows."""
        if as_node is not None:
            raise UsageError(f"as_node={as_node!r}: '{self.name}' is an agent, and its nodes cannot be named.")
        unknown = set(values) - {"messages", "values", "approvals"}
        if unknown:
            raise UsageError(
                f"An agent's state has no '{', '.join(sorted(unknown))}' to edit. It has: messages, values, approvals."
            )
        if not isinstance(values.get("values", {}), Mapping):
            raise UsageError(f"values={values['values']!r}: give a mapping of session values.")
        frame.set_values(values.get("values", {}))
        if "approvals" in values:
            _revoke(frame, values["approvals"])
        frame.scope.mark(frame)
        if "messages" in values:
            frame.transcript.edit_messages(values["messages"])


class Transcript:
    """What is said in a tree of agents: the entries of the frame that owns it, and how they grow.

    It belongs to one frame: that of the run's root, or of an agent that was started afresh, such as a tool. Agents in
    the tree of another agent write to the same transcript. An agent that runs in parallel with others writes apart: it
    has a transcript of its own, sees what was said in the one `before`, and its entries join that when it has ended.

    The entries are a field of the owner's state and only grow, so that a step stores its tail; a message has its id
    before it is added. Results of calls stay in their tasks until the whole superstep has ended: until then they are
    in `whole`, and not in `entries`. `_used` is computed when it is first needed in a turn, and has every call added
    since. The owner is held weakly: a cycle would leave every agent's session to the garbage collector.
    """

    __slots__ = ("_fields", "_scope", "_used", "before", "caller", "ids", "owner")

    def __init__(self, owner: AgentFrame, before: Transcript | None) -> None:
        around = agent_around(owner.parent)
        self.owner: Callable[[], AgentFrame] = cast("Any", weakref.ref(owner))
        """Returns the frame that it belongs to; no frame writes here that does not keep that one."""
        self._fields = owner.fields
        self.ids: MessageIds = owner.ids
        self._scope = owner.scope
        self._used: set[str] | None = None
        self.before: Transcript | None = before
        self.caller: str | None = None if around is None else around.agent.name

    @property
    def entries(self) -> list[TranscriptEntry]:
        """The entries that have joined it."""
        return self._fields.values["entries"]

    @property
    def sources(self) -> list[list[TranscriptEntry]]:
        """The lists that make up the conversation as an agent sees it that writes here, outermost first."""
        return [self.entries] if self.before is None else [*self.before.sources, self.entries]

    def begin_turn(self) -> None:
        """Note that no call was made in this turn yet."""
        self._used = set()

    def extend(self, entries: Iterable[TranscriptEntry]) -> None:
        """Add entries; messages with ids have been through `identified` already."""
        mine: list[TranscriptEntry] = self._fields.grow("entries")
        for entry in entries:
            message = entry.message
            if message is not None and message.id is None:
                mine.append(replace(entry, message=self.identified(message)))
            else:
                mine.append(entry)
            if message is not None and message.tool_calls and self._used is not None:
                self._used.update([call.id for call in message.tool_calls])
        self._scope.mark(self.owner())

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
        self.join([self.owner().entry(self.as_new(message), author) for message in messages])

    def as_new(self, message: Message) -> Message:
        """Return a message without its id if the transcript has another one with that."""
        return message if self._with_id(message.id) is None else replace(message, id=None)

    def _with_id(self, message_id: str | None) -> Message | None:
        if message_id is None:
            return None
        found = (each.message for each in reversed(self.entries) if each.message is not None)
        return next((each for each in found if each.id == message_id), None)

    def pass_ids(self, entries: Iterable[TranscriptEntry]) -> None:
        """Continue counting after the ids of entries from elsewhere that are about to join."""
        self.ids.pass_by([entry.message.id for entry in entries if entry.message and entry.message.id])

    def identified(self, message: Message) -> Message:
        """Return a message with an id in this transcript."""
        if message.id is not None:
            self.ids.pass_by([message.id])
            return message
        # Record the counter with the message, even though that may stay in a task until its siblings have ended.
        self._scope.mark(self.owner())
        return message.with_id(self.ids.new())

    def used_ids(self) -> set[str]:
        """Return the ids of the tool calls made in this turn."""
        if self._used is None:
            turn, entries = self._scope.turn, reversed(self.entries)
            recent = takewhile(lambda entry: entry.turn == turn, entries)
            self._used = {call.id for entry in recent if entry.message for call in entry.message.tool_calls}
        return self._used

    def set_active(self, names: list[str]) -> None:
        """Record which agents below the owner have the turn."""
        if self._fields.values["active"] != names:
            self._fields.set("active", names)
            self._scope.mark(self.owner())

    # Entries that have not joined yet

    def whole(self, *, closing: bool = False) -> list[TranscriptEntry]:
        """Return the entries, with those below the owner that have not joined yet.

        With `closing`, calls without a result get a placeholder, right after the results of their batch.
        """
        entries = self.entries
        own, apart = list[TranscriptEntry](), list[TranscriptEntry]()
        _collect(self.owner(), own, apart, closing)
        if closing:
            own += self.placeholders([*entries, *own])
        return [*entries, *own, *apart] if own or apart else entries

    def placeholders(self, entries: list[TranscriptEntry]) -> list[TranscriptEntry]:
        """Return placeholder results for the calls among these entries that have none."""
        return [
            self.owner().entry(Message.tool(ABANDONED, tool_call_id=call.id, name=call.name), author)
            for author, call in unanswered(entries)
        ]

    # Editing

    def edit_messages(self, given: Any) -> None:
        """Change the transcript by hand: replace it, or add messages, or those that have the same ids."""
        messages = input_messages(given.value if isinstance(given, Overwrite) else given, self.owner().agent.name)
        known = self.entries
        authors = {entry.message.id: entry.author for entry in known if entry.message is not None}
        waiting = {frame: frame.calls for frame in _sharing(self.owner()) if any(map(_runs_calls, frame.tasks))}
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
        return self.owner().entry(self.identified(message), "" if message.role == "user" else authors.get(message.id))

    def _set_entries(self, entries: list[TranscriptEntry], waiting: Mapping[AgentFrame, tuple[ToolCall, ...]]) -> None:
        places = {frame: _place(entries, calls) for frame, calls in waiting.items()}
        self._fields.set("entries", entries)
        self._scope.mark(self.owner())
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


class LiveTurn:
    """What an agent has of its turn in this process, and no record has.

    `hooks`, `kit` and `options` are what the plan has prepared, which knows their types: None until it has, so a frame
    that was restored has none yet. `actions`, `fulls` and `output_below` are what ended tasks have left: they count at
    the end of their superstep. `numbered` are calls with their numbers by id, and stale if the agent has other calls.
    `since` is when seconds were last counted.
    """

    __slots__ = ("actions", "fulls", "hooks", "kit", "numbered", "options", "output_below", "since")

    def __init__(self) -> None:
        self.hooks: Hooks | None = None
        self.kit: Any = None
        self.options: Any = None
        self.actions: list[Action] = []
        self.fulls: dict[str, str] = {}
        self.output_below: str = ""
        self.numbered: tuple[tuple[ToolCall, ...], dict[str, int]] | None = None
        self.since: float = time.monotonic()

    def next_action(self) -> Action | None:
        """Return the first action wanted in the superstep that has ended; any others are dropped."""
        actions, self.actions = self.actions, []
        return actions[0] if actions else None


class AgentFrame(GraphFrame):
    """A running agent: its state is the transcript, if it owns one, and its progress.

    It has a `transcript` to which it writes, its own or that of the agent above; a `view` of the conversation; a `turn`
    with what this process has of it; and a `plan`, which says how a turn begins and, with its nodes, how it continues.
    Fields of the state are changed by hand as well as by supersteps, so whatever changes one marks the frame.
    """

    plan: AgentPlan  # pyright: ignore[reportIncompatibleVariableOverride]  # a frame keeps the plan it was made with
    tasks: list[Task]
    beside: Frame | None
    emits: bool = True

    def __init__(self, agent: AgentConfig, plan: Plan, scope: Scope, parent: Frame | None, segment: str) -> None:
        super().__init__(plan, scope, parent, segment)
        self.agent = agent
        self.above: AgentFrame | None = _agent_above(parent)
        above = self.above
        self.is_run_by_code: bool = above is not None and not is_member(parent)
        """Whether the code of the agent above runs it."""
        self.is_apart: bool = above is not None and (above.plan.runs_apart or self.is_run_by_code)
        self.owns_transcript: bool = above is None or self.is_apart
        self.transcript: Transcript
        if above is None or self.is_apart:
            self.transcript = Transcript(self, None if above is None else above.transcript)
        else:
            self.transcript = above.transcript
        self.view: View = View(agent.name, _prompters(self))
        self.turn: LiveTurn = LiveTurn()

    @property
    def progress(self) -> Progress:
        """The agent's progress in this turn."""
        return self.fields.values["progress"]

    def set_progress(self, **changes: Any) -> None:
        """Update the agent's progress."""
        self.fields.set("progress", replace(self.progress, **changes))
        self.scope.mark(self)

    def seen(self) -> list[Message]:
        """Return the conversation as the agent sees it; the list grows."""
        return self.view.update(self.transcript.sources)

    def entry(self, message: Message, author: str | None = None) -> TranscriptEntry:
        """Return a message of this agent (or of `author`) as an entry; it gets an id when it joins the transcript."""
        return TranscriptEntry(
            author=self.agent.name if author is None else author, turn=self.scope.turn, message=message
        )

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls that the agent is answering."""
        entries, batch = self.transcript.entries, self.progress.batch
        message = entries[batch].message if 0 <= batch < len(entries) else None
        return () if message is None else message.tool_calls

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

    # A turn

    async def advance(self) -> bool:
        if self.is_run_by_code and self.scope.has_reader:
            await self.scope.log.reported()  # What the code above said before comes before its first piece.
        return await self.plan.prepare(self) and await super().advance()

    def begin(self, input: Any, state: Mapping[str, Any] | None = None) -> None:
        plan = self.plan
        if state is not None and not plan.has_state:
            raise plan.no_state()
        plan.check_input(self, input)
        messages, around = input_messages(input, self.agent.name), agent_around(self.parent)
        trail = (*(around.progress.trail if around else ()), self.agent.name)
        fields = self.fields
        if not fields.values:
            # What reads an agent's frame, also from a store, relies on these being there.
            fields.set("entries", [])
            fields.set("active", [])
            fields.set("progress", Progress())
        # The model that answered last is asked first in the next turn, too.
        fields.set("progress", Progress(trail=trail, model=self.progress.model))
        fields.set("endings", {})
        self.turn = LiveTurn()
        if self.owns_transcript:
            self.transcript.begin_turn()
        self.end_hooks()
        if messages:
            self.transcript.hear(messages, around.agent.name if around else "")
        self.tasks = []
        self.routings.clear()
        self.routes.begin_superstep()
        self.begin_steps()
        self.phase = "route"
        self.routes.targets = plan.first(self)
        self.settle()
        self.scope.mark(self)
        if plan.has_state:
            plan.begin_state(self, input, state or {})

    def end(self, ending: Ending) -> list[Send]:
        """End the agent; return what follows, which is either nothing or the hooks that see how it ended."""
        if self.progress.ending is not ending:
            self.set_progress(ending=ending)
        following = self.plan.last(self, ending)
        if not following:
            self.end_hooks()
        return following

    def end_hooks(self) -> None:
        """Drop the questions and memos of the agent's `before_agent` hooks: they will not run again in this turn."""
        if self.beside is not None and self.beside.segment == HOOKS:
            self.beside.drop()
            self.beside = None

    # What its tasks leave for it

    def accept(self, action: Action) -> str | None:
        self.plan.check_action(self, action)
        return ACTION

    def merge_values(self, values: Mapping[str, Any]) -> None:
        turn, kept = self.turn, dict(self.plan.take_values(self, values))
        if (action := kept.pop(ACTION, None)) is not None:
            turn.actions.append(Action(**action))
        turn.output_below = kept.pop(OUTPUT, turn.output_below)
        for key in [key for key in kept if key.startswith(FULL)]:
            turn.fulls[key.removeprefix(FULL)] = kept.pop(key)
        for key in [key for key in kept if key.startswith(ENTRIES)]:
            self.transcript.join(cast("list[TranscriptEntry]", kept.pop(key)))
        if kept:
            super().merge_values(kept)

    @property
    def values(self) -> dict[str, Any]:
        if not self.is_apart or (ending := self.progress.ending) is None or not self.fields.values["entries"]:
            return self._values
        entries: list[TranscriptEntry] = self.fields.values["entries"]
        # Changes of its view end here: it did not see the entries of parallel agents, which join before its own.
        values: dict[str, Any] = {
            **self._values,
            f"{ENTRIES}{self.path}": [entry for entry in entries if entry.seen_as is None],
        }
        return {**values, OUTPUT: ending.output} if self.is_run_by_code else values

    # Emitting

    @property
    def audience(self) -> Audience:
        known, trail = self._audience, self.progress.trail
        if known is None:
            around = agent_around(self.parent)
            hears = self.emits and (around is None or around.audience.hears)
            self._audience = known = Audience(self.agent.name, trail, hears)
        elif known.path is not trail:
            self._audience = known = known._replace(path=trail)
        return known

    def emit(self, event: Event) -> None:
        """Emit a durable event of this agent."""
        if not self.scope.logs_events:
            return
        name, path, hears = self.audience
        if hears:
            self.scope.log.emit(replace(event, agent=name, path=path))
        elif isinstance(event, ToolResult) and event.full is not None:
            self.scope.log.emit(replace(event, agent=name, path=path, muted=True))

    def emit_live(self, event: Event) -> None:
        """Emit a live event of this agent."""
        if self.scope.has_reader and self.audience.hears:
            self.scope.log.emit_live(replace(event, agent=self.agent.name, path=self.progress.trail))

    def answer_id(self) -> str:
        """Return the id that the next message of this agent will have."""
        return self.transcript.ids.coming()

    # Showing

    def report(self) -> Report:
        return self.plan.report(self)

    def product(self) -> Any:
        # The value is kept as JSON, since a store may not know its type. See `Agent.convert_product`.
        ending = self.progress.ending or Ending()
        return ending.output if ending.value is None else Ending(output=ending.output, value=ending.value, of=ending.of)

    def following(self) -> tuple[str, ...]:
        tasks = self.tasks
        if not tasks:
            return self.plan.following(self)
        if len(tasks) > 1:
            tasks = [task for task in tasks if task.status != "done"] or tasks
        calls = self.calls if isinstance(tasks[0].node, CallNode) else ()
        if len(tasks) == 1:
            return (call_of(tasks[0], calls).name if calls else tasks[0].node.name,)
        return tuple(dict.fromkeys([call_of(task, calls).name if calls else task.node.name for task in tasks]))

    # Editing

    def abandon(self) -> None:
        self.plan.abandon(self)

    def supply(self, state: Mapping[str, Any]) -> None:
        self.plan.supply(self, state)

    def edit(self, values: Mapping[str, Any], as_node: str | None) -> None:
        self.plan.edit(self, values, as_node)

    # Supersteps

    def task_at(self, segment: str) -> Task | None:
        if segment == self.plan.beside:
            return None  # The frame of the hooks, or the graph of a graph agent, which is not a task.
        if (task := self.plan.task_at(self, segment)) is not None:
            return task
        node = next((node for node in self.plan.nodes.values() if node.segment == segment), None)
        if node is None:
            raise ProgramChanged(
                address_of(f"{self.path};{segment}"), f"agent '{self.agent.name}' has no '{segment}' any more"
            )
        return Task(self, node)

    def commit_changes(self, changes: Changes) -> None:
        entries = changes.tails.pop("entries", None)
        super().commit_changes(changes)
        if entries:
            self.transcript.extend(entries)

    # Agents below

    def ending_of(self, agent: str) -> Ending:
        """Return how an agent below this one has ended."""
        return self.fields.values["endings"][agent]


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


def _agent_above(parent: Frame | None) -> AgentFrame | None:
    """Return the agent that the frame below `parent` shares a transcript with."""
    if isinstance(parent, Task) and isinstance(parent.graph, AgentFrame) and not _runs_calls(parent):
        return parent.graph
    return None


def _prompters(frame: AgentFrame) -> tuple[str, ...]:
    """Return the authors whose user messages are for an agent: the user, its caller, and agents that prompt it."""
    found, above = [""], frame.above
    while above is not None:
        found += [above.agent.name] if above.plan.prompts else []
        above = above.above
    transcript: Transcript | None = frame.transcript
    while transcript is not None:
        found += [] if transcript.caller is None else [transcript.caller]
        transcript = transcript.before
    return tuple(found)


def agent_around(parent: Frame | None) -> AgentFrame | None:
    """Return the closest agent around `parent`, or `parent` itself if it is one."""
    while parent is not None and not isinstance(parent, AgentFrame):
        parent = parent.parent
    return parent


def _sharing(frame: AgentFrame) -> list[AgentFrame]:
    """Return an agent and those below it that write to the same transcript."""
    found = [frame]
    for task in frame.live_children():
        task.bind_dormant()
        for child in task.live_children():
            if isinstance(child, AgentFrame) and child.above is frame and not child.is_apart:
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


def _collect(frame: AgentFrame, own: list[TranscriptEntry], apart: list[TranscriptEntry], closing: bool) -> None:
    """Collect entries from below an agent that are not in the transcript: results of a batch, and agents apart."""
    for task in frame.live_children():
        if not isinstance(task, Task):
            continue
        if task.status == "done":
            own += [entry for name, value, _ in task.writes if name == "entries" for entry in value]
        apart += _handed_up(task)
        task.bind_dormant()
        for child in task.live_children():
            if isinstance(child, AgentFrame) and child.above is frame:
                if child.is_apart:
                    apart += child.transcript.whole(closing=closing)
                else:
                    _collect(child, own, apart, closing)
        dormant = [] if _runs_calls(task) else said_by_dormant(frame.scope, task.path)
        apart += [*dormant, *frame.transcript.placeholders(dormant)] if closing else dormant


def _handed_up(task: Task) -> list[TranscriptEntry]:
    """Return the entries that ended agents apart left with a task, to join the transcript when it ends."""
    if task.status == "done":
        return [entry for key, value in (task.written or {}).items() if key.startswith(ENTRIES) for entry in value]
    kept = [lift_values(memo.writes) for memo in (task.memos or {}).values() if memo.writes]
    return [entry for values in kept for key, value in values.items() if key.startswith(ENTRIES) for entry in value]


def _said_below(frame: AgentFrame) -> list[Message]:
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
            if isinstance(below, AgentFrame) and below.above is frame:
                found += _said_below(below)
    return found


def _approved(frame: AgentFrame) -> dict[str, Any]:
    """Return what was approved for the session, at an agent and below, by the names of the session values."""
    found: dict[str, Any] = {}
    for values in _values_below(frame):
        found.update({key: value for key, value in values.items() if key.startswith(IN_SESSION)})
    return {key: value for key, value in found.items() if value is not GONE}


def _revoke(frame: AgentFrame, left: Any) -> None:
    """Forget what was approved for the session but for what is `left`."""
    approved = _approved(frame)
    kept = cast("list[Any]", left) if isinstance(left, list | tuple) else None
    if kept is None or any(each not in approved.values() for each in kept):
        raise UsageError(f"approvals={left!r}: give a list of those in the agent's state that are to stay.")
    gone = {key for key, value in approved.items() if value not in kept}
    if gone:
        frame.drop_values(gone.__contains__)
        frame.merge_values(dict.fromkeys(gone, GONE))
