"""Building agents: the real ones of a plan, to be asked and answered, or with the answers in place as a reference."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any, assert_never, cast

from adjourn import (
    Agent,
    AgentTool,
    Approve,
    ChatModelAgent,
    Delta,
    Edit,
    LoopAgent,
    Message,
    MessageEvent,
    ParallelAgent,
    PlanExecute,
    Reject,
    Respond,
    RunContext,
    SequentialAgent,
    Supervisor,
    Tool,
    ToolCall,
    ToolCallInfo,
    Usage,
    current,
    interrupt,
    once,
    tool,
)
from adjourn.agents import AgentInput, Yielded
from adjourn.models import Chunk, ModelRequest
from adjourn.testing import FunctionModel
from adjourn.tools import ToolRefused, reviewed

from . import agent_plans as plans
from . import building
from .agent_hooks import HOOKS
from .agent_plans import Ask, Chat, Keep, Own, Plan, Rest, Row, Run, SetValue, Shell, Stumble, ToolPlan

USAGE = Usage(calls=1, input_tokens=3, output_tokens=2)
MOST = 60
"""Model calls of a reference at most."""


class TooLong(BaseException):
    """What a reference raises that goes on and on."""


class World(building.World):
    """What agents do to the outside. In a world that knows the answers nobody is asked."""

    def __init__(self, *, knows: bool = False) -> None:
        super().__init__()
        self.knows = knows
        self.thoughts: Counter[str] = Counter()
        self.asked = 0

    def think(self, agent: str, seen: str) -> None:
        """A model is asked."""
        self.thoughts[f"{agent} {seen}"] += 1
        if self.knows and self.is_too_long:
            raise TooLong
        self.tick()

    @property
    def is_too_long(self) -> bool:
        """Whether models were asked too often."""
        return self.thoughts.total() > MOST


def _world() -> World:
    return cast("World", current().deps)


def build(plan: Plan, *, knows: bool = False) -> Agent:
    """The real agent of a plan; one that knows the answers asks nobody."""
    return _Builder(knows).agent(plan)


class _Builder:
    """Builds the agents of one tree."""

    def __init__(self, knows: bool) -> None:
        self.knows = knows

    def agent(self, plan: Plan) -> Agent:
        match plan:
            case Chat():
                return self._chat(plan)
            case Row():
                return self._row(plan)
            case Own():
                return _OwnAgent(plan, self)
            case Shell():
                return self.agent(plan.agent).renamed(plan.name)
            case _:
                assert_never(plan)

    def _row(self, plan: Row) -> Agent:
        match plan.kind:
            case "sequential":
                return SequentialAgent(plan.name, agents=self.agents(plan))
            case "parallel":
                return ParallelAgent(plan.name, agents=self.agents(plan))
            case "plan":
                return self._planned(plan)
            case "loop":
                return LoopAgent(plan.name, agents=self.agents(plan), max_iterations=plan.rounds)

    def agents(self, plan: Chat | Row | Own) -> list[Agent]:
        return [self.agent(each) for each in plan.agents]

    # Agents with models

    def _chat(self, plan: Chat) -> ChatModelAgent:
        members: dict[str, Any] = {"agents" if plan.supervises else "sub_agents": self.agents(plan)}
        return (Supervisor if plan.supervises else ChatModelAgent)(
            plan.name,
            description=f"agent {plan.name}",
            model=FunctionModel(partial(self._says, plan)),
            instruction=f"You are {plan.name}: {{u?}} {{v?}}",
            tools=[self._tool(each) for each in plan.tools],
            tool_calls="sequential" if plan.is_sequential else "parallel",
            output_key=plan.output_key,
            on_tool_error="raise" if plan.raises else "tell",
            middleware=[HOOKS[kind](f"{kind}{n}", knows=self.knows) for n, kind in enumerate(plan.hooks)],
            **members,
        )

    def _planned(self, plan: Row) -> PlanExecute:
        # Each in a row of one, so that their models need not write plans: a text is a plan of one step, or the answer.
        parts = [SequentialAgent(f"{each.name} alone", agents=[self.agent(each)]) for each in plan.agents]
        return PlanExecute(plan.name, planner=parts[0], executor=parts[1], replanner=parts[2])

    def _says(self, plan: Chat, request: ModelRequest) -> Message:
        number, seen = sum(m.role == "assistant" for m in request.messages), plans.seen(request.messages)
        _world().think(plan.name, seen)
        place = number % (len(plan.batches) + 1)
        batch = plan.batches[place] if place < len(plan.batches) else ()
        # Only some of the messages with calls have a text, too.
        text = "" if len(batch) == 1 else f"{plan.name} {seen}"
        calls = [self._call(plan, call, f"{number}.{place}", seen) for place, call in enumerate(batch)]
        return Message.assistant(text, tool_calls=calls, usage=USAGE)

    def _call(self, plan: Chat, call: int | str, id: str, seen: str) -> ToolCall:
        if isinstance(call, str):
            return ToolCall(id=id, name="transfer_to_agent", arguments={"agent_name": call})
        used = plan.tools[call]
        if used.agent is not None:
            return ToolCall(id=id, name=used.name, arguments={"request": f"please {seen}"})
        arguments: dict[str, Any] = {"x": seen}
        if used.gate == "none":
            return ToolCall(id=id, name=used.name, arguments=arguments)  # Others may have this id, too.
        # One of several in a row may never come to run, and the reference cannot know: such are not edited.
        own = f"{'whole ' if plan.is_sequential else ''}{plans.digest(plan.name)}.{id}"
        if self.knows:
            found = plans.decision_on(_info(used, arguments, own, plan.name), used.gate)
            arguments = dict(found.arguments) if isinstance(found, Edit) else arguments
        return ToolCall(id=own, name=used.name, arguments=arguments)

    # Tools

    def _tool(self, plan: ToolPlan) -> Tool:
        approves = plan.gate == "approval" and not self.knows
        if plan.agent is not None:
            history = plan.full_history
            return AgentTool(self.agent(plan.agent), name=plan.name, full_history=history, approval=approves)
        body = self._async_body(plan) if plan.kind == "async" else self._sync_body(plan)
        made = tool(
            body,
            name=plan.name,
            description="a tool",
            approval=approves,
            return_directly=plan.ending == "direct",
            thread=plan.kind == "sync",
        )
        return reviewed(made) if plan.gate == "review" and not self.knows else made

    def _async_body(self, plan: ToolPlan) -> Callable[..., Any]:
        async def body(x: str) -> str:
            gate = _Gate(plan, x, self.knows)
            if gate.result is not None:
                return gate.result
            visit = _Visit(f"tool {gate.x}", self)
            for act in plan.acts:
                await visit.do_async(act)
            return visit.ended(plan)

        return body

    def _sync_body(self, plan: ToolPlan) -> Callable[..., Any]:
        def body(x: str) -> str:
            gate = _Gate(plan, x, self.knows)
            if gate.result is not None:
                return gate.result
            visit = _Visit(f"tool {gate.x}", self)
            for act in plan.acts:
                visit.do(act)
            return visit.ended(plan)

        return body


def _info(plan: ToolPlan, arguments: dict[str, Any], call_id: str, agent: str) -> ToolCallInfo:
    return ToolCallInfo(tool=plan.name, arguments=arguments, call_id=call_id, agent=agent)


class _Gate:
    """What a person decided before a call, for the reference: there it happens in the tool itself."""

    def __init__(self, plan: ToolPlan, x: str, knows: bool) -> None:
        self.x = x
        self.result: str | None = None
        if not knows or plan.gate == "none":
            return
        _world().asked += 1
        *_, agent, call = (each for each in current().address if each.type in ("agent", "tool"))
        match plans.decision_on(_info(plan, {"x": x}, call.sub_id or "", agent.id), plan.gate):
            case Approve():
                pass
            case Reject(reason=reason):
                raise ToolRefused(plan.name, reason)
            case Respond(text=text):
                self.result = text
            case Edit():
                pass  # The model was told to write these arguments in the first place.


class _Visit:
    """One time that a piece of code is run."""

    def __init__(self, essence: str, builder: _Builder) -> None:
        context = current()
        self.builder = builder
        self.context = context
        self.world = _world()
        self.at = str(context.address)
        self.key = context.idempotency_key
        self.essence = essence
        self.heard: list[Any] = []
        self.is_in_thread = threading.current_thread() is not threading.main_thread()
        if self.is_in_thread:
            self.world.in_threads.add(self.key)
        self.world.enter(self.at, self.key)

    def so_far(self) -> str:
        return plans.digest(self.at, self.essence, self.heard)

    async def do_async(self, act: plans.Act) -> None:
        match act:
            case Keep():
                text, key = await _keep_async(self.so_far())
                self.heard.append(text)
                self.world.sealed.add(key)
            case Rest():
                await asyncio.sleep(0)
                self.world.tick()
            case Run(agent=agent):
                self.heard.append(await self.context.run(self.builder.agent(agent), f"go {self.so_far()}"))
            case _:
                self.do(act)

    def do(self, act: plans.Act) -> None:
        match act:
            case Ask(keyed=keyed):
                self.heard.append(self._ask(f"k{len(self.heard)}" if keyed else None))
            case Keep():
                text, key = _keep(self.so_far())
                self.heard.append(text)
                if self.is_in_thread:  # On the loop it is stored with the next commit only.
                    self.world.sealed.add(key)
            case SetValue(key=key):
                self.heard.append(self.context.values.get(key))
                self.context.values[key] = f"{key} {self.so_far()}"
            case Stumble(times=times):
                if not self.world.knows:
                    self.world.stumble(self.key, times)
            case Rest():
                self.world.tick()
            case Run():
                raise TypeError("only agents of one's own run others")

    def _ask(self, key: str | None) -> str:
        info = {"at": self.at, "essence": self.essence, "number": len(self.heard)}
        if self.world.knows:
            self.world.asked += 1
            return plans.said_to(info)
        return interrupt(info, key=key, schema=str)

    def ended(self, plan: ToolPlan) -> str:
        self.world.leave(self.at, self.key, self.so_far())
        match plan.ending:
            case "exit":
                self.context.exit(f"exit {self.so_far()}")
            case "break_loop":
                self.context.break_loop()
            case "raise":
                raise ValueError(f"no good {self.so_far()}")
            case "text" | "direct":
                pass
        return f"result {self.so_far()}"


def _make(essence: str) -> list[str]:
    context = current()
    _world().make(str(context.address), "keep", essence, context.idempotency_key)
    return [f"kept {essence}", context.idempotency_key]


@once(name="keep")
def _keep(essence: str) -> list[str]:
    return _make(essence)


@once(name="keep")
async def _keep_async(essence: str) -> list[str]:
    await asyncio.sleep(0)
    return _make(essence)


# Agents of one's own


class _OwnAgent(Agent):
    """An agent of one's own, of a plan."""

    def __init__(self, plan: Own, builder: _Builder) -> None:
        self._builder = builder
        self.name = plan.name
        self.sub_agents = builder.agents(plan)
        self._plan = plan

    async def run(self, input: AgentInput, ctx: RunContext) -> AsyncIterator[Yielded]:
        visit = _Visit(f"own {plans.seen(input.messages)}", self._builder)
        for act in self._plan.acts:
            await visit.do_async(act)
            for said in self._said(f"{self.name} {visit.so_far()}"):
                yield said
        visit.world.leave(visit.at, visit.key, visit.so_far())
        turns = ctx.values.get(f"turns of {self.name}", 0)
        ctx.values[f"turns of {self.name}"] = turns + 1
        if self._plan.target and not turns % 2:
            ctx.transfer_to(self._plan.target)
        elif self._plan.ending == "exit":
            ctx.exit(f"exit {visit.so_far()}")
        elif self._plan.ending == "break_loop":
            ctx.break_loop()

    def _said(self, text: str) -> Iterator[Yielded]:
        match self._plan.says:
            case "whole":
                yield MessageEvent(message=Message.assistant(text))
            case "pieces":
                yield from [Delta(text=text[:4]), Delta(text=text[4:]), MessageEvent(message=Message.assistant(text))]
            case "stream":
                yield _pieces(text)
            case "nothing":
                pass


async def _pieces(text: str) -> AsyncIterator[Chunk]:
    yield Chunk(text=text[:4])
    await asyncio.sleep(0)
    yield Chunk(text=text[4:], usage=USAGE)
