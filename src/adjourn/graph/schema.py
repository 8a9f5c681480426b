"""Schemas: the fields of a state, from any kind of class that describes them."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Container, Iterable, Mapping
from hashlib import blake2b
from typing import (
    Annotated,
    Any,
    NotRequired,
    Required,
    TypedDict,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import msgspec

from adjourn._schemas.fits import misfit
from adjourn._text import undotted
from adjourn._values.registry import register_types
from adjourn.errors import StateInvalid, UsageError
from adjourn.messages import Message

from ._channels import ABSENT, Channel, DictChannel, ListChannel, channel_for, takes_two
from .reducers import Reducer, Shared, add_messages, last, merge

_LONGEST_TYPE = 80
_MARKS = (Required, NotRequired, getattr(typing, "ReadOnly", Required))  # ReadOnly: from Python 3.13 on


class MessagesState(TypedDict):
    """The state of a conversation; inherit from it to add fields."""

    messages: Annotated[list[Message], add_messages]
    user_input: Annotated[str, last]
    last_response: Annotated[str, last]
    last_tool_response: Annotated[str, last]
    node_responses: Annotated[dict[str, Any], merge]
    metadata: Annotated[dict[str, Any], merge]
    one_shot_messages: Annotated[list[Message], last]
    one_shot_messages_by_node: Annotated[dict[str, list[Message]], merge]


class StateSchema:
    """A schema built field by field; its states are mappings."""

    def __init__(self, *, extra: str = "forbid") -> None:
        if extra not in ("forbid", "allow"):
            raise UsageError(f"StateSchema(extra={extra!r}): use 'forbid' or 'allow'.")
        self.extra = extra
        self.fields: dict[str, Field] = {}

    def add_field(
        self,
        name: str,
        type: Any = Any,
        *,
        reducer: Reducer | None = None,
        default: Any = ABSENT,
        required: bool = False,
    ) -> StateSchema:
        """Add a field; `default` may be a value or a function that makes one."""
        self.fields[name] = Field(name, type, reducer, default, required)
        return self


class Field:
    """A field as it was declared."""

    def __init__(
        self, name: str, type_: Any, reducer: Reducer | None, default: Any, required: bool, shared: bool = False
    ) -> None:
        self.name = name
        self.type = type_
        self.reducer = reducer
        self.default = default
        self.required = required
        self.shared = shared

    def problems(self) -> Iterable[str]:
        """Yield the problems of the declaration."""
        declaration = list(self._problems())
        yield from declaration or self._default_problems()

    def _default_problems(self) -> Iterable[str]:
        """Yield why the default does not fit the type; no value yet, as None, fits a list or dict that grows."""
        channel = self.channel()
        try:
            value = ABSENT if self.default is ABSENT else channel.first()
            problem = None if value is ABSENT else channel.misfit(value)
        except StateInvalid as error:
            yield undotted(error)
        except Exception as error:  # noqa: BLE001  # protects whoever compiles: all problems are listed at once
            yield f"the default of field '{self.name}' cannot be made: {type(error).__name__}: {undotted(error)}"
        else:
            if problem and (value is not None or not isinstance(channel, ListChannel | DictChannel)):
                yield f"the default of field '{self.name}' does not fit: {problem}"

    def _problems(self) -> Iterable[str]:
        if not self.name or self.name.startswith("^"):
            yield f"field name {self.name!r} is empty or starts with '^'"
        if self.reducer is not None and not callable(self.reducer):
            yield f"the reducer of field '{self.name}' is not a function: {self.reducer!r}"
        elif self.reducer is not None and not takes_two(self.reducer):
            yield f"the reducer of field '{self.name}' must take two arguments, (old, new)"

    def channel(self) -> Channel:
        """Return the channel for this field."""
        return channel_for(
            self.name, self.type, self.reducer, shared=self.shared, default=self.default, required=self.required
        )


class Schema:
    """The channels of a state, and whether nodes read it as a mapping or as instances of a class."""

    def __init__(self, source: Any) -> None:
        self.source = source
        self.cls: type[Any] | None = None
        self.extra: bool = False
        self.fields: list[Field] = self._read(source)
        self.problems: list[str] = [problem for field in self.fields for problem in field.problems()]
        self.channels: dict[str, Channel] = (
            {} if self.problems else {field.name: field.channel() for field in self.fields}
        )
        self.required: list[str] = [name for name, channel in self.channels.items() if channel.required]
        self._starting = [channel for channel in self.channels.values() if channel.starts]
        self.types: dict[str, str] = {name: _type_text(channel.type) for name, channel in self.channels.items()}
        for field in self.fields:
            register_types(field.type)

    def _read(self, source: Any) -> list[Field]:
        if isinstance(source, StateSchema):
            self.extra = source.extra == "allow"
            return list(source.fields.values())
        if is_typeddict(source):
            return list(_typed_dict_fields(source))
        if isinstance(source, type):
            self.cls = source
            return list(_class_fields(source))
        raise UsageError(
            f"{source!r} cannot be a state schema. "
            "Use a TypedDict, dataclass, msgspec Struct or Pydantic model, or StateSchema()."
        )

    def skip_checks(self) -> None:
        """Accept whatever nodes write, without looking at its type."""
        for channel in self.channels.values():
            channel.checks = False

    def channel(self, name: str, where: str) -> Channel:
        """Return the channel of a field that an update names."""
        channel = self.channels.get(name)
        if channel is not None:
            return channel
        if not self.extra:
            raise StateInvalid(
                name, f"{where} wrote it, but the schema has no such field. It has: {', '.join(self.channels)}."
            )
        return Channel(name, Any)

    def first(self, besides: Container[str] = ()) -> dict[str, Any]:
        """Return the initial values of the fields, except of those in `besides`, which have one."""
        firsts: dict[str, Any] = {}
        for channel in self._starting:
            if channel.name not in besides and (value := channel.first()) is not ABSENT:
                firsts[channel.name] = value
        return firsts

    def check(self, new: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        """Check that new values fit their fields, and that no required field is missing from both them and the state.

        Raises:
            StateInvalid: naming the field.
        """
        for name, value in new.items():
            channel = self.channels.get(name)
            problem = None if channel is None else channel.misfit(value)
            if problem:
                raise StateInvalid(name, f"{problem}.")
        for name in self.required:
            if name not in state and name not in new:
                raise StateInvalid(name, "it is required, but the input does not have it.")

    def build(self, values: Mapping[str, Any]) -> Any:
        """Return an instance of the schema class with these values, built without validation.

        Raises:
            StateInvalid: the class refuses them.
        """
        assert self.cls is not None
        construct = getattr(self.cls, "model_construct", self.cls)
        try:
            return construct(**values)
        except Exception as error:  # protects whoever only looks at a session: the class is the user's
            raise self._refusal(values, error) from error

    def _refusal(self, values: Mapping[str, Any], error: Exception) -> StateInvalid:
        """Return the error for values that the schema class refuses."""
        assert self.cls is not None
        name = self.cls.__name__
        for field in self.required:
            if field not in values:
                return StateInvalid(
                    field,
                    f"{name} needs it, but the session does not have it. Give it a default, or a value with "
                    "resume(state=...).",
                )
        return StateInvalid("", f"{name} cannot be built from {', '.join(values) or 'nothing'}: {undotted(error)}.")


def check_stored(channel: Channel, value: Any, declared: str) -> None:
    """Check that a stored value fits its field, which was declared with another type when it was stored.

    Raises:
        StateInvalid: it does not.
    """
    if problem := misfit(value, channel.type):
        raise StateInvalid(
            channel.name,
            f"the stored session does not fit: {problem}. It was declared as {declared} when that was stored. "
            "Declare a type that fits both, or a field with another name.",
        )


def _type_text(type_: Any) -> str:
    """Return a type in words that are the same in every process; of a long one, a digest."""
    text = type_.__qualname__ if type(type_) is type else repr(type_).replace("typing.", "")
    return (
        text if len(text) <= _LONGEST_TYPE else f"a type of digest {blake2b(text.encode(), digest_size=8).hexdigest()}"
    )


def _typed_dict_fields(source: Any) -> Iterable[Field]:
    for name, hint in _hints(source).items():
        plain, required = _unmarked(hint)
        yield _field(name, plain, ABSENT, required)


def _unmarked(hint: Any) -> tuple[Any, bool]:
    """Return a hint without the qualifiers of a TypedDict's field, wherever they are, and whether it is required."""
    origin = get_origin(hint)
    if origin in _MARKS:
        plain, required = _unmarked(get_args(hint)[0])
        return plain, required or origin is Required
    if origin is Annotated:
        base, *extras = get_args(hint)
        plain, required = _unmarked(base)
        return Annotated[plain, *extras], required
    return hint, False


def _class_fields(source: type[Any]) -> Iterable[Field]:
    hints = _hints(source)
    for name, default in _defaults(source).items():
        field = _field(name, hints[name], default, required=False)
        # A reducer can start from the type's empty value; if the type has none, the input must set the field.
        field.required = default is ABSENT and (field.reducer is None or field.channel().first() is ABSENT)
        yield field


def _hints(source: Any) -> dict[str, Any]:
    try:
        return get_type_hints(source, include_extras=True)
    except NameError as error:
        raise UsageError(
            f"The state schema {source.__name__} cannot be read: {undotted(error)}. Define the names in its "
            "annotations at the top level of a module, and import them at run time, too."
        ) from error


def _defaults(source: type[Any]) -> dict[str, Any]:
    if dataclasses.is_dataclass(source):
        return {
            field.name: _default(field.default, field.default_factory, dataclasses.MISSING)
            for field in dataclasses.fields(source)
            if field.init  # Fields that the class computes follow from the others.
        }
    if issubclass(source, msgspec.Struct):
        fields = msgspec.structs.fields(source)
        return {field.name: _default(field.default, field.default_factory, msgspec.NODEFAULT) for field in fields}
    if hasattr(source, "model_fields"):
        models = cast("Mapping[str, Any]", source.model_fields)
        return {name: _model_default(name, field) for name, field in models.items()}
    raise UsageError(
        f"{source.__name__} cannot be a state schema: it is not a TypedDict, dataclass, msgspec Struct or "
        "Pydantic model."
    )


def _default(value: Any, factory: Any, missing: Any) -> Any:
    if factory is not missing and factory is not None:
        return factory
    return ABSENT if value is missing else value


def _model_default(name: str, field: Any) -> Any:
    if field.is_required():
        return ABSENT
    if getattr(field, "default_factory_takes_validated_data", False):
        raise UsageError(
            f"The default_factory of field '{name}' takes the other fields, but a field starts before there is input. "
            "Give it a factory without arguments, or let the first node set the field."
        )
    return field.default_factory or field.default


def _field(name: str, hint: Any, default: Any, required: bool) -> Field:
    if get_origin(hint) is not Annotated:
        return Field(name, hint, None, default, required)
    base, *extras = get_args(hint)
    reducers = [cast("Reducer", extra) for extra in extras if callable(extra) and extra is not Shared]
    shared = any(extra is Shared or isinstance(extra, Shared) for extra in extras)
    return Field(name, base, reducers[-1] if reducers else None, default, required, shared)
