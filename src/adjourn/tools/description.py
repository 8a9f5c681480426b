"""The parameters of a tool as one type that msgspec converts to, and as the JSON Schema that a model is told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from adjourn.core.errors import UsageError
from adjourn.core.frozen import check_json, shorten
from adjourn.core.jsonschema import JSONSchema, resolved
from adjourn.core.schemas import mistakes, rewritten
from adjourn.core.typeschema import NameTaken, type_schema

from .constraints import translated, words_of
from .foreign import NAMELESS, convert_foreign, foreign_schemas
from .lowering import json_data
from .nested import noted_fields
from .parameters import Parameter

_REF = "#/$defs/"


def described(
    tool: str, parameters: Sequence[Parameter], descriptions: Mapping[str, str]
) -> tuple[type[msgspec.Struct], JSONSchema, dict[str, Any]]:
    """The type, the schema, and the defaults that nobody is told of.

    These have no form in JSON or do not fit their own type: the function gets them, nobody sees them.

    Raises:
        UsageError: a parameter's type cannot be told to a model.
    """
    types = {parameter.name: _translated(tool, parameter) for parameter in parameters}
    type_ = _struct(tool, parameters, types)
    defaults = {parameter.name: _constant(tool, parameter) for parameter in parameters if parameter.default is not None}
    hidden = {name: value for name, value in defaults.items() if not _tells(value, types[name])}
    told = {name: json_data(value) for name, value in defaults.items() if name not in hidden}
    return type_, _schema(tool, type_, parameters, _words(parameters, descriptions, told)), hidden


def _translated(tool: str, parameter: Parameter) -> Any:
    try:
        return translated(parameter.hint)
    except (TypeError, NameError) as error:
        raise _undescribed(tool, parameter, error) from error


def _constant(tool: str, parameter: Parameter) -> Any:
    """A parameter's default; one that a function makes must be the same each time."""
    assert parameter.default is not None
    value = parameter.default()
    if value != parameter.default() and value == value:  # NaN is equal to nothing, and constant
        raise UsageError(
            f"Tool '{tool}' has the parameter '{parameter.name}' with another default each time ({shorten(value)}). "
            "What a person approves must be what runs: leave the default out, and make the value in the function."
        )
    return value


def _struct(tool: str, parameters: Sequence[Parameter], types: Mapping[str, Any]) -> type[msgspec.Struct]:
    # Its own field names are numbers, since a Struct has no room for some names that a parameter may have.
    fields: list[Any] = [
        (f"f{i}", types[p.name]) if p.default is None else (f"f{i}", types[p.name] | UnsetType, UNSET)
        for i, p in enumerate(parameters)
    ]
    names = {f"f{i}": parameter.name for i, parameter in enumerate(parameters)}
    return msgspec.defstruct(tool, fields, kw_only=True, forbid_unknown_fields=True, rename=names)


def _schema(
    tool: str, type_: type[msgspec.Struct], parameters: Sequence[Parameter], words: Mapping[str, JSONSchema]
) -> JSONSchema:
    try:
        whole = _whole_schema(type_, [parameter.hint for parameter in parameters])
    except (TypeError, NameError) as error:
        raise _undescribed(tool, _culprit(parameters), error) from error
    defs = {name: rewritten(part, _closed) for name, part in whole["$defs"].items()}
    root = _inlined(defs.pop(whole["$ref"].removeprefix(_REF)), defs)
    for name, more in words.items():
        root["properties"][name] |= more
    others = {name: _inlined(part, defs) for name, part in defs.items() if not name.startswith(NAMELESS)}
    return checked(tool, {**root, "$defs": others} if others else root)


def _inlined(schema: JSONSchema, defs: JSONSchema) -> JSONSchema:
    """The schema with what has no name put where it is referred to."""

    def inline(part: JSONSchema) -> JSONSchema:
        name = str(part.get("$ref")).removeprefix(_REF)
        return (
            {**defs[name], **{key: part[key] for key in part if key != "$ref"}} if name.startswith(NAMELESS) else part
        )

    return rewritten(schema, inline)


def _whole_schema(type_: Any, hints: Iterable[Any]) -> JSONSchema:
    """The schema of a type, and definitions of all that it refers to, in which every field says what it can."""
    noted = noted_fields(hints)
    together = tuple[
        (type_, *(field.owner for field in noted), *(field.type for field in noted))
    ]  # with one set of names
    try:
        schema = _named_schema(together, numbered=False)
    except NameTaken:
        schema = _named_schema(together, numbered=True)
    first, *others = schema.pop("prefixItems")
    owners, fields = others[: len(noted)], others[len(noted) :]
    for field, owner, said in zip(noted, owners, fields, strict=True):
        properties = resolved(owner, schema)["properties"]
        properties[field.name] = {**properties[field.name], **said}
    return {**first, "$defs": schema.get("$defs", {})}


def _named_schema(type_: Any, *, numbered: bool) -> JSONSchema:
    defs: JSONSchema = {}
    return type_schema(type_, foreign_schemas(defs, numbered=numbered), defs)


def _culprit(parameters: Sequence[Parameter]) -> Parameter:
    for parameter in parameters:
        try:
            _whole_schema(translated(parameter.hint), [parameter.hint])
        except (TypeError, NameError):
            return parameter
    return parameters[0]


def _words(
    parameters: Sequence[Parameter], descriptions: Mapping[str, str], defaults: Mapping[str, Any]
) -> dict[str, JSONSchema]:
    """What is said of each parameter beside its type; an annotation knows better than a docstring."""
    words: dict[str, JSONSchema] = {}
    for name, hint in ((parameter.name, parameter.hint) for parameter in parameters):
        description = words_of(hint).get("description") or descriptions.get(name)
        words[name] = {"description": description} if description else {}
        if name in defaults:
            words[name]["default"] = defaults[name]
    return words


def _closed(schema: JSONSchema) -> JSONSchema:
    """An object takes no other keys than it names, unless it says so; titles only repeat names."""
    more = {"additionalProperties": False} if "properties" in schema and "additionalProperties" not in schema else {}
    return {key: value for key, value in schema.items() if key != "title"} | more


def checked(tool: str, schema: JSONSchema) -> JSONSchema:
    """The schema, if arguments can be checked against it.

    Raises:
        UsageError: it has mistakes, or keywords that are not known.
    """
    if found := mistakes(schema):
        raise UsageError(
            f"Tool '{tool}' has a schema that arguments cannot be checked against: {'; '.join(found).rstrip('.')}. "
            "Use only the keywords that msgspec and Pydantic generate."
        )
    return schema


def _undescribed(tool: str, parameter: Parameter, error: Exception) -> UsageError:
    why = " ".join(str(error).split())
    return UsageError(
        f"Tool '{tool}' has the parameter '{parameter.name}' of the type {shorten(parameter.hint)}, which cannot be "
        f"told to a model: {why.rstrip('.')}. Use JSON's own types, enums, Literal, dataclasses, TypedDicts, msgspec "
        "Structs or Pydantic models; or give the JSON Schema of the arguments: tool(schema=...)."
    )


def _tells(value: object, type_: Any) -> bool:
    """Whether a default can be told as JSON, and read again as what it is."""
    try:
        data = json_data(value)
        check_json(data, "default")
        again = msgspec.convert(data, type_, dec_hook=convert_foreign)
    except (TypeError, ValueError, RecursionError):
        return False
    return type(again) is type(value) and again == value
