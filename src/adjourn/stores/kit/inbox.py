"""The inbox: open questions over many sessions, which of them a filter selects, and how to index them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable

from msgspec.structs import replace

from adjourn.errors import UsageError
from adjourn.stores.types import OWN_APPS, OpenQuestion, QuestionFilter, SessionRef

from .rows import QuestionRow, SessionRow, fits, is_expired, lies_under

_TOP = ("under", "")  # everything lies under it
_LONGEST = 200  # characters of a term; databases do not index long texts, or not well


def listed(
    asked: Iterable[tuple[SessionRow, QuestionRow]],
    filter: QuestionFilter,
    now: float,
    *,
    after: str | None = None,
    limit: int | None = None,
) -> list[OpenQuestion]:
    """Return what `Store.questions` lists of these questions, which are of the branch of each session's head."""
    behind = None if after is None else place_of(after)
    found = [(row, each) for row, each in asked if is_listed(row, each, filter, now)]
    found.sort(key=lambda pair: _place(pair[1]))
    return [open_question(row, each) for row, each in found if behind is None or _place(each) > behind][:limit]


def is_listed(row: SessionRow, asked: QuestionRow, filter: QuestionFilter, now: float) -> bool:
    """Return whether a question of the branch of a session's head is open and selected."""
    return asked.is_open and not is_expired(asked, now) and selects(filter, row, asked)


def selects(filter: QuestionFilter, row: SessionRow, asked: QuestionRow) -> bool:
    """Return whether a filter selects a question of a session."""
    return (
        fits(row, filter.app, filter.user)
        and filter.agent in (None, asked.agent)
        and lies_under(asked.address, filter.under or "")
        and filter.reason in (None, asked.reason)
        and (filter.tag is None or filter.tag in asked.tags)
        and filter.requested_by in (None, asked.requested_by)
        and (filter.asked_after is None or asked.asked >= filter.asked_after)
        and (filter.asked_before is None or asked.asked < filter.asked_before)
        and (filter.expires_before is None or (asked.expires is not None and asked.expires < filter.expires_before))
    )


def open_question(row: SessionRow, asked: QuestionRow) -> OpenQuestion:
    """Return a question as it is listed while it is open."""
    return OpenQuestion(
        session=row.session,
        app=row.app,
        user=row.user,
        checkpoint=row.checkpoint,
        id=asked.id,
        body=asked.body,
        expires=asked.expires,
        address=asked.address,
        agent=asked.agent,
        reason=asked.reason,
        tags=asked.tags,
        asked=asked.asked,
        requested_by=asked.requested_by,
        removed_after=row.removed_after,
        cursor=cursor(asked.asked, asked.no),
    )


def in_app_of(ref: SessionRef, filter: QuestionFilter) -> QuestionFilter:
    """Return a filter that leaves out nothing because of the app, for a listing of one session by its name."""
    return replace(filter, app=ref.app) if filter.app is None else filter


def _place(asked: QuestionRow) -> tuple[float, int]:
    return asked.asked, asked.no


def cursor(asked: float, no: int) -> str:
    """Return the place of a question in a listing, as text."""
    return f"{float(asked)!r}_{no}"


def place_of(given: str) -> tuple[float, int]:
    """Return the place that a cursor stands for: when the question was asked, and its number.

    Raises:
        UsageError: it is not a cursor.
    """
    asked, _, no = given[:100].rpartition("_")
    try:
        place = float(asked), int(no)
    except ValueError:
        place = math.nan, 0
    # Databases do not count further.
    if not math.isfinite(place[0]) or not -1 <= place[1] < 2**63 or cursor(*place) != given:
        raise UsageError(f"after={given[:100]!r}: give the cursor of a page that was listed, or None to begin.")
    return place


# An index of terms answers every filter: what a filter names are terms, a question has its terms, and for each term
# there is one list of questions in their order. What all of a filter's terms have in common is selected.


def terms_of(row: SessionRow, asked: QuestionRow) -> list[str]:
    """Return the terms of a question: what a filter may name of it, and first the one that all questions have."""
    named = [("app", row.app), ("agent", asked.agent), ("reason", asked.reason)]
    people = (("user", row.user), ("requested_by", asked.requested_by))
    named += [(name, person) for name, person in people if person is not None]
    named += [("tag", tag) for tag in dict.fromkeys(asked.tags)]
    segments = asked.address.split(";") if asked.address else []
    named += [("under", ";".join(segments[:end])) for end in range(1, len(segments) + 1)]
    kind = kind_of(row.app)
    return [kind, *[term(kind, name, value) for name, value in named]]


def terms_in(filter: QuestionFilter) -> list[str]:
    """Return the terms that a question must have for a filter to select it: at least one, likely rare ones first."""
    names = ("user", "requested_by", "tag", "agent", "under", "reason", "app")
    named = [(name, value) for name in names if (value := getattr(filter, name)) is not None and (name, value) != _TOP]
    kind = kind_of(filter.app or "")
    return [term(kind, name, value) for name, value in named] or [kind]


def kind_of(app: str) -> str:
    """Return what all terms of an app begin with, so that a listing without an app leaves out the library's own."""
    return "own:" if app.startswith(OWN_APPS) else "all:"


def term(kind: str, name: str, value: str) -> str:
    """Return the term of what has this value, in a length that databases index."""
    if len(value) <= _LONGEST:
        return f"{kind}{name}={value}"
    return f"{kind}{name}#{hashlib.sha256(value.encode(errors='surrogatepass')).hexdigest()}"
