"""Law S8: several workers under one parent, which holds the port: replaced without a request that fails, and
gone when it is."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.processes import base_of, children, ended, started, with_tables
from tests.support.serving import call, respond
from tests.support.shared import REPOSITORY
from tests.support.waiting import wait_until
from tests.support.workers import slow_stream, type_of


@contextmanager
def workers(folder: Path, *flags: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Two, which serve."""
    with started("--workers", "2", *flags, folder=folder) as process:
        base = base_of(process)
        wait_until(lambda: call(base, "GET", "/readyz").status == 200)
        yield process, base


def refuses(base: str) -> bool:
    host, _, port = base.removeprefix("http://").partition(":")
    try:
        socket.create_connection((host, int(port)), 2).close()
    except OSError:
        return True
    return False


def test_s8_workers_whose_parent_is_killed_give_up_the_port_and_finish_what_they_have_begun(
    tmp_path: Path,
) -> None:
    with workers(tmp_path) as (process, base):
        reader = slow_stream(base, 100)
        left = children(process.pid)
        assert len(left) == 2
        process.kill()
        process.wait()
        wait_until(lambda: refuses(base))
        assert not reader.done
        with started("--port", base.rpartition(":")[2], folder=tmp_path) as successor:
            assert base_of(successor) == base
            assert respond(base, model="demo").status == 200
            reader.join()
            assert type_of(reader.frames[-2]) == "response.completed"
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in left))


def test_s8_sighup_and_a_death_replace_workers_and_signals_to_all_processes_at_once_hurry_nothing(
    tmp_path: Path,
) -> None:
    """No stream and no request fails. A service manager signals to all, and the parent passes its signals
    on."""
    with workers(tmp_path) as (process, base):
        before = children(process.pid)
        reader = slow_stream(base, 60)
        process.send_signal(signal.SIGHUP)

        def replaced() -> bool:
            assert respond(base, model="demo").status == 200
            return not children(process.pid) & before

        wait_until(replaced)
        reader.join()
        assert type_of(reader.frames[-2]) == "response.completed"
        wait_until(lambda: len(children(process.pid)) == 2)

        before = children(process.pid)
        victim = min(before)
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: len(children(process.pid) - {victim}) == 2)
        wait_until(lambda: call(base, "GET", "/readyz").status == 200)
        assert children(process.pid) > before - {victim}

        reader = slow_stream(base, 40)
        for pid in children(process.pid):
            os.kill(pid, signal.SIGTERM)
        process.send_signal(signal.SIGTERM)
        reader.join()
        assert type_of(reader.frames[-2]) == "response.completed"
        ended(process)


@contextmanager
def socket_activated(listener: socket.socket, folder: Path, *flags: str) -> Iterator[subprocess.Popen[str]]:
    """`serve` with this socket as systemd passes one on."""
    script = (
        "import os, sys\n"
        f"os.dup2({listener.fileno()}, 3)\n"
        "os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid()))\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'openresponses_server', 'serve', *sys.argv[1:]])\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, *flags],
        cwd=REPOSITORY,
        pass_fds=(listener.fileno(), 3),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "XDG_DATA_HOME": str(with_tables(folder))},
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def test_s8_socket_that_a_service_manager_holds_passes_to_the_next_server(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket_activated(listener, tmp_path) as old,
    ):
        base = base_of(old)
        assert base.endswith(f":{listener.getsockname()[1]}")
        reader = slow_stream(base, 60)
        with socket_activated(listener, tmp_path) as new:
            assert base_of(new) == base
            time.sleep(0.5)
            old.send_signal(signal.SIGTERM)
            time.sleep(0.2)
            assert {respond(base, model="demo").status for _ in range(20)} == {200}
            reader.join()
            assert type_of(reader.frames[-2]) == "response.completed"
            ended(old)
            new.send_signal(signal.SIGTERM)
            ended(new)


@pytest.mark.parametrize(
    ("kind", "message"),
    [(socket.SOCK_DGRAM, "listens on a TCP port"), (socket.SOCK_STREAM, "without API keys")],
)
def test_s7_socket_that_is_passed_on_is_held_to_the_same_rules(
    tmp_path: Path, kind: socket.SocketKind, message: str
) -> None:
    """Without keys only loopback is served, whoever bound the port."""
    with socket.socket(socket.AF_INET, kind) as passed:
        passed.bind(("0.0.0.0", 0))
        if kind == socket.SOCK_STREAM:
            passed.listen()
        with socket_activated(passed, tmp_path) as process:
            output = process.communicate()[1]
    assert process.returncode == 2
    assert re.search(message, output)
