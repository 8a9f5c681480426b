"""Convert a request to the JSON of OpenAI's chat completions."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Any, assert_never, cast

import msgspec

from adjourn._text import a_type
from adjourn.errors import UsageError
from adjourn.messages import AudioPart, FilePart, ImagePart, Message, Part, ReasoningPart, TextPart, ToolCall
from adjourn.models.protocol import ModelRequest, ToolSpec

Json = dict[str, Any]  # Any: JSON as the provider defines it

_AUDIO = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/wave": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
_NOT_A_NAME = re.compile(r"[^A-Za-z0-9_-]")
# The keywords of strict mode; with any other one in the schema, the provider would reject the request.
_STRICT_KEYWORDS = {
    *("type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf", "$ref", "$defs"),
    *("title", "description"),
}


def request_body(
    model: str, request: ModelRequest, options: Mapping[str, Any], *, is_streamed: bool, send_reasoning: bool
) -> Json:
    """Return the body of a call; options override everything but `stream`, and a None removes its field.

    Raises:
        UsageError: a message has a part that chat completions do not support, or options are not JSON data.
    """
    body: Json = {
        "model": model,
        "messages": [_message(message, send_reasoning) for message in request.messages],
        "tools": [_tool(tool) for tool in request.tools] or None,
        "response_format": None if request.output is None else _response_format(request.output),
        "stream_options": {"include_usage": True} if is_streamed else None,
        **options,
        **request.options,
        "stream": True if is_streamed else None,
    }
    body = {name: value for name, value in body.items() if value is not None}
    try:
        # Convert to plain data, so that a set or a custom class cannot fail later inside the SDK.
        return msgspec.to_builtins(body)
    except (TypeError, ValueError) as error:
        raise UsageError(f"A request to {model} cannot be written as JSON: {error}. Check its options.") from None


def _message(message: Message, send_reasoning: bool) -> Json:
    match message.role:
        case "system":
            return {"role": "system", "content": _text(message)}
        case "user":
            name = {"name": _name(message.name)} if message.name else {}
            return {"role": "user", "content": _content(message), **name}
        case "assistant":
            return _assistant(message, send_reasoning)
        case "tool":
            return {"role": "tool", "content": _text(message), "tool_call_id": message.tool_call_id}


def _content(message: Message) -> str | list[Json]:
    return message.content if isinstance(message.content, str) else [_part(part) for part in message.content]


def _part(part: Part) -> Json:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case ImagePart():
            return {"type": "image_url", "image_url": {"url": part.url or _data_url(part)}}
        case AudioPart():
            return {"type": "input_audio", "input_audio": _audio(part)}
        case FilePart():
            return {"type": "file", "file": _file(part)}
        case ReasoningPart():
            raise UsageError("A user message contains reasoning. Only assistant messages may: use text.")
        case _:
            assert_never(part)


def _audio(part: AudioPart) -> Json:
    kind = _AUDIO.get(part.media_type or "")
    if part.data is None or kind is None:
        what = "by URL" if part.data is None else f"as {part.media_type}"
        raise UsageError(
            f"Chat completions do not accept audio {what}. Give AudioPart(data=..., media_type='audio/wav')."
        )
    return {"data": b64encode(part.data).decode(), "format": kind}


def _file(part: FilePart) -> Json:
    if part.data is None:
        raise UsageError(
            f"Chat completions do not accept files by URL ({part.url}). Give FilePart(data=..., media_type=...)."
        )
    return {"file_data": _data_url(part), "filename": part.name or "file"}


def _data_url(part: ImagePart | FilePart) -> str:
    return f"data:{part.media_type};base64,{b64encode(part.data or b'').decode()}"


def _text(message: Message) -> str:
    other = next((part for part in message.parts if not isinstance(part, TextPart | ReasoningPart)), None)
    if other is not None:
        raise UsageError(
            f"A message with the role '{message.role}' contains {a_type(other)}; chat completions accept only text "
            "there. Put it into a user message."
        )
    return message.text


def _assistant(message: Message, send_reasoning: bool) -> Json:
    text = _text(message)
    body: Json = {"role": "assistant", "content": text or (None if message.tool_calls else "")}
    if message.tool_calls:
        body["tool_calls"] = [_call(call) for call in message.tool_calls]
    thought = "".join(part.text for part in message.parts if isinstance(part, ReasoningPart))
    return body | ({"reasoning_content": thought} if send_reasoning and thought else {})


def _call(call: ToolCall) -> Json:
    # Servers also check their own earlier output: an invalid name, or arguments that are not JSON, would make every
    # later request of the conversation fail.
    arguments = call.arguments if call.raw is None else {"INVALID_JSON": call.raw}
    written = msgspec.json.encode(arguments).decode()
    return {"id": call.id, "type": "function", "function": {"name": _name(call.name), "arguments": written}}


def _name(text: str) -> str:
    return _NOT_A_NAME.sub("_", text)[:64] or "unnamed"


def _tool(tool: ToolSpec) -> Json:
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": tool.schema},
    }


def _response_format(schema: Mapping[str, Any]) -> Json:
    whole = _with_plain_root(schema)
    if whole.get("type") != "object":
        raise UsageError(
            f"The schema of a structured answer is of type {whole.get('type')!r}, but chat completions return only "
            "objects. Put it into a field of an object."
        )
    name = _name(str(whole.get("title", "answer")))
    return {"type": "json_schema", "json_schema": {"name": name, "schema": whole, "strict": _is_strict(whole)}}


def _with_plain_root(schema: Mapping[str, Any]) -> Json:
    """Return the schema with its root inlined, since the provider does not accept a reference there."""
    prefix, _, name = str(schema.get("$ref", "")).rpartition("/")
    if prefix != "#/$defs" or name not in schema.get("$defs", {}):
        return dict(schema)
    return {**schema["$defs"][name], "$defs": schema["$defs"]}


def _is_strict(schema: Any) -> bool:
    """Return whether strict mode accepts the schema: closed objects, all fields required, supported keywords only."""
    if not isinstance(schema, Mapping):
        return False
    fields = cast("Mapping[str, Any]", schema)
    properties = fields.get("properties", {})
    if not fields.keys() <= _STRICT_KEYWORDS:
        return False
    if fields.get("type") == "object":
        is_closed = fields.get("additionalProperties") is False
        if not is_closed or set(fields.get("required", ())) != set(properties):
            return False
    return all(map(_is_strict, _inner(fields)))


def _inner(schema: Mapping[str, Any]) -> Iterable[Any]:
    items = [schema["items"]] if "items" in schema else []
    return [*schema.get("properties", {}).values(), *schema.get("$defs", {}).values(), *schema.get("anyOf", ()), *items]
