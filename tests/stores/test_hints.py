"""Fanout: hints for whoever listens, in bounded memory."""

import asyncio
import os
from contextlib import aclosing
from pathlib import Path

import pytest

from adjourn.stores import Input, SessionRef, SQLiteStore
from adjourn.stores.kit import Fanout, Submit
from adjourn.stores.kit.hints import MOST

S = SessionRef("s")


async def test_hints_name_a_session_without_its_user():  # rule V11
    fanout = Fanout()
    async with aclosing(fanout.subscribe()) as heard:
        assert await anext(heard) is None
        fanout.publish(SessionRef("s", "shop", "ann"))
        assert await anext(heard) == SessionRef("s", "shop")


async def test_what_nobody_has_heard_yet_is_gathered():  # rule V11
    fanout = Fanout()
    async with aclosing(fanout.subscribe()) as heard:
        await anext(heard)
        for name in ("s", "t", "s"):
            fanout.publish(SessionRef(name))
        assert [await anext(heard) for _ in range(2)] == [S, SessionRef("t")]
        for number in range(MOST + 5):
            fanout.publish(SessionRef(f"s{number}"))
        assert await anext(heard) is None
        fanout.publish(S)
        assert await anext(heard) == S


async def test_closing_the_generator_frees_the_listener():
    fanout = Fanout()
    heard = fanout.subscribe()
    assert not fanout.listeners
    await anext(heard)
    assert fanout.listeners
    await heard.aclose()
    assert not fanout.listeners
    fanout.publish(S)


def test_a_listener_whose_loop_was_closed_harms_nobody():
    fanout = Fanout()
    loop = asyncio.new_event_loop()
    heard = fanout.subscribe()
    loop.run_until_complete(anext(heard))
    loop.close()
    fanout.publish(S)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_the_child_of_a_fork_has_no_listeners():  # rule C11
    fanout = Fanout()
    with asyncio.Runner() as runner:
        heard = fanout.subscribe()
        runner.get_loop().run_until_complete(anext(heard))
        pid = os.fork()
        if pid == 0:
            os._exit(int(bool(fanout.listeners)))
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert fanout.listeners


async def test_a_file_that_is_only_listened_to_is_closed(tmp_path: Path):  # rule C11
    store = SQLiteStore(tmp_path / "s.db")
    async with aclosing(store.hints()) as heard:
        assert await anext(heard) is None
    await store.close()
    left = await asyncio.to_thread(os.listdir, tmp_path)
    assert left == ["s.db"], "the last connection removes the log"


async def test_own_writes_to_a_file_do_not_look_like_those_of_others(tmp_path: Path):
    store = SQLiteStore(tmp_path / "s.db")
    async with aclosing(store.hints()) as heard:
        assert await anext(heard) is None
        for number in range(3):
            await store.write(Submit(ref=S, input=Input(id=f"i{number}", body=b"")))
            assert await anext(heard) == S
    await store.close()
