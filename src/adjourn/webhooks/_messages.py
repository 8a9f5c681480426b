"""What is sent: from what was written with a record, and what the store has of its session when it is sent.

The outbox has ids and kinds, and for whoever asked for details the message of an error. What questions show is read
when it is sent, so that it is kept in one place only, and gone with its session.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import msgspec

from adjourn._documents import Question
from adjourn.errors import CheckpointCorrupt, CheckpointNotFound
from adjourn.runner import NoticeKind, Occasion
from adjourn.sessions._log import read_interrupt
from adjourn.stores import AuditEntry, SessionRef, Store, TakenNotice
from adjourn.stores.kit import GetHead, ListAsked, ListOpen

from ._webhook import Webhook

_PLAIN = ("id", "address", "reason", "tags", "node", "priority", "requested_by", "created", "expires")
_OF_SESSION = ("session_id", "checkpoint_id", "removed_after")
_DETAILS = tuple([name for name in Question.__struct_fields__ if name not in (*_PLAIN, *_OF_SESSION)])


class _Note(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is kept in the outbox."""

    kind: NoticeKind
    agent: str
    checkpoint: str
    questions: tuple[str, ...] = ()
    error: str = ""
    message: str = ""
    at: float | None = None


def note_of(webhook: Webhook, occasion: Occasion) -> bytes:
    """Return what the outbox keeps of something that a webhook is told of."""
    note = _Note(
        kind=occasion.kind,
        agent=occasion.agent,
        checkpoint=occasion.checkpoint,
        questions=occasion.questions,
        error=occasion.error,
        message=occasion.message if webhook.details else "",
        at=webhook.due(occasion),
    )
    return msgspec.json.encode(note)


MOST_QUESTIONS = 100
"""How many questions a message lists."""

MOST_BYTES = 256 * 1024
"""Bytes that a message may have with what its questions show; else it is sent without that."""


async def message_of(store: Store, webhook: Webhook, taken: TakenNotice, public_url: str | None) -> bytes | None:
    """Return what to send; None if it is about a question that is not there any more, or need not be sent.

    Raises:
        StoreError: the session cannot be read.
    """
    try:
        note = msgspec.json.decode(taken.body, type=_Note)
    except msgspec.DecodeError as error:
        raise CheckpointCorrupt(f"a notice cannot be read ({error})", taken.session) from error
    ref = SessionRef(taken.session, taken.app)
    head = await store.read(GetHead(ref))
    removed = None if head is None else head.removed_after
    data: dict[str, Any] = {
        "session_id": taken.session,
        "app": taken.app,
        "user_id": None if head is None else head.user,
        "agent": note.agent,
        "checkpoint_id": note.checkpoint,
        "removed_after": None if removed is None else datetime.fromtimestamp(removed, UTC).isoformat(),
        "url": None if public_url is None or head is None else _session_url(public_url, taken.session),
    }
    if note.kind in ("interrupt", "expiring"):
        branch = note.checkpoint.rpartition(".")[0]
        asked = await _asked(store, ref, branch, note.questions)
        if note.kind == "expiring":
            is_there = head is not None and head.branch == branch
            still = {each.id for each in await store.read(ListOpen(ref))} if is_there else set[str]()
            asked = [each for each in asked if each.id in still]
        if not asked:
            return None
        data["question_count"] = len(asked)
        data["questions"] = [_question(webhook, each, ref, public_url) for each in asked[:MOST_QUESTIONS]]
    if note.kind == "error":
        data["error"] = {"type": note.error, **({"message": note.message} if webhook.details else {})}
    moment = datetime.fromtimestamp(taken.at if note.at is None else note.at, UTC)
    message = {"type": note.kind, "timestamp": moment.isoformat(), "data": data}
    body = msgspec.json.encode(message)
    if len(body) > MOST_BYTES:
        for each in data.get("questions", ()):
            for name in _DETAILS:
                each.pop(name, None)
        body = msgspec.json.encode(message)
    return body


def test_message(now: float) -> bytes:
    """Return a message about nothing, for trying out a receiver."""
    moment = datetime.fromtimestamp(now, UTC)
    return msgspec.json.encode({"type": "test", "timestamp": moment.isoformat(), "data": {}})


async def _asked(store: Store, ref: SessionRef, branch: str, ids: tuple[str, ...]) -> list[AuditEntry]:
    try:
        return await store.read(ListAsked(ref, branch, ids))
    except CheckpointNotFound:
        return []


def _question(webhook: Webhook, asked: AuditEntry, ref: SessionRef, public_url: str | None) -> dict[str, Any]:
    shown = Question.of(read_interrupt(asked.body, ref, asked.branch))
    names = (*_PLAIN, *_DETAILS) if webhook.details else _PLAIN
    return {
        **{name: getattr(shown, name) for name in names},
        "open": asked.how is None,
        "url": _question_url(webhook, ref.id, asked.id, public_url),
    }


def _question_url(webhook: Webhook, session: str, question: str, public_url: str | None) -> str | None:
    if webhook.link is not None:
        return webhook.link.format(session=quote(session, safe=""), question=quote(question, safe=""))
    return None if public_url is None else f"{_session_url(public_url, session)}/questions/{quote(question, safe='')}"


def _session_url(public_url: str, session: str) -> str:
    return f"{public_url}/api/v1/sessions/{quote(session, safe='')}"
