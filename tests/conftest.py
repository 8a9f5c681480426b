"""What holds for every test, whatever it tests: settings, and a store of each kind for what concerns storage."""

import asyncio
import gc
import importlib
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator
from pathlib import Path
from typing import Any, Protocol, cast
from zlib import crc32

import pytest

from adjourn._hiding import known
from adjourn._values.secret import _from_environment  # pyright: ignore[reportPrivateUsage]  # to clean up
from adjourn.stores import MemoryStore, SQLiteStore, Store
from tests.effort import load_profile

# A suite that is started in the background ignores Ctrl-C, and so would the processes that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)


load_profile()

Buffer = Callable[[int], None]
"""Sets how many events a reader of a run holds in memory; what is above that waits in the store."""

# Children import the package hundreds of times, and workers every test: without bytecode each would compile it anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
PROOF = Path(__file__).parent / "proof"

# A disk makes every commit wait, and nothing that tests write has to outlive a power cut: it is written to memory if
# there is enough, by the processes that tests start, too. TMPDIR names another place.
MEMORY = Path("/dev/shm")
if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 2 * 1024**3:
    os.environ["TMPDIR"] = str(MEMORY)
    tempfile.tempdir = None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the choice of an event loop, and of a part of the tests."""
    parser.addoption("--uvloop", action="store_true", help="run everything on the event loops of uvloop")
    parser.addoption("--share", metavar="I/N", help="run the I-th of N parts of the tests, which their names decide")


def pytest_configure(config: pytest.Config) -> None:
    """Set the event loop for the tests and for everything that they start in this process."""
    if config.getoption("--uvloop"):
        asyncio.set_event_loop_policy(importlib.import_module("uvloop").EventLoopPolicy())  # pyright: ignore[reportDeprecated]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark everything in `tests/proof`, so that `make proof` can choose it, and keep one share of the tests."""
    for item in items:
        if PROOF in item.path.parents:
            item.add_marker("proof")
    if share := config.getoption("--share"):
        part, parts = map(int, share.split("/"))
        mine = {item: crc32(item.nodeid.encode()) % parts == part - 1 for item in items}
        config.hook.pytest_deselected(items=[item for item in items if not mine[item]])
        items[:] = [item for item in items if mine[item]]


def pytest_collection_finish() -> None:
    """Spare the garbage collector the modules and the thousands of tests that stay to the end."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Save what a worker has covered before it ends: xdist kills one that takes ten seconds, as on a busy machine."""
    coverage = sys.modules.get("coverage")
    measured = None if coverage is None else coverage.Coverage.current()
    if measured is not None and hasattr(session.config, "workerinput"):
        measured.stop()
        measured.save()


@pytest.fixture
def buffer(monkeypatch: pytest.MonkeyPatch) -> Buffer:
    """Let a test say how many events readers hold."""

    def limit(events: int) -> None:
        monkeypatch.setattr("adjourn.runner._reader.WAITING", events)

    return limit


@pytest.fixture(autouse=True)
def _no_secrets() -> Generator[None]:
    """Let the process forget the secrets of a test: what hides them counts, and may hold pieces of a stream back."""
    yield
    while _from_environment:
        known.remove(_from_environment.popitem()[1])
    if known.forms:
        gc.collect()  # One in a cycle would be known until then.


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """Make reports fit for the way from a parallel worker, which is UTF-8: what a test logs need not be."""
    return _sendable((yield))


def _sendable(part: Any) -> Any:
    if isinstance(part, str):
        return part.encode("utf-8", "backslashreplace").decode()
    if isinstance(part, dict):
        return {_sendable(key): _sendable(value) for key, value in cast("dict[Any, Any]", part).items()}
    if isinstance(part, list | tuple):
        return type(cast("list[Any]", part))(map(_sendable, cast("list[Any]", part)))
    return part


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep coverage out of the processes that a test starts: it has modules of its own."""
    monkeypatch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)


class MakeStore(Protocol):
    """Opens a fresh store, of the kind that the test runs over."""

    def __call__(self, clock: Callable[[], float] = time.time) -> Store: ...


@pytest.fixture(params=["memory", "sqlite"])
async def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MakeStore]:
    stores: list[Store] = []

    def make(clock: Callable[[], float] = time.time) -> Store:
        if request.param == "memory":
            stores.append(MemoryStore(clock=clock))
        else:
            stores.append(SQLiteStore(tmp_path / f"{len(stores)}.db", clock=clock))
        return stores[-1]

    yield make
    for store in stores:
        await store.close()


@pytest.fixture
def store(make_store: MakeStore) -> Store:
    return make_store()
