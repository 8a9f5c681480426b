"""Convert answers of chat completions, whole or streamed, to chunks, as servers really send them.

What is not there, is null, or has an unexpected type is treated as missing if the rest can be read without it: an odd
usage or an unknown field never costs an answer. What the answer itself consists of is never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from msgspec.structs import replace

from adjourn._text import a_type
from adjourn.messages import Part
from adjourn.models.chunks import Chunk, Origin, ToolCallChunk

from ._calls import Calls, pieces_of_calls
from ._characters import Characters
from ._content import Content, images_in
from ._events import DONE
from ._extras import Details
from ._thinking import Thinking
from ._usage import usage_of
from ._words import plain, quoted, words_of

Json = Mapping[str, Any]  # Any: JSON as servers define it

_NOTHING: Json = {}
_PLAIN = frozenset({"role", "content", "refusal", "tool_calls"})

# What servers call the ends of answers, in lower case; other words are passed on in lower case.
_REASONS = {
    **dict.fromkeys(
        ("eos", "eos_token", "end_turn", "stop_sequence", "complete", "finish", "finished", "done"), "stop"
    ),
    **dict.fromkeys(("function_call", "tool_call", "tool_use"), "tool_calls"),
    **dict.fromkeys(
        ("max_tokens", "max_output_tokens", "model_length", "token_limit", "model_context_window_exceeded"), "length"
    ),
    **dict.fromkeys(
        (
            *("safety", "sensitive", "content_filtered", "prohibited_content", "blocklist"),
            *("recitation", "spii", "guardrail_intervened", "error_toxic"),
        ),
        "content_filter",
    ),
}
_NO_REASON = (None, "", "null")
# Those that say that the answer is broken.
_FAILED = frozenset(
    {
        *("error", "failed", "abort", "cancelled", "timeout", "network_error", "insufficient_system_resource"),
        "unexpected_tool_call",
    }
)
# What a body without choices has if it is an error, as `plain` writes names.
_WORDS = frozenset({"message", "msg", "errormessage", "errormsg"})


class ErrorInAnswer(Exception):
    """The server sent an error in place of an answer, or in the middle of one; `body` is what it sent."""

    def __init__(self, body: object) -> None:
        self.body = body
        super().__init__(str(body)[:300])


class UnfinishedAnswer(Exception):
    """The answer ended before it was complete; the text quotes what came in its place."""


class AnswerReader:
    """Reads one answer of `provider`, piece by piece; `is_finished` once the server has said that it is complete."""

    def __init__(self, provider: str) -> None:
        self.is_finished = False
        self._unread: Json | None = None  # the last piece that was no part of an answer
        self._provider = provider
        self._text = Characters()
        self._reasoning = Characters()
        self._thinking = Thinking()
        self._details = Details()
        self._calls = Calls(provider)
        self._choice: object = None  # the index of the choice that counts
        self._has_delta = False
        self._has_content = False
        self._has_refused = False
        self._model: str | None = None
        self._response_id: str | None = None

    def read(self, data: object) -> Chunk | None:
        """Return the next chunk, or None if it is empty; `DONE` stands for the end of a stream.

        Raises:
            ErrorInAnswer: the data is an error.
            ValueError: the data is not part of an answer.
        """
        if data is DONE:
            return self._end()
        if not isinstance(data, Mapping):
            raise ValueError(f"it is not an object: {_shown(data)}")
        body = cast("Json", data)
        self._model = self._model or _text_or_none(body.get("model"))
        self._response_id = self._response_id or _text_or_none(body.get("id"))
        usage = usage_of(body) if body.get("usage") or "x_groq" in body or "timings" in body else None
        choice = self._first(body)
        if choice is None:
            self._unread = body if usage is None else self._unread
            return None if usage is None else Chunk(usage=usage)
        chunk = self._chunk(choice)
        if usage is None and "usage" in choice:
            usage = usage_of(body)
        return chunk if usage is None else replace(chunk or Chunk(), usage=usage)

    def close(self) -> None:
        """Say that there is no more data.

        Raises:
            UnfinishedAnswer: the answer is not complete.
        """
        if not self.is_finished:
            raise UnfinishedAnswer("" if self._has_content else quoted(self._unread))

    def _first(self, body: Json) -> Json | None:
        """Return the choice that counts, if it is in this piece."""
        choices = body.get("choices")
        error = body.get("error")
        # Some gateways send an empty error, or one that says "success", with every piece.
        is_answer = bool(choices or body.get("usage"))
        if error and not (is_answer and (_is_success(error) or not words_of(error))):
            raise ErrorInAnswer(body)
        if not choices and _is_error(body):
            raise ErrorInAnswer(body)
        if not choices:
            return None
        if not isinstance(choices, list) or not isinstance(cast("list[object]", choices)[0], Mapping):
            raise ValueError(f"its choices are not a list of objects: {_shown(cast('object', choices))}")
        found = [cast("Json", each) for each in cast("list[object]", choices) if isinstance(each, Mapping)]
        if self._choice is None:
            self._choice = found[0].get("index") or 0
        choice = next((each for each in found if (each.get("index") or 0) == self._choice), None)
        if choice is not None and choice.get("error"):
            raise ErrorInAnswer(choice)
        return choice

    def _chunk(self, choice: Json) -> Chunk | None:
        content, is_whole = self._content(choice)
        text, reasoning, parts, calls = "", "", (), ()
        if content:
            text, reasoning, parts, calls = self._said(content, is_whole=is_whole)
        finish, origin = None, None
        if choice.get("finish_reason") not in _NO_REASON:
            finish, origin = self._finish(choice)
            more_reasoning, more_text = self._thinking.rest()
            text, reasoning, calls = text + more_text, reasoning + more_reasoning, calls + self._calls.rest()
        if not (text or reasoning or parts or calls or finish):
            return None
        self._has_content = self._has_content or bool(text or reasoning or parts)
        return Chunk(text=text, reasoning=reasoning, parts=parts, tool_calls=calls, finish_reason=finish, origin=origin)

    def _content(self, choice: Json) -> tuple[Json, bool]:
        """Return what a choice says, and whether it is a whole message."""
        delta = choice.get("delta")
        if isinstance(delta, Mapping):
            self._has_delta = True
            return cast("Json", delta), False
        message = choice.get("message")
        has_streamed = self._has_delta and (self._has_content or bool(self._calls))
        if isinstance(message, Mapping) and not has_streamed:  # else it repeats what was streamed
            return cast("Json", message), True
        if isinstance(delta, str):
            self._has_delta = True
            return {"content": delta}, False
        text = choice.get("text")
        return ({"content": text}, True) if isinstance(text, str) else (_NOTHING, True)

    def _said(self, content: Json, *, is_whole: bool) -> tuple[str, str, tuple[Part, ...], tuple[ToolCallChunk, ...]]:
        said, thought = content.get("content"), ""
        parts: tuple[Part, ...] = ()
        entries: object = content.get("tool_calls")
        if said is not None and not isinstance(said, str):
            read = Content(said, is_whole=is_whole)
            said, thought, parts, entries = read.text, read.reasoning, read.parts, entries or read.calls
            self._has_refused = self._has_refused or read.is_refusal
        if not said:
            said = self._instead(content)
        reasoning, text = self._thinking.split(self._text.join(said)) if said else ("", "")
        if not content.keys() <= _PLAIN:  # nearly all pieces are plain, and there are thousands of them
            thought = self._details.read(content, is_whole=is_whole) or thought
            if content.get("images"):
                parts += images_in(content["images"])
        calls = self._called(entries, content, is_whole=is_whole) if entries or "function_call" in content else ()
        return text, self._reasoning.join(thought) + reasoning, parts, calls

    def _instead(self, content: Json) -> str:
        """Return the text of a message without content: a refusal, or the words of what was spoken."""
        refusal = content.get("refusal")
        if isinstance(refusal, str) and refusal:
            self._has_refused = True
            return refusal
        audio = content.get("audio")
        transcript = cast("Json", audio).get("transcript") if isinstance(audio, Mapping) else ""
        return transcript if isinstance(transcript, str) else ""

    def _called(self, entries: object, content: Json, *, is_whole: bool) -> tuple[ToolCallChunk, ...]:
        legacy = content.get("function_call")
        if isinstance(legacy, Mapping) and not entries:
            entries = [{"index": 0, "function": cast("Json", legacy)}]
        pieces = list(pieces_of_calls(entries))
        return self._calls.whole(pieces) if is_whole else self._calls.streamed(pieces)

    def _finish(self, choice: Json) -> tuple[str, Origin]:
        reason = choice["finish_reason"]
        if isinstance(reason, Mapping):
            reason = cast("Json", reason).get("type")
        raw = _text_or_none(reason) or "unknown"
        reason = raw.lower().replace("-", "_")
        if reason in _FAILED or "malformed_function_call" in reason:
            raise ErrorInAnswer({"message": f"it ended its answer with the finish reason '{raw}'", "type": raw})
        return self._ended(_REASONS.get(reason, reason), raw, _text_or_none(choice.get("native_finish_reason")))

    def _end(self) -> Chunk | None:
        """Return the chunk for the end of a stream, if nothing has said yet that it is complete."""
        is_answer = self._has_content or bool(self._calls)
        is_cut = self._has_delta and not self._calls.are_complete
        if self.is_finished or not is_answer or is_cut:
            return None
        reasoning, text = self._thinking.rest()
        finish, origin = self._ended("stop", None, None)
        calls = self._calls.rest()
        return Chunk(text=text, reasoning=reasoning, tool_calls=calls, finish_reason=finish, origin=origin)

    def _ended(self, reason: str, raw: str | None, native: str | None) -> tuple[str, Origin]:
        self.is_finished = True
        if self._has_refused and reason == "stop":
            reason = "refusal"
        elif self._calls and reason == "stop":
            reason = "tool_calls"
        raw = native or raw
        origin = Origin(
            provider=self._provider,
            model=self._model,
            response_id=self._response_id,
            raw_finish_reason=None if raw == reason else raw,
            extra=self._details.extra(in_text=self._thinking.has_found),
        )
        return reason, origin


def _is_error(body: Json) -> bool:
    """Return whether data without choices is an error rather than usage, or a sign of life."""
    if body.get("object") == "error" or body.get("type") == "error" or body.get("detail") or body.get("errors"):
        return True
    status: object = body.get("base_resp")  # MiniMax sends its errors so, and {"status_code": 0} when there is none
    if isinstance(status, Mapping) and cast("Json", status).get("status_code"):
        return True
    has_words = any(isinstance(value, str) and value for name, value in body.items() if plain(name) in _WORDS)
    return has_words and "object" not in body


def _is_success(error: object) -> bool:
    return isinstance(error, Mapping) and str(cast("Json", error).get("code")) in ("0", "200")


def _shown(data: object) -> str:
    return data[:100] if isinstance(data, str) else a_type(data)  # A long list would take seconds to write.


def _text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) and value and value.isprintable() else None
