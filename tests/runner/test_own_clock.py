"""An owner whose lease is over by its own clock starts nothing before its store has confirmed that it is the owner."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import pytest

from adjourn import ChatModelAgent, Message, Runner, ToolCall, once, tool, workflow
from adjourn.errors import Conflict, StoreUnavailable
from adjourn.middleware import Middleware
from adjourn.runner._heartbeat import Heartbeat
from adjourn.runner._settings import Durability
from adjourn.stores import Lease, MemoryStore, Renewed, SessionRef
from adjourn.stores.kit import Commit, GetHead, StoreRequest
from adjourn.testing import FaultStore, FunctionModel, ScriptedModel

from .programs import Gate, begin, held, line, step, steps, until

T = TypeVar("T")

TTL = 0.05
"""Seconds of a lease here: they pass by the clock of the process."""


class Silent(FaultStore):
    """A store that one owner can no longer reach, from when the test says so."""

    def __init__(self) -> None:
        super().__init__(MemoryStore(), fail_at=0, times=0)
        self.is_silent = False
        self.commits_are_heard = False
        self.hangs = False
        self.skips_renewals = False

    async def renew(self, leases: Sequence[Lease]) -> list[Renewed]:
        if self.is_silent and self.skips_renewals:
            return [Renewed(ref=lease.ref, lost=False, skipped=True) for lease in leases]
        await self._check()
        return await super().renew(leases)

    async def write(self, request: StoreRequest[T]) -> T:
        if isinstance(request.plain, Commit) and not self.commits_are_heard:
            await self._check()
        return await super().write(request)

    async def _check(self) -> None:
        if self.is_silent and self.hangs:
            await asyncio.get_running_loop().create_future()
        if self.is_silent:
            raise StoreUnavailable("silent", "no answer")

    async def go_silent(self) -> None:
        """Let nobody renew until the lease is over."""
        self.is_silent = True
        await until(self._lease_is_over)

    async def _lease_is_over(self) -> bool:
        head = await self.inner.read(GetHead(SessionRef("s")))
        return head is not None and head.expires < time.time()


@pytest.fixture
def silent() -> Iterator[Silent]:
    yield (store := Silent())
    store.is_silent = False  # So that nobody goes on trying to reach it.


def options(store: Silent) -> dict[str, Any]:
    return {"store": store, "lease_ttl": TTL, "store_timeout": 0.1}


async def never(state: dict[str, Any]) -> dict[str, Any]:
    """A node that must not run."""
    raise AssertionError("it ran")


@pytest.mark.parametrize("durability", ["step", "async", "pause"])
async def test_no_node_begins_while_the_store_is_silent(silent: Silent, durability: Durability):  # rule C6
    gate = Gate()
    graph = line(("a", held("a", gate)), ("b", never), durability=durability, **options(silent))
    running = begin(graph.run({}, session_id="s"))
    await gate.reached.wait()
    await silent.go_silent()
    gate.opened.set()
    with pytest.raises(StoreUnavailable):
        await running


async def test_no_node_begins_while_the_store_hangs(silent: Silent):  # rule C6
    gate, silent.hangs = Gate(), True
    graph = line(("a", held("a", gate)), ("b", never), durability="pause", **options(silent))
    running = begin(graph.run({}, session_id="s"))
    await gate.reached.wait()
    await silent.go_silent()
    gate.opened.set()
    with pytest.raises(StoreUnavailable):
        await running


async def test_renewals_that_a_store_skipped_do_not_count(silent: Silent):  # rule C6
    gate, silent.skips_renewals = Gate(), True
    graph = line(("a", held("a", gate)), ("b", never), durability="pause", **options(silent))
    running = begin(graph.run({}, session_id="s"))
    await gate.reached.wait()
    await silent.go_silent()
    gate.opened.set()
    with pytest.raises(StoreUnavailable):
        await running


async def test_an_outage_that_is_shorter_than_the_lease_costs_nothing(silent: Silent):  # rule C6
    @once
    async def charge() -> str:
        return "charged"

    async def goes_silent(state: dict[str, Any]) -> dict[str, Any]:
        silent.is_silent = True
        return {"done": ["a"]}

    async def comes_back(state: dict[str, Any]) -> dict[str, Any]:
        silent.is_silent = False
        return {"done": [await charge()]}

    nodes = ("a", goes_silent), ("b", step("b")), ("c", comes_back)
    graph = line(*nodes, durability="pause", store=silent, lease_ttl=600.0, store_timeout=0.1)
    assert (await graph.run({}, session_id="s")).state["done"] == ["a", "b", "charged"]


@pytest.mark.parametrize("durability", ["step", "async", "pause"])
async def test_a_run_that_slept_past_its_lease_finds_its_session_taken(silent: Silent, durability: Durability):
    # rule C6
    gate = Gate()
    graph = line(("a", held("a", gate)), ("b", never), durability=durability, **options(silent))
    running = begin(graph.run({}, session_id="s"))
    await gate.reached.wait()
    silent.commits_are_heard = True
    await silent.go_silent()
    assert (await steps("a", "b", store=silent.inner).recover("s")).status == "done"
    gate.opened.set()
    with pytest.raises(Conflict):
        await running


@pytest.mark.parametrize("durability", ["step", "async", "pause"])
async def test_a_run_that_slept_goes_on_if_its_store_confirms_the_lease(silent: Silent, durability: Durability):
    # rule C6
    gate = Gate()
    nodes = ("a", held("a", gate)), ("b", step("b"))
    running = begin(line(*nodes, durability=durability, **options(silent)).run({}, session_id="s"))
    await gate.reached.wait()
    silent.commits_are_heard = True
    await silent.go_silent()
    gate.opened.set()
    assert (await running).state["done"] == ["a", "b"]


class Slow(Middleware):
    """Hooks in which the store goes silent, before a model or a tool is called."""

    def __init__(self, hook: str, store: Silent) -> None:
        self.hook = hook
        self.store = store

    async def wrap_model(self, call: Any, request: Any) -> Any:
        if self.hook == "model":
            await self.store.go_silent()
        return await call(request)

    async def wrap_tool(self, call: Any, request: Any) -> Any:
        if self.hook == "tool":
            await self.store.go_silent()
        return await call(request)


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_no_tool_begins_while_the_store_is_silent(silent: Silent, kind: str):  # rule C6
    ran: list[str] = []

    @tool
    async def pay() -> str:
        """Pay."""
        ran.append("paid")
        return "paid"

    @tool(name="pay")
    def pay_in_a_thread() -> str:
        """Pay."""
        ran.append("paid")
        return "paid"

    model = ScriptedModel([ToolCall(id="c1", name="pay", arguments={}), "done"])
    tools = [pay if kind == "async" else pay_in_a_thread]
    agent = ChatModelAgent("payer", model=model, tools=tools, middleware=[Slow("tool", silent)])
    with pytest.raises(StoreUnavailable):
        await Runner(agent, **options(silent)).run("Pay", session_id="s")
    assert ran == []
    assert len(model.requests) == 1


async def test_no_model_is_called_while_the_store_is_silent(silent: Silent):  # rule C6
    asked: list[str] = []

    def answer(_: Any) -> Message:
        asked.append("asked")
        return Message.assistant("yes")

    agent = ChatModelAgent("talker", model=FunctionModel(answer), middleware=[Slow("model", silent)])
    with pytest.raises(StoreUnavailable):
        await Runner(agent, **options(silent)).run("Talk", session_id="s")
    assert asked == []


async def test_no_kept_call_begins_in_a_thread_while_the_store_is_silent(silent: Silent):  # rule C6
    ran: list[str] = []

    @once
    def charge() -> str:
        ran.append("charged")
        return "charged"

    @workflow
    async def pays(_: Any) -> Any:
        await silent.go_silent()
        return await asyncio.to_thread(charge)

    with pytest.raises(StoreUnavailable):
        await Runner(pays, **options(silent)).run(None, session_id="s")
    assert ran == []


def test_no_kept_call_begins_on_a_blocked_loop_whose_lease_was_not_renewed(silent: Silent):  # rule C6
    ran: list[str] = []

    @once
    def charge() -> str:
        ran.append("charged")
        return "charged"

    def blocks(state: dict[str, Any]) -> dict[str, Any]:
        elsewhere = threading.Thread(target=lambda: asyncio.run(silent.go_silent()))
        elsewhere.start()
        elsewhere.join()  # The event loop stands still, for longer than the lease.
        return {"done": [charge()]}

    graph = line(("a", blocks), thread=False, **options(silent))
    with pytest.raises(Conflict, match="its lease is over"):
        graph.run_sync({}, session_id="s")
    assert ran == []
    silent.is_silent = False
    assert steps("a", store=silent).recover_sync("s").state["done"] == ["a"]


async def test_renewals_by_the_heartbeat_count(silent: Silent):  # rule C6
    """A run that waited for longer than its lease, which was renewed meanwhile, asks its store nothing."""
    gate = Gate()
    graph = line(("a", held("a", gate)), ("b", step("b")), durability="pause", store=silent, lease_ttl=0.5)
    running = begin(graph.run({}, session_id="s"))
    await gate.reached.wait()
    first = await silent.read(GetHead(SessionRef("s")))
    assert first is not None

    async def first_lease_is_over() -> bool:
        return first.expires < time.time()

    await until(first_lease_is_over)
    before = silent.calls
    gate.opened.set()
    assert (await running).status == "done"
    assert silent.calls == before + 1  # the end


def test_the_thread_that_renews_ends_with_its_store():
    store = Silent()
    store.is_silent = True
    Heartbeat.of(store).give_back(Lease(ref=SessionRef("s"), owner="somebody", fence=1, ttl=0.03))
    thread = Heartbeat.of(store)._thread  # pyright: ignore[reportPrivateUsage]
    assert thread is not None
    del store
    gc.collect()
    thread.join(5.0)
    assert not thread.is_alive()
