"""The engine: supersteps of run, apply and route, until the graph ends or waits."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from adjourn._engine.frame import current_place
from adjourn._engine.scope import TURN, RunCancelled, Scope
from adjourn.errors import AdjournError, Conflict, MaxStepsExceeded, NodeTimeout, RunError, add_note

from ._breakpoints import passed
from ._caching import keep
from ._channels import Changes, Channel, MessagesChannel
from ._routing import decide, settle, take_edges
from ._running import run_task
from ._task import Task
from .commands import Overwrite

if TYPE_CHECKING:
    from ._frame import GraphFrame

STARTED = 32
"""Tasks of a superstep that start in one turn of the event loop."""


async def advance(frame: GraphFrame) -> bool:
    """Run a graph as far as it goes: True when it has ended, False when it waits."""
    graph, scope = frame.graph, frame.scope
    limit = scope.max_steps or graph.max_steps
    while True:
        if frame.phase == "route":
            if frame.finished and not await decide(frame):
                return False
            settle(frame)
            if scope.bordering and frame.tasks and not frame.is_pausing():
                await scope.journal.border("step", frame, frame.step, frame.following)
        if graph.halts and not passed(frame):
            return False
        if not frame.tasks:
            return True
        if frame.count >= limit or scope.cancellation.mode is not None:
            _stop(frame, limit)
        if time.monotonic() > scope.yield_deadline:
            await scope.yield_to_loop()
        await _run(frame)
        if not _have_ended(frame.tasks):
            return False
        _apply(frame)


def _stop(frame: GraphFrame, limit: int) -> None:
    """Stop before the next superstep, if its number or a cancel of the run says so."""
    if frame.count >= limit:
        raise MaxStepsExceeded(frame.graph.name, limit)
    if frame.stops_before(frame.tasks):
        raise RunCancelled


def _run(frame: GraphFrame) -> Awaitable[None]:
    """Run the tasks that can run."""
    tasks = frame.tasks
    if len(tasks) == 1 and tasks[0].status != "waiting" and frame.graph.step_timeout is None:
        return run_task(tasks[0], alone=True)
    return _run_together(frame, [task for task in tasks if task.status in ("pending", "failed")])


def _have_ended(tasks: list[Task]) -> bool:
    """Whether all tasks are done, and none waits for an answer; raises what they failed with."""
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
            add_note(error, f"In the same superstep '{other.address}' failed, too: {other.exception!r}")
    cut = next((task.exception for task in failed if isinstance(task.exception, RunCancelled)), None)
    raise cut or error


class _Together:
    """Tasks of one superstep that run side by side, and how many of them have not ended."""

    def __init__(self, scope: Scope, tasks: list[Task]) -> None:
        self.handles: list[asyncio.Task[None]] = []
        self.ended: asyncio.Future[None] = scope.loop.create_future()
        self._scope = scope
        self._left = len(tasks)
        self._unstarted = deque(tasks)
        self._paused: deque[asyncio.Future[None]] = deque()
        self._is_turn_due = False

    def start_some(self) -> None:
        """Start a few tasks now, and some more in every turn of the event loop."""
        # A few at a time: others on the loop have their turns in between, and what has not started costs nothing.
        loop = self._scope.loop
        for _ in range(min(STARTED, len(self._unstarted))):
            # Made without the loop's factory, which watches what users start and would cost every task a call.
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
        """End what was started, and start no more."""
        self._unstarted.clear()
        for handle in self.handles:
            handle.cancel()
        await asyncio.wait(self.handles)


async def _run_together(frame: GraphFrame, ready: list[Task]) -> None:
    if not ready:
        return
    together = _Together(frame.scope, ready)
    # Our own tasks are not among those that a frame's code has started.
    token = current_place.set(None)
    together.start_some()
    current_place.reset(token)
    seconds = frame.graph.step_timeout
    try:
        async with asyncio.timeout(seconds):
            await together.ended
    except TimeoutError:
        await together.stop()
        for task in ready:
            if task.status == "pending":
                task.fail(NodeTimeout(task.address, seconds or 0.0))
    except asyncio.CancelledError:
        await together.stop()
        raise
    for handle in together.handles:
        if handle.done() and not handle.cancelled() and handle.exception() is not None:
            raise RunError("the engine failed while it ran a task") from handle.exception()


def _apply(frame: GraphFrame) -> None:
    """Make the writes of all tasks the state's next values, in task order, or none of them."""
    changes, schema = Changes(frame.channels, frame), frame.graph.schema
    several = len(frame.tasks) > 1
    for task in frame.tasks:
        writer = task.label if several else task.spec.name
        if frame.exports:
            _identify_messages(frame, changes, task)
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
            task.writes, task.goto, task.sends = [], None, None
            task.fail(error)
            raise
    frame.commit_changes(changes)
    _finish(frame)


def _pass_on(frame: GraphFrame, task: Task) -> None:
    """Give the results of an applied task to those who share them: the graph above, the session, the cache."""
    if frame.exports:
        _export(frame, task)
    if task.written is not None:
        frame.merge_values(task.written)
    if task.cache_key is not None:
        keep(task)


def _identify_messages(frame: GraphFrame, changes: Changes, task: Task) -> None:
    """Give ids to messages before they are applied here and handed up: a message is the same one in both graphs."""
    channels = frame.graph.schema.channels
    for number, (name, value, plain) in enumerate(task.writes):
        channel = channels.get(name)
        if name in frame.exports and isinstance(channel, MessagesChannel):
            task.writes[number] = (name, channel.identified(changes, value), plain)


def _export(frame: GraphFrame, task: Task) -> None:
    for name, value, _ in task.writes:
        if name in frame.exports:
            frame.export(name, value, type(frame.graph.schema.channels.get(name)) is not Channel)


def _finish(frame: GraphFrame) -> None:
    """Let the finished tasks go and take their edges."""
    tasks, scope, changes = frame.tasks, frame.scope, frame.scope.changes
    frame.tasks = []
    frame.step += 1
    frame.count += 1
    frame.phase = "route"
    if frame.graph.halts:
        frame.close_questions()
        frame.ended = [task.spec.name for task in tasks if task.spec.interrupt_after]
    left: dict[Any, None] = {}
    for task in tasks:
        if frame.exports or task.written is not None or task.spec.cache is not None:
            _pass_on(frame, task)
        changes.dirty.pop(task, None)
        if task.recorded:
            changes.dropped[frame.path + ";" if frame.has_tasks_alone else task.path] = None
        if task.children or scope.questions.askers or scope.dormant:
            task.close()
        else:
            task.alive = False
        if task.sends is not None:
            frame.targets += task.sends
        elif task.goto is not None:
            frame.targets += [(spec, None) for spec in task.goto]
        else:
            left[task.spec] = None
    for spec in left:
        if spec.decide is not None:
            frame.targets += spec.decide(frame)
        take_edges(frame, spec)
