"""The arguments of a tool: their JSON Schema, and the way from JSON to values and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

import msgspec
from msgspec import UNSET
from msgspec.structs import astuple

from adjourn.core.errors import InvalidArguments, UsageError
from adjourn.core.frozen import FrozenDict, check_json
from adjourn.core.jsonschema import JSONSchema, problems
from adjourn.core.registry import register_types

from .description import checked, described
from .foreign import convert_foreign
from .lowering import can_tell, json_data
from .parameters import Parameter


class Arguments(Protocol):
    """What a tool's arguments are."""

    schema: JSONSchema

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The values that JSON data stands for.

        Raises:
            InvalidArguments: the data does not fit.
        """
        ...

    def lower(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The JSON data of values."""
        ...


class TypedArguments:
    """Arguments as a signature has them: converted by msgspec, in one call, to the types of the parameters."""

    def __init__(self, tool: str, parameters: Sequence[Parameter], descriptions: Mapping[str, str]) -> None:
        self._tool = tool
        self._names = tuple(parameter.name for parameter in parameters)
        self._defaults = {p.name: p.default for p in parameters if p.default is not None}
        self._type, self.schema, self._hidden = described(tool, parameters, descriptions)
        # msgspec passes over fields that a nested class does not have. The schema refuses them.
        self._is_nested = any("properties" in part for part in self.schema.get("$defs", {}).values())
        for parameter in parameters:
            register_types(parameter.hint)

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:  # noqa: D102  # as above
        values = self._converted(arguments)
        for name, default in self._defaults.items():
            if values[name] is UNSET:
                values[name] = default()
        return values

    def lower(self, values: Mapping[str, Any]) -> dict[str, Any]:  # noqa: D102
        return {name: json_data(value) for name, value in values.items() if not self._hides(name, value)}

    def _hides(self, name: str, value: object) -> bool:
        """Whether a value is a default that cannot be told; one that came from JSON always can."""
        return name in self._hidden and (value is self._hidden[name] or not can_tell(value))

    def _converted(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        data = _plain(self._tool, arguments)
        try:
            values = msgspec.convert(data, self._type, dec_hook=convert_foreign)
        except ValueError as error:
            values = self._converted_again(data, error)
        except Exception as error:  # protects the run: the constructor of a user's class may raise anything
            raise InvalidArguments(self._tool, [f"{type(error).__name__}: {error}"]) from error
        else:
            if self._is_nested and (found := problems(data, self.schema)):
                raise InvalidArguments(self._tool, _named(found))
        return dict(zip(self._names, astuple(values), strict=True))

    def _converted_again(self, data: Mapping[str, Any], error: ValueError) -> Any:
        if found := problems(data, self.schema):
            raise InvalidArguments(self._tool, _named(found)) from error
        try:  # to JSON Schema 1.0 is an integer, to a type it is none
            return msgspec.convert(_without_points(data), self._type, dec_hook=convert_foreign)
        except ValueError:
            raise InvalidArguments(self._tool, [_told(error)]) from error


class GivenArguments:
    """Arguments as a JSON Schema has them: checked, and passed on as they are."""

    def __init__(self, tool: str, schema: Mapping[str, Any]) -> None:
        self._tool = tool
        self.schema = checked(tool, msgspec.to_builtins(schema))
        if self.schema.get("type") != "object":
            raise UsageError(
                f"Tool '{tool}' has a schema of type {self.schema.get('type')!r}. Arguments have names: give "
                "{'type': 'object', 'properties': {...}}."
            )

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:  # noqa: D102
        data = _plain(self._tool, arguments)
        if found := problems(data, self.schema):
            raise InvalidArguments(self._tool, _named(found))
        return data

    def lower(self, values: Mapping[str, Any]) -> dict[str, Any]:  # noqa: D102
        return {name: json_data(value) for name, value in values.items()}


# Between JSON and values


def _plain(tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A copy that the function may change, checked for being JSON."""
    if type(arguments) is not FrozenDict:  # frozen before, so checked before
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
    """Problems with the paths of arguments, not those of the object that holds them."""
    return [problem.removeprefix("$.").removeprefix("$: ") for problem in found]


def _told(error: ValueError) -> str:
    """What a type has against data that fits its schema."""
    text, _, path = str(error).rpartition(" - at `$")
    cause = error.__cause__
    if hasattr(cause, "errors"):  # Pydantic's, which has a page of text for each
        found = cast("Any", cause).errors(include_url=False, include_context=False)
        text = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}".removeprefix(": ") for each in found)
    return f"{path.strip('`.')}: {text or error}"
