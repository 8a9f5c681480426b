"""What a model is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import force_setattr

from adjourn.messages import Message


class ToolSpec(Struct, frozen=True, kw_only=True):
    """A tool as a model is told of it; `schema` is the JSON Schema of its arguments."""

    name: str
    description: str = ""
    schema: Mapping[str, Any]


class ModelRequest(Struct, frozen=True, kw_only=True):
    """One call of a model: the messages so far, the tools it may call, options, and the form of its answer.

    `options` go to the provider as they are, under its own names (`temperature`, `tool_choice`). `output` is the JSON
    Schema of a structured answer, or None for free text.
    """

    messages: Sequence[Message]
    tools: Sequence[ToolSpec] = ()
    options: Mapping[str, Any] = {}
    output: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        # A request is kept by tests and traces, and the list that it was made from may grow.
        force_setattr(self, "messages", tuple(self.messages))
        force_setattr(self, "tools", tuple(self.tools))
