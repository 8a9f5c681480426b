"""Messages are values: immutable, compact in JSON, equal when they say the same. Their list changes by rule S8."""

import copy
import enum
import itertools
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from adjourn.messages import (
    AppendMessages,
    AudioPart,
    CallPart,
    FilePart,
    ImagePart,
    Message,
    MessagesChange,
    OpaquePart,
    Part,
    ReasoningPart,
    RemoveAllMessages,
    ReplaceLastUser,
    TextPart,
    ToolCall,
    Usage,
    apply_messages,
)

IMAGE = ImagePart(data=b"\x89PNG", media_type="image/png")
BOOK = ToolCall(id="c1", name="book_ticket", arguments={"to": "Beijing", "seats": [1, 2]})
EVERY_KIND = [
    Message.system("Be kind."),
    Message.user("hi", name="ann"),
    Message.user(["what is this?", IMAGE]),
    Message.user([AudioPart(url="https://x.test/a.mp3"), FilePart(url="https://x.test/b.pdf", name="b.pdf")]),
    Message.assistant("Grüße, 世界 🙂"),
    Message.assistant(
        [ReasoningPart(text="hm", signature="s", id="r1", provider="p"), TextPart(text="yes")],
        tool_calls=[BOOK],
        usage=Usage(calls=1, input_tokens=7, output_tokens=3),
        finish_reason="tool_calls",
    ),
    Message.tool("booked", tool_call_id="c1", name="book_ticket").with_id("m7"),
    Message.assistant(),
    Message.assistant(tool_calls=[ToolCall(id="c2", name="book_ticket", raw='{"to": "Bei')]),
    Message(
        role="assistant",
        content=(
            OpaquePart(provider="p", data={"type": "compaction", "items": [1, {"a": None}]}),
            ReasoningPart(text="hm", provider="p", extra={"encrypted": "x"}),
            CallPart(id="c1"),
            TextPart(text="and", provider="p", extra={"citations": [{"url": "https://x.test"}]}),
        ),
        tool_calls=(replace(BOOK, provider="p", extra={"signature": "s"}), ToolCall(id="c2", name="pay")),
        usage=Usage(calls=1, input_tokens=9, cached_tokens=4, cache_write_tokens=3),
        finish_reason="tool_calls",
        provider="p",
        model="m-2026",
        response_id="resp_1",
        raw_finish_reason="tool_use",
        extra={"phase": "commentary"},
    ),
]


class Word(enum.StrEnum):
    YES = "yes"


def counter(prefix: str = "m") -> Callable[[], str]:
    numbers = itertools.count(1)
    return lambda: f"{prefix}{next(numbers)}"


def texts(messages: list[Message]) -> list[str]:
    return [message.text for message in messages]


# What providers want back

A, B = ToolCall(id="a", name="book"), ToolCall(id="b", name="pay")


def marked(*content: str | Part, calls: tuple[ToolCall, ...] = (A, B)) -> Message:
    return Message.assistant(list(content), tool_calls=calls)


def test_the_place_of_a_call_among_the_parts_is_kept() -> None:
    message = marked("first", CallPart(id="a"), "then", CallPart(id="b"))
    assert message.blocks == (TextPart(text="first"), A, TextPart(text="then"), B)
    assert message.text == "firstthen"
    assert message.parts == (TextPart(text="first"), CallPart(id="a"), TextPart(text="then")), "b comes last anyway"


def test_calls_that_come_last_are_not_marked() -> None:
    assert marked("so", CallPart(id="a"), CallPart(id="b")) == marked("so")
    assert marked("so", CallPart(id="b"), CallPart(id="a")) == marked("so"), "neighbours are in call order"
    assert marked("so", CallPart(id="b")).content == "so"
    assert marked("so").blocks == (TextPart(text="so"), A, B)
    assert marked().blocks == (A, B)


def test_a_marker_goes_with_its_call() -> None:
    message = marked(CallPart(id="a"), "then", calls=(A,))
    assert replace(message, tool_calls=()) == Message.assistant("then")
    renamed = message.with_calls([replace(A, id="a~2")])
    assert renamed.blocks == (replace(A, id="a~2"), TextPart(text="then"))
    with pytest.raises(ValueError, match="has 1 tool calls, and 2 are to replace them"):
        message.with_calls([A, B])


def test_calls_with_the_same_id_keep_their_places() -> None:
    first, second = A, replace(A, arguments={"to": "Paris"})
    message = marked(CallPart(id="a"), "then", CallPart(id="a"), "so", calls=(first, second))
    assert message.blocks == (first, TextPart(text="then"), second, TextPart(text="so"))


SIGNED = EVERY_KIND[-1]


def test_a_provider_gets_back_all_that_it_sent() -> None:
    assert SIGNED.for_provider("p") is SIGNED
    assert Message.user("hi").for_provider("p") == Message.user("hi")


def test_another_provider_gets_neither_signatures_nor_opaque_data() -> None:
    other = SIGNED.for_provider("q")
    assert other.blocks == (BOOK, TextPart(text="and"), ToolCall(id="c2", name="pay"))
    assert other.extra is None
    plain = Message.assistant([ReasoningPart(text="hm"), ReasoningPart(text="so", provider="p"), "yes"])
    assert plain.for_provider("q").parts == (
        ReasoningPart(text="hm"),
        ReasoningPart(text="so"),
        TextPart(text="yes"),
    )


def test_changed_arguments_keep_what_the_provider_said_of_the_call() -> None:
    call = ToolCall(id="c", name="book", raw="{", provider="p", extra={"signature": "s"})
    assert call.with_arguments({"to": "Rome"}) == replace(call, raw=None, arguments={"to": "Rome"})


@pytest.mark.parametrize(
    "make",
    [
        lambda: TextPart(text="a", extra={}),
        lambda: ReasoningPart(extra={"a": 1}),
        lambda: ReasoningPart(signature="s"),
        lambda: ToolCall(id="c", name="n", extra={"a": 1}),
        lambda: Message(role="assistant", extra={"a": 1}),
    ],
    ids=range(5),
)
def test_opaque_data_says_whose_it_is(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match="without provider"):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: TextPart(text="a", provider="p", extra=cast("Any", [1])),
        lambda: ToolCall(id="c", name="n", provider="p", extra={"a": {1}}),
        lambda: OpaquePart(provider="p", data=cast("Any", b"x")),
        lambda: OpaquePart(provider=cast("Any", None), data={}),
        lambda: CallPart(id=cast("Any", 1)),
        lambda: Message(role="assistant", model=cast("Any", 5)),
        lambda: Message(role="assistant", provider=cast("Any", 5)),
    ],
    ids=range(7),
)
def test_opaque_data_is_json(make: Callable[[], object]) -> None:
    with pytest.raises(TypeError):
        make()


def test_opaque_data_is_frozen() -> None:
    data = {"items": [1]}
    part = OpaquePart(provider="p", data=data)
    data["items"].append(2)
    assert part.data == {"items": [1]}
    with pytest.raises(TypeError, match="frozen"):
        cast("Any", part.data)["items"].append(2)


# Messages as values


@pytest.mark.parametrize("message", EVERY_KIND)
def test_a_message_comes_back_from_json_as_it_was(message: Message) -> None:
    data = msgspec.json.encode(message)
    assert msgspec.json.decode(data, type=Message) == message
    assert msgspec.convert(msgspec.json.decode(data), Message) == message
    assert msgspec.json.decode(data)["$t"] == "message"


def test_json_holds_what_was_said_and_nothing_more() -> None:
    assert msgspec.json.encode(Message.user("hi")) == b'{"$t":"message","role":"user","content":"hi"}'
    assert msgspec.json.encode(Message.assistant(tool_calls=[BOOK]).with_id("m1")) == (
        b'{"$t":"message","role":"assistant","tool_calls":'
        b'[{"id":"c1","name":"book_ticket","arguments":{"to":"Beijing","seats":[1,2]}}],"id":"m1"}'
    )
    assert msgspec.json.encode(Message.user([IMAGE])) == (
        b'{"$t":"message","role":"user","content":[{"type":"image","data":"iVBORw==","media_type":"image/png"}]}'
    )


def test_text_alone_is_the_same_message_however_it_was_given() -> None:
    assert Message.user("hi") == Message.user(["hi"]) == Message.user([TextPart(text="hi")])
    assert Message.user([]) == Message.user("")
    assert Message.user("hi").parts == (TextPart(text="hi"),)
    assert Message.user("").parts == ()


def test_text_is_the_text_parts_put_together() -> None:
    message = Message.assistant([ReasoningPart(text="hm"), "a", IMAGE, "b"])
    assert message.text == "ab"
    assert [type(part) for part in message.parts] == [ReasoningPart, TextPart, ImagePart, TextPart]


def test_with_text_keeps_the_rest() -> None:
    message = Message.user([IMAGE, "a", "b"], name="ann").with_id("m1")
    assert message.with_text("c") == Message.user([IMAGE, "c"], name="ann").with_id("m1")
    assert Message.user([IMAGE]).with_text("c") == Message.user([IMAGE, "c"])
    assert Message.user("a").with_text("c") == Message.user("c")


def test_a_str_subclass_is_kept_as_plain_text() -> None:
    message = Message.user(Word.YES)
    assert type(message.text) is str
    assert message == Message.user("yes")


def test_messages_are_immutable_and_hashable() -> None:
    message = Message.assistant("x", tool_calls=[BOOK])
    with pytest.raises(AttributeError):
        message.role = "user"  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(TypeError, match="frozen"):
        cast("dict[str, Any]", BOOK.arguments)["to"] = "Paris"
    assert copy.deepcopy(message) == message
    assert len({message, copy.deepcopy(message), Message.user("x")}) == 2


def test_a_tool_calls_arguments_stay_when_their_source_changes() -> None:
    source: dict[str, Any] = {"to": {"city": "Beijing"}}
    call = ToolCall(id="c1", name="book", arguments=source)
    source["to"]["city"] = "Paris"
    assert call.arguments == {"to": {"city": "Beijing"}}
    assert type(dict(call.arguments)) is dict


def test_usage_adds_up() -> None:
    one = Usage(calls=1, input_tokens=5, output_tokens=2, cached_tokens=3, reasoning_tokens=1)
    assert one + one == Usage(calls=2, input_tokens=10, output_tokens=4, cached_tokens=6, reasoning_tokens=2)
    assert sum([one, one], Usage()).total_tokens == 14


MISTAKES: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: Message(role=cast("Any", "bot")), ValueError, "role is 'bot'.*system, user, assistant, tool"),
    (lambda: Message.user(cast("Any", None)), TypeError, "text is a NoneType"),
    (lambda: Message.user(cast("Any", {"text": "x"})), TypeError, "text is a dict"),
    (lambda: Message.user(cast("Any", ["a", 3])), TypeError, r"content\[1\] is an int \(3\).*TextPart or ImagePart"),
    (lambda: Message.user("\ud800"), ValueError, r"Message\.content holds the lone surrogate"),
    (lambda: Message.user("a", name="\ud800"), ValueError, "A text field of Message holds the lone surrogate"),
    (lambda: Message.user("a", name=cast("Any", 3)), TypeError, "A text field of Message is an int"),
    (lambda: Message.assistant(tool_calls=cast("Any", [{"id": "c1"}])), TypeError, r"tool_calls\[0\] is a dict"),
    (lambda: Message.assistant(tool_calls=cast("Any", BOOK)), TypeError, "tool_calls is a ToolCall.*list"),
    (lambda: Message.assistant(usage=cast("Any", {})), TypeError, "usage is a dict"),
    (lambda: Message(role="tool", content="x"), ValueError, "no tool_call_id"),
    (lambda: ToolCall(id=cast("Any", None), name="a"), TypeError, r"ToolCall\.id is a NoneType"),
    (lambda: ToolCall(id="c", name="a", arguments={"a": {1}}), TypeError, r"ToolCall\.arguments\.a is a set"),
    (lambda: ToolCall(id="c", name="a", arguments=cast("Any", "{}")), TypeError, r"ToolCall\.arguments is a str"),
    (lambda: ToolCall(id="c", name="a", arguments={"a": float("nan")}), ValueError, "is nan"),
    (lambda: ToolCall(id="c", name="a", raw=cast("Any", b"{")), TypeError, r"ToolCall\.raw is a bytes"),
    (lambda: ToolCall(id="c", name="a", arguments={"a": 1}, raw="{"), ValueError, "both arguments and raw"),
    (lambda: Usage(input_tokens=cast("Any", None)), ValueError, "has the count None"),
    (lambda: Usage(output_tokens=-1), ValueError, "has the count -1"),
    (lambda: ImagePart(), ValueError, "neither of url and data"),
    (lambda: ImagePart(url="u", data=b"", media_type="image/png"), ValueError, "both of url and data"),
    (lambda: AudioPart(data=b"x"), ValueError, "AudioPart has data without media_type"),
    (lambda: FilePart(data=cast("Any", bytearray(b"x")), media_type="a/b"), TypeError, "is a bytearray"),
    (lambda: AppendMessages(cast("Any", ["hi"])), TypeError, r"AppendMessages\.messages\[0\] is a str"),
    (lambda: AppendMessages(cast("Any", Message.user("hi"))), TypeError, "Give a list"),
    (lambda: ReplaceLastUser(cast("Any", 3)), TypeError, r"ReplaceLastUser\.text is an int"),
]


@pytest.mark.parametrize(("build", "error", "message"), MISTAKES)
def test_mistakes_are_refused_where_they_are_made(
    build: Callable[[], object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        build()


@pytest.mark.parametrize(
    "data", [b'{"$t":"message","role":"bot"}', b'{"$t":"message","role":"tool","content":"x"}', b"{"]
)
def test_stored_bytes_that_are_no_message_are_a_decode_error(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(data, type=Message)


# Changing a list of messages: rule S8


def changed(old: list[Message], update: object, ids: Callable[[], str] | None = None) -> list[Message]:
    before = list(old)
    change = apply_messages(old, update, ids)
    assert old == before  # rule S8: operations are pure
    return change.on(old)


def test_one_message_or_a_list_appends() -> None:  # rule S8
    old = [Message.user("a")]
    assert texts(changed(old, Message.assistant("b"))) == ["a", "b"]
    assert texts(changed(old, [Message.assistant("b"), Message.user("c")])) == ["a", "b", "c"]
    assert texts(changed(old, (Message.assistant("b"),))) == ["a", "b"]
    assert changed(old, []) == old


def test_an_append_is_told_as_its_tail() -> None:  # rule S8
    new = Message.assistant("b")
    assert apply_messages([Message.user("a")], new) == MessagesChange(tail=[new])
    assert apply_messages([Message.user("a")], [AppendMessages((new,)), new]) == MessagesChange(tail=[new, new])


def test_operations_apply_left_to_right() -> None:  # rule S8
    old = [Message.user("a"), Message.assistant("b")]
    update = [Message.user("x"), RemoveAllMessages(), AppendMessages((Message.user("c"),)), ReplaceLastUser("d")]
    assert apply_messages(old, update) == MessagesChange(whole=[Message.user("d")])
    assert texts(changed(old, [ReplaceLastUser("x"), Message.user("c"), ReplaceLastUser("d")])) == ["x", "b", "d"]


def test_replace_last_user_changes_the_one_nearest_the_end() -> None:  # rule S8
    old = [Message.user("a"), Message.user("b").with_id("u2"), Message.assistant("c")]
    assert changed(old, ReplaceLastUser("x")) == [old[0], Message.user("x").with_id("u2"), old[2]]


def test_replace_last_user_appends_when_there_is_none() -> None:  # rule S8
    old = [Message.assistant("a")]
    assert apply_messages(old, ReplaceLastUser("x"), counter()) == MessagesChange(
        tail=[Message.user("x").with_id("m1")]
    )


def test_replace_last_user_in_what_was_just_appended_is_still_an_append() -> None:  # rule S8
    change = apply_messages([Message.user("a")], [Message.user("b"), ReplaceLastUser("x")])
    assert change == MessagesChange(tail=[Message.user("x")])


def test_remove_all_empties_and_what_follows_still_applies() -> None:  # rule S8
    old = [Message.user("a")]
    assert apply_messages(old, RemoveAllMessages()) == MessagesChange(whole=[])
    assert changed(old, [RemoveAllMessages(), Message.user("b")]) == [Message.user("b")]
    assert apply_messages([], [Message.user("b"), RemoveAllMessages()]) == MessagesChange()


def test_ids_are_given_to_messages_without_one() -> None:  # rule S8
    old = [Message.user("a").with_id("m1")]
    ids = counter("n")
    new = changed(old, [Message.user("b"), Message.user("c").with_id("own"), ReplaceLastUser("d")], ids)
    assert [message.id for message in new] == ["m1", "n1", "own"]
    assert changed(old, Message.user("b"))[1].id is None


def test_a_message_with_the_id_of_an_existing_one_replaces_it_in_place() -> None:  # rule S8
    old = [Message.user("a").with_id("m1"), Message.assistant("b").with_id("m2")]
    better = Message.user("better").with_id("m1")
    assert apply_messages(old, [better, Message.user("c")]) == MessagesChange(whole=[better, old[1], Message.user("c")])
    assert texts(changed(old, [Message.user("c").with_id("m3"), Message.user("d").with_id("m3")])) == ["a", "b", "d"]
    again = [RemoveAllMessages(), Message.user("new").with_id("m1")]
    assert texts(changed(old, again)) == ["new"]


def test_a_message_that_is_there_already_changes_nothing() -> None:  # rule S8
    old = [Message.user("a").with_id("m1")]
    assert apply_messages(old, [*old, Message.user("b")]) == MessagesChange(tail=[Message.user("b")])
    call = [Message.assistant(tool_calls=[ToolCall(id="c", name="t", arguments={"n": 1})]).with_id("m1")]
    other = Message.assistant(tool_calls=[ToolCall(id="c", name="t", arguments={"n": True})]).with_id("m1")
    assert apply_messages(call, other).whole == [other]


def test_known_saves_the_walk_over_old_messages() -> None:
    class Unread(list[Message]):
        def __iter__(self) -> Any:
            raise AssertionError("walked over")

    old = Unread([Message.user("a").with_id("m1")])
    new = Message.user("b").with_id("m2")
    assert apply_messages(old, [new, Message.user("c")], None, {"m1"}.__contains__).tail == [new, Message.user("c")]


@pytest.mark.parametrize("update", [None, "hi", {"role": "user", "content": "hi"}, 3, [[Message.user("a")]], {"a"}])
def test_anything_else_is_a_typed_error_that_takes_no_id(update: object) -> None:  # rule S8
    taken: list[str] = []

    def new_id() -> str:
        taken.append("m")
        return "m"

    listed = [Message.user("a"), update]
    for wrong in (update, listed):
        with pytest.raises(TypeError, match=r"is an? \w+ \(.*Message\.user\('\.\.\.'\).*ReplaceLastUser"):
            apply_messages([], wrong, new_id)
    assert taken == []


def test_the_error_names_the_item() -> None:  # rule S8
    with pytest.raises(TypeError, match=r"Item 1 of .* is a dict \(\{'role': 'user'\}\)"):
        apply_messages([], [Message.user("a"), {"role": "user"}])


MESSAGES = st.builds(
    Message,
    role=st.sampled_from(["user", "assistant"]),
    content=st.sampled_from("abc"),
    id=st.none() | st.sampled_from(["i1", "i2", "i3"]),
)
STEPS = st.one_of(
    MESSAGES,
    st.builds(AppendMessages, st.lists(MESSAGES, max_size=2).map(tuple)),
    st.builds(ReplaceLastUser, st.sampled_from("xyz")),
    st.just(RemoveAllMessages()),
)


def plainly(old: list[Message], update: list[Any]) -> list[Message]:
    """Rule S8 written down without any thought of speed."""
    messages = list(old)
    for step in update:
        match step:
            case Message():
                ids = [message.id for message in messages]
                if step.id is not None and step.id in ids:
                    messages[ids.index(step.id)] = step
                else:
                    messages.append(step)
            case AppendMessages():
                messages = plainly(messages, list(step.messages))
            case ReplaceLastUser():
                users = [i for i, message in enumerate(messages) if message.role == "user"]
                if users:
                    messages[users[-1]] = messages[users[-1]].with_text(step.text)
                else:
                    messages.append(Message.user(step.text))
            case _:
                messages = []
    return messages


@given(st.lists(MESSAGES, max_size=4), st.lists(STEPS, max_size=5), st.booleans())
def test_any_update_does_what_the_rule_says(drawn: list[Message], update: list[Any], tell: bool) -> None:  # rule S8
    old = plainly([], drawn)
    ids = {message.id for message in old}
    change = apply_messages(old, update, None, ids.__contains__ if tell else None)
    assert change.on(old) == plainly(old, update)
    assert change.whole is None or change.tail == []
