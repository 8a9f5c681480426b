"""The options of nodes: every kind of node takes all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Unpack

import pytest

from adjourn import ChatModelAgent, Message, Retry, Retrying, ToolCall, UsageError, interrupt, tool
from adjourn.errors import GraphError, ModelError, NodeNotFound, NodeTimeout, RetryExhausted
from adjourn.events import NodeEnd, NodeStart
from adjourn.graph import END, START, Cache, Command, CompiledGraph, MessagesState, NodeOptions, StateGraph
from adjourn.graph._options import NodeSettings
from adjourn.models import ModelRequest
from adjourn.stores import Store
from adjourn.testing import FunctionModel
from tests.graph.shapes import events_of, giving

AT_ONCE = Retry(attempts=3, backoff=0)
CALLED = [
    Message.user("go"),
    Message.assistant("", tool_calls=[ToolCall(id="c1", name="work", arguments={})]),
]


class Worker:
    """What a node does, whatever its kind: it counts, fails as often as said, and may never end."""

    def __init__(self, failures: int = 0, *, hangs: bool = False) -> None:
        self.calls = 0
        self._failures = failures
        self._hangs = hangs

    async def work(self) -> str:
        self.calls += 1
        if self._hangs:
            await asyncio.Event().wait()
        if self.calls <= self._failures:
            raise ModelError(f"failure {self.calls}", retryable=True)
        return f"done {self.calls}"

    async def as_node(self, state: Any) -> dict[str, Any]:
        return {"last_response": await self.work()}

    @property
    def as_model(self) -> FunctionModel:
        async def answer(request: ModelRequest) -> str:
            return await self.work()

        return FunctionModel(answer)


Kind = Callable[[StateGraph, Worker, NodeOptions], None]


def function(graph: StateGraph, worker: Worker, options: NodeOptions) -> None:
    graph.add_node("n", worker.as_node, **options)


def llm(graph: StateGraph, worker: Worker, options: NodeOptions) -> None:
    graph.add_llm_node("n", worker.as_model, **options)


def tools(graph: StateGraph, worker: Worker, options: NodeOptions) -> None:
    graph.add_tools_node("n", [tool(worker.work, description="Work.")], on_tool_error="raise", **options)


def agent(graph: StateGraph, worker: Worker, options: NodeOptions) -> None:
    graph.add_agent_node("n", ChatModelAgent("A", model=worker.as_model), **options)


def subgraph(graph: StateGraph, worker: Worker, options: NodeOptions) -> None:
    inner = StateGraph(MessagesState, name="inner").add_node("i", worker.as_node).set_entry_point("i").compile()
    graph.add_subgraph("n", inner, **options)


KINDS = pytest.mark.parametrize("kind", [function, llm, tools, agent, subgraph], ids=lambda kind: kind.__name__)


def building(kind: Kind, worker: Worker, **options: Unpack[NodeOptions]) -> StateGraph:
    graph = StateGraph(MessagesState, name="g")
    kind(graph, worker, options)
    return graph.add_edge(START, "n")


def input_of(kind: Kind) -> dict[str, Any]:
    return {"messages": CALLED} if kind is tools else {"user_input": "go"}


def test_the_options_are_those_of_the_settings() -> None:
    assert tuple(NodeOptions.__annotations__) == NodeSettings.__struct_fields__


@KINDS
async def test_every_kind_is_tried_again(kind: Kind, store: Store) -> None:  # rule G12
    worker = Worker(failures=2)
    graph = building(kind, worker, retry=AT_ONCE).compile(store=store)
    events = await events_of(graph.run(input_of(kind), session_id="s"))
    assert [event.attempt for event in events if isinstance(event, Retrying)] == [1, 2]
    assert worker.calls == 3


@KINDS
async def test_the_graph_has_a_policy_for_nodes_without_one(kind: Kind) -> None:  # rule G12
    worker = Worker(failures=2)
    await building(kind, worker).compile(retry=AT_ONCE).run(input_of(kind))
    assert worker.calls == 3


async def test_a_node_without_retries_has_none_from_the_graph() -> None:  # rule G12
    worker = Worker(failures=1)
    with pytest.raises(ModelError, match="failure 1"):
        await building(function, worker, retry=()).compile(retry=AT_ONCE).run({})
    assert worker.calls == 1


async def test_the_policy_of_a_node_comes_before_that_of_the_graph() -> None:  # rule G12
    worker = Worker(failures=3)
    graph = building(function, worker, retry=Retry(attempts=2, backoff=0)).compile(retry=AT_ONCE)
    with pytest.raises(RetryExhausted, match="failure 2"):
        await graph.run({})


@KINDS
async def test_every_kind_has_a_timeout(kind: Kind, store: Store) -> None:  # rule G13
    graph = building(kind, Worker(hangs=True), timeout=0.01).compile(store=store)
    with pytest.raises(NodeTimeout, match="node:n"):
        await graph.run(input_of(kind), session_id="s")
    mended = Worker()
    result = await building(kind, mended, timeout=5).compile(store=store).recover("s")
    assert (result.status, mended.calls) == ("done", 1)


@KINDS
async def test_every_kind_pauses_before_and_after(kind: Kind, store: Store) -> None:  # rule I14
    worker = Worker()
    graph = building(kind, worker, interrupt_before=True, interrupt_after=True).compile(store=store)
    before = await graph.run(input_of(kind), session_id="s")
    assert before.interrupts[0].info["before"] == ["n"]
    assert worker.calls == 0
    after = await graph.resume("s", [before.interrupts[0].id])
    assert after.interrupts[0].info["after"] == ["n"]
    assert (await graph.resume("s", [after.interrupts[0].id])).status == "done"
    assert worker.calls == 1


@KINDS
async def test_every_kind_is_deferred(kind: Kind) -> None:  # rule G8
    graph = building(kind, Worker(), defer=True).add_node("first", giving({})).add_node("second", giving({}))
    graph.add_edge(START, "first").add_edge("first", "second")
    events = await events_of(graph.compile().run(input_of(kind)))
    # The nodes inside a subgraph have the same kind of events.
    assert [each.node for each in events if isinstance(each, NodeEnd) and each.node != "i"] == ["first", "second", "n"]


@KINDS
async def test_every_kind_is_cached(kind: Kind) -> None:  # rule G16
    worker = Worker()
    graph = building(kind, worker, cache=Cache(60)).compile()
    first, second = [await graph.run(input_of(kind)) for _ in range(2)]
    assert [message.text for message in first.messages] == [message.text for message in second.messages]
    assert first.state["last_response"] == second.state["last_response"]
    assert worker.calls == 1
    graph.clear_cache("n")
    await graph.run(input_of(kind))
    assert worker.calls == 2


@KINDS
async def test_a_failure_is_not_cached(kind: Kind) -> None:  # rule G16
    worker = Worker(failures=1)
    graph = building(kind, worker, cache=Cache(60)).compile()
    with pytest.raises(ModelError):
        await graph.run(input_of(kind))
    await graph.run(input_of(kind))
    assert worker.calls == 2


@pytest.mark.parametrize("kind", [llm, agent], ids=lambda kind: kind.__name__)
async def test_an_answer_from_the_cache_follows_the_input_of_its_turn(kind: Kind, store: Store) -> None:  # rule G16
    graph = building(kind, Worker(), cache=Cache(60, key=lambda state: state["user_input"])).compile(store=store)
    await graph.run({"user_input": "go"}, session_id="s")
    result = await graph.run({"user_input": "go"}, session_id="s")
    assert [message.text for message in result.messages] == ["go", "done 1", "go", "done 1"]


async def test_messages_from_the_cache_are_new_ones_in_a_subgraph_too() -> None:  # rule G16
    def again(state: Any) -> str:
        return "say" if len(state["messages"]) < 2 else END

    inner = StateGraph(MessagesState, name="inner")
    inner.add_node("say", giving({"messages": Message.assistant("hi")}), cache=Cache(60, key=lambda state: 0))
    inner.set_entry_point("say").add_conditional_edges("say", again)
    graph = StateGraph(MessagesState, name="g").add_subgraph("n", inner.compile()).set_entry_point("n").compile()
    assert [message.text for message in (await graph.run({})).messages] == ["hi", "hi"]


def test_what_needs_an_approval_is_not_cached() -> None:  # rule G16
    graph = StateGraph(MessagesState, name="g").set_entry_point("n")
    graph.add_tools_node("n", [tool(Worker().work, description="Work.", approval=True)], cache=Cache(60))
    with pytest.raises(GraphError, match="the tool 'work' of node 'n' needs an approval"):
        graph.compile()


def test_the_cache_of_an_unknown_node_cannot_be_cleared() -> None:  # rule G16
    graph = building(function, Worker()).compile()
    with pytest.raises(UsageError, match="has the nodes: n"):
        graph.clear_cache("m")
    graph.clear_cache()


async def test_a_cleared_node_leaves_the_results_of_others() -> None:  # rule G16
    one, other = Worker(), Worker()
    graph = StateGraph(MessagesState, name="g")
    always = Cache(60, key=lambda state: "the same")
    graph.add_node("one", one.as_node, cache=always).add_node("other", other.as_node, cache=always)
    compiled = graph.add_sequence(START, "one", "other").compile()
    await compiled.run({})
    compiled.clear_cache("one")
    await compiled.run({})
    assert (one.calls, other.calls) == (2, 1)


# Titles and descriptions


@KINDS
async def test_people_see_the_title_of_every_kind(kind: Kind) -> None:
    graph = building(
        kind, Worker(), title="Do the work", description="Takes\na while.", interrupt_before=True
    ).compile()
    assert "Do the work<br/>Takes a while#46;" in graph.draw()
    assert "Do the work\\nTakes a while." in graph.draw("dot")
    lines = graph.draw("text").splitlines()
    row = next(number for number, line in enumerate(lines) if line.startswith("  n (Do the work"))
    assert lines[row + 1] == "      Takes a while."
    run = graph.run(input_of(kind), session_id="s")
    paused = await run
    assert "Graph 'g' pauses before Do the work." in (paused.interrupts[0].prompt or "")
    events = await events_of(graph.resume("s", [paused.interrupts[0].id]))
    named = [each.title for each in events if isinstance(each, NodeStart | NodeEnd) and each.node == "n"]
    assert named == ["Do the work", "Do the work"]


async def test_a_question_has_the_title_of_its_node(store: Store) -> None:
    def sign(state: Any) -> None:
        interrupt("Sign?")

    graph = (
        StateGraph(MessagesState, name="g")
        .add_node(sign, title="Sign it off")
        .add_edge(START, "sign")
        .compile(store=store)
    )
    paused = await graph.run({}, session_id="s")
    (asked,) = await graph.pending("s")
    (entry,) = await graph.audit("s")
    assert [paused.interrupts[0].node, asked.node, entry.interrupt.node] == ["Sign it off"] * 3


def test_wrong_options_are_named_at_once() -> None:  # rule G1
    graph = building(function, Worker(), title=1, description=2, ends=["a"], timeout=-1)  # pyright: ignore[reportArgumentType]
    with pytest.raises(GraphError) as caught:
        graph.compile()
    for word in ("title", "description", "ends", "timeout"):
        assert f"the {word} of node 'n'" in str(caught.value)


@KINDS
def test_an_unknown_option_is_refused(kind: Kind) -> None:
    options: Any = {"timeuot": 3}
    with pytest.raises(UsageError, match=r"unknown option timeuot\. All nodes take: retry, timeout, "):
        building(kind, Worker(), **options)


def test_a_wrong_retry_of_a_graph_is_refused() -> None:
    with pytest.raises(UsageError, match="retry=3: give a Retry"):
        building(function, Worker()).compile(retry=3)  # pyright: ignore[reportArgumentType]


# Ends


def deciding(goto: Any, **options: Unpack[NodeOptions]) -> StateGraph:
    async def decide(state: Any) -> Command:
        return Command(goto=goto)

    graph = StateGraph(MessagesState, name="g").add_node("decide", decide, **options).set_entry_point("decide")
    return graph.add_node("pay", giving({"last_response": "paid"})).add_node("file", giving({"user_input": "filed"}))


ENDS = {"approved": "pay", "noted": "file", "refused": END}


@pytest.mark.parametrize(
    ("goto", "last", "filed"),
    [
        ("approved", "paid", ""),
        ("refused", "", ""),
        (["approved", "noted"], "paid", "filed"),
        ("pay", "paid", ""),
        ([Command(goto="approved"), Command(goto="file")], "paid", "filed"),
    ],
)
async def test_a_command_names_an_end(goto: Any, last: str, filed: str, store: Store) -> None:  # rule G4
    graph = deciding(goto, ends=ENDS).compile(store=store)
    state = (await graph.run({}, session_id="s")).state
    assert (state["last_response"], state["user_input"]) == (last, filed)


@pytest.mark.parametrize("goto", [3, [["approved"]], [3], {"approved": 1}.items()])
@pytest.mark.parametrize("ends", [None, {"approved": "pay"}])
async def test_a_command_leads_to_names_alone(goto: Any, ends: Any) -> None:  # rule G6
    with pytest.raises(NodeNotFound, match="'decide' leads to the unknown node"):
        await deciding(goto, ends=ends).compile().run({})


async def test_an_unknown_end_is_not_found() -> None:  # rule G6
    with pytest.raises(NodeNotFound, match=r"unknown node 'late'\. Its ends are: 'approved', 'noted', 'refused'\."):
        await deciding("late", ends=ENDS).compile().run({})


def test_ends_are_checked_when_the_graph_is_compiled() -> None:  # rule G1
    ends: Any = {"approved": "pya", "": "pay", "list": ["pay"]}
    with pytest.raises(GraphError) as caught:
        deciding("approved", ends=ends).compile(strict=True)
    assert "the end 'approved' of node 'decide' leads to the unknown node 'pya'" in str(caught.value)
    assert "node 'decide' has the end ''" in str(caught.value)
    assert "leads to the unknown node '['pay']'" in str(caught.value)


def test_an_end_is_not_named_like_something_else() -> None:  # rule G1
    with pytest.raises(GraphError) as caught:
        deciding("file", ends={"file": "pay", END: "pay", "pay": "pay"}).compile()
    assert "the end 'file' of node 'decide' is named like a node or like END: give it another name" in str(caught.value)
    assert f"the end '{END}' of node 'decide' is named like" in str(caught.value)
    assert "the end 'pay'" not in str(caught.value)


def test_ends_are_drawn_and_reached() -> None:  # rule G2
    graph = deciding("approved", ends=ENDS).compile(strict=True)
    assert graph.draw("text").splitlines()[2] == "  decide ⇢ pay (approved), file (noted), end (refused)"


async def test_an_end_may_skip_a_join() -> None:  # rule G8
    graph = deciding("approved", ends={"approved": "pay"}).add_node("both", giving({"user_input": "joined"}))
    graph.add_node("beside", giving({})).add_edge(START, "beside").add_edge(["decide", "beside"], "both")
    state = (await graph.compile().run({})).state
    assert (state["last_response"], state["user_input"]) == ("paid", "")


@pytest.mark.parametrize(("decision", "last"), [("approved", "paid"), ("refused", ""), ("pay", "paid"), ("", "")])
async def test_a_condition_without_a_mapping_names_ends_too(decision: str, last: str) -> None:  # rule G7
    graph = StateGraph(MessagesState, name="g").add_node("decide", giving({}), ends=ENDS).set_entry_point("decide")
    graph.add_node("pay", giving({"last_response": "paid"})).add_node("file", giving({}))
    graph.add_conditional_edges("decide", giving(decision))
    assert (await graph.compile().run({})).state["last_response"] == last


def ending(**mapping: str) -> CompiledGraph:
    graph = StateGraph(MessagesState, name="g").add_node("n", giving({"last_response": "n"})).set_entry_point("n")
    graph.add_node("more", giving({"last_response": "more"}))
    return graph.add_conditional_edges("n", giving(""), mapping or None).compile()


async def test_an_empty_string_ends_the_path() -> None:  # rule G7
    assert (await ending().run({})).state["last_response"] == "n"
    assert (await ending(**{"": "more"}).run({})).state["last_response"] == "more"
