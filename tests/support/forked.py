"""`openresponses-bridge` in a process forked from one that has imported it.

Most of the time of a start is spent on imports. Tests of the start itself (what is imported when, `python
-m`, isolation) or of how Python exits start a new Python instead.
"""

import io
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Sequence
from multiprocessing.reduction import DupFd
from typing import Any, AnyStr

FORKING = multiprocessing.get_context("forkserver")
FORKING.set_forkserver_preload(
    [
        "openresponses_server.api.app",
        "openresponses_cli.__main__",
        "openresponses_cli.agents.running",
        "openresponses_cli.commands.agent",
        "openresponses_cli.commands.demo",
        "openresponses_cli.commands.serve",
        "openresponses_server.serving.server",
        "openresponses_server.store.logs.redis",
        "openresponses_server.store.sql.migrate",
        "openresponses_server.store.sql.store",
        __name__,
    ]
)


class Forked(subprocess.Popen[AnyStr]):
    """The process of a command line; `args` are the arguments after the program's name. The rest is as in
    `subprocess.Popen`, but the process is not a child of this one: it inherits only the file descriptors of
    its three streams, and variables that Python reads when it starts have no effect."""

    _process: Any = None

    def _execute_child(self, args: Sequence[str], *given: Any) -> None:
        executable, preexec_fn, _, pass_fds, cwd, env, _, _, shell, *pipes = given[:15]
        assert not any((executable, preexec_fn, pass_fds, shell)), "a forked process has none of these"
        read, _, _, write, _, errors = pipes
        new_session = given[20]
        streams = [_Stream(own if own != -1 else usual) for usual, own in enumerate((read, write, errors))]
        given_environment = dict(os.environ if env is None else env)
        where = os.fspath(cwd or os.getcwd())
        what = (list(args), where, given_environment, streams, new_session)
        self._process = FORKING.Process(target=_run, args=what)
        try:
            self._process.start()
        finally:
            self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]
        self.pid = self._process.pid
        self._child_created = True

    def _internal_poll(self, *_: object, **__: object) -> int | None:
        if self.returncode is None and self._process is not None:
            self.returncode = self._process.exitcode
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        self._process.join(timeout)
        code = self._internal_poll()
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return code


class _Stream:
    """A file descriptor that is sent to the process when it is started."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (DupFd(self._descriptor),)


def _received(sent: Any) -> int:
    descriptor: int = sent.detach()
    return descriptor


def _run(
    arguments: list[str], folder: str, environment: dict[str, str], streams: list[int], new_session: bool
) -> None:
    """Run in the process: the program, with these arguments, working directory, environment and streams."""
    from openresponses_cli.__main__ import main

    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    if new_session:
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
    main()
