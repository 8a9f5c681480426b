"""The heartbeat: a thread that renews the leases of live runs, and looks for cancels from other processes."""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from contextlib import suppress
from typing import ClassVar, Protocol

from msgspec.structs import replace

from adjourn._hiding import logger
from adjourn._owner import lease_clock, note_end
from adjourn._text import visible_line
from adjourn.errors import text_of
from adjourn.stores.protocol import SeesCancels, Store
from adjourn.stores.types import Lease, Renewed

log = logger("adjourn.stores")

LOOK = 0.2
"""Seconds between looks for cancels from other processes, while a run lasts."""

IDLE = 10.0
"""Seconds after which a heartbeat without leases ends its thread."""

SHORTEST_LIMIT = 1.0
"""Seconds that a store has to renew leases, however soon they end: it may have to connect first."""


class LeaseHolder(Protocol):
    """Whoever holds a lease."""

    @property
    def is_gone(self) -> bool:
        """Whether it cannot give the lease back any more, so that the heartbeat has to."""
        ...

    def hear(self, lease: Lease, state: Renewed) -> None:
        """Receive, on the heartbeat's thread, what became of it."""
        ...

    def secure(self, lease: Lease, until: float) -> None:
        """Learn, on the heartbeat's thread, that it was renewed, until a time of `lease_clock`."""
        ...


class Heartbeat:
    """Renews the leases of live runs from a separate thread, so that a blocked event loop cannot lose them.

    There is one for each store, with one event loop for as long as its thread lives: a store that keeps connections
    per loop opens one for all renewals.
    """

    _of: ClassVar[weakref.WeakKeyDictionary[Store, Heartbeat]] = weakref.WeakKeyDictionary()
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, store: Store) -> None:
        self._store = weakref.ref(store)
        self._leases: dict[LeaseHolder, Lease] = {}
        self._unreleased: list[Lease] = []
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    @classmethod
    def of(cls, store: Store) -> Heartbeat:
        """Return the heartbeat of a store."""
        beat = cls._of.get(store)
        if beat is not None:
            return beat
        with cls._lock:
            return cls._of.setdefault(store, cls(store))

    @classmethod
    def forget(cls) -> None:
        """Start over in the child of a fork, which has none of the threads."""
        cls._lock = threading.Lock()
        for beat in cls._of.values():
            beat._leases, beat._unreleased, beat._wake, beat._thread = {}, [], threading.Event(), None

    def add(self, holder: LeaseHolder, lease: Lease) -> None:
        """Renew the lease of `holder` until it is removed.

        Raises:
            RuntimeError: the system has no thread for it.
        """
        with self._lock:
            self._leases[holder] = lease
            if self._thread is None or lease.ttl / 3 < self._interval:
                self._start()

    def give_back(self, lease: Lease) -> None:
        """End a lease that its run could not release, as soon as the store can be reached."""
        with self._lock:
            self._unreleased.append(lease)
            with suppress(RuntimeError):  # Without a thread now, it is left for the next one.
                self._start()

    def _start(self) -> None:
        """Make the thread look at the leases now, or begin to."""
        if self._thread is not None:
            self._wake.set()
            return
        thread = threading.Thread(target=self._beat, name="adjourn-heartbeat", daemon=True)
        thread.start()
        self._thread = thread

    def remove(self, holder: LeaseHolder) -> None:
        """Stop renewing a lease."""
        self._leases.pop(holder, None)

    _interval = IDLE

    @property
    def _limit(self) -> float:
        """The seconds a call to the store may take, so that there is time for another one before a lease ends."""
        return max(SHORTEST_LIMIT, self._interval / 2)

    def _beat(self) -> None:
        loop = asyncio.Runner()  # It makes its loop when first used; most threads never get that far.
        try:
            self._beat_on(loop)
        finally:
            loop.close()

    def _beat_on(self, loop: asyncio.Runner) -> None:
        pause = LOOK if isinstance(self._store(), SeesCancels) else IDLE
        since, heard = time.monotonic(), dict[LeaseHolder, str]()  # the last renewal, and the cancels passed on
        while True:
            with self._lock:
                # A copy, since runs may end meanwhile.
                leases = [*list(self._leases.values()), *self._unreleased]
                self._interval = min((lease.ttl / 3 for lease in leases), default=IDLE)
            woken = self._wake.wait(min(pause, self._interval))
            self._wake.clear()
            is_due = woken or time.monotonic() - since >= self._interval
            with self._lock:
                is_due = self._let_go() or is_due
                leases, unreleased = dict(self._leases), list(self._unreleased)
                store = self._store()
                if store is None or (is_due and not leases and not unreleased and not woken):
                    self._thread = None
                    return
            if is_due:
                since = time.monotonic()
            if leases or unreleased:
                if is_due:
                    self._renew(loop, store, leases, unreleased)
                elif leases and isinstance(store, SeesCancels):
                    pause = self._look(loop, store, leases, heard)
            del store

    def _let_go(self) -> bool:
        """Give back the leases of those who cannot do it any more; return whether there are such."""
        gone = {holder: lease for holder, lease in list(self._leases.items()) if holder.is_gone}
        for holder, lease in gone.items():
            self.remove(holder)
            note_end(lease.owner)
            self._unreleased.append(lease)
        return bool(gone)

    def _look(
        self, loop: asyncio.Runner, store: SeesCancels, leases: dict[LeaseHolder, Lease], heard: dict[LeaseHolder, str]
    ) -> float:
        """Pass on the cancels that came since the last look; return the seconds until the next one."""
        began = time.monotonic()
        try:
            modes = loop.run(_cancels(store, list(leases.values()), self._limit))
            for (holder, lease), mode in zip(leases.items(), modes, strict=True):
                if mode is not None and heard.get(holder) != mode:
                    holder.hear(lease, Renewed(ref=lease.ref, lost=False, cancel=mode))
            heard.clear()
            heard.update({holder: mode for holder, mode in zip(leases, modes, strict=True) if mode is not None})
        except Exception as error:  # noqa: BLE001  # protects every lease of this store: renewing them matters more
            log.debug("cancels not seen: %s", visible_line(text_of(error)))
        # However many runs there are, and however slow the store: at most a hundredth of this thread's time.
        return max(LOOK, 100 * (time.monotonic() - began))

    def _renew(
        self, loop: asyncio.Runner, store: Store, leases: dict[LeaseHolder, Lease], unreleased: list[Lease]
    ) -> None:
        ended = [replace(lease, ttl=0.0) for lease in unreleased]
        began, asked = time.monotonic(), lease_clock()
        try:
            renewed = loop.run(_renewed(store, [*leases.values(), *ended], self._limit))
            for (holder, lease), state in zip(leases.items(), renewed, strict=False):
                if not state.lost and not state.skipped:
                    holder.secure(lease, asked + lease.ttl)
                if state.lost or state.cancel:
                    holder.hear(lease, state)
            for lease in unreleased:
                self._unreleased.remove(lease)
        except Exception as error:  # noqa: BLE001  # protects every lease of this store: without this thread they expire
            # The run's own commits meet the same trouble and decide; here we just try again.
            log.warning("leases not renewed: %s", visible_line(text_of(error)) or "no reply")
            if time.monotonic() - began >= self._limit:
                self._wake.set()  # at once: there is little time left, and another connection may be sound


async def _cancels(store: SeesCancels, leases: list[Lease], limit: float) -> list[str | None]:
    async with asyncio.timeout(limit):
        return await store.cancels(leases)


async def _renewed(store: Store, leases: list[Lease], limit: float) -> list[Renewed]:
    async with asyncio.timeout(limit):
        return await store.renew(leases)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Heartbeat.forget)
