"""A message that does not wait: the turn before it is cancelled, or rolled back as if it had never begun."""

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
    set_session_value,
    tool,
    workflow,
)
from adjourn.errors import ModelError, PendingInterrupts
from adjourn.stores import MemoryStore, Store
from adjourn.stores.kit import Audit, ListCheckpoints, ListDue, ListEvents, ListSessions, StoreQuery
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


@pytest.mark.parametrize("how", ["cancel", "rollback"])
async def test_a_free_session_needs_no_room(store: Store, how: Any):  # rule V11
    desk = Desk(store)
    assert (await desk.runner.run("a", session_id="s", on_busy=how)).status == "done"
    assert (await desk.runner.run("b", session_id="s", on_busy=how)).output == "said b"
    assert (await desk.runner.run("new", on_busy=how)).output == "said new"


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


@pytest.mark.parametrize("turn", ["first", "second"])
async def test_rollback_begins_where_the_turn_began(store: Store, turn: str):  # rule V11
    desk = Desk(store)
    before = ["user: hello", "assistant: said hello"] if turn == "second" else []
    if before:
        await desk.runner.run("hello", session_id="s")
    first = begin(desk.runner.run("slow", session_id="s"))
    await desk.gate.reached.wait()
    other = Desk(store)
    result = await other.runner.run("quick", session_id="s", on_busy="rollback")
    assert result.output == "said quick is done"
    assert (await first).status == "cancelled"
    assert desk.calls == ["begin slow"]  # it was cut off
    assert await other.texts() == [*before, "user: quick", "tool: quick is done", "assistant: said quick is done"]
    tree = await other.runner.tree("s")
    assert len({each.id.rpartition(".")[0] for _, each in tree}) == 2  # what was rolled back is still there
    assert (await other.runner.run("more", session_id="s")).output == "said more"
    assert (await Desk(store).runner.recover("s")).output == "said more"


class Summarizing(MemoryStore):
    """A store that keeps what there is to see of each session, as that of Redis does."""

    wants_summaries = True


@pytest.mark.parametrize("kind", [MemoryStore, Summarizing])
@pytest.mark.parametrize("is_nested", [False, True])
async def test_before_its_first_turn_a_session_has_nothing_and_can_be_read(
    kind: type[MemoryStore], is_nested: bool
):  # rule V11
    store = kind()
    desk, other = Desk(store, is_nested=is_nested), Desk(store, is_nested=is_nested)
    first = begin(desk.runner.run("slow", session_id="s"))
    await desk.gate.reached.wait()
    await other.runner.submit("quick", session_id="s", on_busy="rollback")
    assert (await first).status == "cancelled"
    # The turn is rolled back, and the one that takes its place has not begun.
    assert await other.runner.messages("s") == ()
    assert await other.runner.state("s") == {"messages": [], "active": [], "values": {}, "approvals": []}
    await other.runner.edit("s", {"values": {"place": "Rome"}})
    assert (await other.runner.advance("s")).output == "said quick is done"
    assert await other.texts() == ["user: quick", "tool: quick is done", "assistant: said quick is done"]
    assert (await other.runner.state("s"))["values"] == {"place": "Rome"}


async def test_the_audit_of_what_was_rolled_back_stays(store: Store):  # rule V11
    gate = Gate()

    @workflow
    async def asks(input: str) -> str:
        set_session_value("seen", input)
        answer = interrupt("ok?", key="q")
        if input == "one":
            await gate.wait()
        return f"{input} {answer}"

    runner = Runner(asks, store=store)
    await runner.run("one", session_id="s")
    waiting = begin(runner.resume("s", {"q": 1}, by="ann"))
    await gate.reached.wait()
    old = (await runner.status("s")).checkpoint_id
    assert (await Runner(asks, store=store).run("two", session_id="s", on_busy="rollback")).status == "interrupted"
    await waiting
    assert (await runner.resume("s", {"q": 2}, by="bob")).value == "two 2"
    assert [entry.by for entry in await runner.audit("s")] == ["bob"]
    assert [entry.by for entry in await store.read(Audit(await _ref(runner), old.rpartition(".")[0]))] == ["ann"]


async def _ref(runner: Runner[Any, Any, Any]) -> Any:
    (head,) = await runner.store.read(ListSessions())
    return head.ref


async def test_what_may_happen_once_is_asked_about_after_a_rollback(store: Store):  # rule V11, failures 30
    gate, calls = Gate(), list[str]()

    @tool(at_most_once=True)
    async def pay(cents: int) -> str:
        """Pay."""
        calls.append("pay")
        await gate.wait()
        return "paid"

    def answer(request: Any) -> Any:
        if request.messages[-1].role == "tool":
            return "ok"
        return ToolCall(id="c", name="pay", arguments={"cents": 5})

    def made() -> Runner[Any, Any, Any]:
        return Runner(ChatModelAgent("Desk", model=FunctionModel(answer), tools=[pay]), store=store)

    first = begin(made().run("pay", session_id="s"))
    await gate.reached.wait()
    second = await made().run("pay", session_id="s", on_busy="rollback")
    gate.opened.set()
    await asyncio.wait([first])
    assert second.status == "interrupted"  # it may have happened
    assert calls == ["pay"]


async def test_what_ran_on_any_branch_is_asked_about_after_a_rollback(store: Store):  # rule V11, failures 30
    gate, calls = Gate(), list[str]()

    @tool(at_most_once=True)
    async def pay(cents: int) -> str:
        """Pay."""
        calls.append("pay")
        return "paid"

    async def answer(request: Any) -> Any:
        if request.messages[-1].role != "tool":
            return ToolCall(id="c", name="pay", arguments={"cents": 5})
        if not is_edited:
            raise RuntimeError("the model is away")
        await gate.wait()
        return "ok"

    def made() -> Runner[Any, Any, Any]:
        return Runner(ChatModelAgent("Desk", model=FunctionModel(answer), tools=[pay]), store=store)

    is_edited = False
    with pytest.raises(ModelError):
        await made().run("pay", session_id="s")
    await made().edit("s", {"values": {"tone": "dry"}})
    is_edited = True
    again = begin(made().recover("s"))
    await gate.reached.wait()
    second = await made().run("pay", session_id="s", on_busy="rollback")
    gate.opened.set()
    await asyncio.wait([again])
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


@pytest.mark.parametrize("call", ["run", "submit"])
async def test_several_rollbacks_at_once_remove_only_what_ran(store: Store, call: str):  # rule V11
    desk = Desk(store)
    for done in ("one", "two"):
        await desk.runner.run(done, session_id="s")
    first = begin(desk.runner.run("slow", session_id="s"))
    await desk.gate.reached.wait()

    async def overtake(number: int) -> None:
        runner = Desk(store).runner
        if call == "run":
            await runner.run(f"m{number}", session_id="s", on_busy="rollback")
        else:
            await runner.submit(f"m{number}", session_id="s", on_busy="rollback")

    await asyncio.gather(*[overtake(number) for number in range(4)])
    await first
    while await desk.runner.inputs("s"):
        await desk.runner.advance("s")
    said = [text for text in await desk.texts() if text.startswith("user: ")]
    assert said[:2] == ["user: one", "user: two"]
    assert "user: slow" not in said
    assert len(said) > 2


@pytest.mark.parametrize("how", ["cancel", "rollback"])
async def test_nothing_makes_room_for_what_could_not_begin(store: Store, how: Any):  # rule V11
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
            await runner.run(wrong, session_id="s", on_busy=how)
    assert [each.id for each in await runner.inputs("s")] == ["behind"]
    gate.opened.set()
    assert (await first).value == "slow!"


async def test_a_turn_that_cannot_be_rolled_back_goes_on(store: Store):  # rule V11
    desk = Desk(store)
    first = begin(desk.runner.run("slow", session_id="s"))
    await desk.gate.reached.wait()
    await desk.runner.fork("s", to="f")
    again = begin(desk.runner.recover("f"))
    while len(desk.calls) < 2:
        await turns()
    with pytest.raises(UsageError, match="cannot be rolled back"):
        await desk.runner.run("quick", session_id="f", on_busy="rollback")
    desk.gate.opened.set()
    assert [(await each).status for each in (first, again)] == ["done", "done"]


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
    assert (await graph.run({}, session_id="s", on_busy="rollback")).state["done"] == ["new"]


@pytest.mark.parametrize("how", ["cancel", "rollback"])
async def test_what_is_submitted_can_overtake_as_well(store: Store, how: Any):  # rule V11
    desk = Desk(store)
    await desk.runner.run("hello", session_id="s")
    first = begin(desk.runner.run("slow", session_id="s"))
    await desk.gate.reached.wait()
    followed = Followed(store)
    other = Desk(followed)
    await other.runner.submit("waits", session_id="s", id="behind")
    submitting = asyncio.create_task(other.runner.submit("quick", session_id="s", id="mine", on_busy=how))
    if how == "cancel":
        await followed.reached.wait()
        desk.gate.opened.set()
    submitted, listed = await submitting, await other.runner.sessions()
    # What was stopped is shown as that until somebody begins the new turn; what was rolled back is not there any more.
    shown = "cancelled" if how == "cancel" else "queued"
    assert (submitted.session_id, submitted.status, submitted.waiting) == ("s", shown, 1)
    assert [(each.status, each.inputs) for each in listed] == [(shown, 1)]
    assert [each.session_id for each in await other.runner.sessions(status=shown)] == ["s"]
    assert [(each.id, each.input) for each in await other.runner.inputs("s")] == [("mine", "quick")]
    assert [(each.session, each.why) for each in await store.read(ListDue())] == [("s", "input")]
    assert (await first).status == "cancelled"
    await other.runner.submit("quick", session_id="s", id="mine", on_busy=how)  # again: it adds and stops nothing
    result = await other.runner.advance("s")
    await other.runner.submit("quick", session_id="s", id="mine", on_busy=how)
    assert result.output == "said quick is done"
    said = await other.texts()
    assert ("user: slow" in said) == (how == "cancel")
    assert said.count("user: quick") == 1
    assert "user: waits" not in said


async def test_repeating_a_submission_stops_nothing_even_after_pruning(store: Store):  # rule V11
    desk = Desk(store)
    await desk.runner.submit("mine", session_id="s", id="mine", on_busy="rollback")
    await desk.runner.advance("s")
    for number in range(20):
        await desk.runner.run(f"m{number}", session_id="s")
    await desk.runner.prune("s", keep=1)
    assert not [row for row in await store.read(ListCheckpoints(await _ref(desk.runner))) if row.header.input == "mine"]
    first = begin(desk.runner.run("slow", session_id="s"))
    await desk.gate.reached.wait()
    await desk.runner.submit("mine", session_id="s", id="mine", on_busy="rollback")
    desk.gate.opened.set()
    assert (await first).status == "done"


@pytest.mark.parametrize("times", [1, 2])
async def test_a_session_without_any_turn_left_has_nothing_to_go_on_with(store: Store, times: int):  # rules C10, V11
    gate, seen = Gate(), list[str]()

    @workflow
    async def wait(wish: str) -> str:
        seen.append(wish)
        if wish == "slow":
            await gate.wait()
        return wish

    runner = Runner(wait, store=store)
    for _ in range(times):
        gate.reached.clear()
        first = begin(runner.run("slow", session_id="s"))
        await gate.reached.wait()
        await runner.submit("x", session_id="s", id="x", on_busy="rollback")
        await runner.withdraw("s", "x")
        await first
    await runner.fork("s", to="f")
    for session in ("s", "f"):
        assert (await runner.status(session)).status == "done"
        assert (await runner.history(session))[0].next == ()
        await runner.recover(session)
    assert seen == ["slow"] * times
    assert (await runner.run("quick", session_id="f")).value == "quick"


async def test_what_waits_for_people_is_not_busy(store: Store):  # rule V11
    @workflow
    async def asks(input: str) -> str:
        return f"{input} {interrupt('ok?', key='q')} {current().session_id}"

    runner = Runner(asks, store=store)
    await runner.run("one", session_id="s")
    for how in ("cancel", "rollback"):
        with pytest.raises(PendingInterrupts):
            await runner.run("two", session_id="s", on_busy=how)
    assert [each.key for each in await runner.pending("s")] == ["q"]


async def test_a_value_that_does_not_exist_is_refused(store: Store):
    desk = Desk(store)
    with pytest.raises(UsageError, match="rollback"):
        await desk.runner.run("a", session_id="s", on_busy="soon")  # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match="on_busy"):
        await desk.runner.run(None, session_id="s", checkpoint_id="x.1", on_busy="cancel")
