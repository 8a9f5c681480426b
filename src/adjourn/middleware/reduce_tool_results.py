"""Reducing tool results: long ones are truncated, old ones cleared, and the full text is kept in a backend."""

# An override is documented where it is declared.
# ruff: noqa: D102

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from adjourn._text import visible_line
from adjourn.context import RunContext
from adjourn.errors import UsageError, text_of
from adjourn.messages import Message

from ._sizes import CountTokens, about_tokens
from .files.backends import Backend, FileError, MemoryBackend, check_backend
from .files.tools import READ
from .hooks import Middleware, ModelState, ToolCallable, ToolRequest

FOLDER = "tool_results"
CLEARED = "[This result was cleared"
SHORT = 100
"""Results up to this many characters would not get shorter by being cleared."""
_log = logging.getLogger(__name__)


class ReduceToolResults(Middleware):
    """Truncates a tool's result to `max_chars` at once, and clears old results when the conversation grows.

    When an agent sees more than `clear_at` tokens, all results but the newest `keep` are replaced by a line, as soon as
    that saves a tenth of `clear_at`. The full text of what was truncated or cleared is in `backend`, by default stored
    with the session, under `tool_results/`; the line says where. Give the agent `FileTools` with the same backend, so
    that it can read it. `exclude` names tools that are left alone. A text that the backend rejects is left unchanged,
    with a warning in the log.
    """

    def __init__(
        self,
        backend: Backend | None = None,
        *,
        max_chars: int = 20_000,
        clear_at: int | None = 50_000,
        keep: int = 5,
        exclude: Sequence[str] = (READ,),
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
        self._exclude = frozenset(exclude)
        self._count = count_tokens

    async def wrap_tool(self, call: ToolCallable, request: ToolRequest) -> Any:
        result = await call(request)
        if not isinstance(result, str) or len(result) <= self._max_chars or request.tool in self._exclude:
            return result
        path = await self._stored(result, request.tool)
        if path is None:
            return result
        notice = f"[These are the first {self._max_chars} of {len(result)} characters. All of them: {READ} '{path}'.]"
        return f"{result[: self._max_chars]}\n{notice}"

    async def before_model(self, state: ModelState, ctx: RunContext) -> ModelState:
        if self._clear_at is None or self._count(state.messages) <= self._clear_at:
            return state
        messages = list(state.messages)
        places = [place for place, message in enumerate(messages) if message.role == "tool"]
        old = [place for place in places[: len(places) - self._keep] if self._can_be_cleared(messages[place])]
        # Many at once: each change invalidates the provider's cache of the conversation.
        if self._count([messages[place] for place in old]) * 10 < self._clear_at:
            return state
        for place in old:
            messages[place] = await self._cleared(messages[place])
        return ModelState(messages=tuple(messages))

    def _can_be_cleared(self, message: Message) -> bool:
        text = message.text
        return len(text) > SHORT and not text.startswith(CLEARED) and message.name not in self._exclude

    async def _cleared(self, message: Message) -> Message:
        text = message.text
        path = await self._stored(text, message.name or "a tool")
        if path is None:
            return message
        return replace(message, content=f"{CLEARED}: it is old. All of it: {READ} '{path}'.]")

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
