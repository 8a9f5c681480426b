"""Work, counted in calls or lines: how busy the machine is changes nothing about them."""

import sys
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any


async def calls_of(work: Callable[[], Awaitable[Any]]) -> int:
    """Return the calls, of Python and of C, that are made in this thread while something is done."""
    count = 0

    def note(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        await work()
    finally:
        sys.setprofile(None)
    return count


async def lines_of(work: Callable[[], Awaitable[Any]]) -> int:
    """Return the lines of Python that are run while something is done: loops show in it, which calls do not count."""
    count = 0

    def note(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        return note

    before = sys.gettrace()
    sys.settrace(note)
    try:
        await work()
    finally:
        sys.settrace(before)
    return count
