"""Signals that tell a process to stop: a server that waits for open streams would wait for ever if we did not hear."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Generator
from types import FrameType


@contextlib.contextmanager
def on_signals(stop: Callable[[], object]) -> Generator[None]:
    """Call `stop` on the event loop when the process is told to end, besides what its server does then.

    Only in the main thread, where Python has its signals, and only where the server handles them at all.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()

    def heard(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(stop)
        handlers[number](number, frame)

    found = {int(number): signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    handlers = {number: before for number, before in found.items() if callable(before)}
    for number in handlers:
        signal.signal(number, heard)
    try:
        yield
    finally:
        for number, before in handlers.items():
            if signal.getsignal(number) is heard:
                signal.signal(number, before)
