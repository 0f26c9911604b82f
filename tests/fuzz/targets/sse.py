"""Invariant: any bytes, however they are split, give the same frames in linear time, and nothing but
`bridge.sse.frame_too_large` is ever raised."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from openresponses_bridge.errors import WireError
from openresponses_bridge.sse import Frame, SSEDecoder, encode_data, encode_frame
from tests.fuzz.core import Target

LIMIT = 600


def decoded(pieces: Iterable[bytes], limit: int) -> tuple[list[Frame], Any]:
    """The frames, and the end of the stream: its id and retry, or the code of an error."""
    decoder, frames = SSEDecoder(limit), []
    try:
        for piece in pieces:
            frames += decoder.feed(piece)
        frames += decoder.close()
    except WireError as error:
        return frames, error.code
    return frames, (decoder.last_event_id, decoder.retry)


def pieces_of(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def any_stream(data: bytes) -> None:
    for limit in (LIMIT, 1 << 24):
        whole = decoded([data], limit)
        for size in (1, 7):
            assert decoded(pieces_of(data, size), limit) == whole
        if whole[1] == WireError.FRAME_TOO_LARGE:
            assert len(data) > limit
    for frame in decoded([data], 1 << 24)[0]:
        again = encode_frame(frame.event, frame.data) if frame.event else encode_data(frame.data)
        (same,), _ = decoded([again], 1 << 24)
        assert (same.event, same.data) == (frame.event, frame.data)


SEEDS = (
    b'event: response.created\ndata: {"a": 1}\n\ndata: [DONE]\n\n',
    b"\xef\xbb\xbf: hello\r\nid: 7\r\nretry: 1500\r\ndata: one\r\ndata:two\r\n\r\ndata: last",
    b"data: a\r\rdata\rdata:\rdata: b\r\r\nevent:x\n\n",
    b"id: 1\x00\ndata: " + b"x" * 590 + b"\n\n" + b"y" * 601,
)
WORDS = (
    b"data: ",
    b"event: ",
    b"id: ",
    b"retry: ",
    b": ",
    b"\r",
    b"\r\n",
    b"\n",
    b"\r\r",
    b"\x00",
    b"x" * 300,
)
TARGETS = [Target("sse", any_stream, SEEDS, WORDS)]
