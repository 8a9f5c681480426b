"""A mismatch undoes what the wrong code did: its questions, those it replaced, its events (rule R6)."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from adjourn import Run, Runner, RunResult, Sessions, current, interrupt, once, workflow
from adjourn.errors import ReplayMismatch
from adjourn.events import Custom
from adjourn.stores import Store
from adjourn.workflows import Workflow
from tests._engine.asking import lone

made: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_made() -> None:
    made.clear()


@once
async def step(n: int) -> int:
    made.append(n)
    return n


def flow(body: Callable[[], Any]) -> Workflow:
    """One version of the workflow "w"."""

    async def w(input: str) -> Any:
        return await body()

    return workflow(w)


async def open_ids(runner: Runner) -> list[str]:
    return [asked.id for asked in await runner.pending("s")]


# Children that the wrong code opened


@workflow
async def kid(n: int) -> Any:
    await step(10 * n)
    return [n, interrupt("kid?", key="kid")]


@workflow
async def parent_of_kid(n: int) -> Any:
    return await current().run(kid, n)


def asking_node(state: Any) -> Any:
    return {"log": [interrupt("node?", key="node")]}


async def one_step_then_ask() -> Any:
    await step(1)
    return interrupt("go?", key="go")


CHILDREN = {"workflow": kid, "nested": parent_of_kid, "graph": lone(asking_node)}


def with_child(child: Any, number: int) -> Callable[[], Any]:
    given: Any = {} if child is CHILDREN["graph"] else 7

    async def body() -> Any:
        ran = await current().try_run(child, given)
        await step(number)
        return "paused" if ran.paused else ran.result

    return body


@pytest.mark.parametrize("child", CHILDREN)
async def test_what_a_child_of_the_wrong_code_asked_is_withdrawn(store: Store, child: str):  # rule R6
    right, wrong = flow(one_step_then_ask), flow(with_child(CHILDREN[child], 2))
    await Runner(right, store=store).run("x", session_id="s")
    with pytest.raises(ReplayMismatch):
        await Runner(wrong, store=store).resume("s", {"go": "yes"})
    assert await open_ids(Runner(right, store=store)) == []
    assert (await Runner(right, store=store).recover("s")).value == "yes"


async def test_what_a_child_of_the_wrong_code_kept_is_given_to_mended_code(store: Store):  # rules R6, R13
    async def mended() -> Any:
        await step(1)
        return [interrupt("go?", key="go"), await current().run(kid, 7)]

    await Runner(flow(one_step_then_ask), store=store).run("x", session_id="s")
    with pytest.raises(ReplayMismatch):
        await Runner(flow(with_child(kid, 2)), store=store).resume("s", {"go": "yes"})
    runner = Runner(flow(mended), store=store)
    (asked,) = (await runner.recover("s")).interrupts
    assert (asked.key, asked.address) == ("kid", "runnable:w;runnable:kid")
    done = await Runner(flow(mended), store=store).resume("s", {asked: "fine"})
    assert done.value == ["yes", [7, "fine"]]
    assert made == [1, 70]


# Questions that the wrong code replaced


async def ask(key: str, text: str) -> Any:
    return interrupt(text, key=key)


async def two_at_once() -> Any:
    await step(1)
    return await asyncio.gather(ask("a", "a?"), ask("b", "b?"))


@pytest.mark.parametrize("commits", [False, True])
async def test_an_open_question_that_wrong_code_replaced_is_open_again(store: Store, commits: bool):  # rules R6, I14
    async def wrong() -> Any:
        await asyncio.gather(ask("b", "new b?"), return_exceptions=True)
        if commits:
            await current().run(kept, 5)  # A record that is stored before the mismatch.
        await step(2)

    @workflow
    async def kept(n: int) -> Any:
        return await step(n)

    runner = Runner(flow(two_at_once), store=store)
    first = await runner.run("x", session_id="s")
    asked_a, asked_b = first.interrupts
    with pytest.raises(ReplayMismatch):
        await Runner(flow(wrong), store=store).resume("s", {asked_a: "A"})
    runner = Runner(flow(two_at_once), store=store)
    assert [asked.token for asked in await runner.pending("s")] == [asked_b.token]
    assert (await runner.resume("s", {asked_b: "B"})).value == ["A", "B"]


async def test_an_open_question_that_fitting_code_replaced_is_superseded(store: Store):  # rule I14
    async def changed() -> Any:
        await step(1)
        return await asyncio.gather(ask("a", "a?"), ask("b", "new b?"))

    await Runner(flow(two_at_once), store=store).run("x", session_id="s")
    again = await Runner(flow(changed), store=store).resume("s", {"a": "A"})
    assert [asked.info for asked in again.interrupts] == ["new b?"]
    assert [(entry.interrupt.info, entry.outcome) for entry in await Runner(flow(changed), store=store).audit("s")] == [
        ("a?", "answered"),
        ("b?", "abandoned"),
        ("new b?", None),
    ]


# Events of the wrong code


async def news(run: Any) -> list[Any]:
    return [event.data async for event in run if isinstance(event, Custom)]


@pytest.mark.parametrize("commits", [False, True])
async def test_events_of_wrong_code_do_not_count(store: Store, commits: bool):  # rules R5, R6
    async def right() -> Any:
        current().emit("begun")
        await step(1)
        answer = interrupt("go?", key="go")
        current().emit("shipped")
        current().emit("done")
        return answer

    async def wrong() -> Any:
        for n in range(4):
            current().emit(f"wrong {n}")
        if commits:
            await current().run(kid_that_ends, 5)
        return "ended early"

    @workflow
    async def kid_that_ends(n: int) -> int:
        return await step(n)

    assert await news(Runner(flow(right), store=store).run("x", session_id="s")) == ["begun"]
    with pytest.raises(ReplayMismatch):
        await Runner(flow(wrong), store=store).resume("s", {"go": "yes"})
    assert await news(Runner(flow(right), store=store).recover("s")) == ["shipped", "done"]


async def test_events_of_a_first_entry_that_failed_are_sent_by_mended_code(store: Store):  # rules R5, R6
    async def wrong() -> Any:
        current().emit("wrong 1")
        await asyncio.gather(ask("a", "a?"), ask("a", "another a?"))

    async def mended() -> Any:
        current().emit("right 1")
        return "fine"

    with pytest.raises(Exception, match="key"):
        await Runner(flow(wrong), store=store).run("x", session_id="s")
    assert await news(Runner(flow(mended), store=store).recover("s")) == ["right 1"]


# Answers that come while the program gives the question up


@pytest.mark.parametrize("options", [{}, {"durability": "async"}, {"audit_key": "a secret that nobody can guess"}])
async def test_an_answer_to_a_question_that_is_being_replaced_stands(store: Store, options: Any):  # rules I14, K6
    reached, answered = asyncio.Event(), asyncio.Event()

    async def changed() -> Any:
        await step(1)
        first = await ask("a", "a?")
        reached.set()
        await answered.wait()
        return [first, interrupt("new b?", key="b")]

    await Runner(flow(two_at_once), store=store, **options).run("x", session_id="s")
    runner = Runner(flow(changed), store=store, **options)
    going_on = asyncio.ensure_future(_result(runner.resume("s", {"a": "A"}, by="ann")))
    await reached.wait()
    await Sessions(store).answer("s", {"b": "B"}, by="bob")
    answered.set()
    assert [asked.info for asked in (await going_on).interrupts] == ["new b?"]
    audit = [(each.interrupt.info, each.outcome, each.answer, each.by) for each in await runner.audit("s")]
    assert audit == [
        ("a?", "answered", "A", "ann"),
        ("b?", "answered", "B", "bob"),
        ("new b?", None, None, None),
    ]
    assert (await runner.verify("s")).problems == ()
    again = Runner(flow(changed), store=store, **options)
    assert (await again.resume("s", {"b": "C"})).value == ["A", "C"]
    assert (await again.verify("s")).problems == ()


async def _result(run: Run) -> RunResult:
    return await run
