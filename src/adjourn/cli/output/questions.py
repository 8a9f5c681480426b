"""Open questions, shown to the person who decides.

What is shown is what is stored, whole: the raw arguments, with every character that would hide something spelled out.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, cast

import msgspec

from adjourn._engine.address import Address
from adjourn._screen import Card, Screen
from adjourn._text import visible_line
from adjourn.cli.ask.parsing import described_fields
from adjourn.events import Interrupt
from adjourn.printing import answer_form, described

from .documents import plain
from .tables import ago, clock

_REASONS = {"need_approval": "asks for your approval", "need_input": "asks you something"}


class ToolRequest(NamedTuple):
    """A tool call that is waiting for approval, as far as it is stored."""

    tool: str
    arguments: Mapping[str, Any]


def tool_request(asked: Interrupt) -> ToolRequest | None:
    """Return the tool call that a question is about, if any."""
    info = plain(asked.info)
    if not isinstance(info, dict):
        return None
    facts = cast("dict[str, Any]", info)
    tool, arguments = facts.get("tool"), facts.get("arguments")
    if not isinstance(tool, str) or not isinstance(arguments, dict):
        return None
    return ToolRequest(tool, cast("dict[str, Any]", arguments))


def print_question(asked: Interrupt, number: str = "") -> None:
    """Show a question so that it cannot be overlooked: its place, what it asks, and what an answer must be."""
    screen = Screen(sys.stdout)
    title = f"{place_of(asked)} {_REASONS.get(asked.reason, f'waits: {asked.reason}')}{number}"
    screen.write("\n")
    screen.show(Card("⏸", "yellow", title, tuple(_rows(asked)), strong=True))


def place_of(asked: Interrupt) -> str:
    """Return where a question was asked, for people: `TicketBooker › book_ticket (call_1)`."""
    try:
        segments = list(Address.parse(asked.address))
    except ValueError:
        return asked.address
    named = segments[1:] if len(segments) > 1 and segments[0].type == "runnable" else segments
    return " › ".join(each.id + (f" ({each.sub_id})" if each.sub_id else "") for each in named)


def is_yes_or_no(asked: Interrupt) -> bool:
    """Return whether the answer is yes or no."""
    return bool(asked.choices) and all(isinstance(choice, bool) for choice in asked.choices)


def _rows(asked: Interrupt) -> Iterator[tuple[str, str]]:
    request = tool_request(asked)
    if asked.prompt is not None and not (request and _repeats(asked.prompt, request)):
        yield "asks", asked.prompt
    if request is not None:
        yield "tool", request.tool
        yield "with", pretty(request.arguments)
    elif asked.info is not None and asked.info != asked.prompt:
        yield "shows", described(plain(asked.info))
    if request is None or asked.reason != "need_approval":
        yield "answer", _form(asked)
    if asked.expires is not None:
        yield "until", f"{clock(asked.expires)}, {ago(asked.expires)}"
    yield "reason", asked.reason
    yield "id", visible_line(asked.id) + (f", key {visible_line(asked.key)}" if asked.key is not None else "")
    yield "session", visible_line(asked.session_id)
    if asked.token:
        yield "token", visible_line(asked.token)


def _repeats(prompt: str, request: ToolRequest) -> bool:
    """Return whether a prompt only repeats what is shown in full anyway."""
    return msgspec.json.encode(request.arguments).decode() in prompt


def _form(asked: Interrupt) -> str:
    return "yes or no" if is_yes_or_no(asked) else described_fields(asked) or answer_form(asked)


def pretty(value: Any) -> str:  # Any: JSON data
    """Return JSON for people, one field per line."""
    return json.dumps(value, ensure_ascii=False, indent=2)
