"""Structured answers from models that do not enforce a schema: as the arguments of a tool, or asked for in words.

The agent never sees the difference: whichever way a result comes, it is the text of the answer.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from adjourn._schemas.jsonschema import plain_root
from adjourn.errors import UsageError
from adjourn.messages import CallPart, Message, TextPart

from .abilities import Abilities
from .chunks import Chunk, ToolCallChunk
from .protocol import ChatModel, ModelRequest, OutputMode, ToolSpec

FINAL = "final_result"
"""The tool that a model calls to give its result."""
_ANSWER_WITH = "Answer with JSON only, without any other text. It must fit this JSON Schema:\n"


def fitted(model: ChatModel, request: ModelRequest) -> tuple[ModelRequest, bool]:
    """Return a request as this model can take it, and whether its result will be the arguments of a call.

    Raises:
        UsageError: the request has a tool with the name of the one for results.
    """
    if request.output is None:
        return request, False
    match request.output_mode or _mode(model, request):
        case "native":
            return request, False
        case "prompt":
            return replace(request, output=None, messages=_prompted(request, plain_root(request.output))), False
        case "tool":
            return _with_tool(request, plain_root(request.output)), True


def _mode(model: ChatModel, request: ModelRequest) -> OutputMode:
    abilities: object = getattr(model, "abilities", None)
    if not isinstance(abilities, Abilities):
        return "native"
    if abilities.json_schema and (abilities.json_schema_with_tools or not request.tools):
        return "native"
    return "tool" if abilities.tools else "prompt"


def _prompted(request: ModelRequest, schema: Mapping[str, Any]) -> list[Message]:
    words = _ANSWER_WITH + msgspec.json.encode(schema).decode()
    first, *rest = request.messages or [Message.system("")]
    if first.role != "system":
        return [Message.system(words), first, *rest]
    return [Message.system(f"{first.text}\n\n{words}".strip()), *rest]


def _with_tool(request: ModelRequest, schema: Mapping[str, Any]) -> ModelRequest:
    if any(tool.name == FINAL for tool in request.tools):
        raise UsageError(
            f"There is a tool called '{FINAL}', which is the name of the tool for structured answers. Give it another "
            "name, or use output_mode='prompt'."
        )
    spec = ToolSpec(name=FINAL, description="Give the final result. Call it once, when you are done.", schema=schema)
    return replace(request, output=None, tools=(*request.tools, spec), must_call=True)


def read_result(message: Message) -> Message:
    """Return an answer with the arguments of the call for results as its text."""
    final = [call for call in message.tool_calls if call.name == FINAL]
    if not final:
        return message
    first, ids = final[0], {call.id for call in final}
    text = msgspec.json.encode(first.arguments).decode() if first.raw is None else first.raw
    parts = [part for part in message.parts if not (isinstance(part, CallPart) and part.id in ids)]
    rest = tuple(call for call in message.tool_calls if call.name != FINAL)
    ended = message.finish_reason if rest else _ended(message.finish_reason)
    return replace(message, content=(*parts, TextPart(text=text)), tool_calls=rest, finish_reason=ended)


def _ended(finish_reason: str | None) -> str | None:
    return "stop" if finish_reason == "tool_calls" else finish_reason


async def stream_result(chunks: AsyncIterator[Chunk]) -> AsyncIterator[Chunk]:
    """Stream an answer with the arguments of the call for results as its text."""
    calls = _Calls()
    try:
        async for chunk in chunks:
            yield calls.read(chunk) if chunk.tool_calls or chunk.finish_reason else chunk
    finally:
        await close_stream(chunks)
    if left := calls.held():
        yield Chunk(tool_calls=left)


class _Calls:
    """The calls of one answer. What a call is for is known when its name is whole: once its arguments begin."""

    def __init__(self) -> None:
        self._held: dict[int, list[ToolCallChunk]] = {}
        self._passed: set[int] = set()
        self._final: list[int] = []

    def read(self, chunk: Chunk) -> Chunk:
        text, passed = "", list[ToolCallChunk]()
        for piece in chunk.tool_calls:
            self._decide(piece, passed)
            if piece.index in self._final[:1]:
                text += piece.arguments  # a second result is dropped
        if chunk.finish_reason is not None:
            passed += self.held()
        reason = chunk.finish_reason if self._passed else _ended(chunk.finish_reason)
        return replace(chunk, text=chunk.text + text, tool_calls=tuple(passed), finish_reason=reason)

    def _decide(self, piece: ToolCallChunk, passed: list[ToolCallChunk]) -> None:
        if piece.index in self._passed:
            passed.append(piece)
        elif piece.index not in self._final:
            held = self._held.setdefault(piece.index, [])
            held.append(piece)
            if piece.arguments:
                self._settle(piece.index, passed)

    def _settle(self, index: int, passed: list[ToolCallChunk]) -> None:
        held = self._held.pop(index)
        if "".join(piece.name for piece in held) == FINAL:
            self._final.append(index)
        else:
            self._passed.add(index)
            passed += held

    def held(self) -> tuple[ToolCallChunk, ...]:
        """Return the pieces of calls that ended without arguments."""
        passed = list[ToolCallChunk]()
        for index in list(self._held):
            self._settle(index, passed)
        return tuple(passed)


async def close_stream(chunks: AsyncIterator[Chunk]) -> None:
    """Close a stream whose rest is not needed, so that it releases its connection; a finished one is left alone."""
    if isinstance(chunks, AsyncGenerator):
        await cast("AsyncGenerator[Chunk, None]", chunks).aclose()
