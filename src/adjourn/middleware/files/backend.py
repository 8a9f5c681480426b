"""Backends: where an agent's files are stored, behind four methods."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from adjourn._text import a_type
from adjourn._values.frozen import shorten
from adjourn.errors import ToolError, UsageError

MAX_PATH = 1024
MAX_NAME = 255
_UNUSABLE = re.compile(r"[\x00-\x1f\x7f\\:\ud800-\udfff]")


class FileError(ToolError):
    """A file cannot be read or changed; the model that tried gets the reason."""

    retryable = False


@runtime_checkable
class Backend(Protocol):
    """Text files by path. Paths are relative, with `/` between names: pass each through `checked_path` first.

    It may be called from any number of runs at once. An operation that fails raises `FileError` and changes nothing.
    """

    async def read(self, path: str) -> str:
        """Return the text of a file."""
        ...

    async def write(self, path: str, text: str) -> None:
        """Create a file, or replace all of its text."""
        ...

    async def delete(self, path: str) -> None:
        """Delete a file."""
        ...

    async def list(self, under: str = "") -> Sequence[str]:
        """Return the sorted paths of all files in a folder and below it; a missing folder has none."""
        ...


def checked_path(path: str) -> str:
    """Return the path in its normal form: `./a//b` becomes `a/b`.

    Raises:
        FileError: it leads out of the root, or is not a valid path on every system.
    """
    if len(path) > MAX_PATH:
        raise FileError(f"The path {shorten(path)} has {len(path)} characters. Give at most {MAX_PATH}.")
    if found := _UNUSABLE.search(path):
        raise FileError(f"The path {path!r} contains {found.group()!r}, which is not allowed. Use another name.")
    names = [name for name in path.split("/") if name not in ("", ".")]
    if path.startswith(("/", "~")) or ".." in names:
        raise FileError(
            f"The path {path!r} leads out of the files' root. Give one inside it, such as 'notes/today.md'."
        )
    if not names:
        raise FileError(f"The path {path!r} names no file. Give one such as 'notes/today.md'.")
    for name in names:
        if len(name.encode()) > MAX_NAME:
            raise FileError(f"The name {shorten(name)} is longer than {MAX_NAME} bytes. Give a shorter one.")
    return "/".join(names)


def checked_folder(under: str) -> str:
    """Return the path of a folder in its normal form; the root is empty.

    Raises:
        FileError: as for `checked_path`.
    """
    return "" if under in ("", ".", "./", "/") else checked_path(under)


def check_size(path: str, size: int, limit: int) -> None:
    """Raise `FileError` if a text is too large to store."""
    if size > limit:
        raise FileError(f"'{path}' would have {size} bytes, and {limit} is the most. Split it into several files.")


def check_backend(backend: object, owner: str) -> None:
    """Raise `UsageError` if an object is not a backend."""
    if not isinstance(backend, Backend):
        raise UsageError(
            f"{owner} was given {a_type(backend)} as its backend. Give MemoryBackend(), FolderBackend('...'), or an "
            "object with read, write, delete and list."
        )


def missing(path: str) -> FileError:
    """Return the error for a file that does not exist."""
    return FileError(f"There is no file '{path}'.")
