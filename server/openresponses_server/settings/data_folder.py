"""Where this platform keeps what belongs to the user who serves."""

from __future__ import annotations

import os
import sys
from itertools import takewhile
from pathlib import Path
from typing import Final

_FOLDER: Final = "openresponses-bridge"


def data_folder() -> Path:
    """The user's data folder (on Linux the XDG base directory specification); it need not exist yet."""
    home = Path.home()
    if sys.platform == "darwin":
        base = home / "Library" / "Application Support"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    else:
        named = Path(os.environ.get("XDG_DATA_HOME", ""))
        base = named if named.is_absolute() else home / ".local" / "share"
    return base / _FOLDER


def make_private(folder: Path) -> Path:
    """This folder, made if need be for this user alone, and so are all of the folders above it that are made:
    `Path.mkdir(parents=True)` gives them the usual rights. What is there keeps its rights. Raises OSError."""
    missing = [folder]
    missing += takewhile(lambda each: not each.exists(), folder.parents)
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)
    return folder
