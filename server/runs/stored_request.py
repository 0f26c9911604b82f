"""The request of a response in the background, as it is stored for the worker that will make it."""

from __future__ import annotations

from typing import Final

from bridge.errors import WireError
from bridge.protocol.codec import decode_json, encode
from bridge.protocol.request import CreateResponse
from bridge.state import WIRES
from server.sessions.base import StoredResponse

WIRE: Final = "openresponses-bridge:wire"
"""The field that says which wire its client reads."""

_USUAL_WIRE: Final = "openresponses"


def stored_request(request: CreateResponse, wire: str) -> bytes:
    """The request as JSON, with its client's wire."""
    return encode({**decode_json(encode(request)), WIRE: wire})


def wire_of(record: StoredResponse) -> str:
    """The wire that the client of this response reads; the usual one when its request does not say."""
    try:
        wire = decode_json(record.request or b"{}").get(WIRE)
    except WireError:
        wire = None
    return wire if wire in WIRES else _USUAL_WIRE
