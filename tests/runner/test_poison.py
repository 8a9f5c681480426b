"""Stored bytes that are damaged, foreign, forged or too new."""

from __future__ import annotations

import json
import pickle  # noqa: TID251  # what an attacker would store
import random
import re
import sqlite3
import subprocess
import sys
import traceback
from binascii import crc32
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import msgspec
import pytest

from adjourn import AdjournError, Runner
from adjourn._engine import record
from adjourn.errors import CheckpointCorrupt, CheckpointTooNew, StateInvalid
from adjourn.stores import SessionRef, SQLiteStore, Store, Write
from adjourn.stores.kit import GetHead, ListCheckpoints

from . import golden
from .golden import PROGRAMS, SESSION, plant

REFUSALS = (CheckpointCorrupt, CheckpointTooNew)
ran: list[str] = []
"""What poisoned bytes have run in this process."""


def notice(what: str) -> None:
    ran.append(what)


class Canary:
    """What unpickling this would run is noticed."""

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return notice, ("pickle",)


CANARY_MODULE = "antigravity"
"""A module that poisoned bytes name, and that nothing else would import."""


class ImportWatch:
    """Notes modules that are looked for while stored bytes are read."""

    def __init__(self) -> None:
        self.wanted: list[str] = []

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        self.wanted.append(name)


@pytest.fixture(autouse=True)
def nothing_runs() -> Iterator[None]:
    """Watches, in every test, that no stored bytes import or run anything."""
    ran.clear()
    golden.charged.clear()
    watch = ImportWatch()
    sys.meta_path.insert(0, watch)
    yield
    sys.meta_path.remove(watch)
    assert [name for name in watch.wanted if name.startswith(CANARY_MODULE)] == []
    assert ran == []


def writes_of(name: str = "forked") -> list[Write]:
    return golden.stored(record.FORMAT, name)


def with_body(writes: Sequence[Write], body: bytes) -> list[Write]:
    """The same session, its last record replaced by these bytes."""
    return [*writes[:-1], msgspec.structs.replace(writes[-1], body=body)]


def sealed(body: bytes) -> bytes:
    """Bytes with a check sum that is right: forged, not damaged."""
    return b'{"crc":"%08x",' % crc32(body[1:]) + body[1:]


Read = Callable[[Runner], Awaitable[object]]
READS: dict[str, Read] = {
    "resume": lambda runner: _done(runner.resume(SESSION, {"check": True})),
    "resume all": lambda runner: _done(runner.resume(SESSION)),
    "recover": lambda runner: _done(runner.recover(SESSION)),
    "run": lambda runner: _done(runner.run({}, session_id=SESSION, on_pending="abandon")),
    "state": lambda runner: runner.state(SESSION),
    "checkpoint": lambda runner: runner.checkpoint(SESSION),
    "messages": lambda runner: runner.messages(SESSION),
    "fork": lambda runner: runner.fork(SESSION, to="other"),
    "edit": lambda runner: runner.edit(SESSION, {"log": ["x"]}),
}


async def _done(run: Awaitable[object]) -> object:
    return await run


async def refused(store: Store, kinds: tuple[type[Exception], ...] = REFUSALS) -> None:
    """Every way to the last record ends in one of these errors; nothing is written, and nothing runs."""
    before = await store.read(GetHead(SessionRef(SESSION)))
    for name, read in READS.items():
        runner = Runner(PROGRAMS["order"][0], store=store)  # each time a new one, which has nothing in memory
        with pytest.raises(kinds) as caught:
            await read(runner)
        assert str(caught.value), name
    assert await store.read(GetHead(SessionRef(SESSION))) == before
    assert golden.charged == []
    # What needs no record still works, so that an operator can see where it is.
    runner = Runner(PROGRAMS["order"][0], store=store)
    assert (await runner.status(SESSION)).status == "waiting"
    assert [asked.key for asked in await runner.pending(SESSION)] == ["check"]


# What is damaged

WHOLE = writes_of()[-1].body
PICKLE = pickle.dumps(Canary())

DAMAGED: dict[str, bytes] = {
    "nothing": b"",
    "a brace": b"{",
    "the half": WHOLE[: len(WHOLE) // 2],
    "all but one byte": WHOLE[:-1],
    "twice": WHOLE * 2,
    "more behind it": WHOLE + b" ",
    "zeros": bytes(1000),
    "noise": random.Random(1).randbytes(1000),
    "not UTF-8": WHOLE.replace(b"a ticket", b"a\xff\xfeicket"),
    "a lone surrogate": WHOLE.replace(b"a ticket", b"a \xed\xa0\x80ket"),
    "a letter of a value": WHOLE.replace(b"a ticket", b"b ticket"),
    "a letter of a name": WHOLE.replace(b"node:check", b"node:chess"),
    "null": b"null",
    "a list": b"[1,2,3]",
    "no check sum": b"{" + WHOLE[len(b'{"crc":"00000000",') :],
    "a pickle": PICKLE,
    "a deep list": b"[" * 100_000,
    "deep objects": b'{"a":' * 100_000,
    "deep in a sealed record": sealed(b'{"v":2,"full":true,"frames":{"a":{"k":"u","input":' + b"[" * 100_000),
    "another program's": writes_of("trip")[0].body[:-1] + b" }",
}


@pytest.mark.parametrize("name", DAMAGED)
async def test_damaged_bytes_are_corrupt_whoever_reads_them(store: Store, name: str):  # rule C10, failures 54
    await plant(store, with_body(writes_of(), DAMAGED[name]))
    await refused(store, (CheckpointCorrupt,))


async def test_every_flipped_bit_is_noticed(store: Store):  # rule C10, failures 54
    for place in range(0, len(WHOLE), 3):
        flipped = bytearray(WHOLE)
        flipped[place] ^= 1 << (place % 8)
        with pytest.raises(REFUSALS):
            record.decode(bytes(flipped))


async def test_every_truncation_is_noticed():  # rule C10, failures 54
    for size in range(len(WHOLE)):
        with pytest.raises(CheckpointCorrupt):
            record.decode(WHOLE[:size])


async def test_a_damaged_record_in_the_middle_is_noticed_and_what_lies_before_it_can_be_read(store: Store):
    writes = writes_of("order")
    place = max(number for number, write in enumerate(writes) if write.full)
    assert 0 < place < len(writes) - 1
    writes[place] = msgspec.structs.replace(writes[place], body=writes[place].body[:-5])
    await plant(store, writes)
    runner = Runner(PROGRAMS["order"][0], store=store)
    with pytest.raises(CheckpointCorrupt):
        await runner.state(SESSION)
    first = (await store.read(ListCheckpoints(SessionRef(SESSION))))[-1]
    assert (await runner.state(SESSION, checkpoint_id=first.id))["user_input"] == "a ticket"
    # From there it can go on, on a branch of its own.
    result = await runner.run(None, session_id=SESSION, checkpoint_id=first.id)
    assert [asked.key for asked in result.interrupts] == ["check"]


# What is forged: its check sum is right


def forged(change: Callable[[dict[str, Any]], None]) -> bytes:
    data = json.loads(WHOLE)
    del data["crc"]
    change(data)
    return sealed(json.dumps(data).encode())


def _put(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """Put a value at a path whose parts are divided by `/`."""

    def change(data: dict[str, Any]) -> None:
        *parts, last = path.split("/")
        for part in parts:
            data = data[part]
        data[last] = value

    return change


ROOT = "frames/runnable:order"
FORGED: dict[str, bytes] = {
    "a version below one": forged(_put("v", 0)),
    "a version that is read no more": forged(_put("v", 1)),
    "a version that is text": forged(_put("v", "2")),
    "no version": forged(lambda data: data.pop("v")),
    "a turn that is text": forged(_put("turn", "one")),
    "a number of 5000 digits": WHOLE.replace(b'"turn":1', b'"turn":1' + b"0" * 5000),
    "a value of 5000 digits": forged(_put(f"{ROOT}/set/seen", None)).replace(
        b'"seen": null', b'"seen": 1' + b"0" * 5000
    ),
    "a number out of range": forged(_put("v", 2)).replace(b'"turn": 1', b'"turn": 1e999'),
    "frames that are a list": forged(_put("frames", [])),
    "no frames": forged(_put("frames", {})),
    "a frame of an unknown kind": forged(_put(f"{ROOT}/k", "x")),
    "a tag that is no text": forged(_put(f"{ROOT}/set/seen", {"$t": 1, "v": 1})),
    "a tag without content": forged(_put(f"{ROOT}/set/seen", {"$t": "decimal"})),
    "a tag with wrong content": forged(_put(f"{ROOT}/set/seen", {"$t": "decimal", "v": "NaN"})),
    "bytes that are none": forged(_put(f"{ROOT}/set/seen", {"$t": "bytes", "v": "!"})),
    "messages that are none": forged(_put(f"{ROOT}/set/messages", [{"$t": "message", "role": 1}])),
    "a segment that is none": forged(_put(f"{ROOT};node:inner:x:y:z", {"k": "u"})),
}


def _resealed(body: bytes) -> bytes:
    return sealed(b"{" + re.sub(rb'^\{"crc":"[0-9a-f]{8}",', b"", body))


@pytest.mark.parametrize("name", FORGED)
async def test_forged_records_are_corrupt_whoever_reads_them(store: Store, name: str):  # rule C10, failures 54
    await plant(store, with_body(writes_of(), _resealed(FORGED[name])))
    await refused(store, (CheckpointCorrupt,))


@pytest.mark.parametrize("tag", [f"{CANARY_MODULE}.geohash", f"{CANARY_MODULE}:geohash"])
async def test_a_forged_class_is_one_that_is_gone(store: Store, tag: str):  # rules C10, S5, failures 54
    await plant(store, with_body(writes_of(), _resealed(forged(_put(f"{ROOT}/set/seen", {"$t": tag, "v": [1]})))))
    runner = Runner(PROGRAMS["order"][0], store=store)
    for call in (runner.resume(SESSION, {"check": True}), runner.recover(SESSION), runner.run({}, session_id=SESSION)):
        with pytest.raises(StateInvalid, match=r"State field 'seen': .*no class is registered"):
            await call
    assert golden.charged == []
    # It is shown as it is stored; nothing is imported for it.
    shown = (await runner.state(SESSION))["seen"]
    assert (shown.name, shown.data) == (tag, [1])


HARMLESS = {
    "lc": {"lc": 1, "type": "constructor", "id": [CANARY_MODULE, "geohash"], "kwargs": {"latitude": 1}},
    "py": {"py/object": f"{CANARY_MODULE}.geohash", "py/reduce": [{"py/function": f"{CANARY_MODULE}.geohash"}, [1]]},
    "class": {"__class__": "geohash", "__module__": CANARY_MODULE, "args": [1]},
    "yaml": f"!!python/object/apply:{CANARY_MODULE}.geohash [1]",
    "template": "{{ ''.__class__.__mro__ }} ${jndi:ldap://x} %(x)s {0.__class__}",
}


@pytest.mark.parametrize("name", HARMLESS)
async def test_constructor_envelopes_of_other_systems_are_data(store: Store, name: str):  # failures 54
    await plant(store, with_body(writes_of(), _resealed(forged(_put(f"{ROOT}/set/seen", {"x": HARMLESS[name]})))))
    runner = Runner(PROGRAMS["order"][0], store=store)
    assert (await runner.state(SESSION))["seen"] == {"x": HARMLESS[name]}
    assert (await runner.resume(SESSION, {"check": True})).state["seen"] == {"x": HARMLESS[name]}


async def test_what_others_write_never_makes_a_run_raise_anything_of_its_own(store: Store):  # rule C10, failures 54
    """Records with a right check sum and one place changed at random: whatever comes is an error of ours, or data."""
    source, choice = json.loads(WHOLE), random.Random(7)
    del source["crc"]
    for number in range(150):
        session = f"s{number}"
        data = {**json.loads(json.dumps(source)), "session": session}
        _mutate(data, choice)
        body = sealed(json.dumps(data).encode())
        await plant(store, with_body(writes_of(), body), session)
        runner = Runner(PROGRAMS["order"][0], store=store)
        for call in (runner.state(session), _done(runner.resume(session, {"check": True}))):
            error = await _error_of(call)
            # The program's own code may not like the data that it is given; ours has to.
            passed = {frame.filename for frame in traceback.extract_tb(error.__traceback__)} if error else set[str]()
            is_fine = error is None or isinstance(error, AdjournError) or golden.__file__ in passed
            assert is_fine, f"{error!r} after {body.decode()}"


async def _error_of(call: Awaitable[object]) -> Exception | None:
    try:
        await call
    except Exception as error:  # noqa: BLE001  # it is what the test looks at
        return error
    return None


def _mutate(data: Any, choice: random.Random) -> None:
    """Replace one place, chosen at random, by something of another kind."""
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
    at, key = choice.choice(places)
    others: list[Any] = [None, True, -1, 10**6, 1.5, "", "x", "run", [], ["x"], [["x", {}]], {}, {"k": "u"}, {"x": 1}]
    at[key] = choice.choice(others)


# What is newer


@pytest.mark.parametrize("newer", [record.FORMAT + 1, record.FORMAT + 2, 10**9])
@pytest.mark.parametrize("shape", ["as ours", "another shape", "another seal"])
async def test_a_newer_format_is_told_and_left_alone(store: Store, newer: int, shape: str):  # rule C10, failures 57
    shapes = {
        "as ours": forged(_put("v", newer)),
        "another shape": sealed(b'{"v":%d,"frames":[1,2],"more":{"x":null}}' % newer),
        "another seal": b'{"v":%d,"sha":"00","frames":{}}' % newer,
    }
    await plant(store, with_body(writes_of(), shapes[shape]))
    await refused(store, (CheckpointTooNew,))
    with pytest.raises(CheckpointTooNew) as caught:
        await Runner(PROGRAMS["order"][0], store=store).state(SESSION)
    assert (caught.value.version, caught.value.known) == (newer, record.FORMAT)


# What lies beside the records


async def test_events_that_refer_to_a_damaged_record_are_corrupt(store: Store):  # rule C10
    writes = writes_of("order")
    await plant(store, with_body(writes, writes[-1].body[:-1]))
    with pytest.raises(CheckpointCorrupt):
        await Runner(PROGRAMS["order"][0], store=store).attach(SESSION)


@pytest.mark.parametrize("body", [b"", b"[", b"[1]", b'[{"type":"nobody"}]', b"\xff", b"[" * 100_000, b'["\xff"]'])
async def test_damaged_events_are_corrupt(store: Store, body: bytes):  # rule C10
    writes = writes_of("order")
    await plant(store, [*writes[:-1], msgspec.structs.replace(writes[-1], events=body)])
    runner = Runner(PROGRAMS["order"][0], store=store)
    with pytest.raises(CheckpointCorrupt):
        await runner.attach(SESSION)
    # They only tell what happened: the session itself goes on.
    assert (await runner.resume(SESSION, {"check": True})).status == "done"


def with_row(writes: Sequence[Write], body: bytes) -> list[Write]:
    """The same session, its question's row replaced by these bytes."""
    return [
        msgspec.structs.replace(write, asks=tuple(msgspec.structs.replace(ask, body=body) for ask in write.asks))
        for write in writes
    ]


ROW = next(write.asks[0].body for write in writes_of("order") if write.asks)
ROWS: dict[str, bytes] = {
    "nothing": b"",
    "a brace": b"{",
    "a list": b"[1]",
    "an id that is none": sealed(b'{"id":1}'),
    "not UTF-8": b"\xff",
    "a letter of the prompt": ROW.replace(b"Ok?", b"No?"),
    "no check sum": b"{" + ROW[len(b'{"crc":"00000000",') :],
    "all but one byte": ROW[:-1],
    "a deep list": sealed(b'{"id":"x","info":' + b"[" * 100_000),
}


@pytest.mark.parametrize("name", ROWS)
async def test_a_damaged_question_is_corrupt(store: Store, name: str):  # rules C10, I12
    await plant(store, with_row(writes_of("order"), ROWS[name]))
    runner = Runner(PROGRAMS["order"][0], store=store)
    with pytest.raises(CheckpointCorrupt):
        await runner.pending(SESSION)
    with pytest.raises(CheckpointCorrupt):
        await runner.status(SESSION)
    # The engine would act on the same bytes.
    for read in (READS["resume"], READS["recover"], READS["run"], READS["state"], READS["fork"], READS["edit"]):
        with pytest.raises(CheckpointCorrupt):
            await read(Runner(PROGRAMS["order"][0], store=store))
    assert golden.charged == []


async def test_a_row_of_another_question_is_corrupt(store: Store):  # rules C10, I12
    forged = json.loads(ROW)
    del forged["crc"]
    forged["id"] = "runnable:other"
    await plant(store, with_row(writes_of("order"), sealed(json.dumps(forged).encode())))
    with pytest.raises(CheckpointCorrupt, match=r"'golden'.*check"):
        await Runner(PROGRAMS["order"][0], store=store).resume(SESSION, {"check": True})


# In a real file


async def spoiled(path: Path, column: str, value: Any) -> SQLiteStore:
    """A file with a session whose last row holds something else in one column."""
    store = SQLiteStore(path)
    await plant(store, writes_of("order" if column == "events" else "forked"))
    await store.close()
    statement = {
        "body": "UPDATE records SET body = ? WHERE key = (SELECT max(key) FROM records)",
        "header": "UPDATE records SET header = ? WHERE key = (SELECT max(key) FROM records)",
        "events": "UPDATE records SET events = ? WHERE key = (SELECT max(key) FROM records)",
    }[column]
    with sqlite3.connect(path) as file:
        file.execute(statement, (value,))
    file.close()
    return SQLiteStore(path)


BODIES = {"cut": WHOLE[:-1], "text": WHOLE.decode()[:-1], "empty": "", "int": 7, "float": 1.5, "pickle": PICKLE}


@pytest.mark.parametrize("value", BODIES.values(), ids=BODIES)
async def test_a_body_that_was_changed_in_the_file(tmp_path: Path, value: Any):  # rule C10
    store = await spoiled(tmp_path / "s.db", "body", value)
    runner = Runner(PROGRAMS["order"][0], store=store)
    for read in READS.values():
        with pytest.raises(REFUSALS):
            await read(runner)
    await store.close()


@pytest.mark.parametrize("value", [b"", b"[]", b'{"step":"x"}', "text", 7, b"\xff", b'{"metadata":' + b"[" * 100_000])
async def test_a_header_that_was_changed_in_the_file(tmp_path: Path, value: Any):  # rule C10
    store = await spoiled(tmp_path / "s.db", "header", value)
    runner = Runner(PROGRAMS["order"][0], store=store)
    with pytest.raises(CheckpointCorrupt) as caught:
        await runner.checkpoint(SESSION)
    assert caught.value.session_id == SESSION
    # Lists show the others, and say so.
    tree, history = await runner.tree(SESSION), await runner.history(SESSION)
    (damaged,) = [row.id for _, row in tree if row.damaged]
    assert f"{damaged}  damaged" in str(tree)
    assert [point.id for point in history] == [
        row.id for row in await store.read(ListCheckpoints(SessionRef(SESSION)))
    ][1:]
    assert (await runner.resume(SESSION, {"check": True})).status == "done"
    await store.close()


@pytest.mark.parametrize("value", ["text", 7, 1.5])
async def test_events_that_were_changed_in_the_file(tmp_path: Path, value: Any):  # rule C10
    store = await spoiled(tmp_path / "s.db", "events", value)
    with pytest.raises(CheckpointCorrupt):
        await Runner(PROGRAMS["order"][0], store=store).attach(SESSION)
    await store.close()


async def test_a_lost_row_is_corrupt(tmp_path: Path):  # rule C10
    store = SQLiteStore(tmp_path / "s.db")
    await plant(store, writes_of("trip"))
    await store.close()
    with sqlite3.connect(store.path) as file:
        file.execute("DELETE FROM records WHERE key = (SELECT max(key) FROM records)")
    file.close()
    with pytest.raises(CheckpointCorrupt):
        await Runner(PROGRAMS["trip"][0], store=store).recover(SESSION)
    await store.close()


# In a program that raised the recursion limit

DEEP = """
import asyncio, sys
sys.setrecursionlimit(10**7)
from adjourn.errors import CheckpointCorrupt
from adjourn.stores import EventBatch, Header
from adjourn.sessions import _log as logged
from adjourn._engine import record
from adjourn.stores.kit.rows import decode_header
deep = b"[" * 3_000_000
for read in (
    lambda: record.decode(b'{"v":2,"full":true,"frames":{"a":{"k":"u","input":' + deep),
    lambda: record.decode(b'{"v":2,"x":' + deep),
    lambda: logged.read_events(EventBatch(id="b.0", header=Header(), first=1, count=1, body=deep)),
    lambda: logged.read_events(
        EventBatch(id="b.0", header=Header(), first=1, count=1, body=b'[{"type":"custom","data":' + deep)
    ),
    lambda: logged.read_question(b'{"id":"x","info":' + deep),
    lambda: decode_header(b'{"metadata":{"x":' + deep),
):
    try:
        read()
    except CheckpointCorrupt:
        print("refused", end=" ")
"""


def test_deep_bytes_do_not_crash_a_program_that_raised_the_recursion_limit():  # rule C10, failures 54
    # In a process of its own: a stack that overflows takes the process with it.
    done = subprocess.run([sys.executable, "-c", DEEP], capture_output=True, text=True, check=False, timeout=600)
    assert (done.returncode, done.stdout.split()) == (0, ["refused"] * 6), done.stderr


def test_ordinary_depth_is_not_refused_under_a_raised_limit():
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        assert record.decode(WHOLE).full
    finally:
        sys.setrecursionlimit(limit)
