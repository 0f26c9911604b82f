"""Keys that are managed while servers run: what is kept of each, and those that a process accepts.

A process holds all of them in memory, so that no request waits for the store, whatever key it has.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import Any, Final

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from openresponses_server.http.access import Access
from openresponses_server.limits.owners import KeyLimits, OwnerLimits, lowest

PREFIX: Final = "orb_"
"""The prefix of each of these keys, so that scanners for secrets find them in files."""
_OWNER_LENGTH: Final = 31
_time_of: Final = itemgetter(0)


class ManagedKey(Struct, frozen=True):
    """The record of a key. Times are Unix seconds; `owner` is the operator's name of whom it is for, and
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
        """Return True if the key is accepted at this time."""
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
    """The keys that this process knows, those that have expired too: the clock may be set back. `limits` gets
    those of the owners of live ones."""

    def __init__(self, limits: OwnerLimits, clock: Callable[[], float] = time.time) -> None:
        self._limits = limits
        self._clock = clock
        self._by_hash: dict[str, ManagedKey] = {}
        self._by_id: dict[str, ManagedKey] = {}
        self._of_owners: dict[str, dict[str, ManagedKey]] = {}
        self._expiring: list[tuple[float, str]] = []  # times and owners, in order
        self._limited_at = clock()  # what is live then limits the owners
        self.is_loaded = False
        """Whether the keys are known; until then none is accepted."""

    def replace(self, keys: Iterable[ManagedKey]) -> None:
        """Replace all keys by these."""
        there = {key.id: key for key in keys}
        gone = dict.fromkeys(self._by_id.keys() - there.keys())
        self.change(gone | {key.id: key for key in there.values() if self._by_id.get(key.id) != key})
        self.is_loaded = True

    def change(self, changes: Mapping[str, ManagedKey | None]) -> None:
        """Replace the keys with these ids; None removes one. Takes time linear in all keys of their
        owners."""
        before = [self._by_id[key_id] for key_id in changes if key_id in self._by_id]
        after = [key for key in changes.values() if key is not None and key.revoked_at is None]
        for key in before:
            self._remove(key)
        for key in after:
            self._add(key)
        self.expire()
        self._limit({key.owner for key in (*before, *after)})

    def expire(self) -> None:
        """Limit owners by those of their keys that are live now."""
        before, self._limited_at = self._limited_at, self._clock()
        between = sorted((before, self._limited_at))
        start, end = (bisect_right(self._expiring, each, key=_time_of) for each in between)
        self._limit({owner for _, owner in self._expiring[start:end]})

    def access(self, key: str) -> Access | None:
        """Return what this key gives access to; None for one that is unknown, revoked or expired. It is found
        by its hash, whose beginning nobody can choose, so that the time of the search reveals nothing."""
        if not key.startswith(PREFIX):
            return None
        shown = hash_of(key)
        record = self._by_hash.get(shown)
        if record is None or not hmac.compare_digest(record.hash, shown) or not record.is_live(self._clock()):
            return None
        return Access(owner_of(record.owner), record.models, lambda: self._again(record.id))

    def _add(self, key: ManagedKey) -> None:
        self._by_id[key.id] = self._by_hash[key.hash] = key
        self._of_owners.setdefault(key.owner, {})[key.id] = key
        if key.expires_at is not None:
            insort(self._expiring, (key.expires_at, key.owner))

    def _remove(self, key: ManagedKey) -> None:
        del self._by_id[key.id], self._of_owners[key.owner][key.id]
        if self._by_hash.get(key.hash) is key:  # else it is another's, imported when this one was swept
            del self._by_hash[key.hash]
        if not self._of_owners[key.owner]:
            del self._of_owners[key.owner]
        if key.expires_at is not None:
            del self._expiring[bisect_left(self._expiring, (key.expires_at, key.owner))]

    def _limit(self, owners: Iterable[str]) -> None:
        for owner in owners:
            keys = self._of_owners.get(owner, {}).values()
            live = [key.limits for key in keys if key.is_live(self._limited_at)]
            self._limits.manage(owner_of(owner), lowest(live) if live else None)

    def _again(self, key_id: str) -> Access | None:
        """Return what the key gives access to now."""
        record = self._by_id.get(key_id)
        if record is None or not record.is_live(self._clock()):
            return None
        return Access(owner_of(record.owner), record.models, lambda: self._again(key_id))
