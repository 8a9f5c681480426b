"""Which open questions a call wants, and lists that go on from page to page."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, TypedDict, TypeVar

from adjourn.errors import UsageError
from adjourn.stores.types import QuestionFilter

from ._settings import Settings, check_name

T = TypeVar("T")


class Page(list[T]):
    """A list that may go on: `next`, given as `after` to the same call, is where; None at the end."""

    def __init__(self, items: Iterable[T] = (), next: str | None = None) -> None:
        super().__init__(items)
        self.next: str | None = next


class InboxFilter(TypedDict, total=False):
    """Which open questions a call wants: those for which everything holds that is given."""

    agent: str | None
    """This agent asks."""
    under: str | None
    """It was asked at this address or below it."""
    reason: str | None
    tag: str | None
    requested_by: str | None
    """The turn of this user asks."""
    older_than: timedelta | float | None
    """It has been open for longer."""
    expires_within: timedelta | float | None
    """It expires so soon."""


TIMES = ("older_than", "expires_within")
"""The filters that are spans of time; the others are texts."""
TEXTS = tuple([name for name in InboxFilter.__annotations__ if name not in TIMES])


def wanted(settings: Settings, user_id: str | None, given: InboxFilter) -> QuestionFilter:
    """Return the filter for the questions that a call wants.

    Raises:
        UsageError: something is not what it must be.
    """
    texts: dict[str, Any] = {}
    for name, value in given.items():
        if name not in InboxFilter.__annotations__:
            raise UsageError(f"Questions are not listed by {name}=.... Use {', '.join(InboxFilter.__annotations__)}.")
        if name in TEXTS and value is not None:
            check_name(name, value)
            texts[name] = value
    age, left = _seconds("older_than", given.get("older_than")), _seconds("expires_within", given.get("expires_within"))
    return QuestionFilter(
        app=settings.app_name,
        user=settings.user(user_id),
        asked_before=None if age is None else settings.clock() - age,
        expires_before=None if left is None else settings.clock() + left,
        **texts,
    )


def _seconds(name: str, span: timedelta | float | None) -> float | None:
    if span is None:
        return None
    seconds = span.total_seconds() if isinstance(span, timedelta) else span
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds) or seconds < 0:  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
        raise UsageError(f"{name}={span!r}: give a timedelta, or a number of seconds from 0 on.")
    return seconds


def check_page(after: str | None, limit: int | None) -> None:
    """Refuse a limit below zero, and a cursor that is not text."""
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
        raise UsageError(f"limit={limit}: give 0 or more, or None for all.")
    if after is not None and not isinstance(after, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
        raise UsageError(f"after={after!r}: give the `next` of the page before, or None to begin.")
