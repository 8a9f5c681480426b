"""A store on a Redis or Valkey server, for any number of processes and machines."""

# An override is documented where it is declared.

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

from adjourn.errors import CheckpointCorrupt, StoreUnavailable
from adjourn.stores._logging import log, note_damage
from adjourn.stores.kit.effects import Applied, Effects
from adjourn.stores.kit.facts import FactSheet, FactsWanted
from adjourn.stores.kit.inbox import stretches
from adjourn.stores.kit.queries import (
    CountQuestions,
    FindSessions,
    ListBegun,
    ListDecisions,
    ListDue,
    ListIdle,
    ListQuestions,
    ListSessions,
    StoreQuery,
)
from adjourn.stores.kit.reading import readable
from adjourn.stores.kit.requests import Delete, DropNotices, SessionRequest, SettleNotice, StoreRequest, TakeNotices
from adjourn.stores.kit.rows import head_of
from adjourn.stores.kit.store import RemoteStore, unknown_request
from adjourn.stores.types import Lease, Renewed, SessionRef

from ._decided import decisions
from ._inbox import Inbox
from ._keys import index_prefix, session_keys
from ._listings import Listings, first, names_in
from ._log import Log
from ._repair import rebuild
from ._reply import Found, read_begun, read_hint, read_notice
from ._rows import marked
from ._server import NOW, OUTBOX, READ, REMOVE, WRITE, Command, Reply, Server, check_installed, not_text
from ._settings import check_settings
from ._urls import parse_address
from ._writes import Fields, Writing, facts_table, packed, removal, renewal

T = TypeVar("T")


class RedisStore(RemoteStore):
    """Keeps sessions on one Redis or Valkey server, with or without replicas.

    `url` is `redis://user:password@host:6379/0`, or with `rediss://`, `valkey://`, `valkeys://` or `unix://`. With
    `ttl`, a session is removed that many seconds after its last commit, answer or renewal. A server whose settings can
    lose checkpoints is refused at the first call, unless `accept_loss` is True. A call fails after `timeout` seconds.
    Each event loop opens up to `pool_size` connections, at the first call; after `close`, at the next one. Safe to use
    from any loop, thread or process, even after a fork. Times are the server's, unless `clock` gives them, for tests.
    """

    def __init__(
        self,
        url: str,
        *,
        ttl: float | None = None,
        accept_loss: bool = False,
        timeout: float = 30.0,
        pool_size: int = 50,
        clock: Callable[[], float] | None = None,
    ) -> None:
        super().__init__()
        check_installed()
        self.wants_summaries: bool = True
        address = parse_address(url, ttl=ttl, accept_loss=accept_loss, timeout=timeout, pool_size=pool_size)
        self.ttl: float | None = address.ttl
        self._address = address
        self._clock = clock
        self._checked = False
        self._channel = f"adj:hints:{address.database}"
        self._server = Server(address.url, address.shown, timeout=address.timeout, pool_size=address.pool_size)
        self._listings = Listings(self._server)
        self._inbox = Inbox(self._server)
        self._log = Log(self._server)

    def __repr__(self) -> str:
        return f"RedisStore({self._address.shown!r})"

    # Reading facts, and writing

    async def facts(self, wanted: FactsWanted) -> FactSheet:
        await self._ready()
        ref, given = wanted.ref, packed(facts_table(wanted) | {"now": self._time()})
        found = Found(await self._server.script(READ, session_keys(ref.app, ref.id), given, session=ref.id), wanted)
        return found.sheet(await self._log.read(found))

    async def apply(self, effects: Effects) -> Applied | None:
        await self._ready()
        writing, ref = Writing(effects), effects.ref
        try:
            fields = writing.fields()
        except UnicodeEncodeError as error:
            raise not_text(error) from error
        given = self._given(fields, ref if effects.is_news else None)
        reply = await self._server.script(WRITE, session_keys(ref.app, ref.id), given, session=ref.id)
        return None if reply is None else writing.applied(reply)

    async def carry_out(self, request: SessionRequest[T]) -> T:
        done = await super().carry_out(request)
        asked = request.plain
        if isinstance(asked, Delete) and asked.idle is None and not done:
            await self._remove(asked.ref, is_damaged=False)  # if its row is gone, the rest may still be there
        return done

    async def remove_damaged(self, request: Delete, damage: CheckpointCorrupt) -> bool:
        if not await self._remove(request.ref, is_damaged=True):
            raise damage
        return True

    async def _remove(self, ref: SessionRef, *, is_damaged: bool) -> Reply:
        given = packed(removal(ref, is_damaged))
        return await self._server.script(REMOVE, session_keys(ref.app, ref.id), given, session=ref.id)

    async def renew(self, leases: Sequence[Lease]) -> list[Renewed]:
        calls = [
            (
                session_keys(lease.ref.app, lease.ref.id),
                self._given(renewal(lease), None if lease.ttl else lease.ref),
            )
            for lease in leases
        ]
        sessions = [lease.ref.id for lease in leases]
        done = await self._server.scripts(WRITE, calls, sessions, reserved=True) if calls else []
        return [_renewed(lease, each) for lease, each in zip(leases, done, strict=True)]

    async def cancels(self, leases: Sequence[Lease]) -> list[str | None]:
        rows = [session_keys(lease.ref.app, lease.ref.id)[0] for lease in leases]
        commands: list[Command] = [("HMGET", row, "fence", "cancel") for row in rows]
        found = await self._server.gather_rows(commands, [lease.ref.id for lease in leases], reserved=True)
        return [_cancel(lease, each) for lease, each in zip(leases, found, strict=True)]

    # Many sessions, and what outlives them

    async def listing(self, query: StoreQuery[Any]) -> Any:
        await self._ready()
        match query:
            case ListSessions():
                now = await self._now()
                return [head_of(row, now) for row in await self._listings.sessions(query, now)]
            case FindSessions(id, user):
                return await self._listings.find(id, user)
            case ListQuestions(filter=filter, after=after, limit=limit, order=order):
                places = stretches(order, after)
                return await first(limit, self._inbox.questions(filter, places, await self._now()))
            case CountQuestions(filter):
                return await self._inbox.count(filter, await self._now())
            case ListDecisions(filter=filter, after=after, limit=limit):
                await self._now()  # sessions that have run out leave the indexes
                return await first(limit, decisions(self._server, filter, after))
            case ListDue():
                return await self._listings.due(query, await self._now())
            case ListIdle():
                return await self._listings.idle(query, await self._now())
            case ListBegun(digest):
                return read_begun(digest, await self._server.run("SMEMBERS", f"adj:begun:{digest}"))
            case _:
                raise unknown_request(self, query)

    async def outbox(self, request: StoreRequest[Any]) -> Any:
        await self._ready()
        match request:
            case TakeNotices(app, to, ttl, limit):
                if limit <= 0:
                    return []
                return list(readable(await self._notices(app, to, ttl=ttl, limit=limit), read_notice))
            case SettleNotice(taken, again):
                given = {"settle": taken.id, "attempt": taken.attempt, "again": again}
                return bool(await self._notices(taken.app, [taken.to], **given))
            case DropNotices(app, age):
                to = await names_in(self._server, f"{index_prefix(app)}outbox")
                count = 0
                while gone := await self._notices(app, to, age=age, limit=1000):
                    count += len(gone)
                return count
            case _:
                raise unknown_request(self, request)

    async def _notices(self, app: str, to: Sequence[str], **fields: Any) -> Reply:
        index = index_prefix(app)
        where = {"notices": f"{index}notices", "indexes": [f"{index}outbox/{each}" for each in to]}
        return await self._server.script(OUTBOX, (), packed({**where, "now": self._time(), **fields}))

    async def hints(self) -> AsyncGenerator[SessionRef | None]:
        await self._ready()
        while True:
            try:
                async with aclosing(self._server.listen(self._channel)) as heard:
                    async for message in heard:
                        if message == b"":  # a store has tried whether it may publish
                            continue
                        yield None if message is None else read_hint(message)
            except StoreUnavailable as error:
                log.debug("hints are not heard: %s", error)
            await asyncio.sleep(random.uniform(0.1, 1.0))

    async def repair(self) -> int:
        """Rebuild all indexes from the sessions, and return how many there are.

        A member of an index that was damaged, or that another program has put there, is left out of listings, and what
        it stood for is missing there until this is called. Others may use the store meanwhile.
        """
        await self._ready()
        return await rebuild(self._server, self._now)

    async def close(self) -> None:
        await self._server.close()

    async def _ready(self) -> None:
        if not self._checked:
            address = self._address
            warnings = await check_settings(
                self._server, address.shown, channel=self._channel, ttl=self.ttl, accept_loss=address.accept_loss
            )
            if not self._checked:  # Several first calls may have checked it at once.
                self._checked = True
                for warning in warnings:
                    log.warning("%s", warning)

    async def _now(self) -> float:
        """Return the time, and forget sessions that have run out: listings find only what is there."""
        await self._ready()
        while True:
            now, ended = await self._server.script(NOW, ())
            if not ended:
                return float(now) if self._clock is None else self._clock()

    def _time(self) -> float | None:
        return None if self._clock is None else self._clock()

    def _given(self, fields: Fields, news: SessionRef | None) -> bytes:
        hint = None if news is None else [self._channel, marked(packed([news.app, news.id]))]
        return packed({**fields, "now": self._time(), "hint": hint})


def _renewed(lease: Lease, reply: Reply) -> Renewed:
    if isinstance(reply, CheckpointCorrupt):
        note_damage(reply)
        return Renewed(ref=lease.ref, lost=True)
    if reply is None:
        return Renewed(ref=lease.ref, lost=True)
    _, cancel, _ = reply
    return Renewed(ref=lease.ref, lost=False, cancel=None if cancel is None else cancel.decode(errors="replace"))


def _cancel(lease: Lease, reply: Reply) -> str | None:
    if isinstance(reply, CheckpointCorrupt):
        note_damage(reply)
        return None
    fence, cancel = reply
    return cancel.decode(errors="replace") if cancel is not None and fence == b"%d" % lease.fence else None
