"""What of each thing in a store is encrypted, and what it is bound to.

Ids, addresses, sources, statuses, users, times and counters stay readable, since stores find and order rows by them.
Everything that a program or a person has said is sealed. The agent, the reason and the tags of a question are also kept
as keyed digests, by which listings select.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from adjourn.errors import CheckpointCorrupt
from adjourn.stores.kit import damaged_record, decode_header, encode_header, readable
from adjourn.stores.types import (
    Answer,
    Answered,
    AuditEntry,
    CheckpointRow,
    EventBatch,
    Header,
    Input,
    Loaded,
    Notice,
    OpenQuestion,
    Outcome,
    Question,
    QuestionFilter,
    QueuedInput,
    SessionRef,
    StoredRecord,
    TakenNotice,
    Write,
)

from ._keys import Key, Keys, Place, from_text, key_id, to_text

_SEALED = "sealed"  # the one member that the metadata of a sealed header has

A = TypeVar("A", Answer, Answered)


class _Labelled(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A question as it is sealed, together with those labels that are stored only as digests, and whose it is."""

    user: str | None
    agent: str
    reason: str
    tags: tuple[str, ...]
    body: bytes


_labelled = msgspec.msgpack.Encoder()
_labels = msgspec.msgpack.Decoder(_Labelled)


class Sealing:
    """Seals what is written to a store, and opens what is read."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    def write(self, ref: SessionRef, write: Write) -> Write:
        """Return a record to be written, with what it asks and closes."""
        name, branch = write.id, write.branch
        return replace(
            write,
            body=self._seal(_place(ref, "record", name), write.body),
            # No events stay none: a store drops those of a pause that does not happen, and must know them as dropped.
            events=self._seal(_place(ref, "events", name), write.events) if write.events else b"",
            header=self._header(ref, write),
            asks=tuple([self._question(ref, branch, each) for each in write.asks]) if write.asks else (),
            closes=tuple([self.answer(ref, branch, each) for each in write.closes]) if write.closes else (),
            notices=tuple([self._notice(ref, each) for each in write.notices]) if write.notices else (),
            summary=b"",
        )

    def _notice(self, ref: SessionRef, given: Notice) -> Notice:
        return replace(given, body=self._seal(_notice_place(ref, given), given.body))

    def notice(self, row: TakenNotice) -> TakenNotice:
        """Return a notice that was taken, opened."""
        return replace(row, body=self._keys.open(_notice_place(SessionRef(row.session, row.app), row), row.body))

    def answer(self, ref: SessionRef, branch: str, given: A) -> A:
        """Return an answer to be written to a branch."""
        place = _answer_place(ref, branch, given.id, given.how, given.by)
        value, by = self._seal(place, given.value), given.by
        if by is not None:
            by = to_text(self._seal(_place(ref, "name", given.id, branch), by.encode()))
        return replace(given, value=value, by=by)

    def inputs(self, ref: SessionRef, given: Input) -> list[Input]:
        """Return an input to be submitted as each key seals it, first of all the current one."""
        place, current = _input_place(ref, given), self._keys.current
        keys = [current, *(key for key in self._keys if key is not current)]
        return [replace(given, body=key.seal(place, given.body)) for key in keys]

    def queued(self, ref: SessionRef, row: QueuedInput) -> QueuedInput:
        """Return an input that waits, opened."""
        return replace(row, body=self._keys.open(_input_place(ref, row), row.body))

    def _question(self, ref: SessionRef, branch: str, asked: Question) -> Question:
        labelled = _labelled.encode(_Labelled(ref.user, asked.agent, asked.reason, asked.tags, asked.body))
        digest = self._keys.current.digest
        return replace(
            asked,
            body=self._seal(_question_place(ref, branch, asked.id, asked.expires), labelled),
            ended=asked.ended and self.answer(ref, branch, asked.ended),
            agent=digest(asked.agent),
            reason=digest(asked.reason),
            tags=tuple([digest(tag) for tag in asked.tags]),
        )

    def filters(self, wanted: QuestionFilter) -> list[QuestionFilter]:
        """Return the filters that together select the same of what is stored: one for each key that may be in use."""
        if wanted.agent is wanted.reason is wanted.tag is None:
            return [wanted]
        return [_digested(wanted, key) for key in self._keys]

    def _asked(self, ref: SessionRef, branch: str, row: AuditEntry | OpenQuestion) -> _Labelled:
        place = _question_place(ref, branch, row.id, row.expires)
        opened = self._keys.open(place, row.body)
        try:
            asked = _labels.decode(opened)
        except msgspec.DecodeError as error:
            raise CheckpointCorrupt(f"{place} is not a question ({error})", ref.id) from error
        if ref.user not in (None, asked.user):
            raise CheckpointCorrupt(f"{place} was asked for another user", ref.id)
        return asked

    def _header(self, ref: SessionRef, write: Write) -> Header:
        sealed = self._seal(_place(ref, "header", write.id), encode_header(write.header))
        return replace(write.header, next=(), metadata={_SEALED: to_text(sealed)})

    def _seal(self, place: Place, data: bytes) -> bytes:
        return self._keys.current.seal(place, data)

    def loaded(self, found: Loaded) -> Loaded:
        """Return the records that fold to a point, opened."""
        ref, (branch, _, number) = found.head.ref, found.point.rpartition(".")
        first = int(number) - len(found.rows) + 1  # a full record and those that follow it on the same branch
        rows = [self._keys.open(_place(ref, "record", f"{branch}.{n}"), row) for n, row in enumerate(found.rows, first)]
        return replace(found, rows=tuple(rows), answers=self.answers(ref, branch, found.answers))

    def answers(self, ref: SessionRef, branch: str, given: Sequence[Answered]) -> tuple[Answered, ...]:
        """Return answers that were read from a branch, opened."""
        return tuple([self._answered(ref, branch, each) for each in given])

    def _answered(self, ref: SessionRef, branch: str, given: Answered) -> Answered:
        by = self.name(ref, branch, given.id, given.by)
        return replace(given, value=self._value(ref, branch, given.id, given.how, by, given.value), by=by)

    def name(self, ref: SessionRef, branch: str, id: str, by: str | None) -> str | None:
        """Return who answered a question, opened."""
        if by is None:
            return None
        place = _place(ref, "name", id, branch)
        return self._keys.open(place, from_text(place, by)).decode()

    def _value(self, ref: SessionRef, branch: str, id: str, how: Outcome, by: str | None, value: bytes) -> bytes:
        return self._keys.open(_answer_place(ref, branch, id, how, by), value)

    def audit(self, ref: SessionRef, rows: Iterable[AuditEntry]) -> list[AuditEntry]:
        """Return questions with how they ended, opened; damaged ones are left out."""
        return list(readable(rows, lambda row: self.entry(ref, row)))

    def entry(self, ref: SessionRef, row: AuditEntry) -> AuditEntry:
        """Return a question with how it ended, opened."""
        branch, body = row.branch, self._asked(ref, row.branch, row).body
        if row.how is None:
            return replace(row, body=body)
        by = self.name(ref, branch, row.id, row.by)
        return replace(row, body=body, by=by, value=self._value(ref, branch, row.id, row.how, by, row.value or b""))

    def open_question(self, row: OpenQuestion) -> OpenQuestion:
        """Return an open question of any session, opened."""
        branch, ref = row.checkpoint.rpartition(".")[0], SessionRef(row.session, row.app, row.user)
        asked, digest = self._asked(ref, branch, row), self._keys.of(row.body).digest
        labels = (asked.user, digest(asked.agent), digest(asked.reason), tuple([digest(tag) for tag in asked.tags]))
        if labels != (row.user, row.agent, row.reason, row.tags):
            what = f"{_question_place(ref, branch, row.id, row.expires)} is listed with labels that it was not given"
            raise CheckpointCorrupt(what, ref.id)
        return replace(row, body=asked.body, agent=asked.agent, reason=asked.reason, tags=asked.tags)

    def checkpoint(self, ref: SessionRef, row: CheckpointRow) -> CheckpointRow:
        """Return a checkpoint as it is listed, opened, or shown as damaged."""
        if row.damaged:
            return row
        try:
            return replace(row, header=self._opened_header(ref, row.id, row.header))
        except CheckpointCorrupt:
            return replace(row, created=0.0, header=Header(), damaged=True)

    def events(self, ref: SessionRef, batch: EventBatch) -> EventBatch:
        """Return the events of a record, opened."""
        header = self._opened_header(ref, batch.id, batch.header)
        body = self._keys.open(_place(ref, "events", batch.id), batch.body) if batch.body else b""
        return replace(batch, header=header, body=body)

    def record(self, ref: SessionRef, row: StoredRecord) -> StoredRecord:
        """Return a record with everything in it, opened, or shown as damaged."""
        if row.damaged:
            return row
        try:
            return replace(
                row,
                header=self._opened_header(ref, row.id, row.header),
                events=self._keys.open(_place(ref, "events", row.id), row.events) if row.events else b"",
                body=self._keys.open(_place(ref, "record", row.id), row.body),
            )
        except CheckpointCorrupt:
            return damaged_record(row.id, row.parent, row.pos)

    def _opened_header(self, ref: SessionRef, id: str, found: Header) -> Header:
        place = _place(ref, "header", id)
        header = decode_header(self._keys.open(place, from_text(place, found.metadata.get(_SEALED))))
        if replace(header, next=(), metadata={}) != replace(found, next=(), metadata={}):
            raise CheckpointCorrupt(f"{place} is not the one that was written", ref.id)
        return header


def _digested(wanted: QuestionFilter, key: Key) -> QuestionFilter:
    named = {"agent": wanted.agent, "reason": wanted.reason, "tag": wanted.tag}
    return replace(wanted, **{name: None if text is None else key.digest(text) for name, text in named.items()})


def keys_of(
    records: Iterable[StoredRecord], asked: Iterable[AuditEntry], inputs: Iterable[QueuedInput] = ()
) -> set[str]:
    """Return the ids of the keys that rows, as they are stored, were sealed with."""
    sealed = [part for row in records for part in (row.body, row.events, _sealed_header(row.header))]
    sealed += [row.body for row in inputs]
    for row in asked:
        sealed += [row.body, row.value or b"", b"" if row.by is None else _bytes_of(row.by)]
    return {name for part in sealed if (name := key_id(part)) is not None}


def _sealed_header(header: Header) -> bytes:
    return _bytes_of(header.metadata.get(_SEALED))


def _bytes_of(text: object) -> bytes:
    place = Place("", "", "", "")
    try:
        return from_text(place, text)
    except CheckpointCorrupt:
        return b""  # whoever reads it is told


def _place(ref: SessionRef, kind: str, id: str, branch: str = "") -> Place:
    return Place(ref.app, ref.id, kind, id, (branch,) if branch else ())


def _question_place(ref: SessionRef, branch: str, id: str, expires: float | None) -> Place:
    # Nobody can let a question expire earlier or later.
    return Place(ref.app, ref.id, "question", id, (branch, None if expires is None else repr(float(expires))))


def _notice_place(ref: SessionRef, given: Notice | TakenNotice) -> Place:
    # Nobody can have it sent to somebody else.
    return Place(ref.app, ref.id, "notice", given.id, (given.to,))


def _input_place(ref: SessionRef, given: Input | QueuedInput) -> Place:
    # Nobody can make an input another user's, or give it to another program.
    abandons = "abandons" if given.abandons else None
    return Place(ref.app, ref.id, "input", given.id, (given.program, given.user, abandons))


def _answer_place(ref: SessionRef, branch: str, id: str, how: Outcome, by: str | None) -> Place:
    # Nobody can turn an answer into an expiry, or into somebody else's.
    return Place(ref.app, ref.id, "answer", id, (branch, how, by))
