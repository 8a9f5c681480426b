"""The soak under fire, in its short form: `make torture` is the long one. And whether its checker finds anything."""

import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from adjourn.stores import SQLiteStore
from tests.effort import amount
from tests.proof.ledger import Line
from tests.torture.crew import Receipt
from tests.torture.history import History
from tests.torture.programs import ledger_of, runners
from tests.torture.soak import soak

from .places import KINDS, Kind

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are frozen and killed by their pids")


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost_or_done_twice_under_fire(folder: Path, kind: Kind):  # rules C1, C6, C8, R3
    said: list[str] = []
    seconds = amount(default=10, proof=10, long=60)
    outcome = soak(kind, folder / "soak", seed=12, seconds=seconds, report=said.append, workers=2)
    assert outcome.violations == []
    assert outcome.tally["runs"] > 0, said
    assert outcome.tally["kills"] > 0, said


KEPT = [
    Line(kind="claimed", what="b.0", pid=1, fence=1),
    Line(kind="effect", what="charge", pid=1, key="k1", arguments=["o"]),
    Line(kind="kept", what="charge", pid=1, arguments=["o"]),
]


@pytest.mark.parametrize(
    ("found", "lines"),
    [
        ("C8", [*KEPT, Line(kind="effect", what="charge", pid=1, key="k1", arguments=["o"])]),
        ("I6", [*KEPT, Line(kind="effect", what="charge", pid=1, key="k1", arguments=["other"])]),
        ("T6", [Line(kind="effect", what="wire", pid=1, key=f"k{n}", arguments=["rent"]) for n in range(2)]),
        ("I1", [Line(kind="committed", what="b.99", pid=1, fence=1)]),
        ("I2", [Line(kind="claimed", what="b.0", pid=pid, fence=1) for pid in (1, 2)]),
        ("I2", [Line(kind="committed", what=f"b.{n}", pid=1, fence=2 - n) for n in (0, 1)]),
        ("I4", [Line(kind="effect", what="decided", pid=1, key="k1", arguments=["manager", "never said"])]),
    ],
)
async def test_the_checker_finds_what_is_wrong(folder: Path, found: str, lines: list[Line]):
    assert any(found in each for each in await _violations(folder, lines, []))


async def test_the_checker_excuses_a_process_that_lost_the_session(folder: Path):
    taken_over = [
        Line(kind="claimed", what="b.0", pid=2, fence=1),
        *(replace(line, fence=2) for line in KEPT),
        Line(kind="effect", what="charge", pid=2, key="k1", arguments=["o"]),
    ]
    assert not any("C8" in each for each in await _violations(folder, taken_over, []))


async def test_the_checker_finds_an_answer_that_was_lost(folder: Path):
    receipts = [
        Receipt(outcome="accepted", session="s", app="refund", question="manager", by=by, said="yes") for by in "ab"
    ]
    found = await _violations(folder, [], receipts)
    assert sum("I3" in each for each in found) >= 2


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where programs of the soak that run in this process find their ledgers."""
    monkeypatch.setenv("ADJOURN_TORTURE", str(tmp_path))
    return tmp_path


async def _violations(folder: Path, lines: list[Line], receipts: list[Receipt]) -> list[str]:
    """What the checker says of a session that waits, with lines in its ledger that nobody would write."""
    (folder / "ledgers").mkdir()
    store = SQLiteStore(folder / "sessions.db")
    runner = runners(store)["refund"]
    try:
        await runner.run("s", session_id="s")
        ledger_of(folder, "s").path.unlink(missing_ok=True)
        for line in lines:
            ledger_of(folder, "s").add(line)
        history = History(folder, store, runner, "s", receipts)
        return [each async for each in history.violations()]
    finally:
        await store.close()
