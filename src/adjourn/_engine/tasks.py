"""Finding the asyncio tasks that user code has started and left behind."""

from __future__ import annotations

import asyncio
import gc
import sys
from contextvars import Context
from typing import Any
from weakref import WeakKeyDictionary

from .frame import Entry, current_place

Task = asyncio.Task[Any]


async def tasks_of(entry: Entry) -> list[Task]:
    """Return the tasks whose code stands in `entry`.

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
    # Before Python 3.12 a task does not give it away; its C implementation shows it to the garbage collector alone.
    if hasattr(task, "_context"):
        return [task._context]
    return [each for each in gc.get_referents(task) if isinstance(each, Context)]
