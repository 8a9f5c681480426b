"""The frame of an agent: a graph's frame whose state is a transcript and the agent's progress."""

# Overrides are documented on the base class.

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NoReturn, TypedDict, cast

from msgspec import UNSET
from msgspec.structs import replace

from adjourn._calls.approval import IN_SESSION
from adjourn._engine.address import address_of
from adjourn._engine.frame import UserFrame
from adjourn._engine.program import Report
from adjourn._engine.record import GraphImage, UserImage
from adjourn._engine.scope import ACTION, OWN, Audience, Frame, Request, Scope
from adjourn._engine.values import GONE, lift_values
from adjourn.errors import CheckpointCorrupt, ProgramChanged, UsageError
from adjourn.events import Event, ToolResult
from adjourn.graph._frame import Routing, Task
from adjourn.graph._node import Node, Plan, Send
from adjourn.graph.reducers import append, merge
from adjourn.graph.schema import Schema

from ._config import AgentConfig, input_messages, value_of
from ._nodes import CallNode, call_of
from ._sharing import ENTRIES, TranscriptFrame, agent_around, said_below
from ._transcript import Ending, Progress, Said, TranscriptEntry

HOOKS = "~setup"
"""The segment of an agent's `before_agent` hooks."""

# Names of session values that tasks leave for their agent only; user-defined names cannot start with "~".
OUTPUT = "~output"
"""The text with which the last agent that the code ran has ended."""

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


class AgentFrame(TranscriptFrame):
    """A running agent. Each kind of agent defines how a turn begins (`first`) and, with its nodes, how it continues."""

    emits: bool = True
    _is_heard: bool | None = None
    targets: list[Send]
    tasks: list[Task]
    routings: list[Routing]
    finished: list[Node]
    ended: list[str]

    def __init__(self, agent: AgentConfig, plan: Plan, scope: Scope, parent: Frame | None, segment: str) -> None:
        super().__init__(agent, plan, scope, parent, segment)
        self.actions: list[Request] = []
        self.fulls: dict[str, str] = {}
        self.output_below: str = ""
        self.since: float = time.monotonic()

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
        if self.is_run_by_code and self.scope.has_reader:
            await self.scope.journal.reported()  # What the code above said before comes before its first piece.
        return await self.prepare() and await super().advance()

    def begin(self, input: Any) -> None:
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
        self.actions, self.output_below, self._used, self.since = [], "", set(), time.monotonic()
        self.end_hooks()
        if messages:
            self.owner.hear(messages, around.agent.name if around else "")
        self.tasks, self.routings = [], []
        self.routes.begin_superstep()
        self.begin_steps()
        self.phase = "route"
        self.routes.targets = self.first()
        self.settle()
        self.scope.mark(self)

    def begin_with(self, input: Any, state: Mapping[str, Any]) -> None:
        self._refuse_state()

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
        if self.beside is not None and self.beside.segment == HOOKS:
            self.beside.drop()
            self.beside = None

    # What its tasks leave for it

    def accept(self, request: Request) -> str | None:
        self.check_action(request)
        return ACTION

    def requesting(self) -> list[tuple[Task, Request]]:
        return []  # Of an agent's parallel calls, the first one counts.

    def next_action(self) -> Request | None:
        """Return the first action requested in the superstep that has ended; any others are dropped."""
        actions, self.actions = self.actions, []
        return actions[0] if actions else None

    def merge_values(self, values: Mapping[str, Any]) -> None:
        kept = dict(values)
        if (action := kept.pop(ACTION, None)) is not None:
            self.actions.append(Request(**action))
        self.output_below = kept.pop(OUTPUT, self.output_below)
        for key in [key for key in kept if key.startswith(FULL)]:
            self.fulls[key.removeprefix(FULL)] = kept.pop(key)
        for key in [key for key in kept if key.startswith(ENTRIES)]:
            self.owner.join(cast("list[TranscriptEntry]", kept.pop(key)))
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

    def answer_id(self) -> str:
        """Return the id that the next message of this agent will have."""
        return self.owner.next_message_id()

    # Showing

    def report(self) -> Report:
        ending, messages = self.progress.ending or Ending(), Said(self.owner.whole())
        state = {
            "messages": messages,
            "active": list(self.fields.values["active"]),
            "values": {
                key: value for key, value in self._values.items() if not key.startswith("~") or key.startswith(OWN)
            },
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
        tasks = [task for task in self.tasks if task.status != "done"] or self.tasks
        calls = self.calls if tasks and isinstance(tasks[0].node, CallNode) else ()
        if calls:
            names = [call_of(task, calls).name for task in tasks]
        else:
            names = [task.node.name for task in tasks] or [node.name for node, _ in self.routes.targets]
        return tuple(names if len(names) < 2 else dict.fromkeys(names))

    # Editing

    def abandon(self) -> None:
        whole = self.whole(closing=True)
        said = [self.entry(message, "") for message in said_below(self)]
        self.join([*whole[len(self.fields.values["entries"]) :], *said])
        super().abandon()

    def supply(self, state: Mapping[str, Any]) -> None:
        self._refuse_state()

    def _refuse_state(self) -> NoReturn:
        raise UsageError(
            f"'{self.agent.name}' is an agent without a state: pass session values with `values`, which nodes and "
            "tools below it can read, too."
        )

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
