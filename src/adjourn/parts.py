"""What a message is made of: text, images, sounds, files and reasoning."""

from __future__ import annotations

from msgspec import Struct

from .core.frozen import check_text
from .core.wording import a_type

# No part can be in a reference cycle, so the garbage collector need not look at them: gc=False.


class TextPart(Struct, frozen=True, kw_only=True, tag_field="type", tag="text", gc=False):
    """A piece of text."""

    text: str

    def __post_init__(self) -> None:
        check_text(self.text, "TextPart.text")


class ReasoningPart(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="reasoning", gc=False):
    """What a model thought before it spoke; not in the message's text.

    `signature` is what the provider wants back untouched: a signature, or the thought itself in encrypted form.
    """

    text: str = ""
    signature: str | None = None
    id: str | None = None

    def __post_init__(self) -> None:
        check_text(self.text, "ReasoningPart.text")
        check_optional("ReasoningPart", self.signature, self.id)


class _Media(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", gc=False):
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
    """An image, by address or as bytes."""


class AudioPart(_Media, frozen=True, kw_only=True, tag="audio", gc=False):
    """A sound, by address or as bytes."""


class FilePart(_Media, frozen=True, kw_only=True, tag="file", gc=False):
    """Any other file, by address or as bytes."""

    name: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_optional("FilePart", self.name)


Part = TextPart | ImagePart | AudioPart | FilePart | ReasoningPart


def check_optional(record: str, *values: object) -> None:
    """Refuse what is neither `None` nor text, as `check_text` does; `record` names where the values stand."""
    for value in values:
        if not (value is None or (type(value) is str and value.isascii())):
            check_text(value, f"A text field of {record}")
