"""The server of another revision as a process, with the Python and the libraries of this one."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.support.shared import REPOSITORY

NAMED = "TEST_PREVIOUS_REVISION"
"""The variable that names a revision to use instead of the default, in any form that git accepts."""
_MIGRATIONS = "server/openresponses_server/store/sql/migrations/versions"
_ROOTS = ("bridge", "server")


def previous_tree(kept: Path) -> Path:
    """Return a folder with the source roots of the release before, within `kept`, which other processes and
    later runs use too, so that its modules are compiled once. The release is the revision that the variable
    names, else the last tag of a version, else the last revision before the tables were changed. Skips the
    test if the history has none of these."""
    named = os.environ.get(NAMED) or last_tag(REPOSITORY) or f"{_last_change(_MIGRATIONS)}^"
    revision = _git("rev-parse", "--verify", f"{named}^{{commit}}").decode().strip()
    tree = kept / revision
    if not tree.exists():
        new = Path(tempfile.mkdtemp(dir=kept))
        subprocess.run(["tar", "-x", "-C", new], input=_git("archive", revision, *_ROOTS), check=True)
        try:
            new.rename(tree)
        except OSError:  # another process was faster
            shutil.rmtree(new)
    return tree


def environment_of(tree: Path) -> dict[str, str]:
    """Variables with which Python imports this tree's packages."""
    return {"PYTHONPATH": python_path(*(tree / root for root in _ROOTS))}


def python_path(*folders: Path) -> str:
    """The value of `PYTHONPATH` with these folders before those that it has here."""
    return os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])])


def last_tag(repository: Path) -> str:
    """Return the last tag of a version before the commit that is checked out; empty if there is none."""
    command = ["git", "describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", "HEAD^"]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def _last_change(path: str) -> str:
    return _git("log", "-1", "--format=%H", "--", path).decode().strip()


def _git(*words: str) -> bytes:
    try:
        done = subprocess.run(["git", *words], cwd=REPOSITORY, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("git is not installed: there is no release before to test with")
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip()
        if os.environ.get(NAMED):
            pytest.fail(f"{NAMED}: {reason}")
        pytest.skip(f"there is no history with a release before: {reason}")
    return done.stdout
