"""`openresponses-bridge` in a process forked from one that has imported it, `fork_server`.

Most of the time of a start is spent on imports. Tests of the start itself (what is imported when, `python
-m`, isolation) or of how Python exits start a new Python instead.
"""

import atexit
import multiprocessing
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, AnyStr

from tests.support.forked_workers import shared_by_workers
from tests.support.shared import REPOSITORY

FORKING = multiprocessing.get_context("forkserver")
"""For functions of tests of stores, from a process that has imported what those tests import."""
FORKING.set_forkserver_preload(
    [
        "openresponses_server.store.logs.redis",
        "openresponses_server.store.sql.migrate",
        "openresponses_server.store.sql.postgres",
        "openresponses_server.store.sql.store",
        "pytest",
        "tests.support.services",
        "tests.support.stores",
    ]
)


# not with `-m`, or click would name the program after it
_SERVER = "import sys; from tests.support.fork_server import main; main(*sys.argv[1:])"


class ForkServer:
    """A process that forks the commands of this checkout, or, with other `variables`, those of the packages
    that Python then imports. It has imported `modules`, by default what all commands need."""

    def __init__(self, variables: Mapping[str, str] | None = None, modules: Sequence[str] = ()) -> None:
        self._folder = TemporaryDirectory(prefix="fork-")
        self.address = os.path.join(self._folder.name, "socket")
        self.programs = Path(self._folder.name, "bin")
        """A folder with `openresponses-bridge` for shells and for other programs: its process asks for a
        forked one, and that one ends with it."""
        self.programs.mkdir()
        program = self.programs / "openresponses-bridge"
        program.write_text(_PROGRAM.format(python=sys.executable, address=self.address))
        program.chmod(0o755)
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVER, self.address, *modules],
            cwd=REPOSITORY,
            env={**os.environ, **(variables or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"
        atexit.register(self.close)

    def close(self) -> None:
        """End it; the processes that it has forked go on."""
        atexit.unregister(self.close)
        self._process.communicate()
        self._folder.cleanup()


@shared_by_workers
@cache
def fork_server() -> ForkServer:
    """The one of this checkout."""
    return ForkServer()


# It imports nothing that is not built into Python, or else it would take twice as long. The end of the
# connection without a code is that of a killed process.
_PROGRAM = """\
#!{python} -IS
import os, sys, _socket
fields = [b"k", os.getcwdb(), str(len(sys.argv) - 1).encode(), *map(os.fsencode, sys.argv[1:])]
asked = b"\\0".join([*fields, *(name + b"=" + value for name, value in os.environb.items())])
connection = _socket.socket(_socket.AF_UNIX)
connection.connect({address!r})
streams = b"".join(each.to_bytes(4, sys.byteorder) for each in range(3))
connection.sendmsg([b"%08d" % len(asked)], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
while asked:
    asked = asked[connection.send(asked):]
said = b""
while data := connection.recv(100):
    said += data
code = int(said.split(b"\\n")[1])
os._exit(code if code >= 0 else 128 - code)
"""


class Forked(subprocess.Popen[AnyStr]):
    """The process of a command line; `args` are the arguments after the program's name, and `server` is what
    forks it, if that is not the one of this checkout. The rest is as in `subprocess.Popen`, but
    the process is not a child of this one: it inherits only the file descriptors of its three streams, and
    variables that Python reads when it starts have no effect. With `is_whole` it goes through the end of
    Python, and has the encoding and the buffers of its variables."""

    _server: ForkServer
    _connection: socket.socket | None = None

    def __init__(
        self, args: Sequence[str], *, server: ForkServer | None = None, is_whole: bool = False, **options: Any
    ) -> None:
        self._server = server or fork_server()
        self._is_whole = is_whole
        self._ending = threading.Lock()
        self._said = b""
        super().__init__(args, **options)

    def _execute_child(self, args: Sequence[str], *given: Any) -> None:
        executable, preexec_fn, _, pass_fds, cwd, env, _, _, shell, *pipes = given[:15]
        assert not any((executable, preexec_fn, pass_fds, shell)), "a forked process has none of these"
        read, _, _, write, _, errors = pipes
        streams = [own if own != -1 else usual for usual, own in enumerate((read, write, errors))]
        options = "s" * bool(given[20]) + "e" * self._is_whole
        own: Mapping[str, str] = os.environ if env is None else env
        words: list[str] = [str(len(args)), *args, *(f"{name}={value}" for name, value in own.items())]
        fields = [options, os.fspath(cwd or os.getcwd()), *words]
        payload = os.fsencode("\0".join(fields))
        self._connection = socket.socket(socket.AF_UNIX)
        try:
            self._connection.connect(self._server.address)
            socket.send_fds(self._connection, [b"%08d" % len(payload)], streams)
            self._connection.sendall(payload)
            self.pid = self._next()
        except BaseException:
            self._connection.close()
            raise
        finally:
            self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]
        self._child_created = True

    def _next(self) -> int:
        """The next number that the server says."""
        assert self._connection is not None
        while b"\n" not in self._said:
            data = self._connection.recv(100)
            if not data:
                raise RuntimeError("the process that forked it has ended")
            self._said += data
        line, _, self._said = self._said.partition(b"\n")
        return int(line)

    def _end(self, timeout: float | None) -> int | None:
        """The exit code, for which it waits no longer than this."""
        if not self._ending.acquire(timeout=-1 if timeout is None else timeout):
            return None  # another thread waits
        try:
            if self.returncode is None and self._connection is not None:
                self._connection.settimeout(timeout)
                self.returncode = self._next()
                self._connection.close()
        except (BlockingIOError, TimeoutError):
            pass
        finally:
            self._ending.release()
        return self.returncode

    def _internal_poll(self, *_: object, **__: object) -> int | None:
        return self._end(0)

    def _wait(self, timeout: float | None) -> int:
        code = self._end(timeout)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return code
