"""Rebuilding the indexes from the rows: after that, each finds what it should, and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, cast

from adjourn.errors import CheckpointCorrupt
from adjourn.stores._logging import note_damage
from adjourn.stores.kit.facts import FactsWanted
from adjourn.stores.types import SessionRef

from ._keys import APPS, ENDS, QUESTIONS, WAITING, session_keys
from ._members import due_session, entry_of
from ._reply import Found
from ._rows import text
from ._server import READ, WRITE, Command, Server
from ._writes import facts_table, packed, relisting

_TRIES = 10
_OF_QUESTIONS = ("inbox", "expiring", "decided")


async def rebuild(server: Server, time: Callable[[], Awaitable[float]]) -> int:
    """Rebuild all indexes, while others may write, and return how many sessions there are."""
    await _clean(server, ENDS)  # The time cannot be read while it holds something else.
    now = await time()
    for pattern in ("adj:[^{]*:sessions*", "adj:[^{]*:due", "adj:inbox:*:*", "adj:expiring:*:*", "adj:decided:*:*"):
        async for key in _keys(server, pattern):
            await _clean(server, key)
    await _clean_names(server, APPS)
    async for key in _keys(server, "adj:[^{]*:outbox"):
        await _clean_names(server, key)
    async for key in _keys(server, "adj:[^{]*:outbox/*"):
        index, _, to = key.partition("/")
        await server.run("SADD", index, to)
    count = 0
    async for row in _keys(server, "adj:{*}:row"):
        try:
            count += await _relist(server, row, now)
        except CheckpointCorrupt as damage:
            note_damage(damage)
    return count


async def _keys(server: Server, pattern: str) -> AsyncIterator[str]:
    cursor: Any = "0"
    while True:
        cursor, found = await server.run("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
        for key in found:
            yield key.decode(errors="surrogateescape")
        if cursor == b"0":
            return


def _reader(key: str) -> Callable[[bytes], object] | None:
    """Return what reads the members of an index; None if the key is none."""
    if key == ENDS:
        return _row
    _, kind, name = key.split(":", 2)
    if kind in _OF_QUESTIONS and name.startswith(("all:", "own:")):
        return lambda member: entry_of(member, 0.0)
    if name == "due":
        return due_session
    return bytes.decode if name == "sessions" or name.startswith(("sessions=", "sessions/")) else None


async def _clean(server: Server, key: str) -> None:
    """Take everything out of an index that is no session, or a question that is not open, or that is gone."""
    read, cursor = _reader(key), cast("Any", "0")
    kind = key.split(":", 2)[1]
    if read is None:
        return
    if await server.run("TYPE", key) != b"zset":
        await server.run("UNLINK", key)
        return
    while True:
        cursor, found = await server.run("ZSCAN", key, cursor, "COUNT", 1000)
        ours = [member for member in found[::2] if _is_readable(member, read)]
        foreign = set(found[::2]) - set(ours)
        if kind in _OF_QUESTIONS:
            foreign |= set(await (_gone if kind == "decided" else _ended)(server, ours))
        if foreign:
            await server.run("ZREM", key, *foreign)
        if cursor == b"0":
            return


async def _clean_names(server: Server, key: str) -> None:
    """Take everything out of a set that is no text."""
    if await server.run("TYPE", key) != b"set":
        await server.run("UNLINK", key)
        return
    foreign = [each for each in await server.run("SMEMBERS", key) if not _is_readable(each, bytes.decode)]
    if foreign:
        await server.run("SREM", key, *foreign)


def _row(member: bytes) -> str:
    """Return the key of a session's row.

    Raises:
        ValueError: it is none.
    """
    if not (member.startswith(b"adj:{") and member.endswith(b"}:row")):
        raise ValueError(f"no row: {member[:100]!r}")
    return member.decode()


def _is_readable(member: bytes, read: Callable[[bytes], object]) -> bool:
    try:
        read(member)
    except ValueError:
        return False
    return True


async def _ended(server: Server, members: Sequence[bytes]) -> list[bytes]:
    """Return the members whose questions are not open; a question never opens again."""
    entries = [entry_of(each, 0.0) for each in members]
    commands: list[Command] = [
        ("ZSCORE", session_keys(each.app, each.session)[WAITING - 1], each.field) for each in entries
    ]
    scores = await server.gather_rows(commands, [each.session for each in entries]) if commands else []
    return [each for each, score in zip(members, scores, strict=True) if score in (None, b"-inf")]


async def _gone(server: Server, members: Sequence[bytes]) -> list[bytes]:
    """Return the members whose questions are no more."""
    entries = [entry_of(each, 0.0) for each in members]
    commands: list[Command] = [
        ("HEXISTS", session_keys(each.app, each.session)[QUESTIONS - 1], f":{each.field}") for each in entries
    ]
    there = await server.gather_rows(commands, [each.session for each in entries]) if commands else []
    return [each for each, is_there in zip(members, there, strict=True) if is_there == 0]


async def _relist(server: Server, row: str, now: float) -> bool:
    """List the session with this row wherever it belongs."""
    names = [text(each) for each in await server.run("HMGET", row, "app", "session", session=row)]
    app, session = names
    if not isinstance(app, str) or not isinstance(session, str) or session_keys(app, session)[0] != row:
        raise CheckpointCorrupt(f"the row at '{row}' is not that of a session", None)
    keys = session_keys(app, session)
    wanted = FactsWanted(ref=SessionRef(session, app), branches=True, every=True, all_branches=True)
    reading = packed(facts_table(wanted) | {"now": now})
    for _ in range(_TRIES):
        facts = Found(await server.script(READ, keys, reading, session=session), wanted).sheet()
        if facts.row is None:
            return False
        names = [each.name for each in facts.branches()]
        asked = [each for name in names for each in facts.asked(name)]
        given = packed(relisting(facts.row, asked) | {"now": now})
        if await server.script(WRITE, keys, given, session=session) is not None:
            break
    if await server.run("PTTL", row) > 0:
        await server.run("ZADD", ENDS, "NX", 0, row)  # The next listing puts the time in the place of 0.
    return True
