"""Questions raised by hand at addresses of their own: each has its own state and its own answer."""

from typing import Any

import pytest

from adjourn import Runner, address_segment, current, interrupt, raise_interrupt, workflow
from adjourn.errors import Pause, UnknownInterrupt
from adjourn.stores import Store
from tests._engine.asking import ids, lone

seen: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    seen.clear()


def process(name: str) -> str:
    """A part of a node that pauses and goes on by itself."""
    ctx = current()
    seen.append((name, ctx.was_interrupted, ctx.interrupt_state, ctx.is_resume_target, ctx.resume_data))
    if not ctx.is_resume_target:
        raise_interrupt(f"{name}?", state={"of": name})
    return f"{name}={ctx.resume_data}"


def both(state: Any) -> Any:
    """A node of two such parts, which pauses as long as one of them does."""
    results: list[str] = []
    waiting: list[Pause] = []
    for name in ("p1", "p2"):
        with address_segment("process", name):
            try:
                results.append(process(name))
            except Pause as pause:
                waiting.append(pause)
    if waiting:
        raise_interrupt({"waiting": len(waiting)}, state="both", children=waiting)
    return {"log": results}


FIRST, SECOND = "runnable:g;node:ask;process:p1", "runnable:g;node:ask;process:p2"
NEW = [("p1", False, None, False, None), ("p2", False, None, False, None)]


async def test_two_processes_answered_together(store: Store):  # rules I9, R8
    paused = await lone(both, store=store).run({}, session_id="s")
    assert ids(paused) == [FIRST, SECOND]
    assert [asked.info for asked in paused.interrupts] == ["p1?", "p2?"]
    assert [asked.parent.info for asked in paused.interrupts if asked.parent] == [{"waiting": 2}] * 2
    done = await lone(both, store=store).resume("s", {FIRST: 1, SECOND: 2})
    assert done.state["log"] == ["p1=1", "p2=2"]
    assert seen == [*NEW, ("p1", True, {"of": "p1"}, True, 1), ("p2", True, {"of": "p2"}, True, 2)]


@pytest.mark.parametrize(("one", "other"), [(FIRST, SECOND), (SECOND, FIRST)])
async def test_two_processes_answered_one_by_one(store: Store, one: str, other: str):  # rules I9, R7, R8
    answers = {FIRST: "a", SECOND: "b"}
    await lone(both, store=store).run({}, session_id="s")
    half = await lone(both, store=store).resume("s", {one: answers[one]})
    assert ids(half) == [other]
    done = await lone(both, store=store).resume("s", {other: answers[other]})
    assert done.state["log"] == ["p1=a", "p2=b"]


async def test_the_code_around_sees_its_own_state(store: Store):  # rule I9
    states: list[Any] = []

    def node(state: Any) -> Any:
        ctx = current()
        states.append((ctx.was_interrupted, ctx.interrupt_state, ctx.is_resume_target, ctx.resume_data))
        return both(state)

    await lone(node, store=store).run({}, session_id="s")
    await lone(node, store=store).resume("s", {FIRST: 1, SECOND: 2})
    assert states == [(False, None, False, None), (True, "both", False, None)]


async def test_a_process_that_never_paused_is_told_so(store: Store):  # rule I9
    paused: list[tuple[str, bool]] = []

    def node(state: Any) -> Any:
        for name in ("quiet", "loud"):
            with address_segment("process", name):
                paused.append((name, current().was_interrupted))
                if name == "loud" and not current().is_resume_target:
                    raise_interrupt("?")
        return {"log": ["end"]}

    result = await lone(node, store=store).run({}, session_id="s")
    await lone(node, store=store).resume("s", {ids(result)[0]: 1})
    assert paused == [("quiet", False), ("loud", False), ("quiet", False), ("loud", True)]


async def test_one_that_raises_again_is_asked_anew_alone(store: Store):  # rules I3, I9
    def again(name: str) -> str:
        ctx = current()
        if ctx.resume_data != "stop":
            raise_interrupt(f"{name}?", state=(ctx.interrupt_state or 0) + 1)
        return f"{name} {ctx.interrupt_state}"

    def node(state: Any) -> Any:
        results: list[str] = []
        for name in ("p1", "p2"):
            with address_segment("process", name):
                try:
                    results.append(again(name))
                except Pause:
                    continue
        return {"log": results}

    await lone(node, store=store).run({}, session_id="s")
    more = await lone(node, store=store).resume("s", {FIRST: "more", SECOND: "stop"})
    assert ids(more) == [f"{FIRST}#2"]
    done = await lone(node, store=store).resume("s", {f"{FIRST}#2": "stop"})
    assert done.state["log"] == ["p1 2", "p2 1"]


# Code that waits for a child has been interrupted, too.


@workflow
async def child() -> Any:
    return interrupt("child?", key="c")


async def test_code_whose_child_paused_was_interrupted(store: Store):  # rule I9
    paused: list[bool] = []

    @workflow
    async def parent() -> Any:
        paused.append(current().was_interrupted)
        first = await current().run(child)
        paused.append(current().was_interrupted)
        return [first, interrupt("parent?", key="p")]

    await Runner(parent, store=store).run(session_id="s")
    await Runner(parent, store=store).resume("s", {"c": 1})
    assert paused == [False, True, True]
    assert (await Runner(parent, store=store).resume("s", {"p": 2})).value == [1, 2]
    assert paused == [False, True, True, True, True]


async def test_only_the_process_whose_child_paused_was_interrupted(store: Store):  # rule I9
    paused: list[tuple[str, bool]] = []

    @workflow
    async def parent() -> Any:
        result: Any = None
        for name in ("quiet", "loud"):
            with address_segment("process", name):
                paused.append((name, current().was_interrupted))
                result = await current().run(child) if name == "loud" else None
        return result

    await Runner(parent, store=store).run(session_id="s")
    assert (await Runner(parent, store=store).resume("s", {"c": 1})).value == 1
    assert paused == [("quiet", False), ("loud", False), ("quiet", False), ("loud", True)]


async def test_a_new_turn_was_not_interrupted(store: Store):  # rule R8
    paused: list[bool] = []

    @workflow
    async def parent() -> Any:
        paused.append(current().was_interrupted)
        return await current().run(child)

    runner = Runner(parent, store=store)
    await runner.run(session_id="s")
    await runner.resume("s", {"c": 1})
    await runner.run(session_id="s")
    assert paused == [False, True, False]


async def test_the_id_of_a_parent_is_not_a_question(store: Store):  # rules I9, R2
    targets: list[bool] = []

    @workflow
    async def parent() -> Any:
        targets.append(current().is_resume_target)
        return await current().run(child)

    runner = Runner(parent, store=store)
    (asked,) = (await runner.run(session_id="s")).interrupts
    assert asked.parent is not None
    with pytest.raises(UnknownInterrupt, match="place above open questions"):
        await runner.resume("s", {asked.parent.id: 1})
    assert (await runner.resume("s", {asked.id: 1})).value == 1
    assert targets == [False, False]  # The answer was for the child's question.
