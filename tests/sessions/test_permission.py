"""Who may answer: approvals that need a name, and rules such as "not the requester"."""

from __future__ import annotations

from typing import Any

import pytest

from adjourn import (
    ChatModelAgent,
    Interrupt,
    Runner,
    Sessions,
    ToolCall,
    UsageError,
    current,
    interrupt,
    tool,
    workflow,
)
from adjourn.errors import AnswerRefused
from adjourn.stores import Store
from adjourn.testing import FunctionModel

REASONS = ("need_approval", "need_review", "need_decision")


@workflow
async def refund(reason: str) -> Any:
    answer = interrupt("Refund 90?", key="refund", reason=reason)
    interrupt("And now?", key="next")
    return answer, current().user_id


def not_the_requester(asked: Interrupt, by: str | None, user_id: str | None) -> bool | str:
    if asked.reason == "need_input":
        return True
    return by != user_id or "whoever asked for it cannot approve it"


async def not_the_requester_by_a_directory(asked: Interrupt, by: str | None, user_id: str | None) -> bool | str:
    return not_the_requester(asked, by, user_id)


def ways(store: Store, **rules: Any) -> list[Any]:
    """Every way to answer: calls of an answer and who gives it."""
    runner, sessions = Runner(refund, store=store, **rules), Sessions(store, **rules)

    async def resume(answers: Any, by: str | None, caller: Runner = runner) -> Any:
        return await caller.resume("s", answers, by=by)

    async def resume_bound(answers: Any, by: str | None) -> Any:
        return await resume(answers, by, runner.for_user("ann"))

    async def answer(answers: Any, by: str | None, caller: Sessions = sessions) -> Any:
        return await caller.answer("s", answers, by=by)

    async def answer_as_runner(answers: Any, by: str | None) -> Any:
        return await answer(answers, by, runner.for_user("ann"))

    return [resume, resume_bound, answer, answer_as_runner]


async def begun(store: Store, reason: str = "need_approval", user_id: str | None = "ann") -> None:
    await Sessions(store).delete("s")
    await Runner(refund, store=store).run(reason, session_id="s", user_id=user_id)


async def is_open(store: Store) -> bool:
    [entry, *_] = await Sessions(store).audit("s")
    return entry.outcome is None


@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize("way", range(4))
async def test_an_approval_by_nobody_is_refused_before_it_counts(store: Store, way: int, reason: str):
    await begun(store, reason)
    before = await Sessions(store).status("s")
    give = ways(store, require_by=True)[way]
    for by in (None, "", "  "):
        for answers in ({"refund": True}, ["refund"], None):
            with pytest.raises(UsageError, match=r"is an approval, .* by=\.\.\."):
                await give(answers, by)
    assert await is_open(store)
    assert await Sessions(store).status("s") == before
    await give({"refund": True}, "bob")
    assert [each.by for each in await Sessions(store).audit("s") if each.outcome] == ["bob"]


@pytest.mark.parametrize("way", range(4))
async def test_data_needs_no_name(store: Store, way: int):
    await begun(store, "need_input")
    await ways(store, require_by=True)[way]({"refund": True}, None)
    assert not await is_open(store)


@pytest.mark.parametrize("rule", [not_the_requester, not_the_requester_by_a_directory], ids=["sync", "async"])
@pytest.mark.parametrize("way", range(4))
async def test_nobody_approves_a_request_of_their_own(store: Store, way: int, rule: Any):
    await begun(store)
    give = ways(store, may_answer=rule)[way]
    with pytest.raises(AnswerRefused, match=r"An answer by 'ann' .* cannot approve it") as refused:
        await give({"refund": True}, "ann")
    assert (refused.value.by, refused.value.session_id) == ("ann", "s")
    assert refused.value.reason == "whoever asked for it cannot approve it"
    assert await is_open(store)
    await give({"refund": True}, "bob")
    assert not await is_open(store)


async def test_the_rule_sees_the_question_and_whose_turn_asks(store: Store):
    seen: list[Any] = []

    def rule(asked: Interrupt, by: str | None, user_id: str | None) -> bool:
        seen.append((asked.session_id, asked.key, asked.reason, asked.prompt, by, user_id))
        return True

    runner, sessions = Runner(refund, store=store, may_answer=rule), Sessions(store, may_answer=rule)
    await runner.run("need_approval", session_id="s", user_id="ann")
    await sessions.answer("s", {"refund": True}, by="bob")
    await runner.recover("s")
    await runner.resume("s", {"next": 1})
    await runner.run("need_approval", session_id="s")
    await runner.resume("s", {"refund": True}, by="bob", user_id="ann")
    await Runner(refund, store=store, may_answer=rule).answer("s", {"next": 1}, by="bob")
    assert seen == [
        ("s", "refund", "need_approval", "Refund 90?", "bob", "ann"),
        ("s", "next", "need_input", "And now?", None, "ann"),
        ("s", "refund", "need_approval", "Refund 90?", "bob", None),
        ("s", "next", "need_input", "And now?", "bob", None),
    ]


@pytest.mark.parametrize("said", [False, "", "no", None, 1, "yes", [True]])
@pytest.mark.parametrize("way", range(4))
async def test_only_true_lets_an_answer_count(store: Store, way: int, said: Any):
    def rule(*_: Any) -> Any:
        return said

    await begun(store)
    with pytest.raises((AnswerRefused, UsageError), match=r"may_answer|refused"):
        await ways(store, may_answer=rule)[way]({"refund": True}, "bob")
    assert await is_open(store)


async def test_a_rule_that_fails_lets_nothing_count(store: Store):
    def rule(*_: Any) -> bool:
        raise LookupError("the directory is away")

    await begun(store)
    for give in ways(store, may_answer=rule):
        with pytest.raises(LookupError):
            await give({"refund": True}, "bob")
    assert await is_open(store)


async def test_one_refused_answer_refuses_the_whole_call(store: Store):
    @workflow
    async def two(_: Any) -> Any:
        return await current().run_all([(ask, "one"), (ask, "two")])

    @workflow
    async def ask(name: str) -> Any:
        return interrupt(name, key=name)

    def rule(asked: Interrupt, by: str | None, user_id: str | None) -> bool:
        return asked.key == "one"

    runner = Runner(two, store=store, may_answer=rule)
    await runner.run(None, session_id="s")
    for give in (runner.resume, runner.answer):
        with pytest.raises(AnswerRefused):
            await give("s", {"one": 1, "two": 2})
        assert len(await runner.pending("s")) == 2


async def test_what_the_rule_saw_is_what_is_answered(store: Store) -> None:  # rule I13
    amounts = iter([5, 999_999])
    ran: list[int] = []

    @tool(approval=True)
    async def pay(cents: int) -> str:
        """Pay."""
        ran.append(cents)
        return "paid"

    def model(request: Any) -> Any:
        done = request.messages[-1].role == "tool"
        return "end" if done else ToolCall(id="c", name="pay", arguments={"cents": next(amounts)})

    runner = Runner(ChatModelAgent("P", model=FunctionModel(model), tools=[pay]), store=store)
    (asked,) = (await runner.run("x", session_id="s")).interrupts
    start = (await runner.history("s"))[-1].id
    looked: list[int] = []

    async def small(shown: Interrupt, by: str | None, user_id: str | None) -> bool:
        looked.append(shown.info.arguments["cents"])
        if len(looked) == 1:  # Somebody regenerates while the rule is asked.
            await runner.run(None, session_id="s", checkpoint_id=start)
        return shown.info.arguments["cents"] < 100

    with pytest.raises(AnswerRefused):
        await Sessions(store, may_answer=small).answer("s", {asked.id: True}, by="eve")
    assert (looked, ran) == ([5, 999_999], [])
