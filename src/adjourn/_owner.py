"""Owners: which process holds a session, whether it still lives, and how people are told of it.

An owner's id is `<boot>/<pid namespace>/<pid>/<start time>/<run>`, or whatever else a caller of a store has chosen.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path


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


@cache
def process_id() -> str:
    """This process among all that ever ran: boot, pid namespace, pid and start time."""
    boot = _read("/proc/sys/kernel/random/boot_id").replace("-", "")[:12]
    space, pid = _namespace().removeprefix("pid:[").removesuffix("]"), str(os.getpid())
    return f"{boot}/{space}/{pid}/{_start_time(pid)}"


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=process_id.cache_clear)


def is_dead(owner: str) -> bool:
    """Whether `owner` is known to have been a process of this boot and pid namespace that is gone now."""
    theirs, ours = owner.split("/"), process_id().split("/")
    if len(theirs) < 4 or not theirs[0] or not theirs[3] or theirs[:2] != ours[:2]:
        return False
    return _start_time(theirs[2]) != theirs[3]


def owner_name(owner: str) -> str:
    """An owner in words for people; one that is no process of ours has its id for a name."""
    theirs, ours = owner.split("/"), process_id().split("/")
    if len(theirs) < 4 or not theirs[2].isdecimal():
        return owner or "somebody else"
    boot, space, pid = theirs[:3]
    if theirs[:4] == ours:
        return f"this process ({pid})"
    if not boot or not ours[0]:
        return f"process {pid}"  # Where the system does not tell which machine it is.
    if boot != ours[0]:
        return f"process {pid} on another machine"
    return f"process {pid} on this machine" if space == ours[1] else f"process {pid} in a container on this machine"
