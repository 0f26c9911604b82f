"""The form of an answer, and the one that needs no translation."""

from __future__ import annotations

from typing import Final, Protocol

from openresponses_bridge.protocol.codec import encode, encode_sse
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.sse import DONE, encode_comment
from openresponses_server.runs.client import Batch

SSE_TYPE: Final = b"text/event-stream; charset=utf-8"
KEEP_ALIVE: Final = encode_comment("keep-alive")


class Form(Protocol):
    """One answer of one surface. `stream_type` is the content type of a stream, `keep_alive` the bytes that
    keep the connection alive while a model thinks; `one_form` says that there is one place for reasoning, so
    that of its forms `whole` is given the first."""

    stream_type: bytes
    keep_alive: bytes
    one_form: bool

    def streamed(self, batch: Batch, ended: bool) -> bytes:
        """The bytes for the events of one read; `ended` says that they are the last."""
        ...

    def whole(self, response: Response) -> bytes | None:
        """The body for a response that has ended; None when the surface can only call it an error."""
        ...


class ResponseForm:
    """The protocol's own: events, `[DONE]` last."""

    stream_type = SSE_TYPE
    keep_alive = KEEP_ALIVE
    one_form = False

    def streamed(self, batch: Batch, ended: bool) -> bytes:
        frames = encode_sse(batch.events) if batch.frames is None else batch.frames
        return frames + DONE if ended else frames

    def whole(self, response: Response) -> bytes | None:
        return encode(response)
