"""An edit closes what is asked about the state, and it is asked anew with what is now true."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

import pytest

from adjourn import (
    AlreadyResumed,
    ChatModelAgent,
    Message,
    Runner,
    StaleCheckpoint,
    ToolCall,
    UnknownInterrupt,
    current,
    interrupt,
    once,
    tool,
    workflow,
)
from adjourn.graph import START, CompiledGraph, Overwrite, StateGraph
from adjourn.stores import Store
from adjourn.testing import ScriptedModel

ran: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


class Bill(TypedDict):
    cents: int
    note: NotRequired[str]
    paid: NotRequired[int]


@once
async def reserve(cents: int) -> str:
    ran.append(("reserve", cents))
    return f"r{cents}"


@once
async def greet() -> str:
    ran.append("greet")
    return "hello"


async def pay(state: Bill) -> dict[str, Any]:
    await greet()
    receipt = await reserve(state["cents"])
    name = interrupt("Who?")
    ok = interrupt({"pay": state["cents"], "on": receipt, "for": name}, key="pay", reason="need_approval", schema=bool)
    return {"paid": state["cents"] if ok else 0}


def bill(store: Store) -> CompiledGraph:
    return StateGraph(Bill, name="bill").add_node("pay", pay).add_edge(START, "pay").compile(store=store)


@pytest.mark.parametrize("fresh", [False, True])
async def test_what_was_shown_is_not_paid_after_an_edit(store: Store, fresh: bool) -> None:  # rule C4
    graph = bill(store)
    await graph.run({"cents": 900}, session_id="s")
    (shown,) = (await graph.resume("s", {await only(graph): "Ada"})).interrupts
    if fresh:
        graph = bill(store)
    point = await graph.edit("s", {"cents": 1_000_000})
    assert (point.interrupts, point.next) == ((), ("pay",))
    assert (await graph.status("s")).status == "cancelled"
    for answers in ({shown: True}, {shown.id: True}):
        with pytest.raises((StaleCheckpoint, AlreadyResumed, UnknownInterrupt)):
            await graph.resume("s", answers)
    if fresh:
        graph = bill(store)
    (now,) = (await graph.recover("s")).interrupts
    assert now.info == {"pay": 1_000_000, "on": "r1000000", "for": "Ada"}
    assert ran == ["greet", ("reserve", 900), ("reserve", 1_000_000)]
    assert (await graph.resume("s", {now: True})).state["paid"] == 1_000_000


async def only(graph: CompiledGraph) -> Any:
    (asked,) = await graph.pending("s")
    return asked


async def test_an_edit_of_something_else_gives_back_what_was_done(store: Store) -> None:  # rule C4
    graph = bill(store)
    await graph.run({"cents": 900}, session_id="s")
    await graph.resume("s", {await only(graph): "Ada"})
    await graph.edit("s", {"note": "hurry"})
    (now,) = (await bill(store).recover("s")).interrupts
    assert now.info == {"pay": 900, "on": "r900", "for": "Ada"}
    assert ran == ["greet", ("reserve", 900)]


async def test_finished_siblings_stay_finished(store: Store) -> None:  # rule C4
    async def quick(state: Bill) -> dict[str, Any]:
        ran.append("quick")
        return {"note": "done"}

    def made() -> CompiledGraph:
        graph = StateGraph(Bill, name="bill").add_node("pay", pay).add_node("quick", quick)
        return graph.add_edge(START, "pay").add_edge(START, "quick").compile(store=store)

    await made().run({"cents": 1}, session_id="s")
    await made().edit("s", {"cents": 2})
    await made().recover("s")
    assert ran.count("quick") == 1


@workflow
async def helper(cents: int) -> Any:
    await greet()
    return interrupt({"help with": cents}, key="help")


async def test_children_start_again_with_what_they_are_given_now(store: Store) -> None:  # rule C4
    async def ask(state: Bill) -> dict[str, Any]:
        return {"note": await current().run(helper, state["cents"])}

    def made() -> CompiledGraph:
        return StateGraph(Bill, name="b").add_node("ask", ask).add_edge(START, "ask").compile(store=store)

    await made().run({"cents": 1}, session_id="s")
    await made().edit("s", {"cents": 2})
    graph = made()
    (now,) = (await graph.recover("s")).interrupts
    # It is another call: nothing that the first one kept is its own.
    assert (now.info, ran) == ({"help with": 2}, ["greet", "greet"])
    assert (await graph.resume("s", {now: "yes"})).state == {"cents": 2, "note": "yes"}


async def test_subgraphs_below_start_again(store: Store) -> None:  # rule C4
    def made() -> CompiledGraph:
        inner = StateGraph(Bill, name="inner").add_node("pay", pay).add_edge(START, "pay").compile()
        return StateGraph(Bill, name="outer").add_subgraph("in", inner).add_edge(START, "in").compile(store=store)

    await made().run({"cents": 1}, session_id="s")
    await made().edit("s", {"cents": 2}, at="runnable:outer;node:in")
    assert await made().pending("s") == []
    graph = made()
    (now,) = (await graph.recover("s")).interrupts
    (now,) = (await graph.resume("s", {now: "Ada"})).interrupts
    assert now.info["pay"] == 2


async def test_what_was_done_below_stays_done(store: Store) -> None:  # rule C4
    async def first(state: Bill) -> dict[str, Any]:
        ran.append("first")
        return {}

    def made() -> CompiledGraph:
        inner = StateGraph(Bill, name="inner").add_sequence(first, pay).add_edge(START, "first")
        outer = StateGraph(Bill, name="outer").add_subgraph("in", inner.compile()).add_edge(START, "in")
        return outer.compile(store=store)

    (old,) = (await made().run({"cents": 1}, session_id="s")).interrupts
    await made().edit("s", {"note": "x"})
    (now,) = (await made().recover("s")).interrupts
    assert (now.id, now.info) == (f"{old.id}#2", old.info)
    assert ran == ["first", "greet", ("reserve", 1)]


async def test_an_approval_of_a_call_that_was_edited_is_asked_anew(store: Store) -> None:  # rule C4
    @tool(approval=True)
    async def send(cents: int) -> str:
        """Send."""
        ran.append(cents)
        return "sent"

    call = ToolCall(id="c", name="send", arguments={"cents": 900})
    model = ScriptedModel([call, "done"])
    runner = Runner(ChatModelAgent("A", model=model, tools=[send]), store=store)
    (shown,) = (await runner.run("send", session_id="s")).interrupts
    messages = await runner.messages("s")
    changed = ToolCall(id="c", name="send", arguments={"cents": 5})
    edited = [*messages[:-1], Message.assistant(messages[-1].text, tool_calls=[changed])]
    await runner.edit("s", {"messages": Overwrite(edited)})
    with pytest.raises((StaleCheckpoint, AlreadyResumed, UnknownInterrupt)):
        await runner.resume("s", {shown: True})
    (now,) = (await runner.recover("s")).interrupts
    assert now.info.arguments == {"cents": 5}
    assert (await runner.resume("s", {now: True})).status == "done"
    assert ran == [5]


async def test_a_static_interrupt_shows_the_edited_state(store: Store) -> None:  # rules C4, I8
    graph = StateGraph(Bill, name="bill").add_node("pay", pay).add_edge(START, "pay")
    compiled = graph.compile(store=store, interrupt_before=["pay"])
    await compiled.run({"cents": 1}, session_id="s")
    await compiled.edit("s", {"cents": 2})
    (now,) = (await compiled.recover("s")).interrupts
    assert now.info["state"]["cents"] == 2
