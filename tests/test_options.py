"""Options of a wrong type are named where they are made, by every public constructor."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from adjourn import (
    AdjournError,
    AgentTool,
    ChatModelAgent,
    DeepAgent,
    GraphAgent,
    Limits,
    LoopAgent,
    ParallelAgent,
    PlanExecute,
    Retry,
    Runner,
    SequentialAgent,
    Sessions,
    Supervisor,
    middleware,
    tool,
)
from adjourn.graph import START, Cache, MessagesState, StateGraph
from adjourn.runner import Options
from adjourn.testing import ScriptedModel


class Weird:
    def __repr__(self) -> str:
        return "<weird>"


def fn(x: int) -> str:
    """Do something."""
    return ""


def node(state: Any) -> None: ...


def builder() -> Any:
    return StateGraph(MessagesState, name="g").add_node("x", node).add_edge(START, "x")


MODEL = ScriptedModel([])
AGENT = ChatModelAgent("A", model=MODEL)
NODE = ["thread", "retry", "timeout", "cache", "interrupt_before", "interrupt_after", "destinations", "ends", "defer"]
RUNNER = [name for name in Options.__annotations__ if name != "deps"]  # deps can be anything

Make = Callable[..., object]


def runner(**given: Any) -> object:
    return Runner(AGENT, **given)


def compiled(**given: Any) -> object:
    return builder().compile(**given)


def with_node(**given: Any) -> object:
    return builder().add_node("y", node, **given).compile()


def with_tool(**given: Any) -> object:
    return tool(fn, **given)


MADE: dict[str, tuple[Make, dict[str, Any], list[str]]] = {
    "Runner": (runner, {}, RUNNER),
    "compile": (compiled, {}, ["interrupt_before", "max_steps", "strict", *RUNNER]),
    "add_node": (with_node, {}, NODE),
    "tool": (with_tool, {}, list(inspect.signature(tool).parameters)[1:]),
}


def options_of(make: Any) -> list[str]:
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return [name for name, each in inspect.signature(make).parameters.items() if each.kind not in kinds]


def add(make: Any, **given: Any) -> None:
    MADE[make.__name__] = make, given, options_of(make)


add(ChatModelAgent, name="A", model=MODEL)
add(GraphAgent, name="A", graph=builder().compile())
add(SequentialAgent, name="B", agents=[AGENT])
add(ParallelAgent, name="B", agents=[AGENT])
add(LoopAgent, name="B", agents=[AGENT], max_iterations=2)
add(Supervisor, name="B", model=MODEL, agents=[AGENT])
add(PlanExecute, name="A", planner=MODEL, executor=MODEL, replanner=MODEL)
add(DeepAgent, name="A", model=MODEL)
add(AgentTool, agent=AGENT)
add(Limits)
add(Retry)
add(Cache, ttl=1)
add(Sessions, store="memory://")
add(middleware.ApprovalPolicy, rules=[])
add(middleware.CallLimits)
add(middleware.FileTools)
add(middleware.LogCalls)
add(middleware.PatchToolCalls)
add(middleware.RedactPII)
add(middleware.ReduceToolResults)
add(middleware.Summarize, model=MODEL)
add(middleware.TodoList)
add(middleware.ToolSearch, tools=[fn])

# Their messages show the value and say what is expected, in the words of what an answer or a model is.
SHOWN = {("ChatModelAgent", "output_type"), ("AgentTool", "input_schema")} | {
    ("PlanExecute", role) for role in ("planner", "executor", "replanner")
}


def cases() -> Iterator[tuple[str, str]]:
    for made, (_, _, names) in MADE.items():
        yield from ((made, name) for name in names)


@pytest.mark.parametrize(("made", "option"), list(cases()))
def test_an_option_of_a_wrong_type_is_named(made: str, option: str) -> None:
    make, given, _ = MADE[made]
    with pytest.raises((AdjournError, TypeError)) as caught:
        make(**{**given, option: Weird()})
    assert ("<weird>" if (made, option) in SHOWN else option) in str(caught.value)


def test_every_middleware_is_tried() -> None:
    shipped = {
        name
        for name in middleware.__all__
        if isinstance(found := getattr(middleware, name), type)
        and issubclass(found, middleware.Middleware)
        and found is not middleware.Middleware
    }
    assert shipped - MADE.keys() <= {"ProjectInstructions", "Skills", "TaskBoard"}
