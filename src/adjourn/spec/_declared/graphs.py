"""What files say about graphs."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, field

from .agents import AgentSpec
from .middleware import Middlewares
from .parts import AgentRef, Count, FallbackSpec, ModelName, Part, PythonRef, RetrySpec, Seconds, Texts, Tools

REDUCERS = ("replace", "last", "append", "merge")
ReducerRef: TypeAlias = Annotated[
    str,
    Meta(
        pattern=rf"^(python://[A-Za-z_][\w.]*:[A-Za-z_][\w.]*|{'|'.join(REDUCERS)})$",
        examples=list(REDUCERS),
        extra={"kind": "reducer"},
    ),
]


class FieldSpec(Part, frozen=True, kw_only=True):
    """A field of the state.

    type: what it holds.
    reducer: how updates change it; by default they replace it, and two at once are an error.
    default: what it begins with.
    required: whether the input must have it.
    """

    type: Literal["string", "integer", "number", "boolean", "list", "object", "any"] = "any"
    reducer: ReducerRef | None = None
    default: Any = None
    required: bool = False


class NodeSpec(Part, tag_field="type", frozen=True, kw_only=True):
    """What every node has.

    description: what it does, for people.
    timeout_seconds: seconds that one attempt may take.
    retry: when to try it again.
    interrupt_before: whether every run pauses before it.
    interrupt_after: whether every run pauses after it.
    defer: whether it waits until nothing else is left to run.
    """

    description: str = ""
    timeout_seconds: Seconds | None = None
    retry: RetrySpec | None = None
    interrupt_before: bool = False
    interrupt_after: bool = False
    defer: bool = False


class FunctionNodeSpec(NodeSpec, tag="function", frozen=True, kw_only=True):
    """A Python function of the state.

    ref: the function, as python://module:attribute.
    goes_to: nodes that its commands may go to, for checks and drawings.
    """

    ref: PythonRef
    goes_to: Texts = []


class LLMNodeSpec(NodeSpec, tag="llm", frozen=True, kw_only=True):
    """A model that continues the conversation in the state.

    model: the model.
    instruction: the system prompt.
    tools: what the model may call; a node of the type `tools` runs the calls.
    user_input: the field of the state that has the user's input.
    middleware: what steps in around the calls of the model.
    """

    model: ModelName | FallbackSpec
    instruction: str = ""
    tools: Tools = []
    user_input: str = "user_input"
    middleware: Middlewares = []


class ToolsNodeSpec(NodeSpec, tag="tools", frozen=True, kw_only=True):
    """Runs the tool calls of the newest message.

    tools: the tools.
    sequential: whether the calls run one after the other.
    on_tool_error: what happens when a tool fails.
    middleware: what steps in around the calls of tools.
    """

    tools: Annotated[Tools, Meta(min_length=1)]
    sequential: bool = False
    on_tool_error: Literal["tell", "tell_type", "raise"] = "tell"
    middleware: Middlewares = []


class AgentNodeSpec(NodeSpec, tag="agent", frozen=True, kw_only=True):
    """An agent that works on the conversation in the state.

    agent: the name of the agent.
    isolated: whether it only sees the user's input, and only its final text joins the conversation.
    """

    agent: AgentRef
    isolated: bool = False


class GraphNodeSpec(NodeSpec, tag="subgraph", frozen=True, kw_only=True):
    """A compiled graph made in Python, which shares the fields that both states have.

    ref: where it is, as python://module:attribute.
    """

    ref: PythonRef


class AskNodeSpec(NodeSpec, tag="ask", frozen=True, kw_only=True):
    """Asks a person, and puts the answer into the state.

    prompt: the question, in one line.
    save_to: the field of the state that gets the answer.
    show: fields of the state that the person is shown.
    choices: the answers to choose from; by default the type of the field decides.
    reason: why it is asked.
    tags: labels for those who list many questions.
    expires_in_seconds: when the question ends without an answer.
    """

    prompt: Annotated[str, Meta(min_length=1)]
    save_to: str
    show: Texts = []
    choices: Annotated[Texts, Meta(min_length=1)] | None = None
    reason: str = "need_input"
    tags: Texts = []
    expires_in_seconds: Seconds | None = None


AnyNode: TypeAlias = FunctionNodeSpec | LLMNodeSpec | ToolsNodeSpec | AgentNodeSpec | GraphNodeSpec | AskNodeSpec


class EdgeSpec(Part, frozen=True, kw_only=True):
    """What follows a node. `start` is where the graph begins, `end` where it ends.

    from: the node; with several, the edge is taken when all of them have finished.
    to: the next node, several of them, or with a condition its results and the node for each.
    condition: python:// with a function of the state that returns which way to go.
    field: the field of the state whose value says which way to go, instead of `condition`.
    tools: after a model, the node that runs its tool calls; `to` is taken when there are none.
    """

    source: Annotated[str, Meta(min_length=1)] | Annotated[Texts, Meta(min_length=1)] = field(name="from")
    to: str | Texts | dict[str, str]
    condition: PythonRef | None = None
    field: str | None = None
    tools: str | None = None


class GraphSpec(AgentSpec, tag="graph", frozen=True, kw_only=True):
    """A graph of nodes that share a state.

    state: python:// with a state class; by default the state of a conversation.
    fields: further fields of the state.
    nodes: the nodes, by name.
    edges: what follows what.
    input: the field of the state that gets the message.
    output: the field of the state that has the answer.
    interrupt_before: nodes before which every run pauses.
    interrupt_after: nodes after which every run pauses.
    max_steps: how many steps one turn may take.
    middleware: what steps in around all models and tools of the graph.
    """

    nodes: Annotated[dict[str, AnyNode], Meta(min_length=1)]
    edges: Annotated[list[EdgeSpec], Meta(min_length=1)]
    state: PythonRef | None = None
    fields: dict[str, FieldSpec] = {}
    input: str | None = None
    output: str | None = None
    interrupt_before: Texts = []
    interrupt_after: Texts = []
    max_steps: Count = 100
    middleware: Middlewares = []
