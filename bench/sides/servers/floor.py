"""The floor on servers: one command for each thing that must not be lost, on one connection."""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from typing import Any, Protocol, cast

import psycopg
import redis.asyncio

from bench.sides import conversation
from bench.sides.conversation import DEEP_CHARACTERS, converse_at, reply, said
from bench.sides.floor import add, ask
from bench.sides.relay import Count
from bench.sides.servers.where import Kind, megabytes, url
from bench.sides.side import REQUEST, Outcome, main
from bench.sides.stopwatch import typical

_sessions = map(str, count())


class Log(Protocol):
    """Texts of sessions, in order."""

    async def add(self, session: str, data: object) -> None: ...

    async def read(self, session: str) -> list[Any]: ...


class PostgresLog:
    """A table."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self.connection = connection

    async def add(self, session: str, data: object) -> None:
        insert = "INSERT INTO log (session, data) VALUES (%s, %s)"
        await self.connection.execute(insert, (session, json.dumps(data)), prepare=True)

    async def read(self, session: str) -> list[Any]:
        rows = await self.connection.execute("SELECT data FROM log WHERE session = %s ORDER BY id", (session,))
        return [json.loads(data) for (data,) in await rows.fetchall()]


class RedisLog:
    """A list for each session."""

    def __init__(self, client: Any) -> None:
        self.client = client

    async def add(self, session: str, data: object) -> None:
        await self.client.rpush(session, json.dumps(data))

    async def read(self, session: str) -> list[Any]:
        return [json.loads(data) for data in await self.client.lrange(session, 0, -1)]


@asynccontextmanager
async def opened(kind: Kind) -> AsyncGenerator[Log]:
    """A log on a connection that is closed afterwards."""
    if kind == "redis":
        async with cast("Any", redis.asyncio.Redis).from_url(url("redis")) as client:
            yield RedisLog(client)
        return
    async with await psycopg.AsyncConnection.connect(url("postgres"), autocommit=True) as connection:
        await connection.execute("CREATE TABLE IF NOT EXISTS log (id bigserial PRIMARY KEY, session text, data text)")
        yield PostgresLog(connection)


async def steps(kind: Kind, steps: int) -> Outcome:
    async with opened(kind) as log:

        async def run() -> Count:
            state: Count = {"n": 0}
            while state["n"] < steps:
                state = await add(state)
                await log.add("s", state)
            return state

        return Outcome(figures={"sync": await typical(run) / steps * 1e6}, result=(await run())["n"])


async def hitl(kind: Kind) -> Outcome:
    async with opened(kind) as log:

        async def once() -> str:
            session = next(_sessions)
            # Three things must not be lost: the question, the answer before anything acts on it, and the end.
            await log.add(session, await ask({"request": REQUEST}))
            (asked,) = await log.read(session)
            await log.add(session, "yes")
            done = await ask(asked, "yes")
            await log.add(session, done)
            return done["answer"]

        return Outcome(figures={"round_trip": await typical(once) * 1e6}, result=await once())


class Talk(conversation.Talk):
    """An entry for each message."""

    def __init__(self, log: Log) -> None:
        self.log = log

    async def say(self, session: str, *texts: str) -> None:
        for text in (*texts, reply(texts[-1])):
            await self.log.add(session, text)

    async def load(self, session: str) -> Sequence[str]:
        return await self.log.read(session)

    def text(self, message: str) -> str:
        return message


@asynccontextmanager
async def talk(kind: Kind) -> AsyncGenerator[Talk]:
    async with opened(kind) as log:
        yield Talk(log)


async def convo(turns: int) -> Outcome:
    kinds: tuple[Kind, ...] = ("postgres", "redis")
    outcomes = {kind: await converse_at(partial(talk, kind), partial(megabytes, kind), turns) for kind in kinds}
    return conversation.together(outcomes)


async def resume(messages: int) -> Outcome:
    async with talk("postgres") as seed:
        for turn in range(messages // 2):
            await seed.say("deep", said(turn, DEEP_CHARACTERS))
    return await conversation.restore(partial(talk, "postgres"))


WORKS: dict[str, Any] = {
    "steps_postgres": partial(steps, "postgres"),
    "steps_redis": partial(steps, "redis"),
    "hitl_postgres": partial(hitl, "postgres"),
    "hitl_redis": partial(hitl, "redis"),
    "convo_servers": convo,
    "resume_postgres": resume,
}

if __name__ == "__main__":
    main(WORKS)
