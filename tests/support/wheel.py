"""The two wheels, built as in a release, and environments that contain them and nothing of this checkout.

They need a registry to install from: without one, the calling test skips and says so, and fails with CI=true.
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
from typing import Literal

import pytest

from tests.support.shared import REPOSITORY

VERSIONS = ("3.11", "3.12", "3.13", "3.14")
"""The versions of Python for which both wheels are built."""
WITHOUT_LOCK = "3.14t"
"""The Python without the global lock, with which the library is tested."""
RUNNING = "{}.{}".format(*sys.version_info)
ROOTS = ("bridge", "server")
"""The folders of the distributions, the library first."""
_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--retries", "1")
_UV = (sys.executable, "-m", "uv", "pip", "install", "--quiet")
_UNREACHABLE = ("No matching distribution found", "Could not find a version", "onnect", "resolv")
_PRINT_VERSION = (
    "import sys, sysconfig; "
    "print('{}.{}'.format(*sys.version_info) + 't' * bool(sysconfig.get_config_var('Py_GIL_DISABLED')))"
)

Dependencies = Literal["pinned", "newest", "oldest"]
"""The versions of other projects' packages: those of constraints.txt, the newest, or the oldest allowed
ones."""


class Wheels:
    """The wheels in this folder, which all processes of a test run share: wheels that exist are not built
    again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, root: str) -> Path:
        """The wheel of one of ROOTS."""
        with self._once(f"dist-{root}") as (folder, there):
            if not there:
                source = _copied(root, self._folder / "source")
                _run(*_PIP, "wheel", "--no-deps", "--wheel-dir", str(folder), str(source))
            (built,) = folder.glob("*.whl")
            return built

    def environment(
        self, *packages: str, python: str = RUNNING, dependencies: Dependencies = "pinned"
    ) -> Path:
        """Return the interpreter of an environment after `pip install` with these arguments, in which the
        names of our packages stand for the wheels. Tests with the same arguments share the environment."""
        ours = self._ours()
        with self._once("-".join([python, dependencies, *packages])) as (folder, there):
            interpreter = folder / "bin" / "python"
            if not there:
                base = [require_interpreter(python), "-m", "venv", "--without-pip", str(folder)]
                subprocess.run(base, check=True, capture_output=True)
                if dependencies == "oldest":
                    # the packages that our own files name; those that they need are as new as they allow
                    files = [str(REPOSITORY / root / "pyproject.toml") for root in ROOTS]
                    named = [word for file in files for word in ("--requirements", file)]
                    oldest = ["--resolution", "lowest-direct", "--all-extras", *named]
                    _run(*_UV, "--python", str(interpreter), "--constraint", str(ours), *oldest, *packages)
                else:
                    pins = ["--constraint", str(REPOSITORY / "constraints.txt")] * (dependencies == "pinned")
                    install = ["install", "--constraint", str(ours), *pins, *packages]
                    _run(*_PIP, "--python", str(interpreter), *install)
            return interpreter

    def checkout(self, extras: str) -> Path:
        """The interpreter of a separate environment after `pip install '.[extras]'` in a copy of this
        checkout."""
        with self._once(f"checkout-{extras}") as (folder, there):
            assert not there, "somebody else may have changed it"
            copy = folder / "copy"
            copy.mkdir()
            for name in ("pyproject.toml", "setup.py", *ROOTS):
                _copied(name, copy)
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
            interpreter = folder / "venv" / "bin" / "python"
            pins = ["--constraint", str(REPOSITORY / "constraints.txt")]
            _run(*_PIP, "--python", str(interpreter), "install", *pins, f"{copy}[{extras}]")
            return interpreter

    def _ours(self) -> Path:
        """Return the file that makes an installer use the wheels instead of the packages with these names in
        the index."""
        lines = [f"openresponses-{root} @ {self.path(root).as_uri()}\n" for root in ROOTS]
        with self._once("ours") as (folder, there):
            file = folder / "constraints.txt"
            if not there:
                file.write_text("".join(lines))
            return file

    @contextmanager
    def _once(self, name: str) -> Iterator[tuple[Path, bool]]:
        """Yield (folder, whether it has been filled before). The first process fills it, and the others
        wait."""
        folder, mark = self._folder / name, self._folder / f"{name}.made"
        with (self._folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            folder.mkdir(exist_ok=True)
            yield folder, mark.exists()
            mark.touch()


def uninstall(interpreter: Path, *names: str) -> None:
    _run(*_PIP, "--python", str(interpreter), "uninstall", "--yes", *names)


def _copied(name: str, folder: Path) -> Path:
    """Copy a file or folder of this checkout, and return the copy: a build leaves folders behind, and reads
    those of earlier builds."""
    copy = folder / name
    if (REPOSITORY / name).is_dir():
        shutil.copytree(REPOSITORY / name, copy, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    else:
        shutil.copy(REPOSITORY / name, copy)
    return copy


def require_interpreter(version: str) -> str:
    """An interpreter of this version; skips the calling test if there is none."""
    interpreter = _interpreter(version)
    if interpreter is None:
        pytest.skip(f"Python {version} is not on this machine: nothing is tried with it")
    return interpreter


@cache
def _interpreter(version: str) -> str | None:
    if version == RUNNING:
        return sys.executable
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    candidates = [
        shutil.which(f"python{version}"),
        *sorted(versions.glob(f"{version.rstrip('t')}.*/bin/python"), reverse=True),
    ]
    return next((str(each) for each in candidates if each and _is(str(each), version)), None)


def _is(interpreter: str, version: str) -> bool:
    """Return whether the interpreter runs and has this version; a shim of pyenv may exist for a version that
    is not installed."""
    done = subprocess.run([interpreter, "-c", _PRINT_VERSION], capture_output=True, text=True, check=False)
    return done.returncode == 0 and done.stdout.strip() == version


def clean_environment() -> dict[str, str]:
    """Return the variables for a program that must not see this checkout, nor the options of this run."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST_"))}


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, env=clean_environment(), check=False)
    if done.returncode == 0:
        return
    errors = done.stderr.strip()
    if any(words in errors for words in _UNREACHABLE) and not os.environ.get("CI"):
        pytest.skip(f"no package registry can be reached, so that nothing is installed: {errors[-300:]}")
    pytest.fail(f"{' '.join(command)}\n{errors}")


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
