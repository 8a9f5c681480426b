"""Continues a session until it ends, or until it waits for somebody who is not at this terminal."""

from __future__ import annotations

import argparse
import asyncio
import uuid
from typing import Any

from adjourn._text import visible_line
from adjourn.errors import AlreadyResumed, CheckpointNotFound, InterruptExpired, InvalidAnswer, StaleCheckpoint
from adjourn.events import Interrupt
from adjourn.runner import Run
from adjourn.stores import SessionRef

from ._advice import advice
from ._programs import deps_of, runner_of
from ._stores import command
from .ask.asking import LATER, answering, ask, hint, is_terminal, say
from .output.following import Ending, Follower
from .output.questions import print_question


class Session:
    """One session of a program, driven from the command line.

    The event loop runs only while the program does: a person who is asked can be interrupted with Ctrl-C at any time.
    """

    def __init__(self, options: argparse.Namespace, *, existing: bool) -> None:
        runner = runner_of(options, existing=existing)
        self.runner = runner if options.user is None else runner.for_user(options.user)
        options.app = self.runner.app_name  # for the commands that are printed: those without a program must name it
        self.id: str = options.session or f"chat-{uuid.uuid4().hex[:8]}"
        self.deps = deps_of(options)
        self.is_asked_here = is_terminal() and not options.json
        self._options = options
        self._follower = Follower(options)
        self._loop = asyncio.Runner()

    def close(self) -> None:
        """Close the store and the event loop."""
        self._loop.run(self.runner.store.close())
        self._loop.close()

    def follow(self, run: Run) -> Ending:
        """Show a run to its end; Ctrl-C stops it where it can be recovered."""
        return self._loop.run(self._follower.follow(run))

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
            return self.follow(self.runner.recover(self.id, deps=self.deps))
        hint(f"Session {visible_line(self.id)} is being run by {visible_line(status.owner or '')}; following it.")
        return self.follow(self.runner.attach(self.id, after=self._loop.run(self._seen())))

    async def _seen(self) -> int:
        """Return the number of the last event so far."""
        head = await self.runner.store.head(SessionRef(self.id, self.runner.app_name, self.runner.user_id))
        return head.seq if head else 0

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
            return self.follow(self.runner.resume(self.id, answers, by=self._options.by, deps=self.deps))
        except (InvalidAnswer, AlreadyResumed, InterruptExpired, StaleCheckpoint) as error:
            say(visible_line(advice(error, self._options)), "red")
            return self.recover()

    def print_next_steps(self, ending: Ending) -> None:
        """Print what the session waits for, and how to continue."""
        if self._options.json or ending.status == "done":
            return
        if ending.status == "interrupted" and not self.is_asked_here:
            for asked in self.pending():
                print_question(asked)
        hint(f"\n{self.next_steps(ending)}")

    def next_steps(self, ending: Ending) -> str:
        """Return how to continue the session later."""
        if not self.runner.has_store:
            return "The session was kept in memory only, and ends here. With --store URL it outlives this command."
        program = self._options.program
        if ending.status == "interrupted":
            answer = answering(self._options, self.id, self.pending())
            return f"Answer with:     {answer}\nThen go on with: {command(self._options, 'resume', program, self.id)}"
        return f"Go on with: {command(self._options, 'recover', program, self.id)}"
