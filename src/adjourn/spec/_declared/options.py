"""What files say about options: fields that are made from the constructors which take them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin

from msgspec import Struct, defstruct

from adjourn._options import REQUIRED, option_lines, options_of

from .parts import Count, Part, Seconds

P = TypeVar("P", bound=Part)

_NAME = "name"
"""The option that a file has elsewhere: in its `metadata`."""


def options_from(kind: Callable[..., Any]) -> Callable[[type[P]], type[P]]:
    """Give a declaration a field for every option of a constructor that can be written in a file.

    A field that the class declares itself stays: a file says it in another form, such as the name of a model. What the
    class does not say about a field, the constructor's docstring says.
    """

    def declared(cls: type[P]) -> type[P]:
        options, own = options_of(kind), set(cls.__struct_fields__)
        fields: list[Any] = []
        for name, option in options.items():
            in_file = None if name in own or name == _NAME else _in_file(option.type)
            if in_file is not None:
                fields.append(
                    (name, in_file) if option.default is REQUIRED else (name, in_file, _plain(option.default))
                )
        known = descriptions(cls)
        lines = [
            f"{name}: {options[name].sentence}"
            for name in (*cls.__struct_fields__, *(name for name, *_ in fields))
            if name in options and name not in known
        ]
        config = cls.__struct_config__
        return defstruct(  # pyright: ignore[reportReturnType]  # it is a subclass
            cls.__name__,
            fields,
            bases=(cls,),
            module=cls.__module__,
            namespace={"__doc__": "\n".join([cls.__doc__ or "", *lines]), "made_by": kind},
            tag=config.tag,
            tag_field=config.tag_field,
            frozen=True,
            kw_only=True,
        )

    return declared


def descriptions(cls: type[Part]) -> dict[str, str]:
    """Return what the docstrings of a declaration say about its fields."""
    found: dict[str, str] = {}
    for each in reversed(cls.__mro__):
        if each is not object and each is not Struct:
            found |= option_lines(each.__doc__)
    return found


def _plain(default: Any) -> Any:
    return list(cast("tuple[Any, ...]", default)) if isinstance(default, tuple) else default


def _in_file(type_: Any, *, whole: bool = False) -> Any:
    """Return the type that values of an option have in a file; None if none of them can be written there.

    What cannot be written, such as a function, is left out of a union, unless the union has to be taken as a `whole`.
    """
    origin, arguments = get_origin(type_), get_args(type_)
    if type_ in _PLAIN:
        return _PLAIN[type_]
    if origin is Literal:
        return type_
    if origin is Annotated:
        return _in_file(arguments[0], whole=whole)
    if origin in (Union, UnionType):
        found = [_in_file(each, whole=whole) for each in arguments]
        if all(each in (None, NoneType) for each in found) or (whole and None in found):
            return None
        return Union[tuple(each for each in found if each is not None)]  # noqa: UP007  # the members are not known here
    if origin is not None and isinstance(origin, type) and issubclass(origin, Sequence) and len(arguments) == 1:
        item = _in_file(arguments[0], whole=True)
        return None if item is None else list[item]
    return None


# Numbers among options count something, or are seconds.
_PLAIN: dict[Any, Any] = {str: str, bool: bool, int: Count, float: Seconds, NoneType: NoneType}
