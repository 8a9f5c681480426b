"""What LLM, tools and agent nodes need of the state that they work on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from adjourn._engine.program import Program
from adjourn.graph._channels import MessagesChannel
from adjourn.graph._running import is_async
from adjourn.graph.schema import Schema

from .agent import AgentNode
from .llm import LLMNode
from .tools import ToolsNode

if TYPE_CHECKING:
    from adjourn.graph.builder import NodeDraft


def conversation_problems(nodes: Iterable[NodeDraft], schema: Schema) -> Iterable[str]:
    """The mistakes of nodes that read and write a conversation."""
    if schema.problems:
        return  # Its fields are not known.
    for node in nodes:
        match node.fn:
            case LLMNode(key=key):
                yield from _lacks_messages("LLM node", node.name, schema)
                if not isinstance(key, str) or (key != "user_input" and _lacks(schema, key)):  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
                    yield f"LLM node '{node.name}' has user_input_key={key!r}, which is no field of the state"
            case ToolsNode():
                yield from _lacks_messages("tools node", node.name, schema)
            case AgentNode():
                yield from _agent_problems(node.name, node.fn, schema)
            case _:
                pass


def _agent_problems(name: str, node: AgentNode, schema: Schema) -> Iterable[str]:
    if not isinstance(node.agent, Program) or node.agent.kind != "agent":  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
        yield f"the agent of node '{name}' is none: {node.agent!r} (a graph is added with add_subgraph)"
    for what, fn in (("input", node.input), ("output", node.output)):
        if fn is not None and not callable(fn):
            yield f"the {what} of agent node '{name}' is no function: {fn!r}"
        elif fn is not None and is_async(fn):
            yield f"the {what} of agent node '{name}' is async: it only maps, so make it a plain function"
    if node.input is None and node.isolated and _lacks(schema, "user_input"):
        yield f"agent node '{name}' needs the field 'user_input', or input=... to make its input of the state"
    elif node.input is None and not node.isolated:
        yield from _lacks_messages("agent node", name, schema)


def _lacks(schema: Schema, field: str) -> bool:
    return field not in schema.channels and not schema.extra


def _lacks_messages(what: str, name: str, schema: Schema) -> Iterable[str]:
    if not isinstance(schema.channels.get("messages"), MessagesChannel):
        yield (
            f"{what} '{name}' needs the field 'messages' with the reducer add_messages: base the state on "
            "MessagesState, or add `messages: Annotated[list[Message], add_messages]`"
        )
