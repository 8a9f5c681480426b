"""Decisions: for each term by which they can be selected, a sorted set of them, by when they were made.

A question enters the sets of its decision as it leaves the inbox, and leaves them with its session.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from adjourn.errors import CheckpointCorrupt
from adjourn.stores._logging import note_damage
from adjourn.stores.kit import QuestionRow, SessionRow, decided, decision_terms_in, place_of, selects_decided
from adjourn.stores.types import Decided, DecisionFilter

from ._inbox import walk
from ._keys import BRANCHES, QUESTIONS, ROW, session_keys
from ._members import Entry
from ._reply import read_question, whole
from ._rows import ROWS_OF_BRANCHES, read_session
from ._server import Command, Server


async def decisions(server: Server, filter: DecisionFilter, after: str | None) -> AsyncIterator[Decided]:
    """Yield the decisions that a filter selects, most recent first."""
    keys = [f"adj:decided:{each}" for each in decision_terms_in(filter)]
    low = "-inf" if filter.since is None else repr(float(filter.since))
    high = "+inf" if filter.until is None else f"({float(filter.until)!r}"
    behind = None if after is None else place_of(after)
    async for page in walk(server, keys, (low, high), behind, backwards=True):
        for row, branch, asked in await _read(server, [entry for entry, _ in page]):
            if selects_decided(filter, row, asked):
                yield decided(row, branch, asked)


async def _read(server: Server, entries: Sequence[Entry]) -> list[tuple[SessionRow, str, QuestionRow]]:
    commands: list[Command] = []
    for entry in entries:
        at, number = session_keys(entry.app, entry.session), entry.field.partition(".")[0]
        commands += [
            ("HGETALL", at[ROW - 1]),
            ("HGET", at[QUESTIONS - 1], f":{entry.field}"),
            ("LINDEX", at[BRANCHES - 1], number),
        ]
    sessions = [entry.session for entry in entries for _ in range(3)]
    replies = await server.gather_rows(commands, sessions) if commands else []
    found: list[tuple[SessionRow, str, QuestionRow]] = []
    for entry, row, asked, branch in zip(entries, replies[::3], replies[1::3], replies[2::3], strict=True):
        try:
            if whole(row):
                question = read_question((entry.field.encode(), whole(asked), None), entry.session)
                if question.at != entry.time:
                    raise CheckpointCorrupt(f"its question '{question.id}' is elsewhere in the index", entry.session)
                values = ROWS_OF_BRANCHES.values(whole(branch), (), entry.session, "a branch")
                name = ROWS_OF_BRANCHES.field(values, "name")
                found.append((read_session(row, entry.session), str(name), question))
        except CheckpointCorrupt as damage:
            note_damage(damage)
    return found
