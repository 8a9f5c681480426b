"""Session values: written in a frame, they take effect with its result."""

import asyncio
from typing import Any

import pytest

from adjourn import (
    RunContext,
    Runner,
    UsageError,
    current,
    interrupt,
    once,
    session_value,
    session_values,
    set_session_value,
    workflow,
)
from adjourn.errors import NotInRun, NotStorable
from adjourn.graph import START, Command, CompiledGraph, StateGraph
from adjourn.stores import Store
from tests._engine.asking import Log, Node, chain, lone, nothing, together


def show(state: Any) -> Any:
    return {"log": [dict(current().values)]}


async def values_of(store: Store, session_id: str = "s") -> Any:
    """The values that the next turn finds."""
    return (await _shower(store).run({"log": []}, session_id=session_id)).state["log"][-1]


def _shower(store: Store) -> CompiledGraph:
    return StateGraph(Log, name="g").add_node("show", show).add_edge(START, "show").compile(store=store)


async def test_a_value_takes_effect_when_its_node_has_ended(store: Store):  # rule R15
    def write(state: Any) -> Any:
        set_session_value("a", 1)
        return {"log": [session_value("a")]}

    def read(state: Any) -> Any:
        return {"log": [session_value("a"), session_value("b", default="none")]}

    result = await chain(write, read, store=store).run({}, session_id="s")
    assert result.state["log"] == [1, 1, "none"]


async def test_values_last_over_turns(store: Store):  # rule R15
    def write(state: Any) -> Any:
        current().values["a"] = [1]

    await lone(write, store=store).run({}, session_id="s")
    assert await values_of(store) == {"a": [1]}


async def test_reads_see_own_writes_and_siblings_do_not(store: Store):  # rule R15
    wrote, read = asyncio.Event(), asyncio.Event()

    async def write(state: Any) -> Any:
        current().values["a"] = "new"
        wrote.set()
        await read.wait()
        return {"log": [current().values["a"]]}

    async def look(state: Any) -> Any:
        await wrote.wait()
        seen = current().values["a"]
        read.set()
        return {"log": [seen]}

    nodes: dict[str, Node] = {"write": write, "look": look}
    result = await together(nodes, store=store).run({}, session_id="s", values={"a": "old"})
    assert result.state["log"] == ["new", "old"]
    assert await values_of(store) == {"a": "new"}


async def test_the_last_in_task_order_wins_whoever_ends_first(store: Store):  # rule R15
    second_done = asyncio.Event()

    async def first(state: Any) -> Any:
        await second_done.wait()
        current().values["a"] = "first"

    async def second(state: Any) -> Any:
        current().values["a"] = "second"
        second_done.set()

    nodes: dict[str, Node] = {"first": first, "second": second}
    await together(nodes, store=store).run({}, session_id="s")
    assert await values_of(store) == {"a": "second"}


async def test_a_pause_drops_what_was_written(store: Store):  # rule R15
    def node(state: Any) -> Any:
        values = current().values
        values["count"] = values.get("count", 0) + 1
        interrupt("q", key="q")
        values["count"] += 1
        return {"log": [values["count"]]}

    await lone(node, store=store).run({}, session_id="s", values={"count": 10})
    result = await lone(node, store=store).resume("s", {"q": 1})
    assert result.state["log"] == [12]
    assert await values_of(store) == {"count": 12}


async def test_a_failure_drops_what_was_written(store: Store):  # rule R15
    broken = True

    def node(state: Any) -> Any:
        current().values["count"] = session_value("count", default=0) + 1
        if broken:
            raise ValueError("broken")

    for call in ("run", "recover"):
        with pytest.raises(ValueError, match="broken"):
            await (
                lone(node, store=store).run({}, session_id="s")
                if call == "run"
                else lone(node, store=store).recover("s")
            )
    broken = False
    await lone(node, store=store).recover("s")
    assert await values_of(store) == {"count": 1}


async def test_a_finished_siblings_values_outlive_a_pause(store: Store):  # rules R15, R7
    def write(state: Any) -> Any:
        current().values["a"] = (1, b"2")

    def ask(state: Any) -> Any:
        return {"log": [interrupt("q", key="q"), "a" in current().values]}

    nodes: dict[str, Node] = {"write": write, "ask": ask}
    await together(nodes, store=store).run({}, session_id="s")
    assert (await together(nodes, store=store).resume("s", {"q": 1})).state["log"] == [1, False]
    assert await values_of(store) == {"a": (1, b"2")}


async def test_what_is_handed_out_is_a_copy(store: Store):  # rule R15
    given: dict[str, Any] = {"list": [1]}

    def node(state: Any) -> Any:
        values = current().values
        values["list"].append(2)
        mine = [10]
        values["mine"] = mine
        mine.append(20)
        session_values()["extra"] = 1  # pyright: ignore[reportIndexIssue]  # a copy may be changed, or refuse it
        return {"log": [values["list"], values["mine"]]}

    result = await lone(node, store=store).run({}, session_id="s", values=given)
    assert result.state["log"] == [[1], [10]]
    given["list"].append(3)
    assert await values_of(store) == {"list": [1], "mine": [10]}


async def test_values_are_a_mapping(store: Store):  # api: current().values
    def node(state: Any) -> Any:
        values = current().values
        assert dict(values) == {"a": 1, "b": 2}
        assert (len(values), sorted(values), "a" in values, "z" in values) == (2, ["a", "b"], True, False)
        del values["a"]
        assert "a" not in values
        assert values.pop("b") == 2
        values.update({"c": 3, "d": 4})
        values.setdefault("c", 9)
        with pytest.raises(KeyError):
            values["a"]
        with pytest.raises(KeyError):
            del values["a"]
        with pytest.raises(KeyError):
            session_value("a")
        assert session_value("a", default=None) is None
        assert session_values() == {"c": 3, "d": 4}

    await lone(node, store=store).run({}, session_id="s", values={"a": 1, "b": 2})
    assert await values_of(store) == {"c": 3, "d": 4}


async def test_a_deleted_value_stays_deleted(store: Store):  # rule R15
    def delete(state: Any) -> Any:
        del current().values["a"]

    def ask(state: Any) -> Any:
        return {"log": [interrupt("q", key="q"), dict(current().values)]}

    await chain(delete, ask, store=store).run({}, session_id="s", values={"a": 1, "b": 2})
    assert (await chain(delete, ask, store=store).resume("s", {"q": 1})).state["log"] == [1, {"b": 2}]
    assert await values_of(store) == {"b": 2}


@pytest.mark.parametrize("thread", [True, False])
async def test_what_cannot_be_stored_is_refused_where_it_is_written(thread: bool):  # rules R15, I7
    def node(state: Any) -> Any:
        with pytest.raises(NotStorable, match="bad"):
            current().values["bad"] = object()
        return {"log": [dict(current().values)]}

    assert (await lone(node, thread=thread).run({})).state["log"] == [{}]


@pytest.mark.parametrize("key", [1, None, ("a",), "\ud800"], ids=repr)
async def test_names_of_values_are_text(key: Any, store: Store):  # rules R15, C10
    def node(state: Any) -> Any:
        with pytest.raises((UsageError, NotStorable)):
            current().values[key] = 1

    await lone(node, store=store).run({}, session_id="s")
    with pytest.raises((UsageError, NotStorable)):
        await lone(nothing, store=store).run({}, session_id="t", values={key: 1})
    assert await values_of(store) == {}


async def test_given_values_that_cannot_be_stored_are_refused(store: Store):  # rule R15
    with pytest.raises(NotStorable, match="bad"):
        await lone(nothing, store=store).run({}, session_id="s", values={"bad": object()})


async def test_given_values_are_kept_even_if_the_run_pauses_or_fails(store: Store):  # rule R15
    def ask(state: Any) -> Any:
        return {"log": [interrupt("q", key="q"), dict(current().values)]}

    await lone(ask, store=store).run({}, session_id="s", values={"a": 1})
    assert (await lone(ask, store=store).resume("s", {"q": 1})).state["log"] == [1, {"a": 1}]

    def fail(state: Any) -> Any:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await lone(fail, store=store).run({}, session_id="t", values={"a": 1})
    assert (await lone(show, store=store).recover("t")).state["log"] == [{"a": 1}]


async def test_values_written_in_a_condition_count(store: Store):  # rule R15
    for session, pauses in (("s", False), ("t", True)):

        def condition(state: Any, pauses: bool = pauses) -> str:
            current().values["asked"] = interrupt("q", key="q") if pauses else "no"
            return "show"

        def build(condition: Any = condition) -> CompiledGraph:
            graph = StateGraph(Log, name="g").add_node("first", nothing).add_node("show", show)
            return graph.add_edge(START, "first").add_conditional_edges("first", condition).compile(store=store)

        result = await build().run({}, session_id=session)
        if pauses:
            result = await build().resume(session, {"q": "yes"})
        assert result.state["log"] == [{"asked": "yes" if pauses else "no"}]


async def test_values_pass_through_nested_graphs(store: Store):  # rules R15, A3
    def write(state: Any) -> Any:
        current().values["inner"] = session_value("outer") + 1

    def ask(state: Any) -> Any:
        return {"log": [interrupt("q", key="q"), dict(current().values)]}

    def build() -> CompiledGraph:
        inner = chain(write, ask, name="inner")
        graph = StateGraph(Log, name="g").add_subgraph("sub", inner).add_node("show", show)
        return graph.add_edge(START, "sub").add_edge("sub", "show").compile(store=store)

    await build().run({}, session_id="s", values={"outer": 1})
    result = await build().resume("s", {"q": 1})
    assert result.state["log"] == [1, {"outer": 1, "inner": 2}, {"outer": 1, "inner": 2}]


async def test_a_childs_values_reach_its_parent_and_outlive_its_pauses(store: Store):  # rules R15, R5
    @workflow
    async def child(n: int) -> int:
        current().values[f"child {n}"] = n
        return n

    @workflow
    async def flow() -> Any:
        await current().run(child, 1)
        first = dict(current().values)
        interrupt("q", key="q")
        await current().run_all([(child, 2), (child, 3)])
        return [first, dict(current().values)]

    await Runner(flow, store=store).run(session_id="s")
    result = await Runner(flow, store=store).resume("s", {"q": 1})
    assert result.value == [{"child 1": 1}, {"child 1": 1, "child 2": 2, "child 3": 3}]


async def test_a_workflows_values_last_over_turns(store: Store):  # rule R15
    @workflow
    async def flow(n: int) -> Any:
        seen = dict(current().values)
        current().values["turns"] = [*seen.get("turns", []), n]
        if n == 2:
            interrupt("q", key="q")
        return seen

    await Runner(flow, store=store).run(1, session_id="s")
    await Runner(flow, store=store).run(2, session_id="s")
    assert (await Runner(flow, store=store).resume("s", {"q": 1})).value == {"turns": [1]}
    assert (await Runner(flow, store=store).run(3, session_id="s")).value == {"turns": [1, 2]}


async def test_values_written_in_a_kept_call_are_kept_with_it(store: Store):  # rules R13, R15
    @once
    async def work() -> int:
        current().values["worked"] = True
        return 1

    async def node(state: Any) -> Any:
        await work()
        return {"log": [interrupt("q", key="q"), session_value("worked", default=False)]}

    await lone(node, store=store).run({}, session_id="s")
    assert (await lone(node, store=store).resume("s", {"q": 1})).state["log"] == [1, True]
    assert await values_of(store) == {"worked": True}


async def test_fan_out_tasks_write_in_their_order(store: Store):  # rules R15, G9
    def fan(state: Any) -> Any:
        return [Command(update={"log": [n]}, goto="work") for n in range(4)]

    def work(state: Any, ctx: RunContext[Any]) -> Any:
        ctx.values["last"] = state["log"][0]
        ctx.values[f"seen {state['log'][0]}"] = True

    graph = StateGraph(Log, name="g").add_node("fan", fan).add_node("work", work).add_edge(START, "fan")
    await graph.compile(store=store).run({}, session_id="s")
    assert await values_of(store) == {"last": 3, **{f"seen {n}": True for n in range(4)}}


def test_outside_a_run_there_are_none():  # rule R13
    for call in (session_values, lambda: session_value("a"), lambda: set_session_value("a", 1)):
        with pytest.raises(NotInRun):
            call()
