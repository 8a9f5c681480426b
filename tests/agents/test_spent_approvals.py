"""Approvals are spent where they were given: not on forks, not on other branches."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypedDict

import pytest

from adjourn import Approve, ChatModelAgent, Reject, Runner, ToolCall, current, interrupt, once, tool, workflow
from adjourn.graph import START, StateGraph
from adjourn.sessions import Sessions
from adjourn.stores import Store
from adjourn.testing import FakeClock, FunctionModel

paid: list[str] = []


@tool(approval=True)
async def pay(cents: int) -> str:
    """Pay."""
    paid.append(current().idempotency_key)
    return "paid"


@pytest.fixture(autouse=True)
def nothing_paid() -> None:
    paid.clear()


def payer(store: Store) -> Runner:
    def model(request: Any) -> Any:
        if request.messages[-1].role == "tool":
            return f"done: {request.messages[-1].text}"
        return ToolCall(id="c", name="pay", arguments={"cents": 900})

    return Runner(ChatModelAgent("Payer", model=FunctionModel(model), tools=[pay]), store=store)


async def test_an_answered_approval_is_asked_anew_on_every_fork(store: Store) -> None:  # rule R16
    runner, sessions = payer(store), Sessions(store)
    (asked,) = (await runner.run("pay", session_id="s1")).interrupts
    await sessions.answer("s1", {asked: True}, by="ann")
    forks = [await sessions.fork("s1") for _ in range(3)]
    results = [await payer(store).recover(name) for name in ("s1", *forks)]
    assert [result.status for result in results] == ["done", *["interrupted"] * 3]
    assert len(paid) == 1
    for fork in forks:
        (again,) = await sessions.pending(fork)
        assert (again.id, again.info) == (asked.id, asked.info)
        assert again.token != asked.token
        assert [(entry.outcome, entry.inherited) for entry in await sessions.audit(fork)] == [(None, False)]
    assert (await runner.resume(forks[0], {asked.id: Reject("once is enough")})).status == "done"
    assert len(paid) == 1


async def test_going_back_to_the_resume_asks_anew(store: Store) -> None:  # rule R16
    runner = payer(store)
    (asked,) = (await runner.run("pay", session_id="s")).interrupts
    assert (await runner.resume("s", {asked: True}, by="ann")).status == "done"
    (point,) = await runner.history("s", source="resume")
    again = await runner.run(None, session_id="s", checkpoint_id=point.id)
    assert again.status == "interrupted"
    assert len(paid) == 1
    (entry,) = await runner.audit("s")
    assert (entry.outcome, entry.by) == (None, None)
    assert (await runner.resume("s", {again.interrupts[0]: True}, by="bob")).status == "done"
    assert len(set(paid)) == 2
    assert [(each.by, each.inherited) for each in await runner.audit("s")] == [("bob", False)]


async def test_an_edit_is_a_branch_too(store: Store) -> None:  # rule R16
    runner = payer(store)
    (asked,) = (await runner.run("pay", session_id="s")).interrupts
    await runner.answer("s", {asked: True})
    await runner.edit("s", {"values": {"tone": "dry"}})
    assert (await runner.recover("s")).status == "interrupted"
    assert paid == []


async def test_a_fork_of_the_fork_and_a_branch_by_fork(store: Store) -> None:  # rule R16
    runner, sessions = payer(store), Sessions(store)
    (asked,) = (await runner.run("pay", session_id="s")).interrupts
    one = await sessions.fork("s", to="one")
    await sessions.answer(one, {"approval": True})
    two = await sessions.fork(one, to="two")
    assert await sessions.fork(one, to=one) == one
    assert (await runner.recover(two)).status == (await runner.recover(one)).status == "interrupted"
    assert (await runner.resume("s", {asked: True})).status == "done"
    assert len(paid) == 1


@workflow
async def signed(input: str) -> Any:
    name = interrupt("Your name?", key="name")
    approved = interrupt({"sign as": name}, key="sign", reason="need_approval", schema=bool, expires_in=60)
    interrupt("Anything else?", key="more")
    return [name, approved]


async def test_data_carries_over_and_is_marked_as_inherited(store: Store) -> None:  # rule R16
    runner = Runner(signed, store=store)
    await runner.run("x", session_id="s")
    await runner.resume("s", {"name": "Ada"}, by="ada")
    await runner.resume("s", {"sign": True}, by="ada")
    fork = await runner.fork("s")
    assert {asked.key for asked in await runner.pending(fork)} == {"sign", "more"}
    audit = {entry.interrupt.key: entry for entry in await runner.audit(fork)}
    assert (audit["name"].outcome, audit["name"].by, audit["name"].inherited) == ("answered", "ada", True)
    assert audit["sign"].outcome is None
    assert not any(entry.inherited for entry in await runner.audit("s"))
    assert (await runner.resume(fork, {"sign": False, "more": "no"})).value == ["Ada", False]
    assert (await runner.resume("s", {"more": "no"})).value == ["Ada", True]


async def test_its_time_is_counted_anew() -> None:  # rule R16
    clock = FakeClock()
    runner = Runner(signed, clock=clock)
    await runner.run("x", session_id="s")
    (asked,) = (await runner.resume("s", {"name": "Ada"})).interrupts
    clock.advance(50)
    await runner.resume("s", {"sign": True})
    clock.advance(50)
    fork = await runner.fork("s")
    again = next(each for each in await runner.pending(fork) if each.key == "sign")
    assert asked.created is not None
    assert asked.expires is not None
    assert again.created == asked.created + timedelta(seconds=100)
    assert again.expires == asked.expires + timedelta(seconds=100)


async def test_what_was_remembered_for_the_session_stays_there(store: Store) -> None:  # rule R16, rule T5
    runner = payer(store)
    (asked,) = (await runner.run("pay", session_id="s")).interrupts
    await runner.resume("s", {asked: Approve(remember="session")})
    fork = await runner.fork("s")
    assert (await runner.run("pay", session_id=fork)).status == "interrupted"
    assert (await runner.run("pay", session_id="s")).status == "done"
    assert len(paid) == 2


async def test_in_a_graph_only_the_asking_task_waits_again(store: Store) -> None:  # rule R16
    begun: list[str] = []

    @once
    async def charge(name: str) -> str:
        begun.append(name)
        return name

    async def ask(state: dict[str, Any]) -> dict[str, Any]:
        await charge("before")
        return {"ok": interrupt("May I?", key="may", reason="need_approval", schema=bool)}

    async def tell(state: dict[str, Any]) -> dict[str, Any]:
        return {"told": interrupt("What?", key="what")}

    schema = {"ok": bool, "told": str}
    graph = (
        StateGraph(_typed(schema), name="g")
        .add_node("ask", ask)
        .add_node("tell", tell)
        .add_edge(START, "ask")
        .add_edge(START, "tell")
        .compile(store=store)
    )
    await graph.run({}, session_id="s")
    await Sessions(store).answer("s", {"may": True, "what": "that"})
    fork = await graph.fork("s")
    paused = await graph.recover(fork)
    assert [asked.key for asked in paused.interrupts] == ["may"]
    assert begun == ["before"]
    assert (await graph.resume(fork, {"may": False})).state == {"ok": False, "told": "that"}
    assert (await graph.recover("s")).state == {"ok": True, "told": "that"}
    assert begun == ["before"]


def _typed(fields: dict[str, Any]) -> Any:
    return TypedDict("Fields", fields, total=False)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("depth", [1, 2])
async def test_the_same_below_agents_in_agents(store: Store, depth: int) -> None:  # rule R16
    def inner_model(request: Any) -> Any:
        last = request.messages[-1]
        return "paid it" if last.role == "tool" else ToolCall(id="c", name="pay", arguments={"cents": 1})

    agent = ChatModelAgent("Inner", model=FunctionModel(inner_model), tools=[pay])
    for number in range(depth):

        def outer_model(request: Any, name: str = agent.name) -> Any:
            last = request.messages[-1]
            return "done" if last.role == "tool" else ToolCall(id="d", name=name, arguments={"request": "pay"})

        agent = ChatModelAgent(f"Outer{number}", model=FunctionModel(outer_model), tools=[agent.as_tool()])
    runner = Runner(agent, store=store)
    (asked,) = (await runner.run("pay", session_id="s")).interrupts
    await runner.answer("s", {asked: True})
    fork = await runner.fork("s")
    assert (await runner.recover("s")).status == "done"
    assert (await runner.recover(fork)).status == "interrupted"
    assert len(paid) == 1


def twice(store: Store, **options: Any) -> Runner:
    @tool(approval=True, name="pay", **options)
    async def pay(cents: int) -> str:
        """Pay."""
        paid.append(str(cents))
        return f"paid {cents}"

    def model(request: Any) -> Any:
        if request.messages[-1].role == "tool":
            return "/".join(message.text for message in request.messages if message.role == "tool")
        return [ToolCall(id=f"c{cents}", name="pay", arguments={"cents": cents}) for cents in (1, 2)]

    return Runner(ChatModelAgent("Payer", model=FunctionModel(model), tools=[pay]), store=store)


@pytest.mark.parametrize("at_most_once", [False, True])
@pytest.mark.parametrize("way", ["fork", "branch", "travel", "edit"])
async def test_what_has_finished_is_not_asked_again(store: Store, way: str, at_most_once: bool) -> None:
    # rules R16, R7
    runner = twice(store, at_most_once=at_most_once)
    first, second = (await runner.run("pay", session_id="s")).interrupts
    paused = await runner.resume("s", {first: True}, by="ann")
    session = "s"
    match way:
        case "fork":
            session = await twice(store, at_most_once=at_most_once).fork("s")
        case "branch":
            await runner.fork("s", to="s")
        case "travel":
            await runner.run(None, session_id="s", checkpoint_id=paused.checkpoint_id)
        case _:
            await runner.edit("s", {"values": {"tone": "dry"}})
            await runner.recover("s")
    (left,) = await runner.pending(session)
    assert left.address == second.address
    result = await twice(store, at_most_once=at_most_once).resume(session, {left: True})
    assert (result.output, paid) == ("paid 1/paid 2", ["1", "2"])
    audit = {entry.interrupt.address: (entry.by, entry.inherited) for entry in await runner.audit(session)}
    assert audit[first.address] == ("ann", way != "travel")


async def test_what_a_child_remembered_stays_in_its_session_too(store: Store) -> None:  # rule R16
    agent = payer(store).program

    @workflow
    async def work(input: str) -> str:
        await current().run(agent, "one", key="a")
        interrupt("go on?", key="go")
        await current().run(agent, "two", key="b")
        return "end"

    runner = Runner(work, store=store)
    (asked,) = (await runner.run("x", session_id="s")).interrupts
    await runner.resume("s", {asked: Approve(remember="session")})
    fork = await runner.fork("s")
    assert (await runner.resume(fork, {"go": 1})).status == "interrupted"
    assert (await runner.resume("s", {"go": 1})).status == "done"
    assert len(paid) == 2


async def test_the_audit_of_a_branch_begins_at_the_root(store: Store) -> None:  # rule R16
    """Whoever approved something before a branch began is named there too, and the approval stays spent."""
    runner = payer(store)
    await runner.run("pay", session_id="s")
    await runner.resume("s", {"approval": True}, by="ann")
    paused = (await runner.history("s", source="interrupt"))[0].id

    async def audit(name: str) -> list[tuple[str | None, str | None, bool]]:
        return [(entry.by, entry.outcome, entry.inherited) for entry in await runner.audit(name)]

    assert await audit(await runner.fork("s")) == [("ann", "answered", True)]
    assert await audit(await runner.fork(await runner.fork("s"))) == [("ann", "answered", True)]
    await runner.edit("s", {"values": {"tone": "dry"}})
    assert await audit("s") == [("ann", "answered", True)]
    await runner.run("pay again", session_id="s")
    await runner.resume("s", {"approval": True}, by="bob")
    assert await audit("s") == [("ann", "answered", True), ("bob", "answered", False)]
    assert len(paid) == 2
    assert await audit(await runner.fork("s", checkpoint_id=paused)) == [(None, None, False)]
    await runner.edit("s", {"values": {"tone": "dry"}}, checkpoint_id=paused)
    assert await audit("s") == []
    assert (await runner.recover("s")).status == "interrupted"
    assert len(paid) == 2


async def test_the_audit_of_a_graph_branch_begins_at_the_root(store: Store) -> None:  # rule R16
    class Sums(TypedDict, total=False):
        x: int

    def one(state: Sums) -> Sums:
        return {"x": interrupt("1", key="one", schema=int)}

    def two(state: Sums) -> Sums:
        return {"x": interrupt("2", key="two", schema=int)}

    builder = StateGraph(Sums, name="sums").add_node(one).add_node(two)
    graph = builder.add_edge(START, "one").add_edge("one", "two").compile(store=store)
    await graph.run({}, session_id="s")
    await graph.resume("s", {"one": 1}, by="ann")
    between = (await graph.history("s", source="interrupt"))[0].id
    fork = await graph.fork("s")
    await graph.resume("s", {"two": 2}, by="bob")
    await graph.run(None, session_id="s", checkpoint_id=between)
    for name in ("s", fork):
        found = [(entry.by, entry.outcome, entry.inherited) for entry in await graph.audit(name)]
        assert found == [("ann", "answered", True), (None, None, False)]
    await graph.edit("s", {"x": 5})
    assert (await graph.recover("s")).status == "interrupted"
    found = [(entry.by, entry.outcome, entry.inherited) for entry in await graph.audit("s")]
    assert found == [("ann", "answered", True), (None, None, False)]
