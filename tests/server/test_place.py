"""Places: a client that only adds pieces up, and gives back the id it has, reads every text once, whoever it asks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from adjourn.events import Delta, Done, Event, MessageEvent, Retrying, ToolCallPiece, ToolResult
from adjourn.messages import Message
from adjourn.server import App
from adjourn.server._drafts import Drafts
from adjourn.server._place import MOST, PLACE, Place

from .agents import GATES, WORDS, counter
from .serving import Frame, Serving, types


class Reader:
    """A client without any logic: it adds up pieces, drops what a `retry` says, and keeps the id of the last frame."""

    def __init__(self) -> None:
        self.place = "0~"
        self.texts: dict[str, str] = {}
        self.ended: list[str] = []
        self._addresses: dict[str, str] = {}

    def read(self, event: Event, place: str) -> None:
        self.place = place
        match event:
            case Delta():
                name = event.message_id or event.address
                self._addresses[name] = event.address
                self.texts[name] = self.texts.get(name, "") + event.text
            case Retrying():
                self.texts = {name: t for name, t in self.texts.items() if self._addresses[name] != event.address}
            case MessageEvent(message=message):
                self.ended.append(self.texts.pop(message.id or "", message.text))
            case ToolResult():
                self.ended.append(self.texts.pop(event.address, event.result))
            case _:
                pass


def sent(place: Place, events: list[Event], now: int, *, here: bool) -> Iterator[tuple[Event, str, int]]:
    """What a server sends a client that comes when so much has happened, and how much has happened by then.

    A process that does not run the session only has what is stored.
    """
    writing, since = Drafts(), place.seq
    for event in events[:now]:
        writing.note(event)
        if event.seq is not None and event.seq > since:
            for each in place.passed(event):
                yield each, str(place), now
    for each in place.caught_up(writing.now() if here else []):
        yield each, str(place), now
    for number, event in enumerate(events[now:], now + 1):
        if here or event.seq is not None:
            for each in place.passed(event):
                yield each, str(place), number


WRITTEN = st.lists(st.sampled_from(["a", "b", "é", "ab", "🙂"]), min_size=1, max_size=4)
"""Pieces of few kinds: a text that takes the place of another often begins as that one does."""


@st.composite
def runs(draw: st.DrawFn) -> list[Event]:
    """What happens in a run whose two writers write some texts each, and some of them twice, since they fail."""
    writers: list[list[Event]] = []
    for address in "AB":
        written: list[Event] = []
        writers.append(written)
        for number, is_tool in enumerate(draw(st.lists(st.booleans(), max_size=2))):
            name = f"m{address}{number}"
            where = f"{address};tool:t:c{number}" if is_tool else address
            for void in draw(st.lists(WRITTEN, max_size=2)):
                written += pieces(void, where, name, is_tool=is_tool)
                written.append(Retrying(address=where, attempt=1, max_attempts=3, delay=0.0, error="gone"))
            said = draw(WRITTEN)
            written += pieces(said, where, name, is_tool=is_tool)
            if is_tool:
                written.append(ToolResult(address=where, tool="t", call_id="c", result="".join(said)))
            else:
                written.append(MessageEvent(address=where, message=Message.assistant("".join(said)).with_id(name)))
    mixed: list[Event] = []
    while writers[0] and writers[1]:
        mixed.append(writers[draw(st.integers(0, 1))].pop(0))
    mixed += [*writers[0], *writers[1], Done(output="")]
    durable = iter(range(1, len(mixed) + 1))
    return [each if isinstance(each, Delta | Retrying) else replace(each, seq=next(durable)) for each in mixed]


def pieces(texts: list[str], address: str, name: str, *, is_tool: bool) -> list[Event]:
    call, message = ("c", None) if is_tool else (None, name)
    return [Delta(address=address, text=text, call_id=call, message_id=message) for text in texts]


@given(runs(), st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20), st.booleans()), max_size=4), st.booleans())
def test_cut_anywhere_the_pieces_add_up_to_every_text(
    events: list[Event], visits: list[tuple[int, int, bool]], here: bool
):  # rules V3, V10
    reader, now, uncut = Reader(), 0, Reader()
    shown = set[tuple[str, str]]()
    for event in events:
        uncut.read(event, "")
        shown |= uncut.texts.items()
    for later, count, is_here in [*visits, (0, 1000, here)]:
        now = min(now + later, len(events))
        assert re.fullmatch(PLACE, reader.place)
        place = Place.read(reader.place)
        assert place is not None
        for event, at, number in islice(sent(place, events, now, here=is_here), count):
            reader.read(event, at)
            now = max(now, number)
            assert reader.texts.items() <= shown  # Nothing is on the screen, at any time, that nobody wrote.
    assert reader.ended == uncut.ended


def test_more_texts_than_a_place_names_are_read_from_their_beginning():
    reader, place, writing = Reader(), Place.read("0~"), Drafts()
    assert place is not None
    names = [f"m{number}" for number in range(MOST + 1)]
    said = [Delta(address=f"agent:{name}", text="so far ", message_id=name) for name in names]
    for piece in said:
        writing.note(piece)
        for event in place.passed(piece):
            reader.read(event, str(place))
    assert reader.place == "0~*"
    back = Place.read(reader.place)
    assert back is not None
    for event in back.caught_up(writing.now()):
        reader.read(event, str(back))
    assert reader.texts == dict.fromkeys(names, "so far ")
    # An id that a client has made up names no more than that, either.
    assert str(Place.read("7~" + "~1,2,t:1:3" * 65)) == "7~*"


def test_a_call_that_is_being_written_goes_on_where_it_was_cut():  # rule V3
    def call(arguments: str, index: int = 0) -> Delta:
        piece = ToolCallPiece(index=index, id="c", name="pay", arguments=arguments)
        return Delta(address="agent:A", message_id="m1", tool_call=piece)

    place, writing = Place.read("0~"), Drafts()
    assert place is not None
    for piece in (call(""), call('{"cents"')):
        writing.note(piece)
        list(place.passed(piece))
    at = str(place)
    for piece in (call(": 1}"), call("", index=1)):
        writing.note(piece)
    back = Place.read(at)
    assert back is not None
    assert list(back.caught_up(writing.now())) == [call(": 1}"), call("", index=1)]


def test_a_text_that_begins_again_while_its_client_is_back_is_not_added_to_the_old_one():  # rules V3, A9
    place = Place.read("0~")
    assert place is not None
    wrong, right = (Delta(address="agent:A", text=text, message_id="m1") for text in ("wrong ", "right "))
    list(place.passed(wrong))
    back = Place.read(str(place))
    assert back is not None
    assert list(back.caught_up([])) == []  # The model has failed, and has yet to be asked again.
    assert [type(event) for event in back.passed(right)] == [Retrying, Delta]
    assert list(back.passed(right)) == [right]


# On the wire


def added(frames: list[Frame]) -> str:
    return "".join(frame.data["text"] for frame in frames if frame.type == "delta")


def last_id(frames: list[Frame]) -> str:
    return [frame.id for frame in frames if frame.id is not None][-1]


@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "elsewhere"])
def test_on_the_wire_each_piece_comes_once(elsewhere: bool, tmp_path: Path):  # rules V3, V8, V10, failure 79
    store = f"sqlite:///{tmp_path / 's.db'}"
    with Serving(App([counter()], store=store)) as one, Serving(App([counter()], store=store)) as two:
        other = two if elsewhere else one
        chat = {"agent": "counter", "message": "count"}
        whole = one.open("POST", "/api/v1/chat", chat, last_event_id="0~").all()
        for count in range(1, len(whole) + 1):
            for gate in ("", f"{elsewhere} {count}"):
                chat["message"] = f"count {gate}".strip()
                stream = one.open("POST", "/api/v1/chat", chat, last_event_id="0~")
                with stream:
                    frames: list[Frame] = []
                    for frame in stream.frames():
                        frames.append(frame)
                        if len(frames) == count or (gate and added(frames) == "".join(WORDS[:3])):
                            break
                with other.events(stream.session_id, last_event_id=last_id(frames)) as back:
                    assert back.status == 200
                    if gate:
                        frames += back.until("caught_up")
                        GATES.open(gate)
                    frames += back.all()
                assert "draft" not in types(frames)
                # The message has all of a text of which nothing was read before it was whole.
                said = [frame.data["output"] for frame in frames if frame.type == "done"]
                assert (added(frames) or said[0]) == "".join(WORDS)
                assert "retry" not in types(frames)
                numbers = [frame.data["seq"] for frame in frames if frame.data is not None and "seq" in frame.data]
                told = [frame.data["seq"] for frame in frames if frame.type == "caught_up"]
                assert sorted(set(numbers)) == list(range(1, max(numbers) + 1))
                assert len(numbers) - len(told) == len(set(numbers))


def test_who_gives_a_plain_number_gets_plain_numbers_and_drafts():  # rules V3, V10
    with Serving(App([counter()])) as server:
        with server.chat(agent="counter", message="count plain") as stream:
            frames = stream.until("delta")
        GATES.reached("plain")
        with server.events(stream.session_id, last_event_id=last_id(frames)) as back:
            rest = back.until("draft")
            assert rest[-1].data["text"] == "".join(WORDS[:3])
            GATES.open("plain")
            rest += back.all()
    assert all(frame.id.isdigit() for frame in frames + rest if frame.id is not None)
    assert [frame.type for frame in frames + rest if frame.type == "delta" and frame.id is not None] == []
