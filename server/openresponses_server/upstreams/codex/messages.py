"""What goes over the pipes: one JSON object a line, without the field `jsonrpc`. Of what comes only the parts
are decoded that say where it belongs."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

METHOD_NOT_FOUND: Final = -32601  # JSON-RPC 2.0, "Error object"


class Named(Struct):
    """An object of which its id counts."""

    id: str = ""


class TurnState(Named):
    """A turn, and how it stands."""

    status: str = ""


class Params(Struct, rename="camel"):
    """Where a notification or request belongs."""

    thread_id: str = ""
    turn_id: str = ""
    turn: TurnState | None = None


class RpcFailure(Struct):
    """The `error` of an answer."""

    code: int = 0
    message: str = ""


class Incoming(Struct):
    """One line: an answer (`id`), a notification (`method`) or a request (both)."""

    id: int | str | None = None
    method: str = ""
    params: Params | None = None
    result: Raw = Raw(b"null")
    error: RpcFailure | None = None

    @property
    def thread_id(self) -> str:
        return "" if self.params is None else self.params.thread_id

    @property
    def turn_id(self) -> str:
        if self.params is None:
            return ""
        return self.params.turn_id or ("" if self.params.turn is None else self.params.turn.id)

    @property
    def status(self) -> str:
        """How the turn stands that it is about."""
        turn = None if self.params is None else self.params.turn
        return "" if turn is None else turn.status


class AgentItem(Struct):
    """The item of an `item/completed`, as far as it is an answer."""

    type: str = ""
    text: str = ""


class _ItemParams(Struct):
    item: AgentItem


class _ItemCompleted(Struct):
    params: _ItemParams


_incoming: Final = msgspec.json.Decoder(Incoming)
_completed: Final = msgspec.json.Decoder(_ItemCompleted)


def incoming(line: bytes) -> Incoming | None:
    """What a line says; None for one that is not a message."""
    try:
        return _incoming.decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


def said_in(line: bytes) -> str:
    """The text of the message that an `item/completed` reports; empty for other items."""
    try:
        item = _completed.decode(line).params.item
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return ""
    return item.text if item.type == "agentMessage" else ""


def params_of(line: bytes) -> dict[str, Any]:
    """The parameters of a request, whole."""
    try:
        found = msgspec.json.decode(line)["params"]
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, LookupError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}
