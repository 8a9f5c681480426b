"""Programs that run in the process of the tests as if they had one of their own, which would take much longer."""

from __future__ import annotations

import importlib
import io
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest


def run_here(
    main: Callable[[], object], words: Sequence[str], folder: Path, environment: dict[str, str], input: str = ""
) -> tuple[int, str, str]:
    """Run a program with these words and pipes; return its exit code, and what it wrote to its output and errors."""
    with _process_of_its_own(folder, environment):
        sys.argv = [*words]
        sys.stdin = _pipe(input.encode())
        out = sys.stdout = _pipe()
        err = sys.stderr = _pipe(errors="backslashreplace")
        code = _exit_code(main)
        return code, _written(out), _written(err)


def _exit_code(main: Callable[[], object]) -> int:
    try:
        code = main()
    except SystemExit as ending:
        code = ending.code
    if isinstance(code, str):
        sys.stderr.write(f"{code}\n")
        return 1
    return code if isinstance(code, int) else 0


def _pipe(content: bytes = b"", *, errors: str = "strict") -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", errors=errors)


def _written(pipe: io.TextIOWrapper) -> str:
    pipe.seek(0)
    return pipe.read()


@contextmanager
def _process_of_its_own(folder: Path, environment: dict[str, str]) -> Generator[None]:
    """Let code find this folder, this environment and no program yet, and take back what it does to the process."""
    modules, threads = set(sys.modules), set(threading.enumerate())
    signals = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        _set_environment(patch, environment)
        patch.setattr(tempfile, "tempdir", None)  # Where it is comes from the environment, once.
        patch.setattr(sys, "path", [*sys.path])
        for name in ("argv", "stdin", "stdout", "stderr"):
            patch.setattr(sys, name, getattr(sys, name))
        # Another test may have had a program of the same name.
        programs = {each.stem for each in folder.glob("*.py")}
        for name in [name for name in sys.modules if name.partition(".")[0] in programs]:
            patch.delitem(sys.modules, name)
        # Programs that were written since the last command are not in what Python remembers of the folder.
        importlib.invalidate_caches()
        try:
            yield
        finally:
            for each, handler in signals.items():
                signal.signal(each, handler)
            for name in set(sys.modules) - modules:
                if Path(getattr(sys.modules[name], "__file__", None) or "/").is_relative_to(folder):
                    del sys.modules[name]
    left = [each for each in threading.enumerate() if each not in threads and not each.daemon]
    assert not left, left


def _set_environment(patch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    for name in os.environ.keys() - environment.keys():
        patch.delenv(name)
    for name, value in environment.items():
        if os.environ.get(name) != value:
            patch.setenv(name, value)
