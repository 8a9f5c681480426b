"""Deadlines: the time that a tool has, kept even with a tool that does not end when it is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from adjourn.core.frame import UserFrame

GRACE = 1.0
"""Seconds that a cancelled tool gets to end; then it is left to itself."""


class Late(Exception):
    """The time was over."""


async def within(seconds: float, frame: UserFrame, call: Coroutine[Any, Any, Any]) -> Any:
    """The result of the code of `frame`, made in a task of its own, so that it can be left behind.

    Raises:
        Late: there was none in time.
    """
    work = asyncio.create_task(_caught(call))
    main, frame.main = frame.main, work
    try:
        await asyncio.wait([work], timeout=seconds)
        if not work.done():
            await _end(work)
            raise Late
    except asyncio.CancelledError:
        await _end(work)
        raise
    finally:
        frame.main = main
    result, error = work.result()
    if error is not None:
        raise error
    return result


async def _caught(call: Coroutine[Any, Any, Any]) -> tuple[Any, BaseException | None]:
    try:
        return await call, None
    except BaseException as error:  # noqa: BLE001  # it belongs to whoever awaits the call, Pause included
        return None, error


async def _end(work: asyncio.Task[Any]) -> None:
    work.cancel()
    await asyncio.wait([work], timeout=GRACE)
