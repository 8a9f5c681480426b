"""ChatModelAgent: a model that thinks and calls tools."""

# An override is documented where it is declared.
# ruff: noqa: D102

from __future__ import annotations

from adjourn.agents.agent import Agent
from adjourn.graph._node import Plan

from ._config import ChatConfig
from ._loop import ChatFrame, ChatPlan


class ChatModelAgent(ChatConfig, Agent):
    """A model with an instruction and tools, which runs until it answers without calling one.

    name: stands in addresses and records; no other agent of the same tree may have it.
    model: a `ChatModel`, or its name, such as "openai:gpt-5".
    description: what other agents are told of this one, when they can hand over to it or call it.
    instruction: what the model is told first; `{user}` is a session value, `{user?}` one that may be missing.
    tools: made by `@tool`, plain functions, and agents, which become tools.
    tool_calls: whether the calls of one answer run side by side ("parallel", the default) or in order ("sequential").
    model_input: a function of the rendered instruction and the messages that gives the messages to send.
    exit_tool: one more tool, such as `ExitTool()`, with which the model ends the run.
    output_key: the session value that the final text is put into.
    output_type: a type that the final answer must fit; it is the run's `value` then.
    max_iterations: how often the model may be asked in one turn, before the run fails; 20 by default.
    return_directly: names of tools whose result is the agent's answer, without asking the model again.
    emit_internal_events: whether those who follow the run hear of what agents among `tools` do.
    middleware: what stands around this agent, its model calls and its tool calls; the first is outermost.
    retry: when a failed model call is tried again; by default never.
    failover: models that are asked in turn when the first one fails.
    sub_agents: those that it can hand the conversation over to.
    disallow_transfer_to_parent: True if it cannot hand back to the agent that handed over to it.
    on_tool_error: "tell" the model what went wrong (the default), or "raise" it, which fails the run.
    on_unknown_tool: the same for calls of tools that there are not.
    limits: how much it may do in one turn: `Limits(model_calls=..., tool_calls=..., tokens=..., seconds=...)`.
    """

    frame_type = ChatFrame

    def make_plan(self) -> Plan:
        return ChatPlan(self)
