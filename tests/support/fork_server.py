"""A program that has imported the command line, and forks a process for each command that it is asked for.

`tests.support.forked` starts it, and ends it by closing its standard input. Each connection to its socket is
one command. A request is its length, as eight digits, and these fields, with NUL between them: options (`s`
for a session of its own, `k` for a process that is killed when the connection ends, `e` for one that goes
through the end of Python and has the encoding and the buffers of its variables), the working directory,
the number of arguments, the arguments, and the variables as `NAME=VALUE`; with the first bytes come the
descriptors of the three standard streams. The answers are a line with the id of the process, and, when it has
ended, one with its exit code.
"""

import gc
import io
import os
import selectors
import signal
import socket
import sys
import threading
import traceback
from contextlib import suppress
from importlib import import_module
from typing import Any, Final, NoReturn

import msgspec

_IMPORTED: Final = (
    "anyio._backends._asyncio",
    "anyio._core._sockets",
    "anyio._core._streams",
    "openresponses_cli.agents.running",
    "openresponses_cli.commands.agent",
    "openresponses_cli.commands.cli",
    "openresponses_cli.commands.db",
    "openresponses_cli.commands.demo",
    "openresponses_cli.commands.inspecting",
    "openresponses_cli.commands.replaying",
    "openresponses_cli.commands.serve",
    "openresponses_cli.commands.startup",
    "openresponses_server.__main__",
    "openresponses_server.api.app",
    "openresponses_server.limits.redis_counts",
    "openresponses_server.limits.redis_measurements",
    "openresponses_server.observation.measurements",
    "openresponses_server.serving.server",
    "openresponses_server.store.logs.redis",
    "openresponses_server.store.sql.migrate",
    "openresponses_server.store.sql.postgres",
    "openresponses_server.store.sql.sqlite",
    "openresponses_server.store.sql.store",
    "openresponses_server.upstreams.spans",
    "psycopg",
    "uvicorn.loops.uvloop",
    "uvloop",
)


class _Server:
    """Forks a process for each connection, and tells each what became of its process."""

    def __init__(self, address: str) -> None:
        self._running: dict[int, socket.socket] = {}
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(address)
        self._listener.listen(64)
        self._woken, self._wakes = socket.socketpair()
        for each in (self._woken, self._wakes):
            each.setblocking(False)
        self._selector = selectors.DefaultSelector()

    def run(self) -> None:
        """Return at the end of standard input."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal, which sends it to all
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)
        for file in (sys.stdin.fileno(), self._listener, self._woken):
            self._selector.register(file, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._listener:
                    self._begin(self._listener.accept()[0])
                elif key.fileobj is self._woken:
                    self._reap()
                elif isinstance(key.data, int):
                    self._selector.unregister(key.fileobj)
                    if key.data in self._running:
                        os.kill(key.data, signal.SIGKILL)
                else:
                    return

    def _begin(self, connection: socket.socket) -> None:
        begun, streams, _, _ = socket.recv_fds(connection, 8, 3)
        with connection.makefile("rb") as file:
            length = int(begun + file.read(8 - len(begun)))
            options, folder, count, *rest = file.read(length).split(b"\0")
        child = os.fork()
        if not child:
            self._leave()
            arguments, variables = rest[: int(count)], rest[int(count) :]
            _run([os.fsdecode(each) for each in arguments], folder, variables, streams, options)
        for each in streams:
            os.close(each)
        self._running[child] = connection
        self._tell(connection, child)
        if b"k" in options:
            self._selector.register(connection, selectors.EVENT_READ, child)

    def _reap(self) -> None:
        with suppress(BlockingIOError):
            self._woken.recv(4096)
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                connection = self._running.pop(ended[0])
                with suppress(KeyError):
                    self._selector.unregister(connection)
                self._tell(connection, os.waitstatus_to_exitcode(ended[1]))
                connection.close()

    @staticmethod
    def _tell(connection: socket.socket, number: int) -> None:
        with suppress(OSError):  # who asked may have ended
            connection.sendall(f"{number}\n".encode())

    def _leave(self) -> None:
        """Close, in a forked process, what is the server's."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._selector.close()
        for each in (self._listener, self._woken, self._wakes, *self._running.values()):
            each.close()


def _run(
    arguments: list[str], folder: bytes, variables: list[bytes], streams: list[int], options: bytes
) -> NoReturn:
    """Be the program, with these arguments, working directory, variables and standard streams."""
    os.environ.clear()
    for name, _, value in (each.partition(b"=") for each in variables):
        os.environb[name] = value
    os.chdir(folder)
    if b"s" in options:
        os.setsid()
    for usual, received in enumerate(streams):
        os.dup2(received, usual)
        os.close(received)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    errors = io.FileIO(2, "w", closefd=False)
    sys.stderr = io.TextIOWrapper(io.BufferedWriter(errors), errors="backslashreplace", line_buffering=True)
    sys.argv = ["openresponses-bridge", *arguments]
    sys.path.insert(0, os.curdir)  # as under `python -m`, whose entry `main` removes
    if b"e" in options:
        _open_as_python()
        sys.exit(sys.modules["openresponses_server.__main__"].main())
    code: object = 1
    try:
        sys.modules["openresponses_server.__main__"].main()  # the documented name
        code = 0
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
    finally:
        threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as the end of Python does
        for each in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                each.flush()
        os._exit(code if isinstance(code, int) else int(code is not None))


def _open_as_python() -> None:
    """Open standard output and error with the encoding and the buffers that the variables say."""
    encoding = os.environ.get("PYTHONIOENCODING")
    buffering = 0 if os.environ.get("PYTHONUNBUFFERED") else -1
    for name, errors in (("stdout", "strict"), ("stderr", "backslashreplace")):
        file: Any = open(sys.__dict__[name].fileno(), "wb", buffering, closefd=False)  # noqa: SIM115
        stream = io.TextIOWrapper(
            file, encoding, errors, line_buffering=name == "stderr", write_through=buffering == 0
        )
        sys.__dict__[name] = sys.__dict__[f"__{name}__"] = stream


def main(address: str, *names: str) -> None:
    """Import these modules, by default what all commands need, print a line, and serve."""
    del sys.path[0]  # the working directory, into which the program does not look
    gc.disable()  # it would go through all that is imported, many times
    for name in names or _IMPORTED:
        with suppress(ModuleNotFoundError):  # another revision has others
            import_module(name)
    if not names:
        settings = sys.modules["openresponses_server.settings"].Settings
        msgspec.convert({}, settings)  # reads all annotations once
    gc.enable()
    gc.freeze()
    server = _Server(address)
    print("ready", flush=True)
    server.run()
