"""The folder through which the workers of a host count together (prometheus-client's multi-process mode).

Each writes files of its own there, and whichever is asked for `/metrics` adds them up."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"

FOLDER: Final = os.environ.get(_VARIABLE) or None
"""None when this process counts by itself. prometheus-client looks once, when it is loaded; so does this."""

if FOLDER is not None:
    os.makedirs(FOLDER, mode=0o700, exist_ok=True)


def share_metrics(workers: int) -> None:
    """Have the worker processes that are started from here count together. A folder that the environment
    names already may be shared by several servers of this host."""
    if workers > 1 and not os.environ.get(_VARIABLE):
        folder = tempfile.mkdtemp(prefix="openresponses-bridge-metrics-")
        os.environ[_VARIABLE] = folder
        atexit.register(shutil.rmtree, folder, ignore_errors=True)


def forget_stopped(folder: Path) -> None:
    """Remove what stopped processes said there is at the moment; what they counted stays."""
    for file in folder.glob("gauge_live*.db"):
        number = file.stem.rpartition("_")[2]
        if number.isdecimal() and not _runs(int(number)):
            file.unlink(missing_ok=True)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
