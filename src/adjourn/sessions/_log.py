"""Events and interrupts as the log keeps them: without what their record, their place or their session tells.

An event's number is its place in the log, and that a checkpoint was saved is told by every listed record itself. A
pause's questions are those that its checkpoint has open, and the state that a graph ended with is that of its
checkpoint. An interrupt is kept as the question that its frame has; its address is in its id, its choices are in its
schema, its prompt is its info unless it was given one, and its parents, unless they say something of their own, are
the places above it.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import Any, TypeGuard, cast

import msgspec

from adjourn._engine.questions import parent_at
from adjourn._engine.record import NONE, Question
from adjourn._schemas.answers import choices_of
from adjourn._values import codec
from adjourn._values.codec import check_nesting
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
from adjourn.stores.protocol import CheckpointRow, EventBatch, Header, SessionRef, Store


class _Row(Question, kw_only=True, omit_defaults=True):
    """A question in the row that stands beside the log."""

    above: Interrupt | None = None


_encoder = msgspec.json.Encoder()
_rows = msgspec.json.Decoder(_Row)
_raws = msgspec.json.Decoder(list[msgspec.Raw])
_DAMAGE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)

PAUSED = Interrupted(checkpoint_id="")
"""A pause, for the log."""


def log_events(events: list[Event]) -> bytes:
    """The events of one record, which tells by itself that it was saved; the list is the log's from here on."""
    for place, event in enumerate(events):
        if type(event) is Custom:
            events[place] = lowered(event)
    return _encoder.encode(events)


def saved(checkpoint: str, header: Header) -> CheckpointSaved:
    """The event that a listed record stands for."""
    return CheckpointSaved(
        checkpoint_id=checkpoint, source=header.source or "", step=header.step, address=header.address
    )


def read_events(batch: EventBatch) -> list[Event]:
    """The events of one record with their numbers: a pause without its questions, an end without its state.

    Raises:
        CheckpointCorrupt: these are not bytes that `log_events` wrote.
    """
    check_nesting(batch.body)
    try:
        events = [from_json(bytes(raw)) for raw in _raws.decode(batch.body)] if batch.body else []
    except _DAMAGE as error:
        raise CheckpointCorrupt(f"the events of a record are damaged ({error})") from error
    if batch.header.source is not None:
        # Whoever reads up to the end of a run has heard of its last checkpoint.
        place = len(events) - (1 if events and isinstance(events[-1], FINAL) else 0)
        events.insert(place, saved(batch.id, batch.header))
    if len(events) != batch.count:
        raise CheckpointCorrupt(f"a record has {len(events)} events where {batch.count} were written")
    return [_placed(event, batch, number) for number, event in enumerate(events, batch.first)]


def _placed(event: Event, batch: EventBatch, number: int) -> Event:
    if isinstance(event, Interrupted):
        return Interrupted(checkpoint_id=batch.id, address=batch.header.address, seq=number)
    return msgspec.structs.replace(event, seq=number)


def log_question(question: Question, parent: Interrupt | None) -> bytes:
    """A question for the row that stands beside the log; with `parent`, if a place above adds something to it."""
    above = map_interrupt(parent, codec.lower) if _says_something(parent) else None
    if above is None and question.state is NONE and question.default is NONE:
        return _encoder.encode(question)
    # What is the frame's own affair is not for those who are asked.
    shown = msgspec.structs.replace(question, state=NONE, default=NONE)
    return _encoder.encode(_Row(**msgspec.structs.asdict(shown), above=above))


def read_question(body: bytes) -> _Row:
    """Return the question of a row.

    Raises:
        CheckpointCorrupt: these are not bytes that `log_question` wrote.
    """
    check_nesting(body)
    try:
        return _rows.decode(body)
    except _DAMAGE as error:
        raise CheckpointCorrupt(f"a question is damaged ({error})") from error


def read_interrupt(body: bytes, session_id: str, checkpoint_id: str | None = None) -> Interrupt:
    """Return the interrupt of a row; types that are not registered here stay readable.

    Raises:
        CheckpointCorrupt: these are not bytes that `log_question` wrote.
    """
    kept = read_question(body)
    try:
        created, expires = _time(kept.created), None if kept.expires is None else _time(kept.expires)
    except (OverflowError, ValueError, OSError) as error:
        raise CheckpointCorrupt(f"a question is damaged ({error})") from error
    info, address = codec.decode(kept.info, lenient=True), kept.id.partition("#")[0]
    above = None if kept.above is None else map_interrupt(kept.above, codec.lift_leniently)
    return Interrupt(
        id=kept.id,
        address=address,
        info=info,
        reason=kept.reason,
        prompt=info if kept.prompt is None and isinstance(info, str) else kept.prompt,
        key=kept.key,
        schema=kept.schema,
        choices=_choices(kept),
        created=created,
        expires=expires,
        checkpoint_id=checkpoint_id,
        session_id=session_id,
        parent=above or parent_at(address.rpartition(";")[0]),
    )


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _choices(kept: Question) -> tuple[Any, ...]:
    if kept.schema is None:
        return ()
    try:
        return choices_of(kept.schema)
    except Exception as error:  # protects whoever reads: an altered schema may make its reader raise anything
        raise CheckpointCorrupt(f"the schema of question '{kept.id}' is none ({error})") from error


def _says_something(parent: Interrupt | None) -> TypeGuard[Interrupt]:
    return parent is not None and (parent.info is not None or _says_something(parent.parent))


PAGE = 100
"""Records whose events are read at once."""


async def logged_elsewhere(
    store: Store, ref: SessionRef, branch: str, number: int = sys.maxsize
) -> AsyncIterator[Event]:
    """The events on the branches that a session has left, or has gone on with, since the record `number` of `branch`.

    A session that was forked from another has left that one: its log counts, too.
    """
    if await store.head(ref) is None:
        return  # It is not stored yet, or not any more.
    starts = {_split(start.id)[0]: start for start in await _starts(store, ref)}
    leading = _leading(starts, branch, number)
    if number != sys.maxsize or any(start.parent is not None for start in starts.values()):
        async for event in _other_events(store, ref, leading):
            yield event
    origin = _origin(starts, leading)
    if origin is not None and origin[0] != ref.id:
        async for event in logged_elsewhere(store, SessionRef(origin[0], ref.app), *_split(origin[1])):
            yield event


async def _starts(store: Store, ref: SessionRef) -> list[CheckpointRow]:
    """The records that begin a branch; that of the first is here only if the session was forked from another."""
    found = [*await store.checkpoints(ref, source="fork"), *await store.checkpoints(ref, source="edit")]
    return [each for each in found if _split(each.id)[1] == 0]


def _leading(starts: Mapping[str, CheckpointRow], branch: str, number: int) -> dict[str, int]:
    """The branches that lead to a record, each with the number up to which it does."""
    leading = {branch: number}
    while (start := starts.get(branch)) is not None and start.parent is not None:
        branch, number = _split(start.parent)
        leading[branch] = number
    return leading


async def _other_events(store: Store, ref: SessionRef, leading: Mapping[str, int]) -> AsyncIterator[Event]:
    after = 0
    while batches := await store.events(ref, after, limit=PAGE):
        for batch in batches:
            after = batch.first + batch.count - 1
            branch, number = _split(batch.id)
            if number > leading.get(branch, -1):
                for event in read_events(batch):
                    yield event


def _origin(starts: Mapping[str, CheckpointRow], leading: Mapping[str, int]) -> tuple[str, str] | None:
    """The session and checkpoint that a session was forked from."""
    for branch in leading:
        start = starts.get(branch)
        if start is not None and start.parent is None and "forked_from" in start.header.metadata:
            came = cast("dict[str, Any]", start.header.metadata["forked_from"])
            return came["session_id"], came["checkpoint_id"]
    return None


def _split(checkpoint: str) -> tuple[str, int]:
    branch, _, number = checkpoint.rpartition(".")
    return branch, int(number)
