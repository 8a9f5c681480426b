"""SIGKILL at every point where an agent's session is stored, and after every effect; another process takes it up."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.effort import amount

from .checker import Portrait, check
from .child import When
from .places import Kind, on_each_store
from .processes import Nursery, job

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a dead owner is noticed at once on Linux only")

MOST = 80
"""Points that a workload has at most."""


async def seen(folder: Path, workload: str) -> Portrait:
    """The session, without how many questions were open at a step of one agent: others ask while it works."""
    portrait = await check(folder, workload)
    return replace(
        portrait, history=sorted((source, step, following, 0) for source, step, following, _ in portrait.history)
    )


@pytest.mark.parametrize("when", ["before", "after", "effect"])
@pytest.mark.parametrize(("kind", "workload"), on_each_store(["booking", "tour", "hotel"], default=0))
async def test_an_agent_killed_anywhere_is_finished_by_another_process(
    nursery: Nursery, places: Iterator[Path], kind: Kind, workload: str, when: When
):  # rules C8, R4, A15
    folder = next(places)
    ended = nursery.do(job("live", workload, folder))
    assert ended is not None
    assert ended.status == "done", ended
    whole = await seen(folder, workload)
    # Before the third write is after the second, so every other one of each is all of them.
    for at in range(1, MOST, amount(default=8, proof=2 if kind == "sqlite" else 5, long=2)):
        folder = next(places)
        dead = nursery.do(job("live", workload, folder, kill_at=at, when=when))
        ended = nursery.do(job("live", workload, folder))
        assert ended is not None
        assert ended.status == "done", ended
        assert await seen(folder, workload) == whole, f"killed {when} {at}"
        if dead is not None:
            break
    else:
        raise AssertionError(f"{workload} has more than {MOST} points")
    assert at > 5
