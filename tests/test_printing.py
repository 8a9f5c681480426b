"""What people see of events. Somebody may decide by it, so nothing in it may deceive them (failures: attack 6)."""

import io
import os
import pty
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TextIO, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from pydantic import BaseModel

from adjourn import ChatModelAgent, Message, Runner, ToolCall, print_event, stored, tool
from adjourn._screen import columns, wrapped
from adjourn.events import (
    BreakLoop,
    Cancelled,
    CheckpointSaved,
    Custom,
    Delta,
    Done,
    Event,
    Exit,
    Failed,
    Interrupt,
    Interrupted,
    MessageEvent,
    NodeEnd,
    NodeStart,
    Progress,
    Retrying,
    ToolCalled,
    ToolResult,
    Transfer,
)
from adjourn.testing import ScriptedModel

PAY = ToolCall(id="c1", name="pay", arguments={"to": "Ada", "cents": 100})
ADDRESS = "runnable:g;node:research;node:read:2"


def printed(*events: Event) -> str:
    file = io.StringIO()
    for event in events:
        print_event(event, file)
    return file.getvalue()


def asking(**fields: Any) -> Interrupted:
    asked = Interrupt(id="runnable:g;node:approve", address="runnable:g;node:approve", **fields)
    return Interrupted(interrupts=(asked,), checkpoint_id="b.3")


LINES: list[tuple[Event, str]] = [
    (MessageEvent(message=Message.user("hi")), "● user  hi\n"),
    (MessageEvent(message=Message.assistant("hello"), agent="Desk"), "● Desk  hello\n"),
    (
        MessageEvent(message=Message.assistant(tool_calls=[PAY])),
        '● assistant\n  call    pay (c1)\n        │ to: "Ada"\n        │ cents: 100\n',
    ),
    (ToolCalled(call=ToolCall(id="c1", name="pay", arguments={"cents": 1})), "→ pay (c1)  cents: 1\n"),
    (ToolResult(tool="pay", call_id="c1", result="paid"), "← pay (c1)  paid\n"),
    (ToolResult(tool="pay", call_id="c1", error="no money"), "✘ pay (c1) failed  no money\n"),
    (Transfer(agent="A", target="B"), "⇒ A hands over to B\n"),
    (Exit(result="enough"), "■ exit  enough\n"),
    (BreakLoop(agent="A"), "■ A leaves its loop\n"),
    (NodeStart(node="read", address=ADDRESS), "▶ research › read 2\n"),
    (NodeStart(node="read", address="", attempt=2), "▶ read, attempt 2\n"),
    (NodeEnd(node="read", address=ADDRESS, seconds=1.25), "✔ research › read 2, 1.2 s\n"),
    (NodeEnd(node="read", seconds=0.0021), "✔ read, 2.1 ms\n"),
    (NodeEnd(node="read", cached=True), "✔ read, from the cache\n"),
    (CheckpointSaved(checkpoint_id="b.1", source="step", step=1), "· checkpoint b.1, step 1\n"),
    (Custom(address="runnable:g;node:read", data={"rows": 3}), "• read  rows: 3\n"),
    (Custom(data=[1, 2]), "• emitted  [1, 2]\n"),
    (Done(), "✔ done\n"),
    (Done(output="42"), "✔ done  42\n"),
    (Failed(error="ValueError", message="no"), "✘ failed with ValueError  no\n"),
    (Cancelled(mode="after_step"), "■ cancelled (after_step), can be recovered\n"),
    (Delta(text="He"), "● assistant  He"),
    (
        Retrying(attempt=1, max_attempts=3, delay=0.5, error="busy"),
        "↻ attempt 1 of 3 failed, again in 500.0 ms  busy\n",
    ),
    (Progress(message="reading", fraction=0.4), "… 40% reading\n"),
    (Progress(message="pages", done=3), "… 3 pages\n"),
]


@pytest.mark.parametrize(("event", "line"), LINES, ids=[line.strip() for _, line in LINES])
def test_an_event_is_a_line(event: Event, line: str) -> None:
    assert printed(event) == line


def test_every_event_can_be_printed() -> None:
    assert {type(event) for event, _ in LINES} | {Interrupted} == set(get_args(Event))


def test_a_question_shows_all_that_it_takes_to_answer_it() -> None:
    event = asking(prompt="Pay?", info={"to": "Ada", "cents": 100}, key="ok", choices=(True, False))
    assert printed(event).splitlines() == [
        "⏸ waits for an answer, checkpoint b.3",
        "  asks    Pay?",
        '  shows   to: "Ada"',
        "        │ cents: 100",
        "  answer  true or false",
        "  id      runnable:g;node:approve, key ok",
    ]


def test_several_questions_follow_on_one_another() -> None:
    one, two = asking(prompt="One?").interrupts[0], asking(prompt="Two?").interrupts[0]
    lines = printed(Interrupted(interrupts=(one, two), checkpoint_id="b.3")).splitlines()
    assert lines[0] == "⏸ waits for 2 answers, checkpoint b.3"
    assert [line for line in lines if "asks" in line] == ["  asks    One?", "  asks    Two?"]


POINT = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
    "required": ["x"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("schema", "line"),
    [
        (None, "anything"),
        ({"type": "integer"}, "integer"),
        ({"type": "integer", "minimum": 1}, "integer (minimum: 1)"),
        ({"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}, "ok: boolean"),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"type": "string"}}}, "string"),
        ({"anyOf": [{"type": "boolean"}, {"enum": ["yes", "no"]}]}, 'boolean\n        │ "yes" or "no"'),
        ({"anyOf": [{"type": "boolean"}, {"minimum": 1}]}, "boolean\n        │ anything (minimum: 1)"),
        (
            {"anyOf": [{"type": "null"}, {"anyOf": [{"type": "string"}, {"type": "integer"}]}]},
            "null\n        │ string\n        │ integer",
        ),
        (
            {"type": "object", "properties": {"at": {"$ref": "#/$defs/P"}}, "$defs": {"P": POINT}},
            'at (optional): {"x": integer, "y" (optional): integer}',
        ),
        ({"type": "object", "additionalProperties": {"type": "string"}}, "object of string"),
        ({"allOf": [{"type": "string"}, {"minLength": 2}]}, "string and anything (minLength: 2)"),
        (
            {
                "anyOf": [
                    {"type": "object", "properties": {"a": {"const": "x"}, "b": {"type": ["integer", "null"]}}},
                    True,
                ]
            },
            '{"a" (optional): "x", "b" (optional): integer or null}\n        │ anything',
        ),
        (
            {"anyOf": [{"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2}]},
            "list of string (2 items)",
        ),
    ],
)
def test_the_answer_is_described_in_words_and_completely(schema: dict[str, Any] | None, line: str) -> None:
    assert f"  answer  {line}\n" in printed(asking(prompt="?", schema=schema))


def test_a_type_that_refers_to_itself_is_named_in_the_end() -> None:
    tree = {"type": "object", "properties": {"left": {"$ref": "#/$defs/Tree"}, "right": {"$ref": "#/$defs/Tree"}}}
    out = printed(asking(prompt="?", schema={"$ref": "#/$defs/Tree", "$defs": {"Tree": tree}}))
    assert '"left" (optional): Tree' in out
    assert len(out) < 5_000


class Seat(msgspec.Struct, frozen=True):
    row: int
    letter: str


@tool(approval=True)
async def book(trip: str, seats: list[Seat], note: Seat | str | None = None) -> str:
    """Book seats."""
    return trip


async def test_an_approval_is_a_few_lines() -> None:
    call = ToolCall(id="c1", name="book", arguments={"trip": "Rome", "seats": [{"row": 7, "letter": "A"}]})
    agent = ChatModelAgent("desk", model=ScriptedModel([Message.assistant(tool_calls=[call])]), tools=[book])
    event = [event async for event in Runner(agent).run("go")][-1]
    assert isinstance(event, Interrupted)
    *lines, reach, answer, id_ = printed(event).splitlines()[1:]
    assert lines == [
        "  tool    book",
        '  with    trip: "Rome"',
        '        │ seats: [{"row": 7, "letter": "A"}]',
        "        │ note: null",
    ]
    assert reach.startswith("  reach   Remembered for the session")
    assert answer == "  answer  yes or no, or a decision: approve, edit, reject, respond"
    assert id_ == "  id      agent:desk;tool:book:c1, key approval"


@tool(approval=True)
async def leave(trip: str) -> str:
    """Leave."""
    return trip


async def test_what_several_approvals_have_in_common_is_said_once() -> None:
    rome = ToolCall(id="c1", name="leave", arguments={"trip": "Rome"})
    calls = [rome, replace(rome, id="c2"), ToolCall(id="c3", name="book", arguments={"trip": "Rome", "seats": []})]
    agent = ChatModelAgent("desk", model=ScriptedModel([Message.assistant(tool_calls=calls)]), tools=[book, leave])
    event = [event async for event in Runner(agent).run("go")][-1]
    reaches = [line.split()[1:] for line in printed(event).splitlines() if line.startswith("  reach")]
    assert reaches[1] == ["as", "above"]
    assert [("all calls of leave" in " ".join(each), "all calls of book" in " ".join(each)) for each in reaches] == [
        (True, False),
        (False, False),
        (False, True),
    ]


@stored("printing.Trip")
@dataclass
class Trip:
    to: str
    seat: Seat


@stored("printing.Stay")
class Stay(BaseModel):
    hotel: str
    nights: int


@pytest.mark.parametrize(
    ("info", "lines"),
    [
        (Trip("Rome", Seat(7, "A")), ['to: "Rome"', 'seat: {"row": 7, "letter": "A"}']),
        (Seat(7, "A"), ["row: 7", 'letter: "A"']),
        (
            {"stay": Stay(hotel="Ritz", nights=2), "trips": [Trip("Rome", Seat(7, "A"))]},
            ['stay: {"hotel": "Ritz", "nights": 2}', 'trips: [{"to": "Rome", "seat": {"row": 7, "letter": "A"}}]'],
        ),
    ],
)
def test_an_object_is_shown_by_its_fields(info: Any, lines: list[str]) -> None:
    shown = printed(asking(prompt="?", info=info)).splitlines()[2:-2]
    assert [line[10:] for line in shown] == lines


def test_the_end_of_a_questions_time_is_shown() -> None:
    assert "  until   2030-" in printed(asking(prompt="?", expires=datetime(2030, 6, 1, tzinfo=UTC)))


# Nobody is deceived


DECEIT = "ok\x1b[2J\u202e live\u200b\n✔ done  approved by ann\n  answer  fake"


@pytest.mark.parametrize(
    "event",
    [
        MessageEvent(message=Message.user(DECEIT)),
        MessageEvent(message=Message.assistant(tool_calls=[ToolCall(id=DECEIT, name=DECEIT, arguments={"a": DECEIT})])),
        ToolResult(tool="t", call_id="c", result=DECEIT),
        Custom(data={DECEIT: DECEIT}),
        Custom(data=DECEIT),
        Failed(error="E", message=DECEIT),
        asking(prompt=DECEIT, info={"x": DECEIT}, key=DECEIT, choices=(DECEIT,)),
        asking(info=[DECEIT], schema={"type": "string", "const": DECEIT}),
        NodeStart(node=DECEIT),
        Progress(message=DECEIT),
    ],
)
def test_text_can_neither_hide_nor_pose_as_ours(event: Event) -> None:
    out = printed(event)
    assert not {"\x1b", "\u202e", "\u200b"} & set(out)
    assert "<U+001B>" in out or "\\u001b" in out
    assert "<U+202E>" in out
    ours = [line for line in out.splitlines() if not line.startswith(("  │ ", "        │ "))]
    assert not any(line.startswith("✔ done") for line in ours)
    assert sum(line.startswith("  answer  ") for line in ours) == isinstance(event, Interrupted)


def test_nothing_is_cut_off() -> None:
    info = {"rows": "\n".join(f"row {number}" for number in range(10_000))}
    out = printed(asking(prompt="?", info=info))
    assert all(f"│     row {number}\n" in out for number in range(10_000))


def test_values_are_shown_by_type() -> None:
    out = printed(Custom(data={"number": 1, "text": "1", "nothing": None, "two words": {"deep": [True]}}))
    assert 'number: 1\n  │ text: "1"\n  │ nothing: null\n  │ "two words": {"deep": [true]}\n' in out


class Opaque:
    def __repr__(self) -> str:
        return "<opaque>"


def test_what_json_does_not_know_is_shown_as_python_has_it() -> None:
    assert printed(Custom(data=[Opaque()])) == '• emitted  ["<opaque>"]\n'
    assert printed(Custom(data=[{("a", 1): 2}])) == "• emitted  [{('a', 1): 2}]\n"


# Text in pieces


def test_pieces_flow_and_the_whole_message_is_not_printed_again() -> None:
    whole = MessageEvent(message=Message.assistant("Hello\nyou"))
    assert printed(Delta(text="Hel"), Delta(text="lo\n"), Delta(text="you"), whole, Done()) == (
        "● assistant  Hello\n  │ you\n✔ done\n"
    )


def test_the_calls_of_a_streamed_message_are_printed_without_its_text() -> None:
    whole = MessageEvent(message=Message.assistant("Hello", tool_calls=[ToolCall(id="c", name="greet")]))
    assert printed(Delta(text="Hello"), whole) == "● assistant  Hello\n● assistant\n  call    greet (c)\n        │ {}\n"


def test_a_message_that_differs_from_its_pieces_is_printed() -> None:
    whole = MessageEvent(message=Message.assistant("Hello you"))
    assert printed(Delta(text="Hello"), whole) == "● assistant  Hello\n● assistant  Hello you\n"


def test_pieces_of_another_message_begin_anew() -> None:
    pieces = [Delta(text="Hel", agent="A", message_id="m1"), Delta(text="lo", agent="A", message_id="m1")]
    others = [Delta(text="Yes", agent="A", message_id="m2"), Delta(text="No", agent="B", message_id="m2")]
    assert printed(*pieces, *others) == "● A  Hello\n● A  Yes\n● B  No"


def test_messages_that_are_written_at_once_are_not_cut_into_words() -> None:
    def piece(agent: str, text: str) -> Delta:
        return Delta(text=text, agent=agent, message_id=f"of {agent}")

    def whole(agent: str, text: str) -> MessageEvent:
        return MessageEvent(message=Message.assistant(text), agent=agent)

    woven = [piece(agent, word) for word in ("One", " two", " three") for agent in ("A", "B")]
    assert printed(*woven, whole("A", "One two three"), whole("B", "One two three")) == (
        "● A  One\n● B  One two three\n● A  One two three\n● B  One two three\n"
    )
    assert printed(*woven, whole("B", "One two three"), whole("A", "One two three")) == (
        "● A  One\n● B  One two three\n● A  One two three\n"
    )
    called = ToolCalled(call=ToolCall(id="c1", name="pay", arguments={"cents": 1}))
    assert printed(piece("A", "One"), called, piece("A", " two"), whole("A", "One two")) == (
        "● A  One\n→ pay (c1)  cents: 1\n● A  One two\n"
    )


@pytest.mark.parametrize("event", [Retrying(attempt=1, max_attempts=3, delay=0.5, error="busy"), Done(), Cancelled()])
def test_a_message_that_is_begun_anew_flows_again(event: Event) -> None:
    piece = Delta(text="Hi", agent="A", message_id="m1")
    assert printed(piece, event, piece).splitlines()[-1] == "● A  Hi"


def test_pieces_hide_nothing() -> None:
    assert printed(Delta(text="a\u202e"), Delta(text="\x1b[2J")) == "● assistant  a<U+202E><U+001B>[2J"


# The screen


class Terminal:
    """A terminal of 40 columns, as far as a program can tell."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COLUMNS", "40")
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.delenv("NO_COLOR", raising=False)
        self._master, slave = pty.openpty()
        self.file: TextIO = os.fdopen(slave, "w", encoding="utf-8")

    def read(self, until: str = "\n") -> str:
        """What came, up to a text that ends it: a terminal hands it out in pieces."""
        seen = b""
        while not seen.endswith(until.replace("\n", "\r\n").encode()):
            seen += os.read(self._master, 65536)
        return seen.decode().replace("\r\n", "\n")

    def close(self) -> None:
        self.file.close()
        os.close(self._master)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    terminal = Terminal(monkeypatch)
    yield terminal
    terminal.close()


def test_a_terminal_has_colours(terminal: Terminal) -> None:
    print_event(Done(), terminal.file)
    assert terminal.read() == "\x1b[32m✔\x1b[0m done\n"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colours_can_be_refused(terminal: Terminal, monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    print_event(Done(), terminal.file)
    assert terminal.read() == "✔ done\n"


def test_on_a_terminal_long_lines_are_broken_behind_the_margin(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    print_event(MessageEvent(message=Message.user("ok" + " " * 34 + "✔ done" + "語" * 20)), terminal.file)
    print_event(Done(), terminal.file)
    first, *rows, _ = terminal.read("\n✔ done\n").splitlines()
    assert first == "● user"
    assert all(row.startswith("  │ ") for row in rows)
    assert len(rows) == 4


def test_on_a_terminal_text_that_flows_stays_behind_the_margin(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    words = ["Seven", " words", " that", " flow", " on", " and", " on.", "\n", "x" * 50, " ", "語" * 20]
    for word in words:
        print_event(Delta(text=word), terminal.file)
    print_event(Done(), terminal.file)
    first, *rows, last = terminal.read("✔ done\n").splitlines()
    assert first == "● assistant  Seven words that flow on "
    assert [row.rstrip() for row in rows] == [
        "  │ and on.",
        f"  │ {'x' * 36}",
        f"  │ {'x' * 14}",
        f"  │ {'語' * 18}",
        "  │ 語語",
    ]
    assert last == "✔ done"


def test_words_that_come_in_pieces_are_not_broken(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    for piece in ("The quick brown fox jumps", " o", "ver", " the", " 日本", "語 ", "x" * 38, "yz"):
        print_event(Delta(text=piece), terminal.file)
    print_event(Done(), terminal.file)
    assert on_screen(terminal.read("✔ done\n")) == [
        "● assistant  The quick brown fox jumps",
        "  │ over the 日本語",
        f"  │ {'x' * 36}",
        "  │ xxyz",
        "✔ done",
    ]


def on_screen(written: str) -> list[str]:
    """What a terminal shows: a backspace goes back a column, and what comes next overwrites."""
    rows: list[str] = []
    for line in written.splitlines():
        row: list[str] = []
        at = 0
        for char in line:
            if char == "\b":
                at -= 1
            else:
                row[at : at + 1] = [char]
                at += 1
        rows.append("".join(row).rstrip())
    return rows


@given(st.text(st.sampled_from("ab 日\u3000-")), st.integers(2, 12))
def test_rows_fit_and_words_that_fit_are_whole(line: str, width: int) -> None:
    rows = wrapped(line, width)
    assert all(columns(row) <= width for row in rows)
    assert "".join("".join(rows).split()) == "".join(line.split())
    whole = [word for word in line.split() if columns(word) <= width]
    assert [word for row in rows for word in row.split() if word in whole] == whole or len(whole) < len(line.split())


def test_a_refusal_is_no_failure() -> None:
    refused = ToolResult(tool="pay", call_id="c1", result="A person refused this call: no", error="refused")
    assert printed(refused) == "✘ pay (c1) was refused  A person refused this call: no\n"


def test_a_file_that_cannot_encode_it_gets_escapes() -> None:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="ascii")
    print_event(Done(output="日本"), file)
    assert raw.getvalue() == b"\\u2714 done  \\u65e5\\u672c\n"


def test_it_prints_to_the_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    print_event(Done())
    assert capsys.readouterr().out == "✔ done\n"


def test_a_program_without_a_console_prints_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    print_event(Done())


def test_what_is_no_event_is_refused() -> None:
    with pytest.raises(TypeError, match="called with a str"):
        print_event("done")  # pyright: ignore[reportArgumentType]  # that is the mistake


# Progress


def pages(done: int, total: int | None = 40, text: str = "pages") -> Progress:
    fraction = None if total is None else done / total
    return Progress(address=ADDRESS, message=text, done=done, total=total, fraction=fraction)


def test_without_a_terminal_progress_is_a_line_for_each_tenth() -> None:
    lines = printed(*(pages(done) for done in range(41))).splitlines()
    assert lines == [f"… {percent}% research › read 2 pages" for percent in range(0, 101, 10)]


def test_progress_towards_an_unknown_end_is_a_line_now_and_then() -> None:
    assert printed(*(pages(done, None) for done in range(1, 1000))) == "… 1 research › read 2 pages\n"


def test_progress_of_several_tasks_is_kept_apart() -> None:
    other = Progress(address="runnable:g;node:write", done=1, total=40, fraction=1 / 40)
    assert printed(pages(1), other, pages(2), other, pages(40)).splitlines() == [
        "… 2% research › read 2 pages",
        "… 2% write",
        "… 100% research › read 2 pages",
    ]


def test_a_task_that_begins_anew_is_shown_anew() -> None:
    assert printed(pages(20), pages(0)).splitlines() == [
        "… 50% research › read 2 pages",
        "… 0% research › read 2 pages",
    ]


def test_a_terminal_shows_a_bar_that_is_drawn_over(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    for event in (pages(10, text=""), pages(20, text="\x1b[2J"), Done(), pages(30, text="x" * 99), pages(40)):
        print_event(event, terminal.file)
    erased = "\r\x1b[K"
    assert terminal.read("100% research ›\n").split(erased) == [
        "… █████░░░░░░░░░░░░░░░ 25% research ›",
        "… ██████████░░░░░░░░░░ 50% research ›",
        "✔ done\n… ███████████████░░░░░ 75% research ›",
        "… ████████████████████ 100% research ›\n",
    ]


def test_text_comes_after_the_bar(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    for event in (Delta(text="hi"), Progress(done=1), Delta(text="ho"), Done()):
        print_event(event, terminal.file)
    assert terminal.read("done\n") == "● assistant  hi\n… 1\r\x1b[K● assistant  ho\n✔ done\n"


def test_a_terminal_that_cannot_erase_gets_lines(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    for done in (0, 1, 40):
        print_event(Progress(done=done, total=40, fraction=done / 40), terminal.file)
    assert terminal.read("100%\n") == "… 0%\n… 100%\n"


def test_a_failed_node_is_shown_with_its_error() -> None:
    end = NodeEnd(node="read", address="runnable:g;node:read", error="ValueError: no paper")
    assert printed(end) == "✘ read failed  ValueError: no paper\n"
