"""Sessions, questions and checkpoints as JSON data, for programs: what `--json` prints and the service sends."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Self, cast

import msgspec

from adjourn._values.codec import TAG, Unknown
from adjourn.events import Interrupt
from adjourn.messages import Message
from adjourn.printing import as_data
from adjourn.sessions._status import owner_of, status_of
from adjourn.stores.types import CheckpointRow, Head


def plain(value: Any) -> Any:  # Any: whatever was stored
    """Return a stored value as JSON data, for programs that do not know its type."""
    try:
        return msgspec.to_builtins(_bare(value), str_keys=True, enc_hook=lambda each: _bare(as_data(each)))
    except (TypeError, ValueError, RecursionError):
        return repr(value)


def _bare(value: Any) -> Any:
    """Return the value without the tags of stored types, which mean nothing to other programs."""
    match value:
        case Unknown():
            return _bare(value.data)
        case msgspec.Struct() if not value.__struct_config__.array_like:
            return message(value) if isinstance(value, Message) else _fields(value)
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
    given = [getattr(value, name) for name in value.__struct_fields__]
    first = len(given) - len(value.__struct_defaults__)
    for place, (name, each) in enumerate(zip(value.__struct_encode_fields__, given, strict=True)):
        is_left_out = config.omit_defaults and place >= first and _is(each, value.__struct_defaults__[place - first])
        if each is not msgspec.UNSET and not is_left_out:
            fields[name] = _bare(each)
    return fields


def _is(value: Any, default: Any) -> bool:
    """Return whether a field has its default; that of an empty list or mapping is a function that makes one."""
    return value is default or (callable(getattr(default, "factory", None)) and value in ([], {}))


def message(said: Message) -> dict[str, Any]:
    """Return a message as data: who says it and what are always there, the rest if there is any."""
    fields = _fields(said)
    return {"role": fields.pop("role"), "content": fields.pop("content", ""), **fields}


class Document(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Something of the library as other programs get it; what its fields say is what is sent, null included."""

    @classmethod
    def of(cls, found: object, /, **given: Any) -> Self:
        """Return what is given, and the rest from the fields of an object that have the same names."""
        rest = {name: _shown(getattr(found, name)) for name in cls.__struct_fields__ if name not in given}
        return cls(**given, **rest)


def _shown(value: Any) -> Any:  # Any: a field
    return value if isinstance(value, str | int | datetime | None) else plain(value)


class Question(Document, kw_only=True):
    """A question for a person. `schema` is the JSON Schema of an answer; `token` names exactly what is shown here.

    `requesters` asked for it, so another person must approve it; null if they may, too.
    """

    session_id: str
    id: str
    token: str
    address: str
    info: Any
    reason: str
    tags: list[str]
    prompt: str | None
    title: str | None
    summary: str | None
    description: str | None
    priority: int
    link: str | None
    requested_by: str | None
    node: str
    key: str | None
    schema: dict[str, Any] | None
    choices: list[Any]
    created: str | None
    expires: str | None
    removed_after: str | None
    checkpoint_id: str | None
    requesters: list[str] | None

    @classmethod
    def of(cls, found: object, /, **given: Any) -> Self:
        """Return a question of the library as other programs get it."""
        moments = {name: getattr(found, name) for name in ("created", "expires", "removed_after")}
        return super().of(found, **given, **{name: each and each.isoformat() for name, each in moments.items()})


def questions(asked: Iterable[Interrupt]) -> list[Question]:
    """Return questions as other programs get them."""
    return [Question.of(each) for each in asked]


class TreeEntry(Document, kw_only=True):
    """A checkpoint, with how many branchings lie before it."""

    id: str
    parent_id: str | None
    source: str
    step: int
    next: list[str]
    address: str
    created: str
    metadata: dict[str, Any]
    depth: int
    is_head: bool

    @classmethod
    def at(cls, depth: int, point: CheckpointRow, head: str) -> Self:
        """Return a checkpoint of the store."""
        is_head, created = point.id == head, _at(point.created)
        return cls.of(point.header, id=point.id, parent_id=point.parent, created=created, depth=depth, is_head=is_head)


def session(head: Head, questions: int) -> dict[str, Any]:
    """Return a session as data; `questions` counts the open ones."""
    return {
        "session_id": head.session,
        "status": status_of(head),
        "questions": questions,
        "inputs": head.inputs,
        "app": head.app,
        "user_id": head.user,
        "owner": owner_of(head),
        "checkpoint_id": head.checkpoint,
        "created": _at(head.created),
        "updated": _at(head.updated),
        "removed_after": None if head.removed_after is None else _at(head.removed_after),
    }


def _at(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
