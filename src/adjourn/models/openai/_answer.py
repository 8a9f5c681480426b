"""Convert answers of OpenAI's chat completions, whole or streamed, to chunks."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from adjourn.messages import Usage
from adjourn.models.chunks import Chunk, ToolCallChunk

# The fields that we read, all of them optional, since compatible servers differ in what they leave out. Fields that are
# present must have the right type.


class _Function(Struct):
    name: str | None = None
    arguments: str | None = None


class _Call(Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Content(Struct):
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None  # DeepSeek's name, which many servers adopted
    reasoning: str | None = None  # the name on other servers
    tool_calls: list[_Call] | None = None


class _Choice(Struct):
    index: int | None = None
    delta: _Content | None = None
    message: _Content | None = None
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
    """Reads one answer, piece by piece; `is_finished` once the server has sent a finish reason."""

    def __init__(self) -> None:
        self.is_finished = False
        self._text = _Characters()
        self._reasoning = _Characters()
        self._calls = _Calls()
        self._has_refused = False

    def read(self, data: object) -> Chunk | None:
        """Return the next chunk, or None if it is empty.

        Raises:
            msgspec.ValidationError: the data is not part of an answer.
        """
        completion = msgspec.convert(data, _Completion)
        usage = None if completion.usage is None else _usage(completion.usage)
        choice = next((choice for choice in completion.choices or () if not choice.index), None)
        if choice is None:
            return None if usage is None else Chunk(usage=usage)
        content = choice.delta or choice.message or _Content()
        self._has_refused = self._has_refused or bool(content.refusal)
        chunk = Chunk(
            text=self._text.join(content.content or content.refusal),
            reasoning=self._reasoning.join(content.reasoning_content or content.reasoning),
            tool_calls=tuple(map(self._calls.piece, content.tool_calls or ())),
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

    Servers differ: some send index 0 for every call, some send no index, some repeat id and name with every piece. Here
    a piece with a new id begins a new call, and id and name are passed on once.
    """

    def __init__(self) -> None:
        self._places: dict[int | None, int] = {}  # from the server's index to the place of its current call
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
        arguments = self._arguments[place].join(function.arguments)
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
    """Rejoins characters that a server has split into two surrogates, one per chunk."""

    def __init__(self) -> None:
        self._held = ""

    def join(self, text: str | None) -> str:
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
