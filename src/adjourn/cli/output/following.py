"""Following a run: its events as they come, for a person or as lines of JSON."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from msgspec.structs import replace

from adjourn._documents import plain
from adjourn._screen import Card, Screen
from adjourn.errors import AdjournError
from adjourn.events import (
    CheckpointSaved,
    Delta,
    Done,
    Event,
    Failed,
    Interrupt,
    Interrupted,
    MessageEvent,
    NodeEnd,
    NodeStart,
    to_json,
)
from adjourn.printing import described, end_line, print_event
from adjourn.runner import Run, RunResult

if TYPE_CHECKING:
    from adjourn.client import RemoteResult, RemoteRun


class Ending(NamedTuple):
    """How a run ended."""

    status: Literal["done", "interrupted", "cancelled", "failed"]
    interrupts: tuple[Interrupt, ...] = ()


class Follower:
    """Shows runs. For a person, engine details are left out unless every event is wanted."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._as_json: bool = options.json
        self._verbose: bool = options.verbose
        self._said = ""

    async def follow(self, run: Run | RemoteRun) -> Ending:
        """Show a run to its end.

        Raises:
            AdjournError: it was refused before it began.
        """
        self._said, failed = "", False
        try:
            async for event in run:
                failed = failed or isinstance(event, Failed)
                self._show(event)
            result = await run
        except asyncio.CancelledError:
            # Ctrl-C: the run is stopped for good before anything else is asked of the session. Others' go on.
            if not run.is_attached:
                await run.cancel()
            end_line()  # When the turn goes on, the answer begins anew.
            raise
        except Exception as error:  # protects the person: what their program raised was shown as its last event
            if not failed and isinstance(error, AdjournError):
                raise
            return self._failed(error, told=failed)
        if not self._as_json:
            self._show_result(result)
        return Ending(result.status, result.interrupts)

    def _failed(self, error: Exception, *, told: bool) -> Ending:
        if os.environ.get("ADJOURN_DEBUG"):
            raise error
        if not told:
            self._show(Failed(error=type(error).__name__, message=str(error)))
        return Ending("failed")

    def _show(self, event: Event) -> None:
        if self._as_json:
            sys.stdout.write(to_json(event).decode() + "\n")
            sys.stdout.flush()
            return
        if isinstance(event, MessageEvent) and event.message.role == "assistant":
            self._said = event.message.text
        if self._verbose:
            print_event(event)
        else:
            print_talk(event)

    def _show_result(self, result: RunResult | RemoteResult) -> None:
        if result.status != "done" or (self._said and result.output in ("", self._said)):
            return
        value = result.value if isinstance(result, RunResult) else None
        shown = result.output or _described(plain(result.state if value is None else value))
        Screen(sys.stdout).show(Card("✔", "green", "done", (("", shown),) if shown else ()))


def print_talk(event: Event) -> None:
    """Print an event of a conversation, without engine details and what is shown anyway."""
    match event:
        case CheckpointSaved() | NodeStart() | Interrupted() | Done():
            return  # Questions and results are shown by themselves.
        case NodeEnd(error=str()):
            return  # The failure of the run follows.
        case MessageEvent(message=message):
            # Other messages were typed by the person or returned by a tool; a tool call is shown when it runs.
            if message.role == "assistant" and message.text:
                print_event(replace(event, message=replace(message, tool_calls=())))
            else:
                end_line()  # It may have been streamed that the model calls a tool.
        case Delta(call_id=str()):
            return  # The tool's result includes it.
        case _:
            print_event(event)


def _described(value: Any) -> str:
    """Return a result for people; of a state, the fields that are not empty."""
    if isinstance(value, dict):
        value = {name: each for name, each in cast("dict[str, Any]", value).items() if each not in (None, "", [], {})}
    return described(value) if value not in (None, {}) else ""
