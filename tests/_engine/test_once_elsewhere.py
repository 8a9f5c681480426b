"""`@once` in threads that code starts by itself, on other event loops, and beside a question."""

import asyncio
import contextlib
import contextvars
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from adjourn import Runner, UsageError, current, interrupt, once, workflow
from adjourn.errors import NodeTimeout
from adjourn.graph import START, StateGraph
from adjourn.stores import Store
from tests._engine.asking import Log, Node, lone

WAIT = 50.0
made: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_made() -> None:
    made.clear()


@once
def charge(cents: int) -> str:
    made.append(cents)
    return f"receipt {cents}"


@once
async def charge_async(cents: int) -> str:
    await asyncio.sleep(0)
    made.append(cents)
    return f"receipt {cents}"


def carried(call: Any, *args: Any) -> Any:
    return contextvars.copy_context().run, call, *args


# Threads of the user's own, with the context


def with_executor(state: Any) -> Any:
    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(*carried(charge, cents)) for cents in range(8)]
        return {"log": [*(job.result() for job in jobs), interrupt("q", key="q")]}


def with_thread(state: Any) -> Any:
    found: list[str] = []
    threads: list[threading.Thread] = []
    for cents in range(8):
        run, *args = carried(lambda cents=cents: found.append(charge(cents)))
        threads.append(threading.Thread(target=run, args=args))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    return {"log": [*sorted(found), interrupt("q", key="q")]}


async def with_run_in_executor(state: Any) -> Any:
    loop = asyncio.get_running_loop()
    jobs = [loop.run_in_executor(None, *carried(charge, cents)) for cents in range(8)]
    return {"log": [*await asyncio.gather(*jobs), interrupt("q", key="q")]}


async def with_to_thread(state: Any) -> Any:
    jobs = [asyncio.to_thread(charge, cents) for cents in range(8)]
    return {"log": [*await asyncio.gather(*jobs), interrupt("q", key="q")]}


CARRIED: list[Node] = [with_executor, with_thread, with_run_in_executor, with_to_thread]


@pytest.mark.parametrize("node", CARRIED, ids=lambda node: node.__name__)
async def test_a_call_in_a_thread_that_carries_the_context_is_kept(node: Node, store: Store):  # rule R13
    await lone(node, store=store).run({}, session_id="s")
    result = await lone(node, store=store).resume("s", {"q": "yes"})
    assert result.state["log"] == [*(f"receipt {cents}" for cents in range(8)), "yes"]
    assert sorted(made) == list(range(8))


async def test_equal_calls_in_threads_are_each_made_once(store: Store):  # rules R6, R13
    """However they overlap, no two of them count as one."""
    meet = threading.Barrier(8, timeout=WAIT)

    def work() -> str:
        meet.wait()
        return charge(1)

    def node(state: Any) -> Any:
        with ThreadPoolExecutor(8) as pool:
            jobs = [pool.submit(*carried(work)) for _ in range(8)]
            return {"log": [len([job.result() for job in jobs]), interrupt("q", key="q")]}

    await lone(node, store=store).run({}, session_id="s")
    assert (await lone(node, store=store).resume("s", {"q": 1})).state["log"] == [8, 1]
    assert made == [1] * 8


# Without it


def astray_in_executor(state: Any) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return {"log": [pool.submit(charge, 1).result()]}


def astray_in_thread(state: Any) -> Any:
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(charge(1)))
    thread.start()
    thread.join(WAIT)
    return {"log": found}


async def astray_in_run_in_executor(state: Any) -> Any:
    return {"log": [await asyncio.get_running_loop().run_in_executor(None, charge, 1)]}


ASTRAY: list[Node] = [astray_in_executor, astray_in_thread, astray_in_run_in_executor]


@pytest.mark.parametrize("node", ASTRAY, ids=lambda node: node.__name__)
async def test_a_call_in_a_thread_without_the_context_warns(node: Node, store: Store):  # rule R13
    with pytest.warns(RuntimeWarning, match=r"'charge'.*not kept.*copy_context") as seen:
        result = await lone(node, store=store).run({}, session_id="s")
    assert result.state["log"] == ["receipt 1"]
    assert len(seen) == 1
    if node is astray_in_thread:
        assert seen[0].filename == __file__  # it points at the call


async def test_an_async_call_made_in_such_a_thread_warns():  # rule R13
    async def node(state: Any) -> Any:
        made_there = await asyncio.get_running_loop().run_in_executor(None, charge_async, 1)
        return {"log": [await made_there]}

    with pytest.warns(RuntimeWarning, match="'charge_async'"):
        await lone(node).run({})


async def charges() -> Any:
    return charge(3), await charge_async(4)


async def test_plain_calls_on_an_event_loop_do_not_warn_while_a_run_is_live():  # rule R13
    go = asyncio.Event()

    async def node(state: Any) -> Any:
        await go.wait()

    run = asyncio.create_task(awaited(lone(node).run({})))
    await asyncio.sleep(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (charge(1), await charge_async(2)) == ("receipt 1", "receipt 2")
        await asyncio.to_thread(lambda: asyncio.run(charges()))
    go.set()
    await run


def test_plain_calls_in_the_main_thread_do_not_warn_while_a_run_is_read():  # rule R13
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in lone(lambda state: None).run({}):
            charge(1)


async def test_plain_calls_in_threads_do_not_warn_when_no_run_is_live():  # rule R13
    await lone(lambda state: None).run({})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert await asyncio.get_running_loop().run_in_executor(None, charge, 1) == "receipt 1"


async def awaited(run: Any) -> Any:
    return await run


# Another event loop


def runs_a_loop(state: Any) -> Any:
    return {"log": [asyncio.run(charge_async(1))]}


def runs_a_loop_in_a_thread(state: Any) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return {"log": [pool.submit(*carried(lambda: asyncio.run(charge_async(1)))).result()]}


async def runs_a_loop_beside(state: Any) -> Any:
    return {"log": [await asyncio.to_thread(lambda: asyncio.run(charge_async(1)))]}


@pytest.mark.parametrize(
    "node", [runs_a_loop, runs_a_loop_in_a_thread, runs_a_loop_beside], ids=lambda node: node.__name__
)
async def test_an_async_call_on_another_loop_is_refused_before_its_effect(node: Node):  # rule R13
    with pytest.raises(UsageError, match=r"'charge_async'.*another event loop"):
        await lone(node).run({})
    assert made == []


def sync_call_on_a_loop(state: Any) -> Any:
    async def main() -> str:
        return charge(1)

    return {"log": [asyncio.run(main()), interrupt("q", key="q")]}


def async_call_sent_to_the_runs_loop(state: Any) -> Any:
    return {"log": [asyncio.run_coroutine_threadsafe(charge_async(1), loops[0]).result(), interrupt("q", key="q")]}


loops: list[asyncio.AbstractEventLoop] = []


@pytest.mark.parametrize(
    "node", [sync_call_on_a_loop, async_call_sent_to_the_runs_loop], ids=lambda node: node.__name__
)
async def test_a_call_that_reaches_the_runs_loop_is_kept(node: Node, store: Store):  # rule R13
    loops[:] = [asyncio.get_running_loop()]
    await lone(node, store=store).run({}, session_id="s")
    assert (await lone(node, store=store).resume("s", {"q": 1})).state["log"] == ["receipt 1", 1]
    assert made == [1]


# Beside a question


class Slow:
    """A kept call that has begun, and ends when it is let."""

    def __init__(self) -> None:
        self.begun, self.go = asyncio.Event(), asyncio.Event()
        self.thread_begun, self.thread_go = threading.Event(), threading.Event()

        @once
        async def pay(cents: int) -> str:
            made.append(("begun", cents))
            self.begun.set()
            await self.go.wait()
            made.append(("paid", cents))
            return "paid"

        @once
        def pay_now(cents: int) -> str:
            made.append(("begun", cents))
            self.thread_begun.set()
            assert self.thread_go.wait(WAIT)
            made.append(("paid", cents))
            return "paid"

        self.pay, self.pay_now = pay, pay_now

    async def ask(self, key: str = "q") -> Any:
        await self.begun.wait()
        asyncio.get_running_loop().call_later(0.01, self.go.set)
        return interrupt("q", key=key)

    async def ask_beside_thread(self, key: str = "q") -> Any:
        while not self.thread_begun.is_set():  # noqa: ASYNC110  # it begins in a thread
            await asyncio.sleep(0.001)
        asyncio.get_running_loop().call_later(0.01, self.thread_go.set)
        return interrupt("q", key=key)


def in_group(slow: Slow) -> Node:
    async def node(state: Any) -> Any:
        async with asyncio.TaskGroup() as group:
            asked, paid = group.create_task(slow.ask()), group.create_task(slow.pay(5))
        return {"log": [paid.result(), asked.result()]}

    return node


def in_body_of_group(slow: Slow) -> Node:
    async def node(state: Any) -> Any:
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(slow.ask())
            paid = await slow.pay(5)
        return {"log": [paid, asked.result()]}

    return node


def in_nested_groups(slow: Slow) -> Node:
    async def node(state: Any) -> Any:
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(slow.ask())
            async with asyncio.TaskGroup() as inner:
                paid = inner.create_task(slow.pay(5))
        return {"log": [paid.result(), asked.result()]}

    return node


def in_gather(slow: Slow) -> Node:
    async def node(state: Any) -> Any:
        asked, paid = await asyncio.gather(slow.ask(), slow.pay(5))
        return {"log": [paid, asked]}

    return node


def within_timeout(slow: Slow) -> Node:
    async def node(state: Any) -> Any:
        async with asyncio.TaskGroup() as group:
            asked, paid = group.create_task(slow.ask()), group.create_task(asyncio.wait_for(slow.pay(5), WAIT))
        return {"log": [paid.result(), asked.result()]}

    return node


def in_thread_of_group(slow: Slow) -> Node:
    async def node(state: Any) -> Any:
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(slow.ask_beside_thread())
            paid = group.create_task(asyncio.to_thread(slow.pay_now, 5))
        return {"log": [paid.result(), asked.result()]}

    return node


BESIDE = [in_group, in_body_of_group, in_nested_groups, in_gather, within_timeout, in_thread_of_group]


@pytest.mark.parametrize("beside", BESIDE, ids=lambda node: node.__name__)
async def test_a_call_beside_a_question_is_finished_and_kept(beside: Any, store: Store):  # rules R13, I1
    slow = Slow()
    assert (await lone(beside(slow), store=store).run({}, session_id="s")).status == "interrupted"
    assert made == [("begun", 5), ("paid", 5)]
    result = await lone(beside(slow), store=store).resume("s", {"q": "yes"})
    assert result.state["log"] == ["paid", "yes"]
    assert made == [("begun", 5), ("paid", 5)]


async def test_a_call_beside_several_questions_is_not_repeated_with_each_answer(store: Store):  # rule R13
    slow = Slow()

    async def node(state: Any) -> Any:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(slow.pay(5)), group.create_task(slow.ask("a")), group.create_task(slow.ask("b"))]
        return {"log": [task.result() for task in tasks]}

    graph = lone(node, store=store)
    paused = await graph.run({}, session_id="s")
    for _ in range(3):
        if not paused.interrupts:
            break
        paused = await graph.resume("s", {paused.interrupts[0].id: "yes"})
    assert paused.state["log"] == ["paid", "yes", "yes"]
    assert made == [("begun", 5), ("paid", 5)]


async def test_a_child_run_beside_a_question_is_finished_and_kept(store: Store):  # rules R13, R5
    slow = Slow()

    async def pays(state: Any) -> Any:
        return {"log": [await slow.pay(5)]}

    child = lone(pays, name="child")

    async def node(state: Any) -> Any:
        async with asyncio.TaskGroup() as group:
            asked, paid = group.create_task(slow.ask()), group.create_task(current().run(child, {}))
        return {"log": [*paid.result()["log"], asked.result()]}

    assert (await lone(node, store=store).run({}, session_id="s")).status == "interrupted"
    assert (await lone(node, store=store).resume("s", {"q": "yes"})).state["log"] == ["paid", "yes"]
    assert made == [("begun", 5), ("paid", 5)]


async def test_a_call_that_fails_beside_a_question_leaves_the_question(store: Store):  # rules R13, I1
    begun = asyncio.Event()

    @once
    async def fails() -> str:
        made.append(1)
        begun.set()
        await asyncio.sleep(0.01)
        if len(made) == 1:
            raise ConnectionError("away")
        return "well"

    async def ask() -> Any:
        await begun.wait()
        return interrupt("q", key="q")

    async def node(state: Any) -> Any:
        async with asyncio.TaskGroup() as group:
            paid, asked = group.create_task(fails()), group.create_task(ask())
        return {"log": [paid.result(), asked.result()]}

    assert (await lone(node, store=store).run({}, session_id="s")).status == "interrupted"
    assert (await lone(node, store=store).resume("s", {"q": 1})).state["log"] == ["well", 1]


async def test_a_cancel_of_the_run_cuts_a_call_off_even_beside_a_question():  # rules R13, A12
    slow = Slow()
    cut: list[str] = []

    @once
    async def pay() -> None:
        slow.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cut.append("cut")
            raise

    async def node(state: Any) -> Any:
        async with asyncio.TaskGroup() as group:
            group.create_task(slow.ask())
            group.create_task(pay())

    graph = lone(node)
    run = graph.run({}, session_id="s")
    running = asyncio.create_task(awaited(run))
    await slow.begun.wait()
    await slow.go.wait()
    async with asyncio.timeout(WAIT):
        await run.cancel()
    assert (await running).status == "cancelled"
    assert cut == ["cut"]


async def test_a_timeout_of_the_node_cuts_a_call_off_even_beside_a_question():  # rules R13, G13
    slow = Slow()
    cut: list[str] = []

    @once
    async def pay() -> None:
        slow.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cut.append("cut")
            raise

    async def node(state: Any) -> Any:
        async with asyncio.TaskGroup() as group:
            group.create_task(slow.ask())
            group.create_task(pay())

    graph = StateGraph(Log).add_node("ask", node, timeout=0.05).add_edge(START, "ask").compile()
    with pytest.raises(NodeTimeout):
        await graph.run({})
    assert cut == ["cut"]


async def test_a_timeout_around_a_call_cuts_it_off(store: Store):  # rule R13
    cut: list[str] = []

    @once
    async def pay() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cut.append("cut")
            raise

    @workflow
    async def flow(_: Any = None) -> str:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.01):
                await pay()
        assert cut == ["cut"]
        return "late"

    assert (await Runner(flow, store=store).run(None)).value == "late"


async def test_a_timeout_inside_a_call_is_its_own(store: Store):  # rule R13
    @once
    async def pay() -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError:
            return "gave up"
        return "never"

    @workflow
    async def flow(_: Any = None) -> str:
        return await pay()

    assert (await Runner(flow, store=store).run(None)).value == "gave up"


@once
async def note(number: int) -> int:
    made.append(number)
    await asyncio.sleep(0.005)
    return number


@once
def note_now(number: int) -> int:
    made.append(number)
    return number


@workflow
async def noting(number: int) -> int:
    made.append(number)
    await asyncio.sleep(0.005)
    return number


async def note_later(number: int) -> int:
    await asyncio.sleep(0)
    return await note(number)


async def note_in_executor(number: int) -> int:
    run = contextvars.copy_context().run
    return await asyncio.get_running_loop().run_in_executor(None, lambda: run(note_now, number))


def note_in_thread(number: int) -> Any:
    return asyncio.to_thread(note_now, number)


def note_in_child(number: int) -> Any:
    return current().run(noting, number)


JUST_STARTED = [note, note_later, note_in_executor, note_in_thread, note_in_child]


@pytest.mark.parametrize("turns", range(4))
@pytest.mark.parametrize("start", JUST_STARTED, ids=lambda start: start.__name__)
async def test_a_call_that_has_only_just_started_is_made_once(start: Any, turns: int, store: Store):  # rule R13
    async def node(state: Any) -> Any:
        tasks = [asyncio.ensure_future(start(number)) for number in range(2)]
        for _ in range(turns):
            await asyncio.sleep(0)
        answer = interrupt("q", key="q")
        return {"log": [answer, *await asyncio.gather(*tasks)]}

    made.clear()
    assert (await lone(node, store=store).run({}, session_id="s")).status == "interrupted"
    assert (await lone(node, store=store).resume("s", {"q": "yes"})).state["log"] == ["yes", 0, 1]
    assert sorted(made) == [0, 1]


@once
async def note_at_once(number: int) -> int:
    made.append(number)
    return number


@pytest.mark.parametrize("turns", range(0, 60, 3))
async def test_calls_one_after_the_other_beside_a_question_are_each_made_once(
    turns: int, store: Store
):  # rules R13, C1
    async def note_all() -> list[int]:
        return [await note_at_once(number) for number in range(10)]

    async def node(state: Any) -> Any:
        noted = asyncio.ensure_future(note_all())
        for _ in range(turns):
            await asyncio.sleep(0)
        answer = interrupt("q", key="q")
        return {"log": [answer, *await noted]}

    made.clear()
    await lone(node, store=store).run({}, session_id="s")
    assert (await lone(node, store=store).resume("s", {"q": "yes"})).state["log"] == ["yes", *range(10)]
    assert sorted(made) == list(range(10))


@pytest.mark.parametrize("is_asked", [True, False])
async def test_an_exit_in_a_call_in_a_thread_ends_it(is_asked: bool, store: Store):  # rule R13
    @once
    def command_line() -> None:
        raise SystemExit(2)

    def node(state: Any) -> Any:
        with contextlib.suppress(SystemExit):
            command_line()
        if is_asked:
            return {"log": [interrupt("q", key="q")]}
        raise ValueError("no")

    async with asyncio.timeout(WAIT):
        if not is_asked:
            with pytest.raises(ValueError, match="no"):
                await lone(node, store=store).run({}, session_id="s")
            return
        await lone(node, store=store).run({}, session_id="s")
        assert (await lone(node, store=store).resume("s", {"q": 1})).state["log"] == [1]


@pytest.mark.parametrize("is_child", [True, False])
async def test_a_call_that_the_code_has_cancelled_before_it_asks_is_cut_off(is_child: bool, store: Store):  # rule R13
    begun, cut = list[str](), list[str]()

    async def wait_for_ever(_: int) -> None:
        begun.append("begun")
        try:
            await asyncio.Event().wait()
        finally:
            cut.append("cut")

    kept, child = once(wait_for_ever), workflow(wait_for_ever)

    async def node(state: Any) -> Any:
        task = asyncio.ensure_future(current().run(child, 1) if is_child else kept(1))
        while not begun:  # noqa: ASYNC110  # it begins in another task
            await asyncio.sleep(0)
        task.cancel()
        return {"log": [interrupt("no answer in time", key="q")]}

    async with asyncio.timeout(WAIT):
        assert (await lone(node, store=store).run({}, session_id="s")).status == "interrupted"
        assert cut == ["cut"]
        begun.clear()
        assert (await lone(node, store=store).resume("s", {"q": "skip"})).state["log"] == ["skip"]
