"""Which open questions a call wants, and lists that go on from page to page."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any, TypedDict, TypeVar, get_args

from msgspec.structs import replace

from adjourn.errors import MissingKey, UsageError
from adjourn.stores.kit import ListOpen, ListQuestions, lies_under, rank
from adjourn.stores.protocol import Store
from adjourn.stores.types import Decided, Head, OpenQuestion, Order, QuestionFilter, SessionRef

from ._settings import Settings, check_name

R = TypeVar("R", bound=Head | OpenQuestion | Decided)
T = TypeVar("T")


class Page(list[T]):
    """A list that may go on: `next`, given as `after` to the same call, is where; None at the end."""

    def __init__(self, items: Iterable[T] = (), next: str | None = None) -> None:
        super().__init__(items)
        self.next: str | None = next


def one_page(rows: Sequence[R], limit: int | None) -> tuple[Sequence[R], str | None]:
    """Return the rows of a page, of which one more was read if there is one, and where the next page begins."""
    listed = rows[:limit]
    return listed, listed[-1].cursor if len(rows) > len(listed) > 0 else None


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


async def read_open(
    store: Store,
    ref: SessionRef | None,
    chosen: QuestionFilter,
    programs: Collection[str] | None,
    order: Order,
    after: str | None,
    limit: int | None,
) -> list[OpenQuestion]:
    """Return open questions, of one session or of all; with `programs`, those of sessions that one of them runs.

    An index finds what lies below an address, so what others ask costs nothing, however much that is.
    """
    if programs is None:
        return await store.read(_query(ref, chosen, order, after, limit))
    found: list[OpenQuestion] = []
    missing: MissingKey | None = None
    for place in _places(chosen.under or "", programs):
        try:
            found += await store.read(_query(ref, replace(chosen, under=place), order, after, limit))
        except MissingKey as error:
            missing = error
    if missing is not None and not found:
        raise missing
    return sorted(found, key=lambda each: rank(each.cursor))[:limit]


def _query(
    ref: SessionRef | None, chosen: QuestionFilter, order: Order, after: str | None, limit: int | None
) -> ListOpen | ListQuestions:
    if ref is None:
        return ListQuestions(filter=chosen, after=after, limit=limit, order=order)
    return ListOpen(ref, chosen, after, limit, order)


def _places(under: str, programs: Collection[str]) -> Iterator[str]:
    """Yield the addresses below which lies what is both below `under` and below one of the programs."""
    for each in dict.fromkeys(programs):
        if lies_under(each, under):
            yield each
        elif lies_under(under, each):
            yield under


def _seconds(name: str, span: timedelta | float | None) -> float | None:
    if span is None:
        return None
    seconds = span.total_seconds() if isinstance(span, timedelta) else span
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds) or seconds < 0:  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
        raise UsageError(f"{name}={span!r}: give a timedelta, or a number of seconds from 0 on.")
    return seconds


def check_page(after: str | None, limit: int | None, order: str = "age") -> None:
    """Refuse a limit below zero, a cursor that is not text, and an order that there is none."""
    if order not in get_args(Order):
        raise UsageError(f"order={order!r}: give one of {', '.join(map(repr, get_args(Order)))}.")
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
        raise UsageError(f"limit={limit}: give 0 or more, or None for all.")
    if after is not None and not isinstance(after, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
        raise UsageError(f"after={after!r}: give the `next` of the page before, or None to begin.")
