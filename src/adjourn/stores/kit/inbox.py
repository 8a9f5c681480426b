"""The inbox: open questions over many sessions, which of them a filter selects, and how to index them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from enum import Enum
from typing import Any, NamedTuple

from msgspec.structs import replace

from adjourn.errors import UsageError
from adjourn.stores.types import OWN_APPS, OpenQuestion, Order, QuestionFilter, SessionRef

from .effects import Update
from .rows import InboxRow, QuestionRow, SessionRow, fits, is_expired, lies_under

_TOP = ("under", "")  # everything lies under it
_LONGEST = 200  # characters of a term; databases do not index long texts, or not well


class Stretch(Enum):
    """A part of a listing that has one order; cursors in it begin with its value."""

    ASKED = ""
    EXPIRING = "expires_"
    LASTING = "never_"

    @property
    def by(self) -> str:
        """The column that a stretch is in the order of; of equal ones, the one that was written first comes first."""
        return "expires" if self is Stretch.EXPIRING else "asked"

    @property
    def begin(self) -> Place:
        """The place before all questions."""
        return Place(self, -math.inf, -1)  # no number is below 0

    def place(self, asked: QuestionRow) -> Place | None:
        """Return the place of a question; None if it is in another stretch."""
        if (asked.expires is None) is (self is Stretch.EXPIRING) and self is not Stretch.ASKED:
            return None
        return Place(self, getattr(asked, self.by), asked.no)


class Place(NamedTuple):
    """The place of a question in a listing."""

    stretch: Stretch
    time: float
    no: int

    @property
    def cursor(self) -> str:
        """The place as text."""
        return self.stretch.value + cursor(self.time, self.no)


_STRETCHES: dict[Order, tuple[Stretch, ...]] = {
    "age": (Stretch.ASKED,),
    "expiry": (Stretch.EXPIRING, Stretch.LASTING),
}


def stretches(order: Order, after: str | None) -> list[Place]:
    """Return the places behind which the stretches of a listing begin, from behind a cursor on.

    Raises:
        UsageError: `after` is not a cursor of such a listing.
    """
    found = _STRETCHES[order]
    if after is None:
        return [each.begin for each in found]
    for number, each in enumerate(found):
        if after.startswith(each.value):
            behind = Place(each, *place_of(after.removeprefix(each.value)))
            return [behind, *[later.begin for later in found[number + 1 :]]]
    raise _no_cursor(after)


def rank(cursor: str) -> tuple[bool, float, int]:
    """Return what lists that have one order are merged by: from the cursor of each question in them."""
    is_last = cursor.startswith(Stretch.LASTING.value)
    return (is_last, *place_of(cursor.removeprefix(Stretch.EXPIRING.value).removeprefix(Stretch.LASTING.value)))


def listed(
    asked: Iterable[tuple[SessionRow, QuestionRow]],
    filter: QuestionFilter,
    now: float,
    *,
    order: Order = "age",
    after: str | None = None,
    limit: int | None = None,
) -> list[OpenQuestion]:
    """Return what `ListQuestions` lists of these questions, which are of the branch of each session's head."""
    rows = [(row, each) for row, each in asked if is_listed(row, each, filter, now)]
    found: list[OpenQuestion] = []
    for behind in stretches(order, after):
        places = [(place, row, each) for row, each in rows if (place := behind.stretch.place(each)) is not None]
        places.sort(key=lambda each: each[0][1:])
        found += [open_question(row, each, place) for place, row, each in places if place[1:] > behind[1:]]
    return found[:limit]


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
        and (filter.group is None or filter.group in asked.groups)
        and filter.taker in (None, asked.taker)
        and (filter.asked_after is None or asked.asked >= filter.asked_after)
        and (filter.asked_before is None or asked.asked < filter.asked_before)
        and (filter.expires_before is None or (asked.expires is not None and asked.expires < filter.expires_before))
    )


def open_question(row: SessionRow, asked: QuestionRow, place: Place) -> OpenQuestion:
    """Return a question as it is listed while it is open, at a place of the listing."""
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
        notes=asked.notes,
        cursor=place.cursor,
    )


def in_app_of(ref: SessionRef, filter: QuestionFilter) -> QuestionFilter:
    """Return a filter that leaves out nothing because of the app, for a listing of one session by its name."""
    return replace(filter, app=ref.app) if filter.app is None else filter


def cursor(time: float, no: int) -> str:
    """Return a time and the number of a question as text."""
    return f"{float(time)!r}_{no}"


def place_of(given: str) -> tuple[float, int]:
    """Return the time and the number that a cursor stands for.

    Raises:
        UsageError: it is not a cursor.
    """
    time, _, no = given[:100].rpartition("_")
    try:
        place = float(time), int(no)
    except ValueError:
        place = math.nan, 0
    # Databases do not count further.
    if not math.isfinite(place[0]) or not -1 <= place[1] < 2**63 or cursor(*place) != given:
        raise _no_cursor(given)
    return place


def _no_cursor(given: str) -> UsageError:
    return UsageError(f"after={given[:100]!r}: give the cursor of a page that was listed, or None to begin.")


# An index of terms answers every filter: what a filter names are terms, a question has its terms, and for each term
# there is one list of questions in their order. What all of a filter's terms have in common is selected.


def terms_of(row: SessionRow, asked: QuestionRow) -> list[str]:
    """Return the terms of a question: what a filter may name of it, and first the one that all questions have."""
    named = [("app", row.app), ("agent", asked.agent), ("reason", asked.reason)]
    people = (("user", row.user), ("requested_by", asked.requested_by), ("taker", asked.taker))
    named += [(name, person) for name, person in people if person is not None]
    named += [("tag", tag) for tag in dict.fromkeys(asked.tags)]
    named += [("group", group) for group in dict.fromkeys(asked.groups)]
    segments = asked.address.split(";") if asked.address else []
    named += [("under", ";".join(segments[:end])) for end in range(1, len(segments) + 1)]
    kind = kind_of(row.app)
    return [kind, *[term(kind, name, value) for name, value in named]]


def terms_in(filter: QuestionFilter) -> list[str]:
    """Return the terms that a question must have for a filter to select it: at least one, likely rare ones first."""
    names = ("taker", "user", "requested_by", "group", "tag", "agent", "under", "reason", "app")
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


def relisted(session: SessionRow, change: Update) -> tuple[list[InboxRow], list[tuple[Any, ...]]]:
    """Return the rows that enter the inbox with a change of an open question, and the keys of those that leave it."""
    was, row = change.was, change.row
    if was is None or row is None:
        return [], []
    before, after = terms_of(session, was), terms_of(session, row)
    entering = [InboxRow(each, row.asked, row.no, row.expires) for each in after if each not in before]
    return entering, [(each, row.asked, row.no) for each in before if each not in after]
