"""Adjourn on servers, through its public API."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from typing import Any

from adjourn import Runner
from adjourn.graph import START, MessagesState, StateGraph
from adjourn.stores import PostgresStore, Store, open_store
from adjourn.stores.kit import ListSessions
from bench.postgres_inbox import SCHEMA, ask, fill, plan
from bench.sides import conversation
from bench.sides.conversation import DEEP_CHARACTERS, converse_at, said
from bench.sides.database import database
from bench.sides.ours import Talk, round_trip, stored_steps
from bench.sides.relay import Count
from bench.sides.servers.where import Kind, megabytes, url
from bench.sides.side import Outcome, main

_SHORT = 3  # steps of a session that workers run
_MODULE = "bench.sides.servers.ours"  # this one, which is `__main__` to itself


@asynccontextmanager
async def opened(url: str) -> AsyncGenerator[Store]:
    """A store that is closed afterwards."""
    store = open_store(url)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def talk(kind: Kind, *, options: str = "") -> AsyncGenerator[Talk]:
    """A conversation of messages on a server."""
    async with opened(url(kind) + options) as store:
        yield Talk(MessagesState, store)


async def steps(kind: Kind, steps: int) -> Outcome:
    async with opened(url(kind)) as store:
        sync, result = await stored_steps(steps, store, "step")
        behind, _ = await stored_steps(steps, store, "async")
    return Outcome(figures={"sync": sync, "async": behind}, result=result)


async def hitl(kind: Kind) -> Outcome:
    async with opened(url(kind)) as store:
        return await round_trip(store)


async def convo(turns: int) -> Outcome:
    kinds: tuple[Kind, ...] = ("postgres", "redis")
    outcomes = {kind: await converse_at(partial(talk, kind), partial(megabytes, kind), turns) for kind in kinds}
    return conversation.together(outcomes)


async def resume(messages: int) -> Outcome:
    # How the disk was synced leaves no trace in the log.
    async with talk("postgres", options="?options=-c%20synchronous_commit%3Doff") as seed:
        for turn in range(messages // 2):
            await seed.say("deep", said(turn, DEEP_CHARACTERS))
    return await conversation.restore(partial(talk, "postgres"))


# --- workers ---------------------------------------------------------------------------------------------------------


async def add(state: Count) -> Count:
    return {"n": state["n"] + 1}


short = (
    StateGraph(Count, name="short")
    .add_node("add", add)
    .add_edge(START, "add")
    .add_conditional_edges("add", lambda state: None if state["n"] >= _SHORT else "add")
    .compile()
)


async def workers(sessions: int) -> Outcome:
    figures: dict[str, float] = {}
    with database() as path:
        for kind, where in (
            ("postgres", url("postgres")),
            ("redis", url("redis")),
            ("sqlite", f"sqlite:///{path}"),
        ):
            for number in (1, 2, 4):
                figures[f"{kind}_{number}"] = await _rate(where, number, sessions)
    return Outcome(figures=figures)


async def _rate(where: str, number: int, sessions: int) -> float:
    """How many sessions a second so many workers finish, without the time in which they start and end.

    Workers that start take from those that work already, so there is enough to do for all of them afterwards.
    """
    async with opened(where) as store:
        runner = Runner(short, store=store)
        names = [f"{number} workers, session {each}" for each in range(sessions)]
        for start in range(0, sessions, 50):
            await asyncio.gather(*[runner.submit({"n": 0}, session_id=name) for name in names[start : start + 50]])
        with ExitStack() as stack:
            for _ in range(number):
                stack.enter_context(_Worker(where))
            ended: list[float] = []
            while len(ended) < sessions:
                await asyncio.sleep(0.5)  # seldom, so that it takes nothing from the workers
                done = await store.read(ListSessions(status="done"))
                ended = sorted(head.updated for head in done if head.ref.id.startswith(f"{number} workers"))
    first, last = sessions * 4 // 10, sessions * 9 // 10 - 1
    return (last - first) / (ended[last] - ended[first])


class _Worker:
    """An `adjourn worker` process, which is asked to end afterwards."""

    def __init__(self, where: str) -> None:
        self._command = [sys.executable, "-m", "adjourn", "worker", f"{_MODULE}:short", "--store", where, "--quiet"]

    def __enter__(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(60)


# --- the inbox -------------------------------------------------------------------------------------------------------


async def inbox(sessions: int) -> Outcome:
    store = PostgresStore(url("postgres"), schema=SCHEMA)
    await fill(store, url("postgres"), sessions)
    figures = await ask(store, sessions)
    await store.close()
    return Outcome(figures=figures, note=", ".join(line.strip() for line in plan(url("postgres")) if " using " in line))


WORKS: dict[str, Any] = {
    "steps_postgres": partial(steps, "postgres"),
    "steps_redis": partial(steps, "redis"),
    "hitl_postgres": partial(hitl, "postgres"),
    "hitl_redis": partial(hitl, "redis"),
    "convo_servers": convo,
    "resume_postgres": resume,
    "workers": workers,
    "inbox": inbox,
}

if __name__ == "__main__":
    main(WORKS)
