"""Answers with an id: sent again, by whomever and to whichever process, they are the same answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from adjourn import (
    AlreadyResumed,
    ChatModelAgent,
    Reject,
    Runner,
    Sessions,
    ToolCall,
    UsageError,
    current,
    interrupt,
    tool,
    workflow,
)
from adjourn.errors import Conflict
from adjourn.events import Done, Interrupted
from adjourn.stores import Store
from adjourn.stores._wrapper import StoreWrapper
from adjourn.stores.kit import GiveAnswers, StoreRequest
from adjourn.testing import FaultStore, ScriptedModel

T = TypeVar("T")


async def test_an_id_stands_for_values_too(store: Store):  # rule R20
    @workflow
    async def asks(_: str) -> object:
        return interrupt("one?", key="one", schema=str), current().values.get("v")

    made = Runner(asks, store=store)
    await made.run("x", session_id="s")
    first = await made.resume("s", {"one": "a"}, id="k", values={"v": 1})
    assert first.value == ("a", 1)
    assert (await made.resume("s", {"one": "a"}, id="k", values={"v": 1})).value == ("a", 1)
    for values in ({"v": 2}, None, {"v": 1, "w": 1}):
        with pytest.raises(Conflict, match="something else was answered under the id 'k'"):
            await made.resume("s", {"one": "a"}, id="k", values=values)


@workflow
async def two_questions(_: str) -> list[str]:
    return [interrupt("one?", key="one", schema=str), interrupt("two?", key="two", schema=str)]


def runner(store: Store) -> Runner[list[str]]:
    return Runner(two_questions, store=store)


async def test_the_same_id_is_the_same_answer(store: Store):  # rule R3
    await runner(store).run("x", session_id="s")
    first = [event async for event in runner(store).resume("s", {"one": "a"}, id="k1")]
    again = [event async for event in runner(store).resume("s", {"one": "a"}, id="k1")]
    stored = [event.seq for event in first if event.seq is not None]
    assert [event.seq for event in again] == stored
    assert isinstance(again[-1], Interrupted)
    with pytest.raises(AlreadyResumed):
        await runner(store).resume("s", {"one": "a"}, id="k2")
    with pytest.raises(AlreadyResumed):
        await runner(store).resume("s", {"one": "a"})
    assert (await runner(store).resume("s", {"two": "b"}, id="k3")).value == ["a", "b"]
    # What came after it is not part of what it led to.
    assert (await runner(store).resume("s", {"one": "a"}, id="k1")).status == "interrupted"
    entries = await runner(store).audit("s")
    assert [(entry.answer, entry.by) for entry in entries] == [("a", None), ("b", None)]


async def test_of_many_at_once_one_counts_and_the_others_follow_it(store: Store):  # rules R3, V13
    await runner(store).run("x", session_id="s")
    results = await asyncio.gather(*(runner(store).resume("s", {"one": "a"}, by="ann", id="k") for _ in range(5)))
    assert {result.status for result in results} == {"interrupted"}
    assert [entry.outcome for entry in await runner(store).audit("s")] == ["answered", None]


async def test_recorded_answers_have_ids_too(store: Store):  # rule V13
    await runner(store).run("x", session_id="s")
    for _ in range(2):
        await runner(store).answer("s", {"one": "a"}, id="k")
    with pytest.raises(AlreadyResumed):
        await runner(store).answer("s", {"one": "a"}, id="other")
    result = await runner(store).resume("s", {"one": "a"}, id="k")  # Nobody has gone on with it so far.
    assert result.status == "interrupted"
    assert [each.key for each in result.interrupts] == ["two"]


async def test_a_message_and_an_id_go_together(store: Store):
    failing = FaultStore(store, fail_at=1, mode="after")
    await runner(store).run("x", session_id="s")
    events = [event async for event in runner(failing).resume("s", {"one": "a"}, id="k")]
    assert isinstance(events[-1], Interrupted | Done)


def doors(store: Store) -> list[Any]:
    """Every way to answer under an id."""
    return [runner(store).resume, runner(store).answer, Sessions(store).answer, runner(store).for_user("ann").resume]


OTHERS: dict[str, dict[str, Any]] = {
    "another value": {"answers": {"one": "b"}},
    "a value that does not fit": {"answers": {"one": 7}},
    "another question": {"answers": {"two": "a"}},
    "an unknown question": {"answers": {"three": "a"}},
    "one more question": {"answers": {"one": "a", "two": "b"}},
    "another person": {"by": "bob"},
    "nobody": {"by": None},
    "no data": {"answers": None},
    "a message": {"message": "Hello."},
}


@pytest.mark.parametrize("moment", ["before it goes on", "while it waits", "after its end", "after the next turn"])
@pytest.mark.parametrize("other", OTHERS)
async def test_another_answer_under_its_id_is_a_conflict(store: Store, other: str, moment: str):  # rule R20
    first: dict[str, Any] = {"answers": {"one": "a"}, "by": "ann"}
    await runner(store).run("x", session_id="s", user_id="ann")
    await runner(store).answer("s", **first, id="k")
    if moment != "before it goes on":
        await runner(store).recover("s")
    if moment.startswith("after"):
        await runner(store).resume("s", {"two": "b"})
    if moment == "after the next turn":
        await runner(store).run("y", session_id="s", user_id="ann")
    before = await Sessions(store).audit("s")
    for give in doors(store):
        with pytest.raises(Conflict, match=r"under the id 'k'\. Choose another id"):
            await give("s", **{**first, **OTHERS[other]}, id="k")
    assert await Sessions(store).audit("s") == before
    for give in doors(store):
        await give("s", **first, id="k")  # The same is still the same.


async def test_the_same_answer_may_name_its_question_in_other_words(store: Store):  # rule R20
    (asked,) = (await runner(store).run("x", session_id="s")).interrupts
    await runner(store).answer("s", {"one": "a"}, id="k")
    for name in (asked, asked.id, asked.token, "one"):
        await runner(store).answer("s", {name: "a"}, id="k")
    with pytest.raises(Conflict):
        await runner(store).answer("s", {asked.token[:-1] + ("0" if asked.token[-1] != "0" else "1"): "a"}, id="k")


async def test_an_id_stands_for_answers(store: Store):  # rule R20
    await runner(store).run("x", session_id="s")
    await Sessions(store).answer("s", {"one": "a"})
    for _ in range(2):
        with pytest.raises(UsageError, match=r"resume\(id='j'\) gives no answer.*call `recover`"):
            await runner(store).resume("s", id="j", by="ann")
    paused = await runner(store).recover("s")
    assert [each.key for each in paused.interrupts] == ["two"]


async def test_several_answers_are_the_same_in_any_order(store: Store):  # rule R20
    tools = [pay]
    calls = [ToolCall(id=each, name="pay", arguments={"to": each}) for each in ("c1", "c2")]
    script = [calls, "done"]
    made = Runner(ChatModelAgent("A", model=ScriptedModel(script), tools=tools), store=store)
    paused = await made.run("go", session_id="s")
    answers = {asked: Reject(f"not {asked.info.arguments['to']}") for asked in paused.interrupts}
    await made.answer("s", answers, message="Sorry.", id="k")
    await made.answer("s", dict(reversed(answers.items())), message="Sorry.", id="k")
    for message in (None, "Sorry!"):
        with pytest.raises(Conflict):
            await made.answer("s", answers, message=message, id="k")
    assert (await made.resume("s", answers, message="Sorry.", id="k")).output == "done"


@tool(approval=True)
async def pay(to: str) -> str:
    """Pay."""
    return f"paid {to}"


async def test_of_two_who_say_something_else_at_once_one_counts(store: Store):  # rules R3, R20
    await runner(store).run("x", session_id="s")
    given = [runner(store).resume("s", {"one": value}, id="k") for value in ("a", "b")]
    ended = await asyncio.gather(*given, return_exceptions=True)
    assert sorted(type(each).__name__ for each in ended) == ["Conflict", "RunResult"]
    assert [each.outcome for each in await Sessions(store).audit("s")] == ["answered", None]


async def test_another_session_has_ids_of_its_own(store: Store):  # rule R20
    for session in ("s", "t"):
        await runner(store).run("x", session_id=session)
        await runner(store).answer(session, {"one": session}, id="k")
    assert [(await Sessions(store).audit(each))[0].answer for each in ("s", "t")] == ["s", "t"]


async def test_a_fork_has_ids_of_its_own(store: Store):  # rule R20
    await runner(store).run("x", session_id="s")
    await runner(store).resume("s", {"one": "a"}, id="k")
    await runner(store).fork("s", to="t")
    with pytest.raises(AlreadyResumed):
        await runner(store).answer("t", {"one": "a"}, id="k")
    assert (await runner(store).resume("t", {"two": "b"}, id="k")).value == ["a", "b"]
    assert (await runner(store).resume("t", {"two": "b"}, id="k")).value == ["a", "b"]


async def test_an_answer_on_a_branch_that_was_left_is_not_told_as_given(store: Store):  # rules R16, R20
    paused = await runner(store).run("x", session_id="s")
    await runner(store).resume("s", {"one": "a"}, id="k")
    again = await runner(store).run(None, session_id="s", checkpoint_id=paused.checkpoint_id)
    assert [each.key for each in again.interrupts] == ["one"]
    with pytest.raises(Conflict, match="under the id 'k'"):
        await runner(store).answer("s", {"one": "a"}, id="k")
    assert [each.outcome for each in await Sessions(store).audit("s")] == [None]


async def test_an_answer_that_a_branch_has_inherited_is_the_same(store: Store):  # rule R20
    (asked,) = (await runner(store).run("x", session_id="s")).interrupts
    await runner(store).resume("s", {asked: "a"}, id="k")
    await runner(store).fork("s", to="s")
    assert (await runner(store).answer("s", {asked.token: "a"}, id="k")).status == "waiting"
    with pytest.raises(Conflict):
        await runner(store).answer("s", {"two": "a"}, id="k")


@pytest.mark.parametrize("has_begun", [False, True])
async def test_an_answer_under_the_id_of_an_input_is_a_conflict(store: Store, has_begun: bool):  # rule R20
    if has_begun:
        await runner(store).submit("x", session_id="s", id="k", user_id="ann")
        await runner(store).advance("s")
    else:
        await runner(store).run("x", session_id="s", user_id="ann")
        await runner(store).submit("y", session_id="s", id="k", user_id="ann")
    for give in doors(store):
        with pytest.raises(Conflict, match=r"under the id 'k'\. Choose another id"):
            await give("s", {"one": "a"}, id="k")
    assert [each.outcome for each in await Sessions(store).audit("s")] == [None]
    assert (await runner(store).answer("s", {"one": "a"}, id="other")).session_id == "s"


class Between(StoreWrapper):
    """A store that does something once, right before it records an answer."""

    def __init__(self, inner: Store, before: Callable[[], Awaitable[Any]]) -> None:
        super().__init__(inner)
        self.before: Callable[[], Awaitable[Any]] | None = before

    async def write(self, request: StoreRequest[T]) -> T:
        if self.before is not None and isinstance(request.plain, GiveAnswers):
            before, self.before = self.before, None
            await before()
        return await super().write(request)


async def test_of_two_who_answer_different_questions_at_once_one_counts(store: Store):  # rule R20
    @workflow
    async def both(_: str) -> Any:
        return await current().run_all([(question, "one"), (question, "two")])

    @workflow
    async def question(name: str) -> str:
        return interrupt(name, key=name, schema=str)

    await Runner(both, store=store).run("x", session_id="s")
    other = Between(store, lambda: Sessions(store).answer("s", {"two": "b"}, id="k"))
    with pytest.raises(Conflict):
        await Sessions(other).answer("s", {"one": "a"}, id="k")


async def test_an_input_under_the_id_of_an_answer_is_a_conflict(store: Store):  # rule R20
    await runner(store).run("x", session_id="s")
    await runner(store).answer("s", {"one": "a"}, id="k")
    with pytest.raises(Conflict):
        await runner(store).submit("y", session_id="s", id="k")


async def test_what_is_not_an_id_is_refused(store: Store):
    await runner(store).run("x", session_id="s")
    with pytest.raises(UsageError, match="id"):
        await runner(store).resume("s", {"one": "a"}, id="\ud800")
