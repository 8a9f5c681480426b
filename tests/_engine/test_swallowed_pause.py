"""Once a frame has asked, its outcome is a pause, whatever its code makes of it."""

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from adjourn import Retry, Runner, RunResult, UsageError, current, interrupt, once, workflow
from adjourn.errors import AmbiguousInterrupt, Pause
from adjourn.events import Custom, Interrupted
from adjourn.graph import START, StateGraph
from adjourn.stores import Store
from tests._engine.asking import Log, Node, events_of, ids, lone, together

# Ways in which code loses a Pause. Each asks twice at most, and returns the answers when it has them.


def bare_except(state: Any) -> Any:
    try:
        answer = interrupt("q", key="q")
    except:  # noqa: E722
        answer = "swallowed"
    return {"log": [answer]}


def return_in_finally(state: Any) -> Any:
    answer: Any = "swallowed"
    try:
        answer = interrupt("q", key="q")
    finally:
        return {"log": [answer]}  # noqa: B012


def other_error_in_finally(state: Any) -> Any:
    done = False
    try:
        answer = interrupt("q", key="q")
        done = True
    finally:
        if not done:
            raise ValueError("while cleaning up")
    return {"log": [answer]}


def raise_another(state: Any) -> Any:
    try:
        return {"log": [interrupt("q", key="q")]}
    except BaseException as error:
        raise ValueError("wrapped") from error


def suppress_all(state: Any) -> Any:
    answer: Any = "swallowed"
    with contextlib.suppress(BaseException):
        answer = interrupt("q", key="q")
    return {"log": [answer]}


def system_exit(state: Any) -> Any:
    try:
        return {"log": [interrupt("q", key="q")]}
    except BaseException:  # noqa: BLE001
        raise SystemExit(3) from None


def in_own_thread(state: Any) -> Any:
    answers: list[Any] = []
    context = contextvars.copy_context()

    def work() -> None:
        with contextlib.suppress(Pause):
            answers.append(context.run(lambda: interrupt("q", key="q")))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return {"log": answers or ["swallowed"]}


async def _ask(key: str = "q") -> Any:
    return interrupt("q", key=key)


async def async_bare_except(state: Any) -> Any:
    try:
        answer = await _ask()
    except:  # noqa: E722
        answer = "swallowed"
    await asyncio.sleep(0)
    return {"log": [answer]}


async def gathered_exceptions(state: Any) -> Any:
    return {"log": [str(each) for each in await asyncio.gather(_ask(), return_exceptions=True)]}


async def task_group(state: Any) -> Any:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(_ask())
    return {"log": [task.result()]}


async def swallowed_task_group(state: Any) -> Any:
    answer: Any = "swallowed"
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(_ask())
        answer = task.result()
    except BaseExceptionGroup:
        pass
    return {"log": [answer]}


async def caught_from_group(state: Any) -> Any:
    answer: Any = "swallowed"
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(_ask())
        answer = task.result()
    except* Pause:
        pass
    return {"log": [answer]}


async def forgotten_task(state: Any) -> Any:
    task = asyncio.create_task(_ask())
    await asyncio.wait([task])
    return {"log": ["swallowed" if isinstance(task.exception(), Pause) else task.result()]}


async def cancelled_by_itself(state: Any) -> Any:
    task = asyncio.create_task(_ask())
    await asyncio.wait([task])
    if task.exception():
        raise asyncio.CancelledError
    return {"log": [task.result()]}


async def within_timeout(state: Any) -> Any:
    try:
        async with asyncio.timeout(60):
            return {"log": [await _ask()]}
    except BaseException:  # noqa: BLE001
        return {"log": ["swallowed"]}


async def waits_for(state: Any) -> Any:
    return {"log": [await asyncio.wait_for(_ask(), 60)]}


async def shielded(state: Any) -> Any:
    return {"log": [await asyncio.shield(_ask())]}


async def thread_swallows(state: Any) -> Any:
    return await asyncio.to_thread(bare_except, state)


async def from_generator(state: Any) -> Any:
    async def answers() -> AsyncIterator[Any]:
        try:
            yield interrupt("q", key="q")
        except BaseException:  # noqa: BLE001
            yield "swallowed"

    return {"log": [each async for each in answers()]}


async def from_exit_stack(state: Any) -> Any:
    answers: list[Any] = []
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(contextlib.suppress(BaseException))
        stack.callback(lambda: answers.append(interrupt("q", key="q")))
    return {"log": answers or ["swallowed"]}


SYNC: list[Node] = [
    *(bare_except, return_in_finally, other_error_in_finally, raise_another, suppress_all, system_exit),
    in_own_thread,
]
ASYNC: list[Node] = [
    *(async_bare_except, gathered_exceptions, task_group, swallowed_task_group, caught_from_group, forgotten_task),
    *(cancelled_by_itself, within_timeout, waits_for, shielded, thread_swallows, from_generator, from_exit_stack),
]


@pytest.mark.parametrize("node", [*SYNC, *ASYNC], ids=lambda node: node.__name__)
async def test_a_node_that_swallows_its_pause_still_pauses(node: Node, store: Store):  # rule I1
    result = await lone(node, store=store).run({}, session_id="s")
    assert result.status == "interrupted"
    assert ids(result) == ["runnable:g;node:ask"]
    assert result.state["log"] == []
    result = await lone(node, store=store).resume("s", {"q": "yes"})
    assert result.state["log"] == ["yes"]


@pytest.mark.parametrize("node", SYNC[:-1], ids=lambda node: node.__name__)
async def test_an_inline_node_that_swallows_its_pause_still_pauses(node: Node):  # rule I1
    graph = lone(node, thread=False)
    result = await graph.run({}, session_id="s")
    assert result.status == "interrupted"
    assert (await graph.resume("s", {"q": "yes"})).state["log"] == ["yes"]


@pytest.mark.parametrize("node", ASYNC, ids=lambda node: node.__name__)
async def test_a_workflow_that_swallows_its_pause_still_pauses(node: Node):  # rule I1
    @workflow
    async def flow() -> Any:
        return (await node({}))["log"]

    runner = Runner(flow)
    result = await runner.run(session_id="s")
    assert (result.status, result.value) == ("interrupted", None)
    assert (await runner.resume("s", {"q": "yes"})).value == ["yes"]


@pytest.mark.parametrize("node", SYNC[:-1], ids=lambda node: node.__name__)
async def test_a_condition_that_swallows_its_pause_still_pauses(node: Node):  # rule I1
    def condition(state: Any) -> str:
        return node(state)["log"][0]

    def chosen(state: Any) -> dict[str, Any]:
        return {"log": ["chosen"]}

    graph = StateGraph(Log, name="g").add_node("first", chosen).add_node("yes", chosen).add_node("swallowed", chosen)
    compiled = graph.add_edge(START, "first").add_conditional_edges("first", condition).compile()
    result = await compiled.run({}, session_id="s")
    assert ids(result) == ["runnable:g;node:first;branch:condition"]
    assert (await compiled.resume("s", {"q": "yes"})).state["log"] == ["chosen", "chosen"]


async def test_a_child_run_whose_pause_is_swallowed_still_pauses_its_parent(store: Store):  # rule I1
    @workflow
    async def child() -> Any:
        return interrupt("q", key="q")

    @workflow
    async def parent() -> Any:
        try:
            return await current().run(child)
        except BaseException:  # noqa: BLE001  # as careless code does
            return "swallowed"

    result = await Runner(parent, store=store).run(session_id="s")
    assert ids(result) == ["runnable:parent;runnable:child"]
    assert (await Runner(parent, store=store).resume("s", {"q": "yes"})).value == "yes"


async def test_a_pause_is_never_retried():  # rules I1, G12
    runs: list[int] = []

    def node(state: Any) -> Any:
        runs.append(1)
        try:
            return {"log": [interrupt("q", key="q")]}
        except BaseException as error:
            raise ValueError("looks like a failure") from error

    graph = StateGraph(Log, name="g").add_node("ask", node, retry=Retry(attempts=5)).add_edge(START, "ask").compile()
    assert (await graph.run({}, session_id="s")).status == "interrupted"
    assert len(runs) == 1
    assert (await graph.resume("s", {"q": 1})).status == "done"


async def test_a_frame_cannot_ask_again_once_it_pauses(store: Store):  # rule I1
    def node(state: Any) -> Any:
        with contextlib.suppress(BaseException):
            interrupt("first")
        interrupt("second")

    with pytest.raises(AmbiguousInterrupt, match="runnable:g;node:ask"):
        await lone(node, store=store).run({}, session_id="s")


Asks = Callable[[], Coroutine[Any, Any, Any]]


def at_once(*asks: Asks) -> Node:
    async def node(state: Any) -> Any:
        return {"log": list(await asyncio.gather(*(ask() for ask in asks)))}

    return node


async def unkeyed() -> Any:
    return interrupt("q")


@pytest.mark.parametrize(
    "asks", [(unkeyed, unkeyed), (_ask, _ask), (_ask, unkeyed)], ids=["no keys", "one key twice", "one of two keyed"]
)
async def test_questions_at_once_that_cannot_be_told_apart_are_refused(asks: tuple[Asks, ...], store: Store):  # rule I1
    with pytest.raises(AmbiguousInterrupt, match="its own key") as raised:
        await lone(at_once(*asks), store=store).run({}, session_id="s")
    assert raised.value.address == "runnable:g;node:ask"
    mended = lone(at_once(lambda: _ask("a"), lambda: _ask("b")), store=store)
    result = await mended.recover("s")
    assert [asked.key for asked in result.interrupts] == ["a", "b"]
    assert await mended.pending("s") == list(result.interrupts)
    assert (await mended.resume("s", {"a": 1, "b": 2})).state["log"] == [1, 2]


async def test_questions_at_once_with_keys_are_asked_together(store: Store):  # rules I1, R7
    node = at_once(lambda: _ask("a"), lambda: _ask("b"), lambda: _ask("c"))
    result = await lone(node, store=store).run({}, session_id="s")
    place = "runnable:g;node:ask"
    assert [(asked.key, asked.id) for asked in result.interrupts] == [
        ("a", place),
        ("b", f"{place}#2"),
        ("c", f"{place}#3"),
    ]
    result = await lone(node, store=store).resume("s", {"b": "B"})
    assert [asked.id for asked in result.interrupts] == [place, f"{place}#3"]
    result = await lone(node, store=store).resume("s", {"a": "A", f"{place}#3": "C"})
    assert result.state["log"] == ["A", "B", "C"]


async def test_what_the_code_left_behind_is_ended_with_its_frame(store: Store):  # rule I1
    ended: list[str] = []

    async def slow(state: Any = None) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("slow")

    async def starts_another() -> None:
        task = asyncio.create_task(slow())
        await task

    async def node(state: Any) -> Any:
        answer = await asyncio.gather(_ask(), slow(), starts_another())
        return {"log": answer[:1]}

    assert (await lone(node, store=store).run({}, session_id="s")).status == "interrupted"
    assert ended == ["slow", "slow"]
    assert len(asyncio.all_tasks()) == 1


async def test_what_an_inline_node_left_behind_is_ended_with_its_frame():  # rule I1
    ended: list[str] = []

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("slow")

    def node(state: Any) -> Any:
        task = asyncio.get_running_loop().create_task(slow())
        answer = interrupt("q", key="q")
        task.cancel()
        return {"log": [answer]}

    graph = lone(node, thread=False)
    assert (await graph.run({}, session_id="s")).status == "interrupted"
    assert len(asyncio.all_tasks()) == 1
    assert (await graph.resume("s", {"q": 1})).state["log"] == [1]


async def test_a_kept_call_under_way_is_finished_before_its_frame_pauses(store: Store):  # rules I1, R13
    charged: list[int] = []
    asked = asyncio.Event()

    @once
    async def charge(cents: int) -> str:
        await asked.wait()
        await asyncio.sleep(0)
        charged.append(cents)
        return "receipt"

    async def ask() -> Any:
        asked.set()
        return interrupt("q", key="q")

    async def node(state: Any) -> Any:
        return {"log": list(await asyncio.gather(charge(100), ask()))}

    assert (await lone(node, store=store).run({}, session_id="s")).status == "interrupted"
    assert charged == [100]
    assert (await lone(node, store=store).resume("s", {"q": 1})).state["log"] == ["receipt", 1]
    assert charged == [100]


async def test_what_was_left_behind_cannot_reach_the_run_any_more():  # rules I1, C6
    outcome: list[BaseException] = []
    go = asyncio.Event()

    async def stubborn() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await go.wait()
        for call in (lambda: interrupt("late", key="late"), lambda: current().emit("late")):
            try:
                call()
            except BaseException as error:  # noqa: BLE001  # the test looks at it
                outcome.append(error)

    tasks: list[asyncio.Task[None]] = []

    async def node(state: Any) -> None:
        tasks.append(asyncio.create_task(stubborn()))

    graph = lone(node)
    assert (await graph.run({}, session_id="s")).status == "done"
    go.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(error, Exception) for error in outcome)
    assert await graph.pending("s") == []


async def test_pauses_and_results_outlive_a_siblings_failure(store: Store):  # rule I10
    runs: list[str] = []
    broken = True

    def fails(state: Any) -> Any:
        runs.append("fails")
        if broken:
            raise ValueError("broken")
        return {"log": ["mended"]}

    def asks(state: Any) -> Any:
        runs.append("asks")
        return {"log": [interrupt("q", key="q")]}

    def ends(state: Any) -> Any:
        runs.append("ends")
        return {"log": ["ended"]}

    nodes: dict[str, Node] = {"ends": ends, "fails": fails, "asks": asks}
    with pytest.raises(ValueError, match="broken"):
        await together(nodes, store=store).run({}, session_id="s")
    graph = together(nodes, store=store)
    status = await graph.status("s")
    assert status.status == "failed"
    assert [asked.id for asked in status.interrupts] == ["runnable:g;node:asks"]
    broken = False
    runs.clear()
    result = await graph.resume("s", {"q": "yes"})
    assert result.state["log"] == ["ended", "mended", "yes"]
    assert sorted(runs) == ["asks", "fails"]


async def test_recovering_from_a_siblings_failure_leaves_the_question_open(store: Store):  # rule I10
    broken = True

    def fails(state: Any) -> Any:
        if broken:
            raise ValueError("broken")

    def asks(state: Any) -> Any:
        return {"log": [interrupt("q", key="q")]}

    nodes: dict[str, Node] = {"fails": fails, "asks": asks}
    with pytest.raises(ValueError, match="broken"):
        await together(nodes, store=store).run({}, session_id="s")
    broken = False
    result: RunResult = await together(nodes, store=store).recover("s")
    assert (result.status, ids(result)) == ("interrupted", ["runnable:g;node:asks"])
    assert (await together(nodes, store=store).resume("s", {"q": 1})).state["log"] == [1]


async def test_a_hand_made_pause_is_refused():  # rule I1
    def node(state: Any) -> Any:
        raise Pause("by hand")

    with pytest.raises(UsageError, match="interrupt"):
        await lone(node).run({})


async def test_swallowing_tells_nobody_twice(store: Store):  # rules I4, R5
    def node(state: Any) -> Any:
        current().emit("before")
        answer = suppress_all(state)
        current().emit("after")
        return answer

    events = await events_of(lone(node, store=store).run({}, session_id="s"))
    assert [event.data for event in events if isinstance(event, Custom)] == ["before", "after"]
    assert isinstance(events[-1], Interrupted)
    events = await events_of(lone(node, store=store).resume("s", {"q": 1}))
    assert [event.data for event in events if isinstance(event, Custom)] == []
