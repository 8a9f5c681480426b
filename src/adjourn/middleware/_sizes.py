"""Sizes: how much of a model's context messages take up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from adjourn.messages import Message, TextPart

CountTokens: TypeAlias = Callable[[Sequence[Message]], int]
"""Counts the tokens of messages."""

CHARS_PER_TOKEN = 4
TOKENS_PER_MESSAGE = 4
TOKENS_PER_MEDIUM = 1_000


def about_tokens(messages: Sequence[Message]) -> int:
    """Estimate the tokens of messages for any model: one per four characters, a thousand per image or file."""
    return sum(map(_about, messages))


def _about(message: Message) -> int:
    chars = len(message.text) + sum(len(call.name) + len(_written(call)) for call in message.tool_calls)
    media = 0 if isinstance(message.content, str) else sum(not isinstance(part, TextPart) for part in message.content)
    return TOKENS_PER_MESSAGE + chars // CHARS_PER_TOKEN + media * TOKENS_PER_MEDIUM


def _written(call: object) -> bytes:
    return msgspec.json.encode(call)
