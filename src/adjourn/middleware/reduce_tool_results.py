"""Reducing tool results: long ones are truncated, old ones cleared, and the full text is kept in a backend."""

# An override is documented where it is declared.
# ruff: noqa: D102

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Sequence
from typing import Any, cast, get_args

from msgspec.structs import replace

from adjourn._habits import checks_options
from adjourn._hiding import logger
from adjourn._text import visible_line
from adjourn.context import RunContext
from adjourn.errors import UsageError, text_of
from adjourn.messages import Message, Part, ToolCall
from adjourn.tools import Tool, result_text

from ._sizes import CountTokens, about_tokens
from .files.backends import Backend, FileError, MemoryBackend, check_backend
from .files.tools import READ, reading_tools
from .hooks import Middleware, ModelState, ToolCallable, ToolRequest

FOLDER = "tool_results"
CLEARED = "[This result was cleared"
CLEARED_ARGUMENT = "[This argument was cleared"
SHORT = 100
"""Results up to this many characters would not get shorter by being cleared."""
_TRUNCATED = re.compile(
    rf"\n\[These are the first \d+ of \d+ characters\. All of them: \S+ '({FOLDER}/[0-9a-f]{{24}}\.txt)'\.\]\Z"
)
_log = logger(__name__)


class ReduceToolResults(Middleware):
    """Truncates a tool's result to `max_chars` at once, and clears old results when the conversation grows.

    When an agent sees more than `clear_at` tokens, all results but the newest `keep`, and the long texts among the
    arguments of their calls, are replaced by a line, as soon as that saves a tenth of `clear_at`. The full text of what
    was truncated or cleared is in `backend`, by default stored with the session, under `tool_results/`; the line says
    where. Give the agent `FileTools` with the same backend, so that it can read it; `read_tool` is the name of that
    tool. `exclude` names tools that are left alone, by default only that one. A text that the backend rejects is left
    unchanged, with a warning in the log.
    """

    @checks_options
    def __init__(
        self,
        backend: Backend | None = None,
        *,
        max_chars: int = 20_000,
        clear_at: int | None = 50_000,
        keep: int = 5,
        exclude: Sequence[str] | None = None,
        read_tool: str = READ,
        count_tokens: CountTokens = about_tokens,
    ) -> None:
        if max_chars < 1 or keep < 0 or (clear_at is not None and clear_at < 1):
            raise UsageError(
                f"ReduceToolResults(max_chars={max_chars}, clear_at={clear_at}, keep={keep}): give max_chars and "
                "clear_at above 0 (clear_at=None clears nothing), and keep of 0 or more."
            )
        self._files = MemoryBackend() if backend is None else backend
        check_backend(self._files, "ReduceToolResults")
        self._max_chars = max_chars
        self._clear_at = clear_at
        self._keep = keep
        self._exclude = frozenset((read_tool,) if exclude is None else exclude)
        self._read = read_tool
        self._count = count_tokens

    def check_tools(self, tools: Sequence[Tool]) -> None:
        found = reading_tools(tools)
        if found is None or any(tool.name == self._read for tool in tools):
            return
        advice = (
            f"Give read_tool='{found[0]}'" if found else f"Do not leave '{READ}' out of FileTools, or give read_tool"
        )
        raise UsageError(
            f"ReduceToolResults tells the model to read what it stored with '{self._read}', and there is no such tool. "
            f"{advice}."
        )

    async def wrap_tool(self, call: ToolCallable, request: ToolRequest) -> Any:
        result = await call(request)
        text = _text_of(result)
        if text is None or len(text) <= self._max_chars or request.tool in self._exclude:
            return result
        path = await self._stored(text, request.tool)
        if path is None:
            return result
        notice = (
            f"[These are the first {self._max_chars} of {len(text)} characters. All of them: {self._read} '{path}'.]"
        )
        return f"{text[: self._max_chars]}\n{notice}"

    async def before_model(self, state: ModelState, ctx: RunContext) -> ModelState:
        if self._clear_at is None or self._count(state.messages) <= self._clear_at:
            return state
        messages = list(state.messages)
        results = [place for place, message in enumerate(messages) if message.role == "tool"]
        done = {messages[place].tool_call_id for place in results[: max(0, len(results) - self._keep)]}
        old = [place for place, message in enumerate(messages) if self._can_be_cleared(message, done)]
        # Many at once: each change invalidates the provider's cache of the conversation.
        if self._count([messages[place] for place in old]) * 10 < self._clear_at:
            return state
        for place in old:
            message = messages[place]
            messages[place] = await (self._cleared(message) if message.role == "tool" else self._forgotten(message))
        return ModelState(messages=tuple(messages))

    def _can_be_cleared(self, message: Message, done: Collection[str | None]) -> bool:
        """Return whether a message is an old result, or makes calls whose results are all old, and is long."""
        if message.tool_calls:
            return all(call.id in done for call in message.tool_calls) and any(map(self._is_long, message.tool_calls))
        text = message.text
        is_old = message.tool_call_id in done and message.name not in self._exclude
        return is_old and len(text) > SHORT and not text.startswith(CLEARED)

    def _is_long(self, call: ToolCall) -> bool:
        return call.name not in self._exclude and any(map(_is_long_text, call.arguments.values()))

    async def _cleared(self, message: Message) -> Message:
        text = message.text
        path = await self._whole_of(text) or await self._stored(text, message.name or "a tool")
        if path is None:
            return message
        return replace(message, content=f"{CLEARED}: it is old. All of it: {self._read} '{path}'.]")

    async def _whole_of(self, text: str) -> str | None:
        """Return the path of the whole text if this is what was left of it when it was truncated."""
        found = _TRUNCATED.search(text)
        if found is None:
            return None
        try:
            whole = await self._files.read(found[1])
        except FileError:
            return None
        return found[1] if whole.startswith(text[: found.start()]) else None

    async def _forgotten(self, message: Message) -> Message:
        """Return a message without the long arguments of its calls."""
        calls = [await self._shortened(call) if self._is_long(call) else call for call in message.tool_calls]
        return replace(message, tool_calls=tuple(calls))

    async def _shortened(self, call: ToolCall) -> ToolCall:
        arguments = dict(call.arguments)
        for name, value in call.arguments.items():
            path = await self._stored(value, call.name) if _is_long_text(value) else None
            if path is not None:
                arguments[name] = f"{CLEARED_ARGUMENT}: it is old. All of it: {self._read} '{path}'.]"
        return replace(call, arguments=arguments)

    async def _stored(self, text: str, tool: str) -> str | None:
        """Store the text and return its path, or None if the backend rejects it."""
        # Named by its content: call ids may repeat, and a re-run must write the same file.
        path = f"{FOLDER}/{hashlib.sha256(text.encode()).hexdigest()[:24]}.txt"
        try:
            await self._files.write(path, text)
        except FileError as error:
            shown = visible_line(tool), len(text), visible_line(text_of(error))
            _log.warning("The result of '%s' (%d characters) stays whole: %s", *shown)
            return None
        return path


def _text_of(result: Any) -> str | None:
    """Return a result as the model would read it; None if it is parts of a message."""
    if isinstance(result, str):
        return result
    items = cast("list[object]", result) if isinstance(result, list) else []
    return None if any(isinstance(item, get_args(Part)) for item in items) else result_text(cast("object", result))


def _is_long_text(value: object) -> bool:
    return isinstance(value, str) and len(value) > SHORT and not value.startswith(CLEARED_ARGUMENT)
