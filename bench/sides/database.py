"""A database file of a side's own, and its size."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory


@contextmanager
def database() -> Generator[Path]:
    """The path of a database that does not exist yet and is removed afterwards.

    The runner points the temporary folder to the project's disk: `/tmp` is memory on many machines, and an fsync free.
    """
    with TemporaryDirectory() as folder:
        yield Path(folder, "bench.db")


def megabytes(path: Path) -> float:
    """The database and its write-ahead log, in MB."""
    files = (path, path.with_name(path.name + "-wal"))
    return sum(file.stat().st_size for file in files if file.exists()) / 1e6
