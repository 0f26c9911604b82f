"""The wheel, built as a release is, and environments with it and nothing of this checkout in them.

Needs a registry to install from: without one the calling test skips and says so, and fails with CI=true.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from tests.support.shared import REPOSITORY

VERSIONS = ("3.11", "3.12", "3.13", "3.14")
"""The versions of Python that the wheel is for."""
RUNNING = "{}.{}".format(*sys.version_info)
_PARTS = ("bridge", "server", "pyproject.toml", "README.md", "LICENSE")
_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
_UNREACHABLE = ("No matching distribution found", "Could not find a version", "Connection", "resolve")
_PRINT_VERSION = "import sys; print('{}.{}'.format(*sys.version_info))"


class Wheel:
    """The wheel in this folder, which all processes of a test run share: what is there is not made again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self) -> Path:
        """The wheel itself."""
        with self._once("dist") as (folder, there):
            if not there:
                # from a copy: building leaves folders, and takes what older builds left in them
                source = self._folder / "source"
                for part in _PARTS:
                    _copied(REPOSITORY / part, source / part)
                _pip("wheel", "--no-deps", "--wheel-dir", str(folder), str(source))
            (built,) = folder.glob("*.whl")
            return built

    def environment(self, *needs: str, extras: str = "", python: str = RUNNING) -> Path:
        """The interpreter of an environment with the wheel, these extras of it (with commas between them) and
        the further packages that are named. Every test that asks for the same gets the same."""
        wheel = self.path()
        name = "-".join([python, *extras.split(","), *needs])
        with self._once(name) as (folder, there):
            interpreter = folder / "bin" / "python"
            if not there:
                base = [require_interpreter(python), "-m", "venv", "--without-pip", str(folder)]
                subprocess.run(base, check=True, capture_output=True)
                what = f"{wheel}[{extras}]" if extras else str(wheel)
                pins = str(REPOSITORY / "constraints.txt")
                _pip("--python", str(interpreter), "install", "--constraint", pins, what, *needs)
            return interpreter

    @contextmanager
    def _once(self, name: str) -> Iterator[tuple[Path, bool]]:
        """(folder, whether it has been filled before); the first to come fills it, and the others wait."""
        folder, mark = self._folder / name, self._folder / f"{name}.made"
        with (self._folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            folder.mkdir(exist_ok=True)
            yield folder, mark.exists()
            mark.touch()


def require_interpreter(version: str) -> str:
    """An interpreter of this version; skips the calling test where there is none."""
    found = _interpreter(version)
    if found is None:
        pytest.skip(f"Python {version} is not on this machine: the wheel is not tried with it")
    return found


@cache
def _interpreter(version: str) -> str | None:
    if version == RUNNING:
        return sys.executable
    kept = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    candidates = [
        shutil.which(f"python{version}"),
        *sorted(kept.glob(f"{version}.*/bin/python"), reverse=True),
    ]
    return next((str(each) for each in candidates if each and _is(str(each), version)), None)


def _is(interpreter: str, version: str) -> bool:
    """Whether it runs and is of this version; a shim of pyenv may stand for one that is not there."""
    done = subprocess.run([interpreter, "-c", _PRINT_VERSION], capture_output=True, text=True, check=False)
    return done.returncode == 0 and done.stdout.strip() == version


def clean_environment() -> dict[str, str]:
    """The variables for a program that must not see this checkout."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def _copied(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        target.parent.mkdir(exist_ok=True)
        shutil.copy(source, target)


def _pip(*arguments: str) -> None:
    command = [*_PIP, "--retries", "1", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=clean_environment(), check=False)
    if done.returncode == 0:
        return
    said = done.stderr.strip()
    if any(words in said for words in _UNREACHABLE) and not os.environ.get("CI"):
        pytest.skip(f"no package registry can be reached, so that the wheel is not tried: {said[-300:]}")
    pytest.fail(f"{' '.join(command)}\n{said}")


def run(
    interpreter: Path, *arguments: str, folder: Path, stdin: str = "", code: int = 0
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(interpreter), *arguments],
        cwd=folder,
        env=clean_environment() | {"XDG_DATA_HOME": str(folder)},
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done
