"""Decisions: questions of many sessions that have ended, which of them a filter selects, and in which order."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Literal

from msgspec.structs import asdict

from adjourn.stores.types import Decided, DecisionFilter

from .inbox import cursor, kind_of, place_of, term
from .rows import QuestionRow, SessionRow, fits


def listed_decisions(
    asked: Iterable[tuple[SessionRow, str, QuestionRow]],
    filter: DecisionFilter,
    *,
    after: str | None = None,
    limit: int | None = None,
) -> list[Decided]:
    """Return what `ListDecisions` lists of these questions, each with its session and the name of its branch."""
    behind = None if after is None else place_of(after)
    found = [decided(*each) for each in asked if selects_decided(filter, each[0], each[2])]
    found.sort(key=lambda each: place_of(each.cursor), reverse=True)
    return [each for each in found if behind is None or place_of(each.cursor) < behind][:limit]


def selects_decided(filter: DecisionFilter, row: SessionRow, asked: QuestionRow) -> bool:
    """Return whether a question of a session is decided, and selected."""
    return (
        asked.decided_by is not None
        and asked.at is not None
        and fits(row, filter.app, filter.user)
        and filter.by in (None, asked.decided_by)
        and filter.agent in (None, asked.agent)
        and filter.how in (None, asked.how)
        and (filter.since is None or asked.at >= filter.since)
        and (filter.until is None or asked.at < filter.until)
    )


def decided(row: SessionRow, branch: str, asked: QuestionRow) -> Decided:
    """Return a decided question as it is listed."""
    assert asked.at is not None
    return Decided(
        session=row.session,
        app=row.app,
        user=row.user,
        branch=branch,
        id=asked.id,
        body=asked.body,
        expires=asked.expires,
        value=asked.value,
        how=asked.how,
        by=asked.by,
        at=asked.at,
        agent=asked.agent,
        reason=asked.reason,
        tags=asked.tags,
        cursor=cursor(asked.at, asked.no),
    )


# For a store of SQL, which has an index for each way to decisions


Way = Literal["by", "user", "agent", "how"]
_WAYS: tuple[Way, ...] = ("by", "user", "agent", "how")
_LAST = 2**63 - 1  # databases do not count further


def way_to(filter: DecisionFilter) -> Way | None:
    """Return what of a filter leads to the fewest decisions, most likely; None if only their times do."""
    return next((name for name in _WAYS if getattr(filter, name) is not None), None)


def decision_values(filter: DecisionFilter, after: str | None) -> dict[str, Any]:
    """Return the values in a query for what a filter selects, from behind a cursor on.

    Raises:
        UsageError: `after` is not a cursor.
    """
    at, no = (math.inf, _LAST) if after is None else place_of(after)
    since = -math.inf if filter.since is None else float(filter.since)
    until = math.inf if filter.until is None else float(filter.until)
    return {**asdict(filter), "at": at, "no": no, "since": since, "until": until}


# For a store that has an index of terms


def decision_terms(row: SessionRow, asked: QuestionRow) -> list[str]:
    """Return the terms of a decided question: what a filter may name of it, and first the one that all have."""
    kind = kind_of(row.app)
    named = [("app", row.app), ("agent", asked.agent)] + ([] if row.user is None else [("user", row.user)])
    ending = ending_terms(row.app, asked.decided_by or "", asked.how or "")
    return [kind, *[term(kind, name, value) for name, value in named], *ending]


def ending_terms(app: str, by: str, how: str) -> list[str]:
    """Return the terms that a question has only once it is decided: who decided it, and how it ended."""
    return [term(kind_of(app), "by", by), term(kind_of(app), "how", how)]


def decision_terms_in(filter: DecisionFilter) -> list[str]:
    """Return the terms that a decided question must have for a filter to select it, at least one."""
    kind = kind_of(filter.app or "")
    named = [(name, getattr(filter, name)) for name in (*_WAYS, "app")]
    return [term(kind, name, value) for name, value in named if value is not None] or [kind]
