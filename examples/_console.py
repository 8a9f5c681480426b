"""What the examples share: the command line, the questions at the keyboard, and what is printed.

Without a terminal and without `--answers`, an example stops at its first question and says how to go on. Its session
waits in the store for as long as it takes; any process can take it up again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shlex
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

from adjourn import (
    AdjournError,
    Agent,
    ChatModel,
    Interrupt,
    InvalidAnswer,
    Run,
    Runner,
    RunResult,
    ToolCall,
    print_event,
)
from adjourn.events import CheckpointSaved
from adjourn.graph import CompiledGraph
from adjourn.models import ModelRequest
from adjourn.testing import FunctionModel

Read = Callable[[str, Interrupt], Any]  # Any: whatever answers the question
"""Makes an answer of what a person has typed."""

Afterwards = Callable[[Runner, str], Awaitable[Run | None]]
"""Starts what follows when a session has come to an end: another run, or nothing."""

Said = str | ToolCall | list[ToolCall]
Line = Said | Callable[[str], Said]


def model(offline: ChatModel) -> str | ChatModel:
    """The model that `ADJOURN_MODEL` names (such as `openai:gpt-5`), or one that needs neither a key nor a network."""
    return os.environ.get("ADJOURN_MODEL") or offline


def script(*lines: Line) -> FunctionModel:
    """Stands in for a model: says one line after the other, of which some are made from the message before.

    How many it has said, it reads in the conversation. So it knows where it is in whatever process it is asked.
    """

    def say(request: ModelRequest) -> Said:
        said = sum(message.role == "assistant" for message in request.messages)
        line = lines[min(said, len(lines) - 1)]
        return line(request.messages[-1].text) if callable(line) else line

    return FunctionModel(say)


def as_typed(typed: str, _: Interrupt) -> str:
    """The answer is the text itself."""
    return typed


def main(
    agent: Agent | CompiledGraph, message: str, read: Read = as_typed, afterwards: Afterwards | None = None
) -> None:
    """Run an example: send it the message, and answer what it asks until it is done, and what follows is done, too."""
    program = Path(sys.argv[0])
    parser = argparse.ArgumentParser(description=f"Runs '{agent.name}'.")
    parser.add_argument("message", nargs="?", default=message, help="what to tell it (default: %(default)r)")
    parser.add_argument("--store", default=f"sqlite:///{program.stem}.db", metavar="URL", help="default: %(default)s")
    parser.add_argument("--session", default=uuid4().hex[:8], metavar="ID", help="default: a new one")
    parser.add_argument("--resume", action="store_true", help="go on with a session, of this or of another process")
    parser.add_argument("--answers", metavar="JSON", help="a list: one answer for each question, in their order")
    options = parser.parse_args()
    answers = None if options.answers is None else cast("list[Any]", json.loads(options.answers))
    console = Console(Runner(agent, store=options.store), options.session, read, answers)
    console.afterwards = afterwards
    console.command = ["python", str(program), "--store", options.store, "--session", options.session, "--resume"]
    try:
        asyncio.run(console.converse(None if options.resume else options.message))
    except AdjournError as error:
        sys.exit(f"{type(error).__name__}: {error}")


class Console:
    """A person at a terminal, or a list of answers in their place, in one session of an agent."""

    def __init__(self, runner: Runner, session: str, read: Read, answers: Sequence[Any] | None) -> None:
        self.runner = runner
        self.session = session
        self.command: list[str] = []
        self.afterwards: Afterwards | None = None
        self._read = read
        self._answers = None if answers is None else list(answers)
        self._path: tuple[str, ...] = ()

    async def converse(self, message: str | None) -> None:
        """Go from the message, or from where the session stands, to the end of the turn or to an open question."""
        print(f"Session {self.session}")
        if message is None:
            # Goes on where a crash has cut the session off. If it waits, or has ended, nothing runs.
            result = await self._follow(self.runner.recover(self.session))
            if result.status == "done":
                print(f"The session has ended: {result.output}")
        else:
            print(f"You say: {message}")
            result = await self._follow(self.runner.run(message, session_id=self.session))
        result = await self._answer(result)
        while result.status == "done" and self.afterwards is not None:
            following = await self.afterwards(self.runner, self.session)
            if following is None:
                return
            result = await self._answer(await self._follow(following))

    async def _answer(self, result: RunResult) -> RunResult:
        """Answer what is asked, to the end or to a question that nobody answers now."""
        while result.status == "interrupted":
            answers = self._answered(result.interrupts)
            if not answers:
                self._tell_how_to_go_on(result.interrupts)
                break
            try:
                result = await self._follow(self.runner.resume(self.session, answers))
            except InvalidAnswer as refused:
                if self._answers is not None:
                    raise
                print(refused)
        return result

    async def _follow(self, run: Run) -> RunResult:
        """Print what happens, and return what it comes to."""
        async for event in run:
            if event.path and event.path != self._path:
                self._path = event.path
                print(f"[{' › '.join(event.path)}]")
            if not isinstance(event, CheckpointSaved):
                print_event(event)
        return await run

    def _answered(self, asked: Sequence[Interrupt]) -> dict[str, Any]:
        """The answers by the questions' ids; those that nobody answers now stay open."""
        answers: dict[str, Any] = {}
        for question in asked:
            given = self._next(question)
            if given is None or given == "":
                continue
            print(f"You answer {question.id}: {given}")
            answers[question.id] = self._meant(given, question)
        return answers

    def _meant(self, given: Any, question: Interrupt) -> Any:
        """An answer as it was given in a list or typed as JSON, else what the example makes of the text."""
        if not isinstance(given, str):
            return given
        try:
            return json.loads(given) if given.startswith("{") else self._read(given, question)
        except json.JSONDecodeError:
            return self._read(given, question)

    def _next(self, question: Interrupt) -> Any:
        if self._answers is not None:
            return self._answers.pop(0) if self._answers else None
        if not sys.stdin.isatty():
            return None
        try:
            return input(f"{question.prompt or question.info}\n(Enter leaves it open) > ")
        except (EOFError, KeyboardInterrupt):
            print()
            return None  # Whoever leaves, leaves it open.

    def _tell_how_to_go_on(self, asked: Sequence[Interrupt]) -> None:
        print("The session waits for answers to:", *(f"  {question.id}" for question in asked), sep="\n")
        print("Go on at any time, from any process:")
        print(f"  {shlex.join(self.command)} --answers '[...]'")
