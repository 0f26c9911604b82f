"""Answers to what never became a request, as bytes."""

from __future__ import annotations

from collections.abc import Sequence

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from openresponses_server.errors import HttpError, error_body


def written(error: HttpError, target: bytes, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    """The whole answer, after which the connection is closed. `target` is as much of the request's target as
    is known: the error has the shape of its surface. `headers` go out with every answer."""
    body = error_body(error, target.decode("latin-1"))
    given = [(name.encode(), value.encode()) for name, value in error.headers.items()]
    own = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    lines = b"".join(b"%s: %s\r\n" % header for header in (*headers, *given, *own))
    return b"%s%s\r\n%s" % (STATUS_LINE[error.http_status], lines, body)
