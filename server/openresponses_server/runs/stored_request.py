"""The request of a response in the background, as it is stored for the worker that will make it."""

from __future__ import annotations

from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.beyond import put_back
from openresponses_bridge.protocol.codec import decode_json, encode
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.response import OURS
from openresponses_bridge.state import WIRES
from openresponses_server.store.base import StoredResponse

WIRE: Final = f"{OURS}wire"
"""The field that says which wire its client reads."""

_USUAL_WIRE: Final = "openresponses"


def stored_request(request: CreateResponse, wire: str) -> bytes:
    """The request as JSON, with its client's wire."""
    body = decode_json(encode(replace(request, beyond=UNSET, native=UNSET)))
    put_back(body, request.beyond)
    return encode({**body, WIRE: wire})


def wire_of(record: StoredResponse) -> str:
    """The wire that the client of this response reads; the usual one when its request does not say."""
    try:
        wire = decode_json(record.request or b"{}").get(WIRE)
    except WireError:
        wire = None
    return wire if wire in WIRES else _USUAL_WIRE
