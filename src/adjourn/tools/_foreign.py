"""Types that Pydantic knows and msgspec does not: models, their unions, and types with validators.

Pydantic is recognised by what its types carry, and imported only when one of them is met. To msgspec each such type is
a class made here, of which every value is an instance.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

import msgspec

from adjourn._schemas.jsonschema import JSONSchema
from adjourn._schemas.types import NameTaken
from adjourn._values.frozen import shorten

Schemas = Callable[[type[Any]], JSONSchema]
NAMELESS = "nameless_"


def is_foreign(type_: object) -> bool:
    """Whether Pydantic should convert to this class: it is a model, or says how Pydantic is to take it."""
    if not isinstance(type_, type):
        return False
    return hasattr(type_, "__get_pydantic_core_schema__") or "__pydantic_validator__" in vars(type_)


def adapted(annotation: Any) -> type[Any]:
    """A class that stands for an annotation of Pydantic's.

    Raises:
        TypeError: Pydantic can make nothing of it.
    """
    from pydantic import TypeAdapter  # noqa: PLC0415  # an extra, there since one of its types is
    from pydantic.errors import PydanticUserError  # noqa: PLC0415

    try:
        adapter: Any = TypeAdapter(annotation)
    except (PydanticUserError, NameError, AttributeError) as error:
        raise TypeError(str(error).partition("\n")[0]) from error
    return _Adapted(shorten(annotation), (), {"adapter": adapter})


def is_adapted(type_: object) -> bool:
    """Whether a class is one that `adapted` made."""
    return isinstance(type_, _Adapted)


def convert_foreign(type_: type[Any], data: Any) -> Any:
    """The value that JSON data stands for, by Pydantic's strict rules (a `dec_hook`).

    Raises:
        ValueError: the data does not fit.
    """
    # As JSON, since a strict model takes dates and the like as text only there.
    return adapter_of(type_).validate_json(msgspec.json.encode(data), strict=True)


def adapter_of(type_: type[Any]) -> Any:
    """What Pydantic converts to and from a type with.

    Raises:
        TypeError: the type is none of Pydantic's.
    """
    if isinstance(type_, _Adapted):
        return cast("Any", type_).adapter
    if is_foreign(type_):  # a model in a field of a dataclass, say, where msgspec found it
        return _adapter(type_)
    raise TypeError(f"{type_.__qualname__} is no type that JSON can be converted to")


def foreign_schemas(defs: JSONSchema, *, numbered: bool) -> Schemas:
    """A `schema_hook` that gives references, and puts what they refer to into `defs`.

    `numbered` gives every definition a name that no other can have. What has no name of its own is called `NAMELESS`
    and a number.
    """
    seen: dict[Any, JSONSchema] = {}

    def schema_of(type_: type[Any]) -> JSONSchema:
        if type_ not in seen:
            number = len(seen) + 1
            seen[type_] = _define(type_, defs, f"{number}_" if numbered else "", f"{NAMELESS}{number}")
        return dict(seen[type_])

    return schema_of


class _Adapted(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return True  # msgspec asks it of what Pydantic has made and checked


def _define(type_: type[Any], defs: JSONSchema, prefix: str, nameless: str) -> JSONSchema:
    try:
        schema = adapter_of(type_).json_schema(ref_template=f"#/$defs/{prefix}{{model}}")
    except (RuntimeError, TypeError, NameError) as error:  # what Pydantic raises for fields without a form in JSON
        raise TypeError(str(error).partition("\n")[0]) from error
    for name, part in schema.pop("$defs", {}).items():
        _add(defs, f"{prefix}{name}", part)
    if "$ref" in schema and len(schema) == 1:  # a model that refers to itself
        return schema
    name = f"{prefix}{schema['title']}" if "title" in schema else nameless
    _add(defs, name, schema)
    return {"$ref": f"#/$defs/{name}"}


def _add(defs: JSONSchema, name: str, schema: JSONSchema) -> None:
    if defs.setdefault(name, schema) != schema:
        raise NameTaken(name)


@lru_cache(maxsize=256)
def _adapter(type_: type[Any]) -> Any:
    from pydantic import TypeAdapter  # noqa: PLC0415  # as above

    return TypeAdapter(type_)
