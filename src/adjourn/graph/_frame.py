"""The frame of a graph, and the frames of its tasks and routings: the recorded state of a superstep.

How a superstep runs is in `_engine`; this module keeps how far it has come.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, Final, cast

from adjourn._engine.address import address_of
from adjourn._engine.frame import Running, UserFrame
from adjourn._engine.memos import Key, Memo
from adjourn._engine.program import ProgramFrame, Report
from adjourn._engine.record import GraphImage, Image, Question, UserImage
from adjourn._engine.scope import ACTION, Audience, Frame, Request, Scope
from adjourn._engine.values import adopt_value, lift_values, lower_values, value_or
from adjourn._text import a_type
from adjourn._values import codec
from adjourn.errors import CheckpointCorrupt, ProgramChanged, UsageError, describe
from adjourn.messages import Message
from adjourn.middleware.hooks import Middleware

from ._cache import CachedResult, CacheKey
from ._channels import EDIT, INPUT, Changes, Channel, MessagesChannel
from ._fields import Fields, decode_field
from ._node import Condition, Node, Overlay, Plan, Send
from ._routes import Routes, encode_write, lift_overlay, lower_overlay, parsed_segment
from .commands import END, Overwrite
from .state import Snapshot, attributes

HANDLED: Final = object()
"""Returned by a node that has already set the result of its task."""


class Task(UserFrame):
    """One run of a node in one superstep; `writes`, `goto` and `sends` are its result once it is done."""

    __slots__ = ("goto", "graph", "index", "node", "overlay", "sends", "writes")

    cached: bool = False
    cache_key: CacheKey | None = None
    to_cache: CachedResult | None = None
    around: Any = None  # Any: the hooks around it, which are above this module
    sight: Overlay | None = None
    # As in the base classes: from the constructor alone, type checkers would infer something narrower.
    attempt: int
    running: Running | None
    paused: int | None
    written: dict[str, Any] | None
    memos_new: dict[Key, Memo] | None
    memos: dict[Key, Memo] | None
    composites: dict[str, Question] | None
    children: dict[str, Frame] | None
    emitted: int
    recorded: bool
    questions: list[Question] | None
    alive: bool
    graph: StepFrame

    def __init__(self, graph: StepFrame, node: Node, index: int | None = None, overlay: Overlay | None = None) -> None:
        # The base constructors are not called: they make a step 5% slower (1 µs of 21 for a task and a routing).
        self.scope: Scope = graph.scope
        self.parent = self.graph = graph
        self.segment: str = node.segment if index is None else node.segment_of(graph, index, overlay)
        self.alive, self.recorded, self.questions = True, False, None
        self.node: Node = node
        self.index: int | None = index
        self.overlay = overlay
        self.writes: list[tuple[str, Any, bool]] = []
        self.goto: list[Node] | None = None
        self.sends: list[Send] | None = None
        # Every run of a task reads these, and an instance attribute is read far faster than a class default.
        self.status: str = "pending"
        self.attempt, self.emitted, self.error = 1, 0, None
        self.composites = self.memos = self.memos_new = self.children = self.written = None
        self.paused = self.running = None

    @property
    def instance(self) -> str:
        return f"{self.graph.instance}.{self.graph.step}"

    @property
    def title(self) -> str:
        return self.node.options.title

    @property
    def seen(self) -> Overlay | None:
        """What the node sees laid over the state: by a fan-out, which is recorded, and for now by hooks around it."""
        return self.overlay if self.sight is None else self.sight

    @property
    def label(self) -> str:
        """The node's name, with the task's number in a fan-out."""
        return self.node.name if self.index is None else f"{self.node.name}:{self.index}"

    def begin_again(self) -> None:
        """Prepare to run again after a failure."""
        self.exception = None
        self.status = "pending"
        self.attempt += 1
        self.scope.mark(self)

    def forget_result(self) -> None:
        """Forget what an earlier run of the node has returned."""
        self.writes, self.goto, self.sends = [], None, None

    @property
    def runs_code(self) -> bool:
        return not self.node.runs_program

    def bind_dormant(self) -> None:
        self.node.bind_dormant(self)

    def children_ended(self) -> None:
        self.graph.children_ended(self)

    def check_answer(self, question: Question) -> None:
        super().check_answer(question)
        self.node.check_answer(self, question)

    def fail(self, error: BaseException) -> None:
        """Record the failure; the task runs again when the session is recovered."""
        self.status = "failed"
        self.exception = error
        self.error = dict(describe(error))
        self.scope.mark(self)

    def snapshot(self) -> UserImage:
        image = UserFrame.snapshot(self)  # not super(), which costs half as much as the whole snapshot
        if self.overlay is not None and image.fresh:
            image.overlay = lower_overlay(self.overlay)
        return image

    def add_result(self, image: UserImage) -> None:
        UserFrame.add_result(self, image)
        image.writes = [(name, encode_write(value, plain)) for name, value, plain in self.writes]
        if self.goto is not None:
            image.goto = [node.name for node in self.goto]
        if self.sends is not None:
            image.sends = [(node.name, lower_overlay(over or {})) for node, over in self.sends]

    def restore(self, image: UserImage) -> None:
        super().restore(image)
        self.overlay = lift_overlay(value_or(image.overlay, None))
        self.writes = [(name, decode_field(name, raw), False) for name, raw in value_or(image.writes, [])]
        goto = value_or(image.goto, None)
        self.goto = None if goto is None else [self.graph.node_named(name, self.path) for name in goto]
        sends = value_or(image.sends, None)
        self.sends = (
            None
            if sends is None
            else [(self.graph.node_named(name, self.path), lift_overlay(over)) for name, over in sends]
        )


class Routing(UserFrame):
    """One evaluation of a condition that paused or failed; `targets` is its result once it is done."""

    def __init__(self, graph: StepFrame, node: Node, condition: Condition) -> None:
        # Sets what Frame's constructor sets, without the call: see Task.
        self.scope = graph.scope
        self.parent = self.graph = graph
        self.segment = condition.below
        self.recorded, self.questions = False, None
        self.node = node
        self.condition = condition
        self.targets: list[Node] = []
        self.status = "pending"
        self.memos = self.children = self.written = self.running = self.exception = None

    @property
    def instance(self) -> str:
        return f"{self.graph.instance}.{self.graph.step}"

    def add_result(self, image: UserImage) -> None:
        super().add_result(image)
        image.goto = [node.name for node in self.targets]

    def restore(self, image: UserImage) -> None:
        super().restore(image)
        self.targets = [self.graph.node_named(name, self.path) for name in value_or(image.goto, [])]


def read_input(plan: Plan, input: Any) -> Mapping[str, Any]:
    """Return the input of a graph as updates of its state.

    Raises:
        UsageError: it is not a kind of input that this graph takes.
    """
    if isinstance(input, dict):
        return input  # pyright: ignore[reportUnknownVariableType]  # made by the user
    if input is None:
        return {}
    if isinstance(input, Mapping):
        return cast("Mapping[str, Any]", input)
    schema = plan.schema
    if schema.cls is not None and isinstance(input, schema.cls):
        return attributes(schema, input)
    text = input.text if isinstance(input, Message) else input
    if not isinstance(text, str) or "user_input" not in schema.channels:
        raise UsageError(f"Graph '{plan.name}' takes a mapping of its state as input, not {a_type(input)}.")
    return {"user_input": text}


class StepFrame(ProgramFrame):
    """A graph and how far its superstep has come.

    In phase "run", the `tasks` of a superstep run; then their writes are applied and it is in phase "route", where
    conditions decide what comes next (`routings` are those that could not be decided in one go); then the next tasks
    are ready and it is in "run" again.
    """

    # Slots for its own attributes, besides those of all frames: see Scope.
    __slots__ = (
        "_audience",
        "_values",
        "count",
        "fields",
        "ids",
        "node_hooks",
        "phase",
        "plan",
        "routes",
        "routes_stored",
        "routings",
        "step",
        "tasks",
        "types_stored",
        "values_new",
    )
    questions_stored: int
    ids: int
    step: int
    count: int
    recorded: bool

    def __init__(self, plan: Plan, scope: Scope, parent: Frame | None, segment: str) -> None:
        super().__init__(scope, parent, segment)
        self.plan: Plan = plan
        self.fields: Fields = Fields()
        self._audience: Audience | None = None
        self.step = self.count = self.ids = 0
        self._values: dict[str, Any] = {}
        self.values_new: dict[str, Any] = {}
        self.phase: str = "run"
        self.tasks: list[Task] = []
        self.routings: list[Routing] = []
        self.routes: Routes = Routes(plan)
        self.routes_stored: bool = False
        self.types_stored: bool = False
        self.node_hooks: tuple[Middleware, ...] = ()

    @property
    def values(self) -> dict[str, Any]:
        return self._values

    @property
    def audience(self) -> Audience:
        # The same for a whole turn: the frames above do not change.
        if self._audience is None:
            self._audience = super().audience
        return self._audience

    # Input and output

    def begin(self, input: Any) -> None:
        self.begin_from(read_input(self.plan, input))

    def begin_with(self, input: Any, state: Mapping[str, Any]) -> None:
        self.begin_from(state, read_input(self.plan, input))

    def begin_from(self, *updates: Mapping[str, Any]) -> None:
        """Begin a turn with these updates of the state, one after the other."""
        self._audience = None
        if not self.fields.values and not self.recorded:
            for name, value in self.plan.schema.first().items():
                self.fields.adopt(name, value)
        self.commit_changes(self._checked(updates, INPUT))
        self.fields.updates = {}
        self.begin_steps()
        self.depart(self.plan.start)

    def begin_steps(self) -> None:
        """Clear what the last turn left behind."""
        self.count = 0
        self.routes.begin()
        self.close_questions()

    def _checked(self, updates: Iterable[Mapping[str, Any]], writer: str) -> Changes:
        """Return the changes that values from outside make to the state, after checking them against the schema."""
        fields, schema = self.fields.values, self.plan.schema
        changes = Changes(fields, self)
        for name, value in chain.from_iterable(update.items() for update in updates):
            is_whole = type(value) is Overwrite
            adopted, plain = codec.adopt(value.value if is_whole else value, name)
            if not plain:
                changes.tagged |= {name}
            channel = schema.channel(name, writer)
            (channel.overwrite if is_whole else channel.update)(changes, adopted, writer)
        # Only new values are checked: the others have been, and may be long.
        schema.check(changes.added(), fields)
        return changes

    def new_message_id(self) -> str:
        """Return the next message id: from the session's counter at the root, with a unique prefix below it."""
        new = self.next_message_id()
        self.ids += 1
        return new

    def next_message_id(self) -> str:
        """Return the id that the next message will have, without using it up."""
        return f"{self._id_prefix()}{self.ids + 1}"

    def _id_prefix(self) -> str:
        if self.parent is None:
            return "m"
        place = hashlib.blake2b(f"{self.path} {self.instance}".encode(), digest_size=5).hexdigest()
        return f"m{place}."

    def pass_message_ids(self, existing: Iterable[str]) -> None:
        """Continue counting after ids that messages already have: ids of another session look the same."""
        prefix = self._id_prefix()
        for each in existing:
            number = each[len(prefix) :]
            if each.startswith(prefix) and number.isascii() and number.isdecimal() and len(number) < 16:
                self.ids = max(self.ids, int(number))

    def report(self) -> Report:
        schema, fields = self.plan.schema, self.fields.share()
        state = Snapshot(schema, fields)
        output = fields.get("last_response", "")
        shown = state if schema.cls is None else schema.build(dict(state))
        return Report(output=output if isinstance(output, str) else "", state=shown, fields=state)

    def product(self) -> Any:
        return self.fields.share()

    def following(self) -> tuple[str, ...]:
        tasks = self.tasks
        if len(tasks) == 1:
            return (tasks[0].node.name,)
        tasks = [task for task in tasks if task.status != "done"] or tasks
        routes = self.routes
        sends = routes.targets if self.phase == "route" else routes.deferred
        if routes.finished:
            sends = [send for send in sends if not send[0].options.defer]
        # Where a condition leads is not known yet, but it runs next itself.
        undecided = [condition.below for node in routes.finished for condition in node.conditions]
        names = [task.node.name for task in tasks] if tasks else [node.name for node, _ in sends]
        return tuple(dict.fromkeys([*undecided, *names]))

    def stops_before(self, tasks: list[Task]) -> bool:
        """Return whether cancelling the run stops this graph before these tasks."""
        return True

    def wake(self) -> None:
        if self.questions:
            self.scope.mark(self)  # The answer must be stored, too, not only the edit that comes with it.

    # From one superstep to the next

    def depart(self, node: Node) -> None:
        """Leave `node` by its edges, as if it had just finished."""
        self.phase = "route"
        self.routes.begin_superstep()
        self.routes.take_edges(node)
        self.routes.fire_joins()
        self.scope.changes.dirty[self] = None
        if not node.conditions:
            self.settle()

    def settle(self) -> None:
        """Create the next tasks from the targets; deferred ones follow when nothing else is left."""
        targets, scope = self.routes.take_targets(), self.scope
        self.phase = "run"
        if self.routes_stored:
            # A record says that this is still undecided, so the next one must say otherwise.
            scope.changes.dirty[self] = None
        if targets:
            self.tasks = self._tasks(targets)
            for task in self.tasks:
                scope.changes.dirty[task] = None

    def _tasks(self, targets: list[Send]) -> list[Task]:
        if len(targets) == 1:
            node, overlay = targets[0]
            return [Task(self, node, None if overlay is None else 1, overlay)]
        by_node: dict[Node, list[Overlay | None]] = {}
        for node, overlay in targets:
            overlays = by_node.setdefault(node, [])
            if overlay is not None:
                overlays.append(overlay)
            elif None not in overlays:
                overlays.append(None)
        ordered = sorted(by_node.items(), key=lambda item: item[0].order)
        return [
            Task(self, node, None if overlays == [None] else number, overlay)
            for node, overlays in ordered
            for number, overlay in enumerate(overlays, 1)
        ]

    def routings_to_decide(self) -> list[Routing]:
        """Return one routing for each condition of the finished nodes, restored if it is stored."""
        routings = [Routing(self, node, condition) for node in self.routes.finished for condition in node.conditions]
        if self.scope.dormant:
            for routing in routings:
                self._restore_routing(routing)
        return routings

    # Changing the state

    def commit_changes(self, changes: Changes) -> None:
        """Apply the changes of a superstep, an input or an edit."""
        self.fields.commit(changes)
        self.scope.changes.dirty[self] = None

    def export(self, name: str, value: Any) -> None:
        """Collect an update for the parent graph, which shares this field."""
        self.fields.export(name, value, type(self.plan.schema.channels.get(name)) is not Channel)

    def set_values(self, values: Mapping[str, Any]) -> None:
        for key, value in values.items():
            self._values[key] = self.values_new[key] = adopt_value(key, value)
        self.scope.mark(self)

    def requesting(self) -> list[tuple[Task, Request]]:
        """Return the tasks that request something of the agent which runs this graph, and what: it does one thing."""
        return [(task, Request(**left[ACTION])) for task in self.tasks if (left := task.written) and ACTION in left]

    def children_ended(self, task: Task) -> None:
        """Take what ended children have left with a task before it ends itself; by default, nothing."""

    def merge_values(self, values: Mapping[str, Any]) -> None:
        """Merge the session values that a finished task wrote."""
        self._values.update(values)
        self.values_new.update(values)

    @property
    def has_tasks_alone(self) -> bool:
        """Whether there are only tasks below, so that everything below can be dropped with them."""
        return True

    def abandon(self) -> None:
        self._drop_superstep()
        self.routes.begin()

    def _drop_superstep(self) -> None:
        for frame in self.live_children():
            frame.close()
        self.scope.forget_below(self.path)
        self.scope.changes.dropped[self.path + ";"] = None
        self.tasks, self.routings = [], []
        self.routes.begin_superstep()
        self.close_questions()
        self.phase = "run"
        self.scope.mark(self)

    def close_questions(self) -> None:
        """Withdraw the questions that the graph itself asked."""
        if self.questions is None:
            return
        self.withdraw_questions()
        self.scope.questions.askers.pop(self.path, None)

    def supply(self, state: Mapping[str, Any]) -> None:
        self.edit({name: value for name, value in state.items() if name not in self.fields.values}, None)

    def with_message_ids(self, name: str, value: Any) -> Any:
        """Return an update of a field that the parent graph shares, with an id for every message in it."""
        channel = self.plan.schema.channels.get(name)
        return channel.identified(self, value) if isinstance(channel, MessagesChannel) else value

    def edit(self, values: Mapping[str, Any], as_node: str | None) -> None:
        shared = {name: self.with_message_ids(name, values[name]) for name in self.fields.exports.intersection(values)}
        changes = self._checked([{**values, **shared}], EDIT)
        node = None if as_node is None else self.plan.nodes.get(as_node)
        if as_node is not None and node is None:
            raise UsageError(
                f"as_node='{as_node}': graph '{self.plan.name}' has no such node. It has: {', '.join(self.plan.nodes)}."
            )
        self.commit_changes(changes)
        for name, value in shared.items():
            self.export(name, codec.adopt(value, name)[0])
        if node is not None:
            self._act_as(node)

    def _act_as(self, node: Node) -> None:
        """Continue as if `node` had just finished.

        Its siblings in the superstep stay, as do joins and deferred nodes. If it is not part of the superstep, or alone
        in it, what follows it comes instead of the superstep.
        """
        if node in self.routes.finished:
            self._decide_again(node)
        elif {task.node for task in self.tasks} > {node}:
            self._finish_by_hand(node)
        else:
            self._drop_superstep()
            self.depart(node)

    def _decide_again(self, node: Node) -> None:
        """Forget what the conditions of a finished node have decided; its other edges are taken already."""
        for number, routing in enumerate(self.routings):
            if routing.node is node:
                routing.drop()
                self.routings[number] = Routing(self, node, routing.condition)

    def _finish_by_hand(self, node: Node) -> None:
        """Replace the tasks of a node by one that is done, so that the node is left when its siblings are done."""
        for task in self.tasks:
            if task.node is node:
                task.drop()
        done = Task(self, node)
        done.status = "done"
        self.tasks = _in_order([done, *(task for task in self.tasks if task.node is not node)])
        self.scope.mark(done)

    def start_over(self) -> None:
        self.close_questions()
        self.scope.mark(self)
        super().start_over()

    # Records

    def live_children(self) -> Iterable[Frame]:
        return [*self.tasks, *self.routings]

    @property
    def declared_types(self) -> dict[str, str]:
        """The types of the fields, to be stored: another version of the program may declare others."""
        return self.plan.schema.types

    def snapshot(self) -> GraphImage:
        image = GraphImage(fresh=not self.recorded, step=self.step, count=self.count)
        if image.fresh:
            image.graph, self.recorded = self.plan.name, True
        if image.fresh or not self.types_stored:
            image.types, self.types_stored = self.declared_types, True
        self.fields.snapshot(image)
        if self.values_new:
            image.values = lower_values(self.values_new)
            self.values_new = {}
        if self.ids:
            image.ids = self.ids
        if self.questions is not None:
            self.put_questions(image)
        lead_on = self.phase != "run" or self.routes.is_pending
        if lead_on or self.routes_stored:
            image.phase = self.phase
            self.routes.snapshot(image)
        self.routes_stored = lead_on
        return image

    def snapshot_all(self, into: dict[str, Image]) -> None:
        self.recorded = False
        self.fields.mark_all()
        self.values_new = dict(self._values)
        into[self.path] = self.snapshot()
        for child in self.live_children():
            child.snapshot_all(into)
        if self.scope.dormant:
            into.update(self.scope.dormant.snapshot(self.path))

    def restore(self, image: GraphImage) -> None:
        """Restore the stored frame, with the tasks and routings that were in progress."""
        self.recorded = True
        self.step, self.count = value_or(image.step, 0), value_or(image.count, 0)
        self.ids, self.phase = value_or(image.ids, 0), value_or(image.phase, "run")
        self.questions, self.questions_stored = None, len(image.questions)
        if image.questions:
            self.questions = self.scope.questions.named(image.questions)
            self.scope.questions.askers[self.path] = self
        self.scope.note_bound(self)
        self._values = lift_values(image.values)
        self.routes.restore(image, lambda name: self.node_named(name, self.path))
        self.routes_stored = True
        pieces = self.scope.dormant.pieces.pop(self.path, {})
        types = value_or(image.types, {})
        self.fields.restore(pieces, types, self.plan.schema, self.address)
        self.types_stored = types == self.declared_types
        self._restore_tasks()
        self._restore_routings()
        self.routes.check_joins(self.address, under_way=bool(self.tasks) or self.phase == "route")
        self.routes.leave_undecided()

    def node_named(self, name: str, path: str) -> Node:
        """Return the node that the stored frame at `path` names.

        Raises:
            ProgramChanged: the graph no longer has it.
        """
        node = self.plan.nodes.get(name)
        if node is None:
            raise ProgramChanged(
                address_of(path), f"the graph has no node '{name}' any more" if name != END else "it names the end"
            )
        return node

    def _restore_tasks(self) -> None:
        for segment in list(self.scope.dormant.below(self.path)):
            task = self.task_at(segment)
            if task is not None:
                self._restore_task(segment, task)
        self.tasks = _in_order(self.tasks)

    def task_at(self, segment: str) -> Task | None:
        """Return the task at a segment below this graph, or None if the segment is not that of a task."""
        kind, name, number = parsed_segment(segment)
        return Task(self, self.node_named(name, f"{self.path};{segment}"), number) if kind == "node" else None

    def _restore_task(self, segment: str, task: Task) -> None:
        image = self.scope.dormant.bind(self.path, segment)
        if not isinstance(image, UserImage):
            raise CheckpointCorrupt(f"'{task.path}' is not the frame of a node")
        task.restore(image)
        task.node.check_restored(task, self.scope.dormant.below(task.path))
        self.tasks.append(task)

    def _restore_routings(self) -> None:
        """Restore the routings that were in progress if the graph was stored while it routed.

        Raises:
            ProgramChanged: a condition that asked or recorded something is gone.
        """
        dormant = self.scope.dormant
        places = [place for node in self.routes.finished if (place := f"{self.path};{node.segment}") in dormant]
        if places:
            self.routings = self.routings_to_decide()
        for place in places:
            for segment, image in list(dormant.below(place).items()):
                self._leave_routing(place, segment, image)

    def _leave_routing(self, place: str, segment: str, image: Image) -> None:
        """Drop the routing of a condition that is gone: others decide now, unless somebody was asked there."""
        path = f"{place};{segment}"
        if not isinstance(image, UserImage) or image.questions or image.memos or self.scope.dormant.below(path):
            raise ProgramChanged(
                address_of(path), "the node has no such condition any more (a condition is known by its name)"
            )
        self.scope.dormant.bind(place, segment)
        self.scope.changes.dropped[path] = None

    def _restore_routing(self, routing: Routing) -> None:
        image = self.scope.dormant.bind(f"{self.path};{routing.node.segment}", routing.condition.segment)
        if image is not None:
            if not isinstance(image, UserImage):
                raise CheckpointCorrupt(f"'{routing.path}' is not the frame of a routing")
            routing.restore(image)


def _in_order(tasks: Iterable[Task]) -> list[Task]:
    return sorted(tasks, key=lambda task: (task.node.order, task.index or 0))
