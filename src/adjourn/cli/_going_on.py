"""Continues a session until it ends, or until it waits for somebody who is not at this terminal."""

from __future__ import annotations

import argparse
import asyncio
import uuid
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, cast

from adjourn._text import did_you_mean, visible_line
from adjourn.errors import (
    AlreadyResumed,
    CheckpointNotFound,
    InterruptExpired,
    InvalidAnswer,
    StaleCheckpoint,
    UsageError,
)
from adjourn.events import Interrupt
from adjourn.graph import CompiledGraph
from adjourn.runner import Run
from adjourn.stores import SessionRef
from adjourn.stores.kit import GetHead

from ._advice import advice
from ._programs import deps_of, named_in, runner_of, values_of
from ._server import client_of
from ._stores import command, server_url
from .ask.asking import LATER, answering, ask, hint, is_terminal, say
from .ask.parsing import parse_data
from .output.following import Ending, Follower
from .output.questions import print_each

if TYPE_CHECKING:
    from adjourn.client import AgentInfo, RemoteRun

IN_MEMORY = "The session was kept in memory only, and ends here. With --store URL it outlives this command."


class Session(ABC):
    """One session, driven from the command line.

    The event loop runs only while the program does: a person who is asked can be interrupted with Ctrl-C at any time.
    """

    name: str
    """What is talked to."""
    id: str
    is_kept: bool = True
    """Whether the session outlives this command."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.is_asked_here: bool = is_terminal() and not options.json
        self._options = options
        self._follower = Follower(options)
        self._loop = asyncio.Runner()

    @abstractmethod
    def close(self) -> None:
        """Close what it uses, and the event loop."""

    @abstractmethod
    def turn(self, text: str, *, gives_up: bool = False) -> Ending:
        """Begin a turn with a message, and show it to its end; it may give up one that has not ended."""

    @abstractmethod
    def status(self) -> str | None:
        """Return the session's status; None if it has not started."""

    @abstractmethod
    def pending(self) -> list[Interrupt]:
        """Return the open questions."""

    @abstractmethod
    def recover(self) -> Ending:
        """Continue without answering anything: after a crash, or with answers that were recorded elsewhere."""

    @abstractmethod
    def _answered(self, answers: dict[Interrupt, Any]) -> Run | RemoteRun: ...

    @abstractmethod
    def _words(self) -> list[str]:
        """Return how a command names what runs the session."""

    def follow(self, run: Run | RemoteRun) -> Ending:
        """Show a run to its end; Ctrl-C stops it where it can be recovered."""
        return self._loop.run(self._follower.follow(run))

    def settle(self, ending: Ending) -> Ending:
        """Ask the person at the terminal the open questions, as long as they answer."""
        while ending.status == "interrupted" and self.is_asked_here:
            asked = self.pending()
            answers = self._answers(asked)
            if asked and not answers:
                break
            # If none is open, somebody else has answered in the meantime.
            ending = self._resume(answers) if asked else self.recover()
            if not asked and not self.pending():
                break
        return ending

    def _answers(self, asked: list[Interrupt]) -> dict[Interrupt, Any]:
        """Ask each question and return the answers; those left for later are missing."""
        answers: dict[Interrupt, Any] = {}
        for position, each in enumerate(asked, 1):
            value = ask(each, f", {position} of {len(asked)}" if len(asked) > 1 else "")
            if value is not LATER:
                answers[each] = value  # as it was shown, by its token
        return answers

    def _resume(self, answers: dict[Interrupt, Any]) -> Ending:
        try:
            return self.follow(self._answered(answers))
        except (InvalidAnswer, AlreadyResumed, InterruptExpired, StaleCheckpoint) as error:
            say(visible_line(advice(error, self._options)), "red")
            return self.recover()

    def print_next_steps(self, ending: Ending) -> None:
        """Print what the session waits for, and how to continue."""
        if self._options.json or ending.status == "done":
            return
        if ending.status == "interrupted" and not self.is_asked_here:
            print_each(self.pending())
        hint(f"\n{self.next_steps(ending)}")

    def next_steps(self, ending: Ending) -> str:
        """Return how to continue the session later."""
        if not self.is_kept:
            return IN_MEMORY
        if ending.status == "interrupted":
            answer = answering(self._options, self.id, self.pending())
            go_on = command(self._options, "resume", *self._words(), self.id)
            return f"Answer with:     {answer}\nThen go on with: {go_on}"
        return f"Go on with: {command(self._options, 'recover', *self._words(), self.id)}"

    def way_back(self) -> str:
        """Return how to come back to the conversation."""
        if not self.is_kept:
            return IN_MEMORY
        chat = command(self._options, "chat", *self._words(), "--session", self.id)
        return f"The session is kept. Go on with: {chat}"


class LocalSession(Session):
    """A session of a program that runs in this process."""

    def __init__(self, options: argparse.Namespace, *, existing: bool) -> None:
        super().__init__(options)
        runner = runner_of(named_in(options).program, options, existing=existing)
        self.runner = runner if options.user is None else runner.for_user(options.user)
        options.app = self.runner.app_name  # for the commands that are printed: those without a program must name it
        self.id = options.session or f"chat-{uuid.uuid4().hex[:8]}"
        self.name = self.runner.program.name
        self.is_kept = self.runner.has_store
        self._deps = deps_of(options)

    def close(self) -> None:
        """Close the store and the event loop."""
        self._loop.run(self.runner.store.close())
        self._loop.close()

    def turn(self, text: str, *, gives_up: bool = False) -> Ending:
        """Begin a turn with a message, and show it to its end; it may give up one that has not ended."""
        return self.follow(
            self.runner.run(
                self._input(text),
                session_id=self.id,
                values=values_of(self._options.value),
                deps=self._deps,
                on_pending="abandon" if gives_up else "error",
            )
        )

    def _input(self, text: str) -> Any:  # Any: what the program takes
        """Return the text; for a graph, a state if it is a JSON object.

        Raises:
            UsageError: the graph takes nothing else.
        """
        program = self.runner.program
        if not isinstance(program, CompiledGraph):
            return text
        data = parse_data(text)
        if isinstance(data, dict):
            return cast("dict[str, Any]", data)
        if "user_input" not in program.schema.channels:
            fields = ", ".join(program.schema.channels)
            raise UsageError(f"Graph '{program.name}' takes a JSON object here, in braces, with some of: {fields}.")
        return text

    def status(self) -> str | None:
        """Return the session's status; None if it has not started."""
        return self._loop.run(self._status())

    async def _status(self) -> str | None:
        try:
            return (await self.runner.status(self.id)).status
        except CheckpointNotFound:
            return None

    def pending(self) -> list[Interrupt]:
        """Return the open questions."""
        return self._loop.run(self.runner.pending(self.id))

    def recover(self) -> Ending:
        """Continue without answering anything: after a crash, or with answers that were recorded elsewhere."""
        status = self._loop.run(self.runner.status(self.id))
        if status.status != "running":
            return self.follow(self.runner.recover(self.id, deps=self._deps))
        hint(f"Session {visible_line(self.id)} is being run by {visible_line(status.owner or '')}; following it.")
        return self.follow(self.runner.attach(self.id, after=self._loop.run(self._seen())))

    async def _seen(self) -> int:
        """Return the number of the last event so far."""
        head = await self.runner.store.read(GetHead(SessionRef(self.id, self.runner.app_name, self.runner.user_id)))
        return head.seq if head else 0

    def _answered(self, answers: dict[Interrupt, Any]) -> Run:
        return self.runner.resume(self.id, answers, by=self._options.by, deps=self._deps)

    def _words(self) -> list[str]:
        return [self._options.program]


class ServerSession(Session):
    """A session of an agent that a server runs."""

    def __init__(self, options: argparse.Namespace, *, existing: bool) -> None:
        super().__init__(options)
        self._client = client_of(options)
        self.id = options.session or f"chat-{uuid.uuid4().hex[:8]}"
        try:
            found = self._loop.run(self._found(existing=existing))
        except BaseException:
            self.close()
            raise
        self.name = found.name
        self._takes_state = found.kind == "runnable"

    async def _found(self, *, existing: bool) -> AgentInfo:
        """Return the agent that is named, or that the session belongs to, or the only one."""
        name: str | None = self._options.program
        if name is None or existing:
            try:
                name = (await self._client.status(self.id)).agent or name
            except CheckpointNotFound:
                if existing:
                    raise
        agents = {agent.name: agent for agent in await self._client.agents()}
        if name is None and len(agents) == 1:
            (name,) = agents
        if name is None or name not in agents:
            what = "Which agent?" if name is None else f"There is no agent '{name}'.{did_you_mean(name, agents)}"
            raise UsageError(f"{what} {self._client.url} has: {', '.join(agents) or 'none that you may use'}.")
        return agents[name]

    def close(self) -> None:
        """Close the connections and the event loop."""
        self._loop.run(self._client.close())
        self._loop.close()

    def turn(self, text: str, *, gives_up: bool = False) -> Ending:
        """Begin a turn with a message, and show it to its end; it may give up one that has not ended."""
        data = parse_data(text) if self._takes_state else text
        run = self._client.chat(
            cast("dict[str, Any]", data) if isinstance(data, dict) else text,
            agent=self.name,
            session_id=self.id,
            values=values_of(self._options.value),
            on_pending="abandon" if gives_up else "error",
        )
        return self.follow(run)

    def status(self) -> str | None:
        """Return the session's status; None if it has not started."""
        return self._loop.run(self._status())

    async def _status(self) -> str | None:
        try:
            return (await self._client.status(self.id)).status
        except CheckpointNotFound:
            return None

    def pending(self) -> list[Interrupt]:
        """Return the open questions."""
        return self._loop.run(self._client.pending(self.id))

    def recover(self) -> Ending:
        """Continue without answering anything: after a crash, or with answers that were recorded elsewhere."""
        if self.status() != "running":
            return self.follow(self._client.recover(self.id))
        hint(f"Session {visible_line(self.id)} is running; following it.")
        return self.follow(self._client.attach(self.id, after=None))

    def _answered(self, answers: dict[Interrupt, Any]) -> RemoteRun:
        return self._client.resume(self.id, answers, by=self._options.by)

    def _words(self) -> list[str]:
        return []


def session_of(options: argparse.Namespace, *, existing: bool) -> Session:
    """Return the session that a command is about: of a server if one is named, else of a program.

    Raises:
        UsageError: there is no such program or agent, or options do not go together.
    """
    if server_url(options) is not None:
        return ServerSession(options, existing=existing)
    if options.token is not None:
        raise UsageError("--token goes with --server.")
    return LocalSession(options, existing=existing)
