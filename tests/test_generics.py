"""Generic classes at run time, on every Python: parameters can be left out, as type checkers have it."""

import copy
from typing import Any, TypedDict, get_args

import pytest

from adjourn import Agent, ChatModelAgent, Run, RunContext, Runner, RunResult, SequentialAgent, workflow
from adjourn.graph import START, CompiledGraph, StateGraph
from adjourn.workflows import Workflow


class Deps: ...


class Tally(TypedDict):
    n: int


@pytest.mark.parametrize("given", [Agent, ChatModelAgent, SequentialAgent, Runner, Run, RunResult])
def test_parameters_that_are_left_out_are_any(given: Any):
    first, *rest = get_args(given[Deps])
    assert first is Deps
    assert rest
    assert all(each is Any for each in rest)


def test_all_parameters_can_be_given():
    assert get_args(Runner[Deps, str, int]) == (Deps, str, int)
    assert get_args(RunContext[Deps]) == get_args(StateGraph[Deps]) == get_args(CompiledGraph[Deps]) == (Deps,)
    assert get_args(Workflow[[str], int])[-1] is int
    with pytest.raises(TypeError, match=r"parameters|arguments"):
        _ = Agent[Deps, str, int]  # pyright: ignore[reportInvalidTypeArguments]


def test_an_agent_of_some_deps_can_be_derived_from():
    class Clerk(Agent[Deps]):
        name = "clerk"

    assert isinstance(Clerk(), Agent)


def test_a_result_is_copied_like_any_other():
    @workflow
    async def double(n: int) -> int:
        return 2 * n

    result = Runner(double).run_sync(2)
    assert copy.copy(result).value == copy.deepcopy(result).value == 4


def test_a_graph_that_is_invoked_from_sync_code_returns_its_state():
    graph = StateGraph(Tally).add_node("add", lambda state: {"n": state["n"] + 1}).add_edge(START, "add").compile()
    assert graph.invoke_sync({"n": 1}) == {"n": 2}
