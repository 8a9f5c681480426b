"""Progress of long tasks: reported to those who read now, and stored nowhere."""

import asyncio
from typing import Any, TypedDict

import pytest

from adjourn import ChatModelAgent, Message, Runner, ToolCall, current, interrupt, tool, workflow
from adjourn.errors import UsageError
from adjourn.events import Event, Progress, from_json, to_json
from adjourn.graph import START, StateGraph
from adjourn.stores import Store
from adjourn.testing import ScriptedModel
from tests._engine.asking import events_of, lone
from tests.conftest import Buffer


class Log(TypedDict, total=False):
    log: list[str]


def progress(events: list[Event]) -> list[Progress]:
    return [event for event in events if isinstance(event, Progress)]


def copies(state: Any) -> None:
    current().progress(1, 4, "copying")
    current().progress(3)


@pytest.mark.parametrize("thread", [True, False])
async def test_a_reader_sees_how_far_it_has_come(thread: bool):
    first, second = progress(await events_of(lone(copies, thread=thread).run({})))
    assert (first.done, first.total, first.fraction, first.message) == (1, 4, 0.25, "copying")
    assert (second.done, second.total, second.fraction, second.message) == (3, None, None, "")
    assert (first.address, first.seq) == ("runnable:g;node:ask", None)
    assert from_json(to_json(first)) == first


async def test_progress_is_not_stored(store: Store):
    graph = lone(copies, store=store)
    assert progress(await events_of(graph.run({}, session_id="s")))
    assert not progress(await events_of(graph.attach("s")))


async def test_without_a_reader_nothing_happens():
    seen: list[int] = []

    def node(state: Any) -> None:
        current().progress(1)
        seen.append(1)

    assert (await lone(node).run({})).status == "done"
    assert seen == [1]


async def test_code_that_runs_again_reports_again():
    def node(state: Any) -> Any:
        current().progress(1, 2)
        return {"log": [interrupt("q", key="q")]}

    graph = lone(node)
    assert len(progress(await events_of(graph.run({}, session_id="s")))) == 1
    assert len(progress(await events_of(graph.resume("s", {"q": 1})))) == 1


@tool
def index(pages: int) -> str:
    """Index pages.

    Args:
        pages: How many.
    """
    for page in range(1, pages + 1):
        current().progress(page, pages)
    return "indexed"


async def test_progress_of_a_tool_is_its_agents():
    call = ToolCall(id="c1", name="index", arguments={"pages": 2})
    model = ScriptedModel([Message.assistant(tool_calls=[call]), "done"])
    events = progress(await events_of(Runner(ChatModelAgent("Clerk", model=model, tools=[index])).run("go")))
    assert [event.fraction for event in events] == [0.5, 1.0]
    assert {(event.agent, event.path, event.address) for event in events} == {
        ("Clerk", ("Clerk",), "agent:Clerk;tool:index:c1")
    }


async def test_more_than_all_is_all():
    def node(state: Any) -> None:
        current().progress(5, 4)
        current().progress(0, 0)

    assert [event.fraction for event in progress(await events_of(lone(node).run({})))] == [1.0, None]


@pytest.mark.parametrize(
    "given", [(-1,), (float("nan"),), (float("inf"),), ("1",), (True,), (None,), (1, -1), (1, "2"), (10**400,)]
)
async def test_what_is_not_a_number_is_refused(given: Any):
    def node(state: Any) -> None:
        current().progress(*given)

    with pytest.raises(UsageError, match=r"progress\((done|total)=.*give a number, 0 or more"):
        await lone(node).run({})


async def test_a_workflow_and_its_threads_report(store: Store):
    @workflow
    async def job(pages: int) -> str:
        current().progress(1, pages, "begun")
        await asyncio.to_thread(lambda: current().progress(2, pages, "in a thread"))
        return "done"

    events = progress(await events_of(Runner(job, store=store).run(2, session_id="s")))
    assert [(event.address, event.message, event.fraction) for event in events] == [
        ("runnable:job", "begun", 0.5),
        ("runnable:job", "in a thread", 1.0),
    ]


@pytest.mark.parametrize("size", [1, 2, 5])
async def test_a_slow_reader_gets_the_latest_report_of_each_task(store: Store, size: int, buffer: Buffer):  # rule A11
    def report(state: Any) -> None:
        for number in range(1, 1001):
            current().progress(number, 1000)

    graph = StateGraph(Log, name="g")
    for name in ("a", "b"):
        graph.add_node(name, report, thread=False).add_edge(START, name)
    buffer(size)
    run = graph.compile(store=store).run({}, session_id="s")
    seen: list[Progress] = []
    async for event in run:
        if isinstance(event, Progress):
            seen.append(event)
        await asyncio.sleep(0)
    assert len(seen) < 100
    last = {event.address: event.done for event in seen}
    assert last == {"runnable:g;node:a": 1000, "runnable:g;node:b": 1000}
