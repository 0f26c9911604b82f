"""Why a server was not reached or not heard."""

from __future__ import annotations

import os
import ssl
from typing import Final

# What asking a server raises beside the system's own errors; all are OSErrors, and their text is for
# anybody who asks: it names nothing that is the operator's.


class ConnectionLost(ConnectionError):
    """The server closed the connection before its response had ended."""


class InvalidAnswer(ConnectionError):
    """The response is not HTTP/1.1, or its body is not in the encoding that it names."""


class InvalidRequest(ConnectionError):
    """The address or a header can't be written as HTTP/1.1."""


class NotReached(ConnectionError):
    """No connection could be made. `cause` is for the operator: it names the proxy, the file or the socket.
    `lasting`: a retry would not help."""

    def __init__(self, message: str, cause: str, *, lasting: bool = False) -> None:
        super().__init__(message)
        self.cause = cause
        self.lasting = lasting


# Why a server was not reached or not heard, in plain words: for whoever asks, and for the operator's log
# and the start.

_OWN: Final = (NotReached, ConnectionLost, InvalidAnswer, InvalidRequest)
_NO_TLS: Final = "it does not speak TLS there: is its address http:// instead of https://?"
_REFUSED: Final = "it refuses the client certificate that it was shown"
# what OpenSSL calls the failures that a setting mends
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


def words_of(error: BaseException) -> str:
    """What anybody may read of it: the system's words for it, or ours. Other texts of libraries are left out:
    they quote what came, or the address with its password."""
    found = error.__cause__ if _is_wrapped(error) else error
    if isinstance(found, _OWN):
        return str(found)
    if isinstance(found, ssl.SSLCertVerificationError):
        return "its certificate is not accepted"
    if isinstance(found, ssl.SSLError):
        return (
            _TLS.get(found.reason or "")
            or f"TLS failed: {(found.reason or 'no reason').replace('_', ' ').lower()}"
        )
    if isinstance(found, OSError) and found.errno is not None:
        # a failed look-up of a name has numbers of its own, below 0, and its own words
        return (
            os.strerror(found.errno) if found.errno > 0 else found.strerror or "its name can't be looked up"
        )
    return next((words for kind, words in _BY_TYPE if isinstance(found, kind)), _BROKEN)


def cause_of(error: BaseException) -> str:
    """The same for the operator, with the proxy, the file or the socket that it is about."""
    if isinstance(error, NotReached):
        return error.cause
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{words_of(error)}: {error.verify_message}"
    return words_of(error)


def is_lasting(error: BaseException) -> bool:
    """Whether waiting does not mend it."""
    if isinstance(error, NotReached):
        return error.lasting
    if isinstance(error, ssl.SSLError):
        return isinstance(error, ssl.SSLCertVerificationError) or (error.reason or "") in _TLS
    return isinstance(error, InvalidRequest)


def _is_wrapped(error: BaseException) -> bool:
    return isinstance(error.__cause__, OSError) and not isinstance(error, _OWN)
