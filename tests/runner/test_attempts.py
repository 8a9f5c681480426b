"""`current().attempt` counts what a crash has cut off."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import asyncio, os, sys
from typing import Any
from adjourn import current
from adjourn.graph import START, StateGraph, StateSchema

url, dies_at = sys.argv[1:]

def visit(name: str) -> None:
    at = f"{name}{current().attempt}"
    print(at, flush=True)
    if at == dies_at:
        os._exit(9)

def first(state: Any) -> None:
    visit("first")

def second(state: Any) -> None:
    visit("second")

graph = (
    StateGraph(StateSchema(extra="allow"), name="g")
    .add_node(first).add_node(second).add_edge(START, "first").add_edge("first", "second")
    .compile(store=url)
)

async def main() -> None:
    await (graph.recover("s") if await graph.sessions() else graph.run({}, session_id="s"))

asyncio.run(main())
"""


def visited(folder: Path, program: str, dies_at: str) -> list[str]:
    """What a process that dies there has run."""
    url = f"sqlite:///{folder / 'a.db'}"
    ran = subprocess.run(
        [sys.executable, "-c", program, url, dies_at], capture_output=True, text=True, check=False, timeout=50
    )
    assert ran.returncode == (0 if dies_at == "nowhere" else 9), ran.stderr
    return ran.stdout.split()


@pytest.mark.skipif(sys.platform != "linux", reason="a dead owner is noticed at once on Linux only")
def test_an_attempt_that_a_kill_cut_off_counts(tmp_path: Path) -> None:  # rule R4
    assert visited(tmp_path, PROGRAM, "first1") == ["first1"]
    assert visited(tmp_path, PROGRAM, "first2") == ["first2"]  # Each crash is on record, even if nothing else is.
    assert visited(tmp_path, PROGRAM, "second1") == ["first3", "second1"]
    assert visited(tmp_path, PROGRAM, "nowhere") == ["second2"]


CHILD = """
import asyncio, os, sys
from adjourn import Runner, current, workflow

url, dies_at = sys.argv[1:]

def visit(name: str) -> None:
    at = f"{name}{current().attempt}"
    print(at, flush=True)
    if at == dies_at:
        os._exit(9)

@workflow
async def inner(name: str) -> None:
    visit(name)

@workflow
async def outer(input: str) -> None:
    await current().run(inner, "one")
    await current().run(inner, "two")

async def main() -> None:
    runner = Runner(outer, store=url)
    await (runner.recover("s") if await runner.sessions() else runner.run("", session_id="s"))

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a dead owner is noticed at once on Linux only")
def test_an_attempt_at_a_child_that_a_kill_cut_off_counts(tmp_path: Path) -> None:  # rule R4
    assert visited(tmp_path, CHILD, "one1") == ["one1"]
    assert visited(tmp_path, CHILD, "one2") == ["one2"]
    assert visited(tmp_path, CHILD, "nowhere") == ["one3", "two1"]
