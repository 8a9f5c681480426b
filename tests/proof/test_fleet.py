"""Several servers on one store, killed, frozen and restarted under load, are as one that nothing happens to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.servers import postgres, redis

from .fleet import under_fire
from .places import KINDS, Kind

URLS: dict[Kind, Callable[[Path], str]] = {
    "sqlite": lambda folder: f"sqlite:///{folder / 's.db'}",
    "postgres": lambda _: postgres().fresh(),
    "redis": lambda _: redis().fresh(),
}


@pytest.mark.parametrize("kind", ["sqlite", *(pytest.param(kind, marks=pytest.mark.long) for kind in KINDS[1:])])
def test_servers_on_one_store_lose_nothing(kind: Kind, tmp_path: Path):  # rules V3, V8, V13, failures 25, 26, 27, 79
    assert under_fire(URLS[kind](tmp_path), tmp_path, servers=2, sessions=6, rounds=3) == []


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KINDS)
def test_servers_on_one_store_lose_nothing_for_long(kind: Kind, seed: int, tmp_path: Path):  # rules V3, V8, V13
    found = under_fire(URLS[kind](tmp_path), tmp_path, servers=3, sessions=40, rounds=9, seed=seed)
    assert found == []


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_workers_of_one_server_lose_nothing(kind: Kind, tmp_path: Path):  # rules V3, V8, V13
    url = URLS[kind](tmp_path)
    assert under_fire(url, tmp_path, servers=1, workers=3, sessions=24, rounds=6) == []
