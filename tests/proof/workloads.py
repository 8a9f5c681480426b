"""Workloads: the programs that child processes run, are killed in, frozen in and race for."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any, Protocol, TypedDict, cast

import msgspec

from adjourn import (
    AnswerWith,
    Interrupt,
    Retry,
    Runner,
    RunResult,
    current,
    interrupt,
    once,
    session_values,
    set_session_value,
    workflow,
)
from adjourn.graph import END, START, Command, CompiledGraph, StateGraph, append, last, merge
from adjourn.runner import Options

from .ledger import Ledger


class Channel(Protocol):
    """The line from a child process to the test."""

    def halt(self, where: str) -> None:
        """Tell the test where this process is, and go on when it says so."""
        ...


class World:
    """What a workload's code reaches outside of its run; it comes as `deps`."""

    def __init__(self, ledger: Ledger, channel: Channel, kill_at: int = 0) -> None:
        self.ledger = ledger
        self.channel = channel
        self._kill_at = kill_at

    def do(self, what: str, *arguments: Any) -> None:
        """Have an effect; the process dies right after it if that was the one to die after."""
        here = current()
        self.ledger.write(
            "effect", what, key=here.idempotency_key, address=str(here.address), arguments=list(arguments)
        )
        self._kill_at -= 1
        if self._kill_at == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def note_kept(self, what: str, *arguments: Any) -> None:
        """Note that a `@once` call with these arguments has returned: it must not run again from now on."""
        self.ledger.write("kept", what, address=str(current().address), arguments=list(arguments))


def world() -> World:
    """The world of the running code."""
    return cast("World", current().deps)


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """A program, its input, and what people answer to its questions."""

    build: Callable[[], Any]  # Any: a graph, a workflow or an agent
    input: Any = None
    answer: Callable[[Interrupt], Any] = lambda _: None
    turns: int = 1
    show: Callable[[RunResult], Any] = lambda result: result.value or result.state

    def runner(self, **options: Any) -> Runner:
        """A runner of the program, newly built."""
        built = self.build()
        return Runner(built, **cast("Options", options))


class Notes(TypedDict):
    """The state that most workloads share."""

    order: str
    notes: Annotated[list[str], append]
    by_name: Annotated[dict[str, str], merge]
    seen: Annotated[Any, last]


@once
async def charge(order: str, cents: int) -> str:
    world().do("charge", order, cents)
    await asyncio.sleep(0)
    return f"charged {order} {cents}"


@once
def print_label(order: str) -> str:
    world().do("label", order)
    return f"label of {order}"


def noting(name: str) -> Callable[[Notes], dict[str, Any]]:
    """A sync node, which runs in a thread: it has an effect and leaves a note and a session value."""

    def node(state: Notes) -> dict[str, Any]:
        world().do(name, state["order"])
        set_session_value(name, len(session_values()))
        return {"notes": [name], "by_name": {name: state["order"]}}

    return node


def noting_async(name: str) -> Callable[[Notes], Any]:
    """The same on the event loop, which is given its turn in between."""

    async def node(state: Notes) -> dict[str, Any]:
        await asyncio.sleep(0)
        world().do(name, state["order"])
        current().emit({"from": name})
        set_session_value(name, len(session_values()))
        return {"notes": [name], "by_name": {name: state["order"]}}

    return node


def sum_up(_: Notes) -> dict[str, Any]:
    return {"seen": dict(sorted(session_values().items()))}


def _graph(name: str) -> StateGraph:
    return StateGraph(Notes, name=name)


def steps() -> CompiledGraph:
    """One node after the other."""
    graph = _graph("steps").add_node("pick", noting("pick")).add_node("pack", noting_async("pack"))
    graph.add_node("send", noting("send")).add_node("sum_up", sum_up)
    return graph.add_edge(START, "pick").add_sequence("pick", "pack", "send", "sum_up").compile()


async def _keeping(state: Notes) -> dict[str, Any]:
    first = await charge(state["order"], 100)
    world().note_kept("charge", state["order"], 100)
    second = await charge(state["order"], 200)
    return {"notes": [first, second]}


def _labelling(state: Notes) -> dict[str, Any]:
    label = print_label(state["order"])
    world().note_kept("label", state["order"])
    return {"notes": [label]}


def siblings() -> CompiledGraph:
    """Nodes at once, on the loop and in threads, some with calls that are kept; then a join."""
    graph = _graph("siblings").add_node("keeping", _keeping).add_node("labelling", _labelling)
    graph.add_node("weigh", noting("weigh")).add_node("check", noting_async("check")).add_node("sum_up", sum_up)
    names = ["keeping", "labelling", "weigh", "check"]
    for name in names:
        graph.add_edge(START, name)
    return graph.add_edge(names, "sum_up").compile()


@workflow
async def refund(order: str) -> dict[str, Any]:
    """Charge, ask, print, ask: all in plain code."""
    receipt = await charge(order, 7)
    world().note_kept("charge", order, 7)
    first = interrupt({"order": order}, key="manager", schema=bool, prompt="Manager: ok?")
    label = await asyncio.to_thread(print_label, order)
    world().note_kept("label", order)
    second = interrupt("Director: ok?", key="director", schema=str)
    set_session_value("refunded", order)
    world().do("refund", order, first, second)
    return {"receipt": receipt, "label": label, "answers": [first, second], "values": dict(session_values())}


def asking(name: str) -> Callable[[Notes], dict[str, Any]]:
    def node(state: Notes) -> dict[str, Any]:
        world().do(f"before {name}", state["order"])
        said = interrupt(f"{name}?", key=name, schema=str)
        world().do(f"after {name}", state["order"], said)
        set_session_value(name, said)
        return {"by_name": {name: said}}

    return node


def questions() -> CompiledGraph:
    """Two questions at once beside a node that works, answered by different people; then a join."""
    graph = _graph("questions").add_node("ann", asking("ann")).add_node("ben", asking("ben"))
    graph.add_node("work", noting_async("work")).add_node("sum_up", sum_up)
    for name in ("ann", "ben", "work"):
        graph.add_edge(START, name)
    return graph.add_edge(["ann", "ben", "work"], "sum_up").compile()


def _again(state: Notes) -> Command:
    approved = interrupt({"draft": len(state["notes"])}, key="approval", schema=bool)
    world().do("decide", len(state["notes"]), approved)
    return Command(update={"notes": [f"approved: {approved}"]}, goto=END if approved else "draft")


def nested() -> CompiledGraph:
    """A subgraph with a loop in it that asks each time, between two nodes."""
    inner = _graph("inner").add_node("draft", noting("draft")).add_node("approve", _again)
    inner.add_edge(START, "draft").add_edge("draft", "approve")
    graph = _graph("nested").add_node("open", noting_async("open")).add_subgraph("review", inner.compile())
    graph.add_node("close", noting("close")).add_node("sum_up", sum_up)
    return graph.add_edge(START, "open").add_sequence("open", "review", "close", "sum_up").compile()


def _spread(_: Notes) -> list[Command]:
    return [Command(update={"order": f"part {n}"}, goto="part") for n in range(3)]


async def _part(state: Notes) -> dict[str, Any]:
    world().do("part", state["order"])
    said = interrupt(state["order"], key="part", schema=str) if state["order"] == "part 1" else "plain"
    receipt = await charge(state["order"], 1)
    world().note_kept("charge", state["order"], 1)
    return {"notes": [said, receipt]}


def fan() -> CompiledGraph:
    """A fan-out of which one task asks."""
    graph = _graph("fan").add_node("spread", _spread, destinations=["part"]).add_node("part", _part)
    graph.add_node("sum_up", sum_up)
    return graph.add_edge(START, "spread").add_edge("part", "sum_up").compile()


def _decide(state: Notes) -> dict[str, Any]:
    said = interrupt(
        "which?", key="decision", schema=str, expires_in=timedelta(hours=1), on_expire=AnswerWith("nobody")
    )
    world().do("decided", state["order"], said)
    return {"notes": [said]}


def decision() -> CompiledGraph:
    """One question that can expire, and two nodes after it."""
    graph = _graph("decision").add_node("decide", _decide).add_node("file", noting_async("file"))
    graph.add_node("sum_up", sum_up)
    return graph.add_edge(START, "decide").add_sequence("decide", "file", "sum_up").compile()


async def _slow(state: Notes) -> dict[str, Any]:
    world().do("slow", state["order"])
    await asyncio.to_thread(world().channel.halt, "slow")
    return {"notes": ["slow"]}


def meeting() -> CompiledGraph:
    """Four people are asked while a fifth node works for as long as the test wants."""
    people = ["ann", "ben", "cleo", "dan"]
    graph = _graph("meeting").add_node("slow", _slow).add_node("sum_up", sum_up)
    for name in people:
        graph.add_node(name, asking(name)).add_edge(START, name)
    return graph.add_edge(START, "slow").add_edge([*people, "slow"], "sum_up").compile()


def _halting(state: Notes) -> dict[str, Any]:
    world().do("halting", state["order"])
    world().channel.halt("inside")
    return {"notes": ["halting"]}


async def _halting_async(state: Notes) -> dict[str, Any]:
    world().do("halting", state["order"])
    await asyncio.to_thread(world().channel.halt, "inside")
    return {"notes": ["halting"]}


async def _halting_once(state: Notes) -> dict[str, Any]:
    receipt = await _halting_charge(state["order"])
    world().do("after once", state["order"])
    return {"notes": [receipt]}


@once
async def _halting_charge(order: str) -> str:
    world().do("halting", order)
    await asyncio.to_thread(world().channel.halt, "inside")
    return f"charged {order}"


async def _halting_asking(state: Notes) -> dict[str, Any]:
    world().do("halting", state["order"])
    await asyncio.to_thread(world().channel.halt, "inside")
    said = interrupt("so?", key="so", schema=str)
    world().do("heard", said)
    return {"notes": [said]}


def halt(node: Callable[[Notes], Any], *, thread: bool = True) -> CompiledGraph:
    """A node that the test can freeze, and nodes after it."""
    graph = _graph("halt").add_node("first", noting("first")).add_node("halting", node, thread=thread)
    graph.add_node("after", noting("after")).add_node("sum_up", sum_up)
    return graph.add_edge(START, "first").add_sequence("first", "halting", "after", "sum_up").compile()


def _choose(state: Notes) -> str:
    world().do("after", state["order"])
    return "sum_up"


def halt_choice() -> CompiledGraph:
    """A node that the test can freeze, and a condition after it."""
    graph = _graph("halt_choice").add_node("halting", _halting_async).add_node("sum_up", sum_up)
    return graph.add_edge(START, "halting").add_conditional_edges("halting", _choose).compile()


async def _stumbling(state: Notes) -> dict[str, Any]:
    world().do("halting" if current().attempt == 1 else "after", state["order"])
    if current().attempt == 1:
        await asyncio.to_thread(world().channel.halt, "inside")
        raise OSError("try again")
    return {"notes": ["stumbled"]}


def halt_retry() -> CompiledGraph:
    """A node that the test can freeze in its first attempt."""
    graph = _graph("halt_retry").add_node("stumbling", _stumbling, retry=Retry(attempts=2, backoff=0.0))
    return graph.add_edge(START, "stumbling").compile()


@once
async def _deliver(order: str) -> str:
    world().do("after", order)
    return f"delivered {order}"


@workflow
async def halting_workflow(order: str) -> list[str]:
    """Plain code that the test can freeze between two kept calls."""
    receipt = await charge(order, 7)
    world().do("halting", order)
    await asyncio.to_thread(world().channel.halt, "inside")
    return [receipt, await _deliver(order)]


def _yes(asked: Interrupt) -> Any:
    # The first draft is refused, so that the loop comes round and the place asks anew.
    return asked.key != "approval" or asked.id.endswith("#2")


def _word(asked: Interrupt) -> Any:
    return True if asked.key == "manager" else f"{asked.key} says so"


ORDER: dict[str, Any] = {"order": "A-17"}
WORKLOADS: dict[str, Workload] = {
    "steps": Workload(build=steps, input=ORDER),
    "siblings": Workload(build=siblings, input=ORDER),
    "refund": Workload(build=lambda: refund, input="A-17", answer=_word),
    "questions": Workload(build=questions, input=ORDER, answer=_word),
    "nested": Workload(build=nested, input=ORDER, answer=_yes),
    "turns": Workload(build=questions, input=ORDER, answer=_word, turns=2),
    "fan": Workload(build=fan, input=ORDER, answer=_word),
    "decision": Workload(build=decision, input=ORDER, answer=_word),
    "meeting": Workload(build=meeting, input=ORDER, answer=_word),
    "halt_thread": Workload(build=lambda: halt(_halting), input=ORDER),
    "halt_async": Workload(build=lambda: halt(_halting_async), input=ORDER),
    "halt_loop": Workload(build=lambda: halt(_halting, thread=False), input=ORDER),
    "halt_once": Workload(build=lambda: halt(_halting_once), input=ORDER),
    "halt_retry": Workload(build=halt_retry, input=ORDER),
    "halt_choice": Workload(build=halt_choice, input=ORDER),
    "halt_workflow": Workload(build=lambda: halting_workflow, input="A-17"),
    "halt_asking": Workload(build=lambda: halt(_halting_asking), input=ORDER, answer=_word),
}
