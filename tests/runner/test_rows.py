"""What a question asks, and its answer, is stored once: people and the engine read the same row."""

from __future__ import annotations

import json
import sqlite3
from binascii import crc32
from pathlib import Path
from typing import Any, TypeVar

import pytest

from adjourn import Runner, interrupt, workflow
from adjourn._engine.record import decode
from adjourn.errors import CheckpointCorrupt, CheckpointNotFound, InvalidAnswer
from adjourn.stores import MemoryStore, SessionRef, SQLiteStore, Store
from adjourn.stores.kit import Audit, Delete, ListAsked, StoreQuery

from .stores import WatchedStore

T = TypeVar("T")

S = SessionRef("s")


@workflow
async def order() -> dict[str, Any]:
    """Ask twice."""
    count = interrupt({"about": "tickets"}, key="count", prompt="How many?", schema=int)
    return {"count": count, "name": interrupt("Whose name?", key="name")}


async def change(path: Path, statement: str, *values: object) -> SQLiteStore:
    """Change the file of a store that is closed."""
    with sqlite3.connect(path) as file:
        file.execute(statement, values)
    file.close()
    return SQLiteStore(path)


def sealed(data: dict[str, Any]) -> bytes:
    rest = json.dumps(data).encode()[1:]
    return b'{"crc":"%08x",' % crc32(rest) + rest


async def test_people_and_engine_read_one_stored_question(tmp_path: Path):  # rule I12
    path = tmp_path / "s.db"
    store = SQLiteStore(path)
    await Runner(order, store=store).run(session_id="s")
    (row,) = await store.read(Audit(S))
    await store.close()
    data = json.loads(row.body)
    del data["crc"]
    data |= {"prompt": "How many, at most 3?", "schema": {"type": "integer", "maximum": 3}}
    store = await change(path, "UPDATE questions SET body = ?", sealed(data))
    runner = Runner(order, store=store)
    (asked,) = await runner.pending("s")
    assert (asked.prompt, asked.schema) == ("How many, at most 3?", {"type": "integer", "maximum": 3})
    assert (await runner.checkpoint("s")).interrupts[0].prompt == asked.prompt
    with pytest.raises(InvalidAnswer):
        await runner.resume("s", {"count": 4})
    await store.close()


async def test_people_and_engine_read_one_stored_answer(tmp_path: Path):  # rule I12
    path = tmp_path / "s.db"
    store = SQLiteStore(path)
    await Runner(order, store=store).run(session_id="s")
    await Runner(order, store=store).resume("s", {"count": 2}, by="ann")
    await store.close()
    store = await change(path, "UPDATE questions SET value = ? WHERE how IS NOT NULL", b"3")
    runner = Runner(order, store=store)
    assert [decision.answer for decision in await runner.audit("s")] == [3, None]
    assert (await runner.resume("s", {"name": "ann"})).value == {"count": 3, "name": "ann"}
    await store.close()


async def test_records_name_questions_and_hold_none_of_their_words():  # rule I12
    store = WatchedStore(MemoryStore())
    await Runner(order, store=store).run(session_id="s")
    await Runner(order, store=store).resume("s", {"count": 271828})
    await Runner(order, store=store).fork("s")
    bodies = b"".join(write.body for write in store.writes)
    for words in (b"How many?", b"tickets", b"Whose name?", b"271828"):
        assert words not in bodies
    assert {each for write in store.writes for each in decode(write.body).changed} == {"runnable:order"}


async def test_an_older_checkpoint_has_the_question_open_and_a_newer_one_answered(store: Store):  # rules C4, I12
    runner = Runner(order, store=store)
    first = await runner.run(session_id="s")
    second = await runner.resume("s", {"count": 2}, by="ann")
    points = [result.checkpoint_id for result in (first, second)]
    shown = [(await runner.checkpoint("s", point)).interrupts for point in points]
    assert [[asked.key for asked in each] for each in shown] == [["count"], ["name"]]


@pytest.mark.parametrize("to", ["s", "other"])
async def test_a_fork_has_the_answers_that_it_was_forked_with(store: Store, to: str):  # rule I12
    runner = Runner(order, store=store)
    first = await runner.run(session_id="s")
    await runner.resume("s", {"count": 2}, by="ann")
    (before, _) = await runner.audit("s")
    await runner.fork("s", to=to)
    (inherited, waiting) = await runner.audit(to)
    assert (inherited.answer, inherited.by, inherited.at) == (2, "ann", before.at)
    assert (inherited.interrupt.prompt, waiting.outcome) == ("How many?", None)
    assert (await Runner(order, store=store).resume(to, {"name": "eve"})).value == {"count": 2, "name": "eve"}
    # And from where it was open, it is open.
    again = await runner.fork("s", checkpoint_id=first.checkpoint_id)
    assert [(each.outcome, each.by) for each in await runner.audit(again)] == [(None, None)]


async def test_a_branch_by_travel_has_the_answers_of_its_base(store: Store):  # rules C4, I12
    runner = Runner(order, store=store)
    await runner.run(session_id="s")
    second = await runner.resume("s", {"count": 2}, by="ann")
    await runner.resume("s", {"name": "ann"})
    again = await Runner(order, store=store).run(None, session_id="s", checkpoint_id=second.checkpoint_id)
    assert [asked.key for asked in again.interrupts] == ["name"]
    assert [(each.outcome, each.by) for each in await runner.audit("s")] == [("answered", "ann"), (None, None)]
    assert (await Runner(order, store=store).resume("s", {"name": "eve"})).value == {"count": 2, "name": "eve"}


async def test_a_lost_row_is_corrupt(tmp_path: Path):  # rules C10, I12
    path = tmp_path / "s.db"
    store = SQLiteStore(path)
    await Runner(order, store=store).run(session_id="s")
    await store.close()
    store = await change(path, "DELETE FROM questions")
    with pytest.raises(CheckpointCorrupt, match=r"'s'.*'runnable:order'"):
        await Runner(order, store=store).recover("s")
    await store.close()


async def test_a_session_that_is_deleted_while_it_is_loaded_is_not_found():  # rule C10
    class Deleting(WatchedStore):
        async def read(self, query: StoreQuery[T]) -> T:
            asked: object = query
            if isinstance(asked, ListAsked):
                await self.inner.write(Delete(asked.ref))
            return await super().read(query)

    store = Deleting(MemoryStore())
    await Runner(order, store=store).run(session_id="s")
    with pytest.raises(CheckpointNotFound):
        await Runner(order, store=store).resume("s", {"count": 1})


async def test_a_session_without_questions_is_loaded_in_one_read():  # rule I12
    class Counting(WatchedStore):
        reads = 0

        async def read(self, query: StoreQuery[T]) -> T:
            self.reads += isinstance(query, ListAsked)
            return await super().read(query)

    @workflow
    async def plain() -> int:
        return 1

    store = Counting(MemoryStore())
    await Runner(plain, store=store).run(session_id="p")
    await Runner(plain, store=store).state("p")
    runner = Runner(order, store=store)
    await runner.run(session_id="s")
    await runner.resume("s", {"count": 1})  # It is kept ready.
    assert store.reads == 0
    await Runner(order, store=store).resume("s", {"name": "ann"})
    assert store.reads == 1
