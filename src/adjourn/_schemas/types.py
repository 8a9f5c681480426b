"""The JSON Schema of a Python type, exact enough that data which fits it can be converted to the type.

msgspec omits some of its checks from the schemas it generates. They are added here; types for which this is impossible
are rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, get_args, get_origin

import msgspec
from msgspec import inspect as mi

from .jsonschema import JSONSchema, resolved

_ZONES: dict[bool | None, JSONSchema] = {
    None: {},
    True: {"pattern": "([Zz]|[+-][0-9]{2}:?[0-9]{2})$"},
    False: {"pattern": "^([0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ])?[0-9:.]*$"},
}


class NameTaken(Exception):
    """Two definitions have the same name."""


def type_schema(
    type_: Any, hook: Callable[[type[Any]], JSONSchema] | None = None, defs: JSONSchema | None = None
) -> JSONSchema:
    """Return the JSON Schema of a type.

    `hook` returns references for types that msgspec does not support, and adds the definitions they refer to to `defs`.

    Raises:
        TypeError: msgspec cannot describe it, or not exactly.
        NameError: it refers to an undefined name.
        NameTaken: `defs` has a name that msgspec uses as well.
    """
    schema = msgspec.json.schema(type_, schema_hook=hook)
    if get_origin(type_) is Literal:
        schema["enum"] = list(get_args(type_))  # In the order of the source: people choose from these.
    if defs:
        _add(defs, schema.setdefault("$defs", {}))
    _complete(schema, mi.type_info(type_), schema, set())
    return schema


def _add(more: JSONSchema, defs: JSONSchema) -> None:
    if taken := more.keys() & defs.keys():
        raise NameTaken(", ".join(sorted(taken)))
    defs.update(more)


def _complete(schema: JSONSchema, info: mi.Type, root: JSONSchema, seen: set[str]) -> None:
    info = _bare(info)
    if "$ref" in schema:
        if schema["$ref"] in seen or isinstance(info, mi.CustomType):  # the hook describes it exactly
            return
        seen.add(schema["$ref"])
        schema = resolved(schema, root)
    _refuse_inexact(info)
    schema.update(_missing(info))
    if isinstance(info, mi.StructType) and info.tag_field in schema.get("properties", {}):
        schema["properties"][info.tag_field].update(types_of([info.tag]))
    for part, inner in _parts(schema, info):
        _complete(part, inner, root, seen)


def _bare(info: mi.Type) -> mi.Type:
    while isinstance(info, mi.Metadata):
        info = info.type
    return info


def _refuse_inexact(info: mi.Type) -> None:
    match info:
        case mi.FloatType(multiple_of=float(step)) if not step.is_integer():
            raise TypeError(f"floats are not exact multiples of {step}; use Decimal, or int and a smaller unit")
        case mi.BytesType() | mi.ByteArrayType() | mi.MemoryViewType() if (
            info.min_length or info.max_length is not None
        ):
            raise TypeError("JSON Schema cannot limit the length of bytes; check it in your code")
        case mi.CustomType() | mi.RawType() | mi.ExtType():
            raise TypeError(
                f"{getattr(info, 'cls', type(info)).__qualname__} is not a type that msgspec converts JSON to"
            )
        case _:
            pass


def _missing(info: mi.Type) -> JSONSchema:
    match info:
        case mi.DateTimeType():
            return {"format": "date-time"} | _ZONES[info.tz]
        case mi.TimeType():
            return {"format": "time"} | _ZONES[info.tz]
        case mi.DecimalType():
            return {"type": ["string", "number"]}
        case mi.EnumType():
            values = [member.value for member in info.cls]
            return {"enum": values} | types_of(values)
        case mi.DictType():
            return _key_names(_bare(info.key_type))
        case _:
            return types_of(info.values) if isinstance(info, mi.LiteralType) else {}


def types_of(values: Iterable[object]) -> JSONSchema:
    """Return the type of the values of an enum, or their types: some models need it beside the values."""
    types = {type(value) for value in values}
    names = [name for type_, name in _NAMES.items() if type_ in types]
    if len(names) != len(types):
        return {}
    return {"type": names[0] if len(names) == 1 else names}


_NAMES: dict[type, str] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def _key_names(info: mi.Type) -> JSONSchema:
    match info:
        case mi.StrType() | mi.AnyType():
            return {}  # already in msgspec's schema
        case mi.LiteralType():
            names = list(info.values)
        case mi.EnumType():
            names = [member.value for member in info.cls]
        case _:
            names: list[Any] = [None]
    if not all(isinstance(name, str) for name in names):
        raise TypeError("a dict has keys that are not str, but JSON objects have only str keys; use dict[str, ...]")
    return {"propertyNames": {"enum": names}}


def _parts(schema: JSONSchema, info: mi.Type) -> Iterable[tuple[JSONSchema, mi.Type]]:
    """Return the schemas within a schema, each with its type."""
    match info:
        case mi.CollectionType():
            return [(schema["items"], info.item_type)] if "items" in schema else []
        case mi.DictType():
            return [(schema["additionalProperties"], info.value_type)] if "additionalProperties" in schema else []
        case mi.TupleType():
            return zip(schema.get("prefixItems", []), info.item_types, strict=True)
        case mi.UnionType():
            return zip(_alternatives(schema), _members(info), strict=True)
        case mi.StructType() | mi.DataclassType() | mi.TypedDictType() | mi.NamedTupleType():
            return _fields(schema, info.fields)
        case _:
            return []


def _alternatives(schema: JSONSchema) -> list[JSONSchema]:
    if "anyOf" in schema:
        return [leaf for part in schema["anyOf"] for leaf in _alternatives(part)]
    return [] if schema == {"type": "null"} else [schema]


def _members(info: mi.Type) -> list[mi.Type]:
    # In msgspec's order: structs come last.
    if not isinstance(info, mi.UnionType):
        return [] if isinstance(info, mi.NoneType) else [info]
    members = sorted(
        map(_bare, info.types), key=lambda type_: isinstance(type_, mi.StructType) and not type_.array_like
    )
    return [leaf for member in members for leaf in _members(member)]


def _fields(schema: JSONSchema, fields: tuple[mi.Field, ...]) -> Iterable[tuple[JSONSchema, mi.Type]]:
    if "prefixItems" in schema:
        parts = schema["prefixItems"][-len(fields) :]  # the tag of a struct comes before its fields
        return zip(parts, (field.type for field in fields), strict=True)
    return [(schema["properties"][field.encode_name], field.type) for field in fields]
