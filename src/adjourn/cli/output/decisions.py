"""What somebody has decided about a tool call, in words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from adjourn._engine.record import APPROVALS
from adjourn.events import Interrupt
from adjourn.printing import tool_request
from adjourn.tools.decisions import Approve, Decision, Edit, Reject, Respond, decision

_REMEMBERED = {None: "", "session": ", remembered in this session", "always": ", remembered always"}


def decided(asked: Interrupt, answer: Any) -> str | None:  # Any: JSON data
    """Return the decision that an answer stands for; None if the question is not an approval, or it is not one."""
    try:
        return _in_words(decision(answer), asked) if asked.reason in APPROVALS else None
    except ValueError:
        return None


def _in_words(given: Decision, asked: Interrupt) -> str:
    match given:
        case Approve():
            return f"approved{_REMEMBERED[given.remember]}{_limits(given.pattern)}"
        case Reject():
            return f"refused: {given.reason}" if given.reason else "refused"
        case Edit():
            return f"edited: {', '.join(_changes(asked, given.arguments)) or 'as it was'}"
        case Respond():
            return f"responded: {given.text}"


def _limits(pattern: Mapping[str, Any] | None) -> str:
    return f", for {' and '.join(f'{name} {_json(wanted)}' for name, wanted in pattern.items())}" if pattern else ""


def _changes(asked: Interrupt, arguments: Mapping[str, Any]) -> Iterator[str]:
    request = tool_request(asked.info)
    before: Mapping[str, Any] = {} if request is None else request.arguments
    for name in {**before, **arguments}:
        old, new = (_json(each[name]) if name in each else "nothing" for each in (before, arguments))
        if old != new:
            yield f"{name} {old} → {new}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
