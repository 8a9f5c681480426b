"""Verifying a log: whether its records, questions and answers are as they were written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from adjourn._engine.proof import Ended, Proof, answer_digest, digest, question_digest
from adjourn._engine.record import Record, chain_of, decode, unchained
from adjourn.errors import (
    AdjournError,
    CheckpointCorrupt,
    CheckpointNotFound,
    CheckpointTooNew,
    MissingKey,
    UsageError,
)
from adjourn.stores._logging import what_is_left_out
from adjourn.stores.kit import Audit, GetHead, ListRecords, ListSessions
from adjourn.stores.protocol import Store
from adjourn.stores.types import AuditEntry, Head, SessionRef, StoredRecord

from ._chain import link
from ._log import count_events
from .history import split_id

PAGE = 200
"""How many records are read at a time."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Something in a session's log that is not as it was written, and where: a checkpoint, a question, or neither."""

    what: str
    checkpoint_id: str | None = None
    interrupt_id: str | None = None

    @property
    def where(self) -> str:
        """The record and the question that it is about, in words; empty if neither."""
        names = [f"record '{self.checkpoint_id}'"] if self.checkpoint_id is not None else []
        names += [f"question '{self.interrupt_id}'"] if self.interrupt_id is not None else []
        return ", ".join(names)

    def __str__(self) -> str:
        """Return it as a sentence."""
        return f"{self.where}: {self.what}" if self.where else self.what


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """The result of verifying a session: it `is_sound` if there are no `problems`.

    `records` and `answers` are how many were checked. `untaken` answers have been given, but no record has taken them
    up, so nothing proves them yet. `pruned` names the records before which others are gone; `unproved` is how many
    answers were taken up by those. `head` names the last record with its digest: kept elsewhere and given to a later
    `verify`, it shows that everything up to there is still the same. If it is `signed`, an audit key was given, and
    nobody without it can have made this log; otherwise, whoever can write to the store can have made all digests again.
    """

    session_id: str
    app_name: str
    problems: tuple[Problem, ...]
    records: int = 0
    answers: int = 0
    untaken: int = 0
    unproved: int = 0
    pruned: tuple[str, ...] = ()
    head: str | None = None
    signed: bool = False

    @property
    def is_sound(self) -> bool:
        """Whether everything is as it was written."""
        return not self.problems


async def verify(store: Store, ref: SessionRef, keys: Sequence[bytes], kept: str | None) -> Verification:
    """Verify one session, which others may write meanwhile; `kept` is the `head` of an earlier verification.

    Raises:
        CheckpointNotFound: there is no such session.
        UsageError: `kept` is not what a verification gave.
    """
    if kept is not None and not (isinstance(kept, str) and ":" in kept):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"head={kept!r}: give the `head` of an earlier verification, such as '8c5e6a01.7:Zk3…'.")
    try:
        return await _verify(store, ref, keys, kept)
    except CheckpointCorrupt as damage:
        return _unreadable(ref, damage)


def _unreadable(ref: SessionRef, error: AdjournError | str) -> Verification:
    problem = Problem(what=f"it cannot be read: {error}")
    return Verification(session_id=ref.id, app_name=ref.app, problems=(problem,))


async def verify_all(store: Store, app: str | None, user: str | None, keys: Sequence[bytes]) -> list[Verification]:
    """Verify all sessions, one after the other; those whose rows the store cannot list come last."""
    with what_is_left_out() as left_out:
        heads = await store.read(ListSessions(app=app, user=user))
    found: list[Verification] = []
    for head in heads:
        try:
            found.append(await verify(store, head.ref, keys, None))
        except CheckpointNotFound:
            pass  # It was deleted meanwhile.
        except MissingKey as missing:
            found.append(_unreadable(head.ref, missing))
    damaged = {str(each): SessionRef(each.session_id or "?", app or "?") for each in left_out}
    return found + [_unreadable(ref, what) for what, ref in damaged.items()]


async def _verify(store: Store, ref: SessionRef, keys: Sequence[bytes], kept: str | None) -> Verification:
    # What is listed now has been asked by records up to the head that is read next.
    before = await store.read(Audit(ref, all_branches=True))
    head = await store.read(GetHead(ref))
    if head is None:
        raise CheckpointNotFound(ref.id)
    log = _Log(head, keys)
    after: str | None = None
    while not log.is_complete and (page := await store.read(ListRecords(head.ref, after=after, limit=PAGE))):
        for each in page:
            if not log.is_complete:
                log.read(each)
        after = page[-1].id
    log.end(kept)
    rows = _Rows(log, await store.read(Audit(head.ref, all_branches=True)))
    rows.check({(each.branch, each.id) for each in before})
    problems = (*log.problems, *rows.problems)
    return Verification(
        session_id=head.session,
        app_name=head.app,
        problems=problems,
        records=log.count,
        answers=rows.answers,
        untaken=rows.untaken,
        unproved=rows.unproved,
        pruned=tuple(log.pruned),
        head=log.last,
        signed=bool(keys) and not problems,
    )


_ALSO = {("waiting", "running"), ("done", "queued")}


class _Log:
    """The records of a session, read one after the other."""

    def __init__(self, head: Head, keys: Sequence[bytes]) -> None:
        self._head = head
        self._keys: Sequence[bytes | None] = (*keys, None)
        self._digests: dict[str, str | None] = {}
        self._parents: dict[str, str | None] = {}
        self._lefts: dict[str, str] = {}
        self._unsigned: set[str] = set()
        self._unpaused: set[str | None] = set()
        self._blank: list[str] = []
        self._position = -1
        self._before: str | None = None
        self._seq: int | None = 0
        self._status: str | None = None
        self.is_complete = not head.checkpoint
        self.count = 0
        self.times: dict[str, float] = {}
        self.proofs: dict[str, Proof] = {}
        self.pruned: list[str] = []
        self.torn: set[str] = set()
        """Branches of which records are gone."""
        self.problems: list[Problem] = []

    @property
    def last(self) -> str | None:
        """The last record with its digest."""
        found = self._digests.get(self._head.checkpoint)
        return None if found is None else f"{self._head.checkpoint}:{found}"

    def _report(self, stored: StoredRecord | str, what: str) -> None:
        name = stored if isinstance(stored, str) else stored.id
        self.problems.append(Problem(what=what, checkpoint_id=name))

    def read(self, stored: StoredRecord) -> None:
        """Check the next record."""
        self.count += 1
        self.is_complete = stored.id == self._head.checkpoint
        self._parents[stored.id] = stored.parent
        if stored.pos != self._position + 1:
            self._note_gap(stored)
        record = self._decoded(stored)
        proof = msgspec.UNSET if record is None else record.proof
        if record is None or proof is msgspec.UNSET:
            self._digests[stored.id] = self._seq = self._status = None
        else:
            self._check_named(stored, proof)
            self._check_left(stored, proof)
            self._check_chain(stored, record, proof)
            self._check_events(stored, proof)
            self._check_times(stored, proof)
            self._digests[stored.id], self._seq, self._status = chain_of(stored.body), stored.seq, proof.status
            self.times[stored.id], self.proofs[stored.id] = stored.at, proof
            if proof.unpaused:
                self._unpaused.add(stored.parent)
        self._position, self._before = stored.pos, stored.id

    def _decoded(self, stored: StoredRecord) -> Record | None:
        if stored.damaged:
            self._report(stored, "its row cannot be read")
            return None
        try:
            record = decode(stored.body)
        except (CheckpointCorrupt, CheckpointTooNew) as error:
            self._report(stored, f"it cannot be read: {error}")
            return None
        if record.proof is msgspec.UNSET or not chain_of(stored.body):
            self._report(stored, "it has no digest")
        return record

    def _note_gap(self, stored: StoredRecord) -> None:
        """Note that records before this one are gone; pruning leaves a full record after those that it removes."""
        if not stored.full:
            self._report(stored, "records before it are missing")
        self.pruned.append(stored.id)
        self._seq = None
        branch, number = split_id(stored.id)
        if number:
            self.torn.add(branch)
        if self._before is not None:
            self.torn.add(split_id(self._before)[0])

    def _check_named(self, stored: StoredRecord, proof: Proof) -> None:
        """Check that records are there which this one names: the one it comes after, and the end of a branch it left.

        Pruning keeps what a branch comes from, and leaves the positions of what it removes empty.
        """
        if stored.id in self.pruned:
            return
        named = [] if stored.parent is None else [stored.parent]
        named += [f"{each.branch}.{each.last}" for each in proof.stored if each.branch is not None]
        for name in named:
            if name not in self._parents:
                self._report(stored, f"'{name}', which was written before it, is gone, and was not pruned")
                self.torn.add(split_id(name)[0])

    def _check_left(self, stored: StoredRecord, proof: Proof) -> None:
        """Check that the branch that was left for this record's ends as it did then."""
        left = proof.left
        if left is None:
            return
        found = self._digests.get(left.record)
        if found is not None and found != left.digest:
            self._report(left.record, f"its digest is not the one that '{stored.id}' has of it, which left its branch")
        self._lefts[stored.id] = left.record

    def _check_chain(self, stored: StoredRecord, record: Record, proof: Proof) -> None:
        if record.full != stored.full:
            self._report(stored, "its row does not say whether it is a full one, as it does itself")
        before = self._digests.get(stored.parent or "") or proof.before
        if stored.parent is not None and not before:
            return  # What is wrong with the one before it has been reported.
        if record.full and proof.before != before:
            self._report(stored, f"it was not written after '{stored.parent}' as that is now")
        ref, header = self._head.ref, msgspec.json.encode(stored.header)
        covered = link(before, ref, stored.id, stored.parent, header, b"" if proof.events else stored.events)
        found, content = chain_of(stored.body), unchained(stored.body)
        keys = [key for key in self._keys if digest(covered, content, key=key) == found]
        if not keys:
            signed = "" if len(self._keys) > 1 else ", or it was signed, and no audit key is given here"
            self._report(stored, f"it is not what was written there: its digest does not match{signed}")
        elif keys == [None] and len(self._keys) > 1:
            self._unsigned.add(stored.id)

    def _check_events(self, stored: StoredRecord, proof: Proof) -> None:
        if proof.events and not stored.events:
            self._blank.append(stored.id)
        elif proof.events and digest(stored.events) != proof.events:
            self._report(stored, "its events are not what was written")
        if not _counts(stored) or self._seq not in (None, stored.seq - stored.count):
            self._report(stored, "its row does not have the numbers of its events")

    def _check_times(self, stored: StoredRecord, proof: Proof) -> None:
        before = split_id(stored.parent or stored.id)[0]
        for each in proof.stored:
            branch = before if each.branch is None else each.branch
            for number in range(each.first, min(each.last, each.first + self.count) + 1):
                name = f"{branch}.{number}"
                if self.times.get(name, each.at) != each.at:
                    self._report(name, f"it was written at {each.at:f}, and now has the time {self.times[name]:f}")

    def end(self, kept: str | None) -> None:
        """Check what only the whole log shows."""
        head = self._head
        if not self.is_complete:
            self._report(head.checkpoint, "it is the session's head, and is missing")
        elif self._status is not None and not self._is_status(self._status):
            self._report(head.checkpoint, f"it left the session as '{self._status}', which is now '{head.status}'")
        if self._seq not in (None, head.seq) and self._status is not None:
            self._report(head.checkpoint, "the session does not have the number of its last event")
        if self.times.get(head.checkpoint, head.updated) != head.updated:
            self._report(head.checkpoint, "it does not have the time of the session's last write")
        for name in self._blank:
            if name not in self._unpaused and not self._may_be_blank(name):
                self._report(name, "its events are missing")
        self._check_signed()
        if kept is not None:
            self._compare(kept)

    def _is_status(self, status: str) -> bool:
        # A pause that answers overtook is stored as running, and a turn may be done with others waiting behind it.
        return self._head.status == status or (status, self._head.status) in _ALSO

    def _may_be_blank(self, name: str) -> bool:
        """Return whether a pause may have met answers just before its process died: then nothing came after it."""
        branch, number = split_id(name)
        if f"{branch}.{number + 1}" in self._digests:
            return False
        return name != self._head.checkpoint or self._head.status == "running"

    def _check_signed(self) -> None:
        """Report records that nobody has signed; what comes before a signed one is covered by it."""
        covered: set[str | None] = set()
        for name in reversed(self._parents):
            if name in self._unsigned and name not in covered:
                self._report(name, "it was not signed with the audit key, and no signed record follows it")
            else:
                covered.update((self._parents[name], self._lefts.get(name)))

    def _compare(self, kept: str) -> None:
        name, _, expected = kept.rpartition(":")
        if name not in self._digests:
            gone = (
                "its digest was kept, but it is gone: the log was cut off, or pruned, or the head is another session's"
            )
            self._report(name, gone)
        elif self._digests[name] != expected:
            self._report(name, "its digest is not the one that was kept")


def _counts(stored: StoredRecord) -> bool:
    """Return whether a record has as many events as its row says; a listed one without any may be one, or none."""
    count = count_events(stored.events)
    if count is None:
        return False
    return stored.count == count + (stored.header.source is not None) or stored.count == count == 0


class _Rows:
    """The questions of a session and how they ended, compared with what the records say."""

    def __init__(self, log: _Log, rows: Sequence[AuditEntry]) -> None:
        self._log = log
        self._rows = {(row.branch, row.id): row for row in rows}
        self.problems: list[Problem] = []
        self.answers = 0
        self.untaken = 0
        self.unproved = 0

    def check(self, known: set[tuple[str, str]]) -> None:
        """Check the questions; those `known` before the log was read must have been asked by it."""
        asked: set[tuple[str, str]] = set()
        ended: set[tuple[str, str]] = set()
        for name, proof in self._log.proofs.items():
            branch = split_id(name)[0]
            asked.update((branch, each) for each in proof.asked)
            ended.update((branch, each) for each in proof.ended)
            self._check_asked(name, branch, proof)
            self._check_ended(name, branch, proof.asked, proof.ended)
            if proof.left is not None:
                branch = split_id(proof.left.record)[0]
                ended.update((branch, each) for each in proof.left.ended)
                self._check_ended(name, branch, {}, proof.left.ended)
        self.answers = len(ended & self._rows.keys())
        branches = {split_id(name)[0] for name in self._log.proofs}
        for at, row in self._rows.items():
            torn = row.branch in self._log.torn or row.branch not in branches
            if at in known and at not in asked and not torn:
                self.problems.append(Problem(what="no record asked it", interrupt_id=row.id))
            if row.how is not None and at not in ended:
                self.unproved += torn
                self.untaken += not torn

    def _check_asked(self, name: str, branch: str, proof: Proof) -> None:
        for each, expected in proof.asked.items():
            row = self._rows.get((branch, each))
            if row is None:
                self._report(name, each, "it was asked here, and is gone or cannot be read")
            elif question_digest(each, row.body, row.expires) != expected:
                self._report(name, each, "it is not what was asked")

    def _check_ended(self, name: str, branch: str, asked: Mapping[str, str], found: Mapping[str, Ended]) -> None:
        for each, ended in found.items():
            row = self._rows.get((branch, each))
            if row is None:
                if each not in asked:
                    self._report(name, each, "its answer was taken up here, and it is gone or cannot be read")
                continue
            at = self._log.times[name] if ended.at is None else ended.at
            if row.how is None:
                self._report(name, each, "it had ended, and is open now")
            elif answer_digest(each, row.how, row.by, row.value or b"") != ended.digest:
                self._report(name, each, "its answer, or who gave it, is not what was taken up")
            elif row.at != at:
                self._report(name, each, f"it ended at {at:f}, and now has the time {row.at:f}")

    def _report(self, checkpoint: str, question: str, what: str) -> None:
        self.problems.append(Problem(what=what, checkpoint_id=checkpoint, interrupt_id=question))
