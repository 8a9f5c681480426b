"""Sessions in PostgreSQL, for any number of processes on any number of machines."""

from ._store import PostgresStore

__all__ = ["PostgresStore"]
