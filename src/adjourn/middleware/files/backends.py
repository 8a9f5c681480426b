"""Backends: where the files of an agent are. In the memory of a session, or in a folder."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Protocol, runtime_checkable

from adjourn._engine.concurrency import in_thread
from adjourn._text import a_type
from adjourn._values.frozen import shorten
from adjourn.context import own_values
from adjourn.errors import ToolError, UsageError

MAX_PATH = 1024
MAX_NAME = 255
MAX_DEPTH = 32
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
    if len(names) > MAX_DEPTH:
        raise FileError(f"The path {shorten(path)} has {len(names)} levels. Give at most {MAX_DEPTH}.")
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


# A method is documented where its protocol declares it.
# ruff: noqa: D102


MAX_MEMORY_SIZE = 1_000_000
MAX_FILES = 10_000


class MemoryBackend:
    """Files stored as session values, one value per file, named `~own:files:<path>`.

    Only a backend writes these values; in a tool or node, `await MemoryBackend().write(path, text)` does. They are
    stored with the session: they survive pauses and processes, go back in time and fork with it, and are not visible to
    other sessions. What a call writes takes effect with its result; calls that run at once do not see each
    other's writes. The object itself is stateless. A file has at most `max_size` bytes, and a session `max_files` of
    them.
    """

    def __init__(self, *, key: str = "files", max_size: int = MAX_MEMORY_SIZE, max_files: int = MAX_FILES) -> None:
        self._prefix = f"{key}:"
        self._max_size = max_size
        self._max_files = max_files

    async def read(self, path: str) -> str:
        path = checked_path(path)
        try:
            return own_values()[self._prefix + path]
        except KeyError:
            raise missing(path) from None

    async def write(self, path: str, text: str) -> None:
        path = checked_path(path)
        check_size(path, len(text.encode()), self._max_size)
        values, name = own_values(), self._prefix + path
        if name not in values and sum(key.startswith(self._prefix) for key in values) >= self._max_files:
            raise FileError(f"There are {self._max_files} files, which is the most. Delete some first.")
        values[name] = text

    async def delete(self, path: str) -> None:
        path = checked_path(path)
        try:
            del own_values()[self._prefix + path]
        except KeyError:
            raise missing(path) from None

    async def list(self, under: str = "") -> Sequence[str]:
        folder = checked_folder(under)
        begin = self._prefix + (f"{folder}/" if folder else "")
        return sorted(key.removeprefix(self._prefix) for key in own_values() if key.startswith(begin))


# A method is documented where its protocol declares it.
# ruff: noqa: D102


MAX_SIZE = 10_000_000
MAX_VISITED = 100_000
"""How many files and folders are looked at to list a folder."""
LIST_SECONDS = 10.0
_HALF_WRITTEN = ".adjourn-"
# Where the system supports them: a link created after the path was resolved is not followed, and a pipe without a
# writer does not block the thread.
_CAREFULLY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


class FolderBackend:
    """Text files (UTF-8) below `root`, a folder that must exist.

    Links are followed as long as they stay inside. There is no protection against other programs that change the
    folder at the same time. A write replaces the whole file or leaves it unchanged. It is not undone when the session
    goes back in time.
    """

    def __init__(self, root: str | os.PathLike[str], *, max_size: int = MAX_SIZE) -> None:
        self.root: Path = Path(root).resolve()
        self._max_size = max_size
        if not self.root.is_dir():
            raise UsageError(f"FolderBackend({str(root)!r}): there is no such folder. Create it first.")

    async def read(self, path: str) -> str:
        return await in_thread(partial(self.read_now, path))

    async def write(self, path: str, text: str) -> None:
        await in_thread(partial(self._write, checked_path(path), text))

    async def delete(self, path: str) -> None:
        await in_thread(partial(self._delete, checked_path(path)))

    async def list(self, under: str = "") -> Sequence[str]:
        return await in_thread(partial(self._list, checked_folder(under)))

    def _place(self, path: str) -> Path:
        """Return the real location of a file."""
        try:
            place = (self.root / path).resolve()
        except RuntimeError as error:  # some versions of Python raise it for a loop of links
            raise FileError(f"'{path}' is a link that leads back to itself.") from error
        if not place.is_relative_to(self.root):
            raise FileError(f"'{path}' is a link that leads out of the files' root. Give a file inside it.")
        return place

    def read_now(self, path: str) -> str:
        """Read a file from code that is not async."""
        path = checked_path(path)
        with _reported(path):
            handle = os.open(self._place(path), os.O_RDONLY | _CAREFULLY)
            with os.fdopen(handle, "rb") as file:
                about = os.fstat(handle)
                if not stat.S_ISREG(about.st_mode):
                    raise FileError(f"'{path}' is not a file that can be read.")
                check_size(path, about.st_size, self._max_size)
                return file.read(self._max_size).decode()

    def _write(self, path: str, text: str) -> None:
        with _reported(path):
            data = text.encode()
            check_size(path, len(data), self._max_size)
            place = self._place(path)
            if place.exists() and not place.is_file():
                raise FileError(f"'{path}' is not a file that can be written.")
            place.parent.mkdir(parents=True, exist_ok=True)
            _replace(place, data)

    def _delete(self, path: str) -> None:
        with _reported(path):
            self._place(path)
            # Deletes a link itself, not its target.
            (self.root / path).unlink()

    def _list(self, under: str) -> list[str]:
        with _reported(under):
            top = self._place(under) if under else self.root
            found = list[str]()
            for path in self._walk(top):
                found.append(path)
                if len(found) > MAX_FILES:
                    raise FileError(f"There are more than {MAX_FILES} files. List a folder inside it.")
            return sorted(found)

    def _walk(self, top: Path) -> Iterator[str]:
        visited, deadline = 0, time.monotonic() + LIST_SECONDS
        for folder, folders, names in os.walk(top):
            visited += len(folders) + len(names)
            if visited > MAX_VISITED or time.monotonic() > deadline:
                raise FileError("There are too many files and folders to list them. List a folder inside it.")
            if len(Path(folder).relative_to(self.root).parts) + 1 >= MAX_DEPTH:
                folders.clear()  # No path that is allowed leads to what is deeper.
            for name in names:
                path = (Path(folder) / name).relative_to(self.root).as_posix()
                with suppress(FileError):  # A link that leads out is not one of our files.
                    if not name.startswith(_HALF_WRITTEN) and self._place(path).is_file():
                        yield path


def _replace(place: Path, data: bytes) -> None:
    half = place.with_name(f"{_HALF_WRITTEN}{secrets.token_hex(8)}")
    try:
        with half.open("xb") as file:
            file.write(data)
        if place.exists():
            shutil.copymode(place, half)
        half.replace(place)
    finally:
        half.unlink(missing_ok=True)


@contextmanager
def _reported(path: str) -> Generator[None]:
    """Turn system errors into `FileError` without revealing where the root is."""
    try:
        yield
    except FileNotFoundError:
        raise missing(path) from None
    except UnicodeError:
        raise FileError(f"'{path}' is not UTF-8 text.") from None
    except OSError as error:
        raise FileError(f"'{path}': {error.strerror or type(error).__name__}.") from error
