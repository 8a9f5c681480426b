"""ChatModelAgent: a model that thinks and calls tools."""

# Overrides are documented on the base class.
# ruff: noqa: D102

from __future__ import annotations

from msgspec.structs import replace

from adjourn._generics import Deps_contra, Out_co
from adjourn.agents._config import Sketch
from adjourn.agents.agent import Agent
from adjourn.graph.nodes._caller import tool_names

from ._config import ChatConfig
from ._loop import ChatPlan


class ChatModelAgent(ChatConfig[Deps_contra, Out_co], Agent[Deps_contra, Out_co]):
    """A model with an instruction and tools that runs until it answers without calling a tool.

    name: used in addresses and records; it must be unique in the agent's tree.
    model: a `ChatModel`, or its name, such as "openai:gpt-5".
    description: describes this agent to other agents that can hand over to it or call it.
    instruction: the system prompt; `{user}` is a session value, `{user?}` one that may be missing. Or a function of the
        context, sync or async, that is called for each model call; its text is taken as it is.
    tools: tools made by `@tool`, plain functions, and agents, which become tools.
    tool_calls: whether the calls of one answer run in "parallel" (the default) or are "sequential".
    model_input: a function of the rendered instruction and the messages that returns the messages to send.
    exit_tool: an additional tool, such as `ExitTool()`, with which the model ends the run.
    output_key: the name of the session value to store the final text in.
    output_type: a type that the final answer must fit; the converted answer is the run's `value`.
    output_mode: how the model is asked for that type: "native" (a schema that its server enforces), "tool" (the
        arguments of a tool called `final_result`) or "prompt" (the schema in words). By default, as fits the model's
        abilities.
    max_iterations: the number of model calls in one turn after which the run fails; 20 by default.
    return_directly: names of tools whose result is the agent's answer, without asking the model again.
    middleware: middleware around this agent, its model calls and its tool calls; the first is outermost.
    retry: when to retry a failed model call. By default it is tried up to three times if the provider reports too many
        requests, a server error or a broken connection; None is never.
    failover: models to try in order when the first one fails.
    sub_agents: agents that it can hand the conversation over to.
    disallow_transfer_to_parent: whether to forbid handing back to the agent that handed over to it.
    on_tool_error: "tell" the model what went wrong (the default); "tell_type", which tells it only the type of an error
        that the tool did not expect (anything but a `ToolError`), since its text may hold what a model must not see; or
        "raise", which fails the run.
    on_unknown_tool: what a call of a tool that does not exist does: "tell" the model, "raise", or a function of the
        `ToolCall`, sync or async, that returns its result.
    limits: limits on one turn: `Limits(model_calls=..., tool_calls=..., tokens=..., seconds=...)`, and on one answer:
        `Limits(calls_per_answer=...)`, 100 by default.
    """

    def make_plan(self) -> ChatPlan:
        return ChatPlan(self)

    def sketch(self) -> Sketch:
        plain = super().sketch()
        return replace(plain, marks=[*plain.marks, *tool_names(self.tools)], chooses=True)
