"""Workloads of agents: trees that child processes run, are killed in and race for, with effects that leave traces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from adjourn import (
    Agent,
    AgentTool,
    ChatModelAgent,
    Delta,
    Interrupt,
    LoopAgent,
    Message,
    MessageEvent,
    ParallelAgent,
    RunContext,
    RunResult,
    SequentialAgent,
    ToolCall,
    ToolCallInfo,
    interrupt,
    session_values,
    set_session_value,
    tool,
)
from adjourn.agents import AgentInput, Yielded
from adjourn.middleware import Middleware
from adjourn.middleware.hooks import ModelCall, ToolCallable, ToolRequest
from adjourn.models import ModelRequest
from adjourn.testing import FunctionModel
from adjourn.tools import reviewed

from .workloads import WORKLOADS, Workload, charge, print_label, world

Step = Sequence[ToolCall] | str


def says(*steps: Step) -> FunctionModel:
    """A model whose n-th message is the n-th of these, in a circle; each call of it leaves a trace."""

    def say(request: ModelRequest) -> str | Sequence[ToolCall]:
        number = sum(message.role == "assistant" for message in request.messages)
        step = steps[number % len(steps)]
        world().do("think", number)
        return f"{step} {number}, after: {request.messages[-1].text}" if isinstance(step, str) else step

    return FunctionModel(say)


def call(id: str, name: str, **arguments: str) -> ToolCall:
    return ToolCall(id=id, name=name, arguments=arguments)


@tool
def reserve(what: str) -> str:
    """Reserve something, in a thread."""
    label = print_label(what)
    world().note_kept("label", what)
    world().do("reserve", what)
    set_session_value("reserved", what)
    return label


@tool(approval=True)
async def pay(what: str) -> str:
    """Pay for something, if somebody approves."""
    receipt = await charge(what, 100)
    world().note_kept("charge", what, 100)
    world().do("pay", what)
    return receipt


@tool
async def ask(who: str) -> str:
    """Ask somebody, between two effects of which the first is kept."""
    receipt = await charge(who, 1)
    world().note_kept("charge", who, 1)
    said: str = interrupt({"who": who}, schema=str)
    world().do("heard", who, said)
    return f"{receipt}; {who}: {said}; {sorted(session_values())}"


@tool
async def send(what: str) -> str:
    """Send something, which somebody has reviewed."""
    world().do("send", what)
    return f"sent {what}"


def booking() -> Agent:
    """An agent with tools that ask, keep and need approval; one is an agent; then another takes over."""
    helper = ChatModelAgent("Helper", model=says([call("h1", "ask", who="the helper's friend")], "I know"), tools=[ask])
    closer = ChatModelAgent("Closer", model=says([call("e1", "send", what="bill")], "closed"), tools=[reviewed(send)])
    script: list[Step] = [
        [call("a1", "reserve", what="room"), call("a2", "pay", what="room")],
        [call("b1", "ask", who="guest"), call("b2", "Helper", request="find out")],
        [call("t1", "transfer_to_agent", agent_name="Closer")],
        "never said",
    ]
    return ChatModelAgent(
        "Booker", model=says(*script), tools=[reserve, pay, ask, AgentTool(helper)], sub_agents=[closer]
    )


class Reviewer(Agent):
    """An agent of one's own that asks, and leaves the loop at the second time."""

    name = "Reviewer"

    async def run(self, input: AgentInput, ctx: RunContext) -> AsyncIterator[MessageEvent]:
        yield MessageEvent(message=Message.assistant(f"reading {len(input.messages)} messages"))
        receipt = await charge("review", len(input.messages))
        world().note_kept("charge", "review", len(input.messages))
        said: str = interrupt({"draft": ctx.values["draft"]}, schema=str)
        world().do("review", said)
        if "#2" in said:
            ctx.break_loop()
        yield MessageEvent(message=Message.assistant(f"{receipt}: {said}"))


class Usher(Agent):
    """An agent of one's own that streams, asks, and hands over; when it gets the turn back, it lets another speak."""

    name = "Usher"

    def __init__(self) -> None:
        porter = ChatModelAgent(
            "Porter",
            model=says([call("p1", "ask", who="porter")], [call("p2", "transfer_to_agent", agent_name="Usher")], "no"),
            tools=[ask],
        )
        self.sub_agents = [porter]
        self.guide = ChatModelAgent("Guide", model=says([call("g1", "pay", what="map")], "this way"), tools=[pay])

    async def run(self, input: AgentInput, ctx: RunContext) -> AsyncIterator[Yielded]:
        if ctx.values.get("welcomed"):
            await ctx.run(self.guide)
            return
        yield Delta(text="well")
        yield MessageEvent(message=Message.assistant("welcome"))
        said: str = interrupt({"bags?": input.text}, schema=str)
        world().do("welcome", said)
        yield self.pieces(said)
        ctx.values["welcomed"] = True
        ctx.transfer_to("Porter")

    async def pieces(self, text: str) -> AsyncIterator[str]:
        yield "bags: "
        yield text


def hotel() -> Agent:
    """An agent under another name that streams, hands over, gets the turn back, and is a shell around another one."""
    return Usher().renamed("Hotel")


def tour() -> Agent:
    """Two agents side by side that ask, then a loop of a writer and a reviewer."""
    sides = [
        ChatModelAgent(
            name,
            model=says([call(f"{name}1", "ask", who=name), call(f"{name}2", "reserve", what=name)], f"{name} done"),
            tools=[ask, reserve],
        )
        for name in ("Left", "Right")
    ]
    writer = ChatModelAgent("Writer", model=says("a draft"), output_key="draft")
    loop = LoopAgent("Drafts", agents=[writer, Reviewer()], max_iterations=5)
    return SequentialAgent("Tour", agents=[ParallelAgent("Sides", agents=sides), loop])


def approval() -> Agent:
    """One approval."""
    return ChatModelAgent("Payer", model=says([call("p1", "pay", what="book")], "paid"), tools=[pay])


def survey() -> Agent:
    """Three tool calls of one message that ask."""
    calls = [call(f"q{n}", "ask", who=who) for n, who in enumerate(("ann", "ben", "cleo"))]
    return ChatModelAgent("Survey", model=says(calls, "asked"), tools=[ask])


class Halting(Middleware):
    """A hook that the test can freeze, before the first call of a model or of a tool."""

    def __init__(self, before: str) -> None:
        self.before = before

    async def wrap_model(self, call: ModelCall, request: ModelRequest) -> Message:
        if self.before == "model":
            await _halt()
        return await call(request)

    async def wrap_tool(self, call: ToolCallable, request: ToolRequest) -> Any:
        if self.before == "tool":
            await _halt()
        return await call(request)


async def _halt() -> None:
    world().do("halting")
    await asyncio.to_thread(world().channel.halt, "inside")


@tool
async def deliver(what: str) -> str:
    """Deliver something."""
    world().do("after", what)
    return f"delivered {what}"


def halt_tool() -> Agent:
    """A tool call that the test can freeze before it begins."""
    model = says([call("d1", "deliver", what="book")], "delivered")
    return ChatModelAgent("Driver", model=model, tools=[deliver], middleware=[Halting("tool")])


def halt_model() -> Agent:
    """A model call that the test can freeze before it begins."""

    def say(request: ModelRequest) -> str:
        world().do("after", len(request.messages))
        return "said"

    return ChatModelAgent("Talker", model=FunctionModel(say), middleware=[Halting("model")])


def answer(asked: Interrupt) -> object:
    return True if isinstance(asked.info, ToolCallInfo) else f"said to {asked.id}"


def show(result: RunResult) -> object:
    """All that an agent came to, with the ids of messages."""
    said = [(m.id, m.role, m.text, m.tool_call_id, [c.id for c in m.tool_calls]) for m in result.messages]
    return [result.output, said, result.state["active"], result.usage.calls]


PROGRAMS: dict[str, Workload] = {
    **WORKLOADS,
    "booking": Workload(build=booking, input="book a room", answer=answer, show=show),
    "hotel": Workload(build=hotel, input="good evening", answer=answer, show=show),
    "tour": Workload(build=tour, input="show me around", answer=answer, show=show),
    "approval": Workload(build=approval, input="pay", answer=answer, show=show),
    "survey": Workload(build=survey, input="ask them", answer=answer, show=show),
    "halt_tool": Workload(build=halt_tool, input="deliver", show=show),
    "halt_model": Workload(build=halt_model, input="talk", show=show),
}
