"""Types that Pydantic supports and msgspec does not: models, unions of models, and types with validators.

Pydantic types are recognised by their attributes, and Pydantic is imported only when one is found. For msgspec, each
such type is replaced by a class made here, of which every value is an instance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, cast

import msgspec

from adjourn._plain import Documented
from adjourn._schemas.jsonschema import JSONSchema
from adjourn._schemas.types import NameTaken
from adjourn._text import undotted
from adjourn._values.frozen import shorten
from adjourn._values.named_code import why_unsafe_schema

Schemas = Callable[[type[Any]], JSONSchema]
NAMELESS = "nameless_"


def is_foreign(type_: object) -> bool:
    """Return whether Pydantic should convert to this class: it is a model, or defines a Pydantic core schema."""
    if not isinstance(type_, type):
        return False
    if Documented in type_.__mro__:  # Pydantic could, but msgspec does.
        return False
    return hasattr(type_, "__get_pydantic_core_schema__") or "__pydantic_validator__" in vars(type_)


def pydantic_fields(type_: type[Any]) -> Mapping[str, Any] | None:
    """Return the fields of a Pydantic model or dataclass; None for other classes."""
    return getattr(type_, "__pydantic_fields__", None)


def adapted(annotation: Any) -> type[Any]:
    """Return a class that represents a Pydantic annotation.

    Raises:
        TypeError: Pydantic does not support it.
    """
    from pydantic import TypeAdapter  # noqa: PLC0415  # an extra; installed, since one of its types is used
    from pydantic.errors import PydanticUserError  # noqa: PLC0415

    try:
        adapter: Any = TypeAdapter(annotation)
    except (PydanticUserError, NameError, AttributeError) as error:
        raise TypeError(str(error).partition("\n")[0]) from error
    if reason := why_unsafe_schema(adapter.core_schema):
        raise TypeError(undotted(f"A model could name code. {reason}"))
    return _Adapted(shorten(annotation), (), {"adapter": adapter})


def is_adapted(type_: object) -> bool:
    """Return whether a class was made by `adapted`."""
    return isinstance(type_, _Adapted)


def convert_foreign(type_: type[Any], data: Any) -> Any:
    """Convert JSON data by Pydantic's strict rules (a `dec_hook`).

    Raises:
        ValueError: the data does not fit.
    """
    # As JSON, since only there a strict model accepts dates and the like as text.
    return adapter_of(type_).validate_json(msgspec.json.encode(data), strict=True)


def adapter_of(type_: type[Any]) -> Any:
    """Return the Pydantic adapter that converts to and from a type.

    Raises:
        TypeError: it is not a Pydantic type.
    """
    if isinstance(type_, _Adapted):
        return cast("Any", type_).adapter
    if is_foreign(type_):  # for example a model that msgspec found in a field of a dataclass
        return _adapter(type_)
    raise TypeError(f"{type_.__qualname__} is not a type that JSON can be converted to")


def foreign_schemas(defs: JSONSchema, *, numbered: bool) -> Schemas:
    """Return a `schema_hook` that returns references and adds the definitions they refer to to `defs`.

    `numbered` makes the name of every definition unique. Definitions without a name are called `NAMELESS` and a number.
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
        return True  # msgspec only checks values that Pydantic has made and validated


def _define(type_: type[Any], defs: JSONSchema, prefix: str, nameless: str) -> JSONSchema:
    try:
        schema = adapter_of(type_).json_schema(ref_template=f"#/$defs/{prefix}{{model}}")
    except (RuntimeError, TypeError, NameError) as error:  # what Pydantic raises for fields without a JSON form
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
