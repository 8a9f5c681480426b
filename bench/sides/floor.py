"""The floor: what a careful engineer would write by hand for this one task, with asyncio, json and sqlite3 alone.

No framework can be faster than the same promises kept by code that knows its only use.
"""

import asyncio
import json
import sqlite3
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from statistics import median
from threading import Thread

from bench.sides import conversation
from bench.sides.conversation import DEEP_CHARACTERS, converse, converse_in, reply, said
from bench.sides.database import database, megabytes
from bench.sides.imports import import_cost
from bench.sides.relay import Count, Node, Run, relay_race
from bench.sides.side import REQUEST, Outcome, main
from bench.sides.stopwatch import bytes_kept, seconds, typical

_sessions = map(str, count())


@contextmanager
def connected(path: Path) -> Generator[sqlite3.Connection]:
    """A connection that syncs every commit."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    # A log that is overwritten costs half as much to sync as one that still grows.
    connection.execute("PRAGMA wal_autocheckpoint=128")
    connection.execute("CREATE TABLE IF NOT EXISTS log (id INTEGER PRIMARY KEY, session TEXT, data TEXT)")
    yield connection
    connection.close()


def insert(connection: sqlite3.Connection, session: str, data: object) -> None:
    """Add a row, in a transaction of its own."""
    connection.execute("INSERT INTO log (session, data) VALUES (?, ?)", (session, json.dumps(data)))


# --- steps -----------------------------------------------------------------------------------------------------------


async def add(state: Count) -> Count:
    return {"n": state["n"] + 1}


async def loop(steps: int, save: Callable[[Count], None] | None = None) -> Count:
    """Await the node until it has counted to `steps`, saving each state."""
    state: Count = {"n": 0}
    while state["n"] < steps:
        state = await add(state)
        if save:
            save(state)
    return state


async def steps(steps: int) -> Outcome:
    run = partial(loop, steps)
    return Outcome(figures={"step": await typical(run) / steps * 1e6}, result=(await run())["n"])


async def steps_sqlite(steps: int) -> Outcome:
    with database() as path, connected(path) as connection:
        saved = partial(loop, steps, partial(insert, connection, "s"))
        behind = partial(saved_behind, connection, steps)
        figures = {"sync": await typical(saved) / steps * 1e6, "async": await typical(behind) / steps * 1e6}
        return Outcome(figures=figures, result=(await saved())["n"])


async def saved_behind(connection: sqlite3.Connection, steps: int) -> Count:
    """The loop while a thread saves what has gathered; everything is on disk when it returns."""
    queue: SimpleQueue[Count | None] = SimpleQueue()
    writer = Thread(target=write_behind, args=(connection, queue))
    writer.start()
    state = await loop(steps, queue.put)
    queue.put(None)
    writer.join()
    return state


def write_behind(connection: sqlite3.Connection, queue: SimpleQueue[Count | None]) -> None:
    """Write what is in the queue, one transaction for all that has gathered, until a `None` comes."""
    open_ = True
    while open_:
        batch = [queue.get()]
        while not queue.empty():
            batch.append(queue.get())
        open_ = batch[-1] is not None
        connection.execute("BEGIN IMMEDIATE")
        for state in filter(None, batch):
            insert(connection, "s", state)
        connection.execute("COMMIT")


# --- fan-out and chain -----------------------------------------------------------------------------------------------


async def square(item: int) -> int:
    return item**2


async def fan(tasks: int, save: Callable[[list[int]], None] | None = None) -> list[int]:
    """The results of `tasks` asyncio tasks."""
    squares = await asyncio.gather(*(square(item) for item in range(tasks)))
    if save:
        save(squares)
    return squares


async def fan1000(tasks: int) -> Outcome:
    run = partial(fan, tasks)
    memory = await typical(run)
    with database() as path, connected(path) as connection:
        sqlite = await typical(partial(fan, tasks, partial(insert, connection, "s")))
    figures = {"memory": memory / tasks * 1e6, "sqlite": sqlite / tasks * 1e6}
    return Outcome(figures=figures, result=await run())


async def chain(short: int, long: int) -> Outcome:
    return await relay_race(prepare_line, short=short, long=long)


def prepare_line(nodes: dict[str, Node]) -> Run:
    """A loop over the nodes."""

    async def run() -> Count:
        state: Count = {"n": 0}
        for node in nodes.values():
            state = await node(state)
        return state

    return run


# --- questions -------------------------------------------------------------------------------------------------------


async def ask(state: dict[str, str], answer: str | None = None) -> dict[str, str]:
    return state | ({"question": "Go on?"} if answer is None else {"answer": answer})


async def hitl_memory() -> Outcome:
    store: dict[str, str] = {}

    async def once() -> str:
        session = next(_sessions)
        store[session] = json.dumps(await ask({"request": REQUEST}))
        return (await ask(json.loads(store.pop(session)), "yes"))["answer"]

    return Outcome(figures={"round_trip": await typical(once) * 1e6}, result=await once())


async def hitl_sqlite() -> Outcome:
    with database() as path, connected(path) as connection:

        async def once() -> str:
            session = next(_sessions)
            # Three things must not be lost: the question, the answer before anything acts on it, and the end.
            insert(connection, session, await ask({"request": REQUEST}))
            row = connection.execute("SELECT data FROM log WHERE id = last_insert_rowid()").fetchone()
            insert(connection, session, "yes")
            done = await ask(json.loads(row[0]), "yes")
            insert(connection, session, done)
            return done["answer"]

        return Outcome(figures={"round_trip": await typical(once) * 1e6}, result=await once())


async def parked(runs: int) -> Outcome:
    store: dict[str, bytes] = {}

    async def park() -> None:
        store[next(_sessions)] = json.dumps(await ask({"request": REQUEST})).encode()

    kept = await bytes_kept(park, times=runs)
    done = await ask(json.loads(store.popitem()[1]), "yes")
    return Outcome(figures={"parked": kept / 1024}, result=done["answer"])


async def kept_calls(calls: int, log: dict[str, str], save: Callable[[object], None]) -> int:
    """The sum of what `calls` calls give, each saved when it is made and looked up when it was made before."""
    total = 0
    for number in range(calls):
        key = f"charge:{number}"
        if key not in log:
            log[key] = json.dumps(number)
            save([key, number])
        total += json.loads(log[key])
    return total


async def once_calls(few: int, many: int) -> Outcome:
    figures: dict[str, float] = {}
    sums: list[int] = []
    with database() as path, connected(path) as connection:
        for name, save in (("memory", _nowhere), ("sqlite", partial(insert, connection, "s"))):
            made, again = list[float](), list[float]()
            sums = []
            for count in (few, many):
                log: dict[str, str] = {}
                made.append(await seconds(partial(kept_calls, count, log, save)) / count * 1e6)
                again.append(await seconds(partial(kept_calls, count, log, save)) / count * 1e6)
                sums.append(await kept_calls(count, log, save))
            figures |= {f"{name}_few": made[0], f"{name}_growth": made[1] / made[0]}
            figures |= {f"{name}_replay_few": again[0], f"{name}_replay_growth": again[1] / again[0]}
    return Outcome(figures=figures, result=sums)


def _nowhere(_: object) -> None:
    return


# --- merging ---------------------------------------------------------------------------------------------------------


async def merging(few: int, many: int) -> Outcome:
    async def noted(steps: int) -> tuple[float, float, int]:
        notes: dict[str, str] = {}
        with database() as path, connected(path) as connection:

            async def run() -> None:
                for number in range(steps):
                    note = {f"note {number}": "x" * 100}
                    notes.update(note)
                    insert(connection, "s", note)

            return await seconds(run) / steps * 1e6, megabytes(path), len(notes)

    async def typically(steps: int) -> tuple[float, float, int]:
        runs = [await noted(steps) for _ in range(max(3, many // steps))]
        return median(run[0] for run in runs), runs[0][1], runs[0][2]

    short, long = await typically(few), await typically(many)
    figures = {"few": short[0], "growth": long[0] / short[0], "disk": long[1]}
    return Outcome(figures=figures, result=[short[2], long[2]])


# --- one of many -----------------------------------------------------------------------------------------------------


async def attach(few: int, many: int) -> Outcome:
    async def followed(turns: int) -> tuple[float, int]:
        with database() as path, connected(path) as connection:
            connection.execute("PRAGMA synchronous=OFF")
            for turn in range(turns):
                await Talk(connection).say("s", said(turn, DEEP_CHARACTERS))
            rows: list[str] = []

            async def follow() -> None:
                rows[:] = await Talk(connection).load("s")

            return await typical(follow) / turns * 1e6, len(rows) // 2

    short, long = await followed(few), await followed(many)
    return Outcome(figures={"few": short[0], "growth": long[0] / short[0]}, result=[short[1], long[1]])


async def many_questions(few: int, many: int) -> Outcome:
    figures: dict[str, float] = {}
    votes: list[int] = []
    for voters in (few, many):
        waiting = json.dumps({f"q{number}": None for number in range(voters)})
        loaded: dict[str, str | None] = json.loads(waiting)

        async def answer(loaded: dict[str, str | None] = loaded) -> None:
            loaded["q0"] = json.dumps("yes")

        async def load(waiting: str = waiting) -> None:
            json.loads(waiting)["q0"] = json.dumps("yes")

        one, whole = await typical(answer) * 1e6, await typical(load) / voters * 1e6
        for name, figure in (("answer", one), ("resume", one), ("load", whole)):
            key = f"{name}_few"
            figures |= {f"{name}_growth": figure / figures[key]} if key in figures else {key: figure}
        votes.append(len(loaded))
    return Outcome(figures=figures, result=votes)


# --- conversations ---------------------------------------------------------------------------------------------------


class Talk(conversation.Talk):
    """A row for each message; what was said before is in memory."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.history: dict[str, list[str]] = {}

    async def say(self, session: str, *texts: str) -> None:
        history = self.history.setdefault(session, [])
        for text in (*texts, reply(texts[-1])):
            insert(self.connection, session, text)
            history.append(text)

    async def load(self, session: str) -> Sequence[str]:
        rows = self.connection.execute("SELECT data FROM log WHERE session = ? ORDER BY id", (session,))
        return json.loads(f"[{','.join(data for (data,) in rows)}]")

    def text(self, message: str) -> str:
        return message


@asynccontextmanager
async def talk(path: Path) -> AsyncGenerator[Talk]:
    with connected(path) as connection:
        yield Talk(connection)


async def convo(turns: int) -> Outcome:
    return await converse_in({"messages": talk, "append": talk}, turns)


async def convo_long(turns: int) -> Outcome:
    return await converse(talk, turns, window=100)


async def resume_deep(messages: int) -> Outcome:
    with database() as path:
        with connected(path) as connection:
            connection.execute("PRAGMA synchronous=OFF")
            for turn in range(messages // 2):
                await Talk(connection).say("deep", said(turn, DEEP_CHARACTERS))
        return await conversation.restore(partial(talk, path))


async def imports(times: int) -> Outcome:
    took, packages = import_cost("asyncio, json, sqlite3", times=times)
    return Outcome(figures={"import": took, "graph": took, "packages": len(packages)})


WORKS = {
    "steps": steps,
    "steps_sqlite": steps_sqlite,
    "fan1000": fan1000,
    "chain": chain,
    "hitl_memory": hitl_memory,
    "hitl_sqlite": hitl_sqlite,
    "parked": parked,
    "once": once_calls,
    "merge": merging,
    "attach": attach,
    "many_questions": many_questions,
    "convo": convo,
    "convo_long": convo_long,
    "resume_deep": resume_deep,
    "import": imports,
}

if __name__ == "__main__":
    main(WORKS)
