"""What files say about models and tools, and the texts that name something else."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from msgspec import Meta, Struct

PYTHON = "python://"

# Texts that are more than texts: what `kind` says about them is checked where they are read.
PythonRef: TypeAlias = Annotated[
    str,
    Meta(
        pattern=r"^python://[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$",
        examples=["python://tickets.tools:book_ticket"],
        extra={"kind": "python"},
    ),
]
AgentName: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
AgentRef: TypeAlias = Annotated[str, Meta(min_length=1, extra={"kind": "agent"})]
ModelName: TypeAlias = Annotated[
    str, Meta(min_length=1, examples=["openai:gpt-5", "python://models:mine"], extra={"kind": "model"})
]
SECRET = r"^\$\{[A-Za-z_][A-Za-z0-9_]*\}$"
SecretRef: TypeAlias = Annotated[str, Meta(pattern=SECRET, examples=["${OPENAI_API_KEY}"], extra={"kind": "secret"})]
EnvText: TypeAlias = Annotated[str, Meta(min_length=1, extra={"kind": "env"})]
Count: TypeAlias = Annotated[int, Meta(ge=1)]
Seconds: TypeAlias = Annotated[float, Meta(gt=0)]
VALUE_NAME = r"^[^~]"
ValueName: TypeAlias = Annotated[str, Meta(pattern=VALUE_NAME, min_length=1)]
Texts: TypeAlias = list[Annotated[str, Meta(min_length=1)]]


class Part(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a file."""


class RetrySpec(Part, frozen=True, kw_only=True):
    """How often to try, the first time included, and how long to wait in between.

    attempts: how often to try; 3 by default.
    backoff_seconds: seconds to wait between attempts; by default half a second, then twice as long each time.
    """

    attempts: Count = 3
    backoff_seconds: Annotated[float, Meta(ge=0)] | None = None


class ModelSpec(Part, frozen=True, kw_only=True):
    """A model, with its settings and the models to use when it fails.

    name: the provider and the model, such as openai:gpt-5, or python://module:attribute.
    fallback: models to try in order when this one fails.
    api_key: the environment variable that has the key, as ${NAME}.
    base_url: the address of a server that speaks the protocol of the provider; it may contain ${NAME}.
    timeout_seconds: seconds that one call may take.
    options: what is passed to the provider, such as temperature.
    retry: when to try a failed call again.
    """

    name: ModelName
    fallback: list[ModelName | FallbackSpec] = []
    api_key: SecretRef | None = None
    base_url: EnvText | None = None
    timeout_seconds: Seconds | None = None
    options: dict[str, Any] = {}
    retry: RetrySpec | None = None


class FallbackSpec(Part, frozen=True, kw_only=True):
    """A model that is used when another one fails, with its settings.

    name: the provider and the model, such as openai:gpt-5, or python://module:attribute.
    api_key: the environment variable that has the key, as ${NAME}.
    base_url: the address of a server that speaks the protocol of the provider; it may contain ${NAME}.
    timeout_seconds: seconds that one call may take.
    options: what is passed to the provider, such as temperature.
    """

    name: ModelName
    api_key: SecretRef | None = None
    base_url: EnvText | None = None
    timeout_seconds: Seconds | None = None
    options: dict[str, Any] = {}


class ToolSpec(Part, frozen=True, kw_only=True):
    """A tool: a Python function, or another agent.

    ref: the function or tool, as python://module:attribute.
    agent: the name of an agent that becomes a tool, instead of `ref`.
    name: the name that the model sees.
    description: the description that the model sees.
    approval: true if a person must approve each call, or python:// with a function of the arguments that decides.
    timeout_seconds: seconds that one attempt may take.
    return_directly: true if the result is the answer, without asking the model again.
    at_most_once: true to ask a person before a call that ended without a result runs again; not together with retry.
    retry: when to try a failed call again.
    max_result: how many characters of a result the model sees.
    tags: the tags of the questions that are asked about its calls.
    full_history: whether an agent sees the conversation of the one that calls it.
    emit_internal_events: whether to report what an agent does.
    """

    ref: PythonRef | None = None
    agent: AgentRef | None = None
    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$")] | None = None
    description: str | None = None
    approval: bool | PythonRef | None = None
    timeout_seconds: Seconds | None = None
    return_directly: bool | None = None
    at_most_once: bool | None = None
    retry: RetrySpec | None = None
    max_result: Count | None = None
    tags: Texts | None = None
    full_history: bool | None = None
    emit_internal_events: bool | None = None


Tools: TypeAlias = list[PythonRef | ToolSpec]
