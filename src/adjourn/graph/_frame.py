"""The frame of a graph, and the frames of its tasks and routings: how supersteps run, and what is recorded of them."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Iterable, Mapping
from functools import partial
from itertools import chain
from typing import Any, Final, Literal, cast

from adjourn._calls.caller import middleware_around
from adjourn._engine.address import address_of
from adjourn._engine.concurrency import Slot
from adjourn._engine.entry import current_place
from adjourn._engine.execution import PAUSED, execute, execute_inline
from adjourn._engine.frame import Running, UserFrame
from adjourn._engine.memos import Key, Memo
from adjourn._engine.program import ProgramFrame, Report
from adjourn._engine.record import GraphImage, Image, Question, UserImage
from adjourn._engine.retry import attempted
from adjourn._engine.scope import ACTION, TURN, Action, Audience, Frame, RunCancelled, Scope
from adjourn._engine.values import adopt_value, lift_values, lower_values, value_or
from adjourn._text import a_type
from adjourn._values import codec
from adjourn.errors import (
    AdjournError,
    CheckpointCorrupt,
    Conflict,
    MaxStepsExceeded,
    NodeTimeout,
    ProgramChanged,
    RunError,
    RunTimeout,
    UsageError,
    WriteConflict,
    add_note,
    describe,
    text_of,
)
from adjourn.events import NodeEnd, NodeStart
from adjourn.messages import Message
from adjourn.middleware.hooks import Middleware, having

from ._breakpoints import pauses_at_breakpoint
from ._cache import CachedResult, CacheKey
from ._channels import EDIT, INPUT, Changes, Channel, MessageIds, MessagesChannel
from ._fields import Fields, decode_field
from ._node import Condition, Node, Overlay, Plan, Send
from ._results import Writes, adopted, fan_out, listed, messages_in, nodes_named, returned_update
from ._routes import Routes, encode_write, lift_overlay, lower_overlay, parsed_segment
from .commands import Cache, Command, Overwrite
from .state import Snapshot, attributes, read

HANDLED: Final = object()
"""Returned by a node that has already set the result of its task."""

STARTED = 32
"""Tasks of a superstep that start in one iteration of the event loop."""


class Task(UserFrame):
    """One run of a node in one superstep; `writes`, `goto` and `sends` are its result once it is done."""

    __slots__ = ("goto", "graph", "index", "node", "overlay", "seen", "sends", "writes")

    cached: bool = False
    cache_key: CacheKey | None = None
    to_cache: CachedResult | None = None
    around: Any = None  # Any: the hooks around it, which are above this module
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
    exception: BaseException | None
    slot: Slot | None
    graph: GraphFrame

    def __init__(self, graph: GraphFrame, node: Node, index: int | None = None, overlay: Overlay | None = None) -> None:
        # The base constructors are not called: they make a step 5% slower (1 µs of 21 for a task and a routing).
        self.scope: Scope = graph.scope
        self.parent = self.graph = graph
        self.segment: str = node.segment if index is None else node.segment_of(graph, index, overlay)
        self.alive, self.recorded, self.questions = True, False, None
        self.node: Node = node
        self.index: int | None = index
        # What the node sees laid over the state: by a fan-out, which is recorded, and for now by hooks around it.
        self.overlay = self.seen = overlay
        self.writes: Writes = []
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
    def label(self) -> str:
        """The node's name, with the task's number in a fan-out."""
        return self.node.name if self.index is None else f"{self.node.name}:{self.index}"

    def begin_again(self) -> None:
        """Prepare to run again after a failure."""
        self.exception = None
        self.status = "pending"
        self.attempt += 1
        self.scope.mark(self)

    def set_result(self, result: Any) -> None:
        """Set the writes and targets that the node means by what it returned; raise if they cannot be stored."""
        node, plan = self.node, self.graph.plan
        if type(result) is dict:
            self.writes = adopted(plan.schema, node, result)  # pyright: ignore[reportUnknownArgumentType]  # made by the user
        elif result is None:
            self.writes = []
        elif isinstance(result, Command):
            command = cast("Command", result)
            if command.update is not None:
                self.writes = self._adopted(command.update)
            if command.goto is not None:
                targets = command.targets()
                if any(isinstance(each, Command) for each in targets):
                    self.sends = fan_out(plan, node, targets)
                else:
                    self.goto = nodes_named(plan, node, targets)
        elif isinstance(result, list):
            self.sends = fan_out(plan, node, cast("list[Any]", result))
        else:
            self.writes = self._adopted(result)

    def _adopted(self, result: Any) -> Writes:
        schema = self.graph.plan.schema
        update = returned_update(schema, self.node, self.graph.fields.values, self.seen, result)
        return adopted(schema, self.node, update)

    def forget_result(self) -> None:
        """Forget what an earlier run of the node has returned."""
        self.writes, self.goto, self.sends = [], None, None

    @property
    def runs_code(self) -> bool:
        return not self.node.runs_program

    def bind_dormant(self) -> None:
        self.node.bind_dormant(self)

    def children_ended(self) -> None:
        self.graph.plan.children_ended(self.graph, self)

    def check_answer(self, question: Question) -> None:
        super().check_answer(question)
        self.node.check_answer(self, question)

    def fail(self, error: BaseException) -> None:
        """Record the failure; the task runs again when the session is recovered."""
        self.status = "failed"
        self.exception = error
        self.error = dict(describe(error))
        self.scope.mark(self)

    # The cache

    def find_cached(self, cache: Cache) -> bool:
        """Set the result from the cache if it is there; otherwise note the key under which to cache it."""
        self.cache_key = None
        if self.questions or self.children or self.path in self.scope.dormant:
            return False  # A question was asked: its answer must not decide another session, nor another answer this.
        if not self.node.may_cache(self):
            return False
        key = self._key(cache)
        kept = self.graph.plan.results.get(key, self.scope.clock())
        if kept is not None and self._recall(kept):
            return True
        self.cache_key = key
        return False

    def _key(self, cache: Cache) -> CacheKey:
        plan, fields, scope, own = self.graph.plan, self.graph.fields.values, self.scope, self.node.cache_input(self)
        if cache.key is not None:
            given: Any = [cache.key(read(plan.schema, self.graph.fields, self.overlay)), own]
        else:
            state = {**fields, **(self.overlay or {})} if own is None else own
            around = [scope.user_id, self.all_values(), dict(scope.turn_options), dict(scope.for_agents)]
            given = [state, *around]
        return CacheKey(self.node.name, codec.fingerprint(given, "the cache key"))

    def _recall(self, kept: CachedResult) -> bool:
        plan, name = self.graph.plan, self.node.name
        self.writes = [(field, codec.decode(raw), False) for field, raw in kept.writes]
        self.goto = None if kept.goto is None else [plan.target(target, name) for target in kept.goto]
        sends = kept.sends
        self.sends = None if sends is None else [(plan.target(to, name), lift_overlay(over)) for to, over in sends]
        self.written = lift_values(kept.values) or None
        self.cached = self.node.recall(self, kept.added)
        if not self.cached:
            self.forget_result()
            self.written = None
        return self.cached

    def note_result(self) -> None:
        """Note the result to cache, before it is applied: one with a tool's error in it may not be used again."""
        cache, said = self.node.options.cache, list(messages_in(self.graph.plan.schema, self.writes))
        if cache is None or any(each.role == "tool" and each.finish_reason == "error" for _, each in said):
            return
        fields, laid = self.graph.fields.values, self.overlay or {}
        found = {(name, each.id) for name, each in said}
        known = {
            (name, each.id)
            for name in {name for name, _ in found}
            for each in (*listed(fields.get(name)), *listed(laid.get(name)))
            if isinstance(each, Message)
        }
        self.to_cache = CachedResult(
            expires=self.scope.clock() + cache.seconds,
            writes=[(name, encode_write(value, plain)) for name, value, plain in self.writes],
            goto=None if self.goto is None else [node.name for node in self.goto],
            sends=None if self.sends is None else [(node.name, lower_overlay(over or {})) for node, over in self.sends],
            values=lower_values(self.written or {}),
            added=frozenset(each for _, each in found - known if each is not None),
        )

    def wake(self) -> None:
        super().wake()
        if self.graph.left is not None:
            self.graph.left.woken[self] = None

    def wait(self) -> None:
        super().wait()
        self.graph.left = None

    def start_over(self) -> None:
        super().start_over()
        self.graph.left = None

    # Running, once or in several attempts

    async def run(self, *, alone: bool) -> None:
        """Run to the end; the outcome is recorded here, and only cancellation is raised."""
        scope, node, graph = self.scope, self.node, self.graph
        if self.status == "failed":
            self.begin_again()
        is_heard = graph.is_heard and node.is_reported
        if is_heard and scope.has_reader:
            self._emit_start()
        started = time.perf_counter() if is_heard else 0.0
        try:
            if scope.cancellation.mode is not None and graph.plan.stops_before(graph, [self]):
                raise RunCancelled
            is_plain = node.is_plain and scope.slots is None and not graph.node_hooks
            result = await (node.run(self) if is_plain else self._attempts())
            if result is PAUSED:
                self.status = "waiting"
            else:
                if result is not HANDLED:
                    self.set_result(result)
                self.status = "done"
        except RunCancelled as cancelled:
            self.exception = cancelled
        except Exception as error:  # noqa: BLE001  # protects the siblings: they finish, and then the graph raises it
            self.fail(error)
        if started and self.status in ("done", "failed"):
            self._emit_end(time.perf_counter() - started)
        if self.status != "done" or not alone:
            self._have_recorded(alone)

    def _have_recorded(self, alone: bool) -> None:
        """Schedule a record of how the task ended; soon, if others still run: a finished task must never run again."""
        self.scope.changes.dirty[self] = None
        if not alone or self.graph.parent is not None:
            self.scope.log.soon()

    def _emit_start(self) -> None:
        name, path, _ = self.graph.audience
        start = NodeStart(
            node=self.node.name,
            title=self.title,
            address=self.address,
            attempt=self.attempt,
            step=self.graph.step,
            agent=name,
            path=path,
        )
        self.scope.log.emit_live(start)

    def _emit_end(self, seconds: float) -> None:
        node, audience, error, writes = self.node, self.graph.audience, self.exception, self.writes
        end = NodeEnd(
            node=node.name,
            title=node.options.title,
            address=self.address,
            seconds=int(seconds * 1e6) / 1e6,
            cached=self.cached,
            step=self.graph.step,
            writes=(writes[0][0],) if len(writes) == 1 else tuple(dict.fromkeys([name for name, _, _ in writes])),
            error=None if error is None else f"{type(error).__name__}: {text_of(error)}",
            agent=audience.name,
            path=audience.path,
        )
        self.scope.log.emit(end)

    def fail_from_outside(self, error: Exception, seconds: float = 0.0) -> None:
        """Fail with an error that the task did not raise itself."""
        self.forget_result()
        self.fail(error)
        if self.graph.is_heard and self.node.is_reported:
            self._emit_end(seconds)

    async def _attempts(self) -> Any:
        """Return the node's result, trying as often as its retry policies allow."""
        cache = self.node.options.cache
        if cache is not None and self.find_cached(cache):
            return HANDLED
        emit = self.scope.log.emit_live if self.scope.has_reader else None
        return await attempted(self, self.node.retry, self._bounded, emit)

    async def _bounded(self) -> Any:
        """Make one attempt, within the concurrency limit and the node's timeout."""
        if self.scope.slots is None or not self.node.takes_slot:
            return await self._timed()
        async with Slot(self.scope.slots) as self.slot:
            if self.scope.cancellation.mode == "now":
                raise RunCancelled  # Cancelled while this task waited for its slot.
            await self.scope.log.assure()
            return await self._timed()

    async def _timed(self) -> Any:
        seconds = self.node.options.timeout
        if seconds is None:
            return await self._attempt()
        clock = asyncio.timeout(seconds)
        try:
            async with clock:
                return await self._attempt()
        except TimeoutError as error:
            if not clock.expired():
                raise  # The node's own.
            raise NodeTimeout(self.address, seconds) from error

    def _attempt(self) -> Awaitable[Any]:
        hooks = (*self.graph.node_hooks, *self.node.hooks)
        return self.graph.plan.run_wrapped(self, hooks) if hooks else self.node.run(self)

    # Records

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
        self.overlay = self.seen = lift_overlay(value_or(image.overlay, None))
        self.writes = [(name, decode_field(name, raw), False) for name, raw in value_or(image.writes, [])]
        goto = value_or(image.goto, None)
        self.goto = None if goto is None else [self.graph.plan.node_named(name, self.path) for name in goto]
        sends = value_or(image.sends, None)
        self.sends = (
            None
            if sends is None
            else [(self.graph.plan.node_named(name, self.path), lift_overlay(over)) for name, over in sends]
        )


class Routing(UserFrame):
    """One evaluation of a condition that paused or failed; `targets` is its result once it is done."""

    def __init__(self, graph: GraphFrame, node: Node, condition: Condition) -> None:
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

    async def evaluate(self) -> None:
        """Evaluate an async condition; a failure is recorded, not raised, so that other conditions decide."""
        graph = self.graph
        try:
            self._set_targets(await execute(self, self.condition.call, read(graph.plan.schema, graph.fields)))
        except Exception as error:  # noqa: BLE001  # protects the other conditions: they keep their decisions
            self.status, self.exception = "failed", error

    def evaluate_inline(self) -> None:
        """Do what `evaluate` does, for a sync condition."""
        graph = self.graph
        try:
            self._set_targets(execute_inline(self, self.condition.call, read(graph.plan.schema, graph.fields)))
        except Exception as error:  # noqa: BLE001  # protects the other conditions: they keep their decisions
            self.status, self.exception = "failed", error

    def _set_targets(self, result: Any) -> None:
        if result is PAUSED:
            self.status = "waiting"
            return
        self.status = "done"
        known = self.condition.known
        if type(result) is str and result in known:
            node = known[result]
            self.targets = [] if node is None else [node]
        else:
            self.targets = self.graph.routes.decided(self.node, self.condition, result)

    def add_result(self, image: UserImage) -> None:
        super().add_result(image)
        image.goto = [node.name for node in self.targets]

    def restore(self, image: UserImage) -> None:
        super().restore(image)
        self.targets = [self.graph.plan.node_named(name, self.path) for name in value_or(image.goto, [])]


class Routings(list[Routing]):
    """The conditions of finished nodes that could not all be decided in one go: one waits, has failed, or is async.

    It is empty, or has one routing for each condition of the finished nodes, and a record has each of them.
    """

    __slots__ = ()

    async def decide(self, graph: GraphFrame) -> bool:
        """Evaluate every condition of the finished nodes; return False if one of them waits for an answer."""
        if time.monotonic() > graph.scope.yield_deadline:
            await graph.scope.yield_to_loop()
        routings, decided = list(self) or _to_decide(graph), True
        for routing in routings:
            if routing.status in ("pending", "failed"):
                routing.exception = None
                if routing.condition.is_async:
                    # Something else may write a record while it runs, which must have all questions and memos so far.
                    self._keep(graph, routings)
                    await routing.evaluate()
                else:
                    routing.evaluate_inline()
            decided = decided and routing.status == "done"
        if decided:
            self._take(graph, routings)
            return True
        self._keep(graph, routings)
        for routing in routings:
            if routing.exception is not None:
                raise routing.exception
        return False

    def _keep(self, graph: GraphFrame, routings: list[Routing]) -> None:
        self[:] = routings
        graph.scope.mark(graph)
        for routing in routings:
            graph.scope.mark(routing)

    def _take(self, graph: GraphFrame, routings: list[Routing]) -> None:
        """Take the targets of conditions that have all decided."""
        for routing in routings:
            for node in routing.targets:
                graph.routes.targets.append((node, None))
            if routing.written:
                graph.merge_values(routing.written)
            graph.scope.changes.dirty.pop(routing, None)
            if routing.recorded or routing.questions:
                routing.drop()
        self.clear()

    def decide_again(self, node: Node) -> None:
        """Forget what the conditions of a finished node have decided; its other edges are taken already."""
        for number, routing in enumerate(self):
            if routing.node is node:
                routing.drop()
                self[number] = Routing(routing.graph, node, routing.condition)

    def restore(self, graph: GraphFrame) -> None:
        """Restore the routings that were in progress if the graph was stored while it routed.

        Raises:
            ProgramChanged: a condition that asked or recorded something is gone.
        """
        dormant = graph.scope.dormant
        places = [place for node in graph.routes.finished if (place := f"{graph.path};{node.segment}") in dormant]
        if places:
            self[:] = _to_decide(graph)
        for place in places:
            for segment, image in list(dormant.below(place).items()):
                _leave(graph, place, segment, image)


def _to_decide(graph: GraphFrame) -> list[Routing]:
    """Return one routing for each condition of the finished nodes, restored if it is stored."""
    routings = [Routing(graph, node, condition) for node in graph.routes.finished for condition in node.conditions]
    if graph.scope.dormant:
        for routing in routings:
            image = graph.scope.dormant.bind(f"{graph.path};{routing.node.segment}", routing.condition.segment)
            if image is not None:
                if not isinstance(image, UserImage):
                    raise CheckpointCorrupt(f"'{routing.path}' is not the frame of a routing")
                routing.restore(image)
    return routings


def _leave(graph: GraphFrame, place: str, segment: str, image: Image) -> None:
    """Drop the routing of a condition that is gone: others decide now, unless somebody was asked there."""
    path, dormant = f"{place};{segment}", graph.scope.dormant
    if not isinstance(image, UserImage) or image.questions or image.memos or dormant.below(path):
        raise ProgramChanged(
            address_of(path), "the node has no such condition any more (a condition is known by its name)"
        )
    dormant.bind(place, segment)
    graph.scope.changes.dropped[path] = None


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


class GraphFrame(ProgramFrame):
    """A running graph, and how far its superstep has come.

    In phase "run", the `tasks` of a superstep run; then their writes are applied and it is in phase "route", where
    conditions decide what comes next (`routings` are those that could not be decided in one go); then the next tasks
    are ready and it is in "run" again.

    Between two supersteps, `tasks` are new and `routes` has no targets: no record shows a task that is done beside a
    state that has its writes, since `_apply` and `_release` apply all writes, drop the tasks and move the phase without
    awaiting anything. While tasks run, `fields` is as before the superstep; a task among several is recorded as soon as
    it ends. `routes_stored` says that the last record has a phase "route" or routes that are pending, so that the next
    one must have them, too, even if they are empty by then. `values_new` are session values that are in no record.
    """

    # Slots for its own attributes, besides those of all frames: see Scope.
    __slots__ = (
        "_audience",
        "_values",
        "around_all",
        "beside",
        "count",
        "fields",
        "ids",
        "is_heard",
        "left",
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
    step: int
    count: int
    recorded: bool

    def __init__(self, plan: Plan, scope: Scope, parent: Frame | None, segment: str) -> None:
        super().__init__(scope, parent, segment)
        self.plan: Plan = plan
        self.around_all: tuple[Any, ...] = plan.middleware
        self.fields: Fields = Fields()
        self._audience: Audience | None = None
        self.ids: MessageIds = MessageIds(parent, segment)
        self.step = self.count = 0
        self._values: dict[str, Any] = {}
        self.values_new: dict[str, Any] = {}
        self.phase: str = "run"
        self.tasks: list[Task] = []
        self.left: _Left | None = None
        self.routings: Routings = Routings()
        self.routes: Routes = Routes(plan)
        self.routes_stored: bool = False
        self.types_stored: bool = False
        self.node_hooks: tuple[Middleware, ...] = ()
        self.is_heard: bool = False
        self.beside: Frame | None = None  # A frame below that is not a task: what prepares an agent, or its graph.

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

    def begin(self, input: Any, state: Mapping[str, Any] | None = None) -> None:
        given = read_input(self.plan, input)
        self.begin_from(*((given,) if state is None else (state, given)))

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
        changes = Changes(fields, self.ids)
        for name, value in chain.from_iterable([update.items() for update in updates]):
            is_whole = type(value) is Overwrite
            adopted, plain = codec.adopt(value.value if is_whole else value, name)
            if not plain:
                changes.tagged |= {name}
            channel = schema.channel(name, writer)
            (channel.overwrite if is_whole else channel.update)(changes, adopted, writer)
        # Only new values are checked: the others have been, and may be long.
        schema.check(changes.added(), fields)
        return changes

    def report(self) -> Report:
        schema, fields = self.plan.schema, self.fields.share()
        state = Snapshot(schema, fields)
        output = fields.get("last_response", "")
        shown = state if schema.cls is None else schema.build(dict(state))
        return Report(output=output if isinstance(output, str) else "", state=shown, fields=state)

    def product(self) -> Any:
        return self.fields.share()

    def following(self) -> tuple[str, ...]:
        tasks, routes = self.tasks, self.routes
        if len(tasks) == 1:
            return (tasks[0].node.name,)
        if not (tasks or routes.finished or routes.targets or routes.deferred):
            return ()
        if self.left is not None and self.left.tasks is tasks and self.left.names:
            names = list(self.left.names)
        else:
            names = [task.node.name for task in tasks if task.status != "done"] or [task.node.name for task in tasks]
        sends = routes.targets if self.phase == "route" else routes.deferred
        if routes.finished:
            sends = [send for send in sends if not send[0].options.defer]
        # Where a condition leads is not known yet, but it runs next itself.
        undecided = [condition.below for node in routes.finished for condition in node.conditions]
        return tuple(dict.fromkeys([*undecided, *(names or [node.name for node, _ in sends])]))

    def wake(self) -> None:
        if self.questions:
            self.scope.mark(self)  # The answer must be stored, too, not only the edit that comes with it.

    # Supersteps

    async def advance(self) -> bool:
        """Run the graph as far as it can go; return True if it has ended and False if it waits."""
        seconds = self.plan.run_timeout
        if seconds is None:
            return await self._advance()
        clock = asyncio.timeout(seconds)
        try:
            async with clock:
                return await self._advance()
        except TimeoutError as error:
            if not clock.expired():
                raise  # A node's own.
            raise RunTimeout(self.plan.name, seconds) from error

    async def _advance(self) -> bool:
        plan, scope = self.plan, self.scope
        limit = self._prepare()
        while True:
            if self.phase == "route":
                if self.routes.finished and not await self.routings.decide(self):
                    return False
                self.settle()
                if scope.has_boundaries and self.tasks and not plan.is_pausing(self):
                    await scope.log.boundary("step", self, self.step, self.following)
            if plan.has_breakpoints and pauses_at_breakpoint(self):
                return False
            tasks = self.tasks
            if not tasks:
                return True
            if self.count >= limit or scope.cancellation.mode is not None:
                self._stop(limit)
            if time.monotonic() > scope.yield_deadline:
                await scope.yield_to_loop()
            if len(tasks) == 1 and tasks[0].status != "waiting" and plan.step_timeout is None:
                await tasks[0].run(alone=True)
                is_done = tasks[0].status == "done" or _raise_failure(tasks)
            else:
                is_done = await self._run_together(tasks)
            if not is_done:
                return False
            self._apply(tasks)
            self._release(tasks)

    def _prepare(self) -> int:
        """Find what stays the same while the graph runs, and return the limit of supersteps."""
        plan, scope = self.plan, self.scope
        if plan.has_hooks:
            around = middleware_around(self)
            self.node_hooks = plan.wrapping.of(around, partial(having, around, "wrap_node")) if around else ()
        self.is_heard = scope.logs_events and self.audience.hears
        return scope.max_steps or plan.max_steps

    def _stop(self, limit: int) -> None:
        """Stop before the next superstep if the limit is reached or the run is cancelled."""
        if self.count >= limit:
            raise MaxStepsExceeded(self.plan.name, limit)
        if self.plan.stops_before(self, self.tasks):
            raise RunCancelled

    async def _run_together(self, tasks: list[Task]) -> bool:
        """Run the tasks of a superstep that can run, side by side, and return whether all are done."""
        left = self.left
        if left is None or left.tasks is not tasks or not left.names:
            left = self.left = _Left(tasks)
            ready, names = tasks, None
        else:
            ready, names = _in_order(left.woken), left.names
        left.begin()
        if ready := [task for task in ready if task.status in ("pending", "failed")]:
            await _run_side_by_side(self.scope, ready, self.plan.step_timeout)
            _raise_failure(ready)
        left.end(ready, names)
        if not left.names:
            self.left = None
        return not left.names

    def _apply(self, tasks: list[Task]) -> None:
        """Apply the writes of all tasks to the state in task order, or none of them."""
        fields, schema, several = self.fields, self.plan.schema, len(tasks) > 1
        changes = Changes(fields.values, self.ids)
        if several and self.plan.acts_once:
            _check_requests(tasks)
        for task in tasks:
            writer = task.label if several else task.node.name
            if task.cache_key is not None:
                task.note_result()  # Before new messages get ids: a later run adds messages of its own.
            if fields.exports:
                self._identify_messages(task)
            try:
                for name, value, plain in task.writes:
                    channel = schema.channels.get(name) or schema.channel(name, writer)
                    if type(value) is Overwrite:
                        channel.overwrite(changes, value.value, writer)
                    else:
                        channel.update(changes, value, writer)
                    if not plain:
                        changes.tagged |= {name}
            except AdjournError as error:
                task.fail_from_outside(error)
                raise
        self.commit_changes(changes)

    def _release(self, tasks: list[Task]) -> None:
        """Release the finished tasks and take their edges."""
        scope, routes, exports = self.scope, self.routes, self.fields.exports
        self.tasks = []
        self.step += 1
        self.count += 1
        self.phase = "route"
        if self.plan.has_breakpoints:
            self.close_questions()
            routes.ended = [task.node.name for task in tasks if task.node.options.interrupt_after]
        left: dict[Node, None] = {}
        for task in tasks:
            if exports or task.written is not None or task.cache_key is not None:
                self._hand_up(task)
            scope.changes.dirty.pop(task, None)
            if task.recorded:
                # If there are only tasks below, all that is below can be dropped with them.
                scope.changes.dropped[self.path + ";" if self.beside is None else task.path] = None
            if task.children or scope.questions.askers or scope.dormant:
                task.close()
            else:
                task.alive = False
            if task.sends is not None:
                routes.targets += task.sends
            elif task.goto is not None:
                routes.targets += [(node, None) for node in task.goto]
            else:
                left[task.node] = None
        for node in left:
            node.leave(self)
        if routes.joins:
            routes.fire_joins()

    def _identify_messages(self, task: Task) -> None:
        """Give ids to messages before they are applied and exported, so that they are the same in both graphs."""
        for number, (name, value, plain) in enumerate(task.writes):
            if name in self.fields.exports:
                task.writes[number] = (name, self.with_message_ids(name, value), plain)

    def _hand_up(self, task: Task) -> None:
        """Pass the results of an applied task on to the parent graph, the session and the cache."""
        for name, value, _ in task.writes if self.fields.exports else ():
            if name in self.fields.exports:
                self.export(name, value)
        if task.written is not None:
            self.merge_values(task.written)
        if task.cache_key is not None and task.to_cache is not None:
            self.plan.results.put(task.cache_key, task.to_cache)

    # From one superstep to the next

    def depart(self, node: Node) -> None:
        """Leave `node` by its edges, as if it had just finished."""
        self.phase = "route"
        self.routes.begin_superstep()
        node.leave(self)
        if self.routes.joins:
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
        if len(targets) == 1:
            node, overlay = targets[0]
            task = Task(self, node, None if overlay is None else 1, overlay)
            self.tasks, scope.changes.dirty[task] = [task], None
        elif targets:
            self.tasks = _tasks_for(self, targets)
            for task in self.tasks:
                scope.changes.dirty[task] = None

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

    def merge_values(self, values: Mapping[str, Any]) -> None:
        """Merge the session values that a finished task wrote."""
        self._values.update(values)
        self.values_new.update(values)

    def abandon(self) -> None:
        self.drop_superstep()
        self.routes.begin()

    def drop_superstep(self) -> None:
        """Give up the tasks and conditions that are under way, and everything below."""
        for frame in self.live_children():
            frame.close()
        self.scope.forget_below(self.path)
        self.scope.changes.dropped[self.path + ";"] = None
        self.tasks = []
        self.routings.clear()
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
        return channel.identified(self.ids, value) if isinstance(channel, MessagesChannel) else value

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
            self.routings.decide_again(node)
        elif {task.node for task in self.tasks} > {node}:
            self._finish_by_hand(node)
        else:
            self.drop_superstep()
            self.depart(node)

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
        tasks = [*self.tasks, *self.routings]
        return tasks if self.beside is None else [self.beside, *tasks]

    def snapshot(self) -> GraphImage:
        image = GraphImage(fresh=not self.recorded, step=self.step, count=self.count)
        if image.fresh:
            image.graph, self.recorded = self.plan.name, True
        if image.fresh or not self.types_stored:
            image.types, self.types_stored = self.plan.schema.types, True
        self.fields.snapshot(image)
        if self.values_new:
            image.values = lower_values(self.values_new)
            self.values_new = {}
        if self.ids.count:
            image.ids = self.ids.count
        if self.questions is not None:
            self.put_questions(image)
        routes = self.routes
        lead_on = self.phase != "run" or bool(routes.joins or routes.deferred or routes.ended)
        if lead_on or self.routes_stored:
            image.phase = self.phase
            routes.snapshot(image)
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
        self.ids.count, self.phase = value_or(image.ids, 0), value_or(image.phase, "run")
        self.questions, self.questions_stored = None, len(image.questions)
        if image.questions:
            self.questions = self.scope.questions.named(image.questions)
            self.scope.questions.askers[self.path] = self
        self.scope.note_bound(self)
        self._values = lift_values(image.values)
        self.routes.restore(image, lambda name: self.plan.node_named(name, self.path))
        self.routes_stored = True
        pieces = self.scope.dormant.pieces.pop(self.path, {})
        types = value_or(image.types, {})
        self.fields.restore(pieces, types, self.plan.schema, self.address)
        self.types_stored = types == self.plan.schema.types
        _restore_tasks(self)
        self.routings.restore(self)
        self.routes.check_joins(self.address, under_way=bool(self.tasks) or self.phase == "route")
        self.routes.leave_undecided()

    def task_at(self, segment: str) -> Task | None:
        """Return the task at a segment below this graph, or None if the segment is not that of a task."""
        kind, name, number = parsed_segment(segment)
        return Task(self, self.plan.node_named(name, f"{self.path};{segment}"), number) if kind == "node" else None


def _restore_tasks(graph: GraphFrame) -> None:
    for segment in list(graph.scope.dormant.below(graph.path)):
        task = graph.task_at(segment)
        if task is None:
            continue
        image = graph.scope.dormant.bind(graph.path, segment)
        if not isinstance(image, UserImage):
            raise CheckpointCorrupt(f"'{task.path}' is not the frame of a node")
        task.restore(image)
        task.node.check_restored(task, graph.scope.dormant.below(task.path))
        graph.tasks.append(task)
    graph.tasks = _in_order(graph.tasks)


def _tasks_for(graph: GraphFrame, targets: list[Send]) -> list[Task]:
    """Return the tasks of a superstep in order, with numbers for those of a fan-out."""
    by_node: dict[Node, list[Overlay | None]] = {}
    for node, overlay in targets:
        overlays = by_node.setdefault(node, [])
        if overlay is not None:
            overlays.append(overlay)
        elif None not in overlays:
            overlays.append(None)
    ordered = sorted(by_node.items(), key=lambda item: item[0].order)
    return [
        Task(graph, node, None if overlays == [None] else number, overlay)
        for node, overlays in ordered
        for number, overlay in enumerate(overlays, 1)
    ]


def _raise_failure(tasks: list[Task]) -> Literal[False]:
    failed = [task for task in tasks if task.exception is not None and task.status != "done"]
    if not failed:
        return False
    error = failed[0].exception
    assert error is not None
    for other in failed[1:]:
        if not isinstance(other.exception, RunCancelled):
            add_note(error, f"In the same superstep '{other.address}' also failed: {other.exception!r}")
    cancelled = next((task.exception for task in failed if isinstance(task.exception, RunCancelled)), None)
    raise cancelled or error


def _check_requests(tasks: list[Task]) -> None:
    """Refuse that tasks of one superstep request different endings of the agent that runs the graph."""
    requesting = [(task, Action(**left[ACTION])) for task in tasks if (left := task.written) and ACTION in left]
    for task, request in requesting[1:]:
        first, other = requesting[0]
        if request != other:
            remedy = (
                f"One requests {other.name} and the other {request.name}: let one of them decide how the agent ends."
            )
            error = WriteConflict("action", first.label, task.label, remedy)
            task.fail_from_outside(error)
            raise error


class _Left:
    """What is left of a superstep of several tasks after they ran, so that one answer does not walk over all of them.

    It holds for as long as `tasks` are the graph's and change by being woken only; whatever else changes one drops it.
    `names` has the nodes of the tasks that are not done, in task order, with how many each has. They are not known
    while tasks run, or after a run that has failed; `woken` are also those that got an answer meanwhile.
    """

    __slots__ = ("names", "tasks", "woken")

    def __init__(self, tasks: list[Task]) -> None:
        self.tasks: list[Task] = tasks
        self.begin()

    def begin(self) -> None:
        """Take note that tasks run."""
        self.names: dict[str, int] = {}
        self.woken: dict[Task, None] = {}

    def end(self, ran: list[Task], names: dict[str, int] | None) -> None:
        """Take note of how tasks have ended; `names` as they were before, if that was known."""
        if names is None:
            for task in self.tasks:
                if task.status != "done":
                    self.names[task.node.name] = self.names.get(task.node.name, 0) + 1
            return
        for task in ran:
            if task.status == "done":
                names[task.node.name] -= 1
                if not names[task.node.name]:
                    del names[task.node.name]
        self.names = names


class _Together:
    """The tasks of one superstep that run in parallel, and how many of them have not ended."""

    def __init__(self, scope: Scope, tasks: list[Task]) -> None:
        self.handles: list[asyncio.Task[None]] = []
        self.ended: asyncio.Future[None] = scope.loop.create_future()
        self._scope = scope
        self._left = len(tasks)
        self._unstarted = deque(tasks)
        self._paused: deque[asyncio.Future[None]] = deque()
        self._is_turn_due = False

    def start_some(self) -> None:
        """Start a few tasks now, and some more in every iteration of the event loop."""
        # A few at a time: other tasks on the loop run in between, and a task that has not started costs nothing.
        loop = self._scope.loop
        for _ in range(min(STARTED, len(self._unstarted))):
            # Bypass the loop's task factory, which tracks tasks started by users and would cost every task a call.
            self.handles.append(asyncio.Task(self._run(self._unstarted.popleft()), loop=loop))
        if self._unstarted:
            self._begin_turn_soon()

    async def _run(self, task: Task) -> None:
        try:
            while time.monotonic() > self._scope.yield_deadline:
                await self._next_turn()
                await self._scope.log.assure()
            await task.run(alone=False)
        except Conflict as error:
            task.fail(error)
        finally:
            self._left -= 1
            if not self._left and not self.ended.done():
                self.ended.set_result(None)

    def _next_turn(self) -> asyncio.Future[None]:
        self._paused.append(turn := self._scope.loop.create_future())
        self._begin_turn_soon()
        return turn

    def _begin_turn_soon(self) -> None:
        if not self._is_turn_due:
            self._is_turn_due = True
            self._scope.loop.call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        self._is_turn_due = False
        self._scope.yield_deadline = time.monotonic() + TURN
        for _ in range(min(STARTED, len(self._paused))):
            turn = self._paused.popleft()
            if not turn.done():
                turn.set_result(None)
        if self._paused:
            self._begin_turn_soon()
        self.start_some()

    async def stop(self) -> None:
        """Cancel the tasks that were started, and start no more."""
        self._unstarted.clear()
        for handle in self.handles:
            handle.cancel()
        await asyncio.wait(self.handles)


async def _run_side_by_side(scope: Scope, ready: list[Task], seconds: float | None) -> None:
    """Run tasks of a superstep, each for as many `seconds` at most."""
    together = _Together(scope, ready)
    # The engine's tasks must not count as started by a frame's code.
    token = current_place.set(None)
    together.start_some()
    current_place.reset(token)
    try:
        async with asyncio.timeout(seconds):
            await together.ended
    except TimeoutError:
        await together.stop()
        for task in ready:
            # One that failed in an earlier run and has not begun again has its status from there, and no exception.
            if task.status in ("pending", "failed") and task.exception is None:
                task.fail_from_outside(NodeTimeout(task.address, seconds or 0.0), seconds or 0.0)
    except asyncio.CancelledError:
        await together.stop()
        raise
    for handle in together.handles:
        if handle.done() and not handle.cancelled() and handle.exception() is not None:
            raise RunError("the engine failed while running a task") from handle.exception()


def _in_order(tasks: Iterable[Task]) -> list[Task]:
    return sorted(tasks, key=lambda task: (task.node.order, task.index or 0))
