"""Slots: how many tasks of a run may be at work at once."""

from __future__ import annotations

import asyncio


class Slot:
    """A task's place among those at work.

    A task that waits for children of its own is not at work: it lends its slot, or children and parent would wait for
    one another for ever.
    """

    __slots__ = ("_held", "_lent", "_over", "_slots")

    def __init__(self, slots: asyncio.Semaphore) -> None:
        self._slots = slots
        self._held = False
        self._over = False
        self._lent = 0

    async def __aenter__(self) -> Slot:
        await self._slots.acquire()
        self._held = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._over = True
        self._let_go()

    def lend(self) -> None:
        """Let go of the slot while a child runs."""
        self._lent += 1
        self._let_go()

    async def take_back(self, *, now: bool) -> None:
        """Have it again when the last of the children has ended; not `now` when the task itself is being ended."""
        self._lent -= 1
        if now and not self._lent and not self._over:
            await self._slots.acquire()
            self._held = True
            if self._over:  # It has ended meanwhile.
                self._let_go()

    def _let_go(self) -> None:
        if self._held:
            self._held = False
            self._slots.release()
