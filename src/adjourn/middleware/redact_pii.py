"""Redaction: personal data is replaced before a model sees it."""

# An override is documented where it is declared.
# ruff: noqa: D102

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from msgspec.structs import replace

from adjourn.context import RunContext
from adjourn.errors import UsageError
from adjourn.messages import Message, TextPart

from .hooks import Middleware, ModelState

_OCTET = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
# Every repetition is bounded, so that no text takes long to match.
PATTERNS: Mapping[str, str] = {
    "email": r"(?<![\w.%+-])[\w.%+-]{1,64}@[\w.-]{1,190}\.[A-Za-z]{2,24}",
    "iban": r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b",
    "card": r"(?<!\d)\d(?:[ -]?\d){12,18}(?!\d)",
    "phone": r"(?<!\w)\+\d(?:[ ().-]{0,2}\d){6,14}(?!\d)",
    "ip": rf"(?<![\d.])(?:{_OCTET}\.){{3}}{_OCTET}(?!\d|\.\d)",
}


class RedactPII(Middleware):
    """Replaces e-mail addresses, IBANs, card and phone numbers and IP addresses in what an agent sees: `[email]`.

    `kinds` selects among them, `patterns` adds regular expressions by name, and `replace` makes the replacement from
    the kind and the match. Texts and the arguments of calls are redacted; images, files and the agent's instruction are
    not. The recorded messages are not changed. Put it before other middleware that sends messages to a model, such as
    `Summarize`.
    """

    def __init__(
        self,
        kinds: Sequence[str] = tuple(PATTERNS),
        *,
        patterns: Mapping[str, str] | None = None,
        replace: Callable[[str, str], str] = lambda kind, _: f"[{kind}]",
    ) -> None:
        unknown = [kind for kind in kinds if kind not in PATTERNS]
        if unknown:
            raise UsageError(f"RedactPII does not know {', '.join(unknown)}. It knows: {', '.join(PATTERNS)}.")
        chosen = {**{kind: PATTERNS[kind] for kind in kinds}, **(patterns or {})}
        self._patterns = {kind: _compiled(kind, pattern) for kind, pattern in chosen.items()}
        self._replace = replace

    def before_model(self, state: ModelState, ctx: RunContext) -> ModelState:
        return ModelState(messages=tuple(map(self._message, state.messages)))

    def redact(self, text: str) -> str:
        """Return the text without personal data."""
        for kind, pattern in self._patterns.items():

            def replacement(found: re.Match[str], kind: str = kind) -> str:
                is_one = _CHECKS.get(kind, _any)(found[0])
                return self._replace(kind, found[0]) if is_one else found[0]

            text = pattern.sub(replacement, text)
        return text

    def _message(self, message: Message) -> Message:
        content: Any = message.content
        if isinstance(content, str):
            content = self.redact(content)
        else:
            content = tuple(
                TextPart(text=self.redact(part.text)) if isinstance(part, TextPart) else part
                for part in message.content
            )
        calls = tuple(
            replace(
                call,
                arguments=self._data(call.arguments),
                raw=None if call.raw is None else self.redact(call.raw),
            )
            for call in message.tool_calls
        )
        changed = content != message.content or calls != message.tool_calls
        return replace(message, content=content, tool_calls=calls) if changed else message

    def _data(self, data: Any) -> Any:
        if isinstance(data, str):
            return self.redact(data)
        if isinstance(data, dict):
            return {key: self._data(value) for key, value in cast("dict[str, Any]", data).items()}
        if isinstance(data, list):
            return [self._data(value) for value in cast("list[Any]", data)]
        return data


def _compiled(kind: str, pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise UsageError(f"RedactPII: the pattern of '{kind}' is not a regular expression: {error}.") from error


def _is_card(text: str) -> bool:
    """Return whether the check digit is right (Luhn)."""
    digits = [int(each) for each in reversed(text) if each.isdigit()]
    return sum(digit if place % 2 == 0 else sum(divmod(2 * digit, 10)) for place, digit in enumerate(digits)) % 10 == 0


def _is_iban(text: str) -> bool:
    """Return whether the check digits are right."""
    plain = text.replace(" ", "")
    return int("".join(str(int(each, 36)) for each in plain[4:] + plain[:4])) % 97 == 1


def _any(_: str) -> bool:
    return True


_CHECKS: Mapping[str, Callable[[str], bool]] = {"card": _is_card, "iban": _is_iban}
