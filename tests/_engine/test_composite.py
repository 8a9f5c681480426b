"""Steering by hand: `raise_interrupt`, `try_run`, and parents that add to the questions of their children."""

import contextlib
from typing import Any

import pytest

from adjourn import Runner, RunResult, current, interrupt, once, raise_interrupt, workflow
from adjourn.errors import InterruptsDisabled, StaleCheckpoint
from adjourn.graph import END, Command
from adjourn.stores import Store
from tests._engine.asking import ids, lone

seen: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    seen.clear()


@workflow
async def child(n: int) -> str:
    seen.append(("child", n, current().interrupt_state))
    return f"{n}: {interrupt({'n': n}, key=f'q{n}', prompt=f'Number {n}?', state={'of': n})}"


@workflow
async def batch() -> Any:
    ctx = current()
    seen.append(("batch", ctx.was_interrupted, ctx.interrupt_state))
    outcomes = [await ctx.try_run(child, n, key=str(n)) for n in (1, 2, 3)]
    waiting = [outcome.signal for outcome in outcomes if outcome.signal is not None]
    assert [outcome.paused for outcome in outcomes] == [outcome.signal is not None for outcome in outcomes]
    if waiting:
        raise_interrupt(
            {"waiting": len(waiting)},
            state={"passes": 1 + (ctx.interrupt_state or {"passes": 0})["passes"]},
            children=waiting,
            reason="batch",
            prompt="A batch",
        )
    return [outcome.result for outcome in outcomes]


async def test_children_keep_their_questions_and_the_parent_adds_its_own(store: Store):  # rule I9
    result = await Runner(batch, store=store).run(session_id="s")
    assert ids(result) == [f"runnable:batch;runnable:child:{n}" for n in (1, 2, 3)]
    assert [asked.info for asked in result.interrupts] == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert all(asked.is_root_cause for asked in result.interrupts)
    first = result.interrupts[0].parent
    assert first is not None
    assert (first.id, first.is_root_cause) == ("runnable:batch", False)
    assert (first.info, first.reason, first.prompt) == ({"waiting": 3}, "batch", "A batch")
    assert all(asked.parent is first for asked in result.interrupts)
    assert [asked.parent for asked in await Runner(batch, store=store).pending("s")] == [first] * 3


async def test_a_composite_is_answered_child_by_child(store: Store):  # rules I9, R5, R7
    await Runner(batch, store=store).run(session_id="s")
    seen.clear()
    result = await Runner(batch, store=store).resume("s", {"q2": "two"})
    assert [asked.key for asked in result.interrupts] == ["q1", "q3"]
    assert result.interrupts[0].parent is not None
    assert result.interrupts[0].parent.info == {"waiting": 2}
    assert seen == [("batch", True, {"passes": 1}), ("child", 2, {"of": 2})]
    seen.clear()
    result = await Runner(batch, store=store).resume("s", {"q1": "one", "q3": "three"})
    assert result.value == ["1: one", "2: two", "3: three"]
    assert seen == [("batch", True, {"passes": 2}), ("child", 1, {"of": 1}), ("child", 3, {"of": 3})]


async def test_the_parents_own_id_is_no_question():  # rules I9, R1
    runner = Runner(batch)
    await runner.run(session_id="s")
    with pytest.raises(Exception, match="no open question 'runnable:batch'"):
        await runner.resume("s", {"runnable:batch": "x"})


def steering(state: Any) -> Any:
    ctx = current()
    seen.append((ctx.was_interrupted, ctx.interrupt_state, ctx.is_resume_target, ctx.has_resume_data, ctx.resume_data))
    if not ctx.is_resume_target:
        raise_interrupt({"ask": "by hand"}, state={"page": 7}, reason="need_review", prompt="Review?", key="review")
    return {"log": [ctx.resume_data]}


async def test_without_children_it_is_a_plain_interrupt(store: Store):  # rule I9
    result = await lone(steering, store=store).run({}, session_id="s")
    (asked,) = result.interrupts
    assert (asked.id, asked.info, asked.reason) == ("runnable:g;node:ask", {"ask": "by hand"}, "need_review")
    assert (asked.prompt, asked.key, asked.is_root_cause) == ("Review?", "review", True)
    result = await lone(steering, store=store).resume("s", {"review": {"ok": True}})
    assert result.state["log"] == [{"ok": True}]
    assert seen == [(False, None, False, False, None), (True, {"page": 7}, True, True, {"ok": True})]


async def test_an_answer_without_data_is_told_apart(store: Store):  # rules I9, R1
    await lone(steering, store=store).run({}, session_id="s")
    result = await lone(steering, store=store).resume("s")
    assert result.state["log"] == [None]
    assert seen[-1] == (True, {"page": 7}, True, False, None)


async def test_state_and_data_are_delivered_once(store: Store):  # rule R8
    def node(state: Any) -> Command:
        return Command(update=steering(state), goto="ask" if len(state["log"]) < 2 else END)

    result: RunResult = await lone(node, store=store).run({}, session_id="s")
    for answer in ("a", "b", "c"):
        result = await lone(node, store=store).resume("s", {"review": answer})
    assert result.state["log"] == ["a", "b", "c"]
    fresh, again = (False, None, False, False, None), (True, {"page": 7}, True, True)
    assert seen == [fresh, (*again, "a"), fresh, (*again, "b"), fresh, (*again, "c")]


async def test_a_frame_can_raise_again_after_an_answer(store: Store):  # rule I9
    def node(state: Any) -> Any:
        ctx = current()
        if ctx.resume_data != "stop":
            raise_interrupt("more?", state=(ctx.interrupt_state or 0) + 1)
        return {"log": [ctx.interrupt_state]}

    result = await lone(node, store=store).run({}, session_id="s")
    for number in range(1, 4):
        assert ids(result) == ["runnable:g;node:ask" + (f"#{number}" if number > 1 else "")]
        result = await lone(node, store=store).resume("s", {ids(result)[0]: "go on"})
    result = await lone(node, store=store).resume("s", {ids(result)[0]: "stop"})
    assert result.state["log"] == [4]


async def test_raising_by_hand_beside_a_question_asks_each_once(store: Store):  # rules I9, R6
    def node(state: Any) -> Any:
        ctx = current()
        answers: list[Any] = []
        with contextlib.suppress(BaseException):
            answers.append(interrupt("a", key="a"))
        if not ctx.is_resume_target:
            raise_interrupt("b", key="b")
        return {"log": [*answers, ctx.resume_data]}

    result = await lone(node, store=store).run({}, session_id="s")
    assert [asked.key for asked in result.interrupts] == ["a", "b"]
    result = await lone(node, store=store).resume("s", {"a": 1})
    assert [asked.key for asked in result.interrupts] == ["b"]
    assert (await lone(node, store=store).resume("s", {"b": 2})).state["log"] == [1, 2]


async def test_a_raised_interrupt_cannot_be_swallowed():  # rule I1
    def node(state: Any) -> Any:
        if not current().is_resume_target:
            with contextlib.suppress(BaseException):
                raise_interrupt("q", key="q")
        return {"log": [current().resume_data]}

    graph = lone(node)
    assert (await graph.run({}, session_id="s")).status == "interrupted"
    assert (await graph.resume("s", {"q": 1})).state["log"] == [1]


async def test_raising_is_refused_where_interrupts_are(store: Store):  # api: interrupts=False
    with pytest.raises(InterruptsDisabled):
        await lone(steering, store=store, interrupts=False).run({}, session_id="s")


# A parent need not wait for a child that pauses.


@once
async def step(n: int) -> int:
    return n


@workflow
async def impatient() -> Any:
    outcome = await current().try_run(child, 1)
    await step(1)
    return "without" if outcome.paused else outcome.result


async def test_a_parent_that_goes_on_gives_up_its_childs_question(store: Store):  # rules I9, C4
    runner = Runner(impatient, store=store)
    result = await runner.run(session_id="s")
    assert (result.status, result.value, result.interrupts) == ("done", "without", ())
    assert await runner.pending("s") == []
    assert await runner.pending() == []
    with pytest.raises(StaleCheckpoint):
        await runner.resume("s", {"q1": "late"})
    assert (await runner.run(session_id="s")).status == "done"


async def test_try_run_keeps_what_a_finished_child_gave(store: Store):  # rules I9, R5
    runs: list[int] = []

    @workflow
    async def quick(n: int) -> int:
        runs.append(n)
        return n * 2

    @workflow
    async def parent() -> Any:
        outcome = await current().try_run(quick, 21)
        assert not outcome.paused
        assert outcome.signal is None
        return [outcome.result, interrupt("q", key="q")]

    await Runner(parent, store=store).run(session_id="s")
    assert (await Runner(parent, store=store).resume("s", {"q": 1})).value == [42, 1]
    assert runs == [21]
