"""Hints: a store that has them lets others know when they should look, wherever they listen."""

from __future__ import annotations

import asyncio
import threading
import unittest
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from adjourn.stores.kit import Cancel, GiveAnswers, Submit
from adjourn.stores.protocol import Hints, Store
from adjourn.stores.types import Input, SessionRef
from adjourn.testing.clock import FakeClock

from .bench import Bench, Drive, S, paused, question, yes

PATIENCE = 10.0
"""Seconds after which a hint counts as lost, which tests of real servers on a busy machine can afford."""

Heard = AsyncGenerator[SessionRef | None]


def hints_of(store: Store) -> Heard:
    """Listen to a store; skips the test of one that has no hints."""
    if not isinstance(store, Hints):
        raise unittest.SkipTest("this store has no hints")
    return store.hints()


async def started(heard: Heard) -> None:
    """Wait until the store listens, which it says with its first hint."""
    async with asyncio.timeout(PATIENCE):
        assert await anext(heard) is None


async def until(heard: Heard, session: str) -> None:
    """Wait for a hint at a session, or that anything may have changed."""
    async with asyncio.timeout(PATIENCE):
        async for ref in heard:
            if ref is None or ref == SessionRef(session, ref.app):
                return


class HintSuite(Bench):
    """Hints at what is new."""

    async def test_a_hint_follows_whatever_others_may_wait_for(self) -> None:  # rule V11
        """Inputs, answers, cancels, events, and a session that was let go."""
        async with self.fresh() as store, aclosing(hints_of(store)) as heard:
            await started(heard)
            asked, driven = await paused(store, "q", session="asked"), Drive(store, "driven")
            await driven.start()
            writes: list[tuple[str, Callable[[], Awaitable[object]]]] = [
                (
                    "queued",
                    lambda: store.write(
                        Submit(ref=SessionRef("queued", user="ann"), input=Input(id="i", body=b"", user="ann"))
                    ),
                ),
                ("asked", lambda: store.write(GiveAnswers(ref=asked.ref, answers=[yes("q")]))),
                ("driven", lambda: driven.commit(driven.next(events=b"[]", event_count=1))),
                ("driven", lambda: store.write(Cancel(driven.ref, "after_step"))),
                ("driven", driven.end),
            ]
            for session, write in writes:
                await write()
                await until(heard, session)

    async def test_everybody_who_listens_gets_hints(self) -> None:  # rule V11
        """And one who stops listening does not keep the others from it."""
        async with self.fresh() as store, aclosing(hints_of(store)) as one:
            async with aclosing(hints_of(store)) as two:
                await started(one)
                await started(two)
                await store.write(Submit(ref=S, input=Input(id="i", body=b"")))
                await until(one, "s")
                await until(two, "s")
            await store.write(Submit(ref=S, input=Input(id="j", body=b"")))
            await until(one, "s")

    async def test_a_listener_has_an_event_loop_of_its_own(self) -> None:  # rule V11
        """In another thread than the one that writes."""
        async with self.fresh() as store:
            ready, loop = asyncio.Event(), asyncio.get_running_loop()
            hints_of(store)  # Skips here what has none.
            failures: list[BaseException] = []

            async def listen() -> None:
                async with aclosing(hints_of(store)) as heard:
                    await started(heard)
                    loop.call_soon_threadsafe(ready.set)
                    await until(heard, "s")

            def work() -> None:
                try:
                    asyncio.run(listen())
                except BaseException as error:  # noqa: BLE001  # passed on to the test
                    failures.append(error)
                    loop.call_soon_threadsafe(ready.set)

            thread = threading.Thread(target=work)
            thread.start()
            await ready.wait()
            await store.write(Submit(ref=S, input=Input(id="i", body=b"")))
            await asyncio.to_thread(thread.join)
            assert not failures

    async def test_hints_cross_from_one_store_object_to_another(self) -> None:  # rule V11
        """As from one process to another."""
        clock = FakeClock()
        async with self.fresh(clock) as store, self.second(clock) as other, aclosing(hints_of(store)) as heard:
            await started(heard)
            await other.write(Submit(ref=S, input=Input(id="i", body=b"")))
            await until(heard, "s")
            drive = Drive(other, "t")
            await drive.start()
            await drive.pause(question("q"))
            await until(heard, "t")

    async def test_many_hints_that_nobody_takes_do_not_pile_up(self) -> None:  # rule V11
        """A listener that was busy hears at least of the last one, or that anything may have changed."""
        async with self.fresh() as store, aclosing(hints_of(store)) as heard:
            await started(heard)
            for number in range(50):
                await store.write(Submit(ref=SessionRef(f"s{number % 5}"), input=Input(id=f"i{number}", body=b"")))
            await store.write(Submit(ref=SessionRef("last"), input=Input(id="i", body=b"")))
            await until(heard, "last")
