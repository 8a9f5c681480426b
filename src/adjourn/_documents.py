"""Sessions, questions and checkpoints as JSON data, for programs: what `--json` prints and the service sends."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, cast

import msgspec

from adjourn._values.codec import Unknown
from adjourn.events import Interrupt
from adjourn.printing import as_data
from adjourn.sessions._status import owner_of, status_of
from adjourn.stores.types import CheckpointRow, Head


def plain(value: Any) -> Any:  # Any: whatever was stored
    """Return a stored value as JSON data, for programs that do not know its type."""
    try:
        return msgspec.to_builtins(_bare(value), str_keys=True, enc_hook=as_data)
    except (TypeError, ValueError, RecursionError):
        return repr(value)


def _bare(value: Any) -> Any:
    """Return the value without the tags of types that only the program knows."""
    match value:
        case Unknown():
            return _bare(value.data)
        case dict():
            return {key: _bare(each) for key, each in cast("dict[Any, Any]", value).items()}
        case list() | tuple():
            return [_bare(each) for each in cast("list[Any]", value)]
        case _:
            return value


def question(asked: Interrupt) -> dict[str, Any]:
    """Return a question as data."""
    return {
        "session_id": asked.session_id,
        "id": asked.id,
        "token": asked.token,
        "key": asked.key,
        "address": asked.address,
        "reason": asked.reason,
        "tags": list(asked.tags),
        "prompt": asked.prompt,
        "title": asked.title,
        "info": plain(asked.info),
        "schema": asked.schema,
        "choices": list(asked.choices),
        "created": _text(asked.created),
        "expires": _text(asked.expires),
        "checkpoint_id": asked.checkpoint_id,
    }


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
    }


def checkpoint(point: CheckpointRow, *, head: str, depth: int = 0) -> dict[str, Any]:
    """Return a checkpoint as data; `depth` counts the branchings before it."""
    return {
        "id": point.id,
        "parent_id": point.parent,
        "source": point.header.source,
        "step": point.header.step,
        "next": list(point.header.next),
        "address": point.header.address,
        "created": _at(point.created),
        "metadata": point.header.metadata,
        "depth": depth,
        "is_head": point.id == head,
    }


def questions(asked: Iterable[Interrupt]) -> list[dict[str, Any]]:
    """Return questions as data."""
    return [question(each) for each in asked]


def _text(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None


def _at(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
