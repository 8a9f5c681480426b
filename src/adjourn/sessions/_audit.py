"""The audit of a session: every question with who answered it, how, and when."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from adjourn._engine.record import without_message
from adjourn._plain import Documented
from adjourn._values import codec
from adjourn._values.damage import Reading
from adjourn.errors import UsageError
from adjourn.events import Interrupt
from adjourn.stores import types
from adjourn.stores.kit import Audit, ListDecisions, readable
from adjourn.stores.protocol import Store
from adjourn.stores.types import Decided, DecisionFilter, Head, Outcome, SessionRef

from ._inbox import Page
from ._log import read_interrupt, read_question
from ._questions import shown_page


class AuditEntry(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """A question with how it ended: `outcome` is None while it is open.

    `message` is what was said together with the answer. An `inherited` one had ended before the branch (or a forked
    session) began. It counts `again` if it had acted before, and a caller let it act once more. `branch` is the one
    that it stands on.
    """

    interrupt: Interrupt
    outcome: Outcome | None
    answer: Any = None
    message: str | None = None
    by: str | None = None
    at: datetime | None = None
    inherited: bool = False
    again: bool = False
    branch: str = ""


async def read_audit(store: Store, head: Head, *, all_branches: bool) -> list[AuditEntry]:
    """List every question of the head's branch, or of all; a damaged one is left out, and reported on the log.

    Raises:
        CheckpointNotFound: the session has been deleted.
    """
    rows = await store.read(Audit(head.ref, all_branches=all_branches))
    return list(readable(rows, lambda row: _audit_entry(row, head.ref)))


async def read_decisions(
    store: Store, chosen: DecisionFilter, after: str | None, limit: int | None
) -> Page[AuditEntry]:
    """List questions of many sessions that have ended, most recent first; a damaged one is left out, and reported.

    Raises:
        MissingKey: there are some, and all of them are encrypted.
    """
    more = None if limit is None else limit + 1
    rows = await store.read(ListDecisions(filter=chosen, after=after, limit=more))
    return shown_page(rows, limit, _decided, is_first=after is None)


def moment(name: str, given: datetime | None) -> float | None:
    """Return the first time of a store that entries show as this moment or a later one.

    Raises:
        UsageError: it is not a moment.
    """
    if given is None:
        return None
    if not isinstance(given, datetime) or given.utcoffset() is None:  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
        raise UsageError(f"{name}={given!r}: give a datetime with a time zone, such as datetime.now(UTC).")
    # Stores have finer times, which are shown rounded.
    return (2 * ((given - _EPOCH) // timedelta(microseconds=1)) - 1) / 2_000_000


_EPOCH = datetime.fromtimestamp(0, UTC)


def _decided(row: Decided) -> AuditEntry:
    return _audit_entry(row, SessionRef(row.session, row.app))


def _audit_entry(row: types.AuditEntry, ref: SessionRef) -> AuditEntry:
    with Reading(ref.id):
        value, said = without_message(row.value or b"")
        question = read_question(row.body)
        return AuditEntry(
            interrupt=read_interrupt(row.body, ref, row.branch),
            outcome=row.how,
            answer=codec.decode(bytes(value), lenient=True) if row.value else None,
            message=said,
            by=row.by,
            at=None if row.at is None else datetime.fromtimestamp(row.at, UTC),
            inherited=row.how is not None and question.inherited,
            again=question.again,
            branch=row.branch,
        )
