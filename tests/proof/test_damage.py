"""Thousands of damaged stores: every operation ends soon, in a result or in an error of ours."""

from __future__ import annotations

import gc
import random
from pathlib import Path

import pytest

from adjourn import Runner
from adjourn.stores import SQLiteStore
from tests.effort import EFFORT, amount
from tests.proof import damage

SHARDS = 10
STORES = amount(default=400, proof=6_000, long=50_000) // SHARDS
LOOKS_EACH = 3


@pytest.mark.parametrize("shard", range(SHARDS))
async def test_a_damaged_store_never_hangs_or_raises_anything_of_its_own(tmp_path: Path, shard: int):
    # rules C10, C15; failures 54, 55
    path = tmp_path / "store.db"
    await damage.fill(path)
    template, choice = damage.Template(path), random.Random(shard if EFFORT == "default" else 1000 + shard)
    store = SQLiteStore(path, synchronous="NORMAL")
    found: dict[str, str] = {}
    for number in range(STORES):
        what = template.damage(choice)
        session = choice.choice([*template.hit, *template.hit, choice.choice(list(damage.SESSIONS))])
        looks = choice.sample(sorted(damage.LOOKS), LOOKS_EACH)
        change = choice.choice(sorted(damage.CHANGES))
        for name in (*looks, change):
            operation = damage.LOOKS.get(name) or damage.CHANGES[name]
            runner = Runner(damage.PROGRAMS[damage.SESSIONS[session]], store=store, store_timeout=1.0)
            wrong = await damage.trouble(operation, runner, session)
            if wrong is not None:
                found.setdefault(wrong.splitlines()[-2], f"{name} of '{session}' after {number} {what}\n{wrong}")
        if change != "delete idle" and (wrong := await damage.sound_session_works(store)) is not None:
            found.setdefault(wrong, f"after {what}")
        if number % 100 == 0:
            gc.collect()
    await store.close()
    template.connection.close()
    assert not found, f"{len(found)} kinds of trouble:\n\n" + "\n\n".join(found.values())
