"""The end of a log's chain, as its writer knows it: what makes the digest of the next record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec
from msgspec import Struct

from adjourn._engine.proof import Ended, LeftBranch, Proof, Stored, answer_digest, digest, question_digest
from adjourn._engine.record import Record, chain_of, content_of, sealed
from adjourn.errors import CheckpointCorrupt, MissingKey
from adjourn.stores.kit import Load, encode_header
from adjourn.stores.protocol import Store
from adjourn.stores.types import Answer, Answered, Head, Header, Loaded, Question, SessionRef

from .history import split_id


class Chain(Struct, eq=False):
    """Chains the records of one session, each to the one before it."""

    ref: SessionRef
    key: bytes | None = None
    digest: str = ""
    """That of the last record that was made, whether or not it is stored yet."""
    unpaused: bool = False
    """Whether the last record was made to pause, and the run went on instead."""
    left: LeftBranch | None = None
    """The branch that the next record leaves."""
    stored: list[Stored] = []
    """When records were stored that no later record has proved yet."""

    def stand(self, loaded: Loaded, *, pauses: bool) -> None:
        """Go on after a record that was loaded; `pauses` is whether it was made to pause."""
        head, (_, number) = loaded.head, split_id(loaded.point)
        self.digest = chain_of(loaded.rows[-1])
        self.stored = [Stored(number, number, loaded.at)] if loaded.at else []
        if loaded.point == head.checkpoint:
            self.unpaused = pauses and head.status == "running"
        else:
            # The branch that the head leaves has no later record that could say when its last one was stored.
            branch, last = split_id(head.checkpoint)
            self.stored.append(Stored(last, last, head.updated, branch))

    def fork(self, origin: Loaded) -> None:
        """Begin a new session with the digest of the record that it is forked from."""
        self.digest = chain_of(origin.rows[-1])

    def proof(
        self, status: str, asks: Sequence[Question], ended: Mapping[str, Ended], paused: bytes | None = None
    ) -> Proof:
        """Return what the next record proves; `paused` are its events if it is made to pause."""
        proof = Proof(status=status, stored=self.stored, unpaused=self.unpaused, ended=dict(ended) if ended else {})
        self.stored, self.unpaused = [], False
        if self.left is not None:
            proof.left = self.left
        for each in asks:
            proof.asked[each.id] = question_digest(each.id, each.body, each.expires)
            if each.ended is not None:
                proof.ended[each.id] = ended_by(each.ended)
        if paused is not None:
            proof.events = _short_digest(paused) if len(paused) < _SHORT else digest(paused)
        return proof

    def encode(
        self, record: Record, proof: Proof, id: str, parent: str | None, header: Header, events: bytes
    ) -> tuple[bytes, str]:
        """Return the bytes of the next record, and its digest.

        Raises:
            NotStorable: it is too large to be read back, or its metadata is not JSON.
        """
        if record.full:
            proof.before = self.digest
        record.proof = proof
        covered = link(self.digest, self.ref, id, parent, encode_header(header), b"" if proof.events else events)
        content = content_of(record)
        made = digest(covered, content, self.key)
        return sealed(content, made), made


_encode = msgspec.json.Encoder().encode
_SHORT = 256
_short_digest = lru_cache(maxsize=64)(digest)  # Most pauses are logged in the same few words.


def link(before: str, ref: SessionRef, id: str, parent: str | None, header: bytes, events: bytes) -> bytes:
    """Return what the digest of a record covers besides its own content: whose it is, where it stands, its events."""
    place = (ref.app, ref.id, ref.user, id, parent)
    return _encode((before, place, len(header), len(events))) + header + events


async def read_left(store: Store, head: Head) -> LeftBranch | None:
    """Return the end of the branch that a session is about to leave; None if it cannot be read.

    Whoever leaves a branch because its end is damaged must be able to do so.
    """
    try:
        loaded = await store.read(Load(head.ref, head.checkpoint))
    except (CheckpointCorrupt, MissingKey):
        return None
    if loaded is None:
        return None
    return LeftBranch(head.checkpoint, chain_of(loaded.rows[-1]), {each.id: ended_by(each) for each in loaded.answers})


def ended_by(answer: Answer | Answered) -> Ended:
    """Return the digest of an answer that a record takes up; one that is given with the record has its time."""
    at = answer.at if isinstance(answer, Answered) else None
    return Ended(answer_digest(answer.id, answer.how, answer.by, answer.value), at)
