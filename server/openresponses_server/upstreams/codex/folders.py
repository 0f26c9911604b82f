"""The folders in which Codex works: the one of the settings for everybody, else one for each key.

What a command writes is read by later turns in its folder (`AGENTS.md` speaks to each of them), so keys do
not share one. They lie in the data folder, since `workspace-write` lets every command write to `/tmp` too.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Collection
from pathlib import Path

from openresponses_server.settings.data_folder import data_folder, make_private

_PREFIX = "openresponses-codex-"


class Folders:
    """`shared` is that of the settings; of the others `most` are kept for keys without a thread."""

    def __init__(self, shared: str | None, most: int) -> None:
        self._shared = None if shared is None else str(Path(shared).expanduser())
        self._most = most
        self._made: Path | None = None
        self._of: OrderedDict[str, str] = OrderedDict()

    @property
    def of_processes(self) -> str:
        """Where a process is started. Raises OSError when there can't be one."""
        return self._shared or str(self._root())

    def of(self, owner: str) -> str:
        """Where the threads of this key work; empty for the first. Raises OSError when there can't be one."""
        if self._shared is not None:
            return self._shared
        if owner not in self._of:
            self._of[owner] = tempfile.mkdtemp(dir=self._root())
        self._of.move_to_end(owner)
        return self._of[owner]

    def surplus(self, in_use: Collection[str]) -> list[str]:
        """Those that are forgotten, to be removed: of the keys that were not served for the longest time, and
        of which none is in use."""
        idle = [owner for owner in self._of if owner not in in_use]
        return [self._of.pop(owner) for owner in idle[: max(0, len(self._of) - self._most)]]

    def close(self) -> None:
        """Remove all that were made."""
        if self._made is not None:
            shutil.rmtree(self._made, ignore_errors=True)
            self._made = None
            self._of.clear()

    def _root(self) -> Path:
        if self._made is None:
            try:
                made = tempfile.mkdtemp(prefix=_PREFIX, dir=make_private(data_folder()))
            except OSError:  # a server without a data folder of its own
                made = tempfile.mkdtemp(prefix=_PREFIX)
            self._made = Path(made)
        return self._made
