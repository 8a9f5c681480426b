"""Events and interrupts as the log keeps them: without what their record, place or session already says.

An event's number is its place in the log, and every listed record itself shows that a checkpoint was saved. A
pause's questions are those that its checkpoint has open, and the state that a graph ended with is that of its
checkpoint. An interrupt is kept as the question that its frame has; its address is in its id, its choices are in its
schema, its prompt is its info unless it was given one, and its parents, unless they add something, are
the places above it. Its row is the only place where it is stored: records name it, and whoever restores one reads the
question and its answer from there, as people do (`read_questions`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TypeGuard, cast

import msgspec

from adjourn._engine.address import innermost_agent
from adjourn._engine.questions import parent_at, said_of
from adjourn._engine.record import (
    NONE,
    UNCHANGED,
    Change,
    Question,
    Tree,
    check_seal,
    seal,
    token_of,
    with_message,
    without_message,
)
from adjourn._engine.scope import Scope
from adjourn._hiding import known
from adjourn._schemas.answers import choices_of
from adjourn._values import codec
from adjourn._values.codec import check_nesting
from adjourn._values.damage import Reading
from adjourn.errors import CheckpointCorrupt
from adjourn.events import (
    FINAL,
    CheckpointSaved,
    Custom,
    Event,
    Interrupt,
    Interrupted,
    from_json,
    lowered,
    map_interrupt,
)
from adjourn.stores import types
from adjourn.stores.kit import Audit, ListAsked, readable
from adjourn.stores.protocol import Store
from adjourn.stores.types import Answered, AuditEntry, EventBatch, Header, Loaded, Outcome, SessionRef

from ._permission import barred
from .history import split_id


class _Row(Question, kw_only=True, omit_defaults=True):
    """A question in the row that stands beside the log, without what changes.

    It is `inherited` if it had ended before the branch of this row began.
    """

    above: Interrupt | None = None
    inherited: bool = False


_ELSEWHERE = {"how", "value", "said", "by", "at", "state", "void", "optional"}
"""What the body of a row leaves out: other columns have how the question ended, and records what only frames use."""
_IN_BODY = tuple([name for name in Question.__struct_fields__ if name not in _ELSEWHERE])

_encoder = msgspec.json.Encoder()
_rows = msgspec.json.Decoder(_Row)
_raws = msgspec.json.Decoder(list[msgspec.Raw])
_DAMAGE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)

PAUSED = Interrupted(checkpoint_id="")
"""A pause, for the log."""
_PAUSE = _encoder.encode([PAUSED])  # the same bytes for all sessions that wait without anything else to log


def log_events(events: list[Event]) -> bytes:
    """Return the events of one record as bytes, without its own `CheckpointSaved`; the log now owns the list."""
    if len(events) == 1 and events[0] is PAUSED and not known.forms:
        return _PAUSE
    for place, event in enumerate(events):
        if type(event) is Custom:
            events[place] = lowered(event)
    encoded = _encoder.encode(events)
    return known.hide_in_json(encoded) if known.forms else encoded


def saved(checkpoint: str, header: Header) -> CheckpointSaved:
    """Return the event that a listed record stands for."""
    return CheckpointSaved(
        checkpoint_id=checkpoint, source=header.source or "", step=header.step, address=header.address
    )


def read_events(batch: EventBatch) -> list[Event]:
    """Return the events of one record with their numbers: a pause without its questions, an end without its state.

    Raises:
        CheckpointCorrupt: these are not bytes that `log_events` wrote.
    """
    check_nesting(batch.body)
    try:
        events = [from_json(bytes(raw)) for raw in _raws.decode(batch.body)] if batch.body else []
    except _DAMAGE as error:
        raise CheckpointCorrupt(f"the events of a record are damaged ({error})") from error
    if batch.header.source is not None:
        # Whoever reads up to the end of a run must have seen its last checkpoint.
        place = len(events) - (1 if events and isinstance(events[-1], FINAL) else 0)
        events.insert(place, saved(batch.id, batch.header))
    if len(events) != batch.count:
        raise CheckpointCorrupt(f"a record has {len(events)} events where {batch.count} were written")
    return [_placed(event, batch, number) for number, event in enumerate(events, batch.first)]


def count_events(body: bytes) -> int | None:
    """Return how many events a record has in its bytes; None if they are damaged."""
    try:
        check_nesting(body)
        return len(_raws.decode(body)) if body else 0
    except (*_DAMAGE, CheckpointCorrupt):
        return None


def _placed(event: Event, batch: EventBatch, number: int) -> Event:
    if isinstance(event, Interrupted):
        return msgspec.structs.replace(event, checkpoint_id=batch.id, address=batch.header.address, seq=number)
    return msgspec.structs.replace(event, seq=number)


def log_question(question: Question, parent: Interrupt | None) -> bytes:
    """Return a question as bytes for its row beside the log; with `parent`, if a place above adds something to it."""
    above = map_interrupt(parent, codec.lower) if _says_something(parent) else None
    if above is None and question.how is None and question.state is NONE and type(question) is Question:
        return seal(_encoder.encode(question))
    if above is None and isinstance(question, _Row):
        above = question.above
    inherited = question.how is not None
    asked = {name: getattr(question, name) for name in _IN_BODY}
    return seal(_encoder.encode(_Row(**asked, above=above, inherited=inherited)))


def stored_question(question: Question, parent: Interrupt | None, ended: Answered | None) -> types.Question:
    """Return a question as a store keeps it: its row, and what listings select by."""
    address = question.address
    return types.Question(
        id=question.id,
        body=log_question(question, parent),
        expires=question.expires,
        ended=ended,
        requesters=barred(question),
        address=address,
        agent=innermost_agent(address),
        reason=question.reason,
        tags=question.tags,
        asked=question.created,
        requested_by=question.requested_by,
    )


def ended(question: Question) -> Answered | None:
    """Return how a question has ended, for its row on a new branch; None while it is open."""
    if question.how is None:
        return None
    how, value = cast("Outcome", question.how), with_message(bytes(question.value), question.said)
    return Answered(id=question.id, value=value, how=how, by=question.by, at=question.at or question.created)


def read_question(body: bytes) -> _Row:
    """Return the question of a row.

    Raises:
        CheckpointCorrupt: these are not bytes that `log_question` wrote.
    """
    check_nesting(body)
    try:
        check_seal(body)
        return _rows.decode(body)
    except _DAMAGE as error:
        raise CheckpointCorrupt(f"a question is damaged ({error})") from error


async def read_past(store: Store, ref: SessionRef, point: str, scope: Scope) -> tuple[types.Question, ...]:
    """Return what had been asked and had ended at a checkpoint, for the audit of what begins there (rule R16).

    `scope` is the session as it was there. A damaged question is left out, as in any audit.

    Raises:
        CheckpointNotFound: the session has been deleted.
    """
    rows = await store.read(Audit(ref, split_id(point)[0]))
    return tuple(readable([row for row in rows if row.how is not None and scope.questions.has_ended(row.id)], _past))


def _past(row: AuditEntry) -> types.Question:
    question = read_question(row.body)
    question.how = how = cast("Outcome", row.how)
    ended = Answered(id=row.id, value=row.value or b"", how=how, by=row.by, at=row.at or question.created)
    return stored_question(question, None, ended)


def used_again(question: types.Question) -> types.Question:
    """Return a question that had ended before, whose answer counts once more where a branch begins."""
    row = read_question(question.body)
    row.again = True
    return msgspec.structs.replace(question, body=seal(_encoder.encode(row)))


def with_past(past: Sequence[types.Question], asks: Sequence[types.Question]) -> tuple[types.Question, ...]:
    """Return what the first record of a branch asks, together with what its frames no longer know."""
    asked = {each.id for each in asks}
    return (*[each for each in past if each.id not in asked], *asks)


async def read_questions(store: Store, loaded: Loaded, tree: Tree) -> dict[str, AuditEntry]:
    """Read the questions that the frames of `tree` name, as they were at the loaded point, and return their rows.

    Raises:
        CheckpointCorrupt: a row is missing or damaged.
        CheckpointNotFound: the session has been deleted.
    """
    ids = tree.asking()
    if not ids:
        return {}
    rows = {row.id: row for row in await store.read(ListAsked(loaded.head.ref, split_id(loaded.point)[0], ids))}
    with Reading(loaded.head.session):
        restore_questions(loaded.head.session, tree, rows)
    return rows


def restore_questions(session_id: str, tree: Tree, rows: Mapping[str, AuditEntry]) -> None:
    """Give a folded session the questions that its frames name, from their rows.

    Raises:
        CheckpointCorrupt: a row is missing or damaged.
    """
    for each in tree.asking():
        if each not in rows:
            raise CheckpointCorrupt(f"session '{session_id}' lacks its question '{each}'")
    for name, row in rows.items():
        tree.questions[name] = _restored(session_id, row, tree.changed.get(name, UNCHANGED))


def _restored(session_id: str, row: AuditEntry, change: Change) -> Question:
    question = read_question(row.body)
    if question.id != row.id or (change.ended and row.how is None):
        raise CheckpointCorrupt(f"session '{session_id}' does not match the row of its question '{row.id}'")
    _time(question.created)
    _time(question.expires or 0.0)
    choices_of(question.schema)  # What cannot be shown must not be asked.
    question.state, question.void, question.optional = change.state, change.void, change.optional
    question.how, question.value, question.by, question.at = None, NONE, None, None
    if change.ended:
        question.how, question.by, question.at = row.how, row.by, row.at
        question.value, question.said = without_message(row.value or b"")
    return question


def read_interrupt(body: bytes, ref: SessionRef, branch: str, checkpoint_id: str | None = None) -> Interrupt:
    """Return the interrupt of a row of a session's branch; types that are not registered here stay readable.

    Raises:
        CheckpointCorrupt: these are not bytes that `log_question` wrote.
    """
    with Reading(ref.id):
        return _interrupt(read_question(body), ref, branch, checkpoint_id)


def _interrupt(kept: _Row, ref: SessionRef, branch: str, checkpoint_id: str | None) -> Interrupt:
    created, expires = _time(kept.created), None if kept.expires is None else _time(kept.expires)
    info, address = codec.decode(kept.info, lenient=True), kept.id.partition("#")[0]
    above = None if kept.above is None else map_interrupt(kept.above, codec.lift_leniently)
    return Interrupt(
        id=kept.id,
        token=token_of(kept, ref.app, ref.id, branch),
        address=address,
        info=info,
        reason=kept.reason,
        tags=kept.tags,
        prompt=info if kept.prompt is None and isinstance(info, str) else kept.prompt,
        node=kept.node,
        key=kept.key,
        schema=kept.schema,
        choices=() if kept.schema is None else choices_of(kept.schema),
        created=created,
        expires=expires,
        checkpoint_id=checkpoint_id,
        session_id=ref.id,
        parent=above or parent_at(address.rpartition(";")[0]),
        **said_of(kept),
    )


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _says_something(parent: Interrupt | None) -> TypeGuard[Interrupt]:
    return parent is not None and (parent.info is not None or _says_something(parent.parent))
