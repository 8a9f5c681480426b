"""The options that agents pass on to others, in the dictionaries that type checkers read."""

import inspect
from typing import Any

import pytest

from adjourn import AgentTool, ChatModelAgent, DeepAgent, GraphAgent, RunContext, Supervisor, UsageError
from adjourn._options import options_of
from adjourn.agents._config import AgentToolOptions
from adjourn.agents.chat._config import ChatOptions
from adjourn.graph import START, MessagesState, StateGraph
from adjourn.testing import ScriptedModel

CHAT: Any = ChatModelAgent
GRAPH: Any = GraphAgent


def test_a_supervisor_and_a_deep_agent_take_every_option_of_a_chat_model_agent():
    options = set(inspect.signature(ChatModelAgent).parameters)
    for kind in (Supervisor, DeepAgent):
        taken = set(inspect.signature(kind).parameters) | set(ChatOptions.__annotations__)
        # A supervisor's members are its sub-agents.
        assert options - taken - ({"sub_agents"} if kind is Supervisor else set()) == set()
    declared, passed_on = options_of(ChatModelAgent), options_of(ChatOptions)
    assert {name: str(each.type).replace("Out_co", "Out") for name, each in declared.items() if name in passed_on} == {
        name: str(each.type) for name, each in passed_on.items()
    }


def test_an_agent_as_a_tool_takes_every_option_of_agent_tool():
    assert set(AgentToolOptions.__annotations__) == set(inspect.signature(AgentTool).parameters) - {"agent"}


def of_nothing() -> Any: ...
def of_one(first: Any) -> Any: ...
def of_two(first: Any, second: Any) -> Any: ...


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "instruction": ({"instruction": of_nothing}, r"lambda ctx: text"),
    "model_input": ({"model_input": of_one}, r"lambda instruction, messages: \[\.\.\.\]"),
    "on_unknown_tool": ({"on_unknown_tool": of_two}, r"lambda call: …"),
    "failover": ({"failover": "openai:gpt-5"}, r"Give a list: \['openai:gpt-5'\]"),
    "return_directly": ({"return_directly": "pay"}, r"Give a list: \['pay'\]"),
}


@pytest.mark.parametrize("option", WRONG)
def test_a_function_of_other_things_and_a_text_for_a_list_are_named_where_the_agent_is_made(option: str):
    options, said = WRONG[option]
    with pytest.raises(UsageError, match=rf"'A'.*{option}.*{said}|instruction of agent 'A'.*{said}"):
        CHAT("A", model=ScriptedModel(["hi"]), **options)


def test_functions_with_further_parameters_that_have_defaults_are_taken():
    def style(ctx: RunContext, style: str = "brief") -> str:
        return style

    def all_of_it(*given: Any) -> Any:
        return list(given[1])

    CHAT("A", model=ScriptedModel(["hi"]), instruction=style, model_input=all_of_it, on_unknown_tool=str)


def test_a_graph_agent_names_a_function_of_other_things():
    graph = StateGraph(MessagesState, name="g").add_node("n", of_one).add_edge(START, "n").compile()
    with pytest.raises(UsageError, match="input is a function that cannot be called with what the agent was given"):
        GRAPH("G", graph, input=of_nothing)
    with pytest.raises(UsageError, match="output is a function that cannot be called with the final state"):
        GRAPH("G", graph, output=of_two)
