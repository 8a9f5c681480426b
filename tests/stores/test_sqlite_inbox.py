"""How SQLite finds open questions and sessions: by an index, however many others there are."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from adjourn.stores import Question, QuestionFilter, SessionRef, SQLiteStore, Status
from adjourn.stores.kit import CountQuestions, Delete, GiveAnswers, ListQuestions, ListSessions
from adjourn.stores.kit.inbox import Place, Stretch, place_of
from adjourn.stores.sqlite import _inbox as inbox
from adjourn.stores.sqlite import _listing as listing
from adjourn.testing.suite.bench import Drive, yes

FILTERS = {
    "all": QuestionFilter(
        app="a", user="u", agent="A", under="x", reason="r", tag="t", requested_by="u", group="g", taker="v"
    ),
    "none": QuestionFilter(),
    "app": QuestionFilter(app="adjourn"),
    "user": QuestionFilter(user="u7"),
    "agent": QuestionFilter(agent="A"),
    "under": QuestionFilter(under="agent:A;tool:pay:c1"),
    "reason": QuestionFilter(reason="tool_approval"),
    "tag": QuestionFilter(tag="money"),
    "age": QuestionFilter(asked_after=3.0, asked_before=1e9),
    "several": QuestionFilter(app="adjourn", user="u7", agent="A", under="agent:A", reason="r", tag="money"),
}


BEGIN = Stretch.ASKED.begin


async def ask(store: SQLiteStore, session: str, *asks: Question, user: str | None = None) -> None:
    run = Drive(store, session)
    await run.start(user=user)
    await run.pause(*asks)


def plan(connection: sqlite3.Connection, search: inbox.Search) -> list[str]:
    rows = connection.execute(f"EXPLAIN QUERY PLAN {search.text()}", {**search.values, "limit": 10})
    return [detail for *_, detail in rows]


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("after", [None, "12.5_3"])
@pytest.mark.parametrize("stretch", Stretch)
async def test_every_filter_walks_an_index_in_the_order_of_the_list(
    tmp_path: Path, name: str, stretch: Stretch, after: str | None
):
    store = SQLiteStore(tmp_path / "s.db")
    await ask(store, "s", Question(id="q", body=b"{}"))
    await store.close()
    connection = sqlite3.connect(tmp_path / "s.db")
    behind = stretch.begin if after is None else Place(stretch, *place_of(after))
    steps = plan(connection, inbox.Search(connection, 1.0, FILTERS[name], behind))
    connection.close()
    index = "COVERING INDEX inbox_expiring" if stretch is Stretch.EXPIRING else "PRIMARY KEY"
    assert steps[0].startswith(f"SEARCH i USING {index} (term=? AND ")
    assert "SEARCH q USING INTEGER PRIMARY KEY (rowid=?)" in steps
    assert "SEARCH s USING INTEGER PRIMARY KEY (rowid=?)" in steps
    assert not [step for step in steps if "SCAN" in step or "TEMP" in step]


async def test_what_expires_soon_is_found_by_when_it_expires(tmp_path: Path):
    store = SQLiteStore(tmp_path / "s.db", clock=lambda: 0.0)
    for number in range(5):
        await ask(store, f"s{number}", Question(id="q", body=b"{}", expires=100.0 if number == 3 else 1e6))
    soon, late = QuestionFilter(expires_before=200.0), QuestionFilter(expires_before=1e9)
    assert [each.session for each in await store.read(ListQuestions(filter=soon))] == ["s3"]
    assert await store.read(CountQuestions(soon)) == 1
    await store.close()
    connection = sqlite3.connect(tmp_path / "s.db")
    steps = plan(connection, inbox.Search(connection, 0.0, soon, BEGIN))
    assert steps[0].startswith("SEARCH i USING COVERING INDEX inbox_expiring (term=? AND expires>? AND expires<?)")
    # When all of them do, the oldest are near the beginning of the list, and need not be sorted.
    assert not [step for step in plan(connection, inbox.Search(connection, 0.0, late, BEGIN)) if "TEMP" in step]
    connection.close()


async def test_a_search_walks_the_rarest_of_its_terms(tmp_path: Path):
    store = SQLiteStore(tmp_path / "s.db")
    for number in range(4):
        reason = "rare" if number == 2 else "common"
        await ask(store, f"s{number}", Question(id="q", body=b"{}", agent="A", reason=reason), user="u")
    await store.close()
    connection = sqlite3.connect(tmp_path / "s.db")
    search = inbox.Search(connection, 1.0, QuestionFilter(app="adjourn", user="u", agent="A", reason="rare"), BEGIN)
    connection.close()
    assert search.values["term"] == "all:reason=rare"


async def test_what_is_not_open_any_more_leaves_nothing_in_the_inbox(tmp_path: Path):
    """It is gone from the index, not only from lists: a question that comes later may get its number."""
    path = tmp_path / "s.db"
    store = SQLiteStore(path)
    address = "agent:A;tool:x:1"
    asked = Question(id="q", body=b"{}", address=address, agent="A", reason="r", tags=("t", "t", "u"))
    for session in ("answered", "deleted", "damaged"):
        await ask(store, session, asked, user="u")
    await store.write(GiveAnswers(ref=SessionRef("answered"), answers=[yes("q")]))
    await store.write(Delete(SessionRef("deleted")))
    branched = Drive(store, "branched")
    await branched.start(branched.next(asks=(asked,)))
    branched.branch, branched.number = "c", -1
    await branched.commit(branched.next(full=True))
    await store.close()
    connection = sqlite3.connect(path)
    assert {no for (no,) in connection.execute("SELECT DISTINCT no FROM inbox")} == {3}
    connection.execute("UPDATE sessions SET status = 12 WHERE id = 'damaged'")
    connection.execute("UPDATE questions SET tags = x'ff' WHERE no = 3")
    connection.commit()
    await store.write(Delete(SessionRef("damaged")))
    assert connection.execute("SELECT count(*) FROM inbox").fetchone() == (0,)
    connection.close()
    await store.close()


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE inbox SET no = 3 - no WHERE term LIKE 'all:user=%'",  # each leads to the other user's
        "UPDATE questions SET tags = x'ff' WHERE no = 1",
        "UPDATE questions SET tags = '[1]' WHERE no = 1",
        "UPDATE questions SET tags = 7 WHERE no = 1",
        "UPDATE questions SET address = x'ff' WHERE no = 1",
        "UPDATE questions SET reason = 'other' WHERE no = 1",
        "UPDATE sessions SET user = 'eve' WHERE no = 1",
        "DELETE FROM questions WHERE no = 1",
        "DELETE FROM sessions WHERE no = 1",
    ],
)
async def test_an_index_that_is_damaged_shows_nobody_what_is_not_theirs(tmp_path: Path, damage: str):  # rules C10, C12
    path = tmp_path / "s.db"
    store = SQLiteStore(path)
    for user in ("ann", "bob"):
        await ask(store, user, Question(id="q", body=b"{}", reason="r", tags=("t",)), user=user)
    await store.close()
    connection = sqlite3.connect(path)
    connection.execute(damage)
    connection.commit()
    connection.close()
    assert await store.read(ListQuestions(filter=QuestionFilter(user="ann", reason="r"), limit=1)) == []
    assert "ann" not in [each.session for each in await store.read(ListQuestions(filter=QuestionFilter(user="bob")))]
    await store.close()


async def test_pages_end_although_the_time_of_a_question_is_damaged(tmp_path: Path):  # rules C10, I15
    path = tmp_path / "s.db"
    store = SQLiteStore(path)
    for number in range(6):
        await ask(store, f"s{number}", Question(id="q", body=b"{}", asked=float(number)))
    connection = sqlite3.connect(path)
    connection.execute("UPDATE questions SET asked = -1.0 WHERE no = 2")
    connection.commit()
    connection.close()
    seen, after = list[str](), None
    while page := await store.read(ListQuestions(after=after, limit=2)):
        seen += [each.session for each in page]
        after = page[-1].cursor
        assert len(seen) < 10
    assert seen == ["s0", "s2", "s3", "s4", "s5"]
    await store.close()


@pytest.mark.parametrize("app", [None, "adjourn"])
@pytest.mark.parametrize("user", [None, "u"])
@pytest.mark.parametrize("status", [None, "waiting", "queued"])
async def test_a_page_of_sessions_does_not_read_all(tmp_path: Path, app: str | None, user: str | None, status: Status):
    store = SQLiteStore(tmp_path / "s.db")
    await ask(store, "s", Question(id="q", body=b"{}"), user="u")
    await Drive(store, "t").start()
    await store.close()
    connection = sqlite3.connect(tmp_path / "s.db")
    ran: list[str] = []
    connection.set_trace_callback(ran.append)
    query = ListSessions(app=app, user=user, status=status, limit=10)
    found = listing.answer(connection, query, 1.0, small=False)
    connection.set_trace_callback(None)
    assert [head.session for head in found if head.owner is None] == (["s"] if status != "queued" else [])
    for text in ran:
        steps = [detail for *_, detail in connection.execute(f"EXPLAIN QUERY PLAN {text.replace('Inf', '9e999')}")]
        # Those that are run are few: they are read as a whole, by an index that has nothing else.
        few = [step for step in steps if "sessions_held" in step or "sessions_queued" in step]
        assert few or not [step for step in steps if "SCAN" in step or "TEMP" in step], (text, steps)
        assert not [step for step in steps if "SCAN" in step and "sessions_held" not in step], (text, steps)
    connection.close()
