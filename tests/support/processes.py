"""`serve` as a separate process, with the flags of its command line."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.support.forked import Forked, ForkServer
from tests.support.forked_workers import shared_by_workers
from tests.support.releases import python_path
from tests.support.shared import REPOSITORY

SERVE = (sys.executable, "-m", "openresponses_server", "serve", "--port", "0")
_PIPE = 1024 * 1024  # bytes; as much as Linux gives a user


def with_tables(data: Path) -> Path:
    """Return this data folder, with the database that a server makes in one if it has none: a process that
    makes the tables takes as long as the server itself takes to start."""
    file = data / "openresponses-bridge" / "sessions.sqlite3"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(_tables())
    return data


@shared_by_workers
@cache
def _tables() -> bytes:
    from openresponses_server.store.sql.locations import database_url
    from openresponses_server.store.sql.migrate import upgrade

    with TemporaryDirectory() as folder:
        file = Path(folder, "sessions.sqlite3")
        upgrade(database_url(f"sqlite:///{file}"))
        return file.read_bytes()


@contextmanager
def started(
    *flags: str,
    folder: Path | None = None,
    errors: int = subprocess.PIPE,
    environment: Mapping[str, str] | None = None,
    forked: bool = True,
    server: ForkServer | None = None,
) -> Iterator[subprocess.Popen[str]]:
    """The process, ended with all its workers even after a failure. `folder` is its user's data folder, which
    `with_tables` gets ready, and `errors` is where its log goes, as `subprocess` has it: a pipe that nobody
    reads stops it when full, which the usual 64 KiB are after eight seconds in which a test asks `/readyz`.
    `environment` has variables beside those of this process. With `forked` the process is `Forked` from this
    `server`, which a variable that Python itself reads, such as `PYTHONPATH`, is too late for."""
    own = {"XDG_DATA_HOME": str(with_tables(folder))} if folder else {}
    options: dict[str, Any] = {
        "cwd": REPOSITORY,
        "stdout": subprocess.PIPE,
        "stderr": errors,
        "pipesize": _PIPE,
        "text": True,
        "env": {**os.environ, **own, **(environment or {})},
    }
    process = (
        Forked[str]([*SERVE[3:], *flags], server=server, **options)
        if forked
        else subprocess.Popen([*SERVE, *flags], **options)
    )
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(60)
                except subprocess.TimeoutExpired:
                    process.kill()  # or the context of the process would wait for its end without a limit
                    raise


def run_agent(
    agent: str, *arguments: str, home: Path, work: Path, data: Path, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """`run AGENT` as given by a user at this `home` and in the folder `work`; it has to succeed."""
    done = subprocess.run(
        [sys.executable, "-m", "openresponses_server", "run", agent, *arguments],
        cwd=work,
        env={
            **os.environ,
            "HOME": str(home),
            "PWD": str(work),
            "XDG_DATA_HOME": str(data),
            "PYTHONPATH": python_path(REPOSITORY),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, (done.stdout[-3000:], done.stderr[-3000:])
    return done


def base_of(process: subprocess.Popen[str]) -> str:
    """The address in the first line that it prints."""
    assert process.stdout is not None
    return address_in(process.stdout.readline())


def address_in(line: str) -> str:
    """The address in a line of a greeting."""
    address = re.search(r"http://\S+", line)
    assert address is not None, line
    return address[0]


def free_port() -> int:
    """A port of 127.0.0.1 on which nobody listens."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port: int = listener.getsockname()[1]
        return port


def children(pid: int) -> set[int]:
    """The worker processes of this parent."""
    pids = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
            line = stat.with_name("cmdline").read_bytes()
        except OSError:
            continue
        if int(fields[1]) == pid and b"openresponses_server.serving.worker" in line and fields[0] != "Z":
            pids.add(int(stat.parent.name))
    return pids


QUIET = ("ASGI callable", "Traceback", "Cancel ", "Exception")


def ended(process: subprocess.Popen[str], seconds: float = 60.0) -> str:
    """Wait until the process has ended as one that was asked to stop, and return its output."""
    errors = process.communicate(timeout=seconds)[1]
    assert process.returncode == 0, errors
    assert not [word for word in QUIET if word in errors], errors
    return errors
