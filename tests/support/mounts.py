"""Mounts file systems for tests, which needs root."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(folder: Path) -> Iterator[Path]:
    """Make this folder and mount a file system of eight megabytes there. Skips the test if the machine does
    not allow that."""
    folder.mkdir()
    _mount("-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder))
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def make_read_only(folder: Path) -> None:
    """Make the file system that is mounted there read-only."""
    _mount("-o", "remount,ro", str(folder))


def _mount(*given: str) -> None:
    mount = shutil.which("mount")
    result = mount and subprocess.run([mount, *given], capture_output=True, check=False)
    if not result or result.returncode:
        pytest.skip("no file system can be mounted here: that needs root")
