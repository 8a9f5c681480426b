"""An approval that a node asked acts once: not again in a fork or on another branch, after its node has ended."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict, TypeVar

import pytest

from adjourn import (
    AnswerWith,
    ApprovalSpent,
    ChatModelAgent,
    GraphAgent,
    Runner,
    SequentialAgent,
    ToolCall,
    UsageError,
    current,
    interrupt,
    tool,
    workflow,
)
from adjourn.errors import ModelError
from adjourn.graph import START, CompiledGraph, StateGraph
from adjourn.sessions import Sessions
from adjourn.stores import MemoryStore, Store
from adjourn.stores.kit import Load, StoreQuery
from adjourn.testing import FakeClock, FunctionModel

T = TypeVar("T")

paid: list[str] = []
broken: list[str] = []
"""Nodes that fail, each once for every time that it stands here."""


@pytest.fixture(autouse=True)
def nothing_paid() -> None:
    paid.clear()
    broken.clear()


class Refund(TypedDict):
    order: NotRequired[str]
    amount: NotRequired[float]
    account: NotRequired[str]
    decision: NotRequired[bool]
    receipt: NotRequired[str]


def manager(state: Refund) -> dict[str, Any]:
    info = {"order": state.get("order", "A-17"), "amount": state.get("amount")}
    return {"decision": interrupt(info, key="manager", prompt="Refund it?", reason="need_approval", schema=bool)}


def check(state: Refund) -> dict[str, Any]:
    return {}


def pay(state: Refund) -> dict[str, Any]:
    if state.get("decision"):
        paid.append(current().idempotency_key)
    if "pay" in broken:
        broken.remove("pay")
        raise RuntimeError("the bank is closed")
    return {"receipt": "r1"}


def desk(store: Store | None, name: str = "desk") -> CompiledGraph:
    graph = StateGraph(Refund, name=name).add_sequence(manager, check, pay).add_edge(START, "manager")
    return graph.compile(store=store)


async def approved(graph: CompiledGraph, *, failing: bool = False) -> str:
    """Approve a refund, and return the checkpoint at which it was asked."""
    if failing:
        broken.append("pay")
    result = await graph.run({"order": "A-17", "amount": 250.0}, session_id="s")
    if failing:
        with pytest.raises(RuntimeError, match="closed"):
            await graph.resume("s", {"manager": True}, by="ann")
    else:
        await graph.resume("s", {"manager": True}, by="ann")
    return result.checkpoint_id or ""


async def step(sessions: Sessions, *following: str) -> str:
    """Return the checkpoint at which this was to run next."""
    return next(each.id for each in await sessions.history("s", source="step") if each.next == following)


async def begin(store: Store, way: str, point: str) -> None:
    match way:
        case "fork":
            await Sessions(store).fork("s", checkpoint_id=point)
        case "branch":
            await Sessions(store).fork("s", checkpoint_id=point, to="s")
        case "travel":
            await desk(store).run(None, session_id="s", checkpoint_id=point)
        case _:
            await desk(store).edit("s", {"account": "DE1"}, checkpoint_id=point)


@pytest.mark.parametrize("way", ["fork", "branch", "travel", "edit"])
async def test_what_begins_after_an_approval_is_refused(store: Store, way: str) -> None:  # rule R19
    graph = desk(store)
    asked_at = await approved(graph)
    point, before = await step(graph, "pay"), await graph.tree("s")
    for _ in range(2):
        with pytest.raises(ApprovalSpent):
            await begin(store, way, point)
    with pytest.raises(ApprovalSpent) as refused:
        await begin(store, way, point)
    error = refused.value
    assert (error.checkpoint_id, error.approvals) == (point, ("runnable:desk;node:manager",))
    assert (error.asked_at, error.pending) == (asked_at, ("manager",))
    assert (len(paid), str(await graph.tree("s")), len(await graph.sessions())) == (1, str(before), 1)


async def test_it_is_asked_again_where_the_error_says(store: Store) -> None:  # rules R19, R16
    graph = desk(store)
    asked_at = await approved(graph)
    fork = await graph.fork("s", checkpoint_id=asked_at)
    assert [asked.key for asked in await graph.pending(fork)] == ["manager"]
    assert (await graph.resume(fork, {"manager": False})).status == "done"
    again = await graph.run(None, session_id="s", checkpoint_id=asked_at)
    assert (again.status, len(paid)) == ("interrupted", 1)


@pytest.mark.parametrize("answer", [True, False])
async def test_a_fork_of_the_head_while_the_run_is_unfinished(store: Store, answer: bool) -> None:  # rule R19
    graph = desk(store)
    broken.append("pay")
    await graph.run({"amount": 250.0}, session_id="s")
    with pytest.raises(RuntimeError):
        await graph.resume("s", {"manager": answer})
    for to in (None, "s", "t"):
        with pytest.raises(ApprovalSpent):
            await Sessions(store).fork("s", to=to)
    assert (await graph.recover("s")).status == "done"
    assert len(set(paid)) == int(answer), "a recovery goes on under the same key"


async def test_a_fork_while_it_is_paid() -> None:  # rule R19
    store, refused = MemoryStore(), list[ApprovalSpent]()

    async def pay(state: Refund) -> dict[str, Any]:
        try:
            await Sessions(store).fork("s")
        except ApprovalSpent as error:
            refused.append(error)
        return {}

    graph = StateGraph(Refund, name="desk").add_sequence(manager, pay).add_edge(START, "manager").compile(store=store)
    await graph.run({}, session_id="s")
    await graph.resume("s", {"manager": True})
    assert [error.pending for error in refused] == [("manager",)]


async def test_a_finished_run_can_be_forked(store: Store) -> None:  # rule R19
    graph = desk(store)
    await approved(graph)
    fork = await graph.fork("s")
    assert (await graph.run({"amount": 1.0}, session_id=fork)).status == "interrupted"
    await graph.edit("s", {"account": "DE1"})
    assert (await graph.run({}, session_id="s")).status == "interrupted"
    fork = await graph.fork("s")
    assert [asked.key for asked in await graph.pending(fork)] == ["manager"], "an earlier turn's approval is over"


async def test_a_finished_run_does_not_go_on_after_an_edit(store: Store) -> None:  # rule R19
    graph = desk(store)
    await approved(graph)
    with pytest.raises(ApprovalSpent):
        await graph.edit("s", {"decision": True}, as_node="manager")
    with pytest.raises(ApprovalSpent):
        await graph.edit(await graph.fork("s"), {"decision": True}, as_node="manager")
    point = await graph.edit("s", {"decision": True}, as_node="manager", again=True)
    assert (point.next, [entry.again for entry in await graph.audit("s")]) == (("check",), [True])


async def test_overruling_is_in_the_audit(store: Store) -> None:  # rule R19
    graph = desk(store)
    asked_at = await approved(graph)
    point = await step(graph, "pay")
    fork = await Sessions(store).fork("s", checkpoint_id=point, again=True)
    assert [(entry.by, entry.inherited, entry.again) for entry in await graph.audit(fork)] == [("ann", True, True)]
    with pytest.raises(ApprovalSpent) as refused:
        await graph.fork(fork)
    assert refused.value.asked_at is None, "it was asked in another session"
    assert (await graph.recover(fork)).status == "done"
    assert not (await graph.audit("s"))[0].again
    assert (await graph.run(None, session_id="s", checkpoint_id=point, again=True)).status == "done"
    assert [entry.again for entry in await graph.audit("s")] == [True]
    await graph.edit("s", {"account": "DE1"}, checkpoint_id=point, again=True)
    with pytest.raises(ApprovalSpent) as refused:
        await graph.fork("s")
    assert refused.value.asked_at == asked_at
    assert (await graph.recover("s")).status == "done"
    assert len(set(paid)) == 4
    assert (await Sessions(store).verify("s")).is_sound


async def test_again_is_for_going_back() -> None:
    with pytest.raises(UsageError, match="checkpoint_id"):
        desk(None).run({}, session_id="s", again=True)


# An edit at the head


async def test_a_repair_at_the_head_is_the_execution_that_was_approved(store: Store) -> None:  # rule R19
    graph = desk(store)
    await approved(graph, failing=True)
    for account in ("DE1", "DE2"):
        await graph.edit("s", {"account": account})
    assert (await graph.recover("s")).status == "done"
    assert [(entry.by, entry.again) for entry in await graph.audit("s")] == [("ann", False)]


async def test_a_branch_that_an_edit_has_left_is_not_its_head(store: Store) -> None:  # rule R19
    graph = desk(store)
    await approved(graph, failing=True)
    old = (await graph.checkpoint("s")).id
    await graph.edit("s", {"account": "DE1"})
    with pytest.raises(ApprovalSpent):
        await graph.edit("s", {"account": "DE2"}, checkpoint_id=old)
    with pytest.raises(ApprovalSpent):
        await graph.run(None, session_id="s", checkpoint_id=old)


async def test_what_was_shown_is_asked_anew_after_an_edit(store: Store) -> None:  # rule R19
    graph = desk(store)
    asked_at = await approved(graph, failing=True)
    point = await graph.edit("s", {"amount": 9999.0})
    assert (point.parent_id, point.next) == (asked_at, ("manager",))
    (asked,) = (await graph.recover("s")).interrupts
    assert asked.info == {"order": "A-17", "amount": 9999.0}
    assert (await graph.resume("s", {asked: False})).status == "done"
    assert len(paid) == 1


async def test_a_repair_with_mended_code_does_not_need_what_has_ended(store: Store) -> None:  # rule R19
    await approved(desk(store), failing=True)
    graph = StateGraph(Refund, name="desk").add_sequence(check, pay).add_edge(START, "check").compile(store=store)
    assert (await graph.edit("s", {"account": "DE1"})).next == ("pay",)
    assert (await graph.recover("s")).status == "done"


async def test_the_graph_of_an_agent_is_repaired_at_the_head(store: Store) -> None:  # rule R19
    runner = Runner(GraphAgent("Desk", desk(None), input="order", output="receipt"), store=store)
    await runner.run("A-17", session_id="s")
    broken.append("pay")
    with pytest.raises(RuntimeError, match="closed"):
        await runner.resume("s", {"manager": True})
    assert (await runner.edit("s", {"account": "DE1"})).next == ("pay",)
    with pytest.raises(ApprovalSpent):
        await runner.edit("s", {"account": "DE1"}, as_node="check")
    assert (await runner.edit("s", {"order": "B"})).next == ("manager",)


async def test_an_edit_of_the_head_does_not_leave_what_others_have_done_in_between() -> None:  # rule R19
    class Store(MemoryStore):
        """Another process recovers the session when this checkpoint is read."""

        awaited: str | None = None

        async def read(self, query: StoreQuery[T]) -> T:
            asked: object = query
            if isinstance(asked, Load) and asked.checkpoint is not None and asked.checkpoint == self.awaited:
                self.awaited = None
                await desk(self).recover("s")
            return await super().read(query)

    store = Store()
    graph = desk(store)
    store.awaited = await approved(graph, failing=True)
    point = await graph.edit("s", {"amount": 9999.0})
    assert (point.next, point.state["receipt"]) == ((), "r1"), "it edits the head, which is finished now"


async def test_what_was_shown_counts_again_if_the_caller_says_so(store: Store) -> None:  # rule R19
    graph = desk(store)
    await approved(graph, failing=True)
    with pytest.raises(ApprovalSpent, match="changes amount"):
        await graph.edit("s", {"amount": 9999.0}, as_node="pay")
    assert (await graph.edit("s", {"amount": 9999.0}, again=True)).next == ("pay",)
    assert (await graph.audit("s"))[0].again


async def test_what_was_shown_is_compared_with_the_state_of_that_time(store: Store) -> None:  # rule R19
    def manager(state: Refund) -> dict[str, Any]:
        return {"decision": interrupt({"to": state.get("account")}, key="manager", reason="need_approval", schema=bool)}

    def find(state: Refund) -> dict[str, Any]:
        return {"account": "DE1", "receipt": "r0"}

    graph = StateGraph(Refund, name="desk").add_sequence(manager, find, pay).add_edge(START, "manager")
    desk = graph.compile(store=store)
    await desk.run({"account": "Robert"}, session_id="s")
    broken.append("pay")
    with pytest.raises(RuntimeError):
        await desk.resume("s", {"manager": True})
    assert (await desk.edit("s", {"receipt": "r1"})).next == ("pay",), "the question came before it"
    assert (await desk.edit("s", {"account": "DE2"})).next == ("manager",)


async def test_an_edit_of_the_head_acts_as_what_runs_next_there(store: Store) -> None:  # rule R19
    def notify(state: Refund) -> dict[str, Any]:
        if "notify" in broken:
            broken.remove("notify")
            raise RuntimeError("no mail")
        return {}

    graph = StateGraph(Refund, name="desk").add_sequence(manager, pay, notify).add_edge(START, "manager")
    desk = graph.compile(store=store)
    await desk.run({"amount": 250.0}, session_id="s")
    broken.append("notify")
    with pytest.raises(RuntimeError, match="no mail"):
        await desk.resume("s", {"manager": True})
    with pytest.raises(ApprovalSpent):
        await desk.edit("s", {"account": "DE1"}, as_node="manager")
    await desk.edit("s", {"account": "DE1"}, as_node="notify")
    assert (await desk.recover("s")).status == "done"
    assert len(paid) == 1


SHOWN: list[tuple[Any, str | None, dict[str, Any], bool]] = [
    # What is shown, with which prompt, what is edited, and whether it is asked anew.
    ({"amount": 250}, None, {"amount": 1.0}, True),
    ({"amount": 250}, None, {"account": "DE2"}, False),  # Nothing but a field under its name.
    ({"order": "A-17", "amount": 250}, None, {"account": "DE2"}, False),
    ({"amount": 300}, None, {"account": "DE2"}, True),  # That is not the field's value, so it was made of something.
    ({"pay": 250}, None, {"account": "DE2"}, True),
    ({"amount": 250, "urgent": True}, None, {"account": "DE2"}, True),
    ({"amount": 250}, "Pay it to Robert?", {"account": "DE2"}, True),  # Robert may have been looked up.
    ("Pay Robert?", None, {"account": "DE2"}, True),
    (["A-17", [250.0]], None, {"order": "B"}, True),
    (None, "Pay?", {"order": "B"}, True),
    ("Pay Robert?", None, {"receipt": "r2"}, False),  # There was no receipt yet of which anything could be shown.
    ({"amount": 250, "receipt": None}, None, {"receipt": "r2"}, True),
    ({"details": [{"receipt": None}]}, None, {"receipt": "r2"}, True),
]


@pytest.mark.parametrize(("info", "prompt", "edited", "anew"), SHOWN)
async def test_which_fields_a_question_has_shown(
    info: Any, prompt: str | None, edited: dict[str, Any], anew: bool
) -> None:  # rule R19
    def manager(state: Refund) -> dict[str, Any]:
        return {"decision": interrupt(info, prompt=prompt, reason="need_review", schema=bool)}

    graph = StateGraph(Refund, name="desk").add_sequence(manager, pay).add_edge(START, "manager")
    desk = graph.compile(store=MemoryStore())
    result = await desk.run({"order": "A-17", "amount": 250.0, "account": "DE1"}, session_id="s")
    broken.append("pay")
    with pytest.raises(RuntimeError):
        await desk.resume("s", {result.interrupts[0]: True})
    await desk.edit("s", edited)
    assert (await desk.recover("s")).status == ("interrupted" if anew else "done")


# Where it was asked


def asking(key: str, field: str) -> Any:
    def ask(state: Any) -> dict[str, Any]:
        return {field: interrupt({"for": key}, key=key, reason="need_decision", schema=bool)}

    ask.__name__ = key
    return ask


class Two(TypedDict):
    one: NotRequired[bool]
    two: NotRequired[bool]


def last(state: Two) -> dict[str, Any]:
    return {}


async def test_two_approvals_of_which_one_has_acted(store: Store) -> None:  # rule R19
    graph = (
        StateGraph(Two, name="g")
        .add_sequence(asking("first", "one"), asking("second", "two"), last)
        .add_edge(START, "first")
        .compile(store=store)
    )
    asked_at = (await graph.run({}, session_id="s")).checkpoint_id
    await graph.resume("s", {"first": True})
    with pytest.raises(ApprovalSpent) as refused:
        await graph.fork("s")
    assert (refused.value.approvals, refused.value.asked_at) == (("runnable:g;node:first",), asked_at)
    await graph.resume("s", {"second": True})
    with pytest.raises(ApprovalSpent) as refused:
        await graph.fork("s", checkpoint_id=await step(graph, "last"))
    assert (len(refused.value.approvals), refused.value.asked_at) == (2, asked_at)


async def test_a_pause_that_is_half_answered(store: Store) -> None:  # rules R19, R16
    graph = (
        StateGraph(Two, name="g")
        .add_node("first", asking("first", "one"))
        .add_node("second", asking("second", "two"))
        .add_edge(START, "first")
        .add_edge(START, "second")
        .compile(store=store)
    )
    asked_at = (await graph.run({}, session_id="s")).checkpoint_id
    await graph.answer("s", {"first": True})
    assert len(await graph.pending(await graph.fork("s"))) == 2, "no run has taken it up, so it is asked again"
    await graph.recover("s")
    assert [asked.key for asked in await graph.pending("s")] == ["second"]
    with pytest.raises(ApprovalSpent) as refused:
        await graph.fork("s")
    assert (refused.value.approvals, refused.value.asked_at) == (("runnable:g;node:first",), asked_at)
    assert refused.value.pending == ("first", "second")


async def test_a_later_pass_of_a_loop(store: Store) -> None:  # rule R19
    def more(state: Refund) -> str | None:
        return "manager" if len(paid) < 2 else None

    def looping() -> CompiledGraph:
        graph = StateGraph(Refund, name="desk").add_sequence(manager, pay).add_edge(START, "manager")
        return graph.add_conditional_edges("pay", more, {"manager": "manager"}).compile(store=store)

    asked_at = (await looping().run({"amount": 1.0}, session_id="s")).checkpoint_id
    second = (await looping().resume("s", {"manager": True})).checkpoint_id
    with pytest.raises(ApprovalSpent) as refused:
        await looping().fork("s", checkpoint_id=second)
    assert refused.value.asked_at == asked_at
    assert (await looping().resume("s", {"manager": True})).status == "done"


async def test_a_condition_asks(store: Store) -> None:  # rules R19, G18
    def may(state: Refund) -> str:
        return "pay" if interrupt("May I?", key="may", reason="need_approval", schema=bool) else "check"

    graph = (
        StateGraph(Refund, name="desk")
        .add_node("look", check)
        .add_node("check", check)
        .add_node("pay", pay)
        .add_edge(START, "look")
        .add_conditional_edges("look", may, ["pay", "check"])
        .compile(store=store)
    )
    asked_at = (await graph.run({"decision": True}, session_id="s")).checkpoint_id
    broken.append("pay")
    with pytest.raises(RuntimeError):
        await graph.resume("s", {"may": True})
    with pytest.raises(ApprovalSpent) as refused:
        await graph.fork("s")
    assert (refused.value.asked_at, refused.value.pending) == (asked_at, ("node:look;branch:may",))
    assert (await graph.recover("s")).status == "done"


async def test_a_nested_graph_and_a_graph_that_a_node_calls(store: Store) -> None:  # rules R19, G15
    inner = desk(None, "inner")

    async def call(state: Refund) -> dict[str, Any]:
        found = await inner.invoke({"amount": 1.0})
        if "call" in broken:
            broken.remove("call")
            raise RuntimeError("after the child")
        return {"receipt": found["receipt"]}

    def outer() -> CompiledGraph:
        graph = StateGraph(Refund, name="outer").add_subgraph("refund", inner).add_node("call", call)
        graph.add_node("last", pay).add_edge(START, "refund").add_edge("refund", "call").add_edge("call", "last")
        return graph.compile(store=store)

    broken.append("call")
    asked_at = (await outer().run({"amount": 2.0}, session_id="s")).checkpoint_id
    assert (await outer().resume("s", {"manager": True})).status == "interrupted"
    with pytest.raises(RuntimeError, match="after the child"):
        await outer().resume("s", {"manager": True})
    with pytest.raises(ApprovalSpent) as refused:
        await outer().fork("s")
    ids = ("runnable:outer;node:refund;node:manager", "runnable:outer;node:call;runnable:inner;node:manager")
    assert (refused.value.approvals, refused.value.asked_at) == (ids, asked_at)
    assert (await outer().recover("s")).status == "done"
    fork = await outer().fork("s")
    assert (await outer().status(fork)).status == "done"


async def test_a_graph_agent_in_a_sequence(store: Store) -> None:  # rule R19
    def say(request: Any) -> str:
        if broken:
            raise RuntimeError(broken.pop())
        return "told"

    def team() -> Runner:
        teller = ChatModelAgent("Teller", model=FunctionModel(say))
        graph = GraphAgent("Desk", desk(None), input="order", output="receipt")
        return Runner(SequentialAgent("Team", agents=[graph, teller]), store=store)

    asked_at = (await team().run("A-17", session_id="s")).checkpoint_id
    broken.append("the model")
    broken.append("pay")
    with pytest.raises(RuntimeError, match="closed"):
        await team().resume("s", {"manager": True})
    for _ in range(2):
        with pytest.raises(ApprovalSpent) as refused:
            await team().fork("s")
        assert refused.value.asked_at == asked_at
        if broken:
            with pytest.raises(ModelError, match="the model"):
                await team().recover("s")
    assert (await team().recover("s")).status == "done"
    assert (await team().fork("s", to="t")) == "t"


@pytest.mark.parametrize("ends", [False, True])
async def test_what_a_tool_call_asked_is_used_up_in_its_frame(store: Store, ends: bool) -> None:  # rules R19, R16
    @tool(approval=True)
    async def refund(cents: int) -> str:
        """Refund."""
        receipt = (await desk(None).invoke({"amount": cents}))["receipt"]
        if not ends and "tool" in broken:
            broken.remove("tool")
            raise RuntimeError("before the end of the tool")
        return receipt

    def model(request: Any) -> Any:
        if request.messages[-1].role != "tool":
            return ToolCall(id="c", name="refund", arguments={"cents": 9})
        if "model" in broken:
            broken.remove("model")
            raise RuntimeError("after the tool")
        return "done"

    def clerk() -> Runner:
        agent = ChatModelAgent("Clerk", model=FunctionModel(model), tools=[refund], on_tool_error="raise")
        return Runner(agent, store=store)

    broken.append("model" if ends else "tool")
    (asked,) = (await clerk().run("pay", session_id="s")).interrupts
    assert (await clerk().resume("s", {asked: True})).status == "interrupted"
    with pytest.raises(ModelError if ends else RuntimeError):
        await clerk().resume("s", {"manager": True})
    if ends:
        assert (await clerk().recover(await clerk().fork("s"))).status == "done"
        assert len(paid) == 1
    else:
        with pytest.raises(ApprovalSpent) as refused:
            await clerk().fork("s")
        assert refused.value.approvals == ("agent:Clerk;tool:refund:c;runnable:desk;node:manager",)


async def test_a_workflow_that_a_workflow_runs(store: Store) -> None:  # rule R19
    @workflow
    async def ask(input: str) -> bool:
        return interrupt("Pay?", key="pay", reason="need_approval", schema=bool)

    @workflow
    async def work(input: str) -> bool:
        approved = await current().run(ask, "x")
        interrupt("Which account?", key="account")
        return approved

    runner = Runner(work, store=store)
    asked_at = (await runner.run("x", session_id="s")).checkpoint_id
    assert (await runner.resume("s", {"pay": True})).status == "interrupted"
    with pytest.raises(ApprovalSpent) as refused:
        await runner.fork("s")
    assert refused.value.asked_at == asked_at
    assert (await runner.resume("s", {"account": "DE1"})).value is True


# What is no answer of a person, and what is no approval


async def test_a_default_after_the_time_is_over() -> None:  # rules R19, R11
    def ask(state: Refund) -> dict[str, Any]:
        default = AnswerWith(True)
        asked = interrupt("Pay?", reason="need_approval", schema=bool, expires_in=60, on_expire=default)
        return {"decision": asked}

    clock = FakeClock()
    graph = StateGraph(Refund, name="desk").add_sequence(ask, pay).add_edge(START, "ask").compile()
    runner = Runner(graph, store=MemoryStore(), clock=clock)
    asked_at = (await runner.run({}, session_id="s")).checkpoint_id
    clock.advance(61)
    broken.append("pay")
    with pytest.raises(RuntimeError):
        await runner.recover("s")
    with pytest.raises(ApprovalSpent) as refused:
        await runner.fork("s")
    assert refused.value.asked_at == asked_at


async def test_data_and_static_interrupts_are_no_approvals(store: Store) -> None:  # rules R19, I8
    def ask(state: Refund) -> dict[str, Any]:
        return {"account": interrupt("Which account?", key="account")}

    builder = StateGraph(Refund, name="desk").add_sequence(ask, pay).add_edge(START, "ask")
    graph = builder.compile(store=store, interrupt_before=["pay"])
    await graph.run({}, session_id="s")
    paused = await graph.resume("s", {"account": "DE1"})
    await graph.fork("s")
    broken.append("pay")
    with pytest.raises(RuntimeError):
        await graph.resume("s")
    assert paused.checkpoint_id is not None
    await graph.fork("s", checkpoint_id=paused.checkpoint_id)
    assert (await graph.recover(await graph.fork("s"))).status == "done"


async def test_a_question_that_was_given_up_was_not_answered(store: Store) -> None:  # rule R19
    graph = desk(store)
    await graph.run({"amount": 1.0}, session_id="s")
    await graph.run({"amount": 2.0}, session_id="s", on_pending="abandon")
    await graph.edit("s", {"amount": 3.0})
    fork = await graph.fork("s")
    assert [entry.outcome for entry in await graph.audit(fork)] == ["abandoned"]
    assert (await graph.recover(fork)).status == "interrupted"


async def test_a_fork_that_asked_again_counts_from_its_own_answer(store: Store) -> None:  # rules R19, R16
    graph = desk(store)
    asked_at = await approved(graph)
    fork = await graph.fork("s", checkpoint_id=asked_at)
    assert await graph.fork(fork, to="t") == "t"
    broken.append("pay")
    with pytest.raises(RuntimeError):
        await graph.resume(fork, {"manager": True})
    with pytest.raises(ApprovalSpent) as refused:
        await graph.fork(fork)
    point = await graph.checkpoint(fork, refused.value.asked_at)
    assert (point.source, point.next) == ("fork", ("manager",))


async def test_what_was_asked_in_another_session_cannot_be_asked_anew(store: Store) -> None:  # rule R19
    graph = desk(store)
    await approved(graph, failing=True)
    fork = await graph.fork("s", again=True)
    with pytest.raises(ApprovalSpent, match="no checkpoint of this session"):
        await graph.edit(fork, {"amount": 1.0})
    await graph.edit(fork, {"account": "DE1"})
    assert (await graph.recover(fork)).status == "done"
    assert [(entry.by, entry.again) for entry in await graph.audit(fork)] == [("ann", True)]


async def test_an_edit_inside_a_nested_graph_is_refused_if_it_changes_what_was_shown(store: Store) -> None:  # rule R19
    outer = StateGraph(Refund, name="outer").add_subgraph("refund", desk(None)).add_edge(START, "refund")
    graph = outer.compile(store=store)
    await approved(graph, failing=True)
    at = "runnable:outer;node:refund"
    with pytest.raises(ApprovalSpent):
        await graph.edit("s", {"amount": 1.0}, at=at)
    await graph.edit("s", {"account": "DE1"}, at=at)
    assert (await graph.recover("s")).state.get("receipt") == "r1"
