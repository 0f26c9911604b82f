"""Errors of the HTTP client, and their reasons in plain words, for clients and for the operator."""

from __future__ import annotations

import os
import ssl
from typing import Final

# All are OSErrors, as the system's own errors. Clients may see their messages, which therefore do not name
# proxies, files or sockets.


class ConnectionLost(ConnectionError):
    """The server closed the connection before its response had ended."""


class RemoteProtocolError(ConnectionError):
    """The answer is not HTTP/1.1, or its body is not in the encoding that it names."""


class LocalProtocolError(ConnectionError):
    """The address or a header can't be written as HTTP/1.1."""


class ConnectError(ConnectionError):
    """No connection could be opened."""

    def __init__(self, message: str, cause: str, *, permanent: bool = False) -> None:
        """`cause`: for the operator, with the proxy, the file or the socket. `permanent`: a retry would not
        help."""
        super().__init__(message)
        self.cause = cause
        self.permanent = permanent


_OWN: Final = (ConnectError, ConnectionLost, RemoteProtocolError, LocalProtocolError)
_NO_TLS: Final = "it does not speak TLS there: is its address http:// instead of https://?"
_REFUSED: Final = "it refuses the client certificate"
# OpenSSL's names of the failures that a setting can fix
_TLS: Final = {
    "WRONG_VERSION_NUMBER": _NO_TLS,
    "RECORD_LAYER_FAILURE": _NO_TLS,
    "PACKET_LENGTH_TOO_LONG": _NO_TLS,
    "UNKNOWN_PROTOCOL": _NO_TLS,
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it asks for a client certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": _REFUSED,
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": _REFUSED,
    "SSLV3_ALERT_CERTIFICATE_REVOKED": _REFUSED,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": _REFUSED,
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": _REFUSED,
    "TLSV1_ALERT_ACCESS_DENIED": _REFUSED,
    "TLSV1_ALERT_UNKNOWN_CA": _REFUSED,
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "it ends the TLS handshake; it may ask for a client certificate",
}
_BROKEN: Final = "the connection broke"
_BY_TYPE: Final = (
    (ConnectionResetError, "it closed the connection"),
    (BrokenPipeError, "it closed the connection"),
    (TimeoutError, "it did not answer in time"),
    (ConnectionAbortedError, "the connection was ended"),
)


def public_reason(error: BaseException) -> str:
    """The reason for clients, in the system's words or ours. Messages of libraries are not used: they quote
    received data, or the address with its password."""
    cause = error.__cause__ if _is_wrapped(error) else error
    if isinstance(cause, _OWN):
        return str(cause)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return "its certificate is not accepted"
    if isinstance(cause, ssl.SSLError):
        return (
            _TLS.get(cause.reason or "")
            or f"TLS failed: {(cause.reason or 'no reason').replace('_', ' ').lower()}"
        )
    if isinstance(cause, OSError) and cause.errno is not None:
        # a failed look-up of a name has numbers of its own, below 0, and its own words
        return (
            os.strerror(cause.errno)
            if cause.errno > 0
            else cause.strerror or "its host name can't be resolved"
        )
    return next((words for kind, words in _BY_TYPE if isinstance(cause, kind)), _BROKEN)


def cause_of(error: BaseException) -> str:
    """The reason for the operator, with the proxy, the file or the socket."""
    if isinstance(error, ConnectError):
        return error.cause
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{public_reason(error)}: {error.verify_message}"
    return public_reason(error)


def is_permanent(error: BaseException) -> bool:
    """Return True if a retry would not help."""
    if isinstance(error, ConnectError):
        return error.permanent
    if isinstance(error, ssl.SSLError):
        return isinstance(error, ssl.SSLCertVerificationError) or (error.reason or "") in _TLS
    return isinstance(error, LocalProtocolError)


def _is_wrapped(error: BaseException) -> bool:
    return isinstance(error.__cause__, OSError) and not isinstance(error, _OWN)
