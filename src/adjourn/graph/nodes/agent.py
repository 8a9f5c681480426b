"""Agent nodes: an agent that works on the conversation in a graph's state."""

# Overrides are documented on the base class.
# ruff: noqa: D102

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, cast

from adjourn._engine.address import segment_text
from adjourn._engine.program import Program, ProgramFrame, Report
from adjourn.graph._frame import Task
from adjourn.graph._node import Plan, Shape
from adjourn.graph._options import NodeSettings
from adjourn.graph.schema import Schema
from adjourn.graph.state import read
from adjourn.messages import Message

from ._conversation import Input, history, known_to, lacks, lacks_messages, with_input, with_new_ids
from .program import OfState, ProgramNode, mapping_problems


class ShowsGraph:
    """A program that is drawn as the graph it runs."""

    @property
    def drawn_as(self) -> Plan:
        """The graph."""
        raise NotImplementedError


class AgentNode(ProgramNode):
    """How an agent takes part in a graph: what its input is, and which of its results go into the state.

    By default it sees the conversation with the user's input at its end, and its messages join the conversation. An
    `isolated` agent only gets the user's input, and only its final text joins. With `input` it does not work on the
    conversation, and its text only goes to `last_response` and `node_responses`.
    """

    shape: Shape = "agent"

    def __init__(
        self,
        name: str,
        agent: Program,
        options: NodeSettings,
        *,
        input: OfState | None,
        output: OfState | None,
        isolated: bool,
    ) -> None:
        # Users pass anything; problems are reported when the graph is compiled.
        is_program = isinstance(cast("object", agent), Program)
        super().__init__(name, agent, options, inside=segment_text(agent.kind, agent.name) if is_program else "")
        self.input = input
        self.output = output
        self.isolated = isolated

    def problems(self, schema: Schema) -> Iterable[str]:
        agent = cast("object", self.program)
        if not isinstance(agent, Program) or agent.kind != "agent":
            yield f"the agent of node '{self.name}' is not an agent: {agent!r} (a graph is added with add_subgraph)"
        yield from mapping_problems("agent node", self.name, input=self.input, output=self.output)
        if self.input is None and self.isolated and not schema.problems and lacks(schema, "user_input"):
            yield f"agent node '{self.name}' needs the field 'user_input', or input=... to map the state to its input"
        elif self.input is None and not self.isolated:
            yield from lacks_messages("agent node", self.name, schema)

    def marks(self) -> list[str]:
        return [f"agent {self.program.name}" if self.program.name != self.name else "agent"]

    @property
    def inner(self) -> Plan | None:
        return self.program.drawn_as if isinstance(self.program, ShowsGraph) else None

    def input_of(self, task: Task) -> Any:
        if self.input is not None:
            graph = task.graph
            return self.input(read(graph.plan.schema, graph.fields, task.seen))
        return self._given(task).messages

    def _given(self, task: Task) -> Input:
        return with_input(task, [] if self.isolated else history(task), "user_input")

    def recall(self, task: Task, added: Collection[str]) -> bool:
        with_new_ids(task, "user_input")
        return super().recall(task, [each for each in added if not each.startswith("user_input@")])

    def set_result(self, task: Task, child: ProgramFrame) -> None:
        report = child.report()
        if self.output is not None:
            task.set_result(self.output(report))
            return
        update: dict[str, Any] = {
            "last_response": report.output,
            "node_responses": {task.node.name: report.output},
        }
        if self.input is None:
            update |= {"user_input": "", "messages": self._joining(task, report)}
        task.set_result(known_to(task, update))

    def _joining(self, task: Task, report: Report) -> list[Message]:
        """Return what joins the conversation: the user's message, and the agent's messages after it."""
        given = self._given(task)
        if self.isolated:
            return [*given.new, Message.assistant(report.output)]
        known = {message.id for message in given.messages}
        return [*given.new, *(message for message in report.messages or () if message.id not in known)]
