"""A store in one SQLite file: the embedded default, for any number of processes on one machine."""

from ._store import SQLiteStore as SQLiteStore
