"""The model of `adjourn demo`: it books train tickets, and needs neither a key nor a network."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

from adjourn.messages import Message, ToolCall, Usage

from .chunks import Chunk, chunks_of
from .protocol import ModelRequest

TOOL = "book_ticket"
_QUESTIONS = {"location": "Where would you like to go?", "passenger_name": "Who is travelling?"}
_WORD = re.compile(r"\s*\S+(?:\s+$)?|\s+")

# A name or a place ends at a word that continues the sentence: "to New York for Ann Lee, please".
_STOPS = (
    "a an and at book buy by call for from get go me my next on phone please she he the their they this to today "
    "tomorrow travel us we with you"
)
_WORDS = rf"(?!(?:{_STOPS.replace(' ', '|')})\b)[^\W\d_][\w'’-]*"
_FIELDS = {
    "location": re.compile(rf"\bto\s+({_WORDS}(?:\s+{_WORDS})*)", re.IGNORECASE),
    "passenger_name": re.compile(rf"\bfor\s+({_WORDS}(?:\s+{_WORDS})*)", re.IGNORECASE),
    "phone": re.compile(r"(\+?\d[\d ()/-]{4,}\d)"),
}


class DemoModel:
    """Understands "Book a ticket for Martin to Beijing", calls `book_ticket`, and reports the result.

    It asks for missing details, except for a phone number. `delay` is the pause before each word, in seconds.
    """

    def __init__(self, *, delay: float = 0.03) -> None:
        self.delay = delay

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Stream the answer word by word."""
        for chunk in chunks_of(_answer(request)):
            for word in _WORD.findall(chunk.text):
                await asyncio.sleep(self.delay)
                yield Chunk(text=word)
            if not chunk.text:
                yield chunk


def _answer(request: ModelRequest) -> Message:
    text, calls = _reply(request)
    words = sum(len(message.text.split()) for message in request.messages)
    usage = Usage(calls=1, input_tokens=words, output_tokens=len(text.split()) + 12 * len(calls))
    reason = "tool_calls" if calls else "stop"
    return Message.assistant(text, tool_calls=calls, usage=usage, finish_reason=reason)


def _reply(request: ModelRequest) -> tuple[str, Sequence[ToolCall]]:
    messages = request.messages
    if messages and messages[-1].role == "tool":
        return _outcome(messages), ()
    known = _details(messages)
    missing = next((field for field in _QUESTIONS if field not in known), None)
    if missing is not None:
        greeting = "" if known else "I book train tickets. "
        return greeting + _QUESTIONS[missing], ()
    if all(tool.name != TOOL for tool in request.tools):
        return f"I would book that, but I have no tool `{TOOL}`.", ()
    number = 1 + sum(len(message.tool_calls) for message in messages)
    arguments = {"phone": "not given", **known}
    return f"I will book a ticket to {known['location']}.", [
        ToolCall(id=f"call_{number}", name=TOOL, arguments={field: arguments[field] for field in _FIELDS})
    ]


def _details(messages: Sequence[Message]) -> dict[str, str]:
    """Return the details the user has given since the last booking; later ones take precedence."""
    known: dict[str, str] = {}
    asked = ""
    for message in messages:
        if message.role == "tool":
            known.clear()
        elif message.role == "user":
            known |= _read(message.text, asked)
        asked = message.text if message.role == "assistant" else ""
    return known


def _read(text: str, asked: str) -> dict[str, str]:
    found = {field: _spelled(match[1]) for field, pattern in _FIELDS.items() if (match := pattern.search(text))}
    answered = next((field for field, question in _QUESTIONS.items() if asked.endswith(question)), None)
    if answered is not None and not found and text.strip():
        return {answered: _spelled(text.strip(" .!\n"))}
    return found


def _spelled(text: str) -> str:
    return text.title() if text.islower() else text


def _outcome(messages: Sequence[Message]) -> str:
    result = messages[-1]
    arguments = _arguments(messages, result.tool_call_id)
    who, where = arguments.get("passenger_name", "you"), arguments.get("location", "your destination")
    if "booked" in result.text.lower():
        return f"Done! The ticket to {where} for {who} is booked. Have a good trip."
    return f"No ticket to {where} was booked. I was told: {result.text.strip()}"


def _arguments(messages: Iterable[Message], call_id: str | None) -> Mapping[str, Any]:
    calls = {call.id: call.arguments for message in messages for call in message.tool_calls}
    return calls.get(call_id or "", {})
