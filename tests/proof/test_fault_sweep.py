"""Every write of a session fails once, before or after the store has made it: the run goes on as if nothing was."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.effort import amount, some

from .checker import check
from .child import Fault
from .places import Kind, on_each_store
from .processes import Nursery, job

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="children are forks, found by their pids")

SWEPT = some(["nested", "booking", "turns", "hotel"], default=2)


@pytest.mark.parametrize("fault", ["before", "after"])
@pytest.mark.parametrize(("kind", "workload"), on_each_store(SWEPT, default=1))
async def test_a_write_whose_outcome_is_unknown_is_made_once(
    nursery: Nursery, places: Iterator[Path], kind: Kind, workload: str, fault: Fault
):  # rules C1, C11
    place = next(places)
    ended = nursery.do(job("live", workload, place))
    assert ended is not None
    assert ended.status == "done", ended
    whole = await check(place, workload)
    step = amount(default=5, proof=1 if kind == "sqlite" else 3, long=1)
    for at in range(1, ended.writes + 1, step):
        place = next(places)
        ended = nursery.do(job("live", workload, place, fail_at=at, fault=fault))
        assert ended is not None
        assert ended.status == "done", ended
        found = await check(place, workload)
        assert (found.state, found.questions) == (whole.state, whole.questions), f"failed {fault} {at}"
