"""Files in a folder, which no path leads out of."""

# A method is documented where its protocol declares it.
# ruff: noqa: D102

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from adjourn._engine.concurrency import in_thread
from adjourn.errors import UsageError

from .backend import FileError, check_size, checked_folder, checked_path, missing

MAX_SIZE = 10_000_000
MAX_FILES = 10_000
_HALF_WRITTEN = ".adjourn-"
# Where the system has them: a link that was put there since the path was resolved is not followed, and a pipe with
# nobody at its other end does not hold up the thread.
_CAREFULLY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


class FolderBackend:
    """Text files (UTF-8) below `root`, a folder that is there already.

    Links are followed as long as they stay inside. What a program beside this one does in the folder at the same
    moment is not guarded against. A write replaces the whole file or leaves it as it was. It is not undone when the
    session goes back in time.
    """

    def __init__(self, root: str | os.PathLike[str], *, max_size: int = MAX_SIZE) -> None:
        self.root = Path(root).resolve()
        self._max_size = max_size
        if not self.root.is_dir():
            raise UsageError(f"FolderBackend({str(root)!r}): there is no such folder. Make it first.")

    async def read(self, path: str) -> str:
        return await in_thread(partial(self.read_now, path))

    async def write(self, path: str, text: str) -> None:
        await in_thread(partial(self._write, checked_path(path), text))

    async def delete(self, path: str) -> None:
        await in_thread(partial(self._delete, checked_path(path)))

    async def list(self, under: str = "") -> Sequence[str]:
        return await in_thread(partial(self._list, checked_folder(under)))

    def _place(self, path: str) -> Path:
        """Where a file really is."""
        try:
            place = (self.root / path).resolve()
        except RuntimeError as error:  # what some versions of Python call a circle of links
            raise FileError(f"'{path}' is a link that leads in a circle.") from error
        if not place.is_relative_to(self.root):
            raise FileError(f"'{path}' is a link that leads out of the files' root. Give a file inside it.")
        return place

    def read_now(self, path: str) -> str:
        """`read`, for code that is not async."""
        path = checked_path(path)
        with _told(path):
            handle = os.open(self._place(path), os.O_RDONLY | _CAREFULLY)
            with os.fdopen(handle, "rb") as file:
                about = os.fstat(handle)
                if not stat.S_ISREG(about.st_mode):
                    raise FileError(f"'{path}' is no file that can be read.")
                check_size(path, about.st_size, self._max_size)
                return file.read(self._max_size).decode()

    def _write(self, path: str, text: str) -> None:
        with _told(path):
            data = text.encode()
            check_size(path, len(data), self._max_size)
            place = self._place(path)
            if place.exists() and not place.is_file():
                raise FileError(f"'{path}' is no file that can be written.")
            place.parent.mkdir(parents=True, exist_ok=True)
            _replace(place, data)

    def _delete(self, path: str) -> None:
        with _told(path):
            self._place(path)
            # A link goes itself, and not what it leads to.
            (self.root / path).unlink()

    def _list(self, under: str) -> list[str]:
        with _told(under):
            top = self._place(under) if under else self.root
            found = list[str]()
            for path in self._walk(top):
                found.append(path)
                if len(found) > MAX_FILES:
                    raise FileError(f"There are more than {MAX_FILES} files. List a folder inside it.")
            return sorted(found)

    def _walk(self, top: Path) -> Iterator[str]:
        for folder, _, names in os.walk(top):
            for name in names:
                path = (Path(folder) / name).relative_to(self.root).as_posix()
                with suppress(FileError):  # A link that leads out is no file of ours.
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
def _told(path: str) -> Generator[None]:
    """Tell what the system says without telling where the root is."""
    try:
        yield
    except FileNotFoundError:
        raise missing(path) from None
    except UnicodeError:
        raise FileError(f"'{path}' holds something that is no UTF-8 text.") from None
    except OSError as error:
        raise FileError(f"'{path}': {error.strerror or type(error).__name__}.") from error
