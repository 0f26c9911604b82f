"""Fields of an upstream that only clients of its own API know, on their way to them (law N1).

Requests carry such fields in `CreateResponse.native`, answers in `Response.native` and errors in
`ErrorPayload.native`: an inbound puts them there in the form of its API (those of answers with
`ResponseStream.native`), and the outbound of the same dialect takes them out. For any other outbound they are
losses.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from msgspec import UNSET

from openresponses_bridge.diagnostics import LONGEST_SHOWN, Diagnostics
from openresponses_bridge.errors import BridgeError
from openresponses_bridge.protocol.beyond import bounded_fields
from openresponses_bridge.protocol.codec import with_whole_characters
from openresponses_bridge.protocol.items import Item
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.response import (
    NATIVE,
    PROTOCOL,
    ErrorPayload,
    Native,
    Response,
    ResponseError,
)

Said = Response | ResponseError | ErrorPayload | BridgeError | Item


def native_of(said: Said, dialect: str) -> dict[str, Any]:
    """Return the further fields of an upstream of this dialect; {} if there are none. They may be any
    JSON."""
    fields = _native(said).get(dialect)
    return fields if isinstance(fields, dict) else {}


def _native(source: Said) -> dict[str, Any]:
    if isinstance(source, Response | ResponseError | ErrorPayload | BridgeError):
        return source.native or {}
    native = (getattr(source, "extra", UNSET) or {}).get(NATIVE)
    return native if isinstance(native, dict) else {}


def dialect_of(request: CreateResponse) -> str:
    """The dialect in which a client made its request."""
    return request.native.dialect if request.native is not UNSET else PROTOCOL


def object_in(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the object with this name; {} if it is not an object."""
    value = fields.get(name)
    return value if isinstance(value, dict) else {}


def report_native(said: Response, dialect: str, diagnostics: Diagnostics) -> None:
    """Report the further fields of upstreams of other dialects, in the answer or its error, each as a loss
    for a client of this dialect."""
    for where in _foreign(said, dialect):
        diagnostics.loss(where, "is not known to the client")
    for where in _foreign(said.error, dialect) if said.error is not None else ():
        diagnostics.loss(f"error.{where}", "is not known to the client")
    for item in said.output:
        for where in _foreign(item, dialect):
            diagnostics.loss(f"{item.type}.{where}", "is not known to the client")


def _foreign(source: Said, dialect: str) -> Iterator[str]:
    for name, fields in _native(source).items():
        if name != dialect and isinstance(fields, dict):
            yield from _names(fields)


def _names(fields: dict[str, Any]) -> Iterator[str]:
    for name, value in fields.items():
        if name == TIER:
            continue
        inner = value if isinstance(value, dict) and value else {"": value}
        yield from (f"{name[:LONGEST_SHOWN]}.{each[:LONGEST_SHOWN]}".rstrip(".") for each in inner)


def other_fields(received: Mapping[str, Any], read: Collection[str]) -> dict[str, Any]:
    """Return the non-null fields of an upstream's object that were not read."""
    return {name: value for name, value in received.items() if value is not None and name not in read}


TIER: Final = "service_tier"
"""The field of `Response.native` with the service tier in the upstream's own word; for all other clients,
`Response.service_tier` has the protocol's name."""
_NOT_TOLD: Final = frozenset({"auto", "default"})


def tier_for(
    said: Response, dialect: str, diagnostics: Diagnostics, names: Mapping[str, str] | None = None
) -> Any:
    """Return the service tier for a client of this dialect: the upstream's own word if it is of this dialect;
    else the protocol's name, translated by `names` if they are given. None if the tier is the default or not
    known, or if the dialect has no name for it, which is a loss."""
    own = native_of(said, dialect).get(TIER)
    tier = said.service_tier
    if own is not None or tier in _NOT_TOLD:
        return own
    if names is None or tier in names:
        return tier if names is None else names[tier]
    diagnostics.loss(TIER, f"{tier[:LONGEST_SHOWN]!r} is not known to the client")
    return None


def asked_tier(request: CreateResponse, names: Mapping[str, str], diagnostics: Diagnostics) -> str | None:
    """Return the service tier that a request asks for, translated by `names` from the protocol's names to an
    upstream's. None if it asks for none, or if the dialect has no name for it, which is a loss."""
    tier = request.service_tier
    if tier in (None, "auto") or tier in names:
        return names.get(tier or "")
    diagnostics.loss(TIER, f"{str(tier)[:32]!r} is not known")
    return None


ERROR_FIELDS: Final = frozenset({"type", "code", "message", "param"})
"""The fields of an error that every API has a place for."""


def native_error(dialect: str, fields: Mapping[str, Any], read: Collection[str] = ERROR_FIELDS) -> Native:
    """Return the value of `ErrorPayload.native` for an upstream's error: its `fields` without those that were
    `read`."""
    rest, _ = bounded_fields(with_whole_characters(other_fields(fields, read)))
    return {dialect: rest} if rest else UNSET
