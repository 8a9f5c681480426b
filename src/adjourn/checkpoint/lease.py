"""Leases: who owns a live session, whether that process still lives, and the heartbeat that keeps leases alive."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import weakref
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import ClassVar

from .store import Lease, Renewed, Store

log = logging.getLogger("adjourn.checkpoint")

IDLE = 10.0
"""Seconds after which a heartbeat without leases ends its thread."""


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _start_time(pid: str) -> str:
    # The 22nd field of /proc/<pid>/stat; the command before it may hold spaces and parentheses.
    # The first one after that is the state: a process that is dead, but that its parent has not asked after, is Z.
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 and fields[0] not in "ZX" else ""


def _namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def process_id() -> str:
    """This process among all that ever ran: boot, pid namespace, pid and start time."""
    return _process_id(os.getpid())


@cache
def _process_id(pid: int) -> str:
    boot = _read("/proc/sys/kernel/random/boot_id").replace("-", "")[:12]
    space = _namespace().removeprefix("pid:[").removesuffix("]")
    return f"{boot}/{space}/{pid}/{_start_time(str(pid))}"


def is_dead(owner: str) -> bool:
    """Whether `owner` is known to have been a process of this boot and pid namespace that is gone now."""
    theirs, ours = owner.split("/"), process_id().split("/")
    if len(theirs) < 4 or not theirs[0] or not theirs[3] or theirs[:2] != ours[:2]:
        return False
    return _start_time(theirs[2]) != theirs[3]


class Heartbeat:
    """Renews the leases of live runs from a thread of its own, so that a blocked event loop cannot lose them."""

    _of: ClassVar[weakref.WeakKeyDictionary[Store, Heartbeat]] = weakref.WeakKeyDictionary()
    _lock = threading.Lock()

    def __init__(self, store: Store) -> None:
        self._store = weakref.ref(store)
        self._leases: dict[Lease, Callable[[Renewed], None]] = {}
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()

    @classmethod
    def of(cls, store: Store) -> Heartbeat:
        """The heartbeat of a store."""
        with cls._lock:
            beat = cls._of.get(store)
            if beat is None or beat._pid != os.getpid():
                beat = cls._of[store] = cls(store)
            return beat

    def add(self, lease: Lease, told: Callable[[Renewed], None]) -> None:
        """Renew `lease` until it is removed; `told` hears, in the heartbeat's thread, what became of it."""
        with self._lock:
            self._leases[lease] = told
            if self._thread is None:
                self._thread = threading.Thread(target=self._beat, name="adjourn-heartbeat", daemon=True)
                self._thread.start()
            elif lease.ttl / 3 < self._interval:
                self._wake.set()

    def remove(self, lease: Lease) -> None:
        """Let a lease be."""
        self._leases.pop(lease, None)

    _interval = IDLE

    def _beat(self) -> None:
        while True:
            with self._lock:
                # Of a copy: runs end meanwhile.
                self._interval = min((lease.ttl / 3 for lease in list(self._leases)), default=IDLE)
            woken = self._wake.wait(self._interval)
            self._wake.clear()
            with self._lock:
                leases = dict(self._leases)
                if not leases and not woken:
                    self._thread = None
                    return
            store = self._store()
            if leases and store is not None:
                self._renew(store, leases)
            del store

    def _renew(self, store: Store, leases: dict[Lease, Callable[[Renewed], None]]) -> None:
        try:
            renewed = asyncio.run(store.renew(list(leases)))
            for told, state in zip(leases.values(), renewed, strict=True):
                if state.lost or state.cancel:
                    told(state)
        except Exception as error:  # noqa: BLE001  # protects every lease of this store: without this thread they expire
            # The run's own commits meet the same trouble and decide; here it is only tried again.
            log.warning("leases not renewed: %s", error)
