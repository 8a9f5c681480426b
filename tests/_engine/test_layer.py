"""Layers: wrappers and what they wrap, each in a frame of its own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from adjourn import Runner, UsageError, current, interrupt, once, workflow
from adjourn._engine.child import inner, layer
from adjourn.testing import count_ids


def wrapped(log: list[str], body: Any, *, asks_after: bool = False) -> Any:
    @workflow(name="w")
    async def run() -> Any:
        async def around() -> Any:
            log.append("before")
            result = await inner(body)
            if asks_after:
                result = [result, interrupt("after?")]
            return result

        return await layer("wrap", "guard", around)

    return run


async def test_what_is_wrapped_asks_at_its_own_address(store: Any) -> None:  # rule I6
    log: list[str] = []

    async def body() -> Any:
        log.append("body")
        return interrupt("inside?")

    runner = Runner(wrapped(log, body), store=store, new_id=count_ids())
    paused = await runner.run(session_id="s")
    assert [asked.id for asked in paused.interrupts] == ["runnable:w"]
    done = await Runner(wrapped(log, body), store=store).resume("s", {"runnable:w": "yes"})
    assert done.value == "yes"
    assert log == ["before", "body", "before", "body"]


async def test_a_finished_call_is_given_back_when_its_wrapper_asks(store: Any) -> None:  # rule R5
    log: list[str] = []

    @once
    async def effect() -> str:
        log.append("effect")
        return "e"

    async def body() -> Any:
        log.append("body")
        current().values["seen"] = "v"
        return await effect() + interrupt("inside?")

    program = wrapped(log, body, asks_after=True)
    runner = Runner(program, store=store)
    await runner.run(session_id="s")
    paused = await runner.resume("s", {"runnable:w": "!"})
    assert [asked.id for asked in paused.interrupts] == ["runnable:w;wrap:guard"]
    done = await Runner(wrapped(log, body, asks_after=True), store=store).resume("s", {"runnable:w;wrap:guard": 1})
    assert done.value == ["e!", 1]
    assert log.count("effect") == 1
    assert log.count("body") == 2  # the first time, and with its answer; not for the wrapper's


async def test_two_calls_at_once_are_refused() -> None:

    async def body() -> str:
        await asyncio.sleep(0)
        return "x"

    @workflow(name="w")
    async def run() -> Any:
        return await asyncio.gather(inner(body), inner(body))

    with pytest.raises(UsageError, match="twice at once"):
        await Runner(run).run()
