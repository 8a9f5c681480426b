from datetime import UTC, datetime, timedelta

import pytest

from adjourn import UsageError
from adjourn.cli._printing import ago, duration, span


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.2, "less than a second"), (1, "1 s"), (65, "1 min 5 s"), (3600, "1 h"), (172_799, "1 d 23 h")],
)
def test_a_length_of_time_is_said_in_two_units(seconds: float, said: str):
    assert span(seconds) == said


def test_moments_are_told_from_now():
    now = datetime.now(UTC)
    assert ago(now - timedelta(days=2, seconds=1)) == "2 d ago"
    assert ago(now + timedelta(hours=5, seconds=30)) == "in 5 h"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("15m", 900), ("15 min", 900), ("1.5h", 5400), ("30d", 2_592_000), ("2w", 1_209_600)],
)
def test_a_length_of_time_is_read(text: str, seconds: float):
    assert duration(text).total_seconds() == seconds


@pytest.mark.parametrize("text", ["", "soon", "5", "h", "-1d", "9999999999999w"])
def test_what_is_no_length_of_time_is_refused(text: str):
    with pytest.raises(UsageError):
        duration(text)
