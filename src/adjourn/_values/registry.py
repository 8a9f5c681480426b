"""The registry: which classes may be stored, and under which names.

Loading looks names up here and nowhere else; nothing is ever imported because stored bytes name it.
"""

from __future__ import annotations

import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, TypeVar, cast
from uuid import UUID

from msgspec import Struct

from adjourn.errors import UsageError

from .frozen import FrozenDict, FrozenList
from .kinds import Check, EnumKind, Kind, NativeKind, field_annotations, kind_for

T = TypeVar("T")

TAG = "$t"
BUILTIN_TAGS = frozenset(
    {"tuple", "set", "frozenset", "bytes", "decimal", "datetime", "date", "time", "timedelta", "uuid", "int", "dict"}
)
# Names that a later version may use, besides those in use now.
_RESERVED = BUILTIN_TAGS | {
    "bool",
    "bytearray",
    "complex",
    "deque",
    "float",
    "fraction",
    "list",
    "path",
    "range",
    "str",
}
_NO_KIND = (
    "Make it a dataclass (with @stored above @dataclass), an enum, a msgspec Struct, a Pydantic model or a NamedTuple."
)
_NAME = re.compile(r"[A-Za-z0-9_.:-]+")

# Instances of these are immutable and shared without copying. Natives and enums are added when registered.
SHARED: set[type[Any]] = {
    *(str, int, float, bool, type(None), bytes, Decimal, datetime, date, time, timedelta, UUID),
    *(FrozenDict, FrozenList),
}
# Instances of these are also plain JSON without parts to check. Natives without a check are added when registered.
CONSTANT: set[type[Any]] = {bool, type(None)}

_by_name: dict[str, Kind] = {}
_by_class: dict[type[Any], Kind] = {}


def stored(name: str) -> Callable[[type[T]], type[T]]:
    """Register a dataclass, enum, msgspec Struct, Pydantic model or NamedTuple under a name that survives renaming it.

    Put it above `@dataclass`. Sessions stored before the class was given this name still load.

    Raises:
        UsageError: the name is malformed, reserved or taken by another class, or the class cannot be stored.
    """
    if not _NAME.fullmatch(name) or name in _RESERVED:
        raise UsageError(
            f"{name!r} cannot be the name of a stored class: use letters, digits and _.:- but not a built-in tag."
        )

    def register(cls: type[T]) -> type[T]:
        kind = kind_for(cls, name)
        reason = _NO_KIND if kind is None else kind.refusal
        if kind is None or reason:
            raise UsageError(f"{cls.__qualname__} cannot be stored as {name!r}. {reason}")
        _add(kind)
        _add_alias(kind)
        return cls

    return register


def native(cls: type[Struct], check: Check | None = None) -> None:
    """Register one of our own frozen Structs, which has the tag field `$t` and is therefore plain JSON.

    Its content must be JSON by construction; `check(value, path)` may inspect it and raise `NotStorable`.
    """
    config = cls.__struct_config__
    if not config.frozen or config.tag_field != TAG or not isinstance(config.tag, str) or config.tag in _RESERVED:
        raise UsageError(f"{cls.__qualname__} is not native: give it frozen=True, tag_field='{TAG}' and an unused tag.")
    _add(NativeKind(cls, config.tag, check))
    SHARED.add(cls)
    if check is None:
        CONSTANT.add(cls)


def register_types(annotation: Any) -> None:
    """Register every storable class in an annotation, and in the fields of those, under its qualified name.

    Classes that have a name keep it; a class defined again under its old name (a notebook cell run twice) replaces it.
    Names that cannot be resolved are skipped: storing their values is refused later.

    Raises:
        UsageError: a qualified name is taken by another class.
    """
    todo = [annotation]
    seen: dict[int, Any] = {}  # keeps the items alive, so that ids are not reused
    while todo:
        item = todo.pop()
        if id(item) in seen:
            continue
        seen[id(item)] = item
        if isinstance(item, type) and not isinstance(item, types.GenericAlias):
            todo += _register_class(cast("type[Any]", item))
        else:
            todo += _inside(item)


def kind_of(cls: type[Any]) -> Kind | None:
    """Return the kind that is registered for exactly this class."""
    return _by_class.get(cls)


def kind_named(name: str) -> Kind | None:
    """Return the kind that is registered under this name."""
    return _by_name.get(name)


def qualified_name(cls: type[Any]) -> str:
    """Return the module and name of a class, whether its file was run as a script or imported."""
    return f"{_module_name(cls.__module__)}.{cls.__qualname__}"


def _add(kind: Kind) -> None:
    cls, name = kind.cls, kind.name
    taken = _by_name.get(name)
    # An alias of a class renamed by `stored` yields to a class that really has this name.
    if taken and taken.name == name and qualified_name(taken.cls) != qualified_name(cls):
        raise UsageError(
            f"{qualified_name(cls)} cannot be stored as {name!r}: {qualified_name(taken.cls)} has this name. "
            "Give one of them another name with @stored."
        )
    # A class registered under this name before stays registered by class: live sessions may have its instances.
    _by_name[name] = _by_class[cls] = kind
    if isinstance(kind, EnumKind):
        SHARED.add(cls)


def _add_alias(kind: Kind) -> None:
    alias = qualified_name(kind.cls)
    taken = _by_name.get(alias)
    if taken is None or qualified_name(taken.cls) == alias:
        _by_name[alias] = kind


def _module_name(module: str) -> str:
    if module not in ("__main__", "__mp_main__"):
        return module
    main = sys.modules.get(module)
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return spec.name
    return inspect.getmodulename(getattr(main, "__file__", None) or "") or module


def _register_class(cls: type[Any]) -> Iterable[Any]:
    if cls not in _by_class and (kind := kind_for(cls, qualified_name(cls))):
        _add(kind)
    has_fields = cls in _by_class or typing.is_typeddict(cls)
    return [*field_annotations(cls), *_hints(cls)] if has_fields else []


def _hints(cls: type[Any]) -> Iterable[Any]:
    own_name = {cls.__name__: cls}  # a class inside a function may refer to itself
    try:
        return typing.get_type_hints(cls, localns=own_name, include_extras=True).values()
    except Exception:  # noqa: BLE001 - protects the compiling caller: any annotation may raise anything when resolved
        return [hint for base in cls.__mro__ for hint in _resolvable(base, own_name)]


def _resolvable(cls: type[Any], names: dict[str, Any]) -> Iterable[Any]:
    for name, hint in inspect.get_annotations(cls).items():
        alone = type(cls.__name__, (), {"__annotations__": {name: hint}, "__module__": cls.__module__})
        try:
            yield from typing.get_type_hints(alone, localns=names, include_extras=True).values()
        except Exception:  # noqa: BLE001 - as above, now for one field
            continue


def _inside(annotation: Any) -> Iterable[Any]:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return [type(value) for value in arguments if isinstance(value, Enum)]
    if origin is typing.Annotated:
        return [arguments[0]]
    if isinstance(annotation, TypeVar):
        return [annotation.__bound__, *annotation.__constraints__]
    if isinstance(annotation, list):  # the parameters of a Callable
        return cast("list[Any]", annotation)
    return [origin, *arguments, *_stands_for(annotation)]


def _stands_for(annotation: Any) -> Iterable[Any]:
    # NewType, and `type X = ...`, whose value is evaluated on access and may fail.
    for attribute in ("__supertype__", "__value__"):
        try:
            yield getattr(annotation, attribute, None)
        except NameError:
            continue
