"""The limits of single owners, which replace those of the settings: from their managed keys or from the
claims of their tokens."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct

WITHOUT_KEY: Final = ""
"""The owner of everything if no keys are required."""
_MOST_CLAIMED: Final = 10_000
"""How many owners whose latest tokens have limits are remembered: those used last."""


class KeyLimits(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Limits of one owner; None: those of the settings."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent: int | None = None
    """Responses in progress."""
    calls_per_day: int | None = None
    """Calls of tools that the server runs itself."""
    usd_per_day: float | None = None
    """US dollars that its responses cost in a day, in UTC."""


LIMIT_NAMES: Final = KeyLimits.__struct_fields__
MOST: Final = 2**40
"""The greatest limit."""
MOST_USD: Final = 1e6
LEAST_USD: Final = 1e-12
"""The limits of one in dollars: what is counted is whole numbers of the least."""
DEFAULT: Final = KeyLimits()


class OwnerLimits:
    """The limits of all owners that have their own."""

    def __init__(self) -> None:
        self._managed: dict[str, KeyLimits] = {}
        self._claimed: OrderedDict[str, KeyLimits] = OrderedDict()

    def of(self, owner: str) -> KeyLimits:
        """The limits of this owner."""
        return self._managed.get(owner) or self._claimed.get(owner, DEFAULT)

    def manage(self, owner: str, limits: KeyLimits | None) -> None:
        """Replace the limits that the owner's managed keys set; None: it has no such key."""
        if limits is None:
            self._managed.pop(owner, None)
        else:
            self._managed[owner] = limits

    def claim(self, owner: str, limits: KeyLimits) -> None:
        """The limits that the owner's latest token names."""
        self._claimed.pop(owner, None)
        if limits != DEFAULT:
            self._claimed[owner] = limits
            while len(self._claimed) > _MOST_CLAIMED:
                self._claimed.popitem(last=False)


def is_limit(name: str, value: object) -> bool:
    """Return True if the value is allowed for the limit with this name."""
    if name == "usd_per_day":
        return type(value) in (int, float) and LEAST_USD <= value <= MOST_USD  # type: ignore[operator]
    return type(value) is int and 0 < value <= MOST


def lowest(several: Iterable[KeyLimits]) -> KeyLimits:
    """Return the limits with the lowest value that any of these sets."""
    limits: dict[str, Any] = {}
    for each in several:
        for name in LIMIT_NAMES:
            limit = getattr(each, name)
            if limit is not None:
                limits[name] = min(limit, limits.get(name, limit))
    return KeyLimits(**limits)
