"""What a server must be, before checkpoints are trusted to it."""

from __future__ import annotations

from adjourn.errors import CheckpointCorrupt, CheckpointTooNew, StoreUnavailable, UsageError

from ._keys import LAYOUT, LAYOUT_KEY
from ._server import NOT_ALLOWED, RIGHTS, Reply, Server
from ._urls import NO_SENTINEL

_OLDEST = (6, 2)


async def check_settings(
    server: Server, shown: str, *, channel: str, ttl: float | None, accept_loss: bool
) -> list[str]:
    """Refuse a server that is not fit, or that can lose checkpoints; with `accept_loss`, the latter is only a warning.

    It returns the warnings, for the store to log.

    Raises:
        UsageError: it is not fit, or can lose checkpoints.
        CheckpointTooNew: a newer version of Adjourn has used it.
        CheckpointCorrupt: a version before the first release has used it, or a key of ours holds something else.
        StoreUnavailable: it cannot be known yet, it does not answer, or this user lacks a right.
    """
    facts = await _info(server)
    if facts.get("loading") == "1":
        # It keeps no log while it reads the one it has, and would be refused for that.
        raise StoreUnavailable(shown, "the server is loading its data")
    if "cluster" in (facts.get("redis_mode"), facts.get("server_mode")):  # the second is Valkey's word for it
        raise UsageError(
            f"{shown} is a Redis Cluster. RedisStore needs one server, with or without replicas: its listings are not "
            "spread over several. Use a server without cluster mode, or PostgresStore."
        )
    if facts.get("redis_mode") == "sentinel":
        raise UsageError(f"{shown} is a Redis Sentinel. {NO_SENTINEL}")
    version = facts.get("redis_version", "")
    if facts and _is_old(version):
        raise UsageError(f"{shown} is Redis {version}. RedisStore needs Redis 6.2 or later, or Valkey.")
    await _check_layout(server, shown)
    warnings = await _check_rights(server, shown, channel)
    risks = [*_persistence(facts, await _fsync(server)), *_eviction(facts, ttl)]
    listing = " ".join(risks)
    if risks and not accept_loss:
        raise UsageError(
            f"{shown} can lose checkpoints. {listing} If you can live with that, use RedisStore(…, accept_loss=True), "
            "or '?accept_loss=1' in the URL."
        )
    return [*warnings, f"{shown} can lose checkpoints, which accept_loss accepts. {listing}"] if risks else warnings


async def _check_layout(server: Server, shown: str) -> None:
    """Refuse keys that another version of Adjourn has laid out; keys of an unknown layout are ours."""
    noted = await _allowed(server, "GET", LAYOUT_KEY)
    if not isinstance(noted, bytes):
        return
    if not noted.isdigit():
        raise CheckpointCorrupt(f"the key {LAYOUT_KEY} in {shown} holds something else", None)
    if int(noted) > LAYOUT:
        raise CheckpointTooNew(int(noted), LAYOUT)
    if int(noted) < LAYOUT:
        raise CheckpointCorrupt(
            f"{shown} was written before the first release of Adjourn, in a layout that is not read any more",
            remedy="It was left as it is: choose another database, or empty this one",
        )


async def _check_rights(server: Server, shown: str, channel: str) -> list[str]:
    try:
        await server.script(RIGHTS, (LAYOUT_KEY,), b"%d" % LAYOUT)
    except StoreUnavailable as error:
        if error.is_lasting:
            raise
        # It is full, or a replica: it can be read, and a write will say so.
    if await _allowed(server, "PUBLISH", channel, "") is not None:
        return []
    look = "so workers and readers only look now and then"
    return [f"This user may not publish on {channel} at {shown}, {look}. Grant '&adj:*' and '+publish'."]


def _persistence(facts: dict[str, str], fsync: str | None) -> list[str]:
    on = facts.get("aof_enabled")
    if on is None:
        return ["This user may not ask whether it keeps its data on disk. Grant '+info', or make sure of it yourself."]
    if on != "1":
        return ["What was written since its last snapshot is gone when it stops. Set: appendonly yes."]
    if fsync == "no":
        return ["It leaves to the system when to write to the disk. Set: appendfsync everysec (or always)."]
    return []


def _eviction(facts: dict[str, str], ttl: float | None) -> list[str]:
    policy = facts.get("maxmemory_policy")
    if policy is None:
        return ["It is not known whether it removes keys when its memory is full. Set: maxmemory-policy noeviction."]
    if policy.startswith("allkeys"):
        return [f"It removes any key when its memory is full ({policy}). Set: maxmemory-policy noeviction."]
    if policy.startswith("volatile") and ttl is not None:
        why = f"It removes keys with a time to live when its memory is full ({policy}), and sessions have ttl={ttl:g}."
        return [f"{why} Set: maxmemory-policy noeviction."]
    return []


def _is_old(version: str) -> bool:
    numbers = version.split(".")[:2]
    return all(each.isdigit() for each in numbers) and tuple(map(int, numbers)) < _OLDEST


async def _info(server: Server) -> dict[str, str]:
    """Return what the server says about itself; nothing if this user may not ask."""
    reply = await _allowed(server, "INFO")
    lines = reply.decode(errors="replace").splitlines() if isinstance(reply, bytes) else []
    return dict(line.split(":", 1) for line in lines if ":" in line)


async def _fsync(server: Server) -> str | None:
    """Return when the server writes to its disk; None if this user may not ask, as on most managed servers."""
    reply = await _allowed(server, "CONFIG", "GET", "appendfsync")
    return reply[1].decode() if reply else None


async def _allowed(server: Server, *command: str) -> Reply:
    try:
        return await server.run(*command)
    except StoreUnavailable as error:
        if error.detail.startswith(NOT_ALLOWED) or "unknown command" in error.detail:
            return None
        raise
