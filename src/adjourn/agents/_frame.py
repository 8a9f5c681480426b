"""The frame of an agent: a graph's frame whose state is a transcript and how far the agent has come."""

# An override is documented where it is declared.

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, cast

from msgspec.structs import replace

from adjourn._calls.kit import Kit
from adjourn._calls.remembered import IN_SESSION
from adjourn._engine.frame import UserFrame, decoded
from adjourn._engine.program import Report
from adjourn._engine.scope import GONE, Frame, Scope
from adjourn.context import ACTION
from adjourn.errors import UsageError
from adjourn.events import Event, ToolResult
from adjourn.graph._channels import Changes
from adjourn.graph._frame import GraphFrame
from adjourn.graph._routing import settle
from adjourn.graph._task import Send, Task
from adjourn.graph.commands import Overwrite
from adjourn.graph.reducers import append, merge
from adjourn.graph.schema import Schema
from adjourn.messages import Message, ToolCall

from ._dormant import said_asleep
from ._inputs import input_messages
from ._progress import Ending, Progress
from ._transcript import Edited, Entry, Said, View, unanswered

if TYPE_CHECKING:
    from ._plan import AgentPlan

ABANDONED = "This call was given up before it had a result."
"""What stands in the place of a result when a turn is abandoned."""


TOOLS = "tools"
"""The node of an agent that runs tools: agents started there have a transcript of their own."""

HOOKS = "~setup"
"""The segment of an agent's `before_agent` hooks."""

ENTRIES = "~entries:"
"""Begins the name under which an agent apart hands up what it has said, among the session values."""


FULL = "~full:"
"""Begins the name under which a call hands up its whole result, when that is told later and the model reads a part."""


class AgentState(TypedDict, total=False):
    """What is on record of an agent; `states` are those that the graph agents in its tree go on from."""

    entries: Annotated[list[Entry], append]
    progress: Progress
    endings: Annotated[dict[str, Ending], merge]
    active: list[str]
    states: dict[str, Any]


SCHEMA = Schema(AgentState)


class AgentFrame(GraphFrame):
    """A running agent.

    The transcript belongs to one frame: of the run's root, or of an agent that was started afresh, such as a tool. An
    agent that stands in another one's tree writes there, too. One that runs beside others writes apart: it sees what
    was said before, and what it says joins the transcript when it has ended.
    """

    takes_actions = True
    is_muted: bool = False
    kit: Kit | None = None
    hooks: UserFrame | None = None
    _tells: bool | None = None
    _used: set[str] | None = None

    def __init__(self, plan: AgentPlan, scope: Scope, parent: Frame | None, segment: str) -> None:
        super().__init__(plan, scope, parent, segment)
        self.plan = plan
        self.agent = plan.agent
        self.actions: list[dict[str, str]] = []
        self.fulls: dict[str, str] = {}
        self.since = time.monotonic()
        above = _agent_above(parent)
        self.above = above
        self.is_apart = above is not None and (above.plan.runs_apart or not _is_node(parent))
        # None for itself: a cycle would leave every session of an agent to the garbage collector.
        self._owner: AgentFrame | None = None if above is None or self.is_apart else above.owner
        self.view = View(plan.agent.name, _tellers(self))

    @property
    def caller(self) -> str:
        """The name that people see where this agent calls."""
        return self.agent.name

    @property
    def trail(self) -> tuple[str, ...]:
        """The agents that the turn has gone through."""
        return self.progress.trail

    # The transcript

    @property
    def owner(self) -> AgentFrame:
        """The frame to which the transcript belongs that this agent writes into."""
        return self._owner or self

    @property
    def sources(self) -> list[list[Entry]]:
        """The lists that the transcript consists of as this agent sees it, the outermost first."""
        owner = self.owner
        own: list[Entry] = owner.channels["entries"]
        return [*owner.above.sources, own] if owner.is_apart and owner.above is not None else [own]

    def told_last(self) -> Message | None:
        """What this agent was told last: by the user, by who started it, or by an agent above that prompts it."""
        for entries in reversed(self.sources):
            for entry in reversed(entries):
                if entry.message is not None and entry.message.role == "user" and entry.author in self.view.tellers:
                    return entry.message
        return None

    @property
    def progress(self) -> Progress:
        """How far the agent has come."""
        return self.channels["progress"]

    def entry(self, message: Message, author: str | None = None) -> Entry:
        """A message of this agent (or of `author`) as an entry; it gets an id when it joins the transcript."""
        return Entry(author=self.agent.name if author is None else author, turn=self.scope.turn, message=message)

    def edit_entry(self, edited: Edited) -> Entry:
        """Other arguments for a call of this agent as an entry."""
        return Entry(author=self.agent.name, turn=self.scope.turn, edited=edited)

    def commit_changes(self, changes: Changes) -> None:
        entries = changes.tails.pop("entries", None)
        super().commit_changes(changes)
        if entries:
            self.owner.extend(entries)

    def extend(self, entries: Iterable[Entry]) -> None:
        """Add to the transcript that this frame owns; messages that have ids were `identified` before."""
        mine: list[Entry] = self.channels["entries"]
        if "entries" not in self.replaced:
            self.grown.setdefault("entries", len(mine))
        for entry in entries:
            message = entry.message
            if message is not None and message.id is None:
                mine.append(replace(entry, message=self.identified(message)))
            else:
                mine.append(entry)
            if message is not None and message.tool_calls and self._used is not None:
                self._used.update([call.id for call in message.tool_calls])
        self.scope.mark(self)

    def join(self, entries: list[Entry]) -> None:
        """Add what was said elsewhere, with the ids that it has from there."""
        self.pass_ids(entries)
        self.extend(entries)

    def pass_ids(self, entries: Iterable[Entry]) -> None:
        """Count on after the ids of what was said elsewhere and is to join."""
        self.pass_message_ids([entry.message.id for entry in entries if entry.message and entry.message.id])

    def identified(self, message: Message) -> Message:
        """A message with an id in the transcript that this frame owns."""
        if message.id is not None:
            self.pass_message_ids([message.id])
            return message
        # The counter goes on record with the message, though that may stand in a task until its siblings have ended.
        self.scope.mark(self)
        return message.with_id(self.new_message_id())

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls that the agent answers now."""
        entries: list[Entry] = self.owner.channels["entries"]
        batch = self.progress.batch
        message = entries[batch].message if 0 <= batch < len(entries) else None
        return () if message is None else message.tool_calls

    def used_ids(self) -> set[str]:
        """The ids of tool calls that were made in this turn, in the transcript that this frame owns."""
        if self._used is None:
            turn, entries = self.scope.turn, reversed(self.channels["entries"])
            recent = takewhile(lambda entry: entry.turn == turn, entries)
            self._used = {call.id for entry in recent if entry.message for call in entry.message.tool_calls}
        return self._used

    # A turn

    async def advance(self) -> bool:
        return await self.plan.prepare(self) and await super().advance()

    def begin(self, input: Any) -> None:
        messages, around = input_messages(input, self.agent.name), _agent_around(self.parent)
        trail = (*(around.progress.trail if around else ()), self.agent.name)
        if not self.channels:
            self.channels = {"entries": [], "active": [], "progress": Progress()}
            self.replaced = dict.fromkeys(self.channels)
        # The model that answered last is the one to ask first, in the next turn, too.
        self.channels |= {"progress": Progress(trail=trail, model=self.progress.model), "endings": {}}
        self.replaced |= {"progress": None, "endings": None}
        self.actions, self.kit, self._used, self.since = [], None, set(), time.monotonic()
        self.end_hooks()
        if messages:
            self.owner.join([self.entry(message, around.agent.name if around else "") for message in messages])
        self._set_out()

    def _set_out(self) -> None:
        self.count, self.joins, self.deferred = 0, {}, []
        self.tasks, self.routings, self.finished, self.ended = [], [], [], []
        self.close_questions()
        self.phase = "route"
        self.targets = self.plan.first(self)
        settle(self)
        self.scope.mark(self)

    def set_progress(self, **changes: Any) -> None:
        """Change how far the agent has come."""
        self.channels["progress"] = replace(self.progress, **changes)
        self.replaced["progress"] = None
        self.scope.mark(self)

    def set_active(self, names: list[str]) -> None:
        """Note which agents below this one have the turn."""
        if self.channels["active"] != names:
            self.channels["active"] = names
            self.replaced["active"] = None
            self.scope.mark(self)

    def end(self, ending: Ending) -> list[Send]:
        """End the agent; what follows is nothing, or those who want to see how it ended."""
        if self.progress.ending is not ending:
            self.set_progress(ending=ending)
        following = self.plan.last(self, ending)
        if not following:
            self.end_hooks()
        return following

    def end_hooks(self) -> None:
        """Forget what the agent's `before_agent` hooks have asked and kept: they will not run again in this turn."""
        if self.hooks is not None:
            self.hooks.drop()
            self.hooks = None

    # What its tasks leave behind

    def check_action(self, action: Mapping[str, str]) -> None:
        """Refuse what this agent cannot do, where it is asked for."""
        self.plan.check_action(self, action)

    def merge_values(self, values: Mapping[str, Any]) -> None:
        kept = dict(values)
        if (action := kept.pop(ACTION, None)) is not None:
            self.actions.append(action)
        for key in [key for key in kept if key.startswith(FULL)]:
            self.fulls[key.removeprefix(FULL)] = kept.pop(key)
        for key in [key for key in kept if key.startswith(ENTRIES)]:
            self.owner.join(cast("list[Entry]", kept.pop(key)))
        if kept:
            super().merge_values(kept)

    @property
    def values(self) -> dict[str, Any]:
        if self.is_apart and self.progress.ending is not None and self.channels["entries"]:
            # How it saw what was said ends here: it knew nothing of those beside it, whose entries join before its own.
            said = [entry for entry in self.channels["entries"] if entry.seen_as is None]
            return {**self._values, f"{ENTRIES}{self.path}": said}
        return self._values

    # Telling

    @property
    def tells(self) -> bool:
        """Whether what this agent does is told to those who follow the run."""
        if self._tells is None:
            around = _agent_around(self.parent)
            self._tells = not self.is_muted and (around is None or around.tells)
        return self._tells

    def emit(self, event: Event) -> None:
        """Tell a durable event of this agent."""
        if not self.scope.telling:
            return
        if self.tells:
            self.scope.journal.emit(replace(event, agent=self.agent.name, path=self.progress.trail))
        elif isinstance(event, ToolResult) and event.full is not None:
            self.scope.journal.emit(replace(event, agent=self.agent.name, path=self.progress.trail, muted=True))

    def emit_live(self, event: Event) -> None:
        """Tell a live event of this agent."""
        if self.scope.watched and self.tells:
            self.scope.journal.emit_live(replace(event, agent=self.agent.name, path=self.progress.trail))

    # Showing

    def report(self) -> Report:
        ending, messages = self.progress.ending or Ending(), Said(self.owner.whole())
        state = {
            "messages": messages,
            "active": list(self.channels["active"]),
            "values": {key: value for key, value in self._values.items() if not key.startswith("~")},
            "approvals": list(self._approved().values()),
        }
        value = None if ending.value is None else self.plan.value_of(ending)
        return Report(output=ending.output, value=value, messages=messages, state=state)

    def _approved(self) -> dict[str, Any]:
        """What was approved for the session, under the names of its values."""
        return {key: value for key, value in self._values.items() if key.startswith(IN_SESSION) and value is not GONE}

    def whole(self, *, closing: bool = False) -> list[Entry]:
        """The transcript of this owner with what stands below it and has not joined yet.

        With `closing`, calls that have no result get a placeholder, right after those of their batch that have.
        """
        entries: list[Entry] = self.channels["entries"]
        own, apart = list[Entry](), list[Entry]()
        _collect(self, own, apart, closing)
        if closing:
            own += self.placeholders([*entries, *own])
        return [*entries, *own, *apart] if own or apart else entries

    def placeholders(self, entries: list[Entry]) -> list[Entry]:
        """Results for the calls among these that have none."""
        return [
            self.entry(Message.tool(ABANDONED, tool_call_id=call.id, name=call.name), author)
            for author, call in unanswered(entries)
        ]

    def product(self) -> Any:
        # Its value is kept as JSON: the type may be one that no store knows. See `Agent.give`.
        ending = self.progress.ending or Ending()
        return ending.output if ending.value is None else Ending(output=ending.output, value=ending.value, of=ending.of)

    def following(self) -> tuple[str, ...]:
        tasks, calls = self.tasks, self.calls if self.tasks and _is_tool(self.tasks[0]) else ()
        if calls:
            names = [calls[number_of(task) - 1].name for task in tasks]
        else:
            names = [task.spec.name for task in tasks] or [spec.name for spec, _ in self.targets]
        return tuple(names if len(names) < 2 else dict.fromkeys(names))

    # Changing by hand

    def abandon(self) -> None:
        whole = self.whole(closing=True)
        self.join(whole[len(self.channels["entries"]) :])
        super().abandon()

    def supply(self, state: Mapping[str, Any]) -> None:
        raise UsageError(f"'{self.agent.name}' is an agent: give session values with `values`, not `state`.")

    def edit(self, values: Mapping[str, Any], as_node: str | None) -> None:
        if as_node is not None:
            raise UsageError(f"as_node={as_node!r}: '{self.agent.name}' is an agent, whose nodes are its own.")
        unknown = set(values) - {"messages", "values", "approvals"}
        if unknown:
            raise UsageError(
                f"An agent's state has no '{', '.join(sorted(unknown))}' to edit. It has: messages, values, approvals."
            )
        self.set_values(values.get("values", {}))
        left = values.get("approvals", list(self._approved().values()))
        self.merge_values({key: GONE for key, value in self._approved().items() if value not in left})
        self.scope.mark(self)
        if "messages" in values:
            self.owner._edit_messages(values["messages"])

    def _edit_messages(self, given: Any) -> None:
        messages = input_messages(given.value if isinstance(given, Overwrite) else given, self.agent.name)
        known: list[Entry] = self.channels["entries"]
        authors = {entry.message.id: entry.author for entry in known if entry.message is not None}
        entries = [
            self.entry(self.identified(each), "" if each.role == "user" else authors.get(each.id)) for each in messages
        ]
        waiting = {frame: frame.calls for frame in _sharing(self) if any(map(_is_tool, frame.tasks))}
        if not isinstance(given, Overwrite):
            self._check_order(waiting.values())
            self.extend(entries)
            return
        places = {frame: _place(entries, calls) for frame, calls in waiting.items()}
        self.channels["entries"] = entries
        self.replaced["entries"] = None
        self.grown.pop("entries", None)
        self.scope.mark(self)
        for frame, place in places.items():
            frame.set_progress(batch=place)

    @staticmethod
    def _check_order(waiting: Iterable[tuple[ToolCall, ...]]) -> None:
        # Models refuse a conversation in which something stands between calls and their results.
        ids = [call.id for calls in waiting for call in calls]
        if ids:
            raise UsageError(
                f"The tool calls {', '.join(ids)} are being answered: messages cannot be added before their results "
                "are there. Answer them first, or give the turn up: run(..., on_pending='abandon')."
            )

    # Records

    @property
    def has_tasks_alone(self) -> bool:
        return self.hooks is None

    def live_children(self) -> Iterable[Frame]:
        return super().live_children() if self.hooks is None else [self.hooks, *super().live_children()]

    def task_at(self, segment: str) -> Task | None:
        return self.plan.task_at(self, segment)

    def is_pausing(self) -> bool:
        return self.plan.is_pausing(self)

    def stops_before(self, tasks: list[Task]) -> bool:
        return self.plan.stops_before(self, tasks)


def number_of(task: Task) -> int:
    """Which of its agent's calls a task of the tools' node runs; they are counted from 1."""
    assert task.overlay is not None
    return task.overlay["number"]


def _is_node(parent: Frame | None) -> bool:
    """Whether the frame below `parent` is an agent in the tree of the one above, not one that code has started."""
    return isinstance(parent, Task) and parent.spec.hand_up is not None


def _is_tool(task: Task) -> bool:
    return task.spec.name == TOOLS and task.spec.hand_up is None  # An agent may be called so, too.


def _agent_above(parent: Frame | None) -> AgentFrame | None:
    """The agent that the frame below `parent` shares a transcript with."""
    if isinstance(parent, Task) and isinstance(parent.graph, AgentFrame) and not _is_tool(parent):
        return parent.graph
    return None


def _tellers(frame: AgentFrame) -> tuple[str, ...]:
    """Those who speak to an agent as a user does: the user, who has started it, and agents above that prompt it."""
    found, above = [""], frame.above
    while above is not None:
        found += [above.agent.name] if above.plan.prompts else []
        above = above.above
    owner: AgentFrame | None = frame.owner
    while owner is not None:
        around = _agent_around(owner.parent)
        found += [around.agent.name] if around is not None else []
        owner = owner.above.owner if owner.is_apart and owner.above is not None else None
    return tuple(found)


def _agent_around(parent: Frame | None) -> AgentFrame | None:
    """The agent in which `parent` runs, whatever is in between."""
    while parent is not None and not isinstance(parent, AgentFrame):
        parent = parent.parent
    return parent


def _sharing(frame: AgentFrame) -> list[AgentFrame]:
    """An agent, and those below it that write into the same transcript."""
    found = [frame]
    for task in frame.live_children():
        task.bind_dormant()
        for child in task.live_children():
            if isinstance(child, AgentFrame) and child.above is frame and not child.is_apart:
                found += _sharing(child)
    return found


def _place(entries: list[Entry], calls: tuple[ToolCall, ...]) -> int:
    """Where the message stands whose calls are being answered.

    Raises:
        UsageError: it is not among them.
    """
    wanted = [call.id for call in calls]
    for place in range(len(entries) - 1, -1, -1):
        message = entries[place].message
        if message is not None and [call.id for call in message.tool_calls] == wanted:
            return place
    raise UsageError(
        f"The tool calls {', '.join(wanted)} are being answered, and the messages lack the one that made them. "
        "Keep it, or give the turn up first: run(..., on_pending='abandon')."
    )


def _collect(frame: AgentFrame, own: list[Entry], apart: list[Entry], closing: bool) -> None:
    """Find what was said below an agent and is not in the transcript: results of a batch, and agents apart."""
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
                    apart += child.whole(closing=closing)
                else:
                    _collect(child, own, apart, closing)
        asleep = [] if _is_tool(task) else said_asleep(frame.scope, task.path)
        apart += [*asleep, *frame.placeholders(asleep)] if closing else asleep


def _handed_up(task: Task) -> list[Entry]:
    """What agents apart that have ended below a task left with it, to join the transcript when it ends."""
    if task.status == "done":
        return [entry for key, value in (task.written or {}).items() if key.startswith(ENTRIES) for entry in value]
    kept = [decoded(raw) for memo, raw in (task.memos or {}).items() if memo.startswith("values:")]
    return [entry for values in kept for key, value in values.items() if key.startswith(ENTRIES) for entry in value[0]]
