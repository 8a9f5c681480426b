"""What an encrypted store keeps is unreadable without its keys, and every row only opens in its place."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from base64 import b64encode
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import msgspec
import psycopg
import pytest
import redis as redis_py

from adjourn import ChatModelAgent, Runner, Sessions, current, interrupt, once, tool, workflow
from adjourn.errors import AlreadyResumed, CheckpointCorrupt, Conflict, MissingKey, UsageError
from adjourn.messages import Message, ToolCall
from adjourn.stores import (
    Answer,
    Answered,
    EncryptedStore,
    Header,
    Input,
    MemoryStore,
    Notice,
    PostgresStore,
    Question,
    RedisStore,
    SeesCancels,
    SessionRef,
    SQLiteStore,
    Store,
    Write,
    open_store,
)
from adjourn.stores.kit import (
    GiveAnswers,
    ListAsked,
    ListCheckpoints,
    ListDecisions,
    ListEvents,
    ListInputs,
    ListOpen,
    ListQuestions,
    Load,
    Mark,
    Submit,
)
from adjourn.stores.types import DecisionFilter, QuestionFilter
from adjourn.testing import FakeClock, FaultStore, ScriptedModel, StoreSuite
from adjourn.testing.suite.bench import Drive, S, paused, question, record, refused, yes
from tests.servers import postgres, redis

NEW, OLD, OTHER = bytes(range(32)), b"o" * 32, b"x" * 32
KEYS = {"new": NEW, "old": OLD}


class TestOverMemory(StoreSuite):
    async def make_store(self, clock: FakeClock) -> Store:
        return EncryptedStore(MemoryStore(clock=clock), KEYS)


class TestOverSQLite(StoreSuite):
    shared = True

    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path) -> None:
        self.path = tmp_path / "store.db"

    async def make_store(self, clock: FakeClock) -> Store:
        return EncryptedStore(SQLiteStore(self.path, clock=clock), KEYS)

    async def reopen(self, clock: FakeClock) -> Store:
        # Another process that has not yet changed to the new key.
        return EncryptedStore(SQLiteStore(self.path, clock=clock), KEYS, current="old")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


# Nothing of what was said is in the file

CANARY = "Wolpertinger"


@once
async def look_up(name: str) -> str:
    return f"{name} has no debts"


@tool(approval=True)
async def pay(to: str) -> str:
    """Pay somebody."""
    current().emit({"paying": to})
    return await look_up(to)


@workflow
async def ask(name: str) -> str:
    return interrupt({"about": name}, reason=f"{name} asks", tags=[name], prompt=f"About {name}?")


def found_in(stored: bytes, text: str = CANARY) -> list[bytes]:
    """The forms of a text that can be read in what is stored."""
    forms = {text.encode(), text.encode("utf-16-le"), text.encode().hex().encode()}
    forms |= {b64encode(b"x" * shift + text.encode())[4:-4] for shift in range(3)}
    return [form for form in forms if form in stored]


def files(path: Path) -> bytes:
    return b"".join(each.read_bytes() for each in path.parent.iterdir())


async def work_on(store: Store) -> None:
    """Leave the word in every place where a session can keep one."""
    call = Message.assistant(f"I pay {CANARY}", tool_calls=[ToolCall(id="c1", name="pay", arguments={"to": CANARY})])
    model = ScriptedModel([call, f"Paid {CANARY}"])
    agent = ChatModelAgent("payer", instruction=f"Be kind to {CANARY}", model=model, tools=[pay])
    runner = Runner(agent, store=store)
    asked = await runner.run(f"Pay {CANARY}", session_id="agent")
    await runner.resume("agent", {asked.interrupts[0].id: True}, by=CANARY, message=f"{CANARY} is a friend")
    flow = Runner(ask, store=store)
    await flow.run(CANARY, session_id="flow", metadata={"about": CANARY})
    await flow.answer("flow", {"runnable:ask": f"{CANARY} says no"}, by=CANARY)
    await flow.run(CANARY, session_id="open")
    await store.write(Submit(ref=SessionRef("queued"), input=Input(id="i", body=CANARY.encode())))
    noted = Drive(store, "noted")
    await noted.start(msgspec.structs.replace(noted.next(), notices=(Notice(id="n", to="desk", body=CANARY.encode()),)))


async def test_nothing_that_was_said_can_be_read_in_the_file(path: Path):  # rule K4
    plain = SQLiteStore(path.with_name("plain.db"))
    await work_on(plain)
    await plain.close()
    assert found_in(files(path))
    plain.path.unlink()
    store = EncryptedStore(SQLiteStore(path), KEYS)
    await work_on(store)
    assert found_in(files(path)) == []
    await store.close()
    assert found_in(files(path)) == []


async def test_nothing_that_was_said_can_be_read_in_redis():  # rule K4
    url = redis().fresh()
    await work_and_close(EncryptedStore(RedisStore(url), KEYS))
    stored = everything_in_redis(url)
    assert b"runnable:ask" in stored
    assert found_in(stored) == []


async def test_nothing_that_was_said_can_be_read_in_postgres():  # rule K4
    url = postgres().fresh()
    await work_and_close(EncryptedStore(PostgresStore(url), KEYS))
    stored = everything_in_postgres(url)
    assert b"runnable:ask" in stored
    assert found_in(stored) == []


async def work_and_close(store: Store) -> None:
    await work_on(store)
    assert (await Runner(ask, store=store).recover("flow")).output == f"{CANARY} says no"
    await store.close()


def everything_in_redis(url: str) -> bytes:
    """Every key and value of a Redis database."""
    reads = {"hash": "HGETALL", "list": "LRANGE", "set": "SMEMBERS", "zset": "ZRANGE", "string": "GET"}
    with redis_py.Redis.from_url(url) as client:  # pyright: ignore[reportUnknownMemberType]
        found: list[Any] = []
        for key in cast("Any", client).scan_iter():
            kind = cast("Any", client).type(key).decode()
            places = ("0", "-1") if kind in ("list", "zset") else ()
            found += [key, cast("Any", client).execute_command(reads[kind], key, *places)]
    return repr(found).encode()


def everything_in_postgres(url: str) -> bytes:
    """Every row of every table and view of the store's schema."""
    with psycopg.connect(url) as connection:
        names = connection.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = 'adjourn'")
        rows = [connection.execute(f"SELECT t::text FROM adjourn.{name} AS t".encode()).fetchall() for (name,) in names]  # noqa: S608
    return repr(rows).encode()


STAYS: dict[type[msgspec.Struct], str] = {
    Write: "branch number parent full status takes event_count begins program input overtakes origin",
    Header: "source step address input",
    Question: "id expires due due_kind address asked requested_by",
    Answer: "id how branch call approves",
    Answered: "id how at",
    Input: "id program user abandons",
    Notice: "id to due",
}
SEALED: dict[type[msgspec.Struct], str] = {
    Write: "body header asks closes events notices summary",
    Header: "next metadata",
    Question: "body ended agent reason tags requesters groups",
    Answer: "value by",
    Answered: "value by",
    Input: "body",
    Notice: "body",
}


@pytest.mark.parametrize("kind", STAYS, ids=lambda kind: kind.__name__)
def test_whoever_adds_a_field_decides_whether_it_is_sealed(kind: type[msgspec.Struct]):  # rule K4
    assert set(kind.__struct_fields__) <= {*STAYS[kind].split(), *SEALED[kind].split()}


async def test_without_keys_the_file_says_what_is_missing(path: Path):  # rule K4
    store = EncryptedStore(SQLiteStore(path), KEYS)
    await work_on(store)
    await store.close()
    plain = SQLiteStore(path)
    sessions = Sessions(plain)
    for call in (sessions.pending("open"), sessions.state("agent"), sessions.audit("agent"), sessions.pending()):
        error = await refused(MissingKey, call)
        assert "is encrypted" in str(error)
        assert "ADJOURN_KEYS" in str(error)
    await plain.close()


# A row that is not where it was written


async def two_sessions(path: Path, keys: dict[str, Any] = KEYS) -> EncryptedStore:
    store = EncryptedStore(SQLiteStore(path), keys)
    for name in ("one", "two"):
        await Runner(ask, store=store).run(name, session_id=name)
    await Sessions(store).answer("two", {"runnable:ask": "yes"}, by="ann")
    await Runner(ask, store=store).run("three", session_id="three")
    await Sessions(store).answer("three", {"runnable:ask": "no"}, by="bob")
    await store.close()
    return store


def change(path: Path, *statements: str) -> None:
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def swap(table: str, column: str, key: str, where: str) -> tuple[str, str]:
    """Statements that swap one column between two rows."""
    return (
        f"CREATE TEMP TABLE kept AS SELECT {key} AS key, {column} AS it FROM {table} WHERE {where}",  # noqa: S608
        f"UPDATE {table} SET {column} = (SELECT it FROM kept WHERE kept.key <> {table}.{key}) WHERE {where}",  # noqa: S608
    )


ENDED = "how IS NOT NULL"
OF_TWO = "session IN (SELECT no FROM sessions WHERE id IN ('one', 'two'))"
FULL = "key IN (SELECT no * 268435456 FROM sessions WHERE id IN ('one', 'two'))"
REPORTED = "length(events) > 0 AND key / 268435456 IN (SELECT no FROM sessions WHERE id IN ('one', 'two'))"

SWAPPED = {
    "bodies": (swap("records", "body", "key", FULL), "two"),
    "events": (swap("records", "events", "key", REPORTED), "two"),
    "answers": (swap("questions", "value", "no", ENDED), "two"),
    "names": (swap("questions", "by", "no", ENDED), "two"),
    "who it was": (("UPDATE questions SET by = NULL",), "two"),
    "how it ended": (("UPDATE questions SET how = 'expired' WHERE how IS NOT NULL",), "two"),
    "when it expires": (("UPDATE questions SET expires = 9e9",), "two"),
    "questions": (swap("questions", "body", "no", OF_TWO), "two"),
    "a plain body": (("UPDATE records SET body = '{}'",), "two"),
    "a plain question": (("UPDATE questions SET body = '{}'",), "two"),
    "a plain answer": (("UPDATE questions SET value = 'true' WHERE how IS NOT NULL",), "two"),
    "a plain name": (("UPDATE questions SET by = 'eve' WHERE how IS NOT NULL",), "two"),
    "a cut off body": (("UPDATE records SET body = substr(body, 1, 12)",), "two"),
    "a bit": (("UPDATE records SET body = substr(body, 1, length(body) - 1) || x'00'",), "two"),
}


async def read_all(store: Store, session: str) -> None:
    await store.read(ListEvents(SessionRef(session)))
    await Runner(ask, store=store).recover(session)


@pytest.mark.parametrize("name", SWAPPED)
async def test_a_row_opens_only_where_it_was_written(path: Path, name: str):  # rule K4, failures 55
    store = await two_sessions(path)
    statements, session = SWAPPED[name]
    change(path, *statements)
    error = await refused(CheckpointCorrupt, read_all(store, session))
    assert error.session_id == session
    await store.close()


async def test_a_header_opens_only_where_it_was_written(path: Path):  # rule K4, failures 55
    store = await two_sessions(path)
    change(path, *swap("records", "header", "key", FULL))
    for session in ("one", "two"):
        assert [each.damaged for each in await store.read(ListCheckpoints(SessionRef(session)))][-1]
    await refused(CheckpointCorrupt, store.read(ListEvents(SessionRef("one"))))
    await store.close()


async def test_an_answer_of_one_branch_is_none_on_another(path: Path):  # rule K4, failures 55
    store = EncryptedStore(SQLiteStore(path), KEYS)
    run = Drive(store)
    await run.start(run.next(asks=(question("q"),)))
    await store.write(GiveAnswers(ref=run.ref, answers=[Answer(id="q", value=b"yes", by="ann")]))
    await run.commit(record(0, branch="c", parent="b.0", full=True, asks=(question("q"),)))
    await store.write(GiveAnswers(ref=run.ref, answers=[Answer(id="q", value=b"no", by="ann")]))
    values = [(await store.read(ListAsked(run.ref, branch, ["q"])))[0].value for branch in ("b", "c")]
    assert values == [b"yes", b"no"]
    change(path, *swap("questions", "value", "no", ENDED))
    for branch in ("b", "c"):
        await refused(CheckpointCorrupt, store.read(ListAsked(run.ref, branch, ["q"])))
    await store.close()


async def ask_ten(path: Path) -> EncryptedStore:
    store = EncryptedStore(SQLiteStore(path), KEYS)
    for number in range(10):
        await Runner(ask, store=store).run("Ann", session_id=f"s{number}")
    return store


async def seen_on_pages(sessions: Sessions, limit: int) -> list[str]:
    seen: list[str] = []
    page = await sessions.pending(limit=limit)
    while True:
        seen += [asked.session_id for asked in page]
        if page.next is None:
            return seen
        page = await sessions.pending(limit=limit, after=page.next)


@pytest.mark.parametrize("limit", [1, 3, 20])
async def test_pages_go_on_after_questions_that_do_not_open(path: Path, limit: int):  # rules C9, K4
    store = await ask_ten(path)
    change(
        path, "UPDATE questions SET body = x'00' WHERE no IN (SELECT no FROM questions ORDER BY no LIMIT 3 OFFSET 1)"
    )
    sessions = Sessions(store)
    assert await seen_on_pages(sessions, limit) == ["s0", "s4", "s5", "s6", "s7", "s8", "s9"]
    assert len(await sessions.sessions()) == 10
    await refused(CheckpointCorrupt, sessions.pending("s1"))
    await refused(CheckpointCorrupt, sessions.status("s1"))
    await store.close()


async def test_a_session_whose_key_is_missing_closes_no_list_for_the_others(
    path: Path, caplog: pytest.LogCaptureFixture
):  # rule K4
    store = await ask_ten(path)
    foreign = EncryptedStore(store.inner, {"foreign": OTHER})
    await Runner(ask, store=foreign).run("Eve", session_id="theirs")
    sessions = Sessions(store)
    for limit in (3, 10, 11):
        assert await seen_on_pages(sessions, limit) == [f"s{number}" for number in range(10)]
    assert "'foreign' is missing" in caplog.text
    listed = await sessions.sessions()
    assert [len(each.interrupts) for each in listed] == [0] + [1] * 10
    found = {each.session_id: each for each in await sessions.verify_all()}
    assert "'foreign' is missing" in str(found.pop("theirs").problems)
    assert len(found) == 10
    assert all(each.is_sound for each in found.values())
    for call in (sessions.pending("theirs"), sessions.status("theirs"), sessions.verify("theirs")):
        await refused(MissingKey, call)
    await refused(MissingKey, Sessions(EncryptedStore(store.inner, {"none": OTHER})).pending())
    await store.close()


@pytest.mark.parametrize("limit", [None, 1, 2])
async def test_an_encrypted_session_closes_no_list_of_a_store_without_keys(limit: int | None):  # rule K4
    """Such as one of a process that was given keys by mistake."""
    store = MemoryStore()
    for number, each in enumerate([EncryptedStore(store, KEYS), store, EncryptedStore(store, KEYS), store]):
        await Runner(ask, store=each).run("Eve", session_id=f"s{number}")
    sessions = Sessions(store)
    found = await sessions.pending(limit=limit)
    seen = [asked.session_id for asked in found]
    while found.next is not None:
        found = await sessions.pending(limit=limit, after=found.next)
        seen += [asked.session_id for asked in found]
    assert seen == ["s1", "s3"]
    assert [(each.session_id, len(each.interrupts)) for each in await sessions.sessions()] == [
        ("s3", 1),
        ("s2", 0),
        ("s1", 1),
        ("s0", 0),
    ]
    async with aclosing(sessions.subscribe(report_open=True)) as news:
        assert [(await anext(news)).session_id for _ in range(2)] == ["s1", "s3"]
    await refused(MissingKey, sessions.pending("s0"))
    for name in ("s1", "s3"):
        await sessions.delete(name)
    await refused(MissingKey, sessions.pending())


async def test_nobody_gets_to_see_what_another_user_was_asked(path: Path):  # rules C12, K4
    store = EncryptedStore(SQLiteStore(path), KEYS)
    runner = Runner(ask, store=store)
    await runner.run("Ann", session_id="s", user_id="ann")
    ann, eve = runner.for_user("ann"), runner.for_user("eve")
    assert len(await ann.pending()) == len(await ann.audit("s")) == 1
    change(
        path, "UPDATE sessions SET user = 'eve'", "UPDATE inbox SET term = 'all:user=eve' WHERE term = 'all:user=ann'"
    )
    assert await eve.pending() == await eve.audit("s") == []
    for call in (eve.pending("s"), eve.status("s")):
        await refused(CheckpointCorrupt, call)
    change(path, "UPDATE sessions SET user = NULL")
    assert await runner.pending() == []
    await store.close()


@pytest.mark.parametrize("label", ["agent", "reason", "tags"])
async def test_a_question_is_listed_only_with_its_own_labels(path: Path, label: str):  # rule K4
    store = await two_sessions(path)
    sessions = Sessions(store)
    await Runner(ask, store=store).run("Ann", session_id="open")
    assert "open" in [asked.session_id for asked in await sessions.pending()]
    other = "json_array(reason)" if label == "tags" else "lower(hex(randomblob(16)))"
    change(path, f"UPDATE questions SET {label} = {other}")  # noqa: S608
    assert await sessions.pending() == []
    await refused(CheckpointCorrupt, sessions.pending("open"))
    await store.close()


# Keys


async def test_a_new_key_encrypts_and_the_old_one_still_opens(path: Path):  # rule K4
    store = await two_sessions(path, {"old": OLD})
    rotated = EncryptedStore(store.inner, KEYS)
    assert (await Runner(ask, store=rotated).recover("two")).output == "yes"
    await Sessions(rotated).answer("one", {"runnable:ask": "new"})
    assert (await Runner(ask, store=rotated).recover("one")).output == "new"
    error = await refused(MissingKey, store.read(Load(SessionRef("one"))))
    assert error.key_id == "new"
    assert "'new'" in str(error)
    await store.close()


async def test_decisions_are_found_whichever_keys_asked_and_answered():  # rule K4
    inner = MemoryStore()
    old, new = EncryptedStore(inner, KEYS, current="old"), EncryptedStore(inner, KEYS)
    run = Drive(old)
    await run.start()
    await run.pause(Question(id="q", body=b"{}", agent="A", tags=("t",)))
    await new.write(Mark(ref=S, id="q", taker="ann", groups=("desk",)))
    (found,) = await new.read(ListQuestions(filter=QuestionFilter(agent="A", tag="t", taker="ann", group="desk")))
    assert [found] == await new.read(ListOpen(S, QuestionFilter(agent="A", tag="t", taker="ann", group="desk")))
    await new.write(GiveAnswers(S, [yes("q", by="bob")]))
    for chosen in (DecisionFilter(by="bob"), DecisionFilter(agent="A"), DecisionFilter(by="bob", agent="A")):
        assert [each.id for each in await new.read(ListDecisions(filter=chosen))] == ["q"]
    assert await new.read(ListDecisions(filter=DecisionFilter(by="ann", agent="A"))) == []


async def test_it_is_known_which_keys_are_still_in_use(path: Path):  # rule K4
    store = await two_sessions(path, {"old": OLD})
    assert await store.keys_in_use() == {"old": 3}
    rotated = EncryptedStore(store.inner, KEYS)
    await Runner(ask, store=rotated).recover("two")
    assert await rotated.keys_in_use() == {"old": 3, "new": 1}
    for name in ("one", "two", "three"):
        await Sessions(rotated).delete(name)
    await Runner(ask, store=rotated).run("x", session_id="four")
    await Runner(ask, store=rotated, app_name="~shop").run("x", session_id="five")
    assert await rotated.keys_in_use() == {"new": 1}
    assert await rotated.keys_in_use(apps=["shop"]) == {"new": 2}
    await store.close()


async def test_another_key_under_the_same_id_is_told_from_damage(path: Path):  # rule K4
    store = await two_sessions(path, {"old": OLD})
    wrong = EncryptedStore(store.inner, {"old": OTHER})
    for call in (wrong.read(Load(SessionRef("one"))), wrong.read(ListQuestions()), Sessions(wrong).pending()):
        error = await refused(MissingKey, call)
        assert "another key of this id" in str(error)
    await store.close()


async def test_a_submission_is_recognized_after_a_rotation():  # rules K4, V11
    inner = MemoryStore()
    old, new = EncryptedStore(inner, KEYS, current="old"), EncryptedStore(inner, KEYS)
    ref = SessionRef("s")
    await old.write(Submit(ref=ref, input=Input(id="i", body=b"hi")))
    assert (await new.write(Submit(ref=ref, input=Input(id="i", body=b"hi")))).inputs == 1
    await refused(Conflict, new.write(Submit(ref=ref, input=Input(id="i", body=b"other"))))
    await refused(Conflict, EncryptedStore(inner, {"new": NEW}).write(Submit(ref=ref, input=Input(id="i", body=b"hi"))))
    await new.write(Submit(ref=ref, input=Input(id="j", body=b"hi")))
    assert [each.body for each in await old.read(ListInputs(ref))] == [b"hi", b"hi"]
    assert await new.keys_in_use() == {"old": 1, "new": 1}


async def test_who_was_there_first_is_told_by_name():
    store = EncryptedStore(MemoryStore(), KEYS)
    run = await paused(store, "q")
    await store.write(GiveAnswers(ref=run.ref, answers=[Answer(id="q", value=b"1", by="ann")]))
    for late in ([Answer(id="q", value=b"2", by="bob")], [Answer(id="q", value=b"2", branch="b")]):
        assert (await refused(AlreadyResumed, store.write(GiveAnswers(ref=run.ref, answers=late)))).by == "ann"


async def test_equal_content_at_one_place_gives_equal_bytes_and_nowhere_else():
    inner = MemoryStore()
    store = EncryptedStore(inner, KEYS)
    for name in ("s", "t"):
        run = Drive(store, name)
        await run.start(run.next(b"same"))
        await run.commit(run.next(b"same", full=True))
    rows = [(await inner.read(Load(SessionRef(name), f"b.{n}"))) for name in ("s", "t") for n in range(2)]
    assert len({row.rows[-1] for row in rows if row is not None}) == 4


BAD = [{}, {"a": b"short"}, {"a": "no base64!"}, {"a": 5}, {"a:b": NEW}, {"": NEW}, {5: NEW}, [NEW], None, "a:b"]


@pytest.mark.parametrize("keys", BAD, ids=repr)
def test_what_is_no_key_is_refused(keys: Any):
    with pytest.raises(UsageError) as caught:
        EncryptedStore(MemoryStore(), keys)
    assert "short" not in str(caught.value)


def test_what_is_no_store_is_refused():
    for wrong in ("sqlite:///a.db", None):
        with pytest.raises(UsageError, match="give the store"):
            EncryptedStore(wrong, KEYS)  # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match="'newer'"):
        EncryptedStore(MemoryStore(), KEYS, current="newer")


def test_it_shows_no_key():
    store = EncryptedStore(MemoryStore(), {"new": b64encode(NEW).decode()})
    assert "new" in repr(store)
    assert b64encode(NEW).decode() not in repr(store) + repr(vars(store))


def test_it_sees_cancels_if_what_it_wraps_does():
    assert isinstance(EncryptedStore(MemoryStore(), KEYS), SeesCancels) == isinstance(MemoryStore(), SeesCancels)
    assert not isinstance(EncryptedStore(FaultStore(MemoryStore(), 99), KEYS), SeesCancels)


# By URL


def test_a_url_takes_the_keys_of_the_environment(path: Path, monkeypatch: pytest.MonkeyPatch):
    url = f"encrypted+sqlite:///{path}"
    monkeypatch.delenv("ADJOURN_KEYS", raising=False)
    with pytest.raises(UsageError, match="ADJOURN_KEYS is not set"):
        open_store(url)
    key = EncryptedStore.generate_key()
    for wrong in (key, f"a:{key},a:{key}", f"a:{key},"):
        monkeypatch.setenv("ADJOURN_KEYS", wrong)
        with pytest.raises(UsageError) as caught:
            open_store(url)
        assert key not in str(caught.value)
    monkeypatch.setenv("ADJOURN_KEYS", f"a:{key}, b:{EncryptedStore.generate_key()}")
    store = open_store(url)
    assert isinstance(store, EncryptedStore)
    assert isinstance(store.inner, SQLiteStore)
    assert open_store(url) is store
    with pytest.raises(UsageError, match="nowhere"):
        open_store("encrypted+nowhere://x")


def test_without_the_extra_it_is_named(tmp_path: Path):
    code = (
        "import sys; sys.modules['cryptography'] = None\n"
        "from adjourn.stores import EncryptedStore, MemoryStore\n"
        "EncryptedStore(MemoryStore(), {'a': bytes(32)})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=False)
    assert "pip install 'adjourn[encryption]'" in done.stderr
