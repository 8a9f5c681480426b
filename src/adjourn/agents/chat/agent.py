"""ChatModelAgent: a model that thinks and calls tools."""

# Overrides are documented on the base class.
# ruff: noqa: D102

from __future__ import annotations

from msgspec.structs import replace

from adjourn._generics import Deps_contra, Out_co
from adjourn.agents._config import Sketch
from adjourn.agents.agent import Agent
from adjourn.graph.nodes._caller import tool_names

from ._config import ChatConfig
from ._loop import ChatPlan


class ChatModelAgent(ChatConfig[Deps_contra, Out_co], Agent[Deps_contra, Out_co]):
    """A model with an instruction and tools that runs until it answers without calling a tool."""

    def make_plan(self) -> ChatPlan:
        return ChatPlan(self)

    def sketch(self) -> Sketch:
        plain = super().sketch()
        return replace(plain, marks=[*plain.marks, *tool_names(self.tools)], chooses=True)
