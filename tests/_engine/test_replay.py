"""Running user code again: what is on record is given back, and code that does something else is told so."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from adjourn import Retry, Runner, current, interrupt, once, workflow
from adjourn.errors import AlreadyResumed, ReplayMismatch
from adjourn.graph import START, Command, CompiledGraph, StateGraph
from adjourn.stores import Store
from tests._engine.asking import Log, Node, ids, lone, together

made: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_made() -> None:
    made.clear()


@once
def charge(cents: int) -> str:
    made.append(cents)
    return f"receipt {cents}"


@once
def refund(cents: int) -> str:
    made.append(-cents)
    return f"refunded {cents}"


@workflow
async def child(n: int) -> Any:
    made.append(f"child {n}")
    return [n, interrupt("child?", key="child")]


# What the code does the first time, what it does the second time, and what the error must name.

Body = Callable[[], Any]


def ask_one() -> Any:
    return interrupt("one")


def ask_one_then_two() -> Any:
    return [interrupt("one"), interrupt("two")]


def ask_two() -> Any:
    return interrupt("two")


def ask_nothing() -> Any:
    return "nothing"


def ask_by_key() -> Any:
    return interrupt("one", key="a")


def ask_by_another_key() -> Any:
    return interrupt("one", key="b")


def ask_without_key() -> Any:
    return interrupt("one")


def charge_then_ask() -> Any:
    return [charge(100), interrupt("one")]


def charge_then_ask_and_thank() -> Any:
    return [charge(100), interrupt("one"), "thanks"]


def charge_more_then_ask() -> Any:
    return [charge(105), interrupt("one")]


def charge_twice_then_ask() -> Any:
    return [charge(100), charge(100), interrupt("one")]


def only_ask() -> Any:
    return interrupt("one")


def refund_then_ask() -> Any:
    return [refund(100), interrupt("one")]


CHANGES: list[tuple[Body, Body, list[str]]] = [
    (ask_one, ask_two, ["one", "two"]),
    (ask_one, ask_nothing, ["runnable:g;node:ask", "without"]),
    (ask_one_then_two, ask_two, ["one", "two"]),
    (ask_by_key, ask_by_another_key, ["'a'", "'b'"]),
    (ask_by_key, ask_without_key, ["'a'", "one"]),
    (ask_without_key, ask_by_key, ["one", "'a'"]),
    (charge_then_ask, charge_more_then_ask, ["charge"]),
    (charge_then_ask, only_ask, ["charge", "without"]),
    (charge_twice_then_ask, charge_then_ask, ["charge", "without"]),
    (charge_then_ask, refund_then_ask, ["charge", "without"]),
]


def node_of(body: Body) -> Node:
    return lambda state: {"log": [body()]}


def async_node_of(body: Body) -> Node:
    async def node(state: Any) -> Any:
        return {"log": [body()]}

    return node


@pytest.mark.parametrize("kind", [node_of, async_node_of])
@pytest.mark.parametrize(
    ("first", "second", "named"), CHANGES, ids=[f"{first.__name__}-{second.__name__}" for first, second, _ in CHANGES]
)
async def test_code_that_does_something_else_is_told_so(
    first: Body, second: Body, named: list[str], kind: Any, store: Store
):  # rule R6
    result = await lone(kind(first), store=store).run({}, session_id="s")
    with pytest.raises(ReplayMismatch) as raised:
        await lone(kind(second), store=store).resume("s", {ids(result)[0]: "yes"})
    error = raised.value
    assert error.address == "runnable:g;node:ask"
    assert all(word in f"{error.recorded} | {error.now}" for word in named)
    assert error.recorded in str(error)
    assert error.now in str(error)
    assert "@once" in str(error)
    assert "key=" in str(error)
    assert 105 not in made
    recovered = await lone(kind(first), store=store).recover("s")
    assert recovered.status == ("interrupted" if first is ask_one_then_two else "done")
    assert "yes" in repr(recovered.state["log"]) or recovered.status == "interrupted"


@pytest.mark.parametrize("mended", [charge_then_ask, charge_then_ask_and_thank])
async def test_after_a_mismatch_the_session_has_failed_and_its_answer_counts(mended: Body, store: Store):  # rule R6
    asked = ids(await lone(node_of(charge_then_ask), store=store).run({}, session_id="s"))[0]
    wrong, graph = lone(node_of(refund_then_ask), store=store), lone(node_of(mended), store=store)
    for attempt in (wrong.resume("s", {asked: "yes"}), wrong.recover("s")):
        with pytest.raises(ReplayMismatch, match="The answer is kept: `recover` goes on"):
            await attempt
        assert (await graph.status("s")).status == "failed"
        assert not await graph.pending("s")
    with pytest.raises(AlreadyResumed):
        await graph.resume("s", {asked: "yes"})
    assert "yes" in repr((await graph.recover("s")).state["log"])


async def test_an_open_question_outlives_a_mismatch(store: Store):  # rule R6
    async def ask(key: str) -> Any:
        return interrupt(key, key=key)

    async def node(state: Any) -> Any:
        return {"log": list(await asyncio.gather(ask("a"), ask("b")))}

    async def changed(state: Any) -> Any:
        return {"log": [await ask("a")]}

    before = await lone(node, store=store).run({}, session_id="s")
    with pytest.raises(ReplayMismatch, match="without asking"):
        await lone(changed, store=store).resume("s", {"a": 1})
    assert [asked.id for asked in await lone(node, store=store).pending("s")] == ids(before)[1:]
    result = await lone(node, store=store).resume("s", {"b": 2})
    assert result.state["log"] == [1, 2]


async def test_a_mismatch_cannot_be_swallowed(store: Store):  # rule R6
    def changed(state: Any) -> Any:
        try:
            interrupt("two")
        except BaseException:  # noqa: BLE001  # as careless code does
            return {"log": ["swallowed"]}

    result = await lone(node_of(ask_one), store=store).run({}, session_id="s")
    with pytest.raises(ReplayMismatch):
        await lone(changed, store=store).resume("s", {ids(result)[0]: "yes"})
    assert (await lone(node_of(ask_one), store=store).recover("s")).state["log"] == ["yes"]


async def test_a_mismatch_is_not_retried():  # rules R6, G12
    passes: list[int] = []

    def node(state: Any) -> Any:
        passes.append(1)
        return {"log": [interrupt(len(passes))]}

    graph = StateGraph(Log, name="g").add_node("ask", node, retry=Retry(attempts=4)).add_edge(START, "ask").compile()
    result = await graph.run({}, session_id="s")
    with pytest.raises(ReplayMismatch):
        await graph.resume("s", {ids(result)[0]: 1})
    assert len(passes) == 2


async def test_with_a_key_the_prompt_may_differ(store: Store):  # rules R6, I14
    passes: list[int] = []

    def node(state: Any) -> Any:
        passes.append(1)
        return {"log": [interrupt("pass", key="q", prompt=f"Pass {len(passes)}")]}

    await lone(node, store=store).run({}, session_id="s")
    assert (await lone(node, store=store).resume("s", {"q": "yes"})).state["log"] == ["yes"]


async def test_mismatches_in_conditions_are_found(store: Store):  # rules R6, G18
    def build(body: Body) -> CompiledGraph:
        def condition(state: Any) -> str:
            return body()

        def first(state: Any) -> Any:
            made.append("first")
            return {"log": ["first"]}

        graph = StateGraph(Log, name="g").add_node("first", first).add_node("yes", node_of(lambda: "chosen"))
        return graph.add_edge(START, "first").add_conditional_edges("first", condition).compile(store=store)

    result = await build(ask_one).run({}, session_id="s")
    with pytest.raises(ReplayMismatch, match="branch:condition"):
        await build(ask_two).resume("s", {ids(result)[0]: "yes"})
    assert (await build(ask_one).recover("s")).state["log"] == ["first", "chosen"]
    assert made == ["first"]


async def test_a_child_that_is_not_run_again_is_missed(store: Store):  # rules R5, R6
    def parent(runs_child: bool) -> Runner:
        @workflow
        async def flow() -> Any:
            outcome = await current().try_run(child, 1) if runs_child else None
            answer = interrupt("own", key="own")
            return [answer, outcome.result if outcome else None]

        return Runner(flow, store=store)

    await parent(runs_child=True).run(session_id="s")
    with pytest.raises(ReplayMismatch, match="child"):
        await parent(runs_child=False).resume("s", {"own": 1})
    assert [asked.key for asked in await parent(runs_child=True).pending("s")] == ["child"]


async def test_a_finished_child_that_is_not_run_again_is_missed(store: Store):  # rules R5, R6
    @workflow
    async def quick() -> int:
        return 1

    def parent(runs_child: bool) -> Runner:
        @workflow
        async def flow() -> Any:
            if runs_child:
                await current().run(quick)
            return interrupt("own", key="own")

        return Runner(flow, store=store)

    await parent(runs_child=True).run(session_id="s")
    with pytest.raises(ReplayMismatch, match="quick"):
        await parent(runs_child=False).resume("s", {"own": 1})
    assert (await parent(runs_child=True).recover("s")).value == 1


# What is given back


async def test_the_same_question_asked_in_a_row_is_told_apart_by_its_place(store: Store):  # rule R6
    for key in (None, "same"):
        session = f"s {key}"

        def node(state: Any, key: str | None = key) -> Any:
            return {"log": [interrupt("again?", key=key) for _ in range(3)]}

        result = await lone(node, store=store).run({}, session_id=session)
        for n in range(3):
            result = await lone(node, store=store).resume(session, {ids(result)[0]: n})
        assert result.state["log"] == [0, 1, 2]


async def test_equal_calls_at_once_keep_their_order(store: Store):  # rule R6
    @once
    async def ticket(kind: str) -> int:
        await asyncio.sleep(0)
        made.append(kind)
        return len(made)

    async def node(state: Any) -> Any:
        tickets = await asyncio.gather(*(ticket("a") for _ in range(5)), ticket("b"))
        return {"log": [tickets, interrupt("q", key="q")]}

    await lone(node, store=store).run({}, session_id="s")
    kept = (await lone(node, store=store).resume("s", {"q": 1})).state["log"]
    assert sorted(kept[0]) == [1, 2, 3, 4, 5, 6]
    assert len(made) == 6


async def test_calls_at_once_cannot_swap(store: Store):  # rule R6
    order: list[int] = [0, 1, 2]
    gates = [asyncio.Event() for _ in range(3)]

    @once
    async def slow(n: int) -> int:
        await gates[n].wait()
        return n * 10

    async def open_gates() -> None:
        for n in order:
            gates[n].set()
            await asyncio.sleep(0)

    async def node(state: Any) -> Any:
        results = await asyncio.gather(*(slow(n) for n in range(3)), open_gates())
        return {"log": [results[:3], interrupt("q", key="q")]}

    order = [2, 0, 1]
    await lone(node, store=store).run({}, session_id="s")
    order = [1, 2, 0]
    assert (await lone(node, store=store).resume("s", {"q": 1})).state["log"] == [[0, 10, 20], 1]


async def test_questions_at_once_match_by_key_whatever_comes_first(store: Store):  # rule R6
    turn = 0

    async def ask(key: str) -> Any:
        return interrupt(key, key=key)

    async def node(state: Any) -> Any:
        nonlocal turn
        turn += 1
        keys = ["a", "b", "c"] if turn % 2 else ["c", "b", "a"]
        answers = await asyncio.gather(*(ask(key) for key in keys))
        return {"log": [dict(zip(keys, answers, strict=True))]}

    await lone(node, store=store).run({}, session_id="s")
    await lone(node, store=store).resume("s", {"b": "B"})
    await lone(node, store=store).resume("s", {"c": "C"})
    result = await lone(node, store=store).resume("s", {"a": "A"})
    assert result.state["log"] == [{"a": "A", "b": "B", "c": "C"}]


async def test_new_work_at_once_is_no_mismatch(store: Store):  # rule R6
    async def chain(key: str) -> Any:
        return [interrupt(f"{key}1", key=f"{key}1"), interrupt(f"{key}2", key=f"{key}2")]

    async def node(state: Any) -> Any:
        return {"log": list(await asyncio.gather(chain("a"), chain("b")))}

    await lone(node, store=store).run({}, session_id="s")
    result = await lone(node, store=store).resume("s", {"b1": 1})
    assert [asked.key for asked in result.interrupts] == ["a1", "b2"]
    result = await lone(node, store=store).resume("s", {"a1": 2, "b2": 3})
    assert [asked.key for asked in result.interrupts] == ["a2"]
    assert (await lone(node, store=store).resume("s", {"a2": 4})).state["log"] == [[2, 4], [1, 3]]


async def test_what_a_task_beside_has_done_may_come_later(store: Store):  # rule R6
    @once
    async def audit(what: str) -> None:
        made.append(what)

    async def beside() -> Any:
        await audit("start")
        return interrupt("beside", key="beside")

    async def node(state: Any) -> Any:
        task = asyncio.create_task(beside())
        await audit("first")
        answers: list[Any] = []
        for key in ("a", "b"):
            try:
                answers.append(interrupt(key, key=key))
            except BaseException:
                await asyncio.wait([task])
                raise
            await audit(key)
        return {"log": [*answers, await task]}

    await lone(node, store=store).run({}, session_id="s")
    result = await lone(node, store=store).resume("s", {"a": 1, "beside": 3})
    assert [asked.key for asked in result.interrupts] == ["b"]
    assert (await lone(node, store=store).resume("s", {"b": 2})).state["log"] == [1, 2, 3]
    assert sorted(made) == ["a", "b", "first", "start"]


async def test_a_node_sees_what_it_saw_the_first_time(store: Store):  # rules R5, S6
    seen: list[Any] = []

    def spread(state: Any) -> Any:
        return [Command(update={"log": [n]}, goto="work") for n in (1, 2)]

    def work(state: Any) -> Any:
        seen.append(list(state["log"]))
        state["log"].append("mutated")
        answer = interrupt(f"{state['log'][0]}", key=f"q{state['log'][0]}")
        return {"log": [answer]}

    def build() -> CompiledGraph:
        graph = StateGraph(Log, name="g").add_node("spread", spread).add_node("work", work)
        return graph.add_edge(START, "spread").compile(store=store)

    await build().run({"log": ["before"]}, session_id="s")
    await build().resume("s", {"q2": "two"})
    result = await build().resume("s", {"q1": "one"})
    assert sorted(seen) == [[1], [1], [2], [2]]
    assert result.state["log"] == ["before", "one", "two"]


async def test_a_child_with_other_input_is_another_child(store: Store):  # rule R6
    given = 1

    @workflow
    async def flow(n: int) -> Any:
        return [n, await current().run(child, given)]

    await Runner(flow, store=store).run(7, session_id="s")
    given = 2
    with pytest.raises(ReplayMismatch, match=r"'runnable:child'\n.*'runnable:child:2', with other input"):
        await Runner(flow, store=store).resume("s", {"child": "yes"})
    assert made == ["child 1"]
    given = 1
    assert (await Runner(flow, store=store).recover("s")).value == [7, [1, "yes"]]


async def test_only_what_was_answered_runs_again(store: Store):  # rules R5, R7
    @workflow
    async def flow() -> Any:
        made.append("flow")
        return await current().run_all([(child, 1), (child, 2)])

    result = await Runner(flow, store=store).run(session_id="s")
    assert made == ["flow", "child 1", "child 2"]
    made.clear()
    result = await Runner(flow, store=store).resume("s", {ids(result)[1]: "b"})
    assert made == ["flow", "child 2"]
    made.clear()
    result = await Runner(flow, store=store).resume("s", {ids(result)[0]: "a"})
    assert made == ["flow", "child 1"]
    assert result.value == [[1, "a"], [2, "b"]]


async def test_parents_of_a_waiting_child_do_not_run(store: Store):  # rule R7
    inner = lone(node_of(lambda: [made.append("inner"), interrupt("q", key="inner")][1]), name="inner")

    async def outer(state: Any) -> Any:
        made.append("outer")
        return {"log": (await inner.invoke({}))["log"]}

    def other(state: Any) -> Any:
        made.append("other")
        return {"log": [interrupt("q", key="other")]}

    nodes: dict[str, Node] = {"outer": outer, "other": other}
    await together(nodes, store=store).run({}, session_id="s")
    made.clear()
    await together(nodes, store=store).resume("s", {"other": 1})
    assert made == ["other"]
    result = await together(nodes, store=store).resume("s", {"inner": 2})
    assert made == ["other", "outer", "inner"]
    assert result.state["log"] == [2, 1]


async def test_a_retried_node_gets_back_what_it_had(store: Store):  # rules R6, G12
    passes: list[int] = []

    def node(state: Any) -> Any:
        passes.append(1)
        receipt, answer = charge(100), interrupt("q", key="q")
        if len(passes) < 4:
            raise ConnectionError("flaky")
        return {"log": [receipt, answer]}

    graph = StateGraph(Log, name="g").add_node("ask", node, retry=Retry(attempts=5, backoff=lambda n: 0.0))
    compiled = graph.add_edge(START, "ask").compile(store=store)
    await compiled.run({}, session_id="s")
    assert (await compiled.resume("s", {"q": "yes"})).state["log"] == ["receipt 100", "yes"]
    assert made == [100]
    assert len(passes) == 4


async def test_a_failed_node_gets_back_what_it_had(store: Store):  # rules R5, R6
    broken = True

    def node(state: Any) -> Any:
        receipt, answer = charge(100), interrupt("q", key="q")
        if broken:
            raise ValueError("broken")
        return {"log": [receipt, answer]}

    await lone(node, store=store).run({}, session_id="s")
    with pytest.raises(ValueError, match="broken"):
        await lone(node, store=store).resume("s", {"q": "yes"})
    broken = False
    assert (await lone(node, store=store).recover("s")).state["log"] == ["receipt 100", "yes"]
    assert made == [100]
