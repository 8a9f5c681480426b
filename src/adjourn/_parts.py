"""The parts of messages: text, reasoning, images, audio, files, the places of tool calls, and opaque data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import force_setattr

from ._plain import Documented
from ._text import a_type
from ._values.frozen import check_text, freeze

# No part can be in a reference cycle, so the garbage collector need not look at them: gc=False.


class TextPart(
    Struct,
    Documented,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    repr_omit_defaults=True,
    tag_field="type",
    tag="text",
    gc=False,
):
    """A piece of text; `extra` is data of `provider` about it."""

    text: str
    provider: str | None = None
    extra: Mapping[str, Any] | None = None  # Any: JSON that only the provider understands, here and below

    def __post_init__(self) -> None:
        check_text(self.text, "TextPart.text")
        if not (self.provider is self.extra is None):
            freeze_extra(self)


class ReasoningPart(
    Struct,
    Documented,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    repr_omit_defaults=True,
    tag_field="type",
    tag="reasoning",
    gc=False,
):
    """The model's reasoning before its answer; not part of the message's text.

    `signature` and `extra` must be sent back to `provider` unchanged: a signature, or the reasoning itself in encrypted
    form.
    """

    text: str = ""
    signature: str | None = None
    id: str | None = None
    provider: str | None = None
    extra: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        check_text(self.text, "ReasoningPart.text")
        check_optional("ReasoningPart", self.signature, self.id)
        if self.signature is not None and self.provider is None:
            raise ValueError("ReasoningPart has a signature without provider. Say who signed: provider='anthropic'.")
        if not (self.provider is self.extra is None):
            freeze_extra(self)


class CallPart(Struct, Documented, frozen=True, kw_only=True, tag_field="type", tag="call", gc=False):
    """The place of the tool call `id` among the parts of its message; calls without one come last, in their order."""

    id: str

    def __post_init__(self) -> None:
        check_text(self.id, "CallPart.id")


class OpaquePart(Struct, Documented, frozen=True, kw_only=True, tag_field="type", tag="opaque", gc=False):
    """Something that only `provider` understands (a server-side tool call, a compaction); others never get it."""

    provider: str
    data: Mapping[str, Any]

    def __post_init__(self) -> None:
        check_text(self.provider, "OpaquePart.provider")
        force_setattr(self, "data", freeze(self.data, "OpaquePart.data"))


class _Media(Struct, Documented, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", gc=False):
    url: str | None = None
    data: bytes | None = None
    media_type: str | None = None

    def __post_init__(self) -> None:
        kind = type(self).__name__
        if (self.url is None) == (self.data is None):
            raise ValueError(
                f"{kind} has {'neither' if self.url is None else 'both'} of url and data. Give one of them."
            )
        if self.data is not None and type(self.data) is not bytes:
            raise TypeError(f"{kind}.data is {a_type(self.data)}. Give bytes.")
        if self.data is not None and not self.media_type:
            raise ValueError(f"{kind} has data without media_type. Say what it is, such as 'image/png'.")
        check_optional(kind, self.url, self.media_type)


class ImagePart(_Media, frozen=True, kw_only=True, tag="image", gc=False):
    """An image, by URL or as bytes."""


class AudioPart(_Media, frozen=True, kw_only=True, tag="audio", gc=False):
    """Audio, by URL or as bytes."""


class FilePart(_Media, frozen=True, kw_only=True, tag="file", gc=False):
    """Any other file, by URL or as bytes."""

    name: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_optional("FilePart", self.name)


Part = TextPart | ImagePart | AudioPart | FilePart | ReasoningPart | CallPart | OpaquePart


def check_optional(record: str, *values: object) -> None:
    """Refuse values that are neither `None` nor text, as `check_text` does; `record` names their struct."""
    for value in values:
        if not (value is None or (type(value) is str and value.isascii())):
            check_text(value, f"A text field of {record}")


OURS = "adjourn"
"""The `provider` of a user message that no person wrote: Adjourn tells a model what is wrong with its answer."""


def freeze_extra(record: Any) -> None:  # Any: a record with these two fields
    """Check `provider`, and freeze `extra`, which only that provider gets back."""
    kind = type(record).__name__
    check_optional(kind, record.provider)
    if record.extra is not None:
        if record.provider is None:
            raise ValueError(f"{kind} has extra without provider. Say whose data it is, such as provider='openai'.")
        force_setattr(record, "extra", freeze(record.extra, f"{kind}.extra"))
