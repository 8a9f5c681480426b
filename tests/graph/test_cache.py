"""Caching nodes: equal input, within its time, skips the function."""

from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any, TypedDict, cast

import pytest

from adjourn import (
    Approve,
    ChatModelAgent,
    Message,
    Retry,
    Runner,
    ToolCall,
    current,
    interrupt,
    tool,
)
from adjourn.errors import NotStorable, ToolError
from adjourn.events import NodeEnd
from adjourn.graph import END, START, Cache, Command, CompiledGraph, MessagesState, Overwrite, StateGraph, append
from adjourn.middleware import ApprovalPolicy, ApprovalRule
from adjourn.models import ModelRequest
from adjourn.stores import Store
from adjourn.testing import FakeClock, FunctionModel, ScriptedModel
from tests.graph.shapes import Node, events_of, giving


class Log(TypedDict):
    log: Annotated[list[Any], append]
    item: Any
    other: Any


class Square:
    """A node that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, state: Any) -> dict[str, Any]:
        self.calls += 1
        return {"log": [state["item"] ** 2]}


def cached(node: Node, cache: Cache, **options: Any) -> CompiledGraph:
    graph = StateGraph(Log, name="g").add_node("n", node, cache=cache, thread=False).add_node("after", giving(None))
    return graph.set_entry_point("n").compile(**options)


async def test_equal_input_skips_the_function() -> None:  # rule G16
    node = Square()
    graph = cached(node, Cache(60))
    for item in (2, 3, 2, 3, 2):
        assert (await graph.invoke({"item": item}))["log"] == [item**2]
    assert node.calls == 2


async def test_input_that_only_looks_equal_does_not() -> None:  # rule G16
    node = Square()
    graph = cached(node, Cache(60))
    for item in (1, True, 1.0, Decimal(1)):
        await graph.invoke({"item": item})
    assert node.calls == 4


async def test_after_its_time_a_result_is_forgotten() -> None:  # rule G16
    clock, node = FakeClock(), Square()
    graph = cached(node, Cache(timedelta(minutes=1)), clock=clock)
    await graph.invoke({"item": 2})
    clock.advance(59)
    await graph.invoke({"item": 2})
    assert node.calls == 1
    clock.advance(1)
    await graph.invoke({"item": 2})
    assert node.calls == 2
    clock.advance(59)
    await graph.invoke({"item": 2})
    assert node.calls == 2


async def test_a_key_says_what_counts_as_equal() -> None:  # rule G16
    def by_item(state: Any) -> Any:
        return state["item"]

    node = Square()
    graph = cached(node, Cache(60, by_item))
    await graph.invoke({"item": 2, "other": "a"})
    assert (await graph.invoke({"item": 2, "other": "b"}))["log"] == [4]
    assert node.calls == 1
    whole = Square()
    graph = cached(whole, Cache(60))
    await graph.invoke({"item": 2, "other": "a"})
    await graph.invoke({"item": 2, "other": "b"})
    assert whole.calls == 2


async def test_a_key_that_cannot_be_compared_is_an_error() -> None:  # rule G16
    with pytest.raises(NotStorable, match="cache key"):
        await cached(Square(), Cache(60, lambda _: object())).invoke({"item": 2})


async def test_the_event_tells_that_it_was_cached(store: Store) -> None:  # rule G16
    graph = cached(Square(), Cache(60), store=store)
    flags: list[bool] = []
    for session in ("one", "two"):
        events = await events_of(graph.run({"item": 2}, session_id=session))
        flags += [event.cached for event in events if isinstance(event, NodeEnd)]
    assert flags == [False, True]
    assert (await graph.state("two"))["log"] == [4]


async def test_what_was_laid_over_by_a_fan_out_counts() -> None:  # rules G5, G16
    node = Square()
    sends = [Command({"item": item}, "n") for item in (1, 2)]
    graph = StateGraph(Log).add_node("s", giving(sends)).add_node("n", node, cache=Cache(60), thread=False)
    built = graph.set_entry_point("s").compile()
    for _ in range(2):
        assert (await built.invoke({}))["log"] == [1, 4]
    assert node.calls == 2


@pytest.mark.parametrize(
    "result",
    [
        {"log": [(1, {"x"})], "other": {"deep": [Decimal(1)]}},
        Command({"log": ["c"]}, goto="after"),
        Command({"log": ["c"]}, goto=END),
        [Command({"item": 1}, "after"), Command(goto="after")],
        {"log": Overwrite(["z"])},
        None,
        [],
    ],
    ids=["update", "command", "end", "fan-out", "overwrite", "none", "empty"],
)
async def test_a_cached_result_is_the_same_as_the_first(result: Any) -> None:  # rule G16
    calls: list[int] = []

    def node(state: Any) -> Any:
        calls.append(1)
        return result

    def after(state: Any) -> dict[str, Any]:
        return {"log": [str(current().address), state.get("item")]}

    graph = StateGraph(Log, name="g").add_node("n", node, cache=Cache(60), thread=False)
    built = graph.add_node("after", after).set_entry_point("n").compile()
    first = await built.invoke({"item": 0})
    assert await built.invoke({"item": 0}) == first
    assert calls == [1]


async def test_a_cached_result_is_everybodys_own() -> None:  # rules G16, S6
    def node(state: Any) -> dict[str, Any]:
        return {"other": {"list": [1]}}

    def vandal(state: Any) -> Any:
        state["other"]["list"].append(2)
        return state

    graph = StateGraph(Log).add_node("n", node, cache=Cache(60)).add_node("v", vandal)
    built = graph.add_sequence("__start__", "n", "v").compile()
    for _ in range(2):
        assert (await built.invoke({}))["other"] == {"list": [1, 2]}


async def test_a_failed_result_is_not_kept() -> None:  # rule G16
    calls: list[int] = []

    def node(state: Any) -> dict[str, Any]:
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("broken")
        return {"log": ["ok"]}

    graph = cached(node, Cache(60))
    with pytest.raises(ValueError, match="broken"):
        await graph.invoke({"item": 2})
    for _ in range(2):
        assert (await graph.invoke({"item": 2}))["log"] == ["ok"]
    assert len(calls) == 2
    retried = StateGraph(Log).add_node("n", node, cache=Cache(60), retry=Retry(backoff=0)).set_entry_point("n")
    calls.clear()
    assert (await retried.compile().invoke({"item": 2}))["log"] == ["ok"]


async def test_a_result_that_cannot_be_stored_is_not_kept() -> None:  # rule G16
    graph = cached(giving({"other": object()}), Cache(60))
    for _ in range(2):
        with pytest.raises(NotStorable):
            await graph.invoke({})


async def test_a_result_that_was_refused_is_not_kept() -> None:  # rule G16
    calls: list[int] = []

    def node(state: Any) -> dict[str, Any]:
        calls.append(1)
        return {"log": "no list"} if len(calls) == 1 else {"log": ["a list"]}

    graph = cached(node, Cache(60))
    with pytest.raises(Exception, match="log"):
        await graph.invoke({})
    assert (await graph.invoke({}))["log"] == ["a list"]


async def test_a_paused_result_is_not_kept(store: Store) -> None:  # rule G16
    def node(state: Any) -> dict[str, Any]:
        return {"log": [interrupt("?")]}

    graph = cached(node, Cache(60), store=store)
    first = await graph.run({"item": 2}, session_id="one")
    assert (await graph.run({"item": 2}, session_id="two")).interrupts
    await graph.resume("one", {first.interrupts[0].id: "from one"})


async def test_what_a_person_answered_in_one_session_does_not_decide_another() -> None:  # rule G16
    def approve(state: Any) -> dict[str, Any]:
        return {"log": [interrupt("ok?")]}

    graph = cached(approve, Cache(60))
    paused = await graph.run({"item": "pay 1000"}, session_id="ann")
    await graph.resume("ann", {paused.interrupts[0].id: True})
    other = await graph.run({"item": "pay 1000"}, session_id="bob")
    assert other.status == "interrupted"


async def test_session_values_that_a_cached_node_wrote_are_written_again() -> None:  # rules G16, R15
    def node(state: Any) -> dict[str, Any]:
        current().values["seen"] = state["item"]
        return {}

    def after(state: Any) -> dict[str, Any]:
        return {"log": [current().values.get("seen")]}

    graph = StateGraph(Log).add_node("n", node, cache=Cache(60)).add_node("after", after)
    built = graph.add_sequence("__start__", "n", "after").compile()
    for _ in range(2):
        assert (await built.invoke({"item": 5}))["log"] == [5]


async def test_nodes_do_not_share_results() -> None:  # rule G16
    graph = StateGraph(Log).add_node("a", giving({"log": ["a"]}), cache=Cache(60, lambda _: "same"))
    graph.add_node("b", giving({"log": ["b"]}), cache=Cache(60, lambda _: "same"))
    assert (await graph.add_sequence("__start__", "a", "b").compile().invoke({}))["log"] == ["a", "b"]


async def test_a_graph_remembers_a_bounded_number_of_results() -> None:  # rule G16
    node = Square()
    graph = cached(node, Cache(60))
    await graph.invoke({"item": 0})
    for item in range(1, 1_101):
        await graph.invoke({"item": item})
    calls = node.calls
    await graph.invoke({"item": 1_100})
    assert node.calls == calls
    await graph.invoke({"item": 0})
    assert node.calls == calls + 1


# What a result depends on besides the state


class Telling:
    """A model that tells what it was asked, and counts how often."""

    def __init__(self) -> None:
        self.calls = 0
        self.model = FunctionModel(self._answer)

    def _answer(self, request: ModelRequest) -> str:
        self.calls += 1
        return f"{[message.text for message in request.messages]} {dict(request.options)}"


def asking(kind: str, model: FunctionModel, cache: Cache, **options: Any) -> CompiledGraph:
    graph, instruction = StateGraph(MessagesState, name="g"), "You serve {user?}."
    match kind:
        case "llm":
            graph.add_llm_node("ask", model, instruction, cache=cache)
        case "agent":
            graph.add_agent_node("ask", ChatModelAgent("a", model=model, instruction=instruction), cache=cache)
        case "output":
            agent = ChatModelAgent("a", model=model, instruction=instruction)
            graph.add_agent_node("ask", agent, output=_mapped, cache=cache)
        case "mapped":
            graph.add_subgraph("ask", asking("llm", model, Cache(0.001)), output=_mapped, cache=cache)
        case _:
            graph.add_subgraph("ask", asking("llm", model, Cache(0.001)), cache=cache)
    return graph.set_entry_point("ask").compile(**options)


def _mapped(done: Any) -> dict[str, Any]:
    messages: Any = cast("Any", done)["messages"] if isinstance(done, Mapping) else done.messages
    return {"messages": messages[-2:], "user_input": ""}


@pytest.mark.parametrize("kind", ["llm", "agent", "subgraph"])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"values": {"user": "ann"}}, {"values": {"user": "bob"}}),
        ({"user_id": "ann"}, {"user_id": "bob"}),
        ({"model_options": {"temperature": 0}}, {"model_options": {"temperature": 1}}),
    ],
    ids=["values", "user", "options"],
)
async def test_the_answer_for_one_is_not_given_to_another(kind: str, one: Any, other: Any) -> None:  # rule G16
    telling = Telling()
    graph = asking(kind, telling.model, Cache(60))
    for given, calls in ((one, 1), (other, 2), (one, 2)):
        await graph.run({"user_input": "who am I?"}, **given)
        assert telling.calls == calls


@pytest.mark.parametrize("kind", ["llm", "agent", "output", "subgraph", "mapped"])
async def test_recalled_messages_are_new_ones(kind: str, store: Store) -> None:  # rule G16
    telling = Telling()
    graph = asking(kind, telling.model, Cache(60, lambda state: state["user_input"]), store=store)
    for text in ("hours?", "prices?", "hours?", "hours?"):
        await graph.run({"user_input": text}, session_id="s")
    messages: list[Message] = (await graph.state("s"))["messages"]
    assert [message.text for message in messages if message.role == "user"] == ["hours?", "prices?", "hours?", "hours?"]
    assert len({message.id for message in messages}) == len(messages) == 8
    assert telling.calls == 2


# Tools nodes


def calling(tools: Any, *calls: ToolCall, cache: Cache | None = None, **options: Any) -> CompiledGraph:
    """Return a graph that makes one of the calls in each turn."""
    upcoming = iter(calls)

    def seed(state: Any) -> dict[str, Any]:
        return {"messages": [Message.user("x"), Message.assistant("", tool_calls=[next(upcoming)])]}

    graph = StateGraph(MessagesState, name="g").add_node("seed", seed, thread=False)
    graph.add_tools_node("tools", tools, cache=cache or Cache(60)).add_sequence(START, "seed", "tools")
    return graph.compile(**options)


def call(id: str, **arguments: Any) -> ToolCall:
    return ToolCall(id=id, name="look", arguments=arguments)


class Looking:
    """A tool that counts its calls; the first `fails` of them fail."""

    def __init__(self, fails: int = 0) -> None:
        self.calls: list[str] = []

        @tool
        async def look(at: str) -> str:
            """Look."""
            self.calls.append(at)
            if len(self.calls) <= fails:
                raise ToolError("dark")
            return f"seen {at}"

        self.tool = look


@pytest.mark.parametrize("cache", [Cache(60), Cache(60, lambda _: "same")], ids=["input", "key"])
async def test_recalled_results_answer_the_calls_that_are_open(cache: Cache, store: Store) -> None:  # rules G16, L6
    looking = Looking()
    calls = [call("c1", at="a"), call("c2", at="a"), call("c3", at="b"), call("c3", at="b")]
    graph = calling([looking.tool], *calls, cache=cache, store=store)
    for _ in calls:
        await graph.run({}, session_id="s")
    messages: list[Message] = (await graph.state("s"))["messages"]
    answers = [(message.tool_call_id, message.text) for message in messages if message.role == "tool"]
    assert answers == [("c1", "seen a"), ("c2", "seen a"), ("c3", "seen b"), ("c3", "seen b")]
    assert looking.calls == ["a", "b"]


async def test_a_tools_error_is_not_kept() -> None:  # rule G16
    looking = Looking(fails=1)
    graph = calling([looking.tool], *(call(f"c{number}", at="a") for number in range(3)))
    said = [(await graph.run({})).state["last_tool_response"] for _ in range(3)]
    assert "dark" in said[0]
    assert said[1:] == ["seen a", "seen a"]
    assert len(looking.calls) == 2


@pytest.mark.parametrize("kind", ["tools", "agent", "subgraph"])
async def test_a_result_without_approval_does_not_replace_one(kind: str) -> None:  # rules G16, T4
    looking = Looking()
    calls = [call(f"c{number}", at="a") for number in range(4)]
    graph = calling([looking.tool], *calls)
    if kind == "agent":
        script = [step for each in calls for step in (each, "done")]
        agent = ChatModelAgent("a", model=ScriptedModel(script), tools=[looking.tool])
        graph = StateGraph(MessagesState, name="g").add_agent_node("a", agent, cache=Cache(60)).set_entry_point("a")
        graph = graph.compile()
    elif kind == "subgraph":
        graph = StateGraph(MessagesState, name="p").add_subgraph("g", graph, cache=Cache(60)).set_entry_point("g")
        graph = graph.compile()
    assert (await graph.run({"user_input": "x"})).status == "done"
    for session in ("one", "two"):
        runner = Runner(graph, middleware=[ApprovalPolicy([ApprovalRule(tool="look", action="ask")])])
        paused = await runner.run({"user_input": "x"}, session_id=session)
        assert paused.status == "interrupted"
        assert (await runner.resume(session, {paused.interrupts[0].id: Approve()})).status == "done"
    assert len(looking.calls) == 3
