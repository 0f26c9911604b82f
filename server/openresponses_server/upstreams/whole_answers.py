"""A whole JSON answer where a stream was asked for: servers and gateways that can't stream send one.

It becomes the only frame of a stream, as its bytes arrive, and the dialect's inbound reads it like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_frame
from openresponses_server.http.flow import Sink
from openresponses_server.upstreams.base import UpstreamReply

_BOM: Final = b"\xef\xbb\xbf"
_FIELD: Final = b"data: "
_END: Final = b"\n\n"
# between JSON tokens a line end is white space, and within a string there can't be one
_ONE_LINE: Final = bytes.maketrans(b"\r\n", b"  ")

Recognises = Callable[[Mapping[str, Any]], bool]


def is_whole_answer(body: bytes, recognises: Recognises) -> bool:
    """Whether a JSON body is an answer in the dialect that `recognises` knows."""
    try:
        value = decode_frame(body.removeprefix(_BOM))
    except WireError:
        return False
    return isinstance(value, dict) and recognises(value)


class WholeReply:
    """The answer as a stream of one frame: `begun` is what has come of it, `rest` gives what follows, and is
    None when that was all."""

    whole = True

    __slots__ = ("_begun", "_rest", "_sink", "losses")

    def __init__(self, begun: bytes, losses: str, rest: UpstreamReply | None) -> None:
        self._begun = _FIELD + begun.removeprefix(_BOM).translate(_ONE_LINE)
        self._rest = rest
        self._sink: Sink | None = None
        self.losses = losses

    def start(self, sink: Sink) -> None:
        self._sink = sink
        sink.feed(self._begun)
        if self._rest is None:
            self.end(None)
        else:
            self._rest.start(self)

    def pause(self) -> None:
        if self._rest is not None:
            self._rest.pause()

    def resume(self) -> None:
        if self._rest is not None:
            self._rest.resume()

    def feed(self, data: bytes) -> None:
        """More of the answer."""
        if self._sink is not None:
            self._sink.feed(data.translate(_ONE_LINE))

    def end(self, error: Exception | None) -> None:
        """That was all of it."""
        sink, self._sink = self._sink, None
        if sink is not None:
            if error is None:
                sink.feed(_END)
            sink.end(error)
