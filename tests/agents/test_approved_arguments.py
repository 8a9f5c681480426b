"""What was approved is what runs: nothing between the question and the call can make it something else."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace
from pydantic import BaseModel, Field, PrivateAttr, SecretStr, field_serializer, model_serializer, model_validator

from adjourn import ChatModelAgent, Edit, Retry, Runner, Tool, ToolCall, interrupt, tool
from adjourn.errors import NotStorable, UsageError
from adjourn.events import ToolCalled
from adjourn.graph import START, MessagesState, StateGraph
from adjourn.messages import Message
from adjourn.middleware import ApprovalPolicy, ApprovalRule, Middleware
from adjourn.middleware.hooks import ToolCallable, ToolRequest, ToolStream
from adjourn.stores import Store
from adjourn.testing import ScriptedModel
from adjourn.tools import approved, reviewed
from tests.agents.calling import results

ran: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


def runner_of(made: Tool, arguments: dict[str, Any], *middleware: Middleware, **options: Any) -> Runner:
    call = ToolCall(id="c1", name=made.name, arguments=arguments)
    agent = ChatModelAgent("A", model=ScriptedModel([call, *["done"] * 5]), tools=[made], middleware=middleware)
    return Runner(agent, **options)


async def approve(runner: Runner, **options: Any) -> Any:
    """The result after everything that was asked has been approved."""
    result = await runner.run("go", session_id="s")
    while result.interrupts:
        result = await runner.resume("s", {asked.id: True for asked in result.interrupts})
    return result


# Wrappers


@tool(approval=True)
def pay(order: dict[str, Any]) -> str:
    """Pay."""
    ran.append(order)
    return "paid"


def _force(order: dict[str, Any], cents: object) -> None:
    dict[str, Any].__setitem__(order, "cents", cents)


class InPlace(Middleware):
    """Changes what it was shown, and passes on a copy of the request."""

    def __init__(self, how: str) -> None:
        self.how = how

    async def wrap_tool(self, call: ToolCallable, request: ToolRequest) -> Any:
        match self.how:
            case "mapping":
                request.arguments["order"] = {"cents": 1_000_000}  # type: ignore[index]
            case "inside":
                request.arguments["order"]["cents"] = 1_000_000
            case "by force":
                _force(request.arguments["order"], 1_000_000)
            case _:
                _force(request.arguments["order"], True)
        return await call(replace(request, arguments=request.arguments))


@pytest.mark.parametrize("how", ["mapping", "inside", "by force", "as a bool"])
async def test_a_wrapper_cannot_change_what_was_approved_in_place(how: str) -> None:  # rule T1
    result = await approve(runner_of(pay, {"order": {"cents": 1}}, InPlace(how)))
    assert (ran, results(result)[0][:6]) == ([], "Error:")


class Rewrites(Middleware):
    """Passes on other arguments."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self.arguments = arguments

    async def wrap_tool(self, call: ToolCallable, request: ToolRequest) -> Any:
        return await call(ToolRequest(tool="pay", call_id="c1", arguments=self.arguments, agent="A"))


@pytest.mark.parametrize("value", [True, 1.0, "1", 2])
async def test_a_wrapper_cannot_pass_on_something_else(value: Any) -> None:  # rule T1
    runner = runner_of(pay, {"order": {"cents": 1}}, Rewrites({"order": {"cents": value}}))
    (text,) = results(await approve(runner))
    assert ran == []
    assert "which a person has to approve" in text


async def test_a_wrapper_may_pass_on_the_same() -> None:
    result = await approve(runner_of(pay, {"order": {"cents": 1}}, Rewrites({"order": {"cents": 1}})))
    assert (ran, results(result)) == ([{"cents": 1}], ["paid"])


class ChangesStream(Middleware):
    def wrap_tool_stream(self, call: ToolStream, request: ToolRequest) -> AsyncIterator[str]:
        _force(request.arguments["order"], 1_000_000)
        return call(replace(request, arguments=request.arguments))


async def test_nor_around_a_stream() -> None:  # rule T1
    @tool(approval=True)
    async def pay(order: dict[str, Any]) -> AsyncIterator[str]:
        """Pay."""
        ran.append(order)
        yield "paid"

    result = await approve(runner_of(pay, {"order": {"cents": 1}}, ChangesStream()))
    assert (ran, results(result)[0][:6]) == ([], "Error:")


# Predicates


def _raise_it(order: dict[str, Any]) -> bool:
    asks = order["cents"] > 100
    order["cents"] = 1_000_000
    return asks


@pytest.mark.parametrize("cents", [1, 900])
async def test_a_predicate_cannot_change_what_runs(cents: int) -> None:  # rule T1
    made = tool(pay.fn, name="pay", approval=_raise_it)
    await approve(runner_of(made, {"order": {"cents": cents}}))
    assert ran == [{"cents": cents}]


async def test_a_predicate_that_takes_all_cannot_either() -> None:  # rule T1
    def asks(arguments: dict[str, Any]) -> bool:
        arguments["order"]["cents"] = 1_000_000
        return False

    await approve(runner_of(tool(pay.fn, name="pay", approval=asks), {"order": {"cents": 1}}))
    assert ran == [{"cents": 1}]


async def test_an_attempt_cannot_change_what_the_next_one_runs_with() -> None:  # rules T1, T6
    @tool(approval=True, retry=Retry(attempts=3, backoff=0))
    def pay(order: dict[str, Any]) -> str:
        """Pay."""
        ran.append(dict(order))
        order["cents"] *= 1000
        if len(ran) < 3:
            raise OSError("no line")
        return "paid"

    await approve(runner_of(pay, {"order": {"cents": 1}}))
    assert ran == [{"cents": 1}] * 3


# What is shown covers everything that runs


class Excluded(BaseModel):
    cents: int
    to: str = Field("shop", exclude=True)


class Masked(BaseModel):
    cents: int
    to: str = "shop"

    @field_serializer("to")
    def mask(self, to: str) -> str:
        return "***"


class ExcludedIf(BaseModel):
    cents: int
    to: str = Field("shop", exclude_if=lambda to: to == "shop")


class Private(BaseModel):
    cents: int
    to: str = "shop"
    _to: str = PrivateAttr()

    @model_validator(mode="after")
    def keep(self) -> Private:
        self._to, self.to = self.to, "shop"
        return self


class PrivateDefault(BaseModel):
    _to: str = PrivateAttr("shop")


class PrivateFactory(PrivateDefault):
    _to: str = PrivateAttr(default_factory=lambda: "shop")


class PrivateHolder(BaseModel):
    orders: list[PrivateDefault]


class Secret(BaseModel):
    cents: int
    to: SecretStr = SecretStr("shop")


class Renamed(BaseModel):
    cents: int
    to: str = Field("shop", validation_alias="to", serialization_alias="target")


class Nested(BaseModel):
    orders: list[Excluded]


@dataclass
class Holder:
    order: Excluded


class Omitted(BaseModel):
    cents: int
    to: str = "shop"

    @model_serializer(mode="wrap")
    def write(self, write: Any) -> Any:
        return {name: value for name, value in write(self).items() if value != "shop"}


class Told(BaseModel):
    cents: int
    to: str = "shop"

    @model_validator(mode="before")
    @classmethod
    def read(cls, data: Any) -> Any:
        return {"cents": int(data)} if isinstance(data, str) else data

    @model_serializer
    def write(self) -> str:
        return str(self.cents)


@dataclass
class Wrong:
    cents: int
    to: Decimal = 100  # type: ignore[assignment]  # as people write


def _order(kind: type[Any], **order: Any) -> dict[str, Any]:
    return {"order": {"orders": [order]} if kind is Nested else {"order": order} if kind is Holder else order}


def tool_of(kind: type[Any], **options: Any) -> Tool:
    def pay(order: Any) -> str:
        """Pay."""
        ran.append(order)
        return "paid"

    pay.__annotations__["order"] = kind
    return tool(pay, **options)


WAYS: dict[str, Callable[[type[Any]], Any]] = {
    "approval": lambda kind: tool_of(kind, approval=True),
    "predicate": lambda kind: tool_of(kind, approval=lambda: True),
    "approved": lambda kind: approved(tool_of(kind)),
    "reviewed": lambda kind: reviewed(tool_of(kind)),
    "asks": lambda kind: runner_of(tool_of(kind), {}, ApprovalPolicy([ApprovalRule(tool="p*")])),
    "denies": lambda kind: runner_of(
        tool_of(kind), {}, ApprovalPolicy([ApprovalRule(arguments={"order": {}}, action="deny")])
    ),
}


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize(
    "kind", [Excluded, ExcludedIf, Nested, Holder, Wrong, PrivateDefault, PrivateFactory, PrivateHolder]
)
def test_a_class_that_hides_a_field_is_refused_where_people_or_rules_decide(kind: type[Any], how: str) -> None:
    with pytest.raises(UsageError, match="'pay' are decided by people or rules"):  # rule T1
        WAYS[how](kind)
    assert tool_of(kind).name == "pay"


def test_a_policy_that_cannot_ask_about_a_tool_leaves_it_as_it_is() -> None:  # rule T1
    rules = [ApprovalRule(tool="other"), ApprovalRule(action="deny"), ApprovalRule(action="allow")]
    rules += [ApprovalRule(arguments={"path": "/etc/*"}, action=action) for action in ("ask", "deny")]
    runner_of(tool_of(Excluded), {}, ApprovalPolicy(rules))


@pytest.mark.parametrize("how", ["approval", "predicate", "reviewed"])
@pytest.mark.parametrize("kind", [Masked, Private, Secret, Renamed, Told])
async def test_a_field_that_nobody_is_shown_does_not_run(kind: type[Any], how: str) -> None:  # rule T1
    runner = runner_of(WAYS[how](kind), _order(kind, cents=1, to="thief"))
    result = await runner.run("go", session_id="s")
    assert (result.status, result.interrupts, ran) == ("done", (), [])
    assert "a person must see everything that runs" in results(result)[0]


@pytest.mark.parametrize("kind", [Omitted, Told])
async def test_a_default_that_a_serializer_leaves_out_does_not_run(kind: type[Any]) -> None:  # rule T1
    result = await runner_of(tool_of(kind, approval=True), _order(kind, cents=1)).run("go")
    assert (result.status, ran) == ("done", [])


async def test_what_is_shown_as_a_whole_runs() -> None:  # rule T1
    result = await approve(runner_of(tool_of(Private, approval=True), _order(Private, cents=1)))
    assert (len(ran), results(result)) == (1, ["paid"])


async def test_an_edit_cannot_bring_in_what_is_not_shown() -> None:  # rules T1, T4
    runner = runner_of(tool_of(Private, approval=True), _order(Private, cents=1))
    (asked,) = (await runner.run("go", session_id="s")).interrupts
    (again,) = (await runner.resume("s", {asked.id: Edit({"order": {"cents": 1, "to": "x"}})})).interrupts
    assert "a person must see everything that runs" in (again.prompt or "")
    await runner.resume("s", {again.id: True})
    assert [order.to for order in ran] == ["shop"]


async def test_without_an_approval_nobody_needs_to_be_shown_anything() -> None:
    await runner_of(tool_of(Excluded), _order(Excluded, cents=1, to="x")).run("go")
    assert [order.to for order in ran] == ["x"]


# A review that edits


@pytest.mark.parametrize("wrapped", [False, True])
async def test_an_edit_in_a_review_is_what_everybody_is_shown(store: Store, wrapped: bool) -> None:  # rule T4
    class Asks(Middleware):
        """Asks when the tool has run already, so that it runs again and gets the result."""

        async def wrap_tool(self, call: ToolCallable, request: ToolRequest) -> Any:
            result = await call(request)
            interrupt("Fine?", key="after", schema=bool)
            return result

    made = reviewed(tool(pay.fn, name="pay"))
    runner = runner_of(made, {"order": {"cents": 1}}, *([Asks()] if wrapped else []), store=store)
    first = [event async for event in runner.run("go", session_id="s")]
    assert not any(isinstance(event, ToolCalled) for event in first)
    (asked,) = await runner.pending("s")
    events = [
        event async for event in runner.resume("s", {asked.id: Edit({"order": {"cents": 2}})}, by="ann@example.org")
    ]
    if wrapped:
        await runner.resume("s", {"after": True})
    assert [event.call.arguments for event in events if isinstance(event, ToolCalled)] == [{"order": {"cents": 2}}]
    said = await runner.messages("s")
    (call,) = [call for message in said for call in message.tool_calls]
    assert (ran, call.arguments) == ([{"cents": 2}], {"order": {"cents": 2}})
    assert [message.text for message in said if message.role == "tool"] == ["paid"]


async def test_so_it_is_in_a_graph(store: Store) -> None:  # rules T4, L6
    def ask(state: Any) -> dict[str, Any]:
        call = ToolCall(id="c1", name="pay", arguments={"order": {"cents": 1}})
        return {"messages": [Message.assistant("", tool_calls=[call])]}

    graph = (
        StateGraph(MessagesState, name="desk")
        .add_node("ask", ask)
        .add_tools_node("tools", [reviewed(tool(pay.fn, name="pay"))])
        .add_edge(START, "ask")
        .add_edge("ask", "tools")
        .compile(store=store)
    )
    (asked,) = (await graph.run({}, session_id="s")).interrupts
    result = await graph.resume("s", {asked.id: Edit({"order": {"cents": 2}})})
    (call,) = [call for message in result.messages for call in message.tool_calls]
    assert (ran, call.arguments) == ([{"cents": 2}], {"order": {"cents": 2}})


# What cannot be asked


async def test_a_question_that_cannot_be_stored_fails_the_run_and_spends_no_approval(store: Store) -> None:  # rule I7
    broken = True

    @tool(approval=True)
    def pay(cents: int) -> str:
        """Pay."""
        account = interrupt({"lock": threading.Lock()} if broken else "Which account?", key="account")
        ran.append(account)
        return "paid"

    runner = runner_of(pay, {"cents": 1}, store=store)
    (asked,) = (await runner.run("go", session_id="s")).interrupts
    with pytest.raises(NotStorable, match="lock"):
        await runner.resume("s", {asked.id: True})
    assert not [message for message in await runner.messages("s") if message.role == "tool"]
    broken = False
    (account,) = (await runner.recover("s")).interrupts
    result = await runner.resume("s", {account.id: "savings"})
    assert (ran, results(result)) == (["savings"], ["paid"])


async def test_changing_arguments_that_are_not_approved_is_no_mistake() -> None:
    made = tool(pay.fn, name="pay")
    await runner_of(made, {"order": {"cents": 1}}, Rewrites({"order": {"cents": 2}})).run("go")
    assert ran == [{"cents": 2}]
