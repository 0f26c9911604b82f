"""Idempotency keys: a request that a client sends again under the same key gets the existing response."""

from __future__ import annotations

import hashlib
from typing import Final

from msgspec import Struct

KEPT: Final = 86_400.0
"""Seconds for which a key is bound to its first request."""


class IdempotencyKey(Struct, frozen=True):
    """A key of one owner, as it is stored: its `name` is a digest of both, and `request` one of the request.
    It is valid until `until` (Unix seconds), unless its response fails, is deleted or expires before that."""

    name: str
    request: str
    until: float

    @classmethod
    def of(cls, key: str, owner: str, body: bytes, now: float) -> IdempotencyKey:
        """Return this owner's key, sent now with a request of this body."""
        name = hashlib.sha256(f"{owner}\0{key}".encode("utf-8", "surrogatepass")).hexdigest()
        return cls(name, hashlib.sha256(body).hexdigest(), now + KEPT)


class KeyedResponse(Struct, frozen=True):
    """The response that a key stands for, and the digest of its request."""

    response_id: str
    request: str


class KeyTaken(Exception):
    """The key stands for another response."""

    def __init__(self, response: KeyedResponse) -> None:
        super().__init__(f"the key stands for {response.response_id}")
        self.found = response
