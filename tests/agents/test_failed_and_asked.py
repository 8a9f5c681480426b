"""Try, and if it fails ask a person: what failed before the question is not tried again with the answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from adjourn import Middleware, Runner, current, interrupt, once, tool
from adjourn.errors import NotStorable, ReplayMismatch
from adjourn.middleware.hooks import ToolCallable, ToolRequest
from adjourn.stores import Store
from tests.agents.calling import agent, call, lone, results, runner

ran: list[Any] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ran.clear()


@once
async def charge(cents: int) -> str:
    ran.append(cents)
    raise ConnectionError("the bank is away")


@pytest.mark.parametrize("answer", ["do not charge", "wait"])
async def test_a_tool_that_asks_after_a_failure(answer: str, store: Store) -> None:  # rule R13
    async def pay(cents: int) -> str:
        """Pay."""
        try:
            return await charge(cents)
        except ConnectionError as error:
            return f"{error}, so: {interrupt('Charge again?')}"

    payer = agent([pay], call("pay", cents=5))

    def build() -> Runner:
        return Runner(payer, store=store)

    asked = lone(await build().run("go", session_id="s"))
    result = await build().resume("s", {asked: answer})
    assert results(result) == [f"the bank is away, so: {answer}"]
    assert ran == [5]


class AsksWhenItFails(Middleware):
    async def wrap_tool(self, call: ToolCallable, request: ToolRequest) -> Any:
        try:
            return await call(request)
        except Exception as error:  # noqa: BLE001  # whatever it is, a person decides
            return f"{error}, so: {interrupt('Again?')}"


async def test_a_wrapper_that_asks_after_the_tool_failed(store: Store) -> None:  # rule R13
    async def pay(cents: int) -> str:
        """Pay."""
        ran.append(cents)
        raise ConnectionError("the bank is away")

    payer = agent([pay], call("pay", cents=5), middleware=[AsksWhenItFails()])

    def build() -> Runner:
        return Runner(payer, store=store)

    asked = lone(await build().run("go", session_id="s"))
    result = await build().resume("s", {asked: "leave it"})
    assert results(result) == ["the bank is away, so: leave it"]
    assert ran == [5]


async def test_a_failure_that_cannot_be_kept_fails_the_run_before_anybody_is_asked(store: Store) -> None:  # rule R13
    class Declined(Exception):
        pass

    async def pay(cents: int) -> str:
        """Pay."""
        raise Declined("no money")

    made = runner([pay], call("pay", cents=5), store=store, middleware=[AsksWhenItFails()])
    with pytest.raises(NotStorable, match=r"@tool\(raises=\[Declined\]\), or raises = \[Declined\] of the middleware"):
        await made.run("go", session_id="s")
    assert await made.pending("s") == []


class Declined(Exception):
    pass


class AsksWhenDeclined(AsksWhenItFails):
    raises = (Declined,)


@pytest.mark.parametrize("named_by", ["tool", "middleware"])
async def test_classes_of_a_tools_failures_can_be_named(named_by: str, store: Store) -> None:  # rule R13
    async def pay(cents: int) -> str:
        """Pay."""
        ran.append(cents)
        raise Declined("no money")

    by_tool = named_by == "tool"
    tools, asks = (
        [tool(pay, raises=[Declined] if by_tool else [])],
        AsksWhenItFails() if by_tool else AsksWhenDeclined(),
    )
    payer = agent(tools, call("pay", cents=5), middleware=[asks])
    asked = lone(await Runner(payer, store=store).run("go", session_id="s"))
    result = await Runner(payer, store=store).resume("s", {asked: "leave it"})
    assert results(result) == ["no money, so: leave it"]
    assert ran == [5]


async def test_a_tool_that_takes_too_long_is_seen_again(store: Store) -> None:  # rules R13, T6
    async def pay(cents: int) -> str:
        """Pay."""
        ran.append(cents)
        await asyncio.Event().wait()
        return "never"

    payer = agent([tool(pay, timeout=0.01)], call("pay", cents=5), middleware=[AsksWhenItFails()])
    asked = lone(await Runner(payer, store=store).run("go", session_id="s"))
    result = await Runner(payer, store=store).resume("s", {asked: "leave it"})
    assert "so: leave it" in results(result)[0]
    assert ran == [5]


async def test_agents_run_by_a_tool_are_known_by_their_input(store: Store) -> None:  # rule R6
    order = ["a", "b"]

    async def research(topic: str) -> str:
        """Research."""
        found = [await current().run(expert, f"about {name}", key=name) for name in order]
        return f"{found}, {interrupt('Enough?', key='enough')}"

    def fact() -> str:
        """Give a fact."""
        ran.append("fact")
        return "fact"

    expert = agent([tool(fact)], call("fact"), "one", call("fact"), "two", name="expert")

    def build() -> Runner:
        return runner([research], call("research", topic="x"), store=store)

    await build().run("go", session_id="s")
    result = await build().resume("s", {"enough": "yes"})
    assert results(result) == ["['one', 'two'], yes"]
    assert ran == ["fact", "fact"]


async def test_a_model_is_not_told_of_a_mismatch(store: Store) -> None:  # rules R6, T1
    key = "first"

    async def ask() -> str:
        """Ask."""
        return f"got {interrupt('?', key=key)}"

    def build() -> Runner:
        return runner([ask], call("ask"), store=store)

    await build().run("go", session_id="s")
    key = "second"
    with pytest.raises(ReplayMismatch):
        await build().resume("s", {"first": 1})
    key = "first"
    assert results(await build().recover("s")) == ["got 1"]
