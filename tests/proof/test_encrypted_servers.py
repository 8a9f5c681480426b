"""The whole suite over encrypted stores on real servers; `stores/test_encrypted.py` has what is special about them."""

import pytest

from adjourn.stores import EncryptedStore, Store
from adjourn.testing import FakeClock
from tests.stores import test_postgres, test_redis

KEYS = {"new": bytes(range(32)), "old": b"o" * 32}

pytestmark = pytest.mark.long


class TestOnRedis(test_redis.TestRedisStore):
    async def make_store(self, clock: FakeClock) -> Store:
        return EncryptedStore(await super().make_store(clock), KEYS)

    async def reopen(self, clock: FakeClock) -> Store:
        return EncryptedStore(await super().reopen(clock), KEYS, current="old")


class TestOnPostgres(test_postgres.TestPostgresStore):
    async def make_store(self, clock: FakeClock) -> Store:
        return EncryptedStore(await super().make_store(clock), KEYS)

    async def reopen(self, clock: FakeClock) -> Store:
        return EncryptedStore(await super().reopen(clock), KEYS, current="old")
