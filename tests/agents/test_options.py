"""The options that agents pass on to others, in the dictionaries that type checkers read."""

import inspect

from adjourn import AgentTool, ChatModelAgent, DeepAgent, Supervisor
from adjourn.agents._config import AgentToolOptions
from adjourn.agents.chat._config import ChatOptions


def test_a_supervisor_and_a_deep_agent_take_every_option_of_a_chat_model_agent():
    options = set(inspect.signature(ChatModelAgent).parameters)
    for kind in (Supervisor, DeepAgent):
        taken = set(inspect.signature(kind).parameters) | set(ChatOptions.__annotations__)
        # A supervisor's members are its sub-agents.
        assert options - taken - ({"sub_agents"} if kind is Supervisor else set()) == set()
    assert set(ChatOptions.__annotations__) <= options


def test_an_agent_as_a_tool_takes_every_option_of_agent_tool():
    assert set(AgentToolOptions.__annotations__) == set(inspect.signature(AgentTool).parameters) - {"agent"}
