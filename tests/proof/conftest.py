"""What tests with processes share: who starts them, and the places where they work, on each kind of store."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import postgres, redis

from .ledger import Ledger
from .places import KINDS, Kind
from .processes import Nursery


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    """The kind of store; a test that runs only over some of them has it as a parameter."""
    return request.param


@pytest.fixture
def place(tmp_path: Path, kind: Kind) -> Path:
    return next(_made(tmp_path, kind))


@pytest.fixture
def places(tmp_path: Path, kind: Kind) -> Iterator[Path]:
    return _made(tmp_path, kind)


def _made(folder: Path, kind: Kind) -> Iterator[Path]:
    # On Postgres they share a database: a schema costs half of what one does.
    database = postgres().fresh() if kind == "postgres" else ""
    for number in itertools.count():
        place = folder / str(number)
        place.mkdir()
        if kind != "sqlite":
            (place / "url").write_text(f"{database}?schema=place{number}" if database else redis().fresh())
        yield place


@pytest.fixture
def ledger(place: Path) -> Ledger:
    return Ledger(place / "ledger")
