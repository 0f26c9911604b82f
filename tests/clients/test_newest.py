"""The newest versions of the clients are those that were checked: if a client changes its name or reads
something else, this fails when the version appears, before users find out."""

import shutil
import subprocess
import sys

import pytest

from tests.clients.seen import ON, SEEN
from tests.support.shared import REPOSITORY

pytestmark = [pytest.mark.clients, pytest.mark.timeout(120)]


def newest(package: str) -> str:
    """The newest version in the package's registry, according to the registry's own client."""
    registry, name = package.split(":", 1)
    if registry == "npm":
        command = ["npm", "view", name, "version"]
    else:
        command = [sys.executable, "-m", "pip", "index", "versions", name, "--disable-pip-version-check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    if done.returncode:
        pytest.skip(f"the registry can't be asked: {done.stderr[-300:]}")
    return done.stdout.split("(")[-1].split(")")[0].strip() if registry == "pypi" else done.stdout.strip()


@pytest.mark.parametrize("package", SEEN)
def test_the_newest_version_is_the_one_that_was_seen(package: str) -> None:
    if package.startswith("npm:") and shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    version = newest(package)
    what = f"{package} is at {version}, and {SEEN[package]} was looked at on {ON[package]}"
    where = "openresponses_bridge/wire.py or tests/clients/seen.py"
    assert version == SEEN[package], f"{what}: run its tests, look at its user agent, write both into {where}"


PINS = dict(
    line.split("==") for line in (REPOSITORY / "constraints.txt").read_text("utf-8").split() if "==" in line
)


@pytest.mark.parametrize("package", [each for each in SEEN if each.startswith("pypi:")])
def test_the_pin_is_the_version_that_was_seen(package: str) -> None:
    """Some tests read the types of these packages: a field of a newer version would not be tested."""
    name = package.partition(":")[2]
    assert PINS.get(name, SEEN[package]) == SEEN[package], f"write {SEEN[package]} into constraints.txt"
