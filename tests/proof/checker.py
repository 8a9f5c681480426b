"""The checker: what must hold of a ledger and a store after any crash, freeze or race (`I1` to `I8`)."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from adjourn import Custom, Event, MessageEvent, NodeEnd, Runner, ToolResult
from adjourn.events import FINAL, CheckpointSaved
from adjourn.sessions import Checkpoint
from adjourn.stores import SessionRef, Store
from adjourn.stores.kit import Audit, GetHead, ListCheckpoints, Load

from .agent_workloads import PROGRAMS
from .child import SESSION
from .ledger import Ledger, Line
from .places import store_of
from .workloads import Workload


class Portrait(msgspec.Struct, frozen=True, kw_only=True):
    """All that can be seen of a session from outside, without what is new in every run: times, ids of branches."""

    state: Any
    questions: list[tuple[str, bytes | None, str | None]]
    history: list[tuple[str, int, tuple[str, ...] | int, int]]
    events: Counter[str]


async def check(folder: Path, workload: str) -> Portrait:
    """Check everything that must hold of the session in `folder`, and paint it."""
    ledger = Ledger(folder / "ledger")
    check_effects(ledger)
    check_fences(ledger)
    store = store_of(folder)
    try:
        program = PROGRAMS[workload]
        runner = program.runner(store=store)
        await check_log(store, runner, ledger)
        await check_answers(store, ledger)
        return await _portrait(store, runner, program)
    finally:
        await store.close()


def check_effects(ledger: Ledger) -> None:
    """Same key, same arguments (I6); and what was told or kept is not done again (C8)."""
    arguments: dict[tuple[str, str], Any] = {}
    done: defaultdict[str, set[str]] = defaultdict(set)
    sealed: set[str] = set()
    for line in ledger.lines():
        if line.kind == "effect":
            assert line.key not in sealed, f"{line} was told or kept, and is done again"
            assert arguments.setdefault((line.key, line.what), line.arguments) == line.arguments, line
            done[f"{line.address} "].add(line.key)
            done[f"{line.address} {line.what}"].add(line.key)
            done[_call(line)].add(line.key)
        elif line.kind == "told":
            sealed |= done[f"{line.address} {line.what}"]
        elif line.kind == "kept":
            sealed |= done[_call(line)]


def _call(line: Line) -> str:
    return f"{line.address} {line.what} {line.arguments}"


def check_fences(ledger: Ledger) -> None:
    """One owner writes at a time, and nobody after his successor (I2).

    In the order of the store, not of the ledger: whoever lets a session go notes it when another may have claimed it.
    """
    claimed = [line.fence for line in ledger.lines("claimed")]
    assert len(set(claimed)) == len(claimed), f"two owners have one fence: {claimed}"
    newest: Counter[str] = Counter()
    records: dict[str, int] = {}
    lines = [line for line in ledger.lines() if line.kind in ("claimed", "committed")]
    for line in sorted(lines, key=lambda line: (_number(line.what), line.fence)):
        branch = line.what.rpartition(".")[0]
        assert line.fence >= newest[branch], f"{line} after fence {newest[branch]}"
        newest[branch] = line.fence
        if line.kind == "committed":
            assert records.setdefault(line.what, line.fence) == line.fence, f"{line} was written twice"


async def check_log(store: Store, runner: Runner, ledger: Ledger) -> None:
    """Nothing committed is lost or changed, the chain holds (I1), events have no gap and one end each (I7)."""
    listed = await store.read(ListCheckpoints(SessionRef(SESSION)))
    head = await store.read(GetHead(SessionRef(SESSION)))
    assert head is not None
    ids = [row.id for row in listed]
    assert len(set(ids)) == len(ids)
    for newer, older in pairwise(listed):
        assert _number(newer.id) > _number(older.id)
        assert newer.parent is not None
        assert _number(older.id) <= _number(newer.parent) < _number(newer.id)
    for line in ledger.lines("committed"):
        assert _number(line.what) <= _number(head.checkpoint)
        assert await store.read(Load(SessionRef(SESSION), line.what)) is not None, f"{line} is lost"
    events = await _events(runner)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert isinstance(events[-1], FINAL)


async def check_answers(store: Store, ledger: Ledger) -> None:
    """Each question ends once, by whom it was accepted from (I3)."""
    decisions = {decision.id: decision for decision in await store.read(Audit(SessionRef(SESSION)))}
    accepted = Counter(line.what for line in ledger.lines("accepted"))
    for line in ledger.lines("accepted"):
        assert accepted[line.what] == 1, f"{line} was accepted twice"
        assert decisions[line.what].how == "answered"
        assert decisions[line.what].by == line.arguments, f"{line} was lost"


async def _portrait(store: Store, runner: Runner, program: Workload) -> Portrait:
    result = await runner.recover(SESSION)
    assert result.status == "done"
    return Portrait(
        state=program.show(result),
        questions=sorted((asked.id, asked.value, asked.how) for asked in await store.read(Audit(SessionRef(SESSION)))),
        history=[(p.source, p.step, _next(p), len(p.interrupts)) for p in await runner.history(SESSION)],
        events=Counter(_shown(event) for event in await _events(runner)),
    )


def _next(point: Checkpoint) -> tuple[str, ...] | int:
    """What runs next; at a pause only how many, since whose answer came first differs from run to run."""
    return len(point.next) if point.source in ("interrupt", "resume") else point.next


async def _events(runner: Runner) -> list[Event]:
    return [event async for event in runner.attach(SESSION)]


def _shown(event: Event) -> str:
    kind = type(event).__name__
    match event:
        case NodeEnd():
            return f"{kind} {event.address} {event.node}"
        case CheckpointSaved():
            return f"{kind} {event.address} {event.source} {event.step}"
        case Custom():
            return f"{kind} {event.address} {event.data}"
        case MessageEvent():
            return f"{kind} {event.address} {event.message.id} {event.message.text}"
        case ToolResult():
            return f"{kind} {event.address} {event.result}"
        case _:
            return f"{kind} {event.address}"


def _number(checkpoint: str) -> int:
    return int(checkpoint.rpartition(".")[2])


def pids(lines: list[Line]) -> set[int]:
    """The processes that wrote these lines."""
    return {line.pid for line in lines}
