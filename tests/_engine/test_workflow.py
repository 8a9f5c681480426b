"""Workflows: plain async functions, made durable by `once`, `interrupt` and child runs."""

from pathlib import Path
from typing import Any

import pytest

from adjourn import (
    Runner,
    UsageError,
    address_segment,
    current,
    has_resume_value,
    interrupt,
    once,
    resume_value,
    workflow,
)
from adjourn.errors import NotInRun, NotStorable
from adjourn.stores import Store
from tests._engine.asking import ids

made: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_made() -> None:
    made.clear()


@once
async def charge(cents: int) -> str:
    made.append(cents)
    return f"receipt {cents}"


async def test_a_workflow_is_durable(store: Store):  # api: workflow; rules R5, R13
    @workflow
    async def refund(order: str) -> Any:
        made.append("start")
        receipt = await charge(100)
        manager = interrupt({"order": order}, key="manager", reason="need_approval", schema=bool)
        director = interrupt("Director: ok?", key="director", schema=bool)
        return {"receipt": receipt, "ok": manager and director}

    result = await Runner(refund, store=store).run("o1", session_id="s")
    assert (result.status, result.output, result.value, ids(result)) == ("interrupted", "", None, ["runnable:refund"])
    result = await Runner(refund, store=store).resume("s", {"manager": True}, by="ann")
    assert ids(result) == ["runnable:refund#2"]
    result = await Runner(refund, store=store).resume("s", {"director": True}, by="bob")
    assert (result.status, result.value) == ("done", {"receipt": "receipt 100", "ok": True})
    assert made == ["start", 100, "start", "start"]


async def test_text_is_the_output(store: Store):  # api: RunResult
    @workflow
    async def greet(name: str) -> str:
        return f"Hello {name}"

    result = await Runner(greet, store=store).run("Ann", session_id="s")
    assert (result.output, result.value, result.state) == ("Hello Ann", "Hello Ann", None)
    assert (await Runner(greet, store=store).recover("s")).output == "Hello Ann"


async def test_it_is_still_a_plain_function():  # api: workflow
    @workflow
    async def double(n: int) -> int:
        return 2 * n

    assert await double(21) == 42


async def test_its_argument_is_the_input(store: Store):  # api: workflow
    @workflow
    async def none() -> str:
        return "none"

    @workflow
    async def one(n: Any) -> Any:
        return n

    @workflow
    async def optional(n: Any = "default") -> Any:
        return n

    assert (await Runner(none, store=store).run(session_id="a")).value == "none"
    assert (await Runner(one, store=store).run((1, b"2"), session_id="b")).value == (1, b"2")
    assert (await Runner(one, store=store).run(session_id="c")).value is None
    assert (await Runner(optional, store=store).run(session_id="d")).value == "default"
    assert (await Runner(optional, store=store).run(7, session_id="e")).value == 7


def test_what_cannot_be_a_workflow_is_refused():  # api: workflow
    def sync() -> None: ...

    async def two(a: int, b: int) -> None: ...

    for fn in (sync, two):
        with pytest.raises(UsageError, match=fn.__name__):
            workflow(fn)  # pyright: ignore[reportArgumentType]


async def test_a_name_can_be_given(store: Store):  # api: workflow
    @workflow(name="pay; now")
    async def flow() -> Any:
        return interrupt("q")

    result = await Runner(flow, store=store).run(session_id="s")
    assert ids(result) == ["runnable:pay%3B now"]


async def test_a_result_that_cannot_be_stored_fails_the_run(store: Store):  # rule I7
    broken = True

    @workflow
    async def flow() -> Any:
        return object() if broken else await charge(1)

    with pytest.raises(NotStorable, match="result"):
        await Runner(flow, store=store).run(session_id="s")
    broken = False
    assert (await Runner(flow, store=store).recover("s")).value == "receipt 1"


async def test_an_input_that_cannot_be_stored_is_refused(store: Store):  # rule I7
    @workflow
    async def flow(n: Any) -> Any:
        made.append("ran")

    with pytest.raises(NotStorable, match="input"):
        await Runner(flow, store=store).run(object(), session_id="s")
    assert made == []


async def test_a_failed_workflow_goes_on_with_what_it_has(store: Store):  # rules R5, R13
    broken = True

    @workflow
    async def flow(n: int) -> Any:
        receipt, answer = await charge(n), interrupt("q", key="q")
        if broken:
            raise ValueError("broken")
        return [receipt, answer]

    await Runner(flow, store=store).run(5, session_id="s")
    with pytest.raises(ValueError, match="broken"):
        await Runner(flow, store=store).resume("s", {"q": 1})
    broken = False
    assert (await Runner(flow, store=store).recover("s")).value == ["receipt 5", 1]
    assert made == [5]


async def test_each_turn_starts_from_nothing_but_values(store: Store):  # rule R8
    @workflow
    async def flow(n: int) -> Any:
        current().values["seen"] = [*current().values.get("seen", []), n]
        return [await charge(1), interrupt("q", key="q"), current().values["seen"]]

    for turn in (1, 2, 3):
        result = await Runner(flow, store=store).run(turn, session_id="s")
        assert ids(result) == ["runnable:flow" + (f"#{turn}" if turn > 1 else "")]
        result = await Runner(flow, store=store).resume("s", {"q": turn})
        assert result.value == ["receipt 1", turn, list(range(1, turn + 1))]
    assert made == [1, 1, 1]


# Shorthands


async def test_address_segments_name_places_within_a_frame(store: Store):  # api: address_segment; rule I3
    @workflow
    async def flow() -> Any:
        answers: list[Any] = []
        for part in ("p1", "p2"):
            with address_segment("process", part), address_segment("step", "ask", "x"):
                assert str(current().address) == f"runnable:flow;process:{part};step:ask:x"
                answers.append(interrupt("q", key=part))
        assert str(current().address) == "runnable:flow"
        return answers

    result = await Runner(flow, store=store).run(session_id="s")
    assert ids(result) == ["runnable:flow;process:p1;step:ask:x"]
    assert result.interrupts[0].parent is not None
    assert result.interrupts[0].parent.id == "runnable:flow;process:p1"
    result = await Runner(flow, store=store).resume("s", {ids(result)[0]: 1})
    assert ids(result) == ["runnable:flow;process:p2;step:ask:x"]
    assert (await Runner(flow, store=store).resume("s", {"p2": 2})).value == [1, 2]


async def test_segments_are_left_with_their_block():  # api: address_segment
    @workflow
    async def flow() -> Any:
        with pytest.raises(ValueError, match="x"), address_segment("a", "b"):
            raise ValueError("x")
        return str(current().address)

    assert (await Runner(flow).run()).value == "runnable:flow"


async def test_answers_can_be_looked_up_by_key(store: Store):  # api: resume_value, has_resume_value
    @workflow
    async def flow() -> Any:
        before = (has_resume_value("q"), resume_value("q", default="none"))
        if not has_resume_value("q"):
            with pytest.raises(KeyError):
                resume_value("q")
            interrupt("q", key="q")
        return [before, resume_value("q"), has_resume_value("other")]

    await Runner(flow, store=store).run(session_id="s")
    assert (await Runner(flow, store=store).resume("s", {"q": "yes"})).value == [(True, "yes"), "yes", False]


def test_shorthands_need_a_run():  # rule R13
    for call in (
        lambda: has_resume_value("q"),
        lambda: resume_value("q"),
        lambda: address_segment("a", "b").__enter__(),
    ):
        with pytest.raises(NotInRun):
            call()


async def test_the_context_tells_where_and_who(store: Store):  # api: current()
    @workflow
    async def flow() -> Any:
        ctx = current()
        return [str(ctx.address), ctx.session_id, ctx.user_id, ctx.attempt, ctx.deps]

    result = await Runner(flow, store=store).run(session_id="s", user_id="u", deps="d")
    assert result.value == ["runnable:flow", "s", "u", 1, "d"]


async def test_sync_code_can_drive_a_workflow(tmp_path: Path):  # api: run_sync
    @workflow
    async def flow() -> Any:
        return interrupt("q", key="q")

    runner = Runner(flow, store=f"sqlite:///{tmp_path}/s.db")

    def work() -> Any:
        runner.run_sync(session_id="s")
        return runner.resume_sync("s", {"q": "yes"}).value

    assert work() == "yes"
    await runner.store.close()


async def test_a_workflow_has_no_state_to_edit(store: Store):  # api: edit
    @workflow
    async def flow() -> Any:
        return interrupt("q", key="q")

    runner = Runner(flow, store=store)
    await runner.run(session_id="s")
    with pytest.raises(UsageError, match="flow"):
        await runner.edit("s", {"a": 1})
    assert (await runner.resume("s", {"q": 1})).value == 1


async def test_input_that_does_not_fit_is_refused_before_the_turn_begins(store: Store):
    @workflow
    async def order(number: str) -> str:
        made.append(number)
        return number

    @workflow
    async def orders(numbers: list[int] | None = None) -> Any:
        return [await current().run(order, number) for number in numbers or ()]

    runner = Runner(order, store=store)
    with pytest.raises(UsageError, match=r"'order' needs an input: 'number', str"):
        await runner.run(session_id="s")
    with pytest.raises(UsageError, match=r"'order': its input 'number' does not fit: expected str, got 5 \(int\)"):
        await runner.run(5, session_id="s")
    assert await runner.sessions() == []
    assert (await runner.run("A1", session_id="s")).value == "A1"
    assert (await Runner(orders).run()).value == []
    with pytest.raises(UsageError, match=r"\[1\]: expected int"):
        await Runner(orders).run([1, "2"])
    with pytest.raises(UsageError, match=r"'order'.*expected str, got 1"):
        await Runner(orders).run([1])
    assert made == ["A1"]
