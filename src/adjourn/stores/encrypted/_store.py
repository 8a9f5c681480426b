"""A store that encrypts what another store keeps."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

import msgspec
from msgspec.structs import replace

from adjourn.errors import CheckpointCorrupt, MissingKey, UsageError
from adjourn.stores._logging import note_damage, note_missing_key
from adjourn.stores._wrapper import StoreWrapper
from adjourn.stores.kit.inbox import rank
from adjourn.stores.kit.queries import (
    CountQuestions,
    ListDecisions,
    ListOpen,
    ListQuestions,
    ListSessions,
    SessionQuery,
    StoreQuery,
)
from adjourn.stores.kit.requests import StoreRequest, TakeNotices, is_of_session
from adjourn.stores.protocol import Hints, InTransaction, Repairs, SeesCancels, Store
from adjourn.stores.types import (
    OWN_APPS,
    Decided,
    Lease,
    OpenQuestion,
    QuestionFilter,
    SessionRef,
    TakenNotice,
)

from ._keys import VARIABLE, Keys, generate_key, keys_from_environment
from ._sealing import KeysInUse, SealedQuery, SealedRequest, Sealing

T = TypeVar("T")


class EncryptedStore(StoreWrapper):
    """Encrypts what `inner` keeps, with AES-GCM: everything but ids, addresses, users, statuses, times and counters.

    `keys` are 32 random bytes each, or those in base64, by an id of your choice. The first of them encrypts, or the one
    that `current` names; all of them decrypt. What was encrypted for one row does not open in another, and what is not
    encrypted is refused.

    Raises:
        UsageError: a key is not valid, or `cryptography` is not installed.
    """

    def __init__(self, inner: Store, keys: Mapping[str, bytes | str], *, current: str | None = None) -> None:
        if not hasattr(inner, "renew"):
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
        if isinstance(inner, Repairs):
            self.repair: Callable[[], Awaitable[int]] = inner.repair
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
        heads = await self.inner.read(ListSessions())
        for app in sorted({*(head.app for head in heads), *apps}):
            heads += await self.inner.read(ListSessions(app=OWN_APPS + app))
        for head in heads:
            for name in await self.inner.read(KeysInUse(head.ref)):
                found[name] = found.get(name, 0) + 1
        return {name: count for name, count in found.items() if count}

    @property
    def keys_fingerprint(self) -> bytes:
        """A digest that is the same for the same keys, and reveals nothing of them."""
        return self._keys.fingerprint

    def __repr__(self) -> str:
        return f"EncryptedStore({self.inner!r}, keys={list(self.key_ids)})"

    async def write(self, request: StoreRequest[T]) -> T:
        if isinstance(request, TakeNotices):
            return cast("T", self._opened(await self.inner.write(request)))
        return await self.inner.write(SealedRequest(request, self._sealing) if is_of_session(request) else request)

    async def read(self, query: StoreQuery[T]) -> T:
        if isinstance(query, ListOpen):
            return cast("T", await self._open(query))
        if isinstance(query, SessionQuery):
            return await self.inner.read(SealedQuery(query.ref, query, self._sealing))
        if isinstance(query, ListQuestions | ListDecisions):
            return cast("T", await self._listed(query))
        if isinstance(query, CountQuestions):
            filters = self._sealing.filters(query.filter)
            return cast("T", sum([await self.inner.read(CountQuestions(each)) for each in filters]))
        return await self.inner.read(query)

    def _opened(self, taken: list[TakenNotice]) -> list[TakenNotice]:
        found: list[TakenNotice] = []
        for each in taken:
            try:
                found.append(self._sealing.notice(each))
            except CheckpointCorrupt as damage:
                note_damage(damage)
            except MissingKey as error:
                note_missing_key(each.session, error)
        return found

    async def _open(self, query: ListOpen) -> list[OpenQuestion]:
        """Return the open questions of a session; of their takers and groups there are only digests."""
        found: list[OpenQuestion] = []
        for each in self._sealing.filters(QuestionFilter(group=query.filter.group, taker=query.filter.taker)):
            chosen = replace(query, filter=replace(query.filter, group=each.group, taker=each.taker))
            found += await self.inner.read(SealedQuery(query.ref, chosen, self._sealing))
        found.sort(key=lambda row: rank(row.cursor))
        return found[: query.limit]

    async def _listed(self, query: ListQuestions | ListDecisions) -> list[OpenQuestion | Decided]:
        """Return questions of many sessions; those that cannot be opened are left out, and do not count.

        Raises:
            MissingKey: there are questions, and none of them can be opened.
        """
        found: list[OpenQuestion | Decided] = []
        missing: MissingKey | None = None
        limit, behind, is_done = query.limit, query.after, False
        while not is_done:
            rows = await self._rows(replace(query, after=behind))
            for row in rows:
                try:
                    found.append(self._sealing.listed(row))
                except CheckpointCorrupt as damage:
                    note_damage(damage)
                except MissingKey as error:
                    note_missing_key(row.session, error)
                    missing = error
            is_done = not limit or len(rows) < limit or len(found) >= limit
            behind = rows[-1].cursor if rows else None
        if missing is not None and not found and query.after is None:
            raise missing
        return found[:limit]

    async def _rows(self, query: ListQuestions | ListDecisions) -> list[OpenQuestion | Decided]:
        """Return questions as they are stored, whichever key their labels were digested with."""
        found: list[OpenQuestion | Decided] = []
        for each in self._sealing.filters(cast("msgspec.Struct", query.filter)):
            found += await self.inner.read(cast("StoreQuery[list[Any]]", replace(query, filter=each)))
        found.sort(key=lambda row: rank(row.cursor), reverse=isinstance(query, ListDecisions))
        return found[: query.limit]
