"""The commit from which a program was built, for `--version`.

Only files are read, and only on demand: no program is started, and the start of a server does not read them.
"""

from __future__ import annotations

import json
import re
from importlib import metadata
from pathlib import Path
from typing import Final

STAMP: Final = Path(__file__).parents[2] / "openresponses_server" / "commit.txt"
"""The file that a build without a repository writes, such as that of an image."""
_COMMIT: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_LONGEST: Final = 1 << 20  # bytes of a file that is read


def commit_of(distribution: str, stamp: Path = STAMP) -> str | None:
    """Return the commit: from the build's stamp, else from the repository that pip installed from, else from
    the checkout that the program is run from. None for a release from an index, whose tag names it."""
    return _checked(_read(stamp)) or _installed(distribution) or _checked_out(Path(__file__).resolve())


def _installed(distribution: str) -> str | None:
    try:
        origin = json.loads(metadata.distribution(distribution).read_text("direct_url.json") or "{}")
        return _checked(str(origin["vcs_info"]["commit_id"]))
    except (ValueError, KeyError, TypeError, metadata.PackageNotFoundError):
        return None


def _checked_out(file: Path) -> str | None:
    """Return the commit of HEAD in the repository of this file; None without a repository or a commit."""
    root = next((each for each in file.parents if (each / ".git").exists()), None)
    if root is None or not (root / "server" / "openresponses_cli").is_dir():
        return None
    folder = root / ".git"
    if folder.is_file():  # of a worktree: a line with the path of its folder
        folder = root / _read(folder).removeprefix("gitdir:").strip()
    head = _read(folder / "HEAD").strip()
    if not head.startswith("ref:"):
        return _checked(head)
    name = head.removeprefix("ref:").strip()
    common = folder / (_read(folder / "commondir").strip() or ".")
    for each in (folder, common):
        if commit := _checked(_read(each / name)):
            return commit
    rows = (row.split() for row in _read(common / "packed-refs").splitlines())
    return next((_checked(row[0]) for row in rows if row[1:] == [name]), None)


def _checked(text: str) -> str | None:
    return text.strip() if _COMMIT.fullmatch(text.strip()) else None


def _read(path: Path) -> str:
    """Return the text of a file; "" if it does not exist or can't be read."""
    try:
        with path.open("rb") as opened:
            return opened.read(_LONGEST).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""
