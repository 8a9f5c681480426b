"""Events and interrupts as the log keeps them: without what their record, their place or their session tells.

An event's number is its place in the log, a pause's questions are those that its checkpoint has open, and the state
that a graph ended with is that of the checkpoint before its end; an interrupt's address is in its id, its choices are
in its schema, its prompt is its info unless it was given one, and its parents, unless they say something of their own,
are the places above it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, TypeGuard

import msgspec

from . import codec
from .answers import choices_of
from .errors import CheckpointCorrupt
from .events import CheckpointSaved, Done, Event, Interrupt, Interrupted, from_json, map_interrupt, to_json
from .nesting import check_nesting
from .record import Question

_encoder = msgspec.json.Encoder()
_interrupts = msgspec.json.Decoder(Interrupt)
_raws = msgspec.json.Decoder(list[msgspec.Raw])
_DAMAGE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


def log_event(event: Event) -> bytes:
    """An event for the log; it has no number yet."""
    if type(event) is CheckpointSaved and ";" not in event.address:
        # It is the root's own, as most are; whoever reads the log knows the root.
        step = b',"step":%d' % event.step if event.step else b""
        saved = b'{"type":"checkpoint","checkpoint_id":"%s","source":"%s"%s}'
        return saved % (event.checkpoint_id.encode(), event.source.encode(), step)
    if type(event) is Interrupted:
        return b'{"type":"interrupt","checkpoint_id":"%s"}' % event.checkpoint_id.encode()
    if type(event) is Done and event.state is not None:
        return to_json(msgspec.structs.replace(event, state=None))
    return to_json(event)


def read_events(body: bytes, first: int, count: int | None = None) -> list[Event]:
    """The events of one record, numbered from `first` and `count` of them.

    A pause comes without its questions, an end without its state.

    Raises:
        CheckpointCorrupt: these are not bytes that `log_event` wrote.
    """
    check_nesting(body)
    try:
        events = [from_json(bytes(raw)) for raw in _raws.decode(body)]
    except _DAMAGE as error:
        raise CheckpointCorrupt(f"the events of a record are damaged ({error})") from error
    if count is not None and len(events) != count:
        raise CheckpointCorrupt(f"a record has {len(events)} events where {count} were written")
    return [msgspec.structs.replace(event, seq=first + number) for number, event in enumerate(events)]


def log_question(question: Question, parent: Interrupt | None) -> bytes:
    """A question for the row that stands beside the log; with `parent`, if a place above adds something to it."""
    row = Interrupt(
        id=question.id,
        info=question.info,
        reason=question.reason,
        prompt=question.prompt,
        key=question.key,
        schema=question.schema,
        created=datetime.fromtimestamp(question.created, UTC),
        expires=None if question.expires is None else datetime.fromtimestamp(question.expires, UTC),
        parent=map_interrupt(parent, codec.lower) if _says_something(parent) else None,
    )
    return _encoder.encode(row)


def read_interrupt(body: bytes, session_id: str) -> Interrupt:
    """The interrupt of a row; types that are not registered here stay readable.

    Raises:
        CheckpointCorrupt: these are not bytes that `log_question` wrote.
    """
    check_nesting(body)
    try:
        kept = map_interrupt(_interrupts.decode(body), codec.lift_leniently)
    except _DAMAGE as error:
        raise CheckpointCorrupt(f"a question is damaged ({error})") from error
    address = kept.id.partition("#")[0]
    return msgspec.structs.replace(
        kept,
        address=address,
        prompt=kept.info if kept.prompt is None and isinstance(kept.info, str) else kept.prompt,
        choices=_choices(kept),
        session_id=session_id,
        parent=kept.parent or parent_at(address.rpartition(";")[0]),
    )


def _choices(kept: Interrupt) -> tuple[Any, ...]:
    if kept.choices or kept.schema is None:
        return kept.choices
    try:
        return choices_of(kept.schema)
    except Exception as error:  # protects whoever reads: an altered schema may make its reader raise anything
        raise CheckpointCorrupt(f"the schema of question '{kept.id}' is none ({error})") from error


def parent_at(address: str) -> Interrupt | None:
    """The parent at a place that adds nothing of its own to the questions below it."""
    if not address:
        return None
    return Interrupt(id=address, address=address, is_root_cause=False, parent=parent_at(address.rpartition(";")[0]))


def _says_something(parent: Interrupt | None) -> TypeGuard[Interrupt]:
    return parent is not None and (parent.info is not None or _says_something(parent.parent))
