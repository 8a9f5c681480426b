"""The audit of a session: every question with who answered it, how, and when."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from adjourn._engine.record import without_message
from adjourn._values import codec
from adjourn._values.damage import Reading
from adjourn.events import Interrupt
from adjourn.stores import types
from adjourn.stores.kit import Audit, readable
from adjourn.stores.protocol import Store
from adjourn.stores.types import Head, Outcome

from ._log import read_interrupt, read_question


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
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
    return list(readable(rows, lambda row: _audit_entry(row, head)))


def _audit_entry(row: types.AuditEntry, head: Head) -> AuditEntry:
    with Reading(head.session):
        value, said = without_message(row.value or b"")
        question = read_question(row.body)
        return AuditEntry(
            interrupt=read_interrupt(row.body, head.ref, row.branch),
            outcome=row.how,
            answer=codec.decode(bytes(value), lenient=True) if row.value else None,
            message=said,
            by=row.by,
            at=None if row.at is None else datetime.fromtimestamp(row.at, UTC),
            inherited=row.how is not None and question.inherited,
            again=question.again,
            branch=row.branch,
        )
