"""PostgreSQL and Redis for tests: the servers that variables name, those that run here, or, if their programs
are installed, new ones for this test run.

If there are none, tests skip and say what is missing; with CI=true they fail.
"""

import gc
import glob
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

import psycopg
import pytest
import redis
from psycopg.errors import DuplicateDatabase

_USERS = ("root", "postgres")


@contextmanager
def postgres_database() -> Iterator[str]:
    """The URL of an empty database, which is dropped afterwards."""
    with _postgres() as server:
        name = f"orb_test_{uuid.uuid4().hex[:12]}"
        with psycopg.connect(f"{server}/test", autocommit=True) as admin:
            admin.execute(f'CREATE DATABASE "{name}"')
        try:
            yield f"{server}/{name}".replace("postgresql://", "postgresql+psycopg://")
        finally:
            with psycopg.connect(f"{server}/test", autocommit=True) as admin:
                admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@contextmanager
def redis_server() -> Iterator[str]:
    """The URL of a Redis; each test has its own prefix for keys."""
    url = _with_scheme("redis", os.environ.get("TEST_REDIS_URL", "127.0.0.1:6379"))
    if _answers(lambda: redis.Redis.from_url(url, socket_timeout=2, socket_connect_timeout=2).ping()):
        yield url
    elif program := shutil.which("redis-server"):
        with own_redis(program) as server:
            yield server.url
    else:
        _missing(f"Redis does not answer at {urlsplit(url).netloc}, and redis-server is not installed")


class OwnRedis:
    """A Redis of one test, without persistence, which the test may stop and start again."""

    def __init__(self, program: str, options: Sequence[str] = ()) -> None:
        self._program = program
        self._options = options
        self._port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"redis://127.0.0.1:{self._port}/0"

    def start(self) -> None:
        options = ["--port", str(self._port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        command = [self._program, *options, *self._options]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _wait_for("redis-server", lambda: redis.Redis.from_url(self.url).ping())

    @property
    def pid(self) -> int | None:
        """The id of its process; None when it does not run."""
        return None if self._process is None else self._process.pid

    def freeze(self) -> None:
        """Freeze the process: connections accept bytes and get no answer."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
        _collect_clients()

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def own_redis(program: str | None = None, options: Sequence[str] = ()) -> Iterator[OwnRedis]:
    """A Redis that the test may kill, started with these additional options."""
    executable = program or shutil.which("redis-server")
    if executable is None:
        _missing("redis-server is not installed")
    server = OwnRedis(executable, options)
    server.start()
    try:
        yield server
    finally:
        server.stop()
        _collect_clients()


def _collect_clients() -> None:
    """Let the garbage collector find the connections that a client left behind when its server was killed or
    frozen while it connected; otherwise the collector would report them in another test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def can_mount() -> bool:
    """Return whether a file system can be mounted here, which `own_postgres` does for a disk of limited
    size."""
    with tempfile.TemporaryDirectory(prefix="orb-mount-") as folder:
        done = subprocess.run([*_MOUNT, "size=64k", "tmpfs", folder], capture_output=True, check=False)
        if done.returncode == 0:
            subprocess.run(["umount", folder], check=True)
        return done.returncode == 0


_MOUNT = ("mount", "-t", "tmpfs", "-o")


class OwnPostgres:
    """A PostgreSQL of this test, in a folder of its own, which the test may stop and start again. With
    `room`, the folder is a file system in memory of so many bytes, which can become full."""

    def __init__(self, programs: Path, room: int | None = None) -> None:
        self._programs = programs
        self._port = _free_port()
        self._folder = Path(tempfile.mkdtemp(prefix="orb-postgres-"))
        self._is_mounted = room is not None
        self.url = f"postgresql://postgres@127.0.0.1:{self._port}"
        if room is not None:
            subprocess.run([*_MOUNT, f"size={room}", "tmpfs", self._folder], check=True)
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            shutil.chown(self._folder, "postgres", "postgres")
        self._run("initdb", "-D", str(self._folder / "data"), "-U", "postgres", "-A", "trust", "--no-sync")
        with (self._folder / "data" / "postgresql.conf").open("a") as settings:
            settings.write(
                "max_connections = 300\n"
            )  # while workers are replaced, the old ones keep their connections until they have stopped

    def start(self) -> None:
        options = f"-p {self._port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self._folder}"
        self._control("start", "-o", options, "-l", str(self._folder / "log"))
        with psycopg.connect(f"{self.url}/postgres", autocommit=True) as admin, suppress(DuplicateDatabase):
            admin.execute("CREATE DATABASE test")

    def stop(self) -> None:
        self._control("stop", "-m", "immediate")

    @property
    def pid(self) -> int | None:
        """The id of the postmaster; None when it does not run."""
        with suppress(OSError, ValueError):
            return int((self._folder / "data" / "postmaster.pid").read_text().split()[0])
        return None

    def fill(self) -> None:
        """Leave no free space in its file system."""
        assert self._is_mounted
        with (self._folder / "ballast").open("wb", buffering=0) as file, suppress(OSError):
            usage = os.statvfs(self._folder)
            os.posix_fallocate(file.fileno(), 0, usage.f_bavail * usage.f_frsize)
            while file.write(bytes(4096)):
                pass

    def make_room(self) -> None:
        """Undo `fill`; a PostgreSQL that has stopped because it could not write its log starts again."""
        (self._folder / "ballast").unlink()
        while not _answers(partial(_connect_once, f"{self.url}/postgres")):
            with suppress(subprocess.CalledProcessError):
                self.start()

    def remove(self) -> None:
        with suppress(subprocess.CalledProcessError):
            self.stop()
        if self._is_mounted:
            subprocess.run(["umount", self._folder], check=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _control(self, *arguments: str) -> None:
        self._run("pg_ctl", "-D", str(self._folder / "data"), "-w", *arguments)

    def _run(self, program: str, *arguments: str) -> None:
        account = pwd.getpwnam("postgres") if os.geteuid() == 0 else None
        subprocess.run(
            [self._programs / program, *arguments],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            cwd=self._folder,
            user=None if account is None else account.pw_uid,
            group=None if account is None else account.pw_gid,
            extra_groups=None if account is None else [],
        )


@contextmanager
def own_postgres(room: int | None = None) -> Iterator[OwnPostgres]:
    """A PostgreSQL that the test may kill, and, with `room` in bytes (see `can_mount`), fill."""
    programs = _postgres_programs()
    if programs is None:
        _missing("PostgreSQL's server programs are not installed")
    server = OwnPostgres(programs, room)
    try:
        server.start()
        yield server
    finally:
        server.remove()


@contextmanager
def _postgres() -> Iterator[str]:
    """The URL of a server and of a user that may create databases, without the name of a database."""
    named = _with_scheme("postgresql", os.environ.get("TEST_POSTGRES_URL", "127.0.0.1:5432"))
    parts = urlsplit(named.replace("+psycopg", ""))
    users = [""] if "@" in parts.netloc else [f"{user}@" for user in _USERS]
    for user in users:
        url = f"postgresql://{user}{parts.netloc}"
        if _answers(partial(_connect_once, f"{url}/test")):
            yield url
            return
    if _postgres_programs() is None:
        _missing(f"PostgreSQL does not answer at {parts.hostname}:{parts.port}, and is not installed")
    with own_postgres() as server:
        yield server.url


def _connect_once(url: str) -> None:
    psycopg.connect(url, connect_timeout=2).close()


def _postgres_programs() -> Path | None:
    folders = [*glob.glob("/usr/lib/postgresql/*/bin"), *os.environ.get("PATH", "").split(os.pathsep)]
    # `Path.is_file` raises for a folder that this user may not read
    candidates = [Path(folder) for folder in folders if os.path.isfile(Path(folder) / "initdb")]
    return max(candidates, default=None)


def _missing(what: str) -> NoReturn:
    message = f"{what}: these tests need it"
    if os.environ.get("CI", "").lower() in ("1", "true"):
        pytest.fail(message)
    pytest.skip(message)


def _with_scheme(scheme: str, address: str) -> str:
    return address if "://" in address else f"{scheme}://{address}"


def _answers(probe: Callable[[], object]) -> bool:
    """Return whether the expected service answers: in some networks every connection succeeds."""
    try:
        probe()
    except (psycopg.Error, redis.RedisError, OSError):
        return False
    return True


def _wait_for(name: str, probe: Callable[[], object]) -> None:
    while not _answers(probe):
        time.sleep(0.02)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
