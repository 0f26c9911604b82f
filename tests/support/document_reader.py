"""A reader who follows the documents: it runs their commands in an empty folder with their files."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.document_blocks import files
from tests.support.forked import ForkServer
from tests.support.processes import free_port
from tests.support.wheel import clean_environment


class Reader:
    """A reader in an empty folder with the package installed: `port` replaces the port that a page uses for
    its server; `path` is the reader's PATH. With `forks` the processes of `openresponses-bridge` are forked
    by that server, as those of `Forked` are."""

    def __init__(self, python: Path, folder: Path, forks: ForkServer | None = None) -> None:
        self.folder = folder
        self._python = python
        self.port = free_port()
        self.path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
        if forks is not None:
            self.path = f"{forks.programs}{os.pathsep}{self.path}"
        self._environment = clean_environment() | {
            "PATH": self.path,
            "HOME": str(folder),
            "XDG_DATA_HOME": str(folder / "data"),
            "NO_PROXY": "*",
        }

    def files_of(self, page: str) -> None:
        """Write the files that a page names to the folder."""
        for name, text in files(page).items():
            (self.folder / name).write_text(self.placed(text))

    def placed(self, text: str) -> str:
        """Return the text with this reader's own port."""
        return re.sub(r"(127\.0\.0\.1:|--port )8[0-9]{3}\b", rf"\g<1>{self.port}", text)

    def run(self, command: str, *, code: int = 0, **variables: str) -> str:
        """Run a command of a page to its end, and return its output."""
        done = subprocess.run(
            ["sh", "-c", self.placed(command)],
            cwd=self.folder,
            env=self._environment | variables,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, (command, done.stdout, done.stderr)
        return done.stdout

    def python(self, file: str) -> str:
        """Run a Python program in the folder to its end."""
        return self.run(f"{shlex.quote(str(self._python))} {file}")

    @contextmanager
    def serving(self, command: str, **variables: str) -> Iterator[None]:
        """Start a server as a page does; it is killed at the end of the context."""
        placed = self.placed(command)
        if "--port" not in placed:
            placed += f" --port {self.port}"
        process = subprocess.Popen(
            ["sh", "-c", f"exec {placed}"],
            cwd=self.folder,
            env=self._environment | variables,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            while not self._answers():
                assert process.poll() is None, process.stderr and process.stderr.read()
                time.sleep(0.05)
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True
