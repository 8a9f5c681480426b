"""Run: lazy, awaited or read, left early or detached; and what a result holds."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

import pytest

from adjourn import (
    CheckpointNotFound,
    Interrupted,
    Message,
    NodeEnd,
    PendingInterrupts,
    Runner,
    StaleCheckpoint,
    UnfinishedRun,
    Usage,
    UsageError,
    current,
    workflow,
)
from adjourn.errors import NotStorable, StateInvalid, StoreUnavailable
from adjourn.events import CheckpointSaved, Custom, Done, Failed
from adjourn.graph import START, MessagesState, StateGraph
from adjourn.stores import SessionRef, Store
from adjourn.stores.kit import GetHead

from .programs import (
    FINAL,
    Gate,
    asking,
    awaited,
    begin,
    events_of,
    events_until_failure,
    held,
    kinds,
    line,
    step,
    steps,
    turns,
)


async def fails(state: Mapping[str, Any]) -> None:
    raise ValueError("no luck")


# Lazy


async def test_a_run_does_nothing_until_it_is_awaited(store: Store):
    graph = steps("a", store=store)
    run = graph.run({}, session_id="s")
    assert run.session_id == "s"
    await asyncio.sleep(0)
    assert await store.read(GetHead(SessionRef("s"))) is None
    assert (await run).status == "done"


async def test_a_run_without_session_id_has_one_at_once(store: Store):
    first, second = steps("a", store=store).run({}), steps("a", store=store).run({})
    assert first.session_id
    assert first.session_id != second.session_id
    assert (await first).session_id == first.session_id
    assert (await second).session_id == second.session_id


def test_a_run_that_nobody_awaits_says_so(store: Store):
    with pytest.warns(RuntimeWarning, match="session 's' was never awaited or iterated"):
        steps("a", store=store).run({}, session_id="s")


async def test_errors_before_any_work_are_raised_where_the_run_is_awaited(store: Store):
    graph = asking(store=store)
    calls = [graph.resume("nobody"), graph.recover("nobody"), graph.attach("nobody")]
    for run in calls:
        with pytest.raises(CheckpointNotFound):
            await run


async def test_errors_before_any_work_are_raised_where_the_run_is_read(store: Store):
    graph = asking(store=store)
    for run in [graph.resume("nobody"), graph.recover("nobody"), graph.attach("nobody")]:
        with pytest.raises(CheckpointNotFound):
            await events_of(run)


async def test_a_run_gives_one_result_however_often_it_is_awaited(store: Store):
    run = steps("a", store=store).run({}, session_id="s")
    results = await asyncio.gather(awaited(run), awaited(run))
    assert results[0] is results[1] is await run
    assert len(await steps("a", store=store).history("s")) == 2


async def test_a_run_that_was_read_can_be_awaited(store: Store):
    run = steps("a", store=store).run({}, session_id="s")
    await events_of(run)
    assert (await run).state["done"] == ["a"]


# Events


async def test_the_events_of_a_run_end_in_one_final_event(store: Store):  # rule A11
    graph = asking(store=store)
    paused = await events_of(graph.run({}, session_id="s"))
    done = await events_of(graph.resume("s", {"go": 1}))
    assert kinds(paused) == [
        "CheckpointSaved",
        "NodeStart",
        "NodeEnd",
        "CheckpointSaved",
        "NodeStart",
        "CheckpointSaved",
        "Interrupted",
    ]
    assert [isinstance(event, FINAL) for event in done].count(True) == 1
    assert isinstance(done[-1], Done)


async def test_durable_events_are_numbered_without_gaps_over_a_whole_session(store: Store):
    graph = asking(store=store)
    events = await events_of(graph.run({}, session_id="s")) + await events_of(graph.resume("s", {"go": 1}))
    numbers = [event.seq for event in events if event.seq is not None]
    assert numbers == list(range(1, len(numbers) + 1))


async def test_live_events_have_no_number(store: Store):
    events = await events_of(steps("a", store=store).run({}, session_id="s"))
    assert [kinds([event])[0] for event in events if event.seq is None] == ["NodeStart"]


async def test_a_failed_run_delivers_its_error_and_then_raises(store: Store):  # rule A11
    graph = line(("a", step("a")), ("b", fails), store=store)
    events, error = await events_until_failure(graph.run({}, session_id="s"))
    assert isinstance(error, ValueError)
    assert [event for event in events if isinstance(event, FINAL)] == [events[-1]]
    last = events[-1]
    assert isinstance(last, Failed)
    assert (last.error, last.message) == ("ValueError", "no luck")


async def test_awaiting_a_failed_run_raises_and_it_stays_recoverable(store: Store):
    graph = line(("a", step("a")), ("b", fails), store=store)
    with pytest.raises(ValueError, match="no luck"):
        await graph.run({}, session_id="s")
    assert (await graph.status("s")).status == "failed"
    mended = line(("a", fails), ("b", step("b")), store=store)
    assert (await mended.recover("s")).state["done"] == ["a", "b"]


async def test_a_value_that_cannot_be_stored_fails_the_run_and_leaves_it_recoverable(store: Store):
    async def unstorable(state: Mapping[str, Any]) -> dict[str, Any]:
        return {"answer": object()}

    graph = line(("a", step("a")), ("b", unstorable), store=store)
    events, error = await events_until_failure(graph.run({}, session_id="s"))
    assert isinstance(error, NotStorable)
    assert isinstance(events[-1], Failed)
    assert (await graph.status("s")).status == "failed"
    assert (await steps("a", "b", store=store).recover("s")).state["done"] == ["a", "b"]


async def test_a_node_that_meets_trouble_with_another_store_fails_like_any_other(store: Store):
    async def elsewhere(state: Mapping[str, Any]) -> None:
        raise StoreUnavailable("another store", "it is away")

    graph = line(("a", step("a")), ("b", elsewhere), store=store)
    _, error = await events_until_failure(graph.run({}, session_id="s"))
    assert isinstance(error, StoreUnavailable)
    assert (await graph.status("s")).status == "failed"
    assert (await steps("a", "b", store=store).recover("s")).state["done"] == ["a", "b"]


async def test_a_pause_is_stored_before_it_is_told(store: Store):  # rule I5
    graph = asking(store=store)
    async for event in graph.run({}, session_id="s"):
        if isinstance(event, Interrupted):
            status = await asking(store=store).status("s")
            assert (status.status, status.owner, status.checkpoint_id) == ("waiting", None, event.checkpoint_id)
            assert [i.id for i in status.interrupts] == [i.id for i in event.interrupts]
            break
    else:
        raise AssertionError


async def test_a_step_is_stored_before_it_is_told(store: Store):  # rule A11
    graph, other = steps("a", "b", "c", store=store), steps("a", "b", "c", store=store)
    seen: list[str] = []
    async for event in graph.run({}, session_id="s"):
        if isinstance(event, CheckpointSaved):
            stored = await other.checkpoint("s", event.checkpoint_id)
            assert (stored.source, stored.step) == (event.source, event.step)
        elif isinstance(event, NodeEnd):
            seen.append(event.node)
            assert (await other.state("s"))["done"][: len(seen)] == seen


async def test_what_a_node_emits_is_an_event(store: Store):
    async def talks(state: Mapping[str, Any]) -> None:
        current().emit({"percent": 50})

    events = await events_of(line(("talk", talks), store=store).run({}, session_id="s"))
    assert [event.data for event in events if isinstance(event, Custom)] == [{"percent": 50}]


async def test_text_gives_only_text_and_ends_with_the_run(store: Store):
    run = asking(store=store).run({}, session_id="s")
    assert [text async for text in run.text()] == []
    assert (await run).status == "interrupted"


async def test_text_raises_what_failed_the_run(store: Store):
    run = line(("b", fails), store=store).run({}, session_id="s")
    with pytest.raises(ValueError, match="no luck"):
        async for _ in run.text():
            pass


# Leaving


async def test_leaving_a_loop_early_stops_the_run_at_its_next_safe_point(store: Store):
    gate = Gate()
    graph = line(("a", step("a")), ("b", held("b", gate)), ("c", step("c")), store=store)
    run = graph.run({}, session_id="s")
    async for event in run:
        if isinstance(event, NodeEnd):
            break
    await gate.reached.wait()
    await turns()
    gate.opened.set()
    result = await run
    assert result.status == "cancelled"
    assert result.state["done"] == ["a", "b"]  # what was under way finished, and nothing more began
    assert (await graph.status("s")).status == "cancelled"
    assert (await graph.recover("s")).state["done"] == ["a", "b", "c"]


async def test_a_reader_whose_task_is_cancelled_leaves_a_recoverable_session(store: Store):
    gate = Gate()
    graph = line(("a", held("a", gate)), ("b", step("b")), store=store)
    run = graph.run({}, session_id="s")
    reader = asyncio.create_task(events_of(run))
    await gate.reached.wait()
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    gate.opened.set()
    assert (await run).status == "cancelled"
    assert (await graph.recover("s")).state["done"] == ["a", "b"]


async def test_an_awaiter_whose_task_is_cancelled_leaves_a_recoverable_session(store: Store):
    gate = Gate()
    graph = line(("a", step("a")), ("b", held("b", gate)), store=store)
    waiting = begin(graph.run({}, session_id="s"))
    await gate.reached.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (await graph.status("s")).status == "cancelled"
    gate.opened.set()
    assert (await graph.recover("s")).state["done"] == ["a", "b"]


async def test_an_awaiter_who_is_cancelled_as_the_run_ends_takes_nothing_along(store: Store):
    gate = Gate()
    run = line(("a", held("a", gate)), store=store).run({}, session_id="s")
    waiting = begin(run)
    await gate.reached.wait()
    run.detach()
    gate.opened.set()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (await run).status == "done"
    assert (await run).state["done"] == ["a"]


async def test_a_detached_run_goes_on_without_its_reader(store: Store):
    gate = Gate()
    graph = line(("a", step("a")), ("b", held("b", gate)), ("c", step("c")), store=store)
    run = graph.run({}, session_id="s")
    run.detach()
    async for _ in run:
        break
    gate.opened.set()
    assert (await run).state["done"] == ["a", "b", "c"]


async def test_a_detached_run_goes_on_when_its_awaiter_is_cancelled(store: Store):
    gate = Gate()
    graph = line(("a", held("a", gate)), store=store)
    run = graph.run({}, session_id="s")
    run.detach()
    waiting = begin(run)
    await gate.reached.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (await graph.status("s")).status == "running"
    gate.opened.set()
    assert (await run).status == "done"


async def test_async_with_closes_the_run(store: Store):
    gate = Gate()
    graph = line(("a", step("a")), ("b", held("b", gate)), ("c", step("c")), store=store)
    async with graph.run({}, session_id="s") as run:
        async for event in run:
            if isinstance(event, NodeEnd):
                gate.opened.set()
                break
    status = await graph.status("s")  # closed means: nothing of it runs any more
    assert (status.status, status.owner) == ("cancelled", None)


async def test_async_with_leaves_a_run_alone_that_was_never_started(store: Store):
    async with steps("a", store=store).run({}, session_id="s"):
        pass
    assert await store.read(GetHead(SessionRef("s"))) is None


async def test_async_with_leaves_a_detached_run_alone(store: Store):
    gate = Gate()
    async with line(("a", held("a", gate)), store=store).run({}, session_id="s") as run:
        run.detach()
        waiting = begin(run)
        await gate.reached.wait()
    gate.opened.set()
    assert (await waiting).status == "done"


# Results


async def test_a_result_says_what_the_run_came_to(store: Store):
    async def reply(state: Mapping[str, Any]) -> dict[str, Any]:
        text = f"You said {state['user_input']}"
        return {"messages": [Message.assistant(text)], "last_response": text}

    graph = (
        StateGraph(MessagesState, name="echo").add_node("reply", reply).add_edge(START, "reply").compile(store=store)
    )
    result = await graph.run("hello", session_id="s")
    assert result.status == "done"
    assert result.output == "You said hello"
    assert [message.text for message in result.messages] == ["You said hello"]
    assert result.message == result.messages[-1]
    assert result.state["user_input"] == "hello"
    assert (result.interrupts, result.usage, result.session_id) == ((), Usage(), "s")
    assert result.checkpoint_id == (await graph.history("s"))[0].id
    assert await graph.messages("s") == result.messages


async def test_a_result_of_an_earlier_turn_does_not_change(store: Store):
    graph = steps("a", store=store)
    first = await graph.run({"done": ["x"]}, session_id="s")
    await graph.run({"done": ["y"]}, session_id="s")
    assert first.state["done"] == ["x", "a"]


async def test_changing_a_result_changes_nothing_that_is_stored(store: Store):
    graph = steps("a", store=store)
    first = await graph.run({}, session_id="s")
    first.state["done"].append("mine")
    assert (await graph.run({}, session_id="s")).state["done"] == ["a", "a"]


async def test_a_workflow_gives_its_value(store: Store):
    @workflow
    async def adds(numbers: list[int]) -> int:
        return sum(numbers)

    result = await Runner(adds, store=store).run([1, 2], session_id="s")
    assert (result.status, result.value, result.output, result.messages) == ("done", 3, "", ())


async def test_a_workflow_that_gives_text_gives_output(store: Store):
    @workflow
    async def greets(name: str) -> str:
        return f"Hello {name}"

    assert (await Runner(greets, store=store).run("Ann")).output == "Hello Ann"


# Arguments


async def test_values_are_kept_and_deps_are_not(store: Store):  # rules R15, A13, C12
    seen: list[Any] = []

    async def look(state: Mapping[str, Any]) -> None:
        seen.append((current().deps, dict(current().values), current().user_id))

    graph = line(("look", look), store=store)
    await graph.run({}, session_id="s", values={"tone": "dry"}, deps=object, user_id="ann")
    await graph.run({}, session_id="s")
    assert seen == [(object, {"tone": "dry"}, "ann"), (None, {"tone": "dry"}, None)]


async def test_a_turn_on_a_session_with_open_questions_is_refused(store: Store):  # rule R12
    graph = asking(store=store)
    await graph.run({}, session_id="s")
    with pytest.raises(PendingInterrupts) as refused:
        await graph.run({}, session_id="s")
    assert refused.value.interrupts == ("runnable:asking;node:ask",)
    with pytest.raises(PendingInterrupts):
        await graph.run({}, session_id="s", on_pending="finish")
    await graph.run({}, session_id="s", on_pending="abandon")
    with pytest.raises(StaleCheckpoint):
        await graph.resume("s", {"runnable:asking;node:ask": 1})


async def test_a_turn_on_a_session_that_failed_is_refused_or_finishes_it_first(store: Store):  # rule R12
    await events_until_failure(line(("a", fails), store=store).run({"done": ["1"]}, session_id="s"))
    graph = steps("a", store=store)
    with pytest.raises(UnfinishedRun):
        await graph.run({}, session_id="s")
    assert (await graph.run({"done": ["2"]}, session_id="s", on_pending="finish")).state["done"] == ["1", "a", "2", "a"]


async def test_a_session_that_failed_can_be_abandoned(store: Store):
    await events_until_failure(line(("a", fails), store=store).run({"done": ["1"]}, session_id="s"))
    result = await steps("a", store=store).run({"done": ["2"]}, session_id="s", on_pending="abandon")
    assert result.state["done"] == ["1", "2", "a"]


async def test_wrong_arguments_are_refused_where_they_are_given(store: Store):
    graph = steps("a", store=store)
    with pytest.raises(UsageError, match="on_pending"):
        graph.run({}, on_pending="ask")  # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match="checkpoint_id"):
        graph.run({"done": []}, session_id="s", checkpoint_id="b.0")
    with pytest.raises(UsageError, match="session_id"):
        graph.run(None, checkpoint_id="b.0")
    with pytest.raises(UsageError, match="compile"):
        Runner(StateGraph(MessagesState))  # pyright: ignore[reportArgumentType]
    mistakes: list[dict[str, Any]] = [
        {"durability": "never"},
        {"max_concurrency": 0},
        {"lease_ttl": 0},
        {"store_timeout": -1},
        {"shop": 1},
    ]
    for wrong in mistakes:
        with pytest.raises(UsageError, match=next(iter(wrong))):
            Runner(graph, **wrong)


async def test_wrong_input_leaves_no_trace(store: Store):  # rule S5
    with pytest.raises(StateInvalid):
        await steps("a", store=store).run({"unknown": 1}, session_id="s")
    assert await store.read(GetHead(SessionRef("s"))) is None


async def test_a_store_can_be_named_by_url(tmp_path: Any):
    for url in (f"sqlite:///{tmp_path}/one.db", "memory://test-a-store-by-url"):
        await steps("a", store=url).run({}, session_id="s")
        assert (await steps("a", store=url).status("s")).status == "done"


async def test_a_run_leaves_its_callers_context_alone(store: Store):  # rule G17
    tone: ContextVar[str] = ContextVar("tone", default="unset")

    async def sets(state: Mapping[str, Any]) -> None:
        tone.set("loud")

    await line(("a", sets), store=store).run({}, session_id="s")
    assert tone.get() == "unset"
