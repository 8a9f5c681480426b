"""Redaction: personal data with a fixed form is replaced before a model sees it, and in what the model answers."""

# An override is documented where it is declared.
# ruff: noqa: D102

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

from msgspec.json import encode
from msgspec.structs import replace

from adjourn._engine.concurrency import in_thread
from adjourn._habits import checks_options
from adjourn._values.frozen import shorten
from adjourn.context import RunContext
from adjourn.errors import UsageError
from adjourn.messages import Message, Part, ReasoningPart, TextPart
from adjourn.models import Chunk, ModelRequest

from ._pii import KINDS, Detector, Found, Plain, matches, safe_end
from .hooks import Middleware, ModelCall, ModelState, ModelStream

NOTHING = Chunk()
LONG = 20_000
"""Texts of more characters together are searched in a thread."""


class _Held:
    """The end of a streamed text or reasoning that may go on as personal data; `is_whole` holds all of it back."""

    def __init__(self, *, is_whole: bool) -> None:
        self.name: str = "text"
        self.is_changed = self.ever_changed = False
        self._pieces: list[str] = []
        self._size = 0
        self._is_whole = is_whole
        self._enough = 0

    def add(self, name: str, text: str) -> Iterator[str]:
        """Add a piece, and yield what can go out: the rest of what came before it, if it is of another kind, first."""
        if not text:
            return
        if name != self.name:
            yield from self.rest()
            self.name, self.is_changed = name, False
        self._pieces.append(text)
        self._size += len(text)
        # A long text without a break is not copied and searched again for every piece.
        if not self._is_whole and self._size >= self._enough:
            held = "".join(self._pieces)
            end = safe_end(held)
            self._pieces, self._size = [held[end:]], len(held) - end
            self._enough = self._size + self._size // 4
            if end:
                yield held[:end]

    def note(self, *, is_changed: bool) -> None:
        """Note whether what went out was changed: the text that goes on, and the answer as a whole."""
        self.is_changed |= is_changed
        self.ever_changed |= is_changed

    def rest(self) -> Iterator[str]:
        """Yield what is still held back, if anything."""
        out = "".join(self._pieces)
        self._pieces, self._size, self._enough = [], 0, 0
        if out:
            yield out


class RedactPII(Middleware):
    """Replaces e-mail addresses, IBANs, card and phone numbers and IP addresses: `[email]`.

    `kinds` selects among them, `patterns` adds regular expressions by name, `detectors` adds functions that take a text
    and return what they `Found` in it, and `replace` makes the replacement from the kind and the match. Patterns,
    detectors and long texts are run in a thread.

    What is replaced: in what the model is sent, the texts, the reasoning, and the names and values of the arguments of
    calls; in what it answers, the text and the reasoning, before anybody sees them: a streamed answer is held back word
    by word, until nothing of it can be part of what is replaced (with `patterns` or `detectors`, until it is complete).
    With `answers=False` answers are left alone. Not replaced: the agent's instruction, images, audio and files, what
    users said and tools returned in the record and in events, and the arguments that tools get. It finds what has a
    fixed form, in ASCII, full-width and other digits, with spaces, dots, slashes and dashes in between; it does not
    find names, postal addresses, or data that somebody took care to disguise. Put it before other middleware that sends
    messages to a model, such as `Summarize`.
    """

    @checks_options
    def __init__(
        self,
        kinds: Sequence[str] = tuple(KINDS),
        *,
        patterns: Mapping[str, str] | None = None,
        detectors: Sequence[Detector] = (),
        replace: Callable[[str, str], str] = lambda kind, _: f"[{kind}]",
        answers: bool = True,
    ) -> None:
        unknown = [kind for kind in kinds if kind not in KINDS]
        if unknown:
            raise UsageError(f"RedactPII does not know {', '.join(unknown)}. It knows: {', '.join(KINDS)}.")
        for each in detectors:
            if not callable(each):
                raise UsageError(f"RedactPII: the detector {each!r} is not a function. Give one that takes a text.")
        custom = {kind: matches(_compiled(kind, pattern)) for kind, pattern in (patterns or {}).items()}
        self._finders = {**{kind: KINDS[kind] for kind in kinds}, **custom}
        self._detectors = tuple(detectors)
        self._replace = replace
        self._redacts_answers = answers
        # What others wrote may take its time.
        self._needs_thread = bool(custom or detectors)

    async def before_model(self, state: ModelState, ctx: RunContext) -> ModelState:
        size = sum(map(_size, state.messages))
        return ModelState(messages=await self._run(partial(self._messages, state.messages), size))

    def wrap_model_stream(self, call: ModelStream, request: ModelRequest) -> AsyncIterator[Chunk]:
        return self._streamed(call(request)) if self._redacts_answers else call(request)

    async def _streamed(self, chunks: AsyncIterator[Chunk]) -> AsyncIterator[Chunk]:
        held, origin = _Held(is_whole=self._needs_thread), None
        async for chunk in chunks:
            origin = chunk.origin or origin
            for name in ("reasoning", "text"):
                for text in held.add(name, getattr(chunk, name)):
                    yield await self._piece(held, text)
            rest = replace(chunk, reasoning="", text="")
            if rest == NOTHING:
                continue
            if rest.tool_calls or rest.parts:
                for text in held.rest():
                    yield await self._piece(held, text)
            yield replace(rest, parts=tuple(part for each in rest.parts for part in self._signed(held, each)))
        for text in held.rest():
            yield await self._piece(held, text)
        if held.ever_changed and origin is not None and origin.extra is not None:
            yield Chunk(origin=replace(origin, extra=None))  # It may repeat the text, or sign it; the last one counts.

    async def _piece(self, held: _Held, text: str) -> Chunk:
        redacted = await self._run(partial(self.redact, text), len(text))
        held.note(is_changed=redacted != text)
        return Chunk(text=redacted) if held.name == "text" else Chunk(reasoning=redacted)

    def _signed(self, held: _Held, part: Part) -> tuple[Part, ...]:
        """Return a part, redacted; without text it signs what came before it, unless that was changed."""
        kind = TextPart if held.name == "text" else ReasoningPart
        return () if held.is_changed and isinstance(part, kind) and not part.text else (self._part(part),)

    async def wrap_model(self, call: ModelCall, request: ModelRequest) -> Message:
        answer = await call(request)
        if not self._redacts_answers:
            return answer
        return await self._run(partial(self._answer, answer), len(answer.text))

    async def _run(self, make: Callable[[], Any], size: int) -> Any:
        return await in_thread(make) if self._needs_thread or size > LONG else make()

    def redact(self, text: str) -> str:
        """Return the text without personal data."""
        pieces, end = list[str](), 0
        for found in _apart(self._found(text)):
            pieces += [text[end : found.start], self._replace(found.kind, text[found.start : found.end])]
            end = found.end
        return "".join([*pieces, text[end:]]) if pieces else text

    def _found(self, text: str) -> Iterator[Found]:
        plain = Plain(text)
        for kind, finder in self._finders.items():
            for start, end in map(plain.original, finder(plain.text)):
                yield Found(kind, start, end)
            if plain.text != text:  # A pattern may be about characters that are not plain.
                yield from (Found(kind, *span) for span in finder(text))
        for detector in self._detectors:
            yield from _checked(detector, text)

    def _messages(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        return tuple(map(self._message, messages))

    def _message(self, message: Message) -> Message:
        calls = tuple(
            replace(
                call,
                arguments=self._data(call.arguments),
                raw=None if call.raw is None else self.redact(call.raw),
            )
            for call in message.tool_calls
        )
        # A result has the name of its tool.
        name = message.name if message.name is None or message.role == "tool" else self.redact(message.name)
        redacted = replace(self._answer(message), tool_calls=calls, name=name)
        return message if redacted == message else redacted

    def _answer(self, message: Message) -> Message:
        """Return a message whose texts are redacted, but not its calls, which tools are to get as they are."""
        content: Any = message.content
        content = self.redact(content) if isinstance(content, str) else tuple(map(self._part, content))
        # What the provider added may repeat the text, or sign it.
        return message if content == message.content else replace(message, content=content, extra=None)

    def _part(self, part: Part) -> Part:
        if not isinstance(part, TextPart | ReasoningPart):
            return part
        text = self.redact(part.text)
        if text == part.text:
            return part
        # A signature would no longer fit.
        return TextPart(text=text) if isinstance(part, TextPart) else ReasoningPart(text=text)

    def _data(self, data: Any) -> Any:
        if isinstance(data, str):
            return self.redact(data)
        if isinstance(data, dict):
            return self._object(cast("dict[str, Any]", data))
        if isinstance(data, list):
            return [self._data(value) for value in cast("list[Any]", data)]
        if type(data) is int and self.redact(str(data)) != str(data):  # a card number, written as a number
            return self.redact(str(data))
        return data

    def _object(self, data: Mapping[str, Any]) -> dict[str, Any]:
        redacted: dict[str, Any] = {}
        numbers: dict[str, int] = {}
        for key, value in data.items():
            name = plain = self.redact(key)
            while name in redacted:  # Two keys may become the same, or what another is called with its number.
                numbers[plain] = numbers.get(plain, 1) + 1
                name = f"{plain}~{numbers[plain]}"
            redacted[name] = self._data(value)
        return redacted


def _size(message: Message) -> int:
    """Return about how many characters of a message are searched."""
    texts = sum(len(part.text) for part in message.parts if isinstance(part, TextPart | ReasoningPart))
    return texts + sum(len(encode(call.arguments)) + len(call.raw or "") for call in message.tool_calls)


def _apart(found: Iterable[Found]) -> list[Found]:
    """Return what was found in order; what overlaps becomes one, so that nothing of it is left."""
    apart = list[Found]()
    for each in sorted(found, key=lambda each: (each.start, -each.end)):
        if apart and each.start < apart[-1].end:
            apart[-1] = apart[-1]._replace(end=max(apart[-1].end, each.end))
        else:
            apart.append(each)
    return apart


def _checked(detector: Detector, text: str) -> Iterator[Found]:
    for each in cast("Iterable[object]", detector(text)):
        match each:
            case (str(kind), int(start), int(end)) if 0 <= start < end <= len(text):
                yield Found(kind, start, end)
            case _:
                raise UsageError(
                    f"RedactPII: a detector returned {shorten(each)} for a text of {len(text)} characters. Return "
                    "Found(kind, start, end), where text[start:end] is what to replace."
                )


def _compiled(kind: str, pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise UsageError(f"RedactPII: the pattern of '{kind}' is not a regular expression: {error}.") from error
