"""The tables: created by anybody, at any time; and what is said when that cannot be."""

import asyncio
import contextlib
import random
import string
import subprocess
import sys

import psycopg
import pytest

from adjourn import Runner, workflow
from adjourn.errors import CheckpointCorrupt, CheckpointTooNew, NotStorable, StoreUnavailable, UsageError
from adjourn.stores import Answer, Input, PostgresStore, Question, SessionRef, open_store
from adjourn.stores.kit import Delete, GetHead, GiveAnswers, ListCheckpoints, ListEvents, ListSessions, Load, Submit
from adjourn.stores.postgres._schema import LOCK, VERSION
from adjourn.testing.suite.bench import Drive, S, paused, question
from tests.servers import postgres

from .postgres_clock import fresh_schema

OPEN = """
import asyncio, sys
from adjourn.stores import PostgresStore, SessionRef
from adjourn.stores.kit import GetHead

async def main():
    store = PostgresStore(sys.argv[1], schema=sys.argv[2])
    sys.stdin.readline()
    await store.read(GetHead(SessionRef("s")))
    await store.close()

asyncio.run(main())
"""


def run(statement: str, url: str | None = None) -> list[tuple[object, ...]]:
    with psycopg.connect(url or postgres().url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def versions(schema: str) -> list[object]:
    return [number for (number,) in run(f"SELECT number FROM {schema}.versions ORDER BY number")]  # noqa: S608


def test_processes_that_race_create_the_tables_once():  # rule K3
    schema = fresh_schema()
    command = [sys.executable, "-c", OPEN, postgres().url, schema]
    racing = [subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for each in racing:
        assert each.stdin is not None
        each.stdin.write("go\n")
        each.stdin.flush()
    for each in racing:
        _, errors = each.communicate(timeout=60)
        assert (each.returncode, errors) == (0, "")
    assert versions(schema) == [VERSION]


async def test_tables_from_before_the_first_release_are_refused_and_left_as_they_are():
    schema = fresh_schema()
    run(f"CREATE SCHEMA {schema}")
    run(f"CREATE TABLE {schema}.versions (number bigint PRIMARY KEY, at timestamptz DEFAULT now())")
    run(f"INSERT INTO {schema}.versions VALUES (1), (2), ({VERSION - 1})")  # noqa: S608
    store = PostgresStore(postgres().url, schema=schema)
    with pytest.raises(CheckpointCorrupt, match=f"'{schema}' .*before the first release.*another schema") as caught:
        await store.read(GetHead(S))
    assert "\n" not in str(caught.value)
    assert versions(schema) == [1, 2, VERSION - 1]
    await store.close()


async def test_a_creation_that_was_cut_off_has_not_happened():  # rule K3
    schema = fresh_schema()
    with psycopg.connect(postgres().url) as half:
        half.execute(f"CREATE SCHEMA {schema}".encode())
        half.execute(f"CREATE TABLE {schema}.versions (number bigint PRIMARY KEY)".encode())
        half.rollback()
    store = PostgresStore(postgres().url, schema=schema)
    await Drive(store).start()
    await store.close()


async def test_a_newer_version_is_left_alone():  # rule K3
    schema = fresh_schema()
    store = PostgresStore(postgres().url, schema=schema)
    await Drive(store).start()
    await store.close()
    run(f"INSERT INTO {schema}.versions VALUES (99)")  # noqa: S608
    newer = PostgresStore(postgres().url, schema=schema)
    with pytest.raises(CheckpointTooNew):
        await newer.read(GetHead(S))
    await newer.close()


async def test_tables_that_were_dropped_are_created_again():
    schema = fresh_schema()
    store = PostgresStore(postgres().url, schema=schema)
    await Drive(store).start()
    run(f"DROP SCHEMA {schema} CASCADE")
    with pytest.raises(StoreUnavailable, match="tables are gone"):
        await store.read(GetHead(S))
    assert await store.read(GetHead(S)) is None
    await store.close()


async def test_missing_rights_come_with_the_grants_to_run():
    schema = fresh_schema()
    owner = PostgresStore(postgres().url, schema=schema)
    await Drive(owner).start()
    await owner.close()
    run(f"CREATE ROLE {schema}_app LOGIN")
    store = PostgresStore(postgres().url.replace("adjourn@", f"{schema}_app@"), schema=schema)
    with pytest.raises(StoreUnavailable) as caught:
        await store.read(GetHead(S))
    assert caught.value.is_lasting
    grants = caught.value.detail.split("`")[1]
    for grant in grants.split("; "):
        assert grant.startswith("GRANT")
        run(grant)
    drive = Drive(store, "mine")
    await drive.start()
    await drive.end()
    await store.write(Delete(SessionRef("mine")))
    await store.close()


async def test_a_role_that_may_not_create_the_tables_is_told_what_to_grant():
    role = fresh_schema()
    run(f"CREATE ROLE {role} LOGIN")
    store = PostgresStore(postgres().url.replace("adjourn@", f"{role}@"), schema=role)
    with pytest.raises(StoreUnavailable, match=f"GRANT CREATE ON DATABASE postgres TO {role}") as caught:
        await store.read(GetHead(S))
    assert caught.value.is_lasting
    await store.close()


AT_THE_DOOR = {
    "LOGIN PASSWORD 'right'": ("check the user name and the password", True),
    "NOLOGIN": ("ALTER ROLE {role} LOGIN", True),
    "LOGIN CONNECTION LIMIT 0": ("lower pool_size", False),
    "LOGIN; ALTER ROLE {role} SET default_transaction_read_only = on": ("let this role write", False),
    "LOGIN; REVOKE CONNECT ON DATABASE {role} FROM PUBLIC": ("GRANT CONNECT ON DATABASE {role} TO {role}", True),
    "LOGIN; ALTER DATABASE {role} ALLOW_CONNECTIONS false": ("ALTER DATABASE {role} ALLOW_CONNECTIONS true", True),
}


@pytest.mark.parametrize("of", AT_THE_DOOR)
async def test_whoever_is_not_let_in_is_told_what_to_do(of: str):
    role, (advice, is_lasting) = fresh_schema(), AT_THE_DOOR[of]
    run(f"CREATE DATABASE {role}")
    for statement in f"CREATE ROLE {role} {of}".split("; "):
        run(statement.format(role=role))
    url = postgres().url_of(role).replace("adjourn@", f"{role}:hunter2@")
    if "PASSWORD" in of:
        ask_for_password(role, url)
    store = PostgresStore(url, timeout=5)
    with pytest.raises(StoreUnavailable) as caught:
        await store.read(GetHead(S))
    assert advice.format(role=role) in caught.value.detail
    assert caught.value.is_lasting == is_lasting
    assert "hunter2" not in str(caught.value)
    await store.close()


def ask_for_password(role: str, url: str) -> None:
    """Let the server ask one role for its password."""
    rules = postgres().data / "pg_hba.conf"
    rules.write_text(f"host all {role} 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
    run("SELECT pg_reload_conf()")
    with contextlib.suppress(psycopg.OperationalError):
        while True:  # until it has read its rules again
            psycopg.connect(url).close()


async def test_a_database_that_cannot_hold_every_text_is_refused():
    name = fresh_schema()
    run(f"CREATE DATABASE {name} ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    store = PostgresStore(postgres().url_of(name))
    with pytest.raises(StoreUnavailable, match="ENCODING 'UTF8'") as caught:
        await store.read(GetHead(S))
    assert caught.value.is_lasting
    await store.close()


URLS = {
    "no server": "postgresql://ann:hunter2@127.0.0.1:9/db",
    "no database": "postgresql://adjourn:hunter2@127.0.0.1:{port}/nothing_here",
    "no such role": "postgresql://nobody_here:hunter2@127.0.0.1:{port}/postgres",
    "an unknown host": "postgresql://ann:hunter2@no.such.host.invalid/db",
    "a port": "postgresql://ann:hunter2@127.0.0.1:abc/db",
    "an option": "postgresql://ann:hunter2@127.0.0.1:9/db?sslmode=hunter2",
    "a parameter": "postgresql://adjourn@127.0.0.1:{port}/nothing_here?password=hunter2",
}


@pytest.mark.parametrize("what", URLS)
async def test_errors_name_the_place_and_never_the_password(what: str):
    url = URLS[what].format(port=postgres().port)
    store = PostgresStore(url, timeout=5)
    with pytest.raises(StoreUnavailable) as caught:
        await store.read(GetHead(S))
    cause = caught.value.__cause__
    assert cause is not None
    for text in (str(caught.value), repr(caught.value), repr(store), str(cause), repr(vars(cause)), repr(vars(store))):
        assert "hunter2" not in text
    is_lasting = what in ("no database", "no such role", "an option", "a parameter", "a port")
    assert caught.value.is_lasting == is_lasting
    assert ("cannot be used" in str(caught.value)) == is_lasting
    assert ("`recover` once it is back" in str(caught.value)) != is_lasting
    if what == "no server":
        assert "Connection refused (is the server running on that host and accepting TCP/IP connections?)." in str(
            caught.value
        )
    await store.close()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:hun@ter2@host/db",
        "postgresql://ann:hun/ter2@host/db",
        "postgresql://ann:hunter2@host/db?nonsense=1",
        "postgresql://ann:hunter2%zz@host/db",
        "postgresql://ann:hunter2@host/db?options=-c%20a=1",
        "mysql://ann:hunter2@host/db",
    ],
)
def test_urls_that_cannot_be_read_are_refused_without_showing_them(url: str):
    with pytest.raises(UsageError) as caught:
        PostgresStore(url)
    assert "hun" not in str(caught.value)
    assert "ter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("schem=adjourn", "unknown option 'schem'. Did you mean 'schema'?"),
        ("passwd=hunter2", "unknown option 'passwd'. Did you mean 'password'?"),
        ("sslmod=require", "unknown option 'sslmod'. Did you mean 'sslmode'?"),
        ("nonsense=1", "unknown option 'nonsense'. Use schema, "),
        ("listen_url=nonsense", "listen_url"),
    ],
)
def test_mistyped_options_are_named(option: str, told: str):
    with pytest.raises(UsageError) as caught:
        open_store(f"postgresql://ann@host/db?{option}")
    assert told in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_wrong_options_are_refused():
    schemas: list[object] = ["", None, "x" * 64, "pg_foo", "a\0b", "a\udc80"]
    for options in (
        *({"pool_size": each} for each in (0, 1.5, "10")),
        *({"timeout": each} for each in (0, float("nan"), "30", None)),
        *({"schema": each} for each in schemas),
    ):
        with pytest.raises(UsageError):
            PostgresStore("postgresql://host/db", **options)  # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match="pool_size=x"):
        open_store("postgresql://host/db?pool_size=x")


async def test_a_schema_may_have_a_percent_sign_and_a_url_an_encoding():
    store = PostgresStore(f"{postgres().url}?client_encoding=latin1", schema=f"{fresh_schema()}%s")
    drive = Drive(store, "\u4e16")
    await drive.start()
    await drive.end()
    assert [each.session for each in await store.read(ListSessions())] == ["\u4e16"]
    await store.close()


async def test_a_url_carries_the_options():
    schema = fresh_schema()
    url = f"{postgres().url}?schema={schema}&pool_size=2&timeout=5"
    store = open_store(url)
    assert isinstance(store, PostgresStore)
    assert open_store(url) is store
    await Drive(store).start()
    same = PostgresStore(url, schema="another")  # as with Redis, what the URL says counts
    assert same.schema == schema
    assert await same.read(GetHead(S)) is not None
    for each in (store, same):
        await each.close()


@pytest.mark.parametrize("table", ["sessions (name text)", "versions (name text)"])
async def test_a_schema_with_tables_of_somebody_else_is_refused_and_left_as_it_is(table: str):  # rule K3
    schema = fresh_schema()
    postgres().execute(f"CREATE SCHEMA {schema}")
    postgres().execute(f"CREATE TABLE {schema}.{table}")
    store = PostgresStore(postgres().url, schema=schema)
    with pytest.raises(StoreUnavailable, match=f"schema '{schema}' has tables that are not Adjourn's") as caught:
        await store.read(GetHead(S))
    assert caught.value.is_lasting
    assert "schema of its own" in str(caught.value)
    await store.close()
    tables = postgres().execute("SELECT schemaname, tablename FROM pg_tables")
    assert [name for where, name in tables if where == schema] == [table.partition(" ")[0]]


def test_an_option_of_the_store_does_not_belong_to_the_url_for_hints():
    with pytest.raises(UsageError, match=r"listen_url.* has the option 'schema'"):
        PostgresStore("postgresql://host/db", listen_url="postgresql://host/db?schema=adjourn")


def test_without_psycopg_the_error_names_the_extra():
    code = (
        "import sys\nsys.modules['psycopg'] = None\nfrom adjourn.stores import open_store\nopen_store('postgres://h/d')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert "UsageError" in done.stderr
    assert "pip install 'adjourn[postgres]'" in done.stderr


async def test_an_id_that_no_index_takes_is_refused():
    store = PostgresStore(postgres().url, schema=fresh_schema())
    long = "".join(chr(0x4E00 + number % 20_000) for number in range(0, 400_000, 97))
    with pytest.raises(NotStorable, match="index"):
        await Drive(store, long).start()
    await store.close()


@pytest.mark.parametrize(
    ("id", "user", "path"),
    [(1, 4000, "user_id"), (2680, 0, "session_id"), (1500, 2000, "user_id"), (20_000, 0, "session_id")],
)
async def test_names_that_do_not_fit_are_refused_before_anything_is_done(id: int, user: int, path: str):
    store = PostgresStore(postgres().url, schema=fresh_schema())
    ran: list[str] = []

    @workflow
    async def work(order: str) -> str:
        ran.append(order)
        return order

    runner = Runner(work, store=store)
    with pytest.raises(NotStorable, match="bytes") as caught:
        await runner.run("o", session_id=random_text(id), user_id=random_text(user) or None)
    assert (caught.value.path, ran) == (path, [])
    assert await runner.sessions() == []
    await store.close()


@pytest.mark.parametrize("user", [None, "ann"])
@pytest.mark.parametrize("app", ["a", "shop", "adjourn", "bookshop"])  # an index pads what follows a name
async def test_the_longest_names_that_an_index_takes_can_be_used_in_every_status(app: str, user: str | None):
    """What is accepted at the beginning fits at the end, whatever the end is."""
    store = PostgresStore(postgres().url, schema=fresh_schema())

    async def is_taken(name: str) -> bool:
        run = Drive(store, name)
        try:
            await run.start(user=user, app=app)
        except NotStorable:
            return False
        await run.commit(run.next(status="cancelled"), release=True)
        return True

    name, fits, too_long = random_text(2704), 2600, 2704
    assert await is_taken(name[:fits])
    assert not await is_taken(name)
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        fits, too_long = (middle, too_long) if await is_taken(name[:middle]) else (fits, middle)
    await store.close()


async def test_texts_that_compress_well_may_be_longer_than_an_index_takes():
    store = PostgresStore(postgres().url, schema=fresh_schema())
    await Drive(store, "日本" * 5_000).start(user="tag" * 2_000)
    await store.close()


async def test_a_question_or_an_input_with_a_name_that_no_index_takes_is_named():
    store = PostgresStore(postgres().url, schema=fresh_schema())
    run = Drive(store)
    await run.start()
    for size in (3_000, 20_000):
        with pytest.raises(NotStorable, match=f"the id of a question.*{size:,} bytes.*shorter"):
            await run.commit(run.next(asks=(question(random_text(size)),)))
        with pytest.raises(NotStorable, match=f"the id of an input.*{size:,} bytes"):
            await store.write(Submit(ref=S, input=Input(id=random_text(size), body=b"1", program="p")))
    await run.commit(
        run.next(asks=(Question(id="q", body=b"{}", agent=random_text(9_000), address=random_text(9_000)),))
    )
    await store.close()


def random_text(length: int) -> str:
    """Text that cannot be compressed."""
    return "".join(random.choices(string.ascii_letters + string.digits, k=length))


async def test_waiting_for_another_that_creates_the_tables_ends_and_says_so():
    schema = fresh_schema()
    store = PostgresStore(postgres().url, schema=schema, timeout=1.0)
    with psycopg.connect(postgres().url) as other:
        other.execute(f"SELECT pg_advisory_xact_lock({LOCK})".encode())
        async with asyncio.timeout(30):
            with pytest.raises(StoreUnavailable, match="is creating them"):
                await store.read(GetHead(S))
    await store.close()
    again = PostgresStore(postgres().url, schema=schema)
    assert await again.read(GetHead(S)) is None
    await again.close()


async def test_stores_that_race_where_transactions_are_isolated_strictly_create_the_tables_once():  # rule K3
    server = postgres()
    url = server.fresh()
    server.execute(f"ALTER DATABASE {url.rpartition('/')[2]} SET default_transaction_isolation = 'repeatable read'")
    stores = [PostgresStore(url) for _ in range(6)]
    assert await asyncio.gather(*(each.read(GetHead(S)) for each in stores)) == [None] * 6
    for each in stores:
        await each.close()


async def test_the_views_read_well():
    schema = fresh_schema()
    store = PostgresStore(postgres().url, schema=schema)
    run_ = await paused(store, "q")
    await store.write(GiveAnswers(ref=S, answers=[Answer(id="q", value=b'{"ok":true}', by="ann")]))
    await run_.claim(run_.next(b'{"a":1}'))
    columns = "question, how, answer, answered_by, answered IS NOT NULL"
    assert run(f"SELECT {columns} FROM {schema}.readable_questions") == [("{}", "answered", '{"ok":true}', "ann", True)]  # noqa: S608
    columns = "id, checkpoint, status, run_by, open_questions, new_answers"
    found = run(f"SELECT {columns} FROM {schema}.readable_sessions")  # noqa: S608
    assert found == [("s", "b.2", "running", "ann", 0, 1)]
    found = run(f"SELECT checkpoint, body FROM {schema}.readable_records ORDER BY written")  # noqa: S608
    assert found[-1] == ("b.2", '{"a":1}')
    await store.close()


async def test_the_views_leave_out_the_librarys_own_sessions():  # rule T5
    schema = fresh_schema()
    store = PostgresStore(postgres().url, schema=schema)
    await paused(store, "q")
    await store.write(Submit(SessionRef("key", "~adjourn:keys"), Input(id="i", body=b"{}")))
    own = Drive(store, "own")
    await own.start(app="~adjourn")
    await own.pause(question("q"))
    for view, name in (("sessions", "id"), ("questions", "session"), ("records", "session")):
        found = run(f"SELECT DISTINCT {name}, app FROM {schema}.readable_{view}")  # noqa: S608
        assert found == [("s", "adjourn")], view
    assert run(f"SELECT count(*) FROM {schema}.sessions") == [(3,)]  # noqa: S608
    await store.close()


ROWS = {
    "a status that there is not": "UPDATE {}.sessions SET status = 'well' WHERE id = 's'",
    "a negative number": "UPDATE {}.sessions SET seq = -1 WHERE id = 's'",
    "a time beyond all times": "UPDATE {}.sessions SET updated = 'Infinity' WHERE id = 's'",
    "a position beyond its log": "UPDATE {}.sessions SET full_pos = pos + 1 WHERE id = 's'",
}


@pytest.mark.parametrize("name", ROWS)
async def test_a_damaged_session_is_named_and_left_out_of_listings(name: str):  # rules C10, C15
    schema = fresh_schema()
    store = PostgresStore(postgres().url, schema=schema)
    await paused(store, "q")
    await paused(store, "q", session="sound")
    run(ROWS[name].format(schema))
    for call in (
        store.read(GetHead(S)),
        store.read(Load(S)),
        store.read(ListCheckpoints(S)),
        store.read(ListEvents(S)),
        store.write(GiveAnswers(ref=S, answers=[])),
    ):
        with pytest.raises(CheckpointCorrupt) as caught:
            await call
        assert caught.value.session_id == "s"
    assert [each.session for each in await store.read(ListSessions(limit=1))] == ["sound"]
    await store.write(Delete(S))
    await Drive(store).start()
    await store.close()


async def test_records_that_are_gone_or_in_the_way_are_noticed():  # rules C10, C12
    schema = fresh_schema()
    store = PostgresStore(postgres().url, schema=schema)
    drive = Drive(store)
    await drive.start()
    await drive.steps(2)
    run(f"DELETE FROM {schema}.records WHERE pos = 1")  # noqa: S608
    with pytest.raises(CheckpointCorrupt, match="lacks 1 of its records"):
        await store.read(Load(S))
    copied = "(jsonb_populate_record(r, jsonb_build_object('pos', 3))).*"
    run(f"INSERT INTO {schema}.records SELECT {copied} FROM {schema}.records AS r WHERE pos = 2")  # noqa: S608
    with pytest.raises(CheckpointCorrupt, match="in its way"):
        await drive.commit()
    await store.close()


async def test_a_row_that_does_not_name_the_newest_branch_is_noticed():  # rule C10
    schema = fresh_schema()
    store = PostgresStore(postgres().url, schema=schema)
    await Drive(store).start()
    run(f"UPDATE {schema}.branches SET name = 'x'")  # noqa: S608
    with pytest.raises(CheckpointCorrupt, match="does not name its newest branch"):
        await store.read(ListCheckpoints(S))
    await store.close()


async def test_a_server_that_isolates_transactions_strictly_changes_nothing():
    server = postgres()
    url = server.fresh()
    server.execute(f"ALTER DATABASE {url.rpartition('/')[2]} SET default_transaction_isolation = 'serializable'")
    store, others = PostgresStore(url), [PostgresStore(url) for _ in range(4)]
    drive = Drive(store)
    await drive.start(drive.next(asks=tuple(question(f"q{n}") for n in range(8))))

    async def answer(other: PostgresStore, id: str) -> None:
        await other.write(GiveAnswers(ref=S, answers=[Answer(id=id, value=b"1")]))

    given = [answer(others[n % 4], f"q{n}") for n in range(8)]
    await asyncio.gather(drive.steps(10), *given)
    assert (await drive.head()).checkpoint == "b.10"
    assert len((await drive.loaded()).answers) == 8
    for each in (store, *others):
        await each.close()
