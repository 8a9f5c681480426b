"""Several processes on one file, killed, forked and racing; and a disk that is full."""

import asyncio
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from adjourn.errors import StoreUnavailable
from adjourn.stores import SessionRef, SQLiteStore
from adjourn.stores.kit import Audit, Commit, GetHead, ListSessions
from adjourn.testing.suite.bench import Drive, paused, refused

ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.stores.work", *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def acknowledged(child: subprocess.Popen[str], lines: int) -> dict[str, int]:
    """Let a writing child go on for so many lines, kill it, and read what it was told before it died."""
    assert child.stdout is not None
    said = [child.stdout.readline() for _ in range(lines)]
    time.sleep(random.random() / 200)  # anywhere between two lines
    child.kill()
    rest, _ = child.communicate()
    # The last line may have been cut in the middle.
    numbers = [line.split() for line in [*said, *rest.splitlines(keepends=True)] if line.endswith("\n")]
    return {name: int(number) for name, number in numbers}


@pytest.mark.parametrize("sessions", [1, 5])
async def test_what_was_acknowledged_survives_a_kill(path: Path, sessions: int):  # rule C8
    store = SQLiteStore(path)
    for kill in range(6):
        told = acknowledged(start("write", path, str(sessions)), lines=10 + 30 * kill)
        assert told
        for name, number in told.items():
            run = Drive(store, name)
            head = int((await run.head()).checkpoint.removeprefix("b."))
            assert head >= number
            assert (await run.loaded()).rows == tuple(b"b%d" % n for n in range(_full(head), head + 1))
            if head:  # a child may be killed before its second commit to this session
                assert (await run.loaded("b.1")).rows in ((b"b0", b"b1"), (b"b1",))
        await store.close()


def _full(head: int) -> int:
    """The last full record up to `head`, as the child writes them."""
    return (head - 1) // 50 * 50 + 1 if head else 0


async def test_of_twenty_processes_that_answer_one_question_one_wins(path: Path):  # rule R3
    rounds = 10
    store = SQLiteStore(path)
    await paused(store, *(f"q{n}" for n in range(rounds)))
    children = [start("answer", path, f"p{n}") for n in range(20)]
    try:
        assert all(_line(child) == "ready" for child in children)
        for n in range(rounds):
            for child in random.sample(children, len(children)):
                assert child.stdin is not None
                child.stdin.write(f"q{n}\n")
                child.stdin.flush()
            said = [_line(child) for child in children]
            (winner,) = (line.removeprefix("won ") for line in said if line.startswith("won"))
            assert said.count(f"lost to {winner}") == 19
            assert (await store.read(Audit(SessionRef("s"))))[n].value == winner.encode()
    finally:
        for child in children:
            child.communicate("")
    assert {child.returncode for child in children} == {0}
    await store.close()


def _line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


async def test_stores_that_open_a_new_file_at_once_agree_on_it(tmp_path: Path):  # rule C8
    for n in range(20):
        stores = [SQLiteStore(tmp_path / f"{n}.db") for _ in range(6)]
        calls = [
            Drive(store, f"s{m}").start() if m % 2 else store.read(GetHead(SessionRef("s")))
            for m, store in enumerate(stores)
        ]
        await asyncio.gather(*calls)
        assert len(await stores[0].read(ListSessions())) == 3
        for store in stores:
            await store.close()


async def test_processes_that_write_at_once_all_get_their_turn(path: Path):
    child = start("write", path, "2")
    store = SQLiteStore(path)
    run = Drive(store, "mine")
    await run.start()
    await run.steps(100)
    told = acknowledged(child, lines=50)
    assert (await run.head()).checkpoint == "b.100"
    for name, number in told.items():
        assert int((await Drive(store, name).head()).checkpoint.removeprefix("b.")) >= number
    await store.close()


def test_a_store_can_be_used_after_a_fork(path: Path):
    program = """
import asyncio, os, sys
from adjourn.stores import SQLiteStore
from adjourn.testing.suite.bench import Drive

store = SQLiteStore(sys.argv[1])
run = Drive(store, "parent")
asyncio.run(run.start())
asyncio.run(run.head())
child = os.fork()
if not child:
    mine = Drive(store, "child")
    asyncio.run(mine.start())
    asyncio.run(mine.steps(5))
    assert asyncio.run(run.head()).owner == "ann"
    asyncio.run(store.close())
    os._exit(0)
asyncio.run(run.steps(50))
assert os.waitpid(child, 0)[1] == 0
assert asyncio.run(Drive(store, "child").head()).checkpoint == "b.5"
asyncio.run(run.steps(5))
assert asyncio.run(run.head()).checkpoint == "b.55"
"""
    # Python 3.12 and later warn of every fork of a process with threads; that is what is tested here.
    command = [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", program, str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], capture_output=True, text=True, check=False
    ).returncode
    if mounted:
        pytest.skip("a small disk needs the right to mount a tmpfs: run as root")
    yield disk
    subprocess.run(["umount", disk], check=True)


async def _use_up(run: Drive) -> None:
    """Write until what is left of the log and the database is used up."""
    while True:
        await run.commit(run.next(b"x" * 50_000))


async def test_a_full_disk_is_told_and_gone_on_from(small_disk: Path):  # rule C11
    store = SQLiteStore(small_disk / "store.db")
    run = Drive(store)
    await run.start()
    await run.steps(5)
    ballast = small_disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (65536, 1024, 1):
            try:
                while True:
                    file.write(os.urandom(size))
            except OSError:
                continue
    error = await refused(StoreUnavailable, _use_up(run))
    assert "its disk is full; free some space" in str(error)
    before = await run.loaded()
    assert before.point == run.at
    many = [Drive(store, f"t{n}").start() for n in range(3)]
    await asyncio.gather(*many, return_exceptions=True)
    await refused(
        StoreUnavailable, store.write(Commit(lease=run.held, writes=(run.next(b"x" * 50_000),), after=run.checkpoint))
    )
    ballast.unlink()
    await run.commit(run.next(b"x" * 50_000))
    assert (await run.loaded()).rows == (*before.rows, b"x" * 50_000)
    await store.close()
