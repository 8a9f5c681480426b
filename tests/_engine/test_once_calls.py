"""Which call of a `@once` function is which: by key, or by name, arguments and place among equals."""

import asyncio
import threading
from typing import Any

import pytest

from adjourn import UsageError, interrupt, once
from adjourn.errors import NotStorable
from adjourn.stores import Store
from tests._engine.asking import lone

made: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_made() -> None:
    made.clear()


@once
async def charge(cents: int, currency: str = "EUR") -> str:
    await asyncio.sleep(0)
    made.append((cents, currency))
    return f"receipt {len(made)}"


async def test_equal_calls_are_calls_of_their_own(store: Store):  # rules R6, R13
    async def node(state: Any) -> Any:
        receipts = [await charge(1), await charge(1), await charge(2)]
        return {"log": [receipts, interrupt("q", key="q")]}

    await lone(node, store=store).run({}, session_id="s")
    result = await lone(node, store=store).resume("s", {"q": 1})
    assert result.state["log"] == [["receipt 1", "receipt 2", "receipt 3"], 1]
    assert len(made) == 3


async def test_arguments_count_however_they_are_given(store: Store):  # rule R6
    ways: list[Any] = [
        lambda: charge(100),
        lambda: charge(cents=100),
        lambda: charge(100, "EUR"),
        lambda: charge(currency="EUR", cents=100),
    ]
    for first in ways:
        for second in ways:
            made.clear()
            passes = iter([first, second])

            async def node(state: Any, passes: Any = passes) -> Any:
                return {"log": [await next(passes)(), interrupt("q", key="q")]}

            graph = lone(node)
            await graph.run({}, session_id="s")
            assert (await graph.resume("s", {"q": 1})).state["log"] == ["receipt 1", 1]


async def test_a_key_says_which_call_it_is(store: Store):  # rules R6, R13
    passes: list[int] = []

    @once(key="the charge", ignore=["noise"])
    async def by_key(noise: int) -> int:
        made.append(noise)
        return noise

    def order_of(order: str, noise: object) -> str:
        return order

    @once(key=order_of)
    async def by_order(order: str, noise: object) -> str:
        made.append(order)
        return f"{order} {len(passes)}"

    async def node(state: Any) -> Any:
        passes.append(1)
        got = [await by_key(len(passes)), await by_order("a", object()), await by_order("b", object())]
        return {"log": [got, interrupt("q", key="q")]}

    await lone(node, store=store).run({}, session_id="s")
    assert (await lone(node, store=store).resume("s", {"q": 1})).state["log"] == [[1, "a 1", "b 1"], 1]
    assert made == [1, "a", "b"]


async def test_arguments_can_be_left_out(store: Store):  # rule R13
    class Shop:
        @once(ignore=["self", "client"])
        def pay(self, cents: int, client: object) -> int:
            made.append(cents)
            return cents

    def node(state: Any) -> Any:
        return {"log": [Shop().pay(5, object()), interrupt("q", key="q")]}

    await lone(node, store=store).run({}, session_id="s")
    assert (await lone(node, store=store).resume("s", {"q": 1})).state["log"] == [5, 1]
    assert made == [5]


@pytest.mark.parametrize(
    "argument", [object(), threading.Lock(), lambda: 1, float("nan")], ids=["object", "lock", "lambda", "nan"]
)
async def test_arguments_that_cannot_be_told_are_named(argument: Any):  # rule R13
    @once
    def call(client: Any, cents: int) -> int:
        made.append(cents)
        return cents

    def node(state: Any) -> Any:
        return {"log": [call(argument, 5)]}

    with pytest.raises(NotStorable, match="client") as raised:
        await lone(node).run({})
    assert "ignore" in str(raised.value)
    assert made == []


def test_ignoring_what_is_no_parameter_is_refused():  # rule R13
    with pytest.raises(UsageError, match="nobody"):
        once(ignore=["nobody"])(lambda cents: cents)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]


async def test_a_name_tells_functions_apart(store: Store):  # rule R13
    def build(name: str) -> Any:
        @once(name=name)
        def call(n: int) -> str:
            made.append(name)
            return name

        return call

    def node(state: Any) -> Any:
        return {"log": [build("a")(1), build("b")(1), interrupt("q", key="q")]}

    await lone(node, store=store).run({}, session_id="s")
    assert (await lone(node, store=store).resume("s", {"q": 1})).state["log"] == ["a", "b", 1]
    assert made == ["a", "b"]


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_call_that_failed_before_a_question_fails_again_without_a_call(
    is_async: bool, store: Store
):  # rules R6, R13
    @once
    async def fetch(server: str) -> str:
        return _fetch(server)

    @once
    def fetch_now(server: str) -> str:
        return _fetch(server)

    async def async_node(state: Any) -> Any:
        try:
            got = await fetch("a")
        except ConnectionError:
            got = await fetch("b")
        return {"log": [got, interrupt("q", key="q")]}

    def sync_node(state: Any) -> Any:
        try:
            got = fetch_now("a")
        except ConnectionError:
            got = fetch_now("b")
        return {"log": [got, interrupt("q", key="q")]}

    node = async_node if is_async else sync_node
    await lone(node, store=store).run({}, session_id="s")
    assert (await lone(node, store=store).resume("s", {"q": 1})).state["log"] == ["from b", 1]
    assert made == ["a", "b"]


def _fetch(server: str) -> str:
    made.append(server)
    if server == "a":
        raise ConnectionError("away")
    return f"from {server}"


async def test_calls_in_threads_at_once_may_come_in_any_order(store: Store):  # rules R6, R13
    broken = True

    @once
    def work(n: int) -> int:
        if broken and n == 1:
            raise ConnectionError("away")
        made.append(n)
        return n

    async def node(state: Any) -> Any:
        jobs = [asyncio.to_thread(work, n) for n in (1, 2, 3)]
        results = await asyncio.gather(*jobs, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return {"log": results}

    with pytest.raises(ConnectionError):
        await lone(node, store=store).run({}, session_id="s")
    assert sorted(made) == [2, 3]
    broken = False
    assert (await lone(node, store=store).recover("s")).state["log"] == [1, 2, 3]
    assert sorted(made) == [1, 2, 3]
