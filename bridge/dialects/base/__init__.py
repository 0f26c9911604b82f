"""What every dialect is made of: the shape of its two halves, how failures are told, how fields are read."""

from bridge.dialects.base.failures import (
    CUT,
    EMPTY,
    INVALID_JSON,
    INVALID_SHAPE,
    LONGEST_NAME,
    NO_MESSAGE,
    UPSTREAM_ERROR,
    failure,
    name,
    word,
)
from bridge.dialects.base.fields import Fields, body_of, extension, invalid, number_of
from bridge.dialects.base.streams import Chunk, Inbound, Outbound

__all__ = [
    "CUT",
    "EMPTY",
    "INVALID_JSON",
    "INVALID_SHAPE",
    "LONGEST_NAME",
    "NO_MESSAGE",
    "UPSTREAM_ERROR",
    "Chunk",
    "Fields",
    "Inbound",
    "Outbound",
    "body_of",
    "extension",
    "failure",
    "invalid",
    "name",
    "number_of",
    "word",
]
