"""Lets a Python process see what it would see on another system: $ELSEWHERE is "macos", "windows" or "hidden".

With this folder on PYTHONPATH, Python runs this file at the start of a process and of all that it starts. The first two
have no `/proc`; in that of the third, each process sees only itself (`hidepid=2`, processes of other users). On Windows
modules and functions are missing as well, `os.kill` ends a process whatever the signal, and loops cannot handle
signals. The standard library was loaded before and does not notice: for this machine it is right.
"""

# pyright: basic

from __future__ import annotations

import asyncio
import io
import logging.handlers
import multiprocessing
import os
import pathlib
import shutil
import signal
import sqlite3
import ssl
import subprocess
import sys
import tempfile
import types
import urllib.request
import uuid
import zoneinfo
from functools import partial

ELSEWHERE = os.environ.get("ELSEWHERE", "")
LOADED = (
    asyncio,
    logging,
    multiprocessing,
    pathlib,
    shutil,
    sqlite3,
    ssl,
    subprocess,
    tempfile,
    urllib,
    uuid,
    zoneinfo,
)
UNIX_MODULES = ("fcntl", "grp", "pty", "pwd", "readline", "resource", "termios", "tty")
UNIX_FUNCTIONS = ("fchmod", "fork", "getuid", "geteuid", "killpg", "O_CLOEXEC", "O_NOFOLLOW", "register_at_fork")
UNIX_SIGNALS = ("SIGCHLD", "SIGHUP", "SIGKILL", "SIGUSR1")


def is_hidden(path: str) -> bool:
    """Return whether a path is in `/proc`, or if only others are hidden, about another process."""
    of = path.removeprefix("/proc/").split("/")[0]
    return path.startswith("/proc") and (ELSEWHERE != "hidden" or (of.isdecimal() and of != str(os.getpid())))


def call_outside_proc(call, path, *args, **options):
    """Call a function of a path, unless that is hidden."""
    if not isinstance(path, int) and is_hidden(os.fspath(path)):
        raise FileNotFoundError(2, "No such file or directory", path)
    return call(path, *args, **options)


def hide_proc() -> None:
    """Let `/proc`, or other processes in it, not be there."""
    for module, name in ((io, "open"), (os, "open"), (os, "stat"), (os, "lstat"), (os, "readlink"), (os, "scandir")):
        setattr(module, name, partial(call_outside_proc, getattr(module, name)))


def keep_library(module: types.ModuleType) -> None:
    """Give the library a copy of one of its modules as it is, so that the original can be changed for the rest."""
    copy = types.ModuleType(module.__name__)
    vars(copy).update(vars(module))
    for each in set(sys.modules.values()) - {sys.modules[__name__]}:
        for name, value in list(vars(each).items()):
            if value is module:
                setattr(each, name, copy)


def pretend_windows() -> None:
    """Take away what Windows does not have."""
    import fcntl  # noqa: PLC0415

    kill, kill_signal = os.kill, signal.SIGKILL
    locking = types.ModuleType("msvcrt")
    vars(locking).update(LK_LOCK=0, LK_NBLCK=fcntl.LOCK_NB)
    vars(locking).update(locking=lambda file, mode, _: fcntl.flock(file, fcntl.LOCK_EX | mode))
    keep_library(os)
    keep_library(signal)
    sys.modules |= {"msvcrt": locking, **dict.fromkeys(UNIX_MODULES)}
    for name in UNIX_FUNCTIONS:
        delattr(os, name)
    for name in UNIX_SIGNALS:
        delattr(signal, name)
    setattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)  # noqa: B010
    os.kill = lambda pid, number: kill(pid, kill_signal)
    os.name, sys.platform = "nt", "win32"
    loop = asyncio.SelectorEventLoop
    loop.add_signal_handler = asyncio.AbstractEventLoop.add_signal_handler
    loop.remove_signal_handler = asyncio.AbstractEventLoop.remove_signal_handler


if ELSEWHERE:
    hide_proc()
if ELSEWHERE == "windows":
    pretend_windows()
