"""Graphs with nodes that talk to models, for tests of LLM, tools and agent nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from adjourn import Message, ToolCall
from adjourn.graph import END, START, CompiledGraph, MessagesState, StateGraph
from adjourn.models import ModelRequest
from adjourn.testing import ScriptedModel


def call(name: str, id: str = "c1", /, **arguments: Any) -> ToolCall:
    """A tool call as a model writes it."""
    return ToolCall(id=id, name=name, arguments=arguments)


def lines(messages: Iterable[Message]) -> list[str]:
    """Messages as `role: text`."""
    return [f"{message.role}: {message.text}" for message in messages]


def shown(request: ModelRequest) -> list[str]:
    """What a model was shown, as `role: text`."""
    return lines(request.messages)


def asking(
    model: Any, *, name: str = "g", schema: Any = MessagesState, store: Any = None, **node: Any
) -> CompiledGraph:
    """A graph of one LLM node, `llm`."""
    graph = StateGraph(schema, name=name).add_llm_node("llm", model, **node)
    return graph.add_edge(START, "llm").compile(store=store)


def looping(
    tools: Sequence[Any], *script: Any, schema: Any = MessagesState, store: Any = None, **node: Any
) -> CompiledGraph:
    """A model and its tools in a loop, as most graphs with tools are."""
    return (
        StateGraph(schema, name="g")
        .add_llm_node("llm", ScriptedModel(script), tools=tools)
        .add_tools_node("tools", tools, **node)
        .add_edge(START, "llm")
        .add_tools_conditional_edges("llm", "tools", END)
        .add_edge("tools", "llm")
        .compile(store=store)
    )
