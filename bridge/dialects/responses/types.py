"""What one item of the upstream's stream has told so far."""

from __future__ import annotations

from bridge.protocol.items import Item


class Track:
    """One upstream item by its output_index. `told` counts the characters that went out, by part."""

    __slots__ = ("announced", "call_open", "closed", "item", "item_id", "kind", "told")

    def __init__(self, item: Item | None, item_id: str) -> None:
        self.item = item
        self.item_id = item_id
        self.kind = "" if item is None else item.type
        self.told: dict[tuple[str, int], int] = {}
        self.call_open = False
        self.announced = False
        self.closed = False

    @property
    def silent(self) -> bool:
        """Whether nothing of the item has been sent on."""
        return not self.told and not self.call_open and not self.announced
