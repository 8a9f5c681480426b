"""Supervisor: an agent whose members automatically hand back to it."""

# Overrides are documented on the base class.
# ruff: noqa: D102

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Unpack

from msgspec.structs import replace

from adjourn._calls.caller import InstructionFunction
from adjourn._generics import Deps_contra, Out_co
from adjourn._habits import checks_options
from adjourn.errors import UsageError, text_of
from adjourn.graph._frame import Task
from adjourn.graph._node import Send
from adjourn.messages import Message
from adjourn.models import ChatModel
from adjourn.tools import Tool

from ._frame import AgentFrame
from ._handoff import take_turn_back
from ._transcript import Ending
from .agent import Agent
from .chat import ChatModelAgent
from .chat._config import NONE_GIVEN, ChatOptions
from .chat._loop import ChatPlan

INSTRUCTION = (
    "You supervise the agents below. Hand over to the one that fits what is to be done, one at a time. When it has "
    "answered, you go on: hand over again, or answer the user."
)


class SupervisorPlan(ChatPlan):
    """The plan of a supervisor: that of a chat-model agent whose members lead back to the model."""

    def first(self, frame: AgentFrame) -> list[Send]:
        take_turn_back(frame)  # A turn begins here, even if a member had the last one when it was abandoned.
        return super().first(frame)

    def after_handoff(self, name: str, frame: AgentFrame) -> list[Send]:
        ending = frame.ending_of(name)
        take_turn_back(frame)
        if ending.action in ("exit", "break_loop"):
            return frame.end(replace(ending, trail=()))
        frame.set_progress(trail=(*ending.trail, self.name))
        return [(self.model, None)]

    def member_failed(self, frame: AgentFrame, task: Task, child: AgentFrame, error: Exception) -> bool:
        name, transcript = child.agent.name, frame.transcript
        report = Message.user(f"For context: {name} failed: {type(error).__name__}: {text_of(error)}")
        ending = Ending(action="failed", trail=child.progress.trail)
        # Every call of the member needs a result or a placeholder, since it may get the turn again.
        left = transcript.whole(closing=True)[len(transcript.entries) :]
        transcript.pass_ids(left)
        task.writes = [("endings", {name: ending}, True), ("entries", [*left, frame.entry(report)], True)]
        return True


class Supervisor(ChatModelAgent[Deps_contra, Out_co]):
    """A model that hands over to its members and gets the turn back when a member has answered.

    If a member fails, the model is informed. If a member ends the run, it ends.
    """

    @checks_options
    def __init__(
        self,
        name: str,
        *,
        model: str | ChatModel,
        agents: Sequence[Agent[Deps_contra, Any]],
        instruction: str | InstructionFunction = INSTRUCTION,
        tools: Sequence[Tool | Callable[..., Any] | Agent[Deps_contra, Any]] = NONE_GIVEN,
        middleware: Sequence[Any] = (),
        **options: Unpack[ChatOptions[Deps_contra, Out_co]],
    ) -> None:
        """Make an agent; its options are those of `ChatModelAgent`, except for `sub_agents`, and this.

        agents: the agents that it supervises.
        """
        if not agents:
            raise UsageError(f"Supervisor '{name}' has nobody to supervise. Give it agents=[...].")
        super().__init__(
            name,
            model=model,
            instruction=instruction,
            tools=tools,
            middleware=middleware,
            sub_agents=agents,
            **options,
        )

    def make_plan(self) -> SupervisorPlan:
        return SupervisorPlan(self)
