"""A whole JSON answer to a request for a stream, as servers and gateways send that can't stream.

It becomes a stream with a single frame, as its bytes arrive, for the dialect's inbound.
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
# in JSON, a line end is white space between tokens, and never within a string
_ONE_LINE: Final = bytes.maketrans(b"\r\n", b"  ")

Recognises = Callable[[Mapping[str, Any]], bool]


def is_whole_answer(body: bytes, recognises: Recognises) -> bool:
    """Whether a body is JSON that `recognises` accepts as an answer of its dialect."""
    try:
        value = decode_frame(body.removeprefix(_BOM))
    except WireError:
        return False
    return isinstance(value, dict) and recognises(value)


class WholeReply:
    """A whole answer as a stream of one frame."""

    whole = True

    __slots__ = ("_begun", "_rest", "_sink", "losses")

    def __init__(self, begun: bytes, losses: str, rest: UpstreamReply | None) -> None:
        """`begun`: the bytes that were received; `rest`: the source of the others, None if there are none."""
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
        """The next bytes of the answer."""
        if self._sink is not None:
            self._sink.feed(data.translate(_ONE_LINE))

    def end(self, error: Exception | None) -> None:
        """The answer has ended."""
        sink, self._sink = self._sink, None
        if sink is not None:
            if error is None:
                sink.feed(_END)
            sink.end(error)
