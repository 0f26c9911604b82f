"""What was seen last, in bounded memory."""

from __future__ import annotations

from typing import Final, TypeVar

Value = TypeVar("Value")

MOST_RECENT: Final = 1_024


class Recent(dict[str, Value]):
    """A dict of at most `most` keys: another one takes the place of the key that came first."""

    __slots__ = ("_most",)

    def __init__(self, most: int = MOST_RECENT) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: str, value: Value) -> None:
        super().__setitem__(key, value)
        if len(self) > self._most:
            del self[next(iter(self))]
