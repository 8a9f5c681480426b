"""Immutable JSON data that is still a dict or list when read or encoded."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, cast

import msgspec
from msgspec import UNSET

from adjourn._text import a_type

MAX_DEPTH = 100
MAX_DIGITS = 4300
_TOO_LONG = 10**MAX_DIGITS


def _refuse(self: object, *args: object, **kwargs: object) -> NoReturn:
    kind = "dict" if isinstance(self, dict) else "list"
    raise TypeError(
        f"This {kind} is frozen, since others share it. Copy it and change the copy: {kind}(value), "
        "or copy.deepcopy(value) for all levels."
    )


class FrozenDict(dict[str, Any]):
    """A dict whose mutators raise; `dict(...)` and `copy.deepcopy` return ordinary ones."""

    __slots__ = ()

    if not TYPE_CHECKING:  # a signature that only raises cannot match the one it overrides
        __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

        def __hash__(self) -> int:
            return hash(frozenset(self.items()))

    def __copy__(self) -> dict[str, Any]:
        return dict(self)

    def __deepcopy__(self, memo: object) -> dict[str, Any]:
        return msgspec.to_builtins(self)

    def __reduce__(self) -> tuple[type[FrozenDict], tuple[dict[str, Any]]]:
        return FrozenDict, (dict(self),)


class FrozenList(list[Any]):
    """A list whose mutators raise; `list(...)` and `copy.deepcopy` return ordinary ones."""

    __slots__ = ()

    if not TYPE_CHECKING:  # as above
        __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
        append = clear = extend = insert = pop = remove = reverse = sort = _refuse

        def __hash__(self) -> int:
            return hash(tuple(self))

    def __copy__(self) -> list[Any]:
        return list(self)

    def __deepcopy__(self, memo: object) -> list[Any]:
        return msgspec.to_builtins(self)

    def __reduce__(self) -> tuple[type[FrozenList], tuple[list[Any]]]:
        return FrozenList, (list(self),)


def freeze(data: Mapping[str, Any], name: str) -> FrozenDict:
    """Return a frozen deep copy of a mapping of plain JSON data.

    Raises:
        TypeError: something in it is not JSON data; the message says where, with a path that starts with `name`.
        ValueError: JSON cannot represent it (NaN, infinities, lone surrogates), or it is nested too deeply.
    """
    if type(data) is FrozenDict:  # already frozen, so already checked
        return data
    if not isinstance(data, dict):
        raise TypeError(f"{name} is {a_type(data)}. Give a dict with string keys and plain JSON values.")
    plain: Any = data
    return _freeze_dict(plain, name, 1)


def check_json(data: object, name: str) -> None:
    """Raise if a value is not plain JSON data, as `freeze` does, but for any type of data."""
    if not is_plain(data):
        _freeze(data, name, 1)


def check_text(text: object, name: str) -> None:
    """Raise if a value is not text, or has no UTF-8 form.

    Raises:
        TypeError: it is not a plain `str`.
        ValueError: it holds lone surrogates.
    """
    if type(text) is not str:
        raise TypeError(f"{name} is {a_type(text)} ({shorten(text)}). Give a str.")
    if not text.isascii():
        _check_encodable(text, name)


def check_texts(thing: object, *names: str) -> None:
    """Raise if an attribute is not text, or has no UTF-8 form, as `check_text` does."""
    for name in names:
        text = getattr(thing, name)
        if type(text) is not str or not text.isascii():
            check_text(text, f"{type(thing).__name__}.{name}")


def is_text(value: object) -> bool:
    """Return whether a value is text that can be stored."""
    try:
        check_text(value, "")
    except (TypeError, ValueError):
        return False
    return True


def _check_encodable(text: str, name: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{name} holds the lone surrogate {text[error.start]!r} at {error.start}, which JSON cannot represent. "
            "Clean it first: text.encode('utf-8', 'replace').decode()."
        ) from None


def _freeze_dict(data: dict[object, object], path: str, depth: int) -> FrozenDict:
    frozen: dict[str, Any] = {}
    for key, value in data.items():
        if type(key) is not str:
            raise TypeError(f"{path} has the key {shorten(key)}, {a_type(key)}. JSON objects have only str keys.")
        if not key.isascii():
            _check_encodable(key, f"A key of {path}")
        frozen[key] = value if is_plain(value) else _freeze(value, f"{path}.{key}", depth + 1)
    return FrozenDict(frozen)


def is_plain(value: object) -> bool:
    """Return whether a value is obviously JSON that reads back unchanged; some values that are return False."""
    # Exact types: a subclass (such as an enum) would come back from a store as something else.
    if type(value) is int:
        return -_TOO_LONG < value < _TOO_LONG
    return (type(value) is str and value.isascii()) or type(value) is bool or value is None


def _freeze(value: object, path: str, depth: int) -> object:
    kind = type(value)
    if kind is str:
        _check_encodable(cast("str", value), path)
    elif kind is int:
        raise ValueError(
            f"{path} is a number with more than {MAX_DIGITS} digits, which Python cannot write. Give text."
        )
    elif kind is not float:
        return _freeze_container(value, path, depth)
    elif not math.isfinite(cast("float", value)):
        raise ValueError(f"{path} is {value}, which JSON cannot represent. Give a finite number or None.")
    return value


def _freeze_container(value: object, path: str, depth: int) -> FrozenDict | FrozenList:
    if depth > MAX_DEPTH:  # this also stops at data that contains itself
        raise ValueError(f"{path[:60]}… is nested more than {MAX_DEPTH} levels deep. Give flatter data.")
    if isinstance(value, dict):
        return _freeze_dict(cast("dict[object, object]", value), path, depth)
    if isinstance(value, list | tuple):
        items = enumerate(cast("list[object]", value))
        return FrozenList([v if is_plain(v) else _freeze(v, f"{path}[{i}]", depth + 1) for i, v in items])
    raise TypeError(
        f"{path} is {a_type(value)} ({shorten(value)}), which is not plain JSON data. Give dicts, lists, str, int, "
        "float, bool or None; msgspec.to_builtins(value) converts most other values."
    )


def shorten(value: object) -> str:
    """Return the value as error messages show it."""
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"


def is_same_json(one: Any, other: Any) -> bool:
    """Return whether two JSON values mean the same: 1 is 1.0, but not True."""
    if isinstance(one, dict) and isinstance(other, dict):
        a, b = cast("dict[str, Any]", one), cast("dict[str, Any]", other)
        return a.keys() == b.keys() and all(is_same_json(a[key], b[key]) for key in a)
    if isinstance(one, list) and isinstance(other, list):
        mine, theirs = cast("list[Any]", one), cast("list[Any]", other)
        return len(mine) == len(theirs) and all(map(is_same_json, mine, theirs))
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def is_part_of(less: Any, more: Any) -> bool:
    """Return whether `less` is JSON of which `more` says everything, and maybe has more keys and items.

    More items at the end of a list may be new fields: named tuples and `array_like` Structs are written as lists.
    """
    if isinstance(less, dict) and isinstance(more, dict):
        a, b = cast("dict[str, Any]", less), cast("dict[str, Any]", more)
        return a.keys() <= b.keys() and all(is_part_of(a[key], b[key]) for key in a)
    if isinstance(less, list) and isinstance(more, list):
        mine, theirs = cast("list[Any]", less), cast("list[Any]", more)
        return len(mine) <= len(theirs) and all(map(is_part_of, mine, theirs))
    return is_same_json(less, more)


def left_out(given: Any, made: Any, seen: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of what was made beside what was given, unless it was seen at the same place before."""
    if isinstance(made, dict) and isinstance(given, dict):
        parts, known = cast("dict[str, Any]", made), cast("dict[str, Any]", given)
        before: Any = cast("Any", seen) if isinstance(seen, dict) else {}
        for key, part in parts.items():
            yield from left_out(known.get(key, UNSET), part, before.get(key, UNSET), f"{path}.{key}" if path else key)
    elif isinstance(made, list) and isinstance(given, list):
        items, listed = cast("list[Any]", made), cast("list[Any]", given)
        # A set is sorted: its items may stand elsewhere than they were given, and then none is at a place of before.
        before = cast("Any", seen) if isinstance(seen, list) and is_part_of(listed, items) else []
        for number, item in enumerate(items):
            other, shown = (part[number] if number < len(part) else UNSET for part in (listed, before))
            yield from left_out(other, item, shown, f"{path}[{number}]")
    elif (given is UNSET or isinstance(made, dict | list)) and (seen is UNSET or not is_same_json(made, seen)):
        yield path
