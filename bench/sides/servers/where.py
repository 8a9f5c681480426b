"""The servers that the bench has started for a side, and how much they keep."""

import os
from typing import Any, Literal, cast

import psycopg
import redis

Kind = Literal["postgres", "redis"]


def url(kind: Kind) -> str:
    """Where an empty database of this kind is."""
    return os.environ[f"BENCH_{kind.upper()}"]


def megabytes(kind: Kind) -> float:
    """What the server keeps, in MB: of Postgres on disk, of Redis in memory. An empty database counts, too."""
    if kind == "redis":
        with cast("Any", redis.Redis).from_url(url("redis")) as client:
            return client.info("memory")["used_memory"] / 1e6
    with psycopg.connect(url("postgres"), autocommit=True) as connection:
        row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
        assert row is not None
        return row[0] / 1e6
