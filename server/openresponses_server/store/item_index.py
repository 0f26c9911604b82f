"""Which of the responses in memory hold an item under an id."""

from __future__ import annotations

from collections.abc import Iterable

from openresponses_server.store.lookups import can_name


class ItemIndex:
    """(owner, item's id) → the ids of the responses that hold it."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, bytes], set[str]] = {}

    def add(self, owner: str, names: Iterable[bytes], response_id: str) -> None:
        """The response holds items under these ids."""
        for name in filter(can_name, names):
            self._found.setdefault((owner, name), set()).add(response_id)

    def drop(self, owner: str, names: Iterable[bytes], response_id: str) -> None:
        """It does not hold them any more."""
        for name in names:
            holders = self._found.get((owner, name), set())
            holders.discard(response_id)
            if not holders:
                self._found.pop((owner, name), None)

    def holders(self, owner: str, name: bytes) -> set[str]:
        """The responses of this owner that hold it."""
        return self._found.get((owner, name), set())

    def clear(self) -> None:
        """Nothing is held any more."""
        self._found.clear()
