"""Agent nodes: an agent that works on the conversation in a graph's state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from adjourn._engine.program import Program, ProgramFrame, Report
from adjourn.graph._results import interpret
from adjourn.graph._task import Task
from adjourn.graph.state import read
from adjourn.messages import Message

from ._conversation import Input, history, known_to, with_input

OfState = Callable[[Any], Any]


class AgentNode:
    """How an agent takes part in a graph: what it is given, and what of it goes into the state.

    By default it sees the conversation with the user's input at its end, and what it says joins the conversation; one
    that is `isolated` gets the input alone, and only its final text joins. With `input`, what it works on is not the
    conversation, and only `last_response` and `node_responses` have its text.
    """

    def __init__(self, agent: Program, *, input: OfState | None, output: OfState | None, isolated: bool) -> None:
        self.agent = agent
        self.input = input
        self.output = output
        self.isolated = isolated

    def begin(self, task: Task) -> Any:
        """What the agent is given."""
        if self.input is not None:
            graph = task.graph
            return self.input(read(graph.graph.schema, graph.channels, task.overlay))
        return self._given(task).messages

    def _given(self, task: Task) -> Input:
        return with_input(task, [] if self.isolated else history(task), "user_input")

    def hand_up(self, task: Task, child: ProgramFrame) -> None:
        """Write what the agent came to into the state."""
        report = child.report()
        if self.output is not None:
            interpret(task, self.output(report))
            return
        update: dict[str, Any] = {
            "last_response": report.output,
            "node_responses": {task.spec.name: report.output},
        }
        if self.input is None:
            update |= {"user_input": "", "messages": self._joining(task, report)}
        interpret(task, known_to(task, update))

    def _joining(self, task: Task, report: Report) -> list[Message]:
        """What joins the conversation: what the user said, and what the agent did and said after it."""
        given = self._given(task)
        if self.isolated:
            return [*given.new, Message.assistant(report.output)]
        known = {message.id for message in given.messages}
        return [*given.new, *(message for message in report.messages or () if message.id not in known)]
