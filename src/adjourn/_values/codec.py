"""Encode values to bytes and decode them, with limits on size and nesting.

Anything but plain JSON is an object with the key `$t`: `{"$t": "tuple", "v": [1, 2]}`, or, for a class, its registered
name and its fields. Names are looked up in the registry: stored data can never name code to import or run.
"""

from __future__ import annotations

import re
import sys
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from hashlib import blake2b
from typing import Any, cast
from uuid import UUID

import msgspec

from adjourn._hiding import known
from adjourn.errors import CheckpointCorrupt, MissingKey, NotStorable

from .adopt import MAX_DEPTH as MAX_DEPTH
from .adopt import MAX_INT, MIN_INT, ZONE_KEY, remedy_for
from .adopt import adopt as _adopt
from .adopt import are_shared as are_shared
from .adopt import copy as copy
from .frozen import FrozenDict, FrozenList
from .registry import BUILTIN_TAGS, EnumKind, FieldsKind, Kind, Misfit, NativeKind, kind_named, kind_of, type_of
from .registry import MERGED as MERGED
from .registry import TAG as TAG
from .secret import Secret, secret_named

_JSON = frozenset({str, float, bool, type(None)})
_canonical = msgspec.json.Encoder(order="deterministic")


class ClassChanged(CheckpointCorrupt):
    """A stored value cannot be built here: its class or time zone is not here, or refuses what was stored."""

    def __init__(
        self,
        detail: str,
        session_id: str | None = None,
        *,
        remedy: str = "Let the class accept what it accepted when that was stored, with defaults for what is new",
    ) -> None:
        super().__init__(detail, session_id, remedy=remedy)


class Unknown(msgspec.Struct, frozen=True):
    """A value whose class is not registered here, or refuses it, as returned by `decode(..., lenient=True)`."""

    name: str
    data: Any

    def __hash__(self) -> int:
        return hash(self.name)  # it may have been a key, although its data is not hashable


def adopt(value: Any, path: str) -> tuple[Any, bool]:
    """Return a copy of a value for the state, without the values of secrets, and whether it is plain JSON.

    Raises:
        NotStorable: something in it cannot be stored; the error's path starts with `path` and leads there.
    """
    adopted = _adopt(value, path)
    return _without_secrets(*adopted, path) if known.forms else adopted


def holds_secret(value: Any, path: str) -> bool:
    """Return whether a value holds that of a known secret, which `adopt` would replace.

    Raises:
        NotStorable: the value cannot be stored at all.
    """
    if not known.forms:
        return False
    body = encode(*_adopt(value, path), path)
    return known.hide_in_json(body) is not body


def _without_secrets(value: Any, plain: bool, path: str) -> tuple[Any, bool]:
    body = encode(value, plain, path)
    hidden = known.hide_in_json(body)
    if hidden is body:
        return value, plain
    try:
        return decode(hidden), plain
    except CheckpointCorrupt as error:
        raise NotStorable(path, value, "It holds the value of a Secret, and cannot be built without it.") from error


def lower(value: Any, *, canonical: bool = False) -> Any:
    """Convert an adopted value to plain data with tags; natives stay, since msgspec writes their tags.

    `canonical` is for fingerprints, which ignore the order of pairs, whether fields were set explicitly, and private
    attributes: code that runs again may have others.
    """
    return _lower(value, canonical)


def lift(data: Any) -> Any:
    """Build the value that plain data with tags represents.

    Raises:
        CheckpointCorrupt: a tag is malformed, or its content does not fit.
        ClassChanged: it names a class that is not registered, or that refuses its content.
    """
    return _bounded(data, False)


def lift_leniently(data: Any) -> Any:
    """Do the same as `lift`, but return `Unknown` for classes that are not registered here."""
    return _bounded(data, True)


def _bounded(data: Any, lenient: bool) -> Any:
    try:
        return _lift(data, lenient)
    except RecursionError:
        raise CheckpointCorrupt("a value is nested too deeply") from None


def _lower(value: Any, canonical: bool) -> Any:
    kind = type_of(value)
    if kind in _JSON:
        return value
    return _LOWERERS.get(kind, _lower_instance)(value, canonical)


def _lower_int(value: int, canonical: bool) -> Any:
    # In hex, since Python refuses to read or write very long decimal numbers.
    return value if MIN_INT <= value <= MAX_INT else {TAG: "int", "v": hex(value)}


def _lower_list(value: Iterable[Any], canonical: bool) -> list[Any]:
    return [_lower(item, canonical) for item in value]


def _lower_tuple(value: tuple[Any, ...], canonical: bool) -> Any:
    return {TAG: "tuple", "v": _lower_list(value, canonical)}


def _lower_set(value: set[Any] | frozenset[Any], canonical: bool) -> Any:
    # Sets iterate in a different order in every process; the bytes must not change.
    return {TAG: type(value).__name__, "v": sorted(_lower_list(value, canonical), key=_canonical.encode)}


def _lower_dict(value: dict[Any, Any], canonical: bool) -> Any:
    if TAG not in value and all(type(key) is str for key in value):
        return {key: _lower(item, canonical) for key, item in value.items()}
    pairs = lower_pairs(value, canonical=canonical)
    return {TAG: "dict", "v": sorted(pairs, key=_encoded_key) if canonical else pairs}


def lower_pairs(value: dict[Any, Any], *, canonical: bool = False) -> list[Any]:
    """Convert the members of a dict to pairs, since JSON has no object for keys that are not texts."""
    return [[_lower(key, canonical), _lower(item, canonical)] for key, item in value.items()]


def _encoded_key(pair: list[Any]) -> bytes:
    return _canonical.encode(pair[0])


def _lower_instance(value: Any, canonical: bool) -> Any:
    kind = kind_of(type_of(value))
    match kind:
        case NativeKind():
            return value
        case EnumKind():
            return {TAG: kind.name, "v": kind.key(value)}
        case FieldsKind():
            fields = {name: _lower(item, canonical) for name, item in kind.read(value).items()}
            if canonical and kind.private:
                fields = {name: item for name, item in fields.items() if name not in kind.private}
            unset = [] if canonical else kind.unset(value)
            return {TAG: kind.name, "v": fields, "unset": unset} if unset else {TAG: kind.name, "v": fields}
        case _:
            raise NotStorable("value", value, remedy_for(value))


def _clock(value: datetime | time) -> Any:
    zone = value.tzinfo
    if isinstance(zone, timezone):
        offset, name = zone.utcoffset(None), zone.tzname(None)
        has_name = name != timezone(offset).tzname(None)
        place = [_parts(offset), name] if has_name else [_parts(offset)]
        is_plain = not has_name and not offset.microseconds
    else:
        place, is_plain = [None if zone is None else cast("Any", zone).key], zone is None
    # isoformat omits which of two equal hours is meant when clocks are put back, and Python ignores the microseconds
    # of an offset when reading.
    if is_plain and not value.fold:
        return value.isoformat()
    return [value.replace(tzinfo=None).isoformat(), value.fold, *place]


def _parts(value: timedelta) -> list[int]:
    return [value.days, value.seconds, value.microseconds]


def _atom(tag: str, text: Callable[[Any], Any]) -> Callable[[Any, bool], Any]:
    return lambda value, canonical: {TAG: tag, "v": text(value)}


_LOWERERS: dict[type[Any], Callable[[Any, bool], Any]] = {
    int: _lower_int,
    list: _lower_list,
    FrozenList: _lower_list,
    dict: _lower_dict,
    FrozenDict: _lower_dict,
    tuple: _lower_tuple,
    set: _lower_set,
    frozenset: _lower_set,
    bytes: _atom("bytes", lambda value: b2a_base64(value, newline=False).decode()),
    Decimal: _atom("decimal", str),
    datetime: _atom("datetime", _clock),
    date: _atom("date", date.isoformat),
    time: _atom("time", _clock),
    timedelta: _atom("timedelta", _parts),
    UUID: _atom("uuid", str),
    Secret: _atom("secret", lambda value: value.name),
}


def _lift(data: Any, lenient: bool) -> Any:
    kind = type_of(data)
    if kind is list:
        return [_lift(item, lenient) for item in data]
    if kind is not dict:
        return data
    if TAG in data:
        return _lift_tagged(data, lenient)
    return {key: _lift(item, lenient) for key, item in data.items()}


def _lift_tagged(data: dict[str, Any], lenient: bool) -> Any:
    tag: object = data[TAG]
    if not isinstance(tag, str):
        raise CheckpointCorrupt(f"a tag is {tag!r:.80}, not a name")
    kind = kind_named(tag)
    try:
        if tag in _LIFTERS:
            return _LIFTERS[tag](_content(data), lenient)
        if kind is not None:
            return _lift_instance(data, kind, lenient)
    except (CheckpointCorrupt, RecursionError):
        raise
    except Exception as error:  # protects the caller: altered data may make a constructor raise anything
        if kind is None or not lenient:
            # What refuses its own content is damaged, but a user's class may have changed since.
            refused = ClassChanged if isinstance(kind, EnumKind | FieldsKind) else CheckpointCorrupt
            raise refused(_misfit(tag, error)) from error
    if lenient:
        return Unknown(tag, _lift(_remainder(data), True))
    raise ClassChanged(
        f"no class is registered as {tag!r:.200}; import the module that defines it before loading, "
        "with @stored on the class or the class in a state's schema"
    )


def _misfit(tag: str, error: Exception) -> str:
    # A constructor's message may quote the data, which may be secret: it stays in the cause.
    return f"{tag!r} {error}" if isinstance(error, Misfit) else f"{tag!r} refuses its content ({type(error).__name__})"


def _remainder(data: dict[str, Any]) -> Any:
    rest = {key: item for key, item in data.items() if key != TAG}
    return rest["v"] if "v" in rest and rest.keys() <= {"v", "unset"} else rest


def _content(data: dict[str, Any], *more: str) -> Any:
    if "v" not in data or not data.keys() <= {TAG, "v", *more}:
        raise Misfit("has keys other than 'v'")
    return data["v"]


def _lift_instance(data: dict[str, Any], kind: Kind, lenient: bool) -> Any:
    match kind:
        case NativeKind():
            # Its content is JSON by construction and is not searched for tags.
            return msgspec.convert(data, kind.cls)
        case EnumKind():
            return kind.build(_content(data))
        case FieldsKind():
            fields = {name: _lift(item, lenient) for name, item in _content(data, "unset").items()}
            return kind.build(fields, data.get("unset", ()))
        case _:
            raise Misfit("is of an unknown kind")


def _items(content: Any, lenient: bool) -> list[Any]:
    if not isinstance(content, list):
        raise Misfit("does not contain a list")
    return [_lift(item, lenient) for item in cast("list[Any]", content)]


def _distinct(kind: Callable[[Iterable[Any]], Any], items: list[Any]) -> Any:
    made = kind(items)
    if len(made) != len(items):
        raise Misfit("contains the same member twice")
    return made


def _lift_pairs(content: Any, lenient: bool) -> dict[Any, Any]:
    return _distinct(dict, _pairs(content, lenient))


def _pairs(content: Any, lenient: bool) -> list[Any]:
    if any(type(pair) is not list for pair in content):
        raise Misfit("does not contain pairs")
    return _items(content, lenient)


def _lift_int(content: str) -> int:
    value = int(content, 16)
    if hex(value) != content:
        raise Misfit("does not contain a number in its canonical form")
    return value


def _lift_decimal(content: str) -> Decimal:
    value = Decimal(content)
    if not value.is_finite():
        raise Misfit("does not contain a finite number")
    return value


def _lift_parts(content: Any) -> timedelta:
    days, seconds, microseconds = content
    return timedelta(days, seconds, microseconds)


def _clock_lifter(kind: type[datetime] | type[time]) -> Callable[[Any, bool], Any]:
    def lift(content: Any, lenient: bool) -> Any:
        if isinstance(content, str):
            return kind.fromisoformat(content)
        text, fold, place, *name = content
        value = kind.fromisoformat(text).replace(fold=fold)
        if place is None:
            return value
        if not isinstance(place, str):
            return value.replace(tzinfo=timezone(_lift_parts(place), *name))
        zone = _zone(place)
        if zone is not None:
            return value.replace(tzinfo=zone)
        if lenient:
            return Unknown(kind.__name__, content)
        raise ClassChanged(
            f"a {kind.__name__} is in the time zone {place!r:.80}, and this machine does not have it",
            remedy="Install the time zones, which Windows and small containers lack: pip install tzdata",
        )

    return lift


def _zone(key: str) -> tzinfo | None:
    """Return a time zone by its name, or None if it is not here."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # noqa: PLC0415 - most programs have no such zones

    if not ZONE_KEY.fullmatch(key):  # Python may import packages that a key names.
        raise Misfit("contains a time zone that has no proper name")
    try:
        return ZoneInfo(key)
    except ZoneInfoNotFoundError:
        return None


def _text_lifter(build: Callable[[str], Any]) -> Callable[[Any, bool], Any]:
    def lift(content: Any, lenient: bool) -> Any:
        if not isinstance(content, str):
            raise Misfit("does not contain text")
        return build(content)

    return lift


_LIFTERS: dict[str, Callable[[Any, bool], Any]] = {
    "tuple": lambda content, lenient: tuple(_items(content, lenient)),
    "set": lambda content, lenient: _distinct(set, _items(content, lenient)),
    "frozenset": lambda content, lenient: _distinct(frozenset, _items(content, lenient)),
    "dict": _lift_pairs,
    MERGED: lambda content, lenient: dict(_pairs(content, lenient)),
    "int": _text_lifter(_lift_int),
    "bytes": _text_lifter(lambda text: a2b_base64(text, strict_mode=True)),
    "decimal": _text_lifter(_lift_decimal),
    "datetime": _clock_lifter(datetime),
    "date": _text_lifter(date.fromisoformat),
    "time": _clock_lifter(time),
    "timedelta": lambda content, lenient: _lift_parts(content),
    "uuid": _text_lifter(UUID),
    "secret": _text_lifter(secret_named),
}
assert _LIFTERS.keys() == BUILTIN_TAGS


# The recursion limit also limits how deep msgspec goes; far above this, deep input could overflow the C stack.
_SAFE_RECURSION = 5_000
_MAX_NESTING = 1_000

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


SEALED = b"\xadE1"
"""How encrypted bytes begin; nothing that is written as JSON does."""


def check_nesting(data: bytes) -> None:
    """Reject stored bytes that cannot be parsed safely; with an ordinary recursion limit, the parser itself does.

    Raises:
        CheckpointCorrupt: they are nested deeper than anything that `encode` writes.
        MissingKey: they are encrypted.
    """
    if data.startswith(SEALED):
        raise MissingKey(None, "it was written by an EncryptedStore")
    if sys.getrecursionlimit() <= _SAFE_RECURSION:
        return
    depth = 0
    for byte in _STRING.sub(b"", data).translate(None, _NOT_BRACKETS):
        depth += 1 if byte in b"[{" else -1
        if depth > _MAX_NESTING:
            raise CheckpointCorrupt("it is nested too deeply")


MAX_BYTES = 256 * 1024 * 1024
"""The longest value that is read: a list that grew over many records."""

MAX_VALUE = 64 * 1024 * 1024
"""The longest value that is written."""

_TAG_BYTES = b'"$t"'

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()


def encode(value: Any, plain: bool, path: str = "value", limit: int = MAX_VALUE) -> bytes:
    """Return the JSON of an adopted value; `plain` is what `adopt` returned with it.

    Raises:
        NotStorable: it is too large.
    """
    try:
        body = _encoder.encode(value if plain else lower(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise NotStorable(path, value, f"It cannot be written as JSON ({error}).") from error
    if len(body) > limit:
        raise NotStorable(
            path, value, f"It takes {len(body)} bytes, and {limit} is the limit: store a reference to it."
        )
    return body


def stored(value: Any, path: str) -> msgspec.Raw:
    """Return a value as records store it: the JSON of the adopted value.

    Raises:
        NotStorable: it cannot be stored.
    """
    adopted, plain = adopt(value, path)
    return msgspec.Raw(encode(adopted, plain, path))


def decode(body: bytes | bytearray | memoryview | msgspec.Raw, *, lenient: bool = False) -> Any:
    """Return the encoded value; with `lenient`, instances of unregistered classes are decoded as `Unknown`.

    Raises:
        CheckpointCorrupt: `encode` did not write these bytes.
        ClassChanged: a class in them is not registered, or refuses its content.
    """
    data = body if isinstance(body, bytes) else bytes(body)
    if len(data) > MAX_BYTES:
        raise CheckpointCorrupt(f"a value of {len(data)} bytes is larger than any that is written")
    check_nesting(data)
    try:
        value = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CheckpointCorrupt(f"a value is not valid JSON ({error})") from error
    except RecursionError:
        raise CheckpointCorrupt("a value is nested too deeply") from None
    if not may_have_tags(data):
        return value
    return lift_leniently(value) if lenient else lift(value)


def may_have_tags(body: bytes) -> bool:
    """Return whether encoded bytes may contain tags; a text that looks like one also counts."""
    return body.find(_TAG_BYTES) >= 0  # `in` first tries to read it as a number, which is ten times as expensive


def fingerprint(value: Any, path: str = "value") -> str:
    """Return 32 hex digits that are equal for equal values of equal types, in every process.

    Raises:
        NotStorable: the value cannot be stored.
    """
    adopted, plain = adopt(value, path)
    body = _canonical.encode(adopted if plain else lower(adopted, canonical=True))
    return blake2b(body, digest_size=16).hexdigest()
