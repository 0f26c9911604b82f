"""What asking an upstream raises beside the system's own errors; all are OSErrors, and their text is for
anybody who asks: it names nothing that is the operator's."""

from __future__ import annotations


class ConnectionLost(ConnectionError):
    """The upstream closed before its answer had ended."""


class InvalidAnswer(ConnectionError):
    """What came is not an answer in HTTP/1.1, or its body is not in the encoding that it names."""


class InvalidRequest(ConnectionError):
    """The address or a header can't be written as HTTP/1.1."""


class NotReached(ConnectionError):
    """There is no connection. `cause` is for the operator: it names the proxy, the file or the socket.
    `lasting`: waiting does not mend it."""

    def __init__(self, message: str, cause: str, *, lasting: bool = False) -> None:
        super().__init__(message)
        self.cause = cause
        self.lasting = lasting
