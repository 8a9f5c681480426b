"""How SQLite finds decisions: by an index of what a filter names, however many others there are."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from adjourn.stores import Question, SQLiteStore
from adjourn.stores.kit import ListDecisions
from adjourn.stores.sqlite._decided import DecisionSearch
from adjourn.stores.types import DecisionFilter
from adjourn.testing.suite.bench import Drive

WALKED = {
    "questions_decided (at<?)": DecisionFilter(app="adjourn"),
    "questions_decided_by (decided_by=? AND at<?)": DecisionFilter(by="ann", user="u", agent="A", how="answered"),
    "questions_decided_for (agent=? AND at<?)": DecisionFilter(agent="A", how="expired"),
    "questions_decided_how (how=? AND at<?)": DecisionFilter(how="expired", app="adjourn"),
}


async def plan(folder: Path, wanted: DecisionFilter) -> list[str]:
    store = SQLiteStore(folder / "s.db")
    await store.read(ListDecisions(filter=wanted))
    run = Drive(store, "s")
    await run.start()
    await run.pause(Question(id="q", body=b"{}"))
    await store.close()
    connection = sqlite3.connect(folder / "s.db")
    search = DecisionSearch(wanted, "12.5_3")
    rows = connection.execute(f"EXPLAIN QUERY PLAN {search.query}", {**search.values, "limit": 10}).fetchall()
    connection.close()
    return [detail for *_, detail in rows]


@pytest.mark.parametrize("walked", WALKED)
async def test_a_filter_walks_an_index_in_the_order_of_the_list(tmp_path: Path, walked: str):
    steps = await plan(tmp_path, WALKED[walked])
    assert steps[0].startswith(f"SEARCH q USING INDEX {walked.split(' (', maxsplit=1)[0]} (")
    assert walked.split(" (")[1].split(" AND ", maxsplit=1)[0].rstrip(")") in steps[0]
    assert [step for step in steps[1:] if "PRIMARY KEY (rowid=?)" not in step] == []


async def test_for_a_user_their_sessions_are_read(tmp_path: Path):
    steps = await plan(tmp_path, DecisionFilter(user="u", agent="A", how="answered"))
    assert steps[0] == "SEARCH q USING INDEX questions_key (session=?)"
    assert "SEARCH sessions USING INDEX sessions_of_user (user=?)" in steps
    assert [step for step in steps if step.startswith("SCAN")] == ["SCAN sessions USING INDEX sessions_held"]
