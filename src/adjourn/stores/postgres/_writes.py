"""Effects as a call of the function `apply`, which can write all of them."""

from __future__ import annotations

from functools import cache
from typing import Any

from msgspec import UNSET

from adjourn.errors import NotStorable
from adjourn.stores.kit.effects import Effects
from adjourn.stores.kit.rows import input_digest
from adjourn.stores.types import Input, SessionRef

from . import _outbox as outbox
from ._driver import ExceedsIndex
from ._text import array_of

_BIG, _REAL, _TEXT, _BYTES, _FLAG = "bigint", "double precision", "text", "bytea", "boolean"
_TYPES: dict[str, str] = {
    **dict.fromkeys(("in_app", "in_id", "in_user", "g_checkpoint", "g_branch", "g_owner", "g_replaces"), _TEXT),
    **dict.fromkeys(("m_branch", "m_status", "l_owner", "to_cancel", "b_parent", "last_source"), _TEXT),
    **dict.fromkeys(("g_fence", "g_waiting", "m_branch_no", "m_number", "m_pos", "m_full_pos", "m_size"), _BIG),
    **dict.fromkeys(("m_seq", "l_fence", "l_claims", "add_waiting", "b_start", "b_first", "last_count"), _BIG),
    **dict.fromkeys(("to_program", "begins_input", "withdraws", "i_id", "i_digest", "i_program", "i_user"), _TEXT),
    **dict.fromkeys(("g_inputs", "add_inputs"), _BIG),
    **dict.fromkeys(("g_idle", "l_ttl"), _REAL),
    **dict.fromkeys(("g_exists", "g_live", "sets_cancel", "removes", "i_abandons"), _FLAG),
    **dict.fromkeys(("last_header", "last_events", "last_body", "i_body"), _BYTES),
    **dict.fromkeys(("r_pos", "r_seq", "r_count", "e_branch_no", "d_number", "drops"), f"{_BIG}[]"),
    **dict.fromkeys(("r_source", "a_id", "a_how", "a_by", "e_id", "e_how", "e_by", "takes"), f"{_TEXT}[]"),
    **dict.fromkeys(("d_digest", "d_place", "a_address", "a_agent", "a_reason"), f"{_TEXT}[]"),
    **dict.fromkeys(("r_header", "r_events", "r_body", "a_body", "a_value", "a_tags", "e_value"), f"{_BYTES}[]"),
    **dict.fromkeys(("a_expires", "a_at", "a_asked"), f"{_REAL}[]"),
    **dict.fromkeys(("r_full", "e_taken"), f"{_FLAG}[]"),
}


@cache
def _call(schema: str, names: tuple[str, ...]) -> bytes:
    """Return the statement that calls the function with these arguments."""
    given = ", ".join(f"{name} => %({name})b::{_TYPES[name]}" for name in names)
    return f"SELECT was_cancel, written, left_inputs FROM {schema}.apply({given})".encode()


def call_of(schema: str, ref: SessionRef, effects: Effects) -> tuple[bytes, dict[str, Any]]:
    """Return the statement that writes any effects, and its parameters. It returns a row if the guard holds."""
    given = _arguments(ref, effects)
    call = _call(schema, tuple(given))
    if effects.notices:
        return outbox.with_notices(call, schema), given | outbox.values(effects)
    return call, given


def _arguments(ref: SessionRef, effects: Effects) -> dict[str, Any]:
    """Return the arguments that say what to write under which guards; whatever is not named is left as it is."""
    guard, move, lease = effects.guard, effects.move, effects.lease
    given: dict[str, Any] = {
        "in_app": ref.app,
        "in_id": ref.id,
        "in_user": ref.user,
        "g_exists": None if guard.exists else False,
        "g_checkpoint": guard.checkpoint,
        "g_branch": guard.branch,
        "g_fence": guard.fence,
        "g_owner": guard.owner,
        "g_live": guard.live,
        "g_replaces": guard.replaces,
        "g_waiting": guard.waiting,
        "g_inputs": guard.inputs,
        "g_idle": guard.idle,
        "add_waiting": effects.waiting or None,
        "add_inputs": effects.inputs or None,
        "to_program": effects.program or None,
        "begins_input": effects.begins_input,
        "withdraws": effects.withdraws,
        "removes": effects.removes or None,
        "takes": list(effects.takes) or None,
        "drops": list(effects.drops) or None,
    }
    if move is not None:
        given |= {
            "m_branch": move.branch,
            "m_branch_no": move.branch_no,
            "m_number": move.number,
            "m_pos": move.pos,
            "m_full_pos": move.full_pos,
            "m_size": move.size,
            "m_status": move.status,
            "m_seq": move.seq,
        }
    if lease is not None:
        given |= {"l_fence": lease.fence, "l_owner": lease.owner, "l_claims": lease.claims, "l_ttl": lease.ttl}
    if effects.cancel is not UNSET:
        given |= {"sets_cancel": True, "to_cancel": effects.cancel}
    for branch in effects.branches:
        given |= {"b_start": branch.start, "b_first": branch.first, "b_parent": branch.parent}
    if effects.records:
        given |= _records(effects)
    if effects.asks:
        given |= _asks(effects)
    if effects.ends:
        given |= _ends(effects)
    if effects.submits is not None:
        given |= _submitted(effects.submits)
    if effects.begins:
        digests, places, numbers = zip(
            *((each.digest, each.place, each.number) for each in effects.begins), strict=True
        )
        given |= {"d_digest": list(digests), "d_place": list(places), "d_number": list(numbers)}
    return {name: value for name, value in given.items() if value is not None}


def too_long(ref: SessionRef, effects: Effects, error: ExceedsIndex) -> NotStorable:
    """Return the error about a name that an index does not take."""
    by_table = {
        "sessions": {"session_id": ref.id, "user_id": ref.user or "", "app_name": ref.app},
        "questions": {"the id of a question": max((each.id for each in effects.asks), key=len, default="")},
        "inputs": {"the id of an input": "" if effects.submits is None else effects.submits.id},
    }
    tables = [by_table[error.path]] if error.path in by_table else by_table.values()
    size, name = max((len(text.encode(errors="replace")), name) for table in tables for name, text in table.items())
    return NotStorable(
        name,
        "",
        f"It has {size:,} bytes and does not fit into an index of Postgres ({error.remedy}), which also has the names "
        "of a session, its user and its app in one entry. Use a shorter name, such as a hash of it.",
    )


def _records(effects: Effects) -> dict[str, Any]:
    """Return the records. The last one has arguments of its own: mostly it is the only one, and lists cost more."""
    *before, last = effects.records
    given: dict[str, Any] = {
        "last_source": last.source,
        "last_count": last.count,
        "last_header": last.header,
        "last_events": last.events,
        "last_body": last.body,
    }
    if before:
        given |= {
            "r_pos": [each.pos for each in before],
            "r_full": [each.full for each in before],
            "r_seq": [each.seq for each in before],
            "r_count": [each.count for each in before],
            "r_source": [each.source for each in before],
            "r_header": [each.header for each in before],
            "r_events": [each.events for each in before],
            "r_body": [each.body for each in before],
        }
    return given


def _asks(effects: Effects) -> dict[str, Any]:
    asks = effects.asks
    ended = [each.ended for each in asks]
    return {
        "a_id": [each.id for each in asks],
        "a_body": [each.body for each in asks],
        "a_expires": [None if each.expires is None else float(each.expires) for each in asks],
        "a_how": [each and each.how for each in ended],
        "a_at": [each and float(each.at) for each in ended],
        "a_by": [each and each.by for each in ended],
        "a_value": [each and each.value for each in ended],
        "a_address": [each.address for each in asks],
        "a_agent": [each.agent for each in asks],
        "a_reason": [each.reason for each in asks],
        "a_tags": [array_of(each.tags) for each in asks],
        "a_asked": [float(each.asked) for each in asks],
    }


def _ends(effects: Effects) -> dict[str, Any]:
    ends, move = effects.ends, effects.move
    return {
        # A question of the branch that the head is on before the write has no number here.
        "e_branch_no": [move.branch_no if move and each.branch == move.branch else None for each in ends],
        "e_id": [each.answer.id for each in ends],
        "e_how": [each.answer.how for each in ends],
        "e_taken": [each.taken for each in ends],
        "e_by": [each.answer.by for each in ends],
        "e_value": [each.answer.value for each in ends],
    }


def _submitted(given: Input) -> dict[str, Any]:
    return {
        "i_id": given.id,
        "i_digest": input_digest(given),
        "i_program": given.program,
        "i_user": given.user,
        "i_abandons": given.abandons,
        "i_body": given.body,
    }
