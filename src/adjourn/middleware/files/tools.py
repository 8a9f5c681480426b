"""File tools: an agent lists, reads, writes, edits, searches and deletes files."""

# An override is documented where it is declared.
# ruff: noqa: D102

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from io import StringIO
from itertools import islice
from typing import Any

from msgspec.structs import replace

from adjourn._checks import is_count, is_positive
from adjourn._engine.concurrency import in_thread
from adjourn._habits import checks_options
from adjourn._text import counted
from adjourn.context import RunContext, own_values
from adjourn.errors import UsageError
from adjourn.messages import ToolCall
from adjourn.middleware._refusals import asked_unless
from adjourn.middleware.hooks import Middleware, ModelState, Setup, ToolCallable, ToolRequest
from adjourn.tools import Tool, tool

from .backends import MAX_SIZE, Backend, FileError, MemoryBackend, check_backend, check_size, checked_path

READ = "read_file"
NAMES = ("list_files", READ, "search_files", "write_file", "edit_file", "delete_file")
LONGEST_READ = 20_000
MOST_LISTED = 1_000
MOST_HITS = 100
MOST_SEARCHED = 1_000
LONGEST_PATTERN = 256
SECONDS = 10.0
CLASHES = "file_clashes"
"""The session value with the ids of calls that would undo another call of the same answer."""


class FileTools(Middleware):
    """Gives an agent files: `list_files`, `read_file`, `search_files`, `write_file`, `edit_file`, `delete_file`.

    Files are in `backend`, by default stored with the session. `read_only` leaves out the tools that change files;
    `approval` makes a person approve them, as for any tool. `names` gives single tools other names, or leaves them out:
    `{"read_file": "view", "delete_file": None}`. Calls of one answer run at once, so if several change the
    same file, only the first one runs, and the model is asked to repeat the others.

    No file gets larger than `max_size` bytes, even if the backend would take it, and listing and searching end after
    `seconds`. Texts are compared in threads, so that a large file holds up nobody else.
    """

    brings_tools = True

    @checks_options
    def __init__(
        self,
        backend: Backend | None = None,
        *,
        read_only: bool = False,
        approval: bool | Callable[..., Any] = False,
        names: Mapping[str, str | None] | None = None,
        max_size: int = MAX_SIZE,
        seconds: float = SECONDS,
    ) -> None:
        if not is_count(max_size) or not is_positive(seconds):
            raise UsageError(f"FileTools(max_size={max_size!r}, seconds={seconds!r}): give numbers above 0.")
        self._max_size = max_size
        self._seconds = seconds
        self._files = MemoryBackend() if backend is None else backend
        check_backend(self._files, "FileTools")
        named = _named(names or {})
        reading = _made(named, (self.list_files, self.read_file, self.search_files))
        writing = _made(named, (self.write_file, self.edit_file, self.delete_file), approval=approval)
        writing = [asked_unless(_clashes_now, each) for each in writing]
        self._tools: tuple[Tool, ...] = tuple(reading if read_only else [*reading, *writing])
        self._writing = frozenset(each.name for each in writing)

    def before_agent(self, setup: Setup) -> Setup:
        return replace(setup, tools=(*setup.tools, *self._tools))

    def after_model(self, state: ModelState, ctx: RunContext) -> ModelState:
        clashes = self._clashes(state.messages[-1].tool_calls)
        if clashes or own_values().get(CLASHES):
            own_values()[CLASHES] = clashes
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
        paths = await self._paths(pattern, time.monotonic() + self._seconds)
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
        deadline = time.monotonic() + self._seconds
        paths = await self._paths(pattern, deadline)
        hits, unread = list[str](), max(0, len(paths) - MOST_SEARCHED)
        for number, path in enumerate(paths[:MOST_SEARCHED]):
            if time.monotonic() > deadline:
                unread = len(paths) - number
                break
            try:
                read = await self._files.read(path)
            except FileError:
                unread += 1
                continue
            hits += await in_thread(partial(_hits, path, read, text.casefold(), MOST_HITS + 1 - len(hits), deadline))
            if len(hits) > MOST_HITS:
                hits = [*hits[:MOST_HITS], "[There is more. Give a longer text or a narrower pattern.]"]
                break
        return "\n".join([*hits, *([f"[{unread} files were not searched.]"] if unread else [])]) or "Nothing was found."

    async def _paths(self, pattern: str, deadline: float) -> list[str]:
        """Return the paths that fit a pattern."""
        if len(pattern) > LONGEST_PATTERN:
            raise FileError(f"The pattern has {len(pattern)} characters. Give at most {LONGEST_PATTERN}.")
        return await in_thread(partial(_fitting, await self._files.list(), pattern, deadline))

    async def write_file(self, path: str, text: str) -> str:
        """Create a text file, or replace all of its text.

        Args:
            path: Which file, such as notes/today.md.
            text: The complete new text.
        """
        check_size(path, len(text.encode()), self._max_size)
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
        edited, count = await in_thread(partial(_edited, path, text, old, new, everywhere, self._max_size))
        await self._files.write(path, edited)
        return f"Replaced in {counted(count, 'place')}."

    async def delete_file(self, path: str) -> str:
        """Delete a file.

        Args:
            path: Which file, such as notes/today.md.
        """
        await self._files.delete(path)
        return f"'{path}' is deleted."


def reading_tools(tools: Iterable[Tool]) -> list[str] | None:
    """Return what the tool that reads a file is called among these; None if there are no `FileTools` among them."""
    of_files = [each for each in tools if isinstance(getattr(each.fn, "__self__", None), FileTools)]
    return [each.name for each in of_files if each.fn.__name__ == READ] if of_files else None


def _named(names: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return the name of each tool; None for one that is left out."""
    if unknown := [name for name in names if name not in NAMES]:
        raise UsageError(f"FileTools(names=...): there is no tool {unknown[0]!r}. There are: {', '.join(NAMES)}.")
    if empty := [name for name, given in names.items() if given == ""]:
        raise UsageError(f"FileTools(names=...): {empty[0]!r} has an empty name. Give a name, or None to leave it out.")
    return {name: name for name in NAMES} | dict(names)


def _made(
    named: Mapping[str, str | None],
    functions: Sequence[Callable[..., Any]],
    approval: bool | Callable[..., Any] = False,
) -> list[Tool]:
    names = [named[function.__name__] for function in functions]
    pairs = zip(functions, names, strict=True)
    return [tool(function, name=name, approval=approval) for function, name in pairs if name is not None]


def _clashes_now(call_id: str) -> bool:
    return call_id in own_values().get(CLASHES, ())


def _same(path: str) -> str:
    """Return the normal form of a path; an invalid path is unchanged, since the call itself reports it."""
    try:
        return checked_path(path)
    except FileError:
        return path


def _edited(path: str, text: str, old: str, new: str, everywhere: bool, max_size: int) -> tuple[str, int]:
    """Return a text with `new` in place of `old`, and in how many places.

    Raises:
        FileError: the old text is not there, or not unique, or the new one would be too large.
    """
    count = text.count(old) if old else 0
    if count == 0:
        raise FileError(f"'{path}' does not contain the old text. Read it, and give its exact text.")
    if count > 1 and not everywhere:
        raise FileError(f"'{path}' contains the old text {count} times. Give more of it, or everywhere=true.")
    # Before it is built: two short texts, multiplied, can be more than there is memory.
    check_size(path, len(text.encode()) + count * (len(new.encode()) - len(old.encode())), max_size)
    return text.replace(old, new), count


# What models look for never becomes a regular expression of their choice, since Python cannot interrupt one that
# takes forever: a text is searched for literally, and a pattern of paths has only `*`, `?` and `[...]`, which
# `fnmatch` turns into an expression that never goes back. It takes at most the length of the path times that of the
# pattern, and the time is checked after each path.


def _fitting(paths: Sequence[str], pattern: str, deadline: float) -> list[str]:
    """Return the paths that fit a pattern.

    Raises:
        FileError: that takes too long.
    """
    found = list[str]()
    for path in paths:
        if time.monotonic() > deadline:
            raise FileError("There are too many files to compare them with this pattern. Give a shorter pattern.")
        if fnmatchcase(path, pattern):
            found.append(path)
    return found


def _hits(path: str, text: str, wanted: str, most: int, deadline: float) -> list[str]:
    """Return the first lines of a text that contain the wanted one, until there are enough or the time is up."""
    return list(islice(_lines_with(path, text, wanted, deadline), most))


def _lines_with(path: str, text: str, wanted: str, deadline: float) -> Iterator[str]:
    for number, line in enumerate(StringIO(text), start=1):  # not splitlines(): that makes a list of all of them
        if wanted in line.casefold():
            start = line[:200].rstrip("\r\n")
            yield f"{path}:{number}: {start}"
        if not number % 10_000 and time.monotonic() > deadline:
            yield f"[The rest of '{path}' was not searched: it took too long.]"
            return
