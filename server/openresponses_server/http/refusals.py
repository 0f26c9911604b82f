"""Errors as bytes, for WebSockets and for connections without a valid request.

On a WebSocket an envelope replaces HTTP's status and headers (specification, "WebSocket").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from openresponses_bridge.errors import BridgeError
from openresponses_bridge.protocol.codec import encode
from openresponses_server.errors import HttpError, error_body, error_headers

DEFECT: Final = HttpError(500, "The server failed.", code="internal_error")


def busy() -> HttpError:
    """The connection's only stream has a turn in progress."""
    return HttpError(
        409,
        "A response is being made on this connection. Wait for its end, or open another connection.",
        code="response_in_progress",
        error_type="invalid_request_error",
    )


def envelope(error: BridgeError) -> bytes:
    """The error as a message. HTTP headers such as `retry-after` are in `headers`."""
    message: dict[str, Any] = {
        "type": "error",
        "status": error.http_status,
        "error": {
            "type": error.error_type,
            "code": error.code,
            "message": error.message,
            "param": error.param,
        },
    }
    if isinstance(error, HttpError) and error.headers:
        message["headers"] = error.headers
    return encode(message)


def with_headers(event: bytes, headers: Mapping[str, str]) -> bytes:
    """An event with HTTP headers such as `openresponses-losses` in the field `headers`, as in errors. Fields
    beyond the schema are allowed and have no meaning in the protocol."""
    return event[:-1] + b',"headers":' + encode(headers) + b"}"


def with_stream_id(message: bytes, stream_id: str) -> bytes:
    """A message with the `stream_id` of its lane."""
    return message[:-1] + b',"stream_id":' + encode(stream_id) + b"}"


def too_large(limit: int) -> HttpError:
    """The error for a message of more than `limit` bytes."""
    return HttpError(413, f"The message is larger than the limit of {limit} bytes.")


def limit_reached(seconds: float) -> HttpError:
    """The error for a connection that has reached its time limit."""
    return HttpError(
        400,
        f"The connection has reached its limit of {seconds / 60:g} minutes. Open another one to continue.",
        code="websocket_connection_limit_reached",
    )


def error_response(error: HttpError, target: bytes, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    """A whole HTTP answer, after which the connection is closed. `target` is the known part of the request's
    target, which selects the surface's format of the error; `headers` are those of every answer."""
    path = target.decode("latin-1")
    body = error_body(error, path)
    extra = [(name.encode(), value.encode()) for name, value in error_headers(error, path).items()]
    own = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    lines = b"".join(b"%s: %s\r\n" % header for header in (*headers, *extra, *own))
    return b"%s%s\r\n%s" % (STATUS_LINE[error.http_status], lines, body)
