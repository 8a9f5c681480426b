"""Messages: their parts (text, images, audio, files and reasoning), tool calls, usage, and changes to lists of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, assert_never, cast, get_args

from msgspec import Struct
from msgspec.json import encode
from msgspec.structs import astuple, force_setattr, replace

from ._text import a_type, with_article
from ._values.frozen import check_text, freeze, shorten

# No part can be in a reference cycle, so the garbage collector need not look at them: gc=False.


class TextPart(Struct, frozen=True, kw_only=True, tag_field="type", tag="text", gc=False):
    """A piece of text."""

    text: str

    def __post_init__(self) -> None:
        check_text(self.text, "TextPart.text")


class ReasoningPart(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="reasoning", gc=False):
    """The model's reasoning before its answer; not part of the message's text.

    `signature` must be sent back to the provider unchanged: a signature, or the reasoning itself in encrypted form.
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
    """An image, by URL or as bytes."""


class AudioPart(_Media, frozen=True, kw_only=True, tag="audio", gc=False):
    """Audio, by URL or as bytes."""


class FilePart(_Media, frozen=True, kw_only=True, tag="file", gc=False):
    """Any other file, by URL or as bytes."""

    name: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_optional("FilePart", self.name)


Part = TextPart | ImagePart | AudioPart | FilePart | ReasoningPart


def check_optional(record: str, *values: object) -> None:
    """Refuse values that are neither `None` nor text, as `check_text` does; `record` names their struct."""
    for value in values:
        if not (value is None or (type(value) is str and value.isascii())):
            check_text(value, f"A text field of {record}")


__all__ = [
    "AppendMessages",
    "AudioPart",
    "FilePart",
    "ImagePart",
    "Message",
    "MessagesChange",
    "Part",
    "ReasoningPart",
    "RemoveAllMessages",
    "ReplaceLastUser",
    "Role",
    "TextPart",
    "ToolCall",
    "Usage",
    "apply_messages",
]

Role = Literal["system", "user", "assistant", "tool"]
_ROLES = get_args(Role)

# No record here can be in a reference cycle, so the garbage collector need not look at them: gc=False.


class ToolCall(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A tool call requested by a model; `arguments` are plain JSON data, frozen at all levels.

    If the model wrote something that is not a JSON object (because it was cut off, for example), `raw` is what it wrote
    and there are no arguments: such a call can be reported back to the model, but not run.
    """

    id: str
    name: str
    arguments: Mapping[str, Any] = {}  # Any: the JSON that a model wrote
    raw: str | None = None

    def __post_init__(self) -> None:
        check_text(self.id, "ToolCall.id")
        check_text(self.name, "ToolCall.name")
        force_setattr(self, "arguments", freeze(self.arguments, "ToolCall.arguments"))
        if self.raw is not None:
            check_text(self.raw, "ToolCall.raw")
            if self.arguments:
                raise ValueError("ToolCall has both arguments and raw. Give raw only for what is not a JSON object.")


class Usage(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The tokens that model calls used; add usages with `+`."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0

    def __post_init__(self) -> None:
        for count in astuple(self):
            if type(count) is not int or count < 0:
                raise ValueError(f"{self} has the count {count!r}. Give only ints of 0 or more.")

    @property
    def total_tokens(self) -> int:
        """Input and output tokens; cached and reasoning tokens are included."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            calls=self.calls + other.calls,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
        )


class Message(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="$t", tag="message", gc=False):
    """One message of a conversation; create it with `Message.user(...)` and its siblings.

    `content` is the stored form: a `str` if there is only text, otherwise parts. Read `text` or `parts`.
    """

    role: Role
    content: str | tuple[Part, ...] = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    usage: Usage | None = None
    finish_reason: str | None = None
    id: str | None = None

    @staticmethod
    def system(text: str | Sequence[str | Part]) -> Message:
        """Return a system message; here and in its siblings, `text` may also be a sequence of texts and parts."""
        return Message(role="system", content=_content(text))

    @staticmethod
    def user(text: str | Sequence[str | Part], *, name: str | None = None) -> Message:
        """Return a user message."""
        return Message(role="user", content=_content(text), name=name)

    @staticmethod
    def assistant(
        text: str | Sequence[str | Part] = "",
        *,
        tool_calls: Sequence[ToolCall] = (),
        name: str | None = None,
        usage: Usage | None = None,
        finish_reason: str | None = None,
    ) -> Message:
        """Return a model's message, with the tool calls it requests."""
        return Message(
            role="assistant",
            content=_content(text),
            tool_calls=_all_of(tool_calls, ToolCall, "Message.tool_calls"),
            name=name,
            usage=usage,
            finish_reason=finish_reason,
        )

    @staticmethod
    def tool(text: str | Sequence[str | Part], *, tool_call_id: str, name: str | None = None) -> Message:
        """Return the result of the tool call `tool_call_id`."""
        return Message(role="tool", content=_content(text), tool_call_id=tool_call_id, name=name)

    def __post_init__(self) -> None:
        # Decoding has already checked types; a program that builds messages has not.
        if self.role not in _ROLES:
            raise ValueError(f"Message.role is {self.role!r}. Give one of: {', '.join(_ROLES)}.")
        if self.role == "tool" and self.tool_call_id is None:
            raise ValueError("A tool message has no tool_call_id. Use Message.tool(text, tool_call_id=...).")
        if type(self.content) is not str:
            force_setattr(self, "content", _compact(self.content))
        elif not self.content.isascii():
            check_text(self.content, "Message.content")
        if self.tool_calls != ():
            force_setattr(self, "tool_calls", _all_of(self.tool_calls, ToolCall, "Message.tool_calls"))
        if self.usage is not None and type(self.usage) is not Usage:
            raise TypeError(f"Message.usage is {a_type(self.usage)}. Give a Usage.")
        if not (self.tool_call_id is self.name is self.finish_reason is self.id is None):
            check_optional("Message", self.tool_call_id, self.name, self.finish_reason, self.id)

    @property
    def text(self) -> str:
        """The text parts joined; reasoning is not included."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content if isinstance(part, TextPart))

    @property
    def parts(self) -> tuple[Part, ...]:
        """All parts, in order."""
        if isinstance(self.content, str):
            return (TextPart(text=self.content),) if self.content else ()
        return self.content

    def with_id(self, message_id: str) -> Message:
        """Return the same message with this id."""
        check_text(message_id, "Message.id")
        same: Message = cast("Any", self).__copy__()  # Everything else in it has been checked.
        force_setattr(same, "id", message_id)
        return same

    def with_finish(self, reason: str) -> Message:
        """Return the same message with another finish reason."""
        return replace(self, finish_reason=reason)

    def with_text(self, text: str) -> Message:
        """Return the message with `text` where its first text was (or at the end); other parts stay."""
        parts = self.parts
        others = [part for part in parts if not isinstance(part, TextPart)]
        place = next((i for i, part in enumerate(parts) if isinstance(part, TextPart)), len(parts))
        return replace(self, content=(*others[:place], TextPart(text=text), *others[place:]))


class AppendMessages(Struct, frozen=True, tag_field="$t", tag="append_messages", gc=False):
    """Adds messages at the end; one with the id of an existing message replaces it."""

    messages: tuple[Message, ...]

    def __post_init__(self) -> None:
        force_setattr(self, "messages", _all_of(self.messages, Message, "AppendMessages.messages"))


class ReplaceLastUser(Struct, frozen=True, tag_field="$t", tag="replace_last_user", gc=False):
    """Changes the text of the user message nearest the end, or appends one when there is none."""

    text: str

    def __post_init__(self) -> None:
        check_text(self.text, "ReplaceLastUser.text")


class RemoveAllMessages(Struct, frozen=True, tag_field="$t", tag="remove_all_messages", gc=False):
    """Empties the list."""


_Step = Message | ReplaceLastUser | RemoveAllMessages


class MessagesChange(Struct, frozen=True, kw_only=True):
    """What an update does to a list of messages: append `tail`, or, if `whole` is given, replace the list with it."""

    tail: list[Message] = []
    whole: list[Message] | None = None

    def on(self, old: list[Message]) -> list[Message]:
        """Return a new list with the change applied to `old`."""
        return [*old, *self.tail] if self.whole is None else list(self.whole)


def apply_messages(
    old: list[Message],
    update: object,
    new_id: Callable[[], str] | None = None,
    known: Callable[[str], bool] | None = None,
) -> MessagesChange:
    """Apply a message, an operation or a list of both, from left to right, and leave `old` as it is.

    `new_id` creates ids for messages without one. `known` says whether an id may be in `old`; without it, a message
    that has an id costs a scan of `old`. Everything else is linear in the length of the update.

    Raises:
        TypeError: the update is something else; no id was created.
    """
    steps = _steps(update)
    draft = _Draft(old, new_id, known)
    for step in steps:
        draft.apply(step)
    return draft.change()


class _Draft:
    """A list of messages under change: `base` is `old` until it must change, `tail` is what comes after it."""

    def __init__(
        self, old: list[Message], new_id: Callable[[], str] | None, known: Callable[[str], bool] | None
    ) -> None:
        self.old = self.base = old
        self.tail: list[Message] = []
        self.new_id = new_id
        self.known = known
        self.tail_places: dict[str, int] = {}
        self.base_places: dict[str, int] | None = None

    def apply(self, step: _Step) -> None:
        match step:
            case Message(id=None):
                self.tail.append(step if self.new_id is None else step.with_id(self.new_id()))
            case Message():
                self.put(step, step.id or "")
            case ReplaceLastUser():
                self.replace_last_user(step.text)
            case RemoveAllMessages():
                self.base, self.tail = ([] if self.base else self.base), []
                self.base_places, self.tail_places = None, {}
            case _:
                assert_never(step)

    def put(self, message: Message, message_id: str) -> None:
        if message_id in self.tail_places:
            self.tail[self.tail_places[message_id]] = message
        elif (place := self.base_place(message_id)) is not None:
            self.set_base(place, message)
        else:
            self.tail_places[message_id] = len(self.tail)
            self.tail.append(message)

    def base_place(self, message_id: str) -> int | None:
        if self.known is not None and not self.known(message_id):
            return None
        if self.base_places is None:
            self.base_places = {message.id: i for i, message in enumerate(self.base) if message.id is not None}
        return self.base_places.get(message_id)

    def set_base(self, place: int, message: Message) -> None:
        # Compare encoded, since 1 == True in Python. A message that comes back unchanged must not rewrite the list.
        if encode(message) == encode(self.base[place]):
            return
        if self.base is self.old:
            self.base = list(self.old)
        self.base[place] = message

    def replace_last_user(self, text: str) -> None:
        if (place := _last_user(self.tail)) is not None:
            self.tail[place] = self.tail[place].with_text(text)
        elif (place := _last_user(self.base)) is not None:
            self.set_base(place, self.base[place].with_text(text))
        else:
            self.apply(Message.user(text))

    def change(self) -> MessagesChange:
        if self.base is self.old:
            return MessagesChange(tail=self.tail)
        return MessagesChange(whole=[*self.base, *self.tail])


def _last_user(messages: list[Message]) -> int | None:
    return next((i for i in reversed(range(len(messages))) if messages[i].role == "user"), None)


def _steps(update: object) -> Sequence[_Step]:
    if not isinstance(update, list | tuple):
        return _steps_of(update, "The update of a list of messages")
    items = enumerate(cast("Sequence[object]", update))
    return [step for i, item in items for step in _steps_of(item, f"Item {i} of an update of a list of messages")]


def _steps_of(item: object, where: str) -> Sequence[_Step]:
    if isinstance(item, AppendMessages):
        return item.messages
    if isinstance(item, _Step):
        return (item,)
    raise TypeError(
        f"{where} is {a_type(item)} ({shorten(item)}). Give a Message (Message.user('...') and the "
        "like), AppendMessages, ReplaceLastUser or RemoveAllMessages, or a list of these."
    )


def _content(text: object) -> Any:  # Any: Message checks what parts there are
    if isinstance(text, str):
        return str(text)  # a subclass (marked-up text, an enum) could not be encoded
    if not isinstance(text, list | tuple):
        raise TypeError(f"A message's text is {a_type(text)} ({shorten(text)}). Give a str, or a list of parts.")
    parts = cast("Sequence[object]", text)
    return tuple(TextPart(text=str(part)) if isinstance(part, str) else part for part in parts)


def _compact(content: object) -> str | tuple[Part, ...]:
    # A single text is kept as a string, so that equal messages compare equal and take the least space.
    parts = _all_of(content, Part, "Message.content")
    if not parts:
        return ""
    return parts[0].text if len(parts) == 1 and isinstance(parts[0], TextPart) else parts


def _all_of(items: object, kind: Any, name: str) -> tuple[Any, ...]:  # Any: a class or a union of classes
    if not isinstance(items, list | tuple):
        raise TypeError(f"{name} is {a_type(items)} ({shorten(items)}). Give a list.")
    for i, item in enumerate(cast("Sequence[object]", items)):
        if not isinstance(item, kind):
            names = " or ".join(each.__name__ for each in get_args(kind) or (kind,))
            raise TypeError(f"{name}[{i}] is {a_type(item)} ({shorten(item)}). Give {with_article(names)}.")
    return tuple(cast("Sequence[Any]", items))
