"""Messages: their parts (text, images, audio, files and reasoning), tool calls, usage, and changes to lists of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, assert_never, cast, get_args

from msgspec import Struct
from msgspec.json import encode
from msgspec.structs import astuple, force_setattr, replace

from ._parts import (
    AudioPart,
    CallPart,
    FilePart,
    ImagePart,
    OpaquePart,
    Part,
    ReasoningPart,
    TextPart,
    check_optional,
    freeze_extra,
)
from ._plain import Documented
from ._text import a_type, with_article
from ._values.frozen import check_text, freeze, shorten
from ._values.registry import native

__all__ = [
    "AppendMessages",
    "AudioPart",
    "CallPart",
    "FilePart",
    "ImagePart",
    "Message",
    "MessagesChange",
    "OpaquePart",
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


class ToolCall(Struct, Documented, frozen=True, kw_only=True, omit_defaults=True, repr_omit_defaults=True, gc=False):
    """A tool call requested by a model; `arguments` are plain JSON data, frozen at all levels.

    If the model wrote something that is not a JSON object (because it was cut off, for example), `raw` is what it wrote
    and there are no arguments: such a call can be reported back to the model, but not run. `extra` is data of
    `provider` about the call, such as a signature, and is sent back to it unchanged.
    """

    id: str
    name: str
    arguments: Mapping[str, Any] = {}  # Any: the JSON that a model wrote
    raw: str | None = None
    provider: str | None = None
    extra: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        check_text(self.id, "ToolCall.id")
        check_text(self.name, "ToolCall.name")
        force_setattr(self, "arguments", freeze(self.arguments, "ToolCall.arguments"))
        if self.raw is not None:
            check_text(self.raw, "ToolCall.raw")
            if self.arguments:
                raise ValueError("ToolCall has both arguments and raw. Give raw only for what is not a JSON object.")
        if not (self.provider is self.extra is None):
            freeze_extra(self)

    def with_arguments(self, arguments: Mapping[str, Any]) -> ToolCall:
        """Return the same call with other arguments; what the provider said about it stays."""
        return replace(self, arguments=arguments, raw=None)


class Usage(Struct, Documented, frozen=True, kw_only=True, omit_defaults=True, repr_omit_defaults=True, gc=False):
    """The tokens that model calls used; add usages with `+`.

    `cached_tokens` were read from the provider's cache and `cache_write_tokens` written to it; both are input tokens.
    `estimated_tokens` are those that nobody has reported: they are estimated where a limit needs them.
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cache_write_tokens: int = 0
    estimated_tokens: int = 0

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
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            estimated_tokens=self.estimated_tokens + other.estimated_tokens,
        )


class Message(
    Struct,
    Documented,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    repr_omit_defaults=True,
    tag_field="$t",
    tag="message",
    gc=False,
):
    """One message of a conversation; create it with `Message.user(...)` and its siblings.

    `content` is the stored form: a `str` if there is only text, otherwise parts. Read `text`, `parts` or `blocks`.

    A model's answer also says where it comes from: `provider`, `model` (the name that the provider gave),
    `response_id`, and `raw_finish_reason` if the provider's own word differs from `finish_reason`. `extra` is data of
    `provider` about the whole message, and is sent back to it unchanged. A user message that Adjourn itself wrote, to
    tell a model what is wrong with its answer, has the provider "adjourn".
    """

    role: Role
    content: str | tuple[Part, ...] = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    usage: Usage | None = None
    finish_reason: str | None = None
    id: str | None = None
    provider: str | None = None
    model: str | None = None
    response_id: str | None = None
    raw_finish_reason: str | None = None
    extra: Mapping[str, Any] | None = None

    @classmethod
    def documented(cls) -> Mapping[str, bool]:
        """Return the names in its document: who says it and what are always there."""
        return {**super().documented(), "content": True}

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
        if self.tool_calls != ():
            force_setattr(self, "tool_calls", _all_of(self.tool_calls, ToolCall, "Message.tool_calls"))
        if type(self.content) is not str:
            force_setattr(self, "content", _compact(self.content, self.tool_calls))
        elif not self.content.isascii():
            check_text(self.content, "Message.content")
        if self.usage is not None and type(self.usage) is not Usage:
            raise TypeError(f"Message.usage is {a_type(self.usage)}. Give a Usage.")
        # One by one, since every message that is read passes here: `is` in a chain takes twice as long.
        if self.tool_call_id is not None or self.name is not None or self.finish_reason is not None:
            check_optional("Message", self.tool_call_id, self.name, self.finish_reason)
        if self.id is not None:
            check_optional("Message", self.id)
        if (
            self.provider is not None
            or self.model is not None
            or self.response_id is not None
            or self.raw_finish_reason is not None
            or self.extra is not None
        ):
            check_optional("Message", self.model, self.response_id, self.raw_finish_reason)
            freeze_extra(self)

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

    @property
    def blocks(self) -> tuple[Part | ToolCall, ...]:
        """All parts and tool calls, in the order in which the model wrote them."""
        order = in_order(self.parts, self.tool_calls)
        return tuple(self.tool_calls[each] if isinstance(each, int) else each for each in order)

    def for_provider(self, provider: str) -> Message:
        """Return the message as this provider may get it: without what others signed, or sent for themselves alone.

        Signed reasoning and opaque parts of others are left out, and so is their `extra` on text and calls; plain text,
        plain reasoning and the calls themselves stay.
        """
        parts = self.content if isinstance(self.content, str) else tuple(_parts_for(self.content, provider))
        calls = tuple(call if call.provider in (None, provider) else _plain(call) for call in self.tool_calls)
        extra = self.extra if self.provider == provider else None
        if (parts, calls, extra) == (self.content, self.tool_calls, self.extra):
            return self
        return replace(self, content=parts, tool_calls=calls, extra=extra)

    def with_calls(self, calls: Sequence[ToolCall]) -> Message:
        """Return the message with each of its calls replaced by the one at the same index, in the same place."""
        if len(calls) != len(self.tool_calls):
            raise ValueError(
                f"The message has {len(self.tool_calls)} tool calls, and {len(calls)} are to replace them."
            )
        content = self.content
        if not isinstance(content, str):
            content = _marked(in_order(content, self.tool_calls), calls)
        return replace(self, content=content, tool_calls=tuple(calls))

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


for _class in (Message, AppendMessages, ReplaceLastUser, RemoveAllMessages):
    native(_class)

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


def _compact(content: object, calls: tuple[ToolCall, ...]) -> str | tuple[Part, ...]:
    # A single text is kept as a string and calls that come last are not marked, so that equal messages compare equal
    # and take the least space.
    parts = _all_of(content, Part, "Message.content")
    if any(type(part) is CallPart for part in parts):
        order = in_order(parts, calls)
        while order and isinstance(order[-1], int):
            order.pop()
        parts = _marked(order, calls)
    if not parts:
        return ""
    match parts:
        case (TextPart(provider=None) as only,):
            return only.text
        case _:
            return parts


def in_order(parts: Sequence[Part], calls: Sequence[ToolCall]) -> list[Part | int]:
    """Return the parts with the indexes of calls where they belong; calls next to one another are in call order.

    A marker whose call is gone (a hook has dropped it) says nothing and is left out.
    """
    places: dict[str, list[int]] = {}
    for index, call in enumerate(calls):
        places.setdefault(call.id, []).append(index)
    order: list[Part | int] = []
    for part in parts:
        if not isinstance(part, CallPart):
            order.append(part)
        elif places.get(part.id):
            order.append(places[part.id].pop(0))
    order += itertools.chain(*places.values())
    runs = itertools.groupby(order, key=lambda each: isinstance(each, int))
    return [each for is_calls, run in runs for each in (sorted(cast("Any", run)) if is_calls else run)]


def _marked(order: Sequence[Part | int], calls: Sequence[ToolCall]) -> tuple[Part, ...]:
    return tuple(CallPart(id=calls[each].id) if isinstance(each, int) else each for each in order)


def _parts_for(parts: Sequence[Part], provider: str) -> Iterator[Part]:
    for part in parts:
        match part:
            case TextPart(provider=str() as signer) if signer != provider:
                yield TextPart(text=part.text)
            case ReasoningPart(provider=str() as signer) if signer != provider:
                if part.signature is part.extra is None:
                    yield ReasoningPart(text=part.text)
            case OpaquePart() if part.provider != provider:
                pass
            case _:
                yield part


def _plain(call: ToolCall) -> ToolCall:
    return replace(call, provider=None, extra=None)


def _all_of(items: object, kind: Any, name: str) -> tuple[Any, ...]:  # Any: a class or a union of classes
    if not isinstance(items, list | tuple):
        raise TypeError(f"{name} is {a_type(items)} ({shorten(items)}). Give a list.")
    for i, item in enumerate(cast("Sequence[object]", items)):
        if not isinstance(item, kind):
            names = " or ".join(each.__name__ for each in get_args(kind) or (kind,))
            raise TypeError(f"{name}[{i}] is {a_type(item)} ({shorten(item)}). Give {with_article(names)}.")
    return tuple(cast("Sequence[Any]", items))
