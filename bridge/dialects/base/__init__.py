"""What every dialect is made of: its entry, the shape of its two halves, the codes of failures, the
reading of fields."""

from bridge.dialects.base.counts import counted, counts_of
from bridge.dialects.base.dialect import (
    ClientSide,
    Dialect,
    History,
    Outgoing,
    Recording,
    RequestContext,
    UpstreamSide,
    type_of,
)
from bridge.dialects.base.entries import HISTORY, AnyItem, Entry, entries_of
from bridge.dialects.base.failures import (
    CUT,
    EMPTY,
    INVALID_JSON,
    INVALID_SHAPE,
    LONGEST_NAME,
    NO_MESSAGE,
    UPSTREAM_ERROR,
    error_text,
    failure,
    name,
)
from bridge.dialects.base.fields import Fields, body_of, extension, invalid, number_of
from bridge.dialects.base.streams import Chunk, Inbound, Outbound

__all__ = [
    "CUT",
    "EMPTY",
    "HISTORY",
    "INVALID_JSON",
    "INVALID_SHAPE",
    "LONGEST_NAME",
    "NO_MESSAGE",
    "UPSTREAM_ERROR",
    "AnyItem",
    "Chunk",
    "ClientSide",
    "Dialect",
    "Entry",
    "Fields",
    "History",
    "Inbound",
    "Outbound",
    "Outgoing",
    "Recording",
    "RequestContext",
    "UpstreamSide",
    "body_of",
    "counted",
    "counts_of",
    "entries_of",
    "error_text",
    "extension",
    "failure",
    "invalid",
    "name",
    "number_of",
    "type_of",
]
