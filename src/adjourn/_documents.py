"""Sessions, questions and checkpoints as JSON data, for programs: what `--json` prints and the service sends."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Self

import msgspec

from adjourn._plain import plain as plain
from adjourn.events import Interrupt
from adjourn.sessions._status import owner_of, status_of
from adjourn.stores.types import CheckpointRow, Head


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
