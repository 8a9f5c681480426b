"""Wrappers around tools, as an agent's run shows them."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import AfterValidator

from adjourn import (
    Approve,
    Edit,
    InvalidAnswer,
    Reject,
    Respond,
    Retry,
    RunContext,
    Runner,
    Tool,
    ToolCall,
    ToolCallInfo,
    UsageError,
    current,
    interrupt,
    tool,
)
from adjourn.agents import ChatModelAgent
from adjourn.testing import ScriptedModel
from adjourn.tools import FollowUpInfo, approved, follow_up, reviewed

BOOKED = ToolCall(id="c1", name="book", arguments={"to": "Bonn"})


class Log(list[str]):
    """What tools have done."""

    def tools(self) -> dict[str, Tool]:
        def sync(to: str, seats: int = 1) -> str:
            self.append(f"{seats} to {to}")
            return f"booked {to}"

        async def later(to: str, seats: int = 1) -> str:
            return sync(to, seats)

        async def stream(to: str, seats: int = 1):
            yield "booked "
            yield sync(to, seats).removeprefix("booked ")

        def context(ctx: RunContext, to: str, seats: int = 1) -> str:
            return f"{sync(to, seats)}{'' if ctx.session_id else '?'}"

        return {
            "sync": tool(sync, name="book"),
            "inline": tool(sync, name="book", thread=False),
            "async": tool(later, name="book"),
            "stream": tool(stream, name="book"),
            "context": tool(context, name="book"),
            "once": tool(later, name="book", at_most_once=True, timeout=60),
            "retried": tool(later, name="book", timeout=60, retry=Retry(backoff=0)),
        }


KINDS = list(Log().tools())


def runner_of(*tools: Tool, script: list[Any], **options: Any) -> Runner:
    return Runner(ChatModelAgent("A", model=ScriptedModel(script), tools=tools, **options))


async def told(runner: Runner) -> str:
    """What the model has read of the last tool call."""
    return [message.text for message in await runner.messages("s") if message.role == "tool"][-1]


async def called(runner: Runner) -> dict[str, Any]:
    """The arguments of the last tool call, as the conversation shows them."""
    calls = [call for message in await runner.messages("s") for call in message.tool_calls]
    return dict(calls[-1].arguments)


async def test_an_approved_tool_asks_and_is_otherwise_the_same():
    log = Log()
    plain = log.tools()["async"]
    made = approved(plain)
    assert (made.schema, made.name, made.fn, plain.approval) == (plain.schema, plain.name, plain.fn, False)
    runner = runner_of(made, script=[BOOKED, "done"])
    [asked] = (await runner.run("go", session_id="s")).interrupts
    assert (asked.id, asked.reason) == ("agent:A;tool:book:c1", "need_approval")
    assert log == []
    assert (await runner.resume("s", {asked.id: True})).output == "done"
    assert log == ["1 to Bonn"]


def test_a_plain_function_can_be_wrapped():
    def book(to: str) -> str:
        return to

    assert (approved(book).name, reviewed(book).name) == ("book", "book")
    assert (approved(book)("Bonn"), reviewed(book)("Bonn")) == ("Bonn", "Bonn")


def test_approving_never_is_refused():
    with pytest.raises(UsageError, match="asks nobody"):
        approved(Log().tools()["sync"], approval=False)


async def test_a_predicate_decides_which_calls_are_approved():
    def many(seats: int) -> bool:
        return seats > 1

    log = Log()
    runner = runner_of(approved(log.tools()["sync"], many), script=[BOOKED, "done"])
    assert (await runner.run("go", session_id="s")).output == "done"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("answer", [True, "yes", Approve(), {"decision": "approve"}], ids=str)
async def test_a_review_that_accepts_runs_the_call(kind: str, answer: Any):  # rule T4
    log = Log()
    runner = runner_of(reviewed(log.tools()[kind]), script=[BOOKED, "done"])
    [asked] = (await runner.run("go", session_id="s")).interrupts
    assert (asked.id, asked.reason) == ("agent:A;tool:book:c1;wrap:reviewed", "need_review")
    assert asked.info == ToolCallInfo(tool="book", arguments={"to": "Bonn", "seats": 1}, call_id="c1", agent="A")
    assert log == []
    assert (await runner.resume("s", {asked.id: answer})).output == "done"
    assert (log, await told(runner)) == (["1 to Bonn"], "booked Bonn")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_review_can_edit_the_arguments_and_the_model_is_told(kind: str):  # rule T4
    log = Log()
    runner = runner_of(reviewed(log.tools()[kind]), script=[BOOKED, "done"])
    [asked] = (await runner.run("go", session_id="s")).interrupts
    await runner.resume("s", {asked.id: Edit({"to": "Kiel", "seats": 2})})
    assert log == ["2 to Kiel"]
    assert await told(runner) == "booked Kiel"
    assert await called(runner) == {"to": "Kiel", "seats": 2}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_review_can_refuse_with_a_reason(kind: str):  # rule T4
    log = Log()
    runner = runner_of(reviewed(log.tools()[kind]), script=[BOOKED, "sorry"])
    [asked] = (await runner.run("go", session_id="s")).interrupts
    assert (await runner.resume("s", {asked.id: Reject("too far")})).output == "sorry"
    assert (log, await told(runner)) == ([], "A person refused this call: too far")


@pytest.mark.parametrize(
    "answer", [None, "maybe", Respond("x"), Edit({}), Edit({"to": 1}), Edit({"to": "Bonn", "by": "air"})], ids=str
)
async def test_what_is_no_answer_to_a_review_leaves_it_open(answer: Any):  # rule R2
    log = Log()
    runner = runner_of(reviewed(log.tools()["sync"]), script=[BOOKED, "done"])
    [asked] = (await runner.run("go", session_id="s")).interrupts
    with pytest.raises(InvalidAnswer):
        await runner.resume("s", {asked.id: answer})
    assert [open_.id for open_ in await runner.pending("s")] == [asked.id]


async def test_an_edit_that_only_the_type_refuses_is_asked_for_again():
    def known(to: str) -> str:
        if to == "Atlantis":
            raise ValueError("it has sunk")
        return to

    @tool
    def book(to: Annotated[str, AfterValidator(known)]) -> str:
        return to

    runner = runner_of(reviewed(book), script=[BOOKED, "done"])
    [asked] = (await runner.run("go", session_id="s")).interrupts
    [again] = (await runner.resume("s", {asked.id: Edit({"to": "Atlantis"})})).interrupts
    assert (again.id, "it has sunk" in (again.prompt or "")) == (f"{asked.id}#2", True)
    assert (await runner.resume("s", {again.id: Edit({"to": "Kiel"})})).output == "done"
    assert (await told(runner), await called(runner)) == ("Kiel", {"to": "Kiel"})


async def test_what_is_reviewed_may_ask_itself_and_the_reviewer_is_not_asked_again():
    @tool
    async def book(to: str) -> str:
        return f"{to} {interrupt(f'Which seat to {to}?')}"

    runner = runner_of(reviewed(book), script=[BOOKED, "done"])
    [review] = (await runner.run("go", session_id="s")).interrupts
    [seat] = (await runner.resume("s", {review.id: True})).interrupts
    assert seat.id == "agent:A;tool:book:c1"
    assert (await runner.resume("s", {seat.id: "window"})).output == "done"
    assert await told(runner) == "Bonn window"


@pytest.mark.parametrize("kind", ["plain", "reviewed"])
async def test_a_tool_that_is_tried_again_has_its_answers(kind: str):  # rule G12
    tries: list[tuple[int, str]] = []

    @tool(retry=Retry(attempts=3, backoff=0))
    async def book(to: str) -> str:
        answer = interrupt(f"Which seat to {to}?")
        tries.append((current().attempt, current().idempotency_key))
        if len(tries) < 3:
            raise OSError("no line")
        return f"{to} {answer}"

    runner = runner_of(reviewed(book) if kind == "reviewed" else book, script=[BOOKED, "done"])
    asked = (await runner.run("go", session_id="s")).interrupts
    if kind == "reviewed":
        asked = (await runner.resume("s", {asked[0].id: True})).interrupts
    assert (await runner.resume("s", {asked[0].id: "window"})).output == "done"
    assert ([attempt for attempt, _ in tries], len({key for _, key in tries})) == ([1, 2, 3], 1)
    assert await told(runner) == "Bonn window"


async def test_a_review_that_refuses_is_no_error():
    runner = runner_of(reviewed(Log().tools()["sync"]), script=[BOOKED, "sorry"], on_tool_error="raise")
    [asked] = (await runner.run("go", session_id="s")).interrupts
    assert (await runner.resume("s", {asked.id: False})).output == "sorry"
    assert await told(runner) == "A person refused this call."


async def test_a_refused_call_gives_no_result_directly():
    direct = tool(Log().tools()["sync"].fn, name="book", return_directly=True)
    runner = runner_of(reviewed(direct), script=[BOOKED, "sorry"])
    [asked] = (await runner.run("go", session_id="s")).interrupts
    assert (await runner.resume("s", {asked.id: False})).output == "sorry"


async def test_an_edited_call_gives_its_result_directly():
    direct = tool(Log().tools()["sync"].fn, name="book", return_directly=True)
    runner = runner_of(reviewed(direct), script=[BOOKED])
    [asked] = (await runner.run("go", session_id="s")).interrupts
    assert (await runner.resume("s", {asked.id: Edit({"to": "Kiel"})})).output == "booked Kiel"


async def test_wrappers_go_around_one_another():
    log = Log()
    runner = runner_of(approved(reviewed(log.tools()["sync"])), script=[BOOKED, "done"])
    [approval] = (await runner.run("go", session_id="s")).interrupts
    [review] = (await runner.resume("s", {approval.id: True})).interrupts
    assert (approval.reason, review.reason) == ("need_approval", "need_review")
    await runner.resume("s", {review.id: True})
    assert log == ["1 to Bonn"]


async def test_an_agent_as_a_tool_can_be_reviewed():
    log = Log()
    booker = ChatModelAgent("B", model=ScriptedModel([BOOKED, "booked it"]), tools=[reviewed(log.tools()["sync"])])
    call = ToolCall(id="b1", name="B", arguments={"request": "book Bonn"})
    runner = runner_of(reviewed(booker.as_tool()), script=[call, "done"])
    [outer] = (await runner.run("go", session_id="s")).interrupts
    assert outer.id == "agent:A;tool:B:b1;wrap:reviewed"
    [inner] = (await runner.resume("s", {outer.id: True})).interrupts
    assert inner.id == "agent:A;tool:B:b1;agent:B;tool:book:c1;wrap:reviewed"
    assert (await runner.resume("s", {inner.id: True})).output == "done"
    assert log == ["1 to Bonn"]


async def test_reviews_of_parallel_calls_are_answered_one_by_one(tmp_path: Any):  # rule R3
    log = Log()
    calls = [ToolCall(id=f"c{n}", name="book", arguments={"to": f"T{n}"}) for n in range(3)]
    url = f"sqlite:///{tmp_path}/s.db"

    def runner(script: list[Any]) -> Runner:
        return Runner(
            ChatModelAgent("A", model=ScriptedModel(script), tools=[reviewed(log.tools()["sync"])]), store=url
        )

    paused = await runner([calls, "done"]).run("go", session_id="s")
    first, second, third = paused.interrupts
    await runner(["done"]).resume("s", {second.id: True})
    assert log == ["1 to T1"]
    done = await runner(["done"]).resume("s", {first.id: False, third.id: Edit({"to": "X"})})
    assert (done.output, log) == ("done", ["1 to T1", "1 to X"])


# Follow-up questions

ASK = ToolCall(id="f1", name="follow_up", arguments={"questions": ["Where to?", "When?"]})


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (["Bonn", "now"], "Q: Where to?\nA: Bonn\nQ: When?\nA: now"),
        ({"When?": "now", "Where to?": "Bonn"}, "Q: Where to?\nA: Bonn\nQ: When?\nA: now"),
        ("Bonn, and now", "Q: Where to?\nQ: When?\nA: Bonn, and now"),
    ],
    ids=["list", "mapping", "text"],
)
async def test_a_model_asks_the_user_and_reads_the_answers(answer: Any, text: str):
    runner = runner_of(follow_up(), script=[ASK, "done"])
    [asked] = (await runner.run("go", session_id="s")).interrupts
    assert (asked.id, asked.reason) == ("agent:A;tool:follow_up:f1", "need_follow_up")
    assert asked.info == FollowUpInfo(questions=("Where to?", "When?"))
    assert asked.prompt == "Where to?\nWhen?"
    assert (await runner.resume("s", {asked.id: answer})).output == "done"
    assert await told(runner) == text


@pytest.mark.parametrize("answer", [None, [], ["Bonn"], ["a", "b", "c"], {"When?": "now"}, [1, 2], 3], ids=str)
async def test_answers_must_be_as_many_as_the_questions(answer: Any):  # rule R2
    runner = runner_of(follow_up(), script=[ASK, "done"])
    [asked] = (await runner.run("go", session_id="s")).interrupts
    with pytest.raises(InvalidAnswer):
        await runner.resume("s", {asked.id: answer})


async def test_a_model_that_asks_too_much_is_told_so():  # rule T1
    many = ToolCall(id="f1", name="follow_up", arguments={"questions": ["1?", "2?", "3?", "4?"]})
    runner = runner_of(follow_up(), script=[many, "done"])
    assert (await runner.run("go", session_id="s")).output == "done"
    assert "questions: expected at most 3 items" in await told(runner)


async def test_the_same_question_twice_is_answered_by_a_list():
    twice = ToolCall(id="f1", name="ask", arguments={"questions": ["Why?", "Why?"]})
    runner = runner_of(follow_up(name="ask", max_questions=2), script=[twice, "done"])
    [asked] = (await runner.run("go", session_id="s")).interrupts
    with pytest.raises(InvalidAnswer):
        await runner.resume("s", {asked.id: {"Why?": "so"}})
    await runner.resume("s", {asked.id: ["so", "still so"]})
    assert await told(runner) == "Q: Why?\nA: so\nQ: Why?\nA: still so"


async def test_a_follow_up_can_come_from_two_levels_down():  # rule I6
    helper = ChatModelAgent("FollowUpAgent", model=ScriptedModel([ASK, "Bonn, now"]), tools=[follow_up()])
    call = ToolCall(id="b1", name="FollowUpAgent", arguments={"request": "ask"})
    runner = runner_of(helper.as_tool(), script=[call, "done"])
    [asked] = (await runner.run("go", session_id="s")).interrupts
    assert asked.id == "agent:A;tool:FollowUpAgent:b1;agent:FollowUpAgent;tool:follow_up:f1"
    assert (await runner.resume("s", {asked.id: ["Bonn", "now"]})).output == "done"


def test_a_follow_up_without_questions_is_refused():
    with pytest.raises(UsageError, match="give 1 or more"):
        follow_up(max_questions=0)
