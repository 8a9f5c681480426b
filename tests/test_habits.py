"""Names from other libraries get an answer that helps: what to write instead."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, TypedDict

import pytest

from adjourn import Agent, AgentTool, ChatModelAgent, Retry, Runner, Supervisor, UsageError, interrupt, tool
from adjourn._habits import OF_AGENTS, OF_RESULTS, OF_RUNNERS, OPTIONS
from adjourn.errors import NotInRun
from adjourn.graph import START, Command, StateGraph
from adjourn.testing import ScriptedModel


class S(TypedDict, total=False):
    a: int


async def node(state: S) -> None: ...


def builder() -> Any:
    return StateGraph(S, name="g").add_node("x", node).add_edge(START, "x")


AGENT: Any = ChatModelAgent("A", model=ScriptedModel(["hi"]))
GRAPH: Any = builder().compile()
RUNNER: Any = Runner(AGENT)
CLASS: Any = Runner
CHAT: Any = ChatModelAgent
BASE: Any = Agent
TOOL: Any = tool
SUPERVISOR: Any = Supervisor
RETRY: Any = Retry
COMMAND: Any = Command
CONFIG = {"configurable": {"thread_id": "1"}}

OPTIONS_GIVEN: dict[str, tuple[Callable[[], object], str]] = {
    "agent.run": (lambda: AGENT.run("hi"), r'await Runner\(agent\)\.run\("hi"\)'),
    "Runner.run": (lambda: CLASS.run(AGENT, "hi"), r"called on the class, with <ChatModelAgent A>.*Runner\(agent\)"),
    "Runner.run_sync": (lambda: CLASS.run_sync(AGENT, "hi"), r"Runner\(agent\)\.run_sync"),
    "system_prompt": (lambda: CHAT("A", model="x", system_prompt="p"), "ChatModelAgent has no option system_prompt"),
    "instructions": (
        lambda: CHAT("A", model="x", instructions="p"),
        "Write `instruction='...'` instead of instructions",
    ),
    "checkpointer": (lambda: builder().compile(checkpointer=1), "Write `store='sqlite:///sessions.db'` instead"),
    "Runner(checkpointer)": (lambda: CLASS(AGENT, checkpointer=1), "Write `store='sqlite:///sessions.db'` instead"),
    "thread_id": (lambda: GRAPH.run({}, thread_id="1"), "Write `run(..., session_id='s1')` instead of thread_id"),
    "run_sync": (lambda: GRAPH.run_sync({}, config=CONFIG), "session_id='s1', deps=...)` instead of config"),
    "config": (lambda: GRAPH.invoke({}, CONFIG), "session_id='s1', deps=...)` instead of config"),
    "resume": (lambda: GRAPH.resume("s", None, config=CONFIG), "instead of config"),
    "checkpointer of an agent": (lambda: CHAT("A", model="x", checkpointer=1), "Write `Runner(..., store='sqlite:"),
    "compile(timeout)": (
        lambda: builder().compile(timeout=3),
        r"Write `node_timeout=\.\.\., or run_timeout=\.\.\.` instead of timeout\. There are: .*node_timeout, .*store",
    ),
    "name": (lambda: builder().add_node("y", node, name="Y"), "Write `title='...'` instead of name"),
    "retry_policy": (lambda: builder().add_node("y", node, retry_policy=1), "Write `retry=Retry(attempts=...)`"),
    "retries of a node": (
        lambda: builder().add_node("y", node, retries=3),
        "Write `retry=Retry(attempts=...)` instead",
    ),
    "retries of a tool": (lambda: TOOL(node, retries=3), "tool has no option retries. Write `retry=Retry("),
    "retries of an agent": (lambda: CHAT("A", model="x", max_retries=3), "Write `retry=Retry(attempts=...)` instead"),
    "retries of a supervisor": (
        lambda: SUPERVISOR("S", model="x", agents=[AGENT], retries=3),
        "Supervisor has no option retries. Write `retry=Retry(attempts=...)` instead",
    ),
    # These have no `retry` themselves.
    "retries of a runner": (lambda: CLASS(AGENT, retries=3), "Write `ChatModelAgent(..., retry=Retry(attempts=...))`"),
    "retries of a run": (lambda: RUNNER.run("hi", retries=3), "Write `ChatModelAgent(..., retry=Retry(attempts=...))`"),
    "Retry": (lambda: RETRY(max_attempts=3), "Retry has no option max_attempts. Write `Retry(attempts=...)`"),
    "Command(resume)": (
        lambda: COMMAND(resume="yes"),
        "Command has no option resume. Answer with `graph.resume(session_id, {question: answer})`",
    ),
    "Command(graph)": (lambda: COMMAND(goto="x", graph="up"), "A command goes to nodes of its own graph."),
    "Agent": (lambda: BASE("A", model="openai:x"), r"ChatModelAgent('Name', model=...".replace("(", r"\(")),
    "Agent()": (lambda: BASE(), "what custom agents inherit from"),
}


@pytest.mark.parametrize("habit", OPTIONS_GIVEN)
def test_a_call_from_elsewhere_says_what_to_write(habit: str) -> None:
    call, said = OPTIONS_GIVEN[habit]
    pattern = said if "\\" in said else re.escape(said)
    with pytest.raises(UsageError, match=pattern):
        call()


@pytest.mark.parametrize(
    ("thing", "names"),
    [(AGENT, OF_AGENTS), (RUNNER, OF_RUNNERS), (GRAPH, OF_RUNNERS)],
    ids=["agent", "runner", "graph"],
)
def test_an_attribute_from_elsewhere_says_what_to_write(thing: Any, names: dict[str, str]) -> None:
    for name, said in names.items():
        if name not in dir(thing):
            with pytest.raises(AttributeError, match=re.escape(said)):
                getattr(thing, name)
    with pytest.raises(AttributeError, match=r"has no 'nonsense'\.$"):
        _ = thing.nonsense
    assert not hasattr(thing, "stream")


@pytest.mark.parametrize("name", ["run", "invoke", "ainvoke", "stream", "astream", "batch"])
def test_a_graph_that_is_not_compiled_says_so(name: str) -> None:
    with pytest.raises(AttributeError, match=r"It is not compiled yet: call \.compile\(\) first\."):
        getattr(builder(), name)
    with pytest.raises(AttributeError, match=r"a StateGraph has no 'add_nod'\.$"):
        _ = builder().add_nod


async def test_a_result_says_what_to_read() -> None:
    result: Any = await Runner(ChatModelAgent("A", model=ScriptedModel(["hi"]))).run("hi")
    for name, said in OF_RESULTS.items():
        with pytest.raises(AttributeError, match=re.escape(said)):
            getattr(result, name)


def test_an_unknown_option_of_a_struct_stays_what_python_says() -> None:
    with pytest.raises(TypeError, match="Unexpected keyword argument 'nonsense'"):
        COMMAND(nonsense=1)


def test_an_error_inside_a_property_is_not_hidden() -> None:
    class Broken(Agent):
        name = "B"

        @property
        def client(self) -> Any:
            return object().missing  # type: ignore[attr-defined]

    with pytest.raises(AttributeError, match="'object' object has no attribute 'missing'"):
        _ = Broken().client


def test_a_missing_option_is_named_with_the_class() -> None:
    with pytest.raises(TypeError, match=r"ChatModelAgent: missing a required .*'model'"):
        CHAT("A")
    with pytest.raises(TypeError, match="ChatModelAgent: got an unexpected keyword argument 'nonsense'"):
        CHAT("A", model="x", nonsense=1)


def test_a_custom_agent_without_init_takes_no_arguments() -> None:
    class Mine(Agent):
        name = "M"

    made: Any = Mine
    with pytest.raises(TypeError, match=r"Mine\(\) takes no arguments"):
        made("A")


def test_a_question_outside_a_run_says_where_to_ask() -> None:
    with pytest.raises(NotInRun, match="Call it from a node, tool, agent or workflow run by a Runner"):
        interrupt("x")


def test_plain_functions_are_tools() -> None:
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    assert [tool.name for tool in ChatModelAgent("A", model=ScriptedModel([]), tools=[add]).tools] == ["add"]


def test_no_option_of_ours_is_called_a_habit() -> None:
    ours = {
        name
        for made in (ChatModelAgent, AgentTool, Runner.run, Runner.resume)
        for name in inspect.signature(made).parameters
    }
    assert not ours & OPTIONS.keys()


def test_what_is_given_by_its_place_and_has_none_says_how_to_give_it() -> None:
    with pytest.raises(TypeError, match=r"ChatModelAgent: .*Give options by their names, such as model=\.\.\.\."):
        CHAT("A", ScriptedModel(["hi"]))
    with pytest.raises(TypeError) as raised:
        CHAT("A")
    assert "by their names" not in str(raised.value)
