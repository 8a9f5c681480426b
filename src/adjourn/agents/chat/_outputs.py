"""Typed output: reading a model's final answer as the agent's output type."""

from __future__ import annotations

from typing import Any

import msgspec

from adjourn._schemas import answers
from adjourn.agents._config import AgentConfig
from adjourn.errors import ModelError
from adjourn.messages import Message

MISFITS = 3
"""The number of answers that do not fit the output type after which an agent fails."""


def read_output(
    agent: AgentConfig, schema: dict[str, Any] | None, message: Message, misfits: int
) -> tuple[Any, str | None]:
    """Return the JSON of a final answer, or a message to the model if it does not fit.

    Raises:
        ModelError: too many answers did not fit.
    """
    if schema is None:
        return None, None
    data, problems = _read(message.text, schema, agent.output_type)
    if not problems:
        return data, None
    if misfits + 1 >= MISFITS:
        raise ModelError(
            f"The model of agent '{agent.name}' gave {MISFITS} answers that do not fit its output type: {problems[0]}",
            retryable=False,
        )
    return (
        None,
        f"Your answer does not fit the required form: {'; '.join(problems)}. Answer again, with JSON only.",
    )


def _read(text: str, schema: dict[str, Any], type_: Any) -> tuple[Any, list[str]]:
    try:
        data = msgspec.json.decode(_bare(text))
    except msgspec.DecodeError as error:
        return None, [f"it is not JSON ({error})"]
    problems = answers.problems(data, schema)
    if problems:
        return None, problems
    data = unwrapped(data, type_)
    try:
        answers.convert(data, type_)
    except ValueError as error:
        return None, [" ".join(str(error).split())]
    return data, []


def output_schema(type_: Any) -> dict[str, Any] | None:
    """Return the schema of an agent's answer: an object, as providers require; other types become its `value`."""
    schema = answers.schema_of(type_)
    if schema is None or _is_object(schema):
        return schema
    definitions = {"$defs": schema.pop("$defs")} if "$defs" in schema else {}
    value = {"type": "object", "properties": {"value": schema}, "required": ["value"], "additionalProperties": False}
    return {**value, **definitions}


def unwrapped(data: Any, type_: Any) -> Any:
    """Return the JSON of the type itself, from an answer that fits `output_schema`."""
    schema = answers.schema_of(type_)
    return data if schema is None or _is_object(schema) else data["value"]


def _is_object(schema: dict[str, Any]) -> bool:
    if "$ref" in schema:
        schema = schema["$defs"][schema["$ref"].rpartition("/")[2]]
    return schema.get("type") == "object"


def _bare(text: str) -> str:
    """Return JSON without the code fence that many models put around it."""
    text = text.strip()
    if text.startswith("```") and text.endswith("```") and "\n" in text:
        return text[text.index("\n") + 1 : -3].strip()
    return text
