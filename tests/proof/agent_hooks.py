"""Hooks for agents of a plan: each asks a person at its place, and changes what goes through it by the answer."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from adjourn import Message, Middleware, RunContext, current, interrupt
from adjourn.middleware import ModelState, Setup, ToolRequest
from adjourn.middleware.hooks import AgentEnd, ModelCall, ToolCallable
from adjourn.models import ModelRequest

from . import agent_plans as plans


class Hook(Middleware):
    """A hook that asks, unless the agents know the answers."""

    def __init__(self, name: str, *, knows: bool) -> None:
        self._name = name
        self._knows = knows

    @property
    def name(self) -> str:
        return self._name

    def ask(self, about: str) -> str:
        info = {"hook": self._name, "about": about}
        if not self._knows:
            return interrupt(info, schema=str)
        current().deps.asked += 1
        return plans.said_to(info)


class BeforeAgent(Hook):
    """Adds to the instruction, for good."""

    def before_agent(self, setup: Setup) -> Setup:
        return replace(setup, instruction=f"{setup.instruction}, {self.ask(setup.agent)}")


class AfterAgent(Hook):
    """Sees how the agent ended."""

    async def after_agent(self, end: AgentEnd) -> None:
        self.ask(f"{end.output} {end.action}")


class BeforeModel(Hook):
    """Has the model see one more message, from then on."""

    def before_model(self, state: ModelState, ctx: RunContext) -> ModelState:
        said = self.ask(plans.seen(state.messages))
        return ModelState(messages=(*state.messages, Message.user(said)))


class AfterModel(Hook):
    """Changes the text of an answer."""

    async def after_model(self, state: ModelState, ctx: RunContext) -> ModelState:
        *before, answer = state.messages
        # Not of the new calls: the reference has them as they will be edited.
        said = self.ask(f"{plans.seen(before)} {answer.text}")
        return ModelState(messages=(*before, replace(answer, content=f"{answer.text} {said}")))


class WrapModel(Hook):
    """Asks before and after the model, and changes its answer."""

    async def wrap_model(self, call: ModelCall, request: ModelRequest) -> Message:
        first = self.ask(f"before {plans.seen(request.messages)}")
        answer = await call(request)
        second = self.ask(f"after {answer.text}")
        return replace(answer, content=f"{answer.text} {first} {second}")


class WrapTool(Hook):
    """Asks before and after a tool, and changes its result."""

    async def wrap_tool(self, call: ToolCallable, request: ToolRequest) -> Any:
        first = self.ask(f"before {request.call_id} {request.arguments}")
        result = await call(request)
        second = self.ask(f"after {result}")
        return f"{result} {first} {second}"


HOOKS: dict[plans.HookKind, type[Hook]] = {
    "before_agent": BeforeAgent,
    "after_agent": AfterAgent,
    "before_model": BeforeModel,
    "after_model": AfterModel,
    "wrap_model": WrapModel,
    "wrap_tool": WrapTool,
}
