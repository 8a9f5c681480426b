"""Convert a request to the JSON of OpenAI's chat completions."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, assert_never

import msgspec

from adjourn._parts import OURS
from adjourn._text import a_type
from adjourn.errors import UsageError
from adjourn.messages import (
    AudioPart,
    CallPart,
    FilePart,
    ImagePart,
    Message,
    OpaquePart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCall,
)
from adjourn.models.abilities import Abilities
from adjourn.models.protocol import ModelRequest, ToolSpec

from ._extras import reasoning_fields
from ._ids import with_accepted_ids
from ._schema import response_format

Json = dict[str, Any]  # Any: JSON as the provider defines it

_AUDIO = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/wave": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
_NOT_A_NAME = re.compile(r"[^A-Za-z0-9_-]")
# Options about tools, which servers reject in a request without any.
_ABOUT_TOOLS = ("tool_choice", "parallel_tool_calls")
_GO_ON = "Continue."


def request_body(
    model: str,
    request: ModelRequest,
    options: Mapping[str, Any],
    abilities: Abilities,
    *,
    provider: str,
    is_streamed: bool,
    send_reasoning: bool | None,
) -> Json:
    """Return the body of a call; options override everything but `stream`, and a None removes its field.

    Raises:
        UsageError: a message has a part that chat completions do not support, there are tools and the server does not
            support them, or options are not JSON data.
    """
    if request.tools and not abilities.tools:
        raise UsageError(
            f"The model '{model}' has Abilities(tools=False), but there are tools: {request.tools[0].name}. Remove "
            "them, or use another model."
        )
    messages = _messages(with_accepted_ids(request.messages, provider), provider, abilities, send_reasoning)
    if messages and _is_answer(messages[-1]) and not options.get("continue_final_message"):
        # An agent in a loop speaks again: servers refuse that, or go on with the last word.
        messages.append({"role": "user", "content": _GO_ON})
    body: Json = {
        "model": model,
        "messages": messages,
        "tools": [_tool(tool) for tool in request.tools] or None,
        "response_format": None if request.output is None else response_format(request.output),
        "stream_options": {"include_usage": True} if is_streamed else None,
        **options,
        "tool_choice": _tool_choice(options.get("tool_choice"), request),
        "stream": True if is_streamed else None,
    }
    if not body["tools"]:
        body |= dict.fromkeys(_ABOUT_TOOLS)
    body = {name: value for name, value in body.items() if value is not None}
    try:
        # Convert to plain data, so that a set or a custom class cannot fail later inside the SDK.
        return msgspec.to_builtins(body)
    except (TypeError, ValueError) as error:
        raise UsageError(f"A request to {model} cannot be written as JSON: {error}. Check its options.") from None


def _tool_choice(choice: Any, request: ModelRequest) -> Any:
    """Return the choice of tools; one that forces a call counts until a tool has run.

    A model that must call a tool in every answer could never end its turn.
    """
    is_forced = not isinstance(choice, str) or choice in ("required", "any")
    if is_forced and any(message.role == "tool" for message in request.messages[_turn_start(request.messages) + 1 :]):
        choice = None
    return choice or ("required" if request.must_call else None)


def _turn_start(messages: Sequence[Message]) -> int:
    """Return the index of the message that began the turn, or -1.

    What Adjourn itself tells the model does not begin one, nor does what people say together with their answers, after
    the results of tools.
    """
    start, follows_results = -1, False
    for place, message in enumerate(messages):
        if message.role != "user":
            follows_results = message.role == "tool"
        elif not follows_results and message.provider != OURS:
            start = place
    return start


def _messages(
    messages: Sequence[Message], provider: str, abilities: Abilities, send_reasoning: bool | None
) -> list[Json]:
    """Return messages as they are sent: neighbours of the same role joined, media after all results of tools."""
    sent: list[Json] = []
    media: list[Json] = []
    turn = _turn_start(messages)
    for place, given in enumerate(messages):
        message = given.for_provider(provider)
        if message.role == "tool" and not abilities.images_in_tool_results:
            text, found = _tool_result(message, abilities)
            sent.append({"role": "tool", "content": text, "tool_call_id": message.tool_call_id})
            media += found
            continue
        if media:
            _add(sent, {"role": "user", "content": media})
            media = []
        if message.role == "assistant":
            reasoning = reasoning_fields(message, send_reasoning, is_in_turn=place > turn)
            _add_answer(sent, _assistant(message, abilities) | reasoning)
        else:
            _add(sent, _message(message, abilities, is_old=place < turn))
    if media:
        _add(sent, {"role": "user", "content": media})
    return sent


def _add(sent: list[Json], message: Json) -> None:
    """Add a message, or what it says to the one before: many chat templates insist on alternating roles."""
    before = sent[-1] if sent else {}
    if message["role"] in ("assistant", "tool") or message["role"] != before.get("role"):
        sent.append(message)
        return
    if message.get("name") != before.get("name"):
        _name_in_text(before)
        _name_in_text(message)
    first, second = before["content"], message["content"]
    if isinstance(first, str) and isinstance(second, str):
        before["content"] = "\n\n".join(filter(None, (first, second)))
    else:
        before["content"] = [*_as_parts(first), *_as_parts(second)]


def _add_answer(sent: list[Json], answer: Json) -> None:
    """Add an answer, or what it says to the one before if both are only text; one that says nothing is left out.

    Servers that insist on alternating roles refuse the one, and others a message without content, for good.
    """
    before = sent[-1] if sent else {}
    if answer.keys() == {"role", "content"} and not answer["content"]:
        return
    if _is_plain(before) and _is_plain(answer):
        before["content"] = f"{before['content']}\n\n{answer['content']}"
    else:
        sent.append(answer)


def _is_answer(message: Json) -> bool:
    """Return whether the model has said this, and calls no tools with it."""
    return message["role"] == "assistant" and "tool_calls" not in message


def _is_plain(answer: Json) -> bool:
    is_text = answer.keys() == {"role", "content"} and isinstance(answer["content"], str)
    return is_text and answer["role"] == "assistant"


def _name_in_text(message: Json) -> None:
    name = message.pop("name", None)
    if name is not None:
        content = message["content"]
        is_text = isinstance(content, str)
        message["content"] = f"{name}: {content}" if is_text else [*_as_parts(f"{name}:"), *content]


def _as_parts(content: str | list[Json]) -> list[Json]:
    if not isinstance(content, str):
        return content
    return [{"type": "text", "text": content}] if content else []


def _tool_result(message: Message, abilities: Abilities) -> tuple[str, list[Json]]:
    """Return the text of a tool's result, and its media for a user message.

    The result is recorded, and would be sent again with every request: what cannot be sent must not raise.
    """
    lines, media = list[str](), list[Json]()
    for part in message.parts:
        if isinstance(part, TextPart):
            lines.append(part.text)
            continue
        try:
            media.append(_part(part, abilities))
        except UsageError:
            lines.append(_left_out(part))
        else:
            lines.append(f"[{_kind(part)}: see the next message of the user]")
    if media:
        name = f" of {message.name}" if message.name else ""
        media.insert(0, {"type": "text", "text": f"From the result{name} ({message.tool_call_id}):"})
    return "\n".join(lines) if len(lines) != 1 else lines[0], media


def _sendable(message: Message, abilities: Abilities) -> str | list[Json]:
    """Return a content with what cannot be sent replaced by a note; as in `_tool_result`, nothing raises."""
    if isinstance(message.content, str):
        return message.content
    content = list[Json]()
    for part in message.content:
        try:
            content.append(_part(part, abilities))
        except UsageError:
            content += _as_parts(_left_out(part))
    return content


def _left_out(part: Part) -> str:
    return f"[{_kind(part)}: {getattr(part, 'url', None) or 'left out, since it cannot be sent to this model'}]"


def _message(message: Message, abilities: Abilities, *, is_old: bool) -> Json:
    """Return a message; what cannot be sent of an older turn must not fail this one."""
    match message.role:
        case "system":
            return {"role": abilities.system_role, "content": _text(message)}
        case "user":
            name = {"name": _name(message.name)} if message.name else {}
            content = _sendable(message, abilities) if is_old else _content(message, abilities)
            return {"role": "user", "content": content if abilities.images else _as_text(content), **name}
        case "assistant":
            return _assistant(message, abilities)
        case "tool":
            return {"role": "tool", "content": _sendable(message, abilities), "tool_call_id": message.tool_call_id}


def _as_text(content: str | list[Json]) -> str | list[Json]:
    """Return parts that are all text as one text: servers without images, such as DeepSeek, refuse lists."""
    if isinstance(content, str) or any(part.get("type") != "text" for part in content):
        return content
    return "\n".join(part["text"] for part in content)


def _content(message: Message, abilities: Abilities) -> str | list[Json]:
    content = message.content
    return content if isinstance(content, str) else [_part(part, abilities) for part in content]


def _part(part: Part, abilities: Abilities) -> Json:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case ImagePart():
            if not abilities.images:
                raise UsageError("A message contains an image, but the model has Abilities(images=False). Remove it.")
            return {"type": "image_url", "image_url": {"url": part.url or _data_url(part)}}
        case AudioPart():
            return {"type": "input_audio", "input_audio": _audio(part)}
        case FilePart():
            return {"type": "file", "file": _file(part)}
        case OpaquePart():
            return dict(part.data)
        case CallPart() | ReasoningPart():
            raise UsageError(f"A user message contains {a_type(part)}. Only assistant messages may: use text.")
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
    other = next((part for part in message.parts if not isinstance(part, TextPart | ReasoningPart | CallPart)), None)
    if other is not None:
        raise UsageError(
            f"A message with the role '{message.role}' contains {a_type(other)}; chat completions accept only text "
            "there. Put it into a user message."
        )
    return message.text


def _assistant(message: Message, abilities: Abilities) -> Json:
    content = _said(message, abilities) or (None if message.tool_calls and abilities.null_content else "")
    body: Json = {"role": "assistant", "content": content}
    if message.tool_calls:
        body["tool_calls"] = [_call(call) for call in message.tool_calls]
    return body


def _said(message: Message, abilities: Abilities) -> str | list[Json]:
    """Return what a model has said: text, or parts if some of them only its server understands.

    It is recorded, and would be sent again with every request: what cannot be sent must not raise.
    """
    if isinstance(message.content, str):
        return message.content
    if any(isinstance(part, OpaquePart) for part in message.content):
        return [_part(part, abilities) for part in message.content if isinstance(part, TextPart | OpaquePart)]
    pieces = [
        part.text if isinstance(part, TextPart) else f"[{_kind(part)}]"
        for part in message.content
        if not isinstance(part, ReasoningPart | CallPart)
    ]
    return "".join(pieces)


def _kind(part: Part) -> str:
    return type(part).__name__.removesuffix("Part").lower()


def _call(call: ToolCall) -> Json:
    # Servers also check their own earlier output: an invalid name, or arguments that are not JSON, would make every
    # later request of the conversation fail.
    arguments = call.arguments if call.raw is None else {"INVALID_JSON": call.raw}
    written = msgspec.json.encode(arguments).decode()
    body: Json = {"id": call.id, "type": "function", "function": {"name": _name(call.name), "arguments": written}}
    return body | dict(call.extra or {})


def _name(text: str) -> str:
    return _NOT_A_NAME.sub("_", text)[:64] or "unnamed"


def _tool(tool: ToolSpec) -> Json:
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": tool.schema},
    }
