"""From what a person types to the question it is for, and the answer that the question wants."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from adjourn._engine.record import id_of_token
from adjourn._schemas.answers import choices_of, problems
from adjourn._schemas.jsonschema import resolved
from adjourn.errors import (
    AlreadyResumed,
    InterruptExpired,
    InvalidAnswer,
    StaleCheckpoint,
    UnknownInterrupt,
    UsageError,
)
from adjourn.events import Interrupt
from adjourn.sessions import AuditEntry, Sessions

if TYPE_CHECKING:
    from adjourn.client import Client


async def find_question(sessions: Sessions | Client, session_id: str, name: str | None) -> Interrupt:
    """Return the open question of this token, id or key, or the only one.

    Raises:
        UnknownInterrupt, AlreadyResumed, InterruptExpired, StaleCheckpoint: there is none, or it is no longer open.
        UsageError: there are several to choose from.
    """
    found = await sessions.pending(session_id)
    if name is not None:
        exact = [asked for asked in found if name in (asked.token, asked.id)]
        named = exact or [asked for asked in found if asked.key == name]
    else:
        named = found
    if len(named) == 1:
        return named[0]
    if not named:
        raise await _not_open(sessions, session_id, name, [asked.id for asked in found])
    ids = "\n".join(f"  {asked.id}" for asked in named)
    raise UsageError(
        f"Session '{session_id}' asks {len(named)} questions. Choose one with --question ID, or an approval with the "
        f"token that `adjourn pending {session_id}` shows below it:\n{ids}"
    )


async def _not_open(sessions: Sessions | Client, session_id: str, name: str | None, open_: list[str]) -> Exception:
    status = await sessions.status(session_id)
    ended = [entry for entry in await sessions.audit(session_id) if name is None or _has_name(entry, name)]
    if not ended:
        if name is None:
            return UsageError(f"Session '{session_id}' asks nothing now. `adjourn show {session_id}` shows its status.")
        if id_of_token(name) is not None:
            return StaleCheckpoint(session_id, "", status.checkpoint_id, token=name, open=open_)
        return UnknownInterrupt(session_id, name, open_)
    last = max(ended, key=lambda entry: entry.at.timestamp() if entry.at else 0.0)
    if last.outcome in (None, "expired"):
        return InterruptExpired(session_id, last.interrupt.id)
    at = None if last.at is None else last.at.timestamp()
    return AlreadyResumed(session_id, last.interrupt.id, live=status.status == "running", by=last.by, at=at)


def _has_name(entry: AuditEntry, name: str) -> bool:
    return name in (entry.interrupt.token, entry.interrupt.id, entry.interrupt.key)


_KINDS = {"boolean": "yes or no", "string": "text", "integer": "whole number", "number": "number"}


def fields_of(asked: Interrupt) -> Mapping[str, Interrupt]:
    """Return the fields of an answer to ask for one by one; none unless all of them are plain."""
    root = asked.schema or {}
    schema = resolved(root, root)
    if schema.get("type") != "object":
        return {}
    fields = {name: _field(asked, resolved(part, root)) for name, part in schema.get("properties", {}).items()}
    return fields if all(map(kind_of, fields.values())) else {}


def _field(asked: Interrupt, part: dict[str, Any]) -> Interrupt:
    schema = {**part, "$defs": (asked.schema or {}).get("$defs", {})}
    return Interrupt(id=asked.id, session_id=asked.session_id, schema=schema, choices=choices_of(schema))


def required_of(asked: Interrupt) -> Collection[str]:
    """Return the required fields of an answer."""
    return resolved(asked.schema or {}, asked.schema or {}).get("required", ())


def kind_of(field: Interrupt) -> str:
    """Return what to type for a field; empty if it is not plain."""
    kind = _KINDS.get(str((field.schema or {}).get("type")), "")
    texts = [choice for choice in field.choices if isinstance(choice, str)]
    return " or ".join(texts) if texts and len(texts) == len(field.choices) else kind


def described_fields(asked: Interrupt) -> str:
    """Describe the fields of an answer for people, a line each."""
    required = required_of(asked)
    return "\n".join(
        f"{name}: {kind_of(field)}{'' if name in required else ' (optional)'}"
        for name, field in fields_of(asked).items()
    )


_WORDS = {
    **dict.fromkeys(("y", "yes", "true", "ok", "approve", "approved"), True),
    **dict.fromkeys(("n", "no", "false", "reject", "refuse", "refused"), False),
}


def parse(text: str, asked: Interrupt) -> Any:
    """Return the answer that a text means: a choice, yes or no, JSON if the schema expects it, else the text itself.

    Raises:
        InvalidAnswer: the schema takes none of these.
    """
    text = text.strip()
    for value in _readings(text, asked):
        if accepts(asked, value):
            return value
    best = _word(text) if isinstance(_word(text), bool) else parse_data(text)
    raise InvalidAnswer(asked.session_id, asked.id, problems(best, asked.schema))


def accepts(asked: Interrupt, value: Any) -> bool:
    """Return whether the question's schema accepts this answer."""
    return not problems(value, asked.schema)


def parse_data(text: str) -> Any:
    """Return a text as JSON data if it is JSON, but quoted text and anything else as it is."""
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return text
    return text if isinstance(value, str) else value


def pairs_of(option: str, words: list[str]) -> dict[str, str]:
    """Return the names and texts of `NAME=VALUE` words.

    Raises:
        UsageError: one of them has no `=`, or a name comes twice.
    """
    pairs: dict[str, str] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name:
            raise UsageError(f"{option} {word!r}: write NAME=VALUE, such as {option} user=Martin.".lstrip())
        if name in pairs:
            raise UsageError(f"{option} {word!r}: {name!r} was given before. Give each name once.".lstrip())
        pairs[name] = text
    return pairs


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _readings(text: str, asked: Interrupt) -> Iterator[Any]:
    """Yield what a text may mean, most likely first."""
    named = [choice for choice in asked.choices if text in (choice, json.dumps(choice, ensure_ascii=False))]
    yield from named
    if isinstance(word := _word(text), bool) and (asked.schema is not None or asked.reason == "need_approval"):
        yield word
    if asked.choices and text.isascii() and text.isdigit() and 0 < int(text) <= len(asked.choices):
        yield asked.choices[int(text) - 1]
    if asked.schema is not None:
        yield parse_data(text)
    yield text


def _word(text: str) -> bool | None:
    return _WORDS.get(text.lower())
