"""Data of AG-UI 1.0: what a front end sends, and conversations, questions and answers as it knows them."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from msgspec.structs import asdict

from adjourn._documents import Question, plain
from adjourn.errors import UsageError
from adjourn.events import Interrupt
from adjourn.messages import (
    AudioPart,
    FilePart,
    ImagePart,
    Message,
    Part,
    ReasoningPart,
    TextPart,
    ToolCall,
    Usage,
)
from adjourn.tools import ToolCallInfo

from ._api import AgUiSaid

VERSION = "1.0"
"""The version of the protocol."""

Data = dict[str, Any]  # Any: JSON


def new_message(said: Sequence[AgUiSaid], known: Iterable[Message]) -> Message | None:
    """Return what the user has said last, unless that is in the conversation already.

    A front end sends its whole history each time, and may have written tool messages into it by itself.
    """
    spoken = [each for each in said if each.role in ("user", "assistant")]
    if not spoken or spoken[-1].role != "user" or spoken[-1].id in {each.id for each in known}:
        return None
    content, name = spoken[-1].content, spoken[-1].id
    if not isinstance(content, str | list):
        raise UsageError("The last user message has no content. Send a text or a list of parts.")
    message = Message.user(content if isinstance(content, str) else [_part(each) for each in content])
    # It keeps its id: a front end puts what it does not know behind what it knows, and would ask after the answer.
    return message.with_id(name) if name else message


_KINDS = {"image": ImagePart, "audio": AudioPart, "video": FilePart, "document": FilePart}


def _part(given: Data) -> Part:
    kind, source = given.get("type"), given.get("source")
    if kind == "text" and isinstance(text := given.get("text"), str):
        return TextPart(text=text)
    if kind in _KINDS and isinstance(source, dict):
        match cast("Data", source):
            case {"type": "url", "value": str(url), **rest}:
                return _KINDS[kind](url=url, media_type=_text(rest.get("mimeType")))
            case {"type": "data", "value": str(value), "mimeType": str(media_type)}:
                try:
                    data = base64.b64decode(value, validate=True)
                except binascii.Error:
                    raise UsageError(f"The data of a part of type '{kind}' is not base64.") from None
                return _KINDS[kind](data=data, media_type=media_type)
            case _:
                pass
    raise UsageError(
        f"A part of type {str(kind)[:50]!r} cannot be read. Send text, or an image, audio, video or document with a "
        "source of type 'url' or 'data'."
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


# Conversations


def conversation(messages: Iterable[Message]) -> list[Data]:
    """Return a conversation for a front end: without instructions, and without what only models are told."""
    results: dict[str, str] = {}
    found: list[Data] = []
    for number, message in enumerate(messages, 1):
        name = message.id or f"n{number}"
        match message.role:
            case "user" if message.provider != "adjourn":
                found.append({"id": name, "role": "user", "content": _content(message)})
            case "assistant":
                results.update(result_ids(message, name))
                found.extend(answer_of_model(message, name))
            case "tool":
                call = message.tool_call_id or ""
                said = {"toolCallId": call, "content": message.text}
                found.append({"id": results.get(call, name), "role": "tool", **said})
            case _:
                pass
    return found


def result_ids(message: Message, name: str) -> dict[str, str]:
    """Return the ids of the messages that the results of its calls will be, by call.

    Events of results do not have the id of the message, and models may use the id of a call again in another turn.
    """
    return {call.id: f"{name}:{call.id}" for call in message.tool_calls}


def known_results(messages: Iterable[Message]) -> dict[str, str]:
    """Return the ids of the results of all calls in a conversation; of calls with the same id, the last counts."""
    found: dict[str, str] = {}
    for message in messages:
        found.update(result_ids(message, message.id or ""))
    return found


def answer_of_model(message: Message, name: str) -> list[Data]:
    """Return what a model has written: its reasoning, if there is any, and its message."""
    found: list[Data] = []
    if thought := reasoning_of(message):
        found.append({"id": reasoning_id(name), "role": "reasoning", "content": thought})
    said: Data = {"id": name, "role": "assistant"}
    if message.name:
        said["name"] = message.name
    if message.text:
        said["content"] = message.text
    if message.tool_calls:
        said["toolCalls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments_of(call)}}
            for call in message.tool_calls
        ]
    return [*found, said]


def reasoning_id(name: str) -> str:
    """Return the id of the message that the reasoning of another message is for a front end."""
    return f"{name}:reasoning"


def reasoning_of(message: Message) -> str:
    """Return the reasoning in a message as text."""
    return "".join(part.text for part in message.parts if isinstance(part, ReasoningPart))


def arguments_of(call: ToolCall) -> str:
    """Return the arguments of a call as the text that a model writes."""
    return call.raw if call.raw is not None else json.dumps(plain(call.arguments), ensure_ascii=False)


def _content(message: Message) -> str | list[Data]:
    if isinstance(message.content, str):
        return message.content
    return [part for each in message.content if (part := _shown(each)) is not None]


def _shown(part: Part) -> Data | None:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case ImagePart() | AudioPart() | FilePart():
            kind = "image" if isinstance(part, ImagePart) else "audio" if isinstance(part, AudioPart) else "document"
            return {"type": kind, "source": _source(part)}
        case _:
            return None


def _source(part: ImagePart | AudioPart | FilePart) -> Data:
    mime = {"mimeType": part.media_type} if part.media_type else {}
    if part.url is not None:
        return {"type": "url", "value": part.url, **mime}
    data = base64.b64encode(part.data or b"").decode()
    return {"type": "data", "value": data, "mimeType": part.media_type or "application/octet-stream"}


def usage(used: Usage) -> list[Data]:
    """Return the tokens of a run."""
    counts = {
        "inputTokens": used.input_tokens,
        "outputTokens": used.output_tokens,
        "totalTokens": used.total_tokens,
        "reasoningTokens": used.reasoning_tokens,
        "cachedInputTokens": used.cached_tokens,
        "cacheWriteInputTokens": used.cache_write_tokens,
    }
    return [{name: count for name, count in counts.items() if count}] if used.total_tokens else []


# Questions and answers

_REASONS = {"need_input": "input_required"}
_TOLD = frozenset({"token", "prompt", "schema", "expires", "checkpoint_id", "session_id"})
"""The fields of a question that the protocol has a place for, or that a run has told."""


def interrupt(asked: Interrupt) -> Data:
    """Return a question for a front end. Its id is the token, so that an answer counts for what was shown alone."""
    found: Data = {"id": asked.token or asked.id}
    if isinstance(asked.info, ToolCallInfo) and asked.info.call_id:
        found["reason"] = "tool_call"
        found["toolCallId"] = asked.info.call_id
    else:
        found["reason"] = _REASONS.get(asked.reason, f"adjourn:{asked.reason}")
    if asked.prompt is not None:
        found["message"] = asked.prompt
    schema = approval_schema(asked) if isinstance(asked.info, ToolCallInfo) else asked.schema
    if schema is not None:
        found["responseSchema"] = schema
    if asked.expires is not None:
        found["expiresAt"] = asked.expires.isoformat()
    about = {name: value for name, value in asdict(Question.of(asked)).items() if value and name not in _TOLD}
    found["metadata"] = {"adjourn": about}
    return found


def approval_schema(asked: Interrupt) -> Data:
    """Return the schema of the answers to an approval that front ends know: `editedArgs` says that it can be edited.

    Some of them show their buttons only for a schema without references and alternatives.
    """
    forms: list[Any] = (asked.schema or {}).get("anyOf", [])
    edited: Any = {}
    for form in forms:
        properties = form.get("properties", {})
        if properties.get("decision", {}).get("const") == "edit":
            edited = {name: value for name, value in properties["arguments"].items() if name != "additionalProperties"}
    if not edited or any(word in json.dumps(edited) for word in ('"$ref"', '"anyOf"', '"additionalProperties"')):
        edited = {"type": "object"}
    properties = {"approved": {"type": "boolean"}, "editedArgs": edited, "reason": {"type": "string"}}
    return {"type": "object", "properties": properties, "required": ["approved"]}


CANCELLED: Data = {"decision": "reject", "reason": "cancelled"}
"""The answer to an approval that somebody has closed without a decision: the call does not run."""


def answer(asked: Interrupt, payload: Any) -> Any:  # Any: JSON
    """Return the answer that a front end's payload stands for; what is not in its words is passed on as it is."""
    if not isinstance(asked.info, ToolCallInfo) or not isinstance(payload, Mapping):
        return payload
    given = cast("Mapping[str, Any]", payload)
    match given.get("approved"):
        case True if given.get("editedArgs") is not None:
            return {"decision": "edit", "arguments": given["editedArgs"]}
        case True:
            return {"decision": "approve"}
        case False:
            reason = given.get("reason")
            return {"decision": "reject", **({"reason": reason} if reason is not None else {})}
        case _:
            return given
