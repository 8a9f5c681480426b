"""Entries: running the user code of a frame once, from its top to its outcome."""

from __future__ import annotations

import asyncio
import weakref
from asyncio import current_task
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ClassVar, Final

from adjourn.errors import Pause, ReplayMismatch, RunError, UsageError

from .frame import Place, UserFrame, here
from .scope import RunCancelled

PAUSED: Final = object()
"""The outcome of an entry that asked."""

PATIENCE = 5.0
"""Seconds that tasks left behind by a pause get to end after they are cancelled."""


async def execute(frame: UserFrame, call: Callable[[Any], Awaitable[Any]], given: Any) -> Any:
    """Run user code in its frame, called with what is given, and give its result, or `PAUSED`.

    Once the frame has asked, its outcome is a pause whatever the code returns or raises.
    """
    if frame.entered or frame.questions:
        frame.enter_again()
    frame.entered = True
    scope = frame.scope
    frame.main = main = current_task(scope.loop)
    at = Place(frame)
    token = here.set(at)
    # While it is in user code, a task can be cut by a cancel of the run; code of ours above it may stand there already.
    cuts = scope.user_cuts
    is_inner = main in cuts
    cuts.add(main)
    result, raised = None, None
    try:
        result = await call(given)
    except GeneratorExit:
        raise
    except BaseException as error:  # noqa: BLE001  # every way out of user code ends the frame, Pause included
        raised = error
    finally:
        if not is_inner:
            cuts.discard(main)
    here.reset(token)
    if raised is None and not frame.pausing:
        return _returned(at, result)
    if frame.busy or frame.spawned:
        await settle(frame)
    frame.main = None  # A frame that waits is kept, and need not keep the task that ran it.
    try:
        return _outcome(at, result, raised)
    finally:
        del raised  # Its traceback holds this frame.


def execute_inline(frame: UserFrame, call: Callable[[Any], Any], given: Any) -> Any:
    """`execute` for a sync function that runs on the event loop itself."""
    if frame.entered or frame.questions:
        frame.enter_again()
    frame.entered = True
    at = Place(frame)
    token = here.set(at)
    result, raised = None, None
    try:
        result = call(given)
    except BaseException as error:  # noqa: BLE001  # every way out of user code ends the frame, Pause included
        raised = error
    here.reset(token)
    if raised is None and not frame.pausing:
        return _returned(at, result)
    try:
        return _outcome(at, result, raised)
    finally:
        del raised  # Its traceback holds this frame.


def _returned(at: Place, result: Any) -> Any:
    """The outcome of code that returned, and asked nothing in this entry."""
    frame = at.frame
    at.over = True
    if frame.fault is not None:
        frame.take_back()
        raise frame.fault
    if frame.memos or frame.questions or frame.children or frame.scope.dormant:
        try:
            frame.check_replayed()
        except ReplayMismatch:
            frame.take_back()
            raise
    return result


def _outcome(at: Place, result: Any, raised: BaseException | None) -> Any:
    frame = at.frame
    at.over = True
    if frame.fault is not None:
        frame.take_back()
        raise frame.fault
    if isinstance(raised, asyncio.CancelledError) and (not frame.pausing or _is_cancelled()):
        raise _cancellation(frame, raised) from raised
    if frame.pausing or _is_signal(frame, raised):
        return PAUSED
    if isinstance(raised, Pause):
        raise UsageError(
            f"'{frame.address}' raised Pause by hand. Call `interrupt` or `raise_interrupt`, which record the question."
        )
    assert raised is not None
    raise raised


def _is_signal(frame: UserFrame, raised: BaseException | None) -> bool:
    """Whether the code passes on the pause of a child that it has run with `try_run`."""
    return isinstance(raised, Pause) and any((child.path,) == raised.args for child in (frame.children or {}).values())


def _is_cancelled() -> bool:
    current = asyncio.current_task()
    return current is None or current.cancelling() > 0


def _cancellation(frame: UserFrame, error: asyncio.CancelledError) -> BaseException:
    """What a cancellation means: a cancel of the run, one from outside, or user code that raises it by itself."""
    current = asyncio.current_task()
    if not _is_cancelled():
        return RunError(
            f"'{frame.address}' raised CancelledError although nobody cancelled it. Catch it where it comes from."
        )
    if frame.scope.cancel_mode is None or current is None:
        return error
    current.uncancel()
    return RunCancelled()


async def settle(frame: UserFrame) -> None:
    """Let kept calls that are under way finish, and cancel what else the code has left behind."""
    # Unless it is cut off itself, by a timeout or a cancel: then it cannot wait.
    while frame.busy and not _is_cancelled():
        await asyncio.wait(frame.busy)
    current = asyncio.current_task()
    left = [task for task in frame.spawned or () if not task.done() and task is not current]
    for task in left:
        task.cancel()
    if left:
        # Whoever does not end even then can do no harm: its frame refuses it.
        await asyncio.wait(left, timeout=PATIENCE)


# Knowing which tasks a frame's code has started


class TaskWatch:
    """A task factory that notes, for the frame whose code starts a task, that it did.

    Installed on an event loop while runs are live on it, around the factory that was there.
    """

    _of: ClassVar[dict[asyncio.AbstractEventLoop, TaskWatch]] = {}

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop: Any = loop  # Any: what typeshed says of factories, no class can fulfil
        self._before: Any = None
        self._runs = 0

    @classmethod
    def begin(cls, loop: asyncio.AbstractEventLoop) -> TaskWatch:
        """A run starts on `loop`; `end` it there."""
        watch = cls._of.get(loop)
        if watch is None:
            for each in [each for each in list(cls._of) if each.is_closed()]:
                cls._of.pop(each, None)
            watch = cls._of[loop] = cls(loop)
        if not watch._runs:
            watch._before = watch._loop.get_task_factory()
            watch._loop.set_task_factory(watch)
        watch._runs += 1
        return watch

    def end(self) -> None:
        """A run has ended; after the last one the loop is as it was."""
        self._runs -= 1
        if not self._runs and self._loop.get_task_factory() is self:
            self._loop.set_task_factory(self._before)

    def __call__(
        self, loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Future[Any]:
        if self._before is not None:
            task = self._before(loop, coro, **options)
        else:
            task = asyncio.Task(coro, loop=loop, **options)
        at = here.get()
        if at is not None:
            frame = at.frame
            if frame.spawned is None:
                frame.spawned = weakref.WeakSet()
            frame.spawned.add(task)
        return task
