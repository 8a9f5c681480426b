"""File tools: an agent lists, reads, writes, edits, searches and deletes files."""

# An override is documented where it is declared.
# ruff: noqa: D102

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any

from msgspec.structs import replace

from adjourn.context import RunContext, current
from adjourn.messages import ToolCall
from adjourn.middleware._refusals import asked_unless
from adjourn.middleware.hooks import Middleware, ModelState, Setup, ToolCallable, ToolRequest
from adjourn.tools import Tool, tool

from .backends import Backend, FileError, MemoryBackend, check_backend, checked_path

READ = "read_file"
LONGEST_READ = 20_000
MOST_LISTED = 1_000
MOST_HITS = 100
MOST_SEARCHED = 1_000
CLASHES = "file_clashes"
"""The session value with the ids of calls that would undo another call of the same answer."""


class FileTools(Middleware):
    """Gives an agent files: `list_files`, `read_file`, `search_files`, `write_file`, `edit_file`, `delete_file`.

    Files are in `backend`, by default stored with the session. `read_only` leaves out the tools that change files;
    `approval` makes a person approve them, as for any tool. Calls of one answer run at once, so if several change the
    same file, only the first one runs, and the model is asked to repeat the others.
    """

    brings_tools = True

    def __init__(
        self,
        backend: Backend | None = None,
        *,
        read_only: bool = False,
        approval: bool | Callable[..., Any] = False,
    ) -> None:
        self._files = MemoryBackend() if backend is None else backend
        check_backend(self._files, "FileTools")
        reading: list[Tool] = [tool(self.list_files), tool(self.read_file), tool(self.search_files)]
        writing: list[Tool] = [
            tool(self.write_file, approval=approval),
            tool(self.edit_file, approval=approval),
            tool(self.delete_file, approval=approval),
        ]
        writing = [asked_unless(_clashes_now, each) for each in writing]
        self._tools: tuple[Tool, ...] = tuple(reading if read_only else reading + writing)
        self._writing = frozenset(each.name for each in writing)

    def before_agent(self, setup: Setup) -> Setup:
        return replace(setup, tools=(*setup.tools, *self._tools))

    def after_model(self, state: ModelState, ctx: RunContext) -> ModelState:
        clashes = self._clashes(state.messages[-1].tool_calls)
        if clashes or ctx.values.get(CLASHES):
            ctx.values[CLASHES] = clashes
        return state

    def _clashes(self, calls: Iterable[ToolCall]) -> list[str]:
        changed, clashes = set[str](), list[str]()
        for call in calls:
            path = call.arguments.get("path") if call.name in self._writing else None
            if not isinstance(path, str):
                continue
            name = _same(path)
            if name in changed:
                clashes.append(call.id)
            changed.add(name)
        return clashes

    async def wrap_tool(self, call: ToolCallable, request: ToolRequest) -> Any:
        if request.tool in self._writing and _clashes_now(request.call_id):
            raise FileError("Another call of the same answer changes this file. Nothing was done: call again.")
        return await call(request)

    # The tools; models read these docstrings.

    async def list_files(self, pattern: str = "*") -> str:
        """List the files.

        Args:
            pattern: Which paths to list; `*` matches anything, including `/`.
        """
        paths = [path for path in await self._files.list() if fnmatchcase(path, pattern)]
        more = [f"[{len(paths) - MOST_LISTED} more. Give a narrower pattern.]"] if len(paths) > MOST_LISTED else []
        return "\n".join([*paths[:MOST_LISTED], *more]) or "There are no such files."

    async def read_file(self, path: str, start: int = 0, length: int = LONGEST_READ) -> str:
        """Read a text file, or a part of it.

        Args:
            path: Which file, such as notes/today.md.
            start: The first character, counted from 0.
            length: How many characters at most.
        """
        text = await self._files.read(path)
        start = max(0, start)
        end = start + max(1, min(length, LONGEST_READ))
        if start == 0 and len(text) <= end:
            return text or "[The file is empty.]"
        more = f" Continue with start={end}." if end < len(text) else ""
        return f"{text[start:end]}\n[Characters {start} to {min(end, len(text))} of {len(text)}.{more}]"

    async def search_files(self, text: str, pattern: str = "*") -> str:
        """Find the lines of files that contain a text, ignoring case.

        Args:
            text: The literal text to look for.
            pattern: Which paths to search; `*` matches anything, including `/`.
        """
        paths = [path for path in await self._files.list() if fnmatchcase(path, pattern)]
        hits, unread = list[str](), max(0, len(paths) - MOST_SEARCHED)
        for path in paths[:MOST_SEARCHED]:
            try:
                hits += _hits(path, await self._files.read(path), text.casefold())
            except FileError:
                unread += 1
            if len(hits) > MOST_HITS:
                hits = [*hits[:MOST_HITS], "[There is more. Give a longer text or a narrower pattern.]"]
                break
        return "\n".join([*hits, *([f"[{unread} files were not searched.]"] if unread else [])]) or "Nothing was found."

    async def write_file(self, path: str, text: str) -> str:
        """Create a text file, or replace all of its text.

        Args:
            path: Which file, such as notes/today.md.
            text: The complete new text.
        """
        await self._files.write(path, text)
        return f"'{path}' has {len(text)} characters now."

    async def edit_file(self, path: str, old: str, new: str, everywhere: bool = False) -> str:
        """Replace a piece of a text file.

        Args:
            path: Which file, such as notes/today.md.
            old: The piece, exactly as it is in the file, with enough context to be unique.
            new: The new text.
            everywhere: Replace every occurrence.
        """
        text = await self._files.read(path)
        count = text.count(old) if old else 0
        if count == 0:
            raise FileError(f"'{path}' does not contain the old text. Read it, and give its exact text.")
        if count > 1 and not everywhere:
            raise FileError(f"'{path}' contains the old text {count} times. Give more of it, or everywhere=true.")
        await self._files.write(path, text.replace(old, new))
        return f"Replaced in {count} {'place' if count == 1 else 'places'}."

    async def delete_file(self, path: str) -> str:
        """Delete a file.

        Args:
            path: Which file, such as notes/today.md.
        """
        await self._files.delete(path)
        return f"'{path}' is deleted."


def _clashes_now(call_id: str) -> bool:
    return call_id in current().values.get(CLASHES, ())


def _same(path: str) -> str:
    """Return the normal form of a path; an invalid path is unchanged, since the call itself reports it."""
    try:
        return checked_path(path)
    except FileError:
        return path


def _hits(path: str, text: str, wanted: str) -> Sequence[str]:
    lines = enumerate(text.splitlines(), start=1)
    return [f"{path}:{number}: {line[:200]}" for number, line in lines if wanted in line.casefold()]
