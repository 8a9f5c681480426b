"""Answers of OpenAI's chat completions, whole and streamed, as chunks."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from adjourn.messages import Usage
from adjourn.models.chunks import Chunk, ToolCallChunk

# The fields that we read, all of them optional: servers that speak the protocol leave out what they like. Those that
# are there must have the right type.


class _Function(Struct):
    name: str | None = None
    arguments: str | None = None


class _Call(Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Said(Struct):
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None  # DeepSeek's word for it, which many servers took over,
    reasoning: str | None = None  # and that of others
    tool_calls: list[_Call] | None = None


class _Choice(Struct):
    index: int | None = None
    delta: _Said | None = None
    message: _Said | None = None
    finish_reason: str | None = None


class _InputDetails(Struct):
    cached_tokens: int | None = None


class _OutputDetails(Struct):
    reasoning_tokens: int | None = None


class _Usage(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _InputDetails | None = None
    completion_tokens_details: _OutputDetails | None = None


class _Completion(Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None


class AnswerReader:
    """Reads one answer, piece by piece; `is_finished` once the server has said why it ended."""

    def __init__(self) -> None:
        self.is_finished = False
        self._text = _Characters()
        self._reasoning = _Characters()
        self._calls = _Calls()
        self._has_refused = False

    def read(self, data: object) -> Chunk | None:
        """The next piece, or None when there is nothing in it.

        Raises:
            msgspec.ValidationError: this is no piece of an answer.
        """
        completion = msgspec.convert(data, _Completion)
        usage = None if completion.usage is None else _usage(completion.usage)
        choice = next((choice for choice in completion.choices or () if not choice.index), None)
        if choice is None:
            return None if usage is None else Chunk(usage=usage)
        said = choice.delta or choice.message or _Said()
        self._has_refused = self._has_refused or bool(said.refusal)
        chunk = Chunk(
            text=self._text.take(said.content or said.refusal),
            reasoning=self._reasoning.take(said.reasoning_content or said.reasoning),
            tool_calls=tuple(map(self._calls.piece, said.tool_calls or ())),
            usage=usage,
            finish_reason=self._finish_reason(choice.finish_reason),
        )
        return None if chunk == _NOTHING else chunk

    def _finish_reason(self, reason: str | None) -> str | None:
        if not reason:
            return None
        self.is_finished = True
        if self._has_refused:
            return "refusal"
        return "tool_calls" if reason == "function_call" else reason


_NOTHING = Chunk()


class _Calls:
    """Numbers the tool calls of one answer.

    Servers differ: some give every call the index 0, some give none, some repeat id and name with every piece. Here a
    piece with a new id begins a new call, and id and name are handed on once.
    """

    def __init__(self) -> None:
        self._places: dict[int | None, int] = {}  # the server's index, and the place of the call that it means now
        self._ids: list[str] = []
        self._names: list[str] = []
        self._arguments: list[_Characters] = []

    def piece(self, call: _Call) -> ToolCallChunk:
        function = call.function or _Function()
        place = self._place(call)
        new_id = call.id if call.id and not self._ids[place] else ""
        name = function.name or ""
        new_name = "" if name == self._names[place] else name
        self._ids[place] += new_id
        self._names[place] += new_name
        arguments = self._arguments[place].take(function.arguments)
        return ToolCallChunk(index=place, id=new_id, name=new_name, arguments=arguments)

    def _place(self, call: _Call) -> int:
        place = self._places.get(call.index)
        if place is not None and (not call.id or self._ids[place] in ("", call.id)):
            return place
        place = self._places[call.index] = len(self._ids)
        self._ids.append("")
        self._names.append("")
        self._arguments.append(_Characters())
        return place


class _Characters:
    """Puts characters together again that a server has cut into two surrogates, one in each chunk."""

    def __init__(self) -> None:
        self._held = ""

    def take(self, text: str | None) -> str:
        if not text:
            return ""
        if text.isascii() and not self._held:
            return text
        text = self._held + text
        self._held = text[-1] if "\ud800" <= text[-1] <= "\udbff" else ""
        text = text.removesuffix(self._held)
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _usage(usage: _Usage) -> Usage:
    read, written = usage.prompt_tokens_details, usage.completion_tokens_details
    return Usage(
        calls=1,
        input_tokens=usage.prompt_tokens or 0,
        output_tokens=usage.completion_tokens or 0,
        cached_tokens=(read and read.cached_tokens) or 0,
        reasoning_tokens=(written and written.reasoning_tokens) or 0,
    )
