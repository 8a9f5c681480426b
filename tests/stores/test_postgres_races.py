"""Two writes that wait for the same session end as if one had come after the other.

Both are held up at the session's row, so that the second one was sent before the first one was written, and Postgres
shows it everything but that row as it was then.
"""

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, cast

import psycopg
import pytest
from msgspec.structs import replace

from adjourn.errors import AdjournError
from adjourn.stores import (
    Answer,
    Claimed,
    Committed,
    Head,
    Input,
    MemoryStore,
    PostgresStore,
    Renewed,
    SessionRef,
    Store,
)
from adjourn.stores.kit import (
    Audit,
    Cancel,
    Claim,
    Commit,
    Delete,
    GetHead,
    GiveAnswers,
    ListBegun,
    ListCheckpoints,
    ListDue,
    ListInputs,
    ListQuestions,
    Load,
    Prune,
    Submit,
    Withdraw,
)
from adjourn.testing.suite.bench import Drive, question, yes
from tests.effort import amount
from tests.servers import postgres

from .postgres_clock import TABLES, fresh_schema

Op: TypeAlias = Callable[[Store, Drive], Awaitable[object]]

OTHER = Input(id="n", body=b"other", program="p")

OPS: dict[str, Op] = {
    "step": lambda store, run: store.write(Commit(lease=run.held, writes=(run.next(b"step"),), after=run.checkpoint)),
    "take": lambda store, run: store.write(
        Commit(lease=run.held, writes=(run.next(b"take", takes=("r",)),), after=run.checkpoint)
    ),
    "ask": lambda store, run: store.write(
        Commit(lease=run.held, writes=(run.next(b"ask", asks=(question("s"),)),), after=run.checkpoint)
    ),
    "pause": lambda store, run: store.write(
        Commit(
            lease=run.held,
            writes=(run.next(b"pause", status="waiting", asks=(question("t"),)),),
            after=run.checkpoint,
            release=True,
        )
    ),
    "close": lambda store, run: store.write(
        Commit(
            lease=run.held,
            writes=(run.next(b"close", status="done", closes=(Answer(id="q", value=b"0", how="abandoned"),)),),
            after=run.checkpoint,
            release=True,
        )
    ),
    "end": lambda store, run: store.write(
        Commit(lease=run.held, writes=(run.next(status="done"),), after=run.checkpoint, release=True)
    ),
    "give back": lambda store, run: store.renew([replace(run.held, ttl=0.0)]),
    "answer": lambda store, run: store.write(GiveAnswers(ref=run.ref, answers=[yes("q", b"1")])),
    "answer again": lambda store, run: store.write(GiveAnswers(ref=run.ref, answers=[yes("q", b"2")])),
    "answer two": lambda store, run: store.write(GiveAnswers(ref=run.ref, answers=[yes("q", b"3"), yes("p", b"3")])),
    "resume": lambda store, run: _claim(store, run, b"resume", yes("q", b"4"), yes("p", b"4")),
    "resume with one": lambda store, run: _claim(store, run, b"one", yes("q", b"5")),
    "take over": lambda store, run: _claim(store, run, b"over", replaces="ann"),
    "begin": lambda store, run: _claim(store, run, b"begin", input="i", replaces="ann"),
    "begin on a branch": lambda store, run: _claim(store, run, b"new", input="i", branch="d", replaces="ann"),
    "branch": lambda store, run: _claim(store, run, b"branch", branch="c", replaces="ann"),
    "submit": lambda store, run: store.write(Submit(ref=run.ref, input=Input(id="n", body=b"new", program="p"))),
    "submit same": lambda store, run: store.write(Submit(ref=run.ref, input=Input(id="n", body=b"new", program="p"))),
    "submit other": lambda store, run: store.write(Submit(ref=run.ref, input=OTHER)),
    "withdraw": lambda store, run: store.write(Withdraw(run.ref, "i")),
    "withdraw second": lambda store, run: store.write(Withdraw(run.ref, "j")),
    "cancel": lambda store, run: store.write(Cancel(run.ref, "now")),
    "delete": lambda store, run: store.write(Delete(run.ref)),
    "prune": lambda store, run: store.write(Prune(run.ref, keep=1)),
}


def _claim(
    store: Store,
    run: Drive,
    body: bytes,
    *answers: Answer,
    branch: str | None = None,
    input: str | None = None,
    replaces: str | None = None,
) -> Awaitable[object]:
    write = run.next(body, input=input)
    if branch is not None:
        write = replace(write, branch=branch, number=0, full=True)
    return store.write(
        Claim(ref=run.ref, owner="bob", ttl=60.0, after=run.at, write=write, answers=answers, replaces=replaces)
    )


async def running(store: Store, name: str) -> Drive:
    """A session that runs, with questions and a queue."""
    run = Drive(store, name, ttl=60.0)
    await run.start(run.next(asks=(question("q"), question("p"), question("r"))))
    await run.steps(2)
    await store.write(GiveAnswers(ref=run.ref, answers=[yes("r")]))
    await queue(store, run)
    return run


async def waiting(store: Store, name: str) -> Drive:
    """A session that waits for two answers, and has a queue."""
    run = Drive(store, name, ttl=60.0)
    await run.start()
    await run.pause(question("q"), question("p"))
    await queue(store, run)
    return run


async def done(store: Store, name: str) -> Drive:
    """A session whose turn has ended, and that has a queue."""
    run = Drive(store, name, ttl=60.0)
    await run.start()
    await run.commit()
    await run.end()
    await queue(store, run)
    return run


async def queued(store: Store, name: str) -> Drive:
    """A session that has nothing but an input."""
    run = Drive(store, name, ttl=60.0)
    await store.write(Submit(ref=run.ref, input=Input(id="i", body=b"1", program="p")))
    return run


async def queue(store: Store, run: Drive) -> None:
    for name, abandons in (("i", False), ("j", True)):
        await store.write(Submit(ref=run.ref, input=Input(id=name, body=b"1", program="p", abandons=abandons)))


UNOWNED = ("answer", "begin", "submit", "submit same", "submit other", "withdraw", "cancel", "delete", "prune")
CASES = [
    *((setup, *pair) for setup in (running, waiting, done) for pair in itertools.product(OPS, OPS)),
    *((queued, *pair) for pair in itertools.product(UNOWNED, UNOWNED)),
]


async def outcome(call: Awaitable[Any]) -> object:
    """What a caller sees of a call, without its times."""
    try:
        found = await call
    except AdjournError as error:
        return type(error).__name__
    return _plain(found)


def _plain(found: Any) -> object:
    match found:
        case list():
            return [_plain(each) for each in cast("list[Any]", found)]
        case Head() | Claimed(lease=None):
            return type(found).__name__  # where the session stands is as it was read, before the write
        case Claimed():
            return found.checkpoint, found.seq, found.claims
        case Committed():
            answers = sorted((each.id, each.value) for each in found.answers)
            return found.released, found.cancel, found.inputs, answers
        case Renewed():
            return found.lost, found.cancel
        case _:
            return found


async def state(store: Store, ref: SessionRef) -> object:
    """All that is to be read of a session, without its times."""
    head = await store.read(GetHead(ref))
    if head is None:
        return None, [each.id for each in await store.read(ListQuestions()) if each.session == ref.id]
    loaded = await store.read(Load(ref))
    return (
        (head.checkpoint, head.status, head.owner, head.fence, head.claims, head.seq, head.program, head.inputs),
        loaded and (loaded.rows, [(each.id, each.value) for each in loaded.answers]),
        [(each.id, each.body) for each in await store.read(ListInputs(ref))],
        [each.id for each in await store.read(ListCheckpoints(ref))],
        [(each.branch, each.id, each.how, each.value) for each in await store.read(Audit(ref, all_branches=True))],
        [each.id for each in await store.read(ListQuestions()) if each.session == ref.id],
        [each.why for each in await store.read(ListDue()) if each.session == ref.id],
    )


ORPHANS = "SELECT FROM {schema}.<table> WHERE session NOT IN (SELECT no FROM {schema}.sessions)"

# What must hold between the tables, whatever was written.
DISAGREE = {
    "answers": """SELECT FROM {schema}.sessions AS s WHERE s.waiting <> (SELECT count(*) FROM {schema}.questions AS q
        WHERE q.session = s.no AND q.branch = s.branch_no AND q.how IS NOT NULL AND NOT q.taken)""",
    "inputs": """SELECT FROM {schema}.sessions AS s
        WHERE s.inputs <> (SELECT count(*) FROM {schema}.inputs AS i WHERE i.session = s.no AND NOT i.taken)""",
    "the first input": """SELECT FROM {schema}.sessions AS s LEFT JOIN LATERAL (
            SELECT * FROM {schema}.inputs AS i WHERE i.session = s.no AND NOT i.taken ORDER BY i.no LIMIT 1
        ) AS i ON true
        WHERE (s.queued, s.abandons) IS DISTINCT FROM (i.at, i.abandons)""",
    "the inbox": """SELECT FROM (SELECT unnest(q.terms) AS term, q.asked, q.no FROM {schema}.questions AS q
            JOIN {schema}.sessions AS s ON s.no = q.session AND s.branch_no = q.branch WHERE q.how IS NULL) AS q
        FULL JOIN {schema}.inbox AS i USING (term, asked, no) WHERE q.no IS NULL OR i.no IS NULL""",
    "rest": """SELECT FROM {schema}.sessions AS s
        WHERE s.rested IS DISTINCT FROM (CASE WHEN s.owner IS NULL THEN s.updated END)""",
    **{
        f"{table} of no session": ORPHANS.replace("<table>", table)
        for table in ("records", "branches", "questions", "inputs")
    },
}


class Race:
    """Stores of three processes, and a connection that holds them up."""

    def __init__(self) -> None:
        self.schema = fresh_schema()
        self.stores = [PostgresStore(postgres().url, schema=self.schema) for _ in range(3)]

    async def waits(self, calls: list["asyncio.Task[object]"], blocker: psycopg.AsyncConnection[Any]) -> None:
        """Return when each of the calls waits for the row, or has ended."""
        query = f"SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%{self.schema}%'"  # noqa: S608 - a name of ours
        async with asyncio.timeout(30):
            while True:
                left = sum(not each.done() for each in calls)
                ((count,),) = await (await blocker.execute(query.encode())).fetchall()
                await blocker.execute(b"SELECT pg_stat_clear_snapshot()")
                if count >= left:
                    return
                await asyncio.sleep(0.001)

    async def run(self, setup: Any, one: str, two: str, name: str, *, joined: bool) -> tuple[object, object]:
        """Let two writes wait for each other; return their outcomes and what is there then."""
        first, second, third = self.stores
        # The owner goes on where it is known; others know of the session what they have read.
        run = await setup(first, name)
        await second.read(Load(run.ref))
        async with await psycopg.AsyncConnection.connect(postgres().url) as blocker:
            lock = f"SELECT FROM {self.schema}.sessions WHERE id = '{name}' FOR UPDATE"
            await blocker.execute(lock.encode())
            a = asyncio.create_task(outcome(OPS[one](first, run)))
            await self.waits([a], blocker)
            b = asyncio.create_task(self.joined(two, run) if joined else outcome(OPS[two](second, run)))
            await self.waits([a, b], blocker)
        found = (await a, await b)
        return found, await state(third, run.ref)

    async def joined(self, name: str, run: Drive) -> object:
        """Write in a transaction of the caller, which goes on after a refusal."""
        async with await psycopg.AsyncConnection.connect(postgres().url) as connection:
            found = await outcome(OPS[name](self.stores[1].on(connection), run))
            assert await (await connection.execute(b"SELECT 1")).fetchall() == [(1,)]
            return found

    def check(self) -> None:
        """Check that the tables agree, and empty them."""
        with psycopg.connect(postgres().url, autocommit=True) as own:
            for what, query in DISAGREE.items():
                assert not own.execute(query.replace("{schema}", self.schema).encode()).fetchall(), what
            for table in TABLES:
                own.execute(f"DELETE FROM {self.schema}.{table}".encode())  # noqa: S608 - names of ours


async def in_turn(setup: Any, first: str, second: str) -> tuple[tuple[object, object], object]:
    """What happens if the second write comes after the first."""
    store = MemoryStore()
    run = await setup(store, "s")
    found = (await outcome(OPS[first](store, run)), await outcome(OPS[second](store, run)))
    return found, await state(store, run.ref)


async def attempt(race: Race, setup: Any, one: str, two: str, name: str, *, joined: bool = False) -> None:
    found = await race.run(setup, one, two, name, joined=joined)
    (b, a), then = await in_turn(setup, two, one)
    assert found in (await in_turn(setup, one, two), ((a, b), then)), (setup.__name__, one, two, joined)
    race.check()


IMPORTANT = [
    (running, "answer", "pause"),
    (running, "pause", "answer"),
    (waiting, "answer", "answer again"),
    (waiting, "answer", "answer two"),
    (waiting, "answer", "resume"),
    (waiting, "resume with one", "resume"),
    (done, "withdraw", "begin"),
    (done, "begin", "withdraw"),
    (done, "submit", "begin"),
    (done, "withdraw second", "begin"),
    (done, "submit", "submit same"),
    (done, "submit", "submit other"),
    (running, "take over", "step"),
    (running, "give back", "take over"),
    (running, "take over", "give back"),
    (running, "pause", "delete"),
    (waiting, "submit", "delete"),
    (waiting, "branch", "delete"),
    (waiting, "answer", "branch"),
    (done, "delete", "submit"),
    (done, "submit", "begin on a branch"),
    (queued, "withdraw", "submit"),
    (queued, "submit", "withdraw"),
    (queued, "delete", "begin"),
]


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("case", IMPORTANT, ids=lambda case: " ".join([case[0].__name__, *case[1:]]))
async def test_two_that_wait_for_each_other_write_one_after_the_other(case: Any, *, joined: bool):  # rules C6, R3
    race = Race()
    await race.stores[0].read(ListBegun(""))
    setup, one, two = case
    await attempt(race, setup, one, two, "s", joined=joined)
    for each in race.stores:
        await each.close()


@pytest.mark.proof
async def test_any_two_that_wait_for_each_other_write_one_after_the_other():  # rules C6, R3
    race = Race()
    await race.stores[0].read(ListBegun(""))
    count = amount(default=60, proof=600, long=len(CASES) * 2)
    cases = [(case, joined) for case in CASES for joined in (False, True)]
    for number, (case, joined) in enumerate(random.sample(cases, count)):
        setup, one, two = case
        await attempt(race, setup, one, two, f"s{number}", joined=joined)
    for each in race.stores:
        await each.close()
