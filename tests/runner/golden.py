"""Sessions as a released version has stored them, and the programs that go on with them.

`python -m tests.runner.golden` writes `tests/data/format_<n>/` for the format of this version. A file that a release
has written is never written again: what it holds is in people's databases.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import msgspec

from adjourn import Message, Runner, current, interrupt, once, set_session_value, workflow
from adjourn._engine.record import FORMAT
from adjourn.graph import START, Command, MessagesState, StateGraph, append
from adjourn.stores import Header, MemoryStore, Question, SessionRef, Store, Write
from adjourn.stores.kit import Claim, Commit
from adjourn.testing import FakeClock, count_ids

from .stores import WatchedStore

DATA = Path(__file__).parent.parent / "data"
FORMATS = (5,)
SESSION = "golden"

VALUES: dict[str, Any] = {
    "when": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    "price": Decimal("19.90"),
    "pair": (1, "two"),
    "raw": b"\x00\xff",
    "tags": {"a", "b"},
    "big": 2**70,
    "looks like a tag": {"$t": "tuple", "v": [1]},
}

charged: list[str] = []
"""The cards that were charged in this process."""


@once
async def charge(card: str, cents: int) -> str:
    charged.append(card)
    return f"receipt for {cents}"


class Order(MessagesState):
    log: Annotated[list[str], append]
    seen: dict[str, Any]
    approved: bool


async def begin(state: Mapping[str, Any]) -> dict[str, Any]:
    set_session_value("who", "ann")
    current().emit({"at": VALUES["when"]})
    receipt = await charge("outer", 100)
    return {"log": [receipt], "seen": VALUES, "messages": [Message.user("a ticket"), Message.assistant("one moment")]}


async def note(state: Mapping[str, Any]) -> dict[str, Any]:
    return {"log": ["left"]}


async def pack(state: Mapping[str, Any]) -> dict[str, Any]:
    return {"log": [await charge("packing", 50)], "metadata": {"packed": VALUES["when"]}}


def spread(state: Mapping[str, Any]) -> list[Command]:
    return [Command(update={"user_input": name}, goto="each") for name in ("x", "y")]


async def each(state: Mapping[str, Any]) -> dict[str, Any]:
    return {"log": [f"each {state['user_input']}"]}


async def check(state: Mapping[str, Any]) -> dict[str, Any]:
    receipt = await charge("inner", 200)
    approved = interrupt({"receipt": receipt, "price": VALUES["price"]}, key="check", prompt="Ok?", schema=bool)
    return {"approved": approved, "log": [receipt]}


async def close(state: Mapping[str, Any]) -> dict[str, Any]:
    return {"log": [f"closed for {current().values['who']}"]}


def order() -> Any:  # Any: a program, of whatever kind
    """A graph whose stored pause has a join half filled, a nested graph, a fan-out and kept calls."""
    inner = StateGraph(Order, name="inner").add_node("check", check).add_edge(START, "check").compile()
    return (
        StateGraph(Order, name="order")
        .add_node("begin", begin)
        .add_node("note", note)
        .add_node("pack", pack)
        .add_node("spread", spread, destinations=["each"], thread=False)
        .add_node("each", each)
        .add_subgraph("inner", inner)
        .add_node("close", close)
        .add_edge(START, "begin")
        .add_edge(START, "note")
        .add_edge("begin", "pack")
        .add_edge("pack", "inner")
        .add_edge("pack", "spread")
        .add_edge(["note", "inner"], "close")
        .compile()
    )


@workflow
async def trip(to: str) -> dict[str, Any]:
    current().values["to"] = to
    receipt = await charge("trip", 300)
    seat = interrupt("Which seat?", key="seat", schema=int)
    return {"to": current().values["to"], "receipt": receipt, "seat": seat}


PROGRAMS: dict[str, tuple[Any, Any]] = {
    "order": (order(), {"user_input": "a ticket"}),
    "forked": (order(), {"user_input": "a ticket"}),
    "trip": (trip, "Rome"),
}
"""The program of each stored session, with the input that it began with."""


async def harvest(name: str) -> list[Write]:
    """What the session of a program writes until it waits; and, for "forked", on a branch that begins there."""
    program, given = PROGRAMS[name]
    clock = FakeClock()
    store = WatchedStore(MemoryStore(clock))
    runner = Runner(program, store=store, clock=clock, new_id=count_ids())
    assert (await runner.run(given, session_id=SESSION)).status == "interrupted"
    if name == "forked":
        await runner.fork(SESSION, to=SESSION)
        store.writes.pop()  # It gives the lease back, and says nothing.
    return store.writes


async def plant(store: Store, writes: Sequence[Write], session: str = SESSION) -> None:
    """Put a session into a store as it was written."""
    first, *others = writes
    lease = (await store.write(Claim(ref=SessionRef(session), owner="planter", ttl=30, after=None, write=first))).lease
    assert lease is not None
    head = first.id
    for write in others:
        await store.write(Commit(lease=lease, writes=(write,), after=head, release=write is others[-1]))
        head = write.id


def stored(format: int, name: str) -> list[Write]:
    """The session of a program as the version with that format stored it."""
    rows = msgspec.json.decode((DATA / f"format_{format}" / f"{name}.json").read_bytes(), type=list[dict[str, Any]])
    return [_write_of(row) for row in rows]


def _write_of(row: dict[str, Any]) -> Write:
    asks = tuple(Question(**{**ask, "body": ask["body"].encode()}) for ask in row["asks"])
    header = msgspec.convert(row["header"], Header)
    plain = {key: row[key] for key in ("branch", "number", "parent", "full", "status", "event_count")}
    return Write(**plain, header=header, asks=asks, body=row["body"].encode(), events=row["events"].encode())


def _row_of(write: Write) -> dict[str, Any]:
    assert not write.takes
    assert not write.closes
    plain = {key: getattr(write, key) for key in ("branch", "number", "parent", "full", "status")}
    return {
        **plain,
        "header": write.header,
        "asks": [{"id": ask.id, "expires": ask.expires, "body": ask.body.decode()} for ask in write.asks],
        "event_count": write.event_count,
        "events": write.events.decode(),
        "body": write.body.decode(),
    }


def _write_files() -> None:
    folder = DATA / f"format_{FORMAT}"
    folder.mkdir(parents=True, exist_ok=True)
    for name in PROGRAMS:
        rows = [_row_of(write) for write in asyncio.run(harvest(name))]
        (folder / f"{name}.json").write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=1) + b"\n")


if __name__ == "__main__":
    _write_files()
