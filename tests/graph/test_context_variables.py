"""Context variables: what code of a run sets is its own, and what its caller has set is there."""

import asyncio
from contextvars import ContextVar
from typing import Any

import pytest

from adjourn import Agent, ChatModelAgent, Middleware, Retry, Runner, current, interrupt, once, tool, workflow
from adjourn.graph import START, Command, StateGraph
from adjourn.messages import ToolCall
from adjourn.stores import Store
from adjourn.testing import ScriptedModel
from tests._engine.asking import Log, lone

var: ContextVar[str] = ContextVar("var", default="unset")


async def sets(state: Any) -> Any:
    var.set("leaked")
    return {"log": [var.get()]}


async def sets_and_waits(state: Any) -> Any:
    var.set("leaked")
    await asyncio.sleep(0)
    return {"log": [var.get()]}


def sets_sync(state: Any) -> Any:
    var.set("leaked")
    return {"log": [var.get()]}


async def reads(state: Any) -> Any:
    return {"log": [var.get()]}


def reads_sync(state: Any) -> Any:
    return {"log": [var.get()]}


@pytest.mark.parametrize("thread", [True, False])
@pytest.mark.parametrize("first", [sets, sets_and_waits, sets_sync], ids=lambda node: node.__name__)
@pytest.mark.parametrize("second", [reads, reads_sync], ids=lambda node: node.__name__)
async def test_a_node_does_not_see_what_another_has_set(first: Any, second: Any, thread: bool):  # rule G17
    graph = StateGraph(Log).add_node("first", first, thread=thread).add_node("second", second, thread=thread)
    result = await graph.add_sequence(START, "first", "second").compile().run({})
    assert result.state["log"] == ["leaked", "unset"]


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_condition_neither_sees_nor_leaves_anything(is_async: bool):  # rule G17
    seen: list[str] = []

    def condition(state: Any) -> str:
        seen.append(var.get())
        var.set("of the condition")
        return "end"

    async def async_condition(state: Any) -> str:
        return condition(state)

    graph = StateGraph(Log).add_node("first", sets).add_node("end", reads).add_edge(START, "first")
    graph.add_conditional_edges("first", async_condition if is_async else condition)
    assert (await graph.compile().run({})).state["log"] == ["leaked", "unset"]
    assert seen == ["unset"]


async def test_what_a_failed_attempt_has_set_is_gone():  # rules G17, G12
    tries: list[str] = []

    async def node(state: Any) -> Any:
        tries.append(var.get())
        var.set("leaked")
        if len(tries) < 3:
            raise ConnectionError("away")

    graph = StateGraph(Log).add_node("node", node, retry=Retry(attempts=3, backoff=0)).add_edge(START, "node")
    await graph.compile().run({})
    assert tries == ["unset"] * 3


async def test_a_nested_graph_and_its_caller_leave_each_other_alone():  # rules G17, G15
    async def calls(state: Any) -> Any:
        var.set("of the caller")
        inner = await current().run(lone(sets, name="inner"), {})
        also = await lone(reads, name="reading").invoke({})
        return {"log": [*inner["log"], *also["log"], var.get()]}

    graph = StateGraph(Log).add_node("sub", lone(sets, name="sub")).add_node("calls", calls).add_node("reads", reads)
    result = await graph.add_sequence(START, "sub", "calls", "reads").compile().run({})
    assert result.state["log"] == ["leaked", "leaked", "of the caller", "of the caller", "unset"]


async def test_a_later_turn_and_a_resume_see_what_their_callers_have_set(store: Store):  # rule G17
    async def node(state: Any) -> Any:
        before = var.get()
        var.set("leaked")
        interrupt("q", key="q")
        return {"log": [before, var.get()]}

    graph = lone(node, store=store)
    await graph.run({}, session_id="s")
    var.set("resumed")
    assert (await graph.resume("s", {"q": 1})).state["log"] == ["resumed", "leaked"]
    assert var.get() == "resumed"


async def test_tasks_of_one_superstep_do_not_see_each_other():  # rule G17
    async def spread(state: Any) -> Any:
        return [Command(goto="sets"), Command(goto="reads"), Command(goto="reads")]

    graph = StateGraph(Log).add_node("spread", spread).add_node("sets", sets_and_waits).add_node("reads", reads)
    result = await graph.add_edge(START, "spread").compile().run({})
    assert result.state["log"] == ["leaked", "unset", "unset"]


async def test_code_sees_what_it_has_set_itself_to_its_end():  # rule G17
    @once
    async def pay() -> str:
        return var.get()

    @workflow
    async def flow(_: Any = None) -> list[str]:
        var.set("mine")
        await asyncio.sleep(0)
        async with asyncio.timeout(10):
            in_task = asyncio.create_task(asyncio.to_thread(var.get))
            return [var.get(), await pay(), await in_task, await asyncio.shield(asyncio.create_task(read()))]

    async def read() -> str:
        return var.get()

    assert (await Runner(flow).run(None)).value == ["mine"] * 4


async def test_tools_and_hooks_of_an_agent_leave_nothing():  # rule G17
    seen: list[str] = []

    @tool
    async def first() -> str:
        """Set it."""
        seen.append(var.get())
        var.set("leaked")
        return "ok"

    class Sets(Middleware):
        async def wrap_tool(self, call: Any, request: Any) -> Any:
            before = var.get()
            var.set("of the hook")
            try:
                return await call(request)
            finally:
                seen.append(before)

    model = ScriptedModel(
        [ToolCall(id="a", name="first", arguments={}), ToolCall(id="b", name="first", arguments={}), "done"]
    )
    agent: Agent = ChatModelAgent("a", model=model, tools=[first], middleware=[Sets()])
    await Runner(agent).run("go")
    assert seen == ["of the hook", "unset"] * 2


async def test_a_cancel_and_a_timeout_reach_code_through_its_context():  # rule G13
    cut: list[str] = []

    async def node(state: Any) -> Any:
        var.set("mine")
        try:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError:
            cut.append(var.get())
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cut.append(var.get())
            raise

    graph = StateGraph(Log).add_node("node", node, timeout=0.1).add_edge(START, "node").compile()
    with pytest.raises(Exception, match=r"0\.1"):
        await graph.run({})
    assert cut == ["mine", "mine"]


async def test_code_that_returns_another_awaitable_works():
    """As a wrapper of an async function may."""

    class Later:
        def __init__(self, value: Any) -> None:
            self.value = value

        def __await__(self) -> Any:
            yield from asyncio.sleep(0).__await__()
            return self.value

    class Flow:
        async def __call__(self, state: Any) -> Any:
            return await Later({"log": ["later"]})

    assert (await lone(Flow()).run({})).state["log"] == ["later"]
