"""`Approval`: what a question about a tool call says, beside the call itself."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjourn import Approval, ChatModelAgent, Runner, ToolCall, tool
from adjourn.errors import AlreadyResumed, StaleCheckpoint, UsageError
from adjourn.stores import MemoryStore, Store
from adjourn.testing import FakeClock, ScriptedModel
from adjourn.tools import Tool, approved, reviewed


def refund(cents: int, name: str, day: str = "2026-11-19", at: str | None = None) -> str:
    """Refund a customer."""
    return f"refunded {cents} to {name} on {day} at {at}"


def asked_with(approval: Approval, arguments: dict[str, Any]) -> dict[str, Any]:
    made: Tool[Any, Any] = tool(refund, approval=approval)
    return made.asking(made.show(made.validate(arguments)))


def summary(template: str, **arguments: Any) -> str:
    return asked_with(Approval(summary=template), {"cents": 129_900, "name": "Jan", **arguments})["summary"]


@pytest.mark.parametrize(
    ("template", "arguments", "shown"),
    [
        ("Refund {cents|money:EUR} to {name}", {}, "Refund 1,299.00 EUR to Jan"),
        ("{cents|money:JPY}", {}, "129,900 JPY"),
        ("{cents|money:KWD}", {"cents": -5}, "-0.005 KWD"),
        ("{cents|number}", {"cents": 12_345_678}, "12,345,678"),
        ("{ cents | number }", {"cents": 1}, "1"),
        ("{day|date}, {at|time}", {"at": "2026-11-19T14:05:30+02:00"}, "19 November 2026, 14:05 UTC+02:00"),
        ("{at|time}", {"at": "09:30"}, "09:30"),
        ("{day|date}", {"day": "soon"}, "soon"),
        ("{name|number}", {"name": "a lot"}, "a lot"),
        ("{at}", {}, "nothing"),
        ("{{{name}}} {{x}}", {}, "{Jan} {x}"),
        ("{name}", {"name": "{cents} {{x}} %s {0}"}, "{cents} {{x}} %s {0}"),
        ("{name}", {"name": "a\nb\u202ec\x00"}, "a<U+000A>b<U+202E>c<U+0000>"),
        ("{name}", {"name": "x" * 300}, "x" * 200 + "…"),
    ],
)
def test_a_summary_shows_arguments(template: str, arguments: dict[str, Any], shown: str):  # rule A10
    assert summary(template, **arguments) == shown


@given(st.text(), st.text())
def test_what_is_in_a_value_is_never_a_template(name: str, day: str):  # rule A10
    shown = summary("<{name}>{day}|", name=name.replace("\ud800", ""), day=day)
    assert shown.startswith("<")
    assert shown.endswith("|")
    assert not any(char in shown for char in "\n\r\x00\u202e\u2028")


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("{euros}", "has {euros}, which is not an argument of the tool. It has cents, name, day, at"),
        ("{}", "has {}, which is not an argument"),
        ("{cents.real}", "not an argument"),
        ("{name|money:EUR}", "write {name|number} EUR"),
        ("{cents|money}", "money without a currency"),
        ("{cents|money:euro}", "money without a currency"),
        ("{cents|percent}", "has the format 'percent'. Use one of text, number, money, date, time"),
        ("{cents|number:2}", "Only money takes something after a colon"),
        ("a { b", "has a lone '{'"),
        ("a } b", "has a lone '}'"),
    ],
)
def test_a_summary_that_cannot_be_filled_in_is_refused_where_the_tool_is_made(template: str, problem: str):
    makers: list[Callable[[Approval], object]] = [
        lambda given: tool(refund, approval=given),
        lambda given: approved(tool(refund), given),
    ]
    for make in makers:
        with pytest.raises(UsageError) as refused:
            make(Approval(summary=template))
        assert problem in str(refused.value)


@pytest.mark.parametrize(
    "words",
    [{"priority": True}, {"priority": 1.5}, {"title": 3}, {"link": "javascript:alert(1)"}, {"summary": "\ud800"}],
)
def test_words_that_are_none_are_refused(words: dict[str, Any]):
    with pytest.raises(UsageError):
        Approval(**words)


def paying(store: Store, approval: Approval, **options: Any) -> Runner:
    calls = [ToolCall(id="c1", name="refund", arguments={"cents": 500, "name": "Jan"}), "Done."]
    made = tool(refund, name="refund", approval=approval)
    return Runner(ChatModelAgent("desk", model=ScriptedModel(calls), tools=[made]), store=store, **options)


WORDS = Approval(
    title="Refund",
    summary="Refund {cents|money:EUR} to {name}",
    description="Pays back at once, and cannot be undone.",
    priority=2,
    link="https://shop.example/orders/7",
)


async def test_people_see_what_the_author_says(store: Store):  # rules T1, I12
    runner = paying(store, WORDS)
    result = await runner.run("Refund Jan.", session_id="s", user_id="ann")
    (in_run,), (listed,) = result.interrupts, await runner.pending("s", user_id="ann")
    for asked in (in_run, listed, (await runner.audit("s", user_id="ann"))[0].interrupt):
        assert (asked.title, asked.summary) == ("Refund", "Refund 5.00 EUR to Jan")
        assert asked.description == "Pays back at once, and cannot be undone."
        assert (asked.priority, asked.link) == (2, "https://shop.example/orders/7")
        assert asked.requested_by == "ann"
        assert asked.info.arguments == {"cents": 500, "name": "Jan", "day": "2026-11-19", "at": None}
    assert in_run.token == listed.token
    done = await runner.resume("s", {listed.token: True}, user_id="ann")
    assert done.output == "Done."


@pytest.mark.parametrize("other", [{"title": "Pay"}, {"summary": "To {name}"}, {"description": "Pays."}])
async def test_a_token_names_the_words_that_were_shown(other: dict[str, Any]):  # rule I13
    tokens: list[str] = []
    runner = paying(MemoryStore(), WORDS)
    for words in (WORDS, Approval(**{**{name: getattr(WORDS, name) for name in WORDS.__struct_fields__}, **other})):
        runner = paying(MemoryStore(), words, new_id=lambda: "fixed")
        tokens.append((await runner.run("Refund Jan.", session_id="s")).interrupts[0].token)
    assert tokens[0] != tokens[1]
    with pytest.raises((StaleCheckpoint, AlreadyResumed)):
        await runner.resume("s", {tokens[0]: True})


async def test_when_says_which_calls_are_asked_about():
    def is_large(cents: int) -> bool:
        return cents > 1000

    approval = Approval(when=is_large, title="Refund")
    assert (await paying(MemoryStore(), approval).run("Refund Jan.", session_id="s")).output == "Done."


async def test_an_approval_that_expires_is_refused():  # rule R11
    clock = FakeClock()
    runner = paying(MemoryStore(clock), Approval(expires_in=timedelta(hours=1)), clock=clock)
    result = await runner.run("Refund Jan.", session_id="s")
    assert result.interrupts[0].expires is not None
    clock.advance(3601)
    ended = await runner.recover("s")
    assert ended.status == "done"
    assert not any("refunded" in str(each.content) for each in ended.messages)


async def test_a_reviewer_sees_them_too():
    runner = Runner(
        ChatModelAgent(
            "desk",
            model=ScriptedModel([ToolCall(id="c1", name="refund", arguments={"cents": 500, "name": "Jan"}), "Done."]),
            tools=[reviewed(tool(refund, name="refund", approval=Approval(title="Refund", when=lambda: False)))],
        ),
        store=MemoryStore(),
    )
    result = await runner.run("Refund Jan.", session_id="s")
    assert (result.interrupts[0].reason, result.interrupts[0].title) == ("need_review", "Refund")
