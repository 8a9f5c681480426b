"""A store file with sessions of every kind, ways to damage it, and everything that people do with a store.

The file is damaged in place: `Template.put_back` writes the undamaged rows again, so that thousands of damaged stores
cost one file.
"""

# Statements are made of the names of our tables and columns.
# ruff: noqa: S608

from __future__ import annotations

import asyncio
import json
import random
import signal
import sqlite3
import traceback
from binascii import crc32
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NamedTuple, cast

from adjourn import (
    AdjournError,
    ChatModelAgent,
    ParallelAgent,
    Runner,
    Sessions,
    ToolCall,
    current,
    interrupt,
    once,
    set_session_value,
    tool,
    workflow,
)
from adjourn.graph import START, Command, MessagesState, StateGraph, append
from adjourn.models import ModelRequest
from adjourn.stores import SessionRef, SQLiteStore
from adjourn.stores.kit import DeleteIdle, GetHead, ListDue, ListQuestions, ListSessions
from adjourn.testing import FunctionModel

# The programs. Their code takes whatever it is given, so that an error which passes through it is ours all the same.


@once
async def charge(cents: int) -> str:
    return f"receipt {cents}"


@tool(approval=True)
async def pay(cents: int) -> str:
    """Pay an amount."""
    return await charge(cents)


@tool
async def look(what: str) -> str:
    """Look something up."""
    set_session_value("looked", what)
    return f"about {what}"


def _answer(request: ModelRequest) -> Any:
    last = request.messages[-1]
    if last.role == "user":
        return [ToolCall(id="c1", name="look", arguments={"what": "x"})]
    if last.role == "tool" and last.name == "look":
        return [
            ToolCall(id="c2", name="pay", arguments={"cents": 5}),
            ToolCall(id="c3", name="pay", arguments={"cents": 6}),
        ]
    return "all done"


class Work(MessagesState):
    log: Annotated[list[Any], append]
    seen: Any


async def begin(state: Mapping[str, Any]) -> dict[str, Any]:
    current().emit({"at": "begin"})
    return {"log": [await charge(1)], "seen": {"pair": (1, "two"), "raw": b"\x00"}}


def spread(state: Mapping[str, Any]) -> list[Command]:
    return [Command(update={"user_input": name}, goto="each") for name in ("x", "y")]


async def each(state: Mapping[str, Any]) -> dict[str, Any]:
    return {"log": [await charge(2)]}


async def check(state: Mapping[str, Any]) -> dict[str, Any]:
    return {"seen": interrupt({"price": 1}, key="check", prompt="Ok?", schema=bool), "log": [await charge(3)]}


def turn(state: Mapping[str, Any]) -> str:
    return "each" if state.get("seen") == "never" else "close"


async def close(state: Mapping[str, Any]) -> dict[str, Any]:
    return {"log": ["closed"]}


@workflow
async def ask_twice(to: Any) -> Any:
    current().values["to"] = to
    receipt = await charge(4)
    seat = interrupt("Which seat?", key="seat", schema=int)
    return [receipt, seat, interrupt("Whose name?", key="name", expires_in=1e9)]


FAILS = {"now": True}


@workflow
async def fail_late(to: Any) -> Any:
    await charge(5)
    if FAILS["now"]:
        raise RuntimeError("as planned")
    return "mended"


@workflow
async def two_layers(to: Any) -> Any:
    return await current().run(ask_twice, to, key="inner")


def _graph() -> Any:  # Any: a program, of whatever kind
    inner = StateGraph(Work, name="inner").add_node("check", check).add_edge(START, "check").compile()
    return (
        StateGraph(Work, name="work")
        .add_node("begin", begin)
        .add_node("spread", spread, destinations=["each"], thread=False)
        .add_node("each", each)
        .add_subgraph("inner", inner)
        .add_node("close", close)
        .add_edge(START, "begin")
        .add_edge("begin", "spread")
        .add_edge("begin", "inner")
        .add_conditional_edges("inner", turn, {"each": "each", "close": "close"})
        .compile()
    )


def _agent(name: str) -> ChatModelAgent:
    return ChatModelAgent(name=name, model=FunctionModel(_answer), tools=[look, pay])


PROGRAMS: dict[str, Any] = {
    "agent": _agent("agent"),
    "pair": ParallelAgent(name="pair", agents=[_agent("left"), _agent("right")]),
    "graph": _graph(),
    "flow": ask_twice,
    "nested": two_layers,
    "failing": fail_late,
}
INPUTS: dict[str, Any] = {"graph": {"user_input": "a ticket"}}

SESSIONS: dict[str, str] = {
    "paused agent": "agent",
    "done agent": "agent",
    "answered agent": "agent",
    "paused pair": "pair",
    "paused graph": "graph",
    "done graph": "graph",
    "branched graph": "graph",
    "forked graph": "graph",
    "paused flow": "flow",
    "half flow": "flow",
    "paused nested": "nested",
    "failed": "failing",
    "queued agent": "agent",
    "queued flow": "flow",
}
"""Every session of the store, with the name of its program."""

SOUND = "sound"
"""A session that is never damaged."""


async def fill(path: Path) -> None:
    """Make the store."""
    store = SQLiteStore(path, synchronous="NORMAL")
    runners = {name: Runner(program, store=store) for name, program in PROGRAMS.items()}
    for session, name in {**SESSIONS, SOUND: "flow"}.items():
        if not session.startswith(("forked", "queued")):
            run = runners[name].run(INPUTS.get(name, "go"), session_id=session, user_id="ann")
            try:
                await run
            except RuntimeError:
                assert session == "failed"
    ids = [asked.id for asked in await runners["agent"].pending("done agent")]
    await runners["agent"].resume("done agent", dict.fromkeys(ids, True), by="ann")
    await runners["agent"].answer("answered agent", {ids[0]: True}, by="bob")
    await runners["graph"].resume("done graph", {"check": True})
    await runners["graph"].fork("branched graph", to="branched graph")
    await runners["graph"].resume("branched graph", {"check": False})
    await runners["graph"].fork("paused graph", to="forked graph")
    await runners["agent"].submit("and more", session_id="queued agent", user_id="ann")
    await runners["flow"].submit("and more", session_id="queued flow", user_id="ann")
    await runners["flow"].submit("and yet more", session_id="queued flow", user_id="ann")
    await runners["flow"].resume("half flow", {"seat": 3}, by="ann")
    await store.close()


# Damage

TABLES = ("sessions", "branches", "records", "questions", "inbox", "inputs")
"""What is damaged; the rows of all others are put back, too."""
EXTREMES = (0, -1, 1, 2**31, 2**53, 2**62, 2**63 - 1, -(2**63), 1e308, -1e308, float("inf"), 1.5)
ODD: tuple[Any, ...] = (
    *(None, True, -1, 0, 10**6, 10**18, 1.5, 1e300, "", "x", "run", "node:x", "~", "done", "waiting", "\x00", "²"),
    *([], ["x"], [["x", {}]], [[]], {}, {"k": "u"}, {"k": "g"}, {"x": 1}, {"$t": "entry"}, {"$t": "tuple", "v": [1]}),
    *({"$t": "message", "role": "user", "content": "x"}, {"$t": "x"}, [None], {"": None}, "agent:agent;tool:pay:c2"),
)
SEAL = len(b'{"crc":"00000000",')


class Cell(NamedTuple):
    """One value of the file."""

    table: str
    rowid: str
    column: str
    value: Any


class Template:
    """The rows of an undamaged store, and the file in which they are damaged."""

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None, timeout=30)
        self.connection.execute("PRAGMA synchronous = OFF")
        self.names = dict(self.connection.execute("SELECT no, id FROM sessions"))
        self.hit: list[str] = []
        """The sessions that were damaged last."""
        self.rows: dict[str, list[tuple[Any, ...]]] = {}
        self.columns: dict[str, list[str]] = {}
        self.keys: dict[str, list[str]] = {}
        self.sound = self.connection.execute("SELECT no FROM sessions WHERE id = ?", (SOUND,)).fetchone()[0]
        for (table,) in self.connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            described = self.connection.execute(f"PRAGMA table_info({table})").fetchall()
            self.columns[table] = [each[1] for each in described]
            self.keys[table] = [each[1] for each in described if each[5]]
            self.rows[table] = self.connection.execute(f"SELECT * FROM {table}").fetchall()
        self.askers = {row[0]: row[1] for row in self.rows["questions"]}
        """The session of each question."""

    def put_back(self) -> None:
        """Write the undamaged rows again, in the transaction of the damage that follows."""
        self.connection.execute("BEGIN IMMEDIATE")
        for table, rows in self.rows.items():
            self.connection.execute(f"DELETE FROM {table}")
            marks = ", ".join("?" * len(self.columns[table]))
            self.connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)

    def damage(self, choice: random.Random) -> str:
        """Put everything back, damage something, and say what."""
        self.put_back()
        self.hit = []
        try:
            while True:
                try:
                    return "; ".join(self._one(choice) for _ in range(choice.choice((1, 1, 1, 2, 3))))
                except sqlite3.IntegrityError:
                    continue  # The schema does not take it.
        finally:
            self.connection.execute("COMMIT")

    def _one(self, choice: random.Random) -> str:
        kind = choice.choice(KINDS)
        return f"{kind.__name__}: {kind(self, choice)}"

    def pick(self, choice: random.Random, *wanted: str) -> tuple[str, tuple[Any, ...]]:
        """Return a table and a row of it that is not the sound session's."""
        while True:
            table = choice.choice(wanted or TABLES)
            row = choice.choice(self.rows[table])
            owner = self._owner(table, row)
            if owner != self.sound:
                self.hit.append(self.names[owner])
                return table, row

    def _owner(self, table: str, row: tuple[Any, ...]) -> int:
        match table:
            case "records" | "branches":
                return row[0] >> 28
            case "questions" | "inputs":
                return row[1]
            case "inbox":
                return self.askers[row[self.columns["inbox"].index("no")]]
            case _:
                return row[0]

    def cell(self, choice: random.Random, kinds: Sequence[type] = (object,), *tables: str) -> Cell:
        """Return a cell whose value is of one of these types."""
        while True:
            table, row = self.pick(choice, *tables)
            place = choice.randrange(len(row))
            if isinstance(row[place], tuple(kinds)):
                return Cell(table, self.where(table, row), self.columns[table][place], row[place])

    def where(self, table: str, row: tuple[Any, ...]) -> str:
        """Return the condition that names a row."""
        values = dict(zip(self.columns[table], row, strict=True))
        return " AND ".join(f"{key} = {_quoted(values[key])}" for key in self.keys[table])

    def set(self, cell: Cell, value: Any) -> str:
        """Write another value into a cell."""
        self.connection.execute(f"UPDATE {cell.table} SET {cell.column} = ? WHERE {cell.rowid}", (value,))
        return f"{cell.table}.{cell.column} ({cell.rowid}) from {cell.value!r:.300} to {value!r:.5000}"


def _quoted(value: str | float) -> str:
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)


def flip(template: Template, choice: random.Random) -> str:
    """Flip one bit."""
    cell = template.cell(choice, (bytes, str))
    data = bytearray(cell.value if isinstance(cell.value, bytes) else cell.value.encode())
    if data:
        data[choice.randrange(len(data))] ^= 1 << choice.randrange(8)
    if isinstance(cell.value, bytes):
        return template.set(cell, bytes(data))
    return _set_text(template, cell, bytes(data))


def _set_text(template: Template, cell: Cell, data: bytes) -> str:
    statement = f"UPDATE {cell.table} SET {cell.column} = CAST(? AS TEXT) WHERE {cell.rowid}"
    template.connection.execute(statement, (data,))
    return f"{cell.table}.{cell.column} ({cell.rowid}) from {cell.value!r} to text {data!r}"


def swap_type(template: Template, choice: random.Random) -> str:
    """Put a value of another type."""
    cell = template.cell(choice)
    others: tuple[Any, ...] = (None, 7, -3, 2.5, "text", "", b"blob", b"", "12", b"\xff", "running", "expired", "{}")
    return template.set(cell, choice.choice(others))


def extreme(template: Template, choice: random.Random) -> str:
    """Put a number at the edge of what can be stored."""
    return template.set(template.cell(choice, (int, float)), choice.choice(EXTREMES))


def near(template: Template, choice: random.Random) -> str:
    """Put a number that is a little off."""
    cell = template.cell(choice, (int, float))
    return template.set(cell, cell.value + choice.choice((-2, -1, 1, 2, 100)))


def truncate(template: Template, choice: random.Random) -> str:
    """Cut a value short."""
    cell = template.cell(choice, (bytes, str))
    return template.set(cell, cell.value[: choice.randrange(len(cell.value) + 1)])


def forge(template: Template, choice: random.Random) -> str:
    """Change JSON at one place; its check sum is right."""
    while True:
        cell = template.cell(choice, (bytes,), "records", "questions", "inputs")
        try:
            data: Any = json.loads(cell.value)
        except ValueError:
            continue
        if data and not isinstance(data, int | float | str):
            break
    sealed = "crc" in data
    if sealed:
        del data["crc"]
    for _ in range(choice.choice((1, 1, 2))):
        _mutate(data, choice)
    body = json.dumps(data).encode()
    return template.set(cell, _seal(body) if sealed else body)


def _seal(body: bytes) -> bytes:
    return b'{"crc":"%08x",' % crc32(body[1:]) + body[1:]


def _mutate(data: Any, choice: random.Random) -> None:
    """Replace, remove, rename or copy one place, chosen at random."""
    places: list[tuple[Any, Any]] = []

    def walk(at: Any) -> None:
        keys: list[Any] = []
        if isinstance(at, dict):
            keys = list(cast("dict[str, Any]", at))
        elif isinstance(at, list):
            keys = list(range(len(cast("list[Any]", at))))
        for key in keys:
            places.append((cast("Any", at), key))
            walk(cast("Any", at)[key])

    walk(data)
    if not places:
        return
    at, key = choice.choice(places)
    match choice.randrange(10):
        case 0:
            del at[key]
        case 1 if isinstance(key, str):
            at[choice.choice(("x", "", "~", "node:each:1", "^seen", "ask:x::1", "agent:left;~;node:x"))] = at.pop(key)
        case 2:
            other, name = choice.choice(places)
            if name in other if isinstance(other, dict) else name < len(other):
                at[key] = json.loads(json.dumps(other[name]))
        case _:
            at[key] = json.loads(json.dumps(choice.choice(ODD)))


def swap_cells(template: Template, choice: random.Random) -> str:
    """Put into a cell what another row of its column holds."""
    table, row = template.pick(choice)
    _, other = template.pick(choice, table)
    place = choice.randrange(1, len(row))
    column = template.columns[table][place]
    return template.set(Cell(table, template.where(table, row), column, row[place]), other[place])


def swap_rows(template: Template, choice: random.Random) -> str:
    """Put into one row all that another one holds, but for its key."""
    table, row = template.pick(choice, "records", "questions", "sessions", "inputs")
    _, other = template.pick(choice, table)
    first = {"sessions": 4, "records": 1, "questions": 3, "inputs": 3}[table]
    names = template.columns[table][first:]
    assignments = ", ".join(f"{name} = ?" for name in names)
    where = template.where(table, row)
    template.connection.execute(f"UPDATE {table} SET {assignments} WHERE {where}", other[first:])
    return f"{table} ({where}) holds what ({template.where(table, other)}) held"


def lose(template: Template, choice: random.Random) -> str:
    """Delete a row."""
    table, row = template.pick(choice)
    template.connection.execute(f"DELETE FROM {table} WHERE {template.where(table, row)}")
    return f"{table} ({template.where(table, row)})"


Kind = Callable[[Template, random.Random], str]
KINDS: tuple[Kind, ...] = (
    *(flip, swap_type, extreme, near, truncate, swap_cells, swap_rows, lose),
    *(forge, forge, forge, forge, forge, forge),
)


# What people do

Operation = Callable[[Runner, str], Awaitable[object]]


async def _open_ids(runner: Runner, session: str) -> list[str]:
    return [asked.id for asked in await runner.pending(session)]


async def _resume(runner: Runner, session: str) -> object:
    answers: dict[str, Any] = {"check": True, "seat": 1, "name": "x"}
    ids = await _open_ids(runner, session)
    if SESSIONS.get(session) in ("agent", "pair"):
        return await runner.resume(session, dict.fromkeys(ids, True))
    return await runner.resume(
        session, {each.key or each.id: answers.get(each.key or "", True) for each in await runner.pending(session)}
    )


async def _recover(runner: Runner, session: str) -> object:
    return await runner.recover(session)


async def _attach(runner: Runner, session: str) -> object:
    try:
        async with asyncio.timeout(0.1):  # Somebody may have the lease, and then it waits for that.
            return [event async for event in runner.attach(session)]
    except TimeoutError:
        return None


async def _run(runner: Runner, session: str) -> object:
    return await runner.run(INPUTS.get(SESSIONS[session], "again"), session_id=session, on_pending="abandon")


async def _withdraw(runner: Runner, session: str) -> object:
    return [await runner.withdraw(session, each.id) for each in await runner.inputs(session)]


async def _travel(runner: Runner, session: str) -> object:
    history = await runner.history(session)
    chosen = history[len(history) // 2] if history else await runner.checkpoint(session)
    return await runner.run(None, session_id=session, checkpoint_id=chosen.id)


async def _diff(runner: Runner, session: str) -> object:
    history = await runner.history(session)
    return await runner.diff(session, history[0].id, history[-1].id) if history else None


async def _subscribe(runner: Runner, session: str) -> object:
    seen: list[object] = []
    notices: AsyncGenerator[object] = runner.subscribe(report_open=True)
    try:
        async with asyncio.timeout(0.02):
            seen += [notice async for notice in notices]
    except TimeoutError:
        pass
    finally:
        await notices.aclose()
    return seen


async def _answer_all(runner: Runner, session: str) -> object:
    return await runner.answer(session, dict.fromkeys(await _open_ids(runner, session), True) or None)


async def _edit(runner: Runner, session: str) -> object:
    match SESSIONS[session]:
        case "graph":
            return await runner.edit(session, {"log": ["edited"]})
        case "agent" | "pair":
            return await runner.edit(session, {"messages": "more"})
        case _:
            return None


async def _state_below(runner: Runner, session: str) -> object:
    return await runner.state(session, at="runnable:work;node:inner")


async def _tree(runner: Runner, session: str) -> object:
    return str(await runner.tree(session))


LOOKS: dict[str, Operation] = {
    "status": lambda runner, session: runner.status(session),
    "sessions": lambda runner, session: runner.sessions(),
    "failed sessions": lambda runner, session: runner.sessions(status="failed"),
    "sessions of a user": lambda runner, session: runner.sessions(user_id="ann", limit=5),
    "pending": lambda runner, session: runner.pending(),
    "pending of one": lambda runner, session: runner.pending(session),
    "messages": lambda runner, session: runner.messages(session),
    "audit": lambda runner, session: runner.audit(session),
    "history": lambda runner, session: runner.history(session),
    "history without a program": lambda runner, session: Sessions(runner.store).history(session),
    "checkpoint": lambda runner, session: runner.checkpoint(session),
    "state": lambda runner, session: runner.state(session),
    "state without a program": lambda runner, session: Sessions(runner.store).state(session),
    "state below": _state_below,
    "tree": _tree,
    "diff": _diff,
    "due": lambda runner, session: runner.store.read(ListDue()),
    "inputs": lambda runner, session: runner.inputs(session),
    "subscribe": _subscribe,
    "attach": _attach,
}
"""What changes nothing."""

CHANGES: dict[str, Operation] = {
    "resume": _resume,
    "resume all": lambda runner, session: _awaited(runner.resume(session)),
    "recover": _recover,
    "run": _run,
    "travel": _travel,
    "answer": _answer_all,
    "submit": lambda runner, session: runner.submit("more", session_id=session, on_pending="abandon"),
    "advance": lambda runner, session: _awaited(runner.advance(session)),
    "withdraw": _withdraw,
    "cancel": lambda runner, session: runner.cancel(session),
    "edit": _edit,
    "fork": lambda runner, session: runner.fork(session, to="new fork"),
    "branch": lambda runner, session: runner.fork(session, to=session),
    "fork without a program": lambda runner, session: Sessions(runner.store).fork(session, to="new fork"),
    "prune": lambda runner, session: runner.prune(session, keep=1),
    "delete": lambda runner, session: runner.delete(session),
    "delete idle": lambda runner, session: runner.store.write(DeleteIdle(ttl=-1.0)),
    "new": lambda runner, session: _awaited(runner.run(INPUTS.get(SESSIONS[session], "go"), session_id="new")),
}
"""What writes."""


async def _awaited(run: Awaitable[object]) -> object:
    return await run


class Hang(BaseException):
    """An operation took too long."""


PATIENCE = 5
"""Seconds that an operation may take; all of them are through in a few milliseconds."""


@contextmanager
def impatiently() -> Generator[None]:
    """Cut short what takes too long, be it in the middle of a loop that never waits."""

    def cut(number: int, frame: FrameType | None) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, cut)
    signal.setitimer(signal.ITIMER_REAL, 2 * PATIENCE)  # what only waits is cut short by then, more gently
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


async def trouble(operation: Operation, runner: Runner, session: str) -> str | None:
    """Do something, and return what is wrong with how it went: it hung, or raised something that is not ours."""
    try:
        with impatiently():
            async with asyncio.timeout(PATIENCE):
                await operation(runner, session)
    except AdjournError:
        return None
    except (Hang, TimeoutError):
        return "it hangs: " + traceback.format_exc(limit=-6)
    except Exception as error:  # noqa: BLE001  # it is what the test looks for
        if session == "failed" and str(error) == "as planned":
            return None
        return f"{error!r}: " + traceback.format_exc(limit=-8)
    return None


async def sound_session_works(store: SQLiteStore) -> str | None:
    """Return what is wrong with a session that nobody damaged: it is listed, and waits for its answer."""
    listed = [head.session for head in await store.read(ListSessions())]
    asking = [asked.session for asked in await store.read(ListQuestions())]
    if SOUND not in listed or SOUND not in asking:
        return f"the sound session is listed in {listed}, and asks in {asking}"
    head = await store.read(GetHead(SessionRef(SOUND)))
    return None if head is not None and head.status == "waiting" else f"the sound session stands at {head}"
