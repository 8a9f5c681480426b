"""A store that encrypts what another store keeps."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from msgspec.structs import replace

from adjourn.errors import AlreadyResumed, CheckpointCorrupt, CheckpointNotFound, Conflict, MissingKey, UsageError
from adjourn.stores._logging import note_damage, note_missing_key
from adjourn.stores._wrapper import StoreWrapper
from adjourn.stores.kit import place_of
from adjourn.stores.protocol import Hints, InTransaction, SeesCancels, Store
from adjourn.stores.types import (
    ALL_QUESTIONS,
    OWN_APPS,
    Answer,
    AuditEntry,
    CheckpointRow,
    Claimed,
    Committed,
    EventBatch,
    Head,
    Input,
    Lease,
    Loaded,
    OpenQuestion,
    QuestionFilter,
    QueuedInput,
    SessionRef,
    StoredRecord,
    TakenNotice,
    Write,
)

from ._keys import VARIABLE, Keys, generate_key, keys_from_environment
from ._sealing import Sealing, keys_of

_AT_A_TIME = 1000  # records that are looked at


class EncryptedStore(StoreWrapper):
    """Encrypts what `inner` keeps, with AES-GCM: everything but ids, addresses, users, statuses, times and counters.

    `keys` are 32 random bytes each, or those in base64, by an id of your choice. The first of them encrypts, or the one
    that `current` names; all of them decrypt. What was encrypted for one row does not open in another, and what is not
    encrypted is refused.

    Raises:
        UsageError: a key is not valid, or `cryptography` is not installed.
    """

    def __init__(self, inner: Store, keys: Mapping[str, bytes | str], *, current: str | None = None) -> None:
        if not hasattr(inner, "commit"):
            raise UsageError(f"EncryptedStore({inner!r}, ...): give the store to encrypt, such as SQLiteStore('a.db').")
        self._wrap(inner, Keys(keys, current))

    def _wrap(self, inner: Store, keys: Keys) -> None:
        super().__init__(inner)
        self._keys = keys
        self._sealing = Sealing(keys)
        if isinstance(inner, SeesCancels):
            self.cancels: Callable[[Sequence[Lease]], Awaitable[list[str | None]]] = inner.cancels
        if isinstance(inner, Hints):
            self.hints: Callable[[], AsyncGenerator[SessionRef | None]] = inner.hints
        if isinstance(inner, InTransaction):
            self.is_in_transaction: bool = inner.is_in_transaction

    @classmethod
    def from_env(cls, inner: Store, variable: str = VARIABLE) -> EncryptedStore:
        """Encrypt with the keys of an environment variable, 'id:key' or 'new:key,old:key'.

        Raises:
            UsageError: it is not set, or not in this form.
        """
        return cls(inner, keys_from_environment(variable))

    def over(self, inner: Store) -> EncryptedStore:
        """Return a store that encrypts with the same keys what `inner` keeps, such as `store.on(connection)`."""
        other = EncryptedStore.__new__(EncryptedStore)
        other._wrap(inner, self._keys)
        return other

    @staticmethod
    def generate_key() -> str:
        """Return a new random key, in base64."""
        return generate_key()

    @property
    def key_ids(self) -> tuple[str, ...]:
        """The ids of its keys, first of all the one that encrypts."""
        current = self._keys.current
        return (current.id, *(key.id for key in self._keys if key is not current))

    async def keys_in_use(self, *, apps: Sequence[str] = ()) -> dict[str, int]:
        """Return how many sessions hold something that was encrypted with each key; this reads the whole store.

        A key that is not among them can be taken away, except that notices which nobody has sent yet, and what servers
        keep under an `Idempotency-Key` for a day, are not counted. Sessions of an app include what its users have
        approved for always; if that is all that an app has left, name it in `apps`.
        """
        found: dict[str, int] = {key.id: 0 for key in self._keys}
        heads = await self.inner.sessions()
        for app in sorted({*(head.app for head in heads), *apps}):
            heads += await self.inner.sessions(app=OWN_APPS + app)
        for head in heads:
            for name in await self._keys_of(head.ref):
                found[name] = found.get(name, 0) + 1
        return {name: count for name, count in found.items() if count}

    async def _keys_of(self, ref: SessionRef) -> set[str]:
        used: set[str] = set()
        after: str | None = None
        try:
            while rows := await self.inner.records(ref, after=after, limit=_AT_A_TIME):
                used |= keys_of(rows, ())
                after = rows[-1].id
            asked, queued = await self.inner.audit(ref, all_branches=True), await self.inner.inputs(ref)
            return used | keys_of((), asked, queued)
        except CheckpointNotFound:
            return used  # deleted since

    @property
    def keys_fingerprint(self) -> bytes:
        """A digest that is the same for the same keys, and reveals nothing of them."""
        return self._keys.fingerprint

    def __repr__(self) -> str:
        return f"EncryptedStore({self.inner!r}, keys={list(self.key_ids)})"

    async def claim(
        self,
        ref: SessionRef,
        owner: str,
        ttl: float,
        *,
        after: str | None,
        write: Write | None = None,
        answers: Sequence[Answer] = (),
        replaces: str | None = None,
        alone: bool = False,
    ) -> Claimed:
        sealed = None if write is None else self._sealing.write(ref, write)
        while True:
            placed = await self._placed(ref, answers)
            try:
                return await self.inner.claim(
                    ref,
                    owner,
                    ttl,
                    after=after,
                    write=sealed,
                    answers=self._sealed(ref, placed),
                    replaces=replaces,
                    alone=alone,
                )
            except AlreadyResumed as late:
                raise self._opened(ref, late, placed) from None
            except Conflict:
                if not await self._has_left(ref, answers, placed):
                    raise

    async def commit(self, lease: Lease, *writes: Write, after: str, release: bool = False) -> Committed:
        ref, branch = lease.ref, writes[-1].branch
        sealed = [self._sealing.write(ref, write) for write in writes]
        try:
            committed = await self.inner.commit(lease, *sealed, after=after, release=release)
        except AlreadyResumed as late:
            closes = [replace(given, branch=write.branch) for write in writes for given in write.closes]
            raise self._opened(ref, late, closes) from None
        if not committed.answers:
            return committed
        return replace(committed, answers=self._sealing.answers(ref, branch, committed.answers))

    async def answer(self, ref: SessionRef, answers: Sequence[Answer], *, after: str | None = None) -> Head:
        while True:
            placed = await self._placed(ref, answers)
            try:
                return await self.inner.answer(ref, self._sealed(ref, placed), after=after)
            except AlreadyResumed as late:
                raise self._opened(ref, late, placed) from None
            except Conflict:
                if not await self._has_left(ref, answers, placed):
                    raise

    async def submit(self, ref: SessionRef, input: Input) -> Head:
        sealed, *others = self._sealing.inputs(ref, input)
        try:
            return await self.inner.submit(ref, sealed)
        except Conflict:
            # The very same may have been submitted while another key was the current one.
            for each in others:
                with suppress(Conflict):
                    return await self.inner.submit(ref, each)
            raise

    async def inputs(self, ref: SessionRef, *, limit: int | None = None) -> list[QueuedInput]:
        return [self._sealing.queued(ref, row) for row in await self.inner.inputs(ref, limit=limit)]

    async def _placed(self, ref: SessionRef, answers: Sequence[Answer]) -> Sequence[Answer]:
        """Return answers with the branch that each is bound to, the head's if it names none."""
        if all(given.branch is not None for given in answers):
            return answers
        branch = await self._branch(ref)
        return [given if given.branch is not None else replace(given, branch=branch) for given in answers]

    async def _has_left(self, ref: SessionRef, answers: Sequence[Answer], placed: Sequence[Answer]) -> bool:
        """Return whether the head has left a branch that `_placed` chose."""
        chosen = {new.branch for old, new in zip(answers, placed, strict=True) if old.branch is None}
        return bool(chosen) and chosen != {await self._branch(ref)}

    async def _branch(self, ref: SessionRef) -> str:
        head = await self.inner.head(ref)
        return "" if head is None else head.branch

    def _sealed(self, ref: SessionRef, answers: Iterable[Answer]) -> list[Answer]:
        return [self._sealing.answer(ref, given.branch or "", given) for given in answers]

    def _opened(self, ref: SessionRef, late: AlreadyResumed, given: Sequence[Answer]) -> AlreadyResumed:
        """Return the error for an answer that comes too late, with the name of who was there before."""
        for each in given:
            if each.id == late.interrupt_id and late.by is not None:
                late.by = self._sealing.name(ref, each.branch or "", each.id, late.by)
                break
        return late

    async def load(self, ref: SessionRef, checkpoint: str | None = None) -> Loaded | None:
        found = await self.inner.load(ref, checkpoint)
        return None if found is None else self._sealing.loaded(found)

    async def checkpoints(
        self,
        ref: SessionRef,
        *,
        limit: int | None = None,
        before: str | None = None,
        source: str | None = None,
        under: str | None = None,
    ) -> list[CheckpointRow]:
        rows = await self.inner.checkpoints(ref, limit=limit, before=before, source=source, under=under)
        return [self._sealing.checkpoint(ref, row) for row in rows]

    async def questions(
        self,
        ref: SessionRef | None = None,
        *,
        filter: QuestionFilter = ALL_QUESTIONS,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[OpenQuestion]:
        if ref is None:
            return await self._listed(filter, after, limit)
        return [self._sealing.open_question(row) for row in await self._rows(ref, filter, after, limit)]

    async def _rows(
        self, ref: SessionRef | None, filter: QuestionFilter, after: str | None, limit: int | None
    ) -> list[OpenQuestion]:
        """Return open questions as they are stored."""
        found: list[OpenQuestion] = []
        for each in self._sealing.filters(filter):
            found += await self.inner.questions(ref, filter=each, after=after, limit=limit)
        found.sort(key=lambda row: place_of(row.cursor))
        return found[:limit]

    async def _listed(self, filter: QuestionFilter, after: str | None, limit: int | None) -> list[OpenQuestion]:
        """Return open questions of all sessions; those that cannot be opened are left out, and do not count.

        Raises:
            MissingKey: there are questions, and none of them can be opened.
        """
        found: list[OpenQuestion] = []
        missing: MissingKey | None = None
        behind, is_done = after, False
        while not is_done:
            rows = await self._rows(None, filter, behind, limit)
            for row in rows:
                try:
                    found.append(self._sealing.open_question(row))
                except CheckpointCorrupt as damage:
                    note_damage(damage)
                except MissingKey as error:
                    note_missing_key(row.session, error)
                    missing = error
            is_done = not limit or len(rows) < limit or len(found) >= limit
            behind = rows[-1].cursor if rows else None
        if missing is not None and not found and after is None:
            raise missing
        return found[:limit]

    async def count_questions(self, filter: QuestionFilter = ALL_QUESTIONS) -> int:
        return sum([await self.inner.count_questions(each) for each in self._sealing.filters(filter)])

    async def audit(
        self, ref: SessionRef, branch: str | None = None, *, all_branches: bool = False
    ) -> list[AuditEntry]:
        return self._sealing.audit(ref, await self.inner.audit(ref, branch, all_branches=all_branches))

    async def records(
        self, ref: SessionRef, *, after: str | None = None, limit: int | None = None
    ) -> list[StoredRecord]:
        return [self._sealing.record(ref, row) for row in await self.inner.records(ref, after=after, limit=limit)]

    async def asked(self, ref: SessionRef, branch: str, ids: Sequence[str]) -> list[AuditEntry]:
        return [self._sealing.entry(ref, row) for row in await self.inner.asked(ref, branch, ids)]

    async def events(self, ref: SessionRef, after: int = 0, *, limit: int | None = None) -> list[EventBatch]:
        return [self._sealing.events(ref, batch) for batch in await self.inner.events(ref, after, limit=limit)]

    async def take_notices(self, app: str, to: Sequence[str], ttl: float, *, limit: int = 100) -> list[TakenNotice]:
        taken = await self.inner.take_notices(app, to, ttl, limit=limit)
        found: list[TakenNotice] = []
        for each in taken:
            try:
                found.append(self._sealing.notice(each))
            except CheckpointCorrupt as damage:
                note_damage(damage)
            except MissingKey as error:
                note_missing_key(each.session, error)
        return found
