"""A Postgres store is used from anywhere: loops, threads, sync code, a forked child, a transaction of its user."""

import asyncio
import contextlib
import subprocess
import sys
import threading
from collections.abc import Awaitable, Mapping
from typing import Any, TypedDict

import psycopg
import pytest
from msgspec.structs import replace
from psycopg.rows import dict_row, namedtuple_row, scalar_row

from adjourn import Runner, Sessions, interrupt, workflow
from adjourn.errors import AlreadyResumed, Conflict, NotStorable, SessionBusy, StoreUnavailable, UsageError
from adjourn.graph import END, START, StateGraph
from adjourn.stores import Answer, EncryptedStore, Input, PostgresStore, Question, SessionRef, Status
from adjourn.stores.kit import (
    Audit,
    Cancel,
    Commit,
    Delete,
    DeleteIdle,
    GetHead,
    GiveAnswers,
    ListDue,
    ListOpen,
    ListQuestions,
    ListRecords,
    ListSessions,
    Load,
    Submit,
    Withdraw,
)
from adjourn.stores.kit.facts import FactSheet, FactsWanted
from adjourn.stores.kit.rows import stored_statuses
from adjourn.stores.postgres._queries import DUE, IDLE, filters
from adjourn.testing.suite.bench import Drive, S, paused, question, yes
from tests.servers import pgbouncer, postgres

from .postgres_clock import fresh_schema


def make(pool_size: int = 10) -> PostgresStore:
    return PostgresStore(postgres().url, schema=fresh_schema(), pool_size=pool_size)


class Statements:
    """The statements that one database has received."""

    def __init__(self) -> None:
        self._server = postgres()
        self.url = self._server.fresh()
        self._server.execute(f"ALTER DATABASE {self.url.rpartition('/')[2]} SET log_statement = 'all'")

    async def of(self, *calls: Awaitable[object]) -> int:
        """Return how many statements the calls take, without what is sent to others, which goes its own way."""
        before = len(self._server.log.read_text().splitlines())
        for call in calls:
            await call
        lines = self._server.log.read_text().splitlines()[before:]
        assert not any("BEGIN" in line for line in lines)
        sent = [line for line in lines if "execute" in line or "statement:" in line]
        return len([line for line in sent if "pg_notify" not in line])


async def test_a_live_owners_commit_is_one_statement():  # rule R3
    statements = Statements()
    store = PostgresStore(statements.url)
    run = await paused(store, "q")
    await store.write(GiveAnswers(ref=S, answers=[yes("q")]))
    await run.claim(run.next(takes=("q",)))
    assert await statements.of(*(run.commit() for _ in range(5))) == 5
    assert await statements.of(run.commit(run.next(events=b"[]", event_count=1))) == 1
    await store.close()


class CountingStore(PostgresStore):
    """A store that counts what it reads and writes."""

    reads = 0
    writes = 0

    async def facts(self, wanted: FactsWanted) -> FactSheet:
        self.reads += 1
        return await super().facts(wanted)

    async def try_to(self, statement: bytes, values: Mapping[str, Any], session: str) -> list[tuple[Any, ...]]:
        self.writes += 1
        return await super().try_to(statement, values, session)


async def test_a_live_owner_commits_in_one_trip_whatever_others_do():  # rule R3
    schema = fresh_schema()
    owner, others = CountingStore(postgres().url, schema=schema), make_all(8, schema)
    run, ids = Drive(owner), [f"q{n}" for n in range(8)]
    await run.start(run.next(asks=tuple(question(each) for each in ids)))
    owner.reads = owner.writes = 0

    async def work() -> None:
        for _ in range(50):
            await run.commit(run.next(asks=(question(f"new{run.number}"),)))

    calls: list[Awaitable[object]] = []
    for store, each in zip(others, ids, strict=True):
        calls += [
            store.write(GiveAnswers(ref=S, answers=[yes(each)])),
            store.write(Cancel(S, "after_step")),
            store.renew([run.held]),
        ]
        calls += [
            store.write(Submit(ref=S, input=Input(id=each, body=b"1", program="p"))),
            store.write(Withdraw(S, each)),
        ]
    await asyncio.gather(work(), *calls)
    assert (owner.reads, owner.writes) == (0, 50)
    met = await run.pause()
    assert ({each.id for each in met.answers}, met.released, met.cancel) == (set(ids), False, "after_step")
    for store in (owner, *others):
        await store.close()


def make_all(count: int, schema: str) -> list[PostgresStore]:
    return [PostgresStore(postgres().url, schema=schema) for _ in range(count)]


async def test_questions_that_are_asked_and_closed_in_one_commit_are_told_apart():  # rule C1
    store = make()
    run = Drive(store)
    await run.start()
    first = run.next(asks=tuple(question(each) for each in "abc"))
    second = replace(first, number=first.number + 1, parent=first.id, asks=(question("d"),), full=False)
    closes = (Answer(id="b", value=b"0", how="abandoned"), Answer(id="d", value=b"1"))
    last = replace(second, number=second.number + 1, parent=second.id, asks=(), closes=closes)
    await store.write(Commit(lease=run.held, writes=(first, second, last), after=run.checkpoint))
    assert [each.id for each in await store.read(ListQuestions())] == ["a", "c"]
    entries = await store.read(Audit(S))
    assert [(each.id, each.how, each.value) for each in entries] == [
        ("a", None, None),
        ("b", "abandoned", b"0"),
        ("c", None, None),
        ("d", "answered", b"1"),
    ]
    head = await run.head()
    assert {each.at for each in entries} == {None, head.updated}
    await store.close()


@pytest.mark.parametrize("count", [1, 2])  # many are sent as lists
@pytest.mark.parametrize(
    "labels", [{"agent": "\ud800"}, {"reason": "\ud800"}, {"address": "\ud800"}, {"tags": ("\ud800",)}]
)
async def test_labels_that_are_not_text_are_refused(labels: dict[str, Any], count: int):
    store = make()
    run = Drive(store)
    await run.start()
    with pytest.raises(NotStorable):
        await run.pause(*(Question(id=f"q{number}", body=b"{}", **labels) for number in range(count)))
    assert (await run.head()).checkpoint == run.checkpoint
    await store.close()


async def test_a_claim_reads_only_what_it_cannot_know():  # rules R3, C6
    statements = Statements()
    store, other = PostgresStore(statements.url), PostgresStore(statements.url)
    await store.read(GetHead(S))
    await other.read(GetHead(S))
    run = Drive(store)
    assert await statements.of(run.start()) == 1
    assert await statements.of(run.pause(question("q"), question("r"))) == 1
    assert await statements.of(run.claim(run.next(), yes("q"))) == 1
    assert await statements.of(run.pause()) == 1
    elsewhere = Drive(other)
    elsewhere.number, elsewhere.at = run.number, run.at
    assert await statements.of(elsewhere.loaded()) == 1
    assert await statements.of(elsewhere.claim(elsewhere.next(), yes("r"))) == 1
    await elsewhere.end()
    # It has moved on since: the guard sees that, and what is read says why.
    before = await store.read(Load(S))
    with pytest.raises(AlreadyResumed):
        await run.claim(run.next(), yes("r"))
    assert await store.read(Load(S)) == before
    await store.close()
    await other.close()


class Asked(TypedDict, total=False):
    answer: str


async def test_a_pause_and_its_resume_are_four_writes_and_one_look():  # rule R3
    async def ask(state: Asked) -> Asked:
        return {"answer": interrupt("Go on?")}

    statements = Statements()
    store = PostgresStore(statements.url)
    await store.read(GetHead(S))
    graph = StateGraph(Asked, name="asking").add_node("ask", ask).add_edge(START, "ask").compile(store=store)
    assert await statements.of(graph.run({}, session_id="s")) == 3  # is there one, the claim, the pause
    (asked,) = await graph.pending("s")
    assert await statements.of(graph.resume("s", {asked.id: "yes"})) == 2  # the claim with the answer, the end
    await store.close()


def test_any_number_of_loops_and_threads_share_one_store():
    url = postgres().fresh()  # a pooler of other tests keeps connections to the database that they share
    store = PostgresStore(url, pool_size=3)
    failures: list[BaseException] = []

    async def work(name: str) -> None:
        run = Drive(store, name, owner=name)
        await run.start()
        await run.steps(5)
        await run.end()

    async def some(name: str) -> None:
        await asyncio.gather(*(work(f"{name}/{n}") for n in range(5)))

    def one(name: str) -> None:
        try:
            asyncio.run(some(name))
            asyncio.run(some(f"{name} again"))
        except BaseException as error:  # noqa: BLE001  # passed on to the test
            failures.append(error)

    threads = [threading.Thread(target=one, args=(f"t{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    found = asyncio.run(store.read(ListSessions(status="done")))
    assert len(found) == 40
    database = url.rpartition("/")[2]
    connections = postgres().execute(f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{database}'")  # noqa: S608 - a name of ours
    assert connections[0][0] <= 4
    asyncio.run(store.close())


async def test_a_call_that_was_cancelled_leaves_its_connection_in_order():
    store = make(pool_size=1)
    run = Drive(store)
    await run.start()
    for _ in range(20):
        task = asyncio.create_task(store.read(Load(S)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await run.head()).checkpoint == "b.0"
    await store.close()


async def test_leases_are_renewed_when_every_other_connection_is_busy():  # rule C6
    store = make(pool_size=1)
    run, other = await paused(store, "q"), Drive(store, "other")
    await other.start()
    schema = store.schema
    async with await psycopg.AsyncConnection.connect(postgres().url) as user:
        await user.execute(f"SELECT 1 FROM {schema}.sessions WHERE id = 's' FOR UPDATE".encode())  # noqa: S608 - a name of ours
        blocked = asyncio.create_task(
            store.write(GiveAnswers(ref=S, answers=[yes("q")]))
        )  # has the only connection, and waits for the row
        async with asyncio.timeout(10):
            states = await store.renew([other.held, run.held])
        assert [state.lost for state in states] == [False, True]
        assert not blocked.done()
    await blocked
    await store.close()


async def test_a_row_that_somebody_is_writing_does_not_hold_up_other_leases():  # rule C6
    store = make()
    drives = [Drive(store, name) for name in ("one", "two")]
    for each in drives:
        await each.start()
    async with await psycopg.AsyncConnection.connect(postgres().url) as user:
        await user.execute(f"SELECT 1 FROM {store.schema}.sessions WHERE id = 'one' FOR UPDATE".encode())  # noqa: S608 - a name of ours
        async with asyncio.timeout(10):
            states = await store.renew([each.held for each in drives])
        assert [(state.lost, state.skipped) for state in states] == [(False, True), (False, False)]
    assert [state.skipped for state in await store.renew([each.held for each in drives])] == [False, False]
    await store.close()


async def waits_for_a_lock(schema: str) -> None:
    """Return when a statement on the tables of a schema waits for another transaction."""
    waiting = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %s"
    async with asyncio.timeout(30), await psycopg.AsyncConnection.connect(postgres().url, autocommit=True) as other:
        while not (await other.execute(waiting, [f"%{schema}%"])).rowcount:  # noqa: ASYNC110 - only the server knows
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("change", ["cancel = 'now'", "fence = fence + 1", "owner = 'bob'", "number = 7"])
async def test_a_step_that_waited_for_its_row_looks_at_it_again(change: str):  # rule C6
    store = make()
    run = Drive(store)
    await run.start()
    async with await psycopg.AsyncConnection.connect(postgres().url) as user:
        await user.execute(f"UPDATE {store.schema}.sessions SET {change}".encode())  # noqa: S608 - names of ours
        step = asyncio.create_task(store.write(Commit(lease=run.held, writes=(run.next(),), after=run.checkpoint)))
        await waits_for_a_lock(store.schema)
    if change.startswith("cancel"):
        assert (await step).cancel == "now"
    else:
        with pytest.raises(Conflict):
            await step
        assert (await run.loaded("b.0")).rows
        assert len(await store.read(ListRecords(S))) == 1
    await store.close()


@pytest.mark.parametrize(
    "change",
    [
        "sessions SET fence = fence + 1",
        "sessions SET number = 7",
        "questions SET how = 'answered', value = 'false', at = 1",
    ],
)
async def test_an_answer_that_waited_for_its_session_looks_at_it_again(change: str):  # rules C6, R3
    store = make()
    run = await paused(store, "q")
    async with await psycopg.AsyncConnection.connect(postgres().url) as user:
        await user.execute(f"SELECT FROM {store.schema}.sessions FOR UPDATE".encode())
        await user.execute(f"UPDATE {store.schema}.{change}".encode())
        claim = asyncio.create_task(run.claim(run.next(b"claim"), yes("q")))
        await waits_for_a_lock(store.schema)
    with pytest.raises((Conflict, AlreadyResumed)) if "fence" not in change else contextlib.nullcontext():
        await claim
    assert len(await store.read(ListRecords(S))) == (3 if "fence" in change else 2)
    await store.close()


async def test_a_pause_returns_the_cancel_that_came_in_and_removes_it():  # rule V10
    store = make()
    run = Drive(store)
    await run.start()
    await store.write(Cancel(S, "now"))
    committed = await run.commit(run.next(status="waiting", asks=(question("q"),)), release=True)
    assert (committed.cancel, committed.released) == ("now", True)
    assert [each.id for each in await store.read(ListQuestions())] == ["q"]
    await store.close()


async def test_when_all_connections_are_in_use_for_too_long_it_says_so():
    store = PostgresStore(postgres().url, schema=fresh_schema(), pool_size=1, timeout=0.5)
    await paused(store, "q")
    async with await psycopg.AsyncConnection.connect(postgres().url) as user:
        await user.execute(f"SELECT 1 FROM {store.schema}.sessions FOR UPDATE".encode())  # noqa: S608 - a name of ours
        calls = [store.write(GiveAnswers(ref=S, answers=[yes("q")])), store.read(GetHead(S))]
        results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(each) for each in results] == [StoreUnavailable] * 2
    await store.close()


@pytest.mark.parametrize("when", ["while it waits", "when it is its turn"])
async def test_a_call_that_is_cancelled_leaves_the_connection_to_the_next(when: str):
    store = make(pool_size=1)
    await paused(store, "q")
    async with asyncio.timeout(20):
        async with await psycopg.AsyncConnection.connect(postgres().url) as user:
            await user.execute(f"SELECT 1 FROM {store.schema}.sessions FOR UPDATE".encode())  # noqa: S608 - a name of ours
            blocked = asyncio.create_task(
                store.write(GiveAnswers(ref=S, answers=[yes("q")]))
            )  # has the only connection, and waits for the row
            await asyncio.sleep(0)
            leaves, stays = (asyncio.create_task(store.read(GetHead(S))) for _ in range(2))
            for _ in range(5):
                await asyncio.sleep(0)
            assert not any(each.done() for each in (blocked, leaves, stays))
            if when == "while it waits":
                leaves.cancel()
            else:
                blocked.add_done_callback(lambda _: leaves.cancel())
        await blocked
        with pytest.raises(asyncio.CancelledError):
            await leaves
        assert await stays is not None
    await store.close()


@pytest.mark.parametrize("is_sync", [True, False])
async def test_an_answer_in_a_transaction_of_the_user_comes_and_goes_with_it(is_sync: bool):
    store = make()
    await paused(store, "q")
    url = postgres().url
    connect = psycopg.Connection.connect if is_sync else psycopg.AsyncConnection.connect

    async def attempt(*, commits: bool) -> None:
        made = connect(url)
        connection = made if isinstance(made, psycopg.Connection) else await made
        joined = store.on(connection)
        await joined.write(GiveAnswers(ref=S, answers=[yes("q")]))
        with pytest.raises(AlreadyResumed):  # a refusal does not end the transaction
            await joined.write(GiveAnswers(ref=S, answers=[yes("q")]))
        assert (await joined.read(Load(S))) is not None
        for end in (connection.commit if commits else connection.rollback, connection.close):
            done = end()
            if done is not None:
                await done
        joined.notify()

    await attempt(commits=False)
    assert len(await store.read(ListOpen(S))) == 1
    await attempt(commits=True)
    assert await store.read(ListOpen(S)) == []
    assert [each.why for each in await store.read(ListDue())] == ["answer"]
    await store.close()


@pytest.mark.parametrize("rows", [dict_row, scalar_row, namedtuple_row])
async def test_a_connection_of_the_user_may_make_rows_of_any_kind(rows: Any):
    store = make()
    await paused(store, "q")
    await Drive(store, "live").start()
    async with await psycopg.AsyncConnection.connect(
        postgres().url, row_factory=rows, cursor_factory=psycopg.AsyncClientCursor
    ) as connection:
        joined = store.on(connection)
        assert (await joined.read(Load(S))) is not None
        await joined.write(GiveAnswers(ref=S, answers=[yes("q")]))
        with pytest.raises(SessionBusy):
            await joined.write(Delete(SessionRef("live")))
    assert await store.read(ListOpen(S)) == []
    await store.close()


async def test_without_tables_a_transaction_of_the_user_is_told_how_they_are_made():
    store = make()
    async with await psycopg.AsyncConnection.connect(postgres().url) as connection:
        with pytest.raises(StoreUnavailable, match=r"tables are not there; call the store itself once") as caught:
            await store.on(connection).write(GiveAnswers(ref=S, answers=[yes("q")]))
    assert caught.value.is_lasting
    await store.read(ListSessions())
    async with await psycopg.AsyncConnection.connect(postgres().url) as connection:
        assert await store.on(connection).read(GetHead(S)) is None
    await store.close()


@pytest.mark.parametrize("is_encrypted", [False, True])
async def test_nothing_is_run_or_waited_for_in_a_transaction_of_the_user(is_encrypted: bool):  # rule K3
    plain = make()
    store = EncryptedStore(plain, {"k": b"0" * 32}) if is_encrypted else plain
    gate = asyncio.Event()

    @workflow
    async def wait(name: str) -> str:
        await gate.wait()
        return name

    running = Runner(wait, store=store).run("a", session_id="s")
    await running.start()
    async with await psycopg.AsyncConnection.connect(postgres().url) as connection:
        own = plain.on(connection)
        joined = Runner(wait, store=store.over(own) if isinstance(store, EncryptedStore) else own)
        for begin in (joined.run, joined.resume, joined.recover, joined.advance):
            with pytest.raises(UsageError, match="in a transaction of yours"):
                begin("s")
        with pytest.raises(UsageError, match="in a transaction of yours"):
            await joined.submit("b", session_id="s", on_busy="cancel")
        await joined.submit("b", session_id="other")
        assert await joined.cancel("s")
    assert (await running).status == "cancelled"
    assert [each.status for each in await Sessions(store).sessions()] == ["cancelled", "queued"]
    await store.close()


def test_only_a_connection_of_psycopg_can_be_joined():
    with pytest.raises(UsageError, match="Give a connection of psycopg"):
        make().on(None)  # pyright: ignore[reportArgumentType]


async def test_a_connection_sends_many_hints():
    server = postgres()
    url = server.fresh()
    server.execute(f"ALTER DATABASE {url.rpartition('/')[2]} SET log_statement = 'all'")
    store, other = PostgresStore(url), PostgresStore(url)
    heard = other.hints()
    async with asyncio.timeout(30):
        assert await anext(heard) is None
        before = len(server.log.read_text().splitlines())
        for n in range(5):
            run = Drive(store, f"s{n}")
            await run.start()
            await run.end()
            hint = await anext(heard)
            while hint is None or hint.id != f"s{n}":
                hint = await anext(heard)
    lines = server.log.read_text().splitlines()[before:]
    senders = [line.split("[")[1].split("]")[0] for line in lines if "SELECT pg_notify(" in line]
    assert len(senders) >= 5
    assert len(set(senders)) <= 2  # that of the other store, which listens for itself
    await heard.aclose()
    await store.close()
    await other.close()


async def test_a_url_for_hints_that_leads_nowhere_is_said_once(caplog: pytest.LogCaptureFixture):
    caplog.set_level("DEBUG", "adjourn.stores")
    nowhere = f"{postgres().url}_nowhere"
    store = PostgresStore(postgres().url, schema=fresh_schema(), listen_url=nowhere)
    heard = store.hints()
    first = asyncio.ensure_future(anext(heard))
    async with asyncio.timeout(30):
        while caplog.text.count("hints not heard") < 3:  # noqa: ASYNC110 - it tries again, on a thread of its own
            await asyncio.sleep(0.01)
    (warning,) = [each for each in caplog.messages if "no hints arrive, so news is noticed late" in each]
    assert 'postgres_nowhere" does not exist' in warning
    first.cancel()
    await asyncio.wait([first])
    await heard.aclose()
    await Drive(store).start()  # everything else works
    await store.close()


async def test_nothing_is_left_after_close():
    store = make()
    heard = store.hints()
    assert await anext(heard) is None
    await Drive(store).start()
    await store.close()
    assert not [each.name for each in threading.enumerate() if each.name in ("adjourn-notify", "adjourn-listen")]
    named = f"SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%{store.schema}%' AND pid <> pg_backend_pid()"  # noqa: S608
    async with asyncio.timeout(30):  # the server's processes end a moment after their connections
        while postgres().execute(named) != [(0,)]:  # noqa: ASYNC110 - other processes
            await asyncio.sleep(0.01)
    await heard.aclose()
    assert (await Drive(store, "s").head()).checkpoint == "b.0"  # it opens again
    await store.close()


FORK = """
import asyncio, os, sys, warnings
from adjourn.stores import PostgresStore
from adjourn.stores.kit import ListSessions
from adjourn.testing.suite.bench import Drive

warnings.simplefilter("ignore", DeprecationWarning)  # of forking a process with threads
store = PostgresStore(sys.argv[1], schema=sys.argv[2])

async def work(name):
    heard = store.hints()
    await anext(heard)
    run = Drive(store, name)
    await run.start()
    await run.steps(3)
    await run.end()
    await heard.aclose()

asyncio.run(work("before"))
child = os.fork()
asyncio.run(work("child" if child == 0 else "parent"))
asyncio.run(work("child again" if child == 0 else "parent again"))
if child == 0:
    asyncio.run(store.close())
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
asyncio.run(work("after"))
print(len(asyncio.run(store.read(ListSessions(status="done")))))
asyncio.run(store.close())
"""


def test_parent_and_child_of_a_fork_both_go_on():
    schema = fresh_schema()
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", FORK, postgres().url, schema],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("6\n", 0), done.stderr
    assert done.stderr == ""


def test_a_store_that_is_dropped_without_close_ends_quietly():
    code = (
        "import asyncio, sys\nfrom adjourn.stores import PostgresStore, SessionRef\n"
        "from adjourn.stores.kit import GetHead\n"
        "asyncio.run(PostgresStore(sys.argv[1], schema=sys.argv[2]).read(GetHead(SessionRef('s'))))\n"
        "store = PostgresStore(sys.argv[1], schema=sys.argv[2])\nasyncio.run(store.read(GetHead(SessionRef('s'))))\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, postgres().url, fresh_schema()],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


PREPARED = b"SELECT statement FROM pg_prepared_statements WHERE NOT from_sql"


class Count(TypedDict):
    n: int


async def count_to(store: PostgresStore, steps: int, session: str) -> int:
    """Run a graph of so many steps, each a commit."""

    async def add(state: Count) -> Count:
        return {"n": state["n"] + 1}

    graph = StateGraph(Count, name="count").add_node("add", add).add_edge(START, "add")
    graph = graph.add_conditional_edges("add", lambda state: END if state["n"] >= steps else "add")
    return (await graph.compile(store=store).run({"n": 0}, session_id=session)).state["n"]


async def test_what_is_sent_often_is_prepared_and_may_be_lost():
    store = make(pool_size=1)
    assert await count_to(store, 20, "first") == 20
    assert any("WITH moved" in text for (text,) in await store.fetch(PREPARED, {}))
    await store.read(ListQuestions())
    await store.fetch(b"DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$", {})
    assert await count_to(store, 20, "second") == 20
    await store.close()


async def test_nothing_is_prepared_behind_a_pooler():  # rule K3
    store = PostgresStore(pgbouncer().url, schema=fresh_schema(), pool_size=1)
    assert await count_to(store, 20, "session") == 20
    assert await store.fetch(PREPARED, {}) == []
    await store.close()


async def test_pages_end_although_the_time_of_a_question_is_damaged():  # rules C10, I15
    url = postgres().fresh()
    store = PostgresStore(url)
    await paused(store, *"abcdef")
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute("UPDATE adjourn.questions SET asked = -1.0 WHERE id = 'b'")
    seen, after = list[str](), None
    while page := await store.read(ListQuestions(after=after, limit=2)):
        seen += [each.id for each in page]
        after = page[-1].cursor
        assert len(seen) < 10
    assert seen == [*"acdef"]
    await store.close()


async def test_of_thousands_that_are_queued_the_first_are_read():  # rule V11
    store = make()
    await store.write(Submit(ref=SessionRef("first", user="ben"), input=Input(id="i", body=b"{}", program="p")))
    schema = store.schema
    with psycopg.connect(postgres().url, autocommit=True) as own:
        for statement in (
            """INSERT INTO {schema}.sessions (id, app, "user", created, inputs, program, queued, abandons)
                SELECT 's' || n, 'adjourn', 'ann', 1, 1, 'p', {schema}.clock() + n, false
                FROM generate_series(1, 5000) AS n""",
            """INSERT INTO {schema}.inputs (session, id, digest, program, abandons, at, body)
                SELECT s.no, 'i', '', 'p', false, s.queued, '' FROM {schema}.sessions AS s WHERE s.id <> 'first'""",
            "ANALYZE {schema}.sessions, {schema}.inputs",
        ):
            own.execute(statement.replace("{schema}", schema).encode())
        given = {"app": "adjourn", "user": None, "programs": ["p"], "skip_users": ["eve"], "limit": 10}
        query = f"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) {DUE}".replace("<filters>", filters(given))
        plan = [line for (line,) in own.execute(query.replace("{schema}", schema).encode(), given)]
    (walked,) = [line for line in plan if "sessions_queued" in line]
    assert "rows=10 " in walked
    assert [each.session for each in await store.read(ListDue(limit=3))] == ["first", "s1", "s2"]
    await store.close()


async def test_old_sessions_are_found_without_reading_those_that_wait():  # rule C7
    store = make()
    await store.write(
        Submit(ref=SessionRef("first"), input=Input(id="i", body=b"{}", program="p"))
    )  # It makes the tables.
    schema = store.schema
    with psycopg.connect(postgres().url, autocommit=True) as own:
        for statement in (
            """INSERT INTO {schema}.sessions (id, app, created, status, updated, touched, rested)
                SELECT 's' || n, 'adjourn', 1, CASE WHEN n % 500 = 0 THEN 'done' ELSE 'waiting' END, n, n, n
                FROM generate_series(1, 5000) AS n""",
            "ANALYZE {schema}.sessions",
        ):
            own.execute(statement.replace("{schema}", schema).encode())
        statuses: list[Status] = ["done", "failed", "cancelled"]
        given = {
            "app": "adjourn",
            "statuses": statuses,
            "stored": [*(stored_statuses(statuses) or ())],
            "ttl": 60.0,
            "limit": 200,
        }
        query = f"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) {IDLE}".replace("<filters>", filters(given))
        plan = [line for (line,) in own.execute(query.replace("{schema}", schema).encode(), given)]
    assert any("sessions_idle" in line for line in plan)
    assert not any("Rows Removed" in line for line in plan), plan
    old = {
        ref.id
        for ref in await store.write(DeleteIdle(ttl=60.0, app="adjourn", statuses=("done", "failed", "cancelled")))
    }
    assert old == {f"s{n}" for n in range(500, 5001, 500)}
    await store.close()
