"""How a request reaches the application and how its answer is written: as uvicorn does both, in fewer steps
where they are as usual. The rest is left to uvicorn."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

# a name as this server writes one, and behind a mark that is in neither, a value without what ends its line
_MARK: Final = b"\0"
_LINES: Final = re.compile(rb"(?:[a-z0-9-]+\x00[^\x00-\x08\x0a-\x1f\x7f]*\r\n)*")
_LENGTH: Final = b"content-length"
_UNUSUAL: Final = frozenset({b"connection", b"transfer-encoding"})  # they change how the answer ends
_WITHOUT_BODY: Final = frozenset({204, 304})


class Answering(HttpToolsProtocol):
    """uvicorn's protocol without its timer for idle connections, which are the registry's to look after."""

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if not self.transport.is_closing():
            self.flow.resume_reading()
            if self.pipeline:
                self._start_asgi_task(*self.pipeline.pop())


async def receive(cycle: RequestResponseCycle) -> Any:
    """The next message to the application that answers in this cycle."""
    over = cycle.disconnected or cycle.response_complete
    if over or cycle.waiting_for_100_continue or cycle.flow.read_paused or not cycle.message_event.is_set():
        return await cycle.receive()
    cycle.message_event.clear()
    body, cycle.body = bytes(cycle.body), bytearray()
    return {"type": "http.request", "body": body, "more_body": cycle.more_body}


async def send(cycle: RequestResponseCycle, message: Mapping[str, Any]) -> None:
    """A message of the application that answers in this cycle."""
    if cycle.waiting_for_100_continue:  # the client may send the body now or its next request instead of it
        cycle.keep_alive = False
    usual = not cycle.flow.write_paused and not cycle.disconnected and not cycle.response_complete
    if usual and cycle.response_started:
        usual = message["type"] == "http.response.body" and _sent(cycle, message)
    elif usual:
        usual = message["type"] == "http.response.start" and _begun(cycle, message)
    if not usual:
        await cycle.send(cast(Any, message))


def _begun(cycle: RequestResponseCycle, message: Mapping[str, Any]) -> bool:
    """Write the head; whether it is a usual one."""
    status, length = message["status"], None
    headers = [*cycle.default_headers, *message["headers"]]
    for name, value in headers:
        if name in _UNUSUAL or (name == _LENGTH and length is not None):
            return False
        if name == _LENGTH:
            length = int(value)
    if status in _WITHOUT_BODY or cycle.scope["method"] == "HEAD":
        return False
    lines = b"".join([b"%b\0%b\r\n" % header for header in headers])
    if lines.count(b"\n") != len(headers) or _LINES.fullmatch(lines) is None:
        return False
    cycle.response_started, cycle.waiting_for_100_continue = True, False
    cycle.chunked_encoding, cycle.expected_content_length = length is None, length or 0
    framing = b"transfer-encoding: chunked\r\n" if length is None else b""
    close = b"" if cycle.keep_alive else b"connection: close\r\n"
    cycle.transport.write(
        b"%b%b%b%b\r\n" % (STATUS_LINE[status], lines.replace(_MARK, b": "), close, framing)
    )
    return True


def _sent(cycle: RequestResponseCycle, message: Mapping[str, Any]) -> bool:
    """Write a piece of the body; whether it is a usual one."""
    body, more = message.get("body", b""), message.get("more_body", False)
    if cycle.scope["method"] == "HEAD":
        return False
    if cycle.chunked_encoding:
        if body or not more:
            piece = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            cycle.transport.write(piece if more else piece + b"0\r\n\r\n")
    elif more or len(body) != cycle.expected_content_length:
        return False
    else:
        cycle.expected_content_length = 0
        cycle.transport.write(body)
    if not more:
        cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()
    return True
