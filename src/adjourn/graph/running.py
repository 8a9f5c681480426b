"""Running one task: attempts, timeouts, the cache, and what its end means."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from adjourn.core.entry import PAUSED, execute, execute_inline, settle
from adjourn.core.errors import NodeTimeout, RetryExhausted, text_of
from adjourn.core.events import ModelRetrying, NodeEnd, NodeStart
from adjourn.core.retry import Retry, matching
from adjourn.core.scope import Cut
from adjourn.core.slots import Slot
from adjourn.core.threads import in_thread

from .cache import find
from .channels import ABSENT, Channel, LastChannel
from .commands import Overwrite
from .results import interpret
from .state import State, given, read
from .task import Task

HANDLED: Final = object()
"""Says that a task already has its result."""


async def run_task(task: Task, *, alone: bool) -> None:
    """Run a task to its end, whatever that is; the outcome stands in the task, and only cancellation is raised."""
    scope, started = task.scope, 0.0
    task.begin()
    if scope.telling:
        started = time.perf_counter()
    if scope.watched:
        scope.journal.tell_live(NodeStart(node=task.spec.name, address=task.address, attempt=task.attempt))
    try:
        if scope.cancel_mode is not None:
            raise Cut
        result = await (_once_through(task) if task.spec.is_plain and scope.slots is None else _attempts(task))
        if result is PAUSED:
            task.status = "waiting"
        else:
            if result is not HANDLED:
                interpret(task, result)
            task.status = "done"
    except Cut as cut:
        task.exception = cut
    except Exception as error:  # noqa: BLE001  # protects the siblings: they finish, and the engine raises it then
        task.fail(error)
    if task.status == "done" and scope.telling:
        seconds = time.perf_counter() - started
        scope.journal.tell(
            NodeEnd(node=task.spec.name, address=task.address, seconds=round(seconds, 6), cached=task.cached)
        )
    if task.status != "done" or not alone:
        # What a finished task wrote is on record while its siblings still run: it never runs again.
        scope.mark(task)
        scope.journal.soon()


async def _attempts(task: Task) -> Any:
    """The result of a node, tried as often as its policies allow."""
    spec, tries = task.spec, 0
    while True:
        tries += 1
        try:
            return await _bounded(task)
        except Exception as error:
            policy = matching(spec.retry, error) if spec.retry else None
            if policy is None:
                raise
            if tries >= policy.attempts:
                raise RetryExhausted(task.address, tries, error) from error
            await _wait(task, policy, tries, error)
            await task.scope.journal.assure()


async def _wait(task: Task, policy: Retry, tries: int, error: Exception) -> None:
    delay = policy.delay(tries)
    if task.scope.watched:
        task.scope.journal.tell_live(
            ModelRetrying(
                address=task.address,
                attempt=tries,
                max_attempts=policy.attempts,
                delay=delay,
                error=f"{type(error).__name__}: {text_of(error)}",
            )
        )
    task.attempt += 1
    task.scope.mark(task)
    await _pause(task, delay)


async def _pause(task: Task, seconds: float) -> None:
    """Wait, unless the run is cancelled meanwhile."""
    step = 0.05
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        await asyncio.sleep(min(step, left))
        if task.scope.cancel_mode is not None:
            raise Cut


async def _bounded(task: Task) -> Any:
    """One attempt, within the concurrency limit and the node's time."""
    if task.scope.slots is None or task.spec.graph is not None:
        return await _timed(task)  # A subgraph's own tasks take the slots.
    async with Slot(task.scope.slots) as task.slot:
        if task.scope.cancel_mode == "now":
            raise Cut  # It came while this task waited for its slot.
        await task.scope.journal.assure()
        return await _timed(task)


async def _timed(task: Task) -> Any:
    spec = task.spec
    seconds = spec.timeout if spec.timeout is not None else task.graph.graph.node_timeout
    if seconds is None:
        return await _once_through(task)
    clock = asyncio.timeout(seconds)
    try:
        async with clock:
            return await _once_through(task)
    except TimeoutError as error:
        if not clock.expired():
            raise  # The node's own.
        raise NodeTimeout(task.address, seconds) from error


async def _once_through(task: Task) -> Any:
    spec, graph = task.spec, task.graph
    call = spec.call
    if call is None:
        return await _run_graph(task)
    state = read(graph.graph.schema, graph.channels, task.overlay)
    if spec.cache is not None and find(task, spec.cache):
        return HANDLED
    if spec.kind == "async":
        result = await execute(task, lambda: call(state))
    elif spec.kind == "sync":
        result = await execute(task, lambda: in_thread(lambda: _in_its_thread(task, call, state)))
    else:
        result = execute_inline(task, lambda: call(state))
        if task.spawned is not None and result is PAUSED:
            await settle(task)
    return result


def _in_its_thread(task: Task, call: Callable[[Any], Any], state: Any) -> Any:
    task.thread = threading.get_ident()
    return call(state)


async def _run_graph(task: Task) -> Any:
    child = _child(task)
    if not await child.advance():
        return PAUSED
    _hand_up(task, child)
    if child.values:
        for key, value in child.values.items():
            task.write_value(key, value)
    child.drop()
    task.children = None
    return HANDLED


def _child(task: Task) -> Any:
    if task.children:
        return task.children["~"]
    child, is_new = task.open_graph()
    if is_new:
        child.begin(_child_input(task))
    task.children = {"~": child}
    return child


def _child_input(task: Task) -> Any:
    graph, spec = task.graph, task.spec
    assert spec.graph is not None
    if spec.input is not None:
        return spec.input(read(graph.graph.schema, graph.channels, task.overlay))
    shared = {name: given(graph.channels, task.overlay, name) for name in spec.graph.schema.channels}
    # The value itself is shared: it is no update that a reducer could count on top of the child's own beginning.
    return {name: Overwrite(value) for name, value in shared.items() if value is not ABSENT}


def _updates(task: Task, child: Any, name: str) -> list[Any]:
    # A field that is replaced above takes what those below amount to; one that reduces takes them one by one.
    replaces = type(task.graph.graph.schema.channels[name]) in (Channel, LastChannel)
    return [child.channels[name]] if replaces else child.made[name]


def _hand_up(task: Task, child: Any) -> None:
    if task.spec.output is None:
        task.writes = [(name, value, False) for name in child.made for value in _updates(task, child, name)]
        return
    result = task.spec.output(read(child.graph.schema, child.channels))
    # The child's state is no state of this graph, of which only what changed would count.
    interpret(task, dict(result) if isinstance(result, State) else result)
