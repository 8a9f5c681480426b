"""Cancelling agents: at safe points and at once, nested and not; nothing finished is lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from adjourn import (
    Agent,
    Cancelled,
    ChatModelAgent,
    Delta,
    Message,
    MessageEvent,
    ParallelAgent,
    RunContext,
    Runner,
    SequentialAgent,
    ToolResult,
    UnfinishedRun,
    tool,
)
from adjourn.models import Chunk, ModelRequest
from adjourn.stores import Store
from adjourn.testing import FakeClock, FunctionModel
from tests.conftest import MakeStore

from .crew import ask, call, chat, events_of, ids, kinds, model_of, note, said


class Gate:
    """A tool and a model that tell when they are entered, and wait to be let go on."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.open = asyncio.Event()
        self.ran: list[str] = []

    @property
    def tool(self) -> Any:
        @tool
        async def wait(text: str = "x") -> str:
            """Wait at the gate."""
            self.ran.append(text)
            self.entered.set()
            await self.open.wait()
            return f"waited {text}"

        return wait

    async def answer(self, request: ModelRequest) -> str:
        self.ran.append("model")
        self.entered.set()
        await self.open.wait()
        return "answered"


async def started(runner: Runner, gate: Gate, **options: Any) -> Any:
    run = runner.run("go", session_id="s", **options)
    task = asyncio.ensure_future(events_of(run))
    await gate.entered.wait()
    return run, task


async def test_now_stops_a_model_in_its_answer(store: Store) -> None:  # rule A12
    gate = Gate()
    runner = Runner(ChatModelAgent("A", model=FunctionModel(gate.answer)), store=store)
    run, task = await started(runner, gate)
    await run.cancel()
    events = await task
    assert kinds(events) == ["cancelled"]
    assert (await runner.status("s")).status == "cancelled"
    with pytest.raises(UnfinishedRun):
        await runner.run("more", session_id="s")
    gate.open.set()
    assert (await runner.recover("s")).output == "answered"
    assert said(await runner.messages("s")) == ["user: go", "assistant: answered"]


async def test_now_stops_tools_and_keeps_finished_ones(store: Store) -> None:  # rule A12
    gate = Gate()
    done: list[str] = []

    @tool
    async def quick() -> str:
        """Be quick."""
        done.append("quick")
        return "quick"

    def agent(*script: Any) -> ChatModelAgent:
        return chat("A", *script, tools=[quick, gate.tool])

    runner = Runner(agent([call("quick", "c1"), call("wait", "c2")]), store=store)
    run = runner.run("go", session_id="s")
    heard: list[Any] = []

    async def reading() -> None:
        async for event in run:
            heard.append(event)
            if isinstance(event, ToolResult):
                cancelling.append(asyncio.ensure_future(run.cancel()))

    cancelling: list[asyncio.Future[None]] = []
    await reading()
    await asyncio.gather(*cancelling)
    assert isinstance(heard[-1], Cancelled)
    gate.open.set()
    again = agent("end")
    result = await Runner(again, store=store).recover("s")
    assert said(result.messages) == ["user: go", "tool: quick", "tool: waited x", "assistant: end"]
    assert done == ["quick"]


async def test_after_model_lets_the_answer_finish(store: Store) -> None:  # rule A12
    gate = Gate()

    async def model(request: ModelRequest) -> Any:
        await gate.answer(request)
        return call("note", text="x")

    agent = ChatModelAgent("A", model=FunctionModel(model), tools=[note])
    run, task = await started(Runner(agent, store=store), gate)
    stopping = asyncio.ensure_future(run.cancel("after_model"))
    await asyncio.sleep(0)
    gate.open.set()
    await stopping
    events = await task
    assert kinds(events) == ["message", "cancelled"]
    result = await Runner(chat("A", "end", tools=[note]), store=store).recover("s")
    assert said(result.messages) == ["user: go", "tool: noted x", "assistant: end"]


async def test_after_tools_lets_the_batch_finish(store: Store) -> None:  # rule A12
    gate = Gate()
    agent = chat("A", [call("wait", "c1"), call("wait", "c2", text="y")], tools=[gate.tool])
    run, task = await started(Runner(agent, store=store), gate)
    stopping = asyncio.ensure_future(run.cancel("after_tools"))
    await asyncio.sleep(0)
    gate.open.set()
    await stopping
    events = await task
    assert kinds(events, without=("checkpoint", "delta", "tool_call")) == [
        "message",
        "tool_result",
        "tool_result",
        "cancelled",
    ]
    assert len(model_of(agent).requests) == 1
    last = chat("A", "end", tools=[gate.tool])
    assert (await Runner(last, store=store).recover("s")).output == "end"
    assert sorted(gate.ran) == ["x", "y"]


@pytest.mark.parametrize("mode", ["after_model", "after_tools", "after_step"])
async def test_a_timeout_makes_it_now(store: Store, mode: Any) -> None:  # rule A12
    gate = Gate()
    agent = chat("A", call("wait"), tools=[gate.tool])
    run, task = await started(Runner(agent, store=store), gate)
    await run.cancel(mode, timeout=0)
    assert kinds(await task)[-1] == "cancelled"
    gate.open.set()
    assert (await Runner(chat("A", "end", tools=[gate.tool]), store=store).recover("s")).output == "end"
    assert gate.ran == ["x", "x"]


def nested(kind: str, gate: Gate, *script: Any) -> Agent:
    inner = chat("Inner", *script, tools=[gate.tool])
    match kind:
        case "tool":
            return chat("Outer", *([call("Inner", "i1", request="x")] if len(script) > 1 else ["end"]), tools=[inner])
        case "row":
            return SequentialAgent("Outer", agents=[inner])
        case "side":
            return ParallelAgent("Outer", agents=[inner, chat("Other", "other")])
        case _:
            return Running(inner)


class Running(Agent):
    name = "Outer"

    def __init__(self, child: Agent) -> None:
        self.child = child

    async def run(self, input: Any, ctx: RunContext) -> AsyncIterator[Any]:
        yield MessageEvent(message=Message.assistant(await ctx.run(self.child, "x")))


@pytest.mark.parametrize("kind", ["tool", "row", "side", "code"])
@pytest.mark.parametrize("mode", ["now", "after_model", "after_tools", "after_step"])
async def test_cancel_reaches_nested_agents(store: Store, kind: str, mode: Any) -> None:  # rule A12
    gate = Gate()
    run, task = await started(Runner(nested(kind, gate, call("wait", "w1"), call("wait", "w2")), store=store), gate)
    stopping = asyncio.ensure_future(run.cancel(mode))
    await asyncio.sleep(0)
    if mode != "now":
        gate.open.set()
    await stopping
    events = await task
    assert kinds(events)[-1] == "cancelled"
    assert gate.ran == ["x"]
    gate.open.set()
    result = await Runner(nested(kind, gate, "inner end"), store=store).recover("s")
    assert result.status == "done"
    assert len(gate.ran) == {"now": 2, "after_model": 2, "after_tools": 1, "after_step": 1}[mode]


async def test_open_questions_stay_open(store: Store) -> None:  # rule A12
    gate = Gate()
    agent = chat("A", [call("ask", "c1", question="?"), call("wait", "c2")], tools=[ask, gate.tool])
    run, task = await started(Runner(agent, store=store), gate)
    await run.cancel()
    assert kinds(await task)[-1] == "cancelled"
    runner = Runner(chat("A", "end", tools=[ask, gate.tool]), store=store)
    assert [asked.id for asked in await runner.pending("s")] == ["agent:A;tool:ask:c1"]
    gate.open.set()
    paused = await runner.recover("s")
    assert ids(paused) == ["agent:A;tool:ask:c1"]
    result = await runner.resume("s", {"agent:A;tool:ask:c1": "y"})
    assert said(result.messages) == ["user: go", "tool: y", "tool: waited x", "assistant: end"]


async def test_leaving_the_loop_early_stops_at_a_safe_point(store: Store) -> None:  # rule A11
    left = asyncio.Event()

    class Slow:
        async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
            yield Chunk(text="one ")
            await left.wait()
            yield Chunk(text="two")

    runner = Runner(SequentialAgent("Row", agents=[ChatModelAgent("A", model=Slow()), chat("B")]), store=store)
    run = runner.run("go", session_id="s")
    async with contextlib.aclosing(aiter(run)) as events:
        async for event in events:
            if isinstance(event, Delta):
                break
    left.set()
    await run.settled()
    assert (await runner.status("s")).status == "cancelled"
    again = SequentialAgent("Row", agents=[ChatModelAgent("A", model=Slow()), chat("B", "b")])
    result = await Runner(again, store=store).recover("s")
    assert said(result.messages) == ["user: go", "assistant: one two", "assistant: b"]


async def test_a_detached_run_goes_on(store: Store) -> None:  # rule A11
    runner = Runner(chat("A", call("note", text="x"), "one two", tools=[note]), store=store)
    run = runner.run("go", session_id="s")
    run.detach()
    async for _ in run:
        break
    await run.settled()
    assert (await runner.status("s")).status == "done"


async def test_another_runner_may_cancel(make_store: MakeStore) -> None:  # rule A12
    gate, store = Gate(), make_store(FakeClock())  # so that the short lease beats often, and never ends
    _, task = await started(Runner(chat("A", call("wait"), tools=[gate.tool]), store=store, lease_ttl=0.2), gate)
    assert await Runner(chat("A", tools=[gate.tool]), store=store).cancel("s")
    assert kinds(await task)[-1] == "cancelled"


async def test_a_cancelled_awaiter_leaves_a_recoverable_session(store: Store) -> None:  # rule A12
    gate = Gate()
    runner = Runner(chat("A", call("wait"), "end", tools=[gate.tool]), store=store)

    async def wait() -> None:
        await runner.run("go", session_id="s")

    waiting = asyncio.ensure_future(wait())
    await gate.entered.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (await runner.status("s")).status == "cancelled"
    gate.open.set()
    assert (await runner.recover("s")).output == "end"
