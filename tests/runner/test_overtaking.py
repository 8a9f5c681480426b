"""A message that does not wait: the turn before it is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, TypeVar

import pytest

from adjourn import (
    ChatModelAgent,
    Runner,
    SequentialAgent,
    SessionBusy,
    ToolCall,
    UsageError,
    current,
    interrupt,
    tool,
    workflow,
)
from adjourn.errors import ModelError, PendingInterrupts
from adjourn.stores import Store
from adjourn.stores.kit import ListCheckpoints, ListDue, ListEvents, StoreQuery
from adjourn.stores.types import SessionRef
from adjourn.testing import FaultStore, FunctionModel

from .programs import Gate, begin, line, step, turns

T = TypeVar("T")


class Desk:
    """An agent whose tool waits at a gate, in the runner of one process; each one's tools are noted."""

    def __init__(self, store: Store, *, is_nested: bool = False) -> None:
        self.gate = Gate()
        self.calls: list[str] = []

        @tool
        async def work(what: str) -> str:
            """Work."""
            self.calls.append(f"begin {what}")
            if what == "slow":
                await self.gate.wait()
            self.calls.append(f"end {what}")
            return f"{what} is done"

        def answer(request: Any) -> Any:
            last = request.messages[-1]
            if last.role == "user" and last.text in ("slow", "quick"):
                return ToolCall(id=f"c{len(request.messages)}", name="work", arguments={"what": last.text})
            return f"said {last.text}"

        agent = ChatModelAgent("Desk", model=FunctionModel(answer), tools=[work])
        self.runner = Runner(SequentialAgent("Desks", agents=[agent]) if is_nested else agent, store=store)

    async def texts(self, session_id: str = "s") -> list[str]:
        return [f"{each.role}: {each.text}" for each in await self.runner.messages(session_id) if each.text]


class Followed(FaultStore):
    """A store that notes when somebody follows a run through it: by then the run was told to stop."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner, fail_at=0, times=0)
        self.reached = asyncio.Event()

    async def read(self, query: StoreQuery[T]) -> T:
        asked: object = query
        if isinstance(asked, ListEvents):
            self.reached.set()
        return await super().read(query)


async def test_a_free_session_needs_no_room(store: Store):  # rule V11
    desk = Desk(store)
    assert (await desk.runner.run("a", session_id="s", on_busy="cancel")).status == "done"
    assert (await desk.runner.run("b", session_id="s", on_busy="cancel")).output == "said b"
    assert (await desk.runner.run("new", on_busy="cancel")).output == "said new"


@pytest.mark.parametrize("where", ["in this process", "in another"])
async def test_cancel_lets_tools_end_and_goes_on_from_there(store: Store, where: str):  # rule V11
    followed = Followed(store)
    other = Desk(followed)
    desk = other if where == "in this process" else Desk(store)
    first = begin(desk.runner.run("slow", session_id="s"))
    await desk.gate.reached.wait()
    with pytest.raises(SessionBusy):
        await other.runner.run("quick", session_id="s")
    second = begin(other.runner.run("quick", session_id="s", on_busy="cancel"))
    await followed.reached.wait()
    desk.gate.opened.set()
    assert (await second).output == "said quick is done"
    assert (await first).status == "cancelled"
    assert desk.calls[:2] == ["begin slow", "end slow"]
    assert await other.texts() == [
        "user: slow",
        "tool: slow is done",
        "user: quick",
        "tool: quick is done",
        "assistant: said quick is done",
    ]


async def roll_back(runner: Runner[Any, Any, Any], running: asyncio.Task[Any]) -> None:
    """Cancel the turn that runs at once, and let the session stand where the one before it ended."""
    await runner.cancel("s", mode="now")
    await asyncio.wait([running])
    before = next(each.id for each in await runner.history("s") if each.source == "end")
    await runner.run(None, session_id="s", checkpoint_id=before)


async def test_a_turn_can_be_cancelled_and_left(store: Store):
    desk, other = Desk(store), Desk(store)
    await desk.runner.run("hello", session_id="s")
    first = begin(desk.runner.run("slow", session_id="s"))
    await desk.gate.reached.wait()
    await roll_back(other.runner, first)
    assert await other.texts() == ["user: hello", "assistant: said hello"]
    result = await other.runner.run("quick", session_id="s")
    assert (result.output, desk.calls) == ("said quick is done", ["begin slow"])  # it was cut off
    assert [text for text in await other.texts() if text.startswith("user: ")] == ["user: hello", "user: quick"]
    tree = await other.runner.tree("s")
    assert len({each.id.rpartition(".")[0] for _, each in tree}) == 2  # what was left is still there


async def test_what_may_happen_once_is_asked_about_after_a_rollback(store: Store):  # rule T6, failures 30
    gate, calls = Gate(), list[str]()

    @tool(at_most_once=True)
    async def pay(cents: int) -> str:
        """Pay."""
        calls.append("pay")
        await gate.wait()
        return "paid"

    def answer(request: Any) -> Any:
        if request.messages[-1].text != "pay":
            return "ok"
        return ToolCall(id="c", name="pay", arguments={"cents": 5})

    def made() -> Runner[Any, Any, Any]:
        return Runner(ChatModelAgent("Desk", model=FunctionModel(answer), tools=[pay]), store=store)

    await made().run("hello", session_id="s")
    first = begin(made().run("pay", session_id="s"))
    await gate.reached.wait()
    await roll_back(made(), first)
    second = await made().run("pay", session_id="s")
    assert second.status == "interrupted"  # it may have happened
    assert calls == ["pay"]


async def test_what_ran_on_any_branch_is_asked_about_after_a_rollback(store: Store):  # rule T6, failures 30
    gate, calls = Gate(), list[str]()

    @tool(at_most_once=True)
    async def pay(cents: int) -> str:
        """Pay."""
        calls.append("pay")
        return "paid"

    async def answer(request: Any) -> Any:
        if request.messages[-1].text == "hello":
            return "ok"
        if request.messages[-1].role != "tool":
            return ToolCall(id="c", name="pay", arguments={"cents": 5})
        if not is_edited:
            raise RuntimeError("the model is away")
        await gate.wait()
        return "ok"

    def made() -> Runner[Any, Any, Any]:
        return Runner(ChatModelAgent("Desk", model=FunctionModel(answer), tools=[pay]), store=store)

    await made().run("hello", session_id="s")
    is_edited = False
    with pytest.raises(ModelError):
        await made().run("pay", session_id="s")
    await made().edit("s", {"values": {"tone": "dry"}})
    is_edited = True
    again = begin(made().recover("s"))
    await gate.reached.wait()
    await roll_back(made(), again)
    second = await made().run("pay", session_id="s")
    assert (second.status, calls) == ("interrupted", ["pay"])


async def test_several_messages_at_once_come_one_after_the_other(store: Store):  # rule V11
    desk = Desk(store)
    first = begin(desk.runner.run("slow", session_id="s"))
    await desk.gate.reached.wait()
    others = [begin(Desk(store).runner.run(f"m{number}", session_id="s", on_busy="cancel")) for number in range(4)]
    await turns()
    desk.gate.opened.set()
    results = await asyncio.gather(*others, first, return_exceptions=True)
    assert not [each for each in results if isinstance(each, BaseException)]
    assert (await desk.runner.status("s")).status in ("done", "cancelled")
    said = await desk.texts()
    assert {text for text in said if text.startswith("user: m")} == {f"user: m{number}" for number in range(4)}


async def test_nothing_makes_room_for_what_could_not_begin(store: Store):  # rule V11
    gate = Gate()

    @workflow
    async def wait(wish: str) -> str:
        if wish == "slow":
            await gate.wait()
        return f"{wish}!"

    runner = Runner(wait, store=store)
    first = begin(runner.run("slow", session_id="s"))
    await gate.reached.wait()
    await runner.submit("behind", session_id="s", id="behind")
    for wrong in (5, object()):
        with pytest.raises(UsageError, match="does not fit"):
            await runner.run(wrong, session_id="s", on_busy="cancel")
    assert [each.id for each in await runner.inputs("s")] == ["behind"]
    gate.opened.set()
    assert (await first).value == "slow!"


async def test_a_turn_that_was_handed_over_is_in_the_way_too(store: Store):  # rule V11
    gate = Gate()

    async def node(state: Mapping[str, Any]) -> dict[str, Any]:
        await gate.wait()
        return {"done": ["old"]}

    run = line(("a", node), store=store).run({}, session_id="s")
    waiting = begin(run)
    await gate.reached.wait()
    await run.hand_over(timeout=0)
    await waiting
    graph = line(("a", step("new")), store=store)
    with pytest.raises(SessionBusy):
        await graph.run({}, session_id="s")
    assert (await graph.run({}, session_id="s", on_busy="cancel")).state["done"] == ["new"]


async def test_what_is_submitted_can_overtake_as_well(store: Store):  # rule V11
    desk = Desk(store)
    await desk.runner.run("hello", session_id="s")
    first = begin(desk.runner.run("slow", session_id="s"))
    await desk.gate.reached.wait()
    followed = Followed(store)
    other = Desk(followed)
    await other.runner.submit("waits", session_id="s", id="behind")
    submitting = asyncio.create_task(other.runner.submit("quick", session_id="s", id="mine", on_busy="cancel"))
    await followed.reached.wait()
    desk.gate.opened.set()
    submitted, listed = await submitting, await other.runner.sessions()
    # What was stopped is shown as that until a process begins the new turn.
    assert (submitted.session_id, submitted.status, submitted.waiting) == ("s", "cancelled", 1)
    assert [(each.status, each.inputs) for each in listed] == [("cancelled", 1)]
    assert [each.session_id for each in await other.runner.sessions(status="cancelled")] == ["s"]
    assert [(each.id, each.input) for each in await other.runner.inputs("s")] == [("mine", "quick")]
    assert [(each.session, each.why) for each in await store.read(ListDue())] == [("s", "input")]
    assert (await first).status == "cancelled"
    await other.runner.submit("quick", session_id="s", id="mine", on_busy="cancel")  # again: it adds and stops nothing
    result = await other.runner.advance("s")
    await other.runner.submit("quick", session_id="s", id="mine", on_busy="cancel")
    assert result.output == "said quick is done"
    said = await other.texts()
    assert "user: slow" in said
    assert said.count("user: quick") == 1
    assert "user: waits" not in said


async def test_repeating_a_submission_stops_nothing_even_after_pruning(store: Store):  # rule V11
    desk = Desk(store)
    await desk.runner.submit("mine", session_id="s", id="mine", on_busy="cancel")
    await desk.runner.advance("s")
    for number in range(20):
        await desk.runner.run(f"m{number}", session_id="s")
    await desk.runner.prune("s", keep=1)
    assert not [row for row in await store.read(ListCheckpoints(SessionRef("s"))) if row.header.input == "mine"]
    first = begin(desk.runner.run("slow", session_id="s"))
    await desk.gate.reached.wait()
    await desk.runner.submit("mine", session_id="s", id="mine", on_busy="cancel")
    desk.gate.opened.set()
    assert (await first).status == "done"


async def test_what_waits_for_people_is_not_busy(store: Store):  # rule V11
    @workflow
    async def asks(input: str) -> str:
        return f"{input} {interrupt('ok?', key='q')} {current().session_id}"

    runner = Runner(asks, store=store)
    await runner.run("one", session_id="s")
    with pytest.raises(PendingInterrupts):
        await runner.run("two", session_id="s", on_busy="cancel")
    assert [each.key for each in await runner.pending("s")] == ["q"]


async def test_a_value_that_does_not_exist_is_refused(store: Store):
    desk = Desk(store)
    with pytest.raises(UsageError, match="cancel"):
        await desk.runner.run("a", session_id="s", on_busy="soon")  # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match="on_busy"):
        await desk.runner.run(None, session_id="s", checkpoint_id="x.1", on_busy="cancel")
