"""The heartbeat that keeps the leases of live runs alive."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import weakref
from typing import ClassVar, Protocol

from adjourn.stores.protocol import Lease, Renewed, Store

log = logging.getLogger("adjourn.stores")

IDLE = 10.0
"""Seconds after which a heartbeat without leases ends its thread."""


class LeaseHolder(Protocol):
    """Whoever holds a lease."""

    def hear(self, lease: Lease, state: Renewed) -> None:
        """Take in, on the heartbeat's thread, what became of it."""
        ...


class Heartbeat:
    """Renews the leases of live runs from a thread of its own, so that a blocked event loop cannot lose them.

    There is one for each store, with one event loop for as long as its thread lives: a store that keeps connections
    for each loop opens one for all renewals.
    """

    _of: ClassVar[weakref.WeakKeyDictionary[Store, Heartbeat]] = weakref.WeakKeyDictionary()
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, store: Store) -> None:
        self._store = weakref.ref(store)
        self._leases: dict[LeaseHolder, Lease] = {}
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    @classmethod
    def of(cls, store: Store) -> Heartbeat:
        """The heartbeat of a store."""
        beat = cls._of.get(store)
        if beat is not None:
            return beat
        with cls._lock:
            return cls._of.setdefault(store, cls(store))

    @classmethod
    def forget(cls) -> None:
        """Start anew in the child of a fork, which has none of the threads."""
        cls._lock = threading.Lock()
        for beat in cls._of.values():
            beat._leases, beat._wake, beat._thread = {}, threading.Event(), None

    def add(self, holder: LeaseHolder, lease: Lease) -> None:
        """Renew the lease of `holder` until it is removed."""
        with self._lock:
            self._leases[holder] = lease
            if self._thread is None:
                self._thread = threading.Thread(target=self._beat, name="adjourn-heartbeat", daemon=True)
                self._thread.start()
            elif lease.ttl / 3 < self._interval:
                self._wake.set()

    def remove(self, holder: LeaseHolder) -> None:
        """Let a lease be."""
        self._leases.pop(holder, None)

    _interval = IDLE

    def _beat(self) -> None:
        loop = asyncio.Runner()  # It makes its loop when it is first used; most threads never come to that.
        try:
            self._beat_on(loop)
        finally:
            loop.close()

    def _beat_on(self, loop: asyncio.Runner) -> None:
        while True:
            with self._lock:
                # Of a copy: runs end meanwhile.
                self._interval = min((lease.ttl / 3 for lease in list(self._leases.values())), default=IDLE)
            woken = self._wake.wait(self._interval)
            self._wake.clear()
            with self._lock:
                leases = dict(self._leases)
                if not leases and not woken:
                    self._thread = None
                    return
            store = self._store()
            if leases and store is not None:
                self._renew(loop, store, leases)
            del store

    def _renew(self, loop: asyncio.Runner, store: Store, leases: dict[LeaseHolder, Lease]) -> None:
        try:
            renewed = loop.run(_renewed(store, list(leases.values())))
            for (holder, lease), state in zip(leases.items(), renewed, strict=True):
                if state.lost or state.cancel:
                    holder.hear(lease, state)
        except Exception as error:  # noqa: BLE001  # protects every lease of this store: without this thread they expire
            # The run's own commits meet the same trouble and decide; here it is only tried again.
            log.warning("leases not renewed: %s", error)


async def _renewed(store: Store, leases: list[Lease]) -> list[Renewed]:
    return await store.renew(leases)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Heartbeat.forget)
