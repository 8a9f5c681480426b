"""Middleware around nodes: `wrap_node` sees each attempt, may change its update, and may ask."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Annotated, Any, TypedDict, cast

import pytest
from msgspec.structs import replace

from adjourn import (
    ChatModelAgent,
    GraphAgent,
    Message,
    Middleware,
    Retry,
    Runner,
    ToolCall,
    current,
    interrupt,
    once,
    session_value,
    tool,
)
from adjourn.errors import ProgramChanged, RetryExhausted, StateInvalid, UsageError
from adjourn.graph import START, Command, CompiledGraph, MessagesState, NodeOptions, StateGraph, append
from adjourn.middleware import ApprovalPolicy, ApprovalRule, NodeCall, NodeRequest
from adjourn.stores import Store
from adjourn.testing import ScriptedModel
from tests.graph.shapes import giving


class Log(TypedDict, total=False):
    log: Annotated[list[str], append]
    count: int
    total: Annotated[int, operator.add]


class Wrap(Middleware):
    """Wraps nodes with a function."""

    def __init__(self, wrap: Callable[[NodeCall, NodeRequest], Any], name: str = "Wrap") -> None:
        self._wrap = wrap
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    def wrap_node(self, call: NodeCall, request: NodeRequest) -> Any:
        return self._wrap(call, request)


def lone(fn: Any, *middleware: Middleware, node: NodeOptions | None = None, **options: Any) -> CompiledGraph:
    graph = StateGraph(Log, name="g").add_node("n", fn, **(node or {}))
    return cast("CompiledGraph", graph.set_entry_point("n").compile(middleware=middleware, **options))


async def test_it_sees_the_node_and_its_result(store: Store) -> None:  # rule G19
    seen: list[Any] = []

    async def wrap(call: NodeCall, request: NodeRequest) -> Any:
        seen.append((request.graph, request.node, request.state["count"], request.attempt))
        command = await call(request)
        seen.append((command.update, command.goto))
        return command

    graph = lone(giving({"log": ["n"]}), Wrap(wrap), store=store)
    assert (await graph.run({"count": 3}, session_id="s")).state["log"] == ["n"]
    assert seen == [("g", "n", 3, 1), ({"log": ["n"]}, None)]


@pytest.mark.parametrize(
    "result",
    [
        {"log": ["changed"]},
        Command({"log": ["changed"]}),
        Command({"log": ["changed"]}, goto=[]),
        None,
    ],
)
async def test_it_may_return_whatever_a_node_may(result: Any) -> None:  # rule G19
    async def wrap(call: NodeCall, request: NodeRequest) -> Any:
        await call(request)
        return result

    state = await lone(giving({"log": ["n"], "count": 1}), Wrap(wrap)).invoke({})
    assert (state["log"], "count" in state) == ([] if result is None else ["changed"], False)


async def test_a_sync_hook_may_skip_the_node() -> None:  # rule G19
    def wrap(call: NodeCall, request: NodeRequest) -> Any:
        return {"log": [f"instead of {request.node}"]}

    assert (await lone(giving({"log": ["n"]}), Wrap(wrap)).invoke({}))["log"] == ["instead of n"]


async def test_the_first_is_the_outermost() -> None:  # rule G19
    def adding(text: str) -> Wrap:
        async def wrap(call: NodeCall, request: NodeRequest) -> Any:
            command = await call(request)
            return replace(command, update={"log": [*command.update["log"], text]})

        return Wrap(wrap, text)

    assert (await lone(giving({"log": ["n"]}), adding("outer"), adding("inner")).invoke({}))["log"] == [
        "n",
        "inner",
        "outer",
    ]


async def test_it_may_change_what_the_node_reads() -> None:  # rule G19
    def node(state: Any) -> Any:
        state["log"] = [*state["log"], str(state["count"])]
        return state

    async def wrap(call: NodeCall, request: NodeRequest) -> Any:
        return await call(replace(request, state={**request.state, "count": 10}))

    state = await lone(node, Wrap(wrap)).invoke({"count": 1, "log": ["0"]})
    assert (state["log"], state["count"]) == (["0", "10"], 1)

    async def rename(call: NodeCall, request: NodeRequest) -> Any:
        return await call(replace(request, node="other"))

    with pytest.raises(UsageError, match="only the state of a request"):
        await lone(node, Wrap(rename)).invoke({"count": 1})


async def test_it_sees_every_attempt_and_may_handle_the_error() -> None:  # rules G19, G12
    attempts: list[int] = []

    async def wrap(call: NodeCall, request: NodeRequest) -> Any:
        attempts.append(request.attempt)
        try:
            return await call(request)
        except ZeroDivisionError:
            if request.attempt < 3:
                raise
            return {"log": ["gave up"]}

    def node(state: Any) -> Any:
        raise ZeroDivisionError

    graph = lone(node, Wrap(wrap), node={"retry": Retry(attempts=5, backoff=0)})
    assert (await graph.invoke({}))["log"] == ["gave up"]
    assert attempts == [1, 2, 3]


async def test_what_it_returns_is_checked() -> None:  # rules G19, S5
    def wrap(call: NodeCall, request: NodeRequest) -> Any:
        return {"count": "many"}

    with pytest.raises(StateInvalid, match="node 'n' returned"):
        await lone(giving({}), Wrap(wrap)).invoke({})


class Calls:
    """Counts what ran."""

    def __init__(self) -> None:
        self.hook = self.node = self.kept = 0


def asking(where: str, calls: Calls) -> tuple[Any, Wrap]:
    @once
    async def keep(place: str) -> str:
        calls.kept += 1
        return place

    async def node(state: Any) -> Any:
        calls.node += 1
        await keep("node")
        current().values["by"] = "the node"
        answer = interrupt("node?", key="node") if "node" in where else "-"
        return {"log": [answer]}

    async def wrap(call: NodeCall, request: NodeRequest) -> Any:
        if request.node != "n":
            return await call(request)
        calls.hook += 1
        await keep("hook")
        before = interrupt("before?", key="before") if "before" in where else "-"
        command = await call(request)
        after = interrupt("after?", key="after") if "after" in where else "-"
        return {"log": [before, *command.update["log"], after]}

    return node, Wrap(wrap)


@pytest.mark.parametrize("where", ["before", "node", "after", "before node after"])
@pytest.mark.parametrize("restarts", [False, True])
async def test_it_may_ask_and_so_may_the_node(where: str, restarts: bool, store: Store) -> None:  # rules G19, R6
    calls = Calls()

    def build() -> CompiledGraph:
        node, middleware = asking(where, calls)
        return lone(node, middleware, store=store)

    graph = build()
    result = await graph.run({}, session_id="s")
    for key in where.split():
        (asked,) = result.interrupts
        assert asked.key == key
        assert str(asked.address) == "runnable:g;node:n" + ("" if key == "node" else ";middleware:Wrap")
        graph = build() if restarts else graph
        result = await graph.resume("s", {key: key})
    expected = [key if key in where else "-" for key in ("before", "node", "after")]
    assert (result.status, result.state["log"]) == ("done", expected)
    assert calls.kept == 2
    assert calls.node == (2 if "node" in where else 1)


async def test_values_that_the_node_wrote_outlive_a_question_of_the_hook(store: Store) -> None:  # rule G19
    def later(state: Any) -> Any:
        return {"log": [session_value("by")]}

    def build() -> CompiledGraph:
        node, middleware = asking("after", Calls())
        graph = StateGraph(Log, name="g").add_node("n", node).add_node("later", later).add_sequence(START, "n", "later")
        return cast("CompiledGraph", graph.compile(middleware=[middleware], store=store))

    await build().run({}, session_id="s")
    assert (await build().resume("s", {"after": "yes"})).state["log"][-1] == "the node"


@pytest.mark.parametrize("begun_with", [True, False])
async def test_middleware_comes_and_goes_while_a_node_waits(begun_with: bool, store: Store) -> None:  # rule G19
    node, middleware = asking("node", Calls())
    with_it, without = lone(node, middleware, store=store), lone(node, store=store)
    first, second = (with_it, without) if begun_with else (without, with_it)
    await first.run({}, session_id="s")
    result = await second.resume("s", {"node": "yes"})
    assert result.state["log"] == (["yes"] if begun_with else ["-", "yes", "-"])


def passing(name: str) -> Wrap:
    async def wrap(call: NodeCall, request: NodeRequest) -> Any:
        return await call(request)

    return Wrap(wrap, name)


@pytest.mark.parametrize(
    ("before", "after"),
    [("H", "V"), ("H", "VH"), ("HV", "H"), ("HV", "V"), ("HV", "VH"), ("HVX", "HX"), ("HX", "HVX"), ("HH", "H")],
)
async def test_middleware_may_move_while_a_node_waits(before: str, after: str, store: Store) -> None:  # rule G19
    works = False

    async def node(state: Any) -> Any:
        if not works:
            raise ConnectionError
        return {"log": [interrupt("Go on?", key="node")]}

    def graph(names: str) -> CompiledGraph:
        return lone(node, *map(passing, names), store=store)

    with pytest.raises(ConnectionError):
        await graph(before).run({}, session_id="s")
    works = True
    assert (await graph(after).recover("s")).status == "interrupted"
    assert (await graph(before).resume("s", {"node": "yes"})).state["log"] == ["yes"]
    assert not await graph(before).pending("s")


async def test_middleware_that_has_done_something_stays(store: Store) -> None:  # rules G19, R17
    effects: list[str] = []

    @once
    async def effect() -> None:
        effects.append("done")

    async def wrap(call: NodeCall, request: NodeRequest) -> Any:
        await effect()
        return await call(request)

    def graph(names: str) -> CompiledGraph:
        node, _ = asking("node", Calls())
        return lone(node, *(Wrap(wrap, "H") if name == "H" else passing(name) for name in names), store=store)

    await graph("VH").run({}, session_id="s")
    with pytest.raises(ProgramChanged, match="middleware 'H', which has asked or done something there, is gone"):
        await graph("V").resume("s", {"node": "yes"})
    assert (await graph("VHX").recover("s")).state["log"] == ["yes"]
    assert effects == ["done"]


async def test_a_failure_is_recovered_inside_the_hook(store: Store) -> None:  # rules G19, G11
    calls = Calls()

    def build(*, fails: bool) -> CompiledGraph:
        async def node(state: Any) -> Any:
            calls.node += 1
            if fails:
                raise ZeroDivisionError
            return {"log": ["n"]}

        async def wrap(call: NodeCall, request: NodeRequest) -> Any:
            calls.hook += 1
            return await call(request)

        return lone(node, Wrap(wrap), store=store)

    with pytest.raises(ZeroDivisionError):
        await build(fails=True).run({}, session_id="s")
    assert (await build(fails=False).recover("s")).state["log"] == ["n"]
    assert (calls.hook, calls.node) == (2, 2)


async def test_it_may_ask_whether_to_try_again(store: Store) -> None:  # rules G19, R13
    calls = Calls()

    async def node(state: Any) -> Any:
        calls.node += 1
        if calls.node == 1:
            raise ZeroDivisionError("broken")
        return {"log": [f"attempt {calls.node}"]}

    async def wrap(call: NodeCall, request: NodeRequest) -> Any:
        try:
            return await call(request)
        except ZeroDivisionError as error:
            if interrupt(f"{error}: again?", key="again", schema=bool):
                return await call(request)
            return {"log": ["skipped"]}

    graph = lone(node, Wrap(wrap), store=store)
    await graph.run({}, session_id="s")
    assert (await graph.resume("s", {"again": True})).state["log"] == ["attempt 2"]


async def test_subgraphs_and_their_nodes_are_wrapped(store: Store) -> None:  # rules G19, G15
    seen: list[str] = []

    async def wrap(call: NodeCall, request: NodeRequest) -> Any:
        seen.append(f"{request.graph}.{request.node}")
        return await call(request)

    async def ask(state: Any) -> Any:
        return {"log": [interrupt("?", key="q")], "total": 3}

    inner = StateGraph(Log, name="inner").add_node("a", giving({"log": ["a"], "total": 2})).add_node("b", ask)
    graph = StateGraph(Log, name="g").add_subgraph("sub", inner.add_sequence(START, "a", "b").compile())
    compiled = graph.set_entry_point("sub").compile(middleware=[Wrap(wrap)], store=store)
    await compiled.run({"total": 1}, session_id="s")
    result = await compiled.resume("s", {"q": "b"})
    assert (result.state.get("log"), result.state.get("total")) == (["a", "b"], 6)
    assert seen == ["g.sub", "inner.a", "inner.b", "g.sub", "inner.b"]


async def test_models_tools_and_agents_are_wrapped() -> None:  # rule G19
    seen: dict[str, Any] = {}

    async def wrap(call: NodeCall, request: NodeRequest) -> Any:
        command = await call(request)
        seen[request.node] = command.update["last_response"]
        return command

    graph = StateGraph(MessagesState, name="g").add_llm_node("ask", ScriptedModel(["from the model"]))
    graph.add_agent_node("work", ChatModelAgent("A", model=ScriptedModel(["from the agent"])))
    compiled = graph.add_sequence(START, "ask", "work").compile()
    result = await Runner(compiled, middleware=[Wrap(wrap)]).run({"user_input": "go"})
    assert seen == {"ask": "from the model", "work": "from the agent"}
    assert [message.text for message in result.messages] == ["go", "from the model", "from the agent"]


async def test_the_middleware_of_a_model_wraps_its_node_alone() -> None:  # rule G19
    def wrap(call: NodeCall, request: NodeRequest) -> Any:
        return {"messages": Message.assistant("instead")}

    graph = StateGraph(MessagesState, name="g").add_llm_node("a", ScriptedModel([]), middleware=[Wrap(wrap)])
    graph.add_llm_node("b", ScriptedModel(["b"])).add_sequence(START, "a", "b")
    result = await graph.compile().run({"messages": [Message.user("go")]})
    assert [message.text for message in result.messages] == ["go", "instead", "b"]


async def test_fan_outs_and_commands_pass_through(store: Store) -> None:  # rules G19, G5
    async def fan(state: Any) -> Any:
        return Command({"log": ["fan"]}, goto=[Command({"count": number}, goto="n") for number in (1, 2)])

    def node(state: Any) -> Any:
        return Command({"log": [str(state["count"])]}, goto=[])

    async def wrap(call: NodeCall, request: NodeRequest) -> Any:
        return await call(request)

    graph = StateGraph(Log, name="g").add_node("fan", fan).add_node("n", node).set_entry_point("fan")
    compiled = graph.compile(middleware=[Wrap(wrap)], store=store, max_concurrency=1)
    assert (await compiled.run({}, session_id="s")).state.get("log") == ["fan", "1", "2"]


async def test_a_hook_runs_a_graph_where_one_node_may_work_at_once(store: Store) -> None:  # rules G19, G14
    child = StateGraph(Log, name="child").add_node("c", giving({"log": ["c"]})).set_entry_point("c").compile()

    async def wrap(call: NodeCall, request: NodeRequest) -> Any:
        if request.graph == "child":
            return await call(request)
        found = await current().run(child, {})
        command = await call(request)
        return {"log": [*found.get("log", ()), *command.update["log"]]}

    graph = lone(giving({"log": ["n"]}), Wrap(wrap), store=store, max_concurrency=1)
    assert (await graph.run({}, session_id="s")).state["log"] == ["c", "n"]


class Raising(Middleware):
    """Lets the node see a higher count than there is."""

    async def wrap_node(self, call: NodeCall, request: NodeRequest) -> Any:
        request.state["count"] += 1
        return await call(request)


async def test_what_it_changes_in_the_state_counts_for_one_attempt(store: Store) -> None:  # rules G19, R5
    seen: list[int] = []
    broken = True

    @once
    async def effect() -> None: ...

    async def flaky(state: Any) -> Any:
        seen.append(state["count"])
        await effect()
        if broken:
            raise ConnectionError
        return {"log": [interrupt("Go on?")]}

    def graph() -> CompiledGraph:
        return lone(flaky, Raising(), node={"retry": Retry(attempts=2, backoff=0)}, store=store)

    with pytest.raises(RetryExhausted):
        await graph().run({"count": 0}, session_id="s")
    broken = False
    paused = await graph().recover("s")
    state = (await graph().resume("s", {paused.interrupts[0].id: "yes"})).state
    assert (state["log"], state["count"]) == (["yes"], 0)
    assert seen == [1, 1, 1, 1]


async def test_each_call_has_the_state_that_it_is_made_with() -> None:  # rule G19
    seen: list[int] = []

    async def node(state: Any) -> Any:
        seen.append(state["count"])
        if len(seen) == 1:
            raise ConnectionError
        return {}

    async def wrap(call: NodeCall, request: NodeRequest) -> Any:
        try:
            return await call(replace(request, state={**request.state, "count": 10}))
        except ConnectionError:
            return await call(request)

    await lone(node, Wrap(wrap)).invoke({"count": 1})
    assert seen == [10, 1]


async def test_a_state_that_it_returns_is_compared_with_the_one_it_was_given() -> None:  # rule G19
    async def wrap(call: NodeCall, request: NodeRequest) -> Any:
        request.state["count"] += 1
        await call(request)
        return request.state

    assert (await lone(giving({}), Wrap(wrap)).invoke({"count": 1}))["count"] == 2


# The middleware that a graph was compiled with goes wherever the graph goes.


@tool
def pay(cents: int) -> str:
    """Pay."""
    raise AssertionError("paid without approval")


def careful(kind: str) -> CompiledGraph:
    """Return a graph that pays, by a tools node or by an agent, and was compiled with an approval policy."""
    policy = ApprovalPolicy([ApprovalRule(tool="pay", action="ask")])
    call = ToolCall(id="c1", name="pay", arguments={"cents": 5})
    graph = StateGraph(MessagesState, name="careful")
    if kind == "tools":
        graph.add_node("seed", giving({"messages": [Message.assistant("", tool_calls=[call])]}))
        graph.add_tools_node("pay", [pay]).add_sequence(START, "seed", "pay")
    else:
        agent = ChatModelAgent("payer", model=ScriptedModel([call]), tools=[pay])
        graph.add_agent_node("pay", agent).set_entry_point("pay")
    return graph.compile(middleware=[policy])


def places(graph: CompiledGraph) -> dict[str, Runner[Any, Any, Any]]:
    """Return runners that run a graph in each place that it can have in a program."""

    async def invoking(state: Any) -> None:
        await graph.invoke({"user_input": "x"})

    below = StateGraph(MessagesState, name="below").add_subgraph("sub", graph).set_entry_point("sub").compile()
    return {
        "itself": graph,
        "runner": Runner(graph),
        "agent": Runner(GraphAgent("a", graph)),
        "subgraph": below,
        "deep": StateGraph(MessagesState).add_subgraph("sub", below).set_entry_point("sub").compile(),
        "invoked": StateGraph(MessagesState).add_node("caller", invoking).set_entry_point("caller").compile(),
    }


@pytest.mark.parametrize("kind", ["tools", "agent"])
@pytest.mark.parametrize("place", ["itself", "runner", "agent", "subgraph", "deep", "invoked"])
async def test_an_approval_goes_wherever_the_graph_goes(kind: str, place: str) -> None:  # rule G19
    runner = places(careful(kind))[place]
    result = await runner.run("x", session_id="s")
    assert [each.id.endswith("tool:pay:c1") for each in result.interrupts] == [True]


@pytest.mark.parametrize("place", ["itself", "runner", "agent", "subgraph", "deep", "invoked"])
async def test_a_graph_brings_its_hooks_and_none_of_them_twice(place: str) -> None:  # rule G19
    seen: list[str] = []

    async def wrap(call: NodeCall, request: NodeRequest) -> Any:
        seen.append(request.node)
        return await call(request)

    hook = Wrap(wrap)
    graph = StateGraph(MessagesState, name="g").add_node("n", giving(None)).set_entry_point("n")
    runner = places(graph.compile(middleware=[hook]))[place]
    await Runner(runner.program, middleware=[Wrap(lambda call, request: call(request), "Other")]).run("x")
    assert seen == ["n"]
    seen.clear()
    await Runner(runner.program, middleware=[hook]).run("x")
    assert seen.count("n") == 1
