"""Running one task: how its function is called, attempts, timeouts, the cache, and what its end means."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast, get_origin, get_type_hints

from adjourn._engine.concurrency import Slot, in_thread
from adjourn._engine.entry import PAUSED, execute
from adjourn._engine.program import start
from adjourn._engine.retry import attempted
from adjourn._engine.scope import RunCancelled
from adjourn.context import RunContext, current
from adjourn.errors import NodeTimeout, ProgramChanged, ReplayMismatch, StoreError
from adjourn.events import NodeEnd, NodeStart

from ._caching import find
from ._channels import ABSENT, Channel, LastChannel
from ._plan import Plan
from ._results import interpret
from ._task import HANDLED, Task
from .commands import Overwrite
from .state import State, given, read


def is_async(fn: Any) -> bool:
    """Whether calling `fn` gives something to await."""
    call = getattr(cast("type[Any]", type(fn)), "__call__", None)  # noqa: B004  # an object with an async __call__, not whether it is callable
    inner = inspect.unwrap(fn)
    return any(inspect.iscoroutinefunction(each) for each in (fn, inner, call) if each is not None)


def adapt(fn: Callable[..., Any]) -> Callable[[Any], Any]:
    """A function of the state alone that calls `fn` with what it takes.

    Raises:
        TypeError: `fn` takes something else.
    """
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except ValueError:
        return fn  # A builtin that does not tell its signature.
    takes = [_kind(parameter, hint) for parameter, hint in _hinted(fn, parameters)]
    needed = [kind for kind in takes if kind != "optional"]
    match needed:
        case ["state"]:
            return fn
        case ["state", "context"]:
            return lambda state: fn(state, current())
        case ["context", "state"]:
            return lambda state: fn(current(), state)
        case ["context"]:
            return lambda state: fn(current())
        case []:
            return fn if takes else lambda state: fn()
        case _:
            raise TypeError("it takes more than the state and a RunContext")


def _hinted(fn: Any, parameters: list[inspect.Parameter]) -> list[tuple[inspect.Parameter, Any]]:
    try:
        hints = get_type_hints(fn)
    except Exception:  # noqa: BLE001  # protects the user: a hint that cannot be resolved here says nothing to us
        hints = {}
    return [(parameter, hints.get(parameter.name, parameter.annotation)) for parameter in parameters]


def _kind(parameter: inspect.Parameter, hint: Any) -> str:
    origin = get_origin(hint) or hint
    if origin is RunContext or (isinstance(hint, str) and hint.split("[")[0].endswith("RunContext")):
        return "context"
    optional = parameter.default is not inspect.Parameter.empty or parameter.kind in (
        inspect.Parameter.VAR_POSITIONAL,
        inspect.Parameter.VAR_KEYWORD,
        inspect.Parameter.KEYWORD_ONLY,
    )
    return "optional" if optional else "state"


async def run_task(task: Task, *, alone: bool) -> None:
    """Run a task to its end, whatever that is; the outcome stands in the task, and only cancellation is raised."""
    scope, spec = task.scope, task.spec
    if task.status == "failed":
        task.begin_again()
    started = _tell_start(task) if scope.telling and not spec.is_inner else 0.0
    try:
        if scope.cancellation.mode is not None and task.graph.stops_before([task]):
            raise RunCancelled
        result = await (_once_through(task) if spec.is_plain and scope.slots is None else _attempts(task))
        if result is PAUSED:
            task.status = "waiting"
        else:
            if result is not HANDLED:
                interpret(task, result)
            task.status = "done"
    except RunCancelled as cut:
        task.exception = cut
    except Exception as error:  # noqa: BLE001  # protects the siblings: they finish, and the engine raises it then
        task.fail(error)
    if task.status != "done":
        _have_recorded(task, alone)
        return
    if started:
        _tell_end(task, started)
    if not alone:
        _have_recorded(task, alone)


def _tell_start(task: Task) -> float:
    """Tell that a task begins, and give the time; 0 when nothing is told of it."""
    voice = task.graph.voice
    if not voice.tells:
        return 0.0
    if task.scope.watched:
        start = NodeStart(
            node=task.spec.name, address=task.address, attempt=task.attempt, agent=voice.agent, path=voice.path
        )
        task.scope.journal.emit_live(start)
    return time.perf_counter()


def _tell_end(task: Task, started: float) -> None:
    voice, seconds = task.graph.voice, time.perf_counter() - started
    end = NodeEnd(
        node=task.spec.name,
        address=task.address,
        seconds=int(seconds * 1e6) / 1e6,
        cached=task.cached,
        agent=voice.agent,
        path=voice.path,
    )
    task.scope.journal.tell(end)


def _have_recorded(task: Task, alone: bool) -> None:
    """Have it stored how a task ended; soon, while others run: a finished one must never run again."""
    task.scope.mark(task)
    if not alone or task.graph.parent is not None:
        task.scope.journal.soon()


async def _attempts(task: Task) -> Any:
    """The result of a node, tried as often as its policies allow."""
    tell = task.scope.journal.emit_live if task.scope.watched else None
    return await attempted(task, task.spec.retry, lambda: _bounded(task), tell)


async def _bounded(task: Task) -> Any:
    """One attempt, within the concurrency limit and the node's time."""
    if task.scope.slots is None or task.spec.graph is not None:
        return await _timed(task)  # A subgraph's own tasks take the slots.
    async with Slot(task.scope.slots) as task.slot:
        if task.scope.cancellation.mode == "now":
            raise RunCancelled  # It came while this task waited for its slot.
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


def _once_through(task: Task) -> Awaitable[Any]:
    spec, graph = task.spec, task.graph
    call = spec.call
    if call is None:
        return _run_graph(task)
    state = task if spec.is_inner else read(graph.graph.schema, graph.channels, task.overlay)
    if spec.cache is not None and find(task, spec.cache):
        return _handled()
    if spec.kind == "async":
        return execute(task, call, state)
    if spec.kind == "sync":
        return execute(task, in_thread, partial(_in_its_thread, task, call, state))
    return execute(task, call, state, inline=True)


async def _handled() -> Any:
    return HANDLED


def _in_its_thread(task: Task, call: Callable[[Any], Any], state: Any) -> Any:
    task.entry.thread = threading.get_ident()
    return call(state)


async def _run_graph(task: Task) -> Any:
    child, spec = _child(task), task.spec
    try:
        if not await child.advance():
            return PAUSED
        (spec.hand_up or _hand_up)(task, child)
    except (StoreError, ProgramChanged, ReplayMismatch):
        raise  # What is stored is in doubt, or is not what this code has made: that cannot be forgiven.
    except Exception as error:
        if spec.forgive is None:
            raise
        spec.forgive(task, child, error)
    if child.values:
        for key, value in child.values.items():
            task.write_value(key, value)
    child.drop()
    task.children = None
    return HANDLED


def _child(task: Task) -> Any:
    if task.children:
        return task.children[task.spec.inside]
    child, is_new = task.open_graph()
    if is_new:
        start(child, (task.spec.begin or _child_input)(task))
    task.children = {task.spec.inside: child}
    return child


def _child_input(task: Task) -> Any:
    graph, spec = task.graph, task.spec
    assert isinstance(spec.graph, Plan)
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
