"""Runs carried by DBOS: its rows only deliver, so whatever happens to them, sessions are run once and in order."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("dbos")

import dbos
import sqlalchemy as sa
from dbos import DBOS, run_dbos_database_migrations
from sqlalchemy.ext.asyncio import create_async_engine

import adjourn.dbos
from adjourn import AlreadyResumed, CheckpointNotFound, Runner, UsageError, interrupt, once, workflow
from adjourn.dbos import DBOSQueue, Delivery
from adjourn.stores import EncryptedStore, Head, PostgresStore, SQLiteStore, Store
from adjourn.stores.kit import FindSessions, GetHead
from tests.queues.dbos_worker import queue_of, runner_on
from tests.servers import postgres
from tests.test_docs import ROOT, blocks

QUEUES = ROOT / "docs" / "queues.md"
PACKAGE = Path(adjourn.dbos.__file__).parent
PATIENCE = 60.0
"""Seconds after which what was expected counts as missing."""

# DBOS leaves connections to the garbage collector when its process ends.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@workflow(name="trip")
async def trip(city: str) -> str:
    hotel = interrupt(f"Which hotel in {city}?", key="hotel", schema=str)
    return f"{hotel} in {city}"


@cache
def database() -> str:
    """A database that tests share, since DBOS takes its time to create its tables; each has an app of its own."""
    return postgres().fresh()


@pytest.fixture
def app(request: pytest.FixtureRequest) -> str:
    return request.node.name


def psycopg_url(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://")


@contextmanager
def engine_of(url: str) -> Generator[sa.Engine]:
    engine = sa.create_engine(psycopg_url(url))
    yield engine
    engine.dispose()


@asynccontextmanager
async def executor(queue: DBOSQueue, **config: object) -> AsyncGenerator[None]:
    """This process as an executor of DBOS."""
    DBOS(config=queue.config(log_level="CRITICAL", **config))
    queue.register()
    DBOS.launch()
    await DBOS.register_queue_async(queue.name, worker_concurrency=4, polling_interval_sec=0.05)
    try:
        yield
    finally:
        await asyncio.to_thread(DBOS.destroy, destroy_registry=True, workflow_completion_timeout_sec=10)
        queue.close()


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await holds():  # noqa: ASYNC110 - of other threads and processes
            await asyncio.sleep(0.02)


async def until_status(runner: Runner, session: str, status: str) -> None:
    async def has_status() -> bool:
        return (await runner.status(session)).status == status

    await until(has_status)


async def receipts(queue: DBOSQueue) -> Counter[str]:
    """What came of the deliveries: the outputs of those that ended, the statuses of the others."""
    rows = await DBOS.list_workflows_async(name=queue.workflow)
    return Counter(str(row.output) if row.status == "SUCCESS" else row.status for row in rows)


async def test_an_answer_and_its_delivery_are_one_transaction(app: str):
    url = database()
    runner = Runner(trip, store=PostgresStore(url), app_name=app)
    queue = DBOSQueue(runner, url, name=app)
    async with executor(queue):
        await runner.run("Rome", session_id="s")
        with engine_of(url) as engine:
            with engine.connect() as connection:
                transaction = queue.on(connection)
                await transaction.answer("s", {"hotel": "Ritz"})
                await transaction.submit("Oslo", session_id="other")
                connection.rollback()
            assert len(await runner.pending("s")) == 1
            assert await receipts(queue) == {}
            with pytest.raises(CheckpointNotFound):
                await runner.status("other")

            with engine.begin() as connection:
                transaction = queue.on(connection)
                await transaction.answer("s", {"hotel": "Ritz"}, by="ann")
                await transaction.submit("Oslo", session_id="other", id="first")
            transaction.notify()
        await until_status(runner, "s", "done")
        await until_status(runner, "other", "waiting")
        assert (await runner.recover("s")).value == "Ritz in Rome"


async def test_the_first_of_all_calls_may_be_in_a_transaction():
    url = postgres().fresh()
    run_dbos_database_migrations(system_database_url=url)
    queue = DBOSQueue(Runner(trip, store=PostgresStore(url)), url)
    with engine_of(url) as engine, engine.begin() as connection:
        assert queue.on(connection).submit_sync("Rome", session_id="s").status == "queued"
    rows = await queue.client.list_workflows_async()
    assert [(row.status, row.queue_name) for row in rows] == [("ENQUEUED", "adjourn")]
    queue.close()


async def test_sync_code_and_async_engines_can_do_it_as_well(app: str):
    url = database()
    runner = Runner(trip, store=EncryptedStore(PostgresStore(url), {"k": EncryptedStore.generate_key()}), app_name=app)
    queue = DBOSQueue(runner, url, name=app)
    async with executor(queue):
        await runner.run("Rome", session_id="s")
        engine = create_async_engine(psycopg_url(url))
        async with engine.begin() as connection:
            await queue.on(connection).answer("s", {"hotel": "Ritz"})
        await engine.dispose()
        with engine_of(url) as sync_engine, sync_engine.begin() as connection:
            queue.on(connection).submit_sync("Oslo", session_id="other", delivery={"priority": 2})
        await until_status(runner, "s", "done")
        await until_status(runner, "other", "waiting")


async def test_each_turn_of_a_session_is_a_delivery_and_arguments_are_json(app: str):
    url = database()

    @workflow(name="echo")
    async def echo(text: str) -> str:
        return text

    runner = Runner(echo, store=PostgresStore(url), app_name=app)
    queue = DBOSQueue(runner, url, name=app, delivery=lambda head: Delivery(attributes={"session": head.session}))
    async with executor(queue):
        for text in ("one", "two", "three"):
            await runner.submit(text, session_id="s", id=text)
        await queue.enqueue("s")
        await until_status(runner, "s", "done")

        async def all_ended() -> bool:
            return (await receipts(queue))["done"] == 3

        await until(all_ended)
        with engine_of(url) as engine, engine.begin() as connection:
            query = """
                SELECT workflow_input.inputs, workflow_output.output, attributes FROM dbos.workflow_status
                JOIN dbos.workflow_output USING (workflow_uuid) JOIN dbos.workflow_input USING (workflow_uuid)
                WHERE name = :name"""
            rows = connection.execute(sa.text(query), {"name": queue.workflow}).fetchall()
        assert [json.loads(row[0]) for row in rows] == [{"positionalArgs": [app, "s"], "namedArgs": {}}] * 3
        assert [row[1] for row in rows] == ['"done"'] * 3
        assert [row[2] for row in rows] == [{"session": "s"}] * 3


async def test_what_nobody_delivered_is_found_and_equal_deliveries_are_one(app: str):
    url = database()
    runner = Runner(trip, store=PostgresStore(url), app_name=app)
    queue, other = DBOSQueue(runner, url, name=app), DBOSQueue(runner, url, name=app)
    async with executor(queue):
        await runner.run("Rome", session_id="s")
        assert (await queue.sweep()).delivered == 0  # Nobody has answered.
        await runner.answer("s", {"hotel": "Ritz"})
        await asyncio.gather(queue.sweep(), other.sweep(), queue.enqueue("s"))
        await until_status(runner, "s", "done")
        await queue.enqueue("s")  # late, and again

        async def all_ended() -> bool:
            return (await receipts(queue)).total() == 2 and set(await receipts(queue)) == {"done", "not due"}

        await until(all_ended)
        other.close()


async def test_what_cannot_go_on_is_tried_again_later_and_left_as_it_is(app: str, caplog: pytest.LogCaptureFixture):
    url = database()
    store = PostgresStore(url)

    @workflow(name="other")
    async def other(city: str) -> None: ...

    runner, wrong = Runner(trip, store=store, app_name=app), Runner(other, store=store, app_name=app)
    await runner.run("Rome", session_id="s")
    queue = DBOSQueue(wrong, url, name=app, poll=0.01)
    async with executor(queue):
        await runner.answer("s", {"hotel": "Ritz"})
        before = await store.read(GetHead((await runner.store.read(FindSessions("s")))[0]))
        await queue.enqueue("s")

        async def was_left_alone() -> bool:
            return (await receipts(queue))["left alone"] == 1

        await until(was_left_alone)
        assert "no runner here runs runnable:trip" in caplog.text
        assert await store.read(GetHead((await runner.store.read(FindSessions("s")))[0])) == before
    able = DBOSQueue(runner, url, name=app, poll=0.01)
    async with executor(able):

        async def is_done() -> bool:
            await able.sweep()  # The first delivery has ended, so it takes another.
            return (await runner.status("s")).status == "done"

        await until(is_done)


async def test_a_failed_turn_is_not_run_again_by_deliveries(app: str):
    url = database()
    attempts: list[str] = []

    @workflow(name="broken")
    async def broken(text: str) -> None:
        attempts.append(text)
        raise ValueError(text)

    runner = Runner(broken, store=PostgresStore(url), app_name=app)
    queue = DBOSQueue(runner, url, name=app)
    async with executor(queue):
        await runner.submit("one", session_id="s")
        await queue.enqueue("s")
        await until_status(runner, "s", "failed")
        await queue.enqueue("s")

        async def both_ended() -> bool:
            return await receipts(queue) == {"failed": 1, "not due": 1}

        await until(both_ended)
        assert attempts == ["one"]
        assert (await queue.sweep()).delivered == 0


async def test_a_process_that_stops_hands_its_runs_over(app: str):
    url = database()
    began = asyncio.Event()
    loop = asyncio.get_running_loop()

    @once
    async def first() -> None:
        loop.call_soon_threadsafe(began.set)
        await asyncio.sleep(0.05)

    @once
    async def second() -> None: ...

    @workflow(name="long")
    async def long(text: str) -> str:
        await first()
        await second()
        return text

    runner = Runner(long, store=PostgresStore(url), app_name=app)
    queue = DBOSQueue(runner, url, name=app)
    async with executor(queue):
        serving = asyncio.create_task(queue.serve(grace=20))
        await runner.submit("one", session_id="s")
        await began.wait()
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving
        assert (await runner.status("s")).status == "queued"
    assert (await runner.advance("s")).value == "one"


async def test_what_cannot_be_delivered_does_not_keep_others_from_it(app: str):
    url = database()
    runner = Runner(trip, store=PostgresStore(url), app_name=app)

    def delivery(head: Head) -> Delivery:
        if head.session == "bad":
            raise ValueError("no priority for this one")
        return Delivery(priority=1)

    queue = DBOSQueue(runner, url, name=app, delivery=delivery)
    async with executor(queue):
        for session in ("bad", "a\x00{b}/é", "c"):
            await runner.submit("Rome", session_id=session)
        with pytest.raises(ValueError, match="no priority"):
            await queue.sweep()
        await until_status(runner, "a\x00{b}/é", "waiting")
        await until_status(runner, "c", "waiting")
        assert (await runner.status("bad")).status == "queued"


async def test_a_row_of_an_executor_that_died_before_it_began_is_cancelled_and_delivered_again(app: str):
    url = database()
    runner = Runner(trip, store=PostgresStore(url), app_name=app)
    run_dbos_database_migrations(system_database_url=url)
    queue = DBOSQueue(runner, url, name=app, poll=0.01)
    await runner.submit("Rome", session_id="s")
    await queue.enqueue("s")
    with engine_of(url) as engine, engine.begin() as connection:
        taken = (
            "UPDATE dbos.workflow_status SET status = 'PENDING', executor_id = 'dead', started_at_epoch_ms = 1 "
            "WHERE name = :name"
        )
        connection.execute(sa.text(taken), {"name": queue.workflow})
    assert (await queue.sweep()).cancelled == 1
    async with executor(queue):

        async def is_waiting() -> bool:
            await queue.sweep()
            return (await runner.status("s")).status == "waiting"

        await until(is_waiting)
        assert (await receipts(queue))["CANCELLED"] == 1


async def test_old_rows_are_deleted(app: str):
    url = database()
    runner = Runner(trip, store=PostgresStore(url), app_name=app)
    queue = DBOSQueue(runner, url, name=app, keep=0.01)
    async with executor(queue):
        await runner.submit("Rome", session_id="s")
        await queue.enqueue("s")
        await until_status(runner, "s", "waiting")

        async def none_is_left() -> bool:
            await queue.sweep()
            return not await receipts(queue)

        await until(none_is_left)


@contextmanager
def workers(count: int, url: str, folder: Path) -> Generator[list[subprocess.Popen[bytes]]]:
    command = [sys.executable, "-m", "tests.queues.dbos_worker", url, str(folder)]
    processes = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield processes
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(PATIENCE)


def ledger(folder: Path) -> list[list[str]]:
    path = folder / "ledger"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.long
async def test_a_killed_worker_costs_nothing_but_time(tmp_path: Path):
    """20 sessions, 40 answers that race, and one of two workers dies in the middle of its tools."""
    url, names = postgres().fresh(), [f"s{number}" for number in range(20)]
    runner = runner_on(url, tmp_path)
    queue = queue_of(runner, url)
    for name in names:
        await runner.run(name, session_id=name)
    with workers(2, url, tmp_path) as processes:
        await until_tables(url)
        engine = create_async_engine(psycopg_url(url))

        async def answer(name: str, amount: int) -> bool:
            try:
                async with engine.begin() as connection:
                    await queue.on(connection).answer(name, {"amount": amount}, by=f"person{amount}")
            except AlreadyResumed:
                return False
            return True

        won = await asyncio.gather(*(answer(name, amount) for name in names for amount in (1, 2)))
        assert sum(won) == 20
        await engine.dispose()
        victim = processes[0].pid

        async def is_in_the_middle() -> bool:
            begun = Counter(pid for _, _, pid in ledger(tmp_path))
            return all(begun[str(process.pid)] == 4 for process in processes)

        await until(is_in_the_middle)
        os.kill(victim, signal.SIGKILL)
        (tmp_path / "go").touch()
        for name in names:
            await until_status(runner, name, "done")

        async def nothing_is_under_way() -> bool:
            await queue.sweep()
            return not await queue.client.list_workflows_async(status=["ENQUEUED", "DELAYED", "PENDING"])

        await until(nothing_is_under_way)
    lines = ledger(tmp_path)
    ended = Counter(key for what, key, _ in lines if what == "end")
    assert len(ended) == 20
    assert set(ended.values()) == {1}
    begun = Counter(key for what, key, _ in lines if what == "begin")
    assert begun.keys() == ended.keys()
    assert sorted(begun.values()) == [1] * 16 + [2] * 4
    queue.close()


async def until_tables(url: str) -> None:
    """Wait until a worker has created DBOS's tables."""
    with engine_of(url) as engine:

        async def are_there() -> bool:
            with engine.begin() as connection:
                found = connection.execute(sa.text("SELECT to_regclass('dbos.queues')")).scalar()
                return bool(found) and bool(connection.execute(sa.text("SELECT count(*) FROM dbos.queues")).scalar())

        await until(are_there)


# Bad input


def queue_on(store: Store | None = None, **options: object) -> DBOSQueue:
    runner = Runner(trip, store=store or PostgresStore("postgresql://nobody@127.0.0.1:1/none"))
    return DBOSQueue(runner, "postgresql://nobody@127.0.0.1:1/none", **options)  # pyright: ignore[reportArgumentType]


def test_wrong_options_are_refused():
    with pytest.raises(UsageError, match=r"poll=0\): give a number of seconds above zero"):
        queue_on(poll=0)
    with pytest.raises(UsageError, match=r"at least one runner"):
        DBOSQueue([], "postgresql://nobody@127.0.0.1:1/none")
    with pytest.raises(UsageError, match=r"must share one store"):
        DBOSQueue([Runner(trip)], "postgresql://nobody@127.0.0.1:1/none")
    with pytest.raises(UsageError, match=r"is not a Runner"):
        DBOSQueue([trip], "postgresql://nobody@127.0.0.1:1/none")  # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match=r"bound to one user"):
        DBOSQueue(Runner(trip, store=SQLiteStore("a.db")).for_user("ann"), "postgresql://nobody@127.0.0.1:1/none")


def test_without_dbos_the_error_names_the_extra():
    code = (
        "import sys\nsys.modules['dbos'] = None\nfrom adjourn import Runner, workflow\n"
        "from adjourn.dbos import DBOSQueue\nfrom adjourn.stores import PostgresStore\n"
        "@workflow\nasync def trip(city: str) -> None: ...\n"
        "DBOSQueue(Runner(trip, store=PostgresStore('postgres://h/d')), 'postgres://h/d')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert "UsageError: DBOSQueue needs DBOS" in done.stderr
    assert "pip install 'adjourn[dbos]'" in done.stderr


async def test_connections_that_cannot_be_joined_are_refused(tmp_path: Path):
    url = postgres().fresh()
    queue = queue_on(PostgresStore(url))
    with engine_of(url) as engine, engine.connect() as connection:
        alone = connection.execution_options(isolation_level="AUTOCOMMIT")
        with pytest.raises(UsageError, match=r"Use one without AUTOCOMMIT"):
            await queue.on(alone).answer("s", {"hotel": "Ritz"})
    with (
        engine_of(url) as engine,
        engine.connect() as connection,
        pytest.raises(UsageError, match=r"no transactions that others can join. Use a PostgresStore"),
    ):
        await queue_on(SQLiteStore(tmp_path / "a.db")).on(connection).answer("s", {"hotel": "Ritz"})
    with engine_of(url) as engine, engine.connect() as connection:
        with pytest.raises(UsageError, match=r"another store than this queue"):
            queue.on(connection, Runner(trip, store=PostgresStore(url)))
        several = DBOSQueue([queue.runners[0], Runner(trip, store=queue.store, app_name="b")], url)
        with pytest.raises(UsageError, match=r"Say whose session it is: on\(connection, runner\)"):
            several.on(connection)
    lite = sa.create_engine("sqlite://")
    with lite.connect() as connection, pytest.raises(UsageError, match=r"The driver of the connection is sqlite3"):
        await queue.on(connection).answer("s", {"hotel": "Ritz"})
    lite.dispose()


async def test_an_executor_that_nobody_can_recognize_is_refused(app: str):
    url = database()
    queue = queue_on(PostgresStore(url))
    with pytest.raises(CheckpointNotFound):
        await queue.enqueue("s")
    queue = DBOSQueue(Runner(trip, store=PostgresStore(url)), url, name=app)
    async with executor(queue, executor_id="local"):
        with pytest.raises(UsageError, match=r"The executor_id of DBOS is 'local'.*queue\.config"):
            await queue.serve()


@pytest.mark.long
async def test_what_the_documentation_shows_works():
    """Its two blocks, as they are: one process that runs sessions until SIGTERM, and one that takes an answer."""
    url = database()
    serves, takes = [block.code for block in blocks(QUEUES) if "DBOSQueue" in block.code]
    shown: dict[str, Any] = {}
    exec(serves.replace("postgresql://app:secret@db.example/agents", url), shown)  # noqa: S102 - our own page
    exec(takes, shown)  # noqa: S102
    runner: Runner = shown["queue"].runners[0]
    await runner.submit("Rome", session_id="s1")
    running, engine = asyncio.create_task(shown["main"]()), create_async_engine(psycopg_url(url))
    await until_status(runner, "s1", "waiting")
    await shown["hotel_chosen"](shown["queue"], engine, "s1", "Ritz", "ann@example.org")
    await until_status(runner, "s1", "done")
    os.kill(os.getpid(), signal.SIGTERM)
    await running
    asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
    DBOS.destroy(destroy_registry=True)
    await engine.dispose()
    assert [(each.answer, each.by) for each in await runner.audit("s1")] == [("Ritz", "ann@example.org")]


def test_only_what_is_public_of_dbos_is_used():
    for path in sorted(PACKAGE.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "dbos" and not node.level:
                assert node.module == "dbos", path
                assert {each.name for each in node.names} <= set(dbos.__all__), path
            if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.endswith("__"):
                assert isinstance(node.value, ast.Name), f"{path}:{node.lineno}"
                assert node.value.id in ("self", "cls"), f"{path}:{node.lineno}"
