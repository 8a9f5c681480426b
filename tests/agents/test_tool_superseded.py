"""Tools that get more than was shown: whoever answers is shown the rest first, and only then does it run."""

from __future__ import annotations

import asyncio
from dataclasses import field, make_dataclass
from typing import Annotated, Any, NamedTuple
from uuid import uuid4

import msgspec
import pytest
from pydantic import AfterValidator
from pydantic.dataclasses import dataclass as pydantic_dataclass

from adjourn import Approve, Edit, Reject, Respond, Runner, interrupt, tool
from adjourn.errors import ProgramChanged, ReplayMismatch, StaleCheckpoint, ToolError
from adjourn.graph import START, MessagesState, StateGraph
from adjourn.messages import Message
from adjourn.middleware import Middleware
from adjourn.middleware.hooks import Setup, ToolCallable, ToolRequest
from adjourn.runner import Worker
from adjourn.sessions import Sessions
from adjourn.stores import Store
from adjourn.tools import reviewed
from tests.agents.calling import agent, all_of, call, lone, results, runner

ran: list[Any] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ran.clear()


@tool(name="pay", approval=True)
async def pay(amount: int, currency: str = "EUR") -> str:
    """Pay."""
    ran.append((amount, currency))
    return "paid"


def pay_from(account: str, currency: str = "EUR") -> Any:
    """The same tool after a deployment that added an optional parameter."""

    async def pay(amount: int, currency: str = currency, account: str = account) -> str:
        """Pay."""
        ran.append((amount, currency, account))
        return "paid"

    return tool(pay, approval=True)


def pay_in(currency: str) -> Any:
    """The same tool with another default."""

    async def pay(amount: int, currency: str = currency) -> str:
        """Pay."""
        ran.append((amount, currency))
        return "paid"

    return tool(pay, approval=True)


async def paused(store: Store, *tools: Any) -> str:
    return lone(await runner(tools or [pay], call("pay", amount=5), store=store).run("go", session_id="s"))


async def superseded(made: Runner, asked: str, answer: Any = True) -> str:
    """The id of what is asked in place of what was answered."""
    with pytest.raises(StaleCheckpoint) as caught:
        await made.resume("s", {asked: answer}, by="ann@example.org")
    assert caught.value.token == asked
    (now,) = await made.pending("s")
    assert (caught.value.open, ran) == ((now.id,), [])
    assert now.id != asked
    return now.id


NEW: dict[str, tuple[Any, dict[str, Any], tuple[Any, ...]]] = {
    "parameter": (pay_from("mine"), {"amount": 5, "currency": "EUR", "account": "mine"}, (5, "EUR", "mine")),
    "default": (pay_in("USD"), {"amount": 5, "currency": "USD"}, (5, "USD")),
}


@pytest.mark.parametrize("new", NEW)
@pytest.mark.parametrize("answer", [True, Approve(remember="session"), Edit({"amount": 6, "currency": "EUR"})])
async def test_what_was_not_shown_is_asked_about(store: Store, new: str, answer: Any) -> None:  # rules R17, T1, I14
    asked = await paused(store)
    made, shown, runs = NEW[new]
    other = runner([made], store=store)
    again = await superseded(other, asked, answer)
    (now,) = await other.pending("s")
    assert now.info.arguments == shown
    first, second = await other.audit("s")
    assert (first.outcome, first.by, second.outcome) == ("answered", "ann@example.org", None)
    assert results(await other.resume("s", {again: True})) == ["paid"]
    assert ran == [runs]


async def test_an_edit_of_what_is_asked_now_runs(store: Store) -> None:  # rules R17, T4
    other = runner([pay_from("mine")], store=store)
    again = await superseded(other, await paused(store))
    await other.resume("s", {again: Edit({"amount": 6, "currency": "EUR", "account": "yours"})})
    assert ran == [(6, "EUR", "yours")]


@pytest.mark.parametrize("tools", [[], [pay_from("mine")], [pay_in("USD")], [tool(lambda: "x", name="pay")]])
@pytest.mark.parametrize("answer", [False, Reject("no"), Respond("later")])
@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_refusal_needs_no_tool(store: Store, tools: list[Any], answer: Any, elsewhere: bool) -> None:
    asked, made = await paused(store), runner(tools, store=store)  # rules R17, T4
    if elsewhere:
        await Sessions(store).answer("s", {asked: answer})
    (text,) = results(await (made.recover("s") if elsewhere else made.resume("s", {asked: answer})))
    assert (text, ran) == ("later" if isinstance(answer, Respond) else text, [])
    assert text.startswith(("A person refused this call", "later"))


async def test_an_answer_that_was_given_elsewhere_asks_anew(store: Store) -> None:  # rules R17, T1
    asked = await paused(store)
    await Sessions(store).answer("s", {asked: True})  # by somebody who does not have the program
    other = runner([pay_from("mine")], store=store)
    again = lone(await other.recover("s"))
    assert (again != asked, ran) == (True, [])
    assert results(await other.resume("s", {again: True})) == ["paid"]
    assert ran == [(5, "EUR", "mine")]


async def test_a_worker_asks_anew(store: Store) -> None:  # rules R17, T1
    asked = await paused(store)
    other = runner([pay_in("USD")], store=store)
    async with Worker([other], poll=0.01):
        await Sessions(store).answer("s", {asked: True})
        again = await open_after(store, asked)
        assert ran == []
        await Sessions(store).answer("s", {again: True})
        while (await Sessions(store).status("s")).status != "done":  # noqa: ASYNC110  # the store has no event here
            await asyncio.sleep(0.005)
    assert ran == [(5, "USD")]


async def open_after(store: Store, asked: str) -> str:
    """The id of the next question; a test that waits in vain is ended by its time limit."""
    while not (now := [each.id for each in await Sessions(store).pending("s") if each.id != asked]):  # noqa: ASYNC110  # as above
        await asyncio.sleep(0.005)
    return now[0]


async def test_nothing_is_streamed_before(store: Store) -> None:  # rule R17
    asked = await paused(store)
    run = runner([pay_in("USD")], store=store).resume("s", {asked: True})
    with pytest.raises(StaleCheckpoint):
        await run.start()
    asked = (await Sessions(store).pending("s"))[0].id
    with pytest.raises(StaleCheckpoint):
        await all_of(runner([pay_in("GBP")], store=store).resume("s", {asked: True}))
    assert ran == []


async def test_answers_to_other_questions_stay_with_who_gave_them(store: Store) -> None:  # rules R7, R17
    @tool(approval=True)
    async def mail(to: str) -> str:
        """Mail."""
        ran.append(to)
        return "sent"

    first = runner([pay, mail], [call("pay", "c1", amount=5), call("mail", "c2", to="bob")], store=store)
    one, two = [each.id for each in (await first.run("go", session_id="s")).interrupts]
    other = runner([pay_in("USD"), mail], store=store)
    with pytest.raises(StaleCheckpoint) as caught:
        await other.resume("s", {one: True, two: True})
    assert (set(caught.value.open) - {two}, ran) == ({f"{one}#2"}, [])
    await other.resume("s", {f"{one}#2": True, two: True})
    assert sorted(ran, key=str) == [(5, "USD"), "bob"]


async def test_three_answers_in_a_row_that_are_not_used_are_a_mistake(store: Store) -> None:  # rules R17, I14
    asked = await paused(store)
    for currency in ("USD", "GBP"):
        asked = await superseded(runner([pay_in(currency)], store=store), asked)
    with pytest.raises(ReplayMismatch, match="different every time"):
        await runner([pay_in("SEK")], store=store).resume("s", {asked: True})
    assert ran == []
    assert results(await runner([pay_in("GBP")], store=store).recover("s")) == ["paid"]
    assert ran == [(5, "GBP")]


async def test_an_earlier_answer_counts_when_its_code_comes_back(store: Store) -> None:  # rules I14, R17
    asked = await paused(store)
    again = await superseded(runner([pay_in("USD")], store=store), asked)
    with pytest.raises(StaleCheckpoint):
        await runner([pay], store=store).resume("s", {again: True})
    assert ran == [(5, "EUR")]


def pay_order(*fields: tuple[str, Any, Any]) -> Any:
    """A tool that takes an object with these optional fields."""
    return pay_for(make_dataclass("Order", [("cents", int), *fields]))


def pay_for(kind: Any) -> Any:
    """A tool that takes one value of a type."""

    def pay(order: Any) -> str:
        """Pay."""
        ran.append(order)
        return "paid"

    pay.__annotations__["order"] = kind
    return tool(pay, approval=True)


@pytest.mark.parametrize("before", [[], [("to", str, "shop")]], ids=["added", "changed"])
async def test_what_is_new_inside_an_object_is_shown_too(store: Store, before: Any) -> None:  # rules R17, T1
    first = runner([pay_order(*before)], call("pay", order={"cents": 1}), store=store)
    asked = lone(await first.run("go", session_id="s"))
    other = runner([pay_order(("to", str, "thief"))], store=store)
    again = await superseded(other, asked)
    (now,) = await other.pending("s")
    assert now.info.arguments == {"order": {"cents": 1, "to": "thief"}}
    await other.resume("s", {again: True})
    assert [each.to for each in ran] == ["thief"]


async def test_a_default_that_no_argument_replaces_is_shown_anew(store: Store) -> None:  # rules R17, T1
    def made(default: str) -> Any:
        fields = [("cents", int), ("to", str, field(default=default, init=False))]
        return pay_for(pydantic_dataclass(make_dataclass("Order", fields)))

    asked = lone(await runner([made("shop")], call("pay", order={"cents": 1}), store=store).run("go", session_id="s"))
    other = runner([made("thief")], store=store)
    again = await superseded(other, asked)
    (now,) = await other.pending("s")
    assert now.info.arguments == {"order": {"cents": 1, "to": "thief"}}
    await other.resume("s", {again: True})
    assert [each.to for each in ran] == ["thief"]


async def test_an_edit_does_not_take_in_a_default_that_its_author_has_not_seen(store: Store) -> None:  # rules T1, T4
    made = pay_order(("to", str, "shop"))
    first = runner([made], call("pay", order={"cents": 1, "to": "bob"}), store=store)
    asked = lone(await first.run("go", session_id="s"))
    other = runner([pay_order(("to", str, "thief"))], store=store)
    (again,) = (await other.resume("s", {asked: Edit({"order": {"cents": 2}})})).interrupts
    assert ("leave out 'order.to'" in (again.prompt or ""), ran) == (True, [])
    await other.resume("s", {again.id: Edit({"order": {"cents": 2, "to": "eve"}})})
    assert [each.to for each in ran] == ["eve"]


async def test_a_default_that_is_another_each_time_is_the_one_that_was_shown(store: Store) -> None:  # rules R17, T1
    def made() -> Any:
        return pay_order(("id", str, field(default_factory=lambda: uuid4().hex)))

    asked = (await runner([made()], call("pay", order={"cents": 1}), store=store).run("go", session_id="s")).interrupts
    await runner([made()], store=store).resume("s", {asked[0].id: True})
    assert [each.id for each in ran] == [asked[0].info.arguments["order"]["id"]]


async def test_a_review_of_such_a_default_is_asked_once(store: Store) -> None:  # rules R17, T1
    def made() -> Any:
        return reviewed(tool(pay_order(("id", str, field(default_factory=lambda: uuid4().hex))).fn, name="pay"))

    asked = (await runner([made()], call("pay", order={"cents": 1}), store=store).run("go", session_id="s")).interrupts
    await runner([made()], store=store).resume("s", {asked[0].id: True})
    assert [each.id for each in ran] == [asked[0].info.arguments["order"]["id"]]


class Row(msgspec.Struct, array_like=True):
    cents: int


class LongerRow(Row, array_like=True):
    to: str = "bob"


class Pair(NamedTuple):
    cents: int


class LongerPair(NamedTuple):
    cents: int
    to: str = "bob"


@pytest.mark.parametrize(("before", "now"), [(Row, LongerRow), (Pair, LongerPair)])
async def test_what_is_new_in_an_object_written_as_a_list_is_shown_too(store: Store, before: Any, now: Any) -> None:
    asked = lone(await runner([pay_for(before)], call("pay", order=[1]), store=store).run("go", session_id="s"))
    other = runner([pay_for(now)], store=store)  # rules R17, T1
    again = await superseded(other, asked)
    assert (await other.pending("s"))[0].info.arguments == {"order": [1, "bob"]}
    await other.resume("s", {again: True})
    assert ran == [now(1, "bob")]


async def test_a_function_beside_a_given_schema_has_its_defaults_shown(store: Store) -> None:  # rules R17, T1
    schema = {
        "type": "object",
        "properties": {"amount": {"type": "integer"}, "currency": {"type": "string"}},
        "required": ["amount"],
    }

    def made(currency: str) -> Any:
        return tool(pay_in(currency).fn, name="pay", schema=schema, approval=True)

    asked = await paused(store, made("EUR"))
    again = await superseded(runner([made("USD")], store=store), asked)
    await runner([made("USD")], store=store).resume("s", {again: True})
    assert ran == [(5, "USD")]


def desk(made: Any, ask: Any, store: Store) -> Any:
    """A graph with a tools node that answers what another node wrote."""
    return (
        StateGraph(MessagesState, name="desk")
        .add_node("ask", ask)
        .add_tools_node("tools", [made])
        .add_edge(START, "ask")
        .add_edge("ask", "tools")
        .compile(store=store)
    )


async def test_so_it_is_in_a_tools_node(store: Store) -> None:  # rules R17, L6
    def ask(state: Any) -> dict[str, Any]:
        return {"messages": [Message.assistant("", tool_calls=[call("pay", amount=5)])]}

    (asked,) = (await desk(pay, ask, store).run({}, session_id="s")).interrupts
    with pytest.raises(StaleCheckpoint) as caught:
        await desk(pay_in("USD"), ask, store).resume("s", {asked.id: True})
    await desk(pay_in("USD"), ask, store).resume("s", {caught.value.open[0]: True})
    assert ran == [(5, "USD")]


async def test_so_it_is_below_a_tool_that_is_an_agent(store: Store) -> None:  # rule R17
    def outer(made: Any) -> Runner:
        inner = agent([made], call("pay", "c2", amount=5), name="B")
        return runner([inner.as_tool()], call("B", request="go"), store=store)

    asked = lone(await outer(pay).run("go", session_id="s"))
    # What is below a tool is not known before its code runs, so the caller hears of it as of any new question.
    again = lone(await outer(pay_in("USD")).resume("s", {asked: True}))
    assert (again, ran) == (f"{asked}#2", [])
    await outer(pay_in("USD")).resume("s", {again: True})
    assert ran == [(5, "USD")]


@pytest.mark.parametrize("answer", [True, False])
@pytest.mark.parametrize("elsewhere", [False, True])
async def test_an_answer_to_a_review_that_is_gone_runs_nothing(store: Store, answer: bool, elsewhere: bool) -> None:
    made = runner([reviewed(tool(pay.fn, name="pay"))], call("pay", amount=5), store=store)  # rules R17, R10
    asked = lone(await made.run("go", session_id="s"))
    other = runner([tool(pay.fn, name="pay")], store=store)
    if elsewhere:
        await Sessions(store).answer("s", {asked: answer})
    with pytest.raises(ProgramChanged, match="not reviewed any more"):
        await (other.recover("s") if elsewhere else other.resume("s", {asked: answer}))
    assert ran == []


class Gate(Middleware):
    """Asks before a call runs."""

    async def wrap_tool(self, call: ToolCallable, request: ToolRequest) -> Any:
        if not interrupt("Really?", key="gate", schema=bool):
            raise ToolError("no")
        return await call(request)


class Prepares(Middleware):
    """Changes nothing, but tools are known only once it has run."""

    def before_agent(self, setup: Setup) -> Setup:
        return setup


@pytest.mark.parametrize("gate", [Gate, None])
async def test_where_a_gate_is_gone_nothing_runs(store: Store, gate: Any) -> None:  # rules R10, T9
    plain, both = tool(pay.fn, name="pay"), [Prepares(), *([gate()] if gate else [])]
    first = plain if gate else reviewed(plain)
    asked = lone(await runner([first], call("pay", amount=5), store=store, middleware=both).run("go", session_id="s"))
    with pytest.raises(ProgramChanged, match="any more"):
        await runner([plain], store=store, middleware=[Prepares()]).resume("s", {asked: False})
    assert ran == []
    (text,) = results(await runner([first], store=store, middleware=both).recover("s"))
    assert ("refused" in text or "no" in text, ran) == (True, [])


@pytest.mark.parametrize("new", [pay_in("USD"), pay_from("mine")])
async def test_a_review_is_asked_anew_too(store: Store, new: Any) -> None:  # rules R17, I14
    made = runner([reviewed(tool(pay.fn, name="pay"))], call("pay", amount=5), store=store)
    asked = lone(await made.run("go", session_id="s"))
    other = runner([reviewed(tool(new.fn, name="pay"))], store=store)
    again = lone(await other.resume("s", {asked: True}))
    assert (again, ran) == (f"{asked}#2", [])
    assert results(await other.resume("s", {again: True})) == ["paid"]
    assert len(ran) == 1


def _asking(currency: str) -> Any:
    async def pay(amount: int, currency: str = currency) -> str:
        """Pay from an account."""
        ran.append((interrupt("Which account?", key="account", schema=str), currency))
        return "paid"

    return tool(pay, approval=True)


async def test_a_question_of_the_tool_itself_keeps_its_answer(store: Store) -> None:  # rules R17, R6
    made = runner([_asking("EUR")], call("pay", amount=5), store=store)
    lone(await made.run("go", session_id="s"))
    lone(await made.resume("s", {"approval": True}))
    other = runner([_asking("USD")], store=store)
    (now,) = (await other.resume("s", {"account": "NL1"})).interrupts
    assert (now.key, now.info.arguments, ran) == ("approval", {"amount": 5, "currency": "USD"}, [])
    assert results(await other.resume("s", {now.id: True})) == ["paid"]
    assert ran == [("NL1", "USD")]


async def test_each_of_several_calls_in_a_node_has_its_own(store: Store) -> None:  # rules R17, T3
    calls = [call("pay", "c1", amount=1), call("pay", "c2", amount=2)]

    def ask(state: Any) -> dict[str, Any]:
        return {"messages": [Message.assistant("", tool_calls=calls)]}

    for asked in (await desk(pay, ask, store).run({}, session_id="s")).interrupts:
        with pytest.raises(StaleCheckpoint):
            await desk(pay_in("USD"), ask, store).resume("s", {asked.id: True})
    for asked in await desk(pay, ask, store).pending("s"):
        await desk(pay_in("USD"), ask, store).resume("s", {asked.id: True})
    assert sorted(ran) == [(1, "USD"), (2, "USD")]


# Validators


def _more(amount: int) -> int:
    return amount + 1


def _less(amount: int) -> int:
    return -amount


async def test_a_validator_that_makes_something_else_each_time(store: Store) -> None:  # rules T1, T4
    @tool(approval=True)
    async def pay(amount: Annotated[int, AfterValidator(_more)], to: Annotated[str, AfterValidator(str.strip)]) -> str:
        """Pay."""
        ran.append((amount, to))
        return "paid"

    made = runner([pay], call("pay", amount=1, to=" bob "), store=store)
    (asked,) = (await made.run("go", session_id="s")).interrupts
    assert asked.info.arguments == {"amount": 2, "to": "bob"}
    (again,) = (await runner([pay], store=store).resume("s", {asked.id: Edit({"amount": 5, "to": "bob"})})).interrupts
    assert "makes something else" in (again.prompt or "")
    await runner([pay], store=store).resume("s", {again.id: True})
    assert ran == [(2, "bob")]


async def test_a_review_does_not_run_what_a_validator_makes_of_an_edit(store: Store) -> None:  # rules T1, T4
    @reviewed
    @tool
    async def pay(amount: Annotated[int, AfterValidator(_more)]) -> str:
        """Pay."""
        ran.append(amount)
        return "paid"

    asked = lone(await runner([pay], call("pay", amount=1), store=store).run("go", session_id="s"))
    (again,) = (await runner([pay], store=store).resume("s", {asked: Edit({"amount": 5})})).interrupts
    assert "makes something else" in (again.prompt or "")
    await runner([pay], store=store).resume("s", {again.id: True})
    assert ran == [2]


@pytest.mark.parametrize("is_reviewed", [False, True])
async def test_an_edit_says_what_is_another_each_time(store: Store, is_reviewed: bool) -> None:  # rules T1, T4
    made = pay_order(("id", str, field(default_factory=lambda: uuid4().hex)))
    made = reviewed(tool(made.fn, name="pay")) if is_reviewed else made
    asked = lone(await runner([made], call("pay", order={"cents": 1}), store=store).run("go", session_id="s"))
    (again,) = (await runner([made], store=store).resume("s", {asked: Edit({"order": {"cents": 2}})})).interrupts
    assert ("leave out 'order.id'" in (again.prompt or ""), ran) == (True, [])
    await runner([made], store=store).resume("s", {again.id: Edit({"order": {"cents": 2, "id": "mine"}})})
    assert [(each.cents, each.id) for each in ran] == [(2, "mine")]


@pytest.mark.parametrize("is_reviewed", [False, True])
async def test_an_edit_leaves_out_only_what_was_shown(store: Store, is_reviewed: bool) -> None:  # rules T1, T4
    limit = [100.0]
    made = pay_order(("limit", float, field(default_factory=lambda: limit[0])))
    made = reviewed(tool(made.fn, name="pay")) if is_reviewed else made
    asked = lone(await runner([made], call("pay", order={"cents": 1}), store=store).run("go", session_id="s"))
    limit[0] = 999.0
    (again,) = (await runner([made], store=store).resume("s", {asked: Edit({"order": {"cents": 2}})})).interrupts
    assert ("leave out 'order.limit'" in (again.prompt or ""), ran) == (True, [])
    assert again.info.arguments == {"order": {"cents": 1, "limit": 100.0}}
    limit[0] = 100.0
    await runner([made], store=store).resume("s", {again.id: Edit({"order": {"cents": 2}})})
    assert [(each.cents, each.limit) for each in ran] == [(2, 100.0)]


async def test_a_validator_and_a_new_parameter(store: Store) -> None:  # rules R17, T1
    def made(*more: Any) -> Any:
        def pay(amount: int, account: str = "mine") -> str:
            """Pay."""
            ran.append((amount, account))
            return "paid"

        def first(amount: int) -> str:
            """Pay."""
            return pay(amount)

        fn = pay if more else first
        fn.__annotations__["amount"] = Annotated[int, AfterValidator(_more)]
        return tool(fn, name="pay", approval=True)

    asked = await paused(store, made())
    other = runner([made("account")], store=store)
    again = await superseded(other, asked)
    await other.resume("s", {again: True})
    assert ran == [(6, "mine")]


async def test_a_validator_that_changed_is_told(store: Store) -> None:  # rules R10, R17
    def made(change: Any) -> Any:
        def pay(amount: int) -> str:
            """Pay."""
            ran.append(amount)
            return "paid"

        pay.__annotations__["amount"] = Annotated[int, AfterValidator(change)]
        return tool(pay, approval=True)

    asked = lone(await runner([made(_more)], call("pay", amount=1), store=store).run("go", session_id="s"))
    with pytest.raises(ProgramChanged, match="converts"):
        await runner([made(_less)], store=store).resume("s", {asked: True})
    assert ran == []
