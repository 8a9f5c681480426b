"""The registry: which classes may be stored, under which names, and how instances are taken apart and rebuilt."""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, EnumMeta, Flag
from typing import Any, TypeGuard, TypeVar, cast
from uuid import UUID

from msgspec import NODEFAULT, Struct
from msgspec.structs import force_setattr

from adjourn._text import with_article
from adjourn.errors import UsageError

from .frozen import FrozenDict, FrozenList
from .named_code import is_known, why_unsafe
from .secret import Secret

# `Any` in this package is an instance of a user's class, about which nothing is known.
Check = Callable[[Any, str], None]
# `type`, in a form that strict type checkers accept. Not `__class__`, which a proxy may fake.
type_of: Callable[[Any], type[Any]] = type
_BUILTINS = (dict, list, tuple, set, frozenset, str, bytes, int, float)
_ROOTS = ("pydantic.main", "pydantic.root_model")


class Misfit(Exception):
    """Stored data does not fit the class it names."""


class Kind:
    """A class that can be stored; `refusal` says why its instances cannot be rebuilt, if so."""

    __slots__ = ("cls", "name", "refusal")

    def __init__(self, cls: type[Any], name: str) -> None:
        self.cls = cls
        self.name = name
        self.refusal = ""


class NativeKind(Kind):
    """One of our own frozen Structs, which contains its tag and is shared instead of copied."""

    __slots__ = ("check",)

    def __init__(self, cls: type[Any], name: str, check: Check | None) -> None:
        super().__init__(cls, name)
        self.check = check


class EnumKind(Kind):
    """An enum: members are stored by name, since values may be anything; combined flags by number."""

    __slots__ = ()

    def key(self, member: Any) -> str | int:
        """Return what represents the member in the store."""
        return member.value if issubclass(self.cls, Flag) else member.name

    def build(self, key: object) -> Any:
        """Return the member that `key` represents."""
        if issubclass(self.cls, Flag):
            return self._flag(key)
        if not isinstance(key, str) or key not in self.cls.__members__:
            raise Misfit(f"has no member {key!r:.80}")
        return self.cls.__members__[key]

    def _flag(self, key: object) -> Any:
        if type(key) is not int:
            raise Misfit(f"has no combination {key!r:.80}")
        return self.cls(key)


class FieldsKind(Kind):
    """A class whose instances consist of their fields."""

    __slots__ = ("frozen", "is_checked", "known", "names", "private", "required")

    def __init__(
        self, cls: type[Any], name: str, *, names: Iterable[str], required: Collection[str], frozen: bool
    ) -> None:
        super().__init__(cls, name)
        self.names = tuple(names)
        self.known = frozenset(self.names)
        self.required = frozenset(required)
        self.frozen = frozen
        self.private: frozenset[str] = frozenset()
        self._check_types()

    def _check_types(self) -> None:
        """Refuse a class whose validation could import or call what stored data names.

        Raises:
            UsageError: it is one.
        """
        self.is_checked = is_known(self.cls)
        if reason := why_unsafe(self.cls):
            raise UsageError(f"{qualified_name(self.cls)} cannot be stored. {reason}")

    def read(self, value: Any) -> dict[str, Any]:
        """Return the instance's fields; those that were never set are left out."""
        try:
            return {name: getattr(value, name) for name in self.names}
        except AttributeError:
            return {name: getattr(value, name) for name in self.names if hasattr(value, name)}

    def unset(self, value: Any) -> list[str]:
        """Return the names of the fields that were not set explicitly, where the class tracks this."""
        return []

    def lost(self, value: Any, built: Any) -> str | None:
        """Return the name of an attribute that is not stored, and that an instance built again does not have."""
        held: dict[str, Any] = getattr(value, "__dict__", {})
        return None if not held or held.keys() == self.known else self._first_lost(held, getattr(built, "__dict__", {}))

    def _first_lost(self, held: dict[str, Any], kept: Mapping[str, Any]) -> str | None:
        # What Python itself notes on an instance begins with "__"; a cached property is computed again.
        for name in sorted(held.keys() - self.known):
            is_own = not name.startswith("__") and not hasattr(getattr(self.cls, name, None), "__get__")
            if is_own and not _is_like(held[name], kept.get(name)):
                return name
        return None

    def build(self, fields: dict[str, Any], unset: Collection[str] = ()) -> Any:
        """Build an instance that has exactly these fields; missing ones get their defaults.

        Raises:
            Misfit: a field is unknown, or one without a default is missing. Errors of the class itself are not caught.
        """
        if not self.is_checked:
            self._resolve_types()
        if fields.keys() != self.known:
            self._check(fields)
        return self._construct(fields, unset)

    def _check(self, fields: Mapping[str, Any]) -> None:
        if missing := self.required - fields.keys():
            raise Misfit(f"needs the field {min(missing)!r}, which is missing and has no default")
        if unknown := self._unknown(fields):
            raise Misfit(f"has no field {min(unknown)!r:.80}")

    def _unknown(self, fields: Mapping[str, Any]) -> Collection[str]:
        return fields.keys() - self.known

    def _resolve_types(self) -> None:
        """Check a Pydantic class that was registered before its annotations could be resolved."""
        if hasattr(self.cls, "model_rebuild"):
            self.cls.model_rebuild(raise_errors=False)
        self._check_types()
        if not self.is_checked:
            raise Misfit("has annotations that cannot be resolved")

    def _construct(self, fields: dict[str, Any], unset: Collection[str]) -> Any:
        raise NotImplementedError


class DataclassKind(FieldsKind):
    """A dataclass: built by its constructor; fields that it does not take or has changed are then restored."""

    __slots__ = ("arguments",)

    def __init__(self, cls: type[Any], name: str) -> None:
        fields = dataclasses.fields(cls)
        required = [field.name for field in fields if field.init and _has_no_default(field)]
        frozen: bool = cls.__dataclass_params__.frozen
        super().__init__(cls, name, names=[field.name for field in fields], required=required, frozen=frozen)
        self.arguments = frozenset(field.name for field in fields if field.init)
        self.refusal = _why_not_rebuilt(cls, self.arguments)

    def _construct(self, fields: dict[str, Any], unset: Collection[str]) -> Any:
        whole = self.arguments == self.known
        taken = fields if whole else {name: item for name, item in fields.items() if name in self.arguments}
        value = self.cls(**taken)
        _restore(value, fields, object.__setattr__)
        return value


class StructKind(FieldsKind):
    """A msgspec Struct."""

    __slots__ = ()

    def __init__(self, cls: type[Struct], name: str) -> None:
        names = cls.__struct_fields__
        defaults = (NODEFAULT,) * (len(names) - len(cls.__struct_defaults__)) + cls.__struct_defaults__
        required = [name for name, default in zip(names, defaults, strict=True) if default is NODEFAULT]
        super().__init__(cls, name, names=names, required=required, frozen=bool(cls.__struct_config__.frozen))

    def _construct(self, fields: dict[str, Any], unset: Collection[str]) -> Any:
        value = self.cls(**fields)
        _restore(value, fields, force_setattr)
        return value


class TupleKind(FieldsKind):
    """A NamedTuple."""

    __slots__ = ()

    def __init__(self, cls: type[Any], name: str) -> None:
        names: tuple[str, ...] = cls._fields
        super().__init__(cls, name, names=names, required=set(names) - set(cls._field_defaults), frozen=True)

    def _construct(self, fields: dict[str, Any], unset: Collection[str]) -> Any:
        return self.cls(**fields)


class ModelKind(FieldsKind):
    """A Pydantic model: built by validation. Private attributes are stored with its fields, if that is possible."""

    __slots__ = ("extra", "options", "root")

    def __init__(self, cls: type[Any], name: str) -> None:
        fields = _model_fields(cls)
        required = [key for key, field in fields.items() if field.is_required()]
        super().__init__(cls, name, names=fields, required=required, frozen=bool(cls.model_config.get("frozen")))
        self.extra = cls.model_config.get("extra") == "allow"
        self.root = bool(getattr(cls, "__pydantic_root_model__", False))
        self.private = frozenset(getattr(cls, "__private_attributes__", ()))
        self.options: dict[str, bool] = {}
        if any(field.validation_alias is not None for field in fields.values()):
            # Fields are stored by name, which validation accepts for aliased ones only with this option.
            self.options = {"by_name": True, "by_alias": False}
            if "by_name" not in inspect.signature(cls.model_validate).parameters:
                self.refusal = "Its fields have aliases: use Pydantic 2.11 or later to store it."

    def read(self, value: Any) -> dict[str, Any]:
        private: dict[str, Any] = value.__pydantic_private__ or {}
        kept = {name: item for name, item in private.items() if _may_be_kept(type_of(item))}
        return {**super().read(value), **(value.__pydantic_extra__ or {}), **kept}

    def lost(self, value: Any, built: Any) -> str | None:
        if extra := self.private & (value.__pydantic_extra__ or {}).keys():
            return min(extra)  # It would come back as the private attribute, which no input may set.
        private: dict[str, Any] = value.__pydantic_private__ or {}
        for name, item in private.items():
            if not _may_be_kept(type_of(item)) and not _is_like(item, built.__pydantic_private__.get(name)):
                return name
        return super().lost(value, built)

    def unset(self, value: Any) -> list[str]:
        given: set[str] = value.model_fields_set
        return [name for name in self.names if name not in given]

    def _unknown(self, fields: Mapping[str, Any]) -> Collection[str]:
        return () if self.extra else fields.keys() - self.known - self.private

    def _construct(self, fields: dict[str, Any], unset: Collection[str]) -> Any:
        private = {name: fields[name] for name in self.private if name in fields}
        if private:
            fields = {name: item for name, item in fields.items() if name not in private}
        value = self.cls.model_validate(fields["root"] if self.root else fields, **self.options)
        if private:
            value.__pydantic_private__.update(private)
        if unset:
            object.__setattr__(value, "__pydantic_fields_set__", set(fields).difference(unset))
        return value


def _may_be_kept(cls: type[Any]) -> bool:
    return cls in SHARED or cls in _CONTAINERS or cls in _by_class


_CONTAINERS = frozenset({list, dict, tuple, set, frozenset})


def _is_like(value: Any, other: Any) -> bool:
    """Return whether nothing is lost if one takes the place of the other; two new locks are alike."""
    if type_of(value) is not type_of(other):
        return False
    if type_of(value).__eq__ is object.__eq__:
        value, other = getattr(value, "__dict__", None), getattr(other, "__dict__", None)
    try:
        return bool(value == other)
    except Exception:  # noqa: BLE001 - protects the run: what is compared belongs to users, as arrays of NumPy do
        return False


def kind_for(cls: type[Any], name: str) -> FieldsKind | EnumKind | None:
    """Return the kind of a class, or None if it cannot be stored."""
    if isinstance(cls, EnumMeta):
        return EnumKind(cls, name) if cls.__members__ else None
    if _is_struct(cls):
        return StructKind(cls, name)
    if _is_model(cls):
        return ModelKind(cls, name)
    if dataclasses.is_dataclass(cls):
        return DataclassKind(cls, name)
    return TupleKind(cls, name) if _is_named_tuple(cls) else None


def field_annotations(cls: type[Any]) -> list[Any]:
    """Return the annotations of a model as resolved by Pydantic, which can find more names than we can."""
    return [field.annotation for field in _model_fields(cls).values()] if _is_model(cls) else []


def _is_struct(cls: type[Any]) -> TypeGuard[type[Struct]]:
    return issubclass(cls, Struct) and cls is not Struct


def _is_named_tuple(cls: type[Any]) -> bool:
    return issubclass(cls, tuple) and hasattr(cast("type[Any]", cls), "_field_defaults")


def _is_model(cls: type[Any]) -> bool:
    # Pydantic is recognised, never imported; its base classes (BaseModel, RootModel) are not models themselves.
    return hasattr(cls, "__pydantic_validator__") and hasattr(cls, "model_validate") and cls.__module__ not in _ROOTS


def _model_fields(cls: type[Any]) -> dict[str, Any]:
    # Pydantic before 2.10 has no `__pydantic_fields__`.
    return cast("dict[str, Any]", getattr(cls, "__pydantic_fields__", None) or getattr(cls, "model_fields", {}))


def _has_no_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _why_not_rebuilt(cls: type[Any], arguments: Iterable[str]) -> str:
    for base in _BUILTINS:
        if issubclass(cls, base):
            also = with_article(base.__name__)
            return f"It is also {also}, whose content is not in its fields: make it a plain dataclass."
    try:
        inspect.signature(cls).bind(**dict.fromkeys(arguments))
    except (TypeError, ValueError) as error:
        return f"Its constructor cannot be called with its fields alone ({error}): give other parameters a default."
    return ""


def _restore(value: Any, fields: Mapping[str, Any], assign: Callable[[Any, str, Any], None]) -> None:
    # A constructor may count, convert or set fields itself, but the restored value must be the stored one. Equal values
    # stay as the constructor made them, so that a class that freezes its arguments keeps them frozen.
    for name, item in fields.items():
        made = getattr(value, name, NODEFAULT)
        if made is not item and (made is NODEFAULT or made != item):
            assign(value, name, item)


T = TypeVar("T")

TAG = "$t"
MERGED = "dict+"
"""The tag of a dict whose pairs were stored one after the other: of those with one key, the last counts."""
BUILTIN_TAGS = frozenset(
    {
        *("tuple", "set", "frozenset", "dict", MERGED, "int"),
        *("bytes", "decimal", "datetime", "date", "time", "timedelta", "uuid", "secret"),
    }
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
    *(FrozenDict, FrozenList, Secret),
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


def is_known_tag(name: str) -> bool:
    """Return whether values with this tag can be rebuilt here."""
    return name in BUILTIN_TAGS or name in _by_name


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
