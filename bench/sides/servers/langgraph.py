"""LangGraph on servers, with its async savers as their documentation has them.

A durable step of it is two commits, of the writes and of the checkpoint, with or without `pipeline=True`; ours is one.
"""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.redis.aio import AsyncRedisSaver
from langgraph.graph import MessagesState
from redisvl.exceptions import RedisSearchError

from bench.sides import conversation
from bench.sides.conversation import DEEP_CHARACTERS, converse_at, reply, said
from bench.sides.langgraph import Talk, loop, round_trip, thread
from bench.sides.relay import Count
from bench.sides.servers.where import Kind, megabytes, url
from bench.sides.side import Outcome, main
from bench.sides.stopwatch import typical


@asynccontextmanager
async def saver(kind: Kind) -> AsyncGenerator[Any]:
    """The async saver of a kind of server."""
    if kind == "redis":
        try:
            async with AsyncRedisSaver.from_conn_string(url("redis")) as made:
                await made.asetup()
                yield made
        except RedisSearchError as error:
            if "unknown command" not in str(error):
                raise
            sys.exit("its Redis saver needs the modules RedisJSON and RediSearch, which a plain server does not have")
    else:
        async with AsyncPostgresSaver.from_conn_string(url("postgres")) as made:
            await made.setup()
            yield made


@asynccontextmanager
async def talk(kind: Kind) -> AsyncGenerator[Talk]:
    """A conversation of messages on a server."""
    async with saver(kind) as made:
        yield Talk(MessagesState, made)


async def steps(kind: Kind, steps: int) -> Outcome:
    async with saver(kind) as made:
        graph = loop(steps).compile(checkpointer=made)

        async def run(durability: str) -> Count:
            return await graph.ainvoke({"n": 0}, thread(recursion_limit=steps + 10), durability=durability)

        figures = {mode: await typical(partial(run, mode)) / steps * 1e6 for mode in ("sync", "async")}
        return Outcome(figures=figures, result=(await run("sync"))["n"])


async def hitl(kind: Kind) -> Outcome:
    async with saver(kind) as made:
        return await round_trip(made)


async def convo(turns: int) -> Outcome:
    outcome = await converse_at(partial(talk, "postgres"), partial(megabytes, "postgres"), turns)
    return conversation.together({"postgres": outcome})


async def resume(messages: int) -> Outcome:
    async with talk("postgres") as seed:
        # In one turn: the whole list stands in the last checkpoint, however many turns it took.
        asked = [said(turn, DEEP_CHARACTERS) for turn in range(messages // 2)]
        await seed.say("deep", *[text for ask in asked for text in (ask, reply(ask))][:-1])
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
