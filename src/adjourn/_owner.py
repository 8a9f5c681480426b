"""Owners: which process holds a session, whether it is still alive, and how it is shown to people.

An owner's id is `<boot>/<pid namespace>/<pid>/<start time>/<run>`, or `//<pid>/<mark>/<run>` on systems without `/proc`
(macOS, Windows), or any other id that a caller of a store has chosen.
"""

from __future__ import annotations

import os
import sys
import time
import weakref
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Protocol


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except (OSError, ValueError):  # a pid from a damaged file may hold a NUL
        return ""


def _start_time(pid: str) -> str | None:
    """Return when a process began, nothing if it has ended, or None if it cannot be seen."""
    # The 22nd field of /proc/<pid>/stat; the command before it may contain spaces and parentheses.
    # The first field after the command is the state: Z is a dead process that its parent has not waited for.
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    if len(fields) <= 19:
        return None
    return "" if fields[0] in "ZX" else fields[19]


def _is_gone(pid: str, start: str) -> bool:
    now = _start_time(pid)
    if now is not None:
        return now != start
    try:  # /proc may hide the processes of other users (hidepid=2), and may miss one that has just begun.
        os.kill(int(pid), 0)
    except PermissionError:
        return False
    except (ProcessLookupError, ValueError, OverflowError):  # a damaged file may have any pid
        return True
    return False


def _namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


@cache
def _random() -> str:
    return os.urandom(8).hex()


_random()  # Now, since two threads that are the first to call it would get two.


@cache
def process_id() -> str:
    """Return an id that no other process ever has: boot, pid namespace, pid and start time, or pid and mark."""
    pid = str(os.getpid())
    boot, start = _read("/proc/sys/kernel/random/boot_id").replace("-", "")[:12], _start_time(pid)
    if not boot or not start:
        return f"//{pid}/{_random()}"
    return f"{boot}/{_namespace().removeprefix('pid:[').removesuffix(']')}/{pid}/{start}"


def mark() -> str:
    """Return the mark of this process where the system does not tell which processes live, else nothing."""
    return _random() if process_id().startswith("//") else ""


def _start_over() -> None:
    _random.cache_clear()
    process_id.cache_clear()
    _random()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_over)


class Witness(Protocol):
    """Something that can tell which processes live where the system does not."""

    def lives(self, mark: str) -> bool | None:
        """Return whether the process with a mark lives, or None if nothing here shows it."""
        ...


witnesses: weakref.WeakSet[Witness] = weakref.WeakSet()


def is_own(owner: str) -> bool:
    """Return whether `owner` is a run of this process, and not of the one that it was forked from."""
    return owner.startswith(f"{process_id()}/")


def _lease_clock() -> Callable[[], float]:
    # Python's own stands still while a machine sleeps, on Linux and macOS; leases do not.
    if sys.platform == "linux":
        return partial(time.clock_gettime, time.CLOCK_BOOTTIME)
    if sys.platform == "darwin":
        return partial(time.clock_gettime, time.CLOCK_MONOTONIC)
    return time.monotonic


lease_clock: Callable[[], float] = _lease_clock()
"""Seconds that never go back, and that count while the machine sleeps: by them an owner knows that a lease is over."""


MOST_ENDED = 10_000
"""How many runs are remembered that ended while their store was away; leases of older ones are over."""
_ended: dict[str, None] = {}


def note_end(owner: str) -> None:
    """Note that a run of this process has ended, although its store, or a head read before, may still name it."""
    _ended[owner] = None
    if len(_ended) > MOST_ENDED:
        for oldest in list(_ended)[: MOST_ENDED // 2]:
            _ended.pop(oldest, None)


def has_ended(owner: str) -> bool:
    """Return whether `owner` was a run of this process that ended, and could not tell its store."""
    return owner in _ended


def is_dead(owner: str) -> bool:
    """Return whether `owner` has ended: a process of this boot and pid namespace, or a run of this process."""
    if owner in _ended:
        return True
    theirs, ours = owner.split("/"), process_id().split("/")
    if len(theirs) < 4 or not theirs[3] or theirs[:2] != ours[:2]:
        return False
    if theirs[0]:
        return _is_gone(theirs[2], theirs[3])
    # Beside a copy of a database, the file of a living process is a copy, too, and no process has locked it.
    seen = {witness.lives(theirs[3]) for witness in list(witnesses)} if theirs[3] != ours[3] else set[bool | None]()
    return False in seen and True not in seen


def owner_name(owner: str) -> str:
    """Return an owner's name for people; an owner that is not a process is named by its id."""
    theirs, ours = owner.split("/"), process_id().split("/")
    if len(theirs) < 4 or not theirs[2].isdecimal():
        return owner or "somebody else"
    boot, space, pid = theirs[:3]
    if theirs[:4] == ours:
        return f"this process ({pid})"
    if not boot or not ours[0]:
        return f"process {pid}"  # The system does not say which machine it is.
    if boot != ours[0]:
        return f"process {pid} on another machine"
    return f"process {pid} on this machine" if space == ours[1] else f"process {pid} in a container on this machine"
