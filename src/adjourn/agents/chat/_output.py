"""Typed output: the schema of an answer, and finding the JSON in what a model has written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from adjourn._schemas import answers
from adjourn.agents._config import AgentConfig
from adjourn.errors import ModelError
from adjourn.messages import Message

MISFITS = 3
"""The number of answers that do not fit the output type after which an agent fails."""
CANDIDATES = 20
"""How many places of a text are tried as the beginning of the JSON."""

_THOUGHTS = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)
_FENCED = re.compile(r"```[\w-]*\s*\n(.*?)\n?\s*```", re.DOTALL)
_CUT = {
    "length": "it was cut off at the limit of tokens (finish reason 'length'): ",
    "content_filter": "it was cut off by a content filter: ",
    "refusal": "it is a refusal: ",
}


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
    why = _CUT.get(message.finish_reason or "", "") + "; ".join(problems)
    if misfits + 1 >= MISFITS:
        raise ModelError(
            f"The model of agent '{agent.name}' gave {MISFITS} answers that do not fit its output type. The last one: "
            f"{why}",
            retryable=False,
        )
    return None, f"Your answer does not fit the required form: {why}. Answer again in that form, with JSON only."


def _read(text: str, schema: dict[str, Any], type_: Any) -> tuple[Any, list[str]]:
    """Return the first JSON in a text that fits, or what is wrong with the first that does not."""
    found: list[str] = []
    for data in _candidates(text):
        value, problems = _fitted(data, schema, type_)
        if not problems:
            return value, []
        found = found or problems
    return None, found or ["it has no JSON in it"]


def _fitted(data: Any, schema: dict[str, Any], type_: Any) -> tuple[Any, list[str]]:
    problems = answers.problems(data, schema)
    if problems:
        return None, problems
    value = unwrapped(data, type_)
    try:
        answers.convert(value, type_)
    except ValueError as error:
        return None, [" ".join(str(error).split())]
    return value, []


def _candidates(text: str) -> Iterator[Any]:
    """Yield the JSON values in a text: the whole of it, what is in code fences, and objects between other words."""
    whole = text.strip()
    said = _THOUGHTS.sub("", whole).strip()
    for written in (whole, said, *(fenced.strip() for fenced in _FENCED.findall(said)[:CANDIDATES])):
        try:
            data = msgspec.json.decode(written)
        except (msgspec.DecodeError, RecursionError):
            continue
        yield data
        if written is whole:
            return
    place = -1
    for _ in range(CANDIDATES):
        place = said.find("{", place + 1)
        if place < 0:
            return
        try:
            data, end = _DECODER.raw_decode(said, place)
        except (ValueError, RecursionError):
            continue
        yield data
        place = end - 1


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not valid JSON.")


_DECODER = json.JSONDecoder(parse_constant=_refuse)


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
