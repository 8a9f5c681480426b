"""Tasks that begin at once: work that never has to wait is done before the event loop hears of it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Generator
from contextvars import Context, copy_context
from typing import Any, cast

Work = Coroutine[Any, Any, None]

if sys.version_info >= (3, 12):

    def begin_task(work: Work, *, loop: asyncio.AbstractEventLoop, name: str) -> asyncio.Task[None] | None:
        """Do `work` here and now until it first waits, and give the task that does the rest; None if it is done.

        The work says itself what became of it, and raises nothing but a cancellation.
        """
        task = asyncio.Task(work, loop=loop, name=name, eager_start=True)
        return None if task.done() else task

else:
    # The same for Python 3.11. What the work does before it first waits must be done in the name of its own task, which
    # a timeout or a task group in it keeps hold of. So the task is there first, and its loop hears of it when it waits.

    class _Aside:
        """In the place of an event loop while a task is made: it keeps what the loop is to call."""

        step: Any = None  # Any: known to asyncio alone

        def call_soon(self, step: Any, *, context: Context) -> None:
            self.step = step

        def get_debug(self) -> bool:
            return False

    _future: Any = asyncio.Future  # Any: its methods, which a task hides
    # Documented for whoever makes tasks, under "Extending" asyncio.
    _enter, _leave = asyncio._enter_task, asyncio._leave_task

    def begin_task(work: Work, *, loop: asyncio.AbstractEventLoop, name: str) -> asyncio.Task[None] | None:
        """Do `work` here and now until it first waits, and give the task that does the rest; None if it is done.

        The work says itself what became of it, and raises nothing but a cancellation.
        """
        aside, context, before = _Aside(), copy_context(), asyncio.current_task(loop)
        rest: Any = _rest(work)  # Any: to Python 3.11 a generator is a coroutine, to type checkers it is not
        task: asyncio.Task[None] = asyncio.Task(rest, loop=cast("Any", aside), name=name, context=context)
        _future.__init__(task, loop=loop)
        if before is not None:
            _leave(loop, before)
        _enter(loop, task)
        try:
            awaited = context.run(work.send, None)
        except (StopIteration, asyncio.CancelledError):
            _future.set_result(task, None)
            return None
        finally:
            _leave(loop, task)
            if before is not None:
                _enter(loop, before)
        next(rest)
        rest.send(awaited)
        loop.call_soon(aside.step, context=context)
        return task

    def _rest(work: Work) -> Generator[Any, Any, None]:
        """What is left of work that waits for what is sent first."""
        awaited = yield
        try:
            try:
                yield  # Its first turn on the loop comes, and with it a cancel that was faster.
            except BaseException as error:  # noqa: BLE001  # it is for the work, and so below
                if awaited is not None:
                    awaited.cancel()
                awaited = work.throw(error)
            while True:
                try:
                    sent = yield awaited
                except BaseException as error:  # noqa: BLE001
                    awaited = work.throw(error)
                else:
                    awaited = work.send(sent)
        except StopIteration:
            return
