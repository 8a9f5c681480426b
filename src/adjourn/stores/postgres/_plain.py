"""The writes of a run as plain statements: when it begins, at each step, when it pauses, goes on and ends.

The function `apply` of the schema can do all of this, too, and has the last word: where one of these finds no row, or
one that is in its way, nothing is written, and `apply` is asked. But to set up its many parts takes the server longer
than the write. A plain statement is that quick only if its plan is kept, so these are not used behind a pooler.

Each looks at the session's row, and if it has to wait for that, Postgres checks the conditions once more, on the row as
it is then. Whatever else it looks at, it also changes, and Postgres checks that once more, too. The time of writing is
that at which the statement arrived.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from adjourn.stores.kit.effects import Effects, Guard, LeaseChange, Move
from adjourn.stores.types import SessionRef

from ._inbox import terms_of
from ._text import array_of

_LONG_NAMES = 500  # bytes; whether longer ones fit into all indexes must be tried

_TYPES = {
    "bigint": "g_fence g_waiting g_inputs m_branch_no m_number m_pos m_full_pos m_size m_seq l_fence l_claims r_count",
    "text": "in_app in_id in_user g_owner m_branch m_status l_owner to_program b_parent r_source q_id q_how q_by "
    "q_address q_agent q_reason",
    "bytea": "r_header r_events r_body q_body q_value q_tags",
    "double precision": "l_ttl q_expires q_asked",
    "text[]": "q_terms",
}
_TYPED = {name: f"%({name})b::{kind}" for kind, names in _TYPES.items() for name in names.split()}

_NAMED = """s.app = {in_app} AND s.id = {in_id} AND ({in_user} IS NULL OR s."user" = {in_user})"""
_AT_HEAD = "s.branch = {m_branch} AND s.number = {m_number} - 1 AND s.pos = {m_pos} - 1 AND s.fence = {g_fence}"
_MOVED = """number = {m_number}, pos = {m_pos}, full_pos = {m_full_pos}, size = {m_size}, status = {m_status},
    seq = {m_seq}, updated = {now}, touched = {now}, claims = {l_claims},
    program = CASE WHEN s.program = '' THEN {to_program} ELSE s.program END"""
_HELD = "expires = {now} + {l_ttl}"
_TAKEN = "owner = {l_owner}, fence = {l_fence}, cancel = NULL, rested = NULL, " + _HELD
_RELEASED = "owner = NULL, expires = 0, rested = {now}"
_RETURNED = "s.no, s.cancel, s.updated, s.inputs"
_RECORD = """record AS (INSERT INTO {schema}.records SELECT moved.no, {m_pos}, {m_full_pos} = {m_pos}, moved.updated,
    {m_seq}, {r_count}, {r_source}, {r_header}, {r_events}, {r_body} FROM moved)"""
_REPLY = "SELECT moved.cancel, moved.updated, moved.inputs FROM moved"

_STEP = f"""WITH moved AS (UPDATE {{schema}}.sessions AS s SET {_MOVED}, {_HELD}
        WHERE {_NAMED} AND {_AT_HEAD} AND s.owner = {{g_owner}} RETURNING {_RETURNED}),
    {_RECORD} {_REPLY}"""

# A cancel that came in is the business of `apply`: it returns that, and removes it.
_RELEASE = f"""WITH moved AS (UPDATE {{schema}}.sessions AS s SET {_MOVED}, {_RELEASED}
        WHERE {_NAMED} AND {_AT_HEAD} AND s.owner = {{g_owner}} AND s.cancel IS NULL
        AND ({{g_waiting}} IS NULL OR s.waiting = {{g_waiting}}) <more> RETURNING {_RETURNED}),
    {_RECORD} <asked> {_REPLY}"""
_END = _RELEASE.replace("<more>", "").replace("<asked>", "")
# The terms are those of a question of exactly this user.
_PAUSE = _RELEASE.replace("<more>", 'AND s."user" IS NOT DISTINCT FROM {in_user}').replace(
    "<asked>",
    """, question AS (INSERT INTO {schema}.questions
            (session, branch, id, body, expires, address, agent, reason, tags, asked, terms)
        SELECT moved.no, {m_branch_no}, {q_id}, {q_body}, {q_expires}, {q_address}, {q_agent}, {q_reason},
            convert_from({q_tags}, 'UTF8')::text[], {q_asked}, {q_terms} FROM moved RETURNING no),
    listed AS (INSERT INTO {schema}.inbox
        SELECT unnest({q_terms}), {q_asked}, question.no, {q_expires} FROM question)""",
)

_FREE = f"{_NAMED} AND {_AT_HEAD} AND s.owner IS NULL AND ({{g_inputs}} IS NULL OR s.inputs = {{g_inputs}})"
_TAKE = f"""WITH moved AS (UPDATE {{schema}}.sessions AS s SET {_MOVED}, {_TAKEN} WHERE {_FREE} RETURNING {_RETURNED}),
    {_RECORD} {_REPLY}"""
# The session's row is locked first, as everybody does, and changed only if the question can end.
_RESUME = f"""WITH found AS (SELECT s.no FROM {{schema}}.sessions AS s WHERE {_FREE} FOR UPDATE),
    ended AS (UPDATE {{schema}}.questions AS q
        SET how = {{q_how}}, taken = true, at = {{now}}, by = {{q_by}}, value = {{q_value}}
        FROM found WHERE q.session = found.no AND q.branch = {{m_branch_no}} AND q.id = {{q_id}} AND q.how IS NULL
        AND ({{q_how}} <> 'answered' OR q.expires IS NULL OR q.expires > {{clock}})
        RETURNING q.session, q.no, q.asked, q.terms),
    unlisted AS (DELETE FROM {{schema}}.inbox AS i USING ended
        WHERE i.term = ANY (ended.terms) AND i.asked = ended.asked AND i.no = ended.no),
    moved AS (UPDATE {{schema}}.sessions AS s SET {_MOVED}, {_TAKEN}
        FROM ended WHERE s.no = ended.session RETURNING {_RETURNED}),
    {_RECORD} {_REPLY}"""

_BEGIN = f"""WITH moved AS (INSERT INTO {{schema}}.sessions AS s (id, app, "user", created, owner, status, branch,
            branch_no, number, pos, full_pos, size, seq, expires, fence, claims, updated, touched, program)
        VALUES ({{in_id}}, {{in_app}}, {{in_user}}, {{now}}, {{l_owner}}, {{m_status}}, {{m_branch}},
            {{m_branch_no}}, {{m_number}}, {{m_pos}}, {{m_full_pos}}, {{m_size}}, {{m_seq}}, {{now}} + {{l_ttl}},
            {{l_fence}}, {{l_claims}}, {{now}}, {{now}}, {{to_program}})
        ON CONFLICT (app, id) DO NOTHING RETURNING {_RETURNED}),
    branch AS (INSERT INTO {{schema}}.branches
        SELECT moved.no, {{m_branch_no}}, {{m_branch}}, {{m_pos}}, {{m_number}}, {{b_parent}} FROM moved),
    {_RECORD} {_REPLY}"""


class Plain(NamedTuple):
    """A statement with its parameters, and whether it is the whole truth that it finds no row."""

    statement: bytes
    values: dict[str, Any]
    is_final: bool = False


@cache
def _text(schema: str, statement: str) -> bytes:
    functions = {"schema": schema, "now": f"{schema}.moment()", "clock": f"{schema}.clock()"}
    return statement.format_map(_TYPED | functions).encode()


def step_of(schema: str, ref: SessionRef, effects: Effects) -> Plain | None:
    """Return the statement for a live owner that adds one record to the log, and nothing else."""
    guard, move, lease = effects.guard, effects.move, effects.lease
    if move is None or lease is None or guard.owner is None or lease.owner != guard.owner or effects.ends:
        return None
    if not _is_next(effects, guard, move, lease) or effects.cancel is not UNSET or effects.asks:
        return None
    if lease.fence != guard.fence or replace(guard, owner=None, fence=None, checkpoint=None) != _NO_GUARD:
        return None
    values = _values(ref, effects, move, lease)
    values["g_owner"] = guard.owner
    return Plain(_text(schema, _STEP), values, is_final=True)


def plain_of(schema: str, ref: SessionRef, effects: Effects) -> Plain | None:
    """Return the statement for another write that a run makes in the usual way; None if it is not one."""
    guard, move, lease = effects.guard, effects.move, effects.lease
    if move is None or lease is None:
        return None
    if not guard.exists:
        return _begin(schema, ref, effects, move, lease)
    if effects.cancel is not None or not _is_next(effects, guard, move, lease):
        return None
    if guard.owner is not None and lease.owner is None:
        return _release(schema, ref, effects, move, lease)
    if guard.owner is None and guard.live is False and lease.owner is not None:
        return _take(schema, ref, effects, move, lease)
    return None


_NO_GUARD = Guard()
_NOTHING = Effects(guard=_NO_GUARD)


def _is_next(effects: Effects, guard: Guard, move: Move, lease: LeaseChange) -> bool:
    """Return whether the write adds one record behind the head, and questions or ends of them at most."""
    if len(effects.records) != 1 or lease.claims is None or guard.fence is None:
        return False
    rest = replace(
        effects,
        guard=_NO_GUARD,
        move=None,
        lease=None,
        records=(),
        program="",
        summary=b"",
        asks=(),
        ends=(),
        cancel=UNSET,
    )
    return rest == _NOTHING and guard.checkpoint == f"{move.branch}.{move.number - 1}"


def _release(schema: str, ref: SessionRef, effects: Effects, move: Move, lease: LeaseChange) -> Plain | None:
    guard, asks = effects.guard, effects.asks
    known = replace(guard, owner=None, fence=None, checkpoint=None, waiting=None)
    if known != _NO_GUARD or lease.fence != guard.fence or effects.ends or len(asks) > 1:
        return None
    values = _values(ref, effects, move, lease)
    values |= {"g_owner": guard.owner, "g_waiting": guard.waiting}
    if not asks:
        return Plain(_text(schema, _END), values)
    (asked,) = asks
    if asked.ended is not None:
        return None
    values |= {
        "m_branch_no": move.branch_no,
        "q_id": asked.id,
        "q_body": asked.body,
        "q_expires": None if asked.expires is None else float(asked.expires),
        "q_address": asked.address,
        "q_agent": asked.agent,
        "q_reason": asked.reason,
        "q_tags": array_of(asked.tags),
        "q_asked": float(asked.asked),
        "q_terms": terms_of(ref, asked),
    }
    return Plain(_text(schema, _PAUSE), values)


def _take(schema: str, ref: SessionRef, effects: Effects, move: Move, lease: LeaseChange) -> Plain | None:
    guard, ends = effects.guard, effects.ends
    known = replace(guard, fence=None, checkpoint=None, live=None, replaces=None, inputs=None)
    if known != _NO_GUARD or effects.asks or len(ends) > 1:
        return None
    values = _values(ref, effects, move, lease)
    values |= {"g_inputs": guard.inputs, "l_owner": lease.owner, "l_fence": lease.fence}
    if not ends:
        return Plain(_text(schema, _TAKE), values)
    ((branch, answer, taken),) = ((end.branch, end.answer, end.taken) for end in ends)
    if branch != move.branch or not taken:
        return None
    values |= {
        "m_branch_no": move.branch_no,
        "q_id": answer.id,
        "q_how": answer.how,
        "q_by": answer.by,
        "q_value": answer.value,
    }
    return Plain(_text(schema, _RESUME), values)


def _begin(schema: str, ref: SessionRef, effects: Effects, move: Move, lease: LeaseChange) -> Plain | None:
    if effects.guard != Guard(exists=False) or lease.owner is None or lease.claims is None or move.pos != 0:
        return None
    if len(effects.records) != 1 or len(effects.branches) != 1 or effects.cancel is not UNSET:
        return None
    rest = replace(effects, guard=_NO_GUARD, move=None, lease=None, records=(), branches=(), program="", summary=b"")
    names = len(f"{ref.id}{ref.app}{ref.user or ''}".encode(errors="replace"))
    (branch,) = effects.branches
    if rest != _NOTHING or names > _LONG_NAMES or (branch.start, branch.first) != (move.pos, move.number):
        return None
    values = _values(ref, effects, move, lease)
    values |= {
        "l_owner": lease.owner,
        "l_fence": lease.fence,
        "m_branch_no": move.branch_no,
        "b_parent": branch.parent,
    }
    return Plain(_text(schema, _BEGIN), values)


def _values(ref: SessionRef, effects: Effects, move: Move, lease: LeaseChange) -> dict[str, Any]:
    """Return the parameters that most of the statements have."""
    (record,) = effects.records
    return {
        "in_app": ref.app,
        "in_id": ref.id,
        "in_user": ref.user,
        "g_fence": effects.guard.fence,
        "m_branch": move.branch,
        "m_number": move.number,
        "m_pos": move.pos,
        "m_full_pos": move.full_pos,
        "m_size": move.size,
        "m_status": move.status,
        "m_seq": move.seq,
        "l_claims": lease.claims,
        "l_ttl": float(lease.ttl),
        "to_program": effects.program,
        "r_source": record.source,
        "r_count": record.count,
        "r_header": record.header,
        "r_events": record.events,
        "r_body": record.body,
    }
