"""Events and interrupts as the log keeps them: without what their record, their place or their session tells.

An event's number is its place in the log, and a pause's questions are those that its checkpoint has open; an
interrupt's address is in its id, and its parents, unless they say something of their own, are the places above it.
"""

from __future__ import annotations

import msgspec

from . import codec
from .errors import CheckpointCorrupt
from .events import CheckpointSaved, Event, Interrupt, Interrupted, NodeEnd, from_json, map_interrupt, to_json
from .nesting import check_nesting

_encoder = msgspec.json.Encoder()
_interrupts = msgspec.json.Decoder(Interrupt)
_raws = msgspec.json.Decoder(list[msgspec.Raw])
_DAMAGE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


def log_event(event: Event) -> bytes:
    """An event for the log; it has no number yet."""
    kind = type(event)
    if kind is NodeEnd:
        return _encoder.encode(event)
    if isinstance(event, Interrupted):
        return b'{"type":"interrupt","checkpoint_id":"%s"}' % event.checkpoint_id.encode()
    if isinstance(event, CheckpointSaved) and ";" not in event.address:
        # It is the root's own, as most are; whoever reads the log knows the root.
        saved = b'{"type":"checkpoint","checkpoint_id":"%s","source":"%s","step":%d}'
        return saved % (event.checkpoint_id.encode(), event.source.encode(), event.step)
    return to_json(event)


def read_events(body: bytes, first: int, count: int | None = None) -> list[Event]:
    """The events of one record, numbered from `first` and `count` of them; a pause comes without its questions.

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


def log_interrupt(interrupt: Interrupt) -> bytes:
    """An interrupt for the row that stands beside the log."""
    lowered = map_interrupt(interrupt, codec.lower)
    parent = lowered.parent if _says_something(lowered.parent) else None
    return _encoder.encode(msgspec.structs.replace(lowered, address="", session_id="", parent=parent))


def read_interrupt(body: bytes, session_id: str) -> Interrupt:
    """The interrupt of a row; types that are not registered here stay readable.

    Raises:
        CheckpointCorrupt: these are not bytes that `log_interrupt` wrote.
    """
    check_nesting(body)
    try:
        kept = map_interrupt(_interrupts.decode(body), codec.lift_leniently)
    except _DAMAGE as error:
        raise CheckpointCorrupt(f"a question is damaged ({error})") from error
    address = kept.id.partition("#")[0]
    parent = kept.parent or parent_at(address.rpartition(";")[0])
    return msgspec.structs.replace(kept, address=address, session_id=session_id, parent=parent)


def parent_at(address: str) -> Interrupt | None:
    """The parent at a place that adds nothing of its own to the questions below it."""
    if not address:
        return None
    return Interrupt(id=address, address=address, is_root_cause=False, parent=parent_at(address.rpartition(";")[0]))


def _says_something(parent: Interrupt | None) -> bool:
    return parent is not None and (parent.info is not None or _says_something(parent.parent))
