"""Logging: what an agent does, in the program's log."""

# An override is documented where it is declared.
# ruff: noqa: D102

from __future__ import annotations

import logging
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from adjourn._habits import checks_options
from adjourn._hiding import known
from adjourn._hiding import logger as own_logger
from adjourn._text import counted, visible_line
from adjourn.context import current
from adjourn.errors import Pause, text_of
from adjourn.messages import Message
from adjourn.models import ModelRequest

from .hooks import AgentEnd, Middleware, ModelCall, ToolCallable, ToolRequest


class LogCalls(Middleware):
    """Logs each model call and tool call with its session, address and time, and how the agent ended.

    With `content` it also logs the content, truncated to `longest` characters; consider who can read the log. A call
    that waits for a person is logged as paused, and again when it continues; its time is short then, since finished
    work is not repeated. Failures are logged as warnings, everything else at `level`.
    """

    @checks_options
    def __init__(
        self,
        logger: logging.Logger | None = None,
        *,
        level: int = logging.INFO,
        content: bool = False,
        longest: int = 500,
    ) -> None:
        self._log = logger or own_logger("adjourn.calls")
        self._level = level
        self._content = content
        self._longest = longest

    async def wrap_model(self, call: ModelCall, request: ModelRequest) -> Message:
        with self._timed("model call") as about:
            message = await call(request)
            usage = message.usage
            about.append(
                f"{counted(len(request.messages), 'message')} in, {counted(len(message.tool_calls), 'tool call')} out"
            )
            if usage is not None:
                about.append(f"{usage.input_tokens} + {usage.output_tokens} tokens")
            self._quote(about, message.text)
        return message

    async def wrap_tool(self, call: ToolCallable, request: ToolRequest) -> Any:
        with self._timed(f"tool {request.tool} ({request.call_id})") as about:
            self._quote(about, request.arguments)
            result = await call(request)
            self._quote(about, result)
        return result

    def after_agent(self, end: AgentEnd) -> None:
        about = [f"agent {end.agent} ended ({end.action or 'answered'})"]
        self._quote(about, end.output)
        self._write(self._level, visible_line(current().session_id), ", ".join(about))

    def _quote(self, about: list[str], content: object) -> None:
        if self._content:
            about.append(known.hide(repr(content))[: self._longest])

    @contextmanager
    def _timed(self, what: str) -> Generator[list[str]]:
        ctx, since, about, how, level = current(), time.perf_counter(), list[str](), "ended", self._level
        try:
            yield about
        except Pause:
            how = "paused"
            raise
        except Exception as error:
            how, level = f"failed with {type(error).__name__}: {text_of(error)}", logging.WARNING
            raise
        finally:
            spent = time.perf_counter() - since
            text = ", ".join([f"{what} {how} after {spent:.3f} s", *about])
            self._write(level, f"{visible_line(ctx.session_id)} {visible_line(str(ctx.address))}", text)

    def _write(self, level: int, where: str, text: str) -> None:
        # Hidden here, too: a logger of the program's own does not do it.
        self._log.log(level, "%s: %s", where, visible_line(known.hide(text)))
