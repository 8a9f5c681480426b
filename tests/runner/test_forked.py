"""The child of a fork: the runs of its parent are not its own, and it can use the store itself."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")

PROGRAM = """
import asyncio, contextvars, os, sys, threading, traceback
from typing import Any, TypedDict
from adjourn import once
from adjourn.errors import Conflict
from adjourn.graph import START, StateGraph
from adjourn.stores import MemoryStore, SQLiteStore

store = SQLiteStore(sys.argv[2]) if sys.argv[1] == "sqlite" else MemoryStore()
where = sys.argv[3]
made = []

@once
def charge(who: str) -> str:
    made.append(who)
    return who

async def quick(state: Any) -> Any:
    return {"n": 1}

class State(TypedDict):
    n: int

other = StateGraph(State, name="other").add_node("quick", quick).add_edge(START, "quick").compile(store=store)

def in_child() -> None:
    try:
        charge("child")  # in the context of the run: refused before its effect
    except Conflict as error:
        assert "parent" in str(error) or "ended" in str(error), error
    else:
        raise AssertionError("the child was let into the run of its parent")
    assert made == []
    # Sync code of its own, outside of the run.
    contextvars.Context().run(use_the_store)

def use_the_store() -> None:
    def work() -> None:
        status = other.status_sync("s") if sys.argv[1] == "sqlite" else None
        assert status is None or (status.status == "running" and "this process" not in status.owner), status
        assert other.run_sync({}, session_id="of the child").state["n"] == 1
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

def fork() -> None:
    child = os.fork()
    if not child:
        code = 1
        try:
            in_child()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0

def sync_node(state: Any) -> Any:
    fork()
    return {"n": len(charge("parent"))}

async def async_node(state: Any) -> Any:
    fork()
    return {"n": len(charge("parent"))}

async def leaves_the_loop(state: Any) -> Any:
    child = os.fork()
    if not child:
        return {"n": -1}  # the child's copy of the engine goes on, and must not write
    assert os.waitpid(child, 0)[1] == 0
    return {"n": 6}

node = {"thread": sync_node, "loop": async_node, "goes_on": leaves_the_loop}[where]
graph = StateGraph(State, name="g").add_node("node", node).add_edge(START, "node").compile(store=store)

async def main() -> None:
    parent = os.getpid()
    try:
        result = await graph.run({}, session_id="s")
    except Conflict:
        assert os.getpid() != parent
        os._exit(0)
    assert os.getpid() == parent, "the child has ended the run of its parent"
    assert result.state["n"] == 6, result.state
    if sys.argv[1] == "sqlite" and where != "goes_on":
        assert (await other.status("of the child")).status == "done"
    assert [point.source for point in await graph.history("s")] == ["end", "input"]
    await store.close()

asyncio.run(main())
"""


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("where", ["thread", "loop", "goes_on"])
def test_the_runs_of_the_parent_are_not_those_of_the_child(kind: str, where: str, tmp_path: Path):  # rule C6
    # Python 3.12 and later warn of every fork of a process with threads; that is what is tested here.
    options = ["-W", "error", "-W", "ignore::DeprecationWarning", "-W", "ignore::ResourceWarning"]
    command = [sys.executable, *options, "-c", PROGRAM, kind, str(tmp_path / "s.db"), where]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=50)
    assert (ended.returncode, ended.stderr) == (0, "")
