"""Read the content of a message where it is not a text: parts, or structured output that the server has parsed."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Mapping
from typing import Any, cast

from adjourn.messages import ImagePart, Part

Json = Mapping[str, Any]  # Any: JSON as servers define it

_THOUGHTS = ("thinking", "reasoning", "reasoning_content")
_KNOWN = frozenset({*_THOUGHTS, "text", "output_text", "refusal", "image_url", "tool_use", "reference"})


class Content:
    """What the parts of a content say; `calls` are entries as in `tool_calls`."""

    def __init__(self, content: object, *, is_whole: bool) -> None:
        self.text = ""
        self.reasoning = ""
        self.parts: tuple[Part, ...] = ()
        self.calls: list[object] = []
        self.is_refusal = False
        if _is_value(content, is_whole=is_whole):
            self.text = json.dumps(content, ensure_ascii=False)
            return
        for entry in cast("list[object]", content) if isinstance(content, list) else [content]:
            if isinstance(entry, Mapping):
                self._add(cast("Json", entry))
            elif isinstance(entry, str):
                self.text += entry

    def _add(self, part: Json) -> None:
        kind = part.get("type")
        if kind in _THOUGHTS:
            thought = part.get(cast("str", kind)) or part.get("thinking") or part.get("text") or part.get("summary")
            self.reasoning += text_in(thought)
        elif kind == "image_url":
            self.parts += _image(part.get("image_url"))
        elif kind == "tool_use":
            self.calls.append(part)
        elif kind == "refusal":
            self.text += text_in(part.get("refusal"))
            self.is_refusal = True
        else:
            self.text += text_in(part)


def images_in(content: object) -> tuple[Part, ...]:
    """Return the images among parts."""
    return Content(cast("object", content), is_whole=False).parts if isinstance(content, list) else ()


def text_in(value: object) -> str:
    """Return the text of a part, of a list of parts, or of what a part has for a text."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(map(text_in, cast("list[object]", value)))
    if not isinstance(value, Mapping):
        return ""
    fields = cast("Json", value)
    return next(filter(None, (text_in(fields.get(name)) for name in ("text", "value", "summary", "content"))), "")


def _is_value(content: object, *, is_whole: bool) -> bool:
    """Return whether a content is a value rather than parts."""
    if not isinstance(content, list):
        return is_whole or not _is_part(content)  # one part on its own is only streamed
    entries = cast("list[object]", content)
    # Nobody streams lists of values, and a piece may consist of a kind of part that nobody knows yet.
    return is_whole and bool(entries) and not any(_is_part(entry) for entry in entries)


def _is_part(entry: object) -> bool:
    if not isinstance(entry, Mapping):
        return False
    part = cast("Json", entry)
    kind: object = part.get("type")
    return (isinstance(kind, str) and kind in _KNOWN) or list(part) == ["text"]


def _image(image: object) -> tuple[Part, ...]:
    url: object = cast("Json", image).get("url") if isinstance(image, Mapping) else image
    if not isinstance(url, str) or not url:
        return ()
    head, _, data = url.partition(";base64,")
    if not head.startswith("data:"):
        return (ImagePart(url=url),)
    try:
        return (ImagePart(data=b64decode(data), media_type=head.removeprefix("data:") or "image/png"),)
    except ValueError:  # an image that is broken does not cost the answer
        return ()
