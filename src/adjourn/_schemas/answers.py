"""Answers: the schema that a question shows to people, and the conversion of an answer to the caller's value."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, cast

import msgspec

from adjourn._text import a_type, undotted
from adjourn._values.frozen import FrozenDict, check_json, freeze, is_plain, shorten
from adjourn._values.named_code import why_unsafe
from adjourn.errors import UsageError

from .jsonschema import Encoded, JSONSchema, Part, mistakes, problems_of_json, resolved, rewritten
from .jsonschema import essence as essence
from .jsonschema import problems as problems
from .types import type_schema


class Checked(FrozenDict):
    """A JSON Schema checked in advance, for questions that are asked many times; `choices` caches `choices_of`."""

    __slots__ = ("choices",)

    def __init__(self, schema: JSONSchema) -> None:
        super().__init__(freeze(_given(schema), "The schema"))
        self.choices = tuple(_choices(self, self))


def schema_of(type_: object) -> JSONSchema | None:
    """Return the JSON Schema of the type passed as a question's `schema`; a JSON Schema passed as a dict is checked.

    Raises:
        UsageError: answers cannot be checked against it.
    """
    if type_ is None or type(type_) is Checked:
        return type_
    if isinstance(type_, dict):
        return _given(cast("JSONSchema", type_))
    # The text distinguishes types that are equal but have different schemas, such as int | str and str | int.
    text = repr(type_)
    try:
        schema = _schema_of(type_, text)
    except TypeError:  # not hashable
        schema = _schema_of.__wrapped__(type_, text)
    return msgspec.to_builtins(schema)  # a copy, since the original is cached


def question_schema(type_: object) -> JSONSchema | None:
    """Return the schema that a question shows: that of `schema_of`, and a type's unknown keys are refused.

    A type would drop them silently, although whoever gave them meant something.
    """
    if type_ is None or isinstance(type_, dict):
        return schema_of(cast("JSONSchema | None", type_))
    text = repr(type_)
    try:
        schema = _closed_schema_of(type_, text)
    except TypeError:  # not hashable
        schema = _closed_schema_of.__wrapped__(type_, text)
    return msgspec.to_builtins(schema)


def misfits(answer: object, schema: JSONSchema | None) -> list[str]:
    """Return the problems of an answer with a question's schema; bytes do not fit where it wants text.

    Raises:
        TypeError, ValueError: as `to_json_data`.
    """
    data = to_json_data(answer)
    found = problems(data, schema)
    if found or data is answer:
        return found
    return problems_of_json(_marked(_builtins(answer, builtin_types=_BINARY)), schema)


_BINARY = (bytes, bytearray, memoryview)


def _marked(data: Any) -> Any:
    """Return JSON data with bytes in it, these as text that differs from any other."""
    if isinstance(data, _BINARY):
        return Encoded(_as_json(data))
    if isinstance(data, dict):
        return {key: _marked(value) for key, value in cast("JSONSchema", data).items()}
    if isinstance(data, list | tuple):
        return [_marked(item) for item in cast("list[Any]", data)]
    return data


def _builtins(answer: object, **options: Any) -> Any:
    return msgspec.to_builtins(answer, str_keys=True, enc_hook=_lower, **options)


def to_json_data(answer: object) -> Any:
    """Return the answer as plain JSON data.

    Raises:
        TypeError: something in it has no JSON form.
        ValueError: JSON would silently change it, as it does NaN.
    """
    if is_plain(answer):
        return answer
    data = _builtins(answer)
    check_json(data, "$")
    return _as_json(data)  # turns tuples into lists


def convert(data: Any, type_: Any) -> Any:
    """Convert data without `problems` to the type of the question; without a type, return the data itself.

    Raises:
        ValueError: the type has rules that its schema does not express, such as a Pydantic validator.
    """
    if type_ is None or isinstance(type_, dict):
        return data
    try:
        return _made(data, type_)
    except ValueError:  # JSON Schema accepts 1.0 as an integer, a type may not
        return _made(_without_points(data), type_)


_WORDS = {**dict.fromkeys(("y", "yes", "true"), True), **dict.fromkeys(("n", "no", "false"), False)}


def as_meant(text: str, schema: JSONSchema | None) -> str | bool | int | float:
    """Return what a person means who can only type a text: the text if the schema takes it, else yes, no or a number.

    If it takes none of them, it is the text, and what is wrong with it is for the caller to find.
    """
    if schema is None or not problems(text, schema):
        return text
    word = text.strip().lower()
    try:
        value = _WORDS[word] if word in _WORDS else msgspec.json.decode(word, type=int | float)
    except msgspec.DecodeError:
        return text
    return text if problems(value, schema) else value


def choices_of(schema: JSONSchema | None) -> tuple[Any, ...]:
    """Return every answer that a schema accepts, or nothing if they cannot be listed."""
    return schema.choices if type(schema) is Checked else tuple(_choices(schema or {}, schema or {}))


MAX_CHOICES = 1_000
MAX_NESTED = 20


def _choices(schema: Part, root: JSONSchema, depth: int = 0) -> Iterable[Any]:
    schema = resolved(schema, root)
    if "enum" in schema:
        return schema["enum"]
    if "const" in schema:
        return [schema["const"]]
    if "anyOf" in schema and depth < MAX_NESTED:
        return _choices_together(schema["anyOf"], root, depth + 1)
    return {"boolean": [True, False], "null": [None]}.get(str(schema.get("type")), [])


def _choices_together(parts: list[Part], root: JSONSchema, depth: int) -> list[Any]:
    together = list[Any]()
    for part in parts:
        choices = list(_choices(part, root, depth))
        # The answers of this alternative cannot be listed, or alternatives of alternatives double them.
        if not choices or len(together) + len(choices) > MAX_CHOICES:
            return []
        together += choices
    return together


def _lower(value: Any) -> Any:
    if isinstance(value, str):  # a subclass of str
        return str(value)
    if hasattr(value, "model_dump") and not isinstance(value, type):  # a Pydantic model
        return value.model_dump(mode="json", by_alias=True)
    raise TypeError(
        f"The answer holds {a_type(value)} ({shorten(value)}), which has no JSON form. "
        "Give plain data, a dataclass, a msgspec Struct or a Pydantic model."
    )


def _made(data: Any, type_: Any) -> Any:
    if _is_model(type_):
        # As JSON, since only there a strict model accepts dates and the like as text.
        return type_.model_validate_json(msgspec.json.encode(data))
    return msgspec.convert(data, type_)


def _without_points(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _without_points(value) for key, value in cast("JSONSchema", data).items()}
    if isinstance(data, list):
        return [_without_points(item) for item in cast("list[Any]", data)]
    return int(data) if isinstance(data, float) and data.is_integer() else data


def _is_model(type_: Any) -> bool:
    return isinstance(type_, type) and hasattr(type_, "model_json_schema")


@lru_cache(maxsize=256)
def _schema_of(type_: object, text: str) -> JSONSchema:
    return _schema_of_model(type_) if _is_model(type_) else _schema_of_type(type_)


@lru_cache(maxsize=256)
def _closed_schema_of(type_: object, text: str) -> JSONSchema:
    return rewritten(_schema_of.__wrapped__(type_, text), _closed)


def _closed(schema: JSONSchema) -> JSONSchema:
    is_open = "properties" in schema and not schema.keys() & {"additionalProperties", "patternProperties"}
    return {**schema, "additionalProperties": False} if is_open else schema


def _schema_of_model(type_: Any) -> JSONSchema:
    try:
        schema = _as_json(type_.model_json_schema())
    except (RuntimeError, TypeError, NameError) as error:  # what Pydantic raises for fields without a JSON form
        raise _refusal(type_, error) from error
    if reason := why_unsafe(type_):
        raise UsageError(f"schema={shorten(type_)} cannot describe an answer. {reason}")
    return _checked(schema, f"The schema of {type_.__qualname__}")


def _schema_of_type(type_: Any) -> JSONSchema:
    try:
        schema = _as_json(type_schema(type_))
    except (TypeError, NameError) as error:
        raise _refusal(type_, error) from error
    return _checked(schema, f"The schema of {shorten(type_)}")


def _refusal(type_: object, error: Exception) -> UsageError:
    return UsageError(
        f"schema={shorten(type_)} cannot describe an answer: {undotted(error)}. Give a type that msgspec can describe, "
        "a Pydantic model, a JSON Schema as a dict, or None for any answer."
    )


def _given(schema: JSONSchema) -> JSONSchema:
    try:
        text = msgspec.json.encode(schema)
    except (TypeError, ValueError):  # the check there has a better message
        return _checked(schema, "The schema")
    _check_once(text)
    return msgspec.json.decode(text)


@lru_cache(maxsize=256)
def _check_once(text: bytes) -> None:
    # The same question is asked many times, and checking its schema costs more than everything else about asking it.
    _checked(msgspec.json.decode(text), "The schema")


def _checked(schema: JSONSchema, name: str) -> JSONSchema:
    if found := mistakes(schema):
        raise UsageError(
            f"{name} cannot be used to check answers: {undotted('; '.join(found))}. "
            "Use only the keywords that msgspec and Pydantic generate."
        )
    return _as_json(schema)


def _as_json(data: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(data))
