"""Redaction of what could identify a person."""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjourn import Message, Runner, ToolCall, UsageError, interrupt, tool
from adjourn.events import Delta, Event, MessageEvent, Retrying
from adjourn.messages import ImagePart, ReasoningPart, TextPart
from adjourn.middleware import Found, Middleware, ModelState, RedactPII, Summarize
from adjourn.middleware.hooks import ModelCall
from adjourn.models import Chunk, ModelRequest, Origin
from adjourn.testing import ScriptedModel
from tests.effort import EFFORT, amount

from .conftest import Reopen
from .scripts import call, scripted


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("write to ann.b+c@mail.example.org.", "write to [email]."),
        ("card 4111 1111 1111 1111, thanks", "card [card], thanks"),
        ("order 4111 1111 1111 1112", "order 4111 1111 1111 1112"),
        ("DE89 3704 0044 0532 0130 00 please", "[iban] please"),
        ("DE89 3704 0044 0532 0130 02 please", "DE89 3704 0044 0532 0130 02 please"),
        ("call +49 (170) 123-4567 now", "call [phone] now"),
        ("from 192.168.0.1.", "from [ip]."),
        ("version 1.2.3, 999.1.1.1, 1.2.3.4.5", "version 1.2.3, 999.1.1.1, 1.2.3.4.5"),
        ("nothing here", "nothing here"),
        # Written so that it is read by people and not by patterns
        ("４１１１ １１１１ １１１１ １１１１", "[card]"),
        ("4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1", "[card]"),
        ("4111.1111.1111.1111 123", "[card] 123"),
        ("1.4111111111111111", "1.[card]"),
        ("4111\n1111\t1111\r\n1111", "[card]"),
        ("+49\t171 1234\n567, ok", "[phone], ok"),
        ("card 4111111111111111\ncard 5555555555554444\n", "card [card]\ncard [card]\n"),
        ("4111111111111111\n5555555555554444\n", "[card]\n[card]\n"),
        ("+49 170 1234567\n+49 170 7654321", "[phone]\n[phone]"),
        ("e is 2.718281828459045, or [1.0, 2.718281828459045]", "e is 2.718281828459045, or [1.0, 2.718281828459045]"),
        ("no 1 4111/1111/1111/1111", "no 1 [card]"),
        ("4111\u200b1111\u00a01111\u20111111", "[card]"),
        ("٤١١١١١١١١١١١١١١١", "[card]"),
        ("de 89 37 04 0044 0532 0130 00 and so on", "[iban] and so on"),
        ("GB82WEST12345698765432", "[iban]"),
        ("ＧＢ８２ WEST 1234 5698 7654 32", "[iban]"),
        ("ann＠example．org", "[email]"),
        ("ann @ example.org", "[email]"),
        ("＋４９.170.123.45.67", "[phone]"),
        ("１９２．１６８．０．１", "[ip]"),
        ("in 20 or 10 days, am 12. Mai 2024 um 10 Uhr", "in 20 or 10 days, am 12. Mai 2024 um 10 Uhr"),
        ("ärger 👍 ㍿", "ärger 👍 ㍿"),
        # Domains of all scripts
        ("à ann@é.fr.", "à [email]."),
        ("ann@xn--e1afmkfd.xn--p1ai, ok", "[email], ok"),
        ("на почта@пример.рф!", "на [email]!"),
        ("σε ann@παράδειγμα.ελ", "σε [email]"),
        ("ann@उदाहरण.भारत", "[email]"),
        ("ann@e\u0301.fr", "[email]"),
        ("ann@bücher.example", "[email]"),
        ("ann@例え.テスト。", "[email]。"),
        ("请写信给a.b@c.org谢谢", "请写信给[email]谢谢"),
        ("请写信给ann@例え.jp谢谢", "请写信给[email]谢谢"),
        ("a@b.org。谢谢", "[email]。谢谢"),
        ("ann@example。org", "[email]"),
        ("메일은 a@b.org으로", "메일은 [email]으로"),
        ("号码DE89370400440532013000。", "号码[iban]。"),
        ("@小明 你好, @ann, a@b, 5@3.14", "@小明 你好, @ann, a@b, 5@3.14"),
    ],
)
def test_what_is_found(text: str, redacted: str) -> None:
    assert RedactPII().redact(text) == redacted


@pytest.mark.parametrize(
    "between",
    [
        *("", " - ", "\t", "\n", "\r\n", " \n\t", "\u2028"),
        *("./-_ \u2010\u2011\u2012\u2013\u2212\u00a0\u2009\u202f\u3000\u00b7\u2022\u2044\u2215\u2024"),
    ],
)
def test_groups_are_found_whatever_stands_between_them(between: str) -> None:
    found = RedactPII().redact
    assert found(f"a {between.join(['4111', '1111', '1111', '1111'])}, b") == "a [card], b"
    assert found(f"a {between.join(['DE89', '3704', '0044', '0532', '0130', '00'])}, b") == "a [iban], b"
    assert found(f"a {between.join(['+49', '170', '123', '45', '67'])}, b") == "a [phone], b"


def test_kinds_patterns_and_replacements_are_the_users() -> None:
    middleware = RedactPII(
        ["email"], patterns={"staff": r"E-\d{4}"}, replace=lambda kind, found: f"<{kind} {len(found)}>"
    )
    assert middleware.redact("a@b.org, E-1234, 10.0.0.1") == "<email 7>, <staff 6>, 10.0.0.1"
    with pytest.raises(UsageError, match="does not know passport"):
        RedactPII(["passport"])
    with pytest.raises(UsageError, match="the pattern of 'x' is not a regular expression"):
        RedactPII(patterns={"x": "("})


UNITS = [
    *("a", "1", "é", "谢", "１", "\u200b", " ", "+", "@", ".", "-", "½", "ﷺ", "，", "\n"),
    *(
        "1.",
        "1 ",
        "1\n",
        "a\n",
        "+1\t",
        "12-",
        "25.",
        "a.",
        "a@",
        "a@b.",
        "é.",
        "谢@",
        "@谢",
        "+1 ",
        "+1-(",
        "AA11 ",
        "aa 1 1 ",
        "A ",
        "Abc... ",
    ),
    *("a" * 64 + "@", "a@" + "b" * 190, "a@" + "b." * 95, "1.1.1.1 ", "4111 1111 1111 1111 ", "DE89 3704 0044 0532 "),
]


def calls(work: Callable[[], object]) -> int:
    """How many calls something makes, those of functions in C included."""
    count = 0

    def note(*_: Any) -> None:
        nonlocal count
        count += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("unit", UNITS)
def test_the_work_grows_with_the_text_and_no_faster(unit: str) -> None:
    redact = RedactPII().redact
    redact(unit)
    once, twice = (calls(partial(redact, unit * (size // len(unit)))) for size in (4_000, 8_000))
    assert once < 45 * 4_000
    assert twice < 2.2 * once + 100


def test_the_work_grows_with_the_number_of_arguments_and_no_faster() -> None:
    async def redacted(count: int) -> list[str]:
        arguments = {"[email]~3": 0} | {f"a{n}@b.org": n for n in range(count)}
        state = ModelState(messages=(Message.assistant(tool_calls=[ToolCall(id="c", name="t", arguments=arguments)]),))
        seen = await RedactPII().before_model(state, cast("Any", None))
        return list(seen.messages[0].tool_calls[0].arguments)

    assert asyncio.run(redacted(3)) == ["[email]~3", "[email]", "[email]~2", "[email]~4"]
    once, twice = (calls(lambda count=count: asyncio.run(redacted(count))) for count in (100, 200))
    assert twice < 2.2 * once


# What regular expressions do is no call: there, the suite's time limit is what would tell.
@pytest.mark.parametrize("unit", ["1.", "a@" + "b." * 95, "谢@"] if EFFORT == "default" else UNITS)
def test_no_megabyte_takes_long(unit: str) -> None:
    size = amount(default=300_000, proof=1_000_000, long=1_000_000)
    RedactPII().redact(unit * (size // len(unit)))


@pytest.mark.parametrize("unit", ["1.", "谢", "a@", "word, ", "@谢"])
def test_streaming_takes_no_more_work_for_each_piece_of_a_longer_answer(unit: str) -> None:
    def streamed(pieces: int) -> int:
        return calls(lambda: asyncio.run(pieces_of(RedactPII(), unit * (10 * pieces), [10 * len(unit)])))

    streamed(1)
    once, twice = streamed(200), streamed(400)
    assert twice < 2.5 * once


async def test_the_model_sees_neither_what_is_said_nor_what_tools_give_and_the_record_stays(reopen: Reopen) -> None:
    @tool
    async def lookup(name: str) -> str:
        """Look a person up."""
        return f"{name}: bob@example.org, {interrupt('may I?', key='ask')}"

    def agent(*script: Any) -> Any:
        return scripted(*script, tools=[lookup], middleware=[RedactPII()])

    asks = call("lookup", name="ann@example.org")
    first, model = agent(asks)
    paused = await Runner(first, store=reopen()).run("I am ann@example.org", session_id="s1")
    assert [each.id for each in paused.interrupts] == ["agent:A;tool:lookup:c1"]
    assert model.requests[0].messages[0].text == "I am [email]"
    second, model = agent("done")
    result = await Runner(second, store=reopen()).resume("s1", {"ask": "from 10.0.0.1"})
    seen = model.requests[0].messages
    assert [message.text for message in seen] == ["I am [email]", "", "[email]: [email], from [ip]"]
    assert dict(seen[1].tool_calls[0].arguments) == {"name": "[email]"}
    assert result.messages[0].text == "I am ann@example.org"
    assert result.messages[2].text == "ann@example.org: bob@example.org, from 10.0.0.1"


async def test_a_tool_gets_what_the_model_wrote() -> None:
    got: list[str] = []

    @tool
    async def send(to: str, cc: list[str]) -> str:
        """Send."""
        got.extend([to, *cc])
        return "sent"

    agent, model = scripted(
        call("send", to="ann@example.org", cc=["bob@example.org"]), "done", tools=[send], middleware=[RedactPII()]
    )
    await Runner(agent).run("go")
    assert got == ["ann@example.org", "bob@example.org"]
    assert dict(model.requests[1].messages[1].tool_calls[0].arguments) == {"to": "[email]", "cc": ["[email]"]}


async def test_names_of_arguments_numbers_reasoning_and_names_of_people_are_redacted() -> None:
    agent, model = scripted("done", middleware=[RedactPII()])
    arguments = {"a@b.org": {"c@d.org": 4111111111111111}, "e@f.org": [True, 12, 1.5]}
    said = [
        Message.user("hi", name="ann@example.org"),
        Message.assistant(
            [ReasoningPart(text="it is a@b.org", signature="s", id="r", provider="p"), TextPart(text="ok")],
            tool_calls=[call("lookup", "c1", **arguments)],
        ),
        Message.tool("x", tool_call_id="c1", name="lookup"),
    ]
    await Runner(agent).run(said)
    first, second, third = model.requests[0].messages
    assert first.name == "[email]"
    assert second.parts == (ReasoningPart(text="it is [email]"), TextPart(text="ok"))
    assert dict(second.tool_calls[0].arguments) == {"[email]": {"[email]": "[card]"}, "[email]~2": [True, 12, 1.5]}
    assert third.name == "lookup"


async def test_what_a_provider_wants_back_is_left_out_when_it_no_longer_fits() -> None:
    agent, model = scripted("done", middleware=[RedactPII()])
    signed = {"role": "assistant", "provider": "p", "extra": {"details": [{"text": "it is a@b.org"}]}}
    call_of = ToolCall(id="c1", name="look", provider="p", extra={"signature": "s"})
    thought = Message(content=(ReasoningPart(text="it is a@b.org"),), tool_calls=(call_of,), **cast("Any", signed))
    plain = Message(content="ok", **cast("Any", signed | {"extra": {"id": 1}}))
    await Runner(agent).run([thought, Message.tool("x", tool_call_id="c1"), plain, Message.user("go")])
    first, _, third, _ = model.requests[0].messages
    assert first.extra is None
    assert first.tool_calls == (call_of,)
    assert third.extra == {"id": 1}


# Answers


def streaming(*texts: str, reasoning: str = "") -> list[Chunk]:
    return [Chunk(reasoning=reasoning), *(Chunk(text=text) for text in texts), Chunk(finish_reason="stop")]


async def events_of(*script: Any, middleware: list[Middleware]) -> list[Event]:
    agent, _ = scripted(*script, middleware=middleware)
    return [event async for event in Runner(agent).run("go")]


async def test_no_piece_of_an_answer_is_seen_before_it_is_redacted() -> None:  # rule A9
    answer = streaming("write to ann", "@example.org", " now", reasoning="her card is 4111111111111111")
    events = await events_of(answer, middleware=[RedactPII()])
    deltas = [event.reasoning or event.text for event in events if isinstance(event, Delta)]
    assert deltas == ["her card", " is [card]", "write", " to [email]", " now"]
    assert [event.message.text for event in events if isinstance(event, MessageEvent)] == ["write to [email] now"]
    assert "example.org" not in repr(events)
    assert "4111" not in repr(events)


async def test_answers_may_be_left_alone_and_stream() -> None:
    events = await events_of(streaming("write to ann", "@example.org"), middleware=[RedactPII(answers=False)])
    assert [event.text for event in events if isinstance(event, Delta)] == ["write to ann", "@example.org"]


async def test_a_hook_that_changes_a_redacted_answer_resets_it() -> None:  # rule A9
    class Signs(Middleware):
        def after_model(self, state: ModelState, ctx: Any) -> ModelState:
            return ModelState(messages=(*state.messages[:-1], Message.assistant("signed")))

    events = await events_of("from a@b.org", middleware=[RedactPII(), Signs()])
    kinds = [type(event) for event in events if isinstance(event, Delta | Retrying | MessageEvent)]
    assert kinds == [Delta, Delta, Retrying, MessageEvent]


async def test_a_run_that_does_not_stream_is_redacted_too() -> None:
    agent, _ = scripted("from a@b.org", middleware=[RedactPII()])
    assert (await Runner(agent, streaming=False).run("go")).output == "from [email]"


async def test_what_another_middleware_adds_to_an_answer_is_redacted_too() -> None:
    class Signs(Middleware):
        async def wrap_model(self, call: ModelCall, request: ModelRequest) -> Message:
            return (await call(request)).with_text("ask bob@example.org")

    events = await events_of("hello", middleware=[RedactPII(), Signs()])
    assert "example.org" not in repr(events)
    assert [event.message.text for event in events if isinstance(event, MessageEvent)] == ["ask [email]"]


WORDS = [
    *("Please", "ann.b@mail.example.org", "ann @ example.org", "4111 1111 1111 1111", "+49 (170) 123-4567", "now,"),
    *(
        "DE89 3704 0044 0532 0130 00",
        "192.168.0.1.",
        "４１１１ １１１１ １１１１ １１１１",
        "in",
        "电话",
        "\n",
        "OK",
        "é",
    ),
    *(
        "ann@é.fr",
        "почта@пример.рф",
        "ann@例え.テスト",
        "谢谢a@b.org谢谢",
        "@",
        "@ ",
        "谢",
        "。",
        "½",
        "e\u0301",
        "\u200b",
        "_",
        "/",
        "\t",
    ),
    *("4111\n1111\t1111\r\n1111", "+49\t170\n1234567", "DE89\t3704\n0044 0532 0130 00"),
    *("4111\u200b1111\u00a01111\u20111111", "de 89 37 04 0044 0532 0130 00", "x" * 40, "it's", "(so)", "12"),
]


@given(st.lists(st.sampled_from(WORDS), max_size=8), st.lists(st.integers(1, 9), min_size=1))
def test_however_an_answer_is_cut_into_pieces_it_is_redacted_as_a_whole(words: list[str], sizes: list[int]) -> None:
    _check_pieces(" ".join(words), sizes)


@given(st.lists(st.sampled_from([*WORDS, " "]), max_size=10), st.lists(st.integers(1, 9), min_size=1))
def test_so_is_one_whose_words_have_nothing_between_them(words: list[str], sizes: list[int]) -> None:
    _check_pieces("".join(words), sizes)


def _check_pieces(text: str, sizes: list[int]) -> None:
    middleware = RedactPII()
    assert "".join(asyncio.run(pieces_of(middleware, text, sizes))) == middleware.redact(text)


async def pieces_of(middleware: RedactPII, text: str, sizes: list[int]) -> list[str]:
    async def model(request: ModelRequest) -> AsyncIterator[Chunk]:
        place = 0
        for size in itertools.cycle(sizes):
            if place >= len(text):
                return
            yield Chunk(text=text[place : place + size])
            place += size

    chunks = middleware.wrap_model_stream(model, ModelRequest(messages=[]))
    return [chunk.text async for chunk in chunks]


async def test_an_answer_in_words_streams_although_it_is_redacted() -> None:
    words = [f"word{' '}" for _ in range(100)]
    assert len(await pieces_of(RedactPII(), "".join(words), [5])) > 90
    assert len(await pieces_of(RedactPII(detectors=[finds_ann]), "".join(words), [5])) == 1


async def test_the_signature_of_reasoning_that_was_changed_is_dropped() -> None:
    async def answer(said: str) -> Message:
        chunks = [
            Chunk(reasoning=said),
            Chunk(parts=(ReasoningPart(text="", signature="s", provider="p"),)),
            Chunk(text="ok"),
        ]
        agent, _ = scripted(chunks, middleware=[RedactPII()])
        return (await Runner(agent).run("go")).messages[-1]

    assert (await answer("it is a@b.org")).parts == (ReasoningPart(text="it is [email]"), TextPart(text="ok"))
    signed = [Chunk(origin=Origin(provider="p", model="m", extra={"said": "a@b.org"})), Chunk(text="a@b.org")]
    agent, _ = scripted(signed, middleware=[RedactPII()])
    said = (await Runner(agent).run("go")).messages[-1]
    assert (said.text, said.model, said.extra) == ("[email]", "m", None)
    assert (await answer("it is")).parts == (
        ReasoningPart(text="it is", signature="s", provider="p"),
        TextPart(text="ok"),
    )


# Detectors


def finds_ann(text: str) -> list[Found]:
    place = text.find("Ann")
    return [] if place < 0 else [Found("name", place, place + 3)]


async def test_a_detector_can_be_plugged_in() -> None:
    threads = set[int]()

    def watched(text: str) -> list[Found]:
        threads.add(threading.get_ident())
        return finds_ann(text)

    agent, model = scripted("Hello Ann", middleware=[RedactPII(detectors=[watched])])
    result = await Runner(agent).run("I am Ann, a@b.org")
    assert model.requests[0].messages[0].text == "I am [name], [email]"
    assert result.output == "Hello [name]"
    assert threading.get_ident() not in threads


async def test_long_arguments_and_reasoning_are_searched_in_a_thread_too() -> None:
    threads = set[int]()

    def note(kind: str, _: str) -> str:
        threads.add(threading.get_ident())
        return f"[{kind}]"

    long = "x " * 20_000 + "a@b.org"
    for said in (
        Message.assistant([ReasoningPart(text=long), TextPart(text="ok")]),
        Message.assistant("ok", tool_calls=[call("lookup", "c1", name=long)]),
    ):
        agent, model = scripted("done", middleware=[RedactPII(replace=note)])
        await Runner(agent).run([said, Message.tool("x", tool_call_id="c1"), "go"] if said.tool_calls else [said, "go"])
        assert "a@b.org" not in repr(model.requests[0].messages)
    assert threads
    assert threading.get_ident() not in threads


def test_what_overlaps_is_replaced_as_a_whole() -> None:
    middleware = RedactPII(["email"], detectors=[lambda text: [Found("name", 0, 6)]], patterns={"at": "b@"})
    assert middleware.redact("Ann Bob@b.org!") == "[name]!"


@pytest.mark.parametrize("wrong", [[(0, 1)], [("name", 0, 99)], [("name", 3, 3)], [("name", -1, 2)], ["x"]])
def test_what_a_detector_must_not_return_is_told(wrong: Any) -> None:
    with pytest.raises(UsageError, match="a detector returned"):
        RedactPII(detectors=[lambda text: wrong]).redact("some text")
    with pytest.raises(UsageError, match="is not a function"):
        RedactPII(detectors=["x"])  # pyright: ignore[reportArgumentType]


async def test_parts_that_are_no_text_go_through() -> None:
    agent, model = scripted("done", middleware=[RedactPII()])
    image = ImagePart(data=b"a@b.org", media_type="image/png")
    await Runner(agent).run(Message.user([TextPart(text="me: a@b.org"), image]))
    assert model.requests[0].messages[0].parts == (TextPart(text="me: [email]"), image)


async def test_middleware_after_it_does_not_see_it_either() -> None:
    writer = ScriptedModel(["s"])
    agent, _ = scripted("1", "2", middleware=[RedactPII(), Summarize(writer, messages=2, keep=1)])
    runner = Runner(agent)
    await runner.run("I am ann@example.org", session_id="s1")
    await runner.run("and?", session_id="s1")
    assert writer.requests[0].messages[1].text == "user: I am [email]\n\nassistant: 1"


async def test_what_is_stored_grows_with_what_was_said(reopen: Reopen, tmp_path: Path) -> None:
    said = [f"{n}: ann@example.org " + "x" * 2000 for n in range(60)]
    for text in said[:59]:
        agent, _ = scripted("ok", middleware=[RedactPII()])
        await Runner(agent, store=reopen()).run(text, session_id="s1")
    agent, model = scripted("ok", middleware=[RedactPII()])
    await Runner(agent, store=reopen()).run(said[59], session_id="s1")
    seen = [message.text for message in model.requests[0].messages if message.role == "user"]
    assert seen == [text.replace("ann@example.org", "[email]") for text in said]
    # Each text is on record as it was said and as it is seen; all of them at each step would be 4 MB and more.
    assert bytes_in(tmp_path) < 2_000_000


def bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("sessions.db*"))
