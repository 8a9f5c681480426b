"""A store on a Redis or Valkey server, for any number of processes and machines."""

# An override is documented where it is declared.

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

from adjourn.errors import CheckpointCorrupt, CheckpointNotFound, StoreUnavailable
from adjourn.stores._logging import log, note_damage
from adjourn.stores.kit import (
    Applied,
    Delete,
    Effects,
    FactSheet,
    Query,
    RemoteStore,
    Renew,
    SessionRow,
    answered,
    audit_entry,
    due,
    fits,
    has_status,
    head_of,
    in_app_of,
    is_live,
    is_wanted,
    lies_under,
    listed,
    may_be_removed,
    queued_input,
    readable,
    stored_statuses,
    worth_a_hint,
    written_at,
)
from adjourn.stores.types import (
    ALL_QUESTIONS,
    AuditEntry,
    Begun,
    CheckpointRow,
    Due,
    EventBatch,
    Head,
    Lease,
    Loaded,
    OpenQuestion,
    QuestionFilter,
    QueuedInput,
    Renewed,
    SessionRef,
    Status,
    StoredRecord,
    TakenNotice,
)

from ._inbox import Inbox
from ._keys import index_prefix, session_keys
from ._listings import PAGE, Listings
from ._log import Log
from ._packing import Fields, effects_table, not_text, packed, query_table, record_name
from ._reply import Found, read_begun, read_hint, read_notice
from ._server import APPLY, NOW, OUTBOX, READ, REMOVE, Command, Reply, Server, check_installed
from ._settings import check_settings
from ._urls import parse_address

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

    # Reading facts, and applying effects

    async def facts(self, query: Query) -> FactSheet:
        found = await self._read(query.ref, query_table(query))
        if found.row is None:
            return FactSheet(query, found.now, None)
        return FactSheet(
            query,
            found.now,
            found.row,
            questions=found.questions(),
            inputs=found.inputs(),
            branches=found.branches,
            records=found.records(list(query.records)),
            points=await self._log.points(found.row) if query.log else (),
            asking=await self._log.asking(found.row) if query.log else (),
        )

    async def apply(self, ref: SessionRef, effects: Effects) -> Applied | None:
        await self._ready()
        return _applied(await self._server.script(APPLY, *self._call(ref, effects), session=ref.id))

    async def delete(self, ref: SessionRef) -> None:
        try:
            if await self.carry_out(Delete(ref=ref)):
                return
            damage = None
        except CheckpointCorrupt as error:
            damage = error
        given = packed(
            {"index": index_prefix(ref.app), "session": ref.id, "user": ref.user, "is_damaged": bool(damage)}
        )
        removed = await self._server.script(REMOVE, session_keys(ref.app, ref.id), given, session=ref.id)
        if damage is not None and not removed:
            raise damage

    async def renew(self, leases: Sequence[Lease]) -> list[Renewed]:
        calls = [self._call(lease.ref, Renew(lease=lease).effects()) for lease in leases]
        sessions = [lease.ref.id for lease in leases]
        done = await self._server.scripts(APPLY, calls, sessions, reserved=True) if calls else []
        return [_renewed(lease, each) for lease, each in zip(leases, done, strict=True)]

    async def cancels(self, leases: Sequence[Lease]) -> list[str | None]:
        rows = [session_keys(lease.ref.app, lease.ref.id)[0] for lease in leases]
        commands: list[Command] = [("HMGET", row, "fence", "cancel") for row in rows]
        found = await self._server.gather_rows(commands, [lease.ref.id for lease in leases], reserved=True)
        return [_cancel(lease, each) for lease, each in zip(leases, found, strict=True)]

    async def idle(
        self,
        ttl: float,
        *,
        app: str | None,
        user: str | None,
        statuses: Sequence[Status] | None,
        limit: int | None,
    ) -> list[SessionRef]:
        now = await self._now()
        chosen = (
            row.ref
            async for row in self._listings.written_before(now - ttl, app, stored_statuses(statuses))
            if fits(row, app, user) and row.touched < now - ttl and not is_live(row, now)
            if may_be_removed(row, statuses, now)
        )
        return await _first(limit, chosen)

    # One session

    async def load(self, ref: SessionRef, checkpoint: str | None = None) -> Loaded | None:
        point = () if checkpoint is None else record_name(checkpoint)
        found = await self._read(ref, {"fold": point, "waiting": True})
        row = found.named
        if row is None:
            return None
        self.note_loaded(row)
        if checkpoint is None and row.pos < 0:
            return None
        if checkpoint is not None and not found.has_point:
            raise CheckpointNotFound(ref.id, checkpoint)
        at, rows = found.folded()
        untaken = [answered(each) for each in found.questions() if not each.is_open and not each.taken]
        is_head = checkpoint in (None, row.checkpoint)
        return Loaded(
            head=head_of(row, found.now),
            point=row.checkpoint if checkpoint is None else checkpoint,
            rows=rows,
            answers=tuple(untaken) if is_head else (),
            at=at,
        )

    async def inputs(self, ref: SessionRef, *, limit: int | None = None) -> list[QueuedInput]:
        found = await self._read(ref, {"queue": 0 if limit is None else max(limit, 0)} if limit != 0 else {})
        found.existing()
        return [queued_input(each) for each in found.inputs()]

    async def head(self, ref: SessionRef) -> Head | None:
        found = await self._read(ref, {})
        return None if found.named is None else head_of(found.named, found.now)

    async def checkpoints(
        self,
        ref: SessionRef,
        *,
        limit: int | None = None,
        before: str | None = None,
        source: str | None = None,
        under: str | None = None,
    ) -> list[CheckpointRow]:
        found = await self._read(ref, {"branches": True, "records": [] if before is None else [record_name(before)]})
        row = found.existing()
        end = row.pos + 1 if before is None else found.place(before)
        listed = self._log.listed(row, found.branches, end, source)
        return await _first(limit, (each async for each in listed if lies_under(each.header.address, under or "")))

    async def audit(
        self, ref: SessionRef, branch: str | None = None, *, all_branches: bool = False
    ) -> list[AuditEntry]:
        chosen = {"all_branches": True, "branches": True} if all_branches else {"branch": branch}
        found = await self._read(ref, {"every": True, **chosen})
        row = found.existing(branch)
        return found.audit(branch or row.branch)

    async def asked(self, ref: SessionRef, branch: str, ids: Sequence[str]) -> list[AuditEntry]:
        found = await self._read(ref, {"branch": branch, "questions": list(ids)})
        found.existing(branch)
        return [audit_entry(each, branch) for each in found.questions()]

    async def begun(self, digest: str) -> list[Begun]:
        await self._ready()
        return read_begun(digest, await self._server.run("SMEMBERS", f"adj:begun:{digest}"))

    async def events(self, ref: SessionRef, after: int = 0, *, limit: int | None = None) -> list[EventBatch]:
        found = await self._read(ref, {"branches": True})
        return await _first(limit, self._log.events(found.existing(), found.branches, after))

    async def records(
        self, ref: SessionRef, *, after: str | None = None, limit: int | None = None
    ) -> list[StoredRecord]:
        found = await self._read(ref, {"branches": True})
        row = found.existing()
        start = 0 if after is None else found.place(after, pruned=True) + 1
        return await _first(limit, self._log.records(row, found.branches, start))

    # Many sessions

    async def sessions(
        self,
        *,
        app: str | None = None,
        user: str | None = None,
        status: Status | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[Head]:
        now = await self._now()
        behind = None if after is None else written_at(after)

        def chosen(page: int, since: float | None = None) -> AsyncIterator[SessionRow]:
            rows = self._listings.sessions(app, user, status, page, behind, since)
            return (row async for row in rows if fits(row, app, user) and has_status(row, status))

        found = await _first(limit, chosen(_page(limit)))
        if limit is None and behind is None:
            # Others may have written to some meanwhile, which moves them to the front.
            known = {(row.app, row.session) for row in found}
            found = [*[row async for row in chosen(10, now) if (row.app, row.session) not in known], *found]
        return [head_of(row, now) for row in found]

    async def find(self, session: str, *, user: str | None = None) -> list[SessionRef]:
        await self._ready()
        return await self._listings.find(session, user)

    async def questions(
        self,
        ref: SessionRef | None = None,
        *,
        filter: QuestionFilter = ALL_QUESTIONS,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[OpenQuestion]:
        if ref is None:
            return await _first(limit, self._inbox.questions(filter, after, await self._now()))
        found = await self._read(ref, {"waiting": True})
        asked = [] if found.named is None else [(found.named, each) for each in found.questions()]
        return listed(asked, in_app_of(ref, filter), found.now, after=after, limit=limit)

    async def count_questions(self, filter: QuestionFilter = ALL_QUESTIONS) -> int:
        return await self._inbox.count(filter, await self._now())

    async def due(
        self,
        *,
        app: str | None = None,
        user: str | None = None,
        programs: Sequence[str] | None = None,
        skip_users: Sequence[str] = (),
        limit: int = 100,
    ) -> list[Due]:
        now = await self._now()

        def is_candidate(program: bytes, owner: bytes | None) -> bool:
            name = None if owner is None else owner.decode(errors="replace")
            is_known = programs is None or program.decode(errors="replace") in programs
            return is_known and user in (None, name) and name not in skip_users

        async def chosen() -> AsyncIterator[Due]:
            wants = None if programs is None and user is None and not skip_users else is_candidate
            async for _, found in self._listings.due(now, app, _page(limit), wants):
                row = found.row
                if row is not None and fits(row, app, user) and is_wanted(row, programs, skip_users):
                    try:
                        each = due(row, found.questions(), next(iter(found.inputs()), None), now)
                    except CheckpointCorrupt as damage:
                        note_damage(damage)
                        continue
                    if each is not None:
                        yield each

        return await _first(limit, chosen())

    # The outbox

    async def take_notices(self, app: str, to: Sequence[str], ttl: float, *, limit: int = 100) -> list[TakenNotice]:
        if limit <= 0:
            return []
        return list(readable(await self._outbox(app, take=list(to), ttl=ttl, limit=limit), read_notice))

    async def settle_notice(self, taken: TakenNotice, *, again: float | None = None) -> bool:
        reply = await self._outbox(taken.app, settle=taken.id, to=taken.to, attempt=taken.attempt, again=again)
        return bool(reply)

    async def drop_notices(self, app: str, age: float) -> int:
        count = 0
        while gone := await self._outbox(app, age=age):
            count += gone
        return count

    async def _outbox(self, app: str, **fields: Any) -> Reply:
        await self._ready()
        now = None if self._clock is None else self._clock()
        return await self._server.script(OUTBOX, (), packed({"index": index_prefix(app), "now": now, **fields}))

    async def hints(self) -> AsyncGenerator[SessionRef | None]:
        await self._ready()
        while True:
            try:
                async with aclosing(self._server.listen(self._channel)) as heard:
                    async for message in heard:
                        if message == b"":  # somebody has tried whether they may publish
                            continue
                        yield None if message is None else read_hint(message)
            except StoreUnavailable as error:
                log.debug("hints are not heard: %s", error)
            await asyncio.sleep(random.uniform(0.1, 1.0))

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

    async def _read(self, ref: SessionRef, table: Fields) -> Found:
        await self._ready()
        if self._clock is not None:
            table = {**table, "now": self._clock()}
        try:
            query = packed(table)
        except UnicodeEncodeError as error:
            raise not_text(error) from error
        return Found(await self._server.script(READ, session_keys(ref.app, ref.id), query, session=ref.id), ref)

    def _call(self, ref: SessionRef, effects: Effects) -> tuple[Sequence[str], bytes]:
        options: Fields = {
            "now": None if self._clock is None else self._clock(),
            "ttl": self.ttl,
            "channel": self._channel if worth_a_hint(effects) else None,
        }
        try:
            return session_keys(ref.app, ref.id), packed(effects_table(ref, effects) | options)
        except UnicodeEncodeError as error:
            raise not_text(error) from error


def _applied(reply: Reply) -> Applied | None:
    if reply is None:
        return None
    at, cancel, inputs = reply
    return Applied(None if cancel is None else cancel.decode(), float(at), inputs)


def _renewed(lease: Lease, reply: Reply) -> Renewed:
    if isinstance(reply, CheckpointCorrupt):
        note_damage(reply)
        return Renewed(ref=lease.ref, lost=True)
    applied = _applied(reply)
    if applied is None:
        return Renewed(ref=lease.ref, lost=True)
    return Renewed(ref=lease.ref, lost=False, cancel=applied.cancel)


def _cancel(lease: Lease, reply: Reply) -> str | None:
    if isinstance(reply, CheckpointCorrupt):
        note_damage(reply)
        return None
    fence, cancel = reply
    return cancel.decode(errors="replace") if cancel is not None and fence == b"%d" % lease.fence else None


def _page(limit: int | None) -> int:
    """Return how many entries of an index to read at once: some may not fit."""
    return PAGE if limit is None else min(max(limit, 10), PAGE)


async def _first(limit: int | None, found: AsyncIterator[T]) -> list[T]:
    """Return the first of what is found, without reading more pages than that takes."""
    chosen: list[T] = []
    if limit is None or limit > 0:
        async for each in found:
            chosen.append(each)
            if len(chosen) == limit:
                break
    return chosen
