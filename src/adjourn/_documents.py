"""Sessions, questions and checkpoints as JSON data, for programs: what `--json` prints and the service sends."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from adjourn._plain import plain as plain
from adjourn.events import Interrupt
from adjourn.sessions._status import owner_of, status_of
from adjourn.stores.types import CheckpointRow, Head


def question(asked: Interrupt) -> dict[str, Any]:
    """Return a question as data: each of its fields, but for what stands above it."""
    return dict(asked)


QUESTION_FIELDS = tuple(Interrupt.documented())


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


def _at(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
