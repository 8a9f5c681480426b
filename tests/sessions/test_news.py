"""News: who hears of what, and that nothing is missed by whoever listens first and reads then."""

from __future__ import annotations

import asyncio

import pytest

from adjourn.sessions._news import Of, hearing
from adjourn.stores import Input, MemoryStore, SessionRef, Store
from adjourn.stores.kit import Submit
from tests.runner.programs import turns

HERE = SessionRef("s", "shop")
INPUT = Input(id="i", body=b"{}")


class Ear:
    """Whatever somebody has heard."""

    def __init__(self) -> None:
        self.heard: list[SessionRef | None] = []
        self.arrived = asyncio.Event()

    def hear(self, ref: SessionRef | None) -> None:
        self.heard.append(ref)
        self.arrived.set()

    async def wait(self) -> None:
        await self.arrived.wait()
        self.arrived.clear()


@pytest.mark.parametrize(
    ("of", "heard"),
    [
        (("shop", "s"), [HERE]),
        (("shop", None), [SessionRef("other", "shop"), HERE]),
        (None, [SessionRef("s", "desk"), SessionRef("other", "shop"), HERE]),
        (("desk", "other"), []),
    ],
)
async def test_who_listens_to_one_session_or_app_is_not_woken_by_others(
    store: Store, of: Of, heard: object
):  # rule V11
    everything, ear = Ear(), Ear()
    async with hearing(store, everything.hear), hearing(store, ear.hear, of):
        await everything.wait()  # by now they listen
        ear.heard.clear()
        for ref in (SessionRef("s", "desk"), SessionRef("other", "shop"), HERE):
            await store.write(Submit(ref=ref, input=INPUT))
        while HERE not in everything.heard:
            await everything.wait()
        assert ear.heard == heard


async def test_the_first_who_listens_is_told_to_look_once_it_hears(store: Store):  # rule V11
    ear = Ear()
    async with hearing(store, ear.hear, ("shop", "s")):
        await store.write(Submit(ref=HERE, input=INPUT))  # before the store is listened to
        await ear.wait()
        assert ear.heard[0] is None


async def test_whoever_joins_later_hears_all_that_is_written_since(store: Store):  # rule V11
    first, second = Ear(), Ear()
    async with hearing(store, first.hear, ("shop", "s")):
        await first.wait()
        async with hearing(store, second.hear, ("shop", "s")):
            await store.write(Submit(ref=HERE, input=INPUT))
            await second.wait()
            assert second.heard == [HERE]
        await store.write(Submit(ref=HERE, input=Input(id="j", body=b"{}")))
        await first.wait()
        await turns()
        assert second.heard == [HERE]


async def test_nobody_listens_to_a_store_that_nobody_waits_for():
    store, ear = MemoryStore(), Ear()
    for _ in range(2):
        async with hearing(store, ear.hear):
            await ear.wait()
    await store.write(Submit(ref=HERE, input=INPUT))
    await turns()
    assert ear.heard == [None, None]
