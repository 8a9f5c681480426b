"""A clock for tests of the runner, and a store that keeps its time."""

import pytest

from adjourn.stores import Store
from adjourn.testing import FakeClock
from tests.conftest import MakeStore


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def timed(make_store: MakeStore, clock: FakeClock) -> Store:
    """A store whose time the test decides."""
    return make_store(clock)
