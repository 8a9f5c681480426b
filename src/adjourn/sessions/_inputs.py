"""Inputs that wait for their turn: what is stored of them, and how people read it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
from msgspec import Raw

from adjourn._hiding import known
from adjourn._values import codec
from adjourn._values.damage import Reading
from adjourn.errors import CheckpointCorrupt, CheckpointTooNew
from adjourn.stores.types import QueuedInput

FORMAT = 1
"""The format of stored inputs; one with a higher number was written by a newer version."""


class WaitingInput(msgspec.Struct, frozen=True, kw_only=True):
    """An input that waits for its turn.

    `on_pending` says what it does to a turn before it that failed or was cancelled: wait until somebody finishes that
    ("error"), or "abandon" it. Instances of classes that are not known here are shown as `Unknown`.
    """

    id: str
    input: Any
    on_pending: Literal["error", "abandon"]
    submitted: datetime
    user_id: str | None
    program: str
    metadata: Mapping[str, Any]


class StoredTurn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a turn is to begin with, as it is stored until then."""

    v: int = FORMAT
    input: Raw
    values: dict[str, Raw] = {}
    state: dict[str, Raw] | None = None
    max_steps: int | None = None
    model_options: dict[str, Any] = {}
    for_agents: dict[str, Any] = {}
    metadata: dict[str, Any] = {}

    def encode(self) -> bytes:
        """Return it as JSON, without secrets."""
        return known.hide_in_json(msgspec.json.encode(self))

    @classmethod
    def decode(cls, body: bytes) -> StoredTurn:
        """Return it from its JSON.

        Raises:
            CheckpointCorrupt: it is damaged.
            CheckpointTooNew: a newer version has written it.
        """
        codec.check_nesting(body)
        try:
            found = msgspec.json.decode(body, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise CheckpointCorrupt(f"an input that waits is damaged ({error})", remedy="Withdraw it") from error
        if found.v > FORMAT:
            raise CheckpointTooNew(found.v, FORMAT)
        return found


def stored_fields(fields: Mapping[str, Any], what: str) -> dict[str, Raw]:
    """Return named values as they are stored.

    Raises:
        NotStorable: one of them cannot be stored.
    """
    return {name: codec.stored(value, f"{what}.{name}") for name, value in fields.items()}


def shown_input(row: QueuedInput, session_id: str) -> WaitingInput:
    """Return an input as people read it, without its program.

    Raises:
        CheckpointCorrupt: it is damaged.
    """
    with Reading(session_id):
        turn = StoredTurn.decode(row.body)
        return WaitingInput(
            id=row.id,
            input=codec.decode(turn.input, lenient=True),
            on_pending="abandon" if row.abandons else "error",
            submitted=datetime.fromtimestamp(row.at, UTC),
            user_id=row.user,
            program=row.program,
            metadata=turn.metadata,
        )
