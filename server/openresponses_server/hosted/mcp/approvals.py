"""Approvals of calls: exactly what a client approved runs, and it runs once.

The id of an `mcp_approval_request` is signed over the call that it asks about: its owner, server, tool as it
was described, and arguments. So an approval is valid whether the request is stored, in a conversation, or
sent back by a client that keeps everything itself; also after a restart and on another worker. One that is
given for another call is refused, as is one for a tool whose description has changed since. The id has the
time of the request: an approval is refused after a day, for which the store records its use, whether or not
it has the response.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from openresponses_bridge.protocol.unknown import Unknown

SECONDS: Final = 24 * 3600.0
"""Seconds for which an approval can be given after its request."""
PREFIX: Final = "mcpr_"
_TIME_DIGITS: Final = 8  # of seconds since the epoch, in hex
_NONCE_BYTES: Final = 8
_SIGNATURE_BYTES: Final = 16
_LENGTH: Final = len(PREFIX) + _TIME_DIGITS + 2 * (_NONCE_BYTES + _SIGNATURE_BYTES)

UseOnce = Callable[[str, float], Awaitable[bool]]
"""The type of `ResponseStore.use_once`."""


class Approvals:
    """Makes the ids of approval requests, and checks them."""

    def __init__(
        self, keys: Callable[[], Sequence[bytes]], use_once: UseOnce, clock: Callable[[], float] = time.time
    ) -> None:
        """`keys` returns the key that signs, followed by earlier ones; it is called when they are first
        needed."""
        self._keys = keys
        self._use_once = use_once
        self._clock = clock

    def request_id(self, *call: str) -> str:
        """Return an id for the request to approve this call, given by texts."""
        begun = f"{int(self._clock()):0{_TIME_DIGITS}x}{secrets.token_hex(_NONCE_BYTES)}"
        return f"{PREFIX}{begun}{_signature(self._keys()[0], begun, call)}"

    def is_for(self, request_id: str, *call: str) -> bool:
        """Return True if the id was made here for this call and can still be used."""
        if len(request_id) != _LENGTH or not request_id.isascii():
            return False
        begun = request_id[len(PREFIX) : -2 * _SIGNATURE_BYTES]
        signed = (f"{PREFIX}{begun}{_signature(key, begun, call)}" for key in self._keys())
        if not any(hmac.compare_digest(request_id, each) for each in signed):
            return False
        return self._clock() - int(begun[:_TIME_DIGITS], 16) <= SECONDS

    async def use(self, request_id: str) -> bool:
        """Use up the approval of this request. Returns True if its call may run now, which is the case once,
        whoever asks and on whichever worker. Raises Outage."""
        return await self._use_once(request_id, self._clock() + SECONDS)


def _signature(key: bytes, begun: str, call: tuple[str, ...]) -> str:
    signed = msgspec.json.encode((begun, *call))
    return hmac.digest(key, signed, "sha256")[:_SIGNATURE_BYTES].hex()


def granted(answer: Mapping[str, Any]) -> bool:
    """Return True if this `mcp_approval_response` lets the call run."""
    return answer.get("approve") is True


def raw_of(item: Any) -> dict[str, Any]:
    """Return the JSON of an item of a hosted tool, with OpenAI's name of its type; empty for any other
    item."""
    raw = item.raw if isinstance(item, Unknown) else item
    if not isinstance(raw, dict) or not isinstance(kind := raw.get("type"), str):
        return {}
    return {**raw, "type": kind.removeprefix("openai:")}


class Conversation:
    """The approvals that a conversation requests and gives."""

    def __init__(self, items: Iterable[Any]) -> None:
        self.requests: dict[str, dict[str, Any]] = {}
        """The requests, by their ids."""
        self.responses: dict[str, dict[str, Any]] = {}
        """The answers, by the ids of their requests; the first of several counts."""
        self.ran: set[str] = set()
        """The ids of the requests whose calls ran."""
        self.listed: dict[str, Any] = {}
        """The latest list of tools of each server, by its label."""
        for raw in map(raw_of, items):
            kind = raw.get("type")
            answered = raw.get("approval_request_id")
            if kind == "mcp_approval_request" and isinstance(raw.get("id"), str):
                self.requests[raw["id"]] = raw
            elif kind == "mcp_approval_response" and isinstance(answered, str):
                self.responses.setdefault(answered, raw)
            elif kind == "mcp_call" and isinstance(answered, str):
                self.ran.add(answered)
            elif kind == "mcp_list_tools" and isinstance(raw.get("server_label"), str):
                self.listed[raw["server_label"]] = raw.get("tools")
