"""What asking an upstream raises beside the system's own errors; all are OSErrors."""

from __future__ import annotations


class ConnectionLost(ConnectionError):
    """The upstream closed before its answer had ended."""


class InvalidAnswer(ConnectionError):
    """What came is not an answer in HTTP/1.1, or its body is not in the encoding that it names."""


class InvalidRequest(ConnectionError):
    """The address or a header can't be written as HTTP/1.1."""
