"""The engine: supersteps that run, apply and route, until the graph ends or waits."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable
from typing import Any

from adjourn._calls.caller import WrapsAll
from adjourn._engine.concurrency import Slot
from adjourn._engine.entry import current_place
from adjourn._engine.execution import PAUSED
from adjourn._engine.retry import attempted
from adjourn._engine.scope import TURN, Request, RunCancelled, Scope
from adjourn.errors import (
    AdjournError,
    Conflict,
    MaxStepsExceeded,
    NodeTimeout,
    RunError,
    RunTimeout,
    WriteConflict,
    add_note,
    text_of,
)
from adjourn.events import NodeEnd, NodeStart
from adjourn.middleware.hooks import Middleware

from ._channels import Changes
from ._frame import HANDLED, StepFrame, Task
from ._node import Node
from ._results import encode_result, find_cached, interpret, is_cacheable
from ._routing import at_breakpoint, decide, pause_at_breakpoint
from ._wrapping import hooks_around, run_wrapped
from .commands import Overwrite

STARTED = 32
"""Tasks of a superstep that start in one iteration of the event loop."""


class GraphFrame(StepFrame, WrapsAll):
    """A running graph."""

    @property
    def program_middleware(self) -> tuple[Any, ...]:
        return self.plan.middleware

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
        self.node_hooks: tuple[Middleware, ...] = hooks_around(self) if plan.has_hooks else ()
        limit = scope.max_steps or plan.max_steps
        while True:
            if self.phase == "route":
                if self.routes.finished and not await decide(self):
                    return False
                self.settle()
                if scope.has_boundaries and self.tasks and not self.is_pausing():
                    await scope.journal.boundary("step", self, self.step, self.following)
            if plan.has_breakpoints and pause_at_breakpoint(self):
                return False
            if not self.tasks:
                return True
            if self.count >= limit or scope.cancellation.mode is not None:
                self._stop(limit)
            if time.monotonic() > scope.yield_deadline:
                await scope.yield_to_loop()
            await _run(self)
            if not _have_ended(self.tasks):
                return False
            _apply(self)
            _finish(self)

    def is_pausing(self) -> bool:
        """Return whether the graph pauses next: then the record of the pause also serves as that of the boundary."""
        return at_breakpoint(self)

    def _stop(self, limit: int) -> None:
        """Stop before the next superstep if the limit is reached or the run is cancelled."""
        if self.count >= limit:
            raise MaxStepsExceeded(self.plan.name, limit)
        if self.stops_before(self.tasks):
            raise RunCancelled


# Running the tasks of a superstep


def _run(frame: StepFrame) -> Awaitable[None]:
    """Run the tasks that are ready."""
    tasks = frame.tasks
    if len(tasks) == 1 and tasks[0].status != "waiting" and frame.plan.step_timeout is None:
        return run_task(tasks[0], alone=True)
    return _run_together(frame, [task for task in tasks if task.status in ("pending", "failed")])


def _have_ended(tasks: list[Task]) -> bool:
    """Return whether all tasks are done and none waits for an answer; raise if one failed."""
    for task in tasks:
        if task.status != "done":
            _raise_failure(tasks)
            return False
    return True


def _raise_failure(tasks: list[Task]) -> None:
    failed = [task for task in tasks if task.exception is not None]
    if not failed:
        return
    error = failed[0].exception
    assert error is not None
    for other in failed[1:]:
        if not isinstance(other.exception, RunCancelled):
            add_note(error, f"In the same superstep '{other.address}' also failed: {other.exception!r}")
    cancelled = next((task.exception for task in failed if isinstance(task.exception, RunCancelled)), None)
    raise cancelled or error


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
                await self._scope.journal.assure()
            await run_task(task, alone=False)
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


async def _run_together(frame: StepFrame, ready: list[Task]) -> None:
    if not ready:
        return
    together = _Together(frame.scope, ready)
    # The engine's tasks must not count as started by a frame's code.
    token = current_place.set(None)
    together.start_some()
    current_place.reset(token)
    seconds = frame.plan.step_timeout
    try:
        async with asyncio.timeout(seconds):
            await together.ended
    except TimeoutError:
        await together.stop()
        for task in ready:
            # One that failed in an earlier run and has not begun again has its status from there, and no exception.
            if task.status in ("pending", "failed") and task.exception is None:
                _fail(task, NodeTimeout(task.address, seconds or 0.0), seconds or 0.0)
    except asyncio.CancelledError:
        await together.stop()
        raise
    for handle in together.handles:
        if handle.done() and not handle.cancelled() and handle.exception() is not None:
            raise RunError("the engine failed while running a task") from handle.exception()


# Running one task: attempts, timeouts and the result


async def run_task(task: Task, *, alone: bool) -> None:
    """Run a task to its end; the outcome is recorded in the task, and only cancellation is raised."""
    scope, node = task.scope, task.node
    if task.status == "failed":
        task.begin_again()
    started = _emit_start(task) if scope.logs_events and node.is_reported else 0.0
    try:
        if scope.cancellation.mode is not None and task.graph.stops_before([task]):
            raise RunCancelled
        is_plain = node.is_plain and scope.slots is None and not task.graph.node_hooks
        result = await (node.run(task) if is_plain else _attempts(task))
        if result is PAUSED:
            task.status = "waiting"
        else:
            if result is not HANDLED:
                interpret(task, result)
            task.status = "done"
    except RunCancelled as cancelled:
        task.exception = cancelled
    except Exception as error:  # noqa: BLE001  # protects the siblings: they finish, and then the engine raises it
        task.fail(error)
    if started and task.status in ("done", "failed"):
        _emit_end(task, started)
    if task.status != "done" or not alone:
        _have_recorded(task, alone)


def _emit_start(task: Task) -> float:
    """Emit that a task starts and return the time; return 0 if there is no audience."""
    audience = task.graph.audience
    if not audience.hears:
        return 0.0
    if task.scope.has_reader:
        start = NodeStart(
            node=task.node.name,
            title=task.node.options.title,
            address=task.address,
            attempt=task.attempt,
            step=task.graph.step,
            agent=audience.name,
            path=audience.path,
        )
        task.scope.journal.emit_live(start)
    return time.perf_counter()


def _emit_end(task: Task, started: float) -> None:
    audience, error, seconds = task.graph.audience, task.exception, time.perf_counter() - started
    written = [name for name, _, _ in task.writes]
    end = NodeEnd(
        node=task.node.name,
        title=task.node.options.title,
        address=task.address,
        seconds=int(seconds * 1e6) / 1e6,
        cached=task.cached,
        step=task.graph.step,
        writes=tuple(written if len(written) < 2 else dict.fromkeys(written)),
        error=None if error is None else f"{type(error).__name__}: {text_of(error)}",
        agent=audience.name,
        path=audience.path,
    )
    task.scope.journal.emit(end)


def _fail(task: Task, error: Exception, seconds: float = 0.0) -> None:
    """Fail a task from outside: it did not raise the error itself."""
    task.forget_result()
    task.fail(error)
    if task.scope.logs_events and task.node.is_reported and task.graph.audience.hears:
        _emit_end(task, time.perf_counter() - seconds)


def _have_recorded(task: Task, alone: bool) -> None:
    """Schedule a record of how a task ended; soon, if others still run, since a finished task must never run again."""
    task.scope.mark(task)
    if not alone or task.graph.parent is not None:
        task.scope.journal.soon()


async def _attempts(task: Task) -> Any:
    """Return the result of a node, trying as often as its retry policies allow."""
    cache = task.node.options.cache
    if cache is not None and find_cached(task, cache):
        return HANDLED
    emit = task.scope.journal.emit_live if task.scope.has_reader else None
    return await attempted(task, task.node.retry, lambda: _bounded(task), emit)


async def _bounded(task: Task) -> Any:
    """Make one attempt, within the concurrency limit and the node's timeout."""
    if task.scope.slots is None or not task.node.takes_slot:
        return await _timed(task)
    async with Slot(task.scope.slots) as task.slot:
        if task.scope.cancellation.mode == "now":
            raise RunCancelled  # Cancelled while this task waited for its slot.
        await task.scope.journal.assure()
        return await _timed(task)


async def _timed(task: Task) -> Any:
    seconds = task.node.options.timeout
    if seconds is None:
        return await _attempt(task)
    clock = asyncio.timeout(seconds)
    try:
        async with clock:
            return await _attempt(task)
    except TimeoutError as error:
        if not clock.expired():
            raise  # The node's own.
        raise NodeTimeout(task.address, seconds) from error


def _attempt(task: Task) -> Awaitable[Any]:
    hooks = (*task.graph.node_hooks, *task.node.hooks)
    return run_wrapped(task, hooks) if hooks else task.node.run(task)


# Applying the writes


def _apply(frame: StepFrame) -> None:
    """Apply the writes of all tasks to the state in task order, or none of them."""
    changes, schema = Changes(frame.fields.values, frame), frame.plan.schema
    several = len(frame.tasks) > 1
    if several:
        _check_requests(frame.requesting())
    for task in frame.tasks:
        writer = task.label if several else task.node.name
        if task.cache_key is not None and is_cacheable(task):
            task.to_cache = encode_result(task)  # Before new messages get ids: a later run adds messages of its own.
        if frame.fields.exports:
            _identify_messages(frame, task)
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
            _fail(task, error)
            raise
    frame.commit_changes(changes)


def _check_requests(requesting: list[tuple[Task, Request]]) -> None:
    """Refuse that tasks of one superstep request different endings of an agent."""
    for task, request in requesting[1:]:
        first, other = requesting[0]
        if request != other:
            remedy = (
                f"One requests {other.name} and the other {request.name}: let one of them decide how the agent ends."
            )
            error = WriteConflict("action", first.label, task.label, remedy)
            _fail(task, error)
            raise error


def _pass_on(frame: StepFrame, task: Task) -> None:
    """Pass the results of an applied task on to the parent graph, the session and the cache."""
    if frame.fields.exports:
        _export(frame, task)
    if task.written is not None:
        frame.merge_values(task.written)
    if task.cache_key is not None and task.to_cache is not None:
        frame.plan.results.put(task.cache_key, task.to_cache)


def _identify_messages(frame: StepFrame, task: Task) -> None:
    """Give ids to messages before they are applied and exported, so that they are the same in both graphs."""
    for number, (name, value, plain) in enumerate(task.writes):
        if name in frame.fields.exports:
            task.writes[number] = (name, frame.with_message_ids(name, value), plain)


def _export(frame: StepFrame, task: Task) -> None:
    for name, value, _ in task.writes:
        if name in frame.fields.exports:
            frame.export(name, value)


def _finish(frame: StepFrame) -> None:
    """Release the finished tasks and take their edges."""
    tasks, scope = frame.tasks, frame.scope
    frame.tasks = []
    frame.step += 1
    frame.count += 1
    frame.phase = "route"
    if frame.plan.has_breakpoints:
        frame.close_questions()
        frame.routes.ended = [task.node.name for task in tasks if task.node.options.interrupt_after]
    left: dict[Node, None] = {}
    for task in tasks:
        if frame.fields.exports or task.written is not None or task.cache_key is not None:
            _pass_on(frame, task)
        scope.changes.dirty.pop(task, None)
        if task.recorded:
            scope.changes.dropped[frame.path + ";" if frame.has_tasks_alone else task.path] = None
        if task.children or scope.questions.askers or scope.dormant:
            task.close()
        else:
            task.alive = False
        if task.sends is not None:
            frame.routes.targets += task.sends
        elif task.goto is not None:
            frame.routes.targets += [(node, None) for node in task.goto]
        else:
            left[task.node] = None
    for node in left:
        node.leave(frame)
    if frame.routes.joins:
        frame.routes.fire_joins()
