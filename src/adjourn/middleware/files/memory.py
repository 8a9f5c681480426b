"""Files stored with a session."""

# A method is documented where its protocol declares it.
# ruff: noqa: D102

from __future__ import annotations

from collections.abc import Sequence

from adjourn.context import current

from .backend import check_size, checked_folder, checked_path, missing

MAX_SIZE = 1_000_000


class MemoryBackend:
    """Files stored as session values, one value per file, named `files:<path>`.

    They are stored with the session: they survive pauses and processes, go back in time and fork with it, and are not
    visible to other sessions. What a call writes takes effect with its result; calls that run at once do not see each
    other's writes. The object itself is stateless.
    """

    def __init__(self, *, key: str = "files", max_size: int = MAX_SIZE) -> None:
        self._prefix = f"{key}:"
        self._max_size = max_size

    async def read(self, path: str) -> str:
        path = checked_path(path)
        try:
            return current().values[self._prefix + path]
        except KeyError:
            raise missing(path) from None

    async def write(self, path: str, text: str) -> None:
        path = checked_path(path)
        check_size(path, len(text.encode()), self._max_size)
        current().values[self._prefix + path] = text

    async def delete(self, path: str) -> None:
        path = checked_path(path)
        try:
            del current().values[self._prefix + path]
        except KeyError:
            raise missing(path) from None

    async def list(self, under: str = "") -> Sequence[str]:
        folder = checked_folder(under)
        begin = self._prefix + (f"{folder}/" if folder else "")
        return sorted(key.removeprefix(self._prefix) for key in current().values if key.startswith(begin))
