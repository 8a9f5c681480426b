"""The page of events names every event with its fields."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from adjourn.events import Event

PAGE = (Path(__file__).parent.parent / "docs" / "events.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| `\w+` \| `(\w+)` \|([^|]*)\|", PAGE, re.MULTILINE))
COMMON = {"agent", "path", "address", "seq"}


@pytest.mark.parametrize("event", get_args(Event), ids=lambda event: event.__name__)
def test_an_event_is_named_with_its_fields(event: type[Event]) -> None:
    assert re.findall(r"`(\w+)`", ROWS[event.__name__]) == [
        field for field in event.__struct_fields__ if field not in COMMON
    ]
    assert f"| `{event.__struct_config__.tag}` | `{event.__name__}` |" in PAGE


def test_nothing_else_is_named() -> None:
    assert set(ROWS) == {event.__name__ for event in get_args(Event)}
