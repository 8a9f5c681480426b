"""Verifying a log: nothing is wrong with what was written, and whatever is changed afterwards is noticed."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypedDict, TypeVar

import msgspec
import psycopg
import pytest
import redis as redis_py
from hypothesis import given
from hypothesis import strategies as st

from adjourn import ChatModelAgent, Edit, Runner, Secret, Sessions, ToolCall, UsageError, interrupt, tool, workflow
from adjourn._engine.proof import Ended, LeftBranch, answer_digest
from adjourn._engine.record import chain_of, decode
from adjourn.errors import CheckpointCorrupt, CheckpointNotFound, InterruptExpired
from adjourn.graph import END, START, StateGraph
from adjourn.sessions import Verification
from adjourn.sessions._chain import Chain
from adjourn.stores import EncryptedStore, MemoryStore, PostgresStore, RedisStore, SessionRef, SQLiteStore, Store
from adjourn.stores._wrapper import StoreWrapper
from adjourn.stores.kit import Audit, Delete, GetHead, ListRecords, StoreQuery
from adjourn.stores.types import StoredRecord
from adjourn.testing import FakeClock, FunctionModel
from tests import servers

T = TypeVar("T")

KEY = "a secret that nobody can guess"


@tool(approval=True)
def pay(euros: int) -> str:
    """Pay."""
    return f"paid {euros}"


def cashier(request: Any) -> Any:
    answered = any(message.role == "tool" for message in request.messages[-2:])  # A note may follow.
    return "Done." if answered else ToolCall(id="c", name="pay", arguments={"euros": 90})


def agent() -> ChatModelAgent:
    return ChatModelAgent("Cashier", model=FunctionModel(cashier), tools=[pay])


@workflow
async def visit(place: str) -> str:
    if place == "Oslo":
        await asyncio.Event().wait()
    return place


@workflow
async def trip(place: str) -> list[Any]:
    return [place, interrupt("When?", key="when"), interrupt("How?", key="how", expires_in=3600)]


async def lived(store: Store, **options: Any) -> Runner[Any, Any, Any]:
    """A session with most of what can happen: answers of all kinds, an edit, a second turn, and branches."""
    runner = Runner(agent(), store=store, **options)
    await runner.run("Pay 90.", session_id="s", user_id="ann")
    (asked,) = await runner.pending("s")
    await Sessions(store).answer("s", {asked.id: Edit({"euros": 9})}, by="bob", message="too much")
    await runner.resume("s")
    await runner.run("And again.", session_id="s", user_id="ann")
    (asked,) = await runner.pending("s")
    await runner.resume("s", {asked.id: False}, by="carol")
    await runner.run("Once more.", session_id="s", user_id="ann")
    await runner.run("Forget it.", session_id="s", user_id="ann", on_pending="abandon")
    first = (await runner.history("s"))[-1]
    await runner.run(session_id="s", checkpoint_id=first.id)
    return runner


def sound(found: Verification) -> Verification:
    assert [str(each) for each in found.problems] == []
    return found


@pytest.mark.parametrize("options", [{}, {"durability": "async"}, {"durability": "pause"}, {"audit_key": KEY}])
async def test_what_was_written_is_sound(store: Store, options: Any):  # rule K6
    runner = await lived(store, **options)
    found = sound(await runner.verify("s"))
    assert found.is_sound
    assert found.signed == ("audit_key" in options)
    assert found.records == len(await store.read(ListRecords(SessionRef("s"))))
    assert (found.untaken, found.unproved, found.pruned) == (0, 0, ())
    audit = await runner.audit("s", all_branches=True)
    assert [(each.outcome, each.by) for each in audit] == [
        ("answered", "bob"),
        ("answered", "carol"),
        ("abandoned", None),
        (None, None),
    ]
    assert found.answers == 3
    assert len({each.branch for each in audit}) == 2
    assert [each.interrupt.id for each in await runner.audit("s")] == [audit[-1].interrupt.id]
    answer = audit[0]
    assert (answer.answer.arguments, answer.message) == ({"euros": 9}, "too much")


async def test_an_answer_that_no_run_has_taken_up_is_not_proved_yet(store: Store):  # rule K6
    runner = Runner(trip, store=store)
    await runner.run("Oslo", session_id="s")
    await runner.answer("s", {"when": "now"}, by="bob")
    found = sound(await runner.verify("s"))
    assert (found.answers, found.untaken) == (0, 1)
    await runner.resume("s")
    found = sound(await runner.verify("s"))
    assert (found.answers, found.untaken) == (1, 0)


async def test_an_expired_question_has_the_time_of_the_store(tmp_path: Path):  # rule K6
    clock = FakeClock()
    async with _opened(SQLiteStore(tmp_path / "s.db", clock=lambda: clock() + 5.0)) as store:
        runner = Runner(trip, store=store, clock=clock)
        await runner.run("Oslo", session_id="s")
        await runner.resume("s", {"when": "now"})
        clock.advance(4000)
        with pytest.raises(InterruptExpired):
            await runner.recover("s")
        assert sound(await runner.verify("s")).answers == 2


async def test_forks_begin_with_the_digest_of_what_they_come_from(store: Store):  # rule K6
    runner = Runner(agent(), store=store, audit_key=KEY)
    await runner.run("Pay 90.", session_id="s", user_id="ann")
    (asked,) = await runner.pending("s")
    await runner.resume("s", {asked.id: True}, by="bob")
    sessions = Sessions(store, audit_key=KEY)
    for point in await runner.history("s"):
        await sessions.fork("s", checkpoint_id=point.id, to=f"copy {point.id}")
        sound(await sessions.verify(f"copy {point.id}"))
    await sessions.fork("s", to="s")
    await runner.run("Again.", session_id="s", user_id="ann", on_pending="abandon")
    sound(await sessions.verify("s"))


async def test_a_turn_that_was_cancelled_and_left_leaves_a_sound_log(store: Store):  # rule K6
    runner = Runner(visit, store=store)
    await runner.run("Rome", session_id="s")
    running = runner.run("Oslo", session_id="s")
    await running.start()
    await runner.cancel("s", mode="now")
    await running
    before = next(each.id for each in await runner.history("s") if each.source == "end")
    await runner.run(None, session_id="s", checkpoint_id=before)
    await runner.run("Bonn", session_id="s")
    sound(await runner.verify("s"))


async def test_branches_can_be_pruned(store: Store):  # rules K6, C7
    runner = Runner(visit, store=store)
    for _ in range(3):
        await runner.run("Rome", session_id="s")
    points = [each.id for each in await runner.history("s") if each.source == "end"]
    for point in (points[-1], points[1], points[-1]):
        await runner.fork("s", checkpoint_id=point, to="s")
        await runner.run("Bonn", session_id="s")
    records = sound(await runner.verify("s")).records
    for keep in (8, 6, 4, 2, 1):
        await runner.prune("s", keep=keep)
        sound(await runner.verify("s"))
    assert (await runner.verify("s")).records < records


async def test_pruned_records_are_named_and_are_not_a_problem(store: Store):  # rules K6, C7
    runner = await lived(store)
    kept = (await runner.verify("s")).head
    await runner.prune("s", keep=1)
    found = sound(await runner.verify("s", head=kept))
    assert found.pruned
    assert found.unproved > 0
    assert found.answers + found.unproved == 3


async def test_a_digest_that_was_kept_shows_what_was_cut_off_or_made_again(tmp_path: Path):  # rule K6
    path = tmp_path / "s.db"
    async with _opened(SQLiteStore(path)) as store:
        runner = Runner(trip, store=store)
        await runner.run("Oslo", session_id="s")
        early = (await runner.verify("s")).head
        await runner.resume("s", {"when": "now"})
        late = (await runner.verify("s")).head
        assert sound(await runner.verify("s", head=early)).head == late != early
        await runner.delete("s")
        await runner.run("Rome", session_id="s")
        assert (await runner.verify("s")).is_sound
        for kept in (early, late):
            assert "kept" in str((await runner.verify("s", head=kept)).problems[0])
        for wrong in ("", "nothing", 7):
            with pytest.raises(UsageError, match="earlier verification"):
                await runner.verify("s", head=wrong)  # pyright: ignore[reportArgumentType]


async def test_without_the_key_nobody_makes_records_that_pass(store: Store):  # rule K6
    await Runner(trip, store=store, audit_key=KEY).run("Oslo", session_id="s")
    sound(await Sessions(store, audit_key=[b"a newer one, also secret", KEY]).verify("s"))
    for other in (None, "another secret, as long", [b"a newer one, also secret"]):
        assert not (await Sessions(store, audit_key=other).verify("s")).is_sound
    await Runner(trip, store=store).resume("s", {"when": "now"})
    (problem,) = (await Sessions(store, audit_key=KEY).verify("s")).problems[:1]
    assert "not signed" in str(problem)


async def test_what_was_written_before_there_was_a_key_is_covered_by_what_came_after(store: Store):  # rule K6
    await Runner(trip, store=store).run("Oslo", session_id="s")
    await Runner(trip, store=store, audit_key=KEY).resume("s", {"when": "now"})
    sound(await Sessions(store, audit_key=KEY).verify("s"))


@pytest.mark.parametrize("wrong", ["", "short", b"bytes", [], [KEY, "short"], 7, [7]], ids=repr)
def test_keys_that_could_be_guessed_are_refused(wrong: Any):
    with pytest.raises(UsageError, match="audit_key"):
        Sessions(MemoryStore(), audit_key=wrong)
    with pytest.raises(UsageError, match="audit_key"):
        Runner(trip, audit_key=wrong)


async def test_a_session_that_does_not_exist_cannot_be_verified(store: Store):
    await lived(store)
    for sessions in (Sessions(store), Sessions(store).for_user("eve")):
        with pytest.raises(CheckpointNotFound):
            await sessions.verify("none" if sessions.user_id is None else "s")


async def test_encrypted_stores_can_be_verified(tmp_path: Path):  # rule K6
    keys = {"k1": b"0" * 32}
    async with _opened(EncryptedStore(SQLiteStore(tmp_path / "s.db"), keys)) as store:
        await lived(store, audit_key=KEY)
        sound(await Sessions(store, audit_key=KEY).verify("s"))


async def test_secrets_are_hidden_before_the_digest_is_made(store: Store):  # rules K5, K6
    runner, secret = Runner(trip, store=store), Secret("a name that nobody may read")
    await runner.run(secret.reveal(), session_id="s", metadata={"note": secret.reveal()})
    await runner.resume("s", {"when": "now"})
    assert not [each for each in await store.read(ListRecords(SessionRef("s"))) if b"nobody may read" in each.body]
    sound(await runner.verify("s"))


async def test_a_live_session_can_be_verified_at_any_time(store: Store):  # rule K6
    class State(TypedDict):
        n: int

    async def count(state: State) -> dict[str, int]:
        await asyncio.sleep(0)
        return {"n": state["n"] + 1}

    graph = StateGraph(State)
    graph.add_node("count", count)
    graph.add_edge(START, "count")
    graph.add_conditional_edges("count", lambda state: END if state["n"] >= 40 else "count", ["count", END])
    runner = Runner(graph.compile(), store=store)
    run = runner.run({"n": 0}, session_id="s", max_steps=100)
    async for _ in run:
        if await store.read(GetHead(SessionRef("s"))) is not None:
            sound(await runner.verify("s"))
    assert sound(await runner.verify("s")).records > 40


# Changes to a store's file

TABLES = ("records", "questions", "branches", "sessions")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, Any]:
    path = tmp_path_factory.mktemp("log") / "s.db"

    async def live() -> Any:
        async with _opened(SQLiteStore(path)) as store:
            await lived(store)
            sound(await Sessions(store).verify("s"))
            return await _read(store)

    read = asyncio.run(live())
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return path.read_bytes(), read


@given(choose=st.data())
def test_every_change_of_a_row_is_noticed(
    written: tuple[bytes, Any], tmp_path_factory: pytest.TempPathFactory, choose: Any
):  # rule K6
    original, before = written
    path = tmp_path_factory.mktemp("altered") / "s.db"
    path.write_bytes(original)
    connection = sqlite3.connect(path)
    table = choose.draw(st.sampled_from(TABLES))
    columns = [column for _, column, *_ in connection.execute(f"PRAGMA table_info({table})")]
    rows = connection.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608
    row = choose.draw(st.integers(0, len(rows) - 1))
    column = choose.draw(st.sampled_from([None, *columns]))
    where = " AND ".join(f"{name} IS ?" for name in columns)
    try:
        if column is None:
            connection.execute(f"DELETE FROM {table} WHERE {where}", rows[row])  # noqa: S608
        else:
            value = choose.draw(
                _other(rows[row][columns.index(column)], [each[columns.index(column)] for each in rows])
            )
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (value, *rows[row]))  # noqa: S608
        connection.commit()
    except sqlite3.IntegrityError:
        return  # The database itself does not accept it.
    finally:
        connection.close()
    noticed, after = asyncio.run(_verified(path))
    assert noticed or after == before  # how a session is run, and what it is found by, is not part of the log


PLACES = {
    "FIRST": "key = (SELECT min(key) FROM records)",
    "SECOND": "key = (SELECT key FROM records ORDER BY key LIMIT 1 OFFSET 1)",
    "ASKED": "key = (SELECT min(key) FROM records WHERE source = 'interrupt')",
    "LAST": "key = (SELECT max(key) FROM records)",
}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE records SET full = 1 - full WHERE SECOND", "does not say whether it is a full one"),
        ("UPDATE records SET body = x'00' WHERE SECOND", "it cannot be read"),
        ("UPDATE records SET source = 'edit' WHERE SECOND", "its row cannot be read"),
        (
            """UPDATE records SET header = CAST(replace(CAST(header AS TEXT), '"step":1', '"step":9') AS BLOB)
            WHERE SECOND""",
            "its digest does not match",
        ),
        ("UPDATE records SET events = x'' WHERE ASKED", "its events are missing"),
        ("UPDATE records SET events = events || x'20' WHERE ASKED", "its events are not what was written"),
        ("UPDATE records SET count = count + 1 WHERE FIRST", "does not have the numbers of its events"),
        ("UPDATE records SET at = at + 1 WHERE FIRST", "it was written at"),
        ("DELETE FROM records WHERE SECOND", "records before it are missing"),
        ("DELETE FROM records WHERE LAST", "it is the session's head, and is missing"),
        ("UPDATE sessions SET status = 'failed'", "which is now 'failed'"),
        ("UPDATE sessions SET seq = seq + 1", "does not have the number of its last event"),
        ("UPDATE sessions SET updated = updated + 1", "does not have the time of the session's last write"),
        ("UPDATE questions SET expires = 1e10 WHERE by = 'bob'", "it is not what was asked"),
        ("UPDATE questions SET by = 'eve' WHERE by = 'bob'", "its answer, or who gave it, is not what was taken up"),
        ("UPDATE questions SET at = at + 1 WHERE by = 'bob'", "and now has the time"),
        (
            "UPDATE questions SET how = NULL, at = NULL, by = NULL, value = NULL, taken = 0 WHERE by = 'bob'",
            "it had ended, and is open now",
        ),
        ("DELETE FROM questions WHERE by = 'bob'", "its answer was taken up here, and it is gone"),
        ("DELETE FROM questions WHERE how IS NULL", "it was asked here, and is gone"),
        ("UPDATE questions SET id = 'x' WHERE how IS NULL", "no record asked it"),
    ],
)
def test_what_is_wrong_is_said(written: tuple[bytes, Any], tmp_path: Path, change: str, said: str):  # rule K6
    path = tmp_path / "s.db"
    path.write_bytes(written[0])
    for name, place in PLACES.items():
        change = change.replace(name, place)
    _changed(sqlite3.connect(path), change)

    async def problems() -> list[str]:
        async with _opened(SQLiteStore(path)) as store:
            return [str(each) for each in (await Sessions(store).verify("s")).problems]

    assert said in " ".join(asyncio.run(problems()))


async def test_sessions_that_are_deleted_meanwhile_are_left_out(store: Store):  # rule K6
    class Deletes(StoreWrapper):
        async def read(self, query: StoreQuery[T]) -> T:
            asked: object = query
            if isinstance(asked, Audit) and asked.ref.id == "two":
                await self.write(Delete(asked.ref))
            return await super().read(query)

    for name in ("one", "two"):
        await Runner(trip, store=store).run("Oslo", session_id=name)
    assert [each.session_id for each in await Sessions(Deletes(store)).verify_all()] == ["one"]


async def test_a_branch_that_is_taken_out_is_noticed_though_nothing_is_left_empty(tmp_path: Path):  # rule K6
    path = tmp_path / "s.db"
    async with _opened(SQLiteStore(path)) as store:
        runner = Runner(trip, store=store, audit_key=KEY)
        await runner.run("Oslo", session_id="s")
        first = (await runner.history("s"))[-1].id
        await runner.run(session_id="s", checkpoint_id=first)
        await runner.resume("s", {"when": "now"}, by="mallory")
        await runner.run(session_id="s", checkpoint_id=first)
        await runner.resume("s", {"when": "never"}, by="ann")
        kept = sound(await runner.verify("s")).head
    with sqlite3.connect(path) as file:
        rows = file.execute("SELECT key, start FROM branches ORDER BY key").fetchall()
        (first, _), (key, start), (last, end) = rows
        no = key - first
        _take_out(file, start, end)
        file.execute("DELETE FROM questions WHERE branch = ?", (no,))
        file.execute("DELETE FROM branches WHERE key = ?", (key,))
        file.execute("UPDATE branches SET start = ?, key = ? WHERE key = ?", (start, key, last))
        file.execute("UPDATE questions SET branch = ? WHERE branch = ?", (no, last - first))
        file.execute("UPDATE sessions SET branch_no = ?", (no,))
    file.close()
    async with _opened(SQLiteStore(path)) as store:
        sessions = Sessions(store, audit_key=KEY)
        (problem,) = (await sessions.verify("s", head=kept)).problems
        assert "was not pruned" in str(problem)
        assert [each.by for each in await sessions.audit("s", all_branches=True)] == [None, "ann", None]


async def test_a_beginning_that_is_taken_out_is_noticed_though_nothing_is_left_empty(tmp_path: Path):  # rule K6
    path = tmp_path / "s.db"
    async with _opened(SQLiteStore(path)) as store:
        runner = Runner(trip, store=store, audit_key=KEY)
        for by in ("mallory", "ann", "ann"):
            await runner.run("Oslo", session_id="s")
            await runner.resume("s", {"when": "now"}, by=by)
            await runner.resume("s", {"how": "slowly"}, by=by)
        kept = sound(await runner.verify("s")).head
    with sqlite3.connect(path) as file:
        ((name,),) = file.execute("SELECT name FROM branches").fetchall()
        full = [key for (key,) in file.execute("SELECT key FROM records WHERE full ORDER BY key")]
        cut = full[1] - full[0]
        _take_out(file, 0, cut)
        file.execute("UPDATE branches SET first = ?, parent = ?", (cut, f"{name}.{cut - 1}"))
        file.execute("DELETE FROM questions WHERE by = 'mallory'")
    file.close()
    async with _opened(SQLiteStore(path)) as store:
        found = await Sessions(store, audit_key=KEY).verify("s", head=kept)
        assert "was not pruned" in str(found.problems[0])


# Branches that were left


class Plan(TypedDict):
    when: str


def ask(state: Plan) -> dict[str, Any]:
    return {"when": interrupt("When?", key="when", schema=str)}


async def stay(state: Plan) -> None:
    if state["when"] == "never":
        await asyncio.Event().wait()


def planner(store: Store) -> Runner[Any, Any, Any]:
    graph = StateGraph(Plan).add_node("ask", ask).add_node("again", ask).add_node("stay", stay)
    graph.add_edge(START, "ask").add_edge("ask", "again").add_edge("again", "stay")
    return Runner(graph.compile(), store=store)


async def travel(runner: Runner[Any, Any, Any], first: str) -> None:
    await runner.run(session_id="s", checkpoint_id=first)


async def edit(runner: Runner[Any, Any, Any], _: str) -> None:
    await runner.edit("s", {"when": "later"}, as_node="ask")


async def fork(runner: Runner[Any, Any, Any], first: str) -> None:
    await runner.fork("s", checkpoint_id=first, to="s")


@pytest.mark.parametrize("leave", [travel, edit, fork])
async def test_a_head_that_was_kept_covers_branches_that_were_left(tmp_path: Path, leave: Any):  # rule K6
    async with _opened(SQLiteStore(tmp_path / "s.db")) as store:
        runner = planner(store)
        await runner.run({"when": ""}, session_id="s")
        first = (await runner.history("s"))[-1].id
        await runner.resume("s", {"when": "now"}, by="mallory")
        await leave(runner, first)
        kept = sound(await runner.verify("s")).head
        records = await store.read(ListRecords(SessionRef("s")))
        left = records[0].id.partition(".")[0]
        assert records[-1].id.partition(".")[0] != left
        forged = _made_again(records, by="bob")
        with sqlite3.connect(tmp_path / "s.db") as file:
            file.execute("UPDATE questions SET by = 'bob' WHERE by = 'mallory'")
            for each in records:
                file.execute("UPDATE records SET body = ? WHERE body = ?", (forged[each.id], each.body))
        file.close()
        sound(await runner.verify("s"))  # nothing else shows it
        problems = [str(each) for each in (await runner.verify("s", head=kept)).problems]
        assert problems == [f"record '{records[-1].id}': its digest is not the one that was kept"]
        with sqlite3.connect(tmp_path / "s.db") as file:
            for each in records:
                if not each.id.startswith(left):
                    file.execute("UPDATE records SET body = ? WHERE body = ?", (each.body, forged[each.id]))
        file.close()
        assert "which left its branch" in str((await runner.verify("s", head=kept)).problems[0])


@pytest.mark.parametrize("change", ["UPDATE questions SET by = 'bob'", "DELETE FROM questions"])
async def test_answers_that_nobody_took_up_before_their_branch_was_left_are_proved(tmp_path: Path, change: str):
    async with _opened(SQLiteStore(tmp_path / "s.db")) as store:  # rule K6
        runner = planner(store)
        await runner.run({"when": ""}, session_id="s")
        await runner.answer("s", {"when": "now"}, by="mallory")
        await fork(runner, (await runner.history("s"))[-1].id)
        assert sound(await runner.verify("s")).untaken == 0
        with sqlite3.connect(tmp_path / "s.db") as file:
            file.execute(f"{change} WHERE by = 'mallory'")
        file.close()
        assert not (await runner.verify("s")).is_sound


async def test_a_branch_with_a_damaged_end_can_be_left(tmp_path: Path):  # rules K6, C7
    async with _opened(EncryptedStore(SQLiteStore(tmp_path / "s.db"), {"k1": b"0" * 32})) as store:
        runner = planner(store)
        await runner.run({"when": ""}, session_id="s")
        first = (await runner.history("s"))[-1].id
        await runner.resume("s", {"when": "now"})
        with sqlite3.connect(tmp_path / "s.db") as file:
            file.execute("UPDATE records SET body = x'00' WHERE key = (SELECT max(key) FROM records)")
        file.close()
        await travel(planner(store), first)
        assert [each.status for each in await runner.sessions()] == ["waiting"]


def _made_again(records: Sequence[StoredRecord], by: str) -> dict[str, bytes]:
    """The records as somebody writes them anew who wants all answers to be another's, and knows how."""
    bodies: dict[str, bytes] = {}
    for each in records:
        record, chain = decode(each.body), Chain(SessionRef("s"))
        chain.digest = chain_of(bodies[each.parent]) if each.parent is not None else ""
        assert record.proof is not msgspec.UNSET
        for name, ended in record.proof.ended.items():
            if ended.digest == answer_digest(name, "answered", "mallory", b'"now"'):
                record.proof.ended[name] = Ended(answer_digest(name, "answered", by, b'"now"'), ended.at)
        if (left := record.proof.left) is not None:
            record.proof.left = LeftBranch(left.record, chain_of(bodies[left.record]), left.ended)
        bodies[each.id], _ = chain.encode(record, record.proof, each.id, each.parent, each.header, each.events)
    return bodies


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "redis"])
async def test_a_session_that_no_list_shows_is_a_problem(tmp_path: Path, kind: str):  # rule K6
    store, damage = _damageable(kind, tmp_path)
    async with _opened(store):
        for name in ("one", "two", "three"):
            await Runner(trip, store=store).run("Oslo", session_id=name, user_id="ann")
        damage()
        for whose in (None, "ann"):
            found = await Sessions(store).verify_all(user_id=whose)
            assert {each.session_id: each.is_sound for each in found} == {"one": True, "two": False, "three": True}
            assert "cannot be read" in str(found[-1].problems[0])
        assert len(await Sessions(store).verify_all(user_id="bob")) == 0


def _damageable(kind: str, folder: Path) -> tuple[Store, Callable[[], object]]:
    """A store, and what damages the row of its session 'two'."""
    if kind == "sqlite":
        store = SQLiteStore(folder / "s.db")
        return store, lambda: _changed(sqlite3.connect(store.path), "UPDATE sessions SET status = 'x' WHERE id = 'two'")
    if kind == "postgres":
        url = servers.postgres().fresh()
        change = "UPDATE adjourn.sessions SET status = 'x' WHERE id = 'two'"
        return PostgresStore(url), lambda: _changed(psycopg.connect(url), change)
    url = servers.redis().fresh()
    return RedisStore(url), lambda: _damaged_in_redis(url)


def _changed(file: Any, statement: str) -> None:
    with file:
        file.execute(statement)
    file.close()


def _damaged_in_redis(url: str) -> None:
    client: Any = redis_py.Redis.from_url(url)  # pyright: ignore[reportUnknownMemberType]
    with client:
        (row,) = [
            key for key in client.scan_iter() if client.type(key) == b"hash" and client.hget(key, "session") == b"two"
        ]
        client.hset(row, "status", "x")


def _take_out(file: sqlite3.Connection, start: int, end: int) -> None:
    """Remove the records of some positions, and move all that follow up to there, with the numbers of their events."""
    rows = file.execute("SELECT key, seq - count FROM records ORDER BY key").fetchall()
    base, seqs = rows[0][0], {key - rows[0][0]: seq for key, seq in rows}
    file.execute("DELETE FROM records WHERE key >= ? AND key < ?", (base + start, base + end))
    moved = (end - start, seqs[end] - seqs[start])
    for key, _ in rows[end:]:
        file.execute("UPDATE records SET key = key - ?, seq = seq - ? WHERE key = ?", (*moved, key))
    file.execute("UPDATE sessions SET pos = pos - ?, full_pos = full_pos - ?, seq = seq - ?", (moved[0], *moved))


def _other(value: Any, others: list[Any]) -> Any:
    """Another value of the same type: what was written elsewhere, or something close."""
    choices = [each for each in others if each != value]
    if isinstance(value, bytes) and value:
        choices += [value + b" ", value[:-1], bytes([value[0] ^ 1]) + value[1:], resealed(value)]
    elif isinstance(value, str):
        choices += [value + "x", ""]
    elif isinstance(value, int | float):
        choices += [value + 1, value - 1]
    else:
        choices += ["x", 1]
    return st.sampled_from([each for each in choices if each != value])


def resealed(value: bytes) -> bytes:
    """A record or question with a letter changed, as somebody would who knows how checksums are made."""
    from adjourn._engine.record import seal  # noqa: PLC0415

    try:
        parts = msgspec.json.decode(value, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:
        return value + b" "
    if parts.pop("crc", None) is None:
        return value + b" "
    return seal(msgspec.json.encode(parts).replace(b"90", b"91"))


async def _verified(path: Path) -> tuple[Sequence[str], Any]:
    async with _opened(SQLiteStore(path)) as store:
        try:
            found = await Sessions(store).verify("s", user_id="ann")
            return [str(each) for each in found.problems] or found.pruned, await _read(store)
        except CheckpointNotFound:
            return ["it is gone"], None
        except CheckpointCorrupt:
            return ["it cannot be read"], None


async def _read(store: Store) -> Any:
    """What people read of a session."""
    sessions = Sessions(store)
    audit = await sessions.audit("s", user_id="ann") + await sessions.audit("s", all_branches=True, user_id="ann")
    messages = await sessions.messages("s", user_id="ann")
    records = [(each.id, each.at, each.body, each.events) for each in await store.read(ListRecords(SessionRef("s")))]
    return [repr(each) for each in audit], messages, records


class _opened:  # noqa: N801 - used like contextlib.closing, for stores
    def __init__(self, store: Store) -> None:
        self._store = store

    async def __aenter__(self) -> Store:
        return self._store

    async def __aexit__(self, *_: object) -> None:
        await self._store.close()
