"""What is kept of graph agents: over hand-overs, pauses, crashes, cancels and slow readers."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
import pytest

from adjourn import ChatModelAgent, GraphAgent, Runner, interrupt, tool
from adjourn.errors import ProgramChanged, StoreUnavailable
from adjourn.events import Done, NodeEnd
from adjourn.graph import END, START, MessagesState, StateGraph, append
from adjourn.stores import MemoryStore, SessionRef, Store
from adjourn.stores.kit import GetHead
from adjourn.testing import FakeClock, FaultStore, FunctionModel, ScriptedModel
from tests.conftest import Buffer

from .crew import ask, call, chat, ids, said, transfer


class Box(msgspec.Struct):
    n: int


class Boxes(msgspec.Struct):
    user_input: str = ""
    last_response: str = ""
    boxes: Annotated[list[Box], append] = []


def boxer() -> GraphAgent:
    def fill(state: Boxes) -> dict[str, Any]:
        total = sum(box.n for box in state.boxes)
        return {"boxes": [Box(len(state.user_input))], "last_response": f"{total} before"}

    return GraphAgent("G", StateGraph(Boxes, name="inner").add_node("fill", fill).add_edge(START, "fill").compile())


async def test_values_of_classes_are_kept_between_hand_overs(store: Store) -> None:  # rules L8, S10
    for turn, (given, expected) in enumerate((("abc", "0 before"), ("de", "3 before"), ("f", "5 before"))):
        root = chat("Root", transfer("G", f"t{turn}"), sub_agents=[boxer()])
        result = await Runner(root, store=store, after_transfer="root").run(given, session_id="s")
        assert result.output == expected


async def test_a_fork_and_an_older_checkpoint_have_the_state_of_then(store: Store) -> None:  # rules L8, C4
    def runner(*script: Any) -> Runner:
        return Runner(chat("Root", *script, sub_agents=[boxer()]), store=store)

    await runner(transfer("G")).run("abc", session_id="s")
    fork = await runner().fork("s")
    assert (await runner().run("de", session_id="s")).output == "3 before"
    assert (await runner().run("defg", session_id=fork)).output == "3 before"
    assert (await runner().run("x", session_id=fork)).output == "7 before"


async def test_what_a_tool_of_a_session_kept_is_gone_with_its_call(store: Store) -> None:  # rules L8, A6
    def inner(*script: Any) -> ChatModelAgent:
        return chat("Inner", *script, sub_agents=[boxer()])

    calls = [call("Inner", "a", request="abc"), call("Inner", "b", request="de")]
    root = chat("Root", *calls, "end", tools=[inner(transfer("G"), transfer("G"))])
    result = await Runner(root, store=store).run("go", session_id="s")
    assert said(result.messages) == ["user: go", "tool: 0 before", "tool: 0 before", "assistant: end"]


def asking(node: str) -> GraphAgent:
    """A graph agent that asks in a node of this name."""

    def ask_there(state: Boxes) -> dict[str, Any]:
        return {"last_response": interrupt("Well?", key="well", schema=str)}

    graph = StateGraph(Boxes, name="inner").add_node(node, ask_there).add_edge(START, node)
    return GraphAgent("G", graph.compile())


async def test_one_whose_graph_has_changed_can_be_read_and_cancelled(store: Store) -> None:  # rule L8
    await Runner(asking("old"), store=store).run("hi", session_id="s")
    changed = Runner(asking("new"), store=store)
    assert said(await changed.messages("s")) == ["user: hi"]
    assert await changed.cancel("s")
    with pytest.raises(ProgramChanged, match="old"):
        await changed.recover("s")
    same = Runner(asking("old"), store=store)
    assert (await same.recover("s")).status == "interrupted"
    assert (await same.resume("s", {"well": "fine"})).output == "fine"


# Halts of the graph, and travel to its steps


def stepping(**compiled: Any) -> GraphAgent:
    def step(name: str) -> Any:
        def run(state: Any) -> dict[str, Any]:
            return {"metadata": {name: len(state["metadata"])}, "last_response": name}

        return run

    graph = StateGraph(MessagesState, name="inner")
    for name in "abc":
        graph.add_node(name, step(name))
    return GraphAgent("G", graph.add_sequence(START, "a", "b", "c").compile(**compiled))


async def test_a_graph_may_halt_before_and_after_its_nodes(store: Store) -> None:  # rules I9, L8
    def runner() -> Runner:
        return Runner(stepping(interrupt_before=["b"], interrupt_after=["c"]), store=store)

    paused = await runner().run("go", session_id="s")
    assert (paused.state["metadata"], len(ids(paused))) == ({"a": 0}, 1)
    paused = await runner().resume("s")
    assert (paused.state["metadata"], len(ids(paused))) == ({"a": 0, "b": 1, "c": 2}, 1)
    result = await runner().resume("s")
    assert (result.status, result.output) == ("done", "c")


async def test_a_run_goes_on_from_any_step_of_the_graph(store: Store) -> None:  # rules C4, L8
    runner = Runner(stepping(), store=store)
    await runner.run("go", session_id="s")
    points = await runner.history("s")
    before = next(point for point in points if point.next == ("b",))
    assert before.state["metadata"] == {"a": 0}
    edited = await runner.edit("s", {"metadata": {"x": 9}}, checkpoint_id=before.id)
    result = await Runner(stepping(), store=store).run(None, session_id="s", checkpoint_id=edited.id)
    assert result.state["metadata"] == {"a": 0, "x": 9, "b": 2, "c": 3}
    diff = await runner.diff("s", before.id, result.checkpoint_id or "")
    assert diff.changed["metadata"] == ({"a": 0}, {"a": 0, "x": 9, "b": 2, "c": 3})


# Crashes and cancels


class Notes(MessagesState):
    notes: Annotated[list[str], append]


def counted(ran: list[str]) -> ChatModelAgent:
    """An agent that hands over to a graph with a model, tools and a question."""

    @tool
    async def effect(n: int) -> str:
        """Have an effect."""
        ran.append(f"tool {n}")
        return str(n)

    def think(request: Any) -> Any:
        ran.append("model")
        done = sum(message.role == "tool" for message in request.messages)
        return (
            [call("effect", "e1", n=1), call("ask", "a1", question="?"), call("effect", "e2", n=2)]
            if not done
            else "end"
        )

    def finish(state: Notes) -> dict[str, Any]:
        ran.append("node")
        return {"notes": [interrupt("sure?", key="sure")]}

    graph = (
        StateGraph(Notes, name="inner")
        .add_llm_node("llm", FunctionModel(think), tools=[effect, ask])
        .add_tools_node("tools", [effect, ask])
        .add_node("finish", finish, thread=False)
        .add_edge(START, "llm")
        .add_tools_conditional_edges("llm", "tools", "finish")
        .add_edge("tools", "llm")
        .add_edge("finish", END)
        .compile()
    )
    root = FunctionModel(lambda _: transfer("G"))
    return ChatModelAgent("Root", model=root, sub_agents=[GraphAgent("G", graph)])


ANSWERS = {"agent:Root;agent:G;node:tools;tool:ask:a1": "y", "agent:Root;agent:G;node:finish": "ok"}


@pytest.mark.parametrize("mode", ["before", "after"])
async def test_a_store_that_fails_anywhere_leaves_a_graph_agent_that_recovers(mode: Any) -> None:  # rules C11, L6
    for fail_at in range(1, 80):
        clock = FakeClock()
        inner = MemoryStore(clock=clock)
        store = FaultStore(inner, fail_at, mode)
        ran: list[str] = []
        runner = Runner(counted(ran), store=store, store_timeout=1e-9)
        for _ in range(10):
            try:
                status = (await runner.status("s")).status if await inner.read(GetHead(SessionRef("s"))) else None
                if status is None:
                    await runner.run("go", session_id="s")
                elif status == "waiting":
                    (asked,) = await runner.pending("s")
                    await runner.resume("s", {asked.id: ANSWERS[asked.id]})
                elif status == "done":
                    break
                else:
                    await runner.recover("s")
            except StoreUnavailable:
                clock.advance(60.0)  # The lease that could not be given back runs out.
        done = [event async for event in Runner(counted([]), store=inner).attach("s")][-1]
        assert isinstance(done, Done)
        assert done.output == "end"
        if not store.fired:
            assert ran == ["model", "tool 1", "tool 2", "model", "node", "node"]
            return
    raise AssertionError("the store never stopped failing")


async def test_a_cancelled_graph_agent_recovers(store: Store) -> None:  # rule A12
    started = asyncio.Event()

    def agent(model: Any) -> GraphAgent:
        graph = StateGraph(Notes, name="inner").add_llm_node("llm", model).add_edge(START, "llm").compile()
        return GraphAgent("G", graph)

    async def hang(_: Any) -> str:
        started.set()
        await asyncio.Event().wait()
        return "never"

    run = Runner(agent(FunctionModel(hang)), store=store).run("go", session_id="s")
    running = asyncio.ensure_future(_awaited(run))
    await started.wait()
    await run.cancel()
    assert (await running).status == "cancelled"
    result = await Runner(agent(ScriptedModel(["late"])), store=store).recover("s")
    assert said(result.messages) == ["user: go", "assistant: late"]


async def _awaited(run: Any) -> Any:
    return await run


# Readers


async def test_a_slow_reader_gets_the_final_state_too(store: Store, buffer: Buffer) -> None:  # rules L8, A11
    buffer(1)
    run = Runner(stepping(), store=store).run("go", session_id="s")
    events: list[Any] = []
    async for event in run:
        events.append(event)
        for _ in range(50):
            await asyncio.sleep(0)  # Others get far ahead of this reader.
    done = events[-1]
    assert isinstance(done, Done)
    assert (done.state or {})["metadata"] == {"a": 0, "b": 1, "c": 2}
    assert [event.node for event in events if isinstance(event, NodeEnd)] == ["a", "b", "c"]


async def test_the_ends_that_pruning_leaves_have_their_states(store: Store) -> None:  # rule L8
    runner = Runner(stepping().graph, store=store)
    for turn in range(12):
        await runner.run(f"{turn} {'x' * 20_000}", session_id="s")
    assert await runner.prune("s", keep=1) > 0
    ends = [event async for event in runner.attach("s") if isinstance(event, Done)]
    assert 0 < len(ends) < 12
    assert [int((end.state or {})["user_input"].split()[0]) for end in ends] == list(range(12 - len(ends), 12))
