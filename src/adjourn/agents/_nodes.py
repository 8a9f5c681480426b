"""The nodes that agents consist of, on the graph engine.

They are compiled once for each agent; its plan defines what they do, so frames are Any here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any

from adjourn._engine.address import segment_text
from adjourn._engine.execution import execute
from adjourn._engine.program import Program
from adjourn._engine.record import Question
from adjourn.errors import CheckpointCorrupt
from adjourn.graph._frame import Task
from adjourn.graph._node import Node, Overlay, Send
from adjourn.graph.nodes.function import check_no_graph
from adjourn.graph.nodes.program import ProgramNode
from adjourn.messages import ToolCall

Call = Callable[[Any, Task], Awaitable[Any]]
After = Callable[[Any], list[Send]]


class InnerNode(Node):
    """A step of an agent: `call(frame, task)` runs it, and `after(frame)` returns what follows."""

    __slots__ = ("after", "call")

    is_reported = False  # The agent emits its own events.

    def __init__(self, name: str, order: int, call: Call, after: After) -> None:
        super().__init__(name, order=order, segment=f"~{name}")
        self.call: Call = call
        self.after: After = after

    def run(self, task: Task) -> Awaitable[Any]:
        return execute(task, partial(self.call, task.graph), task)

    def leave(self, frame: Any) -> None:
        frame.routes.targets += self.after(frame)

    def check_restored(self, task: Task, below: Iterable[str]) -> None:
        check_no_graph(task, below)


class CallNode(InnerNode):
    """A step that runs tool calls, one per task; agents that are started there have their own transcript."""

    __slots__ = ()

    def check_answer(self, task: Task, question: Question) -> None:
        frame: Any = task.graph
        frame.plan.check_call(frame, task, question)

    def segment_of(self, frame: Any, index: int, overlay: Overlay | None) -> str:
        assert overlay is not None
        call = frame.calls[overlay["number"] - 1]
        return segment_text("tool", call.name, call.id)


class MemberNode(ProgramNode):
    """An agent in the tree of another: it reads the transcript, and reports how it ended to the one above it."""

    __slots__ = ("after",)

    is_reported = False

    def __init__(self, agent: Program, order: int, after: After) -> None:
        super().__init__(agent.name, agent, order=order, segment=segment_text("agent", agent.name))
        self.after: After = after

    def input_of(self, task: Task) -> None:
        return None

    def set_result(self, task: Any, child: Any) -> None:
        task.graph.plan.member_ended(task, child)

    def forgive(self, task: Any, child: Any, error: Exception) -> bool:
        return task.graph.plan.member_failed(task.graph, task, child, error)

    def leave(self, frame: Any) -> None:
        frame.routes.targets += self.after(frame)


def member_key(name: str) -> str:
    """Return the key of an agent's node in a plan, which cannot clash with the name of a step."""
    return f"agent:{name}"


def call_number(task: Task) -> int:
    """Return the number, counted from 1, of the agent's call that a task of a `CallNode` runs."""
    number = (task.overlay or {}).get("number")
    if not isinstance(number, int):
        raise CheckpointCorrupt(f"what is stored at '{task.address}' is not a call of the agent")
    return number


def call_of(task: Task, calls: Sequence[ToolCall]) -> ToolCall:
    """Return the agent's call that a task of a `CallNode` runs.

    Raises:
        CheckpointCorrupt: the agent has not made it.
    """
    number = call_number(task)
    if not 0 < number <= len(calls):
        raise CheckpointCorrupt(f"what is stored at '{task.address}' is not a call of the agent")
    return calls[number - 1]
