"""Gates fail closed: what does not say clearly whether a call may run ends the run, and nothing runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Literal, cast

import pytest
from msgspec.structs import replace

from adjourn import ChatModelAgent, Message, Retry, Runner, UsageError, current, tool, workflow
from adjourn.agents import Supervisor
from adjourn.graph import START, MessagesState, StateGraph
from adjourn.middleware import ApprovalPolicy, ApprovalRule, CallLimits, Middleware
from adjourn.middleware.hooks import ToolCallable, ToolRequest, ToolStream
from adjourn.stores import Store
from adjourn.testing import ScriptedModel
from adjourn.tools import Tool, approved
from tests.agents.calling import agent, call, lone, results, runner

ran: list[int] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ran.clear()


def payer(approval: Any) -> Tool:
    async def pay(cents: int) -> str:
        """Pay."""
        ran.append(cents)
        return "paid"

    return tool(pay, approval=approval)


PAY = call("pay", cents=1)


def no_return(cents: int) -> None:
    """Forget to return."""


def a_list(cents: int) -> list[int]:
    return []


class Likeness:
    """Looks like numpy's own bool, which is no subclass of Python's."""

    def __init__(self, value: bool) -> None:
        self.value = value

    def __bool__(self) -> bool:
        return self.value


class Says:
    """A predicate that is an object."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __call__(self, cents: int) -> Any:
        return self.value


async def later(value: object, cents: int) -> Any:
    return value


def in_pieces(cents: int) -> Any:
    yield True


LOOSE: list[tuple[Any, str]] = [
    (no_return, "'no_return', returned None"),
    (lambda: 0, "<lambda>', returned an int"),
    (lambda: 1, "returned an int"),
    (a_list, "'a_list', returned a list"),
    (lambda: "yes", "returned a str"),
    (lambda: Likeness(False), "returned a Likeness"),
    (Says(None), "'Says.__call__', returned None"),
    (partial(later, None), "'later', returned None"),
    (partial(later, 0), "returned an int"),
    (in_pieces, "returned a generator"),
]


@pytest.mark.parametrize("on_error", ["tell", "tell_type", "raise"])
@pytest.mark.parametrize(("approval", "text"), LOOSE)
async def test_a_predicate_says_yes_or_no(approval: Any, text: str, on_error: Literal["tell", "tell_type", "raise"]):
    # rule T9
    made = Runner(agent([payer(approval)], PAY, on_tool_error=on_error))
    with pytest.raises(UsageError, match="The approval of tool 'pay', ") as error:
        await made.run("go", session_id="s")
    assert text in str(error.value)
    assert (ran, results(await made.messages("s"))) == ([], [])


@pytest.mark.parametrize("name", ["bool", "bool_"])  # numpy 2, and 1
async def test_a_bool_of_numpy_is_one(name: str):  # rule T9
    kind = type(name, (Likeness,), {"__module__": "numpy"})
    assert (await runner([payer(lambda: kind(True))], PAY).run("go")).status == "interrupted"
    assert (await runner([payer(lambda: kind(False))], PAY).run("go")).status == "done"
    assert ran == [1]


async def test_once_it_is_mended_the_session_goes_on(store: Store):  # rule T9
    with pytest.raises(UsageError):
        await runner([payer(no_return)], PAY, store=store).run("go", session_id="s")
    mended = runner([payer(True)], store=store)
    result = await mended.resume("s", {lone(await mended.recover("s")): True})
    assert (results(result), ran) == (["paid"], [1])


# Whatever is around the call


class Swallows(Middleware):
    """Tells the model nothing of errors."""

    async def wrap_tool(self, call: ToolCallable, request: ToolRequest) -> Any:
        try:
            return await call(request)
        except Exception:  # noqa: BLE001  # as users write it
            return "all well"


def loose(name: str = "Inner", *script: Any) -> ChatModelAgent:
    return agent([payer(no_return)], *script, PAY, name=name)


def in_a_graph() -> Any:
    def says(state: Any) -> dict[str, Any]:
        return {"messages": [Message.assistant("", tool_calls=[PAY])]}

    made = StateGraph(MessagesState, name="g").add_node("says", says)
    made.add_tools_node("act", [payer(no_return)], retry=Retry(attempts=3, backoff=0, on=BaseException))
    return made.add_edge(START, "says").add_edge("says", "act").compile()


@workflow
async def careless(input: str) -> str:
    try:
        return str(await current().run(loose(), input))
    except Exception:  # noqa: BLE001  # as users write it
        return "all well"


def supervised() -> Supervisor:
    hands_over = call("transfer_to_agent", "t", agent_name="Inner")
    return Supervisor("Boss", model=ScriptedModel([hands_over, "done", "done"]), agents=[loose()])


def of_policies(*rules: ApprovalRule) -> ChatModelAgent:
    return agent([payer(no_return)], PAY, middleware=[ApprovalPolicy(rules)])


AROUND: dict[str, Any] = {
    "agent tool": lambda: agent([loose()], call("Inner", request="x")),
    "swallowed agent tool": lambda: agent([loose()], call("Inner", request="x"), middleware=[Swallows()]),
    "agent tool in agent tool": lambda: agent(
        [agent([loose()], call("Inner", request="x"), name="Middle")], call("Middle", request="x")
    ),
    "swallowed": lambda: agent([payer(no_return)], PAY, middleware=[Swallows()]),
    "graph": in_a_graph,
    "workflow": lambda: careless,
    "supervisor": supervised,
    "policy": lambda: of_policies(ApprovalRule(tool="other", action="allow")),
    "call limits": lambda: agent([payer(no_return)], PAY, middleware=[CallLimits(tool_calls=9)]),
    "wrapper": lambda: agent([approved(payer(True), cast("Any", no_return))], PAY),
}


@pytest.mark.parametrize("around", AROUND)
async def test_nothing_around_the_call_makes_up_for_it(around: str):  # rule T9
    with pytest.raises(UsageError, match=r"The approval of tool 'pay', .*no_return', returned None"):
        await Runner(AROUND[around]()).run({} if around == "graph" else "go")
    assert ran == []


class Changes(Swallows):
    """Calls with other arguments, and swallows what comes of it."""

    async def wrap_tool(self, call: ToolCallable, request: ToolRequest) -> Any:
        return await super().wrap_tool(call, replace(request, arguments={"cents": 2}))


def asks_once(cents: int) -> Any:
    return False if cents == 1 else None


async def test_a_wrapper_that_changes_the_arguments_is_held_up_too():  # rules T9, T1
    with pytest.raises(UsageError, match="returned None"):
        await Runner(agent([payer(asks_once)], PAY, middleware=[Changes()])).run("go")
    assert ran == []


class ChangesStream(Middleware):
    async def wrap_tool_stream(self, call: ToolStream, request: ToolRequest) -> AsyncIterator[Any]:
        try:
            async for piece in call(replace(request, arguments={"cents": 2})):
                yield piece
        except UsageError:
            yield "all well"


async def test_around_a_stream_too():  # rules T9, T1
    @tool(approval=asks_once)
    async def pay(cents: int) -> AsyncIterator[str]:
        """Pay."""
        ran.append(cents)
        yield "paid"

    with pytest.raises(UsageError, match="returned None"):
        await Runner(agent([pay], PAY, middleware=[ChangesStream()])).run("go")
    assert ran == []


@pytest.mark.parametrize("error", [ValueError("no"), KeyError("limit"), UsageError("no")])
async def test_a_predicate_that_raises_lets_nothing_run(error: Exception):  # rule T9
    def asks(cents: int) -> bool:
        raise error

    made = Runner(agent([payer(asks)], PAY))
    with pytest.raises(type(error)):
        await made.run("go", session_id="s")
    assert (ran, results(await made.messages("s"))) == ([], [])
