"""Effects and queries as scripts read them."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET

from adjourn.errors import NotStorable
from adjourn.stores.kit import (
    Effects,
    End,
    Query,
    RecordRow,
    SessionRow,
    asked_row,
    input_digest,
    terms_in,
    terms_of,
)
from adjourn.stores.types import Answer, Answered, Begun, Input, Notice, Question, QuestionFilter, SessionRef

from ._document import document
from ._keys import index_prefix

Fields: TypeAlias = dict[str, Any]
"""A table of Lua. A member that is None does not exist there."""

_pack = msgspec.msgpack.Encoder().encode


def _text(data: bytes) -> msgspec.Raw:
    """Return bytes marked as text: the scripts of Redis 7 know no other strings, and do not look into them."""
    return msgspec.Raw(b"\xdb" + len(data).to_bytes(4) + data)


def packed(fields: Fields) -> bytes:
    """Return a table as bytes."""
    return _pack(fields)


def not_text(error: UnicodeEncodeError) -> NotStorable:
    """Return the error for an id or name with half a surrogate pair."""
    return NotStorable("id", error.object, f"It must be text that UTF-8 can hold: {error}.")


def effects_table(ref: SessionRef, effects: Effects) -> Fields:
    """Return effects as `apply.lua` reads them."""
    shown = document(ref, effects)
    return {
        "session": ref.id,
        "app": ref.app,
        "user": ref.user,
        "index": index_prefix(ref.app),
        "user_term": None if effects.guard.exists or ref.user is None else _user_term(ref),
        "guard": effects.guard,
        "move": effects.move,
        "lease": effects.lease,
        "cancel": None if effects.cancel is UNSET else effects.cancel,
        "uncancels": effects.cancel is None,
        "waiting": effects.waiting,
        "program": effects.program,
        "inputs": effects.inputs,
        "submits": None if effects.submits is None else _input(effects.submits),
        "begins_input": effects.begins_input,
        "withdraws": effects.withdraws,
        "branches": [_text(_pack((each.name, each.start, each.first, each.parent))) for each in effects.branches],
        "records": [_record(each) for each in effects.records],
        "asks": [_question(ref, each) for each in effects.asks],
        "ends": [_end(each) for each in effects.ends],
        "takes": effects.takes,
        "begins": [_begun(each) for each in effects.begins],
        "notices": [_notice(ref, each) for each in effects.notices],
        "drops": effects.drops,
        "removes": effects.removes,
        "document": None if shown is None else [_text(part) for part in shown],
    }


def query_table(query: Query) -> Fields:
    """Return a query as `read.lua` reads it; whoever wants records also gets the branches that say where they are."""
    return {
        "questions": list(query.questions),
        "waiting": query.waiting,
        "branches": query.branches or query.log or bool(query.records),
        "records": [record_name(each) for each in query.records],
        "inputs": list(query.inputs),
        "queue": 1 if query.first_input else None,
    }


def record_name(id: str) -> tuple[str, int]:
    """Return the branch and the number in a record's id; the number is -1 if there is no such id."""
    name, _, digits = id.rpartition(".")
    is_number = digits.isascii() and digits.isdigit() and len(digits) < 16 and str(int(digits)) == digits
    return (name, int(digits) if is_number else -1)


def _record(row: RecordRow) -> Fields:
    return {
        "pos": row.pos,
        "full": row.full,
        "seq": row.seq,
        "count": row.count,
        "facts": _text(_pack((row.full, row.source, row.seq, row.count, row.header))),
        "body": _text(row.body),
        "events": _text(row.events),
    }


def _user_term(ref: SessionRef) -> str:
    in_app = terms_in(QuestionFilter(app=ref.app))
    (term,) = [each for each in terms_in(QuestionFilter(app=ref.app, user=ref.user)) if each not in in_app]
    return term


def _question(ref: SessionRef, question: Question) -> Fields:
    row, given = asked_row(question, 0), question.ended
    labels = (row.address, row.agent, row.reason, row.tags, row.asked)
    # The session's user is known to the script alone.
    nobodys = SessionRow(0, ref.id, ref.app, None, 0.0)
    return {
        "id": question.id,
        "expires": question.expires,
        "asked": question.asked,
        "terms": terms_of(nobodys, row),
        "facts": _text(_pack((question.id, question.body, question.expires, *labels))),
        "ended": None if given is None else _text(b"%r " % given.at + _answer(given)),
    }


def _end(end: End) -> Fields:
    return {
        "branch": end.branch,
        "id": end.answer.id,
        "is_given": end.answer.how == "answered",
        "taken": end.taken,
        "facts": _text(_answer(end.answer)),
    }


def _answer(given: Answer | Answered) -> bytes:
    return _pack((given.value, given.how, given.by))


def _begun(begun: Begun) -> Fields:
    return {"digest": begun.digest, "facts": _text(_pack((begun.place, begun.number)))}


def _notice(ref: SessionRef, given: Notice) -> Fields:
    facts = _pack((given.to, given.body, ref.app, ref.id))
    return {"id": given.id, "to": given.to, "due": given.due, "facts": _text(facts)}


def _input(given: Input) -> Fields:
    facts = _pack((input_digest(given), given.program, given.user, given.abandons))
    return {"id": given.id, "abandons": given.abandons, "facts": _text(facts), "body": _text(given.body)}
