"""Tools that take too long: the model is told, the run goes on, and what comes late counts no more."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from adjourn import ChatModelAgent, Retry, ToolError, current, interrupt, once, tool
from adjourn.stores import Store
from adjourn.testing import ScriptedModel
from tests.agents.calling import all_of, call, lone, results, runner, told
from tests.passing import pass_time

SOON = 0.05
A_WHILE = 1.5
"""For what must have begun, or got somewhere, by then: a busy machine takes a moment. Nobody waits for it."""
PATIENCE = 120.0
ran: list[Any] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ran.clear()


async def for_ever() -> None:
    await asyncio.get_running_loop().create_future()


async def test_an_async_tool_is_cancelled_and_the_model_told(store: Store) -> None:  # rule T6
    @tool(timeout=SOON)
    async def hang() -> str:
        """Never return."""
        try:
            await for_ever()
        finally:
            ran.append("cancelled")
        return "no"

    made = runner([hang], call("hang"), store=store)
    events = await all_of(made.run("go", session_id="s"))
    (ended,) = told(events)
    assert ended.error is not None
    assert "'hang' gave no result within 0.05 s" in ended.result
    assert ran == ["cancelled"]


async def test_a_sync_tool_is_given_up_and_its_late_calls_are_refused() -> None:  # rules T6, G13
    begun, go, over = threading.Event(), threading.Event(), threading.Event()

    @tool(timeout=A_WHILE)
    def hang() -> str:
        """Return late."""
        begun.set()
        go.wait(PATIENCE)
        for late in (lambda: interrupt("late"), lambda: current().values.update(late=1), current().break_loop):
            try:
                late()
            except BaseException as error:  # noqa: BLE001  # the test looks at it
                ran.append(type(error).__name__)
        over.set()
        return "late"

    made = runner([hang], call("hang"))
    running = asyncio.ensure_future(made.run("go", session_id="s"))
    await asyncio.to_thread(begun.wait, PATIENCE)
    await pass_time(A_WHILE)
    assert "gave no result" in results(await running)[0]
    go.set()
    await asyncio.to_thread(over.wait, PATIENCE)
    assert len(ran) == 3
    assert (await made.status("s")).status == "done"


async def test_siblings_of_one_that_hangs_are_not_held_up() -> None:  # rules T3, T6
    @tool(timeout=SOON)
    async def hang() -> str:
        """Never return."""
        await for_ever()
        return "no"

    @tool
    async def quick() -> str:
        """Return."""
        return "quick"

    result = await runner([hang, quick], [call("hang", "c1"), call("quick", "c2")]).run("go")
    assert results(result)[1] == "quick"


async def test_a_tool_that_swallows_its_cancellation_is_abandoned() -> None:  # rule T6, failures 68
    free = asyncio.Event()

    @tool(timeout=SOON)
    async def stubborn() -> str:
        """Go on whatever comes."""
        while not free.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await free.wait()
            await pass_time(A_WHILE)
        return "at last"

    result = await asyncio.wait_for(runner([stubborn], call("stubborn")).run("go"), PATIENCE)
    free.set()
    assert "gave no result" in results(result)[0]


async def test_a_tool_that_makes_its_cancellation_another_error_has_timed_out() -> None:  # rule T6
    @tool(timeout=SOON)
    async def other() -> str:
        """Raise something else."""
        try:
            await for_ever()
        except asyncio.CancelledError:
            raise ValueError("I was cancelled") from None
        return "no"

    (text,) = results(await runner([other], call("other")).run("go"))
    assert text.startswith("Error")


async def test_a_tools_own_timeout_error_is_its_own() -> None:  # rule T6
    @tool(timeout=PATIENCE)
    async def own() -> str:
        """Time out by itself."""
        raise TimeoutError("the other side is slow")

    assert results(await runner([own], call("own")).run("go")) == ["Error: TimeoutError: the other side is slow"]


async def test_a_timeout_is_raised_where_errors_are_to_be_raised(store: Store) -> None:  # rules T1, T6
    hangs = [True]

    @tool(timeout=SOON)
    async def hang() -> str:
        """Hang at first."""
        if hangs[0]:
            await for_ever()
        return "back"

    made = runner([hang], call("hang"), store=store, on_tool_error="raise")
    with pytest.raises(ToolError, match="gave no result"):
        await made.run("go", session_id="s")
    hangs[0] = False
    assert results(await made.recover("s")) == ["back"]


async def test_a_tool_with_a_time_limit_may_wait_for_a_person(store: Store) -> None:  # rules T6, I1
    @tool(timeout=SOON)
    async def ask() -> str:
        """Ask."""
        return f"got {interrupt('What?')}"

    made = runner([ask], call("ask"), store=store)
    asked = await made.run("go", session_id="s")
    assert results(await made.resume("s", {lone(asked): "it"})) == ["got it"]


async def test_a_tool_that_asked_and_then_hangs_has_paused(store: Store) -> None:  # rules I1, T6
    @tool(timeout=SOON)
    async def ask() -> str:
        """Ask beside something that hangs."""
        with contextlib.suppress(BaseException):
            ran.append(interrupt("What?"))
            return "got it"
        await for_ever()
        return "no"

    made = runner([ask], call("ask"), store=store)
    asked = await made.run("go", session_id="s")
    assert lone(asked) == "agent:A;tool:ask:c1"
    assert results(await made.resume("s", {lone(asked): "it"})) == ["got it"]


async def test_a_timeout_may_be_tried_again() -> None:  # rules T6, G12
    @tool(timeout=SOON, retry=Retry(attempts=3, on=ToolError, backoff=0))
    async def third() -> str:
        """Hang twice."""
        ran.append(current().attempt)
        if len(ran) < 3:
            await for_ever()
        return "third"

    assert results(await runner([third], call("third")).run("go")) == ["third"]
    assert ran == [1, 2, 3]


async def test_what_an_attempt_left_behind_cannot_call_into_the_next_one(store: Store) -> None:  # rule G13
    begun, second, tried = threading.Event(), threading.Event(), threading.Event()

    @tool(timeout=A_WHILE, retry=Retry(attempts=2, on=ToolError, backoff=0))
    def twice() -> str:
        """Leave a thread behind."""
        if not ran:
            ran.append("first")
            context = current()
            begun.set()
            second.wait(PATIENCE)
            try:
                context.values["left"] = "behind"
            except Exception:  # noqa: BLE001  # the test looks at it
                ran.append("refused")
            tried.set()
            return "late"
        second.set()
        tried.wait(PATIENCE)
        return "second"

    made = runner([twice], call("twice"), store=store)
    running = asyncio.ensure_future(made.run("go", session_id="s"))
    await asyncio.to_thread(begun.wait, PATIENCE)
    await pass_time(A_WHILE)
    assert (results(await running), ran) == (["second"], ["first", "refused"])


async def test_a_kept_call_that_was_in_time_is_not_made_again(store: Store) -> None:  # rules R13, T6
    @once
    async def charge() -> str:
        ran.append("charge")
        return "charged"

    @tool(timeout=A_WHILE, retry=Retry(attempts=2, on=ToolError, backoff=0))
    async def pay() -> str:
        """Charge, then hang at first."""
        receipt = await charge()
        if current().attempt == 1:
            await pass_time(A_WHILE)
            await for_ever()
        return receipt

    result = await runner([pay], call("pay"), store=store).run("go", session_id="s")
    assert (results(result), ran) == (["charged"], ["charge"])


async def test_a_streaming_tool_has_its_time_too() -> None:  # rules T6, T7
    @tool(timeout=SOON)
    async def stream() -> AsyncIterator[str]:
        """Stream, then hang."""
        yield "one"
        await for_ever()

    (text,) = results(await runner([stream], call("stream")).run("go"))
    assert "gave no result" in text


async def test_a_cancelled_run_does_not_tell_of_a_timeout(store: Store) -> None:  # rule A12
    began = asyncio.Event()

    @tool(timeout=PATIENCE)
    async def hang() -> str:
        """Hang at first."""
        if not began.is_set():
            began.set()
            await for_ever()
        return "back"

    made = runner([hang], call("hang"), store=store)
    run = made.run("go", session_id="s")
    ending = asyncio.ensure_future(run)
    await began.wait()
    await run.cancel()
    assert (await ending).status == "cancelled"
    assert results(await made.recover("s")) == ["back"]


async def test_a_tool_with_a_time_limit_may_run_an_agent_that_asks(store: Store) -> None:  # rules I1, I6, T6
    @tool
    async def ask() -> str:
        """Ask."""
        return f"got {interrupt('What?')}"

    @tool(timeout=PATIENCE)
    async def delegate() -> str:
        """Run an agent."""
        script = [call("ask", "c2"), "inside"] if not ran else ["inside"]
        ran.append("in")
        return await current().run(ChatModelAgent("Inner", model=ScriptedModel(script), tools=[ask]), "go")

    asked = await runner([delegate], call("delegate"), store=store).run("go", session_id="s")
    assert lone(asked) == "agent:A;tool:delegate:c1;agent:Inner;tool:ask:c2"
    assert results(await runner([delegate], store=store).resume("s", {lone(asked): "it"})) == ["inside"]
