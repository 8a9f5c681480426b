"""Released formats: what older versions have stored loads, and goes on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from adjourn import Runner
from adjourn._engine import record
from adjourn.events import Custom, Interrupted
from adjourn.stores import Store

from . import golden
from .golden import PROGRAMS, SESSION, plant


@pytest.fixture(autouse=True)
def nothing_charged_yet() -> None:
    golden.charged.clear()


@pytest.mark.parametrize("format", golden.FORMATS)
async def test_a_session_of_a_released_format_loads_and_goes_on(store: Store, format: int):  # failures 56
    await plant(store, golden.stored(format, "order"))
    runner = Runner(PROGRAMS["order"][0], store=store)
    before = await runner.state(SESSION)
    assert before["seen"] == golden.VALUES
    assert {name: type(value) for name, value in before["seen"].items()} == {
        name: type(value) for name, value in golden.VALUES.items()
    }
    result = await runner.resume(SESSION, {"check": True}, by="ann")
    assert result.status == "done"
    assert result.state["approved"] is True
    assert result.state["log"] == [
        "receipt for 100", "left", "receipt for 50", "receipt for 200", "each x", "each y", "closed for ann"
    ]  # fmt: skip
    assert [message.text for message in result.messages] == ["a ticket", "one moment"]
    assert golden.charged == []  # what was kept is not done again


@pytest.mark.parametrize("format", golden.FORMATS)
async def test_a_workflow_of_a_released_format_loads_and_goes_on(store: Store, format: int):  # failures 56
    await plant(store, golden.stored(format, "trip"))
    runner = Runner(PROGRAMS["trip"][0], store=store)
    [asked] = await runner.pending(SESSION)
    assert (asked.key, asked.info, asked.schema) == ("seat", "Which seat?", {"type": "integer"})
    result = await runner.resume(SESSION, {asked.id: 7})
    assert result.value == {"to": "Rome", "receipt": "receipt for 300", "seat": 7}
    assert golden.charged == []


@pytest.mark.parametrize("format", golden.FORMATS)
async def test_history_and_events_of_a_released_format_are_read(store: Store, format: int):  # failures 56
    await plant(store, golden.stored(format, "order"))
    runner = Runner(PROGRAMS["order"][0], store=store)
    assert [point.source for point in await runner.history(SESSION)] == ["interrupt", "step", "step", "input"]
    events = [event async for event in runner.attach(SESSION)]
    assert [event.data for event in events if isinstance(event, Custom)] == [{"at": golden.VALUES["when"]}]
    last = events[-1]
    assert isinstance(last, Interrupted)
    assert [asked.key for asked in last.interrupts] == ["check"]


async def test_the_newest_format_has_its_files():
    assert golden.FORMATS[-1] == record.FORMAT
    for name in PROGRAMS:
        kept = [write.body for write in golden.stored(record.FORMAT, name)]
        assert [len(body) > 0 for body in kept] == [True] * len(kept)
        # What this version writes has the fields of what is kept; if not, it is another format and needs its number.
        # Which of two tasks ends first decides what a record holds, so all of them come up only after a few runs.
        seen: set[str] = set()
        for _ in range(20):
            seen |= _fields([write.body for write in await golden.harvest(name)])
            if seen == _fields(kept):
                break
        assert seen == _fields(kept)


def _fields(bodies: Sequence[bytes]) -> set[str]:
    """The fields of records and frames; how tasks that run side by side share records is not the format's affair."""
    records: list[dict[str, Any]] = [json.loads(body) for body in bodies]
    frames = [(path, image) for data in records for path, image in data.get("frames", {}).items()]
    return {name for data in records for name in data} | {f"{path}/{name}" for path, image in frames for name in image}
