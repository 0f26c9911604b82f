"""What changed in a list of models since a client last read it."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct

from openresponses_bridge.protocol.codec import encode

_KEPT: Final = 16  # versions that a client may come back with


class Changes(Struct, frozen=True):
    """The ids of the models that are new, gone or described otherwise since that version."""

    since: str
    added: list[str]
    removed: list[str]
    changed: list[str]


class ListVersions:
    """The latest versions of a list. A version is a digest of what is listed, so that every worker gives
    a list the same one; what changed can be said by those that have seen both."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, dict[str, str]] = OrderedDict()

    def note(self, models: Iterable[dict[str, Any]]) -> str:
        """The version of this list: objects with an `id`."""
        listed = {model["id"]: _digest(encode(model)) for model in models}
        version = _digest(encode(list(listed.items())))
        self._seen[version] = listed
        self._seen.move_to_end(version)
        while len(self._seen) > _KEPT:
            self._seen.popitem(last=False)
        return version

    def changes(self, since: str, version: str) -> Changes | None:
        """What changed between them; None when one of them is not known (any more)."""
        before, now = self._seen.get(since), self._seen.get(version)
        if before is None or now is None:
            return None
        return Changes(
            since,
            [name for name in now if name not in before],
            [name for name in before if name not in now],
            [name for name in now if name in before and before[name] != now[name]],
        )


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
