"""The JSON of values as people see it before they approve a call: with everything that the function gets.

msgspec and Pydantic leave out what their users told them to, and msgspec leaves out the defaults of dataclasses. Here
every field is written, at every depth; what cannot be written is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import UNSET, Struct

from adjourn._text import a_type
from adjourn._values.frozen import shorten

from ._foreign import adapter_of, is_foreign, pydantic_fields

PLAIN = frozenset({str, int, float, bool, type(None)})


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


def whole(value: Any) -> Any:
    """Return a value as plain JSON data that has every field at every depth.

    Raises:
        TypeError: it has no JSON form.
        ValueError: its JSON would leave something out, or JSON cannot represent a text or number in it.
    """
    kind = cast("type[Any]", type(value))
    if kind in PLAIN:
        return value
    if is_foreign(kind):
        # Its serializer may write something else than its type; what that loses is found when it is read again.
        data = adapter_of(kind).dump_python(value, mode="json", by_alias=True, warnings=False)
        _check_whole(value, data, kind.__name__)
        return data
    if isinstance(value, dict | list | tuple | set | frozenset):
        return _container(cast("Any", value))
    if isinstance(value, Struct):
        return _struct(value)
    names = field_names(kind)
    return _decode(_encode(value)) if names is None else {name: whole(part) for name, part in _parts(value, names)}


def _container(value: Any) -> Any:
    if isinstance(value, dict):
        return {_key(key): whole(each) for key, each in cast("dict[Any, Any]", value).items()}
    parts = [each if type(each) in PLAIN else whole(each) for each in value]
    return sorted(parts, key=_encode) if isinstance(value, set | frozenset) else parts


def _key(key: Any) -> str:
    return key if type(key) is str else next(iter(_decode(msgspec.json.encode({key: None}))))


def _struct(value: Struct) -> Any:
    config = value.__struct_config__
    fields = dict(zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True))
    if config.array_like:
        tag = [] if config.tag is None else [config.tag]
        return [*tag, *(whole(getattr(value, name)) for name in fields)]
    tag = {} if config.tag is None else {str(config.tag_field): config.tag}
    return {**tag, **{fields[name]: whole(part) for name, part in _parts(value, fields)}}


def field_names(kind: type[Any]) -> list[str] | None:
    """Return the names of the fields of a dataclass, or of a class made by attrs; None for other classes."""
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind)]
    attributes = getattr(kind, "__attrs_attrs__", None)
    return None if attributes is None else [attribute.name for attribute in attributes]


def _parts(value: Any, names: Iterable[str]) -> Iterator[tuple[str, Any]]:
    for name in names:
        if (part := getattr(value, name)) is not UNSET:
            yield name, part


def known(value: Any) -> Any:
    """Return a value as plain JSON data, as far as its class writes it.

    Raises:
        TypeError: it has no JSON form.
        ValueError: it contains text or a number that JSON cannot represent.
    """
    try:
        return whole(value)
    except ValueError:
        return _decode(_encode(value))


def has_json_form(value: object) -> bool:
    """Return whether a value has a JSON form."""
    try:
        known(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


# What Pydantic writes


def _check_whole(value: Any, data: Any, where: str) -> None:
    """Refuse the JSON of a value that Pydantic wrote if a field is missing in it; drop what is only computed.

    Raises:
        ValueError: naming the field.
    """
    kind = cast("type[Any]", type(value))
    keys = _keys(kind)
    if getattr(kind, "__pydantic_root_model__", False):
        _check_whole(value.root, data, where)
    elif keys is not None:
        if not isinstance(data, Mapping):
            raise ValueError(f"{where} is written as {shorten(data)}, which does not show its fields")
        for name, computed in _computed(kind).items():
            cast("dict[str, Any]", data).pop(computed.info.alias or name, None)  # It follows from the fields.
        for name, key in keys.items():
            if key not in data:
                raise ValueError(f"{where}.{name} is left out by its serializer, or is excluded")
            _check_whole(getattr(value, name), data[key], f"{where}.{name}")
    elif isinstance(value, dict):
        parts = cast("Mapping[Any, Any]", data).values() if isinstance(data, Mapping) else ()
        _check_parts(list(cast("dict[Any, Any]", value).values()), list(parts), where)
    elif isinstance(value, list | tuple | set | frozenset) and not isinstance(data, str):
        _check_parts(list(cast("Iterable[Any]", value)), data, where)


def _check_parts(parts: Sequence[Any], data: Any, where: str) -> None:
    shown = cast("list[Any]", data) if isinstance(data, list) else []
    if len(parts) != len(shown):
        raise ValueError(f"{where} has {len(parts)} parts, of which {len(shown)} are written")
    for part, each in zip(parts, shown, strict=True):
        _check_whole(part, each, where)


def _computed(kind: type[Any]) -> Mapping[str, Any]:
    decorators: Any = getattr(kind, "__pydantic_decorators__", None)
    return {} if decorators is None else decorators.computed_fields


def _keys(kind: type[Any]) -> Mapping[str, str] | None:
    """Return the fields of a class that Pydantic writes as an object, with their keys there; None for other types."""
    fields = pydantic_fields(kind)
    if fields is not None:
        return {name: field.serialization_alias or field.alias or name for name, field in fields.items()}
    if issubclass(kind, Struct):
        return dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
    names = field_names(kind)
    return None if names is None else {name: name for name in names}


# Comparing


def is_plain(value: Any) -> bool:
    """Return whether a value consists of JSON's own types alone, so that its JSON says all of it."""
    if type(value) is dict:
        parts = cast("dict[Any, Any]", value)
        return all(type(key) is str for key in parts) and all(map(is_plain, parts.values()))
    if type(value) is list:
        return all(map(is_plain, cast("list[Any]", value)))
    return type(value) in PLAIN
