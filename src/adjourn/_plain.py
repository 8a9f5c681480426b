"""Values as plain JSON data, for programs that do not know their types, and structs that web frameworks can return."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast, get_type_hints

import msgspec

from ._values.codec import TAG, Unknown


class Documented:
    """A struct that is a JSON document to others: `dict(x)` is the document, with plain JSON data at all depths.

    FastAPI asks for the same, where a handler has no annotation; where it has one, it asks for a schema of Pydantic.
    """

    __slots__ = ()

    if not TYPE_CHECKING:
        __iter__ = None  # With a `__getitem__`, Python would try to loop over it.

    @classmethod
    def documented(cls) -> Mapping[str, bool]:
        """Return the names in the document, and whether each is always there."""
        struct = cast("type[msgspec.Struct]", cls)
        config = struct.__struct_config__
        tag = config.tag_field
        left_out = _defaults(struct) if config.omit_defaults else {}
        always = {} if tag in (None, TAG) else {tag: True}
        return {**always, **{name: name not in left_out for name in struct.__struct_fields__}}

    def keys(self) -> Iterable[str]:
        """Return the names in the document."""
        defaults = _defaults(cast("type[msgspec.Struct]", type(self)))
        return [
            name
            for name, is_always_there in self.documented().items()
            if is_always_there or not _is(getattr(self, name), defaults.get(name, msgspec.NODEFAULT))
        ]

    def __getitem__(self, name: str) -> Any:
        config = cast("msgspec.Struct", self).__struct_config__
        match getattr(self, name) if name != config.tag_field else config.tag:
            case str() | int() | None as value:
                return value
            case datetime() as at:
                return at.isoformat()
            case value:
                return plain(value)

    @classmethod
    def __get_pydantic_core_schema__(cls, _: object, handler: Any) -> Any:
        from pydantic_core import core_schema  # noqa: PLC0415  # an extra; installed, since Pydantic asks

        def read(data: object, _: object) -> Any:
            return data if isinstance(data, cls) else cls.from_document(data)

        def write(value: Any, info: Any) -> Any:
            return dict(value) if info.mode == "json" else value

        fields = {
            name: core_schema.typed_dict_field(handler.generate_schema(_hint(cls, name)), required=is_always_there)
            for name, is_always_there in cls.documented().items()
        }
        return core_schema.no_info_wrap_validator_function(
            read,
            core_schema.typed_dict_schema(fields),  # It only describes the document: msgspec checks what is read.
            serialization=core_schema.plain_serializer_function_ser_schema(write, info_arg=True),
            ref=f"{cls.__module__}.{cls.__qualname__}:{id(cls)}",
        )

    @classmethod
    def from_document(cls, data: object) -> Any:
        """Return the object that a document describes.

        Raises:
            ValueError: it describes none.
        """
        return msgspec.convert(data, cls)


def _hint(cls: type[Any], name: str) -> Any:
    """Return the type of a field or property; that of a tag is text."""
    found = getattr(cls, name, None)
    return get_type_hints(found.fget)["return"] if isinstance(found, property) else get_type_hints(cls).get(name, str)


def plain(value: Any) -> Any:  # Any: whatever was stored
    """Return a stored value as JSON data, for programs that do not know its type."""
    try:
        return msgspec.to_builtins(_bare(value), str_keys=True, enc_hook=lambda each: _bare(as_data(each)))
    except (TypeError, ValueError, RecursionError):
        return repr(value)


def as_data(value: Any) -> Any:
    """Return what msgspec does not know as data: the fields of a Pydantic model, else the value as Python shows it."""
    fields: dict[str, Any] | None = getattr(cast("object", type(value)), "model_fields", None)
    return repr(value) if fields is None else {name: getattr(value, name) for name in fields}


def _bare(value: Any) -> Any:
    """Return the value without the tags of stored types, which mean nothing to other programs."""
    match value:
        case Documented():
            return dict(value)
        case Unknown():
            return _bare(value.data)
        case msgspec.Struct() if not value.__struct_config__.array_like:
            return _fields(value)
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {field.name: _bare(getattr(value, field.name)) for field in dataclasses.fields(value)}
        case Mapping():
            return {key: _bare(each) for key, each in cast("Mapping[Any, Any]", value).items()}
        case Sequence() if not isinstance(value, str | bytes | bytearray):
            return [_bare(each) for each in cast("Sequence[Any]", value)]
        case _:
            return value


def _fields(value: msgspec.Struct) -> dict[str, Any]:
    """Return the fields of a struct as msgspec writes them; of tags, only those that are part of its JSON."""
    config = value.__struct_config__
    fields: dict[str, Any] = {}
    if config.tag_field is not None and config.tag_field != TAG:
        fields[config.tag_field] = config.tag
    left_out = _defaults(type(value)) if config.omit_defaults else {}
    for name, written in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True):
        each = getattr(value, name)
        if each is not msgspec.UNSET and not (name in left_out and _is(each, left_out[name])):
            fields[written] = _bare(each)
    return fields


@lru_cache(maxsize=256)
def _defaults(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the defaults of the fields that can be left out."""
    defaults = struct.__struct_defaults__
    names = struct.__struct_fields__[len(struct.__struct_fields__) - len(defaults) :]
    return {name: each for name, each in zip(names, defaults, strict=True) if each is not msgspec.NODEFAULT}


def _is(value: Any, default: Any) -> bool:
    """Return whether a field has its default; that of an empty list or mapping is a function that makes one."""
    return value is default or (callable(getattr(default, "factory", None)) and value in ([], {}))
