"""The end of a log's chain, as its writer knows it: what makes the digest of the next record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from adjourn._engine.proof import Ended, LeftBranch, Proof, Stored, answer_digest, digest, link, question_digest
from adjourn._engine.record import Record, chain_of, chained
from adjourn.errors import CheckpointCorrupt, MissingKey
from adjourn.stores.kit import Load, encode_header
from adjourn.stores.protocol import Store
from adjourn.stores.types import Answer, Answered, Head, Header, Loaded, Question, SessionRef

from .history import split_id


class Chain:
    """Chains the records of one session, each to the one before it.

    `digest` is that of the last record that was made, whether or not it is stored yet.
    """

    __slots__ = ("_key", "_left", "_ref", "_stored", "digest", "unpaused")

    def __init__(self, ref: SessionRef, key: bytes | None = None) -> None:
        self._ref = ref
        self._key = key
        self._stored: list[Stored] = []
        self._left: LeftBranch | None = None
        self.digest: str = ""
        self.unpaused: bool = False
        """Whether the last record was made to pause, and the run went on instead."""

    def stand(self, loaded: Loaded, *, pauses: bool) -> None:
        """Go on after a record that was loaded; `pauses` is whether it was made to pause."""
        head, (_, number) = loaded.head, split_id(loaded.point)
        self.digest = chain_of(loaded.rows[-1])
        self._stored = [Stored(number, number, loaded.at)] if loaded.at else []
        if loaded.point == head.checkpoint:
            self.unpaused = pauses and head.status == "running"
        else:
            # The branch that the head leaves has no later record that could say when its last one was stored.
            branch, last = split_id(head.checkpoint)
            self._stored.append(Stored(last, last, head.updated, branch))

    def leave(self, left: LeftBranch | None) -> None:
        """Begin another branch with the next record."""
        self._left = left

    def fork(self, origin: Loaded) -> None:
        """Begin a new session with the digest of the record that it is forked from."""
        self.digest = chain_of(origin.rows[-1])

    def note_stored(self, first: int, last: int, at: float) -> None:
        """Learn when records were stored."""
        self._stored.append(Stored(first, last, at))

    def proof(
        self, status: str, asks: Sequence[Question], ended: Mapping[str, Ended], paused: bytes | None = None
    ) -> Proof:
        """Return what the next record proves; `paused` are its events if it is made to pause."""
        proof = Proof(status=status, stored=self._stored, unpaused=self.unpaused, ended=dict(ended) if ended else {})
        self._stored, self.unpaused = [], False
        if self._left is not None:
            proof.left = self._left
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
        noted = b"" if proof.events else events
        covered = link(self.digest, place(self._ref, id, parent), encode_header(header), noted)
        return chained(record, covered, self._key)

    def move(self, digest: str) -> None:
        """Stand at the record that was made last."""
        self.digest, self._left = digest, None


_SHORT = 256
_short_digest = lru_cache(maxsize=64)(digest)  # Most pauses are logged in the same few words.


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


def place(ref: SessionRef, id: str, parent: str | None) -> tuple[str | None, ...]:
    """Return whose record it is and where it stands."""
    return (ref.app, ref.id, ref.user, id, parent)


def ended_by(answer: Answer | Answered) -> Ended:
    """Return the digest of an answer that a record takes up; one that is given with the record has its time."""
    at = answer.at if isinstance(answer, Answered) else None
    return Ended(answer_digest(answer.id, answer.how, answer.by, answer.value), at)
