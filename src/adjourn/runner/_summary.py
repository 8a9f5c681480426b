"""What people see who look at a session in its store by hand, as readable JSON."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, cast

import msgspec

from adjourn._engine.address import innermost_agent
from adjourn._engine.questions import OpenNow
from adjourn._hiding import known
from adjourn._values import codec
from adjourn.events import Interrupt, map_interrupt
from adjourn.messages import Message

from ._live import LiveSession
from .result import messages_of

MESSAGES = 50
"""How many of the last messages are shown."""
LONGEST = 2_000
"""How many characters of a text are shown: pictures and long results are not what people look for there."""
MEMBERS = 50
"""How many members of a list or of an object are shown, and how many questions."""
LARGEST = 4_000
"""How many bytes of one value are shown, with all that is in it."""

_SHOWN = (
    *("id", "token", "title", "summary", "description", "prompt", "info", "reason", "address", "tags", "choices"),
    *("priority", "link", "requested_by", "expires"),
)


def summary_of(live: LiveSession) -> bytes:
    """Return what there is to see of a session: the agent, what it waits for and why, and the last messages."""
    scope, root = live.scope, live.root.address
    asked = OpenNow(scope, None).shown() if scope.questions.open else ()
    messages = messages_of(live.root.report())
    first = asked[0].address if asked else ""
    shown: dict[str, Any] = {  # Any: JSON
        "agent": innermost_agent(first) or innermost_agent(root) or root,
        "reason": asked[0].reason if asked else None,
        "tool_call_stack": first.split(";") if first else [],
        "question_count": len(asked),
        "questions": [_question(each) for each in asked[:MEMBERS]],
        "message_count": len(messages),
        "messages": [_message(each) for each in messages[-MESSAGES:]],
    }
    return known.hide_in_json(msgspec.json.encode(shown))


def _question(asked: Interrupt) -> dict[str, Any]:  # Any: JSON
    fields: dict[str, Any] = msgspec.to_builtins(map_interrupt(asked, codec.lower))
    return {name: _small(fields[name]) for name in _SHOWN if name in fields}


def _message(said: Message) -> dict[str, Any]:  # Any: JSON
    fields: dict[str, Any] = msgspec.to_builtins(said)
    return {name: _small(each) for name, each in fields.items() if name != "$t"}


def _small(value: Any) -> Any:  # Any: JSON
    """Return a value with its long parts cut, as the beginning of its text if it is still too large."""
    shown = _shortened(value)
    text = msgspec.json.encode(shown)
    if len(text) <= LARGEST:
        return shown
    return f"{text[:LONGEST].decode(errors='ignore')}… (cut)"


def _shortened(value: Any) -> Any:  # Any: JSON
    match value:
        case str() if len(value) > LONGEST:
            return f"{value[:LONGEST]}… ({len(value)} characters)"
        case dict():
            table = cast("dict[str, Any]", value)
            some = {_shortened(name): _shortened(each) for name, each in islice(table.items(), MEMBERS)}
            return some if len(table) <= MEMBERS else {**some, "…": f"({len(table)} in all)"}
        case list() | tuple():
            items = cast("Sequence[Any]", value)
            some = [_shortened(each) for each in items[:MEMBERS]]
            return some if len(items) <= MEMBERS else [*some, f"… ({len(items)} in all)"]
        case _:
            return value
