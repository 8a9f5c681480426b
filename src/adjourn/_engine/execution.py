"""Running the code of a frame once: in its own context, with the tasks that it starts, to its outcome."""

from __future__ import annotations

import asyncio
import gc
import inspect
import sys
import weakref
from asyncio import current_task
from collections.abc import Awaitable, Callable, Generator
from contextvars import Context, ContextVar, copy_context
from types import coroutine
from typing import Any, Final
from weakref import WeakKeyDictionary

from adjourn.errors import Pause, ReplayMismatch, RunError, UsageError, add_note

from .entry import Entry, Place, current_place, enter
from .frame import UserFrame
from .scope import Frame, RunCancelled

Task = asyncio.Task[Any]


async def tasks_of(entry: Entry) -> list[Task]:
    """Return the tasks whose code runs in `entry`.

    A search goes through all tasks of the event loop, so all entries that ask in one turn of the loop share one.
    """
    loop = entry.frame.scope.loop
    search = _searches.get(loop)
    if search is None:
        search = _searches[loop] = _Search(loop)
    return await search.tasks_of(entry)


class _Search:
    """One search, made in the next turn of the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._wanted: dict[Entry, asyncio.Future[list[Task]]] = {}
        loop.call_soon(self._run)

    def tasks_of(self, entry: Entry) -> asyncio.Future[list[Task]]:
        """Look for the tasks of an entry, too."""
        self._wanted[entry] = future = self._loop.create_future()
        return future

    def _run(self) -> None:
        del _searches[self._loop]
        found: dict[Entry, list[Task]] = {entry: [] for entry in self._wanted}
        for task in asyncio.all_tasks(self._loop):
            for context in contexts_of(task):
                place = context.get(current_place)
                if place is not None and place.entry in found:
                    found[place.entry].append(task)
        for entry, future in self._wanted.items():
            if not future.done():
                future.set_result(found[entry])


_searches: WeakKeyDictionary[asyncio.AbstractEventLoop, _Search] = WeakKeyDictionary()


def contexts_of(task: Any) -> list[Context]:
    """Return the context of a task, in a list."""
    if sys.version_info >= (3, 12):
        return [task.get_context()]
    # Before Python 3.12 a task does not expose it; its C implementation shows it only to the garbage collector.
    if hasattr(task, "_context"):
        return [task._context]
    return [each for each in gc.get_referents(task) if isinstance(each, Context)]


PAUSED: Final = object()
"""The outcome of an entry that asked a question."""

PATIENCE = 5.0
"""Seconds that tasks left behind by a pause get to end after they are cancelled."""


async def execute(frame: UserFrame, call: Callable[[Any], Any], given: Any, *, inline: bool = False) -> Any:
    """Run user code in its frame, called with `given`, and return its result, or `PAUSED`.

    The code is async, or with `inline` a sync function that runs on the event loop itself. Once it has asked, the
    outcome is a pause whatever it returns or raises. It has a copy of the context: variables that it sets are its own.
    """
    task = current_task(frame.scope.loop)
    place = Place(entry := enter(frame, task))
    token, before = current_place.set(place), copy_context()
    # While it is in user code, a cancel of the run can reach a task; a frame above may have added it already.
    is_inner = task in (reachable := frame.scope.cancellation.tasks)
    reachable.add(task)
    result, raised = None, None
    try:
        if inline:
            result = _own_context(place).run(call, given)
        elif _clean.get() is None:
            result = await call(given)
        else:
            result = await in_context(_own_context(place), lambda: call(given))
    except GeneratorExit:
        raise
    except BaseException as error:  # noqa: BLE001  # every way out of user code ends the frame, Pause included
        raised = error
    finally:
        if not is_inner:
            reachable.discard(task)
    try:
        is_same = copy_context() == before
    except Exception:  # noqa: BLE001  # protects the run from values that cannot be compared: they were changed
        is_same = False
    if not is_same and _clean.get() is None:
        _keep_clean(before)
    current_place.reset(token)
    if raised is None and not entry.pausing:
        return _returned(place, result)
    if entry.pausing and isinstance(raised, Pause):
        raised = None  # Its traceback holds the code's variables; what holds the place after this was left behind.
    left = weakref.ref(place)
    del place, before, result
    try:
        return await _unwound(entry, left, raised)
    finally:
        del raised  # Its traceback holds this frame.


async def _unwound(entry: Entry, left: weakref.ref[Place], raised: BaseException | None) -> Any:
    """Return the outcome of code that asked, or raised, once nothing of it goes on."""
    if entry.busy or left() is not None:
        raised = await _settle(entry, raised)
    try:
        return _outcome(entry, left(), raised)
    finally:
        del raised  # Its traceback holds this frame.


_clean: ContextVar[Context | None] = ContextVar("adjourn_clean", default=None)
"""In a context in which code of a run has set variables: a copy from before.

What was set cannot be unset, and a context for each step would cost too much: only from then on, code gets one.
"""


def _keep_clean(before: Context) -> None:
    clean = before.copy()
    clean.run(current_place.set, None)
    _clean.set(clean)


def _own_context(place: Place) -> Context:
    """Return a context for code at `place`, without the variables that code before it has set."""
    context = copy_context() if (clean := _clean.get()) is None else clean.copy()
    context.run(current_place.set, place)
    return context


@coroutine
def in_context(context: Context, call: Callable[[], Any]) -> Generator[Any, Any, Any]:
    """Make an async call in `context`; a task would do that, too, but costs a turn of the event loop."""
    begun = context.run(call)
    work: Any = begun if inspect.iscoroutine(begun) else _awaited(begun)
    step, value = work.send, None
    while True:
        try:
            waits_for = context.run(step, value)
        except StopIteration as end:
            return end.value
        try:
            step, value = work.send, (yield waits_for)
        except GeneratorExit:
            context.run(work.close)
            raise
        except BaseException as error:  # noqa: BLE001  # cancellation, or whatever a future raises: it is for the code
            step, value = work.throw, error


async def _awaited(work: Awaitable[Any]) -> Any:
    return await work


def execute_inline(frame: UserFrame, call: Callable[[Any], Any], given: Any) -> Any:
    """Do what `execute` does, for a sync function where nothing can be awaited."""
    entry = enter(frame)
    place = Place(entry)
    result, raised = None, None
    try:
        result = _own_context(place).run(call, given)
    except BaseException as error:  # noqa: BLE001  # every way out of user code ends the frame, Pause included
        raised = error
    if raised is None and not entry.pausing:
        return _returned(place, result)
    try:
        return _outcome(entry, place, raised)
    finally:
        del raised  # Its traceback holds this frame.


def _returned(place: Place, result: Any) -> Any:
    """Return the outcome of code that returned without asking anything in this entry."""
    entry = place.entry
    frame = entry.frame
    place.over, frame.running = True, None
    if entry.fault is not None:
        entry.undo()
        raise entry.fault
    if entry.missing:
        try:
            entry.check_replayed()
        except ReplayMismatch:
            entry.undo()
            raise
    if entry.replaced:
        entry.supersede_replaced()
    frame.written = entry.written
    return result


def _outcome(entry: Entry, place: Place | None, raised: BaseException | None) -> Any:
    """Return the outcome of code that asked, or raised; `place` is where it was, if anything can still reach it."""
    frame = entry.frame
    if place is not None:
        place.over = True
    frame.running = frame.written = None
    if entry.fault is not None:
        entry.undo()
        raise entry.fault
    if entry.replaced:
        entry.supersede_replaced()
    if isinstance(raised, asyncio.CancelledError) and (not entry.pausing or _is_cancelled()):
        raise _cancellation(frame, raised) from raised
    if entry.pausing or _is_signal(frame, raised):
        frame.paused = frame.emitted
        return PAUSED
    if isinstance(raised, Pause):
        raise UsageError(
            f"'{frame.address}' raised Pause by hand. Call `interrupt` or `raise_interrupt`, which record the question."
        )
    assert raised is not None
    raise raised


def _is_signal(frame: UserFrame, raised: BaseException | None) -> bool:
    """Return whether the code passes on the pause of a child that it has run with `try_run`."""
    return isinstance(raised, Pause) and any((child.path,) == raised.args for child in (frame.children or {}).values())


def _is_cancelled() -> bool:
    current = asyncio.current_task()
    return current is None or current.cancelling() > 0


def _cancellation(frame: UserFrame, error: asyncio.CancelledError) -> BaseException:
    """Return what a cancellation means: a cancel of the run, one from outside, or one that user code raised itself."""
    current = asyncio.current_task()
    if not _is_cancelled():
        return RunError(
            f"'{frame.address}' raised CancelledError although nobody cancelled it. Catch it where it comes from."
        )
    if frame.scope.cancellation.mode is None or current is None:
        return error
    current.uncancel()
    return RunCancelled()


async def _settle(entry: Entry, raised: BaseException | None) -> BaseException | None:
    """Let kept calls that are under way finish, and cancel whatever else the code has left behind.

    A timeout or a cancel of the run does not wait for them. Return what the code has `raised`, or the cancellation if
    it came here.
    """
    is_cut = isinstance(raised, asyncio.CancelledError) and _is_cancelled()
    if not is_cut and entry.task is not None:
        # A TaskGroup that a question aborts leaves its task counted as cancelled: a timeout would not know its own.
        while entry.task.cancelling():
            entry.task.uncancel()
    cancellation = entry.frame.scope.cancellation
    while entry.busy and not is_cut and cancellation.mode != "now":
        with cancellation.reaching(entry.task):
            try:
                await asyncio.wait(entry.busy)
            except asyncio.CancelledError as cancelled:
                raised, is_cut = cancelled, True
    entry.closing = True  # The search takes a turn of the event loop, in which nothing more may begin.
    left = await _left_behind(entry)
    for task in left:
        task.cancel()
    if left:
        # A task that does not end even then can do no harm: its entry refuses it.
        await asyncio.wait(left, timeout=PATIENCE)
    return raised


async def _left_behind(entry: Entry) -> set[Task]:
    """Return the tasks of an entry that go on, except those that keep a result."""
    found = set(await tasks_of(entry))
    busy = entry.busy or {}
    # Code inside a child run belongs to the child, so a search would not find it for this entry.
    found.update(task for task in busy.values() if task is not None)
    current = asyncio.current_task()
    return {task for task in found if task is not current and not task.done() and busy.get(task, task) is not None}


def tell_place(root: Frame, error: BaseException) -> Frame:
    """Add a note to an error that leaves a run, naming the frame that raised it, and return that; else the root."""
    frame = _raised_in(root, error)
    if frame is None:
        return root
    add_note(error, f"Raised in '{frame.address}' of session '{root.scope.session_id}'.")
    return frame


def _raised_in(frame: Frame, error: BaseException) -> UserFrame | None:
    # The same error passes through the frames above: the deepest one is where it comes from.
    for child in frame.live_children():
        if (found := _raised_in(child, error)) is not None:
            return found
    return frame if isinstance(frame, UserFrame) and frame.exception is error else None
