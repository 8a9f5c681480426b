"""The ids of tool calls as servers accept them.

A server gets back the ids that it made up itself. Those of others, and those that were changed because a model used one
twice, may be too long for it, or have characters that it refuses: it would refuse every later request as well.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256

from msgspec.structs import replace

from adjourn.messages import Message

# The ids that OpenAI and Anthropic accept; Mistral wants nine letters and digits.
_ACCEPTED = re.compile(r"[A-Za-z0-9_-]{1,40}")
_MISTRAL = re.compile(r"[A-Za-z0-9]{9}")
_CHANGED = "~"


def with_accepted_ids(messages: Sequence[Message], provider: str) -> Sequence[Message]:
    """Return messages whose calls and results have ids that this provider accepts."""
    is_mistral = provider.endswith("mistral.ai")
    accepted = _MISTRAL if is_mistral else _ACCEPTED
    changed: dict[str, str] = {}
    for message in messages:
        # Mistral also refuses some ids of its own, such as "null".
        is_own = message.provider == provider and not is_mistral
        for call in message.tool_calls:
            if not accepted.fullmatch(call.id) and (not is_own or _CHANGED in call.id):
                changed[call.id] = _digest(call.id, is_mistral)
    return [_with_ids(message, changed) for message in messages] if changed else messages


def _digest(call_id: str, is_short: bool) -> str:
    digest = sha256(call_id.encode()).hexdigest()
    return digest[:9] if is_short else f"call_{digest[:24]}"


def _with_ids(message: Message, changed: dict[str, str]) -> Message:
    if message.tool_calls:
        return message.with_calls([replace(call, id=changed.get(call.id, call.id)) for call in message.tool_calls])
    if message.tool_call_id in changed:
        return replace(message, tool_call_id=changed[message.tool_call_id])
    return message
