"""Keys that are managed while servers run: what is kept of each, and those that a process accepts.

A process holds all of them in memory, so that no request waits for the store, whatever key it has.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from openresponses_server.http.access import Access
from openresponses_server.limits.owners import KeyLimits, OwnerLimits, lowest

PREFIX: Final = "orb_"
"""What each of these keys begins with, so that programs that look for secrets in files find it."""
_OWNER_LENGTH: Final = 31


class ManagedKey(Struct, frozen=True):
    """What is kept of a key. Times are Unix seconds; `owner` is the operator's name of whom it is for, and
    `hash` the SHA-256 of the key in hex: a random key of 256 bits needs no slow one."""

    id: str
    hash: str
    last_four: str
    name: str
    owner: str
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None
    models: tuple[str, ...] | None = None
    """The names of models that it may be used for, with `*` and `?` as wildcards; None: all."""
    limits: KeyLimits = KeyLimits()

    def is_live(self, now: float) -> bool:
        """Whether it is accepted at this time."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class KeyChange(Struct, frozen=True):
    """New values of a key; what is unset stays as it is, so that a change of limits never undoes a
    revocation."""

    limits: KeyLimits | UnsetType = UNSET
    models: tuple[str, ...] | UnsetType | None = UNSET
    expires_at: float | UnsetType | None = UNSET
    revoked_at: float | UnsetType = UNSET

    @property
    def values(self) -> dict[str, Any]:
        """The new values by the names of their fields."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in fields.items() if value is not UNSET}

    def applied(self, key: ManagedKey) -> ManagedKey:
        """The key with these values."""
        return replace(key, **self.values)


def new_key() -> tuple[str, str, str]:
    """A new key, its id and its hash."""
    key = PREFIX + secrets.token_urlsafe(32)
    return key, f"key_{secrets.token_hex(8)}", hash_of(key)


def hash_of(key: str) -> str:
    """The hash under which a key is kept."""
    return hashlib.sha256(key.encode(errors="surrogateescape")).hexdigest()


def owner_of(name: str) -> str:
    """The owner of responses whose keys are for this name. No key of the settings has such an owner: theirs
    are hexadecimal."""
    return "k" + hashlib.sha256(name.encode()).hexdigest()[:_OWNER_LENGTH]


class KeyBook:
    """The keys that this process accepts; `limits` gets those of their owners."""

    def __init__(self, limits: OwnerLimits, clock: Callable[[], float] = time.time) -> None:
        self._limits = limits
        self._clock = clock
        self._by_hash: dict[str, ManagedKey] = {}
        self._by_id: dict[str, ManagedKey] = {}
        self.is_loaded = False
        """Whether the keys are known; until then none is accepted."""

    def replace(self, keys: Iterable[ManagedKey]) -> None:
        """These are all keys from now on."""
        now = self._clock()
        live = [key for key in keys if key.is_live(now)]
        self._by_hash = {key.hash: key for key in live}
        self._by_id = {key.id: key for key in live}
        of_owners: dict[str, list[KeyLimits]] = {}
        for key in live:
            of_owners.setdefault(owner_of(key.owner), []).append(key.limits)
        self._limits.replace({owner: lowest(limits) for owner, limits in of_owners.items()})
        self.is_loaded = True

    def access(self, key: str) -> Access | None:
        """What this key gives access to; None for one that is unknown, revoked or expired. It is found by
        its hash, whose beginning nobody can choose, so that the time of the search reveals nothing."""
        if not key.startswith(PREFIX):
            return None
        shown = hash_of(key)
        found = self._by_hash.get(shown)
        if found is None or not hmac.compare_digest(found.hash, shown) or not found.is_live(self._clock()):
            return None
        return Access(owner_of(found.owner), found.models, lambda: self._again(found.id))

    def _again(self, key_id: str) -> Access | None:
        """What the key gives access to now."""
        found = self._by_id.get(key_id)
        if found is None or not found.is_live(self._clock()):
            return None
        return Access(owner_of(found.owner), found.models, lambda: self._again(key_id))
