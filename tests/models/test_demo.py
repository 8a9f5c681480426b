"""The demo's model books tickets; it is the same every time."""

from __future__ import annotations

import pytest

from adjourn import Message, ToolCall
from adjourn.models import DemoModel, ModelRequest, ToolSpec, generate, stream

BOOK = ToolSpec(name="book_ticket", schema={"type": "object"})


async def say(*messages: Message, tools: tuple[ToolSpec, ...] = (BOOK,)) -> Message:
    return await generate(DemoModel(delay=0), ModelRequest(messages=messages, tools=tools))


def booking(location: str, passenger_name: str, phone: str = "not given", id: str = "call_1") -> tuple[ToolCall, ...]:
    arguments = {"location": location, "passenger_name": passenger_name, "phone": phone}
    return (ToolCall(id=id, name="book_ticket", arguments=arguments),)


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("Book a ticket for Martin to Beijing", booking("Beijing", "Martin")),
        ("book a ticket to New York for Ann Lee, please.", booking("New York", "Ann Lee")),
        ("i want to go to new york tomorrow, a ticket for ann", booking("New York", "Ann")),
        ("A ticket to Zürich for Zoë. Phone: +41 44 123 45", booking("Zürich", "Zoë", "+41 44 123 45")),
    ],
)
async def test_it_understands_what_to_book(text: str, calls: tuple[ToolCall, ...]) -> None:
    message = await say(Message.system("You book tickets for Bob to Rome."), Message.user(text))
    assert message.tool_calls == calls
    assert message.finish_reason == "tool_calls"
    assert message.usage is not None
    assert message.usage.calls == 1


async def test_it_asks_for_what_is_missing() -> None:
    talk = [Message.user("hello")]
    for reply in ("Beijing", "Martin"):
        asked = await say(*talk)
        assert asked.text.endswith("?")
        assert asked.tool_calls == ()
        talk += [asked, Message.user(reply)]
    assert (await say(*talk)).tool_calls == booking("Beijing", "Martin")


async def test_it_says_what_came_of_it_and_books_the_next() -> None:
    talk = [Message.user("Book a ticket for Martin to Beijing")]
    talk.append(await say(*talk))
    booked = Message.tool("booked", tool_call_id="call_1")
    talk += [booked, await say(*talk, booked)]
    assert talk[-1].text == "Done! The ticket to Beijing for Martin is booked. Have a good trip."
    talk.append(Message.user("Another one for Ann to Paris"))
    assert (await say(*talk)).tool_calls == booking("Paris", "Ann", id="call_2")
    talk += [await say(*talk), Message.tool("Refused: too late.", tool_call_id="call_2")]
    assert (await say(*talk)).text == "No ticket to Paris was booked. I was told: Refused: too late."


async def test_without_its_tool_it_says_so() -> None:
    message = await say(Message.user("Book a ticket for Martin to Beijing"), tools=())
    assert "no tool `book_ticket`" in message.text


async def test_it_streams_word_by_word() -> None:
    request = ModelRequest(messages=[Message.user("hello")])
    words = [chunk.text async for chunk in stream(DemoModel(delay=0), request) if chunk.text]
    assert words == ["I", " book", " train", " tickets.", " Where", " would", " you", " like", " to", " go?"]
