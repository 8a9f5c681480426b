"""The arguments of a tool: their JSON Schema, and conversion from JSON to values and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from enum import Enum
from typing import Any, Protocol, cast

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import astuple

from adjourn._schemas.jsonschema import JSONSchema, mistakes, patterns_in, problems, resolved, rewritten
from adjourn._schemas.types import NameTaken, type_schema
from adjourn._text import a_type
from adjourn._values.frozen import FrozenDict, check_json, check_text, shorten
from adjourn._values.registry import register_types
from adjourn.errors import InvalidArguments, ToolError, UsageError

from ._constraints import noted_fields, translated, words_of
from ._foreign import NAMELESS, adapter_of, convert_foreign, foreign_schemas, is_foreign
from ._same import are_same
from ._signature import Parameter

_PLAIN = frozenset({str, int, float, bool, type(None)})


def lowered(value: Any) -> Any:
    """Return the JSON form of a value that msgspec does not support (an `enc_hook`)."""
    if isinstance(value, str):  # a subclass of str
        return str(value)
    kind = cast("type[Any]", type(value))
    if is_foreign(kind):
        return adapter_of(kind).dump_python(value, mode="json", by_alias=True)
    raise TypeError(f"{a_type(value)} has no JSON form")


_decode = msgspec.json.Decoder().decode
# Sets iterate in a different order in every process; what people see must not change.
_encode = msgspec.json.Encoder(enc_hook=lowered, order="deterministic").encode


def json_data(value: Any) -> Any:
    """Return a value as plain JSON data.

    Raises:
        TypeError: it has no JSON form.
        ValueError: it contains text or a number that JSON cannot represent.
    """
    return value if type(value) in _PLAIN else _decode(_encode(value))


def has_json_form(value: object) -> bool:
    """Return whether a value has a JSON form."""
    try:
        json_data(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


_encoder = msgspec.json.Encoder(enc_hook=lowered)


def result_text(value: object) -> str:
    """Return the text of a result: text unchanged, anything else as JSON.

    Raises:
        ToolError: it has no JSON form, or JSON would silently change it.
    """
    if isinstance(value, str) and not isinstance(value, Enum):
        return _checked(str(value))
    try:
        body = _encoder.encode(value)
        if b"null" in body:  # msgspec also writes null for NaN and infinities
            check_json(msgspec.to_builtins(value, str_keys=True, enc_hook=lowered), "The result")
    except (TypeError, ValueError, RecursionError) as error:
        raise _unreadable(value, str(error)) from error
    return body.decode()


def _checked(text: str) -> str:
    try:
        check_text(text, "The result")
    except ValueError as error:
        raise _unreadable(text, str(error)) from error
    return text


def _unreadable(value: object, why: str) -> ToolError:
    return ToolError(
        f"The tool returned {a_type(value)} that cannot be sent to a model: {why.rstrip('.')}. "
        "Return text, or data that has a JSON form."
    )


_REF = "#/$defs/"


def described(
    tool: str, parameters: Sequence[Parameter], descriptions: Mapping[str, str]
) -> tuple[type[msgspec.Struct], JSONSchema, dict[str, Any]]:
    """Return the type, the schema, and the hidden defaults.

    Hidden defaults have no JSON form or do not fit their own type: the function gets them, but nobody sees them.

    Raises:
        UsageError: a parameter's type cannot be described to a model.
    """
    types = {parameter.name: _translated(tool, parameter) for parameter in parameters}
    type_ = _struct(tool, parameters, types)
    defaults = {parameter.name: _constant(tool, parameter) for parameter in parameters if parameter.default is not None}
    hidden = {name: value for name, value in defaults.items() if not _is_shown(value, types[name])}
    shown = {name: json_data(value) for name, value in defaults.items() if name not in hidden}
    return type_, _schema(tool, type_, parameters, _words(parameters, descriptions, shown)), hidden


def _translated(tool: str, parameter: Parameter) -> Any:
    try:
        return translated(parameter.hint)
    except (TypeError, NameError) as error:
        raise _undescribed(tool, parameter, error) from error


def _constant(tool: str, parameter: Parameter) -> Any:
    """Return a parameter's default; one made by a factory must be the same each time."""
    assert parameter.default is not None
    value = parameter.default()
    if value != parameter.default() and value == value:  # NaN does not equal itself, but is constant
        raise UsageError(
            f"Tool '{tool}' has the parameter '{parameter.name}' with another default each time ({shorten(value)}). "
            "What a person approves must be what runs: leave out the default and create the value in the function."
        )
    return value


def _struct(tool: str, parameters: Sequence[Parameter], types: Mapping[str, Any]) -> type[msgspec.Struct]:
    # Fields are numbered, since some valid parameter names are not valid as Struct fields.
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
    """Return the schema with unnamed definitions inlined where they are referenced."""

    def inline(part: JSONSchema) -> JSONSchema:
        name = str(part.get("$ref")).removeprefix(_REF)
        return (
            {**defs[name], **{key: part[key] for key in part if key != "$ref"}} if name.startswith(NAMELESS) else part
        )

    return rewritten(schema, inline)


def _whole_schema(type_: Any, hints: Iterable[Any]) -> JSONSchema:
    """Return the schema of a type with the definitions it refers to, each field annotated as fully as possible."""
    noted = noted_fields(hints)
    together = tuple[
        (type_, *(field.owner for field in noted), *(field.type for field in noted))
    ]  # one tuple, so that they share one set of names
    try:
        schema = _named_schema(together, numbered=False)
    except NameTaken:
        schema = _named_schema(together, numbered=True)
    first, *others = schema.pop("prefixItems")
    owners, fields = others[: len(noted)], others[len(noted) :]
    for field, owner, extra in zip(noted, owners, fields, strict=True):
        properties = resolved(owner, schema)["properties"]
        properties[field.name] = {**properties[field.name], **extra}
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
    """Return each parameter's description and default; annotations take precedence over the docstring."""
    words: dict[str, JSONSchema] = {}
    for name, hint in ((parameter.name, parameter.hint) for parameter in parameters):
        description = words_of(hint).get("description") or descriptions.get(name)
        words[name] = {"description": description} if description else {}
        if name in defaults:
            words[name]["default"] = defaults[name]
    return words


def _closed(schema: JSONSchema) -> JSONSchema:
    """Forbid unknown keys unless the schema allows them, and drop titles, which only repeat names."""
    more = {"additionalProperties": False} if "properties" in schema and "additionalProperties" not in schema else {}
    return {key: value for key, value in schema.items() if key != "title"} | more


def checked(tool: str, schema: JSONSchema) -> JSONSchema:
    """Return the schema, if arguments can be checked against it.

    Raises:
        UsageError: it has mistakes or unsupported keywords.
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
        f"described to a model: {why.rstrip('.')}. Use JSON's own types, enums, Literal, dataclasses, TypedDicts, "
        "msgspec Structs or Pydantic models, or pass the JSON Schema of the arguments: tool(schema=...)."
    )


def _is_shown(value: object, type_: Any) -> bool:
    """Return whether a default can be written as JSON and read back unchanged."""
    try:
        data = json_data(value)
        check_json(data, "default")
        again = msgspec.convert(data, type_, dec_hook=convert_foreign)
    except (TypeError, ValueError, RecursionError):
        return False
    return type(again) is type(value) and again == value


class Arguments(Protocol):
    """The arguments of a tool."""

    schema: JSONSchema

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values that JSON data represents.

        Raises:
            InvalidArguments: the data does not fit.
        """
        ...

    def lower(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return values as JSON data."""
        ...

    def show(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return values as JSON data that says everything about them.

        Raises:
            InvalidArguments: read again, it would be something else.
        """
        ...

    def copy(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return values that can be changed without changing these."""
        ...


class TypedArguments:
    """Arguments described by a signature: msgspec converts them to the parameter types in one call."""

    def __init__(self, tool: str, parameters: Sequence[Parameter], descriptions: Mapping[str, str]) -> None:
        self._tool = tool
        self._names = tuple(parameter.name for parameter in parameters)
        self._defaults = {p.name: p.default for p in parameters if p.default is not None}
        self._type, self.schema, self._hidden = described(tool, parameters, descriptions)
        # msgspec ignores unknown fields of nested classes. The schema rejects them.
        self._is_nested = any("properties" in part for part in self.schema.get("$defs", {}).values())
        # msgspec searches with `re`, which can take forever: what the schema's own search rejects must not get there.
        self._has_patterns = bool(patterns_in(self.schema))
        for parameter in parameters:
            register_types(parameter.hint)

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:  # as above
        values = self._converted(arguments)
        for name, default in self._defaults.items():
            if values[name] is UNSET:
                values[name] = default()
        return values

    def lower(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: json_data(value) for name, value in values.items() if not self._hides(name, value)}

    def show(self, values: Mapping[str, Any]) -> dict[str, Any]:  # as above
        shown = self.lower(values)
        changed = [name for name in shown if type(values[name]) not in _PLAIN]
        if not changed:
            return shown
        try:
            again = self.validate(shown)
        except InvalidArguments as error:
            raise _not_shown(self._tool, [f"they cannot be read again ({error})"]) from error
        if found := [name for name in changed if not are_same(values[name], again[name])]:
            raise _not_shown(self._tool, [f"'{name}' is shown as {shorten(shown[name])}" for name in found])
        return shown

    def copy(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value if self._hides(name, value) else deepcopy(value) for name, value in values.items()}

    def _hides(self, name: str, value: object) -> bool:
        """Return whether a value is a hidden default; one that came from JSON never is."""
        return name in self._hidden and (value is self._hidden[name] or not has_json_form(value))

    def _converted(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        data = _plain(self._tool, arguments)
        if self._has_patterns and (found := problems(data, self.schema)):
            raise InvalidArguments(self._tool, _named(found))
        try:
            values = msgspec.convert(data, self._type, dec_hook=convert_foreign)
        except ValueError as error:
            values = self._converted_again(data, error)
        except Exception as error:  # protects the run: the constructor of a user's class may raise anything
            raise InvalidArguments(self._tool, [f"{type(error).__name__}: {error}"]) from error
        else:
            if self._is_nested and not self._has_patterns and (found := problems(data, self.schema)):
                raise InvalidArguments(self._tool, _named(found))
        return dict(zip(self._names, astuple(values), strict=True))

    def _converted_again(self, data: Mapping[str, Any], error: ValueError) -> Any:
        if found := problems(data, self.schema):
            raise InvalidArguments(self._tool, _named(found)) from error
        try:  # JSON Schema accepts 1.0 as an integer, the types do not
            return msgspec.convert(_without_points(data), self._type, dec_hook=convert_foreign)
        except ValueError:
            raise InvalidArguments(self._tool, [_explained(error)]) from error


class GivenArguments:
    """Arguments described by a JSON Schema: checked, and passed on unchanged."""

    def __init__(self, tool: str, schema: Mapping[str, Any]) -> None:
        self._tool = tool
        self.schema = checked(tool, msgspec.to_builtins(schema))
        if self.schema.get("type") != "object":
            raise UsageError(
                f"Tool '{tool}' has a schema of type {self.schema.get('type')!r}. Arguments have names: pass "
                "{'type': 'object', 'properties': {...}}."
            )

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        data = _plain(self._tool, arguments)
        if found := problems(data, self.schema):
            raise InvalidArguments(self._tool, _named(found))
        return data

    def lower(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: json_data(value) for name, value in values.items()}

    show = lower  # They are JSON data, and stay it.

    def copy(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return deepcopy(dict(values))


def _not_shown(tool: str, problems: Sequence[str]) -> InvalidArguments:
    remedy = (
        "a person must see everything that runs, so every field has to be written as it is read, without exclude=True, "
        "masking serializers or private attributes that differ"
    )
    return InvalidArguments(tool, [*problems, remedy])


# Between JSON and values


def _plain(tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy that the function may change, after checking that it is JSON."""
    if type(arguments) is not FrozenDict:  # already frozen, so already checked
        try:
            check_json(arguments, "$")
        except (TypeError, ValueError) as error:
            raise InvalidArguments(tool, _named([str(error)])) from error
    return msgspec.to_builtins(arguments)


def _without_points(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _without_points(value) for key, value in cast("JSONSchema", data).items()}
    if isinstance(data, list):
        return [_without_points(item) for item in cast("list[Any]", data)]
    return int(data) if isinstance(data, float) and data.is_integer() else data


def _named(found: Sequence[str]) -> list[str]:
    """Return problems with paths relative to the arguments, not to the object that contains them."""
    return [problem.removeprefix("$.").removeprefix("$: ") for problem in found]


def _explained(error: ValueError) -> str:
    """Return why a type rejects data that fits its schema."""
    text, _, path = str(error).rpartition(" - at `$")
    cause = error.__cause__
    if hasattr(cause, "errors"):  # Pydantic's errors, whose text is long
        found = cast("Any", cause).errors(include_url=False, include_context=False)
        text = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}".removeprefix(": ") for each in found)
    return f"{path.strip('`.')}: {text or error}"
