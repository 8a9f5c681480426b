"""Tools that run at most once: whatever ended a call short of a result, only a person has it run again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, make_dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace
from pydantic import BaseModel, SecretStr

from adjourn import (
    Approve,
    ChatModelAgent,
    GraphAgent,
    Message,
    Reject,
    Respond,
    Retry,
    Runner,
    ToolCall,
    current,
    interrupt,
    tool,
    workflow,
)
from adjourn.errors import InterruptsDisabled, ProgramChanged, ReplayMismatch, StaleCheckpoint, UsageError
from adjourn.graph import START, MessagesState, StateGraph
from adjourn.middleware import Middleware
from adjourn.middleware.hooks import ToolCallable, ToolRequest, ToolStream
from adjourn.sessions import Sessions
from adjourn.stores import Store
from adjourn.testing import ScriptedModel
from adjourn.tools import Tool, approved, reviewed
from tests.agents.calling import agent, call, lone, results, runner

ran: list[int] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ran.clear()


class Bank:
    """A tool that pays; its first `failures` calls raise after they have paid."""

    def __init__(self, failures: int = 1, error: type[BaseException] = ConnectionError, **options: Any) -> None:
        self.failures = failures
        self.error = error

        async def pay(cents: int) -> str:
            """Pay."""
            ran.append(cents)
            if len(ran) <= self.failures:
                raise self.error("password=hunter2")
            return f"paid {cents}"

        self.pay: Tool = tool(pay, at_most_once=True, **options)


def pays(id: str = "c1", cents: int = 5) -> ToolCall:
    return call("pay", id, cents=cents)


def twice(tools: Any, store: Store | None = None, **options: Any) -> Runner:
    """A runner whose model reads the error, and calls again with the same arguments."""
    return runner(tools, pays(), pays("c2"), store=store, **options)


ERRORS = [ConnectionError, ValueError, SystemExit, asyncio.CancelledError, KeyError]


@pytest.mark.parametrize("error", ERRORS)
async def test_a_model_that_reads_the_error_and_calls_again_asks_a_person(error: type[BaseException]):  # rule T6
    made = twice([Bank(error=error).pay])
    asked = await made.run("go", session_id="s")
    (question,) = asked.interrupts
    assert (question.id, question.reason, ran) == ("agent:A;tool:pay:c2", "need_decision", [5])
    assert question.info.arguments == {"cents": 5}
    assert "hunter2" not in str(question)
    how = "was cut off" if error is asyncio.CancelledError else f"failed with {error.__name__}"
    assert question.prompt == f"'pay' {how}. Approve to run it again, or respond with its result."
    assert results(await made.resume("s", {question: True}))[1] == "paid 5"
    assert ran == [5, 5]


async def test_another_process_knows_it(store: Store):  # rule T6
    @tool
    async def look() -> str:
        """Ask before the second call."""
        return str(interrupt("Again?"))

    first = Bank()
    script: list[Any] = [pays(), call("look", "c2")]
    await Runner(agent([first.pay, look], *script), store=store).run("go", session_id="s")
    other = Runner(ChatModelAgent("A", model=ScriptedModel([pays("c3"), "done"]), tools=[first.pay, look]), store=store)
    asked = await other.resume("s", {(await other.pending("s"))[0].id: "yes"})
    assert (asked.interrupts[0].reason, ran) == ("need_decision", [5])


async def test_it_runs_exactly_once_more_and_then_asks_again():  # rule T6
    made = runner([Bank(failures=3).pay], *(pays(f"c{n}") for n in range(1, 5)))
    asked = await made.run("go", session_id="s")
    for number in range(2, 5):
        assert len(ran) == number - 1
        asked = await made.resume("s", {lone(asked): True})
        assert len(ran) == number
    assert (asked.status, results(asked)[-1]) == ("done", "paid 5")


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (Respond("it was paid"), "it was paid"),
        (Reject("leave it"), "Error: leave it"),
        (False, "Error: it failed with ConnectionError, and running it again was not approved"),
    ],
)
async def test_without_a_yes_it_does_not_run_nor_does_the_next_call(answer: Any, text: str):  # rule T6
    made = runner([Bank().pay], pays(), pays("c2"), pays("c3"))
    asked = await made.run("go", session_id="s")
    asked = await made.resume("s", {lone(asked): answer})
    assert results(await made.messages("s"))[1] == text
    assert (asked.interrupts[0].info.call_id, ran) == ("c3", [5])


async def test_what_ended_with_a_result_may_be_called_again():  # rule T6
    made = runner([Bank(failures=0).pay], pays(), pays("c2"))
    assert (results(await made.run("go")), ran) == (["paid 5", "paid 5"], [5, 5])


async def test_other_arguments_are_another_call():  # rule T6
    made = runner([Bank().pay], pays(), pays("c2", cents=6))
    assert (results(await made.run("go"))[1], ran) == ("paid 6", [5, 6])


class Amount(BaseModel):
    cents: Decimal


EQUAL: list[tuple[Any, Any, Any]] = [
    (Decimal, "5.00", "5"),
    (Decimal, "5E+2", 500),
    (Decimal, "0.0", "-0"),
    (Amount, {"cents": "5.00"}, {"cents": 5}),
    (list[Decimal], ["5.0"], ["5"]),
    (float, 5.0, 5),
    (dict[str, Any], {"a": 1, "b": 2.0}, {"b": 2, "a": 1.0}),
    (set[str], ["a", "b"], ["b", "a", "a"]),
]


@pytest.mark.parametrize(("kind", "first", "second"), EQUAL, ids=str)
async def test_the_same_numbers_are_the_same_arguments(kind: Any, first: Any, second: Any):  # rule T6
    async def pay(it: Any) -> str:
        ran.append(0)
        raise ConnectionError

    pay.__annotations__["it"] = kind
    made = tool(pay, at_most_once=True, description="Pay.")
    asked = await runner([made], call("pay", it=first), call("pay", "c2", it=second)).run("go")
    assert (asked.status, ran) == ("interrupted", [0])


async def test_other_texts_are_other_arguments():  # rule T6
    @tool(at_most_once=True)
    async def pay(to: str, fast: bool = False) -> str:
        """Pay."""
        ran.append(0)
        raise ConnectionError

    calls = [call("pay", "c1", to="5"), call("pay", "c2", to="5a"), call("pay", "c3", to="NaN")]
    assert (await runner([pay], *calls, call("pay", "c4", to="5", fast=True)).run("go")).status == "done"
    assert ran == [0, 0, 0, 0]


@dataclass
class Order:
    cents: int
    id: str = field(default_factory=lambda: uuid4().hex)


def ordering(**options: Any) -> Tool:
    """A tool that pays and fails, whose arguments are never the same twice."""

    def pay(order: Order) -> str:
        """Pay."""
        ran.append(order.cents)
        raise ConnectionError

    return tool(pay, at_most_once=True, **options)


async def test_a_default_that_is_another_each_time_makes_no_other_call(store: Store):  # rules T6, T1
    calls = [call("pay", f"c{number}", order={"cents": cents}) for number, cents in enumerate((5, 6, 5), 1)]
    made = runner([ordering()], *calls, store=store)
    (question,) = (await made.run("go", session_id="s")).interrupts
    assert (question.id, ran) == ("agent:A;tool:pay:c3", [5, 6])
    await runner([ordering()], store=store).resume("s", {question: True})
    assert ran == [5, 6, 5]


async def test_nor_does_it_when_the_run_is_recovered(store: Store):  # rules T6, T1
    made = runner([ordering()], call("pay", order={"cents": 5}), store=store, on_tool_error="raise")
    with pytest.raises(ConnectionError):
        await made.run("go", session_id="s")
    asked = lone(await runner([ordering()], store=store).recover("s"))
    await runner([ordering()], store=store).resume("s", {asked: True})
    assert ran == [5, 5]


async def test_what_json_does_not_say_is_what_runs():  # rules T6, T1
    got, bank = list[Any](), object()

    @tool(at_most_once=True)
    def pay(password: SecretStr, bank: Any = bank) -> str:
        """Pay."""
        got.append((password.get_secret_value(), bank))
        return interrupt("Really?", key="really", schema=str)

    made = runner([pay], call("pay", password="hunter2"))
    await made.run("go", session_id="s")
    assert results(await made.resume("s", {"really": "yes"})) == ["yes"]
    assert got == [("hunter2", bank)] * 2


async def test_the_next_turn_begins_anew(store: Store):  # rule T6
    made = runner([Bank().pay], pays(), "sorry", pays("c2"), store=store)
    await made.run("go", session_id="s")
    assert ((await made.run("once more", session_id="s")).status, ran) == ("done", [5, 5])


async def test_recover_asks_each_time(store: Store):  # rule T6
    made = runner([Bank(failures=2).pay], pays(), store=store, on_tool_error="raise")
    with pytest.raises(ConnectionError):
        await made.run("go", session_id="s")
    await made.recover("s")
    asked = await made.recover("s")
    assert ("failed with ConnectionError" in str(asked.interrupts[0].prompt), ran) == (True, [5])
    with pytest.raises(ConnectionError):
        await made.resume("s", {lone(asked): True})
    again = await made.recover("s")
    assert (lone(again) != lone(asked), ran) == (True, [5, 5])
    assert results(await made.resume("s", {lone(again): Approve()})) == ["paid 5"]


async def test_after_a_timeout_the_model_cannot_call_again_unasked():  # rule T6
    @tool(at_most_once=True, timeout=0.01)
    async def pay(cents: int) -> str:
        """Pay, and hang at first."""
        ran.append(cents)
        if len(ran) == 1:
            await asyncio.get_running_loop().create_future()
        return "paid"

    made = twice([pay])
    asked = await made.run("go", session_id="s")
    assert "gave no result" in results(await made.messages("s"))[0]
    assert (asked.interrupts[0].prompt or "").startswith("'pay' timed out.")
    assert (results(await made.resume("s", {lone(asked): True}))[1], ran) == ("paid", [5, 5])


async def test_a_late_result_of_a_thread_changes_nothing():  # rule T6
    late, left = threading.Event(), threading.Event()

    @tool(at_most_once=True, timeout=0.2)
    def pay(cents: int) -> str:
        """Pay, late."""
        ran.append(cents)
        late.wait(10)
        left.set()
        return "paid"

    made = twice([pay])
    try:
        asked = await made.run("go", session_id="s")
        late.set()
        await asyncio.to_thread(left.wait, 10)
        again = await made.recover("s")
        assert (lone(again), ran) == (lone(asked), [5])
    finally:
        late.set()


async def test_nor_that_of_a_task_which_will_not_be_cancelled():  # rule T6
    late, left = asyncio.Event(), asyncio.Event()

    @tool(at_most_once=True, timeout=0.01)
    async def pay(cents: int) -> str:
        """Pay, and do not stop."""
        ran.append(cents)
        while not late.is_set():
            try:
                await late.wait()
            except asyncio.CancelledError:
                continue
        left.set()
        return "paid"

    made = twice([pay])
    asked = await made.run("go", session_id="s")
    late.set()
    await left.wait()
    assert (lone(await made.recover("s")), ran) == (lone(asked), [5])


async def test_a_tool_that_changed_since_is_missed_and_not_called_anew(store: Store):  # rules T6, R10
    with pytest.raises(ConnectionError):
        await runner([Bank().pay], pays(), store=store, on_tool_error="raise").run("go", session_id="s")

    @tool(at_most_once=True)
    async def pay(cents: str) -> str:
        """Pay."""
        ran.append(int(cents))
        return "paid"

    changed = runner([pay], call("pay", "c2", cents="5"), store=store)
    with pytest.raises(ProgramChanged):
        await changed.recover("s")
    assert ran == [5]


@pytest.mark.parametrize("fork", [False, True])
async def test_a_tool_with_another_optional_parameter_since_asks_too(store: Store, fork: bool):  # rules T6, R10
    @tool
    async def look() -> str:
        """Ask before the call."""
        return str(interrupt("Now?"))

    script = [call("look", "c0"), pays()]
    made = runner([Bank().pay, look], *script, store=store, on_tool_error="raise")
    asked = await made.run("go", session_id="s")
    copy = await made.fork("s", to="copy")
    with pytest.raises(ConnectionError):
        await made.resume("s", {lone(asked): True})

    @tool(at_most_once=True)
    async def pay(cents: int, currency: str = "EUR") -> str:
        """Pay."""
        ran.append(cents)
        return "paid"

    changed = runner([pay, look], pays(), store=store)
    again = await (changed.resume(copy, {lone(asked): True}) if fork else changed.recover("s"))
    assert (again.interrupts[0].key, ran) == ("at_most_once", [5])
    assert again.interrupts[0].info.arguments == {"cents": 5, "currency": "EUR"}


def fails(default: Any, is_nested: bool) -> Tool:
    """A tool with this default, in its parameters or in a field of their type."""

    @tool(at_most_once=True)
    def pay(order: Any) -> str:
        """Pay, and fail at first."""
        ran.append(order)
        if len(ran) == 1:
            raise ConnectionError
        return "paid"

    if is_nested:
        pay.fn.__annotations__["order"] = make_dataclass("Order", [("cents", int), ("euros", float, default)])
        return tool(pay.fn, at_most_once=True)

    def pay_by_default(order: dict[str, int], euros: Any = default) -> str:
        return pay.fn((order, euros))

    if not isinstance(default, Path):
        pay_by_default.__annotations__["euros"] = float

    return tool(pay_by_default, name="pay", at_most_once=True)


ORDERS = [call("pay", name, order={"cents": 5}) for name in ("c1", "c2")]


@pytest.mark.parametrize("is_nested", [False, True])
@pytest.mark.parametrize(
    ("answer", "text"), [(True, "paid"), (Respond("it was"), "it was"), (False, "Error: it failed")]
)
async def test_one_answer_is_enough_where_a_default_is_no_float(store: Store, is_nested: bool, answer: Any, text: str):
    made = runner([fails(100, is_nested)], *ORDERS, store=store)  # rules T6, T1
    asked = lone(await made.run("go", session_id="s"))
    result = await runner([fails(100, is_nested)], store=store).resume("s", {asked: answer})
    assert (result.status, len(ran)) == ("done", 2 if answer is True else 1)
    assert results(result)[1].startswith(text)


@pytest.mark.parametrize("is_nested", [False, True])
@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_changed_default_asks_anew(store: Store, is_nested: bool, elsewhere: bool):  # rules R17, T6
    asked = lone(await runner([fails(100.0, is_nested)], *ORDERS, store=store).run("go", session_id="s"))
    changed = runner([fails(200.0, is_nested)], store=store)
    if elsewhere:
        await Sessions(store).answer("s", {asked: True})
        await changed.recover("s")
    else:
        with pytest.raises(StaleCheckpoint):
            await changed.resume("s", {asked: True})
    (again,) = await changed.pending("s")
    assert (again.info.arguments.get("euros") or again.info.arguments["order"]["euros"], len(ran)) == (200.0, 1)
    assert results(await changed.resume("s", {again.id: True}))[1] == "paid"
    assert len(ran) == 2


@pytest.mark.parametrize("is_nested", [False, True])
async def test_a_call_that_has_failed_is_known_whatever_the_defaults_are(store: Store, is_nested: bool):  # rule T6
    made = runner([fails(100.0, is_nested)], ORDERS[0], store=store, on_tool_error="raise")
    with pytest.raises(ConnectionError):
        await made.run("go", session_id="s")
    changed = runner([fails(200.0, is_nested)], store=store)
    paused = await changed.recover("s")
    assert (paused.interrupts[0].key, len(ran)) == ("at_most_once", 1)
    assert results(await changed.resume("s", {lone(paused): True}))[0] == "paid"
    assert len(ran) == 2


@pytest.mark.parametrize("is_nested", [False, True])
@pytest.mark.parametrize("answer", [False, Reject("no"), Respond("it was")])
async def test_a_refusal_counts_whatever_the_defaults_are(store: Store, is_nested: bool, answer: Any):  # rules R17, T6
    asked = lone(await runner([fails(100.0, is_nested)], *ORDERS, store=store).run("go", session_id="s"))
    result = await runner([fails(200.0, is_nested)], store=store).resume("s", {asked: answer})
    assert (result.status, len(ran)) == ("done", 1)


@pytest.mark.parametrize("answer", [True, False, Reject("no"), Respond("it was")])
async def test_a_default_that_nobody_can_be_shown_is_no_obstacle(store: Store, answer: Any):  # rules R17, T6, T1
    asked = lone(await runner([fails(Path("/book"), False)], *ORDERS, store=store).run("go", session_id="s"))
    result = await runner([fails(Path("/book"), False)], store=store).resume("s", {asked: answer})
    assert (result.status, len(ran)) == ("done", 2 if answer is True else 1)


async def test_an_agent_as_a_tool_goes_on_after_its_own_questions(store: Store):  # rules T6, R5
    @tool(approval=True)
    async def note(text: str) -> str:
        """Note something."""
        ran.append(len(text))
        return "noted"

    inner = agent([note], call("note", text="x"), name="Inner")
    made = Runner(agent([replace(inner.as_tool(), at_most_once=True)], call("Inner", request="x")), store=store)
    asked = await made.run("go", session_id="s")
    assert asked.interrupts[0].reason == "need_approval"
    assert ((await made.resume("s", {lone(asked): True})).status, ran) == ("done", [1])


# Several calls


async def test_of_equal_calls_in_one_message_one_runs_and_the_others_ask():  # rule T6
    made = runner([Bank(failures=0).pay], [pays("c1"), pays("c2"), pays("c3", cents=7)])
    asked = await made.run("go", session_id="s")
    assert (asked.interrupts[0].info.call_id, sorted(ran)) == ("c2", [5, 7])
    assert "was called with the same arguments in this turn" in str(asked.interrupts[0].prompt)
    assert results(await made.resume("s", {lone(asked): Respond("paid above")})) == ["paid 5", "paid above", "paid 7"]


async def test_one_after_the_other_they_run_when_each_has_a_result():  # rule T6
    made = runner([Bank(failures=0).pay], [pays("c1"), pays("c2")], tool_calls="sequential")
    assert (results(await made.run("go")), ran) == (["paid 5", "paid 5"], [5, 5])


async def test_equal_calls_of_two_agents_are_one():  # rule T6
    bank = Bank()
    inner = agent([bank.pay], pays(), name="Inner")
    outer = agent([inner, bank.pay], call("Inner", "c1", request="x"), pays("c2"), name="Outer")
    asked = await Runner(outer).run("go", session_id="s")
    assert (asked.interrupts[0].address, ran) == ("agent:Outer;tool:pay:c2", [5])


async def test_a_second_run_of_the_agent_by_its_tool_asks_too():  # rule T6
    inner = agent([Bank().pay], pays(), "failed", pays(), name="Inner")
    made = Runner(agent([inner], call("Inner", "c1", request="x"), call("Inner", "c2", request="x"), name="Outer"))
    asked = await made.run("go", session_id="s")
    assert (asked.interrupts[0].address, ran) == ("agent:Outer;tool:Inner:c2;agent:Inner;tool:pay:c1", [5])
    assert ((await made.resume("s", {lone(asked): True})).status, ran) == ("done", [5, 5])


async def test_code_that_tries_again_asks_too():  # rule T6
    bank = Bank()

    @workflow
    async def stubborn(input: str) -> str:
        for number in range(3):
            try:
                made = agent([bank.pay], pays(), on_tool_error="raise")
                return (await current().run(made, input, key=str(number))).output
            except ConnectionError:
                continue
        return "gave up"

    asked = await Runner(stubborn).run("go", session_id="s")
    assert (asked.interrupts[0].reason, ran) == ("need_decision", [5])


# Graphs


def graph(pay: Tool, **options: Any) -> Any:
    def says(state: Any) -> dict[str, Any]:
        return {"messages": [Message.assistant("", tool_calls=[pays()])]}

    made = StateGraph(MessagesState, name="g").add_node("says", says)
    made.add_tools_node("act", [pay], on_tool_error="raise", **options)
    return made.add_edge(START, "says").add_edge("says", "act").compile()


RETRY = Retry(attempts=3, backoff=0)


@pytest.mark.parametrize("how", ["graph", "graph agent"])
async def test_a_nodes_retry_asks(store: Store, how: str):  # rule T6
    made = graph(Bank().pay, retry=RETRY)
    program = made if how == "graph" else GraphAgent("G", made)
    run = Runner(program, store=store)
    asked = await run.run({} if how == "graph" else "go", session_id="s")
    assert (asked.interrupts[0].key, ran) == ("at_most_once", [5])
    assert "failed with ConnectionError" in str(asked.interrupts[0].prompt)
    done = await Runner(program, store=store).resume("s", {lone(asked): True})
    assert (done.status, ran) == ("done", [5, 5])


async def test_the_retry_of_a_node_with_an_agent_in_it_asks():  # rule T6
    inner = agent([Bank().pay], pays(), on_tool_error="raise", name="Inner")

    async def run(state: Any) -> dict[str, Any]:
        await current().run(inner, "go")
        return {}

    made = StateGraph(MessagesState, name="g").add_node("n", run, retry=RETRY).add_edge(START, "n").compile()
    asked = await made.run({}, session_id="s")
    assert (asked.interrupts[0].key, ran) == ("at_most_once", [5])


async def test_a_nodes_timeout_asks():  # rule T6
    @tool(at_most_once=True)
    async def pay(cents: int) -> str:
        """Pay, and hang at first."""
        ran.append(cents)
        if len(ran) == 1:
            await asyncio.get_running_loop().create_future()
        return "paid"

    made = graph(pay, retry=RETRY, timeout=0.05)
    asked = await made.run({}, session_id="s")
    assert (asked.interrupts[0].key, ran) == ("at_most_once", [5])


# Middleware


class Twice(Middleware):
    """Calls again after an error, or after any result."""

    def __init__(self, *, always: bool = False) -> None:
        self.always = always

    async def wrap_tool(self, call: ToolCallable, request: ToolRequest) -> Any:
        try:
            made = await call(request)
        except Exception:  # noqa: BLE001  # as users write it
            return await call(request)
        return await call(request) if self.always else made


@pytest.mark.parametrize("always", [False, True])
async def test_a_middleware_that_calls_twice_asks(store: Store, always: bool):  # rule T6
    made = runner([Bank(failures=not always).pay], pays(), store=store, middleware=[Twice(always=always)])
    asked = await made.run("go", session_id="s")
    assert (asked.interrupts[0].id, ran) == ("agent:A;tool:pay:c1", [5])
    why = "has run already in this call" if always else "failed with ConnectionError"
    assert why in str(asked.interrupts[0].prompt)
    assert results(await made.resume("s", {lone(asked): True})) == ["paid 5"]
    assert ran == [5, 5]


class Impatient(Middleware):
    """Gives up the first attempt, and makes another."""

    async def wrap_tool(self, call: ToolCallable, request: ToolRequest) -> Any:
        try:
            return await asyncio.wait_for(call(request), 0.01)
        except TimeoutError:
            return await call(request)


async def test_what_a_middleware_gave_up_was_cut_off():  # rule T6
    @tool(at_most_once=True)
    async def pay(cents: int) -> str:
        """Pay, and hang."""
        ran.append(cents)
        await asyncio.get_running_loop().create_future()
        return "paid"

    asked = await runner([pay], pays(), middleware=[Impatient()]).run("go", session_id="s")
    assert ran == [5]
    assert (asked.interrupts[0].prompt or "").startswith("'pay' was cut off.")


class Hides(Middleware):
    async def wrap_tool(self, call: ToolCallable, request: ToolRequest) -> Any:
        try:
            return await call(request)
        except Exception:  # noqa: BLE001  # as users write it
            return "please try again"


async def test_an_error_that_a_middleware_hides_is_one():  # rule T6
    made = twice([Bank().pay], middleware=[Hides()])
    asked = await made.run("go", session_id="s")
    assert results(await made.messages("s")) == ["please try again"]
    assert (asked.interrupts[0].info.call_id, ran) == ("c2", [5])


class FailsAfter(Middleware):
    async def wrap_tool(self, call: ToolCallable, request: ToolRequest) -> Any:
        await call(request)
        raise ValueError("the ledger is away")


async def test_a_result_that_the_model_never_gets_is_none():  # rule T6
    asked = await twice([Bank(failures=0).pay], middleware=[FailsAfter()]).run("go")
    assert (asked.interrupts[0].info.call_id, ran) == ("c2", [5])
    assert "failed with ValueError" in str(asked.interrupts[0].prompt)


class Denies(Middleware):
    async def wrap_tool(self, call: ToolCallable, request: ToolRequest) -> Any:
        raise ValueError("not today")


async def test_what_never_began_is_not_asked_about():  # rule T6
    result = await twice([Bank().pay], middleware=[Denies()]).run("go")
    assert (result.status, ran) == ("done", [])


class AsksAfter(Middleware):
    async def wrap_tool(self, call: ToolCallable, request: ToolRequest) -> Any:
        made = await call(request)
        return f"{made} {interrupt('Fine?')}"


async def test_a_middleware_that_asks_after_the_call_goes_on(store: Store):  # rules T6, R5
    made = twice([Bank(failures=0).pay], store, middleware=[AsksAfter()])
    asked = await made.run("go", session_id="s")
    asked = await made.resume("s", {lone(asked): "yes"})
    result = await made.resume("s", {lone(asked): "no"})
    assert (results(result), ran) == (["paid 5 yes", "paid 5 no"], [5, 5])


async def test_no_result_without_a_form_for_the_model():  # rule T6
    @tool(at_most_once=True)
    async def pay(cents: int) -> Any:
        """Pay, and return something strange."""
        ran.append(cents)
        return object()

    asked = await twice([pay]).run("go")
    assert (asked.interrupts[0].info.call_id, ran) == ("c2", [5])


# Streams


def streaming(failures: int) -> Tool:
    @tool(at_most_once=True)
    async def pay(cents: int) -> AsyncIterator[str]:
        """Pay piece by piece."""
        ran.append(cents)
        yield "pa"
        if len(ran) <= failures:
            raise ConnectionError("gone")
        yield "id"

    return pay


async def test_a_stream_that_breaks_asks():  # rules T6, T7
    made = twice([streaming(1)])
    asked = await made.run("go", session_id="s")
    assert (asked.interrupts[0].info.call_id, ran) == ("c2", [5])
    assert (results(await made.resume("s", {lone(asked): True}))[1], ran) == ("paid", [5, 5])


class StreamTwice(Middleware):
    async def wrap_tool_stream(self, call: ToolStream, request: ToolRequest) -> AsyncIterator[Any]:
        try:
            async for piece in call(request):
                yield piece
        except ConnectionError:
            async for piece in call(request):
                yield piece


async def test_a_middleware_that_streams_twice_asks():  # rules T6, T7
    made = runner([streaming(1)], pays(), middleware=[StreamTwice()])
    asked = await made.run("go", session_id="s")
    assert (asked.interrupts[0].reason, ran) == ("need_decision", [5])
    assert results(await made.resume("s", {lone(asked): Respond("it was paid")})) == ["it was paid"]
    assert ran == [5]


# Beside other questions


async def test_an_approval_and_the_question_whether_to_run_again_are_two():  # rules T6, T1
    made = twice([approved(Bank().pay)])
    asked = await made.run("go", session_id="s")
    asked = await made.resume("s", {lone(asked): True})
    assert (asked.interrupts[0].reason, ran) == ("need_approval", [5])
    asked = await made.resume("s", {lone(asked): True})
    assert (asked.interrupts[0].reason, ran) == ("need_decision", [5])
    assert (results(await made.resume("s", {lone(asked): True}))[1], ran) == ("paid 5", [5, 5])


async def test_a_remembered_approval_does_not_answer_it():  # rules T6, T5
    made = twice([approved(Bank().pay)])
    asked = await made.run("go", session_id="s")
    asked = await made.resume("s", {lone(asked): Approve(remember="session")})
    assert (asked.interrupts[0].reason, ran) == ("need_decision", [5])


async def test_a_reviewer_who_refuses_has_begun_nothing():  # rule T6
    made = twice([reviewed(Bank(failures=0).pay)])
    asked = await made.run("go", session_id="s")
    asked = await made.resume("s", {lone(asked): Reject("no")})
    asked = await made.resume("s", {lone(asked): True})
    assert (asked.status, results(asked)[1], ran) == ("done", "paid 5", [5])


async def test_what_a_reviewer_made_of_it_is_what_has_begun():  # rule T6
    made = runner([reviewed(Bank().pay)], pays(), pays("c2", cents=7))
    asked = await made.run("go", session_id="s")
    asked = await made.resume("s", {lone(asked): asked.interrupts[0].info.edit(cents=7)})
    asked = await made.resume("s", {lone(asked): True})
    assert (asked.interrupts[0].reason, asked.interrupts[0].info.arguments, ran) == ("need_decision", {"cents": 7}, [7])


# Where nobody can be asked


async def test_where_interrupts_are_disabled_it_fails():  # rules T6, V5
    made = Runner(agent([Bank().pay], pays(), pays("c2")), interrupts=False)
    with pytest.raises(InterruptsDisabled):
        await made.run("go", session_id="s")
    with pytest.raises(InterruptsDisabled):
        await made.recover("s")
    assert ran == [5]


def test_with_a_retry_it_is_refused():  # rule T6
    with pytest.raises(UsageError, match="at_most_once=True and also retry"):
        tool(Bank().pay.fn, at_most_once=True, retry=Retry())


# Its own pauses


def careful(words: list[str]) -> Tool:
    @tool(at_most_once=True)
    async def pay(cents: int) -> str:
        """Ask, then pay."""
        for word in words:
            interrupt(word, key=word)
        ran.append(cents)
        if len(ran) == 1:
            raise ConnectionError("gone")
        return "paid"

    return pay


async def test_after_its_own_question_it_goes_on_and_after_its_failure_it_asks(store: Store):  # rules T6, R5
    make = partial(runner, store=store, on_tool_error="raise")
    asked = await make([careful(["Sure?"])], pays()).run("go", session_id="s")
    with pytest.raises(ConnectionError):
        await make([careful(["Sure?"])]).resume("s", {lone(asked): "yes"})
    asked = await make([careful(["Sure?"])]).recover("s")
    assert (asked.interrupts[0].reason, ran) == ("need_decision", [5])
    assert results(await make([careful(["Sure?"])]).resume("s", {lone(asked): True})) == ["paid"]


async def test_mended_code_goes_on_from_its_question_unasked(store: Store):  # rules T6, R6
    asked = await runner([careful(["Sure?", "Really?"])], pays(), store=store).run("go", session_id="s")
    asked = await runner([careful(["Sure?", "Really?"])], store=store).resume("s", {lone(asked): "yes"})
    with pytest.raises(ReplayMismatch):
        await runner([careful(["Certain?", "Really?"])], store=store).resume("s", {lone(asked): "yes"})
    ran.append(0)  # So that it does not fail.
    done = await runner([careful(["Sure?", "Really?"])], store=store).recover("s")
    assert (results(done), ran) == (["paid"], [0, 5])


async def test_code_that_no_longer_asks_has_run_all_the_same(store: Store):  # rules T6, R6
    asked = await runner([careful(["Sure?"])], pays(), store=store).run("go", session_id="s")
    ran.append(0)
    with pytest.raises(ReplayMismatch):
        await runner([careful([])], store=store).resume("s", {lone(asked): "yes"})
    asked = await runner([careful(["Sure?"])], store=store).recover("s")
    assert (asked.interrupts[0].reason, ran) == ("need_decision", [0, 5])


# Forks


async def test_a_fork_after_the_failure_knows_of_it(store: Store):  # rule T6
    @tool
    async def look() -> str:
        """Ask."""
        return str(interrupt("Again?"))

    made = runner([Bank().pay, look], pays(), call("look", "c2"), pays("c3"), pays("c3"), store=store)
    asked = await made.run("go", session_id="s")
    fork = await made.fork("s", to="copy")
    asked = await made.resume(fork, {lone(asked): "yes"})
    assert (asked.interrupts[0].reason, ran) == ("need_decision", [5])
