"""The arguments of a tool: their JSON Schema, and conversion from JSON to values and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from enum import Enum
from typing import Any, Protocol, Union, cast

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import astuple

from adjourn._schemas.jsonschema import JSONSchema, mistakes, patterns_in, problems, resolved, rewritten
from adjourn._schemas.types import NameTaken, type_schema
from adjourn._text import a_type
from adjourn._values.frozen import FrozenDict, check_json, check_text, is_same_json, shorten
from adjourn._values.registry import register_types
from adjourn.errors import InvalidArguments, ToolError, UsageError

from ._constraints import noted_fields, translated, words_of
from ._defaults import default_data, unshown_fields
from ._foreign import NAMELESS, convert_foreign, foreign_schemas
from ._same import are_same
from ._signature import Parameter
from ._whole import PLAIN, has_json_form, is_plain, known, lowered, whole

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


class Described(msgspec.Struct, frozen=True):
    """What the parameters of a function come to: `type` converts their JSON, and `schema` tells models of it.

    `defaults` are JSON, too, and are converted with the rest. `hidden` are those that have no JSON form or do not fit
    their own type: the function gets them, but nobody sees them.
    """

    type: type[msgspec.Struct]
    schema: JSONSchema
    defaults: dict[str, Any]
    hidden: dict[str, Any]


def described(tool: str, parameters: Sequence[Parameter], descriptions: Mapping[str, str]) -> Described:
    """Return what a model is told of the parameters, and what converts the arguments that it writes.

    Raises:
        UsageError: a parameter's type cannot be described to a model.
    """
    types, defaults, hidden = dict[str, Any](), dict[str, Any](), dict[str, Any]()
    for parameter in parameters:
        type_ = types[parameter.name] = _translated(tool, parameter)
        if parameter.default is not None:
            value = _constant(tool, parameter)
            data = default_data(value, type_)
            if data is UNSET:
                hidden[parameter.name] = value
            else:
                defaults[parameter.name] = data
    type_ = _struct(tool, parameters, types)
    schema = _schema(tool, type_, parameters, _words(parameters, descriptions, defaults))
    return Described(type_, schema, defaults, hidden)


def _translated(tool: str, parameter: Parameter) -> Any:
    try:
        type_ = translated(parameter.hint)
        if parameter.default is not None and parameter.default() is None and not _accepts_none(type_):
            return translated(Union[parameter.hint, None])  # noqa: UP007  # as everybody means it
    except (TypeError, NameError) as error:
        raise _undescribed(tool, parameter, error) from error
    return type_


def _accepts_none(type_: Any) -> bool:
    try:
        msgspec.convert(None, type_, dec_hook=convert_foreign)
    except ValueError:
        return False
    return True


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


class Arguments(Protocol):
    """The arguments of a tool; `defaults` are the JSON of those that a model may leave out.

    `unnamed` are defaults of parameters that a closed schema does not name.
    """

    schema: JSONSchema
    defaults: dict[str, Any]
    unnamed: dict[str, Any]

    def check_shown(self) -> None:
        """Check that a person can be shown all that the function gets.

        Raises:
            UsageError: naming what cannot be shown.
        """
        ...

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values that JSON data represents.

        Raises:
            InvalidArguments: the data does not fit.
        """
        ...

    def lower(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return values as JSON data, without hidden defaults."""
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
        self._hints = tuple(parameter.hint for parameter in parameters)
        made = described(tool, parameters, descriptions)
        self._type, self.schema, self.defaults, self._hidden = made.type, made.schema, made.defaults, made.hidden
        self.unnamed: dict[str, Any] = {}
        self._makers = {p.name: p.default for p in parameters if p.default is not None and p.name in made.hidden}
        # msgspec ignores unknown fields of nested classes. The schema rejects them.
        self._is_nested = any("properties" in part for part in self.schema.get("$defs", {}).values())
        # msgspec searches with `re`, which can take forever: what the schema's own search rejects must not get there.
        self._has_patterns = bool(patterns_in(self.schema))
        for parameter in parameters:
            register_types(parameter.hint)

    def check_shown(self) -> None:  # as above
        for name, value in self._hidden.items():
            raise _unshown(self._tool, f"the default of '{name}' is {shorten(value)}, which is not of its type in JSON")
        for problem in unshown_fields(self._hints):
            raise _unshown(self._tool, problem)

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:  # as above
        values = self._converted(arguments)
        for name, make in self._makers.items():
            if values[name] is UNSET:
                values[name] = make()
        return values

    def lower(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: value if type(value) in PLAIN else known(value)
            for name, value in values.items()
            if not self._hides(name, value)
        }

    def show(self, values: Mapping[str, Any]) -> dict[str, Any]:  # as above
        try:
            shown = {name: whole(value) for name, value in values.items()}
            check_json(shown, "$")
            again = self.validate(shown)
        except InvalidArguments as error:
            raise _not_shown(self._tool, [f"they cannot be read again ({error})"]) from error
        except Exception as error:  # protects the run: a serializer of the user may raise anything
            raise _not_shown(self._tool, [str(error)]) from error
        # JSON says all of a plain value, even if a validator makes another one of it each time.
        parts = [name for name, value in values.items() if not is_plain(value)]
        if found := [name for name in parts if not are_same(values[name], again[name])]:
            raise _not_shown(self._tool, [f"'{name}' is shown as {shorten(shown[name])}" for name in found])
        return shown

    def copy(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value if self._hides(name, value) else deepcopy(value) for name, value in values.items()}

    def _hides(self, name: str, value: object) -> bool:
        """Return whether a value is a hidden default; one that came from JSON never is."""
        return name in self._hidden and (value is self._hidden[name] or not has_json_form(value))

    def _converted(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        data = _plain(self._tool, arguments, self.defaults)
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
    """Arguments described by a JSON Schema: checked, and passed on unchanged.

    `defaults` are those of the function, which need not fit the schema.
    """

    def __init__(self, tool: str, schema: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
        self._tool = tool
        self.schema = checked(tool, msgspec.to_builtins(schema))
        if self.schema.get("type") != "object":
            raise UsageError(
                f"Tool '{tool}' has a schema of type {self.schema.get('type')!r}. Arguments have names: pass "
                "{'type': 'object', 'properties': {...}}."
            )
        is_open = self.schema.get("additionalProperties", True) is not False
        properties = self.schema.get("properties", {})
        # Where the schema is closed, nobody could pass one of these: the function uses it, and it cannot be shown.
        self.unnamed = {name: value for name, value in defaults.items() if not (is_open or name in properties)}
        given = {name: value for name, value in defaults.items() if name not in self.unnamed}
        self.defaults = {name: value for name, value in given.items() if is_plain(value) and _is_json(value)}
        self._hidden = {name: value for name, value in given.items() if name not in self.defaults}
        for name in self.defaults.keys() & properties.keys():
            properties[name] = {"default": self.defaults[name], **properties[name]}

    def check_shown(self) -> None:
        for name, value in self._hidden.items():
            raise _unshown(self._tool, f"the default of '{name}' is {shorten(value)}, which is not JSON")
        for name, value in self.unnamed.items():
            problem = f"the parameter '{name}', whose default is {shorten(value)}, is not in the schema"
            raise _unshown(self._tool, problem, "Add it to the schema's properties, or remove it from the function.")

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        data = _plain(self._tool, arguments, self.defaults)
        found = problems(data, self.schema)
        if found and self.defaults and type(data) is dict:
            given = {name: value for name, value in data.items() if not self._is_default(name, value)}
            found = problems(given, self.schema)
        if found:
            raise InvalidArguments(self._tool, _named(found))
        return data

    def _is_default(self, name: str, value: Any) -> bool:
        return name in self.defaults and is_same_json(value, self.defaults[name])

    def lower(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: whole(value) for name, value in values.items()}

    show = lower  # They are JSON data, and stay it.

    def copy(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return deepcopy(dict(values))


def _is_json(value: object) -> bool:
    try:
        check_json(value, "default")
    except (TypeError, ValueError):
        return False
    return True


def _not_shown(tool: str, problems: Sequence[str]) -> InvalidArguments:
    remedy = (
        "a person must see everything that runs, so every field has to be written as it is read, without exclude=True, "
        "masking serializers or private attributes that differ"
    )
    return InvalidArguments(tool, [*problems, remedy])


_IN_JSON = "Write defaults as values of their type that have a JSON form, and leave no field out of the JSON."


def _unshown(tool: str, problem: str, remedy: str = _IN_JSON) -> UsageError:
    return UsageError(
        f"Calls of tool '{tool}' are decided by people or rules, and these could not see all arguments: {problem}. "
        f"{remedy}"
    )


# Between JSON and values


def _plain(tool: str, arguments: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy that the function may change, after checking that it is JSON; `defaults` are what it lacks."""
    if type(arguments) is not FrozenDict:  # already frozen, so already checked
        try:
            check_json(arguments, "$")
        except (TypeError, ValueError) as error:
            raise InvalidArguments(tool, _named([str(error)])) from error
    data: Any = msgspec.to_builtins(arguments)
    if defaults and isinstance(arguments, dict):
        for name, value in defaults.items():
            if name not in data:
                data[name] = value if type(value) in PLAIN else msgspec.to_builtins(value)
    return data


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
