"""Project instructions: a file such as AGENTS.md, which says how to work here, is added to an agent's instruction."""

# An override is documented where it is declared.
# ruff: noqa: D102

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from adjourn._engine.concurrency import in_thread
from adjourn._habits import checks_options
from adjourn.errors import UsageError

from .files.backends import FileError, FolderBackend
from .hooks import Middleware, Setup, noted

FILE = "AGENTS.md"
MAX_SIZE = 100_000


class ProjectInstructions(Middleware):
    """Adds the text of files to an agent's instruction: give files, or folders with an `AGENTS.md`, in their order.

    They are read whenever an agent starts, so that a change counts for the next turn. A file must exist, hold UTF-8
    text, and have at most `max_size` bytes.
    """

    @checks_options
    def __init__(self, *paths: str | os.PathLike[str], max_size: int = MAX_SIZE) -> None:
        given = [Path(path) for path in paths or (".",)]
        self._files = [path / FILE if path.is_dir() else path for path in given]
        self._max_size = max_size
        for path in self._files:
            self._read(path)

    async def before_agent(self, setup: Setup) -> Setup:
        texts = [await in_thread(partial(self._read, path)) for path in self._files]
        notes = [f"<{path.name}>\n{text}\n</{path.name}>" for path, text in zip(self._files, texts, strict=True)]
        return noted(setup, "\n\n".join(notes))

    def _read(self, path: Path) -> str:
        try:
            return FolderBackend(path.parent, max_size=self._max_size).read_now(path.name).strip()
        except (FileError, UsageError) as error:
            raise UsageError(f"ProjectInstructions: '{path}' cannot be read. {error}") from error
