"""Programs that a test starts and waits for: those of npm, installed when first used, servers on a port."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Final

from tests.engines import installing
from tests.engines.installing import NotInstalled
from tests.support.serving import call

_STARTS: Final = 300.0  # seconds
_INSTALLS: Final = 600.0


def npm_program(package: str, name: str, overrides: Mapping[str, str] | None = None) -> Path:
    """A program of a package of npm with its version; `overrides` are versions of what it needs. Raises
    NotInstalled."""
    if shutil.which("npm") is None:
        raise NotInstalled(f"{name} needs npm")

    def install(folder: Path) -> None:
        (folder / "package.json").write_text(json.dumps({"private": True, "overrides": overrides or {}}))
        options = ["--prefix", folder, "--no-fund", "--no-audit", "--no-package-lock"]
        installing.run(["npm", "install", *options, package], _INSTALLS)

    folder = installing.once(package.removeprefix("@").replace("/", "-"), install)
    return folder / "node_modules" / ".bin" / name


@contextmanager
def listening(
    command: list[object], port: int, ready: str, variables: Mapping[str, str] | None = None
) -> Iterator[str]:
    """The address of a process on that port, as soon as the path `ready` is answered; what it writes is shown
    if it ends before."""
    base, log = f"http://127.0.0.1:{port}", installing.cache() / f"{Path(str(command[0])).name}-{port}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as written:
        process = subprocess.Popen(
            [str(each) for each in command],
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(variables or {})},
        )
        try:
            deadline = time.monotonic() + _STARTS
            while not _answers(base, ready):
                assert process.poll() is None, log.read_text()[-2000:]
                assert time.monotonic() < deadline, log.read_text()[-2000:]
                time.sleep(0.2)
            yield base
        finally:
            process.terminate()
            process.wait(30)
            log.unlink()


def _answers(base: str, path: str) -> bool:
    try:
        return call(base, "GET", path).status == 200
    except (OSError, HTTPException):
        return False
