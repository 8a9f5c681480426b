"""Times as people say them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from adjourn.errors import UsageError

_UNITS = (("d", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0))
_SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def at(seconds: float) -> datetime:
    """The moment of a store's time."""
    return datetime.fromtimestamp(seconds, UTC)


def clock(moment: datetime) -> str:
    """A moment by the local clock."""
    return moment.astimezone().isoformat(" ", "seconds")


def ago(moment: datetime) -> str:
    """How long ago a moment was, or in how long it will be."""
    seconds = (datetime.now(UTC) - moment).total_seconds()
    if abs(seconds) < 1:
        return "just now"
    return f"{span(seconds)} ago" if seconds > 0 else f"in {span(-seconds)}"


def span(seconds: float) -> str:
    """A length of time, in its largest unit and the one below."""
    parts: list[str] = []
    for unit, size in _UNITS:
        count, seconds = divmod(seconds, size)
        if count or parts:
            parts.append(f"{int(count)} {unit}" if count else "")
    return " ".join(filter(None, parts[:2])) or "less than a second"


def duration(text: str) -> timedelta:
    """The length of time that somebody wrote: `90s`, `15m`, `12h`, `30d`, `2w`.

    Raises:
        UsageError: it is none.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]+)", text.strip().lower())
    if found is None or found[2] not in _SECONDS:
        raise UsageError(f"{text!r} is no length of time. Write a number and a unit, such as 90s, 15m, 12h, 30d or 2w.")
    try:
        return timedelta(seconds=float(found[1]) * _SECONDS[found[2]])
    except OverflowError:
        raise UsageError(f"{text!r} is longer than any time that can be reckoned with.") from None
